//===- ChunkRows.h - Row maps on tiles --------------------------*- C++ -*-===//
//
// What a row map does to one token, done to all tokens of a chunk.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKROWS_H
#define STRETTO_PASSES_DECLARATION_CHUNKROWS_H

#include "dialect/stretto/Sizes.h"
#include "passes/declaration/ChunkTiles.h"

namespace stretto {

/// Computes the tile of the result of a row map from those of its operands, or refuses. Rows that come from outside
/// (arguments, tables, positions) and reads have theirs already. `tailOf` gives the rows before the chunk of a row that
/// a convolution or a delay looks back at, and the total of a scan before the chunk.
mlir::LogicalResult buildRowMap(mlir::Operation *op, TileBuilder &builder, const Sizes &sizes,
                                llvm::function_ref<mlir::Value(mlir::Operation *)> tailOf);

chunk::ScanKind kindOf(ScanOp op);
/// The totals of a scan after each token.
mlir::Value buildTotals(ScanOp op, TileBuilder &builder, mlir::Value carry);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKROWS_H
