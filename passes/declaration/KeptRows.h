//===- KeptRows.h - Rows that a gradient keeps between kernels --*- C++ -*-===//
//
// A fold that looks ahead meets rows of later tokens. In the kernel that walks back it computes them from the inputs of
// their chunk, as a look-back does, as long as they are row maps of these; but the largest score of a softmax, or what
// a token's cotangent is divided by, is made of other tokens. Such rows are found by the kernel that walks forward,
// which keeps them for the other: one row for each token, an output of the one and an input of the other.
//
// Often several choices would do. The fewest numbers are kept: of a softmax the three numbers `m`, `l` and the
// cotangent of `l`, not the row `acc` that the latter is made of, and not the cotangent of `acc` either, which is that
// of the result divided by `l`.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_KEPTROWS_H
#define STRETTO_PASSES_DECLARATION_KEPTROWS_H

#include "dialect/stretto/StrettoDialect.h"
#include "llvm/ADT/SetVector.h"

namespace stretto {

/// The rows of a gradient that are to be kept: for folds that look ahead and for states that are written at an earlier
/// time; and so that no softmax and no divergence is folded twice, nor, if not `readsAnew`, a forward state read for
/// what is made in reverse time. Refuses rows that are found in reverse time only.
mlir::FailureOr<llvm::SetVector<mlir::Value>> findKeptRows(VariantOp gradient, bool readsAnew = true);

/// Of rows of a gradient, the fewest numbers that make them together with inputs and what is known already, without
/// other tokens but those that `carried` operations with tails meet. What those of reverse time make is not kept.
mlir::FailureOr<llvm::SetVector<mlir::Value>> findRowsThatMake(VariantOp gradient, llvm::ArrayRef<mlir::Value> rows,
                                                               const llvm::SetVector<mlir::Value> &known,
                                                               const llvm::DenseSet<mlir::Operation *> &carried);

/// Of some rows of a gradient, the fewest numbers that make what it reads of forward states, as far as they do.
llvm::SetVector<mlir::Value> findRowsOfStates(VariantOp gradient, const llvm::DenseSet<mlir::Value> &candidates);

/// The numbers of rows.
int64_t countNumbers(const llvm::SetVector<mlir::Value> &rows);

/// What an operation is computed from, its regions included.
llvm::SetVector<mlir::Value> allOperandsOf(mlir::Operation *op);

/// The rows of a gradient that need nothing of reverse time.
llvm::DenseSet<mlir::Value> findForwardRows(VariantOp gradient);

/// What a kept row is called by both kernels.
std::string nameOfKeptRow(unsigned index);

/// Makes the rows arguments of the declaration, as they are for other kernels than the one that keeps them, with names
/// from an index on. Each head has its own.
void replaceByArguments(VariantOp gradient, llvm::ArrayRef<mlir::Value> rows, unsigned firstIndex = 0);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_KEPTROWS_H
