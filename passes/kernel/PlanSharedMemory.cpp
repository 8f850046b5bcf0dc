//===- PlanSharedMemory.cpp - Offsets in shared memory --------------------===//

#include "dialect/kernel/Chip.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"
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

/// Moves an operation up to where the last of its operands is made.
void moveUp(Operation *op) {
  Operation *last = nullptr;
  for (Value operand : op->getOperands())
    if (Operation *made = operand.getDefiningOp(); made && made->getBlock() == op->getBlock())
      last = last && made->isBeforeInBlock(last) ? last : made;
  if (last)
    op->moveAfter(last);
}

/// Whether an operation sends a tile of one of some channels that a loop receives, perhaps on a condition.
bool sendsFor(scf::ForOp loop, ArrayRef<ChannelOp> channels, Operation *op) {
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

/// Whether a walk carries nothing but rows that later chunks look back to.
bool carriesTailsAlone(FuncOp function) {
  auto carriesTails = [](scf::ForOp loop) {
    return loop.getNumResults() > 0 && llvm::all_of(loop.getYieldedValues(), [](Value carried) {
             return isa_and_present<chunk::TailOp>(carried.getDefiningOp());
           });
  };
  return llvm::any_of(function.getOps<scf::ForOp>(), carriesTails);
}

/// How many blocks a multiprocessor has registers for, two at most, or three of those that wait for memory, and for no
/// chain of products. Where slices divide heads there are no more blocks than multiprocessors.
int64_t blocksForRegisters(Roles roles) {
  constexpr int64_t registersOfProcessor = 65536, beside = 60, mostOfThread = 255, lanes = 32;
  FuncOp function = roles[0];
  int64_t most = carriesTailsAlone(function) ? 3 : 2;
  if (roles.size() > 1 || hasSlices(function))
    return 1;
  int64_t ofThread = std::min(estimateRegisters(function) + beside, mostOfThread);
  return std::clamp<int64_t>(registersOfProcessor / (function.getWarps() * lanes * ofThread), 1, most);
}

/// The operation of a block after which the tiles of a channel that `sender` sends are read no longer, or all that it
/// sends: a product reads until it is finished.
Operation *lastReaderOf(Value channel, Operation *sender) {
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

Operation *lastReaderBefore(Operation *sender) {
  Operation *last = nullptr;
  sender->walk([&](SendOp send) {
    Operation *reader = lastReaderOf(send.getChannel(), sender);
    last = !last || (reader && last->isBeforeInBlock(reader)) ? reader : last;
  });
  return last;
}

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

/// Moves what sends next tiles up to where those before have been read.
void sendBehindReaders(ArrayRef<Operation *> sends) {
  for (Operation *send : sends)
    if (Operation *last = lastReaderBefore(send); last && last->isBeforeInBlock(send))
      send->moveAfter(last);
}

/// Whether other roles have other parts of the work.
bool isOfRole(ChannelOp channel) { return channel->getParentOfType<FuncOp>().getRole().getKind() != RoleKind::All; }

enum class Sent { AfterReading, AtEnd };

/// Makes channels one tile deep: a tile is sent when its predecessor has been read, or when the predecessor's chunk has
/// been computed, so that others may have its bytes in between. Rows that are kept for the next chunk are taken first.
void serializeChannels(FuncOp function, ArrayRef<ChannelOp> channels, Sent sent) {
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
int64_t wayOfTile(ChannelOp channel) {
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

/// The largest tiles first, of these those that nobody reads for the longest.
void sortBySize(SmallVectorImpl<ChannelOp> &channels) {
  llvm::stable_sort(channels, [](ChannelOp a, ChannelOp b) {
    auto key = [](ChannelOp channel) {
      return std::pair(sharedBytesOf(channel.getType().getTile()), wayOfTile(channel));
    };
    return key(a) > key(b);
  });
}

/// Whether most of what a loop does with tiles comes behind the last product or other operation that reads them, so
/// that the next may come meanwhile in their place.
bool readsEarly(scf::ForOp loop, Operation *sender) {
  Operation *last = lastReaderBefore(sender);
  int64_t behind = 0;
  for (Operation *op = last ? last->getNextNode() : nullptr; op; op = op->getNextNode())
    behind += estimateWork(op);
  return 2 * behind >= estimateWork(loop.getOperation());
}

/// Whether some work stands between the end of products and what comes behind it.
bool hasWorkBetween(Operation *first, Operation *second) {
  if (second->isBeforeInBlock(first))
    std::swap(first, second);
  for (Operation *op = first->getNextNode(); first != second && op != second; op = op->getNextNode())
    if (!isa<FinishOp>(op))
      return true;
  return false;
}

/// Tiles that are read for the last time at different places are sent for apart.
SmallVector<Operation *> apartByReaders(ArrayRef<Operation *> sends) {
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
void sendLate(ArrayRef<Operation *> sends) {
  for (Operation *send : sends)
    send->moveBefore(send->getBlock()->getTerminator());
  sendBehindReaders(sends);
}

/// Where blocks of independent chunks have registers and shared memory for several on a multiprocessor if tiles of
/// other chunks come one at a time, the next when products have read the one before, they do: other blocks hide more of
/// what instructions wait for than a tile that comes early. So they do where there would be one block otherwise, with
/// so few warps, and there are two. The bytes that a block may take then; nothing where that is not so.
std::optional<int64_t> makeRoomForOthers(FuncOp function, int64_t bytes) {
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

/// Gives what roles pass to each other more places where memory is left, the smallest tiles first: who runs ahead waits
/// less for who comes behind.
void deepenPassed(Roles roles, SmallVector<ChannelOp> passed, int64_t limit) {
  constexpr int64_t most = 4;
  llvm::stable_sort(passed, [](ChannelOp a, ChannelOp b) {
    return sharedBytesOf(a.getType().getTile()) < sharedBytesOf(b.getType().getTile());
  });
  llvm::MapVector<uint64_t, SmallVector<ChannelOp, 2>> ends;
  for (ChannelOp channel : passed)
    ends[*channel.getPassed()].push_back(channel);
  for (auto &[number, channels] : ends) {
    auto setDepth = [&](int64_t depth) {
      for (ChannelOp channel : channels)
        channel.setDepth(depth);
    };
    for (auto depth = static_cast<int64_t>(channels.front().getDepth()); depth < most; depth *= 2) {
      setDepth(2 * depth);
      if (SharedMemoryPlanner(roles, /*apart=*/true).plan() <= limit)
        continue;
      setDepth(depth);
      return;
    }
  }
}

/// Whether tiles are left over those of a channel.
bool isLeftOver(ChannelOp channel, ArrayRef<ChannelOp> over) {
  return llvm::any_of(over, [&](ChannelOp other) { return other.getOver() == channel.getPassed(); });
}

/// Segments that come one after the other take little of what is kept of each, and wait for it: threads send for more
/// of them ahead, as far as two blocks share the memory of a multiprocessor.
void deepenCopiesOfTurns(FuncOp function) {
  constexpr int64_t most = 4, fewest = 2, blocks = 2;
  SmallVector<ChannelOp> channels;
  llvm::copy_if(function.getOps<ChannelOp>(), std::back_inserter(channels), isSentInTurns);
  if (channels.empty())
    return;
  auto setDepth = [&](int64_t depth) {
    for (ChannelOp channel : channels)
      channel.setDepth(depth);
  };
  setDepth(most);
  if (SharedMemoryPlanner(function, /*apart=*/true).plan() > bytesOfBlock(blocks))
    setDepth(fewest);
}

/// How many tiles have places where those of a channel are left over them.
int64_t depthUnder(Roles roles, ChannelOp channel) {
  for (FuncOp role : roles)
    for (auto other : role.getOps<ChannelOp>())
      if (other.getPassed() == channel.getOver())
        return static_cast<int64_t>(other.getDepth());
  return static_cast<int64_t>(channel.getDepth());
}

/// Whether roles read the tiles of a channel once: their place is free for the next for most of a turn.
bool isReadOnce(Roles roles, ChannelOp channel) {
  return llvm::all_of(roles, [&](FuncOp role) {
    return llvm::all_of(role.getOps<ChannelOp>(), [&](ChannelOp end) {
      return end.getPassed() != channel.getPassed() ||
             llvm::all_of(end->getUsers(), [](Operation *user) { return !isa<ReceiveOp>(user) || user->hasOneUse(); });
    });
  });
}

/// Where loops within turns meet tiles of other chunks, which come while the one before is worked on, what a producer
/// sends and roles read once has one place: takes such channels from those that are two tiles deep or more.
void makeRoomForMetTiles(Roles roles, SmallVector<ChannelOp> &channels) {
  bool areMet = llvm::any_of(roles, [](FuncOp role) { return llvm::any_of(role.getOps<ChannelOp>(), bringsMetTiles); });
  if (!areMet)
    return;
  llvm::erase_if(channels, [&](ChannelOp channel) {
    bool isTaken = channel.isShared() && isReadOnce(roles, channel);
    if (isTaken)
      channel.setDepth(1);
    return isTaken;
  });
}

/// How many chunks ahead tiles are sent at most. A producer goes as far as there is room, but not so far that what
/// threads load themselves waits behind all that is on its way.
int64_t farthestAhead(Roles roles, ArrayRef<ChannelOp> channels) {
  constexpr int64_t usual = 4, ofProducer = 6, mostOnTheWay = int64_t(160) * 1024;
  if (FuncOp(roles.back()).getRole().getKind() != RoleKind::Producer)
    return usual;
  int64_t ofChunk = 0;
  for (ChannelOp channel : channels)
    if (channel->getParentOp() == FuncOp(roles.back()).getOperation())
      ofChunk += sharedBytesOf(channel.getType().getTile());
  return std::clamp<int64_t>(mostOnTheWay / std::max<int64_t>(ofChunk, 1), 2, ofProducer);
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

/// Makes bulk channels as deep as memory allows, equally deep, and what roles pass to each other two tiles deep, or
/// one, or as many as there are groups, or more where memory is left. Where not all bulk channels have place for two
/// tiles, those of the largest tiles have one, and are bulk channels no more where one role walks forward. What has
/// turns is sent as far ahead as it is. The bytes that the block may take.
int64_t deepenChannels(Roles roles, int64_t bytes) {
  SmallVector<ChannelOp> channels, deep, passed, over;
  for (FuncOp function : roles)
    for (ChannelOp channel : function.getOps<ChannelOp>()) {
      if (channel.getOffset())
        continue;
      if (channel.getOver())
        over.push_back(channel);
      else if (channel.getPassed() && !channel.getBulk())
        passed.push_back(channel);
      else if (channel.isShared() || (!hasTurns(channel) && channel.getBulk()))
        channels.push_back(channel);
      if (!channel.getPassed() && !hasTurns(channel) && (channel.getBulk() || channel.getDepth() > 1))
        deep.push_back(channel);
    }
  constexpr int64_t fewest = 2, ofSystem = 1024, fewRegisters = 160, fewWarps = 4;
  // A walk back that wants many registers has use for memory of its own.
  bool isWalkBack = walksInReverse(roles[0]) && estimateRegisters(roles[0]) > fewRegisters;
  // Groups that take chunks in turns have places of their own: one that came back to a place which another has had
  // meanwhile could not tell its tile from the one before.
  int64_t groups = 1;
  for (FuncOp function : roles)
    groups = std::max(groups, function.getGroups());
  int64_t most = isWalkBack ? fewest : farthestAhead(roles, channels);
  // Others read what is left over tiles while the next ones are made: one place more is no chunk further ahead.
  if (!over.empty())
    ++most;
  auto fits = [&](bool apart, int64_t limit, int64_t ofPassed, int64_t least) {
    for (ChannelOp channel : passed)
      channel.setDepth(ofPassed);
    for (int64_t depth = most / groups * groups; depth >= least; depth -= groups) {
      for (ChannelOp channel : channels)
        channel.setDepth(depth);
      for (ChannelOp channel : over)
        channel.setDepth(depthUnder(roles, channel));
      if (SharedMemoryPlanner(roles, apart).plan() <= limit)
        return true;
      // Tiles that pass through two roles are on their way for longer than others.
      if (over.empty() || groups > 1 || depth <= fewest)
        continue;
      for (ChannelOp channel : channels)
        if (!isLeftOver(channel, over))
          channel.setDepth(depth - 1);
      if (SharedMemoryPlanner(roles, apart).plan() <= limit)
        return true;
    }
    return false;
  };
  // Where outputs are found behind a walk, tiles that come two chunks ahead are worth more than a second place for what
  // is passed.
  bool areOutputsApart =
      llvm::any_of(roles, [](FuncOp function) { return function.getRole().getKind() == RoleKind::Outputs; });
  auto deepen = [&](bool apart, int64_t limit, int64_t least) {
    SmallVector<int64_t, 2> leasts = {least};
    if (areOutputsApart && least == fewest)
      leasts.insert(leasts.begin(), fewest + 1);
    for (int64_t each : leasts)
      if (fits(apart, limit, std::max<int64_t>(2, groups), each) ||
          (!passed.empty() && groups == 1 && fits(apart, limit, /*ofPassed=*/1, each))) {
        if (apart)
          deepenPassed(roles, passed, limit);
        return true;
      }
    return false;
  };
  // Each block has a little memory that is the system's. A block that is not alone still is to be two chunks ahead, or
  // one where four warps would be alone otherwise.
  int64_t blocks = blocksForRegisters(roles), ofBlock = (bytes + ofSystem) / blocks - ofSystem;
  if (channels.empty() && passed.empty())
    return blocks > 1 && SharedMemoryPlanner(roles, /*apart=*/false).plan() <= ofBlock ? ofBlock : bytes;
  if (blocks > 1 && deepen(/*apart=*/true, ofBlock, fewest + 1))
    return bytes;
  bool hasFewWarps = FuncOp(roles[0]).getWarps() <= fewWarps;
  if (blocks > 1 && hasFewWarps && deepen(/*apart=*/false, ofBlock, fewest))
    return ofBlock;
  if (deepen(/*apart=*/true, bytes, fewest))
    return bytes;
  makeRoomForMetTiles(roles, channels);
  if (deepen(/*apart=*/true, bytes, fewest))
    return bytes;
  sortBySize(deep);
  llvm::erase_if(deep, [](ChannelOp channel) {
    std::optional<ChunkCopies> copies = ChunkCopies::of(channel);
    return copies && copies->receivesNext();
  });
  for (ChannelOp largest : deep) {
    if (deepen(/*apart=*/false, bytes, fewest))
      return bytes;
    serializeChannels(largest->getParentOfType<FuncOp>(), largest, Sent::AfterReading);
    llvm::erase(channels, largest);
    if (channels.empty())
      return bytes;
  }
  return bytes;
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
