//===- RoleDivision.cpp - What each of two roles does of a loop -----------===//

#include "passes/kernel/RoleDivision.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Finds the parts, and what the second takes of the first.
class RoleFinder : public RoleDivision {
public:
  explicit RoleFinder(FuncOp function) : function(function) {}

  bool findWalk(bool ofStates);
  bool findOutputs(bool prepares, bool isPrepared);
  /// Whether all that the second part takes of the first can be passed.
  bool canPass();

private:
  /// Of a turn: what is passed takes the place of tiles that come from memory.
  static constexpr int64_t mostBytes = int64_t(64) * 1024, mostBytesOfOutputs = int64_t(160) * 1024;

  bool findLoop();
  bool meetsChunks();
  bool isStateOfProducts(unsigned number);
  void reach();
  void takeSumsOfOperands();
  bool expectsOfFirst();
  DenseSet<Value> reachedByStates();
  bool isMadeOfTiles(Value value, const DenseSet<Value> &ofStates);
  void findReturned();
  void need(Value value);
  bool narrows(Operation *op, llvm::SetVector<Operation *> &made);
  bool isMadeOfTilesAlone(Operation *op, llvm::SetVector<Operation *> &made,
                          llvm::function_ref<bool(Operation *)> isOfKind);
  bool sumsUpTiles(chunk::ReduceOp op, llvm::SetVector<Operation *> &made);
  bool isMadeByProducts(arith::TruncFOp op, llvm::SetVector<Operation *> &made);
  bool isReached(Value value) { return reached.contains(value); }
  /// Whether the second part may compute a value anew, from constants and numbers that it repeats.
  static bool isMadeAgain(Operation *op);
  bool take(Value value);

  FuncOp function;
  llvm::SetVector<Operation *> needed; // operations that the next states depend on
};

} // namespace

/// What a loop carries is a state of products if its next value is more than rows that are kept for convolutions.
bool RoleFinder::isStateOfProducts(unsigned number) {
  if (!isa<RankedTensorType>(loop.getRegionIterArg(number).getType()))
    return false;
  SetVector<Operation *> made;
  SmallVector<Value> pending = {loop.getBody()->getTerminator()->getOperand(number)};
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || !loop->isAncestor(op) || !made.insert(op))
      continue;
    llvm::append_range(pending, op->getOperands());
  }
  return llvm::any_of(made, llvm::IsaPred<chunk::DotOp, MatvecOp, chunk::ReduceOp, chunk::DecayMixOp, scf::IfOp>);
}

void RoleFinder::reach() {
  for (Operation &op : loop.getBody()->without_terminator()) {
    llvm::SetVector<Value> used(op.operand_begin(), op.operand_end());
    getUsedValuesDefinedAbove(op.getRegions(), used);
    if (llvm::none_of(used, [&](Value value) { return isReached(value); }))
      continue;
    second.insert(&op);
    reached.insert(op.result_begin(), op.result_end());
  }
}

/// What a walk multiplies it sums over tokens, too: those ahead, who make it in stripes or in turns, pass it as it
/// comes and keep nothing of it.
void RoleFinder::takeSumsOfOperands() {
  if (!leavesStates && loop.getBody()->getOps<chunk::ExpectOp>().empty())
    return;
  for (auto sums : loop.getBody()->getOps<MatvecOp>()) {
    bool isOperand = llvm::any_of(sums.getMatrix().getUsers(),
                                  [&](Operation *user) { return isa<chunk::DotOp>(user) && second.contains(user); });
    if (!isOperand || second.contains(sums) || !sums.getVector().getDefiningOp<arith::ConstantOp>())
      continue;
    second.insert(sums);
    reached.insert(sums.getResult());
  }
}

bool RoleFinder::findLoop() {
  for (auto each : function.getOps<scf::ForOp>()) {
    if (loop)
      return false;
    loop = each;
  }
  if (!loop || getConstantIntValue(loop.getStep()) != 1)
    return false;
  // What the loop leaves are final states, and nothing that is computed further.
  return llvm::all_of(loop->getUsers(), llvm::IsaPred<SaveOp>);
}

/// Loops over other chunks belong to one part, as the numbers of those that are met do.
bool RoleFinder::meetsChunks() {
  return !loop.getBody()->getOps<scf::ForOp>().empty() ||
         llvm::any_of(loop.getRegionIterArgs(), [](Value carried) { return carried.getType().isIndex(); });
}

