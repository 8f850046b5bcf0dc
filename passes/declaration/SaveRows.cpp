//===- SaveRows.cpp - Rows that a call saves for its gradient -------------===//

#include "passes/declaration/SaveRows.h"
#include "mlir/IR/OwningOpRef.h"
#include "passes/Passes.h"
#include "passes/declaration/Differentiate.h"
#include "passes/declaration/KeptRows.h"

namespace stretto {
#define GEN_PASS_DEF_SAVEROWS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

bool stretto::maySaveRows(VariantOp declaration) {
  bool folds = false;
  WalkResult walked = declaration.walk([&](Operation *op) {
    auto fold = dyn_cast<LookbackOp>(op);
    folds |= fold && fold.getFold() != Fold::Sum;
    return isa<StateOp, ScanOp, ConvOp, DelayOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
  });
  return folds && !walked.wasInterrupted();
}

/// Whether each head of a kernel has a row of its own, as results have.
static bool isOfEachHead(VariantOp program, Value row) {
  DictionaryAttr groups = program.getGroupAttr();
  return groups && llvm::any_of(llvm::split(headsOf(row.getType()), '|'), [&](StringRef heads) {
           auto group = groups.getAs<IntegerAttr>(heads);
           return group && group.getInt() == 1;
         });
}

SmallVector<Value> stretto::findSavedRows(VariantOp program, ArrayRef<std::string> wanted, ArrayRef<int64_t> zero) {
  if (!maySaveRows(program))
    return {};
  // Where there is no gradient, whoever asks for that is told why.
  ScopedDiagnosticHandler silent(program.getContext(), [](Diagnostic &) { return success(); });
  OwningOpRef<ModuleOp> module = ModuleOp::create(program.getLoc());
  IRMapping first, second;
  auto copy = cast<VariantOp>(program->clone(first));
  module->push_back(copy);
  FailureOr<VariantOp> gradient = differentiate(copy, wanted, zero, second);
  if (failed(gradient))
    return {};
  FailureOr<SetVector<Value>> kept = findKeptRows(*gradient);
  if (failed(kept))
    return {};
  SmallVector<Value> saved;
  for (Value row : *kept)
    for (Operation &op : *program.getBlock())
      for (Value result : op.getResults())
        if (second.lookupOrNull(first.lookupOrNull(result)) == row && isOfEachHead(program, result))
          saved.push_back(result);
  return saved.size() == kept->size() ? saved : SmallVector<Value>();
}

namespace {

struct SaveRowsPass : stretto::impl::SaveRowsBase<SaveRowsPass> {
  void runOnOperation() override {
    VariantOp program = getOperation();
    SmallVector<Value> saved = findSavedRows(program);
    if (saved.empty())
      return;
    Builder builder(&getContext());
    Operation *terminator = program.getBlock()->getTerminator();
    terminator->insertOperands(terminator->getNumOperands(), saved);
    program.setFunctionType(builder.getFunctionType(program.getType().getInputs(), terminator->getOperandTypes()));
    program.setSaved(saved.size());
  }
};

} // namespace
