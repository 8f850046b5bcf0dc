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

// Rows of an input in a product that adds to another one are not scaled: what they are multiplied with has the factor in
// all of its products.
// CHECK-LABEL: chunk.kernel @other_operand
// CHECK: %[[Q:.*]] = arith.extf %q
// CHECK: %[[W:.*]] = math.exp
// CHECK: %[[SCALED:.*]] = arith.mulf %[[W]], %{{.*}} : tensor<16x16xf32>
// CHECK: chunk.dot %[[SCALED]], %[[Q]] transpose_left add %z
// CHECK: %[[Z:.*]] = arith.mulf %z, %{{.*}} : tensor<16x32xf32>
// CHECK: %[[WHOLE:.*]] = chunk.dot %[[SCALED]], %[[Q]] add %[[Z]]
// CHECK: chunk.yield %{{.*}}, %[[WHOLE]]
chunk.kernel @other_operand chunk 16 (input %q: tensor<16x32xbf16>, input %w: tensor<16x16xf32>, input %z: tensor<16x32xf32>, valid %n: index)
    -> (d_k: tensor<16x32xf32>, d_q: tensor<16x32xf32>) {
  %scale = arith.constant dense<5.000000e-01> : tensor<16x32xf32>
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %scaled = arith.mulf %q32, %scale : tensor<16x32xf32>
  %weights = math.exp %w : tensor<16x16xf32>
  %d_k = chunk.dot %weights, %scaled transpose_left add %z : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %sum = chunk.dot %weights, %q32 add %z : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %d_q = arith.mulf %sum, %scale : tensor<16x32xf32>
  chunk.yield %d_k, %d_q : tensor<16x32xf32>, tensor<16x32xf32>
}

// A product that has no factor keeps it from the other operand.
// CHECK-LABEL: chunk.kernel @one_without
// CHECK: %[[SCALED:.*]] = arith.mulf %{{.*}}, %{{.*}} : tensor<16x32xf32>
// CHECK: chunk.dot %{{.*}}, %[[SCALED]] transpose_left add %z
chunk.kernel @one_without chunk 16 (input %q: tensor<16x32xbf16>, input %w: tensor<16x16xf32>, input %z: tensor<16x32xf32>, valid %n: index)
    -> (d_k: tensor<16x32xf32>, d_q: tensor<16x32xf32>) {
  %scale = arith.constant dense<5.000000e-01> : tensor<16x32xf32>
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %scaled = arith.mulf %q32, %scale : tensor<16x32xf32>
  %weights = math.exp %w : tensor<16x16xf32>
  %d_k = chunk.dot %weights, %scaled transpose_left add %z : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %d_q = chunk.dot %weights, %q32 add %z : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  chunk.yield %d_k, %d_q : tensor<16x32xf32>, tensor<16x32xf32>
}

