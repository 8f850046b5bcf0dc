// RUN: stretto-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(chunk.kernel(stretto-divide-matrices{columns=32},canonicalize,cse))' | FileCheck %s

// Products with panels stand side by side, or are summed where their columns are. What changes a state changes its
// panels; the last may be narrower. Tiles of few rows stay whole, and so do matrices with as many columns as a panel.
// CHECK-LABEL: chunk.kernel @products chunk 16(
// CHECK-SAME:      parameter %w: tensor<64x32xf32> of "w" column 0 columns 80, parameter %w$32: tensor<64x32xf32> of "w" column 32 columns 80,
// CHECK-SAME:      parameter %w$64: tensor<64x16xf32> of "w" column 64 columns 80, parameter %narrow: tensor<64x32xf32>,
// CHECK-SAME:      state %S: tensor<64x32xf32> of "S" column 0 columns 81, state %S$32: tensor<64x32xf32> of "S" column 32 columns 81,
// CHECK-SAME:      state %S$64: tensor<64x16xf32> of "S" column 64 columns 81, state %tail: tensor<3x64xf32>,
// CHECK-SAME:      checkpoint %R: tensor<64x32xf32>, checkpoint %R$32: tensor<64x32xf32>, checkpoint %R$64: tensor<64x16xf32>,
// CHECK-SAME:      -> (o: tensor<16x64xf32>, l: tensor<64xf32> checkpoint, S: tensor<64x32xf32> checkpoint, S$32: tensor<64x32xf32> checkpoint, S$64: tensor<64x16xf32> checkpoint)
// CHECK:         %[[X0:.*]] = chunk.dot %x, %w : {{.*}} -> tensor<16x32xf32>
// CHECK-NEXT:    %[[X1:.*]] = chunk.dot %x, %w$32 : {{.*}} -> tensor<16x32xf32>
// CHECK-NEXT:    %[[X2:.*]] = chunk.dot %x, %w$64 : {{.*}} -> tensor<16x16xf32>
// CHECK-NEXT:    %[[O0:.*]] = chunk.dot %[[X0]], %S transpose_right : {{.*}} -> tensor<16x64xf32>
// CHECK-NEXT:    %[[O1:.*]] = chunk.dot %[[X1]], %S$32 transpose_right add %[[O0]] : {{.*}} -> tensor<16x64xf32>
// CHECK-NEXT:    %[[O2:.*]] = chunk.dot %[[X2]], %S$64 transpose_right add %[[O1]] : {{.*}} -> tensor<16x64xf32>
// CHECK:         chunk.dot %[[O2]], %narrow
// CHECK:         %[[D0:.*]] = chunk.decay_state %S log %g along rows : tensor<64x32xf32>
// CHECK-NEXT:    %[[D1:.*]] = chunk.decay_state %S$32 log %g along rows : tensor<64x32xf32>
// CHECK-NEXT:    %[[D2:.*]] = chunk.decay_state %S$64 log %g along rows : tensor<64x16xf32>
// CHECK-NEXT:    %[[N0:.*]] = chunk.dot %x, %[[X0]] transpose_left add %[[D0]] : {{.*}} -> tensor<64x32xf32>
// CHECK-NEXT:    %[[N1:.*]] = chunk.dot %x, %[[X1]] transpose_left add %[[D1]] : {{.*}} -> tensor<64x32xf32>
// CHECK-NEXT:    %[[N2:.*]] = chunk.dot %x, %[[X2]] transpose_left add %[[D2]] : {{.*}} -> tensor<64x16xf32>
// CHECK:         %[[P0:.*]] = arith.mulf %S, %R : tensor<64x32xf32>
// CHECK:         %[[L0:.*]] = chunk.reduce sum %[[P0]] over columns : tensor<64x32xf32> -> tensor<64xf32>
// CHECK:         %[[L1:.*]] = arith.addf %[[L0]], %{{.*}} : tensor<64xf32>
// CHECK:         arith.addf %[[L1]], %{{.*}} : tensor<64xf32>
// CHECK:         chunk.yield %{{.*}}, %{{.*}}, %S, %S$32, %S$64 next %[[N0]], %[[N1]], %[[N2]], %tail
chunk.kernel @products chunk 16 (input %x: tensor<16x64xf32>, input %g: tensor<16xf32>, parameter %w: tensor<64x80xf32>,
                                 parameter %narrow: tensor<64x32xf32>, state %S: tensor<64x80xf32> of "S" column 0 columns 81,
                                 state %tail: tensor<3x64xf32>, checkpoint %R: tensor<64x80xf32>, valid %n: index)
    -> (o: tensor<16x64xf32>, l: tensor<64xf32> checkpoint, S: tensor<64x80xf32> checkpoint) {
  %xw = chunk.dot %x, %w : tensor<16x64xf32>, tensor<64x80xf32> -> tensor<16x80xf32>
  %read = chunk.dot %xw, %S transpose_right : tensor<16x80xf32>, tensor<64x80xf32> -> tensor<16x64xf32>
  %n32 = chunk.dot %read, %narrow : tensor<16x64xf32>, tensor<64x32xf32> -> tensor<16x32xf32>
  %o = chunk.concat %n32, %n32 : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x64xf32>
  %decayed = chunk.decay_state %S log %g along rows : tensor<64x80xf32>, tensor<16xf32>
  %next = chunk.dot %x, %xw transpose_left add %decayed : tensor<16x64xf32>, tensor<16x80xf32> -> tensor<64x80xf32>
  %pair = arith.mulf %S, %R : tensor<64x80xf32>
  %l = chunk.reduce sum %pair over columns : tensor<64x80xf32> -> tensor<64xf32>
  chunk.yield %o, %l, %S next %next, %tail : tensor<16x64xf32>, tensor<64xf32>, tensor<64x80xf32>, tensor<64x80xf32>, tensor<3x64xf32>
}

