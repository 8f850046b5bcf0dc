// RUN: stretto-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-plan-shared-memory{chip=sm_90a}))' \
// RUN:   | FileCheck %s

// Tiles two deep beside everything else: the sums of warps that share rows have bytes of their own.
// CHECK-LABEL: kernel.func @apart
// CHECK-SAME: shared 33280
// CHECK: kernel.channel depth 2 offset 0
// CHECK: scf.for
// CHECK: kernel.send
// CHECK: chunk.reduce {{.*}}kernel.scratch = 32768
chunk.kernel @apart chunk 64 (input %x: tensor<64x64xf32>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64xf32>) {
  %sum = chunk.reduce sum %x over columns : tensor<64x64xf32> -> tensor<64xf32>
  chunk.yield %sum next %S : tensor<64xf32>, tensor<64x64xf32>
}

// -----

// Two tiles of each input are too large. Channels become one tile deep, what they send next is sent at the end, in order,
// and small regions lie apart, while there is room.
// CHECK-LABEL: kernel.func @serial
// CHECK: %[[X:.*]] = kernel.channel depth 1 offset 0
// CHECK: %[[Y:.*]] = kernel.channel depth 1 offset 131072
// CHECK: scf.for
// CHECK-NEXT: kernel.await
// CHECK-NOT: kernel.send
// CHECK: chunk.reduce {{.*}}kernel.scratch = 196608
// CHECK: chunk.reduce {{.*}}kernel.scratch = 197120
// CHECK: kernel.store
// CHECK: kernel.send {{.*}} to %[[X]]
// CHECK-NEXT: kernel.send {{.*}} to %[[Y]]
// CHECK-NEXT: scf.yield
chunk.kernel @serial chunk 64 (input %x: tensor<64x512xf32>, input %y: tensor<64x256xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64xf32>) {
  %a = chunk.reduce sum %x over columns : tensor<64x512xf32> -> tensor<64xf32>
  %b = chunk.reduce sum %y over columns : tensor<64x256xf32> -> tensor<64xf32>
  %sum = arith.addf %a, %b : tensor<64xf32>
  chunk.yield %sum next %S : tensor<64xf32>, tensor<64x64xf32>
}

// -----

// Not even one tile of each fits beside the other: they are sent where they are read, to the same bytes.
// CHECK-LABEL: kernel.func @late
// CHECK: %[[X:.*]] = kernel.channel depth 1 offset 0
// CHECK-NOT: kernel.send
// CHECK: %[[Y:.*]] = kernel.channel depth 1 offset 0
// CHECK-NOT: kernel.send
// CHECK: scf.for %[[I:[a-z0-9]+]] =
// CHECK: kernel.send %x at %[[I]] to %[[X]]
// CHECK-NEXT: kernel.await
// CHECK-NOT: kernel.send
// CHECK: chunk.reduce
// CHECK: kernel.send %y at %[[I]] to %[[Y]]
// CHECK-NEXT: kernel.await
// CHECK-NOT: kernel.send
// CHECK: chunk.reduce
// CHECK-NOT: kernel.send
// CHECK: scf.yield
chunk.kernel @late chunk 64 (input %x: tensor<64x512xf32>, input %y: tensor<64x512xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64xf32>) {
  %a = chunk.reduce sum %x over columns : tensor<64x512xf32> -> tensor<64xf32>
  %b = chunk.reduce sum %y over columns : tensor<64x512xf32> -> tensor<64xf32>
  %sum = arith.addf %a, %b : tensor<64xf32>
  chunk.yield %sum next %S : tensor<64xf32>, tensor<64x64xf32>
}

// -----

// So it is where chunks do not depend on each other, and no loop goes over them.
// CHECK-LABEL: kernel.func @late_in_a_chunk
// CHECK: %[[X:.*]] = kernel.channel depth 1 offset 0
// CHECK: %[[Y:.*]] = kernel.channel depth 1 offset 0
// CHECK-NOT: scf.for
// CHECK: kernel.send %x at %{{.*}} to %[[X]]
// CHECK-NEXT: kernel.await
// CHECK-NOT: kernel.send
// CHECK: chunk.reduce
// CHECK: kernel.send %y at %{{.*}} to %[[Y]]
// CHECK-NEXT: kernel.await
// CHECK: chunk.reduce
chunk.kernel @late_in_a_chunk chunk 64 (input %x: tensor<64x512xf32>, input %y: tensor<64x512xf32>, valid %n: index)
    -> (o: tensor<64xf32>) {
  %a = chunk.reduce sum %x over columns : tensor<64x512xf32> -> tensor<64xf32>
  %b = chunk.reduce sum %y over columns : tensor<64x512xf32> -> tensor<64xf32>
  %sum = arith.addf %a, %b : tensor<64xf32>
  chunk.yield %sum : tensor<64xf32>
}

// -----

