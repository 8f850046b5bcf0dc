// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies),stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' | FileCheck %s --check-prefix=PLANNED

// The rows of a convolution are read where the memory system leaves them. What goes on to a product alone is made by
// threads that walk down columns: each has a run of rows. What meets another tile is where that is.
// CHECK-DAG: #[[ROWS:.*]] = #kernel.layout<[6, 6], offset =
// CHECK-DAG: #[[RUNS:.*]] = #kernel.layout<[6, 6], register = {{\[\[}}0, 1], [1, 0], [2, 0], [4, 0]], lane = {{\[\[}}0, 2], [0, 4], [0, 8], [0, 16], [0, 32]], warp = {{\[\[}}8, 0], [16, 0], [32, 0]]>
// CHECK-DAG: #[[FRAGMENTS:.*]] = #kernel.layout<[6, 6], register = {{.*}}, lane = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 32]]>
// CHECK-DAG: #[[TAPS:.*]] = #kernel.layout<[6, 4], register = {{.*}}, lane = {{\[\[}}1, 0], [2, 0], [4, 0], [8, 0], [16, 0]], warp = {{\[\[}}32, 0], [0, 1], [0, 2]]>
// CHECK-LABEL: kernel.func @convolutions
// CHECK: chunk.conv %{{.*}} : tensor<64x64xbf16, #[[ROWS]]>, {{.*}} -> tensor<64x64xf32, #[[RUNS]]>
// CHECK: kernel.convert %{{.*}} : tensor<64x64xbf16, #[[RUNS]]> -> tensor<64x64xbf16, #[[ROWS]]>
// CHECK: chunk.conv %{{.*}} -> tensor<64x64xf32, #[[FRAGMENTS]]>
chunk.kernel @convolutions chunk 64 (input %x: tensor<64x64xbf16>, parameter %taps: tensor<64x4xbf16>,
                                     parameter %w: tensor<64x64xbf16>, state %tail: tensor<3x64xbf16>,
                                     state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %y = chunk.conv %x, %taps tail %tail : tensor<64x64xbf16>, tensor<64x4xbf16>, tensor<3x64xbf16> -> tensor<64x64xf32>
  %left = arith.truncf %y : tensor<64x64xf32> to tensor<64x64xbf16>
  %z = chunk.dot %left, %w : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %u = chunk.conv %x, %taps tail %tail : tensor<64x64xbf16>, tensor<64x4xbf16>, tensor<3x64xbf16> -> tensor<64x64xf32>
  %o = arith.addf %u, %z : tensor<64x64xf32>
  %next = chunk.tail %x valid %n after %tail : tensor<64x64xbf16>, tensor<3x64xbf16>
  chunk.yield %o next %next, %S : tensor<64x64xf32>, tensor<3x64xbf16>, tensor<64x64xf32>
}

// So do those that add up what goes back to a token, as far as that is stored; what meets another tile is where that is.
// CHECK-LABEL: kernel.func @back
// CHECK: chunk.conv_back %{{.*}} : tensor<64x64xf32, #[[FRAGMENTS]]>, {{.*}} -> tensor<64x64xf32, #[[RUNS]]>
// CHECK: chunk.conv_back %{{.*}} -> tensor<64x64xf32, #[[FRAGMENTS]]>
// CHECK: chunk.conv_back %{{.*}} -> tensor<64x64xf32, #[[FRAGMENTS]]>
chunk.kernel @back chunk 64 reverse (input %x: tensor<64x64xbf16>, parameter %w: tensor<64x64xbf16>,
                                     parameter %taps: tensor<64x4xf32>, state %a: tensor<3x64xf32>,
                                     state %b: tensor<3x64xf32>, state %c: tensor<3x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>, u: tensor<64x64xf32>, w: tensor<64x64xf32>, r: tensor<64xf32>) {
  %y = chunk.dot %x, %w : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o, %d = chunk.conv_back %y, %taps valid %n after %a : tensor<64x64xf32>, tensor<64x4xf32>, tensor<3x64xf32> -> tensor<64x64xf32>
  %left = arith.truncf %o : tensor<64x64xf32> to tensor<64x64xbf16>
  %z, %e = chunk.conv_back %y, %taps valid %n after %b : tensor<64x64xf32>, tensor<64x4xf32>, tensor<3x64xf32> -> tensor<64x64xf32>
  %u = arith.addf %y, %z : tensor<64x64xf32>
  %s, %f = chunk.conv_back %y, %taps valid %n after %c : tensor<64x64xf32>, tensor<64x4xf32>, tensor<3x64xf32> -> tensor<64x64xf32>
  %r = chunk.reduce sum %s over columns : tensor<64x64xf32> -> tensor<64xf32>
  chunk.yield %left, %u, %s, %r next %d, %e, %f : tensor<64x64xbf16>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>, tensor<3x64xf32>, tensor<3x64xf32>, tensor<3x64xf32>
}

