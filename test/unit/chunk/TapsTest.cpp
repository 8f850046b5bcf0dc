//===- TapsTest.cpp - What the taps of a convolution get ------------------===//

#include "../interpreter/InterpreterTest.h"
#include "dialect/chunk/ChunkInterpreter.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"

using namespace stretto;

namespace {
/// Five tokens of two channels and three taps, as sums of products with columns of ones, and at once.
class TapsTest : public InterpreterTest {
protected:
  static constexpr int64_t tokens = 5, channels = 2, taps = 3, tailRows = 4;

  chunk::Tile filled(llvm::ArrayRef<int64_t> shape, double first) {
    chunk::Tile tile(shape);
    for (auto [index, value] : llvm::enumerate(tile.values))
      value = first + 0.25 * static_cast<double>(index * index % 11);
    return tile;
  }
  const chunk::Tile weights = filled({tokens, channels}, -1), rows = filled({tokens, channels}, 0.5),
                    tail = filled({tailRows, channels}, -2), before = filled({channels, taps}, 3);

  double expected(int64_t channel, int64_t column) const {
    double sum = before.at(channel, column);
    for (int64_t i = 0; i < tokens; ++i) {
      int64_t from = i - (taps - 1 - column);
      sum += weights.at(i, channel) * (from >= 0 ? rows.at(from, channel) : tail.at(tailRows + from, channel));
    }
    return sum;
  }

  chunk::Tile found(bool atOnce) {
    context.loadDialect<chunk::ChunkDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(R"(
      chunk.kernel @f chunk 5 reverse (input %w: tensor<5x2xf32>, input %x: tensor<5x2xf32>,
          checkpoint %t: tensor<4x2xf32>, state %d: tensor<2x3xf32>, valid %n: index) -> () {
        %one = arith.constant dense<1.0> : tensor<5xf32>
        %zero = arith.constant dense<0.0> : tensor<5xf32>
        %own = chunk.concat %zero, %zero, %one : tensor<5xf32>, tensor<5xf32>, tensor<5xf32> -> tensor<5x3xf32>
        %second = chunk.concat %zero, %one, %zero : tensor<5xf32>, tensor<5xf32>, tensor<5xf32> -> tensor<5x3xf32>
        %third = chunk.concat %one, %zero, %zero : tensor<5xf32>, tensor<5xf32>, tensor<5xf32> -> tensor<5x3xf32>
        %y0 = arith.mulf %w, %x : tensor<5x2xf32>
        %x1 = chunk.delay %x by 1 tail %t : tensor<5x2xf32>, tensor<4x2xf32> -> tensor<5x2xf32>
        %y1 = arith.mulf %w, %x1 : tensor<5x2xf32>
        %x2 = chunk.delay %x by 2 tail %t : tensor<5x2xf32>, tensor<4x2xf32> -> tensor<5x2xf32>
        %y2 = arith.mulf %w, %x2 : tensor<5x2xf32>
        %d0 = chunk.dot %y0, %own transpose_left add %d : tensor<5x2xf32>, tensor<5x3xf32> -> tensor<2x3xf32>
        %d1 = chunk.dot %y1, %second transpose_left add %d0 : tensor<5x2xf32>, tensor<5x3xf32> -> tensor<2x3xf32>
        %d2 = chunk.dot %y2, %third transpose_left add %d1 : tensor<5x2xf32>, tensor<5x3xf32> -> tensor<2x3xf32>
        chunk.yield next %d2 : tensor<2x3xf32>
      })",
                                                     &context);
    EXPECT_TRUE(module) << messages;
    if (atOnce) {
      mlir::PassManager passes(&context);
      passes.addNestedPass<chunk::KernelOp>(createSumTaps());
      EXPECT_TRUE(succeeded(passes.run(*module))) << messages;
    }
    chunk::KernelOp kernel = *module->getOps<chunk::KernelOp>().begin();
    EXPECT_EQ(kernel.getBlock()->getOps<chunk::ConvTapsOp>().empty(), !atOnce);
    chunk::TileMap tiles;
    for (auto [argument, tile] : llvm::zip(kernel.getBlock()->getArguments(), std::array{weights, rows, tail, before}))
      tiles[argument] = tile;
    for (mlir::Operation &op : kernel.getBlock()->without_terminator()) {
      mlir::FailureOr<chunk::Tile> tile = chunk::executeTile(&op, tiles, tokens);
      EXPECT_TRUE(succeeded(tile)) << messages;
      tiles[op.getResult(0)] = *tile;
    }
    return tiles[kernel.getBlock()->getTerminator()->getOperand(0)];
  }
};
} // namespace

TEST_F(TapsTest, AreSumsOverTokensTogetherAndOneByOne) {
  for (bool atOnce : {false, true}) {
    chunk::Tile sums = found(atOnce);
    for (int64_t channel = 0; channel < channels; ++channel)
      for (int64_t column = 0; column < taps; ++column)
        EXPECT_NEAR(sums.at(channel, column), expected(channel, column), 1e-12)
            << (atOnce ? "at once, " : "one by one, ") << "channel " << channel << ", column " << column;
  }
}
