//===- HalvesTest.cpp - Pairs of tokens in blocks that are halved ---------===//

#include "AgreementTest.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Parser/Parser.h"

using namespace stretto;

namespace {
/// Executes kernels of 8 tokens, with numbers that tell rows apart.
class HalvesTest : public AgreementTest {
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

  /// What the loop of `halved` sizes of blocks leaves, from `%zero` on: the body knows the rows `%q` and `%k`, the turn
  /// `%i` and what is carried, `%x`, of so many columns, and ends with `%y`.
  std::vector<double> carried(int64_t columns, int64_t sizes, const std::string &body) {
    std::string type = "tensor<8x" + std::to_string(columns) + "xf32>";
    std::string text =
        "chunk.kernel @f chunk 8 (input %q: tensor<8x1xf32>, input %k: tensor<8x1xf32>, valid %n: index) "
        "-> (o: " +
        type +
        ") {\n"
        "%zero = arith.constant dense<0.0> : " +
        type + "\n%one = arith.constant dense<1.0> : " + type +
        "\n%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n"
        "%sizes = arith.constant " +
        std::to_string(sizes) +
        " : index\n"
        "%o = scf.for %i = %c0 to %sizes step %c1 iter_args(%x = %zero) -> (" +
        type + ") {\n" + body + "\nscf.yield %y : " + type + "\n}\nchunk.yield %o : " + type + "\n}";
    context.loadDialect<chunk::ChunkDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module) << messages;
    auto outcome = chunk::interpret(*module->getOps<chunk::KernelOp>().begin(), call);
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
    double sum = 0;
    for (int64_t block = tokens; block > 1; block /= 2) {
      bool isLater = i % block >= block / 2;
      sum += static_cast<double>((isLater ? 1 : 100) + i + 1 + i - i % block + block / 2 - 1);
    }
    EXPECT_EQ(rows[i], sum) << i;
  }
}
