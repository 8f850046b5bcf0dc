//===- WholeWalks.cpp - Whole sequences in slices, or segments ------------===//

#include "runtime/WholeWalks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <algorithm>

using namespace mlir;
using namespace stretto;

/// Whether an operation makes a number of each token and head of such numbers.
static bool computesNumbers(Operation *op) {
  if (!isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) || op->getNumResults() != 1)
    return false;
  auto row = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return row && row.getRank() == 0 && isRow(row);
}

/// Whether an operation does what walks leave to others, or nothing with the rows of tokens. Groups of warps that take
/// chunks in turns copy no parameters for the outputs that they find.
static bool isPlain(Operation *op) {
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    auto row = cast<RankedTensorType>(broadcast.getType());
    return !isParam(broadcast.getOperand().getType()) || row.getRank() == 0;
  }
  return isa<VariantOp, StateOp, DecayOp, WriteOp, ReadOp, ConcatOp, SliceOp, OptionOp, OptionIsOp, PresentOp, TableOp,
             stretto::YieldOp, stretto::ConstantOp, scf::IfOp, scf::YieldOp, arith::ConstantOp, arith::MulFOp,
             arith::DivFOp, arith::AddFOp, arith::SubFOp>(op);
}

std::optional<int64_t> stretto::weightOfPlainTurn(VariantOp program) {
  int64_t states = 0, decays = 0, computed = 0;
  WalkResult result = program->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isa<TableOp>(op))
      return WalkResult::skip();
    if (auto decay = dyn_cast<DecayOp>(op); decay && decay.getAlong())
      return WalkResult::interrupt();
    states += isa<StateOp>(op);
    decays += isa<DecayOp>(op);
    bool isComputed = computesNumbers(op);
    computed += isComputed;
    return WalkResult(success(isComputed || isPlain(op)));
  });
  if (result.wasInterrupted() || !states)
    return std::nullopt;
  return states + std::min<int64_t>(decays, 1) + std::min<int64_t>(computed, 1);
}

bool stretto::walksWholeSooner(int64_t weight, int64_t width, int64_t columns, int64_t chunks, int64_t segments) {
  // Microseconds on an H200 (docs/performance.md): of a chunk of 64 tokens that a block walks over by itself in a slice
  // of 32 columns, and of one in a segment, the second walk over it included; how much longer a chunk takes that has
  // more to do than a state, and for each further weight; and what segments take beside their chunks.
  struct Times {
    double ofSlice, ofSegment, ofLaunches;
  };
  constexpr Times wide = {0.695, 2.8, 23}, narrow = {0.42, 1.4, 13};
  constexpr double ofMore = 0.45, ofWeight = 0.07, ofColumns = 0.7, usualColumns = 32;
  constexpr int64_t narrowWidth = 64;
  const Times &times = width <= narrowWidth ? narrow : wide;
  double slice = times.ofSlice * std::max(1.0, ofColumns * static_cast<double>(columns) / usualColumns);
  if (weight > 1)
    slice *= 1 + ofMore + ofWeight * static_cast<double>(weight - 2);
  double segment = times.ofSegment / static_cast<double>(segments);
  return static_cast<double>(chunks) * slice < times.ofLaunches + static_cast<double>(chunks) * segment;
}

int64_t stretto::segmentsOfLeastTime(int64_t blocks, int64_t chunks, int64_t blocksAtOnce, int64_t most) {
  auto timeOf = [&](int64_t segments) -> int64_t {
    return llvm::divideCeil(blocks * segments, blocksAtOnce) * (llvm::divideCeil(chunks, segments) + 1);
  };
  int64_t best = 1;
  for (int64_t segments = 2; segments <= most; ++segments)
    if (timeOf(segments) < timeOf(best))
      best = segments;
  return best;
}
