//===- ChunkPadding.h - Tiles beyond the end of a sequence ------*- C++ -*-===//
//
// In the last chunk of a sequence the rows beyond the last token are computed like all others, from inputs that load as
// 0. What they come to decides where a mask is needed: a row that is written to a state must not change it.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKPADDING_H
#define STRETTO_PASSES_DECLARATION_CHUNKPADDING_H

#include "mlir/IR/Attributes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"

namespace stretto {

class Padding {
public:
  /// What is known of all entries of the rows beyond the end.
  struct Rows {
    enum class Kind {
      Uniform,   // one known number
      Invariant, // what parameters alone determine: the same as in every other row, so as good or bad as those
      Finite,    // finite numbers, if those of the sequence are
      Unknown,
    };
    Kind kind = Kind::Unknown;
    /// The number, for `Uniform`.
    mlir::TypedAttr number = {};

    bool isUniform(double value) const;
    bool isFinite() const;
  };

  Rows rowsOf(mlir::Value tile);
  void setRows(mlir::Value tile, Rows rows) { known[tile] = rows; }
  /// An input: its rows beyond the end are 0.
  void setZero(mlir::Value tile);

private:
  Rows compute(mlir::Operation *op);

  llvm::DenseMap<mlir::Value, Rows> known;
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKPADDING_H
