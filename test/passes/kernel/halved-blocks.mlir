// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products,stretto-plan-shared-memory,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREADS

// Sums of which a loop over sizes of blocks takes the rows before the middles are stored once, before it, and each thread
// takes its own of them once, too, in whole rows: what is made of tiles in shared memory alone, and goes back there, may
// be where that takes the fewest accesses. What a turn stores waits for what others have of the turn before.
// CHECK: #[[ROWS:registers[0-9]*]] = #kernel.layout<[6, 6], register = {{\[\[}}0, 1], [0, 2], [16, 0], [32, 0]],
// CHECK-LABEL: kernel.func @turns
// CHECK: } else {
// CHECK: %[[STORED:.*]] = kernel.convert %{{.*}} -> tensor<64x64xf32, #[[SHARED:.*]]>
// CHECK: %[[OWN:.*]] = kernel.convert %[[STORED]] : {{.*}} -> tensor<64x64xf32, #[[ROWS]]>
// CHECK: scf.for %[[I:[^ ]*]] =
// CHECK-NOT: kernel.convert {{.*}} -> tensor<64x64xf32
// CHECK: chunk.join_halves %{{.*}}, %{{.*}} block 64 halved %[[I]] : {{.*}} -> tensor<64x64xbf16, #[[ROWS]]>
// CHECK: %[[MIDDLE:.*]] = chunk.middle %[[STORED]] block 64 halved %[[I]] : {{.*}} -> tensor<64x64xf32, #[[ROWS]]>
// CHECK: arith.subf %[[OWN]], %[[MIDDLE]]
// CHECK-NOT: kernel.convert {{.*}} -> tensor<64x64xf32
// CHECK: chunk.dot
// CHECK-NEXT: kernel.finish
// CHECK-NEXT: chunk.meet {{.*}} block 64 halved %[[I]]

// Which half a row is in a thread asks of each of its rows; where its pairs meet it asks by one comparison for each. What
// a branch that is seldom taken makes of the thread's number is not known to be the same in each turn of the loop around
// it, and nobody keeps it.
// THREADS-LABEL: llvm.func @turns
// THREADS: nvvm.barrier #nvvm.reduction<or>
// THREADS: } else {
// THREADS: llvm.inline_asm has_side_effects {{.*}}"mov.b32 $0, $1;"
// THREADS-COUNT-4: llvm.load {{.*}} -> vector<4xf32>
// THREADS: scf.for %[[I:[^ ]*]] = {{.*}} iter_args
// THREADS: %[[TURN:.*]] = arith.trunci %[[I]] : i64 to i32
// THREADS: %[[BLOCK:.*]] = arith.shrui %{{.*}}, %[[TURN]] : i32
// THREADS: %[[HALF:.*]] = arith.shrui %[[BLOCK]]
// THREADS-COUNT-4: arith.cmpi eq, %{{.*}}, %[[HALF]]
// THREADS-NOT: arith.cmpi eq, %{{.*}}, %[[HALF]]
// THREADS-COUNT-4: llvm.load {{.*}} -> vector<4xf32>
// THREADS: nvvm.barrier
// THREADS: kernel.warpgroup_product
// THREADS: %[[BLOCK:.*]] = arith.shrui
// THREADS: %[[HALF:.*]] = arith.shrui %[[BLOCK]]
// THREADS: %[[ABOVE:.*]] = arith.subi %[[HALF]], %[[BLOCK]]
// THREADS-COUNT-2: arith.cmpi eq, %{{.*}}, %[[HALF]]
// THREADS-COUNT-14: arith.cmpi eq
// THREADS-NOT: arith.cmpi
// THREADS: scf.yield
chunk.kernel @turns chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %g: tensor<64x64xf32>,
                              state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %sums = arith.addf %g, %g : tensor<64x64xf32>
  %good = chunk.within %g limits [1.0] : tensor<64x64xf32>
  %p = scf.if %good -> (tensor<64x64xf32>) {
    scf.yield %none : tensor<64x64xf32>
  } else {
    %all = scf.for %i = %c0 to %c6 step %c1 iter_args(%others = %none) -> (tensor<64x64xf32>) {
      %joined = chunk.join_halves %q, %k block 64 halved %i : tensor<64x64xbf16> -> tensor<64x64xbf16>
      %wide = arith.extf %joined : tensor<64x64xbf16> to tensor<64x64xf32>
      %middle = chunk.middle %sums block 64 halved %i : tensor<64x64xf32> -> tensor<64x64xf32>
      %way = arith.subf %sums, %middle : tensor<64x64xf32>
      %scaled = arith.mulf %wide, %way : tensor<64x64xf32>
      %rows = arith.truncf %scaled : tensor<64x64xf32> to tensor<64x64xbf16>
      %products = chunk.dot %rows, %rows transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
      %met = chunk.meet %products else %others block 64 halved %i : tensor<64x64xf32>
      scf.yield %met : tensor<64x64xf32>
    }
    scf.yield %all : tensor<64x64xf32>
  }
  chunk.yield %p next %S : tensor<64x64xf32>, tensor<64x64xf32>
}
