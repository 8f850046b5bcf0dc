// Folders and canonical forms.
//
// RUN: stretto-opt %s --canonicalize | FileCheck %s

!K = tensor<?xf64, #stretto.row<K>>
!K_per_G = tensor<?xf64, #stretto.row<K, G>>
!V = tensor<?xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!number_per_G = tensor<f64, #stretto.row<(), G>>
!V_plus_1 = tensor<?xf64, #stretto.row<"V + 1">>
!state = !stretto.state<K, V>

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

// CHECK-LABEL: @constants
// CHECK-DAG: %[[two:.*]] = stretto.constant 2.0{{.*}} : !K
// CHECK-DAG: %[[four:.*]] = stretto.constant 4.0{{.*}} : !number
// CHECK-DAG: %[[size:.*]] = stretto.constant 7.0{{.*}} : !V
// CHECK-DAG: %[[first:.*]] = stretto.constant 2.0{{.*}} : !number
// CHECK-NEXT: stretto.yield %[[two]], %[[four]], %[[size]], %[[first]], %[[two]], %x : !K
stretto.variant @constants(%x: !K) -> (!K, !number, !V, !number, !K, !K) {
  %two = stretto.constant 2.0 : !number_per_G
  %wide = stretto.broadcast %two : !number_per_G to !K
  %a = arith.constant 1.5 : f64
  %b = arith.constant 2.5 : f64
  %c = arith.addf %a, %b : f64
  %four = stretto.broadcast %c : f64 to !number
  %size = stretto.size "3 + 2*2" : !V
  %first = stretto.slice %wide from "0" : !K -> !number
  %stopped = stretto.stop_gradient %wide : !K
  %one = stretto.constant 1.0 : !K
  %same = arith.mulf %x, %one : !K
  stretto.yield %wide, %four, %size, %first, %stopped, %same : !K, !number, !V, !number, !K, !K
}

// An i1 has no row constant: it stays a broadcast.
// CHECK-LABEL: @conditions
// CHECK: %[[true:.*]] = arith.constant true
// CHECK: %[[row:.*]] = stretto.broadcast %[[true]] : i1 to !condition_K
// CHECK: stretto.yield %[[row]]
stretto.variant @conditions() -> tensor<?xi1, #stretto.row<K>> {
  %true = arith.constant true
  %row = stretto.broadcast %true : i1 to tensor<?xi1, #stretto.row<K>>
  stretto.yield %row : tensor<?xi1, #stretto.row<K>>
}

// Constants stay inside the body of a table, which is evaluated by itself.
// CHECK-LABEL: @table
// CHECK-NEXT: stretto.table {
// CHECK-NEXT: ^bb0
// CHECK-NEXT: %[[c:.*]] = arith.constant 4.0
// CHECK-NEXT: arith.addf %t, %[[c]]
stretto.variant @table() -> !K {
  %w = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    %a = arith.constant 1.5 : f64
    %b = arith.constant 2.5 : f64
    %c = arith.addf %a, %b : f64
    %y = arith.addf %t, %c : f64
    stretto.yield %y : f64
  } : !K
  stretto.yield %w : !K
}

//===----------------------------------------------------------------------===//
// Broadcasts, delays, gradients
//===----------------------------------------------------------------------===//

// CHECK-LABEL: @broadcast_of_broadcast
// CHECK-NEXT: %[[y:.*]] = stretto.broadcast %x : !number_per_G to !K
// CHECK-NEXT: stretto.yield %[[y]], %q
stretto.variant @broadcast_of_broadcast(%x: !number_per_G, %q: !K) -> (!K, !K) {
  %finer = stretto.broadcast %x : !number_per_G to !number
  %wide = stretto.broadcast %finer : !number to !K
  %same = stretto.broadcast %q : !K to !K
  stretto.yield %wide, %same : !K, !K
}

// A delay does not undo one of the other direction: the first token would differ.
// CHECK-LABEL: @delay
// CHECK-NEXT: %[[five:.*]] = stretto.delay %x by 5 : !K
// CHECK-NEXT: %[[ahead:.*]] = stretto.delay %x by 7 reverse : !K
// CHECK-NEXT: %[[back:.*]] = stretto.delay %[[ahead]] by 7 : !K
// CHECK-NEXT: %[[far:.*]] = stretto.delay %x by 1024 : !K
// CHECK-NEXT: %[[farther:.*]] = stretto.delay %[[far]] by 1 : !K
// CHECK-NEXT: stretto.yield %x, %[[five]], %[[ahead]], %[[back]], %[[farther]]
stretto.variant @delay(%x: !K) -> (!K, !K, !K, !K, !K) {
  %none = stretto.delay %x by 0 : !K
  %two = stretto.delay %x by 2 : !K
  %five = stretto.delay %two by 3 : !K
  %three = stretto.delay %x by 3 reverse : !K
  %ahead = stretto.delay %three by 4 reverse : !K
  %back = stretto.delay %ahead by 7 : !K
  %far = stretto.delay %x by 1024 : !K
  %farther = stretto.delay %far by 1 : !K
  stretto.yield %none, %five, %ahead, %back, %farther : !K, !K, !K, !K, !K
}

