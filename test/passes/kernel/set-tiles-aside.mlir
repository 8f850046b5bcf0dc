// RUN: stretto-opt %s --split-input-file --pass-pipeline='builtin.module(kernel.func(stretto-set-tiles-aside{registers=40}))' | FileCheck %s
// RUN: stretto-opt %s --split-input-file --pass-pipeline='builtin.module(kernel.func(stretto-set-tiles-aside{registers=240}))' | FileCheck %s --check-prefix=ENOUGH

#registers = #kernel.layout<[6, 6], register = [[0, 1], [8, 0], [0, 8], [0, 16]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[16, 0], [32, 0], [0, 32]]>

// Of three tiles of 16 registers each, the one that rests the longest is left in free memory, behind what the kernel has,
// and comes back right before its next use. Tiles that are used in between stay. One that is loaded is waited for when
// most registers are taken, no earlier.
// CHECK-LABEL: kernel.func @f
// CHECK-SAME: shared 20480
// CHECK: %[[A:.*]] = kernel.load %x
// CHECK-NEXT: %[[B:.*]] = kernel.load %x
// CHECK-NEXT: %[[ASIDE:.*]] = kernel.set_aside %[[A]] offset 4096
// CHECK-NEXT: math.exp %[[B]]
// CHECK-NOT: kernel.take_back
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: %[[BACK:.*]] = kernel.take_back %[[ASIDE]]
// CHECK-NEXT: arith.addf %[[SUM]], %[[BACK]]
// ENOUGH-LABEL: kernel.func @f
// ENOUGH-NOT: kernel.set_aside
kernel.func @f(%x: !kernel.view<tensor<64x64xf32>>, %o: !kernel.view<tensor<64x64xf32>>) chunk 64 roles [#kernel.role<all, 8>] shared 4096 {
  %c0 = arith.constant 0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<64x64xf32>> -> tensor<64x64xf32, #registers>
  %b = kernel.load %x at %c0 : !kernel.view<tensor<64x64xf32>> -> tensor<64x64xf32, #registers>
  %c = math.exp %b : tensor<64x64xf32, #registers>
  %d = arith.mulf %b, %c : tensor<64x64xf32, #registers>
  %e = arith.addf %c, %d : tensor<64x64xf32, #registers>
  %r = arith.addf %e, %a : tensor<64x64xf32, #registers>
  kernel.store %r to %o at %c0 : tensor<64x64xf32, #registers>, !kernel.view<tensor<64x64xf32>>
  kernel.return
}

// -----

#registers = #kernel.layout<[6, 6], register = [[0, 1], [8, 0], [0, 8], [0, 16]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[16, 0], [32, 0], [0, 32]]>

// Most registers are taken behind the sum, where the load is set aside first, and at the product before it: both take
// back what is set aside before the first of them.
// CHECK-LABEL: kernel.func @twice
// CHECK: %[[A:.*]] = kernel.load %x
// CHECK-NEXT: kernel.load %x
// CHECK-NEXT: %[[ASIDE:.*]] = kernel.set_aside %[[A]]
// CHECK: %[[E:.*]] = arith.addf
// CHECK-NEXT: %[[BACK:.*]] = kernel.take_back %[[ASIDE]]
// CHECK-NEXT: arith.addf %[[E]], %[[BACK]]
// CHECK-NOT: kernel.set_aside
// CHECK: %[[AGAIN:.*]] = kernel.take_back %[[ASIDE]]
// CHECK-NEXT: arith.addf %{{.*}}, %[[AGAIN]]
// ENOUGH-LABEL: kernel.func @twice
// ENOUGH-NOT: kernel.set_aside
kernel.func @twice(%x: !kernel.view<tensor<64x64xf32>>, %o: !kernel.view<tensor<64x64xf32>>) chunk 64 roles [#kernel.role<all, 8>] shared 4096 {
  %c0 = arith.constant 0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<64x64xf32>> -> tensor<64x64xf32, #registers>
  %b = kernel.load %x at %c0 : !kernel.view<tensor<64x64xf32>> -> tensor<64x64xf32, #registers>
  %c = math.exp %b : tensor<64x64xf32, #registers>
  %d = arith.mulf %b, %c : tensor<64x64xf32, #registers>
  %e = arith.addf %c, %d : tensor<64x64xf32, #registers>
  %u = arith.addf %e, %a : tensor<64x64xf32, #registers>
  %f = math.exp %u : tensor<64x64xf32, #registers>
  %g = math.exp %f : tensor<64x64xf32, #registers>
  %h = arith.mulf %f, %g : tensor<64x64xf32, #registers>
  %i = arith.addf %h, %g : tensor<64x64xf32, #registers>
  %j = arith.addf %i, %f : tensor<64x64xf32, #registers>
  %r = arith.addf %j, %a : tensor<64x64xf32, #registers>
  kernel.store %r to %o at %c0 : tensor<64x64xf32, #registers>, !kernel.view<tensor<64x64xf32>>
  kernel.return
}

// -----

#registers = #kernel.layout<[6, 6], register = [[0, 1], [8, 0], [0, 8], [0, 16]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[16, 0], [32, 0], [0, 32]]>
#columns = #kernel.layout<[6], register = [[1], [0], [8], [16]], lane = [[2], [4], [0], [0], [0]], warp = [[0], [0], [32]]>

// What is accumulated is set aside, but whoever accumulated it gives its total, which is no use of the tile.
// CHECK-LABEL: kernel.func @total
// CHECK: %[[LATER:.*]] = chunk.accumulate
// CHECK-NEXT: %[[ASIDE:.*]] = kernel.set_aside %[[LATER]]
// CHECK: %[[BACK:.*]] = kernel.take_back %[[ASIDE]]
// CHECK-NEXT: arith.addf %{{.*}}, %[[BACK]]
// CHECK: chunk.total %[[LATER]]
// ENOUGH-LABEL: kernel.func @total
// ENOUGH-NOT: kernel.set_aside
kernel.func @total(%x: !kernel.view<tensor<64x64xf32>>, %o: !kernel.view<tensor<64x64xf32>>, %t: !kernel.view<tensor<64xf32>>) chunk 64 roles [#kernel.role<all, 8>] shared 4096 {
  %c0 = arith.constant 0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<64x64xf32>> -> tensor<64x64xf32, #registers>
  %b = kernel.load %x at %c0 : !kernel.view<tensor<64x64xf32>> -> tensor<64x64xf32, #registers>
  %later = chunk.accumulate sum %a reverse exclusive : tensor<64x64xf32, #registers>
  %c = math.exp %b : tensor<64x64xf32, #registers>
  %d = arith.mulf %b, %c : tensor<64x64xf32, #registers>
  %e = arith.addf %c, %d : tensor<64x64xf32, #registers>
  %r = arith.addf %e, %later : tensor<64x64xf32, #registers>
  %all = chunk.total %later : tensor<64x64xf32, #registers> -> tensor<64xf32, #columns>
  kernel.store %r to %o at %c0 : tensor<64x64xf32, #registers>, !kernel.view<tensor<64x64xf32>>
  kernel.store %all to %t at %c0 : tensor<64xf32, #columns>, !kernel.view<tensor<64xf32>>
  kernel.return
}
