//===- LeftTiles.cpp - Tiles that products take from registers ------------===//

#include "passes/kernel/LeftTiles.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernel/RegisterEstimate.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static RankedTensorType tileTypeOf(Value value) { return dyn_cast<RankedTensorType>(value.getType()); }

/// Whether each element of the result is made of those in the same place, or can be made anywhere. A walk back has too
/// many tiles for pairs that are in range more than once.
static bool isPlaced(Operation *op) {
  if (auto inRange = dyn_cast<InRangeOp>(op))
    return tileTypeOf(inRange.getResult()).getRank() == 2 && !walksInReverse(op->getParentOfType<FuncOp>());
  return op->hasTrait<OpTrait::Elementwise>() ||
         isa<chunk::CausalOp, chunk::MaskOp, chunk::DecayMatrixOp, chunk::BroadcastOp>(op);
}

LeftTiles::LeftTiles(FuncOp function, int64_t warps) {
  function.walk([&](chunk::DotOp product) { addProduct(product, warps); });
}

void LeftTiles::addProduct(chunk::DotOp product, int64_t warps) {
  constexpr int64_t rowsOfWarpgroup = 64, bitsOfOperand = 16, innerOfFragment = 16;
  RankedTensorType result = tileTypeOf(product.getResult()), left = tileTypeOf(product.getLeft());
  int64_t rows = result.getDimSize(0);
  WarpGrid grid = WarpGrid::of(rows, result.getDimSize(1), warps);
  if (grid.columns == 1 || product.getTransposeLeft() || rows % rowsOfWarpgroup ||
      left.getDimSize(1) % innerOfFragment || left.getElementTypeBitWidth() != bitsOfOperand ||
      layouts.contains(product.getLeft()))
    return;

  // All that is computed in place, as far back as it goes: to products that are formed as often as there are warps that
  // want them, or to constants, and no further.
  llvm::SetVector<Value> tiles;
  tiles.insert(product.getLeft());
  bool hasProduct = false, isOfConstants = true;
  for (size_t next = 0; next < tiles.size(); ++next) {
    Operation *made = tiles[next].getDefiningOp();
    if (!made || !product->getBlock()->findAncestorOpInBlock(*made))
      return;
    if (isa<chunk::DotOp, chunk::DecayDotOp>(made)) {
      hasProduct = true;
      continue;
    }
    if (auto condition = dyn_cast<scf::IfOp>(made)) {
      unsigned number = cast<OpResult>(tiles[next]).getResultNumber();
      for (Region *branch : condition.getRegions())
        if (Value own = branch->front().getTerminator()->getOperand(number);
            !isa_and_nonnull<arith::ConstantOp>(own.getDefiningOp()))
          tiles.insert(own);
      continue;
    }
    if (!isPlaced(made))
      return;
    if (isa<chunk::BroadcastOp, chunk::DecayMatrixOp, InRangeOp>(made)) {
      isOfConstants = false;
      continue;
    }
    for (Value operand : made->getOperands())
      if (tileTypeOf(operand) && !isa_and_nonnull<arith::ConstantOp>(operand.getDefiningOp()))
        tiles.insert(operand);
  }
  auto isWantedHere = [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto other = dyn_cast<chunk::DotOp>(user))
      return use.getOperandNumber() == 0 && !other.getTransposeLeft() &&
             WarpGrid::of(rows, tileTypeOf(other.getResult()).getDimSize(1), warps).columns == grid.columns;
    if (isa<scf::YieldOp>(user) && isa<scf::IfOp>(user->getParentOp()))
      return tiles.contains(user->getParentOp()->getResult(use.getOperandNumber()));
    if (auto reduce = dyn_cast<chunk::ReduceOp>(user))
      return reduce.getOver() == chunk::Side::Columns;
    return user->getNumResults() == 1 && tiles.contains(user->getResult(0));
  };
  bool isOnlyLeft = llvm::all_of(tiles, [&](Value tile) { return llvm::all_of(tile.getUses(), isWantedHere); });
  if ((!hasProduct && !isOfConstants) || !isOnlyLeft)
    return;
  for (Value tile : tiles)
    layouts[tile] = leftOperandLayout(rows, left.getDimSize(1), grid);
}

std::optional<Layout> LeftTiles::layoutFor(Value tile) const {
  auto found = layouts.find(tile);
  return found == layouts.end() ? std::nullopt : std::optional(found->second);
}
