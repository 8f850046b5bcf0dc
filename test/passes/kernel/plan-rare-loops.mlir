// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warps=8 warpgroups=true},kernel.func(stretto-assign-layouts{read-again=true warpgroups=true},stretto-select-products,stretto-overlap-products,stretto-select-copies),stretto-plan-shared-memory{chip=sm_90a})' | FileCheck %s

// A loop in a branch that is seldom taken asks for no registers but those of its tiles: a multiprocessor has them for two
// blocks, which share its memory.
// CHECK-LABEL: kernel.func @seldom
// CHECK-COUNT-3: kernel.channel bulk depth 3
// CHECK: scf.for
// CHECK: scf.if
// CHECK: } else {
// CHECK: scf.for

// In a branch that is taken as a rule it keeps what it needs from turn to turn, and the block has the memory for itself.
// CHECK-LABEL: kernel.func @always
// CHECK-COUNT-3: kernel.channel bulk depth 4
chunk.kernel @seldom chunk 64 (input %q: tensor<64x128xbf16>, input %x: tensor<64x64xbf16>, input %y: tensor<64x64xbf16>,
                              state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %good = chunk.within %q limits [1.0] : tensor<64x128xbf16>
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %o = scf.if %good -> (tensor<64x64xf32>) {
    scf.yield %none : tensor<64x64xf32>
  } else {
    %all = scf.for %i = %c0 to %c6 step %c1 iter_args(%others = %none) -> (tensor<64x64xf32>) {
      %p = chunk.dot %q, %q transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
      %met = chunk.meet %p else %others block 64 halved %i : tensor<64x64xf32>
      scf.yield %met : tensor<64x64xf32>
    }
    scf.yield %all : tensor<64x64xf32>
  }
  %next = chunk.dot %x, %y transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<64x64xf32>
}

chunk.kernel @always chunk 64 (input %q: tensor<64x128xbf16>, input %x: tensor<64x64xbf16>, input %y: tensor<64x64xbf16>,
                              state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %good = chunk.within %q limits [1.0] : tensor<64x128xbf16>
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %o = scf.if %good -> (tensor<64x64xf32>) {
    %all = scf.for %i = %c0 to %c6 step %c1 iter_args(%others = %none) -> (tensor<64x64xf32>) {
      %p = chunk.dot %q, %q transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
      %met = chunk.meet %p else %others block 64 halved %i : tensor<64x64xf32>
      scf.yield %met : tensor<64x64xf32>
    }
    scf.yield %all : tensor<64x64xf32>
  } else {
    scf.yield %none : tensor<64x64xf32>
  }
  %next = chunk.dot %x, %y transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xf32>, tensor<64x64xf32>
}
