//===- LookbackFolds.cpp - What a look-back makes of a tile ---------------===//
//
// Sums of exponentials of scores keep the largest score of each row so far, from which scores are taken: what was
// carried before a tile is scaled where the tile has a larger one.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "passes/chunk/InputType.h"
#include "passes/chunk/Scaled.h"
#include "passes/kernel/KernelFolder.h"
#include <numbers>

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static constexpr double infinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value KernelFolder::splat(Type type, double number) {
  auto tile = cast<RankedTensorType>(type);
  return arith::ConstantOp::create(builder,
                                   DenseElementsAttr::get(tile, FloatAttr::get(tile.getElementType(), number)));
}

Value KernelFolder::selectOr(Value condition, Value numbers, double otherwise) {
  return arith::SelectOp::create(builder, condition, numbers, splat(numbers.getType(), otherwise));
}

/// Numbers of rows, repeated over the columns of a tile's shape.
Value KernelFolder::broadcastRows(Value numbers, Value tile) {
  auto type = cast<RankedTensorType>(tile.getType()).clone(getElementTypeOrSelf(numbers.getType()));
  return chunk::BroadcastOp::create(builder, type, numbers, chunk::Side::Rows);
}

/// Of each row less its shift.
Value KernelFolder::exponentialOf(Value numbers, Value shift) {
  return math::ExpOp::create(builder, arith::SubFOp::create(builder, numbers, broadcastRows(shift, numbers)));
}

/// A row as it was before it was widened.
static Value narrow(Value rows) {
  auto extension = rows.getDefiningOp<arith::ExtFOp>();
  return extension ? extension.getIn() : rows;
}

Value KernelFolder::widen(Value tile, Type element) {
  auto wide = cast<RankedTensorType>(tile.getType()).clone(element);
  return tile.getType() == wide ? tile : arith::ExtFOp::create(builder, wide, tile).getResult();
}

/// A product of which the left operand is rounded as the right one was.
Value KernelFolder::multiply(Value left, Value right, Value addend, bool transposeLeft) {
  Type element = getElementTypeOrSelf(right.getType());
  if (getElementTypeOrSelf(left.getType()) != element)
    left = arith::TruncFOp::create(builder, cast<RankedTensorType>(left.getType()).clone(element), left);
  return chunk::DotOp::create(builder, addend.getType(), left, right, addend, transposeLeft,
                              /*transpose_right=*/false);
}

/// Rows added up by weights. What a single token adds up are reductions, as all that a step reads; rows of one column
/// are no operands of a product of matrices.
Value KernelFolder::addWeighted(Value weights, Value rows, Value addend) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(addend.getType()).getShape();
  if (shape[0] > 1 && shape[1] > 1)
    return multiply(weights, rows, addend);
  Type element = getElementTypeOrSelf(addend.getType());
  auto sumOver = [&](chunk::Side side, Value tile) -> Value {
    int64_t count = cast<RankedTensorType>(tile.getType()).getDimSize(side == chunk::Side::Columns ? 0 : 1);
    return chunk::ReduceOp::create(builder, RankedTensorType::get({count}, element), chunk::Reduction::Sum, tile, side);
  };
  weights = widen(weights, element);
  rows = widen(rows, element);
  if (shape[1] == 1) {
    Value numbers = sumOver(chunk::Side::Columns, rows);
    numbers = chunk::BroadcastOp::create(builder, weights.getType(), numbers, chunk::Side::Columns);
    Value sums = sumOver(chunk::Side::Columns, arith::MulFOp::create(builder, weights, numbers));
    return arith::AddFOp::create(builder, addend, broadcastRows(sums, addend));
  }
  Value numbers = broadcastRows(sumOver(chunk::Side::Rows, weights), rows);
  Value sums = sumOver(chunk::Side::Rows, arith::MulFOp::create(builder, rows, numbers));
  sums = chunk::BroadcastOp::create(builder, addend.getType(), sums, chunk::Side::Columns);
  return arith::AddFOp::create(builder, addend, sums);
}

