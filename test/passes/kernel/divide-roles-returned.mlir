// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{outputs=4 walk=4})' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{outputs=8 walk=4})' | FileCheck %s --check-prefix=GROUPS

// Keys that are scaled are made by those who find outputs, and passed back. The walk passes factors and its state before
// it waits for them, and has neither keys nor their factors as a matrix.
// CHECK-LABEL: kernel.func @scaled(
// CHECK-SAME: roles [#kernel.role<walk, 4>] beside @scaled.outputs
// CHECK-DAG: %[[KEYS:.*]] = kernel.channel passed 2 depth 1 : <tensor<64x64xbf16>>
// CHECK-NOT: kernel.send %k
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK-DAG: kernel.pass %{{.*}} to %{{.*}} turn %[[TURN]] : tensor<64x64xbf16>
// CHECK-DAG: kernel.pass %{{.*}} to %{{.*}} turn %[[TURN]] : tensor<64xf32>
// CHECK: %[[GIVEN:.*]] = kernel.receive %[[KEYS]] turn %[[TURN]]
// CHECK-NOT: chunk.broadcast %{{.*}} to tensor<64x64xf32>
// CHECK: chunk.dot %[[GIVEN]], %{{.*}} transpose_left add
// CHECK-NOT: kernel.store
// CHECK: kernel.save
// CHECK-LABEL: kernel.func @scaled.outputs(
// CHECK-DAG: %[[KEYS:.*]] = kernel.channel passed 2 depth 1 : <tensor<64x64xbf16>>
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK: arith.extf
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: %[[MADE:.*]] = arith.truncf
// CHECK-NEXT: kernel.pass %[[MADE]] to %[[KEYS]] turn %[[TURN]]
// CHECK: kernel.store

// Of two groups neither has registers for that.
// GROUPS-LABEL: kernel.func @scaled(
// GROUPS: kernel.send %k
// GROUPS: scf.for
// GROUPS-NOT: kernel.receive %{{.*}} turn
// GROUPS: arith.mulf %{{.*}} : tensor<64x64xf32>
// GROUPS: kernel.save
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

// The walk makes nothing narrower of what comes back, and reads keys as they are beside those that are scaled.
// CHECK-LABEL: kernel.func @both(
// CHECK-SAME: roles [#kernel.role<walk, 4>] beside @both.outputs
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK-DAG: %[[ROWS:.*]] = kernel.receive %{{.*}} at
// CHECK-DAG: chunk.dot %[[ROWS]], %{{.*}} : tensor<64x64xbf16>
// CHECK-DAG: %[[GIVEN:.*]] = kernel.receive %{{.*}} turn %[[TURN]]
// CHECK: chunk.dot %[[GIVEN]], %{{.*}} transpose_left add
// CHECK-LABEL: kernel.func @both.outputs(
chunk.kernel @both chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %f: tensor<64xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %rows = chunk.broadcast %f along rows : tensor<64xf32> to tensor<64x64xf32>
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %recalled = chunk.dot %k, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %values = arith.truncf %recalled : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %read : tensor<64x64xf32> to tensor<64x64xbf16>
  %k32 = arith.extf %k : tensor<64x64xbf16> to tensor<64x64xf32>
  %k.scaled = arith.mulf %k32, %rows : tensor<64x64xf32>
  %keys = arith.truncf %k.scaled : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %keys, %values transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
