// RUN: stretto-opt %s --split-input-file --stretto-specialize="options=decay=abs" | FileCheck %s --check-prefix=WORD
// RUN: stretto-opt %s --split-input-file --stretto-specialize="dims=K=16,V=8 heads=H=8,G=2 options=decay=abs absent=D" | FileCheck %s --check-prefix=FULL

// Two ways to one program give one text.
// RUN: stretto-opt %s --stretto-specialize="dims=K=16,V=8 heads=H=8,G=2 options=decay=abs absent=D" > %t.at_once
// RUN: stretto-opt %s --stretto-specialize="options=decay=abs absent=D" --stretto-specialize="heads=G=2,H=8" --stretto-specialize="dims=V=8" --stretto-specialize="dims=K=16" > %t.in_steps
// RUN: diff %t.at_once %t.in_steps

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V_per_G = tensor<?xf64, #stretto.row<V, G>>
!V = tensor<?xf64, #stretto.row<V>>
!N_per_G = tensor<?xf64, #stretto.row<N, G>>
!number = tensor<f64, #stretto.row<()>>
!state = !stretto.state<N, V, G>
!D = tensor<f64, #stretto.param<[], H>>

// WORD-LABEL: stretto.variant @slots(
// WORD-SAME:    %q: !K, %k: !K_per_G, %v: !V_per_G, %w: !N_per_G, %D: !parameter) -> !V
// WORD-SAME:    options(modes = 4.{{0+}}e+00, scale = "K**-0.5") axes(N = "2*modes + 1") {
// WORD-NEXT:    %[[S:.*]] = stretto.state "S" : !state_N_by_V_per_G
// WORD-NEXT:    %[[W:.*]] = math.absf %w : !N_per_G
// WORD-NEXT:    %[[ONE:.*]] = stretto.constant 1.0{{0*}}e+00 : !N_per_G
// WORD-NEXT:    %[[F:.*]] = arith.subf %[[ONE]], %[[W]] : !N_per_G
// WORD-NEXT:    %[[D:.*]] = stretto.decay %[[S]] factor %[[F]] along "N"
// WORD-NEXT:    stretto.write %[[D]], %w, %v
// WORD-NOT:     scf.if
// WORD:         stretto.option "scale"
// WORD:         stretto.broadcast %D

// FULL-DAG:   !K = tensor<16xf64, #stretto.row<K>>
// FULL-DAG:   !N_per_G = tensor<9xf64, #stretto.row<N, G>>
// FULL-DAG:   !state_N_by_V_per_G = !stretto.state<N : 9, V : 8, G>
// FULL-LABEL: stretto.variant @slots(
// FULL-SAME:    %q: !K, %k: !K_per_G, %v: !V_per_G, %w: !N_per_G) -> !V
// FULL-SAME:    attributes {group = {G = 4 : i64, H = 1 : i64}} {
// FULL:         arith.constant dense<1.{{0+}}e+00> : !N_per_G
// FULL:         %[[SCALE:.*]] = arith.constant dense<2.500000e-01> : !K
// FULL-NEXT:    arith.mulf %q, %[[SCALE]] : !K
// FULL-NOT:     stretto.broadcast %D
// FULL-NOT:     stretto.option
stretto.variant @slots(%q: !K, %k: !K_per_G, %v: !V_per_G, %w: !N_per_G, %D: !D {stretto.optional}) -> !V
    options(decay = #stretto.choice<"none" of ["none", "abs", "signed"]>, modes = 4.0, scale = "K**-0.5", unused = 1.0)
    axes(N = "2*modes + 1") {
  %S0 = stretto.state "S" : !state
  %one = stretto.constant 1.0 : !N_per_G
  %none = stretto.option_is "decay" "none"
  %S2 = scf.if %none -> !state {
    scf.yield %S0 : !state
  } else {
    %abs = stretto.option_is "decay" "abs"
    %w_abs = math.absf %w : !N_per_G
    %amount = arith.select %abs, %w_abs, %w : !N_per_G
    %factor = arith.subf %one, %amount : !N_per_G
    %S1 = stretto.decay %S0 factor %factor along "N" : !state, !N_per_G
    scf.yield %S1 : !state
  }
  %S3 = stretto.write %S2, %w, %v : !state, !N_per_G, !V_per_G
  %kk = stretto.dot %k, %k : !K_per_G -> tensor<f64, #stretto.row<(), G>>
  %s = stretto.broadcast %kk : tensor<f64, #stretto.row<(), G>> to !N_per_G
  %o = stretto.read %S3, %s along "N" : !state, !N_per_G -> !V_per_G
  %scale = stretto.option "scale" : !K
  %qs = arith.mulf %q, %scale : !K
  %qq = stretto.dot %qs, %q : !K -> !number
  %o_H = stretto.broadcast %o : !V_per_G to !V
  %qq_V = stretto.broadcast %qq : !number to !V
  %y = arith.mulf %o_H, %qq_V : !V
  %has_D = stretto.present %D : !D
  %z = scf.if %has_D -> !V {
    %D_V = stretto.broadcast %D : !D to !V
    %z = arith.addf %y, %D_V : !V
    scf.yield %z : !V
  } else {
    scf.yield %y : !V
  }
  stretto.yield %z : !V
}
