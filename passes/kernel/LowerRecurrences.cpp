//===- LowerRecurrences.cpp - What walks from token to token --------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernel/ThreadLowering.h"
#include <limits>

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Consecutive regions of the scratch memory of an operation.
class ScratchTiles {
public:
  ScratchTiles(ThreadBuilder &b, Value base) : b(b), base(base) {}

  SharedTile next(Type tile) {
    auto type = cast<RankedTensorType>(tile);
    Layout layout = sharedLayout(type.getShape(), llvm::divideCeil(type.getElementTypeBitWidth(), 8));
    SharedTile result(withLayout(type, layout), base);
    base = b.advance(base, sharedBytesOf(type));
    return result;
  }

private:
  ThreadBuilder &b;
  Value base;
};

/// The byte offset of a coordinate of one side.
uint64_t offsetOf(const SharedTile &tile, unsigned side, int64_t coordinate) {
  SmallVector<int64_t, 2> coordinates(2, 0);
  coordinates[side] = coordinate;
  return tile.byteOffset(tile.getLayout().flat(coordinates));
}

/// Elements of a tile in shared memory, one side of whose coordinates is that of registers in some layout and the other
/// a number that is computed.
class Across {
public:
  Across(ThreadBuilder &b, const SharedTile &tile, unsigned side, const Layout &layout, unsigned layoutSide)
      : b(b), tile(tile), side(side), layout(layout), layoutSide(layoutSide) {
    auto offsets = [&](Layout::Space space) {
      return llvm::map_to_vector(layout.basis(space), [&](uint64_t vector) {
        return offsetOf(tile, side, layout.coordinate(vector, layoutSide));
      });
    };
    ofThread = b.linear(offsets(Layout::Lane), offsets(Layout::Warp));
  }

  void moveTo(Value other) { atOther = b.combine(ofThread, b.linear(other, tile.byteOffsetsOf(1 - side))); }

  Registers load(uint64_t reg, int64_t count) {
    uint64_t own = offsetOf(tile, side, layout.coordinate(layout.at(Layout::Register, reg), layoutSide));
    Value offset = atOther ? b.bitXor(atOther, own) : b.i32(own);
    return b.load(b.advance(tile.base, offset), tile.type.getElementType(), count);
  }

private:
  ThreadBuilder &b;
  const SharedTile &tile;
  unsigned side;
  const Layout &layout;
  unsigned layoutSide;
  Value ofThread, atOther;
};

} // namespace

//===----------------------------------------------------------------------===//
// Decayed rows, mixed: each thread sums its elements of the result by Horner's rule, over all tokens, of which it
// leaves out those behind the diagonal. No exponential, quotient or difference occurs.
//===----------------------------------------------------------------------===//

