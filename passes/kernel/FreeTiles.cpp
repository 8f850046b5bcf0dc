//===- FreeTiles.cpp - Tiles that may lie elsewhere -----------------------===//

#include "passes/kernel/FreeTiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

bool stretto::kernel::isInPlace(Operation *op) {
  return op->hasTrait<OpTrait::Elementwise>() ||
         isa<chunk::MaskOp, chunk::CausalOp, chunk::MeetOp, chunk::JoinHalvesOp, chunk::AccumulateOp>(op);
}

bool stretto::kernel::isMadeAlone(Value tile, bool stored) {
  llvm::SetVector<Value> made;
  made.insert(tile);
  auto isFree = [&](Value operand) {
    return tileTypeOf(operand).getRank() < 2 || made.contains(operand) ||
           isa_and_nonnull<chunk::BroadcastOp, arith::ConstantOp>(operand.getDefiningOp());
  };
  for (size_t next = 0; next < made.size(); ++next)
    for (Operation *user : made[next].getUsers()) {
      // What a product adds to is where it leaves its sums.
      auto product = dyn_cast<chunk::DotOp>(user);
      bool isAddend = product && product.getAddend() == made[next];
      if (isInPlace(user) && user->getNumResults() == 1)
        made.insert(user->getResult(0));
      else if (stored ? !isa<StoreOp>(user) : isAddend || !isa<chunk::ReduceOp, chunk::DotOp>(user))
        return false;
    }
  // Only now is known what else is made of it.
  return llvm::all_of(ArrayRef(made.getArrayRef()).drop_front(), [&](Value value) {
    return llvm::all_of(value.getDefiningOp()->getOperands(),
                        [&](Value operand) { return !tileTypeOf(operand) || isFree(operand); });
  });
}

/// Whether a vector is a sum over tokens, or made of one in place.
static bool isOfSum(Value vector) {
  llvm::SetVector<Value> made;
  made.insert(vector);
  for (size_t next = 0; next < made.size(); ++next) {
    Operation *op = made[next].getDefiningOp();
    if (!op || !tileTypeOf(made[next]) || !isVector(made[next]))
      continue;
    if (isa<chunk::AccumulateOp>(op))
      return true;
    if (isInPlace(op))
      made.insert(op->operand_begin(), op->operand_end());
  }
  return false;
}

bool stretto::kernel::isForSums(Value vector) {
  llvm::SetVector<Value> made;
  made.insert(vector);
  bool hasSum = false;
  for (size_t next = 0; next < made.size(); ++next)
    for (Operation *user : made[next].getUsers()) {
      hasSum |= isa<chunk::AccumulateOp>(user);
      if (isa<chunk::AccumulateOp, StoreOp>(user) || llvm::any_of(user->getOperands(), isOfSum))
        continue;
      if (!isInPlace(user) || user->getNumResults() != 1 || !tileTypeOf(user->getResult(0)))
        return false;
      made.insert(user->getResult(0));
    }
  return hasSum;
}

//===----------------------------------------------------------------------===//
// Tiles that are made of each other
//===----------------------------------------------------------------------===//

namespace {
/// What belongs together, from one tile on.
struct Kin {
  /// Whether the result of an operation is made, number by number, of that of another one.
  function_ref<bool(Operation *made, Operation *of)> isMadeOf;
  /// Whether an operand is wherever it is asked for.
  function_ref<bool(Value operand)> isGiven;
  /// Whether those who ask for a tile otherwise do so in shared memory.
  function_ref<bool(OpOperand &use)> isRead;
};
} // namespace

/// All tiles that are made of each other, `first` among them; none where one is wanted elsewhere, or is made of what
/// lies elsewhere.
static llvm::SetVector<Value> kinOf(Value first, const Kin &kin) {
  llvm::SetVector<Value> made;
  made.insert(first);
  for (size_t next = 0; next < made.size(); ++next) {
    Operation *op = made[next].getDefiningOp();
    for (Value operand : op->getOperands()) {
      if (!isa<RankedTensorType>(operand.getType()) || kin.isGiven(operand))
        continue;
      if (!operand.getDefiningOp() || !kin.isMadeOf(op, operand.getDefiningOp()))
        return {};
      made.insert(operand);
    }
    for (OpOperand &use : made[next].getUses()) {
      if (kin.isMadeOf(use.getOwner(), op))
        made.insert(use.getOwner()->getResult(0));
      else if (!kin.isRead(use))
        return {};
    }
  }
  return made;
}

/// Whether the only result of an operation is a tile as another one of its block, which it makes of operands.
static bool isAlike(Operation *op, Value tile) {
  return op->getBlock() == tile.getParentBlock() && op->getNumOperands() && op->getNumResults() == 1 &&
         isa<RankedTensorType>(op->getResult(0).getType()) &&
         tileTypeOf(op->getResult(0)).getShape() == tileTypeOf(tile).getShape();
}

static bool readsRowsOfOthers(Operation *op) { return isa<chunk::JoinHalvesOp, chunk::MiddleOp>(op); }

void FreeTiles::findRows(Block &block) {
  for (Operation &op : block) {
    if (!readsRowsOfOthers(&op) || isOfRows(op.getResult(0)))
      continue;
    Value first = op.getResult(0);
    auto isMadeOf = [&](Operation *made, Operation *of) {
      return isAlike(made, first) && made->hasTrait<OpTrait::Elementwise>() && isAlike(of, first) &&
             (of->hasTrait<OpTrait::Elementwise>() || readsRowsOfOthers(of));
    };
    auto isGiven = [](Value operand) {
      return inSharedMemory(operand.getType()) || matchPattern(operand, m_Constant()) ||
             llvm::any_of(operand.getUsers(), llvm::IsaPred<chunk::MiddleOp>);
    };
    auto isRead = [](OpOperand &use) {
      auto product = dyn_cast<chunk::DotOp>(use.getOwner());
      return product && product.getAddend() != use.get();
    };
    llvm::SetVector<Value> made = kinOf(first, {isMadeOf, isGiven, isRead});
    ofRows.insert(made.begin(), made.end());
  }
}

void FreeTiles::findRuns(Block &block) {
  for (auto sums : block.getOps<chunk::AccumulateOp>()) {
    Value first = sums.getResult();
    if (tileTypeOf(first).getRank() != 2 || isOfRuns(first))
      continue;
    auto isOfKin = [&](Operation *op) {
      return isAlike(op, first) &&
             (op->hasTrait<OpTrait::Elementwise>() || isa<chunk::AccumulateOp, chunk::MaskOp>(op));
    };
    auto isMadeOf = [&](Operation *made, Operation *of) { return isOfKin(made) && isOfKin(of); };
    auto isGiven = [](Value operand) {
      return isa_and_nonnull<ReceiveOp, chunk::BroadcastOp>(operand.getDefiningOp()) ||
             matchPattern(operand, m_Constant());
    };
    auto isRead = [](OpOperand &use) {
      return isa<chunk::RowOp, chunk::TotalOp, chunk::WithinOp, PassOp>(use.getOwner());
    };
    llvm::SetVector<Value> made = kinOf(first, {isMadeOf, isGiven, isRead});
    ofRuns.insert(made.begin(), made.end());
    // Who asks for rows as they were received is among those who make others of them.
    for (Value value : made)
      for (Value operand : value.getDefiningOp()->getOperands())
        if (isa_and_nonnull<ReceiveOp>(operand.getDefiningOp()))
          ofRuns.insert(operand);
  }
}
