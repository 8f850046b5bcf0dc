//===- FoldOverChunks.cpp - What a block does, chunk after chunk ----------===//

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"
#include "passes/kernel/KernelFolder.h"
#include "runtime/Manifest.h"

namespace stretto {
#define GEN_PASS_DEF_FOLDOVERCHUNKS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Products of matrices: four warps where their registers hold the states with room to spare, which is more where four
/// form products together. Else eight, and so for a gradient, which has many products and other tiles, where each
/// channel has a decay, where numbers of tables are computed, and for what segments that are apart leave in the states:
/// these are as many as multiprocessors, where warps of another block would hide no latency. Walks over states: up to
/// four warps with 32 entries for each thread, or half as many again; more where it would have twice that.
int64_t chooseWarps(chunk::KernelOp kernel, bool warpgroups, bool computeTables) {
  constexpr int64_t lanes = 32, few = 32 * lanes, many = 64 * lanes, mostWarps = 16;
  bool isDemanding = computeTables && !kernel.argumentsOf(chunk::ArgumentKind::Table).empty();
  isDemanding |= kernel.getSegments() == chunk::Segments::Apart && kernel.getOutputs().empty();
  kernel.walk([&](chunk::WithinOp) { isDemanding = true; });
  constexpr int64_t manyProducts = 7;
  int64_t products = 0;
  kernel.walk([&](chunk::DotOp) { isDemanding |= ++products == manyProducts; });
  int64_t small = warpgroups && !isDemanding ? 4 * many : few;
  auto elementsOf = [&](chunk::ArgumentKind kind) {
    int64_t elements = 0;
    for (BlockArgument argument : kernel.argumentsOf(kind))
      elements += cast<RankedTensorType>(argument.getType()).getNumElements();
    return elements;
  };
  int64_t elements = elementsOf(chunk::ArgumentKind::State), warps = 1;
  // What a look-back adds up takes registers beside its scores.
  constexpr int64_t mostAddedUp = int64_t{128} * 128;
  int64_t addedUp = 0;
  for (auto lookback : kernel.getBlock()->getOps<chunk::LookbackOp>()) {
    int64_t ofOne = 0;
    for (Type sum : lookback.getResultTypes())
      ofOne += cast<RankedTensorType>(sum).getNumElements();
    addedUp = std::max(addedUp, ofOne);
  }
  bool isOfMeetings = warpgroups && addedUp > 0 && addedUp <= mostAddedUp && elements == 0 && !kernel.getSegments();
  if (kernel.getChunk() > 1)
    return isOfMeetings || (elements <= small && !kernel.getReverse()) ? 4 : 8;
  elements += elementsOf(chunk::ArgumentKind::Parameter) / 2; // they come and go
  kernel.walk([&](chunk::LookbackOp op) {                     // so do tiles of other tokens
    int64_t met = 0;
    for (Type tile : op.getBlock()->getArgumentTypes())
      met += cast<RankedTensorType>(tile).getNumElements();
    elements = std::max(elements, met);
  });
  while (2 * elements > 3 * warps * (warps < 4 ? few : many) && warps < mostWarps)
    warps *= 2;
  return warps;
}

} // namespace

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

