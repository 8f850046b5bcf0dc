// RUN: stretto-opt %s --split-input-file --pass-pipeline='builtin.module(stretto-invert-systems,canonicalize,cse)' | FileCheck %s

// What is made of inputs alone is inverted by a kernel without states; the right side depends on the state and stays.
// Two kernels share an inverse, which one of them transposes.
// CHECK-LABEL: chunk.kernel @f chunk 16(
// CHECK-SAME: input %k: tensor<16x8xbf16>, input %b: tensor<16xbf16>, input %inverse.0: tensor<16x16xbf16>,
// CHECK-SAME: input %inverse.0.rest: tensor<16x16xbf16>, state %S: tensor<8x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>)
// CHECK-NOT: chunk.solve
// CHECK: %[[X:.*]] = chunk.dot %{{.*}}, %S
// CHECK: %[[T:.*]] = arith.extf %inverse.0 :
// CHECK: %[[Y:.*]] = chunk.dot %[[T]], %[[X]] : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
// CHECK: %[[R:.*]] = arith.extf %inverse.0.rest :
// CHECK: %[[U:.*]] = chunk.dot %[[R]], %[[X]] add %[[Y]]
// CHECK: chunk.yield %[[U]]
chunk.kernel @f chunk 16 (input %k: tensor<16x8xbf16>, input %b: tensor<16xbf16>, state %S: tensor<8x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %k1 = arith.extf %k : tensor<16x8xbf16> to tensor<16x8xf32>
  %b1 = arith.extf %b : tensor<16xbf16> to tensor<16xf32>
  %x = chunk.dot %k1, %S : tensor<16x8xf32>, tensor<8x32xf32> -> tensor<16x32xf32>
  %p = chunk.dot %k1, %k1 transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %b2 = chunk.broadcast %b1 along rows : tensor<16xf32> to tensor<16x16xf32>
  %l = arith.mulf %b2, %p : tensor<16x16xf32>
  %u = chunk.solve %l, %x : tensor<16x16xf32>, tensor<16x32xf32>
  %next = chunk.dot %k1, %u transpose_left add %S : tensor<16x8xf32>, tensor<16x32xf32> -> tensor<8x32xf32>
  chunk.yield %u next %next : tensor<16x32xf32>, tensor<8x32xf32>
}
// CHECK: chunk.kernel @f_back chunk 16 reverse
// CHECK-SAME: input %inverse.0: tensor<16x16xbf16>, input %inverse.0.rest: tensor<16x16xbf16>
// CHECK: chunk.dot %{{.*}}, %x transpose_left
// CHECK: chunk.dot %{{.*}}, %x transpose_left add
chunk.kernel @f_back chunk 16 reverse (input %b: tensor<16xbf16>, input %k: tensor<16x8xbf16>, input %x: tensor<16x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %k1 = arith.extf %k : tensor<16x8xbf16> to tensor<16x8xf32>
  %b1 = arith.extf %b : tensor<16xbf16> to tensor<16xf32>
  %b2 = chunk.broadcast %b1 along rows : tensor<16xf32> to tensor<16x16xf32>
  %p = chunk.dot %k1, %k1 transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %l = arith.mulf %b2, %p : tensor<16x16xf32>
  %u = chunk.solve %l, %x transpose : tensor<16x16xf32>, tensor<16x32xf32>
  chunk.yield %u : tensor<16x32xf32>
}
// CHECK: chunk.kernel @f_systems chunk 16(
// CHECK-SAME: input %k: tensor<16x8xbf16>, input %b: tensor<16xbf16>, valid %{{.*}}: index) -> (inverse.0: tensor<16x16xbf16>, inverse.0.rest: tensor<16x16xbf16>)
// CHECK: %[[I:.*]] = chunk.inverse %{{.*}} : tensor<16x16xf32>
// CHECK-NOT: chunk.inverse
// CHECK: %[[T:.*]] = arith.truncf %[[I]]
// CHECK: %[[E:.*]] = arith.extf %[[T]]
// CHECK: %[[D:.*]] = arith.subf %[[I]], %[[E]]
// CHECK: %[[R:.*]] = arith.truncf %[[D]]
// CHECK: chunk.yield %[[T]], %[[R]]

