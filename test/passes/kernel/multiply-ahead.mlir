// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=4 warpgroups},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-multiply-ahead,canonicalize,stretto-overlap-products))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=4 warpgroups},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-multiply-ahead{registers=16},stretto-overlap-products))' | FileCheck %s --check-prefix=FEW

// The loop carries the scores of its tile. Keys of the first and of the second tile are sent before it, the second
// where nobody reads any longer, and each turn sends those behind the next; values stay with their turn. The products of
// the next tile begin behind the only branch, and are waited for when the turn ends.
// CHECK-LABEL: kernel.func @softmax
// CHECK: %[[BEGIN:[a-z_0-9]+]], %[[END:[a-z_0-9]+]] = kernel.span
// CHECK: kernel.await
// CHECK: %[[FIRST:.*]] = scf.if
// CHECK-NEXT: %[[TILE:.*]] = kernel.receive %[[KEYS:.*]] at %[[BEGIN]] turn %c0
// CHECK-NEXT: chunk.dot %{{.*}}, %[[TILE]] transpose_right
// CHECK-NEXT: kernel.finish
// CHECK: kernel.barrier
// CHECK: scf.if
// CHECK-NEXT: kernel.send %k at %{{.*}} to %[[KEYS]] turn %c1
// CHECK-NEXT: }
// CHECK: scf.for %[[I:.*]] = %[[BEGIN]] to %[[END]] {{.*}}, %[[SCORES:[a-z0-9]+]] = %[[FIRST]])
// CHECK: kernel.await
// CHECK: %[[FURTHER:.*]] = arith.addi %[[I]], %c2
// CHECK: scf.if
// CHECK: kernel.send %k at %[[FURTHER]] to %[[KEYS]]
// CHECK: scf.if
// CHECK-NOT: kernel.send %k
// CHECK: kernel.send %v
// CHECK: %[[VALUES:.*]] = kernel.receive %{{.*}} at %[[I]]
// CHECK: scf.if
// CHECK-NEXT: scf.yield %[[SCORES]]
// CHECK: %[[LAST:.*]] = arith.subi %[[END]], %c1
// CHECK-NEXT: %[[NEXT:.*]] = arith.minsi %{{.*}}, %[[LAST]]
// CHECK: %[[TILE:.*]] = kernel.receive %[[KEYS]] at %[[NEXT]]
// CHECK-NEXT: %[[AHEAD:.*]] = chunk.dot %{{.*}}, %[[TILE]] transpose_right
// CHECK-NOT: kernel.finish
// CHECK: math.exp
// CHECK: chunk.dot %{{.*}}, %[[VALUES]] add
// CHECK: %[[DONE:.*]] = kernel.finish %[[AHEAD]]
// CHECK: scf.yield {{.*}}, %[[DONE]] :

// Where registers do not reach, each turn waits for its own.
// FEW-LABEL: kernel.func @softmax
// FEW: scf.for
// FEW: kernel.receive
// FEW: %[[S:.*]] = chunk.dot {{.*}} transpose_right
// FEW: kernel.finish %[[S]]
// FEW: math.exp
chunk.kernel @softmax chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>,
                                input %v: tensor<64x64xbf16>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %first = arith.constant dense<0.0> : tensor<64xf32>
  %m, %l, %acc = chunk.lookback softmax from %first : tensor<64xf32>
      past(%k_j = %k : tensor<64x64xbf16>, %v_j = %v : tensor<64x64xbf16>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %values = arith.extf %v_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %s, %values : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  chunk.yield %acc : tensor<64x64xf32>
}

// What the turn reads as values, too, stays with it.
// CHECK-LABEL: kernel.func @same
// CHECK-NOT: arith.minsi
// CHECK: kernel.return
chunk.kernel @same chunk 64 (input %k: tensor<64x64xbf16>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %first = arith.constant dense<0.0> : tensor<64xf32>
  %m, %l, %acc = chunk.lookback softmax from %first : tensor<64xf32> past(%k_j = %k : tensor<64x64xbf16>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %values = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %s, %values : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  chunk.yield %acc : tensor<64x64xf32>
}
