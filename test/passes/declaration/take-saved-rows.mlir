// RUN: stretto-opt %s --pass-pipeline="builtin.module(stretto-differentiate{saved=true},stretto-chunk{chunk=16 element=bf16})" \
// RUN:   | FileCheck %s

// What a call has saved has the type of arithmetic in memory, a result that the gradient takes its own. Both are inputs
// of the walk back; the walk forward, which keeps states, asks for neither.

!K = tensor<16xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!V_plus_1 = tensor<17xf64, #stretto.row<"V + 1">>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 16, "V + 1" : 17>

// CHECK-LABEL: chunk.kernel @decayed_backward_checkpoints chunk 16
// CHECK-NOT:     saved_0
// CHECK-LABEL: chunk.kernel @decayed_backward chunk 16
// CHECK-SAME:    input %d_o: tensor<16x16xbf16>, input %result_0: tensor<16x16xbf16>, input %saved_0: tensor<16xf32>
stretto.variant @decayed(%q: !K, %k: !K, %v: !V, %g: !n) -> !V attributes {group = {H = 1 : i64}} {
  %one = arith.constant dense<1.0> : !n
  %row = stretto.concat %v, %one : !V, !n -> !V_plus_1
  %S0 = stretto.state "S" : !S
  %S = stretto.decay %S0 log %g : !S, !n
  %S1 = stretto.write %S, %k, %row : !S, !K, !V_plus_1
  %r = stretto.read %S1, %q along "K" : !S, !K -> !V_plus_1
  %num = stretto.slice %r from "0" : !V_plus_1 -> !V
  %den = stretto.slice %r from "V" : !V_plus_1 -> !n
  %dens = stretto.broadcast %den : !n to !V
  %o = arith.divf %num, %dens : !V
  stretto.yield %o : !V
}
