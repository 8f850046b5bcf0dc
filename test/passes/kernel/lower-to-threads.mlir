// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-products,stretto-plan-shared-memory{chip=sm_90a},stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s

// One thread of four warps: 16 rows of the result for each, in fragments of 8 columns, of which a tile of 9 columns fills
// the second in part. The input has 128 pieces of 16 bytes, one for each thread; the pieces of the weights are left to the
// first threads; of the vector each warp loads the 64 numbers, two in a lane, before it waits for tiles. There is no
// state: a block has one chunk, whose sequence it finds among those of a packed batch by bisection.
// CHECK-LABEL: llvm.func @f
// CHECK-SAME: nvvm.reqntid = array<i32: 128, 1, 1>
// CHECK: scf.for
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache =  cg
// CHECK: scf.if
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache =  cg
// CHECK-COUNT-2: llvm.load {{.*}} -> f32
// CHECK: nvvm.cp.async.commit.group
// CHECK-NEXT: nvvm.cp.async.wait.group 0
// CHECK-NEXT: nvvm.barrier
// CHECK-COUNT-2: nvvm.ldmatrix
// CHECK-COUNT-2: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: llvm.return
chunk.kernel @f chunk 64 (input %x: tensor<64x16xbf16>, parameter %w: tensor<9x16xbf16>, input %g: tensor<64xf32>,
                          valid %n: index) -> (o: tensor<64x9xf32>, r: tensor<64xf32>) {
  %o = chunk.dot %x, %w transpose_right : tensor<64x16xbf16>, tensor<9x16xbf16> -> tensor<64x9xf32>
  %r = arith.negf %g : tensor<64xf32>
  chunk.yield %o, %r : tensor<64x9xf32>, tensor<64xf32>
}

// A thread solves for one column, sixteen rows at a time: what is done before them contributes first.
// CHECK-LABEL: llvm.func @solve
// CHECK: nvvm.barrier
// CHECK: scf.if
// CHECK: scf.for
// CHECK: scf.for {{.*}} iter_args
// CHECK: scf.yield
// CHECK-COUNT-120: arith.subf
// CHECK-NOT: arith.subf
// CHECK: nvvm.barrier
// CHECK: llvm.return
chunk.kernel @solve chunk 64 (input %l: tensor<64x64xf32>, input %x: tensor<64x32xf32>, valid %n: index) -> (o: tensor<64x32xf32>) {
  %o = chunk.solve %l, %x : tensor<64x64xf32>, tensor<64x32xf32>
  chunk.yield %o : tensor<64x32xf32>
}

// Each of four warps stores its row of blocks of 16 by 16: those below the diagonal as words, rounded and what that takes,
// that of the diagonal as numbers, of which a lane then inverts a column by substitution. Behind one barrier products of
// three parts make the blocks below: 2 blocks of 16 columns, two halves each, for the second row, 5 and 9 for the others.
// CHECK-LABEL: llvm.func @inverse
// CHECK: scf.if
// CHECK-NOT: llvm.store {{.*}} : i32
// CHECK: scf.if
// CHECK-COUNT-8: llvm.store {{.*}} : i32
// CHECK: scf.if
// CHECK-COUNT-16: llvm.store {{.*}} : i32
// CHECK: scf.if
// CHECK-COUNT-24: llvm.store {{.*}} : i32
// CHECK-NOT: llvm.store {{.*}} : i32
// CHECK: nvvm.bar.warp.sync
// CHECK-COUNT-120: arith.subf {{.*}}, %{{.*}} : f32
// CHECK: nvvm.barrier
// CHECK-NOT: nvvm.mma.sync
// CHECK: scf.if
// CHECK: nvvm.ldmatrix
// CHECK-NOT: nvvm.mma.sync
// CHECK: scf.if
// CHECK-COUNT-12: nvvm.mma.sync
// CHECK: scf.if
// CHECK-COUNT-30: nvvm.mma.sync
// CHECK: scf.if
// CHECK-COUNT-54: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: llvm.return
chunk.kernel @inverse chunk 64 (input %l: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %o = chunk.inverse %l : tensor<64x64xf32>
  chunk.yield %o : tensor<64x64xf32>
}

