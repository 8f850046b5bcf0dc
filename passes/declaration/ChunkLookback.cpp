//===- ChunkLookback.cpp - Look-backs over tiles of pairs -----------------===//

#include "passes/declaration/ChunkLookback.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/declaration/ChunkRows.h"

using namespace mlir;
using namespace stretto;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static bool isNumber(Value row) { return axisOf(row.getType()).empty(); }

namespace {

/// What a value of the body depends on.
enum class Of {
  Neither,      // constants and parameters: the same tile for all tokens
  Token,        // rows of t
  Past,         // rows of j
  Pair,         // a number of both
  WeightedPast, // numbers of both times rows of j, added up
};

/// A number of both times a row of j; a null row while the number is repeated over channels.
struct Term {
  Value weights, rows;
};
using Terms = SmallVector<Term, 2>;

class LookbackTiles {
public:
  LookbackTiles(LookbackOp op, TileBuilder &b, const Sizes &sizes, RawTiles rawTileOf)
      : op(op), b(b), sizes(sizes), pastTiles(op, b, sizes, rawTileOf), past(pastTiles.builder()) {}

  LogicalResult build();

private:
  LogicalResult add(Operation *inner);
  LogicalResult addPast(PastOp inner);
  LogicalResult addPairs(Operation *inner);
  /// The tile of j of what is the same for all tokens.
  LogicalResult addSame(Value row);
  /// The tile of rows of j, or null where a row is of another kind.
  Value rowsOfPast(Value row);
  FailureOr<Terms> termsOf(Value row);
  FailureOr<PastTiles::Range> range();
  /// The chunks that the tokens of one see, where chunks have as many tokens as tiles.
  ChunksMet met() {
    return op.getToEnd() || b.tokens != past.tokens ? ChunksMet() : ChunksMet::seen(op.getFirst(), b.tokens);
  }
  LogicalResult buildSums(PastTiles::Range range);
  LogicalResult buildScores(PastTiles::Range range);
  Of kindOf(Value row);
  /// A number of t, of j or of both as a tile of pairs.
  Value pairsOf(Value number);
  LogicalResult refuse(Operation *at, const Twine &reason) { return refuseForm(b.form, at) << reason; }
  RankedTensorType square() { return b.tensorType({b.tokens, past.tokens}); }

  LookbackOp op;
  TileBuilder &b;
  const Sizes &sizes;
  PastTiles pastTiles;
  TileBuilder &past;
  llvm::DenseMap<Value, Of> kinds;
  llvm::DenseMap<Value, Value> pairs;
  llvm::DenseMap<Value, Terms> weighted;
};

} // namespace

//===----------------------------------------------------------------------===//
// Rows of one token
//===----------------------------------------------------------------------===//

Of LookbackTiles::kindOf(Value row) {
  if (auto found = kinds.find(row); found != kinds.end())
    return found->second;
  // What comes from outside belongs to t, if to any token.
  Operation *maker = row.getDefiningOp();
  bool isConstant = isa_and_nonnull<ConstantOp, arith::ConstantOp>(maker);
  return kinds[row] = isConstant || isParam(row.getType()) ? Of::Neither : Of::Token;
}

static Value noTail(Operation *) { return Value(); }

LogicalResult LookbackTiles::addSame(Value row) {
  if (past.tileOf(row))
    return success();
  Operation *maker = row.getDefiningOp();
  if (!maker) {
    past.setTile(row, b.tileOf(row));
    return success();
  }
  for (Value operand : maker->getOperands())
    if (failed(addSame(operand)))
      return failure();
  return buildRowMap(maker, past, sizes, noTail);
}

LogicalResult LookbackTiles::addPast(PastOp inner) {
  Value row = inner.getOperand();
  if (failed(pastTiles.build(row)))
    return failure();
  past.setTile(inner.getResult(), past.tileOf(row));
  kinds[inner.getResult()] = Of::Past;
  return success();
}

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

Value LookbackTiles::pairsOf(Value number) {
  if (Value tile = pairs.lookup(number))
    return tile;
  bool isPast = kindOf(number) == Of::Past;
  Value tile = isPast ? past.tileOf(number) : b.tileOf(number);
  auto type = square().clone(typeOf(tile).getElementType());
  return pairs[number] = past.repeat(tile, type, isPast ? chunk::Side::Columns : chunk::Side::Rows);
}

