// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=4 walk=4})' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=8 walk=4},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: FileCheck %s --check-prefix=PLANNED <%t
// RUN: stretto-opt %t --stretto-lower-to-threads | FileCheck %s --check-prefix=THREADS

// The walk keeps the state and what follows from it. Scores, which it wants late, are waited for late.
// CHECK-LABEL: kernel.func @scores
// CHECK-SAME: roles [#kernel.role<walk, 4>] beside @scores.ahead
// CHECK: %[[PASSED:.*]] = kernel.channel passed 0 depth 1 : <tensor<64x64xbf16>>
// CHECK: scf.for %[[TURN:[a-z0-9]+]] = {{.*}} iter_args(%[[S:.*]] = %{{.*}}) -> (tensor<64x64xf32>)
// CHECK-NOT: chunk.causal
// CHECK: %[[READ:.*]] = chunk.dot %{{.*}}, %{{.*}} : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
// CHECK: %[[SCORES:.*]] = kernel.receive %[[PASSED]] turn %[[TURN]]
// CHECK: chunk.dot %[[SCORES]], %{{.*}} add %[[READ]]
// CHECK: kernel.save
// The others have neither, and receive what they read themselves.
// CHECK-LABEL: kernel.func @scores.ahead
// CHECK-SAME: roles [#kernel.role<ahead, 4>]
// CHECK: %[[PASSED:.*]] = kernel.channel passed 0 depth 1 : <tensor<64x64xbf16>>
// CHECK-NOT: kernel.load %S
// CHECK-NOT: kernel.send %v
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK-NOT: iter_args
// CHECK: %[[NARROW:.*]] = arith.truncf %{{.*}} : tensor<64x64xf32> to tensor<64x64xbf16>
// CHECK-NEXT: kernel.pass %[[NARROW]] to %[[PASSED]] turn %[[TURN]]
// CHECK-NOT: kernel.store
// CHECK-NOT: kernel.save
// CHECK: kernel.return

// Tiles are passed four at a time where memory suffices; a place is free when the product that reads it is done.
// PLANNED-LABEL: kernel.func @scores
// PLANNED: kernel.channel passed 0 depth 4 offset [[PLACE:[0-9]+]] barriers [[BARRIERS:[0-9]+]]
// PLANNED: %[[SCORES:.*]] = kernel.receive %[[RING:[0-9]+]] turn
// PLANNED: %[[OUT:.*]] = chunk.dot %[[SCORES]]
// PLANNED: kernel.finish %[[OUT]]
// PLANNED: kernel.release %[[RING]] turn
// PLANNED: kernel.store
// PLANNED-LABEL: kernel.func @scores.ahead
// PLANNED: kernel.channel passed 0 depth 4 offset [[PLACE]] barriers [[BARRIERS]]

// Who waits for whom: barriers of as many threads as fill a place, and as many as free it. From then on each role meets
// alone.
// THREADS-LABEL: llvm.func @scores
// THREADS-COUNT-4: nvvm.mbarrier.init %{{.*}}, %c256_i32
// THREADS-COUNT-4: nvvm.mbarrier.init %{{.*}}, %c128_i32
// THREADS: nvvm.fence.mbarrier.init
// THREADS: nvvm.barrier{{$}}
// THREADS: nvvm.barrier id = %c1_i32{{.*}} number_of_threads = %c128_i32
// THREADS: nvvm.mbarrier.try_wait.parity
// THREADS: nvvm.mbarrier.arrive %
// THREADS: nvvm.barrier id = %c2_i32{{.*}} number_of_threads = %c256_i32
// THREADS: nvvm.mbarrier.try_wait.parity
// THREADS: nvvm.mbarrier.arrive %
// THREADS: {kernel.roles = 128 : i64}
// THREADS: llvm.func
chunk.kernel @scores chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>) {
  %p = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %m = chunk.causal %p : tensor<64x64xf32>
  %scores = arith.truncf %m : tensor<64x64xf32> to tensor<64x64xbf16>
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = chunk.dot %scores, %v add %read : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

// Conditions are passed as tiles of one number; numbers that are repeated are passed before they are.
// CHECK-LABEL: kernel.func @condition
// CHECK-SAME: beside @condition.ahead
// CHECK: %[[NUMBERS:.*]] = kernel.receive %{{.*}} turn %{{.*}} : <tensor<64xf32>> -> tensor<64xf32>
// CHECK: chunk.broadcast %[[NUMBERS]] along rows
// CHECK: %[[TILE:.*]] = kernel.receive %{{.*}} turn %{{.*}} : <tensor<1xi1>> -> tensor<1xi1>
// CHECK: %[[FLAG:.*]] = kernel.condition %[[TILE]] : tensor<1xi1>
// CHECK: scf.if %[[FLAG]]
// CHECK-LABEL: kernel.func @condition.ahead
// CHECK: %[[FLAG:.*]] = chunk.within
// CHECK: %[[TILE:.*]] = arith.select %[[FLAG]], %{{.*}}, %{{.*}} : tensor<1xi1>
// CHECK-NEXT: kernel.pass %[[TILE]]
chunk.kernel @condition chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %p = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %z = chunk.reduce sum %p over columns : tensor<64x64xf32> -> tensor<64xf32>
  %flag = chunk.within %z limits [1.0e+01] : tensor<64xf32>
  %rows = chunk.broadcast %z along rows : tensor<64xf32> to tensor<64x64xf32>
  %faded = arith.mulf %S, %rows : tensor<64x64xf32>
  %kept = scf.if %flag -> (tensor<64x64xf32>) {
    scf.yield %faded : tensor<64x64xf32>
  } else {
    %twice = arith.addf %faded, %faded : tensor<64x64xf32>
    scf.yield %twice : tensor<64x64xf32>
  }
  %s = arith.truncf %kept : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %k, %q transpose_left add %kept : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

// Where nothing is left for those ahead, or nothing is walked over, one role does everything.
// CHECK-LABEL: kernel.func @only_walk
// CHECK-SAME: roles [#kernel.role<all,
// CHECK-NOT: beside
// CHECK-LABEL: kernel.func @no_state
// CHECK-SAME: roles [#kernel.role<all,
chunk.kernel @only_walk chunk 64 (input %q: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %q, %q transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<64x64xf32>
}
chunk.kernel @no_state chunk 64 (input %q: tensor<64x64xbf16>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %o = chunk.dot %q, %q transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o : tensor<64x64xf32>
}
