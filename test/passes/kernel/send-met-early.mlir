// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=4 warpgroups=true from-start=true},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-products{chip=sm_90a},stretto-overlap-products,stretto-select-copies{chip=sm_90a},stretto-plan-shared-memory{chip=sm_90a},stretto-send-ahead))' -o %t
// RUN: FileCheck %s < %t
// RUN: FileCheck %s --check-prefix=LATE < %t

// A chunk for itself loads numbers of its tokens first, and sends for the tiles that it meets first behind its own: they
// come while it forms a product of these.
// CHECK-LABEL: kernel.func @early
// CHECK: kernel.load %f at
// CHECK: kernel.send %q at
// CHECK-NOT: chunk.dot
// CHECK: scf.if
// CHECK-NOT: chunk.dot
// CHECK: kernel.send %k at
// CHECK: chunk.dot
// CHECK: scf.for
chunk.kernel @early chunk 64 reverse (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %f: tensor<64xf32>, input %from: tensor<64xf32>,
    parameter %w: tensor<64x64xbf16>, valid %n: index) -> (d_q: tensor<64x64xf32>) {
  %x = chunk.dot %q, %w : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %rows = chunk.broadcast %f along rows : tensor<64xf32> to tensor<64x64xf32>
  %y = arith.mulf %x, %rows : tensor<64x64xf32>
  %d_q = chunk.lookback sum from %from : tensor<64xf32> past(%k_j = %k : tensor<64x64xbf16>) attributes {met = array<i64: 1, 0>} {
    %s = chunk.dot %q, %k_j transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %r = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xbf16>
    %wide = arith.extf %r : tensor<64x64xbf16> to tensor<64x64xf32>
    %k32 = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %wide, %k32 : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64x64xf32>
  %o = arith.addf %y, %d_q : tensor<64x64xf32>
  chunk.yield %o : tensor<64x64xf32>
}

// Two loops meet tiles by one channel: those of the second are sent for when the first has read its own.
// CHECK-LABEL: kernel.func @twice
// CHECK: kernel.send %q at
// CHECK: scf.if
// CHECK: kernel.send %k at
// CHECK-NOT: kernel.send %k
// CHECK: scf.for
// CHECK: scf.yield
// CHECK: kernel.send %k at
// CHECK: scf.for
chunk.kernel @twice chunk 64 reverse (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %from: tensor<64xf32>, valid %n: index)
    -> (d_q: tensor<64x64xf32>) {
  %one = chunk.lookback sum from %from : tensor<64xf32> past(%k_j = %k : tensor<64x64xbf16>) attributes {met = array<i64: 1, 0>} {
    %s = chunk.dot %q, %k_j transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %r = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xbf16>
    %wide = arith.extf %r : tensor<64x64xbf16> to tensor<64x64xf32>
    %k32 = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %wide, %k32 : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64x64xf32>
  %rounded = arith.truncf %one : tensor<64x64xf32> to tensor<64x64xbf16>
  %two = chunk.lookback sum from %from : tensor<64xf32> past(%k_j = %k : tensor<64x64xbf16>) attributes {met = array<i64: 1, 0>} {
    %s = chunk.dot %rounded, %k_j transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %r = arith.truncf %s : tensor<64x64xf32> to tensor<64x64xbf16>
    %wide = arith.extf %r : tensor<64x64xbf16> to tensor<64x64xf32>
    %k32 = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %wide, %k32 : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64x64xf32>
  chunk.yield %two : tensor<64x64xf32>
}

// Two blocks share a multiprocessor if tiles of others come where a state was: they are sent for when it has been read.
// LATE-LABEL: kernel.func @late
// LATE: kernel.channel bulk depth 1 offset {{[0-9]*}} barriers {{[0-9]*}} {kernel.late}
// LATE: chunk.dot
// LATE: chunk.dot
// LATE: scf.if
// LATE: kernel.send %k at
chunk.kernel @late chunk 64 reverse (input %q: tensor<64x128xbf16>, input %d: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>, input %from: tensor<64xf32>,
    checkpoint %S: tensor<128x128xbf16>, parameter %w: tensor<128x128xbf16>, valid %n: index) -> (d_q: tensor<64x128xf32>) {
  %x = chunk.dot %q, %S : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
  %y = chunk.dot %q, %w add %x : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
  %d_q = chunk.lookback sum from %from : tensor<64xf32> past(%k_j = %k : tensor<64x128xbf16>, %v_j = %v : tensor<64x128xbf16>) attributes {met = array<i64: 1, 0>} {
    %s = chunk.dot %q, %k_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %p = chunk.dot %d, %v_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %both = arith.mulf %s, %p : tensor<64x64xf32>
    %r = arith.truncf %both : tensor<64x64xf32> to tensor<64x64xbf16>
    %wide = arith.extf %r : tensor<64x64xbf16> to tensor<64x64xf32>
    %v32 = arith.extf %v_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %wide, %v32 : tensor<64x64xf32>, tensor<64x128xf32>
  } : tensor<64x128xf32>
  %o = arith.addf %y, %d_q : tensor<64x128xf32>
  chunk.yield %o : tensor<64x128xf32>
}

// Where tiles come one at a time, each is sent for when it has been read for the last time: keys come while scores are made
// weights, values while the next scores are formed, and are waited for behind the largest of these. Those of the second
// look-back are sent for behind the first, in front of the product between them.
// LATE-LABEL: kernel.func @one_at_a_time
// LATE-COUNT-2: kernel.channel bulk depth 1
// LATE: scf.for
// LATE: kernel.receive
// LATE: chunk.dot %{{.*}}, %{{.*}} transpose_right
// LATE-NOT: kernel.receive
// LATE: kernel.send %k at
// LATE-NOT: kernel.send %v
// LATE: chunk.reduce max
// LATE-NEXT: kernel.receive
// LATE: math.exp
// LATE: chunk.dot
// LATE: kernel.send %v at
// LATE: scf.yield
// LATE-NOT: chunk.dot
// LATE: kernel.send %k at
// LATE: kernel.send %v at
// LATE: chunk.dot
// LATE: scf.for
chunk.kernel @one_at_a_time chunk 64 reverse earlier (input %q: tensor<64x128xbf16>, input %d: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>,
    input %from: tensor<64xf32>, checkpoint %S: tensor<128x128xbf16>, valid %n: index) -> (d_q: tensor<64x128xf32>, kept.0: tensor<64xf32>) {
  %m, %l, %acc = chunk.lookback softmax from %from : tensor<64xf32> past(%k_j = %k : tensor<64x128xbf16>, %v_j = %v : tensor<64x128xbf16>) attributes {met = array<i64: 1, 0>} {
    %s = chunk.dot %q, %k_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %v32 = arith.extf %v_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %s, %v32 : tensor<64x64xf32>, tensor<64x128xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64x128xf32>
  %rounded = arith.truncf %acc : tensor<64x128xf32> to tensor<64x128xbf16>
  %y = chunk.dot %rounded, %S : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
  %d_q = chunk.lookback sum from %from : tensor<64xf32> past(%k_j = %k : tensor<64x128xbf16>, %v_j = %v : tensor<64x128xbf16>) attributes {met = array<i64: 1, 0>} {
    %p = chunk.dot %d, %v_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %r = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
    %wide = arith.extf %r : tensor<64x64xbf16> to tensor<64x64xf32>
    %k32 = arith.extf %k_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %wide, %k32 : tensor<64x64xf32>, tensor<64x128xf32>
  } : tensor<64x128xf32>
  %o = arith.addf %y, %d_q : tensor<64x128xf32>
  chunk.yield %o, %l : tensor<64x128xf32>, tensor<64xf32>
}
