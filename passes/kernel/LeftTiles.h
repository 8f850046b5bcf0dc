//===- LeftTiles.h - Tiles that products take from registers ----*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_LEFTTILES_H
#define STRETTO_PASSES_KERNEL_LEFTTILES_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// The tiles of a function that are wanted as left operands of products and nowhere else, and what they are computed
/// from element by element: masked scores, say. Where warps divide the columns of such a product, each of them needs
/// the whole rows of the left operand. They may form these on their own, in the fragments that the product takes, and
/// exchange nothing.
class LeftTiles {
public:
  LeftTiles() = default;
  LeftTiles(FuncOp function, int64_t warps);

  /// The layout of such a tile; nothing for others.
  std::optional<Layout> layoutFor(mlir::Value tile) const;

private:
  void addProduct(chunk::DotOp product, int64_t warps);

  llvm::DenseMap<mlir::Value, Layout> layouts;
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_LEFTTILES_H
