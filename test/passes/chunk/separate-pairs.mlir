// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-separate-pairs))' | FileCheck %s

// What the start and the end of a chunk have in common crosses all tokens, what queries see of the start those up to
// them, and what the end keeps of keys those behind them.
// CHECK-LABEL: chunk.kernel @all
// CHECK: %[[E:.*]] = chunk.broadcast %e along columns
// CHECK: %[[TO:.*]] = chunk.decay_to_end %{{.*}} factor %f
// CHECK: %[[OTHERS:.*]] = chunk.decay_from_start %[[TO]] factor %f before
// CHECK: %[[A:.*]] = arith.mulf %[[E]], %[[OTHERS]]
// CHECK: %[[X:.*]] = arith.mulf %q, %s
// CHECK: %[[MIXED:.*]] = chunk.decay_mix %{{.*}}, %[[X]] factor %f transpose
// CHECK: %[[FROM:.*]] = chunk.decay_from_start %[[MIXED]] factor %f before
// CHECK: %[[B:.*]] = arith.addf %[[A]], %[[FROM]]
// CHECK: %[[Z:.*]] = arith.mulf %k, %z
// CHECK: %[[MIXED:.*]] = chunk.decay_mix %{{.*}}, %[[Z]] factor %f before :
// CHECK: %[[TO:.*]] = chunk.decay_to_end %[[MIXED]] factor %f
// CHECK: %[[C:.*]] = arith.addf %[[B]], %[[TO]]
// CHECK: %[[PAIRS:.*]] = chunk.decay_pairs %q, %k, %p factor %f : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
// CHECK: %[[ALL:.*]] = arith.addf %[[C]], %[[PAIRS]]
// CHECK: chunk.yield %[[ALL]]
chunk.kernel @all chunk 16 (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %f: tensor<16x8xf32>,
    input %p: tensor<16x16xf32>, input %s: tensor<16x8xf32>, input %z: tensor<16x8xf32>, parameter %e: tensor<8xf32>,
    valid %n: index) -> (o: tensor<16x8xf32>) {
  %y = chunk.decay_pairs %q, %k, %p factor %f seen %s : tensor<16x8xf32> kept %z : tensor<16x8xf32> ends %e : tensor<8xf32>
    : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}
