//===- LayoutTest.cpp - The algebra of layouts ----------------------------===//

#include "dialect/kernel/Layout.h"
#include "llvm/ADT/STLExtras.h"
#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace stretto::kernel;

namespace {

constexpr int64_t lanes = 32;

/// Calls `visit` with every place of a register layout.
template <typename Visit> void forEachPlace(const Layout &layout, Visit visit) {
  for (int64_t warp = 0; warp < layout.size(Layout::Warp); ++warp)
    for (int64_t lane = 0; lane < layout.size(Layout::Lane); ++lane)
      for (int64_t reg = 0; reg < layout.size(Layout::Register); ++reg)
        visit(Layout::Place{uint64_t(reg), uint64_t(lane), uint64_t(warp)});
}

/// The shapes that tests run through: squares and oblong ones, small ones, and sides that are no powers of two.
const std::pair<int64_t, int64_t> shapes[] = {{64, 64}, {64, 128}, {128, 128}, {16, 16},  {64, 16},
                                              {3, 128}, {128, 4},  {96, 65},   {256, 64}, {9, 64}};

TEST(Layout, DescribesTheFragmentOfTheHeader) {
  Layout layout({3, 3});
  layout.add(Layout::Register, {0, 1});
  layout.add(Layout::Lane, {0, 2}).add(Layout::Lane, {0, 4});
  layout.add(Layout::Lane, {1, 0}).add(Layout::Lane, {2, 0}).add(Layout::Lane, {4, 0});
  EXPECT_EQ(layout.at({0, 7, 0}), layout.flat({1, 6}));
  EXPECT_EQ(layout.at({1, 7, 0}), layout.flat({1, 7}));
  EXPECT_EQ(layout.str(), "register = [[0, 1]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]");
}

TEST(Layout, DrawsWhereElementsAre) {
  Layout layout({1, 2});
  layout.add(Layout::Register, {0, 1}).add(Layout::Lane, {0, 2}).add(Layout::Lane, {1, 0});
  EXPECT_EQ(layout.picture(), "    0:0:0    0:0:1    0:1:0    0:1:1\n"
                              "    0:2:0    0:2:1    0:3:0    0:3:1\n");
  Layout shared({1, 2});
  shared.add(Layout::Offset, {0, 1}).add(Layout::Offset, {0, 2}).add(Layout::Offset, {1, 2});
  EXPECT_EQ(shared.picture(), "        0        1        2        3\n"
                              "        6        7        4        5\n");
}

TEST(Layout, RegistersCoverEveryElement) {
  for (auto [rows, columns] : shapes)
    for (int64_t warps : {4, 8}) {
      Layout layout = registerLayout({rows, columns}, warps);
      EXPECT_EQ(layout.size(Layout::Lane), lanes);
      EXPECT_EQ(layout.size(Layout::Warp), warps);
      std::set<uint64_t> covered;
      forEachPlace(layout, [&](Layout::Place place) { covered.insert(layout.at(place)); });
      EXPECT_EQ(int64_t(covered.size()), layout.side(0) * layout.side(1)) << rows << "x" << columns;
    }
}

TEST(Layout, FragmentsAreThoseOfMma) {
  // Results of m16n8: lane l has the columns 2 (l mod 4) and the next of the rows l / 4 and l / 4 + 8.
  Layout layout = registerLayout({64, 64}, 4);
  for (int64_t lane = 0; lane < lanes; ++lane)
    for (int64_t reg = 0; reg < 4; ++reg) {
      uint64_t flat = layout.at({uint64_t(reg), uint64_t(lane), 2});
      EXPECT_EQ(layout.coordinate(flat, 0), int64_t(32) + lane / 4 + int64_t(8) * (reg >> 1));
      EXPECT_EQ(layout.coordinate(flat, 1), lane % 4 * 2 + (reg & 1));
    }
}

TEST(Layout, WarpsDivideRowsFirst) {
  EXPECT_EQ(WarpGrid::of(64, 64, 8).rows, 4);
  EXPECT_EQ(WarpGrid::of(64, 64, 8).columns, 2);
  EXPECT_EQ(WarpGrid::of(64, 64, 4).columns, 1);
  EXPECT_EQ(WarpGrid::of(16, 128, 8).rows, 1);
}

TEST(Layout, WarpgroupsHaveNeighbouringColumns) {
  // The second four warps take the other half of the columns, as far as those divide evenly.
  EXPECT_EQ(registerLayout({64, 128}, 8).at({0, 0, 4}), registerLayout({64, 128}, 8).flat({0, 64}));
  EXPECT_EQ(registerLayout({64, 16}, 8).at({0, 0, 4}), registerLayout({64, 16}, 8).flat({0, 8}));
  EXPECT_EQ(registerLayout({64, 96}, 8).at({0, 0, 4}), registerLayout({64, 96}, 8).flat({0, 16}));
  // Results of m64n64: each 8 columns in the next four registers.
  Layout layout = registerLayout({128, 128}, 8);
  for (int64_t reg = 0; reg < 32; ++reg)
    for (int64_t warp = 0; warp < 8; ++warp) {
      uint64_t flat = layout.at({uint64_t(reg), 9, uint64_t(warp)});
      EXPECT_EQ(layout.coordinate(flat, 0), warp % 4 * 16 + 2 + 8 * (reg >> 1 & 1));
      EXPECT_EQ(layout.coordinate(flat, 1), warp / 4 * 64 + reg / 4 * 8 + 2 + (reg & 1));
    }
  EXPECT_EQ(layout.at({32, 0, 0}), layout.flat({64, 0}));
}

TEST(Layout, BoxesAreThoseOfWarpgroups) {
  // The offset of an element as a matrix descriptor says it: rows of a box, whose pieces of 16 bytes are exchanged by
  // the bits of the address above those of 128 bytes.
  for (auto [rows, columns] : {std::pair(64, 16), std::pair(64, 32), std::pair(16, 64), std::pair(128, 128)}) {
    Layout layout = sharedLayout({rows, columns}, 2);
    for (uint64_t offset = 0; offset < uint64_t(rows) * columns; ++offset) {
      uint64_t flat = layout.at(Layout::Offset, offset), width = std::min<uint64_t>(columns, 64);
      uint64_t row = layout.coordinate(flat, 0), column = layout.coordinate(flat, 1);
      uint64_t bytes = 2 * (column / width * rows * width + row * width + column % width), pieces = width / 8;
      EXPECT_EQ(bytes ^ (bytes >> 7 & (pieces - 1)) << 4, 2 * offset) << rows << "x" << columns;
    }
  }
}

TEST(Layout, CopiesAreNeighbouringElements) {
  Layout layout = copyLayout({64, 128}, 8, 8);
  // Sixteen lanes take a row of 128 in pieces of 8; the next sixteen the next row.
  EXPECT_EQ(layout.at({7, 0, 0}), layout.flat({0, 7}));
  EXPECT_EQ(layout.at({0, 1, 0}), layout.flat({0, 8}));
  EXPECT_EQ(layout.at({0, 16, 0}), layout.flat({1, 0}));
  // A tile that is smaller than the block is copied several times.
  Layout small = copyLayout({16, 16}, 8, 8);
  EXPECT_EQ(small.at({0, 0, 4}), 0u);
}

TEST(Layout, RowsOfWarpsAreStoredInPieces) {
  // Eight warps have 16 rows of 64 columns each: eight lanes take a row in pieces of 8, the others the next three.
  Layout fragments = registerLayout({64, 128}, 8);
  std::optional<Layout> rows = alongRows(fragments, 8);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->at({7, 0, 0}), rows->flat({0, 7}));
  EXPECT_EQ(rows->at({0, 1, 0}), rows->flat({0, 8}));
  EXPECT_EQ(rows->at({0, 8, 0}), rows->flat({1, 0}));
  EXPECT_EQ(rows->at({8, 0, 0}), rows->flat({4, 0}));
  EXPECT_EQ(Conversion::between(fragments, *rows).kind, Conversion::Shuffle);
  // Warps that have copies of each other's rows, or parts of pieces, have none to themselves.
  EXPECT_FALSE(alongRows(leftOperandLayout(64, 64, {4, 2}), 8));
  EXPECT_FALSE(alongRows(registerLayout({16, 8}, 4), 8));
}

