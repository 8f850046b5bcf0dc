// RUN: stretto-opt %s --split-input-file --verify-diagnostics --stretto-chunk='chunk=16'

// What has no chunk form yet is refused at the operation that prevents it.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @squared(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %r = stretto.read %0, %k along "K" : !S, !K -> !V
  // expected-error @+1 {{[R14] variant 'squared': no chunk form: what is written to the state 'S' depends on what is read from it, expected by sums and products with a number}}
  %d = arith.mulf %r, %r : !V
  %1 = stretto.write %0, %k, %d : !S, !K, !V
  %o = stretto.read %1, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

// Each of two states is written with what the other recalls.
stretto.variant @crossed(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %T0 = stretto.state "T" : !S
  %t = stretto.read %T0, %k along "K" : !S, !K -> !V
  %1 = stretto.write %0, %k, %t : !S, !K, !V
  // expected-error @+1 {{no chunk form: reads the state 'S', which is changed by a row that depends on this read}}
  %r = stretto.read %0, %k along "K" : !S, !K -> !V
  %T1 = stretto.write %T0, %k, %r : !S, !K, !V
  %o = stretto.read %1, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

!K = tensor<?xf64, #stretto.row<K>>

// expected-error @+1 {{no chunk form: an argument has type 'tensor<?xf64, #stretto.row<K>>', expected real numbers of sizes that stretto-specialize fixed}}
stretto.variant @open(%x: !K) -> !K attributes {group = {H = 1 : i64}} {
  stretto.yield %x : !K
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

stretto.variant @neither_product_nor_number(%first: !number_per_1, %q: !K, %k: !K) -> !K attributes {group = {H = 1 : i64}} {
  %o = stretto.lookback sum from %first {
    %k_j = stretto.past %k : !K
    // expected-error @+1 {{no chunk form: rows of both tokens of a pair meet, and neither is a product of the two nor a number made of such products}}
    %sum = arith.addf %q, %k_j : !K
    stretto.yield %sum : !K
  } : !K
  stretto.yield %o : !K
}

// -----

!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

stretto.variant @past_scan(%first: !number_per_1, %x: !number) -> !number attributes {group = {H = 1 : i64}} {
  %d = stretto.delay %x by 1 : !number
  // expected-error @+1 {{no chunk form: looks back to rows that are made of other tokens' by 'stretto.delay'}}
  %o = stretto.lookback sum from %first {
    %d_j = stretto.past %d : !number
    stretto.yield %d_j : !number
  } : !number
  stretto.yield %o : !number
}

// -----

!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

stretto.variant @ahead(%first: !number_per_1, %x: !number) -> !number attributes {group = {H = 1 : i64}} {
  // expected-error @+1 {{no chunk form: runs in reverse time}}
  %o = stretto.lookback sum from %first reverse {
    %x_j = stretto.past %x : !number
    stretto.yield %x_j : !number
  } : !number
  stretto.yield %o : !number
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @decayed_long_ago(%at: !number_per_1, %q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  // expected-error @+1 {{no chunk form: decays the state 'S', which is read at an earlier time}}
  %1 = stretto.decay %0 log %g along "K" : !S, !K
  %2 = stretto.write %1, %k, %v : !S, !K, !V
  %o = stretto.read %2, %q along "K" at %at : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @given_time(%at: !number_per_1, %q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  // expected-error @+1 {{no chunk form: is read at a time that is not computed from the position alone}}
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
  stretto.yield %o : !V
}
