//===- KeptRows.cpp - Rows that a gradient keeps between kernels ----------===//

#include "passes/declaration/KeptRows.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/declaration/ChunkTiles.h"
#include <algorithm>

using namespace mlir;
using namespace stretto;

SetVector<Value> stretto::allOperandsOf(Operation *op) {
  SetVector<Value> values(op->operand_begin(), op->operand_end());
  getUsedValuesDefinedAbove(op->getRegions(), values);
  return values;
}

static bool isReverse(Operation *op) {
  auto isReverseState = [](Type type) {
    auto state = dyn_cast<StateType>(type);
    return state && state.getReverse();
  };
  return op->hasAttr("reverse") || llvm::any_of(op->getOperandTypes(), isReverseState) ||
         llvm::any_of(op->getResultTypes(), isReverseState);
}

namespace {

/// What a row is wanted for.
enum class Use {
  /// By later tokens: whatever is made of other tokens has to be kept.
  OfOthers,
  /// By the token itself, which may read states anew, where that is asked for: only what is costly to find again is
  /// kept.
  OfToken,
};

class KeptRows {
public:
  KeptRows(VariantOp gradient, bool readsAnew, llvm::DenseSet<Operation *> carried = {})
      : gradient(gradient), readsAnew(readsAnew), carried(std::move(carried)), forward(findForwardRows(gradient)) {
    findMadeOfTails();
  }

  LogicalResult run();
  /// Keeps what makes rows, of the walk forward or not.
  LogicalResult runFor(ArrayRef<Value> rows, const SetVector<Value> &known);
  /// Keeps none but some, of what is made of forward states.
  void runAmong(const llvm::DenseSet<Value> &some);
  SetVector<Value> kept;

private:
  /// More numbers than any row has.
  static constexpr int64_t never = int64_t(1) << 32;

  void findMadeOfTails();
  /// Finds, for each operation, the fewest numbers that it is computed from.
  void findCosts(Use use);
  /// Keeps what the row is computed from, or the row.
  LogicalResult keepFor(Value row, Use use, Operation *user);
  bool isToBeKept(Operation *op, Use use);
  /// The numbers of a row that the kernel which walks forward can keep.
  int64_t numbersOf(Value row);

  VariantOp gradient;
  bool readsAnew, mayBeReverse = false;
  llvm::DenseSet<Operation *> carried; // operations with tails that meet their tokens where rows are wanted
  llvm::DenseSet<Value> forward;
  std::optional<llvm::DenseSet<Value>> candidates; // all where there are none
  llvm::DenseSet<Value> madeOfTails;               // by those of reverse time
  llvm::DenseMap<Operation *, int64_t> costs;
};

} // namespace

llvm::DenseSet<Value> stretto::findForwardRows(VariantOp gradient) {
  llvm::DenseSet<Value> forward;
  for (Operation &op : gradient.getBlock()->without_terminator()) {
    bool isForward = !isReverse(&op) && llvm::all_of(allOperandsOf(&op), [&](Value value) {
      return isa<BlockArgument>(value) || forward.contains(value);
    });
    if (isForward)
      forward.insert(op.result_begin(), op.result_end());
  }
  return forward;
}

void KeptRows::findMadeOfTails() {
  for (Operation &op : gradient.getBlock()->without_terminator()) {
    bool isMade = (carried.contains(&op) && isReverse(&op)) ||
                  llvm::any_of(allOperandsOf(&op), [&](Value value) { return madeOfTails.contains(value); });
    if (isMade)
      madeOfTails.insert(op.result_begin(), op.result_end());
  }
}

int64_t KeptRows::numbersOf(Value row) {
  if (madeOfTails.contains(row) || (candidates && !candidates->contains(row)))
    return never;
  if ((!forward.contains(row) && !mayBeReverse) || !isRow(row.getType()) || !getElementTypeOrSelf(row).isF64())
    return never;
  return cast<RankedTensorType>(row.getType()).getNumElements();
}

bool KeptRows::isToBeKept(Operation *op, Use use) {
  if (use == Use::OfOthers)
    return !carried.contains(op) &&
           isa<StateOp, WriteOp, DecayOp, ReadOp, PairOp, LookbackOp, ScanOp, ConvOp, DelayOp>(op);
  auto fold = dyn_cast<LookbackOp>(op);
  bool isRead = isa<ReadOp>(op) && !isReverse(op) && !readsAnew;
  return isRead || (fold && fold.getFold() != Fold::Sum && !candidates);
}

void KeptRows::findCosts(Use use) {
  costs.clear();
  for (Operation &op : gradient.getBlock()->without_terminator()) {
    int64_t cost = isToBeKept(&op, use) ? never : 0;
    for (Value value : allOperandsOf(&op)) {
      Operation *maker = value.getDefiningOp();
      if (maker && !kept.contains(value))
        cost += std::min(costs.lookup(maker), numbersOf(value));
    }
    costs[&op] = std::min(cost, never);
  }
}

