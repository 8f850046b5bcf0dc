// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{ahead=8 outputs=4 walk=4})' | FileCheck %s
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks,stretto-divide-roles{outputs=4 walk=4})' | FileCheck %s --check-prefix=BEHIND
// RUN: stretto-opt %s --pass-pipeline='builtin.module(stretto-fold-over-chunks{warpgroups=true},stretto-divide-roles{ahead=8 outputs=4 walk=4},kernel.func(stretto-assign-layouts{read-again=true repeat-left=true warpgroups=true},control-flow-sink,stretto-select-products{chip=sm_90a},stretto-overlap-products,stretto-select-copies{chip=sm_90a}),stretto-share-channels)' | FileCheck %s --check-prefix=OVER

// Those who run ahead sum up rows of tiles, too, before they make any, and pass one number of each row once it is known
// whether the walk goes on. Then comes what is made of most tiles, which frees their places.
// CHECK-LABEL: kernel.func @bonus.ahead(
// CHECK: scf.for
// CHECK-NOT: chunk.accumulate
// CHECK: %[[SUMS:.*]] = chunk.reduce sum %{{.*}} over columns
// CHECK-NOT: kernel.pass
// CHECK: chunk.expect
// CHECK-NEXT: kernel.pass %[[SUMS]] to
// CHECK-NOT: kernel.pass
// CHECK: math.sqrt
// CHECK: kernel.pass %{{.*}} : tensor<64x64xbf16>
// CHECK-NOT: kernel.pass
// CHECK: math.exp2
// CHECK: kernel.pass %{{.*}} : tensor<64x64xbf16>
// CHECK-LABEL: kernel.func @bonus.outputs(
// CHECK-NOT: chunk.reduce
// CHECK: kernel.receive %{{.*}} turn %{{.*}} -> tensor<64xf32>
// CHECK-NOT: chunk.reduce
// CHECK: kernel.return
// Where nobody runs ahead, those who find outputs do that.
// BEHIND-LABEL: kernel.func @bonus(
// BEHIND-NOT: chunk.reduce
// BEHIND-LABEL: kernel.func @bonus.outputs(
// BEHIND: chunk.reduce

// A tile is left where another came, though threads read that elsewhere, too: they have met since. Queries are left where
// queries came, and keys where keys came.
// OVER-LABEL: kernel.func @bonus.ahead(
// OVER: kernel.channel passed {{[0-9]+}} over [[KEYS:[0-9]+]] depth
// OVER: kernel.channel passed {{[0-9]+}} over [[QUERIES:[0-9]+]] depth
// OVER: %[[Q:.*]] = kernel.channel passed [[QUERIES]] bulk
// OVER: %[[K:.*]] = kernel.channel passed [[KEYS]] bulk
// OVER: %[[QUERY:.*]] = kernel.receive %[[Q]] at
// OVER: %[[KEY:.*]] = kernel.receive %[[K]] at
// OVER: kernel.convert %[[QUERY]] matrices
// OVER: kernel.convert %[[KEY]] matrices
// OVER: chunk.reduce
// OVER: chunk.expect
chunk.kernel @bonus chunk 64 (input %q: tensor<64x64xbf16>, input %k: tensor<64x64xbf16>, input %v: tensor<64x64xbf16>, input %g: tensor<64x64xbf16>,
                              state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<64x64xbf16>) {
  %q32 = arith.extf %q : tensor<64x64xbf16> to tensor<64x64xf32>
  %k32 = arith.extf %k : tensor<64x64xbf16> to tensor<64x64xf32>
  %g32 = arith.extf %g : tensor<64x64xbf16> to tensor<64x64xf32>
  %sums = chunk.accumulate sum %g32 reverse exclusive : tensor<64x64xf32>
  %all = chunk.total %sums : tensor<64x64xf32> -> tensor<64xf32>
  %good = chunk.within %all limits [1.0] : tensor<64xf32>
  chunk.expect %good
  %factor = math.exp2 %sums : tensor<64x64xf32>
  %keys = arith.mulf %k32, %factor : tensor<64x64xf32>
  %keys16 = arith.truncf %keys : tensor<64x64xf32> to tensor<64x64xbf16>
  %again = arith.extf %g : tensor<64x64xbf16> to tensor<64x64xf32>
  %root = math.sqrt %again : tensor<64x64xf32>
  %other = arith.mulf %root, %sums : tensor<64x64xf32>
  %queries = arith.mulf %q32, %other : tensor<64x64xf32>
  %queries16 = arith.truncf %queries : tensor<64x64xf32> to tensor<64x64xbf16>
  %own_q = arith.extf %q : tensor<64x64xbf16> to tensor<64x64xf32>
  %own_k = arith.extf %k : tensor<64x64xbf16> to tensor<64x64xf32>
  %pairs = arith.mulf %own_q, %own_k : tensor<64x64xf32>
  %own = chunk.reduce sum %pairs over columns : tensor<64x64xf32> -> tensor<64xf32>
  %diagonal = chunk.broadcast %own along rows : tensor<64xf32> to tensor<64x64xf32>
  %p = chunk.dot %queries16, %keys16 transpose_right : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %m = chunk.causal %p strict : tensor<64x64xf32>
  %met = chunk.meet %diagonal else %m block 1 : tensor<64x64xf32>
  %scores = arith.truncf %met : tensor<64x64xf32> to tensor<64x64xbf16>
  %s = arith.truncf %S : tensor<64x64xf32> to tensor<64x64xbf16>
  %read = chunk.dot %queries16, %s : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %sum = chunk.dot %scores, %v add %read : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  %o = arith.truncf %sum : tensor<64x64xf32> to tensor<64x64xbf16>
  %next = chunk.dot %keys16, %v transpose_left add %S : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
  chunk.yield %o next %next : tensor<64x64xbf16>, tensor<64x64xf32>
}