// -----

// What is not done to columns one by one takes the matrix as a whole.
// CHECK-LABEL: chunk.kernel @whole
// CHECK:         %[[S:.*]] = chunk.concat %S, %S$32 : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
// CHECK:         chunk.dot %[[S]], %x transpose_left transpose_right : {{.*}} -> tensor<64x16xf32>
chunk.kernel @whole chunk 16 (input %x: tensor<16x64xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<16xf32>) {
  %read = chunk.dot %S, %x transpose_left transpose_right : tensor<64x64xf32>, tensor<16x64xf32> -> tensor<64x16xf32>
  %o = chunk.reduce sum %read over rows : tensor<64x16xf32> -> tensor<16xf32>
  chunk.yield %o next %S : tensor<16xf32>, tensor<64x64xf32>
}

// -----

// A sum of outer products over the tokens of a look-back becomes one for each panel.
// CHECK-LABEL: chunk.kernel @outer
// CHECK:         %[[A0:.*]] = chunk.lookback outer
// CHECK:           %[[C0:.*]] = chunk.columns %{{.*}} from 0 : tensor<16x64xf32> -> tensor<16x32xf32>
// CHECK:           chunk.contribute %{{.*}}, %[[C0]]
// CHECK:         } : tensor<64x32xf32>
// CHECK:         %[[A1:.*]] = chunk.lookback outer
// CHECK:           %[[C1:.*]] = chunk.columns %{{.*}} from 32 : tensor<16x64xf32> -> tensor<16x32xf32>
// CHECK:           chunk.contribute %{{.*}}, %[[C1]]
// CHECK:         } : tensor<64x32xf32>
// CHECK:         %[[N0:.*]] = arith.addf %S, %[[A0]]
// CHECK:         %[[N1:.*]] = arith.addf %S$32, %[[A1]]
// CHECK:         chunk.yield %x next %[[N0]], %[[N1]]
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @outer chunk 16 (input %x: tensor<16x64xf32>, table %position: tensor<16xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<16x64xf32>) {
  %sum = chunk.lookback outer from %position to %position : tensor<16xf32> past(%x_j = %x : tensor<16x64xf32>) {
    chunk.contribute %x_j, %x_j : tensor<16x64xf32>, tensor<16x64xf32>
  } : tensor<64x64xf32>
  %next = arith.addf %S, %sum : tensor<64x64xf32>
  chunk.yield %x next %next : tensor<16x64xf32>, tensor<64x64xf32>
}

