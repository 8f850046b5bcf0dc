//===- SliceValues.cpp - Divides the value axis among slices --------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/Passes.h"
#include "passes/chunk/PartialSums.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

namespace stretto {
#define GEN_PASS_DEF_SLICEVALUES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;

namespace stretto::chunk {

namespace {

/// The values of a kernel whose last axis is divided: some to begin with, and those that these, or what is made of
/// them, meet. Each operation on one of them must do the same to every slice by itself, or sum over the axis.
class SlicedValues {
public:
  SlicedValues(KernelOp kernel, int64_t slices) : kernel(kernel), slices(slices) { separate(); }

  /// Finds them, beginning with `seeds`; says which operation mixes slices.
  std::optional<Refusal> find(ValueRange seeds);
  void divide();

  bool contains(Value value) const { return sliced.contains(value); }

private:
  /// Gives every user its own copy of what serves tiles of one shape alike, divided or not.
  void separate();
  std::optional<Refusal> slice(Operation *user, ValueRange values);
  /// Divides all of them or none.
  std::optional<Refusal> sliceAlike(Operation *user, ValueRange values);

  /// What follows from the marks of an operation's operands and result.
  std::optional<Refusal> visit(Operation *op);
  std::optional<Refusal> visit(DotOp op);
  std::optional<Refusal> visit(BroadcastOp op);
  std::optional<Refusal> visit(ReduceOp op);
  std::optional<Refusal> visit(DecayDotOp op);
  std::optional<Refusal> visit(DecayMixOp op);
  std::optional<Refusal> visit(SolveOp op);
  std::optional<Refusal> visit(DecayStateOp op);
  std::optional<Refusal> visit(YieldOp yield);
  /// `rows` are what the amount decays, by the divided axis if it has one number for each channel.
  std::optional<Refusal> visitDecay(Operation *op, ValueRange rows, Value amount);
  template <typename Pairs> std::optional<Refusal> visitPairs(Pairs op);

  RankedTensorType sliceType(Value value) const {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.back() /= slices;
    return type.clone(shape);
  }

