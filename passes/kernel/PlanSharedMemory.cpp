//===- PlanSharedMemory.cpp - Offsets in shared memory --------------------===//

#include "dialect/kernel/Chip.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"
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

/// A function, or those of several roles, which are executed at the same time.
using Roles = ArrayRef<FuncOp>;

/// Operations from one to another, by their numbers.
struct Span {
  int64_t begin, end;
};

/// Bytes that an operation makes or needs, and the operations during which nothing else may touch them.
struct Region {
  FuncOp function;
  Operation *op;
  int64_t bytes;
  SmallVector<Span, 2> spans;
  std::optional<int64_t> offset;
  bool isOfBarriers = false;
  /// What is needed on a condition alone comes last, and right before it what it may share memory with.
  enum class Rank { Always, NotBesideRare, Rare } rank = Rank::Always;

  bool isRare() const { return op->getParentOfType<scf::IfOp>() != nullptr; }

  bool meets(const Region &other) const {
    return function != other.function || llvm::any_of(spans, [&](Span own) {
             return llvm::any_of(other.spans, [&](Span its) { return own.begin <= its.end && its.begin <= own.end; });
           });
  }
};

int64_t depthOf(ChannelOp channel) { return static_cast<int64_t>(channel.getDepth()); }

class Planner {
public:
  /// With `apart` no two regions share memory, which saves the barriers between their uses. Otherwise those do not that
  /// every turn needs and that have no more than `mostApart` bytes, as far as `limit` allows.
  Planner(Roles roles, bool apart, int64_t limit = 0, int64_t mostApart = 0)
      : roles(roles), apart(apart), limit(limit), mostApart(mostApart) {
    // An operation with regions gets two numbers, before and after what it holds.
    for (FuncOp function : roles)
      number(*function.getBlock(), end);
  }

  /// Places every region; the bytes of all.
  int64_t plan() {
    for (FuncOp function : roles)
      collect(function);
    // Fixed regions first, then the largest, each at the lowest offset that is free while it is needed. Where not all
    // have bytes of their own, those that save a barrier with the fewest bytes do.
    if (limit) {
      rankRegions();
      for (const Region &region : regions)
        bytesOfFew += hasFew(region) ? llvm::alignTo(region.bytes, banks) : 0;
    }
    llvm::sort(regions, [](const Region &a, const Region &b) {
      return std::tuple(a.offset.has_value(), b.rank, a.bytes, b.spans[0].begin) >
             std::tuple(b.offset.has_value(), a.rank, b.bytes, a.spans[0].begin);
    });
    int64_t total = 0;
    for (Region &region : regions) {
      if (!region.offset)
        region.offset = lowestFree(region);
      total = std::max(total, *region.offset + region.bytes);
      placed.insert(llvm::upper_bound(placed, &region, [](Region *a, Region *b) { return *a->offset < *b->offset; }),
                    &region);
    }
    return total;
  }

  void write() {
    Builder builder(FuncOp(roles[0]).getContext());
    for (const Region &region : regions) {
      IntegerAttr offset = builder.getI64IntegerAttr(*region.offset);
      if (region.isOfBarriers)
        cast<ChannelOp>(region.op).setBarriersAttr(offset);
      else if (auto channel = dyn_cast<ChannelOp>(region.op))
        channel.setOffsetAttr(offset);
      else if (auto convert = dyn_cast<ConvertOp>(region.op))
        convert.setOffsetAttr(offset);
      else
        region.op->setAttr(scratchAttribute, offset);
    }
    // Where one role takes tiles the other leaves them.
    for (auto &[channel, other] : passed) {
      other.setDepth(channel.getDepth());
      other.setOffsetAttr(channel.getOffsetAttr());
      other.setBarriersAttr(channel.getBarriersAttr());
    }
  }

  /// Numbers of tokens, which warps leave to each other, have no more.
  static constexpr int64_t fewBytes = 1024;

private:
  static constexpr int64_t banks = 128;

  static bool hasFew(const Region &region) { return !region.offset && !region.isRare() && region.bytes <= fewBytes; }

