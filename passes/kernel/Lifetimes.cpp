//===- Lifetimes.cpp - From when to when tiles are in registers -----------===//

#include "passes/kernel/Lifetimes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

Lifetimes::Lifetimes(FuncOp function) {
  number(*function.getBlock());
  bits.resize(count + 1);
  walk(*function.getBlock());
}

Lifetimes::Peak Lifetimes::peak() const {
  int64_t live = 0, most = 0, at = 0;
  for (auto [number, change] : llvm::enumerate(bits)) {
    live += change;
    if (live > most) {
      most = live;
      at = static_cast<int64_t>(number);
    }
  }
  return {static_cast<int64_t>(llvm::divideCeil(most, bitsOfRegister)), at};
}

void Lifetimes::number(Block &block) {
  for (Operation &op : block) {
    first[&op] = count++;
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        number(inner);
    last[&op] = count++;
  }
}

/// The end of the last use of `value`; where a loop repeats the use, the end of the loop.
int64_t Lifetimes::lastUse(Value value, int64_t made) {
  int64_t result = made;
  for (Operation *user : value.getUsers()) {
    Operation *until = user;
    for (Operation *op = user; op->getBlock() != value.getParentBlock(); op = op->getParentOp())
      if (isa<scf::ForOp>(op->getParentOp()))
        until = op->getParentOp();
    result = std::max(result, until == user ? first[user] : last[until]);
  }
  return result;
}

int64_t Lifetimes::bitsOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || inSharedMemory(type))
    return 0;
  Layout layout = *layoutOf(type);
  int64_t padded = 1;
  for (int64_t side = 0; side < layout.rank(); ++side)
    padded *= layout.side(side);
  return llvm::divideCeil(layout.size(Layout::Register) * type.getNumElements(), padded) *
         type.getElementTypeBitWidth();
}

void Lifetimes::add(Value value, int64_t made) {
  // Constants and repeated numbers take no registers of their own, nor does what is set aside.
  if (isa_and_nonnull<arith::ConstantOp, chunk::BroadcastOp, SetAsideOp>(value.getDefiningOp()))
    return;
  int64_t size = bitsOf(value), end = lastUse(value, made);
  if (!size || end == made)
    return;
  bits[made] += size;
  bits[end] -= size;
}

void Lifetimes::walk(Block &block) {
  for (Operation &op : block) {
    for (Region &region : op.getRegions())
      for (Block &inner : region) {
        for (BlockArgument argument : inner.getArguments())
          add(argument, first[&op]);
        walk(inner);
      }
    for (Value result : op.getResults())
      add(result, op.getNumRegions() ? last[&op] : first[&op]);
  }
}
