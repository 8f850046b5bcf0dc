//===- DivideRoles.cpp - Warps that walk, and others before or behind them -===//

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"
#include "runtime/Manifest.h"

namespace stretto {
#define GEN_PASS_DEF_DIVIDEROLES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Divides the loop of a function in two, of which the second part takes what the first passes: what the states that it
/// carries do not reach, and what follows from them; or what the next states depend on, and the outputs. Those who find
/// outputs have more time than those who walk: they make what these add to states, too, and pass it back.
class Divider {
public:
  explicit Divider(FuncOp function) : function(function) {}

  /// Whether the function has a loop that carries states and stores what follows from them, and something is left for
  /// those who run ahead.
  bool findWalk();
  /// Whether the function has a loop that carries states, and outputs that products beside those of the states find.
  /// With `prepares` those who find them also make what the walk adds.
  bool findOutputs(bool prepares);
  /// Whether all that the second part takes of the first can be passed.
  bool canPass();
  /// Makes the function that runs ahead, and leaves of this one the walk; the latter.
  FuncOp runAhead(int64_t warpsAhead, int64_t warpsOfWalk);
  /// Makes the function that walks, and leaves of this one what finds outputs behind it; the former.
  FuncOp walkAhead(int64_t warpsOfOutputs, int64_t warpsOfWalk);
  /// Whether the second part carries nothing from chunk to chunk.
  bool takesTurns() { return !llvm::is_contained(isOfSecond, true); }

private:
  /// Of a turn: what is passed takes the place of tiles that come from memory.
  static constexpr int64_t mostBytes = int64_t(64) * 1024, mostBytesOfOutputs = int64_t(80) * 1024;

  bool findLoop();
  bool isStateOfProducts(unsigned number);
  void reach();
  DenseSet<Value> reachedByStates();
  bool isMadeOfTiles(Value value, const DenseSet<Value> &ofStates);
  void findReturned();
  void need(Value value);
  bool narrows(Operation *op, llvm::SetVector<Operation *> &made);
  bool isReached(Value value) { return reached.contains(value); }
  bool isInLoop(Value value) { return value.getParentBlock() == loop.getBody(); }
  /// Whether the second part may compute a value anew, from constants and numbers that it repeats.
  static bool isMadeAgain(Operation *op);
  static bool isNumber(Operation *op);
  bool take(Value value);
  /// Makes the first part, and leaves of the function the second.
  FuncOp divide();
  void passAll(FuncOp first, IRMapping &mapping);
  void receiveAll();
  void passBack(Value turn);
  void receiveBack(FuncOp first, scf::ForOp own, Value turn, IRMapping &mapping);
  ChannelOp createReturned(FuncOp function, int64_t number, Value value);
  static void keepCarried(scf::ForOp loop, ArrayRef<bool> kept);
  static void eraseUnused(FuncOp function);

  FuncOp function;
  scf::ForOp loop;
  DenseSet<Value> reached;                 // what the second part makes or carries
  llvm::SetVector<Operation *> second;     // operations of the loop
  DenseSet<Operation *> again;             // those of the first that the second makes again
  SmallVector<bool> isOfFirst, isOfSecond; // what the loop carries
  llvm::SetVector<Value> passed;           // tiles and conditions
  llvm::SetVector<Value> returned;         // tiles that the second part makes for the first
  llvm::SetVector<Operation *> needed;     // operations that the next states depend on
  bool walksFirst = false;                 // the second part finds outputs
};

} // namespace

