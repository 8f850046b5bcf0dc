//===- SharedMemoryPlanner.cpp - Offsets of a plan ------------------------===//

#include "passes/kernel/SharedMemoryPlanner.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static int64_t depthOf(ChannelOp channel) { return static_cast<int64_t>(channel.getDepth()); }

SharedMemoryPlanner::SharedMemoryPlanner(Roles roles, bool apart, int64_t limit, int64_t mostApart)
    : roles(roles), apart(apart), limit(limit), mostApart(mostApart) {
  // An operation with regions gets two numbers, before and after what it holds.
  for (FuncOp function : roles)
    number(*function.getBlock(), end);
}

int64_t SharedMemoryPlanner::plan() {
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

void SharedMemoryPlanner::write() {
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
  // What is left over other tiles lies where these do.
  for (ChannelOp channel : over)
    if (ChannelOp below = channelPassed(roles, *channel.getOver()))
      channel.setOffsetAttr(below.getOffsetAttr());
  // Where one role takes tiles the other leaves them.
  for (auto &[channel, other] : passed) {
    other.setDepth(channel.getDepth());
    other.setOffsetAttr(channel.getOffsetAttr());
    other.setBarriersAttr(channel.getBarriersAttr());
  }
}

void SharedMemoryPlanner::rankRegions() {
  auto meetsRare = [&](const Region &region) {
    return llvm::any_of(regions, [&](const Region &other) { return other.isRare() && other.meets(region); });
  };
  for (Region &region : regions)
    region.rank = region.isRare()     ? Region::Rank::Rare
                  : meetsRare(region) ? Region::Rank::Always
                                      : Region::Rank::NotBesideRare;
}

void SharedMemoryPlanner::number(Block &block, int64_t &count) {
  for (Operation &op : block) {
    first[&op] = count++;
    for (mlir::Region &region : op.getRegions())
      for (Block &inner : region)
        number(inner, count);
    last[&op] = op.getNumRegions() ? count++ : first[&op];
  }
}

int64_t SharedMemoryPlanner::lastUse(Operation *op) {
  int64_t result = first[op];
  for (Operation *user : op->getUsers())
    result = std::max(result, last[op->getBlock()->findAncestorOpInBlock(*user)]);
  return result;
}

SmallVector<SharedMemoryPlanner::Span, 2> SharedMemoryPlanner::spansOf(Operation *op) {
  SmallVector<Span, 2> spans;
  need(SmallVector<Operation *>(op->getUsers()), *op->getBlock(), first[op], spans);
  return spans;
}

void SharedMemoryPlanner::need(ArrayRef<Operation *> users, Block &block, int64_t begin, SmallVectorImpl<Span> &spans) {
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

std::optional<SmallVector<SharedMemoryPlanner::Span, 2>> SharedMemoryPlanner::spansOfLate(ChannelOp channel) {
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

int64_t SharedMemoryPlanner::lastUseOf(ChannelOp channel) {
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

SmallVector<SharedMemoryPlanner::Span, 2> SharedMemoryPlanner::spansOf(ChannelOp channel) {
  if (channel.getPassed())
    return {{0, end}};
  if (std::optional<SmallVector<Span, 2>> late = spansOfLate(channel))
    return *late;
  int64_t lastRead = 0, sent = end, begin = channel->hasAttr(lateAttribute) ? end : 0;
  for (Operation *user : channel->getUsers()) {
    if (isa<ReceiveOp>(user))
      lastRead = std::max(lastRead, lastUse(user));
    else if (isa<scf::ForOp>(user->getParentOp()))
      sent = first[user];
    if (isa<SendOp>(user))
      begin = std::min(begin, first[user]);
  }
  if (depthOf(channel) > 1 || sent == end)
    return {{begin, lastUseOf(channel)}};
  return {{begin, lastRead}, {sent, end}};
}

ChannelOp SharedMemoryPlanner::otherEnd(ChannelOp channel) {
  if (!channel.getPassed())
    return {};
  ChannelOp first = channelPassed(roles, *channel.getPassed());
  return first == channel ? ChannelOp() : first;
}

void SharedMemoryPlanner::collect(FuncOp function) {
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
      // Other roles may still read what is passed when this one is done with it.
      SmallVector<Span, 2> spans = channel.getPassed() ? SmallVector<Span, 2>{{0, end}} : spansOf(channel);
      // What a group copies itself, as parameters, has a place for each.
      int64_t ofTiles = channel.bytesOfTiles();
      if (!channel.getPassed())
        ofTiles = bytesOfGroups(function, ofTiles);
      if (channel.getOver())
        over.push_back(channel);
      else
        regions.push_back({function, op, ofTiles, spans, offset});
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
      // A row stays there for those that read it. The barrier of what is fetched is that of all heads of a block. From
      // where outputs are copied in bulk, that goes on in the next turn.
      SmallVector<Span, 2> spans = {{first[op], last[op]}};
      auto store = dyn_cast<StoreOp>(op);
      if (isa<FetchOp, chunk::ExpectOp>(op) || (store && store.getBulk()))
        spans = {{0, end}};
      if (!isa<chunk::ExpectOp>(op)) // which all roles ask for
        bytes = bytesOfGroups(function, bytes);
      regions.push_back({function, op, bytes, isa<chunk::RowOp>(op) ? spansOf(op) : spans, offset});
    }
  });
}

int64_t SharedMemoryPlanner::bytesOfGroups(FuncOp function, int64_t bytes) {
  int64_t groups = function.getGroups();
  return groups > 1 ? groups * bytesOfGroup(bytes) : bytes;
}

int64_t SharedMemoryPlanner::lowestFree(const Region &wanted) {
  if (!apart && !wanted.isRare() && wanted.bytes <= mostApart)
    if (int64_t offset = lowestFree(wanted, /*beside=*/true);
        offset + wanted.bytes <= limit - (hasFew(wanted) ? 0 : bytesOfFew))
      return offset;
  return lowestFree(wanted, /*beside=*/apart);
}

int64_t SharedMemoryPlanner::lowestFree(const Region &wanted, bool beside) {
  // The barriers of several roles are many: they stand side by side.
  // Banks of their own are worth less than bytes where these are scarce.
  bool isTight = roles.size() > 1 || (!apart && limit == 0 && mostApart == 0);
  int64_t alignment = wanted.isOfBarriers && isTight ? bytesOfBarrier : alignmentOfShared(wanted.bytes);
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
