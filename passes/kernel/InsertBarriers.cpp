//===- InsertBarriers.cpp - Order accesses to shared memory ---------------===//

#include "passes/Passes.h"
#include "passes/kernel/Meetings.h"

namespace stretto {
#define GEN_PASS_DEF_INSERTBARRIERS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Whether an operation does nothing but send tiles to bulk channels from which its block receives them.
bool sendsInBulk(Operation *op) {
  auto condition = dyn_cast<scf::IfOp>(op);
  auto isReceivedHere = [&](ChannelOp channel) {
    return llvm::any_of(channel->getUsers(),
                        [&](Operation *user) { return isa<ReceiveOp>(user) && user->getBlock() == op->getBlock(); });
  };
  if (!condition || condition->getNumResults() || condition.thenBlock()->getOps<SendOp>().empty())
    return false;
  return llvm::all_of(condition.thenBlock()->without_terminator(), [&](Operation &inner) {
    auto send = dyn_cast<SendOp>(inner);
    auto channel = send ? send.getChannel().getDefiningOp<ChannelOp>() : ChannelOp();
    return send ? channel && channel.getBulk() && isReceivedHere(channel) : isMemoryEffectFree(&inner);
  });
}

/// Bytes of shared memory that were read or written since the last barrier, or that a product reads until it is
/// finished.
struct Access {
  int64_t begin, end;
  bool write;
  chunk::DotOp underWay = nullptr;
  /// What leaves, turn after turn, tiles that only other operations touch: a store whose warps have parts of their own
  /// there, or what is passed to a place that the other role has released.
  Operation *alone = nullptr;
  /// Whether threads load, from a tile whose place the memory system may fill next, or store what threads alone load.
  /// They arrive at a barrier when their accesses are issued, and what comes by another way may overtake these: then
  /// threads meet behind a fence.
  bool isOfThreads = false;
  /// The barrier without a fence that was passed since, which is all that others ask for.
  Operation *met = nullptr;

  bool conflictsWith(const Access &other) const {
    if (alone && alone == other.alone)
      return false;
    return (write || other.write) && begin < other.end && other.begin < end;
  }

