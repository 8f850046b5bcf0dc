//===- LowerExchanges.cpp - Elements that move between threads ------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Matchers.h"
#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

//===----------------------------------------------------------------------===//
// Conversions
//===----------------------------------------------------------------------===//

namespace {
/// Neighbouring elements that a thread sets aside in one access, and where they lie from its place on.
struct Piece {
  int64_t first, count, bytes;
};
} // namespace

/// The pieces of so many elements, of at most 16 bytes. Those of a thread lie `unit` bytes apart.
static SmallVector<Piece> piecesOf(int64_t count, Type element, int64_t unit) {
  int64_t elementBytes = element.getIntOrFloatBitWidth() / 8, together = 16 / elementBytes;
  SmallVector<Piece> pieces;
  for (int64_t first = 0; first < count;) {
    int64_t inUnit = first % together, left = std::min(together - inUnit, count - first);
    auto taken = static_cast<int64_t>(llvm::bit_floor<uint64_t>(left));
    pieces.push_back({first, taken, first / together * unit + inUnit * elementBytes});
    first += taken;
  }
  return pieces;
}

Value ThreadLowering::placeAside(SetAsideOp op) {
  Value thread = b.add(b.mul(b.warp, b.i32(lanesOfWarp)), b.lane);
  return b.advance(b.advance(shared, static_cast<int64_t>(*op.getOffset())), b.extend(b.mul(thread, b.i32(16))));
}

void ThreadLowering::lowerSetAside(SetAsideOp op) {
  Registers live;
  llvm::copy_if(registersOf(op.getOperand()), std::back_inserter(live), [](Value value) { return value != nullptr; });
  Value place = placeAside(op);
  for (auto [first, count, bytes] : piecesOf(live.size(), getElementTypeOrSelf(op.getOperand()), 16 * threadsOfRole()))
    b.store(b.advance(place, bytes), ArrayRef(live).slice(first, count));
  Registers tile = registersOf(op.getOperand());
  registers[op.getResult()] = std::move(tile);
}

void ThreadLowering::lowerTakeBack(TakeBackOp op) {
  Type element = getElementTypeOrSelf(op.getOperand());
  Registers tile = registersOf(op.getOperand());
  SmallVector<Value *> live;
  for (Value &value : tile)
    if (value)
      live.push_back(&value);
  Value place = placeAside(op.getOperand().getDefiningOp<SetAsideOp>());
  for (auto [first, count, bytes] : piecesOf(live.size(), element, 16 * threadsOfRole()))
    for (auto [index, value] : llvm::enumerate(b.load(b.advance(place, bytes), element, count)))
      *live[first + index] = value;
  registers[op.getResult()] = std::move(tile);
}

void ThreadLowering::lowerConvert(ConvertOp op) {
  auto source = cast<RankedTensorType>(op.getOperand().getType()), target = cast<RankedTensorType>(op.getType());
  if (inSharedMemory(target)) {
    int64_t ofGroup = group ? group * bytesOfGroup(sharedBytesOf(target)) : 0;
    SharedTile tile(target, b.advance(shared, static_cast<int64_t>(*op.getOffset()) + ofGroup));
    if (op.getMatrices())
      matricesToShared(registersOf(op.getOperand()), source, tile);
    else
      toShared(registersOf(op.getOperand()), source, tile);
    sharedTiles[op.getResult()] = tile;
    return;
  }
  if (inSharedMemory(source)) {
    const SharedTile &tile = sharedTiles.find(op.getOperand())->second;
    Registers loaded = op.getMatrices() ? matricesFromShared(tile, target) : fromShared(tile, target);
    Registers result = soFar(op.getResult(), *layoutOf(target));
    for (auto [reg, value] : llvm::enumerate(loaded))
      result[reg] = value ? value : result[reg];
    registers[op.getResult()] = std::move(result);
    return;
  }
  Layout layout = *layoutOf(target);
  Conversion conversion = Conversion::between(*layoutOf(source), layout);
  auto exchange = conversion.kind == Conversion::SameRegisters ? &ThreadLowering::rename : &ThreadLowering::shuffle;
  Registers result = (this->*exchange)(registersOf(op.getOperand()), conversion, layout, target.getShape());
  registers[op.getResult()] = std::move(result);
}

