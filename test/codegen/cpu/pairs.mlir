// RUN: stretto-opt --stretto-lower-to-vector=bf16-dot --canonicalize --cse %s | FileCheck %s
// RUN: stretto-opt --stretto-lower-to-vector --canonicalize --cse %s | FileCheck --check-prefix=PLAIN %s
// RUN: not stretto-opt --stretto-lower-to-vector='bf16-dot vector-bits=256' %s 2>&1 | FileCheck --check-prefix=SHORT %s
// RUN: stretto-translate --chunk-to-assembly --processor=znver4 %s | FileCheck --check-prefix=CODE %s
// RUN: stretto-translate --chunk-to-assembly --processor=skylake-avx512 %s | FileCheck --check-prefix=WITHOUT %s

// Operands of products of bf16 numbers are stored as pairs along the contracted axis, which has 31 entries on one side;
// each multiplication takes a word of the left operand in all lanes and a register of words of the right one.

// PLAIN-LABEL: func.func @pairs
// PLAIN:         vector.fma
// PLAIN-NOT:     x86vector
// SHORT: the option bf16-dot of stretto-lower-to-vector needs vectors of 512 bits

// CODE-LABEL:   {{^}}pairs:
// CODE:         vcvtneps2bf16
// CODE:         vbroadcastss {{.*}}, %zmm
// CODE:         vdpbf16ps %zmm{{[0-9]+}}, %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CODE-NOT:     {{vdpbf16ps.*%[xy]mm}}
// WITHOUT-LABEL: {{^}}pairs:
// WITHOUT-NOT:  vdpbf16ps
// WITHOUT-NOT:  vcvtneps2bf16

// CHECK-LABEL: func.func @pairs
// CHECK:         scf.for %{{.*}} step %c16
// Keys transposed, two channels to a word: 32 channels of 16 tokens are one square of words.
// CHECK-COUNT-64:  vector.shuffle {{.*}} : vector<16xi32>, vector<16xi32>
// CHECK:           vector.store %{{.*}}, %[[K:.*]][%{{.*}}, %{{.*}}] : memref<16x16xi32>, vector<16xi32>
// The state by pairs of rows; its last row has zeros beside it.
// CHECK:           scf.for %{{.*}} = %c0 to %c15
// CHECK:             vector.interleave {{.*}} : vector<16xbf16> -> vector<32xbf16>
// CHECK:             vector.store %{{.*}}, %[[S:.*]][%{{.*}}, %{{.*}}] : memref<16x32xi32>, vector<16xi32>
// CHECK:           }
// CHECK:           vector.interleave %{{.*}}, %cst
// Sixteen steps of pairs.
// CHECK:           scf.for %{{.*}} = %c0 to %c16 step %c1
// CHECK:             %[[RIGHT:.*]] = vector.load %[[S]]
// CHECK:             %[[WORD:.*]] = memref.load %{{.*}} : memref<16x16xi32>
// CHECK:             %[[LEFT:.*]] = vector.broadcast %[[WORD]] : i32 to vector<16xi32>
// CHECK:             x86vector.avx512.dot %{{.*}}, %{{.*}}, %{{.*}} : vector<32xbf16> -> vector<16xf32>
// CHECK-NOT:     vector.fma
chunk.kernel @pairs chunk 16 (input %q: tensor<16x31xbf16>, input %k: tensor<16x31xbf16>, input %v: tensor<16x32xbf16>,
    state %S: tensor<31x32xf32>, valid %n: index) -> (o: tensor<16x32xf32>) {
  %qk = chunk.dot %q, %k transpose_right : tensor<16x31xbf16>, tensor<16x31xbf16> -> tensor<16x16xf32>
  %p = chunk.causal %qk : tensor<16x16xf32>
  %p16 = arith.truncf %p : tensor<16x16xf32> to tensor<16x16xbf16>
  %S16 = arith.truncf %S : tensor<31x32xf32> to tensor<31x32xbf16>
  %s = chunk.dot %q, %S16 : tensor<16x31xbf16>, tensor<31x32xbf16> -> tensor<16x32xf32>
  %o = chunk.dot %p16, %v add %s : tensor<16x16xbf16>, tensor<16x32xbf16> -> tensor<16x32xf32>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<16x31xbf16>, tensor<16x32xbf16> -> tensor<31x32xf32>
  chunk.yield %o next %next : tensor<16x32xf32>, tensor<31x32xf32>
}
