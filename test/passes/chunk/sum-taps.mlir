// RUN: stretto-opt %s --split-input-file --pass-pipeline='builtin.module(chunk.kernel(stretto-sum-taps))' | FileCheck %s

// The sums of three taps, of rows of their own token and of two before it, whatever the order: what they begin with is
// added to them.
// CHECK-LABEL: chunk.kernel @taps
// CHECK-NEXT: %[[SUMS:.*]] = chunk.conv_taps %dy, %x tail %t : tensor<16x8xf32>, tensor<16x8xf32>, tensor<2x8xf32> -> tensor<8x3xf32>
// CHECK-NEXT: %[[NEXT:.*]] = arith.addf %d, %[[SUMS]] : tensor<8x3xf32>
// CHECK-NEXT: chunk.yield next %[[NEXT]]
chunk.kernel @taps chunk 16 reverse (input %dy: tensor<16x8xf32>, input %x: tensor<16x8xf32>,
                                     checkpoint %t: tensor<2x8xf32>, state %d: tensor<8x3xf32>, valid %n: index)
    -> () {
  %one = arith.constant dense<1.0> : tensor<16xf32>
  %zero = arith.constant dense<0.0> : tensor<16x1xf32>
  %zeros = arith.constant dense<0.0> : tensor<16x2xf32>
  %last = chunk.concat %zeros, %one : tensor<16x2xf32>, tensor<16xf32> -> tensor<16x3xf32>
  %second = chunk.concat %zero, %one, %zero : tensor<16x1xf32>, tensor<16xf32>, tensor<16x1xf32> -> tensor<16x3xf32>
  %first = chunk.concat %one, %zeros : tensor<16xf32>, tensor<16x2xf32> -> tensor<16x3xf32>
  %y0 = arith.mulf %dy, %x : tensor<16x8xf32>
  %x1 = chunk.delay %x by 1 tail %t : tensor<16x8xf32>, tensor<2x8xf32> -> tensor<16x8xf32>
  %y1 = arith.mulf %dy, %x1 : tensor<16x8xf32>
  %x2 = chunk.delay %x by 2 tail %t : tensor<16x8xf32>, tensor<2x8xf32> -> tensor<16x8xf32>
  %y2 = arith.mulf %dy, %x2 : tensor<16x8xf32>
  %d1 = chunk.dot %y1, %second transpose_left add %d : tensor<16x8xf32>, tensor<16x3xf32> -> tensor<8x3xf32>
  %d0 = chunk.dot %y0, %last transpose_left add %d1 : tensor<16x8xf32>, tensor<16x3xf32> -> tensor<8x3xf32>
  %d2 = chunk.dot %y2, %first transpose_left add %d0 : tensor<16x8xf32>, tensor<16x3xf32> -> tensor<8x3xf32>
  chunk.yield next %d2 : tensor<8x3xf32>
}

// -----

// One tap of two is not there; of those of the second kernel one is of other rows, of those of the third one is asked for
// by itself, and of the last one is in another column than its distance says.
// CHECK-LABEL: chunk.kernel @one
// CHECK-NOT: chunk.conv_taps
chunk.kernel @one chunk 16 reverse (input %dy: tensor<16x8xf32>, input %x: tensor<16x8xf32>,
                                    state %d: tensor<8x2xf32>, valid %n: index) -> () {
  %one = arith.constant dense<1.0> : tensor<16xf32>
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  %last = chunk.concat %zero, %one : tensor<16xf32>, tensor<16xf32> -> tensor<16x2xf32>
  %y0 = arith.mulf %dy, %x : tensor<16x8xf32>
  %d0 = chunk.dot %y0, %last transpose_left : tensor<16x8xf32>, tensor<16x2xf32> -> tensor<8x2xf32>
  chunk.yield next %d0 : tensor<8x2xf32>
}

