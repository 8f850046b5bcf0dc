//===- GradientParts.cpp - Which kernel of a gradient does what -----------===//

#include "passes/declaration/GradientParts.h"
#include "dialect/stretto/StateEntries.h"
#include "passes/declaration/KeptRows.h"

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Needs
//===----------------------------------------------------------------------===//

NeededOperations::NeededOperations(VariantOp variant, ArrayRef<Value> rows, const SetVector<Value> &known) {
  llvm::DenseMap<Operation *, SmallVector<Value>> rowsOf;
  for (const StateChain &chain : stateChains(variant))
    rowsOf[chain.root] = chain.rows();
  SmallVector<Value> pending(rows);
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *op = known.contains(value) ? nullptr : value.getDefiningOp();
    if (!op || op->getBlock() != variant.getBlock() || !operations.insert(op).second)
      continue;
    llvm::append_range(pending, allOperandsOf(op));
    // A value of a state is all that the state's steps make of it, those of other tokens among them.
    if (isa<StateType>(value.getType())) {
      Operation *root = rootOf(value);
      operations.insert(root);
      llvm::append_range(pending, rowsOf.lookup(root));
    }
  }
}

//===----------------------------------------------------------------------===//
// The parts
//===----------------------------------------------------------------------===//

namespace {

/// What a gradient asks for, and what is carried forward for it.
class PartsFinder {
public:
  PartsFinder(VariantOp gradient, int64_t tokens, bool divided, bool independentChunks)
      : gradient(gradient), tokens(tokens), divided(divided), independentChunks(independentChunks),
        entries(deriveState(gradient)), chains(stateChains(gradient)) {
    llvm::append_range(results, gradient.getBlock()->getTerminator()->getOperands());
  }

  FailureOr<GradientParts> find();

private:
  /// The parts where so many results are found by the forward walk, and rows are kept.
  GradientParts describe(SetVector<Value> kept, SmallVector<unsigned> forwardResults, bool findsRowsApart = false);
  bool asksForMatrices(const GradientParts &parts);
  bool isRead(const StateChain &chain);
  bool isOfParameter(const StateChain &chain);
  /// No row reads it, and nothing decays.
  bool addsUp(const StateChain &chain) { return !isRead(chain) && !llvm::any_of(chain.steps, llvm::IsaPred<DecayOp>); }
  bool addsUpForParameter(const StateChain &chain) {
    return chain.getRoot().getType().getReverse() && addsUp(chain) && isOfParameter(chain);
  }
  SmallVector<unsigned> resultsOfForwardStates();
  void setApart(GradientParts &parts);
  void setAsked(GradientParts &parts);
  void setWrittenForward(GradientParts &parts);
  LogicalResult setSums(GradientParts &parts);

  VariantOp gradient;
  int64_t tokens;
  bool divided, independentChunks;
  std::vector<StateEntry> entries;
  SmallVector<StateChain> chains;
  SmallVector<Value> results;
};

} // namespace

GradientParts PartsFinder::describe(SetVector<Value> kept, SmallVector<unsigned> forwardResults, bool findsRowsApart) {
  GradientParts parts;
  SmallVector<Value> backward, forward(kept.getArrayRef());
  for (auto [index, result] : llvm::enumerate(results))
    (llvm::is_contained(forwardResults, index) ? forward : backward).push_back(result);
  for (const StateChain &chain : chains)
    if (chain.getRoot().getType().getReverse())
      llvm::append_range(backward, chain.rows());
  for (const StateEntry &entry : entries)
    if (entry.reverse && entry.kind == StateEntry::Kind::Tail)
      backward.push_back(entry.operations.front()->getResult(0));
  parts.walksBack = !backward.empty() || forward.empty();
  parts.onlyAddsUp =
      !chains.empty() && llvm::all_of(chains, [&](const StateChain &chain) { return addsUpForParameter(chain); });

  auto forEachForward = [&](const NeededOperations &needed, function_ref<void(const StateEntry &)> visit) {
    for (const StateEntry &entry : entries)
      if (!entry.reverse && entry.kind != StateEntry::Kind::Position &&
          llvm::any_of(entry.operations, [&](Operation *op) { return needed.contains(op); }))
        visit(entry);
  };
  auto ask = [&](const StateEntry &entry) {
    parts.asked.insert_range(entry.operations);
    for (Operation *op : entry.operations)
      if (auto root = dyn_cast<StateOp>(op))
        forward.push_back(root);
      else
        llvm::append_range(forward, op->getOperands());
  };
  forEachForward(NeededOperations(gradient, backward, kept), ask);
  if (findsRowsApart && !kept.empty())
    forEachForward(NeededOperations(gradient, kept.getArrayRef()), [&](const StateEntry &entry) {
      parts.findsRowsApart = true;
      parts.askedForRows.insert_range(entry.operations);
      ask(entry);
    });
  parts.carried = parts.asked;
  forEachForward(NeededOperations(gradient, forward),
                 [&](const StateEntry &entry) { parts.carried.insert_range(entry.operations); });
  parts.kept = std::move(kept);
  parts.forwardResults = std::move(forwardResults);
  if (divided)
    setApart(parts);
  for (const StateChain &chain : chains)
    if (parts.apart.empty() ? addsUpForParameter(chain)
                            : chain.getRoot().getType().getReverse() && !parts.apart.contains(chain.root))
      parts.addedUp.insert(chain.root);
  setAsked(parts);
  return parts;
}

