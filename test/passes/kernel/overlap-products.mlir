// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products))' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-plan-shared-memory,stretto-insert-barriers))' | FileCheck %s --check-prefix=BARRIERS
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-select-products,stretto-overlap-products,stretto-plan-shared-memory,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s --check-prefix=THREADS
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warpgroups=true},kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products))' | FileCheck %s --check-prefix=BACK
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warpgroups=true},kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products{registers=16}))' | FileCheck %s --check-prefix=FEW

// The state is rounded before the first product begins, because a product adds to it. That of keys and values starts while
// the scores are formed, which are waited for first; the two sums of the output are one chain. What lies in shared memory
// from the start is multiplied before what is stored there.
// CHECK-LABEL: kernel.func @f
// CHECK: scf.for
// CHECK: %[[S:.*]] = arith.truncf {{.*}} : tensor<64x64xf32
// CHECK: kernel.convert %[[S]]
// CHECK: %[[P:.*]] = chunk.dot {{.*}} transpose_right
// CHECK-NEXT: %[[N:.*]] = chunk.dot {{.*}} transpose_left add
// CHECK-NEXT: %[[O:.*]] = chunk.dot
// CHECK-NEXT: %[[DONE:.*]] = kernel.finish %[[P]]
// CHECK-NEXT: arith.truncf %[[DONE]]
// CHECK: %[[SUM:.*]] = chunk.dot {{.*}} add %[[O]]
// CHECK: %[[OUT:.*]] = kernel.finish %[[SUM]]
// CHECK-NEXT: %[[NEXT:.*]] = kernel.finish %[[N]]
// CHECK-NEXT: kernel.store %[[OUT]]
// CHECK-NEXT: scf.yield %[[NEXT]]

// Barriers fence what threads have stored off from products.
// BARRIERS-LABEL: kernel.func @f
// BARRIERS: kernel.await fence
// BARRIERS: kernel.barrier fence
// BARRIERS-NEXT: chunk.dot

