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

// So they do in a walk forwards that keeps states for a gradient: from the last token to the first, once for keys and for
// the state. What a segment decays by is the same sum.
// CHECK-LABEL: chunk.kernel @keeps
// CHECK: %[[G:.*]] = arith.extf %g
// CHECK: %[[LATER:.*]] = chunk.accumulate sum %[[G]] reverse exclusive : tensor<32x128xf32>
// CHECK: %[[ALL:.*]] = chunk.total %[[LATER]]
// CHECK-NOT: chunk.accumulate
// CHECK-NOT: chunk.reduce
// CHECK: arith.addf %{{.*}}, %[[ALL]]
// CHECK: chunk.yield
// APART-LABEL: chunk.kernel @keeps
// APART-NOT: chunk.accumulate
// APART: chunk.reduce sum %{{.*}} over rows
chunk.kernel @keeps chunk 32 (input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, input %g: tensor<32x128xbf16>,
    state %S: tensor<128x128xf32>, state %d: tensor<128xf32>, valid %n: index) -> (S: tensor<128x128xbf16> checkpoint) {
  %k32 = arith.extf %k : tensor<32x128xbf16> to tensor<32x128xf32>
  %v32 = arith.extf %v : tensor<32x128xbf16> to tensor<32x128xf32>
  %g32 = arith.extf %g : tensor<32x128xbf16> to tensor<32x128xf32>
  %kept = arith.truncf %S : tensor<128x128xf32> to tensor<128x128xbf16>
  %kd = chunk.decay_to_end %k32 log %g32 : tensor<32x128xf32>, tensor<32x128xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<128x128xf32>, tensor<32x128xf32>
  %next = chunk.dot %kd, %v32 transpose_left add %s : tensor<32x128xf32>, tensor<32x128xf32> -> tensor<128x128xf32>
  %sum = chunk.reduce sum %g32 over rows : tensor<32x128xf32> -> tensor<128xf32>
  %d_next = arith.addf %d, %sum : tensor<128xf32>
  chunk.yield %kept next %next, %d_next : tensor<128x128xbf16>, tensor<128x128xf32>, tensor<128xf32>
}

// Other walks forwards have products.
// CHECK-LABEL: chunk.kernel @forwards
// CHECK-NOT: chunk.accumulate
// CHECK: chunk.dot
chunk.kernel @forwards chunk 32 (input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, input %g: tensor<32x128xbf16>,
    state %S: tensor<128x128xf32>, valid %n: index) -> () {
  %k32 = arith.extf %k : tensor<32x128xbf16> to tensor<32x128xf32>
  %v32 = arith.extf %v : tensor<32x128xbf16> to tensor<32x128xf32>
  %g32 = arith.extf %g : tensor<32x128xbf16> to tensor<32x128xf32>
  %kd = chunk.decay_to_end %k32 log %g32 : tensor<32x128xf32>, tensor<32x128xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<128x128xf32>, tensor<32x128xf32>
  %next = chunk.dot %kd, %v32 transpose_left add %s : tensor<32x128xf32>, tensor<32x128xf32> -> tensor<128x128xf32>
  chunk.yield next %next : tensor<128x128xf32>
}
