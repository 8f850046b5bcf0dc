//===- LowerDecay.cpp - Products over tokens ------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static Value accumulated(ThreadBuilder &b, chunk::Accumulation kind, Value left, Value right) {
  if (kind == chunk::Accumulation::Product)
    return arith::MulFOp::create(b, left, right);
  return arith::AddFOp::create(b, left, right);
}

//===----------------------------------------------------------------------===//
// Running sums and products
//
// One step for each bit of the row's number, the lowest first. After the step for bit i every thread has, for each of
// its rows, what has been accumulated in the row's block of 2^(i+1) rows up to the row, and the total of that block.
// The blocks' partner differs in a register, a lane or a warp.
//===----------------------------------------------------------------------===//

namespace {
class Accumulator {
public:
  Accumulator(ThreadBuilder &b, chunk::AccumulateOp op, const Layout &layout, const Registers &source)
      : b(b), op(op), layout(layout), kind(op.getKind()), type(cast<RankedTensorType>(op.getType())) {
    Value neutral = b.real(type.getElementType(), kind == chunk::Accumulation::Product ? 1.0 : 0.0);
    for (auto [reg, value] : llvm::enumerate(source)) {
      Value exists = value ? b.isInside(layout, type.getShape(), reg) : Value();
      Value own = !value ? neutral : exists ? b.select(exists, value, neutral) : value;
      running.push_back(op.getExclusive() ? neutral : own);
      totals.push_back(own);
    }
  }

  Registers run(Value scratch) {
    for (int64_t row = alongRun(); row < layout.side(0); row *= 2) {
      if (std::optional<unsigned> bit = bitOf(Layout::Register, row))
        withinThread(uint64_t(1) << *bit);
      else if (std::optional<unsigned> bit = bitOf(Layout::Lane, row))
        acrossLanes(*bit);
      else if (std::optional<unsigned> bit = bitOf(Layout::Warp, row); bit && !warpsDone)
        acrossWarps(scratch);
    }
    return running;
  }

  /// What has been accumulated of all rows, behind that, in each register of a column.
  const Registers &ofAll() const { return totals; }

private:
  std::optional<unsigned> bitOf(Layout::Space space, int64_t row) {
    for (auto [bit, vector] : llvm::enumerate(layout.basis(space)))
      if (layout.coordinate(vector, 0) == row)
        return bit;
    return std::nullopt;
  }

  /// Walks along rows that follow one another in a thread; how many there are.
  int64_t alongRun() {
    int64_t rows = 1;
    SmallVector<uint64_t> bits;
    for (; rows < layout.side(0); rows *= 2) {
      std::optional<unsigned> bit = bitOf(Layout::Register, rows);
      if (!bit)
        break;
      bits.push_back(uint64_t(1) << *bit);
    }
    uint64_t mask = 0;
    for (uint64_t bit : bits)
      mask |= bit;
    for (uint64_t other = 0; other < running.size(); ++other) {
      if (other & mask)
        continue;
      Value total;
      SmallVector<uint64_t> registers;
      for (int64_t step = 0; step < rows; ++step) {
        auto row = static_cast<uint64_t>(op.getReverse() ? rows - 1 - step : step);
        uint64_t reg = other;
        for (auto [number, bit] : llvm::enumerate(bits))
          reg |= row >> number & 1 ? bit : 0;
        registers.push_back(reg);
        Value own = totals[reg], before = total;
        total = before ? join(before, own) : own;
        if (!op.getExclusive())
          running[reg] = total;
        else if (before)
          running[reg] = before;
      }
      for (uint64_t reg : registers)
        totals[reg] = total;
    }
    return rows;
  }

  /// Accumulates what comes before (in reverse: after) a row with what is at it.
  Value join(Value earlier, Value later) { return accumulated(b, kind, earlier, later); }

  void withinThread(uint64_t bit) {
    for (uint64_t low = 0; low < running.size(); ++low) {
      if (low & bit)
        continue;
      uint64_t high = low | bit, receiver = op.getReverse() ? low : high, giver = receiver ^ bit;
      running[receiver] = join(running[receiver], totals[giver]);
      totals[low] = totals[high] = join(totals[low], totals[high]);
    }
  }

