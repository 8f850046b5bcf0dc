//===- Scalars.cpp - Elementwise operations on single numbers -------------===//

#include "dialect/stretto/interpreter/Scalars.h"
#include "dialect/stretto/StrettoDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

double interpreter::logAddExp(double a, double b) {
  double larger = std::fmax(a, b);
  if (std::isinf(larger) && !std::isunordered(a, b))
    return larger;
  return larger + std::log1p(std::exp(-std::abs(a - b)));
}

double interpreter::larger(double a, double b) { return std::isunordered(a, b) ? a + b : std::fmax(a, b); }

Unary interpreter::unaryOf(Operation *op) {
  return TypeSwitch<Operation *, Unary>(op)
      .Case([](arith::NegFOp) -> Unary { return [](double x) { return -x; }; })
      .Case([](math::ExpOp) -> Unary { return [](double x) { return std::exp(x); }; })
      .Case([](math::Exp2Op) -> Unary { return [](double x) { return std::exp2(x); }; })
      .Case([](math::LogOp) -> Unary { return [](double x) { return std::log(x); }; })
      .Case([](math::Log1pOp) -> Unary { return [](double x) { return std::log1p(x); }; })
      .Case([](math::SqrtOp) -> Unary { return [](double x) { return std::sqrt(x); }; })
      .Case([](math::RsqrtOp) -> Unary { return [](double x) { return 1 / std::sqrt(x); }; })
      .Case([](math::AbsFOp) -> Unary { return [](double x) { return std::abs(x); }; })
      .Case([](math::TanhOp) -> Unary { return [](double x) { return std::tanh(x); }; })
      .Case([](math::SinOp) -> Unary { return [](double x) { return std::sin(x); }; })
      .Case([](math::CosOp) -> Unary { return [](double x) { return std::cos(x); }; })
      .Case([](math::FloorOp) -> Unary { return [](double x) { return std::floor(x); }; })
      .Case([](math::RoundEvenOp) -> Unary { return [](double x) { return std::nearbyint(x); }; })
      .Case([](LogSigmoidOp) -> Unary {
        return [](double x) { return (x > 0 ? 0 : x) - std::log1p(std::exp(-std::abs(x))); };
      })
      .Case<StopGradientOp, arith::ExtFOp, arith::TruncFOp>([](auto) -> Unary { return [](double x) { return x; }; })
      .Default(nullptr);
}

static Binary comparisonOf(arith::CmpFPredicate predicate) {
  using P = arith::CmpFPredicate;
  switch (predicate) {
  case P::AlwaysFalse:
    return [](double, double) { return 0.0; };
  case P::OEQ:
    return [](double a, double b) { return double(a == b); };
  case P::OGT:
    return [](double a, double b) { return double(a > b); };
  case P::OGE:
    return [](double a, double b) { return double(a >= b); };
  case P::OLT:
    return [](double a, double b) { return double(a < b); };
  case P::OLE:
    return [](double a, double b) { return double(a <= b); };
  case P::ONE:
    return [](double a, double b) { return double(a < b || a > b); };
  case P::ORD:
    return [](double a, double b) { return double(!std::isunordered(a, b)); };
  case P::UEQ:
    return [](double a, double b) { return double(!(a < b || a > b)); };
  case P::UGT:
    return [](double a, double b) { return double(!(a <= b)); };
  case P::UGE:
    return [](double a, double b) { return double(!(a < b)); };
  case P::ULT:
    return [](double a, double b) { return double(!(a >= b)); };
  case P::ULE:
    return [](double a, double b) { return double(!(a > b)); };
  case P::UNE:
    return [](double a, double b) { return double(a != b); };
  case P::UNO:
    return [](double a, double b) { return double(std::isunordered(a, b)); };
  case P::AlwaysTrue:
    return [](double, double) { return 1.0; };
  }
  llvm_unreachable("every predicate has its comparison");
}

Binary interpreter::binaryOf(Operation *op) {
  return TypeSwitch<Operation *, Binary>(op)
      .Case([](arith::AddFOp) -> Binary { return [](double a, double b) { return a + b; }; })
      .Case([](arith::SubFOp) -> Binary { return [](double a, double b) { return a - b; }; })
      .Case([](arith::MulFOp) -> Binary { return [](double a, double b) { return a * b; }; })
      .Case([](arith::DivFOp) -> Binary { return [](double a, double b) { return a / b; }; })
      .Case([](arith::RemFOp) -> Binary { return [](double a, double b) { return std::fmod(a, b); }; })
      // A NaN on either side is the result.
      .Case([](arith::MaximumFOp) -> Binary {
        return [](double a, double b) { return std::isunordered(a, b) ? a + b : std::fmax(a, b); };
      })
      .Case([](arith::MinimumFOp) -> Binary {
        return [](double a, double b) { return std::isunordered(a, b) ? a + b : std::fmin(a, b); };
      })
      .Case([](math::PowFOp) -> Binary { return [](double a, double b) { return std::pow(a, b); }; })
      .Case([](arith::AndIOp) -> Binary { return [](double a, double b) { return double(a != 0 && b != 0); }; })
      .Case([](arith::OrIOp) -> Binary { return [](double a, double b) { return double(a != 0 || b != 0); }; })
      .Case([](arith::XOrIOp) -> Binary { return [](double a, double b) { return double((a != 0) != (b != 0)); }; })
      .Case([](arith::CmpFOp compare) { return comparisonOf(compare.getPredicate()); })
      .Default(nullptr);
}
