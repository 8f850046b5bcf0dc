//===- LowerHalves.cpp - Pairs of tokens by halves of blocks --------------===//

#include "passes/kernel/ThreadLowering.h"
#include <map>

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

namespace {
/// Asks where rows are in blocks that are halved as often as only the run knows. A thread has few rows, of each of
/// which what is asked for is formed once.
class HalvedBlocks {
public:
  HalvedBlocks(ThreadBuilder &b, const Layout &layout, int64_t block, Value halved)
      : b(b), layout(layout), tokens(arith::ShRUIOp::create(b, b.i32(block), halved)),
        half(arith::ShRUIOp::create(b, tokens, b.i32(1))) {}

  /// Whether the row of a register is in the second half of its block.
  Value isLater(uint64_t reg) {
    Value &known = later[ownRow(reg)];
    if (!known) {
      Value bit = arith::AndIOp::create(b, b.coordinate(layout, 0, reg), half);
      known = b.compare(arith::CmpIPredicate::eq, bit, half);
    }
    return known;
  }

  /// The row before the middle of a register's block is the exclusive or of one that is the thread's and of one that is
  /// the register's, as blocks have a power of two of rows.
  Value middleOfThread() {
    Value first = arith::AndIOp::create(b, b.linear(rowsOf(Layout::Lane), rowsOf(Layout::Warp)), ofBlocks());
    return b.combine(first, b.sub(half, b.i32(1)));
  }
  Value middleOfRow(uint64_t row) { return arith::AndIOp::create(b, ofBlocks(), b.i32(static_cast<int64_t>(row))); }

  /// Whether the row and the column of a register meet: but for the bit of the half, which the row has and the column
  /// has not, they differ in lower bits alone. In a block of one token there is none.
  Value meet(uint64_t reg) {
    if (!aboveHalf)
      aboveHalf = b.sub(half, tokens); // the bits from the half on, or all
    Value &known = ofHalf[ownRow(reg)];
    if (!known) {
      Value apart = b.combine(b.combine(b.coordinate(layout, 0, reg), ownColumns()), half);
      known = b.select(isLater(reg), arith::AndIOp::create(b, apart, aboveHalf), b.i32(-1));
    }
    return agree(known, reg, aboveHalf);
  }

  /// Whether the row and the column of a register are in one block.
  Value areSame(uint64_t reg) {
    Value &known = ofBlock[ownRow(reg)];
    if (!known)
      known = arith::AndIOp::create(b, b.combine(b.coordinate(layout, 0, reg), ownColumns()), ofBlocks());
    return agree(known, reg, ofBlocks());
  }

  uint64_t ownRow(uint64_t reg) { return layout.coordinate(layout.at(Layout::Register, reg), 0); }

private:
  SmallVector<uint64_t> rowsOf(Layout::Space space) {
    return llvm::map_to_vector(layout.basis(space),
                               [&](uint64_t vector) -> uint64_t { return layout.coordinate(vector, 0); });
  }
  /// The bits of a row's number that say which block it is in.
  Value ofBlocks() { return b.sub(b.i32(0), tokens); }
  uint64_t ownColumn(uint64_t reg) { return layout.coordinate(layout.at(Layout::Register, reg), 1); }
  /// What the thread contributes to columns.
  Value ownColumns() {
    auto basisOf = [&](Layout::Space space) {
      return llvm::map_to_vector(layout.basis(space),
                                 [&](uint64_t vector) -> uint64_t { return layout.coordinate(vector, 1); });
    };
    return b.linear(basisOf(Layout::Lane), basisOf(Layout::Warp));
  }
  /// Whether a number, in the bits of a mask, is what a register contributes to columns, which is masked once for all
  /// rows: a difference, and a comparison of it with a limit, would be two instructions for each pair.
  Value agree(Value number, uint64_t reg, Value mask) {
    Value own = arith::AndIOp::create(b, mask, b.i32(static_cast<int64_t>(ownColumn(reg))));
    return b.compare(arith::CmpIPredicate::eq, own, number);
  }

  ThreadBuilder &b;
  const Layout &layout;
  Value tokens, half, aboveHalf;
  llvm::SmallDenseMap<uint64_t, Value> later, ofHalf, ofBlock; // by what registers contribute to rows
};
} // namespace