  void rankRegions() {
    auto meetsRare = [&](const Region &region) {
      return llvm::any_of(regions, [&](const Region &other) { return other.isRare() && other.meets(region); });
    };
    for (Region &region : regions)
      region.rank = region.isRare()     ? Region::Rank::Rare
                    : meetsRare(region) ? Region::Rank::Always
                                        : Region::Rank::NotBesideRare;
  }

  void number(Block &block, int64_t &count) {
    for (Operation &op : block) {
      first[&op] = count++;
      for (mlir::Region &region : op.getRegions())
        for (Block &inner : region)
          number(inner, count);
      last[&op] = op.getNumRegions() ? count++ : first[&op];
    }
  }

  /// The last operation that needs what `op` makes: in a loop that `op` stands outside of, the end of the loop.
  int64_t lastUse(Operation *op) {
    int64_t result = first[op];
    for (Operation *user : op->getUsers())
      result = std::max(result, last[op->getBlock()->findAncestorOpInBlock(*user)]);
    return result;
  }

  /// What `op` makes is there until it is needed last, in each of two branches by itself, of which one is executed.
  SmallVector<Span, 2> spansOf(Operation *op) {
    SmallVector<Span, 2> spans;
    need(SmallVector<Operation *>(op->getUsers()), *op->getBlock(), first[op], spans);
    return spans;
  }

  void need(ArrayRef<Operation *> users, Block &block, int64_t begin, SmallVectorImpl<Span> &spans) {
    Operation *latest = nullptr;
    for (Operation *user : users) {
      Operation *own = block.findAncestorOpInBlock(*user);
      latest = latest && own->isBeforeInBlock(latest) ? latest : own;
    }
    if (!isa_and_nonnull<scf::IfOp>(latest) || llvm::is_contained(users, latest)) {
      spans.push_back({begin, latest ? last[latest] : begin});
      return;
    }
    spans.push_back({begin, first[latest]});
    for (mlir::Region &branch : latest->getRegions()) {
      SmallVector<Operation *> inside;
      llvm::copy_if(users, std::back_inserter(inside),
                    [&](Operation *user) { return branch.isAncestor(user->getParentRegion()); });
      if (!inside.empty())
        need(inside, branch.front(), first[&branch.front().front()], spans);
    }
  }

  /// A tile that is sent where it is read is there from each time that it is sent to the last read before the next.
  std::optional<SmallVector<Span, 2>> spansOfLate(ChannelOp channel) {
    struct Uses {
      SmallVector<int64_t> sent, read;
      bool isReceived = false;
    };
    llvm::MapVector<Block *, Uses> blocks;
    for (Operation *user : channel->getUsers()) {
      Uses &uses = blocks[user->getBlock()];
      if (isa<SendOp>(user)) {
        uses.sent.push_back(first[user]);
        continue;
      }
      uses.isReceived = true;
      for (Operation *reader : user->getUsers())
        uses.read.push_back(last[user->getBlock()->findAncestorOpInBlock(*reader)]);
    }
    SmallVector<Span, 2> spans;
    for (auto &[block, uses] : blocks) {
      auto &[sent, read, isReceived] = uses;
      if (sent.empty() || !isReceived)
        return std::nullopt;
      llvm::sort(sent);
      llvm::sort(read);
      for (auto [index, begin] : llvm::enumerate(sent)) {
        auto *next = index + 1 < sent.size() ? llvm::lower_bound(read, sent[index + 1]) : read.end();
        spans.push_back({begin, next == read.begin() ? begin : std::max(begin, *std::prev(next))});
      }
    }
    return spans;
  }

  /// The end of what a block does with a channel: where each chunk is an item of its own, what follows the loops that
  /// meet other chunks may have the bytes of their tiles.
  int64_t lastUseOf(ChannelOp channel) {
    Block *body = channel->getBlock();
    if (body->getOps<kernel::ChunkOp>().empty())
      return end;
    int64_t result = 0;
    for (Operation *user : channel->getUsers()) {
      result = std::max(result, last[body->findAncestorOpInBlock(*user)]);
      if (isa<ReceiveOp>(user) && user->getBlock() == body)
        result = std::max(result, lastUse(user));
    }
    return result;
  }

