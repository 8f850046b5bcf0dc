// RUN: stretto-translate --chunk-to-assembly --processor=skylake-avx512 %s | FileCheck %s
// RUN: stretto-translate --chunk-to-assembly --processor=haswell %s | FileCheck --check-prefix=SHORT %s
// RUN: not stretto-translate --chunk-to-assembly --processor=nehalem %s 2>&1 | FileCheck --check-prefix=REFUSED %s

// Products are multiplications of whole registers, 16 sums side by side that never leave them.

// CHECK-LABEL:    {{^}}products:
// CHECK:          vbroadcastss {{.*}}, %zmm
// CHECK-COUNT-16: vfmadd231ps %zmm{{[0-9]+}}, %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NOT:      vfmadd{{[0-9]*}}ss
// CHECK-NOT:      {{vmov.*zmm.*\(%rsp\)|vmov.*\(%rsp\).*zmm}}
// CHECK-NOT:      call

// Registers of 256 bits.
// SHORT-LABEL:   {{^}}products:
// SHORT:         vfmadd231ps {{.*}}%ymm
// SHORT-NOT:     zmm

// REFUSED: the processor 'nehalem' lacks AVX2 or FMA, which generated code needs

chunk.kernel @products chunk 16 (input %q: tensor<16x64xf32>, input %k: tensor<16x64xf32>, input %v: tensor<16x64xf32>,
    state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
  %qk = chunk.dot %q, %k transpose_right : tensor<16x64xf32>, tensor<16x64xf32> -> tensor<16x16xf32>
  %p = chunk.causal %qk : tensor<16x16xf32>
  %s = chunk.dot %q, %S : tensor<16x64xf32>, tensor<64x64xf32> -> tensor<16x64xf32>
  %o = chunk.dot %p, %v add %s : tensor<16x16xf32>, tensor<16x64xf32> -> tensor<16x64xf32>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<16x64xf32>, tensor<16x64xf32> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<16x64xf32>, tensor<64x64xf32>
}
