// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-round-operands))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-round-operands{element=bf16 sparing=true}))' | FileCheck --check-prefix=SPARING %s

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
  // SPARING: chunk.decay_dot %[[WIDE:.*]], %[[WIDE]] log %g {exact} : tensor<16x32xf32>
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
  // SPARING: chunk.decay_mix %{{.*}}, %k log %g : tensor<16x16xf32>, tensor<16x32xf32>
  // CHECK: %[[K:.*]] = arith.truncf %k
  // CHECK: chunk.decay_mix %w, %[[K]] log %g : tensor<16x16xbf16>, tensor<16x32xbf16>, tensor<16x32xf32> -> tensor<16x32xf32>
  %w32 = arith.extf %w : tensor<16x16xbf16> to tensor<16x16xf32>
  %o = chunk.decay_mix %w32, %k log %g : tensor<16x16xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// A CPU multiplies fp32 as well. It leaves the numbers of tables and the scores of a softmax over what a state holds.
// SPARING-LABEL: chunk.kernel @slots
chunk.table @weights {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %d : f64
}
chunk.kernel @slots chunk 16 (input %q: tensor<16x32xbf16>, table %weights: tensor<16x8xf32>, state %K: tensor<8x32xf32>,
                              state %V: tensor<8x32xf32>, valid %n: index) -> (o: tensor<16x32xbf16>) {
  %two = arith.constant dense<2.0> : tensor<16x8xf32>
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %w = arith.mulf %weights, %two : tensor<16x8xf32>
  // CHECK: chunk.dot %q, %{{.*}} transpose_right : tensor<16x32xbf16>, tensor<8x32xbf16>
  // SPARING: %[[READ:.*]] = chunk.dot %[[Q:.*]], %K transpose_right : tensor<16x32xf32>, tensor<8x32xf32>
  %s0 = chunk.dot %q32, %K transpose_right : tensor<16x32xf32>, tensor<8x32xf32> -> tensor<16x8xf32>
  // CHECK: %[[P:.*]] = chunk.dot %q, %q transpose_right
  // SPARING: %[[P:.*]] = chunk.dot %q, %q transpose_right
  %p = chunk.dot %q32, %q32 transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  // CHECK: chunk.dot %{{.*}} : tensor<16x16xbf16>, tensor<16x8xbf16>
  // SPARING: chunk.dot %[[P]], %{{.*}} add %[[READ]] : tensor<16x16xf32>, tensor<16x8xf32>
  %s = chunk.dot %p, %w add %s0 : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %e = math.exp %s : tensor<16x8xf32>
  // SPARING: chunk.dot %{{.*}}, %{{.*}} : tensor<16x8xbf16>, tensor<8x32xbf16>
  %o = chunk.dot %e, %V : tensor<16x8xf32>, tensor<8x32xf32> -> tensor<16x32xf32>
  %o16 = arith.truncf %o : tensor<16x32xf32> to tensor<16x32xbf16>
  chunk.yield %o16 next %K, %V : tensor<16x32xbf16>, tensor<8x32xf32>, tensor<8x32xf32>
}

// Only bf16 was asked for.
// SPARING-LABEL: chunk.kernel @other
chunk.kernel @other chunk 16 (input %q: tensor<16x32xf16>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %q32 = arith.extf %q : tensor<16x32xf16> to tensor<16x32xf32>
  // CHECK: chunk.dot %q, %{{.*}} : tensor<16x32xf16>, tensor<32x32xf16>
  // SPARING: chunk.dot %{{.*}}, %S : tensor<16x32xf32>, tensor<32x32xf32>
  %o = chunk.dot %q32, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  chunk.yield %o next %S : tensor<16x32xf32>, tensor<32x32xf32>
}

