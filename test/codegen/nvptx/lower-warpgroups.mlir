// RUN: stretto-opt %s --stretto-lower-warpgroups | FileCheck %s

// Two tiles of 8 columns in two steps. Sums are the results' registers; the second step adds to what the first left.
// CHECK-LABEL: func.func @shared
// CHECK: llvm.inline_asm has_side_effects asm_dialect = att
// CHECK-SAME: wgmma.fence.sync.aligned;
// CHECK-SAME: setp.ne.b32 add, 0, 0;
// CHECK-SAME: add.s64 left, $8, 0;
// CHECK-SAME: add.s64 right, $9, 0;
// CHECK-SAME: wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$0, $1, $2, $3}, left, right, add, 1, 1, 1, 0;
// CHECK-SAME: add.s64 left, $8, 512;
// CHECK-SAME: wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$4, $5, $6, $7}, left, right, add, 1, 1, 1, 0;
// CHECK-SAME: setp.ne.b32 add, 1, 0;
// CHECK-SAME: add.s64 left, $8, 128;
// CHECK-SAME: {$0, $1, $2, $3}
// CHECK-SAME: add.s64 left, $8, 640;
// CHECK-SAME: {$4, $5, $6, $7}
// CHECK-SAME: wgmma.commit_group.sync.aligned;
// CHECK-SAME: "=f,=f,=f,=f,=f,=f,=f,=f,l,l" %{{.*}}, %{{.*}} :
// CHECK: llvm.inline_asm {{.*}}"wgmma.wait_group.sync.aligned 1;", "=f,=f,=f,=f,=f,=f,=f,=f,0,1,2,3,4,5,6,7"
func.func @shared(%left: i64, %right: i64) -> f32 {
  %p:8 = "kernel.warpgroup_product"(%left, %right) <{
    operandSegmentSizes = array<i32: 1, 0, 1, 0>, element = bf16, columns = 8 : i64, blocks = 2 : i64, transpose_left,
    left_offsets = array<i64: 0, 128, 512, 640>, right_offsets = array<i64: 0, 2, 0, 2>}>
    : (i64, i64) -> (f32, f32, f32, f32, f32, f32, f32, f32)
  %r:8 = "kernel.warpgroup_wait"(%p#0, %p#1, %p#2, %p#3, %p#4, %p#5, %p#6, %p#7) <{pending = 1 : i64}>
    : (f32, f32, f32, f32, f32, f32, f32, f32) -> (f32, f32, f32, f32, f32, f32, f32, f32)
  return %r#7 : f32
}

// CHECK-LABEL: func.func @registers
// CHECK: setp.ne.b32 add, 1, 0;
// CHECK-SAME: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, {$4, $5, $6, $7}, right, add, 1, 1, 1;
// CHECK-SAME: "=f,=f,=f,=f,r,r,r,r,l,0,1,2,3"
func.func @registers(%word: i32, %right: i64, %sum: f32) -> f32 {
  %p:4 = "kernel.warpgroup_product"(%word, %word, %word, %word, %right, %sum, %sum, %sum, %sum) <{
    operandSegmentSizes = array<i32: 0, 4, 1, 4>, element = f16, columns = 8 : i64, blocks = 1 : i64, transpose_right,
    left_offsets = array<i64: 0>, right_offsets = array<i64: 0>}>
    : (i32, i32, i32, i32, i64, f32, f32, f32, f32) -> (f32, f32, f32, f32)
  return %p#0 : f32
}
