// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay{within},stretto-sink-factors,stretto-round-operands,cse,stretto-shorten-lifetimes{forwards=true}),stretto-fold-over-chunks{warpgroups=true},stretto-divide-roles{ahead=4 outputs=4 walk=4},kernel.func(stretto-assign-layouts{read-again=true repeat-left=true warpgroups=true},control-flow-sink,stretto-select-products{chip=sm_90a},stretto-overlap-products,stretto-select-copies{chip=sm_90a}),stretto-pass-late,stretto-share-channels,stretto-plan-shared-memory{chip=sm_90a},kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --stretto-lower-to-threads=chip=sm_90a | FileCheck %s --check-prefix=THREADS
// RUN: sed 's/over 7/over 5/' %t | not stretto-opt --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=OVER
// RUN: sed 's/22expects\\22:true/22expects\\22:false/' %t | not stretto-opt --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=MANIFEST
// RUN: sed 's/^ *chunk.expect .*$/&\n&/' %t | not stretto-opt --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: sed 's/^ *chunk.expect \(%%[0-9a-z_]*\) .*$/scf.if \1 {\n&\n}/' %t | not stretto-opt --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=ELSEWHERE
// RUN: sed '/chunk.expect/{h;d};/kernel.pass/{G;x;s/.*//;x}' %t | not stretto-opt --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=BEFORE
// RUN: sed 's/^ *%%[0-9]* = chunk.total \(%%[0-9]*\) : \(.*\) -> .*$/&\n%%more = chunk.total \1 : \2 -> tensor<64xf32, #kernel.layout<[6], offset = [[1], [2], [4], [8], [16], [32]]>>/' %t | not stretto-opt --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=OTHERWHERE
// RUN: sed '/chunk.expect/d;0,/scf.for .*$/s//&\n%%yes = arith.constant true\nchunk.expect %%yes {kernel.scratch = 0 : i64}/' %t | not stretto-opt --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay{within},stretto-sink-factors,stretto-round-operands,cse,stretto-shorten-lifetimes{forwards=true}),stretto-fold-over-chunks{warpgroups=true},kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-products{chip=sm_90a},stretto-overlap-products),stretto-plan-shared-memory{chip=sm_90a},kernel.func(stretto-send-ahead,stretto-insert-barriers))' -o %t.alone
// RUN: not stretto-opt %t.alone --stretto-lower-to-threads=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=ALONE
// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-expand-decay,stretto-sink-factors,stretto-round-operands,cse),stretto-fold-over-chunks{takes-left=true},kernel.func(stretto-assign-layouts,stretto-select-products),stretto-plan-shared-memory,kernel.func(stretto-send-ahead,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=LEFT

// Rows that are expected to be in range have no other form: three roles divide a walk with a decay for each channel. Those
// ahead wait once, walk down columns, tell first whether the walk goes on, then what the state decays by, and leave keys, what
// rounding takes of them, and queries where logarithms, keys and queries came, of which they release nothing: whoever reads
// what is left there does. Keys go to two roles from one place. All have as many places as fit.
// CHECK: #[[RUNS:registers[0-9]+]] = #kernel.layout<[6, 6], register = {{\[}}[0, 1], [1, 0], [2, 0], [4, 0], [8, 0]]
// CHECK: kernel.func @gla(
// CHECK-DAG: kernel.channel passed [[VALUES:[0-9]+]] bulk depth 6
// CHECK-DAG: %[[OF_WALK:.*]] = kernel.channel passed [[KEYS:[0-9]+]] over [[LOGS:[0-9]+]] depth 6
// CHECK: kernel.receive %[[OF_WALK]]
// CHECK: kernel.release %[[OF_WALK]]
// CHECK: kernel.func @gla.ahead(
// CHECK-DAG: %[[LOGS_RING:.*]] = kernel.channel passed [[LOGS]] bulk depth 6
// CHECK-DAG: %[[KEYS_RING:.*]] = kernel.channel passed [[KEYS]] over [[LOGS]] depth 6
// CHECK-DAG: %[[RESTS_RING:.*]] = kernel.channel passed {{[0-9]+}} over {{[0-9]+}} depth 6
// CHECK-DAG: %[[QUERIES_RING:.*]] = kernel.channel passed {{[0-9]+}} over {{[0-9]+}} depth 6
// CHECK-COUNT-3: kernel.receive
// CHECK: %[[ROWS:.*]] = chunk.within %{{.*}} tensor<64x64xbf16, #[[RUNS]]>
// CHECK-NOT: kernel.receive
// CHECK-NOT: kernel.barrier
// CHECK: %[[LATER:.*]] = chunk.accumulate {{ *}}sum %{{.*}} reverse exclusive {{.*}} tensor<64x64xf32, #[[RUNS]]>
// CHECK: %[[TOTAL:.*]] = chunk.total %[[LATER]]
// CHECK: %[[DECAYS:.*]] = chunk.within %[[TOTAL]]
// CHECK-NEXT: %[[GOOD:.*]] = arith.andi %[[ROWS]], %[[DECAYS]]
// CHECK-NEXT: chunk.expect %[[GOOD]]
// CHECK-NOT: kernel.barrier
// CHECK: kernel.pass %{{.*}} : tensor<64xf32
// CHECK-NOT: kernel.barrier
// CHECK-NOT: kernel.release
// CHECK: kernel.pass %{{.*}} to %[[KEYS_RING]]
// CHECK: kernel.pass %{{.*}} to %[[RESTS_RING]]
// CHECK: kernel.pass %{{.*}} to %[[QUERIES_RING]]
// CHECK-NOT: kernel.release
// CHECK: kernel.func @gla.outputs(
// CHECK-DAG: kernel.channel passed [[KEYS]] over [[LOGS]] depth 6
// CHECK-NOT: chunk.expect
// CHECK: kernel.store
// CHECK: kernel.func @gla.producer(

