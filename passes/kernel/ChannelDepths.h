//===- ChannelDepths.h - How far ahead tiles are sent -----------*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_CHANNELDEPTHS_H
#define STRETTO_PASSES_KERNEL_CHANNELDEPTHS_H

#include "passes/kernel/SharedMemoryPlanner.h"

namespace stretto::kernel {

/// How many blocks a multiprocessor has registers for, two at most, or three of those that wait for memory, and for no
/// chain of products. Where slices divide heads there are no more blocks than multiprocessors.
int64_t blocksForRegisters(Roles roles);

/// Segments that come one after the other take little of what is kept of each, and wait for it: threads send for more
/// of them ahead, as far as two blocks share the memory of a multiprocessor.
void deepenCopiesOfTurns(FuncOp function);

/// Makes bulk channels as deep as memory allows, equally deep, and what roles pass to each other two tiles deep, or
/// one, or as many as there are groups, or more where memory is left. Where not all bulk channels have place for two
/// tiles, those of the largest tiles have one, and are bulk channels no more where one role walks forward. What has
/// turns is sent as far ahead as it is. The bytes that the block may take.
int64_t deepenChannels(Roles roles, int64_t bytes);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_CHANNELDEPTHS_H
