//===- FoldLookback.cpp - Folds over the tiles of other chunks ------------===//
//
// A look-back becomes a loop over the chunks that any token of this chunk sees, as attention in linear memory is
// computed: tiles of the other chunk come through channels, the next while one is worked on, and the loop carries what
// the fold has so far. Tiles of a channel are counted, by all look-backs and chunks together: the place of the next one
// is that of a tile which nobody reads any longer. What the fold makes of a tile is in LookbackFolds.cpp.
//
//===----------------------------------------------------------------------===//

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/chunk/InputType.h"
#include "passes/kernel/KernelFolder.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

Value KernelFolder::baseOf(OpResult result) {
  auto op = cast<chunk::LookbackOp>(result.getOwner());
  auto total = result.hasOneUse() ? dyn_cast<arith::AddFOp>(*result.user_begin()) : arith::AddFOp();
  if (!total || total->getBlock() != op->getBlock() ||
      (op.getFold() != chunk::Fold::Sum && op.getFold() != chunk::Fold::Outer))
    return Value();
  Value base = total.getLhs() == result ? total.getRhs() : total.getLhs(), needed = base;
  if (auto repeated = base.getDefiningOp<chunk::BroadcastOp>())
    needed = repeated.getOperand(); // which is repeated anywhere
  Operation *maker = needed.getDefiningOp();
  bool isKnown = !maker || (maker->getBlock() == op->getBlock() && maker->isBeforeInBlock(op));
  return isKnown ? base : Value();
}

void KernelFolder::eraseDead(Block &block) {
  for (Operation &inner : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&inner))
      inner.erase();
}

/// Columns that are used as vectors, and bounds of look-backs that meet nothing.
void KernelFolder::eraseWhatLookbacksLeft(Block &block) {
  if (!kernel.getBlock()->getOps<chunk::LookbackOp>().empty())
    eraseDead(block);
}

void KernelFolder::foldLookback(chunk::LookbackOp op) {
  builder.setLoc(op.getLoc());
  if (fromStart && op.getContinued())
    return mapResults(op, beginFold(op));
  if (isLagging(op))
    return foldLagging(op);
  Chunks chunks = chunksOf(op);
  auto [begin, end] = chunks;
  sendPast(op, begin, chunks);
  std::optional<Chunks> whole = wholeChunksOf(op);
  auto loop = scf::ForOp::create(builder, begin, end, constant(1), beginFold(op));
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    Value other = loop.getInductionVar();
    if (!loadsPast(op))
      AwaitOp::create(builder);
    sendPast(op, arith::AddIOp::create(builder, other, constant(1)), chunks);
    for (auto [argument, past] : llvm::zip_equal(op.getBlock()->getArguments(), op.getPast()))
      mapping.map(argument, tileOfPast(op, cast<BlockArgument>(past), argument.getType(), other, chunks));
    for (Operation &inner : op.getBlock()->without_terminator())
      builder.clone(inner, mapping);
    SmallVector<Value> after = foldTile(op, other, isWhole(op, other, whole), loop.getRegionIterArgs());
    scf::YieldOp::create(builder, after);
  }
  llvm::SmallSetVector<BlockArgument, 4> counted;
  for (BlockArgument argument : sentPast(op))
    counted.insert(countedWith(argument));
  for (BlockArgument argument : counted) {
    Value count = arith::MaxSIOp::create(builder, arith::SubIOp::create(builder, end, begin), constant(0));
    turns[argument] = arith::AddIOp::create(builder, turns[argument], count);
  }
  eraseDead(*loop.getBody()); // rows that were widened for the fold alone
  mapResults(op, loop.getResults());
}

//===----------------------------------------------------------------------===//
// Chunks that are as far before each
//===----------------------------------------------------------------------===//

bool KernelFolder::isKnown(chunk::LookbackOp op) { return fromStart && op.getMet() && !loadsPast(op); }

/// Of numbers of 32 bits shared memory holds the tiles of a window and nothing beside.
bool KernelFolder::isLagging(chunk::LookbackOp op) {
  return hasTurns && isKnown(op) && op.getLag() && inputTypeOf(kernel).getIntOrFloatBitWidth() == 16;
}

int64_t KernelFolder::lagOf(chunk::LookbackOp op) { return op.getAhead() ? -*op.getLag() : *op.getLag(); }

Value KernelFolder::lagBehind(Value chunk, int64_t lag) {
  Value distance = constant(std::abs(lag));
  return lag < 0 ? arith::AddIOp::create(builder, chunk, distance).getResult()
                 : arith::SubIOp::create(builder, chunk, distance).getResult();
}

