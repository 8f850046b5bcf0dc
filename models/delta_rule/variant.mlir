// DeltaNet: what is written corrects what the state recalls for the key.
//
//   S_t = S_(t-1) + k_t^T beta_t (v_t - k_t S_(t-1))        o_t = scale q_t S_t

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V_per_H_and_W = tensor<?xf64, #stretto.row<V, "H|W">>
!V_per_W = tensor<?xf64, #stretto.row<V, W>>
!number_per_W = tensor<f64, #stretto.row<(), W>>
!S = !stretto.state<K, V, W>

stretto.variant @delta_rule(%q: !K, %k: !K_per_G, %v: !V_per_W, %beta: !number_per_W) -> !V_per_H_and_W
    options(scale = "K**-0.5")
    attributes {summary = "DeltaNet: the row that is written corrects what the state recalls."} {
  %S = stretto.state "S" : !S
  %recalled = stretto.read %S, %k along "K" : !S, !K_per_G -> !V_per_W
  %error = arith.subf %v, %recalled : !V_per_W
  %betas = stretto.broadcast %beta : !number_per_W to !V_per_W
  %correction = arith.mulf %betas, %error : !V_per_W
  %written = stretto.write %S, %k, %correction : !S, !K_per_G, !V_per_W
  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %o = stretto.read %written, %qs along "K" : !S, !K -> !V_per_H_and_W
  stretto.yield %o : !V_per_H_and_W
}
