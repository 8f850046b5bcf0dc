//===- LookbackSums.cpp - What a look-back sums up ------------------------===//
//
// The body of a look-back leaves weights or scores and rows of a tile in buffers, and these join the sums so far: a sum
// of exponentials keeps the largest score of each token, and what was summed before is scaled when a larger one
// arrives. Sums along a row are kept as vectors of partial sums, which are added up once, at the end.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/LookbackFold.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

static constexpr double infinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Sums of exponentials
//===----------------------------------------------------------------------===//

/// Walks rows by blocks of as many as a vector has lanes: numbers of a block's tokens are one vector.
static void forBlocksOfRows(VectorBuilder &builder, int64_t rows, llvm::function_ref<void(Value)> body) {
  builder.loop(0, rows, builder.width, body);
}

/// One number for each token of a block, combined from the lanes of each one's vector.
static Value reduceRows(VectorBuilder &builder, Value vectors, Value block, VectorBuilder::Combine combine) {
  SmallVector<Value> rows;
  for (int64_t row = 0; row < builder.width; ++row)
    rows.push_back(builder.load(vectors, {builder.add(block, row), builder.index(0)}));
  return builder.reduceLanes(rows, combine);
}

static Value addLanes(VectorBuilder &builder, Value vectors, Value block) {
  return reduceRows(builder, vectors, block,
                    [&](Value left, Value right) -> Value { return arith::AddFOp::create(builder, left, right); });
}

/// Raises the largest scores to those of a tile, whose partial maxima are given.
static void raise(VectorBuilder &builder, Exponentials &stream, Value maxima, int64_t tokens) {
  forBlocksOfRows(builder, tokens, [&](Value block) {
    Value here = reduceRows(builder, maxima, block, [&](Value left, Value right) -> Value {
      return arith::MaximumFOp::create(builder, left, right);
    });
    Value before = builder.load(stream.largest, block), shift = builder.load(stream.shift, block);
    Value largest = arith::MaximumFOp::create(builder, before, here);
    Value none = arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, largest, builder.splat(-infinity));
    Value next = arith::SelectOp::create(builder, none, builder.splat(0.0), largest);
    Value change = arith::SubFOp::create(builder, next, shift);
    builder.store(largest, stream.largest, block);
    builder.store(next, stream.shift, block);
    builder.store(change, stream.change, block);
    // Before the first score there is nothing to scale.
    Value scale = math::ExpOp::create(builder, arith::SubFOp::create(builder, before, next));
    builder.store(scale, stream.scale, block);
    if (!stream.hasSame)
      return;
    Value isSame = arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, before, largest);
    builder.store(builder.selectOrZero(isSame, builder.splat(1.0)), stream.hasSame, block);
  });
}