/// Before and behind the sequence are rows of zeros.
void KernelFolder::openLagging() {
  for (auto op : kernel.getBlock()->getOps<chunk::LookbackOp>()) {
    if (!isLagging(op))
      continue;
    Value first = lagBehind(index, lagOf(op));
    for (Value past : op.getPast()) {
      auto argument = cast<BlockArgument>(past);
      Value &channel = lagging[{argument, lagOf(op)}];
      if (isComputed(argument) || channel)
        continue;
      auto type = ChannelType::get(builder.getContext(), cast<RankedTensorType>(argument.getType()));
      channel = ChannelOp::create(builder, type, 2, nullptr, false, nullptr, nullptr, nullptr);
      SendOp::create(builder, view(argument), first, channel, Value());
    }
  }
}

void KernelFolder::sendLagging() {
  for (auto [met, channel] : lagging)
    if (channel)
      SendOp::create(builder, view(met.first), lagBehind(nextIndex, met.second), channel, Value());
}

void KernelFolder::foldLagging(chunk::LookbackOp op) {
  Value other = lagBehind(index, lagOf(op));
  for (auto [argument, past] : llvm::zip_equal(op.getBlock()->getArguments(), op.getPast())) {
    auto source = cast<BlockArgument>(past);
    Value channel = lagging.lookup({source, lagOf(op)});
    mapping.map(argument, channel ? ReceiveOp::create(builder, argument.getType(), channel, other, Value()).getResult()
                                  : evaluate(source, argument.getType(), other));
  }
  for (Operation &inner : op.getBlock()->without_terminator())
    builder.clone(inner, mapping);
  mapResults(op, foldTile(op, other, /*isWhole=*/Value(), beginFold(op)));
}

void KernelFolder::mapResults(chunk::LookbackOp op, ValueRange after) {
  for (auto [result, value] : llvm::zip_equal(op->getOpResults(), endFold(op, after)))
    mapping.map(baseOf(result) ? result.user_begin()->getResult(0) : result, value);
}

KernelFolder::Chunks KernelFolder::chunksAt(chunk::LookbackOp op, ArrayRef<int64_t> distances) {
  Value farthest = constant(distances.front()), nearest = constant(distances.back()), one = constant(1);
  if (op.getAhead()) {
    Value end = arith::AddIOp::create(builder, arith::AddIOp::create(builder, index, farthest), one);
    return {arith::AddIOp::create(builder, index, nearest), arith::MinSIOp::create(builder, end, chunksOfSequence())};
  }
  Value begin = arith::SubIOp::create(builder, index, farthest);
  return {arith::MaxSIOp::create(builder, begin, constant(0)),
          arith::AddIOp::create(builder, arith::SubIOp::create(builder, index, nearest), one)};
}

KernelFolder::Chunks KernelFolder::chunksOf(chunk::LookbackOp op) {
  if (isKnown(op))
    return chunksAt(op, *op.getMet());
  return op.getAhead() ? chunksAhead(op) : spanOf(op, /*wholly=*/false);
}

KernelFolder::Chunks KernelFolder::spanOf(chunk::LookbackOp op, bool wholly) {
  Value last = op.getLast() ? mapping.lookup(op.getLast()) : Value();
  auto span =
      SpanOp::create(builder, mapping.lookup(op.getFirst()), last, index, op.getToEnd(), op.getPastTokens(), wholly);
  return {span.getBegin(), span.getEnd()};
}

/// The chunks of which tokens of the chunk `other` are seen, or all of them by all, in a look-ahead.
KernelFolder::Chunks KernelFolder::spanAhead(chunk::LookbackOp op, Value other, Value last, bool toEnd, bool wholly) {
  Value first = emitBound(op, op.getContribution().getFirst(), other);
  if (last)
    last = emitBound(op, last, other);
  auto span = SpanOp::create(builder, first, last, other, toEnd, kernel.getChunk(), wholly);
  return {span.getBegin(), span.getEnd()};
}

/// Whether the ranges of a look-ahead are bounded by numbers that are the same for all tokens: threads need not ask
/// each other for them.
static bool hasEqualBounds(chunk::LookbackOp op) {
  Value last = op.getContribution().getLast();
  return isOneNumber(op.getContribution().getFirst()) && (!last || isOneNumber(last));
}

/// Whether the ranges of a look-ahead begin with their sequences.
static bool hasNoFirstBound(chunk::LookbackOp op) {
  SplatElementsAttr first;
  return matchPattern(op.getContribution().getFirst(), m_Constant(&first)) &&
         first.getSplatValue<APFloat>().convertToDouble() <= 0;
}

