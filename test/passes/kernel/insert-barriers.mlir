// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-plan-shared-memory{chip=sm_90a},stretto-insert-barriers))' | FileCheck %s

// A tile that other threads wrote is read after a barrier. Tiles that have just arrived need none: `kernel.await` is one.
// CHECK-LABEL: kernel.func @f
// CHECK: scf.for
// CHECK-NEXT: kernel.await
// CHECK-NOT: kernel.barrier
// CHECK: chunk.dot {{.*}} transpose_right
// CHECK-NOT: kernel.barrier
// CHECK: kernel.convert
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: chunk.dot
// CHECK-NOT: kernel.barrier
// CHECK: scf.yield
chunk.kernel @f chunk 64 (input %x: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %l = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %l, %x : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %S : tensor<64x64xf32>, tensor<64x64xf32>
}

// Where channels are one tile deep, the next tile is sent when all have read the one before.
// CHECK-LABEL: kernel.func @serial
// CHECK: kernel.store
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: kernel.send
chunk.kernel @serial chunk 64 (input %x: tensor<64x512xf32>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64xf32>) {
  %a = chunk.reduce sum %x over columns : tensor<64x512xf32> -> tensor<64xf32>
  chunk.yield %a next %S : tensor<64xf32>, tensor<64x64xf32>
}

// Threads meet at the end of the rarer branch, whose tiles then ask for no barrier behind both.
// CHECK-LABEL: kernel.func @branches
// CHECK: scf.if
// CHECK-NOT: kernel.barrier
// CHECK: } else {
// CHECK: kernel.barrier
// CHECK-NEXT: chunk.dot
// CHECK-NEXT: kernel.barrier
// CHECK-NEXT: scf.yield
// CHECK-NEXT: }
// CHECK-NOT: kernel.barrier
// CHECK: kernel.store
chunk.kernel @branches chunk 16 (input %x: tensor<16x32xbf16>, input %w: tensor<16x16xf32>,
    state %S: tensor<32x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %good = chunk.within %w limits [1.0] : tensor<16x16xf32>
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %o = scf.if %good -> (tensor<16x32xf32>) {
    %y = math.exp %x32 : tensor<16x32xf32>
    scf.yield %y : tensor<16x32xf32>
  } else {
    %l = arith.truncf %w : tensor<16x16xf32> to tensor<16x16xbf16>
    %z = chunk.dot %l, %x : tensor<16x16xbf16>, tensor<16x32xbf16> -> tensor<16x32xf32>
    scf.yield %z : tensor<16x32xf32>
  }
  chunk.yield %o next %S : tensor<16x32xf32>, tensor<32x32xf32>
}

// Operands of a walk back that are made before a product are stored before one barrier.
// CHECK-LABEL: kernel.func @stored_together
// CHECK: scf.for
// CHECK: kernel.convert
// CHECK: kernel.convert
// CHECK: kernel.barrier
// CHECK-NEXT: chunk.dot
// CHECK-NOT: kernel.barrier
// CHECK: chunk.dot
// CHECK-NOT: kernel.barrier
// CHECK: scf.yield
chunk.kernel @stored_together chunk 16 reverse (input %x: tensor<16x16xbf16>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (o: tensor<16x16xf32>, p: tensor<16x16xf32>) {
  %a = arith.negf %x : tensor<16x16xbf16>
  %b = math.absf %x : tensor<16x16xbf16>
  %o = chunk.dot %x, %a : tensor<16x16xbf16>, tensor<16x16xbf16> -> tensor<16x16xf32>
  %p = chunk.dot %x, %b : tensor<16x16xbf16>, tensor<16x16xbf16> -> tensor<16x16xf32>
  chunk.yield %o, %p next %S : tensor<16x16xf32>, tensor<16x16xf32>, tensor<32x32xf32>
}
