// RUN: stretto-opt --stretto-lower-to-vector --canonicalize --cse %s | FileCheck %s

// What a walk back reads and writes of the chunk before is brought near while this one is computed: 16 rows of each
// tile and the 24 of the checkpoint. The product that the state becomes hides it, wherever it stands: here an output
// reads it.

// CHECK-LABEL: func.func @read
// CHECK:         %[[ROWS:.*]] = memref.view %{{.*}} : memref<{{[0-9]+}}xi8> to memref<72xi64>
// CHECK:         memref.store %{{.*}}, %[[ROWS]]
// The number of a loop is hidden from LLVM, as below.
// CHECK:         scf.for %[[STEP:.*]] = %c0 to %c24 step %c1 {
// CHECK-NEXT:      %[[WORD:.*]] = arith.index_cast %[[STEP]] : index to i64
// CHECK-NEXT:      %[[HIDDEN:.*]] = llvm.inline_asm {{.*}}"", "=r,0" %[[WORD]]
// CHECK-NEXT:      %[[ROW:.*]] = arith.index_cast %[[HIDDEN]] : i64 to index
// CHECK:           %[[PLACE:.*]] = arith.addi %[[ROW]], %c16 : index
// CHECK:           memref.store %{{.*}}, %[[ROWS]][%[[PLACE]]]
// CHECK-COUNT-2: memref.store %{{.*}}, %[[ROWS]]
// CHECK-NOT:     vector.fma
// CHECK:         memref.load %[[ROWS]]
// CHECK:         memref.prefetch
// CHECK:         vector.fma
// CHECK:         scf.for
// CHECK-NOT:     memref.prefetch
// CHECK:         vector.fma
// CHECK-NOT:     memref.prefetch
// CHECK:         return
chunk.kernel @read chunk 16 reverse (input %v: tensor<16x32xf32>, checkpoint %S: tensor<24x32xf32>,
    state %d: tensor<24x32xf32>, input %k: tensor<16x24xf32>, valid %n: index) -> (o: tensor<16x24xf32>) {
  %next = chunk.dot %k, %v transpose_left add %d : tensor<16x24xf32>, tensor<16x32xf32> -> tensor<24x32xf32>
  %o = chunk.dot %v, %next transpose_right : tensor<16x32xf32>, tensor<24x32xf32> -> tensor<16x24xf32>
  chunk.yield %o next %next : tensor<16x24xf32>, tensor<24x32xf32>
}
