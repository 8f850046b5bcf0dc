// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{outputs=4 walk=4},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-share-channels)' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --pass-pipeline='builtin.module(stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' | FileCheck %s --check-prefix=PLANNED
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{outputs=8 walk=4},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-share-channels)' -o %t.groups
// RUN: FileCheck %s --check-prefix=GROUPS <%t.groups
// RUN: stretto-opt %t.groups --pass-pipeline='builtin.module(stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t.planned
// RUN: FileCheck %s --check-prefix=PRODUCED <%t.planned
// RUN: stretto-opt %t.planned --stretto-lower-to-threads | FileCheck %s --check-prefix=THREADS
// RUN: sed 's/passed 0 depth 4/passed 0 depth 1/' %t.planned | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=PLACES
// RUN: sed '/kernel.release/d' %t.planned | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=RELEASED
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=4 walk=4},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-share-channels)' | FileCheck %s --check-prefix=AHEAD

// The walk sends what both read, and queries, which outputs alone read. They release all, and send nothing.
// CHECK-LABEL: kernel.func @linear(%q:
// CHECK-SAME: roles [#kernel.role<walk, 4>] beside @linear.outputs
// CHECK-DAG: %[[Q:.*]] = kernel.channel passed 3 bulk depth 2
// CHECK-DAG: kernel.channel passed 0 depth 1
// CHECK-DAG: %[[K:.*]] = kernel.channel passed 1 bulk depth 2
// CHECK-DAG: %[[V:.*]] = kernel.channel passed 2 bulk depth 2
// CHECK: scf.for
// CHECK-DAG: kernel.send %q at %{{.*}} to %[[Q]]
// CHECK-DAG: kernel.receive %[[Q]] at
// CHECK-DAG: kernel.send %k at %{{.*}} to %[[K]]
// CHECK-DAG: kernel.send %v at %{{.*}} to %[[V]]
// CHECK: kernel.func @linear.outputs
// CHECK-SAME: roles [#kernel.role<outputs, 4>]
// CHECK-NOT: kernel.send
// CHECK: kernel.receive %{{.*}} at %{{.*}} turn
// CHECK-NOT: kernel.send
// CHECK: kernel.return
// CHECK-NOT: kernel.func

// Equally deep at both ends. What is sent waits at the end of a turn, behind all that the other role waits for; what was
// read is released when the product is done that reads it.
// PLANNED: kernel.func @linear(%q:
// PLANNED-DAG: kernel.channel passed 1 bulk depth [[DEPTH:[0-9]+]] offset [[PLACE:[0-9]+]] barriers [[BARRIERS:[0-9]+]]
// PLANNED: scf.for
// PLANNED: kernel.pass
// PLANNED: kernel.finish
// PLANNED: scf.if
// PLANNED: kernel.send
// PLANNED: }
// PLANNED-NEXT: scf.yield
// PLANNED: kernel.func @linear.outputs
// PLANNED: %[[K:.*]] = kernel.channel passed 1 bulk depth [[DEPTH]] offset [[PLACE]] barriers [[BARRIERS]]
// PLANNED: %[[ROWS:.*]] = kernel.receive %[[K]] at
// PLANNED: %[[SCORES:.*]] = chunk.dot %{{.*}}, %[[ROWS]]
// PLANNED: kernel.finish %[[SCORES]]
// PLANNED-NEXT: kernel.release %[[K]] turn

// For groups that take chunks in turns a producer sends, one chunk after the other, and nothing else: nobody else sends,
// and the walk does not wait for queries.
// GROUPS-LABEL: kernel.func @linear(%q:
// GROUPS-SAME: roles [#kernel.role<walk, 4>] beside @linear.outputs
// GROUPS-SAME: \22threads\22:512
// GROUPS-COUNT-2: bulk depth 2
// GROUPS-NOT: kernel.channel {{.*}}bulk
// GROUPS-NOT: kernel.send
// GROUPS: kernel.func @linear.outputs
// GROUPS-SAME: roles [#kernel.role<outputs, 4, 2>] beside @linear.producer
// GROUPS-NOT: kernel.send
// GROUPS: kernel.func @linear.producer
// GROUPS-SAME: roles [#kernel.role<producer, 4>] attributes
// GROUPS: %[[END:.*]] = arith.divui
// GROUPS: scf.for %[[CHUNK:.*]] = %c0 to %[[END]] step %c1 {
// GROUPS-NEXT: kernel.send %k at %[[CHUNK]] to %{{.*}} turn %[[CHUNK]]
// GROUPS-NEXT: kernel.send %v at %[[CHUNK]] to
// GROUPS-NEXT: kernel.send %q at %[[CHUNK]] to
// GROUPS-NEXT: }
// GROUPS-NEXT: kernel.return

// It sends as far ahead as there is room, which is further than a walk would, and meets nobody; each role releases what it
// has read, and has no barrier in its loop.
// PRODUCED: kernel.func @linear(%q:
// PRODUCED: kernel.channel passed {{[0-9]+}} bulk depth 6
// PRODUCED: scf.for
// PRODUCED-NOT: kernel.barrier
// PRODUCED: kernel.finish
// PRODUCED-NEXT: kernel.release
// PRODUCED-NEXT: kernel.release
// PRODUCED: kernel.func @linear.producer
// PRODUCED-NOT: kernel.barrier
// PRODUCED: kernel.return

// The copy completes the one barrier of a place, those who read the other: of two groups, which take chunks in turns, the
// one that has the chunk, beside the walk. Each group is a role of its own for the barriers at which it meets.
// THREADS-LABEL: llvm.func @linear
// THREADS: nvvm.mbarrier.init %{{.*}}, %c128_i32
// THREADS: nvvm.mbarrier.init %{{.*}}, %c1_i32
// THREADS: nvvm.mbarrier.init %{{.*}}, %c256_i32
// THREADS: nvvm.barrier id = %c1_i32
// THREADS: nvvm.barrier id = %c2_i32
// THREADS: nvvm.barrier id = %c3_i32
// THREADS: nvvm.setmaxregister decrease 40
// THREADS: {kernel.roles = 128 : i64}
// THREADS: {kernel.roles = 128 : i64}
// THREADS: {kernel.roles = 128 : i64}

// A group that came back to a place could not tell its tile from that of the turn between.
// PLACES: error: 'kernel.channel' op has 1 places for tiles that are passed to 2 groups of warps, expected a multiple

// What nobody releases would be waited for.
// RELEASED: error: 'kernel.func' op has a channel that is not passed or sent by one role, once a turn, and received and released by the others

// Who runs ahead has copies of its own.
// AHEAD-LABEL: kernel.func @linear(%q:
// AHEAD-SAME: beside @linear.ahead
// AHEAD: scf.for
// AHEAD-DAG: kernel.send %k
// AHEAD-DAG: kernel.send %v
// AHEAD: kernel.func @linear.ahead
// AHEAD: scf.for
// AHEAD-DAG: kernel.send %q
// AHEAD-DAG: kernel.send %k
chunk.kernel @linear chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %p = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %m = chunk.causal %p : tensor<64x64xf32>
  %scores = arith.truncf %m : tensor<64x64xf32> to tensor<64x64xbf16>
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %sum = chunk.dot %scores, %v add %read : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %sum : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