  bool operator==(const Access &) const = default;
};
using Accesses = SmallVector<Access>;

/// What is pending on several ways to a place is there once: loads are, until there is a fence.
void join(Accesses &pending, ArrayRef<Access> others) {
  for (const Access &access : others)
    if (!llvm::is_contained(pending, access))
      pending.push_back(access);
}

/// Whether threads copy the tiles of a channel, for which others wait at the next `kernel.await`.
bool isFilledByThreads(ChannelOp channel) {
  return !channel.getBulk() && llvm::any_of(channel->getUsers(), llvm::IsaPred<SendOp>);
}

bool hasProducts(FuncOp function) {
  return function.walk([](chunk::DotOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

class BarrierInserter {
public:
  /// Products of warpgroups read shared memory by a way of their own: barriers tell them what threads have stored.
  explicit BarrierInserter(FuncOp function) {
    passesAlone = function.getRole().getKind() != RoleKind::Ahead || !hasProducts(function);
    function.walk([&](chunk::DotOp product) { fence |= isOfWarpgroups(product); });
    // So does the memory system write where a tile of a role shares its bytes with others.
    if (function.getRole().getKind() != RoleKind::All)
      fence |= llvm::any_of(function.getOps<ChannelOp>(),
                            [](ChannelOp channel) { return channel.getBulk() && channel.getDepth() == 1; });
    // Rows of one number for each token are no operands of products.
    auto copiesOperands = [](ChannelOp channel) {
      return isFilledByThreads(channel) && channel.getType().getTile().getRank() > 1;
    };
    isItem = isItemOfChunk(function);
    fencesCopies = !isItem || llvm::any_of(function.getOps<ChannelOp>(), copiesOperands);
  }

  /// Goes through a block with what is pending at its start, and leaves what is pending at its end.
  void run(Block &block, Accesses &pending) {
    for (Operation &op : block) {
      if (auto loop = dyn_cast<scf::ForOp>(op)) {
        // Once from before the loop, once more from its own end; or never.
        Accesses before = pending;
        run(*loop.getBody(), pending);
        run(*loop.getBody(), pending);
        join(pending, before);
        continue;
      }
      if (auto condition = dyn_cast<scf::IfOp>(op); condition && !sendsInBulk(condition)) {
        runBranches(condition, pending);
        continue;
      }
      if (isa<BarrierOp, AwaitOp>(op)) {
        addFence(&op, pending);
        passBarrier(&op, pending);
        continue;
      }
      visit(&op, pending);
      // Where no product or copy comes by another way, threads have met when they know what all of them answer.
      if (auto asked = dyn_cast<chunk::WithinOp>(op); asked && !fence && !askedTogether(asked))
        llvm::erase_if(pending, [](const Access &access) { return !access.underWay && !access.isOfThreads; });
      if (auto finish = dyn_cast<FinishOp>(op))
        noteFinished(finish.getProduct().getDefiningOp<chunk::DotOp>(), pending);
      else if (auto product = dyn_cast<chunk::DotOp>(op);
               product && isOfWarpgroups(product) && !runsBesideOthers(product))
        noteFinished(product, pending);
    }
  }

private:
  /// Where threads meet in a branch, they meet at the end of the second, which is the rarer one: what it has accessed
  /// asks for no barrier behind both.
  void runBranches(scf::IfOp condition, Accesses &pending) {
    SmallVector<Accesses, 2> branches;
    for (mlir::Region &region : condition->getRegions()) {
      branches.push_back(pending);
      if (!region.empty())
        run(region.front(), branches.back());
    }
    mlir::Region &rarer = condition.getElseRegion();
    auto isMeeting = [](Operation *op) { return WalkResult(failure(isa<BarrierOp, AwaitOp>(op))); };
    auto meets = [&](mlir::Region &region) {
      return llvm::any_of(region.front(), [&](Operation &op) {
        // In a loop as well, but not in a branch within, which may not be taken.
        return isa<BarrierOp, AwaitOp, scf::ForOp>(op) && op.walk(isMeeting).wasInterrupted();
      });
    };
    bool isPending = llvm::any_of(branches[1], [](const Access &access) { return !access.met; });
    if (rarer.hasOneBlock() && isPending && (meets(condition.getThenRegion()) || meets(rarer))) {
      OpBuilder builder(rarer.front().getTerminator());
      auto barrier = BarrierOp::create(builder, condition.getLoc(), /*fence=*/false);
      addFence(barrier, branches[1]);
      passBarrier(barrier, branches[1]);
    }
    pending.clear();
    for (Accesses &branch : branches)
      join(pending, branch);
  }

  void visit(Operation *op, Accesses &pending) {
    Accesses own = accessesOf(op);
    bool isInBulk = sendsInBulk(op) || isSentInBulk(op);
    bool conflict = false, overtakes = false;
    for (Access &earlier : pending)
      if (llvm::any_of(own, [&](const Access &access) { return access.conflictsWith(earlier); })) {
        if (earlier.met) {
          if (isInBulk)
            setFence(earlier.met);
          continue;
        }
        conflict = true;
        overtakes |= isInBulk && earlier.isOfThreads;
        if (earlier.underWay)
          noteFinished(finishBefore(op, earlier.underWay), pending);
      }
    if (conflict) {
      OpBuilder builder(op);
      auto barrier = BarrierOp::create(builder, op->getLoc(), /*fence=*/overtakes);
      addFence(barrier, pending);
      passBarrier(barrier, pending);
    }
    // Whoever receives a tile that the memory system copies waits for it.
    if (!sendsInBulk(op) && !(isItem && isSentInBulk(op)))
      join(pending, own);
  }

  /// What a loop has stored may be behind a barrier in its next iteration; what was copied always is.
  void addFence(Operation *barrier, const Accesses &pending) {
    bool isStored = llvm::any_of(
        pending, [](const Access &access) { return access.write && !access.alone && !access.isOfThreads; });
    if (fence && (isStored || (fencesCopies && isa<AwaitOp>(barrier))))
      setFence(barrier);
  }

  static void setFence(Operation *barrier) {
    if (auto await = dyn_cast<AwaitOp>(barrier))
      await.setFence(true);
    else
      cast<BarrierOp>(barrier).setFence(true);
  }

  static bool hasFence(Operation *barrier) {
    auto await = dyn_cast<AwaitOp>(barrier);
    return await ? await.getFence() : cast<BarrierOp>(barrier).getFence();
  }

  static void passBarrier(Operation *barrier, Accesses &pending) {
    bool isFenced = hasFence(barrier);
    llvm::erase_if(pending,
                   [&](const Access &access) { return !access.underWay && (isFenced || !access.isOfThreads); });
    for (Access &access : pending)
      if (access.isOfThreads)
        access.met = barrier;
  }

  /// Products of warpgroups are done in the order in which they were started.
  static void noteFinished(chunk::DotOp product, Accesses &pending) {
    for (Access &access : pending)
      if (chunk::DotOp other = access.underWay; other && other->getBlock() == product->getBlock())
        if (other == product || other->isBeforeInBlock(product))
          access.underWay = nullptr;
  }

  /// Finishes a product before an operation, where that was to happen later; the product that is then done.
  static chunk::DotOp finishBefore(Operation *op, chunk::DotOp product) {
    op = product->getBlock()->findAncestorOpInBlock(*op);
    while (isOnlyAddend(product) && (*product->user_begin())->isBeforeInBlock(op))
      product = cast<chunk::DotOp>(*product->user_begin());
    if (isOnlyAddend(product)) {
      OpBuilder builder(op);
      auto finish = FinishOp::create(builder, op->getLoc(), product.getResult());
      product.getResult().replaceAllUsesExcept(finish.getResult(), finish);
    } else if (Operation *finish = *product->user_begin(); op->isBeforeInBlock(finish)) {
      finish->moveBefore(op);
    }
    return product;
  }

  /// The bytes of a tile in shared memory, which a channel, a conversion or a row has placed.
  Access regionOf(Value tile, bool write) {
    auto type = cast<RankedTensorType>(tile.getType());
    int64_t begin = 0, bytes = sharedBytesOf(type);
    if (auto convert = tile.getDefiningOp<ConvertOp>()) {
      begin = *convert.getOffset();
    } else if (auto row = tile.getDefiningOp<chunk::RowOp>()) {
      begin = row->getAttrOfType<IntegerAttr>(scratchAttribute).getInt();
    } else {
      auto pass = tile.getDefiningOp<PassOp>();
      Value ring = pass ? pass.getChannel() : tile.getDefiningOp<ReceiveOp>().getChannel();
      auto channel = ring.getDefiningOp<ChannelOp>();
      begin = *channel.getOffset();
      bytes = channel.bytesOfTiles();
    }
    return {begin, begin + bytes, write};
  }

  Accesses accessesOf(Operation *op) {
    Accesses result;
    if (sendsInBulk(op)) {
      // Whoever receives the tile waits for it.
      op->walk([&](SendOp send) { llvm::append_range(result, accessesOf(send)); });
      return result;
    }
    if (auto send = dyn_cast<SendOp>(op)) {
      // A deeper channel is written where nobody reads: its readers have met at the last `kernel.await`.
      auto channel = send.getChannel().getDefiningOp<ChannelOp>();
      int64_t begin = *channel.getOffset(), bytes = sharedBytesOf(channel.getType().getTile());
      if (channel.getDepth() == 1)
        result.push_back({begin, begin + bytes, true});
      return result;
    }
    // What tiles are left over each thread has read itself, and what ends a walk each thread stores.
    if (isa<ReceiveOp, chunk::ExpectOp>(op) || isLeftOver(op))
      return result;
    if (auto replace = dyn_cast<ReplaceOp>(op)) {
      auto channel = replace.getChannel().getDefiningOp<ChannelOp>();
      auto begin = static_cast<int64_t>(*channel.getOffset());
      result.push_back({begin, begin + channel.bytesOfTiles(), /*write=*/true});
    }
    auto product = dyn_cast<chunk::DotOp>(op);
    for (Value operand : op->getOperands())
      if (inSharedMemory(operand.getType())) {
        result.push_back(regionOf(operand, /*write=*/false));
        if (product && runsBesideOthers(product))
          result.back().underWay = product;
        result.back().isOfThreads = !(product && isOfWarpgroups(product)) && isReplacedInBulk(operand);
      }
    for (Value tile : op->getResults())
      if (inSharedMemory(tile.getType())) {
        result.push_back(regionOf(tile, /*write=*/true));
        result.back().alone = isa<PassOp>(op) && passesAlone ? op : nullptr;
        result.back().isOfThreads = isForThreads(op);
      }
    if (auto scratch = op->getAttrOfType<IntegerAttr>(scratchAttribute)) {
      result.push_back(
          {scratch.getInt(), scratch.getInt() + scratchBytesOf(op), true, /*underWay=*/nullptr, dyn_cast<StoreOp>(op)});
      result.back().isOfThreads = isForThreads(op);
    }
    return result;
  }

  static bool isLeftOver(Operation *op) {
    auto pass = dyn_cast<PassOp>(op);
    return pass && pass.getChannel().getDefiningOp<ChannelOp>().getOver();
  }

  /// Whether threads alone load what an operation stores: a row, or a tile that no product of warpgroups takes.
  static bool isForThreads(Operation *op) {
    auto isOfProduct = [](Operation *user) {
      auto product = dyn_cast<chunk::DotOp>(user);
      return product && isOfWarpgroups(product);
    };
    return isa<chunk::RowOp>(op) || (isa<ConvertOp>(op) && llvm::none_of(op->getUsers(), isOfProduct));
  }

  /// Whether the next tile takes the place of this one within a turn. In a deeper channel it comes a turn later, and a
  /// turn uses all that it loads.
  static bool isReplacedInBulk(Value tile) {
    auto receive = tile.getDefiningOp<ReceiveOp>();
    auto channel = receive ? receive.getChannel().getDefiningOp<ChannelOp>() : ChannelOp();
    return channel && channel.getBulk() && channel.getDepth() == 1;
  }

  static bool isSentInBulk(Operation *op) {
    auto send = dyn_cast<SendOp>(op);
    auto channel = send ? send.getChannel().getDefiningOp<ChannelOp>() : ChannelOp();
    return channel && channel.getBulk();
  }

  bool fence = false, fencesCopies = true, isItem = false, passesAlone = false;
};

/// Where the memory system copies everything threads have nothing to wait for but each other, before a tile takes the
/// place of one that they have read: of channels that are one tile deep, right before it is sent.
void meetWithoutCopies(FuncOp function) {
  if (!isItemOfChunk(function) || llvm::any_of(function.getOps<ChannelOp>(), isFilledByThreads))
    return;
  bool isDeep = llvm::any_of(function.getOps<ChannelOp>(), [](ChannelOp channel) { return channel.getDepth() > 1; });
  function.walk([&](AwaitOp await) {
    OpBuilder builder(await);
    if (isDeep)
      BarrierOp::create(builder, await.getLoc(), /*fence=*/false);
    await.erase();
  });
}

/// Whether an operation sends tiles that another role reads, too.
bool sendsForBoth(Operation *op) {
  return op
      ->walk([](SendOp send) { return WalkResult(failure(send.getChannel().getDefiningOp<ChannelOp>().isShared())); })
      .wasInterrupted();
}

/// What a loop sends takes the place of what was received a turn before. Where another role has to have read that, too,
/// it is waited for at the end of the turn, so that nothing else comes later for it.
void sendBehindBarriers(scf::ForOp loop) {
  Block &body = *loop.getBody();
  Operation *barrier = nullptr;
  SmallVector<Operation *> sends;
  for (Operation &op : body) {
    if (!barrier && isa<BarrierOp, AwaitOp>(op))
      barrier = &op;
    if (sendsInBulk(&op))
      sends.push_back(&op);
  }
  if (sends.empty())
    return;
  auto *late = llvm::find_if(sends, sendsForBoth);
  if (!barrier) {
    OpBuilder builder = OpBuilder::atBlockBegin(&body);
    if (late != sends.end())
      builder.setInsertionPoint(body.getTerminator());
    barrier = BarrierOp::create(builder, loop.getLoc());
  }
  // One after the other, as they stand.
  for (Operation *send : sends)
    if (sendsForBoth(send))
      send->moveBefore(body.getTerminator());
  for (Operation *send : llvm::reverse(sends))
    if (!sendsForBoth(send) && send->isBeforeInBlock(barrier))
      send->moveAfter(barrier);
}

/// One thread makes the barriers that copies of the memory system complete: all of them before the first copy is sent,
/// and there threads meet, so that none waits at a barrier before it is made.
void meetBehindChannels(FuncOp function) {
  SmallVector<ChannelOp> channels;
  llvm::copy_if(function.getOps<ChannelOp>(), std::back_inserter(channels),
                [](ChannelOp channel) { return channel.getBulk(); });
  Block &block = *function.getBlock();
  for (ChannelOp channel : llvm::reverse(channels))
    channel->moveBefore(&block, block.begin());
  Operation *first = nullptr;
  for (ChannelOp channel : channels)
    for (Operation *user : channel->getUsers()) {
      Operation *own = block.findAncestorOpInBlock(*user);
      first = first && first->isBeforeInBlock(own) ? first : own;
    }
  if (!first)
    return;
  OpBuilder builder(first);
  BarrierOp::create(builder, function.getLoc(), /*fence=*/false);
}

/// A matrix that is passed soon after an operation: before a product is waited for.
PassOp nextPass(Operation *op) {
  for (op = op->getNextNode(); op && op->getNumRegions() == 0 && !isa<FinishOp>(op); op = op->getNextNode())
    if (auto pass = dyn_cast<PassOp>(op); pass && cast<RankedTensorType>(pass.getType()).getRank() == 2)
      return pass;
  return {};
}

/// Another role may leave, or send, the next tile where one has been read: a product reads until it is finished. What
/// the memory system sends may overtake loads that were issued.
void releasePassed(ReceiveOp receive) {
  auto channel = receive.getChannel().getDefiningOp<ChannelOp>();
  if (!channel || !channel.getPassed() || !receive.getTurn() ||
      llvm::any_of(channel->getUsers(), llvm::IsaPred<SendOp>))
    return;
  // Those who receive what is left over the tile release its place.
  auto isLeftOver = [&](ChannelOp other) { return other.getOver() == channel.getPassed(); };
  if (llvm::any_of(channel->getParentOfType<FuncOp>().getOps<ChannelOp>(), isLeftOver))
    return;
  Block *block = receive->getBlock();
  Operation *last = receive;
  for (Operation *reader : receive->getUsers()) {
    reader = block->findAncestorOpInBlock(*reader);
    for (auto product = dyn_cast<chunk::DotOp>(reader); product && runsBesideOthers(product);
         product = dyn_cast<chunk::DotOp>(reader))
      reader = *product->user_begin();
    if (last->isBeforeInBlock(reader))
      last = reader;
  }
  // What the memory system stores it reads while products are formed.
  if (isa<StoreOp>(last))
    for (auto finish : block->getOps<FinishOp>())
      if (last->isBeforeInBlock(finish))
        last = finish;
  bool isLoaded = channel.isShared() && !llvm::all_of(receive->getUsers(), isOfWarpgroups);
  // What is passed to products has a fence, behind which it needs none of its own.
  PassOp next = isLoaded ? nextPass(last) : PassOp();
  OpBuilder builder(block, std::next(next ? next->getIterator() : last->getIterator()));
  ReleaseOp::create(builder, receive.getLoc(), channel, receive.getTurn(), /*fence=*/isLoaded && !next);
}

/// Whether a tile that an operation leaves in shared memory has a place there.
bool hasPlace(Operation *op) {
  if (auto channel = dyn_cast<ChannelOp>(op))
    return channel.getOffset().has_value();
  bool isShared = llvm::any_of(op->getResultTypes(), inSharedMemory);
  if (auto convert = dyn_cast<ConvertOp>(op))
    return !isShared || convert.getOffset();
  return !isShared || isa<ReceiveOp, PassOp>(op) || op->hasAttr(scratchAttribute);
}

struct InsertBarriers : stretto::impl::InsertBarriersBase<InsertBarriers> {
  void runOnOperation() override {
    WalkResult result = getOperation().walk([](Operation *op) {
      if (hasPlace(op))
        return WalkResult::advance();
      op->emitOpError("has no place in shared memory; run stretto-plan-shared-memory first");
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    // One thread of a producer does what there is to do.
    if (getOperation().getRole().getKind() == RoleKind::Producer)
      return;
    meetWithoutCopies(getOperation());
    Accesses pending;
    BarrierInserter(getOperation()).run(*getOperation().getBlock(), pending);
    getOperation().walk(releasePassed);
    getOperation().walk(sendBehindBarriers);
    meetBehindChannels(getOperation());
  }
};
} // namespace
