// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-plan-shared-memory,stretto-insert-barriers),stretto-lower-to-threads,llvm.func(canonicalize,cse))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads,llvm.func(canonicalize,cse))' | FileCheck %s --check-prefix=BOXES

// A checkpoint is read where its chunk has tokens and is one of the range, before its start and behind its end not:
// segments of a packed batch that are not of the range have a chunk behind it.
// CHECK-LABEL: llvm.func @walks_back
// CHECK: %[[TOKENS:.*]] = arith.cmpi sgt, %{{.*}}, %c0_i32 : i32
// CHECK: %[[RANGE:.*]] = arith.cmpi ult, %{{.*}}, %{{.*}} : i64
// CHECK: arith.andi %[[TOKENS]], %[[RANGE]]
// Of one that is copied in boxes, all rows of the number that it has; one that does not exist has a number before all.
// BOXES-LABEL: llvm.func @walks_back
// BOXES: nvvm.mbarrier.arrive.expect_tx %{{.*}}, %c4096_i32
// BOXES: %[[TOKENS:.*]] = arith.cmpi sgt, %{{.*}}, %c0_i32 : i32
// BOXES: %[[RANGE:.*]] = arith.cmpi ult, %{{.*}}, %{{.*}} : i64
// BOXES: %[[EXISTS:.*]] = arith.andi %[[TOKENS]], %[[RANGE]]
// BOXES: %[[NUMBER:.*]] = arith.trunci
// BOXES-NEXT: %[[PLACE:.*]] = arith.select %[[EXISTS]], %[[NUMBER]], %c-1_i32
// BOXES: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} box[%c0_i32, %{{.*}}, %c0_i32, %[[PLACE]]]
chunk.kernel @walks_back chunk 16 reverse segments apart (input %x: tensor<16x32xf32>, checkpoint %S: tensor<32x32xf32>,
    state %d: tensor<32x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %o = chunk.dot %x, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %d1 = chunk.dot %x, %o transpose_left add %d : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  chunk.yield %o next %d1 : tensor<16x32xf32>, tensor<32x32xf32>
}