  KernelOp kernel;
  int64_t slices;
  llvm::DenseSet<Value> sliced;
  std::unique_ptr<PartialSums> partial;
  bool changed = false;
};

} // namespace

static int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

std::optional<Refusal> SlicedValues::slice(Operation *user, ValueRange values) {
  for (Value value : values) {
    if (!sliced.insert(value).second)
      continue;
    changed = true;
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getRank() == 0 || type.getShape().back() % slices)
      return Refusal{user, llvm::formatv("divides {0}, whose last axis is no multiple of {1}", type, slices)};
    auto constant = value.getDefiningOp<arith::ConstantOp>();
    if (constant && !isa<SplatElementsAttr>(constant.getValue()))
      return Refusal{constant, "its columns differ"};
  }
  return std::nullopt;
}

std::optional<Refusal> SlicedValues::sliceAlike(Operation *user, ValueRange values) {
  bool any = llvm::any_of(values, [&](Value value) { return contains(value); });
  return any ? slice(user, values) : std::nullopt;
}

std::optional<Refusal> SlicedValues::visit(DotOp op) {
  SmallVector<Value> columns = {op.getResult()};
  if (op.getAddend())
    columns.push_back(op.getAddend());
  if (!op.getTransposeRight())
    columns.push_back(op.getRight());
  else if (llvm::any_of(columns, [&](Value value) { return contains(value); }))
    return Refusal{op, "its product meets the divided axis as rows of the right operand"};
  if (op.getTransposeRight() && !op.getTransposeLeft())
    return sliceAlike(op, {op.getLeft(), op.getRight()}); // a sum over the axis
  if (contains(op.getLeft()) || (op.getTransposeRight() && contains(op.getRight())))
    return Refusal{op, "its product meets the divided axis other than as columns of the right operand"};
  return op.getTransposeRight() ? std::nullopt : sliceAlike(op, columns);
}

std::optional<Refusal> SlicedValues::visit(BroadcastOp op) {
  // One number for each row serves every slice.
  bool perRow = op.getAlong() == Side::Rows || rankOf(op.getOperand()) == 0;
  if (perRow && contains(op.getOperand()))
    return Refusal{op, "it repeats numbers of the divided axis over the columns"};
  return perRow ? std::nullopt : sliceAlike(op, {op.getOperand(), op.getResult()});
}

std::optional<Refusal> SlicedValues::visit(ReduceOp op) {
  if (op.getOver() == Side::Rows)
    return sliceAlike(op, {op.getOperand(), op.getResult()});
  if (contains(op.getResult()) || (contains(op.getOperand()) && op.getKind() != Reduction::Sum))
    return Refusal{op, "it reduces over the divided axis"};
  return std::nullopt;
}

std::optional<Refusal> SlicedValues::visitDecay(Operation *op, ValueRange rows, Value amount) {
  SmallVector<Value> values(rows);
  if (rankOf(amount) == 2)
    values.push_back(amount);
  else if (contains(amount))
    return Refusal{op, "the divided axis decays it"};
  return sliceAlike(op, values);
}

std::optional<Refusal> SlicedValues::visit(DecayDotOp op) {
  if (contains(op.getResult()))
    return Refusal{op, "its weights meet the divided axis"};
  return visitDecay(op, {op.getQuery(), op.getKey()}, op.getAmount());
}

std::optional<Refusal> SlicedValues::visit(DecayMixOp op) {
  if (contains(op.getWeights()))
    return Refusal{op, "its weights meet the divided axis"};
  SmallVector<Value> rows = {op.getRows(), op.getResult()};
  if (op.getAddend())
    rows.push_back(op.getAddend());
  return visitDecay(op, rows, op.getAmount());
}

template <typename Pairs> std::optional<Refusal> SlicedValues::visitPairs(Pairs op) {
  if (contains(op.getWeights()))
    return Refusal{op, "its weights meet the divided axis"};
  SmallVector<Value> rows = {op.getQuery(), op.getKey()};
  if constexpr (std::is_same_v<Pairs, DecayPairsOp>)
    llvm::copy_if(ValueRange({op.getSeen(), op.getKept(), op.getEnds()}), std::back_inserter(rows),
                  [](Value other) { return bool(other); });
  llvm::append_range(rows, op->getResults());
  return visitDecay(op, rows, op.getAmount());
}

std::optional<Refusal> SlicedValues::visit(SolveOp op) {
  if (contains(op.getMatrix()))
    return Refusal{op, "its matrix meets the divided axis"};
  return sliceAlike(op, {op.getRows(), op.getResult()});
}

std::optional<Refusal> SlicedValues::visit(DecayStateOp op) {
  if (op.getAlong() == Side::Columns)
    return visitDecay(op, {op.getState(), op.getResult()}, op.getAmount());
  if (contains(op.getAmount()) || (rankOf(op.getState()) == 1 && contains(op.getState())))
    return Refusal{op, "the divided axis decays it"};
  return sliceAlike(op, {op.getState(), op.getResult()});
}

/// A state is divided at the end of a chunk as at its start.
std::optional<Refusal> SlicedValues::visit(YieldOp yield) {
  for (auto [argument, next] : llvm::zip_equal(kernel.argumentsOf(ArgumentKind::State), yield.getStates()))
    if (std::optional<Refusal> refusal = sliceAlike(yield, {argument, next}))
      return refusal;
  return std::nullopt;
}

std::optional<Refusal> SlicedValues::visit(Operation *op) {
  SmallVector<Value> tiles;
  for (Value value : llvm::concat<Value>(SmallVector<Value>(op->getOperands()), SmallVector<Value>(op->getResults())))
    if (isa<RankedTensorType>(value.getType()))
      tiles.push_back(value);
  // Operations that do the same to every column: all that has columns goes together.
  if (op->hasTrait<OpTrait::Elementwise>())
    return sliceAlike(op, tiles);
  return llvm::TypeSwitch<Operation *, std::optional<Refusal>>(op)
      .Case<MaskOp, AgainOp, DelayOp, TailOp, ScanOp>([&](Operation *columnwise) { return sliceAlike(op, tiles); })
      .Case([&](AccumulateOp op) -> std::optional<Refusal> {
        if (rankOf(op.getOperand()) == 1 && contains(op.getOperand()))
          return Refusal{op, "it accumulates over the divided axis"};
        return sliceAlike(op, tiles);
      })
      .Case<DotOp, BroadcastOp, ReduceOp, SolveOp, DecayDotOp, DecayMixOp, DecayStateOp, YieldOp>(
          [&](auto known) { return visit(known); })
      .Case<DecayPairsOp, DecayTotalsOp>([&](auto pairs) { return visitPairs(pairs); })
      .Case<DecayFromStartOp, DecayToEndOp>(
          [&](auto decay) { return visitDecay(decay, {decay.getOperand(), decay.getResult()}, decay.getAmount()); })
      .Case([](arith::ConstantOp) { return std::nullopt; })
      .Default([&](Operation *other) -> std::optional<Refusal> {
        if (llvm::any_of(tiles, [&](Value value) { return contains(value); }))
          return Refusal{other, "it mixes columns of the divided axis"};
        return std::nullopt;
      });
}

/// A constant, or numbers that are repeated over columns, whatever axis those stand for.
static bool servesAnyAxis(Operation *op) {
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return broadcast.getAlong() == Side::Rows || rankOf(broadcast.getOperand()) == 0;
  return isa<arith::ConstantOp>(op);
}

void SlicedValues::separate() {
  for (Operation &op : llvm::make_early_inc_range(*kernel.getBlock())) {
    if (!servesAnyAxis(&op) || op.use_empty())
      continue;
    for (OpOperand &use : llvm::make_early_inc_range(llvm::drop_begin(op.getUses())))
      use.set(OpBuilder(&op).clone(op)->getResult(0));
  }
}

std::optional<Refusal> SlicedValues::find(ValueRange seeds) {
  sliced.clear();
  if (std::optional<Refusal> refusal = slice(kernel, seeds))
    return refusal;
  while (std::exchange(changed, false))
    for (Operation &op : *kernel.getBlock())
      if (std::optional<Refusal> refusal = visit(&op))
        return refusal;
  partial = std::make_unique<PartialSums>(kernel, sliced, slices);
  return partial->find();
}

void SlicedValues::divide() {
  Builder builder(kernel.getContext());
  partial->divideWholes();
  for (Value value : sliced) {
    RankedTensorType type = sliceType(value);
    if (auto constant = value.getDefiningOp<arith::ConstantOp>())
      constant.setValueAttr(cast<SplatElementsAttr>(constant.getValue()).resizeSplat(type));
    value.setType(type);
  }
  SmallVector<Attribute> descriptions;
  for (auto [attribute, argument] : llvm::zip_equal(kernel.getArguments(), kernel.getBlock()->getArguments())) {
    auto old = cast<ArgumentAttr>(attribute);
    descriptions.push_back(ArgumentAttr::get(
        kernel.getContext(), old.getKind(), old.getName(), old.getGroup(), contains(argument), old.getEntry(),
        old.getColumn(), old.getColumns(), old.getLowest(), partial->contains(argument), old.getRow(), old.getRows()));
  }
  kernel.setArgumentsAttr(builder.getArrayAttr(descriptions));
  SmallVector<Attribute> outputs;
  auto yield = cast<YieldOp>(kernel.getBlock()->getTerminator());
  for (auto [old, operand] : llvm::zip_equal(kernel.getOutputs().getAsRange<OutputAttr>(), yield.getOutputsMutable())) {
    bool isPartial = partial->contains(operand.get());
    // Parts are rounded when they are added up.
    if (auto rounded = operand.get().getDefiningOp<arith::TruncFOp>(); rounded && isPartial)
      operand.set(rounded.getIn());
    auto type = cast<RankedTensorType>(operand.get().getType());
    outputs.push_back(OutputAttr::get(kernel.getContext(), old.getName(), type, old.getGroup(), contains(operand.get()),
                                      old.getCheckpoint(), isPartial));
  }
  kernel.setOutputsAttr(builder.getArrayAttr(outputs));
  kernel.setSlices(slices);
}

namespace {

struct SliceValuesPass : stretto::impl::SliceValuesBase<SliceValuesPass> {
  using SliceValuesBase::SliceValuesBase;

  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<KernelOp>())
      if (slices < 1 || kernel.getSlices() != 1) {
        kernel.emitError() << "the kernel '" << kernel.getSymName() << "' has " << kernel.getSlices()
                           << " slices and is to have " << int64_t(slices) << ", expected 1 and at least 1";
        return signalPassFailure();
      }
    if (slices != 1 && failed(divideAll()))
      signalPassFailure();
  }

private:
  LogicalResult divideAll();
  /// The kernel that others follow in what they divide: that which walks back, or that which computes the results of
  /// segments. None where kernels do not know each other.
  KernelOp findLeader();
  /// Takes the first of the seeds that can be divided; says why the first of all cannot.
  LogicalResult divide(KernelOp kernel, ArrayRef<SmallVector<Value>> seeds);
  LogicalResult refuse(KernelOp kernel, const Refusal &refusal) {
    return refusal.op->emitError() << "the kernel '" << kernel.getSymName() << "' cannot be divided into "
                                   << int64_t(slices) << " slices: " << refusal.reason;
  }
};

} // namespace

