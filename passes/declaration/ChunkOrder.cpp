//===- ChunkOrder.cpp - The order in which tiles are computed -------------===//

#include "passes/declaration/ChunkOrder.h"
#include "passes/declaration/ChunkLookback.h"

using namespace mlir;
using namespace stretto;

namespace {

/// A depth-first walk over what operations need, with a stack of its own: declarations may be long.
class OrderOfTiles {
public:
  explicit OrderOfTiles(ArrayRef<StateChain> chains) {
    for (const StateChain &chain : chains) {
      rowsOf[chain.getRoot()] = chain.rows();
      if (chain.feedback)
        feedbackOf[chain.feedback->read] = &*chain.feedback;
      rootOf[chain.getRoot().getResult()] = chain.getRoot();
      for (Operation *step : chain.steps)
        rootOf[step->getResult(0)] = chain.getRoot();
    }
  }

  LogicalResult add(Value row);
  SmallVector<Operation *> order;

private:
  struct Open {
    Operation *op;
    SmallVector<Value> needs;
  };

  SmallVector<Value> needsOf(Operation *op) {
    SmallVector<Value> needs;
    SmallVector<Value> used = llvm::to_vector(op->getOperands());
    if (auto fold = dyn_cast<LookbackOp>(op))
      used = valuesUsedBy(fold).takeVector();
    for (Value operand : used)
      if (auto root = rootOf.lookup(operand))
        llvm::append_range(needs, rowsOf[root]);
      else if (isRow(operand.getType()))
        needs.push_back(operand);
    if (const Feedback *feedback = feedbackOf.lookup(op)) {
      llvm::erase(needs, feedback->row);
      llvm::append_range(needs, feedback->terms);
      llvm::append_range(needs, feedback->numbers);
    }
    return needs;
  }

  llvm::DenseMap<Operation *, SmallVector<Value>> rowsOf;
  llvm::DenseMap<Value, Operation *> rootOf;
  llvm::DenseMap<Operation *, const Feedback *> feedbackOf;
  llvm::DenseSet<Operation *> begun, done;
};

} // namespace

LogicalResult OrderOfTiles::add(Value row) {
  SmallVector<Open> open;
  auto begin = [&](Value value) -> LogicalResult {
    Operation *op = value.getDefiningOp();
    if (!op || done.contains(op))
      return success();
    if (begun.insert(op).second) {
      open.push_back({op, needsOf(op)});
      return success();
    }
    // A circle passes through a read, the only operation that needs what may stand after it.
    for (const Open &part : llvm::reverse(open))
      if (auto read = dyn_cast<ReadOp>(part.op)) {
        auto root = cast<StateOp>(rootOf.lookup(read.getState()));
        return refuseChunkForm(read) << "reads the state '" << root.getName()
                                     << "', which is changed by a row that depends on this read";
      }
    llvm_unreachable("operations that need each other without a read between them");
  };
  if (failed(begin(row)))
    return failure();
  while (!open.empty()) {
    if (open.back().needs.empty()) {
      Operation *op = open.pop_back_val().op;
      done.insert(op);
      order.push_back(op);
    } else if (failed(begin(open.back().needs.pop_back_val()))) {
      return failure();
    }
  }
  return success();
}

FailureOr<SmallVector<Operation *>> stretto::orderOfTiles(ArrayRef<StateChain> chains, ArrayRef<Value> results) {
  OrderOfTiles tiles(chains);
  for (const StateChain &chain : chains)
    for (Value row : chain.rows())
      if (failed(tiles.add(row)))
        return failure();
  for (Value result : results)
    if (failed(tiles.add(result)))
      return failure();
  return std::move(tiles.order);
}
