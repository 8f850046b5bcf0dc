//===- LowerConvolutions.cpp - Rows of other tokens of a chunk ------------===//
//
// Convolutions and delays meet rows that other threads have, which lie in shared memory. A thread that walks down some
// columns (`runLayout`) meets most of them again and again: each comes once. Rows beyond the chunk are those of a tail,
// for what looks back, or what was carried for them, for what goes back.
//
//===----------------------------------------------------------------------===//

#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

//===----------------------------------------------------------------------===//
// Rows near those of a thread
//===----------------------------------------------------------------------===//

namespace {

/// The columns of a thread's registers in a tile in shared memory.
class Columns {
public:
  Columns(ThreadBuilder &b, const SharedTile &tile, const Layout &layout) : b(b), tile(tile) {
    auto offsets = [&](Layout::Space space) {
      return llvm::map_to_vector(layout.basis(space), [&](uint64_t vector) {
        return tile.byteOffset(tile.getLayout().flat({0, layout.coordinate(vector, 1)}));
      });
    };
    ofThread = b.linear(offsets(Layout::Lane), offsets(Layout::Warp));
  }

  /// The address of an element in a row that is computed, one of the first `rows`.
  Value addressOf(Value row, int64_t column, int64_t rows = std::numeric_limits<int64_t>::max()) {
    SmallVector<uint64_t> ofRows = tile.byteOffsetsOf(0);
    ofRows.truncate(std::min<size_t>(ofRows.size(), llvm::Log2_64_Ceil(rows)));
    Value offset = b.combine(ofThread, b.linear(row, ofRows));
    uint64_t own = tile.byteOffset(tile.getLayout().flat({0, column}));
    return b.advance(tile.base, offset ? b.bitXor(offset, own) : b.i32(own));
  }

private:
  ThreadBuilder &b;
  const SharedTile &tile;
  Value ofThread;
};

/// Rows of a tile in shared memory, some rows from those of a thread's registers: neighbouring columns come in one
/// access, and each element once, for however many registers want it.
class NearRows {
public:
  NearRows(ThreadBuilder &b, const SharedTile &tile, const Layout &layout, Type element, unsigned together)
      : b(b), layout(layout), element(element), tile(tile), columns(b, tile, layout), together(int64_t(1) << together) {
  }
  virtual ~NearRows() = default;

  /// The element of a row so many further on than a register's.
  Value at(uint64_t reg, int64_t distance) {
    uint64_t own = layout.at(Layout::Register, reg);
    int64_t row = layout.coordinate(own, 0) + distance, column = layout.coordinate(own, 1);
    Registers &loaded = known[{row, column / together}];
    if (loaded.empty()) {
      loaded = load(row, column / together * together);
      for (Value &value : loaded)
        value = b.widen(value, element);
    }
    return loaded[column % together];
  }

protected:
  /// `row` counts from the thread's first one.
  virtual Registers load(int64_t row, int64_t column) = 0;

  Registers loadFrom(Value address) { return b.load(address, tile.type.getElementType(), together); }
  Value numberOf(int64_t row) { return b.add(b.coordinate(layout, 0, 0), row); }

  ThreadBuilder &b;
  const Layout &layout;
  Type element;
  const SharedTile &tile;
  Columns columns;
  int64_t together;

private:
  llvm::SmallDenseMap<std::pair<int64_t, int64_t>, Registers> known;
};

/// Those of a tile with a row for each token.
class RowsOfTokens : public NearRows {
protected:
  RowsOfTokens(ThreadBuilder &b, const SharedTile &tile, const Layout &layout, Type element, unsigned together)
      : NearRows(b, tile, layout, element, together),
        addresses(b, tile, layout.basis(Layout::Lane), layout.basis(Layout::Warp)),
        reach(layout.coordinate(layout.reach(Layout::Register), 0)) {}

