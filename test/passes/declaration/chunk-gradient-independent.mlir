// RUN: stretto-opt %s --stretto-chunk="chunk=16 element=bf16 divide-gradients independent-chunks" --cse --split-input-file | FileCheck %s

// Walks carry states and nothing else. What is added up over all tokens and read by none is added up by a kernel of its
// own, of rows that the one which leaves rows keeps for it: the fewest numbers that make them, as products read them. A
// number is kept as it is.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!dS = !stretto.state<K : 8, V : 4, reverse>
!dn = !stretto.state<1 : 1, 1 : 1, reverse>

// CHECK-LABEL: chunk.kernel @summed_backward_cotangents
// CHECK-SAME:    state %d_S: tensor<8x4xf32>, valid
// CHECK-LABEL: chunk.kernel @summed_backward chunk 16 reverse(
// CHECK-NOT:     state
// CHECK-SAME:    checkpoint %d_S: tensor<8x4xbf16>, valid %valid: index)
// CHECK-SAME:    -> (d_q: tensor<16x8xbf16>, kept.0: tensor<16x8xbf16>, kept.1: tensor<16xf32>)
// CHECK:         %[[DK:.+]] = chunk.dot
// CHECK:         chunk.yield
// CHECK-LABEL: chunk.kernel @summed_backward_sums chunk 16 reverse(
// CHECK-SAME:    input %v: tensor<16x4xbf16>, input %kept.0: tensor<16x8xbf16>, input %kept.1: tensor<16xf32>,
// CHECK-SAME:    state %d_w: tensor<8x4xf32>, state %d_f: tensor<1xf32>, valid %valid: index) -> () {
// CHECK:         %[[W:.+]] = chunk.dot %{{.+}}, %{{.+}} transpose_left add %d_w
// CHECK:         chunk.yield next %[[W]], %{{.+}} : tensor<8x4xf32>, tensor<1xf32>
stretto.variant @summed_backward(%q: !K, %v: !V, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %w0 = stretto.state "d_w" : !dS
  %w1 = stretto.write %w0, %dk, %v : !dS, !K, !V
  %number = stretto.dot %dk, %q : !K -> !n
  %one = stretto.constant 1.0 : !n
  %f0 = stretto.state "d_f" : !dn
  %f1 = stretto.write %f0, %number, %one : !dn, !n, !n
  stretto.yield %dk : !K
}

// -----

// Rows that are kept and depend on a state are found of each chunk from its checkpoint: the walk forward makes the state
// alone.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @divided_backward_checkpoints chunk 16(input %k: tensor<16x8xbf16>, input %v: tensor<16x4xbf16>,
// CHECK-SAME:    state %S: tensor<8x4xf32>, valid %valid: index) -> (S: tensor<8x4xbf16> checkpoint)
// CHECK-LABEL: chunk.kernel @divided_backward_rows chunk 16(
// CHECK-SAME:    checkpoint %S: tensor<8x4xbf16>, valid %valid: index) -> (kept.0: tensor<16xf32>)
// CHECK-LABEL: chunk.kernel @divided_backward_cotangents chunk 16 reverse(
// CHECK-SAME:    input %kept.0: tensor<16xf32>
// CHECK-LABEL: chunk.kernel @divided_backward chunk 16 reverse(
// CHECK-SAME:    input %kept.0: tensor<16xf32>
// CHECK-SAME:    checkpoint %S: tensor<8x4xbf16>, checkpoint %d_S: tensor<8x4xbf16>
stretto.variant @divided_backward(%q: !K, %k: !K, %v: !V, %d_o: !V) -> (!K, !K)
    attributes {gradient, group = {H = 1 : i64}} {
  %t = stretto.position
  %w = stretto.constant 8.0 : !n_per_1
  %at = arith.subf %t, %w : !n_per_1
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v : !S, !K, !V
  %o = stretto.read %S1, %q along "K" : !S, !K -> !V
  %l = stretto.reduce sum %o : !V -> !n
  %ls = stretto.broadcast %l : !n to !V
  %d = arith.divf %d_o, %ls : !V
  %dq = stretto.read %S1, %d along "V" : !S, !V -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d at %at : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  stretto.yield %dq, %dk : !K, !K
}

// -----

// What a convolution of reverse time hands on to earlier tokens is carried with the sums, and what is made of it is left
// there, of what the kernel of results keeps: so that this has no chunk to wait for. What the convolution of the program
// looked back to is kept by the walk forward.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!taps = tensor<8x4xf64, #stretto.param<[K, 4]>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @convolved_backward_checkpoints chunk 16(
// CHECK-SAME:    -> (k_tail: tensor<3x8xbf16> checkpoint)
// CHECK-LABEL: chunk.kernel @convolved_backward_cotangents
// CHECK-LABEL: chunk.kernel @convolved_backward chunk 16 reverse(
// CHECK-NOT:     state
// CHECK-SAME:    -> (d_v: tensor<16x4xbf16>, kept.0: tensor<16x8xbf16>) {
// CHECK-NOT:     chunk.conv_back
// CHECK-LABEL: chunk.kernel @convolved_backward_sums chunk 16 reverse(
// CHECK-SAME:    input %kept.0: tensor<16x8xbf16>
// CHECK-SAME:    state %d_k_tail: tensor<3x8xf32>
// CHECK-SAME:    -> (d_k: tensor<16x8xbf16>) {
// CHECK:         chunk.conv_back
stretto.variant @convolved_backward(%k: !K, %v: !V, %q: !K, %taps: !taps, %d_o: !V) -> (!K, !V)
    attributes {gradient, group = {H = 1 : i64}} {
  %kc = stretto.conv %k, %taps : !K, !taps
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %kc, %v : !S, !K, !V
  %o = stretto.read %S1, %q along "K" : !S, !K -> !V
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dkc = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %dv = stretto.read %dS1, %kc along "K" : !dS, !K -> !V
  %dk = stretto.conv %dkc, %taps reverse of "d_k_tail" : !K, !taps
  stretto.yield %dk, %dv : !K, !V
}
