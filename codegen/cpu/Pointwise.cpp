//===- Pointwise.cpp - Expressions, one vector at a time ------------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

void KernelLowering::compute(Value value, Consumer consume) {
  Operation *product = plan.product(value);
  if (product && !storage.lookup(value).rows)
    computeProduct(product, value, consume);
  else
    computePointwise(value, consume);
}

void KernelLowering::computePointwise(Value value, Consumer consume) {
  ArrayRef<int64_t> shape = shapeOf(value);
  auto computeRow = [&](Value row) {
    builder.loopOverVectors(shape.empty() ? 1 : shape.back(), [&](Value column, int64_t lanes) {
      Point point = {row, column, lanes};
      consume(point, evaluateAnew(value, point));
    });
  };
  if (shape.size() < 2)
    return computeRow(Value());
  builder.loop(0, shape[0], 1, computeRow);
}

Value KernelLowering::evaluateAnew(Value value, Point point) {
  known.clear();
  return evaluate(value, point);
}

Value KernelLowering::evaluate(Value value, Point point) {
  auto key = std::make_tuple(value, point.row, point.column);
  if (Value entries = known.lookup(key))
    return entries;
  Value entries;
  SmallVector<Value, 2> place;
  if (point.row)
    place.push_back(point.row);
  place.push_back(point.column);
  if (auto stored = storage.find(value); stored != storage.end() && stored->second.rows)
    entries = builder.load(stored->second.rows, place);
  else if (auto view = views.find(value); view != views.end())
    entries = builder.load(view->second.base,
                           point.row ? builder.add(builder.multiply(point.row, view->second.stride), point.column)
                                     : point.column,
                           point.lanes);
  else
    entries = evaluateOperation(value.getDefiningOp(), point);
  return known[key] = entries;
}

Value KernelLowering::evaluateSplat(Value vector, Value index) {
  if (Value buffer = storage.lookup(vector).rows)
    return builder.loadSplat(buffer, index);
  Value entries = evaluate(vector, {Value(), index, 1});
  return builder.splat(vector::ExtractOp::create(builder, entries, 0).getResult());
}

Value KernelLowering::unsupported(Operation *op, const Twine &reason) {
  op->emitOpError("has no form on a CPU: ") << reason;
  failed = true;
  return builder.splat(0.0);
}

/// An operation on tensors as the same operation on vectors.
Value KernelLowering::evaluateElementwise(Operation *op, Point point) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    if (!isa<RankedTensorType>(operand.getType()))
      return unsupported(op, "an operand is no tensor");
    operands.push_back(evaluate(operand, point));
  }
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  OperationState state(builder.getLoc(), op->getName());
  state.addOperands(operands);
  state.addAttributes(op->getAttrs());
  state.addTypes(VectorType::get(builder.width, isa<FloatType>(element) ? Type(builder.element) : element));
  return builder.create(state)->getResult(0);
}

Value KernelLowering::evaluateOperation(Operation *op, Point point) {
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](arith::ConstantOp constant) {
        auto numbers = dyn_cast<SplatElementsAttr>(constant.getValue());
        if (!numbers)
          return unsupported(op, "only constants whose entries are all the same are supported");
        if (auto flag = dyn_cast<IntegerAttr>(numbers.getSplatValue<Attribute>()))
          return arith::ConstantOp::create(builder, DenseElementsAttr::get(builder.maskType(), flag)).getResult();
        return builder.splat(numbers.getSplatValue<APFloat>().convertToDouble());
      })
      // Vectors are of the compute type throughout; numbers are rounded to a narrower type where they reach memory.
      .Case<arith::ExtFOp, arith::TruncFOp>([&](auto) { return evaluate(op->getOperand(0), point); })
      .Case([&](chunk::BroadcastOp broadcast) {
        Value operand = broadcast.getOperand();
        if (rankOf(operand) == 0)
          return evaluateSplat(operand, builder.index(0));
        if (broadcast.getAlong() == chunk::Side::Rows)
          return evaluateSplat(operand, point.row);
        return evaluate(operand, {Value(), point.column, point.lanes});
      })
      .Case([&](chunk::ColumnsOp columns) {
        Point shifted = point;
        shifted.column = builder.add(point.column, columns.getFrom());
        return evaluate(columns.getOperand(), shifted);
      })
      .Case([&](chunk::RowOp row) {
        return evaluate(row.getOperand(), {builder.index(row.getAt()), point.column, point.lanes});
      })
      .Case([&](chunk::CausalOp causal) {
        Value count = builder.subtract(builder.add(point.row, causal.getStrict() ? 0 : 1), point.column);
        return builder.selectOrZero(builder.lanesBefore(count), evaluate(causal.getOperand(), point));
      })
      .Case([&](chunk::MaskOp mask) {
        Value exists = point.row ? builder.splat(builder.compare(arith::CmpIPredicate::slt, point.row, valid))
                                 : builder.lanesBefore(builder.subtract(valid, point.column));
        Value otherwise = builder.splat(mask.getOtherwise().convertToDouble());
        return arith::SelectOp::create(builder, exists, evaluate(mask.getOperand(), point), otherwise).getResult();
      })
      .Case([&](chunk::AgainOp again) { return evaluate(again.getOperand(), point); })
      .Case([&](chunk::ConvOp conv) { return evaluateConvolution(conv, point); })
      .Case([&](chunk::DelayOp delay) { return evaluateDelay(delay, point); })
      .Case([&](chunk::DecayMatrixOp matrix) {
        return decayBetween({matrix.getAmount(), matrix.getForm()}, point, matrix.getBefore());
      })
      .Case<chunk::DecayFromStartOp, chunk::DecayToEndOp>([&](auto decay) { return evaluateDecay(decay, point); })
      .Case([&](chunk::DecayStateOp decay) { return addDecayedTo(builder.splat(0.0), decay, point); })
      .Default([&](Operation *) {
        if (isPointwise(op))
          return evaluateElementwise(op, point);
        return unsupported(op, "the operation is not known");
      });
}
