// RUN: stretto-opt %s --split-input-file --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8 warpgroups=true})' | FileCheck %s
// RUN: stretto-opt %s --split-input-file --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8 warpgroups=true},kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREADS
// RUN: not stretto-opt %s --split-input-file --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-assign-layouts,stretto-select-products{chip=sm_80},stretto-overlap-products,stretto-select-copies{chip=sm_80}))' 2>&1 | FileCheck %s --check-prefix=THREADS-COPY

// The state at the start of a chunk of odd number is what the chunk before it makes of its own, of tiles that come in
// the next turn: they are waited for behind what asks for no state, and the result takes the place of the state that has
// arrived. What stands between is no kernel where it is private. The keys' gradient is weighed before that and the queries'
// behind: what both ask for, made of a tile that is at hand, is made twice, and keeps no registers in between.
// CHECK-NOT: kernel.func @f_checkpoints
// CHECK-LABEL: kernel.func @f(
// CHECK-SAME: \22interval\22:2
// CHECK: %[[Q:.*]] = kernel.channel depth 2 : <tensor<32x64xbf16>>
// CHECK: %[[K:.*]] = kernel.channel depth 2 : <tensor<32x64xbf16>>
// CHECK: %[[V:.*]] = kernel.channel depth 2 : <tensor<32x64xbf16>>
// CHECK: %[[CHANNEL:.*]] = kernel.channel depth 2 : <tensor<64x64xbf16>>
// CHECK: scf.for
// CHECK: %[[INDEX:.*]] = arith.subi
// CHECK: kernel.await
// CHECK: %[[NEXT:.*]] = arith.subi %[[INDEX]], %{{.*}} : index
// CHECK: kernel.send %S at %[[NEXT]]
// CHECK: %[[KEYS:.*]] = chunk.dot {{.*}} transpose_right
// CHECK: %[[WEIGHTS:.*]] = arith.extf %[[QUERIES:.*]] : tensor<32x64xbf16>
// CHECK: arith.mulf %[[KEYS]], %[[WEIGHTS]]
// CHECK: %[[KEPT:.*]] = kernel.receive %[[CHANNEL]] at %[[INDEX]]
// CHECK: %[[ONE:.*]] = arith.constant 1 : index
// CHECK-NEXT: %[[PLACE:.*]] = arith.andi %[[INDEX]], %[[ONE]] : index
// CHECK-NEXT: %[[SECOND:.*]] = arith.cmpi eq, %[[PLACE]], %[[ONE]] : index
// CHECK-NEXT: scf.if %[[SECOND]] {
// CHECK-DAG: kernel.receive %[[K]] at %[[NEXT]]
// CHECK-DAG: kernel.receive %[[V]] at %[[NEXT]]
// CHECK: %[[WIDE:.*]] = arith.extf %[[KEPT]] : tensor<64x64xbf16> to tensor<64x64xf32>
// CHECK: %[[OWN:.*]] = chunk.dot {{.*}} transpose_left add %[[WIDE]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[OWN]]
// CHECK: kernel.replace %[[NARROW]] in %[[CHANNEL]] at %[[INDEX]]
// CHECK-NEXT: }
// CHECK-NEXT: %[[STATE:.*]] = kernel.receive %[[CHANNEL]] at %[[INDEX]]
// CHECK: %[[FOUND:.*]] = chunk.dot %{{.*}}, %[[STATE]] transpose_right
// CHECK: %[[AGAIN:.*]] = arith.extf %[[QUERIES]] : tensor<32x64xbf16>
// CHECK: arith.mulf %[[FOUND]], %[[AGAIN]]

// Threads meet when all have read the state that is replaced, and behind a fence before products read the new one; one
// checkpoint is there for two chunks.
// THREADS-LABEL: llvm.func @f(
// THREADS: scf.for
// THREADS: arith.andi
// THREADS: scf.if
// THREADS: arith.addf
// THREADS: nvvm.barrier
// THREADS: nvvm.stmatrix
// THREADS: nvvm.fence.proxy
// THREADS: nvvm.barrier

// Threads that copy tiles wait for those of their own turn.
// THREADS-COPY: error: {{.*}}passes tiles that are received before their turn, and cannot be filled in bulk: the chip does not copy boxes
chunk.kernel @f_checkpoints chunk 32 (input %k: tensor<32x64xbf16>, input %v: tensor<32x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (S: tensor<64x64xbf16> checkpoint) attributes {sym_visibility = "private"} {
  %kept = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<32x64xbf16>, tensor<32x64xbf16> -> tensor<64x64xf32>
  chunk.yield %kept next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
chunk.kernel @f chunk 32 reverse between @f_checkpoints (input %q: tensor<32x64xbf16>, input %k: tensor<32x64xbf16>, input %v: tensor<32x64xbf16>, checkpoint %S: tensor<64x64xbf16>, state %d_S: tensor<64x64xf32>, valid %n: index)
    -> (d_q: tensor<32x64xf32>, d_k: tensor<32x64xf32>) {
  %narrow = arith.truncf %d_S : tensor<64x64xf32> to tensor<64x64xbf16>
  %keys = chunk.dot %v, %narrow transpose_right : tensor<32x64xbf16>, tensor<64x64xbf16> -> tensor<32x64xf32>
  %weights = arith.extf %q : tensor<32x64xbf16> to tensor<32x64xf32>
  %d_k = arith.mulf %keys, %weights : tensor<32x64xf32>
  %queries = chunk.dot %q, %S transpose_right : tensor<32x64xbf16>, tensor<64x64xbf16> -> tensor<32x64xf32>
  %d_q = arith.mulf %queries, %weights : tensor<32x64xf32>
  %next = chunk.dot %q, %v transpose_left add %d_S : tensor<32x64xbf16>, tensor<32x64xbf16> -> tensor<64x64xf32>
  chunk.yield %d_q, %d_k next %next : tensor<32x64xf32>, tensor<32x64xf32>, tensor<64x64xf32>
}