LogicalResult SliceValuesPass::divide(KernelOp kernel, ArrayRef<SmallVector<Value>> seeds) {
  SlicedValues values(kernel, slices);
  Refusal first = {kernel, "it has no value axis"};
  for (auto [index, seed] : llvm::enumerate(seeds)) {
    std::optional<Refusal> refusal = values.find(seed);
    if (!refusal) {
      values.divide();
      return success();
    }
    if (index == 0)
      first = *refusal;
  }
  return refuse(kernel, first);
}

/// All outputs with columns.
static SmallVector<Value> outputsOf(KernelOp kernel) {
  auto yield = cast<YieldOp>(kernel.getBlock()->getTerminator());
  return llvm::filter_to_vector(yield.getOutputs(), [](Value output) { return rankOf(output) == 2; });
}

/// Each state with columns, the largest first.
static SmallVector<SmallVector<Value>> statesOf(KernelOp kernel) {
  SmallVector<BlockArgument> states = kernel.argumentsOf(ArgumentKind::State);
  llvm::erase_if(states, [](BlockArgument state) { return rankOf(state) != 2; });
  auto key = [](BlockArgument state) {
    return std::pair(-cast<RankedTensorType>(state.getType()).getNumElements(), state.getArgNumber());
  };
  llvm::sort(states, [&](BlockArgument left, BlockArgument right) { return key(left) < key(right); });
  return llvm::map_to_vector(states, [](BlockArgument state) { return SmallVector<Value>{state}; });
}

