// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warpgroups=true},kernel.func(stretto-multiply-vectors),stretto-divide-roles{ahead=8 outputs=4 walk=4})' --split-input-file | FileCheck %s

// Keys that a walk multiplies it sums over tokens, too: those who make them pass them as they come.
// CHECK-LABEL: kernel.func @normaliser(
// CHECK: chunk.dot %[[KEYS:[0-9]+]], %{{.*}} transpose_left add
// CHECK: kernel.matvec %[[KEYS]], %{{.*}} transpose
// CHECK-LABEL: kernel.func @normaliser.ahead(
// CHECK-NOT: kernel.matvec
// CHECK: chunk.expect
// CHECK-NOT: kernel.matvec
// CHECK-LABEL: kernel.func @normaliser.outputs(
// CHECK: kernel.matvec
chunk.kernel @normaliser chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>,
                                   input %g: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, state %z: tensor<64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>, d: tensor<64xf32>) {
  %q32 = arith.extf %q : tensor<64x64xbf16> to tensor<64x64xf32>
  %k32 = arith.extf %k : tensor<64x64xbf16> to tensor<64x64xf32>
  %g32 = arith.extf %g : tensor<64x64xbf16> to tensor<64x64xf32>
  %sums = chunk.accumulate sum %g32 reverse exclusive : tensor<64x64xf32>
  %all = chunk.total %sums : tensor<64x64xf32> -> tensor<64xf32>
  %good = chunk.within %all limits [1.0] : tensor<64xf32>
  chunk.expect %good
  %factor = math.exp2 %sums : tensor<64x64xf32>
  %keys = arith.mulf %k32, %factor : tensor<64x64xf32>
  %keys16 = arith.truncf %keys : tensor<64x64xf32> to tensor<64x64xbf16>
  %queries = arith.divf %q32, %factor : tensor<64x64xf32>
  %queries16 = arith.truncf %queries : tensor<64x64xf32> to tensor<64x64xbf16>
  %p = chunk.dot %queries16, %keys16 transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %scores = chunk.causal %p : tensor<64x64xf32>
  %of_scores = chunk.reduce sum %scores over columns : tensor<64x64xf32> -> tensor<64xf32>
  %scores16 = arith.truncf %scores : tensor<64x64xf32> to tensor<64x64xbf16>
  %total = math.exp2 %all : tensor<64xf32>
  %totals = chunk.broadcast %total along rows : tensor<64xf32> to tensor<64x64xf32>
  %met = arith.mulf %S, %totals : tensor<64x64xf32>
  %met16 = arith.truncf %met : tensor<64x64xf32> to tensor<64x64xbf16>
  %met_z = arith.mulf %z, %total : tensor<64xf32>
  %rows = chunk.broadcast %met_z along columns : tensor<64xf32> to tensor<64x64xf32>
  %weighted = arith.mulf %queries, %rows : tensor<64x64xf32>
  %of_z = chunk.reduce sum %weighted over columns : tensor<64x64xf32> -> tensor<64xf32>
  %d = arith.addf %of_scores, %of_z : tensor<64xf32>
  %r = chunk.dot %queries16, %met16 : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = chunk.dot %scores16, %v add %r : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o16 = arith.truncf %o : tensor<64x64xf32> to tensor<64x64xbf16>
  %S1 = chunk.dot %keys16, %v transpose_left add %met : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %sum = chunk.reduce sum %keys over rows : tensor<64x64xf32> -> tensor<64xf32>
  %z1 = arith.addf %sum, %met_z : tensor<64xf32>
  chunk.yield %o16, %d next %S1, %z1 : tensor<64x64xbf16>, tensor<64xf32>, tensor<64x64xf32>, tensor<64xf32>
}

// -----

// Those who find outputs are behind a walk, and cannot tell it where to end: what it expects is no work of theirs.
// CHECK-LABEL: kernel.func @of_outputs(
// CHECK: kernel.store
// CHECK-LABEL: kernel.func @of_outputs.ahead(
// CHECK: chunk.expect
// CHECK-NOT: kernel.func @of_outputs.outputs(
chunk.kernel @of_outputs chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>,
                                   input %w: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  %made = chunk.dot %q, %w : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %good = chunk.within %made limits [1.0] : tensor<64x64xf32>
  chunk.expect %good
  %queries = arith.truncf %made : tensor<64x64xf32> to tensor<64x64xbf16>
  %S16 = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %r = chunk.dot %queries, %S16 : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %r : tensor<64x64xf32> to tensor<64x64xbf16>
  %S1 = chunk.dot %k, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %S1 : tensor<64x64xbf16>, tensor<64x64xf32>
}
