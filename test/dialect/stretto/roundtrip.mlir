// Every operation, type and attribute survives text, generic text and bytecode.
//
// RUN: stretto-opt %s | FileCheck %s
// RUN: stretto-opt %s | stretto-opt | FileCheck %s
// RUN: stretto-opt --mlir-print-op-generic %s | stretto-opt | FileCheck %s
// RUN: stretto-opt --emit-bytecode %s | stretto-opt | FileCheck %s
// RUN: stretto-opt --verify-roundtrip %s | FileCheck %s

// Types are printed by the names a paper would use.
// CHECK-DAG: !D = tensor<?xf64, #stretto.row<D>>
// CHECK-DAG: !K_per_G = tensor<?xf64, #stretto.row<K, G>>
// CHECK-DAG: !number = tensor<f64, #stretto.row<()>>
// CHECK-DAG: !number_per_H_and_W = tensor<f64, #stretto.row<(), "H|W">>
// CHECK-DAG: !condition_number = tensor<i1, #stretto.row<()>>
// CHECK-DAG: !row_4 = tensor<4xf64, #stretto.row<4>>
// CHECK-DAG: !row_1_per_1 = tensor<1xf64, #stretto.row<1, 1>>
// CHECK-DAG: !K_times_K_plus_K_plus_1 = tensor<?xf64, #stretto.row<"K*K + K + 1">>
// CHECK-DAG: !D_over_2 = tensor<?xf64, #stretto.row<"D/2">>
// CHECK-DAG: !minus_F_plus_64 = tensor<?xf64, #stretto.row<"-F + 64">>
// CHECK-DAG: !reverse_per_reverse = tensor<?xf64, #stretto.row<"reverse", "reverse">>
// CHECK-DAG: !parameter_D_F = tensor<?x?xf64, #stretto.param<[D, F]>>
// CHECK-DAG: !parameter_per_G = tensor<f64, #stretto.param<[], G>>
// CHECK-DAG: !state_K_by_V_per_G = !stretto.state<K, V, G>
// CHECK-DAG: !reverse_state_K_by_V = !stretto.state<K, V, reverse>
// CHECK-DAG: !state_K_by_V_plus_1_per_W = !stretto.state<K : 128, "V + 1" : 129, W>

// CHECK-LABEL: stretto.variant @types(
// CHECK-SAME: %small: !row_4
// CHECK-SAME: %W: !parameter_D_F {stretto.optional}
stretto.variant @types(
    %x: tensor<?xf64, #stretto.row<D>>, %y: tensor<?xf64, #stretto.row<"D">>, %small: tensor<4xf64, #stretto.row<4>>,
    %one: tensor<1xf64, #stretto.row<"1", "1">>, %sum: tensor<?xf64, #stretto.row<"1 + K + K*K", H>>,
    %half: tensor<?xf64, #stretto.row<"D / 2">>, %less: tensor<?xf64, #stretto.row<"64 - F">>,
    %kg: tensor<?xf64, #stretto.row<K, G>>, %odd: tensor<?xf64, #stretto.row<"reverse", "reverse">>,
    %condition: tensor<i1, #stretto.row<()>>, %union: tensor<f64, #stretto.row<(), "H|W">>,
    %W: tensor<?x?xf64, #stretto.param<[D, F]>> {stretto.optional}, %b: tensor<f64, #stretto.param<[], G>>,
    %known: tensor<128xf64, #stretto.row<Dk>>) -> (tensor<?xf64, #stretto.row<D>>, tensor<4xf64, #stretto.row<4>>) {
  %s0 = stretto.state "S" : !stretto.state<K, V, G>
  %s1 = stretto.state "R" : !stretto.state<K, V, reverse>
  %s2 = stretto.state "sized" : !stretto.state<K : 128, "1 + V" : 129, W>
  %s3 = stretto.state "elementwise" : !stretto.state<1, 1>
  %t = stretto.position
  stretto.yield %x, %small : tensor<?xf64, #stretto.row<D>>, tensor<4xf64, #stretto.row<4>>
}

// CHECK-LABEL: stretto.variant @nothing() -> () {
// CHECK-NEXT: stretto.yield
stretto.variant @nothing() -> () {
  stretto.yield
}

!N = tensor<?xf64, #stretto.row<N>>
!number = tensor<f64, #stretto.row<()>>

