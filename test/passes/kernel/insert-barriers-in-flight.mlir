// RUN: stretto-opt %s --pass-pipeline='builtin.module(kernel.func(stretto-insert-barriers))' | FileCheck %s

#registers = #kernel.layout<[6, 6], register = [[0, 1], [8, 0], [0, 8], [0, 16]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = [[16, 0], [32, 0], [0, 32]]>
#shared = #kernel.layout<[6, 6], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16], [0, 32], [1, 8], [2, 16], [4, 32], [8, 0], [16, 0], [32, 0]]>

// Threads arrive at a barrier when their loads are issued. What the memory system copies may be there before these are
// done, as where many stores are before them: they meet behind a fence.
// CHECK-LABEL: kernel.func @loaded
// CHECK: scf.for
// CHECK: kernel.receive
// CHECK: kernel.convert
// CHECK: kernel.barrier fence
// CHECK-NEXT: scf.if
// CHECK-NEXT: kernel.send
kernel.func @loaded(%x: !kernel.view<tensor<64x64xbf16>>, %o: !kernel.view<tensor<64x64xbf16>>) chunk 64 roles [#kernel.role<all, 8>] shared 8200 {
  %begin, %count = kernel.segment
  %c1 = arith.constant 1 : index
  %ring = kernel.channel bulk depth 1 offset 0 barriers 8192 : !kernel.channel<tensor<64x64xbf16, #shared>>
  scf.for %c = %begin to %count step %c1 {
    %tile = kernel.receive %ring at %c turn %c : !kernel.channel<tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    %a = kernel.convert %tile : tensor<64x64xbf16, #shared> -> tensor<64x64xbf16, #registers>
    %next = arith.addi %c, %c1 : index
    %more = arith.cmpi slt, %next, %count : index
    scf.if %more {
      kernel.send %x at %next to %ring turn %next : !kernel.view<tensor<64x64xbf16>>, !kernel.channel<tensor<64x64xbf16, #shared>>
    }
    kernel.store %a to %o at %c : tensor<64x64xbf16, #registers>, !kernel.view<tensor<64x64xbf16>>
  }
  kernel.return
}

// Where threads have met between the loads and the copy for another reason, that is where the fence is.
// CHECK-LABEL: kernel.func @met_before
// CHECK: kernel.receive
// CHECK: kernel.convert
// CHECK-NEXT: kernel.barrier fence
// CHECK-NOT: kernel.barrier
// CHECK: scf.if
// CHECK-NEXT: kernel.send
kernel.func @met_before(%x: !kernel.view<tensor<64x64xbf16>>, %o: !kernel.view<tensor<64x64xbf16>>) chunk 64 roles [#kernel.role<all, 8>] shared 8200 {
  %begin, %count = kernel.segment
  %c1 = arith.constant 1 : index
  %ring = kernel.channel bulk depth 1 offset 0 barriers 8192 : !kernel.channel<tensor<64x64xbf16, #shared>>
  scf.for %c = %begin to %count step %c1 {
    %tile = kernel.receive %ring at %c turn %c : !kernel.channel<tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    %a = kernel.convert %tile : tensor<64x64xbf16, #shared> -> tensor<64x64xbf16, #registers>
    kernel.barrier
    %next = arith.addi %c, %c1 : index
    %more = arith.cmpi slt, %next, %count : index
    scf.if %more {
      kernel.send %x at %next to %ring turn %next : !kernel.view<tensor<64x64xbf16>>, !kernel.channel<tensor<64x64xbf16, #shared>>
    }
    kernel.store %a to %o at %c : tensor<64x64xbf16, #registers>, !kernel.view<tensor<64x64xbf16>>
  }
  kernel.return
}

