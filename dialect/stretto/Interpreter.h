//===- Interpreter.h - The meaning of a variant, token by token -*- C++ -*-===//
//
// Executes a `stretto.variant` in double precision, one token after the other, as the descriptions of the operations
// say. It is the reference that every compiled form is measured against: slow, plain and exact. Nothing is repaired: a
// NaN or an infinity goes where arithmetic carries it.
//
//   Call call;
//   call.arguments["q"] = {{B, T, H, K}, qValues};   // and so on
//   call.finalState = true;
//   FailureOr<Outcome> outcome = interpret(variant, call);
//
// Errors are diagnostics at the variant or at the operation at fault; they name the argument, the value found and the
// value expected.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_INTERPRETER_H
#define STRETTO_DIALECT_STRETTO_INTERPRETER_H

#include "dialect/stretto/Sizes.h"
#include <vector>

namespace stretto {

/// A contiguous array of numbers that belongs to someone else, last axis fastest.
struct ArrayView {
  llvm::SmallVector<int64_t, 4> shape;
  llvm::ArrayRef<double> values;
};

struct Array {
  llvm::SmallVector<int64_t, 4> shape;
  std::vector<double> values;
  operator ArrayView() const { return {shape, values}; }
};

/// One entry of the state that a variant carries from call to call.
struct StateEntry {
  enum class Kind {
    Matrix,   // [sequences, heads, first axis, second axis], a stretto.state; zero at the start
    Scan,     // [sequences, heads(, width)], the last result of a scan; 0 or -inf at the start
    Tail,     // [sequences, length, heads(, width)], the last rows that a convolution or delay saw, in time order
    Position, // [sequences], the number of tokens so far, integers
  };
  std::string name;
  Kind kind;
  std::string heads = "1";
  /// Axes as the declaration spells them, and their sizes (dynamic where not known).
  llvm::SmallVector<std::string, 2> axes;
  llvm::SmallVector<int64_t, 2> sizes;
  /// Rows of a tail.
  int64_t length = 0;
  /// What every number of the entry is when no state is given.
  double initial = 0;

  /// The shape for a number of sequences, where all sizes are known and the entry's head set has `headCount` heads.
  llvm::SmallVector<int64_t, 4> shape(int64_t sequences, int64_t headCount) const;
};

/// The entries of the state of a variant whose alternatives are decided (stretto-specialize), in the order in which
/// the program names them, the position last. A matrix has the name of its state, a scan or tail of an argument the
/// argument's name and its kind (`s_logaddexp`, `k_tail`), one of another row its kind and a number.
mlir::FailureOr<std::vector<StateEntry>> deriveState(VariantOp variant);

/// Whether the variant looks at earlier tokens themselves (a look-back, or a read at an earlier time), so that the
/// entries of `deriveState` alone cannot continue a sequence.
bool looksBack(VariantOp variant);

struct Call {
  /// Rows `[B, T, heads(, width)]` and parameters `[heads, axes...]` by name; an optional argument may be left out.
  std::map<std::string, ArrayView> arguments;
  /// Options that differ from their defaults, spelled as in `Settings`.
  std::map<std::string, std::string> options;
  /// Where each sequence of a packed batch starts, and the end of the last; B is 1 then.
  std::optional<llvm::ArrayRef<int64_t>> sequenceOffsets;
  /// Entries by name; an entry that is left out has its initial value.
  std::map<std::string, ArrayView> initialState;
  bool finalState = false;
  /// The final entries that are wanted although the variant looks back, such as gradients of parameters.
  std::vector<std::string> finalEntries;
};

struct Outcome {
  /// The results of the variant, `[B, T, heads(, width)]`.
  std::vector<Array> results;
  /// All entries of `deriveState` in their order for `finalState`, otherwise those of `finalEntries`.
  std::vector<std::pair<std::string, Array>> finalState;
};

mlir::FailureOr<Outcome> interpret(VariantOp variant, const Call &call);

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_INTERPRETER_H
