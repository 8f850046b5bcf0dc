// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts{warpgroups=true},stretto-select-products,stretto-overlap-products,stretto-plan-shared-memory,stretto-insert-barriers),stretto-lower-to-threads)' | FileCheck %s

// The last row of sums up to each token says it all: of the two rows that a thread has, the lower one is asked, as it is
// the last row for some thread; 8 of 16 numbers, by a tree.
// CHECK-LABEL: llvm.func @last
// CHECK: math.absf %{{.*}}#2 :
// CHECK-NEXT: math.absf %{{.*}}#3 :
// CHECK-NEXT: math.absf %{{.*}}#6 :
// CHECK-NEXT: math.absf %{{.*}}#7 :
// CHECK-NEXT: math.absf %{{.*}}#10 :
// CHECK-NEXT: math.absf %{{.*}}#11 :
// CHECK-NEXT: math.absf %{{.*}}#14 :
// CHECK-NEXT: math.absf %{{.*}}#15 :
// CHECK-NOT: math.absf
// CHECK: nvvm.barrier #nvvm.reduction<or>
chunk.kernel @last chunk 64 (input %x: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>) {
  %ones = arith.constant dense<1.0> : tensor<64x64xbf16>
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %sums = chunk.dot %ones, %x : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %good = chunk.within %sums rising limits [60.0] : tensor<64x64xf32>
  %o = arith.select %good, %sums, %none : tensor<64x64xf32>
  chunk.yield %o next %S : tensor<64x64xf32>, tensor<64x64xf32>
}

// Otherwise every number is.
// CHECK-LABEL: llvm.func @any
// CHECK-COUNT-16: math.absf
// CHECK-NOT: math.absf
// CHECK: nvvm.barrier #nvvm.reduction<or>
chunk.kernel @any chunk 64 (input %x: tensor<64x64xbf16>, state %S: tensor<64x64xf32>, valid %n: index)
    -> (o: tensor<64x64xf32>) {
  %ones = arith.constant dense<1.0> : tensor<64x64xbf16>
  %none = arith.constant dense<0.0> : tensor<64x64xf32>
  %sums = chunk.dot %ones, %x : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %good = chunk.within %sums limits [60.0] : tensor<64x64xf32>
  %o = arith.select %good, %sums, %none : tensor<64x64xf32>
  chunk.yield %o next %S : tensor<64x64xf32>, tensor<64x64xf32>
}
