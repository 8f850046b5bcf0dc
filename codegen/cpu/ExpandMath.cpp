//===- ExpandMath.cpp - Elementary functions on vectors -------------------===//
//
// Exponentials, logarithms and the hyperbolic tangent as polynomials on whole vectors, right for every input:
// infinities, NaN, results that overflow or are denormal. What is left goes to the C library, one lane at a time.
//
//===----------------------------------------------------------------------===//

#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"

using namespace mlir;

namespace stretto {
#define GEN_PASS_DEF_EXPANDMATH
#include "passes/Passes.h.inc"
} // namespace stretto

namespace {

/// Builds expressions on vectors of one type.
class Vectors : public ImplicitLocOpBuilder {
public:
  Vectors(PatternRewriter &rewriter, Location location, VectorType type)
      : ImplicitLocOpBuilder(location, rewriter), type(type) {}

  VectorType type;
  bool isDouble() const { return type.getElementType().isF64(); }
  VectorType integers() { return type.clone(isDouble() ? getI64Type() : getI32Type()); }

  Value number(double value) {
    return arith::ConstantOp::create(*this, DenseElementsAttr::get(type, FloatAttr::get(type.getElementType(), value)));
  }
  Value integer(int64_t value) {
    VectorType integerType = integers();
    return arith::ConstantOp::create(
        *this, DenseElementsAttr::get(integerType, IntegerAttr::get(integerType.getElementType(), value)));
  }
  Value fma(Value a, Value b, Value c) { return math::FmaOp::create(*this, a, b, c); }
  Value mul(Value a, Value b) { return arith::MulFOp::create(*this, a, b); }
  Value add(Value a, Value b) { return arith::AddFOp::create(*this, a, b); }
  Value sub(Value a, Value b) { return arith::SubFOp::create(*this, a, b); }
  Value div(Value a, Value b) { return arith::DivFOp::create(*this, a, b); }
  Value select(arith::CmpFPredicate predicate, Value a, Value b, Value then, Value otherwise) {
    return arith::SelectOp::create(*this, arith::CmpFOp::create(*this, predicate, a, b), then, otherwise);
  }
  /// `c[0] + c[1] x + c[2] x^2 + ...`
  Value polynomial(Value x, ArrayRef<double> coefficients) {
    Value result = number(coefficients.back());
    for (double coefficient : llvm::reverse(coefficients.drop_back()))
      result = fma(result, x, number(coefficient));
    return result;
  }
  Value bits(Value value) { return arith::BitcastOp::create(*this, integers(), value); }
  Value fromBits(Value value) { return arith::BitcastOp::create(*this, type, value); }
  /// `2^n` for whole `n` whose power is a normal number.
  Value powerOfTwo(Value n) {
    Value exponent = arith::FPToSIOp::create(*this, integers(), n);
    Value biased = arith::AddIOp::create(*this, exponent, integer(isDouble() ? 1023 : 127));
    return fromBits(arith::ShLIOp::create(*this, biased, integer(isDouble() ? 52 : 23)));
  }
};

/// The vectors that are expanded: whole registers of fp32 or fp64.
VectorType expandedType(Operation *op) {
  auto type = dyn_cast<VectorType>(op->getResult(0).getType());
  if (!type || type.getRank() != 1 || !(type.getElementType().isF32() || type.getElementType().isF64()))
    return nullptr;
  return type;
}

//===----------------------------------------------------------------------===//
// Exponentials
//
// e^x = 2^n e^r with n = round(x / log 2) and |r| <= log(2) / 2, and a polynomial for e^r. log 2 is subtracted in two
// parts, the first of few enough digits that n times it is exact.
//===----------------------------------------------------------------------===//

/// `p * 2^n` for whole `n`.
Value scale(Vectors &b, Value p, Value n, bool scalef) {
  int64_t width = b.type.getNumElements();
  if (scalef && width * b.type.getElementTypeBitWidth() == 512) {
    Value all = arith::ConstantOp::create(b, b.getIntegerAttr(b.getIntegerType(width), -1));
    Value currentRounding = arith::ConstantOp::create(b, b.getI32IntegerAttr(4));
    return x86vector::MaskScaleFOp::create(b, b.type, p, n, p, all, currentRounding);
  }
  // In two steps, so that neither power overflows and a denormal result is rounded once.
  double limit = b.isDouble() ? 2100 : 300;
  n = b.select(arith::CmpFPredicate::OLT, n, b.number(limit), n, b.number(limit)); // also for NaN
  n = b.select(arith::CmpFPredicate::OGT, n, b.number(-limit), n, b.number(-limit));
  Value half = math::FloorOp::create(b, b.mul(n, b.number(0.5)));
  Value quarter = math::FloorOp::create(b, b.mul(half, b.number(0.5)));
  Value first = b.powerOfTwo(quarter), second = b.powerOfTwo(b.sub(half, quarter)), rest = b.powerOfTwo(b.sub(n, half));
  return b.mul(b.mul(b.mul(p, first), second), rest);
}

/// `e^r - 1` for `|r| <= log(2) / 2`.
Value exponentialOfRest(Vectors &b, Value r) {
  Value r2 = b.mul(r, r), p;
  if (b.isDouble()) {
    SmallVector<double> coefficients;
    double factorial = 1;
    for (int i = 2; i <= 13; ++i)
      coefficients.push_back(1 / (factorial *= i));
    p = b.polynomial(r, coefficients);
  } else {
    p = b.polynomial(
        r, {5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4});
  }
  return b.fma(p, r2, r);
}

/// Infinities and what is beyond every result, which `x - n log 2` does not survive.
Value limitExponent(Vectors &b, Value x, double limit) {
  x = b.select(arith::CmpFPredicate::OGT, x, b.number(limit), b.number(limit), x); // keeps NaN
  return b.select(arith::CmpFPredicate::OLT, x, b.number(-limit), b.number(-limit), x);
}

/// Whole `n` and `r` with `x = n log 2 + r`.
std::pair<Value, Value> reduce(Vectors &b, Value x) {
  x = limitExponent(b, x, b.isDouble() ? 800 : 110);
  Value n = math::RoundEvenOp::create(b, b.mul(x, b.number(1.4426950408889634)));
  Value r = b.fma(n, b.number(b.isDouble() ? -6.93147180369123816490e-01 : -0.693359375), x);
  return {n, b.fma(n, b.number(b.isDouble() ? -1.90821492927058770002e-10 : 2.12194440e-4), r)};
}

struct ExpandExp : OpRewritePattern<math::ExpOp> {
  ExpandExp(MLIRContext *context, bool scalef) : OpRewritePattern(context), scalef(scalef) {}

