// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-multiply-vectors))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-multiply-vectors,cse,stretto-assign-layouts))' | FileCheck %s --check-prefix=PLACES

// A normaliser: keys are inputs and summed as they came, queries are scaled behind the product, and the state is rounded
// as the other one is, beside which it is read.
// CHECK-LABEL: kernel.func @normaliser
// CHECK: %[[Q:.*]] = kernel.receive
// CHECK: %[[K:.*]] = kernel.receive
// CHECK: %[[Z:.*]] = arith.truncf %{{.*}} : tensor<32xf32> to tensor<32xbf16>
// CHECK: chunk.dot %[[Q]], %{{.*}} : tensor<64x32xbf16>, tensor<32x32xbf16>
// CHECK-NEXT: %[[SUM:.*]] = kernel.matvec %[[Q]], %[[Z]] : tensor<64x32xbf16>, tensor<32xbf16> -> tensor<64xf32>
// CHECK: arith.mulf %[[SUM]], %{{.*}} : tensor<64xf32>
// CHECK: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<64xbf16>
// CHECK: kernel.matvec %[[K]], %[[ONES]] transpose : tensor<64x32xbf16>, tensor<64xbf16> -> tensor<32xf32>
// CHECK-NOT: chunk.reduce
// CHECK: kernel.return

// The vector is repeated in the columns of fragments. It is stored before the other state is, so that one barrier does for
// both.
// PLACES: #[[FRAGMENTS:[a-z0-9]*]] = #kernel.layout<[5], register = {{\[\[}}1], [8], [16]], lane = {{\[\[}}2], [4], [0], [0], [0]], warp = {{\[\[}}0], [0], [0]]>
// PLACES-LABEL: kernel.func @normaliser
// PLACES: %[[STORED:.*]] = kernel.convert %{{.*}} : tensor<32xbf16, #registers{{.*}} -> tensor<32xbf16, #shared
// PLACES: kernel.convert %{{.*}} : tensor<32x32xbf16,
// PLACES: chunk.dot
// PLACES: %[[Z:.*]] = kernel.convert %[[STORED]]
// PLACES: kernel.matvec %{{.*}}, %[[Z]] : {{.*}} tensor<32xbf16, #[[FRAGMENTS]]>
chunk.kernel @normaliser chunk 64 (input %q: tensor<64x32xbf16>, input %k: tensor<64x32xbf16>, state %S: tensor<32x32xf32>,
    state %z: tensor<32xf32>, valid %n: index) -> (o: tensor<64x32xf32>, den: tensor<64xf32>) {
  %scale = arith.constant dense<0.125> : tensor<64x32xf32>
  %q32 = arith.extf %q : tensor<64x32xbf16> to tensor<64x32xf32>
  %scaled = arith.mulf %q32, %scale : tensor<64x32xf32>
  %repeated = chunk.broadcast %z along columns : tensor<32xf32> to tensor<64x32xf32>
  %products = arith.mulf %scaled, %repeated : tensor<64x32xf32>
  %den = chunk.reduce sum %products over columns : tensor<64x32xf32> -> tensor<64xf32>
  %S16 = arith.truncf %S : tensor<32x32xf32> to tensor<32x32xbf16>
  %o = chunk.dot %q, %S16 : tensor<64x32xbf16>, tensor<32x32xbf16> -> tensor<64x32xf32>
  %next = chunk.dot %k, %q transpose_left add %S : tensor<64x32xbf16>, tensor<64x32xbf16> -> tensor<32x32xf32>
  %k32 = arith.extf %k : tensor<64x32xbf16> to tensor<64x32xf32>
  %sum = chunk.reduce sum %k32 over rows : tensor<64x32xf32> -> tensor<32xf32>
  %znext = arith.addf %z, %sum : tensor<32xf32>
  chunk.yield %o, %den next %next, %znext : tensor<64x32xf32>, tensor<64xf32>, tensor<32x32xf32>, tensor<32xf32>
}

