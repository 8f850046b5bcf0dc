// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warpgroups=true},kernel.func(stretto-assign-layouts{read-again=true warpgroups=true}))' | FileCheck %s

// What a walk back adds totals of lanes to is carried where these are, and the state that decays by them has its channels
// there: nothing passes through shared memory but operands of products.
// CHECK-DAG: #[[TOTALS:registers[0-9]*]] = #kernel.layout<[7], register = {{\[\[}}8]], lane = {{\[\[}}0], [0], [1], [2], [4]], warp = {{\[\[}}16], [32], [64]]>
// CHECK-LABEL: kernel.func @totals(
// CHECK: scf.for {{.*}} -> (tensor<128x128xf32, #{{.*}}>, tensor<128xf32, #[[TOTALS]]>)
// CHECK: %[[ALL:.*]] = chunk.total %{{.*}} -> tensor<128xf32, #[[TOTALS]]>
// CHECK: %[[FACTORS:.*]] = math.exp %[[ALL]] : tensor<128xf32, #[[TOTALS]]>
// CHECK-NEXT: chunk.broadcast %[[FACTORS]] along rows : tensor<128xf32, #[[TOTALS]]>
// CHECK: arith.addf %{{.*}}, %[[ALL]] : tensor<128xf32, #[[TOTALS]]>
// CHECK: scf.yield
// In a walk forwards that keeps states, too, if it has as many warps.
// CHECK-LABEL: kernel.func @keeps(
// CHECK: %[[ALL:.*]] = chunk.total %{{.*}} -> tensor<128xf32, #[[TOTALS]]>
// CHECK: %[[FACTORS:.*]] = math.exp %[[ALL]] : tensor<128xf32, #[[TOTALS]]>
// CHECK-NEXT: chunk.broadcast %[[FACTORS]] along rows : tensor<128xf32, #[[TOTALS]]>
chunk.kernel @totals chunk 32 reverse (input %q: tensor<32x128xbf16>, input %g: tensor<32x128xbf16>, input %d_o: tensor<32x128xbf16>,
    state %S: tensor<128x128xf32>, state %d: tensor<128xf32>, valid %n: index) -> () {
  %g32 = arith.extf %g : tensor<32x128xbf16> to tensor<32x128xf32>
  %sums = chunk.accumulate sum %g32 : tensor<32x128xf32>
  %all = chunk.total %sums : tensor<32x128xf32> -> tensor<128xf32>
  %factors = math.exp %all : tensor<128xf32>
  %rows = chunk.broadcast %factors along rows : tensor<128xf32> to tensor<128x128xf32>
  %decayed = arith.mulf %S, %rows : tensor<128x128xf32>
  %q32 = arith.extf %q : tensor<32x128xbf16> to tensor<32x128xf32>
  %since = math.exp %sums : tensor<32x128xf32>
  %queries = arith.mulf %q32, %since : tensor<32x128xf32>
  %queries16 = arith.truncf %queries : tensor<32x128xf32> to tensor<32x128xbf16>
  %next = chunk.dot %queries16, %d_o transpose_left add %decayed : tensor<32x128xbf16>, tensor<32x128xbf16> -> tensor<128x128xf32>
  %d_next = arith.addf %d, %all : tensor<128xf32>
  chunk.yield next %next, %d_next : tensor<128x128xf32>, tensor<128xf32>
}

chunk.kernel @keeps chunk 32 (input %q: tensor<32x128xbf16>, input %g: tensor<32x128xbf16>, input %d_o: tensor<32x128xbf16>,
    state %S: tensor<128x128xf32>, valid %n: index) -> (S: tensor<128x128xbf16> checkpoint) {
  %kept = arith.truncf %S : tensor<128x128xf32> to tensor<128x128xbf16>
  %g32 = arith.extf %g : tensor<32x128xbf16> to tensor<32x128xf32>
  %sums = chunk.accumulate sum %g32 : tensor<32x128xf32>
  %all = chunk.total %sums : tensor<32x128xf32> -> tensor<128xf32>
  %factors = math.exp %all : tensor<128xf32>
  %rows = chunk.broadcast %factors along rows : tensor<128xf32> to tensor<128x128xf32>
  %decayed = arith.mulf %S, %rows : tensor<128x128xf32>
  %q32 = arith.extf %q : tensor<32x128xbf16> to tensor<32x128xf32>
  %since = math.exp %sums : tensor<32x128xf32>
  %queries = arith.mulf %q32, %since : tensor<32x128xf32>
  %queries16 = arith.truncf %queries : tensor<32x128xf32> to tensor<32x128xbf16>
  %next = chunk.dot %queries16, %d_o transpose_left add %decayed : tensor<32x128xbf16>, tensor<32x128xbf16> -> tensor<128x128xf32>
  chunk.yield %kept next %next : tensor<128x128xbf16>, tensor<128x128xf32>
}
