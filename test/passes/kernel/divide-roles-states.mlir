// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=4 outputs=4 walk=4})' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --pass-pipeline='builtin.module(kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-pass-late,stretto-share-channels,stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t.planned
// RUN: FileCheck %s --check-prefix=PLANNED <%t.planned
// RUN: stretto-opt %t.planned --stretto-lower-to-threads -o /dev/null
// RUN: sed 's/bulk depth 4/bulk depth 3/' %t.planned | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=PLACES
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=4 walk=4})' | FileCheck %s --check-prefix=ALONE

// A walk that leaves nothing but states, as one that finds what segments begin with, has nobody behind it: two groups
// scale keys for it, each with the factors of its own chunks, and both states are the walk's, so that no group carries
// anything.
// CHECK-LABEL: kernel.func @writes(
// CHECK-SAME: roles [#kernel.role<walk, 4>] beside @writes.ahead
// CHECK: scf.for {{.*}} -> (tensor<128x128xf32>, tensor<128xf32>)
// CHECK-NOT: chunk.accumulate
// CHECK: chunk.dot %{{.*}} transpose_left add
// CHECK-COUNT-2: kernel.save
// CHECK-LABEL: kernel.func @writes.ahead(
// CHECK-SAME: roles [#kernel.role<ahead, 4, 2>]
// CHECK: %[[GROUP:.*]] = kernel.group
// CHECK: %[[FIRST:.*]] = arith.addi %{{.*}}, %[[GROUP]]
// CHECK: kernel.load %f at %[[FIRST]]
// CHECK: scf.for {{.*}} -> (tensor<64xbf16>)
// CHECK: %[[NEXT:.*]] = arith.addi %{{.*}}, %c2
// CHECK-NEXT: kernel.load %f at %[[NEXT]]
// CHECK: chunk.accumulate
// CHECK-NOT: kernel.save
// CHECK: kernel.return

// A producer sends for both. Its tiles have four places, although there is memory for six: what groups load themselves
// would wait behind all that is on its way. Places are as many as each group has alike.
// PLANNED-LABEL: kernel.func @writes(
// PLANNED: kernel.channel passed {{[0-9]+}} bulk depth 4
// PLANNED-NOT: kernel.send
// PLANNED-LABEL: kernel.func @writes.ahead(
// PLANNED: kernel.channel passed {{[0-9]+}} bulk depth 4
// PLANNED-NOT: kernel.send
// PLANNED-LABEL: kernel.func @writes.producer(
// PLANNED-COUNT-2: kernel.send
// PLACES: error: 'kernel.channel' op has 3 places for tiles that are passed to 2 groups of warps, expected a multiple

// Rows of 72 bytes nobody can send for groups: one group copies them itself.
// CHECK-LABEL: kernel.func @narrow.ahead(
// CHECK-SAME: roles [#kernel.role<ahead, 4>]
// CHECK: kernel.send %k

// Where nobody finds outputs behind walks, such a walk does everything.
// ALONE-LABEL: kernel.func @writes(
// ALONE-SAME: roles [#kernel.role<all
chunk.kernel @writes chunk 64 (input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>, input %f: tensor<64xbf16>,
    state %S: tensor<128x128xf32>, state %T: tensor<128xf32>, valid %n: index) -> () {
  %f32 = arith.extf %f : tensor<64xbf16> to tensor<64xf32>
  %sums = chunk.accumulate sum %f32 : tensor<64xf32>
  %factors = chunk.broadcast %sums along rows : tensor<64xf32> to tensor<64x128xf32>
  %k32 = arith.extf %k : tensor<64x128xbf16> to tensor<64x128xf32>
  %scaled = arith.mulf %k32, %factors : tensor<64x128xf32>
  %keys = arith.truncf %scaled : tensor<64x128xf32> to tensor<64x128xbf16>
  %last = chunk.row %sums at 63 : tensor<64xf32> -> tensor<f32>
  %decay = chunk.broadcast %last along rows : tensor<f32> to tensor<128x128xf32>
  %kept = arith.mulf %S, %decay : tensor<128x128xf32>
  %next = chunk.dot %keys, %v transpose_left add %kept : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
  %added = chunk.broadcast %last along rows : tensor<f32> to tensor<128xf32>
  %total = arith.addf %T, %added : tensor<128xf32>
  chunk.yield next %next, %total : tensor<128x128xf32>, tensor<128xf32>
}

chunk.kernel @narrow chunk 64 (input %k: tensor<64x36xbf16>, input %v: tensor<64x128xbf16>, input %f: tensor<64xbf16>,
    state %S: tensor<36x128xf32>, valid %n: index) -> () {
  %f32 = arith.extf %f : tensor<64xbf16> to tensor<64xf32>
  %factors = chunk.broadcast %f32 along rows : tensor<64xf32> to tensor<64x36xf32>
  %k32 = arith.extf %k : tensor<64x36xbf16> to tensor<64x36xf32>
  %scaled = arith.mulf %k32, %factors : tensor<64x36xf32>
  %keys = arith.truncf %scaled : tensor<64x36xf32> to tensor<64x36xbf16>
  %next = chunk.dot %keys, %v transpose_left add %S : tensor<64x36xbf16>, tensor<64x128xbf16> -> tensor<36x128xf32>
  chunk.yield next %next : tensor<36x128xf32>
}
