// RUN: stretto-opt %s --canonicalize --cse --split-input-file | FileCheck %s

// A row that is repeated is computed once; numbers and constants fit to it.
// CHECK-LABEL: chunk.kernel @elementwise_on_repeated
chunk.kernel @elementwise_on_repeated chunk 16 (parameter %w: tensor<8xf32>, parameter %c: tensor<f32>,
                                                valid %n: index) -> (o: tensor<16x8xf32>) {
  // CHECK-NEXT: %[[TWO:.*]] = arith.constant dense<2.000000e+00> : tensor<8xf32>
  // CHECK-NEXT: %[[C:.*]] = chunk.broadcast %c along rows : tensor<f32> to tensor<8xf32>
  // CHECK-NEXT: %[[SUM:.*]] = arith.addf %w, %[[C]] : tensor<8xf32>
  // CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[SUM]], %[[TWO]] : tensor<8xf32>
  // CHECK-NEXT: %[[O:.*]] = chunk.broadcast %[[PRODUCT]] along columns : tensor<8xf32> to tensor<16x8xf32>
  // CHECK-NEXT: chunk.yield %[[O]]
  %two = arith.constant dense<2.0> : tensor<16x8xf32>
  %a = chunk.broadcast %w along columns : tensor<8xf32> to tensor<16x8xf32>
  %b = chunk.broadcast %c along rows : tensor<f32> to tensor<16x8xf32>
  %d = arith.addf %a, %b : tensor<16x8xf32>
  %o = arith.mulf %d, %two : tensor<16x8xf32>
  chunk.yield %o : tensor<16x8xf32>
}

// -----

// Numbers of rows and of columns do not meet in a vector.
// CHECK-LABEL: chunk.kernel @different_sides
chunk.kernel @different_sides chunk 8 (parameter %w: tensor<8xf32>, input %x: tensor<8xf32>, valid %n: index)
    -> (o: tensor<8x8xf32>) {
  // CHECK: arith.addf %{{.*}} : tensor<8x8xf32>
  %a = chunk.broadcast %w along columns : tensor<8xf32> to tensor<8x8xf32>
  %b = chunk.broadcast %x along rows : tensor<8xf32> to tensor<8x8xf32>
  %o = arith.addf %a, %b : tensor<8x8xf32>
  chunk.yield %o : tensor<8x8xf32>
}

// -----

// CHECK-LABEL: chunk.kernel @broadcasts
chunk.kernel @broadcasts chunk 16 (parameter %c: tensor<f32>, valid %n: index)
    -> (a: tensor<16x8xf32>, b: tensor<16x8xf32>, v: tensor<16xf32>) {
  // CHECK-NEXT: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<16x8xf32>
  // CHECK-NEXT: %[[V:.*]] = chunk.broadcast %c along rows : tensor<f32> to tensor<16xf32>
  // CHECK-NEXT: %[[A:.*]] = chunk.broadcast %c along rows : tensor<f32> to tensor<16x8xf32>
  // CHECK-NEXT: chunk.yield %[[A]], %[[ONES]], %[[V]]
  %v = chunk.broadcast %c along columns : tensor<f32> to tensor<16xf32>
  %a = chunk.broadcast %v along rows : tensor<16xf32> to tensor<16x8xf32>
  %one = arith.constant dense<1.0> : tensor<16xf32>
  %b = chunk.broadcast %one along rows : tensor<16xf32> to tensor<16x8xf32>
  chunk.yield %a, %b, %v : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32>
}

// -----