std::optional<KernelFolder::Chunks> KernelFolder::wholeChunksOf(chunk::LookbackOp op) {
  bool isStep = kernel.getChunk() == 1;
  if (isKnown(op)) {
    if (!op.getWholly())
      return std::nullopt;
    // Pairs with tokens that there are not are left out.
    Chunks chunks = chunksAt(op, *op.getWholly());
    if (op.getAhead()) {
      Value existing = arith::DivUIOp::create(builder, tokens, perChunk);
      chunks.end = arith::MinSIOp::create(builder, chunks.end, existing);
    } else {
      Value valid = mapping.lookup(kernel.getValid());
      Value isComplete = arith::CmpIOp::create(builder, arith::CmpIPredicate::sge, valid, perChunk);
      chunks.end = arith::SelectOp::create(builder, isComplete, chunks.end, chunks.begin);
    }
    return chunks;
  }
  if (op.getAhead() || isStep)
    return std::nullopt;
  return spanOf(op, /*wholly=*/true);
}

Value KernelFolder::isWhole(chunk::LookbackOp op, Value other, std::optional<Chunks> whole) {
  Value chunk = other;
  if (!isKnown(op) && op.getAhead() && hasEqualBounds(op)) {
    whole = spanAhead(op, other, op.getContribution().getLast(), op.getToEnd(), /*wholly=*/true);
    chunk = index;
  }
  if (!whole)
    return Value();
  Value isBehind = arith::CmpIOp::create(builder, arith::CmpIPredicate::sge, chunk, whole->begin);
  Value isBefore = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, chunk, whole->end);
  return arith::AndIOp::create(builder, isBehind, isBefore);
}

/// The first of the chunks for which a condition does not hold that holds up to there, found by bisection.
Value KernelFolder::bisect(Chunks chunks, function_ref<Value(Value)> holds) {
  constexpr int64_t halvings = 32;
  auto loop =
      scf::ForOp::create(builder, constant(0), constant(halvings), constant(1), ValueRange{chunks.begin, chunks.end});
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Value low = loop.getRegionIterArg(0), high = loop.getRegionIterArg(1);
  Value isOpen = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, low, high);
  auto halved = scf::IfOp::create(builder, loop.getResultTypes(), isOpen, /*withElseRegion=*/true);
  scf::YieldOp::create(builder, halved.getResults());
  builder.setInsertionPointToStart(halved.elseBlock());
  scf::YieldOp::create(builder, ValueRange{low, high});
  builder.setInsertionPointToStart(halved.thenBlock());
  Value middle = arith::DivUIOp::create(builder, arith::AddIOp::create(builder, low, high), constant(2));
  Value isHeld = holds(middle), next = arith::AddIOp::create(builder, middle, constant(1));
  scf::YieldOp::create(builder, ValueRange{arith::SelectOp::create(builder, isHeld, next, low),
                                           arith::SelectOp::create(builder, isHeld, high, middle)});
  return loop.getResult(0);
}

/// Up to the first chunk whose first token looks back at none of this one's, as bounds never fall; and from the first
/// on of which one is seen as late as in this one. What joins a matrix before the sequence joins it in the first chunk.
KernelFolder::Chunks KernelFolder::chunksAhead(chunk::LookbackOp op) {
  Chunks chunks{op.getToEnd() ? constant(0) : index, chunksOfSequence()};
  if (!boundsArePositions(op))
    return chunks;
  if (!hasNoFirstBound(op))
    chunks.end = bisect(chunks, [&](Value other) -> Value {
      Value begin = spanAhead(op, other, /*last=*/Value(), /*toEnd=*/false, /*wholly=*/false).begin;
      return arith::CmpIOp::create(builder, arith::CmpIPredicate::sle, begin, index);
    });
  if (Value last = op.getContribution().getLast())
    chunks.begin = bisect(chunks, [&](Value other) -> Value {
      Value end = spanAhead(op, other, last, /*toEnd=*/false, /*wholly=*/false).end;
      Value isBefore = arith::CmpIOp::create(builder, arith::CmpIPredicate::sle, end, index);
      Value isBehindFirst = arith::CmpIOp::create(builder, arith::CmpIPredicate::sgt, index, constant(0));
      return arith::AndIOp::create(builder, isBefore, isBehindFirst);
    });
  return chunks;
}

/// The operations of a look-ahead's body that a bound is computed by.
static SetVector<Operation *> operationsOf(chunk::LookbackOp op, Value bound) {
  SetVector<Operation *> operations;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitBlockArguments = true;
  options.filter = [&](Operation *inner) { return inner->getBlock() == op.getBlock(); };
  (void)getBackwardSlice(bound, &operations, options);
  return operations;
}

