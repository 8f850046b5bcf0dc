// RUN: stretto-translate --chunk-to-assembly --processor=sapphirerapids %s | FileCheck %s

// In the loop over the queries that a key meets, each of 8 vectors of a row of factors and of queries lies at a constant
// distance from one number: no address is kept on the stack, and none runs beside it.

// CHECK-LABEL:  {{^}}pairs:
// CHECK:        vmulps {{[0-9]+}}(%[[BASE:r[a-z0-9]+]],%[[ROW:r[a-z0-9]+]]), %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NEXT:   vmulps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NEXT:   vmulps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NEXT:   vmulps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NEXT:   vmulps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NEXT:   vmulps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NEXT:   vmulps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NEXT:   vmulps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %zmm{{[0-9]+}}
// CHECK-NEXT:   vmovups {{[0-9]+}}(%[[BASE]],%[[ROW]]), %[[SUM:zmm[0-9]+]]
// CHECK-NEXT:   vfmadd132ps {{.*}} %[[SUM]]
// CHECK-NEXT:   vfmadd231ps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %[[SUM]]
// CHECK-NEXT:   vfmadd231ps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %[[SUM]]
// CHECK-NEXT:   vfmadd231ps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %[[SUM]]
// CHECK-NEXT:   vfmadd231ps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %[[SUM]]
// CHECK-NEXT:   vfmadd231ps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %[[SUM]]
// CHECK-NEXT:   vfmadd231ps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %[[SUM]]
// CHECK-NEXT:   vfmadd231ps {{[0-9]+}}(%[[BASE]],%[[ROW]]), %zmm{{[0-9]+}}, %[[SUM]]
// CHECK-NEXT:   shlq $6, %[[NUMBER:r[a-z0-9]+]]
// CHECK-NEXT:   vmovups %[[SUM]], {{[0-9]+}}(%[[BASE]],%[[NUMBER]])
// CHECK-NEXT:   incq
// CHECK-NEXT:   cmpq
// CHECK-NEXT:   jle
chunk.kernel @pairs chunk 32 (input %q: tensor<32x128xf32>, input %k: tensor<32x128xf32>, input %g: tensor<32x128xf32>,
    valid %n: index) -> (o: tensor<32x32xf32>) {
  %o = chunk.decay_dot %q, %k log %g : tensor<32x128xf32>, tensor<32x128xf32>, tensor<32x128xf32> -> tensor<32x32xf32>
  chunk.yield %o : tensor<32x32xf32>
}
