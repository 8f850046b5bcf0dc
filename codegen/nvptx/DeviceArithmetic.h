//===- DeviceArithmetic.h - Arithmetic of one type for NVPTX ----*- C++ -*-===//
#ifndef STRETTO_CODEGEN_NVPTX_DEVICEARITHMETIC_H
#define STRETTO_CODEGEN_NVPTX_DEVICEARITHMETIC_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <limits>

namespace stretto {

/// Emits arithmetic on numbers of f32 or f64, and on integers as wide.
class DeviceArithmetic : public mlir::ImplicitLocOpBuilder {
public:
  DeviceArithmetic(mlir::Operation *before, mlir::FloatType type)
      : ImplicitLocOpBuilder(before->getLoc(), before), type(type) {}

  using Value = mlir::Value;

  Value number(double value) { return mlir::arith::ConstantOp::create(*this, getFloatAttr(type, value)); }
  Value integer(int64_t value) { return mlir::arith::ConstantIntOp::create(*this, value, type.getWidth()); }
  Value add(Value a, Value b) { return mlir::arith::AddFOp::create(*this, a, b); }
  Value sub(Value a, Value b) { return mlir::arith::SubFOp::create(*this, a, b); }
  Value mul(Value a, Value b) { return mlir::arith::MulFOp::create(*this, a, b); }
  Value mul(Value a, double b) { return mul(a, number(b)); }
  Value fma(Value a, Value b, Value c) { return mlir::LLVM::FMAOp::create(*this, a, b, c); }
  Value fma(Value a, double b, Value c) { return fma(a, number(b), c); }
  Value negate(Value a) { return mlir::arith::NegFOp::create(*this, a); }
  Value absolute(Value a) { return mlir::LLVM::FAbsOp::create(*this, a); }
  Value floor(Value a) { return mlir::LLVM::FFloorOp::create(*this, a); }
  Value truncate(Value a) { return mlir::LLVM::FTruncOp::create(*this, a); }
  Value roundEven(Value a) { return mlir::LLVM::RoundEvenOp::create(*this, a); }
  Value copySign(Value a, Value sign) { return mlir::LLVM::CopySignOp::create(*this, a, sign); }
  Value select(Value condition, Value yes, Value no) {
    return mlir::arith::SelectOp::create(*this, condition, yes, no);
  }
  Value compare(mlir::arith::CmpFPredicate predicate, Value a, Value b) {
    return mlir::arith::CmpFOp::create(*this, predicate, a, b);
  }
  Value less(Value a, Value b) { return compare(mlir::arith::CmpFPredicate::OLT, a, b); }
  Value less(Value a, double b) { return less(a, number(b)); }
  Value greater(Value a, double b) { return compare(mlir::arith::CmpFPredicate::OGT, a, number(b)); }
  Value equal(Value a, Value b) { return compare(mlir::arith::CmpFPredicate::OEQ, a, b); }
  Value equal(Value a, double b) { return equal(a, number(b)); }
  Value both(Value a, Value b) { return mlir::arith::AndIOp::create(*this, a, b); }
  Value asInteger(Value a) { return mlir::arith::BitcastOp::create(*this, getIntegerType(type.getWidth()), a); }
  Value asNumber(Value a) { return mlir::arith::BitcastOp::create(*this, type, a); }
  Value toInteger(Value a) { return mlir::arith::FPToSIOp::create(*this, getIntegerType(type.getWidth()), a); }
  Value fromInteger(Value a) { return mlir::arith::SIToFPOp::create(*this, type, a); }

  Value instruction(llvm::StringRef intrinsic, mlir::ValueRange operands) {
    return mlir::LLVM::CallIntrinsicOp::create(*this, type, getStringAttr(intrinsic), operands)->getResult(0);
  }

  /// `c[0] + c[1] x + ...`
  Value polynomial(Value x, llvm::ArrayRef<double> coefficients) {
    Value result = number(coefficients.back());
    for (double coefficient : llvm::reverse(coefficients.drop_back()))
      result = fma(result, x, number(coefficient));
    return result;
  }

  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();

  /// x = 2^e m with m in [2/3, 4/3): e, and m - 1. `twoThirds` are the bits of that number.
  std::pair<Value, Value> splitExponent(Value x, int64_t twoThirds, int64_t mantissaBits) {
    Value bits = asInteger(x), moved = mlir::arith::SubIOp::create(*this, bits, integer(twoThirds));
    Value exponent = mlir::arith::ShRSIOp::create(*this, moved, integer(mantissaBits));
    Value scaled = mlir::arith::ShLIOp::create(*this, exponent, integer(mantissaBits));
    return {exponent, sub(asNumber(mlir::arith::SubIOp::create(*this, bits, scaled)), number(1))};
  }
  /// A logarithm: of 0 it is -inf, of what is below it NaN; infinity and NaN give themselves.
  Value completeLogarithm(Value x, Value result) {
    Value special = select(equal(x, 0), number(-infinity), select(less(x, 0), number(nan), x));
    return select(both(greater(x, 0), less(x, infinity)), result, special);
  }

  /// What a sine makes of the sine and the cosine of the rest of an angle behind `quarter` turns.
  Value ofQuarter(Value quarter, Value sine, Value cosine) {
    Value odd = mlir::arith::TruncIOp::create(*this, getI1Type(), quarter);
    Value shifted = mlir::arith::ShRSIOp::create(*this, quarter, integer(1));
    Value half = mlir::arith::TruncIOp::create(*this, getI1Type(), shifted);
    Value value = select(odd, cosine, sine);
    return select(half, negate(value), value);
  }

  /// The sign that a power of a negative number has: NaN where the exponent is no integer.
  Value signOfPower(Value x, Value y, Value size) {
    Value half = mul(y, 0.5);
    Value negative = select(equal(floor(half), half), size, negate(size));
    negative = select(equal(floor(y), y), negative, number(nan));
    return select(equal(y, 0), number(1), select(less(x, 0), negative, size));
  }

  mlir::FloatType type;
};

} // namespace stretto

#endif // STRETTO_CODEGEN_NVPTX_DEVICEARITHMETIC_H
