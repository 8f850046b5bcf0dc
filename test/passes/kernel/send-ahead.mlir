// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers))' | FileCheck %s --check-prefix=BARRIERS
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=LOWERED

// A ring of four tiles: three are under way before the loop, and each turn sends the fourth from it on. Nobody waits for
// copies of all threads.
// CHECK-LABEL: kernel.func @f
// CHECK: %[[CHUNKS:.*]] = arith.divui
// CHECK: %[[RING:.*]] = kernel.channel bulk depth 4
// CHECK-COUNT-3: kernel.send %q at %{{.*}} to %[[RING]] turn
// CHECK-NOT: kernel.barrier
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK-NOT: kernel.await
// CHECK: %[[AHEAD:.*]] = arith.addi %[[TURN]], %c3
// CHECK: %[[MORE:.*]] = arith.cmpi slt, %[[AHEAD]], %[[CHUNKS]]
// CHECK: scf.if %[[MORE]]
// CHECK-NEXT: kernel.send %q at %{{.*}} to %[[RING]] turn %[[AHEAD]]
// CHECK: kernel.receive %[[RING]] at %[[TURN]] turn %[[TURN]]

// The barriers of the ring are there for all before the first tile is sent. In the loop a tile is sent behind a barrier,
// where all have read the one before.
// BARRIERS-LABEL: kernel.func @f
// BARRIERS: kernel.channel bulk
// BARRIERS-NOT: kernel.send
// BARRIERS: kernel.barrier
// BARRIERS-NEXT: scf.if
// BARRIERS-NEXT: kernel.send
// BARRIERS: scf.for
// BARRIERS-NOT: kernel.send
// BARRIERS: kernel.barrier
// BARRIERS-NEXT: scf.if
// BARRIERS-NEXT: kernel.send

// One thread makes the barriers and orders the box of 64 columns; all wait for its bytes.
// LOWERED-LABEL: llvm.func @f
// LOWERED: scf.if
// LOWERED-COUNT-4: nvvm.mbarrier.init
// LOWERED: nvvm.fence.mbarrier.init
// LOWERED: nvvm.mbarrier.arrive.expect_tx
// LOWERED: nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} box[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}]
// LOWERED: scf.for
// LOWERED: nvvm.mbarrier.try_wait.parity
chunk.kernel @f chunk 16 (input %q: tensor<16x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %q, %s : tensor<16x64xbf16>, tensor<64x64xbf16> -> tensor<16x64xf32>
  %next = chunk.dot %q, %q transpose_left add %S : tensor<16x64xbf16>, tensor<16x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<16x64xf32>, tensor<64x64xf32>
}

// In reverse the chunks before come next. What threads copy is still waited for in each turn.
// CHECK-LABEL: kernel.func @reverse
// CHECK: kernel.channel bulk
// CHECK: arith.subi
// CHECK: scf.for
// CHECK: kernel.await
// CHECK: arith.subi %{{.*}}, %c3
chunk.kernel @reverse chunk 16 reverse (input %q: tensor<16x64xbf16>, input %x: tensor<16x9xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<16x9xbf16>) {
  %next = chunk.dot %q, %q transpose_left add %S : tensor<16x64xbf16>, tensor<16x64xbf16> -> tensor<64x64xf32>
  chunk.yield %x next %next : tensor<16x9xbf16>, tensor<64x64xf32>
}

// A chunk for itself has nothing to compute with but what it has just sent for. It sends in the order in which tiles are
// first read, and waits for each where that is.
// CHECK-LABEL: kernel.func @alone
// CHECK-DAG: kernel.send %k at %{{.*}} to %[[K:.*]] turn
// CHECK: kernel.send %q at %{{.*}} to %[[Q:.*]] turn
// CHECK-NOT: kernel.receive %[[Q]]
// CHECK: kernel.receive %[[K]]
// CHECK-NEXT: %[[SCORES:.*]] = chunk.dot
// CHECK: kernel.receive %[[Q]]
// CHECK-NEXT: chunk.dot
chunk.kernel @alone chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %s = chunk.dot %k, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %rounded = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %rounded, %q : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o : tensor<64x64xf32>
}

