// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay{within}))' | FileCheck %s

// Rows are taken to be in range: logarithms of later tokens are added up, keys are multiplied by their exponentials and
// queries by the inverses, without a choice. Rows are asked for their range before the chunk's total is.
// CHECK-LABEL: chunk.kernel @rows
// CHECK: %[[LATER:.*]] = chunk.accumulate sum %[[G:.*]] reverse exclusive
// CHECK: %[[TOTAL:.*]] = chunk.total %[[LATER]]
// CHECK: %[[ROWS:.*]] = chunk.within %q limits
// CHECK: %[[DECAYS:.*]] = chunk.within %[[TOTAL]] limits [6.000000e+01]
// CHECK: %[[GOOD:.*]] = arith.andi %[[ROWS]], %[[DECAYS]]
// CHECK: chunk.expect %[[GOOD]]
// CHECK-NOT: scf.if
chunk.kernel @rows chunk 16 (input %q: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>, input %g: tensor<16x32xbf16>,
                             state %S: tensor<32x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %g32 = arith.extf %g : tensor<16x32xbf16> to tensor<16x32xf32>
  %x = chunk.decay_from_start %q32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %r = chunk.dot %x, %S : tensor<16x32xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  %p = chunk.decay_dot %q32, %q32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %y = chunk.decay_to_end %q32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  chunk.yield %o next %next : tensor<16x8xf32>, tensor<32x8xf32>
}

// Factors are multiplied, and must not be above 1.
// CHECK-LABEL: chunk.kernel @factors
// CHECK: %[[LATER:.*]] = chunk.accumulate product %[[F:.*]] reverse exclusive
// CHECK: %[[TOTAL:.*]] = chunk.total %[[LATER]]
// CHECK: %[[ROWS:.*]] = chunk.within %f, %q limits [1.000000e+00
// CHECK: %[[INVERSE:.*]] = arith.divf %{{.*}}, %[[TOTAL]] fastmath<afn>
// CHECK: %[[DECAYS:.*]] = chunk.within %[[INVERSE]] limits [1.142007e+26]
// CHECK: %[[GOOD:.*]] = arith.andi %[[ROWS]], %[[DECAYS]]
// CHECK: chunk.expect %[[GOOD]]
// CHECK: arith.divf %{{.*}}, %[[LATER]] fastmath<afn>
// CHECK-NOT: scf.if
chunk.kernel @factors chunk 32 (input %q: tensor<32x32xbf16>, input %v: tensor<32x8xbf16>, input %f: tensor<32x32xbf16>,
                                state %S: tensor<32x8xf32>, valid %n: index) -> (o: tensor<32x8xf32>) {
  %q32 = arith.extf %q : tensor<32x32xbf16> to tensor<32x32xf32>
  %v32 = arith.extf %v : tensor<32x8xbf16> to tensor<32x8xf32>
  %f32 = arith.extf %f : tensor<32x32xbf16> to tensor<32x32xf32>
  %x = chunk.decay_from_start %q32 factor %f32 : tensor<32x32xf32>, tensor<32x32xf32>
  %r = chunk.dot %x, %S : tensor<32x32xf32>, tensor<32x8xf32> -> tensor<32x8xf32>
  %p = chunk.decay_dot %q32, %q32 factor %f32 : tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<32x32xf32>, tensor<32x8xf32> -> tensor<32x8xf32>
  %s = chunk.decay_state %S factor %f32 along rows : tensor<32x8xf32>, tensor<32x32xf32>
  %y = chunk.decay_to_end %q32 factor %f32 : tensor<32x32xf32>, tensor<32x32xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<32x32xf32>, tensor<32x8xf32> -> tensor<32x8xf32>
  chunk.yield %o next %next : tensor<32x8xf32>, tensor<32x8xf32>
}

// What segments write asks for no range: nothing is divided by. What a segment decays by is what the state does.
// CHECK-LABEL: chunk.kernel @writes
// CHECK: %[[LATER:.*]] = chunk.accumulate sum %[[G:.*]] reverse exclusive
// CHECK: math.exp %[[LATER]]
// CHECK: %[[TOTAL:.*]] = chunk.total
// CHECK-NOT: chunk.expect
// CHECK: arith.addf %{{.*}}, %[[TOTAL]]
chunk.kernel @writes chunk 16 (input %k: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>, input %g: tensor<16x32xbf16>,
                               state %S: tensor<32x8xf32>, state %D: tensor<32xf32>, valid %n: index)
    -> (o: tensor<16x8xbf16>) {
  %k32 = arith.extf %k : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %g32 = arith.extf %g : tensor<16x32xbf16> to tensor<16x32xf32>
  %y = chunk.decay_to_end %k32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  %sum = chunk.reduce sum %g32 over rows : tensor<16x32xf32> -> tensor<32xf32>
  %all = arith.addf %D, %sum : tensor<32xf32>
  chunk.yield %v next %next, %all : tensor<16x8xbf16>, tensor<32x8xf32>, tensor<32xf32>
}
