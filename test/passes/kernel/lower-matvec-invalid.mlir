// Kernels may come from a file: a vector whose numbers lie elsewhere than a product of fragments reads them is refused.
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-multiply-vectors,cse,stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: stretto-opt %t --stretto-lower-to-threads
// RUN: sed 's/\[\[1\], \[8\], \[16\]\], lane = \[\[2\], \[4\],/[[1], [4], [16]], lane = [[2], [8],/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s

// CHECK: error: 'kernel.matvec' op multiplies {{.*}}expected the places of fragments that stretto-assign-layouts gives them
chunk.kernel @f chunk 64 (input %q: tensor<64x32xbf16>, state %S: tensor<32x32xf32>, state %z: tensor<32xf32>,
    valid %n: index) -> (o: tensor<64x32xf32>, den: tensor<64xf32>) {
  %q32 = arith.extf %q : tensor<64x32xbf16> to tensor<64x32xf32>
  %repeated = chunk.broadcast %z along columns : tensor<32xf32> to tensor<64x32xf32>
  %products = arith.mulf %q32, %repeated : tensor<64x32xf32>
  %den = chunk.reduce sum %products over columns : tensor<64x32xf32> -> tensor<64xf32>
  %S16 = arith.truncf %S : tensor<32x32xf32> to tensor<32x32xbf16>
  %o = chunk.dot %q, %S16 : tensor<64x32xbf16>, tensor<32x32xbf16> -> tensor<64x32xf32>
  chunk.yield %o, %den next %S, %z : tensor<64x32xf32>, tensor<64xf32>, tensor<32x32xf32>, tensor<32xf32>
}
