//===- PairsTest.cpp - What crosses a token, and its parts ----------------===//

#include "../interpreter/InterpreterTest.h"
#include "dialect/chunk/ChunkInterpreter.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"
#include <regex>

using namespace stretto;

namespace {
/// Pairs of eight tokens, of which two have a factor of 0, by their definition.
class PairsTest : public InterpreterTest {
protected:
  static constexpr int64_t tokens = 8;
  static constexpr double ends = 0.75, weight = 0.5;

  std::vector<double> query, key, seen, kept, factor;

  PairsTest() {
    for (int64_t i = 0; i < tokens; ++i) {
      auto number = static_cast<double>(i);
      query.push_back(1 + number);
      key.push_back(3 - number);
      seen.push_back(0.25 * number - 1);
      kept.push_back(2 + 0.5 * number);
      factor.push_back(i == 2 || i == 5 ? 0 : 0.5 + 0.125 * number);
    }
    for (auto &[name, numbers] : {std::pair("q", &query), {"k", &key}, {"s", &seen}, {"z", &kept}, {"f", &factor}})
      row(name, 1, *numbers);
  }

  /// The factors of the tokens from one on and before another, but for one.
  double product(int64_t from, int64_t until, int64_t without) const {
    double result = 1;
    for (int64_t u = from; u < until; ++u)
      result *= u == without ? 1 : factor[u];
    return result;
  }
  double expected(int64_t t, bool isSeen, bool isKept, bool hasEnds) const {
    double sum = hasEnds ? ends * product(0, tokens, t) : 0;
    for (int64_t i = t; i < tokens; ++i)
      sum += isSeen ? query[i] * seen[i] * product(0, i + 1, t) : 0;
    for (int64_t j = 0; j < t; ++j) {
      sum += isKept ? key[j] * kept[j] * product(j + 1, tokens, t) : 0;
      for (int64_t i = t; i < tokens; ++i)
        sum += weight * query[i] * key[j] * product(j + 1, i + 1, t);
    }
    return sum;
  }

  /// As the operation says it, or separated.
  std::vector<double> pairs(const std::string &others, bool inParts) {
    std::string text = R"(
      chunk.kernel @f chunk 8 (input %q: tensor<8x1xf32>, input %k: tensor<8x1xf32>, input %s: tensor<8x1xf32>,
          input %z: tensor<8x1xf32>, input %f: tensor<8x1xf32>, valid %n: index) -> (o: tensor<8x1xf32>) {
        %p = arith.constant dense<0.5> : tensor<8x8xf32>
        %e = arith.constant dense<0.75> : tensor<1xf32>
        %o = chunk.decay_pairs %q, %k, %p factor %f OTHERS : tensor<8x1xf32>, tensor<8x8xf32>, tensor<8x1xf32>
        chunk.yield %o : tensor<8x1xf32>
      })";
    context.loadDialect<chunk::ChunkDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(std::regex_replace(text, std::regex("OTHERS"), others), &context);
    EXPECT_TRUE(module) << messages;
    if (inParts) {
      mlir::PassManager passes(&context);
      passes.addNestedPass<chunk::KernelOp>(createSeparatePairs());
      EXPECT_TRUE(succeeded(passes.run(*module))) << messages;
    }
    mlir::FailureOr<Outcome> outcome = chunk::interpret(*module->getOps<chunk::KernelOp>().begin(), call);
    EXPECT_TRUE(succeeded(outcome)) << messages;
    return std::vector<double>(outcome->results[0].values.begin(), outcome->results[0].values.end());
  }
};
} // namespace

TEST_F(PairsTest, AreWhatCrossesATokenTogetherAndInParts) {
  const std::string ofSeen = "seen %s : tensor<8x1xf32> ", ofKept = "kept %z : tensor<8x1xf32> ",
                    ofEnds = "ends %e : tensor<1xf32>";
  for (int which = 0; which < 8; ++which) {
    bool isSeen = which & 1, isKept = which & 2, hasEnds = which & 4;
    std::string others = (isSeen ? ofSeen : "") + (isKept ? ofKept : "") + (hasEnds ? ofEnds : "");
    for (bool inParts : {false, true}) {
      std::vector<double> found = pairs(others, inParts);
      for (int64_t t = 0; t < tokens; ++t)
        EXPECT_NEAR(found[t], expected(t, isSeen, isKept, hasEnds), 1e-12)
            << others << (inParts ? "in parts, " : "") << "token " << t;
    }
  }
}
