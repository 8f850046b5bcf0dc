//===- BulkCopies.h - Channels that the memory system fills -----*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_BULKCOPIES_H
#define STRETTO_PASSES_KERNEL_BULKCOPIES_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// How the tiles of chunks pass through a channel: one is sent before the loop that receives them, and another in each
/// of its turns.
struct ChunkCopies {
  SendOp first, next;
  ReceiveOp receive;
  /// A turn may also receive its own tile before that is replaced, or on a condition the tile of the next one.
  llvm::SmallVector<ReceiveOp, 1> others;
  llvm::SmallVector<ReplaceOp, 1> replaced;

  bool isOfNext(ReceiveOp other) { return other.getChunk() == next.getChunk(); }
  bool receivesNext() {
    return llvm::any_of(others, [&](ReceiveOp other) { return isOfNext(other); });
  }

  /// Nothing where a channel is used in any other way.
  static std::optional<ChunkCopies> of(ChannelOp channel);
};

/// Whether all that passes through a channel has its turn, as tiles that look-backs meet do.
bool hasTurns(ChannelOp channel);

/// Whether threads send a turn of segments what they keep of one, a turn or more ahead.
bool isSentInTurns(ChannelOp channel);

/// Whether a warp has matrices of eight rows of 16 bytes, or the transposes of such, as products leave and take them,
/// each in a register of two numbers; all registers of the tile are such.
bool hasMatrices(mlir::RankedTensorType tile);

/// Whether boxes as wide as the banks divide a tile, which the memory system stores as a whole.
bool isOfWideBoxes(mlir::RankedTensorType tile);

/// How many rows the boxes of a tile have that each warp has all of, and no other: 0 where they have none.
int64_t rowsOfOwnBoxes(mlir::RankedTensorType tile);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_BULKCOPIES_H
