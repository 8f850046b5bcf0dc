//===- Stripes.cpp - What is made of tiles a few rows at a time -----------===//

#include "passes/kernel/Stripes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

Block::iterator stretto::kernel::endOfStripes(Block::iterator begin, Block::iterator end) {
  std::optional<Layout> layout;
  Block::iterator last = begin;
  bool hasTiles = false, isOver = false;
  for (Block::iterator op = begin; op != end; ++op) {
    if (isa<ReceiveOp, ReleaseOp>(*op))
      continue;
    auto pass = dyn_cast<PassOp>(*op);
    if (pass && pass.getMatrices())
      break;
    Value tile = pass ? pass.getOperand() : op->getNumResults() == 1 ? op->getResult(0) : Value();
    auto convert = dyn_cast<ConvertOp>(*op);
    bool isLoaded = convert && inSharedMemory(convert.getOperand().getType()) && !convert.getMatrices();
    bool isMade = isLoaded || pass || op->hasTrait<OpTrait::Elementwise>() || isa<arith::ConstantOp>(*op);
    if (!tile || !isa<RankedTensorType>(tile.getType()) || !isMade)
      break;
    std::optional<Layout> own = layoutOf(tile.getType());
    if (!own || own->inSharedMemory() || own->rank() != 2 || (hasTiles && own != layout))
      break;
    hasTiles = true;
    layout = own;
    if (!pass)
      continue;
    last = std::next(op);
    isOver |= pass.getChannel().getDefiningOp<ChannelOp>().getOver().has_value();
  }
  return isOver ? last : begin;
}