// A number of a parameter is there before the loop, and what is made of it and nothing else is made there.
// CHECK-LABEL: kernel.func @number
// CHECK: kernel.send %w to %[[W:.*]] :
// CHECK: kernel.await
// CHECK: kernel.receive %[[W]]
// CHECK: %[[RATE:.*]] = math.exp
// CHECK: scf.for
// CHECK-NOT: math.exp
// CHECK: chunk.broadcast %[[RATE]]
// CHECK: kernel.return
chunk.kernel @number chunk 16 (input %q: tensor<16x64xbf16>, parameter %w: tensor<f32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<16x64xf32>) {
  %rate = math.exp %w : tensor<f32>
  %rates = chunk.broadcast %rate along rows : tensor<f32> to tensor<16x64xf32>
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<16x64xbf16>, tensor<64x64xbf16> -> tensor<16x64xf32>
  %o = arith.mulf %read, %rates : tensor<16x64xf32>
  %next = chunk.dot %q, %q transpose_left add %S : tensor<16x64xbf16>, tensor<16x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<16x64xf32>, tensor<64x64xf32>
}

// Segments that come one after the other take little of what is kept of each: threads send it three turns ahead, and
// wait in a turn for all but what is sent for those behind it.
// CHECK-LABEL: kernel.func @turns
// CHECK: %[[LEFT:.*]] = kernel.channel depth 4
// CHECK-COUNT-3: kernel.send %left at %{{.*}} to %[[LEFT]] turn
// CHECK-NOT: kernel.send
// CHECK: kernel.await
// CHECK-NEXT: scf.for
// CHECK: kernel.await pending 2
// CHECK: scf.if
// CHECK-NEXT: kernel.send %left at %{{.*}} to %[[LEFT]] turn
// CHECK: kernel.receive %[[LEFT]]
// LOWERED-LABEL: llvm.func @turns
// LOWERED: nvvm.cp.async.commit.group
// LOWERED-NEXT: nvvm.cp.async.wait.group 0
// LOWERED: scf.for
// LOWERED: nvvm.cp.async.commit.group
// LOWERED-NEXT: nvvm.cp.async.wait.group 2
chunk.kernel @turns chunk 16 segments turns(checkpoint %left: tensor<64x16xf32>, state %state: tensor<64x16xf32>,
    valid %n: index) -> (state: tensor<64x16xf32> checkpoint) {
  %sum = arith.addf %state, %left : tensor<64x16xf32>
  chunk.yield %state next %sum : tensor<64x16xf32>, tensor<64x16xf32>
}

// Back, too.
// CHECK-LABEL: kernel.func @back
// CHECK: kernel.channel depth 4
// CHECK: scf.for
// CHECK: kernel.await pending 2
// CHECK: arith.subi %{{.*}}, %c3
chunk.kernel @back chunk 16 reverse segments turns(checkpoint %left: tensor<64x64xf32>, state %state: tensor<64x64xf32>,
    valid %n: index) -> (state: tensor<64x64xf32> checkpoint) {
  %sum = arith.addf %state, %left : tensor<64x64xf32>
  chunk.yield %state next %sum : tensor<64x64xf32>, tensor<64x64xf32>
}

// Where two blocks of a multiprocessor have no room for that, one turn ahead.
// CHECK-LABEL: kernel.func @large
// CHECK: kernel.channel depth 2
// CHECK: scf.for
// CHECK-NEXT: kernel.await{{$}}
chunk.kernel @large chunk 16 segments turns(checkpoint %left: tensor<128x128xf32>, state %state: tensor<128x128xf32>,
    valid %n: index) -> (state: tensor<128x128xf32> checkpoint) {
  %sum = arith.addf %state, %left : tensor<128x128xf32>
  chunk.yield %state next %sum : tensor<128x128xf32>, tensor<128x128xf32>
}
