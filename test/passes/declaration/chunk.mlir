// RUN: stretto-opt %s --split-input-file --stretto-chunk='chunk=16 element=bf16 elements=g=f32' | FileCheck %s

// Without decay: what the state holds, then what the chunk's own tokens wrote.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<64xf64, #stretto.row<V>>
!S = !stretto.state<K : 32, V : 64>

// CHECK-LABEL: chunk.kernel @linear chunk 16(
// CHECK-SAME:      input %q: tensor<16x32xbf16>, input %k: tensor<16x32xbf16>, input %v: tensor<16x64xbf16>,
// CHECK-SAME:      state %S: tensor<32x64xf32>, valid %{{.*}}: index) -> (o: tensor<16x64xbf16>) {
// CHECK-DAG:     %[[Q:.*]] = arith.extf %q
// CHECK-DAG:     %[[K:.*]] = arith.extf %k
// CHECK-DAG:     %[[V:.*]] = arith.extf %v
// CHECK:         %[[OLD:.*]] = chunk.dot %[[Q]], %S : tensor<16x32xf32>, tensor<32x64xf32> -> tensor<16x64xf32>
// CHECK-NEXT:    %[[QK:.*]] = chunk.dot %[[Q]], %[[K]] transpose_right : {{.*}} -> tensor<16x16xf32>
// CHECK-NEXT:    %[[P:.*]] = chunk.causal %[[QK]] : tensor<16x16xf32>
// CHECK-NEXT:    %[[O:.*]] = chunk.dot %[[P]], %[[V]] add %[[OLD]]
// CHECK-NEXT:    %[[NARROW:.*]] = arith.truncf %[[O]] : tensor<16x64xf32> to tensor<16x64xbf16>
// CHECK-NEXT:    %[[NEXT:.*]] = chunk.dot %[[K]], %[[V]] transpose_left add %S
// CHECK-NEXT:    chunk.yield %[[NARROW]] next %[[NEXT]] : tensor<16x64xbf16>, tensor<32x64xf32>
stretto.variant @linear(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k, %v : !S, !K, !V
  %o = stretto.read %S1, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Gates, and a read on either side of decay and write; four heads share keys, values and state.

!K = tensor<32xf64, #stretto.row<K>>
!K_per_G = tensor<32xf64, #stretto.row<K, G>>
!V = tensor<64xf64, #stretto.row<V>>
!V_per_G = tensor<64xf64, #stretto.row<V, G>>
!S = !stretto.state<K : 32, V : 64, G>

// CHECK-LABEL: chunk.kernel @gated chunk 16(
// CHECK-SAME:      input %q: tensor<16x32xbf16>, input %k: tensor<16x32xbf16> group 4,
// CHECK-SAME:      input %g: tensor<16x32xf32> group 4, state %S: tensor<32x64xf32> group 4,
// CHECK-DAG:     %[[Q:.*]] = arith.extf %q
// CHECK-DAG:     %[[K:.*]] = arith.extf %k
// CHECK-DAG:     %[[V:.*]] = arith.extf %v
// CHECK:         %[[QB:.*]] = chunk.decay_from_start %[[Q]] log %g before
// CHECK-NEXT:    %[[OLD_B:.*]] = chunk.dot %[[QB]], %S
// CHECK-NEXT:    %[[PB:.*]] = chunk.decay_dot %[[Q]], %[[K]] log %g before
// CHECK-NEXT:    %[[BEFORE:.*]] = chunk.dot %[[PB]], %[[V]] add %[[OLD_B]]
// CHECK-NEXT:    %[[QA:.*]] = chunk.decay_from_start %[[Q]] log %g :
// CHECK-NEXT:    %[[OLD_A:.*]] = chunk.dot %[[QA]], %S
// CHECK-NEXT:    %[[PA:.*]] = chunk.decay_dot %[[Q]], %[[K]] log %g :
// CHECK-NEXT:    %[[AFTER:.*]] = chunk.dot %[[PA]], %[[V]] add %[[OLD_A]]
// CHECK:         %[[S:.*]] = chunk.decay_state %S log %g along rows
// CHECK-NEXT:    %[[KE:.*]] = chunk.decay_to_end %[[K]] log %g
// CHECK-NEXT:    chunk.dot %[[KE]], %[[V]] transpose_left add %[[S]]
stretto.variant @gated(%q: !K, %k: !K_per_G, %v: !V_per_G, %g: !K_per_G) -> (!V, !V)
    attributes {group = {G = 4 : i64, H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %before = stretto.read %S0, %q along "K" : !S, !K -> !V
  %S1 = stretto.decay %S0 log %g along "K" : !S, !K_per_G
  %S2 = stretto.write %S1, %k, %v : !S, !K_per_G, !V_per_G
  %after = stretto.read %S2, %q along "K" : !S, !K -> !V
  stretto.yield %before, %after : !V, !V
}

// -----

// Beyond the end of a sequence inputs are 0. A factor of 1/2 must become 1 there; keys of 1 and values of 2 must not be
// written, for which it is enough that the keys are 0.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<64xf64, #stretto.row<V>>
!S = !stretto.state<K : 32, V : 64>

// CHECK-LABEL: chunk.kernel @masked chunk 16(
// CHECK-SAME:      valid %[[N:.*]]: index)
// CHECK:         %[[F:.*]] = arith.mulf
// CHECK:         %[[FM:.*]] = chunk.mask %[[F]] valid %[[N]] else 1.0
// CHECK-NOT:     chunk.mask
// CHECK:         %[[KE:.*]] = chunk.decay_to_end %{{.*}} factor %[[FM]]
// CHECK-NEXT:    %[[KM:.*]] = chunk.mask %[[KE]] valid %[[N]] : tensor<16x32xf32>
// CHECK-NEXT:    chunk.dot %[[KM]], %{{.*}} transpose_left
// CHECK-NOT:     chunk.mask
stretto.variant @masked(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %one = arith.constant dense<1.0> : !K
  %two = arith.constant dense<2.0> : !V
  %half = arith.constant dense<0.5> : !K
  %k1 = arith.addf %k, %one : !K
  %v2 = arith.addf %v, %two : !V
  %f = math.exp %k : !K
  %f2 = arith.mulf %f, %half : !K
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 factor %f2 along "K" : !S, !K
  %S2 = stretto.write %S1, %k1, %v2 : !S, !K, !V
  %o = stretto.read %S2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// 1 - k times 0 is 0: nothing is masked.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<64xf64, #stretto.row<V>>
!S = !stretto.state<K : 32, V : 64>

// CHECK-LABEL: chunk.kernel @not_masked chunk 16(
// CHECK-NOT:     chunk.mask
// CHECK:         chunk.yield
stretto.variant @not_masked(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %one = arith.constant dense<1.0> : !K
  %k1 = arith.subf %one, %k : !K
  %S0 = stretto.state "S" : !S
  %S1 = stretto.write %S0, %k1, %v : !S, !K, !V
  %o = stretto.read %S1, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Tables become symbols that the host evaluates; a convolution carries the raw rows before the chunk.

!K = tensor<8xf64, #stretto.row<K>>
!K_per_1 = tensor<8xf64, #stretto.row<K, 1>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!taps = tensor<8x4xf64, #stretto.param<[K, 4]>>

// CHECK-LABEL: chunk.kernel @time chunk 16(
// CHECK-SAME:      input %x: tensor<16x8xbf16>, parameter %taps: tensor<8x4xbf16>,
// CHECK-SAME:      table %[[STILL:[^:]*]]: tensor<8xf32> group {{[0-9]+}},
// CHECK-SAME:      table %[[ANGLE:[^:]*]]: tensor<16x8xf32> group {{[0-9]+}},
// CHECK-SAME:      table %[[WAVE:[^:]*]]: tensor<16x8xf32> group {{[0-9]+}},
// CHECK-SAME:      table %[[POSITION:[^:]*]]: tensor<16xf32> group {{[0-9]+}},
// CHECK-SAME:      state %x_tail: tensor<3x8xbf16>, valid %[[N:.*]]: index)
// CHECK:         chunk.broadcast %[[STILL]] along columns : tensor<8xf32> to tensor<16x8xf32>
// CHECK:         %[[TAIL:.*]] = arith.extf %x_tail
// CHECK:         chunk.conv %{{.*}}, %{{.*}} tail %[[TAIL]]
// CHECK:         %[[NEXT:.*]] = chunk.tail %x valid %[[N]] after %x_tail : tensor<16x8xbf16>, tensor<3x8xbf16>
// CHECK:         chunk.yield %{{.*}}, %{{.*}} next %[[NEXT]]
// CHECK:       chunk.table @[[STILL]] {
// CHECK-NEXT:    ^bb0(%t: f64, %h: f64, %[[D:.*]]: f64):
// CHECK-NEXT:    chunk.result %[[D]] : f64
// CHECK:       chunk.table @[[ANGLE]] varying {
// CHECK:         math.cos %t : f64
// CHECK:       chunk.table @[[WAVE]] period 7 {
// CHECK:         math.sin %t : f64
// CHECK:       chunk.table @[[POSITION]] varying {
// CHECK-NEXT:    ^bb0(%[[T:.*]]: f64, %h: f64, %d: f64):
// CHECK-NEXT:    chunk.result %[[T]] : f64
stretto.variant @time(%x: !K, %taps: !taps, %g: !K) -> (!K, !K) attributes {group = {H = 1 : i64}} {
  %seven = arith.constant 7.0 : f64
  %still = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    stretto.yield %d : f64
  } : !K_per_1
  %wave = stretto.table period %seven {
  ^bb0(%t: f64, %h: f64, %d: f64):
    %y = math.sin %t : f64
    stretto.yield %y : f64
  } : !K_per_1
  %angle = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    %y = math.cos %t : f64
    stretto.yield %y : f64
  } : !K_per_1
  %s = stretto.broadcast %still : !K_per_1 to !K
  %w = stretto.broadcast %wave : !K_per_1 to !K
  %a = stretto.broadcast %angle : !K_per_1 to !K
  %c = stretto.conv %x, %taps : !K, !taps
  %0 = arith.mulf %c, %w : !K
  %1 = arith.mulf %0, %a : !K
  %2 = arith.addf %1, %s : !K
  %t = stretto.position
  %ts = stretto.broadcast %t : !number_per_1 to !K
  stretto.yield %2, %ts : !K, !K
}

// -----

// Two chained states whose slots decay: that decay stands outside of the products of queries and keys, and on the keys'
// side of the products with values.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<64xf64, #stretto.row<V>>
!N = tensor<16xf64, #stretto.row<N>>
!keys = !stretto.state<N : 16, K : 32>
!values = !stretto.state<N : 16, V : 64>

// CHECK-LABEL: chunk.kernel @slots chunk 16(
// CHECK-DAG:     %[[Q:.*]] = arith.extf %q
// CHECK-DAG:     %[[K:.*]] = arith.extf %k
// CHECK-DAG:     %[[S:.*]] = arith.extf %s
// CHECK:         %[[OLD:.*]] = chunk.dot %[[Q]], %keys transpose_right : {{.*}} -> tensor<16x16xf32>
// CHECK-NEXT:    %[[START:.*]] = chunk.decay_from_start %[[OLD]] log %g :
// CHECK-NEXT:    %[[QK:.*]] = chunk.dot %[[Q]], %[[K]] transpose_right
// CHECK-NEXT:    %[[Z:.*]] = chunk.decay_mix %[[QK]], %[[S]] log %g add %[[START]]
// CHECK:         %[[P:.*]] = math.exp %[[Z]]
// CHECK:         chunk.decay_from_start %[[P]] log %g
// CHECK:         chunk.decay_dot %[[P]], %[[S]] log %g
stretto.variant @slots(%q: !K, %k: !K, %v: !V, %s: !N, %g: !N) -> !V attributes {group = {H = 1 : i64}} {
  %keys0 = stretto.state "keys" : !keys
  %keys1 = stretto.decay %keys0 log %g along "N" : !keys, !N
  %keys2 = stretto.write %keys1, %s, %k : !keys, !N, !K
  %values0 = stretto.state "values" : !values
  %values1 = stretto.decay %values0 log %g along "N" : !values, !N
  %values2 = stretto.write %values1, %s, %v : !values, !N, !V
  %z = stretto.read %keys2, %q along "K" : !keys, !K -> !N
  %p = math.exp %z : !N
  %o = stretto.read %values2, %p along "N" : !values, !N -> !V
  stretto.yield %o : !V
}

// -----

// A row that depends on what the state recalls: the rows of a chunk are the solution of a triangular system.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<64xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K : 32, V : 64>

// CHECK-LABEL: chunk.kernel @delta chunk 16(
// CHECK-DAG:     %[[Q:.*]] = arith.extf %q
// CHECK-DAG:     %[[K:.*]] = arith.extf %k
// CHECK-DAG:     %[[B:.*]] = arith.extf %b
// What the read sees of the start, and the row that is left of the values, times its number.
// CHECK:         %[[KS:.*]] = chunk.decay_from_start %[[K]] log %[[G:.*]] :
// CHECK-NEXT:    %[[KNOWN:.*]] = chunk.dot %[[KS]], %S
// CHECK:         %[[P:.*]] = chunk.decay_dot %[[K]], %[[K]] log %[[G]] :
// CHECK:         %[[L:.*]] = arith.mulf %{{.*}}, %{{.*}} : tensor<16x16xf32>
// CHECK:         %[[U:.*]] = chunk.solve %[[L]], %{{.*}} : tensor<16x16xf32>, tensor<16x64xf32>
// CHECK:         %[[PQ:.*]] = chunk.decay_dot %[[Q]], %[[K]] log %[[G]] :
// CHECK-NEXT:    chunk.dot %[[PQ]], %[[U]] add
// CHECK:         chunk.dot %{{.*}}, %[[U]] transpose_left add
stretto.variant @delta(%q: !K, %k: !K, %v: !V, %b: !number, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g along "K" : !S, !K
  %r = stretto.read %S1, %k along "K" : !S, !K -> !V
  %d = arith.subf %v, %r : !V
  %bs = stretto.broadcast %b : !number to !V
  %u = arith.mulf %bs, %d : !V
  %S2 = stretto.write %S1, %k, %u : !S, !K, !V
  %o = stretto.read %S2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// A scan carries its total, which is -inf before the first number; an exclusive one looks back by one token.

!K = tensor<32xf64, #stretto.row<K>>

// CHECK-LABEL: chunk.kernel @scan chunk 16(
// CHECK-SAME:      input %x: tensor<16x32xbf16>, state %x_logaddexp: tensor<1x32xf32> lowest,
// CHECK:         %[[X:.*]] = arith.extf %x
// CHECK:         %[[L:.*]] = chunk.scan logaddexp %[[X]] from %x_logaddexp : tensor<16x32xf32>, tensor<1x32xf32>
// CHECK:         chunk.delay %{{.*}} by 1 tail %x_logaddexp
// CHECK:         chunk.tail %{{.*}} valid %{{.*}} after %x_logaddexp
stretto.variant @scan(%x: !K, %g: !K) -> (!K, !K) attributes {group = {H = 1 : i64}} {
  %total = stretto.scan logaddexp %x : !K
  %before = stretto.scan logaddexp %x exclusive : !K
  stretto.yield %total, %before : !K, !K
}

// -----

// Rows of the other token of a look-back are computed from the inputs of its chunk. The last tokens are kept as long as
// the range asks for.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: chunk.kernel @window chunk 16(
// CHECK-SAME:      window %k_window: tensor<9x32xbf16> of "k", window %v_window: tensor<9x16xbf16> of "v"
// CHECK:         %{{.*}}:3 = chunk.lookback softmax from %{{.*}} : tensor<16xf32>
// CHECK-SAME:      past(%k_j = %k : tensor<16x32xbf16>, %v_j = %v : tensor<16x16xbf16>) {
// CHECK:           %[[K:.*]] = arith.extf %k_j
// CHECK:           %[[S:.*]] = chunk.dot %{{.*}}, %[[K]] transpose_right
// CHECK:           chunk.contribute %[[S]],
stretto.variant @window(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = stretto.constant 8.0 : !number_per_1
  %first = arith.subf %t, %w : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !number
    %v_j = stretto.past %v : !V
    stretto.yield %s, %v_j : !number, !V
  } : !number, !number, !V
  stretto.yield %acc : !V
}

// -----

// A state of long ago is carried as of the last token of the chunk before; what was written since is looked back to.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 32, V : 16>

// CHECK-LABEL: chunk.kernel @long_ago chunk 16(
// CHECK-SAME:      state %S: tensor<32x16xf32>, window %k_window: tensor<9x32xbf16> of "k"
// CHECK:         %[[O:.*]] = chunk.dot %{{.*}}, %S : tensor<16x32xf32>, tensor<32x16xf32>
// CHECK:         %[[SINCE:.*]] = chunk.lookback sum from %{{.*}} to %[[TIME:.*]] : tensor<16xf32>
// CHECK:         arith.addf %[[O]], %[[SINCE]]
// CHECK:         %[[WRITTEN:.*]] = chunk.lookback outer from %{{.*}} to %[[TIME]] : tensor<16xf32>
// CHECK:         %[[NEXT:.*]] = arith.addf %S, %[[WRITTEN]]
// CHECK:         chunk.yield %{{.*}} next %[[NEXT]]
stretto.variant @long_ago(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = stretto.constant 8.0 : !number_per_1
  %at = arith.subf %t, %w : !number_per_1
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Where all tokens of a chunk read the state as of one time, it goes on to that time before it is read. What tokens see
// beyond the time of the first one there is only where a sequence does not begin with a chunk.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 32, V : 16>

// CHECK-LABEL: chunk.kernel @blocks_ago chunk 16(
// CHECK:         %[[WRITTEN:.*]] = chunk.lookback outer from %{{.*}} to %{{.*}} : tensor<16xf32> past({{.*}}) {
// CHECK:         %[[FIRST:.*]] = arith.addf %S, %[[WRITTEN]]
// CHECK:         %[[O:.*]] = chunk.dot %{{.*}}, %[[FIRST]] : tensor<16x32xf32>, tensor<32x16xf32>
// CHECK:         %[[SINCE:.*]] = chunk.lookback sum from %{{.*}} to %[[TIME:.*]] : tensor<16xf32> past({{.*}}) attributes {continued}
// CHECK:         arith.addf %[[O]], %[[SINCE]]
// CHECK:         %[[REST:.*]] = chunk.lookback outer from %{{.*}} to %[[TIME]] : tensor<16xf32> past({{.*}}) attributes {continued}
// CHECK:         %[[NEXT:.*]] = arith.addf %[[FIRST]], %[[REST]]
// CHECK:         chunk.yield %{{.*}} next %[[NEXT]]
stretto.variant @blocks_ago(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<32.0> : !number_per_1
  %blocks = arith.divf %t, %w : !number_per_1
  %block = math.floor %blocks : !number_per_1
  %start = arith.mulf %block, %w : !number_per_1
  %at = arith.subf %start, %w : !number_per_1
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Blocks of 8 tokens begin within a chunk of 16.

!K = tensor<32xf64, #stretto.row<K>>
!V = tensor<16xf64, #stretto.row<V>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K : 32, V : 16>

// CHECK-LABEL: chunk.kernel @short_blocks_ago chunk 16(
// CHECK:         chunk.dot %{{.*}}, %S : tensor<16x32xf32>, tensor<32x16xf32>
// CHECK-NOT:     continued
// CHECK:         chunk.yield
stretto.variant @short_blocks_ago(%q: !K, %k: !K, %v: !V, %g: !K) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<8.0> : !number_per_1
  %blocks = arith.divf %t, %w : !number_per_1
  %block = math.floor %blocks : !number_per_1
  %start = arith.mulf %block, %w : !number_per_1
  %at = arith.subf %start, %w : !number_per_1
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
  stretto.yield %o : !V
}