// Taps get what threads find that walk down columns of what lies in shared memory, where the convolution back takes the
// same rows from then. Sums lie along lanes, and so does what a loop adds them to.
// CHECK-LABEL: kernel.func @taps
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}) -> (tensor<64x4xf32, #[[TAPS]]>,
// CHECK: %[[ROWS_OF_CHUNK:.*]] = kernel.convert %{{.*}} : tensor<64x64xf32, #[[FRAGMENTS]]> -> tensor<64x64xf32, #{{.*}}>
// CHECK: chunk.conv_back %[[ROWS_OF_CHUNK]],
// CHECK: chunk.conv_taps %[[ROWS_OF_CHUNK]], %{{.*}} -> tensor<64x4xf32, #[[TAPS]]>
chunk.kernel @taps chunk 64 reverse (input %x: tensor<64x64xbf16>, parameter %w: tensor<64x64xbf16>,
                                     parameter %taps: tensor<64x4xf32>, checkpoint %t: tensor<3x64xbf16>,
                                     state %d: tensor<64x4xf32>, state %a: tensor<3x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %y = chunk.dot %x, %w : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o, %b = chunk.conv_back %y, %taps valid %n after %a : tensor<64x64xf32>, tensor<64x4xf32>, tensor<3x64xf32> -> tensor<64x64xf32>
  %left = arith.truncf %o : tensor<64x64xf32> to tensor<64x64xbf16>
  %sums = chunk.conv_taps %y, %x tail %t : tensor<64x64xf32>, tensor<64x64xbf16>, tensor<3x64xbf16> -> tensor<64x4xf32>
  %next = arith.addf %d, %sums : tensor<64x4xf32>
  chunk.yield %left next %next, %b : tensor<64x64xbf16>, tensor<64x4xf32>, tensor<3x64xf32>
}

// A delay reads rows where they are as well, with neither a copy nor a barrier; constants side by side no thread asks
// another for.
// CHECK-LABEL: kernel.func @delays
// CHECK: chunk.delay %{{.*}} by 2 tail %{{.*}} : tensor<64x64xbf16, #[[ROWS]]>, {{.*}} -> tensor<64x64xf32, #{{.*}}>
// PLANNED-LABEL: kernel.func @delays
// PLANNED: chunk.delay
// PLANNED-NOT: kernel.scratch
// PLANNED: chunk.concat
// PLANNED-NOT: kernel.scratch
// PLANNED: kernel.return
chunk.kernel @delays chunk 64 (input %x: tensor<64x64xbf16>, parameter %tail: tensor<3x64xbf16>, valid %n: index)
    -> (o: tensor<64x64xf32>, c: tensor<64x2xf32>) {
  %d = chunk.delay %x by 2 tail %tail : tensor<64x64xbf16>, tensor<3x64xbf16> -> tensor<64x64xf32>
  %zeros = arith.constant dense<0.0> : tensor<64xf32>
  %ones = arith.constant dense<1.0> : tensor<64xf32>
  %c = chunk.concat %zeros, %ones : tensor<64xf32>, tensor<64xf32> -> tensor<64x2xf32>
  chunk.yield %d, %c : tensor<64x64xf32>, tensor<64x2xf32>
}
