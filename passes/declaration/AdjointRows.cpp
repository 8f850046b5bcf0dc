//===- AdjointRows.cpp - Cotangents of row maps ---------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/declaration/Adjoint.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

Value Adjoint::plus(Value a, Value b) { return create<arith::AddFOp>(a, b); }
Value Adjoint::times(Value a, Value b) { return create<arith::MulFOp>(a, b); }
Value Adjoint::over(Value a, Value b) { return create<arith::DivFOp>(a, b); }
Value Adjoint::negative(Value a) { return create<arith::NegFOp>(a); }
Value Adjoint::select(Value condition, Value a, Value b) { return create<arith::SelectOp>(condition, a, b); }

Value Adjoint::sum(Value row) {
  auto type = cast<RankedTensorType>(row.getType());
  return type.getRank() == 0 ? row : create<ReduceOp>(withoutAxis(type), Reduction::Sum, row).getResult();
}

Value Adjoint::forHeads(Value row, StringRef heads) {
  auto type = cast<RankedTensorType>(row.getType());
  if (headsOf(type) == heads)
    return row;
  if (headsDivide(heads, headsOf(type)))
    return create<GroupSumOp>(withHeads(type, heads), row);
  return repeat(row, withHeads(type, heads));
}

RankedTensorType Adjoint::rowTypeOf(const Extent &extent, StringRef heads) const {
  llvm::Expected<std::optional<int64_t>> size = sizes.extent(extent);
  if (!size) {
    llvm::consumeError(size.takeError());
    return rowType(getContext(), extent.str(), heads);
  }
  return rowType(getContext(), extent.str(), heads, size->value_or(ShapedType::kDynamic));
}

//===----------------------------------------------------------------------===//
// Elementwise operations
//===----------------------------------------------------------------------===//

bool Adjoint::visitElementwise(Operation *op, Value y, Value dy) {
  Value a = op->getNumOperands() > 0 ? op->getOperand(0) : Value();
  Value b = op->getNumOperands() > 1 ? op->getOperand(1) : Value();
  auto compare = [&](arith::CmpFPredicate predicate, Value x, Value z) -> Value {
    return create<arith::CmpFOp>(predicate, x, z);
  };
  auto zero = [&] { return constant(a.getType(), 0); };
  // The larger of two gets the cotangent, two that are the same half of it each.
  auto visitExtremum = [&](arith::CmpFPredicate wins) {
    Value half = zeroUnless(compare(arith::CmpFPredicate::OEQ, a, b), times(dy, 0.5));
    add(a, select(compare(wins, a, b), dy, half));
    add(b, select(compare(wins, b, a), dy, half));
  };
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](arith::AddFOp) { return add(a, dy), add(b, dy), true; })
      .Case([&](arith::SubFOp) {
        add(a, dy);
        if (isActive(b))
          add(b, negative(dy));
        return true;
      })
      .Case([&](arith::MulFOp) {
        if (isActive(a))
          add(a, times(dy, b));
        if (isActive(b))
          add(b, times(dy, a));
        return true;
      })
      .Case([&](arith::DivFOp) {
        Value da = over(dy, b);
        add(a, da);
        if (isActive(b))
          add(b, negative(times(da, y)));
        return true;
      })
      .Case([&](arith::RemFOp) {
        // a - b trunc(a / b), of which only `a` is taken to vary.
        return add(a, dy), !isActive(b);
      })
      .Case([&](arith::NegFOp) { return add(a, negative(dy)), true; })
      .Case([&](arith::MaximumFOp) { return visitExtremum(arith::CmpFPredicate::OGT), true; })
      .Case([&](arith::MinimumFOp) { return visitExtremum(arith::CmpFPredicate::OLT), true; })
      .Case([&](arith::SelectOp select) {
        if (isActive(b))
          add(b, zeroUnless(a, dy));
        Value other = select.getFalseValue();
        if (isActive(other))
          add(other, this->select(a, constant(dy.getType(), 0), dy));
        return true;
      })
      .Case([&](math::ExpOp) { return add(a, times(dy, y)), true; })
      .Case([&](math::Exp2Op) { return add(a, times(times(dy, y), std::numbers::ln2)), true; })
      .Case([&](math::LogOp) { return add(a, over(dy, a)), true; })
      .Case([&](math::Log1pOp) { return add(a, over(dy, plus(a, constant(a.getType(), 1)))), true; })
      .Case([&](math::SqrtOp) { return add(a, over(times(dy, 0.5), y)), true; })
      .Case([&](math::RsqrtOp) { return add(a, times(times(dy, -0.5), times(y, times(y, y)))), true; })
      .Case([&](math::AbsFOp) {
        Value falling = zeroUnless(compare(arith::CmpFPredicate::OLT, a, zero()), negative(dy));
        return add(a, select(compare(arith::CmpFPredicate::OGT, a, zero()), dy, falling)), true;
      })
      .Case([&](math::TanhOp) {
        Value slope = create<arith::SubFOp>(constant(y.getType(), 1), times(y, y));
        return add(a, times(dy, slope)), true;
      })
      .Case([&](math::SinOp) { return add(a, times(dy, create<math::CosOp>(a))), true; })
      .Case([&](math::CosOp) { return add(a, negative(times(dy, create<math::SinOp>(a)))), true; })
      .Case([&](math::PowFOp) {
        if (isActive(a)) {
          Value lower = create<math::PowFOp>(a, create<arith::SubFOp>(b, constant(b.getType(), 1)));
          add(a, times(dy, times(b, lower)));
        }
        if (isActive(b))
          add(b, times(times(dy, y), create<math::LogOp>(a)));
        return true;
      })
      .Case([&](LogSigmoidOp) {
        // 1 - sigmoid(x), which is accurate on both sides in this form.
        Value divisor = plus(create<math::ExpOp>(a), constant(a.getType(), 1));
        return add(a, over(dy, divisor)), true;
      })
      .Default(false);
}