void KernelFolder::foldOverChunks() {
  Value zero = constant(0), one = constant(1);
  perChunk = constant(kernel.getChunk());
  tokens = TokensOp::create(builder);
  Value begin = zero, end;
  if (walksSegment()) {
    auto segment = SegmentOp::create(builder);
    begin = segment.getBegin();
    end = segment.getEnd();
  } else {
    end = chunksOfSequence();
  }
  // In reverse the last chunk, which may have fewer tokens, comes first.
  Value last = kernel.getReverse() ? arith::SubIOp::create(builder, end, one).getResult() : Value();
  index = last ? last : begin;
  // Before a segment that the sequence does not reach is a chunk of another, of which there may be no rows yet.
  if (last && walksSegment())
    index = arith::MaxSIOp::create(builder, last, begin);

  hasTurns = true;
  openStreams(/*ahead=*/2);
  openLagging();
  SmallVector<Value> initial;
  for (BlockArgument argument : kernel.argumentsOf(chunk::ArgumentKind::State))
    initial.push_back(load(argument));
  // Single numbers of tokens are loaded a chunk ahead: nobody waits for them.
  size_t states = initial.size();
  SmallVector<Value> numbers;
  for (BlockArgument argument : kernel.argumentsOf(chunk::ArgumentKind::Input))
    if (isNumbers(argument)) {
      numbers.push_back(argument);
      initial.push_back(load(argument));
    }
  // Tiles that look-backs are sent are counted, so that each has a turn.
  for (auto lookback : kernel.getBlock()->getOps<chunk::LookbackOp>())
    for (BlockArgument argument : sentPast(lookback))
      if (turns.try_emplace(countedWith(argument), zero).second)
        initial.push_back(zero);
  auto loop = scf::ForOp::create(builder, begin, end, one, initial);
  builder.setInsertionPointToStart(loop.getBody());
  index = loop.getInductionVar();
  for (auto [turn, carried] : llvm::zip(turns, loop.getRegionIterArgs().drop_front(states + numbers.size())))
    turn.second = carried;
  if (last)
    index = arith::SubIOp::create(builder, arith::AddIOp::create(builder, begin, last), index);
  AwaitOp::create(builder);
  Value next = last ? arith::SubIOp::create(builder, index, one).getResult()
                    : arith::AddIOp::create(builder, index, one).getResult();
  for (auto &[argument, stream] : streams)
    if (stream.perChunk)
      SendOp::create(builder, view(argument), next, stream.channel, Value());
  nextIndex = next;
  sendLagging();
  // Of the chunks before a segment there may be no numbers yet: other kernels keep them.
  Value loaded = last && walksSegment() ? arith::MaxSIOp::create(builder, next, begin).getResult() : next;
  SmallVector<Value> numbersOfNext, carried;
  for (Value argument : numbers)
    numbersOfNext.push_back(
        LoadOp::create(builder, argument.getType(), view(cast<BlockArgument>(argument)), loaded, /*lowest=*/false));
  mapValid();
  mapping.map(numbers, loop.getRegionIterArgs().slice(states, numbers.size()));
  mapArguments(loop.getRegionIterArgs().take_front(states));
  emitBody();
  for (Value state : cast<chunk::YieldOp>(kernel.getBlock()->getTerminator()).getStates())
    carried.push_back(mapping.lookup(state));
  llvm::append_range(carried, numbersOfNext);
  llvm::append_range(carried, llvm::make_second_range(turns));
  if (!carried.empty())
    scf::YieldOp::create(builder, carried);
  eraseWhatLookbacksLeft(*loop.getBody());

  builder.setInsertionPointAfter(loop);
  for (auto [state, last] : llvm::zip(kernel.argumentsOf(chunk::ArgumentKind::State), loop.getResults()))
    SaveOp::create(builder, last, view(state));
  ReturnOp::create(builder);
}

void KernelFolder::takeChunk() {
  perChunk = constant(kernel.getChunk());
  tokens = TokensOp::create(builder);
  index = ChunkOp::create(builder);
  // There is one turn, so that the memory system may copy tiles.
  Value turn = constant(0);
  openStreams(/*ahead=*/1, turn);
  // Numbers of tokens are on their way while threads wait for tiles.
  for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back())
    if (isNumbers(argument))
      mapping.map(argument, load(argument));
  AwaitOp::create(builder);
  mapValid();
  mapArguments({}, turn);
  emitBody();
  ReturnOp::create(builder);
}

Value KernelFolder::chunksOfSequence() {
  Value rounded = arith::AddIOp::create(builder, tokens, constant(kernel.getChunk() - 1));
  return arith::DivUIOp::create(builder, rounded, perChunk);
}

void KernelFolder::openStreams(int64_t ahead, Value turn) {
  for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back()) {
    if (isState(argument) || isWindow(argument) || isComputed(argument) || isOnlyPast(argument) || isNumbers(argument))
      continue;
    Stream stream;
    stream.perChunk = isPerChunk(argument);
    auto type = ChannelType::get(builder.getContext(), cast<RankedTensorType>(argument.getType()));
    stream.channel =
        ChannelOp::create(builder, type, stream.perChunk ? ahead : 1, nullptr, false, nullptr, nullptr, nullptr);
    SendOp::create(builder, view(argument), stream.perChunk ? index : Value(), stream.channel,
                   stream.perChunk ? turn : Value());
    streams[argument] = stream;
  }
}

