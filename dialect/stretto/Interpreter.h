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
#include "dialect/stretto/StateEntries.h"

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

/// The arguments of a call and what it asks for.
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
