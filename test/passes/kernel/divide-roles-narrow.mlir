// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=8 outputs=8 walk=4},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-share-channels)' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --pass-pipeline='builtin.module(stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads)' -o /dev/null

// Rows of 72 bytes are nothing for the memory system: threads copy keys, so that those who run ahead of a walk that
// leaves states alone are one group of eight warps, which sends for itself, and do not take chunks in turns.
// CHECK-LABEL: kernel.func @narrow_keys(
// CHECK-SAME: roles [#kernel.role<walk, 4>]
// CHECK-LABEL: kernel.func @narrow_keys.ahead(
// CHECK-SAME: roles [#kernel.role<ahead, 8>]
// CHECK: scf.for
// CHECK: kernel.send %k
chunk.kernel @narrow_keys chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x36xbf16>, input %v: tensor<64x64xbf16>,
    input %f: tensor<64xf32>, state %S: tensor<36x64xf32>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  %sums = chunk.accumulate sum %f : tensor<64xf32>
  %factors = math.exp2 %sums : tensor<64xf32>
  %rows = chunk.broadcast %factors along rows : tensor<64xf32> to tensor<64x36xf32>
  %o32 = chunk.dot %q, %q transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %o32 : tensor<64x64xf32> to tensor<64x64xbf16>
  %k32 = arith.extf %k : tensor<64x36xbf16> to tensor<64x36xf32>
  %k.scaled = arith.mulf %k32, %rows : tensor<64x36xf32>
  %keys = arith.truncf %k.scaled : tensor<64x36xf32> to tensor<64x36xbf16>
  %last = chunk.row %factors at 63 : tensor<64xf32> -> tensor<f32>
  %whole = chunk.broadcast %last along rows : tensor<f32> to tensor<36x64xf32>
  %decayed = arith.mulf %S, %whole : tensor<36x64xf32>
  %next = chunk.dot %keys, %v transpose_left add %decayed : tensor<64x36xbf16>, tensor<64x64xbf16> -> tensor<36x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<36x64xf32>
}
