// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-round-operands),stretto-fold-over-chunks{warps=4 warpgroups},kernel.func(stretto-base-two-exponentials,stretto-assign-layouts{warpgroups},stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-round-operands),stretto-fold-over-chunks{warps=4 warpgroups},kernel.func(stretto-base-two-exponentials,stretto-assign-layouts{warpgroups},stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREADS

// Of a divergence products alone read the tiles that are met, and most is computed behind them: tiles come one at a time,
// so that a multiprocessor has memory for three blocks. When products have read one, threads meet, and the next is sent
// before anything is made of the scores. Nobody waits for copies of threads, as there are none.
// CHECK-LABEL: kernel.func @divergence(
// CHECK-COUNT-4: kernel.channel bulk depth 1
// CHECK: scf.for
// CHECK-NOT: kernel.await
// CHECK-NOT: kernel.barrier
// CHECK: %[[T:.*]] = chunk.dot
// CHECK: %[[S:.*]] = chunk.dot
// CHECK-DAG: kernel.finish %[[T]]
// CHECK-DAG: kernel.finish %[[S]]
// CHECK: kernel.barrier{{$}}
// CHECK-NEXT: scf.if
// CHECK-COUNT-2: kernel.send
// CHECK: chunk.reduce max
// CHECK-NOT: kernel.barrier
// CHECK: scf.yield

// The assembler is told to leave registers for three, and where shared memory begins comes from the first lane: a constant
// it would make anew where one thread alone sends.
// THREADS-LABEL: llvm.func @divergence(
// THREADS-SAME: nvvm.minctasm = 3
// THREADS: %[[SHARED:.*]] = llvm.mlir.addressof
// THREADS: %[[ADDRESS:.*]] = llvm.ptrtoint %[[SHARED]]
// THREADS: nvvm.shfl.sync
// THREADS: llvm.inttoptr
chunk.kernel @divergence chunk 64 (input %t: tensor<64x128xbf16>, input %s: tensor<64x128xbf16>, valid %n: index) -> (o: tensor<64xf32>) {
  %first = arith.constant dense<0.0> : tensor<64xf32>
  %d, %lt, %ls = chunk.lookback divergence from %first : tensor<64xf32>
      past(%t_j = %t : tensor<64x128xbf16>, %s_j = %s : tensor<64x128xbf16>) {
    %p = chunk.dot %t, %t_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %r = chunk.dot %s, %s_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    chunk.contribute %p, %r : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
  chunk.yield %d : tensor<64xf32>
}

// Values are multiplied last: a tile that came only then would be waited for. Threads meet, who need no fence, and the
// next tiles are sent while the product of scores is under way.
// CHECK-LABEL: kernel.func @softmax(
// CHECK: kernel.channel bulk depth 2
// CHECK: kernel.channel bulk depth 2
// CHECK: scf.for
// CHECK-NEXT: kernel.barrier{{$}}
// CHECK-NOT: kernel.send
// CHECK: %[[SCORES:.*]] = chunk.dot
// CHECK-NEXT: scf.if
// CHECK-COUNT-2: kernel.send
// CHECK: kernel.finish %[[SCORES]]
// THREADS-LABEL: llvm.func @softmax(
// THREADS-SAME: nvvm.minctasm = 1
chunk.kernel @softmax chunk 64 (input %q: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>, valid %n: index) -> (o: tensor<64x128xf32>) {
  %first = arith.constant dense<0.0> : tensor<64xf32>
  %m, %l, %sum = chunk.lookback softmax from %first : tensor<64xf32>
      past(%k_j = %k : tensor<64x128xbf16>, %v_j = %v : tensor<64x128xbf16>) {
    %p = chunk.dot %q, %k_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %rows = arith.extf %v_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %p, %rows : tensor<64x64xf32>, tensor<64x128xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64x128xf32>
  chunk.yield %sum : tensor<64x128xf32>
}

// Numbers of tokens no box holds: threads copy them, and wait for them. No product reads them, so that they need no
// fence.
// CHECK-LABEL: kernel.func @numbers(
// CHECK: kernel.channel depth 2 {{.*}}tensor<64xf32
// CHECK: scf.for
// CHECK-NEXT: kernel.await{{$}}
// CHECK: %[[SCORES:.*]] = chunk.dot
// CHECK-NEXT: scf.if
// CHECK: kernel.send %q
// CHECK: kernel.send %f
// CHECK: kernel.finish %[[SCORES]]
chunk.kernel @numbers chunk 64 (input %q: tensor<64x128xbf16>, input %f: tensor<64xf32>, valid %n: index) -> (o: tensor<64x128xf32>) {
  %first = arith.constant dense<0.0> : tensor<64xf32>
  %sum = chunk.lookback sum from %first : tensor<64xf32>
      past(%q_j = %q : tensor<64x128xbf16>, %f_j = %f : tensor<64xf32>) {
    %p = chunk.dot %q, %q_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %factors = chunk.broadcast %f_j along columns : tensor<64xf32> to tensor<64x64xf32>
    %weights = arith.mulf %p, %factors : tensor<64x64xf32>
    %rows = arith.extf %q_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %weights, %rows : tensor<64x64xf32>, tensor<64x128xf32>
  } : tensor<64x128xf32>
  chunk.yield %sum : tensor<64x128xf32>
}

// A window has few tiles: the next ones are sent at once.
// CHECK-LABEL: kernel.func @window(
// CHECK: scf.for
// CHECK-NEXT: kernel.await
// CHECK: scf.if
// CHECK: kernel.send %q
// CHECK: kernel.send %f
// CHECK: chunk.dot
// CHECK-NOT: kernel.send
// CHECK: scf.yield
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @window chunk 64 (input %q: tensor<64x128xbf16>, input %f: tensor<64xf32>, table %position: tensor<64xf32>, valid %n: index) -> (o: tensor<64x128xf32>) {
  %tokens = arith.constant dense<100.0> : tensor<64xf32>
  %first = arith.subf %position, %tokens : tensor<64xf32>
  %sum = chunk.lookback sum from %first : tensor<64xf32>
      past(%q_j = %q : tensor<64x128xbf16>, %f_j = %f : tensor<64xf32>) {
    %p = chunk.dot %q, %q_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %factors = chunk.broadcast %f_j along columns : tensor<64xf32> to tensor<64x64xf32>
    %weights = arith.mulf %p, %factors : tensor<64x64xf32>
    %rows = arith.extf %q_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %weights, %rows : tensor<64x64xf32>, tensor<64x128xf32>
  } : tensor<64x128xf32>
  chunk.yield %sum : tensor<64x128xf32>
}
