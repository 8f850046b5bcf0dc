//===- Decay.cpp - Products of decay factors ------------------------------===//
//
// Everything is a product of the factors a_u themselves, e^(amount) once for each entry, and never a ratio: no exponent
// is positive, exact zeros and factors above one are like any others, and no infinity meets a 0.
//
// `decay_dot` with one factor a token is a plain product times the matrix of the products between pairs of tokens,
// whose row i is row i-1 times a_i. With a factor for each channel, a key is decayed in registers from token to token
// on its way to the end of the chunk, and meets each query on the way:
//
//   for j:  key = k_j;  for i > j:  key *= a_i;  P_ij = sum over channels of q_i * key
//
// What is left of it at the end is the key decayed to the end, which the update of the state asks for.
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
  if (rankOf(decay.first) == 1)
    prepareTokenDecay(decay, uses);
  else
    prepareChannelDecay(decay, uses);
}

//===----------------------------------------------------------------------===//
// One factor for each token
//===----------------------------------------------------------------------===//

void KernelLowering::prepareTokenDecay(Decay decay, const DecayUses &uses) {
  DecayStorage &stored = decays[decay];
  int64_t tokens = shapeOf(decay.first)[0];
  stored.factors = allocateVector(tokens);
  builder.loopOverVectors(tokens, [&](Value column, int64_t lanes) {
    known.clear();
    builder.store(factor(decay, {Value(), column, lanes}), stored.factors, column);
  });
  Value one = arith::ConstantOp::create(builder, builder.getFloatAttr(builder.element, 1.0));
  auto multiplyBy = [&](Value product, Value token) {
    return arith::MulFOp::create(builder, product, builder.loadScalar(stored.factors, token)).getResult();
  };
  if (uses.prefix) {
    stored.prefix = allocateVector(tokens + 1);
    builder.storeScalar(one, stored.prefix, builder.index(0));
    builder.loop(builder.index(0), builder.index(tokens), one, [&](Value token, ValueRange carried) {
      Value product = multiplyBy(carried[0], token);
      builder.storeScalar(product, stored.prefix, builder.add(token, 1));
      return SmallVector<Value>{product};
    });
  }
  if (uses.suffix) {
    stored.suffix = allocateVector(tokens);
    builder.loop(builder.index(0), builder.index(tokens), one, [&](Value step, ValueRange carried) {
      Value token = builder.subtract(builder.index(tokens - 1), step);
      builder.storeScalar(carried[0], stored.suffix, token);
      return SmallVector<Value>{multiplyBy(carried[0], token)};
    });
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

Value KernelLowering::decayPairs(chunk::DecayDotOp op, Point point, Value sums) {
  // The products that a query sees before its own token's decay are those of the row before.
  Value row = builder.add(point.row, op.getBefore() ? 0 : 1);
  Value pairs = builder.load(decays[{op.getAmount(), op.getForm()}].pairs, {row, point.column});
  Value mask = builder.lanesBefore(builder.subtract(row, point.column));
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

  forStrips(channels, [&](ArrayRef<Point> strip) {
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

void KernelLowering::forStrips(int64_t channels, llvm::function_ref<void(ArrayRef<Point>)> body) {
  int64_t width = builder.width, stripWidth = machine.registers / 4 * width;
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
    forStrips(channels, [&](ArrayRef<Point> strip) {
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
      Value column = arith::SelectOp::create(builder, earlier, builder.splat(0.0), builder.sumLanes(rows));
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

Value KernelLowering::evaluateDecay(chunk::DecayStateOp op, Point point) {
  DecayStorage &decay = decays[{op.getAmount(), op.getForm()}];
  Value end = builder.index(shapeOf(op.getAmount())[0]), factors;
  if (rankOf(op.getAmount()) == 1)
    factors = builder.loadSplat(decay.prefix, end);
  else if (point.row && op.getAlong() == chunk::Side::Rows)
    factors = builder.loadSplat(decay.prefix, {end, point.row});
  else
    factors = builder.load(decay.prefix, {end, point.column});
  return builder.mul(evaluate(op.getState(), point), factors);
}
