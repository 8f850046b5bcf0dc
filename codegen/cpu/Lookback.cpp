//===- Lookback.cpp - Folds over the tiles of other chunks ----------------===//
//
// A look-back is a loop over the chunks that any token of this one sees. For each, the body leaves weights or scores
// and rows in buffers, and these join the sums so far: a sum of exponentials keeps the largest score of each token, and
// what was summed before is scaled when a larger one arrives. Sums along a row are kept as vectors of partial sums,
// which are added up once, at the end.
//
// The range of a token is a range of lanes of a tile's row. Beyond it scores are -inf and weights 0; tokens of a tile
// that do not exist are beyond it too, and no product runs over them.
//
// A fold ahead has a range for each lane instead, and does not know before which chunk is the last: it goes on until
// the last token of a tile looks back to none of the chunk's. Of a tile that meets none of them the ranges alone are
// found.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {
/// Sums of exponentials of one stream of scores, one for each token. Differences are taken from `shift`, which is the
/// largest score so far or, where there is none, 0: no difference of two infinities is formed.
struct Exponentials {
  Value scores;         // of the present tile
  Value largest, shift; // of each token
  Value scale, change;  // of the present tile: what the sums are scaled by, and how much the shift has grown
  Value sums;           // partial sums, a vector for each token
};
} // namespace

struct KernelLowering::LookbackFold {
  bool isAhead = false;
  int64_t pastTokens = 0; // of a tile that is met
  /// Tokens of the sequence where the range of each token begins and ends; ahead, of each token of the chunk that is
  /// met.
  Value begins, ends;
  /// The tile that is met: its first token, and how many tokens of it exist.
  Value first, count;
  SmallVector<Exponentials, 2> streams;
  /// Weights of the pairs, 0 where a pair is left out.
  Value weights;
  /// Partial maxima, and of a divergence partial sums of weighted differences: a vector for each token.
  Value maxima, differences;
};

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

const KernelLowering::Argument *KernelLowering::windowOf(const Argument &input) const {
  const Argument *window =
      llvm::find_if(arguments, [&](const Argument &other) { return isWindow(other) && other.entry == input.name; });
  return window == arguments.end() ? nullptr : window;
}

int64_t KernelLowering::windowLength() const {
  const Argument *window = llvm::find_if(arguments, isWindow);
  return window == arguments.end() ? 0 : window->type.getDimSize(0);
}

Value KernelLowering::tokensInWindow() {
  const Argument *window = llvm::find_if(arguments, isWindow);
  if (window == arguments.end())
    return builder.index(0);
  Value isGiven = builder.compare(arith::CmpIPredicate::ne, window->words[0], builder.index(0));
  Value held = builder.minimum(itemPosition, builder.index(windowLength()));
  return arith::SelectOp::create(builder, isGiven, held, builder.index(0));
}

SmallVector<KernelLowering::View> KernelLowering::viewPast(ArrayRef<const Argument *> inputs, Value firstPast,
                                                           Value count, int64_t tokens) {
  Value none = builder.index(0), from = none;
  Value isBefore = builder.compare(arith::CmpIPredicate::slt, firstPast, none);
  if (windowLength()) {
    Value missing = builder.subtract(none, builder.add(firstPast, tokensInWindow()));
    from = arith::SelectOp::create(builder, isBefore, arith::MaxSIOp::create(builder, missing, none), none);
  }
  SmallVector<Rows> tiles;
  for (const Argument *input : inputs) {
    Rows &rows = tiles.emplace_back(rowsOf(*input, firstPast));
    const Argument *window = windowOf(*input);
    if (!window)
      continue;
    rows.address = arith::SelectOp::create(builder, isBefore, window->address, rows.address);
    rows.stride = arith::SelectOp::create(builder, isBefore, window->words[4], rows.stride);
    rows.isRing = isBefore;
    rows.ringStart = builder.add(itemPosition, firstPast);
    rows.ringLength = windowLength();
  }
  return viewRows(tiles, from, count, tokens);
}