// A product of warpgroups has read its operands when it is finished.
// CHECK-LABEL: kernel.func @multiplied
// CHECK: kernel.receive
// CHECK: kernel.finish
// CHECK: kernel.barrier{{$}}
// CHECK-NEXT: scf.if
// CHECK-NEXT: kernel.send
kernel.func @multiplied(%x: !kernel.view<tensor<64x64xbf16>>, %o: !kernel.view<tensor<64x64xf32>>) chunk 64 roles [#kernel.role<all, 8>] shared 8200 {
  %begin, %count = kernel.segment
  %c1 = arith.constant 1 : index
  %ring = kernel.channel bulk depth 1 offset 0 barriers 8192 : !kernel.channel<tensor<64x64xbf16, #shared>>
  scf.for %c = %begin to %count step %c1 {
    %tile = kernel.receive %ring at %c turn %c : !kernel.channel<tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    %p = chunk.dot %tile, %tile {kernel.instruction = #kernel.instruction<wgmma>}
      : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
    %done = kernel.finish %p : tensor<64x64xf32, #registers>
    %next = arith.addi %c, %c1 : index
    %more = arith.cmpi slt, %next, %count : index
    scf.if %more {
      kernel.send %x at %next to %ring turn %next : !kernel.view<tensor<64x64xbf16>>, !kernel.channel<tensor<64x64xbf16, #shared>>
    }
    kernel.store %done to %o at %c : tensor<64x64xf32, #registers>, !kernel.view<tensor<64x64xf32>>
  }
  kernel.return
}

// What is loaded is pending once, however many ways lead from the loads to the copy.
// CHECK-LABEL: kernel.func @behind_branches
// CHECK: kernel.convert
// CHECK-COUNT-40: scf.if
// CHECK: kernel.barrier fence
// CHECK-NEXT: scf.if
// CHECK-NEXT: kernel.send
kernel.func @behind_branches(%x: !kernel.view<tensor<64x64xbf16>>, %o: !kernel.view<tensor<64x64xbf16>>) chunk 64 roles [#kernel.role<all, 8>] shared 8200 {
  %begin, %count = kernel.segment
  %c1 = arith.constant 1 : index
  %ring = kernel.channel bulk depth 1 offset 0 barriers 8192 : !kernel.channel<tensor<64x64xbf16, #shared>>
  scf.for %c = %begin to %count step %c1 {
    %tile = kernel.receive %ring at %c turn %c : !kernel.channel<tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    %a = kernel.convert %tile : tensor<64x64xbf16, #shared> -> tensor<64x64xbf16, #registers>
    %next = arith.addi %c, %c1 : index
    %more = arith.cmpi slt, %next, %count : index
    scf.if %more { %x0 = arith.addi %c, %c1 : index }
    scf.if %more { %x1 = arith.addi %c, %c1 : index }
    scf.if %more { %x2 = arith.addi %c, %c1 : index }
    scf.if %more { %x3 = arith.addi %c, %c1 : index }
    scf.if %more { %x4 = arith.addi %c, %c1 : index }
    scf.if %more { %x5 = arith.addi %c, %c1 : index }
    scf.if %more { %x6 = arith.addi %c, %c1 : index }
    scf.if %more { %x7 = arith.addi %c, %c1 : index }
    scf.if %more { %x8 = arith.addi %c, %c1 : index }
    scf.if %more { %x9 = arith.addi %c, %c1 : index }
    scf.if %more { %x10 = arith.addi %c, %c1 : index }
    scf.if %more { %x11 = arith.addi %c, %c1 : index }
    scf.if %more { %x12 = arith.addi %c, %c1 : index }
    scf.if %more { %x13 = arith.addi %c, %c1 : index }
    scf.if %more { %x14 = arith.addi %c, %c1 : index }
    scf.if %more { %x15 = arith.addi %c, %c1 : index }
    scf.if %more { %x16 = arith.addi %c, %c1 : index }
    scf.if %more { %x17 = arith.addi %c, %c1 : index }
    scf.if %more { %x18 = arith.addi %c, %c1 : index }
    scf.if %more { %x19 = arith.addi %c, %c1 : index }
    scf.if %more { %x20 = arith.addi %c, %c1 : index }
    scf.if %more { %x21 = arith.addi %c, %c1 : index }
    scf.if %more { %x22 = arith.addi %c, %c1 : index }
    scf.if %more { %x23 = arith.addi %c, %c1 : index }
    scf.if %more { %x24 = arith.addi %c, %c1 : index }
    scf.if %more { %x25 = arith.addi %c, %c1 : index }
    scf.if %more { %x26 = arith.addi %c, %c1 : index }
    scf.if %more { %x27 = arith.addi %c, %c1 : index }
    scf.if %more { %x28 = arith.addi %c, %c1 : index }
    scf.if %more { %x29 = arith.addi %c, %c1 : index }
    scf.if %more { %x30 = arith.addi %c, %c1 : index }
    scf.if %more { %x31 = arith.addi %c, %c1 : index }
    scf.if %more { %x32 = arith.addi %c, %c1 : index }
    scf.if %more { %x33 = arith.addi %c, %c1 : index }
    scf.if %more { %x34 = arith.addi %c, %c1 : index }
    scf.if %more { %x35 = arith.addi %c, %c1 : index }
    scf.if %more { %x36 = arith.addi %c, %c1 : index }
    scf.if %more { %x37 = arith.addi %c, %c1 : index }
    scf.if %more { %x38 = arith.addi %c, %c1 : index }
    scf.if %more { %x39 = arith.addi %c, %c1 : index }
    scf.if %more {
      kernel.send %x at %next to %ring turn %next : !kernel.view<tensor<64x64xbf16>>, !kernel.channel<tensor<64x64xbf16, #shared>>
    }
    kernel.store %a to %o at %c : tensor<64x64xbf16, #registers>, !kernel.view<tensor<64x64xbf16>>
  }
  kernel.return
}

// The same holds for another role, which copies a tile to the place of one that is released: of two that it sends one is
// loaded, the other multiplied.
// CHECK-LABEL: kernel.func @walk.outputs
// CHECK: %[[A:.*]] = kernel.channel passed 0
// CHECK: %[[B:.*]] = kernel.channel passed 1
// CHECK: kernel.convert
// CHECK-NEXT: kernel.release %[[A]] turn %{{.*}} fence
// CHECK: kernel.finish
// CHECK-NEXT: kernel.release %[[B]] turn %{{[^ ]*}} :
kernel.func @walk.outputs(%x: !kernel.view<tensor<64x64xbf16>>, %o: !kernel.view<tensor<64x64xbf16>>, %y: !kernel.view<tensor<64x64xf32>>) chunk 64 roles [#kernel.role<outputs, 8>] shared 40000 {
  %begin, %count = kernel.segment
  %c1 = arith.constant 1 : index
  %first = kernel.channel passed 0 bulk depth 2 offset 0 barriers 32768 : !kernel.channel<tensor<64x64xbf16, #shared>>
  %second = kernel.channel passed 1 bulk depth 2 offset 16384 barriers 32896 : !kernel.channel<tensor<64x64xbf16, #shared>>
  scf.for %c = %begin to %count step %c1 {
    %a = kernel.receive %first at %c turn %c : !kernel.channel<tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    %loaded = kernel.convert %a : tensor<64x64xbf16, #shared> -> tensor<64x64xbf16, #registers>
    %b = kernel.receive %second at %c turn %c : !kernel.channel<tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    %p = chunk.dot %b, %b {kernel.instruction = #kernel.instruction<wgmma>}
      : tensor<64x64xbf16, #shared>, tensor<64x64xbf16, #shared> -> tensor<64x64xf32, #registers>
    %done = kernel.finish %p : tensor<64x64xf32, #registers>
    kernel.store %loaded to %o at %c : tensor<64x64xbf16, #registers>, !kernel.view<tensor<64x64xbf16>>
    kernel.store %done to %y at %c : tensor<64x64xf32, #registers>, !kernel.view<tensor<64x64xf32>>
  }
  kernel.return
}
