// RUN: stretto-opt %s --stretto-resume --split-input-file | FileCheck %s

// Tokens before the call's first ask for nothing: they leave states as they are.

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>
!n = tensor<f64, #stretto.row<()>>
!S = !stretto.state<K, V>

// CHECK-LABEL: stretto.variant @beside_a_state(
// CHECK-SAME:    %x: !number, %first: !number_per_1, %last: !number_per_1) -> !V
// CHECK:         %[[T:.+]] = stretto.position
// CHECK:         %[[ASKS:.+]] = arith.cmpf oge, %[[T]], %first
// CHECK:         %[[S:.+]] = stretto.state "S"
// CHECK:         %[[ASKS_K:.+]] = stretto.broadcast %[[ASKS]]
// CHECK:         %[[G:.+]] = arith.select %[[ASKS_K]], %g,
// CHECK:         stretto.decay %[[S]] log %[[G]]
// CHECK:         %[[KEY:.+]] = arith.select %{{.+}}, %k,
// CHECK:         stretto.write %{{.+}}, %[[KEY]], %v
// CHECK:         %[[NONE:.+]] = stretto.constant 0xFFF0000000000000
// CHECK:         %[[X:.+]] = arith.select %{{.+}}, %x, %[[NONE]]
// CHECK:         stretto.scan logaddexp %[[X]]
// CHECK:         stretto.scan logaddexp %[[X]] exclusive
stretto.variant @beside_a_state(%q: !K, %k: !K, %v: !V, %g: !K, %x: !n) -> !V {
  %0 = stretto.state "S" : !S
  %1 = stretto.decay %0 log %g along "K" : !S, !K
  %2 = stretto.write %1, %k, %v : !S, !K, !V
  %after = stretto.scan logaddexp %x : !n
  %before = stretto.scan logaddexp %x exclusive : !n
  %o = stretto.read %2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// A state that is read at an earlier time lacks what was written behind that time, and is left as of that of the last.

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>
!t = tensor<f64, #stretto.row<(), 1>>
!S = !stretto.state<K, V>

// CHECK-LABEL: stretto.variant @long_ago(
// CHECK:         %[[BEFORE:.+]] = arith.subf %first,
// CHECK:         %[[GIVEN:.+]] = arith.subf %[[BEFORE]],
// CHECK:         %[[LEFT:.+]] = arith.subf %last,
// CHECK:         %[[IS_LACKING:.+]] = arith.cmpf ogt, %[[T:.+]], %[[GIVEN]]
// CHECK:         %[[IS_LEFT:.+]] = arith.cmpf ole, %[[T]], %[[LEFT]]
// CHECK:         %[[IS_BOTH:.+]] = arith.andi %[[IS_LACKING]], %[[IS_LEFT]]
// CHECK:         %[[END:.+]] = stretto.state "S.last"
// CHECK:         %[[S:.+]] = stretto.state "S"
// CHECK:         %[[LACKING:.+]] = stretto.broadcast %[[IS_LACKING]]
// CHECK:         %[[KEY:.+]] = arith.select %[[LACKING]], %k,
// CHECK:         stretto.write %[[S]], %[[KEY]], %v
// CHECK:         %[[BOTH:.+]] = stretto.broadcast %[[IS_BOTH]]
// CHECK:         %[[LAST_KEY:.+]] = arith.select %[[BOTH]], %k,
// CHECK:         stretto.write %[[END]], %[[LAST_KEY]], %v
stretto.variant @long_ago(%q: !K, %k: !K, %v: !V) -> !V {
  %t = stretto.position
  %w = stretto.constant 8.0 : !t
  %at = arith.subf %t, %w : !t
  %0 = stretto.state "S" : !S
  %1 = stretto.write %0, %k, %v : !S, !K, !V
  %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
  stretto.yield %o : !V
}

// -----

// Rows of a tail that belong to tokens of windows are rows of the longer call. The entry keeps its name, whoever shares it.

!n = tensor<f64, #stretto.row<()>>
!K = tensor<8xf64, #stretto.row<K>>

// CHECK-LABEL: stretto.variant @tails(
// CHECK-SAME:    %x: !{{.+}}, %y: !{{.+}}, %first: !{{.+}}, %last: !{{.+}}, %x_tail_rows: !{{.+}}, %tail_rows: !{{.+}})
// CHECK:         %[[ASKS:.+]] = arith.cmpf oge,
// CHECK:         %[[OWN:.+]] = stretto.broadcast %[[ASKS]]
// CHECK:         %[[X:.+]] = arith.select %[[OWN]], %x, %x_tail_rows
// CHECK:         stretto.delay %[[X]] by 1 of "x_tail"
// CHECK:         stretto.delay %[[X]] by 3 of "x_tail"
// CHECK:         %[[TANH:.+]] = math.tanh %y
// CHECK:         %[[Y:.+]] = arith.select %{{.+}}, %[[TANH]], %tail_rows
// CHECK:         stretto.delay %[[Y]] by 2 of "tail"
stretto.variant @tails(%x: !K, %y: !n) -> (!K, !n) {
  %x1 = stretto.delay %x by 1 : !K
  %x3 = stretto.delay %x by 3 : !K
  %tanh = math.tanh %y : !n
  %y2 = stretto.delay %tanh by 2 : !n
  %o = arith.addf %x1, %x3 : !K
  stretto.yield %o, %y2 : !K, !n
}
