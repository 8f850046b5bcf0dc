// RUN: stretto-opt %s --pass-pipeline='builtin.module(kernel.func(stretto-insert-barriers))' | FileCheck %s

#registers = #kernel.layout<[6, 6], register = [[0, 1], [8, 0], [0, 8], [0, 16]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[16, 0], [32, 0], [0, 32]]>
#shared = #kernel.layout<[6, 6], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], [1, 8], [2, 16], [4, 32], [8, 0], [16, 0], [32, 0]]>

// A loop may have no turn, as that over the chunks that a first token looks back at: its barriers do not stand between
// what comes before and what comes behind it.
// CHECK-LABEL: kernel.func @f
// CHECK: kernel.convert %{{.*}} offset 0
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: chunk.dot
// CHECK: scf.for
// CHECK: kernel.barrier
// CHECK: scf.yield
// CHECK: kernel.barrier
// CHECK-NEXT: kernel.convert %{{.*}} offset 0
kernel.func @f(%x: !kernel.view<tensor<64x64xbf16>>, %o: !kernel.view<tensor<64x64xf32>>) chunk 64 roles [#kernel.role<all, 8>] shared 16384 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = kernel.tokens
  %a = kernel.load %x at %c0 : !kernel.view<tensor<64x64xbf16>> -> tensor<64x64xbf16, #registers>
  %s = kernel.convert %a offset 0 : tensor<64x64xbf16, #registers> -> tensor<64x64xbf16, #shared>
  %p = chunk.dot %s, %s : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%before = %p) -> (tensor<64x64xf32, #registers>) {
    %u = kernel.convert %a offset 8192 : tensor<64x64xbf16, #registers> -> tensor<64x64xbf16, #shared>
    %q = chunk.dot %u, %u add %before : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
    scf.yield %q : tensor<64x64xf32, #registers>
  }
  %t = kernel.convert %a offset 0 : tensor<64x64xbf16, #registers> -> tensor<64x64xbf16, #shared>
  %r = chunk.dot %t, %t add %sum : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
  kernel.store %r to %o at %c0 : tensor<64x64xf32, #registers>, !kernel.view<tensor<64x64xf32>>
  kernel.return
}
