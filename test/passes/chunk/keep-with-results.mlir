// RUN: stretto-opt %s --split-input-file --stretto-keep-with-results | FileCheck %s

// The results' kernel finds the rows of its tokens, of tiles of which it makes the rest anew, and keeps them for those
// behind it. What it lacked comes with them, in front of the number of tokens.
// CHECK-NOT: _rows
// CHECK-LABEL: chunk.kernel @f_backward chunk 16 reverse earlier(input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %d_o: tensor<16x8xf32>,
// CHECK-SAME: window %k_window: tensor<16x8xf32> of "k", table %from: tensor<16xf32>, valid %n: index)
// CHECK-SAME: -> (d_q: tensor<16x8xf32>, kept.0: tensor<16xf32>, kept.1: tensor<16xf32>) {
// CHECK: %[[Q:.*]] = chunk.again %q : tensor<16x8xf32>
// CHECK: %[[D:.*]] = chunk.again %d_o : tensor<16x8xf32>
// CHECK: %[[L:.*]] = chunk.lookback sum from %{{.*}} past(%{{.*}} = %k : tensor<16x8xf32>) {
// CHECK: chunk.dot %[[Q]]
// CHECK: %[[KEPT:.*]] = chunk.reduce sum %[[D]]
// CHECK: chunk.broadcast %[[KEPT]] along rows
// CHECK: chunk.dot %q
// CHECK: chunk.yield %{{.*}}, %[[KEPT]], %{{.*}} : tensor<16x8xf32>, tensor<16xf32>, tensor<16xf32>
chunk.table @from varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @f_backward_rows chunk 16 (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %d_o: tensor<16x8xf32>,
    table %from: tensor<16xf32>, window %k_window: tensor<16x8xf32> of "k", valid %n: index) -> (kept.0: tensor<16xf32>, kept.1: tensor<16xf32>) {
  %l = chunk.lookback sum from %from : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  %delta = chunk.reduce sum %d_o over columns : tensor<16x8xf32> -> tensor<16xf32>
  %sum = chunk.reduce sum %l over columns : tensor<16x8xf32> -> tensor<16xf32>
  chunk.yield %delta, %sum : tensor<16xf32>, tensor<16xf32>
}
chunk.kernel @f_backward chunk 16 reverse earlier (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %d_o: tensor<16x8xf32>,
    input %kept.0: tensor<16xf32>, window %k_window: tensor<16x8xf32> of "k", valid %n: index) -> (d_q: tensor<16x8xf32>) {
  %numbers = chunk.broadcast %kept.0 along rows : tensor<16xf32> to tensor<16x8xf32>
  %s = chunk.dot %q, %k transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %d = chunk.dot %s, %d_o : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %d_q = arith.mulf %d, %numbers : tensor<16x8xf32>
  chunk.yield %d_q : tensor<16x8xf32>
}

// -----