// A thread makes and stores four pairs of numbers before the next. Each role's loop ends where the walk does, which others
// than those ahead ask for in each turn; what has been sent for nobody is awaited, and the work item is left or not.
// THREADS: llvm.store volatile
// THREADS: scf.while
// THREADS: llvm.load volatile
// THREADS: scf.condition

// OVER: error: 'kernel.func' op has tiles that are left over others which are not received alone, once a turn, or are not alike
// MANIFEST: error: 'kernel.func' op expects something of its chunks, which its manifest does not say
// OTHERWHERE: error: 'chunk.total' op is elsewhere than where its columns are accumulated
// TWO: error: 'kernel.func' op expects two things of its chunks, or more, expected one
// ELSEWHERE: error: 'kernel.func' op ends a walk elsewhere than in its turns
// BEFORE: error: 'kernel.func' op passes tiles of a turn before it is known whether the walk ends with it
// NOTHING: error: 'kernel.func' op ends walks of roles that receive nothing of the one that ends them
// ALONE: error: 'kernel.func' op ends walks whose tiles no producer sends, or that groups of warps take in turns

// What is left another kernel takes: a block asks for its work item, and does nothing where it was not left.
// LEFT-LABEL: llvm.func @gla(
// LEFT: %[[ITEM:.*]] = nvvm.read.ptx.sreg.ctaid.x
// LEFT: %[[IS_LEFT:.*]] = llvm.load %{{.*}} : !llvm.ptr<1> -> i32
// LEFT: arith.cmpi ne, %[[IS_LEFT]]
// LEFT-NEXT: scf.if
chunk.kernel @gla chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>,
                            input %g: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xbf16>) {
  %g32 = arith.extf %g : tensor<64x64xbf16> to tensor<64x64xf32>
  %q32 = arith.extf %q : tensor<64x64xbf16> to tensor<64x64xf32>
  %k32 = arith.extf %k : tensor<64x64xbf16> to tensor<64x64xf32>
  %v32 = arith.extf %v : tensor<64x64xbf16> to tensor<64x64xf32>
  %p = chunk.decay_dot %q32, %k32 log %g32 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  %x = chunk.decay_from_start %q32 log %g32 : tensor<64x64xf32>, tensor<64x64xf32>
  %y = chunk.decay_to_end %k32 log %g32 : tensor<64x64xf32>, tensor<64x64xf32>
  %s = chunk.decay_state %S log %g32 along rows : tensor<64x64xf32>, tensor<64x64xf32>
  %r = chunk.dot %x, %S : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  %o32 = chunk.dot %p, %v32 add %r : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  %next = chunk.dot %y, %v32 transpose_left add %s : tensor<64x64xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  %o = arith.truncf %o32 : tensor<64x64xf32> to tensor<64x64xbf16>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
