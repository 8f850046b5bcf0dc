// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay,cse))' | FileCheck %s

// A column of a state, as of a normaliser, decays with it: rows are rescaled once, around one anchor, for scores and for
// reads of both. What else asks for the column takes it as it was.
// CHECK-LABEL: chunk.kernel @normaliser
// CHECK: %[[IN_RANGE:.*]] = chunk.within
// CHECK: %[[ANCHOR:.*]] = math.exp2 %{{.*}} : tensor<32xf32>
// CHECK-NEXT: %[[TOTAL:.*]] = math.exp2 %{{.*}} : tensor<32xf32>
// CHECK: %[[QUERIES:.*]] = arith.mulf %{{.*}}, %{{.*}} : tensor<64x32xf32>
// CHECK: %[[KEYS:.*]] = arith.mulf %{{.*}}, %{{.*}} : tensor<64x32xf32>
// CHECK: %[[SCORES:.*]] = scf.if %[[IN_RANGE]]
// CHECK: %[[S:.*]] = arith.mulf %S, %{{.*}} : tensor<32x16xf32>
// CHECK: %[[Z:.*]] = arith.mulf %z, %[[ANCHOR]] : tensor<32xf32>
// CHECK-NEXT: %[[ROWS:.*]] = chunk.broadcast %[[Z]] along columns
// CHECK-NEXT: %[[Z_LEFT:.*]] = scf.if %[[IN_RANGE]]
// CHECK-NEXT: scf.yield %[[Z]]
// CHECK: arith.mulf %[[Z]], %[[TOTAL]]
// CHECK: %[[AS_IT_WAS:.*]] = chunk.broadcast %z along columns
// CHECK: arith.mulf %[[QUERIES]], %[[ROWS]] : tensor<64x32xf32>
// CHECK: chunk.dot %{{.*}}, %[[S]] :
// CHECK: %[[SUM:.*]] = chunk.reduce sum %[[KEYS]] over rows
// CHECK-NEXT: %[[NEXT:.*]] = arith.addf %[[SUM]], %[[Z_LEFT]]
// CHECK-NEXT: %[[SQUARES:.*]] = arith.mulf %[[AS_IT_WAS]], %[[AS_IT_WAS]]
// CHECK-NEXT: chunk.yield %{{.*}}, %{{.*}}, %[[SQUARES]] next %{{.*}}, %[[NEXT]]
chunk.kernel @normaliser chunk 64 (input %q: tensor<64x32xbf16>, input %k: tensor<64x32xbf16>, input %v: tensor<64x16xbf16>, input %g: tensor<64x32xbf16>,
                                   state %S: tensor<32x16xf32> of "S" column 0 columns 17, state %z: tensor<32xf32> of "S" column 16 columns 17,
                                   valid %n: index)
    -> (o: tensor<64x16xf32>, d: tensor<64xf32>, c: tensor<64x32xf32>) {
  %q32 = arith.extf %q : tensor<64x32xbf16> to tensor<64x32xf32>
  %k32 = arith.extf %k : tensor<64x32xbf16> to tensor<64x32xf32>
  %v32 = arith.extf %v : tensor<64x16xbf16> to tensor<64x16xf32>
  %g32 = arith.extf %g : tensor<64x32xbf16> to tensor<64x32xf32>
  %queries = chunk.decay_from_start %q32 log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %rows = chunk.broadcast %z along columns : tensor<32xf32> to tensor<64x32xf32>
  %met = arith.mulf %queries, %rows : tensor<64x32xf32>
  %of_z = chunk.reduce sum %met over columns : tensor<64x32xf32> -> tensor<64xf32>
  %p = chunk.decay_dot %q32, %k32 log %g32 : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
  %of_p = chunk.reduce sum %p over columns : tensor<64x64xf32> -> tensor<64xf32>
  %d = arith.addf %of_z, %of_p : tensor<64xf32>
  %r = chunk.dot %queries, %S : tensor<64x32xf32>, tensor<32x16xf32> -> tensor<64x16xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<64x64xf32>, tensor<64x16xf32> -> tensor<64x16xf32>
  %keys = chunk.decay_to_end %k32 log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %S1 = chunk.decay_state %S log %g32 along rows : tensor<32x16xf32>, tensor<64x32xf32>
  %S2 = chunk.dot %keys, %v32 transpose_left add %S1 : tensor<64x32xf32>, tensor<64x16xf32> -> tensor<32x16xf32>
  %z1 = chunk.decay_state %z log %g32 along rows : tensor<32xf32>, tensor<64x32xf32>
  %sum = chunk.reduce sum %keys over rows : tensor<64x32xf32> -> tensor<32xf32>
  %z2 = arith.addf %sum, %z1 : tensor<32xf32>
  %c = arith.mulf %rows, %rows : tensor<64x32xf32>
  chunk.yield %o, %d, %c next %S2, %z2 : tensor<64x16xf32>, tensor<64xf32>, tensor<64x32xf32>, tensor<32x16xf32>, tensor<32xf32>
}

