// RUN: stretto-opt %s --stretto-chunk="chunk=16 element=bf16" --cse | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: stretto-opt %s --stretto-chunk="chunk=16 element=f16" --cse | FileCheck %s --check-prefixes=CHECK,WIDE

// The gradient of a decay asks for states. Those at the start of a chunk are as products of bf16 rows read them, those
// that a segment is walked from again are what they are; sums of fp16 rows may be larger than that type's numbers. The
// walk back leaves all results, as it forms their products anyway.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 8, V : 4>
!dS = !stretto.state<K : 8, V : 4, reverse>

// BF16-LABEL:  chunk.kernel @decayed_backward_segment_starts chunk 16(
// BF16-SAME:     -> (S: tensor<8x4xf32> checkpoint)
// WIDE-NOT:    _segment_starts
// CHECK-LABEL: chunk.kernel @decayed_backward_checkpoints chunk 16(
// CHECK-SAME:    state %S: tensor<8x4xf32>
// BF16-SAME:     -> (S: tensor<8x4xbf16> checkpoint)
// WIDE-SAME:     -> (S: tensor<8x4xf32> checkpoint)
// CHECK-LABEL: chunk.kernel @decayed_backward chunk 16 reverse(
// BF16-SAME:     checkpoint %S: tensor<8x4xbf16>
// WIDE-SAME:     checkpoint %S: tensor<8x4xf32>
// CHECK-SAME:    -> (d_q: {{.+}}, d_g:
// BF16:          arith.extf %S
stretto.variant @decayed_backward(%q: !K, %k: !K, %g: !n, %v: !V, %d_o: !V) -> (!K, !n)
    attributes {gradient, wanted = ["q", "g"], group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g : !S, !n
  %S2 = stretto.write %S1, %k, %v : !S, !K, !V
  %dq = stretto.read %S2, %d_o along "V" : !S, !V -> !K
  %dS0 = stretto.state "d_S" : !dS
  %dS1 = stretto.write %dS0, %q, %d_o : !dS, !K, !V
  %dS2 = stretto.decay %dS1 log %g : !dS, !n
  %dg = stretto.pair %S1, %dS1 : !S, !dS -> !n
  stretto.yield %dq, %dg : !K, !n
}
