//===- DivideRoles.cpp - Warps that walk, and others before or behind them -===//

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Iterators.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/Passes.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/RoleDivision.h"
#include "runtime/Manifest.h"

namespace stretto {
#define GEN_PASS_DEF_DIVIDEROLES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Makes a function of each part.
class Divider : RoleDivision {
public:
  Divider(FuncOp function, RoleDivision division)
      : RoleDivision(std::move(division)), function(function), before(numberBehindPassed(function)) {}

  /// Makes the function that runs ahead, and leaves of this one the walk; the latter.
  FuncOp runAhead(int64_t warpsAhead, int64_t warpsOfWalk);
  /// Makes the function that walks, and leaves of this one what finds outputs behind it; the former.
  FuncOp walkAhead(int64_t warpsOfOutputs, int64_t warpsOfWalk);

private:
  /// Makes the first part, and leaves of the function the second.
  FuncOp divide();
  void passAll(FuncOp first, IRMapping &mapping);
  void receiveAll();
  void passBack(Value turn);
  void receiveBack(FuncOp first, scf::ForOp own, Value turn, IRMapping &mapping);
  ChannelOp createReturned(FuncOp function, int64_t number, Value value);
  int64_t numberOf(int64_t number, Value value);
  static void keepCarried(scf::ForOp loop, ArrayRef<bool> kept);
  static void eraseUnused(FuncOp function);

  FuncOp function;
  int64_t before; // what it passes to others already
};

} // namespace

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
                           builder.getI64IntegerAttr(number), false, nullptr, nullptr, nullptr);
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

/// A matrix that goes to others already, from who makes it: they and the walk read it at one place.
static PassOp knownPass(Value value, const llvm::SetVector<Operation *> &second) {
  auto tile = dyn_cast<RankedTensorType>(value.getType());
  if (!tile || tile.getRank() < 2)
    return {};
  for (Operation *user : value.getUsers())
    if (auto pass = dyn_cast<PassOp>(user); pass && !second.contains(user))
      return pass;
  return {};
}

/// The number of a channel of the second part, for what is passed.
int64_t Divider::numberOf(int64_t number, Value value) {
  PassOp known = knownPass(value, second);
  return known ? static_cast<int64_t>(*known.getChannel().getDefiningOp<ChannelOp>().getPassed()) : before + number;
}

