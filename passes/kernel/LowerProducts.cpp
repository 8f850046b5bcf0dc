//===- LowerProducts.cpp - Matrix products --------------------------------===//
//
// 16-bit operands are multiplied by `mma.m16n8k16`. Every warp forms the fragments of the result that its layout gives
// it; operands come from shared memory by `ldmatrix`, whose 8 x 8 matrices are transposed on the way where the stored
// tile lies the other way round, or the left one from registers. Where `kernel.instruction` says so, four warps form
// tiles of 64 rows together, by `wgmma`, which reads shared memory itself. Wider operands are multiplied number by
// number, in the same layout.
//
//===----------------------------------------------------------------------===//

#include "passes/kernel/FragmentBuilder.h"
#include "passes/kernel/ThreadLowering.h"
#include "passes/kernel/WarpgroupTiles.h"
#include <map>

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static constexpr int64_t innerOfFragment = 16;

namespace {

/// The registers of a result beside those within one fragment: where the fragments begin.
struct Fragments {
  SmallVector<int64_t> rows, columns;   // distinct origins
  SmallVector<SmallVector<int64_t>> at; // first register of the fragment [row][column]

  explicit Fragments(const FormedProduct &product) {
    const Layout &layout = product.layout;
    constexpr int64_t registersOfFragment = 4;
    llvm::MapVector<int64_t, llvm::MapVector<int64_t, int64_t>> origins;
    for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += registersOfFragment) {
      uint64_t origin = layout.at(Layout::Register, reg);
      int64_t row = layout.coordinate(origin, 0), column = layout.coordinate(origin, 1);
      if (row < product.rows && column < product.columns)
        origins[row][column] = reg;
    }
    for (auto &[row, inRow] : origins) {
      rows.push_back(row);
      SmallVector<int64_t> &registers = at.emplace_back();
      for (auto &[column, reg] : inRow)
        registers.push_back(reg);
    }
    for (auto &[column, reg] : origins.front().second)
      columns.push_back(column);
  }
};

/// What warps contribute to one side of a result.
SmallVector<int64_t> warpsOn(const Layout &layout, unsigned side) {
  SmallVector<int64_t> result;
  for (uint64_t vector : layout.basis(Layout::Warp))
    result.push_back(layout.coordinate(vector, side));
  return result;
}
} // namespace

/// The four words of the fragment of a left operand that begins at an element, from a thread's registers.
static SmallVector<Value> wordsOfFragment(ThreadBuilder &b, const Layout &layout, const Registers &source, int64_t row,
                                          int64_t inner) {
  constexpr uint64_t registersOfFragment = 8;
  SmallVector<Value> words;
  for (int64_t reg = 0; reg < layout.size(Layout::Register); ++reg)
    if (layout.at(Layout::Register, reg) == layout.flat({row, inner}))
      for (uint64_t pair = reg; pair < reg + registersOfFragment; pair += 2)
        words.push_back(LLVM::BitcastOp::create(b, b.getI32Type(), b.pack({source[pair], source[pair + 1]})));
  return words;
}

/// Zeros for what is in no tile: an instruction takes whole fragments.
static Registers whole(ThreadBuilder &b, Registers registers, Type element) {
  for (Value &value : registers)
    if (!value)
      value = b.zero(element);
  return registers;
}

/// Zeros for the numbers of a left operand behind its inner axis, too, which would be multiplied.
static Registers wholeOperand(ThreadBuilder &b, Registers registers, RankedTensorType type) {
  Layout layout = *layoutOf(type);
  Value zero = b.zero(type.getElementType());
  for (auto [reg, value] : llvm::enumerate(registers))
    if (Value exists = value ? b.isInside(layout, type.getShape(), reg) : Value())
      value = b.select(exists, value, zero);
  return whole(b, std::move(registers), type.getElementType());
}

namespace {
/// The fragments of a left operand: four matrices, of rows, of rows 8 on, and of both again 8 inner elements on.
class LeftFragments {
public:
  LeftFragments(ThreadBuilder &b, FragmentBuilder &build, RankedTensorType type) : b(b), build(build), type(type) {}

