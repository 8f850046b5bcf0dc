//===- Recurrences.cpp - What walks from token to token -------------------===//
//
// A few rows of a result at a time, in registers, take in the other tokens one by one, then each other.
//
// `decay_mix` sums by Horner's rule, y_i = (.. (P_i0 k_0) a_1 + P_i1 k_1) a_2 + ..: a multiplication more than a plain
// product has for each term, and as in `decay_dot` nothing but the factors themselves. `solve` substitutes, the rows
// that are done already read from memory. Transposed, both walk from the last token down.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

/// Rows of a result that are in registers together.
static constexpr int64_t mostRows = 4;

Value KernelLowering::weightBetween(Value matrix, bool transpose, Value own, Value other) {
  Storage stored = storage.lookup(matrix);
  bool ownFirst = (stored.rows != nullptr) != transpose;
  Value buffer = stored.rows ? stored.rows : stored.transposed;
  return ownFirst ? builder.loadSplat(buffer, {own, other}) : builder.loadSplat(buffer, {other, own});
}

//===----------------------------------------------------------------------===//
// Decayed rows, mixed
//===----------------------------------------------------------------------===//

void KernelLowering::computeDecayMix(chunk::DecayMixOp op) {
  int64_t tokens = shapeOf(op.getRows())[0], channels = shapeOf(op.getRows())[1];
  bool before = op.getBefore(), transpose = op.getTranspose(), perToken = rankOf(op.getAmount()) == 1;
  Value rows = storage[op.getRows()].rows, factors = decays[{op.getAmount(), op.getForm()}].factors;
  Value result = allocateRows(tokens, channels);

  auto computeRows = [&](ArrayRef<Point> strip, Value row, int64_t count) {
    // Token `other` joins the sums of the results [from, to) of `count`. What has joined before is decayed by it first;
    // in the transposed form, where a product ends with the token that joined, afterwards, except for its own result.
    auto join = [&](ValueRange sums, Value other, int64_t from, int64_t to, int64_t own) {
      SmallVector<Value> next(sums);
      bool decayAfter = transpose && !before;
      for (auto [v, point] : llvm::enumerate(strip)) {
        Value entries = builder.load(rows, {other, point.column});
        Value factor = perToken ? builder.loadSplat(factors, other) : builder.load(factors, {other, point.column});
        for (int64_t r = from; r < to; ++r) {
          Value &sum = next[r * strip.size() + v];
          if (!decayAfter)
            sum = builder.mul(sum, factor);
          Value weight = weightBetween(op.getWeights(), transpose, builder.add(row, r), other);
          sum = vector::FMAOp::create(builder, weight, entries, sum);
          if (decayAfter && r != own)
            sum = builder.mul(sum, factor);
        }
      }
      return next;
    };
    SmallVector<Value> sums(count * strip.size(), builder.splat(0.0));
    Value others = transpose ? builder.subtract(builder.index(tokens - count), row) : row;
    sums = builder.sum(builder.index(0), others, sums, [&](Value step, ValueRange carried) {
      Value other = transpose ? builder.subtract(builder.index(tokens - 1), step) : step;
      return join(carried, other, 0, count, /*own=*/-1);
    });
    // The tokens of these rows themselves: each joins the results on its side.
    for (int64_t step = 0; step < count; ++step) {
      int64_t own = transpose ? count - 1 - step : step, skipped = before ? 1 : 0;
      sums =
          join(sums, builder.add(row, own), transpose ? 0 : own + skipped, transpose ? own + 1 - skipped : count, own);
    }
    for (int64_t r = 0; r < count; ++r)
      for (auto [v, point] : llvm::enumerate(strip)) {
        Point place = {builder.add(row, r), point.column, point.lanes};
        Value sum = sums[r * strip.size() + v];
        known.clear();
        if (op.getAddend())
          sum = arith::AddFOp::create(builder, evaluate(op.getAddend(), place), sum);
        storeAt(sum, result, place);
      }
  };
  int64_t whole = tokens / mostRows * mostRows;
  forStrips(channels, std::max<int64_t>(1, machine.registers / 16), [&](ArrayRef<Point> strip) {
    builder.loop(0, whole, mostRows, [&](Value row) { computeRows(strip, row, mostRows); });
    if (whole < tokens)
      computeRows(strip, builder.index(whole), tokens - whole);
  });
  storage[op.getResult()].rows = result;
}

//===----------------------------------------------------------------------===//
// Substitution
//===----------------------------------------------------------------------===//

