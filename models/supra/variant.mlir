// SUPRA: rotated ReLU features, a fixed decay for each head, and a norm over each head in place of a denominator.
//
//   phi(x) = rotate(max(x W + b, 0))       S_t = e^log_gamma S_(t-1) + phi_k(k_t)^T v_t       u_t = phi_q(q_t) S_t
//   o_t = weight (u_t - mean u_t) / sqrt(var u_t + eps) + bias
//
// The rotation turns the pairs (i, i + F/2) by t theta^(-2i/F).

!D = tensor<?xf64, #stretto.row<D>>
!D_per_G = tensor<?xf64, #stretto.row<D, G>>
!F = tensor<?xf64, #stretto.row<F>>
!F_over_2 = tensor<?xf64, #stretto.row<"F/2">>
!F_per_1 = tensor<?xf64, #stretto.row<F, 1>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!number = tensor<f64, #stretto.row<()>>
!parameter = tensor<f64, #stretto.param<[]>>
!parameter_D_F = tensor<?x?xf64, #stretto.param<[D, F]>>
!parameter_F = tensor<?xf64, #stretto.param<[F]>>
!parameter_V = tensor<?xf64, #stretto.param<[V]>>
!S = !stretto.state<F, V>

stretto.variant @supra(%q: !D, %k: !D_per_G, %v: !V_per_G, %w_q: !parameter_D_F, %b_q: !parameter_F,
                       %w_k: !parameter_D_F, %b_k: !parameter_F, %log_gamma: !parameter,
                       %weight: !parameter_V {stretto.optional}, %bias: !parameter_V {stretto.optional}) -> !V
    options(theta = 10000.0, eps = 1.0e-5)
    attributes {summary = "SUPRA: rotated ReLU features, a fixed decay, and a norm in place of the denominator."} {
  %zero = stretto.constant 0.0 : !F
  %qw = stretto.contract %q, %w_q : !D, !parameter_D_F -> !F
  %bq = stretto.broadcast %b_q : !parameter_F to !F
  %yq = arith.addf %qw, %bq : !F
  %fq = arith.maximumf %yq, %zero : !F
  %ks = stretto.broadcast %k : !D_per_G to !D
  %kw = stretto.contract %ks, %w_k : !D, !parameter_D_F -> !F
  %bk = stretto.broadcast %b_k : !parameter_F to !F
  %yk = arith.addf %kw, %bk : !F
  %fk = arith.maximumf %yk, %zero : !F

  %cos_t = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    %theta = stretto.option "theta" : f64
    %half = stretto.size "F/2" : f64
    %i = arith.remf %d, %half : f64
    %fraction = arith.divf %i, %half : f64
    %exponent = arith.negf %fraction : f64
    %frequency = math.powf %theta, %exponent : f64
    %angle = arith.mulf %t, %frequency : f64
    %cos = math.cos %angle : f64
    stretto.yield %cos : f64
  } : !F_per_1
  %sin_t = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    %theta = stretto.option "theta" : f64
    %half = stretto.size "F/2" : f64
    %i = arith.remf %d, %half : f64
    %fraction = arith.divf %i, %half : f64
    %exponent = arith.negf %fraction : f64
    %frequency = math.powf %theta, %exponent : f64
    %angle = arith.mulf %t, %frequency : f64
    %sin = math.sin %angle : f64
    stretto.yield %sin : f64
  } : !F_per_1

  %q1 = stretto.slice %fq from "0" : !F -> !F_over_2
  %q2 = stretto.slice %fq from "F/2" : !F -> !F_over_2
  %cos = stretto.broadcast %cos_t : !F_per_1 to !F
  %q_cos = arith.mulf %fq, %cos : !F
  %minus_q2 = arith.negf %q2 : !F_over_2
  %q_turned = stretto.concat %minus_q2, %q1 : !F_over_2, !F_over_2 -> !F
  %sin = stretto.broadcast %sin_t : !F_per_1 to !F
  %q_sin = arith.mulf %q_turned, %sin : !F
  %phi_q = arith.addf %q_cos, %q_sin : !F
  %k1 = stretto.slice %fk from "0" : !F -> !F_over_2
  %k2 = stretto.slice %fk from "F/2" : !F -> !F_over_2
  %k_cos = arith.mulf %fk, %cos : !F
  %minus_k2 = arith.negf %k2 : !F_over_2
  %k_turned = stretto.concat %minus_k2, %k1 : !F_over_2, !F_over_2 -> !F
  %k_sin = arith.mulf %k_turned, %sin : !F
  %phi_k = arith.addf %k_cos, %k_sin : !F

  %S = stretto.state "S" : !S
  %gamma = stretto.broadcast %log_gamma : !parameter to !number
  %decayed = stretto.decay %S log %gamma : !S, !number
  %written = stretto.write %decayed, %phi_k, %v : !S, !F, !V_per_G
  %u = stretto.read %written, %phi_q along "F" : !S, !F -> !V

  %mean = stretto.reduce mean %u : !V -> !number
  %means = stretto.broadcast %mean : !number to !V
  %centred = arith.subf %u, %means : !V
  %square = arith.mulf %centred, %centred : !V
  %variance = stretto.reduce mean %square : !V -> !number
  %eps = stretto.option "eps" : !number
  %positive = arith.addf %variance, %eps : !number
  %deviation = math.sqrt %positive : !number
  %deviations = stretto.broadcast %deviation : !number to !V
  %normal = arith.divf %centred, %deviations : !V
  %has_weight = stretto.present %weight : !parameter_V
  %weighted = scf.if %has_weight -> !V {
    %w = stretto.broadcast %weight : !parameter_V to !V
    %product = arith.mulf %normal, %w : !V
    scf.yield %product : !V
  } else {
    scf.yield %normal : !V
  }
  %has_bias = stretto.present %bias : !parameter_V
  %o = scf.if %has_bias -> !V {
    %b = stretto.broadcast %bias : !parameter_V to !V
    %sum = arith.addf %weighted, %b : !V
    scf.yield %sum : !V
  } else {
    scf.yield %weighted : !V
  }
  stretto.yield %o : !V
}
