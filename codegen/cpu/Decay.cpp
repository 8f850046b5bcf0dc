//===- Decay.cpp - Products of decay factors ------------------------------===//
//
// What a token meets within its chunk is a product of the factors a_u themselves, e^(amount) once for each entry, and
// never a ratio: no exponent is positive, exact zeros and factors above one are like any others, and no infinity meets
// a 0. A state meets the factors of every chunk after it, so that its error would grow with the length of a sequence:
// its factor is the exponential of a sum and, near 1, the difference from 1.
//
// `decay_dot` with one factor a token is a plain product times the matrix of the products between pairs of tokens,
// whose row i is row i-1 times a_i. With a factor for each channel, a key is decayed in registers from token to token
// on its way to the end of the chunk, and meets each query on the way:
//
//   for j:  key = k_j;  for i > j:  key *= a_i;  P_ij = sum over channels of q_i * key
//
// What is left of it at the end is the key decayed to the end, which the update of the state asks for. At 16 tokens
// these are as many operations as a plain product of rescaled operands has, whose vectors of tokens hold the pairs
// behind the diagonal too, and it needs no test of their range and no second branch.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

Value KernelLowering::factor(Decay decay, Point point) {
  Value amount = evaluate(decay.first, point);
  return decay.second == chunk::DecayForm::Log ? math::ExpOp::create(builder, amount).getResult() : amount;
}

void KernelLowering::prepareDecay(Decay decay, const DecayUses &uses) {
  bool isOfToken = rankOf(decay.first) == 1;
  DecayStorage &stored = decays[decay];
  int64_t channels = isOfToken ? 1 : shapeOf(decay.first)[1];
  if (uses.total) {
    stored.total = allocateVector(channels);
    stored.fromOne = allocateVector(channels);
  }
  isOfToken ? prepareTokenDecay(decay, uses) : prepareChannelDecay(decay, uses);
}

void KernelLowering::storeTotal(Decay decay, Value column, llvm::function_ref<Value(Value)> amountOf) {
  const DecayStorage &stored = decays[decay];
  Value zero = builder.splat(0.0), one = builder.splat(1.0), factor, difference;
  Value first = builder.index(0), end = builder.index(shapeOf(decay.first)[0]);
  if (decay.second == chunk::DecayForm::Log) {
    Value sum = builder.loop(first, end, zero, [&](Value token, ValueRange carried) {
      return SmallVector<Value>{arith::AddFOp::create(builder, carried[0], amountOf(token))};
    })[0];
    factor = math::ExpOp::create(builder, sum);
    difference = math::ExpM1Op::create(builder, sum);
  } else {
    // (1 + d) a = 1 + (d a + (a - 1)).
    SmallVector<Value> all = builder.loop(first, end, {one, zero}, [&](Value token, ValueRange carried) {
      Value amount = amountOf(token), fromOne = arith::SubFOp::create(builder, amount, one);
      return SmallVector<Value>{builder.mul(carried[0], amount),
                                vector::FMAOp::create(builder, carried[1], amount, fromOne)};
    });
    factor = all[0];
    difference = all[1];
  }
  // Near 1 the difference from 1 has digits that the factor has no room for: the factor is then 1 + that.
  Value distance = math::AbsFOp::create(builder, difference);
  Value isNearOne = arith::CmpFOp::create(builder, arith::CmpFPredicate::OLT, distance, builder.splat(0.5));
  builder.store(arith::SelectOp::create(builder, isNearOne, one, factor), stored.total, column);
  builder.store(builder.selectOrZero(isNearOne, difference), stored.fromOne, column);
}

//===----------------------------------------------------------------------===//
// One factor for each token
//===----------------------------------------------------------------------===//

