//===- ChunkEarlierReads.cpp - Reads of a state of long ago ---------------===//

#include "passes/declaration/ChunkEarlierReads.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/declaration/ChunkRows.h"
#include <cmath>

using namespace mlir;
using namespace stretto;

bool ChunkEarlierReads::hasSome(const StateChain &chain) {
  return llvm::any_of(chain.reads(), [](ReadOp read) { return read.getAt() != nullptr; });
}

LogicalResult ChunkEarlierReads::check(const StateChain &chain) {
  StateOp root = chain.getRoot();
  SmallVector<ReadOp> reads = chain.reads();
  for (ReadOp read : reads) {
    if (read.getAt() != reads.front().getAt())
      return refuseChunkForm(read) << "reads the state '" << root.getName() << "', which is read at another time too";
    if (chain.positionOf(read.getState()) != chain.steps.size())
      return refuseChunkForm(read) << "reads the state '" << root.getName()
                                   << "' of an earlier token as it was before the token's last write";
  }
  for (Operation *step : chain.steps) {
    auto write = dyn_cast<WriteOp>(step);
    if (!write)
      return refuseChunkForm(step) << "decays the state '" << root.getName() << "', which is read at an earlier time";
    for (Value row : {write.getFirst(), write.getSecond()})
      if (!headsDivide(headsOf(row.getType()), root.getType().getHeads()))
        return refuseChunkForm(write) << "sums rows of the heads '" << headsOf(row.getType())
                                      << "' over the groups of '" << root.getType().getHeads()
                                      << "', and the heads of a group run apart";
  }
  return success();
}

/// The tile of a time, for the tokens before those of the chunk.
static FailureOr<Value> timeOfTokenBefore(Value time, TileBuilder &b, const Sizes &sizes) {
  TileBuilder before(b.getLoc(), b.getInsertionBlock(), b.form, b.tokens, b.pastTokens, b.compute);
  SetVector<Operation *> makers;
  BackwardSliceOptions options;
  options.inclusive = true;
  Operation *maker = time.getDefiningOp();
  if (!maker || failed(getBackwardSlice(maker, &makers, options)))
    return failure();
  for (Operation *op : topologicalSort(makers)) {
    if (isa<PositionOp>(op)) {
      Value position = b.tileOf(op->getResult(0));
      Value one = b.splat(cast<RankedTensorType>(position.getType()), 1);
      before.setTile(op->getResult(0), before.create<arith::SubFOp>(position, one));
      continue;
    }
    if (!op->hasTrait<OpTrait::Elementwise>() && !isa<ConstantOp, arith::ConstantOp, BroadcastOp>(op))
      return failure();
    if (failed(buildRowMap(op, before, sizes, [](Operation *) { return Value(); })))
      return failure();
  }
  return before.tileOf(time);
}

/// That of chunks which are counted from the first token of a sequence.
bool ChunkEarlierReads::goesOnFirst(const StateChain &chain, int64_t tokens) {
  constexpr int64_t chunks = 64;
  Value time = chain.reads().front().getAt();
  for (int64_t first = 0; first < chunks * tokens; first += tokens) {
    std::optional<double> ofFirst = timeAt(time, static_cast<double>(first)),
                          ofLast = timeAt(time, static_cast<double>(first + tokens - 1));
    if (!ofFirst || !ofLast || std::floor(*ofFirst) != std::floor(*ofLast))
      return false;
  }
  return true;
}

ChunksMet ChunkEarlierReads::metBy(WriteOp) { return ChunksMet::joining(chain.reads().front().getAt(), b.tokens); }

FailureOr<Value> ChunkEarlierReads::stateOfReads() {
  if (reads == Reads::AsCarried)
    return start;
  if (ofFirst)
    return ofFirst;
  FailureOr<Value> next =
      add(start, [&](PastTiles &past, WriteOp write) { return unseenByFirst(past, write); }, /*continued=*/false);
  if (succeeded(next))
    ofFirst = *next;
  return next;
}

