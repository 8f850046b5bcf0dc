//===- DivideResults.cpp - Results that later tokens have a part in -------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"
#include "passes/declaration/KernelNames.h"
#include "llvm/ADT/EquivalenceClasses.h"

namespace stretto {
#define GEN_PASS_DEF_DIVIDERESULTS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using chunk::ArgumentAttr, chunk::ArgumentKind, chunk::KernelOp;

/// What is worth computing once: products, and what meets other chunks. All else is a matter of few numbers.
static bool isCostly(Operation *op) { return isa<chunk::DotOp, chunk::LookbackOp>(op); }

/// The costly operations that a value is made of.
static llvm::SetVector<Operation *> costlyOf(Value value) {
  llvm::SetVector<Operation *> made;
  SmallVector<Value> pending = {value};
  llvm::SmallDenseSet<Value> seen;
  while (!pending.empty()) {
    Value next = pending.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (!seen.insert(next).second || !op)
      continue;
    if (isCostly(op))
      made.insert(op);
    llvm::append_range(pending, op->getOperands());
    SetVector<Value> outside;
    for (Region &region : op->getRegions())
      getUsedValuesDefinedAbove(region, outside);
    llvm::append_range(pending, outside);
  }
  return made;
}

/// Which outputs have something to do with later tokens: those made of a look-ahead, and what shares costly operations
/// with these. Nothing where that is all or none of them.
static llvm::BitVector findLater(KernelOp kernel) {
  ValueRange outputs = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator()).getOutputs();
  llvm::EquivalenceClasses<uintptr_t> made; // numbers of outputs, and addresses of operations
  auto addressOf = [](Operation *op) { return reinterpret_cast<uintptr_t>(op); };
  llvm::SetVector<Operation *> ahead;
  llvm::BitVector later(outputs.size());
  for (auto [index, output] : llvm::enumerate(outputs)) {
    made.insert(index);
    llvm::SetVector<Operation *> costly = costlyOf(output);
    later[index] = costly.empty(); // worth no kernel
    for (Operation *op : costly) {
      made.unionSets(index, addressOf(op));
      if (auto lookback = dyn_cast<chunk::LookbackOp>(op); lookback && lookback.getAhead())
        ahead.insert(op);
    }
  }
  for (unsigned index = 0; index < later.size(); ++index)
    if (llvm::any_of(ahead, [&](Operation *op) { return made.isEquivalent(index, addressOf(op)); }))
      later.set(index);
  return ahead.empty() || later.all() ? llvm::BitVector(outputs.size()) : later;
}

/// Whether the body has a use for an argument. Rows of a window are met by look-backs at its input.
static bool isUsed(KernelOp kernel, BlockArgument argument) {
  ArgumentAttr description = kernel.getArgument(argument.getArgNumber());
  if (description.getKind() == ArgumentKind::Valid)
    return true;
  if (description.getKind() != ArgumentKind::Window)
    return !argument.use_empty();
  return llvm::any_of(kernel.argumentsOf(ArgumentKind::Input), [&](BlockArgument input) {
    return kernel.getArgument(input.getArgNumber()).getName() == description.getEntry() &&
           llvm::any_of(input.getUsers(), [](Operation *user) {
             auto lookback = dyn_cast<chunk::LookbackOp>(user);
             return lookback && !lookback.getAhead();
           });
  });
}

/// Keeps some outputs of a kernel that carries nothing, and the arguments that they are made of.
static void keepOutputs(KernelOp kernel, const llvm::BitVector &kept) {
  MLIRContext *context = kernel.getContext();
  auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
  SmallVector<Attribute> outputs;
  SmallVector<Value> values;
  for (unsigned index : kept.set_bits()) {
    outputs.push_back(kernel.getOutput(index));
    values.push_back(yield.getOutputs()[index]);
  }
  yield.getOutputsMutable().assign(values);
  kernel.setOutputsAttr(ArrayAttr::get(context, outputs));

  IRRewriter rewriter(context);
  (void)runRegionDCE(rewriter, kernel->getRegions());
  SmallVector<Attribute> arguments;
  llvm::BitVector unused(kernel.getBlock()->getNumArguments());
  for (BlockArgument argument : kernel.getBlock()->getArguments()) {
    unused[argument.getArgNumber()] = !isUsed(kernel, argument);
    if (isUsed(kernel, argument))
      arguments.push_back(kernel.getArgument(argument.getArgNumber()));
  }
  kernel.setArgumentsAttr(ArrayAttr::get(context, arguments));
  kernel.getBlock()->eraseArguments(unused);
}

namespace {

struct DivideResults : stretto::impl::DivideResultsBase<DivideResults> {
  void runOnOperation() override {
    for (KernelOp kernel : llvm::make_early_inc_range(getOperation().getOps<KernelOp>())) {
      bool carries = kernel.getSegments() || !kernel.argumentsOf(ArgumentKind::State).empty();
      if (carries || !kernel.getReverse() || kernel.getChunk() == 1)
        continue;
      llvm::BitVector later = findLater(kernel);
      if (later.none())
        continue;
      KernelOp other = kernel.clone();
      other.setSymName((kernel.getSymName() + suffix::later).str());
      getOperation().insert(std::next(kernel->getIterator()), other);
      keepOutputs(other, later);
      keepOutputs(kernel, later.flip());
      kernel.setEarlier(true);
    }
  }
};

} // namespace
