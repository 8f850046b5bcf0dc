// RUN: stretto-opt %s --stretto-chunk="chunk=16 element=bf16 divide-gradients" --cse --split-input-file | FileCheck %s

// The states of reverse time are carried by a kernel of their own, which needs no key and no value. The one that leaves
// rows carries nothing.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @decayed_backward_cotangents chunk 16 reverse(input %q: tensor<16x8xbf16>, input %g: tensor<16xbf16>,
// CHECK-SAME:    input %d_o: tensor<16x4xbf16>, state %d_S: tensor<8x4xf32>, valid %valid: index) -> (d_S: tensor<8x4xbf16> checkpoint)
// CHECK:         %[[END:.+]] = arith.truncf %d_S
// CHECK:         chunk.yield %[[END]] next
// CHECK-LABEL: chunk.kernel @decayed_backward chunk 16 reverse(
// CHECK-SAME:    checkpoint %S: tensor<8x4xbf16>, checkpoint %d_S: tensor<8x4xbf16>, valid %valid: index)
// CHECK-SAME:    -> (d_q: tensor<16x8xbf16>, d_k: tensor<16x8xbf16>, d_g: tensor<16xbf16>)
// CHECK:         chunk.yield %{{.+}}, %{{.+}}, %{{.+}} : tensor<16x8xbf16>, tensor<16x8xbf16>, tensor<16xbf16>
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

// What is added up over all tokens and read by none of them is carried beside the rows.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @summed_backward_cotangents
// CHECK-SAME:    state %d_S: tensor<8x4xf32>, valid
// CHECK-LABEL: chunk.kernel @summed_backward chunk 16 reverse(
// CHECK-SAME:    checkpoint %d_S: tensor<8x4xbf16>, state %d_w: tensor<8x4xf32>, valid
stretto.variant @summed_backward(%q: !K, %v: !V, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %w0 = stretto.state "d_w" : !dS
  %w1 = stretto.write %w0, %dk, %v : !dS, !K, !V
  stretto.yield %dk : !K
}

// -----

// Between a state and what is written to it rows of later tokens are met: it has no walk of its own.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-NOT:   _cotangents
// CHECK-LABEL: chunk.kernel @ahead_backward chunk 16 reverse(
stretto.variant @ahead_backward(%q: !K, %v: !V, %first: !n_per_1, %d_o: !V) -> !K
    attributes {gradient, group = {H = 1 : i64}} {
  %d_y = stretto.lookback sum from %first reverse {
    %d_t = stretto.past %d_o : !V
    stretto.yield %d_t : !V
  } : !V
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_y : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  stretto.yield %dk : !K
}

// -----

// States of blocks that left a window, where blocks are chunks. Both go on to what the tokens of a chunk read before they
// are kept, and the kernel that leaves rows meets no other token but where a sequence continues elsewhere. A walk over a
// segment begins with the state as it is carried, which is kept by a kernel of its own.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @blocks_backward_segment_starts chunk 16(
// CHECK-SAME:    -> (S: tensor<8x4xf32> checkpoint)
// CHECK:         chunk.yield %S next
// CHECK-LABEL: chunk.kernel @blocks_backward_checkpoints chunk 16(
// CHECK-SAME:    -> (S.read: tensor<8x4xbf16> checkpoint)
// CHECK:         %[[LEFT:.+]] = chunk.lookback outer from
// CHECK-NOT:     continued
// CHECK:         %[[GONE_ON:.+]] = arith.addf %S, %[[LEFT]]
// CHECK:         %[[KEPT:.+]] = arith.truncf %[[GONE_ON]]
// CHECK:         chunk.lookback outer from {{.+}} attributes {continued}
// CHECK:         chunk.yield %[[KEPT]] next
// CHECK-LABEL: chunk.kernel @blocks_backward_cotangents chunk 16 reverse(
// CHECK-SAME:    -> (d_S: tensor<8x4xbf16> checkpoint)
// CHECK-DAG:     %[[LAST:.+]] = arith.constant dense<1.500000e+01> : tensor<f32>
// CHECK-DAG:     %[[BEHIND:.+]] = arith.constant dense<1.600000e+01> : tensor<f32>
// CHECK:         %[[JOINED:.+]] = chunk.lookback outer ahead past(
// CHECK-NOT:     continued
// CHECK:         %[[GONE_ON:.+]] = arith.addf %d_S, %[[JOINED]]
// CHECK:         chunk.lookback outer ahead {{.+}} attributes {continued}
// CHECK-LABEL: chunk.kernel @blocks_backward chunk 16 reverse(
// CHECK-SAME:    checkpoint %S.read: tensor<8x4xbf16>, checkpoint %d_S: tensor<8x4xbf16>,
// CHECK-NOT:     past({{.+}}) {
// CHECK:         chunk.yield
stretto.variant @blocks_backward(%q: !K, %k: !K, %v: !V, %d_o: !V) -> (!K, !K)
    attributes {gradient, group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<16.0> : !n_per_1
  %one = arith.constant dense<1.0> : !n_per_1
  %block = arith.divf %t, %w : !n_per_1
  %own = math.floor %block : !n_per_1
  %before = arith.subf %own, %one : !n_per_1
  %first = arith.mulf %before, %w : !n_per_1
  %at = arith.subf %first, %one : !n_per_1
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v : !S, !K, !V
  %dq = stretto.read %S1, %d_o along "V" at %at : !S, !V -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o at %at : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  stretto.yield %dq, %dk : !K, !K
}

