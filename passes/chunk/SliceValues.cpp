//===- SliceValues.cpp - Divides the value axis among slices --------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace stretto {
#define GEN_PASS_DEF_SLICEVALUES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;

namespace stretto::chunk {

namespace {

/// The values of a kernel whose last axis is divided: those that outputs and other divided values ask for. Each
/// operation on one of them must do the same to every slice by itself.
class SlicedValues {
public:
  SlicedValues(KernelOp kernel, int64_t slices) : kernel(kernel), slices(slices) {}

  /// Gives every user its own copy of what serves tiles of one shape alike, divided or not.
  void separate();
  /// Finds them, beginning with the outputs; says which operation mixes slices.
  LogicalResult find();
  void divide();

private:
  bool isSliced(Value value) const { return sliced.contains(value); }
  LogicalResult slice(Operation *user, Value value);
  LogicalResult sliceAll(Operation *op, ValueRange values);
  InFlightDiagnostic refuse(Operation *op) {
    return op->emitError() << "the kernel '" << kernel.getSymName() << "' cannot be divided into " << slices
                           << " slices: ";
  }

  /// What follows from the marks of an operation's operands and result.
  LogicalResult visit(Operation *op);
  LogicalResult visitColumnwise(Operation *op);
  LogicalResult visit(DotOp op);
  LogicalResult visit(BroadcastOp op);
  LogicalResult visit(ReduceOp op);
  /// `operands` are what the amount decays, by the divided axis if it has one number for each channel.
  LogicalResult visitDecay(Operation *op, ValueRange operands, Value amount);
  LogicalResult visit(DecayMixOp op);
  LogicalResult visit(SolveOp op);
  LogicalResult visit(DecayStateOp op);

  RankedTensorType sliceType(Value value) const {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.back() /= slices;
    return type.clone(shape);
  }

  KernelOp kernel;
  int64_t slices;
  llvm::DenseSet<Value> sliced;
  bool changed = false;
};

} // namespace

static int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

LogicalResult SlicedValues::slice(Operation *user, Value value) {
  if (!sliced.insert(value).second)
    return success();
  changed = true;
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() == 0 || type.getShape().back() % slices)
    return refuse(user) << "divides " << type << ", whose last axis is no multiple of " << slices;
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  if (constant && !isa<SplatElementsAttr>(constant.getValue()))
    return refuse(constant) << "its columns differ";
  return success();
}

LogicalResult SlicedValues::sliceAll(Operation *op, ValueRange values) {
  for (Value value : values)
    if (failed(slice(op, value)))
      return failure();
  return success();
}

/// Operations that do the same to every column: all operands with columns and the result go together.
LogicalResult SlicedValues::visitColumnwise(Operation *op) {
  SmallVector<Value> values;
  for (Value value : llvm::concat<Value>(SmallVector<Value>(op->getOperands()), SmallVector<Value>(op->getResults())))
    if (isa<RankedTensorType>(value.getType()))
      values.push_back(value);
  return llvm::any_of(values, [&](Value value) { return isSliced(value); }) ? sliceAll(op, values) : success();
}

LogicalResult SlicedValues::visit(DotOp op) {
  bool columns = isSliced(op.getResult()) || isSliced(op.getRight()) || (op.getAddend() && isSliced(op.getAddend()));
  if (isSliced(op.getLeft()) || (columns && op.getTransposeRight()))
    return refuse(op) << "its product meets the divided axis other than as columns of the right operand";
  if (!columns)
    return success();
  SmallVector<Value> values = {op.getResult(), op.getRight()};
  if (op.getAddend())
    values.push_back(op.getAddend());
  return sliceAll(op, values);
}

LogicalResult SlicedValues::visit(BroadcastOp op) {
  // One number for each row serves every slice.
  bool perRow = op.getAlong() == Side::Rows || rankOf(op.getOperand()) == 0;
  if (perRow && isSliced(op.getOperand()))
    return refuse(op) << "it repeats numbers of the divided axis over the columns";
  if (perRow || !(isSliced(op.getOperand()) || isSliced(op.getResult())))
    return success();
  return sliceAll(op, {op.getOperand(), op.getResult()});
}

LogicalResult SlicedValues::visit(ReduceOp op) {
  if (!isSliced(op.getOperand()) && !isSliced(op.getResult()))
    return success();
  if (op.getOver() == Side::Columns)
    return refuse(op) << "it reduces over the divided axis";
  return sliceAll(op, {op.getOperand(), op.getResult()});
}

LogicalResult SlicedValues::visitDecay(Operation *op, ValueRange operands, Value amount) {
  SmallVector<Value> values(operands);
  values.push_back(op->getResult(0));
  bool perChannel = rankOf(amount) == 2;
  if (perChannel)
    values.push_back(amount);
  if (llvm::none_of(values, [&](Value value) { return isSliced(value); }))
    return success();
  if (!perChannel && isSliced(amount))
    return refuse(op) << "the divided axis decays it";
  return sliceAll(op, values);
}

LogicalResult SlicedValues::visit(DecayMixOp op) {
  if (isSliced(op.getWeights()))
    return refuse(op) << "its weights meet the divided axis";
  SmallVector<Value> values = {op.getRows()};
  if (op.getAddend())
    values.push_back(op.getAddend());
  return visitDecay(op, values, op.getAmount());
}