// CHECK-LABEL: chunk.kernel @others
// CHECK-NOT: chunk.conv_taps
chunk.kernel @others chunk 16 reverse (input %dy: tensor<16x8xf32>, input %x: tensor<16x8xf32>,
                                       checkpoint %t: tensor<1x8xf32>, state %d: tensor<8x2xf32>, valid %n: index) -> () {
  %one = arith.constant dense<1.0> : tensor<16xf32>
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  %last = chunk.concat %zero, %one : tensor<16xf32>, tensor<16xf32> -> tensor<16x2xf32>
  %first = chunk.concat %one, %zero : tensor<16xf32>, tensor<16xf32> -> tensor<16x2xf32>
  %y0 = arith.mulf %dy, %x : tensor<16x8xf32>
  %dy1 = chunk.delay %dy by 1 tail %t : tensor<16x8xf32>, tensor<1x8xf32> -> tensor<16x8xf32>
  %y1 = arith.mulf %dy, %dy1 : tensor<16x8xf32>
  %d0 = chunk.dot %y0, %last transpose_left : tensor<16x8xf32>, tensor<16x2xf32> -> tensor<8x2xf32>
  %d1 = chunk.dot %y1, %first transpose_left add %d0 : tensor<16x8xf32>, tensor<16x2xf32> -> tensor<8x2xf32>
  chunk.yield next %d1 : tensor<8x2xf32>
}

// CHECK-LABEL: chunk.kernel @asked
// CHECK-NOT: chunk.conv_taps
chunk.kernel @asked chunk 16 reverse (input %dy: tensor<16x8xf32>, input %x: tensor<16x8xf32>,
                                      checkpoint %t: tensor<1x8xf32>, state %d: tensor<8x2xf32>, state %e: tensor<8x2xf32>,
                                      valid %n: index) -> () {
  %one = arith.constant dense<1.0> : tensor<16xf32>
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  %last = chunk.concat %zero, %one : tensor<16xf32>, tensor<16xf32> -> tensor<16x2xf32>
  %first = chunk.concat %one, %zero : tensor<16xf32>, tensor<16xf32> -> tensor<16x2xf32>
  %y0 = arith.mulf %dy, %x : tensor<16x8xf32>
  %x1 = chunk.delay %x by 1 tail %t : tensor<16x8xf32>, tensor<1x8xf32> -> tensor<16x8xf32>
  %y1 = arith.mulf %dy, %x1 : tensor<16x8xf32>
  %d0 = chunk.dot %y0, %last transpose_left : tensor<16x8xf32>, tensor<16x2xf32> -> tensor<8x2xf32>
  %d1 = chunk.dot %y1, %first transpose_left add %d0 : tensor<16x8xf32>, tensor<16x2xf32> -> tensor<8x2xf32>
  chunk.yield next %d1, %d0 : tensor<8x2xf32>, tensor<8x2xf32>
}

// CHECK-LABEL: chunk.kernel @misplaced
// CHECK-NOT: chunk.conv_taps
chunk.kernel @misplaced chunk 16 reverse (input %dy: tensor<16x8xf32>, input %x: tensor<16x8xf32>,
                                          checkpoint %t: tensor<1x8xf32>, state %d: tensor<8x2xf32>, valid %n: index) -> () {
  %one = arith.constant dense<1.0> : tensor<16xf32>
  %zero = arith.constant dense<0.0> : tensor<16xf32>
  %last = chunk.concat %zero, %one : tensor<16xf32>, tensor<16xf32> -> tensor<16x2xf32>
  %y0 = arith.mulf %dy, %x : tensor<16x8xf32>
  %x1 = chunk.delay %x by 1 tail %t : tensor<16x8xf32>, tensor<1x8xf32> -> tensor<16x8xf32>
  %y1 = arith.mulf %dy, %x1 : tensor<16x8xf32>
  %d0 = chunk.dot %y0, %last transpose_left : tensor<16x8xf32>, tensor<16x2xf32> -> tensor<8x2xf32>
  %d1 = chunk.dot %y1, %last transpose_left add %d0 : tensor<16x8xf32>, tensor<16x2xf32> -> tensor<8x2xf32>
  chunk.yield next %d1 : tensor<8x2xf32>
}