TEST(Layout, SweepsCoverEveryElementOnce) {
  for (auto [rows, columns] : shapes)
    for (int64_t perAccess : {1, 2, 4})
      for (int64_t warps : {1, 4, 16}) {
        Layout layout = sweepLayout({rows, columns}, perAccess, warps);
        EXPECT_EQ(layout.size(Layout::Lane), lanes);
        EXPECT_EQ(layout.size(Layout::Warp), warps);
        EXPECT_EQ(neighbouringColumns(layout) % perAccess, 0);
        std::map<uint64_t, int64_t> holders;
        forEachPlace(layout, [&](Layout::Place place) { ++holders[layout.at(place)]; });
        int64_t elements = layout.side(0) * layout.side(1), threads = lanes * warps;
        EXPECT_EQ(int64_t(holders.size()), elements) << rows << "x" << columns;
        // Copies only where there are fewer elements than accesses of all threads.
        for (auto [element, count] : holders)
          EXPECT_EQ(count, std::max<int64_t>(threads * perAccess / elements, 1)) << rows << "x" << columns;
      }
}

TEST(Layout, SweepsTakeLinesOfRows) {
  // 128 bytes of a row by eight lanes, four rows by a warp, the next four by the next.
  Layout layout = sweepLayout({128, 64}, 4, 4);
  EXPECT_EQ(layout.at({3, 7, 0}), layout.flat({0, 31}));
  EXPECT_EQ(layout.at({0, 8, 0}), layout.flat({1, 0}));
  EXPECT_EQ(layout.at({0, 0, 1}), layout.flat({4, 0}));
  EXPECT_EQ(layout.at({4, 0, 0}), layout.flat({0, 32}));
  EXPECT_EQ(layout.at({8, 0, 0}), layout.flat({16, 0}));
  // A row of a token lies in every warp, and nothing of it is padding.
  Layout row = sweepLayout({1, 128}, 4, 4);
  EXPECT_EQ(row.side(0), 1);
  EXPECT_EQ(row.at({1, 3, 2}), row.flat({0, 35}));
  EXPECT_EQ(row.size(Layout::Register), 4);
}

