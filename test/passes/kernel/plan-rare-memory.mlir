// RUN: stretto-opt %s --pass-pipeline='builtin.module(kernel.func(stretto-plan-shared-memory{chip=sm_90a}))' | FileCheck %s

#registers = #kernel.layout<[7, 7], register = [[0, 1], [8, 0], [0, 8], [0, 16], [0, 32], [64, 0]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[16, 0], [32, 0], [0, 64]]>
#shared = #kernel.layout<[7, 7], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], [0, 64], [1, 0], [2, 0], [4, 0], [8, 0], [16, 0], [32, 0], [64, 0]]>

// Four tiles of 64 KiB are more than there is. The three that every turn needs have memory of their own, so that no barrier
// stands between their uses; the one that a condition needs lies where another is that is not needed then.
// CHECK-LABEL: kernel.func @rare
// CHECK-SAME: shared 196608
// CHECK: %[[X:.*]] = kernel.load
// CHECK: kernel.convert %[[X]] offset 0 :
// CHECK: scf.if
// CHECK: kernel.convert %{{.*}} offset 65536 :
// CHECK: } else {
// CHECK: kernel.convert %{{.*}} offset 65536 :
// CHECK: kernel.convert %{{.*}} offset 131072 :
kernel.func @rare(%x: !kernel.view<tensor<128x128xf32>>, %o: !kernel.view<tensor<128x128xf32>>) chunk 128 roles [#kernel.role<all, 8>] {
  %c0 = arith.constant 0 : index
  %tokens = kernel.tokens
  %condition = arith.cmpi sgt, %tokens, %c0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<128x128xf32>> -> tensor<128x128xf32, #registers>
  %s = kernel.convert %a : tensor<128x128xf32, #registers> -> tensor<128x128xf32, #shared>
  %p = scf.if %condition -> tensor<128x128xf32, #registers> {
    %b = arith.addf %a, %a : tensor<128x128xf32, #registers>
    %r = kernel.convert %b : tensor<128x128xf32, #registers> -> tensor<128x128xf32, #shared>
    %d = chunk.dot %r, %s : tensor<128x128xf32, #shared>, tensor<128x128xf32, #shared> -> tensor<128x128xf32, #registers>
    scf.yield %d : tensor<128x128xf32, #registers>
  } else {
    scf.yield %a : tensor<128x128xf32, #registers>
  }
  %t = kernel.convert %p : tensor<128x128xf32, #registers> -> tensor<128x128xf32, #shared>
  %q = chunk.dot %t, %s : tensor<128x128xf32, #shared>, tensor<128x128xf32, #shared> -> tensor<128x128xf32, #registers>
  %u = kernel.convert %q : tensor<128x128xf32, #registers> -> tensor<128x128xf32, #shared>
  %y = chunk.dot %u, %s : tensor<128x128xf32, #shared>, tensor<128x128xf32, #shared> -> tensor<128x128xf32, #registers>
  kernel.store %y to %o at %c0 : tensor<128x128xf32, #registers>, !kernel.view<tensor<128x128xf32>>
  kernel.return
}

// Of two branches one is executed: a tile that both read leaves its bytes to what the first stores when it has read it,
// though the second, which stands behind it, reads it, too. Three tiles of 64 KiB would fit side by side.
// CHECK-LABEL: kernel.func @branches
// CHECK-SAME: shared 131072
// CHECK: kernel.convert %{{.*}} offset 0 :
// CHECK: scf.if
// CHECK: chunk.dot
// CHECK: kernel.convert %{{.*}} offset 0 :
// CHECK: kernel.convert %{{.*}} offset 65536 :
// CHECK: } else {
// CHECK: chunk.dot
kernel.func @branches(%x: !kernel.view<tensor<128x128xf32>>, %o: !kernel.view<tensor<128x128xf32>>) chunk 128 roles [#kernel.role<all, 8>] {
  %c0 = arith.constant 0 : index
  %tokens = kernel.tokens
  %condition = arith.cmpi sgt, %tokens, %c0 : index
  %a = kernel.load %x at %c0 : !kernel.view<tensor<128x128xf32>> -> tensor<128x128xf32, #registers>
  %s = kernel.convert %a : tensor<128x128xf32, #registers> -> tensor<128x128xf32, #shared>
  %p = scf.if %condition -> tensor<128x128xf32, #registers> {
    %b = chunk.dot %s, %s : tensor<128x128xf32, #shared>, tensor<128x128xf32, #shared> -> tensor<128x128xf32, #registers>
    %c = arith.addf %b, %b : tensor<128x128xf32, #registers>
    %r = kernel.convert %b : tensor<128x128xf32, #registers> -> tensor<128x128xf32, #shared>
    %t = kernel.convert %c : tensor<128x128xf32, #registers> -> tensor<128x128xf32, #shared>
    %d = chunk.dot %r, %t : tensor<128x128xf32, #shared>, tensor<128x128xf32, #shared> -> tensor<128x128xf32, #registers>
    scf.yield %d : tensor<128x128xf32, #registers>
  } else {
    %e = chunk.dot %s, %s transpose_right : tensor<128x128xf32, #shared>, tensor<128x128xf32, #shared> -> tensor<128x128xf32, #registers>
    %u = kernel.convert %e : tensor<128x128xf32, #registers> -> tensor<128x128xf32, #shared>
    %f = chunk.dot %u, %u : tensor<128x128xf32, #shared>, tensor<128x128xf32, #shared> -> tensor<128x128xf32, #registers>
    scf.yield %f : tensor<128x128xf32, #registers>
  }
  kernel.store %p to %o at %c0 : tensor<128x128xf32, #registers>, !kernel.view<tensor<128x128xf32>>
  kernel.return
}