  void acrossLanes(unsigned bit) {
    Value isHigh = arith::TruncIOp::create(b, b.getI1Type(), arith::ShRUIOp::create(b, b.lane, b.i32(bit)));
    for (auto [value, total] : llvm::zip(running, totals)) {
      Value partner = b.shuffleXor(total, int64_t(1) << bit), joined = join(value, partner);
      value = op.getReverse() ? b.select(isHigh, value, joined) : b.select(isHigh, joined, value);
      total = join(total, partner);
    }
  }

  /// All warps at once: each leaves its totals and reads those of the others.
  void acrossWarps(Value scratch) {
    warpsDone = true;
    SmallVector<uint64_t> rowOfWarp;
    int64_t warps = 1;
    for (uint64_t vector : layout.basis(Layout::Warp)) {
      bool divides = layout.coordinate(vector, 0) != 0;
      rowOfWarp.push_back(divides ? warps : 0);
      warps *= divides ? 2 : 1;
    }
    Value own = b.linear(b.warp, rowOfWarp);
    Type element = type.getElementType();
    // A warp leaves one number for each column and each block of the rows that all warps together hold.
    int64_t width = layout.rank() == 2 ? layout.side(1) : 1, blockRows = rowsWithinWarps(layout);
    auto rowType = RankedTensorType::get({width * (layout.side(0) / blockRows)}, element);
    int64_t rowBytes = sharedBytesOf(rowType);
    SharedTile all(withLayout(rowType, sharedLayout(rowType.getShape(), element.getIntOrFloatBitWidth() / 8)), scratch);
    SharedTile mine = all;
    mine.base = b.advance(scratch, b.mul(own, rowBytes));
    auto columnsOf = [&](Layout::Space space) {
      return llvm::map_to_vector(layout.basis(space), [&](uint64_t vector) -> uint64_t {
        return layout.rank() == 2 ? layout.coordinate(vector, 1) : 0;
      });
    };
    SmallVector<uint64_t> laneBasis = columnsOf(Layout::Lane), warpBasis = columnsOf(Layout::Warp);
    llvm::MapVector<int64_t, SmallVector<uint64_t>> registersOfNumber;
    for (uint64_t reg = 0; reg < running.size(); ++reg) {
      uint64_t flat = layout.at(Layout::Register, reg);
      int64_t column = layout.rank() == 2 ? layout.coordinate(flat, 1) : 0;
      registersOfNumber[column + width * (layout.coordinate(flat, 0) / blockRows)].push_back(reg);
    }
    // Lanes of one column have the same totals, of which the first leaves them.
    int64_t copies = 0;
    for (auto [bit, column] : llvm::enumerate(laneBasis))
      copies |= column ? 0 : int64_t(1) << bit;
    Addresses write(b, mine, laneBasis, warpBasis);
    SmallVector<Value> targets =
        llvm::map_to_vector(registersOfNumber, [&](auto &each) { return write.at(each.first); });
    {
      OpBuilder::InsertionGuard guard(b);
      Value isFirst = b.compare(arith::CmpIPredicate::eq, arith::AndIOp::create(b, b.lane, b.i32(copies)), b.i32(0));
      b.setInsertionPointToStart(scf::IfOp::create(b, isFirst).thenBlock());
      for (auto [target, each] : llvm::zip(targets, registersOfNumber))
        b.store(target, totals[each.second.front()]);
    }
    b.barrier();
    Addresses read(b, all, laneBasis, warpBasis);
    for (auto &[number, members] : registersOfNumber) {
      Value before, total;
      for (int64_t warp = 0; warp < warps; ++warp) {
        Value part = b.load(b.advance(read.at(number), warp * rowBytes), element, 1)[0];
        total = total ? join(total, part) : part;
        Value counts = op.getReverse() ? b.less(own, warp) : b.less(b.i32(warp), own);
        Value neutral = b.real(element, kind == chunk::Accumulation::Product ? 1.0 : 0.0);
        Value counted = b.select(counts, part, neutral);
        before = before ? join(before, counted) : counted;
      }
      for (uint64_t reg : members) {
        running[reg] = join(running[reg], before);
        totals[reg] = total;
      }
    }
  }

  ThreadBuilder &b;
  chunk::AccumulateOp op;
  const Layout &layout;
  chunk::Accumulation kind;
  RankedTensorType type;
  Registers running, totals;
  bool warpsDone = false;
};
} // namespace

