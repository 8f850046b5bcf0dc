// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{warpgroups=true}))' | FileCheck %s --check-prefix=GROUPS

// What the products of a chunk read lies in shared memory, what they leave in the fragments of eight warps, and the left
// operand of the second product passes through shared memory, because the columns of a row belong to two warps.
// CHECK-DAG: #[[SHARED:.*]] = #kernel.layout<[6, 6], offset = {{.*}}>
// CHECK-DAG: #[[FRAGMENTS:.*]] = #kernel.layout<[6, 6], register = {{.*}}, lane = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 32]]>
// CHECK-DAG: #[[ROWS:.*]] = #kernel.layout<[5, 5], register = {{\[\[}}0, 1], [8, 0], [0, 8], [0, 16]], lane = {{.*}}, warp = {{\[\[}}16, 0], [0, 0]]>
// CHECK-DAG: #[[PARTS:.*]] = #kernel.layout<[5, 5], register = {{\[\[}}0, 1], [8, 0], [0, 8]], lane = {{.*}}, warp = {{\[\[}}16, 0], [0, 16]]>
// CHECK-LABEL: kernel.func @f
// CHECK: %[[X:.*]] = kernel.receive {{.*}} -> tensor<64x64xbf16, #[[SHARED]]>
// CHECK: %[[P:.*]] = chunk.dot %[[X]], %[[X]] transpose_right : tensor<64x64xbf16, #[[SHARED]]>, tensor<64x64xbf16, #[[SHARED]]> -> tensor<64x64xf32, #[[FRAGMENTS]]>
// CHECK: %[[C:.*]] = chunk.causal %[[P]] : tensor<64x64xf32, #[[FRAGMENTS]]>
// CHECK: %[[N:.*]] = arith.truncf %[[C]] : tensor<64x64xf32, #[[FRAGMENTS]]> to tensor<64x64xbf16, #[[FRAGMENTS]]>
// CHECK: %[[L:.*]] = kernel.convert %[[N]] : tensor<64x64xbf16, #[[FRAGMENTS]]> -> tensor<64x64xbf16, #[[SHARED]]>
// CHECK: chunk.dot %[[L]], %[[X]]
chunk.kernel @f chunk 64 (input %x: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %c = chunk.causal %p : tensor<64x64xf32>
  %l = arith.truncf %c : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %l, %x : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %S : tensor<64x64xf32>, tensor<64x64xf32>
}

// A row lies in shared memory, and what is made of it number by number is made where the rows and the columns of a tile
// want it: no thread passes a number to another.
// CHECK-LABEL: kernel.func @row
// CHECK: %[[ROW:.*]] = chunk.row %{{.*}} at 7 : {{.*}} -> tensor<64xf32, #[[VECTOR:shared[0-9]*]]>
// CHECK-NEXT: %[[OFCOLUMNS:.*]] = kernel.convert %[[ROW]]
// CHECK-NEXT: %[[TWICE:.*]] = arith.addf %[[OFCOLUMNS]], %[[OFCOLUMNS]]
// CHECK-NEXT: chunk.broadcast %[[TWICE]] along columns
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: %[[OFROWS:.*]] = kernel.convert %[[ROW]]
// CHECK-NEXT: %[[AGAIN:.*]] = arith.addf %[[OFROWS]], %[[OFROWS]]
// CHECK-NEXT: chunk.broadcast %[[AGAIN]] along rows
chunk.kernel @row chunk 64 (input %x: tensor<64x64xf32>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %r = chunk.row %x at 7 : tensor<64x64xf32> -> tensor<64xf32>
  %t = arith.addf %r, %r : tensor<64xf32>
  %c = chunk.broadcast %t along columns : tensor<64xf32> to tensor<64x64xf32>
  %o = arith.mulf %x, %c : tensor<64x64xf32>
  %w = chunk.broadcast %t along rows : tensor<64xf32> to tensor<64x64xf32>
  %s = arith.mulf %S, %w : tensor<64x64xf32>
  chunk.yield %o next %s : tensor<64x64xf32>, tensor<64x64xf32>
}

