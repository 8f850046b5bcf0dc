// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warpgroups=true},kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers,stretto-store-behind-barriers))' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --stretto-lower-to-threads | FileCheck %s --check-prefix=THREADS
// RUN: sed 's/ bulk : tensor<64x64xbf16, #/ : tensor<64x64xbf16, #/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=PLAIN
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warpgroups=true},kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products{chip=sm_80},stretto-overlap-products,stretto-select-copies{chip=sm_80}),stretto-plan-shared-memory{chip=sm_80},kernel.func(stretto-send-ahead,stretto-insert-barriers,stretto-store-behind-barriers{chip=sm_80}))' | FileCheck %s --check-prefix=OTHER

// Of two outputs the first is left in shared memory, where the memory system has read what was left a turn before, and is
// stored behind the next barrier, beside the product there. No barrier follows the second one in its turn.
// CHECK-LABEL: kernel.func @back(
// CHECK: scf.for
// CHECK: kernel.barrier {{(fence )?}}copied
// CHECK-NOT: copied
// CHECK: math.exp
// CHECK: chunk.dot
// CHECK: %[[LEFT:.*]] = kernel.convert %{{.*}} offset {{[0-9]+}} matrices : tensor<64x64xbf16, {{.*}} -> tensor<64x64xbf16
// CHECK-NEXT: kernel.finish
// CHECK: kernel.barrier fence
// CHECK-NEXT: %[[LAST:.*]] = chunk.dot
// CHECK-NEXT: kernel.store %[[LEFT]] to %{{.*}} at %{{.*}} bulk : tensor
// CHECK-NEXT: kernel.finish %[[LAST]]
// CHECK: kernel.store %{{.*}} to %{{.*}} at %{{.*}} staged matrices {
// CHECK: scf.yield
// OTHER-LABEL: kernel.func @back(
// OTHER-NOT: bulk :

// One thread of a warp orders the box; of a chunk that is cut all store rows of it.
// THREADS-LABEL: llvm.func @back(
// THREADS-SAME: \22name\22:\22o\22
// THREADS-SAME: \22box\22:64,\22boxRows\22:64}
// THREADS: scf.for
// THREADS: nvvm.cp.async.bulk.wait_group 0 {read}
// THREADS: nvvm.barrier
// THREADS: nvvm.stmatrix
// THREADS: nvvm.fence.proxy
// THREADS-NEXT: nvvm.barrier
// THREADS: nvvm.cp.async.bulk.tensor.global.shared.cta
// THREADS-NOT: nvvm.cp.async.bulk.tensor.global.shared.cta
// THREADS: nvvm.cp.async.bulk.commit.group
// THREADS: } else {
// THREADS: llvm.store {{.*}} !llvm.ptr<1>
// PLAIN: error: {{.*}}stores a tile of shared memory otherwise than in bulk, in boxes as wide as the banks
chunk.kernel @back chunk 64 reverse (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %d_o: tensor<64x64xbf16>,
                                     state %d_S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xbf16>, e: tensor<64x64xbf16>) {
  %s = arith.truncf %d_S : tensor<64x64xf32> to tensor<64x64xbf16>
  %a = chunk.dot %k, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %a : tensor<64x64xf32> to tensor<64x64xbf16>
  %x = math.exp %a : tensor<64x64xf32>
  %x16 = arith.truncf %x : tensor<64x64xf32> to tensor<64x64xbf16>
  %b = chunk.dot %q, %x16 : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %y = math.exp %b : tensor<64x64xf32>
  %y16 = arith.truncf %y : tensor<64x64xf32> to tensor<64x64xbf16>
  %c = chunk.dot %k, %y16 : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %e = arith.truncf %c : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %q, %d_o transpose_left add %d_S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o, %e next %next : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xf32>
}

// Forwards, outputs are stored as they were, and so are rows of 64 bytes.
// CHECK-LABEL: kernel.func @forth(
// CHECK-NOT: bulk :
// CHECK-LABEL: kernel.func @narrow(
// CHECK-NOT: bulk :
chunk.kernel @forth chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>, e: tensor<64x64xbf16>) {
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %a = chunk.dot %k, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %a : tensor<64x64xf32> to tensor<64x64xbf16>
  %x = math.exp %a : tensor<64x64xf32>
  %x16 = arith.truncf %x : tensor<64x64xf32> to tensor<64x64xbf16>
  %b = chunk.dot %q, %x16 : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %y = math.exp %b : tensor<64x64xf32>
  %y16 = arith.truncf %y : tensor<64x64xf32> to tensor<64x64xbf16>
  %c = chunk.dot %k, %y16 : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %e = arith.truncf %c : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %q, %k transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o, %e next %next : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xf32>
}

chunk.kernel @narrow chunk 64 reverse (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %d_o: tensor<64x32xbf16>,
                                       state %d_S: tensor<64x32xf32>, valid %n: index) -> (o: tensor<64x32xbf16>, e: tensor<64x32xbf16>) {
  %s = arith.truncf %d_S : tensor<64x32xf32> to tensor<64x32xbf16>
  %a = chunk.dot %k, %s : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  %o = arith.truncf %a : tensor<64x32xf32> to tensor<64x32xbf16>
  %x = math.exp %a : tensor<64x32xf32>
  %x16 = arith.truncf %x : tensor<64x32xf32> to tensor<64x32xbf16>
  %b = chunk.dot %q, %x16 : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  %y = math.exp %b : tensor<64x32xf32>
  %y16 = arith.truncf %y : tensor<64x32xf32> to tensor<64x32xbf16>
  %c = chunk.dot %k, %y16 : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  %e = arith.truncf %c : tensor<64x32xf32> to tensor<64x32xbf16>
  %next = chunk.dot %q, %d_o transpose_left add %d_S : tensor<64x64xbf16>, tensor<64x32xbf16> -> tensor<64x32xf32>
  chunk.yield %o, %e next %next : tensor<64x32xbf16>, tensor<64x32xbf16>, tensor<64x32xf32>
}