/// What the bits of a number contribute to the register, or lane, that an element comes from.
static SmallVector<uint64_t> registersIn(ArrayRef<Conversion::Source> sources) {
  return llvm::map_to_vector(sources, [](const Conversion::Source &source) { return source.reg; });
}

static SmallVector<uint64_t> lanesIn(ArrayRef<Conversion::Source> sources) {
  return llvm::map_to_vector(sources, [](const Conversion::Source &source) { return source.lane; });
}

static uint64_t combined(ArrayRef<uint64_t> basis, uint64_t number) {
  uint64_t result = 0;
  for (auto [bit, vector] : llvm::enumerate(basis))
    if (number >> bit & 1)
      result ^= vector;
  return result;
}

Registers ThreadLowering::rename(const Registers &source, const Conversion &conversion, const Layout &target,
                                 ArrayRef<int64_t> shape) {
  SmallVector<uint64_t> from = registersIn(conversion.fromRegister);
  Registers result(target.size(Layout::Register));
  for (auto [reg, value] : llvm::enumerate(result))
    if (ThreadBuilder::inside(target, shape, reg) != ThreadBuilder::Inside::Never)
      value = source[combined(from, reg)];
  return result;
}

Registers ThreadLowering::shuffle(const Registers &source, const Conversion &conversion, const Layout &target,
                                  ArrayRef<int64_t> shape) {
  SmallVector<uint64_t> ownRegister = registersIn(conversion.fromRegister), ownLane = lanesIn(conversion.fromRegister);
  // The thread's part of the source lane and register. The latter chooses among a few candidates.
  Value threadLane = b.linear(lanesIn(conversion.fromLane), lanesIn(conversion.fromWarp));
  SmallVector<uint64_t> byLane = registersIn(conversion.fromLane), byWarp = registersIn(conversion.fromWarp);
  Value threadRegister = b.linear(byLane, byWarp);
  uint64_t variable = 0;
  for (uint64_t vector : llvm::concat<uint64_t>(byLane, byWarp))
    variable |= vector;

  Registers result(target.size(Layout::Register));
  for (auto [reg, value] : llvm::enumerate(result)) {
    if (ThreadBuilder::inside(target, shape, reg) == ThreadBuilder::Inside::Never)
      continue;
    uint64_t fixedRegister = combined(ownRegister, reg), fixedLane = combined(ownLane, reg);
    Value lane = threadLane ? b.bitXor(threadLane, fixedLane) : b.i32(fixedLane);
    // Every subset of the variable bits, the empty one last.
    uint64_t subset = variable;
    while (true) {
      if (Value candidate = source[fixedRegister ^ subset]) {
        Value moved = b.shuffleFrom(candidate, lane);
        if (!value)
          value = moved;
        else
          value = b.select(b.compare(arith::CmpIPredicate::eq, threadRegister, b.i32(subset)), moved, value);
      }
      if (!subset)
        break;
      subset = (subset - 1) & variable;
    }
  }
  return result;
}

Value ThreadLowering::numberOrZero(const Registers &source, RankedTensorType type, uint64_t reg) {
  if (!source[reg])
    return b.zero(type.getElementType());
  Value exists = b.isInside(*layoutOf(type), type.getShape(), reg);
  return exists ? b.select(exists, source[reg], b.zero(type.getElementType())) : source[reg];
}