// Threads have a constant, and store it where a product reads it.
// CHECK-LABEL: kernel.func @constant_operand
// CHECK: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<64x64xf32, #{{[a-z]*[0-9]*}}>
// CHECK: %[[STORED:.*]] = kernel.convert %[[ONES]]
// CHECK: chunk.dot %{{.*}}, %[[STORED]]
chunk.kernel @constant_operand chunk 64 (input %x: tensor<64x64xf32>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %ones = arith.constant dense<1.0> : tensor<64x64xf32>
  %o = chunk.dot %x, %ones : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  chunk.yield %o next %S : tensor<64x64xf32>, tensor<64x64xf32>
}

// A state of 65 rows lies across where warpgroups form its product: they divide its 128 columns, and have its rows by the
// eight. Of 65 columns each warpgroup has all, which the next product takes from registers. What lies in shared memory
// and goes back there, rounded, all warps divide.
// GROUPS-DAG: #[[ACROSS:.*]] = #kernel.layout<[7, 7], register = {{\[\[}}1, 0], [0, 8], [8, 0], [16, 0], [32, 0], [64, 0]], lane = {{\[\[}}2, 0], [4, 0], [0, 1], [0, 2], [0, 4]], warp = {{\[\[}}0, 16], [0, 32], [0, 64]]>
// GROUPS-DAG: #[[WHOLE:.*]] = #kernel.layout<[6, 7], register = {{\[\[}}0, 1], [8, 0], [0, 8], [0, 16], [0, 32], [0, 64]], lane = {{\[\[}}0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], warp = {{\[\[}}16, 0], [32, 0], [0, 0]]>
// GROUPS-DAG: #[[PIECES:.*]] = #kernel.layout<[6, 7], {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 8]]>
// GROUPS-LABEL: kernel.func @slots
// GROUPS: kernel.load %S : <tensor<65x128xf32>> -> tensor<65x128xf32, #[[ACROSS]]>
// GROUPS: %[[STATE:.*]] = kernel.convert {{.*}} : tensor<65x128xbf16, #[[ACROSS]]> -> tensor<65x128xbf16, #shared
// GROUPS: chunk.dot %{{.*}}, %[[STATE]] transpose_right : {{.*}} -> tensor<64x65xf32, #[[WHOLE]]>
// GROUPS: %[[LEFT:.*]] = arith.truncf {{.*}} : tensor<64x65xf32, #[[WHOLE]]> to tensor<64x65xbf16, #[[WHOLE]]>
// GROUPS: chunk.dot %[[LEFT]], %[[STATE]]
// GROUPS: %[[ROUNDED:.*]] = arith.truncf {{.*}} : tensor<64x65xf32, #[[PIECES]]> to tensor<64x65xbf16, #[[PIECES]]>
// GROUPS: %[[STORED:.*]] = kernel.convert %[[ROUNDED]] : {{.*}} -> tensor<64x65xbf16, #shared
// GROUPS: chunk.dot %[[STORED]], %{{.*}} transpose_left add {{.*}} -> tensor<65x128xf32, #[[ACROSS]]>
chunk.kernel @slots chunk 64 (input %q: tensor<64x128xbf16>, input %w: tensor<64x65xf32>, state %S: tensor<65x128xf32>, valid %n: index)
    -> (o: tensor<64x128xf32>) {
  %s = arith.truncf %S : tensor<65x128xf32> to tensor<65x128xbf16>
  %p = chunk.dot %q, %s transpose_right : tensor<64x128xbf16>, tensor<65x128xbf16> -> tensor<64x65xf32>
  %p16 = arith.truncf %p : tensor<64x65xf32> to tensor<64x65xbf16>
  %o = chunk.dot %p16, %s : tensor<64x65xbf16>, tensor<65x128xbf16> -> tensor<64x128xf32>
  %w16 = arith.truncf %w : tensor<64x65xf32> to tensor<64x65xbf16>
  %next = chunk.dot %w16, %q transpose_left add %S : tensor<64x65xbf16>, tensor<64x128xbf16> -> tensor<65x128xf32>
  chunk.yield %o next %next : tensor<64x128xf32>, tensor<65x128xf32>
}

