// RUN: stretto-opt %s --pass-pipeline='builtin.module(llvm.func(stretto-merge-choices))' | FileCheck %s

// What either choice is computed from is chosen, as far back as both are computed alike: sums over lanes, too. A number
// that is asked for elsewhere stays as it is.
// CHECK-LABEL: llvm.func @softmaxes
// CHECK-SAME: %[[SECOND:.*]]: i1, %[[X:.*]]: f32, %[[Y:.*]]: f32
llvm.func @softmaxes(%second: i1, %x: f32, %y: f32) -> f32 {
  %all = llvm.mlir.constant(-1 : i32) : i32
  %lane = llvm.mlir.constant(1 : i32) : i32
  %last = llvm.mlir.constant(31 : i32) : i32
  %n = arith.negf %y : f32
  // CHECK: %[[N:.*]] = arith.negf %[[Y]]
  // CHECK-NEXT: %[[C:.*]] = arith.select %[[SECOND]], %[[N]], %[[X]] {kernel.choice_of_warp} : f32
  // CHECK-NEXT: %[[E:.*]] = math.exp %[[C]]
  // CHECK-NEXT: %[[S:.*]] = nvvm.shfl.sync bfly %{{.*}}, %[[E]]
  // CHECK-NEXT: %[[T:.*]] = arith.addf %[[E]], %[[S]]
  // CHECK-NEXT: arith.divf %[[E]], %[[T]]
  // CHECK-NOT: math.exp
  %a = math.exp %x : f32
  %a1 = nvvm.shfl.sync bfly %all, %a, %lane, %last : f32 -> f32
  %a2 = arith.addf %a, %a1 : f32
  %p = arith.divf %a, %a2 : f32
  %b = math.exp %n : f32
  %b1 = nvvm.shfl.sync bfly %all, %b, %lane, %last : f32 -> f32
  %b2 = arith.addf %b, %b1 : f32
  %q = arith.divf %b, %b2 : f32
  %z = arith.select %second, %q, %p {kernel.choice_of_warp} : f32
  llvm.return %z : f32
}

// CHECK-LABEL: llvm.func @asked_for
llvm.func @asked_for(%second: i1, %x: f32, %y: f32) -> f32 {
  // CHECK: %[[A:.*]] = math.exp
  // CHECK: %[[B:.*]] = math.exp
  // CHECK: arith.select %{{.*}}, %[[B]], %[[A]] {kernel.choice_of_warp}
  %a = math.exp %x : f32
  %b = math.exp %y : f32
  %z = arith.select %second, %b, %a {kernel.choice_of_warp} : f32
  %sum = arith.addf %z, %a : f32
  llvm.return %sum : f32
}

// Lanes may choose for themselves: what they exchange is not chosen before, nor is anything else.
// CHECK-LABEL: llvm.func @of_lanes
llvm.func @of_lanes(%second: i1, %x: f32, %y: f32) -> f32 {
  // CHECK-COUNT-2: math.exp
  // CHECK: arith.select
  %a = math.exp %x : f32
  %b = math.exp %y : f32
  %z = arith.select %second, %b, %a : f32
  llvm.return %z : f32
}
