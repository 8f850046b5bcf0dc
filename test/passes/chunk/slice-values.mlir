// RUN: stretto-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(chunk.kernel(stretto-slice-values{slices=2}))' | FileCheck %s

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

// A norm over the output mixes its columns.

chunk.kernel @norm chunk 16 (input %v: tensor<16x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
  // expected-error @+1 {{the kernel 'norm' cannot be divided into 2 slices: it reduces over the divided axis}}
  %s = chunk.reduce sum %v over columns : tensor<16x64xf32> -> tensor<16xf32>
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
