//===- ElementTypes.h - The types of a kernel in memory ---------*- C++ -*-===//
#ifndef STRETTO_PASSES_DECLARATION_ELEMENTTYPES_H
#define STRETTO_PASSES_DECLARATION_ELEMENTTYPES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringMap.h"

namespace stretto {

/// The types of a kernel's inputs, parameters and outputs in memory, and the type of its arithmetic.
struct ElementTypes {
  mlir::FloatType standard;
  llvm::StringMap<mlir::FloatType> others;
  mlir::FloatType compute;

  mlir::FloatType of(llvm::StringRef argument) const {
    auto other = others.find(argument);
    return other == others.end() ? standard : other->second;
  }

  /// Reads "bf16" and, for arguments of the variants of a module that differ, "g=f32".
  static mlir::FailureOr<ElementTypes> read(mlir::ModuleOp module, llvm::StringRef standard,
                                            llvm::ArrayRef<std::string> others);
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_ELEMENTTYPES_H
