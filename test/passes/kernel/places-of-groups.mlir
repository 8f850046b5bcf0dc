// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=4 outputs=4 walk=4},kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-pass-late,stretto-share-channels,stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t.planned
// RUN: FileCheck %s <%t.planned
// RUN: stretto-opt %t.planned --stretto-lower-to-threads | FileCheck %s --check-prefix=THREAD

// A parameter that two groups read each of them copies before its first turn, to a place of its own: the second group
// would else write where the first reads.
// CHECK-LABEL: kernel.func @writes.ahead(
// CHECK-SAME: roles [#kernel.role<ahead, 4, 2>]
// CHECK: %[[W:.*]] = kernel.channel depth 1 offset 196608 : <tensor<64xf32,
// CHECK: kernel.send %w to %[[W]]

// THREAD-LABEL: llvm.func @writes(
// THREAD: getelementptr {{.*}}[196608] : (!llvm.ptr<3>
// THREAD-NOT: getelementptr {{.*}}[196608] : (!llvm.ptr<3>
// THREAD: getelementptr {{.*}}[196864] : (!llvm.ptr<3>
// THREAD-NOT: getelementptr {{.*}}[196608] : (!llvm.ptr<3>
chunk.kernel @writes chunk 64 (input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>, parameter %w: tensor<64xf32>,
    state %S: tensor<128x128xf32>, valid %n: index) -> () {
  %factors = chunk.broadcast %w along rows : tensor<64xf32> to tensor<64x128xf32>
  %k32 = arith.extf %k : tensor<64x128xbf16> to tensor<64x128xf32>
  %scaled = arith.mulf %k32, %factors : tensor<64x128xf32>
  %keys = arith.truncf %scaled : tensor<64x128xf32> to tensor<64x128xbf16>
  %next = chunk.dot %keys, %v transpose_left add %S : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
  chunk.yield next %next : tensor<128x128xf32>
}
