// Blurry window attention: token t is written to slot n with a weight that depends on t and n only.
//
//   w_tn = D(N t / period - n)        D(x) = sin(pi x) / (N sin(pi x / N)), exactly 0 or 1 where x is an integer
//   K_t = diag(a_t) K_(t-1) + w_t^T k_t        V_t = diag(a_t) V_(t-1) + w_t^T v_t
//   o_t = softmax(scale K_t q_t) V_t, over the slots with n period / N <= t if `masked`
//
// a_t is 1, 1 - |w_t| or 1 - w_t for the `decay` none, abs or signed.

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!N = tensor<?xf64, #stretto.row<N>>
!N_per_1 = tensor<?xf64, #stretto.row<N, 1>>
!V = tensor<?xf64, #stretto.row<V>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!condition_N = tensor<?xi1, #stretto.row<N>>
!condition_N_per_1 = tensor<?xi1, #stretto.row<N, 1>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!keys = !stretto.state<N, K, G>
!values = !stretto.state<N, V, G>

stretto.variant @bla(%q: !K, %k: !K_per_G, %v: !V_per_G) -> !V
    options(modes = 4.0, period = 18.0, decay = #stretto.choice<"none" of ["none", "abs", "signed"]>, masked = true,
            scale = "K**-0.5")
    axes(N = "2*modes + 1")
    attributes {summary = "Blurry window attention: tokens are written to slots with the weights of a Dirichlet kernel."} {
  %period = stretto.option "period" : f64
  %w = stretto.table period %period {
  ^bb0(%t: f64, %h: f64, %n: f64):
    %zero = arith.constant 0.0 : f64
    %one = arith.constant 1.0 : f64
    %pi = arith.constant 3.141592653589793 : f64
    %slack = arith.constant 1.0e-9 : f64
    %N = stretto.size "N" : f64
    %Nt = arith.mulf %N, %t : f64
    %steps = arith.divf %Nt, %period : f64
    %x = arith.subf %steps, %n : f64
    %grid = math.roundeven %x : f64
    %turn = arith.remf %grid, %N : f64
    %full_turn = arith.cmpf oeq, %turn, %zero : f64
    %on_grid = arith.select %full_turn, %one, %zero : f64
    %pi_x = arith.mulf %pi, %x : f64
    %sin = math.sin %pi_x : f64
    %slow_angle = arith.divf %pi_x, %N : f64
    %slow_sin = math.sin %slow_angle : f64
    %N_sin = arith.mulf %N, %slow_sin : f64
    %between = arith.divf %sin, %N_sin : f64
    %offset = arith.subf %x, %grid : f64
    %distance = math.absf %offset : f64
    %is_on_grid = arith.cmpf olt, %distance, %slack : f64
    %weight = arith.select %is_on_grid, %on_grid, %between : f64
    stretto.yield %weight : f64
  } : !N_per_1
  %keys = stretto.state "keys" : !keys
  %values = stretto.state "values" : !values
  %keeps_all = stretto.option_is "decay" "none"
  %keys_decayed, %values_decayed = scf.if %keeps_all -> (!keys, !values) {
    scf.yield %keys, %values : !keys, !values
  } else {
    %is_abs = stretto.option_is "decay" "abs"
    %loss = scf.if %is_abs -> !N_per_1 {
      %abs = math.absf %w : !N_per_1
      scf.yield %abs : !N_per_1
    } else {
      scf.yield %w : !N_per_1
    }
    %one = stretto.constant 1.0 : !N_per_1
    %a = arith.subf %one, %loss : !N_per_1
    %decayed_keys = stretto.decay %keys factor %a along "N" : !keys, !N_per_1
    %decayed_values = stretto.decay %values factor %a along "N" : !values, !N_per_1
    scf.yield %decayed_keys, %decayed_values : !keys, !values
  }
  %keys_t = stretto.write %keys_decayed, %w, %k : !keys, !N_per_1, !K_per_G
  %values_t = stretto.write %values_decayed, %w, %v : !values, !N_per_1, !V_per_G
  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %logits = stretto.read %keys_t, %qs along "K" : !keys, !K -> !N
  %masked = stretto.option "masked" : i1
  %open_logits = scf.if %masked -> !N {
    %centre = stretto.table {
    ^bb0(%t: f64, %h: f64, %n: f64):
      %n_period = arith.mulf %n, %period : f64
      %N = stretto.size "N" : f64
      %time = arith.divf %n_period, %N : f64
      stretto.yield %time : f64
    } : !N_per_1
    %t = stretto.position
    %slack = stretto.constant 1.0e-9 : !number_per_1
    %now = arith.addf %t, %slack : !number_per_1
    %nows = stretto.broadcast %now : !number_per_1 to !N_per_1
    %open = arith.cmpf ole, %centre, %nows : !N_per_1
    %opens = stretto.broadcast %open : !condition_N_per_1 to !condition_N
    %minus_infinity = stretto.constant 0xFFF0000000000000 : !N
    %selected = arith.select %opens, %logits, %minus_infinity : !condition_N, !N
    scf.yield %selected : !N
  } else {
    scf.yield %logits : !N
  }
  %p = stretto.softmax %open_logits : !N
  %o = stretto.read %values_t, %p along "N" : !values, !N -> !V
  stretto.yield %o : !V
}