// Numbers of 32 bits are multiplied by themselves: warps divide what they can.
// GROUPS-LABEL: kernel.func @wide
// GROUPS: chunk.dot {{.*}} -> tensor<65x128xf32, #registers
// GROUPS-NOT: #[[ACROSS]]
// GROUPS: kernel.return
chunk.kernel @wide chunk 64 (input %q: tensor<64x128xf32>, input %w: tensor<64x65xf32>, state %S: tensor<65x128xf32>, valid %n: index)
    -> (o: tensor<64x128xf32>) {
  %next = chunk.dot %w, %q transpose_left add %S : tensor<64x65xf32>, tensor<64x128xf32> -> tensor<65x128xf32>
  chunk.yield %q next %next : tensor<64x128xf32>, tensor<65x128xf32>
}

// Sums of rows of which only sums over tokens are made are in the lanes of every warp, which sum them without a barrier;
// those that multiply a tile's rows stay where these are.
// CHECK-LABEL: kernel.func @sums
// CHECK: chunk.reduce sum %{{.*}} over columns : {{.*}} -> tensor<64xf32, #[[OFROWS:registers[0-9]*]]>
// CHECK: %[[OF:.*]] = chunk.reduce sum %{{.*}} over columns : {{.*}} -> tensor<64xf32, #[[LANES:registers[0-9]*]]>
// CHECK-NEXT: %[[SUMS:.*]] = chunk.accumulate sum %[[OF]] reverse : tensor<64xf32, #[[LANES]]>
// CHECK-NEXT: %[[LAST:.*]] = chunk.row %[[SUMS]] at 0
// CHECK-NEXT: %[[ALL:.*]] = chunk.broadcast %[[LAST]] along rows : {{.*}} to tensor<64xf32, #[[LANES]]>
// CHECK-NEXT: arith.addf %[[SUMS]], %[[ALL]]
// CHECK: chunk.broadcast %{{.*}} along rows : tensor<64xf32, #[[OFROWS]]>
chunk.kernel @sums chunk 64 (input %x: tensor<64x64xf32>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>, g: tensor<64xf32>) {
  %r = chunk.reduce sum %x over columns : tensor<64x64xf32> -> tensor<64xf32>
  %s = chunk.reduce sum %x over columns : tensor<64x64xf32> -> tensor<64xf32>
  %t = chunk.accumulate sum %s reverse : tensor<64xf32>
  %first = chunk.row %t at 0 : tensor<64xf32> -> tensor<f32>
  %all = chunk.broadcast %first along rows : tensor<f32> to tensor<64xf32>
  %g = arith.addf %t, %all : tensor<64xf32>
  %w = chunk.broadcast %r along rows : tensor<64xf32> to tensor<64x64xf32>
  %o = arith.mulf %x, %w : tensor<64x64xf32>
  chunk.yield %o, %g next %S : tensor<64x64xf32>, tensor<64xf32>, tensor<64x64xf32>
}

// Warps have whole rows of a matrix that is inverted, two of them the same where it has 32. The inverse goes on within
// warps, where others of its shape are.
// CHECK-LABEL: kernel.func @inverted
// CHECK: %[[T:.*]] = chunk.inverse %{{.*}} : tensor<32x32xf32, #[[ROWS]]>
// CHECK-NEXT: kernel.convert %[[T]] : tensor<32x32xf32, #[[ROWS]]> -> tensor<32x32xf32, #[[PARTS]]>
chunk.kernel @inverted chunk 32 (input %x: tensor<32x32xbf16>, valid %n: index) -> (o: tensor<32x32xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<32x32xbf16>, tensor<32x32xbf16> -> tensor<32x32xf32>
  %t = chunk.inverse %p : tensor<32x32xf32>
  %o = arith.addf %t, %p : tensor<32x32xf32>
  chunk.yield %o : tensor<32x32xf32>
}