// -----

// One column is no matrix that a product leaves: it gets some of the columns before it.
// CHECK-LABEL: chunk.kernel @remainder
// CHECK-SAME:      state %S: tensor<64x32xf32> of "S" column 0 columns 65, state %S$32: tensor<64x28xf32> of "S" column 32 columns 65,
// CHECK-SAME:      state %S$60: tensor<64x5xf32> of "S" column 60 columns 65,
// CHECK:         chunk.dot %x, %S$32 : {{.*}} -> tensor<16x28xf32>
// CHECK:         chunk.dot %x, %S$60 : {{.*}} -> tensor<16x5xf32>
chunk.kernel @remainder chunk 16 (input %x: tensor<16x64xf32>, state %S: tensor<64x65xf32>, valid %n: index)
    -> (o: tensor<16x65xf32>) {
  %o = chunk.dot %x, %S : tensor<16x64xf32>, tensor<64x65xf32> -> tensor<16x65xf32>
  chunk.yield %o next %S : tensor<16x65xf32>, tensor<64x65xf32>
}

// -----

// A sum that is no wide matrix, beside one that is, meets the panels of what its tokens meet.
// CHECK-LABEL: chunk.kernel @narrow_beside_wide
// CHECK-SAME:      parameter %w: tensor<64x32xf32> {{.*}}, parameter %w$32: tensor<64x32xf32>
// CHECK-COUNT-2: chunk.lookback outer
// CHECK:         %[[NARROW:.*]] = chunk.lookback outer
// CHECK:           %[[Y0:.*]] = chunk.dot %{{.*}}, %w :
// CHECK:           %[[Y1:.*]] = chunk.dot %{{.*}}, %w$32 :
// CHECK:           %[[Y:.*]] = chunk.concat %[[Y0]], %[[Y1]]
// CHECK:           chunk.contribute %[[Y]], %{{.*}} : tensor<16x64xf32>, tensor<16x1xf32>
// CHECK:         } : tensor<64x1xf32>
// CHECK:         chunk.yield %x next %{{.*}}, %{{.*}}, %[[NARROW]]
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @narrow_beside_wide chunk 16 (input %x: tensor<16x64xf32>, table %position: tensor<16xf32>,
    parameter %w: tensor<64x64xf32>, state %S: tensor<64x64xf32>, state %z: tensor<64x1xf32>, valid %n: index)
    -> (o: tensor<16x64xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x1xf32>
  %sums:2 = chunk.lookback outer from %position to %position : tensor<16xf32> past(%x_j = %x : tensor<16x64xf32>) {
    %y = chunk.dot %x_j, %w : tensor<16x64xf32>, tensor<64x64xf32> -> tensor<16x64xf32>
    chunk.contribute %y, %x_j, %y, %one : tensor<16x64xf32>, tensor<16x64xf32>, tensor<16x64xf32>, tensor<16x1xf32>
  } : tensor<64x64xf32>, tensor<64x1xf32>
  chunk.yield %x next %sums#0, %sums#1 : tensor<16x64xf32>, tensor<64x64xf32>, tensor<64x1xf32>
}

// -----

// What segments have left in a state is called after its panels, of which each lies by itself.
// CHECK-LABEL: chunk.kernel @turns chunk 16 segments turns(
// CHECK-SAME:      checkpoint %S.left: tensor<64x32xf32>, checkpoint %S$32.left: tensor<64x32xf32>,
// CHECK-SAME:      state %S: tensor<64x32xf32> of "S" column 0 columns 64, state %S$32: tensor<64x32xf32> of "S" column 32 columns 64,
chunk.kernel @turns chunk 16 segments turns (checkpoint %S.left: tensor<64x64xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (S: tensor<64x64xf32> checkpoint) {
  %next = arith.addf %S, %S.left : tensor<64x64xf32>
  chunk.yield %S next %next : tensor<64x64xf32>, tensor<64x64xf32>
}
