//===- PlanSharedMemory.cpp - Offsets in shared memory --------------------===//

#include "dialect/kernel/Chip.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/ChannelDepths.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/SerialChannels.h"
#include "passes/kernel/SharedMemoryPlanner.h"
#include "runtime/Manifest.h"
#include <utility>

namespace stretto {
#define GEN_PASS_DEF_PLANSHAREDMEMORY
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// What nobody reads is not sent: it would come to bytes that others have.
void eraseUnreadChannels(FuncOp function) {
  auto reads = [](Operation *user) {
    auto receive = dyn_cast<ReceiveOp>(user);
    return receive ? !receive->use_empty() : !isa<SendOp>(user);
  };
  for (ChannelOp channel : llvm::make_early_inc_range(function.getOps<ChannelOp>())) {
    if (channel.getPassed() || llvm::any_of(channel->getUsers(), reads))
      continue; // what is passed another role reads
    for (Operation *user : llvm::make_early_inc_range(channel->getUsers()))
      user->erase();
    channel.erase();
  }
}

/// Has a producer send what has the fewest places last in each turn: tiles of other channels, which may be further
/// ahead, do not wait until one of these is read.
void sendShallowLast(FuncOp producer) {
  for (auto loop : producer.getOps<scf::ForOp>()) {
    SmallVector<SendOp> sends(loop.getBody()->getOps<SendOp>());
    if (sends.empty())
      continue;
    Operation *behind = sends.back()->getNextNode();
    llvm::stable_sort(sends, [](SendOp a, SendOp b) {
      auto depthOf = [](SendOp send) { return send.getChannel().getDefiningOp<ChannelOp>().getDepth(); };
      return depthOf(a) > depthOf(b);
    });
    for (SendOp send : sends)
      send->moveBefore(behind);
  }
}

/// An operation, or what holds it in the body of the innermost loop.
Operation *inInnermostLoop(Operation *op) {
  while (!isa<scf::ForOp, FuncOp>(op->getParentOp()))
    op = op->getParentOp();
  return op;
}

/// Sends the tile of a channel right before each operation of a chunk that reads it, which then waits for it; its bytes
/// are anyone's before and after. With `withinLoops` a loop in there is none of these operations, but those in it.
void sendLate(ChannelOp channel, bool withinLoops) {
  ReceiveOp receive;
  SmallVector<SendOp> sends;
  for (Operation *user : channel->getUsers()) {
    if (auto send = dyn_cast<SendOp>(user))
      sends.push_back(send);
    else if (isa<ReplaceOp>(user) || std::exchange(receive, cast<ReceiveOp>(user)))
      return; // there are several, or the tile is not what was sent
  }
  if (!receive || receive->use_empty() || !isa<scf::ForOp, FuncOp>(receive->getParentOp()))
    return;
  // What is sent from elsewhere on a condition stays.
  Block *body = receive->getBlock();
  auto isPlain = [&](SendOp send) {
    bool isNear = send->getBlock() == body || isa<FuncOp>(send->getParentOp());
    return isNear && send.getView() == sends.front().getView();
  };
  if (!llvm::all_of(sends, isPlain))
    return;
  channel.setBulk(false);
  llvm::MapVector<Operation *, SmallVector<OpOperand *>> readers;
  for (OpOperand &use : receive->getUses())
    readers[withinLoops ? inInnermostLoop(use.getOwner()) : body->findAncestorOpInBlock(*use.getOwner())].push_back(
        &use);
  for (auto &[reader, uses] : readers) {
    OpBuilder builder(reader);
    SendOp::create(builder, receive.getLoc(), sends.front().getView(), receive.getChunk(), channel, receive.getTurn());
    AwaitOp::create(builder, receive.getLoc());
    if (reader->getBlock() == body)
      continue;
    Value tile = builder.clone(*receive)->getResult(0);
    for (OpOperand *use : uses)
      use->set(tile);
  }
  for (SendOp send : sends)
    send.erase();
  if (receive->use_empty())
    receive.erase();
}

/// Stores what a loop carries or leaves, or what it is rounded to, for each operation that reads it in shared memory,
/// rather than from the first to the last.
void storeForEachReader(FuncOp function) {
  SmallVector<ConvertOp> stored;
  function.walk([&](ConvertOp convert) {
    auto rounded = convert.getOperand().getDefiningOp<arith::TruncFOp>();
    Value tile = rounded ? rounded.getIn() : convert.getOperand();
    bool isCarried = isa<BlockArgument>(tile) || tile.getDefiningOp<scf::ForOp>();
    if (isCarried && inSharedMemory(convert.getType()) && !convert->hasOneUse())
      stored.push_back(convert);
  });
  for (ConvertOp convert : stored) {
    auto rounded = convert.getOperand().getDefiningOp<arith::TruncFOp>();
    for (OpOperand &use : llvm::make_early_inc_range(convert->getUses())) {
      OpBuilder builder(convert->getBlock()->findAncestorOpInBlock(*use.getOwner()));
      IRMapping mapping;
      if (rounded)
        mapping.map(rounded.getResult(), builder.clone(*rounded)->getResult(0));
      use.set(builder.clone(*convert, mapping)->getResult(0));
    }
    convert.erase();
    if (rounded && rounded->use_empty())
      rounded.erase();
  }
}

/// Stores what is read in loops within a loop right where it is read.
void storeWithinLoops(FuncOp function) {
  SmallVector<ConvertOp> stored;
  function.walk([&](ConvertOp convert) {
    if (inSharedMemory(convert.getType()))
      stored.push_back(convert);
  });
  for (ConvertOp convert : stored) {
    for (OpOperand &use : llvm::make_early_inc_range(convert->getUses())) {
      Operation *reader = use.getOwner();
      if (reader->getParentOfType<scf::ForOp>() != convert->getParentOfType<scf::ForOp>())
        use.set(OpBuilder(inInnermostLoop(reader)).clone(*convert)->getResult(0));
    }
    if (convert->use_empty())
      convert.erase();
  }
}

/// Sends tiles late, the largest first, until all fit that are needed at a time.
void sendLateUntilFits(Roles roles, int64_t bytes, bool withinLoops) {
  SmallVector<ChannelOp> channels;
  for (FuncOp function : roles)
    llvm::append_range(channels, function.getOps<ChannelOp>());
  sortBySize(channels);
  for (ChannelOp channel : channels)
    if (!channel.getPassed() && SharedMemoryPlanner(roles, /*apart=*/false).plan() > bytes)
      sendLate(channel, withinLoops);
}

struct PlanSharedMemory : stretto::impl::PlanSharedMemoryBase<PlanSharedMemory> {
  using PlanSharedMemoryBase::PlanSharedMemoryBase;

