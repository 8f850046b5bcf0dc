//===- LowerInverse.cpp - The inverse of a unit triangular matrix ---------===//
//
// The matrix is divided into blocks of 16 rows and columns. Of each block of the diagonal a lane finds a column of the
// inverse by substitution. Those below follow from products on tensor cores, row of blocks by row of blocks, each in a
// warp of its own: from T (1 + L) = 1,
//
//   T_ij = -(sum_{j < k <= i} T_ik L_kj) T_jj
//
// where what is on the right of a row is known before what is on its left, and of other rows T_jj alone is wanted.
// Operands are rounded to bf16 together with what rounding takes from them, so that three products of the four leave
// out no more than rounding to 16 bits does. The result of a product is in the places of a left operand, so that the
// row of a warp stays in its registers.
//
//===----------------------------------------------------------------------===//

#include "passes/kernel/FragmentBuilder.h"
#include "passes/kernel/ThreadLowering.h"
#include <map>

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static constexpr int64_t side = InverseTiles::blockRows;
/// What a thread has of a block: of each half of its columns two rows of two neighbouring columns.
static constexpr int64_t registersOfBlock = 8, registersOfFragment = 4;

namespace {
/// A block as an operand, in words of two numbers: rounded, and what rounding takes from it.
struct Parts {
  SmallVector<Value> rounded, rest;
};

class BlockBuilder {
public:
  explicit BlockBuilder(ThreadBuilder &b) : b(b), narrow(b.getBF16Type()), build(b, narrow) {}

  /// Two neighbouring numbers at a time.
  Parts split(ArrayRef<Value> numbers) {
    Parts parts;
    for (size_t pair = 0; pair < numbers.size(); pair += 2) {
      Registers rounded, rest;
      for (Value number : numbers.slice(pair, 2)) {
        rounded.push_back(arith::TruncFOp::create(b, narrow, number));
        Value lost = arith::SubFOp::create(b, number, arith::ExtFOp::create(b, b.getF32Type(), rounded.back()));
        rest.push_back(arith::TruncFOp::create(b, narrow, lost));
      }
      parts.rounded.push_back(word(rounded));
      parts.rest.push_back(word(rest));
    }
    return parts;
  }

  Registers join(const Parts &parts) {
    Registers numbers;
    for (auto [rounded, rest] : llvm::zip_equal(parts.rounded, parts.rest))
      for (auto [first, second] : llvm::zip_equal(numbersOf(rounded), numbersOf(rest)))
        numbers.push_back(arith::AddFOp::create(b, first, second));
    return numbers;
  }

  /// Adds the product of two blocks: whole numbers last.
  void multiply(const Parts &left, const Parts &right, Registers &sums) {
    using Pair = std::pair<ArrayRef<Value>, ArrayRef<Value>>;
    for (auto [ofLeft, ofRight] :
         {Pair(left.rest, right.rounded), Pair(left.rounded, right.rest), Pair(left.rounded, right.rounded)})
      for (int64_t half = 0; half < 2; ++half)
        build.multiply(ofLeft, ofRight.slice(2 * half, 2),
                       MutableArrayRef(sums).slice(half * registersOfFragment, registersOfFragment));
  }

  FragmentBuilder &fragments() { return build; }

private:
  Value word(ValueRange numbers) { return LLVM::BitcastOp::create(b, b.getI32Type(), b.pack(numbers)); }
  Registers numbersOf(Value word) {
    Registers numbers = b.unpack(LLVM::BitcastOp::create(b, VectorType::get(2, narrow), word));
    for (Value &number : numbers)
      number = b.widen(number, b.getF32Type());
    return numbers;
  }

  ThreadBuilder &b;
  Type narrow;
  FragmentBuilder build;
};

/// A tile with blocks in shared memory as products want them: two parts of a block, from one address on each.
class Blocks {
public:
  Blocks(BlockBuilder &build, Operand operand, std::pair<int64_t, int64_t> first, std::pair<int64_t, int64_t> second)
      : build(build), operand(std::move(operand)),
        addresses(build.fragments().matrices(this->operand, {}, first, second)) {}

  Parts load(std::pair<int64_t, int64_t> rounded, std::pair<int64_t, int64_t> rest) {
    auto at = [&](std::pair<int64_t, int64_t> origin) {
      return build.fragments().load(addresses.at(operand.flat(origin.first, origin.second)), operand.innerIsRows, 4);
    };
    return {at(rounded), at(rest)};
  }

private:
  BlockBuilder &build;
  Operand operand;
  Addresses addresses;
};
} // namespace

