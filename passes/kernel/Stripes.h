//===- Stripes.h - What is made of tiles a few rows at a time ---*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_STRIPES_H
#define STRETTO_PASSES_KERNEL_STRIPES_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// Of the registers that a thread has of a tile so many are made, and stored, before the next.
inline constexpr uint64_t registersOfStripe = 8;

/// Operations from `begin` on that make tiles, number by number, of others that are received, and pass them, at least
/// one over these (kernel.channel): behind the last of them; `begin` where there are none. A thread that made a whole
/// tile before it stored any of it would want registers for all of it, as its loads stand before its stores.
mlir::Block::iterator endOfStripes(mlir::Block::iterator begin, mlir::Block::iterator end);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_STRIPES_H
