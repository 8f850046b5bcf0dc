// RUN: stretto-opt --stretto-expand-math %s | FileCheck %s
// RUN: stretto-opt --stretto-expand-math=scalef=false %s | FileCheck --check-prefix=PLAIN %s
// RUN: stretto-opt --stretto-expand-math=bf16 %s | FileCheck --check-prefix=NATIVE %s

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

// CHECK-LABEL: func.func @tanh
// CHECK-NOT:     math.tanh
// CHECK:         arith.divf
// CHECK:         math.copysign
func.func @tanh(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.tanh %x : vector<16xf32>
  return %y : vector<16xf32>
}

// The exponent is that of 1 + x rounded, the fraction that of 1 + x itself.
// CHECK-LABEL: func.func @log1p
// CHECK-NOT:     math.log
// CHECK-NOT:     arith.divf
// CHECK:         arith.shrsi
// CHECK:         arith.shli
// CHECK-COUNT-2: math.fma
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

// The inverse of a power of two is exact, that of another number is not.
// CHECK-LABEL: func.func @quotients
// CHECK:         %[[INVERSE:.*]] = arith.constant dense<6.250000e-02>
// CHECK:         arith.mulf %{{.*}}, %[[INVERSE]]
// CHECK:         arith.divf
func.func @quotients(%x: vector<16xf32>) -> (vector<16xf32>, vector<16xf32>) {
  %c16 = arith.constant dense<16.0> : vector<16xf32>
  %c10 = arith.constant dense<10.0> : vector<16xf32>
  %y = arith.divf %x, %c16 : vector<16xf32>
  %z = arith.divf %x, %c10 : vector<16xf32>
  return %y, %z : vector<16xf32>, vector<16xf32>
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
// NATIVE-LABEL: func.func @to_bf16
// NATIVE-NEXT:    x86vector.avx512.cvt.packed.f32_to_bf16 %{{.*}} : vector<16xf32> -> vector<16xbf16>
// NATIVE-NEXT:    return
func.func @to_bf16(%x: vector<16xf32>) -> vector<16xbf16> {
  %y = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  return %y : vector<16xbf16>
}
