// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-shorten-lifetimes))' --split-input-file | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-shorten-lifetimes{forwards=true}))' --split-input-file | FileCheck %s --check-prefix=ROOM

// A widened input is widened again where it is used again; what needs the most room, the product of two states, comes
// first, each output is rounded as soon as it is known, and the state that is carried comes last.
// CHECK-LABEL: chunk.kernel @gradient
// CHECK-NEXT: %[[PAIR:.*]] = arith.mulf %S, %d_S : tensor<32x32xf32>
// CHECK-NEXT: %[[SUM:.*]] = chunk.reduce sum %[[PAIR]] over rows
// CHECK-NEXT: %[[ROWS:.*]] = chunk.broadcast %[[SUM]]
// CHECK-NEXT: %[[X0:.*]] = arith.extf %x
// CHECK-NEXT: %[[D_G:.*]] = arith.mulf %[[ROWS]], %[[X0]]
// CHECK-NEXT: %[[X1:.*]] = arith.extf %x
// CHECK-NEXT: %[[READ:.*]] = chunk.dot %[[X1]], %d_S
// CHECK-NEXT: %[[D_X:.*]] = arith.truncf %[[READ]]
// CHECK-NEXT: %[[X2:.*]] = arith.extf %x
// CHECK-NEXT: %[[NEXT:.*]] = chunk.dot %[[X2]], %[[X2]] transpose_left add %d_S
// CHECK-NEXT: chunk.yield %[[D_X]], %[[D_G]] next %[[NEXT]]
chunk.kernel @gradient chunk 16 reverse (input %x: tensor<16x32xbf16>, checkpoint %S: tensor<32x32xf32>,
    state %d_S: tensor<32x32xf32>, valid %n: index) -> (d_x: tensor<16x32xbf16>, d_g: tensor<16x32xf32>) {
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %read = chunk.dot %x32, %d_S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %next = chunk.dot %x32, %x32 transpose_left add %d_S : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  %pair = arith.mulf %S, %d_S : tensor<32x32xf32>
  %sum = chunk.reduce sum %pair over rows : tensor<32x32xf32> -> tensor<32xf32>
  %rows = chunk.broadcast %sum along columns : tensor<32xf32> to tensor<16x32xf32>
  %d_g = arith.mulf %rows, %x32 : tensor<16x32xf32>
  %d_x = arith.truncf %read : tensor<16x32xf32> to tensor<16x32xbf16>
  chunk.yield %d_x, %d_g next %next : tensor<16x32xbf16>, tensor<16x32xf32>, tensor<32x32xf32>
}

// -----