bool PartsFinder::isRead(const StateChain &chain) {
  return llvm::any_of(gradient.getBlock()->getOperations(), [&](Operation &op) {
    return isa<ReadOp, PairOp>(op) &&
           llvm::any_of(op.getOperands(), [&](Value operand) { return chain.contains(operand); });
  });
}

/// It has the name of the parameter whose gradient it is.
bool PartsFinder::isOfParameter(const StateChain &chain) {
  StringRef name = chain.getRoot().getName();
  if (!name.consume_front("d_"))
    return false;
  return llvm::any_of(gradient.getBody().getArguments(), [&](BlockArgument argument) {
    return isParam(argument.getType()) && gradient.getArgName(argument.getArgNumber()) == name.rtrim('_');
  });
}

/// A walk that carries states alone has no place for what else passes from chunk to chunk.
void PartsFinder::setApart(GradientParts &parts) {
  SmallVector<Value> rows;
  for (const StateChain &chain : chains) {
    if (!chain.getRoot().getType().getReverse() || addsUp(chain))
      continue;
    parts.apart.insert(chain.root);
    if (isRead(chain))
      parts.keptApart.insert(chain.root);
    llvm::append_range(rows, chain.rows());
  }
  if (parts.keptApart.empty())
    return parts.apart.clear();
  NeededOperations needed(gradient, rows, parts.kept);
  for (Operation &op : *gradient.getBlock()) {
    bool isCarried = isa<LookbackOp>(op) || (isa<ConvOp, DelayOp>(op) && op.hasAttr("reverse"));
    auto root = dyn_cast<StateOp>(op);
    bool isOther = root && root.getType().getReverse() && !parts.apart.contains(root);
    if (needed.contains(&op) && (isCarried || isOther)) {
      parts.apart.clear();
      parts.keptApart.clear();
    }
  }
}

void PartsFinder::setAsked(GradientParts &parts) {
  SmallVector<Value> rows;
  for (const StateChain &chain : chains)
    if (chain.getRoot().getType().getReverse() && parts.isCarriedBack(chain.root))
      llvm::append_range(rows, chain.rows());
  NeededOperations needed(gradient, rows, parts.kept);
  for (Operation *op : parts.asked)
    if (needed.contains(op))
      parts.askedApart.insert(op);
}

/// A walk forward that leaves results is there whatever a call has kept or saved. One that keeps rows as well has no
/// registers left for more states.
void PartsFinder::setWrittenForward(GradientParts &parts) {
  if (parts.forwardResults.empty() || !parts.kept.empty() || !parts.apart.empty())
    return;
  llvm::DenseSet<Value> forward = findForwardRows(gradient);
  auto isInAnyOrder = [](Operation *step) {
    auto write = dyn_cast<WriteOp>(step);
    return write && !write.getAt();
  };
  for (const StateChain &chain : chains) {
    if (!chain.getRoot().getType().getReverse() || !parts.isCarriedBack(chain.root))
      continue;
    bool areRowsThere =
        llvm::all_of(chain.rows(), [&](Value row) { return isa<BlockArgument>(row) || forward.contains(row); });
    if (!areRowsThere || !llvm::all_of(chain.steps, isInAnyOrder))
      return parts.writtenForward.clear();
    parts.writtenForward.insert(chain.root);
  }
}

