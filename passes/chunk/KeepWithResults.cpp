//===- KeepWithResults.cpp - Rows that the kernel of results keeps --------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/IR/IRMapping.h"
#include "passes/Passes.h"
#include "passes/declaration/KernelNames.h"
#include "llvm/ADT/StringSet.h"

namespace stretto {
#define GEN_PASS_DEF_KEEPWITHRESULTS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using chunk::ArgumentAttr, chunk::ArgumentKind, chunk::KernelOp, chunk::OutputAttr;

static chunk::YieldOp yieldOf(KernelOp kernel) { return cast<chunk::YieldOp>(kernel.getBlock()->getTerminator()); }

/// Whether look-backs meet rows of other tokens, which are in memory then.
static bool isMetByOthers(BlockArgument argument) {
  return llvm::any_of(argument.getUses(), [](OpOperand &use) {
    auto lookback = dyn_cast<chunk::LookbackOp>(use.getOwner());
    return lookback && llvm::is_contained(lookback.getPast(), use.get());
  });
}

/// Whether a kernel that carries nothing finds rows of cotangents: what is made of others a call may have saved.
static bool findsOfCotangents(KernelOp rows) {
  if (rows.getSegments() || !rows.argumentsOf(ArgumentKind::State).empty())
    return false;
  return llvm::any_of(rows.argumentsOf(ArgumentKind::Input), [&](BlockArgument input) {
    return rows.getArgument(input.getArgNumber()).getName().getValue().starts_with("d_");
  });
}

/// Whether the results have a use for the rows of their own tokens alone, and for no states that are found with them.
static bool canKeep(KernelOp results, KernelOp rows, KernelOp cotangents) {
  if (!results.getEarlier() || results.getChunk() != rows.getChunk() || results.getSlices() != rows.getSlices())
    return false;
  llvm::StringSet<> kept, ofReverseTime;
  for (auto output : rows.getOutputs().getAsRange<OutputAttr>())
    kept.insert(output.getName());
  if (cotangents)
    for (auto output : cotangents.getOutputs().getAsRange<OutputAttr>())
      ofReverseTime.insert(output.getName());
  return llvm::all_of(results.getBlock()->getArguments(), [&](BlockArgument argument) {
    StringRef name = results.getArgument(argument.getArgNumber()).getName();
    return !ofReverseTime.contains(name) && !(kept.contains(name) && isMetByOthers(argument));
  });
}

/// What the rows are made of stands in front of the results, which take them as they are found.
static void keepRows(KernelOp results, KernelOp rows) {
  MLIRContext *context = results.getContext();
  SmallVector<Attribute> arguments(results.getArguments().begin(), results.getArguments().end());
  SmallVector<Attribute> outputs(results.getOutputs().begin(), results.getOutputs().end());
  Block *block = results.getBlock();
  auto argumentNamed = [&](StringRef name) -> BlockArgument {
    auto *found = llvm::find_if(arguments, [&](Attribute each) { return cast<ArgumentAttr>(each).getName() == name; });
    return found == arguments.end() ? BlockArgument() : block->getArgument(found - arguments.begin());
  };
  IRMapping mapping;
  for (BlockArgument argument : rows.getBlock()->getArguments()) {
    ArgumentAttr description = rows.getArgument(argument.getArgNumber());
    BlockArgument own = argumentNamed(description.getName());
    if (!own) { // in front of the number of valid tokens
      unsigned place = block->getNumArguments() - 1;
      own = block->insertArgument(place, argument.getType(), argument.getLoc());
      arguments.insert(arguments.begin() + place, description);
    }
    mapping.map(argument, own);
  }
  OpBuilder builder = OpBuilder::atBlockBegin(block);
  // The tiles that rows are made of would take the registers of the results.
  for (BlockArgument argument : rows.getBlock()->getArguments())
    if (isa<RankedTensorType>(argument.getType()))
      mapping.map(argument, chunk::AgainOp::create(builder, rows.getLoc(), mapping.lookup(argument)));
  for (Operation &op : rows.getBlock()->without_terminator()) {
    Operation *copy = builder.clone(op, mapping);
    // Who meets others loads them.
    if (auto lookback = dyn_cast<chunk::LookbackOp>(copy))
      for (OpOperand &past : lookback.getPastMutable())
        past.set(past.get().getDefiningOp<chunk::AgainOp>().getOperand());
  }
  llvm::BitVector found(block->getNumArguments());
  for (auto [output, value] : llvm::zip_equal(rows.getOutputs().getAsRange<OutputAttr>(), yieldOf(rows).getOutputs())) {
    Value row = mapping.lookup(value);
    if (BlockArgument argument = argumentNamed(output.getName())) {
      argument.replaceAllUsesWith(row);
      found.set(argument.getArgNumber());
    }
    outputs.push_back(output);
    yieldOf(results).getOutputsMutable().append(row);
  }
  for (unsigned index = arguments.size(); index-- > 0;)
    if (found[index])
      arguments.erase(arguments.begin() + index);
  block->eraseArguments(found);
  results.setArgumentsAttr(ArrayAttr::get(context, arguments));
  results.setOutputsAttr(ArrayAttr::get(context, outputs));
  rows.erase();
}

namespace {

struct KeepWithResults : stretto::impl::KeepWithResultsBase<KeepWithResults> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (KernelOp rows : llvm::make_early_inc_range(module.getOps<KernelOp>())) {
      StringRef name = rows.getSymName();
      bool isOfRows = name.consume_back(suffix::rows) || name.consume_back(suffix::checkpoints);
      if (!isOfRows || !findsOfCotangents(rows))
        continue;
      auto results = module.lookupSymbol<KernelOp>(name);
      auto cotangents = module.lookupSymbol<KernelOp>((name + suffix::cotangents).str());
      if (results && canKeep(results, rows, cotangents))
        keepRows(results, rows);
    }
  }
};

} // namespace
