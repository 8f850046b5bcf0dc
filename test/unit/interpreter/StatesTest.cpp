//===- StatesTest.cpp - States: decay, write and read ---------------------===//

#include "InterpreterTest.h"
#include <cmath>

namespace stretto {
namespace {

using StatesTest = InterpreterTest;

/// Two channels of keys and of values over three tokens; the states after them are [[1, 2], [0, 0]], [[1, 2], [3, 4]]
/// and [[6, 8], [8, 10]] if nothing decays.
const std::vector<double> keys = {1, 0, 0, 1, 1, 1}, values = {1, 2, 3, 4, 5, 6};

TEST_F(StatesTest, ReadAlongTheFirstAxis) {
  declare(R"((%q: !K, %k: !K, %v: !V) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.write %0, %k, %v : !S, !K, !V
    %o = stretto.read %1, %q along "K" : !S, !K -> !V
    stretto.yield %o : !V
  })");
  row("q", 2, {1, 1, 1, 0, 0, 1});
  row("k", 2, keys);
  row("v", 2, values);
  expectNear(result(), {1, 2, 1, 2, 8, 10});
  expectNear(finalEntry("S"), {6, 8, 8, 10});
}

TEST_F(StatesTest, ReadAlongTheSecondAxis) {
  declare(R"((%x: !V, %k: !K, %v: !V) -> !K {
    %0 = stretto.state "S" : !S
    %1 = stretto.write %0, %k, %v : !S, !K, !V
    %z = stretto.read %1, %x along "V" : !S, !V -> !K
    stretto.yield %z : !K
  })");
  row("x", 2, {1, 1, 1, 0, 0, 1});
  row("k", 2, keys);
  row("v", 2, values);
  expectNear(result(), {3, 0, 1, 3, 8, 10});
}

TEST_F(StatesTest, AReadFindsTheValueOfItsOperand) {
  // %before and %decayed are read after the state has changed.
  declare(R"((%q: !K, %k: !K, %v: !V, %a: !n) -> (!V, !V) {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 factor %a : !S, !n
    %2 = stretto.write %1, %k, %v : !S, !K, !V
    %before = stretto.read %0, %q along "K" : !S, !K -> !V
    %decayed = stretto.read %1, %q along "K" : !S, !K -> !V
    stretto.yield %before, %decayed : !V, !V
  })");
  row("q", 2, {1, 1, 1, 1, 1, 1});
  row("k", 2, keys);
  row("v", 2, values);
  row("a", 0, {0.5, 0.5, 0.25});
  Outcome outcome = run();
  // After token 1: [[0.5, 1], [3, 4]].
  expectNear(outcome.results[0].values, {0, 0, 1, 2, 3.5, 5});
  expectNear(outcome.results[1].values, {0, 0, 0.5, 1, 0.875, 1.25});
}

TEST_F(StatesTest, DecayAlongEitherAxis) {
  declare(R"((%k: !K, %v: !V, %a: !K, %b: !V) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 log %a along "K" : !S, !K
    %2 = stretto.decay %1 factor %b along "V" : !S, !V
    %3 = stretto.write %2, %k, %v : !S, !K, !V
    stretto.yield %v : !V
  })");
  row("k", 2, {1, 1, 0, 0});
  row("v", 2, {2, 3, 0, 0});
  row("a", 2, {0, 0, std::log(0.5), -infinity});
  row("b", 2, {1, 1, 3, 10});
  expectNear(finalEntry("S"), {3, 15, 0, 0});
}

TEST_F(StatesTest, AnInfiniteStateTimesAnExactZeroIsNoNumber) {
  declare(R"((%k: !K, %v: !V, %a: !n) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 log %a : !S, !n
    %2 = stretto.write %1, %k, %v : !S, !K, !V
    stretto.yield %v : !V
  })");
  row("k", 1, {1, 0});
  row("v", 2, {infinity, 7, 0, 0});
  row("a", 0, {0, -infinity});
  expectNear(finalEntry("S"), {std::nan(""), 0});
}

