//===- Scratch.cpp - Shared memory that operations need for themselves ----===//

#include "dialect/kernel/KernelDialect.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {
/// The bytes of a tile where it lies in shared memory, wherever it is now.
int64_t bytesOf(Value tile) { return sharedBytesOf(cast<RankedTensorType>(tile.getType())); }

/// The bytes in which an operation copies an operand to shared memory: none where it is there already.
int64_t bytesOfCopy(Value tile) { return inSharedMemory(tile.getType()) ? 0 : bytesOf(tile); }

/// The bytes in which bounds of ranges are copied for any thread to ask for them: all threads know one number.
int64_t bytesOfBounds(ArrayRef<Value> bounds) {
  int64_t bytes = 0;
  for (Value bound : bounds)
    bytes += bound && !isOneNumber(bound) ? bytesOfCopy(bound) : 0;
  return bytes;
}

/// How many warps divide one side of a tile.
int64_t warpsOn(const Layout &layout, unsigned side) {
  int64_t warps = 1;
  for (uint64_t vector : layout.basis(Layout::Warp))
    warps *= layout.coordinate(vector, side) ? 2 : 1;
  return warps;
}

/// The bytes in which each of some warps leaves `numbers`; none where there is one warp.
int64_t bytesOfWarps(int64_t warps, int64_t numbers, Type element) {
  return warps == 1 ? 0 : warps * sharedBytesOf(RankedTensorType::get({numbers}, element));
}
} // namespace

TapSums::TapSums(chunk::ConvTapsOp op)
    : rows(runLayout(cast<RankedTensorType>(op.getWeights().getType()).getShape(),
                     layoutOf(op.getType())->size(Layout::Warp))),
      runs(1), taps(llvm::PowerOf2Ceil(cast<RankedTensorType>(op.getType()).getDimSize(1))),
      numbers(RankedTensorType::get({rows.side(1)}, getElementTypeOrSelf(op.getType()))) {
  for (Layout::Space space : {Layout::Lane, Layout::Warp})
    for (uint64_t vector : rows.basis(space))
      runs *= rows.coordinate(vector, 0) ? 2 : 1;
}

InverseTiles::InverseTiles(RankedTensorType matrix) {
  int64_t rows = int64_t(1) << paddedBits(matrix.getShape())[0];
  Type narrow = BFloat16Type::get(matrix.getContext());
  blocks = rows / blockRows;
  parts = RankedTensorType::get({rows, rows}, narrow);
  inverses = RankedTensorType::get({2 * blockRows, rows}, narrow);
}

bool stretto::kernel::isOneNumber(Value tile) {
  SplatElementsAttr number;
  return matchPattern(tile, m_Constant(&number));
}

bool stretto::kernel::isOfConstants(chunk::ConcatOp op) { return llvm::all_of(op.getOperands(), isOneNumber); }

std::optional<Conversion> stretto::kernel::withinThreads(chunk::ConcatOp op) {
  auto type = cast<RankedTensorType>(op.getType()), first = cast<RankedTensorType>(op.getOperand(0).getType());
  std::optional<Layout> layout = layoutOf(type), part = layoutOf(first);
  bool areAlike = llvm::all_of(op.getOperandTypes(), [&](Type other) { return other == first; });
  if (!layout || !part || part->rank() != 2 || part->inSharedMemory() || layout->inSharedMemory() || !areAlike ||
      part->side(1) != first.getDimSize(1) || part->side(1) * op.getNumOperands() != layout->side(1))
    return std::nullopt;
  // The layout of the result with the columns of a part in place of all.
  Layout columns({layout->bitsOf(0), part->bitsOf(1)});
  for (Layout::Space space : {Layout::Register, Layout::Lane, Layout::Warp})
    for (uint64_t vector : layout->basis(space))
      columns.addFlat(
          space, columns.flat({layout->coordinate(vector, 0), layout->coordinate(vector, 1) & (part->side(1) - 1)}));
  Conversion conversion = Conversion::between(*part, columns);
  return conversion.kind == Conversion::SameRegisters ? std::optional(conversion) : std::nullopt;
}

std::optional<Conversion> stretto::kernel::withinThreads(chunk::ColumnsOp op) {
  return columnsWithinThreads(cast<RankedTensorType>(op.getOperand().getType()), cast<RankedTensorType>(op.getType()),
                              static_cast<int64_t>(op.getFrom()));
}

std::optional<Conversion> stretto::kernel::columnsWithinThreads(RankedTensorType whole, RankedTensorType type,
                                                                int64_t from) {
  std::optional<Layout> layout = layoutOf(whole), part = layoutOf(type);
  if (!layout || !part || part->rank() != 2 || layout->rank() != 2 || part->inSharedMemory() ||
      layout->inSharedMemory() || part->side(1) != type.getDimSize(1) || part->bitsOf(0) != layout->bitsOf(0) ||
      part->bitsOf(1) >= layout->bitsOf(1) || from % type.getDimSize(1) != 0)
    return std::nullopt;
  Conversion conversion = Conversion::between(*layout, sideBySide(*part, whole.getShape()));
  return conversion.kind == Conversion::SameRegisters ? std::optional(conversion) : std::nullopt;
}

bool stretto::kernel::passesThroughShared(chunk::ReduceOp op) {
  unsigned reduced = op.getOver() == chunk::Side::Columns ? 1 : 0;
  std::optional<Layout> layout = layoutOf(op.getOperand().getType()), kept = layoutOf(op.getType());
  return layout && kept && (warpsOn(*layout, reduced) > 1 || layout->onto(1 - reduced) != *kept);
}

