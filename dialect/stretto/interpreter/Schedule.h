//===- Schedule.h - Passes over the tokens ----------------------*- C++ -*-===//
//
// An operation on rows of one token may run in any order of tokens; a state, a scan or a look-back may not. A program
// with operations in both directions of time is executed in passes over all tokens, the first forwards, the second
// backwards, and so on. Every operation runs in the earliest pass in which all that it needs is known: rows of its own
// token from this pass or before, rows of other tokens from a pass before, or from this one if they come first in it.
//
// States are not stored. A chain of operations on a state runs in the earliest pass that has its rows, and again in
// every later pass that reads it. Only a pair keeps the forward state of every token for the pass that carries the
// other one backwards.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_INTERPRETER_SCHEDULE_H
#define STRETTO_DIALECT_STRETTO_INTERPRETER_SCHEDULE_H

#include "dialect/stretto/StateEntries.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <set>

namespace stretto::interpreter {

class Schedule {
public:
  /// Fails where a row depends on its own future.
  static mlir::FailureOr<Schedule> get(VariantOp variant);

  int passCount() const { return count; }
  static bool isReverse(int pass) { return pass % 2 == 1; }

  /// Whether an operation of the body runs in a pass.
  bool runs(mlir::Operation *op, int pass) const;
  /// Whether a row is needed at other tokens or in later passes than its own, so that all of it must be kept.
  bool isStored(mlir::Value row) const { return stored.contains(row); }

private:
  int passOf(mlir::Value row) const;
  bool raise(mlir::Operation *op, int pass);
  int earliestPass(mlir::Operation *op) const;
  void findStored(VariantOp variant);

  /// The pass of every operation on rows, and of every state the first pass of its chain.
  llvm::DenseMap<mlir::Operation *, int> first;
  llvm::DenseMap<mlir::Operation *, std::set<int>> chainPasses;
  llvm::DenseSet<mlir::Value> stored;
  int count = 1;
};

} // namespace stretto::interpreter

#endif // STRETTO_DIALECT_STRETTO_INTERPRETER_SCHEDULE_H
