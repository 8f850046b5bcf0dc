// Kernels may come from a file: what cannot be copied as it says is refused.
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: stretto-opt %t --stretto-lower-to-threads
// RUN: sed "s/ turn %[a-z0-9_]*//" %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=TURN
// RUN: sed 's/to %o at \(%[a-z0-9]*\) :/to %o at \1 staged matrices :/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=STORE
// RUN: sed '/kernel.send/s/ at %[a-z0-9_]*//' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=CHUNK
// RUN: sed '/kernel.receive/s/ at %[a-z0-9_]*//' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=RECEIVED
// RUN: sed 's/\\22kind\\22:\\22input\\22/\\22kind\\22:\\22output\\22/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: sed 's/\\22kind\\22:\\22state\\22/\\22kind\\22:\\22parameter\\22/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=SAVE
// RUN: sed 's/\\22kind\\22:\\22output\\22/\\22kind\\22:\\22parameter\\22/; s/\\22name\\22:\\22o\\22,\\22type\\22:\\22f32\\22,\\22shape\\22:\[9\]/\\22name\\22:\\22o\\22,\\22type\\22:\\22f32\\22,\\22shape\\22:[16,9]/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: sed 's/\\22shape\\22:\[64\]/\\22shape\\22:[32]/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=SHAPE
// RUN: sed 's/\\22independentChunks\\22:true/\\22independentChunks\\22:false/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=WALKED

// WALKED: error: 'kernel.chunk' op [func_c2] asks for its chunk, where the manifest says that chunks are walked
// TURN: error: 'kernel.send' op has no turn, expected one for a bulk channel
// CHUNK: error: 'kernel.send' op has no chunk, expected one for a bulk channel
// RECEIVED: error: 'kernel.receive' op has no chunk, expected one for a bulk channel
// KIND: error: 'kernel.send' op sends what is no input, window or checkpoint to a bulk channel
// SAVE: error: 'kernel.save' op saves to what is no state
// OUTPUT: error: 'kernel.store' op stores to what is no output
// SHAPE: error: 'kernel.func' op [func_c2] has tiles of 'tensor<16x64xbf16>' of the argument 'q', expected those of the manifest's shape
// STORE: error: 'kernel.store' op
chunk.kernel @f chunk 16 (input %q: tensor<16x64xbf16>, state %S: tensor<64x9xf32>, valid %n: index) -> (o: tensor<16x9xf32>) {
  %s = arith.truncf %S : tensor<64x9xf32> to tensor<64x9xbf16>
  %o = chunk.dot %q, %s : tensor<16x64xbf16>, tensor<64x9xbf16> -> tensor<16x9xf32>
  chunk.yield %o next %S : tensor<16x9xf32>, tensor<64x9xf32>
}
chunk.kernel @alone chunk 16 (input %q: tensor<16x64xbf16>, valid %n: index) -> (o: tensor<16x64xbf16>) {
  chunk.yield %q : tensor<16x64xbf16>
}
