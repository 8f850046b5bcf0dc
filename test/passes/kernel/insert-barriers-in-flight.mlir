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
