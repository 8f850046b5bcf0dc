// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay,cse))' | FileCheck %s

// CHECK-LABEL: chunk.kernel @shared_decay
chunk.kernel @shared_decay chunk 16 (input %q: tensor<16x32xf32>, input %g: tensor<16xf32>, state %S: tensor<32x8xf32>,
                                     valid %n: index) -> (o: tensor<16x32xf32>, p: tensor<16x16xf32>) {
  // CHECK: %[[B:.*]] = chunk.accumulate sum %g : tensor<16xf32>
  // CHECK: %[[A:.*]] = math.exp %[[B]]
  // CHECK: %[[R:.*]] = chunk.broadcast %[[A]] along rows : tensor<16xf32> to tensor<16x32xf32>
  // CHECK: %[[X:.*]] = arith.mulf %q, %[[R]]
  %x = chunk.decay_from_start %q log %g : tensor<16x32xf32>, tensor<16xf32>
  // CHECK: chunk.accumulate sum %g reverse exclusive
  %y = chunk.decay_to_end %x log %g : tensor<16x32xf32>, tensor<16xf32>
  // CHECK: %[[QK:.*]] = chunk.dot %q, %q transpose_right
  // CHECK: %[[D:.*]] = chunk.decay_matrix log %g : tensor<16xf32> -> tensor<16x16xf32>
  // CHECK: %[[P:.*]] = arith.mulf %[[QK]], %[[D]]
  // CHECK: chunk.causal %[[P]] : tensor<16x16xf32>
  %p = chunk.decay_dot %q, %q log %g : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16xf32> -> tensor<16x16xf32>
  // CHECK: %[[TOTAL:.*]] = chunk.row %[[B]] at 15 : tensor<16xf32> -> tensor<f32>
  // CHECK: %[[E:.*]] = math.exp %[[TOTAL]]
  // CHECK: %[[ES:.*]] = chunk.broadcast %[[E]] along rows : tensor<f32> to tensor<32x8xf32>
  // CHECK: arith.mulf %S, %[[ES]]
  %s = chunk.decay_state %S log %g along rows : tensor<32x8xf32>, tensor<16xf32>
  chunk.yield %y, %p next %s : tensor<16x32xf32>, tensor<16x16xf32>, tensor<32x8xf32>
}

// CHECK-LABEL: chunk.kernel @decay_of_channels
chunk.kernel @decay_of_channels chunk 16 (input %q: tensor<16x32xf16>, input %g: tensor<16x32xf32>, valid %n: index)
    -> (p: tensor<16x16xf32>) {
  %q32 = arith.extf %q : tensor<16x32xf16> to tensor<16x32xf32>
  // CHECK: %[[B:.*]] = chunk.accumulate sum %g : tensor<16x32xf32>
  // CHECK: %[[BQ:.*]] = chunk.accumulate sum %g exclusive : tensor<16x32xf32>
  // CHECK: %[[ROW:.*]] = chunk.row %[[B]] at 7
  // CHECK: %[[M:.*]] = chunk.broadcast %[[ROW]] along columns
  // CHECK: %[[U:.*]] = arith.subf %[[BQ]], %[[M]]
  // CHECK: %[[UP:.*]] = math.exp %[[U]]
  // CHECK: %[[L:.*]] = arith.subf %[[M]], %[[B]]
  // CHECK: %[[DOWN:.*]] = math.exp %[[L]]
  // CHECK: %[[Q:.*]] = arith.mulf %{{.*}}, %[[UP]]
  // CHECK: %[[K:.*]] = arith.mulf %{{.*}}, %[[DOWN]]
  // fp16: factors up to e^8, operands up to 65504.
  // CHECK: %[[GOOD:.*]] = chunk.within %[[UP]], %[[DOWN]], %[[Q]], %[[K]] limits [2.980958e+03, 2.980958e+03, 6.550400e+04, 6.550400e+04]
  // CHECK: %[[P:.*]] = scf.if %[[GOOD]]
  // CHECK: %[[Q16:.*]] = arith.truncf %[[Q]]
  // CHECK: %[[QW:.*]] = arith.extf %[[Q16]]
  // CHECK: %[[K16:.*]] = arith.truncf %[[K]]
  // CHECK: %[[KW:.*]] = arith.extf %[[K16]]
  // Of the 11 bits of fp16 no rests are multiplied.
  // CHECK-NEXT: %[[S:.*]] = chunk.dot %[[QW]], %[[KW]] transpose_right :
  // CHECK: chunk.causal %[[S]] strict
  // CHECK: } else {
  // CHECK: chunk.decay_dot %{{.*}}, %{{.*}} log %g before {exact}
  // CHECK: chunk.yield %[[P]]
  %p = chunk.decay_dot %q32, %q32 log %g before : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  chunk.yield %p : tensor<16x16xf32>
}

// CHECK-LABEL: chunk.kernel @factors
chunk.kernel @factors chunk 16 (input %q: tensor<16x32xf32>, input %f: tensor<16x32xf32>, valid %n: index)
    -> (p: tensor<16x16xf32>) {
  // CHECK: %[[B:.*]] = chunk.accumulate product %f
  // CHECK: %[[M:.*]] = chunk.broadcast
  // CHECK: arith.divf %[[B]], %[[M]]
  // CHECK: arith.divf %[[M]], %[[B]]
  // CHECK-NOT: math.exp
  %p = chunk.decay_dot %q, %q factor %f : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  chunk.yield %p : tensor<16x16xf32>
}