/// What a kernel leaves for others of what they divide: outputs, and states where segments are walked side by side.
static SmallVector<Value> sharedBy(KernelOp kernel, const llvm::StringSet<> &divided) {
  SmallVector<Value> shared;
  auto yield = cast<YieldOp>(kernel.getBlock()->getTerminator());
  for (auto [output, value] : llvm::zip_equal(kernel.getOutputs().getAsRange<OutputAttr>(), yield.getOutputs()))
    if (divided.contains(output.getName().getValue()))
      shared.push_back(value);
  for (BlockArgument state : kernel.argumentsOf(ArgumentKind::State))
    if (kernel.getSegments() && divided.contains(kernel.getArgument(state.getArgNumber()).getName().getValue()))
      shared.push_back(state);
  return shared;
}

KernelOp SliceValuesPass::findLeader() {
  auto kernels = getOperation().getOps<KernelOp>();
  auto found = llvm::find_if(kernels, [](KernelOp kernel) { return kernel.getReverse(); });
  if (found == kernels.end())
    found = llvm::find_if(
        kernels, [](KernelOp kernel) { return kernel.takesSegments(Segments::Apart) && !outputsOf(kernel).empty(); });
  return found == kernels.end() ? KernelOp() : *found;
}

LogicalResult SliceValuesPass::divideAll() {
  KernelOp leader = findLeader();
  llvm::StringSet<> divided, known;
  if (leader) {
    if (failed(divide(leader,
                      leader.getReverse() ? statesOf(leader) : SmallVector<SmallVector<Value>>{outputsOf(leader)})))
      return failure();
    for (auto argument : leader.getArguments().getAsRange<ArgumentAttr>()) {
      known.insert(argument.getName().getValue());
      if (argument.getSliced())
        divided.insert(argument.getName().getValue());
    }
  }
  for (auto kernel : getOperation().getOps<KernelOp>()) {
    if (kernel == leader)
      continue;
    SmallVector<Value> seed = leader ? sharedBy(kernel, divided) : outputsOf(kernel);
    if (!leader && seed.empty())
      return refuse(kernel, {kernel, "no output has a value axis"});
    if (failed(divide(kernel, {seed})))
      return failure();
    if (!leader)
      continue;
    auto check = [&](StringRef name, bool isSliced) -> LogicalResult {
      if (isSliced == divided.contains(name))
        return success();
      return refuse(kernel, {kernel, ("only one of the kernels divides '" + name + "'").str()});
    };
    for (auto output : kernel.getOutputs().getAsRange<OutputAttr>())
      if (failed(check(output.getName().getValue(), output.getSliced())))
        return failure();
    for (BlockArgument state : kernel.argumentsOf(ArgumentKind::State))
      if (ArgumentAttr argument = kernel.getArgument(state.getArgNumber());
          known.contains(argument.getName().getValue()) &&
          failed(check(argument.getName().getValue(), argument.getSliced())))
        return failure();
  }
  return success();
}

} // namespace stretto::chunk
