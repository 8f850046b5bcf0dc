// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory{chip=sm_90a},stretto-send-ahead))' | FileCheck %s

// What is one tile deep was sent within the turn before: it is waited for where it is first read. Tiles that came a turn
// ahead are waited for at once. The walk back has few registers to spare: threads meet before they wait for any tile, and
// the assembler knows that what it computes there for products is the same in all lanes.
// CHECK-LABEL: kernel.func @back
// CHECK: %[[A:.*]] = kernel.channel bulk depth 1
// CHECK: %[[B:.*]] = kernel.channel bulk depth 2
// CHECK: %[[C:.*]] = kernel.channel bulk depth 2
// CHECK: scf.for
// CHECK: kernel.barrier
// CHECK-NOT: kernel.receive %[[A]]
// CHECK: kernel.receive %[[B]]
// CHECK-NEXT: kernel.receive %[[C]]
// CHECK-NOT: kernel.receive %[[A]]
// CHECK: chunk.dot {{.*}} transpose_right
// CHECK: kernel.receive %[[A]]
// CHECK-NEXT: chunk.dot {{.*}} transpose_left
// CHECK: kernel.send %a
// CHECK-NEXT: }
// CHECK-NEXT: scf.yield
chunk.kernel @back chunk 64 reverse (input %a: tensor<64x512xbf16>, input %b: tensor<64x256xbf16>, input %c: tensor<64x256xbf16>,
                                     state %S: tensor<64x512xf32>, valid %n: index) -> (o: tensor<64x256xbf16>, p: tensor<64x64xf32>) {
  %s = chunk.dot %b, %c transpose_right : tensor<64x256xbf16>, tensor<64x256xbf16> -> tensor<64x64xf32>
  %rounded = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %rounded, %a transpose_left add %S : tensor<64x64xbf16>, tensor<64x512xbf16> -> tensor<64x512xf32>
  chunk.yield %b, %s next %next : tensor<64x256xbf16>, tensor<64x64xf32>, tensor<64x512xf32>
}

// With few registers the barrier would only cost: none stands before the waits, ...
// CHECK-LABEL: kernel.func @small
// CHECK: scf.for
// CHECK-NOT: kernel.barrier
// CHECK: kernel.receive
// CHECK: kernel.return
chunk.kernel @small chunk 64 reverse (input %b: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %s = chunk.dot %b, %b transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %b, %b transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %s next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

// ... and none in a walk forward.
// CHECK-LABEL: kernel.func @forward
// CHECK: scf.for
// CHECK-NOT: kernel.barrier
// CHECK: kernel.receive
// CHECK: kernel.return
chunk.kernel @forward chunk 64 (input %b: tensor<64x256xbf16>, input %c: tensor<64x512xbf16>, state %S: tensor<64x512xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>) {
  %s = chunk.dot %b, %b transpose_right : tensor<64x256xbf16>, tensor<64x256xbf16> -> tensor<64x64xf32>
  %rounded = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %rounded, %c transpose_left add %S : tensor<64x64xbf16>, tensor<64x512xbf16> -> tensor<64x512xf32>
  chunk.yield %s next %next : tensor<64x64xf32>, tensor<64x512xf32>
}

// What a chunk for itself has no room for is sent before each product that reads it, and stays there, as do those that
// threads copy.
// CHECK-LABEL: kernel.func @crowded
// CHECK: chunk.dot
// CHECK-NEXT: kernel.send %a at %{{.*}} to %[[A:.*]] turn
// CHECK-NEXT: kernel.await
// CHECK-NEXT: chunk.dot
// CHECK-NEXT: kernel.send %a at %{{.*}} to %[[A]] turn
// CHECK-NEXT: kernel.await
// CHECK-NEXT: chunk.dot
chunk.kernel @crowded chunk 64 (input %a: tensor<64x256xf32>, input %b: tensor<64x256xf32>, input %c: tensor<64x256xf32>,
                                input %d: tensor<64x256xf32>, valid %n: index) -> (o: tensor<64x64xf32>, p: tensor<64x64xf32>) {
  %s = chunk.dot %d, %c transpose_right : tensor<64x256xf32>, tensor<64x256xf32> -> tensor<64x64xf32>
  %t = chunk.dot %b, %a transpose_right : tensor<64x256xf32>, tensor<64x256xf32> -> tensor<64x64xf32>
  %u = chunk.dot %c, %a transpose_right add %t : tensor<64x256xf32>, tensor<64x256xf32> -> tensor<64x64xf32>
  chunk.yield %s, %u : tensor<64x64xf32>, tensor<64x64xf32>
}
