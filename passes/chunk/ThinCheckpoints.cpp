//===- ThinCheckpoints.cpp - Checkpoints of every second chunk ------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "passes/Passes.h"
#include "passes/declaration/KernelNames.h"

namespace stretto {
#define GEN_PASS_DEF_THINCHECKPOINTS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::chunk;

/// Bits of the values of some arguments of a kernel.
static int64_t bitsOf(ArrayRef<BlockArgument> arguments) {
  int64_t bits = 0;
  for (BlockArgument argument : arguments) {
    auto type = cast<RankedTensorType>(argument.getType());
    bits += type.getNumElements() * type.getElementTypeBitWidth();
  }
  return bits;
}

/// Whether the checkpoints of all chunks would take more than two of the largest input do.
static bool areMany(KernelOp walkBack) {
  int64_t largest = 0;
  for (BlockArgument input : walkBack.argumentsOf(ArgumentKind::Input))
    largest = std::max(largest, bitsOf(input));
  return bitsOf(walkBack.argumentsOf(ArgumentKind::Checkpoint)) > 2 * largest;
}

/// Whether the memory system copies the tiles of an input, so that one of them can be waited for before its turn.
static bool comesInBoxes(BlockArgument input) {
  constexpr int64_t bitsOfNumber = 16, bitsOfPiece = 128, rowsOfExchange = 8;
  auto type = cast<RankedTensorType>(input.getType());
  return type.getRank() == 2 && type.getElementTypeBitWidth() == bitsOfNumber && type.getDimSize(0) >= rowsOfExchange &&
         llvm::isPowerOf2_64(type.getDimSize(0)) && type.getDimSize(1) * bitsOfNumber % bitsOfPiece == 0;
}

/// Whether a walk forward finds the checkpoints of a walk back of its own states and of inputs that both have, tiles of
/// rows that are on their way in both.
static bool findsAll(KernelOp forward, KernelOp walkBack) {
  auto names = [](KernelOp kernel, ArgumentKind kind) {
    llvm::SmallSetVector<StringAttr, 8> found;
    for (BlockArgument argument : kernel.argumentsOf(kind))
      found.insert(kernel.getArgument(argument.getArgNumber()).getName());
    return found;
  };
  auto inputs = names(walkBack, ArgumentKind::Input), kept = names(walkBack, ArgumentKind::Checkpoint);
  for (BlockArgument argument : forward.getBlock()->getArguments().drop_back()) {
    ArgumentAttr description = forward.getArgument(argument.getArgNumber());
    ArgumentKind kind = description.getKind();
    bool isInput = kind == ArgumentKind::Input && comesInBoxes(argument) && inputs.contains(description.getName());
    if (!isInput && !(kind == ArgumentKind::State && kept.remove(description.getName())))
      return false;
  }
  return kept.empty() &&
         llvm::all_of(forward.getOutputs().getAsRange<OutputAttr>(), std::mem_fn(&OutputAttr::getCheckpoint));
}

/// Whether a third kernel asks for a checkpoint of the same name.
static bool areShared(ModuleOp module, KernelOp walkBack) {
  llvm::SmallDenseSet<StringAttr> names;
  for (BlockArgument argument : walkBack.argumentsOf(ArgumentKind::Checkpoint))
    names.insert(walkBack.getArgument(argument.getArgNumber()).getName());
  return llvm::any_of(module.getOps<KernelOp>(), [&](KernelOp other) {
    return other != walkBack && llvm::any_of(other.argumentsOf(ArgumentKind::Checkpoint), [&](BlockArgument argument) {
             return names.contains(other.getArgument(argument.getArgNumber()).getName());
           });
  });
}

namespace {

struct ThinCheckpoints : stretto::impl::ThinCheckpointsBase<ThinCheckpoints> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (KernelOp walkBack : module.getOps<KernelOp>()) {
      auto forward = module.lookupSymbol<KernelOp>((walkBack.getSymName() + suffix::checkpoints).str());
      bool hasLookbacks = !walkBack.getOps<chunk::LookbackOp>().empty();
      if (forward && walkBack.getReverse() && !forward.getReverse() && !hasLookbacks && forward.getSlices() == 1 &&
          walkBack.getSlices() == 1 && areMany(walkBack) && findsAll(forward, walkBack) && !areShared(module, walkBack))
        walkBack.setBetween(forward.getSymName());
    }
  }
};

} // namespace