// Carried states that are rounded for two products each lie there for one of them at a time.
// CHECK-LABEL: kernel.func @rounded
// CHECK: scf.for
// CHECK-COUNT-4: arith.truncf
// CHECK: scf.yield
chunk.kernel @rounded chunk 64 (input %x: tensor<64x256xbf16>, input %y: tensor<64x512xf32>, state %S: tensor<256x128xf32>,
                                state %R: tensor<256x128xf32>, valid %n: index) -> (o: tensor<64x128xf32>) {
  %s = arith.truncf %S : tensor<256x128xf32> to tensor<256x128xbf16>
  %r = arith.truncf %R : tensor<256x128xf32> to tensor<256x128xbf16>
  %a = chunk.dot %x, %s : tensor<64x256xbf16>, tensor<256x128xbf16> -> tensor<64x128xf32>
  %b = chunk.dot %x, %r add %a : tensor<64x256xbf16>, tensor<256x128xbf16> -> tensor<64x128xf32>
  %sum = chunk.reduce sum %y over columns : tensor<64x512xf32> -> tensor<64xf32>
  %sums = chunk.broadcast %sum along rows : tensor<64xf32> to tensor<64x128xf32>
  %c = chunk.dot %x, %s add %sums : tensor<64x256xbf16>, tensor<256x128xbf16> -> tensor<64x128xf32>
  %d = chunk.dot %x, %r add %c : tensor<64x256xbf16>, tensor<256x128xbf16> -> tensor<64x128xf32>
  %o = arith.addf %b, %d : tensor<64x128xf32>
  chunk.yield %o next %S, %R : tensor<64x128xf32>, tensor<256x128xf32>, tensor<256x128xf32>
}

// -----

// expected-error @below {{needs 262144 bytes of shared memory, sm_90a has 232448; take smaller chunks or more slices}}
chunk.kernel @large chunk 64 (input %x: tensor<64x1024xf32>, valid %n: index) -> (o: tensor<64xf32>) {
  %sum = chunk.reduce sum %x over columns : tensor<64x1024xf32> -> tensor<64xf32>
  chunk.yield %sum : tensor<64xf32>
}

// -----

// Where each chunk is an item of its own, what follows the loop over other chunks has the bytes of their tiles.
// CHECK-LABEL: kernel.func @items
// CHECK-SAME: shared 147712
// CHECK: kernel.channel depth 1 offset 0 : <tensor<64x384xf32
// CHECK: %[[SUM:.*]] = scf.for
// CHECK: kernel.convert %[[SUM]] offset 0
chunk.kernel @items chunk 64 (input %x: tensor<64x384xf32>, input %w: tensor<64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %first = arith.constant dense<0.0> : tensor<64xf32>
  %sum = chunk.lookback sum from %first : tensor<64xf32> past(%x_j = %x : tensor<64x384xf32>, %w_j = %w : tensor<64xf32>) {
    %weights = chunk.broadcast %w_j along columns : tensor<64xf32> to tensor<64x64xf32>
    chunk.contribute %weights, %x_j : tensor<64x64xf32>, tensor<64x384xf32>
  } : tensor<64x384xf32>
  %o = chunk.dot %sum, %sum transpose_right : tensor<64x384xf32>, tensor<64x384xf32> -> tensor<64x64xf32>
  chunk.yield %o : tensor<64x64xf32>
}

// -----

// Sums that warps leave to each other have bytes of their own, seven times 512, for which the operand of a product does
// without: it lies where a tile was that has been read.
// CHECK-LABEL: kernel.func @few
// CHECK: kernel.channel depth 1 offset 0
// CHECK: kernel.channel depth 1 offset 131072
// CHECK: chunk.reduce {{.*}}kernel.scratch = 196608
// CHECK: chunk.reduce {{.*}}kernel.scratch = 197120
// CHECK: chunk.reduce {{.*}}kernel.scratch = 197632
// CHECK: chunk.reduce {{.*}}kernel.scratch = 198144
// CHECK: chunk.reduce {{.*}}kernel.scratch = 198656
// CHECK: chunk.reduce {{.*}}kernel.scratch = 199168
// CHECK: chunk.reduce {{.*}}kernel.scratch = 199680
// CHECK: kernel.convert {{.*}} offset 0
chunk.kernel @few chunk 64 (input %x: tensor<64x512xf32>, input %y: tensor<64x256xf32>, state %S: tensor<64x128xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>, s: tensor<64xf32>) {
  %a = chunk.reduce sum %x over columns : tensor<64x512xf32> -> tensor<64xf32>
  %b = chunk.reduce sum %y over columns : tensor<64x256xf32> -> tensor<64xf32>
  %c = chunk.reduce max %x over columns : tensor<64x512xf32> -> tensor<64xf32>
  %d = chunk.reduce max %y over columns : tensor<64x256xf32> -> tensor<64xf32>
  %ab = arith.addf %a, %b : tensor<64xf32>
  %cd = arith.addf %c, %d : tensor<64xf32>
  %e = chunk.reduce sum %S over columns : tensor<64x128xf32> -> tensor<64xf32>
  %f = chunk.reduce max %S over columns : tensor<64x128xf32> -> tensor<64xf32>
  %ef = arith.addf %e, %f : tensor<64xf32>
  %abcd = arith.addf %ab, %cd : tensor<64xf32>
  %g = math.exp %S : tensor<64x128xf32>
  %h = chunk.reduce sum %g over columns : tensor<64x128xf32> -> tensor<64xf32>
  %efh = arith.addf %ef, %h : tensor<64xf32>
  %s = arith.addf %abcd, %efh : tensor<64xf32>
  %o = chunk.dot %S, %S transpose_right : tensor<64x128xf32>, tensor<64x128xf32> -> tensor<64x64xf32>
  chunk.yield %o, %s next %S : tensor<64x64xf32>, tensor<64xf32>, tensor<64x128xf32>
}
