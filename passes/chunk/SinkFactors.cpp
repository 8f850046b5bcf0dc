//===- SinkFactors.cpp - Constant factors behind products -----------------===//

#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"
#include "passes/chunk/InputType.h"

namespace stretto {
#define GEN_PASS_DEF_SINKFACTORS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// A tile as a constant number times another one.
struct Scaled {
  Value tile;
  FloatAttr factor;

  static std::optional<Scaled> of(Value value) {
    auto product = value.getDefiningOp<arith::MulFOp>();
    if (!product || !isa<RankedTensorType>(value.getType()))
      return std::nullopt;
    for (auto [constant, tile] :
         {std::pair(product.getLhs(), product.getRhs()), {product.getRhs(), product.getLhs()}}) {
      SplatElementsAttr splat;
      if (matchPattern(constant, m_Constant(&splat)))
        return Scaled{tile, splat.getSplatValue<FloatAttr>()};
    }
    return std::nullopt;
  }

  static Value make(PatternRewriter &rewriter, Location location, Value tile, FloatAttr factor) {
    auto splat = DenseElementsAttr::get(cast<RankedTensorType>(tile.getType()), factor.getValue());
    Value constant = arith::ConstantOp::create(rewriter, location, splat);
    return arith::MulFOp::create(rewriter, location, tile, constant);
  }
};

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
      rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), product.getResult(), scaled->factor));
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
    rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), product, left->factor));
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
    rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), masked, scaled->factor));
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
      rewriter.replaceOp(op, Scaled::make(rewriter, op.getLoc(), product, scaled->factor));
      return success();
    }
    return failure();
  }
};

struct SinkFactors : stretto::impl::SinkFactorsBase<SinkFactors> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<OfInputs>(&getContext());
    // Scores that are not scaled yet may be too large for fp16.
    if (!inputTypeOf(getOperation()).isF16())
      patterns.add<OfSums, OfCausal, OfProducts>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
