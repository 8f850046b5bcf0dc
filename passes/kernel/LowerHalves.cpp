//===- LowerHalves.cpp - Pairs of tokens by halves of blocks --------------===//

#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {
/// Asks of the elements in a thread's registers for a number that depends linearly on the bits of their coordinates,
/// and so is the exclusive or of one of the thread and one of the register: most answers are known, or those of others.
class LinearTest {
public:
  using Map = std::function<uint64_t(uint64_t flat)>;

  LinearTest(ThreadBuilder &b, const Layout &layout, Map map) : b(b), layout(layout), map(std::move(map)) {
    SmallVector<uint64_t> ofLane = basisOf(Layout::Lane), ofWarp = basisOf(Layout::Warp);
    for (uint64_t vector : llvm::concat<uint64_t>(ofLane, ofWarp))
      reach |= vector;
    thread = b.linear(ofLane, ofWarp);
  }

  /// Whether the number of a register's element is `wanted`; a condition where threads differ.
  struct Answer {
    bool isPossible = true;
    Value condition; // null where it holds for all
  };
  Answer is(uint64_t reg, uint64_t wanted) {
    uint64_t ofThread = map(layout.at(Layout::Register, reg)) ^ wanted;
    if (ofThread & ~reach)
      return {.isPossible = false, .condition = {}};
    if (!thread)
      return {};
    Value &known = conditions[ofThread];
    if (!known)
      known = b.compare(arith::CmpIPredicate::eq, thread, b.i32(static_cast<int64_t>(ofThread)));
    return {.isPossible = true, .condition = known};
  }

  Value select(uint64_t reg, uint64_t wanted, Value yes, Value no) {
    Answer answer = is(reg, wanted);
    if (!answer.isPossible || yes == no)
      return no;
    return answer.condition ? b.select(answer.condition, yes, no) : yes;
  }

private:
  SmallVector<uint64_t> basisOf(Layout::Space space) {
    return llvm::map_to_vector(layout.basis(space), [&](uint64_t vector) { return map(vector); });
  }

  ThreadBuilder &b;
  const Layout &layout;
  Map map;
  uint64_t reach = 0; // the bits that a thread's number may have
  Value thread;       // null for zero
  llvm::SmallDenseMap<uint64_t, Value> conditions;
};
} // namespace

/// The bit of a row's number that says which half of its block it is in.
static LinearTest halfOf(ThreadBuilder &b, const Layout &layout, int64_t block) {
  return {b, layout, [&layout, block](uint64_t flat) { return layout.coordinate(flat, 0) & (block / 2); }};
}

void ThreadLowering::lowerMeetWhole(chunk::MeetOp op) {
  const Registers &source = registersOf(op.getOperand()), &otherwise = registersOf(op.getOtherwise());
  Layout layout = *layoutOf(op.getType());
  int64_t block = op.getBlock();
  LinearTest isSame(b, layout,
                    [&](uint64_t flat) { return (layout.coordinate(flat, 0) ^ layout.coordinate(flat, 1)) & -block; });
  auto isPair = isEarlier(layout, /*strict=*/false);
  define(op.getResult(), [&](uint64_t reg) {
    LinearTest::Answer answer = isSame.is(reg, 0);
    if (!answer.isPossible)
      return otherwise[reg];
    return b.select(b.both(answer.condition, isPair(reg)), source[reg], otherwise[reg]);
  });
}

void ThreadLowering::lowerMeet(chunk::MeetOp op) {
  const Registers &source = registersOf(op.getOperand()), &otherwise = registersOf(op.getOtherwise());
  Layout layout = *layoutOf(op.getType());
  int64_t block = op.getBlock(), half = block / 2;
  if (op.getWhole())
    return lowerMeetWhole(op);
  // Of the bits in which two tokens that meet differ, that of the half is the highest.
  LinearTest difference(b, layout, [&](uint64_t flat) {
    return (layout.coordinate(flat, 0) ^ layout.coordinate(flat, 1)) & -std::max<int64_t>(half, 1);
  });
  LinearTest isLater = halfOf(b, layout, block);
  define(op.getResult(), [&](uint64_t reg) {
    Value own = difference.select(reg, half, source[reg], otherwise[reg]);
    return own == otherwise[reg] ? own : isLater.select(reg, half, own, otherwise[reg]);
  });
}

void ThreadLowering::lowerJoinHalves(chunk::JoinHalvesOp op) {
  Layout layout = *layoutOf(op.getType());
  int64_t block = op.getBlock(), half = block / 2;
  LinearTest isLater = halfOf(b, layout, block);
  if (!inSharedMemory(op.getSecond().getType())) {
    const Registers &second = registersOf(op.getSecond()), &first = registersOf(op.getFirst());
    define(op.getResult(), [&](uint64_t reg) { return isLater.select(reg, half, second[reg], first[reg]); });
    return;
  }
  // Of two tiles that lie alike a thread addresses the one that its rows are in.
  SharedTile second = sharedTiles.find(op.getSecond())->second, first = sharedTiles.find(op.getFirst())->second;
  auto load = [&](Value base) {
    SharedTile tile = second;
    tile.base = base;
    return fromShared(tile, cast<RankedTensorType>(op.getType()));
  };
  llvm::SmallDenseMap<Value, Registers, 2> byCondition; // null where all threads have rows of the second
  Registers ofFirst;
  define(op.getResult(), [&](uint64_t reg) {
    LinearTest::Answer answer = isLater.is(reg, half);
    Registers &tile = answer.isPossible ? byCondition[answer.condition] : ofFirst;
    if (tile.empty())
      tile = load(!answer.isPossible ? first.base
                  : answer.condition ? b.select(answer.condition, second.base, first.base)
                                     : second.base);
    return tile[reg];
  });
}

void ThreadLowering::lowerMiddle(chunk::MiddleOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  const SharedTile &tile = sharedTiles.find(op.getOperand())->second;
  Layout layout = *layoutOf(type);
  int64_t block = op.getBlock();
  // Rows of a block are read as one: its own bits count for nothing in what a thread asks for.
  auto ofBlock = [&](uint64_t flat) {
    int64_t row = layout.coordinate(flat, 0);
    return layout.flat({row - row % block, layout.coordinate(flat, 1)});
  };
  auto basisOf = [&](Layout::Space space) { return llvm::map_to_vector(layout.basis(space), ofBlock); };
  Addresses addresses(b, tile, basisOf(Layout::Lane), basisOf(Layout::Warp));
  int64_t together = int64_t(1) << neighbouringBits(layout, tile);
  uint64_t middle = layout.flat({block / 2 - 1, 0});
  llvm::SmallDenseMap<uint64_t, Registers> loaded;
  define(op.getResult(), [&](uint64_t reg) {
    uint64_t first = ofBlock(layout.at(Layout::Register, reg - reg % together));
    Registers &own = loaded[first];
    if (own.empty())
      own = b.load(addresses.at(first ^ middle), type.getElementType(), together);
    return own[reg % together];
  });
}