/// Rows scaled by a column and added up.
Value KernelFolder::addScaled(Value rows, Value column, Value addend) {
  auto type = cast<RankedTensorType>(addend.getType());
  rows = widen(rows, type.getElementType());
  SplatElementsAttr same;
  bool isOne = matchPattern(column, m_Constant(&same)) && same.getSplatValue<APFloat>().isExactlyValue(1);
  if (!isOne) {
    auto numbers =
        RankedTensorType::get({cast<RankedTensorType>(column.getType()).getDimSize(0)}, type.getElementType());
    column = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Sum, widen(column, type.getElementType()),
                                     chunk::Side::Columns);
    rows = arith::MulFOp::create(builder, rows, broadcastRows(column, rows));
  }
  Value sums = chunk::ReduceOp::create(builder, type, chunk::Reduction::Sum, rows, chunk::Side::Rows);
  return arith::AddFOp::create(builder, addend, sums);
}

/// The only column of a matrix.
Value KernelFolder::columnOf(Value matrix) {
  auto repeated = matrix.getDefiningOp<chunk::BroadcastOp>();
  if (repeated && repeated.getAlong() == chunk::Side::Rows)
    return repeated.getOperand();
  auto type = cast<RankedTensorType>(matrix.getType());
  SplatElementsAttr same;
  if (matchPattern(matrix, m_Constant(&same)))
    return splat(type.clone({type.getDimSize(0)}), same.getSplatValue<APFloat>().convertToDouble());
  return chunk::ColumnsOp::create(builder, type.clone({type.getDimSize(0)}), matrix, 0);
}

Value KernelFolder::inRangeOf(chunk::LookbackOp op, Value other, unsigned rank) {
  SmallVector<int64_t, 2> shape = {static_cast<int64_t>(kernel.getChunk()), op.getPastTokens()};
  if (rank == 1)
    shape.erase(shape.begin());
  Type type = RankedTensorType::get(shape, builder.getI1Type());
  chunk::ContributeOp contribution = op.getContribution();
  Value first = op.getAhead() ? contribution.getFirst() : op.getFirst();
  Value last = op.getAhead() ? contribution.getLast() : op.getLast();
  return InRangeOp::create(builder, type, mapping.lookup(first), last ? mapping.lookup(last) : Value(), index, other,
                           op.getToEnd(), op.getAhead());
}

//===----------------------------------------------------------------------===//
// Folds
//===----------------------------------------------------------------------===//

/// Whether a sum of outer products is a column, which is no operand of a product of matrices: it is kept as a vector.
static bool isOuterColumn(OpResult sum) {
  bool isOuter = cast<chunk::LookbackOp>(sum.getOwner()).getFold() == chunk::Fold::Outer;
  return isOuter && cast<RankedTensorType>(sum.getType()).getDimSize(1) == 1;
}

/// Scores as products of rows and a positive number that scales them.
struct Scores {
  Value products;
  double factor = 1;

  static Scores of(Value scores) {
    std::optional<Scaled> scaled = Scaled::of(scores);
    double factor = scaled ? scaled->factor.getValueAsDouble() : 0;
    return factor > 0 ? Scores{scaled->tile, factor} : Scores{scores};
  }
  /// Whether all pairs have scores: those of products leave none out.
  static bool leaveNoneOut(Value scores) { return of(scores).products.getDefiningOp<chunk::DotOp>() != nullptr; }
};

/// What a pair that is left out has as its score, in a fold that takes differences of scores: less than any, and
/// finite.
static constexpr double leftOut = -1e37;
/// What no largest score of a row that has met a pair falls below.
static constexpr double noneMet = -1e36;

Value KernelFolder::scaledBy(Value tile, double factor) {
  APFloat number(factor);
  bool isLost = false;
  number.convert(cast<FloatType>(getElementTypeOrSelf(tile)).getFloatSemantics(), APFloat::rmNearestTiesToEven,
                 &isLost);
  return number.isExactlyValue(1) ? tile : Scaled::make(builder, builder.getLoc(), tile, number);
}

/// The largest score so far, as what differences are taken from: no difference of two infinities is formed.
static Value shiftOf(ImplicitLocOpBuilder &builder, Value largest, double none) {
  auto type = cast<RankedTensorType>(largest.getType());
  auto constant = [&](double number) {
    return arith::ConstantOp::create(builder,
                                     DenseElementsAttr::get(type, FloatAttr::get(type.getElementType(), number)));
  };
  Value isNone = arith::CmpFOp::create(builder, arith::CmpFPredicate::OLE, largest, constant(none));
  return arith::SelectOp::create(builder, isNone, constant(0), largest);
}