void KernelLowering::computeSolve(chunk::SolveOp op) {
  int64_t tokens = shapeOf(op.getRows())[0], channels = shapeOf(op.getRows())[1];
  bool transpose = op.getTranspose();
  Value result = allocateRows(tokens, channels);

  auto solveRows = [&](ArrayRef<Point> strip, Value row, int64_t count) {
    auto minusWeight = [&](int64_t r, Value other) -> Value {
      return arith::NegFOp::create(builder, weightBetween(op.getMatrix(), transpose, builder.add(row, r), other));
    };
    SmallVector<Value> sums;
    for (int64_t r = 0; r < count; ++r)
      for (Point point : strip)
        sums.push_back(evaluateAnew(op.getRows(), {builder.add(row, r), point.column, point.lanes}));
    // The rows that are done: those before, transposed those after.
    Value from = transpose ? builder.add(row, count) : builder.index(0);
    Value to = transpose ? builder.index(tokens) : row;
    sums = builder.sum(from, to, sums, [&](Value other, ValueRange carried) {
      SmallVector<Value> next(carried);
      for (auto [v, point] : llvm::enumerate(strip)) {
        Value entries = builder.load(result, {other, point.column});
        for (int64_t r = 0; r < count; ++r) {
          Value &sum = next[r * strip.size() + v];
          sum = vector::FMAOp::create(builder, minusWeight(r, other), entries, sum);
        }
      }
      return next;
    });
    for (int64_t step = 0; step < count; ++step) {
      int64_t own = transpose ? count - 1 - step : step;
      Value other = builder.add(row, own);
      for (auto [v, point] : llvm::enumerate(strip)) {
        Value done = sums[own * strip.size() + v];
        storeAt(done, result, {other, point.column, point.lanes});
        for (int64_t r = transpose ? 0 : own + 1; r < (transpose ? own : count); ++r) {
          Value &sum = sums[r * strip.size() + v];
          sum = vector::FMAOp::create(builder, minusWeight(r, other), done, sum);
        }
      }
    }
  };
  int64_t whole = tokens / mostRows * mostRows;
  forStrips(channels, std::max<int64_t>(1, machine.registers / 16), [&](ArrayRef<Point> strip) {
    auto solveRest = [&] {
      if (whole < tokens)
        solveRows(strip, builder.index(whole), tokens - whole);
    };
    if (transpose)
      solveRest();
    builder.loop(0, whole, mostRows, [&](Value row) {
      solveRows(strip, transpose ? builder.subtract(builder.index(whole - mostRows), row) : row, mostRows);
    });
    if (!transpose)
      solveRest();
  });
  storage[op.getResult()].rows = result;
}

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

namespace {
/// A number and what rounding took from it.
struct Compensated {
  Value number, rest;
};
} // namespace

/// log(e^a + e^b); where one is infinite, the larger. What a long sum of small terms loses is kept for the next term.
static Compensated logAddExp(VectorBuilder &builder, Compensated a, Value b) {
  Value larger = arith::MaximumFOp::create(builder, a.number, b);
  Value distance = math::AbsFOp::create(builder, arith::SubFOp::create(builder, a.number, b));
  Value added = math::Log1pOp::create(builder, math::ExpOp::create(builder, arith::NegFOp::create(builder, distance)));
  Value isFirst = arith::CmpFOp::create(builder, arith::CmpFPredicate::OGE, a.number, b);
  added = arith::AddFOp::create(builder, added, builder.selectOrZero(isFirst, a.rest));
  Value sum = arith::AddFOp::create(builder, larger, added);
  Value rest = arith::SubFOp::create(builder, added, arith::SubFOp::create(builder, sum, larger));
  Value magnitude = math::AbsFOp::create(builder, larger);
  Value isFinite = arith::CmpFOp::create(builder, arith::CmpFPredicate::ULT, magnitude,
                                         builder.splat(std::numeric_limits<double>::infinity()));
  return {arith::SelectOp::create(builder, isFinite, sum, larger), builder.selectOrZero(isFinite, rest)};
}

