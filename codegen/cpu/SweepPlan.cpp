//===- SweepPlan.cpp - How a step walks over its states -------------------===//

#include "codegen/cpu/SweepPlan.h"
#include "codegen/cpu/Plan.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

void SweepPlan::follow(BlockArgument state, Value next) {
  SmallVector<Value> found = {state};
  for (size_t i = 0; i < found.size(); ++i)
    for (OpOperand &use : found[i].getUses()) {
      Operation *user = use.getOwner();
      bool isNext = isa<chunk::YieldOp>(user) && found[i] == next;
      if (isNext || isa<chunk::ReduceOp>(user))
        continue;
      // What it becomes, entry by entry, and of no other state.
      if (!keepsPlace(use) || shapeOf(user->getResult(0)) != shapeOf(state) || isMatrix(user->getResult(0)))
        return;
      found.push_back(user->getResult(0));
    }
  for (Value value : found)
    rootOf[value] = state;
}

SweepPlan::SweepPlan(chunk::KernelOp kernel) {
  if (kernel.getChunk() != 1)
    return;
  auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
  for (auto [state, next] : llvm::zip_equal(kernel.argumentsOf(chunk::ArgumentKind::State), yield.getStates()))
    if (rankOf(state) == 2 && next != state && !next.getDefiningOp<chunk::TailOp>())
      follow(state, next);
  sort(kernel);
}

void SweepPlan::sort(chunk::KernelOp kernel) {
  // How many sweeps, one after the other, come before a value can be computed.
  llvm::DenseMap<Value, int64_t> levels;
  auto levelOf = [&](Operation &op) {
    int64_t level = 0;
    // The body of a look-back needs values of the kernel, too.
    op.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        level = std::max(level, levels.lookup(operand));
    });
    return level;
  };
  struct Place {
    int64_t level;
    unsigned state; // one behind that of a read, 0 for other operations
    size_t index;   // in the kernel so far
    Operation *op;
  };
  SmallVector<Place> places;
  for (Operation &op : kernel.getBlock()->without_terminator()) {
    auto reduce = dyn_cast<chunk::ReduceOp>(op);
    bool reads = reduce && isMatrix(reduce.getOperand());
    int64_t level = levelOf(op);
    for (Value result : op.getResults())
      levels[result] = level + (reads ? 1 : 0);
    places.push_back({level, reads ? rootOf.lookup(reduce.getOperand()).getArgNumber() + 1 : 0, places.size(), &op});
  }
  llvm::sort(places, [](const Place &left, const Place &right) {
    return std::tie(left.level, left.state, left.index) < std::tie(right.level, right.state, right.index);
  });

  Operation *yield = kernel.getBlock()->getTerminator();
  llvm::DenseMap<BlockArgument, std::pair<size_t, int64_t>> lastOf; // the last sweep of a state, and its level
  std::pair<int64_t, unsigned> open = {-1, 0};
  for (const Place &place : places) {
    place.op->moveBefore(yield);
    if (!place.state)
      continue;
    BlockArgument state = kernel.getBlock()->getArgument(place.state - 1);
    if (std::pair(place.level, place.state) != open)
      sweeps.push_back({state, {}, Value()});
    open = {place.level, place.state};
    sweeps.back().reads.push_back(cast<chunk::ReduceOp>(place.op));
    sweepOf[place.op] = sweeps.size() - 1;
    lastOf[state] = {sweeps.size() - 1, place.level};
  }
  auto states = kernel.argumentsOf(chunk::ArgumentKind::State);
  for (auto [state, next] : llvm::zip_equal(states, cast<chunk::YieldOp>(yield).getStates())) {
    if (!isMatrix(state))
      continue;
    auto last = lastOf.find(state);
    if (last != lastOf.end() && levels.lookup(next) <= last->second.second)
      sweeps[last->second.first].next = next;
    else
      updateList.push_back({state, {}, next});
  }
}

const Sweep *SweepPlan::beginningAt(Operation *read) const {
  auto found = sweepOf.find(read);
  if (found == sweepOf.end() || sweeps[found->second].reads.front() != read)
    return nullptr;
  return &sweeps[found->second];
}
