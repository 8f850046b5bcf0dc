//===- StateChain.h - A state and what changes it per token -----*- C++ -*-===//
#ifndef STRETTO_DIALECT_STRETTO_STATECHAIN_H
#define STRETTO_DIALECT_STRETTO_STATECHAIN_H

#include "dialect/stretto/StrettoDialect.h"

namespace stretto {

/// A row that is written to a state and depends on what the same token read from it: a sum of the read, times a number
/// of each token, and of rows that do not depend on it.
struct Feedback {
  ReadOp read;
  WriteOp write;
  mlir::Value row;
  /// What else the row is made of: rows that are added, and numbers that multiply.
  llvm::SmallVector<mlir::Value> terms, numbers;
};

/// A state with the decays and writes of one token, in order.
struct StateChain {
  StateOp root;
  llvm::SmallVector<mlir::Operation *, 4> steps;
  /// Found where a chunk form is asked for (passes/declaration/ChunkOrder.h).
  std::optional<Feedback> feedback = {};

  StateOp getRoot() const { return root; }
  /// Whether a value of a state is one of this.
  bool contains(mlir::Value state) const;
  /// How many steps lie before a value of the state.
  size_t positionOf(mlir::Value state) const;
  /// The rows of all steps.
  llvm::SmallVector<mlir::Value> rows() const;
  /// The reads of all values of the state.
  llvm::SmallVector<ReadOp> reads() const;
};

/// The states of a variant, in order.
llvm::SmallVector<StateChain> stateChains(VariantOp variant);

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_STATECHAIN_H