bool RoleFinder::findWalk(bool ofStates) {
  if (!findLoop() || meetsChunks())
    return false;
  // A walk that leaves nothing but states carries all that is left, so that others may take chunks in turns.
  leavesStates = ofStates && llvm::none_of(*loop.getBody(), llvm::IsaPred<StoreOp, CarryOp, PassOp>);
  unsigned count = loop.getNumRegionIterArgs();
  for (unsigned number = 0; number < count; ++number)
    isOfSecond.push_back(isStateOfProducts(number) || (leavesStates && !loop.getResult(number).use_empty()));
  Operation *yield = loop.getBody()->getTerminator();
  for (bool isStable = false; !isStable;) {
    isStable = true;
    for (unsigned number = 0; number < count; ++number)
      if (isOfSecond[number])
        reached.insert(loop.getRegionIterArg(number));
    reach();
    for (unsigned number = 0; number < count; ++number)
      if (!isOfSecond[number] && isReached(yield->getOperand(number))) {
        isOfSecond[number] = true;
        isStable = false;
      }
  }
  takeSumsOfOperands();
  for (bool isOfWalk : isOfSecond)
    isOfFirst.push_back(!isOfWalk);
  // A walk that passes its states to others, or leaves nothing else, may have matrices to make of tiles, but no
  // products beside those of states.
  bool isPassed = llvm::any_of(second, llvm::IsaPred<PassOp>);
  auto makesMatrix = [](Operation &op) {
    auto product = dyn_cast<arith::MulFOp>(op);
    auto tile = product ? dyn_cast<RankedTensorType>(product.getType()) : RankedTensorType();
    return tile && tile.getRank() == 2;
  };
  bool isAhead = llvm::any_of(*loop.getBody(), [&](Operation &op) {
    return !second.contains(&op) &&
           (isa<chunk::DotOp, MatvecOp, scf::IfOp, scf::ForOp>(op) || ((isPassed || leavesStates) && makesMatrix(op)));
  });
  bool isOfWalk = isPassed || leavesStates || llvm::any_of(second, llvm::IsaPred<StoreOp>);
  return llvm::is_contained(isOfSecond, true) && isAhead && isOfWalk;
}

/// What a value of the loop is made of, from one turn to the next.
void RoleFinder::need(Value value) {
  SmallVector<Value> pending = {value};
  while (!pending.empty()) {
    Value next = pending.pop_back_val();
    if (auto carried = dyn_cast<BlockArgument>(next); carried && carried.getOwner() == loop.getBody()) {
      if (carried == loop.getInductionVar() || isOfFirst[carried.getArgNumber() - 1])
        continue;
      isOfFirst[carried.getArgNumber() - 1] = true;
      pending.push_back(loop.getBody()->getTerminator()->getOperand(carried.getArgNumber() - 1));
    }
    Operation *op = returned.contains(next) ? nullptr : next.getDefiningOp();
    op = op && loop->isProperAncestor(op) ? loop.getBody()->findAncestorOpInBlock(*op) : nullptr;
    if (!op || !needed.insert(op))
      continue;
    llvm::append_range(pending, op->getOperands());
    llvm::SetVector<Value> used;
    getUsedValuesDefinedAbove(op->getRegions(), used);
    llvm::append_range(pending, used);
  }
}

/// What states of products reach in a turn, they themselves included.
DenseSet<Value> RoleFinder::reachedByStates() {
  DenseSet<Value> ofStates;
  for (unsigned number = 0; number < loop.getNumRegionIterArgs(); ++number)
    if (isStateOfProducts(number))
      ofStates.insert(loop.getRegionIterArg(number));
  for (Operation &op : loop.getBody()->without_terminator()) {
    llvm::SetVector<Value> used(op.operand_begin(), op.operand_end());
    getUsedValuesDefinedAbove(op.getRegions(), used);
    if (llvm::any_of(used, [&](Value value) { return ofStates.contains(value); }))
      ofStates.insert(op.result_begin(), op.result_end());
  }
  return ofStates;
}