bool stretto::kernel::isOnlyRow(chunk::RowOp op) {
  std::optional<Layout> layout = layoutOf(op.getOperand().getType()), row = layoutOf(op.getType());
  if (!layout || !row)
    return false;
  return layout->rank() == 2 ? layout->side(0) == 1 && layout->onto(1) == *row : layout->totalBits() == 0;
}

bool stretto::kernel::isInEachWarp(chunk::RowOp op) {
  std::optional<Layout> layout = layoutOf(op.getOperand().getType());
  return layout && layout->rank() == 1 && !layout->inSharedMemory() &&
         llvm::all_of(layout->basis(Layout::Warp), [](uint64_t vector) { return vector == 0; });
}

chunk::WithinOp stretto::kernel::askedTogether(chunk::WithinOp op) {
  auto both = op->hasOneUse() ? dyn_cast<arith::AndIOp>(*op->user_begin()) : arith::AndIOp();
  if (!both)
    return {};
  auto other = (both.getLhs() == op ? both.getRhs() : both.getLhs()).getDefiningOp<chunk::WithinOp>();
  bool isBehind = other && other->getBlock() == op->getBlock() && op->isBeforeInBlock(other);
  return isBehind && other->hasOneUse() ? other : chunk::WithinOp();
}

int64_t stretto::kernel::scratchBytesOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([](chunk::ReduceOp op) -> int64_t {
        // Each warp of those whose numbers are reduced leaves what it has for every row that is kept.
        unsigned reduced = op.getOver() == chunk::Side::Columns ? 1 : 0;
        std::optional<Layout> layout = layoutOf(op.getOperand().getType());
        return layout && passesThroughShared(op)
                   ? warpsOn(*layout, reduced) * sharedBytesOf(RankedTensorType::get({layout->side(1 - reduced)},
                                                                                     op.getType().getElementType()))
                   : 0;
      })
      .Case([](chunk::AccumulateOp op) -> int64_t {
        auto type = cast<RankedTensorType>(op.getType());
        std::optional<Layout> layout = layoutOf(type);
        if (!layout)
          return 0;
        int64_t columns = layout->rank() == 2 ? layout->side(1) : 1;
        return bytesOfWarps(warpsOn(*layout, 0), columns * (layout->side(0) / rowsWithinWarps(*layout)),
                            type.getElementType());
      })
      .Case([](chunk::ExpectOp) { return bytesOfBarrier; }) // where a walk ends
      .Case([](FetchOp op) { return llvm::alignTo(op.bytesOfRows(), bytesOfBarrier) + bytesOfBarrier; })
      .Case([](StoreOp op) { return op.getStaged() ? bytesOf(op.getTile()) : 0; })
      .Case([](chunk::RowOp op) { return isOnlyRow(op) || isInEachWarp(op) ? 0 : bytesOf(op.getResult()); })
      .Case([](SpanOp op) { return bytesOfBounds({op.getFirst(), op.getLast()}); })
      .Case([](InRangeOp op) {
        bool asksAnyThread = cast<RankedTensorType>(op.getType()).getRank() == 1 && !op.getAhead();
        return asksAnyThread ? bytesOfBounds({op.getFirst(), op.getLast()}) : 0;
      })
      .Case([](chunk::DecayMatrixOp op) { return bytesOf(op.getAmount()); })
      .Case([](chunk::DecayDotOp op) {
        return bytesOf(op.getQuery()) + bytesOfCopy(op.getKey()) + bytesOf(op.getAmount()) + bytesOf(op.getResult());
      })
      .Case([](chunk::DecayMixOp op) {
        return bytesOf(op.getWeights()) + bytesOf(op.getRows()) + bytesOf(op.getAmount());
      })
      .Case([](chunk::DecayPairsOp op) {
        return bytesOf(op.getQuery()) + bytesOf(op.getKey()) + bytesOf(op.getAmount()) + bytesOf(op.getWeights()) +
               bytesOf(op.getResult());
      })
      .Case([](chunk::SolveOp op) { return bytesOf(op.getMatrix()) + bytesOf(op.getRows()); })
      .Case([](chunk::InverseOp op) { return InverseTiles(op.getType()).bytes(); })
      .Case([](chunk::ScanOp op) {
        return bytesOf(op.getOperand()) + bytesOf(op.getCarry()) + (op.getLog() ? bytesOf(op.getLog()) : 0);
      })
      .Case([](chunk::ColumnsOp op) { return withinThreads(op) ? 0 : bytesOfCopy(op.getOperand()); })
      .Case([](chunk::ConcatOp op) { return withinThreads(op) || isOfConstants(op) ? 0 : bytesOf(op.getResult()); })
      .Case([](chunk::ConvOp op) {
        return bytesOfCopy(op.getOperand()) + bytesOfCopy(op.getTail()) + bytesOfCopy(op.getTaps());
      })
      .Case([](chunk::ConvBackOp op) {
        return bytesOfCopy(op.getOperand()) + bytesOfCopy(op.getTaps()) + bytesOfCopy(op.getCarry());
      })
      .Case([](chunk::ConvTapsOp op) {
        return bytesOfCopy(op.getWeights()) + bytesOfCopy(op.getOperand()) + bytesOfCopy(op.getTail()) +
               (layoutOf(op.getType()) ? TapSums(op).bytes() : 0);
      })
      .Case<chunk::DelayOp, chunk::TailOp>(
          [](auto op) { return bytesOfCopy(op.getOperand()) + bytesOfCopy(op.getTail()); })
      .Default([](Operation *) -> int64_t { return 0; });
}
