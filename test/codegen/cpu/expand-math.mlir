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

// e^x - 1 near 0 keeps the digits that e^x has no room for: 1 is subtracted from the power of two.
// CHECK-LABEL: func.func @expm1
// CHECK-NOT:     math.expm1
// CHECK-COUNT-2: x86vector.avx512.mask.scalef
// CHECK:         arith.subf
// CHECK:         arith.addf
func.func @expm1(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.expm1 %x : vector<16xf32>
  return %y : vector<16xf32>
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

// log(1 + x) would lose the digits of a small x.
// CHECK-LABEL: func.func @log1p_double
// CHECK-NOT:     math.log1p
// CHECK:         math.log %
// CHECK:         arith.divf
func.func @log1p_double(%x: vector<8xf64>) -> vector<8xf64> {
  %y = math.log1p %x : vector<8xf64>
  return %y : vector<8xf64>
}

// CHECK-LABEL: func.func @from_bf16
// CHECK-NOT:     arith.extf
// CHECK:         arith.shli
func.func @from_bf16(%x: vector<16xbf16>) -> vector<16xf32> {
  %y = arith.extf %x : vector<16xbf16> to vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func.func @to_bf16
// CHECK-NOT:     arith.truncf
// CHECK:         arith.shrui
func.func @to_bf16(%x: vector<16xf32>) -> vector<16xbf16> {
  %y = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  return %y : vector<16xbf16>
}
