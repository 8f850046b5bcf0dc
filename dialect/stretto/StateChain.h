//===- StateChain.h - A state and what changes it per token -----*- C++ -*-===//
#ifndef STRETTO_DIALECT_STRETTO_STATECHAIN_H
#define STRETTO_DIALECT_STRETTO_STATECHAIN_H

#include "dialect/stretto/StrettoDialect.h"

namespace stretto {

/// A state with the decays and writes of one token, in order.
struct StateChain {
  StateOp root;
  llvm::SmallVector<mlir::Operation *, 4> steps;

  StateOp getRoot() const { return root; }
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
