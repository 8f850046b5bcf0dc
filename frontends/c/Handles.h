//===- Handles.h - What the handles of the C interface hold -----*- C++ -*-===//
#ifndef STRETTO_FRONTENDS_C_HANDLES_H
#define STRETTO_FRONTENDS_C_HANDLES_H

#include "dialect/stretto/DeclarationBuilder.h"
#include "frontends/c/stretto.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/Form.h"

struct StrettoContext {
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
};

struct StrettoModule {
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

struct StrettoBuilder {
  stretto::DeclarationBuilder builder;
};

namespace stretto {

inline Form formOf(const StrettoForm &form) {
  return {.chunk = form.chunk,
          .slices = std::max<int64_t>(form.slices, 1),
          .warps = form.warps,
          .ahead = form.ahead,
          .outputs = form.outputs,
          .blocks = std::max<int64_t>(form.blocks, 1),
          .walks = form.walks,
          .walkSlices = std::max<int64_t>(form.walkSlices, 1)};
}

/// A string for the caller to release.
char *ownedString(llvm::StringRef text);

inline mlir::Location fileLocation(mlir::MLIRContext *context, StrettoLocation at) {
  return mlir::FileLineColLoc::get(context, at.file ? at.file : "", at.line, at.column);
}

/// Gathers what is reported to a context while it lives, one line each.
class Messages {
public:
  explicit Messages(mlir::MLIRContext *context);

  /// A handle around `value`, or NULL and the messages where there is none.
  template <typename Handle, typename T> Handle *handle(mlir::FailureOr<T> value, char **error) {
    if (succeeded(value))
      return new Handle{std::move(*value)};
    give(error);
    return nullptr;
  }

  /// Gives the messages to the caller.
  void give(char **error) const;

private:
  std::string text;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace stretto

#endif // STRETTO_FRONTENDS_C_HANDLES_H