// CHECK-LABEL: chunk.kernel @columns
chunk.kernel @columns chunk 16 (input %x: tensor<16x8xf32>, input %y: tensor<16x4xf32>, input %z: tensor<16xf32>,
                                parameter %w: tensor<8xf32>, valid %n: index)
    -> (a: tensor<16x8xf32>, b: tensor<16xf32>, c: tensor<16x2xf32>, d: tensor<16x6xf32>, e: tensor<16x2xf32>, f: tensor<16xf32>) {
  // CHECK-NEXT: %[[C:.*]] = chunk.columns %y from 1 : tensor<16x4xf32> -> tensor<16x2xf32>
  // CHECK-NEXT: %[[X:.*]] = chunk.columns %x from 6 : tensor<16x8xf32> -> tensor<16x2xf32>
  // CHECK-NEXT: %[[D:.*]] = chunk.concat %[[X]], %y : tensor<16x2xf32>, tensor<16x4xf32> -> tensor<16x6xf32>
  // CHECK-NEXT: %[[W:.*]] = chunk.columns %w from 3 : tensor<8xf32> -> tensor<2xf32>
  // CHECK-NEXT: %[[E:.*]] = chunk.broadcast %[[W]] along columns : tensor<2xf32> to tensor<16x2xf32>
  // CHECK-NEXT: chunk.yield %x, %z, %[[C]], %[[D]], %[[E]], %z
  %all = chunk.concat %x, %y, %z : tensor<16x8xf32>, tensor<16x4xf32>, tensor<16xf32> -> tensor<16x13xf32>
  %a = chunk.columns %all from 0 : tensor<16x13xf32> -> tensor<16x8xf32>
  %b = chunk.columns %all from 12 : tensor<16x13xf32> -> tensor<16xf32>
  %c0 = chunk.columns %all from 8 : tensor<16x13xf32> -> tensor<16x4xf32>
  %c = chunk.columns %c0 from 1 : tensor<16x4xf32> -> tensor<16x2xf32>
  %d = chunk.columns %all from 6 : tensor<16x13xf32> -> tensor<16x6xf32>
  %wide = chunk.broadcast %w along columns : tensor<8xf32> to tensor<16x8xf32>
  %e = chunk.columns %wide from 3 : tensor<16x8xf32> -> tensor<16x2xf32>
  %repeated = chunk.broadcast %z along rows : tensor<16xf32> to tensor<16x8xf32>
  %f = chunk.columns %repeated from 5 : tensor<16x8xf32> -> tensor<16xf32>
  chunk.yield %a, %b, %c, %d, %e, %f
      : tensor<16x8xf32>, tensor<16xf32>, tensor<16x2xf32>, tensor<16x6xf32>, tensor<16x2xf32>, tensor<16xf32>
}

// -----

// CHECK-LABEL: chunk.kernel @neighbours
chunk.kernel @neighbours chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (a: tensor<16x8xf32>) {
  // CHECK-NEXT: chunk.yield %x
  %l = chunk.columns %x from 0 : tensor<16x8xf32> -> tensor<16x3xf32>
  %m = chunk.columns %x from 3 : tensor<16x8xf32> -> tensor<16x4xf32>
  %r = chunk.columns %x from 7 : tensor<16x8xf32> -> tensor<16xf32>
  %lm = chunk.concat %l, %m : tensor<16x3xf32>, tensor<16x4xf32> -> tensor<16x7xf32>
  %a = chunk.concat %lm, %r : tensor<16x7xf32>, tensor<16xf32> -> tensor<16x8xf32>
  chunk.yield %a : tensor<16x8xf32>
}

// -----

// Where nobody asks for the whole, columns of what is made of tiles side by side are made of their own, and of columns of
// inputs in memory; where somebody does, they are taken of it.
// CHECK-LABEL: chunk.kernel @parts
chunk.kernel @parts chunk 16 (input %x: tensor<16x8xbf16>, input %l: tensor<16x4xf32>, input %r: tensor<16x4xf32>, valid %n: index)
    -> (a: tensor<16x4xf32>, b: tensor<16x4xf32>, c: tensor<16x4xf32>, d: tensor<16x8xf32>) {
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<16x4xf32>
  // CHECK-DAG: %[[L:.*]] = arith.cmpf ogt, %l, %[[ZERO]] : tensor<16x4xf32>
  // CHECK-DAG: %[[X0:.*]] = chunk.columns %x from 0 : tensor<16x8xbf16> -> tensor<16x4xbf16>
  // CHECK-DAG: %[[WIDE:.*]] = arith.extf %[[X0]] : tensor<16x4xbf16> to tensor<16x4xf32>
  // CHECK-DAG: %[[A:.*]] = arith.select %[[L]], %[[WIDE]], %[[ZERO]]
  // CHECK-DAG: %[[R:.*]] = arith.cmpf ogt, %r, %[[ZERO]] : tensor<16x4xf32>
  // CHECK-DAG: %[[B:.*]] = arith.select %[[R]],
  // CHECK-DAG: %[[ALL:.*]] = chunk.concat %l, %r
  // CHECK-DAG: %[[D:.*]] = arith.negf %[[ALL]] : tensor<16x8xf32>
  // CHECK-DAG: %[[C:.*]] = chunk.columns %[[D]] from 0
  // CHECK: chunk.yield %[[A]], %[[B]], %[[C]], %[[D]]
  %zero = arith.constant dense<0.0> : tensor<16x8xf32>
  %wide = arith.extf %x : tensor<16x8xbf16> to tensor<16x8xf32>
  %all = chunk.concat %l, %r : tensor<16x4xf32>, tensor<16x4xf32> -> tensor<16x8xf32>
  %positive = arith.cmpf ogt, %all, %zero : tensor<16x8xf32>
  %chosen = arith.select %positive, %wide, %zero : tensor<16x8xi1>, tensor<16x8xf32>
  %a = chunk.columns %chosen from 0 : tensor<16x8xf32> -> tensor<16x4xf32>
  %b = chunk.columns %chosen from 4 : tensor<16x8xf32> -> tensor<16x4xf32>
  %d = arith.negf %all : tensor<16x8xf32>
  %c = chunk.columns %d from 0 : tensor<16x8xf32> -> tensor<16x4xf32>
  chunk.yield %a, %b, %c, %d : tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x8xf32>
}

