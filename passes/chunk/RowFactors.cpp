//===- RowFactors.cpp - Numbers of tokens behind products -----------------===//

#include "passes/chunk/RowFactors.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace stretto;
using chunk::ContributeOp;

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

  /// What rows that a look-back contributes are multiplied with, and the axis along which it has their numbers: weights
  /// of a sum, or the other rows of an outer product.
  struct Partner {
    OpOperand *operand;
    chunk::Side along;
  };
  static std::optional<Partner> partnerOf(OpOperand &use) {
    auto contribution = dyn_cast<ContributeOp>(use.getOwner());
    unsigned number = use.getOperandNumber();
    if (!contribution || number >= contribution.getGiven().size())
      return std::nullopt;
    chunk::Fold fold = cast<chunk::LookbackOp>(contribution->getParentOp()).getFold();
    bool isRight = number % 2 == 1;
    if (fold == chunk::Fold::Sum && isRight)
      return Partner{&contribution.getGivenMutable()[number - 1], chunk::Side::Columns};
    if (fold == chunk::Fold::Outer)
      return Partner{&contribution.getGivenMutable()[isRight ? number - 1 : number + 1], chunk::Side::Rows};
    return std::nullopt;
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
    if (std::optional<Partner> partner = partnerOf(use))
      return isComputed(partner->operand->get()) && rows->getBlock() == use.getOwner()->getBlock();
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
    bool isDivision = !before && Repeated::of(from, chunk::Side::Rows)->isDivisor;
    for (OpOperand &use : llvm::make_early_inc_range(from->getUses())) {
      if (multipliesFurther(use)) {
        sink(use.getOwner(), numbers);
        continue;
      }
      use.set(tile);
      if (std::optional<Partner> partner = partnerOf(use)) {
        Value before = partner->operand->get(), with = scaled(before, numbers, partner->along, use.getOwner());
        partner->operand->set(with);
        // What is multiplied may be multiplied by 0, which no column can be divided by.
        if (isDivision)
          takeFromColumns(cast<ContributeOp>(use.getOwner()), before, with, numbers);
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

  /// Outer products of the same rows and a column take the scaled rows, so that there is one tile of them, and the
  /// column without the numbers.
  void takeFromColumns(ContributeOp contribution, Value before, Value with, Value numbers) {
    if (cast<chunk::LookbackOp>(contribution->getParentOp()).getFold() != chunk::Fold::Outer)
      return;
    for (unsigned left = 0; left + 1 < contribution.getGiven().size(); left += 2) {
      auto given = contribution.getGivenMutable();
      Value column = given[left + 1].get();
      auto type = cast<RankedTensorType>(column.getType());
      if (given[left].get() != before || type.getDimSize(1) != 1)
        continue;
      builder.setInsertionPoint(contribution);
      Value repeated = chunk::BroadcastOp::create(builder, column.getLoc(), type, numbers, chunk::Side::Rows);
      given[left].set(with);
      given[left + 1].set(arith::DivFOp::create(builder, column.getLoc(), column, repeated));
    }
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

namespace {
/// Sums along rows of products that have numbers of the rows among their factors.
class RowSums {
public:
  static void sink(chunk::KernelOp kernel) {
    for (chunk::ReduceOp sum : llvm::make_early_inc_range(kernel.getOps<chunk::ReduceOp>()))
      if (isSum(sum))
        RowSums(sum).sink();
  }

private:
  explicit RowSums(chunk::ReduceOp sum) : sum(sum), builder(sum) {}

  static bool isSum(Operation *op) {
    auto reduction = dyn_cast<chunk::ReduceOp>(op);
    return reduction && reduction.getKind() == chunk::Reduction::Sum && reduction.getOver() == chunk::Side::Columns;
  }

  /// Whether nothing but such sums asks for a tile, and for what it is multiplied to.
  static bool isForSums(Value tile) {
    return llvm::all_of(tile.getUsers(), [](Operation *user) {
      bool isFactor = isa<arith::MulFOp, arith::NegFOp>(user) || Repeated::of(user, chunk::Side::Rows);
      return isSum(user) || (isFactor && user->getParentOp() == user->getParentOfType<chunk::KernelOp>() &&
                             !user->use_empty() && isForSums(user->getResult(0)));
    });
  }

  /// A tile without the numbers of its rows, which are noted.
  Value bare(Value tile) {
    Operation *op = tile.getDefiningOp();
    if (!op || !isForSums(tile))
      return tile;
    if (std::optional<Repeated> rows = Repeated::of(op, chunk::Side::Rows)) {
      numbers.push_back(*rows);
      return bare(rows->tile);
    }
    if (auto negative = dyn_cast<arith::NegFOp>(op)) {
      isNegative = !isNegative;
      return bare(negative.getOperand());
    }
    auto product = dyn_cast<arith::MulFOp>(op);
    if (!product)
      return tile;
    Value left = bare(product.getLhs()), right = bare(product.getRhs());
    if (left == product.getLhs() && right == product.getRhs())
      return tile;
    return arith::MulFOp::create(builder, product.getLoc(), left, right);
  }

  void sink() {
    Value tile = bare(sum.getOperand());
    if (numbers.empty())
      return;
    Value result = chunk::ReduceOp::create(builder, sum.getLoc(), sum.getType(), chunk::Reduction::Sum, tile,
                                           chunk::Side::Columns);
    for (const Repeated &rows : numbers) {
      Value own = rows.numbers;
      if (!rows.isOfEach())
        own = chunk::BroadcastOp::create(builder, sum.getLoc(), sum.getType(), own, chunk::Side::Rows);
      result = rows.isDivisor ? arith::DivFOp::create(builder, sum.getLoc(), result, own).getResult()
                              : arith::MulFOp::create(builder, sum.getLoc(), result, own);
    }
    if (isNegative)
      result = arith::NegFOp::create(builder, sum.getLoc(), result);
    sum.replaceAllUsesWith(result);
    eraseUnused(sum);
  }

  /// Others are to find no users that nobody asks for.
  static void eraseUnused(Operation *op) {
    if (!isOpTriviallyDead(op))
      return;
    SmallVector<Value> operands(op->getOperands());
    op->erase();
    for (Value operand : operands)
      if (Operation *made = operand.getDefiningOp())
        eraseUnused(made);
  }

  chunk::ReduceOp sum;
  OpBuilder builder;
  SmallVector<Repeated> numbers;
  bool isNegative = false;
};
} // namespace

void stretto::sinkRowFactors(chunk::KernelOp kernel) {
  RowSums::sink(kernel);
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
