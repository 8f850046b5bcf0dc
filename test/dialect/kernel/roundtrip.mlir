// RUN: stretto-opt %s | stretto-opt | FileCheck %s
// RUN: stretto-opt %s --mlir-print-op-generic | stretto-opt | FileCheck %s

// CHECK: #registers = #kernel.layout<[4, 4], register = {{\[\[}}0, 1], [8, 0], [0, 8]], lane = {{\[\[}}0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>
// CHECK: #shared = #kernel.layout<[4, 4], offset = {{\[\[}}0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 8], [8, 0]]>
#registers = #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>
#shared = #kernel.layout<[4, 4], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 8], [8, 0]]>

// CHECK-LABEL: kernel.func @every_operation(%x: !kernel.view<tensor<16x16xbf16>>, %S: !kernel.view<tensor<16x16xf32>>,
// CHECK-SAME: %o: !kernel.view<tensor<16x16xbf16>>) chunk 16 roles [#kernel.role<all, 1>] shared 2048 attributes {note = "kept"}
kernel.func @every_operation(%x: !kernel.view<tensor<16x16xbf16>>, %S: !kernel.view<tensor<16x16xf32>>,
                             %o: !kernel.view<tensor<16x16xbf16>>)
    chunk 16 roles [#kernel.role<all, 1>] shared 2048 attributes {note = "kept"} {
  // CHECK: kernel.tokens
  %tokens = kernel.tokens
  // CHECK: kernel.segment
  %begin, %end = kernel.segment
  %c0 = arith.constant 0 : index
  // CHECK: kernel.channel depth 2 offset 512 : <tensor<16x16xbf16, #shared>>
  %ring = kernel.channel depth 2 offset 512 : <tensor<16x16xbf16, #shared>>
  // CHECK: kernel.send %x at %{{.*}} to %{{.*}} : <tensor<16x16xbf16>>, <tensor<16x16xbf16, #shared>>
  kernel.send %x at %c0 to %ring : <tensor<16x16xbf16>>, <tensor<16x16xbf16, #shared>>
  // CHECK: kernel.send %x to %{{.*}} : <tensor<16x16xbf16>>, <tensor<16x16xbf16, #shared>>
  kernel.send %x to %ring : <tensor<16x16xbf16>>, <tensor<16x16xbf16, #shared>>
  // CHECK: kernel.await
  kernel.await
  // CHECK: kernel.receive %{{.*}} at %{{.*}} : <tensor<16x16xbf16, #shared>> -> tensor<16x16xbf16, #shared>
  %tile = kernel.receive %ring at %c0 : <tensor<16x16xbf16, #shared>> -> tensor<16x16xbf16, #shared>
  // CHECK: kernel.receive %{{.*}} : <tensor<16x16xbf16, #shared>> -> tensor<16x16xbf16, #shared>
  %same = kernel.receive %ring : <tensor<16x16xbf16, #shared>> -> tensor<16x16xbf16, #shared>
  // CHECK: kernel.convert %{{.*}} : tensor<16x16xbf16, #shared> -> tensor<16x16xbf16, #registers>
  %mine = kernel.convert %tile : tensor<16x16xbf16, #shared> -> tensor<16x16xbf16, #registers>
  // CHECK: kernel.convert %{{.*}} offset 0 : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
  %ours = kernel.convert %mine offset 0 : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
  // CHECK: kernel.barrier
  kernel.barrier
  // CHECK: kernel.load %S : <tensor<16x16xf32>> -> tensor<16x16xf32, #registers>
  %state = kernel.load %S : <tensor<16x16xf32>> -> tensor<16x16xf32, #registers>
  // CHECK: kernel.store %{{.*}} to %o at %{{.*}} : tensor<16x16xbf16, #registers>, <tensor<16x16xbf16>>
  kernel.store %mine to %o at %c0 : tensor<16x16xbf16, #registers>, <tensor<16x16xbf16>>
  // CHECK: kernel.save %{{.*}} to %S : tensor<16x16xf32, #registers>, <tensor<16x16xf32>>
  kernel.save %state to %S : tensor<16x16xf32, #registers>, <tensor<16x16xf32>>
  // CHECK: kernel.return
  kernel.return
}