  LogicalResult matchAndRewrite(math::ExpOp op, PatternRewriter &rewriter) const override {
    VectorType type = expandedType(op);
    if (!type)
      return failure();
    Vectors b(rewriter, op.getLoc(), type);
    auto [n, r] = reduce(b, op.getOperand());
    rewriter.replaceOp(op, scale(b, b.add(exponentialOfRest(b, r), b.number(1.0)), n, scalef));
    return success();
  }
  bool scalef;
};

/// `e^x - 1 = 2^n (e^r - 1) + (2^n - 1)`: near 0, where n is 0, nothing is lost.
struct ExpandExpM1 : OpRewritePattern<math::ExpM1Op> {
  ExpandExpM1(MLIRContext *context, bool scalef) : OpRewritePattern(context), scalef(scalef) {}

  LogicalResult matchAndRewrite(math::ExpM1Op op, PatternRewriter &rewriter) const override {
    VectorType type = expandedType(op);
    if (!type)
      return failure();
    Vectors b(rewriter, op.getLoc(), type);
    auto [n, r] = reduce(b, op.getOperand());
    Value one = b.number(1.0), power = scale(b, one, n, scalef);
    rewriter.replaceOp(op, b.add(scale(b, exponentialOfRest(b, r), n, scalef), b.sub(power, one)));
    return success();
  }
  bool scalef;
};

struct ExpandExp2 : OpRewritePattern<math::Exp2Op> {
  ExpandExp2(MLIRContext *context, bool scalef) : OpRewritePattern(context), scalef(scalef) {}

