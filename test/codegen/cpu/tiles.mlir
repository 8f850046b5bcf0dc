// RUN: stretto-opt --stretto-lower-to-vector=bf16-tiles --canonicalize --cse %s | FileCheck %s
// RUN: stretto-opt --stretto-lower-to-vector=bf16-dot --canonicalize --cse %s | FileCheck --check-prefix=PAIRS %s
// RUN: not stretto-opt --stretto-lower-to-vector='bf16-tiles vector-bits=256' %s 2>&1 | FileCheck --check-prefix=SHORT %s
// RUN: stretto-translate --chunk-to-assembly --processor=sapphirerapids %s | FileCheck --check-prefix=CODE %s
// RUN: stretto-translate --chunk-to-assembly --processor=cooperlake %s | FileCheck --check-prefix=WITHOUT %s

// Products of bf16 numbers that have rows enough are formed from whole tiles: 24 tokens are two tiles of rows, and 40
// channels two steps of 32 entries, behind which there are zeros. One row is left to vectors.

// SHORT: the option bf16-tiles of stretto-lower-to-vector needs vectors of 512 bits
// PAIRS-NOT: x86.tile

// The shape of tiles is set up once, before all loops, and none is kept anywhere but in registers.
// CODE-LABEL:   {{^}}tiles:
// CODE-COUNT-1: ldtilecfg
// CODE-NOT:     ldtilecfg
// CODE:         tileloadd
// CODE:         tdpbf16ps %tmm{{[0-9]}}, %tmm{{[0-9]}}, %tmm{{[0-9]}}
// CODE-NOT:     {{tileloadd|tilestored}} {{.*}}(%rsp
// CODE:         tilestored
// CODE:         tilerelease
// WITHOUT-LABEL: {{^}}tiles:
// WITHOUT-NOT:  {{ldtilecfg|tileloadd|tilestored|tilezero}}
// WITHOUT-NOT:  tdpbf16ps

// CHECK-LABEL: func.func @tiles
// Of the 24 words of each row of queries the last four are zeros, and eight more follow, up to two whole tiles.
// CHECK:           %[[ZEROS:.*]] = vector.bitcast %cst{{.*}} : vector<16xbf16> to vector<8xi32>
// CHECK-NEXT:      vector.store %[[ZEROS]], %[[LEFT:.*]][%{{.*}}, %c24] : memref<32x32xi32>, vector<8xi32>
// The state has 20 pairs of rows.
// CHECK:         scf.for %{{.*}} = %c20 to %c32 step %c1 {
// CHECK:           %[[PAIR:.*]] = arith.index_cast %{{.*}} : i64 to index
// CHECK-NEXT:      vector.store %cst{{.*}}, %[[RIGHT:.*]][%[[PAIR]], %c0] : memref<32x16xi32>, vector<16xi32>
// CHECK:         %[[ZERO:.*]] = llvm.call_intrinsic "llvm.x86.tilezero.internal"
// CHECK:         scf.for %{{.*}} = %c0 to %c2 step %c1 iter_args(%[[SUMS:.*]] = %[[ZERO]], %{{.*}} = %{{.*}})
// CHECK:           memref.prefetch
// CHECK:           memref.extract_aligned_pointer_as_index %[[RIGHT]]
// CHECK:           %[[B:.*]] = llvm.call_intrinsic "llvm.x86.tileloadd64.internal"
// CHECK:           memref.extract_aligned_pointer_as_index %[[LEFT]]
// CHECK:           %[[A:.*]] = llvm.call_intrinsic "llvm.x86.tileloadd64.internal"
// CHECK:           llvm.call_intrinsic "llvm.x86.tdpbf16ps.internal"({{.*}}, %[[SUMS]], %[[A]], %[[B]])
// CHECK:           scf.yield
// CHECK-COUNT-2: llvm.call_intrinsic "llvm.x86.tilestored64.internal"
// Of the 32 rows of sums 24 are finished, four at a time.
// CHECK:         scf.for %{{.*}} = %c0 to %c24 step %c4 {
// CHECK:           vector.load %{{.*}} : memref<32x32xf32>, vector<16xf32>
// CHECK-LABEL: func.func @row
// CHECK-NOT:     x86.tile
// CHECK:         vector.fma
chunk.kernel @tiles chunk 24 (input %q: tensor<24x40xbf16>, state %S: tensor<40x16xf32>, valid %n: index)
    -> (o: tensor<24x16xf32>) {
  %S16 = arith.truncf %S : tensor<40x16xf32> to tensor<40x16xbf16>
  %o = chunk.dot %q, %S16 : tensor<24x40xbf16>, tensor<40x16xbf16> -> tensor<24x16xf32>
  chunk.yield %o next %S : tensor<24x16xf32>, tensor<40x16xf32>
}

chunk.kernel @row chunk 1 (input %q: tensor<1x40xbf16>, parameter %w: tensor<40x16xbf16>, valid %n: index)
    -> (o: tensor<1x16xf32>) {
  %o = chunk.dot %q, %w : tensor<1x40xbf16>, tensor<40x16xbf16> -> tensor<1x16xf32>
  chunk.yield %o : tensor<1x16xf32>
}