/// What a loop carries is a state of products if its next value is more than rows that are kept for convolutions.
bool Divider::isStateOfProducts(unsigned number) {
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

void Divider::reach() {
  for (Operation &op : loop.getBody()->without_terminator()) {
    llvm::SetVector<Value> used(op.operand_begin(), op.operand_end());
    getUsedValuesDefinedAbove(op.getRegions(), used);
    if (llvm::none_of(used, [&](Value value) { return isReached(value); }))
      continue;
    second.insert(&op);
    reached.insert(op.result_begin(), op.result_end());
  }
}

bool Divider::findLoop() {
  for (auto each : function.getOps<scf::ForOp>()) {
    if (loop)
      return false;
    loop = each;
  }
  if (!loop || getConstantIntValue(loop.getStep()) != 1)
    return false;
  // Loops over other chunks, and the numbers of those that are met, belong to one part.
  bool meetsChunks = !loop.getBody()->getOps<scf::ForOp>().empty() ||
                     llvm::any_of(loop.getRegionIterArgs(), [](Value carried) { return carried.getType().isIndex(); });
  if (meetsChunks)
    return false;
  // What the loop leaves are final states, and nothing that is computed further.
  return llvm::all_of(loop->getUsers(), llvm::IsaPred<SaveOp>);
}

bool Divider::findWalk() {
  if (!findLoop())
    return false;
  unsigned count = loop.getNumRegionIterArgs();
  for (unsigned number = 0; number < count; ++number)
    isOfSecond.push_back(isStateOfProducts(number));
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
  for (bool isOfWalk : isOfSecond)
    isOfFirst.push_back(!isOfWalk);
  bool isAhead = llvm::any_of(*loop.getBody(), [&](Operation &op) {
    return !second.contains(&op) && isa<chunk::DotOp, MatvecOp, scf::IfOp, scf::ForOp>(op);
  });
  bool leavesRows = llvm::any_of(second, llvm::IsaPred<StoreOp>);
  return llvm::is_contained(isOfSecond, true) && isAhead && leavesRows;
}

/// What a value of the loop is made of, from one turn to the next.
void Divider::need(Value value) {
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
DenseSet<Value> Divider::reachedByStates() {
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
bool Divider::isMadeOfTiles(Value value, const DenseSet<Value> &ofStates) {
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
void Divider::findReturned() {
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
bool Divider::narrows(Operation *op, llvm::SetVector<Operation *> &made) {
  if (!isa<arith::TruncFOp>(op) || returned.contains(op->getResult(0)))
    return false;
  bool isOfTile = false;
  SmallVector<Operation *> pending = {op};
  while (!pending.empty()) {
    Operation *next = pending.pop_back_val();
    if (!made.insert(next))
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

bool Divider::findOutputs(bool prepares) {
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
  if (!carriesStates || llvm::none_of(needed, isProduct) || llvm::any_of(needed, llvm::IsaPred<StoreOp>))
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
  for (Operation &op : body)
    if (isa<StoreOp, CarryOp>(op))
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
  return llvm::any_of(second, isProduct) && llvm::any_of(second, llvm::IsaPred<StoreOp>);
}

bool Divider::isNumber(Operation *op) {
  return isMemoryEffectFree(op) && op->getNumRegions() == 0 && op->getNumResults() == 1 &&
         op->getResult(0).getType().isIndex();
}

bool Divider::isMadeAgain(Operation *op) {
  return isNumber(op) ||
         (isMemoryEffectFree(op) && isa<arith::ConstantOp, chunk::BroadcastOp, chunk::RowOp, arith::ExtFOp>(op));
}

bool Divider::take(Value value) {
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

bool Divider::canPass() {
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

/// Leaves a loop some of what it carries; the rest has no uses but in what it yields.
void Divider::keepCarried(scf::ForOp loop, ArrayRef<bool> kept) {
  OpBuilder builder(loop);
  SmallVector<Value> initial;
  BitVector dropped(loop.getBody()->getNumArguments());
  BitVector droppedOperands(kept.size());
  for (auto [number, value] : llvm::enumerate(loop.getInitArgs())) {
    if (kept[number]) {
      initial.push_back(value);
      continue;
    }
    dropped.set(number + 1);
    droppedOperands.set(number);
  }
  auto next =
      scf::ForOp::create(builder, loop.getLoc(), loop.getLowerBound(), loop.getUpperBound(), loop.getStep(), initial);
  loop.getBody()->getTerminator()->eraseOperands(droppedOperands);
  next.getRegion().takeBody(loop.getRegion());
  next.getBody()->eraseArguments(dropped);
  ValueRange results = next.getResults();
  for (auto [number, result] : llvm::enumerate(loop.getResults()))
    if (kept[number]) {
      result.replaceAllUsesWith(results.front());
      results = results.drop_front();
    }
  loop.erase();
}

/// What nobody asks for any longer, and channels that nobody receives from.
void Divider::eraseUnused(FuncOp function) {
  for (ChannelOp channel : llvm::make_early_inc_range(function.getOps<ChannelOp>())) {
    if (llvm::any_of(channel->getUsers(), llvm::IsaPred<PassOp>))
      continue;
    bool isReceived =
        llvm::any_of(channel->getUsers(), [](Operation *user) { return isa<ReceiveOp>(user) && !user->use_empty(); });
    if (isReceived)
      continue;
    for (Operation *user : llvm::make_early_inc_range(channel->getUsers()))
      user->erase();
    channel.erase();
  }
  function.walk<WalkOrder::PostOrder, ReverseIterator>([&](Operation *op) {
    bool isErased = op->use_empty() && (isa<LoadOp, EvaluateOp>(op) || isOpTriviallyDead(op));
    if (isErased && !op->hasTrait<OpTrait::IsTerminator>())
      op->erase();
  });
}

static Value flagTile(OpBuilder &builder, Location loc, Value condition) {
  auto type = RankedTensorType::get({1}, builder.getI1Type());
  auto number = [&](bool value) {
    return arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, value));
  };
  return arith::SelectOp::create(builder, loc, condition, number(true), number(false));
}

static ChannelOp createPassed(FuncOp function, int64_t number, Value value) {
  OpBuilder builder = OpBuilder::atBlockBegin(function.getBlock());
  auto tile = dyn_cast<RankedTensorType>(value.getType());
  tile = tile ? tile : RankedTensorType::get({1}, builder.getI1Type());
  return ChannelOp::create(builder, function.getLoc(), ChannelType::get(builder.getContext(), tile), /*depth=*/1,
                           builder.getI64IntegerAttr(number), false, nullptr, nullptr);
}

static Value turnOf(scf::ForOp loop) {
  OpBuilder builder = OpBuilder::atBlockBegin(loop.getBody());
  return builder.createOrFold<arith::SubIOp>(loop.getLoc(), loop.getInductionVar(), loop.getLowerBound());
}

/// Makes a value that follows from what the loop carries at the start of a turn, before anything is waited for.
static void hoist(Value value, scf::ForOp loop, Operation *before) {
  SmallVector<Value> pending = {value};
  llvm::SetVector<Operation *> made;
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || !loop->isProperAncestor(op) || made.contains(op))
      continue;
    if (op->getParentOp() != loop.getOperation() || op->getNumRegions() || !isMemoryEffectFree(op))
      return;
    made.insert(op);
    llvm::append_range(pending, op->getOperands());
  }
  // In the order in which they stand.
  SmallVector<Operation *> order;
  for (Operation &op : *loop.getBody())
    if (made.contains(&op))
      order.push_back(&op);
  for (Operation *op : order)
    if (before->isBeforeInBlock(op))
      op->moveBefore(before);
}

void Divider::passAll(FuncOp first, IRMapping &mapping) {
  auto own = cast<scf::ForOp>(mapping.lookup(loop.getOperation()));
  Value turn = turnOf(own);
  Operation *start = &*llvm::find_if(*own.getBody(), [](Operation &op) { return !isMemoryEffectFree(&op); });
  for (auto [number, original] : llvm::enumerate(passed)) {
    Value value = mapping.lookup(original);
    if (walksFirst)
      hoist(value, own, start);
    ChannelOp channel = createPassed(first, static_cast<int64_t>(number), value);
    OpBuilder builder(first.getContext());
    if (Operation *made = value.getDefiningOp())
      builder.setInsertionPointAfter(made);
    else
      builder.setInsertionPointAfterValue(turn);
    if (value.getType().isInteger(1))
      value = flagTile(builder, value.getLoc(), value);
    PassOp::create(builder, value.getLoc(), channel.getType().getTile(), value, channel, turn, /*matrices=*/false);
  }
  receiveBack(first, own, turn, mapping);
  // Numbers, as that of the next chunk, may be those of both.
  SmallVector<Operation *> others;
  for (Operation *op : second)
    if (!isNumber(op))
      others.push_back(mapping.lookup(op));
  for (Operation *op : others)
    op->dropAllUses();
  for (Operation *op : others)
    op->erase();
  for (auto [isOwn, result] : llvm::zip(isOfFirst, own.getResults()))
    if (!isOwn)
      for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
        user->erase();
  keepCarried(own, isOfFirst);
  eraseUnused(first);
}

/// Those of what goes back have the numbers behind those of what is passed.
ChannelOp Divider::createReturned(FuncOp function, int64_t number, Value value) {
  return createPassed(function, static_cast<int64_t>(passed.size()) + number, value);
}

/// The walk waits for what it is given where it wants it: what it passes for that has been passed by then, since the
/// operations stand in the order in which one role would do them.
void Divider::receiveBack(FuncOp first, scf::ForOp own, Value turn, IRMapping &mapping) {
  auto isErased = [&](Operation *op) {
    return llvm::any_of(second, [&](Operation *original) { return mapping.lookup(original) == op; });
  };
  for (auto [number, original] : llvm::enumerate(returned)) {
    Value value = mapping.lookup(original);
    ChannelOp channel = createReturned(first, static_cast<int64_t>(number), value);
    Operation *user = own.getBody()->getTerminator();
    for (Operation *each : value.getUsers())
      if (Operation *outer = own.getBody()->findAncestorOpInBlock(*each);
          !isErased(outer) && outer->isBeforeInBlock(user))
        user = outer;
    OpBuilder builder(user);
    Value tile = ReceiveOp::create(builder, value.getLoc(), channel.getType().getTile(), channel, Value(), turn);
    value.replaceUsesWithIf(
        tile, [&](OpOperand &use) { return !isErased(own.getBody()->findAncestorOpInBlock(*use.getOwner())); });
  }
}

void Divider::passBack(Value turn) {
  for (auto [number, made] : llvm::enumerate(returned)) {
    Value value = made;
    ChannelOp channel = createReturned(function, static_cast<int64_t>(number), value);
    OpBuilder builder(function.getContext());
    builder.setInsertionPointAfterValue(value);
    auto pass =
        PassOp::create(builder, value.getLoc(), channel.getType().getTile(), value, channel, turn, /*matrices=*/false);
    // Products of its own read the same tile.
    value.replaceUsesWithIf(pass.getResult(), [](OpOperand &use) { return isa<chunk::DotOp>(use.getOwner()); });
  }
}

void Divider::receiveAll() {
  Value turn = turnOf(loop);
  auto isOwn = [&](Operation *user) {
    Operation *own = loop.getBody()->findAncestorOpInBlock(*user);
    return second.contains(own) || again.contains(own) || own == loop.getBody()->getTerminator();
  };
  auto firstUser = [&](ValueRange values) {
    Operation *first = loop.getBody()->getTerminator();
    for (Value value : values)
      for (Operation *user : value.getUsers())
        if (Operation *own = loop.getBody()->findAncestorOpInBlock(*user); isOwn(user) && own->isBeforeInBlock(first))
          first = own;
    return first;
  };
  // Nothing is waited for before it is wanted.
  SmallVector<Operation *> own;
  for (Operation &op : loop.getBody()->without_terminator())
    if (again.contains(&op) && !llvm::all_of(op.getResultTypes(), llvm::IsaPred<IndexType>))
      own.push_back(&op);
  for (Operation *op : llvm::reverse(own))
    op->moveBefore(firstUser(op->getResults()));
  for (auto [number, taken] : llvm::enumerate(passed)) {
    Value value = taken;
    ChannelOp channel = createPassed(function, static_cast<int64_t>(number), value);
    OpBuilder builder(firstUser(value));
    Value tile = ReceiveOp::create(builder, value.getLoc(), channel.getType().getTile(), channel, Value(), turn);
    if (value.getType().isInteger(1))
      tile = ConditionOp::create(builder, value.getLoc(), tile);
    value.replaceUsesWithIf(tile, [&](OpOperand &use) { return isOwn(use.getOwner()); });
  }
  passBack(turn);
  // What has effects and is not of this part is the other's.
  for (Operation &op : llvm::make_early_inc_range(*loop.getBody()))
    if (isa<StoreOp, CarryOp>(op) && !second.contains(&op))
      op.erase();
  for (auto [isOwn, result] : llvm::zip(isOfSecond, loop.getResults()))
    if (!isOwn)
      for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
        user->erase();
  // What is carried for nobody falls with the loop that makes it.
  Operation *yield = loop.getBody()->getTerminator();
  for (auto [number, isOwn] : llvm::enumerate(isOfSecond))
    if (!isOwn)
      yield->setOperand(number, loop.getInitArgs()[number]);
  eraseUnused(function);
}

FuncOp Divider::divide() {
  IRMapping mapping;
  auto first = cast<FuncOp>(function->clone(mapping));
  passAll(first, mapping);
  receiveAll();
  keepCarried(loop, isOfSecond);
  eraseUnused(function);
  return first;
}

static void setRole(FuncOp function, RoleKind kind, int64_t warps, int64_t groups = 1) {
  MLIRContext *context = function.getContext();
  function.setRolesAttr(ArrayAttr::get(context, {RoleAttr::get(context, kind, warps, groups)}));
}

FuncOp Divider::runAhead(int64_t warpsAhead, int64_t warpsOfWalk) {
  FuncOp ahead = divide();
  ahead.setSymName((function.getSymName() + ".ahead").str());
  setRole(ahead, RoleKind::Ahead, warpsAhead);
  setRole(function, RoleKind::Walk, warpsOfWalk);
  function.setBeside(ahead.getSymName());
  function->getBlock()->getOperations().insert(std::next(function->getIterator()), ahead);
  return function;
}

FuncOp Divider::walkAhead(int64_t warpsOfOutputs, int64_t warpsOfWalk) {
  FuncOp walk = divide();
  function.setSymName((function.getSymName() + ".outputs").str());
  constexpr int64_t warpsOfGroup = 4;
  setRole(function, RoleKind::Outputs, std::min(warpsOfOutputs, warpsOfGroup),
          std::max<int64_t>(warpsOfOutputs / warpsOfGroup, 1));
  setRole(walk, RoleKind::Walk, warpsOfWalk);
  walk.setBeside(function.getSymName());
  function->getBlock()->getOperations().insert(function->getIterator(), walk);
  return walk;
}

namespace {
struct DivideRoles : stretto::impl::DivideRolesBase<DivideRoles> {
  using DivideRolesBase::DivideRolesBase;

  void runOnOperation() override {
    constexpr int64_t fewWarps = 4; // a warpgroup
    for (FuncOp function : llvm::make_early_inc_range(getOperation().getOps<FuncOp>())) {
      int64_t further = ahead ? ahead : outputs, walkers = walk ? walk : fewWarps;
      Divider divider(function);
      if (!further || function.getRole().getKind() != RoleKind::All)
        continue;
      // Two groups have few registers each.
      bool prepares = outputs <= fewWarps;
      if (!(ahead ? divider.findWalk() : divider.findOutputs(prepares)) || !divider.canPass())
        continue;
      if (!ahead && outputs > fewWarps && !divider.takesTurns())
        continue;
      FailureOr<Manifest> manifest = Manifest::leftOn(function);
      if (failed(manifest))
        return signalPassFailure();
      FuncOp walking = ahead ? divider.runAhead(ahead, walkers) : divider.walkAhead(outputs, walkers);
      (ahead ? manifest->threadsAhead : manifest->threadsOfOutputs) = lanesOfWarp * further;
      manifest->threads = lanesOfWarp * (further + walkers);
      for (FuncOp each : {walking, getOperation().lookupSymbol<FuncOp>(*walking.getBeside())})
        each->setAttr(Manifest::attributeName, manifest->toAttribute(&getContext()));
    }
  }
};
} // namespace
