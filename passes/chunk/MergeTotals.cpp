//===- MergeTotals.cpp - What several states have of one decay, once ------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/Passes.h"

namespace stretto {
#define GEN_PASS_DEF_MERGETOTALS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// What additions and negations add up, each of which but the last has one use.
class Sum {
public:
  struct Term {
    Value value;
    bool isNegative;
  };

  explicit Sum(Operation *last) {
    if (!isPart(last))
      return;
    SmallVector<Term> pending;
    auto take = [&](Operation *sum, bool isNegative) {
      for (Value term : llvm::reverse(sum->getOperands()))
        pending.push_back({term, isNegative != isa<arith::NegFOp>(sum)});
    };
    take(last, /*isNegative=*/false);
    while (!pending.empty()) {
      Term term = pending.pop_back_val();
      if (term.value.hasOneUse() && isPart(term.value.getDefiningOp()))
        take(term.value.getDefiningOp(), term.isNegative);
      else
        all.push_back(term);
    }
    // Each is compared with each: of more than any gradient has, none.
    constexpr size_t mostTerms = 64;
    if (all.size() > mostTerms)
      all.clear();
  }

  /// The sum of which a number is a term.
  static Sum of(Operation *term) {
    while (term->hasOneUse() && isPart(*term->user_begin()))
      term = *term->user_begin();
    return Sum(term);
  }

  ArrayRef<Term> terms() const { return all; }

  /// Leaves out a term with one use, one of several.
  static void leaveOut(Value term) {
    SmallVector<Operation *> unused;
    OpOperand *use = &*term.use_begin();
    while (isa<arith::NegFOp>(use->getOwner())) {
      unused.push_back(use->getOwner());
      use = &*use->getOwner()->use_begin();
    }
    Operation *sum = use->getOwner();
    sum->getResult(0).replaceAllUsesWith(sum->getOperand(1 - use->getOperandNumber()));
    sum->erase();
    for (Operation *op : llvm::reverse(unused))
      op->erase();
  }

private:
  static bool isPart(Operation *op) { return isa_and_nonnull<arith::AddFOp, arith::NegFOp>(op); }

  SmallVector<Term> all;
};

struct MergeTotals : stretto::impl::MergeTotalsBase<MergeTotals> {
  void runOnOperation() override {
    bool hasMerged = false;
    while (mergeAny())
      hasMerged = true;
    if (hasMerged)
      moveBehindOperands(getOperation().getBody().front());
  }

private:
  bool mergeAny() {
    for (auto accumulate : getOperation().getOps<chunk::AccumulateOp>())
      if (accumulate.getKind() == chunk::Accumulation::Sum && (mergeWithOther(accumulate) || mergeTermsIn(accumulate)))
        return true;
    for (auto sum : getOperation().getOps<arith::AddFOp>())
      if (mergeDecays<chunk::DecayFromStartOp>(sum) || mergeDecays<chunk::DecayToEndOp>(sum))
        return true;
    return false;
  }

  /// Sums over tokens that are added up are one of the sum.
  bool mergeWithOther(chunk::AccumulateOp first) {
    Sum sum = Sum::of(first);
    for (const Sum::Term &term : sum.terms()) {
      auto other = term.value.getDefiningOp<chunk::AccumulateOp>();
      if (!other || other == first || !first->hasOneUse() || !other->hasOneUse() ||
          other.getKind() != first.getKind() || other.getReverse() != first.getReverse() ||
          other.getExclusive() != first.getExclusive() || isNegative(sum, first) != term.isNegative)
        continue;
      first.getOperandMutable().assign(add(first.getOperand(), other.getOperand()));
      Sum::leaveOut(other);
      other.erase();
      return true;
    }
    return false;
  }

  /// Of what is summed over tokens, terms that have something in common.
  bool mergeTermsIn(chunk::AccumulateOp accumulate) {
    Operation *last = accumulate.getOperand().getDefiningOp();
    if (!last)
      return false;
    Sum sum(last);
    for (const auto &[place, first] : llvm::enumerate(sum.terms()))
      for (const Sum::Term &second : sum.terms().drop_front(place + 1))
        if (mergeTotals(sum, first.value, second.value) || mergeProducts(first, second))
          return true;
    return false;
  }