// CHECK-LABEL: @stop_gradient
// CHECK-NEXT: %[[y:.*]] = stretto.stop_gradient %x : !K
// CHECK-NEXT: stretto.yield %[[y]]
stretto.variant @stop_gradient(%x: !K) -> !K {
  %y = stretto.stop_gradient %x : !K
  %z = stretto.stop_gradient %y : !K
  stretto.yield %z : !K
}

// What is the same for every token needs no `past`.
// CHECK-LABEL: @past
// CHECK-NOT: stretto.past %{{[0-9]}}
// CHECK: stretto.past %x
// CHECK-NOT: stretto.past
stretto.variant @past(%x: !K, %b: tensor<?xf64, #stretto.param<[K]>>) -> !K {
  %t = stretto.position
  %bias = stretto.broadcast %b : tensor<?xf64, #stretto.param<[K]>> to !K
  %two = stretto.constant 2.0 : !K
  %sum = stretto.lookback sum from %t {
    %xj = stretto.past %x : !K
    %bj = stretto.past %bias : !K
    %two_j = stretto.past %two : !K
    %scaled = arith.mulf %xj, %two_j : !K
    %y = arith.addf %scaled, %bj : !K
    stretto.yield %y : !K
  } : !K
  stretto.yield %sum : !K
}

//===----------------------------------------------------------------------===//
// Pieces of rows
//===----------------------------------------------------------------------===//

// CHECK-LABEL: @slice_of_slice
// CHECK-NEXT: %[[y:.*]] = stretto.slice %x from "V + 2" : !K -> !number
// CHECK-NEXT: stretto.yield %[[y]], %x
stretto.variant @slice_of_slice(%x: !K, %v: !V) -> (!number, !K) {
  %some = stretto.slice %x from "V" : !K -> tensor<4xf64, #stretto.row<4>>
  %one = stretto.slice %some from "2" : tensor<4xf64, #stretto.row<4>> -> !number
  %all = stretto.slice %x from "0" : !K -> !K
  stretto.yield %one, %all : !number, !K
}

// One piece, part of one piece, two of three pieces, and a slice that begins where sizes cannot be compared.
// CHECK-LABEL: @slice_of_concat
// CHECK-DAG: %[[part:.*]] = stretto.slice %x from "3" : !K -> !row_4
// CHECK-DAG: %[[two:.*]] = stretto.concat %v, %n : !V, !number -> !V_plus_1
// CHECK-DAG: %[[whole:.*]] = stretto.concat %x, %v, %n : !K, !V, !number -> ![[W:.*]]
// CHECK-DAG: %[[open:.*]] = stretto.slice %[[whole]] from "V" : ![[W]] -> !V
// CHECK: stretto.yield %v, %n, %[[part]], %[[two]], %[[open]]
stretto.variant @slice_of_concat(%x: !K, %v: !V, %n: !number) -> (!V, !number, tensor<4xf64, #stretto.row<4>>, !V_plus_1, !V) {
  %whole = stretto.concat %x, %v, %n : !K, !V, !number -> tensor<?xf64, #stretto.row<"K + V + 1">>
  %piece = stretto.slice %whole from "K" : tensor<?xf64, #stretto.row<"K + V + 1">> -> !V
  %last = stretto.slice %whole from "K + V" : tensor<?xf64, #stretto.row<"K + V + 1">> -> !number
  %padded = stretto.concat %v, %x : !V, !K -> tensor<?xf64, #stretto.row<"K + V">>
  %part = stretto.slice %padded from "V + 3" : tensor<?xf64, #stretto.row<"K + V">> -> tensor<4xf64, #stretto.row<4>>
  %two = stretto.slice %whole from "K" : tensor<?xf64, #stretto.row<"K + V + 1">> -> !V_plus_1
  %open = stretto.slice %whole from "V" : tensor<?xf64, #stretto.row<"K + V + 1">> -> !V
  stretto.yield %piece, %last, %part, %two, %open : !V, !number, tensor<4xf64, #stretto.row<4>>, !V_plus_1, !V
}

// CHECK-LABEL: @concat
// CHECK-NEXT: %[[flat:.*]] = stretto.concat %v, %n, %n, %n : !V, !number, !number, !number -> !V_plus_3
// CHECK-NEXT: stretto.yield %v, %[[flat]]
stretto.variant @concat(%v: !V, %n: !number) -> (!V, tensor<?xf64, #stretto.row<"V + 3">>) {
  %same = stretto.concat %v : !V -> !V
  %inner = stretto.concat %n, %n : !number, !number -> tensor<2xf64, #stretto.row<2>>
  %less = stretto.concat %v, %inner : !V, tensor<2xf64, #stretto.row<2>> -> tensor<?xf64, #stretto.row<"V + 2">>
  %flat = stretto.concat %less, %n : tensor<?xf64, #stretto.row<"V + 2">>, !number -> tensor<?xf64, #stretto.row<"V + 3">>
  stretto.yield %same, %flat : !V, tensor<?xf64, #stretto.row<"V + 3">>
}

