//===- OwnModule.h - A module that one thread has for itself ----*- C++ -*-===//
#ifndef STRETTO_RUNTIME_OWNMODULE_H
#define STRETTO_RUNTIME_OWNMODULE_H

#include "dialect/stretto/StrettoDialect.h"
#include "frontends/c/Registration.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "runtime/DiagnosticText.h"

namespace stretto {

/// The module of a variant in a context of its own: several threads that compile share none.
struct OwnModule {
  explicit OwnModule(llvm::StringRef text) : context(dialects(), mlir::MLIRContext::Threading::DISABLED) {
    context.printOpOnDiagnostic(false);
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }

  /// Nothing where the text is none of a module.
  VariantOp variant() { return module ? *module->getOps<VariantOp>().begin() : VariantOp(); }

private:
  static mlir::DialectRegistry dialects() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  mlir::MLIRContext context;
  DiagnosticText diagnostics{&context};
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_OWNMODULE_H
