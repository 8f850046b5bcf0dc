// RUN: stretto-opt --stretto-lower-to-vector --canonicalize --cse --split-input-file %s | FileCheck %s
// RUN: stretto-opt --stretto-lower-to-vector=vector-bits=256 --canonicalize --cse --split-input-file %s | FileCheck --check-prefix=SHORT %s

// A work item walks its chunks; the state's update adds to the state in registers, in place, and the output is summed
// over both products before it is stored.

// CHECK-LABEL: func.func @linear
// CHECK-SAME:    (%{{.*}}: memref<{{[0-9]+}}xi64>, %[[BEGIN:.*]]: index, %[[END:.*]]: index, %[[SCRATCH:.*]]: memref<{{[0-9]+}}xi8>)
// CHECK-SAME:    stretto.scratch_bytes
// CHECK:         %[[S:.*]] = memref.view %[[SCRATCH]]{{.*}} to memref<32x32xf32>
// CHECK:         scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
// The state: given or zero.
// CHECK:           scf.if
// CHECK:             vector.store %{{.*}}, %[[S]]
// CHECK:           } else {
// CHECK:             vector.store %{{.*}}, %[[S]]
// The chunks.
// CHECK:           scf.for %{{.*}} to %{{.*}} step %c16
// The keys are stored transposed: the scores' columns are tokens.
// CHECK-COUNT-64:    vector.shuffle
// Scores of 16 by 16: each row is one vector, selected before it is stored.
// CHECK:             scf.for {{.*}} -> (vector<16xf32>
// CHECK:               vector.fma
// CHECK:             arith.select
// Eight rows by two vectors of the output: the part of the state, then that of the pairs up to the last row's token.
// CHECK:             scf.for %[[ROW:.*]] = %c0 to %c16 step %c8
// CHECK:               %[[OUTER:.*]]:16 = scf.for %{{.*}} = %c0 to %c32
// CHECK:                 vector.load %[[S]]
// CHECK:               %[[LAST:.*]] = arith.minsi
// CHECK:               %[[SUMS:.*]]:16 = scf.for %{{.*}} = %c0 to %[[LAST]] step %c1 iter_args(%{{.*}} = %[[OUTER]]#0
// CHECK:               vector.store %[[SUMS]]#0
// The state in place, rounded once.
// CHECK:               %[[WRITTEN:.*]]:22 = scf.for %{{.*}} iter_args(%{{.*}} = %[[ZERO:[a-z0-9_]*]], %{{.*}} = %[[ZERO]],
// CHECK:               %[[OLD:.*]] = vector.load %[[S]]
// CHECK:               %[[NEW:.*]] = arith.addf %[[OLD]], %[[WRITTEN]]#0
// CHECK:               vector.store %[[NEW]], %[[S]]

// SHORT-LABEL: func.func @linear
// SHORT:         vector<8xf32>
// SHORT-NOT:     vector<16xf32>
chunk.kernel @linear chunk 16 (input %q: tensor<16x32xf32>, input %k: tensor<16x32xf32>, input %v: tensor<16x32xf32>,
    state %S: tensor<32x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %qk = chunk.dot %q, %k transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %p = chunk.causal %qk : tensor<16x16xf32>
  %inner = chunk.dot %p, %v : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %o = chunk.dot %q, %S add %inner : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  chunk.yield %o next %next : tensor<16x32xf32>, tensor<32x32xf32>
}

// -----

// What depends on parameters only is computed once for each head, before the chunks; a costly value with two users once
// for each chunk; channels beyond the last are masked in memory.

// CHECK-LABEL: func.func @invariant
// CHECK:         %[[W:.*]] = memref.view {{.*}} to memref<24x32xf32>
// CHECK:         scf.for
// CHECK:           %[[ROW:.*]] = vector.maskedload
// CHECK:           math.exp
// CHECK:           vector.store %{{.*}}, %[[W]]
// CHECK:           scf.for
// CHECK-COUNT-2:     math.exp
// CHECK-NOT:         math.exp
// CHECK:             vector.maskedstore
chunk.kernel @invariant chunk 16 (input %x: tensor<16x24xf32>, parameter %w: tensor<24x24xf32>, valid %n: index)
    -> (y: tensor<16x24xf32>, z: tensor<16x24xf32>) {
  %e = math.exp %w : tensor<24x24xf32>
  %ex = math.exp %x : tensor<16x24xf32>
  %y = chunk.dot %ex, %e : tensor<16x24xf32>, tensor<24x24xf32> -> tensor<16x24xf32>
  %z = arith.negf %ex : tensor<16x24xf32>
  chunk.yield %y, %z : tensor<16x24xf32>, tensor<16x24xf32>
}

