// RUN: stretto-opt %s --stretto-merge-totals | FileCheck %s

// A state and its normaliser: totals of both weights are those of their sum, which is there, and one sum over tokens has
// both; what queries see of either start decays together, and is multiplied once. An operation that came before what it
// takes now follows it, and those that did not stay where they were.
// CHECK-LABEL: chunk.kernel @gradient
// CHECK-NEXT: %[[STARTS:.*]] = arith.addf %a, %b
// CHECK-NEXT: %[[SEEN:.*]] = chunk.decay_from_start %[[STARTS]] log %g
// CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %q, %[[SEEN]]
// CHECK-NEXT: %[[LATE:.*]] = math.absf %r
// CHECK-NEXT: %[[BOTH:.*]] = arith.addf %p, %[[LATE]]
// CHECK-NEXT: %[[X:.*]], %[[Y:.*]] = chunk.decay_totals %q, %k, %[[BOTH]] log %g
// CHECK-NEXT: %[[QUERIES:.*]] = arith.addf %[[PRODUCT]], %[[X]]
// CHECK-NEXT: %[[MINUS:.*]] = arith.negf %[[QUERIES]]
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[Y]], %[[MINUS]]
// CHECK-NEXT: chunk.accumulate sum %[[SUM]] exclusive
// CHECK-NOT: chunk.accumulate
// CHECK: chunk.yield %{{.*}}, %[[BOTH]], %[[SEEN]]
chunk.kernel @gradient chunk 16 (input %q: tensor<16x32xf32>, input %k: tensor<16x32xf32>, input %g: tensor<16x32xf32>, input %p: tensor<16x16xf32>, input %r: tensor<16x16xf32>, input %a: tensor<16x32xf32>, input %b: tensor<16x32xf32>, valid %n: index)
    -> (y: tensor<16x32xf32>, s: tensor<16x16xf32>, d: tensor<16x32xf32>) {
  %d1 = chunk.decay_from_start %a log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %m1 = arith.mulf %q, %d1 : tensor<16x32xf32>
  %x1, %y1 = chunk.decay_totals %q, %k, %p log %g : tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x32xf32>
  %o1 = arith.addf %m1, %x1 : tensor<16x32xf32>
  %n1 = arith.negf %o1 : tensor<16x32xf32>
  %t1 = arith.addf %y1, %n1 : tensor<16x32xf32>
  %s1 = chunk.accumulate sum %t1 exclusive : tensor<16x32xf32>
  %late = math.absf %r : tensor<16x16xf32>
  %both = arith.addf %p, %late : tensor<16x16xf32>
  %d2 = chunk.decay_from_start %b log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %d = arith.addf %d1, %d2 : tensor<16x32xf32>
  %m2 = arith.mulf %q, %d2 : tensor<16x32xf32>
  %x2, %y2 = chunk.decay_totals %q, %k, %late log %g : tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x32xf32>
  %o2 = arith.addf %m2, %x2 : tensor<16x32xf32>
  %n2 = arith.negf %o2 : tensor<16x32xf32>
  %t2 = arith.addf %y2, %n2 : tensor<16x32xf32>
  %s2 = chunk.accumulate sum %t2 exclusive : tensor<16x32xf32>
  %y = arith.addf %s1, %s2 : tensor<16x32xf32>
  chunk.yield %y, %both, %d : tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x32xf32>
}

// What goes another way, decays otherwise, or is asked for elsewhere stays apart.
// CHECK-LABEL: chunk.kernel @apart
// CHECK-COUNT-2: chunk.decay_totals
// CHECK-COUNT-2: chunk.decay_from_start
// CHECK-COUNT-2: chunk.accumulate
chunk.kernel @apart chunk 16 (input %q: tensor<16x32xf32>, input %k: tensor<16x32xf32>, input %g: tensor<16x32xf32>, input %p: tensor<16x16xf32>, input %r: tensor<16x16xf32>, input %a: tensor<16x32xf32>, input %b: tensor<16x32xf32>, valid %n: index)
    -> (y: tensor<16x32xf32>, d: tensor<16x32xf32>, x: tensor<16x32xf32>) {
  %x1, %y1 = chunk.decay_totals %q, %k, %p log %g : tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x32xf32>
  %x2, %y2 = chunk.decay_totals %q, %k, %r log %g : tensor<16x32xf32>, tensor<16x16xf32>, tensor<16x32xf32>
  %t1 = arith.addf %y1, %x1 : tensor<16x32xf32>
  %t2 = arith.addf %y2, %x2 : tensor<16x32xf32>
  %t = arith.addf %t1, %t2 : tensor<16x32xf32>
  %d1 = chunk.decay_from_start %a log %g : tensor<16x32xf32>, tensor<16x32xf32>
  %d2 = chunk.decay_from_start %b log %g before : tensor<16x32xf32>, tensor<16x32xf32>
  %d = arith.addf %d1, %d2 : tensor<16x32xf32>
  %s1 = chunk.accumulate sum %t exclusive : tensor<16x32xf32>
  %s2 = chunk.accumulate sum %d reverse exclusive : tensor<16x32xf32>
  %y = arith.addf %s1, %s2 : tensor<16x32xf32>
  chunk.yield %y, %d, %x2 : tensor<16x32xf32>, tensor<16x32xf32>, tensor<16x32xf32>
}
