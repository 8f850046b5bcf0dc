// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-keep-states))' | FileCheck %s

// Of inputs in bf16 matrices are kept in bf16, as products read them, vectors as they are.
// CHECK-LABEL: chunk.kernel @rounded chunk 16 slices 2 recorded(
// CHECK-SAME: -> (S: tensor<32x16xbf16> group 2 sliced checkpoint, z: tensor<32xf32> checkpoint, o: tensor<16x16xbf16>)
// CHECK: %[[KEPT:.*]] = arith.truncf %S : tensor<32x16xf32> to tensor<32x16xbf16>
// CHECK: chunk.yield %[[KEPT]], %z, %o next %S, %z
chunk.kernel @rounded chunk 16 slices 2 (input %o: tensor<16x16xbf16>, state %S: tensor<32x16xf32> group 2 sliced, state %z: tensor<32xf32>, valid %n: index)
    -> (o: tensor<16x16xbf16>) {
  chunk.yield %o next %S, %z : tensor<16x16xbf16>, tensor<32x16xf32>, tensor<32xf32>
}

// All else is kept as it is.
// CHECK-LABEL: chunk.kernel @whole chunk 16 recorded(
// CHECK-SAME: -> (S: tensor<32x16xf32> checkpoint, o: tensor<16x16xf16>)
// CHECK-NEXT: chunk.yield %S, %o next %S
chunk.kernel @whole chunk 16 (input %o: tensor<16x16xf16>, state %S: tensor<32x16xf32>, valid %n: index)
    -> (o: tensor<16x16xf16>) {
  chunk.yield %o next %S : tensor<16x16xf16>, tensor<32x16xf32>
}
