// Linear attention; q and k are features already.
//
//   S_t = S_(t-1) + k_t^T [v_t, 1]       [num_t, den_t] = scale q_t S_t       o_t = num_t / (den_t + eps)
//
// Without `normalize`, S_t = S_(t-1) + k_t^T v_t and o_t = scale q_t S_t.

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!V_plus_1 = tensor<?xf64, #stretto.row<"V + 1">>
!V_plus_1_per_G = tensor<?xf64, #stretto.row<"V + 1", G>>
!number = tensor<f64, #stretto.row<()>>
!number_per_G = tensor<f64, #stretto.row<(), G>>
!S = !stretto.state<K, V, G>
!S_and_sum = !stretto.state<K, "V + 1", G>

stretto.variant @linear_attn(%q: !K, %k: !K_per_G, %v: !V_per_G) -> !V
    options(normalize = true, eps = 1.0e-10, scale = "K**-0.5") attributes {summary = "Linear attention."} {
  %normalize = stretto.option "normalize" : i1
  %o = scf.if %normalize -> !V {
    %S = stretto.state "S" : !S_and_sum
    %one = stretto.constant 1.0 : !number_per_G
    %v1 = stretto.concat %v, %one : !V_per_G, !number_per_G -> !V_plus_1_per_G
    %written = stretto.write %S, %k, %v1 : !S_and_sum, !K_per_G, !V_plus_1_per_G
    %scale = stretto.option "scale" : !K
    %qs = arith.mulf %q, %scale : !K
    %sums = stretto.read %written, %qs along "K" : !S_and_sum, !K -> !V_plus_1
    %num = stretto.slice %sums from "0" : !V_plus_1 -> !V
    %den = stretto.slice %sums from "V" : !V_plus_1 -> !number
    %eps = stretto.option "eps" : !number
    %divisor = arith.addf %den, %eps : !number
    %divisors = stretto.broadcast %divisor : !number to !V
    %quotient = arith.divf %num, %divisors : !V
    scf.yield %quotient : !V
  } else {
    %S = stretto.state "S" : !S
    %written = stretto.write %S, %k, %v : !S, !K_per_G, !V_per_G
    %scale = stretto.option "scale" : !K
    %qs = arith.mulf %q, %scale : !K
    %sum = stretto.read %written, %qs along "K" : !S, !K -> !V
    scf.yield %sum : !V
  }
  stretto.yield %o : !V
}
