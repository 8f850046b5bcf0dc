//===- ChunkTiles.cpp - Builds the body of a chunk kernel -----------------===//

#include "passes/declaration/ChunkTiles.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace stretto;

static RankedTensorType typeOf(Value value) { return llvm::cast<RankedTensorType>(value.getType()); }

InFlightDiagnostic stretto::refuseForm(StringRef form, Operation *op) {
  auto variant = llvm::dyn_cast<VariantOp>(op);
  if (!variant)
    variant = op->getParentOfType<VariantOp>();
  return op->emitError() << "[R14] variant '" << variant.getSymName() << "': no " << form << " form: ";
}

void TileBuilder::loadTile(Value row, Value raw) {
  Value tile = cast(raw, compute);
  // A table that is constant in time is repeated over the tokens.
  if (row.getDefiningOp() && tile.getType() != tileType(row.getType()))
    tile = repeat(tile, tileType(row.getType()), chunk::Side::Columns);
  setTile(row, tile);
}

RankedTensorType TileBuilder::tileType(Type row) const {
  auto type = llvm::cast<RankedTensorType>(row);
  SmallVector<int64_t> shape = {tokens};
  llvm::append_range(shape, type.getShape());
  return RankedTensorType::get(shape, type.getElementType().isF64() ? Type(compute) : type.getElementType());
}

Value TileBuilder::splat(RankedTensorType type, double value) {
  FloatAttr number = FloatAttr::get(type.getElementType(), value);
  return create<arith::ConstantOp>(SplatElementsAttr::get(type, Attribute(number)));
}

Value TileBuilder::repeat(Value vector, RankedTensorType type, chunk::Side along) {
  return create<chunk::BroadcastOp>(type, vector, along);
}

Value TileBuilder::floored(Value logs) {
  if (typeOf(logs).getElementType().isF64())
    return logs;
  return create<arith::MaximumFOp>(logs, splat(typeOf(logs), chunk::noFactor));
}

Value TileBuilder::total(Value vector) {
  RankedTensorType type = typeOf(vector);
  Value sums = create<chunk::AccumulateOp>(type, chunk::Accumulation::Sum, vector, /*reverse=*/false,
                                           /*exclusive=*/false);
  return create<chunk::RowOp>(tensorType({}), sums, type.getDimSize(0) - 1);
}

Value TileBuilder::matrixOf(Value tile) {
  RankedTensorType type = typeOf(tile);
  return type.getRank() == 2 ? tile : repeat(tile, type.clone({type.getDimSize(0), 1}));
}

Value TileBuilder::shaped(Value tile, RankedTensorType type) {
  if (tile.getType() == type)
    return tile;
  return type.getRank() == 1 ? column(tile, 0) : matrixOf(tile);
}

Value TileBuilder::columns(Value tile, int64_t from, int64_t count) {
  return create<chunk::ColumnsOp>(typeOf(tile).clone({typeOf(tile).getDimSize(0), count}), tile, from);
}

Value TileBuilder::column(Value tile, int64_t index) {
  return create<chunk::ColumnsOp>(typeOf(tile).clone({typeOf(tile).getDimSize(0)}), tile, index);
}

Value TileBuilder::concat(ArrayRef<Value> tiles) {
  int64_t width = 0;
  for (Value tile : tiles)
    width += typeOf(tile).getRank() == 2 ? typeOf(tile).getDimSize(1) : 1;
  RankedTensorType type = typeOf(tiles.front());
  return create<chunk::ConcatOp>(type.clone({type.getDimSize(0), width}), tiles);
}

Value TileBuilder::reduce(chunk::Reduction kind, Value tile) {
  RankedTensorType type = typeOf(tile);
  return create<chunk::ReduceOp>(type.clone({type.getDimSize(0)}), kind, tile, chunk::Side::Columns);
}

Value TileBuilder::dot(Value left, Value right, Value addend, bool transposeLeft, bool transposeRight) {
  int64_t rows = typeOf(left).getDimSize(transposeLeft ? 1 : 0);
  int64_t columns = typeOf(right).getDimSize(transposeRight ? 0 : 1);
  return create<chunk::DotOp>(tensorType({rows, columns}), left, right, addend, transposeLeft, transposeRight);
}

Value TileBuilder::cast(Value value, Type element) {
  RankedTensorType type = typeOf(value).clone(element);
  unsigned from = typeOf(value).getElementTypeBitWidth(), to = type.getElementTypeBitWidth();
  if (type == value.getType())
    return value;
  if (from < to)
    return create<arith::ExtFOp>(type, value);
  return create<arith::TruncFOp>(type, value);
}