// So it does in reverse time, where what is read of both is one sum that decays up to the end of the chunk.
// CHECK-LABEL: chunk.kernel @normaliser_back
// CHECK: %[[IN_RANGE:.*]] = chunk.within
// CHECK: %[[S:.*]] = arith.mulf %S, %{{.*}} : tensor<32x16xf32>
// CHECK: %[[Z:.*]] = arith.mulf %z, %{{.*}} : tensor<32xf32>
// CHECK-NEXT: %[[ROW:.*]] = chunk.broadcast %[[Z]] along columns
// CHECK: %[[SEEN:.*]] = chunk.dot %{{.*}}, %[[S]] transpose_right
// CHECK-NEXT: %[[BOTH:.*]] = arith.addf %[[SEEN]], %[[ROW]]
// CHECK: scf.if %[[IN_RANGE]]
// CHECK-NEXT: chunk.dot %{{.*}}, %{{.*}} transpose_left add %[[BOTH]]
chunk.kernel @normaliser_back chunk 64 reverse (input %q: tensor<64x32xbf16>, input %k: tensor<64x32xbf16>, input %v: tensor<64x16xbf16>, input %g: tensor<64x32xbf16>, input %w: tensor<64x64xbf16>,
                                   state %S: tensor<32x16xf32> of "S" column 0 columns 17, state %z: tensor<32xf32> of "S" column 16 columns 17,
                                   valid %n: index) -> (d_k: tensor<64x32xf32>) {
  %q32 = arith.extf %q : tensor<64x32xbf16> to tensor<64x32xf32>
  %v32 = arith.extf %v : tensor<64x16xbf16> to tensor<64x16xf32>
  %g32 = arith.extf %g : tensor<64x32xbf16> to tensor<64x32xf32>
  %w32 = arith.extf %w : tensor<64x64xbf16> to tensor<64x64xf32>
  %seen = chunk.dot %v32, %S transpose_right : tensor<64x16xf32>, tensor<32x16xf32> -> tensor<64x32xf32>
  %row = chunk.broadcast %z along columns : tensor<32xf32> to tensor<64x32xf32>
  %both = arith.addf %seen, %row : tensor<64x32xf32>
  %behind = chunk.decay_to_end %both log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %d_k = chunk.decay_mix %w32, %q32 log %g32 transpose add %behind : tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x32xf32>
  %queries = chunk.decay_from_start %q32 log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %S1 = chunk.decay_state %S log %g32 along rows : tensor<32x16xf32>, tensor<64x32xf32>
  %S2 = chunk.dot %queries, %v32 transpose_left add %S1 : tensor<64x32xf32>, tensor<64x16xf32> -> tensor<32x16xf32>
  %z1 = chunk.decay_state %z log %g32 along rows : tensor<32xf32>, tensor<64x32xf32>
  %sum = chunk.reduce sum %queries over rows : tensor<64x32xf32> -> tensor<32xf32>
  %z2 = arith.addf %sum, %z1 : tensor<32xf32>
  chunk.yield %d_k next %S2, %z2 : tensor<64x32xf32>, tensor<32x16xf32>, tensor<32xf32>
}