//===----------------------------------------------------------------------===//
// Other operations on the rows of one token
//===----------------------------------------------------------------------===//

bool Adjoint::visitRowMap(Operation *op, Value dy) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](GroupSumOp op) { return add(op.getOperand(), repeat(dy, op.getOperand().getType())), true; })
      .Case([&](ReduceOp op) {
        Value x = op.getOperand();
        if (op.getKind() == Reduction::Max) {
          Value hit = create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, x, repeat(op.getResult(), x.getType()));
          Value ties = sum(select(hit, constant(x.getType(), 1), constant(x.getType(), 0)));
          return add(x, zeroUnless(hit, repeat(over(dy, ties), x.getType()))), true;
        }
        if (op.getKind() == Reduction::Mean)
          dy = over(dy, create<SizeOp>(dy.getType(), axisOf(x.getType())));
        return add(x, repeat(dy, x.getType())), true;
      })
      .Case([&](SoftmaxOp op) {
        Value y = op.getResult(), weighted = create<DotOp>(withoutAxis(op.getType()), dy, y);
        Value centred = create<arith::SubFOp>(dy, repeat(weighted, y.getType()));
        return add(op.getOperand(), times(y, centred)), true;
      })
      .Case([&](ConcatOp op) { return visitConcat(op, dy), true; })
      .Case([&](SliceOp op) {
        if (isActive(op.getOperand()))
          slicesOf[op.getOperand()].push_back({extentOf(op.getOffset()), dy});
        return true;
      })
      .Case([&](DotOp op) {
        Value repeated = repeat(dy, op.getLeft().getType());
        if (isActive(op.getLeft()))
          add(op.getLeft(), times(repeated, op.getRight()));
        if (isActive(op.getRight()))
          add(op.getRight(), times(repeated, op.getLeft()));
        return true;
      })
      .Case([&](OuterOp op) {
        if (isActive(op.getLeft()))
          add(op.getLeft(), create<InnerOp>(op.getLeft().getType(), dy, op.getRight(), /*transpose=*/false));
        if (isActive(op.getRight()))
          add(op.getRight(), create<InnerOp>(op.getRight().getType(), dy, op.getLeft(), /*transpose=*/true));
        return true;
      })
      .Case([&](InnerOp op) {
        Value matrix = op.getMatrix(), row = op.getRow();
        Value left = op.getTranspose() ? row : dy, right = op.getTranspose() ? dy : row;
        if (isActive(matrix))
          add(matrix, create<OuterOp>(matrix.getType(), left, right));
        if (isActive(row))
          add(row, create<InnerOp>(row.getType(), matrix, dy, !op.getTranspose()));
        return true;
      })
      .Case([&](ContractOp op) { return visitContract(op, dy), true; })
      .Default(false);
}

