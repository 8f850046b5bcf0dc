//===- ChunkRows.cpp - Row maps on tiles ----------------------------------===//

#include "passes/declaration/ChunkRows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;
using namespace stretto;

namespace {

/// One overload for each row map; the operands' tiles are there.
class RowMaps {
public:
  RowMaps(TileBuilder &b, const Sizes &sizes, function_ref<Value(Operation *)> tailOf)
      : b(b), sizes(sizes), tailOf(tailOf) {}

  FailureOr<Value> build(Operation *op);

private:
  Value elementwise(Operation *op);
  FailureOr<Value> map(arith::ConstantOp op);
  FailureOr<Value> map(ConstantOp op) { return b.splat(b.tileType(op.getType()), op.getValue().convertToDouble()); }
  FailureOr<Value> map(BroadcastOp op);
  FailureOr<Value> map(ReduceOp op);
  FailureOr<Value> map(SoftmaxOp op);
  FailureOr<Value> map(LogSigmoidOp op);
  FailureOr<Value> map(StopGradientOp op) { return b.tileOf(op.getOperand()); }
  FailureOr<Value> map(ConcatOp op);
  FailureOr<Value> map(SliceOp op);
  FailureOr<Value> map(DotOp op) { return b.reduce(chunk::Reduction::Sum, multiply(op.getLeft(), op.getRight())); }
  FailureOr<Value> map(OuterOp op);
  FailureOr<Value> map(InnerOp op);
  FailureOr<Value> map(ContractOp op);
  FailureOr<Value> map(ConvOp op);
  FailureOr<Value> map(DelayOp op);
  FailureOr<Value> map(ScanOp op);

  Value multiply(Value leftRow, Value rightRow) {
    return b.create<arith::MulFOp>(b.tileOf(leftRow), b.tileOf(rightRow));
  }
  Value matrixOf(Value row) { return b.matrixOf(b.tileOf(row)); }
  InFlightDiagnostic refuse(Operation *op) { return refuseForm(b.form, op); }

  TileBuilder &b;
  const Sizes &sizes;
  function_ref<Value(Operation *)> tailOf;
};

} // namespace

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static int64_t widthOf(Value matrix) { return typeOf(matrix).getDimSize(1); }

FailureOr<Value> RowMaps::build(Operation *op) {
  bool runsBackwards = op->hasAttr("reverse");
  if (runsBackwards)
    return refuse(op) << "runs in reverse time";
  if (op->hasTrait<OpTrait::Elementwise>() && isa<RankedTensorType>(op->getResult(0).getType()))
    return elementwise(op);
  return llvm::TypeSwitch<Operation *, FailureOr<Value>>(op)
      .Case<arith::ConstantOp, ConstantOp, BroadcastOp, ReduceOp, SoftmaxOp, LogSigmoidOp, StopGradientOp, ConcatOp,
            SliceOp, DotOp, OuterOp, InnerOp, ContractOp, ConvOp, DelayOp, ScanOp>([&](auto row) { return map(row); })
      .Case<OptionOp, OptionIsOp, PresentOp, SizeOp>(
          [&](Operation *open) { return refuse(open) << "is not decided; run stretto-specialize first"; })
      .Default([&](Operation *other) { return refuse(other) << "has no meaning for a tile"; });
}

Value RowMaps::elementwise(Operation *op) {
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, b.tileOf(operand));
  Operation *tile = b.clone(*op, mapping);
  tile->getResult(0).setType(b.tileType(op->getResult(0).getType()));
  return tile->getResult(0);
}

FailureOr<Value> RowMaps::map(arith::ConstantOp op) {
  auto elements = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!elements || !isRow(op.getType()))
    return refuse(op) << "is no constant row";
  RankedTensorType type = b.tileType(op.getType());
  if (elements.isSplat() && type.getElementType().isInteger(1))
    return Value(b.create<arith::ConstantOp>(SplatElementsAttr::get(type, elements.getSplatValue<Attribute>())));
  if (elements.isSplat())
    return b.splat(type, elements.getSplatValue<APFloat>().convertToDouble());
  if (!type.getElementType().isF64())
    elements = elements.mapValues(type.getElementType(), [&](const APFloat &value) {
      APFloat converted = value;
      bool losesInfo;
      converted.convert(b.compute.getFloatSemantics(), APFloat::rmNearestTiesToEven, &losesInfo);
      return converted.bitcastToAPInt();
    });
  auto rowType = RankedTensorType::get(elements.getType().getShape(), type.getElementType());
  return b.repeat(b.create<arith::ConstantOp>(elements.reshape(rowType)), type, chunk::Side::Columns);
}

