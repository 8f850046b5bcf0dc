// RUN: stretto-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(stretto-slice-values{slices=2})' | FileCheck %s

// The columns of the output are divided, and of all that they come from. Scores, and the sum over them, are computed by
// each slice; a column of a state of the same entry is too.

// CHECK-LABEL: chunk.kernel @values chunk 16 slices 2(
// CHECK-SAME:      input %k: tensor<16x8xf32>, input %v: tensor<16x32xf32> sliced, parameter %b: tensor<32xf32> sliced,
// CHECK-SAME:      state %S: tensor<8x32xf32> sliced of "S" column 0 columns 65, state %z: tensor<8xf32> of "S" column 64 columns 65,
// CHECK-SAME:      -> (o: tensor<16x32xf32> sliced, l: tensor<16xf32>)
// CHECK-NEXT:    %[[P:.*]] = chunk.dot %k, %k transpose_right : {{.*}} -> tensor<16x16xf32>
// CHECK-NEXT:    %[[OLD:.*]] = chunk.dot %k, %S : tensor<16x8xf32>, tensor<8x32xf32> -> tensor<16x32xf32>
// CHECK-NEXT:    %[[NEW:.*]] = chunk.dot %[[P]], %v add %[[OLD]] : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
// CHECK-NEXT:    %[[B:.*]] = chunk.broadcast %b along columns : tensor<32xf32> to tensor<16x32xf32>
// CHECK-NEXT:    %[[O:.*]] = arith.addf %[[NEW]], %[[B]] : tensor<16x32xf32>
// CHECK-NEXT:    %[[L:.*]] = chunk.reduce sum %[[P]] over columns : tensor<16x16xf32> -> tensor<16xf32>
// CHECK-NEXT:    %[[S:.*]] = chunk.dot %k, %v transpose_left add %S : {{.*}} -> tensor<8x32xf32>
// CHECK-NEXT:    chunk.yield %[[O]], %[[L]] next %[[S]], %z
chunk.kernel @values chunk 16 (input %k: tensor<16x8xf32>, input %v: tensor<16x64xf32>, parameter %b: tensor<64xf32>,
                               state %S: tensor<8x64xf32> of "S" column 0 columns 65,
                               state %z: tensor<8xf32> of "S" column 64 columns 65, valid %n: index)
    -> (o: tensor<16x64xf32>, l: tensor<16xf32>) {
  %p = chunk.dot %k, %k transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %0 = chunk.dot %k, %S : tensor<16x8xf32>, tensor<8x64xf32> -> tensor<16x64xf32>
  %1 = chunk.dot %p, %v add %0 : tensor<16x16xf32>, tensor<16x64xf32> -> tensor<16x64xf32>
  %bs = chunk.broadcast %b along columns : tensor<64xf32> to tensor<16x64xf32>
  %o = arith.addf %1, %bs : tensor<16x64xf32>
  %l = chunk.reduce sum %p over columns : tensor<16x16xf32> -> tensor<16xf32>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<16x8xf32>, tensor<16x64xf32> -> tensor<8x64xf32>
  chunk.yield %o, %l next %next, %z : tensor<16x64xf32>, tensor<16xf32>, tensor<8x64xf32>, tensor<8xf32>
}

// -----

// A norm over the output mixes its columns: only parts of it are known.

chunk.kernel @norm chunk 16 (input %v: tensor<16x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
  %s = chunk.reduce sum %v over columns : tensor<16x64xf32> -> tensor<16xf32>
  // expected-error @+1 {{the kernel 'norm' cannot be divided into 2 slices: it multiplies a sum over the divided axis with what is divided}}
  %ss = chunk.broadcast %s along rows : tensor<16xf32> to tensor<16x64xf32>
  %y = arith.divf %v, %ss : tensor<16x64xf32>
  chunk.yield %y : tensor<16x64xf32>
}

// -----

// Rows that are mixed or solved for are divided, the weights between tokens are not.