/// Whether a matrix is computed, number by number, from tiles that come from memory.
bool RoleFinder::isMadeOfTiles(Value value, const DenseSet<Value> &ofStates) {
  auto isMatrix = [](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.getRank() == 2;
  };
  bool comesFromMemory = false;
  SmallVector<Value> pending = {value};
  llvm::SetVector<Operation *> made;
  while (!pending.empty()) {
    Value next = pending.pop_back_val();
    if (!isMatrix(next) || !isInLoop(next) || ofStates.contains(next))
      continue;
    Operation *op = next.getDefiningOp();
    if (!op || !made.insert(op))
      continue;
    if (isa<ReceiveOp>(op)) {
      comesFromMemory = true;
      continue;
    }
    if (!isMemoryEffectFree(op) || !(op->hasTrait<OpTrait::Elementwise>() || isa<chunk::BroadcastOp>(op)))
      return false;
    llvm::append_range(pending, op->getOperands());
  }
  return comesFromMemory && !isa_and_present<ReceiveOp>(value.getDefiningOp());
}

/// What a walk takes of tiles by way of more than a product, as keys that are scaled.
void RoleFinder::findReturned() {
  DenseSet<Value> ofStates = reachedByStates();
  for (Operation &op : loop.getBody()->without_terminator()) {
    bool isOfWalk =
        needed.contains(&op) && llvm::any_of(op.getResults(), [&](Value result) { return ofStates.contains(result); });
    if (!isOfWalk)
      continue;
    for (Value operand : op.getOperands())
      if (isInLoop(operand) && !ofStates.contains(operand) && isa<RankedTensorType>(operand.getType()) &&
          isMadeOfTiles(operand, ofStates))
        returned.insert(operand);
  }
}

/// Whether an operation leaves fewer bits of what is computed number by number from tiles of the first part, which then
/// makes it, so that less is passed.
bool RoleFinder::narrows(Operation *op, llvm::SetVector<Operation *> &made) {
  if (!isa<arith::TruncFOp>(op) || returned.contains(op->getResult(0)))
    return false;
  bool isOfTile = false;
  SmallVector<Operation *> pending = {op};
  while (!pending.empty()) {
    Operation *next = pending.pop_back_val();
    if (!made.insert(next))
      continue;
    if (isa<ReceiveOp>(next)) // another tile that comes from memory
      continue;
    bool isNumberByNumber = next->hasTrait<OpTrait::Elementwise>() || isa<chunk::BroadcastOp, arith::ConstantOp>(next);
    if (!isNumberByNumber || !isMemoryEffectFree(next))
      return false;
    for (Value operand : next->getOperands()) {
      if (returned.contains(operand))
        return false;
      Operation *source = operand.getDefiningOp();
      bool isOfLoop = isInLoop(operand) && operand != loop.getInductionVar();
      bool isFirst = source ? needed.contains(source) : isOfLoop;
      if (auto carried = dyn_cast<BlockArgument>(operand); carried && isOfLoop)
        isFirst = isOfFirst[carried.getArgNumber() - 1];
      if (isFirst)
        isOfTile |= operand.getType() == next->getResult(0).getType() || next == op;
      else if (source && isOfLoop)
        pending.push_back(source);
      else if (isOfLoop)
        return false;
    }
  }
  return isOfTile;
}

/// Whether an operation is made of tiles that come from memory alone, by operations of a kind, and nothing on the way
/// is asked for elsewhere: then the first part may make it.
bool RoleFinder::isMadeOfTilesAlone(Operation *op, llvm::SetVector<Operation *> &made,
                                    function_ref<bool(Operation *)> isOfKind) {
  made.insert(op);
  for (size_t index = 0; index < made.size(); ++index) {
    Operation *next = made[index];
    if (isa<ReceiveOp>(next))
      continue;
    if (!isMemoryEffectFree(next) || !isOfKind(next))
      return false;
    for (Value operand : next->getOperands()) {
      if (!isInLoop(operand) || operand == loop.getInductionVar())
        continue;
      if (!operand.getDefiningOp())
        return false; // it is carried
      made.insert(operand.getDefiningOp());
    }
  }
  return llvm::all_of(made, [&](Operation *next) {
    bool mayBeShared = next == op || isa<ReceiveOp>(next) || isMadeAgain(next) || needed.contains(next);
    return mayBeShared || llvm::all_of(next->getUsers(), [&](Operation *user) { return made.contains(user); });
  });
}

