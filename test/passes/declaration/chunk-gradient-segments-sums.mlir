// RUN: stretto-opt %s --stretto-chunk='chunk=16 element=bf16 segments' --cse | FileCheck %s

// Where one walk carries a state of reverse time and adds up the gradient of a parameter, a segment begins with what
// those behind it leave of the state alone. Its part of the sum it leaves whatever comes behind it, even of rows that
// are read back.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!w = tensor<8xf64, #stretto.param<[K]>>
!dS = !stretto.state<K : 8, V : 4, reverse>
!dw = !stretto.state<K : 8, 1, reverse>
!n = tensor<f64, #stretto.row<()>>

// CHECK-LABEL: chunk.kernel @weighed_backward chunk 16 reverse segments apart(
// CHECK-SAME:    state %d_S: tensor<8x4xf32>, state %d_w: tensor<8xf32>, valid
// CHECK-LABEL: chunk.kernel @weighed_backward_sum_turns chunk 16 reverse segments turns(
// CHECK-SAME:    checkpoint %d_w.left: tensor<8xf32>, state %d_w: tensor<8xf32>, valid %{{.*}}: index) -> () {
// CHECK-NEXT:    %[[SUM:.*]] = arith.addf %d_w, %d_w.left
// CHECK-NEXT:    chunk.yield next %[[SUM]]
// CHECK-LABEL: chunk.kernel @weighed_backward_cotangent_writes chunk 16 reverse segments apart(
// CHECK-SAME:    input %q: tensor<16x8xbf16>, input %d_o: tensor<16x4xbf16>, state %d_S: tensor<8x4xf32>, valid
// CHECK-LABEL: chunk.kernel @weighed_backward_cotangent_starts chunk 16 reverse segments turns(
// CHECK-SAME:    checkpoint %d_S.left: tensor<8x4xf32>, state %d_S: tensor<8x4xf32>, valid
// CHECK-NOT:   chunk.kernel
stretto.variant @weighed_backward(%q: !K, %v: !V, %w: !w, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %row = stretto.broadcast %w : !w to !K
  %weighed = arith.mulf %dk, %row : !K
  %one = stretto.constant 1.0 : !n
  %dw0 = stretto.state "d_w" : !dw
  %dw1 = stretto.write %dw0, %dk, %one : !dw, !K, !n
  stretto.yield %weighed : !K
}
