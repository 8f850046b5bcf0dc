// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=4},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-plan-shared-memory))' | FileCheck %s --check-prefix=FOUR
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-plan-shared-memory))' | FileCheck %s --check-prefix=EIGHT
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=4},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-plan-shared-memory,stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREADS

// Four warps have whole rows of a matrix: columns of it are registers of the same threads. Of eight, half have others.
// FOUR: chunk.columns %{{.*}} from 32 : tensor
// EIGHT: chunk.columns %{{.*}} from 32 {kernel.scratch = {{.*}}} : tensor
// THREADS-LABEL: llvm.func @columns
// THREADS: math.exp
// THREADS-NOT: nvvm.barrier
// THREADS: math.absf
chunk.kernel @columns chunk 64 (input %x: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x32xf32>) {
  %y = math.exp %x : tensor<64x64xf32>
  %c = chunk.columns %y from 32 : tensor<64x64xf32> -> tensor<64x32xf32>
  %o = math.absf %c : tensor<64x32xf32>
  chunk.yield %o : tensor<64x32xf32>
}

// Where the threads of eight do not have the columns of two parts, they store the matrix once, for both.
// FOUR-LABEL: kernel.func @parts
// FOUR-NOT: kernel.scratch
// FOUR: chunk.columns %{{.*}} from 0 : tensor<64x64xf32, #registers
// FOUR: chunk.columns %{{.*}} from 32 : tensor<64x64xf32, #registers
// EIGHT-LABEL: kernel.func @parts
// EIGHT: %[[STORED:.*]] = kernel.convert %{{.*}} : tensor<64x64xf32, #registers{{[0-9]*}}> -> tensor<64x64xf32, #shared
// EIGHT-NOT: kernel.scratch
// EIGHT: chunk.columns %[[STORED]] from 0 : tensor<64x64xf32, #shared
// EIGHT: chunk.columns %[[STORED]] from 32 : tensor<64x64xf32, #shared
chunk.kernel @parts chunk 64 (input %x: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x32xf32>) {
  %y = math.exp %x : tensor<64x64xf32>
  %a = chunk.columns %y from 0 : tensor<64x64xf32> -> tensor<64x32xf32>
  %b = chunk.columns %y from 32 : tensor<64x64xf32> -> tensor<64x32xf32>
  %o = arith.mulf %a, %b : tensor<64x32xf32>
  chunk.yield %o : tensor<64x32xf32>
}
