//===- SharedBytes.h - Where tiles lie in shared memory ---------*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_SHAREDBYTES_H
#define STRETTO_PASSES_KERNEL_SHAREDBYTES_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// Bytes of shared memory, once it is planned.
struct SharedBytes {
  int64_t begin, end;

  /// All tiles of a channel.
  static SharedBytes of(ChannelOp channel);
  /// What an operation needs beside its operands and results.
  static SharedBytes ofScratch(mlir::Operation *op);

  bool meets(const SharedBytes &other) const { return begin < other.end && other.begin < end; }
  /// Whether an operation has a tile, or scratch of its own, among them.
  bool areTouchedBy(mlir::Operation *op) const;
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_SHAREDBYTES_H