void ThreadLowering::toShared(const Registers &source, RankedTensorType type, const SharedTile &tile, Padding padding) {
  Layout layout = *layoutOf(type);
  ArrayRef<int64_t> shape = type.getShape();
  int64_t together = int64_t(1) << neighbouringBits(layout, tile);
  Addresses addresses(b, tile, layout.basis(Layout::Lane), layout.basis(Layout::Warp));
  SmallVector<int64_t, 2> padded(shape);
  for (auto [side, size] : llvm::enumerate(padded))
    if (shape.size() == 2)
      size = padding == Padding::All ? layout.side(side) : llvm::alignTo(size, 16);
  SmallVector<std::pair<Value, Registers>> stores;
  for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += together) {
    if (!stripe.has(reg) || ThreadBuilder::inside(layout, padded, reg) == ThreadBuilder::Inside::Never)
      continue;
    Registers values;
    for (int64_t next = reg; next < reg + together; ++next)
      values.push_back(numberOrZero(source, type, next));
    stores.push_back({addresses.at(layout.at(Layout::Register, reg)), values});
  }
  // Of several who have the same one stores it.
  OpBuilder::InsertionGuard guard(b);
  if (Value isFirst = b.isFirstCopy(layout))
    b.setInsertionPointToStart(scf::IfOp::create(b, isFirst).thenBlock());
  for (auto &[address, values] : stores)
    b.store(address, values);
}

namespace {
/// Groups of up to four matrices of eight rows, each in a pair of registers.
class MatrixGroups {
public:
  MatrixGroups(ThreadBuilder &b, const SharedTile &tile, const Layout &layout)
      : layout(layout), more(std::min<unsigned>(bitsToCount(mostMatrices), layout.bits(Layout::Register) - 1)),
        addresses(b, tile, rowsOfLanes(), layout.basis(Layout::Warp)) {}

  /// Calls `visit` with the first register of each group that reaches into a tile, and the address that the lane gives.
  void forEach(ArrayRef<int64_t> shape, function_ref<void(int64_t reg, Value address)> visit) {
    for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += perMatrix * count())
      if (ThreadBuilder::inside(layout, shape, reg) != ThreadBuilder::Inside::Never)
        visit(reg, addresses.at(layout.at(Layout::Register, reg)));
  }
  int64_t count() const { return int64_t(1) << more; }
  /// Whether lanes have the rows of matrices that lie across.
  NVVM::MMALayout order() const { return liesAcross(layout) ? NVVM::MMALayout::col : NVVM::MMALayout::row; }

  static constexpr int64_t perMatrix = 2, mostMatrices = 4;

private:
  /// Lane l gives the address of row l mod 8 of matrix l / 8, as it lies in shared memory.
  SmallVector<uint64_t> rowsOfLanes() const {
    SmallVector<uint64_t> rows = {layout.flat({1, 0}), layout.flat({2, 0}), layout.flat({4, 0})};
    llvm::append_range(rows, layout.basis(Layout::Register).slice(1, more));
    rows.resize(layout.bits(Layout::Lane), 0);
    return rows;
  }

  Layout layout;
  unsigned more; // bits that number the matrices of a group
  Addresses addresses;
};
} // namespace

void ThreadLowering::matricesToShared(const Registers &source, RankedTensorType type, const SharedTile &tile) {
  MatrixGroups groups(b, tile, *layoutOf(type));
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  // Warps that have the same all store it: products may be under way, which a branch would end.
  groups.forEach(type.getShape(), [&](int64_t reg, Value address) {
    SmallVector<Value> words;
    for (int64_t pair = reg; pair < reg + 2 * groups.count(); pair += 2)
      words.push_back(LLVM::BitcastOp::create(
          b, b.getI32Type(), b.pack({numberOrZero(source, type, pair), numberOrZero(source, type, pair + 1)})));
    NVVM::StMatrixOp::create(b, address, words, groups.order(), shape, NVVM::LdStMatrixEltType::B16);
  });
}