LogicalResult ThreadLowering::lowerDecayMix(chunk::DecayMixOp op) {
  auto amountType = cast<RankedTensorType>(op.getAmount().getType()), type = cast<RankedTensorType>(op.getType());
  if (!op->hasAttr(chunk::exactAttribute) || amountType.getRank() != 2 || op.getAddend())
    return op.emitOpError("has no form on a GPU unless it is exact and adds nothing; run stretto-expand-decay first");
  bool before = op.getBefore(), transpose = op.getTranspose();
  Type element = type.getElementType();
  ScratchTiles scratch(b, scratchOf(op));
  SharedTile weights = scratch.next(op.getWeights().getType()), rows = scratch.next(op.getRows().getType()),
             factors = scratch.next(amountType);
  auto share = [&](Value tile, const SharedTile &target) {
    toShared(registersOf(tile), cast<RankedTensorType>(tile.getType()), target, Padding::All);
  };
  share(op.getWeights(), weights);
  share(op.getRows(), rows);
  Registers amounts = registersOf(op.getAmount());
  if (op.getForm() == chunk::DecayForm::Log)
    for (Value &amount : amounts)
      amount = amount ? math::ExpOp::create(b, amount).getResult() : amount;
  toShared(amounts, amountType, factors, Padding::All);
  b.barrier();

  Layout layout = *layoutOf(type);
  SmallVector<uint64_t> held;
  for (int64_t reg = 0; reg < layout.size(Layout::Register); ++reg)
    if (ThreadBuilder::inside(layout, type.getShape(), reg) != ThreadBuilder::Inside::Never)
      held.push_back(reg);
  unsigned bits = std::min(neighbouringBits(layout, rows), neighbouringBits(layout, factors));
  int64_t together = int64_t(1) << bits, tokens = type.getDimSize(0);
  Across weightAcross(b, weights, transpose ? 1 : 0, layout, 0), rowAcross(b, rows, 1, layout, 1),
      factorAcross(b, factors, 1, layout, 1);

  SmallVector<Value> zeros(held.size(), b.zero(element));
  auto loop = scf::ForOp::create(b, b.i32(0), b.i32(tokens), b.i32(1), zeros);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value step = loop.getInductionVar(), other = transpose ? b.sub(b.i32(tokens - 1), step) : step;
    for (Across *across : {&weightAcross, &rowAcross, &factorAcross})
      across->moveTo(other);
    /// What depends on the row of an element only.
    struct Row {
      Value weight, joins, isItself;
    };
    llvm::SmallDenseMap<int64_t, Row> byRow;
    auto rowOf = [&](uint64_t reg) {
      Row &row = byRow[layout.coordinate(layout.at(Layout::Register, reg), 0)];
      if (row.weight)
        return row;
      Value own = b.coordinate(layout, 0, reg), first = transpose ? own : other, last = transpose ? other : own;
      row.weight = b.widen(weightAcross.load(reg, 1)[0], element);
      row.joins = b.compare(before ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sle, first, last);
      row.isItself = b.compare(arith::CmpIPredicate::eq, first, last);
      return row;
    };
    SmallVector<Value> next;
    Registers entries, decays;
    for (auto [index, reg] : llvm::enumerate(held)) {
      if (reg % together == 0 || entries.empty()) {
        entries = rowAcross.load(reg & ~(together - 1), together);
        decays = factorAcross.load(reg & ~(together - 1), together);
      }
      Row row = rowOf(reg);
      Value sum = loop.getRegionIterArg(index), factor = decays[reg % together];
      Value joined = arith::MulFOp::create(b, row.weight, b.widen(entries[reg % together], element));
      if (transpose && !before) {
        // The product ends with the token that joined: it decays afterwards, except for its own result.
        Value all = arith::AddFOp::create(b, sum, joined);
        joined = b.select(row.isItself, all, arith::MulFOp::create(b, all, factor));
      } else {
        joined = arith::AddFOp::create(b, arith::MulFOp::create(b, sum, factor), joined);
      }
      next.push_back(b.select(row.joins, joined, sum));
    }
    scf::YieldOp::create(b, next);
  }
  Registers result(layout.size(Layout::Register));
  for (auto [reg, value] : llvm::zip(held, loop.getResults()))
    result[reg] = value;
  registers[op.getResult()] = std::move(result);
  return success();
}

//===----------------------------------------------------------------------===//
// A thread for each column
//===----------------------------------------------------------------------===//

void ThreadLowering::forOwnColumn(const SharedTile &tile, function_ref<void(Value)> body) {
  int64_t threads = threadsOfRole(), columns = tile.getLayout().side(1);
  Value thread = b.add(b.mul(b.warp, 32), b.lane);
  for (int64_t from = 0; from < columns; from += threads) {
    Value column = b.add(thread, from);
    OpBuilder::InsertionGuard guard(b);
    if (columns - from < threads)
      b.setInsertionPointToStart(scf::IfOp::create(b, b.less(column, columns)).thenBlock());
    body(column);
  }
}