SmallVector<Value> KernelFolder::beginFold(chunk::LookbackOp op) {
  SmallVector<Value> begin;
  auto add = [&](Type type, double number) { begin.push_back(splat(type, number)); };
  switch (op.getFold()) {
  case chunk::Fold::Softmax: // the largest score, the sum of exponentials, rows summed with these weights, and ties
    for (auto [index, type] : llvm::enumerate(op.getResultTypes()))
      add(type, index == 0 ? -infinity : 0);
    break;
  case chunk::Fold::Divergence: // largest scores and sums of the teacher and the student, and weighted differences
    for (double number : {-infinity, -infinity, 0.0, 0.0, 0.0})
      add(op.getResultTypes()[0], number);
    break;
  case chunk::Fold::Sum:
  case chunk::Fold::Outer:
    for (OpResult result : op->getOpResults()) {
      if (Value base = baseOf(result)) {
        if (!mapping.contains(base))
          builder.clone(*base.getDefiningOp(), mapping);
        begin.push_back(mapping.lookup(base));
      } else {
        add(result.getType(), 0);
      }
      if (isOuterColumn(result))
        begin.back() = columnOf(begin.back());
    }
    break;
  }
  return begin;
}

SmallVector<Value> KernelFolder::inRangeOr(chunk::LookbackOp op, Value other, Value isWhole, ValueRange tiles,
                                           ArrayRef<double> otherwise, Value exists) {
  auto choose = [&]() -> SmallVector<Value> {
    Value inRange = inRangeOf(op, other, 2);
    if (exists)
      inRange = arith::AndIOp::create(builder, inRange, exists);
    return llvm::map_to_vector(llvm::enumerate(tiles), [&](auto tile) {
      return selectOr(inRange, tile.value(), otherwise[otherwise.size() == 1 ? 0 : tile.index()]);
    });
  };
  if (!isWhole || exists)
    return choose();
  auto condition = scf::IfOp::create(builder, tiles.getTypes(), isWhole, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(condition.thenBlock());
  scf::YieldOp::create(builder, tiles);
  builder.setInsertionPointToStart(condition.elseBlock());
  scf::YieldOp::create(builder, choose());
  return llvm::to_vector(ValueRange(condition.getResults()));
}

SmallVector<Value> KernelFolder::foldTile(chunk::LookbackOp op, Value other, Value isWhole, ValueRange before) {
  SmallVector<Value> given =
      llvm::map_to_vector(op.getContribution().getGiven(), [&](Value value) { return mapping.lookup(value); });
  // Rows of tokens outside of all ranges are as they are in memory, or 0 beyond it; what was computed of them may be
  // infinite.
  auto isAsInMemory = [&](unsigned number) {
    Value given = narrow(op.getContribution().getGiven()[number]);
    return isa<BlockArgument>(given) || matchPattern(given, m_Constant());
  };
  auto rowsInRange = [&](unsigned number) {
    Value rows = narrow(given[number]);
    return isAsInMemory(number) ? rows : selectOr(broadcastRows(inRangeOf(op, other, 1), rows), rows, 0);
  };
  switch (op.getFold()) {
  case chunk::Fold::Softmax: {
    Scores scores = Scores::of(given[0]);
    scores.products = inRangeOr(op, other, isWhole, scores.products, -infinity)[0];
    return foldSoftmax(scaledBy(scores.products, scores.factor), rowsInRange(1), before);
  }
  case chunk::Fold::Divergence:
    return foldDivergence(op, other, isWhole, given[0], given[1], before);
  case chunk::Fold::Sum: {
    // Two weights that are rounded share a register, and are chosen before.
    SmallVector<Value> rounded, weights, after;
    for (size_t number = 0; number < before.size(); ++number) {
      rounded.push_back(narrow(given[2 * number]));
      auto rounding = rounded.back().getDefiningOp<arith::TruncFOp>();
      weights.push_back(rounding ? rounding.getIn() : rounded.back());
    }
    weights = inRangeOr(op, other, isWhole, weights, 0);
    for (auto [number, sum] : llvm::enumerate(before)) {
      Value own = weights[number];
      if (own.getType() != rounded[number].getType())
        own = arith::TruncFOp::create(builder, rounded[number].getType(), own);
      after.push_back(addWeighted(own, rowsInRange(2 * number + 1), sum));
    }
    return after;
  }
  case chunk::Fold::Outer: {
    SmallVector<Value> after;
    // Of a chunk that stands as far from each all tokens are met that there are.
    Value inRange = isLagging(op) ? Value() : inRangeOf(op, other, 1), count;
    if (!inRange && op.getAhead()) {
      Value left = arith::SubIOp::create(builder, tokens, arith::MulIOp::create(builder, other, perChunk));
      count = arith::MinSIOp::create(builder, left, perChunk);
    } else if (!inRange) {
      Value isThere = arith::CmpIOp::create(builder, arith::CmpIPredicate::sge, other, constant(0));
      count = arith::SelectOp::create(builder, isThere, perChunk, constant(0));
    }
    auto rowsMet = [&](Value rows) -> Value {
      if (count)
        return chunk::MaskOp::create(builder, rows, count);
      return selectOr(broadcastRows(inRange, rows), rows, 0);
    };
    for (auto [number, sum] : llvm::enumerate(before)) {
      Value left = rowsMet(narrow(given[2 * number]));
      Value right = narrow(given[2 * number + 1]);
      right = isAsInMemory(2 * number + 1) ? right : rowsMet(right);
      after.push_back(isOuterColumn(op->getOpResult(number)) ? addScaled(left, right, sum)
                                                             : multiply(left, right, sum, /*transposeLeft=*/true));
    }
    return after;
  }
  }
  llvm_unreachable("covered switch");
}

SmallVector<Value> KernelFolder::foldSoftmax(Value scores, Value rows, ValueRange before) {
  Type numbers = before[0].getType();
  Value here = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Max, scores, chunk::Side::Columns);
  Value largest = arith::MaximumFOp::create(builder, before[0], here);
  Value shift = shiftOf(builder, largest, -infinity);
  Value scale = math::ExpOp::create(builder, arith::SubFOp::create(builder, before[0], shift));
  Value weights = exponentialOf(scores, shift);
  Value sum = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Sum, weights, chunk::Side::Columns);
  Value scaledSum = arith::MulFOp::create(builder, before[1], scale);
  Value scaledRows = arith::MulFOp::create(builder, before[2], broadcastRows(scale, before[2]));
  SmallVector<Value> after = {largest, arith::AddFOp::create(builder, scaledSum, sum),
                              addWeighted(weights, rows, scaledRows)};
  if (before.size() == 4)
    after.push_back(countTies(scores, largest, before[0], before[3]));
  return after;
}

