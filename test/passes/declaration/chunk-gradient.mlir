// RUN: stretto-opt %s --stretto-chunk="chunk=16 element=f32" --cse --split-input-file --verify-diagnostics | FileCheck %s

// Two kernels: one keeps the state at the start of each chunk, the other walks back and meets the same products from the
// other side. Of what heads share each leaves a part.

!K = tensor<8xf64, #stretto.row<K>>
!K_per_G = tensor<8xf64, #stretto.row<K, G>>
!V = tensor<4xf64, #stretto.row<V>>
!V_per_G = tensor<4xf64, #stretto.row<V, G>>
!S = !stretto.state<K : 8, V : 4, G>
!dS = !stretto.state<K : 8, V : 4, G, reverse>

// CHECK-LABEL: chunk.kernel @linear_backward_checkpoints chunk 16(
// CHECK-SAME:    state %S: tensor<8x4xf32> group 2
// CHECK-SAME:    -> (S: tensor<8x4xf32> group 2 checkpoint)
// CHECK:         %[[NEXT:.+]] = chunk.dot %k, %v transpose_left add %S
// CHECK:         chunk.yield %S next %[[NEXT]]

// CHECK-LABEL: chunk.kernel @linear_backward chunk 16 reverse(
// CHECK-SAME:    checkpoint %S: tensor<8x4xf32> group 2, state %d_S: tensor<8x4xf32>, valid %valid: index)
// CHECK-SAME:    -> (d_q: tensor<16x8xf32>, d_k: tensor<16x8xf32> group 2, d_v: tensor<16x4xf32> group 2)
// CHECK:         %[[FROM_START:.+]] = chunk.dot %d_o, %S transpose_right
// CHECK:         %[[M:.+]] = chunk.dot %d_o, %v transpose_right
// CHECK:         %[[BEFORE:.+]] = chunk.causal %[[M]] :
// CHECK:         %[[DQ:.+]] = chunk.dot %[[BEFORE]], %k add %[[FROM_START]]
// CHECK:         %[[FROM_END:.+]] = chunk.dot %v, %d_S transpose_right
// CHECK:         %[[BEHIND:.+]] = chunk.causal %[[M]] strict
// CHECK:         chunk.dot %[[BEHIND]], %q transpose_left add %[[FROM_END]]
// CHECK:         %[[NEXT:.+]] = chunk.dot %q, %d_o transpose_left add %d_S
// CHECK:         chunk.yield %[[DQ]], %{{.+}}, %{{.+}} next %[[NEXT]]
stretto.variant @linear_backward(%q: !K, %k: !K_per_G, %v: !V_per_G, %d_o: !V) -> (!K, !K_per_G, !V_per_G)
    attributes {gradient, group = {G = 2 : i64, H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v : !S, !K_per_G, !V_per_G
  %dS0 = stretto.state "d_S" : !dS
  %dq = stretto.read %S1, %d_o along "V" : !S, !V -> !K
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V_per_G -> !K_per_G
  %dv = stretto.read %dS1, %k along "K" : !dS, !K_per_G -> !V_per_G
  stretto.yield %dq, %dk, %dv : !K, !K_per_G, !V_per_G
}

// -----

// A factor beside another decay: no form leaves out the one and keeps the other.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

stretto.variant @two_backward(%f: !K, %k: !K, %v: !V, %h: !n, %d_o: !V) -> !K
    attributes {gradient, group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 factor %f along "K" : !S, !K
  %S2 = stretto.decay %S1 factor %h : !S, !n
  %S3 = stretto.write %S2, %k, %v : !S, !K, !V
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %k, %d_o : !dS, !K, !V
  %dS2 = stretto.decay %dS1 factor %h : !dS, !n
  // expected-error @+1 {{[R14] variant 'two_backward': no chunk form: the gradient of a factor beside other decays, or behind a write}}
  %df = stretto.pair %S0, %dS2 along "K" : !S, !dS -> !K
  %dS3 = stretto.decay %dS2 factor %f along "K" : !dS, !K
  stretto.yield %df : !K
}
