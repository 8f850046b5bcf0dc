// RWKV-6: the state is read before the token is written, which is seen through the bonus u instead.
//
//   o_t = scale r_t (S_(t-1) + diag(u) k_t^T v_t)        S_t = diag(e^w_t) S_(t-1) + k_t^T v_t

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!number = tensor<f64, #stretto.row<()>>
!parameter_K_per_G = tensor<?xf64, #stretto.param<[K], G>>
!S = !stretto.state<K, V, G>

stretto.variant @rwkv6(%r: !K, %k: !K_per_G, %v: !V_per_G, %w: !K_per_G, %u: !parameter_K_per_G) -> !V
    options(scale = "K**-0.5")
    attributes {summary = "RWKV-6: the token itself is seen through a bonus, before it is written."} {
  %S = stretto.state "S" : !S
  %scale = stretto.option "scale" : !K
  %rs = arith.mulf %r, %scale : !K
  %before = stretto.read %S, %rs along "K" : !S, !K -> !V
  %bonus = stretto.broadcast %u : !parameter_K_per_G to !K_per_G
  %uk = arith.mulf %bonus, %k : !K_per_G
  %uks = stretto.broadcast %uk : !K_per_G to !K
  %weight = stretto.dot %rs, %uks : !K -> !number
  %weights = stretto.broadcast %weight : !number to !V
  %vs = stretto.broadcast %v : !V_per_G to !V
  %itself = arith.mulf %weights, %vs : !V
  %o = arith.addf %before, %itself : !V
  %decayed = stretto.decay %S log %w along "K" : !S, !K_per_G
  %written = stretto.write %decayed, %k, %v : !S, !K_per_G, !V_per_G
  stretto.yield %o : !V
}