// Of a walk forward that carries nothing, too; rows of the call alone it may have saved.
// CHECK-NOT: chunk.kernel @f_backward_checkpoints
// CHECK-LABEL: chunk.kernel @f_backward chunk 16 reverse earlier(
// CHECK-SAME: -> (d_q: tensor<16x8xf32>, kept.0: tensor<16xf32>)
// CHECK: chunk.kernel @g_backward_checkpoints
// CHECK: chunk.kernel @g_backward chunk 16 reverse earlier(
// CHECK-SAME: -> (d_q: tensor<16x8xf32>)
chunk.kernel @f_backward_checkpoints chunk 16 (input %d_o: tensor<16x8xf32>, valid %n: index) -> (kept.0: tensor<16xf32>) {
  %delta = chunk.reduce sum %d_o over columns : tensor<16x8xf32> -> tensor<16xf32>
  chunk.yield %delta : tensor<16xf32>
}
chunk.kernel @f_backward chunk 16 reverse earlier (input %q: tensor<16x8xf32>, input %kept.0: tensor<16xf32>, valid %n: index) -> (d_q: tensor<16x8xf32>) {
  %numbers = chunk.broadcast %kept.0 along rows : tensor<16xf32> to tensor<16x8xf32>
  %d_q = arith.mulf %q, %numbers : tensor<16x8xf32>
  chunk.yield %d_q : tensor<16x8xf32>
}
chunk.kernel @g_backward_checkpoints chunk 16 (input %q: tensor<16x8xf32>, valid %n: index) -> (kept.0: tensor<16xf32>) {
  %sum = chunk.reduce sum %q over columns : tensor<16x8xf32> -> tensor<16xf32>
  chunk.yield %sum : tensor<16xf32>
}
chunk.kernel @g_backward chunk 16 reverse earlier (input %q: tensor<16x8xf32>, input %kept.0: tensor<16xf32>, valid %n: index) -> (d_q: tensor<16x8xf32>) {
  %numbers = chunk.broadcast %kept.0 along rows : tensor<16xf32> to tensor<16x8xf32>
  %d_q = arith.mulf %q, %numbers : tensor<16x8xf32>
  chunk.yield %d_q : tensor<16x8xf32>
}

// -----

// Rows that others meet are in memory, and states of reverse time are found with rows that are kept.
// CHECK: chunk.kernel @met_backward_rows
// CHECK: chunk.kernel @read_backward_rows
chunk.table @from varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @met_backward_rows chunk 16 (input %d_o: tensor<16x8xf32>, valid %n: index) -> (kept.0: tensor<16xf32>) {
  %delta = chunk.reduce sum %d_o over columns : tensor<16x8xf32> -> tensor<16xf32>
  chunk.yield %delta : tensor<16xf32>
}
chunk.kernel @met_backward chunk 16 reverse earlier (input %q: tensor<16x8xf32>, input %kept.0: tensor<16xf32>, table %from: tensor<16xf32>,
    valid %n: index) -> (d_q: tensor<16x8xf32>) {
  %d_q = chunk.lookback sum from %from : tensor<16xf32> past(%q_j = %q : tensor<16x8xf32>, %kept_j = %kept.0 : tensor<16xf32>) {
    %s = chunk.broadcast %kept_j along columns : tensor<16xf32> to tensor<16x16xf32>
    chunk.contribute %s, %q_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  chunk.yield %d_q : tensor<16x8xf32>
}
chunk.kernel @read_backward_rows chunk 16 (input %d_o: tensor<16x8xf32>, valid %n: index) -> (kept.0: tensor<16xf32>) {
  %delta = chunk.reduce sum %d_o over columns : tensor<16x8xf32> -> tensor<16xf32>
  chunk.yield %delta : tensor<16xf32>
}
chunk.kernel @read_backward_cotangents chunk 16 reverse (input %q: tensor<16x8xf32>, input %kept.0: tensor<16xf32>, state %d_S: tensor<8x8xf32>,
    valid %n: index) -> (d_S: tensor<8x8xf32> checkpoint) {
  %next = chunk.dot %q, %q transpose_left add %d_S : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<8x8xf32>
  chunk.yield %d_S next %next : tensor<8x8xf32>, tensor<8x8xf32>
}
chunk.kernel @read_backward chunk 16 reverse earlier (input %q: tensor<16x8xf32>, input %kept.0: tensor<16xf32>, checkpoint %d_S: tensor<8x8xf32>,
    valid %n: index) -> (d_q: tensor<16x8xf32>) {
  %numbers = chunk.broadcast %kept.0 along rows : tensor<16xf32> to tensor<16x8xf32>
  %read = chunk.dot %q, %d_S : tensor<16x8xf32>, tensor<8x8xf32> -> tensor<16x8xf32>
  %d_q = arith.mulf %read, %numbers : tensor<16x8xf32>
  chunk.yield %d_q : tensor<16x8xf32>
}