// CHECK-LABEL: stretto.variant @settings(
// CHECK-SAME: options(beta = 1.{{0*}}e+00, big = 0x7FF0000000000000 : f64, "choose it" = true, decay = #stretto.choice<"none" of ["none", "abs", "signed"]>
// CHECK-SAME: modes = 4.{{0*}}e+00, scale = "K**-0.5 * beta")
// CHECK-SAME: axes(N = "2*modes + 1")
// CHECK-SAME: attributes {note = "kept", summary = "Options and axes."}
stretto.variant @settings(%k: tensor<?xf64, #stretto.row<K>>, %D: tensor<f64, #stretto.param<[]>> {stretto.optional})
    -> !N options(modes = 4.0, scale = "K**-0.5 * beta", beta = 1.0, "choose it" = true, big = 0x7FF0000000000000 : f64,
    decay = #stretto.choice<"none" of ["none", "abs", "signed"]>) axes(N = "2*modes + 1")
    attributes {summary = "Options and axes.", note = "kept"} {
  // CHECK-NEXT: stretto.option "scale" : f64
  // CHECK-NEXT: stretto.option "modes" : !N
  // CHECK-NEXT: stretto.option "choose it" : i1
  // CHECK-NEXT: stretto.option_is "decay" "signed"
  // CHECK-NEXT: stretto.present %D : !parameter
  // CHECK-NEXT: stretto.size "N/2" : f64
  // CHECK-NEXT: stretto.size "N" : !N
  %scale = stretto.option "scale" : f64
  %modes = stretto.option "modes" : !N
  %condition = stretto.option "choose it" : i1
  %signed = stretto.option_is "decay" "signed"
  %has = stretto.present %D : tensor<f64, #stretto.param<[]>>
  %half = stretto.size "N/2" : f64
  %n = stretto.size "N" : !N
  // CHECK: scf.if %{{.*}} -> (!N) {
  %chosen = scf.if %has -> !N {
    %d = stretto.broadcast %D : tensor<f64, #stretto.param<[]>> to !N
    scf.yield %d : !N
  } else {
    scf.yield %modes : !N
  }
  stretto.yield %chosen : !N
}

!D = tensor<?xf64, #stretto.row<D>>
!half = tensor<?xf64, #stretto.row<"D/2">>
!square = tensor<?xf64, #stretto.row<"D*F">>
!F = tensor<?xf64, #stretto.row<F>>

// CHECK-LABEL: stretto.variant @row_maps(
stretto.variant @row_maps(%x: !D, %y: !D, %f: !F, %W: tensor<?x?xf64, #stretto.param<[D, F]>>, %c: tensor<i1, #stretto.row<()>>)
    -> (!D, !number) {
  // CHECK-NEXT: stretto.constant 9.9{{.*}}E-13 : !D
  // CHECK-NEXT: stretto.constant 0xFFF0000000000000 : !number
  // CHECK-NEXT: stretto.broadcast %{{.*}} : !number to !D
  // CHECK-NEXT: stretto.broadcast %c : !condition_number to !condition_D
  // CHECK-NEXT: stretto.reduce sum %x : !D -> !number
  // CHECK-NEXT: stretto.reduce mean %x : !D -> !number
  // CHECK-NEXT: stretto.reduce max %x : !D -> !number
  // CHECK-NEXT: stretto.softmax %x : !D
  // CHECK-NEXT: stretto.logsigmoid %x : !D
  // CHECK-NEXT: stretto.stop_gradient %x : !D
  // CHECK-NEXT: stretto.slice %x from "D/2" : !D -> !D_over_2
  // CHECK-NEXT: stretto.slice %x from "0" : !D -> !number
  // CHECK-NEXT: stretto.concat %{{.*}}, %{{.*}} : !D_over_2, !D_over_2 -> !D
  // CHECK-NEXT: stretto.dot %x, %y : !D -> !number
  // CHECK-NEXT: stretto.outer %x, %f : !D, !F -> !D_times_F
  // CHECK-NEXT: stretto.inner %{{.*}}, %f : !D_times_F, !F -> !D
  // CHECK-NEXT: stretto.inner %{{.*}}, %x transpose : !D_times_F, !D -> !F
  // CHECK-NEXT: stretto.contract %x, %W : !D, !parameter_D_F -> !F
  // CHECK-NEXT: stretto.contract %f, %W transpose : !F, !parameter_D_F -> !D
  %floor = stretto.constant 1.0e-12 : !D
  %least = stretto.constant 0xFFF0000000000000 : !number
  %wide = stretto.broadcast %least : !number to !D
  %cs = stretto.broadcast %c : tensor<i1, #stretto.row<()>> to tensor<?xi1, #stretto.row<D>>
  %s = stretto.reduce sum %x : !D -> !number
  %mean = stretto.reduce mean %x : !D -> !number
  %max = stretto.reduce max %x : !D -> !number
  %p = stretto.softmax %x : !D
  %g = stretto.logsigmoid %x : !D
  %stopped = stretto.stop_gradient %x : !D
  %second = stretto.slice %x from "D/2" : !D -> !half
  %entry = stretto.slice %x from "0" : !D -> !number
  %whole = stretto.concat %second, %second : !half, !half -> !D
  %z = stretto.dot %x, %y : !D -> !number
  %xf = stretto.outer %x, %f : !D, !F -> !square
  %dx = stretto.inner %xf, %f : !square, !F -> !D
  %df = stretto.inner %xf, %x transpose : !square, !D -> !F
  %xw = stretto.contract %x, %W : !D, tensor<?x?xf64, #stretto.param<[D, F]>> -> !F
  %wx = stretto.contract %f, %W transpose : !F, tensor<?x?xf64, #stretto.param<[D, F]>> -> !D
  %sum = arith.addf %wx, %floor : !D
  %chosen = arith.select %cs, %sum, %whole : tensor<?xi1, #stretto.row<D>>, !D
  stretto.yield %chosen, %z : !D, !number
}

// CHECK-LABEL: stretto.variant @time(
stretto.variant @time(%x: !D, %taps: tensor<?x4xf64, #stretto.param<[D, 4]>>) -> !D options(period = 18.0) {
  // CHECK-NEXT: stretto.position
  // CHECK-NEXT: %[[period:.*]] = stretto.option "period" : f64
  // CHECK-NEXT: stretto.table period %[[period]] {
  // CHECK-NEXT: ^bb0(%t: f64, %h: f64, %d: f64):
  %t = stretto.position
  %period = stretto.option "period" : f64
  %table = stretto.table period %period {
  ^bb0(%a: f64, %b: f64, %c: f64):
    %zero = arith.constant 0.0 : f64
    %at_start = arith.cmpf oeq, %a, %zero : f64
    // CHECK: scf.if %{{.*}} -> (f64) {
    %y = scf.if %at_start -> f64 {
      scf.yield %b : f64
    } else {
      scf.yield %c : f64
    }
    stretto.yield %y : f64
  } : !D
  // CHECK: stretto.table {
  %constant = stretto.table {
  ^bb0(%a: f64, %b: f64, %c: f64):
    stretto.yield %b : f64
  } : !D
  // CHECK: stretto.conv %x, %taps : !D, !parameter_D_4
  // CHECK-NEXT: stretto.conv %{{.*}}, %taps reverse : !D, !parameter_D_4
  // CHECK-NEXT: stretto.delay %{{.*}} by 1 : !D
  // CHECK-NEXT: stretto.delay %{{.*}} by 2 reverse : !D
  // CHECK-NEXT: stretto.scan add %{{.*}} log %x : !D, !D
  // CHECK-NEXT: stretto.scan logaddexp %{{.*}} exclusive : !D
  // CHECK-NEXT: stretto.scan max %{{.*}} log %x exclusive reverse : !D, !D
  %y0 = stretto.conv %x, %taps : !D, tensor<?x4xf64, #stretto.param<[D, 4]>>
  %y1 = stretto.conv %y0, %taps reverse : !D, tensor<?x4xf64, #stretto.param<[D, 4]>>
  %y2 = stretto.delay %y1 by 1 : !D
  %y3 = stretto.delay %y2 by 2 reverse : !D
  %y4 = stretto.scan add %y3 log %x : !D, !D
  %y5 = stretto.scan logaddexp %y4 exclusive : !D
  %y6 = stretto.scan max %y5 log %x exclusive reverse : !D, !D
  stretto.yield %y6 : !D
}

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>

// CHECK-LABEL: stretto.variant @lookbacks(
stretto.variant @lookbacks(%q: !K, %k: !K, %v: !V, %mask: tensor<i1, #stretto.row<()>> {stretto.optional}) -> !V {
  %first = stretto.position
  // CHECK: stretto.lookback softmax from %{{.*}} {
  %m, %l, %acc = stretto.lookback softmax from %first {
    // CHECK: stretto.past %k : !K
    %kj = stretto.past %k : !K
    %vj = stretto.past %v : !V
    %s = stretto.dot %q, %kj : !K -> !number
    %has = stretto.present %mask : tensor<i1, #stretto.row<()>>
    %score = scf.if %has -> !number {
      // CHECK: stretto.past %mask : !condition_number
      %open = stretto.past %mask : tensor<i1, #stretto.row<()>>
      %closed = stretto.constant 0xFFF0000000000000 : !number
      %masked = arith.select %open, %s, %closed : tensor<i1, #stretto.row<()>>, !number
      scf.yield %masked : !number
    } else {
      scf.yield %s : !number
    }
    stretto.yield %score, %vj : !number, !V
    // CHECK: } : !number, !number, !V
  } : !number, !number, !V
  // CHECK: stretto.lookback sum from %{{.*}} to_end {
  %sum = stretto.lookback sum from %first to_end {
    %vj = stretto.past %v : !V
    stretto.yield %vj : !V
  } : !V
  // CHECK: stretto.lookback divergence from %{{.*}} reverse {
  // CHECK: } : !number, !number, !number
  %kl, %lse_t, %lse_s = stretto.lookback divergence from %first reverse {
    %kj = stretto.past %k : !K
    %s = stretto.dot %q, %kj : !K -> !number
    stretto.yield %s, %s : !number, !number
  } : !number, !number, !number
  stretto.yield %acc : !V
}

// CHECK-LABEL: stretto.variant @states(
stretto.variant @states(%k: !K, %v: !V, %g: !K, %f: !number) -> (!V, !K) options(gated = true) {
  // CHECK: %[[t:.*]] = stretto.position
  // CHECK-NEXT: %[[S0:.*]] = stretto.state "S" : !state_K_by_V
  // CHECK-NEXT: %[[S1:.*]] = stretto.decay %[[S0]] log %g along "K" : !state_K_by_V, !K
  // CHECK-NEXT: %[[S2:.*]] = stretto.decay %[[S1]] factor %f : !state_K_by_V, !number
  // CHECK-NEXT: %[[S3:.*]] = stretto.write %[[S2]], %k, %v : !state_K_by_V, !K, !V
  // CHECK-NEXT: stretto.read %[[S3]], %k along "K" : !state_K_by_V, !K -> !V
  // CHECK-NEXT: stretto.read %[[S3]], %v along "V" at %[[t]] : !state_K_by_V, !V -> !K
  %t = stretto.position
  %S0 = stretto.state "S" : !stretto.state<K, V>
  %S1 = stretto.decay %S0 log %g along "K" : !stretto.state<K, V>, !K
  %S2 = stretto.decay %S1 factor %f : !stretto.state<K, V>, !number
  %S3 = stretto.write %S2, %k, %v : !stretto.state<K, V>, !K, !V
  %o = stretto.read %S3, %k along "K" : !stretto.state<K, V>, !K -> !V
  %p = stretto.read %S3, %v along "V" at %t : !stretto.state<K, V>, !V -> !K
  // A chain may go through a condition.
  // CHECK: scf.if %{{.*}} -> (!state_K_by_V) {
  %T0 = stretto.state "T" : !stretto.state<K, V>
  %gated = stretto.option "gated" : i1
  %T2 = scf.if %gated -> !stretto.state<K, V> {
    %T1 = stretto.decay %T0 log %g along "K" : !stretto.state<K, V>, !K
    scf.yield %T1 : !stretto.state<K, V>
  } else {
    scf.yield %T0 : !stretto.state<K, V>
  }
  %T3 = stretto.write %T2, %k, %v : !stretto.state<K, V>, !K, !V
  // CHECK: stretto.write %{{.*}}, %k, %v at %[[t]] : !reverse_state_K_by_V, !K, !V
  %R0 = stretto.state "R" : !stretto.state<K, V, reverse>
  %R1 = stretto.write %R0, %k, %v at %t : !stretto.state<K, V, reverse>, !K, !V
  stretto.yield %o, %p : !V, !K
}

// States of alternatives may share a name.
// CHECK-LABEL: stretto.variant @alternatives(
// CHECK:         stretto.state "S" : !state_K_by_V_per_G
// CHECK:         stretto.state "S" : !state_K_by_V{{$}}
stretto.variant @alternatives(%k: !K, %v: !V, %q: !K) -> !V options(shared = true) {
  %shared = stretto.option "shared" : i1
  %o = scf.if %shared -> !V {
    %S = stretto.state "S" : !stretto.state<K, V, G>
    %o = stretto.read %S, %q along "K" : !stretto.state<K, V, G>, !K -> !V
    scf.yield %o : !V
  } else {
    %S = stretto.state "S" : !stretto.state<K, V>
    %o = stretto.read %S, %q along "K" : !stretto.state<K, V>, !K -> !V
    scf.yield %o : !V
  }
  stretto.yield %o : !V
}
