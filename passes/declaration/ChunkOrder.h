//===- ChunkOrder.h - The order in which tiles are computed -----*- C++ -*-===//
//
// Token by token, a read sees what stands before it. Chunk by chunk, it sees what all earlier tokens of the chunk
// wrote: the rows that change its state, wherever they stand in the declaration, must be there first.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKORDER_H
#define STRETTO_PASSES_DECLARATION_CHUNKORDER_H

#include "dialect/stretto/StateChain.h"

namespace stretto {

/// The operations that make the results and the rows that change states, each after those that it needs, with every
/// read after all rows of its state, but for one that feeds back: that one is solved for together with its read.
/// Refuses other circles.
mlir::FailureOr<llvm::SmallVector<mlir::Operation *>> orderOfTiles(llvm::ArrayRef<StateChain> chains,
                                                                   llvm::ArrayRef<mlir::Value> results);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKORDER_H