TEST(Layout, RunsCoverEveryElement) {
  for (auto [rows, columns] : shapes)
    for (int64_t warps : {1, 4, 8}) {
      Layout layout = runLayout({rows, columns}, warps);
      EXPECT_EQ(layout.size(Layout::Lane), lanes);
      EXPECT_EQ(layout.size(Layout::Warp), warps);
      std::set<uint64_t> covered;
      forEachPlace(layout, [&](Layout::Place place) { covered.insert(layout.at(place)); });
      EXPECT_EQ(int64_t(covered.size()), layout.side(0) * layout.side(1)) << rows << "x" << columns;
      EXPECT_EQ(layout.reach(Layout::Register) & (layout.reach(Layout::Lane) | layout.reach(Layout::Warp)), 0u);
    }
}

TEST(Layout, RunsAreRowsThatFollowOneAnother) {
  Layout layout = runLayout({64, 128}, 8);
  EXPECT_EQ(layout.str(), "register = [[0, 1], [1, 0], [2, 0], [4, 0], [8, 0]], "
                          "lane = [[0, 2], [0, 4], [0, 8], [0, 16], [0, 32]], warp = [[0, 64], [16, 0], [32, 0]]");
  // A narrow tile has fewer rows in each thread, then copies.
  EXPECT_EQ(runLayout({16, 16}, 8).str(), "register = [[0, 1]], lane = [[0, 2], [0, 4], [0, 8], [1, 0], [2, 0]], "
                                          "warp = [[4, 0], [8, 0], [0, 0]]");
}

TEST(Layout, SharedMemoryIsABijection) {
  for (auto [rows, columns] : shapes)
    for (int64_t bytes : {2, 4}) {
      Layout layout = sharedLayout({rows, columns}, bytes);
      auto offsets = layout.offsetsOfCoordinates();
      ASSERT_TRUE(offsets) << rows << "x" << columns;
      for (int64_t offset = 0; offset < layout.size(Layout::Offset); ++offset) {
        uint64_t back = 0, flat = layout.at(Layout::Offset, offset);
        for (unsigned bit = 0; bit < offsets->size(); ++bit)
          if (flat >> bit & 1)
            back ^= (*offsets)[bit];
        ASSERT_EQ(back, uint64_t(offset));
      }
    }
}