  /// That of a row which other registers have, or other threads: what registers have is a constant away from the
  /// thread's.
  Value addressOf(int64_t row, int64_t column) {
    bool isOwn = row >= 0 && (row & ~reach) == 0;
    return isOwn ? addresses.at(layout.flat({row, column})) : columns.addressOf(numberOf(row), column);
  }

private:
  Addresses addresses;
  int64_t reach;
};

/// Those of the tile itself.
class OwnRows : public RowsOfTokens {
public:
  OwnRows(ThreadBuilder &b, const SharedTile &tile, const Layout &layout, Type element)
      : RowsOfTokens(b, tile, layout, element, neighbouringBits(layout, tile)) {}

private:
  Registers load(int64_t row, int64_t column) override { return loadFrom(addressOf(row, column)); }
};

/// Those before, of which the first follow the rows of a tail.
class EarlierRows : public RowsOfTokens {
public:
  EarlierRows(ThreadBuilder &b, const SharedTile &tile, const SharedTile &tail, const Layout &layout, Type element)
      : RowsOfTokens(b, tile, layout, element,
                     std::min(neighbouringBits(layout, tile), neighbouringBits(layout, tail))),
        ofTail(b, tail, layout), tailRows(tail.type.getDimSize(0)) {}

private:
  Registers load(int64_t row, int64_t column) override {
    Value address = addressOf(row, column);
    if (row >= 0)
      return loadFrom(address);
    Value number = numberOf(row), before = ofTail.addressOf(b.add(number, tailRows), column);
    return loadFrom(b.select(b.less(number, 0), before, address));
  }

  Columns ofTail;
  int64_t tailRows;
};

/// Those behind, as far as they exist: others count as 0, whatever is there.
class LaterRows : public RowsOfTokens {
public:
  LaterRows(ThreadBuilder &b, const SharedTile &tile, const Layout &layout, Type element, Value valid)
      : RowsOfTokens(b, tile, layout, element, neighbouringBits(layout, tile)),
        existing(b.sub(valid, b.coordinate(layout, 0, 0))) {}

private:
  Registers load(int64_t row, int64_t column) override {
    Registers loaded = loadFrom(addressOf(row, column));
    Value exists = b.compare(arith::CmpIPredicate::sgt, existing, b.i32(row));
    for (Value &value : loaded)
      value = b.select(exists, value, b.zero(value.getType()));
    return loaded;
  }

  Value existing; // rows from the thread's first on
};

/// Those of a tile whose rows begin with some row of the registers', and are a few; others count as 0.
class RowsFrom : public NearRows {
public:
  RowsFrom(ThreadBuilder &b, const SharedTile &tile, const Layout &layout, Type element, Value first, Value limit,
           int64_t most)
      : NearRows(b, tile, layout, element, neighbouringBits(layout, tile)),
        ofThread(b.sub(b.coordinate(layout, 0, 0), first)), limit(limit), most(most) {}

private:
  Registers load(int64_t row, int64_t column) override {
    Value number = b.add(ofThread, row), exists = b.compare(arith::CmpIPredicate::ult, number, limit);
    Registers loaded = loadFrom(columns.addressOf(b.select(exists, number, b.i32(0)), column, most));
    for (Value &value : loaded)
      value = b.select(exists, value, b.zero(value.getType()));
    return loaded;
  }

  Value ofThread, limit;
  int64_t most;
};

} // namespace

/// How many numbers of a row follow one another from a multiple of as many on, in at most 16 bytes.
static int64_t neighboursOf(const SharedTile &tile) {
  int64_t count = 1;
  for (uint64_t offset : tile.byteOffsetsOf(1)) {
    int64_t bytes = count * tile.elementBytes();
    if (offset != static_cast<uint64_t>(bytes) || bytes >= 16)
      break;
    count *= 2;
  }
  return count;
}

//===----------------------------------------------------------------------===//
// Convolutions
//===----------------------------------------------------------------------===//

namespace {
/// The taps of the channels of a thread's registers, each fetched once.
class Taps {
public:
  Taps(ThreadBuilder &b, const SharedTile &tile, const Layout &layout, Type element)
      : count(tile.type.getDimSize(1)), b(b), layout(layout), element(element), tile(tile), weights(b, tile),
        together(std::min<int64_t>(neighboursOf(tile), llvm::bit_floor<uint64_t>(count))) {}

  const int64_t count;

  /// That of tokens so many apart.
  Value at(uint64_t reg, int64_t distance) {
    Registers &taps = ofColumns[layout.coordinate(layout.at(Layout::Register, reg), 1)];
    for (int64_t tap = taps.size(); tap < count; tap = taps.size())
      for (Value value :
           b.load(weights.address({b.coordinate(layout, 1, reg), b.i32(tap)}), tile.type.getElementType(), together))
        taps.push_back(b.widen(value, element));
    return taps[count - 1 - distance];
  }

private:
  ThreadBuilder &b;
  const Layout &layout;
  Type element;
  const SharedTile &tile;
  Gather weights;
  int64_t together;
  llvm::SmallDenseMap<int64_t, Registers> ofColumns;
};
} // namespace

