//===- Program.h - A declaration made executable ----------------*- C++ -*-===//
//
// Before the first token every operation becomes an instruction: a closure that knows where its rows lie. A row lies in
// a slot. A slot that belongs to every token holds `[token, heads, width]`, of an argument or of a row that is kept;
// one that is overwritten by each token, and a parameter or constant, has stride 0.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_INTERPRETER_PROGRAM_H
#define STRETTO_DIALECT_STRETTO_INTERPRETER_PROGRAM_H

#include "dialect/stretto/Sizes.h"
#include "dialect/stretto/StateEntries.h"
#include "dialect/stretto/interpreter/Schedule.h"
#include <deque>
#include <functional>

namespace stretto::interpreter {

/// Where a row, a parameter or a number lies: `[heads, width]` numbers of a slot.
struct Row {
  unsigned slot = 0;
  int64_t heads = 1, width = 1;
  /// Taken from the other token of a look-back's pair.
  bool past = false;

  int64_t size() const { return heads * width; }
};

/// Head `h` of a set of `fine` heads meets this head of a set of `coarse`.
inline int64_t meets(int64_t h, int64_t fine, int64_t coarse) { return coarse == fine ? h : h / (fine / coarse); }

/// The tokens that are executed now, and where rows lie.
struct Frame {
  struct Slot {
    double *base = nullptr;
    int64_t stride = 0;
  };
  std::vector<Slot> slots;
  int64_t token = 0, past = 0;
  /// Tokens of the sequence, and tokens that went before its first.
  int64_t length = 0, start = 0;
  /// The first content that cannot be executed, and the operation that met it.
  std::string error;
  mlir::Operation *fault = nullptr;

  double *at(const Row &row) const { return at(row, row.past ? past : token); }
  double *at(const Row &row, int64_t t) const { return slots[row.slot].base + slots[row.slot].stride * t; }
  void fail(mlir::Operation *op, const llvm::Twine &message) {
    if (!fault) {
      fault = op;
      error = message.str();
    }
  }
};

using Instruction = std::function<void(Frame &)>;

/// The numbers of one state entry for the sequence at hand.
struct EntryValues {
  std::vector<double> before, after;
};

/// What runs in one pass: `begin`, `token` for each token in its order, `end`.
struct Pass {
  std::vector<Instruction> begin, token, end;
};

struct Program {
  std::vector<Pass> passes;
  Frame frame;
  llvm::SmallVector<Row> arguments, results;
  std::vector<StateEntry> entries;
  std::vector<EntryValues> entryValues;
  /// What the slots and closures point to.
  std::deque<std::vector<double>> buffers;
};

/// Compiles a variant whose alternatives are decided and whose sizes are static, for sequences of at most
/// `maximalLength` tokens. `sizes` knows all its head sets. Fails at an operation that is not decided.
mlir::FailureOr<std::unique_ptr<Program>> compile(VariantOp variant, const Sizes &sizes, int64_t maximalLength);

/// Executes the program on one sequence: the slots of its arguments and `before` of its entries say which.
mlir::LogicalResult execute(Program &program);

} // namespace stretto::interpreter

#endif // STRETTO_DIALECT_STRETTO_INTERPRETER_PROGRAM_H
