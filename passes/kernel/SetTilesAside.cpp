//===- SetTilesAside.cpp - Registers for tiles that are not needed yet ----===//

#include "dialect/kernel/Chip.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Passes.h"
#include "passes/kernel/Lifetimes.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/ThreadBuilder.h"

namespace stretto {
#define GEN_PASS_DEF_SETTILESASIDE
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// A tile that is in registers while nobody reads it: from its maker, or a use, to the next use.
struct Rest {
  Value tile;
  Operation *next = nullptr; // in the tile's block
  int64_t begin = 0, end = 0, bits = 0;

  int64_t length() const { return end - begin; }
};

class Aside {
public:
  /// Bytes of shared memory from `begin` to `end` are free.
  Aside(FuncOp function, int64_t begin, int64_t end)
      : function(function), begin(begin), end(end), threads(int64_t(lanesOfWarp) * function.getWarps()) {}

  /// Sets tiles aside until a thread needs no more than so many registers, or nothing else helps, where it needs more
  /// than it may have.
  void run(int64_t mayHave, int64_t registers) {
    if (estimateRegisters(function) <= mayHave)
      return;
    auto others = estimateRegisters(function) - Lifetimes(function).peak().registers;
    while (true) {
      Lifetimes lifetimes(function);
      Lifetimes::Peak peak = lifetimes.peak();
      if (!place(lifetimes)) {
        undo();
        place(Lifetimes(function));
        return;
      }
      if (peak.registers + others <= registers || !setOneAside(lifetimes, peak.at))
        return;
    }
  }

  int64_t bytes() const { return used; }

private:
  bool setOneAside(const Lifetimes &lifetimes, int64_t at);
  /// Makes the last one what it was.
  void undo();
  /// What is at rest when most registers are taken; the one whose rest is the longest.
  Rest longestRest(const Lifetimes &lifetimes, int64_t at);
  void consider(Value tile, const Lifetimes &lifetimes, int64_t at, Rest &longest);
  /// Finds a place for each, side by side while they are needed at a time; whether all have room.
  bool place(const Lifetimes &lifetimes);
  int64_t bytesOf(Value tile) const;

  FuncOp function;
  int64_t begin, end, threads, used = 0;
  llvm::DenseMap<Value, SetAsideOp> asides; // of tiles, and of those that were taken back
  SmallVector<SetAsideOp> all;
  Value lastBack; // what was taken back last
};

} // namespace

/// Each thread has 16 bytes, as often as its elements take them: of a tile that fills its layout in part, all elements
/// that any thread has.
int64_t Aside::bytesOf(Value tile) const {
  constexpr int64_t bitsOfUnit = 128;
  auto type = cast<RankedTensorType>(tile.getType());
  Layout layout = *layoutOf(type);
  int64_t elements = 0;
  for (int64_t reg = 0; reg < layout.size(Layout::Register); ++reg)
    elements += ThreadBuilder::inside(layout, type.getShape(), reg) != ThreadBuilder::Inside::Never;
  return static_cast<int64_t>(llvm::divideCeil(elements * type.getElementTypeBitWidth(), bitsOfUnit)) * 16 * threads;
}

/// Products of warpgroups own registers until they are finished.
static bool mayRest(Value tile) {
  auto type = dyn_cast<RankedTensorType>(tile.getType());
  if (!type || inSharedMemory(type) || !type.getElementType().isIntOrFloat() || type.getElementTypeBitWidth() < 16)
    return false;
  if (Operation *maker = tile.getDefiningOp(); maker && isa<arith::ConstantOp, chunk::BroadcastOp, SetAsideOp>(maker))
    return false;
  if (tile.getDefiningOp() && isOfWarpgroups(tile.getDefiningOp()))
    return false;
  return llvm::none_of(tile.getUsers(), [](Operation *user) { return isOfWarpgroups(user) || isa<FinishOp>(user); });
}

/// Whether a use needs the tile itself: whoever accumulates it knows its total without.
static bool readsTile(Operation *user) { return !isa<SetAsideOp, chunk::TotalOp>(user); }

/// Whether anything but tiles that are set aside or taken back stands between two operations, the first of which may be
/// the start of the block.
static bool hasWork(Operation *before, Operation *after) {
  Operation *op = before ? before->getNextNode() : &after->getBlock()->front();
  while (op != after && isa<SetAsideOp, TakeBackOp>(op))
    op = op->getNextNode();
  return op != after;
}

