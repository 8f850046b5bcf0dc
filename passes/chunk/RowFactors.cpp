//===- RowFactors.cpp - Numbers of tokens behind products -----------------===//

#include "passes/chunk/RowFactors.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace stretto;

namespace {

/// A tile times or over numbers that are repeated along an axis, one for each row or column, or one for all.
struct Repeated {
  Value tile, numbers;
  bool isDivisor = false;

  static std::optional<Repeated> of(Operation *op, chunk::Side along) {
    if (!op || !isa<arith::MulFOp, arith::DivFOp>(op))
      return std::nullopt;
    bool isDivision = isa<arith::DivFOp>(op);
    auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    for (unsigned side : {1, 0}) {
      if (isDivision && side == 0)
        continue;
      auto repeated = op->getOperand(side).getDefiningOp<chunk::BroadcastOp>();
      auto type = repeated ? dyn_cast<RankedTensorType>(repeated.getOperand().getType()) : RankedTensorType();
      bool isAlong = type && (type.getRank() == 0 || (type.getRank() == 1 && repeated.getAlong() == along));
      if (isAlong && result && result.getRank() == 2)
        return Repeated{op->getOperand(1 - side), repeated.getOperand(), isDivision};
    }
    return std::nullopt;
  }

  /// A tile times a number for each.
  static std::optional<Repeated> factorOf(Value value, chunk::Side along) {
    std::optional<Repeated> found = of(value.getDefiningOp(), along);
    return found && found->isOfEach() && !found->isDivisor ? found : std::nullopt;
  }

  bool isOfEach() const { return cast<RankedTensorType>(numbers.getType()).getRank() == 1; }
};

/// One product `diag(f) x` of rows of an input, and what multiplies it by more such numbers, which nothing but products
/// and look-backs ask for.
class RowFactor {
public:
  static std::optional<RowFactor> of(Operation *op) {
    std::optional<Repeated> rows = Repeated::of(op, chunk::Side::Rows);
    bool isOfInput = rows && rows->isOfEach() && rows->tile.getDefiningOp<arith::ExtFOp>();
    if (!isOfInput || op->use_empty() || !areTaken(op))
      return std::nullopt;
    return RowFactor(op, rows->tile);
  }

  void sink() { sink(op, {}); }

private:
  RowFactor(Operation *op, Value tile) : op(op), tile(tile), builder(op) {}

  /// Whether all that asks for rows may have the numbers elsewhere, or multiplies them by more numbers.
  static bool areTaken(Operation *op) {
    return llvm::all_of(op->getUses(), [&](OpOperand &use) {
      return multipliesFurther(use) ? areTaken(use.getOwner()) : isTaken(use, op);
    });
  }

  static bool multipliesFurther(OpOperand &use) {
    std::optional<Repeated> further = Repeated::of(use.getOwner(), chunk::Side::Rows);
    return further && further->tile == use.get() && !use.getOwner()->use_empty();
  }

  /// Whether a product is a sum over the rows of one of its operands.
  static bool sumsOverRows(OpOperand &use) {
    return axisOfSum(cast<chunk::DotOp>(use.getOwner()), use.getOperandNumber()) == chunk::Side::Rows;
  }

  /// The axis of an operand over which a product sums.
  static chunk::Side axisOfSum(chunk::DotOp product, unsigned operand) {
    bool isOverRows = operand == 0 ? product.getTransposeLeft() : !product.getTransposeRight();
    return isOverRows ? chunk::Side::Rows : chunk::Side::Columns;
  }

  static bool isComputed(Value value) { return value.getDefiningOp() && !value.getDefiningOp<arith::ExtFOp>(); }

  /// The operand that rows which a look-back contributes are multiplied with: weights of a sum.
  static OpOperand *weightsOf(OpOperand &use) {
    auto contribution = dyn_cast<chunk::ContributeOp>(use.getOwner());
    if (!contribution || use.getOperandNumber() % 2 == 0 || use.getOperandNumber() >= contribution.getGiven().size() ||
        cast<chunk::LookbackOp>(contribution->getParentOp()).getFold() != chunk::Fold::Sum)
      return nullptr;
    return &contribution.getGivenMutable()[use.getOperandNumber() - 1];
  }

  /// Whether a chunk meets so few others, or in most sequences none, that numbers of its own rows cost no more behind
  /// products with each of them.
  static bool meetsFew(chunk::LookbackOp lookback) {
    constexpr int64_t few = 2;
    std::optional<ArrayRef<int64_t>> met = lookback.getMet();
    return lookback.getContinued() || (met && (*met)[0] - (*met)[1] < few);
  }

