//===- MergeLookbacks.cpp - Look-backs that share a factor become one -----===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"

namespace stretto {
#define GEN_PASS_DEF_MERGELOOKBACKS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using chunk::ContributeOp;

/// Whether bodies of two look-backs compute the same.
static bool areSame(Value left, Value right) {
  if (left == right)
    return true;
  auto leftArgument = dyn_cast<BlockArgument>(left), rightArgument = dyn_cast<BlockArgument>(right);
  if (leftArgument || rightArgument) {
    auto pastOf = [](BlockArgument argument) -> Value {
      auto lookback = argument ? dyn_cast<chunk::LookbackOp>(argument.getOwner()->getParentOp()) : chunk::LookbackOp();
      return lookback ? lookback.getPast()[argument.getArgNumber()] : Value();
    };
    return left.getType() == right.getType() && pastOf(leftArgument) && pastOf(leftArgument) == pastOf(rightArgument);
  }
  Operation *leftOp = left.getDefiningOp(), *rightOp = right.getDefiningOp();
  return OperationEquivalence::isEquivalentTo(
      leftOp, rightOp, [](Value a, Value b) { return success(areSame(a, b)); }, /*markEquivalent=*/nullptr,
      OperationEquivalence::IgnoreLocations);
}

static bool meetTheSame(chunk::LookbackOp first, chunk::LookbackOp second) {
  auto areSameBounds = [](Value left, Value right) { return left && right ? areSame(left, right) : left == right; };
  ContributeOp ofFirst = first.getContribution(), ofSecond = second.getContribution();
  return first.getAhead() == second.getAhead() && areSameBounds(ofFirst.getFirst(), ofSecond.getFirst()) &&
         areSameBounds(ofFirst.getLast(), ofSecond.getLast()) && first.getFirst() == second.getFirst() &&
         first.getLast() == second.getLast() && first.getToEnd() == second.getToEnd() &&
         first.getContinued() == second.getContinued() && first.getMet() == second.getMet() &&
         first.getWholly() == second.getWholly() && first.getPastTokens() == second.getPastTokens();
}

/// Whether two look-backs meet the same tokens with the same weights or the same left rows, and the second needs
/// nothing that is made behind the first.
static bool canMerge(chunk::LookbackOp first, chunk::LookbackOp second) {
  bool isSummed = first.getFold() == chunk::Fold::Sum || first.getFold() == chunk::Fold::Outer;
  if (!isSummed || first.getFold() != second.getFold() || !meetTheSame(first, second) ||
      !areSame(first.getContribution().getGiven().front(), second.getContribution().getGiven().front()))
    return false;
  SetVector<Value> outside;
  getUsedValuesDefinedAbove(second.getBody(), outside);
  return llvm::all_of(outside, [&](Value value) {
    Operation *maker = value.getDefiningOp();
    return !maker || maker->isBeforeInBlock(first);
  });
}

/// One look-back in the place of the first, with the results of both.
static void merge(chunk::LookbackOp first, chunk::LookbackOp second) {
  OpBuilder builder(first);
  SmallVector<Type> results(first.getResultTypes());
  llvm::append_range(results, second.getResultTypes());
  SmallVector<Value> past(first.getPast());
  for (Value other : second.getPast())
    if (!llvm::is_contained(past, other))
      past.push_back(other);
  auto both =
      chunk::LookbackOp::create(builder, builder.getFusedLoc({first.getLoc(), second.getLoc()}), results,
                                first.getFold(), first.getFirst(), first.getLast(), past, first.getAhead(),
                                first.getToEnd(), first.getContinued(), first.getMetAttr(), first.getWhollyAttr());
  Block &body = both.getBody().emplaceBlock();
  IRMapping mapping;
  for (chunk::LookbackOp op : {first, second})
    for (auto [argument, source] : llvm::zip_equal(op.getBlock()->getArguments(), op.getPast())) {
      auto number = static_cast<unsigned>(std::distance(past.begin(), llvm::find(past, source)));
      if (number == body.getNumArguments())
        body.addArgument(argument.getType(), argument.getLoc());
      mapping.map(argument, body.getArgument(number));
    }
  builder.setInsertionPointToStart(&body);
  SmallVector<Value> given;
  Value begin, end; // of a look-ahead
  for (chunk::LookbackOp op : {first, second}) {
    for (Operation &inner : op.getBlock()->without_terminator())
      builder.clone(inner, mapping);
    for (Value value : op.getContribution().getGiven())
      given.push_back(mapping.lookupOrDefault(value));
    begin = mapping.lookupOrNull(op.getContribution().getFirst());
    end = mapping.lookupOrNull(op.getContribution().getLast());
  }
  ContributeOp::create(builder, both.getLoc(), given, begin, end);
  first.replaceAllUsesWith(both.getResults().take_front(first.getNumResults()));
  second.replaceAllUsesWith(both.getResults().drop_front(first.getNumResults()));
  first.erase();
  second.erase();
}

//===----------------------------------------------------------------------===//
// Ties
//===----------------------------------------------------------------------===//

static bool isSplatOf(Value value, double number) {
  SplatElementsAttr same;
  return matchPattern(value, m_Constant(&same)) && same.getSplatValue<APFloat>().isExactlyValue(number);
}

/// Whether all pairs have scores, as products of rows do: those that are left out attain no largest score.
static bool leaveNoneOut(Value scores) {
  SplatElementsAttr factor;
  if (auto scaled = scores.getDefiningOp<arith::MulFOp>())
    return matchPattern(scaled.getRhs(), m_Constant(&factor)) && factor.getSplatValue<APFloat>().isFinite() &&
           leaveNoneOut(scaled.getLhs());
  return scores.getDefiningOp<chunk::DotOp>() != nullptr;
}

/// Whether a sum is of 1 for each pair whose score is the largest that a softmax of the same pairs has found.
static bool countsTies(chunk::LookbackOp sum, chunk::LookbackOp softmax) {
  if (softmax.getFold() != chunk::Fold::Softmax || softmax.getNumResults() != 3 || sum.getFold() != chunk::Fold::Sum ||
      sum.getNumResults() != 1 || !meetTheSame(softmax, sum))
    return false;
  OperandRange given = sum.getContribution().getGiven();
  auto choice = given[0].getDefiningOp<arith::SelectOp>();
  auto isHit = choice ? choice.getCondition().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
  auto largest = isHit ? isHit.getRhs().getDefiningOp<chunk::BroadcastOp>() : chunk::BroadcastOp();
  return largest && isHit.getPredicate() == arith::CmpFPredicate::OEQ && largest.getAlong() == chunk::Side::Rows &&
         largest.getOperand() == softmax.getResult(0) && isSplatOf(choice.getTrueValue(), 1) &&
         isSplatOf(choice.getFalseValue(), 0) && isSplatOf(given[1], 1) &&
         cast<RankedTensorType>(given[1].getType()).getDimSize(1) == 1 && leaveNoneOut(isHit.getLhs()) &&
         areSame(isHit.getLhs(), softmax.getContribution().getGiven()[0]);
}

/// The softmax finds them beside all else.
static void countTiesIn(chunk::LookbackOp softmax, chunk::LookbackOp sum) {
  OpBuilder builder(softmax);
  SmallVector<Type> results(softmax.getResultTypes());
  results.push_back(results.front());
  auto counting = chunk::LookbackOp::create(
      builder, softmax.getLoc(), results, softmax.getFold(), softmax.getFirst(), softmax.getLast(), softmax.getPast(),
      softmax.getAhead(), softmax.getToEnd(), softmax.getContinued(), softmax.getMetAttr(), softmax.getWhollyAttr());
  counting.getBody().takeBody(softmax.getBody());
  Value ties =
      chunk::BroadcastOp::create(builder, sum.getLoc(), sum.getType(0), counting.getResult(3), chunk::Side::Rows);
  softmax.replaceAllUsesWith(counting.getResults().drop_back());
  sum.getResult(0).replaceAllUsesWith(ties);
  softmax.erase();
  sum.erase();
}

namespace {
struct MergeLookbacks : stretto::impl::MergeLookbacksBase<MergeLookbacks> {
  void runOnOperation() override {
    auto mergeSome = [&] {
      SmallVector<chunk::LookbackOp> lookbacks(getOperation().getBlock()->getOps<chunk::LookbackOp>());
      for (auto [number, first] : llvm::enumerate(lookbacks))
        for (chunk::LookbackOp second : ArrayRef(lookbacks).drop_front(number + 1)) {
          bool isMerged = canMerge(first, second), isCounted = !isMerged && countsTies(second, first);
          if (isMerged)
            merge(first, second);
          if (isCounted)
            countTiesIn(first, second);
          if (isMerged || isCounted)
            return true;
        }
      return false;
    };
    while (mergeSome())
      ;
  }
};
} // namespace