void KernelFolder::mapValid() {
  Value first = arith::MulIOp::create(builder, index, perChunk);
  Value left = arith::SubIOp::create(builder, tokens, first);
  mapping.map(kernel.getValid(), arith::MinSIOp::create(builder, left, perChunk));
}

void KernelFolder::mapArguments(ValueRange states, Value turn) {
  for (auto [argument, state] : llvm::zip(kernel.argumentsOf(chunk::ArgumentKind::State), states))
    mapping.map(argument, state);
  for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back())
    if (isComputed(argument))
      mapping.map(argument, evaluate(argument, argument.getType(), index));
    else if (isNumbers(argument) && !mapping.contains(argument))
      mapping.map(argument, load(argument));
  for (auto &[argument, stream] : streams)
    mapping.map(argument, ReceiveOp::create(builder, argument.getType(), stream.channel,
                                            stream.perChunk ? index : Value(), stream.perChunk ? turn : Value()));
}

bool KernelFolder::readsCheckpoints(Operation &op) {
  return llvm::any_of(kernel.argumentsOf(chunk::ArgumentKind::Checkpoint), [&](BlockArgument argument) {
    return llvm::any_of(argument.getUsers(), [&](Operation *user) { return op.isAncestor(user); });
  });
}

/// The operations of a kernel that its next states are made of.
static SmallVector<Operation *> makersOfStates(chunk::KernelOp kernel) {
  llvm::DenseSet<Operation *> needed;
  SmallVector<Value> pending(cast<chunk::YieldOp>(kernel.getBlock()->getTerminator()).getStates());
  while (!pending.empty())
    if (Operation *op = pending.pop_back_val().getDefiningOp(); op && needed.insert(op).second)
      llvm::append_range(pending, op->getOperands());
  SmallVector<Operation *> makers;
  for (Operation &op : kernel.getBlock()->without_terminator())
    if (needed.contains(&op))
      makers.push_back(&op);
  return makers;
}

/// The chunk before comes next: its tiles are received here, too. What it makes of its own states is rounded as they
/// are, and takes their place.
void KernelFolder::findStatesBetween() {
  SmallVector<BlockArgument> checkpoints = kernel.argumentsOf(chunk::ArgumentKind::Checkpoint);
  auto nameOf = [](chunk::KernelOp of, BlockArgument argument) {
    return of.getArgument(argument.getArgNumber()).getName();
  };
  auto namedAs = [&](ArrayRef<BlockArgument> arguments, BlockArgument other) {
    return *llvm::find_if(arguments, [&](BlockArgument own) { return nameOf(kernel, own) == nameOf(between, other); });
  };
  auto receiveOf = [&](BlockArgument own) { return mapping.lookup(own).getDefiningOp<ReceiveOp>(); };
  llvm::DenseMap<Value, Value> received;
  for (BlockArgument checkpoint : checkpoints)
    received[checkpoint] = builder.clone(*receiveOf(checkpoint))->getResult(0);
  Value one = constant(1), inPair = arith::AndIOp::create(builder, index, one);
  Value isSecond = arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, inPair, one);
  auto condition = scf::IfOp::create(builder, isSecond);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(condition.thenBlock());
  IRMapping before;
  before.map(between.getValid(), perChunk);
  for (BlockArgument input : between.argumentsOf(chunk::ArgumentKind::Input)) {
    BlockArgument own = namedAs(kernel.argumentsOf(chunk::ArgumentKind::Input), input);
    before.map(input, ReceiveOp::create(builder, own.getType(), streams[own].channel, nextIndex, Value()));
  }
  SmallVector<BlockArgument> states = between.argumentsOf(chunk::ArgumentKind::State);
  for (BlockArgument state : states) {
    Value kept = received.lookup(namedAs(checkpoints, state));
    bool isRounded = kept.getType() != state.getType();
    before.map(state, isRounded ? arith::ExtFOp::create(builder, state.getType(), kept).getResult() : kept);
  }
  for (Operation *op : makersOfStates(between))
    builder.clone(*op, before);
  auto yield = cast<chunk::YieldOp>(between.getBlock()->getTerminator());
  for (auto [state, next] : llvm::zip_equal(states, yield.getStates())) {
    Value found = before.lookup(next);
    ReceiveOp kept = receiveOf(namedAs(checkpoints, state));
    if (found.getType() != kept.getType())
      found = arith::TruncFOp::create(builder, kept.getType(), found);
    ReplaceOp::create(builder, found, kept.getChannel(), kept.getChunk(), kept.getTurn());
  }
  for (BlockArgument checkpoint : checkpoints)
    receiveOf(checkpoint)->moveAfter(condition);
}

