// RUN: stretto-opt %s --split-input-file --stretto-specialize | FileCheck %s

// What is known without the data stands in one place and in one form, however it was written: an option that is
// repeated is that option as a larger row, and what has no operands stands before its first user, inside of tables too.

!K = tensor<?xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>
!time = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: stretto.variant @repeated(
// CHECK-NEXT:    %[[SUM:.*]] = arith.addf %x, %x : !K
// CHECK-NEXT:    %[[SCALE:.*]] = stretto.option "scale" : !K
// CHECK-NEXT:    %[[SCALED:.*]] = arith.mulf %[[SUM]], %[[SCALE]] : !K
// CHECK-NEXT:    %[[SIZE:.*]] = stretto.size "K" : !K
// CHECK-NEXT:    %[[Y:.*]] = arith.divf %[[SCALED]], %[[SIZE]] : !K
// CHECK-NEXT:    stretto.yield %[[Y]] : !K
stretto.variant @repeated(%x: !K) -> !K options(scale = "K**-0.5") {
  %size = stretto.size "K" : f64
  %scale = stretto.option "scale" : !time
  %scale_K = stretto.broadcast %scale : !time to !K
  %size_K = stretto.broadcast %size : f64 to !K
  %sum = arith.addf %x, %x : !K
  %scaled = arith.mulf %sum, %scale_K : !K
  %y = arith.divf %scaled, %size_K : !K
  stretto.yield %y : !K
}

// -----

!K = tensor<?xf64, #stretto.row<K>>

// CHECK-LABEL: stretto.variant @in_a_table(
// CHECK:         stretto.table {
// CHECK-NEXT:    ^bb0(%[[T:.*]]: f64, %{{.*}}: f64, %[[D:.*]]: f64):
// CHECK-NEXT:      %[[ONE:.*]] = arith.constant 1.0{{0*}}e+00 : f64
// CHECK-NEXT:      %[[NEXT:.*]] = arith.addf %[[T]], %[[ONE]] : f64
// CHECK-NEXT:      %[[RATE:.*]] = stretto.option "rate" : f64
// CHECK-NEXT:      %[[ANGLE:.*]] = arith.mulf %[[NEXT]], %[[RATE]] : f64
// CHECK-NEXT:      stretto.yield %[[ANGLE]] : f64
stretto.variant @in_a_table() -> !K options(rate = 0.1) {
  %y = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    %rate = stretto.option "rate" : f64
    %one = arith.constant 1.0 : f64
    %next = arith.addf %t, %one : f64
    %angle = arith.mulf %next, %rate : f64
    stretto.yield %angle : f64
  } : !K
  stretto.yield %y : !K
}
