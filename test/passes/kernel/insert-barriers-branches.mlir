// RUN: stretto-opt %s --pass-pipeline='builtin.module(kernel.func(stretto-insert-barriers))' | FileCheck %s

#registers = #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>
#shared = #kernel.layout<[4, 4], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 0], [8, 0]]>

// Threads that meet in one branch meet in the other, too, at its end, and not once more behind both.
// CHECK-LABEL: kernel.func @meet
// CHECK: scf.if
// CHECK: kernel.barrier
// CHECK-NEXT: chunk.dot
// CHECK: } else {
// CHECK: arith.addf
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: scf.yield
// CHECK: }
// CHECK-NOT: kernel.barrier
// CHECK: chunk.dot
kernel.func @meet(%x: !kernel.view<tensor<16x16xf32>>, %o: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 4>] shared 1024 {
  %c0 = arith.constant 0 : index
  %tokens = kernel.tokens
  %condition = arith.cmpi sgt, %tokens, %c0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<16x16xf32>> -> tensor<16x16xf32, #registers>
  %s = kernel.convert %a offset 0 : tensor<16x16xf32, #registers> -> tensor<16x16xf32, #shared>
  %p = scf.if %condition -> tensor<16x16xf32, #registers> {
    %d = chunk.dot %s, %s : tensor<16x16xf32, #shared>, tensor<16x16xf32, #shared> -> tensor<16x16xf32, #registers>
    scf.yield %d : tensor<16x16xf32, #registers>
  } else {
    %d = arith.addf %a, %a : tensor<16x16xf32, #registers>
    scf.yield %d : tensor<16x16xf32, #registers>
  }
  %q = chunk.dot %s, %s add %p : tensor<16x16xf32, #shared>, tensor<16x16xf32, #shared> -> tensor<16x16xf32, #registers>
  kernel.store %q to %o at %c0 : tensor<16x16xf32, #registers>, !kernel.view<tensor<16x16xf32>>
  kernel.return
}

// Where no branch meets there is one barrier behind both.
// CHECK-LABEL: kernel.func @meet_behind
// CHECK: scf.if
// CHECK-NOT: kernel.barrier
// CHECK: }
// CHECK: kernel.barrier
// CHECK-NEXT: chunk.dot
kernel.func @meet_behind(%x: !kernel.view<tensor<16x16xf32>>, %o: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 4>] shared 1024 {
  %c0 = arith.constant 0 : index
  %tokens = kernel.tokens
  %condition = arith.cmpi sgt, %tokens, %c0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<16x16xf32>> -> tensor<16x16xf32, #registers>
  %s = kernel.convert %a offset 0 : tensor<16x16xf32, #registers> -> tensor<16x16xf32, #shared>
  %p = scf.if %condition -> tensor<16x16xf32, #registers> {
    %d = arith.mulf %a, %a : tensor<16x16xf32, #registers>
    scf.yield %d : tensor<16x16xf32, #registers>
  } else {
    scf.yield %a : tensor<16x16xf32, #registers>
  }
  %q = chunk.dot %s, %s add %p : tensor<16x16xf32, #shared>, tensor<16x16xf32, #shared> -> tensor<16x16xf32, #registers>
  kernel.store %q to %o at %c0 : tensor<16x16xf32, #registers>, !kernel.view<tensor<16x16xf32>>
  kernel.return
}

// Those that meet in a loop of the rarer branch meet once more behind it: each turn takes the place of what the one
// before has read.
// CHECK-LABEL: kernel.func @meet_in_turns
// CHECK: } else {
// CHECK: scf.for
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: kernel.convert
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: chunk.dot
// CHECK-NEXT: scf.yield
// CHECK-NEXT: }
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: scf.yield
// CHECK-NEXT: }
// CHECK-NOT: kernel.barrier
// CHECK: kernel.return
kernel.func @meet_in_turns(%x: !kernel.view<tensor<16x16xf32>>, %o: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 4>] shared 1024 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %tokens = kernel.tokens
  %condition = arith.cmpi sgt, %tokens, %c0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<16x16xf32>> -> tensor<16x16xf32, #registers>
  %p = scf.if %condition -> tensor<16x16xf32, #registers> {
    scf.yield %a : tensor<16x16xf32, #registers>
  } else {
    %r = scf.for %i = %c0 to %tokens step %c1 iter_args(%b = %a) -> (tensor<16x16xf32, #registers>) {
      %s = kernel.convert %b offset 0 : tensor<16x16xf32, #registers> -> tensor<16x16xf32, #shared>
      %d = chunk.dot %s, %s : tensor<16x16xf32, #shared>, tensor<16x16xf32, #shared> -> tensor<16x16xf32, #registers>
      scf.yield %d : tensor<16x16xf32, #registers>
    }
    scf.yield %r : tensor<16x16xf32, #registers>
  }
  %t = kernel.convert %p offset 0 : tensor<16x16xf32, #registers> -> tensor<16x16xf32, #shared>
  kernel.store %p to %o at %c0 : tensor<16x16xf32, #registers>, !kernel.view<tensor<16x16xf32>>
  kernel.return
}
