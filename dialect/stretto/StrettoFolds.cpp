//===- StrettoFolds.cpp - The token-level dialect: folders and canonical forms -===//

#include "dialect/stretto/StrettoDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace stretto;

Operation *StrettoDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location location) {
  auto number = dyn_cast<FloatAttr>(value);
  if (!number || !number.getType().isF64() || getElementTypeOrSelf(type) != number.getType())
    return nullptr;
  if (isRow(type))
    return ConstantOp::create(builder, location, type, number);
  return arith::ConstantOp::materialize(builder, value, type, location);
}

/// The number that every entry of a constant is: `stretto.constant` holds it, upstream's constants repeat it.
static FloatAttr uniform(Attribute value) {
  if (auto splat = dyn_cast_if_present<SplatElementsAttr>(value))
    value = splat.getSplatValue<Attribute>();
  return dyn_cast_if_present<FloatAttr>(value);
}

/// Whether the extent cannot be below zero, as far as the signs of its terms tell.
static bool isNonNegative(const Extent &extent) { return (extent + Extent(1)).isPositive(); }

/// The offset of a slice that has been verified.
static Extent offsetOf(SliceOp slice) { return llvm::cantFail(Extent::parse(slice.getOffset())); }

/// The type of rows of type `pieces` side by side, with its dimension where all of theirs are known.
static RankedTensorType joinedType(TypeRange pieces) {
  Extent width(0);
  int64_t size = 0;
  for (Type piece : pieces) {
    auto row = cast<RankedTensorType>(piece);
    int64_t entries = row.getRank() ? row.getDimSize(0) : 1;
    width = width + widthOf(row);
    size = ShapedType::isDynamic(size) || ShapedType::isDynamic(entries) ? ShapedType::kDynamic : size + entries;
  }
  return rowType(pieces.front().getContext(), width.str(), headsOf(pieces.front()), size);
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValueAttr(); }

OpFoldResult SizeOp::fold(FoldAdaptor) {
  Extent extent = llvm::cantFail(Extent::parse(getExtent()));
  if (std::optional<int64_t> size = extent.constant())
    return FloatAttr::get(Float64Type::get(getContext()), static_cast<double>(*size));
  return {};
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  if (FloatAttr number = uniform(adaptor.getOperand()))
    return number;
  if (auto inner = getOperand().getDefiningOp<BroadcastOp>()) {
    getOperandMutable().assign(inner.getOperand());
    return getResult();
  }
  return {};
}

OpFoldResult GroupSumOp::fold(FoldAdaptor adaptor) {
  return getOperand().getType() == getType() ? OpFoldResult(getOperand()) : OpFoldResult();
}

OpFoldResult StopGradientOp::fold(FoldAdaptor adaptor) {
  if (FloatAttr number = uniform(adaptor.getOperand()))
    return number;
  return getOperand().getDefiningOp<StopGradientOp>() ? getOperand() : Value();
}

/// What is the same for every token is the same for the other token of the pair.
OpFoldResult PastOp::fold(FoldAdaptor adaptor) {
  if (FloatAttr number = uniform(adaptor.getOperand()))
    return number;
  auto broadcast = getOperand().getDefiningOp<BroadcastOp>();
  return broadcast && !isRow(broadcast.getOperand().getType()) ? getOperand() : Value();
}

OpFoldResult DecayOp::fold(FoldAdaptor adaptor) {
  FloatAttr amount = uniform(adaptor.getAmount());
  double unchanged = getForm() == DecayForm::Log ? 0.0 : 1.0;
  return amount && amount.getValueAsDouble() == unchanged ? getState() : Value();
}

OpFoldResult DelayOp::fold(FoldAdaptor) {
  if (getBy() == 0)
    return getOperand();
  // Rows before the start are 0, however often they are delayed; but a delay does not undo one of the other direction.
  auto inner = getOperand().getDefiningOp<DelayOp>();
  if (!inner || inner.getReverse() != getReverse() || getBy() + inner.getBy() > DelayOp::maximalDelay || getEntry() ||
      inner.getEntry())
    return {};
  setBy(getBy() + inner.getBy());
  getOperandMutable().assign(inner.getOperand());
  return getResult();
}

//===----------------------------------------------------------------------===//
// Pieces of rows
//===----------------------------------------------------------------------===//

OpFoldResult SliceOp::fold(FoldAdaptor adaptor) {
  if (FloatAttr number = uniform(adaptor.getOperand()))
    return number;
  return getOperand().getType() == getType() ? getOperand() : Value();
}

LogicalResult SliceOp::canonicalize(SliceOp slice, PatternRewriter &rewriter) {
  Extent offset = offsetOf(slice);
  if (auto inner = slice.getOperand().getDefiningOp<SliceOp>()) {
    rewriter.replaceOpWithNewOp<SliceOp>(slice, slice.getType(), inner.getOperand(), (offsetOf(inner) + offset).str());
    return success();
  }

  // Only those pieces of a concatenation count that the slice meets.
  auto concat = slice.getOperand().getDefiningOp<ConcatOp>();
  if (!concat)
    return failure();
  ValueRange pieces = concat.getOperands();
  while (pieces.size() > 1 && isNonNegative(offset - widthOf(pieces.front().getType()))) {
    offset = offset - widthOf(pieces.front().getType());
    pieces = pieces.drop_front();
  }
  Extent width = widthOf(joinedType(pieces.getTypes())), end = offset + widthOf(slice.getType());
  while (pieces.size() > 1 && isNonNegative(width - widthOf(pieces.back().getType()) - end)) {
    width = width - widthOf(pieces.back().getType());
    pieces = pieces.drop_back();
  }
  if (pieces.size() == concat.getOperands().size())
    return failure();
  Value rest = pieces.front();
  if (pieces.size() > 1) {
    // A concatenation that is the whole slice takes its type, which may know a dimension that the pieces do not.
    Type type = width == widthOf(slice.getType()) ? slice.getType() : joinedType(pieces.getTypes());
    rest = ConcatOp::create(rewriter, concat.getLoc(), type, pieces);
  }
  if (rest.getType() == slice.getType())
    rewriter.replaceOp(slice, rest);
  else
    rewriter.replaceOpWithNewOp<SliceOp>(slice, slice.getType(), rest, offset.str());
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getOperands().size() == 1 && getOperands().front().getType() == getType())
    return getOperands().front();
  return {};
}

LogicalResult ConcatOp::canonicalize(ConcatOp concat, PatternRewriter &rewriter) {
  SmallVector<Value> pieces;
  bool changed = false;
  for (Value piece : concat.getOperands()) {
    if (auto inner = piece.getDefiningOp<ConcatOp>()) {
      llvm::append_range(pieces, inner.getOperands());
      changed = true;
      continue;
    }
    // Two slices of one row of which the second begins where the first ends.
    auto slice = piece.getDefiningOp<SliceOp>();
    auto before = slice && !pieces.empty() ? pieces.back().getDefiningOp<SliceOp>() : SliceOp();
    if (before && before.getOperand() == slice.getOperand() &&
        offsetOf(before) + widthOf(before.getType()) == offsetOf(slice)) {
      RankedTensorType type = joinedType({before.getType(), slice.getType()});
      pieces.back() = SliceOp::create(rewriter, slice.getLoc(), type, slice.getOperand(), before.getOffset());
      changed = true;
      continue;
    }
    pieces.push_back(piece);
  }
  if (!changed)
    return failure();
  rewriter.replaceOpWithNewOp<ConcatOp>(concat, concat.getType(), pieces);
  return success();
}
