// RUN: stretto-opt %s --split-input-file --stretto-split-states | FileCheck %s

// Values and their normaliser: each part is decayed and written like the whole and remains its columns of the entry.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 9>

// CHECK-DAG: !state_K_by_V = !stretto.state<K : 16, V : 8>
// CHECK-DAG: !state_K_by_1 = !stretto.state<K : 16, 1>
// CHECK-LABEL: stretto.variant @values_and_normaliser(
// CHECK:         %[[ONE:.*]] = arith.constant dense<1.0{{.*}}> : !number
// CHECK-NEXT:    %[[S0:.*]] = stretto.state "S" of "S" column 0 columns 9 : !state_K_by_V
// CHECK-NEXT:    %[[Z0:.*]] = stretto.state "S.8" of "S" column 8 columns 9 : !state_K_by_1
// CHECK-NEXT:    %[[S1:.*]] = stretto.decay %[[S0]] log %g along "K" : !state_K_by_V, !K
// CHECK-NEXT:    %[[Z1:.*]] = stretto.decay %[[Z0]] log %g along "K" : !state_K_by_1, !K
// CHECK:         %[[S2:.*]] = stretto.write %[[S1]], %k, %v : !state_K_by_V, !K, !V
// CHECK-NEXT:    %[[Z2:.*]] = stretto.write %[[Z1]], %k, %[[ONE]] : !state_K_by_1, !K, !number
// CHECK-DAG:     %[[NUM:.*]] = stretto.read %[[S2]], %q along "K" : !state_K_by_V, !K -> !V
// CHECK-DAG:     %[[DEN:.*]] = stretto.read %[[Z2]], %q along "K" : !state_K_by_1, !K -> !number
// CHECK-NEXT:    stretto.yield %[[NUM]], %[[DEN]]
stretto.variant @values_and_normaliser(%q: !K, %k: !K, %v: !V, %g: !K) -> (!V, !number) {
  %one = arith.constant dense<1.0> : !number
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g along "K" : !S, !K
  %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
  %S2 = stretto.write %S1, %k, %v1 : !S, !K, !V_plus_1
  %r = stretto.read %S2, %q along "K" : !S, !K -> !V_plus_1
  %num = stretto.slice %r from "0" : !V_plus_1 -> !V
  %den = stretto.slice %r from "V" : !V_plus_1 -> !number
  stretto.yield %num, %den : !V, !number
}

// -----

// A read that is used as a whole keeps the state whole.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 9>

// CHECK-LABEL: stretto.variant @read_as_a_whole(
// CHECK:         stretto.state "S" : !state_K_by_V_plus_1
// CHECK-NOT:     stretto.state
// CHECK:         stretto.read {{.*}} -> !V_plus_1
stretto.variant @read_as_a_whole(%q: !K, %k: !K, %v: !V) -> !V_plus_1 {
  %one = arith.constant dense<1.0> : !number
  %S0 = stretto.state "S" : !S
  %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
  %S1 = stretto.write %S0, %k, %v1 : !S, !K, !V_plus_1
  %r = stretto.read %S1, %q along "K" : !S, !K -> !V_plus_1
  stretto.yield %r : !V_plus_1
}

// -----

// So does a decay of the columns, for which the parts would need a part of the decay each.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 9>

// CHECK-LABEL: stretto.variant @decays_columns(
// CHECK:         stretto.state "S" : !state_K_by_V_plus_1
// CHECK-NOT:     stretto.state
stretto.variant @decays_columns(%q: !K, %k: !K, %v: !V, %g: !V_plus_1) -> !V {
  %one = arith.constant dense<1.0> : !number
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g along "V + 1" : !S, !V_plus_1
  %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
  %S2 = stretto.write %S1, %k, %v1 : !S, !K, !V_plus_1
  %r = stretto.read %S2, %q along "K" : !S, !K -> !V_plus_1
  %num = stretto.slice %r from "0" : !V_plus_1 -> !V
  stretto.yield %num : !V
}

// -----

// A gradient is divided like what it is the gradient of: what is read along the columns with a row put together from the
// same parts is the sum of what the parts give, and so is a pair of two states.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 9>
!dS = !stretto.state<K : 16, "V + 1" : 9, reverse>

