// RUN: stretto-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(kernel.func(stretto-insert-barriers))'

#registers = #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>
#shared = #kernel.layout<[4, 4], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 0], [8, 0]]>
kernel.func @convert(%x: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  %0 = kernel.load %x : <tensor<16x16xf32>> -> tensor<16x16xf32, #registers>
  // expected-error @+1 {{has no place in shared memory; run stretto-plan-shared-memory first}}
  %1 = kernel.convert %0 : tensor<16x16xf32, #registers> -> tensor<16x16xf32, #shared>
  kernel.return
}

// -----

#registers = #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>
#shared = #kernel.layout<[4], offset = [[1], [2], [4], [8]]>
kernel.func @row(%x: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  %0 = kernel.load %x : <tensor<16x16xf32>> -> tensor<16x16xf32, #registers>
  // expected-error @+1 {{has no place in shared memory; run stretto-plan-shared-memory first}}
  %1 = chunk.row %0 at 3 : tensor<16x16xf32, #registers> -> tensor<16xf32, #shared>
  kernel.return
}
