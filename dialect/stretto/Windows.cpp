//===- Windows.cpp - The tokens that later tokens look back to ------------===//

#include "dialect/stretto/Windows.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

static std::optional<double> numberOf(Operation *op) {
  if (auto constant = dyn_cast<ConstantOp>(op))
    return constant.getValue().convertToDouble();
  auto constant = dyn_cast<arith::ConstantOp>(op);
  auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
  if (!splat || !isa<FloatType>(splat.getElementType()))
    return std::nullopt;
  return splat.getSplatValue<APFloat>().convertToDouble();
}

static TimeBounds scaled(TimeBounds x, double factor) {
  double a = x.lower * factor, b = x.upper * factor;
  return {x.slope * factor, std::min(a, b), std::max(a, b)};
}

static TimeBounds floorOf(TimeBounds x) {
  // Of an integer over n, at most (n - 1) / n is cut off, of others less than 1.
  double n = x.slope == 0 ? 0 : std::round(1 / x.slope);
  bool isFraction = n >= 1 && std::abs(n * x.slope - 1) < 1e-12 && x.lower == x.upper &&
                    std::abs(x.lower * n - std::round(x.lower * n)) < 1e-9;
  return {x.slope, x.lower - (isFraction ? (n - 1) / n : 1), x.upper};
}

std::optional<TimeBounds> stretto::boundsOf(Value time) {
  Operation *op = time.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (isa<PositionOp>(op))
    return TimeBounds{1, 0, 0};
  // An option that is not decided yet counts as 1: how many rows are kept depends on it, which ones does not.
  if (isa<OptionOp>(op))
    return TimeBounds{0, 1, 1};
  if (std::optional<double> number = numberOf(op))
    return TimeBounds{0, *number, *number};
  SmallVector<TimeBounds, 2> x;
  if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp, math::FloorOp, BroadcastOp>(op))
    return std::nullopt;
  for (Value operand : op->getOperands()) {
    std::optional<TimeBounds> bounds = boundsOf(operand);
    if (!bounds)
      return std::nullopt;
    x.push_back(*bounds);
  }
  auto isNumber = [](TimeBounds bounds) { return bounds.slope == 0 && bounds.lower == bounds.upper; };
  return llvm::TypeSwitch<Operation *, std::optional<TimeBounds>>(op)
      .Case<BroadcastOp>([&](auto) { return x[0]; })
      .Case<arith::NegFOp>([&](auto) { return scaled(x[0], -1); })
      .Case<math::FloorOp>([&](auto) { return floorOf(x[0]); })
      .Case<arith::AddFOp>(
          [&](auto) { return TimeBounds{x[0].slope + x[1].slope, x[0].lower + x[1].lower, x[0].upper + x[1].upper}; })
      .Case<arith::SubFOp>(
          [&](auto) { return TimeBounds{x[0].slope - x[1].slope, x[0].lower - x[1].upper, x[0].upper - x[1].lower}; })
      .Case<arith::MulFOp>([&](auto) -> std::optional<TimeBounds> {
        if (isNumber(x[0]))
          std::swap(x[0], x[1]);
        return isNumber(x[1]) ? std::optional(scaled(x[0], x[1].lower)) : std::nullopt;
      })
      .Case<arith::DivFOp>([&](auto) -> std::optional<TimeBounds> {
        return isNumber(x[1]) && x[1].lower != 0 ? std::optional(scaled(x[0], 1 / x[1].lower)) : std::nullopt;
      });
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

namespace {

struct Collector {
  /// Tokens from the first one that is looked back to up to the token itself, which takes the place of one that no
  /// later token looks back to, nor the token itself.
  LogicalResult lookBack(Value first) {
    std::optional<TimeBounds> bounds = boundsOf(first);
    constexpr double maximum = 1 << 20;
    if (!bounds || std::abs(bounds->slope - 1) > 1e-9 || !(bounds->lower > -maximum))
      return failure();
    length = std::max(length, static_cast<int64_t>(std::ceil(-bounds->lower - 1e-6)) + 1);
    return success();
  }

  /// Keeps the arguments that a row is computed from.
  LogicalResult keep(Value row) {
    SetVector<Operation *> makers;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.omitBlockArguments = true;
    if (Operation *maker = row.getDefiningOp(); maker && failed(getBackwardSlice(maker, &makers, options)))
      return failure();
    auto keepArgument = [&](Value value) {
      if (isa<BlockArgument>(value) && isRow(value.getType()))
        rows.insert(value);
    };
    keepArgument(row);
    for (Operation *maker : makers) {
      if (isa<StateOp, WriteOp, DecayOp, ReadOp, LookbackOp, ScanOp, ConvOp, DelayOp>(maker))
        return failure();
      llvm::for_each(maker->getOperands(), keepArgument);
    }
    return success();
  }

  int64_t length = 0;
  SetVector<Value> rows;
};

} // namespace

std::optional<std::vector<Window>> stretto::deriveWindows(VariantOp variant) {
  Collector collector;
  WalkResult walked = variant.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
    // What looks ahead meets tokens that are still to come.
    if (auto fold = dyn_cast<LookbackOp>(op); fold && fold.getReverse())
      return WalkResult::skip();
    if (auto fold = dyn_cast<LookbackOp>(op)) {
      if (fold.getToEnd() || failed(collector.lookBack(fold.getFirst())))
        return failure();
    } else if (auto past = dyn_cast<PastOp>(op)) {
      return collector.keep(past.getOperand());
    } else if (auto read = dyn_cast<ReadOp>(op); read && read.getAt()) {
      if (failed(collector.lookBack(read.getAt())))
        return failure();
      for (Operation *state = read.getState().getDefiningOp(); auto write = dyn_cast<WriteOp>(state);
           state = write.getState().getDefiningOp())
        if (failed(collector.keep(write.getFirst())) || failed(collector.keep(write.getSecond())))
          return failure();
    }
    return success();
  });
  if (walked.wasInterrupted())
    return std::nullopt;
  std::vector<Window> windows;
  for (Value row : collector.rows) {
    unsigned argument = cast<BlockArgument>(row).getArgNumber();
    windows.push_back(
        {variant.getArgName(argument).str() + "_window", argument, std::max<int64_t>(collector.length, 1)});
  }
  return windows;
}