// The larger of an input and of a constant that the inputs' type has is found there; of another constant it is rounded.
// CHECK-LABEL: chunk.kernel @larger
// CHECK: %[[THIRD:.*]] = arith.constant dense<0.333333343>
// CHECK: %[[LEAST:.*]] = arith.constant dense<-1.100000e+02> : tensor<16x32xbf16>
// CHECK: %[[NARROW:.*]] = arith.maximumf %x, %[[LEAST]] : tensor<16x32xbf16>
// CHECK: %[[WIDE:.*]] = arith.maximumf %{{.*}}, %[[THIRD]] : tensor<16x32xf32>
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[WIDE]]
// CHECK: chunk.dot %[[NARROW]], %[[ROUNDED]] transpose_right
chunk.kernel @larger chunk 16 (input %x: tensor<16x32xbf16>, valid %n: index) -> (o: tensor<16x16xf32>) {
  %least = arith.constant dense<-110.0> : tensor<16x32xf32>
  %third = arith.constant dense<0.333333343> : tensor<16x32xf32>
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %a = arith.maximumf %x32, %least : tensor<16x32xf32>
  %b = arith.maximumf %x32, %third : tensor<16x32xf32>
  %o = chunk.dot %a, %b transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  chunk.yield %o : tensor<16x16xf32>
}

// Rows of a convolution are taken as they were; taps of another type, and rows that are computed, stay, the latter with
// their tail.
// CHECK-LABEL: chunk.kernel @convolution
chunk.kernel @convolution chunk 16 (input %x: tensor<16x32xbf16>, parameter %taps: tensor<32x4xf32>,
                                    state %tail: tensor<3x32xbf16>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %tail32 = arith.extf %tail : tensor<3x32xbf16> to tensor<3x32xf32>
  // CHECK: %[[Y:.*]] = chunk.conv %x, %taps tail %tail : tensor<16x32xbf16>, tensor<32x4xf32>, tensor<3x32xbf16> -> tensor<16x32xf32>
  // SPARING: chunk.conv %{{.*}}, %taps tail %{{.*}} : tensor<16x32xf32>, tensor<32x4xf32>, tensor<3x32xf32>
  %y = chunk.conv %x32, %taps tail %tail32 : tensor<16x32xf32>, tensor<32x4xf32>, tensor<3x32xf32> -> tensor<16x32xf32>
  // CHECK: chunk.conv %[[Y]], %taps tail %{{.*}} : tensor<16x32xf32>, tensor<32x4xf32>, tensor<3x32xf32>
  %z = chunk.conv %y, %taps tail %tail32 : tensor<16x32xf32>, tensor<32x4xf32>, tensor<3x32xf32> -> tensor<16x32xf32>
  chunk.yield %z next %tail : tensor<16x32xf32>, tensor<3x32xbf16>
}

// What rounding takes from a state that grows with the tokens is multiplied, too, where scores are exponentiated.
// CHECK-LABEL: chunk.kernel @growing
chunk.kernel @growing chunk 16 (input %q: tensor<16x32xbf16>, state %K: tensor<8x32xf32>, state %V: tensor<8x32xf32>,
                                valid %n: index) -> (o: tensor<16x32xbf16>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  // CHECK: %[[K:.*]] = arith.truncf %K : tensor<8x32xf32> to tensor<8x32xbf16>
  // CHECK: %[[WIDE:.*]] = arith.extf %[[K]]
  // CHECK: %[[LOST:.*]] = arith.subf %K, %[[WIDE]]
  // CHECK: %[[REST:.*]] = arith.truncf %[[LOST]]
  // CHECK: %[[OF_REST:.*]] = chunk.dot %q, %[[REST]] transpose_right : tensor<16x32xbf16>, tensor<8x32xbf16>
  // CHECK: chunk.dot %q, %[[K]] transpose_right add %[[OF_REST]] : tensor<16x32xbf16>, tensor<8x32xbf16>
  %s = chunk.dot %q32, %K transpose_right : tensor<16x32xf32>, tensor<8x32xf32> -> tensor<16x8xf32>
  %e = math.exp %s : tensor<16x8xf32>
  // The weights are not exponentiated again.
  // CHECK: %[[V:.*]] = arith.truncf %V
  // CHECK: chunk.dot %{{.*}}, %[[V]] : tensor<16x8xbf16>, tensor<8x32xbf16>
  %o = chunk.dot %e, %V : tensor<16x8xf32>, tensor<8x32xf32> -> tensor<16x32xf32>
  %o16 = arith.truncf %o : tensor<16x32xf32> to tensor<16x32xbf16>
  %e8 = arith.constant dense<1.0> : tensor<16x8xf32>
  %nextK = chunk.dot %e8, %q32 transpose_left add %K : tensor<16x8xf32>, tensor<16x32xf32> -> tensor<8x32xf32>
  %nextV = chunk.dot %e8, %q32 transpose_left add %V : tensor<16x8xf32>, tensor<16x32xf32> -> tensor<8x32xf32>
  chunk.yield %o16 next %nextK, %nextV : tensor<16x32xbf16>, tensor<8x32xf32>, tensor<8x32xf32>
}

