//===- SaveRows.h - Rows that a call saves for its gradient -----*- C++ -*-===//
//
// A gradient begins with a walk forward that finds rows and keeps them for the walk back (KeptRows.h). Where it finds
// nothing but what the call itself has found, as the log-sum-exps of a divergence, a call whose gradient will be asked
// for saves these rows: they are results of its program beside its own, and that walk is left out.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_SAVEROWS_H
#define STRETTO_PASSES_DECLARATION_SAVEROWS_H

#include "dialect/stretto/StrettoDialect.h"

namespace stretto {

/// Whether there may be such rows in some program of a declaration: it folds tokens otherwise than by sums, and no
/// state passes on what tokens leave.
bool maySaveRows(VariantOp declaration);

/// The rows of a program which its gradient, of what is wanted and with cotangents of results that are 0, keeps: in
/// its order, and all that its walk forward is for. None where that walk has to find others.
llvm::SmallVector<mlir::Value> findSavedRows(VariantOp program, llvm::ArrayRef<std::string> wanted = {},
                                             llvm::ArrayRef<int64_t> zero = {});

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_SAVEROWS_H