// CHECK-LABEL: chunk.kernel @rows chunk 16 slices 2(
// CHECK-SAME:      input %w: tensor<16x16xf32>, input %v: tensor<16x32xf32> sliced, input %g: tensor<16x32xf32> sliced,
// CHECK-NEXT:    chunk.decay_mix %w, %v log %g add %v : tensor<16x16xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
// CHECK-NEXT:    chunk.solve %w, %{{.*}} : tensor<16x16xf32>, tensor<16x32xf32>
// CHECK-NEXT:    chunk.scan add %{{.*}} from %L : tensor<16x32xf32>, tensor<1x32xf32>
chunk.kernel @rows chunk 16 (input %w: tensor<16x16xf32>, input %v: tensor<16x64xf32>, input %g: tensor<16x64xf32>,
                             state %L: tensor<1x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
  %m = chunk.decay_mix %w, %v log %g add %v : tensor<16x16xf32>, tensor<16x64xf32>, tensor<16x64xf32> -> tensor<16x64xf32>
  %s = chunk.solve %w, %m : tensor<16x16xf32>, tensor<16x64xf32>
  %o = chunk.scan add %s from %L : tensor<16x64xf32>, tensor<1x64xf32>
  %next = chunk.tail %o valid %n after %L : tensor<16x64xf32>, tensor<1x64xf32>
  chunk.yield %o next %next : tensor<16x64xf32>, tensor<1x64xf32>
}

// -----

chunk.kernel @weights chunk 16 (input %v: tensor<16x16xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  // expected-error @+1 {{the kernel 'weights' cannot be divided into 2 slices: its matrix meets the divided axis}}
  %y = chunk.solve %v, %v : tensor<16x16xf32>, tensor<16x16xf32>
  chunk.yield %y : tensor<16x16xf32>
}

// -----

// A gradient: the columns of the cotangent's state are divided, and so is its output. What is summed over them, each
// slice has a part of, which is no longer rounded; what every slice has whole, an earlier cotangent here, is divided by
// the slices where it joins a part. The state that carries a part is in parts, too.

