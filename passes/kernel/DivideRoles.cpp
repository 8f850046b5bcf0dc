//===- DivideRoles.cpp - Warps that run ahead of those that walk ----------===//

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

/// Divides the loop of a function into what follows from the states that it carries, and what they do not reach.
class Divider {
public:
  explicit Divider(FuncOp function) : function(function) {}

  /// Whether the function has a loop that carries states and stores what follows from them, and something is left for
  /// those who run ahead.
  bool find();
  /// Whether all that the walk takes of the rest can be passed.
  bool canPass();
  /// Makes the function that runs ahead, and leaves of this one the walk.
  void divide(int64_t warpsAhead, int64_t warpsOfWalk);

private:
  /// Of a turn: what is passed takes the place of tiles that come from memory.
  static constexpr int64_t mostBytes = int64_t(64) * 1024;

  bool isStateOfProducts(unsigned number);
  void reach();
  bool isReached(Value value) { return reached.contains(value); }
  bool isInLoop(Value value) { return value.getParentBlock() == loop.getBody(); }
  /// Whether the walk may compute a value anew, from constants and numbers that it repeats.
  static bool isMadeAgain(Operation *op);
  bool take(Value value);
  void passAll(FuncOp ahead, IRMapping &mapping);
  void receiveAll();
  static void keepCarried(scf::ForOp loop, ArrayRef<bool> kept);
  static void eraseUnused(FuncOp function);

  FuncOp function;
  scf::ForOp loop;
  DenseSet<Value> reached;
  llvm::SetVector<Operation *> walked; // operations of the loop
  DenseSet<Operation *> again;         // those that the walk makes again
  SmallVector<bool> isOfWalk;          // what the loop carries
  llvm::SetVector<Value> passed;       // tiles and conditions
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
    walked.insert(&op);
    reached.insert(op.result_begin(), op.result_end());
  }
}

bool Divider::find() {
  for (auto each : function.getOps<scf::ForOp>()) {
    if (loop)
      return false;
    loop = each;
  }
  if (!loop || getConstantIntValue(loop.getStep()) != 1)
    return false;
  // What the loop leaves are final states, and nothing that is computed further.
  if (!llvm::all_of(loop->getUsers(), llvm::IsaPred<SaveOp>))
    return false;
  unsigned count = loop.getNumRegionIterArgs();
  for (unsigned number = 0; number < count; ++number)
    isOfWalk.push_back(isStateOfProducts(number));
  Operation *yield = loop.getBody()->getTerminator();
  for (bool isStable = false; !isStable;) {
    isStable = true;
    for (unsigned number = 0; number < count; ++number)
      if (isOfWalk[number])
        reached.insert(loop.getRegionIterArg(number));
    reach();
    for (unsigned number = 0; number < count; ++number)
      if (!isOfWalk[number] && isReached(yield->getOperand(number))) {
        isOfWalk[number] = true;
        isStable = false;
      }
  }
  bool isAhead = llvm::any_of(*loop.getBody(), [&](Operation &op) {
    return !walked.contains(&op) && isa<chunk::DotOp, MatvecOp, scf::IfOp, scf::ForOp>(op);
  });
  bool leavesRows = llvm::any_of(walked, llvm::IsaPred<StoreOp>);
  return llvm::is_contained(isOfWalk, true) && isAhead && leavesRows;
}

bool Divider::isMadeAgain(Operation *op) {
  bool isNumber = op->getNumResults() == 1 && op->getResult(0).getType().isIndex();
  return isMemoryEffectFree(op) && op->getNumRegions() == 0 &&
         (isNumber || isa<arith::ConstantOp, chunk::BroadcastOp, arith::ExtFOp>(op));
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
  for (Operation *op : walked) {
    llvm::SetVector<Value> used(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), used);
    for (Value value : used)
      if (!take(value))
        return false;
  }
  for (auto [isWalked, next] : llvm::zip(isOfWalk, loop.getBody()->getTerminator()->getOperands()))
    if (isWalked && !take(next))
      return false;
  int64_t bytes = 0;
  for (Value value : passed)
    if (auto tile = dyn_cast<RankedTensorType>(value.getType()))
      bytes += sharedBytesOf(tile);
  return bytes <= mostBytes;
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