/// The sum of what rows at distances from `first` on, earlier or later ones, give to the token of a register.
static Value sumOfTaps(ThreadBuilder &b, Taps &taps, NearRows &rows, uint64_t reg, int64_t first, int64_t direction) {
  Value sum;
  for (int64_t distance = first; distance < taps.count; ++distance) {
    Value product = arith::MulFOp::create(b, taps.at(reg, distance), rows.at(reg, direction * distance));
    sum = sum ? arith::AddFOp::create(b, sum, product).getResult() : product;
  }
  return sum;
}

void ThreadLowering::lowerConv(chunk::ConvOp op) {
  auto tiles = gatherable(op, {op.getOperand(), op.getTail(), op.getTaps()});
  auto type = cast<RankedTensorType>(op.getType());
  Layout layout = *layoutOf(type);
  EarlierRows rows(b, tiles[0], tiles[1], layout, type.getElementType());
  Taps taps(b, tiles[2], layout, type.getElementType());
  define(op.getResult(), [&](uint64_t reg) { return sumOfTaps(b, taps, rows, reg, /*first=*/0, /*direction=*/-1); });
}

void ThreadLowering::lowerConvBack(chunk::ConvBackOp op) {
  auto tiles = gatherable(op, {op.getOperand(), op.getTaps(), op.getCarry()});
  auto type = cast<RankedTensorType>(op.getResult().getType());
  Layout layout = *layoutOf(type), nextLayout = *layoutOf(op.getNext().getType());
  Type element = type.getElementType();
  Value valid = b.truncate(scalars.lookup(op.getValid()));
  int64_t before = cast<RankedTensorType>(op.getTaps().getType()).getDimSize(1) - 1;

  // Rows of the next carry are tokens before the chunk, to which its first ones give, as far as taps reach, and, where
  // it is shorter than that, what was left for tokens before it.
  Taps tapsOfNext(b, tiles[1], nextLayout, element);
  RowsFrom ofChunk(b, tiles[0], nextLayout, element, b.i32(before), valid, before);
  RowsFrom left(b, tiles[2], nextLayout, element, valid, b.i32(before), before);
  define(op.getNext(), [&](uint64_t reg) {
    Value sum = sumOfTaps(b, tapsOfNext, ofChunk, reg, /*first=*/1, /*direction=*/1);
    return arith::AddFOp::create(b, sum, left.at(reg, 0)).getResult();
  });

  Taps taps(b, tiles[1], layout, element);
  LaterRows rows(b, tiles[0], layout, element, valid);
  define(op.getResult(), [&](uint64_t reg) { return sumOfTaps(b, taps, rows, reg, /*first=*/0, /*direction=*/1); });
  if (before == 0)
    return;

  // What the chunk behind has left is for the last tokens that exist, which few threads have: of a whole chunk those of
  // the last rows, in registers that are known.
  auto addLeft = [&](Value isOfLast, Value firstLeft, int64_t fromRow) {
    Registers sums;
    appendLive(op.getResult(), sums);
    auto condition = scf::IfOp::create(b, llvm::to_vector(ValueRange(sums).getTypes()), isOfLast,
                                       /*addThenBlock=*/true, /*addElseBlock=*/true);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(condition.elseBlock());
      scf::YieldOp::create(b, sums);
      b.setInsertionPointToStart(condition.thenBlock());
      RowsFrom left(b, tiles[2], layout, element, firstLeft, b.i32(before), before);
      Registers ofRows = registersOf(op.getResult());
      define(op.getResult(), [&](uint64_t reg) -> Value {
        if (layout.coordinate(layout.at(Layout::Register, reg), 0) < fromRow)
          return ofRows[reg];
        return arith::AddFOp::create(b, ofRows[reg], left.at(reg, 0));
      });
      Registers live;
      appendLive(op.getResult(), live);
      scf::YieldOp::create(b, live);
    }
    ValueRange results = condition.getResults();
    takeLive(op.getResult(), op.getResult(), results);
  };
  int64_t rowsOfChunk = type.getDimSize(0), reach = layout.coordinate(layout.reach(Layout::Register), 0);
  Value firstRow = b.coordinate(layout, 0, 0), firstLeft = b.sub(valid, b.i32(before));
  Value ofThread = b.sub(firstRow, firstLeft);
  Value hasLast = b.both(b.compare(arith::CmpIPredicate::sge, ofThread, b.i32(-reach)), b.less(ofThread, before));
  bool hasRuns = llvm::isPowerOf2_64(reach + 1) && reach + 1 >= before && layout.side(0) == rowsOfChunk;
  if (!hasRuns)
    return addLeft(hasLast, firstLeft, /*fromRow=*/0);
  Value isCut = b.less(valid, rowsOfChunk);
  Value hasLastOfAll = b.compare(arith::CmpIPredicate::eq, firstRow, b.i32(rowsOfChunk - 1 - reach));
  addLeft(b.both(b.compare(arith::CmpIPredicate::eq, valid, b.i32(rowsOfChunk)), hasLastOfAll),
          b.i32(rowsOfChunk - before), /*fromRow=*/reach + 1 - before);
  addLeft(b.both(isCut, hasLast), firstLeft, /*fromRow=*/0);
}

