// RUN: stretto-opt %s --pass-pipeline='builtin.module(llvm.func(stretto-expand-device-math))' | FileCheck %s

// Of e^-|x|, which is a fraction, log(1 + y) is a polynomial without a constant term.
// CHECK-LABEL: llvm.func @of_fraction
llvm.func @of_fraction(%x: f32) -> f32 {
  // CHECK: %[[Y:.*]] = llvm.intr.exp2
  // CHECK-NOT: llvm.call_intrinsic
  // CHECK-NOT: arith.cmpf
  // CHECK: %[[P:.*]] = llvm.intr.fma
  // CHECK-NOT: arith.cmpf
  // CHECK: %[[L:.*]] = arith.mulf %[[Y]], %{{.*}} : f32
  // CHECK-NEXT: llvm.return %[[L]]
  %size = math.absf %x : f32
  %negative = arith.negf %size : f32
  %y = math.exp %negative : f32
  %l = math.log1p %y : f32
  llvm.return %l : f32
}

// Of another number, what 1 + y loses is divided by the sum.
// CHECK-LABEL: llvm.func @of_any
llvm.func @of_any(%x: f32) -> f32 {
  // CHECK: llvm.intr.exp2
  // CHECK: llvm.call_intrinsic "llvm.nvvm.div.full.ftz"
  // CHECK: arith.cmpf
  %y = math.exp %x : f32
  %l = math.log1p %y : f32
  llvm.return %l : f32
}

// Where an approximation is asked for, the inverse of the divisor does.
// CHECK-LABEL: llvm.func @approximately
llvm.func @approximately(%x: f32) -> f32 {
  // CHECK: %[[INVERSE:.*]] = llvm.call_intrinsic "llvm.nvvm.rcp.approx.ftz.f"(%{{.*}})
  // CHECK: arith.mulf %{{.*}}, %[[INVERSE]] : f32
  %three = arith.constant 3.0 : f32
  %y = arith.divf %three, %x fastmath<afn> : f32
  llvm.return %y : f32
}