// The product that is waited for first leaves two under way.
// THREADS-LABEL: llvm.func @f
// THREADS: nvvm.fence.proxy
// THREADS-NEXT: nvvm.barrier
// THREADS-COUNT-3: kernel.warpgroup_product
// THREADS: "kernel.warpgroup_wait"{{.*}}pending = 2
// THREADS: kernel.warpgroup_product
// THREADS: "kernel.warpgroup_wait"{{.*}}pending = 0
chunk.kernel @f chunk 64 (input %x: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %p16 = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
  %s16 = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %x, %s16 : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %sum = chunk.dot %p16, %x add %o : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %x, %x transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %sum next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

// A chunk for itself does what it can before it waits for the tile that it has just sent for.
// CHECK-LABEL: kernel.func @waits
// CHECK: kernel.send
// CHECK: %[[G:.*]] = kernel.load %g
// CHECK: chunk.accumulate sum %[[G]]
// CHECK: kernel.receive
// CHECK: chunk.dot
chunk.kernel @waits chunk 64 (input %x: tensor<64x64xbf16>, input %g: tensor<64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %t = chunk.accumulate sum %g : tensor<64xf32>
  %b = chunk.broadcast %t along rows : tensor<64xf32> to tensor<64x64xf32>
  %o = arith.mulf %p, %b : tensor<64x64xf32>
  chunk.yield %o : tensor<64x64xf32>
}

// What is seldom wanted stays in its order, in the turns of a loop as well: there is no memory for more of it at a time.
// CHECK-LABEL: kernel.func @seldom
// CHECK: } else {
// CHECK: scf.for
// CHECK: %[[P:.*]] = chunk.dot {{.*}} transpose_right
// CHECK-NEXT: %[[DONE:.*]] = kernel.finish %[[P]]
// CHECK-NEXT: arith.truncf %[[DONE]]
// CHECK: chunk.dot
// CHECK: chunk.dot {{.*}} transpose_left
// CHECK: scf.yield
chunk.kernel @seldom chunk 64 (input %x: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %good = chunk.within %x limits [1.0] : tensor<64x64xbf16>
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %o = scf.if %good -> (tensor<64x64xf32>) {
    scf.yield %none : tensor<64x64xf32>
  } else {
    %all = scf.for %i = %c0 to %c6 step %c1 iter_args(%others = %none) -> (tensor<64x64xf32>) {
      %p = chunk.dot %x, %x transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
      %p16 = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
      %a = chunk.dot %p16, %x : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
      %b = chunk.dot %x, %x transpose_left : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
      %ab = arith.addf %a, %b : tensor<64x64xf32>
      %met = chunk.meet %ab else %others block 64 halved %i : tensor<64x64xf32>
      scf.yield %met : tensor<64x64xf32>
    }
    scf.yield %all : tensor<64x64xf32>
  }
  chunk.yield %o next %S : tensor<64x64xf32>, tensor<64x64xf32>
}

// In a walk back the first product behind a choice runs beside those of single warps in the first branch.
// BACK-LABEL: kernel.func @beside(
// BACK: %[[CHOSEN:.*]]:2 = scf.if
// BACK-NEXT: %[[OWN:.*]] = chunk.dot {{.*}} transpose_right {kernel.instruction = #kernel.instruction<wgmma>}
// BACK-NEXT: chunk.dot {{.*}}instruction<mma>
// BACK-NEXT: %[[DONE:.*]] = kernel.finish %[[OWN]]
// BACK-NEXT: scf.yield %{{.*}}, %[[DONE]]
// BACK-NEXT: } else {
// BACK-NEXT: chunk.dot {{.*}} transpose_right {kernel.instruction = #kernel.instruction<wgmma>}
// BACK: chunk.dot {{.*}} add %[[CHOSEN]]#1
// FEW-LABEL: kernel.func @beside(
// FEW: scf.if
// FEW-NEXT: chunk.dot {{.*}}instruction<mma>
chunk.kernel @beside chunk 64 reverse (input %x: tensor<64x64xbf16>, input %y: tensor<64x16xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>) {
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %good = chunk.within %x limits [1.0] : tensor<64x64xbf16>
  %a = scf.if %good -> (tensor<64x64xf32>) {
    %pairs = chunk.dot %y, %y transpose_right : tensor<64x16xbf16>, tensor<64x16xbf16> -> tensor<64x64xf32>
    scf.yield %pairs : tensor<64x64xf32>
  } else {
    scf.yield %none : tensor<64x64xf32>
  }
  %a16 = arith.truncf %a : tensor<64x64xf32> to tensor<64x64xbf16>
  %b = chunk.dot %x, %x transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %c = chunk.dot %a16, %x add %b : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %next = chunk.dot %x, %x transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %c next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

// Where registers do not reach for another order, a product is started before the one before it is waited for.
// BACK-LABEL: kernel.func @early(
// BACK: %[[FIRST:.*]] = chunk.dot {{.*}} transpose_right
// BACK: math.exp %
// BACK-NEXT: %[[SECOND:.*]] = chunk.dot {{.*}} transpose_right
// BACK-NEXT: kernel.finish %[[FIRST]]
// BACK: kernel.store
// BACK: kernel.finish %[[SECOND]]
chunk.kernel @early chunk 64 reverse (input %x: tensor<64x64xbf16>, input %z: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>, e: tensor<64x64xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %t = arith.extf %z : tensor<64x64xbf16> to tensor<64x64xf32>
  %f = math.exp %t : tensor<64x64xf32>
  %o = arith.mulf %p, %f : tensor<64x64xf32>
  %q = chunk.dot %x, %z transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %u = math.exp2 %t : tensor<64x64xf32>
  %w = math.absf %t : tensor<64x64xf32>
  %uw = arith.addf %u, %w : tensor<64x64xf32>
  %e1 = arith.mulf %q, %uw : tensor<64x64xf32>
  %e2 = arith.addf %e1, %w : tensor<64x64xf32>
  %e = arith.addf %e2, %u : tensor<64x64xf32>
  %next = chunk.dot %x, %z transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o, %e next %next : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}