void KernelLowering::foldSoftmax(chunk::LookbackOp op, LookbackFold &fold) {
  int64_t tokens = kernel.getChunk();
  Exponentials &stream = fold.streams[0];
  stream.scores = storage[op.getContribution().getGiven()[0]].rows;
  Value zero = builder.index(0), nothing = builder.splat(-infinity);
  auto scoresAt = [&](Value row, Value column) -> Value {
    Value within = isInRange(fold, row, column);
    return arith::SelectOp::create(builder, within, builder.load(stream.scores, {row, column}), nothing);
  };
  builder.loop(0, tokens, 1, [&](Value row) {
    SmallVector<Value> largest = {nothing};
    builder.loopOverWhole(padded(fold.pastTokens), largest,
                          [&](Value column, ValueRange carried) -> SmallVector<Value> {
                            return {arith::MaximumFOp::create(builder, carried[0], scoresAt(row, column))};
                          });
    builder.store(largest[0], fold.maxima, {row, zero});
  });
  raise(builder, stream, fold.maxima, tokens);
  builder.loop(0, tokens, 1, [&](Value row) {
    Value shift = builder.loadSplat(stream.shift, row), scale = builder.loadSplat(stream.scale, row);
    SmallVector<Value> sums = {builder.mul(builder.load(stream.sums, {row, zero}), scale)};
    if (stream.ties)
      sums.push_back(builder.mul(builder.load(stream.ties, {row, zero}), builder.loadSplat(stream.hasSame, row)));
    builder.loopOverWhole(padded(fold.pastTokens), sums, [&](Value column, ValueRange carried) -> SmallVector<Value> {
      Value score = scoresAt(row, column);
      Value weight = math::ExpOp::create(builder, arith::SubFOp::create(builder, score, shift));
      builder.store(weight, fold.weights, {row, column});
      SmallVector<Value> next = {arith::AddFOp::create(builder, carried[0], weight)};
      if (stream.ties) {
        // Where no pair has a score, the shift is 0 and none of those that are left out attains it.
        Value isHit = arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, score, shift);
        next.push_back(arith::AddFOp::create(builder, carried[1], builder.selectOrZero(isHit, builder.splat(1.0))));
      }
      return next;
    });
    builder.store(sums[0], stream.sums, {row, zero});
    if (stream.ties)
      builder.store(sums[1], stream.ties, {row, zero});
  });

  Value rows = op.getContribution().getGiven()[1], sums = storage[op.getResult(2)].rows;
  Term term = {.left = fold.weights, .right = storage[rows].rows, .from = zero, .to = fold.count};
  auto scaleAndAdd = [&](Point point, Value added) -> Value {
    Value before = builder.load(sums, {point.row, point.column});
    return vector::FMAOp::create(builder, before, builder.loadSplat(stream.scale, point.row), added);
  };
  computeRegion(term, 0, tokens, shapeOf(rows)[1], scaleAndAdd,
                [&](Point point, Value entries) { storeAt(entries, sums, point); });
}

//===----------------------------------------------------------------------===//
// Divergence
//
// Of the scores s and r, less their shifts, the sum of e^s (s - r) is kept. When the shifts grow by c and d, each
// difference shrinks by c - d before it is scaled, so that large scores that both streams have in common cancel
// exactly.
//===----------------------------------------------------------------------===//

