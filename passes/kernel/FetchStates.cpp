//===- FetchStates.cpp - States whose rows are no multiple of 16 bytes ----===//

#include "dialect/kernel/Chip.h"
#include "passes/Passes.h"
#include "runtime/Manifest.h"
#include "llvm/ADT/MapVector.h"

namespace stretto {
#define GEN_PASS_DEF_FETCHSTATES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// The parts of one entry of the state object.
using Parts = SmallVector<BlockArgument, 2>;

struct FetchStates : stretto::impl::FetchStatesBase<FetchStates> {
  using FetchStatesBase::FetchStatesBase;

  void runOnOperation() override {
    FuncOp function = getOperation();
    FailureOr<Chip> target = Chip::named(chip, [&] { return function.emitOpError(); });
    if (failed(target))
      return signalPassFailure();
    if (!function->hasAttr(Manifest::attributeName))
      return;
    FailureOr<Manifest> manifest = Manifest::leftOn(function);
    if (failed(manifest))
      return signalPassFailure();
    if (!manifest->inPlace || !target->hasBulkCopies ||
        manifest->arguments.size() != function.getBlock()->getNumArguments())
      return;
    llvm::MapVector<StringRef, Parts> entries;
    for (auto [argument, view] : llvm::zip(manifest->arguments, function.getBlock()->getArguments()))
      if (argument.kind == Manifest::Kind::State)
        entries[argument.entry].push_back(view);
    for (const auto &[name, parts] : entries)
      if (gains(parts, *manifest, target->sharedBytes))
        fetch(parts, *manifest);
  }

  static const Manifest::Argument &argumentOf(BlockArgument part, const Manifest &manifest) {
    return manifest.arguments[part.getArgNumber()];
  }

  /// Whether threads would load and store the rows of an entry by less than 16 bytes, one copy can move them, and a
  /// multiprocessor still has shared memory for two blocks.
  static bool gains(const Parts &parts, const Manifest &manifest, int64_t sharedBytes) {
    constexpr int64_t pieceBytes = 16, ofOthers = int64_t(16) * 1024;
    bool isLoadedByLess = false;
    int64_t bytes = 0;
    for (BlockArgument part : parts) {
      const Manifest::Argument &argument = argumentOf(part, manifest);
      if (argument.sliced || argument.shape.empty() || argument.columns == 0 || argument.row != 0)
        return false;
      if (!llvm::all_of(part.getUsers(), llvm::IsaPred<LoadOp, SaveOp>))
        return false;
      int64_t ofNumber = stretto::bytesOf(argument.type);
      isLoadedByLess |= argument.shape.size() == 2 && argument.perAccess() * ofNumber < pieceBytes;
      bytes = argument.shape.front() * argument.columns * ofNumber;
    }
    return isLoadedByLess && bytes % pieceBytes == 0 && bytes <= sharedBytes / 2 - ofOthers;
  }

  static void fetch(const Parts &parts, const Manifest &manifest) {
    OpBuilder builder = OpBuilder::atBlockBegin(parts.front().getOwner());
    Location loc = parts.front().getOwner()->getParentOp()->getLoc();
    auto fetch = FetchOp::create(builder, loc, SmallVector<Value>(parts.begin(), parts.end()),
                                 argumentOf(parts.front(), manifest).columns);
    Operation *last = fetch;
    for (auto [part, fetched] : llvm::zip_equal(parts, fetch.getFetched())) {
      Value(part).replaceAllUsesExcept(fetched, fetch);
      for (Operation *user : fetched.getUsers())
        if (last->isBeforeInBlock(user))
          last = user;
    }
    builder.setInsertionPointAfter(last);
    LeaveOp::create(builder, loc, fetch.getFetched()[0]);
    loadLate(fetch);
  }

  /// While the copy is under way everything is computed that does not wait for it, so that no registers wait beside
  /// that: what was fetched is loaded, and what follows from it computed, right before the first result is stored.
  static void loadLate(FetchOp fetch) {
    Block &block = *fetch->getBlock();
    DenseSet<Operation *> reached;
    for (Operation *user : fetch->getUsers())
      if (isa<LoadOp>(user))
        reached.insert(user);
    SmallVector<Operation *> late;
    Operation *firstStored = block.getTerminator();
    for (Operation &op : block) {
      if (isa<StoreOp, SaveOp, CarryOp, BarrierOp>(op)) {
        firstStored = &op;
        break;
      }
      if (!reached.contains(&op))
        continue;
      late.push_back(&op);
      for (Operation *user : op.getUsers())
        reached.insert(block.findAncestorOpInBlock(*user));
    }
    for (Operation *op : late)
      op->moveBefore(firstStored);
  }
};

} // namespace
