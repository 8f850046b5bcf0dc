// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products,stretto-plan-shared-memory,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREADS

// Sums of which a loop over sizes of blocks takes the rows before the middles are stored once, before it, and read in
// each turn. What a turn stores waits for what others have of the turn before.
// CHECK-LABEL: kernel.func @turns
// CHECK: } else {
// CHECK: %[[STORED:.*]] = kernel.convert %{{.*}} -> tensor<64x64xf32, #[[SHARED:.*]]>
// CHECK: scf.for %[[I:[^ ]*]] =
// CHECK-NOT: kernel.convert {{.*}} -> tensor<64x64xf32, #[[SHARED]]>
// CHECK: chunk.join_halves %{{.*}}, %{{.*}} block 64 halved %[[I]]
// CHECK: chunk.middle %[[STORED]] block 64 halved %[[I]]
// CHECK: kernel.convert %[[STORED]]
// CHECK: chunk.dot
// CHECK-NEXT: kernel.finish
// CHECK-NEXT: chunk.meet {{.*}} block 64 halved %[[I]]

// Of its two rows a thread asks once in which half they are; where its pairs meet it asks by one comparison for each.
// THREADS-LABEL: llvm.func @turns
// THREADS: nvvm.barrier #nvvm.reduction<or>
// THREADS: scf.for %[[I:[^ ]*]] = {{.*}} iter_args
// THREADS: %[[TURN:.*]] = arith.trunci %[[I]] : i64 to i32
// THREADS: %[[BLOCK:.*]] = arith.shrui %{{.*}}, %[[TURN]] : i32
// THREADS: %[[HALF:.*]] = arith.shrui %[[BLOCK]]
// THREADS-COUNT-2: arith.cmpi eq, %{{.*}}, %[[HALF]]
// THREADS-NOT: arith.cmpi eq, %{{.*}}, %[[HALF]]
// THREADS: nvvm.barrier
// THREADS: kernel.warpgroup_product
// THREADS: %[[BLOCK:.*]] = arith.shrui
// THREADS: %[[HALF:.*]] = arith.shrui %[[BLOCK]]
// THREADS: %[[BELOW:.*]] = arith.subi %[[BLOCK]], %[[HALF]]
// THREADS-COUNT-16: arith.cmpi ult, %{{.*}}, %[[BELOW]]
// THREADS-NOT: arith.cmpi ult
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