  /// Whether a product may have the numbers elsewhere: on an operand that is computed, or behind it.
  static bool isTaken(OpOperand &use, Operation *rows) {
    if (auto lookback = dyn_cast<chunk::LookbackOp>(use.getOwner()->getParentOp());
        lookback && rows->getBlock() != lookback.getBlock() && !meetsFew(lookback))
      return false;
    if (OpOperand *weights = weightsOf(use))
      return isComputed(weights->get()) && rows->getBlock() == use.getOwner()->getBlock();
    auto product = dyn_cast<chunk::DotOp>(use.getOwner());
    if (!product || use.getOperandNumber() > 1 || product.getLeft() == product.getRight())
      return false;
    if (!sumsOverRows(use))
      return !product.getAddend();
    return isComputed(product->getOperand(1 - use.getOperandNumber()));
  }

  /// Takes the numbers of an operation, behind those of the ones before, from all that asks for it.
  void sink(Operation *from, Value before) {
    Value numbers = numbersOf(from, before);
    for (OpOperand &use : llvm::make_early_inc_range(from->getUses())) {
      if (multipliesFurther(use)) {
        sink(use.getOwner(), numbers);
        continue;
      }
      use.set(tile);
      if (OpOperand *weights = weightsOf(use)) {
        weights->set(scaled(weights->get(), numbers, chunk::Side::Columns, use.getOwner()));
        continue;
      }
      auto product = cast<chunk::DotOp>(use.getOwner());
      unsigned other = 1 - use.getOperandNumber();
      if (sumsOverRows(use))
        product->setOperand(other, scaled(product->getOperand(other), numbers, axisOfSum(product, other), product));
      else
        scaleResult(product, numbers, use.getOperandNumber() == 0 ? chunk::Side::Rows : chunk::Side::Columns);
    }
    from->erase();
  }

  /// One number for each row.
  Value numbersOf(Operation *from, Value before) {
    builder.setInsertionPoint(from);
    Repeated own = *Repeated::of(from, chunk::Side::Rows);
    auto type = cast<RankedTensorType>(own.numbers.getType());
    type = type.clone({cast<RankedTensorType>(tile.getType()).getDimSize(0)});
    Value numbers = own.numbers;
    if (!own.isOfEach())
      numbers = chunk::BroadcastOp::create(builder, from->getLoc(), type, numbers, chunk::Side::Rows);
    if (own.isDivisor && !before)
      before = arith::ConstantOp::create(builder, from->getLoc(),
                                         DenseElementsAttr::get(type, builder.getFloatAttr(type.getElementType(), 1)));
    if (own.isDivisor)
      return arith::DivFOp::create(builder, from->getLoc(), before, numbers);
    return before ? arith::MulFOp::create(builder, from->getLoc(), before, numbers).getResult() : numbers;
  }

  Value times(Value tile, Value numbers, chunk::Side along) {
    Value repeated = chunk::BroadcastOp::create(builder, tile.getLoc(), tile.getType(), numbers, along);
    return arith::MulFOp::create(builder, tile.getLoc(), tile, repeated);
  }

  /// A tile with the numbers along an axis, before an operation that asks for it: those that it is multiplied by
  /// already have them, too.
  Value scaled(Value tile, Value numbers, chunk::Side along, Operation *before) {
    builder.setInsertionPoint(before);
    if (std::optional<Repeated> known = Repeated::factorOf(tile, along))
      return times(known->tile, arith::MulFOp::create(builder, tile.getLoc(), known->numbers, numbers), along);
    return times(tile, numbers, along);
  }

  void scaleResult(chunk::DotOp product, Value numbers, chunk::Side along) {
    builder.setInsertionPointAfter(product);
    auto user = product->hasOneUse() ? dyn_cast<arith::MulFOp>(*product->user_begin()) : arith::MulFOp();
    std::optional<Repeated> known = user ? Repeated::factorOf(user.getResult(), along) : std::nullopt;
    if (known && known->tile == product.getResult()) {
      builder.setInsertionPoint(user);
      Value both = arith::MulFOp::create(builder, product.getLoc(), known->numbers, numbers);
      user.replaceAllUsesWith(times(product, both, along));
      user.erase();
      return;
    }
    Value result = product.getResult();
    Value whole = times(result, numbers, along);
    result.replaceAllUsesExcept(whole, whole.getDefiningOp());
  }

  Operation *op;
  Value tile;
  OpBuilder builder;
};
} // namespace

/// Where a product sums over the rows of two inputs of which the other has fewer columns, its rows have the numbers: as
/// each slice of the values has few of them, and all of the keys.
static void scaleNarrower(arith::MulFOp op) {
  std::optional<Repeated> rows = Repeated::factorOf(op.getResult(), chunk::Side::Rows);
  bool isOfInput = rows && rows->tile.getDefiningOp<arith::ExtFOp>();
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
  // What is erased beside is no product of rows of an input.
  SmallVector<Operation *> products;
  kernel.walk([&](Operation *op) {
    if (RowFactor::of(op))
      products.push_back(op);
  });
  for (Operation *op : products)
    if (std::optional<RowFactor> factor = RowFactor::of(op))
      factor->sink();
  for (arith::MulFOp op : llvm::make_early_inc_range(kernel.getOps<arith::MulFOp>()))
    scaleNarrower(op);
}