void ThreadLowering::lowerAccumulate(chunk::AccumulateOp op) {
  Layout layout = *layoutOf(op.getType());
  Value scratch = op->hasAttr(scratchAttribute) ? scratchOf(op) : Value();
  Accumulator accumulator(b, op, layout, registersOf(op.getOperand()));
  Registers result = accumulator.run(scratch);
  define(op.getResult(), [&](uint64_t reg) { return result[reg]; });
  if (llvm::any_of(op->getUsers(), llvm::IsaPred<chunk::TotalOp>))
    totals[op.getResult()] = accumulator.ofAll();
}

void ThreadLowering::lowerTotal(chunk::TotalOp op) {
  Layout layout = *layoutOf(op.getAccumulated().getType()), target = *layoutOf(op.getType());
  const Registers &ofAll = totals.find(op.getAccumulated())->second;
  llvm::DenseMap<int64_t, Value> ofColumn;
  for (auto [reg, value] : llvm::enumerate(ofAll))
    ofColumn.try_emplace(layout.coordinate(layout.at(Layout::Register, reg), 1), value);
  define(op.getResult(),
         [&](uint64_t reg) { return ofColumn.lookup(target.coordinate(target.at(Layout::Register, reg), 0)); });
}

//===----------------------------------------------------------------------===//
// One row, and a question to all threads
//===----------------------------------------------------------------------===//

void ThreadLowering::lowerRow(chunk::RowOp op) {
  auto type = cast<RankedTensorType>(op.getOperand().getType()), rowType = cast<RankedTensorType>(op.getType());
  Layout layout = *layoutOf(type), target = *layoutOf(rowType);
  if (isOnlyRow(op)) {
    registers[op.getResult()] = Registers(registersOf(op.getOperand()));
    return;
  }
  auto at = static_cast<int64_t>(op.getAt());
  if (isInEachWarp(op)) {
    // Lanes come first in the layout of a vector; bits that both spaces lack are those of copies.
    uint64_t lane = 0, reg = 0;
    auto choose = [&](Layout::Space space, uint64_t &number) {
      for (auto [bit, vector] : llvm::enumerate(layout.basis(space)))
        number |= vector & at ? uint64_t(1) << bit : 0;
    };
    choose(Layout::Lane, lane);
    choose(Layout::Register, reg);
    registers[op.getResult()] = {b.shuffleFrom(registersOf(op.getOperand())[reg], b.i32(static_cast<int64_t>(lane)))};
    return;
  }
  SharedTile tile = scratchTile(scratchOf(op), rowType);
  // Those who have the row store it.
  uint64_t reach = layout.reach(Layout::Lane) | layout.reach(Layout::Warp);
  int64_t ofThreads = at & layout.coordinate(reach, 0);
  Layout columns = type.getRank() == 2 ? layout.onto(1) : target;
  Addresses write(b, tile, columns.basis(Layout::Lane), columns.basis(Layout::Warp));
  {
    Value isOwner = b.compare(arith::CmpIPredicate::eq, b.coordinate(layout, 0, 0), b.i32(ofThreads));
    SmallVector<std::pair<Value, Value>> stores;
    for (auto [reg, value] : llvm::enumerate(registersOf(op.getOperand()))) {
      uint64_t own = layout.at(Layout::Register, reg);
      if (value && layout.coordinate(own, 0) == at - ofThreads)
        stores.push_back({write.at(type.getRank() == 2 ? layout.coordinate(own, 1) : 0), value});
    }
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(scf::IfOp::create(b, isOwner).thenBlock());
    for (auto [address, value] : stores)
      b.store(address, value);
  }
  if (inSharedMemory(rowType)) {
    sharedTiles[op.getResult()] = tile;
    return;
  }
  b.barrier();
  Addresses read(b, tile, target.basis(Layout::Lane), target.basis(Layout::Warp));
  define(op.getResult(), [&](uint64_t reg) {
    return b.load(read.at(target.at(Layout::Register, reg)), rowType.getElementType(), 1)[0];
  });
}

/// The largest of some numbers, by a tree: warps are too few to hide a chain.
static Value largestOf(ThreadBuilder &b, ArrayRef<Value> numbers) {
  if (numbers.size() == 1)
    return numbers.front();
  size_t half = numbers.size() / 2;
  return arith::MaximumFOp::create(b, largestOf(b, numbers.take_front(half)), largestOf(b, numbers.drop_front(half)));
}

