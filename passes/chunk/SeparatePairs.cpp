//===- SeparatePairs.cpp - Pairs of a chunk's tokens by themselves --------===//

#include "passes/Passes.h"

namespace stretto {
#define GEN_PASS_DEF_SEPARATEPAIRS
#include "passes/Passes.h.inc"

namespace {

struct SeparatePairs : impl::SeparatePairsBase<SeparatePairs> {
  void runOnOperation() override {
    for (chunk::DecayPairsOp op : llvm::make_early_inc_range(getOperation().getOps<chunk::DecayPairsOp>())) {
      if (!op.hasParts())
        continue;
      mlir::OpBuilder builder(op);
      op.replaceAllUsesWith(op.inParts(builder));
      op.erase();
    }
  }
};

} // namespace
} // namespace stretto
