//===- ChunkPast.h - Tiles of other chunks ----------------------*- C++ -*-===//
//
// A `chunk.lookback` under construction: rows of the tokens j that it meets, computed from the inputs and tables of
// their chunk as the rows of the kernel's own chunk are.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKPAST_H
#define STRETTO_PASSES_DECLARATION_CHUNKPAST_H

#include "dialect/stretto/Sizes.h"
#include "passes/declaration/ChunkTiles.h"
#include "passes/declaration/ChunksMet.h"

namespace stretto {

/// The tiles that a kernel is given for a row that comes from outside, in memory's types; null for other rows.
using RawTiles = llvm::function_ref<mlir::BlockArgument(mlir::Value)>;

class PastTiles {
public:
  /// For a look-back of `op`, which is told what is refused.
  PastTiles(mlir::Operation *op, TileBuilder &builder, const Sizes &sizes, RawTiles rawTileOf)
      : op(op), b(builder), sizes(sizes), rawTileOf(rawTileOf),
        body(op->getLoc(), &block, builder.form, builder.pastTokens, builder.pastTokens, builder.compute) {}

  /// Builds the body.
  TileBuilder &builder() { return body; }
  /// Computes the tile of rows of j of a row of the declaration, or refuses.
  mlir::LogicalResult build(mlir::Value row);

  /// The range of tokens j of each token, as tiles of positions; `ahead`, that of each token j, as tiles of the body.
  struct Range {
    mlir::Value first, last = {}; // without `last`: up to the token itself
    bool toEnd = false, ahead = false;
  };
  /// Ends the body, and makes the operation that holds it.
  chunk::LookbackOp finish(chunk::Fold fold, Range range, mlir::ValueRange contribution, mlir::TypeRange results,
                           const ChunksMet &met = {});

private:
  mlir::LogicalResult load(mlir::Value source);

  mlir::Operation *op;
  TileBuilder &b;
  const Sizes &sizes;
  RawTiles rawTileOf;
  mlir::Block block;
  TileBuilder body;
  llvm::SmallVector<mlir::Value> sources; // of the body's arguments
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKPAST_H