// CHECK:       {{^// [-]+$}}
// CHECK-LABEL: stretto.variant @gradient(
// CHECK-DAG:     %[[S2:.*]] = stretto.write %{{.*}}, %k, %v
// CHECK-DAG:     %[[Z2:.*]] = stretto.write %{{.*}}, %k, %[[ONE:.*]] :
// CHECK-DAG:     %[[NUM:.*]] = stretto.read %[[S2]], %d_num along "V"
// CHECK-DAG:     %[[DEN:.*]] = stretto.read %[[Z2]], %d_den along "1"
// CHECK:         %[[DQ:.*]] = arith.addf %[[NUM]], %[[DEN]] : !K
// CHECK-DAG:     %[[PS:.*]] = stretto.pair %{{.*}}, %{{.*}} along "K" : !state_K_by_V, !reverse_state_K_by_V -> !K
// CHECK-DAG:     %[[PZ:.*]] = stretto.pair %{{.*}}, %{{.*}} along "K" : !state_K_by_1, !reverse_state_K_by_1 -> !K
// CHECK:         %[[DG:.*]] = arith.addf %[[PS]], %[[PZ]] : !K
// CHECK:         stretto.yield %[[DQ]], %[[DG]]
stretto.variant @gradient(%q: !K, %k: !K, %v: !V, %g: !K, %d_num: !V, %d_den: !number) -> (!K, !K) attributes {gradient} {
  %one = arith.constant dense<1.0> : !number
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g along "K" : !S, !K
  %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
  %S2 = stretto.write %S1, %k, %v1 : !S, !K, !V_plus_1
  %d_r = stretto.concat %d_num, %d_den : !V, !number -> !V_plus_1
  %d_q = stretto.read %S2, %d_r along "V + 1" : !S, !V_plus_1 -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_r : !dS, !K, !V_plus_1
  %d_g = stretto.pair %S1, %dS1 along "K" : !S, !dS -> !K
  %dS2 = stretto.decay %dS1 log %g along "K" : !dS, !K
  stretto.yield %d_q, %d_g : !K, !K
}

// -----

// What is read for each head and summed over those that share values is taken apart before it is summed.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_per_G = tensor<8xf64, #stretto.row<V, G>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!V_plus_1_per_G = tensor<9xf64, #stretto.row<"V + 1", G>>
!number = tensor<f64, #stretto.row<()>>
!dS = !stretto.state<K : 16, "V + 1" : 9, reverse>

// CHECK:       {{^// [-]+$}}
// CHECK-LABEL: stretto.variant @shared_values(
// CHECK:         %[[READ:.*]] = stretto.read %{{.*}}, %k along "K" : !reverse_state_K_by_V, !K -> !V
// CHECK:         %[[SUM:.*]] = stretto.group_sum %[[READ]] : !V to !V_per_G
// CHECK:         stretto.yield %[[SUM]]
stretto.variant @shared_values(%v: !V_per_G, %q: !K, %k: !K, %d_num: !V, %d_den: !number) -> !V_per_G attributes {gradient} {
  %d_r = stretto.concat %d_num, %d_den : !V, !number -> !V_plus_1
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_r : !dS, !K, !V_plus_1
  %r = stretto.read %dS1, %k along "K" : !dS, !K -> !V_plus_1
  %sum = stretto.group_sum %r : !V_plus_1 to !V_plus_1_per_G
  %d_v = stretto.slice %sum from "0" : !V_plus_1_per_G -> !V_per_G
  stretto.yield %d_v : !V_per_G
}

// -----

// Reads at an earlier time are divided, too.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!number = tensor<f64, #stretto.row<()>>
!time = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 16, "V + 1" : 9>

// CHECK-LABEL: stretto.variant @earlier(
// CHECK-DAG:     %[[S:.*]] = stretto.write %{{.*}}, %k, %v : !state_K_by_V
// CHECK-DAG:     %[[Z:.*]] = stretto.write %{{.*}}, %k, %{{.*}} : !state_K_by_1
// CHECK-DAG:     stretto.read %[[S]], %q along "K" at %[[AT:.*]] : !state_K_by_V, !K -> !V
// CHECK-DAG:     stretto.read %[[Z]], %q along "K" at %[[AT]] : !state_K_by_1, !K -> !number
stretto.variant @earlier(%q: !K, %k: !K, %v: !V) -> (!V, !number) {
  %one = arith.constant dense<1.0> : !number
  %t = stretto.position
  %before = arith.constant dense<4.0> : !time
  %at = arith.subf %t, %before : !time
  %S0 = stretto.state "S" : !S
  %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
  %S1 = stretto.write %S0, %k, %v1 : !S, !K, !V_plus_1
  %r = stretto.read %S1, %q along "K" at %at : !S, !K -> !V_plus_1
  %num = stretto.slice %r from "0" : !V_plus_1 -> !V
  %den = stretto.slice %r from "V" : !V_plus_1 -> !number
  stretto.yield %num, %den : !V, !number
}

// -----

// Along the columns that is a sum of what the parts give, and a write at an earlier time is one to each part.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!number = tensor<f64, #stretto.row<()>>
!time = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 16, "V + 1" : 9>
!D = !stretto.state<K : 16, "V + 1" : 9, reverse>

