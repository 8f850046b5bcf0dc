//===- FreeTiles.h - Tiles that may lie elsewhere --------------*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_FREETILES_H
#define STRETTO_PASSES_KERNEL_FREETILES_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// The type of what is a tile, or nothing.
inline mlir::RankedTensorType tileTypeOf(mlir::Value value) {
  return mlir::dyn_cast<mlir::RankedTensorType>(value.getType());
}
inline bool isVector(mlir::Value value) { return tileTypeOf(value).getRank() == 1; }

/// Operations on tiles of one layout.
bool isInPlace(mlir::Operation *op);
/// Whether what is made of a tile in place is made of it alone, of constants and of numbers that are repeated, and
/// goes where any layout does: to products and sums, or, of what is `stored`, to memory.
bool isMadeAlone(mlir::Value tile, bool stored = false);
/// Whether what is made of a vector are sums over its numbers, and what is made of these, or numbers that are stored.
bool isForSums(mlir::Value vector);

/// Tiles that are made of each other, number by number, and of tiles in shared memory alone, for those that read them
/// there: they may be where that takes the fewest accesses.
class FreeTiles {
public:
  /// Finds those that a block makes of rows of other tokens, for products.
  void findRows(mlir::Block &block);
  /// Finds those that a block makes of sums over tokens: threads that walk down columns need no others for most of
  /// these sums.
  void findRuns(mlir::Block &block);

  bool isOfRows(mlir::Value tile) const { return ofRows.contains(tile); }
  bool isOfRuns(mlir::Value tile) const { return ofRuns.contains(tile); }

private:
  llvm::DenseSet<mlir::Value> ofRows, ofRuns;
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_FREETILES_H
