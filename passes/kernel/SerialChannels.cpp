//===- SerialChannels.cpp - Channels one tile deep ------------------------===//

#include "passes/kernel/SerialChannels.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/ChannelDepths.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// Moves an operation up to where the last of its operands is made.
static void moveUp(Operation *op) {
  Operation *last = nullptr;
  for (Value operand : op->getOperands())
    if (Operation *made = operand.getDefiningOp(); made && made->getBlock() == op->getBlock())
      last = last && made->isBeforeInBlock(last) ? last : made;
  if (last)
    op->moveAfter(last);
}

/// Whether an operation sends a tile of one of some channels that a loop receives, perhaps on a condition.
static bool sendsFor(scf::ForOp loop, ArrayRef<ChannelOp> channels, Operation *op) {
  if (isa<scf::ForOp>(op))
    return false;
  WalkResult result = op->walk([&](SendOp send) {
    bool isReceived = llvm::any_of(send.getChannel().getUsers(), [&](Operation *user) {
      return isa<ReceiveOp>(user) && user->getParentOp() == loop;
    });
    bool isOneOf = llvm::is_contained(channels, send.getChannel().getDefiningOp<ChannelOp>());
    return isOneOf && isReceived ? WalkResult::interrupt() : WalkResult::advance();
  });
  return result.wasInterrupted();
}

/// The operation of a block after which the tiles of a channel that `sender` sends are read no longer, or all that it
/// sends: a product reads until it is finished.
static Operation *lastReaderOf(Value channel, Operation *sender) {
  Block *body = sender->getBlock();
  Operation *last = nullptr;
  auto note = [&](Operation *reader) {
    reader = body->findAncestorOpInBlock(*reader);
    while (auto product = dyn_cast<chunk::DotOp>(reader)) {
      bool isUnderWay = product->hasOneUse() && isa<chunk::DotOp, FinishOp>(*product->user_begin()) &&
                        product->user_begin()->getBlock() == body;
      if (!isUnderWay)
        break;
      reader = *product->user_begin();
    }
    last = !last || last->isBeforeInBlock(reader) ? reader : last;
  };
  for (Operation *receive : channel.getUsers())
    if (isa<ReceiveOp>(receive) && body->findAncestorOpInBlock(*receive))
      for (Operation *reader : receive->getUsers())
        note(reader);
  return last;
}

static Operation *lastReaderBefore(Operation *sender) {
  Operation *last = nullptr;
  sender->walk([&](SendOp send) {
    Operation *reader = lastReaderOf(send.getChannel(), sender);
    last = !last || (reader && last->isBeforeInBlock(reader)) ? reader : last;
  });
  return last;
}

/// Moves what sends next tiles up to where those before have been read.
static void sendBehindReaders(ArrayRef<Operation *> sends) {
  for (Operation *send : sends)
    if (Operation *last = lastReaderBefore(send); last && last->isBeforeInBlock(send))
      send->moveAfter(last);
}

/// Whether other roles have other parts of the work.
static bool isOfRole(ChannelOp channel) {
  return channel->getParentOfType<FuncOp>().getRole().getKind() != RoleKind::All;
}

void stretto::kernel::serializeChannels(FuncOp function, ArrayRef<ChannelOp> channels, Sent sent) {
  for (ChannelOp channel : channels) {
    if (channel.isShared())
      continue;
    channel.setDepth(1);
    // Who walks back, and roles, have no registers to spare for copies of their own.
    bool sendsEarly = walksInReverse(function) && sent == Sent::AfterReading;
    channel.setBulk((isOfRole(channel) || sendsEarly) && channel.getBulk() && ChunkCopies::of(channel));
  }
  function.walk([&](scf::ForOp loop) {
    SmallVector<Operation *> sends;
    for (Operation &op : loop.getBody()->without_terminator())
      if (sendsFor(loop, channels, &op))
        sends.push_back(&op);
    for (Operation *send : sends)
      send->moveBefore(loop.getBody()->getTerminator());
    SmallVector<chunk::TailOp> tails(loop.getBody()->getOps<chunk::TailOp>());
    for (chunk::TailOp tail : tails)
      moveUp(tail);
    if (sent == Sent::AfterReading)
      sendBehindReaders(sends);
  });
}

/// How long a tile of a role is on its way where it is sent when the one before has been read for the last time, in
/// operations.
static int64_t wayOfTile(ChannelOp channel) {
  std::optional<ChunkCopies> copies = isOfRole(channel) ? ChunkCopies::of(channel) : std::nullopt;
  Operation *last = copies ? lastReaderBefore(copies->next) : nullptr;
  if (!last)
    return 0;
  Block *body = copies->next->getBlock();
  Operation *first = last;
  for (Operation *reader : copies->receive->getUsers())
    if (Operation *own = body->findAncestorOpInBlock(*reader); own->isBeforeInBlock(first))
      first = own;
  return std::distance(last->getIterator(), body->end()) + std::distance(body->begin(), first->getIterator());
}

void stretto::kernel::sortBySize(SmallVectorImpl<ChannelOp> &channels) {
  llvm::stable_sort(channels, [](ChannelOp a, ChannelOp b) {
    auto key = [](ChannelOp channel) {
      return std::pair(sharedBytesOf(channel.getType().getTile()), wayOfTile(channel));
    };
    return key(a) > key(b);
  });
}