// CHECK-LABEL: stretto.variant @earlier_along_columns(
// CHECK-DAG:     %[[AT:.*]] = arith.subf
// CHECK-DAG:     %[[S:.*]] = stretto.write %{{.*}}, %k, %v : !state_K_by_V
// CHECK-DAG:     %[[Z:.*]] = stretto.write %{{.*}}, %k, %[[ONE:.*]] : !state_K_by_1
// CHECK-DAG:     %[[D:.*]] = stretto.write %{{.*}}, %k, %v at %[[AT]] : !reverse_state_K_by_V
// CHECK-DAG:     %[[DZ:.*]] = stretto.write %{{.*}}, %k, %[[ONE]] at %[[AT]] : !reverse_state_K_by_1
// CHECK-DAG:     %[[R:.*]] = stretto.read %[[S]], %v along "V" at %[[AT]] : !state_K_by_V, !V -> !K
// CHECK-DAG:     %[[RZ:.*]] = stretto.read %[[Z]], %[[ONE]] along "1" at %[[AT]] : !state_K_by_1, !number -> !K
// CHECK-DAG:     arith.addf %[[R]], %[[RZ]]
// CHECK-DAG:     stretto.read %[[D]], %v along "V" : !reverse_state_K_by_V, !V -> !K
// CHECK-DAG:     stretto.read %[[DZ]], %[[ONE]] along "1" : !reverse_state_K_by_1, !number -> !K
stretto.variant @earlier_along_columns(%k: !K, %l: !K, %v: !V) -> (!K, !K) attributes {gradient} {
  %one = arith.constant dense<1.0> : !number
  %t = stretto.position
  %before = arith.constant dense<4.0> : !time
  %at = arith.subf %t, %before : !time
  %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v1 : !S, !K, !V_plus_1
  %r = stretto.read %S1, %v1 along "V + 1" at %at : !S, !V_plus_1 -> !K
  %D0 = stretto.state "d_S" : !D
  %D1 = stretto.write %D0, %k, %v1 at %at : !D, !K, !V_plus_1
  %d = stretto.read %D1, %v1 along "V + 1" : !D, !V_plus_1 -> !K
  stretto.yield %r, %d : !K, !K
}

// -----

// A slice of the sum of two reads is the sum of theirs: so both states are divided.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 9>

// CHECK-LABEL: stretto.variant @sum_of_reads(
// CHECK-DAG:     %[[A:.*]] = stretto.write %{{.*}}, %k, %v : !state_K_by_V
// CHECK-DAG:     %[[B:.*]] = stretto.write %{{.*}}, %l, %v : !state_K_by_V
// CHECK-DAG:     %[[RA:.*]] = stretto.read %[[A]], %q along "K" : !state_K_by_V, !K -> !V
// CHECK-DAG:     %[[RB:.*]] = stretto.read %[[B]], %q along "K" : !state_K_by_V, !K -> !V
// CHECK-DAG:     arith.addf %[[RA]], %[[RB]] : !V
// CHECK-NOT:     stretto.slice
stretto.variant @sum_of_reads(%q: !K, %k: !K, %l: !K, %v: !V) -> (!V, !number) {
  %one = arith.constant dense<1.0> : !number
  %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
  %A0 = stretto.state "A" : !S
  %A1 = stretto.write %A0, %k, %v1 : !S, !K, !V_plus_1
  %B0 = stretto.state "B" : !S
  %B1 = stretto.write %B0, %l, %v1 : !S, !K, !V_plus_1
  %a = stretto.read %A1, %q along "K" : !S, !K -> !V_plus_1
  %b = stretto.read %B1, %q along "K" : !S, !K -> !V_plus_1
  %r = arith.addf %a, %b : !V_plus_1
  %num = stretto.slice %r from "0" : !V_plus_1 -> !V
  %den = stretto.slice %r from "V" : !V_plus_1 -> !number
  stretto.yield %num, %den : !V, !number
}

// -----

// Sums of one sum would have as many slices as there are ways to its reads: they are left as they are.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<8xf64, #stretto.row<V>>
!V_plus_1 = tensor<9xf64, #stretto.row<"V + 1">>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 9>

