// RUN: stretto-opt %s --stretto-chunk="chunk=16 element=f32" --cse --split-input-file --verify-diagnostics | FileCheck %s

// Two kernels. One walks forward and leaves the gradient of queries, the other walks back and meets the same products
// from the other side; it asks for no state. Of what heads share each leaves a part.

!K = tensor<8xf64, #stretto.row<K>>
!K_per_G = tensor<8xf64, #stretto.row<K, G>>
!V = tensor<4xf64, #stretto.row<V>>
!V_per_G = tensor<4xf64, #stretto.row<V, G>>
!S = !stretto.state<K : 8, V : 4, G>
!dS = !stretto.state<K : 8, V : 4, G, reverse>

// CHECK-LABEL: chunk.kernel @linear_backward_checkpoints chunk 16(
// CHECK-SAME:    state %S: tensor<8x4xf32> group 2
// CHECK-SAME:    -> (d_q: tensor<16x8xf32>)
// CHECK:         %[[FROM_START:.+]] = chunk.dot %d_o, %S transpose_right
// CHECK:         %[[M:.+]] = chunk.dot %d_o, %v transpose_right
// CHECK:         %[[BEFORE:.+]] = chunk.causal %[[M]] :
// CHECK:         %[[DQ:.+]] = chunk.dot %[[BEFORE]], %k add %[[FROM_START]]
// CHECK:         %[[NEXT:.+]] = chunk.dot %k, %v transpose_left add %S
// CHECK:         chunk.yield %[[DQ]] next %[[NEXT]]

// CHECK-LABEL: chunk.kernel @linear_backward chunk 16 reverse(
// CHECK-NOT:     checkpoint
// CHECK-SAME:    state %d_S: tensor<8x4xf32>, valid %valid: index)
// CHECK-SAME:    -> (d_k: tensor<16x8xf32> group 2, d_v: tensor<16x4xf32> group 2)
// CHECK:         %[[FROM_END:.+]] = chunk.dot %v, %d_S transpose_right
// CHECK:         %[[M:.+]] = chunk.dot %d_o, %v transpose_right
// CHECK:         %[[BEFORE:.+]] = chunk.causal %[[M]] :
// CHECK:         %[[DK:.+]] = chunk.dot %[[BEFORE]], %q transpose_left add %[[FROM_END]]
// CHECK:         %[[NEXT:.+]] = chunk.dot %q, %d_o transpose_left add %d_S
// CHECK:         chunk.yield %[[DK]], %{{.+}} next %[[NEXT]]
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

// What a token itself writes before a read is a term of the sums over tokens, unless a decay of the token stands between.
// Where one decay is that of all channels, products with states are decayed, and what its gradient sums over pairs
// is made of those that the reads have.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @decayed_backward chunk 16 reverse(
// CHECK:         %[[READ:.+]] = chunk.dot %d_o, %S transpose_right
// CHECK:         %[[FROM_START:.+]] = chunk.decay_from_start %[[READ]] log %[[G:.+]] :
// CHECK:         %[[P:.+]] = chunk.decay_dot %d_o, %v log %[[G]] :
// CHECK:         %[[DQ:.+]] = chunk.dot %[[P]], %k add %[[FROM_START]]
// CHECK:         %[[BACK:.+]] = chunk.dot %v, %d_S transpose_right
// CHECK:         %[[TO_END:.+]] = chunk.decay_to_end %[[BACK]] log %[[G]] :
// CHECK-NOT:     strict
// CHECK:         %[[DK:.+]] = chunk.dot %[[P]], %q transpose_left add %[[TO_END]]
// CHECK-NOT:     chunk.dot %d_o, %S
// CHECK-NOT:     chunk.dot %v, %d_S
// CHECK:         arith.mulf %q, %[[FROM_START]]
// CHECK:         arith.mulf %k, %[[TO_END]]
// CHECK:         chunk.yield %[[DQ]], %[[DK]],
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

// CHECK-LABEL: chunk.kernel @before_backward chunk 16 reverse(
// CHECK:         %[[M:.+]] = chunk.dot %d_o, %v transpose_right
// CHECK:         %[[LATER:.+]] = chunk.causal %[[M]] strict
// CHECK:         %[[DK:.+]] = chunk.dot %[[LATER]], %q transpose_left
// CHECK-NOT:     arith.addf
// CHECK:         chunk.yield %[[DK]]
stretto.variant @before_backward(%q: !K, %v: !V, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dk = stretto.read %dS0, %v along "V" : !dS, !V -> !K
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  stretto.yield %dk : !K
}

