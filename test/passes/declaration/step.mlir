// RUN: stretto-opt %s --split-input-file --stretto-step='element=bf16 elements=g=f32' | FileCheck %s

// Operations stand in the order of the declaration: the state as it was is read for the key, decayed and written.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<64xf64, #stretto.row<V>>
!S = !stretto.state<K : 32, V : 64>

// CHECK-LABEL: chunk.kernel @delta chunk 1(
// CHECK-SAME:      input %q: tensor<1x32xbf16>, input %k: tensor<1x32xbf16>, input %v: tensor<1x64xbf16>,
// CHECK-SAME:      input %g: tensor<1x32xf32>, state %S: tensor<32x64xf32>, valid %{{.*}}: index) -> (o: tensor<1x64xbf16>) {
// CHECK-DAG:     %[[Q:.*]] = arith.extf %q
// CHECK-DAG:     %[[K:.*]] = arith.extf %k
// CHECK-DAG:     %[[V:.*]] = arith.extf %v
// CHECK:         %[[D:.*]] = chunk.decay_state %S log %g along rows : tensor<32x64xf32>, tensor<1x32xf32>
// CHECK-NEXT:    %[[R:.*]] = chunk.dot %[[K]], %[[D]] : tensor<1x32xf32>, tensor<32x64xf32> -> tensor<1x64xf32>
// CHECK-NEXT:    %[[E:.*]] = arith.subf %[[V]], %[[R]]
// CHECK-NEXT:    %[[S:.*]] = chunk.dot %[[K]], %[[E]] transpose_left add %[[D]]
// CHECK-NEXT:    %[[O:.*]] = chunk.dot %[[Q]], %[[S]] : tensor<1x32xf32>, tensor<32x64xf32> -> tensor<1x64xf32>
// CHECK-NEXT:    %[[NARROW:.*]] = arith.truncf %[[O]]
// CHECK-NEXT:    chunk.yield %[[NARROW]] next %[[S]]
stretto.variant @delta(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %1 = stretto.decay %0 log %g along "K" : !S, !K
  %r = stretto.read %1, %k along "K" : !S, !K -> !V
  %e = arith.subf %v, %r : !V
  %2 = stretto.write %1, %k, %e : !S, !K, !V
  %o = stretto.read %2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Slots decay along one axis and are read along both.

!K = tensor<32xf64, #stretto.row<K>>
!N = tensor<16xf64, #stretto.row<N>>
!S = !stretto.state<N : 16, K : 32>

// CHECK-LABEL: chunk.kernel @slots chunk 1(
// CHECK:         %[[LOGITS:.*]] = chunk.dot %{{.*}}, %S transpose_right : tensor<1x32xf32>, tensor<16x32xf32> -> tensor<1x16xf32>
// CHECK:         %[[D:.*]] = chunk.decay_state %S log %g along columns
// CHECK:         chunk.dot %[[LOGITS]], %[[D]] : tensor<1x16xf32>, tensor<16x32xf32> -> tensor<1x32xf32>
stretto.variant @slots(%q: !K, %g: !K) -> !K attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %logits = stretto.read %0, %q along "K" : !S, !K -> !N
  %1 = stretto.decay %0 log %g along "K" : !S, !K
  %o = stretto.read %1, %logits along "N" : !S, !N -> !K
  stretto.yield %o : !K
}

// -----

// The total of a scan is a state of its own, which starts where the scan does. What is exclusive is what it was.

!g = tensor<4xf64, #stretto.row<N>>

// CHECK-LABEL: chunk.kernel @scans chunk 1(
// CHECK-SAME:      input %g: tensor<1x4xf32>, state %g_max: tensor<1x4xf32> lowest, valid
// CHECK:         %[[AFTER:.*]] = chunk.scan max %g
// CHECK:         %[[BEFORE:.*]] = chunk.delay %{{.*}} by 1 tail %g_max
// CHECK:         arith.subf %[[AFTER]], %[[BEFORE]]
// CHECK:         %[[NEXT:.*]] = chunk.tail %{{.*}} after %g_max
// CHECK:         chunk.yield %{{.*}} next %[[NEXT]]
stretto.variant @scans(%g: !g) -> !g attributes {group = {H = 1 : i64}} {
  %now = stretto.scan max %g : !g
  %before = stretto.scan max %g exclusive : !g
  %d = arith.subf %now, %before : !g
  stretto.yield %d : !g
}

// -----

// One column is carried as a vector, and computed with as a row.

!K = tensor<32xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>
!z = !stretto.state<K : 32, 1 : 1>

// CHECK-LABEL: chunk.kernel @normaliser chunk 1(
// CHECK-SAME:      state %z: tensor<32xf32>, valid
// CHECK:         %[[D:.*]] = chunk.decay_state %z log %g along rows : tensor<32xf32>, tensor<1x32xf32>
// CHECK:         %[[ROW:.*]] = chunk.broadcast %[[D]] along columns : tensor<32xf32> to tensor<1x32xf32>
// CHECK:         %[[NEXT:.*]] = arith.addf %[[ROW]],
// CHECK:         %[[PRODUCT:.*]] = arith.mulf %{{.*}}, %[[NEXT]]
// CHECK:         chunk.reduce sum %[[PRODUCT]] over columns : tensor<1x32xf32> -> tensor<1xf32>
stretto.variant @normaliser(%q: !K, %k: !K, %x: !number, %g: !K) -> !number attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "z" : !z
  %1 = stretto.decay %0 log %g along "K" : !z, !K
  %2 = stretto.write %1, %k, %x : !z, !K, !number
  %o = stretto.read %2, %q along "K" : !z, !K -> !number
  stretto.yield %o : !number
}

// -----

// Look-backs of one token meet many of a window at once; a state of long ago takes up what has become as old.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 32, V : 16>

// CHECK-LABEL: chunk.kernel @window chunk 1(
// CHECK-SAME:      state %S: tensor<32x16xf32>, window %k_window: tensor<9x32xbf16> of "k", window %v_window
// CHECK:         chunk.lookback softmax from %[[FIRST:.*]] : tensor<1xf32>
// CHECK-SAME:      past(%k_j = %k : tensor<1x32xbf16> to tensor<64x32xbf16>, %v_j = %v
// CHECK:           chunk.contribute %{{.*}}, %{{.*}} : tensor<1x64xf32>, tensor<64x16xf32>
// CHECK:         %[[OLD:.*]] = chunk.dot %{{.*}}, %S
// CHECK:         %[[SINCE:.*]] = chunk.lookback sum from %{{.*}} to %[[FIRST]]
// CHECK:         arith.addf %[[OLD]], %[[SINCE]]
// CHECK:         %[[WRITTEN:.*]] = chunk.lookback outer from %{{.*}} to %[[FIRST]]
// CHECK:         %[[NEXT:.*]] = arith.addf %S, %[[WRITTEN]]
// CHECK:         chunk.yield %{{.*}} next %[[NEXT]]
stretto.variant @window(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = stretto.constant 8.0 : !number_per_1
  %first = arith.subf %t, %w : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !number
    %v_j = stretto.past %v : !V
    stretto.yield %s, %v_j : !number, !V
  } : !number, !number, !V
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %old = stretto.read %1, %q along "K" at %first : !S, !K -> !V
  %o = arith.addf %acc, %old : !V
  stretto.yield %o : !V
}