// CHECK-LABEL: stretto.variant @sums_of_one_sum(
// CHECK:         stretto.state "S" : !state_K_by_V_plus_1
// CHECK-COUNT-64: arith.addf
// CHECK-NOT:     arith.addf
stretto.variant @sums_of_one_sum(%q: !K, %k: !K, %v: !V) -> !V {
  %one = arith.constant dense<1.0> : !number
  %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v1 : !S, !K, !V_plus_1
  %r0 = stretto.read %S1, %q along "K" : !S, !K -> !V_plus_1
  %r1 = arith.addf %r0, %r0 : !V_plus_1
  %r2 = arith.addf %r1, %r1 : !V_plus_1
  %r3 = arith.addf %r2, %r2 : !V_plus_1
  %r4 = arith.addf %r3, %r3 : !V_plus_1
  %r5 = arith.addf %r4, %r4 : !V_plus_1
  %r6 = arith.addf %r5, %r5 : !V_plus_1
  %r7 = arith.addf %r6, %r6 : !V_plus_1
  %r8 = arith.addf %r7, %r7 : !V_plus_1
  %r9 = arith.addf %r8, %r8 : !V_plus_1
  %r10 = arith.addf %r9, %r9 : !V_plus_1
  %r11 = arith.addf %r10, %r10 : !V_plus_1
  %r12 = arith.addf %r11, %r11 : !V_plus_1
  %r13 = arith.addf %r12, %r12 : !V_plus_1
  %r14 = arith.addf %r13, %r13 : !V_plus_1
  %r15 = arith.addf %r14, %r14 : !V_plus_1
  %r16 = arith.addf %r15, %r15 : !V_plus_1
  %r17 = arith.addf %r16, %r16 : !V_plus_1
  %r18 = arith.addf %r17, %r17 : !V_plus_1
  %r19 = arith.addf %r18, %r18 : !V_plus_1
  %r20 = arith.addf %r19, %r19 : !V_plus_1
  %r21 = arith.addf %r20, %r20 : !V_plus_1
  %r22 = arith.addf %r21, %r21 : !V_plus_1
  %r23 = arith.addf %r22, %r22 : !V_plus_1
  %r24 = arith.addf %r23, %r23 : !V_plus_1
  %r25 = arith.addf %r24, %r24 : !V_plus_1
  %r26 = arith.addf %r25, %r25 : !V_plus_1
  %r27 = arith.addf %r26, %r26 : !V_plus_1
  %r28 = arith.addf %r27, %r27 : !V_plus_1
  %r29 = arith.addf %r28, %r28 : !V_plus_1
  %r30 = arith.addf %r29, %r29 : !V_plus_1
  %r31 = arith.addf %r30, %r30 : !V_plus_1
  %r32 = arith.addf %r31, %r31 : !V_plus_1
  %r33 = arith.addf %r32, %r32 : !V_plus_1
  %r34 = arith.addf %r33, %r33 : !V_plus_1
  %r35 = arith.addf %r34, %r34 : !V_plus_1
  %r36 = arith.addf %r35, %r35 : !V_plus_1
  %r37 = arith.addf %r36, %r36 : !V_plus_1
  %r38 = arith.addf %r37, %r37 : !V_plus_1
  %r39 = arith.addf %r38, %r38 : !V_plus_1
  %r40 = arith.addf %r39, %r39 : !V_plus_1
  %r41 = arith.addf %r40, %r40 : !V_plus_1
  %r42 = arith.addf %r41, %r41 : !V_plus_1
  %r43 = arith.addf %r42, %r42 : !V_plus_1
  %r44 = arith.addf %r43, %r43 : !V_plus_1
  %r45 = arith.addf %r44, %r44 : !V_plus_1
  %r46 = arith.addf %r45, %r45 : !V_plus_1
  %r47 = arith.addf %r46, %r46 : !V_plus_1
  %r48 = arith.addf %r47, %r47 : !V_plus_1
  %r49 = arith.addf %r48, %r48 : !V_plus_1
  %r50 = arith.addf %r49, %r49 : !V_plus_1
  %r51 = arith.addf %r50, %r50 : !V_plus_1
  %r52 = arith.addf %r51, %r51 : !V_plus_1
  %r53 = arith.addf %r52, %r52 : !V_plus_1
  %r54 = arith.addf %r53, %r53 : !V_plus_1
  %r55 = arith.addf %r54, %r54 : !V_plus_1
  %r56 = arith.addf %r55, %r55 : !V_plus_1
  %r57 = arith.addf %r56, %r56 : !V_plus_1
  %r58 = arith.addf %r57, %r57 : !V_plus_1
  %r59 = arith.addf %r58, %r58 : !V_plus_1
  %r60 = arith.addf %r59, %r59 : !V_plus_1
  %r61 = arith.addf %r60, %r60 : !V_plus_1
  %r62 = arith.addf %r61, %r61 : !V_plus_1
  %r63 = arith.addf %r62, %r62 : !V_plus_1
  %r64 = arith.addf %r63, %r63 : !V_plus_1
  %o = stretto.slice %r64 from "0" : !V_plus_1 -> !V
  stretto.yield %o : !V
}
