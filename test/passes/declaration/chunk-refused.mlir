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
