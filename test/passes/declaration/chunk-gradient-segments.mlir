// RUN: stretto-opt %s --split-input-file --stretto-chunk='chunk=16 element=bf16 segments divide-gradients' --cse | FileCheck %s --check-prefix=DIVIDED
// RUN: sed -e '/^\/\/ -----/,$d' %s | stretto-opt --stretto-chunk='chunk=16 element=bf16 segments' --cse | FileCheck %s

// Segments of a gradient that are walked side by side. What they begin with forwards the kernels of the operator find;
// what its tokens do to states of reverse time, a walk back, and from that what each segment begins with at its end.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @decayed_backward_checkpoints chunk 16 segments apart(
// CHECK-SAME:    state %S: tensor<8x4xf32>, valid %{{.*}}: index) -> (S: tensor<8x4xbf16> checkpoint)
// CHECK-LABEL: chunk.kernel @decayed_backward chunk 16 reverse segments apart(
// CHECK-SAME:    checkpoint %S: tensor<8x4xbf16>, state %d_S: tensor<8x4xf32>, valid
// CHECK-LABEL: chunk.kernel @decayed_backward_cotangent_writes chunk 16 reverse segments apart(input %q: tensor<16x8xbf16>, input %g: tensor<16xbf16>,
// CHECK-SAME:    input %d_o: tensor<16x4xbf16>, state %d_S: tensor<8x4xf32>, state %d_S.decay: tensor<8xf32>, valid %{{.*}}: index) -> ()
// CHECK:         %[[SUMS:.*]] = chunk.accumulate sum
// CHECK:         %[[LAST:.*]] = chunk.row %[[SUMS]] at 15
// CHECK:         %[[OF_CHUNK:.*]] = chunk.broadcast %[[LAST]]
// CHECK:         %[[DECAY:.*]] = arith.addf %d_S.decay, %[[OF_CHUNK]]
// CHECK:         chunk.yield next %{{.*}}, %[[DECAY]]
// CHECK-LABEL: chunk.kernel @decayed_backward_cotangent_starts chunk 16 reverse segments turns(
// CHECK-SAME:    checkpoint %d_S.left: tensor<8x4xf32>, checkpoint %d_S.decay: tensor<8xf32>,
// CHECK-SAME:    state %d_S: tensor<8x4xf32>, valid %{{.*}}: index) -> (d_S: tensor<8x4xf32> checkpoint) {
// CHECK:         chunk.yield %d_S next

// Where a walk carries the states of reverse time alone, that one takes segments; all else comes from chunks that are
// independent.

// DIVIDED-LABEL: chunk.kernel @decayed_backward_checkpoints chunk 16 segments apart(
// DIVIDED-LABEL: chunk.kernel @decayed_backward_cotangents chunk 16 reverse segments apart(
// DIVIDED-SAME:    state %d_S: tensor<8x4xf32>, valid %{{.*}}: index) -> (d_S: tensor<8x4xbf16> checkpoint)
// DIVIDED-LABEL: chunk.kernel @decayed_backward chunk 16 reverse(
// DIVIDED-SAME:    checkpoint %S: tensor<8x4xbf16>, checkpoint %d_S: tensor<8x4xbf16>, valid
// DIVIDED-LABEL: chunk.kernel @decayed_backward_cotangent_writes chunk 16 reverse segments apart(
// DIVIDED-LABEL: chunk.kernel @decayed_backward_cotangent_starts chunk 16 reverse segments turns(
stretto.variant @decayed_backward(%q: !K, %k: !K, %g: !n, %v: !V, %d_o: !V) -> (!K, !K, !n)
    attributes {gradient, group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g : !S, !n
  %S2 = stretto.write %S1, %k, %v : !S, !K, !V
  %dq = stretto.read %S2, %d_o along "V" : !S, !V -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %dS2 = stretto.decay %dS1 log %g : !dS, !n
  %dg = stretto.pair %S1, %dS1 : !S, !dS -> !n
  stretto.yield %dq, %dk, %dg : !K, !K, !n
}

// -----

// What is added up over all tokens each segment has a part of; rows that are added to those of earlier tokens are found
// before, of the chunks behind each.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!taps = tensor<8x4xf64, #stretto.param<[K, 4]>>
!dS = !stretto.state<K : 8, V : 4, reverse>

// DIVIDED-LABEL: chunk.kernel @convolved_backward_cotangents chunk 16 reverse segments apart(
// DIVIDED-LABEL: chunk.kernel @convolved_backward chunk 16 reverse segments apart(
// DIVIDED-SAME:    checkpoint %d_S: tensor<8x4xbf16>, state %d_w: tensor<8x4xf32>, state %[[TAIL:[^:]*]]: tensor<3x8xf32>
// DIVIDED-LABEL: chunk.kernel @convolved_backward_sum_turns chunk 16 reverse segments turns(
// DIVIDED-SAME:    checkpoint %d_w.left: tensor<8x4xf32>, state %d_w: tensor<8x4xf32>, valid %{{.*}}: index) -> () {
// DIVIDED-NEXT:    %[[SUM:.*]] = arith.addf %d_w, %d_w.left
// DIVIDED-NEXT:    chunk.yield next %[[SUM]]
// DIVIDED-LABEL: chunk.kernel @convolved_backward_cotangent_tails chunk 16 reverse segments apart(
// DIVIDED-SAME:    state %[[TAIL:[^:]*]]: tensor<3x8xf32>{{.*}}valid %{{.*}}: index) -> () {
stretto.variant @convolved_backward(%q: !K, %v: !V, %taps: !taps, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %c = stretto.conv %dk, %taps reverse : !K, !taps
  %w0 = stretto.state "d_w" : !dS
  %w1 = stretto.write %w0, %dk, %v : !dS, !K, !V
  stretto.yield %c : !K
}