void KernelLowering::prepareTokenDecay(Decay decay, const DecayUses &uses) {
  DecayStorage &stored = decays[decay];
  int64_t tokens = shapeOf(decay.first)[0];
  bool isLog = decay.second == chunk::DecayForm::Log;
  Value amounts = allocateVector(tokens);
  builder.loopOverVectors(tokens, [&](Value column, int64_t lanes) {
    builder.store(evaluateAnew(decay.first, {Value(), column, lanes}), amounts, column);
  });
  Value neutral = arith::ConstantOp::create(builder, builder.getFloatAttr(builder.element, isLog ? 0.0 : 1.0));
  auto accumulate = [&](Value running, Value token) -> Value {
    Value amount = builder.loadScalar(amounts, token);
    return isLog ? arith::AddFOp::create(builder, running, amount).getResult()
                 : arith::MulFOp::create(builder, running, amount).getResult();
  };
  auto toFactors = [&](Value buffer, int64_t count) {
    if (isLog)
      builder.loopOverVectors(count, [&](Value column, int64_t) {
        builder.store(math::ExpOp::create(builder, builder.load(buffer, column)), buffer, column);
      });
  };
  if (uses.prefix) {
    stored.prefix = allocateVector(tokens + 1);
    builder.storeScalar(neutral, stored.prefix, builder.index(0));
    builder.loop(builder.index(0), builder.index(tokens), neutral, [&](Value token, ValueRange carried) {
      Value running = accumulate(carried[0], token);
      builder.storeScalar(running, stored.prefix, builder.add(token, 1));
      return SmallVector<Value>{running};
    });
    toFactors(stored.prefix, tokens + 1);
  }
  if (uses.total)
    storeTotal(decay, builder.index(0), [&](Value token) { return builder.loadSplat(amounts, token); });
  if (uses.suffix) {
    stored.suffix = allocateVector(tokens);
    builder.loop(builder.index(0), builder.index(tokens), neutral, [&](Value step, ValueRange carried) {
      Value token = builder.subtract(builder.index(tokens - 1), step);
      builder.storeScalar(carried[0], stored.suffix, token);
      return SmallVector<Value>{accumulate(carried[0], token)};
    });
    toFactors(stored.suffix, tokens);
  }
  if (uses.pairs || uses.factors) {
    toFactors(amounts, tokens);
    stored.factors = amounts;
  }
  if (uses.pairs)
    preparePairs(stored, tokens);
}

void KernelLowering::preparePairs(DecayStorage &stored, int64_t tokens) {
  stored.pairs = allocateRows(tokens + 1, tokens);
  SmallVector<Value> zeros(llvm::divideCeil(tokens, builder.width), builder.splat(0.0));
  auto storeRow = [&](Value row, ValueRange vectors) {
    for (auto [v, vector] : llvm::enumerate(vectors))
      builder.store(vector, stored.pairs, {row, builder.index(v * builder.width)});
  };
  storeRow(builder.index(0), zeros);
  builder.loop(builder.index(0), builder.index(tokens), zeros, [&](Value token, ValueRange carried) {
    Value factor = builder.loadSplat(stored.factors, token);
    SmallVector<Value> row;
    for (auto [v, vector] : llvm::enumerate(carried)) {
      Value earlier = builder.lanesBefore(builder.subtract(token, builder.index(v * builder.width)));
      Value upToToken = builder.lanesBefore(builder.subtract(builder.add(token, 1), builder.index(v * builder.width)));
      Value itself = builder.selectOrZero(upToToken, builder.splat(1.0));
      row.push_back(arith::SelectOp::create(builder, earlier, builder.mul(vector, factor), itself));
    }
    storeRow(builder.add(token, 1), row);
    return row;
  });
}

Value KernelLowering::decayBetween(Decay decay, Point point, bool before) {
  // The products that a query sees before its own token's decay are those of the row before.
  Value row = builder.add(point.row, before ? 0 : 1);
  return builder.load(decays[decay].pairs, {row, point.column});
}

Value KernelLowering::decayPairs(chunk::DecayDotOp op, Point point, Value sums) {
  Value pairs = decayBetween({op.getAmount(), op.getForm()}, point, op.getBefore());
  Value mask = builder.lanesBefore(builder.subtract(builder.add(point.row, op.getBefore() ? 0 : 1), point.column));
  return builder.selectOrZero(mask, builder.mul(sums, pairs));
}

