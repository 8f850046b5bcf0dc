//===- HostMemory.h - Large memory of the host, used again ------*- C++ -*-===//
//
// The C library gives large memory back to the system when a tensor goes, and maps it anew for the next one, whose
// pages the system clears one by one when they are first written to: a sixth of what a gradient takes on a CPU. As
// PyTorch does with the memory of a GPU, the memory of results, gradients and workspaces is kept here when it is free,
// and serves later calls.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_TORCH_HOSTMEMORY_H
#define STRETTO_RUNTIME_TORCH_HOSTMEMORY_H

#include <ATen/ATen.h>

namespace stretto::torch_layer {

/// What is large enough to be kept.
inline constexpr size_t leastHostMemory = size_t(4) << 20;

/// Gives memory that nobody has written to, or what is left of an earlier tensor. Idle memory is at most
/// `strettoIdleBytes()`; what has been idle for longest goes first.
c10::Allocator *hostMemory();

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_HOSTMEMORY_H
