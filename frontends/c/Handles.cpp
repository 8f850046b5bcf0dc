//===- Handles.cpp - Contexts, strings and messages of the C interface ----===//

#include "frontends/c/Handles.h"
#include "dialect/stretto/StrettoDialect.h"
#include "frontends/c/Registration.h"
#include <cstdlib>
#include <cstring>

using namespace mlir;
using namespace stretto;

char *stretto::ownedString(StringRef text) {
  char *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (!text.empty())
    std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

void strettoStringDestroy(char *text) { std::free(text); }

StrettoContext *strettoContextCreate() {
  auto *handle = new StrettoContext;
  DialectRegistry registry;
  registerDialects(registry);
  handle->context.appendDialectRegistry(registry);
  handle->context.loadDialect<StrettoDialect>();
  handle->context.printOpOnDiagnostic(false); // the location says it in the user's words
  return handle;
}

void strettoContextDestroy(StrettoContext *context) { delete context; }

static void printMessage(const Diagnostic &diagnostic, llvm::raw_ostream &os) {
  if (auto place = diagnostic.getLocation()->findInstanceOf<FileLineColLoc>())
    os << place.getFilename().getValue() << ":" << place.getLine() << ":" << place.getColumn() << ": ";
  switch (diagnostic.getSeverity()) {
  case DiagnosticSeverity::Error:
    os << "error: ";
    break;
  case DiagnosticSeverity::Warning:
    os << "warning: ";
    break;
  case DiagnosticSeverity::Note:
  case DiagnosticSeverity::Remark:
    os << "note: ";
  }
  os << diagnostic;
}

Messages::Messages(MLIRContext *context)
    : handler(context, [this](Diagnostic &diagnostic) {
        llvm::raw_string_ostream os(text);
        if (!text.empty())
          os << "\n";
        printMessage(diagnostic, os);
        for (const Diagnostic &note : diagnostic.getNotes()) {
          os << "\n  ";
          printMessage(note, os);
        }
      }) {}

void Messages::give(char **error) const {
  if (error)
    *error = ownedString(text);
}
