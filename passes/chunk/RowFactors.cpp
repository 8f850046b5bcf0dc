//===- RowFactors.cpp - Numbers of tokens behind products -----------------===//

#include "passes/chunk/RowFactors.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace stretto;

namespace {

/// A tile times numbers of its rows, or of its columns.
struct Repeated {
  Value tile, numbers;
  chunk::Side along;

  static std::optional<Repeated> of(Value value) {
    auto product = value.getDefiningOp<arith::MulFOp>();
    if (!product)
      return std::nullopt;
    for (auto [factor, tile] : {std::pair(product.getLhs(), product.getRhs()), {product.getRhs(), product.getLhs()}}) {
      auto repeated = factor.getDefiningOp<chunk::BroadcastOp>();
      auto type = repeated ? dyn_cast<RankedTensorType>(repeated.getOperand().getType()) : RankedTensorType();
      if (type && type.getRank() == 1 && cast<RankedTensorType>(tile.getType()).getRank() == 2)
        return Repeated{tile, repeated.getOperand(), repeated.getAlong()};
    }
    return std::nullopt;
  }
};

/// One product `diag(f) x` of rows of an input, which nothing but products ask for.
class RowFactor {
public:
  static std::optional<RowFactor> of(arith::MulFOp op) {
    std::optional<Repeated> rows = Repeated::of(op.getResult());
    bool isOfInput = rows && rows->along == chunk::Side::Rows && rows->tile.getDefiningOp<arith::ExtFOp>();
    if (!isOfInput || op->use_empty() || !llvm::all_of(op->getUses(), isTaken))
      return std::nullopt;
    return RowFactor(op, *rows);
  }

  void sink() {
    for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
      auto product = cast<chunk::DotOp>(use.getOwner());
      use.set(rows.tile);
      unsigned other = 1 - use.getOperandNumber();
      if (sumsOverRows(use))
        product->setOperand(other, scaled(product->getOperand(other), axisOfSum(product, other), product));
      else
        scaleResult(product, use.getOperandNumber() == 0 ? chunk::Side::Rows : chunk::Side::Columns);
    }
    op->erase();
  }

private:
  RowFactor(arith::MulFOp op, Repeated rows) : op(op), rows(rows), builder(op) {}

  /// Whether a product is a sum over the rows of one of its operands.
  static bool sumsOverRows(OpOperand &use) {
    return axisOfSum(cast<chunk::DotOp>(use.getOwner()), use.getOperandNumber()) == chunk::Side::Rows;
  }

  /// The axis of an operand over which a product sums.
  static chunk::Side axisOfSum(chunk::DotOp product, unsigned operand) {
    bool isOverRows = operand == 0 ? product.getTransposeLeft() : !product.getTransposeRight();
    return isOverRows ? chunk::Side::Rows : chunk::Side::Columns;
  }

  /// Whether a product may have the numbers elsewhere: on an operand that is computed, or behind it.
  static bool isTaken(OpOperand &use) {
    auto product = dyn_cast<chunk::DotOp>(use.getOwner());
    if (!product || use.getOperandNumber() > 1 || product.getLeft() == product.getRight())
      return false;
    if (!sumsOverRows(use))
      return !product.getAddend();
    Value other = product->getOperand(1 - use.getOperandNumber());
    return other.getDefiningOp() && !other.getDefiningOp<arith::ExtFOp>();
  }

  Value numbersTimes(Value others, Location location) {
    return arith::MulFOp::create(builder, location, others, rows.numbers);
  }

  Value times(Value tile, Value numbers, chunk::Side along) {
    Value repeated = chunk::BroadcastOp::create(builder, tile.getLoc(), tile.getType(), numbers, along);
    return arith::MulFOp::create(builder, tile.getLoc(), tile, repeated);
  }

  /// A tile with the numbers along an axis, before an operation that asks for it: those that it is multiplied by
  /// already have them, too.
  Value scaled(Value tile, chunk::Side along, Operation *before) {
    builder.setInsertionPoint(before);
    if (std::optional<Repeated> known = Repeated::of(tile); known && known->along == along)
      return times(known->tile, numbersTimes(known->numbers, tile.getLoc()), along);
    return times(tile, rows.numbers, along);
  }

  void scaleResult(chunk::DotOp product, chunk::Side along) {
    builder.setInsertionPointAfter(product);
    auto user = product->hasOneUse() ? dyn_cast<arith::MulFOp>(*product->user_begin()) : arith::MulFOp();
    std::optional<Repeated> known = user ? Repeated::of(user.getResult()) : std::nullopt;
    if (known && known->along == along && known->tile == product.getResult()) {
      builder.setInsertionPoint(user);
      user.replaceAllUsesWith(times(product, numbersTimes(known->numbers, product.getLoc()), along));
      user.erase();
      return;
    }
    Value result = product.getResult();
    Value whole = times(result, rows.numbers, along);
    result.replaceAllUsesExcept(whole, whole.getDefiningOp());
  }

  arith::MulFOp op;
  Repeated rows;
  OpBuilder builder;
};
} // namespace

/// Where a product sums over the rows of two inputs of which the other has fewer columns, its rows have the numbers: as
/// each slice of the values has few of them, and all of the keys.
static void scaleNarrower(arith::MulFOp op) {
  std::optional<Repeated> rows = Repeated::of(op.getResult());
  bool isOfInput = rows && rows->along == chunk::Side::Rows && rows->tile.getDefiningOp<arith::ExtFOp>();
  if (!isOfInput || !op->hasOneUse())
    return;
  OpOperand &use = *op->use_begin();
  auto product = dyn_cast<chunk::DotOp>(use.getOwner());
  if (!product || use.getOperandNumber() != 0 || !product.getTransposeLeft() || product.getTransposeRight() ||
      !product.getRight().getDefiningOp<arith::ExtFOp>())
    return;
  auto columnsOf = [](Value tile) { return cast<RankedTensorType>(tile.getType()).getDimSize(1); };
  Value other = product.getRight();
  if (columnsOf(other) >= columnsOf(rows->tile))
    return;
  OpBuilder builder(product);
  Value repeated = chunk::BroadcastOp::create(builder, op.getLoc(), other.getType(), rows->numbers, chunk::Side::Rows);
  Value scaled = arith::MulFOp::create(builder, op.getLoc(), other, repeated);
  product.getRightMutable().assign(scaled);
  use.set(rows->tile);
  op->erase();
}

void stretto::sinkRowFactors(chunk::KernelOp kernel) {
  SmallVector<arith::MulFOp> products(kernel.getOps<arith::MulFOp>());
  // What is erased beside is no product of rows of an input.
  llvm::erase_if(products, [](arith::MulFOp op) { return !RowFactor::of(op); });
  for (arith::MulFOp op : products)
    if (std::optional<RowFactor> factor = RowFactor::of(op))
      factor->sink();
  for (arith::MulFOp op : llvm::make_early_inc_range(kernel.getOps<arith::MulFOp>()))
    scaleNarrower(op);
}