static ArrayRef<Value> blockOf(const Registers &row, int64_t column) {
  return ArrayRef(row).slice(column * registersOfBlock, registersOfBlock);
}

LogicalResult ThreadLowering::lowerInverse(chunk::InverseOp op) {
  RankedTensorType type = op.getType();
  Layout layout = *layoutOf(type);
  WarpGrid grid = WarpGrid::of(type.getDimSize(0), type.getDimSize(1), function.getWarps());
  if (!type.getElementType().isF32() || layout != leftOperandLayout(type.getDimSize(0), type.getDimSize(1), grid))
    return op.emitOpError("inverts ") << type
                                      << ", expected f32 in rows of blocks as stretto-assign-layouts places them";
  InverseTiles tiles(type);
  int64_t blocks = tiles.blocks, groups = blocks / grid.rows, registersOfRow = blocks * registersOfBlock;
  Value base = scratchOf(op);
  SharedTile parts = scratchTile(base, tiles.parts);
  SharedTile inverses = scratchTile(b.advance(base, sharedBytesOf(tiles.parts)), tiles.inverses);
  Value diagonal = b.advance(base, sharedBytesOf(tiles.parts) + sharedBytesOf(tiles.inverses));
  Value ofWarp = arith::AndIOp::create(b, b.warp, b.i32(grid.rows - 1));
  BlockBuilder build(b);
  // Whole matrices, where the chip stores those of other tiles.
  bool storesMatrices =
      function.walk([](StoreOp store) { return WalkResult(failure(store.getMatrices())); }).wasInterrupted();

  // Each row of blocks belongs to the warps of one number, of which the code knows it.
  auto ifOwn = [&](int64_t row, TypeRange types, function_ref<Registers()> body, const Registers &otherwise) {
    if (grid.rows == 1)
      return body();
    Value isOwn = b.compare(arith::CmpIPredicate::eq, ofWarp, b.i32(row % grid.rows));
    auto own = scf::IfOp::create(b, types, isOwn, /*withElseRegion=*/!types.empty());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(own.thenBlock());
    Registers found = body();
    if (types.empty())
      return Registers();
    scf::YieldOp::create(b, found);
    b.setInsertionPointToStart(own.elseBlock());
    scf::YieldOp::create(b, otherwise);
    return Registers(own.getResults());
  };

  auto storeRow = [&](int64_t row) {
    Registers numbers;
    for (int64_t reg = 0; reg < registersOfRow; ++reg)
      numbers.push_back(numberOrZero(registersOf(op.getMatrix()), type, row / grid.rows * registersOfRow + reg));
    const Layout &stored = parts.getLayout();
    auto flat = [&](int64_t r, int64_t column) { return stored.flat({r, column}); };
    SmallVector<uint64_t> lanes = {flat(0, 2), flat(0, 4), flat(1, 0), flat(2, 0), flat(4, 0)};
    if (storesMatrices)
      lanes = {flat(1, 0), flat(2, 0), flat(4, 0), flat(8, 0), flat(0, 8)};
    Addresses addresses(b, parts, lanes, {});
    auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
    auto store = [&](ArrayRef<Value> words, int64_t r, int64_t column) {
      if (storesMatrices) {
        NVVM::StMatrixOp::create(b, addresses.at(flat(r, column)), words, NVVM::MMALayout::row, shape,
                                 NVVM::LdStMatrixEltType::B16);
        return;
      }
      for (auto [index, word] : llvm::enumerate(words))
        b.store(addresses.at(flat(r + index % 2 * 8, column + index / 2 * 8)), word);
    };
    for (int64_t column = 0; column < row; ++column) {
      Parts block = build.split(blockOf(numbers, column));
      store(block.rounded, row * side, column * side);
      store(block.rest, column * side, row * side);
    }
    // Columns of the block of the diagonal, one after another.
    Layout block = leftOperandLayout(side, side, {1, 1});
    constexpr int64_t elementBytes = 4;
    auto place = [&](uint64_t flat) {
      return (block.coordinate(flat, 1) * InverseTiles::columnStride + block.coordinate(flat, 0)) * elementBytes;
    };
    Value ofLane = b.add(b.mul(arith::AndIOp::create(b, b.lane, b.i32(3)), place(block.flat({0, 2}))),
                         b.mul(arith::ShRUIOp::create(b, b.lane, b.i32(2)), elementBytes));
    Value own = b.advance(b.advance(diagonal, row * tiles.bytesOfBlock()), ofLane);
    for (auto [reg, number] : llvm::enumerate(blockOf(numbers, row)))
      b.store(b.advance(own, place(block.at(Layout::Register, reg))), number);
  };

  auto invertBlock = [&](int64_t group) {
    constexpr int64_t together = 4;
    Type f32 = b.getF32Type();
    Value row = b.add(ofWarp, group * grid.rows);
    Value matrix = b.advance(diagonal, b.mul(row, tiles.bytesOfBlock()));
    Value column = arith::AndIOp::create(b, b.lane, b.i32(side - 1));
    Registers sums;
    for (int64_t r = 0; r < side; ++r)
      sums.push_back(b.select(b.compare(arith::CmpIPredicate::eq, column, b.i32(r)), b.real(f32, 1), b.zero(f32)));
    for (int64_t done = 0; done + 1 < side; ++done)
      for (int64_t r = llvm::alignDown(done + 1, together); r < side; r += together) {
        Registers weights = b.load(b.advance(matrix, (done * InverseTiles::columnStride + r) * 4), f32, together);
        for (int64_t own = std::max(r, done + 1); own < r + together; ++own)
          sums[own] = arith::SubFOp::create(b, sums[own], arith::MulFOp::create(b, weights[own - r], sums[done]));
      }
    // Half of the lanes store what is rounded, the others what rounding takes: a row of the tile each.
    Parts found = build.split(sums);
    Value isRest = b.compare(arith::CmpIPredicate::uge, b.lane, b.i32(side));
    Registers words;
    for (auto [rounded, rest] : llvm::zip_equal(found.rounded, found.rest))
      words.push_back(b.select(isRest, rest, rounded));
    const Layout &stored = inverses.getLayout();
    SmallVector<uint64_t> rows, columns;
    for (int64_t step = 1; step < 2 * side; step *= 2)
      rows.push_back(stored.flat({step, 0}));
    for (int64_t step = 1; step < grid.rows; step *= 2)
      columns.push_back(stored.flat({0, step * side}));
    Addresses addresses(b, inverses, rows, columns);
    for (int64_t half = 0; half < 2; ++half)
      b.store(addresses.at(stored.flat({0, group * grid.rows * side + half * side / 2})),
              ArrayRef(words).slice(half * together, together));
  };

  {
    // Of several warps that have the same one stores it.
    OpBuilder::InsertionGuard guard(b);
    if (Value isFirst = b.isFirstCopy(layout))
      b.setInsertionPointToStart(scf::IfOp::create(b, isFirst).thenBlock());
    for (int64_t row = 0; row < blocks; ++row)
      ifOwn(row, TypeRange(), [&] { return storeRow(row), Registers(); }, {});
    NVVM::SyncWarpOp::create(b, b.i32(-1));
    for (int64_t group = 0; group < groups; ++group)
      invertBlock(group);
  }
  b.barrier();

  auto invertRow = [&](int64_t row) {
    // Right operands: the next eight inner elements, then the next eight columns; left ones: rows first.
    Blocks below(build, {parts, /*innerIsRows=*/true}, {0, 8}, {8, 0}),
        rightInverses(build, {inverses, /*innerIsRows=*/false}, {0, 8}, {8, 0}),
        leftInverses(build, {inverses, /*innerIsRows=*/true}, {8, 0}, {0, 8});
    Registers numbers(registersOfRow, b.zero(b.getF32Type()));
    auto leave = [&](int64_t column, const Registers &block) {
      llvm::copy(block, numbers.begin() + column * registersOfBlock);
    };
    std::map<int64_t, Parts> known = {{row, leftInverses.load({row * side, 0}, {row * side, side})}};
    leave(row, build.join(known[row]));
    for (int64_t column = row - 1; column >= 0; --column) {
      Registers sums(registersOfBlock, b.zero(b.getF32Type())), block = sums;
      for (int64_t other = row; other > column; --other)
        build.multiply(known[other], below.load({column * side, other * side}, {other * side, column * side}), sums);
      for (Value &sum : sums)
        sum = arith::NegFOp::create(b, sum);
      build.multiply(build.split(sums), rightInverses.load({0, column * side}, {side, column * side}), block);
      leave(column, block);
      if (column > 0)
        known[column] = build.split(block);
    }
    return numbers;
  };
  Registers result;
  for (int64_t group = 0; group < groups; ++group) {
    Registers row(registersOfRow, b.zero(b.getF32Type()));
    SmallVector<Type> types(registersOfRow, b.getF32Type());
    for (int64_t own = group * grid.rows; own < (group + 1) * grid.rows; ++own)
      row = ifOwn(own, types, [&] { return invertRow(own); }, row);
    llvm::append_range(result, row);
  }
  define(op.getResult(), [&](uint64_t reg) { return result[reg]; });
  return success();
}