TEST(Layout, SharedMemoryHasNoBankConflicts) {
  // What `ldmatrix` reads together: eight neighbouring rows of one column of 16-byte pieces.
  for (auto [rows, columns] : shapes)
    for (int64_t bytes : {2, 4}) {
      Layout layout = sharedLayout({rows, columns}, bytes);
      auto offsets = *layout.offsetsOfCoordinates();
      auto offsetOf = [&](int64_t row, int64_t column) {
        uint64_t offset = 0, flat = layout.flat({row, column});
        for (unsigned bit = 0; bit < offsets.size(); ++bit)
          if (flat >> bit & 1)
            offset ^= offsets[bit];
        return offset * bytes;
      };
      for (int64_t column = 0; column < layout.side(1); column += 16 / bytes) {
        std::set<uint64_t> banks;
        for (int64_t row = 0; row < 8; ++row) {
          EXPECT_EQ(offsetOf(row, column) % 16, 0u);
          banks.insert(offsetOf(row, column) % 128 / 16);
        }
        EXPECT_EQ(banks.size(), 8u) << rows << "x" << columns << " of " << bytes << " bytes, column " << column;
      }
    }
}

TEST(Layout, WarpgroupsHaveAnyNumberOfColumns) {
  // A share of 65 columns is no tile: both warpgroups have all of them, in neighbouring registers.
  Layout whole = warpgroupLayout({64, 65}, 8);
  EXPECT_EQ(whole.at({0, 0, 4}), 0u);
  for (int64_t reg = 0; reg < 36; ++reg)
    EXPECT_EQ(whole.coordinate(whole.at({uint64_t(reg), 9, 5}), 1), reg / 4 * 8 + 2 + (reg & 1));
  // Where there are rows for both, each has its own.
  for (int64_t columns : {65, 96})
    EXPECT_EQ(warpgroupLayout({128, columns}, 8).at({0, 0, 4}), warpgroupLayout({128, columns}, 8).flat({64, 0}));
  // Others are where they are in any case: even shares, as few columns as a fragment has, and other rows.
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{64, 128}, {64, 16}, {64, 96}, {32, 65}, {16, 9}, {32, 64}})
    EXPECT_EQ(warpgroupLayout({rows, columns}, 8), registerLayout({rows, columns}, 8)) << rows << "x" << columns;
  EXPECT_EQ(warpgroupLayout({64, 65}, 4), registerLayout({64, 65}, 4));
  EXPECT_EQ(warpgroupLayout({64}, 8), registerLayout({64}, 8));
}

TEST(Layout, StatesWithOddRowsLieAcross) {
  for (int64_t warps : {4, 8}) {
    Layout state = warpgroupLayout({65, 128}, warps);
    EXPECT_TRUE(liesAcross(state));
    EXPECT_EQ(state.transposed(), warpgroupLayout({128, 65}, warps));
    std::set<uint64_t> covered;
    forEachPlace(state, [&](Layout::Place place) { covered.insert(state.at(place)); });
    EXPECT_EQ(int64_t(covered.size()), state.side(0) * state.side(1));
  }
  // A fragment holds sixteen rows, and no instruction more than 256; columns must be by the 64, or, where rows are a
  // power of two, by the 64 of each warpgroup.
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{128, 128}, {32, 64}, {9, 128}, {273, 128}, {65, 96}})
    EXPECT_FALSE(liesAcross(warpgroupLayout({rows, columns}, 8))) << rows << "x" << columns;
  EXPECT_FALSE(liesAcross(warpgroupLayout({32, 128}, 4)));
}

TEST(Layout, FewTokensLieAcrossLanes) {
  Layout tokens = warpgroupLayout({32, 128}, 8);
  EXPECT_TRUE(liesAcross(tokens));
  // Four lanes have all tokens of a channel, and a warpgroup half of the channels.
  for (Layout::Space space : {Layout::Register, Layout::Lane, Layout::Warp})
    for (uint64_t vector : tokens.basis(space))
      EXPECT_TRUE(tokens.coordinate(vector, 0) == 0 || space != Layout::Warp);
  EXPECT_EQ(tokens.at({0, 0, 4}), tokens.flat({0, 64}));
  // So has it the rows of a matrix that are these channels, where that is asked for.
  Layout state = warpgroupLayout({128, 128}, 8, /*rowsApart=*/true);
  EXPECT_EQ(state.at({0, 0, 4}), state.flat({64, 0}));
  EXPECT_EQ(state.onto(0), tokens.onto(1));
  EXPECT_NE(state, warpgroupLayout({128, 128}, 8));
  EXPECT_EQ(warpgroupLayout({64, 128}, 8, /*rowsApart=*/true), warpgroupLayout({64, 128}, 8));
}

