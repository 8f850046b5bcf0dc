//===- LeftTiles.h - Tiles that products take from registers ----*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_LEFTTILES_H
#define STRETTO_PASSES_KERNEL_LEFTTILES_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// The tiles of a function that are wanted as left operands of products and nowhere else, and what they are computed
/// from element by element: masked scores, say. Where warps divide the columns of such a product, each of them needs
/// the whole rows of the left operand. They may form these on their own, in the fragments that the product takes, and
/// exchange nothing. So it is with parts that are put together, one for each warpgroup: whole rows of a part are where
/// its largest number and its sum are found, and the other warpgroup does not ask for them.
class LeftTiles {
public:
  LeftTiles() = default;
  LeftTiles(FuncOp function, int64_t warps);

  /// The layout of such a tile; nothing for others.
  std::optional<Layout> layoutFor(mlir::Value tile) const;

private:
  void addLeft(chunk::DotOp product);
  void addParts(chunk::ConcatOp joined);
  /// What `user` wants of whole rows, for a `result` whose columns warps divide.
  void add(mlir::Operation *user, mlir::ValueRange wanted, mlir::RankedTensorType result);

  int64_t warps = 0;
  llvm::DenseMap<mlir::Value, Layout> layouts;
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_LEFTTILES_H