// What walks forwards keeps its order.
// CHECK-LABEL: chunk.kernel @forward
// CHECK-NEXT: %[[X:.*]] = arith.extf %x
// CHECK-NEXT: %[[E:.*]] = math.exp %[[X]]
// CHECK-NEXT: arith.addf %[[E]], %[[X]]
chunk.kernel @forward chunk 16 (input %x: tensor<16x32xbf16>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %e = math.exp %x32 : tensor<16x32xf32>
  %o = arith.addf %e, %x32 : tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// -----

// Unless it has products of 16-bit operands and is asked to make room: then what is widened is widened for each use.
// CHECK-LABEL: chunk.kernel @products
// CHECK-COUNT-1: arith.extf
// CHECK-NOT: arith.extf
// ROOM-LABEL: chunk.kernel @products
// ROOM-COUNT-2: arith.extf
chunk.kernel @products chunk 16 (input %x: tensor<16x32xbf16>, valid %n: index) -> (o: tensor<16x16xf32>, p: tensor<16x32xf32>) {
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %e = math.exp %x32 : tensor<16x32xf32>
  %l = arith.truncf %e : tensor<16x32xf32> to tensor<16x32xbf16>
  %o = chunk.dot %l, %x transpose_right : tensor<16x32xbf16>, tensor<16x32xbf16> -> tensor<16x16xf32>
  %p = arith.addf %e, %x32 : tensor<16x32xf32>
  chunk.yield %o, %p : tensor<16x16xf32>, tensor<16x32xf32>
}

// -----

// What is made of the state that is carried waits for it, though it needs the most room.
// CHECK-LABEL: chunk.kernel @of_carried
// CHECK: arith.truncf
// CHECK: %[[NEXT:.*]] = chunk.dot %{{.*}} transpose_left add %d_S
// CHECK-NEXT: arith.mulf %S, %[[NEXT]]
chunk.kernel @of_carried chunk 16 reverse (input %x: tensor<16x32xbf16>, checkpoint %S: tensor<32x32xf32>,
    state %d_S: tensor<32x32xf32>, valid %n: index) -> (d_x: tensor<16x32xbf16>, d_g: tensor<16x32xf32>) {
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %next = chunk.dot %x32, %x32 transpose_left add %d_S : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  %pair = arith.mulf %S, %next : tensor<32x32xf32>
  %sum = chunk.reduce sum %pair over rows : tensor<32x32xf32> -> tensor<32xf32>
  %d_g = chunk.broadcast %sum along columns : tensor<32xf32> to tensor<16x32xf32>
  %read = chunk.dot %x32, %d_S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %d_x = arith.truncf %read : tensor<16x32xf32> to tensor<16x32xbf16>
  chunk.yield %d_x, %d_g next %next : tensor<16x32xbf16>, tensor<16x32xf32>, tensor<32x32xf32>
}

// -----

// Operands of several products come first, all together, and what is cheap is made anew within branches.
// CHECK-LABEL: chunk.kernel @shared_operands
// CHECK-NOT: chunk.dot
// CHECK: %[[L:.*]] = arith.truncf
// CHECK-NOT: chunk.dot
// CHECK: %[[R:.*]] = arith.truncf
// CHECK: chunk.dot %[[L]], %[[R]]
// CHECK: scf.if
// CHECK-NEXT: arith.extf %x
chunk.kernel @shared_operands chunk 16 reverse (input %x: tensor<16x32xbf16>, input %c: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x16xf32>, p: tensor<16x16xf32>, r: tensor<16x32xf32>) {
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %e = math.exp %x32 : tensor<16x32xf32>
  %l = arith.truncf %e : tensor<16x32xf32> to tensor<16x32xbf16>
  %o = chunk.dot %l, %l transpose_right : tensor<16x32xbf16>, tensor<16x32xbf16> -> tensor<16x16xf32>
  %a = math.absf %x32 : tensor<16x32xf32>
  %k = arith.truncf %a : tensor<16x32xf32> to tensor<16x32xbf16>
  %s = chunk.dot %k, %k transpose_right : tensor<16x32xbf16>, tensor<16x32xbf16> -> tensor<16x16xf32>
  %p = chunk.dot %l, %k transpose_right add %s : tensor<16x32xbf16>, tensor<16x32xbf16> -> tensor<16x16xf32>
  %good = chunk.within %c limits [1.0] : tensor<16xf32>
  %r = scf.if %good -> (tensor<16x32xf32>) {
    %y = math.sqrt %x32 : tensor<16x32xf32>
    scf.yield %y : tensor<16x32xf32>
  } else {
    scf.yield %x32 : tensor<16x32xf32>
  }
  chunk.yield %o, %p, %r : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x32xf32>
}

// -----

// What is the last to ask for a tile comes before what leaves another one: %p is rounded for two products at first, and
// gone when its squares are summed, while %w is asked for once more.
// CHECK-LABEL: chunk.kernel @last_to_ask
// CHECK: %[[P:.*]] = math.exp
// CHECK-NEXT: arith.truncf %[[P]]
// CHECK-NOT: math.exp
// CHECK: %[[SQUARES:.*]] = arith.mulf %[[P]], %[[P]]
// CHECK-NEXT: chunk.reduce sum %[[SQUARES]]
// CHECK: %[[W:.*]] = math.exp
// CHECK-NEXT: arith.mulf %[[W]], %[[W]]
chunk.kernel @last_to_ask chunk 16 reverse (input %x: tensor<16x64xbf16>, input %y: tensor<16x128xbf16>,
    state %d_S: tensor<32x32xf32>, valid %n: index) -> (d_x: tensor<16x16xf32>, d_y: tensor<16x128xf32>, d_g: tensor<16xf32>) {
  %x32 = arith.extf %x : tensor<16x64xbf16> to tensor<16x64xf32>
  %y32 = arith.extf %y : tensor<16x128xbf16> to tensor<16x128xf32>
  %p = math.exp %x32 : tensor<16x64xf32>
  %w = math.exp %y32 : tensor<16x128xf32>
  %rounded = arith.truncf %p : tensor<16x64xf32> to tensor<16x64xbf16>
  %ww = arith.mulf %w, %w : tensor<16x128xf32>
  %sw = chunk.reduce sum %ww over columns : tensor<16x128xf32> -> tensor<16xf32>
  %pp = arith.mulf %p, %p : tensor<16x64xf32>
  %sp = chunk.reduce sum %pp over columns : tensor<16x64xf32> -> tensor<16xf32>
  %d_g = arith.addf %sw, %sp : tensor<16xf32>
  %own = chunk.dot %rounded, %rounded transpose_right : tensor<16x64xbf16>, tensor<16x64xbf16> -> tensor<16x16xf32>
  %d_x = chunk.dot %rounded, %x transpose_right add %own : tensor<16x64xbf16>, tensor<16x64xbf16> -> tensor<16x16xf32>
  chunk.yield %d_x, %w, %d_g next %d_S : tensor<16x16xf32>, tensor<16x128xf32>, tensor<16xf32>, tensor<32x32xf32>
}

// -----

// So is a factor of which one is subtracted, or that tokens behind the end do not have, and its inverse where it may be
// approximate.
// CHECK-LABEL: chunk.kernel @cheap
// CHECK: chunk.mask
// CHECK: arith.subf
// CHECK: chunk.dot
// CHECK: %[[MASKED:.*]] = chunk.mask
// CHECK-NEXT: arith.divf %{{.*}}, %[[MASKED]] fastmath<afn>
// CHECK: arith.subf
// CHECK: chunk.yield
chunk.kernel @cheap chunk 16 reverse (input %x: tensor<16x32xbf16>, state %d_S: tensor<32x32xf32>, valid %n: index)
    -> (a: tensor<16x32xf32>, b: tensor<16x32xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x32xf32>
  %x32 = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
  %masked = chunk.mask %x32 valid %n else 1.0 : tensor<16x32xf32>
  %inverse = arith.divf %one, %masked fastmath<afn> : tensor<16x32xf32>
  %rest = arith.subf %one, %x32 : tensor<16x32xf32>
  %product = arith.mulf %masked, %rest : tensor<16x32xf32>
  %read = chunk.dot %product, %d_S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %a = arith.mulf %read, %inverse : tensor<16x32xf32>
  %b = arith.mulf %a, %rest : tensor<16x32xf32>
  chunk.yield %a, %b next %d_S : tensor<16x32xf32>, tensor<16x32xf32>, tensor<32x32xf32>
}