/// What is made number by number of tiles that are still asked for behind an operation, and of rows and columns, of all
/// that is made before it.
static llvm::SmallPtrSet<Operation *, 16> madeOfTiles(Operation &before) {
  llvm::SmallPtrSet<Operation *, 16> made;
  auto isAskedForLater = [&](Value input) {
    return llvm::any_of(input.getUsers(), [&](Operation *user) {
      return !before.getBlock()->findAncestorOpInBlock(*user)->isBeforeInBlock(&before);
    });
  };
  auto isAtHand = [&](Value operand) {
    Operation *source = operand.getDefiningOp();
    if (source && made.contains(source))
      return true;
    auto tile = dyn_cast<RankedTensorType>(operand.getType());
    return !tile || tile.getRank() < 2 || (!source && isAskedForLater(operand));
  };
  for (Operation &op : llvm::make_range(before.getBlock()->begin(), before.getIterator()))
    if (isa<chunk::BroadcastOp, arith::ConstantOp, arith::ExtFOp, arith::MulFOp, arith::NegFOp>(op) &&
        llvm::all_of(op.getOperands(), isAtHand))
      made.insert(&op);
  return made;
}

void KernelFolder::makeAgain(Operation &of) {
  of.walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (Operation *source = operand.getDefiningOp(); source && leftBehind.erase(source)) {
        makeAgain(*source);
        builder.clone(*source, mapping);
      }
  });
}

void KernelFolder::emitBody() {
  // The many tiles of a gradient are stored as soon as they are known, and numbers that are saved for one on the way to
  // results: then they need no registers any longer.
  bool early = kernel.getReverse() || keepsCheckpoints();
  auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
  llvm::DenseSet<Operation *> onTheWay;
  for (Value output : yield.getOutputs())
    if (Operation *made = output.getDefiningOp()) {
      SetVector<Operation *> slice;
      (void)getBackwardSlice(made, &slice);
      onTheWay.insert_range(slice);
    }
  auto isEarly = [&](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return early || (type && type.getRank() < 2 && onTheWay.contains(value.getDefiningOp()));
  };
  auto storeEarly = [&](ValueRange values) { store(llvm::filter_to_vector(values, isEarly)); };
  storeEarly(kernel.getBlock()->getArguments());
  // What needs no states comes first, while the tiles are on their way of which those between others are made.
  bool asksForStates = bool(between);
  for (Operation &op : kernel.getBlock()->without_terminator()) {
    if (asksForStates && readsCheckpoints(op)) {
      findStatesBetween();
      asksForStates = false;
      leftBehind = madeOfTiles(op);
    }
    makeAgain(op);
    emit(op);
    storeEarly(op.getResults());
  }
  llvm::SmallSetVector<Value, 4> late(yield.getOutputs().begin(), yield.getOutputs().end());
  late.remove_if(isEarly);
  store(late.getArrayRef());
  carry();
}

/// Whether a column is taken of a matrix that has no other.
static bool isOnlyColumn(chunk::ColumnsOp op) {
  auto matrix = cast<RankedTensorType>(op.getOperand().getType());
  return matrix.getRank() == 2 && matrix.getDimSize(1) == 1 && cast<RankedTensorType>(op.getType()).getRank() == 1;
}

void KernelFolder::emit(Operation &op) {
  if (auto lookback = dyn_cast<chunk::LookbackOp>(op))
    foldLookback(lookback);
  else if (auto columns = dyn_cast<chunk::ColumnsOp>(op); columns && isOnlyColumn(columns))
    mapping.map(columns.getResult(), columnOf(mapping.lookup(columns.getOperand())));
  else if (auto again = dyn_cast<chunk::AgainOp>(op))
    mapping.map(again.getResult(), mapping.lookup(again.getOperand()));
  else if (op.getNumResults() != 1 || !mapping.contains(op.getResult(0))) // else a look-back began with the sum
    builder.clone(op, mapping)->walk([](chunk::AgainOp again) {
      again.replaceAllUsesWith(again.getOperand());
      again.erase();
    });
}

