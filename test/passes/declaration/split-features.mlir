// RUN: stretto-opt %s --stretto-split-features --split-input-file | FileCheck %s

// A softmax of convolved keys that a matrix multiplies, and what multiplies queries: what meets the state is found
// before, each by a part of its own, and so are the logarithms of decays, which have a head for two of the results'. What finds
// these knows no others. An option is that of the part which asks for it.

!K = tensor<16xf64, #stretto.row<K>>
!K_per_G = tensor<16xf64, #stretto.row<K, G>>
!F = tensor<8xf64, #stretto.row<F>>
!F_per_G = tensor<8xf64, #stretto.row<F, G>>
!V = tensor<32xf64, #stretto.row<V>>
!W = tensor<16x8xf64, #stretto.param<[K, F]>>
!taps = tensor<16x4xf64, #stretto.param<[K, 4]>>
!S = !stretto.state<F : 8, V : 32>

// CHECK-LABEL: stretto.variant @mapped_features_0(%k: !K, %conv: !parameter_K_4, %w: !parameter_K_F) -> !F attributes
// CHECK:         %[[CONVOLVED:.+]] = stretto.conv %k, %conv
// CHECK:         %[[PRODUCT:.+]] = stretto.contract %[[CONVOLVED]], %w
// CHECK:         %[[KEY:.+]] = stretto.softmax %[[PRODUCT]]
// CHECK-NEXT:    stretto.yield %[[KEY]]

// CHECK-LABEL: stretto.variant @mapped_features_1(%q: !K, %w: !parameter_K_F) -> !F attributes
// CHECK-NEXT:    %[[QUERY:.+]] = stretto.contract %q, %w
// CHECK-NEXT:    stretto.yield %[[QUERY]]

// CHECK-LABEL: stretto.variant @mapped_features_2(%z: !F_per_G {stretto.gate}) -> !F_per_G options(tau = 1.600000e+01)
// CHECK-NEXT:    %[[GATE:.+]] = stretto.logsigmoid %z
// CHECK-NEXT:    %[[TAU:.+]] = stretto.option "tau"
// CHECK-NEXT:    %[[LOG:.+]] = arith.divf %[[GATE]], %[[TAU]]
// CHECK-NEXT:    stretto.yield %[[LOG]]

// CHECK-LABEL: stretto.variant @mapped_rest(%v: !V, %feature_0: !F, %feature_1: !F, %feature_2: !F_per_G) -> !V
// CHECK-SAME:    options(scale = 2.000000e+00)
// CHECK-NEXT:    %[[S:.+]] = stretto.state "S"
// CHECK-NEXT:    %[[DECAYED:.+]] = stretto.decay %[[S]] log %feature_2 along "F"
// CHECK-NEXT:    %[[WRITTEN:.+]] = stretto.write %[[DECAYED]], %feature_0, %v
// CHECK-NEXT:    %[[O:.+]] = stretto.read %[[WRITTEN]], %feature_1 along "F"
// CHECK-NEXT:    %[[SCALE:.+]] = stretto.option "scale"
// CHECK-NEXT:    %[[SCALED:.+]] = arith.mulf %[[O]], %[[SCALE]]
// CHECK-NEXT:    stretto.yield %[[SCALED]]

stretto.variant @mapped(%q: !K, %k: !K, %v: !V, %z: !F_per_G, %conv: !taps, %w: !W) -> !V
    options(tau = 16.0, scale = 2.0) attributes {group = {H = 1 : i64, G = 2 : i64}} {
  %gate = stretto.logsigmoid %z : !F_per_G
  %tau = stretto.option "tau" : !F_per_G
  %log = arith.divf %gate, %tau : !F_per_G
  %convolved = stretto.conv %k, %conv : !K, !taps
  %product = stretto.contract %convolved, %w : !K, !W -> !F
  %key = stretto.softmax %product : !F
  %query = stretto.contract %q, %w : !K, !W -> !F
  %0 = stretto.state "S" : !S
  %1 = stretto.decay %0 log %log along "F" : !S, !F_per_G
  %2 = stretto.write %1, %key, %v : !S, !F, !V
  %o = stretto.read %2, %query along "F" : !S, !F -> !V
  %scale = stretto.option "scale" : !V
  %scaled = arith.mulf %o, %scale : !V
  stretto.yield %scaled : !V
}

// -----

// What a matrix makes of a read depends on the state, and gates alone are no features.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!W = tensor<16x16xf64, #stretto.param<[V, V]>>
!S = !stretto.state<K : 16, V : 16>

// CHECK-LABEL: stretto.variant @projected(
// CHECK-NOT:   stretto.variant
stretto.variant @projected(%q: !K, %k: !K, %v: !V, %z: !K, %w: !W) -> !V attributes {group = {H = 1 : i64}} {
  %log = stretto.logsigmoid %z : !K
  %0 = stretto.state "S" : !S
  %1 = stretto.decay %0 log %log along "K" : !S, !K
  %2 = stretto.write %1, %k, %v : !S, !K, !V
  %o = stretto.read %2, %q along "K" : !S, !K -> !V
  %p = stretto.contract %o, %w : !V, !W -> !V
  stretto.yield %p : !V
}

// -----

// Windows hold rows of inputs.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!W = tensor<16x16xf64, #stretto.param<[K, K]>>
!n = tensor<f64, #stretto.row<()>>
!n_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 16, V : 16>

// CHECK-LABEL: stretto.variant @windowed(
// CHECK-NOT:   stretto.variant
stretto.variant @windowed(%q: !K, %k: !K, %v: !V, %w: !W) -> !V attributes {group = {H = 1 : i64}} {
  %first = stretto.constant 0.0 : !n_per_1
  %key = stretto.contract %k, %w : !K, !W -> !K
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %key, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" : !S, !K -> !V
  %weights, %sum = stretto.lookback sum from %first {
    %k_then = stretto.past %k : !K
    %v_then = stretto.past %v : !V
    %score = stretto.dot %q, %k_then : !K -> !n
    stretto.yield %score, %v_then : !n, !V
  } : !n, !V
  %all = arith.addf %o, %sum : !V
  stretto.yield %all : !V
}