FailureOr<Value> RowMaps::map(BroadcastOp op) {
  Value tile = b.tileOf(op.getOperand());
  RankedTensorType type = b.tileType(op.getType());
  if (!tile)
    return refuse(op) << "repeats a number that is no constant";
  // Heads that share a row compute the same.
  if (tile.getType() == type)
    return tile;
  if (isParam(op.getOperand().getType())) {
    int64_t rank = typeOf(tile).getRank();
    if (rank == 0 || typeOf(tile).getDimSize(0) == type.getShape().back())
      return b.repeat(tile, type, chunk::Side::Columns);
    tile = b.repeat(tile, typeOf(tile).clone({b.tokens, 1}), chunk::Side::Columns);
  }
  Value number = b.shaped(tile, type.clone({b.tokens}));
  return type.getRank() == 1 ? number : b.repeat(number, type);
}

FailureOr<Value> RowMaps::map(ReduceOp op) {
  Value tile = matrixOf(op.getOperand());
  if (op.getKind() == Reduction::Max)
    return b.reduce(chunk::Reduction::Max, tile);
  Value sum = b.reduce(chunk::Reduction::Sum, tile);
  if (op.getKind() == Reduction::Sum)
    return sum;
  return Value(b.create<arith::DivFOp>(sum, b.splat(typeOf(sum), static_cast<double>(widthOf(tile)))));
}

FailureOr<Value> RowMaps::map(SoftmaxOp op) {
  Value x = b.tileOf(op.getOperand());
  RankedTensorType type = typeOf(x), perToken = type.clone({b.tokens});
  Value largest = b.reduce(chunk::Reduction::Max, x);
  // A row of nothing but -inf: its differences are not formed, and its sum of 0 does not divide.
  Value lowest = b.splat(perToken, -std::numeric_limits<double>::infinity()), zero = b.splat(perToken, 0);
  Value allOut = b.create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, largest, lowest);
  Value shift = b.create<arith::SelectOp>(allOut, zero, largest);
  Value power = b.create<math::ExpOp>(b.create<arith::SubFOp>(x, b.repeat(shift, type)));
  Value sum = b.create<arith::SelectOp>(allOut, b.splat(perToken, 1), b.reduce(chunk::Reduction::Sum, power));
  Value inverse = b.create<arith::DivFOp>(b.splat(perToken, 1), sum);
  return Value(b.create<arith::MulFOp>(power, b.repeat(inverse, type)));
}

FailureOr<Value> RowMaps::map(LogSigmoidOp op) {
  // min(x, 0) - log1p(e^-|x|)
  Value x = b.tileOf(op.getOperand());
  Value power = b.create<math::ExpOp>(b.create<arith::NegFOp>(b.create<math::AbsFOp>(x)));
  Value smaller = b.create<arith::MinimumFOp>(x, b.splat(typeOf(x), 0));
  return Value(b.create<arith::SubFOp>(smaller, b.create<math::Log1pOp>(power)));
}

FailureOr<Value> RowMaps::map(ConcatOp op) {
  SmallVector<Value> tiles;
  for (Value operand : op.getOperands())
    tiles.push_back(b.tileOf(operand));
  return b.shaped(b.concat(tiles), b.tileType(op.getType()));
}

FailureOr<Value> RowMaps::map(SliceOp op) {
  llvm::Expected<std::optional<int64_t>> offset = sizes.extent(extentOf(op.getOffset()));
  if (!offset || !*offset) {
    std::string reason = offset ? "is not known" : llvm::toString(offset.takeError());
    return refuse(op) << "the offset '" << op.getOffset() << "' " << reason;
  }
  RankedTensorType type = b.tileType(op.getType());
  return Value(b.create<chunk::ColumnsOp>(type, matrixOf(op.getOperand()), **offset));
}

