//===- RegisterEstimate.cpp - How many registers a kernel takes -----------===//

#include "passes/kernel/RegisterEstimate.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "runtime/Manifest.h"

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

bool stretto::kernel::walksInReverse(FuncOp function) {
  auto text = function->getAttrOfType<StringAttr>(Manifest::attributeName);
  if (!text)
    return false;
  llvm::Expected<Manifest> manifest = Manifest::fromJson(text);
  if (!manifest)
    llvm::consumeError(manifest.takeError());
  return manifest && manifest->reverse;
}

/// What is kept beside tiles while products are formed: the operands of those that warps load, and what loops within
/// loops and walks back need. A walk forwards whose products all read shared memory themselves has none of these.
static int64_t registersOfProducts(FuncOp function) {
  constexpr int64_t ofOperands = 36;
  bool isPlain = !walksInReverse(function);
  function.walk([&](Operation *op) {
    if (isa<chunk::DotOp>(op))
      isPlain &= isOfWarpgroups(op);
    else if (isa<scf::ForOp>(op))
      isPlain &= isa<FuncOp>(op->getParentOp());
  });
  return isPlain ? 0 : ofOperands;
}

int64_t stretto::kernel::estimateRegisters(FuncOp function) {
  constexpr int64_t registersOfAddress = 2;
  return Lifetimes(function).mostRegisters() + registersOfProducts(function) +
         registersOfAddress * function.getBlock()->getNumArguments();
}
