//===- Lifetimes.cpp - From when to when tiles are in registers -----------===//

#include "passes/kernel/Lifetimes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernel/Stripes.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

Lifetimes::Lifetimes(FuncOp function) : isAhead(function.getRole().getKind() == RoleKind::Ahead) {
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

/// Whether one row of a tile is all that is asked for by this use, or of what is made of it: threads make no more.
static bool asksForRow(OpOperand &use) {
  Operation *user = use.getOwner();
  if (auto within = dyn_cast<chunk::WithinOp>(user))
    return within.getRising() && use.getOperandNumber() == 0;
  return isa<chunk::RowOp, chunk::TotalOp>(user) ||
         (user->hasTrait<OpTrait::Elementwise>() && user->getNumResults() == 1 && !user->use_empty() &&
          llvm::all_of(user->getUses(), asksForRow));
}

/// The end of the last use of `value`; where a loop repeats the use, the end of the loop.
int64_t Lifetimes::lastUse(Value value, int64_t made) {
  int64_t result = made;
  for (OpOperand &use : value.getUses()) {
    if (isAhead && asksForRow(use))
      continue;
    Operation *user = use.getOwner(), *until = user;
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
  // Of what is made and stored in stripes there is one at a time.
  if (isOfStripes.contains(value.getDefiningOp()))
    size = std::min<int64_t>(size, registersOfStripe * getElementTypeOrSelf(value).getIntOrFloatBitWidth());
  if (!size || end == made)
    return;
  bits[made] += size;
  bits[end] -= size;
}

void Lifetimes::walk(Block &block) {
  Block::iterator end = block.begin();
  for (Operation &op : block) {
    if (end == op.getIterator()) {
      end = endOfStripes(end, block.end());
      for (Operation &striped : llvm::make_range(op.getIterator(), end))
        isOfStripes.insert(&striped);
      if (end == op.getIterator())
        ++end;
    }
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
