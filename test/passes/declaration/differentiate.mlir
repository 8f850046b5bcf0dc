// RUN: stretto-opt %s --stretto-differentiate --split-input-file --verify-diagnostics | FileCheck %s

// What was read from a state is written to its cotangent, and the other way round. A decay's gradient is a pair, of the
// state after it for a logarithm and before it for a factor.

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K, V>

// CHECK-LABEL: stretto.variant @decayed(
// CHECK-LABEL: stretto.variant @decayed_backward(%q: !K, %k: !K, %v: !V, %g: !number, %f: !K, %d_o: !V) -> (!K, !K, !V, !number, !K)
// CHECK:         %[[S0:.+]] = stretto.state "S"
// CHECK:         %[[S1:.+]] = stretto.decay %[[S0]] log %g
// CHECK:         %[[S2:.+]] = stretto.decay %[[S1]] factor %f along "K"
// CHECK:         %[[S3:.+]] = stretto.write %[[S2]], %k, %v
// CHECK:         %[[D0:.+]] = stretto.state "d_S" : !reverse_state_K_by_V
// CHECK:         %[[DQ:.+]] = stretto.read %[[S3]], %d_o along "V"
// CHECK:         %[[D1:.+]] = stretto.write %[[D0]], %q, %d_o
// CHECK:         %[[DK:.+]] = stretto.read %[[D1]], %v along "V"
// CHECK:         %[[DV:.+]] = stretto.read %[[D1]], %k along "K"
// CHECK:         %[[DF:.+]] = stretto.pair %[[S1]], %[[D1]] along "K"
// CHECK:         %[[D2:.+]] = stretto.decay %[[D1]] factor %f along "K"
// CHECK:         %[[DG:.+]] = stretto.pair %[[S1]], %[[D2]] :
// CHECK:         %[[LEFT:.+]] = arith.cmpf ogt, %g,
// CHECK:         %[[DG_LEFT:.+]] = arith.select %[[LEFT]], %[[DG]],
// CHECK:         stretto.decay %[[D2]] log %g
// CHECK:         stretto.yield %[[DQ]], %[[DK]], %[[DV]], %[[DG_LEFT]], %[[DF]]
stretto.variant @decayed(%q: !K, %k: !K, %v: !V, %g: !n, %f: !K) -> !V {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g : !S, !n
  %S2 = stretto.decay %S1 factor %f along "K" : !S, !K
  %S3 = stretto.write %S2, %k, %v : !S, !K, !V
  %o = stretto.read %S3, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// A read before a write: its rows join the cotangent after the write has been passed. A table has no gradient, so no
// pair is built for it.

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K, V>

// CHECK-LABEL: stretto.variant @early_backward(
// CHECK:         %[[D0:.+]] = stretto.state "d_S"
// CHECK:         stretto.read %[[D0]], %v along "V"
// CHECK:         stretto.read %[[D0]], %k along "K"
// CHECK-NOT:     stretto.pair
// CHECK:         %[[D1:.+]] = stretto.decay %[[D0]]
// CHECK:         stretto.write %[[D1]], %k, %d_o
stretto.variant @early(%k: !K, %v: !V) -> !V {
  %S0 = stretto.state "S" : !S
  %o = stretto.read %S0, %k along "K" : !S, !K -> !V
  %g = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    %c = arith.constant -0.1 : f64
    stretto.yield %c : f64
  } : !n
  %S1 = stretto.decay %S0 log %g : !S, !n
  %S2 = stretto.write %S1, %k, %v : !S, !K, !V
  stretto.yield %o : !V
}

// -----

// Parameters gather their gradients in states; heads that share a row sum theirs; the parts of a row are put together.

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!K_plus_1 = tensor<?xf64, #stretto.row<"K + 1">>
!n = tensor<f64, #stretto.row<()>>
!W = tensor<?x?xf64, #stretto.param<[K, K]>>

// CHECK-LABEL: stretto.variant @parts_backward(
// CHECK-SAME:    axes(W_columns = "K")
// CHECK:         %[[DR:.+]] = stretto.concat %d_o0, %d_o1
// CHECK:         %[[DY:.+]] = stretto.slice %[[DR]] from "0"
// CHECK:         %[[DX:.+]] = stretto.contract %[[DY]], %W transpose
// CHECK:         %[[DXG:.+]] = stretto.group_sum %[[DX]] : !K to !K_per_G
// CHECK:         %[[DW:.+]] = stretto.state "d_W" : !reverse_state_K_by_W_columns
// CHECK:         %[[COLUMNS:.+]] = stretto.slice %[[DY]] from "0" : !K -> !W_columns
// CHECK:         stretto.write %[[DW]], %{{.+}}, %[[COLUMNS]]
// CHECK:         stretto.yield %[[DXG]]
stretto.variant @parts(%x: !K_per_G, %W: !W) -> (!K, !n) {
  %xs = stretto.broadcast %x : !K_per_G to !K
  %y = stretto.contract %xs, %W : !K, !W -> !K
  %one = stretto.constant 1.0 : !n
  %r = stretto.concat %y, %one : !K, !n -> !K_plus_1
  %a = stretto.slice %r from "0" : !K_plus_1 -> !K
  %b = stretto.slice %r from "K" : !K_plus_1 -> !n
  stretto.yield %a, %b : !K, !n
}