void Divider::passAll(FuncOp ahead, IRMapping &mapping) {
  auto own = cast<scf::ForOp>(mapping.lookup(loop.getOperation()));
  Value turn = turnOf(own);
  for (auto [number, original] : llvm::enumerate(passed)) {
    Value value = mapping.lookup(original);
    ChannelOp channel = createPassed(ahead, static_cast<int64_t>(number), value);
    OpBuilder builder(ahead.getContext());
    if (Operation *made = value.getDefiningOp())
      builder.setInsertionPointAfter(made);
    else
      builder.setInsertionPointAfterValue(turn);
    if (value.getType().isInteger(1))
      value = flagTile(builder, value.getLoc(), value);
    PassOp::create(builder, value.getLoc(), channel.getType().getTile(), value, channel, turn, /*matrices=*/false);
  }
  for (Operation *op : walked)
    mapping.lookup(op)->dropAllUses();
  for (Operation *op : walked)
    mapping.lookup(op)->erase();
  SmallVector<bool> kept;
  for (auto [isWalked, result] : llvm::zip(isOfWalk, own.getResults())) {
    kept.push_back(!isWalked);
    if (isWalked)
      for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
        user->erase();
  }
  keepCarried(own, kept);
  eraseUnused(ahead);
}

void Divider::receiveAll() {
  Value turn = turnOf(loop);
  auto isOwn = [&](Operation *user) {
    Operation *own = loop.getBody()->findAncestorOpInBlock(*user);
    return walked.contains(own) || again.contains(own) || own == loop.getBody()->getTerminator();
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
    if (again.contains(&op))
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
  // What has effects and is not reached is the other's.
  for (Operation &op : llvm::make_early_inc_range(*loop.getBody()))
    if (isa<StoreOp, CarryOp>(op) && !walked.contains(&op))
      op.erase();
  for (auto [isWalked, result] : llvm::zip(isOfWalk, loop.getResults()))
    if (!isWalked)
      for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
        user->erase();
  // What is carried for nobody falls with the loop that makes it.
  Operation *yield = loop.getBody()->getTerminator();
  for (auto [number, isWalked] : llvm::enumerate(isOfWalk))
    if (!isWalked)
      yield->setOperand(number, loop.getInitArgs()[number]);
  eraseUnused(function);
}

void Divider::divide(int64_t warpsAhead, int64_t warpsOfWalk) {
  MLIRContext *context = function.getContext();
  IRMapping mapping;
  auto ahead = cast<FuncOp>(function->clone(mapping));
  ahead.setSymName((function.getSymName() + ".ahead").str());
  function->getBlock()->getOperations().insert(std::next(function->getIterator()), ahead);
  auto roles = [&](RoleKind kind, int64_t warps) {
    return ArrayAttr::get(context, {RoleAttr::get(context, kind, warps)});
  };
  ahead.setRolesAttr(roles(RoleKind::Ahead, warpsAhead));
  function.setRolesAttr(roles(RoleKind::Walk, warpsOfWalk));
  function.setBeside(ahead.getSymName());
  passAll(ahead, mapping);
  receiveAll();
  keepCarried(loop, isOfWalk);
  eraseUnused(function);
}

namespace {
struct DivideRoles : stretto::impl::DivideRolesBase<DivideRoles> {
  using DivideRolesBase::DivideRolesBase;

  void runOnOperation() override {
    constexpr int64_t fewWarps = 4; // a warpgroup
    for (FuncOp function : llvm::make_early_inc_range(getOperation().getOps<FuncOp>())) {
      FailureOr<Manifest> manifest = Manifest::leftOn(function);
      if (failed(manifest))
        return signalPassFailure();
      Divider divider(function);
      if (!ahead || function.getRole().getKind() != RoleKind::All || !divider.find() || !divider.canPass())
        continue;
      divider.divide(ahead, walk ? walk : fewWarps);
      manifest->threadsAhead = lanesOfWarp * ahead;
      manifest->threads = manifest->threadsAhead + lanesOfWarp * function.getWarps();
      for (FuncOp each : {function, getOperation().lookupSymbol<FuncOp>(*function.getBeside())})
        each->setAttr(Manifest::attributeName, manifest->toAttribute(&getContext()));
    }
  }
};
} // namespace