// CHECK-LABEL: chunk.kernel @keep chunk 16 slices 2(
// CHECK-SAME:      input %v: tensor<16x32xf32> sliced, state %S: tensor<8x32xf32> sliced of "S" column 0 columns 64, state %t: tensor<3x8xf32>, valid
// CHECK-SAME:      -> (S: tensor<8x32xf32> sliced checkpoint, t: tensor<3x8xf32> checkpoint)
// CHECK-LABEL: chunk.kernel @gradient chunk 16 reverse slices 2(
// CHECK-SAME:      input %d_o: tensor<16x32xf32> sliced, input %d_p: tensor<16x8xf32>,
// CHECK-SAME:      checkpoint %S: tensor<8x32xf32> sliced, checkpoint %t: tensor<3x8xf32>, state %d_S: tensor<8x32xf32> sliced of "d_S" column 0 columns 64,
// CHECK-SAME:      state %d_z: tensor<8xf32> partial, valid
// CHECK-SAME:      -> (d_q: tensor<16x8xf32> partial, d_v: tensor<16x32xbf16> sliced)
// CHECK:         %[[PART:.*]] = chunk.dot %d_o, %S transpose_right : tensor<16x32xf32>, tensor<8x32xf32> -> tensor<16x8xf32>
// CHECK:         %[[HALF:.*]] = arith.constant dense<5.000000e-01> : tensor<16x8xf32>
// CHECK:         %[[SHARE:.*]] = arith.mulf %d_p, %[[HALF]]
// CHECK:         %[[Q:.*]] = arith.addf %[[PART]], %[[SHARE]]
// CHECK:         %[[Z:.*]] = chunk.reduce sum %[[Q]] over rows
// CHECK:         %[[NEXT:.*]] = arith.addf %[[Z]], %d_z
// CHECK:         %[[V:.*]] = chunk.dot %k, %d_S : tensor<16x8xf32>, tensor<8x32xf32> -> tensor<16x32xf32>
// CHECK:         chunk.yield %[[Q]], %{{.*}} next %{{.*}}, %[[NEXT]] :
chunk.kernel @keep chunk 16 (input %k: tensor<16x8xf32>, input %v: tensor<16x64xf32>, state %S: tensor<8x64xf32>,
                             state %t: tensor<3x8xf32>, valid %n: index)
    -> (S: tensor<8x64xf32> checkpoint, t: tensor<3x8xf32> checkpoint) {
  %next = chunk.dot %k, %v transpose_left add %S : tensor<16x8xf32>, tensor<16x64xf32> -> tensor<8x64xf32>
  %rows = chunk.tail %k valid %n after %t : tensor<16x8xf32>, tensor<3x8xf32>
  chunk.yield %S, %t next %next, %rows : tensor<8x64xf32>, tensor<3x8xf32>, tensor<8x64xf32>, tensor<3x8xf32>
}
chunk.kernel @gradient chunk 16 reverse (input %k: tensor<16x8xf32>, input %d_o: tensor<16x64xf32>,
                                         input %d_p: tensor<16x8xf32>, checkpoint %S: tensor<8x64xf32>,
                                         checkpoint %t: tensor<3x8xf32>, state %d_S: tensor<8x64xf32>,
                                         state %d_z: tensor<8xf32>, valid %n: index)
    -> (d_q: tensor<16x8xbf16>, d_v: tensor<16x64xbf16>) {
  %part = chunk.dot %d_o, %S transpose_right : tensor<16x64xf32>, tensor<8x64xf32> -> tensor<16x8xf32>
  %q = arith.addf %part, %d_p : tensor<16x8xf32>
  %q16 = arith.truncf %q : tensor<16x8xf32> to tensor<16x8xbf16>
  %sum = chunk.reduce sum %q over rows : tensor<16x8xf32> -> tensor<8xf32>
  %z = arith.addf %sum, %d_z : tensor<8xf32>
  %v = chunk.dot %k, %d_S : tensor<16x8xf32>, tensor<8x64xf32> -> tensor<16x64xf32>
  %v16 = arith.truncf %v : tensor<16x64xf32> to tensor<16x64xbf16>
  %s = chunk.dot %k, %d_o transpose_left add %d_S : tensor<16x8xf32>, tensor<16x64xf32> -> tensor<8x64xf32>
  chunk.yield %q16, %v16 next %s, %z : tensor<16x8xbf16>, tensor<16x64xbf16>, tensor<8x64xf32>, tensor<8xf32>
}

// -----

chunk.kernel @maximum chunk 16 (input %v: tensor<16x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>, m: tensor<16xf32>) {
  // expected-error @+1 {{the kernel 'maximum' cannot be divided into 2 slices: it reduces over the divided axis}}
  %m = chunk.reduce max %v over columns : tensor<16x64xf32> -> tensor<16xf32>
  chunk.yield %v, %m : tensor<16x64xf32>, tensor<16xf32>
}

// -----

chunk.kernel @parts chunk 16 reverse (input %v: tensor<16x64xf32>, state %S: tensor<8x64xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>) {
  %p = chunk.dot %v, %S transpose_right : tensor<16x64xf32>, tensor<8x64xf32> -> tensor<16x8xf32>
  // expected-error @+1 {{the kernel 'parts' cannot be divided into 2 slices: it is not linear in a sum over the divided axis}}
  %y = math.exp %p : tensor<16x8xf32>
  chunk.yield %y next %S : tensor<16x8xf32>, tensor<8x64xf32>
}

// -----

chunk.kernel @products chunk 16 reverse (input %v: tensor<16x64xf32>, state %S: tensor<8x64xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>) {
  %p = chunk.dot %v, %S transpose_right : tensor<16x64xf32>, tensor<8x64xf32> -> tensor<16x8xf32>
  // expected-error @+1 {{cannot be divided into 2 slices: it multiplies a sum over the divided axis with what is divided}}
  %y = arith.mulf %p, %p : tensor<16x8xf32>
  chunk.yield %y next %S : tensor<16x8xf32>, tensor<8x64xf32>
}

// -----

