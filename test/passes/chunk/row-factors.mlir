// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-sink-factors,cse))' | FileCheck %s

// Values have a number each. Scores and keys, which are computed and rounded in any case, take it over: keys with the
// numbers that they have already. Both products read the values as they came.
// CHECK-LABEL: chunk.kernel @values
// CHECK: %[[X:.*]] = arith.extf %x
// CHECK: %[[F:.*]] = arith.extf %f
// CHECK: %[[P:.*]] = chunk.dot %{{.*}} transpose_right
// CHECK: %[[COLUMNS:.*]] = chunk.broadcast %[[F]] along columns : tensor<16xf32> to tensor<16x16xf32>
// CHECK: %[[WEIGHTED:.*]] = arith.mulf %[[P]], %[[COLUMNS]]
// CHECK: chunk.dot %[[WEIGHTED]], %[[X]] :
// CHECK: %[[BOTH:.*]] = arith.mulf %{{.*}}, %[[F]] : tensor<16xf32>
// CHECK: %[[ROWS:.*]] = chunk.broadcast %[[BOTH]] along rows : tensor<16xf32> to tensor<16x32xf32>
// CHECK: %[[KEYS:.*]] = arith.mulf %{{.*}}, %[[ROWS]]
// CHECK: chunk.dot %[[KEYS]], %[[X]] transpose_left add %S
chunk.kernel @values chunk 16 (input %q: tensor<16x32xbf16>, input %x: tensor<16x32xbf16>, input %f: tensor<16xbf16>,
    input %g: tensor<16xf32>, state %S: tensor<32x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %f32 = arith.extf %f : tensor<16xbf16> to tensor<16xf32>
  %rows = chunk.broadcast %f32 along rows : tensor<16xf32> to tensor<16x32xf32>
  %v = arith.mulf %rows, %x32 : tensor<16x32xf32>
  %p = chunk.dot %q32, %q32 transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %left = chunk.broadcast %g along rows : tensor<16xf32> to tensor<16x32xf32>
  %keys = arith.mulf %q32, %left : tensor<16x32xf32>
  %next = chunk.dot %keys, %v transpose_left add %S : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  chunk.yield %o next %next : tensor<16x32xf32>, tensor<32x32xf32>
}

// A product that sums over columns has the numbers behind it, on its rows or its columns, with those that it has there.
// CHECK-LABEL: chunk.kernel @behind
// CHECK: %[[X:.*]] = arith.extf %x
// CHECK: %[[SCORES:.*]] = chunk.dot %{{.*}}, %[[X]] transpose_right
// CHECK: %[[COLUMNS:.*]] = chunk.broadcast %f along columns
// CHECK: arith.mulf %[[SCORES]], %[[COLUMNS]]
// CHECK: %[[READ:.*]] = chunk.dot %[[X]], %S
// CHECK: %[[BOTH:.*]] = arith.mulf %g, %f : tensor<16xf32>
// CHECK: %[[ROWS:.*]] = chunk.broadcast %[[BOTH]] along rows
// CHECK: arith.mulf %[[READ]], %[[ROWS]]
chunk.kernel @behind chunk 16 (input %q: tensor<16x32xbf16>, input %x: tensor<16x32xbf16>, input %f: tensor<16xf32>,
    input %g: tensor<16xf32>, state %S: tensor<32x32xf32>, valid %n: index) -> (o: tensor<16x16xf32>, p: tensor<16x32xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %rows = chunk.broadcast %f along rows : tensor<16xf32> to tensor<16x32xf32>
  %v = arith.mulf %x32, %rows : tensor<16x32xf32>
  %o = chunk.dot %q32, %v transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %read = chunk.dot %v, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %left = chunk.broadcast %g along rows : tensor<16xf32> to tensor<16x32xf32>
  %p = arith.mulf %read, %left : tensor<16x32xf32>
  chunk.yield %o, %p next %S : tensor<16x16xf32>, tensor<16x32xf32>, tensor<32x32xf32>
}