  LogicalResult matchAndRewrite(math::Exp2Op op, PatternRewriter &rewriter) const override {
    VectorType type = expandedType(op);
    if (!type)
      return failure();
    Vectors b(rewriter, op.getLoc(), type);
    Value x = limitExponent(b, op.getOperand(), b.isDouble() ? 1200 : 160);
    Value n = math::RoundEvenOp::create(b, x);
    Value r = b.mul(b.sub(x, n), b.number(0.6931471805599453));
    rewriter.replaceOp(op, scale(b, b.add(exponentialOfRest(b, r), b.number(1.0)), n, scalef));
    return success();
  }
  bool scalef;
};

/// `tanh |x| = (e^2|x| - 1) / (e^2|x| + 1)`.
struct ExpandTanh : OpRewritePattern<math::TanhOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::TanhOp op, PatternRewriter &rewriter) const override {
    VectorType type = expandedType(op);
    if (!type)
      return failure();
    Vectors b(rewriter, op.getLoc(), type);
    Value x = op.getOperand(), twice = math::AbsFOp::create(b, b.mul(x, b.number(2)));
    // From here on it is 1.
    Value power = math::ExpM1Op::create(b, limitExponent(b, twice, 50));
    Value result = b.div(power, b.add(power, b.number(2)));
    rewriter.replaceOp(op, math::CopySignOp::create(b, result, x));
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Logarithms
//===----------------------------------------------------------------------===//

/// `x = 2^e (1 + f)` with 1 + f in [1/sqrt 2, sqrt 2), for normal fp32: the bits of e and those of 1 + f.
std::pair<Value, Value> splitExponent(Vectors &b, Value x) {
  // With 1/sqrt 2 subtracted from the bits, the exponent is that of a fraction in this range.
  constexpr int64_t rootHalf = 0x3f3504f3;
  Value moved = arith::SubIOp::create(b, b.bits(x), b.integer(rootHalf));
  Value fraction = arith::AndIOp::create(b, moved, b.integer(0x7fffff));
  return {arith::ShRSIOp::create(b, moved, b.integer(23)), arith::AddIOp::create(b, fraction, b.integer(rootHalf))};
}

/// `e log 2 + log(1 + f)`.
Value logarithmOfParts(Vectors &b, Value e, Value f) {
  // log(1 + f) = f - f^2/2 + f^3 P(f) (the coefficients are those of Cephes' logf).
  Value f2 = b.mul(f, f);
  Value p = b.polynomial(f, {3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1,
                             -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2});
  Value y = b.mul(b.mul(f, f2), p);
  y = b.fma(e, b.number(-2.12194440e-4), y);
  y = b.fma(f2, b.number(-0.5), y);
  return b.fma(e, b.number(0.693359375), b.add(f, y));
}

/// `result`, but infinity where `x` is, -infinity where it is `zero`, and NaN below that and for NaN.
Value completeLogarithm(Vectors &b, Value x, double zero, Value result) {
  double infinity = std::numeric_limits<double>::infinity();
  result = b.select(arith::CmpFPredicate::OEQ, x, b.number(infinity), x, result);
  result = b.select(arith::CmpFPredicate::OEQ, x, b.number(zero), b.number(-infinity), result);
  Value isNumber = arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, x, b.number(zero));
  return arith::SelectOp::create(b, isNumber, result, b.number(std::numeric_limits<double>::quiet_NaN()));
}

struct ExpandLog : OpRewritePattern<math::LogOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::LogOp op, PatternRewriter &rewriter) const override {
    VectorType type = expandedType(op);
    if (!type || !type.getElementType().isF32())
      return failure();
    Vectors b(rewriter, op.getLoc(), type);
    // Denormal numbers are made normal first.
    Value x = op.getOperand(), zero = b.number(0);
    Value isDenormal = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, b.number(0x1p-126));
    Value normal = arith::SelectOp::create(b, isDenormal, b.mul(x, b.number(0x1p23)), x);
    Value shift = arith::SelectOp::create(b, isDenormal, b.number(23), zero);
    auto [exponent, fraction] = splitExponent(b, normal);
    Value e = b.sub(arith::SIToFPOp::create(b, b.type, exponent), shift);
    Value f = b.sub(b.fromBits(fraction), b.number(1));
    rewriter.replaceOp(op, completeLogarithm(b, x, 0, logarithmOfParts(b, e, f)));
    return success();
  }
};

