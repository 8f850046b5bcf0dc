// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies,stretto-plan-shared-memory{chip=sm_90a}))' | FileCheck %s

// Two tiles of each input are more than there is: the largest has one place, and its next tile is sent when this one has
// been read, before the rest is computed. The others stay with the memory system.
// CHECK-LABEL: kernel.func @largest
// CHECK: %[[A:.*]] = kernel.channel depth 1
// CHECK: %[[B:.*]] = kernel.channel bulk depth 2
// CHECK: %[[C:.*]] = kernel.channel bulk depth 2
// CHECK: scf.for
// CHECK: %[[TILE:.*]] = kernel.receive %[[A]]
// CHECK: %[[READ:.*]] = kernel.convert %[[TILE]]
// CHECK-NEXT: kernel.send %a at %{{.*}} to %[[A]]
// CHECK: chunk.reduce sum
// CHECK-NOT: kernel.send %a
// CHECK: scf.yield
chunk.kernel @largest chunk 64 (input %a: tensor<64x512xbf16>, input %b: tensor<64x256xbf16>, input %c: tensor<64x256xbf16>,
                                state %S: tensor<16x16xf32>, valid %n: index) -> (o: tensor<64xf32>) {
  %a32 = arith.extf %a : tensor<64x512xbf16> to tensor<64x512xf32>
  %x = chunk.reduce sum %a32 over columns : tensor<64x512xf32> -> tensor<64xf32>
  %b32 = arith.extf %b : tensor<64x256xbf16> to tensor<64x256xf32>
  %y = chunk.reduce sum %b32 over columns : tensor<64x256xf32> -> tensor<64xf32>
  %c32 = arith.extf %c : tensor<64x256xbf16> to tensor<64x256xf32>
  %z = chunk.reduce sum %c32 over columns : tensor<64x256xf32> -> tensor<64xf32>
  %xy = arith.addf %x, %y : tensor<64xf32>
  %o = arith.addf %xy, %z : tensor<64xf32>
  chunk.yield %o next %S : tensor<64xf32>, tensor<16x16xf32>
}

// A tile that nobody reads is not sent: its bytes would be others'.
// CHECK-LABEL: kernel.func @unread
// CHECK-NOT: kernel.send %unread
// CHECK: kernel.send %x
// CHECK-NOT: kernel.send %unread
// CHECK: kernel.return
chunk.kernel @unread chunk 64 (input %unread: tensor<64x64xbf16>, input %x: tensor<64x64xbf16>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  chunk.yield %x : tensor<64x64xbf16>
}

// A walk back has no registers for addresses of copies: the memory system brings the largest, too.
// CHECK-LABEL: kernel.func @largest_back
// CHECK: kernel.channel bulk depth 1
// CHECK: kernel.channel bulk depth 2
// CHECK: kernel.channel bulk depth 2
// CHECK: kernel.return
chunk.kernel @largest_back chunk 64 reverse (input %a: tensor<64x512xbf16>, input %b: tensor<64x256xbf16>, input %c: tensor<64x256xbf16>,
                                             state %S: tensor<16x16xf32>, valid %n: index) -> (o: tensor<64xf32>) {
  %a32 = arith.extf %a : tensor<64x512xbf16> to tensor<64x512xf32>
  %x = chunk.reduce sum %a32 over columns : tensor<64x512xf32> -> tensor<64xf32>
  %b32 = arith.extf %b : tensor<64x256xbf16> to tensor<64x256xf32>
  %y = chunk.reduce sum %b32 over columns : tensor<64x256xf32> -> tensor<64xf32>
  %c32 = arith.extf %c : tensor<64x256xbf16> to tensor<64x256xf32>
  %z = chunk.reduce sum %c32 over columns : tensor<64x256xf32> -> tensor<64xf32>
  %xy = arith.addf %x, %y : tensor<64xf32>
  %o = arith.addf %xy, %z : tensor<64xf32>
  chunk.yield %o next %S : tensor<64xf32>, tensor<16x16xf32>
}

// Three blocks that carry nothing but rows of earlier tokens share a multiprocessor, where their registers suffice: tiles
// come less far ahead for that.
// CHECK-LABEL: kernel.func @rows
// CHECK-SAME: shared [[ROWS:[67][0-9][0-9][0-9][0-9]]] attributes
// CHECK: kernel.channel bulk depth 3
chunk.kernel @rows chunk 64 segments apart(input %k: tensor<64x128xbf16>, parameter %w: tensor<128x64xbf16>,
    state %tail: tensor<3x128xbf16>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  %product = chunk.dot %k, %w : tensor<64x128xbf16>, tensor<128x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %product : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.tail %k valid %n after %tail : tensor<64x128xbf16>, tensor<3x128xbf16>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<3x128xbf16>
}

// Two do of what carries a state.
// CHECK-LABEL: kernel.func @state
// CHECK: kernel.channel bulk depth 4
chunk.kernel @state chunk 64 segments apart(input %k: tensor<64x128xbf16>, parameter %w: tensor<128x64xbf16>,
    state %sum: tensor<3x128xf32>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  %product = chunk.dot %k, %w : tensor<64x128xbf16>, tensor<128x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %product : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = arith.addf %sum, %sum : tensor<3x128xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<3x128xf32>
}