// -----

// Of one other tile columns are taken, before what is made of it alone; of two, what is put together stays whole.
// CHECK-LABEL: chunk.kernel @parts_beside_another
chunk.kernel @parts_beside_another chunk 16 (input %l: tensor<16x4xf32>, input %r: tensor<16x4xf32>, input %x: tensor<16x8xf32>, parameter %w: tensor<8x8xf32>, valid %n: index)
    -> (a: tensor<16x4xf32>, b: tensor<16x4xf32>) {
  // CHECK-DAG: %[[HALF:.*]] = arith.constant dense<5.000000e-01> : tensor<16x4xf32>
  // CHECK-DAG: %[[P:.*]] = chunk.dot %x, %w
  // CHECK-DAG: %[[C:.*]] = chunk.columns %[[P]] from 0
  // CHECK-DAG: %[[SCALED:.*]] = arith.mulf %[[C]], %[[HALF]] : tensor<16x4xf32>
  // CHECK-DAG: %[[A:.*]] = arith.mulf %l, %[[SCALED]] : tensor<16x4xf32>
  // CHECK-DAG: %[[WHOLE:.*]] = chunk.concat %l, %r
  // CHECK-DAG: %[[B:.*]] = chunk.columns %{{.*}} from 4 : tensor<16x8xf32> -> tensor<16x4xf32>
  // CHECK: chunk.yield %[[A]], %[[B]]
  %half = arith.constant dense<0.5> : tensor<16x8xf32>
  %all = chunk.concat %l, %r : tensor<16x4xf32>, tensor<16x4xf32> -> tensor<16x8xf32>
  %p = chunk.dot %x, %w : tensor<16x8xf32>, tensor<8x8xf32> -> tensor<16x8xf32>
  %scaled = arith.mulf %p, %half : tensor<16x8xf32>
  %one = arith.mulf %all, %scaled : tensor<16x8xf32>
  %a = chunk.columns %one from 0 : tensor<16x8xf32> -> tensor<16x4xf32>
  %other = chunk.dot %p, %w : tensor<16x8xf32>, tensor<8x8xf32> -> tensor<16x8xf32>
  %product = arith.mulf %all, %other : tensor<16x8xf32>
  %two = arith.addf %product, %p : tensor<16x8xf32>
  %b = chunk.columns %two from 4 : tensor<16x8xf32> -> tensor<16x4xf32>
  chunk.yield %a, %b : tensor<16x4xf32>, tensor<16x4xf32>
}

// -----

// CHECK-LABEL: chunk.kernel @masks
chunk.kernel @masks chunk 16 (input %x: tensor<16x16xf32>, valid %n: index)
    -> (a: tensor<16x16xf32>, b: tensor<16x16xf32>, c: tensor<16xf32>, d: tensor<16x16xf32>, e: tensor<16x16xf32>) {
  // CHECK-DAG: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<16xf32>
  // CHECK-DAG: %[[A:.*]] = chunk.mask %x valid %n : tensor<16x16xf32>
  // CHECK-DAG: %[[B:.*]] = chunk.mask %x valid %n else 1.000000e+00 : tensor<16x16xf32>
  // CHECK-DAG: %[[D:.*]] = chunk.causal %x strict : tensor<16x16xf32>
  // CHECK: chunk.yield %[[A]], %[[B]], %[[ONES]], %[[D]], %[[D]]
  %a0 = chunk.mask %x valid %n : tensor<16x16xf32>
  %a = chunk.mask %a0 valid %n : tensor<16x16xf32>
  %b = chunk.mask %a0 valid %n else 1.0 : tensor<16x16xf32>
  %ones = arith.constant dense<1.0> : tensor<16xf32>
  %c = chunk.mask %ones valid %n else 1.0 : tensor<16xf32>
  %causal = chunk.causal %x : tensor<16x16xf32>
  %d = chunk.causal %causal strict : tensor<16x16xf32>
  %e = chunk.causal %d : tensor<16x16xf32>
  chunk.yield %a, %b, %c, %d, %e
      : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16xf32>, tensor<16x16xf32>, tensor<16x16xf32>
}

