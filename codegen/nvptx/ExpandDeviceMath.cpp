//===- ExpandDeviceMath.cpp - Elementary functions for NVPTX --------------------===//
//
// The back end of LLVM has instructions for a few functions, some of them too coarse, and aborts on the others. Here
// every function of the closed list becomes arithmetic and instructions that exist. Polynomials are least in the
// maximum of their relative error. Denormals of fp32 count as zero.
//
//===----------------------------------------------------------------------===//

#include "codegen/nvptx/DeviceArithmetic.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Iterators.h"
#include "passes/Passes.h"
#include <numbers>

namespace stretto {
#define GEN_PASS_DEF_EXPANDDEVICEMATH
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// Whether `x` is e^-|y|, as in the logarithm of a sigmoid or of a sum of exponentials.
bool isFraction(Value x) {
  auto power = x.getDefiningOp<math::ExpOp>();
  auto negated = power ? power.getOperand().getDefiningOp<arith::NegFOp>() : nullptr;
  return negated && negated.getOperand().getDefiningOp<math::AbsFOp>();
}

/// Functions of f32.
class SingleMath : public DeviceArithmetic {
public:
  explicit SingleMath(Operation *op) : DeviceArithmetic(op, Float32Type::get(op->getContext())) {}

  Value divide(Value a, Value b) { return instruction("llvm.nvvm.div.full.ftz", {a, b}); }

  Value exp2(Value x) { return LLVM::Exp2Op::create(*this, x); }
  Value exp(Value x) { return exp2(mul(x, std::numbers::log2e)); }

  /// x = 2^e m with m in [2/3, 4/3); log x = e log 2 + f + f^2 P(f), f = m - 1, is accurate next to 1 too.
  Value log(Value x) {
    auto [exponent, f] = splitExponent(x, 0x3f2aaaab, /*mantissaBits=*/23);
    Value p = polynomial(f, {-0.5, 0.33333209157, -0.249997168779, 0.200107470155, -0.16682305932, 0.140011608601,
                             -0.121671542525, 0.140047565103, -0.129489630461});
    Value result = fma(mul(f, f), p, f);
    result = fma(fromInteger(exponent), std::numbers::ln2, result);
    return completeLogarithm(x, result);
  }

  /// What 1 + x loses is given back relative to it. Of a fraction x P(x) is as good, and neither divides nor compares.
  Value log1p(Value x, bool ofFraction) {
    if (ofFraction)
      return mul(x, polynomial(x, {0.999999805667, -0.499974053958, 0.33275479773, -0.244954628342, 0.177452414905,
                                   -0.10768171378, 0.0440896323523, -0.00853920871608}));
    Value sum = add(number(1), x);
    Value lost = divide(sub(x, sub(sum, number(1))), sum);
    Value ordinary = both(greater(sum, 0), less(sum, infinity));
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
    far = copySign(far, x);
    return select(less(size, small), near, far);
  }

  /// Quarter turns n and the rest r of an angle, |r| <= pi/4. The three parts of pi/2 keep n r exact up to 2^13 turns.
  std::pair<Value, Value> turns(Value x) {
    Value n = roundEven(mul(x, 2 * std::numbers::inv_pi));
    Value r = fma(n, -1.5703125, x);
    r = fma(n, -0.0004837512969970703, r);
    r = fma(n, -7.549789948768648e-08, r);
    return {toInteger(n), r};
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
    // An infinite angle has no sine.
    return select(less(absolute(x), infinity), ofQuarter(quarter, sin, cos), number(nan));
  }

  /// |x|^y by logarithms; where x is negative, y must be an integer, which gives the sign.
  Value power(Value x, Value y) { return signOfPower(x, y, exp2(mul(mul(y, log(absolute(x))), std::numbers::log2e))); }

  Value expand(Operation *op) {
    Value x = op->getOperand(0);
    return llvm::TypeSwitch<Operation *, Value>(op)
        .Case([&](math::ExpOp) { return exp(x); })
        .Case([&](math::Exp2Op) { return exp2(x); })
        .Case([&](math::LogOp) { return log(x); })
        .Case([&](math::Log1pOp) { return log1p(x, isFraction(x)); })
        .Case([&](math::SqrtOp) { return LLVM::SqrtOp::create(*this, x); })
        .Case([&](math::RsqrtOp) { return instruction("llvm.nvvm.rsqrt.approx.ftz.f", x); })
        .Case([&](math::AbsFOp) { return absolute(x); })
        .Case([&](math::TanhOp) { return tanh(x); })
        .Case([&](math::SinOp) { return sine(x, 0); })
        .Case([&](math::CosOp) { return sine(x, 1); })
        .Case([&](math::FloorOp) { return floor(x); })
        .Case([&](math::RoundEvenOp) { return roundEven(x); })
        .Case([&](math::PowFOp op) { return power(x, op.getRhs()); })
        .Case([&](math::FmaOp op) { return fma(x, op.getB(), op.getC()); })
        .Case([&](arith::DivFOp op) {
          // Where an approximation is asked for, the inverse of a divisor that has one.
          bool isApproximate = bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::afn);
          return isApproximate ? mul(x, instruction("llvm.nvvm.rcp.approx.ftz.f", op.getRhs()))
                               : divide(x, op.getRhs());
        })
        .Default(Value());
  }
};