  void takeShared(Operand operand, ArrayRef<int64_t> warps) {
    shared.emplace(std::move(operand));
    addresses.emplace(build.matrices(*shared, warps, {8, 0}, {0, 8}));
  }
  void takeRegisters(const Registers &source) { registers = wholeOperand(b, source, type); }

  SmallVector<Value> at(int64_t row, int64_t step) {
    if (shared)
      return build.load(addresses->at(shared->flat(row, step)), shared->innerIsRows, 4);
    return llvm::map_to_vector(wordsOfFragment(b, *layoutOf(type), registers, row, step),
                               [&](Value word) { return build.operand(word); });
  }

private:
  ThreadBuilder &b;
  FragmentBuilder &build;
  RankedTensorType type;
  std::optional<Operand> shared;
  std::optional<Addresses> addresses;
  Registers registers;
};
} // namespace

/// Whether lanes have the result as `mma` leaves it.
static bool isInFragments(const Layout &layout) {
  ArrayRef<uint64_t> lanes = layout.basis(Layout::Lane), registers = layout.basis(Layout::Register);
  return layout.rank() == 2 && registers.size() > 1 && registers[0] == layout.flat({0, 1}) &&
         registers[1] == layout.flat({8, 0}) && lanes[0] == layout.flat({0, 2}) && lanes[1] == layout.flat({0, 4}) &&
         lanes[2] == layout.flat({1, 0}) && lanes[3] == layout.flat({2, 0}) && lanes[4] == layout.flat({4, 0});
}

LogicalResult ThreadLowering::lowerProduct(chunk::DotOp op) {
  if (isOfWarpgroups(op))
    return multiplyTiles(op);
  bool isNarrow = getElementTypeOrSelf(op.getLeft()).getIntOrFloatBitWidth() == 16;
  if (isNarrow && !isInFragments(FormedProduct(op).layout))
    return op.emitOpError("leaves ") << op.getType() << ", expected the fragments of a matrix product";
  Type element = getElementTypeOrSelf(op.getType());
  if (op.getAddend())
    registers[op.getResult()] = Registers(registersOf(op.getAddend()));
  else
    define(op.getResult(), [zero = b.zero(element)](uint64_t) { return zero; });
  Registers sums = registersOf(op.getResult());
  if (isNarrow) {
    sums = whole(b, std::move(sums), element);
    multiplyFragments(op, sums);
  } else {
    multiplyNumbers(op, sums);
  }
  define(op.getResult(), [&](uint64_t reg) { return sums[reg]; });
  return success();
}

//===----------------------------------------------------------------------===//
// Warpgroups
//===----------------------------------------------------------------------===//

namespace {
/// An operand in shared memory as `wgmma` reads it: its matrix descriptor, and how far from there others begin. Both
/// count in pieces of 16 bytes.
class Box {
public:
  Box(ThreadBuilder &b, Operand operand, const Layout &result, unsigned side) : b(b), operand(std::move(operand)) {
    for (uint64_t vector : result.basis(Layout::Warp))
      ofWarps.push_back(offset(result.coordinate(vector, side), 0));
    // Within a warpgroup the instruction divides the rows.
    std::fill_n(ofWarps.begin(), bitsToCount(WarpgroupTiles::warps), 0);
  }

  int64_t offset(int64_t outer, int64_t inner) const { return pieces(operand.flat(outer, inner)); }