// CHECK-LABEL: chunk.kernel @behind_backward chunk 16 reverse(
// CHECK:         %[[LATER:.+]] = chunk.decay_dot %{{.+}}, %{{.+}} log %{{.+}} before :
// CHECK:         %[[OTHERS:.+]] = chunk.dot %[[LATER]], %q transpose_left
// CHECK:         %[[WEIGHT:.+]] = chunk.reduce sum
// CHECK:         %[[WEIGHTS:.+]] = chunk.broadcast %[[WEIGHT]] along rows
// CHECK:         %[[OWN:.+]] = arith.mulf %[[WEIGHTS]],
// CHECK:         %[[DK:.+]] = arith.addf %[[OTHERS]], %[[OWN]]
// CHECK:         chunk.yield %[[DK]]
stretto.variant @behind_backward(%q: !K, %v: !V, %g: !n, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dS2 = stretto.decay %dS1 log %g : !dS, !n
  %dk = stretto.read %dS2, %v along "V" : !dS, !V -> !K
  stretto.yield %dk : !K
}

// -----

// The axis of the result decays: its own token is a term of the mix, behind a decay it is not.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @mixed_backward chunk 16 reverse(
// CHECK:         %[[M:.+]] = chunk.dot %d_o, %v transpose_right
// CHECK:         %[[DK:.+]] = chunk.decay_mix %[[M]], %q log %{{.+}} transpose add
// CHECK:         chunk.decay_mix %[[M]], %{{.+}} log %{{.+}} before transpose add
// CHECK:         chunk.reduce sum
// CHECK:         %[[BEHIND:.+]] = arith.addf
// CHECK:         chunk.yield %[[DK]], %[[BEHIND]]
stretto.variant @mixed_backward(%q: !K, %k: !K, %v: !V, %g: !K, %d_o: !V) -> (!K, !K)
    attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dq = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %dS2 = stretto.decay %dS1 log %g along "K" : !dS, !K
  %dk = stretto.read %dS2, %v along "V" : !dS, !V -> !K
  stretto.yield %dq, %dk : !K, !K
}

// -----

// A row that is written and may be infinite beyond the end is masked once; whatever else meets it shares its products.
// What is finite there is as it is.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @masked_backward chunk 16 reverse(
// CHECK:         %[[QUOTIENT:.+]] = arith.divf %d_o, %w
// CHECK:         %[[D_ACC:.+]] = chunk.mask %[[QUOTIENT]] valid %valid
// CHECK:         %[[M:.+]] = chunk.dot %[[D_ACC]], %v transpose_right
// CHECK-NOT:     chunk.mask
// CHECK-NOT:     chunk.dot %{{.+}}, %v
// CHECK:         chunk.yield
stretto.variant @masked_backward(%q: !K, %k: !K, %v: !V, %w: !V, %d_o: !V) -> (!K, !K, !V)
    attributes {gradient, group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v : !S, !K, !V
  %d_acc = arith.divf %d_o, %w : !V
  %dq = stretto.read %S1, %d_acc along "V" : !S, !V -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_acc : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %dw = arith.mulf %d_acc, %w : !V
  stretto.yield %dq, %dk, %dw : !K, !K, !V
}

// CHECK-LABEL: chunk.kernel @finite_backward chunk 16 reverse(
// CHECK-NOT:     chunk.mask
// CHECK:         chunk.yield
stretto.variant @finite_backward(%q: !K, %v: !V, %w: !V, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %d_acc = arith.mulf %d_o, %w : !V
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_acc : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  stretto.yield %dk : !K
}

// -----

// A window: the forward kernel keeps three numbers of each token, from which the one that walks back computes what a
// token's cotangents are divided into, of its own tokens and, ahead, of later ones. Ranges are those of these.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!V_per_G = tensor<4xf64, #stretto.row<V, G>>
!n = tensor<f64, #stretto.row<()>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: chunk.kernel @window_backward_checkpoints chunk 16(
// CHECK-SAME:    -> (kept.0: tensor<16xf32>, kept.1: tensor<16xf32>)
// CHECK:         %[[M:.+]]:3 = chunk.lookback softmax from
// CHECK:         chunk.yield %[[M]]#0, %[[M]]#1 :

