// RUN: stretto-opt %s --stretto-save-rows --split-input-file | FileCheck %s --check-prefix=SAVED
// RUN: stretto-opt %s --stretto-save-rows --stretto-chunk="chunk=16 element=bf16" --split-input-file \
// RUN:   | FileCheck %s --check-prefix=CHUNK
// RUN: stretto-opt %s --stretto-differentiate="saved=true" --split-input-file | FileCheck %s --check-prefix=TAKEN

// The gradient of a divergence keeps both log-sum-exps, which the program finds: it saves them, in fp32. The gradient
// has no walk forward then.

!K = tensor<16xf64, #stretto.row<K>>
!n = tensor<f64, #stretto.row<()>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>

// SAVED-LABEL: stretto.variant @relation(
// SAVED-SAME:    -> (!number, !number, !number) attributes {group = {H = 1 : i64}, saved = 2 : i64}
// SAVED:         %[[ROWS:.+]]:3 = stretto.lookback divergence
// SAVED:         stretto.yield %[[ROWS]]#0, %[[ROWS]]#1, %[[ROWS]]#2 :

// CHUNK-LABEL: chunk.kernel @relation chunk 16
// CHUNK-SAME:    -> (o: tensor<16xbf16>, saved.0: tensor<16xf32>, saved.1: tensor<16xf32>)

// TAKEN-LABEL: stretto.variant @relation_backward(
// TAKEN-SAME:    %d_o: !number, %saved_0: !number, %saved_1: !number)
// TAKEN-SAME:    attributes {gradient, group = {H = 1 : i64}, saved = 2 : i64}
// TAKEN-NOT:     divergence

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
// TAKEN-LABEL: stretto.variant @attention_backward(
// TAKEN-SAME:    %d_o: !V) ->
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

// The normaliser of a state whose decay has a gradient, for which the walk back asks for the state: none of its kernels
// reads that for the result again.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!V_plus_1 = tensor<17xf64, #stretto.row<"V + 1">>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 17>

// SAVED-LABEL: stretto.variant @decayed(
// SAVED-SAME:    -> (!V, !number) attributes {group = {H = 1 : i64}, saved = 1 : i64}
// SAVED:         %[[READ:.+]] = stretto.read
// SAVED:         %[[SUM:.+]] = stretto.slice %[[READ]] from "V"
// SAVED:         stretto.yield %{{.+}}, %[[SUM]] : !V, !number
// CHUNK-LABEL: chunk.kernel @decayed chunk 16

// TAKEN-LABEL: stretto.variant @decayed_backward(
// TAKEN-SAME:    %d_o: !V, %result_0: !V, %saved_0: !number)
// TAKEN-COUNT-1: stretto.read %{{.+}}, %{{.+}} along "V + 1" : !state
// TAKEN-NOT:     stretto.read %{{.+}}, %{{.+}} along "K" : !state_
// TAKEN:         stretto.yield

stretto.variant @decayed(%q: !K, %k: !K, %v: !V, %g: !n) -> !V attributes {group = {H = 1 : i64}} {
  %one = arith.constant dense<1.0> : !n
  %row = stretto.concat %v, %one : !V, !n -> !V_plus_1
  %S0 = stretto.state "S" : !S
  %S = stretto.decay %S0 log %g : !S, !n
  %S1 = stretto.write %S, %k, %row : !S, !K, !V_plus_1
  %r = stretto.read %S1, %q along "K" : !S, !K -> !V_plus_1
  %num = stretto.slice %r from "0" : !V_plus_1 -> !V
  %den = stretto.slice %r from "V" : !V_plus_1 -> !n
  %dens = stretto.broadcast %den : !n to !V
  %o = arith.divf %num, %dens : !V
  stretto.yield %o : !V
}

// -----

// Without a decay the walk forward leaves the gradient of the query, and finds normalisers beside that.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!V_plus_1 = tensor<17xf64, #stretto.row<"V + 1">>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 17>

// SAVED-LABEL: stretto.variant @normalised(
// SAVED-SAME:    -> !V attributes {group = {H = 1 : i64}}
// TAKEN-LABEL: stretto.variant @normalised_backward(
// TAKEN-SAME:    %d_o: !V) ->
stretto.variant @normalised(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %one = arith.constant dense<1.0> : !n
  %row = stretto.concat %v, %one : !V, !n -> !V_plus_1
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %row : !S, !K, !V_plus_1
  %r = stretto.read %S1, %q along "K" : !S, !K -> !V_plus_1
  %num = stretto.slice %r from "0" : !V_plus_1 -> !V
  %den = stretto.slice %r from "V" : !V_plus_1 -> !n
  %dens = stretto.broadcast %den : !n to !V
  %o = arith.divf %num, %dens : !V
  stretto.yield %o : !V
}

// -----

// A result that was changed is of no use: the row that was divided would be read again.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!V_plus_1 = tensor<17xf64, #stretto.row<"V + 1">>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 17>

// SAVED-LABEL: stretto.variant @changed(
// SAVED-SAME:    -> !V attributes {group = {H = 1 : i64}}
// TAKEN-LABEL: stretto.variant @changed_backward(
// TAKEN-SAME:    %d_o: !V) ->
stretto.variant @changed(%q: !K, %k: !K, %v: !V, %g: !n) -> !V attributes {group = {H = 1 : i64}} {
  %one = arith.constant dense<1.0> : !n
  %row = stretto.concat %v, %one : !V, !n -> !V_plus_1
  %S0 = stretto.state "S" : !S
  %S = stretto.decay %S0 log %g : !S, !n
  %S1 = stretto.write %S, %k, %row : !S, !K, !V_plus_1
  %r = stretto.read %S1, %q along "K" : !S, !K -> !V_plus_1
  %num = stretto.slice %r from "0" : !V_plus_1 -> !V
  %den = stretto.slice %r from "V" : !V_plus_1 -> !n
  %dens = stretto.broadcast %den : !n to !V
  %quotient = arith.divf %num, %dens : !V
  %o = math.exp %quotient : !V
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
