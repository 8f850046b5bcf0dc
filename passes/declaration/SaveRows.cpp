//===- SaveRows.cpp - Rows that a call saves for its gradient -------------===//

#include "passes/declaration/SaveRows.h"
#include "dialect/stretto/StateEntries.h"
#include "mlir/IR/OwningOpRef.h"
#include "passes/Passes.h"
#include "passes/declaration/Differentiate.h"
#include "passes/declaration/GradientParts.h"
#include "passes/declaration/KeptRows.h"

namespace stretto {
#define GEN_PASS_DEF_SAVEROWS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

bool stretto::maySaveRows(VariantOp declaration) {
  bool hasState = false, divides = false, folds = false;
  declaration.walk([&](Operation *op) {
    auto fold = dyn_cast<LookbackOp>(op);
    folds |= fold && fold.getFold() != Fold::Sum;
    hasState |= isa<StateOp>(op);
    divides |= isa<arith::DivFOp>(op);
  });
  return folds || (hasState && divides);
}

/// Whether each head of a kernel has a row of its own, as results have.
static bool isOfEachHead(VariantOp program, Value row) {
  DictionaryAttr groups = program.getGroupAttr();
  return groups && llvm::any_of(llvm::split(headsOf(row.getType()), '|'), [&](StringRef heads) {
           auto group = groups.getAs<IntegerAttr>(heads);
           return group && group.getInt() == 1;
         });
}

namespace {

/// The gradient of a copy of a program, which takes what the call has saved.
struct Trial {
  OwningOpRef<ModuleOp> module;
  VariantOp gradient;
  /// Rows of the program, by those of the gradient that are the same.
  llvm::DenseMap<Value, Value> rowsOfProgram;

  static FailureOr<Trial> of(VariantOp program, const SavedRows &saved);
  /// How often it reads forward states.
  int64_t countReads();
};

} // namespace

FailureOr<Trial> Trial::of(VariantOp program, const SavedRows &saved) {
  Trial trial;
  trial.module = ModuleOp::create(program.getLoc());
  IRMapping toCopy, toGradient;
  auto copy = cast<VariantOp>(program->clone(toCopy));
  trial.module->push_back(copy);
  SavedRows ofCopy = {llvm::map_to_vector<2>(saved.rows, [&](Value row) { return toCopy.lookup(row); }), saved.results};
  FailureOr<VariantOp> gradient = differentiate(copy, /*wanted=*/{}, /*zero=*/{}, toGradient, ofCopy);
  if (failed(gradient))
    return failure();
  trial.gradient = *gradient;
  llvm::DenseSet<Operation *> alive;
  for (Operation &op : *trial.gradient.getBlock())
    alive.insert(&op);
  for (Operation &op : program.getBlock()->without_terminator())
    for (Value row : op.getResults())
      if (Value same = toGradient.lookupOrNull(toCopy.lookup(row)); same && alive.contains(same.getDefiningOp()))
        trial.rowsOfProgram[same] = row;
  return trial;
}

/// Of rows of the program, those that have the same rows in a gradient, in its order.
static SmallVector<Value, 2> rowsOf(VariantOp program, const Trial &trial, const SetVector<Value> &found) {
  SmallVector<Value, 2> rows;
  for (Operation &op : *program.getBlock())
    for (Value row : op.getResults())
      if (llvm::any_of(found, [&](Value same) { return trial.rowsOfProgram.lookup(same) == row; }))
        rows.push_back(row);
  return rows;
}

/// Where nothing but a fold of tokens passes on what they leave: all that its walk forward is for.
static SavedRows rowsOfFolds(VariantOp program) {
  FailureOr<Trial> trial = Trial::of(program, {});
  if (failed(trial))
    return {};
  FailureOr<SetVector<Value>> kept = findKeptRows(trial->gradient);
  if (failed(kept))
    return {};
  SavedRows saved = {rowsOf(program, *trial, *kept), {}};
  bool areAll = saved.rows.size() == kept->size() &&
                llvm::all_of(saved.rows, [&](Value row) { return isOfEachHead(program, row); });
  return areAll ? saved : SavedRows();
}

/// Where the walk back asks for forward states all the same, each kernel would read them for what a token was divided
/// by. Otherwise the walk forward, which is there in any case, finds that.
static SavedRows rowsOfStates(VariantOp program) {
  // Beside look-backs chunks become too short for warpgroups with the results (docs/performance.md).
  WalkResult looksBack = program.walk([](LookbackOp) { return WalkResult::interrupt(); });
  if (looksBack.wasInterrupted())
    return {};
  SavedRows saved;
  llvm::append_range(saved.results, llvm::seq<unsigned>(program.getType().getNumResults()));
  FailureOr<Trial> withResults = Trial::of(program, saved);
  if (failed(withResults))
    return {};
  // More take as long to read as what they are made of.
  constexpr int64_t fewNumbers = 4, tokensOfChunk = 64;
  llvm::DenseSet<Value> candidates;
  for (auto [row, ofProgram] : withResults->rowsOfProgram)
    if (isRow(ofProgram.getType()) && isOfEachHead(program, ofProgram) &&
        cast<RankedTensorType>(row.getType()).getNumElements() <= fewNumbers)
      candidates.insert(row);
  SetVector<Value> found = findRowsOfStates(withResults->gradient, candidates);
  if (found.empty() || countNumbers(found) > fewNumbers)
    return {};
  saved.rows = rowsOf(program, *withResults, found);

  FailureOr<Trial> without = Trial::of(program, {}), with = Trial::of(program, saved);
  if (failed(without) || failed(with) || with->countReads() >= without->countReads())
    return {};
  FailureOr<GradientParts> parts =
      GradientParts::find(with->gradient, tokensOfChunk, /*divided=*/false, /*independentChunks=*/false);
  if (failed(parts) || llvm::none_of(parts->asked, llvm::IsaPred<StateOp>))
    return {};
  // The results are the last arguments but for the rows.
  auto results = with->gradient.getBody().getArguments().drop_back(saved.rows.size()).take_back(saved.results.size());
  llvm::erase_if(saved.results, [&](unsigned result) { return results[result].use_empty(); });
  return saved;
}

int64_t Trial::countReads() {
  auto isForward = [](ReadOp read) { return !rootOf(read.getState()).getType().getReverse(); };
  return llvm::count_if(gradient.getBlock()->getOps<ReadOp>(), isForward);
}

SavedRows stretto::findSavedRows(VariantOp program) {
  if (!maySaveRows(program))
    return {};
  // Where there is no gradient, whoever asks for that is told why.
  ScopedDiagnosticHandler silent(program.getContext(), [](Diagnostic &) { return success(); });
  WalkResult carries = program.walk([](Operation *op) {
    return isa<StateOp, ScanOp, ConvOp, DelayOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
  });
  return carries.wasInterrupted() ? rowsOfStates(program) : rowsOfFolds(program);
}

namespace {

struct SaveRowsPass : stretto::impl::SaveRowsBase<SaveRowsPass> {
  void runOnOperation() override {
    VariantOp program = getOperation();
    SavedRows saved = findSavedRows(program);
    if (saved.rows.empty())
      return;
    Builder builder(&getContext());
    Operation *terminator = program.getBlock()->getTerminator();
    terminator->insertOperands(terminator->getNumOperands(), saved.rows);
    program.setFunctionType(builder.getFunctionType(program.getType().getInputs(), terminator->getOperandTypes()));
    program.setSaved(saved.rows.size());
  }
};

} // namespace
