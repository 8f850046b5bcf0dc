// RUN: stretto-opt %s --stretto-fold-over-chunks=from-start | FileCheck %s --implicit-check-not=kernel.span
// RUN: stretto-opt %s --stretto-fold-over-chunks | FileCheck %s --check-prefix=CONTINUED
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{from-start},stretto-divide-roles{ahead=4 outputs=4 walk=4},kernel.func(stretto-assign-layouts{warpgroups},stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-share-channels)' -o %t
// RUN: FileCheck %s --check-prefix=ROLES <%t
// RUN: stretto-opt %t --pass-pipeline='builtin.module(stretto-plan-shared-memory{chip=sm_90a})' | FileCheck %s --check-prefix=PLANNED

chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}

// In sequences that begin with their first tokens the one chunk that joins the state comes as those of the chunk itself
// do, two chunks late, and none before the sequence is counted. What the window meets is known without asking tokens,
// and which of it wholly, if all tokens of the chunk are there.
// CHECK-LABEL: kernel.func @window_and_state(
// CHECK: %[[EARLY:.*]] = arith.subi %c0, %c2
// CHECK: kernel.send %k at %[[EARLY]] to %[[K:.*]] :
// CHECK: kernel.send %v at %[[EARLY]] to %[[V:.*]] :
// CHECK: scf.for %[[C:[a-z0-9]+]] = {{.*}} iter_args(%[[S:[a-z0-9]+]] =
// CHECK: %[[AFTER:.*]] = arith.addi %[[C]], %c1
// CHECK: %[[LATE:.*]] = arith.subi %[[AFTER]], %c2
// CHECK: kernel.send %k at %[[LATE]] to %[[K]] :
// CHECK: %[[LAGS:.*]] = arith.subi %[[C]], %c2
// CHECK: kernel.receive %[[K]] at %[[LAGS]] :
// CHECK: kernel.receive %[[V]] at %[[LAGS]] :
// CHECK: %[[ISTHERE:.*]] = arith.cmpi sge, %[[LAGS]], %c0
// CHECK: %[[COUNT:.*]] = arith.select %[[ISTHERE]], %c64{{.*}}, %c0
// CHECK: %[[ROWS:.*]] = chunk.mask %{{.*}} valid %[[COUNT]]
// CHECK: %[[NEXT:.*]] = chunk.dot %[[ROWS]], %{{.*}} transpose_left add %[[S]]
// CHECK: %[[BEFORE:.*]] = arith.subi %[[C]], %c1
// CHECK: %[[BEGIN:.*]] = arith.maxsi %[[BEFORE]], %c0
// CHECK: %[[COMPLETE:.*]] = arith.cmpi sge, %{{.*}}, %c64
// CHECK: arith.select %[[COMPLETE]]
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to
// CONTINUED-LABEL: kernel.func @window_and_state(
// CONTINUED: kernel.span
// CONTINUED: scf.for {{.*}} -> (tensor<64x64xf32>)

// The window is met by those who find outputs, who count its tiles; features are made ahead of the walk, of keys that a
// producer sends two chunks late, and of queries, which go to those who find outputs.
// ROLES-LABEL: kernel.func @window_and_state(
// ROLES-SAME: roles [#kernel.role<walk, 4>]
// ROLES-NOT: kernel.span
// ROLES: scf.for
// ROLES-NOT: scf.for
// ROLES-LABEL: kernel.func @window_and_state.ahead(
// ROLES-DAG: %[[QUERIES:.*]] = kernel.channel passed 0 depth 1 : <tensor<64x128xbf16
// ROLES-DAG: %[[KEYS:.*]] = kernel.channel passed 2 depth 1 : <tensor<64x128xbf16
// ROLES: scf.for
// ROLES-DAG: kernel.pass %{{.*}} to %[[QUERIES]]
// ROLES-DAG: kernel.pass %{{.*}} to %[[KEYS]]
// ROLES-LABEL: kernel.func @window_and_state.outputs(
// ROLES: %[[FEATURES:.*]] = kernel.channel passed 0 depth
// ROLES-NOT: kernel.send %w
// ROLES: scf.for {{.*}} iter_args({{.*}}) -> (index)
// ROLES: kernel.receive %[[FEATURES]]
// ROLES: scf.if
// ROLES: kernel.send %k
// ROLES: scf.for
// ROLES-LABEL: kernel.func @window_and_state.producer(
// ROLES: scf.for %[[C:[a-z0-9]+]] =
// ROLES-DAG: kernel.send %q at %[[C]]
// ROLES-DAG: arith.subi %[[C]], %c2
// ROLES-DAG: kernel.send %k at %{{[0-9]+}}

