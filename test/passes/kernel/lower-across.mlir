// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-products{chip=sm_90a},stretto-select-copies{chip=sm_80}),stretto-plan-shared-memory{chip=sm_90a},kernel.func(stretto-insert-barriers),stretto-lower-to-threads{chip=sm_90a})' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-products{chip=sm_80}),stretto-plan-shared-memory{chip=sm_90a},kernel.func(stretto-insert-barriers),stretto-lower-to-threads{chip=sm_80})' | FileCheck %s --check-prefix=WARPS

// A warpgroup forms all 72 columns that 65 take by the eight; its left operand in registers is 0 behind the 65 that there
// are. The state that lies across is the product of the transposed operands. A row of the table begins at a multiple of
// 16 bytes, and its position is divided by the period once for all rows of a chunk.
// CHECK-LABEL: llvm.func @slots
// CHECK: arith.remui {{.*}} : i64
// CHECK: scf.for
// CHECK: arith.remui {{.*}} : i32
// CHECK-NOT: arith.remui {{.*}} : i64
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: "kernel.warpgroup_product"{{.*}} columns = 72 : i64
// CHECK: arith.select {{.*}} : bf16
// CHECK: "kernel.warpgroup_product"{{.*}} columns = 64 : i64
// CHECK: "kernel.warpgroup_product"{{.*}} columns = 72 : i64{{.*}} transpose_left, transpose_right
// WARPS-LABEL: llvm.func @slots
// WARPS: nvvm.mma.sync
chunk.table @weights period 18 {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.kernel @slots chunk 64 (input %q: tensor<64x128xbf16>, table %weights: tensor<64x65xf32>, state %S: tensor<65x128xf32>, valid %n: index)
    -> (o: tensor<64x128xf32>) {
  %s = arith.truncf %S : tensor<65x128xf32> to tensor<65x128xbf16>
  %p = chunk.dot %q, %s transpose_right : tensor<64x128xbf16>, tensor<65x128xbf16> -> tensor<64x65xf32>
  %p16 = arith.truncf %p : tensor<64x65xf32> to tensor<64x65xbf16>
  %o = chunk.dot %p16, %s : tensor<64x65xbf16>, tensor<65x128xbf16> -> tensor<64x128xf32>
  %w16 = arith.truncf %weights : tensor<64x65xf32> to tensor<64x65xbf16>
  %next = chunk.dot %w16, %q transpose_left add %S : tensor<64x65xbf16>, tensor<64x128xbf16> -> tensor<65x128xf32>
  chunk.yield %o next %next : tensor<64x128xf32>, tensor<65x128xf32>
}
