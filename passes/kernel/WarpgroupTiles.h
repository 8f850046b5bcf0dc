//===- WarpgroupTiles.h - Products of four warps ----------------*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_WARPGROUPTILES_H
#define STRETTO_PASSES_KERNEL_WARPGROUPTILES_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// A product as instructions form it: where its result lies across, that of the transposed operands.
struct FormedProduct {
  explicit FormedProduct(chunk::DotOp product);

  mlir::Value left, right;
  bool transposeLeft, transposeRight;
  /// Where the result is.
  Layout layout;
  int64_t rows, columns, inner;
};

/// How a result that is spread over warpgroups divides into what one `wgmma` leaves: tiles of 64 rows and up to 256
/// columns, each in neighbouring registers.
struct WarpgroupTiles {
  static constexpr int64_t warps = 4, rows = 64, inner = 16;

  struct Tile {
    int64_t row, column, firstRegister;
  };
  int64_t columns = 0; // of each tile; the only one of a row ends with the result's columns, by the eight
  /// Those of the first warpgroup that reach into the result.
  llvm::SmallVector<Tile> tiles;

  int64_t registersOfTile() const { return columns / 2; }

  /// Nothing where four warps do not share the rows so.
  static std::optional<WarpgroupTiles> of(const FormedProduct &product);
};

/// Why warpgroups cannot form a product whose operands have places; empty where they can.
llvm::StringRef obstacleToWarpgroups(chunk::DotOp product);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_WARPGROUPTILES_H
