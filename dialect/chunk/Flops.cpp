//===- Flops.cpp - What a kernel multiplies and adds ----------------------===//

#include "dialect/chunk/Flops.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto::chunk;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Of a product whose every entry is a sum of so many terms.
static int64_t flopsOf(RankedTensorType result, int64_t terms) { return 2 * result.getNumElements() * terms; }

static int64_t flopsOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([](DotOp dot) {
        return flopsOf(dot.getType(), typeOf(dot.getLeft()).getDimSize(dot.getTransposeLeft() ? 0 : 1));
      })
      .Case([](DecayDotOp dot) { return flopsOf(typeOf(dot.getResult()), typeOf(dot.getQuery()).getDimSize(1)); })
      .Case([](DecayMixOp mix) { return flopsOf(typeOf(mix.getResult()), typeOf(mix.getWeights()).getDimSize(1)); })
      .Case([](DecayPairsOp pairs) { return flopsOf(pairs.getType(), typeOf(pairs.getWeights()).getDimSize(1)); })
      .Case([](SolveOp solve) { return flopsOf(solve.getType(), typeOf(solve.getMatrix()).getDimSize(1)); })
      .Case([](InverseOp inverse) { return flopsOf(typeOf(inverse), typeOf(inverse).getDimSize(0)) / 3; })
      .Default(int64_t(0));
}

/// A sum of rows by weights is formed by the fold.
static int64_t flopsOf(LookbackOp lookback, ContributeOp contribution) {
  if (lookback.getFold() == Fold::Divergence)
    return 0;
  int64_t flops = 0;
  OperandRange values = contribution.getGiven();
  for (size_t i = 0; i + 1 < values.size(); i += 2)
    flops += 2 * typeOf(values[i]).getNumElements() * typeOf(values[i + 1]).getDimSize(1);
  return flops;
}

Flops stretto::chunk::countFlops(KernelOp kernel) {
  Flops flops;
  kernel.walk([&](Operation *op) {
    auto lookback = op->getParentOfType<LookbackOp>();
    (lookback ? flops.ofMeeting : flops.ofChunk) += flopsOf(op);
    if (auto contribution = dyn_cast<ContributeOp>(op))
      flops.ofMeeting += flopsOf(lookback, contribution);
  });
  return flops;
}
