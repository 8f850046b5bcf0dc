//===- Features.cpp - Rows that are found before all else -----------------===//

#include "passes/declaration/Features.h"
#include "dialect/stretto/StateChain.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Passes.h"
#include "passes/declaration/KeptRows.h"
#include "llvm/ADT/StringSet.h"

namespace stretto {
#define GEN_PASS_DEF_SPLITFEATURES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Which they are
//===----------------------------------------------------------------------===//

/// Whether tokens meet rows of others otherwise than by states, convolutions and delays.
static bool looksBack(VariantOp program) {
  WalkResult walked = program.walk([](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    auto write = dyn_cast<WriteOp>(op);
    bool isOfEarlierTime = (read && read.getAt()) || (write && write.getAt());
    return WalkResult(failure(isa<LookbackOp>(op) || isOfEarlierTime));
  });
  return walked.wasInterrupted();
}

/// Whether an operation takes more than an instruction or two for each number.
static bool isCostly(Operation &op) {
  return isa<ContractOp, ConvOp, SoftmaxOp, ReduceOp, DotOp, InnerOp, LogSigmoidOp, math::ExpOp, math::Exp2Op,
             math::LogOp, math::Log1pOp, math::SqrtOp, math::RsqrtOp, math::TanhOp, math::SinOp, math::CosOp,
             math::PowFOp>(op);
}

/// The operations that rows are made with.
static llvm::DenseSet<Operation *> makersOf(ArrayRef<Value> rows) {
  llvm::DenseSet<Operation *> makers;
  SmallVector<Value> pending(rows);
  while (!pending.empty())
    if (Operation *op = pending.pop_back_val().getDefiningOp(); op && makers.insert(op).second)
      llvm::append_range(pending, allOperandsOf(op));
  return makers;
}

namespace {

/// The rows that are to be found before: what meets states, and what the results are made of besides, as far as it is
/// made of products of rows and matrices; and, beside these, logarithms and factors of decays.
class Features {
public:
  Features(VariantOp program, bool together);
  SetVector<Value> rows, ofDecays;
  /// Rows that are found together, and the heads that they have then.
  struct Part {
    SmallVector<Value> rows;
    std::string heads;
  };
  /// In order, of which no two have rows that are made of one row which costs something.
  SmallVector<Part> parts;

private:
  void find(VariantOp program);
  void divide();
  LogicalResult findHeads(Part &part, StringRef ofResults);
};

} // namespace

Features::Features(VariantOp program, bool together) {
  find(program);
  divide();
  // They are the same rows in the same order, together or apart.
  if (together && !parts.empty()) {
    for (Part &part : MutableArrayRef(parts).drop_front())
      llvm::append_range(parts.front().rows, part.rows);
    parts.truncate(1);
  }
  for (Part &part : parts)
    if (failed(findHeads(part, headsOf(program.getType().getResult(0))))) {
      rows.clear();
      parts.clear();
      return;
    }
}

void Features::find(VariantOp program) {
  if (stateChains(program).empty() || looksBack(program))
    return;
  llvm::DenseSet<Value> carried, ofTokens, products, costly;
  for (BlockArgument argument : program.getBlock()->getArguments())
    if (isRow(argument.getType()))
      ofTokens.insert(argument);
  for (Operation &op : *program.getBlock()) {
    SetVector<Value> operands = allOperandsOf(&op);
    auto hasAnyOf = [&](const llvm::DenseSet<Value> &values) {
      return llvm::any_of(operands, [&](Value value) { return values.contains(value); });
    };
    if (isa<StateOp, ScanOp>(op) || op.hasTrait<OpTrait::IsTerminator>() || hasAnyOf(carried)) {
      carried.insert(op.result_begin(), op.result_end());
      for (Value operand : operands)
        if (!carried.contains(operand) && isa<DecayOp>(op) && costly.contains(operand))
          ofDecays.insert(operand);
        else if (!carried.contains(operand) && products.contains(operand))
          rows.insert(operand);
      continue;
    }
    // What no input row has a part in, as a decay of each head, is found where it is wanted.
    if (!hasAnyOf(ofTokens))
      continue;
    ofTokens.insert(op.result_begin(), op.result_end());
    if (isa<ContractOp>(op) || hasAnyOf(products))
      products.insert(op.result_begin(), op.result_end());
    if (isCostly(op) || hasAnyOf(costly))
      costly.insert(op.result_begin(), op.result_end());
  }
  bool areFeatures = !rows.empty() || llvm::any_of(ofDecays, [&](Value amount) { return products.contains(amount); });
  rows.insert_range(ofDecays);
  if (!areFeatures || !llvm::all_of(rows, [](Value row) { return isRow(row.getType()); }))
    rows.clear();
}

void Features::divide() {
  SmallVector<llvm::DenseSet<Operation *>> makersOfParts;
  for (Value row : rows) {
    llvm::DenseSet<Operation *> makers = makersOf(row);
    auto isShared = [&](const llvm::DenseSet<Operation *> &others) {
      return llvm::any_of(makers, [&](Operation *op) { return isCostly(*op) && others.contains(op); });
    };
    Part part;
    for (size_t index = 0; index < parts.size();)
      if (isShared(makersOfParts[index])) {
        llvm::append_range(part.rows, parts[index].rows);
        makers.insert_range(makersOfParts[index]);
        parts.erase(parts.begin() + index);
        makersOfParts.erase(makersOfParts.begin() + index);
      } else {
        ++index;
      }
    part.rows.push_back(row);
    parts.push_back(std::move(part));
    makersOfParts.push_back(std::move(makers));
  }
}

/// A part knows the heads of its arguments: each of those of the results has rows of its own if some argument has these
/// heads, or else each of those that all arguments have.
LogicalResult Features::findHeads(Part &part, StringRef ofResults) {
  llvm::StringSet<> known;
  for (Operation *maker : makersOf(part.rows))
    for (Value operand : allOperandsOf(maker))
      if (isa<BlockArgument>(operand) && (isRow(operand.getType()) || isParam(operand.getType())))
        for (StringRef heads : llvm::split(headsOf(operand.getType()), '|'))
          if (heads != allHeads)
            known.insert(heads);
  bool hasThose = known.contains(ofResults);
  part.heads = hasThose || known.empty() ? ofResults.str() : known.begin()->getKey().str();
  bool isOfOne =
      known.size() == 1 && llvm::all_of(part.rows, [&](Value row) { return headsOf(row.getType()) == part.heads; });
  return success(hasThose || isOfOne);
}

static int64_t numbersOf(Value row) { return cast<RankedTensorType>(row.getType()).getNumElements(); }

FeatureSplit stretto::chooseFeatureSplit(VariantOp program) {
  Features features(program, /*together=*/false);
  constexpr int64_t most = 2; // times the rows that they are made of
  int64_t numbers = 0, ofRows = 0;
  for (Value row : features.rows)
    numbers += numbersOf(row);
  llvm::DenseSet<Value> used;
  for (Operation *maker : makersOf(features.rows.getArrayRef()))
    for (Value operand : allOperandsOf(maker))
      if (isa<BlockArgument>(operand) && isRow(operand.getType()) && used.insert(operand).second)
        ofRows += numbersOf(operand);
  if (features.rows.empty() || numbers > most * ofRows)
    return {};
  // The kernel of more has few tokens in a chunk, or few registers for them (docs/performance.md).
  constexpr int64_t few = 192;
  auto apart = static_cast<unsigned>(features.parts.size());
  if (numbers <= few && !Features(program, /*together=*/true).rows.empty())
    return {.parts = 1, .together = true, .partsOfGradient = apart};
  return {.parts = apart, .partsOfGradient = apart};
}

//===----------------------------------------------------------------------===//
// The parts
//===----------------------------------------------------------------------===//

/// Leaves of a program what its results and the states are made of that it is to keep, and the arguments of that.
static void removeUnused(VariantOp program, ArrayRef<StateChain> states) {
  Block *block = program.getBlock();
  SmallVector<Value> wanted(block->getTerminator()->getOperands());
  for (const StateChain &chain : states)
    for (Operation *step : chain.steps)
      llvm::append_range(wanted, step->getResults());
  llvm::DenseSet<Operation *> makers = makersOf(wanted);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*block)))
    if (!makers.contains(&op) && !op.hasTrait<OpTrait::IsTerminator>())
      op.erase();
  Builder builder(program.getContext());
  SmallVector<Attribute> names, attributes;
  llvm::BitVector unused(block->getNumArguments());
  for (BlockArgument argument : block->getArguments()) {
    unsigned index = argument.getArgNumber();
    unused[index] = argument.use_empty();
    if (unused[index])
      continue;
    names.push_back(builder.getStringAttr(program.getArgName(index)));
    attributes.push_back(program.getArgAttrDict(index));
  }
  block->eraseArguments(unused);
  program.setArgNamesAttr(builder.getArrayAttr(names));
  if (program.getArgAttrs())
    program.setArgAttrsAttr(builder.getArrayAttr(attributes));
  program.setFunctionType(
      builder.getFunctionType(block->getArgumentTypes(), block->getTerminator()->getOperandTypes()));
  llvm::StringSet<> asked;
  program.walk([&](OptionOp option) { asked.insert(option.getName()); });
  SmallVector<NamedAttribute> options(program.getOptions().getValue());
  llvm::erase_if(options, [&](NamedAttribute option) { return !asked.contains(option.getName()); });
  program.setOptionsAttr(builder.getDictionaryAttr(options));
}