/// Functions of f64, as tables use them: to a few roundings, over series whose first term left out is below one.
class DoubleMath : public DeviceArithmetic {
public:
  explicit DoubleMath(Operation *op) : DeviceArithmetic(op, Float64Type::get(op->getContext())) {}

  /// `1 / first! , 1 / (first + step)! , ...` with signs that alternate by `sign`.
  static SmallVector<double> inverseFactorials(int first, int step, int count, double sign) {
    SmallVector<double> result;
    double factorial = 1;
    for (int i = 2; i <= first; ++i)
      factorial *= i;
    for (int i = 0, n = first; i < count; ++i) {
      result.push_back((i % 2 ? sign : 1) / factorial);
      for (int j = 0; j < step; ++j)
        factorial *= ++n;
    }
    return result;
  }

  /// e^x = 2^n e^r, |r| <= log(2) / 2.
  Value exp(Value x) {
    constexpr double limit = 800; // beyond every exponent: infinity, or 0
    Value near = select(greater(x, limit), number(limit), select(less(x, -limit), number(-limit), x));
    Value n = roundEven(mul(near, std::numbers::log2e));
    Value r = fma(n, -6.93147180369123816490e-01, near);
    r = fma(n, -1.90821492927058770002e-10, r);
    Value p = polynomial(r, inverseFactorials(0, 1, 14, 1));
    // In two steps, so that neither power overflows.
    Value half = floor(mul(n, 0.5));
    return mul(mul(p, powerOfTwo(half)), powerOfTwo(sub(n, half)));
  }
  Value exp2(Value x) { return exp(mul(x, std::numbers::ln2)); }

  /// x = 2^e m with m in [2/3, 4/3); log m = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1), |s| <= 1/5.
  Value log(Value x) {
    auto [exponent, f] = splitExponent(x, 0x3fe5555555555555, /*mantissaBits=*/52);
    Value s = divide(f, add(f, number(2))), square = mul(s, s);
    SmallVector<double> coefficients;
    for (int i = 3; i <= 21; i += 2)
      coefficients.push_back(2.0 / i);
    Value result = fma(mul(s, square), polynomial(square, coefficients), mul(s, 2));
    result = fma(fromInteger(exponent), std::numbers::ln2, result);
    return completeLogarithm(x, result);
  }

  /// With u = 1 + x rounded, log(u) * x / (u - 1) undoes the rounding.
  Value log1p(Value x) {
    Value u = add(number(1), x), difference = sub(u, number(1)), whole = log(u);
    Value ordinary = both(greater(u, 0), less(u, infinity));
    Value result = select(ordinary, mul(whole, divide(x, difference)), whole);
    return select(equal(difference, 0), x, result);
  }

  /// The rest is small against e^2|x| where the difference to 1 is; near 0 the quotient loses what tables do not show.
  Value tanh(Value x) {
    Value power = exp(mul(absolute(x), 2));
    return copySign(sub(number(1), divide(number(2), add(power, number(1)))), x);
  }

  /// The sine of an angle and `ahead` quarter turns. The two parts of pi/2 leave a rest that is right to a rounding of
  /// the angle.
  Value sine(Value x, int64_t ahead) {
    Value n = roundEven(mul(x, 2 * std::numbers::inv_pi));
    Value r = fma(n, -1.5707963267948966, x);
    r = fma(n, -6.123233995736766e-17, r);
    Value square = mul(r, r);
    Value sin = mul(r, polynomial(square, inverseFactorials(1, 2, 8, -1)));
    Value cos = polynomial(square, inverseFactorials(0, 2, 9, -1));
    Value quarter = arith::AddIOp::create(*this, toInteger(n), integer(ahead));
    return select(less(absolute(x), infinity), ofQuarter(quarter, sin, cos), number(nan));
  }

  Value power(Value x, Value y) { return signOfPower(x, y, exp(mul(y, log(absolute(x))))); }

  /// The rest of a division, with the sign of `x`. Where the quotient was rounded up to a whole number, one is too
  /// many.
  Value remainder(Value x, Value y) {
    Value size = absolute(x), divisor = absolute(y);
    Value rest = fma(negate(truncate(divide(size, divisor))), divisor, size);
    return copySign(select(less(rest, 0), add(rest, divisor), rest), x);
  }

