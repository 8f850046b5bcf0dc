// Mamba-2's state space model: one decay for each head, B and C shared by groups of heads.
//
//   S_t = e^(-dt_t e^A_log) S_(t-1) + dt_t B_t^T x_t        y_t = C_t S_t + D x_t

!N = tensor<?xf64, #stretto.row<N>>
!N_per_G = tensor<?xf64, #stretto.row<N, G>>
!P = tensor<?xf64, #stretto.row<P>>
!number = tensor<f64, #stretto.row<()>>
!parameter = tensor<f64, #stretto.param<[]>>
!S = !stretto.state<N, P>

stretto.variant @ssd(%x: !P, %dt: !number, %A_log: !parameter, %B: !N_per_G, %C: !N_per_G,
                     %D: !parameter {stretto.optional}) -> !P
    attributes {summary = "Mamba-2: a state space model with one decay for each head."} {
  %S = stretto.state "S" : !S
  %minus_dt = arith.negf %dt : !number
  %log_rate = stretto.broadcast %A_log : !parameter to !number
  %rate = math.exp %log_rate : !number
  %log_a = arith.mulf %minus_dt, %rate : !number
  %decayed = stretto.decay %S log %log_a : !S, !number
  %dts = stretto.broadcast %dt : !number to !P
  %input = arith.mulf %dts, %x : !P
  %written = stretto.write %decayed, %B, %input : !S, !N_per_G, !P
  %Cx = stretto.read %written, %C along "N" : !S, !N_per_G -> !P
  %has_D = stretto.present %D : !parameter
  %y = scf.if %has_D -> !P {
    %skip = stretto.broadcast %D : !parameter to !P
    %Dx = arith.mulf %skip, %x : !P
    %sum = arith.addf %Cx, %Dx : !P
    scf.yield %sum : !P
  } else {
    scf.yield %Cx : !P
  }
  stretto.yield %y : !P
}
