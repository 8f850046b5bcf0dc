// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay{warps=8},cse))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay,cse))' | FileCheck %s --check-prefix=APART

// Where four lanes have all tokens of a channel they add up logarithms by themselves, and know the sum of all; without
// warpgroups sums are products with ones in a triangle, and the last of them is a row.
// CHECK-LABEL: chunk.kernel @tokens
// CHECK: %[[G:.*]] = arith.maximumf
// CHECK: %[[SUMS:.*]] = chunk.accumulate sum %[[G]] : tensor<32x128xf32>
// CHECK: chunk.total %[[SUMS]]
// CHECK-NOT: chunk.row
// CHECK: chunk.yield
// APART-LABEL: chunk.kernel @tokens
// APART-NOT: chunk.accumulate
// APART: chunk.dot
// APART: chunk.row %{{.*}} at 31
chunk.kernel @tokens chunk 32 reverse (input %k: tensor<32x128xbf16>, input %v: tensor<32x16xbf16>, input %g: tensor<32x128xbf16>,
    state %S: tensor<128x16xf32>, valid %n: index) -> (o: tensor<32x16xf32>, p: tensor<32x32xf32>) {
  %k32 = arith.extf %k : tensor<32x128xbf16> to tensor<32x128xf32>
  %v32 = arith.extf %v : tensor<32x16xbf16> to tensor<32x16xf32>
  %g32 = arith.extf %g : tensor<32x128xbf16> to tensor<32x128xf32>
  %kd = chunk.decay_to_end %k32 log %g32 : tensor<32x128xf32>, tensor<32x128xf32>
  %p = chunk.decay_dot %k32, %k32 log %g32 : tensor<32x128xf32>, tensor<32x128xf32>, tensor<32x128xf32> -> tensor<32x32xf32>
  %o = chunk.dot %kd, %S : tensor<32x128xf32>, tensor<128x16xf32> -> tensor<32x16xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<128x16xf32>, tensor<32x128xf32>
  %kf = chunk.decay_from_start %k32 log %g32 : tensor<32x128xf32>, tensor<32x128xf32>
  %next = chunk.dot %kf, %v32 transpose_left add %s : tensor<32x128xf32>, tensor<32x16xf32> -> tensor<128x16xf32>
  chunk.yield %o, %p next %next : tensor<32x16xf32>, tensor<32x32xf32>, tensor<128x16xf32>
}