/// From the last token down, the weighted sums of what queries behind a token take of each key are decayed by one more
/// token, and the keys before it are summed with them by Horner's rule: the token's own factor occurs in neither.
void KernelLowering::computeDecayPairs(chunk::DecayPairsOp op) {
  int64_t tokens = shapeOf(op.getQuery())[0], channels = shapeOf(op.getQuery())[1];
  Value queries = storage[op.getQuery()].rows, keys = storage[op.getKey()].rows;
  Value factors = decays[{op.getAmount(), op.getForm()}].factors;
  Value result = allocateRows(tokens, channels), taken = allocateRows(tokens, channels);
  forStrips(channels, machine.registers / 8, [&](ArrayRef<Point> strip) {
    builder.loop(0, tokens, 1, [&](Value j) {
      for (Point point : strip)
        builder.store(builder.splat(0.0), taken, {j, point.column});
    });
    SmallVector<Value> ones(strip.size(), builder.splat(1.0));
    builder.loop(builder.index(0), builder.index(tokens), ones, [&](Value step, ValueRange factorsBehind) {
      Value token = builder.subtract(builder.index(tokens - 1), step);
      SmallVector<Value> own, zeros(strip.size(), builder.splat(0.0)), query;
      for (Point point : strip) {
        own.push_back(builder.load(factors, {token, point.column}));
        query.push_back(builder.load(queries, {token, point.column}));
      }
      SmallVector<Value> sums = builder.loop(builder.index(0), token, zeros, [&](Value j, ValueRange carried) {
        Value weight = weightBetween(op.getWeights(), /*transpose=*/false, token, j);
        SmallVector<Value> next;
        for (auto [v, point] : llvm::enumerate(strip)) {
          Value decayed = builder.mul(builder.load(taken, {j, point.column}), factorsBehind[v]);
          Value joined = vector::FMAOp::create(builder, weight, query[v], decayed);
          builder.store(joined, taken, {j, point.column});
          Value sum = builder.mul(carried[v], builder.load(factors, {j, point.column}));
          next.push_back(vector::FMAOp::create(builder, builder.load(keys, {j, point.column}), joined, sum));
        }
        return next;
      });
      for (auto [sum, point] : llvm::zip(sums, strip))
        builder.store(sum, result, {token, point.column});
      return own;
    });
  });
  release(taken);
  storage[op.getResult()].rows = result;
}

void KernelLowering::computeConvBack(chunk::ConvBackOp op) {
  int64_t tokens = shapeOf(op.getOperand())[0], channels = shapeOf(op.getOperand())[1];
  int64_t count = shapeOf(op.getTaps())[1], before = count - 1;
  Value rows = storage[op.getOperand()].rows, taps = storage[op.getTaps()].transposed;
  // Sums for the tokens of the chunk and those before it, which are handed on.
  Value sums = allocateRows(tokens + before, channels), result = allocateRows(tokens, channels);
  Value next = allocateRows(before, channels);
  auto forVectors = [&](Value from, Value to, llvm::function_ref<void(Value, Value)> body) {
    builder.loop(from, to, 1, [&](Value row) {
      builder.loopOverVectors(channels, [&](Value column, int64_t) { body(row, column); });
    });
  };
  Value first = builder.index(0);
  forVectors(first, builder.index(tokens + before),
             [&](Value row, Value column) { builder.store(builder.splat(0.0), sums, {row, column}); });
  forVectors(first, valid, [&](Value row, Value column) {
    Value entries = builder.load(rows, {row, column});
    for (int64_t j = 0; j < count; ++j) {
      Value place = builder.add(row, before - j);
      Value tap = builder.load(taps, {builder.index(count - 1 - j), column});
      Value sum = vector::FMAOp::create(builder, tap, entries, builder.load(sums, {place, column}));
      builder.store(sum, sums, {place, column});
    }
  });
  forVectors(first, builder.index(before), [&](Value row, Value column) {
    Value place = builder.add(valid, row);
    Value carried = evaluateAnew(op.getCarry(), {row, column, builder.width});
    builder.store(arith::AddFOp::create(builder, builder.load(sums, {place, column}), carried), sums, {place, column});
  });
  forVectors(first, builder.index(before),
             [&](Value row, Value column) { builder.store(builder.load(sums, {row, column}), next, {row, column}); });
  forVectors(first, builder.index(tokens), [&](Value row, Value column) {
    builder.store(builder.load(sums, {builder.add(row, before), column}), result, {row, column});
  });
  release(sums);
  storage[op.getResult()].rows = result;
  storage[op.getNext()].rows = next;
}

void KernelLowering::computeConvTaps(chunk::ConvTapsOp op) {
  int64_t tokens = shapeOf(op.getOperand())[0], channels = shapeOf(op.getOperand())[1];
  int64_t count = shapeOf(op.getResult())[1], tailRows = shapeOf(op.getTail())[0];
  Value weights = storage[op.getWeights()].rows, rows = history(op.getOperand(), op.getTail());
  Value result = allocateRows(count, channels); // transposed
  forStrips(channels, std::max<int64_t>(1, machine.registers / (2 * count)), [&](ArrayRef<Point> strip) {
    SmallVector<Value> sums(count * strip.size(), builder.splat(0.0));
    sums = builder.loop(builder.index(0), builder.index(tokens), sums, [&](Value token, ValueRange carried) {
      SmallVector<Value> next;
      for (auto [v, point] : llvm::enumerate(strip)) {
        Value weight = builder.load(weights, {token, point.column});
        for (int64_t j = 0; j < count; ++j) {
          Value earlier = builder.load(rows, {builder.add(token, tailRows - j), point.column});
          next.push_back(vector::FMAOp::create(builder, weight, earlier, carried[v * count + j]));
        }
      }
      return next;
    });
    for (auto [v, point] : llvm::enumerate(strip))
      for (int64_t j = 0; j < count; ++j)
        builder.store(sums[v * count + j], result, {builder.index(count - 1 - j), point.column});
  });
  storage[op.getResult()].transposed = result;
}

