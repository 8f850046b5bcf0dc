//===- Signs.cpp - What is known of the sign of a row ---------------------===//

#include "dialect/stretto/Signs.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Arithmetic of signs
//===----------------------------------------------------------------------===//

static bool isNonPositive(Sign sign) { return sign == Sign::Zero || sign == Sign::NonPositive; }
static bool isNonNegative(Sign sign) { return sign == Sign::Zero || sign == Sign::NonNegative; }

static Sign signOfNumber(double number) {
  if (number == 0)
    return Sign::Zero;
  return number < 0 ? Sign::NonPositive : number > 0 ? Sign::NonNegative : Sign::Unknown;
}

static Sign negated(Sign sign) {
  if (sign == Sign::NonPositive)
    return Sign::NonNegative;
  return sign == Sign::NonNegative ? Sign::NonPositive : sign;
}

/// The sign of what may be either; also that of a sum of both.
static Sign either(Sign a, Sign b) {
  if (isNonPositive(a) && isNonPositive(b))
    return a == Sign::Zero ? b : Sign::NonPositive;
  return isNonNegative(a) && isNonNegative(b) ? Sign::NonNegative : Sign::Unknown;
}

static Sign product(Sign a, Sign b) {
  if (a == Sign::Zero || b == Sign::Zero)
    return Sign::Zero;
  if (a == Sign::Unknown || b == Sign::Unknown)
    return Sign::Unknown;
  return a == b ? Sign::NonNegative : Sign::NonPositive;
}

static Sign maximum(Sign a, Sign b) {
  if (isNonPositive(a) && isNonPositive(b))
    return either(a, b);
  return isNonNegative(a) || isNonNegative(b) ? Sign::NonNegative : Sign::Unknown;
}

static Sign minimum(Sign a, Sign b) { return negated(maximum(negated(a), negated(b))); }

//===----------------------------------------------------------------------===//
// Through operations
//===----------------------------------------------------------------------===//

static Sign signOfConstant(Attribute attribute) {
  if (auto number = dyn_cast<FloatAttr>(attribute))
    return signOfNumber(number.getValueAsDouble());
  auto numbers = dyn_cast<DenseFPElementsAttr>(attribute);
  if (!numbers)
    return Sign::Unknown;
  Sign sign = Sign::Zero;
  for (const APFloat &number : numbers)
    sign = either(sign, signOfNumber(number.convertToDouble()));
  return sign;
}

Signs::Signs(VariantOp variant) {
  // The body of a table comes before the table: its sign is that of what the body yields.
  variant.getBody().walk([&](Operation *op) {
    if (op->getNumResults() == 1)
      signs[op->getResult(0)] = ofResult(op);
  });
}

Sign Signs::of(Value value) const {
  // Positions, heads and channels, the arguments of a table's body, count from 0.
  if (isa<BlockArgument>(value) && isa<TableOp>(value.getParentBlock()->getParentOp()))
    return Sign::NonNegative;
  auto known = signs.find(value);
  return known == signs.end() ? Sign::Unknown : known->second;
}

Sign Signs::ofResult(Operation *op) const {
  Attribute constant;
  if (matchPattern(op, m_Constant(&constant)))
    return signOfConstant(constant);
  auto operand = [&](unsigned index) { return of(op->getOperand(index)); };
  return llvm::TypeSwitch<Operation *, Sign>(op)
      .Case([](ConstantOp op) { return signOfNumber(op.getValue().convertToDouble()); })
      .Case<math::ExpOp, math::Exp2Op, math::AbsFOp, math::SqrtOp, math::RsqrtOp, SoftmaxOp, PositionOp, SizeOp>(
          [](auto) { return Sign::NonNegative; })
      .Case([](LogSigmoidOp) { return Sign::NonPositive; })
      .Case<BroadcastOp, SliceOp, DelayOp, ReduceOp, StopGradientOp, math::TanhOp, math::Log1pOp>(
          [&](auto) { return operand(0); })
      .Case([&](ConcatOp op) {
        Sign sign = Sign::Zero;
        for (Value part : op.getOperands())
          sign = either(sign, of(part));
        return sign;
      })
      .Case([&](arith::NegFOp) { return negated(operand(0)); })
      .Case([&](arith::AddFOp) { return either(operand(0), operand(1)); })
      .Case([&](arith::SubFOp) { return either(operand(0), negated(operand(1))); })
      .Case<arith::MulFOp, arith::DivFOp>(
          [&](auto op) { return op.getLhs() == op.getRhs() ? Sign::NonNegative : product(operand(0), operand(1)); })
      .Case([&](arith::MaximumFOp) { return maximum(operand(0), operand(1)); })
      .Case([&](arith::MinimumFOp) { return minimum(operand(0), operand(1)); })
      .Case([&](arith::SelectOp) { return either(operand(1), operand(2)); })
      .Case([&](TableOp op) { return of(op.getBody().front().getTerminator()->getOperand(0)); })
      .Default([](Operation *) { return Sign::Unknown; });
}

//===----------------------------------------------------------------------===//
// Conditions on arguments
//===----------------------------------------------------------------------===//

/// Demands that `value` be of `sign`, NonPositive or NonNegative: the operations say so, or a condition on one argument
/// does. Returns whether either is the case.
static bool demand(const Signs &signs, Value value, Sign sign, DecayConditions &conditions) {
  while (true) {
    Sign known = signs.of(value);
    if (known == sign || known == Sign::Zero)
      return true;
    Operation *op = value.getDefiningOp();
    if (!op) {
      DecayConditions::Condition condition = {cast<BlockArgument>(value).getArgNumber(), sign};
      if (!llvm::is_contained(conditions.conditions, condition))
        conditions.conditions.push_back(condition);
      return true;
    }
    if (isa<BroadcastOp, StopGradientOp>(op)) {
      value = op->getOperand(0);
    } else if (isa<arith::NegFOp>(op)) {
      value = op->getOperand(0);
      sign = negated(sign);
    } else if (isa<arith::MulFOp, arith::DivFOp>(op)) {
      // The sign of one factor decides which sign the other must have.
      unsigned open = signs.of(op->getOperand(0)) == Sign::Unknown ? 0 : 1;
      Sign factor = signs.of(op->getOperand(1 - open));
      if (factor == Sign::Unknown)
        return false;
      value = op->getOperand(open);
      sign = product(sign, factor);
    } else {
      return false;
    }
  }
}

DecayConditions stretto::decayConditions(VariantOp variant) {
  Signs signs(variant);
  DecayConditions conditions;
  variant.getBody().walk([&](DecayOp decay) {
    if (decay.getForm() == DecayForm::Log)
      conditions.proven &= demand(signs, decay.getAmount(), Sign::NonPositive, conditions);
  });
  return conditions;
}