Registers ThreadLowering::matricesFromShared(const SharedTile &tile, RankedTensorType type) {
  Layout layout = *layoutOf(type);
  MatrixGroups groups(b, tile, layout);
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  Type word = b.getI32Type(), pair = VectorType::get(2, type.getElementType());
  Registers result(layout.size(Layout::Register));
  groups.forEach(type.getShape(), [&](int64_t reg, Value address) {
    int64_t count = groups.count();
    Type loadedType =
        count == 1 ? word : LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(count, word));
    Value loaded = NVVM::LdMatrixOp::create(b, loadedType, address, static_cast<uint32_t>(count), groups.order(), shape,
                                            NVVM::LdStMatrixEltType::B16);
    for (int64_t index = 0; index < count; ++index) {
      Value own = count == 1 ? loaded : LLVM::ExtractValueOp::create(b, loaded, index).getResult();
      llvm::copy(b.unpack(LLVM::BitcastOp::create(b, pair, own)), result.begin() + reg + 2 * index);
    }
  });
  return result;
}

Registers ThreadLowering::fromShared(const SharedTile &tile, RankedTensorType type) {
  Layout layout = *layoutOf(type);
  int64_t together = int64_t(1) << neighbouringBits(layout, tile);
  Addresses addresses(b, tile, layout.basis(Layout::Lane), layout.basis(Layout::Warp));
  Registers result(layout.size(Layout::Register));
  for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += together) {
    if (!stripe.has(reg) || ThreadBuilder::inside(layout, type.getShape(), reg) == ThreadBuilder::Inside::Never)
      continue;
    Registers loaded = b.load(addresses.at(layout.at(Layout::Register, reg)), type.getElementType(), together);
    for (auto [next, value] : llvm::enumerate(loaded))
      if (ThreadBuilder::inside(layout, type.getShape(), reg + next) != ThreadBuilder::Inside::Never)
        result[reg + next] = value;
  }
  return result;
}