  Value expand(Operation *op) {
    Value x = op->getOperand(0);
    return llvm::TypeSwitch<Operation *, Value>(op)
        .Case([&](math::ExpOp) { return exp(x); })
        .Case([&](math::Exp2Op) { return exp2(x); })
        .Case([&](math::LogOp) { return log(x); })
        .Case([&](math::Log1pOp) { return log1p(x); })
        .Case([&](math::SqrtOp) { return LLVM::SqrtOp::create(*this, x); })
        .Case([&](math::RsqrtOp) { return divide(number(1), LLVM::SqrtOp::create(*this, x)); })
        .Case([&](math::AbsFOp) { return absolute(x); })
        .Case([&](math::TanhOp) { return tanh(x); })
        .Case([&](math::SinOp) { return sine(x, 0); })
        .Case([&](math::CosOp) { return sine(x, 1); })
        .Case([&](math::FloorOp) { return floor(x); })
        .Case([&](math::RoundEvenOp) { return roundEven(x); })
        .Case([&](math::PowFOp op) { return power(x, op.getRhs()); })
        .Case([&](arith::RemFOp op) { return remainder(x, op.getRhs()); })
        .Default(Value());
  }

private:
  /// The instruction rounds correctly.
  Value divide(Value a, Value b) { return LLVM::FDivOp::create(*this, a, b); }
  /// `2^n` for whole `n` whose power is a normal number.
  Value powerOfTwo(Value n) {
    Value biased = arith::AddIOp::create(*this, toInteger(n), integer(1023));
    return asNumber(arith::ShLIOp::create(*this, biased, integer(52)));
  }
};

/// A bf16 number is the upper half of the fp32 number that it is: a shift takes the place of a conversion, or where it
/// is the upper half of a word, which neighbours share, a mask.
Value widened(OpBuilder &builder, Location location, Value x) {
  Type single = builder.getF32Type(), word = builder.getI32Type();
  if (!x.getType().isBF16())
    return arith::ExtFOp::create(builder, location, single, x);
  auto integer = [&](int64_t number) { return arith::ConstantIntOp::create(builder, location, word, number); };
  auto asSingle = [&](Value bits) { return arith::BitcastOp::create(builder, location, single, bits); };
  auto element = x.getDefiningOp<LLVM::ExtractElementOp>();
  std::optional<int64_t> place = element ? getConstantIntValue(element.getPosition()) : std::nullopt;
  int64_t elements = element ? cast<VectorType>(element.getVector().getType()).getNumElements() : 0;
  if (!place || elements % 2) {
    Value bits = arith::BitcastOp::create(builder, location, builder.getI16Type(), x);
    Value wide = arith::ExtUIOp::create(builder, location, word, bits);
    return asSingle(arith::ShLIOp::create(builder, location, wide, integer(16)));
  }
  Value words = LLVM::BitcastOp::create(builder, location, VectorType::get({elements / 2}, word), element.getVector());
  Value own = LLVM::ExtractElementOp::create(builder, location, words, integer(*place / 2));
  return asSingle(*place % 2 ? arith::AndIOp::create(builder, location, own, integer(-65536)).getResult()
                             : arith::ShLIOp::create(builder, location, own, integer(16)).getResult());
}

/// Numbers of 16 bits are computed with as fp32.
Value inSingle(Operation *op, Type type) {
  if (!type.isF32() && !type.isF16() && !type.isBF16())
    return nullptr;
  SingleMath math(op);
  if (!type.isF32())
    for (OpOperand &operand : op->getOpOperands())
      operand.set(widened(math, op->getLoc(), operand.get()));
  Value value = math.expand(op);
  return value && !type.isF32() ? arith::TruncFOp::create(math, type, value) : value;
}

struct ExpandDeviceMath : stretto::impl::ExpandDeviceMathBase<ExpandDeviceMath> {
  void runOnOperation() override {
    // From the last operation to the first: what an operand is computed by is still to be seen.
    WalkResult result = getOperation()->walk<WalkOrder::PostOrder, ReverseIterator>([](Operation *op) -> WalkResult {
      Type type = op->getNumResults() ? op->getResult(0).getType() : Type();
      if (isa<arith::ExtFOp>(op) && op->getOperand(0).getType().isBF16() && type.isF32()) {
        OpBuilder builder(op);
        op->replaceAllUsesWith(ValueRange{widened(builder, op->getLoc(), op->getOperand(0))});
        op->erase();
        return WalkResult::advance();
      }
      bool isDouble = type && type.isF64();
      // In fp64 a quotient is an instruction.
      bool isArithmetic = isDouble ? isa<arith::RemFOp>(op) : isa<arith::DivFOp>(op);
      if (!isa<math::MathDialect>(op->getDialect()) && !isArithmetic)
        return WalkResult::advance();
      Value value = isDouble ? DoubleMath(op).expand(op) : inSingle(op, type);
      if (!value)
        return op->emitOpError("of type ") << type << " has no form on a GPU";
      op->getResult(0).replaceAllUsesWith(value);
      op->erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