/// The largest magnitudes of numbers: of 16 bits those of even and of odd ones, since magnitudes of a type are ordered
/// like the integers of their bits, which are compared by twos.
static SmallVector<Value, 2> largestMagnitudes(ThreadBuilder &b, ArrayRef<Value> numbers) {
  Type type = numbers.front().getType();
  if (type.getIntOrFloatBitWidth() != 16) {
    auto sizes = llvm::map_to_vector(numbers, [&](Value number) -> Value { return math::AbsFOp::create(b, number); });
    return {largestOf(b, sizes)};
  }
  Type pairType = VectorType::get({2}, b.getI16Type());
  auto bits = [&](Value number) -> Value {
    return arith::ExtUIOp::create(b, b.getI32Type(), arith::BitcastOp::create(b, b.getI16Type(), number));
  };
  auto wordOf = [&](Value low, Value high) -> Value {
    if (Value word = b.wordOf(low, high))
      return word;
    return arith::OrIOp::create(b, bits(low), arith::ShLIOp::create(b, bits(high), b.i32(16)));
  };
  Value largest;
  for (size_t index = 0; index < numbers.size(); index += 2) {
    bool isAlone = index + 1 == numbers.size();
    Value pair = isAlone ? bits(numbers[index]) : wordOf(numbers[index], numbers[index + 1]);
    Value sizes = LLVM::BitcastOp::create(b, pairType, arith::AndIOp::create(b, pair, b.i32(0x7fff7fff)));
    largest = largest ? LLVM::UMaxOp::create(b, largest, sizes).getResult() : sizes;
  }
  Value pair = LLVM::BitcastOp::create(b, b.getI32Type(), largest);
  auto half = [&](int64_t shift) -> Value {
    Value word = arith::TruncIOp::create(b, b.getI16Type(), arith::ShRUIOp::create(b, pair, b.i32(shift)));
    return arith::BitcastOp::create(b, type, word);
  };
  return {half(0), half(16)};
}

void ThreadLowering::lowerWithin(chunk::WithinOp op) {
  Value exceeds = exceeded.lookup(op);
  for (auto [number, operand, limit] : llvm::enumerate(op.getOperands(), op.getLimits())) {
    auto type = cast<RankedTensorType>(operand.getType());
    Layout layout = *layoutOf(type);
    // Of a matrix whose last row is the largest the registers that have it for some thread.
    bool isRowEnough = op.getRising() && number == 0 && llvm::isPowerOf2_64(type.getDimSize(0));
    auto rowOf = [&](uint64_t point) { return layout.coordinate(point, 0); };
    int64_t last = rowOf(layout.reach(Layout::Register));
    SmallVector<Value> numbers;
    for (auto [reg, value] : llvm::enumerate(registersOf(operand)))
      if (value) {
        if (isRowEnough && rowOf(layout.at(Layout::Register, reg)) != last)
          continue;
        Value exists = b.isInside(layout, type.getShape(), reg);
        numbers.push_back(exists ? b.select(exists, value, b.zero(type.getElementType())) : value);
      }
    if (numbers.empty())
      continue;
    for (Value largest : largestMagnitudes(b, numbers)) {
      if (type.getElementTypeBitWidth() < 32)
        largest = arith::ExtFOp::create(b, b.getF32Type(), largest);
      Value own = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, largest, b.real(largest.getType(), limit));
      exceeds = exceeds ? arith::OrIOp::create(b, exceeds, own).getResult() : own;
    }
  }
  chunk::WithinOp later = askedTogether(op);
  if (later)
    exceeded[later] = exceeds;
  scalars.map(op.getResult(), later ? b.i1(true) : b.none(exceeds));
}

//===----------------------------------------------------------------------===//
// Decay between two tokens, one for all channels
//===----------------------------------------------------------------------===//

