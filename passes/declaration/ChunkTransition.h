//===- ChunkTransition.h - What feedback does to a state --------*- C++ -*-===//
//
// A delta rule takes away what a token recalls: from a state S many tokens leave
//
//   A S + U,   A = product over tokens of (decay - k_t m_t q_t'),
//
// with a square matrix A of the axis that is read along, the same for all columns of S, and U what they leave from the
// state 0. With the product D of the decays alone, A = diag D + X, where X is 0 before the first token. So X is a state
// that decays like S, to which each token writes its key beside what it would feed back of a state diag D + X:
//
//   x_t = m_t (q_t D + q_t X)
//
// where D and X are those that token t reads. Where S is read along its second axis, A multiplies it from the right.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKTRANSITION_H
#define STRETTO_PASSES_DECLARATION_CHUNKTRANSITION_H

#include "passes/declaration/ChunkRecurrence.h"

namespace stretto {

class ChunkTransition : public ChunkRecurrence {
public:
  /// From X, and from D as `totalDecayOf` has it, which is null where nothing decays.
  ChunkTransition(const StateChain &chain, mlir::Value start, mlir::Value totalDecay, TileBuilder &builder)
      : ChunkRecurrence(chain, start, builder), totalDecay(totalDecay) {}

  /// The side of the state that A multiplies.
  static chunk::Side sideOf(const StateChain &chain);
  /// How many rows A has.
  static int64_t sizeOf(const StateChain &chain);
  /// The rows that have tiles when the end of the chunk is asked for.
  static llvm::SmallVector<mlir::Value> rowsOf(const StateChain &chain);

  mlir::Value next() override;

protected:
  mlir::Value readDecayed(mlir::Value row, size_t position, chunk::Side contracted) override;
  /// What is written beside is of U.
  void addWrite(WriteOp, size_t) override {}
  bool isLinear() const override { return true; }
  void takeFeedback(mlir::Value rows, mlir::Value key, size_t end) override;

private:
  mlir::Value factors();

  mlir::Value totalDecay;
};

/// The states of a variant that feed back, by their names, and how many rows A has for each.
llvm::SmallVector<std::pair<llvm::StringRef, int64_t>, 1> sizesOfTransitions(VariantOp variant);
inline bool feedsBack(VariantOp variant) { return !sizesOfTransitions(variant).empty(); }

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKTRANSITION_H
