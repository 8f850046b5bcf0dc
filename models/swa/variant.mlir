// Sliding window attention.
//
//   o_t = softmax_j(scale q_t.k_j) v_j, over t - window < j <= t

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

stretto.variant @swa(%q: !K, %k: !K_per_G, %v: !V_per_G) -> !V options(window = 64.0, scale = "K**-0.5")
    attributes {summary = "Sliding window attention."} {
  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %t = stretto.position
  %window = stretto.option "window" : !number_per_1
  %before = arith.subf %t, %window : !number_per_1
  %one = stretto.constant 1.0 : !number_per_1
  %first = arith.addf %before, %one : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K_per_G
    %ks_j = stretto.broadcast %k_j : !K_per_G to !K
    %score = stretto.dot %qs, %ks_j : !K -> !number
    %v_j = stretto.past %v : !V_per_G
    %vs_j = stretto.broadcast %v_j : !V_per_G to !V
    stretto.yield %score, %vs_j : !number, !V
  } : !number, !number, !V
  %ls = stretto.broadcast %l : !number to !V
  %o = arith.divf %acc, %ls : !V
  stretto.yield %o : !V
}