LogicalResult KeptRows::keepFor(Value row, Use use, Operation *user) {
  SmallVector<Value> pending = {row};
  llvm::DenseSet<Value> seen;
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *maker = value.getDefiningOp();
    if (!maker || kept.contains(value) || costs.lookup(maker) == 0 || !seen.insert(value).second)
      continue;
    if (numbersOf(value) < never && numbersOf(value) <= costs.lookup(maker)) {
      kept.insert(value);
      continue;
    }
    if (use == Use::OfOthers && isToBeKept(maker, use))
      return refuseChunkForm(user) << "meets rows of later tokens that are found in reverse time, by '"
                                   << maker->getName().getStringRef() << "'";
    llvm::append_range(pending, allOperandsOf(maker));
  }
  return success();
}

LogicalResult KeptRows::run() {
  findCosts(Use::OfOthers);
  WalkResult walked = gradient.getBody().walk([&](Operation *op) -> WalkResult {
    if (auto past = dyn_cast<PastOp>(op); past && past->getParentOfType<LookbackOp>().getReverse())
      return keepFor(past.getOperand(), Use::OfOthers, past->getParentOfType<LookbackOp>());
    if (auto write = dyn_cast<WriteOp>(op); write && write.getAt() && isReverse(op))
      for (Value row : {write.getFirst(), write.getSecond()})
        if (failed(keepFor(row, Use::OfOthers, op)))
          return failure();
    return success();
  });
  if (walked.wasInterrupted())
    return failure();
  findCosts(Use::OfToken);
  for (Operation &op : *gradient.getBlock())
    if (isReverse(&op) || op.hasTrait<OpTrait::IsTerminator>())
      for (Value value : allOperandsOf(&op)) {
        // The kernel that walks forward leaves such results itself.
        bool isLeft = !readsAnew && op.hasTrait<OpTrait::IsTerminator>() && forward.contains(value);
        if (!isLeft && failed(keepFor(value, Use::OfToken, &op)))
          return failure();
      }
  return success();
}

void KeptRows::runAmong(const llvm::DenseSet<Value> &some) {
  candidates = some;
  findCosts(Use::OfToken);
  for (Operation &op : *gradient.getBlock())
    for (Value value :
         isReverse(&op) || op.hasTrait<OpTrait::IsTerminator>() ? allOperandsOf(&op) : SetVector<Value>()) {
      [[maybe_unused]] LogicalResult found = keepFor(value, Use::OfToken, &op);
      assert(succeeded(found) && "a token may read all anew");
    }
}

LogicalResult KeptRows::runFor(ArrayRef<Value> rows, const SetVector<Value> &known) {
  mayBeReverse = true;
  kept = known;
  findCosts(Use::OfOthers);
  for (Value row : rows)
    if (failed(keepFor(row, Use::OfOthers, row.getDefiningOp())))
      return failure();
  kept.remove_if([&](Value row) { return known.contains(row); });
  return success();
}

FailureOr<SetVector<Value>> stretto::findRowsThatMake(VariantOp gradient, ArrayRef<Value> rows,
                                                      const SetVector<Value> &known,
                                                      const llvm::DenseSet<Operation *> &carried) {
  KeptRows found(gradient, /*readsAnew=*/true, carried);
  if (failed(found.runFor(rows, known)))
    return failure();
  return std::move(found.kept);
}

SetVector<Value> stretto::findRowsOfStates(VariantOp gradient, const llvm::DenseSet<Value> &candidates) {
  KeptRows rows(gradient, /*readsAnew=*/false);
  rows.runAmong(candidates);
  return std::move(rows.kept);
}

int64_t stretto::countNumbers(const SetVector<Value> &rows) {
  int64_t numbers = 0;
  for (Value row : rows)
    numbers += cast<RankedTensorType>(row.getType()).getNumElements();
  return numbers;
}

FailureOr<SetVector<Value>> stretto::findKeptRows(VariantOp gradient, bool readsAnew) {
  KeptRows rows(gradient, readsAnew);
  if (failed(rows.run()))
    return failure();
  return std::move(rows.kept);
}

/// A head set whose heads are those of the kernel.
static StringRef finestHeads(VariantOp variant) {
  for (NamedAttribute group : variant.getGroupAttr())
    if (cast<IntegerAttr>(group.getValue()).getInt() == 1)
      return group.getName();
  return allHeads;
}

std::string stretto::nameOfKeptRow(unsigned index) { return "kept." + std::to_string(index); }

void stretto::replaceByArguments(VariantOp gradient, ArrayRef<Value> rows, unsigned firstIndex) {
  Builder builder(gradient.getContext());
  Block *block = gradient.getBlock();
  SmallVector<Attribute> names(gradient.getArgNames().begin(), gradient.getArgNames().end());
  StringRef heads = finestHeads(gradient);
  for (auto [index, row] : llvm::enumerate(rows)) {
    names.push_back(builder.getStringAttr(nameOfKeptRow(firstIndex + index)));
    auto type = withHeads(cast<RankedTensorType>(row.getType()), heads);
    Value(row).replaceAllUsesWith(block->addArgument(type, row.getLoc()));
  }
  gradient.setArgNamesAttr(builder.getArrayAttr(names));
  gradient.setFunctionType(builder.getFunctionType(block->getArgumentTypes(), gradient.getFunctionType().getResults()));
}
