//===- Differentiate.cpp - The adjoint of a declaration -------------------===//

#include "passes/declaration/Differentiate.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"
#include "passes/declaration/Adjoint.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace stretto {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

/// Removes what neither the gradients among rows nor those that `leaving` leave in the state are made of.
static void removeDead(VariantOp variant, ArrayRef<Operation *> leaving) {
  // A state is all that its tokens do to it.
  llvm::DenseMap<Operation *, SmallVector<Operation *>> stepsOf;
  for (const StateChain &chain : stateChains(variant))
    llvm::append_range(stepsOf[chain.getRoot()], chain.steps);
  SetVector<Operation *> live(leaving.begin(), leaving.end());
  live.insert(variant.getBlock()->getTerminator());
  for (size_t next = 0; next < live.size(); ++next) {
    Operation *op = live[next];
    live.insert(stepsOf[op].begin(), stepsOf[op].end());
    SetVector<Value> used(op->operand_begin(), op->operand_end());
    getUsedValuesDefinedAbove(op->getRegions(), used);
    for (Value value : used) {
      if (isa<StateType>(value.getType()))
        live.insert(rootOf(value));
      if (Operation *maker = value.getDefiningOp())
        live.insert(maker);
    }
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*variant.getBlock())))
    if (!live.contains(&op))
      op.erase();
}

namespace {

struct DifferentiatePass : stretto::impl::DifferentiateBase<DifferentiatePass> {
  using DifferentiateBase::DifferentiateBase;

  void runOnOperation() override {
    for (VariantOp variant : llvm::to_vector(getOperation().getOps<VariantOp>()))
      if (IRMapping copies;
          failed(differentiate(variant, wanted, zero, copies, saved ? findSavedRows(variant) : SavedRows())))
        return signalPassFailure();
  }
};

} // namespace

static LogicalResult checkNames(VariantOp variant, ArrayRef<std::string> wanted, ArrayRef<int64_t> zero) {
  llvm::SmallVector<std::string> known;
  for (auto [argument, name] :
       llvm::zip(variant.getBody().getArguments(), variant.getArgNames().getAsRange<StringAttr>()))
    if (getElementTypeOrSelf(argument).isF64())
      known.push_back(name.str());
  for (const StateEntry &entry : deriveState(variant))
    if (entry.kind != StateEntry::Kind::Position)
      known.push_back(entry.name);
  for (const std::string &name : wanted)
    if (!llvm::is_contained(known, name))
      return variant.emitError() << "the gradient of '" << name
                                 << "' is wanted, expected some of: " << llvm::join(known, ", ");
  for (int64_t result : zero)
    if (result < 0 || result >= variant.getType().getNumResults())
      return variant.emitError() << "the cotangent of result " << result << " is 0, expected one of "
                                 << variant.getType().getNumResults();
  return success();
}

FailureOr<VariantOp> stretto::differentiate(VariantOp original, ArrayRef<std::string> wanted, ArrayRef<int64_t> zero,
                                            IRMapping &copies, const SavedRows &saved) {
  FailureOr<Sizes> sizes = Sizes::get(original, {});
  if (failed(sizes) || failed(checkNames(original, wanted, zero)))
    return failure();
  OpBuilder builder(original);
  builder.setInsertionPointAfter(original);
  auto variant = cast<VariantOp>(builder.clone(*original, copies));
  SymbolTable symbols(original->getParentOp());
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
  auto addArgument = [&](Value like, std::string name) {
    while (!taken.insert(name).second)
      name += "_";
    names.push_back(builder.getStringAttr(name));
    attributes.push_back(builder.getDictionaryAttr({}));
    return block->addArgument(like.getType(), like.getLoc());
  };
  SmallVector<Value> cotangents(terminator->getNumOperands());
  for (auto [index, result] : llvm::enumerate(terminator->getOperands())) {
    if (llvm::is_contained(zero, static_cast<int64_t>(index)))
      continue;
    std::string name = terminator->getNumOperands() == 1 ? "d_o" : "d_o" + std::to_string(index);
    cotangents[index] = addArgument(result, std::move(name));
  }

  // The gradient of a tail leaves with that of the rows that it goes on with: no row is left out then.
  bool isOfTail = llvm::any_of(deriveState(original), [&](const StateEntry &entry) {
    return entry.kind == StateEntry::Kind::Tail && llvm::is_contained(wanted, entry.name);
  });
  auto isRowOf = [&](StringRef name) {
    auto names = original.getArgNames().getAsRange<StringAttr>();
    auto found = llvm::find_if(names, [&](StringAttr other) { return other == name; });
    return found != names.end() && isRow(original.getType().getInput(std::distance(names.begin(), found)));
  };
  auto isWanted = [&](StringRef name) {
    return wanted.empty() || llvm::is_contained(wanted, name) || (isOfTail && isRowOf(name));
  };
  Adjoint adjoint(variant, *sizes, isWanted);
  if (failed(adjoint.run(cotangents)))
    return failure();
  SmallVector<Value> gradients;
  SmallVector<Attribute> wantedRows;
  for (unsigned row : original.getDifferentiableRows())
    if (isWanted(original.getArgName(row))) {
      gradients.push_back(adjoint.gradientOf(block->getArgument(row)));
      wantedRows.push_back(original.getArgNames()[row]);
    }
  // A row that was saved is what it was made of.
  auto take = [&](Value row, std::string name) {
    Value argument = addArgument(row, std::move(name));
    row.replaceUsesWithIf(argument, [&](OpOperand &use) { return use.getOwner() != terminator; });
    llvm::replace(gradients, row, argument);
  };
  SmallVector<Value> results(terminator->getOperands());
  for (unsigned result : saved.results)
    take(results[result], "result_" + std::to_string(result));
  for (auto [index, row] : llvm::enumerate(saved.rows))
    take(copies.lookup(row), "saved_" + std::to_string(index));
  terminator->setOperands(gradients);
  variant.setArgNamesAttr(builder.getArrayAttr(names));
  if (variant.getArgAttrsAttr())
    variant.setArgAttrsAttr(builder.getArrayAttr(attributes));
  variant.setFunctionType(builder.getFunctionType(block->getArgumentTypes(), terminator->getOperandTypes()));
  variant.setGradient(true);
  if (!saved.rows.empty())
    variant.setSaved(saved.rows.size());
  if (!wanted.empty())
    variant.setWantedAttr(builder.getArrayAttr(wantedRows));
  removeDead(variant, adjoint.getLeaving());
  return variant;
}
