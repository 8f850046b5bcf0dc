//===- PlanSharedMemory.cpp - Offsets in shared memory --------------------===//

#include "dialect/kernel/Chip.h"
#include "passes/Passes.h"
#include "runtime/Manifest.h"

namespace stretto {
#define GEN_PASS_DEF_PLANSHAREDMEMORY
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Operations from one to another, by their numbers.
struct Span {
  int64_t begin, end;
};

/// Bytes that an operation makes or needs, and the operations during which nothing else may touch them.
struct Region {
  Operation *op;
  int64_t bytes;
  SmallVector<Span, 2> spans;
  std::optional<int64_t> offset;

  bool meets(const Region &other) const {
    return llvm::any_of(spans, [&](Span own) {
      return llvm::any_of(other.spans, [&](Span its) { return own.begin <= its.end && its.begin <= own.end; });
    });
  }
};

int64_t depthOf(ChannelOp channel) { return static_cast<int64_t>(channel.getDepth()); }

class Planner {
public:
  /// With `apart` no two regions share memory, which saves the barriers between their uses.
  Planner(FuncOp function, bool apart) : function(function), apart(apart) {
    // An operation with regions gets two numbers, before and after what it holds.
    int64_t count = 0;
    number(*function.getBlock(), count);
    end = count;
  }

  /// Places every region; the bytes of all.
  int64_t plan() {
    collect();
    // Fixed regions first, then the largest, each at the lowest offset that is free while it is needed.
    llvm::sort(regions, [](const Region &a, const Region &b) {
      return std::tuple(a.offset.has_value(), a.bytes, b.spans[0].begin) >
             std::tuple(b.offset.has_value(), b.bytes, a.spans[0].begin);
    });
    int64_t total = 0;
    for (auto [index, region] : llvm::enumerate(regions)) {
      if (!region.offset)
        region.offset = lowestFree(region, index);
      total = std::max(total, *region.offset + region.bytes);
    }
    return total;
  }

  void write() {
    Builder builder(function.getContext());
    for (const Region &region : regions) {
      IntegerAttr offset = builder.getI64IntegerAttr(*region.offset);
      if (auto channel = dyn_cast<ChannelOp>(region.op))
        channel.setOffsetAttr(offset);
      else if (auto convert = dyn_cast<ConvertOp>(region.op))
        convert.setOffsetAttr(offset);
      else
        region.op->setAttr(scratchAttribute, offset);
    }
  }

private:
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

  /// Copies to a channel are under way between any two operations, unless a loop sends a tile when it has read the one
  /// before.
  SmallVector<Span, 2> spansOf(ChannelOp channel) {
    int64_t lastRead = 0, sent = end;
    for (Operation *user : channel->getUsers()) {
      if (isa<ReceiveOp>(user))
        lastRead = std::max(lastRead, lastUse(user));
      else if (isa<scf::ForOp>(user->getParentOp()))
        sent = first[user];
    }
    if (depthOf(channel) > 1 || sent == end)
      return {{0, end}};
    return {{0, lastRead}, {sent, end}};
  }

  void collect() {
    function.walk([&](Operation *op) {
      std::optional<int64_t> offset;
      if (auto channel = dyn_cast<ChannelOp>(op)) {
        if (channel.getOffset())
          offset = *channel.getOffset();
        int64_t bytes = depthOf(channel) * sharedBytesOf(channel.getType().getTile());
        regions.push_back({op, bytes, spansOf(channel), offset});
      } else if (auto convert = dyn_cast<ConvertOp>(op); convert && inSharedMemory(convert.getType())) {
        if (convert.getOffset())
          offset = *convert.getOffset();
        auto tile = cast<RankedTensorType>(convert.getType());
        regions.push_back({op, sharedBytesOf(tile), {{first[op], lastUse(op)}}, offset});
      } else if (int64_t bytes = scratchBytesOf(op)) {
        if (auto fixed = op->getAttrOfType<IntegerAttr>(scratchAttribute))
          offset = fixed.getInt();
        regions.push_back({op, bytes, {{first[op], last[op]}}, offset});
      }
    });
  }

  int64_t lowestFree(const Region &wanted, size_t placed) {
    constexpr int64_t alignment = 128; // all banks
    SmallVector<std::pair<int64_t, int64_t>> taken;
    for (const Region &other : ArrayRef(regions).take_front(placed))
      if (apart || other.meets(wanted))
        taken.push_back({*other.offset, *other.offset + other.bytes});
    llvm::sort(taken);
    int64_t offset = 0;
    for (auto [from, to] : taken) {
      if (offset + wanted.bytes <= from)
        break;
      offset = std::max<int64_t>(offset, llvm::alignTo(to, alignment));
    }
    return offset;
  }

  FuncOp function;
  bool apart;
  DenseMap<Operation *, int64_t> first, last;
  int64_t end = 0;
  SmallVector<Region> regions;
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

/// Whether an operation sends a tile that a loop receives, perhaps on a condition.
bool sendsFor(scf::ForOp loop, Operation *op) {
  if (isa<scf::ForOp>(op))
    return false;
  WalkResult result = op->walk([&](SendOp send) {
    bool isReceived = llvm::any_of(send.getChannel().getUsers(), [&](Operation *user) {
      return isa<ReceiveOp>(user) && user->getParentOp() == loop;
    });
    return isReceived ? WalkResult::interrupt() : WalkResult::advance();
  });
  return result.wasInterrupted();
}

/// Makes every channel one tile deep: a chunk is sent when its predecessor has been computed. Rows that are kept for
/// the next chunk are taken first, so that others may have the bytes of a tile once it has been read.
void serializeChannels(FuncOp function) {
  function.walk([](ChannelOp channel) { channel.setDepth(1); });
  function.walk([](scf::ForOp loop) {
    SmallVector<Operation *> sends;
    for (Operation &op : loop.getBody()->without_terminator())
      if (sendsFor(loop, &op))
        sends.push_back(&op);
    for (Operation *send : sends)
      send->moveBefore(loop.getBody()->getTerminator());
    SmallVector<chunk::TailOp> tails(loop.getBody()->getOps<chunk::TailOp>());
    for (chunk::TailOp tail : tails)
      moveUp(tail);
  });
}

struct PlanSharedMemory : stretto::impl::PlanSharedMemoryBase<PlanSharedMemory> {
  using PlanSharedMemoryBase::PlanSharedMemoryBase;

  void runOnOperation() override {
    FuncOp function = getOperation();
    FailureOr<Chip> target = Chip::named(chip, [&] { return function.emitOpError(); });
    if (failed(target))
      return signalPassFailure();
    // Memory to spare buys barriers; where it is scarce regions share it, and then channels lose their depth.
    bool apart = Planner(function, /*apart=*/true).plan() <= target->sharedBytes;
    if (!apart && Planner(function, /*apart=*/false).plan() > target->sharedBytes)
      serializeChannels(function);
    Planner planner(function, apart);
    int64_t bytes = planner.plan();
    if (bytes > target->sharedBytes) {
      function.emitOpError("needs ") << bytes << " bytes of shared memory, " << chip << " has " << target->sharedBytes
                                     << "; take smaller chunks or more slices";
      return signalPassFailure();
    }
    planner.write();
    function.setShared(bytes);
  }
};
} // namespace