TEST_F(StatesTest, CoarserRowsAreRepeatedAndFinerOnesRead) {
  // Four query heads, two of keys and values.
  declare(R"((%q: !K, %k: !K_G, %v: !V_G) -> !V {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.write %0, %k, %v : !S_G, !K_G, !V_G
    %o = stretto.read %1, %q along "K" : !S_G, !K -> !V
    stretto.yield %o : !V
  })");
  set("q", {1, 1, 4, 1}, {1, 2, 3, 4});
  set("k", {1, 1, 2, 1}, {10, 100});
  set("v", {1, 1, 2, 1}, {1, 2});
  expectNear(result(), {10, 20, 600, 800});
}

TEST_F(StatesTest, AWriteOfFinerRowsSumsOverTheGroup) {
  declare(R"((%q: !K, %k: !K, %v: !V_G) -> !V_G {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.write %0, %k, %v : !S_G, !K, !V_G
    stretto.yield %v : !V_G
  })");
  set("q", {1, 1, 4, 1}, {0, 0, 0, 0});
  set("k", {1, 1, 4, 1}, {1, 2, 3, 4});
  set("v", {1, 1, 2, 1}, {10, 100});
  expectNear(finalEntry("S"), {30, 700});
}

TEST_F(StatesTest, JoinedHeadSetsAreAsManyAsTheLarger) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_W) -> tensor<?xf64, #stretto.row<V, "H|W">> {
    %0 = stretto.state "S" : !S_W
    %1 = stretto.write %0, %k, %v : !S_W, !K_G, !V_W
    %o = stretto.read %1, %q along "K" : !S_W, !K -> tensor<?xf64, #stretto.row<V, "H|W">>
    stretto.yield %o : tensor<?xf64, #stretto.row<V, "H|W">>
  })");
  set("k", {1, 1, 1, 1}, {10});
  for (bool moreValues : {false, true}) {
    if (moreValues) {
      set("q", {1, 1, 2, 1}, {1, 2});
      set("v", {1, 1, 4, 1}, {1, 2, 3, 4});
      expectNear(result(), {10, 20, 60, 80});
    } else {
      set("q", {1, 1, 4, 1}, {1, 2, 3, 4});
      set("v", {1, 1, 2, 1}, {1, 2});
      expectNear(result(), {10, 20, 60, 80});
    }
  }
}

TEST_F(StatesTest, TheWrittenRowMayDependOnARead) {
  // The delta rule: a key that is written again replaces its value.
  declare(R"((%k: !K, %v: !V) -> !V {
    %0 = stretto.state "S" : !S
    %old = stretto.read %0, %k along "K" : !S, !K -> !V
    %new = arith.subf %v, %old : !V
    %1 = stretto.write %0, %k, %new : !S, !K, !V
    stretto.yield %old : !V
  })");
  row("k", 2, {1, 0, 1, 0, 0, 1});
  row("v", 1, {5, 7, 9});
  expectNear(result(), {0, 5, 0});
  expectNear(finalEntry("S"), {7, 9});
}

TEST_F(StatesTest, ANumberStandsOnAnAxisOfSizeOne) {
  declare(R"((%k: !K, %q: !K) -> !n {
    %one = stretto.constant 1.0 : !n
    %0 = stretto.state "z" : !stretto.state<K, 1>
    %1 = stretto.write %0, %k, %one : !stretto.state<K, 1>, !K, !n
    %z = stretto.read %1, %q along "K" : !stretto.state<K, 1>, !K -> !n
    stretto.yield %z : !n
  })");
  row("k", 2, {1, 2, 3, 4});
  row("q", 2, {1, 0, 1, 1});
  expectNear(result(), {1, 10});
}

//===----------------------------------------------------------------------===//
// Earlier times
//===----------------------------------------------------------------------===//

