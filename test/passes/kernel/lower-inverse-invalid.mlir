// Kernels may come from a file: an inverse is found where warps have whole rows of blocks.
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-plan-shared-memory,stretto-insert-barriers))' -o %t
// RUN: stretto-opt %t --stretto-lower-to-threads
// RUN: sed 's/register = \[\[0, 1\], \[8, 0\]/register = [[8, 0], [0, 1]/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s

// CHECK: error: 'chunk.inverse' op inverts {{.*}}, expected f32 in rows of blocks as stretto-assign-layouts places them
chunk.kernel @f chunk 64 (input %l: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %o = chunk.inverse %l : tensor<64x64xf32>
  chunk.yield %o : tensor<64x64xf32>
}
