// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{from-start},stretto-divide-roles{ahead=4 outputs=4 walk=4},kernel.func(stretto-assign-layouts{warpgroups},stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-share-channels)' | FileCheck %s

chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}

// Keys that come late go to those who run ahead and to the walk through channels of their own: of several chunks that lie
// before a packed sequence roles do not tell each other that their rows are cleared.
// CHECK-LABEL: kernel.func @joins(
// CHECK: kernel.channel passed [[WALK:[0-9]+]] bulk
// CHECK-LABEL: kernel.func @joins.ahead(
// CHECK: kernel.channel passed [[AHEAD:[0-9]+]] bulk
// CHECK-LABEL: kernel.func @joins.producer(
// CHECK-DAG: %[[TO_WALK:.*]] = kernel.channel passed [[WALK]] bulk
// CHECK-DAG: %[[TO_AHEAD:.*]] = kernel.channel passed [[AHEAD]] bulk
// CHECK: scf.for
// CHECK-DAG: kernel.send %k at %{{.*}} to %[[TO_WALK]] turn
// CHECK-DAG: kernel.send %k at %{{.*}} to %[[TO_AHEAD]] turn
chunk.kernel @joins chunk 64 (input %k: tensor<64x128xbf16>, parameter %w: tensor<128x128xbf16>, table %position: tensor<64xf32>,
    state %S: tensor<128x128xf32>, valid %n: index) -> () {
  %written = chunk.lookback outer from %position to %position : tensor<64xf32>
      past(%k_j = %k : tensor<64x128xbf16>) attributes {met = array<i64: 2, 2>, wholly = array<i64: 2, 2>} {
    %z = chunk.dot %k_j, %w : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
    %e = math.exp %z : tensor<64x128xf32>
    %x = arith.truncf %e : tensor<64x128xf32> to tensor<64x128xbf16>
    %f = arith.extf %x : tensor<64x128xbf16> to tensor<64x128xf32>
    %y = arith.extf %k_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %f, %y : tensor<64x128xf32>, tensor<64x128xf32>
  } : tensor<128x128xf32>
  %next = arith.addf %S, %written : tensor<128x128xf32>
  chunk.yield next %next : tensor<128x128xf32>
}
