//===- RowsTest.cpp - Operations on the rows of one token -----------------===//

#include "InterpreterTest.h"
#include <cmath>

namespace stretto {
namespace {

using RowsTest = InterpreterTest;

TEST_F(RowsTest, FunctionsOfOneEntry) {
  struct Function {
    const char *operation;
    double (*meaning)(double);
  };
  const Function functions[] = {
      {"arith.negf", [](double x) { return -x; }},
      {"math.exp", [](double x) { return std::exp(x); }},
      {"math.exp2", [](double x) { return std::exp2(x); }},
      {"math.log", [](double x) { return std::log(x); }},
      {"math.log1p", [](double x) { return std::log1p(x); }},
      {"math.sqrt", [](double x) { return std::sqrt(x); }},
      {"math.rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"math.absf", [](double x) { return std::abs(x); }},
      {"math.tanh", [](double x) { return std::tanh(x); }},
      {"math.sin", [](double x) { return std::sin(x); }},
      {"math.cos", [](double x) { return std::cos(x); }},
      {"math.floor", [](double x) { return std::floor(x); }},
      {"math.roundeven", [](double x) { return std::nearbyint(x); }},
      {"stretto.logsigmoid", [](double x) { return -std::log1p(std::exp(-x)); }},
      {"stretto.stop_gradient", [](double x) { return x; }},
  };
  const std::vector<double> numbers = {0.25, 2.5, 3.5, -0.75};
  row("x", 4, numbers);
  for (const Function &function : functions) {
    SCOPED_TRACE(function.operation);
    declare(std::string("(%x: !K) -> !K {\n  %y = ") + function.operation + " %x : !K\n  stretto.yield %y : !K\n}");
    std::vector<double> expected;
    for (double x : numbers)
      expected.push_back(function.meaning(x));
    expectNear(result(), expected);
  }
}

TEST_F(RowsTest, LogSigmoidIsAccurateOnBothSides) {
  declare("(%x: !K) -> !K {\n  %y = stretto.logsigmoid %x : !K\n  stretto.yield %y : !K\n}");
  row("x", 4, {-800, 40, -infinity, infinity});
  std::vector<double> found = result();
  expectNear(found, {-800, -std::exp(-40.0), -infinity, 0}, 1e-30);
}

TEST_F(RowsTest, FunctionsOfTwoEntries) {
  struct Function {
    const char *operation;
    std::vector<double> expected;
  };
  const double nan = std::nan("");
  const Function functions[] = {
      {"arith.addf", {9, 0.5, nan}},        {"arith.subf", {5, -5.5, nan}},    {"arith.mulf", {14, -7.5, nan}},
      {"arith.divf", {3.5, -2.5 / 3, nan}}, {"arith.remf", {1, -2.5, nan}},    {"arith.maximumf", {7, 3, nan}},
      {"arith.minimumf", {2, -2.5, nan}},   {"math.powf", {49, -15.625, nan}},
  };
  row("x", 3, {7, -2.5, 1});
  row("y", 3, {2, 3, nan});
  for (const Function &function : functions) {
    SCOPED_TRACE(function.operation);
    declare(std::string("(%x: !K, %y: !K) -> !K {\n  %z = ") + function.operation +
            " %x, %y : !K\n  stretto.yield %z : !K\n}");
    // 1 to the power of anything is 1.
    std::vector<double> expected = function.expected;
    if (std::string(function.operation) == "math.powf")
      expected.back() = 1;
    expectNear(result(), expected);
  }
}

TEST_F(RowsTest, ComparisonsChoose) {
  // x is less, equal, greater, and no number.
  row("x", 4, {1, 2, 3, std::nan("")});
  row("y", 4, {2, 2, 2, 2});
  for (const auto &[predicate, expected] :
       std::initializer_list<std::pair<const char *, std::vector<double>>>{{"olt", {1, 0, 0, 0}},
                                                                           {"ole", {1, 1, 0, 0}},
                                                                           {"ogt", {0, 0, 1, 0}},
                                                                           {"oge", {0, 1, 1, 0}},
                                                                           {"oeq", {0, 1, 0, 0}},
                                                                           {"one", {1, 0, 1, 0}},
                                                                           {"ord", {1, 1, 1, 0}},
                                                                           {"ult", {1, 0, 0, 1}},
                                                                           {"ule", {1, 1, 0, 1}},
                                                                           {"ugt", {0, 0, 1, 1}},
                                                                           {"uge", {0, 1, 1, 1}},
                                                                           {"ueq", {0, 1, 0, 1}},
                                                                           {"une", {1, 0, 1, 1}},
                                                                           {"uno", {0, 0, 0, 1}}}) {
    SCOPED_TRACE(predicate);
    declare(std::string(R"((%x: !K, %y: !K) -> !K {
      %one = stretto.constant 1.0 : !K
      %zero = stretto.constant 0.0 : !K
      %c = arith.cmpf )") +
            predicate + R"(, %x, %y : !K
      %z = arith.select %c, %one, %zero : tensor<?xi1, #stretto.row<K>>, !K
      stretto.yield %z : !K
    })");
    expectNear(result(), expected);
  }
}

TEST_F(RowsTest, ConditionsCombine) {
  for (const auto &[operation, expected] : std::initializer_list<std::pair<const char *, std::vector<double>>>{
           {"andi", {0, 0, 0, 1}}, {"ori", {0, 1, 1, 1}}, {"xori", {0, 1, 1, 0}}}) {
    SCOPED_TRACE(operation);
    declare(std::string(R"((%x: !K, %y: !K) -> !K {
      %one = stretto.constant 1.0 : !K
      %zero = stretto.constant 0.0 : !K
      %a = arith.cmpf ogt, %x, %zero : !K
      %b = arith.cmpf ogt, %y, %zero : !K
      %c = arith.)") +
            operation + R"( %a, %b : tensor<?xi1, #stretto.row<K>>
      %z = arith.select %c, %one, %zero : tensor<?xi1, #stretto.row<K>>, !K
      stretto.yield %z : !K
    })");
    row("x", 4, {0, 0, 1, 1});
    row("y", 4, {0, 1, 0, 1});
    expectNear(result(), expected);
  }
}

TEST_F(RowsTest, ConstantsOfOneNumberForEachChannel) {
  declare(R"((%x: tensor<2xf64, #stretto.row<2>>) -> tensor<2xf64, #stretto.row<2>> {
    %c = arith.constant dense<[1.0, 10.0]> : tensor<2xf64, #stretto.row<2>>
    %y = arith.mulf %x, %c : tensor<2xf64, #stretto.row<2>>
    stretto.yield %y : tensor<2xf64, #stretto.row<2>>
  })");
  set("x", {1, 1, 2, 2}, {1, 2, 3, 4});
  expectNear(result(), {1, 20, 3, 40});
}

