// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads,llvm.func(canonicalize,cse))' | FileCheck %s

// Bounds that are one number threads do not ask each other for. All tokens of a chunk see all of another only if they
// exist; before each tile nothing is asked but whether that is so.
// CHECK-LABEL: llvm.func @looks_back
// CHECK: %[[FIRST:.*]] = arith.minnumf
// CHECK-NOT: nvvm.shfl
// CHECK: %[[EXIST:.*]] = arith.cmpi eq, %{{.*}}, %c16_i32 : i32
// CHECK-NEXT: arith.select %[[EXIST]]
// CHECK-NOT: nvvm.shfl
// CHECK: scf.for %[[OTHER:.*]] = %{{.*}} iter_args
// CHECK: %[[BEHIND:.*]] = arith.cmpi sge, %[[OTHER]]
// CHECK: %[[BEFORE:.*]] = arith.cmpi slt, %[[OTHER]]
// CHECK: %[[WHOLE:.*]] = arith.andi %[[BEHIND]], %[[BEFORE]]
// CHECK-NOT: arith.cmpi
// CHECK: scf.if %[[WHOLE]]
// CHECK-NEXT: scf.yield
// CHECK-NEXT: } else {
// CHECK: arith.cmpi
chunk.kernel @looks_back chunk 16 (input %k: tensor<16x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
  %first = arith.constant dense<0.0> : tensor<16xf32>
  %m, %l, %acc = chunk.lookback softmax from %first : tensor<16xf32> past(%k_j = %k : tensor<16x64xf32>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x64xf32>, tensor<16x64xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x64xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x64xf32>
  chunk.yield %acc : tensor<16x64xf32>
}
