//===- SumsByHalvesTest.cpp - Gradients whose decays are out of range -----===//

#include "../interpreter/InterpreterTest.h"
#include "dialect/chunk/ChunkInterpreter.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"
#include <cmath>
#include <regex>

using namespace stretto;

namespace {
/// The walk back of a gated recurrence, of two chunks of 32 tokens: as its operations say it, and as the pass forms
/// them.
class SumsByHalvesTest : public InterpreterTest {
protected:
  static constexpr int64_t tokens = 64;

  /// Logarithms of `strength` at most that differ from token to token; every seventh token of the first channel does
  /// not decay.
  void fill(double strength) {
    for (auto [name, first] : {std::pair("q", 0.3), {"k", 0.7}, {"v", 1.1}, {"d_o", 1.9}}) {
      std::vector<double> numbers(2 * tokens);
      for (auto [i, number] : llvm::enumerate(numbers))
        number = std::sin(first * static_cast<double>(i + 1));
      row(name, 2, numbers);
    }
    std::vector<double> logs(2 * tokens);
    for (auto [i, log] : llvm::enumerate(logs))
      log = i % 14 == 0 ? 0 : -strength * (0.5 + 0.5 * std::sin(static_cast<double>(i)));
    row("g", 2, logs);
  }

  /// All results, one behind the other. With `before` a token reads before its own decay.
  std::vector<double> results(bool before, bool expand, std::string *expanded = nullptr) {
    std::string text = R"(
      chunk.kernel @f chunk 32 reverse (input %q: tensor<32x2xbf16>, input %k: tensor<32x2xbf16>, input %v: tensor<32x2xbf16>,
          input %g: tensor<32x2xbf16>, input %d_o: tensor<32x2xbf16>, state %d_S: tensor<2x2xf32>, valid %n: index)
          -> (d_q: ROWS, d_k: ROWS, d_v: ROWS, d_g: ROWS) {
        %scale = arith.constant dense<0.5> : ROWS
        %S = arith.constant dense<0.25> : tensor<2x2xf32>
        %q32 = arith.extf %q : tensor<32x2xbf16> to ROWS
        %k32 = arith.extf %k : tensor<32x2xbf16> to ROWS
        %v32 = arith.extf %v : tensor<32x2xbf16> to ROWS
        %g32 = arith.extf %g : tensor<32x2xbf16> to ROWS
        %d_o32 = arith.extf %d_o : tensor<32x2xbf16> to ROWS
        %qs = arith.mulf %q32, %scale : ROWS
        %read = chunk.dot %d_o32, %S transpose_right : ROWS, tensor<2x2xf32> -> ROWS
        %seen = chunk.decay_from_start %read log %g32 BEFORE : ROWS, ROWS
        %w = chunk.dot %d_o32, %v32 transpose_right : ROWS, ROWS -> PAIRS
        %mixed = chunk.decay_mix %w, %k32 log %g32 BEFORE add %seen : PAIRS, ROWS, ROWS -> ROWS
        %d_q = arith.mulf %mixed, %scale : ROWS
        %met = chunk.dot %v32, %d_S transpose_right : ROWS, tensor<2x2xf32> -> ROWS
        %later = chunk.decay_to_end %met log %g32 : ROWS, ROWS
        %d_k = chunk.decay_mix %w, %qs log %g32 BEFORE transpose add %later : PAIRS, ROWS, ROWS -> ROWS
        %kd = chunk.decay_to_end %k32 log %g32 : ROWS, ROWS
        %p = chunk.decay_dot %qs, %k32 log %g32 BEFORE : ROWS, ROWS, ROWS -> PAIRS
        %inter = chunk.dot %kd, %d_S : ROWS, tensor<2x2xf32> -> ROWS
        %d_v = chunk.dot %p, %d_o32 transpose_left add %inter : PAIRS, ROWS -> ROWS
        %x, %y = chunk.decay_totals %qs, %k32, %w log %g32 BEFORE : ROWS, PAIRS, ROWS
        %qseen = arith.mulf %qs, %seen : ROWS
        %kseen = arith.mulf %k32, %later : ROWS
        %of_q = arith.addf %qseen, %x : ROWS
        %of_k = arith.addf %kseen, %y : ROWS
        %d_g = arith.subf %of_k, %of_q : ROWS
        %state = chunk.decay_state %d_S log %g32 along rows : tensor<2x2xf32>, ROWS
        %qd = chunk.decay_from_start %qs log %g32 BEFORE : ROWS, ROWS
        %next = chunk.dot %qd, %d_o32 transpose_left add %state : ROWS, ROWS -> tensor<2x2xf32>
        chunk.yield %d_q, %d_k, %d_v, %d_g next %next : ROWS, ROWS, ROWS, ROWS, tensor<2x2xf32>
      })";
    text = std::regex_replace(text, std::regex("BEFORE"), before ? "before" : "");
    text = std::regex_replace(text, std::regex("ROWS"), "tensor<32x2xf32>");
    text = std::regex_replace(text, std::regex("PAIRS"), "tensor<32x32xf32>");
    context.loadDialect<chunk::ChunkDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module) << messages;
    if (!module)
      return {};
    if (expand) {
      mlir::PassManager passes(&context);
      passes.addNestedPass<chunk::KernelOp>(createExpandDecay());
      EXPECT_TRUE(succeeded(passes.run(*module))) << messages;
      llvm::raw_string_ostream(*expanded) << *module;
    }
    mlir::FailureOr<Outcome> outcome = chunk::interpret(*module->getOps<chunk::KernelOp>().begin(), call);
    EXPECT_TRUE(succeeded(outcome)) << messages;
    std::vector<double> all;
    if (succeeded(outcome))
      for (const auto &result : outcome->results)
        all.insert(all.end(), result.values.begin(), result.values.end());
    return all;
  }
};
} // namespace

TEST_F(SumsByHalvesTest, AreWhatTheOperationsSay) {
  // In range, out of it, and where no factor of a token is left.
  for (double strength : {0.01, 8.0, 60.0})
    for (bool before : {false, true}) {
      fill(strength);
      std::string expanded;
      std::vector<double> wanted = results(before, /*expand=*/false),
                          found = results(before, /*expand=*/true, &expanded);
      EXPECT_EQ(expanded.find("chunk.decay_"), std::string::npos);
      EXPECT_NE(expanded.find("chunk.middle"), std::string::npos);
      // Logarithms to the base 2 have a constant of fp32.
      ASSERT_EQ(wanted.size(), found.size());
      ASSERT_EQ(wanted.size(), 4 * size_t(2) * tokens);
      for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(found[i], wanted[i], 1e-6) << strength << (before ? ", before, " : ", ") << i;
    }
}