// -----

// CHECK-LABEL: chunk.kernel @causal_scores
chunk.kernel @causal_scores chunk 16 (input %q: tensor<16x8xf32>, input %g: tensor<16xf32>, valid %n: index)
    -> (a: tensor<16x16xf32>, b: tensor<16x16xf32>) {
  // CHECK-NEXT: %[[A:.*]] = chunk.decay_dot %q, %q log %g :
  // CHECK-NEXT: %[[B:.*]] = chunk.causal %[[A]] strict
  // CHECK-NEXT: chunk.yield %[[A]], %[[B]]
  %p = chunk.decay_dot %q, %q log %g : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32> -> tensor<16x16xf32>
  %a = chunk.causal %p : tensor<16x16xf32>
  %b = chunk.causal %p strict : tensor<16x16xf32>
  chunk.yield %a, %b : tensor<16x16xf32>, tensor<16x16xf32>
}

// -----

// A product with a constant is a sum.
// CHECK-LABEL: chunk.kernel @dot_of_splat
chunk.kernel @dot_of_splat chunk 16 (input %p: tensor<16x16xbf16>, input %d: tensor<16x1xf32>, valid %n: index)
    -> (o: tensor<16x1xf32>) {
  // CHECK-NEXT: %[[TWO:.*]] = arith.constant dense<2.000000e+00> : tensor<16xf32>
  // CHECK-NEXT: %[[WIDE:.*]] = arith.extf %p : tensor<16x16xbf16> to tensor<16x16xf32>
  // CHECK-NEXT: %[[SUM:.*]] = chunk.reduce sum %[[WIDE]] over columns : tensor<16x16xf32> -> tensor<16xf32>
  // CHECK-NEXT: %[[SCALED:.*]] = arith.mulf %[[SUM]], %[[TWO]]
  // CHECK-NEXT: %[[COLUMN:.*]] = chunk.broadcast %[[SCALED]] along rows : tensor<16xf32> to tensor<16x1xf32>
  // CHECK-NEXT: arith.addf %[[COLUMN]], %d
  %two = arith.constant dense<2.0> : tensor<16x1xbf16>
  %o = chunk.dot %p, %two add %d : tensor<16x16xbf16>, tensor<16x1xbf16> -> tensor<16x1xf32>
  chunk.yield %o : tensor<16x1xf32>
}

// -----

// A product with one column, of one column with one row, and of one row.
// CHECK-LABEL: chunk.kernel @dot_of_vectors
chunk.kernel @dot_of_vectors chunk 16 (input %p: tensor<16x8xf32>, input %x: tensor<16xf32>, parameter %w: tensor<8xf32>,
                                       parameter %r: tensor<1x8xf32>, valid %n: index)
    -> (a: tensor<16x1xf32>, b: tensor<16x8xf32>, c: tensor<16xf32>) {
  // CHECK-DAG: %[[WW:.*]] = chunk.broadcast %w along columns : tensor<8xf32> to tensor<16x8xf32>
  // CHECK-DAG: %[[PW:.*]] = arith.mulf %p, %[[WW]]
  // CHECK-DAG: %[[A:.*]] = chunk.reduce sum %[[PW]] over columns : tensor<16x8xf32> -> tensor<16xf32>
  // CHECK-DAG: %[[AA:.*]] = chunk.broadcast %[[A]] along rows : tensor<16xf32> to tensor<16x1xf32>
  %w1 = chunk.broadcast %w along rows : tensor<8xf32> to tensor<8x1xf32>
  %a = chunk.dot %p, %w1 : tensor<16x8xf32>, tensor<8x1xf32> -> tensor<16x1xf32>
  // CHECK-DAG: %[[XX:.*]] = chunk.broadcast %x along rows : tensor<16xf32> to tensor<16x8xf32>
  // CHECK-DAG: %[[R:.*]] = chunk.reduce sum %r over rows : tensor<1x8xf32> -> tensor<8xf32>
  // CHECK-DAG: %[[RR:.*]] = chunk.broadcast %[[R]] along columns : tensor<8xf32> to tensor<16x8xf32>
  // CHECK-DAG: %[[B:.*]] = arith.mulf %[[XX]], %[[RR]]
  %x1 = chunk.broadcast %x along rows : tensor<16xf32> to tensor<16x1xf32>
  %b = chunk.dot %x1, %r : tensor<16x1xf32>, tensor<1x8xf32> -> tensor<16x8xf32>
  // CHECK-DAG: %[[RP:.*]] = arith.mulf %p, %[[RR]]
  // CHECK-DAG: %[[C:.*]] = chunk.reduce sum %[[RP]] over columns : tensor<16x8xf32> -> tensor<16xf32>
  // CHECK: chunk.yield %[[AA]], %[[B]], %[[C]]
  %c0 = chunk.dot %p, %r transpose_right : tensor<16x8xf32>, tensor<1x8xf32> -> tensor<16x1xf32>
  %c = chunk.columns %c0 from 0 : tensor<16x1xf32> -> tensor<16xf32>
  chunk.yield %a, %b, %c : tensor<16x1xf32>, tensor<16x8xf32>, tensor<16xf32>
}