  /// Bits 0 to 13 are the address, 16 to 29 and 32 to 45 the distances of boxes that the outer axis reaches, where it
  /// is that of columns, and of groups of eight rows; the last two say how many bytes wide the exchange of pieces is.
  Value descriptor() {
    constexpr int64_t pieceBits = 4, boxBits = 16, wordBits = 32, exchangeBits = 30, banks = 128;
    const Layout &layout = operand.tile.getLayout();
    int64_t width = std::min(layout.side(1) * operand.tile.elementBytes(), banks), columns = width / 2;
    int64_t boxes = columns < layout.side(1) ? pieces(layout.flat({0, columns})) : 1;
    int64_t groups = pieces(layout.flat({8, 0})), exchange = banks / width == 4 ? 3 : banks / width;
    // Addresses of shared memory have 18 bits. What follows from constants alone is the upper word.
    Value start = LLVM::PtrToIntOp::create(b, b.getI32Type(), operand.tile.base);
    start = arith::ShRUIOp::create(b, start, b.i32(pieceBits));
    if (Value ofWarp = b.linear(b.warp, ofWarps))
      start = b.add(start, ofWarp);
    Value lower = b.extend(b.add(start, boxes << boxBits));
    return arith::OrIOp::create(b, lower, b.i64((groups | exchange << exchangeBits) << wordBits));
  }

private:
  int64_t pieces(uint64_t flat) const { return operand.tile.byteOffset(flat) / 16; }

  ThreadBuilder &b;
  Operand operand;
  SmallVector<uint64_t> ofWarps;
};
} // namespace

LogicalResult ThreadLowering::multiplyTiles(chunk::DotOp op) {
  if (StringRef obstacle = obstacleToWarpgroups(op); !obstacle.empty())
    return op.emitOpError("cannot be formed by wgmma: ") << obstacle;
  FormedProduct formed(op);
  auto leftType = cast<RankedTensorType>(formed.left.getType());
  WarpgroupTiles tiles = *WarpgroupTiles::of(formed);

  // The left operand in shared memory, or words of it for the rows of a tile and a step.
  std::optional<Box> left;
  Registers leftRegisters, words;
  if (inSharedMemory(leftType))
    left.emplace(b, Operand{sharedTiles.find(formed.left)->second, formed.transposeLeft}, formed.layout, 0);
  else
    leftRegisters = wholeOperand(b, registersOf(formed.left), leftType);
  std::map<std::pair<int64_t, int64_t>, int64_t> firstWords;
  auto firstWord = [&](int64_t row, int64_t step) {
    auto [known, isNew] = firstWords.try_emplace({row, step}, words.size());
    if (isNew)
      llvm::append_range(words, wordsOfFragment(b, *layoutOf(leftType), leftRegisters, row, step));
    return known->second;
  };
  Box right(b, {sharedTiles.find(formed.right)->second, !formed.transposeRight}, formed.layout, 1);

  Registers before, sums;
  if (op.getAddend())
    before = whole(b, registersOf(op.getAddend()), b.getF32Type());
  SmallVector<int64_t> leftOffsets, rightOffsets;
  for (const WarpgroupTiles::Tile &tile : tiles.tiles) {
    if (op.getAddend())
      llvm::append_range(sums, ArrayRef(before).slice(tile.firstRegister, tiles.registersOfTile()));
    for (int64_t step = 0; step < formed.inner; step += WarpgroupTiles::inner) {
      leftOffsets.push_back(left ? left->offset(tile.row, step) : firstWord(tile.row, step));
      rightOffsets.push_back(right.offset(tile.column, step));
    }
  }
  SmallVector<Type> types(tiles.tiles.size() * tiles.registersOfTile(), b.getF32Type());
  auto product = WarpgroupProductOp::create(b, types, left ? left->descriptor() : Value(), words, right.descriptor(),
                                            sums, leftType.getElementType(), tiles.columns, tiles.tiles.size(),
                                            leftOffsets, rightOffsets, formed.transposeLeft, !formed.transposeRight);
  started.push_back(op.getResult());
  registers[op.getResult()] = spread(op, product.getResults());
  if (!runsBesideOthers(op))
    registers[op.getResult()] = finished(op);
  return success();
}

