//===- BaseTwoExponentials.cpp - Exponentials as powers of two ------------===//
//
// A GPU has an instruction for powers of two. What makes one of an exponential, a factor of log2 e, goes where it is
// free: into the constant that scales a product, and into numbers of rows or columns, of which there are few.
//
//===----------------------------------------------------------------------===//

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"
#include "passes/chunk/Scaled.h"
#include "runtime/Manifest.h"
#include <numbers>

namespace stretto {
#define GEN_PASS_DEF_BASETWOEXPONENTIALS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// A tile of fp32 times log2 e, in its own factor if it has one.
Value inUnitsOfLog2(PatternRewriter &rewriter, Location location, Value tile) {
  double factor = std::numbers::log2e;
  if (std::optional<Scaled> scaled = Scaled::of(tile)) {
    factor *= scaled->factor.getValueAsDouble();
    tile = scaled->tile;
  }
  return Scaled::make(rewriter, location, tile, APFloat(static_cast<float>(factor)));
}

/// The numbers that a tile repeats, of its rows or columns.
chunk::BroadcastOp repeatedNumbers(Value tile) {
  auto repeated = tile.getDefiningOp<chunk::BroadcastOp>();
  return repeated && cast<RankedTensorType>(repeated.getOperand().getType()).getRank() == 1 ? repeated
                                                                                            : chunk::BroadcastOp();
}

/// Whether threads have room for numbers once more, scaled: they have a few rows each, and many columns.
bool mayBeScaled(chunk::BroadcastOp repeated) {
  return repeated.getAlong() == chunk::Side::Rows || (repeated->hasOneUse() && repeated.getOperand().hasOneUse());
}

/// `exp(c x - y) = exp2((c log2 e) x - (log2 e) y)`, `y` numbers of rows or columns.
struct OfDifference : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::ExpOp op, PatternRewriter &rewriter) const override {
    auto difference = op.getOperand().getDefiningOp<arith::SubFOp>();
    if (!difference || !difference->hasOneUse() || !getElementTypeOrSelf(op.getType()).isF32())
      return failure();
    chunk::BroadcastOp repeated = repeatedNumbers(difference.getRhs());
    if (!repeated || !mayBeScaled(repeated) || repeatedNumbers(difference.getLhs()))
      return failure();
    Location location = op.getLoc();
    rewriter.setInsertionPoint(difference);
    Value numbers = inUnitsOfLog2(rewriter, location, repeated.getOperand());
    Value subtracted = chunk::BroadcastOp::create(rewriter, location, repeated.getType(), numbers, repeated.getAlong());
    Value scores = inUnitsOfLog2(rewriter, location, difference.getLhs());
    rewriter.setInsertionPoint(op);
    Value exponent = arith::SubFOp::create(rewriter, location, scores, subtracted);
    rewriter.replaceOpWithNewOp<math::Exp2Op>(op, exponent);
    return success();
  }
};

/// `max(c x) = c max(x)` where `c` is positive.
struct OfLargest : OpRewritePattern<chunk::ReduceOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(chunk::ReduceOp op, PatternRewriter &rewriter) const override {
    std::optional<Scaled> scaled = Scaled::of(op.getOperand());
    if (op.getKind() != chunk::Reduction::Max || !scaled || !(scaled->factor.getValueAsDouble() > 0))
      return failure();
    Value largest =
        chunk::ReduceOp::create(rewriter, op.getLoc(), op.getType(), op.getKind(), scaled->tile, op.getOver());
    rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), largest, scaled->factor.getValue()));
    return success();
  }
};

struct BaseTwoExponentials : stretto::impl::BaseTwoExponentialsBase<BaseTwoExponentials> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<OfLargest>(&getContext());
    // What rounding the numbers takes is little beside what rounding rows to 16 bits took.
    if (takesNarrowRows())
      patterns.add<OfDifference>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }

private:
  bool takesNarrowRows() {
    return llvm::any_of(getOperation().getBlock()->getArguments(), [](BlockArgument argument) {
      auto view = dyn_cast<ViewType>(argument.getType());
      return view && getElementTypeOrSelf(view.getTile()).getIntOrFloatBitWidth() == 16;
    });
  }
};
} // namespace
