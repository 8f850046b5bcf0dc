// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{from-start},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-plan-shared-memory{chip=sm_90a},kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --stretto-lower-to-threads --cse | FileCheck %s --check-prefix=THREADS

chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}

// The memory system brings tiles of chunks that stand before each, turn by turn; what of a packed batch lies before its
// sequence is another one, whose rows are cleared.
// CHECK-LABEL: kernel.func @joins(
// CHECK: kernel.channel bulk depth {{[2-4]}}
// CHECK: kernel.channel bulk depth {{[2-4]}}
// CHECK: scf.for %[[C:[a-z0-9]+]] =
// CHECK: %[[LAGS:.*]] = arith.subi %[[C]], %c1
// CHECK: kernel.receive %{{.*}} at %[[LAGS]] turn
// THREADS-LABEL: llvm.func @joins(
// THREADS: scf.for
// THREADS: nvvm.mbarrier.try_wait
// THREADS: %[[BEFORE:.*]] = arith.cmpi slt, %[[FIRST:.*]], %{{c0_i64.*}} : i64
// THREADS: %[[VALID:.*]] = arith.select %[[BEFORE]], %{{c0_i32.*}}, %{{.*}} : i32
// THREADS: %[[FEWER:.*]] = arith.cmpi slt, %[[VALID]], %c64_i32
// THREADS: %[[CUT:.*]] = arith.andi %{{.*}}, %[[FEWER]]
// THREADS: scf.if %[[CUT]]
chunk.kernel @joins chunk 64 (input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, table %position: tensor<64xf32>,
    state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  %written = chunk.lookback outer from %position to %position : tensor<64xf32>
      past(%k_j = %k : tensor<64x64xbf16>, %v_j = %v : tensor<64x64xbf16>) attributes {met = array<i64: 1, 1>, wholly = array<i64: 1, 1>} {
    %x = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    %y = arith.extf %v_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %x, %y : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64x64xf32>
  %next = arith.addf %S, %written : tensor<64x64xf32>
  %o = arith.truncf %next : tensor<64x64xf32> to tensor<64x64xbf16>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