Registers ThreadLowering::spread(chunk::DotOp op, ValueRange numbers) {
  FormedProduct formed(op);
  WarpgroupTiles tiles = *WarpgroupTiles::of(formed);
  Registers result(formed.layout.size(Layout::Register));
  for (const WarpgroupTiles::Tile &tile : tiles.tiles) {
    llvm::copy(numbers.take_front(tiles.registersOfTile()), result.begin() + tile.firstRegister);
    numbers = numbers.drop_front(tiles.registersOfTile());
  }
  return result;
}

Registers ThreadLowering::finished(chunk::DotOp op) {
  // All that were started later may still be under way; those before are done, too.
  auto *place = llvm::find(started, op.getResult());
  int64_t later = place == started.end() ? started.size() : started.end() - place - 1;
  started.erase(started.begin(), place == started.end() ? started.begin() : place + 1);
  Registers numbers;
  llvm::copy_if(registersOf(op.getResult()), std::back_inserter(numbers),
                [](Value number) { return number != nullptr; });
  auto wait = WarpgroupWaitOp::create(b, ValueRange(numbers).getTypes(), numbers, later);
  Registers result = spread(op, wait.getResults());
  define(op.getResult(), [&](uint64_t reg) { return result[reg]; });
  return registersOf(op.getResult());
}

void ThreadLowering::lowerFinish(FinishOp op) {
  registers[op.getResult()] = finished(op.getProduct().getDefiningOp<chunk::DotOp>());
}

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

void ThreadLowering::multiplyFragments(chunk::DotOp op, Registers &sums) {
  FormedProduct formed(op);
  auto leftType = cast<RankedTensorType>(formed.left.getType());
  Fragments fragments(formed);
  FragmentBuilder build(b, leftType.getElementType());

  LeftFragments left(b, build, leftType);
  if (inSharedMemory(leftType))
    left.takeShared({sharedTiles.find(formed.left)->second, formed.transposeLeft}, warpsOn(formed.layout, 0));
  else
    left.takeRegisters(registersOf(formed.left));

  // The right operand's: columns, the same 8 inner elements on, and both again for the next fragment's columns.
  Operand right = {sharedTiles.find(formed.right)->second, !formed.transposeRight};
  bool inPairs = fragments.columns.size() > 1;
  Addresses rightAddresses =
      build.matrices(right, warpsOn(formed.layout, 1), {0, 8}, {inPairs ? fragments.columns[1] : 0, 0});

  // Instructions that add to the same fragment wait for each other. Where a warp has few fragments it adds up those of
  // every other step by themselves, and to what was there in the end.
  constexpr size_t fewFragments = 2;
  constexpr int64_t fewestSteps = 4;
  bool isApart =
      fragments.rows.size() * fragments.columns.size() <= fewFragments && formed.inner >= fewestSteps * innerOfFragment;
  Value zero = b.zero(getElementTypeOrSelf(op.getType()));
  Registers given = sums, others(sums.size(), zero);
  if (isApart)
    sums.assign(sums.size(), zero);
  for (int64_t step = 0; step < formed.inner; step += innerOfFragment) {
    Registers &target = isApart && step / innerOfFragment % 2 ? others : sums;
    SmallVector<SmallVector<Value>> lefts;
    for (int64_t row : fragments.rows)
      lefts.push_back(left.at(row, step));
    for (size_t column = 0; column < fragments.columns.size(); column += 2) {
      SmallVector<Value> rights = build.load(rightAddresses.at(right.flat(fragments.columns[column], step)),
                                             right.innerIsRows, inPairs ? 4 : 2);
      for (size_t next = column; next < std::min(column + 2, fragments.columns.size()); ++next)
        for (size_t row = 0; row < fragments.rows.size(); ++row)
          build.multiply(lefts[row], ArrayRef(rights).slice(2 * (next - column), 2),
                         MutableArrayRef(target).slice(fragments.at[row][next], 4));
    }
  }
  if (isApart)
    for (auto [sum, other, before] : llvm::zip_equal(sums, others, given)) {
      sum = arith::AddFOp::create(b, sum, other);
      sum = op.getAddend() ? arith::AddFOp::create(b, sum, before).getResult() : sum;
    }
}

