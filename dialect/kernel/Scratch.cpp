//===- Scratch.cpp - Shared memory that operations need for themselves ----===//

#include "dialect/kernel/KernelDialect.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// The bytes of a tile where it lies in shared memory, wherever it is now.
static int64_t bytesOf(Value tile) { return sharedBytesOf(cast<RankedTensorType>(tile.getType())); }

int64_t stretto::kernel::scratchBytesOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([](chunk::ReduceOp op) -> int64_t {
        // One row for each warp of those whose numbers are reduced.
        std::optional<Layout> layout = layoutOf(op.getOperand().getType());
        if (!layout)
          return 0;
        unsigned reducedSide = op.getOver() == chunk::Side::Columns ? 1 : 0;
        int64_t rows = 1;
        for (uint64_t vector : layout->basis(Layout::Warp))
          rows *= layout->coordinate(vector, reducedSide) ? 2 : 1;
        auto row = RankedTensorType::get({layout->side(1 - reducedSide)}, op.getType().getElementType());
        return rows == 1 ? 0 : rows * sharedBytesOf(row);
      })
      .Case([](chunk::ColumnsOp op) { return bytesOf(op.getOperand()); })
      .Case([](chunk::ConcatOp op) { return bytesOf(op.getResult()); })
      .Case([](chunk::ConvOp op) { return bytesOf(op.getOperand()) + bytesOf(op.getTail()) + bytesOf(op.getTaps()); })
      .Case<chunk::DelayOp, chunk::TailOp>([](auto op) { return bytesOf(op.getOperand()) + bytesOf(op.getTail()); })
      .Default([](Operation *) -> int64_t { return 0; });
}
