// Based: normalised linear attention on the expansion of e^s to second order, s = scale q.k.
//
//   phi(x) = [1, x, vec(x x^T) / sqrt 2]        S_t = S_(t-1) + phi(k_t)^T [v_t, 1]
//   [num_t, den_t] = phi(scale q_t) S_t         o_t = num_t / (den_t + eps)

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!K_times_K = tensor<?xf64, #stretto.row<"K*K">>
!K_times_K_per_G = tensor<?xf64, #stretto.row<"K*K", G>>
!features = tensor<?xf64, #stretto.row<"1 + K + K*K">>
!features_per_G = tensor<?xf64, #stretto.row<"1 + K + K*K", G>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!V_plus_1 = tensor<?xf64, #stretto.row<"V + 1">>
!V_plus_1_per_G = tensor<?xf64, #stretto.row<"V + 1", G>>
!number = tensor<f64, #stretto.row<()>>
!number_per_G = tensor<f64, #stretto.row<(), G>>
!S = !stretto.state<"1 + K + K*K", "V + 1", G>

stretto.variant @based(%q: !K, %k: !K_per_G, %v: !V_per_G) -> !V options(eps = 1.0e-6, scale = "K**-0.5")
    attributes {summary = "Based: linear attention on the second-order expansion of the exponential."} {
  %S = stretto.state "S" : !S
  %kk = stretto.outer %k, %k : !K_per_G, !K_per_G -> !K_times_K_per_G
  %root_of_half_k = stretto.constant 0.7071067811865476 : !K_times_K_per_G
  %k2 = arith.mulf %kk, %root_of_half_k : !K_times_K_per_G
  %one = stretto.constant 1.0 : !number_per_G
  %phi_k = stretto.concat %one, %k, %k2 : !number_per_G, !K_per_G, !K_times_K_per_G -> !features_per_G
  %v1 = stretto.concat %v, %one : !V_per_G, !number_per_G -> !V_plus_1_per_G
  %written = stretto.write %S, %phi_k, %v1 : !S, !features_per_G, !V_plus_1_per_G

  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %qq = stretto.outer %qs, %qs : !K, !K -> !K_times_K
  %root_of_half_q = stretto.constant 0.7071067811865476 : !K_times_K
  %q2 = arith.mulf %qq, %root_of_half_q : !K_times_K
  %one_q = stretto.constant 1.0 : !number
  %phi_q = stretto.concat %one_q, %qs, %q2 : !number, !K, !K_times_K -> !features
  %sums = stretto.read %written, %phi_q along "K*K + K + 1" : !S, !features -> !V_plus_1

  %num = stretto.slice %sums from "0" : !V_plus_1 -> !V
  %den = stretto.slice %sums from "V" : !V_plus_1 -> !number
  %eps = stretto.option "eps" : !number
  %divisor = arith.addf %den, %eps : !number
  %divisors = stretto.broadcast %divisor : !number to !V
  %o = arith.divf %num, %divisors : !V
  stretto.yield %o : !V
}
