//===- Differentiate.h - The adjoint of a declaration -----------*- C++ -*-===//
#ifndef STRETTO_PASSES_DECLARATION_DIFFERENTIATE_H
#define STRETTO_PASSES_DECLARATION_DIFFERENTIATE_H

#include "dialect/stretto/StrettoDialect.h"
#include "mlir/IR/IRMapping.h"

namespace stretto {

/// Puts the gradient of a declaration behind it (stretto-differentiate), of the arguments and entries that are wanted,
/// or of all, where the cotangents of some results are 0. `copies` says what values of the declaration are there, or
/// were: what no gradient is made of is gone.
mlir::FailureOr<VariantOp> differentiate(VariantOp original, llvm::ArrayRef<std::string> wanted,
                                         llvm::ArrayRef<int64_t> zero, mlir::IRMapping &copies);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_DIFFERENTIATE_H