void ThreadLowering::lowerDecayMatrix(chunk::DecayMatrixOp op) {
  auto type = cast<RankedTensorType>(op.getType()), amountType = cast<RankedTensorType>(op.getAmount().getType());
  Layout layout = *layoutOf(type);
  bool isLog = op.getForm() == chunk::DecayForm::Log;
  auto kind = isLog ? chunk::Accumulation::Sum : chunk::Accumulation::Product;
  Type element = type.getElementType();
  SharedTile tile = scratchTile(scratchOf(op), amountType);
  toShared(registersOf(op.getAmount()), amountType, tile);
  b.barrier();

  // A thread walks from the last column to the first. For each of its rows it has the product of the factors after
  // the column, up to the row (before the row's own: up to the row before it), and keeps it where a column is its own.
  struct Row {
    Value last, product;
  };
  llvm::MapVector<int64_t, Row> rows;
  Value neutral = b.real(element, isLog ? 0.0 : 1.0);
  for (int64_t reg = 0; reg < layout.size(Layout::Register); ++reg) {
    Row &row = rows[layout.coordinate(layout.at(Layout::Register, reg), 0)];
    if (!row.last)
      row = {b.add(b.coordinate(layout, 0, reg), op.getBefore() ? -1 : 0), neutral};
  }
  uint64_t reach = layout.coordinate(layout.reach(Layout::Lane) | layout.reach(Layout::Warp), 1);
  Value ownColumn = b.coordinate(layout, 1, 0);
  llvm::SmallDenseMap<uint64_t, Value> isOwn;
  for (int64_t column = 0; column <= static_cast<int64_t>(reach); ++column)
    if ((column & ~reach) == 0)
      isOwn[column] = b.compare(arith::CmpIPredicate::eq, ownColumn, b.i32(column));
  Registers result(layout.size(Layout::Register));
  constexpr int64_t together = 4;
  Registers amounts;
  for (int64_t column = type.getDimSize(1) - 1; column >= 0; --column) {
    if (amounts.empty()) {
      int64_t count = std::min(column + 1, together);
      if ((column + 1) % together)
        count = 1;
      amounts = b.load(b.advance(tile.base, (column + 1 - count) * tile.elementBytes()), element, count);
    }
    Value amount = amounts.pop_back_val();
    for (int64_t reg = 0; reg < layout.size(Layout::Register); ++reg) {
      uint64_t own = layout.at(Layout::Register, reg);
      if (layout.coordinate(own, 1) != static_cast<int64_t>(column & ~reach))
        continue;
      const Row &row = rows[layout.coordinate(own, 0)];
      result[reg] = result[reg] ? b.select(isOwn[column & reach], row.product, result[reg]) : row.product;
    }
    for (auto &[index, row] : rows) {
      Value counts = b.compare(arith::CmpIPredicate::sge, row.last, b.i32(column));
      row.product = accumulated(b, kind, row.product, b.select(counts, amount, neutral));
    }
  }
  Value zero = b.zero(element);
  auto predicate = op.getBefore() ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sle;
  define(op.getResult(), [&](uint64_t reg) {
    Value factor = isLog ? math::ExpOp::create(b, result[reg]).getResult() : result[reg];
    Value kept = b.compare(predicate, b.coordinate(layout, 1, reg), b.coordinate(layout, 0, reg));
    return b.select(kept, factor, zero);
  });
}

//===----------------------------------------------------------------------===//
// Decay between two tokens, one for each channel
//
// A group of neighbouring lanes has one row of the queries, each of them some channels. It walks back from the row's
// token, multiplies the query by one more factor at each step, and the result by the key of that token; the sum of all
// channels is one entry of the product. No exponential, quotient or difference occurs.
//===----------------------------------------------------------------------===//

