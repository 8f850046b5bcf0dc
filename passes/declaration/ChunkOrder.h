//===- ChunkOrder.h - The order in which tiles are computed -----*- C++ -*-===//
//
// Token by token, a read sees what stands before it. Chunk by chunk, it sees what all earlier tokens of the chunk
// wrote: the rows that change its state, wherever they stand in the declaration, must be there first.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKORDER_H
#define STRETTO_PASSES_DECLARATION_CHUNKORDER_H

#include "dialect/stretto/StrettoDialect.h"

namespace stretto {

/// A row that is written to a state and depends on what the same token read from it: a sum of the read, times a number
/// of each token, and of rows that do not depend on it.
struct Feedback {
  ReadOp read;
  WriteOp write;
  mlir::Value row;
  /// What else the row is made of.
  llvm::SmallVector<mlir::Value> others;
};

/// A state with the decays and writes of one token, in order.
struct StateChain {
  StateOp root;
  llvm::SmallVector<mlir::Operation *, 4> steps;
  std::optional<Feedback> feedback = {};

  StateOp getRoot() const { return root; }
  /// Whether a value of a state is one of this.
  bool contains(mlir::Value state) const;
  /// How many steps lie before a value of the state.
  size_t positionOf(mlir::Value state) const;
  /// The rows of all steps.
  llvm::SmallVector<mlir::Value> rows() const;
};

/// The states of a variant, in order.
llvm::SmallVector<StateChain> stateChains(VariantOp variant);

/// The operations that make the results and the rows that change states, each after those that it needs, with every
/// read after all rows of its state, but for one that feeds back: that one is solved for together with its read.
/// Refuses other circles.
mlir::FailureOr<llvm::SmallVector<mlir::Operation *>> orderOfTiles(VariantOp variant,
                                                                   llvm::ArrayRef<StateChain> chains);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKORDER_H
