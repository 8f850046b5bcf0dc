// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s

// A tile of a bulk channel that lies in a window: threads copy its rows, meet, and one of them completes the barrier, for
// no bytes. All others the memory system copies.
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: llvm.func @window
// CHECK-DAG: %[[NONE:.*]] = arith.constant 0 : i32
// CHECK: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.wait.group 0
// CHECK: nvvm.barrier
// CHECK: scf.if
// CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %{{.*}}
// CHECK-NOT: nvvm.cp.async.shared.global
// CHECK: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %{{.*}}
// CHECK: nvvm.cp.async.bulk.tensor.shared.cluster.global
chunk.kernel @window chunk 64 (input %k: tensor<64x64xbf16>, table %position: tensor<64xf32>,
    window %k_window: tensor<80x64xbf16> of "k", valid %n: index) -> (o: tensor<64x64xf32>) {
  %before = arith.constant dense<79.0> : tensor<64xf32>
  %first = arith.subf %position, %before : tensor<64xf32>
  %m, %l, %acc = chunk.lookback softmax from %first : tensor<64xf32> past(%k_j = %k : tensor<64x64xbf16>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %x = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %s, %x : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  chunk.yield %acc : tensor<64x64xf32>
}
