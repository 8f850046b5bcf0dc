// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=4 warpgroups=true},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-products{chip=sm_90a}))' | FileCheck %s

// Four warps have the fragments of a left operand as they compute it. What is there before a loop over other chunks lies
// in shared memory all the same: ptxas 13.0 was seen to give its registers to the other left operand of the loop, the
// weights, which are made in each turn and stay.
// CHECK-LABEL: kernel.func @window
// CHECK: %[[ROUNDED:.*]] = arith.truncf
// CHECK: %[[LEFT:.*]] = kernel.convert %[[ROUNDED]] {{.*}} -> tensor<64x64xbf16, #shared>
// CHECK: scf.for
// CHECK: chunk.dot %[[LEFT]], %{{.*}} transpose_right {kernel.instruction = #kernel.instruction<wgmma>}
// CHECK: %[[WEIGHTS:.*]] = arith.truncf
// CHECK: chunk.dot %[[WEIGHTS]], %{{.*}} add %{{.*}} {kernel.instruction = #kernel.instruction<wgmma>}
chunk.kernel @window chunk 64 reverse (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %from: tensor<64xf32>, valid %n: index)
    -> (d_q: tensor<64x64xf32>) {
  %q32 = arith.extf %q : tensor<64x64xbf16> to tensor<64x64xf32>
  %e = math.exp %q32 : tensor<64x64xf32>
  %rounded = arith.truncf %e : tensor<64x64xf32> to tensor<64x64xbf16>
  %d_q = chunk.lookback sum from %from : tensor<64xf32> past(%k_j = %k : tensor<64x64xbf16>) {
    %s = chunk.dot %rounded, %k_j transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %p = math.exp %s : tensor<64x64xf32>
    %r = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
    %w = arith.extf %r : tensor<64x64xbf16> to tensor<64x64xf32>
    %x = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %w, %x : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64x64xf32>
  chunk.yield %d_q : tensor<64x64xf32>
}
