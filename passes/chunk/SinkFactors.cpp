//===- SinkFactors.cpp - Constant factors behind products -----------------===//

#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"
#include "passes/chunk/InputType.h"
#include "passes/chunk/Scaled.h"

namespace stretto {
#define GEN_PASS_DEF_SINKFACTORS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// Whether products take a tile as it is: it came in their operands' type, which rounds nothing.
bool isInput(Value tile) { return isa<BlockArgument>(tile) || tile.getDefiningOp<arith::ExtFOp>(); }

/// `dot(c x, y) = c dot(x, y)`, where rows of an input then need not be scaled, rounded and stored again.
struct OfInputs : OpRewritePattern<chunk::DotOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(chunk::DotOp op, PatternRewriter &rewriter) const override {
    if (op.getAddend())
      return failure();
    for (OpOperand *operand : {&op.getLeftMutable(), &op.getRightMutable()}) {
      std::optional<Scaled> scaled = Scaled::of(operand->get());
      if (!scaled || !isInput(scaled->tile))
        continue;
      auto product = cast<chunk::DotOp>(rewriter.clone(*op));
      product->setOperand(operand->getOperandNumber(), scaled->tile);
      rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), product.getResult(), scaled->factor.getValue()));
      return success();
    }
    return failure();
  }
};

/// `dot(c x, y) + c z = c (dot(x, y) + z)`.
struct OfSums : OpRewritePattern<chunk::DotOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(chunk::DotOp op, PatternRewriter &rewriter) const override {
    std::optional<Scaled> left = Scaled::of(op.getLeft()), addend;
    if (op.getAddend())
      addend = Scaled::of(op.getAddend());
    if (!left || !addend || left->factor != addend->factor)
      return failure();
    auto product = chunk::DotOp::create(rewriter, op.getLoc(), op.getType(), left->tile, op.getRight(), addend->tile,
                                        op.getTransposeLeft(), op.getTransposeRight());
    rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), product, left->factor.getValue()));
    return success();
  }
};

/// `mask(c x) = c mask(x)`.
struct OfCausal : OpRewritePattern<chunk::CausalOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(chunk::CausalOp op, PatternRewriter &rewriter) const override {
    std::optional<Scaled> scaled = Scaled::of(op.getOperand());
    if (!scaled)
      return failure();
    Value masked = chunk::CausalOp::create(rewriter, op.getLoc(), op.getType(), scaled->tile, op.getStrict());
    rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), masked, scaled->factor.getValue()));
    return success();
  }
};

/// `(c x) y = c (x y)`, unless `y` is a constant or others ask for `c x`, each of which would be scaled by itself.
struct OfProducts : OpRewritePattern<arith::MulFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::MulFOp op, PatternRewriter &rewriter) const override {
    if (Scaled::of(op.getResult()))
      return failure();
    for (auto [operand, other] : {std::pair(op.getLhs(), op.getRhs()), {op.getRhs(), op.getLhs()}}) {
      std::optional<Scaled> scaled = Scaled::of(operand);
      if (!scaled || !operand.hasOneUse() || !scaled->tile.getDefiningOp() || isInput(scaled->tile))
        continue;
      Value product = arith::MulFOp::create(rewriter, op.getLoc(), scaled->tile, other);
      rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), product, scaled->factor.getValue()));
      return success();
    }
    return failure();
  }
};

/// `sum_j w_j (c x_j) = c sum_j w_j x_j` in a look-back, which then takes rows of an input where they lie.
struct OfLookbacks : OpRewritePattern<chunk::LookbackOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(chunk::LookbackOp op, PatternRewriter &rewriter) const override {
    if (op.getFold() != chunk::Fold::Sum)
      return failure();
    chunk::ContributeOp contribution = op.getContribution();
    for (OpResult sum : op->getOpResults()) {
      OpOperand &rows = contribution.getGivenMutable()[2 * sum.getResultNumber() + 1];
      std::optional<Scaled> scaled = Scaled::of(rows.get());
      if (!scaled || !isInput(scaled->tile))
        continue;
      rewriter.modifyOpInPlace(contribution, [&] { rows.set(scaled->tile); });
      rewriter.setInsertionPointAfter(op);
      Value whole = Scaled::make(rewriter, op.getLoc(), sum, scaled->factor.getValue());
      rewriter.replaceAllUsesExcept(sum, whole, whole.getDefiningOp());
      return success();
    }
    return failure();
  }
};

/// `c x + c y = c (x + y)`.
struct OfTotals : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::AddFOp op, PatternRewriter &rewriter) const override {
    std::optional<Scaled> left = Scaled::of(op.getLhs()), right = Scaled::of(op.getRhs());
    if (!left || !right || left->factor != right->factor || !op.getLhs().hasOneUse() || !op.getRhs().hasOneUse())
      return failure();
    Value total = arith::AddFOp::create(rewriter, op.getLoc(), left->tile, right->tile);
    rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), total, left->factor.getValue()));
    return success();
  }
};

struct SinkFactors : stretto::impl::SinkFactorsBase<SinkFactors> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<OfInputs, OfLookbacks, OfTotals>(&getContext());
    // Scores that are not scaled yet may be too large for fp16.
    if (!inputTypeOf(getOperation()).isF16())
      patterns.add<OfSums, OfCausal, OfProducts>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
