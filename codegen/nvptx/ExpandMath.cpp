//===- ExpandMath.cpp - Elementary functions for NVPTX --------------------===//
//
// The back end of LLVM has instructions for a few functions, some of them too coarse, and aborts on the others. Here
// every function of the closed list becomes arithmetic and instructions that exist. Polynomials are least in the
// maximum of their relative error. Denormals count as zero.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/Passes.h"
#include <numbers>

namespace stretto {
#define GEN_PASS_DEF_EXPANDMATHFORNVPTX
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// Arithmetic on numbers of f32.
class Arithmetic : public ImplicitLocOpBuilder {
public:
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  Value number(double value) { return arith::ConstantOp::create(*this, getF32FloatAttr(value)); }
  Value integer(int64_t value) { return arith::ConstantIntOp::create(*this, value, 32); }
  Value add(Value a, Value b) { return arith::AddFOp::create(*this, a, b); }
  Value sub(Value a, Value b) { return arith::SubFOp::create(*this, a, b); }
  Value mul(Value a, Value b) { return arith::MulFOp::create(*this, a, b); }
  Value mul(Value a, double b) { return mul(a, number(b)); }
  Value fma(Value a, Value b, Value c) { return LLVM::FMAOp::create(*this, a, b, c); }
  Value fma(Value a, double b, Value c) { return fma(a, number(b), c); }
  Value negate(Value a) { return arith::NegFOp::create(*this, a); }
  Value absolute(Value a) { return LLVM::FAbsOp::create(*this, a); }
  Value floor(Value a) { return LLVM::FFloorOp::create(*this, a); }
  Value roundEven(Value a) { return LLVM::RoundEvenOp::create(*this, a); }
  Value select(Value condition, Value yes, Value no) { return arith::SelectOp::create(*this, condition, yes, no); }
  Value compare(arith::CmpFPredicate predicate, Value a, double b) {
    return arith::CmpFOp::create(*this, predicate, a, number(b));
  }
  Value less(Value a, double b) { return compare(arith::CmpFPredicate::OLT, a, b); }
  Value equal(Value a, double b) { return compare(arith::CmpFPredicate::OEQ, a, b); }
  Value asInteger(Value a) { return arith::BitcastOp::create(*this, getI32Type(), a); }
  Value asNumber(Value a) { return arith::BitcastOp::create(*this, getF32Type(), a); }

  Value instruction(StringRef intrinsic, ValueRange operands) {
    return LLVM::CallIntrinsicOp::create(*this, getF32Type(), getStringAttr(intrinsic), operands)->getResult(0);
  }
  Value divide(Value a, Value b) { return instruction("llvm.nvvm.div.full.ftz", {a, b}); }

  /// `c[0] + c[1] x + ...`
  Value polynomial(Value x, ArrayRef<double> coefficients) {
    Value result = number(coefficients.back());
    for (double coefficient : llvm::reverse(coefficients.drop_back()))
      result = fma(result, x, number(coefficient));
    return result;
  }

  //===--------------------------------------------------------------------===//
  // Functions
  //===--------------------------------------------------------------------===//

  Value exp2(Value x) { return LLVM::Exp2Op::create(*this, x); }
  Value exp(Value x) { return exp2(mul(x, std::numbers::log2e)); }

  /// x = 2^e m with m in [2/3, 4/3); log x = e log 2 + f + f^2 P(f), f = m - 1, is accurate next to 1 too.
  Value log(Value x) {
    constexpr int64_t twoThirds = 0x3f2aaaab, mantissaBits = 23;
    Value bits = asInteger(x);
    Value exponent =
        arith::ShRSIOp::create(*this, arith::SubIOp::create(*this, bits, integer(twoThirds)), integer(mantissaBits));
    Value scaled = arith::ShLIOp::create(*this, exponent, integer(mantissaBits));
    Value f = sub(asNumber(arith::SubIOp::create(*this, bits, scaled)), number(1));
    Value p = polynomial(f, {-0.5, 0.33333209157, -0.249997168779, 0.200107470155, -0.16682305932, 0.140011608601,
                             -0.121671542525, 0.140047565103, -0.129489630461});
    Value result = fma(mul(f, f), p, f);
    result = fma(arith::SIToFPOp::create(*this, getF32Type(), exponent), std::numbers::ln2, result);
    // 0 gives -inf, what is below it NaN; infinity and NaN give themselves.
    Value special = select(equal(x, 0), number(-infinity), select(less(x, 0), number(nan), x));
    Value ordinary = arith::AndIOp::create(*this, compare(arith::CmpFPredicate::OGT, x, 0), less(x, infinity));
    return select(ordinary, result, special);
  }

  /// What 1 + x loses is given back relative to it.
  Value log1p(Value x) {
    Value sum = add(number(1), x);
    Value lost = divide(sub(x, sub(sum, number(1))), sum);
    Value ordinary = arith::AndIOp::create(*this, compare(arith::CmpFPredicate::OGT, sum, 0), less(sum, infinity));
    return add(log(sum), select(ordinary, lost, number(0)));
  }