  /// Copies to a channel are under way between any two operations, unless a loop sends a tile when it has read the one
  /// before, or where it reads it.
  SmallVector<Span, 2> spansOf(ChannelOp channel) {
    if (channel.getPassed())
      return {{0, end}};
    if (std::optional<SmallVector<Span, 2>> late = spansOfLate(channel))
      return *late;
    int64_t lastRead = 0, sent = end;
    for (Operation *user : channel->getUsers()) {
      if (isa<ReceiveOp>(user))
        lastRead = std::max(lastRead, lastUse(user));
      else if (isa<scf::ForOp>(user->getParentOp()))
        sent = first[user];
    }
    if (depthOf(channel) > 1 || sent == end)
      return {{0, lastUseOf(channel)}};
    return {{0, lastRead}, {sent, end}};
  }

  /// The channel of a role before that is passed under the same number.
  ChannelOp otherEnd(ChannelOp channel) {
    for (FuncOp function : roles)
      for (auto other : function.getOps<ChannelOp>())
        if (other.getPassed() && other.getPassed() == channel.getPassed())
          return other == channel ? ChannelOp() : other;
    return {};
  }

  void collect(FuncOp function) {
    function.walk([&](Operation *op) {
      std::optional<int64_t> offset;
      auto channel = dyn_cast<ChannelOp>(op);
      if (ChannelOp other = channel ? otherEnd(channel) : ChannelOp()) {
        passed.push_back({other, channel});
        return;
      }
      if (channel) {
        if (channel.getOffset())
          offset = *channel.getOffset();
        regions.push_back({function, op, channel.bytesOfTiles(), spansOf(channel), offset});
        if (int64_t bytes = channel.bytesOfBarriers()) {
          std::optional<int64_t> given;
          if (channel.getBarriers())
            given = *channel.getBarriers();
          regions.push_back({function, op, bytes, {{0, end}}, given, /*isOfBarriers=*/true});
        }
      } else if (auto convert = dyn_cast<ConvertOp>(op); convert && inSharedMemory(convert.getType())) {
        if (convert.getOffset())
          offset = *convert.getOffset();
        auto tile = cast<RankedTensorType>(convert.getType());
        regions.push_back({function, op, bytesOfGroups(function, sharedBytesOf(tile)), spansOf(op), offset});
      } else if (int64_t bytes = scratchBytesOf(op)) {
        if (auto fixed = op->getAttrOfType<IntegerAttr>(scratchAttribute))
          offset = fixed.getInt();
        // A row stays there for those that read it. The barrier of what is fetched is that of all heads of a block.
        SmallVector<Span, 2> spans = {{first[op], last[op]}};
        if (isa<FetchOp>(op))
          spans = {{0, end}};
        bytes = bytesOfGroups(function, bytes);
        regions.push_back({function, op, bytes, isa<chunk::RowOp>(op) ? spansOf(op) : spans, offset});
      }
    });
  }

  /// Each group of a role has what it needs for itself.
  static int64_t bytesOfGroups(FuncOp function, int64_t bytes) {
    int64_t groups = function.getGroups();
    return groups > 1 ? groups * bytesOfGroup(bytes) : bytes;
  }

  int64_t lowestFree(const Region &wanted) {
    if (!apart && !wanted.isRare() && wanted.bytes <= mostApart)
      if (int64_t offset = lowestFree(wanted, /*beside=*/true);
          offset + wanted.bytes <= limit - (hasFew(wanted) ? 0 : bytesOfFew))
        return offset;
    return lowestFree(wanted, /*beside=*/apart);
  }

  /// With `beside` no bytes of any other region.
  int64_t lowestFree(const Region &wanted, bool beside) {
    int64_t alignment = alignmentOfShared(wanted.bytes);
    int64_t offset = 0;
    for (const Region *other : placed) {
      if (offset + wanted.bytes <= *other->offset)
        break;
      int64_t end = *other->offset + other->bytes;
      if (end > offset && (beside || other->meets(wanted)))
        offset = std::max<int64_t>(offset, llvm::alignTo(end, alignment));
    }
    return offset;
  }

