//===- ChunkPadding.cpp - Tiles beyond the end of a sequence --------------===//

#include "passes/declaration/ChunkPadding.h"
#include "dialect/chunk/ChunkDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;
using Rows = Padding::Rows;

bool Rows::isUniform(double value) const {
  auto real = dyn_cast_if_present<FloatAttr>(number);
  return kind == Kind::Uniform && real && real.getValueAsDouble() == value;
}

bool Rows::isFinite() const {
  if (kind != Kind::Uniform)
    return kind != Kind::Unknown;
  auto real = dyn_cast<FloatAttr>(number);
  return !real || real.getValue().isFinite();
}

void Padding::setZero(Value tile) {
  setRows(tile, {Rows::Kind::Uniform, FloatAttr::get(getElementTypeOrSelf(tile), 0)});
}

Rows Padding::rowsOf(Value tile) {
  auto found = known.find(tile);
  if (found != known.end())
    return found->second;
  Rows rows = tile.getDefiningOp() ? compute(tile.getDefiningOp()) : Rows();
  known[tile] = rows;
  return rows;
}

/// The number that an operation makes of the same number in every entry.
static TypedAttr foldUniform(Operation *op, ArrayRef<Rows> operands) {
  SmallVector<Attribute> constants;
  for (auto [operand, rows] : llvm::zip_equal(op->getOperands(), operands))
    constants.push_back(SplatElementsAttr::get(cast<ShapedType>(operand.getType()), Attribute(rows.number)));
  SmallVector<OpFoldResult> results;
  // A fold that changes the operation itself would leave no result; it is done on a copy.
  Operation *copy = op->clone();
  TypedAttr number;
  if (succeeded(copy->fold(constants, results)) && results.size() == 1) {
    OpFoldResult result = results.front();
    if (auto splat = dyn_cast_if_present<SplatElementsAttr>(dyn_cast<Attribute>(result)))
      number = cast<TypedAttr>(splat.getSplatValue<Attribute>());
    // x - 0 is x, whichever number that is.
    for (auto [operand, rows] : llvm::zip_equal(copy->getOperands(), operands))
      if (dyn_cast<Value>(result) == operand)
        number = rows.number;
  }
  copy->destroy();
  return number;
}

/// Whether finite operands give a finite result.
static bool keepsFinite(Operation *op) {
  return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::NegFOp, arith::MaximumFOp, arith::MinimumFOp,
             arith::CmpFOp, arith::SelectOp, arith::AndIOp, arith::OrIOp, arith::XOrIOp, arith::ExtFOp, math::AbsFOp,
             math::TanhOp, math::SinOp, math::CosOp, math::FloorOp, math::RoundEvenOp>(op);
}

static Rows elementwise(Operation *op, ArrayRef<Rows> operands) {
  using Kind = Rows::Kind;
  auto areAll = [&](auto predicate) { return llvm::all_of(operands, predicate); };
  if (areAll([](Rows rows) { return rows.kind == Kind::Uniform; })) {
    TypedAttr number = foldUniform(op, operands);
    return number ? Rows{Kind::Uniform, number} : Rows();
  }
  bool allFinite = areAll([](Rows rows) { return rows.isFinite(); });
  if (isa<arith::MulFOp>(op) && allFinite)
    for (Rows rows : operands)
      if (rows.isUniform(0))
        return rows;
  if (areAll([](Rows rows) { return rows.kind == Kind::Uniform || rows.kind == Kind::Invariant; }))
    return {Kind::Invariant};
  return {allFinite && keepsFinite(op) ? Kind::Finite : Kind::Unknown};
}

/// What rows that come from several places are.
static Rows join(ArrayRef<Rows> parts) {
  Rows result = parts.front();
  for (Rows part : parts.drop_front())
    if (part.kind != result.kind || part.number != result.number) {
      bool invariant = llvm::all_of(
          parts, [](Rows rows) { return rows.kind == Rows::Kind::Uniform || rows.kind == Rows::Kind::Invariant; });
      bool finite = llvm::all_of(parts, [](Rows rows) { return rows.isFinite(); });
      return {invariant ? Rows::Kind::Invariant : finite ? Rows::Kind::Finite : Rows::Kind::Unknown};
    }
  return result;
}

/// Sums of finite products: 0 where what is summed is 0.
static Rows sumOf(Rows rows, bool finite) {
  if (!finite)
    return {};
  return rows.isUniform(0) ? rows : Rows{Rows::Kind::Finite};
}

Rows Padding::compute(Operation *op) {
  SmallVector<Rows> operands;
  for (Value operand : op->getOperands())
    operands.push_back(rowsOf(operand));

  if (op->hasTrait<OpTrait::Elementwise>())
    return elementwise(op, operands);
  return llvm::TypeSwitch<Operation *, Rows>(op)
      .Case([](arith::ConstantOp constant) -> Rows {
        auto splat = dyn_cast<SplatElementsAttr>(constant.getValue());
        if (!splat)
          return {Rows::Kind::Invariant};
        return {Rows::Kind::Uniform, cast<TypedAttr>(splat.getSplatValue<Attribute>())};
      })
      .Case<chunk::BroadcastOp, chunk::ColumnsOp>([&](Operation *) { return operands.front(); })
      .Case([&](chunk::ConcatOp) { return join(operands); })
      .Case([&](chunk::MaskOp mask) -> Rows {
        Type element = getElementTypeOrSelf(mask.getType());
        return {Rows::Kind::Uniform, FloatAttr::get(element, mask.getOtherwise().convertToDouble())};
      })
      .Case([&](chunk::ReduceOp reduce) -> Rows {
        if (reduce.getOver() != chunk::Side::Columns)
          return {};
        if (reduce.getKind() == chunk::Reduction::Max && operands.front().isFinite())
          return operands.front();
        return sumOf(operands.front(), operands.front().isFinite());
      })
      // Rows times a parameter.
      .Case([&](chunk::DotOp dot) -> Rows {
        bool finite = llvm::all_of(operands, [](Rows rows) { return rows.isFinite(); });
        return dot.getTransposeLeft() || dot.getAddend() ? Rows() : sumOf(operands.front(), finite);
      })
      // The last tokens reach beyond the end.
      .Case<chunk::ConvOp, chunk::DelayOp>([&](Operation *) -> Rows {
        bool finite = llvm::all_of(operands, [](Rows rows) { return rows.isFinite(); });
        return {finite ? Rows::Kind::Finite : Rows::Kind::Unknown};
      })
      .Default([](Operation *) { return Rows(); });
}