// -----

// Decay within a chunk is products of factors, one exponential for each entry, without a quotient; the factor of the
// state is an exponential of a sum, or near 1 the difference from 1.

// CHECK-LABEL: func.func @decay
// The chunk's 32 channels are two vectors.
// CHECK:         scf.for
// CHECK-COUNT-2:   math.exp %
// CHECK-NOT:       math.exp
// CHECK:         }
// CHECK:         %[[SUM:.*]] = scf.for
// CHECK:           arith.addf
// CHECK:         %[[FACTOR:.*]] = math.exp %[[SUM]]
// CHECK:         %[[DIFFERENCE:.*]] = math.expm1 %[[SUM]]
// CHECK:         %[[DISTANCE:.*]] = math.absf %[[DIFFERENCE]]
// CHECK:         %[[NEAR:.*]] = arith.cmpf olt, %[[DISTANCE]]
// CHECK:         arith.select %[[NEAR]], %{{.*}}, %[[FACTOR]]
// CHECK:         arith.select %[[NEAR]], %[[DIFFERENCE]]
// CHECK-NOT:     arith.divf
// CHECK-NOT:     arith.subf
chunk.kernel @decay chunk 16 (input %q: tensor<16x32xf32>, input %k: tensor<16x32xf32>, input %v: tensor<16x16xf32>,
    input %g: tensor<16x32xf32>, state %S: tensor<32x16xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  %p = chunk.decay_dot %q, %k log %g : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %qd = chunk.decay_from_start %q log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %s = chunk.dot %qd, %S : tensor<16x32xf32>, tensor<32x16xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v add %s : tensor<16x16xf32>, tensor<16x16xf32> -> tensor<16x16xf32>
  %ke = chunk.decay_to_end %k log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %Sd = chunk.decay_state %S log %g along rows : tensor<32x16xf32>, tensor<16x32xf32>
  %next = chunk.dot %ke, %v transpose_left add %Sd : tensor<16x32xf32>, tensor<16x16xf32> -> tensor<32x16xf32>
  chunk.yield %o next %next : tensor<16x16xf32>, tensor<32x16xf32>
}

// -----

// A kernel over single tokens walks over its state once, where it lies: what it becomes is computed, read and stored in
// registers, a row at a time.

// CHECK-LABEL: func.func @step
// CHECK:         scf.for %{{.*}} step %c1
// CHECK:           %[[SUMS:.*]]:2 = scf.for %[[ROW:.*]] = %c0 to %c64 step %c1 iter_args
// CHECK-COUNT-2:     vector.load %[[STATE:[0-9a-z]*]][
// CHECK-NOT:         scf.for
// CHECK-COUNT-2:     vector.store %{{.*}}, %{{.*}} : memref<?xf32>, vector<16xf32>
// CHECK:             scf.yield
// CHECK-NOT:       vector<16xf32>, vector<16xf32>, vector<16xf32>
chunk.kernel @step chunk 1 (input %q: tensor<1x64xf32>, input %k: tensor<1x64xf32>, input %v: tensor<1x32xf32>,
    state %S: tensor<64x32xf32>, valid %n: index) -> (o: tensor<1x32xf32>) {
  %k1 = chunk.row %k at 0 : tensor<1x64xf32> -> tensor<64xf32>
  %v1 = chunk.row %v at 0 : tensor<1x32xf32> -> tensor<32xf32>
  %q1 = chunk.row %q at 0 : tensor<1x64xf32> -> tensor<64xf32>
  %ks = chunk.broadcast %k1 along rows : tensor<64xf32> to tensor<64x32xf32>
  %vs = chunk.broadcast %v1 along columns : tensor<32xf32> to tensor<64x32xf32>
  %qs = chunk.broadcast %q1 along rows : tensor<64xf32> to tensor<64x32xf32>
  %kv = arith.mulf %ks, %vs : tensor<64x32xf32>
  %next = arith.addf %S, %kv : tensor<64x32xf32>
  %qS = arith.mulf %qs, %next : tensor<64x32xf32>
  %o1 = chunk.reduce sum %qS over rows : tensor<64x32xf32> -> tensor<32xf32>
  %o = chunk.broadcast %o1 along columns : tensor<32xf32> to tensor<1x32xf32>
  chunk.yield %o next %next : tensor<1x32xf32>, tensor<64x32xf32>
}
