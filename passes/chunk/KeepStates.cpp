//===- KeepStates.cpp - States that a call keeps for its gradient ---------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/Passes.h"
#include "passes/chunk/InputType.h"

namespace stretto {
#define GEN_PASS_DEF_KEEPSTATES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

struct KeepStates : stretto::impl::KeepStatesBase<KeepStates> {
  using KeepStatesBase::KeepStatesBase;

  void runOnOperation() override {
    chunk::KernelOp kernel = getOperation();
    auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
    OpBuilder builder = OpBuilder::atBlockBegin(kernel.getBlock());
    bool isRounded = !ofSegments && inputTypeOf(kernel).isBF16();
    SmallVector<Attribute> outputs;
    SmallVector<Value> kept;
    for (BlockArgument state : kernel.argumentsOf(chunk::ArgumentKind::State)) {
      auto type = cast<RankedTensorType>(state.getType());
      chunk::ArgumentAttr argument = kernel.getArgument(state.getArgNumber());
      Value value = state;
      if (isRounded && type.getRank() == 2) {
        type = type.clone(builder.getBF16Type());
        value = arith::TruncFOp::create(builder, kernel.getLoc(), type, state);
      }
      outputs.push_back(chunk::OutputAttr::get(&getContext(), argument.getName(), type, argument.getGroup(),
                                               argument.getSliced(), /*checkpoint=*/true, argument.getPartial()));
      kept.push_back(value);
    }
    llvm::append_range(outputs, kernel.getOutputs());
    kernel.setRecorded(!ofSegments);
    kernel.setOutputsAttr(builder.getArrayAttr(outputs));
    llvm::append_range(kept, yield.getOutputs());
    yield.getOutputsMutable().assign(kept);
  }
};

} // namespace
