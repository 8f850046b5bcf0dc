//===- Rearrange.cpp - Reductions, concatenation, convolution -------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

void KernelLowering::emitReduce(chunk::ReduceOp op) {
  Value operand = op.getOperand(), buffer = allocateFor(op.getResult());
  int64_t rows = shapeOf(operand)[0], columns = shapeOf(operand)[1], width = builder.width;
  bool isSum = op.getKind() == chunk::Reduction::Sum;
  Value neutral = builder.splat(isSum ? 0.0 : -std::numeric_limits<double>::infinity());
  auto combine = [&](Value left, Value right) -> Value {
    if (isSum)
      return arith::AddFOp::create(builder, left, right);
    return arith::MaximumFOp::create(builder, left, right);
  };

  if (op.getOver() == chunk::Side::Rows) {
    builder.loopOverVectors(columns, [&](Value column, int64_t lanes) {
      SmallVector<Value> reduced =
          builder.loop(builder.index(0), builder.index(rows), neutral, [&](Value row, ValueRange carried) {
            return SmallVector<Value>{combine(carried[0], evaluateAnew(operand, {row, column, lanes}))};
          });
      builder.store(reduced[0], buffer, column);
    });
  } else {
    // Each row becomes one vector, and the vectors of many rows one.
    int64_t whole = columns / width * width, rest = columns - whole;
    Value partial = allocateRows(padded(rows), width);
    builder.loop(0, rows, 1, [&](Value row) {
      SmallVector<Value> reduced = {neutral};
      builder.loopOverWhole(whole, reduced, [&](Value column, ValueRange carried) {
        return SmallVector<Value>{combine(carried[0], evaluateAnew(operand, {row, column, width}))};
      });
      if (rest) {
        Value entries = evaluateAnew(operand, {row, builder.index(whole), rest});
        entries = arith::SelectOp::create(builder, builder.firstLanes(rest), entries, neutral);
        reduced[0] = combine(reduced[0], entries);
      }
      builder.store(reduced[0], partial, {row, builder.index(0)});
    });
    builder.loop(0, rows, width, [&](Value block) {
      SmallVector<Value> vectors;
      for (int64_t row = 0; row < width; ++row)
        vectors.push_back(builder.load(partial, {builder.add(block, row), builder.index(0)}));
      builder.store(builder.reduceLanes(vectors, combine), buffer, block);
    });
    release(partial);
  }
  storage[op.getResult()].rows = buffer;
}

//===----------------------------------------------------------------------===//
// Columns
//===----------------------------------------------------------------------===//

void KernelLowering::emitConcat(chunk::ConcatOp op) {
  Value buffer = allocateFor(op.getResult());
  builder.loop(0, shapeOf(op.getResult())[0], 1, [&](Value row) {
    // A vector that is stored beyond the end of its part is overwritten by the next one's.
    int64_t start = 0;
    for (Value operand : op.getOperands()) {
      if (rankOf(operand) == 1) {
        known.clear();
        Value entry = vector::ExtractOp::create(builder, evaluateSplat(operand, row), 0);
        builder.storeScalar(entry, buffer, {row, builder.index(start++)});
        continue;
      }
      builder.loopOverVectors(shapeOf(operand)[1], [&](Value column, int64_t lanes) {
        Value entries = evaluateAnew(operand, {row, column, lanes});
        builder.store(entries, buffer, {row, builder.add(column, start)});
      });
      start += shapeOf(operand)[1];
    }
  });
  storage[op.getResult()].rows = buffer;
}

void KernelLowering::emitColumn(chunk::ColumnsOp op) {
  Value buffer = allocateFor(op.getResult()), column = builder.index(op.getFrom());
  builder.loop(0, shapeOf(op.getResult())[0], 1, [&](Value row) {
    Value entries = evaluateAnew(op.getOperand(), {row, column, 1});
    builder.storeScalar(vector::ExtractOp::create(builder, entries, 0), buffer, row);
  });
  storage[op.getResult()].rows = buffer;
}

void KernelLowering::emitRow(chunk::RowOp op) {
  Value buffer = allocateFor(op.getResult()), row = builder.index(op.getAt());
  known.clear();
  if (rankOf(op.getResult()) == 0)
    builder.store(evaluateSplat(op.getOperand(), row), buffer, builder.index(0));
  else
    builder.loopOverVectors(shapeOf(op.getResult())[0], [&](Value column, int64_t lanes) {
      builder.store(evaluateAnew(op.getOperand(), {row, column, lanes}), buffer, column);
    });
  storage[op.getResult()].rows = buffer;
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

// Row i of a history of a tail of R rows is that of token i - R.
Value KernelLowering::history(Value operand, Value tail) {
  if (Value known = histories.lookup({operand, tail}))
    return known;
  int64_t tailRows = shapeOf(tail)[0];
  Value buffer = allocateRows(tailRows + shapeOf(operand)[0], shapeOf(operand)[1]);
  computePointwise(tail, [&](Point point, Value entries) { storeAt(entries, buffer, point); });
  computePointwise(operand, [&](Point point, Value entries) {
    builder.store(entries, buffer, {builder.add(point.row, tailRows), point.column});
  });
  return histories[{operand, tail}] = buffer;
}

Value KernelLowering::evaluateConvolution(chunk::ConvOp op, Point point) {
  Value taps = storage[op.getTaps()].transposed, rows = histories.lookup({op.getOperand(), op.getTail()}), sum;
  int64_t count = shapeOf(op.getTaps())[1], oldest = shapeOf(op.getTail())[0] - (count - 1);
  for (int64_t j = 0; j < count; ++j) {
    Value tap = builder.load(taps, {builder.index(j), point.column});
    Value entries = builder.load(rows, {builder.add(point.row, oldest + j), point.column});
    sum = sum ? vector::FMAOp::create(builder, tap, entries, sum).getResult() : builder.mul(tap, entries);
  }
  return sum;
}

Value KernelLowering::evaluateDelay(chunk::DelayOp op, Point point) {
  int64_t offset = shapeOf(op.getTail())[0] - static_cast<int64_t>(op.getBy());
  return builder.load(histories.lookup({op.getOperand(), op.getTail()}),
                      {builder.add(point.row, offset), point.column});
}

void KernelLowering::emitTail(chunk::TailOp op) {
  Value rows = history(op.getOperand(), op.getTail()), buffer = allocateFor(op.getResult());
  builder.loop(0, shapeOf(op.getTail())[0], 1, [&](Value row) {
    builder.loopOverVectors(shapeOf(op.getTail())[1], [&](Value column, int64_t) {
      builder.store(builder.load(rows, {builder.add(row, valid), column}), buffer, {row, column});
    });
  });
  storage[op.getResult()].rows = buffer;
}