// -----

// CHECK-LABEL: chunk.kernel @reduce_of_one
chunk.kernel @reduce_of_one chunk 16 (input %x: tensor<16x1xf32>, parameter %w: tensor<8xf32>, valid %n: index)
    -> (a: tensor<16xf32>, b: tensor<16x8xf32>) {
  // CHECK-NEXT: %[[A:.*]] = chunk.columns %x from 0 : tensor<16x1xf32> -> tensor<16xf32>
  // CHECK-NEXT: %[[B:.*]] = chunk.broadcast %w along columns : tensor<8xf32> to tensor<16x8xf32>
  // CHECK-NEXT: chunk.yield %[[A]], %[[B]]
  %a = chunk.reduce max %x over columns : tensor<16x1xf32> -> tensor<16xf32>
  %one = chunk.broadcast %w along columns : tensor<8xf32> to tensor<1x8xf32>
  %r = chunk.reduce sum %one over rows : tensor<1x8xf32> -> tensor<8xf32>
  %b = chunk.broadcast %r along columns : tensor<8xf32> to tensor<16x8xf32>
  chunk.yield %a, %b : tensor<16xf32>, tensor<16x8xf32>
}

// -----

// An amount that all channels share is one number for each token, masked or not.
// CHECK-LABEL: chunk.kernel @shared_amount
chunk.kernel @shared_amount chunk 16 (input %q: tensor<16x8xf32>, input %g: tensor<16xf32>, parameter %c: tensor<f32>,
                                      state %S: tensor<8x4xf32>, valid %n: index)
    -> (p: tensor<16x16xf32>, a: tensor<16x8xf32>, b: tensor<16x8xf32>) {
  // CHECK-DAG: %[[C:.*]] = chunk.broadcast %c along rows : tensor<f32> to tensor<16xf32>
  // CHECK-DAG: %[[MASKED:.*]] = chunk.mask %[[C]] valid %n : tensor<16xf32>
  // CHECK-DAG: chunk.decay_dot %q, %q log %g : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16xf32>
  // CHECK-DAG: chunk.decay_from_start %q log %[[MASKED]] before : tensor<16x8xf32>, tensor<16xf32>
  // CHECK-DAG: chunk.decay_to_end %q factor %g : tensor<16x8xf32>, tensor<16xf32>
  // CHECK-DAG: chunk.decay_state %S log %g along rows : tensor<8x4xf32>, tensor<16xf32>
  %wide = chunk.broadcast %g along rows : tensor<16xf32> to tensor<16x8xf32>
  %cc = chunk.broadcast %c along rows : tensor<f32> to tensor<16x8xf32>
  %masked = chunk.mask %cc valid %n : tensor<16x8xf32>
  %p = chunk.decay_dot %q, %q log %wide : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %a = chunk.decay_from_start %q log %masked before : tensor<16x8xf32>, tensor<16x8xf32>
  %b = chunk.decay_to_end %q factor %wide : tensor<16x8xf32>, tensor<16x8xf32>
  %s = chunk.decay_state %S log %wide along rows : tensor<8x4xf32>, tensor<16x8xf32>
  chunk.yield %p, %a, %b next %s : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x4xf32>
}

// -----

// CHECK-LABEL: chunk.kernel @no_decay
chunk.kernel @no_decay chunk 16 (input %q: tensor<16x8xf32>, state %S: tensor<8x4xf32>, valid %n: index)
    -> (p: tensor<16x16xf32>, a: tensor<16x8xf32>, b: tensor<16x8xf32>) {
  // CHECK-NEXT: %[[QK:.*]] = chunk.dot %q, %q transpose_right
  // CHECK-NEXT: %[[P:.*]] = chunk.causal %[[QK]] strict
  // CHECK-NEXT: chunk.yield %[[P]], %q, %q next %S
  %zero = arith.constant dense<0.0> : tensor<16x8xf32>
  %one = arith.constant dense<1.0> : tensor<16xf32>
  %p = chunk.decay_dot %q, %q log %zero before : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %a = chunk.decay_from_start %q factor %one : tensor<16x8xf32>, tensor<16xf32>
  %b = chunk.decay_to_end %q log %zero : tensor<16x8xf32>, tensor<16x8xf32>
  %s = chunk.decay_state %S factor %one along columns : tensor<8x4xf32>, tensor<16xf32>
  chunk.yield %p, %a, %b next %s : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<8x4xf32>
}