/// What no row reads is added up apart, with what is handed on to earlier tokens.
LogicalResult PartsFinder::setSums(GradientParts &parts) {
  if (!independentChunks || parts.apart.empty())
    return success();
  parts.sums = parts.addedUp;
  SmallVector<Value> rows;
  for (const StateChain &chain : chains)
    if (parts.addedUp.contains(chain.root))
      llvm::append_range(rows, chain.rows());
  llvm::DenseSet<Operation *> carried;
  for (const StateEntry &entry : entries) {
    if (entry.kind != StateEntry::Kind::Tail)
      continue;
    if (entry.reverse)
      parts.tailsOfSums.insert_range(entry.operations);
    else if (llvm::all_of(entry.operations, [&](Operation *op) { return parts.asked.contains(op); }))
      carried.insert_range(entry.operations);
  }
  carried.insert_range(parts.tailsOfSums);
  for (auto [index, result] : llvm::enumerate(results)) {
    NeededOperations needed(gradient, result);
    if (llvm::none_of(parts.tailsOfSums, [&](Operation *op) { return needed.contains(op); }))
      continue;
    parts.resultsOfSums.push_back(index);
    rows.push_back(result);
  }
  FailureOr<SetVector<Value>> kept = findRowsThatMake(gradient, rows, parts.kept, carried);
  if (failed(kept))
    return failure();
  parts.keptForSums = std::move(*kept);
  SetVector<Value> known = parts.kept;
  known.insert_range(parts.keptForSums);
  NeededOperations needed(gradient, rows, known);
  for (Operation *op : carried)
    if (needed.contains(op) && !parts.tailsOfSums.contains(op))
      parts.askedForSums.insert(op);
  return success();
}

bool PartsFinder::asksForMatrices(const GradientParts &parts) {
  return llvm::any_of(parts.asked, llvm::IsaPred<StateOp>);
}

SmallVector<unsigned> PartsFinder::resultsOfForwardStates() {
  llvm::DenseSet<Value> forward = findForwardRows(gradient);
  SmallVector<unsigned> found;
  for (auto [index, result] : llvm::enumerate(results)) {
    NeededOperations needed(gradient, result);
    bool readsState = llvm::any_of(chains, [&](const StateChain &chain) { return needed.contains(chain.root); });
    if (forward.contains(result) && readsState)
      found.push_back(index);
  }
  return found;
}

FailureOr<GradientParts> PartsFinder::find() {
  FailureOr<SetVector<Value>> kept = findKeptRows(gradient);
  if (failed(kept))
    return failure();
  int64_t numbers = countNumbers(*kept);
  GradientParts parts = describe(std::move(*kept), {}, /*findsRowsApart=*/independentChunks && divided);
  if (failed(setSums(parts)))
    return failure();
  if (!asksForMatrices(parts))
    return parts;
  int64_t inCheckpoints = 0;
  for (const StateChain &chain : chains)
    if (parts.asked.contains(chain.root))
      inCheckpoints += chain.getRoot().getType().getFirstSize() * chain.getRoot().getType().getSecondSize();

  FailureOr<SetVector<Value>> keptForNoState = findKeptRows(gradient, /*readsAnew=*/false);
  if (failed(keptForNoState))
    return failure();
  int64_t more = countNumbers(*keptForNoState) - numbers;
  if (divided) {
    // Each of several kernels would read a state for what a token was divided by.
    constexpr int64_t few = 4;
    if (more <= 0 || more > few)
      return parts;
    parts = describe(std::move(*keptForNoState), {}, /*findsRowsApart=*/true);
    if (failed(setSums(parts)))
      return failure();
    return parts;
  }
  GradientParts inOneWalk = describe(std::move(*keptForNoState), resultsOfForwardStates());
  setWrittenForward(inOneWalk);
  bool isCheaper = !asksForMatrices(inOneWalk) && more * tokens < inCheckpoints;
  return isCheaper ? inOneWalk : parts;
}

FailureOr<GradientParts> GradientParts::find(VariantOp gradient, int64_t tokens, bool divided, bool independentChunks) {
  return PartsFinder(gradient, tokens, divided, independentChunks).find();
}
