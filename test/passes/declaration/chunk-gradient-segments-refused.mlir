// RUN: stretto-opt %s --split-input-file --verify-diagnostics --stretto-chunk='chunk=16 segments'

// What is carried depends on what is read back, and is the gradient of no parameter.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!dS = !stretto.state<K : 8, V : 4, reverse>

stretto.variant @summed_backward(%q: !K, %v: !V, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  // expected-error @+1 {{[R14] variant 'summed_backward': no segmented form: what changes the state 'd_w' depends on this read}}
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  %w0 = stretto.state "d_w" : !dS
  %w1 = stretto.write %w0, %dk, %v : !dS, !K, !V
  stretto.yield %dk : !K
}

// -----

// Rows that a convolution adds to those of earlier tokens are carried beside the states.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!taps = tensor<8x4xf64, #stretto.param<[K, 4]>>
!dS = !stretto.state<K : 8, V : 4, reverse>

stretto.variant @convolved_backward(%q: !K, %v: !V, %taps: !taps, %d_o: !V) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dk = stretto.read %dS1, %v along "V" : !dS, !V -> !K
  // expected-error @+1 {{[R14] variant 'convolved_backward': no segmented form: what is added to earlier rows is carried with the states}}
  %c = stretto.conv %dk, %taps reverse : !K, !taps
  stretto.yield %c : !K
}

// -----

!K = tensor<8xf64, #stretto.row<K>>

// expected-error @+1 {{[R14] variant 'scaled_backward': no segmented form: it carries no state}}
stretto.variant @scaled_backward(%x: !K, %d_o: !K) -> !K attributes {gradient, group = {H = 1 : i64}} {
  %dx = arith.mulf %x, %d_o : !K
  stretto.yield %dx : !K
}