/// Sums over rows of what is computed number by number.
bool RoleFinder::sumsUpTiles(chunk::ReduceOp op, llvm::SetVector<Operation *> &made) {
  auto isNumberByNumber = [&](Operation *next) {
    return next == op || next->hasTrait<OpTrait::Elementwise>() || isa<chunk::BroadcastOp, arith::ConstantOp>(next);
  };
  return op.getOver() == chunk::Side::Columns && isMadeOfTilesAlone(op, made, isNumberByNumber) &&
         llvm::any_of(made, [](Operation *next) {
           auto receive = dyn_cast<ReceiveOp>(next);
           return receive && cast<RankedTensorType>(receive.getType()).getRank() == 2;
         });
}

/// A matrix that products make, and that is rounded, as features of queries are.
bool RoleFinder::isMadeByProducts(arith::TruncFOp op, llvm::SetVector<Operation *> &made) {
  auto tile = dyn_cast<RankedTensorType>(op.getType());
  auto isAny = [](Operation *next) { return next->getNumRegions() == 0; };
  return tile && tile.getRank() == 2 && isMadeOfTilesAlone(op, made, isAny) &&
         llvm::any_of(made, llvm::IsaPred<chunk::DotOp>);
}

bool RoleFinder::findOutputs(bool prepares, bool isPrepared) {
  if (!findLoop())
    return false;
  walksFirst = true;
  Block &body = *loop.getBody();
  unsigned count = loop.getNumRegionIterArgs();
  isOfSecond.assign(count, false);
  bool carriesStates = false;
  auto needStates = [&] {
    needed.clear();
    isOfFirst.assign(count, false);
    for (unsigned number = 0; number < count; ++number)
      if (bool isState = isStateOfProducts(number); isState || !loop.getResult(number).use_empty()) {
        carriesStates |= isState;
        need(loop.getRegionIterArg(number));
      }
  };
  needStates();
  if (prepares) {
    findReturned();
    needStates();
  }
  auto isProduct = llvm::IsaPred<chunk::DotOp, MatvecOp>;
  if (!carriesStates || llvm::none_of(needed, isProduct) || llvm::any_of(needed, llvm::IsaPred<StoreOp, scf::ForOp>))
    return false;
  for (bool isStable = false; !isStable;) {
    isStable = true;
    for (Operation &op : body.without_terminator()) {
      llvm::SetVector<Operation *> made;
      if (!needed.contains(&op) && narrows(&op, made)) {
        needed.insert_range(made);
        isStable = false;
      }
    }
  }
  if (isPrepared)
    for (auto sums : body.getOps<chunk::ReduceOp>()) {
      llvm::SetVector<Operation *> made;
      if (!needed.contains(sums) && sumsUpTiles(sums, made))
        needed.insert_range(made);
    }
  // Those who meet other chunks have most to do.
  if (isPrepared && meetsChunks())
    for (auto rounding : body.getOps<arith::TruncFOp>()) {
      llvm::SetVector<Operation *> made;
      if (!needed.contains(rounding) && isMadeByProducts(rounding, made))
        needed.insert_range(made);
    }
  // What outputs are made of beside that.
  SmallVector<Value> pending;
  auto join = [&](Operation *op) {
    if (needed.contains(op) || !second.insert(op))
      return;
    llvm::append_range(pending, op->getOperands());
    llvm::SetVector<Value> used;
    getUsedValuesDefinedAbove(op->getRegions(), used);
    llvm::append_range(pending, used);
  };
  // A state that is left as it is carried the walk stores itself: it would be passed in each turn.
  auto isAsCarried = [&](Operation &op) {
    auto store = dyn_cast<StoreOp>(op);
    auto state = store ? dyn_cast<BlockArgument>(store.getTile()) : BlockArgument();
    return state && state.getOwner() == &body && isOfFirst[state.getArgNumber() - 1];
  };
  // The first tile of another chunk is sent before the loop that meets it.
  auto sendsMetTile = [](Operation &op) {
    return isa<scf::IfOp>(op) && op.walk([](SendOp) { return WalkResult::interrupt(); }).wasInterrupted();
  };
  for (Operation &op : body)
    if ((isa<StoreOp, CarryOp>(op) && !isAsCarried(op)) || sendsMetTile(op))
      join(&op);
  for (Value value : returned)
    join(value.getDefiningOp());
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (!isInLoop(value) || value == loop.getInductionVar())
      continue;
    if (Operation *op = value.getDefiningOp()) {
      join(op);
      continue;
    }
    unsigned number = cast<BlockArgument>(value).getArgNumber() - 1;
    if (isOfFirst[number] || isOfSecond[number])
      continue;
    isOfSecond[number] = true;
    reached.insert(value);
    pending.push_back(body.getTerminator()->getOperand(number));
  }
  for (Operation *op : second)
    reached.insert(op->result_begin(), op->result_end());
  // Nothing is passed on its way to what is passed back.
  for (Operation *op : needed) {
    llvm::SetVector<Value> used(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), used);
    if (llvm::any_of(used, [&](Value value) { return isReached(value) && !returned.contains(value); }))
      return false;
  }
  return llvm::any_of(second, isProduct) && llvm::any_of(second, llvm::IsaPred<StoreOp>) && expectsOfFirst();
}