void Aside::consider(Value tile, const Lifetimes &lifetimes, int64_t at, Rest &longest) {
  if (!mayRest(tile))
    return;
  Block *block = tile.getParentBlock();
  SmallVector<Operation *> users;
  for (Operation *user : tile.getUsers())
    if (readsTile(user))
      users.push_back(block->findAncestorOpInBlock(*user));
  llvm::sort(users, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  Operation *maker = tile.getDefiningOp();
  int64_t from = maker ? lifetimes.lastOf(maker) : lifetimes.firstOf(block->getParentOp());
  Operation *before = maker;
  for (Operation *user : users) {
    int64_t to = lifetimes.firstOf(user);
    Rest rest = {tile, user, from, to, Lifetimes::bitsOf(tile)};
    if (from < at && at < to && std::pair(rest.length(), rest.bits) > std::pair(longest.length(), longest.bits) &&
        hasWork(before, user))
      longest = rest;
    from = std::max(from, lifetimes.lastOf(user));
    before = user;
  }
}

Rest Aside::longestRest(const Lifetimes &lifetimes, int64_t at) {
  Rest longest;
  function.walk([&](Operation *op) {
    if (lifetimes.firstOf(op) >= at)
      return WalkResult::interrupt();
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          if (op != function)
            consider(argument, lifetimes, at, longest);
    for (Value result : op->getResults())
      consider(result, lifetimes, at, longest);
    return WalkResult::advance();
  });
  return longest;
}

/// Where a tile is set aside: as soon as it is there. One that is loaded is on its way until somebody asks for it, and
/// takes registers before most of them are taken as well.
static Operation *whereSetAside(Value tile, Operation *next, const Lifetimes &lifetimes, int64_t at) {
  Operation *maker = tile.getDefiningOp();
  if (!maker)
    return &tile.getParentBlock()->front();
  Operation *op = maker->getNextNode();
  if (isa<LoadOp>(maker))
    while (op != next && lifetimes.lastOf(op) < at)
      op = op->getNextNode();
  return op;
}

bool Aside::setOneAside(const Lifetimes &lifetimes, int64_t at) {
  Rest rest = longestRest(lifetimes, at);
  if (!rest.tile)
    return false;
  Location location = rest.next->getLoc();
  OpBuilder builder(rest.next);
  SetAsideOp &known = asides[rest.tile];
  if (!known) {
    builder.setInsertionPoint(whereSetAside(rest.tile, rest.next, lifetimes, at));
    known = SetAsideOp::create(builder, location, rest.tile, nullptr);
    all.push_back(known);
    builder.setInsertionPoint(rest.next);
  } else if (!known->isBeforeInBlock(rest.next)) {
    // It was to be set aside behind what takes it back now.
    known->moveBefore(whereSetAside(rest.tile, rest.next, lifetimes, at));
  }
  SetAsideOp aside = known;
  lastBack = TakeBackOp::create(builder, location, aside.getResult());
  Block *block = rest.tile.getParentBlock();
  rest.tile.replaceUsesWithIf(lastBack, [&](OpOperand &use) {
    return readsTile(use.getOwner()) && !block->findAncestorOpInBlock(*use.getOwner())->isBeforeInBlock(rest.next);
  });
  asides[lastBack] = aside;
  return true;
}

void Aside::undo() {
  auto aside = lastBack.getDefiningOp()->getOperand(0).getDefiningOp<SetAsideOp>();
  lastBack.replaceAllUsesWith(aside.getOperand());
  lastBack.getDefiningOp()->erase();
  if (!aside->use_empty())
    return;
  llvm::erase(all, aside);
  aside.erase();
}

bool Aside::place(const Lifetimes &lifetimes) {
  struct Region {
    SetAsideOp op;
    int64_t from, to, bytes, offset = 0;
  };
  SmallVector<Region> regions;
  for (SetAsideOp op : all) {
    int64_t from = lifetimes.firstOf(op), to = from;
    for (Operation *user : op->getUsers())
      to = std::max(to, lifetimes.lastOf(op->getBlock()->findAncestorOpInBlock(*user)));
    regions.push_back({op, from, to, bytesOf(op.getOperand())});
  }
  llvm::stable_sort(regions, [](const Region &a, const Region &b) { return a.bytes > b.bytes; });
  int64_t most = begin;
  for (auto [index, region] : llvm::enumerate(regions)) {
    SmallVector<std::pair<int64_t, int64_t>> taken;
    for (const Region &other : ArrayRef(regions).take_front(index))
      if (region.from <= other.to && other.from <= region.to)
        taken.push_back({other.offset, other.offset + other.bytes});
    llvm::sort(taken);
    region.offset = begin;
    for (auto [from, to] : taken) {
      if (region.offset + region.bytes <= from)
        break;
      region.offset = std::max(region.offset, to);
    }
    most = std::max(most, region.offset + region.bytes);
  }
  for (Region &region : regions)
    region.op.setOffset(region.offset);
  used = most;
  return most <= end;
}

namespace {
struct SetTilesAside : stretto::impl::SetTilesAsideBase<SetTilesAside> {
  using SetTilesAsideBase::SetTilesAsideBase;

  void runOnOperation() override {
    FuncOp function = getOperation();
    // Roles share what memory is left.
    if (function.getRole().getKind() != RoleKind::All)
      return;
    FailureOr<Chip> target = Chip::named(chip, [&] { return function.emitOpError(); });
    if (failed(target))
      return signalPassFailure();
    int64_t shared = function.getShared().value_or(0), threads = int64_t(lanesOfWarp) * function.getWarps();
    // As many blocks as their registers allow share a processor's memory.
    constexpr int64_t registersOfProcessor = 65536, mostRegisters = 256;
    int64_t blocks = std::max<int64_t>(registersOfProcessor / (threads * mostRegisters), 1);
    int64_t begin = llvm::alignTo(shared, bytesOfBanks), end = target->sharedBytes / blocks;
    if (shared > end)
      end = target->sharedBytes;
    if (begin >= end)
      return;
    Aside aside(function, begin, end);
    // Once ptxas has to spill, it spills more. Walks forwards have few tiles that rest: with some of them set aside
    // ptxas spilled more than before.
    if (registers)
      aside.run(registers, registers);
    else if (walksInReverse(function))
      aside.run(mostOfWalkBack, 160);
    if (aside.bytes() > begin)
      function.setShared(aside.bytes());
  }
};
} // namespace
