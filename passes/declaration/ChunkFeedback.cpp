//===- ChunkFeedback.cpp - Rows that depend on their own state ------------===//

#include "passes/declaration/ChunkFeedback.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Finding it
//===----------------------------------------------------------------------===//

/// The reads of a chain that a row depends on in its own token, other states aside.
static SmallVector<ReadOp> readsBehind(Value row, const StateChain &chain) {
  SmallVector<ReadOp> reads;
  SmallVector<Value> pending = {row};
  llvm::DenseSet<Operation *> seen;
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (auto read = dyn_cast<ReadOp>(op); read && chain.contains(read.getState()))
      reads.push_back(read);
    for (Value operand : op->getOperands())
      if (!isa<StateType>(operand.getType()))
        pending.push_back(operand);
  }
  return reads;
}

/// Whether a row is one number for each token, which all of its channels share.
static bool isNumber(Value row) {
  if (axisOf(row.getType()).empty())
    return true;
  Operation *op = row.getDefiningOp();
  if (!op)
    return false;
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    Type operand = broadcast.getOperand().getType();
    return isParam(operand) ? cast<RankedTensorType>(operand).getRank() == 0 : isNumber(broadcast.getOperand());
  }
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue());
  return isa<ConstantOp>(op) || (op->hasTrait<OpTrait::Elementwise>() && llvm::all_of(op->getOperands(), isNumber));
}

namespace {

/// Walks from a row to the read that it depends on.
class AffineWalk {
public:
  AffineWalk(const StateChain &chain, Feedback &feedback) : chain(chain), feedback(feedback) {}

  LogicalResult visit(Value row);

private:
  bool depends(Value row) { return !readsBehind(row, chain).empty(); }

  const StateChain &chain;
  Feedback &feedback;
};

} // namespace

LogicalResult AffineWalk::visit(Value row) {
  if (row == feedback.read.getResult())
    return success();
  if (!depends(row)) {
    feedback.terms.push_back(row);
    return success();
  }
  Operation *op = row.getDefiningOp();
  auto broadcast = dyn_cast<BroadcastOp>(op);
  bool repeatsHeads = broadcast && axisOf(broadcast.getOperand().getType()) == axisOf(row.getType());
  if (isa<arith::AddFOp, arith::SubFOp, arith::NegFOp>(op) || repeatsHeads) {
    for (Value operand : op->getOperands())
      if (failed(visit(operand)))
        return failure();
    return success();
  }
  if (auto product = dyn_cast<arith::MulFOp>(op)) {
    Value left = product.getLhs(), right = product.getRhs();
    if (depends(left))
      std::swap(left, right);
    if (!depends(left) && isNumber(left)) {
      feedback.numbers.push_back(left);
      return visit(right);
    }
  }
  return refuseChunkForm(op) << "what is written to the state '" << chain.getRoot().getName()
                             << "' depends on what is read from it, expected by sums and products with a number";
}

FailureOr<std::optional<Feedback>> stretto::findFeedback(const StateChain &chain) {
  std::optional<Feedback> feedback;
  StringRef name = chain.getRoot().getName();
  for (Operation *step : chain.steps)
    for (Value row : step->getOperands()) {
      if (isa<StateType>(row.getType()))
        continue;
      SmallVector<ReadOp> reads = readsBehind(row, chain);
      if (reads.empty())
        continue;
      auto write = dyn_cast<WriteOp>(step);
      if (!write)
        return refuseChunkForm(step) << "decays the state '" << name << "' by what is read from it";
      if (feedback || reads.size() > 1)
        return refuseChunkForm(reads.front())
               << "reads the state '" << name << "', which is changed by more than one row and read that depend on it";
      // A product over one axis is written along the other.
      ReadOp read = reads.front();
      bool isFirst = row == write.getFirst();
      StateType type = chain.getRoot().getType();
      if (read.getAlong() != (isFirst ? type.getSecond() : type.getFirst()) || write.getFirst() == write.getSecond())
        return refuseChunkForm(read) << "reads along '" << read.getAlong() << "' the state '" << name
                                     << "', and the row that depends on it is written along '" << read.getAlong()
                                     << "'";
      feedback = Feedback{read, write, row, {}, {}};
      if (failed(AffineWalk(chain, *feedback).visit(row)))
        return failure();
    }
  return feedback;
}

