// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts),stretto-plan-shared-memory,kernel.func(stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s

// A chunk that meets all before it takes the longer the later it is: chunks of 16 heads are interleaved, so that the last
// ones of all of these come first.
// CHECK-LABEL: llvm.func @growing(
// CHECK: %[[ITEM:.*]] = arith.extui
// CHECK: %[[MOST:.*]] = arith.constant 16 : i64
// CHECK: %[[ITEMS:.*]] = arith.muli %[[NUMBERS:.*]], %[[MOST]]
// CHECK: %[[IN_GROUP:.*]] = arith.remui %[[ITEM]], %[[ITEMS]]
// CHECK: %[[GROUP:.*]] = arith.divui %[[ITEM]], %[[ITEMS]]
// CHECK: %[[FIRST:.*]] = arith.muli %[[GROUP]], %[[MOST]]
// CHECK: %[[LEFT:.*]] = arith.subi %{{.*}}, %[[FIRST]]
// CHECK: %[[WIDTH:.*]] = arith.minsi %{{.*}}, %[[LEFT]]
// CHECK: arith.divui %[[IN_GROUP]], %[[WIDTH]]
// CHECK: %[[PLACE:.*]] = arith.remui %[[IN_GROUP]], %[[WIDTH]]
// CHECK: arith.addi %[[FIRST]], %[[PLACE]]
chunk.kernel @growing chunk 16 (input %q: tensor<16x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %first = arith.constant dense<0.0> : tensor<16xf32>
  %m, %l, %sum = chunk.lookback softmax from %first : tensor<16xf32> past(%q_j = %q : tensor<16x32xf32>) {
    %p = chunk.dot %q, %q_j transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
    chunk.contribute %p, %q_j : tensor<16x16xf32>, tensor<16x32xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x32xf32>
  chunk.yield %sum : tensor<16x32xf32>
}

// Blocks of a window are equally long: those of a head, which share tiles, follow each other.
// CHECK-LABEL: llvm.func @window(
// CHECK-NOT: arith.constant 16 : i64
// CHECK: %[[ITEM:.*]] = arith.extui
// CHECK: %[[NUMBERS:.*]] = arith.select
// CHECK-NEXT: arith.remui %[[ITEM]], %[[NUMBERS]]
// CHECK-NEXT: arith.divui %[[ITEM]], %[[NUMBERS]]
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @window chunk 16 (input %q: tensor<16x32xf32>, table %position: tensor<16xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %tokens = arith.constant dense<20.0> : tensor<16xf32>
  %first = arith.subf %position, %tokens : tensor<16xf32>
  %m, %l, %sum = chunk.lookback softmax from %first : tensor<16xf32> past(%q_j = %q : tensor<16x32xf32>) {
    %p = chunk.dot %q, %q_j transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
    chunk.contribute %p, %q_j : tensor<16x16xf32>, tensor<16x32xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x32xf32>
  chunk.yield %sum : tensor<16x32xf32>
}
