//===- SerialChannels.h - Channels one tile deep ----------------*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_SERIALCHANNELS_H
#define STRETTO_PASSES_KERNEL_SERIALCHANNELS_H

#include "dialect/kernel/KernelDialect.h"
#include <optional>

namespace stretto::kernel {

enum class Sent { AfterReading, AtEnd };

/// Makes channels one tile deep: a tile is sent when its predecessor has been read, or when the predecessor's chunk has
/// been computed, so that others may have its bytes in between. Rows that are kept for the next chunk are taken first.
void serializeChannels(FuncOp function, llvm::ArrayRef<ChannelOp> channels, Sent sent);

/// The largest tiles first, of these those that nobody reads for the longest.
void sortBySize(llvm::SmallVectorImpl<ChannelOp> &channels);

/// Where blocks of independent chunks have registers and shared memory for several on a multiprocessor if tiles of
/// other chunks come one at a time, the next when products have read the one before, they do: other blocks hide more of
/// what instructions wait for than a tile that comes early. So they do where there would be one block otherwise, with
/// so few warps, and there are two. The bytes that a block may take then; nothing where that is not so.
std::optional<int64_t> makeRoomForOthers(FuncOp function, int64_t bytes);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_SERIALCHANNELS_H