/// `log(1 + x)`, where 1 + x rounded would lose the digits of a small x.
struct ExpandLog1p : OpRewritePattern<math::Log1pOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::Log1pOp op, PatternRewriter &rewriter) const override {
    VectorType type = expandedType(op);
    if (!type)
      return failure();
    Vectors b(rewriter, op.getLoc(), type);
    rewriter.replaceOp(op, b.isDouble() ? byQuotient(b, op.getOperand()) : byParts(b, op.getOperand()));
    return success();
  }

  /// With u = 1 + x rounded, log(u) * x / (u - 1) undoes the rounding.
  static Value byQuotient(Vectors &b, Value x) {
    Value u = b.add(x, b.number(1.0)), difference = b.sub(u, b.number(1.0));
    Value log = math::LogOp::create(b, u);
    Value result = b.mul(log, b.div(x, difference));
    result = b.select(arith::CmpFPredicate::OEQ, difference, b.number(0.0), x, result);
    // At 0, infinity and beyond, the quotient means nothing.
    result = b.select(arith::CmpFPredicate::OEQ, u, b.number(0.0), log, result);
    return b.select(arith::CmpFPredicate::OEQ, u, b.number(std::numeric_limits<double>::infinity()), u, result);
  }

  /// 1 + x = 2^e (1 + f), where e is that of 1 + x rounded, and f = 2^-e x + (2^-e - 1) is not.
  static Value byParts(Vectors &b, Value x) {
    Value one = b.number(1.0), quarter = b.number(0.25);
    Value exponent = splitExponent(b, b.add(x, one)).first;
    // 2^(2 - e) is a normal number for every e, 2^-e is not.
    Value biased = arith::SubIOp::create(b, b.integer(127 + 2), exponent);
    Value power = b.fromBits(arith::ShLIOp::create(b, biased, b.integer(23)));
    Value f = b.fma(b.mul(x, quarter), power, b.fma(power, quarter, b.number(-1.0)));
    Value result = logarithmOfParts(b, arith::SIToFPOp::create(b, b.type, exponent), f);
    // So small that x itself is the result, denormal numbers among them.
    Value isSmall = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, math::AbsFOp::create(b, x), b.number(0x1p-40));
    return completeLogarithm(b, x, -1, arith::SelectOp::create(b, isSmall, x, result));
  }
};

/// A quotient by a power of two is a product, exactly.
struct DivideByPowerOfTwo : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::DivFOp op, PatternRewriter &rewriter) const override {
    SplatElementsAttr divisor;
    APFloat inverse(0.0);
    if (!expandedType(op) || !matchPattern(op.getRhs(), m_Constant(&divisor)) ||
        !divisor.getSplatValue<APFloat>().getExactInverse(&inverse))
      return failure();
    Value factor = arith::ConstantOp::create(rewriter, op.getLoc(), DenseElementsAttr::get(divisor.getType(), inverse));
    rewriter.replaceOpWithNewOp<arith::MulFOp>(op, op.getLhs(), factor);
    return success();
  }
};

/// A register of fp32 numbers, rounded to bf16 by one instruction.
struct RoundToBf16 : OpRewritePattern<arith::TruncFOp> {
  RoundToBf16(MLIRContext *context) : OpRewritePattern(context, /*benefit=*/2) {}
  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    auto from = dyn_cast<VectorType>(op.getIn().getType()), to = dyn_cast<VectorType>(op.getOut().getType());
    if (!from || !from.getElementType().isF32() || !to.getElementType().isBF16() || from.getShape() != ArrayRef{16L})
      return failure();
    rewriter.replaceOpWithNewOp<x86vector::CvtPackedF32ToBF16Op>(op, to, op.getIn());
    return success();
  }
};

struct ExpandMath : stretto::impl::ExpandMathBase<ExpandMath> {
  using ExpandMathBase::ExpandMathBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, math::MathDialect, vector::VectorDialect, x86vector::X86VectorDialect>();
  }

  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ExpandExp, ExpandExp2, ExpandExpM1>(&getContext(), scalef);
    patterns.add<ExpandTanh, ExpandLog, ExpandLog1p, DivideByPowerOfTwo>(&getContext());
    arith::populateExpandBFloat16Patterns(patterns);
    if (bf16)
      patterns.add<RoundToBf16>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