LogicalResult LookbackTiles::addPairs(Operation *inner) {
  Value result = inner->getResult(0);
  past.setLoc(inner->getLoc());
  auto rowsOf = [&](Value row) { return past.matrixOf((kindOf(row) == Of::Past ? past : b).tileOf(row)); };

  if (auto dot = dyn_cast<DotOp>(inner)) {
    Value left = dot.getLeft(), right = dot.getRight();
    if (kindOf(left) == Of::Past)
      std::swap(left, right);
    if (kindOf(left) == Of::Token && kindOf(right) == Of::Past) {
      kinds[result] = Of::Pair;
      pairs[result] = past.dot(rowsOf(left), rowsOf(right), {}, /*transposeLeft=*/false, /*transposeRight=*/true);
      return success();
    }
  } else if (auto broadcast = dyn_cast<BroadcastOp>(inner); broadcast && kindOf(broadcast.getOperand()) == Of::Pair) {
    kinds[result] = isNumber(result) ? Of::Pair : Of::WeightedPast;
    Value weights = pairsOf(broadcast.getOperand());
    if (isNumber(result))
      pairs[result] = weights;
    else
      weighted[result] = {{weights, Value()}};
    return success();
  } else if (isa<arith::MulFOp>(inner) && !isNumber(result)) {
    Value weight = inner->getOperand(0), row = inner->getOperand(1);
    if (kindOf(row) == Of::WeightedPast)
      std::swap(weight, row);
    Terms terms = weighted.lookup(weight);
    bool isFree = terms.size() == 1 && !terms.front().rows;
    if (isFree && (kindOf(row) == Of::Past || kindOf(row) == Of::Neither)) {
      kinds[result] = Of::WeightedPast;
      weighted[result] = {{terms.front().weights, rowsOfPast(row)}};
      return success();
    }
  } else if (isa<arith::AddFOp>(inner) && !isNumber(result)) {
    Value left = inner->getOperand(0), right = inner->getOperand(1);
    if (kindOf(left) == Of::WeightedPast && kindOf(right) == Of::WeightedPast) {
      Terms terms = weighted.lookup(left);
      llvm::append_range(terms, weighted.lookup(right));
      kinds[result] = Of::WeightedPast;
      weighted[result] = std::move(terms);
      return success();
    }
  } else if (inner->hasTrait<OpTrait::Elementwise>() && isNumber(result)) {
    IRMapping mapping;
    for (Value operand : inner->getOperands())
      mapping.map(operand, pairsOf(operand));
    Operation *tile = past.clone(*inner, mapping);
    tile->getResult(0).setType(square().clone(past.tileType(result.getType()).getElementType()));
    kinds[result] = Of::Pair;
    pairs[result] = tile->getResult(0);
    return success();
  }
  return refuse(inner, "rows of both tokens of a pair meet, and neither is a product of the two nor a number made of "
                       "such products");
}

LogicalResult LookbackTiles::add(Operation *inner) {
  if (auto row = dyn_cast<PastOp>(inner))
    return addPast(row);
  bool ofToken = false, ofPast = false, ofPair = false;
  for (Value operand : inner->getOperands()) {
    Of kind = kindOf(operand);
    ofToken |= kind == Of::Token;
    ofPast |= kind == Of::Past;
    ofPair |= kind == Of::Pair || kind == Of::WeightedPast;
  }
  if (ofPair || (ofToken && ofPast))
    return addPairs(inner);
  kinds[inner->getResult(0)] = ofPast ? Of::Past : ofToken ? Of::Token : Of::Neither;
  if (!ofPast)
    return buildRowMap(inner, b, sizes, noTail);
  for (Value operand : inner->getOperands())
    if (kindOf(operand) == Of::Neither && failed(addSame(operand)))
      return failure();
  return buildRowMap(inner, past, sizes, noTail);
}

//===----------------------------------------------------------------------===//
// The fold
//===----------------------------------------------------------------------===//

Value LookbackTiles::rowsOfPast(Value row) {
  bool isSame = kindOf(row) == Of::Neither && succeeded(addSame(row));
  return isSame || kindOf(row) == Of::Past ? past.matrixOf(past.tileOf(row)) : Value();
}

