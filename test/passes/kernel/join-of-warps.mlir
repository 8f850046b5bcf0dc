// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{repeat-left=true}))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{repeat-left=true},stretto-plan-shared-memory),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREADS

// Each warpgroup takes one of two parts, of which it has whole rows: sums over these rows cross no warps, and what is put
// together does not pass through shared memory.
// CHECK-DAG: #[[ALL:.*]] = #kernel.layout<[6, 5], register = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 0{{\]\]}}>
// CHECK-DAG: #[[JOINED:.*]] = #kernel.layout<[6, 6], register = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 32{{\]\]}}>
// CHECK-LABEL: kernel.func @features
// CHECK: %[[Y:.*]] = chunk.dot {{.*}} -> tensor<64x32xf32, #[[ALL]]>
// CHECK: chunk.reduce sum %{{.*}} over columns : tensor<64x32xf32, #[[ALL]]>
// CHECK-NOT: kernel.convert
// CHECK: chunk.concat %{{.*}} : tensor<64x32xf32, #[[ALL]]>, tensor<64x32xf32, #[[ALL]]> -> tensor<64x64xf32, #[[JOINED]]>
// THREADS: arith.select %{{.*}} {kernel.choice_of_warp} : f32
chunk.kernel @features chunk 64 (input %x: tensor<64x64xbf16>, input %g: tensor<64x64xf32>,
                                 parameter %w: tensor<64x32xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>) {
  %y = chunk.dot %x, %w : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  %e = math.exp %y : tensor<64x32xf32>
  %sum = chunk.reduce sum %e over columns : tensor<64x32xf32> -> tensor<64xf32>
  %sums = chunk.broadcast %sum along rows : tensor<64xf32> to tensor<64x32xf32>
  %p = arith.divf %e, %sums : tensor<64x32xf32>
  %q = arith.negf %y : tensor<64x32xf32>
  %joined = chunk.concat %p, %q : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
  %o = arith.mulf %joined, %g : tensor<64x64xf32>
  chunk.yield %o next %S : tensor<64x64xf32>, tensor<64x64xf32>
}
