// Kernels may come from a file: roles that would wait for each other for ever are refused.
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=4},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-select-copies),stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: stretto-opt %t --stretto-lower-to-threads -o /dev/null
// RUN: sed '/kernel.release/d' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=CHANNEL
// RUN: sed '/kernel.pass /d' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=CHANNEL
// RUN: sed 's/passed 0 depth 4/passed 1 depth 4/;t' %t | sed '0,/passed 1/s//passed 0/' | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=CHANNEL
// RUN: sed 's/ beside @f.ahead//' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=CHANNEL
// RUN: sed 's/22threads.22:256/22threads\\22:128/' %t | not stretto-opt --stretto-lower-to-threads 2>&1 | FileCheck %s --check-prefix=THREADS
// RUN: sed 's/beside @f.ahead/beside @g/' %t | not stretto-opt 2>&1 | FileCheck %s --check-prefix=BESIDE

// CHANNEL: error: 'kernel.func' op has a channel that is not passed or sent by one role, once a turn, and received and released by the other
// THREADS: error: 'kernel.func' op has a manifest of other threads than those of its roles
// BESIDE: error: 'kernel.func' op [func_c3] is beside 'g', which is no function of a role
chunk.kernel @f chunk 64 (input %q: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %p = chunk.dot %q, %q transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %scores = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %scores, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %q, %q transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<64x64xf32>
}
