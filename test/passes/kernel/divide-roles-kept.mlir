// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-keep-states{of-segments}),stretto-fold-over-chunks,stretto-divide-roles{outputs=8 walk=4})' | FileCheck %s

// A state that is kept as it is carried the walk stores itself: what it passes is what products read.
// CHECK-LABEL: kernel.func @linear(
// CHECK: kernel.channel passed 0 depth 1 : <tensor<64x64xbf16>>
// CHECK-NOT: kernel.channel passed
// CHECK: scf.for %[[TURN:[a-z0-9]+]] = {{.*}} iter_args(%[[S:.*]] = %{{.*}}) -> (tensor<64x64xf32>)
// CHECK: kernel.store %[[S]] to %S
// CHECK: chunk.dot %{{.*}}, %{{.*}} transpose_left add %[[S]]
// CHECK-LABEL: kernel.func @linear.outputs(
// CHECK: scf.for
// CHECK-NOT: kernel.store %{{.*}} to %S
// CHECK: kernel.store %{{.*}} to %o
chunk.kernel @linear chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %p = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %causal = chunk.causal %p : tensor<64x64xf32>
  %weights = arith.truncf %causal : tensor<64x64xf32> to tensor<64x64xbf16>
  %narrow = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %narrow : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = chunk.dot %weights, %v add %read : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o16 = arith.truncf %o : tensor<64x64xf32> to tensor<64x64xbf16>
  chunk.yield %o16 next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