SmallVector<SharedTile, 3> ThreadLowering::gatherable(Operation *op, ArrayRef<Value> operands, int64_t offset) {
  SmallVector<SharedTile, 3> tiles;
  bool copies = false;
  for (Value operand : operands) {
    auto type = cast<RankedTensorType>(operand.getType());
    if (inSharedMemory(type)) {
      tiles.push_back(sharedTiles.find(operand)->second);
      continue;
    }
    tiles.push_back(scratchTile(b.advance(scratchOf(op), offset), type));
    toShared(registersOf(operand), type, tiles.back());
    offset += sharedBytesOf(type);
    copies = true;
  }
  if (copies)
    b.barrier();
  return tiles;
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

static Value combineReduced(ThreadBuilder &b, chunk::Reduction kind, Value left, Value right) {
  if (kind == chunk::Reduction::Max)
    return arith::MaximumFOp::create(b, left, right);
  return arith::AddFOp::create(b, left, right);
}

void ThreadLowering::lowerReduce(chunk::ReduceOp op) {
  auto type = cast<RankedTensorType>(op.getOperand().getType());
  unsigned reducedSide = op.getOver() == chunk::Side::Columns ? 1 : 0, keptSide = 1 - reducedSide;
  Layout layout = *layoutOf(type), kept = *layoutOf(op.getType()), ofRows = layout.onto(keptSide);
  const Registers &source = registersOf(op.getOperand());
  Value neutral = b.real(type.getElementType(),
                         op.getKind() == chunk::Reduction::Max ? -std::numeric_limits<double>::infinity() : 0.0);

  // Within the thread: the registers of each row that is kept, in order.
  llvm::SmallDenseMap<int64_t, Value> partial;
  for (auto [reg, value] : llvm::enumerate(source)) {
    if (!value)
      continue;
    Value number = value;
    if (Value exists = b.isInside(layout, type.getShape(), reg))
      number = b.select(exists, number, neutral);
    Value &sum = partial[layout.coordinate(layout.at(Layout::Register, reg), keptSide)];
    sum = sum ? combineReduced(b, op.getKind(), sum, number) : number;
  }
  // Across lanes: those that differ in the reduced side only.
  for (auto [bit, vector] : llvm::enumerate(layout.basis(Layout::Lane)))
    if (layout.coordinate(vector, reducedSide))
      for (auto &[coordinate, sum] : partial)
        sum = combineReduced(b, op.getKind(), sum, b.shuffleXor(sum, int64_t(1) << bit));

  if (!passesThroughShared(op)) {
    define(op.getResult(), [&](uint64_t reg) { return partial.lookup(kept.at(Layout::Register, reg)); });
    return;
  }

  // Through the scratch region, one row of it for each warp of those whose numbers are reduced.
  SmallVector<uint64_t> warpsReduced;
  int64_t rows = 1;
  for (uint64_t vector : layout.basis(Layout::Warp)) {
    bool reduces = layout.coordinate(vector, reducedSide) != 0;
    warpsReduced.push_back(reduces ? rows : 0);
    rows *= reduces ? 2 : 1;
  }
  auto scratchType = RankedTensorType::get({ofRows.side(0)}, type.getElementType());
  int64_t rowBytes = sharedBytesOf(scratchType);
  Value base = scratchOf(op), ownRow = b.linear(b.warp, warpsReduced);
  SharedTile first = scratchTile(base, scratchType),
             ofWarp = scratchTile(ownRow ? b.advance(base, b.mul(ownRow, rowBytes)) : base, scratchType);
  Addresses write(b, ofWarp, ofRows.basis(Layout::Lane), ofRows.basis(Layout::Warp));
  for (auto &[coordinate, sum] : partial)
    b.store(write.at(coordinate), sum);
  b.barrier();
  Addresses read(b, first, kept.basis(Layout::Lane), kept.basis(Layout::Warp));
  define(op.getResult(), [&](uint64_t reg) {
    Value own = read.at(kept.at(Layout::Register, reg)), sum;
    for (int64_t row = 0; row < rows; ++row) {
      Value part = b.load(b.advance(own, row * rowBytes), type.getElementType(), 1)[0];
      sum = sum ? combineReduced(b, op.getKind(), sum, part) : part;
    }
    return sum;
  });
}

//===----------------------------------------------------------------------===//
// Columns and rows from elsewhere
//===----------------------------------------------------------------------===//

void ThreadLowering::lowerColumns(chunk::ColumnsOp op) {
  auto type = cast<RankedTensorType>(op.getOperand().getType());
  if (std::optional<Conversion> within = withinThreads(op)) {
    SmallVector<uint64_t> from = registersIn(within->fromRegister);
    uint64_t part = static_cast<uint64_t>(op.getFrom()) / cast<RankedTensorType>(op.getType()).getDimSize(1);
    size_t bits = layoutOf(op.getType())->basis(Layout::Register).size();
    define(op.getResult(),
           [&](uint64_t reg) { return registersOf(op.getOperand())[combined(from, reg | (part << bits))]; });
    return;
  }
  SharedTile tile = gatherable(op, {op.getOperand()})[0];
  Layout target = *layoutOf(op.getType());
  int64_t from = op.getFrom();
  // One of parts that lie side by side: neighbouring columns come in one access.
  if (type.getRank() == 2 && target.rank() == 2 && from % target.side(1) == 0) {
    Layout parts = sideBySide(target, type.getShape());
    uint64_t first = parts.flat({0, from});
    int64_t together = std::min(int64_t(1) << neighbouringBits(parts, tile), target.size(Layout::Register));
    Addresses addresses(b, tile, parts.basis(Layout::Lane), parts.basis(Layout::Warp));
    llvm::SmallDenseMap<uint64_t, Registers> known;
    define(op.getResult(), [&](uint64_t reg) {
      Registers &loaded = known[reg / together];
      if (loaded.empty())
        loaded = b.load(addresses.at(parts.at(Layout::Register, reg / together * together) ^ first),
                        type.getElementType(), together);
      return loaded[reg % together];
    });
    return;
  }
  Gather gather(b, tile);
  bool oneColumn = type.getRank() == 2 && target.rank() == 1;
  define(op.getResult(), [&](uint64_t reg) {
    if (type.getRank() == 1)
      return gather.at({b.add(b.coordinate(target, 0, reg), from)});
    Value row = b.coordinate(target, 0, reg);
    return gather.at({row, oneColumn ? b.i32(from) : b.add(b.coordinate(target, 1, reg), from)});
  });
}

void ThreadLowering::joinWithin(chunk::ConcatOp op, const Conversion &within) {
  Layout layout = *layoutOf(op.getType());
  int64_t columns = cast<RankedTensorType>(op.getOperand(0).getType()).getDimSize(1);
  auto partsOf = [&](Layout::Space space) {
    return llvm::map_to_vector(layout.basis(space),
                               [&](uint64_t vector) -> uint64_t { return layout.coordinate(vector, 1) / columns; });
  };
  SmallVector<uint64_t> byRegister = partsOf(Layout::Register), byLane = partsOf(Layout::Lane),
                        byWarp = partsOf(Layout::Warp), from = registersIn(within.fromRegister);
  // The thread's own choice among the parts, which is that of its warp where no lane has another.
  Value chosen = b.linear(byLane, byWarp);
  bool ofWarp = !b.linear(byLane, {});
  uint64_t reach = 0;
  for (uint64_t part : llvm::concat<uint64_t>(byLane, byWarp))
    reach |= part;
  define(op.getResult(), [&](uint64_t reg) {
    uint64_t own = combined(byRegister, reg), source = combined(from, reg);
    Value value = registersOf(op.getOperand(own))[source];
    for (uint64_t part = 1; part <= reach; ++part) {
      if (part & ~reach)
        continue;
      Value isChosen = b.compare(arith::CmpIPredicate::eq, chosen, b.i32(part));
      value = b.select(isChosen, registersOf(op.getOperand(own ^ part))[source], value);
      if (ofWarp)
        value.getDefiningOp()->setAttr(choiceAttribute, b.getUnitAttr());
    }
    return value;
  });
}

/// Which of the constants each number is, its column says.
void ThreadLowering::joinConstants(chunk::ConcatOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  Layout layout = *layoutOf(type);
  define(op.getResult(), [&](uint64_t reg) {
    Value column = b.coordinate(layout, 1, reg), number;
    int64_t from = type.getDimSize(1);
    for (Value operand : llvm::reverse(op.getOperands())) {
      auto part = cast<RankedTensorType>(operand.getType());
      DenseElementsAttr constant;
      matchPattern(operand, m_Constant(&constant));
      Value own = b.real(type.getElementType(), constant.getSplatValue<APFloat>().convertToDouble());
      number = number ? b.select(b.less(column, from), own, number) : own;
      from -= part.getRank() == 2 ? part.getDimSize(1) : 1;
    }
    return number;
  });
}

void ThreadLowering::lowerConcat(chunk::ConcatOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  if (std::optional<Conversion> within = withinThreads(op))
    return joinWithin(op, *within);
  if (isOfConstants(op))
    return joinConstants(op);
  SharedTile tile = scratchTile(scratchOf(op), type);
  Gather places(b, tile);
  int64_t from = 0;
  for (Value operand : op.getOperands()) {
    auto part = cast<RankedTensorType>(operand.getType());
    Layout layout = *layoutOf(part);
    for (auto [reg, value] : llvm::enumerate(registersOf(operand))) {
      if (!value)
        continue;
      Value column = part.getRank() == 2 ? b.add(b.coordinate(layout, 1, reg), from) : b.i32(from);
      Value row = b.coordinate(layout, 0, reg);
      OpBuilder::InsertionGuard guard(b);
      if (Value exists = b.isInside(layout, part.getShape(), reg))
        b.setInsertionPointToStart(scf::IfOp::create(b, exists).thenBlock());
      b.store(places.address({row, column}), value);
    }
    from += part.getRank() == 2 ? part.getDimSize(1) : 1;
  }
  b.barrier();
  Registers result = fromShared(tile, type);
  registers[op.getResult()] = std::move(result);
}