// Decays have the factor where all that they multiply has it: numbers of tokens do, and exponents its logarithm.
// CHECK-LABEL: chunk.kernel @decays
// CHECK-DAG: %[[LOG:.*]] = arith.constant dense<-1.000000e+00> : tensor<16xf32>
// CHECK-DAG: %[[HALF:.*]] = arith.constant dense<5.000000e-01> : tensor<16xf32>
// CHECK-DAG: %[[LOWER:.*]] = arith.addf %a, %[[LOG]]
// CHECK-DAG: %[[ROWS:.*]] = chunk.broadcast %[[LOWER]] along rows
// CHECK-DAG: %[[EXPONENTS:.*]] = arith.subf %[[ROWS]]
// CHECK-DAG: %[[DECAYS:.*]] = math.exp2 %[[EXPONENTS]]
// CHECK-DAG: %[[P:.*]] = arith.mulf %{{.*}}, %[[DECAYS]]
// CHECK-DAG: %[[C:.*]] = chunk.causal %[[P]]
// CHECK-DAG: %[[F:.*]] = arith.mulf %{{.*}}, %[[HALF]] : tensor<16xf32>
// CHECK-DAG: %[[FACTORS:.*]] = chunk.broadcast %[[F]] along rows
// CHECK-DAG: %[[READ:.*]] = arith.mulf %{{.*}}, %[[FACTORS]]
// CHECK: %[[O:.*]] = chunk.dot %[[C]], %{{.*}} add %[[READ]]
// CHECK: chunk.yield %[[O]]
chunk.kernel @decays chunk 16 (input %q: tensor<16x32xbf16>, input %a: tensor<16xf32>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %scale = arith.constant dense<5.000000e-01> : tensor<16x32xf32>
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %scaled = arith.mulf %q32, %scale : tensor<16x32xf32>
  %p = chunk.dot %scaled, %q32 transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %rows = chunk.broadcast %a along rows : tensor<16xf32> to tensor<16x16xf32>
  %columns = chunk.broadcast %a along columns : tensor<16xf32> to tensor<16x16xf32>
  %differences = arith.subf %rows, %columns : tensor<16x16xf32>
  %decays = math.exp2 %differences : tensor<16x16xf32>
  %decayed = arith.mulf %p, %decays : tensor<16x16xf32>
  %scores = chunk.causal %decayed : tensor<16x16xf32>
  %power = math.exp2 %a : tensor<16xf32>
  %factors = chunk.broadcast %power along rows : tensor<16xf32> to tensor<16x32xf32>
  %seen = chunk.dot %scaled, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %read = arith.mulf %seen, %factors : tensor<16x32xf32>
  %o = chunk.dot %scores, %q32 add %read : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  chunk.yield %o next %S : tensor<16x32xf32>, tensor<32x32xf32>
}

// In fp32 the exponents stay as they are.
// CHECK-LABEL: chunk.kernel @wide
// CHECK: %[[P:.*]] = chunk.causal
// CHECK: arith.mulf %[[P]], %{{.*}} : tensor<16x16xf32>
chunk.kernel @wide chunk 16 (input %q: tensor<16x32xf32>, input %a: tensor<16xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  %scale = arith.constant dense<5.000000e-01> : tensor<16x32xf32>
  %scaled = arith.mulf %q, %scale : tensor<16x32xf32>
  %p = chunk.dot %scaled, %q transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %rows = chunk.broadcast %a along rows : tensor<16xf32> to tensor<16x16xf32>
  %columns = chunk.broadcast %a along columns : tensor<16xf32> to tensor<16x16xf32>
  %differences = arith.subf %rows, %columns : tensor<16x16xf32>
  %decays = math.exp2 %differences : tensor<16x16xf32>
  %decayed = arith.mulf %p, %decays : tensor<16x16xf32>
  %o = chunk.causal %decayed : tensor<16x16xf32>
  chunk.yield %o : tensor<16x16xf32>
}

// What is asked for with the factor by itself multiplies rows without it.
// CHECK-LABEL: chunk.kernel @shared
// CHECK: %[[Q:.*]] = arith.extf %q
// CHECK: %[[Z:.*]] = math.exp
// CHECK: %[[SCALED:.*]] = arith.mulf %[[Z]], %{{.*}}
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[Q]], %[[SCALED]]
// CHECK: chunk.yield %[[PRODUCT]], %[[SCALED]]
chunk.kernel @shared chunk 16 (input %q: tensor<16x32xbf16>, input %z: tensor<16x32xf32>, valid %n: index)
    -> (a: tensor<16x32xf32>, b: tensor<16x32xf32>) {
  %scale = arith.constant dense<5.000000e-01> : tensor<16x32xf32>
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %e = math.exp %z : tensor<16x32xf32>
  %scaled = arith.mulf %q32, %scale : tensor<16x32xf32>
  %a = arith.mulf %scaled, %e : tensor<16x32xf32>
  %b = arith.mulf %e, %scale : tensor<16x32xf32>
  chunk.yield %a, %b : tensor<16x32xf32>, tensor<16x32xf32>
}
