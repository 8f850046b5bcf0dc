// RUN: stretto-opt %s --stretto-split-features="together=true" | FileCheck %s
// RUN: stretto-opt %s --stretto-split-features | FileCheck %s --check-prefix=APART

// Features have the same numbers whether they are found together or apart: a call finds them together, and keeps them
// for a gradient that goes back through one part after the other. Of the three products here the first and the last
// are of one convolution, and so of one part, which comes behind the other.

!K = tensor<16xf64, #stretto.row<K>>
!W = tensor<16x16xf64, #stretto.param<[K, K]>>
!taps = tensor<16x4xf64, #stretto.param<[K, 4]>>
!V = tensor<16xf64, #stretto.row<V>>
!U = tensor<16x16xf64, #stretto.param<[V, V]>>
!S = !stretto.state<K : 16, V : 16>

// CHECK-LABEL: stretto.variant @thrice_features_0(
// CHECK-DAG:     %[[CONVOLVED:.+]] = stretto.conv %k, %conv
// CHECK-DAG:     %[[FIRST:.+]] = stretto.contract %[[CONVOLVED]], %a
// CHECK-DAG:     %[[SECOND:.+]] = stretto.contract %v, %u
// CHECK-DAG:     %[[THIRD:.+]] = stretto.contract %[[CONVOLVED]], %b
// CHECK:         stretto.yield %[[SECOND]], %[[FIRST]], %[[THIRD]]
// CHECK-LABEL: stretto.variant @thrice_rest(
// CHECK:         stretto.write %{{.*}}, %feature_1, %feature_0
// CHECK:         stretto.read %{{.*}}, %feature_2

// APART-LABEL: stretto.variant @thrice_features_0(%v
// APART-LABEL: stretto.variant @thrice_features_1(%k
// APART:         stretto.yield %{{.*}}, %{{.*}} : !K, !K
// APART-LABEL: stretto.variant @thrice_rest(
// APART:         stretto.write %{{.*}}, %feature_1, %feature_0
// APART:         stretto.read %{{.*}}, %feature_2

stretto.variant @thrice(%k: !K, %v: !V, %conv: !taps, %a: !W, %b: !W, %u: !U) -> !V attributes {group = {H = 1 : i64}} {
  %convolved = stretto.conv %k, %conv : !K, !taps
  %first = stretto.contract %convolved, %a : !K, !W -> !K
  %second = stretto.contract %v, %u : !V, !U -> !V
  %third = stretto.contract %convolved, %b : !K, !W -> !K
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %first, %second : !S, !K, !V
  %o = stretto.read %1, %third along "K" : !S, !K -> !V
  stretto.yield %o : !V
}
