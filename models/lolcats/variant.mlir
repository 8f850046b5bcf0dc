// LoLCATs: softmax over a window, linear attention over all that left it, one denominator. gamma = sigmoid(factor).
//
//   m_t = max_j s_tj,  l_t = sum_j e^(s_tj - m_t),  acc_t = sum_j e^(s_tj - m_t) v_j      s_tj = scale q_t.k_j, j >= first_t
//   S_t = S_(t-1) + phi_k(k_t)^T [v_t, 1]                [num_t, den_t] = phi_q(q_t) S_(first_t - 1)
//   o_t = (gamma acc_t + beta num_t) / (gamma l_t + beta den_t)
//
// The window starts at first_t = t - window + 1 (sliding) or (floor(t / window) - prev_blocks) window (terraced).
// The maximum is part of the function: scores are not shifted in the linear part.

!D = tensor<?xf64, #stretto.row<D>>
!D_per_G = tensor<?xf64, #stretto.row<D, G>>
!F = tensor<?xf64, #stretto.row<F>>
!F_times_2 = tensor<?xf64, #stretto.row<"2*F">>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!V_plus_1 = tensor<?xf64, #stretto.row<"V + 1">>
!V_plus_1_per_G = tensor<?xf64, #stretto.row<"V + 1", G>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!number_per_G = tensor<f64, #stretto.row<(), G>>
!parameter = tensor<f64, #stretto.param<[]>>
!parameter_D_F = tensor<?x?xf64, #stretto.param<[D, F]>>
!parameter_E = tensor<?xf64, #stretto.param<[E]>>
!S_t2r = !stretto.state<F, "V + 1">
!S_hedgehog = !stretto.state<"2*F", "V + 1">

