//===- ChunkTiles.h - Builds the body of a chunk kernel ---------*- C++ -*-===//
//
// What the steps of chunking share: the tile that stands for each row of a token, and the shapes that tiles have. A row
// on an axis of D channels is a tile of C by D, a number a vector of C.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKTILES_H
#define STRETTO_PASSES_DECLARATION_CHUNKTILES_H

#include "dialect/chunk/ChunkDialect.h"
#include "dialect/stretto/StrettoDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/declaration/ChunkPadding.h"

namespace stretto {

class TileBuilder : public mlir::ImplicitLocOpBuilder {
public:
  TileBuilder(mlir::Location location, mlir::Block *block, llvm::StringRef form, int64_t tokens, int64_t pastTokens,
              mlir::FloatType compute)
      : ImplicitLocOpBuilder(location, location.getContext()), form(form), tokens(tokens), pastTokens(pastTokens),
        compute(compute) {
    setInsertionPointToEnd(block);
  }

  /// The form that is built: "chunk" or "step".
  const llvm::StringRef form;
  /// Tokens of a chunk, those of a tile that look-backs meet, and the type that arithmetic is done in.
  const int64_t tokens, pastTokens;
  const mlir::FloatType compute;
  /// How many tokens of the chunk exist.
  mlir::Value valid;
  Padding padding;

  mlir::Value tileOf(mlir::Value row) const { return tiles.lookup(row); }
  void setTile(mlir::Value row, mlir::Value tile) { tiles[row] = tile; }

  /// Sets the tile of a row that comes from outside to what memory holds of it.
  void loadTile(mlir::Value row, mlir::Value raw);

  /// The type of the tile of a row.
  mlir::RankedTensorType tileType(mlir::Type row) const;
  mlir::RankedTensorType tensorType(llvm::ArrayRef<int64_t> shape) const {
    return mlir::RankedTensorType::get(shape, compute);
  }

  /// The tile with two axes: a vector becomes a tile of one column.
  mlir::Value matrixOf(mlir::Value tile);
  /// The tile as the type asks, which may be a vector for a tile of one column.
  mlir::Value shaped(mlir::Value tile, mlir::RankedTensorType type);

  mlir::Value splat(mlir::RankedTensorType type, double value);
  /// A number for each token, repeated over channels.
  mlir::Value repeat(mlir::Value vector, mlir::RankedTensorType type, chunk::Side along = chunk::Side::Rows);

  /// The sum of a vector's numbers: the last of its running sums.
  mlir::Value total(mlir::Value vector);
  /// Logarithms of factors of which none is smaller than one that underflows in fp32: sums of them may be those of
  /// differences. As they are in fp64, where that is a factor.
  mlir::Value floored(mlir::Value logs);
  /// Consecutive columns of a tile.
  mlir::Value columns(mlir::Value tile, int64_t from, int64_t count);
  /// One column of a tile as a vector.
  mlir::Value column(mlir::Value tile, int64_t index);
  mlir::Value concat(llvm::ArrayRef<mlir::Value> tiles);
  /// One number for each token.
  mlir::Value reduce(chunk::Reduction kind, mlir::Value tile);
  /// `left * right + addend`, where the addend may be missing.
  mlir::Value dot(mlir::Value left, mlir::Value right, mlir::Value addend = {}, bool transposeLeft = false,
                  bool transposeRight = false);

  /// The value in another type of real numbers.
  mlir::Value cast(mlir::Value value, mlir::Type element);

private:
  llvm::DenseMap<mlir::Value, mlir::Value> tiles;
};

/// Begins a refusal: the variant does not have a form because of `op`.
mlir::InFlightDiagnostic refuseForm(llvm::StringRef form, mlir::Operation *op);
inline mlir::InFlightDiagnostic refuseChunkForm(mlir::Operation *op) { return refuseForm("chunk", op); }

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKTILES_H
