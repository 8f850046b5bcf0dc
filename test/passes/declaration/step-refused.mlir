// RUN: stretto-opt %s --split-input-file --verify-diagnostics --stretto-step

// What needs other tokens than the one at hand is refused at the operation that does.

!K = tensor<8xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

stretto.variant @everything(%q: !K, %k: !K) -> !number attributes {group = {H = 1 : i64}} {
  %first = stretto.constant 0.0 : !number_per_1
  // expected-error @+1 {{[R14] variant 'everything': no step form: looks back at earlier tokens without a bound}}
  %m, %l, %acc = stretto.lookback softmax from %first {
    %kj = stretto.past %k : !K
    %s = stretto.dot %q, %kj : !K -> !number
    stretto.yield %s, %kj : !number, !K
  } : !number, !number, !K
  stretto.yield %m : !number
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @earlier(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %at = stretto.constant 3.0 : !number_per_1
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  // expected-error @+1 {{no step form: looks back at earlier tokens without a bound}}
  %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
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
