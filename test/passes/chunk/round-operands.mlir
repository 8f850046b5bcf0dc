// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-round-operands))' | FileCheck %s

// CHECK-LABEL: chunk.kernel @half
chunk.kernel @half chunk 16 (input %q: tensor<16x32xbf16>, input %g: tensor<16x32xf32>, state %S: tensor<32x32xf32>,
                             valid %n: index) -> (o: tensor<16x32xbf16>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  // The input is taken as it was; the state is rounded once for both products, and carried as it is.
  // CHECK: %[[S:.*]] = arith.truncf %S : tensor<32x32xf32> to tensor<32x32xbf16>
  // CHECK: %[[O:.*]] = chunk.dot %q, %[[S]] : tensor<16x32xbf16>, tensor<32x32xbf16> -> tensor<16x32xf32>
  %o = chunk.dot %q32, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  // CHECK: %[[P:.*]] = arith.truncf %[[O]]
  // CHECK: chunk.dot %[[P]], %[[S]] add %[[O]]
  %p = chunk.dot %o, %S add %o : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  // Decays are not operands.
  // CHECK: chunk.decay_dot %q, %q log %g {exact} : tensor<16x32xbf16>, tensor<16x32xbf16>, tensor<16x32xf32>
  %d = chunk.decay_dot %q32, %q32 log %g {exact} : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %r = chunk.dot %d, %p : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %r16 = arith.truncf %r : tensor<16x32xf32> to tensor<16x32xbf16>
  // CHECK: chunk.yield %{{.*}} next %S
  chunk.yield %r16 next %S : tensor<16x32xbf16>, tensor<32x32xf32>
}

// CHECK-LABEL: chunk.kernel @single
chunk.kernel @single chunk 16 (input %q: tensor<16x32xf32>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  // CHECK: chunk.dot %q, %S : tensor<16x32xf32>, tensor<32x32xf32>
  %o = chunk.dot %q, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  chunk.yield %o next %S : tensor<16x32xf32>, tensor<32x32xf32>
}

// CHECK-LABEL: chunk.kernel @mixed
chunk.kernel @mixed chunk 16 (input %w: tensor<16x16xbf16>, input %k: tensor<16x32xf32>, input %g: tensor<16x32xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  // CHECK: %[[K:.*]] = arith.truncf %k
  // CHECK: chunk.decay_mix %w, %[[K]] log %g : tensor<16x16xbf16>, tensor<16x32xbf16>, tensor<16x32xf32> -> tensor<16x32xf32>
  %w32 = arith.extf %w : tensor<16x16xbf16> to tensor<16x16xf32>
  %o = chunk.decay_mix %w32, %k log %g : tensor<16x16xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}