LogicalResult SlicedValues::visit(SolveOp op) {
  if (isSliced(op.getMatrix()))
    return refuse(op) << "its matrix meets the divided axis";
  return isSliced(op.getRows()) || isSliced(op.getResult()) ? sliceAll(op, {op.getRows(), op.getResult()}) : success();
}

LogicalResult SlicedValues::visit(DecayStateOp op) {
  if (op.getAlong() == Side::Columns)
    return visitDecay(op, op.getState(), op.getAmount());
  if (isSliced(op.getAmount()) || (rankOf(op.getState()) == 1 && isSliced(op.getState())))
    return refuse(op) << "the divided axis decays it";
  return isSliced(op.getState()) || isSliced(op.getResult()) ? sliceAll(op, {op.getState(), op.getResult()})
                                                             : success();
}

LogicalResult SlicedValues::visit(Operation *op) {
  if (op->hasTrait<OpTrait::Elementwise>())
    return visitColumnwise(op);
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<MaskOp, DelayOp, TailOp, ScanOp>([&](Operation *columnwise) { return visitColumnwise(columnwise); })
      .Case<DotOp, BroadcastOp, ReduceOp, SolveOp, DecayMixOp, DecayStateOp>([&](auto known) { return visit(known); })
      .Case<DecayFromStartOp, DecayToEndOp>(
          [&](auto decay) { return visitDecay(decay, decay.getOperand(), decay.getAmount()); })
      .Case([](arith::ConstantOp) { return success(); })
      .Case([&](YieldOp yield) -> LogicalResult {
        // A state is divided at the end of a chunk as at its start.
        for (auto [argument, next] : llvm::zip_equal(kernel.argumentsOf(ArgumentKind::State), yield.getStates()))
          if (isSliced(argument) != isSliced(next) && failed(sliceAll(yield, {argument, next})))
            return failure();
        return success();
      })
      .Default([&](Operation *other) -> LogicalResult {
        bool involved = llvm::any_of(
            llvm::concat<Value>(SmallVector<Value>(other->getOperands()), SmallVector<Value>(other->getResults())),
            [&](Value value) { return isSliced(value); });
        return involved ? LogicalResult(refuse(other) << "it mixes columns of the divided axis") : success();
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
    if (!servesAnyAxis(&op))
      continue;
    for (OpOperand &use : llvm::make_early_inc_range(llvm::drop_begin(op.getUses())))
      use.set(OpBuilder(&op).clone(op)->getResult(0));
  }
}

LogicalResult SlicedValues::find() {
  auto yield = cast<YieldOp>(kernel.getBlock()->getTerminator());
  for (Value output : yield.getOutputs())
    if (rankOf(output) == 2 && failed(slice(yield, output)))
      return failure();
  if (sliced.empty())
    return refuse(kernel) << "no output has a value axis";
  while (std::exchange(changed, false))
    for (Operation &op : *kernel.getBlock())
      if (failed(visit(&op)))
        return failure();
  return success();
}

void SlicedValues::divide() {
  Builder builder(kernel.getContext());
  for (Value value : sliced) {
    RankedTensorType type = sliceType(value);
    if (auto constant = value.getDefiningOp<arith::ConstantOp>())
      constant.setValueAttr(cast<SplatElementsAttr>(constant.getValue()).resizeSplat(type));
    value.setType(type);
  }
  SmallVector<Attribute> descriptions;
  for (auto [attribute, argument] : llvm::zip_equal(kernel.getArguments(), kernel.getBlock()->getArguments())) {
    auto old = cast<ArgumentAttr>(attribute);
    descriptions.push_back(ArgumentAttr::get(kernel.getContext(), old.getKind(), old.getName(), old.getGroup(),
                                             isSliced(argument), old.getEntry(), old.getColumn(), old.getColumns(),
                                             old.getLowest()));
  }
  kernel.setArgumentsAttr(builder.getArrayAttr(descriptions));
  SmallVector<Attribute> outputs;
  auto yield = cast<YieldOp>(kernel.getBlock()->getTerminator());
  for (auto [old, value] : llvm::zip_equal(kernel.getOutputs().getAsRange<OutputAttr>(), yield.getOutputs()))
    outputs.push_back(OutputAttr::get(kernel.getContext(), old.getName(), cast<RankedTensorType>(value.getType()),
                                      old.getGroup(), isSliced(value), old.getCheckpoint()));
  kernel.setOutputsAttr(builder.getArrayAttr(outputs));
  kernel.setSlices(slices);
}

namespace {

struct SliceValuesPass : stretto::impl::SliceValuesBase<SliceValuesPass> {
  using SliceValuesBase::SliceValuesBase;

  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (slices < 1 || kernel.getSlices() != 1) {
      kernel.emitError() << "the kernel '" << kernel.getSymName() << "' has " << kernel.getSlices()
                         << " slices and is to have " << slices << ", expected 1 and at least 1";
      return signalPassFailure();
    }
    if (slices == 1)
      return;
    SlicedValues values(kernel, slices);
    values.separate();
    if (failed(values.find()))
      return signalPassFailure();
    values.divide();
  }
};

} // namespace

} // namespace stretto::chunk
