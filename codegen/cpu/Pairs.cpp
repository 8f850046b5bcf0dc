//===- Pairs.cpp - Operands of products as pairs of bf16 numbers ----------===//
//
// A multiplication of bf16 registers sums two products into each lane: those of the contracted entries 2p and 2p + 1.
// Each pair is a word of 32 bits, and a word takes the place that a number has in a product of fp32 operands.
//
//   column pairs       word (i, p) = entries (i, 2p) and (i, 2p + 1): a left operand, as bf16 rows are in memory
//   row pairs          word (p, j) = entries (2p, j) and (2p + 1, j): a right operand, or a transposed left one
//   transposed pairs   word (p, i) = entries (i, 2p) and (i, 2p + 1): a transposed right operand
//   and of row pairs   word (j, p) = entries (2p, j) and (2p + 1, j): a transposed left operand of tiles
//
// Where the contracted axis is odd, the last pair's second entry is 0, in both operands: there a NaN would be summed.
// For the same reason pairs of zeros follow up to a whole tile of them, where there are tiles.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

/// The entries of a point, and 0 in the lanes beyond the row's end.
static Value padWithZeros(VectorBuilder &builder, Value entries, int64_t lanes) {
  return lanes < builder.width ? builder.selectOrZero(builder.firstLanes(lanes), entries) : entries;
}

Value KernelLowering::allocatePairs(int64_t rows, int64_t words) {
  if (machine.bf16Tiles)
    rows = static_cast<int64_t>(llvm::alignTo(rows, VectorBuilder::tileRows));
  return allocate({rows, words}, builder.wordType());
}

Value KernelLowering::storeColumnPairs(Value value) {
  ArrayRef<int64_t> shape = shapeOf(value);
  int64_t pairs = padded(shape[1]) / 2, allPairs = paddedPairs(pairs);
  Value buffer = allocatePairs(shape[0], allPairs);
  compute(value, [&](Point point, Value entries) {
    builder.storeNeighbours(padWithZeros(builder, entries, point.lanes), buffer,
                            {point.row, builder.half(point.column)});
  });
  if (pairs < allPairs)
    builder.loop(0, shape[0], 1,
                 [&](Value row) { builder.storeNeighbours(builder.splat(0.0), buffer, {row, builder.index(pairs)}); });
  return buffer;
}

Value KernelLowering::storeRowPairs(Value value) {
  int64_t rows = shapeOf(value)[0], columns = shapeOf(value)[1], pairs = (rows + 1) / 2;
  Value buffer = allocatePairs(paddedPairs(pairs), padded(columns));
  auto storePair = [&](Value pair, bool hasSecond) {
    Value row = builder.multiply(pair, 2);
    builder.loopOverVectors(columns, [&](Value column, int64_t lanes) {
      Value first = evaluateAnew(value, {row, column, lanes});
      Value second = hasSecond ? evaluateAnew(value, {builder.add(row, 1), column, lanes}) : builder.splat(0.0);
      builder.store(builder.pairLanes(first, second), buffer, {pair, column});
    });
  };
  builder.loop(0, rows / 2, 1, [&](Value pair) { storePair(pair, true); });
  if (rows % 2)
    storePair(builder.index(rows / 2), false);
  builder.loop(pairs, paddedPairs(pairs), 1, [&](Value pair) {
    builder.loopOverVectors(columns, [&](Value column, int64_t) {
      builder.store(builder.zero(builder.wordsType()), buffer, {pair, column});
    });
  });
  return buffer;
}

Value KernelLowering::storeTransposedPairs(Value value) {
  int64_t rows = shapeOf(value)[0], columns = shapeOf(value)[1], width = builder.width;
  Value buffer = allocatePairs(paddedPairs((columns + 1) / 2), padded(rows));
  forBlocks(rows, columns, 2 * width, [&](Value firstRow, int64_t blockRows, Value column, int64_t lanes) {
    SmallVector<Value> words;
    for (int64_t i = 0; i < blockRows; ++i) {
      Value row = builder.add(firstRow, i), halves[] = {builder.splat(0.0), builder.splat(0.0)};
      for (int64_t half = 0; half * width < lanes; ++half) {
        Point point = {row, builder.add(column, half * width), std::min(width, lanes - half * width)};
        halves[half] = padWithZeros(builder, evaluateAnew(value, point), point.lanes);
      }
      words.push_back(builder.pairNeighbours(halves[0], halves[1]));
    }
    storeColumns(words, paddedPairs(llvm::divideCeil(lanes, 2)), buffer, builder.half(column), firstRow);
  });
  return buffer;
}

Value KernelLowering::storeTransposedRowPairs(Value value) {
  int64_t rows = shapeOf(value)[0], columns = shapeOf(value)[1], width = builder.width;
  Value buffer = allocatePairs(columns, paddedPairs(padded((rows + 1) / 2)));
  auto storeBlock = [&](Value firstPair, int64_t blockRows) {
    builder.loopOverVectors(columns, [&](Value column, int64_t lanes) {
      SmallVector<Value> words;
      for (int64_t i = 0; i < blockRows; i += 2) {
        Value row = builder.add(builder.multiply(firstPair, 2), i);
        Value first = evaluateAnew(value, {row, column, lanes});
        Value second =
            i + 1 < blockRows ? evaluateAnew(value, {builder.add(row, 1), column, lanes}) : builder.splat(0.0);
        words.push_back(builder.pairLanes(first, second));
      }
      storeColumns(words, lanes, buffer, column, firstPair);
    });
  };
  int64_t whole = rows / (2 * width) * width;
  builder.loop(0, whole, width, [&](Value firstPair) { storeBlock(firstPair, 2 * width); });
  if (2 * whole < rows)
    storeBlock(builder.index(whole), rows - 2 * whole);
  return buffer;
}
