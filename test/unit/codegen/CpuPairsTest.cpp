//===- CpuPairsTest.cpp - Products of bf16 numbers on a CPU ---------------===//

#include "KernelText.h"

namespace stretto {
namespace {

/// A way to form them.
struct Way {
  const char *name;
  cpu::Instructions instructions;
};

class CpuPairsTest : public CpuKernelTest, public testing::WithParamInterface<Way> {
protected:
  void SetUp() override {
    cpu::Instructions wanted = GetParam().instructions, there = cpu::Processor::host().instructions();
    if (wanted.vectorBits > there.vectorBits)
      GTEST_SKIP() << "this processor has no AVX512";
    if (wanted.bf16 && !there.bf16)
      GTEST_SKIP() << "this processor has no AVX512_BF16";
    if (wanted.bf16Tiles && !there.bf16Tiles)
      GTEST_SKIP() << "this processor has no AMX_BF16, or may not use it: " << cpu::Processor::host().whyNoTiles;
  }
};

TEST_P(CpuPairsTest, Products) {
  // Operands of bf16, contracted along rows and columns of either side, with an odd axis or one that ends inside of a
  // vector: what is beyond its end is NaN in memory, and here 1 in registers, where it is not made 0. Entries of -1, 0
  // and 1 have products that are integers, of which bf16 loses none below 256.
  for (const char *name : {"x", "y", "S"})
    fill(name, [](size_t index) { return static_cast<double>(index * 7 % 11 % 3) - 1; });
  fill("g", [](size_t index) { return index % 5 ? 1.0 : 0.5; });
  for (auto [chunk, K, V] : {std::array<int64_t, 3>{16, 24, 40},
                             {16, 32, 32},
                             {5, 3, 17},
                             {15, 7, 33},
                             {33, 31, 1},
                             {32, 65, 64},
                             {48, 40, 96},
                             {64, 100, 72},
                             {1, 1, 1}}) {
    SCOPED_TRACE(testing::Message() << "chunk " << chunk << " K " << K << " V " << V);
    std::string text = R"( (input %x: !inK, input %y: !inV, input %g: !int, state %S: !S, valid %n: index)
        -> (a: !V, b: !K, c: !V) {
      %x32 = arith.extf %x : !inK to !K
      %y32 = arith.extf %y : !inV to !V
      %g32 = arith.extf %g : !int to !t
      %xS = chunk.dot %x32, %S : !K, !S -> !V
      %yS = chunk.dot %y32, %S transpose_right : !V, !S -> !K
      %one = arith.constant dense<1.0> : !K
      %squares = arith.mulf %x32, %x32 : !K
      %zeros = arith.subf %one, %squares : !K
      %xx = chunk.dot %zeros, %zeros transpose_right : !K, !K -> !P
      %P = chunk.causal %xx : !P
      %Py = chunk.dot %P, %y32 add %xS : !P, !V -> !V
      %PTx = chunk.dot %P, %x32 transpose_left add %yS : !P, !K -> !K
      %D = chunk.decay_dot %x32, %x32 factor %g32 : !K, !K, !t -> !P
      %Dy = chunk.dot %D, %y32 : !P, !V -> !V
      %SS = chunk.dot %S, %S transpose_left : !S, !S -> tensor<VxVxf32>
      %ySS = chunk.dot %y32, %SS : !V, tensor<VxVxf32> -> !V
      %ySST = chunk.dot %y32, %SS transpose_right add %Dy : !V, tensor<VxVxf32> -> !V
      %c = arith.subf %ySST, %ySS : !V
      chunk.yield %Py, %PTx, %c next %S : !V, !K, !V, !S
    })";
    compile(write({chunk, K, V, "bf16", "f32"},
                  replaced(text, "<VxVx", "<" + std::to_string(V) + "x" + std::to_string(V) + "x")),
            GetParam().instructions);
    Problem problem;
    problem.tolerance = 1e-7;
    checkLengths({1, chunk, 2 * chunk + 1}, problem);
  }
}

TEST_P(CpuPairsTest, LeaveNanWhereItIs) {
  // The last entry of some rows is NaN: beyond it, up to a whole tile, there is nothing else that could be.
  constexpr size_t width = 40;
  fill("x", [](size_t index) { return index % (3 * width) == width - 1 ? NAN : 1.0; });
  compile(write({15, 40, 24, "bf16", "f32"}, R"( (input %x: !inK, input %y: !inV, state %S: !S, valid %n: index)
        -> (a: !V) {
      %x32 = arith.extf %x : !inK to !K
      %y32 = arith.extf %y : !inV to !V
      %a = chunk.dot %x32, %S : !K, !S -> !V
      %next = chunk.dot %x32, %y32 transpose_left : !K, !V -> !S
      chunk.yield %a next %next : !V, !S
    })"),
          GetParam().instructions);
  Problem problem;
  problem.tolerance = 4e-3;
  checkLengths({1, 15, 31}, problem);
}

INSTANTIATE_TEST_SUITE_P(All, CpuPairsTest,
                         testing::Values(Way{"Numbers", {512}}, Way{"Vectors", {512, true, true, false}},
                                         Way{"Tiles", {512, true, false, true}},
                                         Way{"TilesAndVectors", {512, true, true, true}}),
                         [](const auto &info) { return info.param.name; });

//===----------------------------------------------------------------------===//
// The processor
//===----------------------------------------------------------------------===//

TEST(CpuProcessor, KnowsWhatItsInstructionsGain) {
  auto instructionsOf = [](const char *name) { return cpu::Processor::named(name).instructions(); };
  EXPECT_FALSE(instructionsOf("skylake-avx512").bf16);
  EXPECT_TRUE(instructionsOf("cooperlake").bf16);
  EXPECT_FALSE(instructionsOf("cooperlake").bf16Dot);
  EXPECT_TRUE(instructionsOf("znver4").bf16Dot);
  EXPECT_FALSE(instructionsOf("znver4").bf16Tiles);
  EXPECT_TRUE(instructionsOf("sapphirerapids").bf16Tiles);
}

TEST(CpuProcessor, DoesWithoutTiles) {
  cpu::Processor without = cpu::Processor::named("sapphirerapids").withoutTiles("a test says so");
  EXPECT_EQ(without.name, "sapphirerapids");
  EXPECT_EQ(without.whyNoTiles, "a test says so");
  EXPECT_FALSE(without.instructions().bf16Tiles);
  EXPECT_TRUE(without.instructions().bf16);
  // What code is kept under: none with tiles may be found for it.
  EXPECT_NE(without.features, cpu::Processor::named("sapphirerapids").features);
  EXPECT_EQ(without.features.find("+amx"), std::string::npos);
}

} // namespace
} // namespace stretto
