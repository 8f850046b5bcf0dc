//===- ChunkLaterWrites.cpp - Writes to a state of long ago ---------------===//

#include "passes/declaration/ChunkLaterWrites.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
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

FailureOr<PastTiles::Range> ChunkLaterWrites::unseen(PastTiles &past, WriteOp write) {
  Value time = write.getAt();
  PositionOp position = positionOf(time);
  if (!position || failed(past.build(time)))
    return refuseChunkForm(chain.root) << "is written to at a time that is not computed from the position";
  auto number = RankedTensorType::get({}, b.compute);
  Value first = b.create<chunk::RowOp>(number, b.tileOf(position), /*at=*/0);
  Value behind = b.create<arith::AddFOp>(first, b.splat(number, static_cast<double>(b.tokens)));
  // What joins behind the chunk is in the state that it is entered with.
  TileBuilder &body = past.builder();
  Value times = body.tileOf(time);
  auto type = cast<RankedTensorType>(times.getType());
  Value end = body.repeat(behind, type);
  Value isInside = body.create<arith::CmpFOp>(arith::CmpFPredicate::OLT, times, end);
  Value never = body.splat(type, std::numeric_limits<double>::infinity());
  Value from = body.create<arith::SelectOp>(isInside, body.splat(type, 0), never);
  return PastTiles::Range{.first = from, .last = times, .ahead = true};
}