LogicalResult ThreadLowering::lowerMatvec(MatvecOp op) {
  constexpr int64_t numbersOfFragment = 4, halfOfInner = 8, otherRows = 8;
  auto matrix = cast<RankedTensorType>(op.getMatrix().getType()),
       vector = cast<RankedTensorType>(op.getVector().getType());
  Layout layout = *layoutOf(op.getType()), given = *layoutOf(vector);
  int64_t rows = cast<RankedTensorType>(op.getType()).getDimSize(0), warps = function.getWarps();
  WarpGrid grid = WarpGrid::ofMatvec(rows, op.getTranspose(), warps);
  bool isOfFragments = inSharedMemory(matrix) ||
                       (!op.getTranspose() && *layoutOf(matrix) == leftOperandLayout(rows, matrix.getDimSize(1), grid));
  if (!isOfFragments || given != rightVectorLayout(vector.getDimSize(0), warps) ||
      layout != matvecLayout(rows, op.getTranspose(), warps))
    return op.emitOpError("multiplies ") << matrix << " by " << vector << " to " << op.getType()
                                         << ", expected the places of fragments that stretto-assign-layouts gives them";
  FragmentBuilder build(b, matrix.getElementType());
  LeftFragments left(b, build, matrix);
  if (inSharedMemory(matrix))
    left.takeShared({sharedTiles.find(op.getMatrix())->second, op.getTranspose()}, warpsOn(layout, 0));
  else
    left.takeRegisters(registersOf(op.getMatrix()));
  const Registers &numbers = registersOf(op.getVector());
  auto registerOf = [](const Layout &of, int64_t element) {
    uint64_t reg = 0;
    while (of.at(Layout::Register, reg) != static_cast<uint64_t>(element))
      ++reg;
    return reg;
  };
  auto wordAt = [&](int64_t element) {
    uint64_t reg = registerOf(given, element);
    Value word = LLVM::BitcastOp::create(b, b.getI32Type(), b.pack({numbers[reg], numbers[reg + 1]}));
    return build.operand(word);
  };

  // All columns of a product are the same.
  Registers sums(layout.size(Layout::Register));
  for (auto [reg, sum] : llvm::enumerate(sums)) {
    auto row = static_cast<int64_t>(layout.at(Layout::Register, reg));
    if (row % innerOfFragment)
      continue;
    SmallVector<Value> fragment(numbersOfFragment, b.zero(b.getF32Type()));
    for (int64_t step = 0; step < vector.getDimSize(0); step += innerOfFragment)
      build.multiply(left.at(row, step), {wordAt(step), wordAt(step + halfOfInner)}, fragment);
    sum = fragment[0];
    sums[registerOf(layout, row + otherRows)] = fragment[numbersOfFragment / 2];
  }
  define(op.getResult(), [&](uint64_t reg) { return sums[reg]; });
  return success();
}

/// Keeps the assembler from unrolling a loop further, which it does until it spills what outlives the loop.
static void keepRolled(scf::ForOp loop) {
  MLIRContext *context = loop.getContext();
  auto unroll = LLVM::LoopUnrollAttr::get(context, /*disable=*/BoolAttr::get(context, true), {}, {}, {}, {}, {}, {});
  auto annotation = LLVM::LoopAnnotationAttr::get(context, {}, {}, {}, unroll, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
                                                  /*parallelAccesses=*/{});
  loop->setAttr("loop_annotation", annotation); // of the branch that the loop becomes
}

