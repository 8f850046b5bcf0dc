//===- StateEntries.h - What a variant carries from call to call -*- C++ -*-===//
#ifndef STRETTO_DIALECT_STRETTO_STATEENTRIES_H
#define STRETTO_DIALECT_STRETTO_STATEENTRIES_H

#include "dialect/stretto/StrettoDialect.h"
#include <vector>

namespace stretto {

/// One entry of the state object of a variant. Entries of what runs in reverse time start after the last token: there
/// an adjoint finds the gradient of the final state.
struct StateEntry {
  enum class Kind {
    Matrix,   // [sequences, heads, first axis, second axis], a stretto.state; zero at the start
    Scan,     // [sequences, heads(, width)], the last result of a scan; 0 or -inf at the start
    Tail,     // [sequences, length, heads(, width)], the last rows that a convolution or delay saw, in time order; in
              // reverse what it adds to the results of as many tokens beyond the sequence
    Position, // [sequences], the number of tokens so far, integers
  };
  std::string name;
  Kind kind = Kind::Matrix;
  std::string heads = allHeads.str();
  /// Axes as the declaration spells them, and their sizes (dynamic where not known).
  llvm::SmallVector<std::string, 2> axes;
  llvm::SmallVector<int64_t, 2> sizes;
  /// Rows of a tail.
  int64_t length = 0;
  bool reverse = false;
  /// What every number of the entry is when no state is given.
  double initial = 0;
  /// The operations that carry it.
  llvm::SmallVector<mlir::Operation *, 2> operations;

  /// The shape for a number of sequences, where all sizes are known and the entry's head set has `headCount` heads.
  llvm::SmallVector<int64_t, 4> shape(int64_t sequences, int64_t headCount) const;
};

/// The entries of the state of a variant whose alternatives are decided (stretto-specialize), in the order in which
/// the program names them, the position last. A matrix has the name of its state, a scan or tail of an argument the
/// argument's name and its kind (`s_logaddexp`, `k_tail`), one of another row its kind (`tail`, `tail_2`).
/// Convolutions and delays of one row share a tail, inclusive and exclusive scans a total; in reverse each convolution
/// and delay has its own, by the name that it gives.
std::vector<StateEntry> deriveState(VariantOp variant);

/// The state that a state value is one step of.
StateOp rootOf(mlir::Value state);

/// Whether the variant looks at earlier tokens themselves (a look-back, or a read at an earlier time), so that the
/// entries of `deriveState` alone cannot continue a sequence.
bool looksBack(VariantOp variant);

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_STATEENTRIES_H
