// Gated slot attention: keys and values are written to N slots, which share one gate each.
//
//   K_t = diag(e^g_t) K_(t-1) + s_t^T k_t        V_t = diag(e^g_t) V_(t-1) + s_t^T v_t
//   o_t = softmax(scale K_t q_t) V_t

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!N = tensor<?xf64, #stretto.row<N>>
!N_per_G = tensor<?xf64, #stretto.row<N, G>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!keys = !stretto.state<N, K, G>
!values = !stretto.state<N, V, G>

stretto.variant @gsa(%q: !K, %k: !K_per_G, %v: !V_per_G, %s: !N_per_G, %g: !N_per_G) -> !V options(scale = "K**-0.5")
    attributes {summary = "Gated slot attention."} {
  %keys = stretto.state "keys" : !keys
  %values = stretto.state "values" : !values
  %keys_decayed = stretto.decay %keys log %g along "N" : !keys, !N_per_G
  %values_decayed = stretto.decay %values log %g along "N" : !values, !N_per_G
  %keys_t = stretto.write %keys_decayed, %s, %k : !keys, !N_per_G, !K_per_G
  %values_t = stretto.write %values_decayed, %s, %v : !values, !N_per_G, !V_per_G
  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %logits = stretto.read %keys_t, %qs along "K" : !keys, !K -> !N
  %p = stretto.softmax %logits : !N
  %o = stretto.read %values_t, %p along "N" : !values, !N -> !V
  stretto.yield %o : !V
}