//===----------------------------------------------------------------------===//
// One factor for each token and channel
//===----------------------------------------------------------------------===//

void KernelLowering::prepareChannelDecay(Decay decay, const DecayUses &uses) {
  DecayStorage &stored = decays[decay];
  int64_t tokens = shapeOf(decay.first)[0], channels = shapeOf(decay.first)[1];
  if (uses.factors || uses.suffix)
    stored.factors = allocateRows(tokens, channels);
  if (uses.prefix)
    stored.prefix = allocateRows(tokens + 1, channels);
  if (uses.suffix)
    stored.suffix = allocateRows(tokens, channels);

  // Exponentials of a strip are computed side by side, beside its products.
  forStrips(channels, machine.registers / 8, [&](ArrayRef<Point> strip) {
    SmallVector<Value> ones(strip.size(), builder.splat(1.0));
    auto storeRow = [&](ValueRange vectors, Value buffer, Value row) {
      for (auto [vector, point] : llvm::zip(vectors, strip))
        builder.store(vector, buffer, {row, point.column});
    };
    if (stored.prefix)
      storeRow(ones, stored.prefix, builder.index(0));
    builder.loop(builder.index(0), builder.index(tokens), ones, [&](Value token, ValueRange running) {
      SmallVector<Value> factors, products;
      for (auto [point, product] : llvm::zip(strip, running)) {
        known.clear();
        factors.push_back(factor(decay, {token, point.column, point.lanes}));
        products.push_back(stored.prefix ? builder.mul(product, factors.back()) : product);
      }
      if (stored.factors)
        storeRow(factors, stored.factors, token);
      if (stored.prefix)
        storeRow(products, stored.prefix, builder.add(token, 1));
      return products;
    });
    if (uses.total)
      for (Point point : strip)
        storeTotal(decay, point.column,
                   [&](Value token) { return evaluateAnew(decay.first, {token, point.column, point.lanes}); });
    if (!stored.suffix)
      return;
    builder.loop(builder.index(0), builder.index(tokens), ones, [&](Value step, ValueRange running) {
      Value token = builder.subtract(builder.index(tokens - 1), step);
      storeRow(running, stored.suffix, token);
      SmallVector<Value> products;
      for (auto [point, product] : llvm::zip(strip, running))
        products.push_back(builder.mul(product, builder.load(stored.factors, {token, point.column})));
      return products;
    });
  });
}

void KernelLowering::forStrips(int64_t channels, int64_t vectors, llvm::function_ref<void(ArrayRef<Point>)> body) {
  int64_t width = builder.width, stripWidth = vectors * width;
  for (int64_t start = 0; start < channels; start += stripWidth) {
    SmallVector<Point> strip;
    for (int64_t column = start; column < std::min(channels, start + stripWidth); column += width)
      strip.push_back({Value(), builder.index(column), std::min(width, channels - column)});
    body(strip);
  }
}

