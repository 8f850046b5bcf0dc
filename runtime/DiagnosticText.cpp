//===- DiagnosticText.cpp - Diagnostics as text ---------------------------===//

#include "runtime/DiagnosticText.h"
#include "mlir/IR/Location.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace stretto;

/// The first place in a file that a location stands for.
static FileLineColLoc placeOf(Location location) {
  FileLineColLoc place;
  location->walk([&](Location part) {
    place = dyn_cast<FileLineColLoc>(part);
    return place ? WalkResult::interrupt() : WalkResult::advance();
  });
  return place;
}

DiagnosticText::DiagnosticText(MLIRContext *context)
    : handler(context, [this](Diagnostic &diagnostic) -> LogicalResult {
        if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
          return failure();
        llvm::raw_string_ostream stream(text);
        if (!text.empty())
          stream << "\n";
        if (FileLineColLoc place = placeOf(diagnostic.getLocation()))
          stream << place.getFilename().getValue() << ":" << place.getLine() << ":" << place.getColumn() << ": ";
        stream << diagnostic;
        for (Diagnostic &remark : diagnostic.getNotes())
          stream << "\nnote: " << remark;
        return success();
      }) {}

llvm::Error DiagnosticText::takeError() {
  std::string taken = std::move(text);
  text.clear();
  return llvm::createStringError(llvm::inconvertibleErrorCode(), llvm::Twine(taken));
}
