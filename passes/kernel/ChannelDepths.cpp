//===- ChannelDepths.cpp - How far ahead tiles are sent -------------------===//

#include "passes/kernel/ChannelDepths.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/SerialChannels.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// Whether a walk carries nothing but rows that later chunks look back to.
static bool carriesTailsAlone(FuncOp function) {
  auto carriesTails = [](scf::ForOp loop) {
    return loop.getNumResults() > 0 && llvm::all_of(loop.getYieldedValues(), [](Value carried) {
             return isa_and_present<chunk::TailOp>(carried.getDefiningOp());
           });
  };
  return llvm::any_of(function.getOps<scf::ForOp>(), carriesTails);
}

int64_t stretto::kernel::blocksForRegisters(Roles roles) {
  constexpr int64_t registersOfProcessor = 65536, beside = 60, mostOfThread = 255, lanes = 32;
  FuncOp function = roles[0];
  int64_t most = carriesTailsAlone(function) ? 3 : 2;
  if (roles.size() > 1 || hasSlices(function))
    return 1;
  int64_t ofThread = std::min(estimateRegisters(function) + beside, mostOfThread);
  return std::clamp<int64_t>(registersOfProcessor / (function.getWarps() * lanes * ofThread), 1, most);
}

/// Gives what roles pass to each other more places where memory is left, the smallest tiles first: who runs ahead waits
/// less for who comes behind.
static void deepenPassed(Roles roles, SmallVector<ChannelOp> passed, int64_t limit) {
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
static bool isLeftOver(ChannelOp channel, ArrayRef<ChannelOp> over) {
  return llvm::any_of(over, [&](ChannelOp other) { return other.getOver() == channel.getPassed(); });
}

void stretto::kernel::deepenCopiesOfTurns(FuncOp function) {
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
static int64_t depthUnder(Roles roles, ChannelOp channel) {
  for (FuncOp role : roles)
    for (auto other : role.getOps<ChannelOp>())
      if (other.getPassed() == channel.getOver())
        return static_cast<int64_t>(other.getDepth());
  return static_cast<int64_t>(channel.getDepth());
}

/// Whether roles read the tiles of a channel once: their place is free for the next for most of a turn.
static bool isReadOnce(Roles roles, ChannelOp channel) {
  return llvm::all_of(roles, [&](FuncOp role) {
    return llvm::all_of(role.getOps<ChannelOp>(), [&](ChannelOp end) {
      return end.getPassed() != channel.getPassed() ||
             llvm::all_of(end->getUsers(), [](Operation *user) { return !isa<ReceiveOp>(user) || user->hasOneUse(); });
    });
  });
}

/// Where loops within turns meet tiles of other chunks, which come while the one before is worked on, what a producer
/// sends and roles read once has one place: takes such channels from those that are two tiles deep or more.
static void makeRoomForMetTiles(Roles roles, SmallVector<ChannelOp> &channels) {
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
static int64_t farthestAhead(Roles roles, ArrayRef<ChannelOp> channels) {
  constexpr int64_t usual = 4, ofProducer = 6, mostOnTheWay = int64_t(160) * 1024;
  if (FuncOp(roles.back()).getRole().getKind() != RoleKind::Producer)
    return usual;
  int64_t ofChunk = 0;
  for (ChannelOp channel : channels)
    if (channel->getParentOp() == FuncOp(roles.back()).getOperation())
      ofChunk += sharedBytesOf(channel.getType().getTile());
  return std::clamp<int64_t>(mostOnTheWay / std::max<int64_t>(ofChunk, 1), 2, ofProducer);
}

int64_t stretto::kernel::deepenChannels(Roles roles, int64_t bytes) {
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
