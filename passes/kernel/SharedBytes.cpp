//===- SharedBytes.cpp - Where tiles lie in shared memory -----------------===//

#include "passes/kernel/SharedBytes.h"

using namespace mlir;
using namespace stretto::kernel;

SharedBytes SharedBytes::of(ChannelOp channel) {
  auto begin = static_cast<int64_t>(*channel.getOffset());
  return {begin, begin + channel.bytesOfTiles()};
}

SharedBytes SharedBytes::ofScratch(Operation *op) {
  int64_t begin = op->getAttrOfType<IntegerAttr>(scratchAttribute).getInt();
  return {begin, begin + scratchBytesOf(op)};
}

bool SharedBytes::areTouchedBy(Operation *op) const {
  if (auto channel = dyn_cast<ChannelOp>(op))
    return channel.getOffset() && of(channel).meets(*this);
  if (auto convert = dyn_cast<ConvertOp>(op); convert && convert.getOffset()) {
    auto offset = static_cast<int64_t>(*convert.getOffset());
    return SharedBytes{offset, offset + sharedBytesOf(cast<RankedTensorType>(convert.getType()))}.meets(*this);
  }
  return op->hasAttrOfType<IntegerAttr>(scratchAttribute) && ofScratch(op).meets(*this);
}
