//===- FoldLookback.cpp - Folds over the tiles of other chunks ------------===//
//
// A look-back becomes a loop over the chunks that any token of this chunk sees, as attention in linear memory is
// computed: tiles of the other chunk come through channels, the next while one is worked on, and the loop carries what
// the fold has so far. Tiles of a channel are counted, by all look-backs and chunks together: the place of the next one
// is that of a tile which nobody reads any longer. What was carried before a tile is scaled where the tile has a larger
// score.
//
//===----------------------------------------------------------------------===//

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/kernel/KernelFolder.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static constexpr double infinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

/// What a sum is added to, and only that, where it is known before: the fold begins with it, and needs no room of its
/// own.
static Value baseOf(OpResult result) {
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

/// Whether a sum of outer products is a column, which is no operand of a product of matrices: it is kept as a vector.
static bool isOuterColumn(OpResult sum) {
  bool isOuter = cast<chunk::LookbackOp>(sum.getOwner()).getFold() == chunk::Fold::Outer;
  return isOuter && cast<RankedTensorType>(sum.getType()).getDimSize(1) == 1;
}

/// The only column of a matrix.
Value KernelFolder::columnOf(Value matrix) {
  auto repeated = matrix.getDefiningOp<chunk::BroadcastOp>();
  if (repeated && repeated.getAlong() == chunk::Side::Rows)
    return repeated.getOperand();
  auto type = cast<RankedTensorType>(matrix.getType());
  SplatElementsAttr same;
  if (matchPattern(matrix, m_Constant(&same)))
    return splat(type.clone({type.getDimSize(0)}), same.getSplatValue<APFloat>().convertToDouble());
  return chunk::ColumnsOp::create(builder, type.clone({type.getDimSize(0)}), matrix, 0);
}

void KernelFolder::foldLookback(chunk::LookbackOp op) {
  builder.setLoc(op.getLoc());
  if (fromStart && op.getContinued())
    return mapResults(op, beginFold(op));
  Chunks chunks = chunksOf(op);
  auto [begin, end] = chunks;
  sendPast(op, begin, chunks);
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
    SmallVector<Value> after = foldTile(op, other, loop.getRegionIterArgs());
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

void KernelFolder::mapResults(chunk::LookbackOp op, ValueRange after) {
  for (auto [result, value] : llvm::zip_equal(op->getOpResults(), endFold(op, after)))
    mapping.map(baseOf(result) ? result.user_begin()->getResult(0) : result, value);
}

KernelFolder::Chunks KernelFolder::chunksOf(chunk::LookbackOp op) {
  if (op.getAhead())
    return chunksAhead(op);
  Value last = op.getLast() ? mapping.lookup(op.getLast()) : Value();
  auto span = SpanOp::create(builder, mapping.lookup(op.getFirst()), last, index, op.getToEnd(), op.getPastTokens());
  return {span.getBegin(), span.getEnd()};
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
  auto spanOf = [&](Value other, Value last) {
    return SpanOp::create(builder, emitBound(op, op.getContribution().getFirst(), other), last, other,
                          /*to_end=*/false, kernel.getChunk());
  };
  chunks.end = bisect(chunks, [&](Value other) -> Value {
    return arith::CmpIOp::create(builder, arith::CmpIPredicate::sle, spanOf(other, Value()).getBegin(), index);
  });
  if (Value last = op.getContribution().getLast())
    chunks.begin = bisect(chunks, [&](Value other) -> Value {
      Value end = spanOf(other, emitBound(op, last, other)).getEnd();
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
  return channel = ChannelOp::create(builder, type, 2, nullptr, false, nullptr, nullptr);
}

SmallVector<BlockArgument> KernelFolder::sentPast(chunk::LookbackOp op) {
  SmallVector<BlockArgument> sent;
  if (!loadsPast(op))
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

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value KernelFolder::splat(Type type, double number) {
  auto tile = cast<RankedTensorType>(type);
  return arith::ConstantOp::create(builder,
                                   DenseElementsAttr::get(tile, FloatAttr::get(tile.getElementType(), number)));
}

Value KernelFolder::selectOr(Value condition, Value numbers, double otherwise) {
  return arith::SelectOp::create(builder, condition, numbers, splat(numbers.getType(), otherwise));
}

/// Numbers of rows, repeated over the columns of a tile's shape.
Value KernelFolder::broadcastRows(Value numbers, Value tile) {
  auto type = cast<RankedTensorType>(tile.getType()).clone(getElementTypeOrSelf(numbers.getType()));
  return chunk::BroadcastOp::create(builder, type, numbers, chunk::Side::Rows);
}

/// Of each row less its shift.
Value KernelFolder::exponentialOf(Value numbers, Value shift) {
  return math::ExpOp::create(builder, arith::SubFOp::create(builder, numbers, broadcastRows(shift, numbers)));
}

/// A row as it was before it was widened.
static Value narrow(Value rows) {
  auto extension = rows.getDefiningOp<arith::ExtFOp>();
  return extension ? extension.getIn() : rows;
}

Value KernelFolder::widen(Value tile, Type element) {
  auto wide = cast<RankedTensorType>(tile.getType()).clone(element);
  return tile.getType() == wide ? tile : arith::ExtFOp::create(builder, wide, tile).getResult();
}

/// A product of which the left operand is rounded as the right one was.
Value KernelFolder::multiply(Value left, Value right, Value addend, bool transposeLeft) {
  Type element = getElementTypeOrSelf(right.getType());
  if (getElementTypeOrSelf(left.getType()) != element)
    left = arith::TruncFOp::create(builder, cast<RankedTensorType>(left.getType()).clone(element), left);
  return chunk::DotOp::create(builder, addend.getType(), left, right, addend, transposeLeft,
                              /*transpose_right=*/false);
}

/// Rows added up by weights. What a single token adds up are reductions, as all that a step reads; rows of one column
/// are no operands of a product of matrices.
Value KernelFolder::addWeighted(Value weights, Value rows, Value addend) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(addend.getType()).getShape();
  if (shape[0] > 1 && shape[1] > 1)
    return multiply(weights, rows, addend);
  Type element = getElementTypeOrSelf(addend.getType());
  auto sumOver = [&](chunk::Side side, Value tile) -> Value {
    int64_t count = cast<RankedTensorType>(tile.getType()).getDimSize(side == chunk::Side::Columns ? 0 : 1);
    return chunk::ReduceOp::create(builder, RankedTensorType::get({count}, element), chunk::Reduction::Sum, tile, side);
  };
  weights = widen(weights, element);
  rows = widen(rows, element);
  if (shape[1] == 1) {
    Value numbers = sumOver(chunk::Side::Columns, rows);
    numbers = chunk::BroadcastOp::create(builder, weights.getType(), numbers, chunk::Side::Columns);
    Value sums = sumOver(chunk::Side::Columns, arith::MulFOp::create(builder, weights, numbers));
    return arith::AddFOp::create(builder, addend, broadcastRows(sums, addend));
  }
  Value numbers = broadcastRows(sumOver(chunk::Side::Rows, weights), rows);
  Value sums = sumOver(chunk::Side::Rows, arith::MulFOp::create(builder, rows, numbers));
  sums = chunk::BroadcastOp::create(builder, addend.getType(), sums, chunk::Side::Columns);
  return arith::AddFOp::create(builder, addend, sums);
}

/// Rows scaled by a column and added up.
Value KernelFolder::addScaled(Value rows, Value column, Value addend) {
  auto type = cast<RankedTensorType>(addend.getType());
  rows = widen(rows, type.getElementType());
  SplatElementsAttr same;
  bool isOne = matchPattern(column, m_Constant(&same)) && same.getSplatValue<APFloat>().isExactlyValue(1);
  if (!isOne) {
    auto numbers =
        RankedTensorType::get({cast<RankedTensorType>(column.getType()).getDimSize(0)}, type.getElementType());
    column = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Sum, widen(column, type.getElementType()),
                                     chunk::Side::Columns);
    rows = arith::MulFOp::create(builder, rows, broadcastRows(column, rows));
  }
  Value sums = chunk::ReduceOp::create(builder, type, chunk::Reduction::Sum, rows, chunk::Side::Rows);
  return arith::AddFOp::create(builder, addend, sums);
}

Value KernelFolder::inRangeOf(chunk::LookbackOp op, Value other, unsigned rank) {
  SmallVector<int64_t, 2> shape = {static_cast<int64_t>(kernel.getChunk()), op.getPastTokens()};
  if (rank == 1)
    shape.erase(shape.begin());
  Type type = RankedTensorType::get(shape, builder.getI1Type());
  chunk::ContributeOp contribution = op.getContribution();
  Value first = op.getAhead() ? contribution.getFirst() : op.getFirst();
  Value last = op.getAhead() ? contribution.getLast() : op.getLast();
  return InRangeOp::create(builder, type, mapping.lookup(first), last ? mapping.lookup(last) : Value(), index, other,
                           op.getToEnd(), op.getAhead());
}

//===----------------------------------------------------------------------===//
// Folds
//===----------------------------------------------------------------------===//

/// The largest score so far, as what differences are taken from: no difference of two infinities is formed.
static Value shiftOf(ImplicitLocOpBuilder &builder, Value largest) {
  auto type = cast<RankedTensorType>(largest.getType());
  auto constant = [&](double number) {
    return arith::ConstantOp::create(builder,
                                     DenseElementsAttr::get(type, FloatAttr::get(type.getElementType(), number)));
  };
  Value none = arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, largest, constant(-infinity));
  return arith::SelectOp::create(builder, none, constant(0), largest);
}

SmallVector<Value> KernelFolder::beginFold(chunk::LookbackOp op) {
  SmallVector<Value> begin;
  auto add = [&](Type type, double number) { begin.push_back(splat(type, number)); };
  switch (op.getFold()) {
  case chunk::Fold::Softmax: // the largest score, the sum of exponentials, and rows summed with these weights
    add(op.getResultTypes()[0], -infinity);
    add(op.getResultTypes()[1], 0);
    add(op.getResultTypes()[2], 0);
    break;
  case chunk::Fold::Divergence: // largest scores and sums of the teacher and the student, and weighted differences
    for (double number : {-infinity, -infinity, 0.0, 0.0, 0.0})
      add(op.getResultTypes()[0], number);
    break;
  case chunk::Fold::Sum:
  case chunk::Fold::Outer:
    for (OpResult result : op->getOpResults()) {
      if (Value base = baseOf(result)) {
        if (!mapping.contains(base))
          builder.clone(*base.getDefiningOp(), mapping);
        begin.push_back(mapping.lookup(base));
      } else {
        add(result.getType(), 0);
      }
      if (isOuterColumn(result))
        begin.back() = columnOf(begin.back());
    }
    break;
  }
  return begin;
}

SmallVector<Value> KernelFolder::foldTile(chunk::LookbackOp op, Value other, ValueRange before) {
  SmallVector<Value> given =
      llvm::map_to_vector(op.getContribution().getGiven(), [&](Value value) { return mapping.lookup(value); });
  // Rows of tokens outside of all ranges are as they are in memory, or 0 beyond it; what was computed of them may be
  // infinite.
  auto rowsInRange = [&](unsigned number) {
    Value rows = narrow(given[number]);
    Value given = narrow(op.getContribution().getGiven()[number]);
    if (isa<BlockArgument>(given) || matchPattern(given, m_Constant()))
      return rows;
    return selectOr(broadcastRows(inRangeOf(op, other, 1), rows), rows, 0);
  };
  switch (op.getFold()) {
  case chunk::Fold::Softmax:
    return foldSoftmax(inRangeOf(op, other, 2), given[0], rowsInRange(1), before);
  case chunk::Fold::Divergence:
    return foldDivergence(inRangeOf(op, other, 2), given[0], given[1], before);
  case chunk::Fold::Sum: {
    SmallVector<Value> after;
    Value inRange = inRangeOf(op, other, 2);
    for (auto [number, sum] : llvm::enumerate(before)) {
      Value weights = selectOr(inRange, narrow(given[2 * number]), 0);
      after.push_back(addWeighted(weights, rowsInRange(2 * number + 1), sum));
    }
    return after;
  }
  case chunk::Fold::Outer: {
    SmallVector<Value> after;
    Value inRange = inRangeOf(op, other, 1);
    for (auto [number, sum] : llvm::enumerate(before)) {
      Value left = narrow(given[2 * number]);
      left = selectOr(broadcastRows(inRange, left), left, 0);
      Value right = rowsInRange(2 * number + 1);
      after.push_back(isOuterColumn(op->getOpResult(number)) ? addScaled(left, right, sum)
                                                             : multiply(left, right, sum, /*transposeLeft=*/true));
    }
    return after;
  }
  }
  llvm_unreachable("covered switch");
}

SmallVector<Value> KernelFolder::foldSoftmax(Value inRange, Value scores, Value rows, ValueRange before) {
  Type numbers = before[0].getType();
  scores = selectOr(inRange, scores, -infinity);
  Value here = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Max, scores, chunk::Side::Columns);
  Value largest = arith::MaximumFOp::create(builder, before[0], here);
  Value shift = shiftOf(builder, largest);
  Value scale = math::ExpOp::create(builder, arith::SubFOp::create(builder, before[0], shift));
  Value weights = exponentialOf(scores, shift);
  Value sum = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Sum, weights, chunk::Side::Columns);
  Value scaledSum = arith::MulFOp::create(builder, before[1], scale);
  Value scaledRows = arith::MulFOp::create(builder, before[2], broadcastRows(scale, before[2]));
  return {largest, arith::AddFOp::create(builder, scaledSum, sum), addWeighted(weights, rows, scaledRows)};
}

