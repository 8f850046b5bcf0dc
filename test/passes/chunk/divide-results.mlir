// RUN: stretto-opt %s --stretto-divide-results | FileCheck %s

// A query's gradient is made of the tokens that it looks back to, those of keys and values of later ones: two kernels,
// each with what it needs. What is of few numbers, here `d_o` by number, is made in both.
// CHECK-LABEL: chunk.kernel @window chunk 16 reverse earlier(
// CHECK-SAME: input %k: tensor<16x8xf32>, input %d_o: tensor<16x8xf32>, input %n_i: tensor<16xf32>,
// CHECK-SAME: table %from: tensor<16xf32>, window %k_window: tensor<16x8xf32> of "k", valid %n: index) -> (d_q: tensor<16x8xf32>) {
// CHECK: arith.divf %d_o
// CHECK-NOT: ahead
// CHECK: chunk.yield %{{.*}} : tensor<16x8xf32>
// CHECK-LABEL: chunk.kernel @window_later chunk 16 reverse(
// CHECK-SAME: input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %d_o: tensor<16x8xf32>, input %n_i: tensor<16xf32>,
// CHECK-SAME: table %from: tensor<16xf32>, checkpoint %R: tensor<8x8xf32>, valid %n: index) -> (d_k: tensor<16x8xf32>, kept.0: tensor<16x8xf32>) {
// CHECK: arith.divf %d_o
// CHECK: %[[D:.*]] = chunk.lookback sum ahead
// CHECK: %[[BOTH:.*]] = chunk.dot %[[D]], %R
// CHECK: chunk.yield %[[D]], %{{.*}} : tensor<16x8xf32>, tensor<16x8xf32>
chunk.table @from varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @window chunk 16 reverse (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %d_o: tensor<16x8xf32>,
    input %n_i: tensor<16xf32>, table %from: tensor<16xf32>, checkpoint %R: tensor<8x8xf32>, window %k_window: tensor<16x8xf32> of "k", valid %n: index)
    -> (d_q: tensor<16x8xf32>, d_k: tensor<16x8xf32>, kept.0: tensor<16x8xf32>) {
  %numbers = chunk.broadcast %n_i along rows : tensor<16xf32> to tensor<16x8xf32>
  %d = arith.divf %d_o, %numbers : tensor<16x8xf32>
  %d_q = chunk.lookback sum from %from : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %d, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  %d_k = chunk.lookback sum ahead past(%from_j = %from : tensor<16xf32>, %q_j = %q : tensor<16x8xf32>) {
    %s = chunk.dot %k, %q_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %q_j : tensor<16x16xf32>, tensor<16x8xf32> from %from_j : tensor<16xf32>
  } : tensor<16x8xf32>
  %both = chunk.dot %d_k, %R : tensor<16x8xf32>, tensor<8x8xf32> -> tensor<16x8xf32>
  %left = arith.addf %both, %d : tensor<16x8xf32>
  chunk.yield %d_q, %d_k, %left : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>
}

// A product that both have stands for work that would be done twice.
// CHECK-LABEL: chunk.kernel @shares chunk 16 reverse(
// CHECK-NOT: @shares_later
chunk.kernel @shares chunk 16 reverse (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, table %from: tensor<16xf32>, valid %n: index)
    -> (d_q: tensor<16x8xf32>, d_k: tensor<16x8xf32>) {
  %p = chunk.dot %q, %k transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %d_q = chunk.dot %p, %k : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %seen = chunk.lookback sum ahead past(%from_j = %from : tensor<16xf32>, %q_j = %q : tensor<16x8xf32>) {
    chunk.contribute %p, %q_j : tensor<16x16xf32>, tensor<16x8xf32> from %from_j : tensor<16xf32>
  } : tensor<16x8xf32>
  chunk.yield %d_q, %seen : tensor<16x8xf32>, tensor<16x8xf32>
}

// What carries a state has chunks that wait for each other in any case.
// CHECK-LABEL: chunk.kernel @carries chunk 16 reverse(
// CHECK-NOT: @carries_later
chunk.kernel @carries chunk 16 reverse (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, table %from: tensor<16xf32>, state %S: tensor<8x8xf32>, valid %n: index)
    -> (d_q: tensor<16x8xf32>, d_k: tensor<16x8xf32>) {
  %seen = chunk.lookback sum ahead past(%from_j = %from : tensor<16xf32>, %q_j = %q : tensor<16x8xf32>) {
    %p = chunk.dot %k, %q_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %p, %q_j : tensor<16x16xf32>, tensor<16x8xf32> from %from_j : tensor<16xf32>
  } : tensor<16x8xf32>
  %read = chunk.dot %q, %S : tensor<16x8xf32>, tensor<8x8xf32> -> tensor<16x8xf32>
  chunk.yield %read, %seen next %S : tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x8xf32>
}
