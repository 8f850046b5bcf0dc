//===- StateChain.cpp - A state and what changes it per token -------------===//

#include "dialect/stretto/StateChain.h"

using namespace mlir;
using namespace stretto;

size_t StateChain::positionOf(Value state) const {
  Operation *op = state.getDefiningOp();
  const auto *step = llvm::find(steps, op);
  return step == steps.end() ? 0 : step - steps.begin() + 1;
}

bool StateChain::contains(Value state) const {
  return state.getDefiningOp() == root || llvm::is_contained(steps, state.getDefiningOp());
}

SmallVector<Value> StateChain::rows() const {
  SmallVector<Value> rows;
  for (Operation *step : steps)
    for (Value operand : step->getOperands())
      if (!isa<StateType>(operand.getType()))
        rows.push_back(operand);
  return rows;
}

SmallVector<ReadOp> StateChain::reads() const {
  SmallVector<ReadOp> reads;
  auto collect = [&](Value state) {
    for (Operation *user : state.getUsers())
      if (auto read = dyn_cast<ReadOp>(user))
        reads.push_back(read);
  };
  collect(root->getResult(0));
  for (Operation *step : steps)
    collect(step->getResult(0));
  return reads;
}

SmallVector<StateChain> stretto::stateChains(VariantOp variant) {
  SmallVector<StateChain> chains;
  for (StateOp root : variant.getBlock()->getOps<StateOp>()) {
    StateChain &chain = chains.emplace_back();
    chain.root = root;
    auto stepOf = [](Value state) -> Operation * {
      for (Operation *user : state.getUsers())
        if (isa<DecayOp, WriteOp>(user))
          return user;
      return nullptr;
    };
    for (Operation *step = stepOf(root); step; step = stepOf(step->getResult(0)))
      chain.steps.push_back(step);
  }
  return chains;
}