/// Those so far count while no larger score has come.
Value KernelFolder::countTies(Value scores, Value largest, Value largestBefore, Value ties) {
  auto areEqual = [&](Value left, Value right) -> Value {
    return arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, left, right);
  };
  Value hits = selectOr(areEqual(scores, broadcastRows(largest, scores)), splat(scores.getType(), 1), 0);
  Value here = chunk::ReduceOp::create(builder, ties.getType(), chunk::Reduction::Sum, hits, chunk::Side::Columns);
  return arith::AddFOp::create(builder, selectOr(areEqual(largestBefore, largest), ties, 0), here);
}

/// In which units scores are raised: of log 2, if what rounding their factor takes is little beside what rounding rows
/// to 16 bits took.
double KernelFolder::unitsOfScores() {
  return inputTypeOf(kernel).getIntOrFloatBitWidth() == 16 ? std::numbers::log2e : 1;
}

/// Of the scores s and r, less their shifts, the sum of e^s (s - r) is kept. When the shifts grow by c and d, each
/// difference shrinks by c - d before it is scaled, so that large scores that both streams have in common cancel
/// exactly. What is kept of the largest scores is a product as it was formed: numbers of 16 bits are scaled and
/// shifted by one instruction, but of others the largest is to differ by nothing from itself.
SmallVector<Value> KernelFolder::foldDivergence(chunk::LookbackOp op, Value other, Value isWhole, Value teacher,
                                                Value student, ValueRange before) {
  Type numbers = before[0].getType();
  Scores ofTeacher = Scores::of(teacher), ofStudent = Scores::of(student);
  // A pair that either stream leaves out is left out of both.
  Value exists;
  for (Value scores : {teacher, student}) {
    if (Scores::leaveNoneOut(scores))
      continue;
    Value own = arith::CmpFOp::create(builder, arith::CmpFPredicate::UNE, scores, splat(scores.getType(), -infinity));
    exists = exists ? arith::AndIOp::create(builder, exists, own).getResult() : own;
  }
  double units = unitsOfScores();
  auto raised = [&](Value x) -> Value {
    return units == 1 ? math::ExpOp::create(builder, x).getResult() : math::Exp2Op::create(builder, x);
  };
  auto difference = [&](Value a, Value b) -> Value { return arith::SubFOp::create(builder, a, b); };
  SmallVector<Value> met =
      inRangeOr(op, other, isWhole, {ofTeacher.products, ofStudent.products},
                {leftOut / (ofTeacher.factor * units), leftOut / (ofStudent.factor * units)}, exists);
  struct Stream {
    Value scores, largest, change, scale, weights, sum;
  };
  auto raise = [&](Value products, double factor, Value largest, Value sum) {
    Stream stream;
    double none = noneMet / factor;
    Value here = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Max, products, chunk::Side::Columns);
    stream.largest = arith::MaximumFOp::create(builder, largest, here);
    Value shift = shiftOf(builder, stream.largest, none);
    stream.change = scaledBy(difference(shift, shiftOf(builder, largest, none)), factor);
    stream.scale = raised(scaledBy(difference(largest, shift), factor));
    stream.scores = units == 1
                        ? scaledBy(difference(products, broadcastRows(shift, products)), factor)
                        : difference(scaledBy(products, factor), broadcastRows(scaledBy(shift, factor), products));
    stream.weights = raised(stream.scores);
    Value scaled = arith::MulFOp::create(builder, sum, stream.scale);
    Value added =
        chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Sum, stream.weights, chunk::Side::Columns);
    stream.sum = arith::AddFOp::create(builder, scaled, added);
    return stream;
  };
  Stream t = raise(met[0], ofTeacher.factor * units, before[0], before[2]);
  Stream s = raise(met[1], ofStudent.factor * units, before[1], before[3]);
  Value grown = difference(t.change, s.change);
  Value differences = difference(before[4], arith::MulFOp::create(builder, before[2], grown));
  Value weighted = arith::MulFOp::create(builder, t.weights, difference(t.scores, s.scores));
  Value added = chunk::ReduceOp::create(builder, numbers, chunk::Reduction::Sum, weighted, chunk::Side::Columns);
  differences = arith::AddFOp::create(builder, arith::MulFOp::create(builder, differences, t.scale), added);
  return {t.largest, s.largest, t.sum, s.sum, differences};
}

