// A retention whose results are normalised over their columns, as the part of SUPRA that remains where its feature maps
// are operators of their own.
//
//   S_t = e^log_gamma S_(t-1) + k_t^T v_t      o_t = weight (y_t - mean y_t) / sqrt(var y_t + 1e-5) + bias, y_t = q_t S_t

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!parameter = tensor<f64, #stretto.param<[]>>
!parameter_V = tensor<?xf64, #stretto.param<[V]>>
!S = !stretto.state<K, V>

stretto.variant @retention_layer_norm(%q: !K, %k: !K, %v: !V, %log_gamma: !parameter, %weight: !parameter_V,
                                      %bias: !parameter_V) -> !V {
  %S = stretto.state "S" : !S
  %gate = stretto.broadcast %log_gamma : !parameter to !number
  %decayed = stretto.decay %S log %gate : !S, !number
  %written = stretto.write %decayed, %k, %v : !S, !K, !V
  %y = stretto.read %written, %q along "K" : !S, !K -> !V
  %mean = stretto.reduce mean %y : !V -> !number
  %means = stretto.broadcast %mean : !number to !V
  %centred = arith.subf %y, %means : !V
  %squares = arith.mulf %centred, %centred : !V
  %variance = stretto.reduce mean %squares : !V -> !number
  %eps = stretto.constant 1.0e-05 : !number
  %sum = arith.addf %variance, %eps : !number
  %deviation = math.sqrt %sum : !number
  %deviations = stretto.broadcast %deviation : !number to !V
  %normalised = arith.divf %centred, %deviations : !V
  %weights = stretto.broadcast %weight : !parameter_V to !V
  %scaled = arith.mulf %normalised, %weights : !V
  %biases = stretto.broadcast %bias : !parameter_V to !V
  %o = arith.addf %scaled, %biases : !V
  stretto.yield %o : !V
}
