// RUN: stretto-opt %s --split-input-file --verify-diagnostics --stretto-chunk='chunk=16 segments' | FileCheck %s
// RUN: stretto-opt %s --split-input-file --verify-diagnostics --stretto-chunk='chunk=16 segments element=bf16' | FileCheck %s --check-prefix=ROUNDED

// Segments that are walked side by side: what computes the results of one, what finds what its tokens do to the state,
// and what finds the states that segments begin with. One decay a token is a factor for each row of the state.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<64xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 32, V : 64>

// CHECK-LABEL: chunk.kernel @fading chunk 16 segments apart(
// CHECK-SAME:      state %S: tensor<32x64xf32>, valid %{{.*}}: index) -> (o: tensor<16x64xf32>) {
// CHECK-LABEL: chunk.kernel @fading_writes chunk 16 segments apart(
// CHECK-SAME:      input %k: tensor<16x32xf32>, input %v: tensor<16x64xf32>, input %g: tensor<16xf32>,
// CHECK-SAME:      state %S: tensor<32x64xf32>, state %S.decay: tensor<32xf32>, valid %{{.*}}: index) -> () {
// CHECK:         %[[KEPT:.*]] = chunk.decay_state %S log %g along rows
// CHECK:         %[[S:.*]] = chunk.dot %{{.*}}, %v transpose_left add %[[KEPT]]
// CHECK:         %[[LOGS:.*]] = arith.maximumf %g, %{{.*}} : tensor<16xf32>
// CHECK:         %[[SUMS:.*]] = chunk.accumulate sum %[[LOGS]] : tensor<16xf32>
// CHECK:         %[[LAST:.*]] = chunk.row %[[SUMS]] at 15 : tensor<16xf32> -> tensor<f32>
// CHECK:         %[[OF_CHUNK:.*]] = chunk.broadcast %[[LAST]] along rows : tensor<f32> to tensor<32xf32>
// CHECK:         %[[DECAY:.*]] = arith.addf %S.decay, %[[OF_CHUNK]]
// CHECK:         chunk.yield next %[[S]], %[[DECAY]]
// CHECK-LABEL: chunk.kernel @fading_starts chunk 16 segments turns(
// CHECK-SAME:      checkpoint %S.left: tensor<32x64xf32>, checkpoint %S.decay: tensor<32xf32>,
// CHECK-SAME:      state %S: tensor<32x64xf32>, valid %{{.*}}: index) -> (S: tensor<32x64xf32> checkpoint) {
// CHECK-NEXT:    %[[FACTOR:.*]] = math.exp %S.decay
// CHECK-NEXT:    %[[FACTORS:.*]] = chunk.broadcast %[[FACTOR]] along rows : tensor<32xf32> to tensor<32x64xf32>
// CHECK-NEXT:    %[[KEPT:.*]] = arith.mulf %S, %[[FACTORS]]
// CHECK-NEXT:    %[[NEXT:.*]] = arith.addf %[[KEPT]], %S.left
// CHECK-NEXT:    chunk.yield %S next %[[NEXT]]
stretto.variant @fading(%q: !K, %k: !K, %v: !V, %g: !number) -> !V attributes {group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g : !S, !number
  %S2 = stretto.write %S1, %k, %v : !S, !K, !V
  %o = stretto.read %S2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Of factors the product is carried, and the columns may decay. Where nothing decays there is no factor. Keys
// are convolved: the rows that a segment looks back to are found first, those of queries among them.

!K = tensor<8xf64, #stretto.row<K>>
!K_per_G = tensor<8xf64, #stretto.row<K, G>>
!V_per_G = tensor<16xf64, #stretto.row<V, G>>
!V = tensor<16xf64, #stretto.row<V>>
!taps = tensor<8x4xf64, #stretto.param<[K, 4]>>
!taps_per_G = tensor<8x4xf64, #stretto.param<[K, 4], G>>
!S = !stretto.state<K : 8, V : 16, G>

// CHECK-LABEL: chunk.kernel @convolved chunk 16 segments apart(
// CHECK-SAME:      state %k_tail: tensor<3x8xf32> group 2, state %q_tail: tensor<3x8xf32>,
// CHECK-LABEL: chunk.kernel @convolved_tails chunk 16 segments apart(
// CHECK-SAME:      input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32> group 2,
// CHECK-SAME:      state %k_tail: tensor<3x8xf32> group 2, state %q_tail: tensor<3x8xf32>, valid %{{.*}}: index) -> () {
// CHECK-NEXT:    %[[K:.*]] = chunk.tail %k
// CHECK-NEXT:    %[[Q:.*]] = chunk.tail %q
// CHECK-NEXT:    chunk.yield next %[[K]], %[[Q]]
// CHECK-LABEL: chunk.kernel @convolved_writes chunk 16 segments apart(
// CHECK-SAME:      state %k_tail: tensor<3x8xf32> group 2, state %S: tensor<8x16xf32> group 2,
// CHECK-SAME:      state %T: tensor<8x16xf32> group 2, state %S.decay: tensor<16xf32> group 2 lowest, valid
// CHECK:         %[[IS_NONE:.*]] = arith.cmpf oeq, %S.decay, %{{.*}} : tensor<16xf32>
// CHECK:         %[[PRODUCT:.*]] = arith.select %[[IS_NONE]], %{{.*}}, %S.decay
// CHECK:         chunk.decay_state %[[PRODUCT]] factor %{{.*}} along rows : tensor<16xf32>, tensor<16x16xf32>
// CHECK-LABEL: chunk.kernel @convolved_starts chunk 16 segments turns(
// CHECK-SAME:      checkpoint %S.left: tensor<8x16xf32> group 2, checkpoint %S.decay: tensor<16xf32> group 2,
// CHECK-SAME:      checkpoint %T.left: tensor<8x16xf32> group 2, state %S: tensor<8x16xf32> group 2,
// CHECK-SAME:      state %T: tensor<8x16xf32> group 2,
// CHECK:         chunk.broadcast %S.decay along columns : tensor<16xf32> to tensor<8x16xf32>
// CHECK:         %[[NEXT:.*]] = arith.addf %T, %T.left
// CHECK:         chunk.yield %S, %T next %{{.*}}, %[[NEXT]]
stretto.variant @convolved(%q: !K, %k: !K_per_G, %v: !V_per_G, %f: !V_per_G, %taps: !taps, %taps_of_keys: !taps_per_G) -> !V
    attributes {group = {G = 2 : i64, H = 1 : i64}} {
  %kc = stretto.conv %k, %taps_of_keys : !K_per_G, !taps_per_G
  %qc = stretto.conv %q, %taps : !K, !taps
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 factor %f along "V" : !S, !V_per_G
  %S2 = stretto.write %S1, %kc, %v : !S, !K_per_G, !V_per_G
  %T0 = stretto.state "T" : !S
  %T1 = stretto.write %T0, %kc, %v : !S, !K_per_G, !V_per_G
  %x = stretto.read %S2, %qc along "K" : !S, !K -> !V
  %y = stretto.read %T1, %qc along "K" : !S, !K -> !V
  %o = arith.addf %x, %y : !V
  stretto.yield %o : !V
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @kept_of_another(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  // expected-error @+1 {{[R14] variant 'kept_of_another': no segmented form: what changes the state 'T' depends on this read}}
  %known = stretto.read %1, %k along "K" : !S, !K -> !V
  %2 = stretto.state "T" : !S
  %3 = stretto.write %2, %k, %known : !S, !K, !V
  %o = stretto.read %3, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// A row that is written depends on a read of the state: the matrix that feedback leaves is found without the values, and
// multiplies the state that a segment begins with beside the decays. Where an operand has 16 bits it is multiplied in two
// parts, as the state is (the second run).

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 8, V : 4>

// CHECK-LABEL: chunk.kernel @delta_transitions chunk 16 segments apart(
// CHECK-SAME:      input %k: tensor<16x8xf32>, input %g: tensor<16xf32>, input %b: tensor<16xf32>,
// CHECK-SAME:      state %S.transition: tensor<8x8xf32>, state %S.decay: tensor<8xf32>, valid
// CHECK:         %[[OF_X:.*]] = chunk.dot %k, %S.transition
// CHECK:         %[[X:.*]] = chunk.decay_from_start %[[OF_X]] log %g
// CHECK:         %[[KEYS:.*]] = chunk.decay_from_start %k log %g
// CHECK:         %[[D:.*]] = math.exp %S.decay
// CHECK:         %[[FACTORS:.*]] = chunk.broadcast %[[D]] along columns : tensor<8xf32> to tensor<16x8xf32>
// CHECK:         %[[OF_D:.*]] = arith.mulf %[[KEYS]], %[[FACTORS]]
// CHECK:         %[[READ:.*]] = arith.addf %[[X]], %[[OF_D]]
// CHECK:         %[[FED:.*]] = arith.mulf %{{.*}}, %[[READ]]
// CHECK:         %[[WRITTEN:.*]] = arith.negf %[[FED]]
// CHECK:         %[[ROWS:.*]] = chunk.solve %{{.*}}, %[[WRITTEN]]
// CHECK:         %[[KEPT:.*]] = chunk.decay_state %S.transition log %g along rows
// CHECK:         %[[NEXT:.*]] = chunk.dot %{{.*}}, %[[ROWS]] transpose_left add %[[KEPT]]
// CHECK:         chunk.yield next %[[NEXT]], %{{.*}} : tensor<8x8xf32>, tensor<8xf32>
// CHECK-LABEL: chunk.kernel @delta_writes chunk 16 segments apart(
// CHECK-SAME:      state %S: tensor<8x4xf32>, valid %{{.*}}: index) -> () {
// CHECK-LABEL: chunk.kernel @delta_starts chunk 16 segments turns(
// CHECK-SAME:      checkpoint %S.left: tensor<8x4xf32>, checkpoint %S.decay: tensor<8xf32>,
// CHECK-SAME:      checkpoint %S.transition: tensor<8x8xf32>, state %S: tensor<8x4xf32>,
// CHECK:         %[[SUM:.*]] = arith.addf %{{.*}}, %S.left
// CHECK:         %[[NEXT:.*]] = chunk.dot %S.transition, %S add %[[SUM]]
// CHECK-NEXT:    chunk.yield %S next %[[NEXT]]
// ROUNDED-LABEL: chunk.kernel @delta_starts
// ROUNDED:       %[[SUM:.*]] = arith.addf %{{.*}}, %S.left
// ROUNDED-DAG:   %[[X:.*]] = arith.truncf %S.transition : tensor<8x8xf32> to tensor<8x8xbf16>
// ROUNDED-DAG:   %[[S:.*]] = arith.truncf %S : tensor<8x4xf32> to tensor<8x4xbf16>
// ROUNDED:       %[[FIRST:.*]] = chunk.dot %{{.*}}, %[[S]] add %[[SUM]]
// ROUNDED:       %[[SECOND:.*]] = chunk.dot %[[X]], %{{.*}} add %[[FIRST]]
// ROUNDED:       %[[NEXT:.*]] = chunk.dot %[[X]], %[[S]] add %[[SECOND]]
// ROUNDED-NEXT:  chunk.yield %S next %[[NEXT]]
stretto.variant @delta(%q: !K, %k: !K, %v: !V, %g: !number, %b: !number) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %1 = stretto.decay %0 log %g : !S, !number
  %known = stretto.read %1, %k along "K" : !S, !K -> !V
  %new = arith.subf %v, %known : !V
  %strength = stretto.broadcast %b : !number to !V
  %row = arith.mulf %strength, %new : !V
  %2 = stretto.write %1, %k, %row : !S, !K, !V
  %o = stretto.read %2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Decays of channels are added up down their columns.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

// CHECK-LABEL: chunk.kernel @fading_channels_writes chunk 16 segments apart(
// CHECK:         %[[OF_CHUNK:.*]] = chunk.reduce sum %g over rows : tensor<16x8xf32> -> tensor<8xf32>
// CHECK:         %[[DECAY:.*]] = arith.addf %S.decay, %[[OF_CHUNK]]
// CHECK-NOT:     chunk.accumulate
// CHECK:         chunk.yield next %{{.*}}, %[[DECAY]]
stretto.variant @fading_channels(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %1 = stretto.decay %0 log %g along "K" : !S, !K
  %2 = stretto.write %1, %k, %v : !S, !K, !V
  %o = stretto.read %2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// What is written depends on totals: those of each segment come first, with what shifts them.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 8, V : 4>

// CHECK-LABEL: chunk.kernel @totals chunk 16 segments apart(
// CHECK-LABEL: chunk.kernel @totals_totals chunk 16 segments apart(
// CHECK-SAME:      input %k: tensor<16x8xf32>, input %g: tensor<16xf32>, state %k_logaddexp: tensor<1x8xf32> lowest,
// CHECK-SAME:      state %g_sum: tensor<1x1xf32>, state %g_sum.decay: tensor<1x1xf32>, valid %[[N:.*]]: index) -> () {
// CHECK:         %[[SUMS:.*]] = chunk.scan logaddexp %k from %k_logaddexp
// CHECK:         %[[SUMS:.*]] = chunk.scan logaddexp %k from %k_logaddexp
// CHECK:         %[[LARGEST:.*]] = chunk.tail %[[SUMS]] valid %[[N]] after %k_logaddexp
// CHECK:         %[[SHIFTS:.*]] = chunk.scan add %{{.*}} from %g_sum.decay
// CHECK:         %[[SHIFT:.*]] = chunk.tail %[[SHIFTS]] valid %[[N]] after %g_sum.decay
// CHECK:         chunk.yield next %[[LARGEST]], %{{.*}}, %[[SHIFT]]
// CHECK-LABEL: chunk.kernel @totals_total_starts chunk 16 segments turns(
// CHECK-SAME:      checkpoint %k_logaddexp.left: tensor<1x8xf32>, checkpoint %g_sum.left: tensor<1x1xf32>,
// CHECK-SAME:      checkpoint %g_sum.decay: tensor<1x1xf32>, state %k_logaddexp: tensor<1x8xf32> lowest,
// CHECK-NEXT:    %[[K:.*]] = chunk.scan logaddexp %k_logaddexp.left from %k_logaddexp
// CHECK-NEXT:    %[[G:.*]] = chunk.scan add %g_sum.left from %g_sum log %g_sum.decay
// CHECK-NEXT:    chunk.yield %k_logaddexp, %g_sum next %[[K]], %[[G]]
// CHECK-LABEL: chunk.kernel @totals_writes chunk 16 segments apart(
// CHECK-LABEL: chunk.kernel @totals_starts chunk 16 segments turns(
stretto.variant @totals(%q: !K, %k: !K, %v: !V, %g: !number) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %total = stretto.scan logaddexp %k : !K
  %fading = stretto.scan add %g log %g : !number, !number
  %1 = stretto.decay %0 log %fading : !S, !number
  %2 = stretto.write %1, %total, %v : !S, !K, !V
  %o = stretto.read %2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @totals_of_totals(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %total = stretto.scan add %k : !K
  // expected-error @+1 {{[R14] variant 'totals_of_totals': no segmented form: a total of rows that depend on a read or another scan is carried}}
  %again = stretto.scan add %total : !K
  %1 = stretto.write %0, %again, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

!K = tensor<8xf64, #stretto.row<K>>

// expected-error @+1 {{[R14] variant 'rows': no segmented form: it has no 'stretto.state'}}
stretto.variant @rows(%q: !K) -> !K attributes {group = {H = 1 : i64}} {
  %o = arith.addf %q, %q : !K
  stretto.yield %o : !K
}

// -----

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!S = !stretto.state<K : 8, V : 4>

stretto.variant @earlier(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %read = stretto.read %1, %q along "K" : !S, !K -> !V
  // expected-error @+1 {{[R14] variant 'earlier': no segmented form: earlier rows that depend on a read or a scan are looked back at}}
  %before = stretto.delay %read by 1 : !V
  stretto.yield %before : !V
}

// -----

// A state that is read at an earlier time, beside a window: what its tokens write joins the state of a segment from one
// time to the next, and what is looked back at are rows of inputs, or of windows.

!K = tensor<8xf64, #stretto.row<K>>
!V = tensor<4xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!time = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 8, V : 4>

// CHECK-LABEL: chunk.kernel @windowed chunk 16 segments apart(
// CHECK-SAME:      state %S: tensor<8x4xf32>, window %k_window: tensor<10x8xf32> of "k", window %v_window: tensor<10x4xf32> of "v",
// CHECK-LABEL: chunk.kernel @windowed_writes chunk 16 segments apart(
// CHECK-SAME:      input %k: tensor<16x8xf32>, input %v: tensor<16x4xf32>,
// CHECK-SAME:      state %S: tensor<8x4xf32>, window %k_window: tensor<10x8xf32> of "k", window %v_window: tensor<10x4xf32> of "v",
// CHECK:         %[[SUM:.*]] = chunk.lookback outer from %{{.*}} to %{{.*}} past(%{{.*}} = %k : tensor<16x8xf32>, %{{.*}} = %v : tensor<16x4xf32>)
// CHECK:         %[[S:.*]] = arith.addf %S, %[[SUM]]
// CHECK:         chunk.yield next %[[S]]
// CHECK-LABEL: chunk.kernel @windowed_starts chunk 16 segments turns(
// CHECK-SAME:      checkpoint %S.left: tensor<8x4xf32>, state %S: tensor<8x4xf32>, valid %{{.*}}: index) -> (S: tensor<8x4xf32> checkpoint) {
// CHECK-NEXT:    %[[NEXT:.*]] = arith.addf %S, %S.left
// CHECK-NEXT:    chunk.yield %S next %[[NEXT]]
stretto.variant @windowed(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %eight = arith.constant dense<8.0> : !time
  %first = arith.subf %t, %eight : !time
  %one = arith.constant dense<1.0> : !time
  %left = arith.subf %first, %one : !time
  %m, %l, %acc = stretto.lookback softmax from %first {
    %kj = stretto.past %k : !K
    %s = stretto.dot %q, %kj : !K -> !number
    %vj = stretto.past %v : !V
    stretto.yield %s, %vj : !number, !V
  } : !number, !number, !V
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %old = stretto.read %1, %q along "K" at %left : !S, !K -> !V
  %o = arith.addf %acc, %old : !V
  stretto.yield %o : !V
}
