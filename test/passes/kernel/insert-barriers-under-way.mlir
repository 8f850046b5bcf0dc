// RUN: stretto-opt %s --pass-pipeline='builtin.module(kernel.func(stretto-insert-barriers))' | FileCheck %s

#registers = #kernel.layout<[6, 6], register = [[0, 1], [8, 0], [0, 8], [0, 16]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[16, 0], [32, 0], [0, 32]]>
#shared = #kernel.layout<[6, 6], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], [1, 8], [2, 16], [4, 32], [8, 0], [16, 0], [32, 0]]>

// A product is finished before what it reads is overwritten, not where it was to be; what lies elsewhere may be written
// while it is under way.
// CHECK-LABEL: kernel.func @f
// CHECK: kernel.convert %{{.*}} offset 0
// CHECK-NEXT: kernel.barrier fence
// CHECK-NEXT: %[[P:.*]] = chunk.dot
// CHECK-NEXT: kernel.convert %{{.*}} offset 8192
// CHECK-NEXT: %[[DONE:.*]] = kernel.finish %[[P]]
// CHECK-NEXT: kernel.barrier fence
// CHECK-NEXT: kernel.convert %{{.*}} offset 0
// CHECK-NEXT: kernel.barrier fence
// CHECK-NEXT: %[[Q:.*]] = chunk.dot
// CHECK-NEXT: arith.addf %[[DONE]], %[[Q]]
kernel.func @f(%x: !kernel.view<tensor<64x64xbf16>>, %o: !kernel.view<tensor<64x64xf32>>) chunk 64 roles [#kernel.role<all, 8>] shared 16384 {
  %c0 = arith.constant 0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<64x64xbf16>> -> tensor<64x64xbf16, #registers>
  %s = kernel.convert %a offset 0 : tensor<64x64xbf16, #registers> -> tensor<64x64xbf16, #shared>
  %p = chunk.dot %s, %s {kernel.instruction = #kernel.instruction<wgmma>}
    : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
  %u = kernel.convert %a offset 8192 : tensor<64x64xbf16, #registers> -> tensor<64x64xbf16, #shared>
  %t = kernel.convert %a offset 0 : tensor<64x64xbf16, #registers> -> tensor<64x64xbf16, #shared>
  %q = chunk.dot %t, %u {kernel.instruction = #kernel.instruction<wgmma>}
    : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
  %done = kernel.finish %p : tensor<64x64xf32, #registers>
  %r = arith.addf %done, %q : tensor<64x64xf32, #registers>
  kernel.store %r to %o at %c0 : tensor<64x64xf32, #registers>, !kernel.view<tensor<64x64xf32>>
  kernel.return
}

// A product that each warp forms for itself says nothing of one that warpgroups have under way.
// CHECK-LABEL: kernel.func @beside_warps
// CHECK: %[[P:.*]] = chunk.dot
// CHECK-NEXT: %[[W:.*]] = chunk.dot
// CHECK-NEXT: %[[DONE:.*]] = kernel.finish %[[P]]
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: kernel.convert %[[W]] offset 0
kernel.func @beside_warps(%x: !kernel.view<tensor<64x64xbf16>>, %o: !kernel.view<tensor<64x64xf32>>) chunk 64 roles [#kernel.role<all, 8>] shared 16384 {
  %c0 = arith.constant 0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<64x64xbf16>> -> tensor<64x64xbf16, #registers>
  %s = kernel.convert %a offset 0 : tensor<64x64xbf16, #registers> -> tensor<64x64xbf16, #shared>
  %p = chunk.dot %s, %s {kernel.instruction = #kernel.instruction<wgmma>}
    : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
  %w = chunk.dot %s, %s {kernel.instruction = #kernel.instruction<mma>}
    : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
  %t = kernel.convert %w offset 0 : tensor<64x64xf32, #registers> -> tensor<64x64xf32, #shared>
  %u = kernel.convert %t : tensor<64x64xf32, #shared> -> tensor<64x64xf32, #registers>
  %done = kernel.finish %p : tensor<64x64xf32, #registers>
  %r = arith.addf %done, %u : tensor<64x64xf32, #registers>
  kernel.store %r to %o at %c0 : tensor<64x64xf32, #registers>, !kernel.view<tensor<64x64xf32>>
  kernel.return
}