void Divider::passAll(FuncOp first, IRMapping &mapping) {
  auto own = cast<scf::ForOp>(mapping.lookup(loop.getOperation()));
  Value turn = turnOf(own);
  Operation *start = &*llvm::find_if(*own.getBody(), [](Operation &op) { return !isMemoryEffectFree(&op); });
  for (auto [number, original] : llvm::enumerate(passed)) {
    if (knownPass(original, second))
      continue;
    Value value = mapping.lookup(original);
    if (walksFirst)
      hoist(value, own, start);
    ChannelOp channel = createPassed(first, before + static_cast<int64_t>(number), value);
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
  Operation *yield = own.getBody()->getTerminator();
  for (auto [number, isOwn] : llvm::enumerate(isOfFirst))
    if (!isOwn)
      yield->setOperand(number, own.getInitArgs()[number]);
  eraseUnused(first);
  keepCarried(own, isOfFirst);
  eraseUnused(first);
}

/// Those of what goes back have the numbers behind those of what is passed.
ChannelOp Divider::createReturned(FuncOp function, int64_t number, Value value) {
  return createPassed(function, before + static_cast<int64_t>(passed.size()) + number, value);
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
  SmallVector<int64_t> numbers;
  for (auto [number, value] : llvm::enumerate(passed))
    numbers.push_back(numberOf(static_cast<int64_t>(number), value));
  // What has effects and is not of this part is the other's.
  for (Operation &op : llvm::make_early_inc_range(*loop.getBody()))
    if (isa<StoreOp, CarryOp, PassOp, chunk::ExpectOp>(op) && !second.contains(&op))
      op.erase();
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
    ChannelOp channel = createPassed(function, numbers[number], value);
    OpBuilder builder(firstUser(value));
    Value tile = ReceiveOp::create(builder, value.getLoc(), channel.getType().getTile(), channel, Value(), turn);
    if (value.getType().isInteger(1))
      tile = ConditionOp::create(builder, value.getLoc(), tile);
    value.replaceUsesWithIf(tile, [&](OpOperand &use) { return isOwn(use.getOwner()); });
  }
  passBack(turn);
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

namespace {
/// What those who run ahead of a walk that passes its states on load for their next chunk.
class NextLoads {
public:
  explicit NextLoads(FuncOp function) : loop(*function.getOps<scf::ForOp>().begin()) {
    auto yielded = loop.getBody()->getTerminator()->getOperands();
    for (auto [initial, next] : llvm::zip_equal(loop.getInitArgs(), yielded)) {
      auto first = initial.getDefiningOp<LoadOp>(), second = next.getDefiningOp<LoadOp>();
      if (first && second && first->hasOneUse() && second->hasOneUse() && first.getView() == second.getView() &&
          first.getChunk() == loop.getLowerBound() && isNext(second.getChunk()))
        loads.emplace_back(first, second);
    }
  }

  /// Whether nothing else is carried: then groups of warps may take chunks in turns.
  bool areAll() { return loads.size() == loop.getNumRegionIterArgs(); }

  /// Loads before all else: turns are hardly longer than memory takes. Groups load for their own chunks.
  void place(int64_t groups) {
    OpBuilder builder(loop);
    Value group = groups > 1 ? GroupOp::create(builder, loop.getLoc(), builder.getIndexType()).getResult() : Value();
    for (auto [first, next] : llvm::reverse(loads)) {
      Location loc = first.getLoc();
      if (group) {
        first->moveBefore(loop);
        builder.setInsertionPoint(first);
        first.getChunkMutable().assign(arith::AddIOp::create(builder, loc, loop.getLowerBound(), group));
      }
      builder.setInsertionPointToStart(loop.getBody());
      Value distance = arith::ConstantIndexOp::create(builder, loc, groups);
      Value chunk = arith::AddIOp::create(builder, loc, loop.getInductionVar(), distance);
      next->moveAfter(chunk.getDefiningOp());
      next.getChunkMutable().assign(chunk);
    }
  }

private:
  bool isNext(Value chunk) {
    auto sum = chunk ? chunk.getDefiningOp<arith::AddIOp>() : arith::AddIOp();
    return sum && sum.getLhs() == loop.getInductionVar() && getConstantIntValue(sum.getRhs()) == 1;
  }

  scf::ForOp loop;
  SmallVector<std::pair<LoadOp, LoadOp>> loads; // before the loop, and in it
};
} // namespace

/// Whether the memory system can copy all tiles that a function sends for: their rows are of so many bytes, and those
/// of slices do not reach into others (SelectCopies.cpp).
static bool comesInBoxes(FuncOp function) {
  constexpr int64_t pieceBytes = 16;
  FailureOr<Manifest> manifest = Manifest::leftOn(function);
  if (failed(manifest))
    return false;
  WalkResult result = function.walk([&](SendOp send) {
    RankedTensorType tile = send.getView().getType().getTile();
    int64_t bytes = tile.getRank() == 2 ? tile.getDimSize(1) * tile.getElementTypeBitWidth() / 8 : 0;
    bool isSliced = manifest->arguments[cast<BlockArgument>(send.getView()).getArgNumber()].sliced;
    bool isOfChunk = send.getChunk() != nullptr;
    return WalkResult(
        success(!isOfChunk || (bytes && bytes % pieceBytes == 0 && (!isSliced || llvm::isPowerOf2_64(bytes)))));
  });
  return !result.wasInterrupted();
}

/// What an operation of a loop is made of, it itself as the last, as far as `isLate` says so of it.
static SmallVector<Operation *> madeOf(Operation *op, function_ref<bool(Operation *)> isLate) {
  llvm::SetVector<Operation *> made;
  made.insert(op);
  for (size_t next = 0; next < made.size(); ++next)
    for (Value operand : made[next]->getOperands())
      if (Operation *own = operand.getDefiningOp(); own && own->getBlock() == op->getBlock() && isLate(own))
        made.insert(own);
  SmallVector<Operation *> order(made.begin(), made.end());
  llvm::sort(order, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return order;
}

/// Moves what a number of each row is summed up of to the start of a turn whose rows are expected in range, before
/// anything else takes registers.
static void sumUpFirst(scf::ForOp loop) {
  if (loop.getBody()->getOps<chunk::ExpectOp>().empty())
    return;
  Operation *first = nullptr;
  for (PassOp pass : loop.getBody()->getOps<PassOp>()) {
    auto sums = pass.getOperand().getDefiningOp<chunk::ReduceOp>();
    if (!sums || sums->getBlock() != loop.getBody())
      continue;
    for (Operation *op : madeOf(sums, [](Operation *) { return true; })) {
      first ? op->moveAfter(first) : op->moveBefore(&loop.getBody()->front());
      first = op;
    }
  }
}

/// Where a walk may end is told first, and then what is passed of numbers, which is made of few: tiles are made one
/// after the other behind that, each where those that it is made of are read for the last time.
static void passNumbersFirst(scf::ForOp loop) {
  auto isOfNumbers = [](PassOp pass) { return cast<RankedTensorType>(pass.getOperand().getType()).getRank() < 2; };
  auto expected = loop.getBody()->getOps<chunk::ExpectOp>();
  auto passes = loop.getBody()->getOps<PassOp>();
  if (expected.empty() || passes.empty())
    return;
  Operation *last = *expected.begin(), *first = *passes.begin();
  if (first->isBeforeInBlock(last))
    for (Operation *op : madeOf(last, [&](Operation *op) { return first->isBeforeInBlock(op); }))
      op->moveBefore(first);
  for (PassOp pass : llvm::to_vector(llvm::make_filter_range(passes, isOfNumbers))) {
    bool isSummedUp = pass.getOperand().getDefiningOp<chunk::ReduceOp>() != nullptr;
    for (Operation *op : madeOf(pass, [&](Operation *op) { return !isSummedUp && last->isBeforeInBlock(op); })) {
      op->moveAfter(last);
      last = op;
    }
  }
  // Those that are made of more tiles than others come before these, so that places are free for what is passed.
  auto isLate = [last](Operation *op) { return last->isBeforeInBlock(op); };
  auto countTiles = [&](PassOp pass) {
    return llvm::count_if(madeOf(pass, [&](Operation *op) { return isLate(op) || isa<ReceiveOp>(op); }),
                          llvm::IsaPred<ReceiveOp>);
  };
  SmallVector<std::pair<int64_t, SmallVector<Operation *>>> tiles;
  for (PassOp pass : passes)
    if (!isOfNumbers(pass))
      tiles.push_back({-countTiles(pass), madeOf(pass, isLate)});
  llvm::stable_sort(tiles, llvm::less_first());
  DenseSet<Operation *> moved;
  for (auto &[count, made] : tiles)
    for (Operation *op : made)
      if (moved.insert(op).second) {
        op->moveAfter(last);
        last = op;
      }
}

FuncOp Divider::runAhead(int64_t warpsAhead, int64_t warpsOfWalk) {
  constexpr int64_t warpsOfGroup = 4;
  FuncOp ahead = divide();
  for (auto each : ahead.getOps<scf::ForOp>()) {
    sumUpFirst(each);
    passNumbersFirst(each);
  }
  int64_t groups = 1;
  if (before || leavesStates) {
    NextLoads loads(ahead);
    // Beside a walk that leaves states alone there is room for two groups, if a producer can send for them.
    bool isForGroups = !leavesStates || comesInBoxes(ahead);
    if (leavesStates && loads.areAll() && isForGroups)
      warpsAhead = 2 * warpsOfGroup;
    // Groups that take turns would not know of each other where the walk ends.
    bool mayEnd = ahead.walk([](chunk::ExpectOp) { return WalkResult::interrupt(); }).wasInterrupted();
    if (warpsAhead > warpsOfGroup && loads.areAll() && isForGroups && !mayEnd)
      groups = warpsAhead / warpsOfGroup;
    loads.place(groups);
  }
  ahead.setSymName((function.getSymName() + ".ahead").str());
  setRole(ahead, RoleKind::Ahead, warpsAhead / groups, groups);
  setRole(function, RoleKind::Walk, warpsOfWalk);
  // Behind a walk there may be others already: what is beside it is beside those who run ahead, who were cloned of it.
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
    if (!ahead && !outputs)
      return;
    for (FuncOp function : llvm::make_early_inc_range(getOperation().getOps<FuncOp>()))
      if (function.getRole().getKind() == RoleKind::All && failed(divide(function)))
        return signalPassFailure();
  }

private:
  LogicalResult divide(FuncOp function) {
    constexpr int64_t fewWarps = 4; // a warpgroup
    int64_t walkers = walk ? walk : fewWarps;
    FailureOr<Manifest> manifest = Manifest::leftOn(function);
    if (failed(manifest))
      return failure();
    manifest->threads = lanesOfWarp * walkers;
    FuncOp walking;
    if (outputs) {
      // Two groups have few registers each.
      bool prepares = outputs <= fewWarps && !ahead;
      std::optional<RoleDivision> division = RoleDivision::behind(function, prepares, /*isPrepared=*/ahead > 0);
      if (division && (outputs <= fewWarps || division->takesTurns())) {
        walking = Divider(function, std::move(*division)).walkAhead(outputs, walkers);
        manifest->threads += manifest->threadsOfOutputs = lanesOfWarp * outputs;
      }
    }
    if (ahead) {
      FuncOp whole = walking ? walking : function;
      if (std::optional<RoleDivision> division =
              RoleDivision::ahead(whole, /*ofStates=*/outputs > 0 || isOfGradient(whole))) {
        walking = Divider(whole, std::move(*division)).runAhead(ahead, walkers);
        manifest->threads += manifest->threadsAhead = FuncOp(walking.getRolesOfBlock()[1]).getThreads();
      }
    }
    if (walking)
      for (FuncOp each : walking.getRolesOfBlock())
        each->setAttr(Manifest::attributeName, manifest->toAttribute(&getContext()));
    return success();
  }
};
} // namespace
