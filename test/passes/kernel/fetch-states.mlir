// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{in-place},kernel.func(stretto-fetch-states))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{in-place},kernel.func(stretto-fetch-states{chip=sm_80}))' | FileCheck %s --check-prefix=OLDER
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{in-place},kernel.func(stretto-fetch-states,stretto-assign-layouts),stretto-plan-shared-memory{chip=sm_90a},kernel.func(stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREAD
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{in-place},kernel.func(stretto-fetch-states,stretto-assign-layouts),stretto-plan-shared-memory{chip=sm_90a},kernel.func(stretto-insert-barriers))' -o %t
// RUN: sed 's/inPlace\\22:true/inPlace\\22:false/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=PLACE
// RUN: sed 's/columns 65/columns 68/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=COLUMNS
// RUN: sed '/kernel.fetch/s/kernel.scratch/scratch/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=PLAN

// PLACE: error: 'kernel.fetch' op fetches states of a kernel that does not update them in place
// COLUMNS: error: 'kernel.fetch' op fetches what are no parts of one entry of as many columns, which is not sliced
// PLAN: error: 'kernel.fetch' op has no place in shared memory; run stretto-plan-shared-memory first

// Both parts of an entry come by one copy. What follows from them is computed behind what does not wait for it, and right
// before the result is stored; when all threads have saved, one copy takes the entry back.
// CHECK-LABEL: kernel.func @with_a_normaliser(
// CHECK: %[[ENTRY:.*]]:2 = kernel.fetch %S, %z columns 65
// CHECK: kernel.load %q at
// CHECK: arith.mulf
// CHECK: %[[S:.*]] = kernel.load %[[ENTRY]]#0
// CHECK: %[[Z:.*]] = kernel.load %[[ENTRY]]#1
// CHECK: %[[NEXT:.*]] = arith.addf %[[S]]
// CHECK: kernel.store
// CHECK: kernel.barrier
// CHECK: kernel.save %[[NEXT]] to %[[ENTRY]]#0
// CHECK: kernel.save %[[Z]] to %[[ENTRY]]#1
// CHECK: kernel.leave %[[ENTRY]]#0
// OLDER-LABEL: kernel.func @with_a_normaliser(
// OLDER-NOT: kernel.fetch

// The barrier lies behind 64 rows of 65 numbers; nobody waits at it, and no copy tells it anything, before it is made. A
// load waits, the first one. The copy back sees what threads have stored, and shared memory is there until it has been read.
// THREAD-LABEL: llvm.func @with_a_normaliser(
// THREAD: nvvm.mbarrier.init
// THREAD: nvvm.barrier
// THREAD: nvvm.mbarrier.arrive.expect_tx
// THREAD: nvvm.cp.async.bulk.shared.cluster.global
// THREAD: nvvm.mbarrier.try_wait.parity
// THREAD-NOT: llvm.load {{.*}}!llvm.ptr<1>
// THREAD-COUNT-32: llvm.load %{{.*}} : !llvm.ptr<3> -> f32
// THREAD-NOT: nvvm.mbarrier.try_wait.parity
// THREAD: nvvm.fence.proxy
// THREAD: nvvm.barrier
// THREAD: nvvm.cp.async.bulk.global.shared.cta
// THREAD: nvvm.cp.async.bulk.commit.group
// THREAD: nvvm.cp.async.bulk.wait_group 0 {read}
chunk.kernel @with_a_normaliser chunk 1 (input %q: tensor<1x64xf32>,
    state %S: tensor<64x64xf32> of "S" column 0 columns 65, state %z: tensor<64xf32> of "S" column 64 columns 65,
    valid %n: index) -> (o: tensor<1x64xf32>) {
  %row = chunk.row %q at 0 : tensor<1x64xf32> -> tensor<64xf32>
  %rows = chunk.broadcast %row along columns : tensor<64xf32> to tensor<64x64xf32>
  %next = arith.addf %S, %rows : tensor<64x64xf32>
  %sums = chunk.broadcast %z along columns : tensor<64xf32> to tensor<1x64xf32>
  %scaled = arith.mulf %q, %q : tensor<1x64xf32>
  %o = arith.addf %scaled, %sums : tensor<1x64xf32>
  chunk.yield %o next %next, %z : tensor<1x64xf32>, tensor<64x64xf32>, tensor<64xf32>
}

// Threads load rows of 16 bytes and more as they are.
// CHECK-LABEL: kernel.func @of_whole_pieces(
// CHECK-NOT: kernel.fetch
// THREAD-LABEL: llvm.func @of_whole_pieces(
chunk.kernel @of_whole_pieces chunk 1 (input %q: tensor<1x64xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<1x64xf32>) {
  chunk.yield %q next %S : tensor<1x64xf32>, tensor<64x64xf32>
}

// Three rows of 65 numbers are no multiple of 16 bytes.
// CHECK-LABEL: kernel.func @of_few_rows(
// CHECK-NOT: kernel.fetch
chunk.kernel @of_few_rows chunk 1 (input %q: tensor<1x64xf32>, state %S: tensor<3x65xf32> of "S" column 0 columns 65, valid %n: index)
    -> (o: tensor<1x64xf32>) {
  chunk.yield %q next %S : tensor<1x64xf32>, tensor<3x65xf32>
}

// Two blocks of a multiprocessor would not have memory for as much.
// CHECK-LABEL: kernel.func @of_much(
// CHECK-NOT: kernel.fetch
chunk.kernel @of_much chunk 1 (input %q: tensor<1x64xf32>, state %S: tensor<256x129xf32> of "S" column 0 columns 129,
    valid %n: index)
    -> (o: tensor<1x64xf32>) {
  chunk.yield %q next %S : tensor<1x64xf32>, tensor<256x129xf32>
}