void KernelLowering::storeWindows(const Item &item) {
  for (const Argument &window : arguments) {
    if (!isWindow(window))
      continue;
    const Argument &input =
        *llvm::find_if(arguments, [&](const Argument &other) { return isTile(other) && other.name == window.entry; });
    Value isWanted = builder.compare(arith::CmpIPredicate::ne, window.words[1], builder.index(0));
    Value member = builder.createOrFold<arith::RemUIOp>(item.head, builder.index(window.group));
    Value isFirst = builder.compare(arith::CmpIPredicate::eq, member, builder.index(0));
    builder.ifTrue(builder.createOrFold<arith::AndIOp>(isWanted, isFirst), [&] {
      Type element = input.type.getElementType();
      Value from = memoryAt(input.address, element), to = memoryAt(window.finalAddress, element);
      Value length = builder.index(windowLength());
      Value first = arith::MaxSIOp::create(builder, builder.subtract(item.tokens, length), item.begin);
      builder.loop(first, item.end, 1, [&](Value token) {
        Value row = builder.createOrFold<arith::RemUIOp>(builder.add(itemPosition, token), length);
        copyToken(input.type, from, builder.multiply(token, input.words[2]), to,
                  builder.multiply(row, window.words[4]));
      });
    });
  }
}

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

static void storeIndex(VectorBuilder &builder, Value index, Value buffer, Value place) {
  Value integer = arith::IndexCastOp::create(builder, builder.getI64Type(), index);
  memref::StoreOp::create(builder, integer, buffer, place);
}

static Value loadIndex(VectorBuilder &builder, Value buffer, Value place) {
  return arith::IndexCastOp::create(builder, builder.getIndexType(), memref::LoadOp::create(builder, buffer, place));
}

void KernelLowering::findRanges(chunk::LookbackOp op, Value first, Value last, Value firstToken, LookbackFold &fold) {
  auto toNumber = [&](Value index) -> Value {
    Value integer = arith::IndexCastOp::create(builder, builder.getI64Type(), index);
    return arith::SIToFPOp::create(builder, builder.element, integer);
  };
  auto constant = [&](double value) -> Value {
    return arith::ConstantOp::create(builder, builder.getFloatAttr(builder.element, value));
  };
  Value end = toNumber(itemTokens), position = toNumber(itemPosition);
  Value start = toNumber(builder.subtract(builder.index(0), tokensInWindow()));
  // A bound as a token of the sequence or a window, or the end; what is not a number is the start.
  auto tokenAt = [&](Value bound, Value row, double offset, auto round) {
    known.clear();
    Value number = vector::ExtractOp::create(builder, evaluateSplat(bound, row), 0);
    number = arith::AddFOp::create(builder, arith::SubFOp::create(builder, round(number), position), constant(offset));
    number = arith::MinNumFOp::create(builder, arith::MaxNumFOp::create(builder, number, start), end);
    Value integer = arith::FPToSIOp::create(builder, builder.getI64Type(), number);
    return arith::IndexCastOp::create(builder, builder.getIndexType(), integer).getResult();
  };
  builder.loop(0, fold.isAhead ? fold.pastTokens : kernel.getChunk(), 1, [&](Value row) {
    Value begin = tokenAt(first, row, 0, [&](Value x) -> Value { return math::CeilOp::create(builder, x); });
    Value end = op.getToEnd() ? itemTokens : builder.minimum(itemTokens, builder.add(builder.add(firstToken, row), 1));
    if (last)
      end = builder.minimum(end,
                            tokenAt(last, row, 1, [&](Value x) -> Value { return math::FloorOp::create(builder, x); }));
    storeIndex(builder, begin, fold.begins, row);
    storeIndex(builder, end, fold.ends, row);
  });
}

