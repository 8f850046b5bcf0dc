//===- ChunkLookback.h - Look-backs over tiles of pairs ---------*- C++ -*-===//
//
// The body of a look-back is written for one pair of tokens t and j. For C tokens t and C tokens j it becomes tiles:
//
//   rows of t alone        tiles of the chunk, computed once, before the look-back
//   rows of j alone        tiles of another chunk, computed from its inputs and tables wherever it is met
//   numbers of both        C by C: products of a row of t with a row of j, and what is made of them entry by entry
//   such a number times    stays a product that the fold forms: sum_j w_tj x_j
//   a row of j
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKLOOKBACK_H
#define STRETTO_PASSES_DECLARATION_CHUNKLOOKBACK_H

#include "passes/declaration/ChunkPast.h"

namespace stretto {

/// Computes the tiles of the results of a look-back, or refuses. The rows of t that it uses have theirs.
mlir::LogicalResult buildLookback(LookbackOp op, TileBuilder &builder, const Sizes &sizes, RawTiles rawTileOf);

/// The values from outside that the body of a look-back uses, its bound included.
llvm::SetVector<mlir::Value> valuesUsedBy(LookbackOp op);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKLOOKBACK_H
