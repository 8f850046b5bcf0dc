// RUN: stretto-opt %s --split-input-file --stretto-chunk='chunk=16 element=bf16' | FileCheck %s

// Which chunks a range reaches is known where it moves on with the token: of a window that ends with the token those
// as far back as it begins, wholly those that its first token has all of.

!K = tensor<32xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: chunk.kernel @window chunk
// CHECK: chunk.lookback softmax {{.*}} attributes {met = array<i64: 3, 0>, wholly = array<i64: 1, 1>}
stretto.variant @window(%q: !K, %k: !K) -> !K attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<39.0> : !number_per_1
  %first = arith.subf %t, %w : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !number
    stretto.yield %s, %k_j : !number, !K
  } : !number, !number, !K
  stretto.yield %acc : !K
}

// -----

// Blocks of three chunks: of the last of them, two before it at least.

!K = tensor<32xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: chunk.kernel @blocks chunk
// CHECK: chunk.lookback softmax {{.*}} attributes {met = array<i64: 2, 0>} {
stretto.variant @blocks(%q: !K, %k: !K) -> !K attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<48.0> : !number_per_1
  %blocks = arith.divf %t, %w : !number_per_1
  %block = math.floor %blocks : !number_per_1
  %first = arith.mulf %w, %block : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !number
    stretto.yield %s, %k_j : !number, !K
  } : !number, !number, !K
  stretto.yield %acc : !K
}

// -----

// A range that begins with the sequence, in whatever way, or grows so slowly that the first chunks do not show it, says
// nothing.

!K = tensor<32xf64, #stretto.row<K>>
!number = tensor<f64, #stretto.row<()>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>

// CHECK-LABEL: chunk.kernel @all chunk
// CHECK: chunk.lookback softmax
// CHECK-NOT: met =
// CHECK-LABEL: chunk.kernel @unlimited chunk
// CHECK: chunk.lookback softmax
// CHECK-NOT: met =
// CHECK-LABEL: chunk.kernel @far chunk
// CHECK: chunk.lookback softmax
// CHECK-NOT: met =
// CHECK-LABEL: chunk.kernel @grows chunk
// CHECK: chunk.lookback softmax
// CHECK-NOT: met =
// CHECK: chunk.yield
stretto.variant @all(%q: !K, %k: !K) -> !K attributes {group = {H = 1 : i64}} {
  %first = arith.constant dense<0.0> : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !number
    stretto.yield %s, %k_j : !number, !K
  } : !number, !number, !K
  stretto.yield %acc : !K
}
stretto.variant @unlimited(%q: !K, %k: !K) -> !K attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<0x7FF0000000000000> : !number_per_1
  %first = arith.subf %t, %w : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !number
    stretto.yield %s, %k_j : !number, !K
  } : !number, !number, !K
  stretto.yield %acc : !K
}
stretto.variant @far(%q: !K, %k: !K) -> !K attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<1.0e30> : !number_per_1
  %first = arith.subf %t, %w : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !number
    stretto.yield %s, %k_j : !number, !K
  } : !number, !number, !K
  stretto.yield %acc : !K
}
stretto.variant @grows(%q: !K, %k: !K) -> !K attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %long = arith.constant dense<100000.0> : !number_per_1
  %w = arith.constant dense<15.0> : !number_per_1
  %part = arith.divf %t, %long : !number_per_1
  %steps = math.floor %part : !number_per_1
  %further = arith.mulf %steps, %w : !number_per_1
  %before = arith.subf %t, %w : !number_per_1
  %first = arith.subf %before, %further : !number_per_1
  %m, %l, %acc = stretto.lookback softmax from %first {
    %k_j = stretto.past %k : !K
    %s = stretto.dot %q, %k_j : !K -> !number
    stretto.yield %s, %k_j : !number, !K
  } : !number, !number, !K
  stretto.yield %acc : !K
}

// -----

// Blocks of one chunk: the state of the block before the last joins with each, as one chunk.

!K = tensor<32xf64, #stretto.row<K>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!V = tensor<16xf64, #stretto.row<V>>
!S = !stretto.state<K : 32, V : 16>

// CHECK-LABEL: chunk.kernel @joins chunk
// CHECK: chunk.lookback outer {{.*}} attributes {met = array<i64: 1, 1>, wholly = array<i64: 1, 1>}
stretto.variant @joins(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<16.0> : !number_per_1
  %one = arith.constant dense<1.0> : !number_per_1
  %blocks = arith.divf %t, %w : !number_per_1
  %block = math.floor %blocks : !number_per_1
  %start = arith.mulf %block, %w : !number_per_1
  %at = arith.subf %start, %one : !number_per_1
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Where each token has a time of its own, what joins with the last chunk depends on how many tokens that has.

!K = tensor<32xf64, #stretto.row<K>>
!number_per_1 = tensor<f64, #stretto.row<(), 1>>
!V = tensor<16xf64, #stretto.row<V>>
!S = !stretto.state<K : 32, V : 16>

// CHECK-LABEL: chunk.kernel @slides chunk
// CHECK: chunk.lookback outer
// CHECK-NOT: met =
// CHECK: chunk.yield
stretto.variant @slides(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
  %t = stretto.position
  %w = arith.constant dense<16.0> : !number_per_1
  %at = arith.subf %t, %w : !number_per_1
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
  stretto.yield %o : !V
}