// -----

// What a token was divided by, and the cotangent of that, all kernels would read the state of the walk forward for. They
// are kept, and found by a kernel of independent chunks from checkpoints: the walks carry states alone, and that of
// the states of reverse time meets neither keys nor values.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!V_plus_1 = tensor<5xf64, #stretto.row<"V + 1">>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 8, "V + 1" : 5>
!dS = !stretto.state<K : 8, "V + 1" : 5, reverse>

// CHECK-LABEL: chunk.kernel @quotient_backward_checkpoints chunk 16(input %v: tensor<16x4xbf16>, input %k: tensor<16x8xbf16>,
// CHECK-SAME:    input %g: tensor<16xbf16>, state %S: tensor<8x5xf32>, valid %valid: index) -> (S: tensor<8x5xbf16> checkpoint)
// CHECK-LABEL: chunk.kernel @quotient_backward_rows chunk 16(
// CHECK-SAME:    checkpoint %S: tensor<8x5xbf16>, valid %valid: index) -> (kept.0: tensor<16xf32>, kept.1: tensor<16xf32>)
// CHECK-LABEL: chunk.kernel @quotient_backward_cotangents chunk 16 reverse(input %q: tensor<16x8xbf16>, input %g: tensor<16xbf16>,
// CHECK-SAME:    input %d_o: tensor<16x4xbf16>, input %kept.0: tensor<16xf32>, input %kept.1: tensor<16xf32>, state %d_S: tensor<8x5xf32>,
// CHECK-LABEL: chunk.kernel @quotient_backward chunk 16 reverse(
// CHECK-SAME:    input %kept.0: tensor<16xf32>, input %kept.1: tensor<16xf32>, checkpoint %S: tensor<8x5xbf16>, checkpoint %d_S: tensor<8x5xbf16>,
stretto.variant @quotient_backward(%v: !V, %k: !K, %q: !K, %g: !n, %d_o: !V) -> (!V, !K, !K, !n)
    attributes {gradient, group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g : !S, !n
  %one = arith.constant dense<1.0> : !n
  %v1 = stretto.concat %v, %one : !V, !n -> !V_plus_1
  %S2 = stretto.write %S1, %k, %v1 : !S, !K, !V_plus_1
  %r = stretto.read %S2, %q along "K" : !S, !K -> !V_plus_1
  %numerator = stretto.slice %r from "0" : !V_plus_1 -> !V
  %denominator = stretto.slice %r from "V" : !V_plus_1 -> !n
  %each = stretto.broadcast %denominator : !n to !V
  %o = arith.divf %numerator, %each : !V
  %dn = arith.divf %d_o, %each : !V
  %product = arith.mulf %dn, %o : !V
  %negative = arith.negf %product : !V
  %dd = stretto.reduce sum %negative : !V -> !n
  %dr = stretto.concat %dn, %dd : !V, !n -> !V_plus_1
  %dq = stretto.read %S2, %dr along "V + 1" : !S, !V_plus_1 -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %dr : !dS, !K, !V_plus_1
  %dk = stretto.read %dS1, %v1 along "V + 1" : !dS, !V_plus_1 -> !K
  %dv1 = stretto.read %dS1, %k along "K" : !dS, !K -> !V_plus_1
  %dv = stretto.slice %dv1 from "0" : !V_plus_1 -> !V
  %dg = stretto.pair %S1, %dS1 : !S, !dS -> !n
  %dS2 = stretto.decay %dS1 log %g : !dS, !n
  stretto.yield %dv, %dk, %dq, %dg : !V, !K, !K, !n
}