FailureOr<PastTiles::Range> ChunkEarlierReads::unseenByFirst(PastTiles &, WriteOp) {
  Value time = chain.reads().front().getAt();
  FailureOr<Value> before = timeOfTokenBefore(time, b, sizes);
  if (failed(before))
    return refuseForm(b.form, chain.root) << "is read at a time that is not computed from the position alone";
  auto type = cast<RankedTensorType>(before->getType()), number = type.clone(ArrayRef<int64_t>());
  Value ofLast = b.create<chunk::RowOp>(number, *before, /*at=*/0);
  Value ofOwn = b.create<chunk::RowOp>(number, b.tileOf(time), /*at=*/0);
  Value first = b.create<arith::AddFOp>(b.repeat(ofLast, type), b.splat(type, 1));
  return PastTiles::Range{.first = first, .last = b.repeat(ofOwn, type)};
}

FailureOr<PastTiles::Range> ChunkEarlierReads::unseen(PastTiles &past, WriteOp write) {
  Value time = chain.reads().front().getAt();
  FailureOr<PastTiles::Range> range = unseenByFirst(past, write);
  if (failed(range))
    return failure();
  if (ofFirst) {
    auto type = cast<RankedTensorType>(range->last.getType());
    range->first = b.create<arith::AddFOp>(range->last, b.splat(type, 1));
  }
  range->last = b.tileOf(time);
  return range;
}

FailureOr<Value> ChunkEarlierReads::read(ReadOp op) {
  b.setLoc(op.getLoc());
  FailureOr<Value> state = stateOfReads();
  if (failed(state))
    return failure();
  bool alongRows = op.getAlong() == op.getState().getType().getFirst();
  Value query = b.matrixOf(b.tileOf(op.getRow()));
  Value result = b.dot(query, *state, /*addend=*/{}, /*transposeLeft=*/false, /*transposeRight=*/!alongRows);
  if (ofFirst && b.tokens == 1)
    return b.shaped(result, b.tileType(op.getType()));
  for (Operation *step : chain.steps) {
    auto write = cast<WriteOp>(step);
    Value key = alongRows ? write.getFirst() : write.getSecond(),
          other = alongRows ? write.getSecond() : write.getFirst();
    PastTiles past(write, b, sizes, rawTileOf);
    FailureOr<PastTiles::Range> range = unseen(past, write);
    if (failed(range) || failed(past.build(key)) || failed(past.build(other)))
      return failure();
    TileBuilder &body = past.builder();
    Value keys = body.matrixOf(body.tileOf(key)), others = body.matrixOf(body.tileOf(other));
    Value weights = body.dot(query, keys, /*addend=*/{}, /*transposeLeft=*/false, /*transposeRight=*/true);
    chunk::LookbackOp added = past.finish(chunk::Fold::Sum, *range, {weights, others}, result.getType());
    added.setContinued(ofFirst != nullptr);
    result = b.create<arith::AddFOp>(result, added.getResult(0));
  }
  return b.shaped(result, b.tileType(op.getType()));
}

FailureOr<Value> ChunkEarlierReads::add(Value state,
                                        llvm::function_ref<FailureOr<PastTiles::Range>(PastTiles &, WriteOp)> rangeOf,
                                        bool continued) {
  for (Operation *step : chain.steps) {
    auto write = cast<WriteOp>(step);
    b.setLoc(write.getLoc());
    PastTiles past(write, b, sizes, rawTileOf);
    FailureOr<PastTiles::Range> range = rangeOf(past, write);
    if (failed(range) || failed(past.build(write.getFirst())) || failed(past.build(write.getSecond())))
      return failure();
    TileBuilder &body = past.builder();
    Value keys = body.matrixOf(body.tileOf(write.getFirst())), values = body.matrixOf(body.tileOf(write.getSecond()));
    chunk::LookbackOp added = past.finish(chunk::Fold::Outer, *range, {keys, values}, state.getType(),
                                          continued ? ChunksMet() : metBy(write));
    added.setContinued(continued);
    state = b.create<arith::AddFOp>(state, added.getResult(0));
  }
  return state;
}

FailureOr<Value> ChunkEarlierReads::next() {
  if (ofFirst && b.tokens == 1)
    return ofFirst;
  return add(
      ofFirst ? ofFirst : start, [&](PastTiles &past, WriteOp write) { return unseen(past, write); },
      /*continued=*/ofFirst != nullptr);
}
