// RUN: stretto-translate --chunk-to-ptx --chip=sm_90a %s | FileCheck %s

// Words of a left operand that are constants are made of one that is 0 whenever a kernel runs, the sign of a number of
// heads, so that the assembler does not write their registers while products read them.

// CHECK-LABEL: .entry sums(
// CHECK-DAG:   ld.param.b32 %[[HEADS:r[0-9]+]], [sums_param_0+16];
// CHECK-DAG:   mov.u32 %[[LANE:r[0-9]+]], %laneid;
// CHECK:       add.s32 %[[SUM:r[0-9]+]], %[[HEADS]], %[[LANE]];
// CHECK:       shr.u32 %[[ZERO:r[0-9]+]], %[[SUM]], 31;
// CHECK:       or.b32 %[[TWOS:r[0-9]+]], %[[ZERO]], 1073758208;
// CHECK:       wgmma.mma_async{{.*}}%[[TWOS]]
chunk.kernel @sums chunk 64 (input %x: tensor<64x128xbf16>, valid %n: index) -> (o: tensor<64x128xf32>) {
  %ones = arith.constant dense<1.0> : tensor<64x64xf32>
  %twos = arith.constant dense<2.0> : tensor<64x64xf32>
  %met = chunk.meet %ones else %twos block 64 : tensor<64x64xf32>
  %left = arith.truncf %met : tensor<64x64xf32> to tensor<64x64xbf16>
  %o = chunk.dot %left, %x : tensor<64x64xbf16>, tensor<64x128xbf16> -> tensor<64x128xf32>
  chunk.yield %o : tensor<64x128xf32>
}
