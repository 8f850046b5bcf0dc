//===- RegisterEstimate.cpp - How many registers a kernel takes -----------===//

#include "passes/kernel/RegisterEstimate.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernel/Lifetimes.h"
#include "runtime/Manifest.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// What the launcher is to know of a function; nothing special where it does not say.
static Manifest manifestOf(FuncOp function) {
  auto text = function->getAttrOfType<StringAttr>(Manifest::attributeName);
  if (!text)
    return {};
  llvm::Expected<Manifest> manifest = Manifest::fromJson(text);
  if (manifest)
    return std::move(*manifest);
  llvm::consumeError(manifest.takeError());
  return {};
}

bool stretto::kernel::walksInReverse(FuncOp function) { return manifestOf(function).reverse; }

bool stretto::kernel::hasSlices(FuncOp function) { return manifestOf(function).slices > 1; }

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
  return Lifetimes(function).peak().registers + registersOfProducts(function) +
         registersOfAddress * function.getBlock()->getNumArguments();
}

/// Of a multiprocessor, of which each block has a little that is the system's.
static constexpr int64_t bytesOfProcessor = int64_t(228) * 1024, ofSystem = 1024;

int64_t stretto::kernel::bytesOfBlock(int64_t blocks) { return bytesOfProcessor / blocks - ofSystem; }

int64_t stretto::kernel::blocksOfInverses(FuncOp function, int64_t bytes) {
  constexpr int64_t registersOfProcessor = 65536, lanes = 32, ofInverse = 80;
  if (function.getOps<chunk::InverseOp>().empty())
    return 1;
  int64_t ofBlock = std::max(estimateRegisters(function), ofInverse) * function.getWarps() * lanes;
  // The assembler finds ways to do with a few less.
  int64_t byRegisters = (registersOfProcessor + ofBlock / 2) / ofBlock;
  return std::clamp<int64_t>(byRegisters, 1, std::max<int64_t>(bytesOfProcessor / (bytes + ofSystem), 1));
}
