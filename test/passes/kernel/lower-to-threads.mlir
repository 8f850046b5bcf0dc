// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-plan-shared-memory{chip=sm_90a},stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s

// One thread of four warps: 16 rows of the result for each, in fragments of 8 columns, of which a tile of 9 columns fills
// the second in part. The input has 128 pieces of 16 bytes, one for each thread; the pieces of the weights and the 64
// numbers of the vector are left to the first threads.
// CHECK-LABEL: llvm.func @f
// CHECK-SAME: nvvm.reqntid = array<i32: 128, 1, 1>
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache =  cg
// CHECK: scf.if
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache =  cg
// CHECK: scf.if
// CHECK: nvvm.cp.async.shared.global {{.*}}, 4, cache =  ca
// CHECK: scf.for
// CHECK-NEXT: nvvm.cp.async.commit.group
// CHECK-NEXT: nvvm.cp.async.wait.group 0
// CHECK-NEXT: nvvm.barrier
// CHECK-COUNT-2: nvvm.ldmatrix
// CHECK-COUNT-2: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: llvm.return
chunk.kernel @f chunk 64 (input %x: tensor<64x16xbf16>, parameter %w: tensor<9x16xbf16>, input %g: tensor<64xf32>,
                          valid %n: index) -> (o: tensor<64x9xf32>, r: tensor<64xf32>) {
  %o = chunk.dot %x, %w transpose_right : tensor<64x16xbf16>, tensor<9x16xbf16> -> tensor<64x9xf32>
  %r = arith.negf %g : tensor<64xf32>
  chunk.yield %o, %r : tensor<64x9xf32>, tensor<64xf32>
}