// -----

// A state of one column is a vector.
// CHECK-LABEL: chunk.kernel @decay_of_weights
chunk.kernel @decay_of_weights chunk 16 (input %p: tensor<16x16xf32>, input %k: tensor<16x8xf32>, input %g: tensor<16xf32>, valid %n: index)
    -> (o0: tensor<16x8xf32>, o1: tensor<16x8xf32>) {
  // CHECK-DAG: %[[D:.*]] = chunk.decay_matrix log %g before : tensor<16xf32> -> tensor<16x16xf32>
  // CHECK-DAG: %[[PD:.*]] = arith.mulf %p, %[[D]]
  // CHECK-DAG: %[[W:.*]] = chunk.causal %[[PD]] strict
  // CHECK-DAG: %[[A:.*]] = chunk.dot %[[W]], %k add %k
  // CHECK-DAG: %[[C:.*]] = chunk.causal %p :
  // CHECK-DAG: %[[B:.*]] = chunk.dot %[[C]], %k transpose_left :
  // CHECK: chunk.yield %[[A]], %[[B]]
  %wide = chunk.broadcast %g along rows : tensor<16xf32> to tensor<16x8xf32>
  %a = chunk.decay_mix %p, %k log %wide before add %k : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %one = arith.constant dense<1.0> : tensor<16x8xf32>
  %b = chunk.decay_mix %p, %k factor %one transpose : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  chunk.yield %a, %b : tensor<16x8xf32>, tensor<16x8xf32>
}

// CHECK-LABEL: chunk.kernel @decay_of_column
chunk.kernel @decay_of_column chunk 16 (input %g: tensor<16x8xf32>, state %z: tensor<8xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>) {
  // CHECK-NEXT: %[[Z:.*]] = chunk.decay_state %z log %g along rows : tensor<8xf32>, tensor<16x8xf32>
  // CHECK-NEXT: chunk.yield %g next %[[Z]]
  %column = chunk.broadcast %z along rows : tensor<8xf32> to tensor<8x1xf32>
  %decayed = chunk.decay_state %column log %g along rows : tensor<8x1xf32>, tensor<16x8xf32>
  %next = chunk.columns %decayed from 0 : tensor<8x1xf32> -> tensor<8xf32>
  chunk.yield %g next %next : tensor<16x8xf32>, tensor<8xf32>
}

// -----

// Widening and narrowing back is exact, narrowing and widening is not.
// CHECK-LABEL: chunk.kernel @types
chunk.kernel @types chunk 16 (input %x: tensor<16x8xbf16>, input %y: tensor<16x8xf32>, valid %n: index)
    -> (a: tensor<16x8xbf16>, b: tensor<16x8xf32>) {
  // CHECK-NEXT: %[[NARROW:.*]] = arith.truncf %y
  // CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[NARROW]]
  // CHECK-NEXT: chunk.yield %x, %[[WIDE]]
  %x32 = arith.extf %x : tensor<16x8xbf16> to tensor<16x8xf32>
  %a = arith.truncf %x32 : tensor<16x8xf32> to tensor<16x8xbf16>
  %y16 = arith.truncf %y : tensor<16x8xf32> to tensor<16x8xbf16>
  %b = arith.extf %y16 : tensor<16x8xbf16> to tensor<16x8xf32>
  chunk.yield %a, %b : tensor<16x8xbf16>, tensor<16x8xf32>
}

// -----

// A system does not look at what a selection leaves out.

// CHECK-LABEL: chunk.kernel @solve
chunk.kernel @solve chunk 16 (input %l: tensor<16x16xf32>, input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // CHECK-NEXT: %[[O:.*]] = chunk.solve %l, %x
  // CHECK-NEXT: chunk.yield %[[O]]
  %c = chunk.causal %l strict : tensor<16x16xf32>
  %o = chunk.solve %c, %x : tensor<16x16xf32>, tensor<16x8xf32>
  chunk.yield %o : tensor<16x8xf32>
}

// CHECK-LABEL: chunk.kernel @inverse
chunk.kernel @inverse chunk 16 (input %l: tensor<16x16xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  // CHECK-NEXT: %[[O:.*]] = chunk.inverse %l
  // CHECK-NEXT: chunk.yield %[[O]]
  %c = chunk.causal %l strict : tensor<16x16xf32>
  %o = chunk.inverse %c : tensor<16x16xf32>
  chunk.yield %o : tensor<16x16xf32>
}

