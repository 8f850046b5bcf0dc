// RUN: stretto-opt %s --stretto-convert-to-llvm | FileCheck %s

// What is called of the C library is declared.
// CHECK: llvm.func @erff(f32) -> f32

// Functions have the addresses of their buffers.
// CHECK-LABEL: llvm.func @copy(
// CHECK-SAME:    %[[x:.*]]: !llvm.ptr, %[[y:.*]]: !llvm.ptr, %[[i:.*]]: i64)
func.func @copy(%x: memref<4xf32>, %y: memref<4xf32>, %i: index) {
  // CHECK: %[[from:.*]] = llvm.getelementptr {{.*}}[%[[i]]]
  // CHECK: %[[number:.*]] = llvm.load %[[from]] : !llvm.ptr -> f32
  // CHECK: llvm.store %[[number]]
  %number = memref.load %x[%i] : memref<4xf32>
  memref.store %number, %y[%i] : memref<4xf32>
  return
}

// Where LLVM has no operation the C library's function is called; a quotient that is rounded up is written out.
// CHECK-LABEL: llvm.func @elementary
func.func @elementary(%x: f32, %n: index) -> (f32, index) {
  // CHECK: llvm.intr.exp2
  // CHECK: llvm.call @erff
  %p = math.exp2 %x : f32
  %t = math.erf %p : f32
  // CHECK-NOT: arith.
  // CHECK: llvm.udiv
  %two = arith.constant 2 : index
  %half = arith.ceildivui %n, %two : index
  return %t, %half : f32, index
}
