// RUN: stretto-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-products{chip=sm_90a}))'

chunk.kernel @f chunk 16 (input %x: tensor<16x64xbf16>, valid %n: index) -> (o: tensor<16x16xf32>) {
  // expected-error @below {{cannot be formed by wgmma: its rows are not a multiple of 64 that four warps divide}}
  %o = chunk.dot %x, %x transpose_right {kernel.instruction = #kernel.instruction<wgmma>} : tensor<16x64xbf16>, tensor<16x64xbf16> -> tensor<16x16xf32>
  chunk.yield %o : tensor<16x16xf32>
}

// -----

chunk.kernel @f chunk 64 (input %x: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  // expected-error @below {{cannot be formed by wgmma: its operands are not of 16 bits and its result of fp32}}
  %o = chunk.dot %x, %x transpose_right {kernel.instruction = #kernel.instruction<wgmma>} : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  chunk.yield %o : tensor<64x64xf32>
}