static Value broadcastTo(StringRef heads, Value row, OpBuilder &builder) {
  if (headsOf(row.getType()) == heads)
    return row;
  Type type = withHeads(cast<RankedTensorType>(row.getType()), heads);
  return BroadcastOp::create(builder, row.getLoc(), type, row);
}

/// What decays are made of may keep a type of its own, of which the part that finds features would know nothing.
static void markGates(VariantOp program, ArrayRef<Value> ofDecays) {
  llvm::DenseSet<Value> used(ofDecays.begin(), ofDecays.end());
  for (Operation *maker : makersOf(ofDecays))
    used.insert_range(allOperandsOf(maker));
  Builder builder(program.getContext());
  SmallVector<Attribute> attributes;
  for (BlockArgument argument : program.getBlock()->getArguments()) {
    NamedAttrList own(program.getArgAttrDict(argument.getArgNumber()));
    if (isRow(argument.getType()) && used.contains(argument))
      own.set(gateAttribute, builder.getUnitAttr());
    attributes.push_back(own.getDictionary(program.getContext()));
  }
  program.setArgAttrsAttr(builder.getArrayAttr(attributes));
}

/// The part of a program that finds some rows.
static void findAlone(VariantOp program, const Features::Part &rows, unsigned number) {
  IRMapping mapping;
  OpBuilder builder(program);
  auto part = cast<VariantOp>(builder.clone(*program, mapping));
  part.setSymName((program.getSymName() + featuresSuffix + Twine(number)).str());
  Operation *terminator = part.getBlock()->getTerminator();
  builder.setInsertionPoint(terminator);
  SmallVector<Value> found;
  for (Value row : rows.rows)
    found.push_back(broadcastTo(rows.heads, mapping.lookup(row), builder));
  terminator->setOperands(found);
  removeUnused(part, {});
}