Value KernelLowering::isInRange(const LookbackFold &fold, Value row, Value column) {
  if (fold.isAhead) {
    auto words = VectorType::get(builder.width, builder.getI64Type());
    auto wordsAt = [&](Value buffer) -> Value { return vector::LoadOp::create(builder, words, buffer, column); };
    Value token = arith::IndexCastOp::create(builder, builder.getI64Type(), builder.add(chunkStart, row));
    token = vector::BroadcastOp::create(builder, words, token);
    Value begun = arith::CmpIOp::create(builder, arith::CmpIPredicate::sle, wordsAt(fold.begins), token);
    Value within = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, token, wordsAt(fold.ends));
    Value exists = builder.lanesBefore(builder.subtract(fold.count, column));
    return arith::AndIOp::create(builder, exists, arith::AndIOp::create(builder, begun, within));
  }
  Value begin = builder.subtract(loadIndex(builder, fold.begins, row), fold.first);
  Value end = builder.minimum(builder.subtract(loadIndex(builder, fold.ends, row), fold.first), fold.count);
  Value before = builder.lanesBefore(builder.subtract(begin, column));
  Value within = builder.lanesBefore(builder.subtract(end, column));
  // In front of the range there is nothing that is not also before its end.
  Value all = arith::ConstantOp::create(builder, DenseElementsAttr::get(builder.maskType(), true));
  return arith::AndIOp::create(builder, within, arith::XOrIOp::create(builder, before, all));
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

void KernelLowering::emitLookback(chunk::LookbackOp op) {
  LookbackFold fold;
  fold.isAhead = op.getAhead();
  fold.pastTokens = op.getPastTokens();
  int64_t bounded = fold.isAhead ? fold.pastTokens : kernel.getChunk();
  for (Value *bounds : {&fold.begins, &fold.ends})
    *bounds = allocate({padded(bounded)}, builder.getI64Type());
  beginFold(op, fold);
  if (fold.isAhead)
    foldAhead(op, fold);
  else
    foldBack(op, fold);
  endFold(op, fold);
}

void KernelLowering::foldBack(chunk::LookbackOp op, LookbackFold &fold) {
  findRanges(op, op.getFirst(), op.getLast(), chunkStart, fold);
  Value begin = loadIndex(builder, fold.begins, builder.index(0));
  Value end = loadIndex(builder, fold.ends, builder.subtract(valid, builder.index(1)));
  Value tokens = builder.index(fold.pastTokens);
  // Tiles before the first token are counted from it, too.
  int64_t before = llvm::alignTo(windowLength(), fold.pastTokens);
  Value firstTile = builder.createOrFold<arith::DivUIOp>(builder.add(begin, before), tokens);
  firstTile = builder.subtract(builder.multiply(firstTile, tokens), builder.index(before));
  builder.loop(firstTile, end, fold.pastTokens, [&](Value firstPast) {
    fold.first = firstPast;
    fold.count = builder.minimum(builder.subtract(itemTokens, firstPast), tokens);
    loadPast(op, fold);
    emitBody(op.getBlock()->without_terminator());
    foldTile(op, fold);
  });
}

void KernelLowering::foldAhead(chunk::LookbackOp op, LookbackFold &fold) {
  chunk::ContributeOp contribution = op.getContribution();
  // What the bounds need stands before what only pairs do.
  auto operations = op.getBlock()->without_terminator();
  auto rest = operations.begin();
  for (auto next = operations.begin(); next != operations.end(); ++next)
    if (llvm::is_contained({contribution.getFirst(), contribution.getLast()}, next->getResult(0)))
      rest = std::next(next);
  Value tokens = builder.index(fold.pastTokens), chunkEnd = builder.add(chunkStart, valid);
  auto isAfter = [&](Value left, Value right) { return builder.compare(arith::CmpIPredicate::sgt, left, right); };
  builder.loopWhile(op.getToEnd() ? builder.index(0) : chunkStart, itemTokens, fold.pastTokens, [&](Value firstPast) {
    fold.first = firstPast;
    fold.count = builder.minimum(builder.subtract(itemTokens, firstPast), tokens);
    loadPast(op, fold);
    emitBody({operations.begin(), rest});
    findRanges(op, contribution.getFirst(), contribution.getLast(), firstPast, fold);
    Value last = builder.subtract(fold.count, builder.index(1));
    Value begun = isAfter(chunkEnd, loadIndex(builder, fold.begins, builder.index(0)));
    Value reached = isAfter(loadIndex(builder, fold.ends, last), chunkStart);
    builder.ifTrue(arith::AndIOp::create(builder, begun, reached), [&] {
      emitBody({rest, operations.end()});
      foldTile(op, fold);
    });
    return isAfter(chunkEnd, loadIndex(builder, fold.begins, last));
  });
}

