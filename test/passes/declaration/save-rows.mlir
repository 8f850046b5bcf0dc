// RUN: stretto-opt %s --stretto-save-rows --split-input-file | FileCheck %s --check-prefix=SAVED
// RUN: stretto-opt %s --stretto-save-rows --stretto-chunk="chunk=16 element=bf16" --split-input-file \
// RUN:   | FileCheck %s --check-prefix=CHUNK

// The gradient of a divergence keeps both log-sum-exps, which the program finds: it saves them, in fp32.

!K = tensor<16xf64, #stretto.row<K>>
!n = tensor<f64, #stretto.row<()>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>

// SAVED-LABEL: stretto.variant @relation(
// SAVED-SAME:    -> (!number, !number, !number) attributes {group = {H = 1 : i64}, saved = 2 : i64}
// SAVED:         %[[ROWS:.+]]:3 = stretto.lookback divergence
// SAVED:         stretto.yield %[[ROWS]]#0, %[[ROWS]]#1, %[[ROWS]]#2 :

// CHUNK-LABEL: chunk.kernel @relation chunk 16
// CHUNK-SAME:    -> (o: tensor<16xbf16>, saved.0: tensor<16xf32>, saved.1: tensor<16xf32>)
stretto.variant @relation(%q_s: !K, %q_t: !K) -> !n attributes {group = {H = 1 : i64}} {
  %first = stretto.constant 0.0 : !n_per_1
  %fixed = stretto.stop_gradient %q_t : !K
  %kl, %lse_t, %lse_s = stretto.lookback divergence from %first {
    %k_t = stretto.past %fixed : !K
    %z_t = stretto.dot %fixed, %k_t : !K -> !n
    %k_s = stretto.past %q_s : !K
    %z_s = stretto.dot %q_s, %k_s : !K -> !n
    stretto.yield %z_t, %z_s : !n, !n
  } : !n, !n, !n
  stretto.yield %kl : !n
}

// -----

// The gradient of a softmax keeps a row that is made of a cotangent: it walks forward anyway.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>

// SAVED-LABEL: stretto.variant @attention(
// SAVED-SAME:    -> !V attributes {group = {H = 1 : i64}}
// CHUNK-LABEL: chunk.kernel @attention chunk 16
// CHUNK-SAME:    -> (o: tensor<16x16xbf16>)
stretto.variant @attention(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %first = stretto.constant 0.0 : !n_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !n
    %v_j = stretto.past %v : !V
    stretto.yield %s, %v_j : !n, !V
  } : !n, !n, !V
  %ls = stretto.broadcast %l : !n to !V
  %o = arith.divf %acc, %ls : !V
  stretto.yield %o : !V
}

// -----

// Beside a state the gradient begins with a walk that carries it.

!K = tensor<16xf64, #stretto.row<K>>
!n = tensor<f64, #stretto.row<()>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 16, 1 : 1>

// SAVED-LABEL: stretto.variant @beside_a_state(
// SAVED-SAME:    -> !n
// CHUNK-LABEL: chunk.kernel @beside_a_state chunk 16
// CHUNK-SAME:    -> (o: tensor<16xbf16>)
stretto.variant @beside_a_state(%q: !K, %k: !K, %x: !n) -> !n attributes {group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %x : !S, !K, !n
  %r = stretto.read %S1, %q along "K" : !S, !K -> !n
  %first = stretto.constant 0.0 : !n_per_1
  %kl, %lse_k, %lse_q = stretto.lookback divergence from %first {
    %k_j = stretto.past %k : !K
    %z_k = stretto.dot %k, %k_j : !K -> !n
    %z_q = stretto.dot %q, %k_j : !K -> !n
    stretto.yield %z_k, %z_q : !n, !n
  } : !n, !n, !n
  %o = arith.addf %kl, %r : !n
  stretto.yield %o : !n
}
