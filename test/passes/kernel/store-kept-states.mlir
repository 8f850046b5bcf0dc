// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-keep-states,cse),stretto-fold-over-chunks{warps=4 warpgroups=true},stretto-divide-roles{outputs=4 walk=4},kernel.func(stretto-assign-layouts{read-again=true repeat-left=true warpgroups=true},stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-pass-late,stretto-share-channels,stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --stretto-lower-to-threads | FileCheck %s --check-prefix=THREADS

// Who finds outputs has the memory system store the state that a walk has passed from where it lies, before all else of
// its turn; products are formed meanwhile, and its place is released behind them.
// CHECK-LABEL: kernel.func @f.outputs(
// CHECK: scf.for
// CHECK: %[[STATE:.*]] = kernel.receive %[[CHANNEL:[0-9]+]] turn %[[TURN:.*]] : <tensor<64x64xbf16
// CHECK-NEXT: kernel.store %[[STATE]] to %{{.*}} at %{{.*}} bulk : tensor<64x64xbf16
// CHECK: kernel.finish
// CHECK: kernel.release %[[CHANNEL]] turn %[[TURN]]
// CHECK: kernel.store %{{.*}} to %o

// One thread says so, and what it has stored was read before it releases the place.
// THREADS-LABEL: llvm.func @f(
// THREADS-SAME: \22kind\22:\22kept\22,\22name\22:\22S\22
// THREADS-SAME: \22box\22:64,\22boxRows\22:64}
// THREADS: nvvm.cp.async.bulk.tensor.global.shared.cta
// THREADS: nvvm.cp.async.bulk.commit.group
// THREADS: nvvm.cp.async.bulk.wait_group 0 {read}
// THREADS: nvvm.mbarrier.arrive
chunk.kernel @f chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %g: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %half = arith.constant dense<0.5> : tensor<64x64xf32>
  %scores = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %causal = chunk.causal %scores : tensor<64x64xf32>
  %weights = arith.truncf %causal : tensor<64x64xf32> to tensor<64x64xbf16>
  %scaled = arith.mulf %S, %half : tensor<64x64xf32>
  %narrow = arith.truncf %scaled : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %narrow : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = chunk.dot %weights, %g add %read : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %k, %g transpose_left add %scaled : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o16 = arith.truncf %o : tensor<64x64xf32> to tensor<64x64xbf16>
  chunk.yield %o16 next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}

// What a product reads, too, is received once, for both.
// CHECK-LABEL: kernel.func @g.outputs(
// CHECK: scf.for
// CHECK: %[[STATE:.*]] = kernel.receive %[[CHANNEL:[0-9]+]] turn %[[TURN:.*]] : <tensor<64x64xbf16
// CHECK-NEXT: kernel.store %[[STATE]] to %{{.*}} at %{{.*}} bulk : tensor<64x64xbf16
// CHECK: chunk.dot %{{.*}}, %[[STATE]]
// CHECK: kernel.finish
// CHECK: kernel.release %[[CHANNEL]] turn %[[TURN]]
chunk.kernel @g chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %half = arith.constant dense<0.5> : tensor<64x64xf32>
  %scores = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %causal = chunk.causal %scores : tensor<64x64xf32>
  %weights = arith.truncf %causal : tensor<64x64xf32> to tensor<64x64xbf16>
  %narrow = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %narrow : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = chunk.dot %weights, %v add %read : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %scaled = arith.mulf %S, %half : tensor<64x64xf32>
  %next = chunk.dot %k, %v transpose_left add %scaled : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o16 = arith.truncf %o : tensor<64x64xf32> to tensor<64x64xbf16>
  chunk.yield %o16 next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
