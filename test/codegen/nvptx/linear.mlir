// RUN: stretto-translate --chunk-to-ptx --chip=sm_90a %s -o %t.ptx

chunk.kernel @linear chunk 64 (input %q: tensor<64x128xbf16>, input %k: tensor<64x128xbf16>,
    input %v: tensor<64x128xbf16>, state %S: tensor<128x128xf32>, valid %n: index) -> (o: tensor<64x128xbf16>) {
  %qk = chunk.dot %q, %k transpose_right : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
  %p = chunk.causal %qk : tensor<64x64xf32>
  %p16 = arith.truncf %p : tensor<64x64xf32> to tensor<64x64xbf16>
  %inner = chunk.dot %p16, %v : tensor<64x64xbf16>, tensor<64x128xbf16> -> tensor<64x128xf32>
  %S16 = arith.truncf %S : tensor<128x128xf32> to tensor<128x128xbf16>
  %o = chunk.dot %q, %S16 add %inner : tensor<64x128xbf16>, tensor<128x128xbf16> -> tensor<64x128xf32>
  %next = chunk.dot %k, %v transpose_left add %S : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<128x128xf32>
  %o16 = arith.truncf %o : tensor<64x128xf32> to tensor<64x128xbf16>
  chunk.yield %o16 next %next : tensor<64x128xbf16>, tensor<128x128xf32>
}