//===----------------------------------------------------------------------===//
// Its tiles
//===----------------------------------------------------------------------===//

namespace {

class AffineTiles {
public:
  AffineTiles(const Feedback &feedback, TileBuilder &b, bool isLinear) : feedback(feedback), b(b), isLinear(isLinear) {}

  /// The row of the read has a factor, 1 where that is null, and may be subtracted; rows that do not depend on it have
  /// none at all.
  struct Term {
    Value offset, factor;
    bool depends = false, isSubtracted = false;
  };
  Term build(Value row);

private:
  Value add(Value left, Value right) {
    return left && right ? Value(b.create<arith::AddFOp>(left, right)) : left ? left : right;
  }
  Value negate(Value tile) { return tile ? Value(b.create<arith::NegFOp>(tile)) : Value(); }
  Value numbers(double value) { return b.splat(b.tensorType({b.tokens}), value); }
  /// The factor with its sign, also where it is 1.
  Value written(Term term) {
    Value factor = term.factor ? term.factor : numbers(1);
    return term.isSubtracted ? negate(factor) : factor;
  }
  Value numberOf(Value row);

  const Feedback &feedback;
  TileBuilder &b;
  bool isLinear;
};

} // namespace

/// One number for each token.
Value AffineTiles::numberOf(Value row) {
  auto vector = b.tensorType({b.tokens});
  Value tile = b.tileOf(row);
  if (tile.getType() == vector)
    return tile;
  Operation *op = row.getDefiningOp();
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    if (!isParam(broadcast.getOperand().getType()))
      return numberOf(broadcast.getOperand());
    return b.repeat(b.tileOf(broadcast.getOperand()), vector);
  }
  if (auto constant = dyn_cast<ConstantOp>(op))
    return numbers(constant.getValue().convertToDouble());
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return numbers(cast<SplatElementsAttr>(constant.getValue()).getSplatValue<APFloat>().convertToDouble());
  IRMapping mapping;
  for (Value operand : op->getOperands())
    mapping.map(operand, numberOf(operand));
  Operation *once = b.clone(*op, mapping);
  once->getResult(0).setType(vector);
  return once->getResult(0);
}

AffineTiles::Term AffineTiles::build(Value row) {
  if (row.getDefiningOp() == feedback.read)
    return {{}, {}, true};
  if (llvm::is_contained(feedback.terms, row))
    return {isLinear ? Value() : b.matrixOf(b.tileOf(row)), {}, false};
  Operation *op = row.getDefiningOp();
  b.setLoc(op->getLoc());
  return llvm::TypeSwitch<Operation *, Term>(op)
      .Case([&](BroadcastOp broadcast) { return build(broadcast.getOperand()); })
      .Case([&](arith::NegFOp negation) -> Term {
        Term term = build(negation.getOperand());
        return {negate(term.offset), term.factor, true, !term.isSubtracted};
      })
      .Case([&](arith::MulFOp product) -> Term {
        bool isLeft = llvm::is_contained(feedback.numbers, product.getLhs());
        Value number = numberOf(isLeft ? product.getLhs() : product.getRhs());
        Term term = build(isLeft ? product.getRhs() : product.getLhs());
        if (term.offset)
          term.offset =
              b.create<arith::MulFOp>(term.offset, b.repeat(number, cast<RankedTensorType>(term.offset.getType())));
        return {term.offset, term.factor ? Value(b.create<arith::MulFOp>(term.factor, number)) : number, true,
                term.isSubtracted};
      })
      .Default([&](Operation *sum) -> Term {
        Term left = build(sum->getOperand(0)), right = build(sum->getOperand(1));
        if (isa<arith::SubFOp>(sum)) {
          right.offset = negate(right.offset);
          right.isSubtracted ^= right.depends;
        }
        Value offset = add(left.offset, right.offset);
        if (left.depends && right.depends)
          return {offset, add(written(left), written(right)), true};
        const Term &one = left.depends ? left : right;
        return {offset, one.factor, true, one.isSubtracted};
      });
}

AffineRow stretto::affineRow(const Feedback &feedback, TileBuilder &builder, bool isLinear) {
  AffineTiles::Term term = AffineTiles(feedback, builder, isLinear).build(feedback.row);
  return {term.offset, term.factor, term.isSubtracted};
}
