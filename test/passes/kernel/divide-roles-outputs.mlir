// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{outputs=8 walk=4})' | FileCheck %s

// The walk passes the state as products read it before it waits for anything, and adds to it. It keeps the name.
// CHECK-LABEL: kernel.func @linear(
// CHECK-SAME: roles [#kernel.role<walk, 4>] beside @linear.outputs
// CHECK: %[[PASSED:.*]] = kernel.channel passed 0 depth 1 : <tensor<64x64xbf16>>
// CHECK-NOT: kernel.send %q
// CHECK: scf.for %[[TURN:[a-z0-9]+]] = {{.*}} iter_args(%[[S:.*]] = %{{.*}}) -> (tensor<64x64xf32>)
// CHECK-NEXT: %[[NARROW:.*]] = arith.truncf %[[S]]
// CHECK-NEXT: kernel.pass %[[NARROW]] to %[[PASSED]] turn %[[TURN]]
// CHECK-NEXT: kernel.await
// CHECK-NOT: chunk.causal
// CHECK: chunk.dot %{{.*}}, %{{.*}} transpose_left add %[[S]]
// CHECK-NOT: kernel.store
// CHECK: kernel.save
// Others have the outputs, in two groups, and no state.
// CHECK-LABEL: kernel.func @linear.outputs(
// CHECK-SAME: roles [#kernel.role<outputs, 4, 2>]
// CHECK: %[[PASSED:.*]] = kernel.channel passed 0 depth 1 : <tensor<64x64xbf16>>
// CHECK-NOT: kernel.load %S
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK-NOT: iter_args
// CHECK: %[[READ:.*]] = kernel.receive %[[PASSED]] turn %[[TURN]]
// CHECK: chunk.dot %{{.*}}, %[[READ]]
// CHECK: kernel.store
// CHECK-NOT: kernel.save
// CHECK: kernel.return
chunk.kernel @linear chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %p = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %m = chunk.causal %p : tensor<64x64xf32>
  %scores = arith.truncf %m : tensor<64x64xf32> to tensor<64x64xbf16>
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %sum = chunk.dot %scores, %v add %read : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %sum : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}

// What only outputs carry they carry themselves, as a table of factors that are loaded a chunk ahead: then there is one
// group, or none where two are asked for.
// CHECK-LABEL: kernel.func @numbers(
// CHECK-SAME: roles [#kernel.role<all,
chunk.kernel @numbers chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %f: tensor<64xf32>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>) {
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %rows = chunk.broadcast %f along rows : tensor<64xf32> to tensor<64x64xf32>
  %o = arith.mulf %read, %rows : tensor<64x64xf32>
  %next = chunk.dot %k, %k transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

// Where states need all products that outputs have, one role does everything.
// CHECK-LABEL: kernel.func @needed(
// CHECK-SAME: roles [#kernel.role<all,
chunk.kernel @needed chunk 64 (input %k: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %next = chunk.dot %k, %k transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %next next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

// A walk back counts chunks down: what tells which one a tile is of is there before all that asks for it.
// CHECK-LABEL: kernel.func @back(
// CHECK-SAME: roles [#kernel.role<walk, 4>] beside @back.outputs
// CHECK-LABEL: kernel.func @back.outputs(
// CHECK: scf.for %[[TURN:[a-z0-9]+]] =
// CHECK: %[[CHUNK:.*]] = arith.subi %{{.*}}, %[[TURN]]
// CHECK: %[[NEXT:.*]] = arith.subi %[[CHUNK]], %{{.*}}
// CHECK: kernel.send %q at %[[NEXT]]
// CHECK: kernel.store %{{.*}} to %o at %[[CHUNK]]
chunk.kernel @back chunk 64 reverse (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %read : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}

// Walks whose states join by loops over other chunks are not divided.
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: kernel.func @meets(
// CHECK-SAME: roles [#kernel.role<all,
chunk.kernel @meets chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, table %position: tensor<64xf32>,
    window %k_window: tensor<64x64xbf16> of "k", window %v_window: tensor<64x64xbf16> of "v", state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %q, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %read : tensor<64x64xf32> to tensor<64x64xbf16>
  %written = chunk.lookback outer from %position to %position : tensor<64xf32>
      past(%k_j = %k : tensor<64x64xbf16>, %v_j = %v : tensor<64x64xbf16>) {
    %x = arith.extf %k_j : tensor<64x64xbf16> to tensor<64x64xf32>
    %y = arith.extf %v_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %x, %y : tensor<64x64xf32>, tensor<64x64xf32>
  } : tensor<64x64xf32>
  %next = arith.addf %S, %written : tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