const char *const readEarlier = R"((%q: !K, %k: !K, %v: !V, %at: !t) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.write %0, %k, %v : !S, !K, !V
    %o = stretto.read %1, %q along "K" at %at : !S, !K -> !V
    stretto.yield %o : !V
  })";

TEST_F(StatesTest, ReadsAtAnEarlierTime) {
  declare(readEarlier);
  row("q", 1, {1, 1, 1, 1, 1});
  row("k", 1, {1, 1, 1, 1, 1});
  row("v", 1, {1, 10, 100, 1000, 10000});
  row("at", 0, {-2, 0, 0, 2, 4});
  expectNear(result(), {0, 1, 1, 111, 11111});
}

TEST_F(StatesTest, RefusesTimesThatDecreaseOrLieAhead) {
  declare(readEarlier);
  row("q", 1, {1, 1, 1});
  row("k", 1, {1, 1, 1});
  row("v", 1, {1, 10, 100});
  row("at", 0, {0, 1, 0});
  EXPECT_NE(refusal().find("token 2 reads at token 0, the one before it at token 1"), std::string::npos) << messages;
  row("at", 0, {0, 2, 2});
  EXPECT_NE(refusal().find("token 1 refers to token 2"), std::string::npos) << messages;
}

//===----------------------------------------------------------------------===//
// Reverse time
//===----------------------------------------------------------------------===//

TEST_F(StatesTest, AReverseStateIsCarriedFromTheLastToken) {
  declare(R"((%q: !K, %k: !K, %v: !V, %a: !n) -> !V {
    %0 = stretto.state "R" : !R
    %1 = stretto.write %0, %k, %v : !R, !K, !V
    %o = stretto.read %1, %q along "K" : !R, !K -> !V
    %2 = stretto.decay %1 factor %a : !R, !n
    stretto.yield %o : !V
  })");
  row("q", 1, {1, 1, 1});
  row("k", 1, {1, 1, 1});
  row("v", 1, {1, 10, 100});
  row("a", 0, {2, 3, 5});
  initial("R", {1, 1, 1, 1}, {1000});
  // 1100, then 5 * 1100 + 10, then 3 * 5510 + 1.
  EXPECT_NE(result(), std::vector<double>());
  expectNear(result(), {16531, 5510, 1100});
  expectNear(finalEntry("R"), {2 * 16531});
}

TEST_F(StatesTest, WritesAtAnEarlierTime) {
  // The transpose of a read at an earlier time: what tokens 1 and 2 write at token 0 arrives there.
  declare(R"((%q: !K, %k: !K, %v: !V, %at: !t) -> !V {
    %0 = stretto.state "R" : !R
    %1 = stretto.write %0, %k, %v at %at : !R, !K, !V
    %o = stretto.read %1, %q along "K" : !R, !K -> !V
    stretto.yield %o : !V
  })");
  row("q", 1, {1, 1, 1, 1, 1});
  row("k", 1, {1, 1, 1, 1, 1});
  row("v", 1, {1, 10, 100, 1000, 10000});
  row("at", 0, {-2, 0, 0, 2, 4});
  // Token 4 has its own, token 2 that of token 3, token 0 those of 1 and 2; that of token 0 meets the initial state.
  expectNear(result(), {11110, 11000, 11000, 10000, 10000});
  expectNear(finalEntry("R"), {11111});
}

TEST_F(StatesTest, ALaterPassReadsAForwardStateAgain) {
  // %sum needs all later tokens, %o needs %sum and the state before.
  declare(R"((%k: !K, %v: !V, %x: !K) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.write %0, %k, %v : !S, !K, !V
    %now = stretto.read %1, %k along "K" : !S, !K -> !V
    %sum = stretto.scan add %x reverse : !K
    %o = stretto.read %1, %sum along "K" : !S, !K -> !V
    %y = arith.addf %o, %now : !V
    stretto.yield %y : !V
  })");
  row("k", 1, {1, 2, 3});
  row("v", 1, {1, 1, 1});
  row("x", 1, {1, 10, 100});
  expectNear(result(), {111 * 1 + 1, 110 * 3 + 2 * 3, 100 * 6 + 3 * 6});
}

