// RUN: stretto-opt %s --stretto-chunk="chunk=16 element=bf16 segments" | FileCheck %s
// RUN: stretto-opt %s --stretto-differentiate --stretto-chunk="chunk=16 element=bf16 segments" \
// RUN:   | FileCheck %s --check-prefix=GRADIENT

// What carries the rows of a convolution and nothing else begins its segments with tails: there are no starts of states to
// be found.

!K = tensor<16xf64, #stretto.row<K>>
!F = tensor<8xf64, #stretto.row<F>>
!W = tensor<16x8xf64, #stretto.param<[K, F]>>
!taps = tensor<16x4xf64, #stretto.param<[K, 4]>>

// CHECK:       chunk.kernel @map chunk 16 segments apart(
// CHECK-SAME:    state %k_tail: tensor<3x16xbf16>
// CHECK-SAME:    -> (o: tensor<16x8xbf16>)
// CHECK:       chunk.kernel @map_tails chunk 16 segments apart(
// CHECK-NOT:   chunk.kernel

// Its gradient adds up those of parameters, of which each segment leaves a part, and hands rows on to earlier segments.
// No walk is there to find what these begin with.
// GRADIENT:      chunk.kernel @map_backward_checkpoints chunk 16 segments apart(
// GRADIENT-SAME:   -> (k_tail: tensor<3x16xbf16> checkpoint)
// GRADIENT:      chunk.kernel @map_backward chunk 16 reverse segments apart(
// GRADIENT-SAME:   checkpoint %k_tail: tensor<3x16xbf16>
// GRADIENT-SAME:   state %d_w: tensor<16x8xf32>
// GRADIENT-SAME:   state %d_k_tail: tensor<3x16xf32>
// GRADIENT:      chunk.kernel @map_backward_sum_turns chunk 16 reverse segments turns(checkpoint %d_w.left
// GRADIENT:      chunk.kernel @map_backward_cotangent_tails chunk 16 reverse segments apart(
// GRADIENT-NOT:  chunk.kernel
stretto.variant @map(%k: !K, %conv: !taps, %w: !W) -> !F attributes {group = {H = 1 : i64}} {
  %convolved = stretto.conv %k, %conv : !K, !taps
  %product = stretto.contract %convolved, %w : !K, !W -> !F
  %softmax = stretto.softmax %product : !F
  stretto.yield %softmax : !F
}