TEST_F(RowsTest, Reductions) {
  declare(R"((%x: !K) -> (!n, !n, !n) {
    %s = stretto.reduce sum %x : !K -> !n
    %m = stretto.reduce mean %x : !K -> !n
    %l = stretto.reduce max %x : !K -> !n
    stretto.yield %s, %m, %l : !n, !n, !n
  })");
  set("x", {1, 1, 2, 3}, {1, 5, 3, -1, -5, -3});
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {9, -9});
  expectNear(outcome.results[1].values, {3, -3});
  expectNear(outcome.results[2].values, {5, -1});
}

TEST_F(RowsTest, SoftmaxLeavesOutMinusInfinity) {
  declare("(%x: !K) -> !K {\n  %y = stretto.softmax %x : !K\n  stretto.yield %y : !K\n}");
  row("x", 3, {1000, 1000 + std::log(3), -infinity, -infinity, -infinity, -infinity, 0, std::nan(""), 0});
  expectNear(result(), {0.25, 0.75, 0, 0, 0, 0, std::nan(""), std::nan(""), std::nan("")});
}

TEST_F(RowsTest, Broadcasts) {
  declare(R"((%x: !n_G, %b: tensor<?xf64, #stretto.param<[K], G>>, %k: !K) -> (!K, !K) {
    %y = stretto.broadcast %x : !n_G to !K
    %z = stretto.broadcast %b : tensor<?xf64, #stretto.param<[K], G>> to !K
    stretto.yield %y, %z : !K, !K
  })");
  set("x", {1, 1, 2}, {1, 2});
  set("b", {2, 2}, {1, 2, 3, 4});
  set("k", {1, 1, 4, 2}, std::vector<double>(8));
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {1, 1, 1, 1, 2, 2, 2, 2});
  expectNear(outcome.results[1].values, {1, 2, 1, 2, 3, 4, 3, 4});
}

