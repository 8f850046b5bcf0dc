//===- SumTaps.cpp - The gradient of a convolution's taps at once ---------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "passes/Passes.h"

namespace stretto {
#define GEN_PASS_DEF_SUMTAPS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// A sum over tokens of a cotangent and of rows so many tokens earlier, in one column of a matrix.
struct TapSum {
  Value weights, rows, tail;
  int64_t distance, column;
};

/// The columns of a matrix that is put together from constants, if one is of ones and others of zeros: that one.
std::optional<int64_t> columnOfOnes(Value matrix) {
  auto concat = matrix.getDefiningOp<chunk::ConcatOp>();
  if (!concat)
    return std::nullopt;
  std::optional<int64_t> found;
  int64_t column = 0;
  for (Value part : concat.getOperands()) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(part.getType()).getShape();
    int64_t columns = shape.size() > 1 ? shape[1] : 1;
    if (matchPattern(part, m_OneFloat())) {
      if (found || columns != 1)
        return std::nullopt;
      found = column;
    } else if (!matchPattern(part, m_AnyZeroFloat())) {
      return std::nullopt;
    }
    column += columns;
  }
  return found;
}

std::optional<TapSum> tapSumOf(chunk::DotOp dot) {
  std::optional<int64_t> column = columnOfOnes(dot.getRight());
  auto product = dot.getLeft().getDefiningOp<arith::MulFOp>();
  if (!column || !dot.getTransposeLeft() || dot.getTransposeRight() || !product || !product->hasOneUse())
    return std::nullopt;
  if (auto delay = product.getRhs().getDefiningOp<chunk::DelayOp>())
    return TapSum{product.getLhs(), delay.getOperand(), delay.getTail(), static_cast<int64_t>(delay.getBy()), *column};
  return TapSum{product.getLhs(), product.getRhs(), Value(), 0, *column};
}

struct SumTaps : stretto::impl::SumTapsBase<SumTaps> {
  void runOnOperation() override {
    for (chunk::DotOp last : llvm::to_vector(getOperation().getBlock()->getOps<chunk::DotOp>()))
      if (!isAdded(last))
        sumFrom(last);
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*getOperation().getBlock())))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  /// Whether another tap's sum goes on from it.
  static bool isAdded(chunk::DotOp dot) {
    auto next = dot->hasOneUse() ? dyn_cast<chunk::DotOp>(*dot->user_begin()) : chunk::DotOp();
    return next && next.getAddend() == dot.getResult();
  }

  static chunk::DotOp addendOf(chunk::DotOp dot) {
    return dot.getAddend() ? dot.getAddend().getDefiningOp<chunk::DotOp>() : chunk::DotOp();
  }

  /// From the last product of several on, which each begin with the one before.
  void sumFrom(chunk::DotOp last) {
    auto taps = cast<RankedTensorType>(last.getType());
    int64_t count = taps.getDimSize(taps.getRank() - 1);
    SmallVector<chunk::DotOp> dots;
    SmallVector<TapSum> sums;
    for (auto dot = last; dot && (dot == last || isAdded(dot)); dot = addendOf(dot)) {
      std::optional<TapSum> sum = tapSumOf(dot);
      if (!sum || sum->column != count - 1 - sum->distance)
        break;
      dots.push_back(dot);
      sums.push_back(*sum);
    }
    if (static_cast<int64_t>(sums.size()) != count || count < 2)
      return;
    // One of each distance, of the same rows and cotangents.
    llvm::sort(sums, [](const TapSum &a, const TapSum &b) { return a.distance < b.distance; });
    Value tail = sums.back().tail;
    for (auto [distance, sum] : llvm::enumerate(sums))
      if (sum.distance != static_cast<int64_t>(distance) || sum.weights != sums.front().weights ||
          sum.rows != sums.front().rows || (distance && sum.tail != tail))
        return;
    OpBuilder builder(last);
    Value all = chunk::ConvTapsOp::create(builder, last.getLoc(), taps, sums.front().weights, sums.front().rows, tail);
    if (Value before = dots.back().getAddend())
      all = arith::AddFOp::create(builder, last.getLoc(), before, all);
    last.getResult().replaceAllUsesWith(all);
    for (chunk::DotOp dot : dots) {
      Operation *product = dot.getLeft().getDefiningOp();
      dot.erase();
      product->erase();
    }
  }
};

} // namespace