/// Whether most of what a loop does with tiles comes behind the last product or other operation that reads them, so
/// that the next may come meanwhile in their place.
static bool readsEarly(scf::ForOp loop, Operation *sender) {
  Operation *last = lastReaderBefore(sender);
  int64_t behind = 0;
  for (Operation *op = last ? last->getNextNode() : nullptr; op; op = op->getNextNode())
    behind += estimateWork(op);
  return 2 * behind >= estimateWork(loop.getOperation());
}

/// Whether some work stands between the end of products and what comes behind it.
static bool hasWorkBetween(Operation *first, Operation *second) {
  if (second->isBeforeInBlock(first))
    std::swap(first, second);
  for (Operation *op = first->getNextNode(); first != second && op != second; op = op->getNextNode())
    if (!isa<FinishOp>(op))
      return true;
  return false;
}

/// Tiles that are read for the last time at different places are sent for apart.
static SmallVector<Operation *> apartByReaders(ArrayRef<Operation *> sends) {
  SmallVector<Operation *> apart;
  for (Operation *send : sends) {
    llvm::MapVector<Operation *, SmallPtrSet<Operation *, 2>> channelsOf; // by who reads them last
    send->walk([&](SendOp each) {
      // Numbers of tokens, which threads copy, come with the last.
      bool isInBulk = each.getChannel().getDefiningOp<ChannelOp>().getBulk();
      Operation *reader = isInBulk ? lastReaderOf(each.getChannel(), send) : lastReaderBefore(send);
      auto *same = llvm::find_if(channelsOf, [&](auto &known) {
        return reader == known.first || (reader && known.first && !hasWorkBetween(reader, known.first));
      });
      auto &channels = same == channelsOf.end() ? channelsOf[reader] : same->second;
      channels.insert(each.getChannel().getDefiningOp());
    });
    if (channelsOf.size() < 2) {
      apart.push_back(send);
      continue;
    }
    OpBuilder builder(send);
    for (auto &[reader, channels] : channelsOf) {
      Operation *own = builder.clone(*send);
      own->walk([&, kept = &channels](SendOp each) {
        if (!kept->contains(each.getChannel().getDefiningOp()))
          each.erase();
      });
      apart.push_back(own);
    }
    send->erase();
  }
  return apart;
}

/// Has tiles come one at a time, the next when the one before has been read.
static void sendLate(ArrayRef<Operation *> sends) {
  for (Operation *send : sends)
    send->moveBefore(send->getBlock()->getTerminator());
  sendBehindReaders(sends);
}

std::optional<int64_t> stretto::kernel::makeRoomForOthers(FuncOp function, int64_t bytes) {
  SmallVector<ChannelOp> channels;
  llvm::copy_if(function.getOps<ChannelOp>(), std::back_inserter(channels),
                [](ChannelOp channel) { return bringsMetTiles(channel) && !channel.getOffset(); });
  if (channels.empty() || !isItemOfChunk(function))
    return std::nullopt;
  int64_t blocks = blocksOfMeetings(function);
  SmallVector<Operation *> sends;
  bool comesLate = false;
  function.walk([&](scf::ForOp loop) {
    for (Operation &op : loop.getBody()->without_terminator())
      if (sendsFor(loop, channels, &op)) {
        sends.push_back(&op);
        comesLate |= !readsEarly(loop, &op);
      }
  });
  auto setDepth = [&](int64_t depth) {
    for (ChannelOp channel : channels)
      channel.setDepth(depth);
  };
  auto bytesOf = [&](int64_t depth, bool apart) {
    setDepth(depth);
    // At last small regions share bytes, too.
    int64_t needed = apart ? SharedMemoryPlanner(function, apart).plan()
                           : SharedMemoryPlanner(function, apart, /*limit=*/0, /*mostApart=*/0).plan();
    setDepth(2);
    return needed;
  };
  constexpr int64_t two = 2;
  if (blocks > 1 && !comesLate && bytesOf(/*depth=*/1, /*apart=*/true) <= bytesOfBlock(blocks)) {
    setDepth(1);
    sendLate(apartByReaders(sends));
    return bytes;
  }
  if (blocksForRegisters(function) != two || bytesOf(/*depth=*/2, /*apart=*/false) <= bytesOfBlock(two))
    return std::nullopt;
  SmallVector<Operation *> next = llvm::map_to_vector(sends, [](Operation *send) { return send->getNextNode(); });
  sendLate(sends);
  // What is computed before tiles of others are met may lie where these come at last.
  for (bool areLate : {false, true}) {
    for (ChannelOp channel : channels)
      if (areLate)
        channel->setAttr(SharedMemoryPlanner::lateAttribute, UnitAttr::get(channel.getContext()));
    if (bytesOf(/*depth=*/1, /*apart=*/false) <= bytesOfBlock(two)) {
      setDepth(1);
      sendLate(apartByReaders(sends));
      return bytesOfBlock(two);
    }
  }
  for (ChannelOp channel : channels)
    channel->removeAttr(SharedMemoryPlanner::lateAttribute);
  for (auto [send, before] : llvm::reverse(llvm::zip_equal(sends, next)))
    send->moveBefore(before);
  return std::nullopt;
}