void stretto::splitFeatures(VariantOp program, bool together) {
  Features features(program, together);
  markGates(program, features.ofDecays.getArrayRef());
  SmallVector<std::pair<Value, StringRef>> arguments;
  for (auto [number, part] : llvm::enumerate(features.parts)) {
    findAlone(program, part, number);
    for (Value row : part.rows)
      arguments.emplace_back(row, part.heads);
  }

  // The rest takes them as arguments.
  Builder builder(program.getContext());
  SmallVector<Attribute> names(program.getArgNames().begin(), program.getArgNames().end());
  SmallVector<Attribute> attributes(program.getArgAttrsAttr().begin(), program.getArgAttrsAttr().end());
  for (auto [index, argumentOf] : llvm::enumerate(arguments)) {
    auto [row, heads] = argumentOf;
    names.push_back(builder.getStringAttr(featurePrefix + Twine(index)));
    attributes.push_back(builder.getDictionaryAttr({}));
    Type type = withHeads(cast<RankedTensorType>(row.getType()), heads);
    Value argument = program.getBlock()->addArgument(type, row.getLoc());
    for (Operation *user : llvm::make_early_inc_range(row.getUsers()))
      if (isa<BroadcastOp>(user) && user->getResult(0).getType() == type)
        user->getResult(0).replaceAllUsesWith(argument);
    row.replaceAllUsesWith(argument);
  }
  program.setArgNamesAttr(builder.getArrayAttr(names));
  program.setArgAttrsAttr(builder.getArrayAttr(attributes));
  program.setSymName((program.getSymName() + restSuffix).str());
  removeUnused(program, stateChains(program));
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {

struct SplitFeaturesPass : stretto::impl::SplitFeaturesBase<SplitFeaturesPass> {
  using SplitFeaturesBase::SplitFeaturesBase;

  void runOnOperation() override {
    for (VariantOp program : llvm::to_vector(getOperation().getOps<VariantOp>()))
      if (!Features(program, together).rows.empty())
        splitFeatures(program, together);
  }
};

} // namespace