// A thread scans one column.
// CHECK-LABEL: llvm.func @scan
// CHECK: scf.for
// CHECK: math.log1p
// CHECK-NOT: math.log1p
// CHECK: llvm.return
chunk.kernel @scan chunk 64 (input %x: tensor<64x32xf32>, state %L: tensor<1x32xf32> lowest, valid %n: index) -> (o: tensor<64x32xf32>) {
  %o = chunk.scan logaddexp %x from %L : tensor<64x32xf32>, tensor<1x32xf32>
  %next = chunk.tail %o valid %n after %L : tensor<64x32xf32>, tensor<1x32xf32>
  chunk.yield %o next %next : tensor<64x32xf32>, tensor<1x32xf32>
}

// A thread sums its own 8 numbers of the result, two columns in a step.
// CHECK-LABEL: llvm.func @mix
// CHECK: scf.for {{.*}} iter_args
// CHECK-COUNT-8: arith.select
// CHECK: scf.yield
chunk.kernel @mix chunk 64 (input %w: tensor<64x64xf32>, input %x: tensor<64x16xf32>, input %g: tensor<64x16xf32>, valid %n: index)
    -> (o: tensor<64x16xf32>) {
  %o = chunk.decay_mix %w, %x log %g {exact} : tensor<64x64xf32>, tensor<64x16xf32>, tensor<64x16xf32> -> tensor<64x16xf32>
  chunk.yield %o : tensor<64x16xf32>
}

// A thread has one column of the pairs: for sixteen queries what they see of the keys so far, first up to their block,
// then within it.
// CHECK-LABEL: llvm.func @pairs
// CHECK: scf.for
// CHECK: scf.for
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32)
// CHECK: scf.yield
// CHECK: nvvm.barrier
// CHECK: llvm.return
chunk.kernel @pairs chunk 64 (input %q: tensor<64x32xf32>, input %k: tensor<64x32xf32>, input %w: tensor<64x64xf32>,
                              input %f: tensor<64x32xf32>, valid %n: index) -> (o: tensor<64x32xf32>) {
  %o = chunk.decay_pairs %q, %k, %w factor %f : tensor<64x32xf32>, tensor<64x64xf32>, tensor<64x32xf32>
  chunk.yield %o : tensor<64x32xf32>
}

// Sums for tokens before the chunk are carried; a token that does not exist gives nothing. A walk in reverse begins with
// the last chunk, and copies nothing before the first. A thread has a token of two channels: it reads both in one access,
// first of the three rows that give to one before the chunk, and of what was left for that, then of its own and those
// behind it. What was left for the last tokens is read by their threads alone.
// CHECK-LABEL: llvm.func @back
// CHECK: %[[BEFORE:.*]] = arith.cmpi slt, %{{.*}}, %c0_i64
// CHECK: arith.select %[[BEFORE]], %{{.*}}, %{{.*}} : i32
// CHECK: scf.for
// CHECK: nvvm.barrier
// CHECK: nvvm.barrier
// CHECK-COUNT-8: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<2xf32>
// CHECK: %[[LAST:.*]] = arith.andi %{{.*}}, %{{.*}} : i1
// CHECK: scf.if %[[LAST]] -> (f32, f32) {
// CHECK-COUNT-1: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<2xf32>
// CHECK-NOT: !llvm.ptr<3> -> vector<2xf32>
// CHECK: llvm.return
chunk.kernel @back chunk 16 reverse (input %x: tensor<16x32xf32>, parameter %taps: tensor<32x4xf32>,
                                     state %carry: tensor<3x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %o, %next = chunk.conv_back %x, %taps valid %n after %carry : tensor<16x32xf32>, tensor<32x4xf32>, tensor<3x32xf32> -> tensor<16x32xf32>
  chunk.yield %o next %next : tensor<16x32xf32>, tensor<3x32xf32>
}

