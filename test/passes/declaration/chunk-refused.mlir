// RUN: stretto-opt %s --split-input-file --verify-diagnostics --stretto-chunk='chunk=16'

// What has no chunk form yet is refused at the operation that prevents it.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @delta(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  // expected-error @+1 {{[R14] variant 'delta': no chunk form: reads the state 'S', which is changed by a row that depends on this read}}
  %r = stretto.read %0, %k along "K" : !S, !K -> !V
  %d = arith.subf %v, %r : !V
  %1 = stretto.write %0, %k, %d : !S, !K, !V
  %o = stretto.read %1, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @columns(%q: !K, %k: !K, %v: !V, %g: !V) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %1 = stretto.decay %0 log %g along "V" : !S, !V
  %2 = stretto.write %1, %k, %v : !S, !K, !V
  // expected-error @+1 {{no chunk form: reads along 'K' a state that decays along 'V'}}
  %o = stretto.read %2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>

stretto.variant @scan(%x: !number) -> !number attributes {group = {H = 1 : i64}} {
  // expected-error @+1 {{no chunk form: a scan over time has only the form of one token}}
  %y = stretto.scan logaddexp %x : !number
  stretto.yield %y : !number
}

// -----

!K = tensor<?xf64, #stretto.row<K>>

// expected-error @+1 {{no chunk form: an argument has type 'tensor<?xf64, #stretto.row<K>>', expected real numbers of sizes that stretto-specialize fixed}}
stretto.variant @open(%x: !K) -> !K attributes {group = {H = 1 : i64}} {
  stretto.yield %x : !K
}