/// Of the scores s and r, less their shifts, the sum of e^s (s - r) is kept. When the shifts grow by c and d, each
/// difference shrinks by c - d before it is scaled, so that large scores that both streams have in common cancel
/// exactly.
SmallVector<Value> KernelFolder::foldDivergence(Value inRange, Value teacher, Value student, ValueRange before) {
  Type numbers = before[0].getType();
  // A pair that either stream leaves out is left out of both.
  for (Value scores : {teacher, student}) {
    Value exists =
        arith::CmpFOp::create(builder, arith::CmpFPredicate::UNE, scores, splat(scores.getType(), -infinity));
    inRange = arith::AndIOp::create(builder, inRange, exists);
  }
  struct Stream {
    Value scores, largest, shift, change, scale, weights, sum;
  };
  auto raise = [&](Value scores, Value largest, Value sum) {
    Stream stream;
    stream.scores = selectOr(inRange, scores, -infinity);
    Value here = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Max, stream.scores, chunk::Side::Columns);
    stream.largest = arith::MaximumFOp::create(builder, largest, here);
    stream.shift = shiftOf(builder, stream.largest);
    stream.change = arith::SubFOp::create(builder, stream.shift, shiftOf(builder, largest));
    stream.scale = math::ExpOp::create(builder, arith::SubFOp::create(builder, largest, stream.shift));
    stream.scores = arith::SubFOp::create(builder, stream.scores, broadcastRows(stream.shift, scores));
    stream.weights = math::ExpOp::create(builder, stream.scores);
    Value scaled = arith::MulFOp::create(builder, sum, stream.scale);
    Value added =
        chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Sum, stream.weights, chunk::Side::Columns);
    stream.sum = arith::AddFOp::create(builder, scaled, added);
    return stream;
  };
  Stream t = raise(teacher, before[0], before[2]), s = raise(student, before[1], before[3]);
  Value grown = arith::SubFOp::create(builder, t.change, s.change);
  Value differences = arith::SubFOp::create(builder, before[4], arith::MulFOp::create(builder, before[2], grown));
  Value difference = selectOr(inRange, arith::SubFOp::create(builder, t.scores, s.scores), 0);
  Value weighted = arith::MulFOp::create(builder, t.weights, difference);
  Value added = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Sum, weighted, chunk::Side::Columns);
  differences = arith::AddFOp::create(builder, arith::MulFOp::create(builder, differences, t.scale), added);
  return {t.largest, s.largest, t.sum, s.sum, differences};
}

