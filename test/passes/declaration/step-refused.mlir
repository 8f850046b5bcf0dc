// RUN: stretto-opt %s --split-input-file --verify-diagnostics --stretto-step

// What needs other tokens than the one at hand is refused at the operation that does.

!K = tensor<8xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>
!time = tensor<f64, #stretto.row<(), 1>>

stretto.variant @window(%q: !K, %k: !K) -> !number attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  // expected-error @+1 {{[R14] variant 'window': no step form: a look-back meets keys of other}}
  %m, %l, %acc = stretto.lookback softmax from %t {
    %kj = stretto.past %k : !K
    %s = stretto.dot %q, %kj : !K -> !number
    stretto.yield %s, %s : !number, !number
  } : !number, !number, !number
  stretto.yield %m : !number
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @earlier(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  // expected-error @+1 {{no step form: reads the state of an earlier token}}
  %o = stretto.read %1, %q along "K" at %t : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4, reverse>

stretto.variant @reverse(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  // expected-error @+1 {{no step form: the state 'S' runs in reverse time}}
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}
