//===- LeftTiles.cpp - Tiles that products take from registers ------------===//

#include "passes/kernel/LeftTiles.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernel/FreeTiles.h"
#include "passes/kernel/RegisterEstimate.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// Whether each element of the result is made of those in the same place, or can be made anywhere. A walk back has too
/// many tiles for pairs that are in range more than once.
static bool isPlaced(Operation *op) {
  if (auto inRange = dyn_cast<InRangeOp>(op))
    return tileTypeOf(inRange.getResult()).getRank() == 2 && !walksInReverse(op->getParentOfType<FuncOp>());
  return op->hasTrait<OpTrait::Elementwise>() ||
         isa<chunk::CausalOp, chunk::MeetOp, chunk::MaskOp, chunk::DecayMatrixOp, chunk::BroadcastOp>(op);
}

/// Whether a product adds to another one, of the same block, that is there for nothing else.
static bool isSumOfProducts(chunk::DotOp product) {
  auto addend = product.getAddend() ? product.getAddend().getDefiningOp<chunk::DotOp>() : chunk::DotOp();
  return addend && addend->hasOneUse() && addend->getBlock() == product->getBlock();
}

/// The number of a tile among what a loop carries, if it is what an iteration of a loop begins with, or what the loop
/// leaves.
static std::pair<scf::ForOp, unsigned> carriedAs(Value tile) {
  if (auto argument = dyn_cast<BlockArgument>(tile)) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    return {loop, loop ? argument.getArgNumber() - loop.getNumInductionVars() : 0};
  }
  return {tile.getDefiningOp<scf::ForOp>(), cast<OpResult>(tile).getResultNumber()};
}

/// Whether a branch forms products in the turns of a loop. To have each of them in all warpgroups takes longer than to
/// pass on, in the end, what they divide among them.
static bool formsInTurns(Region &branch) {
  WalkResult result = branch.walk([&](chunk::DotOp product) {
    auto loop = product->getParentOfType<scf::ForOp>();
    return WalkResult(failure(loop && branch.isAncestor(loop->getParentRegion())));
  });
  return result.wasInterrupted();
}

LeftTiles::LeftTiles(FuncOp function, int64_t warps) : warps(warps) {
  function.walk([&](chunk::DotOp product) { addLeft(product); });
  function.walk([&](chunk::ConcatOp joined) { addParts(joined); });
}

static constexpr int64_t rowsOfWarpgroup = 64;

void LeftTiles::addLeft(chunk::DotOp product) {
  constexpr int64_t bitsOfOperand = 16, innerOfFragment = 16;
  RankedTensorType left = tileTypeOf(product.getLeft());
  if (!product.getTransposeLeft() && left.getDimSize(1) % innerOfFragment == 0 &&
      left.getElementTypeBitWidth() == bitsOfOperand)
    add(product, product.getLeft(), tileTypeOf(product.getResult()));
}

void LeftTiles::addParts(chunk::ConcatOp joined) {
  RankedTensorType result = tileTypeOf(joined.getResult());
  int64_t columns = result.getRank() == 2 ? WarpGrid::of(result.getDimSize(0), result.getDimSize(1), warps).columns : 0;
  auto isPart = [&](Type part) { return part == joined.getOperandTypes().front(); };
  if (joined.getNumOperands() == static_cast<unsigned>(columns) && llvm::all_of(joined.getOperandTypes(), isPart) &&
      llvm::isPowerOf2_64(result.getDimSize(1)))
    add(joined, joined.getOperands(), result);
}

