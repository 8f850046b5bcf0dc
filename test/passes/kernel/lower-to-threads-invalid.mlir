// Kernels may come from a file: what cannot be copied as it says is refused.
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: stretto-opt %t --stretto-lower-to-threads
// RUN: sed "s/ turn %[a-z0-9_]*//" %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=TURN
// RUN: sed 's/to %o at \(%[a-z0-9]*\) :/to %o at \1 staged matrices :/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=STORE

// TURN: error: 'kernel.send' op has no turn, expected one for a bulk channel
// STORE: error: 'kernel.store' op
chunk.kernel @f chunk 16 (input %q: tensor<16x64xbf16>, state %S: tensor<64x9xf32>, valid %n: index) -> (o: tensor<16x9xf32>) {
  %s = arith.truncf %S : tensor<64x9xf32> to tensor<64x9xbf16>
  %o = chunk.dot %q, %s : tensor<16x64xbf16>, tensor<64x9xbf16> -> tensor<16x9xf32>
  chunk.yield %o next %S : tensor<16x9xf32>, tensor<64x9xf32>
}
