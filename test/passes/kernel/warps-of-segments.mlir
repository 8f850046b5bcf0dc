// RUN: stretto-opt %s --stretto-fold-over-chunks=warpgroups | FileCheck %s

// Four warps hold this state, and leave room for another block. Segments that are apart have no other block beside them.
// CHECK-LABEL: kernel.func @walk(
// CHECK-SAME: roles [#kernel.role<all, 4>]
chunk.kernel @walk chunk 64 (input %k: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> () {
  %next = chunk.dot %k, %k transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield next %next : tensor<64x64xf32>
}
// CHECK-LABEL: kernel.func @writes(
// CHECK-SAME: roles [#kernel.role<all, 8>]
chunk.kernel @writes chunk 64 segments apart(input %k: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> () {
  %next = chunk.dot %k, %k transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield next %next : tensor<64x64xf32>
}
// What finds the tails of segments has next to nothing to do.
// CHECK-LABEL: kernel.func @tails(
// CHECK-SAME: roles [#kernel.role<all, 4>]
chunk.kernel @tails chunk 64 segments apart(input %k: tensor<64x64xbf16>, state %tail: tensor<3x64xbf16>, valid %n: index)
    -> () {
  %next = chunk.tail %k valid %n after %tail : tensor<64x64xbf16>, tensor<3x64xbf16>
  chunk.yield next %next : tensor<3x64xbf16>
}
