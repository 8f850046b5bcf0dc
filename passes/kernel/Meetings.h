//===- Meetings.h - Chunks that meet tiles of others ------------*- C++ -*-===//
//
// A look-back, or a look-ahead, is a loop over other chunks. Where each chunk is a work item of its own there is little
// else in a kernel, and how its blocks hide what they wait for is decided by these.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_KERNEL_MEETINGS_H
#define STRETTO_PASSES_KERNEL_MEETINGS_H

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace stretto::kernel {

/// Whether a block computes one chunk: what it leaves it stores last, where nothing is read any longer.
bool isItemOfChunk(FuncOp function);

/// Whether a loop meets tiles of other chunks that the memory system brings through a channel.
bool bringsMetTiles(ChannelOp channel);
/// Whether it does so one at a time: then memory was left for several blocks on a multiprocessor.
bool bringsOneAtATime(ChannelOp channel);
/// How many blocks that meet tiles of other chunks, each of a chunk for itself, are to be on a multiprocessor, as far
/// as registers say; 1 where nothing is met, or where it makes no difference to how tiles come.
int64_t blocksOfMeetings(FuncOp function);

/// Whether a loop meets as many chunks as the sequence has on one side of this one: ranges begin with their sequences.
bool meetsAllOfOneSide(mlir::scf::ForOp loop);
/// Whether blocks take the longer the later their chunks are: some loop meets all before, and none those behind.
bool growsWithPlace(FuncOp function);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_MEETINGS_H
