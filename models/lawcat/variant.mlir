// LAWCAT: a causal convolution, Hedgehog features shared by queries and keys, a gate for each channel, a denominator.
//
//   phi(x) = max([softmax(x W), softmax(-x W)], 1e-12)
//   S_t = diag(e^(logsigmoid(z_t) / tau)) S_(t-1) + phi(conv_k * k_t)^T [v_t, 1]
//   [num_t, den_t] = scale phi(conv_q * q_t) S_t        o_t = num_t / (den_t + eps)

!D = tensor<?xf64, #stretto.row<D>>
!D_per_G = tensor<?xf64, #stretto.row<D, G>>
!D_over_2 = tensor<?xf64, #stretto.row<"D/2">>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!V_plus_1 = tensor<?xf64, #stretto.row<"V + 1">>
!V_plus_1_per_G = tensor<?xf64, #stretto.row<"V + 1", G>>
!number = tensor<f64, #stretto.row<()>>
!number_per_G = tensor<f64, #stretto.row<(), G>>
!parameter_D_4 = tensor<?x4xf64, #stretto.param<[D, 4]>>
!parameter_D_4_per_G = tensor<?x4xf64, #stretto.param<[D, 4], G>>
!parameter_D_D_over_2 = tensor<?x?xf64, #stretto.param<[D, "D/2"]>>
!S = !stretto.state<D, "V + 1">

stretto.variant @lawcat(%q: !D, %k: !D_per_G, %v: !V_per_G, %z: !D_per_G, %conv_q: !parameter_D_4,
                        %conv_k: !parameter_D_4_per_G, %w_phi: !parameter_D_D_over_2) -> !V
    options(tau = 16.0, eps = 1.0e-10, scale = "D**-0.5")
    attributes {summary = "LAWCAT: convolution, shared Hedgehog features, a gate for each channel, a denominator."} {
  %floor = stretto.constant 1.0e-12 : !D
  %S = stretto.state "S" : !S
  %gate = stretto.logsigmoid %z : !D_per_G
  %tau = stretto.option "tau" : !D_per_G
  %log_alpha = arith.divf %gate, %tau : !D_per_G
  %decayed = stretto.decay %S log %log_alpha along "D" : !S, !D_per_G

  %kc = stretto.conv %k, %conv_k : !D_per_G, !parameter_D_4_per_G
  %kcs = stretto.broadcast %kc : !D_per_G to !D
  %yk = stretto.contract %kcs, %w_phi : !D, !parameter_D_D_over_2 -> !D_over_2
  %k_plus = stretto.softmax %yk : !D_over_2
  %minus_yk = arith.negf %yk : !D_over_2
  %k_minus = stretto.softmax %minus_yk : !D_over_2
  %k_both = stretto.concat %k_plus, %k_minus : !D_over_2, !D_over_2 -> !D
  %phi_k = arith.maximumf %k_both, %floor : !D
  %one = stretto.constant 1.0 : !number_per_G
  %v1 = stretto.concat %v, %one : !V_per_G, !number_per_G -> !V_plus_1_per_G
  %written = stretto.write %decayed, %phi_k, %v1 : !S, !D, !V_plus_1_per_G

  %qc = stretto.conv %q, %conv_q : !D, !parameter_D_4
  %yq = stretto.contract %qc, %w_phi : !D, !parameter_D_D_over_2 -> !D_over_2
  %q_plus = stretto.softmax %yq : !D_over_2
  %minus_yq = arith.negf %yq : !D_over_2
  %q_minus = stretto.softmax %minus_yq : !D_over_2
  %q_both = stretto.concat %q_plus, %q_minus : !D_over_2, !D_over_2 -> !D
  %phi_q = arith.maximumf %q_both, %floor : !D
  %scale = stretto.option "scale" : !D
  %qs = arith.mulf %phi_q, %scale : !D
  %sums = stretto.read %written, %qs along "D" : !S, !D -> !V_plus_1

  %num = stretto.slice %sums from "0" : !V_plus_1 -> !V
  %den = stretto.slice %sums from "V" : !V_plus_1 -> !number
  %eps = stretto.option "eps" : !number
  %divisor = arith.addf %den, %eps : !number
  %divisors = stretto.broadcast %divisor : !number to !V
  %o = arith.divf %num, %divisors : !V
  stretto.yield %o : !V
}