void ThreadLowering::lowerConvTaps(chunk::ConvTapsOp op) {
  TapSums sums(op);
  auto tiles = gatherable(op, {op.getWeights(), op.getOperand(), op.getTail()}, /*offset=*/sums.bytes());
  auto type = cast<RankedTensorType>(op.getType());
  Type element = type.getElementType();
  int64_t count = type.getDimSize(1);
  OwnRows weights(b, tiles[0], sums.rows, element);
  EarlierRows rows(b, tiles[1], tiles[2], sums.rows, element);

  // What the rows of a thread give to each of its columns.
  llvm::SmallDenseMap<int64_t, Registers> ofColumns;
  ArrayRef<int64_t> shape = tiles[0].type.getShape();
  for (int64_t reg = 0; reg < sums.rows.size(Layout::Register); ++reg) {
    if (ThreadBuilder::inside(sums.rows, shape, reg) == ThreadBuilder::Inside::Never)
      continue;
    Value exists = b.isInside(sums.rows, shape, reg);
    Registers &ofTaps = ofColumns[sums.rows.coordinate(sums.rows.at(Layout::Register, reg), 1)];
    ofTaps.resize(count);
    for (int64_t distance = 0; distance < count; ++distance) {
      Value product = arith::MulFOp::create(b, weights.at(reg, 0), rows.at(reg, -distance));
      product = exists ? b.select(exists, product, b.zero(element)) : product;
      Value &sum = ofTaps[count - 1 - distance];
      sum = sum ? arith::AddFOp::create(b, sum, product).getResult() : product;
    }
  }

  // Those of all threads of a column.
  int64_t bytesOfTap = sharedBytesOf(sums.numbers), runs = 1;
  auto numbersOfRuns = [&](Layout::Space space) {
    return llvm::map_to_vector(sums.rows.basis(space), [&](uint64_t vector) -> uint64_t {
      return sums.rows.coordinate(vector, 0) ? std::exchange(runs, runs * 2) : 0;
    });
  };
  SmallVector<uint64_t> ofLanes = numbersOfRuns(Layout::Lane), ofWarps = numbersOfRuns(Layout::Warp);
  Value base = scratchOf(op), run = b.linear(ofLanes, ofWarps);
  SharedTile ofAll = scratchTile(base, sums.numbers),
             ofRun = scratchTile(run ? b.advance(base, b.mul(run, sums.bytesOfRun())) : base, sums.numbers);
  Layout columns = sums.rows.onto(1);
  Addresses write(b, ofRun, columns.basis(Layout::Lane), columns.basis(Layout::Warp));
  int64_t together = int64_t(1) << neighbouringBits(columns, ofRun);
  {
    OpBuilder::InsertionGuard guard(b);
    if (Value isFirst = b.isFirstCopy(sums.rows))
      b.setInsertionPointToStart(scf::IfOp::create(b, isFirst).thenBlock());
    for (int64_t reg = 0; reg < columns.size(Layout::Register); reg += together) {
      uint64_t column = columns.at(Layout::Register, reg);
      if (!ofColumns.count(columns.coordinate(column, 0)))
        continue;
      for (int64_t tap = 0; tap < count; ++tap) {
        Registers numbers;
        for (int64_t next = reg; next < reg + together; ++next) {
          Registers ofTaps = ofColumns.lookup(columns.coordinate(columns.at(Layout::Register, next), 0));
          numbers.push_back(ofTaps.empty() ? b.zero(element) : ofTaps[tap]);
        }
        b.store(b.advance(write.at(column), tap * bytesOfTap), numbers);
      }
    }
  }
  b.barrier();
  Layout layout = *layoutOf(type);
  Gather gather(b, ofAll);
  define(op.getResult(), [&](uint64_t reg) {
    if (layout.coordinate(layout.at(Layout::Register, reg), 1) >= sums.taps)
      return b.zero(element);
    Value ofTap = b.mul(b.coordinate(layout, 1, reg), bytesOfTap);
    Value first = b.advance(gather.address({b.coordinate(layout, 0, reg)}), ofTap), sum;
    for (int64_t number = 0; number < sums.runs; ++number) {
      Value part = b.load(b.advance(first, number * sums.bytesOfRun()), element, 1)[0];
      sum = sum ? arith::AddFOp::create(b, sum, part).getResult() : part;
    }
    return sum;
  });
}

