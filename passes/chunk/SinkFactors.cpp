//===- SinkFactors.cpp - Factors behind products --------------------------===//

#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"
#include "passes/chunk/AbsorbFactors.h"
#include "passes/chunk/InputType.h"
#include "passes/chunk/RowFactors.h"
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

/// `dot(x, c y) + z = dot(c x, y) + z` for rows `y` of an input. What else is multiplied is rounded and stored in any
/// case; it has the factor where all of its products do, so that one tile serves them.
class OtherOperand {
public:
  static void scale(chunk::KernelOp kernel) {
    SmallVector<chunk::DotOp> products(kernel.getOps<chunk::DotOp>());
    for (chunk::DotOp product : products)
      for (unsigned side : {0, 1})
        if (std::optional<Scaled> rows = rowsOf(product, side)) {
          OtherOperand other(product->getOperand(1 - side), rows->factor);
          if (!isInput(other.tile) &&
              llvm::all_of(other.tile.getUsers(), [&](Operation *user) { return other.hasFactor(user); }))
            other.scale();
        }
  }

private:
  OtherOperand(Value tile, FloatAttr factor) : tile(tile), factor(factor) {}

  /// Rows of an input that are scaled in a product to which something is added.
  static std::optional<Scaled> rowsOf(chunk::DotOp product, unsigned side) {
    std::optional<Scaled> rows = Scaled::of(product->getOperand(side));
    return product.getAddend() && rows && isInput(rows->tile) ? rows : std::nullopt;
  }

  /// The rows with the factor in a product of the tile.
  OpOperand *scaledRows(chunk::DotOp product) {
    for (unsigned side : {0, 1})
      if (std::optional<Scaled> rows = rowsOf(product, side); rows && rows->factor == factor)
        return &product->getOpOperand(side);
    return nullptr;
  }

  /// Whether an operation is a product of the tile that has the factor, on its rows or as a whole.
  bool hasFactor(Operation *user) {
    auto product = dyn_cast<chunk::DotOp>(user);
    if (!product || product.getLeft() == product.getRight() || product.getAddend() == tile)
      return false;
    auto multiplied = product->hasOneUse() ? dyn_cast<arith::MulFOp>(*product->user_begin()) : arith::MulFOp();
    std::optional<Scaled> whole = multiplied ? Scaled::of(multiplied) : std::nullopt;
    return scaledRows(product) || (whole && whole->factor == factor);
  }

  void scale() {
    OpBuilder builder(tile.getContext());
    auto scaled = [&](Value value) { return Scaled::make(builder, value.getLoc(), value, factor.getValue()); };
    SmallVector<Operation *> users(tile.getUsers());
    builder.setInsertionPointAfterValue(tile);
    Value whole = scaled(tile);
    for (Operation *user : users) {
      auto product = cast<chunk::DotOp>(user);
      product->replaceUsesOfWith(tile, whole);
      if (OpOperand *rows = scaledRows(product)) {
        rows->set(Scaled::of(rows->get())->tile);
        continue;
      }
      builder.setInsertionPoint(product);
      if (Value addend = product.getAddend())
        product.getAddendMutable().assign(scaled(addend));
      Operation *multiplied = *product->user_begin();
      multiplied->replaceAllUsesWith(product);
      multiplied->erase();
    }
  }

  Value tile;
  FloatAttr factor;
};

struct SinkFactors : stretto::impl::SinkFactorsBase<SinkFactors> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<OfInputs, OfLookbacks, OfTotals>(&getContext());
    // Scores that are not scaled yet may be too large for fp16.
    if (!inputTypeOf(getOperation()).isF16())
      patterns.add<OfSums, OfCausal, OfProducts>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    if (!inputTypeOf(getOperation()).isF16())
      OtherOperand::scale(getOperation());
    if (inputTypeOf(getOperation()).isBF16())
      sinkRowFactors(getOperation());
    if (inputTypeOf(getOperation()).getIntOrFloatBitWidth() == 16)
      absorbFactors(getOperation());
  }
};
} // namespace
