// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8},kernel.func(stretto-assign-layouts{read-again=true repeat-left=true warpgroups=true},stretto-select-products,stretto-overlap-products,stretto-plan-shared-memory{chip=sm_90a}))' -o %t
// RUN: FileCheck %s <%t
// RUN: stretto-opt %t --pass-pipeline='builtin.module(kernel.func(stretto-insert-barriers))' | FileCheck %s --check-prefix=FENCES

// Scores that a product takes from registers all warpgroups form, but those of a branch that is seldom taken, which forms
// them in turns: these are divided, and passed on once, behind the loop.
// CHECK-DAG: #[[ALL:.*]] = #kernel.layout<[6, 6], {{.*}} warp = {{\[\[}}16, 0], [32, 0], [0, 0]]>
// CHECK-DAG: #[[DIVIDED:.*]] = #kernel.layout<[6, 6], {{.*}} warp = {{\[\[}}16, 0], [32, 0], [0, 32]]>
// CHECK-LABEL: kernel.func @turns
// CHECK: scf.if {{.*}} -> (tensor<64x64xf32, #[[ALL]]>)
// CHECK: chunk.dot {{.*}} -> tensor<64x64xf32, #[[ALL]]>
// CHECK: } else {
// CHECK: scf.for {{.*}} -> (tensor<64x64xf32, #[[DIVIDED]]>)
// CHECK: chunk.dot {{.*}} -> tensor<64x64xf32, #[[DIVIDED]]>
// CHECK: scf.yield {{.*}} : tensor<64x64xf32, #[[DIVIDED]]>
// CHECK: kernel.convert {{.*}} -> tensor<64x64xf32, #[[ALL]]>

// What is passed on threads alone load, and a row as well: neither asks for a fence. What a product of warpgroups reads
// does.
// FENCES-LABEL: kernel.func @turns
// FENCES: } else {
// FENCES: scf.for
// FENCES: kernel.barrier fence
// FENCES-NEXT: chunk.dot
// FENCES: scf.yield
// FENCES: %[[PASSED:.*]] = kernel.convert {{.*}} offset
// FENCES-NEXT: kernel.barrier{{$}}
// FENCES-NEXT: kernel.convert %[[PASSED]]
// FENCES: chunk.row
// FENCES-NEXT: kernel.barrier{{$}}
chunk.kernel @turns chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>,
                              state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %q32 = arith.extf %q : tensor<64x64xbf16> to tensor<64x64xf32>
  %last = chunk.row %q32 at 63 : tensor<64x64xf32> -> tensor<64xf32>
  %lasts = chunk.broadcast %last along columns : tensor<64xf32> to tensor<64x64xf32>
  %good = chunk.within %q32 limits [1.0] : tensor<64x64xf32>
  %p = scf.if %good -> (tensor<64x64xf32>) {
    %products = chunk.dot %q, %k transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    scf.yield %products : tensor<64x64xf32>
  } else {
    %all = scf.for %i = %c0 to %c6 step %c1 iter_args(%others = %none) -> (tensor<64x64xf32>) {
      %joined = chunk.join_halves %q, %k block 64 halved %i : tensor<64x64xbf16> -> tensor<64x64xbf16>
      %wide = arith.extf %joined : tensor<64x64xbf16> to tensor<64x64xf32>
      %twice = arith.addf %wide, %wide : tensor<64x64xf32>
      %rows = arith.truncf %twice : tensor<64x64xf32> to tensor<64x64xbf16>
      %products = chunk.dot %rows, %rows transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
      %met = chunk.meet %products else %others block 64 halved %i : tensor<64x64xf32>
      scf.yield %met : tensor<64x64xf32>
    }
    scf.yield %all : tensor<64x64xf32>
  }
  %scores = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %scores, %v : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.addf %read, %lasts : tensor<64x64xf32>
  chunk.yield %o next %S : tensor<64x64xf32>, tensor<64x64xf32>
}