SmallVector<Value> KernelFolder::endFold(chunk::LookbackOp op, ValueRange after) {
  if (op.getFold() == chunk::Fold::Softmax && after.size() == 4) {
    // Pairs that are left out attain the largest score of none.
    Value isNone =
        arith::CmpFOp::create(builder, arith::CmpFPredicate::OEQ, after[0], splat(after[0].getType(), -infinity));
    Value ties = arith::SelectOp::create(builder, isNone, splat(after[3].getType(), 0), after[3]);
    return {after[0], after[1], after[2], ties};
  }
  if (op.getFold() != chunk::Fold::Divergence)
    return llvm::map_to_vector(llvm::zip_equal(op->getOpResults(), after), [&](auto each) -> Value {
      auto [result, sum] = each;
      return isOuterColumn(result) ? chunk::BroadcastOp::create(builder, result.getType(), sum, chunk::Side::Rows)
                                   : sum;
    });
  Type numbers = after[0].getType();
  double units = unitsOfScores();
  auto factorOf = [&](unsigned stream) { return Scores::of(op.getContribution().getGiven()[stream]).factor; };
  auto noneOf = [&](unsigned stream) { return noneMet / (factorOf(stream) * units); };
  Value isEmpty = arith::CmpFOp::create(builder, arith::CmpFPredicate::OLE, after[0], splat(numbers, noneOf(0)));
  SmallVector<Value, 2> logarithms, totals;
  for (unsigned stream : {0, 1}) {
    logarithms.push_back(math::LogOp::create(builder, after[2 + stream]));
    Value shift = scaledBy(shiftOf(builder, after[stream], noneOf(stream)), factorOf(stream));
    Value total = arith::AddFOp::create(builder, shift, logarithms[stream]);
    totals.push_back(arith::SelectOp::create(builder, isEmpty, splat(numbers, -infinity), total));
  }
  Value mean = scaledBy(arith::DivFOp::create(builder, after[4], after[2]), 1 / units);
  Value divergence = arith::AddFOp::create(builder, mean, arith::SubFOp::create(builder, logarithms[1], logarithms[0]));
  return {arith::SelectOp::create(builder, isEmpty, splat(numbers, 0), divergence), totals[0], totals[1]};
}