/// What tells how often blocks are halved, for a thread; null where their size is known.
static Value halvedOf(ThreadBuilder &b, const IRMapping &scalars, Value halved) {
  return halved ? b.truncate(scalars.lookup(halved)) : Value();
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

void ThreadLowering::lowerMeetHalved(chunk::MeetOp op) {
  const Registers &source = registersOf(op.getOperand()), &otherwise = registersOf(op.getOtherwise());
  Layout layout = *layoutOf(op.getType());
  HalvedBlocks blocks(b, layout, op.getBlock(), halvedOf(b, scalars, op.getHalved()));
  if (!op.getWhole())
    return define(op.getResult(),
                  [&](uint64_t reg) { return b.select(blocks.meet(reg), source[reg], otherwise[reg]); });
  auto isPair = isEarlier(layout, /*strict=*/false);
  define(op.getResult(),
         [&](uint64_t reg) { return b.select(b.both(blocks.areSame(reg), isPair(reg)), source[reg], otherwise[reg]); });
}

void ThreadLowering::lowerMeet(chunk::MeetOp op) {
  const Registers &source = registersOf(op.getOperand()), &otherwise = registersOf(op.getOtherwise());
  Layout layout = *layoutOf(op.getType());
  int64_t block = op.getBlock(), half = block / 2;
  if (op.getHalved())
    return lowerMeetHalved(op);
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
  LinearTest ofBlocks = halfOf(b, layout, block);
  std::optional<HalvedBlocks> ofHalved;
  if (Value halved = halvedOf(b, scalars, op.getHalved()))
    ofHalved.emplace(b, layout, block, halved);
  auto isLater = [&](uint64_t reg) -> LinearTest::Answer {
    return ofHalved ? LinearTest::Answer{.isPossible = true, .condition = ofHalved->isLater(reg)}
                    : ofBlocks.is(reg, half);
  };
  if (!inSharedMemory(op.getSecond().getType())) {
    const Registers &second = registersOf(op.getSecond()), &first = registersOf(op.getFirst());
    define(op.getResult(), [&](uint64_t reg) {
      LinearTest::Answer answer = isLater(reg);
      if (!answer.isPossible || second[reg] == first[reg])
        return first[reg];
      return answer.condition ? b.select(answer.condition, second[reg], first[reg]) : second[reg];
    });
    return;
  }
  // Of two tiles that lie alike a thread addresses the one that its rows are in.
  SharedTile second = sharedTiles.find(op.getSecond())->second, first = sharedTiles.find(op.getFirst())->second;
  struct Source {
    SharedTile tile;
    std::optional<Addresses> addresses; // of `tile`
  };
  std::map<void *, Source> sources; // by condition; null where all threads have rows of the second
  std::optional<Source> ofFirst;
  auto addressesOf = [&](Source &source, Value base) -> Addresses & {
    if (!source.addresses) {
      source.tile = second;
      source.tile.base = base;
      source.addresses.emplace(b, source.tile, layout.basis(Layout::Lane), layout.basis(Layout::Warp));
    }
    return *source.addresses;
  };
  int64_t together = int64_t(1) << neighbouringBits(layout, second);
  std::map<uint64_t, Registers> loaded; // by their first register
  define(op.getResult(), [&](uint64_t reg) {
    Registers &numbers = loaded[reg - reg % together];
    if (numbers.empty()) {
      LinearTest::Answer answer = isLater(reg);
      if (!answer.isPossible && !ofFirst)
        ofFirst.emplace();
      Addresses &addresses =
          !answer.isPossible
              ? addressesOf(*ofFirst, first.base)
              : addressesOf(sources[answer.condition.getAsOpaquePointer()],
                            answer.condition ? b.select(answer.condition, second.base, first.base) : second.base);
      numbers = b.load(addresses.at(layout.at(Layout::Register, reg - reg % together)),
                       cast<RankedTensorType>(op.getType()).getElementType(), together);
    }
    return numbers[reg % together];
  });
}

void ThreadLowering::lowerMiddle(chunk::MiddleOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  const SharedTile &tile = sharedTiles.find(op.getOperand())->second;
  Layout layout = *layoutOf(type);
  int64_t block = op.getBlock(), together = int64_t(1) << neighbouringBits(layout, tile);
  // Rows of a block are read as one: its own bits count for nothing in what a thread asks for. Where only the run tells
  // which bits these are, no bit of a row does, and the row is found by itself.
  Value halved = halvedOf(b, scalars, op.getHalved());
  auto ofBlock = [&](uint64_t flat) {
    int64_t row = layout.coordinate(flat, 0);
    return layout.flat({halved ? 0 : row - row % block, layout.coordinate(flat, 1)});
  };
  auto basisOf = [&](Layout::Space space) { return llvm::map_to_vector(layout.basis(space), ofBlock); };
  Addresses addresses(b, tile, basisOf(Layout::Lane), basisOf(Layout::Warp));
  std::optional<HalvedBlocks> blocks;
  if (halved)
    blocks.emplace(b, layout, block, halved);
  std::map<uint64_t, Addresses> ofRows; // by what registers contribute to rows
  auto addressesOf = [&](uint64_t reg) -> Addresses & {
    if (!halved)
      return addresses;
    if (ofRows.empty())
      ofRows.try_emplace(0, addresses.inRow(blocks->middleOfThread()));
    uint64_t own = blocks->ownRow(reg);
    auto known = ofRows.find(own);
    if (known == ofRows.end())
      known = ofRows.try_emplace(own, ofRows.at(0).inRow(blocks->middleOfRow(own), /*bits=*/own)).first;
    return known->second;
  };
  uint64_t middle = halved ? 0 : layout.flat({block / 2 - 1, 0});
  std::map<std::pair<Addresses *, uint64_t>, Registers> loaded;
  define(op.getResult(), [&](uint64_t reg) {
    uint64_t first = ofBlock(layout.at(Layout::Register, reg - reg % together)) ^ middle;
    Addresses &own = addressesOf(reg);
    Registers &row = loaded[{&own, first}];
    if (row.empty())
      row = b.load(own.at(first), type.getElementType(), together);
    return row[reg % together];
  });
}
