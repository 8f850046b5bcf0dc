// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=4 outputs=8 walk=4})' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --pass-pipeline='builtin.module(kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies))' -o %t.arranged
// RUN: stretto-opt %t.arranged --stretto-pass-late | FileCheck %s --check-prefix=LATE
// RUN: stretto-opt %t.arranged --pass-pipeline='builtin.module(stretto-pass-late,stretto-share-channels,stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' | FileCheck %s --check-prefix=SHARED
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=8 outputs=8 walk=4})' | FileCheck %s --check-prefix=TURNS
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{outputs=4 walk=4},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-pass-late)' | FileCheck %s --check-prefix=RETURNED

// Those who run ahead make of factors and keys what the walk adds, and pass sums on to those who find outputs; they load
// the next factors before all else. The walk has neither. The numbers of what is passed are those of one role each.
// CHECK-LABEL: kernel.func @scaled(
// CHECK-SAME: roles [#kernel.role<walk, 4>] beside @scaled.ahead
// CHECK-DAG: %[[STATES:.*]] = kernel.channel passed 1 depth 1 : <tensor<64x64xbf16>>
// CHECK-DAG: %[[KEYS:.*]] = kernel.channel passed [[KEYS_NUMBER:[23]]] depth 1 : <tensor<64x64xbf16>>
// CHECK-DAG: %[[DECAY:.*]] = kernel.channel passed {{[23]}} depth 1 : <tensor<64xf32>>
// CHECK-NOT: kernel.send %k
// CHECK-NOT: kernel.load %f
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK: kernel.pass %{{.*}} to %[[STATES]] turn %[[TURN]]
// CHECK-NOT: chunk.accumulate
// CHECK-DAG: kernel.receive %[[KEYS]] turn %[[TURN]]
// CHECK-DAG: kernel.receive %[[DECAY]] turn %[[TURN]]
// CHECK: chunk.dot %{{.*}} transpose_left add
// CHECK-NOT: kernel.store
// CHECK-LABEL: kernel.func @scaled.ahead(
// CHECK-SAME: roles [#kernel.role<ahead, 4>] beside @scaled.outputs
// CHECK-DAG: %[[FACTORS:.*]] = kernel.channel passed 0 depth 1 : <tensor<64xf32>>
// CHECK-DAG: %[[KEYS:.*]] = kernel.channel passed [[KEYS_NUMBER]] depth 1 : <tensor<64x64xbf16>>
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK: arith.addi %[[TURN]]
// CHECK-NEXT: kernel.load %f
// CHECK: chunk.accumulate
// CHECK-DAG: kernel.pass %{{.*}} to %[[FACTORS]] turn %[[TURN]]
// CHECK-DAG: kernel.pass %{{.*}} to %[[KEYS]] turn %[[TURN]]
// CHECK-NOT: chunk.dot
// CHECK-LABEL: kernel.func @scaled.outputs(
// CHECK-SAME: roles [#kernel.role<outputs, 4, 2>]
// CHECK-NOT: kernel.pass
// CHECK: kernel.store

// Two groups of those who run ahead take chunks in turns, too: each loads the factors of its own.
// TURNS-LABEL: kernel.func @scaled.ahead(
// TURNS-SAME: roles [#kernel.role<ahead, 4, 2>]
// TURNS: %[[GROUP:.*]] = kernel.group
// TURNS: %[[OWN:.*]] = arith.addi %{{.*}}, %[[GROUP]]
// TURNS: kernel.load %f at %[[OWN]]
// TURNS: scf.for %[[TURN:[a-z0-9]+]] =
// TURNS: %[[NEXT:.*]] = arith.addi %[[TURN]], %c2
// TURNS-NEXT: kernel.load %f at %[[NEXT]]

// The state is passed while the product runs that it is added to.
// LATE-LABEL: kernel.func @scaled(
// LATE: %[[COPY:.*]] = arith.truncf
// LATE: %[[PRODUCT:.*]] = chunk.dot %{{.*}} transpose_left add
// LATE-NEXT: kernel.pass %[[COPY]]
// LATE-NEXT: kernel.finish %[[PRODUCT]]

// Where those who find outputs pass keys back, they may wait for the state first.
// RETURNED-LABEL: kernel.func @scaled(
// RETURNED: kernel.pass %{{.*}} : tensor<64x64xbf16
// RETURNED: chunk.dot %{{.*}} transpose_left add
// RETURNED-NEXT: kernel.finish

// What threads load of a tile is released behind the fence of the matrix that they pass, and needs none of its own. Where
// a role has no products its threads do not meet for what they pass.
// SHARED-LABEL: kernel.func @scaled.ahead(
// SHARED: scf.for
// SHARED-NOT: kernel.barrier
// SHARED: %[[ROWS:.*]] = kernel.receive %[[CHANNEL:[0-9]+]] at
// SHARED: kernel.pass %{{.*}} : tensor<64x64xbf16
// SHARED-NEXT: kernel.release %[[CHANNEL]] turn %{{[a-z0-9]+}} : <
// SHARED-LABEL: kernel.func @scaled.outputs(
// SHARED-SAME: beside @scaled.producer
// SHARED-LABEL: kernel.func @scaled.producer(
chunk.kernel @scaled chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, input %f: tensor<64xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %sums = chunk.accumulate sum %f : tensor<64xf32>
  %factors = math.exp2 %sums : tensor<64xf32>
  %rows = chunk.broadcast %factors along rows : tensor<64xf32> to tensor<64x64xf32>
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %scaled = arith.mulf %read, %rows : tensor<64x64xf32>
  %o = arith.truncf %scaled : tensor<64x64xf32> to tensor<64x64xbf16>
  %k32 = arith.extf %k : tensor<64x64xbf16> to tensor<64x64xf32>
  %k.scaled = arith.mulf %k32, %rows : tensor<64x64xf32>
  %keys = arith.truncf %k.scaled : tensor<64x64xf32> to tensor<64x64xbf16>
  %last = chunk.row %factors at 63 : tensor<64xf32> -> tensor<f32>
  %whole = chunk.broadcast %last along rows : tensor<f32> to tensor<64x64xf32>
  %decayed = arith.mulf %S, %whole : tensor<64x64xf32>
  %next = chunk.dot %keys, %v transpose_left add %decayed : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
