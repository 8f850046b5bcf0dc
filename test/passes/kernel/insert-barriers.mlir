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
