//===- Scratch.cpp - Shared memory that operations need for themselves ----===//

#include "dialect/kernel/KernelDialect.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {
/// The bytes of a tile where it lies in shared memory, wherever it is now.
int64_t bytesOf(Value tile) { return sharedBytesOf(cast<RankedTensorType>(tile.getType())); }

/// The bytes in which warps that divide one side of a tile leave a number each for what they hold of the other: a row
/// for each of them. None where no warps divide that side.
int64_t bytesAcrossWarps(Value tile, unsigned dividedSide) {
  auto type = cast<RankedTensorType>(tile.getType());
  std::optional<Layout> layout = layoutOf(type);
  if (!layout)
    return 0;
  int64_t rows = 1;
  for (uint64_t vector : layout->basis(Layout::Warp))
    rows *= layout->coordinate(vector, dividedSide) ? 2 : 1;
  int64_t numbers = layout->rank() == 2 ? layout->side(1 - dividedSide) : 1;
  return rows == 1 ? 0 : rows * sharedBytesOf(RankedTensorType::get({numbers}, type.getElementType()));
}
} // namespace

int64_t stretto::kernel::scratchBytesOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([](chunk::ReduceOp op) -> int64_t {
        return bytesAcrossWarps(op.getOperand(), op.getOver() == chunk::Side::Columns ? 1 : 0);
      })
      .Case([](chunk::AccumulateOp op) { return bytesAcrossWarps(op.getOperand(), 0); })
      .Case([](chunk::RowOp op) { return bytesOf(op.getResult()); })
      .Case([](chunk::DecayMatrixOp op) { return bytesOf(op.getAmount()); })
      .Case([](chunk::DecayDotOp op) {
        return bytesOf(op.getQuery()) + bytesOf(op.getKey()) + bytesOf(op.getAmount()) + bytesOf(op.getResult());
      })
      .Case([](chunk::ColumnsOp op) { return bytesOf(op.getOperand()); })
      .Case([](chunk::ConcatOp op) { return bytesOf(op.getResult()); })
      .Case([](chunk::ConvOp op) { return bytesOf(op.getOperand()) + bytesOf(op.getTail()) + bytesOf(op.getTaps()); })
      .Case<chunk::DelayOp, chunk::TailOp>([](auto op) { return bytesOf(op.getOperand()) + bytesOf(op.getTail()); })
      .Default([](Operation *) -> int64_t { return 0; });
}