// They stay where others ask for the rows with them, where an input would have them, which has none to round, and where
// what is added to would have them, too.
// CHECK-LABEL: chunk.kernel @stays
// CHECK: %[[V:.*]] = arith.mulf
// CHECK: chunk.dot %{{.*}}, %[[V]] transpose_left
// CHECK: %[[W:.*]] = arith.mulf
// CHECK: chunk.dot %[[W]], %S add
// CHECK: %[[Y:.*]] = arith.mulf
// CHECK: chunk.dot %[[Y]], %S :
chunk.kernel @stays chunk 16 (input %q: tensor<16x32xbf16>, input %x: tensor<16x32xbf16>, input %f: tensor<16xf32>,
    input %g: tensor<16xf32>, input %h: tensor<16xf32>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (p: tensor<16x32xf32>, r: tensor<16x32xf32>, y: tensor<16x32xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %f2 = chunk.broadcast %f along rows : tensor<16xf32> to tensor<16x32xf32>
  %v = arith.mulf %x32, %f2 : tensor<16x32xf32>
  %next = chunk.dot %q32, %v transpose_left add %S : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  %g2 = chunk.broadcast %g along rows : tensor<16xf32> to tensor<16x32xf32>
  %w = arith.mulf %x32, %g2 : tensor<16x32xf32>
  %p = chunk.dot %w, %S add %q32 : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %h2 = chunk.broadcast %h along rows : tensor<16xf32> to tensor<16x32xf32>
  %y = arith.mulf %x32, %h2 : tensor<16x32xf32>
  %r = chunk.dot %y, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  chunk.yield %p, %r, %y next %next : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32>, tensor<32x32xf32>
}

// Scores of fp16 may become too large for it: rows keep their numbers.
// CHECK-LABEL: chunk.kernel @half
// CHECK: %[[V:.*]] = arith.mulf
// CHECK: chunk.dot %{{.*}}, %[[V]] :
chunk.kernel @half chunk 16 (input %q: tensor<16x32xf16>, input %f: tensor<16xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %q32 = arith.extf %q : tensor<16x32xf16> to tensor<16x32xf32>
  %rows = chunk.broadcast %f along rows : tensor<16xf32> to tensor<16x32xf32>
  %v = arith.mulf %q32, %rows : tensor<16x32xf32>
  %p = chunk.dot %q32, %q32 transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// Of a slice of the values there are fewer columns than of the keys: the numbers are theirs.
// CHECK-LABEL: chunk.kernel @narrow
// CHECK: %[[K:.*]] = arith.extf %k
// CHECK: %[[V:.*]] = arith.extf %v
// CHECK-NOT: arith.mulf %[[K]]
// CHECK: %[[ROWS:.*]] = chunk.broadcast %f along rows : tensor<16xf32> to tensor<16x16xf32>
// CHECK: %[[SCALED:.*]] = arith.mulf %[[V]], %[[ROWS]]
// CHECK: chunk.dot %[[K]], %[[SCALED]] transpose_left add %S
chunk.kernel @narrow chunk 16 slices 2 (input %k: tensor<16x32xbf16>, input %v: tensor<16x16xbf16> sliced, input %f: tensor<16xf32>,
    state %S: tensor<32x16xf32> sliced, valid %n: index) -> (o: tensor<16x16xf32> sliced) {
  %k32 = arith.extf %k : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x16xbf16> to tensor<16x16xf32>
  %rows = chunk.broadcast %f along rows : tensor<16xf32> to tensor<16x32xf32>
  %keys = arith.mulf %k32, %rows : tensor<16x32xf32>
  %next = chunk.dot %keys, %v32 transpose_left add %S : tensor<16x32xf32>, tensor<16x16xf32> -> tensor<32x16xf32>
  chunk.yield %v32 next %next : tensor<16x16xf32>, tensor<32x16xf32>
}

// As wide as the keys they are not: nothing is gained.
// CHECK-LABEL: chunk.kernel @wide
// CHECK: %[[K:.*]] = arith.extf %k
// CHECK: %[[SCALED:.*]] = arith.mulf %[[K]],
// CHECK: chunk.dot %[[SCALED]], %{{.*}} transpose_left add %S
chunk.kernel @wide chunk 16 (input %k: tensor<16x32xbf16>, input %v: tensor<16x32xbf16>, input %f: tensor<16xf32>,
    state %S: tensor<32x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %k32 = arith.extf %k : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x32xbf16> to tensor<16x32xf32>
  %rows = chunk.broadcast %f along rows : tensor<16xf32> to tensor<16x32xf32>
  %keys = arith.mulf %k32, %rows : tensor<16x32xf32>
  %next = chunk.dot %keys, %v32 transpose_left add %S : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  chunk.yield %v32 next %next : tensor<16x32xf32>, tensor<32x32xf32>
}

// A cotangent is divided by the normaliser of its token. Rows that a look-ahead meets have the numbers on the weights
// that add them up, and behind the product; own rows of a look-back that meets few chunks behind products, with all that
// multiplies them further.
// CHECK-LABEL: chunk.kernel @window
// CHECK: %[[G:.*]] = chunk.broadcast %g along rows : tensor<f32> to tensor<16xf32>
// CHECK: chunk.lookback sum from
// CHECK: %[[V:.*]] = arith.extf %v_j
// CHECK: %[[P:.*]] = chunk.dot %{{.*}}, %[[V]] transpose_right
// CHECK: %[[ROWS:.*]] = chunk.broadcast %[[NUMBERS:.*]] along rows : tensor<16xf32> to tensor<16x16xf32>
// CHECK: arith.mulf %[[P]], %[[ROWS]]
// CHECK: chunk.lookback sum ahead
// CHECK: %[[D:.*]] = arith.extf %d_j
// CHECK: %[[ONE:.*]] = arith.divf %{{.*}}, %norm_j : tensor<16xf32>
// CHECK: %[[P:.*]] = chunk.dot %{{.*}}, %[[D]] transpose_right
// CHECK: %[[TWICE:.*]] = arith.mulf %[[ONE]], %[[ONE]]
// CHECK: %[[COLUMNS:.*]] = chunk.broadcast %[[TWICE]] along columns : tensor<16xf32> to tensor<16x16xf32>
// CHECK: %[[W:.*]] = arith.mulf %[[P]], %[[COLUMNS]]
// CHECK: chunk.contribute %[[W]], %[[D]]
chunk.table @from varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @window chunk 16 reverse (input %v: tensor<16x8xbf16>, input %d: tensor<16x8xbf16>, input %norm: tensor<16xf32>,
    parameter %g: tensor<f32>, table %from: tensor<16xf32>, valid %n: index) -> (d_q: tensor<16x8xf32>, d_v: tensor<16x8xf32>) {
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %d32 = arith.extf %d : tensor<16x8xbf16> to tensor<16x8xf32>
  %rows = chunk.broadcast %norm along rows : tensor<16xf32> to tensor<16x8xf32>
  %c = arith.divf %d32, %rows : tensor<16x8xf32>
  %gs = chunk.broadcast %g along rows : tensor<f32> to tensor<16x8xf32>
  %cg = arith.mulf %c, %gs : tensor<16x8xf32>
  %d_q = chunk.lookback sum from %from : tensor<16xf32> past(%v_j = %v : tensor<16x8xbf16>) attributes {met = array<i64: 1, 0>} {
    %x = arith.extf %v_j : tensor<16x8xbf16> to tensor<16x8xf32>
    %p = chunk.dot %cg, %x transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %p, %x : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  %d_v = chunk.lookback sum ahead past(%from_j = %from : tensor<16xf32>, %norm_j = %norm : tensor<16xf32>, %d_j = %d : tensor<16x8xbf16>) {
    %x = arith.extf %d_j : tensor<16x8xbf16> to tensor<16x8xf32>
    %numbers = chunk.broadcast %norm_j along rows : tensor<16xf32> to tensor<16x8xf32>
    %y = arith.divf %x, %numbers : tensor<16x8xf32>
    %p = chunk.dot %v32, %y transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %p, %y : tensor<16x16xf32>, tensor<16x8xf32> from %from_j : tensor<16xf32>
  } : tensor<16x8xf32>
  chunk.yield %d_q, %d_v : tensor<16x8xf32>, tensor<16x8xf32>
}

// A look-back of who knows how many chunks would have own rows' numbers behind each of its products.
// CHECK-LABEL: chunk.kernel @far
// CHECK: %[[C:.*]] = arith.divf %{{.*}} : tensor<16x8xf32>
// CHECK: chunk.dot %[[C]],
chunk.kernel @far chunk 16 reverse (input %v: tensor<16x8xbf16>, input %d: tensor<16x8xbf16>, input %norm: tensor<16xf32>,
    table %from: tensor<16xf32>, valid %n: index) -> (d_q: tensor<16x8xf32>) {
  %d32 = arith.extf %d : tensor<16x8xbf16> to tensor<16x8xf32>
  %rows = chunk.broadcast %norm along rows : tensor<16xf32> to tensor<16x8xf32>
  %c = arith.divf %d32, %rows : tensor<16x8xf32>
  %d_q = chunk.lookback sum from %from : tensor<16xf32> past(%v_j = %v : tensor<16x8xbf16>) {
    %x = arith.extf %v_j : tensor<16x8xbf16> to tensor<16x8xf32>
    %p = chunk.dot %c, %x transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %p, %x : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  chunk.yield %d_q : tensor<16x8xf32>
}

// The other rows of an outer product that a look-ahead adds up have the numbers, and so have those of one with a column,
// which is divided by them: one tile serves both.
// CHECK-LABEL: chunk.kernel @outer
// CHECK: chunk.lookback outer ahead past(
// CHECK: %[[LEFT:.*]] = math.exp
// CHECK: %[[ONE:.*]] = arith.constant dense<1.000000e+00> : tensor<64xf32>
// CHECK: %[[F:.*]] = arith.divf %[[ONE]], %[[N:.*]] : tensor<64xf32>
// CHECK: %[[REPEATED:.*]] = chunk.broadcast %[[F]] along rows : tensor<64xf32> to tensor<64x64xf32>
// CHECK: %[[SCALED:.*]] = arith.mulf %[[LEFT]], %[[REPEATED]]
// CHECK: %[[COLUMN:.*]] = arith.divf
// CHECK: chunk.contribute %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x1xf32>
chunk.table @time varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @outer chunk 64 reverse (input %q: tensor<64x64xbf16>, input %d: tensor<64x64xbf16>, input %n: tensor<64xf32>, input %c: tensor<64xf32>,
    table %time: tensor<64xf32>, state %R: tensor<64x64xf32>, state %Z: tensor<64x1xf32>, valid %valid: index) -> (o: tensor<64x64xbf16>) {
  %next:2 = chunk.lookback outer ahead past(%q_j = %q : tensor<64x64xbf16>, %d_j = %d : tensor<64x64xbf16>, %n_j = %n : tensor<64xf32>,
      %c_j = %c : tensor<64xf32>, %t_j = %time : tensor<64xf32>) {
    %x = arith.extf %q_j : tensor<64x64xbf16> to tensor<64x64xf32>
    %left = math.exp %x : tensor<64x64xf32>
    %y = arith.extf %d_j : tensor<64x64xbf16> to tensor<64x64xf32>
    %ns = chunk.broadcast %n_j along rows : tensor<64xf32> to tensor<64x64xf32>
    %right = arith.divf %y, %ns : tensor<64x64xf32>
    %column = chunk.broadcast %c_j along rows : tensor<64xf32> to tensor<64x1xf32>
    chunk.contribute %left, %right, %left, %column : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x1xf32> from %t_j : tensor<64xf32> to %t_j : tensor<64xf32>
  } : tensor<64x64xf32>, tensor<64x1xf32>
  %S = arith.addf %R, %next#0 : tensor<64x64xf32>
  %z = arith.addf %Z, %next#1 : tensor<64x1xf32>
  chunk.yield %q next %S, %z : tensor<64x64xbf16>, tensor<64x64xf32>, tensor<64x1xf32>
}

// Numbers that multiply may be 0: a column is not divided by these.
// CHECK-LABEL: chunk.kernel @outer_factor
// CHECK: %[[LEFT:.*]] = math.exp
// CHECK-NOT: arith.divf
// CHECK: %[[SCALED:.*]] = arith.mulf %[[LEFT]]
// CHECK-NOT: arith.divf
// CHECK: chunk.contribute %[[SCALED]], %{{.*}}, %[[LEFT]], %{{.*}} :
chunk.kernel @outer_factor chunk 64 reverse (input %q: tensor<64x64xbf16>, input %d: tensor<64x64xbf16>, input %n: tensor<64xf32>, input %c: tensor<64xf32>,
    table %time: tensor<64xf32>, state %R: tensor<64x64xf32>, state %Z: tensor<64x1xf32>, valid %valid: index) -> (o: tensor<64x64xbf16>) {
  %next:2 = chunk.lookback outer ahead past(%q_j = %q : tensor<64x64xbf16>, %d_j = %d : tensor<64x64xbf16>, %n_j = %n : tensor<64xf32>,
      %c_j = %c : tensor<64xf32>, %t_j = %time : tensor<64xf32>) {
    %x = arith.extf %q_j : tensor<64x64xbf16> to tensor<64x64xf32>
    %left = math.exp %x : tensor<64x64xf32>
    %y = arith.extf %d_j : tensor<64x64xbf16> to tensor<64x64xf32>
    %ns = chunk.broadcast %n_j along rows : tensor<64xf32> to tensor<64x64xf32>
    %right = arith.mulf %y, %ns : tensor<64x64xf32>
    %column = chunk.broadcast %c_j along rows : tensor<64xf32> to tensor<64x1xf32>
    chunk.contribute %left, %right, %left, %column : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x1xf32> from %t_j : tensor<64xf32> to %t_j : tensor<64xf32>
  } : tensor<64x64xf32>, tensor<64x1xf32>
  %S = arith.addf %R, %next#0 : tensor<64x64xf32>
  %z = arith.addf %Z, %next#1 : tensor<64x1xf32>
  chunk.yield %q next %S, %z : tensor<64x64xbf16>, tensor<64x64xf32>, tensor<64x1xf32>
}

// A sum over a row has its numbers behind it, whatever else multiplies the row, if nothing but such sums asks for it: then
// nothing is divided but sums, and two that were scaled apart are one.
// CHECK-LABEL: chunk.kernel @sums
// CHECK: %[[P:.*]] = arith.mulf %{{.*}}, %{{.*}} : tensor<64x64xf32>
// CHECK-NEXT: %[[SUM:.*]] = chunk.reduce sum %[[P]] over columns
// CHECK-NEXT: %[[DIVIDED:.*]] = arith.divf %[[SUM]], %n : tensor<64xf32>
// CHECK-NEXT: %[[A:.*]] = arith.negf %[[DIVIDED]] : tensor<64xf32>
// CHECK-NEXT: %[[G:.*]] = chunk.broadcast %g along rows : tensor<f32> to tensor<64xf32>
// CHECK-NEXT: %[[SCALED:.*]] = arith.mulf %[[SUM]], %[[G]] : tensor<64xf32>
// CHECK-NEXT: %[[B:.*]] = arith.divf %[[SCALED]], %n : tensor<64xf32>
// CHECK-NEXT: chunk.yield %[[A]], %[[B]]
chunk.kernel @sums chunk 64 (input %d: tensor<64x64xbf16>, input %x: tensor<64x64xbf16>, input %n: tensor<64xf32>, parameter %g: tensor<f32>,
    valid %valid: index) -> (a: tensor<64xf32>, b: tensor<64xf32>) {
  %wide = arith.extf %d : tensor<64x64xbf16> to tensor<64x64xf32>
  %other = arith.extf %x : tensor<64x64xbf16> to tensor<64x64xf32>
  %e = math.exp %other : tensor<64x64xf32>
  %ns = chunk.broadcast %n along rows : tensor<64xf32> to tensor<64x64xf32>
  %gs = chunk.broadcast %g along rows : tensor<f32> to tensor<64x64xf32>
  %y = arith.divf %wide, %ns : tensor<64x64xf32>
  %p = arith.mulf %y, %e : tensor<64x64xf32>
  %minus = arith.negf %p : tensor<64x64xf32>
  %a = chunk.reduce sum %minus over columns : tensor<64x64xf32> -> tensor<64xf32>
  %scaled = arith.mulf %y, %gs : tensor<64x64xf32>
  %r = arith.mulf %scaled, %e : tensor<64x64xf32>
  %b = chunk.reduce sum %r over columns : tensor<64x64xf32> -> tensor<64xf32>
  chunk.yield %a, %b : tensor<64xf32>, tensor<64xf32>
}

// Where a product takes the row as well, it is there, and stays as it is.
// CHECK-LABEL: chunk.kernel @taken
// CHECK: %[[Y:.*]] = arith.mulf %{{.*}}, %{{.*}} : tensor<64x64xf32>
// CHECK: %[[P:.*]] = arith.mulf %[[Y]]
// CHECK: chunk.reduce sum %[[P]] over columns
chunk.kernel @taken chunk 64 (input %x: tensor<64x64xbf16>, input %n: tensor<64xf32>, valid %valid: index) -> (a: tensor<64xf32>, o: tensor<64x64xf32>) {
  %wide = arith.extf %x : tensor<64x64xbf16> to tensor<64x64xf32>
  %e = math.exp %wide : tensor<64x64xf32>
  %ns = chunk.broadcast %n along rows : tensor<64xf32> to tensor<64x64xf32>
  %y = arith.mulf %e, %ns : tensor<64x64xf32>
  %p = arith.mulf %y, %wide : tensor<64x64xf32>
  %a = chunk.reduce sum %p over columns : tensor<64x64xf32> -> tensor<64xf32>
  chunk.yield %a, %y : tensor<64xf32>, tensor<64x64xf32>
}
