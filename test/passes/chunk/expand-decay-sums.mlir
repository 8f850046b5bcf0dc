// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay{warps=8},cse))' | FileCheck %s
// RUN: sed 's/bf16/f16/g' %s | stretto-opt --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay{warps=8},cse))' | FileCheck %s --check-prefix=HALF

// The gradient of decays that stand behind a read, as RWKV-6's, is one sum from the start of the chunk, where the state and
// its cotangent are paired as they are: of what keys and queries have of all they meet, which other gradients are made of,
// and without what the token itself has read. The cotangent has what rounding takes of queries.
// CHECK-LABEL: chunk.kernel @before
// CHECK: %[[QUERIES:.*]]:2 = scf.if
// CHECK: } else {
// CHECK: %[[NEGATIVE:.*]] = arith.negf %[[QUERIES]]#1
// CHECK: %[[REST:.*]] = chunk.dot %{{.*}}, %{{.*}} transpose_left add %{{.*}} -> tensor<128x128xf32>
// CHECK: %[[NEXT:.*]] = chunk.dot %{{.*}}, %{{.*}} transpose_left add %[[REST]]
// CHECK: %[[BOTH:.*]] = arith.mulf %{{.*}}, %[[NEXT]]
// CHECK: %[[PAIRS:.*]] = chunk.reduce sum %[[BOTH]] over columns
// CHECK: %[[START:.*]] = chunk.broadcast %[[PAIRS]] along columns
// CHECK: %[[KEYS:.*]]:2 = scf.if
// CHECK: } else {
// CHECK: %[[TERMS:.*]] = arith.addf %[[KEYS]]#1, %[[NEGATIVE]]
// CHECK: %[[SUM:.*]] = chunk.accumulate sum %[[TERMS]] exclusive
// CHECK: %[[ALL:.*]] = arith.addf %[[START]], %[[SUM]]
// CHECK: %[[OWN:.*]] = arith.addf %[[ALL]], %[[NEGATIVE]]
// CHECK: chunk.yield %{{.*}}, %{{.*}}, %[[OWN]] next %[[NEXT]]
// Of fp16 there are no rests, and sums stand apart.
// HALF-LABEL: chunk.kernel @before
// HALF: chunk.accumulate sum %{{.*}} reverse exclusive
// HALF: chunk.yield
chunk.kernel @before chunk 32 reverse (input %r: tensor<32x128xbf16>, input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, input %w: tensor<32x128xbf16>,
    input %d_o: tensor<32x128xbf16>, checkpoint %S: tensor<128x128xbf16>, state %d_S: tensor<128x128xf32>, valid %n: index)
    -> (d_r: tensor<32x128xf32>, d_k: tensor<32x128xf32>, d_w: tensor<32x128xf32>) {
  %start = arith.extf %S : tensor<128x128xbf16> to tensor<128x128xf32>
  %query = arith.extf %r : tensor<32x128xbf16> to tensor<32x128xf32>
  %key = arith.extf %k : tensor<32x128xbf16> to tensor<32x128xf32>
  %value = arith.extf %v : tensor<32x128xbf16> to tensor<32x128xf32>
  %logs = arith.extf %w : tensor<32x128xbf16> to tensor<32x128xf32>
  %given = arith.extf %d_o : tensor<32x128xbf16> to tensor<32x128xf32>
  %seen = chunk.dot %given, %start transpose_right : tensor<32x128xf32>, tensor<128x128xf32> -> tensor<32x128xf32>
  %since = chunk.decay_from_start %seen log %logs before : tensor<32x128xf32>, tensor<32x128xf32>
  %weights = chunk.dot %given, %value transpose_right : tensor<32x128xf32>, tensor<32x128xf32> -> tensor<32x32xf32>
  %d_r = chunk.decay_mix %weights, %key log %logs before add %since : tensor<32x32xf32>, tensor<32x128xf32>, tensor<32x128xf32> -> tensor<32x128xf32>
  %kept = chunk.dot %value, %d_S transpose_right : tensor<32x128xf32>, tensor<128x128xf32> -> tensor<32x128xf32>
  %until = chunk.decay_to_end %kept log %logs : tensor<32x128xf32>, tensor<32x128xf32>
  %d_k = chunk.decay_mix %weights, %query log %logs before transpose add %until : tensor<32x32xf32>, tensor<32x128xf32>, tensor<32x128xf32> -> tensor<32x128xf32>
  %decayed = chunk.decay_state %d_S log %logs along rows : tensor<128x128xf32>, tensor<32x128xf32>
  %both = arith.mulf %start, %decayed : tensor<128x128xf32>
  %pairs = chunk.reduce sum %both over columns : tensor<128x128xf32> -> tensor<128xf32>
  %ends = chunk.broadcast %pairs along columns : tensor<128xf32> to tensor<32x128xf32>
  %ofSeen = arith.mulf %query, %since : tensor<32x128xf32>
  %ofKept = arith.mulf %key, %until : tensor<32x128xf32>
  %ofQueries, %ofKeys = chunk.decay_totals %query, %key, %weights log %logs before : tensor<32x128xf32>, tensor<32x32xf32>, tensor<32x128xf32>
  %queries = arith.addf %ofSeen, %ofQueries : tensor<32x128xf32>
  %negative = arith.negf %ofKeys : tensor<32x128xf32>
  %terms = arith.addf %negative, %queries : tensor<32x128xf32>
  %earlier = chunk.accumulate sum %ofKept exclusive : tensor<32x128xf32>
  %upTo = arith.addf %ends, %earlier : tensor<32x128xf32>
  %later = chunk.accumulate sum %terms reverse exclusive : tensor<32x128xf32>
  %around = arith.addf %upTo, %later : tensor<32x128xf32>
  %d_w = arith.addf %around, %negative : tensor<32x128xf32>
  %reads = chunk.decay_from_start %query log %logs before : tensor<32x128xf32>, tensor<32x128xf32>
  %next = chunk.dot %reads, %given transpose_left add %decayed : tensor<32x128xf32>, tensor<32x128xf32> -> tensor<128x128xf32>
  chunk.yield %d_r, %d_k, %d_w next %next : tensor<32x128xf32>, tensor<32x128xf32>, tensor<32x128xf32>, tensor<128x128xf32>
}