SmallVector<Value> KernelFolder::endFold(chunk::LookbackOp op, ValueRange after) {
  if (op.getFold() != chunk::Fold::Divergence)
    return llvm::map_to_vector(llvm::zip_equal(op->getOpResults(), after), [&](auto each) -> Value {
      auto [result, sum] = each;
      return isOuterColumn(result) ? chunk::BroadcastOp::create(builder, result.getType(), sum, chunk::Side::Rows)
                                   : sum;
    });
  Value nothing = splat(after[0].getType(), -infinity);
  Value isEmpty = arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, after[0], nothing);
  SmallVector<Value, 2> logarithms, totals;
  for (unsigned stream : {0, 1}) {
    logarithms.push_back(math::LogOp::create(builder, after[2 + stream]));
    Value total = arith::AddFOp::create(builder, shiftOf(builder, after[stream]), logarithms[stream]);
    totals.push_back(arith::SelectOp::create(builder, isEmpty, nothing, total));
  }
  Value mean = arith::DivFOp::create(builder, after[4], after[2]);
  Value divergence = arith::AddFOp::create(builder, mean, arith::SubFOp::create(builder, logarithms[1], logarithms[0]));
  return {arith::SelectOp::create(builder, isEmpty, splat(divergence.getType(), 0), divergence), totals[0], totals[1]};
}
