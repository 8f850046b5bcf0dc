//===- TimeTest.cpp - Scans, convolutions, delays and tables --------------===//

#include "InterpreterTest.h"
#include <cmath>

namespace stretto {
namespace {

using TimeTest = InterpreterTest;

/// The declaration that applies one operation to %x.
std::string applied(const std::string &operation, const std::string &arguments = "") {
  return "(%x: !K" + arguments + ") -> !K {\n  %y = " + operation + "\n  stretto.yield %y : !K\n}";
}

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

TEST_F(TimeTest, Sum) {
  declare(applied("stretto.scan add %x : !K"));
  row("x", 2, {1, 10, 2, 20, 3, 30});
  expectNear(result(), {1, 10, 3, 30, 6, 60});
  expectNear(finalEntry("x_sum"), {6, 60});
  initial("x_sum", {1, 1, 2}, {100, 0});
  expectNear(result(), {101, 10, 103, 30, 106, 60});
}

TEST_F(TimeTest, SumThatDecays) {
  declare(applied("stretto.scan add %x log %g : !K, !K", ", %g: !K"));
  row("x", 1, {1, 2, 3, 4});
  row("g", 1, {0, std::log(0.5), -infinity, 0});
  expectNear(result(), {1, 2.5, 3, 7});
}

TEST_F(TimeTest, LogOfASumOfExponentials) {
  declare(applied("stretto.scan logaddexp %x : !K"));
  row("x", 1, {-infinity, 0, 0, 1000, infinity});
  expectNear(result(), {-infinity, 0, std::log(2), 1000, infinity});
}

TEST_F(TimeTest, LogOfASumOfExponentialsThatDecays) {
  declare(applied("stretto.scan logaddexp %x log %g : !K, !K", ", %g: !K"));
  row("x", 1, {std::log(3.0), std::log(2.0), 1});
  row("g", 1, {0, std::log(0.5), -infinity});
  expectNear(result(), {std::log(3.0), std::log(3.5), 1});
}

TEST_F(TimeTest, Maximum) {
  declare(applied("stretto.scan max %x log %g : !K, !K", ", %g: !K"));
  row("x", 1, {-3, -5, 1, 0});
  row("g", 1, {0, -1, 0, -2});
  expectNear(result(), {-3, -4, 1, 0});
}

TEST_F(TimeTest, AnExclusiveScanShowsTheTotalBefore) {
  declare(R"((%x: !K) -> (!K, !K) {
    %before = stretto.scan logaddexp %x exclusive : !K
    %total = stretto.scan logaddexp %x : !K
    stretto.yield %before, %total : !K, !K
  })");
  row("x", 1, {2, 2});
  call.finalState = true;
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {-infinity, 2});
  expectNear(outcome.results[1].values, {2, 2 + std::log(2)});
  // Both carry the same total.
  ASSERT_EQ(outcome.finalState.size(), 1u);
  EXPECT_EQ(outcome.finalState[0].first, "x_logaddexp");
  expectNear(outcome.finalState[0].second.values, {2 + std::log(2)});
}

TEST_F(TimeTest, AScanInReverse) {
  declare(applied("stretto.scan add %x exclusive reverse : !K"));
  row("x", 1, {1, 2, 3});
  initial("x_sum_reverse", {1, 1, 1}, {100});
  expectNear(result(), {105, 103, 100});
  expectNear(finalEntry("x_sum_reverse"), {106});
}

//===----------------------------------------------------------------------===//
// Convolutions and delays
//===----------------------------------------------------------------------===//

const char *const taps = ", %taps: tensor<?x3xf64, #stretto.param<[K, 3], G>>";
const char *const tapsType = "tensor<?x3xf64, #stretto.param<[K, 3], G>>";

TEST_F(TimeTest, ACausalConvolution) {
  declare(applied(std::string("stretto.conv %x, %taps : !K, ") + tapsType, taps));
  row("x", 2, {1, 1, 2, 0, 3, 0, 4, 0});
  set("taps", {1, 2, 3}, {100, 10, 1, 7, 8, 9});
  expectNear(result(), {1, 9, 12, 8, 123, 7, 234, 0});
  expectNear(finalEntry("x_tail"), {3, 0, 4, 0});
  initial("x_tail", {1, 2, 1, 2}, {8, 0, 9, 0});
  expectNear(result(), {891, 9, 912, 8, 123, 7, 234, 0});
}

TEST_F(TimeTest, TapsOfACoarserHeadSet) {
  declare(applied(std::string("stretto.conv %x, %taps : !K, ") + tapsType, taps));
  set("x", {1, 1, 4, 1}, {1, 2, 3, 4});
  set("taps", {2, 1, 3}, {0, 0, 10, 0, 0, 100});
  expectNear(result(), {10, 20, 300, 400});
}

