// Retention: linear attention whose decay is fixed for each key/value head h.
//
//   S_t = (1 - 2^(-5-h)) S_(t-1) + k_t^T v_t        o_t = scale q_t S_t

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!number_per_G = tensor<f64, #stretto.row<(), G>>
!S = !stretto.state<K, V, G>

stretto.variant @retention(%q: !K, %k: !K_per_G, %v: !V_per_G) -> !V options(scale = "K**-0.5")
    attributes {summary = "Retention: linear attention with a fixed decay for each head."} {
  %S = stretto.state "S" : !S
  %log_gamma = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    %minus_five = arith.constant -5.0 : f64
    %exponent = arith.subf %minus_five, %h : f64
    %loss = math.exp2 %exponent : f64
    %negated = arith.negf %loss : f64
    %log = math.log1p %negated : f64
    stretto.yield %log : f64
  } : !number_per_G
  %decayed = stretto.decay %S log %log_gamma : !S, !number_per_G
  %written = stretto.write %decayed, %k, %v : !S, !K_per_G, !V_per_G
  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %o = stretto.read %written, %qs along "K" : !S, !K -> !V
  stretto.yield %o : !V
}
