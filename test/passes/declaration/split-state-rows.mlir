// RUN: stretto-opt %s --split-input-file --pass-pipeline='builtin.module(stretto.variant(stretto-split-states{rows=true}))' | FileCheck %s
// RUN: stretto-opt %s --split-input-file --stretto-split-states | FileCheck %s --check-prefix=WHOLE

// Features that are put together: before the wide piece, which would begin in the middle of a fragment, rows are
// divided; the narrow ones stay together. Reads along the columns are taken apart at the same place, or before it.

!number = tensor<f64, #stretto.row<()>>
!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!KK = tensor<256xf64, #stretto.row<"K*K">>
!F = tensor<273xf64, #stretto.row<"1 + K + K*K">>
!S = !stretto.state<"1 + K + K*K" : 273, V : 8>

// CHECK-DAG: !state_K_plus_1_by_V = !stretto.state<"K + 1" : 17, V : 8>
// CHECK-DAG: !state_K_times_K_by_V = !stretto.state<"K*K" : 256, V : 8>
// CHECK-LABEL: stretto.variant @features(
// CHECK:         %[[LOW0:.*]] = stretto.state "S" of "S" column 0 columns 8 row 0 rows 273 : !state_K_plus_1_by_V
// CHECK-NEXT:    %[[HIGH0:.*]] = stretto.state "S.17" of "S" column 0 columns 8 row 17 rows 273 : !state_K_times_K_by_V
// CHECK-NEXT:    %[[LOW1:.*]] = stretto.decay %[[LOW0]] log %g : !state_K_plus_1_by_V
// CHECK-NEXT:    %[[HIGH1:.*]] = stretto.decay %[[HIGH0]] log %g : !state_K_times_K_by_V
// CHECK:         %[[K:.*]] = stretto.concat %[[ONE:.*]], %k : !number, !K -> !K_plus_1
// CHECK-NEXT:    %[[LOW:.*]] = stretto.write %[[LOW1]], %[[K]], %v : !state_K_plus_1_by_V
// CHECK-NEXT:    %[[HIGH:.*]] = stretto.write %[[HIGH1]], %kk, %v : !state_K_times_K_by_V
// CHECK:         %[[Q:.*]] = stretto.concat %[[ONE]], %q : !number, !K -> !K_plus_1
// CHECK-NEXT:    %[[OLOW:.*]] = stretto.read %[[LOW]], %[[Q]] along "K + 1" : {{.*}} -> !V
// CHECK-NEXT:    %[[OHIGH:.*]] = stretto.read %[[HIGH]], %qq along "K*K" : {{.*}} -> !V
// CHECK-NEXT:    %[[O:.*]] = arith.addf %[[OLOW]], %[[OHIGH]]
// CHECK-DAG:     %[[DLOW:.*]] = stretto.read %[[LOW]], %v along "V" : {{.*}} -> !K_plus_1
// CHECK-DAG:     %[[DK:.*]] = stretto.slice %[[DLOW]] from "1" : !K_plus_1 -> !K
// CHECK-DAG:     %[[DKK:.*]] = stretto.read %[[HIGH]], %v along "V" : {{.*}} -> !K_times_K
// CHECK:         stretto.yield %[[O]], %[[DK]], %[[DKK]]
// WHOLE-LABEL: stretto.variant @features(
// WHOLE:         stretto.state "S" : !state_K_times_K_plus_K_plus_1_by_V
stretto.variant @features(%q: !K, %qq: !KK, %k: !K, %kk: !KK, %v: !V, %g: !number) -> (!V, !K, !KK) {
  %one = arith.constant dense<1.0> : !number
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g : !S, !number
  %fk = stretto.concat %one, %k, %kk : !number, !K, !KK -> !F
  %S2 = stretto.write %S1, %fk, %v : !S, !F, !V
  %fq = stretto.concat %one, %q, %qq : !number, !K, !KK -> !F
  %o = stretto.read %S2, %fq along "K*K + K + 1" : !S, !F -> !V
  %d = stretto.read %S2, %v along "V" : !S, !V -> !F
  %dk = stretto.slice %d from "1" : !F -> !K
  %dkk = stretto.slice %d from "1 + K" : !F -> !KK
  stretto.yield %o, %dk, %dkk : !V, !K, !KK
}

// -----

// Halves of which each begins with a fragment stay together.

!V = tensor<8xf64, #stretto.row<V>>
!F = tensor<64xf64, #stretto.row<F>>
!D = tensor<128xf64, #stretto.row<"2*F">>
!S = !stretto.state<"2*F" : 128, V : 8>

// CHECK-LABEL: stretto.variant @halves(
// CHECK:         stretto.state "S" : !state_2_times_F_by_V
// CHECK-NOT:     stretto.state "
stretto.variant @halves(%q: !D, %a: !F, %b: !F, %v: !V) -> !V {
  %S0 = stretto.state "S" : !S
  %k = stretto.concat %a, %b : !F, !F -> !D
  %S1 = stretto.write %S0, %k, %v : !S, !D, !V
  %p = stretto.concat %b, %a : !F, !F -> !D
  %o = stretto.read %S1, %p along "2*F" : !S, !D -> !V
  stretto.yield %o : !V
}

// -----

// Rows that decay one by one are not divided, as their amounts are not put together.

!number = tensor<f64, #stretto.row<()>>
!V = tensor<8xf64, #stretto.row<V>>
!F = tensor<64xf64, #stretto.row<F>>
!D = tensor<65xf64, #stretto.row<"1 + F">>
!S = !stretto.state<"1 + F" : 65, V : 8>

// CHECK-LABEL: stretto.variant @decays(
// CHECK:         stretto.state "S" : !state_F_plus_1_by_V
// CHECK-NOT:     stretto.state "
stretto.variant @decays(%q: !F, %k: !F, %v: !V, %g: !D) -> !V {
  %one = arith.constant dense<1.0> : !number
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g along "F + 1" : !S, !D
  %fk = stretto.concat %one, %k : !number, !F -> !D
  %S2 = stretto.write %S1, %fk, %v : !S, !D, !V
  %fq = stretto.concat %one, %q : !number, !F -> !D
  %o = stretto.read %S2, %fq along "F + 1" : !S, !D -> !V
  stretto.yield %o : !V
}

// -----

// A read that is used as a whole keeps the rows together.

!number = tensor<f64, #stretto.row<()>>
!V = tensor<8xf64, #stretto.row<V>>
!F = tensor<64xf64, #stretto.row<F>>
!D = tensor<65xf64, #stretto.row<"1 + F">>
!S = !stretto.state<"1 + F" : 65, V : 8>

// CHECK-LABEL: stretto.variant @read_as_a_whole(
// CHECK:         stretto.state "S" : !state_F_plus_1_by_V
// CHECK-NOT:     stretto.state "
stretto.variant @read_as_a_whole(%k: !F, %v: !V) -> !D {
  %one = arith.constant dense<1.0> : !number
  %S0 = stretto.state "S" : !S
  %fk = stretto.concat %one, %k : !number, !F -> !D
  %S1 = stretto.write %S0, %fk, %v : !S, !D, !V
  %d = stretto.read %S1, %v along "V" : !S, !V -> !D
  stretto.yield %d : !D
}
