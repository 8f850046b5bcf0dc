//===- DeclarationBuilder.h - IR of a traced declaration --------*- C++ -*-===//
//
// Builds a `stretto.variant` operation by operation for a front end that traces a declaration. The front end names
// operations and passes handles; everything that has to be known about rows is known on this side:
//
// - **types**: a result's axis and head set follow from the operands;
// - **repetition**: where rows meet, coarser head sets, numbers, axes of size one, parameters of at most one axis and
//   real numbers are repeated to the axis that the others have and to the join of all head sets. A parameter's axis
//   may meet an axis of another name: then it has to have size one, which is checked when sizes are known;
// - **head sets of states**: a state has the finest head set of what decays it and what is written to it. A written
//   row may depend on a read of the same state, so this is a least fixed point: every state starts with the set "1",
//   and when a decay or a write needs a finer one, all requests so far are carried out again with that. Head sets only
//   grow and there are finitely many, so this ends, and the front end traces once;
// - **checks**: every operation is verified when it is made, and an error is reported at the user's own line.
//
// DeclarationTrace.h holds one run over the requests, DeclarationSignature.cpp and DeclarationVocabulary.cpp what the
// requests become.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_DECLARATIONBUILDER_H
#define STRETTO_DIALECT_STRETTO_DECLARATIONBUILDER_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/OwningOpRef.h"
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace stretto {

class DeclarationTrace;

/// A value of a declaration that is being built.
using Handle = uint32_t;
using Handles = llvm::SmallVector<Handle>;

/// One operation that a front end asks for. The settings are its attributes as text, for instance `along` = "K".
struct DeclarationRequest {
  std::string operation;
  Handles operands;
  std::vector<std::pair<std::string, std::string>> settings;
  mlir::Location location;
};

class DeclarationBuilder {
public:
  /// `summary` is one sentence, or empty.
  DeclarationBuilder(llvm::StringRef name, llvm::StringRef summary, mlir::Location location);
  ~DeclarationBuilder();

  mlir::MLIRContext *getContext() const { return location.getContext(); }

  /// Carries out a request. Diagnostics say what is wrong with one that fails; the declaration is lost then. `table`
  /// and `lookback` open a body, which the next `yield` closes, returning their results.
  mlir::FailureOr<Handles> apply(DeclarationRequest request);

  /// The size that a handle stands for, in normal form; an error where it is none.
  mlir::FailureOr<std::string> size(Handle handle, mlir::Location location);

  /// Ends the declaration, whose results are these rows.
  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> finish(llvm::ArrayRef<Handle> results, mlir::Location location);

private:
  mlir::LogicalResult checkIsOpen(mlir::Location location) const;

  std::string name, summary;
  mlir::Location location;
  std::vector<DeclarationRequest> requests;
  /// The run over the requests so far; null once the declaration is finished or given up.
  std::unique_ptr<DeclarationTrace> trace;
};

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_DECLARATIONBUILDER_H
