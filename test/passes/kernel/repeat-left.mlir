// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{repeat-left=true}))' | FileCheck %s --check-prefixes=CHECK,REPEATED
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts))' | FileCheck %s --check-prefixes=CHECK,EXCHANGED

// Eight warps, four for each half of the columns of the output: both form all scores, whatever condition they depend on,
// and multiply them from registers. Otherwise each has a half of them, and they are exchanged.
// REPEATED-DAG: #[[ALL:.*]] = #kernel.layout<[6, 6], register = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 0{{\]\]}}>
// EXCHANGED-DAG: #[[HALF:.*]] = #kernel.layout<[6, 6], register = {{.*}}, warp = {{\[\[}}16, 0], [32, 0], [0, 32{{\]\]}}>
// CHECK-LABEL: kernel.func @f
// CHECK: scf.if
// REPEATED: chunk.dot {{.*}} -> tensor<64x64xf32, #[[ALL]]>
// REPEATED: %[[P:.*]] = arith.truncf {{.*}} to tensor<64x64xbf16, #[[ALL]]>
// REPEATED: chunk.dot %[[P]],
// EXCHANGED: chunk.dot {{.*}} -> tensor<64x64xf32, #[[HALF]]>
// EXCHANGED: %[[P:.*]] = arith.truncf {{.*}} to tensor<64x64xbf16, #[[HALF]]>
// EXCHANGED: kernel.convert %[[P]] : {{.*}} -> tensor<64x64xbf16, #shared
chunk.kernel @f chunk 64 (input %q: tensor<64x128xbf16>, state %S: tensor<128x128xf32>, valid %n: index) -> (o: tensor<64x128xf32>) {
  %good = chunk.within %q limits [1.0] : tensor<64x128xbf16>
  %p = scf.if %good -> (tensor<64x64xf32>) {
    %all = chunk.dot %q, %q transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %c = chunk.causal %all : tensor<64x64xf32>
    scf.yield %c : tensor<64x64xf32>
  } else {
    %none = arith.constant dense<0.0> : tensor<64x64xf32>
    scf.yield %none : tensor<64x64xf32>
  }
  %p16 = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %p16, %q : tensor<64x64xbf16>, tensor<64x128xbf16> -> tensor<64x128xf32>
  chunk.yield %o next %S : tensor<64x128xf32>, tensor<128x128xf32>
}

// Weights of a window are scores that a range selects: all of it is formed in each half, with the sums over its rows.
chunk.table @position varying {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %t : f64
}
// CHECK-LABEL: kernel.func @window
// REPEATED: kernel.in_range {{.*}} -> tensor<64x64xi1, #[[ALL]]>
// REPEATED: chunk.reduce max %{{.*}} over columns : tensor<64x64xf32, #[[ALL]]>
// REPEATED: %[[P:.*]] = arith.truncf {{.*}} to tensor<64x64xbf16, #[[ALL]]>
// REPEATED: chunk.dot %[[P]],
// EXCHANGED: kernel.in_range {{.*}} -> tensor<64x64xi1, #[[HALF]]>
chunk.kernel @window chunk 64 (input %q: tensor<64x128xbf16>, table %position: tensor<64xf32>, state %S: tensor<128x128xf32>,
                               valid %n: index) -> (o: tensor<64x128xf32>) {
  %m, %l, %acc = chunk.lookback softmax from %position : tensor<64xf32> past(%q_j = %q : tensor<64x128xbf16>) {
    %s = chunk.dot %q, %q_j transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %x = arith.extf %q_j : tensor<64x128xbf16> to tensor<64x128xf32>
    chunk.contribute %s, %x : tensor<64x64xf32>, tensor<64x128xf32>
  } : tensor<64xf32>, tensor<64xf32>, tensor<64x128xf32>
  chunk.yield %acc next %S : tensor<64x128xf32>, tensor<128x128xf32>
}

// What scores are added to, another product that is there for nothing else, is formed beside them.
// CHECK-LABEL: kernel.func @rests
// REPEATED-COUNT-2: chunk.dot {{.*}} -> tensor<64x64xf32, #[[ALL]]>
// EXCHANGED-COUNT-2: chunk.dot {{.*}} -> tensor<64x64xf32, #[[HALF]]>
chunk.kernel @rests chunk 64 (input %q: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>, input %r: tensor<64x128xbf16>,
                              state %S: tensor<128x128xf32>, valid %n: index)
    -> (o: tensor<64x128xf32>) {
  %rest = chunk.dot %q, %r transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
  %all = chunk.dot %q, %k transpose_right add %rest : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
  %p16 = arith.truncf %all : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %p16, %k : tensor<64x64xbf16>, tensor<64x128xbf16> -> tensor<64x128xf32>
  chunk.yield %o next %S : tensor<64x128xf32>, tensor<128x128xf32>
}

// So do both where a loop carries the scores: it begins with them, and leaves them, where the product takes them.
// CHECK-LABEL: kernel.func @carried
// REPEATED: %[[NONE:.*]] = arith.constant dense<0.000000e+00> : tensor<64x64xf32, #[[ALL]]>
// REPEATED: %[[LEFT:.*]] = scf.for {{.*}} iter_args(%[[OTHERS:.*]] = %[[NONE]]) -> (tensor<64x64xf32, #[[ALL]]>)
// REPEATED: chunk.dot {{.*}} -> tensor<64x64xf32, #[[ALL]]>
// REPEATED: chunk.meet %{{.*}} else %[[OTHERS]] block 64 halved %{{.*}} : tensor<64x64xf32, #[[ALL]]>
// REPEATED: %[[P:.*]] = arith.truncf %[[LEFT]] : {{.*}} to tensor<64x64xbf16, #[[ALL]]>
// REPEATED: chunk.dot %[[P]],
// EXCHANGED: scf.for {{.*}} -> (tensor<64x64xf32, #[[HALF]]>)
chunk.kernel @carried chunk 64 (input %q: tensor<64x128xbf16>, state %S: tensor<128x128xf32>, valid %n: index) -> (o: tensor<64x128xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %p = scf.for %i = %c0 to %c6 step %c1 iter_args(%others = %none) -> (tensor<64x64xf32>) {
    %all = chunk.dot %q, %q transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    %met = chunk.meet %all else %others block 64 halved %i : tensor<64x64xf32>
    scf.yield %met : tensor<64x64xf32>
  }
  %p16 = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %p16, %q : tensor<64x64xbf16>, tensor<64x128xbf16> -> tensor<64x128xf32>
  chunk.yield %o next %S : tensor<64x128xf32>, tensor<128x128xf32>
}