void LeftTiles::add(Operation *user, ValueRange wanted, RankedTensorType result) {
  int64_t rows = result.getDimSize(0);
  WarpGrid grid = WarpGrid::of(rows, result.getDimSize(1), warps);
  auto isKnown = [&](Value tile) { return layouts.contains(tile); };
  if (grid.columns == 1 || rows % rowsOfWarpgroup || llvm::any_of(wanted, isKnown))
    return;

  // All that is computed in place, as far back as it goes: to products that are formed as often as there are warps that
  // want them, or to constants, and no further.
  llvm::SetVector<Value> tiles;
  tiles.insert_range(wanted);
  bool hasProduct = false, isOfConstants = true;
  auto insertMade = [&](Value tile) {
    if (!isa_and_nonnull<arith::ConstantOp>(tile.getDefiningOp()))
      tiles.insert(tile);
  };
  for (size_t next = 0; next < tiles.size(); ++next) {
    auto [loop, place] = carriedAs(tiles[next]);
    Operation *made = loop ? loop.getOperation() : tiles[next].getDefiningOp();
    if (!made || !user->getBlock()->findAncestorOpInBlock(*made))
      return;
    if (loop) { // one tile, from what the loop begins with to what it leaves
      for (Value own : {loop.getInitArgs()[place], loop.getBody()->getTerminator()->getOperand(place)})
        insertMade(own);
      tiles.insert(loop.getRegionIterArg(place));
      tiles.insert(loop.getResult(place));
      continue;
    }
    if (isa<chunk::DotOp, chunk::DecayDotOp>(made)) {
      hasProduct = true;
      // What is nothing but another product is formed beside it.
      if (auto product = dyn_cast<chunk::DotOp>(made); product && isSumOfProducts(product))
        tiles.insert(product.getAddend());
      continue;
    }
    if (auto condition = dyn_cast<scf::IfOp>(made)) {
      unsigned number = cast<OpResult>(tiles[next]).getResultNumber();
      for (Region *branch : condition.getRegions())
        if (branch != &condition.getElseRegion() || !formsInTurns(*branch))
          insertMade(branch->front().getTerminator()->getOperand(number));
      continue;
    }
    if (!isPlaced(made))
      return;
    if (isa<chunk::BroadcastOp, chunk::DecayMatrixOp, InRangeOp>(made)) {
      isOfConstants = false;
      continue;
    }
    for (Value operand : made->getOperands())
      if (tileTypeOf(operand))
        insertMade(operand);
  }
  auto isWantedHere = [&](OpOperand &use) {
    Operation *other = use.getOwner();
    if (other == user)
      return llvm::is_contained(wanted, use.get());
    if (auto product = dyn_cast<chunk::DotOp>(other); product && use.getOperandNumber() == 2)
      return tiles.contains(product.getResult());
    if (auto product = dyn_cast<chunk::DotOp>(other))
      return use.getOperandNumber() == 0 && !product.getTransposeLeft() &&
             WarpGrid::of(rows, tileTypeOf(product.getResult()).getDimSize(1), warps).columns == grid.columns;
    if (auto product = dyn_cast<MatvecOp>(other))
      return use.getOperandNumber() == 0 && !product.getTranspose() &&
             WarpGrid::ofMatvec(rows, /*transposed=*/false, warps).columns == grid.columns;
    if (isa<scf::YieldOp>(other))
      return tiles.contains(other->getParentOp()->getResult(use.getOperandNumber()));
    if (auto loop = dyn_cast<scf::ForOp>(other))
      return tiles.contains(loop.getTiedLoopResult(&use));
    if (auto reduce = dyn_cast<chunk::ReduceOp>(other))
      return reduce.getOver() == chunk::Side::Columns;
    return other->getNumResults() == 1 && tiles.contains(other->getResult(0));
  };
  bool isOnlyWanted = llvm::all_of(tiles, [&](Value tile) { return llvm::all_of(tile.getUses(), isWantedHere); });
  if ((!hasProduct && !isOfConstants) || !isOnlyWanted)
    return;
  for (Value tile : tiles)
    layouts[tile] = leftOperandLayout(rows, tileTypeOf(wanted.front()).getDimSize(1), grid);
}

std::optional<Layout> LeftTiles::layoutFor(Value tile) const {
  auto found = layouts.find(tile);
  return found == layouts.end() ? std::nullopt : std::optional(found->second);
}