// All slices of a row are the row; neighbours are one slice; the order matters.
// CHECK-LABEL: @concat_of_slices
// CHECK-DAG: %[[last:.*]] = stretto.slice %r from "V" : !V_plus_3 -> !number
// CHECK-DAG: %[[pair:.*]] = stretto.slice %r from "V + 1" : !V_plus_3 -> !row_2
// CHECK-DAG: %[[front:.*]] = stretto.slice %r from "0" : !V_plus_3 -> !V
// CHECK-DAG: %[[turned:.*]] = stretto.concat %[[pair]], %[[front]]
// CHECK: stretto.yield %r, %[[turned]]
stretto.variant @concat_of_slices(%r: tensor<?xf64, #stretto.row<"V + 3">>)
    -> (tensor<?xf64, #stretto.row<"V + 3">>, tensor<?xf64, #stretto.row<"V + 2">>, !number) {
  %front = stretto.slice %r from "0" : tensor<?xf64, #stretto.row<"V + 3">> -> !V
  %a = stretto.slice %r from "V" : tensor<?xf64, #stretto.row<"V + 3">> -> !number
  %b = stretto.slice %r from "V + 1" : tensor<?xf64, #stretto.row<"V + 3">> -> !number
  %c = stretto.slice %r from "V + 2" : tensor<?xf64, #stretto.row<"V + 3">> -> !number
  %all = stretto.concat %front, %a, %b, %c : !V, !number, !number, !number -> tensor<?xf64, #stretto.row<"V + 3">>
  %turned = stretto.concat %b, %c, %front : !number, !number, !V -> tensor<?xf64, #stretto.row<"V + 2">>
  stretto.yield %all, %turned, %a : tensor<?xf64, #stretto.row<"V + 3">>, tensor<?xf64, #stretto.row<"V + 2">>, !number
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

// A decay by nothing goes; a state that nothing changes or reads goes; the last write stays, though nothing reads it,
// because the next token does.
// CHECK-LABEL: @states
// CHECK-NOT: "untouched"
// CHECK: %[[S0:.*]] = stretto.state "S"
// CHECK-NEXT: %[[o:.*]] = stretto.read %[[S0]], %k
// CHECK-NEXT: %[[S1:.*]] = stretto.decay %[[S0]] log %k
// CHECK-NEXT: stretto.write %[[S1]], %k, %v
// CHECK-NEXT: %[[A0:.*]] = stretto.state "A"
// CHECK-NEXT: stretto.write %[[A0]], %k, %v
// CHECK-NEXT: stretto.yield %[[o]]
stretto.variant @states(%k: !K, %v: !V) -> !V {
  %untouched = stretto.state "untouched" : !state
  %S0 = stretto.state "S" : !state
  %o = stretto.read %S0, %k along "K" : !state, !K -> !V
  %S1 = stretto.decay %S0 log %k along "K" : !state, !K
  %S2 = stretto.write %S1, %k, %v : !state, !K, !V
  %A0 = stretto.state "A" : !state
  %zero = stretto.constant 0.0 : !K
  %A1 = stretto.decay %A0 log %zero along "K" : !state, !K
  %c = arith.constant 1.0 : f64
  %one = stretto.broadcast %c : f64 to !number
  %A2 = stretto.decay %A1 factor %one : !state, !number
  %A3 = stretto.write %A2, %k, %v : !state, !K, !V
  stretto.yield %o : !V
}

// CHECK-LABEL: @real_decays
// CHECK: stretto.decay {{.*}} factor
// CHECK: stretto.decay {{.*}} log
stretto.variant @real_decays() -> () {
  %zero = stretto.constant 0.0 : !number
  %one = stretto.constant 1.0 : !number
  %S0 = stretto.state "S" : !state
  %S1 = stretto.decay %S0 factor %zero : !state, !number
  %S2 = stretto.decay %S1 log %one : !state, !number
  stretto.yield
}

//===----------------------------------------------------------------------===//
// Conditions that are known, by upstream's patterns
//===----------------------------------------------------------------------===//

// CHECK-LABEL: @select
// CHECK-NEXT: stretto.yield %x, %y, %y
stretto.variant @select(%x: !K, %y: !K, %unused: !K {stretto.optional}) -> (!K, !K, !K) {
  %true = arith.constant true
  %false = arith.constant false
  %a = arith.select %true, %x, %y : !K
  %b = arith.select %false, %x, %y : !K
  %c = scf.if %false -> !K {
    %S = stretto.state "S" : !state
    %z = arith.negf %x : !K
    scf.yield %z : !K
  } else {
    scf.yield %y : !K
  }
  stretto.yield %a, %b, %c : !K, !K, !K
}