TEST_F(TimeTest, AnAnticausalConvolution) {
  declare(applied(std::string("stretto.conv %x, %taps reverse : !K, ") + tapsType, taps));
  row("x", 1, {1, 2, 3, 4});
  set("taps", {1, 1, 3}, {100, 10, 1});
  expectNear(result(), {321, 432, 43, 4});
  // What it adds to the two tokens before the sequence, and what a later sequence adds to its last two.
  expectNear(finalEntry("x_tail_reverse"), {100, 210});
  initial("x_tail_reverse", {1, 2, 1, 1}, {500, 650});
  expectNear(result(), {321, 432, 543, 654});
  row("x", 1, {7});
  expectNear(result(), {657});
  expectNear(finalEntry("x_tail_reverse"), {700, 570});
}

TEST_F(TimeTest, Delays) {
  declare(R"((%x: !K) -> (!K, !K) {
    %earlier = stretto.delay %x by 2 : !K
    %later = stretto.delay %x by 1 reverse : !K
    stretto.yield %earlier, %later : !K, !K
  })");
  row("x", 1, {1, 2, 3});
  initial("x_tail", {1, 2, 1, 1}, {8, 9});
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {8, 9, 1});
  expectNear(outcome.results[1].values, {2, 3, 0});
}

TEST_F(TimeTest, ATailLongerThanTheSequenceKeepsOlderRows) {
  declare(applied("stretto.delay %x by 3 : !K"));
  row("x", 1, {1});
  initial("x_tail", {1, 3, 1, 1}, {7, 8, 9});
  expectNear(result(), {7});
  expectNear(finalEntry("x_tail"), {8, 9, 1});
}

//===----------------------------------------------------------------------===//
// Positions and tables
//===----------------------------------------------------------------------===//

TEST_F(TimeTest, APositionContinues) {
  declare(R"((%x: !n) -> !n {
    %t = stretto.position
    %y = stretto.broadcast %t : !t to !n
    stretto.yield %y : !n
  })");
  row("x", 0, {0, 0, 0});
  expectNear(result(), {0, 1, 2});
  initial("position", {1}, {40});
  expectNear(result(), {40, 41, 42});
  expectNear(finalEntry("position"), {43});
  initial("position", {1}, {-1});
  EXPECT_NE(refusal().find("'position' holds -1"), std::string::npos) << messages;
}

TEST_F(TimeTest, ATableOfPositionHeadAndChannel) {
  declare(R"((%x: !K) -> !K options(unit = 10.0) {
    %unit = stretto.option "unit" : f64
    %w = stretto.table {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %0 = arith.mulf %t, %unit : f64
      %1 = arith.addf %0, %h : f64
      %2 = arith.mulf %1, %unit : f64
      %3 = arith.addf %2, %d : f64
      stretto.yield %3 : f64
    } : !K
    stretto.yield %w : !K
  })");
  set("x", {1, 2, 2, 2}, std::vector<double>(8));
  expectNear(result(), {0, 1, 10, 11, 100, 101, 110, 111});
  call.options["unit"] = "100";
  expectNear(result(), {0, 1, 100, 101, 10000, 10001, 10100, 10101});
}

TEST_F(TimeTest, ATableReturnsWithItsPeriod) {
  declare(R"((%x: !n) -> !n options(period = 3.0) {
    %period = stretto.option "period" : f64
    %w = stretto.table period %period {
    ^bb0(%t: f64, %h: f64, %d: f64):
      stretto.yield %t : f64
    } : !n
    stretto.yield %w : !n
  })");
  row("x", 0, std::vector<double>(5));
  expectNear(result(), {0, 1, 2, 0, 1});
  initial("position", {1}, {7});
  expectNear(result(), {1, 2, 0, 1, 2});
  call.options["period"] = "2.5";
  expectNear(result(), {2, 0.5, 1.5, 0, 1});
  call.options["period"] = "0";
  EXPECT_NE(refusal().find("[R8] the period is 0"), std::string::npos) << messages;
}

TEST_F(TimeTest, ATableThatDoesNotUseThePositionHasNone) {
  declare(R"((%x: !n) -> !n {
    %w = stretto.table {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %two = math.exp2 %h : f64
      stretto.yield %two : f64
    } : !n
    stretto.yield %w : !n
  })");
  set("x", {1, 1, 4}, std::vector<double>(4));
  call.finalState = true;
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {1, 2, 4, 8});
  EXPECT_TRUE(outcome.finalState.empty());
}

} // namespace
} // namespace stretto