FailureOr<Value> RowMaps::map(OuterOp op) {
  Value left = matrixOf(op.getLeft()), right = matrixOf(op.getRight());
  SmallVector<Value> blocks;
  for (int64_t a = 0; a < widthOf(left); ++a)
    blocks.push_back(b.create<arith::MulFOp>(b.repeat(b.column(left, a), typeOf(right)), right));
  return b.shaped(b.concat(blocks), b.tileType(op.getType()));
}

FailureOr<Value> RowMaps::map(InnerOp op) {
  Value matrix = matrixOf(op.getMatrix()), row = matrixOf(op.getRow());
  RankedTensorType type = b.tileType(op.getType());
  int64_t resultWidth = type.getRank() == 1 ? 1 : type.getDimSize(1), rowWidth = widthOf(row);
  if (op.getTranspose()) {
    // y = sum_a x_a (block a of the matrix)
    Value sum;
    for (int64_t a = 0; a < rowWidth; ++a) {
      Value block = b.columns(matrix, a * resultWidth, resultWidth);
      Value product = b.create<arith::MulFOp>(b.repeat(b.column(row, a), typeOf(block)), block);
      sum = sum ? b.create<arith::AddFOp>(sum, product) : product;
    }
    return b.shaped(sum, type);
  }
  SmallVector<Value> numbers;
  for (int64_t a = 0; a < resultWidth; ++a) {
    Value product = b.create<arith::MulFOp>(b.columns(matrix, a * rowWidth, rowWidth), row);
    numbers.push_back(b.reduce(chunk::Reduction::Sum, product));
  }
  return b.shaped(b.concat(numbers), type);
}

FailureOr<Value> RowMaps::map(ContractOp op) {
  Value product = b.dot(matrixOf(op.getRow()), b.tileOf(op.getParameter()), /*addend=*/{}, /*transposeLeft=*/false,
                        op.getTranspose());
  return b.shaped(product, b.tileType(op.getType()));
}

FailureOr<Value> RowMaps::map(ConvOp op) {
  Value x = b.tileOf(op.getOperand()), taps = b.tileOf(op.getTaps());
  if (widthOf(taps) == 1) {
    Value only = b.repeat(b.column(taps, 0), typeOf(x), chunk::Side::Columns);
    return Value(b.create<arith::MulFOp>(x, only));
  }
  return Value(b.create<chunk::ConvOp>(typeOf(x), x, taps, b.cast(tailOf(op), b.compute)));
}

FailureOr<Value> RowMaps::map(DelayOp op) {
  if (op.getBy() == 0)
    return b.tileOf(op.getOperand());
  Value x = matrixOf(op.getOperand());
  Value delayed = b.create<chunk::DelayOp>(typeOf(x), x, b.cast(tailOf(op), b.compute), op.getBy());
  return b.shaped(delayed, b.tileType(op.getType()));
}

chunk::ScanKind stretto::kindOf(ScanOp op) {
  switch (op.getKind()) {
  case ScanKind::Add:
    return chunk::ScanKind::Add;
  case ScanKind::LogAddExp:
    return chunk::ScanKind::LogAddExp;
  case ScanKind::Max:
    return chunk::ScanKind::Max;
  }
  llvm_unreachable("a scan is of one of three kinds");
}

Value stretto::buildTotals(ScanOp op, TileBuilder &b, Value carry) {
  Value x = b.matrixOf(b.tileOf(op.getOperand())), log = op.getLog() ? b.matrixOf(b.tileOf(op.getLog())) : Value();
  return b.create<chunk::ScanOp>(typeOf(x), kindOf(op), x, carry, log);
}

FailureOr<Value> RowMaps::map(ScanOp op) {
  Value carry = tailOf(op), totals = buildTotals(op, b, carry);
  if (op.getExclusive())
    totals = b.create<chunk::DelayOp>(typeOf(totals), totals, carry, /*by=*/1);
  return b.shaped(totals, b.tileType(op.getType()));
}

LogicalResult stretto::buildRowMap(Operation *op, TileBuilder &builder, const Sizes &sizes,
                                   function_ref<Value(Operation *)> tailOf) {
  builder.setLoc(op->getLoc());
  FailureOr<Value> tile = RowMaps(builder, sizes, tailOf).build(op);
  if (succeeded(tile))
    builder.setTile(op->getResult(0), *tile);
  return tile;
}