// Others may scale the column, if nobody else asks for what it is scaled to.
// CHECK-LABEL: chunk.kernel @scaled
// CHECK: %[[Z:.*]] = arith.mulf %z, %{{.*}} : tensor<32xf32>
// CHECK-NEXT: %[[ROW:.*]] = chunk.broadcast %[[Z]] along columns
// CHECK: %[[SCALED:.*]] = arith.mulf %{{.*}}, %[[ROW]] : tensor<64x32xf32>
// CHECK: arith.addf %{{.*}}, %[[SCALED]]
chunk.kernel @scaled chunk 64 reverse (input %q: tensor<64x32xbf16>, input %k: tensor<64x32xbf16>, input %v: tensor<64x16xbf16>, input %g: tensor<64x32xbf16>, input %w: tensor<64x64xbf16>,
                                   state %S: tensor<32x16xf32> of "S" column 0 columns 17, state %z: tensor<32xf32> of "S" column 16 columns 17,
                                   valid %n: index) -> (d_k: tensor<64x32xf32>) {
  %q32 = arith.extf %q : tensor<64x32xbf16> to tensor<64x32xf32>
  %v32 = arith.extf %v : tensor<64x16xbf16> to tensor<64x16xf32>
  %g32 = arith.extf %g : tensor<64x32xbf16> to tensor<64x32xf32>
  %w32 = arith.extf %w : tensor<64x64xbf16> to tensor<64x64xf32>
  %seen = chunk.dot %v32, %S transpose_right : tensor<64x16xf32>, tensor<32x16xf32> -> tensor<64x32xf32>
  %row = chunk.broadcast %z along columns : tensor<32xf32> to tensor<64x32xf32>
  %scaled = arith.mulf %q32, %row : tensor<64x32xf32>
  %both = arith.addf %seen, %scaled : tensor<64x32xf32>
  %behind = chunk.decay_to_end %both log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %d_k = chunk.decay_mix %w32, %q32 log %g32 transpose add %behind : tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x32xf32>
  %queries = chunk.decay_from_start %q32 log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %S1 = chunk.decay_state %S log %g32 along rows : tensor<32x16xf32>, tensor<64x32xf32>
  %S2 = chunk.dot %queries, %v32 transpose_left add %S1 : tensor<64x32xf32>, tensor<64x16xf32> -> tensor<32x16xf32>
  %z1 = chunk.decay_state %z log %g32 along rows : tensor<32xf32>, tensor<64x32xf32>
  %sum = chunk.reduce sum %queries over rows : tensor<64x32xf32> -> tensor<32xf32>
  %z2 = arith.addf %sum, %z1 : tensor<32xf32>
  chunk.yield %d_k next %S2, %z2 : tensor<64x32xf32>, tensor<32x16xf32>, tensor<32xf32>
}

