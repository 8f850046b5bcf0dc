//===- Chip.h - What a GPU offers a kernel ----------------------*- C++ -*-===//
#ifndef STRETTO_DIALECT_KERNEL_CHIP_H
#define STRETTO_DIALECT_KERNEL_CHIP_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace stretto::kernel {

struct Chip {
  llvm::StringRef name; // as PTX calls it
  /// The oldest version of PTX that knows the chip and all instructions that kernels use.
  llvm::StringRef ptxFeature;
  /// Shared memory that one block may have.
  int64_t sharedBytes;
  /// Four warps form products together, by `wgmma`.
  bool hasWarpgroups = false;
  /// The memory system copies boxes of a tensor to shared memory (TMA), and warps store matrices there (`stmatrix`).
  bool hasBulkCopies = false;
  /// A kernel may be launched before the one in front of it has ended, and waits for that itself (`griddepcontrol`).
  bool hasDependentLaunches = false;

  /// The chip of a name such as "sm_90a", or nothing.
  static const Chip *find(llvm::StringRef name);
  /// The same; the error lists the names.
  static mlir::FailureOr<Chip> named(llvm::StringRef name, llvm::function_ref<mlir::InFlightDiagnostic()> emitError);
};

} // namespace stretto::kernel

#endif // STRETTO_DIALECT_KERNEL_CHIP_H
