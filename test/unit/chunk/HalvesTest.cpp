//===- HalvesTest.cpp - Pairs of tokens in blocks that are halved ---------===//

#include "../interpreter/InterpreterTest.h"
#include "dialect/chunk/ChunkInterpreter.h"
#include "mlir/Parser/Parser.h"
#include <regex>

using namespace stretto;

namespace {
/// Executes kernels of 8 tokens, with numbers that tell rows apart.
class HalvesTest : public InterpreterTest {
protected:
  static constexpr int64_t tokens = 8;

  HalvesTest() {
    for (auto [name, first] : {std::pair("q", 1.0), {"k", 100.0}}) {
      std::vector<double> numbers(tokens);
      for (auto [i, number] : llvm::enumerate(numbers))
        number = first + static_cast<double>(i);
      row(name, 1, numbers);
    }
  }

  /// What a loop over so many sizes of blocks leaves of a tile of so many columns, from zeros on. The body knows
  /// the rows `%q` and `%k`, the turn `%i`, what is carried, `%x`, and tiles of zeros and ones; it makes `%y`.
  std::vector<double> carried(int64_t columns, int64_t sizes, const std::string &body) {
    std::string text = R"(
      chunk.kernel @f chunk 8 (input %q: tensor<8x1xf32>, input %k: tensor<8x1xf32>, valid %n: index) -> (o: TILE) {
        %zero = arith.constant dense<0.0> : TILE
        %one = arith.constant dense<1.0> : TILE
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %sizes = arith.constant SIZES : index
        %o = scf.for %i = %c0 to %sizes step %c1 iter_args(%x = %zero) -> (TILE) {
          BODY
          scf.yield %y : TILE
        }
        chunk.yield %o : TILE
      })";
    text = std::regex_replace(text, std::regex("BODY"), body);
    text = std::regex_replace(text, std::regex("SIZES"), std::to_string(sizes));
    text = std::regex_replace(text, std::regex("TILE"), "tensor<8x" + std::to_string(columns) + "xf32>");
    context.loadDialect<chunk::ChunkDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module) << messages;
    mlir::FailureOr<Outcome> outcome = chunk::interpret(*module->getOps<chunk::KernelOp>().begin(), call);
    EXPECT_TRUE(succeeded(outcome)) << messages;
    return std::vector<double>(outcome->results[0].values.begin(), outcome->results[0].values.end());
  }
};
} // namespace

TEST_F(HalvesTest, EveryPairMeetsOnce) {
  // Blocks of 8, 4, 2 and 1 tokens.
  std::vector<double> met = carried(8, 4, R"(%p = chunk.meet %one else %zero block 8 halved %i : tensor<8x8xf32>
    %y = arith.addf %x, %p : tensor<8x8xf32>)");
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < tokens; ++j)
      EXPECT_EQ(met[i * tokens + j], j <= i) << i << ", " << j;
}

TEST_F(HalvesTest, PairsAreInAllBlocksThatHaveBoth) {
  std::vector<double> met = carried(8, 4, R"(%p = chunk.meet %one else %zero block 8 halved %i whole : tensor<8x8xf32>
    %y = arith.addf %x, %p : tensor<8x8xf32>)");
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < tokens; ++j) {
      int64_t sizes = 0;
      for (int64_t block = 1; block <= tokens; block *= 2)
        sizes += j <= i && i / block == j / block;
      EXPECT_EQ(met[i * tokens + j], sizes) << i << ", " << j;
    }
}

TEST_F(HalvesTest, RowsOfHalves) {
  std::vector<double> rows = carried(1, 3, R"(
    %m = chunk.middle %q block 8 halved %i : tensor<8x1xf32> -> tensor<8x1xf32>
    %j = chunk.join_halves %q, %k block 8 halved %i : tensor<8x1xf32> -> tensor<8x1xf32>
    %s = arith.addf %m, %j : tensor<8x1xf32>
    %y = arith.addf %x, %s : tensor<8x1xf32>)");
  for (int64_t i = 0; i < tokens; ++i) {
    int64_t sum = 0;
    for (int64_t block = tokens; block > 1; block /= 2) {
      bool isLater = i % block >= block / 2;
      int64_t middle = i - i % block + block / 2 - 1;
      sum += (isLater ? 1 : 100) + i + 1 + middle;
    }
    EXPECT_EQ(rows[i], static_cast<double>(sum)) << i;
  }
}

TEST_F(HalvesTest, MoreHalvesThanThereAreLeaveTheSmallestBlock) {
  std::vector<double> rows = carried(1, 100, R"(
    %y = chunk.middle %q block 8 halved %i : tensor<8x1xf32> -> tensor<8x1xf32>)");
  for (int64_t i = 0; i < tokens; ++i)
    EXPECT_EQ(rows[i], static_cast<double>(1 + i - i % 2)) << i;
}
