// RUN: stretto-opt %s | stretto-opt | FileCheck %s
// RUN: stretto-opt %s --mlir-print-op-generic | stretto-opt | FileCheck %s

// CHECK-LABEL: chunk.table @decay {
// CHECK-NEXT: ^bb0(%t: f64, %h: f64, %d: f64):
chunk.table @decay {
^bb0(%t: f64, %h: f64, %d: f64):
  %l = arith.negf %h : f64
  chunk.result %l : f64
}
// CHECK-LABEL: chunk.table @angles period 9 {
chunk.table @angles period 9 {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: chunk.table @position varying {
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}

// CHECK-LABEL: chunk.kernel @every_argument chunk 16 slices 2(
// CHECK-SAME: input %q: tensor<16x32xbf16>, input %v: tensor<16x32xf32> group 2 sliced, parameter %w: tensor<32x8xf32>,
// CHECK-SAME: table %decay: tensor<f32>, table %position: tensor<16xf32>,
// CHECK-SAME: state %S: tensor<32x32xf32> group 2 sliced of "S" column 0 columns 33,
// CHECK-SAME: state %z: tensor<32xf32> group 2 of "S" column 32 columns 33, state %T: tensor<4x8xf32>,
// CHECK-SAME: valid %n: index) -> (o: tensor<16x32xf32> sliced, den: tensor<16xf32>)
// CHECK-SAME: attributes {note = "kept"} {
chunk.kernel @every_argument chunk 16 slices 2 (
    input %q: tensor<16x32xbf16>, input %v: tensor<16x32xf32> group 2 sliced, parameter %w: tensor<32x8xf32>,
    table %decay: tensor<f32>, table %position: tensor<16xf32>,
    state %S: tensor<32x32xf32> group 2 sliced of "S" column 0 columns 33,
    state %z: tensor<32xf32> group 2 of "S" column 32 columns 33, state %T: tensor<4x8xf32>, valid %n: index)
    -> (o: tensor<16x32xf32> sliced, den: tensor<16xf32>) attributes {note = "kept"} {
  // CHECK: chunk.yield %v, %position next %S, %z, %T
  chunk.yield %v, %position next %S, %z, %T
      : tensor<16x32xf32>, tensor<16xf32>, tensor<32x32xf32>, tensor<32xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: chunk.kernel @rows_of_a_state chunk 16(
// CHECK-SAME: state %S.17: tensor<256x8xf32> of "S" column 0 columns 9 row 17 rows 273, valid %n: index)
chunk.kernel @rows_of_a_state chunk 16 (input %x: tensor<16x8xf32>,
    state %S.17: tensor<256x8xf32> of "S" column 0 columns 9 row 17 rows 273, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x next %S.17 : tensor<16x8xf32>, tensor<256x8xf32>
}

// CHECK-LABEL: chunk.kernel @columns_of_a_parameter chunk 16(
// CHECK-SAME: parameter %w$8: tensor<8x4xf32> of "w" column 8 columns 12,
chunk.kernel @columns_of_a_parameter chunk 16 (input %x: tensor<16x8xf32>,
    parameter %w$8: tensor<8x4xf32> of "w" column 8 columns 12, valid %n: index) -> (o: tensor<16x4xf32>) {
  %o = chunk.dot %x, %w$8 : tensor<16x8xf32>, tensor<8x4xf32> -> tensor<16x4xf32>
  chunk.yield %o : tensor<16x4xf32>
}

// CHECK-LABEL: chunk.kernel @checkpoints chunk 16(
// CHECK-SAME: -> (S: tensor<8x8xf32> group 2 checkpoint)
chunk.kernel @checkpoints chunk 16 (input %k: tensor<16x8xf32> group 2, state %S: tensor<8x8xf32> group 2,
    valid %n: index) -> (S: tensor<8x8xf32> group 2 checkpoint) {
  chunk.yield %S next %S : tensor<8x8xf32>, tensor<8x8xf32>
}

// CHECK-LABEL: chunk.kernel @backwards chunk 16 reverse(
// CHECK-SAME: checkpoint %S: tensor<8x8xf32> group 2
// CHECK-SAME: -> (d_k: tensor<16x8xf32> group 2)
chunk.kernel @backwards chunk 16 reverse (input %k: tensor<16x8xf32> group 2, checkpoint %S: tensor<8x8xf32> group 2,
    valid %n: index) -> (d_k: tensor<16x8xf32> group 2) {
  %y = chunk.dot %k, %S : tensor<16x8xf32>, tensor<8x8xf32> -> tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// CHECK-LABEL: chunk.kernel @of_gradients
chunk.kernel @of_gradients chunk 16 reverse (input %q: tensor<16x8xf32>, input %f: tensor<16x8xf32>,
    parameter %taps: tensor<8x4xf32>, state %t: tensor<3x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %p = chunk.dot %q, %f transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  // CHECK: chunk.decay_pairs %q, %q, %{{.+}} factor %f : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
  %y = chunk.decay_pairs %q, %q, %p factor %f : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
  // CHECK: chunk.decay_pairs %q, %q, %{{.+}} factor %f seen %q : tensor<16x8xf32> kept %f : tensor<16x8xf32> : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
  %crossing = chunk.decay_pairs %q, %q, %p factor %f seen %q : tensor<16x8xf32> kept %f : tensor<16x8xf32> : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
  // CHECK: chunk.decay_totals %q, %q, %{{.+}} log %f before : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
  %both:2 = chunk.decay_totals %q, %q, %p log %f before : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
  // CHECK: chunk.conv_taps %{{.+}}, %q tail %t : tensor<16x8xf32>, tensor<16x8xf32>, tensor<3x8xf32> -> tensor<8x4xf32>
  %d_taps = chunk.conv_taps %y, %q tail %t : tensor<16x8xf32>, tensor<16x8xf32>, tensor<3x8xf32> -> tensor<8x4xf32>
  // CHECK: chunk.conv_back %{{.+}}, %taps valid %n after %t : tensor<16x8xf32>, tensor<8x4xf32>, tensor<3x8xf32> -> tensor<16x8xf32>
  %z, %next = chunk.conv_back %y, %taps valid %n after %t : tensor<16x8xf32>, tensor<8x4xf32>, tensor<3x8xf32> -> tensor<16x8xf32>
  chunk.yield %z next %next : tensor<16x8xf32>, tensor<3x8xf32>
}

// CHECK-LABEL: chunk.kernel @shapes
chunk.kernel @shapes chunk 16 (input %x: tensor<16xf32>, parameter %w: tensor<8xf32>, table %decay: tensor<f32>,
                               valid %n: index) -> (o: tensor<16x8xf32>, c: tensor<16xf32>) {
  // CHECK: chunk.broadcast %x along rows : tensor<16xf32> to tensor<16x8xf32>
  %a = chunk.broadcast %x along rows : tensor<16xf32> to tensor<16x8xf32>
  // CHECK: chunk.broadcast %w along columns : tensor<8xf32> to tensor<16x8xf32>
  %b = chunk.broadcast %w along columns : tensor<8xf32> to tensor<16x8xf32>
  // CHECK: chunk.broadcast %decay along rows : tensor<f32> to tensor<16x8xf32>
  %c = chunk.broadcast %decay along rows : tensor<f32> to tensor<16x8xf32>
  // CHECK: chunk.concat %{{.*}}, %{{.*}}, %x : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32> -> tensor<16x17xf32>
  %d = chunk.concat %a, %b, %x : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32> -> tensor<16x17xf32>
  // CHECK: chunk.columns %{{.*}} from 4 : tensor<16x17xf32> -> tensor<16x8xf32>
  %e = chunk.columns %d from 4 : tensor<16x17xf32> -> tensor<16x8xf32>
  // CHECK: chunk.columns %{{.*}} from 16 : tensor<16x17xf32> -> tensor<16xf32>
  %f = chunk.columns %d from 16 : tensor<16x17xf32> -> tensor<16xf32>
  // CHECK: arith.cmpf
  %g = arith.cmpf olt, %f, %x : tensor<16xf32>
  // CHECK: chunk.broadcast %{{.*}} along rows : tensor<16xi1> to tensor<16x8xi1>
  %h = chunk.broadcast %g along rows : tensor<16xi1> to tensor<16x8xi1>
  %i = arith.select %h, %e, %c : tensor<16x8xi1>, tensor<16x8xf32>
  chunk.yield %i, %f : tensor<16x8xf32>, tensor<16xf32>
}

// CHECK-LABEL: chunk.kernel @products
chunk.kernel @products chunk 16 (input %q: tensor<16x8xbf16>, input %v: tensor<16x4xbf16>, state %S: tensor<8x4xf32>,
                                 valid %n: index) -> (o: tensor<16x4xbf16>, m: tensor<16xf32>) {
  // CHECK: chunk.dot %q, %q transpose_right : tensor<16x8xbf16>, tensor<16x8xbf16> -> tensor<16x16xf32>
  %s = chunk.dot %q, %q transpose_right : tensor<16x8xbf16>, tensor<16x8xbf16> -> tensor<16x16xf32>
  // CHECK: chunk.causal %{{.*}} : tensor<16x16xf32>
  %p = chunk.causal %s : tensor<16x16xf32>
  // CHECK: chunk.causal %{{.*}} strict : tensor<16x16xf32>
  %r = chunk.causal %p strict : tensor<16x16xf32>
  // CHECK: chunk.reduce max %{{.*}} over columns : tensor<16x16xf32> -> tensor<16xf32>
  %m = chunk.reduce max %r over columns : tensor<16x16xf32> -> tensor<16xf32>
  // CHECK: chunk.reduce sum %{{.*}} over rows : tensor<16x16xf32> -> tensor<16xf32>
  %t = chunk.reduce sum %r over rows : tensor<16x16xf32> -> tensor<16xf32>
  // CHECK: chunk.dot %q, %v transpose_left add %S : tensor<16x8xbf16>, tensor<16x4xbf16> -> tensor<8x4xf32>
  %next = chunk.dot %q, %v transpose_left add %S : tensor<16x8xbf16>, tensor<16x4xbf16> -> tensor<8x4xf32>
  // CHECK: chunk.mask %{{.*}} valid %n : tensor<16xf32>
  %u = chunk.mask %t valid %n : tensor<16xf32>
  // CHECK: chunk.mask %{{.*}} valid %n else 1.000000e+00 : tensor<16xf32>
  %w = chunk.mask %m valid %n else 1.0 : tensor<16xf32>
  %x = arith.addf %u, %w : tensor<16xf32>
  chunk.yield %v, %x next %next : tensor<16x4xbf16>, tensor<16xf32>, tensor<8x4xf32>
}

// CHECK-LABEL: chunk.kernel @time
chunk.kernel @time chunk 16 (input %x: tensor<16x8xf32>, parameter %taps: tensor<8x4xf32>, state %tail: tensor<3x8xf32>,
                             valid %n: index) -> (o: tensor<16x8xf32>) {
  // CHECK: chunk.conv %x, %taps tail %tail : tensor<16x8xf32>, tensor<8x4xf32>, tensor<3x8xf32> -> tensor<16x8xf32>
  %y = chunk.conv %x, %taps tail %tail : tensor<16x8xf32>, tensor<8x4xf32>, tensor<3x8xf32> -> tensor<16x8xf32>
  // CHECK: chunk.delay %{{.*}} by 2 tail %tail : tensor<16x8xf32>, tensor<3x8xf32> -> tensor<16x8xf32>
  %z = chunk.delay %y by 2 tail %tail : tensor<16x8xf32>, tensor<3x8xf32> -> tensor<16x8xf32>
  // CHECK: chunk.tail %x valid %n after %tail : tensor<16x8xf32>, tensor<3x8xf32>
  %next = chunk.tail %x valid %n after %tail : tensor<16x8xf32>, tensor<3x8xf32>
  chunk.yield %z next %next : tensor<16x8xf32>, tensor<3x8xf32>
}

// CHECK-LABEL: chunk.kernel @decays
// CHECK-SAME: state %L: tensor<1x8xf32> lowest, state %M: tensor<1x8xf32> group 2 of "L" column 0 columns 8 lowest,
chunk.kernel @decays chunk 16 (input %q: tensor<16x8xf32>, input %g: tensor<16x8xf32>, input %h: tensor<16xf32>,
                               state %S: tensor<8x8xf32>, state %z: tensor<8xf32>, state %L: tensor<1x8xf32> lowest,
                               state %M: tensor<1x8xf32> group 2 of "L" column 0 columns 8 lowest, valid %n: index)
    -> (p: tensor<16x16xf32>, o: tensor<16x8xf32>) {
  // CHECK: chunk.decay_dot %q, %q log %g : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %a = chunk.decay_dot %q, %q log %g : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  // CHECK: chunk.decay_dot %q, %q factor %h before : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32> -> tensor<16x16xf32>
  %b = chunk.decay_dot %q, %q factor %h before : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32> -> tensor<16x16xf32>
  %p = arith.addf %a, %b : tensor<16x16xf32>
  // CHECK: chunk.inverse %{{.*}} : tensor<16x16xf32>
  %i = chunk.inverse %b : tensor<16x16xf32>
  // CHECK: chunk.solve %{{.*}}, %q transpose : tensor<16x16xf32>, tensor<16x8xf32>
  %u = chunk.solve %a, %q transpose : tensor<16x16xf32>, tensor<16x8xf32>
  // CHECK: chunk.scan logaddexp %q from %L : tensor<16x8xf32>, tensor<1x8xf32>
  %v = chunk.scan logaddexp %q from %L : tensor<16x8xf32>, tensor<1x8xf32>
  // CHECK: chunk.scan add %q from %L log %g : tensor<16x8xf32>, tensor<1x8xf32>, tensor<16x8xf32>
  %w = chunk.scan add %q from %L log %g : tensor<16x8xf32>, tensor<1x8xf32>, tensor<16x8xf32>
  // CHECK: chunk.decay_mix %{{.*}}, %q log %g : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %m = chunk.decay_mix %a, %q log %g : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  // CHECK: chunk.decay_mix %{{.*}}, %q factor %h before transpose add %q : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16xf32> -> tensor<16x8xf32>
  %o = chunk.decay_mix %b, %q factor %h before transpose add %q : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16xf32> -> tensor<16x8xf32>
  // CHECK: chunk.decay_from_start %q factor %g before : tensor<16x8xf32>, tensor<16x8xf32>
  %c = chunk.decay_from_start %q factor %g before : tensor<16x8xf32>, tensor<16x8xf32>
  // CHECK: chunk.decay_to_end %{{.*}} log %h : tensor<16x8xf32>, tensor<16xf32>
  %d = chunk.decay_to_end %c log %h : tensor<16x8xf32>, tensor<16xf32>
  // CHECK: chunk.decay_state %S log %g along rows : tensor<8x8xf32>, tensor<16x8xf32>
  %e = chunk.decay_state %S log %g along rows : tensor<8x8xf32>, tensor<16x8xf32>
  // CHECK: chunk.decay_state %{{.*}} factor %g along columns : tensor<8x8xf32>, tensor<16x8xf32>
  %f = chunk.decay_state %e factor %g along columns : tensor<8x8xf32>, tensor<16x8xf32>
  // CHECK: chunk.decay_state %z log %g along rows : tensor<8xf32>, tensor<16x8xf32>
  %y = chunk.decay_state %z log %g along rows : tensor<8xf32>, tensor<16x8xf32>
  chunk.yield %p, %d next %f, %y, %L, %M : tensor<16x16xf32>, tensor<16x8xf32>, tensor<8x8xf32>, tensor<8xf32>, tensor<1x8xf32>, tensor<1x8xf32>
}

// CHECK-LABEL: chunk.kernel @lookbacks
// CHECK-SAME: window %k_window: tensor<9x8xf32> group 2 of "k"
chunk.kernel @lookbacks chunk 16 (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, table %position: tensor<16xf32>,
                                  state %S: tensor<8x8xf32>, window %k_window: tensor<9x8xf32> group 2 of "k", valid %n: index) -> (o: tensor<16x8xf32>, d: tensor<16xf32>) {
  // CHECK: %{{.*}}:3 = chunk.lookback softmax from %position : tensor<16xf32>
  // CHECK-SAME: past(%k_j = %k : tensor<16x8xf32>, %position_j = %position : tensor<16xf32>) {
  // CHECK: chunk.contribute %{{.*}}, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  // CHECK-NEXT: } : tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>
  %m, %l, %acc = chunk.lookback softmax from %position : tensor<16xf32>
      past(%kj = %k : tensor<16x8xf32>, %j = %position : tensor<16xf32>) {
    %qk = chunk.dot %q, %kj transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    %js = chunk.broadcast %j along columns : tensor<16xf32> to tensor<16x16xf32>
    %s = arith.mulf %qk, %js : tensor<16x16xf32>
    chunk.contribute %s, %kj : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>
  // CHECK: %{{.*}}:4 = chunk.lookback softmax from %position : tensor<16xf32> past(
  %m2, %l2, %acc2, %ties = chunk.lookback softmax from %position : tensor<16xf32> past(%kj = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %kj transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %kj : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>, tensor<16xf32>
  // CHECK: %{{.*}} = chunk.again %k : tensor<16x8xf32>
  %again = chunk.again %k : tensor<16x8xf32>
  // CHECK: chunk.lookback divergence from %position to_end : tensor<16xf32> past(
  %d, %lse_s, %lse_r = chunk.lookback divergence from %position to_end : tensor<16xf32> past(%kj = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %kj transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %s : tensor<16x16xf32>, tensor<16x16xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>
  // CHECK: chunk.lookback sum from %position to %{{.*}} : tensor<16xf32> past(
  %y = chunk.lookback sum from %position to %l : tensor<16xf32> past(%kj = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %kj transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %kj : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  // CHECK: chunk.lookback outer from %position : tensor<16xf32> past(
  %outer = chunk.lookback outer from %position : tensor<16xf32> past(%kj = %k : tensor<16x8xf32>) {
    chunk.contribute %kj, %kj : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  // CHECK: chunk.lookback outer from %position : tensor<16xf32> past({{.*}}) attributes {continued} {
  // CHECK: : tensor<8x8xf32>, tensor<8x1xf32>
  %both:2 = chunk.lookback outer from %position : tensor<16xf32> past(%kj = %k : tensor<16x8xf32>) attributes {continued} {
    %one = arith.constant dense<1.0> : tensor<16x1xf32>
    chunk.contribute %kj, %kj, %kj, %one : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x1xf32>
  } : tensor<8x8xf32>, tensor<8x1xf32>
  // CHECK: chunk.lookback sum ahead to_end past(
  // CHECK: chunk.contribute %{{.*}}, %k_j : tensor<16x16xf32>, tensor<16x8xf32> from %position_j : tensor<16xf32>
  %ahead = chunk.lookback sum ahead to_end past(%kj = %k : tensor<16x8xf32>, %j = %position : tensor<16xf32>) {
    %s = chunk.dot %q, %kj transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %kj : tensor<16x16xf32>, tensor<16x8xf32> from %j : tensor<16xf32>
  } : tensor<16x8xf32>
  // CHECK: chunk.lookback outer ahead past(
  // CHECK: chunk.contribute %k_j, %k_j : tensor<16x8xf32>, tensor<16x8xf32> from %position_j : tensor<16xf32> to %position_j : tensor<16xf32>
  %outer_ahead = chunk.lookback outer ahead past(%kj = %k : tensor<16x8xf32>, %j = %position : tensor<16xf32>) {
    chunk.contribute %kj, %kj : tensor<16x8xf32>, tensor<16x8xf32> from %j : tensor<16xf32> to %j : tensor<16xf32>
  } : tensor<8x8xf32>
  %back = arith.addf %acc, %y : tensor<16x8xf32>
  %o = arith.addf %back, %ahead : tensor<16x8xf32>
  %outers = arith.addf %outer, %outer_ahead : tensor<8x8xf32>
  %next = arith.addf %S, %outers : tensor<8x8xf32>
  chunk.yield %o, %d next %next : tensor<16x8xf32>, tensor<16xf32>, tensor<8x8xf32>
}

// A token by itself meets many others at once.
// CHECK-LABEL: chunk.kernel @one_token
chunk.kernel @one_token chunk 1 (input %q: tensor<1x8xf32>, input %k: tensor<1x8xf32>, table %position: tensor<1xf32>, valid %n: index) -> (o: tensor<1x8xf32>) {
  // CHECK: past(%k_j = %k : tensor<1x8xf32> to tensor<32x8xf32>) {
  // CHECK: chunk.contribute %{{.*}}, %k_j : tensor<1x32xf32>, tensor<32x8xf32>
  %m, %l, %acc = chunk.lookback softmax from %position : tensor<1xf32> past(%kj = %k : tensor<1x8xf32> to tensor<32x8xf32>) {
    %s = chunk.dot %q, %kj transpose_right : tensor<1x8xf32>, tensor<32x8xf32> -> tensor<1x32xf32>
    chunk.contribute %s, %kj : tensor<1x32xf32>, tensor<32x8xf32>
  } : tensor<1xf32>, tensor<1xf32>, tensor<1x8xf32>
  chunk.yield %acc : tensor<1x8xf32>
}

// Segments are walked side by side, or are the turns of a kernel.
// CHECK-LABEL: chunk.kernel @apart chunk 16 slices 2 segments apart(
// CHECK-SAME:      -> () {
chunk.kernel @apart chunk 16 slices 2 segments apart(input %k: tensor<16x8xf32>, state %S: tensor<8x8xf32>,
    valid %n: index) -> () {
  %next = chunk.dot %k, %k transpose_left add %S : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<8x8xf32>
  chunk.yield next %next : tensor<8x8xf32>
}
// CHECK-LABEL: chunk.kernel @turns chunk 16 segments turns(
chunk.kernel @turns chunk 16 segments turns(checkpoint %left: tensor<8x8xf32>, state %S: tensor<8x8xf32>,
    valid %n: index) -> (S: tensor<8x8xf32> checkpoint) {
  %next = arith.addf %S, %left : tensor<8x8xf32>
  chunk.yield %S next %next : tensor<8x8xf32>, tensor<8x8xf32>
}

// CHECK-LABEL: chunk.kernel @halves
chunk.kernel @halves chunk 16 (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>, p: tensor<16x16xf32>) {
  // CHECK: %[[M:.*]] = chunk.middle %q block 8 : tensor<16x8xf32> -> tensor<16x8xf32>
  %m = chunk.middle %q block 8 : tensor<16x8xf32> -> tensor<16x8xf32>
  // CHECK: chunk.join_halves %[[M]], %k block 4 : tensor<16x8xf32> -> tensor<16x8xf32>
  %o = chunk.join_halves %m, %k block 4 : tensor<16x8xf32> -> tensor<16x8xf32>
  %s = chunk.dot %q, %k transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  // CHECK: %[[OWN:.*]] = chunk.meet %{{.*}} else %{{.*}} block 1 : tensor<16x16xf32>
  // CHECK: chunk.meet %{{.*}} else %[[OWN]] block 16 : tensor<16x16xf32>
  // CHECK: chunk.meet %{{.*}} else %{{.*}} block 8 whole : tensor<16x16xf32>
  %own = chunk.meet %s else %zero block 1 : tensor<16x16xf32>
  %p = chunk.meet %s else %own block 16 : tensor<16x16xf32>
  %all = chunk.meet %s else %p block 8 whole : tensor<16x16xf32>
  chunk.yield %o, %p : tensor<16x8xf32>, tensor<16x16xf32>
}

// A loop over sizes halves the blocks once more in each turn.
// CHECK-LABEL: chunk.kernel @halved
chunk.kernel @halved chunk 16 (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, valid %n: index)
    -> (p: tensor<16x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  // CHECK: scf.for %[[I:[^ ]*]] =
  %p = scf.for %i = %c0 to %c4 step %c1 iter_args(%others = %zero) -> (tensor<16x16xf32>) {
    // CHECK: %[[M:.*]] = chunk.middle %q block 16 halved %[[I]] : tensor<16x8xf32> -> tensor<16x8xf32>
    %m = chunk.middle %q block 16 halved %i : tensor<16x8xf32> -> tensor<16x8xf32>
    // CHECK: chunk.join_halves %[[M]], %k block 16 halved %[[I]] : tensor<16x8xf32> -> tensor<16x8xf32>
    %j = chunk.join_halves %m, %k block 16 halved %i : tensor<16x8xf32> -> tensor<16x8xf32>
    %s = chunk.dot %j, %j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    // CHECK: %[[P:.*]] = chunk.meet %{{.*}} else %{{.*}} block 16 halved %[[I]] : tensor<16x16xf32>
    // CHECK: chunk.meet %{{.*}} else %[[P]] block 16 halved %[[I]] whole : tensor<16x16xf32>
    %own = chunk.meet %s else %others block 16 halved %i : tensor<16x16xf32>
    %all = chunk.meet %s else %own block 16 halved %i whole : tensor<16x16xf32>
    scf.yield %all : tensor<16x16xf32>
  }
  chunk.yield %p : tensor<16x16xf32>
}
