// RUN: stretto-opt %s --pass-pipeline='builtin.module(kernel.func(stretto-base-two-exponentials))' | FileCheck %s

// The factor goes into the constant of the scores and into the numbers of rows, and the largest score is scaled when it
// is found.
// CHECK-LABEL: kernel.func @scores(
// CHECK-DAG: %[[SCALE:.*]] = arith.constant dense<5.000000e-01> : tensor<16xf32>
// CHECK-DAG: %[[SCALE_OF_TWO:.*]] = arith.constant dense<0.72134751> : tensor<16x16xf32>
// CHECK-DAG: %[[OF_TWO:.*]] = arith.constant dense<1.44269502> : tensor<16xf32>
// CHECK: %[[X:.*]] = kernel.load %x
// CHECK: %[[HERE:.*]] = chunk.reduce max %[[X]] over columns
// CHECK: %[[LARGEST:.*]] = arith.mulf %[[HERE]], %[[SCALE]]
// CHECK: %[[NUMBERS:.*]] = arith.mulf %[[LARGEST]], %[[OF_TWO]]
// CHECK: %[[REPEATED:.*]] = chunk.broadcast %[[NUMBERS]] along rows
// CHECK: %[[EXPONENT:.*]] = arith.mulf %[[X]], %[[SCALE_OF_TWO]]
// CHECK: %[[DIFFERENCE:.*]] = arith.subf %[[EXPONENT]], %[[REPEATED]]
// CHECK: math.exp2 %[[DIFFERENCE]]
// CHECK: kernel.store %[[LARGEST]]
kernel.func @scores(%x: !kernel.view<tensor<16x16xf32>>, %k: !kernel.view<tensor<16x16xbf16>>,
                    %m: !kernel.view<tensor<16xf32>>, %y: !kernel.view<tensor<16x16xf32>>)
    chunk 16 roles [#kernel.role<all, 4>] {
  %c0 = arith.constant 0 : index
  %scale = arith.constant dense<0.5> : tensor<16x16xf32>
  %tile = kernel.load %x at %c0 : !kernel.view<tensor<16x16xf32>> -> tensor<16x16xf32>
  %scores = arith.mulf %tile, %scale : tensor<16x16xf32>
  %largest = chunk.reduce max %scores over columns : tensor<16x16xf32> -> tensor<16xf32>
  %repeated = chunk.broadcast %largest along rows : tensor<16xf32> to tensor<16x16xf32>
  %difference = arith.subf %scores, %repeated : tensor<16x16xf32>
  %weights = math.exp %difference : tensor<16x16xf32>
  kernel.store %largest to %m at %c0 : tensor<16xf32>, !kernel.view<tensor<16xf32>>
  kernel.store %weights to %y at %c0 : tensor<16x16xf32>, !kernel.view<tensor<16x16xf32>>
  kernel.return
}

// What is asked for beside the exponential stays, and so does a difference of two tiles; a factor below 0 makes the
// largest the least.
// CHECK-LABEL: kernel.func @others(
// CHECK: %[[SCORES:.*]] = arith.mulf
// CHECK: chunk.reduce max %[[SCORES]]
// CHECK-COUNT-2: math.exp %
kernel.func @others(%x: !kernel.view<tensor<16x16xf32>>, %k: !kernel.view<tensor<16x16xbf16>>,
                    %m: !kernel.view<tensor<16xf32>>, %y: !kernel.view<tensor<16x16xf32>>)
    chunk 16 roles [#kernel.role<all, 4>] {
  %c0 = arith.constant 0 : index
  %scale = arith.constant dense<-0.5> : tensor<16x16xf32>
  %tile = kernel.load %x at %c0 : !kernel.view<tensor<16x16xf32>> -> tensor<16x16xf32>
  %scores = arith.mulf %tile, %scale : tensor<16x16xf32>
  %largest = chunk.reduce max %scores over columns : tensor<16x16xf32> -> tensor<16xf32>
  %repeated = chunk.broadcast %largest along rows : tensor<16xf32> to tensor<16x16xf32>
  %difference = arith.subf %scores, %repeated : tensor<16x16xf32>
  %weights = math.exp %difference : tensor<16x16xf32>
  %of_tiles = arith.subf %difference, %tile : tensor<16x16xf32>
  %others = math.exp %of_tiles : tensor<16x16xf32>
  %sum = arith.addf %weights, %others : tensor<16x16xf32>
  %all = arith.addf %sum, %difference : tensor<16x16xf32>
  kernel.store %largest to %m at %c0 : tensor<16xf32>, !kernel.view<tensor<16xf32>>
  kernel.store %all to %y at %c0 : tensor<16x16xf32>, !kernel.view<tensor<16x16xf32>>
  kernel.return
}

// The numbers of rows would be rounded once more, where nothing else was rounded as much.
// CHECK-LABEL: kernel.func @wide(
// CHECK: math.exp %
kernel.func @wide(%x: !kernel.view<tensor<16x16xf32>>, %m: !kernel.view<tensor<16xf32>>,
                  %y: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 4>] {
  %c0 = arith.constant 0 : index
  %tile = kernel.load %x at %c0 : !kernel.view<tensor<16x16xf32>> -> tensor<16x16xf32>
  %numbers = kernel.load %m at %c0 : !kernel.view<tensor<16xf32>> -> tensor<16xf32>
  %repeated = chunk.broadcast %numbers along rows : tensor<16xf32> to tensor<16x16xf32>
  %difference = arith.subf %tile, %repeated : tensor<16x16xf32>
  %weights = math.exp %difference : tensor<16x16xf32>
  kernel.store %weights to %y at %c0 : tensor<16x16xf32>, !kernel.view<tensor<16x16xf32>>
  kernel.return
}