FailureOr<Terms> LookbackTiles::termsOf(Value row) {
  if (kindOf(row) == Of::WeightedPast) {
    Terms terms = weighted.lookup(row);
    for (Term &term : terms)
      if (!term.rows)
        term.rows = past.splat(past.tileType(row.getType()), 1);
    return terms;
  }
  if (kindOf(row) == Of::Pair || (isNumber(row) && kindOf(row) == Of::Token))
    return Terms{{pairsOf(row), past.splat(past.tensorType({past.tokens, 1}), 1)}};
  Value rows = rowsOfPast(row);
  if (!rows)
    return refuse(op, "contributes a row that is no number times a row of the other token");
  return Terms{{past.splat(square(), 1), rows}};
}

FailureOr<PastTiles::Range> LookbackTiles::range() {
  PastTiles::Range range = {.first = {}, .toEnd = op.getToEnd(), .ahead = op.getReverse()};
  if (!range.ahead) {
    range.first = b.tileOf(op.getFirst());
    return range;
  }
  // Ahead, it is the other token that looks back.
  if (failed(pastTiles.build(op.getFirst())))
    return failure();
  range.first = past.tileOf(op.getFirst());
  return range;
}

LogicalResult LookbackTiles::buildSums(PastTiles::Range range) {
  SmallVector<Value> contribution;
  SmallVector<Type> types;
  SmallVector<size_t> counts;
  for (Value row : op.getBody().front().getTerminator()->getOperands()) {
    FailureOr<Terms> terms = termsOf(row);
    if (failed(terms))
      return failure();
    counts.push_back(terms->size());
    for (auto [weights, rows] : *terms) {
      contribution.append({weights, rows});
      types.push_back(b.tensorType({b.tokens, typeOf(rows).getDimSize(1)}));
    }
  }
  chunk::LookbackOp tiles = pastTiles.finish(chunk::Fold::Sum, range, contribution, types, met());
  auto next = tiles.getResults().begin();
  for (auto [result, count] : llvm::zip_equal(op.getResults(), counts)) {
    Value sum = *next++;
    for (size_t term = 1; term < count; ++term)
      sum = b.create<arith::AddFOp>(sum, *next++);
    b.setTile(result, b.shaped(sum, b.tileType(result.getType())));
  }
  return success();
}

LogicalResult LookbackTiles::buildScores(PastTiles::Range range) {
  OperandRange yielded = op.getBody().front().getTerminator()->getOperands();
  SmallVector<Value> contribution = {pairsOf(yielded[0])};
  if (op.getFold() == Fold::Divergence)
    contribution.push_back(pairsOf(yielded[1]));
  else
    contribution.push_back(rowsOfPast(yielded[1]));
  if (!contribution.back())
    return refuse(op, "contributes rows that are not of the other token alone");
  SmallVector<Type> types;
  for (auto [index, result] : llvm::enumerate(op.getResults())) {
    RankedTensorType type = b.tileType(result.getType());
    // Rows are tiles, even of one column.
    bool isRows = op.getFold() == Fold::Softmax && index == 2;
    types.push_back(isRows && type.getRank() == 1 ? type.clone({b.tokens, 1}) : type);
  }
  auto fold = *chunk::symbolizeFold(stringifyFold(op.getFold()));
  chunk::LookbackOp tiles = pastTiles.finish(fold, range, contribution, types, met());
  for (auto [result, tile] : llvm::zip_equal(op.getResults(), tiles.getResults()))
    b.setTile(result, b.shaped(tile, b.tileType(result.getType())));
  return success();
}

LogicalResult LookbackTiles::build() {
  b.setLoc(op.getLoc());
  FailureOr<PastTiles::Range> range = this->range();
  if (failed(range))
    return failure();
  for (Operation &inner : op.getBody().front().without_terminator())
    if (failed(add(&inner)))
      return failure();
  past.setLoc(op.getLoc());
  return op.getFold() == Fold::Sum ? buildSums(*range) : buildScores(*range);
}

LogicalResult stretto::buildLookback(LookbackOp op, TileBuilder &builder, const Sizes &sizes, RawTiles rawTileOf) {
  return LookbackTiles(op, builder, sizes, rawTileOf).build();
}

SetVector<Value> stretto::valuesUsedBy(LookbackOp op) {
  SetVector<Value> values;
  getUsedValuesDefinedAbove(op.getBody(), values);
  values.insert(op.getFirst());
  return values;
}