void KernelLowering::foldDivergence(chunk::LookbackOp op, LookbackFold &fold) {
  int64_t tokens = kernel.getChunk();
  Value zero = builder.index(0), nothing = builder.splat(-infinity);
  for (auto [stream, contribution] : llvm::zip_equal(fold.streams, op.getContribution().getGiven()))
    stream.scores = storage[contribution].rows;
  // A pair that either stream leaves out is left out of both.
  auto scoresAt = [&](Value row, Value column) -> std::pair<Value, Value> {
    Value within = isInRange(fold, row, column);
    Value teacher = builder.load(fold.streams[0].scores, {row, column});
    Value student = builder.load(fold.streams[1].scores, {row, column});
    for (Value score : {teacher, student})
      within = arith::AndIOp::create(builder, within,
                                     arith::CmpFOp::create(builder, arith::CmpFPredicate::UNE, score, nothing));
    return {arith::SelectOp::create(builder, within, teacher, nothing),
            arith::SelectOp::create(builder, within, student, nothing)};
  };
  for (unsigned number : {0, 1}) {
    builder.loop(0, tokens, 1, [&](Value row) {
      SmallVector<Value> largest = {nothing};
      builder.loopOverWhole(padded(fold.pastTokens), largest,
                            [&](Value column, ValueRange carried) -> SmallVector<Value> {
                              auto [teacher, student] = scoresAt(row, column);
                              return {arith::MaximumFOp::create(builder, carried[0], number ? student : teacher)};
                            });
      builder.store(largest[0], fold.maxima, {row, zero});
    });
    raise(builder, fold.streams[number], fold.maxima, tokens);
  }
  builder.loop(0, tokens, 1, [&](Value row) {
    Exponentials &teacher = fold.streams[0], &student = fold.streams[1];
    Value teacherShift = builder.loadSplat(teacher.shift, row), studentShift = builder.loadSplat(student.shift, row);
    Value before = builder.load(teacher.sums, {row, zero});
    Value grown =
        arith::SubFOp::create(builder, builder.loadSplat(teacher.change, row), builder.loadSplat(student.change, row));
    Value differences =
        arith::SubFOp::create(builder, builder.load(fold.differences, {row, zero}), builder.mul(before, grown));
    Value teacherScale = builder.loadSplat(teacher.scale, row);
    SmallVector<Value> sums = {
        builder.mul(before, teacherScale),
        builder.mul(builder.load(student.sums, {row, zero}), builder.loadSplat(student.scale, row)),
        builder.mul(differences, teacherScale)};
    builder.loopOverWhole(padded(fold.pastTokens), sums, [&](Value column, ValueRange carried) -> SmallVector<Value> {
      auto [s, r] = scoresAt(row, column);
      Value isIn = arith::CmpFOp::create(builder, arith::CmpFPredicate::UNE, s, nothing);
      s = arith::SubFOp::create(builder, s, teacherShift);
      r = arith::SubFOp::create(builder, r, studentShift);
      Value p = math::ExpOp::create(builder, s), q = math::ExpOp::create(builder, r);
      Value difference = builder.selectOrZero(isIn, arith::SubFOp::create(builder, s, r));
      return {arith::AddFOp::create(builder, carried[0], p), arith::AddFOp::create(builder, carried[1], q),
              vector::FMAOp::create(builder, p, difference, carried[2])};
    });
    builder.store(sums[0], teacher.sums, {row, zero});
    builder.store(sums[1], student.sums, {row, zero});
    builder.store(sums[2], fold.differences, {row, zero});
  });
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

void KernelLowering::foldWeights(chunk::LookbackOp op, LookbackFold &fold) {
  int64_t tokens = kernel.getChunk();
  OperandRange given = op.getContribution().getGiven();
  for (auto [index, result] : llvm::enumerate(op.getResults())) {
    Value weights = storage[given[2 * index]].rows, rows = given[2 * index + 1], sums = storage[result].rows;
    builder.loop(0, tokens, 1, [&](Value row) {
      builder.loopOverVectors(padded(fold.pastTokens), [&](Value column, int64_t) {
        Value within = isInRange(fold, row, column);
        builder.store(builder.selectOrZero(within, builder.load(weights, {row, column})), fold.weights, {row, column});
      });
    });
    Term term = {.left = fold.weights, .right = storage[rows].rows, .from = builder.index(0), .to = fold.count};
    auto add = [&, sums = sums](Point point, Value added) -> Value {
      return arith::AddFOp::create(builder, builder.load(sums, {point.row, point.column}), added);
    };
    computeRegion(term, 0, tokens, shapeOf(rows)[1], add,
                  [&, sums = sums](Point point, Value entries) { storeAt(entries, sums, point); });
  }
}

void KernelLowering::foldOuter(chunk::LookbackOp op, LookbackFold &fold) {
  OperandRange given = op.getContribution().getGiven();
  auto [from, to] = rowsInRange(fold);
  for (auto [index, result] : llvm::enumerate(op.getResults())) {
    Value left = given[2 * index], right = given[2 * index + 1], sums = storage[result].rows;
    Term term = {
        .left = storage[left].rows, .leftByColumns = true, .right = storage[right].rows, .from = from, .to = to};
    auto add = [&](Point point, Value added) -> Value {
      return arith::AddFOp::create(builder, builder.load(sums, {point.row, point.column}), added);
    };
    computeRegion(term, 0, shapeOf(left)[1], shapeOf(right)[1], add,
                  [&](Point point, Value entries) { storeAt(entries, sums, point); });
  }
}

//===----------------------------------------------------------------------===//
// Begin and end
//===----------------------------------------------------------------------===//

/// Sets every entry of a buffer.
static void fill(VectorBuilder &builder, Value buffer, double number) {
  ArrayRef<int64_t> shape = cast<MemRefType>(buffer.getType()).getShape();
  Value entries = builder.splat(number);
  auto fillRow = [&](Value row) {
    builder.loopOverVectors(shape.back(), [&](Value column, int64_t) {
      SmallVector<Value, 2> place = {column};
      if (row)
        place.insert(place.begin(), row);
      builder.store(entries, buffer, place);
    });
  };
  if (shape.size() == 1)
    return fillRow(Value());
  builder.loop(0, shape[0], 1, fillRow);
}

void KernelLowering::beginFold(chunk::LookbackOp op, LookbackFold &fold) {
  int64_t tokens = kernel.getChunk(), rows = padded(tokens);
  for (Value result : op.getResults()) {
    storage[result].rows = allocateFor(result);
    fill(builder, storage[result].rows, 0);
  }
  chunk::Fold kind = op.getFold();
  if (kind == chunk::Fold::Sum || kind == chunk::Fold::Softmax)
    fold.weights = allocateRows(tokens, fold.pastTokens);
  unsigned streams = kind == chunk::Fold::Softmax ? 1 : kind == chunk::Fold::Divergence ? 2 : 0;
  if (streams)
    fold.maxima = allocateRows(rows, builder.width);
  for (unsigned number = 0; number < streams; ++number) {
    Exponentials &stream = fold.streams.emplace_back();
    // What a softmax returns besides its sums is the largest score.
    stream.largest = kind == chunk::Fold::Softmax ? storage[op.getResult(0)].rows : allocateVector(tokens);
    for (Value *buffer : {&stream.shift, &stream.scale, &stream.change})
      *buffer = allocateVector(tokens);
    stream.sums = allocateRows(rows, builder.width);
    fill(builder, stream.largest, -infinity);
    fill(builder, stream.shift, 0);
    fill(builder, stream.sums, 0);
    if (kind != chunk::Fold::Softmax || op.getNumResults() < 4)
      continue;
    stream.hasSame = allocateVector(tokens);
    stream.ties = allocateRows(rows, builder.width);
    fill(builder, stream.ties, 0);
  }
  if (kind == chunk::Fold::Divergence) {
    fold.differences = allocateRows(rows, builder.width);
    fill(builder, fold.differences, 0);
  }
}

void KernelLowering::endFold(chunk::LookbackOp op, LookbackFold &fold) {
  int64_t tokens = kernel.getChunk();
  if (op.getFold() == chunk::Fold::Softmax)
    forBlocksOfRows(builder, tokens, [&](Value block) {
      builder.store(addLanes(builder, fold.streams[0].sums, block), storage[op.getResult(1)].rows, block);
      if (Value ties = fold.streams[0].ties)
        builder.store(addLanes(builder, ties, block), storage[op.getResult(3)].rows, block);
    });
  if (op.getFold() != chunk::Fold::Divergence)
    return;
  forBlocksOfRows(builder, tokens, [&](Value block) {
    Value nothing = builder.splat(-infinity), zero = builder.splat(0.0);
    Value isEmpty = arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ,
                                          builder.load(fold.streams[0].largest, block), nothing);
    SmallVector<Value, 2> totals, logarithms;
    for (auto [number, stream] : llvm::enumerate(fold.streams)) {
      totals.push_back(addLanes(builder, stream.sums, block));
      logarithms.push_back(math::LogOp::create(builder, totals.back()));
      Value sum = arith::AddFOp::create(builder, builder.load(stream.shift, block), logarithms.back());
      builder.store(arith::SelectOp::create(builder, isEmpty, nothing, sum), storage[op.getResult(1 + number)].rows,
                    block);
    }
    Value mean = arith::DivFOp::create(builder, addLanes(builder, fold.differences, block), totals[0]);
    Value divergence =
        arith::AddFOp::create(builder, mean, arith::SubFOp::create(builder, logarithms[1], logarithms[0]));
    builder.store(arith::SelectOp::create(builder, isEmpty, zero, divergence), storage[op.getResult(0)].rows, block);
  });
}
