//===- RegisterEstimate.cpp - How many registers a kernel takes -----------===//

#include "passes/kernel/RegisterEstimate.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Operations in the order in which they are executed. A tile lives from the one that makes it to the last that uses
/// it, whose result may take its place.
class Lifetimes {
public:
  explicit Lifetimes(FuncOp function) {
    number(*function.getBlock());
    bits.resize(count + 1);
    walk(*function.getBlock());
  }

  int64_t mostRegisters() const {
    constexpr int64_t bitsOfRegister = 32;
    int64_t live = 0, most = 0;
    for (int64_t change : bits)
      most = std::max(most, live += change);
    return llvm::divideCeil(most, bitsOfRegister);
  }

private:
  void number(Block &block) {
    for (Operation &op : block) {
      first[&op] = count++;
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          number(inner);
      last[&op] = count++;
    }
  }

  /// The end of the last use of `value`; where a loop repeats the use, the end of the loop.
  int64_t lastUse(Value value, int64_t made) {
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

  static int64_t bitsOf(Value value) {
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

  void add(Value value, int64_t made) {
    // Constants and repeated numbers take no registers of their own.
    if (isa_and_nonnull<arith::ConstantOp, chunk::BroadcastOp>(value.getDefiningOp()))
      return;
    int64_t size = bitsOf(value), end = lastUse(value, made);
    if (!size || end == made)
      return;
    bits[made] += size;
    bits[end] -= size;
  }

  void walk(Block &block) {
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

  DenseMap<Operation *, int64_t> first, last;
  int64_t count = 0;
  SmallVector<int64_t> bits; // how many more are live from an operation on
};

} // namespace

int64_t stretto::kernel::estimateRegisters(FuncOp function) {
  constexpr int64_t registersOfAddress = 2;
  return Lifetimes(function).mostRegisters() + registersOfAddress * function.getBlock()->getNumArguments();
}