// What tables make is two operands of a product, and one of a decay_dot as it is.
// CHECK-LABEL: chunk.kernel @tables
chunk.kernel @tables chunk 16 (input %q: tensor<16x32xbf16>, table %weights: tensor<16x8xf32>, input %w: tensor<16x8xbf16>,
                               valid %n: index) -> (o: tensor<16x16xf32>, p: tensor<16x16xf32>) {
  %w32 = arith.extf %w : tensor<16x8xbf16> to tensor<16x8xf32>
  // CHECK: %[[W:.*]] = arith.truncf %weights : tensor<16x8xf32> to tensor<16x8xbf16>
  // CHECK: %[[REST:.*]] = chunk.dot %w, %{{.*}} transpose_right : tensor<16x8xbf16>, tensor<16x8xbf16>
  // CHECK: chunk.dot %w, %[[W]] transpose_right add %[[REST]]
  %o = chunk.dot %w32, %weights transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  // CHECK: chunk.decay_dot %{{.*}}, %weights factor %weights {exact} : tensor<16x8xf32>, tensor<16x8xf32>
  %p = chunk.decay_dot %w32, %weights factor %weights {exact} : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  chunk.yield %o, %p : tensor<16x16xf32>, tensor<16x16xf32>
}

// Constants, which have no errors as a rule, are one operand.
// CHECK-LABEL: chunk.kernel @constants
chunk.kernel @constants chunk 16 (input %w: tensor<16x8xbf16>, valid %n: index) -> (o: tensor<16x16xf32>) {
  %w32 = arith.extf %w : tensor<16x8xbf16> to tensor<16x8xf32>
  %ones = arith.constant dense<1.0> : tensor<16x8xf32>
  // CHECK: chunk.dot %w, %{{.*}} transpose_right :
  // CHECK-NOT: chunk.dot
  %o = chunk.dot %w32, %ones transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  // CHECK: chunk.yield
  chunk.yield %o : tensor<16x16xf32>
}

// So are rows of a delay, unless they are computed; and columns of zeros and ones, which stand side by side, have no rests.
// CHECK-LABEL: chunk.kernel @taps
chunk.kernel @taps chunk 16 (input %x: tensor<16x32xbf16>, input %y: tensor<16x32xf32>, state %tail: tensor<3x32xbf16>, state %taps: tensor<32x2xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %tail32 = arith.extf %tail : tensor<3x32xbf16> to tensor<3x32xf32>
  // CHECK: %[[D:.*]] = chunk.delay %x by 2 tail %tail : tensor<16x32xbf16>, tensor<3x32xbf16> -> tensor<16x32xf32>
  // SPARING: chunk.delay %{{.*}} by 2 tail %{{.*}} : tensor<16x32xf32>, tensor<3x32xf32>
  %d = chunk.delay %x32 by 2 tail %tail32 : tensor<16x32xf32>, tensor<3x32xf32> -> tensor<16x32xf32>
  // CHECK: chunk.delay %y by 1 tail %{{.*}} : tensor<16x32xf32>, tensor<3x32xf32>
  %e = chunk.delay %y by 1 tail %tail32 : tensor<16x32xf32>, tensor<3x32xf32> -> tensor<16x32xf32>
  %p = arith.mulf %e, %d : tensor<16x32xf32>
  %zeros = arith.constant dense<0.0> : tensor<16xf32>
  %ones = arith.constant dense<1.0> : tensor<16xf32>
  %second = chunk.concat %zeros, %ones : tensor<16xf32>, tensor<16xf32> -> tensor<16x2xf32>
  // CHECK: chunk.dot
  // CHECK-NOT: chunk.dot
  // CHECK: chunk.yield
  %o = chunk.dot %p, %second transpose_left add %taps : tensor<16x32xf32>, tensor<16x2xf32> -> tensor<32x2xf32>
  chunk.yield %p next %tail, %o : tensor<16x32xf32>, tensor<3x32xbf16>, tensor<32x2xf32>
}