TEST_F(StatesTest, RefusesARowThatDependsOnItsOwnFuture) {
  declare(R"((%k: !K, %v: !V) -> !V {
    %0 = stretto.state "S" : !S
    %now = stretto.read %0, %k along "K" : !S, !K -> !V
    %later = stretto.scan add %now reverse : !V
    %1 = stretto.write %0, %k, %later : !S, !K, !V
    stretto.yield %now : !V
  })");
  row("k", 1, {1, 2, 3});
  row("v", 1, {1, 1, 1});
  EXPECT_NE(refusal().find("[R14] needs rows of tokens that depend on its own result"), std::string::npos) << messages;
}

/// The adjoint of gated linear attention, written by hand, against differences of the forward declaration.
TEST_F(StatesTest, TheAdjointOfGatedLinearAttention) {
  const std::string forward = R"((%q: !K, %k: !K, %v: !V, %g: !K) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 log %g along "K" : !S, !K
    %2 = stretto.write %1, %k, %v : !S, !K, !V
    %o = stretto.read %2, %q along "K" : !S, !K -> !V
    stretto.yield %o : !V
  })";
  const std::string adjoint = R"((%q: !K, %k: !K, %v: !V, %g: !K, %do: !V) -> (!K, !K, !V) {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 log %g along "K" : !S, !K
    %2 = stretto.write %1, %k, %v : !S, !K, !V
    %dq = stretto.read %2, %do along "V" : !S, !V -> !K
    %r0 = stretto.state "dS" : !R
    %r1 = stretto.write %r0, %q, %do : !R, !K, !V
    %dk = stretto.read %r1, %v along "V" : !R, !V -> !K
    %dv = stretto.read %r1, %k along "K" : !R, !K -> !V
    %r2 = stretto.decay %r1 log %g along "K" : !R, !K
    stretto.yield %dq, %dk, %dv : !K, !K, !V
  })";
  const int64_t T = 5;
  std::map<std::string, std::vector<double>> inputs;
  for (const auto &[name, width] : {std::pair("q", 2), {"k", 2}, {"v", 3}, {"g", 2}, {"do", 3}}) {
    std::vector<double> &x = inputs[name];
    for (int64_t i = 0; i < T * width; ++i)
      x.push_back(std::sin(1.7 * static_cast<double>(i) + static_cast<double>(name[0])));
    if (name[0] == 'g')
      for (double &each : x)
        each = -std::abs(each);
  }
  auto give = [&](const std::string &name) { row(name, static_cast<int64_t>(inputs[name].size()) / T, inputs[name]); };
  declare(adjoint);
  for (const auto &[name, x] : inputs)
    give(name);
  Outcome gradients = run();

  declare(forward);
  call.arguments.erase("do");
  auto loss = [&] {
    std::vector<double> o = result();
    double sum = 0;
    for (size_t i = 0; i < o.size(); ++i)
      sum += o[i] * inputs["do"][i];
    return sum;
  };
  for (auto [index, name] : {std::pair<size_t, std::string>(0, "q"), {1, "k"}, {2, "v"}}) {
    std::vector<double> differences;
    for (double &each : inputs[name]) {
      // The loss is linear in every single number, so that a difference is exact.
      double saved = each, sums[2];
      for (int side : {0, 1}) {
        each = saved + (side ? 0.5 : -0.5);
        give(name);
        sums[side] = loss();
      }
      each = saved;
      differences.push_back(sums[1] - sums[0]);
    }
    give(name);
    expectNear(gradients.results[index].values, differences, 1e-12);
  }
}

} // namespace
} // namespace stretto