// -----

// A system whose matrix depends on a state stays, and there is no further kernel.
// CHECK-LABEL: chunk.kernel @stays
// CHECK: chunk.solve
// CHECK-NOT: chunk.kernel
chunk.kernel @stays chunk 16 (input %k: tensor<16x16xbf16>, state %S: tensor<16x16xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  %k1 = arith.extf %k : tensor<16x16xbf16> to tensor<16x16xf32>
  %l = chunk.dot %k1, %S : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  %u = chunk.solve %l, %k1 : tensor<16x16xf32>, tensor<16x16xf32>
  chunk.yield %u next %S : tensor<16x16xf32>, tensor<16x16xf32>
}

// -----

// Two systems have an inverse each.
// CHECK-LABEL: chunk.kernel @two
// CHECK-DAG: arith.extf %inverse.0
// CHECK-DAG: arith.extf %inverse.1
// CHECK: chunk.kernel @two_systems
// CHECK-SAME: (inverse.0: tensor<16x16xbf16>, inverse.0.rest: tensor<16x16xbf16>, inverse.1: tensor<16x16xbf16>, inverse.1.rest: tensor<16x16xbf16>)
chunk.kernel @two chunk 16 (input %k: tensor<16x8xbf16>, input %v: tensor<16x8xbf16>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %k1 = arith.extf %k : tensor<16x8xbf16> to tensor<16x8xf32>
  %v1 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %l = chunk.dot %k1, %k1 transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %m = chunk.dot %v1, %k1 transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %u = chunk.solve %l, %v1 : tensor<16x16xf32>, tensor<16x8xf32>
  %w = chunk.solve %m, %u : tensor<16x16xf32>, tensor<16x8xf32>
  chunk.yield %w : tensor<16x8xf32>
}

// -----

// Numbers of 32 bits have no products that would gain.
// CHECK-LABEL: chunk.kernel @wide
// CHECK: chunk.solve
// CHECK-NOT: chunk.kernel
chunk.kernel @wide chunk 16 (input %k: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %l = chunk.dot %k, %k transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %u = chunk.solve %l, %k : tensor<16x16xf32>, tensor<16x8xf32>
  chunk.yield %u : tensor<16x8xf32>
}

// -----

// Nor does what has no inputs.
// CHECK-LABEL: chunk.kernel @alone
// CHECK: chunk.solve
// CHECK-NOT: chunk.kernel
chunk.kernel @alone chunk 16 (valid %n: index) -> (o: tensor<16x16xf32>) {
  %l = arith.constant dense<1.0> : tensor<16x16xf32>
  %u = chunk.solve %l, %l : tensor<16x16xf32>, tensor<16x16xf32>
  chunk.yield %u : tensor<16x16xf32>
}

// -----

// A matrix may depend on how many tokens are valid, whose number stays the last argument.
// CHECK-LABEL: chunk.kernel @masked chunk 16(
// CHECK-LABEL: chunk.kernel @masked_systems chunk 16(
// CHECK-SAME: input %k: tensor<16x8xbf16>, input %b: tensor<16xbf16>, valid %{{.*}}: index)
// CHECK: chunk.mask
chunk.kernel @masked chunk 16 (input %k: tensor<16x8xbf16>, input %b: tensor<16xbf16>, input %x: tensor<16x8xbf16>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %k1 = arith.extf %k : tensor<16x8xbf16> to tensor<16x8xf32>
  %x1 = arith.extf %x : tensor<16x8xbf16> to tensor<16x8xf32>
  %b1 = arith.extf %b : tensor<16xbf16> to tensor<16xf32>
  %masked = chunk.mask %b1 valid %n : tensor<16xf32>
  %p = chunk.dot %k1, %k1 transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %b2 = chunk.broadcast %masked along rows : tensor<16xf32> to tensor<16x16xf32>
  %l = arith.mulf %b2, %p : tensor<16x16xf32>
  %u = chunk.solve %l, %x1 : tensor<16x16xf32>, tensor<16x8xf32>
  chunk.yield %u : tensor<16x8xf32>
}
