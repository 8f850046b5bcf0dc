// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warpgroups=true},stretto-divide-roles{outputs=4 walk=4},kernel.func(stretto-assign-layouts{read-again=true repeat-left=true warpgroups=true},control-flow-sink,stretto-select-products{chip=sm_90a},stretto-overlap-products,stretto-select-copies{chip=sm_90a}),stretto-share-channels,stretto-plan-shared-memory{chip=sm_90a},kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --stretto-lower-to-threads=chip=sm_90a | FileCheck %s --check-prefix=THREADS
// RUN: sed 's/staged matrices bulk/staged bulk/' %t | not stretto-opt --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=STAGE

// Who finds outputs behind a walk leaves them for the memory system, in boxes of each warp's 16 rows. What was left a chunk
// before has been read by then. Of a chunk that is cut threads store the rows themselves. At the end the role waits.
// CHECK-LABEL: kernel.func @wide.outputs(
// CHECK: kernel.store {{.*}} staged matrices bulk
// THREADS-LABEL: llvm.func @wide(
// THREADS-SAME: \22name\22:\22o\22
// THREADS-SAME: \22box\22:64,\22boxRows\22:16}
// THREADS: nvvm.cp.async.bulk.wait_group 0 {read}
// THREADS: nvvm.bar.warp.sync
// THREADS: nvvm.stmatrix
// THREADS: nvvm.fence.proxy
// THREADS: nvvm.bar.warp.sync
// THREADS: nvvm.cp.async.bulk.tensor.global.shared.cta
// THREADS-NOT: nvvm.cp.async.bulk.tensor.global.shared.cta
// THREADS: nvvm.cp.async.bulk.commit.group
// THREADS: } else {
// THREADS: llvm.store {{.*}} !llvm.ptr<1>
// THREADS: nvvm.cp.async.bulk.wait_group 0 {read}
// STAGE: error: {{.*}}stores in bulk what is no output, or a tile of which warps do not have boxes of their own in a stage
chunk.kernel @wide chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>,
                             state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %a = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %m = chunk.causal %a : tensor<64x64xf32>
  %p = arith.truncf %m : tensor<64x64xf32> to tensor<64x64xbf16>
  %r = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %y = chunk.dot %p, %v add %r : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %y : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}

// Rows of 64 bytes threads store faster.
// CHECK-LABEL: kernel.func @narrow.outputs(
// CHECK-NOT: bulk {kernel.scratch
// CHECK: kernel.store {{.*}} staged matrices {
chunk.kernel @narrow chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x32xbf16>,
                               state %S: tensor<64x32xf32>, valid %n: index) -> (o: tensor<64x32xbf16>) {
  %s = arith.truncf %S : tensor<64x32xf32> to tensor<64x32xbf16>
  %a = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %m = chunk.causal %a : tensor<64x64xf32>
  %p = arith.truncf %m : tensor<64x64xf32> to tensor<64x64xbf16>
  %r = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  %y = chunk.dot %p, %v add %r : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  %o = arith.truncf %y : tensor<64x32xf32> to tensor<64x32xbf16>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  chunk.yield %o next %next : tensor<64x32xbf16>, tensor<64x32xf32>
}
