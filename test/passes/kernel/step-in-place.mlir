// RUN: stretto-opt %s --split-input-file --verify-diagnostics --stretto-fold-over-chunks=in-place | FileCheck %s
// RUN: stretto-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay),stretto-fold-over-chunks{in-place},kernel.func(stretto-assign-layouts,stretto-plan-shared-memory{chip=sm_90a},stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREAD

chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}

// States are asked for first, then rows, and parameters when they are used. Nothing is stored before every thread has
// loaded.
// CHECK-LABEL: kernel.func @step(
// CHECK-SAME: roles [#kernel.role<all, 4>]
// CHECK: %[[S:.*]] = kernel.load %S
// CHECK: kernel.load %k at %c0
// CHECK: kernel.load %v at %c0
// CHECK-NOT: kernel.load
// CHECK: chunk.decay_state %[[S]]
// CHECK: kernel.load %w : 
// CHECK: kernel.evaluate %position at %c0
// CHECK: kernel.store %{{.*}} to %o at %c0
// CHECK: kernel.barrier
// CHECK: kernel.save %{{.*}} to %S
// CHECK-NOT: scf.for

// A block takes the four heads that share the state, the first one last. It has 128 threads for 32 entries each: 8
// accesses of 16 bytes load them, and as many store what they have become where the head is the first.
// THREAD-LABEL: llvm.func @step(
// THREAD-SAME: nvvm.minctasm = 4
// THREAD-SAME: nvvm.reqntid = array<i32: 128, 1, 1>
// THREAD: %[[ROW:.*]] = scf.if {{.*}} -> (i64)
// THREAD: %[[HELD:.*]] = arith.cmpi ult, %[[ROW]]
// THREAD: scf.if %[[HELD]]
// THREAD: scf.for
// THREAD-COUNT-8: llvm.load %{{.*}} : !llvm.ptr<1> -> vector<4xf32>
// THREAD-NOT: llvm.load %{{.*}} : !llvm.ptr<1> -> vector<4xf32>
// THREAD: nvvm.barrier
// THREAD: scf.if
// THREAD-COUNT-8: llvm.store %{{.*}} : vector<4xf32>, !llvm.ptr<1>
// THREAD-NOT: llvm.store %{{.*}} : vector<4xf32>, !llvm.ptr<1>
// THREAD: nvvm.barrier
// THREAD: llvm.return
chunk.kernel @step chunk 1 (input %k: tensor<1x64xf32>, input %v: tensor<1x64xf32>, parameter %w: tensor<64xf32>,
    table %position: tensor<1xf32>, state %S: tensor<64x64xf32> group 4, valid %n: index) -> (o: tensor<1x64xf32>) {
  %decayed = chunk.decay_state %S log %k along rows : tensor<64x64xf32>, tensor<1x64xf32>
  %weights = chunk.broadcast %w along rows : tensor<64xf32> to tensor<64x64xf32>
  %product = arith.mulf %weights, %decayed : tensor<64x64xf32>
  %read = chunk.reduce sum %product over rows : tensor<64x64xf32> -> tensor<64xf32>
  %row = chunk.broadcast %read along columns : tensor<64xf32> to tensor<1x64xf32>
  %sum = arith.addf %row, %v : tensor<1x64xf32>
  %shift = chunk.broadcast %position along rows : tensor<1xf32> to tensor<1x64xf32>
  %o = arith.addf %sum, %shift : tensor<1x64xf32>
  chunk.yield %o next %decayed : tensor<1x64xf32>, tensor<64x64xf32>
}

// -----

// Rows of a state that are no multiple of 16 bytes apart are loaded number by number.
// THREAD-LABEL: llvm.func @with_a_normaliser(
// THREAD-NOT: llvm.load %{{.*}} : !llvm.ptr<1> -> vector
// THREAD: llvm.return
chunk.kernel @with_a_normaliser chunk 1 (input %v: tensor<1x63xf32>,
    state %S: tensor<64x64xf32> of "S" column 0 columns 65, state %z: tensor<64xf32> of "S" column 64 columns 65,
    valid %n: index) -> (o: tensor<1x63xf32>) {
  chunk.yield %v next %S, %z : tensor<1x63xf32>, tensor<64x64xf32>, tensor<64xf32>
}

// -----

// expected-error @below {{takes 16 tokens at a time, expected 1 in a step}}
chunk.kernel @of_many_tokens chunk 16 (input %x: tensor<16x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  chunk.yield %x : tensor<16x32xf32>
}

// -----

chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// A step meets the tokens of its window in tiles, which are loaded where they lie: in the ring before the token, and the
// token itself. Its row takes its place in the ring when all threads have read it.
// CHECK-LABEL: kernel.func @look_back(
// CHECK: %[[C:.*]] = arith.constant 0 : index
// CHECK: %[[Q:.*]] = kernel.load %q at %[[C]]
// CHECK-NOT: kernel.load
// CHECK: %[[FIRST:.*]] = arith.subf
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = kernel.span %[[FIRST]] at %[[C]] by 64 : tensor<1xf32>
// CHECK: scf.for %[[J:.*]] = %[[BEGIN]] to %[[END]]
// CHECK-NOT: kernel.await
// CHECK: %[[K:.*]] = scf.if %{{.*}} -> (tensor<64x32xf32>) {
// CHECK-NEXT: kernel.load %k_window at %[[J]] : <tensor<24x32xf32>> -> tensor<64x32xf32>
// CHECK: } else {
// CHECK-NEXT: kernel.load %k at %[[J]] : <tensor<1x32xf32>> -> tensor<64x32xf32>
// CHECK: kernel.in_range %[[FIRST]] of %[[C]] in %[[J]] : tensor<1xf32> -> tensor<1x64xi1>
// CHECK-NOT: chunk.dot
// CHECK: kernel.store
// CHECK: kernel.barrier
// CHECK: kernel.carry %k at %[[C]] to %k_window
chunk.kernel @look_back chunk 1 (input %q: tensor<1x32xf32>, input %k: tensor<1x32xf32>, table %position: tensor<1xf32>,
    window %k_window: tensor<24x32xf32> of "k", valid %n: index) -> (o: tensor<1x32xf32>) {
  %before = arith.constant dense<23.0> : tensor<1xf32>
  %first = arith.subf %position, %before : tensor<1xf32>
  %row = chunk.reduce sum %q over rows : tensor<1x32xf32> -> tensor<32xf32>
  %rows = chunk.broadcast %row along columns : tensor<32xf32> to tensor<64x32xf32>
  %m, %l, %acc = chunk.lookback softmax from %first : tensor<1xf32>
      past(%k_j = %k : tensor<1x32xf32> to tensor<64x32xf32>) {
    %products = arith.mulf %rows, %k_j : tensor<64x32xf32>
    %scores = chunk.reduce sum %products over columns : tensor<64x32xf32> -> tensor<64xf32>
    %s = chunk.broadcast %scores along columns : tensor<64xf32> to tensor<1x64xf32>
    chunk.contribute %s, %k_j : tensor<1x64xf32>, tensor<64x32xf32>
  } : tensor<1xf32>, tensor<1xf32>, tensor<1x32xf32>
  chunk.yield %acc : tensor<1x32xf32>
}