// CHECK-LABEL: chunk.kernel @window_backward chunk 16 reverse(
// CHECK-SAME:    input %kept.0: tensor<16xf32>, input %kept.1: tensor<16xf32>
// CHECK-SAME:    -> (d_v: tensor<16x4xf32> group 2)
// CHECK-NOT:     softmax
// CHECK:         chunk.lookback sum ahead past(
// CHECK-SAME:      %kept.0_j = %kept.0 : tensor<16xf32>
// CHECK:           %[[FIRST:.+]] = arith.subf
// CHECK:           %[[SCORES:.+]] = chunk.dot %k, %{{.+}} transpose_right
// CHECK:           %[[LARGEST:.+]] = chunk.broadcast %kept.0_j along columns
// CHECK:           arith.subf %[[SCORES]], %[[LARGEST]]
// CHECK:           %[[WEIGHTS:.+]] = math.exp
// CHECK:           chunk.contribute %[[WEIGHTS]], %{{.+}} from %[[FIRST]] : tensor<16xf32>
stretto.variant @window_backward(%v: !V_per_G, %q: !K, %k: !K, %d_o: !V) -> !V_per_G
    attributes {gradient, group = {G = 2 : i64, H = 1 : i64}} {
  %t = stretto.position
  %w = stretto.constant 8.0 : !n_per_1
  %first = arith.subf %t, %w : !n_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !n
    %v_j = stretto.past %v : !V_per_G
    %vs_j = stretto.broadcast %v_j : !V_per_G to !V
    stretto.yield %s, %vs_j : !n, !V
  } : !n, !n, !V
  %ls = stretto.broadcast %l : !n to !V
  %d_acc = arith.divf %d_o, %ls : !V
  %d_v = stretto.lookback sum from %first reverse {
    %q_t = stretto.past %q : !K
    %s = stretto.dot %q_t, %k : !K -> !n
    %m_t = stretto.past %m : !n
    %x = arith.subf %s, %m_t : !n
    %e = math.exp %x : !n
    %d_acc_t = stretto.past %d_acc : !V
    %es = stretto.broadcast %e : !n to !V
    %dv = arith.mulf %es, %d_acc_t : !V
    %sum = stretto.group_sum %dv : !V to !V_per_G
    stretto.yield %sum : !V_per_G
  } : !V_per_G
  stretto.yield %d_v : !V_per_G
}

// -----

// The cotangent of a state that is read at an earlier time: what later tokens write joins it in their times' chunk.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>
!dS = !stretto.state<K : 8, V : 4, reverse>

// CHECK-LABEL: chunk.kernel @long_ago_backward chunk 16 reverse(
// CHECK:         %[[BEHIND:.+]] = chunk.dot %v, %d_S transpose_right
// CHECK:         %[[JOINED:.+]] = chunk.lookback sum ahead past(
// CHECK:           %[[TIME:.+]] = arith.subf
// CHECK:           %[[INSIDE:.+]] = arith.cmpf olt, %[[TIME]],
// CHECK:           %[[FIRST:.+]] = arith.select %[[INSIDE]],
// CHECK:           chunk.contribute %{{.+}}, %q_j : {{.+}} from %[[FIRST]] : tensor<16xf32> to %[[TIME]] : tensor<16xf32>
// CHECK:         %[[DK:.+]] = arith.addf %[[BEHIND]], %[[JOINED]]
// CHECK:         %[[ALL:.+]] = chunk.lookback outer ahead past(
// CHECK:         %[[NEXT:.+]] = arith.addf %d_S, %[[ALL]]
// CHECK:         chunk.yield %[[DK]] next %[[NEXT]]
stretto.variant @long_ago_backward(%q: !K, %v: !V, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %t = stretto.position
  %w = stretto.constant 8.0 : !n_per_1
  %at = arith.subf %t, %w : !n_per_1
  %0 = stretto.state "d_S" : !dS
  %1 = stretto.write %0, %q, %d_o at %at : !dS, !K, !V
  %d_k = stretto.read %1, %v along "V" : !dS, !V -> !K
  stretto.yield %d_k : !K
}

// -----

// A row of reverse time is not known to tokens before it.

!n = tensor<f64, #stretto.row<()>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>

stretto.variant @twice_backward(%x: !n, %first: !n_per_1, %d_o: !n) -> !n attributes {gradient, group = {H = 1 : i64}} {
  %d_y = stretto.lookback sum from %first reverse {
    %d_t = stretto.past %d_o : !n
    stretto.yield %d_t : !n
  } : !n
  // expected-error @+1 {{no chunk form: meets rows of later tokens that are found in reverse time, by 'stretto.lookback'}}
  %d_x = stretto.lookback sum from %first reverse {
    %d_t = stretto.past %d_y : !n
    stretto.yield %d_t : !n
  } : !n
  stretto.yield %d_x : !n
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

// -----

// Queries alone: one walk, forward.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

// CHECK-NOT:   _checkpoints
// CHECK-LABEL: chunk.kernel @queries_backward chunk 16(
// CHECK-SAME:    state %S: tensor<8x4xf32>, valid %valid: index) -> (d_q: tensor<16x8xf32>)
stretto.variant @queries_backward(%q: !K, %k: !K, %v: !V, %d_o: !V) -> !K
    attributes {gradient, group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v : !S, !K, !V
  %dq = stretto.read %S1, %d_o along "V" : !S, !V -> !K
  stretto.yield %dq : !K
}
