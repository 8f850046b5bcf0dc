// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts),stretto-plan-shared-memory,kernel.func(stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s

// Where chunks are items of their own those of 16 heads, or of pairs of sequences and heads, are interleaved: the last
// chunks, which meet most others, of all of them come first. Of packed sequences the heads of all are.
// CHECK-LABEL: llvm.func @f(
// CHECK: %[[ITEM:.*]] = nvvm.read.ptx.sreg.ctaid.x
// CHECK: %[[PACKED:.*]] = arith.cmpi ne
// CHECK: %[[ROWS:.*]] = arith.select %[[PACKED]], %[[HEADS:.*]], %{{.*}} : i32
// CHECK: %[[OF_GROUP:.*]] = arith.muli %{{.*}}, %[[MOST:c16.*]] : i32
// CHECK: %[[GROUP:.*]] = arith.divui %[[ITEM]], %[[OF_GROUP]]
// CHECK: %[[FIRST:.*]] = arith.muli %[[GROUP]], %[[MOST]]
// CHECK: %[[IN_GROUP:.*]] = arith.remui %[[ITEM]], %[[OF_GROUP]]
// CHECK: %[[LEFT:.*]] = arith.subi %[[ROWS]], %[[FIRST]]
// CHECK: %[[WIDTH:.*]] = arith.minsi %[[MOST]], %[[LEFT]]
// CHECK: %[[PLACE:.*]] = arith.remui %[[IN_GROUP]], %[[WIDTH]]
// CHECK: %[[ROW:.*]] = arith.addi %[[FIRST]], %[[PLACE]]
// CHECK: arith.divui %[[IN_GROUP]], %[[WIDTH]]
// CHECK: arith.remui %[[ROW]], %[[HEADS]]
chunk.kernel @f chunk 16 (input %x: tensor<16x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %o = arith.addf %x, %x : tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}
