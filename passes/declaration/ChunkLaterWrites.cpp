//===- ChunkLaterWrites.cpp - Writes to a state of long ago ---------------===//

#include "passes/declaration/ChunkLaterWrites.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace stretto;

static bool isDelayed(Operation *step) {
  auto write = dyn_cast<WriteOp>(step);
  return write && write.getAt();
}

bool ChunkLaterWrites::hasSome(const StateChain &chain) { return llvm::any_of(chain.steps, isDelayed); }

LogicalResult ChunkLaterWrites::check(const StateChain &chain) {
  StateOp root = chain.getRoot();
  for (Operation *step : chain.steps)
    if (!isDelayed(step))
      return refuseChunkForm(step) << "changes the state '" << root.getName()
                                   << "', which is written to at an earlier time";
  for (ReadOp read : chain.reads())
    if (read.getAt() || chain.positionOf(read.getState()) != chain.steps.size())
      return refuseChunkForm(read) << "reads the state '" << root.getName()
                                   << "', which is written to at an earlier time, otherwise than behind all writes";
  return success();
}

/// The position that a time is computed from, or null.
static PositionOp positionOf(Value time) {
  SetVector<Operation *> makers;
  BackwardSliceOptions options;
  options.inclusive = true;
  Operation *maker = time.getDefiningOp();
  if (!maker || failed(getBackwardSlice(maker, &makers, options)))
    return nullptr;
  auto position = llvm::find_if(makers, llvm::IsaPred<PositionOp>);
  return position == makers.end() ? nullptr : cast<PositionOp>(*position);
}

bool ChunkLaterWrites::goesOnFirst(const StateChain &chain, int64_t tokens) {
  constexpr int64_t chunks = 64;
  // Of blocks that are longer than a chunk, the tokens of several chunks join together.
  return llvm::all_of(chain.steps, [&](Operation *step) {
    return llvm::all_of(llvm::seq<int64_t>(0, chunks * tokens), [&](int64_t position) {
      std::optional<double> time = timeAt(cast<WriteOp>(step).getAt(), static_cast<double>(position));
      double behind = time ? std::floor(*time) + 1 : 0;
      return time && (behind <= 0 || std::fmod(behind, static_cast<double>(tokens)) == 0);
    });
  });
}

FailureOr<PastTiles::Range> ChunkLaterWrites::rangeOf(PastTiles &past, WriteOp write, std::optional<int64_t> from,
                                                      int64_t end) {
  Value time = write.getAt();
  PositionOp position = positionOf(time);
  if (!position || failed(past.build(time)))
    return refuseChunkForm(chain.root) << "is written to at a time that is not computed from the position";
  auto number = RankedTensorType::get({}, b.compute);
  Value first = b.create<chunk::RowOp>(number, b.tileOf(position), /*at=*/0);
  TileBuilder &body = past.builder();
  Value times = body.tileOf(time);
  auto type = cast<RankedTensorType>(times.getType());
  auto tokenAt = [&](int64_t place) {
    return body.repeat(b.create<arith::AddFOp>(first, b.splat(number, static_cast<double>(place))), type);
  };
  Value isBefore = body.create<arith::CmpFOp>(arith::CmpFPredicate::OLT, times, tokenAt(end));
  Value never = body.splat(type, std::numeric_limits<double>::infinity());
  Value begin = from ? tokenAt(*from) : body.splat(type, 0);
  return PastTiles::Range{.first = body.create<arith::SelectOp>(isBefore, begin, never), .last = times, .ahead = true};
}

/// Those of later tokens whose time is that of the chunk's last one.
ChunksMet ChunkLaterWrites::metBy(WriteOp write) { return ChunksMet::joinedAhead(write.getAt(), b.tokens); }

/// What joins behind the chunk is in the state that it is entered with, and what joins at the last token in one that
/// has gone on.
FailureOr<PastTiles::Range> ChunkLaterWrites::unseen(PastTiles &past, WriteOp write) {
  return rangeOf(past, write, /*from=*/std::nullopt, ofFirst ? b.tokens - 1 : b.tokens);
}

FailureOr<PastTiles::Range> ChunkLaterWrites::unseenByFirst(PastTiles &past, WriteOp write) {
  return rangeOf(past, write, b.tokens - 1, b.tokens);
}