// Two places for tiles of the window are worth more than a second one for what is read once.
// PLANNED-LABEL: kernel.func @window_and_state(
// PLANNED: kernel.channel passed {{[0-9]+}} bulk depth 1
// PLANNED-LABEL: kernel.func @window_and_state.outputs(
// PLANNED: kernel.channel bulk depth 2
// PLANNED: kernel.channel bulk depth 2
chunk.kernel @window_and_state chunk 64 (input %q: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>,
    parameter %w: tensor<128x128xbf16>, table %position: tensor<64xf32>, window %k_window: tensor<128x128xbf16> of "k",
    window %v_window: tensor<128x128xbf16> of "v", state %S: tensor<128x128xf32>, valid %n: index) -> (o: tensor<64x128xbf16>) {
  %one = arith.constant dense<1.0> : tensor<64xf32>
  %block = arith.constant dense<64.0> : tensor<64xf32>
  %zero = arith.constant dense<0.0> : tensor<64xf32>
  %blocks = arith.divf %position, %block : tensor<64xf32>
  %whole = math.floor %blocks : tensor<64xf32>
  %start = arith.mulf %whole, %block : tensor<64xf32>
  %first = arith.subf %start, %block : tensor<64xf32>
  %last = arith.subf %first, %one : tensor<64xf32>
  %from = arith.subf %first, %block : tensor<64xf32>
  %written = chunk.lookback outer from %from to %last : tensor<64xf32>
      past(%k_j = %k : tensor<64x128xbf16>, %v_j = %v : tensor<64x128xbf16>) attributes {met = array<i64: 2, 2>, wholly = array<i64: 2, 2>} {
    %z = chunk.dot %k_j, %w : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
    %e = math.exp %z : tensor<64x128xf32>
    %x = arith.truncf %e : tensor<64x128xf32> to tensor<64x128xbf16>
    %f = arith.extf %x : tensor<64x128xbf16> to tensor<64x128xf32>
    %y = arith.extf %v_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %f, %y : tensor<64x128xf32>, tensor<64x128xf32>
  } : tensor<128x128xf32>
  %next = arith.addf %S, %written : tensor<128x128xf32>
  %s = arith.truncf %next : tensor<128x128xf32> to tensor<128x128xbf16>
  %scores = chunk.dot %q, %w : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
  %raised = math.exp %scores : tensor<64x128xf32>
  %features = arith.truncf %raised : tensor<64x128xf32> to tensor<64x128xbf16>
  %read = chunk.dot %features, %s : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
  %m, %l, %acc = chunk.lookback softmax from %first : tensor<64xf32>
      past(%k_j = %k : tensor<64x128xbf16>, %v_j = %v : tensor<64x128xbf16>) attributes {met = array<i64: 1, 0>, wholly = array<i64: 1, 1>} {
    %p = chunk.dot %q, %k_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %y = arith.extf %v_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %p, %y : tensor<64x64xf32>, tensor<64x128xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64x128xf32>
  %sum = arith.addf %read, %acc : tensor<64x128xf32>
  %o = arith.truncf %sum : tensor<64x128xf32> to tensor<64x128xbf16>
  chunk.yield %o next %next : tensor<64x128xbf16>, tensor<128x128xf32>
}

// Ahead, in a walk back, it stands behind each chunk, and the last one has the tokens that are left.
// CHECK-LABEL: kernel.func @joins_ahead(
// CHECK: scf.for
// CHECK: kernel.receive %{{.*}} at %[[LAGS:[0-9]+]] : <tensor<64x64xbf16>>
// CHECK: %[[FIRST:.*]] = arith.muli %[[LAGS]], %c64
// CHECK: %[[LEFT:.*]] = arith.subi %{{.*}}, %[[FIRST]]
// CHECK: %[[COUNT:.*]] = arith.minsi %[[LEFT]], %c64
// CHECK: chunk.mask %{{.*}} valid %[[COUNT]]
// CHECK-NOT: scf.for
// CHECK: kernel.return
chunk.kernel @joins_ahead chunk 64 reverse (input %q: tensor<64x64xbf16>, input %d: tensor<64x64xbf16>, table %position: tensor<64xf32>,
    state %S: tensor<64x64xf32>, valid %n: index) -> () {
  %joined = chunk.lookback outer ahead past(%q_j = %q : tensor<64x64xbf16>, %d_j = %d : tensor<64x64xbf16>, %t_j = %position : tensor<64xf32>)
      attributes {met = array<i64: 2, 2>, wholly = array<i64: 2, 2>} {
    %x = arith.extf %q_j : tensor<64x64xbf16> to tensor<64x64xf32>
    %y = arith.extf %d_j : tensor<64x64xbf16> to tensor<64x64xf32>
    chunk.contribute %x, %y : tensor<64x64xf32>, tensor<64x64xf32> from %t_j : tensor<64xf32> to %t_j : tensor<64xf32>
  } : tensor<64x64xf32>
  %next = arith.addf %S, %joined : tensor<64x64xf32>
  chunk.yield next %next : tensor<64x64xf32>
}
