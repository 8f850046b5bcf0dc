// RUN: stretto-opt --stretto-expand-math %s | FileCheck %s
// RUN: stretto-opt --stretto-expand-math=scalef=false %s | FileCheck --check-prefix=PLAIN %s

// CHECK-LABEL: func.func @exp
// CHECK-NOT:     math.exp
// CHECK:         math.roundeven
// CHECK-COUNT-8: math.fma
// CHECK:         x86vector.avx512.mask.scalef
// PLAIN-LABEL: func.func @exp
// PLAIN-NOT:     scalef
// PLAIN:         arith.shli
func.func @exp(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}

// Registers of half the width have no scalef.
// CHECK-LABEL: func.func @short_exp
// CHECK-NOT:     math.exp
// CHECK-NOT:     scalef
// CHECK:         arith.shli
func.func @short_exp(%x: vector<8xf32>) -> vector<8xf32> {
  %y = math.exp %x : vector<8xf32>
  return %y : vector<8xf32>
}

// CHECK-LABEL: func.func @log1p
// CHECK-NOT:     math.log
// CHECK:         arith.divf
func.func @log1p(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.log1p %x : vector<16xf32>
  return %y : vector<16xf32>
}

// The C library's functions of double precision are as good as any.
// CHECK-LABEL: func.func @log_double
// CHECK:         math.log %
func.func @log_double(%x: vector<8xf64>) -> vector<8xf64> {
  %y = math.log %x : vector<8xf64>
  return %y : vector<8xf64>
}

// CHECK-LABEL: func.func @bf16
// CHECK-NOT:     arith.extf
// CHECK:         arith.shli
// CHECK-NOT:     arith.truncf
func.func @bf16(%x: vector<16xbf16>) -> vector<16xbf16> {
  %y = arith.extf %x : vector<16xbf16> to vector<16xf32>
  %z = arith.truncf %y : vector<16xf32> to vector<16xbf16>
  return %z : vector<16xbf16>
}
