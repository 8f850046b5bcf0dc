// RUN: stretto-opt %s --stretto-thin-checkpoints | FileCheck %s

// A state of 32 KiB for each chunk of 32 tokens, whose rows take 8: every second one is kept.
// CHECK-LABEL: chunk.kernel @many_checkpoints chunk 32(
// CHECK: chunk.kernel @many chunk 32 reverse between @many_checkpoints(
chunk.kernel @many_checkpoints chunk 32 (input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, state %S_many: tensor<128x128xf32>, valid %n: index)
    -> (S_many: tensor<128x128xbf16> checkpoint) {
  %kept = arith.truncf %S_many : tensor<128x128xf32> to tensor<128x128xbf16>
  %next = chunk.dot %k, %v transpose_left add %S_many : tensor<32x128xbf16>, tensor<32x128xbf16> -> tensor<128x128xf32>
  chunk.yield %kept next %next : tensor<128x128xbf16>, tensor<128x128xf32>
}
chunk.kernel @many chunk 32 reverse (input %q: tensor<32x128xbf16>, input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, checkpoint %S_many: tensor<128x128xbf16>, valid %n: index)
    -> (d_q: tensor<32x128xf32>) {
  %d_q = chunk.dot %q, %S_many transpose_right : tensor<32x128xbf16>, tensor<128x128xbf16> -> tensor<32x128xf32>
  chunk.yield %d_q : tensor<32x128xf32>
}

// Those of 64 tokens take no more than two inputs.
// CHECK: chunk.kernel @few chunk 64 reverse(
chunk.kernel @few_checkpoints chunk 64 (input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>, state %S_few: tensor<128x128xf32>, valid %n: index)
    -> (S_few: tensor<128x128xbf16> checkpoint) {
  %kept = arith.truncf %S_few : tensor<128x128xf32> to tensor<128x128xbf16>
  %next = chunk.dot %k, %v transpose_left add %S_few : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
  chunk.yield %kept next %next : tensor<128x128xbf16>, tensor<128x128xf32>
}
chunk.kernel @few chunk 64 reverse (input %q: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>, input %v: tensor<64x128xbf16>, checkpoint %S_few: tensor<128x128xbf16>, valid %n: index)
    -> (d_q: tensor<64x128xf32>) {
  %d_q = chunk.dot %q, %S_few transpose_right : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
  chunk.yield %d_q : tensor<64x128xf32>
}

// A number of each token is loaded when its turn has come, no earlier.
// CHECK: chunk.kernel @numbers chunk 32 reverse(
chunk.kernel @numbers_checkpoints chunk 32 (input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, input %g: tensor<32xbf16>, state %S_numbers: tensor<128x128xf32>, valid %n: index)
    -> (S_numbers: tensor<128x128xbf16> checkpoint) {
  %kept = arith.truncf %S_numbers : tensor<128x128xf32> to tensor<128x128xbf16>
  %next = chunk.dot %k, %v transpose_left add %S_numbers : tensor<32x128xbf16>, tensor<32x128xbf16> -> tensor<128x128xf32>
  chunk.yield %kept next %next : tensor<128x128xbf16>, tensor<128x128xf32>
}
chunk.kernel @numbers chunk 32 reverse (input %q: tensor<32x128xbf16>, input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, checkpoint %S_numbers: tensor<128x128xbf16>, valid %n: index)
    -> (d_q: tensor<32x128xf32>) {
  %d_q = chunk.dot %q, %S_numbers transpose_right : tensor<32x128xbf16>, tensor<128x128xbf16> -> tensor<32x128xf32>
  chunk.yield %d_q : tensor<32x128xf32>
}

// What the walk back has not would have to be asked for.
// CHECK: chunk.kernel @other chunk 32 reverse(
chunk.kernel @other_checkpoints chunk 32 (input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, input %g: tensor<32x128xbf16>, state %S_other: tensor<128x128xf32>, valid %n: index)
    -> (S_other: tensor<128x128xbf16> checkpoint) {
  %kept = arith.truncf %S_other : tensor<128x128xf32> to tensor<128x128xbf16>
  %next = chunk.dot %k, %v transpose_left add %S_other : tensor<32x128xbf16>, tensor<32x128xbf16> -> tensor<128x128xf32>
  chunk.yield %kept next %next : tensor<128x128xbf16>, tensor<128x128xf32>
}
chunk.kernel @other chunk 32 reverse (input %q: tensor<32x128xbf16>, input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, checkpoint %S_other: tensor<128x128xbf16>, valid %n: index)
    -> (d_q: tensor<32x128xf32>) {
  %d_q = chunk.dot %q, %S_other transpose_right : tensor<32x128xbf16>, tensor<128x128xbf16> -> tensor<32x128xf32>
  chunk.yield %d_q : tensor<32x128xf32>
}

// A third kernel asks for all.
// CHECK: chunk.kernel @shared chunk 32 reverse(
chunk.kernel @shared_checkpoints chunk 32 (input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, state %S_shared: tensor<128x128xf32>, valid %n: index)
    -> (S_shared: tensor<128x128xbf16> checkpoint) {
  %kept = arith.truncf %S_shared : tensor<128x128xf32> to tensor<128x128xbf16>
  %next = chunk.dot %k, %v transpose_left add %S_shared : tensor<32x128xbf16>, tensor<32x128xbf16> -> tensor<128x128xf32>
  chunk.yield %kept next %next : tensor<128x128xbf16>, tensor<128x128xf32>
}
chunk.kernel @shared chunk 32 reverse (input %q: tensor<32x128xbf16>, input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, checkpoint %S_shared: tensor<128x128xbf16>, valid %n: index)
    -> (d_q: tensor<32x128xf32>) {
  %d_q = chunk.dot %q, %S_shared transpose_right : tensor<32x128xbf16>, tensor<128x128xbf16> -> tensor<32x128xf32>
  chunk.yield %d_q : tensor<32x128xf32>
}
chunk.kernel @third chunk 32 reverse (input %q: tensor<32x128xbf16>, input %k: tensor<32x128xbf16>, input %v: tensor<32x128xbf16>, checkpoint %S_shared: tensor<128x128xbf16>, valid %n: index)
    -> (d_q: tensor<32x128xf32>) {
  %d_q = chunk.dot %q, %S_shared transpose_right : tensor<32x128xbf16>, tensor<128x128xbf16> -> tensor<32x128xf32>
  chunk.yield %d_q : tensor<32x128xf32>
}
