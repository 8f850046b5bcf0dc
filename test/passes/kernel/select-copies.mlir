// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies{chip=sm_90a}))' | FileCheck %s --check-prefixes=CHECK,BULK
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-copies{chip=sm_80}))' | FileCheck %s --check-prefixes=CHECK,THREADS
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-copies{chip=sm_90a}))' | FileCheck %s --check-prefix=ACROSS

// Rows of 256 bytes come in boxes, rows of 18 bytes piece by piece, and so do parameters, which come once. Warps store
// whole matrices of numbers of 16 bits, and the output by way of shared memory.
// CHECK-LABEL: kernel.func @f
// BULK: kernel.channel bulk depth 2 : <tensor<64x128xbf16
// THREADS: kernel.channel depth 2 : <tensor<64x128xbf16
// CHECK: kernel.channel depth 2 : <tensor<64x9xbf16
// CHECK: kernel.channel depth 1 : <tensor<128x128xbf16
// CHECK: scf.for
// BULK: kernel.convert {{.*}} matrices : tensor<128x128xbf16, #registers{{.*}}> -> tensor<128x128xbf16, #shared
// THREADS: kernel.convert %{{[0-9]+}} : tensor<128x128xbf16, #registers{{.*}}> -> tensor<128x128xbf16, #shared
// BULK: kernel.store {{.*}} staged matrices
// THREADS: kernel.store %{{[0-9]+}} to %o at %{{.*}} staged :
chunk.kernel @f chunk 64 (input %q: tensor<64x128xbf16>, input %x: tensor<64x9xbf16>, parameter %w: tensor<128x128xbf16>,
                          state %S: tensor<128x128xf32>, valid %n: index) -> (o: tensor<64x128xbf16>) {
  %s = arith.truncf %S : tensor<128x128xf32> to tensor<128x128xbf16>
  %y = chunk.dot %q, %s : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
  %o = arith.truncf %y : tensor<64x128xf32> to tensor<64x128xbf16>
  %next = chunk.dot %q, %q transpose_left add %S : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
  chunk.yield %o next %next : tensor<64x128xbf16>, tensor<128x128xf32>
}

// What a slice has is narrower than a box.
// CHECK-LABEL: kernel.func @slices
// CHECK: kernel.channel depth 2 : <tensor<16x24xbf16
chunk.kernel @slices chunk 16 slices 2 (input %v: tensor<16x24xbf16> sliced, state %S: tensor<1x24xf32> sliced, valid %n: index)
    -> (o: tensor<16x24xbf16> sliced) {
  chunk.yield %v next %S : tensor<16x24xbf16>, tensor<1x24xf32>
}

// Checkpoints of 16 bits are stored like outputs, wider ones fill sectors as they are.
// CHECK-LABEL: kernel.func @checkpoints
// CHECK: kernel.store %{{[^ ]+}} to %Z_1 at %{{[^ ]+}} :
// CHECK: kernel.store %{{[0-9]+}} to %S_0 at %{{.*}} staged
chunk.kernel @checkpoints chunk 64 (input %k: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, state %Z: tensor<64x64xf32>, valid %n: index)
    -> (S: tensor<64x64xbf16> checkpoint, Z: tensor<64x64xf32> checkpoint) {
  %start = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %k, %k transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %start, %Z next %next, %next : tensor<64x64xbf16>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}

// Tiles that look-backs meet have their turns: boxes, but for what a window holds, a ring that threads copy.
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: kernel.func @window
// BULK: kernel.channel bulk depth 2 : <tensor<64x64xbf16
// THREADS: kernel.channel depth 2 : <tensor<64x64xbf16
// CHECK: kernel.send %k_window at %{{.*}} turn
// CHECK: kernel.send %k at %{{.*}} turn
chunk.kernel @window chunk 64 (input %k: tensor<64x64xbf16>, table %position: tensor<64xf32>,
    window %k_window: tensor<80x64xbf16> of "k", valid %n: index) -> (o: tensor<64x64xf32>) {
  %before = arith.constant dense<79.0> : tensor<64xf32>
  %first = arith.subf %position, %before : tensor<64xf32>
  %m, %l, %acc = chunk.lookback softmax from %first : tensor<64xf32> past(%k_j = %k : tensor<64x64xbf16>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %x = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %s, %x : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64x64xf32>
  chunk.yield %acc : tensor<64x64xf32>
}

// Matrices that lie across are stored transposed, and some reach beyond the tile.
// ACROSS-LABEL: kernel.func @slots
// ACROSS: kernel.convert {{.*}} matrices : tensor<65x128xbf16, #registers{{.*}}> -> tensor<65x128xbf16, #shared
// ACROSS: kernel.convert {{.*}} matrices : tensor<64x65xbf16, #registers{{.*}}> -> tensor<64x65xbf16, #shared
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

// What a walk back reads of states at the start of chunks comes in boxes, too: 128 rows of a checkpoint.
// CHECK-LABEL: kernel.func @back
// BULK: kernel.channel bulk depth {{.*}} : <tensor<128x64xbf16
// THREADS: kernel.channel depth {{.*}} : <tensor<128x64xbf16
// CHECK: kernel.send %S at
chunk.kernel @back chunk 64 reverse (input %q: tensor<64x128xbf16>, checkpoint %S: tensor<128x64xbf16>,
    state %d: tensor<128x64xf32>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  %y = chunk.dot %q, %S : tensor<64x128xbf16>, tensor<128x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %y : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %q, %o transpose_left add %d : tensor<64x128xbf16>, tensor<64x64xbf16> -> tensor<128x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<128x64xf32>
}
