//===- WholeWalksTest.cpp - Whole sequences in slices, or segments --------===//

#include "runtime/WholeWalks.h"
#include "../interpreter/InterpreterTest.h"

namespace stretto {
namespace {

class WholeWalksTest : public InterpreterTest {
protected:
  /// Of a state that is written to as %D, which `decay` makes of %S, and read.
  std::optional<int64_t> weight(const std::string &decay, const std::string &output = "%o = arith.mulf %r, %v : !V\n") {
    declare("(%q: !K, %v: !V, %g: !n, %gs: !K, %p: tensor<f64, #stretto.param<[]>>) -> !V {\n%S = stretto.state \"S\" "
            ": !S\n" +
            decay + "%W = stretto.write %D, %q, %v : !S, !K, !V\n" +
            "%r = stretto.read %W, %q along \"K\" : !S, !K -> !V\n" + output + "stretto.yield %o : !V\n}");
    return weightOfPlainTurn(*module->getOps<VariantOp>().begin());
  }
};

TEST_F(WholeWalksTest, WeightsOfWhatWalksLeaveToOthers) {
  const std::string decays = "%D = stretto.decay %S log %g : !S, !n\n";
  EXPECT_EQ(weight(decays), 2);
  EXPECT_EQ(weight("%n = arith.negf %g : !n\n%D = stretto.decay %S log %n : !S, !n\n"), 3);
}

TEST_F(WholeWalksTest, NoneOfWhatElseChunksDo) {
  // A decay of each channel, and rows that are more than multiplied and added.
  EXPECT_EQ(weight("%D = stretto.decay %S log %gs along \"K\" : !S, !K\n"), std::nullopt);
  const std::string decays = "%D = stretto.decay %S log %g : !S, !n\n";
  EXPECT_EQ(weight(decays, "%o = math.exp %r : !V\n"), std::nullopt);
  // An output of a parameter, of which a decay may be made.
  const std::string parameter = "stretto.broadcast %p : tensor<f64, #stretto.param<[]>> to ";
  EXPECT_EQ(weight(decays, "%ps = " + parameter + "!V\n%o = arith.mulf %r, %ps : !V\n"), std::nullopt);
  EXPECT_EQ(weight("%rate = " + parameter +
                   "!n\n%n = arith.mulf %g, %rate : !n\n"
                   "%D = stretto.decay %S log %n : !S, !n\n"),
            3);
}

TEST_F(WholeWalksTest, ShortSequencesAreWalkedWhole) {
  // Those of linear attention at width 128 with 32 heads, which would have four segments, and with 16, which would have
  // eight; of simple GLA, whose chunks take longer; and of narrow states.
  constexpr int64_t width = 128, columns = 32, narrow = 64;
  EXPECT_TRUE(walksWholeSooner(1, width, columns, /*chunks=*/128, /*segments=*/4));
  EXPECT_TRUE(walksWholeSooner(1, width, columns / 2, /*chunks=*/32, /*segments=*/8));
  EXPECT_FALSE(walksWholeSooner(1, width, columns / 2, /*chunks=*/128, /*segments=*/8));
  EXPECT_TRUE(walksWholeSooner(2, width, columns, /*chunks=*/64, /*segments=*/4));
  EXPECT_FALSE(walksWholeSooner(2, width, columns, /*chunks=*/128, /*segments=*/4));
  EXPECT_TRUE(walksWholeSooner(1, narrow, columns / 2, /*chunks=*/32, /*segments=*/4));
  EXPECT_TRUE(walksWholeSooner(1, narrow, columns / 2, /*chunks=*/128, /*segments=*/4));
  EXPECT_FALSE(walksWholeSooner(1, narrow, columns / 2, /*chunks=*/256, /*segments=*/4));
  // Wide slices take longer for each chunk.
  EXPECT_TRUE(walksWholeSooner(1, width, columns, /*chunks=*/512, /*segments=*/4));
  EXPECT_FALSE(walksWholeSooner(1, width, 4 * columns, /*chunks=*/512, /*segments=*/4));
}

TEST(SegmentsOfLeastTimeTest, FillTheChipOnce) {
  // 132 multiprocessors with two blocks each.
  EXPECT_EQ(segmentsOfLeastTime(/*blocks=*/32, /*chunks=*/128, /*blocksAtOnce=*/264, /*most=*/32), 8);
  EXPECT_EQ(segmentsOfLeastTime(256, 64, 264, 16), 1);
  EXPECT_EQ(segmentsOfLeastTime(1, 1024, 264, 128), 128);
}

TEST(SegmentsOfLeastTimeTest, ComeInTurnsWhereOneIsLeftHalfEmpty) {
  // 200 of 264 blocks take 65 chunks; 1000 come in four turns of 14.
  EXPECT_EQ(segmentsOfLeastTime(200, 64, 264, 16), 5);
  // A chunk more for each is no gain where all are at work.
  EXPECT_EQ(segmentsOfLeastTime(264, 64, 264, 16), 1);
}

} // namespace
} // namespace stretto
