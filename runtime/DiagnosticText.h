//===- DiagnosticText.h - Diagnostics as text -------------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_DIAGNOSTICTEXT_H
#define STRETTO_RUNTIME_DIAGNOSTICTEXT_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Error.h"
#include <string>

namespace stretto {

/// Collects the errors that a context reports while this object lives, in place of printing them. An error that has a
/// place in a file starts with it.
class DiagnosticText {
public:
  explicit DiagnosticText(mlir::MLIRContext *context);

  /// What was reported since the last call.
  llvm::Error takeError();

private:
  std::string text;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_DIAGNOSTICTEXT_H