TEST_F(RowsTest, AnAxisOfAnotherNameIsOneOrThatAxis) {
  declare(R"((%b: tensor<?xf64, #stretto.param<[E], H>>, %k: !K) -> !K {
    %z = stretto.broadcast %b : tensor<?xf64, #stretto.param<[E], H>> to !K
    %y = arith.addf %z, %k : !K
    stretto.yield %y : !K
  })");
  row("k", 3, {0, 0, 1});
  set("b", {1, 1}, {5});
  expectNear(result(), {5, 5, 6});
  set("b", {1, 3}, {5, 6, 7});
  expectNear(result(), {5, 6, 8});
  set("b", {1, 2}, {5, 6});
  EXPECT_NE(refusal().find("[R3] repeats the axis 'E' of size 2 over 'K' of size 3"), std::string::npos) << messages;
}

TEST_F(RowsTest, ConcatenationsAndSlices) {
  declare(R"((%x: !K, %y: !V, %z: !n) -> (tensor<?xf64, #stretto.row<"K + V + 1">>, !V, !n) {
    %c = stretto.concat %x, %z, %y : !K, !n, !V -> tensor<?xf64, #stretto.row<"K + V + 1">>
    %d = arith.addf %c, %c : tensor<?xf64, #stretto.row<"K + V + 1">>
    %v = stretto.slice %d from "K + 1" : tensor<?xf64, #stretto.row<"K + V + 1">> -> !V
    %n = stretto.slice %d from "K" : tensor<?xf64, #stretto.row<"K + V + 1">> -> !n
    stretto.yield %d, %v, %n : tensor<?xf64, #stretto.row<"K + V + 1">>, !V, !n
  })");
  set("x", {1, 1, 2, 2}, {1, 2, 3, 4});
  set("y", {1, 1, 2, 1}, {5, 6});
  set("z", {1, 1, 2}, {7, 8});
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {2, 4, 14, 10, 6, 8, 16, 12});
  expectNear(outcome.results[1].values, {10, 12});
  expectNear(outcome.results[2].values, {14, 16});
}

TEST_F(RowsTest, Products) {
  declare(R"((%x: !K, %y: !V, %z: tensor<?xf64, #stretto.row<"K*V">>)
      -> (!n, tensor<?xf64, #stretto.row<"K*V">>, !K, !V) {
    %d = stretto.dot %x, %x : !K -> !n
    %o = stretto.outer %x, %y : !K, !V -> tensor<?xf64, #stretto.row<"K*V">>
    %i = stretto.inner %z, %y : tensor<?xf64, #stretto.row<"K*V">>, !V -> !K
    %t = stretto.inner %z, %x transpose : tensor<?xf64, #stretto.row<"K*V">>, !K -> !V
    stretto.yield %d, %o, %i, %t : !n, tensor<?xf64, #stretto.row<"K*V">>, !K, !V
  })");
  row("x", 2, {2, 3});
  row("y", 3, {1, 10, 100});
  row("z", 6, {1, 2, 3, 4, 5, 6});
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {13});
  expectNear(outcome.results[1].values, {2, 20, 200, 3, 30, 300});
  expectNear(outcome.results[2].values, {321, 654});
  expectNear(outcome.results[3].values, {14, 19, 24});
}

TEST_F(RowsTest, ContractionsTakeTheMatrixOfTheirHead) {
  declare(R"((%x: !K, %y: !V, %w: tensor<?x?xf64, #stretto.param<[K, V], G>>) -> (!V, !K) {
    %a = stretto.contract %x, %w : !K, tensor<?x?xf64, #stretto.param<[K, V], G>> -> !V
    %b = stretto.contract %y, %w transpose : !V, tensor<?x?xf64, #stretto.param<[K, V], G>> -> !K
    stretto.yield %a, %b : !V, !K
  })");
  set("x", {1, 1, 2, 2}, {1, 2, 3, 4});
  set("y", {1, 1, 2, 3}, {1, 0, 0, 0, 1, 0});
  set("w", {1, 2, 3}, {1, 2, 3, 10, 20, 30});
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {21, 42, 63, 43, 86, 129});
  expectNear(outcome.results[1].values, {1, 10, 2, 20});
}

} // namespace
} // namespace stretto