  /// x + x^3 P(x^2) where x is small, else 1 - 2 / (e^2x + 1).
  Value tanh(Value x) {
    constexpr double small = 0.625;
    Value square = mul(x, x), size = absolute(x);
    Value p =
        polynomial(square, {-0.333332806826, 0.133314415812, -0.0537397153676, 0.020639086142, -0.00570498686284});
    Value near = fma(mul(x, square), p, x);
    Value far = sub(number(1), divide(number(2), add(exp(add(size, size)), number(1))));
    far = LLVM::CopySignOp::create(*this, far, x);
    return select(less(size, small), near, far);
  }

  /// Quarter turns n and the rest r of an angle, |r| <= pi/4. The three parts of pi/2 keep n r exact up to 2^13 turns.
  std::pair<Value, Value> turns(Value x) {
    Value n = roundEven(mul(x, 2 * std::numbers::inv_pi));
    Value r = fma(n, -1.5703125, x);
    r = fma(n, -0.0004837512969970703, r);
    r = fma(n, -7.549789948768648e-08, r);
    return {arith::FPToSIOp::create(*this, getI32Type(), n), r};
  }

  /// The sine of an angle and `ahead` quarter turns.
  Value sine(Value x, int64_t ahead) {
    auto [n, r] = turns(x);
    Value square = mul(r, r);
    Value ps = polynomial(square, {-0.166666671634, 0.00833332911134, -0.000198393128812, 2.71812155006e-06});
    Value pc = polynomial(square, {0.0416666679084, -0.00138888834034, 2.47994594247e-05, -2.72057548045e-07});
    Value sin = fma(mul(r, square), ps, r);
    Value cos = fma(mul(square, square), pc, fma(square, -0.5, number(1)));
    Value quarter = arith::AddIOp::create(*this, n, integer(ahead));
    Value odd = arith::TruncIOp::create(*this, getI1Type(), quarter);
    Value half = arith::TruncIOp::create(*this, getI1Type(), arith::ShRSIOp::create(*this, quarter, integer(1)));
    Value value = select(odd, cos, sin);
    // An infinite angle has no sine.
    value = select(less(absolute(x), infinity), value, number(nan));
    return select(half, negate(value), value);
  }

  /// |x|^y by logarithms; where x is negative, y must be an integer, which gives the sign.
  Value power(Value x, Value y) {
    Value size = exp2(mul(mul(y, log(absolute(x))), std::numbers::log2e));
    Value half = mul(y, 0.5);
    Value isInteger = arith::CmpFOp::create(*this, arith::CmpFPredicate::OEQ, floor(y), y);
    Value isEven = arith::CmpFOp::create(*this, arith::CmpFPredicate::OEQ, floor(half), half);
    Value negative = select(isInteger, select(isEven, size, negate(size)), number(nan));
    Value result = select(less(x, 0), negative, size);
    return select(equal(y, 0), number(1), result);
  }

  Value expand(Operation *op) {
    Value x = op->getOperand(0);
    return llvm::TypeSwitch<Operation *, Value>(op)
        .Case([&](math::ExpOp) { return exp(x); })
        .Case([&](math::Exp2Op) { return exp2(x); })
        .Case([&](math::LogOp) { return log(x); })
        .Case([&](math::Log1pOp) { return log1p(x); })
        .Case([&](math::SqrtOp) { return LLVM::SqrtOp::create(*this, x); })
        .Case([&](math::RsqrtOp) { return instruction("llvm.nvvm.rsqrt.approx.ftz.f", x); })
        .Case([&](math::AbsFOp) { return absolute(x); })
        .Case([&](math::TanhOp) { return tanh(x); })
        .Case([&](math::SinOp) { return sine(x, 0); })
        .Case([&](math::CosOp) { return sine(x, 1); })
        .Case([&](math::FloorOp) { return floor(x); })
        .Case([&](math::RoundEvenOp) { return roundEven(x); })
        .Case([&](math::PowFOp op) { return power(x, op.getRhs()); })
        .Case([&](arith::DivFOp op) { return divide(x, op.getRhs()); })
        .Default(Value());
  }

private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();
};

struct ExpandMathForNvptx : stretto::impl::ExpandMathForNvptxBase<ExpandMathForNvptx> {
  void runOnOperation() override {
    WalkResult result = getOperation()->walk([](Operation *op) -> WalkResult {
      if (!isa<math::MathDialect>(op->getDialect()) && !isa<arith::DivFOp>(op))
        return WalkResult::advance();
      Arithmetic builder(op->getLoc(), op);
      Type type = op->getResult(0).getType();
      if (!type.isF32() && !type.isF16() && !type.isBF16())
        return op->emitOpError("of type ") << type << " has no form on a GPU";
      if (!type.isF32())
        for (OpOperand &operand : op->getOpOperands())
          operand.set(arith::ExtFOp::create(builder, builder.getF32Type(), operand.get()));
      Value value = builder.expand(op);
      if (!value)
        return op->emitOpError("has no form on a GPU");
      if (!type.isF32())
        value = arith::TruncFOp::create(builder, type, value);
      op->getResult(0).replaceAllUsesWith(value);
      op->erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