void KernelFolder::carry() {
  // Who leaves what segments do to states leaves no windows: the results' kernel does.
  if (kernel.getSegments() && kernel.getOutputs().empty())
    return;
  for (BlockArgument argument : kernel.argumentsOf(chunk::ArgumentKind::Input))
    if (BlockArgument window = windowOf(argument))
      CarryOp::create(builder, view(argument), index, view(window));
}

void KernelFolder::store(ValueRange values) {
  auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
  unsigned first = kernel.getBlock()->getNumArguments() - 1;
  for (Value value : values)
    for (auto [number, output] : llvm::enumerate(yield.getOutputs()))
      if (output == value)
        StoreOp::create(builder, mapping.lookup(value), view(first + number), index);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void KernelFolder::stepInPlace() {
  index = constant(0);
  // What takes longest comes first, so that nothing it could overlap with is waited for. Parameters come when they
  // are asked for, as there may be more of them than registers.
  mapping.map(kernel.getValid(), constant(1));
  for (BlockArgument argument : kernel.argumentsOf(chunk::ArgumentKind::State))
    mapping.map(argument, load(argument));
  for (BlockArgument argument : kernel.argumentsOf(chunk::ArgumentKind::Input))
    if (!isOnlyPast(argument))
      mapping.map(argument, load(argument));
  for (Operation &op : kernel.getBlock()->without_terminator()) {
    llvm::SetVector<Value> used(op.operand_begin(), op.operand_end());
    getUsedValuesDefinedAbove(op.getRegions(), used);
    for (Value value : used)
      if (auto argument = dyn_cast<BlockArgument>(value); argument && !mapping.contains(value) && !isOnlyPast(argument))
        mapping.map(argument, load(argument));
    emit(op);
  }
  auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
  unsigned output = kernel.getBlock()->getNumArguments() - 1;
  for (Value tile : yield.getOutputs())
    StoreOp::create(builder, mapping.lookup(tile), view(output++), index);
  BarrierOp::create(builder);
  for (auto [state, next] : llvm::zip_equal(kernel.argumentsOf(chunk::ArgumentKind::State), yield.getStates()))
    SaveOp::create(builder, mapping.lookup(next), view(state));
  carry();
  ReturnOp::create(builder);
  eraseWhatLookbacksLeft(*function.getBlock());
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

Value KernelFolder::load(BlockArgument argument) {
  if (isComputed(argument))
    return evaluate(argument, argument.getType(), index);
  return LoadOp::create(builder, argument.getType(), view(argument), isPerChunk(argument) ? index : Value(),
                        kernel.getArgument(argument.getArgNumber()).getLowest());
}

chunk::TableOp KernelFolder::tableOf(BlockArgument argument) {
  StringAttr name = kernel.getArgument(argument.getArgNumber()).getName();
  return symbols.lookupNearestSymbolFrom<chunk::TableOp>(kernel, name);
}

BlockArgument KernelFolder::windowOf(BlockArgument input) {
  for (BlockArgument window : kernel.argumentsOf(chunk::ArgumentKind::Window))
    if (kernel.getArgument(window.getArgNumber()).getEntry() == kernel.getArgument(input.getArgNumber()).getName())
      return window;
  return {};
}

bool KernelFolder::isComputed(BlockArgument argument) {
  if (!isTable(argument))
    return false;
  chunk::TableOp table = tableOf(argument);
  return table.isPosition() || (computeTables && table.isUnbounded());
}

Value KernelFolder::evaluate(BlockArgument argument, Type type, Value chunk) {
  return EvaluateOp::create(builder, type, view(argument), chunk);
}

bool KernelFolder::keepsCheckpoints() {
  return llvm::any_of(kernel.getOutputs().getAsRange<chunk::OutputAttr>(),
                      std::mem_fn(&chunk::OutputAttr::getCheckpoint));
}

bool KernelFolder::isOnlyPast(BlockArgument argument) {
  return !argument.use_empty() && llvm::all_of(argument.getUsers(), [&](Operation *user) {
    auto lookback = dyn_cast<chunk::LookbackOp>(user);
    return lookback && lookback.getFirst() != argument && lookback.getLast() != argument;
  });
}

bool KernelFolder::isNumbers(BlockArgument argument) {
  bool isInput = kindOf(argument) == chunk::ArgumentKind::Input && !isTable(argument);
  return isInput && cast<RankedTensorType>(argument.getType()).getRank() == 1 &&
         llvm::none_of(argument.getUsers(), llvm::IsaPred<chunk::LookbackOp>);
}

bool KernelFolder::isPerChunk(BlockArgument argument) {
  if (!isTable(argument))
    return kindOf(argument) == chunk::ArgumentKind::Input || kindOf(argument) == chunk::ArgumentKind::Checkpoint;
  chunk::TableOp table = tableOf(argument);
  return table.getPeriod() || table.getVarying();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct FoldOverChunks : stretto::impl::FoldOverChunksBase<FoldOverChunks> {
  using FoldOverChunksBase::FoldOverChunksBase;

  void runOnOperation() override {
    SymbolTableCollection symbols;
    // What stands between the chunks of another is asked for by that; where it is private, by that alone. What is made
    // of it has its name.
    SmallVector<chunk::KernelOp> kernels(getOperation().getOps<chunk::KernelOp>());
    SmallVector<chunk::KernelOp> between = llvm::map_to_vector(kernels, [&](chunk::KernelOp kernel) {
      FlatSymbolRefAttr name = kernel.getBetweenAttr();
      return name ? symbols.lookupNearestSymbolFrom<chunk::KernelOp>(kernel, name.getAttr()) : chunk::KernelOp();
    });
    for (auto [kernel, other] : llvm::zip_equal(kernels, between))
      if (kernel.isPublic() && failed(fold(kernel, other, symbols)))
        return signalPassFailure();
    for (chunk::KernelOp kernel : kernels)
      kernel.erase();
  }

  LogicalResult fold(chunk::KernelOp kernel, chunk::KernelOp between, SymbolTableCollection &symbols) {
    FailureOr<Manifest> manifest = Manifest::of(kernel);
    if (failed(manifest))
      return failure();
    for (const Manifest::Argument &argument : manifest->arguments)
      if (argument.type == ElementType::F64)
        return kernel.emitOpError("the argument '")
               << argument.name << "' has entries of type f64, expected f32, bf16 or f16: f64 runs on the CPU only";

    if (inPlace && kernel.getChunk() != 1)
      return kernel.emitOpError("takes ") << kernel.getChunk() << " tokens at a time, expected 1 in a step";

    OpBuilder builder(kernel);
    auto role =
        RoleAttr::get(&getContext(), RoleKind::All, warps ? warps : chooseWarps(kernel, warpgroups, computeTables));
    manifest->threads = 32 * role.getWarps();
    manifest->inPlace = inPlace;
    manifest->expects = !kernel.getOps<chunk::ExpectOp>().empty();
    manifest->takesLeft = takesLeft;
    manifest->independentChunks =
        !inPlace && !kernel.getSegments() && kernel.argumentsOf(chunk::ArgumentKind::State).empty();
    auto function = FuncOp::create(builder, kernel.getLoc(), kernel.getSymName(), kernel.getChunk(),
                                   builder.getArrayAttr(role), nullptr, nullptr, nullptr);
    function->setAttr(Manifest::attributeName, manifest->toAttribute(&getContext()));
    Block &block = function.getBody().emplaceBlock();
    SmallVector<StringRef> names;
    auto addView = [&](Type tile) {
      block.addArgument(ViewType::get(&getContext(), cast<RankedTensorType>(tile)), kernel.getLoc());
    };
    for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back())
      addView(argument.getType());
    for (auto output : kernel.getOutputs().getAsRange<chunk::OutputAttr>())
      addView(output.getType());
    for (const Manifest::Argument &argument : manifest->arguments)
      names.push_back(argument.name);
    function.setArgNamesAttr(builder.getStrArrayAttr(names));
    KernelFolder folder(kernel, between, function, computeTables, fromStart, symbols);
    if (inPlace)
      folder.stepInPlace();
    else if (manifest->independentChunks)
      folder.takeChunk();
    else
      folder.foldOverChunks();
    return success();
  }
};
} // namespace
