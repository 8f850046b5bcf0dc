// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-sink-factors))' | FileCheck %s

// The factor of the queries is that of the output, behind both products, the mask and the weights of the scores.
// CHECK-LABEL: chunk.kernel @output
// CHECK: %[[Q:.*]] = arith.extf %q
// CHECK: %[[P:.*]] = chunk.dot %[[Q]], %{{.*}} transpose_right
// CHECK: %[[W:.*]] = arith.mulf %[[P]], %w
// CHECK: %[[C:.*]] = chunk.causal %[[W]]
// CHECK: %[[R:.*]] = chunk.dot %[[Q]], %S
// CHECK: %[[O:.*]] = chunk.dot %[[C]], %{{.*}} add %[[R]]
// CHECK: %[[SCALED:.*]] = arith.mulf %[[O]], %{{.*}} : tensor<16x32xf32>
// CHECK: chunk.yield %[[SCALED]]
chunk.kernel @output chunk 16 (input %q: tensor<16x32xbf16>, input %w: tensor<16x16xf32>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %scale = arith.constant dense<5.000000e-01> : tensor<16x32xf32>
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %scaled = arith.mulf %q32, %scale : tensor<16x32xf32>
  %p = chunk.dot %scaled, %q32 transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %weighted = arith.mulf %p, %w : tensor<16x16xf32>
  %scores = chunk.causal %weighted : tensor<16x16xf32>
  %read = chunk.dot %scaled, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %o = chunk.dot %scores, %q32 add %read : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  chunk.yield %o next %S : tensor<16x32xf32>, tensor<32x32xf32>
}

// Scores of fp16 that are not scaled may be too large for it: the factor stays in front of the second product.
// CHECK-LABEL: chunk.kernel @half
// CHECK: %[[P:.*]] = chunk.dot %{{.*}} transpose_right
// CHECK: %[[SCALED:.*]] = arith.mulf %[[P]], %{{.*}} : tensor<16x16xf32>
// CHECK: %[[C:.*]] = chunk.causal %[[SCALED]]
// CHECK: chunk.dot %[[C]]
chunk.kernel @half chunk 16 (input %q: tensor<16x32xf16>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %scale = arith.constant dense<5.000000e-01> : tensor<16x32xf32>
  %q32 = arith.extf %q : tensor<16x32xf16> to tensor<16x32xf32>
  %scaled = arith.mulf %q32, %scale : tensor<16x32xf32>
  %p = chunk.dot %scaled, %q32 transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %scores = chunk.causal %p : tensor<16x16xf32>
  %o = chunk.dot %scores, %q32 : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// Look-backs take rows of an input as they are, and what is added up is scaled once. In fp16, too, as sums have fp32.
// CHECK-LABEL: chunk.kernel @looks_back
// CHECK: %[[SUM:.*]] = chunk.lookback sum
// CHECK: %[[ROWS:.*]] = arith.extf %x_j
// CHECK: chunk.contribute %{{.*}}, %[[ROWS]]
// CHECK: %[[AHEAD:.*]] = chunk.lookback sum ahead
// CHECK: %[[TOTAL:.*]] = arith.addf %[[AHEAD]], %[[SUM]]
// CHECK: %[[O:.*]] = arith.mulf %[[TOTAL]], %{{.*}}
// CHECK: chunk.yield %[[O]]
chunk.kernel @looks_back chunk 16 (input %x: tensor<16x32xf16>, input %w: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %scale = arith.constant dense<0.5> : tensor<16x32xf32>
  %first = arith.constant dense<0.0> : tensor<16xf32>
  %a = chunk.lookback sum from %first : tensor<16xf32> past(%x_j = %x : tensor<16x32xf16>, %w_j = %w : tensor<16xf32>) {
    %wide = arith.extf %x_j : tensor<16x32xf16> to tensor<16x32xf32>
    %rows = arith.mulf %wide, %scale : tensor<16x32xf32>
    %weights = chunk.broadcast %w_j along columns : tensor<16xf32> to tensor<16x16xf32>
    chunk.contribute %weights, %rows : tensor<16x16xf32>, tensor<16x32xf32>
  } : tensor<16x32xf32>
  %b = chunk.lookback sum ahead past(%x_j = %x : tensor<16x32xf16>, %w_j = %w : tensor<16xf32>) {
    %wide = arith.extf %x_j : tensor<16x32xf16> to tensor<16x32xf32>
    %rows = arith.mulf %wide, %scale : tensor<16x32xf32>
    %weights = chunk.broadcast %w_j along columns : tensor<16xf32> to tensor<16x16xf32>
    chunk.contribute %weights, %rows : tensor<16x16xf32>, tensor<16x32xf32> from %first : tensor<16xf32>
  } : tensor<16x32xf32>
  %o = arith.addf %b, %a : tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}
