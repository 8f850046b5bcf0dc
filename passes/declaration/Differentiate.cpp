//===- Differentiate.cpp - The adjoint of a declaration -------------------===//

#include "mlir/IR/SymbolTable.h"
#include "passes/Passes.h"
#include "passes/declaration/Adjoint.h"
#include "llvm/ADT/StringSet.h"

namespace stretto {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

/// Whether an operation leaves something in the state of the gradient: what runs in reverse does.
static bool isGradient(Operation *op) {
  if (auto conv = dyn_cast<ConvOp>(op))
    return conv.getReverse();
  if (auto delay = dyn_cast<DelayOp>(op))
    return delay.getReverse();
  if (isa<StateOp, DecayOp, WriteOp>(op))
    return cast<StateType>(op->getResult(0).getType()).getReverse();
  return false;
}

/// Whether a read or a pair looks at a state or at what a token makes of it.
static bool isLookedAt(const StateChain &chain) {
  auto isUsed = [](Operation *op) { return llvm::any_of(op->getUsers(), llvm::IsaPred<ReadOp, PairOp>); };
  return isUsed(chain.getRoot()) || llvm::any_of(chain.steps, isUsed);
}

/// Removes what of the program the gradient does not need.
static void removeDead(VariantOp variant) {
  for (bool changed = true; changed;) {
    changed = false;
    auto erase = [&](Operation *op) {
      op->erase();
      changed = true;
    };
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*variant.getBlock())))
      if (op.use_empty() && !isa<YieldOp, DecayOp, WriteOp>(op) && !isGradient(&op))
        erase(&op);
    for (const StateChain &chain : stateChains(variant)) {
      if (isGradient(chain.getRoot()) || isLookedAt(chain))
        continue;
      for (Operation *step : llvm::reverse(chain.steps))
        erase(step);
      erase(chain.getRoot());
    }
  }
}

namespace {

struct DifferentiatePass : stretto::impl::DifferentiateBase<DifferentiatePass> {
  void runOnOperation() override {
    for (VariantOp variant : llvm::to_vector(getOperation().getOps<VariantOp>()))
      if (failed(differentiate(variant)))
        return signalPassFailure();
  }

private:
  LogicalResult differentiate(VariantOp variant);
};

} // namespace

LogicalResult DifferentiatePass::differentiate(VariantOp original) {
  FailureOr<Sizes> sizes = Sizes::get(original, {});
  if (failed(sizes))
    return failure();
  OpBuilder builder(original);
  builder.setInsertionPointAfter(original);
  auto variant = cast<VariantOp>(builder.clone(*original));
  SymbolTable symbols(getOperation());
  variant.setSymName((original.getSymName() + "_backward").str());
  symbols.insert(variant);

  // Cotangents of the results are arguments after the others.
  SmallVector<Attribute> names(variant.getArgNames().begin(), variant.getArgNames().end()), attributes;
  llvm::StringSet<> taken;
  for (Attribute name : names)
    taken.insert(cast<StringAttr>(name).getValue());
  for (unsigned i = 0, end = names.size(); i < end; ++i)
    attributes.push_back(variant.getArgAttrDict(i));
  Block *block = variant.getBlock();
  Operation *terminator = block->getTerminator();
  SmallVector<Value> cotangents;
  for (auto [index, result] : llvm::enumerate(terminator->getOperands())) {
    std::string name = terminator->getNumOperands() == 1 ? "d_o" : "d_o" + std::to_string(index);
    while (!taken.insert(name).second)
      name += "_";
    names.push_back(builder.getStringAttr(name));
    attributes.push_back(builder.getDictionaryAttr({}));
    cotangents.push_back(block->addArgument(result.getType(), result.getLoc()));
  }

  Adjoint adjoint(variant, *sizes);
  if (failed(adjoint.run(cotangents)))
    return failure();
  SmallVector<Value> gradients;
  for (unsigned row : original.getDifferentiableRows())
    gradients.push_back(adjoint.gradientOf(block->getArgument(row)));
  terminator->setOperands(gradients);
  variant.setArgNamesAttr(builder.getArrayAttr(names));
  if (variant.getArgAttrsAttr())
    variant.setArgAttrsAttr(builder.getArrayAttr(attributes));
  variant.setFunctionType(builder.getFunctionType(block->getArgumentTypes(), terminator->getOperandTypes()));
  variant.setGradient(true);
  removeDead(variant);
  return success();
}