void KernelLowering::computeAccumulate(chunk::AccumulateOp op) {
  int64_t tokens = shapeOf(op.getOperand())[0];
  bool isSum = op.getKind() == chunk::Accumulation::Sum;
  Value result = allocateFor(op.getResult());
  auto tokenAt = [&](Value step) { return op.getReverse() ? builder.subtract(builder.index(tokens - 1), step) : step; };
  if (rankOf(op.getResult()) == 1) {
    Value operand = storage[op.getOperand()].rows;
    Value neutral = arith::ConstantOp::create(builder, builder.getFloatAttr(builder.element, isSum ? 0.0 : 1.0));
    builder.loop(builder.index(0), builder.index(tokens), neutral, [&](Value step, ValueRange carried) {
      Value token = tokenAt(step), number = builder.loadScalar(operand, token);
      Value next = isSum ? arith::AddFOp::create(builder, carried[0], number).getResult()
                         : arith::MulFOp::create(builder, carried[0], number).getResult();
      builder.storeScalar(op.getExclusive() ? carried[0] : next, result, token);
      return SmallVector<Value>{next};
    });
  } else {
    forStrips(shapeOf(op.getOperand())[1], machine.registers / 8, [&](ArrayRef<Point> strip) {
      SmallVector<Value> neutral(strip.size(), builder.splat(isSum ? 0.0 : 1.0));
      builder.loop(builder.index(0), builder.index(tokens), neutral, [&](Value step, ValueRange carried) {
        Value token = tokenAt(step);
        SmallVector<Value> next;
        for (auto [running, point] : llvm::zip(carried, strip)) {
          Point place = {token, point.column, point.lanes};
          Value entries = evaluateAnew(op.getOperand(), place);
          next.push_back(isSum ? arith::AddFOp::create(builder, running, entries).getResult()
                               : builder.mul(running, entries));
          storeAt(op.getExclusive() ? running : next.back(), result, place);
        }
        return next;
      });
    });
  }
  storage[op.getResult()].rows = result;
}

void KernelLowering::computeScan(chunk::ScanOp op) {
  int64_t tokens = shapeOf(op.getOperand())[0];
  Value result = allocateFor(op.getResult());
  // The total so far, shifted, and the next number.
  auto step = [&](Compensated running, Point point) -> Compensated {
    Value next = evaluateAnew(op.getOperand(), point), log = op.getLog() ? evaluate(op.getLog(), point) : Value();
    if (op.getKind() == chunk::ScanKind::Add) {
      Value factor = log ? math::ExpOp::create(builder, log).getResult() : builder.splat(1.0);
      return {vector::FMAOp::create(builder, running.number, factor, next), running.rest};
    }
    if (log)
      running.number = arith::AddFOp::create(builder, running.number, log);
    if (op.getKind() == chunk::ScanKind::Max)
      return {arith::MaximumFOp::create(builder, running.number, next), running.rest};
    return logAddExp(builder, running, next);
  };
  forStrips(shapeOf(op.getOperand())[1], machine.registers / 8, [&](ArrayRef<Point> strip) {
    SmallVector<Value> carry;
    for (Point point : strip)
      carry.push_back(evaluateAnew(op.getCarry(), {builder.index(0), point.column, point.lanes}));
    carry.append(strip.size(), builder.splat(0.0));
    builder.loop(builder.index(0), builder.index(tokens), carry, [&](Value token, ValueRange carried) {
      SmallVector<Value> numbers, rests;
      for (auto [v, point] : llvm::enumerate(strip)) {
        Point place = {token, point.column, point.lanes};
        Compensated next = step({carried[v], carried[strip.size() + v]}, place);
        storeAt(next.number, result, place);
        numbers.push_back(next.number);
        rests.push_back(next.rest);
      }
      llvm::append_range(numbers, rests);
      return numbers;
    });
  });
  storage[op.getResult()].rows = result;
}