void KernelLowering::foldTile(chunk::LookbackOp op, LookbackFold &fold) {
  builder.setLoc(op.getLoc());
  switch (op.getFold()) {
  case chunk::Fold::Sum:
    return foldWeights(op, fold);
  case chunk::Fold::Softmax:
    return foldSoftmax(op, fold);
  case chunk::Fold::Divergence:
    return foldDivergence(op, fold);
  case chunk::Fold::Outer:
    return foldOuter(op, fold);
  }
}

void KernelLowering::loadPast(chunk::LookbackOp op, const LookbackFold &fold) {
  SmallVector<const Argument *> tiles;
  SmallVector<Value> inputs;
  for (auto [argument, source] : llvm::zip_equal(op.getBlock()->getArguments(), op.getPast())) {
    const Argument &described = arguments[cast<BlockArgument>(source).getArgNumber()];
    if (described.kind == chunk::ArgumentKind::Table) {
      storage[argument].rows = allocateFor(argument);
      loadTable(described, builder.add(itemPosition, fold.first), fold.count, fold.pastTokens, storage[argument].rows);
      continue;
    }
    tiles.push_back(&described);
    inputs.push_back(argument);
  }
  for (auto [argument, view] : llvm::zip_equal(inputs, viewPast(tiles, fold.first, fold.count, fold.pastTokens)))
    views[argument] = view;
  for (BlockArgument argument : op.getBlock()->getArguments())
    emitValue(argument);
}

void KernelLowering::emitBody(llvm::iterator_range<Block::iterator> operations) {
  for (Operation &inner : operations)
    if (!plan.isInvariant(inner.getResult(0)))
      emitValue(inner.getResult(0));
}

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
    builder.loopOverWhole(padded(fold.pastTokens), sums, [&](Value column, ValueRange carried) -> SmallVector<Value> {
      Value weight = math::ExpOp::create(builder, arith::SubFOp::create(builder, scoresAt(row, column), shift));
      builder.store(weight, fold.weights, {row, column});
      return {arith::AddFOp::create(builder, carried[0], weight)};
    });
    builder.store(sums[0], stream.sums, {row, zero});
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

std::pair<Value, Value> KernelLowering::rowsInRange(const LookbackFold &fold) {
  Value none = builder.index(0);
  if (!fold.isAhead) {
    Value begin = loadIndex(builder, fold.begins, none);
    Value end = loadIndex(builder, fold.ends, builder.subtract(valid, builder.index(1)));
    Value from = arith::MaxSIOp::create(builder, builder.subtract(begin, fold.first), none);
    Value to = builder.minimum(builder.subtract(end, fold.first), fold.count);
    return {from, arith::MaxSIOp::create(builder, to, from)};
  }
  // Ranges never fall: those that end before the chunk come first, those that begin behind it last.
  Value chunkEnd = builder.add(chunkStart, valid);
  SmallVector<Value> counts =
      builder.loop(none, fold.count, ValueRange{none, none}, [&](Value row, ValueRange carried) -> SmallVector<Value> {
        auto addIf = [&](Value count, arith::CmpIPredicate predicate, Value bounds, Value edge) {
          Value counts = builder.compare(predicate, loadIndex(builder, bounds, row), edge);
          return builder.add(count, arith::IndexCastUIOp::create(builder, builder.getIndexType(), counts));
        };
        return {addIf(carried[0], arith::CmpIPredicate::sle, fold.ends, chunkStart),
                addIf(carried[1], arith::CmpIPredicate::slt, fold.begins, chunkEnd)};
      });
  return {counts[0], arith::MaxSIOp::create(builder, counts[1], counts[0])};
}

void KernelLowering::foldOuter(chunk::LookbackOp op, LookbackFold &fold) {
  OperandRange given = op.getContribution().getGiven();
  Value sums = storage[op.getResult(0)].rows;
  auto [from, to] = rowsInRange(fold);
  Term term = {
      .left = storage[given[0]].rows, .leftByColumns = true, .right = storage[given[1]].rows, .from = from, .to = to};
  auto add = [&](Point point, Value added) -> Value {
    return arith::AddFOp::create(builder, builder.load(sums, {point.row, point.column}), added);
  };
  computeRegion(term, 0, shapeOf(given[0])[1], shapeOf(given[1])[1], add,
                [&](Point point, Value entries) { storeAt(entries, sums, point); });
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