  /// Totals of the same rows are those of both weights: `x(p) + x(r) = x(p + r)`.
  static bool mergeTotals(const Sum &sum, Value one, Value other) {
    auto first = one.getDefiningOp<chunk::DecayTotalsOp>(), second = other.getDefiningOp<chunk::DecayTotalsOp>();
    auto areAlike = [&](auto pair) {
      auto [ofFirst, ofSecond] = pair;
      std::optional<bool> sign = isNegative(sum, ofFirst);
      return sign && sign == isNegative(sum, ofSecond);
    };
    if (!first || !second || first == second || !areOfSameRows(first, second) ||
        !llvm::all_of(llvm::zip(first->getResults(), second->getResults()), areAlike))
      return false;
    first.getWeightsMutable().assign(add(first.getWeights(), second.getWeights()));
    for (Value total : second->getResults())
      Sum::leaveOut(total);
    second.erase();
    return true;
  }

  /// Products with the same rows are one with a sum that gradients of rows have as well: `q x + q y = q (x + y)`.
  static bool mergeProducts(const Sum::Term &one, const Sum::Term &other) {
    auto first = one.value.getDefiningOp<arith::MulFOp>(), second = other.value.getDefiningOp<arith::MulFOp>();
    if (!first || !second || first == second || !first->hasOneUse() || !second->hasOneUse() ||
        first.getLhs() != second.getLhs() || one.isNegative != other.isNegative)
      return false;
    first->setOperand(1, add(first.getRhs(), second.getRhs()));
    Sum::leaveOut(second);
    second.erase();
    return true;
  }

  /// Rows that decay alike decay together.
  template <typename DecayOp> static bool mergeDecays(arith::AddFOp sum) {
    auto first = sum.getLhs().getDefiningOp<DecayOp>(), second = sum.getRhs().getDefiningOp<DecayOp>();
    if (!first || !second || first == second || !first->hasOneUse() || !second->hasOneUse() ||
        first->getAttrDictionary() != second->getAttrDictionary() || first.getAmount() != second.getAmount())
      return false;
    first.getOperandMutable().assign(add(first.getOperand(), second.getOperand()));
    sum.replaceAllUsesWith(first.getResult());
    sum.erase();
    second.erase();
    return true;
  }

  /// Whether a sum takes a number away; nothing where that is no term of it, or one of others, too.
  static std::optional<bool> isNegative(const Sum &sum, Value number) {
    for (const Sum::Term &term : sum.terms())
      if (term.value == number && number.hasOneUse())
        return term.isNegative;
    return std::nullopt;
  }

  static bool areOfSameRows(chunk::DecayTotalsOp first, chunk::DecayTotalsOp second) {
    return first.getQuery() == second.getQuery() && first.getKey() == second.getKey() &&
           first.getAmount() == second.getAmount() && first.getForm() == second.getForm() &&
           first.getBefore() == second.getBefore();
  }

  /// Has each operation that came before one of its operands follow the last of them, and leaves the others in order.
  static void moveBehindOperands(Block &block) {
    DenseSet<Operation *> placed;
    SmallVector<Operation *> waiting;
    auto isReady = [&](Operation *op) {
      return !op->walk([&](Operation *inner) {
                  return WalkResult(success(llvm::all_of(inner->getOperands(), [&](Value operand) {
                    Operation *made = operand.getDefiningOp();
                    return !made || made->getBlock() != &block || placed.contains(made);
                  })));
                }).wasInterrupted();
    };
    for (Operation &op : llvm::make_early_inc_range(block)) {
      if (!isReady(&op)) {
        waiting.push_back(&op);
        continue;
      }
      placed.insert(&op);
      Operation *last = &op;
      for (auto *next = llvm::find_if(waiting, isReady); next != waiting.end();
           next = llvm::find_if(waiting, isReady)) {
        (*next)->moveAfter(last);
        last = *next;
        placed.insert(last);
        waiting.erase(next);
      }
    }
  }

  /// A sum that is there already, or a new one.
  static Value add(Value left, Value right) {
    for (Operation *user : left.getUsers())
      if (auto sum = dyn_cast<arith::AddFOp>(user);
          sum && sum->getBlock() == left.getParentBlock() &&
          ((sum.getLhs() == left && sum.getRhs() == right) || (sum.getLhs() == right && sum.getRhs() == left)))
        return sum;
    OpBuilder builder(left.getContext());
    builder.setInsertionPointAfterValue(left);
    return arith::AddFOp::create(builder, left.getLoc(), left, right);
  }
};
} // namespace
