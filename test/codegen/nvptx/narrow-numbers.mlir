// RUN: stretto-translate --chunk-to-ptx --chip=sm_90a --split-input-file %s | FileCheck %s

// LLVM takes the magnitude of a number of fp16 and compares it before it is widened, and PTX would read numbers below
// 2^-14 as 0 there: a logarithm would be -inf. As fp32 they are ordinary numbers.

// CHECK-LABEL: .entry magnitude(
// CHECK-NOT:   abs{{.*}}f16
// CHECK:       abs{{(\.ftz)?}}.f32
// CHECK-NOT:   abs{{.*}}f16
// CHECK:       ret
chunk.kernel @magnitude chunk 16 (input %x: tensor<16x8xf16>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %wide = arith.extf %x : tensor<16x8xf16> to tensor<16x8xf32>
  %size = math.absf %wide : tensor<16x8xf32>
  %log = math.log %size : tensor<16x8xf32>
  chunk.yield %log : tensor<16x8xf32>
}

// -----

// CHECK-LABEL: .entry comparison(
// CHECK-NOT:   setp{{.*}}f16
// CHECK:       setp.gt{{.*}}f32
// CHECK-NOT:   setp{{.*}}f16
// CHECK:       ret
chunk.kernel @comparison chunk 16 (input %x: tensor<16x8xf16>, input %y: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %zero = arith.constant dense<0.0> : tensor<16x8xf32>
  %wide = arith.extf %x : tensor<16x8xf16> to tensor<16x8xf32>
  %positive = arith.cmpf ogt, %wide, %zero : tensor<16x8xf32>
  %o = arith.select %positive, %y, %zero : tensor<16x8xi1>, tensor<16x8xf32>
  chunk.yield %o : tensor<16x8xf32>
}

// -----

// A number of bf16 is widened by a shift, and its magnitude is the word without its sign.

// CHECK-LABEL: .entry stored(
// CHECK-NOT:   abs{{.*}}bf16
// CHECK:       shl.b32 %[[WIDE:r[0-9]+]], {{.*}}, 16
// CHECK:       and.b32 %{{.*}}, %[[WIDE]], 2147418112
// CHECK:       cvt.rn{{.*}}.f32
// CHECK:       ret
chunk.kernel @stored chunk 16 (input %x: tensor<16x8xbf16>, valid %n: index) -> (o: tensor<16x8xbf16>) {
  %zero = arith.constant dense<0.0> : tensor<16x8xf32>
  %wide = arith.extf %x : tensor<16x8xbf16> to tensor<16x8xf32>
  %size = math.absf %wide : tensor<16x8xf32>
  %o = arith.truncf %size : tensor<16x8xf32> to tensor<16x8xbf16>
  chunk.yield %o : tensor<16x8xbf16>
}