//===----------------------------------------------------------------------===//
// Delays and tails
//===----------------------------------------------------------------------===//

void ThreadLowering::lowerDelay(chunk::DelayOp op) {
  auto tiles = gatherable(op, {op.getOperand(), op.getTail()});
  Layout layout = *layoutOf(op.getType());
  EarlierRows rows(b, tiles[0], tiles[1], layout, getElementTypeOrSelf(op.getType()));
  define(op.getResult(), [&](uint64_t reg) { return rows.at(reg, -static_cast<int64_t>(op.getBy())); });
}

namespace {
/// Rows of a tile and, before its first, of the tail that the chunk before left, both in shared memory.
class RowsWithTail {
public:
  RowsWithTail(ThreadBuilder &b, const SharedTile &tile, const SharedTile &tail)
      : b(b), rows(b, tile), before(b, tail), tailRows(tail.type.getDimSize(0)), element(tile.type.getElementType()) {}

  /// The element of `row`, which may be as low as minus the rows of the tail.
  Value at(Value row, Value column) {
    Value inTail = b.less(row, 0);
    Value address = b.select(inTail, before.address({b.add(row, tailRows), column}), rows.address({row, column}));
    return b.load(address, element, 1)[0];
  }

private:
  ThreadBuilder &b;
  Gather rows, before;
  int64_t tailRows;
  Type element;
};
} // namespace

void ThreadLowering::lowerTail(chunk::TailOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  Layout layout = *layoutOf(type);
  int64_t tailRows = type.getDimSize(0);
  Value valid = b.truncate(scalars.lookup(op.getValid()));
  SharedTile tile = gatherable(op, {op.getOperand()})[0];
  auto lastRows = [&](function_ref<Value(Value row, Value column)> at) {
    define(op.getResult(), [&](uint64_t reg) {
      Value row = b.add(b.add(b.coordinate(layout, 0, reg), valid), -tailRows);
      return at(row, b.coordinate(layout, 1, reg));
    });
    Registers live;
    appendLive(op.getResult(), live);
    scf::YieldOp::create(b, live);
  };
  // Hardly a chunk has fewer rows than its tail. Others do not ask for the old one, which threads would exchange first.
  SmallVector<Type> types;
  for (int64_t reg = 0; reg < layout.size(Layout::Register); ++reg)
    if (ThreadBuilder::inside(layout, type.getShape(), reg) != ThreadBuilder::Inside::Never)
      types.push_back(type.getElementType());
  auto condition = scf::IfOp::create(b, types, b.less(valid, tailRows), /*addThenBlock=*/true, /*addElseBlock=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(condition.thenBlock());
    auto rowsType = cast<RankedTensorType>(op.getOperand().getType());
    SharedTile tail = gatherable(op, {op.getTail()}, inSharedMemory(rowsType) ? 0 : sharedBytesOf(rowsType))[0];
    RowsWithTail rows(b, tile, tail);
    lastRows([&](Value row, Value column) { return rows.at(row, column); });
    b.setInsertionPointToStart(condition.elseBlock());
    Gather rowsOfChunk(b, tile);
    lastRows([&](Value row, Value column) { return rowsOfChunk.at({row, column}); });
  }
  ValueRange results = condition.getResults();
  takeLive(op.getResult(), op.getResult(), results);
}
