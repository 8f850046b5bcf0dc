// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-products{chip=sm_80}),stretto-plan-shared-memory{chip=sm_80},kernel.func(stretto-insert-barriers),stretto-lower-to-threads{chip=sm_80})' | FileCheck %s

// Each of eight warps has one fragment of 32 by 32, to which eight instructions would add one after the other: those of
// every other step have sums of their own, which are added up in the end.
// CHECK-LABEL: llvm.func @scores
// CHECK-COUNT-8: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: arith.addf
// Four fragments are chains enough.
// CHECK-LABEL: llvm.func @many
// CHECK-NOT: arith.addf
// CHECK: llvm.return
chunk.kernel @scores chunk 32 (input %q: tensor<32x128xbf16>, input %k: tensor<32x128xbf16>, valid %n: index)
    -> (p: tensor<32x32xf32>) {
  %p = chunk.dot %q, %k transpose_right : tensor<32x128xbf16>, tensor<32x128xbf16> -> tensor<32x32xf32>
  chunk.yield %p : tensor<32x32xf32>
}

chunk.kernel @many chunk 64 (input %q: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>, valid %n: index)
    -> (p: tensor<64x64xf32>) {
  %p = chunk.dot %q, %k transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
  chunk.yield %p : tensor<64x64xf32>
}
