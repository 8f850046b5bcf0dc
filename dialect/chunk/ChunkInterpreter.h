//===- ChunkInterpreter.h - Executes the chunk level ------------*- C++ -*-===//
//
// Executes a `chunk.kernel` in double precision by the stated equation of each operation, chunk by chunk. It takes the
// call that the interpreter of declarations takes and gives the same outcome: their agreement is the proof of the
// algebra between the two levels. Nothing is rounded to the element types, and nothing is fast.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_CHUNK_CHUNKINTERPRETER_H
#define STRETTO_DIALECT_CHUNK_CHUNKINTERPRETER_H

#include "dialect/chunk/ChunkDialect.h"
#include "dialect/stretto/Interpreter.h"
#include "llvm/ADT/DenseMap.h"

namespace stretto::chunk {

/// A dense tensor of rank 0 to 2.
struct Tile {
  llvm::SmallVector<int64_t, 2> shape;
  std::vector<double> values;

  Tile() = default;
  explicit Tile(llvm::ArrayRef<int64_t> shape, double value = 0);
  /// Rows and columns; a vector is one column.
  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t columns() const { return shape.size() == 2 ? shape[1] : 1; }
  double &at(int64_t row, int64_t column) { return values[row * columns() + column]; }
  double at(int64_t row, int64_t column) const { return values[row * columns() + column]; }
};

using TileMap = llvm::DenseMap<mlir::Value, Tile>;

/// The result of an operation of a kernel's body whose operands are in `tiles`; `valid` tokens exist.
mlir::FailureOr<Tile> executeTile(mlir::Operation *op, const TileMap &tiles, int64_t valid);

/// A look-back of one chunk, to which the tokens j are given tile by tile, in order.
class LookbackFold {
public:
  explicit LookbackFold(LookbackOp op);
  /// Token i of the chunk with row j of what the body contributes.
  void addPair(llvm::ArrayRef<const Tile *> given, int64_t i, int64_t j);
  /// Row j, which is in the range of some token.
  void addRow(llvm::ArrayRef<const Tile *> given, int64_t j);
  std::vector<Tile> finish();

private:
  /// Takes a score that is not -inf into the sum of exponentials of that number; returns what scales the sums so far.
  double weigh(int64_t sum, double score);

  LookbackOp op;
  std::vector<Tile> results;
  /// Of each token, then those of the student's.
  std::vector<double> largest, totals;
};

/// The two results of a `conv_back`.
std::pair<Tile, Tile> executeConvBack(ConvBackOp op, const TileMap &tiles, int64_t valid);
std::pair<Tile, Tile> executeDecayTotals(DecayTotalsOp op, const TileMap &tiles);

/// The number of a table at a position, head and channel.
mlir::FailureOr<double> evaluateTable(TableOp table, double position, double head, double channel);

/// Executes all chunks of all sequences and heads. The final state holds the entries that the kernel carries; options
/// are those that the kernel was made for.
mlir::FailureOr<Outcome> interpret(KernelOp kernel, const Call &call);

} // namespace stretto::chunk

#endif // STRETTO_DIALECT_CHUNK_CHUNKINTERPRETER_H