  Roles roles;
  bool apart;
  int64_t limit, mostApart, bytesOfFew = 0;
  DenseMap<Operation *, int64_t> first, last;
  int64_t end = 0;
  SmallVector<Region> regions;
  SmallVector<Region *> placed; // by their offsets
  SmallVector<std::pair<ChannelOp, ChannelOp>> passed;
};

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

/// How many blocks a multiprocessor has registers for. Where slices divide heads there are no more blocks than
/// multiprocessors.
int64_t blocksForRegisters(Roles roles) {
  constexpr int64_t registersOfProcessor = 65536, beside = 60, mostOfThread = 255, lanes = 32, most = 2;
  FuncOp function = roles[0];
  if (roles.size() > 1 || hasSlices(function))
    return 1;
  int64_t ofThread = std::min(estimateRegisters(function) + beside, mostOfThread);
  return std::clamp<int64_t>(registersOfProcessor / (function.getWarps() * lanes * ofThread), 1, most);
}

/// The operation of a block after which the tiles that `sender` sends are read no longer: a product reads until it is
/// finished.
Operation *lastReaderBefore(Operation *sender) {
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
  sender->walk([&](SendOp send) {
    for (Operation *receive : send.getChannel().getUsers())
      if (isa<ReceiveOp>(receive) && body->findAncestorOpInBlock(*receive))
        for (Operation *reader : receive->getUsers())
          note(reader);
  });
  return last;
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
    // Roles have no registers to spare for copies of their own.
    channel.setBulk(isOfRole(channel) && channel.getBulk() && ChunkCopies::of(channel));
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

/// Where blocks of independent chunks have registers and shared memory for several on a multiprocessor if tiles of
/// other chunks come one at a time, the next when products have read the one before, they do: other blocks hide more of
/// what instructions wait for than a tile that comes early. Whether that is so.
bool makeRoomForOthers(FuncOp function) {
  SmallVector<ChannelOp> channels;
  llvm::copy_if(function.getOps<ChannelOp>(), std::back_inserter(channels),
                [](ChannelOp channel) { return bringsMetTiles(channel) && !channel.getOffset(); });
  int64_t blocks = channels.empty() ? 1 : blocksOfMeetings(function);
  SmallVector<Operation *> sends;
  bool comesLate = false;
  function.walk([&](scf::ForOp loop) {
    for (Operation &op : loop.getBody()->without_terminator())
      if (sendsFor(loop, channels, &op)) {
        sends.push_back(&op);
        comesLate |= !readsEarly(loop, &op);
      }
  });
  if (blocks == 1 || comesLate)
    return false;
  auto setDepth = [&](int64_t depth) {
    for (ChannelOp channel : channels)
      channel.setDepth(depth);
  };
  setDepth(1);
  if (Planner(function, /*apart=*/true).plan() > bytesOfBlock(blocks)) {
    setDepth(2);
    return false;
  }
  for (Operation *send : sends)
    send->moveBefore(send->getBlock()->getTerminator());
  sendBehindReaders(sends);
  return true;
}

/// Makes bulk channels as deep as memory allows, equally deep, and what roles pass to each other two tiles deep, or
/// one. Where not all bulk channels have place for two tiles, those of the largest tiles have one, and are
/// bulk channels no more where one role does everything. What has turns is sent as far ahead as it is. The bytes that
/// the block may take.
int64_t deepenChannels(Roles roles, int64_t bytes) {
  SmallVector<ChannelOp> channels, deep, passed;
  for (FuncOp function : roles)
    for (ChannelOp channel : function.getOps<ChannelOp>()) {
      if (channel.getOffset())
        continue;
      if (channel.getPassed() && !channel.getBulk())
        passed.push_back(channel);
      else if (channel.isShared() || (!hasTurns(channel) && channel.getBulk()))
        channels.push_back(channel);
      if (!channel.getPassed() && !hasTurns(channel) && (channel.getBulk() || channel.getDepth() > 1))
        deep.push_back(channel);
    }
  constexpr int64_t fewest = 2, ofSystem = 1024, fewRegisters = 160, fewWarps = 4;
  // A walk back that wants many registers has use for memory of its own.
  bool isWalkBack = walksInReverse(roles[0]) && estimateRegisters(roles[0]) > fewRegisters;
  int64_t most = isWalkBack ? fewest : 4;
  auto deepen = [&](bool apart, int64_t limit, int64_t fewest) {
    for (int64_t ofPassed : {2, 1}) {
      for (ChannelOp channel : passed)
        channel.setDepth(ofPassed);
      for (int64_t depth = most; depth >= fewest; --depth) {
        for (ChannelOp channel : channels)
          channel.setDepth(depth);
        if (Planner(roles, apart).plan() <= limit)
          return true;
      }
      if (passed.empty())
        break;
    }
    return false;
  };
  // Each block has a little memory that is the system's. A block that is not alone still is to be two chunks ahead, or
  // one where four warps would be alone otherwise.
  int64_t blocks = blocksForRegisters(roles), ofBlock = (bytes + ofSystem) / blocks - ofSystem;
  if (channels.empty() && passed.empty())
    return blocks > 1 && Planner(roles, /*apart=*/false).plan() <= ofBlock ? ofBlock : bytes;
  if (blocks > 1 && deepen(/*apart=*/true, ofBlock, fewest + 1))
    return bytes;
  bool hasFewWarps = FuncOp(roles[0]).getWarps() <= fewWarps && !walksInReverse(roles[0]);
  if (blocks > 1 && hasFewWarps && deepen(/*apart=*/false, ofBlock, fewest))
    return ofBlock;
  if (deepen(/*apart=*/true, bytes, fewest))
    return bytes;
  sortBySize(deep);
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
    else if (std::exchange(receive, cast<ReceiveOp>(user)))
      return; // there are several
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
    if (!channel.getPassed() && Planner(roles, /*apart=*/false).plan() > bytes)
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
    SmallVector<SmallVector<FuncOp, 2>> blocks;
    for (auto function : module.getOps<FuncOp>()) {
      SmallVector<FuncOp, 2> &roles = blocks.emplace_back(1, function);
      if (function.getBeside()) {
        roles.push_back(module.lookupSymbol<FuncOp>(*function.getBeside()));
        others.insert(roles.back());
      }
    }
    for (const SmallVector<FuncOp, 2> &roles : blocks)
      if (!others.contains(roles[0]))
        plan(roles, *target);
    // Where memory is scarce much was moved, and forms among which one is chosen are not verified behind each pass.
    if (failed(verify(module)))
      signalPassFailure();
  }

  void plan(Roles roles, const Chip &target) {
    FuncOp function = roles[0];
    bool hasRoom = roles.size() == 1 && makeRoomForOthers(function);
    int64_t limit = hasRoom ? target.sharedBytes : deepenChannels(roles, target.sharedBytes);
    // Memory to spare buys barriers; where it is scarce regions share it, then channels lose their depth, and at last
    // tiles are where they are read and nowhere else, in loops within a loop, too.
    int64_t bytesApart = Planner(roles, /*apart=*/true).plan();
    bool apart = bytesApart <= limit;
    // Blocks that find inverses wait side by side.
    int64_t least = Planner(roles, /*apart=*/false).plan();
    if (int64_t blocks = blocksOfInverses(function, least); blocks > 1) {
      limit = std::max(bytesOfBlock(blocks), least);
      apart &= bytesApart <= limit;
    }
    auto isScarce = [&] { return !apart && Planner(roles, /*apart=*/false).plan() > target.sharedBytes; };
    auto ifScarce = [&](llvm::function_ref<void(FuncOp)> change) {
      if (isScarce())
        for (FuncOp function : roles)
          change(function);
    };
    ifScarce([](FuncOp function) {
      function.walk([](StoreOp store) {
        store.setStaged(false);
        store.setMatrices(false);
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
    std::optional<Planner> planner;
    int64_t bytes = 0;
    for (int64_t mostApart :
         {target.sharedBytes, int64_t(16384), int64_t(8192), int64_t(4096), Planner::fewBytes, int64_t(0)}) {
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
    for (FuncOp each : roles)
      each.setShared(bytes);
  }
};
} // namespace
