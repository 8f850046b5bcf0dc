// RUN: stretto-opt %s --split-input-file --stretto-chunk='chunk=16 element=bf16 segments' --cse | FileCheck %s
// RUN: stretto-opt %s --split-input-file --stretto-chunk='chunk=16 element=bf16' --cse | FileCheck %s --check-prefix=WHOLE

// Where nothing decays, what the tokens of a segment do to a state of reverse time is a sum: the walk forward, which has
// a result of its own, finds it beside that, and no walk back comes before the one of the results.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @linear_backward_checkpoints chunk 16 segments apart(
// CHECK-SAME:    state %S: tensor<8x4xf32>, state %d_S: tensor<8x4xf32>, valid %{{.*}}: index) -> (d_q: tensor<16x8xbf16>)
// CHECK:         %[[S:.*]] = chunk.dot %{{.*}}, %{{.*}} transpose_left add %S
// CHECK:         %[[D_S:.*]] = chunk.dot %{{.*}}, %{{.*}} transpose_left add %d_S
// CHECK:         chunk.yield %{{.*}} next %[[S]], %[[D_S]]
// CHECK-LABEL: chunk.kernel @linear_backward_cotangent_starts chunk 16 reverse segments turns(
// CHECK-SAME:    checkpoint %d_S.left: tensor<8x4xf32>, state %d_S: tensor<8x4xf32>, valid %{{.*}}: index) -> (d_S: tensor<8x4xf32> checkpoint)
// CHECK-LABEL: chunk.kernel @linear_backward chunk 16 reverse segments apart(
// CHECK-NOT:   cotangent_writes

// Of whole sequences nothing is begun with.
// WHOLE-LABEL: chunk.kernel @linear_backward_checkpoints chunk 16(
// WHOLE-NOT:     d_S
// WHOLE-LABEL: chunk.kernel @linear_backward chunk 16 reverse(
stretto.variant @linear_backward(%q: !K, %k: !K, %v: !V, %d_o: !V) -> (!K, !K) attributes {gradient, group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v : !S, !K, !V
  %dq = stretto.read %S1, %d_o along "V" : !S, !V -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  stretto.yield %dq, %dk : !K, !K
}

// -----

// A decay of the state of reverse time is one for each order: a walk back finds what the tokens of a segment do.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @retention_backward_checkpoints chunk 16 segments apart(
// CHECK-NOT:     d_S
// CHECK-LABEL: chunk.kernel @retention_backward chunk 16 reverse segments apart(
// CHECK-LABEL: chunk.kernel @retention_backward_cotangent_writes chunk 16 reverse segments apart(
// CHECK-LABEL: chunk.kernel @retention_backward_cotangent_starts chunk 16 reverse segments turns(
stretto.variant @retention_backward(%q: !K, %k: !K, %v: !V, %d_o: !V) -> (!K, !K) attributes {gradient, group = {H = 1 : i64}} {
  %half = stretto.constant 0.5 : tensor<f64, #stretto.row<()>>
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 factor %half : !S, tensor<f64, #stretto.row<()>>
  %S2 = stretto.write %S1, %k, %v : !S, !K, !V
  %dq = stretto.read %S2, %d_o along "V" : !S, !V -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %dS2 = stretto.decay %dS1 factor %half : !dS, tensor<f64, #stretto.row<()>>
  stretto.yield %dq, %dk : !K, !K
}
