// HGRN2: the forget gate f, a factor that may be 0, and its complement in place of a key.
//
//   S_t = diag(f_t) S_(t-1) + (1 - f_t)^T v_t        o_t = scale q_t S_t

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!S = !stretto.state<K, V, G>

stretto.variant @hgrn2(%q: !K, %f: !K_per_G, %v: !V_per_G) -> !V options(scale = "K**-0.5")
    attributes {summary = "HGRN2: what the forget gate lets go, the input replaces."} {
  %S = stretto.state "S" : !S
  %decayed = stretto.decay %S factor %f along "K" : !S, !K_per_G
  %one = stretto.constant 1.0 : !K_per_G
  %input = arith.subf %one, %f : !K_per_G
  %written = stretto.write %decayed, %input, %v : !S, !K_per_G, !V_per_G
  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %o = stretto.read %written, %qs along "K" : !S, !K -> !V
  stretto.yield %o : !V
}
