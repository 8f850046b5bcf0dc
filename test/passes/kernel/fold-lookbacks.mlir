// RUN: stretto-opt %s --stretto-fold-over-chunks | FileCheck %s --check-prefixes=CHECK,ANY
// RUN: stretto-opt %s --stretto-fold-over-chunks=from-start | FileCheck %s --check-prefixes=CHECK,START

chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}

// The sum of outer products begins with the state, its normaliser is a vector, and tiles have their turns, which both
// look-backs count. Of sequences that begin with their first tokens windows hold nothing, and what is continued meets
// nothing.
// CHECK-LABEL: kernel.func @f(
// CHECK: %[[S:.*]] = kernel.load %S
// CHECK: %[[Z:.*]] = kernel.load %z
// CHECK: scf.for %[[C:.*]] = {{.*}} iter_args(%[[S0:.*]] = %[[S]], %[[Z0:.*]] = %[[Z]], %[[TURN:.*]] = %c0) -> (tensor<32x16xf32>, tensor<32xf32>, index)
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = kernel.span
// CHECK: scf.if
// ANY: scf.if
// ANY: kernel.send %k_window at %[[BEGIN]] to %[[KEYS:.*]] turn
// START-NOT: _window
// CHECK: kernel.send %k at %[[BEGIN]] to {{.*}} turn
// CHECK: %[[SUMS:.*]]:2 = scf.for %[[J:.*]] = %[[BEGIN]] to %[[END]] {{.*}} iter_args(%[[S1:.*]] = %[[S0]], %[[Z1:.*]] = %[[Z0]]) -> (tensor<32x16xf32>, tensor<32xf32>)
// CHECK: kernel.await
// CHECK: %[[MET:.*]] = arith.subi %[[J]], %[[BEGIN]]
// CHECK: %[[OWN:.*]] = arith.addi %[[TURN]], %[[MET]]
// CHECK: kernel.receive %{{.*}} at %[[J]] turn %[[OWN]]
// CHECK: chunk.dot {{.*}} transpose_left add %[[S1]]
// CHECK: %[[ADDED:.*]] = chunk.reduce sum %{{.*}} over rows : tensor<16x32xf32> -> tensor<32xf32>
// CHECK: arith.addf %[[Z1]], %[[ADDED]]
// CHECK: %[[COUNT:.*]] = arith.maxsi
// CHECK: %[[NEXT:.*]] = arith.addi %[[TURN]], %[[COUNT]]
// ANY: scf.for {{.*}} iter_args(%{{.*}} = %[[SUMS]]#0)
// START-NOT: scf.for
// START: scf.yield %[[SUMS]]#0, %[[SUMS]]#1, %[[NEXT]]
chunk.kernel @f chunk 16 (input %k: tensor<16x32xbf16>, input %v: tensor<16x16xbf16>, table %position: tensor<16xf32>,
    window %k_window: tensor<24x32xbf16> of "k", window %v_window: tensor<24x16xbf16> of "v",
    state %S: tensor<32x16xf32>, state %z: tensor<32xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x1xf32>
  %base = chunk.broadcast %z along rows : tensor<32xf32> to tensor<32x1xf32>
  %written:2 = chunk.lookback outer from %position to %position : tensor<16xf32>
      past(%k_j = %k : tensor<16x32xbf16>, %v_j = %v : tensor<16x16xbf16>) {
    %x = arith.extf %k_j : tensor<16x32xbf16> to tensor<16x32xf32>
    %y = arith.extf %v_j : tensor<16x16xbf16> to tensor<16x16xf32>
    chunk.contribute %x, %y, %x, %one : tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x32xf32>, tensor<16x1xf32>
  } : tensor<32x16xf32>, tensor<32x1xf32>
  %first = arith.addf %S, %written#0 : tensor<32x16xf32>
  %numbers = arith.addf %base, %written#1 : tensor<32x1xf32>
  %rest = chunk.lookback outer from %position to %position : tensor<16xf32>
      past(%k_j = %k : tensor<16x32xbf16>, %v_j = %v : tensor<16x16xbf16>) attributes {continued} {
    %x = arith.extf %k_j : tensor<16x32xbf16> to tensor<16x32xf32>
    %y = arith.extf %v_j : tensor<16x16xbf16> to tensor<16x16xf32>
    chunk.contribute %x, %y : tensor<16x32xf32>, tensor<16x16xf32>
  } : tensor<32x16xf32>
  %next = arith.addf %first, %rest : tensor<32x16xf32>
  %z_next = chunk.columns %numbers from 0 : tensor<32x1xf32> -> tensor<32xf32>
  %o = arith.extf %v : tensor<16x16xbf16> to tensor<16x16xf32>
  chunk.yield %o next %next, %z_next : tensor<16x16xf32>, tensor<32x16xf32>, tensor<32xf32>
}

// The largest score differs by nothing from itself, whatever it is multiplied with: it is subtracted before that.
// CHECK-LABEL: kernel.func @divergence(
// CHECK: scf.for
// CHECK: %[[TEACHER:.*]] = chunk.dot
// CHECK: %[[HERE:.*]] = chunk.reduce max %[[MET:.*]] over columns
// CHECK: %[[LARGEST:.*]] = arith.maximumf %{{.*}}, %[[HERE]]
// CHECK: %[[SHIFT:.*]] = arith.select %{{.*}}, %{{.*}}, %[[LARGEST]]
// CHECK: %[[SHIFTS:.*]] = chunk.broadcast %[[SHIFT]] along rows
// CHECK-NEXT: %[[LESS:.*]] = arith.subf %[[MET]], %[[SHIFTS]]
// CHECK: arith.mulf %[[LESS]]
chunk.kernel @divergence chunk 16 (input %t: tensor<16x32xf32>, input %s: tensor<16x32xf32>, valid %n: index) -> (o: tensor<16xf32>) {
  %first = arith.constant dense<0.0> : tensor<16xf32>
  %scale = arith.constant dense<0.25> : tensor<16x16xf32>
  %d, %lt, %ls = chunk.lookback divergence from %first : tensor<16xf32>
      past(%t_j = %t : tensor<16x32xf32>, %s_j = %s : tensor<16x32xf32>) {
    %p = chunk.dot %t, %t_j transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
    %r = chunk.dot %s, %s_j transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
    %teacher = arith.mulf %p, %scale : tensor<16x16xf32>
    %student = arith.mulf %r, %scale : tensor<16x16xf32>
    chunk.contribute %teacher, %student : tensor<16x16xf32>, tensor<16x16xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  chunk.yield %d : tensor<16xf32>
}
