//===- Differentiate.h - The adjoint of a declaration -----------*- C++ -*-===//
#ifndef STRETTO_PASSES_DECLARATION_DIFFERENTIATE_H
#define STRETTO_PASSES_DECLARATION_DIFFERENTIATE_H

#include "mlir/IR/IRMapping.h"
#include "passes/declaration/SaveRows.h"

namespace stretto {

/// Puts the gradient of a declaration behind it (stretto-differentiate), of the arguments and entries that are wanted,
/// or of all, where the cotangents of some results are 0. `copies` says what values of the declaration are there, or
/// were: what no gradient is made of is gone. What the call has saved are arguments behind the cotangents.
mlir::FailureOr<VariantOp> differentiate(VariantOp original, llvm::ArrayRef<std::string> wanted,
                                         llvm::ArrayRef<int64_t> zero, mlir::IRMapping &copies,
                                         const SavedRows &saved = {});

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_DIFFERENTIATE_H
