//===- MergeLookbacks.cpp - Look-backs that share a factor become one -----===//

#include "mlir/IR/IRMapping.h"
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

/// Whether two look-backs meet the same tokens with the same weights or the same left rows, and the second needs
/// nothing that is made behind the first.
static bool canMerge(chunk::LookbackOp first, chunk::LookbackOp second) {
  bool isSummed = first.getFold() == chunk::Fold::Sum || first.getFold() == chunk::Fold::Outer;
  auto areSameBounds = [](Value left, Value right) { return left && right ? areSame(left, right) : left == right; };
  ContributeOp ofFirst = first.getContribution(), ofSecond = second.getContribution();
  if (!isSummed || first.getFold() != second.getFold() || first.getAhead() != second.getAhead() ||
      !areSameBounds(ofFirst.getFirst(), ofSecond.getFirst()) ||
      !areSameBounds(ofFirst.getLast(), ofSecond.getLast()) || first.getFirst() != second.getFirst() ||
      first.getLast() != second.getLast() || first.getToEnd() != second.getToEnd() ||
      first.getContinued() != second.getContinued() || first.getMet() != second.getMet() ||
      first.getWholly() != second.getWholly() || first.getPastTokens() != second.getPastTokens() ||
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

namespace {
struct MergeLookbacks : stretto::impl::MergeLookbacksBase<MergeLookbacks> {
  void runOnOperation() override {
    auto mergeSome = [&] {
      SmallVector<chunk::LookbackOp> lookbacks(getOperation().getBlock()->getOps<chunk::LookbackOp>());
      for (auto [number, first] : llvm::enumerate(lookbacks))
        for (chunk::LookbackOp second : ArrayRef(lookbacks).drop_front(number + 1))
          if (canMerge(first, second)) {
            merge(first, second);
            return true;
          }
      return false;
    };
    while (mergeSome())
      ;
  }
};
} // namespace