// A thread has a row of two channels: it multiplies it with its own row of the other tile and with the one before, leaves
// two sums for each channel beside those of the seven other threads of these, and adds up eight of them.
// CHECK-LABEL: llvm.func @taps
// CHECK: scf.for
// CHECK-COUNT-3: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<2xf32>
// CHECK-NOT: !llvm.ptr<3> -> vector<2xf32>
// CHECK-COUNT-2: llvm.store %{{.*}}, %{{.*}} {{.*}} : vector<2xf32>, !llvm.ptr<3>
// CHECK: nvvm.barrier
// CHECK-COUNT-8: llvm.load %{{.*}} : !llvm.ptr<3> -> f32
// CHECK: llvm.return
chunk.kernel @taps chunk 8 reverse (input %dy: tensor<8x32xf32>, input %x: tensor<8x32xf32>,
                                    checkpoint %t: tensor<1x32xf32>, state %d: tensor<32x2xf32>, valid %n: index) -> () {
  %sums = chunk.conv_taps %dy, %x tail %t : tensor<8x32xf32>, tensor<8x32xf32>, tensor<1x32xf32> -> tensor<32x2xf32>
  %next = arith.addf %d, %sums : tensor<32x2xf32>
  chunk.yield next %next : tensor<32x2xf32>
}

// Columns from a multiple of their number on are as those of the whole: neighbouring ones come in one access.
// CHECK-LABEL: llvm.func @columns
// CHECK: llvm.load %{{.*}} : !llvm.ptr<3> -> vector<2xbf16>
// CHECK-NOT: !llvm.ptr<3> -> bf16
// CHECK: llvm.return
chunk.kernel @columns chunk 16 (input %x: tensor<16x64xbf16>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %0 = chunk.columns %x from 32 : tensor<16x64xbf16> -> tensor<16x32xbf16>
  %1 = arith.extf %0 : tensor<16x32xbf16> to tensor<16x32xf32>
  chunk.yield %1 : tensor<16x32xf32>
}

// Matrix descriptors of a warpgroup: rows of 128 bytes in groups of eight, 1024 bytes apart, whose pieces are exchanged
// (1 << 62 | 64 << 32), and boxes of 64 columns, 8192 bytes apart (512 << 16). Steps go along a row and into the next
// box, or to further rows.
// CHECK-LABEL: llvm.func @descriptors
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK-NEXT: nvvm.barrier
// CHECK: arith.constant 33554432 : i32
// CHECK: arith.constant 4611686293305294848 : i64
// CHECK: "kernel.warpgroup_product"
// CHECK-SAME: columns = 32 : i64
// CHECK-SAME: left_offsets = array<i64: 0, 2, 4, 6, 512, 514, 516, 518>
// CHECK-SAME: right_offsets = array<i64: 0, 2, 4, 6, 512, 514, 516, 518>
// CHECK: "kernel.warpgroup_product"
// CHECK-SAME: columns = 64 : i64
// CHECK-SAME: left_offsets = array<i64: 0, 128, 256, 384, 512, 640, 768, 896>
// CHECK-SAME: right_offsets = array<i64: 0, 128, 256, 384, 0, 128, 256, 384>
// CHECK-SAME: transpose_left, transpose_right
chunk.kernel @descriptors chunk 64 (input %x: tensor<64x128xbf16>, state %S: tensor<128x128xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %o = chunk.dot %x, %x transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %x, %x transpose_left add %S : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<128x128xf32>
}

// A walk back waits for the numbers of its first chunk before it begins, not for those of the next in each turn.
// CHECK-LABEL: llvm.func @numbers_back
// CHECK: arith.extui %{{.*}} : i16 to i32
// CHECK: llvm.inline_asm has_side_effects {{.*}}nanosleep
// CHECK: scf.for
// CHECK-NOT: llvm.inline_asm
// CHECK: llvm.return
chunk.kernel @numbers_back chunk 64 reverse (input %x: tensor<64x16xbf16>, input %g: tensor<64xbf16>, state %S: tensor<16x16xf32>, valid %n: index)
    -> (r: tensor<64xf32>) {
  %next = chunk.dot %x, %x transpose_left add %S : tensor<64x16xbf16>, tensor<64x16xbf16> -> tensor<16x16xf32>
  %r = arith.extf %g : tensor<64xbf16> to tensor<64xf32>
  chunk.yield %r next %next : tensor<64xf32>, tensor<16x16xf32>
}
