// Kernels may come from a file: a channel whose tiles are of no chunk is left as it is, and refused where threads are made.
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory))' -o %t
// RUN: sed '/kernel.send/s/ at %[a-z0-9_]*//' %t | stretto-opt --pass-pipeline='builtin.module(kernel.func(stretto-send-ahead))' -o %t.left
// RUN: FileCheck %s <%t.left
// RUN: not stretto-opt %t.left --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=REFUSED

// CHECK: kernel.send %q to %{{[0-9]+}} :
// REFUSED: error: 'kernel.{{send|receive}}' op has no turn, expected one for a bulk channel
chunk.kernel @f chunk 16 (input %q: tensor<16x64xbf16>, state %S: tensor<64x9xf32>, valid %n: index) -> (o: tensor<16x9xf32>) {
  %s = arith.truncf %S : tensor<64x9xf32> to tensor<64x9xbf16>
  %o = chunk.dot %q, %s : tensor<16x64xbf16>, tensor<64x9xbf16> -> tensor<16x9xf32>
  chunk.yield %o next %S : tensor<16x9xf32>, tensor<64x9xf32>
}