stretto.variant @lolcats(%q: !D, %k: !D_per_G, %v: !V_per_G, %w_q: !parameter_D_F, %w_k: !parameter_D_F,
                         %factor: !parameter, %b_q: !parameter_E {stretto.optional},
                         %b_k: !parameter_E {stretto.optional}) -> !V
    options(window = 64.0, mode = #stretto.choice<"terraced" of ["terraced", "sliding"]>, prev_blocks = 1.0, beta = 1.0,
            affine = false, feature = #stretto.choice<"hedgehog" of ["hedgehog", "t2r"]>, max_gradient = true,
            scale = "D**-0.5")
    attributes {summary = "LoLCATs: softmax over a window and linear attention over all that left it, with one denominator."} {
  // Where the window starts.
  %t = stretto.position
  %window = stretto.option "window" : !number_per_1
  %one_t = stretto.constant 1.0 : !number_per_1
  %sliding = stretto.option_is "mode" "sliding"
  %first = scf.if %sliding -> !number_per_1 {
    %left = arith.subf %t, %window : !number_per_1
    %start = arith.addf %left, %one_t : !number_per_1
    scf.yield %start : !number_per_1
  } else {
    %blocks = arith.divf %t, %window : !number_per_1
    %block = math.floor %blocks : !number_per_1
    %prev_blocks = stretto.option "prev_blocks" : !number_per_1
    %first_block = arith.subf %block, %prev_blocks : !number_per_1
    %start = arith.mulf %first_block, %window : !number_per_1
    scf.yield %start : !number_per_1
  }

  // The window.
  %m, %l_m, %acc_m = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !D_per_G
    %ks_j = stretto.broadcast %k_j : !D_per_G to !D
    %qk = stretto.dot %q, %ks_j : !D -> !number
    %scale = stretto.option "scale" : !number
    %s = arith.mulf %qk, %scale : !number
    %v_j = stretto.past %v : !V_per_G
    %vs_j = stretto.broadcast %v_j : !V_per_G to !V
    stretto.yield %s, %vs_j : !number, !V
  } : !number, !number, !V
  %max_gradient = stretto.option "max_gradient" : i1
  %l, %acc = scf.if %max_gradient -> (!number, !V) {
    scf.yield %l_m, %acc_m : !number, !V
  } else {
    // A factor of one that takes the maximum's part of the gradient away.
    %constant = stretto.stop_gradient %m : !number
    %difference = arith.subf %m, %constant : !number
    %unit = math.exp %difference : !number
    %l_unit = arith.mulf %l_m, %unit : !number
    %units = stretto.broadcast %unit : !number to !V
    %acc_unit = arith.mulf %acc_m, %units : !V
    scf.yield %l_unit, %acc_unit : !number, !V
  }

  // All that left it.
  %one = stretto.constant 1.0 : !number_per_G
  %v1 = stretto.concat %v, %one : !V_per_G, !number_per_G -> !V_plus_1_per_G
  %is_t2r = stretto.option_is "feature" "t2r"
  %sums = scf.if %is_t2r -> !V_plus_1 {
    %floor = stretto.constant 1.0e-12 : !F
    %ks = stretto.broadcast %k : !D_per_G to !D
    %kw = stretto.contract %ks, %w_k : !D, !parameter_D_F -> !F
    %has_b_k = stretto.present %b_k : !parameter_E
    %yk = scf.if %has_b_k -> !F {
      %b = stretto.broadcast %b_k : !parameter_E to !F
      %sum = arith.addf %kw, %b : !F
      scf.yield %sum : !F
    } else {
      scf.yield %kw : !F
    }
    %phi_k = arith.maximumf %yk, %floor : !F
    %qw = stretto.contract %q, %w_q : !D, !parameter_D_F -> !F
    %has_b_q = stretto.present %b_q : !parameter_E
    %yq = scf.if %has_b_q -> !F {
      %b = stretto.broadcast %b_q : !parameter_E to !F
      %sum = arith.addf %qw, %b : !F
      scf.yield %sum : !F
    } else {
      scf.yield %qw : !F
    }
    %phi_q = arith.maximumf %yq, %floor : !F
    %S = stretto.state "S" : !S_t2r
    %written = stretto.write %S, %phi_k, %v1 : !S_t2r, !F, !V_plus_1_per_G
    %before = arith.subf %first, %one_t : !number_per_1
    %old = stretto.read %written, %phi_q along "F" at %before : !S_t2r, !F -> !V_plus_1
    scf.yield %old : !V_plus_1
  } else {
    %floor = stretto.constant 1.0e-12 : !F_times_2
    %ks = stretto.broadcast %k : !D_per_G to !D
    %yk = stretto.contract %ks, %w_k : !D, !parameter_D_F -> !F
    %k_plus = stretto.softmax %yk : !F
    %minus_yk = arith.negf %yk : !F
    %k_minus = stretto.softmax %minus_yk : !F
    %k_both = stretto.concat %k_plus, %k_minus : !F, !F -> !F_times_2
    %phi_k = arith.maximumf %k_both, %floor : !F_times_2
    %yq = stretto.contract %q, %w_q : !D, !parameter_D_F -> !F
    %q_plus = stretto.softmax %yq : !F
    %minus_yq = arith.negf %yq : !F
    %q_minus = stretto.softmax %minus_yq : !F
    %q_both = stretto.concat %q_plus, %q_minus : !F, !F -> !F_times_2
    %phi_q = arith.maximumf %q_both, %floor : !F_times_2
    %S = stretto.state "S" : !S_hedgehog
    %written = stretto.write %S, %phi_k, %v1 : !S_hedgehog, !F_times_2, !V_plus_1_per_G
    %before = arith.subf %first, %one_t : !number_per_1
    %old = stretto.read %written, %phi_q along "2*F" at %before : !S_hedgehog, !F_times_2 -> !V_plus_1
    scf.yield %old : !V_plus_1
  }
  %num = stretto.slice %sums from "0" : !V_plus_1 -> !V
  %den = stretto.slice %sums from "V" : !V_plus_1 -> !number

  // One denominator.
  %logit = stretto.broadcast %factor : !parameter to !number
  %log_gamma = stretto.logsigmoid %logit : !number
  %gamma = math.exp %log_gamma : !number
  %affine = stretto.option "affine" : i1
  %beta = scf.if %affine -> !number {
    %unit = stretto.constant 1.0 : !number
    %rest = arith.subf %unit, %gamma : !number
    scf.yield %rest : !number
  } else {
    %weight = stretto.option "beta" : !number
    scf.yield %weight : !number
  }
  %gammas = stretto.broadcast %gamma : !number to !V
  %near_num = arith.mulf %gammas, %acc : !V
  %betas = stretto.broadcast %beta : !number to !V
  %far_num = arith.mulf %betas, %num : !V
  %o_num = arith.addf %near_num, %far_num : !V
  %near_den = arith.mulf %gamma, %l : !number
  %far_den = arith.mulf %beta, %den : !number
  %o_den = arith.addf %near_den, %far_den : !number
  %o_dens = stretto.broadcast %o_den : !number to !V
  %o = arith.divf %o_num, %o_dens : !V
  stretto.yield %o : !V
}