// -----

// A softmax whose results meet as acc / l: nothing goes through the maximum. What rows of the token receive is a sum over
// its range, what rows of the other token receive is a look-ahead.

!K = tensor<?xf64, #stretto.row<K>>
!n = tensor<f64, #stretto.row<()>>
!t = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: stretto.variant @attention_backward(
// CHECK:         %[[FOLD:.+]]:3 = stretto.lookback softmax
// CHECK-NOT:     arith.cmpf oeq
// CHECK:         %[[DQ:.+]] = stretto.lookback sum from %[[FIRST:[0-9]+]] {
// CHECK:         %[[DK:.+]] = stretto.lookback sum from %[[FIRST]] reverse {
// CHECK:           stretto.past %q
// CHECK:           stretto.past %[[FOLD]]#0
// CHECK:         stretto.yield %[[DQ]], %[[DK]]
stretto.variant @attention(%q: !K, %k: !K) -> !K {
  %first = stretto.constant 0.0 : !t
  %m, %l, %acc = stretto.lookback softmax from %first {
    %kj = stretto.past %k : !K
    %s = stretto.dot %q, %kj : !K -> !n
    stretto.yield %s, %kj : !n, !K
  } : !n, !n, !K
  %ls = stretto.broadcast %l : !n to !K
  %o = arith.divf %acc, %ls : !K
  stretto.yield %o : !K
}

// -----

// A known factor of a product leaves no pair out, so that none is asked for; a score that is computed may be -inf.

!K = tensor<?xf64, #stretto.row<K>>
!n = tensor<f64, #stretto.row<()>>
!t = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: stretto.variant @scaled_attention_backward(
// CHECK-NOT:     arith.cmpf
// CHECK:         stretto.yield
stretto.variant @scaled_attention(%q: !K, %k: !K) -> !K {
  %first = stretto.constant 0.0 : !t
  %scale = stretto.constant 0.25 : !n
  %m, %l, %acc = stretto.lookback softmax from %first {
    %kj = stretto.past %k : !K
    %p = stretto.dot %q, %kj : !K -> !n
    %s = arith.mulf %p, %scale : !n
    stretto.yield %s, %kj : !n, !K
  } : !n, !n, !K
  %ls = stretto.broadcast %l : !n to !K
  %o = arith.divf %acc, %ls : !K
  stretto.yield %o : !K
}

// CHECK-LABEL: stretto.variant @computed_attention_backward(
// CHECK:         arith.cmpf ogt
// CHECK:         stretto.yield
stretto.variant @computed_attention(%q: !K, %k: !K) -> !K {
  %first = stretto.constant 0.0 : !t
  %m, %l, %acc = stretto.lookback softmax from %first {
    %kj = stretto.past %k : !K
    %p = stretto.dot %q, %kj : !K -> !n
    %a = math.absf %p : !n
    %s = math.log %a : !n
    stretto.yield %s, %kj : !n, !K
  } : !n, !n, !K
  %ls = stretto.broadcast %l : !n to !K
  %o = arith.divf %acc, %ls : !K
  stretto.yield %o : !K
}

// -----

// The maximum alone: each pair that attains it gets its share.

!K = tensor<?xf64, #stretto.row<K>>
!n = tensor<f64, #stretto.row<()>>
!t = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: stretto.variant @largest_backward(
// CHECK:         %[[TIES:.+]] = stretto.lookback sum
// CHECK:           arith.cmpf oeq
// CHECK:         arith.divf %d_o, %[[TIES]]
stretto.variant @largest(%q: !K, %k: !K) -> !n {
  %first = stretto.constant 0.0 : !t
  %m, %l, %acc = stretto.lookback softmax from %first {
    %kj = stretto.past %k : !K
    %s = stretto.dot %q, %kj : !K -> !n
    stretto.yield %s, %s : !n, !n
  } : !n, !n, !n
  stretto.yield %m : !n
}

// -----

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>

stretto.variant @twice(%k: !K, %v: !V) -> !K {
  %S = stretto.state "S" : !stretto.state<K, V>
  %D = stretto.state "D" : !stretto.state<K, V, reverse>
  // expected-error @+1 {{[R14] stands in a gradient; second derivatives are not supported}}
  %p = stretto.pair %S, %D along "K" : !stretto.state<K, V>, !stretto.state<K, V, reverse> -> !K
  stretto.yield %p : !K
}
