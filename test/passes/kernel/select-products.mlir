// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-products{chip=sm_90a}))' | FileCheck %s --check-prefixes=CHECK,WARPGROUPS
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-products{chip=sm_80}))' | FileCheck %s --check-prefixes=CHECK,WARPS
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-assign-layouts,stretto-select-products{chip=sm_90a}))' | FileCheck %s --check-prefix=TWO
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-products{chip=sm_90a}))' | FileCheck %s --check-prefix=ACROSS

// Warpgroups form products with a multiple of 64 rows, whichever way the operands lie. What a product says is kept.
// CHECK-LABEL: kernel.func @chunks_of_64
// CHECK: chunk.dot {{.*}} transpose_right
// WARPGROUPS-SAME: kernel.instruction = #kernel.instruction<wgmma>
// WARPS-SAME: kernel.instruction = #kernel.instruction<mma>
// CHECK: chunk.dot {{.*}}kernel.instruction = #kernel.instruction<mma>
// CHECK: chunk.dot {{.*}} transpose_left
// WARPGROUPS-SAME: kernel.instruction = #kernel.instruction<wgmma>
// WARPS-SAME: kernel.instruction = #kernel.instruction<mma>
chunk.kernel @chunks_of_64 chunk 64 (input %x: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %l = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %l, %x {kernel.instruction = #kernel.instruction<mma>} : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %x, %x transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

// Those of fewer rows are left to warps, and wider operands are multiplied number by number. A state is scaled where the
// product adds to it.
// CHECK-LABEL: kernel.func @chunks_of_32
// CHECK: chunk.dot {{.*}} transpose_right {kernel.instruction = #kernel.instruction<mma>}
// CHECK: chunk.dot {{.*}}{kernel.instruction = #kernel.instruction<fma>}
// WARPGROUPS: arith.mulf
// WARPGROUPS-NEXT: chunk.dot {{.*}}kernel.instruction = #kernel.instruction<wgmma>
chunk.kernel @chunks_of_32 chunk 32 (input %x: tensor<32x64xbf16>, input %y: tensor<32x64xf32>, state %S: tensor<64x64xf32>,
                                     valid %n: index) -> (o: tensor<32x32xf32>, p: tensor<32x32xf32>) {
  %half = arith.constant dense<0.5> : tensor<64x64xf32>
  %decayed = arith.mulf %S, %half : tensor<64x64xf32>
  %o = chunk.dot %x, %x transpose_right : tensor<32x64xbf16>, tensor<32x64xbf16> -> tensor<32x32xf32>
  %p = chunk.dot %y, %y transpose_right : tensor<32x64xf32>, tensor<32x64xf32> -> tensor<32x32xf32>
  %next = chunk.dot %x, %x transpose_left add %decayed : tensor<32x64xbf16>, tensor<32x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o, %p next %next : tensor<32x32xf32>, tensor<32x32xf32>, tensor<64x64xf32>
}

// Sixteen columns are formed by one warpgroup, of which each of two would have eight: those are left to warps.
// CHECK-LABEL: kernel.func @few_columns
// WARPGROUPS: chunk.dot {{.*}} transpose_left {kernel.instruction = #kernel.instruction<wgmma>}
// TWO-LABEL: kernel.func @few_columns
// TWO: chunk.dot {{.*}} transpose_left {kernel.instruction = #kernel.instruction<mma>}
chunk.kernel @few_columns chunk 64 (input %x: tensor<64x64xbf16>, input %y: tensor<64x16xbf16>, valid %n: index) -> (o: tensor<64x16xf32>) {
  %o = chunk.dot %x, %y transpose_left : tensor<64x64xbf16>, tensor<64x16xbf16> -> tensor<64x16xf32>
  chunk.yield %o next : tensor<64x16xf32>
}

// So is the transpose of a result whose columns are a multiple of 64, of as many columns as the result has rows, and what
// has any number of columns.
// ACROSS-LABEL: kernel.func @slots
// ACROSS-COUNT-3: chunk.dot {{.*}} {kernel.instruction = #kernel.instruction<wgmma>}
chunk.kernel @slots chunk 64 (input %q: tensor<64x128xbf16>, input %w: tensor<64x65xf32>, state %S: tensor<65x128xf32>, valid %n: index)
    -> (o: tensor<64x128xf32>) {
  %s = arith.truncf %S : tensor<65x128xf32> to tensor<65x128xbf16>
  %p = chunk.dot %q, %s transpose_right : tensor<64x128xbf16>, tensor<65x128xbf16> -> tensor<64x65xf32>
  %p16 = arith.truncf %p : tensor<64x65xf32> to tensor<64x65xbf16>
  %o = chunk.dot %p16, %s : tensor<64x65xbf16>, tensor<65x128xbf16> -> tensor<64x128xf32>
  %w16 = arith.truncf %w : tensor<64x65xf32> to tensor<64x65xbf16>
  %next = chunk.dot %w16, %q transpose_left add %S : tensor<64x65xbf16>, tensor<64x128xbf16> -> tensor<65x128xf32>
  chunk.yield %o next %next : tensor<64x128xf32>, tensor<65x128xf32>
}