LogicalResult ThreadLowering::lowerDecayDot(chunk::DecayDotOp op) {
  if (!op->hasAttr(chunk::exactAttribute))
    return op.emitOpError("has no form on a GPU unless it is exact; run stretto-expand-decay first");
  auto queryType = cast<RankedTensorType>(op.getQuery().getType()),
       amountType = cast<RankedTensorType>(op.getAmount().getType()), type = cast<RankedTensorType>(op.getType());
  int64_t tokens = queryType.getDimSize(0), threads = threadsOfRole();
  if (amountType.getRank() != 2 || threads % tokens)
    return op.emitOpError("multiplies ") << tokens << " tokens with decays of type " << amountType << " on " << threads
                                         << " threads, expected a decay for each channel and a divisor of the threads";
  Type element = type.getElementType();

  // Everything in shared memory: queries, keys, factors, and the product.
  Value base = scratchOf(op);
  auto nextTile = [&](RankedTensorType tileType) {
    SharedTile tile = scratchTile(base, tileType);
    base = b.advance(base, sharedBytesOf(tileType));
    return tile;
  };
  bool areKeysThere = inSharedMemory(op.getKey().getType());
  SharedTile queries = nextTile(queryType), factors = nextTile(amountType), products = nextTile(type);
  SharedTile keys = areKeysThere ? sharedTiles.find(op.getKey())->second : nextTile(queryType);
  toShared(registersOf(op.getQuery()), queryType, queries, Padding::All);
  if (!areKeysThere)
    toShared(registersOf(op.getKey()), queryType, keys, Padding::All);
  Registers amounts = registersOf(op.getAmount());
  if (op.getForm() == chunk::DecayForm::Log)
    for (Value &amount : amounts)
      amount = amount ? math::ExpOp::create(b, amount).getResult() : amount;
  toShared(amounts, amountType, factors, Padding::All);
  b.barrier();

  int64_t lanesOfRow = threads / tokens, channels = queries.getLayout().side(1);
  int64_t perLane = std::min<int64_t>(16, std::max<int64_t>(channels / lanesOfRow, 1));
  Value thread = b.add(b.mul(b.warp, 32), b.lane);
  Value row = arith::ShRUIOp::create(b, thread, b.i32(bitsToCount(lanesOfRow)));
  Value part = arith::AndIOp::create(b, thread, b.i32(lanesOfRow - 1));
  Value isFirst = b.compare(arith::CmpIPredicate::eq, part, b.i32(0));
  auto address = [&](const SharedTile &tile, Value row, Value column) {
    Value offset = b.combine(b.linear(row, tile.byteOffsetsOf(0)), b.linear(column, tile.byteOffsetsOf(1)));
    return b.advance(tile.base, offset);
  };
  // `perLane` neighbouring channels of a row, from a multiple of it on, in the type of the sums.
  auto load = [&](const SharedTile &tile, Value row, Value channel) {
    int64_t together = std::min<int64_t>(perLane, 16 / tile.elementBytes());
    Registers result;
    for (int64_t from = 0; from < perLane; from += together)
      for (Value value : b.load(address(tile, row, b.add(channel, from)), tile.type.getElementType(), together))
        result.push_back(b.widen(value, element));
    return result;
  };

  int64_t firstStep = op.getBefore() ? 1 : 0;
  for (int64_t from = 0; from < channels; from += perLane * lanesOfRow) {
    Value channel = b.add(b.mul(part, perLane), from);
    Registers query = load(queries, row, channel);
    auto loop = scf::ForOp::create(b, b.i32(firstStep), b.i32(tokens), b.i32(1), query);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value column = b.sub(row, loop.getInductionVar());
    Value exists = b.compare(arith::CmpIPredicate::sge, column, b.i32(0));
    column = arith::MaxSIOp::create(b, column, b.i32(0));
    Registers key = load(keys, column, channel), factor = load(factors, column, channel), decayed;
    Value sum;
    for (auto [index, own] : llvm::enumerate(loop.getRegionIterArgs())) {
      Value product = arith::MulFOp::create(b, own, key[index]);
      sum = sum ? arith::AddFOp::create(b, sum, product).getResult() : product;
      decayed.push_back(arith::MulFOp::create(b, own, factor[index]));
    }
    for (int64_t distance = 1; distance < lanesOfRow; distance *= 2)
      sum = arith::AddFOp::create(b, sum, b.shuffleXor(sum, distance));
    auto store = scf::IfOp::create(b, b.both(exists, isFirst));
    scf::YieldOp::create(b, decayed);
    b.setInsertionPointToStart(store.thenBlock());
    Value target = address(products, row, column);
    if (from > 0)
      sum = arith::AddFOp::create(b, sum, b.load(target, element, 1)[0]);
    b.store(target, sum);
  }
  b.barrier();
  Registers result = fromShared(products, type);
  Layout layout = *layoutOf(type);
  Value zero = b.zero(element);
  auto predicate = op.getBefore() ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sle;
  define(op.getResult(), [&](uint64_t reg) {
    Value kept = b.compare(predicate, b.coordinate(layout, 1, reg), b.coordinate(layout, 0, reg));
    return b.select(kept, result[reg], zero);
  });
  return success();
}
