// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-keep-states{of-segments}))' | FileCheck %s

// What segments begin with is kept as it is carried, and no kernel that keeps it keeps that of each chunk.
// CHECK-LABEL: chunk.kernel @f chunk 16 slices 2(
// CHECK-SAME: -> (S: tensor<32x16xf32> group 2 sliced checkpoint, z: tensor<32xf32> checkpoint, o: tensor<16x16xbf16>)
// CHECK-NEXT: chunk.yield %S, %z, %o next %S, %z
chunk.kernel @f chunk 16 slices 2 (input %o: tensor<16x16xbf16>, state %S: tensor<32x16xf32> group 2 sliced, state %z: tensor<32xf32>, valid %n: index)
    -> (o: tensor<16x16xbf16>) {
  chunk.yield %o next %S, %z : tensor<16x16xbf16>, tensor<32x16xf32>, tensor<32xf32>
}
