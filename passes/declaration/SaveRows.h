//===- SaveRows.h - Rows that a call saves for its gradient -----*- C++ -*-===//
//
// A call whose gradient will be asked for saves a few numbers of each token that the gradient would find again, as
// results of its program beside its own. The gradient takes them as inputs.
//
// A gradient begins with a walk forward that finds rows and keeps them for the walk back (KeptRows.h). Where it finds
// nothing but what the call itself has found, as the log-sum-exps of a divergence, that walk is left out.
//
// Where a token is divided by what it reads of a state, each kernel of the gradient would read the state again for the
// divisor `l`, and for the cotangent of that: the call saves `l`, and the gradient takes the result `o`, too, as the
// cotangent of `l` is that of `o` times `-o / l`.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_SAVEROWS_H
#define STRETTO_PASSES_DECLARATION_SAVEROWS_H

#include "dialect/stretto/StrettoDialect.h"

namespace stretto {

/// What a gradient takes of the call that it is of.
struct SavedRows {
  /// Rows of the program that are no results, and the positions of results.
  llvm::SmallVector<mlir::Value, 2> rows;
  llvm::SmallVector<unsigned, 1> results;
};

/// Whether there may be such rows in some program of a declaration: it folds tokens otherwise than by sums, or divides
/// beside a state.
bool maySaveRows(VariantOp declaration);

/// What calls of a program save, or nothing.
SavedRows findSavedRows(VariantOp program);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_SAVEROWS_H
