// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts))' | FileCheck %s

// Parts of one shape stay where they are, as what is made of them alone does, and numbers are repeated there; where other
// tiles are met, all pass through shared memory.
// CHECK-DAG: #[[PART:.*]] = #kernel.layout<[6, 5], register = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 16]]>
// CHECK-DAG: #[[JOINED:.*]] = #kernel.layout<[6, 6], register = {{\[\[}}0, 1], [8, 0], [0, 8], [0, 32]], lane = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 16]]>
// CHECK-DAG: #[[FRAGMENTS:.*]] = #kernel.layout<[6, 6], register = {{.*}}, lane = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 32]]>
// CHECK-LABEL: kernel.func @joins
// CHECK: %[[J:.*]] = chunk.concat %{{.*}}, %{{.*}} : tensor<64x32xf32, #[[PART]]>, tensor<64x32xf32, #[[PART]]> -> tensor<64x64xf32, #[[JOINED]]>
// CHECK: %[[W:.*]] = chunk.broadcast %{{.*}} along columns : {{.*}} to tensor<64x64xf32, #[[JOINED]]>
// CHECK: arith.mulf %[[J]], %[[W]] : tensor<64x64xf32, #[[JOINED]]>
// CHECK-NOT: kernel.convert {{.*}}#[[JOINED]]> -> tensor<64x64xf32
// CHECK: chunk.dot
// CHECK: chunk.concat {{.*}} -> tensor<64x64xf32, #[[FRAGMENTS]]>
chunk.kernel @joins chunk 64 (input %x: tensor<64x64xbf16>, parameter %w: tensor<64x32xbf16>, state %z: tensor<64xf32>,
                              state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %a = chunk.dot %x, %w : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  %b = math.exp %a : tensor<64x32xf32>
  %joined = chunk.concat %a, %b : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
  %numbers = chunk.broadcast %z along columns : tensor<64xf32> to tensor<64x64xf32>
  %weighted = arith.mulf %joined, %numbers : tensor<64x64xf32>
  %left = arith.truncf %weighted : tensor<64x64xf32> to tensor<64x64xbf16>
  %y = chunk.dot %left, %x : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %c = math.absf %a : tensor<64x32xf32>
  %mixed = chunk.concat %c, %b : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
  %o = arith.mulf %mixed, %y : tensor<64x64xf32>
  chunk.yield %o next %z, %S : tensor<64x64xf32>, tensor<64xf32>, tensor<64x64xf32>
}
