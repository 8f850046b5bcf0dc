// RUN: stretto-opt %s --stretto-differentiate=wanted=v --split-input-file | FileCheck %s --check-prefixes=ALL,V
// RUN: stretto-opt %s --stretto-differentiate=wanted=q --split-input-file | FileCheck %s --check-prefixes=ALL,Q
// RUN: stretto-opt %s --stretto-differentiate=wanted=S --split-input-file | FileCheck %s --check-prefixes=ALL,STATE
// RUN: stretto-opt %s --stretto-differentiate="wanted=k zero=0" --split-input-file | FileCheck %s --check-prefixes=ALL,ZERO
// RUN: not stretto-opt %s --stretto-differentiate=wanted=x 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not stretto-opt %s --stretto-differentiate=zero=1 2>&1 | FileCheck %s --check-prefix=RESULTS

// What nobody wants is not computed. The gradient of values needs no forward state, and none of the decay; that of
// queries nothing of reverse time; that of the initial state nothing but the cotangent's own.

// UNKNOWN: the gradient of 'x' is wanted, expected some of: q, k, v, g, S
// RESULTS: the cotangent of result 1 is 0, expected one of 1

!K = tensor<?xf64, #stretto.row<K>>
!V = tensor<?xf64, #stretto.row<V>>
!S = !stretto.state<K, V>

// ALL-LABEL:   stretto.variant @gated_backward(
// V-SAME:        %d_o: !V) -> !V attributes {gradient, wanted = ["v"]}
// V-NEXT:        %[[D0:.+]] = stretto.state "d_S"
// V-NEXT:        %[[D1:.+]] = stretto.write %[[D0]], %q, %d_o
// V-NEXT:        %[[DV:.+]] = stretto.read %[[D1]], %k along "K"
// V-NEXT:        stretto.decay %[[D1]] log %g
// V-NEXT:        stretto.yield %[[DV]]

// Q-SAME:        %d_o: !V) -> !K attributes {gradient, wanted = ["q"]}
// Q-NEXT:        stretto.state "S"
// Q-NEXT:        stretto.decay
// Q-NEXT:        %[[S:.+]] = stretto.write
// Q-NEXT:        %[[DQ:.+]] = stretto.read %[[S]], %d_o along "V"
// Q-NEXT:        stretto.yield %[[DQ]]

// STATE-SAME:      %d_o: !V) -> () attributes {gradient, wanted = []}
// STATE-NEXT:      %[[D0:.+]] = stretto.state "d_S"
// STATE-NEXT:      %[[D1:.+]] = stretto.write %[[D0]], %q, %d_o
// STATE-NEXT:      stretto.decay %[[D1]] log %g
// STATE-NEXT:      stretto.yield

// Without a cotangent of the output, that of the final state alone comes in.
// ZERO-SAME:     %g: !K) -> !K attributes {gradient, wanted = ["k"]}
// ZERO-NEXT:     %[[D0:.+]] = stretto.state "d_S"
// ZERO-NEXT:     %[[DK:.+]] = stretto.read %[[D0]], %v along "V"
// ZERO-NEXT:     stretto.decay %[[D0]] log %g
// ZERO-NEXT:     stretto.yield %[[DK]]
stretto.variant @gated(%q: !K, %k: !K, %v: !V, %g: !K) -> !V {
  %S0 = stretto.state "S" : !S
  %S1 = stretto.decay %S0 log %g along "K" : !S, !K
  %S2 = stretto.write %S1, %k, %v : !S, !K, !V
  %o = stretto.read %S2, %q along "K" : !S, !K -> !V
  stretto.yield %o : !V
}
