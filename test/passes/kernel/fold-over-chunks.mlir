// RUN: stretto-opt %s --stretto-fold-over-chunks --split-input-file --verify-diagnostics | FileCheck %s
// RUN: stretto-opt %s --stretto-fold-over-chunks=compute-tables --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=COMPUTED

chunk.table @angles period 9 {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
chunk.table @slope {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %h : f64
}
// CHECK-LABEL: kernel.func @f(%x: !kernel.view<tensor<16x32xbf16>>, %w: !kernel.view<tensor<32xf32>>,
// CHECK-SAME: %angles: !kernel.view<tensor<16x32xf32>>, %slope: !kernel.view<tensor<f32>>,
// CHECK-SAME: %S: !kernel.view<tensor<32x32xf32>>, %o: !kernel.view<tensor<16x32xbf16>>) chunk 16 roles [#kernel.role<all, 4>]
// CHECK-SAME: stretto.manifest =
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C:.*]] = arith.constant 16 : index
// CHECK: %[[TOKENS:.*]] = kernel.tokens
// CHECK: %[[ROUNDED:.*]] = arith.addi %[[TOKENS]], %c15
// CHECK: %[[CHUNKS:.*]] = arith.divui %[[ROUNDED]], %[[C]]
// What has tokens is sent chunk by chunk, and the rest once.
// CHECK: %[[X:.*]] = kernel.channel depth 2
// CHECK: kernel.send %x at %[[ZERO]] to %[[X]]
// CHECK: %[[W:.*]] = kernel.channel depth 1
// CHECK: kernel.send %w to %[[W]]
// CHECK: %[[ANGLES:.*]] = kernel.channel depth 2
// CHECK: kernel.send %angles at %[[ZERO]] to %[[ANGLES]]
// CHECK: %[[SLOPE:.*]] = kernel.channel depth 1
// CHECK: kernel.send %slope to %[[SLOPE]]
// CHECK: %[[S0:.*]] = kernel.load %S
// CHECK: %[[LAST:.*]] = scf.for %[[I:.*]] = %[[ZERO]] to %[[CHUNKS]] step %[[ONE]] iter_args(%[[S1:.*]] = %[[S0]])
// CHECK: kernel.await
// CHECK: %[[NEXT:.*]] = arith.addi %[[I]], %[[ONE]]
// CHECK: kernel.send %x at %[[NEXT]] to %[[X]]
// CHECK-NOT: kernel.send %w
// CHECK: kernel.send %angles at %[[NEXT]] to %[[ANGLES]]
// CHECK: %[[FIRST:.*]] = arith.muli %[[I]], %[[C]]
// CHECK: %[[LEFT:.*]] = arith.subi %[[TOKENS]], %[[FIRST]]
// CHECK: %[[VALID:.*]] = arith.minsi %[[LEFT]], %[[C]]
// CHECK: %[[TILE:.*]] = kernel.receive %[[X]] at %[[I]]
// CHECK: kernel.receive %[[W]] : 
// CHECK: %[[O:.*]] = chunk.mask %[[TILE]] valid %[[VALID]]
// CHECK: kernel.store %[[O]] to %o at %[[I]]
// CHECK: scf.yield %[[S1]]
// CHECK: kernel.save %[[LAST]] to %S
// CHECK: kernel.return
chunk.kernel @f chunk 16 (input %x: tensor<16x32xbf16>, parameter %w: tensor<32xf32>, table %angles: tensor<16x32xf32>,
                          table %slope: tensor<f32>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (o: tensor<16x32xbf16>) {
  %o = chunk.mask %x valid %n : tensor<16x32xbf16>
  chunk.yield %o next %S : tensor<16x32xbf16>, tensor<32x32xf32>
}

// -----

// CHECK-LABEL: kernel.func @large_states
// CHECK-SAME: roles [#kernel.role<all, 8>]
chunk.kernel @large_states chunk 16 (input %x: tensor<16x32xf32>, state %S: tensor<128x64xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  chunk.yield %x next %S : tensor<16x32xf32>, tensor<128x64xf32>
}

// -----

// expected-error @+1 {{the argument 'x' has entries of type f64, expected f32, bf16 or f16: f64 runs on the CPU only}}
chunk.kernel @double chunk 16 (input %x: tensor<16x32xf64>, valid %n: index) -> (o: tensor<16x32xf64>) {
  chunk.yield %x : tensor<16x32xf64>
}

// -----

// A kernel that keeps states walks a segment. It stores them where each chunk begins, before they change.
// CHECK-LABEL: kernel.func @keeps(%x: !kernel.view<tensor<16x32xf32>>, %S: !kernel.view<tensor<32x32xf32>>,
// CHECK-SAME: %S_0: !kernel.view<tensor<32x32xf32>>)
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = kernel.segment
// CHECK: kernel.send %x at %[[BEGIN]]
// CHECK: scf.for %[[I:.*]] = %[[BEGIN]] to %[[END]] step %c1{{.*}} iter_args(%[[S:.*]] = %{{.*}})
// CHECK: %[[X:.*]] = kernel.receive
// CHECK: kernel.store %[[S]] to %S_0 at %[[I]]
// CHECK-NEXT: %[[NEXT:.*]] = chunk.dot %[[X]], %[[X]] transpose_left add %[[S]]
// CHECK: scf.yield %[[NEXT]]
chunk.kernel @keeps chunk 16 (input %x: tensor<16x32xf32>, state %S: tensor<32x32xf32>, valid %n: index)
    -> (S: tensor<32x32xf32> checkpoint) {
  %next = chunk.dot %x, %x transpose_left add %S : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  chunk.yield %S next %next : tensor<32x32xf32>, tensor<32x32xf32>
}

// -----

// In reverse the last chunk comes first, and what comes next is the chunk before. Each chunk has its checkpoint. A
// sequence that does not reach the segment has none there, not the one before it.
// CHECK-LABEL: kernel.func @walks_back(
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = kernel.segment
// CHECK: %[[LAST:.*]] = arith.subi %[[END]], %c1
// CHECK: %[[START:.*]] = arith.maxsi %[[LAST]], %[[BEGIN]]
// CHECK: %[[X:.*]] = kernel.channel depth 2 : <tensor<16x32xf32>>
// CHECK: kernel.send %x at %[[START]] to %[[X]]
// CHECK: %[[S:.*]] = kernel.channel depth 2 : <tensor<32x32xf32>>
// CHECK: kernel.send %S at %[[START]] to %[[S]]
// CHECK: scf.for %[[STEP:.*]] = %[[BEGIN]] to %[[END]]
// CHECK: %[[BOTH:.*]] = arith.addi %[[BEGIN]], %[[LAST]]
// CHECK: %[[I:.*]] = arith.subi %[[BOTH]], %[[STEP]]
// CHECK: kernel.await
// CHECK: %[[BEFORE:.*]] = arith.subi %[[I]], %c1
// CHECK: kernel.send %x at %[[BEFORE]] to %[[X]]
// CHECK: kernel.send %S at %[[BEFORE]] to %[[S]]
// CHECK: %[[FIRST:.*]] = arith.muli %[[I]], %c16
// CHECK: arith.subi %{{.*}}, %[[FIRST]]
// CHECK: kernel.receive %[[X]] at %[[I]]
// CHECK: kernel.receive %[[S]] at %[[I]]
// CHECK: kernel.store %{{.*}} to %d_x at %[[I]]
chunk.kernel @walks_back chunk 16 reverse (input %x: tensor<16x32xf32>, checkpoint %S: tensor<32x32xf32>,
    state %d_S: tensor<32x32xf32>, valid %n: index) -> (d_x: tensor<16x32xf32>) {
  %d_x = chunk.dot %x, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
  %next = chunk.dot %x, %x transpose_left add %d_S : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  chunk.yield %d_x next %next : tensor<16x32xf32>, tensor<32x32xf32>
}

// -----

// Without checkpoints, too, what walks back may follow kernels that leave rows of a segment alone.
// CHECK-LABEL: kernel.func @adds_up(
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = kernel.segment
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
chunk.kernel @adds_up chunk 16 reverse (input %x: tensor<16x32xf32>, state %d_w: tensor<32x32xf32>, valid %n: index) -> () {
  %next = chunk.dot %x, %x transpose_left add %d_w : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<32x32xf32>
  chunk.yield next %next : tensor<32x32xf32>
}

// -----

// What has other numbers at every position is computed where only the device knows the positions, and sent otherwise.
chunk.table @angles varying {
^bb0(%t: f64, %h: f64, %d: f64):
  %angle = arith.mulf %t, %d : f64
  chunk.result %angle : f64
}
// COMPUTED-LABEL: kernel.func @turn(
// COMPUTED-NOT: kernel.send %angles
// COMPUTED: %[[I:.*]] = kernel.chunk
// COMPUTED: kernel.evaluate %angles at %[[I]]
// CHECK-LABEL: kernel.func @turn(
// CHECK: kernel.send %angles at
// CHECK-NOT: kernel.evaluate
chunk.kernel @turn chunk 16 (table %angles: tensor<16x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  chunk.yield %angles : tensor<16x32xf32>
}

// -----

// A look-back is a loop over the chunks that are seen. Where there is no state, a block has one chunk. Rows that are only
// met have no tile of this chunk; those of chunks before the first token are in windows.
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: kernel.func @looks_back(
// CHECK-SAME: independentChunks\22:true
// CHECK-DAG: %[[V:.*]] = kernel.channel depth 2 : <tensor<16x16xbf16>>
// CHECK-DAG: %[[K:.*]] = kernel.channel depth 2 : <tensor<16x32xbf16>>
// CHECK: %[[C:.*]] = kernel.chunk
// CHECK: kernel.channel depth 1
// CHECK-NEXT: kernel.send %q at %[[C]]
// CHECK-NOT: kernel.send
// CHECK: kernel.await
// CHECK: %[[FIRST:.*]] = arith.subf
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = kernel.span %[[FIRST]] at %[[C]]
// CHECK: %[[MET:.*]] = arith.cmpi slt, %[[BEGIN]], %[[END]]
// CHECK: scf.if %[[MET]] {
// CHECK: scf.if
// CHECK-NEXT: kernel.send %k_window at %[[BEGIN]] to %[[K]]
// CHECK-NEXT: } else {
// CHECK-NEXT: kernel.send %k at %[[BEGIN]] to %[[K]]
// CHECK: kernel.send %v_window at %[[BEGIN]] to %[[V]]
// CHECK: kernel.send %v at %[[BEGIN]] to %[[V]]
// CHECK: %[[WHOLE_BEGIN:.*]], %[[WHOLE_END:.*]] = kernel.span wholly %[[FIRST]] at %[[C]]
// CHECK: scf.for %[[J:.*]] = %[[BEGIN]] to %[[END]] {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[ACC:.*]] = %{{.*}})
// CHECK: kernel.await
// CHECK: %[[NEXT:.*]] = arith.addi %[[J]]
// CHECK: kernel.send %k at %[[NEXT]]
// CHECK: %[[KJ:.*]] = kernel.receive %[[K]] at %[[J]]
// CHECK: %[[VJ:.*]] = kernel.receive %[[V]] at %[[J]]
// CHECK: %[[S:.*]] = chunk.dot %{{.*}}, %[[KJ]] transpose_right
// CHECK: %[[BEHIND:.*]] = arith.cmpi sge, %[[J]], %[[WHOLE_BEGIN]]
// CHECK: %[[BEFORE:.*]] = arith.cmpi slt, %[[J]], %[[WHOLE_END]]
// CHECK: %[[WHOLE:.*]] = arith.andi %[[BEHIND]], %[[BEFORE]]
// CHECK: %[[SCORES:.*]] = scf.if %[[WHOLE]] -> (tensor<16x16xf32>) {
// CHECK-NEXT: scf.yield %[[S]]
// CHECK-NEXT: } else {
// CHECK-NEXT: %[[PAIRS:.*]] = kernel.in_range %[[FIRST]] of %[[C]] in %[[J]] : tensor<16xf32> -> tensor<16x16xi1>
// CHECK: %[[CHOSEN:.*]] = arith.select %[[PAIRS]], %[[S]]
// CHECK-NEXT: scf.yield %[[CHOSEN]]
// CHECK: %[[HERE:.*]] = chunk.reduce max %[[SCORES]] over columns
// CHECK: %[[LARGEST:.*]] = arith.maximumf %[[M]], %[[HERE]]
// CHECK: %[[WEIGHTS:.*]] = arith.truncf
// CHECK: %[[SUM:.*]] = chunk.dot %[[WEIGHTS]], %[[VJ]] add
// CHECK: scf.yield %[[LARGEST]], %{{.*}}, %[[SUM]]
// CHECK: kernel.store
// CHECK: kernel.carry %k at %[[C]] to %k_window
// CHECK: kernel.carry %v at %[[C]] to %v_window
chunk.kernel @looks_back chunk 16 (input %q: tensor<16x32xbf16>, input %k: tensor<16x32xbf16>, input %v: tensor<16x16xbf16>,
    table %position: tensor<16xf32>, window %k_window: tensor<24x32xbf16> of "k",
    window %v_window: tensor<24x16xbf16> of "v", valid %n: index) -> (o: tensor<16x16xf32>) {
  %before = arith.constant dense<23.0> : tensor<16xf32>
  %first = arith.subf %position, %before : tensor<16xf32>
  %m, %l, %acc = chunk.lookback softmax from %first : tensor<16xf32>
      past(%k_j = %k : tensor<16x32xbf16>, %v_j = %v : tensor<16x16xbf16>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x32xbf16>, tensor<16x32xbf16> -> tensor<16x16xf32>
    %x = arith.extf %v_j : tensor<16x16xbf16> to tensor<16x16xf32>
    chunk.contribute %s, %x : tensor<16x16xf32>, tensor<16x16xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x16xf32>
  chunk.yield %acc : tensor<16x16xf32>
}

// -----

// Pairs that attain the largest score are counted as it is found: those before a larger one count no longer, and those
// of no range do not count.
chunk.table @time varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: kernel.func @ties
// CHECK: %[[FOLD:.*]]:4 = scf.for {{.*}} iter_args(%[[BEFORE:.*]] = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[COUNT:.*]] = %{{.*}})
// CHECK: %[[LARGEST:.*]] = arith.maximumf %[[BEFORE]]
// CHECK: %[[REPEATED:.*]] = chunk.broadcast %[[LARGEST]] along rows
// CHECK: %[[HIT:.*]] = arith.cmpf oeq, %{{.*}}, %[[REPEATED]]
// CHECK: %[[ONES:.*]] = arith.select %[[HIT]]
// CHECK: %[[HERE:.*]] = chunk.reduce sum %[[ONES]] over columns
// CHECK: %[[SAME:.*]] = arith.cmpf oeq, %[[BEFORE]], %[[LARGEST]]
// CHECK: %[[KEPT:.*]] = arith.select %[[SAME]], %[[COUNT]]
// CHECK: arith.addf %[[KEPT]], %[[HERE]]
// CHECK: %[[NONE:.*]] = arith.cmpf oeq, %[[FOLD]]#0
// CHECK: %[[TIES:.*]] = arith.select %[[NONE]], %{{.*}}, %[[FOLD]]#3
// CHECK: kernel.store %[[TIES]]
chunk.kernel @ties chunk 16 (input %q: tensor<16x32xbf16>, input %k: tensor<16x32xbf16>, table %time: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16xf32>) {
  %before = arith.constant dense<23.0> : tensor<16xf32>
  %first = arith.subf %time, %before : tensor<16xf32>
  %m, %l, %acc, %ties = chunk.lookback softmax from %first : tensor<16xf32> past(%k_j = %k : tensor<16x32xbf16>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x32xbf16>, tensor<16x32xbf16> -> tensor<16x16xf32>
    %x = arith.extf %k_j : tensor<16x32xbf16> to tensor<16x32xf32>
    chunk.contribute %s, %x : tensor<16x16xf32>, tensor<16x32xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x32xf32>, tensor<16xf32>
  chunk.yield %ties : tensor<16xf32>
}

// -----

// A look-ahead meets chunks from its own to the last whose first token looks back at it, which is found by bisection.
chunk.table @place varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: kernel.func @looks_ahead(
// CHECK: %[[CHUNKS:.*]] = arith.divui
// CHECK: %[[END:.*]]:2 = scf.for {{.*}} iter_args(%[[LOW:.*]] = %[[C:.*]], %[[HIGH:.*]] = %[[CHUNKS]])
// CHECK: arith.cmpi slt, %[[LOW]], %[[HIGH]]
// CHECK: %[[MIDDLE:.*]] = arith.divui
// CHECK: %[[AT:.*]] = kernel.evaluate %place at %[[MIDDLE]]
// CHECK: %[[FIRST:.*]] = arith.subf %[[AT]]
// CHECK: %[[BEGIN:.*]], %{{.*}} = kernel.span %[[FIRST]] at %[[MIDDLE]]
// CHECK: arith.cmpi sle, %[[BEGIN]], %[[C]]
// CHECK: scf.for %[[J:.*]] = %[[C]] to %[[END]]#0
// CHECK: %[[AT:.*]] = kernel.evaluate %place at %[[J]]
// CHECK: %[[FIRST:.*]] = arith.subf %[[AT]]
// CHECK: %[[PAIRS:.*]] = kernel.in_range ahead %[[FIRST]] of %[[C]] in %[[J]] : tensor<16xf32> -> tensor<16x16xi1>
// CHECK: arith.select %[[PAIRS]]
chunk.kernel @looks_ahead chunk 16 (input %k: tensor<16x32xf32>, table %place: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %before = arith.constant dense<23.0> : tensor<16xf32>
  %o = chunk.lookback sum ahead past(%k_j = %k : tensor<16x32xf32>, %p_j = %place : tensor<16xf32>) {
    %first = arith.subf %p_j, %before : tensor<16xf32>
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x32xf32> from %first : tensor<16xf32>
  } : tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// -----

// Where ranges end, those that end before the chunk are left out, which are found in the same way. What joins a matrix
// before the sequence joins it in the first chunk, where nothing is left out.
chunk.table @place varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: kernel.func @looks_far_ahead(
// CHECK: %[[END:.*]]:2 = scf.for {{.*}} iter_args(%{{.*}} = %[[C:.*]], %{{.*}} = %{{.*}})
// CHECK: kernel.span
// CHECK: %[[BEGIN:.*]]:2 = scf.for {{.*}} iter_args(%[[LOW:.*]] = %[[C]], %[[HIGH:.*]] = %[[END]]#0)
// CHECK: %[[MIDDLE:.*]] = arith.divui
// CHECK: %{{.*}}, %[[LAST:.*]] = kernel.span %{{.*}} to %{{.*}} at %[[MIDDLE]]
// CHECK: %[[BEFORE:.*]] = arith.cmpi sle, %[[LAST]], %[[C]]
// CHECK: %[[NOT_FIRST:.*]] = arith.cmpi sgt, %[[C]], %{{.*}}
// CHECK: arith.andi %[[BEFORE]], %[[NOT_FIRST]]
// CHECK: scf.for %{{.*}} = %[[BEGIN]]#0 to %[[END]]#0
chunk.kernel @looks_far_ahead chunk 16 (input %k: tensor<16x32xf32>, table %place: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %before = arith.constant dense<64.0> : tensor<16xf32>
  %window = arith.constant dense<40.0> : tensor<16xf32>
  %o = chunk.lookback sum ahead past(%k_j = %k : tensor<16x32xf32>, %p_j = %place : tensor<16xf32>) {
    %first = arith.subf %p_j, %before : tensor<16xf32>
    %last = arith.subf %p_j, %window : tensor<16xf32>
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x32xf32>
      from %first : tensor<16xf32> to %last : tensor<16xf32>
  } : tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// -----

// Where bounds are data, all later chunks are met.
// CHECK-LABEL: kernel.func @looks_ahead_at_all(
// CHECK: %[[CHUNKS:.*]] = arith.divui
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[CHUNKS]]
chunk.kernel @looks_ahead_at_all chunk 16 (input %k: tensor<16x32xf32>, input %f: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>) {
  %o = chunk.lookback sum ahead past(%k_j = %k : tensor<16x32xf32>, %f_j = %f : tensor<16xf32>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x32xf32> from %f_j : tensor<16xf32>
  } : tensor<16x32xf32>
  chunk.yield %o : tensor<16x32xf32>
}

// -----

// A block walks its own segment, where segments are apart, or has a turn for each of them.
// CHECK-LABEL: kernel.func @apart(
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = kernel.segment
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
chunk.kernel @apart chunk 16 segments apart(input %k: tensor<16x8xf32>, state %S: tensor<8x8xf32>, valid %n: index)
    -> () {
  %next = chunk.dot %k, %k transpose_left add %S : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<8x8xf32>
  chunk.yield next %next : tensor<8x8xf32>
}
// CHECK-LABEL: kernel.func @turns(
// CHECK: %[[BEGIN:.*]], %[[END:.*]] = kernel.segment
// CHECK: scf.for %[[TURN:.*]] = %[[BEGIN]] to %[[END]]
// CHECK: kernel.store %{{.*}} to %S at %[[TURN]]
chunk.kernel @turns chunk 16 segments turns(checkpoint %left: tensor<8x8xf32>, state %state: tensor<8x8xf32>,
    valid %n: index) -> (S: tensor<8x8xf32> checkpoint) {
  %next = arith.addf %state, %left : tensor<8x8xf32>
  chunk.yield %state next %next : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// Numbers on the way to another output are stored as soon as they are known, others at the end.

// CHECK-LABEL: kernel.func @numbers
// CHECK: %[[SUM:.*]] = chunk.reduce sum
// CHECK-NEXT: kernel.store %[[SUM]] to %l
// CHECK: %[[O:.*]] = arith.divf
// CHECK: %[[OTHER:.*]] = math.exp
// CHECK: kernel.store %[[O]] to %o
// CHECK: kernel.store %[[OTHER]] to %m
// CHECK-NOT: kernel.store
chunk.kernel @numbers chunk 16 (input %x: tensor<16x32xf32>, valid %n: index)
    -> (o: tensor<16x32xf32>, l: tensor<16xf32>, m: tensor<16xf32>) {
  %l = chunk.reduce sum %x over columns : tensor<16x32xf32> -> tensor<16xf32>
  %ls = chunk.broadcast %l along rows : tensor<16xf32> to tensor<16x32xf32>
  %o = arith.divf %x, %ls : tensor<16x32xf32>
  %m = math.exp %l : tensor<16xf32>
  chunk.yield %o, %l, %m : tensor<16x32xf32>, tensor<16xf32>, tensor<16xf32>
}
