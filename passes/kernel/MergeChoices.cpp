//===- MergeChoices.cpp - One computation for two choices -----------------===//

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Passes.h"

namespace stretto {
#define GEN_PASS_DEF_MERGECHOICES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

bool isChoice(Operation *op) { return isa<arith::SelectOp>(op) && op->hasAttr(kernel::choiceAttribute); }

/// The choices of a block by one condition.
class Choices {
public:
  Choices(Block &block, Value condition) : block(block), condition(condition) {
    for (Operation &op : llvm::reverse(block)) {
      if (isOwn(&op))
        selections.insert(selections.begin(), cast<arith::SelectOp>(op));
      else if (isMovable(&op))
        for (bool side : {false, true})
          if (!op.use_empty() && llvm::all_of(op.getUses(), [&](OpOperand &use) { return isOfSide(use, side); }))
            only[side].insert(&op);
    }
  }

  /// How many operations took the place of two.
  int64_t merge() {
    for (arith::SelectOp selection : selections) {
      OpBuilder builder(selection);
      selection.replaceAllUsesWith(merged(builder, selection.getTrueValue(), selection.getFalseValue()));
      selection.erase();
    }
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (op.use_empty() && (only[false].contains(&op) || only[true].contains(&op)))
        op.erase();
    return count;
  }

private:
  bool isOwn(Operation *op) { return isChoice(op) && cast<arith::SelectOp>(op).getCondition() == condition; }
  static bool isMovable(Operation *op) {
    return op->getNumResults() == 1 && op->getNumRegions() == 0 && (isPure(op) || isa<NVVM::ShflOp>(op));
  }
  /// Whether nothing but one side of the choices takes a value by this use.
  bool isOfSide(OpOperand &use, bool side) {
    Operation *user = use.getOwner();
    if (user->getBlock() == &block && isOwn(user))
      return use.getOperandNumber() == (side ? 1 : 2);
    return only[side].contains(user);
  }

  Value merged(OpBuilder &builder, Value ofTrue, Value ofFalse) {
    if (ofTrue == ofFalse)
      return ofTrue;
    if (Value known = values.lookup({ofTrue, ofFalse}))
      return known;
    Operation *first = ofTrue.getDefiningOp(), *second = ofFalse.getDefiningOp();
    bool isAlike = only[true].contains(first) && only[false].contains(second) &&
                   first->getName() == second->getName() && first->getAttrDictionary() == second->getAttrDictionary() &&
                   first->getResultTypes() == second->getResultTypes() &&
                   llvm::equal(first->getOperandTypes(), second->getOperandTypes());
    if (!isAlike) {
      auto choice = arith::SelectOp::create(builder, ofTrue.getLoc(), condition, ofTrue, ofFalse);
      choice->setAttr(kernel::choiceAttribute, builder.getUnitAttr());
      return values[{ofTrue, ofFalse}] = choice;
    }
    SmallVector<Value> operands;
    for (auto [one, other] : llvm::zip_equal(first->getOperands(), second->getOperands()))
      operands.push_back(merged(builder, one, other));
    Operation *one = builder.clone(*first);
    one->setOperands(operands);
    ++count;
    return values[{ofTrue, ofFalse}] = one->getResult(0);
  }

  Block &block;
  Value condition;
  SmallVector<arith::SelectOp> selections;
  DenseSet<Operation *> only[2]; // what nothing but one side asks for
  DenseMap<std::pair<Value, Value>, Value> values;
  int64_t count = 0;
};

struct MergeChoices : stretto::impl::MergeChoicesBase<MergeChoices> {
  void runOnOperation() override {
    getOperation()->walk([&](Block *block) {
      llvm::SetVector<Value> conditions;
      for (Operation &op : *block)
        if (isChoice(&op))
          conditions.insert(cast<arith::SelectOp>(op).getCondition());
      for (Value condition : conditions)
        merged += Choices(*block, condition).merge();
    });
  }
};
} // namespace