// CHECK-LABEL: kernel.func @looks_back(
kernel.func @looks_back(%x: !kernel.view<tensor<16xf32>>, %k: !kernel.view<tensor<16x32xf32>>,
                        %w: !kernel.view<tensor<24x32xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  // CHECK: %[[C:.*]] = kernel.chunk
  %c = kernel.chunk
  %first = kernel.load %x at %c : <tensor<16xf32>> -> tensor<16xf32>
  // CHECK: %[[BEGIN:.*]], %{{.*}} = kernel.span %[[FIRST:.*]] at %[[C]] by 16 : tensor<16xf32>
  %begin, %end = kernel.span %first at %c by 16 : tensor<16xf32>
  // CHECK: kernel.span %[[FIRST]] to %[[FIRST]] at %[[C]] by 16 : tensor<16xf32>, tensor<16xf32>
  %begin1, %end1 = kernel.span %first to %first at %c by 16 : tensor<16xf32>, tensor<16xf32>
  // CHECK: kernel.span wholly %[[FIRST]] at %[[C]] by 16 : tensor<16xf32>
  %whole_begin, %whole_end = kernel.span wholly %first at %c by 16 : tensor<16xf32>
  // CHECK: kernel.span %[[FIRST]] to_end at %[[C]] by 16 : tensor<16xf32>
  %begin2, %end2 = kernel.span %first to_end at %c by 16 : tensor<16xf32>
  // CHECK: kernel.in_range %[[FIRST]] of %[[C]] in %[[BEGIN]] : tensor<16xf32> -> tensor<16x16xi1>
  %pairs = kernel.in_range %first of %c in %begin : tensor<16xf32> -> tensor<16x16xi1>
  // CHECK: kernel.in_range %[[FIRST]] to %[[FIRST]] of %[[C]] in %[[BEGIN]] : tensor<16xf32>, tensor<16xf32> -> tensor<16xi1>
  %tokens = kernel.in_range %first to %first of %c in %begin : tensor<16xf32>, tensor<16xf32> -> tensor<16xi1>
  // CHECK: kernel.in_range %[[FIRST]] to_end of %[[C]] in %[[BEGIN]] : tensor<16xf32> -> tensor<16x16xi1>
  %all = kernel.in_range %first to_end of %c in %begin : tensor<16xf32> -> tensor<16x16xi1>
  // CHECK: kernel.in_range ahead %[[FIRST]] of %[[C]] in %[[BEGIN]] : tensor<16xf32> -> tensor<16x16xi1>
  %ahead = kernel.in_range ahead %first of %c in %begin : tensor<16xf32> -> tensor<16x16xi1>
  // CHECK: kernel.in_range %[[FIRST]] of %[[C]] in %[[BEGIN]] : tensor<16xf32> -> tensor<16x64xi1>
  %more = kernel.in_range %first of %c in %begin : tensor<16xf32> -> tensor<16x64xi1>
  // CHECK: kernel.carry %k at %[[C]] to %w : <tensor<16x32xf32>>, <tensor<24x32xf32>>
  kernel.carry %k at %c to %w : <tensor<16x32xf32>>, <tensor<24x32xf32>>
  kernel.return
}

#aside = #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>
// CHECK-LABEL: func.func @aside
func.func @aside(%tile: tensor<16x16xf32, #aside>) {
  // CHECK: %[[ASIDE:.*]] = kernel.set_aside %{{.*}} offset 1024 : tensor<16x16xf32, #{{.*}}>
  %aside = kernel.set_aside %tile offset 1024 : tensor<16x16xf32, #aside>
  // CHECK: kernel.take_back %[[ASIDE]] : tensor<16x16xf32, #{{.*}}>
  %back = kernel.take_back %aside : tensor<16x16xf32, #aside>
  return
}

// CHECK-LABEL: kernel.func @walks(%x: !kernel.view<tensor<16x16xbf16>>) chunk 16 roles [#kernel.role<walk, 4>] beside @ahead shared 2048
kernel.func @walks(%x: !kernel.view<tensor<16x16xbf16>>) chunk 16 roles [#kernel.role<walk, 4>] beside @ahead shared 2048 {
  %c0 = arith.constant 0 : index
  // CHECK: %[[RING:.*]] = kernel.channel passed 0 depth 2 offset 512 barriers 1024 : <tensor<1xi1>>
  %ring = kernel.channel passed 0 depth 2 offset 512 barriers 1024 : <tensor<1xi1>>
  // CHECK: %[[TILE:.*]] = kernel.receive %[[RING]] turn %c0 : <tensor<1xi1>> -> tensor<1xi1>
  %tile = kernel.receive %ring turn %c0 : <tensor<1xi1>> -> tensor<1xi1>
  // CHECK: kernel.condition %[[TILE]] : tensor<1xi1>
  %condition = kernel.condition %tile : tensor<1xi1>
  // CHECK: kernel.release %[[RING]] turn %c0 : <tensor<1xi1>>
  kernel.release %ring turn %c0 : <tensor<1xi1>>
  kernel.return
}

// CHECK-LABEL: kernel.func @ahead(
kernel.func @ahead(%x: !kernel.view<tensor<16x16xbf16>>) chunk 16 roles [#kernel.role<ahead, 4>] {
  %c0 = arith.constant 0 : index
  %ring = kernel.channel passed 0 depth 2 offset 512 barriers 1024 : <tensor<1xi1>>
  %yes = arith.constant dense<true> : tensor<1xi1>
  // CHECK: kernel.pass %{{.*}} to %{{.*}} turn %c0 : tensor<1xi1>, <tensor<1xi1>> -> tensor<1xi1>
  %left = kernel.pass %yes to %ring turn %c0 : tensor<1xi1>, <tensor<1xi1>> -> tensor<1xi1>
  // CHECK: kernel.pass %{{.*}} to %{{.*}} turn %c0 matrices :
  %again = kernel.pass %yes to %ring turn %c0 matrices : tensor<1xi1>, <tensor<1xi1>> -> tensor<1xi1>
  kernel.return
}