bool KernelFolder::boundsArePositions(chunk::LookbackOp op) {
  auto isComputedPast = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    bool isPast = argument && argument.getOwner() == op.getBlock();
    return !isPast || isComputed(cast<BlockArgument>(op.getPast()[argument.getArgNumber()]));
  };
  auto isPosition = [&](Value bound) {
    return !bound || (isComputedPast(bound) && llvm::all_of(operationsOf(op, bound), [&](Operation *inner) {
                        return llvm::all_of(inner->getOperands(), isComputedPast);
                      }));
  };
  return isPosition(op.getContribution().getFirst()) && isPosition(op.getContribution().getLast());
}

Value KernelFolder::emitBound(chunk::LookbackOp op, Value bound, Value other) {
  for (auto [argument, past] : llvm::zip_equal(op.getBlock()->getArguments(), op.getPast()))
    if (auto source = cast<BlockArgument>(past); isComputed(source))
      mapping.map(argument, evaluate(source, argument.getType(), other));
  for (Operation *inner : operationsOf(op, bound))
    builder.clone(*inner, mapping);
  return mapping.lookup(bound);
}

Value KernelFolder::tileOfPast(chunk::LookbackOp op, BlockArgument argument, Type type, Value other, Chunks chunks) {
  if (isComputed(argument))
    return evaluate(argument, type, other);
  if (!loadsPast(op))
    return ReceiveOp::create(builder, type, channelOfPast(argument), other, turnOf(argument, other, chunks));
  return whereItLies(op, argument, other, type, [&](Value view) -> SmallVector<Value> {
    return {LoadOp::create(builder, type, view, other, /*lowest=*/false)};
  })[0];
}

SmallVector<Value> KernelFolder::whereItLies(chunk::LookbackOp op, BlockArgument argument, Value other,
                                             TypeRange results, function_ref<SmallVector<Value>(Value view)> body) {
  BlockArgument window = windowOf(argument);
  if (op.getAhead() || !window || fromStart)
    return body(view(argument));
  Value isBefore = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, other, constant(0));
  auto choice = scf::IfOp::create(builder, results, isBefore, /*withElseRegion=*/true);
  for (auto [block, place] :
       {std::pair(choice.thenBlock(), view(window)), std::pair(choice.elseBlock(), view(argument))}) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(block);
    SmallVector<Value> made = body(place);
    if (!results.empty())
      scf::YieldOp::create(builder, made);
  }
  return llvm::to_vector(ValueRange(choice.getResults()));
}

Value KernelFolder::channelOfPast(BlockArgument argument) {
  Value &channel = pastChannels[argument];
  if (channel)
    return channel;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(function.getBlock());
  auto type = ChannelType::get(builder.getContext(), cast<RankedTensorType>(argument.getType()));
  return channel = ChannelOp::create(builder, type, 2, nullptr, false, nullptr, nullptr, nullptr);
}

SmallVector<BlockArgument> KernelFolder::sentPast(chunk::LookbackOp op) {
  SmallVector<BlockArgument> sent;
  bool meetsNothing = fromStart && op.getContinued();
  if (!loadsPast(op) && !isLagging(op) && !meetsNothing)
    for (Value past : op.getPast())
      if (auto argument = cast<BlockArgument>(past); !isComputed(argument) && !llvm::is_contained(sent, argument))
        sent.push_back(argument);
  return sent;
}

BlockArgument KernelFolder::countedWith(BlockArgument argument) {
  auto meets = [&](chunk::LookbackOp op, BlockArgument past) { return llvm::is_contained(sentPast(op), past); };
  for (BlockArgument other : kernel.getBlock()->getArguments())
    if (llvm::all_of(kernel.getBlock()->getOps<chunk::LookbackOp>(),
                     [&](chunk::LookbackOp op) { return meets(op, other) == meets(op, argument); }))
      return other;
  return argument;
}

Value KernelFolder::turnOf(BlockArgument argument, Value other, Chunks chunks) {
  Value &first = turns[countedWith(argument)];
  if (!first) {
    // Nothing is carried where each chunk is a work item of its own.
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(function.getBlock());
    first = constant(0);
  }
  return arith::AddIOp::create(builder, first, arith::SubIOp::create(builder, other, chunks.begin));
}

void KernelFolder::sendPast(chunk::LookbackOp op, Value other, Chunks chunks) {
  SmallVector<BlockArgument> sent = sentPast(op);
  if (sent.empty())
    return;
  OpBuilder::InsertionGuard guard(builder);
  Value isMet = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, other, chunks.end);
  builder.setInsertionPointToStart(scf::IfOp::create(builder, isMet).thenBlock());
  for (BlockArgument argument : sent) {
    Value channel = channelOfPast(argument), turn = turnOf(argument, other, chunks);
    whereItLies(op, argument, other, TypeRange(), [&](Value view) -> SmallVector<Value> {
      SendOp::create(builder, view, other, channel, turn);
      return {};
    });
  }
}
