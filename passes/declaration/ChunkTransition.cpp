//===- ChunkTransition.cpp - What feedback does to a state ----------------===//

#include "passes/declaration/ChunkTransition.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/declaration/ChunkFeedback.h"

using namespace mlir;
using namespace stretto;
using chunk::Side;

Side ChunkTransition::sideOf(const StateChain &chain) {
  ReadOp read = chain.feedback->read;
  return ChunkRecurrence::sideOf(chain.getRoot().getType(), read.getAlong());
}

int64_t ChunkTransition::sizeOf(const StateChain &chain) {
  StateType type = chain.getRoot().getType();
  return sideOf(chain) == Side::Rows ? type.getFirstSize() : type.getSecondSize();
}

SmallVector<Value> ChunkTransition::rowsOf(const StateChain &chain) {
  const Feedback &feedback = *chain.feedback;
  ReadOp read = feedback.read;
  WriteOp write = feedback.write;
  SmallVector<Value> rows = {read.getRow(), sideOf(chain) == Side::Rows ? write.getFirst() : write.getSecond()};
  llvm::append_range(rows, feedback.numbers);
  for (Operation *step : chain.steps)
    if (auto decay = dyn_cast<DecayOp>(step))
      rows.push_back(decay.getAmount());
  return rows;
}

/// The entries of D.
Value ChunkTransition::factors() {
  if (total.form == chunk::DecayForm::Log)
    return b.create<math::ExpOp>(totalDecay);
  auto type = cast<RankedTensorType>(totalDecay.getType());
  Value none = b.splat(type, -std::numeric_limits<double>::infinity());
  Value isNone = b.create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, totalDecay, none);
  return b.create<arith::SelectOp>(isNone, b.splat(type, 1), totalDecay);
}

Value ChunkTransition::readDecayed(Value row, size_t position, Side contracted) {
  Value ofStart = ChunkRecurrence::readDecayed(row, position, contracted), query = queryOf(row, position);
  if (total) {
    query = b.create<chunk::DecayFromStartOp>(query.getType(), query, total.form, total.amount,
                                              /*before=*/!isAfterAllDecays(position));
    auto type = cast<RankedTensorType>(query.getType());
    query = b.create<arith::MulFOp>(query, b.repeat(factors(), type, Side::Columns));
  }
  return b.create<arith::AddFOp>(ofStart, query);
}

void ChunkTransition::takeFeedback(Value rows, Value key, size_t end) {
  bool isOfRows = sideOf(chain) == Side::Rows;
  writes.push_back({end, isOfRows ? key : rows, isOfRows ? rows : key, chain.feedback->write->getLoc()});
}

Value ChunkTransition::next() {
  prepare();
  ReadOp read = chain.feedback->read;
  b.setLoc(read.getLoc());
  solveFeedback(b.matrixOf(b.tileOf(read.getRow())), chain.positionOf(read.getState()), sideOf(chain));
  return ChunkRecurrence::next();
}

SmallVector<std::pair<StringRef, int64_t>, 1> stretto::sizesOfTransitions(VariantOp variant) {
  // What a state lacks a chunk form for is said where that is asked for.
  ScopedDiagnosticHandler silence(variant.getContext(), [](Diagnostic &) { return success(); });
  SmallVector<std::pair<StringRef, int64_t>, 1> sizes;
  for (StateChain &chain : stateChains(variant)) {
    FailureOr<std::optional<Feedback>> feedback = findFeedback(chain);
    if (failed(feedback) || !*feedback)
      continue;
    chain.feedback = std::move(*feedback);
    sizes.push_back({chain.getRoot().getName(), ChunkTransition::sizeOf(chain)});
  }
  return sizes;
}
