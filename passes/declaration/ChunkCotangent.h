//===- ChunkCotangent.h - A state in reverse time over a chunk --*- C++ -*-===//
//
// A state that is carried from the last token to the first, of which the state of a cotangent is the usual one. With A
// the product of all decays of a token, B those before a read and R those after a write, in the order of its steps, a
// read at token t of a state that was D when the chunk was entered from its end is
//
//   x B A_(t+1) .. A_(C-1) D  +  sum over writes and i > t of (x B A_(t+1) .. A_(i-1) R . q_i) g_i
//                             +  what the token itself wrote before the read.
//
// Where no decay stands before the read, the last is the term i = t of the sum.
//
// The products over tokens are those that the same tokens have in time order, with the sides exchanged. Where decays
// stand behind reads and writes, as they do in an adjoint of `decay, write, read`, R = A and B = 1, and the second sum
// is the transpose of the matrix that the forward pass forms: the two share it.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKCOTANGENT_H
#define STRETTO_PASSES_DECLARATION_CHUNKCOTANGENT_H

#include "passes/declaration/ChunkRecurrence.h"

namespace stretto {

class ChunkCotangent : public ChunkRecurrence {
public:
  using ChunkRecurrence::ChunkRecurrence;

  /// Whether the chain has a chunk form; what prevents it is said at the operation that does.
  static mlir::LogicalResult check(const StateChain &chain);
  /// The same of a pair of a state and this one.
  static mlir::LogicalResult checkPair(PairOp op, const StateChain &forward, const StateChain &cotangent);

  /// The state at the start of the chunk.
  mlir::Value next() override;
  /// The tile of `op`, whose states are `forward` and this one.
  mlir::Value pair(PairOp op, ChunkRecurrence &forward);

protected:
  mlir::Value readDecayed(mlir::Value row, size_t position, chunk::Side contracted) override;
  mlir::Value readDecaying(mlir::Value row, size_t position, chunk::Side contracted) override;
  mlir::Value feedbackProducts(mlir::Value row, size_t position, mlir::Value key, size_t writePosition) override;
  chunk::Side feedbackSide() const override { return chunk::Side::Columns; }
  void addWrite(WriteOp write, size_t position) override;

private:
  /// The gradient of a factor, which may be 0, so that products without it are formed.
  mlir::Value pairOfFactor(PairOp op, ChunkRecurrence &forward);
  /// No decay stands before a position.
  bool isBeforeDecays(size_t position) const;
  /// What reads of tokens see of the keys of those after them: entry (i, t) for i > t, and their own for i = t where
  /// that is written before the read and no decay stands before either.
  mlir::Value laterProducts(mlir::Value row, size_t position, mlir::Value key, size_t writePosition);
  mlir::Value mix(mlir::Value weights, mlir::Value rows, mlir::Value addend, bool before, bool transpose) {
    return b.create<chunk::DecayMixOp>(rows.getType(), weights, rows, total.form, total.amount, addend, before,
                                       transpose);
  }
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKCOTANGENT_H