// What is computed is rounded where another product rounds it, and so for weighted rows.
// CHECK-LABEL: kernel.func @computed
// CHECK: %[[E:.*]] = math.exp
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[E]] : tensor<64x32xf32> to tensor<64x32xbf16>
// CHECK: %[[W:.*]] = arith.truncf %{{.*}} : tensor<64xf32> to tensor<64xbf16>
// CHECK: kernel.matvec %[[ROUNDED]], %[[W]] transpose
chunk.kernel @computed chunk 64 (input %x: tensor<64x32xbf16>, input %w: tensor<64xf32>, state %S: tensor<32x32xf32>,
    state %z: tensor<32xf32>, valid %n: index) -> () {
  %x32 = arith.extf %x : tensor<64x32xbf16> to tensor<64x32xf32>
  %e = math.exp %x32 : tensor<64x32xf32>
  %repeated = chunk.broadcast %w along rows : tensor<64xf32> to tensor<64x32xf32>
  %weighted = arith.mulf %repeated, %e : tensor<64x32xf32>
  %sum = chunk.reduce sum %weighted over rows : tensor<64x32xf32> -> tensor<32xf32>
  %znext = arith.addf %z, %sum : tensor<32xf32>
  %e16 = arith.truncf %e : tensor<64x32xf32> to tensor<64x32xbf16>
  %next = chunk.dot %e16, %x transpose_left add %S : tensor<64x32xbf16>, tensor<64x32xbf16> -> tensor<32x32xf32>
  chunk.yield next %next, %znext : tensor<32x32xf32>, tensor<32xf32>
}

// Left as they are: sums of columns that threads have; over rows of what a product has on its left the other way round;
// with weights that f16 may be too narrow for; of what no product has on its left; and sides that are no fragments.
// CHECK-LABEL: kernel.func @others
// CHECK-COUNT-5: chunk.reduce
// CHECK-NOT: kernel.matvec
// CHECK: kernel.return
chunk.kernel @others chunk 64 (input %x: tensor<64x32xf16>, input %y: tensor<64x24xf16>, state %S: tensor<32x32xf32>,
    state %z: tensor<32xf32>, state %w: tensor<32xf32>, state %s: tensor<24xf32>, valid %n: index)
    -> (a: tensor<64xf32>, b: tensor<64xf32>, p: tensor<64x32xf32>, r: tensor<64x32xf32>) {
  %x32 = arith.extf %x : tensor<64x32xf16> to tensor<64x32xf32>
  %S16 = arith.truncf %S : tensor<32x32xf32> to tensor<32x32xf16>
  %p = chunk.dot %x, %S16 : tensor<64x32xf16>, tensor<32x32xf16> -> tensor<64x32xf32>
  %a = chunk.reduce sum %x32 over columns : tensor<64x32xf32> -> tensor<64xf32>
  %repeated = chunk.broadcast %z along columns : tensor<32xf32> to tensor<64x32xf32>
  %products = arith.mulf %x32, %repeated : tensor<64x32xf32>
  %b = chunk.reduce sum %products over columns : tensor<64x32xf32> -> tensor<64xf32>
  %e = math.exp %x32 : tensor<64x32xf32>
  %e16 = arith.truncf %e : tensor<64x32xf32> to tensor<64x32xf16>
  %r = chunk.dot %e16, %S16 : tensor<64x32xf16>, tensor<32x32xf16> -> tensor<64x32xf32>
  %c = chunk.reduce sum %e over rows : tensor<64x32xf32> -> tensor<32xf32>
  %l = math.log %e : tensor<64x32xf32>
  %d = chunk.reduce sum %l over rows : tensor<64x32xf32> -> tensor<32xf32>
  %y32 = arith.extf %y : tensor<64x24xf16> to tensor<64x24xf32>
  %f = chunk.reduce sum %y32 over rows : tensor<64x24xf32> -> tensor<24xf32>
  chunk.yield %a, %b, %p, %r next %S, %c, %d, %f : tensor<64xf32>, tensor<64xf32>, tensor<64x32xf32>, tensor<64x32xf32>, tensor<32x32xf32>, tensor<32xf32>, tensor<32xf32>, tensor<24xf32>
}