  void runOnOperation() override {
    FailureOr<Chip> target = Chip::named(chip, [&] { return getOperation()->emitOpError(); });
    if (failed(target))
      return signalPassFailure();
    if (auto function = dyn_cast<FuncOp>(getOperation())) {
      if (function.getRole().getKind() == RoleKind::All)
        return plan(function, *target);
      function.emitOpError("has one of several roles; plan it in its module");
      return signalPassFailure();
    }
    auto module = dyn_cast<ModuleOp>(getOperation());
    if (!module)
      return;
    DenseSet<Operation *> others;
    SmallVector<SmallVector<FuncOp, 4>> blocks;
    for (auto function : module.getOps<FuncOp>()) {
      blocks.push_back(function.getRolesOfBlock());
      others.insert(blocks.back().begin() + 1, blocks.back().end());
    }
    for (const SmallVector<FuncOp, 4> &roles : blocks)
      if (!others.contains(roles[0]))
        plan(roles, *target);
    // Where memory is scarce much was moved, and forms among which one is chosen are not verified behind each pass.
    if (failed(verify(module)))
      signalPassFailure();
  }

  void plan(Roles roles, const Chip &target) {
    FuncOp function = roles[0];
    for (FuncOp each : roles)
      eraseUnreadChannels(each);
    deepenCopiesOfTurns(function);
    std::optional<int64_t> room = roles.size() == 1 ? makeRoomForOthers(function, target.sharedBytes) : std::nullopt;
    int64_t limit = room ? *room : deepenChannels(roles, target.sharedBytes);
    // Memory to spare buys barriers; where it is scarce regions share it, then channels lose their depth, and at last
    // tiles are where they are read and nowhere else, in loops within a loop, too.
    int64_t bytesApart = SharedMemoryPlanner(roles, /*apart=*/true).plan();
    bool apart = bytesApart <= limit;
    // Blocks that find inverses wait side by side.
    int64_t least = SharedMemoryPlanner(roles, /*apart=*/false).plan();
    if (int64_t blocks = blocksOfInverses(function, least); blocks > 1) {
      limit = std::max(bytesOfBlock(blocks), least);
      apart &= bytesApart <= limit;
    }
    auto isScarce = [&] { return !apart && SharedMemoryPlanner(roles, /*apart=*/false).plan() > target.sharedBytes; };
    auto ifScarce = [&](llvm::function_ref<void(FuncOp)> change) {
      if (isScarce())
        for (FuncOp function : roles)
          change(function);
    };
    ifScarce([](FuncOp function) {
      function.walk([](StoreOp store) {
        store.setStaged(false);
        store.setMatrices(false);
        store.setBulk(false);
      });
    });
    ifScarce([](FuncOp function) {
      serializeChannels(function, llvm::to_vector(function.getOps<ChannelOp>()), Sent::AtEnd);
    });
    ifScarce(storeForEachReader);
    for (bool withinLoops : {false, true})
      if (isScarce())
        sendLateUntilFits(roles, target.sharedBytes, withinLoops);
    ifScarce(storeWithinLoops);
    std::optional<SharedMemoryPlanner> planner;
    int64_t bytes = 0;
    for (int64_t mostApart : {target.sharedBytes, int64_t(16384), int64_t(8192), int64_t(4096),
                              SharedMemoryPlanner::fewBytes, int64_t(0)}) {
      bytes = planner.emplace(roles, apart, mostApart ? limit : 0, mostApart).plan();
      if (bytes <= limit)
        break;
    }
    if (bytes > target.sharedBytes) {
      function.emitOpError("needs ") << bytes << " bytes of shared memory, " << chip << " has " << target.sharedBytes
                                     << "; take smaller chunks or more slices";
      return signalPassFailure();
    }
    planner->write();
    if (FuncOp last = roles.back(); last.getRole().getKind() == RoleKind::Producer)
      sendShallowLast(last);
    for (FuncOp each : roles)
      each.setShared(bytes);
  }
};
} // namespace
