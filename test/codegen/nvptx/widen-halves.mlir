// RUN: stretto-translate --chunk-to-ptx --chip=sm_90a %s | FileCheck %s

// Of two numbers of bf16 that come in one word the upper one is that word without the lower one; and a magnitude is
// negated by instructions that keep denormals, which ptxas makes a part of what takes it.

// CHECK-LABEL: .entry widened(
// CHECK-NOT:   cvt.u32.u16
// CHECK-DAG:   shl.b32 %{{r[0-9]+}}, %[[WORD:r[0-9]+]], 16;
// CHECK-DAG:   and.b32 %{{r[0-9]+}}, %[[WORD]], -65536;
// CHECK:       abs.f32 magnitude, %{{r[0-9]+}}; neg.f32 %{{r[0-9]+}}, magnitude;
// CHECK-NOT:   {{abs|neg}}.ftz.f32
// CHECK:       ret
chunk.kernel @widened chunk 16 (input %x: tensor<16x8xbf16>, input %k: tensor<16x8xbf16>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %joined = chunk.join_halves %x, %k block 16 : tensor<16x8xbf16> -> tensor<16x8xbf16>
  %wide = arith.extf %joined : tensor<16x8xbf16> to tensor<16x8xf32>
  %size = math.absf %wide : tensor<16x8xf32>
  %o = arith.negf %size : tensor<16x8xf32>
  chunk.yield %o : tensor<16x8xf32>
}

// What rounding takes from a product is one instruction: the number of 16 bits is negated as fp32, not its word.

// CHECK-LABEL: .entry rest(
// CHECK-NOT:   xor.b32 {{.*}}, -2147483648
// CHECK:       neg.f32 %[[ROUNDED:r[0-9]+]], %{{r[0-9]+}};
// CHECK:       fma.rn.ftz.f32 %{{r[0-9]+}}, %{{r[0-9]+}}, %{{r[0-9]+}}, %[[ROUNDED]];
// CHECK-NOT:   xor.b32 {{.*}}, -2147483648
// CHECK:       ret
chunk.kernel @rest chunk 16 (input %x: tensor<16x8xf32>, input %k: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>, r: tensor<16x8xbf16>) {
  %product = arith.mulf %x, %k : tensor<16x8xf32>
  %rounded = arith.truncf %product : tensor<16x8xf32> to tensor<16x8xbf16>
  %widened = arith.extf %rounded : tensor<16x8xbf16> to tensor<16x8xf32>
  %o = arith.subf %product, %widened : tensor<16x8xf32>
  chunk.yield %o, %rounded : tensor<16x8xf32>, tensor<16x8xbf16>
}
