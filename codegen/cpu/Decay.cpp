//===- Decay.cpp - Products of decay factors ------------------------------===//
//
// Everything is a product of the factors a_u themselves, e^(amount) once for each entry, and never a ratio: no exponent
// is positive, exact zeros and factors above one are like any others, and no infinity meets a 0.
//
// `decay_dot` with one factor a token is a plain product times the matrix of the products between pairs of tokens, whose
// row i is row i-1 times a_i. With a factor for each channel the tokens are taken in blocks of one vector. Inside a
// block, the vector of one channel of the block's keys is decayed in a register from row to row:
//
//   for d:  key = k[block, d];  for i in block:  key[lanes < i] *= a_id;  sums_i += q_id * key
//
// and what is left of it at the end are the keys decayed to the end of the block. Between blocks the product is a plain
// one, of queries decayed from the start of their block and keys decayed to the start of that block.
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
  int64_t tokens = shapeOf(decay.first)[0], channels = shapeOf(decay.first)[1], width = builder.width;
  if (uses.factors || uses.suffix)
    stored.factors = allocateRows(tokens, channels);
  if (uses.prefix)
    stored.prefix = allocateRows(tokens + 1, channels);
  if (uses.factors && tokens > width)
    stored.blockPrefix = allocateRows(tokens, channels);
  if (uses.suffix)
    stored.suffix = allocateRows(tokens, channels);

  Value one = builder.splat(1.0);
  // Strips of channels whose running products fit into registers.
  int64_t strip = machine.registers / 4 * width;
  for (int64_t start = 0; start < channels; start += strip) {
    SmallVector<Point> vectors;
    for (int64_t column = start; column < std::min(channels, start + strip); column += width)
      vectors.push_back({Value(), builder.index(column), std::min(width, channels - column)});
    SmallVector<Value> products(vectors.size(), one);
    if (stored.prefix)
      for (Point point : vectors)
        builder.store(one, stored.prefix, {builder.index(0), point.column});

    for (int64_t block = 0; block < tokens; block += width) {
      SmallVector<Value> carried = products;
      carried.append(stored.blockPrefix ? vectors.size() : 0, one);
      Value end = builder.index(std::min(tokens, block + width));
      carried = builder.loop(builder.index(block), end, carried, [&](Value token, ValueRange running) {
        SmallVector<Value> next = llvm::to_vector(running);
        for (auto [v, point] : llvm::enumerate(vectors)) {
          known.clear();
          point.row = token;
          Value factors = factor(decay, point);
          if (stored.factors)
            builder.store(factors, stored.factors, {token, point.column});
          if (stored.prefix) {
            next[v] = builder.mul(running[v], factors);
            builder.store(next[v], stored.prefix, {builder.add(token, 1), point.column});
          }
          if (stored.blockPrefix) {
            Value &inBlock = next[vectors.size() + v];
            inBlock = builder.mul(inBlock, factors);
            builder.store(inBlock, stored.blockPrefix, {token, point.column});
          }
        }
        return next;
      });
      products.assign(carried.begin(), carried.begin() + vectors.size());
    }

    if (!stored.suffix)
      continue;
    SmallVector<Value> ones(vectors.size(), one);
    builder.loop(builder.index(0), builder.index(tokens), ones, [&](Value step, ValueRange running) {
      Value token = builder.subtract(builder.index(tokens - 1), step);
      SmallVector<Value> next;
      for (auto [point, product] : llvm::zip(vectors, running)) {
        builder.store(product, stored.suffix, {token, point.column});
        next.push_back(builder.mul(product, builder.load(stored.factors, {token, point.column})));
      }
      return next;
    });
  }
}

