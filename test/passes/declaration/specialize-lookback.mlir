// RUN: stretto-opt %s --stretto-specialize | FileCheck %s

// What the body of a look-back computes of its own token's rows, and of constants, is the same for all tokens that are
// met; rows of those stay.
// CHECK-LABEL: stretto.variant @full
// CHECK: %[[SCALE:.*]] = stretto.option "scale"
// CHECK: %[[QS:.*]] = arith.mulf %q, %[[SCALE]]
// CHECK: %[[HALF:.*]] = stretto.constant 5.0{{0*}}e-01
// CHECK: %[[HALVED:.*]] = arith.mulf %[[QS]], %[[HALF]]
// CHECK: stretto.lookback softmax
// CHECK-NEXT: %[[K_J:.*]] = stretto.past %k
// CHECK-NEXT: %[[DOUBLE:.*]] = arith.addf %[[K_J]], %[[K_J]]
// CHECK-NEXT: stretto.dot %[[HALVED]], %[[DOUBLE]]
// CHECK-NEXT: stretto.past %v
// CHECK-NEXT: stretto.yield

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

stretto.variant @full(%q: !K, %k: !K, %v: !V) -> !V options(scale = "K**-0.5") {
  %first = stretto.constant 0.0 : !number_per_1
  %scale = stretto.option "scale" : !K
  %m, %l, %acc = stretto.lookback softmax from %first {
    %qs = arith.mulf %q, %scale : !K
    %half = stretto.constant 0.5 : !K
    %halved = arith.mulf %qs, %half : !K
    %k_j = stretto.past %k : !K
    %double = arith.addf %k_j, %k_j : !K
    %score = stretto.dot %halved, %double : !K -> !number
    %v_j = stretto.past %v : !V
    stretto.yield %score, %v_j : !number, !V
  } : !number, !number, !V
  stretto.yield %acc : !V
}