// CHECK-LABEL: chunk.kernel @inverse_of_product
chunk.kernel @inverse_of_product chunk 16 (input %l: tensor<16x16xf32>, input %b: tensor<16x16xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  // CHECK-NEXT: %[[P:.*]] = arith.mulf %b, %l
  // CHECK-NEXT: %[[O:.*]] = chunk.inverse %[[P]]
  // CHECK-NEXT: chunk.yield %[[O]]
  %c = chunk.causal %l strict : tensor<16x16xf32>
  %p = arith.mulf %b, %c : tensor<16x16xf32>
  %o = chunk.inverse %p : tensor<16x16xf32>
  chunk.yield %o : tensor<16x16xf32>
}

// What else takes the product has its zeros.
// CHECK-LABEL: chunk.kernel @product_with_zeros
chunk.kernel @product_with_zeros chunk 16 (input %l: tensor<16x16xf32>, input %b: tensor<16x16xf32>, valid %n: index) -> (o: tensor<16x16xf32>, p: tensor<16x16xf32>) {
  // CHECK-NEXT: %[[C:.*]] = chunk.causal %l strict
  // CHECK-NEXT: arith.mulf %b, %[[C]]
  %c = chunk.causal %l strict : tensor<16x16xf32>
  %p = arith.mulf %b, %c : tensor<16x16xf32>
  %o = chunk.inverse %p : tensor<16x16xf32>
  chunk.yield %o, %p : tensor<16x16xf32>, tensor<16x16xf32>
}

// -----

// Sums over the same rows, added up, are one.

// CHECK-LABEL: chunk.kernel @sums_over_rows
chunk.kernel @sums_over_rows chunk 16 (input %p: tensor<16x16xf32>, input %r: tensor<16x16xf32>, input %x: tensor<16x8xf32>,
    input %y: tensor<16x8xf32>, input %g: tensor<16x8xf32>, valid %n: index) -> (o0: tensor<16x8xf32>, o1: tensor<16x8xf32>) {
  // CHECK-DAG: %[[P:.*]] = chunk.causal %p
  // CHECK-DAG: %[[R:.*]] = chunk.causal %r strict
  // CHECK-DAG: %[[W:.*]] = arith.addf %[[P]], %[[R]]
  // CHECK-DAG: %[[A:.*]] = chunk.dot %[[W]], %x transpose_left add %y
  // CHECK-DAG: %[[WM:.*]] = arith.addf %p, %r
  // CHECK-DAG: %[[YX:.*]] = arith.addf %y, %x
  // CHECK-DAG: %[[B:.*]] = chunk.decay_mix %[[WM]], %x log %g add %[[YX]]
  // CHECK: chunk.yield %[[A]], %[[B]]
  %pc = chunk.causal %p : tensor<16x16xf32>
  %rc = chunk.causal %r strict : tensor<16x16xf32>
  %a0 = chunk.dot %pc, %x transpose_left : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %a1 = chunk.dot %rc, %x transpose_left add %y : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %a = arith.addf %a0, %a1 : tensor<16x8xf32>
  %b0 = chunk.decay_mix %p, %x log %g add %y : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %b1 = chunk.decay_mix %r, %x log %g add %x : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %b = arith.addf %b0, %b1 : tensor<16x8xf32>
  chunk.yield %a, %b : tensor<16x8xf32>, tensor<16x8xf32>
}

// Not those over other rows or from the other side, those that are wanted for themselves, and products of other
// rows than weights of pairs: inputs have fewer digits than their sums.

// CHECK-LABEL: chunk.kernel @other_sums
chunk.kernel @other_sums chunk 16 (input %p: tensor<16x16xf32>, input %r: tensor<16x16xf32>, input %x: tensor<16x8xf32>,
    input %y: tensor<16x8xf32>, parameter %w: tensor<8x8xf32>, valid %n: index)
    -> (o0: tensor<16x8xf32>, o1: tensor<16x8xf32>, o2: tensor<16x8xf32>, o3: tensor<16x8xf32>, o4: tensor<16x8xf32>) {
  // CHECK-COUNT-8: chunk.dot
  // CHECK: chunk.yield
  %pc = chunk.causal %p : tensor<16x16xf32>
  %rc = chunk.causal %r strict : tensor<16x16xf32>
  %a0 = chunk.dot %pc, %x : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %a1 = chunk.dot %rc, %y : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %a = arith.addf %a0, %a1 : tensor<16x8xf32>
  %b0 = chunk.dot %pc, %y : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %b1 = chunk.dot %rc, %y transpose_left : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %b = arith.addf %b0, %b1 : tensor<16x8xf32>
  %c0 = chunk.dot %pc, %x transpose_left : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %c1 = chunk.dot %rc, %x transpose_left : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %c = arith.addf %c0, %c1 : tensor<16x8xf32>
  %d0 = chunk.dot %x, %w : tensor<16x8xf32>, tensor<8x8xf32> -> tensor<16x8xf32>
  %d1 = chunk.dot %y, %w : tensor<16x8xf32>, tensor<8x8xf32> -> tensor<16x8xf32>
  %d = arith.addf %d0, %d1 : tensor<16x8xf32>
  chunk.yield %a, %b, %c, %c1, %d
      : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>
}