/// Whether what a turn expects follows from the first part alone, which ends with it.
bool RoleFinder::expectsOfFirst() {
  llvm::SetVector<Operation *> made;
  for (auto expected : loop.getBody()->getOps<chunk::ExpectOp>())
    made.insert(expected);
  for (size_t index = 0; index < made.size(); ++index)
    for (Value operand : made[index]->getOperands()) {
      if (isReached(operand))
        return false;
      if (Operation *op = operand.getDefiningOp(); op && loop->isProperAncestor(op))
        made.insert(op);
    }
  return true;
}

bool RoleDivision::isNumber(Operation *op) {
  return isMemoryEffectFree(op) && op->getNumRegions() == 0 && op->getNumResults() == 1 &&
         op->getResult(0).getType().isIndex();
}

bool RoleFinder::isMadeAgain(Operation *op) {
  // A row of a matrix that is computed is less than that.
  if (auto row = dyn_cast<chunk::RowOp>(op))
    if (cast<RankedTensorType>(row.getOperand().getType()).getRank() == 2 &&
        !isa_and_nonnull<ReceiveOp>(row.getOperand().getDefiningOp()))
      return false;
  return isNumber(op) ||
         (isMemoryEffectFree(op) && isa<arith::ConstantOp, chunk::BroadcastOp, chunk::RowOp, arith::ExtFOp>(op));
}

bool RoleFinder::take(Value value) {
  if (!isInLoop(value) || isReached(value) || value == loop.getInductionVar() || passed.contains(value))
    return true;
  Operation *op = value.getDefiningOp();
  if (auto receive = dyn_cast_if_present<ReceiveOp>(op); receive && receive.getChunk())
    return take(receive.getChunk());
  if (op && isMadeAgain(op)) {
    again.insert(op);
    return llvm::all_of(op->getOperands(), [&](Value operand) { return take(operand); });
  }
  auto tile = dyn_cast<RankedTensorType>(value.getType());
  if (!value.getType().isInteger(1) && !tile)
    return false;
  passed.insert(value);
  return true;
}

bool RoleFinder::canPass() {
  for (Operation *op : second) {
    llvm::SetVector<Value> used(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), used);
    for (Value value : used)
      if (!take(value))
        return false;
  }
  for (auto [isOwn, next] : llvm::zip(isOfSecond, loop.getBody()->getTerminator()->getOperands()))
    if (isOwn && !take(next))
      return false;
  int64_t bytes = 0;
  for (Value value : llvm::concat<const Value>(passed, returned))
    if (auto tile = dyn_cast<RankedTensorType>(value.getType()))
      bytes += sharedBytesOf(tile);
  return bytes <= (walksFirst ? mostBytesOfOutputs : mostBytes);
}

std::optional<RoleDivision> RoleDivision::ahead(FuncOp function, bool ofStates) {
  RoleFinder finder(function);
  if (!finder.findWalk(ofStates) || !finder.canPass())
    return std::nullopt;
  return finder;
}

std::optional<RoleDivision> RoleDivision::behind(FuncOp function, bool prepares, bool isPrepared) {
  RoleFinder finder(function);
  if (!finder.findOutputs(prepares, isPrepared) || !finder.canPass())
    return std::nullopt;
  return finder;
}