TEST(Layout, OntoDropsACoordinate) {
  Layout tile = registerLayout({64, 128}, 8);
  Layout rows = tile.onto(0), columns = tile.onto(1);
  forEachPlace(rows, [&](Layout::Place place) {
    // The register of the tile that has the same row.
    uint64_t flat = tile.at({0, place.lane, place.warp});
    uint64_t expected = tile.coordinate(flat, 0) ^ rows.at(Layout::Register, place.reg);
    EXPECT_EQ(rows.at(place), expected);
  });
  EXPECT_EQ(rows.size(Layout::Register), 2);
  EXPECT_EQ(columns.size(Layout::Register), 16);
}

/// Checks that a conversion finds every element where it says.
void expectConverts(const Layout &source, const Layout &target, Conversion::Kind kind) {
  Conversion conversion = Conversion::between(source, target);
  ASSERT_EQ(conversion.kind, kind);
  if (kind == Conversion::SharedMemory)
    return;
  auto gather = [](llvm::ArrayRef<Conversion::Source> bits, uint64_t number) {
    Conversion::Source result;
    for (unsigned bit = 0; bit < bits.size(); ++bit)
      if (number >> bit & 1) {
        result.reg ^= bits[bit].reg;
        result.lane ^= bits[bit].lane;
      }
    return result;
  };
  forEachPlace(target, [&](Layout::Place place) {
    Conversion::Source a = gather(conversion.fromRegister, place.reg), b = gather(conversion.fromLane, place.lane),
                       c = gather(conversion.fromWarp, place.warp);
    uint64_t lane = kind == Conversion::SameRegisters ? place.lane : a.lane ^ b.lane ^ c.lane;
    ASSERT_EQ(source.at({a.reg ^ b.reg ^ c.reg, lane, place.warp}), target.at(place));
  });
}

TEST(Conversion, ResultsBecomeLeftOperandsInPlace) {
  // With the warps one above the other, the fragments of a result are those of the next product's left operand.
  expectConverts(registerLayout({64, 64}, 4), leftOperandLayout(64, 64, WarpGrid::of(64, 128, 4)),
                 Conversion::SameRegisters);
  // Side by side, each has half the columns that it would need.
  expectConverts(registerLayout({64, 64}, 8), leftOperandLayout(64, 64, WarpGrid::of(64, 128, 8)),
                 Conversion::SharedMemory);
}

TEST(Conversion, VectorsReachEveryRowByShuffles) {
  for (auto [rows, columns] : shapes)
    for (int64_t warps : {4, 8})
      for (unsigned side : {0, 1}) {
        Layout tile = registerLayout({rows, columns}, warps);
        // As long as the padded side.
        Layout vector = registerLayout({tile.side(side)}, warps);
        expectConverts(vector, tile.onto(side), Conversion::Shuffle);
      }
}

TEST(Conversion, ReducedRowsCrossWarps) {
  Layout rows = registerLayout({64, 128}, 8).onto(0);
  expectConverts(rows, registerLayout({64}, 8), Conversion::SharedMemory);
}

TEST(Conversion, ALayoutIsItself) {
  Layout layout = registerLayout({64, 128}, 8);
  expectConverts(layout, layout, Conversion::SameRegisters);
}

TEST(Conversion, RowsReachMatricesWithinWarps) {
  Layout matrix = sweepLayout({128, 64}, 4, 4);
  for (unsigned side : {0, 1}) {
    Layout row = sweepLayout({matrix.side(side)}, 4, 4);
    expectConverts(row, matrix.onto(side), Conversion::Shuffle);
    // Lanes and warps choose among lanes, never among registers.
    Conversion conversion = Conversion::between(row, matrix.onto(side));
    for (Conversion::Source source : llvm::concat<Conversion::Source>(conversion.fromLane, conversion.fromWarp))
      EXPECT_EQ(source.reg, 0u);
  }
  // What a matrix leaves of its columns comes back.
  expectConverts(matrix.onto(1), sweepLayout({64}, 4, 4), Conversion::Shuffle);
}

} // namespace