void ThreadLowering::toSharedMatrix(Value matrix, const SharedTile &tile, bool transpose) {
  Layout layout = *layoutOf(matrix.getType());
  auto placed = [&](uint64_t flat) -> uint64_t {
    int64_t row = layout.coordinate(flat, 0), column = layout.coordinate(flat, 1);
    return transpose ? tile.getLayout().flat({column, row}) : tile.getLayout().flat({row, column});
  };
  auto placedBasis = [&](Layout::Space space) { return llvm::map_to_vector(layout.basis(space), placed); };
  Addresses places(b, tile, placedBasis(Layout::Lane), placedBasis(Layout::Warp));
  for (auto [reg, value] : llvm::enumerate(registersOf(matrix)))
    if (value)
      b.store(places.at(placed(layout.at(Layout::Register, reg))), value);
}

// Sixteen rows at a time in registers: first without what the rows that are done contribute, then one after the other.
void ThreadLowering::lowerSolve(chunk::SolveOp op) {
  constexpr int64_t blockRows = 16, together = 4;
  auto type = cast<RankedTensorType>(op.getType()), matrixType = cast<RankedTensorType>(op.getMatrix().getType());
  Type element = type.getElementType();
  int64_t tokens = type.getDimSize(0);
  bool transpose = op.getTranspose();
  ScratchTiles scratch(b, scratchOf(op));
  SharedTile matrix = scratch.next(matrixType), rows = scratch.next(type);
  toShared(registersOf(op.getRows()), type, rows, Padding::All);
  // The matrix lies so that what one row contributes to sixteen neighbouring ones are neighbours.
  toSharedMatrix(op.getMatrix(), matrix, /*transpose=*/!transpose);
  b.barrier();

  forOwnColumn(rows, [&](Value column) {
    Value ofColumn = b.linear(column, rows.byteOffsetsOf(1));
    auto place = [&](Value row) {
      return b.advance(rows.base, b.combine(ofColumn, b.linear(row, rows.byteOffsetsOf(0))));
    };
    auto blocks = scf::ForOp::create(b, b.i32(0), b.i32(llvm::divideCeil(tokens, blockRows)), b.i32(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(blocks.getBody());
    Value first = b.mul(blocks.getInductionVar(), blockRows);
    if (transpose)
      first = b.sub(b.i32(llvm::alignTo(tokens, blockRows) - blockRows), first);
    Value ofBlock = b.linear(first, matrix.byteOffsetsOf(1));
    // What token `other` contributes to each row of the block is its own number times these.
    auto weights = [&](Value other) {
      Value offset = b.combine(ofBlock, b.linear(other, matrix.byteOffsetsOf(0)));
      Registers result;
      for (int64_t r = 0; r < blockRows; r += together)
        llvm::append_range(result,
                           b.load(b.advance(matrix.base, b.bitXor(offset, offsetOf(matrix, 1, r))), element, together));
      return result;
    };
    auto subtract = [&](Value from, Value weight, Value number) -> Value {
      return arith::SubFOp::create(b, from, arith::MulFOp::create(b, weight, number));
    };
    Registers sums;
    for (int64_t r = 0; r < blockRows; ++r)
      sums.push_back(b.load(place(b.add(first, r)), element, 1)[0]);
    Value from = transpose ? b.add(first, blockRows) : b.i32(0), to = transpose ? b.i32(tokens) : first;
    auto done = scf::ForOp::create(b, from, to, b.i32(1), sums);
    {
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(done.getBody());
      Value other = done.getInductionVar(), number = b.load(place(other), element, 1)[0];
      Registers next;
      for (auto [sum, weight] : llvm::zip(done.getRegionIterArgs(), weights(other)))
        next.push_back(subtract(sum, weight, number));
      scf::YieldOp::create(b, next);
    }
    sums.assign(done.result_begin(), done.result_end());
    for (int64_t step = 0; step < blockRows; ++step) {
      int64_t own = transpose ? blockRows - 1 - step : step;
      Value row = b.add(first, own);
      Registers ofRow = weights(row);
      for (int64_t r = transpose ? 0 : own + 1; r < (transpose ? own : blockRows); ++r)
        sums[r] = subtract(sums[r], ofRow[r], sums[own]);
      b.store(place(row), sums[own]);
    }
  });
  b.barrier();
  Registers result = fromShared(rows, type);
  registers[op.getResult()] = std::move(result);
}

// Queries i, sixteen at a time, the last first. For each the thread keeps what it sees of the keys of tokens before t,
// decayed up to t, while t walks to the query; the result at t gathers their products from the last query to t by
// Horner's rule. No exponential, quotient or difference occurs.
void ThreadLowering::lowerDecayPairs(chunk::DecayPairsOp op) {
  constexpr int64_t blockRows = 16, together = 4;
  auto type = cast<RankedTensorType>(op.getType());
  Type element = type.getElementType();
  int64_t tokens = type.getDimSize(0);
  ScratchTiles scratch(b, scratchOf(op));
  auto share = [&](const Registers &source, Type tile) {
    SharedTile shared = scratch.next(tile);
    toShared(source, cast<RankedTensorType>(tile), shared, Padding::All);
    return shared;
  };
  SharedTile queries = share(registersOf(op.getQuery()), type), keys = share(registersOf(op.getKey()), type);
  Registers amounts = registersOf(op.getAmount());
  if (op.getForm() == chunk::DecayForm::Log)
    for (Value &amount : amounts)
      amount = amount ? math::ExpOp::create(b, amount).getResult() : amount;
  SharedTile factors = share(amounts, op.getAmount().getType());
  SharedTile weights = scratch.next(op.getWeights().getType()), sums = scratch.next(type);
  toSharedMatrix(op.getWeights(), weights, /*transpose=*/true);
  b.barrier();

  forOwnColumn(sums, [&](Value column) {
    Value ofColumn = b.linear(column, sums.byteOffsetsOf(1)); // alike in all tiles of this type
    auto offsetAt = [&](Value row) { return b.combine(ofColumn, b.linear(row, sums.byteOffsetsOf(0))); };
    auto load = [&](const SharedTile &tile, Value offset) {
      return b.load(b.advance(tile.base, offset), element, 1)[0];
    };
    auto times = [&](Value x, Value y, Value z) -> Value {
      return arith::AddFOp::create(b, arith::MulFOp::create(b, x, y), z);
    };
    auto initial = scf::ForOp::create(b, b.i32(0), b.i32(llvm::alignTo(tokens, blockRows)), b.i32(1));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(initial.getBody());
      b.store(b.advance(sums.base, offsetAt(initial.getInductionVar())), b.zero(element));
    }
    auto blocks = scf::ForOp::create(b, b.i32(0), b.i32(llvm::divideCeil(tokens, blockRows)), b.i32(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(blocks.getBody());
    Value number = b.sub(b.i32(llvm::divideCeil(tokens, blockRows) - 1), blocks.getInductionVar());
    Value first = b.mul(number, blockRows), ofBlock = b.linear(first, weights.byteOffsetsOf(1));
    Registers query, factor;
    for (int64_t r = 0; r < blockRows; ++r) {
      Value offset = offsetAt(b.add(first, r));
      query.push_back(load(queries, offset));
      factor.push_back(load(factors, offset));
    }
    // Behind the last query nothing has been gathered yet: any factor will do.
    Value after = arith::MinSIOp::create(b, b.add(first, blockRows), b.i32(tokens - 1));
    Value factorAfter = load(factors, offsetAt(after));
    // Token t, of which the queries from `from` on are not before it: its result; then what they see with its key.
    auto meet = [&](Value token, int64_t from, MutableArrayRef<Value> seen) {
      Value offset = offsetAt(token), sum = load(sums, offset);
      for (int64_t r = blockRows - 1; r >= from; --r)
        sum = times(r + 1 < blockRows ? factor[r + 1] : factorAfter, sum, arith::MulFOp::create(b, query[r], seen[r]));
      b.store(b.advance(sums.base, offset), sum);
      Value key = load(keys, offset), decay = load(factors, offset);
      Value ofToken = b.combine(ofBlock, b.linear(token, weights.byteOffsetsOf(0)));
      for (int64_t r = 0; r < blockRows; r += together) {
        Registers weight =
            b.load(b.advance(weights.base, b.bitXor(ofToken, offsetOf(weights, 1, r))), element, together);
        for (int64_t within = r; within < r + together; ++within)
          seen[within] = times(decay, seen[within], arith::MulFOp::create(b, weight[within - r], key));
      }
    };
    SmallVector<Value> none(blockRows, b.zero(element));
    auto before = scf::ForOp::create(b, b.i32(0), first, b.i32(1), none);
    {
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(before.getBody());
      SmallVector<Value> seen(before.getRegionIterArgs());
      meet(before.getInductionVar(), 0, seen);
      scf::YieldOp::create(b, seen);
    }
    SmallVector<Value> seen(before.getResults());
    for (int64_t step = 0; step < blockRows; ++step)
      meet(b.add(first, step), step, seen);
  });
  b.barrier();
  Registers result = fromShared(sums, type);
  registers[op.getResult()] = std::move(result);
}

/// log(e^x + e^y); where one is infinite, the larger.
static Value logAddExp(ThreadBuilder &b, Value x, Value y) {
  Type type = x.getType();
  Value larger = arith::MaximumFOp::create(b, x, y);
  Value distance = math::AbsFOp::create(b, arith::SubFOp::create(b, x, y));
  Value rest = math::Log1pOp::create(b, math::ExpOp::create(b, arith::NegFOp::create(b, distance)));
  Value isInfinite = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, math::AbsFOp::create(b, larger),
                                           b.real(type, std::numeric_limits<double>::infinity()));
  return b.select(isInfinite, larger, arith::AddFOp::create(b, larger, rest));
}

void ThreadLowering::lowerScan(chunk::ScanOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  Type element = type.getElementType();
  ScratchTiles scratch(b, scratchOf(op));
  auto share = [&](Value tile) {
    SharedTile shared = scratch.next(tile.getType());
    toShared(registersOf(tile), cast<RankedTensorType>(tile.getType()), shared, Padding::All);
    return shared;
  };
  SharedTile rows = share(op.getOperand()), carry = share(op.getCarry()), logs;
  if (op.getLog())
    logs = share(op.getLog());
  b.barrier();
  auto step = [&](Value running, Value log, Value number) -> Value {
    if (op.getKind() == chunk::ScanKind::Add) {
      Value kept = log ? arith::MulFOp::create(b, running, math::ExpOp::create(b, log)).getResult() : running;
      return arith::AddFOp::create(b, kept, number);
    }
    Value shifted = log ? arith::AddFOp::create(b, running, log).getResult() : running;
    if (op.getKind() == chunk::ScanKind::Max)
      return arith::MaximumFOp::create(b, shifted, number);
    return logAddExp(b, shifted, number);
  };
  forOwnColumn(rows, [&](Value column) {
    auto place = [&](const SharedTile &tile, Value row) {
      Value offset = b.linear(column, tile.byteOffsetsOf(1));
      return b.advance(tile.base, b.combine(offset, b.linear(row, tile.byteOffsetsOf(0))));
    };
    Value before = b.load(place(carry, b.i32(0)), element, 1)[0];
    auto loop = scf::ForOp::create(b, b.i32(0), b.i32(type.getDimSize(0)), b.i32(1), before);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value row = loop.getInductionVar(), target = place(rows, row);
    Value log = op.getLog() ? b.load(place(logs, row), element, 1)[0] : Value();
    Value after = step(loop.getRegionIterArg(0), log, b.load(target, element, 1)[0]);
    b.store(target, after);
    scf::YieldOp::create(b, after);
  });
  b.barrier();
  Registers result = fromShared(rows, type);
  registers[op.getResult()] = std::move(result);
}