// CHECK-LABEL: chunk.kernel @mixed_by_channels
chunk.kernel @mixed_by_channels chunk 16 reverse (input %k: tensor<16x32xbf16>, input %g: tensor<16x32xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %k32 = arith.extf %k : tensor<16x32xbf16> to tensor<16x32xf32>
  // CHECK: %[[W:.*]] = chunk.dot
  %w = chunk.dot %k32, %k32 transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  // CHECK: %[[UP:.*]] = math.exp
  // CHECK: %[[DOWN:.*]] = math.exp
  // Rows are scaled before the product, and sums after it.
  // CHECK: %[[ROWS:.*]] = arith.mulf %{{.*}}, %[[DOWN]]
  // CHECK: %[[P:.*]] = chunk.causal %[[W]] : tensor<16x16xf32>
  // CHECK: %[[GOOD:.*]] = chunk.within %[[UP]], %[[DOWN]], %[[P]], %[[ROWS]] limits
  // CHECK: %[[Y:.*]] = scf.if %[[GOOD]]
  // Both parts of the weights and of the rows are multiplied.
  // CHECK: %[[P16:.*]] = arith.truncf %[[P]]
  // CHECK: %[[PW:.*]] = arith.extf %[[P16]]
  // CHECK: %[[PLEFT:.*]] = arith.subf %[[P]], %[[PW]]
  // CHECK: %[[PREST16:.*]] = arith.truncf %[[PLEFT]]
  // CHECK: %[[PREST:.*]] = arith.extf %[[PREST16]]
  // CHECK: %[[ROWS16:.*]] = arith.truncf %[[ROWS]]
  // CHECK: %[[ROWSW:.*]] = arith.extf %[[ROWS16]]
  // CHECK: %[[ROWSLEFT:.*]] = arith.subf %[[ROWS]], %[[ROWSW]]
  // CHECK: %[[ROWSREST16:.*]] = arith.truncf %[[ROWSLEFT]]
  // CHECK: %[[ROWSREST:.*]] = arith.extf %[[ROWSREST16]]
  // CHECK-NEXT: %[[A:.*]] = chunk.dot %[[PREST]], %[[ROWSW]] :
  // CHECK-NEXT: %[[B:.*]] = chunk.dot %[[PW]], %[[ROWSREST]] add %[[A]] :
  // CHECK-NEXT: %[[SUM:.*]] = chunk.dot %[[PW]], %[[ROWSW]] add %[[B]] :
  // CHECK: arith.mulf %[[SUM]], %[[UP]]
  // CHECK: } else {
  // CHECK: chunk.decay_mix %[[W]], %{{.*}} log %g {exact} :
  // CHECK: arith.addf %[[Y]], %[[K:.*]] : tensor<16x32xf32>
  %o = chunk.decay_mix %w, %k32 log %g add %k32 : tensor<16x16xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// CHECK-LABEL: chunk.kernel @mixed_by_tokens
chunk.kernel @mixed_by_tokens chunk 16 (input %w: tensor<16x16xf32>, input %k: tensor<16x32xf32>, input %g: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  // CHECK: %[[D:.*]] = chunk.decay_matrix log %g before
  // CHECK: %[[WD:.*]] = arith.mulf %w, %[[D]]
  // CHECK: %[[P:.*]] = chunk.causal %[[WD]] strict
  // CHECK: chunk.dot %[[P]], %k transpose_left :
  %o = chunk.decay_mix %w, %k log %g before transpose : tensor<16x16xf32>, tensor<16x32xf32>, tensor<16xf32> -> tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// Both totals are made of the same parts of rows and weights, so that what is in both cancels but for the products of rests:
// by products where no factor is out of range.
// CHECK-LABEL: chunk.kernel @totals
chunk.kernel @totals chunk 16 reverse (input %x: tensor<16x32xbf16>, input %k: tensor<16x32xf32>, input %g: tensor<16x32xf32>,
                               input %w: tensor<16x16xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>, p: tensor<16x32xf32>) {
  // CHECK: %[[QUERIES:.*]] = arith.mulf %{{.*}}, %[[UP:.*]] :
  // CHECK: %[[QT:.*]] = arith.truncf %[[QUERIES]] : tensor<16x32xf32> to tensor<16x32xbf16>
  // CHECK: %[[Q:.*]] = arith.extf %[[QT]]
  // CHECK: %[[QLEFT:.*]] = arith.subf %[[QUERIES]], %[[Q]]
  // CHECK: %[[QREST16:.*]] = arith.truncf %[[QLEFT]]
  // CHECK: %[[QREST:.*]] = arith.extf %[[QREST16]]
  // CHECK: %[[KEYS:.*]] = arith.mulf %k, %[[DOWN:.*]] :
  // CHECK: %[[KT:.*]] = arith.truncf %[[KEYS]] : tensor<16x32xf32> to tensor<16x32xbf16>
  // CHECK: %[[K:.*]] = arith.extf %[[KT]]
  // CHECK: %[[KLEFT:.*]] = arith.subf %[[KEYS]], %[[K]]
  // CHECK: %[[KREST16:.*]] = arith.truncf %[[KLEFT]]
  // CHECK: %[[KREST:.*]] = arith.extf %[[KREST16]]
  // CHECK: %[[M:.*]] = chunk.causal %w strict
  // CHECK: chunk.within
  // CHECK: scf.if
  // CHECK: %[[M16:.*]] = arith.truncf %[[M]]
  // CHECK: %[[W:.*]] = arith.extf %[[M16]]
  // CHECK: %[[WLEFT:.*]] = arith.subf %[[M]], %[[W]]
  // CHECK: %[[WREST16:.*]] = arith.truncf %[[WLEFT]]
  // CHECK: %[[WREST:.*]] = arith.extf %[[WREST16]]
  // CHECK: %[[A:.*]] = chunk.dot %[[WREST]], %[[K]] :
  // CHECK: %[[B:.*]] = chunk.dot %[[W]], %[[KREST]] add %[[A]]
  // CHECK: %[[QS:.*]] = chunk.dot %[[W]], %[[K]] add %[[B]]
  // CHECK: %[[A:.*]] = chunk.dot %[[WREST]], %[[Q]] transpose_left :
  // CHECK: %[[B:.*]] = chunk.dot %[[W]], %[[QREST]] transpose_left add %[[A]]
  // CHECK: %[[KS:.*]] = chunk.dot %[[W]], %[[Q]] transpose_left add %[[B]]
  // CHECK: %[[DQ:.*]] = arith.mulf %[[QS]], %[[UP]]
  // CHECK: %[[X:.*]] = arith.mulf %{{.*}}, %[[DQ]]
  // CHECK: %[[DK:.*]] = arith.mulf %[[KS]], %[[DOWN]]
  // CHECK: %[[Y:.*]] = arith.mulf %k, %[[DK]]
  // CHECK: scf.yield %[[X]], %[[Y]]
  // CHECK: } else {
  // CHECK: chunk.decay_mix %{{.*}} log %g before {exact}
  // CHECK: chunk.decay_mix %{{.*}} log %g before transpose {exact}
  %q = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %o, %p = chunk.decay_totals %q, %k, %w log %g before : tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x32xf32>
  chunk.yield %o, %p : tensor<16x32xf32>, tensor<16x32xf32>
}

// With inputs of 16 bits all factors of tokens are made of one sum, to the base 2.
// CHECK-LABEL: chunk.kernel @one_sum
// CHECK: %[[SUM:.*]] = chunk.accumulate sum %{{.*}} : tensor<16xf32>
// CHECK-NOT: chunk.accumulate
// CHECK: %[[B:.*]] = arith.mulf %[[SUM]]
// CHECK: math.exp2 %[[B]]
// CHECK: %[[LAST:.*]] = chunk.row %[[B]] at 15
// CHECK-NOT: chunk.decay_matrix
chunk.kernel @one_sum chunk 16 (input %q: tensor<16x32xbf16>, input %g: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>, p: tensor<16x16xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %x = chunk.decay_from_start %q32 log %g : tensor<16x32xf32>, tensor<16xf32>
  %y = chunk.decay_to_end %x log %g : tensor<16x32xf32>, tensor<16xf32>
  %p = chunk.decay_dot %q32, %q32 log %g before : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16xf32> -> tensor<16x16xf32>
  chunk.yield %y, %p : tensor<16x32xf32>, tensor<16x16xf32>
}

// Where channels have factors of their own, rows that are rescaled once are read with, written and multiplied, and the state
// decays once. Out of range queries begin at the start, and the state decays behind its read. What rounding takes of the
// keys is multiplied, too, and what it takes of the scores.
// CHECK-LABEL: chunk.kernel @one_anchor
// CHECK: %[[SUM:.*]] = chunk.accumulate sum
// CHECK-NOT: chunk.accumulate
// CHECK: %[[ROW:.*]] = chunk.row %[[SUM]] at 15
// CHECK: %[[LAST:.*]] = arith.mulf %[[ROW]]
// CHECK: %[[GOOD:.*]] = chunk.within %[[LAST]],
// CHECK: %[[ANCHOR:.*]] = arith.select %[[GOOD]], %[[LAST]], %{{.*}} : tensor<32xf32>
// CHECK: %[[UP:.*]] = arith.negf %[[ANCHOR]]
// CHECK: %[[UPS:.*]] = chunk.broadcast %[[UP]] along columns
// CHECK: math.fma %[[SUM]], %{{.*}}, %[[UPS]]
// CHECK: %[[DOWNS:.*]] = chunk.broadcast %[[LAST]] along columns
// CHECK: math.fma %[[SUM]], %{{.*}}, %[[DOWNS]]
// CHECK: %[[Q:.*]] = arith.extf {{.*}} : tensor<16x32xbf16> to tensor<16x32xf32>
// CHECK: %[[KEYS:.*]] = arith.mulf
// CHECK: %[[K16:.*]] = arith.truncf %[[KEYS]]
// CHECK: %[[K:.*]] = arith.extf %[[K16]] : tensor<16x32xbf16> to tensor<16x32xf32>
// CHECK: %[[REST:.*]] = arith.subf %[[KEYS]], %[[K]]
// CHECK: %[[SCORES:.*]] = scf.if %[[GOOD]]
// CHECK-NEXT: %[[OFREST:.*]] = chunk.dot %[[Q]], %[[REST]] transpose_right :
// CHECK-NEXT: chunk.dot %[[Q]], %[[K]] transpose_right add %[[OFREST]]
// CHECK: chunk.decay_dot {{.*}} {exact}
// CHECK: %[[READ:.*]] = arith.mulf %S
// CHECK: %[[WRITTEN:.*]] = scf.if %[[GOOD]]
// CHECK-NEXT: scf.yield %[[READ]]
// CHECK: arith.mulf %[[READ]]
// CHECK-DAG: %[[SEEN:.*]] = chunk.dot %[[Q]], %[[READ]] : tensor<16x32xf32>, tensor<32x8xf32>
// CHECK-DAG: %[[P16:.*]] = arith.truncf %[[SCORES]]
// CHECK-DAG: %[[P:.*]] = arith.extf %[[P16]]
// CHECK-DAG: %[[PREST:.*]] = arith.subf %[[SCORES]], %[[P]]
// CHECK-DAG: %[[SUM:.*]] = chunk.dot %[[PREST]], %[[V:.*]] add %[[SEEN]]
// CHECK-DAG: chunk.dot %[[P]], %[[V]] add %[[SUM]]
// CHECK-DAG: %[[NEXT:.*]] = chunk.dot %[[K]], %{{.*}} transpose_left add %[[WRITTEN]]
// CHECK: chunk.yield %{{.*}} next %[[NEXT]]
chunk.kernel @one_anchor chunk 16 (input %q: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>, input %g: tensor<16x32xf32>,
                                   state %S: tensor<32x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %x = chunk.decay_from_start %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %r = chunk.dot %x, %S : tensor<16x32xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  %p = chunk.decay_dot %q32, %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %s = chunk.decay_state %S log %g along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %y = chunk.decay_to_end %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  chunk.yield %o next %next : tensor<16x8xf32>, tensor<32x8xf32>
}

// Beside another recurrence no rests are multiplied.
// CHECK-LABEL: chunk.kernel @beside_another
// CHECK: scf.if
// CHECK-NEXT: %[[P:.*]] = chunk.dot %{{.*}}, %{{.*}} transpose_right :
// CHECK-NEXT: chunk.causal %[[P]]
chunk.kernel @beside_another chunk 16 (input %q: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>, input %g: tensor<16x32xf32>,
                                       state %S: tensor<32x8xf32>, state %T: tensor<32x8xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %x = chunk.decay_from_start %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %r = chunk.dot %x, %S : tensor<16x32xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  %p = chunk.decay_dot %q32, %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %s = chunk.decay_state %S log %g along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %y = chunk.decay_to_end %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  %other = chunk.dot %q32, %v32 transpose_left add %T : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  chunk.yield %o next %next, %other : tensor<16x8xf32>, tensor<32x8xf32>, tensor<32x8xf32>
}

// Logarithms that operands hold as they are, floored or not, are added up by products, and what tells whether rows may be
// rescaled takes rows as they came. It is a question to the sums of logarithms as they came, too, which are none where one
// is infinite: those of floored ones take their place. The last row of sums has the largest. A constant factor of the
// queries is a part of their exponent.
// CHECK-LABEL: chunk.kernel @sums_by_product
// CHECK: %[[X:.*]] = arith.extf %q
// CHECK: %[[G:.*]] = arith.extf %g
// CHECK: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<16x16xf32>
// CHECK: %[[TRIANGLE:.*]] = chunk.causal %[[ONES]] : tensor<16x16xf32>
// CHECK: %[[GIVEN:.*]] = chunk.dot %[[TRIANGLE]], %[[G]] : tensor<16x16xf32>, tensor<16x32xf32>
// CHECK-NOT: chunk.accumulate
// CHECK: %[[GOOD:.*]] = chunk.within %[[GIVEN]], %q rising limits
// CHECK: %[[SUM:.*]] = scf.if %[[GOOD]]
// CHECK-NEXT: scf.yield %[[GIVEN]]
// CHECK: %[[F:.*]] = arith.maximumf %[[G]]
// CHECK: %[[FLOORED:.*]] = chunk.dot %{{.*}}, %[[F]] : tensor<16x16xf32>, tensor<16x32xf32>
// CHECK-NEXT: scf.yield %[[FLOORED]]
// CHECK: chunk.row %[[SUM]] at 15
// CHECK: %[[HALF:.*]] = arith.constant dense<1.000000e+00> : tensor<32xf32>
// CHECK: %[[ANCHOR:.*]] = arith.subf %{{.*}}, %[[HALF]]
// CHECK: %[[ANCHORS:.*]] = chunk.broadcast %[[ANCHOR]] along columns
// CHECK: %[[EXPONENT:.*]] = math.fma %[[SUM]], %{{.*}}, %[[ANCHORS]]
// CHECK: %[[UP:.*]] = math.exp2 %[[EXPONENT]]
// CHECK: arith.mulf %[[X]], %[[UP]]
chunk.kernel @sums_by_product chunk 16 (input %q: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>,
                                        input %g: tensor<16x32xbf16>, state %S: tensor<32x8xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>) {
  %half = arith.constant dense<0.5> : tensor<16x32xf32>
  %k32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %q32 = arith.mulf %k32, %half : tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %g32 = arith.extf %g : tensor<16x32xbf16> to tensor<16x32xf32>
  %x = chunk.decay_from_start %q32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %r = chunk.dot %x, %S : tensor<16x32xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  %p = chunk.decay_dot %q32, %k32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %y = chunk.decay_to_end %k32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  chunk.yield %o next %next : tensor<16x8xf32>, tensor<32x8xf32>
}

// Out of range such sums are those of floored logarithms where none is floored, which is asked with whether tokens are near,
// once: products by halves take both.
// CHECK-LABEL: chunk.kernel @sums_of_near_tokens
// CHECK: %[[GIVEN:.*]] = chunk.dot
// CHECK: %[[GOOD:.*]] = chunk.within %[[GIVEN]], %q rising limits
// CHECK: %[[KNOWN:.*]]:2 = scf.if %[[GOOD]] -> (i1, tensor<32x16xf32>) {
// CHECK: scf.yield %{{.*}}, %[[GIVEN]]
// CHECK: %[[NEAR:.*]] = chunk.within %g, %q, %k limits [1.500000e+01, 2.968047e+12, 2.968047e+12]
// CHECK: %[[SUM:.*]] = scf.if %[[NEAR]]
// CHECK-NEXT: scf.yield %[[GIVEN]]
// CHECK: %[[FLOORED:.*]] = chunk.dot
// CHECK-NEXT: scf.yield %[[FLOORED]]
// CHECK: scf.yield %[[NEAR]], %[[SUM]]
// CHECK: scf.if %[[GOOD]]
// CHECK: } else {
// CHECK-NOT: chunk.within
// CHECK-NOT: chunk.dot
// CHECK: %[[B:.*]] = arith.mulf %[[KNOWN]]#1
// CHECK-NOT: chunk.within
// CHECK: arith.select %[[KNOWN]]#0, %{{.*}}, %{{.*}} : index
// CHECK: chunk.middle %[[B]] block 32 halved
// CHECK: scf.if %[[KNOWN]]#0
chunk.kernel @sums_of_near_tokens chunk 32 (input %q: tensor<32x16xbf16>, input %k: tensor<32x16xbf16>,
                                            input %v: tensor<32x8xbf16>, input %g: tensor<32x16xbf16>,
                                            state %S: tensor<16x8xf32>, valid %n: index) -> (o: tensor<32x8xf32>) {
  %q32 = arith.extf %q : tensor<32x16xbf16> to tensor<32x16xf32>
  %k32 = arith.extf %k : tensor<32x16xbf16> to tensor<32x16xf32>
  %v32 = arith.extf %v : tensor<32x8xbf16> to tensor<32x8xf32>
  %g32 = arith.extf %g : tensor<32x16xbf16> to tensor<32x16xf32>
  %x = chunk.decay_from_start %q32 log %g32 : tensor<32x16xf32>, tensor<32x16xf32>
  %r = chunk.dot %x, %S : tensor<32x16xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  %p = chunk.decay_dot %q32, %k32 log %g32 : tensor<32x16xf32>, tensor<32x16xf32>, tensor<32x16xf32> -> tensor<32x32xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<32x32xf32>, tensor<32x8xf32> -> tensor<32x8xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<16x8xf32>, tensor<32x16xf32>
  %y = chunk.decay_to_end %k32 log %g32 : tensor<32x16xf32>, tensor<32x16xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<32x16xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  chunk.yield %o next %next : tensor<32x8xf32>, tensor<16x8xf32>
}

// In reverse, without a token's own, the triangle is transposed and strict. No logarithm is infinite: zeros leave it out.
// CHECK-LABEL: chunk.kernel @sums_of_later_tokens
// CHECK: %[[F:.*]] = arith.maximumf
// CHECK: %[[TRIANGLE:.*]] = chunk.causal %{{.*}} strict
// CHECK: chunk.dot %[[TRIANGLE]], %[[F]] transpose_left
chunk.kernel @sums_of_later_tokens chunk 16 (input %q: tensor<16x32xf16>, input %g: tensor<16x32xf16>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %q32 = arith.extf %q : tensor<16x32xf16> to tensor<16x32xf32>
  %g32 = arith.extf %g : tensor<16x32xf16> to tensor<16x32xf32>
  %y = chunk.decay_to_end %q32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  chunk.yield %y : tensor<16x32xf32>
}

// Logarithms of fp32 are the sum of two numbers of 16 bits each.
// CHECK-LABEL: chunk.kernel @sums_of_two
// CHECK: %[[F:.*]] = arith.maximumf
// CHECK: %[[TRIANGLE:.*]] = chunk.causal %{{.*}} strict
// CHECK: %[[MOST16:.*]] = arith.truncf %[[F]]
// CHECK: %[[MOST:.*]] = arith.extf %[[MOST16]]
// CHECK: %[[LEFT:.*]] = arith.subf %[[F]], %[[MOST]]
// CHECK: %[[REST16:.*]] = arith.truncf %[[LEFT]]
// CHECK: %[[REST:.*]] = arith.extf %[[REST16]]
// CHECK: %[[SUM:.*]] = chunk.dot %[[TRIANGLE]], %[[MOST]] transpose_left :
// CHECK: chunk.dot %[[TRIANGLE]], %[[REST]] transpose_left add %[[SUM]]
chunk.kernel @sums_of_two chunk 32 (input %q: tensor<32x32xf16>, input %g: tensor<32x32xf32>, valid %n: index)
    -> (o: tensor<32x32xf32>) {
  %q32 = arith.extf %q : tensor<32x32xf16> to tensor<32x32xf32>
  %y = chunk.decay_to_end %q32 log %g : tensor<32x32xf32>, tensor<32x32xf32>
  chunk.yield %y : tensor<32x32xf32>
}

// Out of range, chunks of 32 tokens or more form the products by halves of blocks, whose rows have decayed to the middle,
// in a loop over sizes from that of the chunk on; keys stand beside queries, and constant factors are those of the
// products. A token that is read before has none itself.
// CHECK-LABEL: chunk.kernel @by_halves
// CHECK: %[[SUM:.*]] = chunk.dot {{.*}} add
// CHECK: scf.if
// CHECK: } else {
// CHECK: %[[B:.*]] = arith.mulf %[[SUM]]
// CHECK: %[[SIZES:.*]] = arith.constant 5 : index
// CHECK: %[[NONE:.*]] = arith.constant dense<0.000000e+00> : tensor<32x32xf32>
// CHECK: %[[ALL:.*]] = scf.for %[[I:[^ ]*]] = %{{.*}} to %[[SIZES]] step %{{.*}} iter_args(%[[OTHERS:.*]] = %[[NONE]])
// CHECK: %[[JOINED:.*]] = chunk.join_halves %q, %k block 32 halved %[[I]] : tensor<32x16xbf16>
// CHECK: %[[WIDE:.*]] = arith.extf %[[JOINED]]
// CHECK: %[[MIDDLE:.*]] = chunk.middle %[[B]] block 32 halved %[[I]]
// CHECK: %[[NEXT:.*]] = chunk.join_halves %{{.*}}, %{{.*}} block 32 halved %[[I]] : tensor<32x16xf32>
// CHECK: %[[OWN:.*]] = arith.subf %[[B]], %[[NEXT]]
// CHECK: %[[D:.*]] = arith.subf %[[OWN]], %[[MIDDLE]]
// CHECK: math.absf %[[D]]
// CHECK: arith.negf
// CHECK: %[[F:.*]] = math.exp2
// CHECK: arith.mulf %[[WIDE]], %[[F]]
// CHECK: %[[P:.*]] = chunk.dot %[[ROWS:.*]], %[[ROWS]] transpose_right
// CHECK: %[[MET:.*]] = chunk.meet %[[P]] else %[[OTHERS]] block 32 halved %[[I]] :
// CHECK: scf.yield %[[MET]]
// CHECK-NOT: chunk.meet
// CHECK: %[[HALF:.*]] = arith.constant dense<5.000000e-01>
// CHECK: arith.mulf %[[ALL]], %[[HALF]]
chunk.kernel @by_halves chunk 32 (input %q: tensor<32x16xbf16>, input %k: tensor<32x16xbf16>, input %v: tensor<32x8xbf16>,
                                  input %g: tensor<32x16xf32>, state %S: tensor<16x8xf32>, valid %n: index)
    -> (o: tensor<32x8xf32>) {
  %half = arith.constant dense<0.5> : tensor<32x16xf32>
  %qk = arith.extf %q : tensor<32x16xbf16> to tensor<32x16xf32>
  %q32 = arith.mulf %qk, %half : tensor<32x16xf32>
  %k32 = arith.extf %k : tensor<32x16xbf16> to tensor<32x16xf32>
  %v32 = arith.extf %v : tensor<32x8xbf16> to tensor<32x8xf32>
  %x = chunk.decay_from_start %q32 log %g before : tensor<32x16xf32>, tensor<32x16xf32>
  %r = chunk.dot %x, %S : tensor<32x16xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  %p = chunk.decay_dot %q32, %k32 log %g before : tensor<32x16xf32>, tensor<32x16xf32>, tensor<32x16xf32> -> tensor<32x32xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<32x32xf32>, tensor<32x8xf32> -> tensor<32x8xf32>
  %s = chunk.decay_state %S log %g along rows : tensor<16x8xf32>, tensor<32x16xf32>
  %y = chunk.decay_to_end %k32 log %g : tensor<32x16xf32>, tensor<32x16xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<32x16xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  chunk.yield %o next %next : tensor<32x8xf32>, tensor<16x8xf32>
}

// So do sums over pairs, of rows and of the results that have decayed to the middle; each turn takes rows from where
// they lie, and multiplies what rounding takes of them, too.
// CHECK-LABEL: chunk.kernel @totals_by_halves
// CHECK: scf.if
// CHECK: } else {
// CHECK: %[[B:.*]] = arith.mulf
// CHECK: %[[SUM:.*]] = scf.for %[[I:[^ ]*]] = %{{.*}} iter_args(%[[OTHERS:.*]] = %{{.*}}) -> (tensor<32x16xf32>)
// CHECK: chunk.middle %[[B]] block 32 halved %[[I]]
// CHECK: %[[F:.*]] = math.exp2
// CHECK: %[[P:.*]] = chunk.meet %{{.*}} else %{{.*}} block 32 halved %[[I]] : tensor<32x32xf32>
// CHECK: chunk.again
// CHECK: %[[ROWS:.*]] = arith.mulf %{{.*}}, %[[F]]
// CHECK: %[[REST:.*]] = arith.subf %[[ROWS]]
// CHECK: %[[Y:.*]] = chunk.dot {{.*}} : tensor<32x32xf32>, tensor<32x16xf32>
// CHECK: %[[MET:.*]] = arith.mulf %{{.*}}, %[[F]]
// CHECK: %[[NEXT:.*]] = arith.addf %[[OTHERS]], %[[MET]]
// CHECK: scf.yield %[[NEXT]]
// CHECK: arith.mulf %{{.*}}, %[[SUM]]
// CHECK: scf.for
// CHECK: chunk.dot {{.*}} transpose_left
// CHECK-NOT: chunk.decay_mix
chunk.kernel @totals_by_halves chunk 32 reverse (input %q: tensor<32x16xbf16>, input %k: tensor<32x16xbf16>,
                                                 input %w: tensor<32x32xf32>, input %g: tensor<32x16xf32>, valid %n: index)
    -> (o: tensor<32x16xf32>, p: tensor<32x16xf32>) {
  %q32 = arith.extf %q : tensor<32x16xbf16> to tensor<32x16xf32>
  %k32 = arith.extf %k : tensor<32x16xbf16> to tensor<32x16xf32>
  %o, %p = chunk.decay_totals %q32, %k32, %w log %g : tensor<32x16xf32>, tensor<32x32xf32>, tensor<32x16xf32>
  chunk.yield %o, %p : tensor<32x16xf32>, tensor<32x16xf32>
}

// Where tokens read their own, rows of blocks of 8 are rescaled around the middle if logarithms of -15 a token allow it:
// of larger blocks there are two sizes, of all five.
// CHECK-LABEL: chunk.kernel @in_small_blocks
// CHECK: scf.if
// CHECK: } else {
// CHECK: %[[B:.*]] = arith.mulf
// CHECK: %[[ALL:.*]] = arith.constant 5 : index
// CHECK: %[[NEAR:.*]] = chunk.within %g, %q, %k limits [1.500000e+01, 2.968047e+12, 2.968047e+12]
// CHECK: %[[LARGE:.*]] = arith.constant 2 : index
// CHECK: %[[SIZES:.*]] = arith.select %[[NEAR]], %[[LARGE]], %[[ALL]] : index
// CHECK: %[[OTHERS:.*]] = scf.for {{.*}} to %[[SIZES]]
// CHECK: chunk.meet %{{.*}} else %{{.*}} block 32 halved
// CHECK: scf.yield
// CHECK: %[[SUMS:.*]] = scf.if %[[NEAR]]
// CHECK: %[[MIDDLE:.*]] = chunk.middle %[[B]] block 8 :
// CHECK: %[[LOGS:.*]] = arith.subf %[[B]], %[[MIDDLE]]
// CHECK: math.exp2 %[[LOGS]]
// CHECK: %[[BACK:.*]] = arith.negf %[[LOGS]]
// CHECK: math.exp2 %[[BACK]]
// CHECK: %[[P8:.*]] = chunk.dot
// CHECK: %[[WHOLE:.*]] = chunk.meet %[[P8]] else %[[OTHERS]] block 8 whole
// CHECK: scf.yield %[[WHOLE]]
// CHECK: } else {
// CHECK: %[[P:.*]] = chunk.dot
// CHECK: chunk.meet %[[P]] else %[[OTHERS]] block 1 :
// CHECK: %[[HALF:.*]] = arith.constant dense<5.000000e-01>
// CHECK: arith.mulf %[[SUMS]], %[[HALF]]
chunk.kernel @in_small_blocks chunk 32 (input %q: tensor<32x16xbf16>, input %k: tensor<32x16xbf16>, input %v: tensor<32x8xbf16>,
                                  input %g: tensor<32x16xf32>, state %S: tensor<16x8xf32>, valid %n: index)
    -> (o: tensor<32x8xf32>) {
  %half = arith.constant dense<0.5> : tensor<32x16xf32>
  %qk = arith.extf %q : tensor<32x16xbf16> to tensor<32x16xf32>
  %q32 = arith.mulf %qk, %half : tensor<32x16xf32>
  %k32 = arith.extf %k : tensor<32x16xbf16> to tensor<32x16xf32>
  %v32 = arith.extf %v : tensor<32x8xbf16> to tensor<32x8xf32>
  %x = chunk.decay_from_start %q32 log %g : tensor<32x16xf32>, tensor<32x16xf32>
  %r = chunk.dot %x, %S : tensor<32x16xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  %p = chunk.decay_dot %q32, %k32 log %g : tensor<32x16xf32>, tensor<32x16xf32>, tensor<32x16xf32> -> tensor<32x32xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<32x32xf32>, tensor<32x8xf32> -> tensor<32x8xf32>
  %s = chunk.decay_state %S log %g along rows : tensor<16x8xf32>, tensor<32x16xf32>
  %y = chunk.decay_to_end %k32 log %g : tensor<32x16xf32>, tensor<32x16xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<32x16xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  chunk.yield %o next %next : tensor<32x8xf32>, tensor<16x8xf32>
}

// So it is where decays are factors, of which those above 1 have no range: rows are multiplied by products of them, which
// keys take from their token on where the product of all may be too small to divide by.
// CHECK-LABEL: chunk.kernel @one_anchor_of_factors
// CHECK: %[[P:.*]] = chunk.accumulate product %[[F:.*]] : tensor<16x32xf32>
// CHECK: %[[LAST:.*]] = chunk.row %[[P]] at 15
// CHECK: %[[INVERSE:.*]] = arith.divf %{{.*}}, %[[LAST]]
// CHECK: %[[GOOD:.*]] = chunk.within %[[INVERSE]], %f, %q limits [1.142007e+26, 1.000000e+00,
// CHECK: %[[ANCHOR:.*]] = arith.select %[[GOOD]], %[[INVERSE]]
// CHECK: %[[ANCHORS:.*]] = chunk.broadcast %[[ANCHOR]] along columns
// CHECK: arith.mulf %[[P]], %[[ANCHORS]]
// CHECK: scf.if %[[GOOD]] -> (tensor<16x32xf32>)
// CHECK: arith.divf %{{.*}}, %[[P]]
// CHECK: } else {
// CHECK: chunk.accumulate product %[[F]] reverse exclusive
// CHECK: arith.select %[[GOOD]], %[[LAST]]
// CHECK: scf.if %[[GOOD]] -> (tensor<16x16xf32>)
// CHECK: chunk.decay_dot {{.*}} {exact}
// CHECK: %[[READ:.*]] = arith.mulf %S
// CHECK: scf.if %[[GOOD]]
// CHECK-NEXT: scf.yield %[[READ]]
chunk.kernel @one_anchor_of_factors chunk 16 (input %q: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>, input %f: tensor<16x32xbf16>,
                                              state %S: tensor<32x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %f32 = arith.extf %f : tensor<16x32xbf16> to tensor<16x32xf32>
  %a = chunk.mask %f32 valid %n else 1.0 : tensor<16x32xf32>
  %one = arith.constant dense<1.0> : tensor<16x32xf32>
  %k = arith.subf %one, %f32 : tensor<16x32xf32>
  %x = chunk.decay_from_start %q32 factor %a : tensor<16x32xf32>, tensor<16x32xf32>
  %r = chunk.dot %x, %S : tensor<16x32xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  %p = chunk.decay_dot %q32, %k factor %a : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %s = chunk.decay_state %S factor %a along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %y = chunk.decay_to_end %k factor %a : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  chunk.yield %o next %next : tensor<16x8xf32>, tensor<32x8xf32>
}

// In a walk back keys meet the state of the cotangent: the start of the chunk is the anchor of all rows, and weights are
// masked once. Sums are added to what is read, scaled once as the gradient of rows, and multiplied with the rows for the
// gradient of the decay. Out of range keys have their anchor at the end. Of rows and weights what rounding takes is
// multiplied, too. What is read of the state at the start of a chunk, which memory has, each branch reads by itself.
// CHECK-LABEL: chunk.kernel @walk_back
// CHECK-DAG: %[[S:.*]] = arith.extf %S
// CHECK-DAG: %[[V:.*]] = arith.extf %v
// CHECK-DAG: %[[D:.*]] = arith.extf %d_o
// CHECK: %[[ROW:.*]] = chunk.row %{{.*}} at 15
// CHECK: %[[LAST:.*]] = arith.mulf %[[ROW]]
// CHECK: %[[UP:.*]] = math.exp2 %{{.*}} : tensor<16x32xf32>
// CHECK: %[[QUERIES:.*]] = arith.mulf %{{.*}}, %[[UP]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[QUERIES]]
// CHECK: %[[Q:.*]] = arith.extf %[[NARROW]]
// CHECK: %[[LEFT:.*]] = arith.subf %[[QUERIES]], %[[Q]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[LEFT]]
// CHECK: %[[QREST:.*]] = arith.extf %[[NARROW]]
// CHECK: %[[W:.*]] = chunk.dot %[[D]], %[[V]] transpose_right
// CHECK: %[[GOOD:.*]] = chunk.within %[[LAST]], %k, %[[W]] limits
// CHECK: %[[ANCHOR:.*]] = arith.select %[[GOOD]], %[[LAST]],
// CHECK: arith.subf %[[LAST]], %[[ANCHOR]]
// CHECK: %[[DOWN:.*]] = math.exp2 %{{.*}} : tensor<16x32xf32>
// CHECK: %[[MASKED:.*]] = chunk.causal %[[W]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[MASKED]]
// CHECK: %[[WEIGHTS:.*]] = arith.extf %[[NARROW]]
// CHECK: %[[LEFT:.*]] = arith.subf %[[MASKED]], %[[WEIGHTS]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[LEFT]]
// CHECK: %[[WREST:.*]] = arith.extf %[[NARROW]]
// CHECK: %[[KEYS:.*]] = arith.mulf %{{.*}}, %[[DOWN]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[KEYS]]
// CHECK: %[[K:.*]] = arith.extf %[[NARROW]]
// CHECK: %[[LEFT:.*]] = arith.subf %[[KEYS]], %[[K]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[LEFT]]
// CHECK: %[[KREST:.*]] = arith.extf %[[NARROW]]
// CHECK: %[[SCORES:.*]] = scf.if %[[GOOD]]
// CHECK-NEXT: %[[OFQREST:.*]] = chunk.dot %[[QREST]], %[[K]] transpose_right :
// CHECK-NEXT: %[[OFRESTS:.*]] = chunk.dot %[[Q]], %[[KREST]] transpose_right add %[[OFQREST]]
// CHECK-NEXT: chunk.dot %[[Q]], %[[K]] transpose_right add %[[OFRESTS]]
// CHECK: %[[MET:.*]] = arith.mulf %d_S
// CHECK: %[[NEXT:.*]] = scf.if %[[GOOD]]
// CHECK-NEXT: scf.yield %[[MET]]
// CHECK: %[[OFQ:.*]]:2 = scf.if %[[GOOD]]
// CHECK-NEXT: %[[SEEN:.*]] = chunk.dot %[[D]], %[[S]] transpose_right
// CHECK-NEXT: %[[OFWREST:.*]] = chunk.dot %[[WREST]], %[[K]] add %[[SEEN]]
// CHECK-NEXT: %[[OFRESTS:.*]] = chunk.dot %[[WEIGHTS]], %[[KREST]] add %[[OFWREST]]
// CHECK-NEXT: %[[SUM:.*]] = chunk.dot %[[WEIGHTS]], %[[K]] add %[[OFRESTS]]
// CHECK-NEXT: %[[DQ:.*]] = arith.mulf %[[SUM]], %[[UP]]
// CHECK-NEXT: %[[X:.*]] = arith.mulf %{{.*}}, %[[DQ]]
// CHECK-NEXT: scf.yield %[[DQ]], %[[X]]
// CHECK-COUNT-2: chunk.decay_mix {{.*}} {exact}
// CHECK: %[[SEEN:.*]] = chunk.dot %[[V]], %[[MET]] transpose_right
// CHECK: chunk.dot %[[K]], %[[MET]] :
// CHECK: %[[P16:.*]] = arith.truncf %[[SCORES]]
// CHECK: %[[P:.*]] = arith.extf %[[P16]]
// CHECK: %[[LEFT:.*]] = arith.subf %[[SCORES]], %[[P]]
// CHECK: %[[NARROW:.*]] = arith.truncf %[[LEFT]]
// CHECK: %[[PREST:.*]] = arith.extf %[[NARROW]]
// CHECK: %[[DV:.*]] = chunk.dot %[[PREST]], %[[D]] transpose_left add
// CHECK: chunk.dot %[[P]], %[[D]] transpose_left add %[[DV]]
// CHECK: chunk.dot %[[Q]], %[[D]] transpose_left add %[[NEXT]]
// CHECK: scf.if %[[GOOD]]
// CHECK-NEXT: %[[OFWREST:.*]] = chunk.dot %[[WREST]], %[[Q]] transpose_left add %[[SEEN]]
// CHECK-NEXT: %[[OFRESTS:.*]] = chunk.dot %[[WEIGHTS]], %[[QREST]] transpose_left add %[[OFWREST]]
// CHECK-NEXT: chunk.dot %[[WEIGHTS]], %[[Q]] transpose_left add %[[OFRESTS]]
// CHECK-COUNT-2: chunk.decay_mix {{.*}} transpose {exact}
// CHECK: chunk.yield %[[OFQ]]#0,
chunk.kernel @walk_back chunk 16 reverse (input %q: tensor<16x32xbf16>, input %k: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>,
    input %g: tensor<16x32xbf16>, input %d_o: tensor<16x8xbf16>, checkpoint %S: tensor<32x8xbf16>,
    state %d_S: tensor<32x8xf32>, valid %n: index)
    -> (d_q: tensor<16x32xf32>, d_k: tensor<16x32xf32>, d_v: tensor<16x8xf32>, d_g: tensor<16x32xf32>) {
  %scale = arith.constant dense<0.5> : tensor<16x32xf32>
  %S32 = arith.extf %S : tensor<32x8xbf16> to tensor<32x8xf32>
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %k32 = arith.extf %k : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %g32 = arith.extf %g : tensor<16x32xbf16> to tensor<16x32xf32>
  %d_o32 = arith.extf %d_o : tensor<16x8xbf16> to tensor<16x8xf32>
  %qs = arith.mulf %q32, %scale : tensor<16x32xf32>
  %read = chunk.dot %d_o32, %S32 transpose_right : tensor<16x8xf32>, tensor<32x8xf32> -> tensor<16x32xf32>
  %seen = chunk.decay_from_start %read log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %w = chunk.dot %d_o32, %v32 transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  %mixed = chunk.decay_mix %w, %k32 log %g32 add %seen : tensor<16x16xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %d_q = arith.mulf %mixed, %scale : tensor<16x32xf32>
  %met = chunk.dot %v32, %d_S transpose_right : tensor<16x8xf32>, tensor<32x8xf32> -> tensor<16x32xf32>
  %later = chunk.decay_to_end %met log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %d_k = chunk.decay_mix %w, %qs log %g32 transpose add %later : tensor<16x16xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %kd = chunk.decay_to_end %k32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %p = chunk.decay_dot %qs, %k32 log %g32 : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %inter = chunk.dot %kd, %d_S : tensor<16x32xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  %d_v = chunk.dot %p, %d_o32 transpose_left add %inter : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %x, %y = chunk.decay_totals %qs, %k32, %w log %g32 : tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x32xf32>
  %qseen = arith.mulf %qs, %seen : tensor<16x32xf32>
  %kseen = arith.mulf %k32, %later : tensor<16x32xf32>
  %ofq = arith.addf %qseen, %x : tensor<16x32xf32>
  %ofk = arith.addf %kseen, %y : tensor<16x32xf32>
  %d_g = arith.subf %ofk, %ofq : tensor<16x32xf32>
  %state = chunk.decay_state %d_S log %g32 along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %qd = chunk.decay_from_start %qs log %g32 : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %qd, %d_o32 transpose_left add %state : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  chunk.yield %d_q, %d_k, %d_v, %d_g next %next : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x8xf32>, tensor<16x32xf32>, tensor<32x8xf32>
}

// Its other sums over tokens come by products, too, of numbers that operands do not hold in two parts.
// CHECK-LABEL: chunk.kernel @sums_of_walk_back
// CHECK: %[[MOST:.*]] = chunk.dot %[[TRIANGLE:[^,]*]], %{{[^,]*}} transpose_left :
// CHECK: chunk.dot %[[TRIANGLE]], %{{[^,]*}} transpose_left add %[[MOST]]
// CHECK-NOT: chunk.accumulate
// CHECK: chunk.yield
chunk.kernel @sums_of_walk_back chunk 32 reverse (input %k: tensor<32x16xbf16>, input %v: tensor<32x16xbf16>, input %g: tensor<32x16xbf16>,
    state %S: tensor<16x16xf32>, valid %n: index) -> (o: tensor<32x16xf32>, p: tensor<32x32xf32>) {
  %k32 = arith.extf %k : tensor<32x16xbf16> to tensor<32x16xf32>
  %v32 = arith.extf %v : tensor<32x16xbf16> to tensor<32x16xf32>
  %g32 = arith.extf %g : tensor<32x16xbf16> to tensor<32x16xf32>
  %kd = chunk.decay_to_end %k32 log %g32 : tensor<32x16xf32>, tensor<32x16xf32>
  %r = chunk.dot %kd, %S : tensor<32x16xf32>, tensor<16x16xf32> -> tensor<32x16xf32>
  %p = chunk.decay_dot %v32, %k32 log %g32 : tensor<32x16xf32>, tensor<32x16xf32>, tensor<32x16xf32> -> tensor<32x32xf32>
  %qd = chunk.decay_from_start %v32 log %g32 : tensor<32x16xf32>, tensor<32x16xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<16x16xf32>, tensor<32x16xf32>
  %next = chunk.dot %qd, %v32 transpose_left add %s : tensor<32x16xf32>, tensor<32x16xf32> -> tensor<16x16xf32>
  %o = chunk.accumulate sum %r reverse exclusive : tensor<32x16xf32>
  chunk.yield %o, %p next %next : tensor<32x16xf32>, tensor<32x32xf32>, tensor<16x16xf32>
}

// Weights that follow from scores of the same state have a test of their own, behind those.
// CHECK-LABEL: chunk.kernel @weights_of_scores
// CHECK: %[[ROWS:.*]] = chunk.within %{{.*}}, %q limits
// CHECK: %[[SCORES:.*]] = scf.if %[[ROWS]]
// CHECK: %[[W:.*]] = arith.mulf %[[SCORES]]
// CHECK: %[[WEIGHTS:.*]] = chunk.within %[[W]] limits [1.048576e+06]
// CHECK: %[[BOTH:.*]] = arith.andi %[[ROWS]], %[[WEIGHTS]] : i1
// CHECK: scf.if %[[BOTH]] -> (tensor<16x32xf32>)
// CHECK: chunk.decay_mix
chunk.kernel @weights_of_scores chunk 16 (input %q: tensor<16x32xbf16>, input %k: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>,
                                          input %g: tensor<16x32xf32>, state %S: tensor<32x8xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>, d: tensor<16x32xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %k32 = arith.extf %k : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %qs = chunk.decay_from_start %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %o = chunk.dot %qs, %S : tensor<16x32xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  %p = chunk.decay_dot %q32, %k32 log %g : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %w = arith.mulf %p, %p : tensor<16x16xf32>
  %d = chunk.decay_mix %w, %k32 log %g : tensor<16x16xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
  %s = chunk.decay_state %S log %g along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %ke = chunk.decay_to_end %k32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %ke, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  chunk.yield %o, %d next %next : tensor<16x8xf32>, tensor<16x32xf32>, tensor<32x8xf32>
}

// Rows that follow from what the state recalls have no range beforehand: each product has its own.
// CHECK-LABEL: chunk.kernel @rows_of_reads
// CHECK: chunk.within %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} limits
// CHECK: chunk.yield
chunk.kernel @rows_of_reads chunk 16 (input %q: tensor<16x32xbf16>, input %k: tensor<16x32xbf16>, input %v: tensor<16x32xbf16>,
                                      input %g: tensor<16x32xf32>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (p: tensor<16x16xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %k32 = arith.extf %k : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x32xbf16> to tensor<16x32xf32>
  %qs = chunk.decay_from_start %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %o = chunk.dot %qs, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %p = chunk.decay_dot %o, %k32 log %g : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %s = chunk.decay_state %S log %g along rows : tensor<32x32xf32>, tensor<16x32xf32>
  %ke = chunk.decay_to_end %k32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %ke, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  chunk.yield %p next %next : tensor<16x16xf32>, tensor<32x32xf32>
}

// An inverse looks at no entry above the diagonal: none are cleared for it, nor where they are multiplied before.
// CHECK-LABEL: chunk.kernel @inverted
// CHECK-NOT: chunk.causal
// CHECK: chunk.inverse
// CHECK: chunk.causal
chunk.kernel @inverted chunk 16 (input %q: tensor<16x32xf32>, input %k: tensor<16x32xf32>, input %g: tensor<16xf32>,
                                 valid %n: index) -> (o: tensor<16x16xf32>, p: tensor<16x16xf32>) {
  %l = chunk.decay_dot %k, %k log %g : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16xf32> -> tensor<16x16xf32>
  %b = chunk.broadcast %g along rows : tensor<16xf32> to tensor<16x16xf32>
  %m = arith.mulf %b, %l : tensor<16x16xf32>
  %o = chunk.inverse %m : tensor<16x16xf32>
  %p = chunk.decay_dot %q, %k log %g : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16xf32> -> tensor<16x16xf32>
  chunk.yield %o, %p : tensor<16x16xf32>, tensor<16x16xf32>
}

// What a token weighs its own row with, beside earlier ones that it reads before its own decay, is a part of the product
// that these have: it stands on the diagonal.
// CHECK-LABEL: chunk.kernel @own_rows
// CHECK: %[[SCORES:.*]] = scf.if
// CHECK: %[[OWN:.*]] = chunk.broadcast %{{.*}} along rows : tensor<16xf32> to tensor<16x16xf32>
// CHECK: %[[ALL:.*]] = chunk.meet %[[OWN]] else %[[SCORES]] block 1 : tensor<16x16xf32>
// CHECK: chunk.dot %{{.*}}, %{{.*}} add
// CHECK-NOT: arith.addf
// CHECK: chunk.yield
chunk.kernel @own_rows chunk 16 (input %q: tensor<16x32xbf16>, input %v: tensor<16x8xbf16>, input %g: tensor<16x32xf32>,
                                 input %b: tensor<16xf32>, state %S: tensor<32x8xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>) {
  %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
  %v32 = arith.extf %v : tensor<16x8xbf16> to tensor<16x8xf32>
  %x = chunk.decay_from_start %q32 log %g before : tensor<16x32xf32>, tensor<16x32xf32>
  %r = chunk.dot %x, %S : tensor<16x32xf32>, tensor<32x8xf32> -> tensor<16x8xf32>
  %p = chunk.decay_dot %q32, %q32 log %g before : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
  %o = chunk.dot %p, %v32 add %r : tensor<16x16xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %weights = chunk.broadcast %b along rows : tensor<16xf32> to tensor<16x8xf32>
  %own = arith.mulf %weights, %v32 : tensor<16x8xf32>
  %all = arith.addf %o, %own : tensor<16x8xf32>
  %s = chunk.decay_state %S log %g along rows : tensor<32x8xf32>, tensor<16x32xf32>
  %y = chunk.decay_to_end %q32 log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<16x32xf32>, tensor<16x8xf32> -> tensor<32x8xf32>
  chunk.yield %all next %next : tensor<16x8xf32>, tensor<32x8xf32>
}

// The gradient of factors is that of their logarithms, divided by them, where none is too small: rows are rescaled as if
// there were no factors. Otherwise it is formed in parts, of a state that has decayed already, whose sums over its other
// axis are given back what it has decayed by.
// CHECK-LABEL: chunk.kernel @pairs
// CHECK: %[[NEAR:.*]] = chunk.within %{{.*}}, %f, %k, %{{.*}} limits
// CHECK: %[[OFSTATE:.*]] = arith.select %[[NEAR]], %[[ALL:.*]], %{{.*}} : tensor<32xf32>
// CHECK: %[[MET:.*]] = arith.mulf %d_S,
// CHECK: %[[INVERSE:.*]] = arith.divf %{{.*}}, %{{.*}} fastmath<afn>
// CHECK: %[[LARGE:.*]] = chunk.within %[[INVERSE]], %f limits [2.560000e+02, 1.000000e+00]
// CHECK: %[[OFSEEN:.*]] = chunk.reduce sum %{{.*}} over rows
// CHECK: %[[BOTH:.*]] = arith.mulf %{{.*}}, %[[MET]]
// CHECK: %[[SUM:.*]] = chunk.reduce sum %[[BOTH]] over columns
// CHECK: %[[BACK:.*]] = arith.divf %{{.*}}, %[[OFSTATE]]
// CHECK: %[[ENDS:.*]] = arith.mulf %[[SUM]], %[[BACK]]
// CHECK: %[[DECAYED:.*]] = arith.mulf %[[ENDS]], %[[ALL]]
// CHECK: %[[WHOLE:.*]] = arith.addf %[[OFSEEN]], %[[DECAYED]]
// CHECK: %[[SUMS:.*]] = chunk.dot
// CHECK: %[[WHOLES:.*]] = chunk.broadcast %[[WHOLE]] along columns
// CHECK: %[[LOGS:.*]] = arith.addf %{{.*}}, %[[WHOLES]]
// CHECK: scf.if %[[LARGE]]
// CHECK-NEXT: arith.mulf %[[LOGS]], %[[INVERSE]]
// CHECK: } else {
// CHECK: %[[KEPT:.*]] = chunk.dot %{{.*}}, %[[MET]] transpose_right
// CHECK: chunk.broadcast %{{.*}} along columns : tensor<32xf32> to tensor<32x32xf32>
// CHECK-COUNT-2: chunk.decay_mix {{.*}} {exact}
// CHECK: chunk.decay_pairs %{{.*}} factor %{{[^ ]*}} : tensor
chunk.kernel @pairs chunk 32 reverse (input %q: tensor<32x32xbf16>, input %k: tensor<32x32xbf16>, input %v: tensor<32x8xbf16>,
    input %f: tensor<32x32xbf16>, input %d_o: tensor<32x8xbf16>, checkpoint %S: tensor<32x8xbf16>,
    state %d_S: tensor<32x8xf32>, valid %n: index) -> (d_q: tensor<32x32xf32>, d_k: tensor<32x32xf32>, d_f: tensor<32x32xf32>) {
  %S32 = arith.extf %S : tensor<32x8xbf16> to tensor<32x8xf32>
  %q32 = arith.extf %q : tensor<32x32xbf16> to tensor<32x32xf32>
  %k32 = arith.extf %k : tensor<32x32xbf16> to tensor<32x32xf32>
  %v32 = arith.extf %v : tensor<32x8xbf16> to tensor<32x8xf32>
  %f32 = arith.extf %f : tensor<32x32xbf16> to tensor<32x32xf32>
  %d_o32 = arith.extf %d_o : tensor<32x8xbf16> to tensor<32x8xf32>
  %seen = chunk.dot %d_o32, %S32 transpose_right : tensor<32x8xf32>, tensor<32x8xf32> -> tensor<32x32xf32>
  %w = chunk.dot %d_o32, %v32 transpose_right : tensor<32x8xf32>, tensor<32x8xf32> -> tensor<32x32xf32>
  %kept = chunk.dot %v32, %d_S transpose_right : tensor<32x8xf32>, tensor<32x8xf32> -> tensor<32x32xf32>
  %both = arith.mulf %S32, %d_S : tensor<32x8xf32>
  %ends = chunk.reduce sum %both over columns : tensor<32x8xf32> -> tensor<32xf32>
  %d_f = chunk.decay_pairs %q32, %k32, %w factor %f32 seen %seen : tensor<32x32xf32> kept %kept : tensor<32x32xf32>
    ends %ends : tensor<32xf32> : tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>
  %from = chunk.decay_from_start %seen factor %f32 : tensor<32x32xf32>, tensor<32x32xf32>
  %d_q = chunk.decay_mix %w, %k32 factor %f32 add %from : tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
  %to = chunk.decay_to_end %kept factor %f32 : tensor<32x32xf32>, tensor<32x32xf32>
  %d_k = chunk.decay_mix %w, %q32 factor %f32 transpose add %to : tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
  %state = chunk.decay_state %d_S factor %f32 along rows : tensor<32x8xf32>, tensor<32x32xf32>
  %qd = chunk.decay_from_start %q32 factor %f32 : tensor<32x32xf32>, tensor<32x32xf32>
  %next = chunk.dot %qd, %d_o32 transpose_left add %state : tensor<32x32xf32>, tensor<32x8xf32> -> tensor<32x8xf32>
  chunk.yield %d_q, %d_k, %d_f next %next : tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<32x8xf32>
}