// -----

// Scores of one channel are products of two numbers.
// CHECK-LABEL: chunk.kernel @scores_of_one_channel
chunk.kernel @scores_of_one_channel chunk 16 (input %q: tensor<16xf32>, input %g: tensor<16xf32>, valid %n: index)
    -> (p: tensor<16x16xf32>) {
  // CHECK-DAG: %[[ROWS:.*]] = chunk.broadcast %q along rows : tensor<16xf32> to tensor<16x16xf32>
  // CHECK-DAG: %[[COLUMNS:.*]] = chunk.broadcast %q along columns : tensor<16xf32> to tensor<16x16xf32>
  // CHECK-DAG: %[[PRODUCT:.*]] = arith.mulf %[[ROWS]], %[[COLUMNS]]
  // CHECK-DAG: %[[DECAY:.*]] = chunk.decay_matrix log %g before
  // CHECK: %[[P:.*]] = arith.mulf %[[PRODUCT]], %[[DECAY]]
  // CHECK: chunk.causal %[[P]] strict
  // CHECK-NOT: chunk.dot
  %column = chunk.broadcast %q along rows : tensor<16xf32> to tensor<16x1xf32>
  %p = chunk.decay_dot %column, %column log %g before : tensor<16x1xf32>, tensor<16x1xf32>, tensor<16xf32> -> tensor<16x16xf32>
  chunk.yield %p : tensor<16x16xf32>
}

// -----

// One column of what is made of an input, number by number, is made of the input's column; of other tiles, and where
// two tiles meet, it is taken of what is made.
// CHECK-LABEL: chunk.kernel @column_of_input
chunk.kernel @column_of_input chunk 16 (input %x: tensor<16x8xbf16>, input %y: tensor<16x8xf32>, state %S: tensor<16x8xf32>, valid %n: index)
    -> (a: tensor<16xf32>, b: tensor<16xf32>, c: tensor<16xf32>) {
  // CHECK-DAG: %[[HALF:.*]] = arith.constant dense<5.000000e-01> : tensor<16xf32>
  // CHECK-DAG: %[[X:.*]] = chunk.columns %x from 3 : tensor<16x8xbf16> -> tensor<16xbf16>
  // CHECK-DAG: %[[WIDE:.*]] = arith.extf %[[X]] : tensor<16xbf16> to tensor<16xf32>
  // CHECK-DAG: %[[A:.*]] = arith.mulf %[[WIDE]], %[[HALF]] : tensor<16xf32>
  // CHECK-DAG: %[[SUM:.*]] = arith.addf %y, %{{.*}} : tensor<16x8xf32>
  // CHECK-DAG: %[[B:.*]] = chunk.columns %[[SUM]] from 3
  // CHECK-DAG: %[[OFSTATE:.*]] = arith.mulf %S, %{{.*}} : tensor<16x8xf32>
  // CHECK-DAG: %[[C:.*]] = chunk.columns %[[OFSTATE]] from 3
  // CHECK: chunk.yield %[[A]], %[[B]], %[[C]]
  %half = arith.constant dense<0.5> : tensor<16x8xf32>
  %wide = arith.extf %x : tensor<16x8xbf16> to tensor<16x8xf32>
  %scaled = arith.mulf %wide, %half : tensor<16x8xf32>
  %a = chunk.columns %scaled from 3 : tensor<16x8xf32> -> tensor<16xf32>
  %both = arith.addf %y, %scaled : tensor<16x8xf32>
  %b = chunk.columns %both from 3 : tensor<16x8xf32> -> tensor<16xf32>
  %ofState = arith.mulf %S, %half : tensor<16x8xf32>
  %c = chunk.columns %ofState from 3 : tensor<16x8xf32> -> tensor<16xf32>
  chunk.yield %a, %b, %c next %S : tensor<16xf32>, tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>
}
