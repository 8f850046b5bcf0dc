// Gated linear attention with one gate for each head and token.
//
//   S_t = e^g_t S_(t-1) + k_t^T v_t        o_t = scale q_t S_t

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!number_per_G = tensor<f64, #stretto.row<(), G>>
!S = !stretto.state<K, V, G>

stretto.variant @simple_gla(%q: !K, %k: !K_per_G, %v: !V_per_G, %g: !number_per_G) -> !V options(scale = "K**-0.5")
    attributes {summary = "Gated linear attention with one gate for each head."} {
  %S = stretto.state "S" : !S
  %decayed = stretto.decay %S log %g : !S, !number_per_G
  %written = stretto.write %decayed, %k, %v : !S, !K_per_G, !V_per_G
  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %o = stretto.read %written, %qs along "K" : !S, !K -> !V
  stretto.yield %o : !V
}
