//===- SelectProducts.cpp - Which instruction forms a product -------------===//

#include "dialect/kernel/Chip.h"
#include "passes/Passes.h"
#include "passes/kernel/WarpgroupTiles.h"

namespace stretto {
#define GEN_PASS_DEF_SELECTPRODUCTS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

FormedProduct::FormedProduct(chunk::DotOp product)
    : left(product.getLeft()), right(product.getRight()), transposeLeft(product.getTransposeLeft()),
      transposeRight(product.getTransposeRight()), layout(*layoutOf(product.getType())) {
  auto result = cast<RankedTensorType>(product.getType()), leftType = cast<RankedTensorType>(left.getType());
  rows = result.getDimSize(0), columns = result.getDimSize(1), inner = leftType.getDimSize(transposeLeft ? 0 : 1);
  if (!liesAcross(layout))
    return;
  layout = layout.transposed();
  std::swap(rows, columns);
  std::swap(left, right);
  std::tie(transposeLeft, transposeRight) = std::pair(!transposeRight, !transposeLeft);
}

std::optional<WarpgroupTiles> WarpgroupTiles::of(const FormedProduct &product) {
  constexpr int64_t mostColumns = 256, fewestColumns = 8;
  const Layout &layout = product.layout;
  auto is = [&](Layout::Space space, ArrayRef<std::pair<int64_t, int64_t>> vectors) {
    ArrayRef<uint64_t> basis = layout.basis(space);
    return basis.size() >= vectors.size() && llvm::all_of(llvm::enumerate(vectors), [&](auto each) {
             auto [row, column] = each.value();
             return basis[each.index()] == layout.flat({row, column});
           });
  };
  if (layout.rank() != 2 || !is(Layout::Lane, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}) ||
      !is(Layout::Warp, {{16, 0}, {32, 0}}) || !is(Layout::Register, {{0, 1}, {8, 0}}))
    return std::nullopt;
  WarpgroupTiles tiles;
  tiles.columns = fewestColumns;
  ArrayRef<uint64_t> others = layout.basis(Layout::Register).drop_front(2);
  for (; !others.empty() && others.front() == layout.flat({0, tiles.columns}) && tiles.columns < mostColumns;
       others = others.drop_front())
    tiles.columns *= 2;
  // Other tiles, and those of other warpgroups, begin at multiples of a tile.
  for (uint64_t vector : llvm::concat<const uint64_t>(others, layout.basis(Layout::Warp).drop_front(2)))
    if (layout.coordinate(vector, 0) % rows || layout.coordinate(vector, 1) % tiles.columns)
      return std::nullopt;
  for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += tiles.registersOfTile()) {
    uint64_t origin = layout.at(Layout::Register, reg);
    Tile tile = {layout.coordinate(origin, 0), layout.coordinate(origin, 1), reg};
    if (tile.row < product.rows && tile.column < product.columns)
      tiles.tiles.push_back(tile);
  }
  tiles.columns = std::min(tiles.columns, static_cast<int64_t>(llvm::alignTo(product.columns, fewestColumns)));
  return tiles;
}

/// Whether a tile lies in shared memory as `wgmma` reads it.
static bool liesInBoxes(Value operand) {
  auto type = cast<RankedTensorType>(operand.getType());
  if (*layoutOf(type) != sharedLayout(type.getShape(), /*bytesPerElement=*/2))
    return false;
  std::optional<uint64_t> offset;
  if (auto convert = operand.getDefiningOp<ConvertOp>())
    offset = convert.getOffset();
  else if (auto receive = operand.getDefiningOp<ReceiveOp>())
    offset = receive.getChannel().getDefiningOp<ChannelOp>().getOffset();
  return !offset || *offset % std::min<uint64_t>(llvm::bit_floor<uint64_t>(sharedBytesOf(type)), sharedAlignment) == 0;
}

StringRef stretto::kernel::obstacleToWarpgroups(chunk::DotOp product) {
  FormedProduct formed(product);
  auto left = cast<RankedTensorType>(formed.left.getType());
  Type element = left.getElementType();
  if ((!element.isBF16() && !element.isF16()) || !getElementTypeOrSelf(product.getType()).isF32())
    return "its operands are not of 16 bits and its result of fp32";
  if (!WarpgroupTiles::of(formed) || formed.rows % WarpgroupTiles::rows)
    return "its rows are not a multiple of 64 that four warps divide";
  if (formed.inner <= WarpgroupTiles::inner)
    return "its inner axis is one step, in which nothing is gained";
  if (!inSharedMemory(left)) {
    // `wgmma` takes fragments like `mma`.
    Layout fragments = leftOperandLayout(left.getDimSize(0), left.getDimSize(1), {WarpgroupTiles::warps, 1});
    Layout own = *layoutOf(left);
    bool agree = !formed.transposeLeft && own.basis(Layout::Register) == fragments.basis(Layout::Register);
    if (!agree)
      return "its left operand is in registers, and not in fragments";
  } else if (!liesInBoxes(formed.left)) {
    return "its left operand does not lie in boxes of shared memory";
  }
  if (!inSharedMemory(formed.right.getType()) || !liesInBoxes(formed.right))
    return "its right operand does not lie in boxes of shared memory";
  return "";
}

/// Whether an instruction of four warps leaves so few columns that those of each warp are as fast, and wait for less.
static bool isNarrow(chunk::DotOp product) {
  constexpr int64_t fewColumns = 8;
  return WarpgroupTiles::of(FormedProduct(product))->columns <= fewColumns;
}

/// Moves what scales a tile, to be added to, down to the product, which takes the place of all of it at once: before,
/// the tile itself may have other uses.
static void scaleLate(chunk::DotOp product) {
  Operation *scaling = product.getAddend() ? product.getAddend().getDefiningOp() : nullptr;
  if (!isa_and_nonnull<arith::MulFOp>(scaling) || !scaling->hasOneUse() || scaling->getBlock() != product->getBlock())
    return;
  bool hasFactor = llvm::any_of(scaling->getOperands(), [](Value operand) {
    return isa_and_nonnull<chunk::BroadcastOp, arith::ConstantOp>(operand.getDefiningOp());
  });
  if (hasFactor)
    scaling->moveBefore(product);
}

namespace {
struct SelectProducts : stretto::impl::SelectProductsBase<SelectProducts> {
  using SelectProductsBase::SelectProductsBase;

  void runOnOperation() override {
    FuncOp function = getOperation();
    FailureOr<Chip> target = Chip::named(chip, [&] { return function.emitOpError(); });
    if (failed(target))
      return signalPassFailure();
    WalkResult result = function.walk([&](chunk::DotOp product) {
      auto given = product->getAttrOfType<InstructionAttr>(instructionAttribute);
      if (given && given.getValue() != Instruction::Wgmma)
        return WalkResult::advance();
      StringRef obstacle = target->hasWarpgroups ? obstacleToWarpgroups(product) : "the chip has no such instruction";
      if (given && !obstacle.empty()) {
        product.emitOpError("cannot be formed by wgmma: ") << obstacle;
        return WalkResult::interrupt();
      }
      bool isWide = getElementTypeOrSelf(product.getLeft()).getIntOrFloatBitWidth() > 16;
      bool isOfWarpgroups = obstacle.empty() && (given || !isNarrow(product));
      Instruction instruction = isWide ? Instruction::Fma : isOfWarpgroups ? Instruction::Wgmma : Instruction::Mma;
      product->setAttr(instructionAttribute, InstructionAttr::get(&getContext(), instruction));
      if (instruction == Instruction::Wgmma)
        scaleLate(product);
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