void KernelLowering::computeDecayDot(chunk::DecayDotOp op) {
  int64_t tokens = shapeOf(op.getQuery())[0], channels = shapeOf(op.getQuery())[1], width = builder.width;
  DecayStorage &decay = decays[{op.getAmount(), op.getForm()}];
  Value keys = storage[op.getKey()].transposed, result = allocateRows(tokens, tokens);
  chunk::DecayToEndOp decayedKeys = plan.decayedKeys(op);
  Value keysToEnd = decayedKeys || tokens > width ? allocateRows(padded(channels), tokens) : Value();
  auto consume = [&](Point point, Value entries) { storeAt(entries, result, point); };

  for (int64_t block = 0; block < tokens; block += width) {
    int64_t rows = std::min(width, tokens - block);
    if (block > 0)
      computeEarlierBlocks(op, decay, keysToEnd, block, rows, consume);
    SmallVector<Value> zeros(rows, builder.splat(0.0));
    Value firstColumn = builder.index(block);
    SmallVector<Value> sums =
        builder.loop(builder.index(0), builder.index(channels), zeros, [&](Value channel, ValueRange carried) {
          SmallVector<Value> next;
          Value key = builder.load(keys, {channel, firstColumn});
          for (int64_t i = 0; i < rows; ++i) {
            Value row = builder.index(block + i);
            auto addProducts = [&] {
              Value query = builder.splat(loadEntry(op.getQuery(), row, channel));
              next.push_back(vector::FMAOp::create(builder, query, key, carried[i]));
            };
            if (op.getBefore())
              addProducts();
            Value decayed = builder.mul(key, builder.loadSplat(decay.factors, {row, channel}));
            Value earlier = vector::ConstantMaskOp::create(builder, builder.maskType(), ArrayRef<int64_t>{i});
            if (i > 0)
              key = arith::SelectOp::create(builder, earlier, decayed, key);
            if (!op.getBefore())
              addProducts();
          }
          if (keysToEnd)
            builder.store(key, keysToEnd, {channel, firstColumn});
          return next;
        });
    for (int64_t i = 0; i < rows; ++i) {
      Value mask = vector::ConstantMaskOp::create(builder, builder.maskType(), ArrayRef<int64_t>{i + (op.getBefore() ? 0 : 1)});
      consume({builder.index(block + i), firstColumn, rows}, builder.selectOrZero(mask, sums[i]));
    }
    fillWithZeros(block, block + rows, block + width, tokens, consume);
  }
  storage[op.getResult()].rows = result;
  if (decayedKeys)
    storage[decayedKeys.getResult()].transposed = keysToEnd;
}

void KernelLowering::computeEarlierBlocks(chunk::DecayDotOp op, DecayStorage &decay, Value keysToEnd, int64_t block,
                                          int64_t rows, Consumer consume) {
  int64_t channels = shapeOf(op.getQuery())[1];
  // The block's queries, decayed from its start.
  Value queries = allocateRows(rows, channels);
  for (int64_t i = 0; i < rows; ++i)
    builder.loopOverVectors(channels, [&](Value column, int64_t lanes) {
      Value row = builder.index(block + i), query = evaluateAnew(op.getQuery(), {row, column, lanes});
      if (int64_t last = block + i - (op.getBefore() ? 1 : 0); last >= block)
        query = builder.mul(query, builder.load(decay.blockPrefix, {builder.index(last), column}));
      builder.store(query, queries, {builder.index(i), column});
    });
  Term term = {queries, /*leftByColumns=*/false, keysToEnd, channels};
  computeRegion(
      term, 0, rows, block, [&](Point) { return builder.splat(0.0); },
      [&](Point point, Value sums) { consume({builder.add(point.row, block), point.column, point.lanes}, sums); });
  // The earlier keys, decayed to the end of the block.
  Value last = builder.index(block + rows - 1);
  builder.loop(0, channels, 1, [&](Value channel) {
    Value total = builder.loadSplat(decay.blockPrefix, {last, channel});
    builder.loopOverVectors(block, [&](Value column, int64_t) {
      builder.store(builder.mul(builder.load(keysToEnd, {channel, column}), total), keysToEnd, {channel, column});
    });
  });
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

Value KernelLowering::loadEntry(Value value, Value row, Value column) {
  Storage stored = storage.lookup(value);
  return stored.rows ? builder.loadScalar(stored.rows, {row, column}) : builder.loadScalar(stored.transposed, {column, row});
}
