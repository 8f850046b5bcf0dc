// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts),stretto-plan-shared-memory{chip=sm_90},stretto-lower-to-threads{chip=sm_90})' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,kernel.func(stretto-assign-layouts),stretto-plan-shared-memory{chip=sm_80},stretto-lower-to-threads{chip=sm_80})' | FileCheck %s --check-prefix=OLDER
// RUN: not stretto-opt %s --pass-pipeline='builtin.module(stretto-lower-to-threads{chip=sm_9})' 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// Where the chip launches a kernel before the one in front of it has ended, threads wait for that before they read or
// write anything, and the manifest tells the host that they do. What a block is to do it finds before, but of a packed
// batch, whose offsets are in memory.
// CHECK-LABEL: llvm.func @f
// CHECK-SAME: \22awaitsLaunches\22:true
// CHECK-NOT: llvm.load {{.*}}ptr<1>
// CHECK-NOT: nvvm.griddepcontrol launch_dependents
// CHECK: scf.if %[[PACKED:.*]] {
// CHECK-NEXT: nvvm.griddepcontrol wait
// CHECK: scf.if %[[PACKED]] -> (i64)
// CHECK: llvm.load {{.*}}ptr<1>
// CHECK: scf.if %[[PACKED]] -> (i64, i64)
// CHECK: llvm.load {{.*}}ptr<1>
// CHECK: } else {
// CHECK-NOT: llvm.load {{.*}}ptr<1>
// CHECK-NOT: llvm.store
// CHECK: nvvm.griddepcontrol wait
// CHECK: llvm.store
// OLDER-LABEL: llvm.func @f
// OLDER-SAME: \22awaitsLaunches\22:false
// OLDER-NOT: griddepcontrol
// UNKNOWN: the chip 'sm_9' is not known, expected one of sm_80,
chunk.kernel @f chunk 16 (input %x: tensor<16x16xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  %o = arith.negf %x : tensor<16x16xf32>
  chunk.yield %o : tensor<16x16xf32>
}
