//===- AdjointTime.cpp - Cotangents of what looks at other tokens ---------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/declaration/Adjoint.h"

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Convolutions and delays
//===----------------------------------------------------------------------===//

/// The tokens before its own that an operation looks back at.
static int64_t lengthOf(Operation *op) {
  if (auto conv = dyn_cast<ConvOp>(op))
    return cast<RankedTensorType>(conv.getTaps().getType()).getDimSize(1) - 1;
  return static_cast<int64_t>(cast<DelayOp>(op).getBy());
}

/// The operation that keeps all of a tail, of those that share it.
static Operation *longestOf(ArrayRef<Operation *> operations) {
  return *llvm::max_element(operations, [](auto *a, auto *b) { return lengthOf(a) < lengthOf(b); });
}

/// The cotangent of a tail enters with the operation that keeps all of it; the gradient is the sum of what all leave.
StringAttr Adjoint::tailName(Operation *op) {
  auto found = carried.find(op);
  if (found == carried.end())
    return {};
  const Carried &tail = *found->second;
  size_t index = llvm::find(tail.operations, op) - tail.operations.begin();
  return getStringAttr("d_" + tail.name + (op == longestOf(tail.operations) ? "" : "." + std::to_string(index)));
}

void Adjoint::addThroughTail(Operation *op, Value dy) {
  Value x = op->getOperand(0), dx;
  if (!isActive(x) && !isEntryWanted(op))
    return;
  if (auto conv = dyn_cast<ConvOp>(op))
    dx = create<ConvOp>(x.getType(), dy, conv.getTaps(), /*reverse=*/true, tailName(op));
  else
    dx = create<DelayOp>(x.getType(), dy, cast<DelayOp>(op).getBy(), /*reverse=*/true, tailName(op));
  if (isEntryWanted(op))
    leaving.push_back(dx.getDefiningOp());
  add(x, dx);
}

void Adjoint::visitUnusedTail(Operation *op) {
  auto tail = carried.find(op);
  if (tail != carried.end() && longestOf(tail->second->operations) == op)
    addThroughTail(op, constant(op->getResult(0).getType(), 0));
}

void Adjoint::visitConv(ConvOp op, Value dy) {
  Value x = op.getOperand(), taps = op.getTaps();
  addThroughTail(op, dy);
  if (!isActive(taps))
    return;
  // taps[:, J-1-j] meets x_(t-j): as many products as taps, each in a column of its own.
  int64_t count = lengthOf(op) + 1;
  StringRef heads = headsOf(x.getType());
  auto zerosOf = [&](int64_t columns) { return constant(rowTypeOf(Extent(columns), heads), 0); };
  for (int64_t j = 0; j < count; ++j) {
    Value earlier = j ? create<DelayOp>(x.getType(), x, j, /*reverse=*/false, /*entry=*/StringAttr()).getResult() : x;
    SmallVector<Value> column = {constant(numberType(heads), 1)};
    if (j < count - 1)
      column.insert(column.begin(), zerosOf(count - 1 - j));
    if (j)
      column.push_back(zerosOf(j));
    Value one = count == 1 ? column.front() : create<ConcatOp>(rowTypeOf(Extent(count), heads), column).getResult();
    addToParameter(taps, times(dy, earlier), one);
  }
}

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

/// `y_t = op(y_(t-1) + g_t, x_t)` depends on `y_(t-1)` by a factor `a` and on `x_t` by `b`; the cotangent of the carry,
/// `Y_t = dy_t + a_(t+1) Y_(t+1)`, is a state of one column in reverse time. Exclusive results are `y_(t-1)`: their
/// cotangents join after the factor.
void Adjoint::visitScans(ArrayRef<Operation *> scans) {
  auto first = cast<ScanOp>(scans.front());
  Value x = first.getOperand(), g = first.getLog();
  RankedTensorType type = first.getType();
  StringRef heads = headsOf(type), axis = axisOf(type).empty() ? "1" : axisOf(type);
  Value after, before;
  for (Operation *op : scans)
    (cast<ScanOp>(op).getExclusive() ? before : after) = op->getResult(0);
  auto present = [&](Value value, bool exclusive) -> Value {
    return value ? value : create<ScanOp>(type, first.getKind(), x, g, exclusive, /*reverse=*/false).getResult();
  };
  Value dAfter = after ? cotangentOf(after) : Value(), dBefore = before ? cotangentOf(before) : Value();

  Value fromCarry, fromRow;
  auto shifted = [&] { return g ? plus(present(before, true), g) : present(before, true); };
  switch (first.getKind()) {
  case ScanKind::Add:
    fromCarry = g ? create<math::ExpOp>(g).getResult() : constant(type, 1);
    fromRow = constant(type, 1);
    break;
  case ScanKind::LogAddExp: {
    Value y = present(after, false);
    // Where the carry or the row is -inf, so may `y` be: select before the difference.
    Value none = constant(type, -std::numeric_limits<double>::infinity()), zero = constant(type, 0);
    auto share = [&](Value part) {
      Value counts = create<arith::CmpFOp>(arith::CmpFPredicate::OGT, part, none);
      Value ratio = create<math::ExpOp>(create<arith::SubFOp>(part, y));
      return select(counts, ratio, zero);
    };
    fromCarry = share(shifted());
    fromRow = share(x);
    break;
  }
  case ScanKind::Max: {
    Value carry = shifted(), one = constant(type, 1), zero = constant(type, 0);
    Value ties = select(create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, carry, x), constant(type, 0.5), zero);
    fromCarry = select(create<arith::CmpFOp>(arith::CmpFPredicate::OGT, carry, x), one, ties);
    fromRow = create<arith::SubFOp>(one, fromCarry);
    break;
  }
  }

  Value one = constant(numberType(heads), 1);
  auto stateType = StateType::get(getContext(), axis, "1", heads, axisOf(type).empty() ? 1 : type.getDimSize(0), 1,
                                  /*reverse=*/true);
  auto root = create<StateOp>(stateType, "d_" + carried.at(first)->name);
  if (isEntryWanted(first))
    leaving.push_back(root);
  Value state = root;
  if (dAfter)
    state = create<WriteOp>(stateType, state, dAfter, one, /*at=*/Value());
  // Along the second axis, of size one; a number has no other.
  Value carry = create<ReadOp>(type, state, one, "1", /*at=*/Value());
  add(x, times(fromRow, carry));
  if (g && isActive(g)) {
    Value dg = times(fromCarry, carry);
    add(g, first.getKind() == ScanKind::Add ? times(dg, present(before, true)) : dg);
  }
  StringAttr along = axisOf(type).empty() ? StringAttr() : getStringAttr(axis);
  state = create<DecayOp>(stateType, state, DecayForm::Factor, fromCarry, along);
  if (dBefore)
    create<WriteOp>(stateType, state, dBefore, one, /*at=*/Value());
}