LogicalResult Adjoint::visitBroadcast(BroadcastOp op, Value dy) {
  Value operand = op.getOperand();
  auto type = dyn_cast<RankedTensorType>(operand.getType());
  if (!type) // a real number, which is known
    return success();
  StringRef axis = isRow(type)      ? axisOf(type)
                   : type.getRank() ? cast<ParamAttr>(type.getEncoding()).getAxes()[0].getValue()
                                    : StringRef();
  bool overChannels = axis != axisOf(dy.getType());
  if (overChannels && type.getRank() && type.getDimSize(0) != 1)
    return op.emitError("[R14] the axis '") << axis << "' may be of size one or '" << axisOf(dy.getType())
                                            << "' by another name; run stretto-specialize with sizes";
  if (overChannels)
    dy = sum(dy);
  if (!isRow(type))
    addToParameter(operand, dy, constant(numberType(headsOf(dy.getType())), 1));
  else if (overChannels && type.getRank())
    add(operand, repeat(dy, withHeads(type, headsOf(dy.getType()))));
  else
    add(operand, dy);
  return success();
}

Value Adjoint::join(Value whole, SmallVector<CotangentOfSlice> slices) {
  StringRef heads = headsOf(whole.getType());
  Extent width = widthOf(whole.getType());
  Value total;
  // Usually the slices lie side by side; what overlaps others, or lies where that cannot be told, is a row of its own.
  while (!slices.empty()) {
    SmallVector<Value> pieces;
    Extent end(0);
    auto fillUpTo = [&](const Extent &begin) {
      if (!(begin == end))
        pieces.push_back(constant(rowTypeOf(begin - end, heads), 0));
    };
    while (!slices.empty()) {
      auto *next = llvm::find_if(slices, [&](const CotangentOfSlice &slice) { return slice.offset == end; });
      if (next == slices.end())
        next = llvm::find_if(slices, [&](const CotangentOfSlice &slice) { return (slice.offset - end).isPositive(); });
      if (next == slices.end() && pieces.empty())
        next = slices.begin();
      if (next == slices.end())
        break;
      fillUpTo(next->offset);
      pieces.push_back(next->cotangent);
      end = next->offset + widthOf(next->cotangent.getType());
      slices.erase(next);
    }
    fillUpTo(width);
    Value row = pieces.size() == 1 ? pieces.front() : create<ConcatOp>(whole.getType(), pieces).getResult();
    total = total ? plus(total, row) : row;
  }
  return total;
}

void Adjoint::visitConcat(ConcatOp op, Value dy) {
  Extent offset(0);
  for (Value piece : op.getOperands()) {
    if (isActive(piece))
      add(piece, create<SliceOp>(piece.getType(), dy, offset.str()));
    offset = offset + widthOf(piece.getType());
  }
}

void Adjoint::visitContract(ContractOp op, Value dy) {
  Value row = op.getRow();
  if (isActive(row))
    add(row, create<ContractOp>(row.getType(), dy, op.getParameter(), !op.getTranspose()));
  if (op.getTranspose())
    addToParameter(op.getParameter(), dy, row);
  else
    addToParameter(op.getParameter(), row, dy);
}