chunk.kernel @result chunk 16 (input %v: tensor<16x64xf32>, input %x: tensor<16x64xf32>, valid %n: index)
    -> (o: tensor<16x64xf32>, l: tensor<16xf32>) {
  %o = arith.mulf %v, %x : tensor<16x64xf32>
  %l = chunk.reduce sum %o over columns : tensor<16x64xf32> -> tensor<16xf32>
  // expected-error @+1 {{cannot be divided into 2 slices: its output 'l' is a sum over the divided axis}}
  chunk.yield %o, %l : tensor<16x64xf32>, tensor<16xf32>
}

// -----

// Of segments that are walked side by side, what finds their starts divides the states that the results divide; another
// state, and the decays, every slice has whole.

// CHECK-LABEL: chunk.kernel @apart chunk 16 slices 2 segments apart(
// CHECK-SAME:      input %v: tensor<16x32xf32> sliced, state %S: tensor<8x32xf32> sliced of "S" column 0 columns 64, state %z: tensor<8xf32>,
chunk.kernel @apart chunk 16 segments apart(input %q: tensor<16x8xf32>, input %v: tensor<16x64xf32>,
    state %S: tensor<8x64xf32>, state %z: tensor<8xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
  %x = chunk.dot %q, %S add %v : tensor<16x8xf32>, tensor<8x64xf32> -> tensor<16x64xf32>
  chunk.yield %x next %S, %z : tensor<16x64xf32>, tensor<8x64xf32>, tensor<8xf32>
}
// CHECK-LABEL: chunk.kernel @apart_writes chunk 16 slices 2 segments apart(
// CHECK-SAME:      input %k: tensor<16x8xf32>, input %v: tensor<16x32xf32> sliced, state %S: tensor<8x32xf32> sliced
chunk.kernel @apart_writes chunk 16 segments apart(input %k: tensor<16x8xf32>, input %v: tensor<16x64xf32>,
    state %S: tensor<8x64xf32>, state %S.decay: tensor<8xf32>, valid %n: index) -> () {
  %next = chunk.dot %k, %v transpose_left add %S : tensor<16x8xf32>, tensor<16x64xf32> -> tensor<8x64xf32>
  chunk.yield next %next, %S.decay : tensor<8x64xf32>, tensor<8xf32>
}
// CHECK-LABEL: chunk.kernel @apart_starts chunk 16 slices 2 segments turns(
// CHECK-SAME:      checkpoint %S.left: tensor<8x32xf32> sliced, checkpoint %S.decay: tensor<8xf32>,
// CHECK-SAME:      checkpoint %z.left: tensor<8xf32>, state %S: tensor<8x32xf32> sliced of "S" column 0 columns 64, state %z: tensor<8xf32>,
// CHECK-SAME:      -> (S: tensor<8x32xf32> sliced checkpoint, z: tensor<8xf32> checkpoint) {
chunk.kernel @apart_starts chunk 16 segments turns(checkpoint %S.left: tensor<8x64xf32>,
    checkpoint %S.decay: tensor<8xf32>, checkpoint %z.left: tensor<8xf32>, state %S: tensor<8x64xf32>,
    state %z: tensor<8xf32>, valid %n: index) -> (S: tensor<8x64xf32> checkpoint, z: tensor<8xf32> checkpoint) {
  %f = chunk.broadcast %S.decay along rows : tensor<8xf32> to tensor<8x64xf32>
  %kept = arith.mulf %S, %f : tensor<8x64xf32>
  %S1 = arith.addf %kept, %S.left : tensor<8x64xf32>
  %z1 = arith.addf %z, %z.left : tensor<8xf32>
  chunk.yield %S, %z next %S1, %z1 : tensor<8x64xf32>, tensor<8xf32>, tensor<8x64xf32>, tensor<8xf32>
}

// -----

// A constant that nobody asks for.
// CHECK-LABEL: chunk.kernel @unused chunk 16 slices 2(
chunk.kernel @unused chunk 16 (input %v: tensor<16x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
  %0 = arith.constant dense<0.0> : tensor<16x64xf32>
  chunk.yield %v : tensor<16x64xf32>
}
