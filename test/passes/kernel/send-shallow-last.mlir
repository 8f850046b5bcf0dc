// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay{within},stretto-sink-factors,stretto-round-operands,cse,stretto-shorten-lifetimes{forwards=true}),stretto-fold-over-chunks{warpgroups=true},stretto-divide-roles{ahead=8 outputs=4 walk=4},kernel.func(stretto-assign-layouts{read-again=true repeat-left=true warpgroups=true},control-flow-sink,stretto-select-products{chip=sm_90a},stretto-overlap-products,stretto-select-copies{chip=sm_90a}),stretto-pass-late,stretto-share-channels,stretto-plan-shared-memory{chip=sm_90a})' | FileCheck %s

// There is room for three tiles of what those ahead rescale, and for two of values: a producer sends values last, as it
// waits for their places until outputs have been found.
// CHECK: kernel.func @gla.producer(
// CHECK-DAG: %[[VALUES:.*]] = kernel.channel passed {{[0-9]+}} bulk depth 2
// CHECK-DAG: kernel.channel passed {{[0-9]+}} bulk depth 3
// CHECK: scf.for
// CHECK-NEXT: kernel.send %q
// CHECK-NEXT: kernel.send %k
// CHECK-NEXT: kernel.send %g
// CHECK-NEXT: kernel.send %v at %{{.*}} to %[[VALUES]]
chunk.kernel @gla chunk 64 (input %q: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>,
                            input %g: tensor<64x128xbf16>, state %S: tensor<128x128xf32>, valid %n: index)
    -> (o: tensor<64x128xbf16>) {
  %g32 = arith.extf %g : tensor<64x128xbf16> to tensor<64x128xf32>
  %q32 = arith.extf %q : tensor<64x128xbf16> to tensor<64x128xf32>
  %k32 = arith.extf %k : tensor<64x128xbf16> to tensor<64x128xf32>
  %v32 = arith.extf %v : tensor<64x128xbf16> to tensor<64x128xf32>
  %p = chunk.decay_dot %q32, %k32 log %g32 : tensor<64x128xf32>, tensor<64x128xf32>, tensor<64x128xf32> -> tensor<64x64xf32>
  %x = chunk.decay_from_start %q32 log %g32 : tensor<64x128xf32>, tensor<64x128xf32>
  %y = chunk.decay_to_end %k32 log %g32 : tensor<64x128xf32>, tensor<64x128xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<128x128xf32>, tensor<64x128xf32>
  %r = chunk.dot %x, %S : tensor<64x128xf32>, tensor<128x128xf32> -> tensor<64x128xf32>
  %o32 = chunk.dot %p, %v32 add %r : tensor<64x64xf32>, tensor<64x128xf32> -> tensor<64x128xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<64x128xf32>, tensor<64x128xf32> -> tensor<128x128xf32>
  %o = arith.truncf %o32 : tensor<64x128xf32> to tensor<64x128xbf16>
  chunk.yield %o next %next : tensor<64x128xbf16>, tensor<128x128xf32>
}