// CHECK-LABEL: chunk.kernel @shared
// CHECK: %[[ROW:.*]] = chunk.broadcast %z along columns
// CHECK: %[[SCALED:.*]] = arith.mulf %{{.*}}, %[[ROW]] : tensor<64x32xf32>
// CHECK: arith.addf %{{.*}}, %[[SCALED]]
// CHECK: chunk.yield %{{.*}}, %[[SCALED]] next
chunk.kernel @shared chunk 64 reverse (input %q: tensor<64x32xbf16>, input %k: tensor<64x32xbf16>, input %v: tensor<64x16xbf16>, input %g: tensor<64x32xbf16>, input %w: tensor<64x64xbf16>,
                                   state %S: tensor<32x16xf32> of "S" column 0 columns 17, state %z: tensor<32xf32> of "S" column 16 columns 17,
                                   valid %n: index) -> (d_k: tensor<64x32xf32>, c: tensor<64x32xf32>) {
  %q32 = arith.extf %q : tensor<64x32xbf16> to tensor<64x32xf32>
  %v32 = arith.extf %v : tensor<64x16xbf16> to tensor<64x16xf32>
  %g32 = arith.extf %g : tensor<64x32xbf16> to tensor<64x32xf32>
  %w32 = arith.extf %w : tensor<64x64xbf16> to tensor<64x64xf32>
  %seen = chunk.dot %v32, %S transpose_right : tensor<64x16xf32>, tensor<32x16xf32> -> tensor<64x32xf32>
  %row = chunk.broadcast %z along columns : tensor<32xf32> to tensor<64x32xf32>
  %scaled = arith.mulf %q32, %row : tensor<64x32xf32>
  %both = arith.addf %seen, %scaled : tensor<64x32xf32>
  %behind = chunk.decay_to_end %both log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %d_k = chunk.decay_mix %w32, %q32 log %g32 transpose add %behind : tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x32xf32>
  %queries = chunk.decay_from_start %q32 log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %S1 = chunk.decay_state %S log %g32 along rows : tensor<32x16xf32>, tensor<64x32xf32>
  %S2 = chunk.dot %queries, %v32 transpose_left add %S1 : tensor<64x32xf32>, tensor<64x16xf32> -> tensor<32x16xf32>
  %z1 = chunk.decay_state %z log %g32 along rows : tensor<32xf32>, tensor<64x32xf32>
  %sum = chunk.reduce sum %queries over rows : tensor<64x32xf32> -> tensor<32xf32>
  %z2 = arith.addf %sum, %z1 : tensor<32xf32>
  chunk.yield %d_k, %scaled next %S2, %z2 : tensor<64x32xf32>, tensor<64x32xf32>, tensor<32x16xf32>, tensor<32xf32>
}

// Where the state of reverse time is only written, as what segments leave is, its start is the anchor, which scores share.
// CHECK-LABEL: chunk.kernel @only_written
// CHECK: %[[IN_RANGE:.*]] = chunk.within
// CHECK: %[[QUERIES:.*]] = arith.mulf %{{.*}}, %{{.*}} : tensor<64x32xf32>
// CHECK-NEXT: %[[ROUNDED:.*]] = arith.truncf %[[QUERIES]]
// CHECK-NEXT: %[[OPERAND:.*]] = arith.extf %[[ROUNDED]]
// CHECK: scf.if %[[IN_RANGE]] -> (tensor<64x64xf32>)
// CHECK: chunk.dot %[[OPERAND]], %{{.*}} transpose_right
// CHECK: chunk.dot %[[OPERAND]], %{{.*}} transpose_left add
chunk.kernel @only_written chunk 64 reverse (input %q: tensor<64x32xbf16>, input %k: tensor<64x32xbf16>, input %v: tensor<64x16xbf16>, input %g: tensor<64x32xbf16>,
                                             state %S: tensor<32x16xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %q32 = arith.extf %q : tensor<64x32xbf16> to tensor<64x32xf32>
  %k32 = arith.extf %k : tensor<64x32xbf16> to tensor<64x32xf32>
  %v32 = arith.extf %v : tensor<64x16xbf16> to tensor<64x16xf32>
  %g32 = arith.extf %g : tensor<64x32xbf16> to tensor<64x32xf32>
  %p = chunk.decay_dot %q32, %k32 log %g32 : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
  %queries = chunk.decay_from_start %q32 log %g32 : tensor<64x32xf32>, tensor<64x32xf32>
  %S1 = chunk.decay_state %S log %g32 along rows : tensor<32x16xf32>, tensor<64x32xf32>
  %S2 = chunk.dot %queries, %v32 transpose_left add %S1 : tensor<64x32xf32>, tensor<64x16xf32> -> tensor<32x16xf32>
  chunk.yield %p next %S2 : tensor<64x64xf32>, tensor<32x16xf32>
}