void KernelLowering::computeDecayDot(chunk::DecayDotOp op) {
  int64_t tokens = shapeOf(op.getQuery())[0], channels = shapeOf(op.getQuery())[1], width = builder.width;
  bool before = op.getBefore();
  Value queries = storage[op.getQuery()].rows, keys = storage[op.getKey()].rows;
  Value factors = decays[{op.getAmount(), op.getForm()}].factors;
  chunk::DecayToEndOp decayedKeys = plan.decayedKeys(op);
  Value keysToEnd = decayedKeys ? allocateRows(tokens, channels) : Value();
  // The products of one key with each query, summed but for the lanes of a vector.
  Value sums = allocateRows(padded(tokens), width), zero = builder.index(0);
  Value result = allocateRows(tokens, tokens); // transposed: row j holds P_ij

  // Channels that do not exist are summed with the others, so they must be 0.
  auto load = [&](Value buffer, Value row, Point point) {
    Value entries = builder.load(buffer, {row, point.column});
    return point.lanes == width ? entries : builder.selectOrZero(builder.firstLanes(point.lanes), entries);
  };
  builder.loop(0, tokens, 1, [&](Value j) {
    bool isFirst = true;
    forStrips(channels, machine.registers / 4, [&](ArrayRef<Point> strip) {
      auto meetQuery = [&](Value i, ValueRange key) {
        Value sum = isFirst ? builder.splat(0.0) : builder.load(sums, {i, zero});
        for (auto [entries, point] : llvm::zip(key, strip))
          sum = vector::FMAOp::create(builder, load(queries, i, point), entries, sum);
        builder.store(sum, sums, {i, zero});
      };
      SmallVector<Value> key;
      for (Point point : strip)
        key.push_back(load(keys, j, point));
      if (!before)
        meetQuery(j, key);
      key = builder.loop(builder.add(j, 1), builder.index(tokens), key, [&](Value i, ValueRange carried) {
        if (before)
          meetQuery(i, carried);
        SmallVector<Value> decayed;
        for (auto [entries, point] : llvm::zip(carried, strip))
          decayed.push_back(builder.mul(entries, load(factors, i, point)));
        if (!before)
          meetQuery(i, decayed);
        return decayed;
      });
      if (keysToEnd)
        for (auto [entries, point] : llvm::zip(key, strip))
          builder.store(entries, keysToEnd, {j, point.column});
      isFirst = false;
    });
    for (int64_t block = 0; block < tokens; block += width) {
      SmallVector<Value> rows;
      for (int64_t i = 0; i < width; ++i)
        rows.push_back(builder.load(sums, {builder.index(block + i), zero}));
      Value earlier = builder.lanesBefore(builder.subtract(builder.add(j, before ? 1 : 0), builder.index(block)));
      auto add = [&](Value a, Value b) -> Value { return arith::AddFOp::create(builder, a, b); };
      Value column = arith::SelectOp::create(builder, earlier, builder.splat(0.0), builder.reduceLanes(rows, add));
      builder.store(column, result, {j, builder.index(block)});
    }
  });
  release(sums);
  storage[op.getResult()].transposed = result;
  if (decayedKeys)
    storage[decayedKeys.getResult()].rows = keysToEnd;
}

//===----------------------------------------------------------------------===//
// What is decayed in place
//===----------------------------------------------------------------------===//

Value KernelLowering::evaluateDecay(chunk::DecayFromStartOp op, Point point) {
  DecayStorage &decay = decays[{op.getAmount(), op.getForm()}];
  Value row = builder.add(point.row, op.getBefore() ? 0 : 1);
  Value factors = rankOf(op.getAmount()) == 1 ? builder.loadSplat(decay.prefix, row)
                                              : builder.load(decay.prefix, {row, point.column});
  return builder.mul(evaluate(op.getOperand(), point), factors);
}

Value KernelLowering::evaluateDecay(chunk::DecayToEndOp op, Point point) {
  DecayStorage &decay = decays[{op.getAmount(), op.getForm()}];
  Value factors = rankOf(op.getAmount()) == 1 ? builder.loadSplat(decay.suffix, point.row)
                                              : builder.load(decay.suffix, {point.row, point.column});
  return builder.mul(evaluate(op.getOperand(), point), factors);
}

Value KernelLowering::addDecayedTo(Value sums, chunk::DecayStateOp op, Point point) {
  DecayStorage &decay = decays[{op.getAmount(), op.getForm()}];
  Value state = evaluate(op.getState(), point);
  auto addTimes = [&](Value total, Value sums) {
    Value factor;
    if (rankOf(op.getAmount()) == 1)
      factor = builder.loadSplat(total, builder.index(0));
    else if (point.row && op.getAlong() == chunk::Side::Rows)
      factor = builder.loadSplat(total, point.row);
    else
      factor = builder.load(total, point.column);
    return vector::FMAOp::create(builder, state, factor, sums);
  };
  // First what is small: added to the state by itself, it could be lost chunk after chunk.
  return addTimes(decay.total, addTimes(decay.fromOne, sums));
}