void ThreadLowering::multiplyNumbers(chunk::DotOp op, Registers &sums) {
  // Products of one step of the loop: enough of them to wait for their operands, also where a thread has few sums.
  constexpr int64_t together = 4, fewSums = 4;
  bool hasFewSums = llvm::count_if(sums, [](Value sum) { return sum != nullptr; }) <= fewSums;
  const int64_t unrolled = hasFewSums ? 4 * together : together;
  auto resultType = cast<RankedTensorType>(op.getType()), leftType = cast<RankedTensorType>(op.getLeft().getType());
  Layout layout = *layoutOf(resultType);
  Type element = resultType.getElementType();
  int64_t inner = leftType.getDimSize(op.getTransposeLeft() ? 0 : 1);
  Operand left = {sharedTiles.find(op.getLeft())->second, op.getTransposeLeft()};
  Operand right = {sharedTiles.find(op.getRight())->second, !op.getTransposeRight()};

  // For each operand the thread's rows, or columns, of the result, and their addresses at inner element 0.
  struct Side {
    const Operand &operand;
    SmallVector<int64_t> outer;
    SmallVector<unsigned> indexOfRegister; // which of `outer` a register of the result needs
    Value threadOffset;
    SmallVector<uint64_t> innerOffsets;
  };
  auto prepare = [&](const Operand &operand, unsigned side) {
    Side result{operand, {}, {}, {}, operand.tile.byteOffsetsOf(operand.innerIsRows ? 0 : 1)};
    for (int64_t reg = 0; reg < layout.size(Layout::Register); ++reg) {
      int64_t outer = layout.coordinate(layout.at(Layout::Register, reg), side);
      auto *found = llvm::find(result.outer, outer);
      result.indexOfRegister.push_back(found - result.outer.begin());
      if (found == result.outer.end())
        result.outer.push_back(outer);
    }
    auto offsetsOf = [&](Layout::Space space) {
      return llvm::map_to_vector(layout.basis(space), [&](uint64_t vector) {
        return operand.tile.byteOffset(operand.flat(layout.coordinate(vector, side), 0));
      });
    };
    result.threadOffset = b.linear(offsetsOf(Layout::Lane), offsetsOf(Layout::Warp));
    return result;
  };
  Side sides[] = {prepare(left, 0), prepare(right, 1)};

  SmallVector<Value> initial;
  for (Value sum : sums)
    if (sum)
      initial.push_back(sum);
  auto loop = scf::ForOp::create(b, b.i32(0), b.i32(llvm::alignTo(inner, unrolled)), b.i32(unrolled), initial);
  if (hasFewSums)
    keepRolled(loop);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value step = loop.getInductionVar();
    SmallVector<Value> next(loop.getRegionIterArgs());
    // Elements of both operands: [side][outer][inner].
    SmallVector<SmallVector<Value>> elements[2];
    for (auto [side, into] : llvm::zip(sides, elements)) {
      Value offset = b.combine(side.threadOffset, b.linear(step, side.innerOffsets));
      Type type = side.operand.tile.type.getElementType();
      auto at = [&](int64_t outer, int64_t within) {
        Value bytes = b.bitXor(offset, side.operand.tile.byteOffset(side.operand.flat(outer, within)));
        return b.advance(side.operand.tile.base, bytes);
      };
      for (int64_t outer : side.outer) {
        SmallVector<Value> &loaded = into.emplace_back();
        if (!side.operand.innerIsRows) { // neighbours in memory
          for (int64_t within = 0; within < unrolled; within += together)
            llvm::append_range(loaded, b.load(at(outer, within), type, together));
          continue;
        }
        for (int64_t within = 0; within < unrolled; ++within)
          loaded.push_back(b.load(at(outer, within), type, 1)[0]);
      }
    }
    for (int64_t within = 0; within < unrolled; ++within) {
      size_t live = 0;
      for (auto [reg, sum] : llvm::enumerate(sums)) {
        if (!sum)
          continue;
        Value product = arith::MulFOp::create(b, elements[0][sides[0].indexOfRegister[reg]][within],
                                              elements[1][sides[1].indexOfRegister[reg]][within]);
        if (product.getType() != element)
          product = arith::ExtFOp::create(b, element, product);
        next[live] = arith::AddFOp::create(b, next[live], product);
        ++live;
      }
    }
    scf::YieldOp::create(b, next);
  }
  ValueRange results = loop.getResults();
  for (Value &sum : sums)
    if (sum) {
      sum = results.front();
      results = results.drop_front();
    }
}
