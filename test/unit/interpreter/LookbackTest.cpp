//===- LookbackTest.cpp - Folds over the keys of a range ------------------===//

#include "InterpreterTest.h"
#include <cmath>

namespace stretto {
namespace {

using LookbackTest = InterpreterTest;

/// A sum of %x * past(%y) over the range that begins at %first.
std::string sumOf(const std::string &modifiers) {
  return R"((%first: !t, %x: !n, %y: !n) -> !n {
    %o = stretto.lookback sum from %first )" +
         modifiers + R"( {
      %yj = stretto.past %y : !n
      %c = arith.mulf %x, %yj : !n
      stretto.yield %c : !n
    } : !n
    stretto.yield %o : !n
  })";
}

TEST_F(LookbackTest, SumsOverARange) {
  declare(sumOf(""));
  row("first", 0, {-4, 0, 0.5, 2, 9});
  row("x", 0, {1, 1, 2, 1, 1});
  row("y", 0, {1, 10, 100, 1000, 10000});
  // A range that begins after its token is empty.
  expectNear(result(), {1, 11, 220, 1100, 0});
}

TEST_F(LookbackTest, SumsToTheEnd) {
  declare(sumOf("to_end"));
  row("first", 0, {-4, 0, 1, 2});
  row("x", 0, {1, 2, 1, 1});
  row("y", 0, {1, 10, 100, 1000});
  expectNear(result(), {1111, 2222, 1110, 1100});
}

TEST_F(LookbackTest, LooksAhead) {
  // Token t is in the ranges of all u >= t whose range begins at or before t.
  declare(sumOf("reverse"));
  row("first", 0, {0, 0, 1, 3});
  row("x", 0, {1, 1, 2, 1});
  row("y", 0, {1, 10, 100, 1000});
  expectNear(result(), {11, 110, 200, 1000});
}

TEST_F(LookbackTest, LooksAheadOfRangesToTheEnd) {
  declare(sumOf("to_end reverse"));
  row("first", 0, {0, 0, 1, 3});
  row("x", 0, {1, 1, 2, 1});
  row("y", 0, {1, 10, 100, 1000});
  expectNear(result(), {11, 111, 222, 1111});
}

TEST_F(LookbackTest, ALookaheadIsTheTransposeOfALookback) {
  const std::vector<double> x = {1, 2, 3, 5, 7, 11}, y = {13, 17, 19, 23, 29, 31};
  for (const char *toEnd : {"", "to_end "}) {
    row("first", 0, {0, 0, 0, 2, 2, 5});
    row("x", 0, x);
    row("y", 0, y);
    declare(sumOf(toEnd));
    std::vector<double> back = result();
    row("x", 0, y);
    row("y", 0, x);
    declare(sumOf(std::string(toEnd) + "reverse"));
    // Both sum x_t y_j over all pairs, one by t and one by j.
    std::vector<double> ahead = result();
    double sums[2] = {0, 0};
    for (size_t t = 0; t < x.size(); ++t) {
      sums[0] += back[t];
      sums[1] += ahead[t];
    }
    EXPECT_EQ(sums[0], sums[1]);
  }
}

TEST_F(LookbackTest, RefusesRangesThatBeginEarlierThanBefore) {
  row("first", 0, {0, 1, 0});
  row("x", 0, {1, 1, 1});
  row("y", 0, {1, 1, 1});
  for (const char *modifiers : {"", "to_end", "reverse"}) {
    declare(sumOf(modifiers));
    EXPECT_NE(refusal().find("a range begins at token 0, that of an earlier token at 1"), std::string::npos)
        << messages;
  }
}

TEST_F(LookbackTest, PastRowsOfALaterPass) {
  // The past row needs all later tokens, so that the fold runs in a third pass.
  declare(R"((%first: !t, %y: !n) -> !n {
    %z = stretto.scan add %y reverse : !n
    %o = stretto.lookback sum from %first {
      %zj = stretto.past %z : !n
      stretto.yield %zj : !n
    } : !n
    %p = stretto.scan add %o : !n
    stretto.yield %p : !n
  })");
  row("first", 0, {0, 0, 0});
  row("y", 0, {1, 10, 100});
  expectNear(result(), {111, 111 + 221, 111 + 221 + 321});
}

TEST_F(LookbackTest, ARangeToTheEndNeedsAPassOfItsOwn) {
  // The past row is computed forwards: at a token, those of later tokens are not known yet.
  declare(R"((%first: !t, %y: !n) -> !n {
    %z = stretto.scan add %y : !n
    %o = stretto.lookback sum from %first to_end {
      %zj = stretto.past %z : !n
      stretto.yield %zj : !n
    } : !n
    stretto.yield %o : !n
  })");
  row("first", 0, {0, 1, 2});
  row("y", 0, {1, 10, 100});
  expectNear(result(), {1 + 11 + 111, 11 + 111, 111});
}

const char *const softmax = R"((%first: !t, %s: !n, %v: !V) -> (!n, !n, !V) {
    %m, %l, %acc = stretto.lookback softmax from %first {
      %sj = stretto.past %s : !n
      %vj = stretto.past %v : !V
      stretto.yield %sj, %vj : !n, !V
    } : !n, !n, !V
    stretto.yield %m, %l, %acc : !n, !n, !V
  })";

TEST_F(LookbackTest, Softmax) {
  declare(softmax);
  row("first", 0, {0, 0, 0, 4});
  row("s", 0, {std::log(2), std::log(6), -infinity, 0});
  row("v", 2, {1, 0, 0, 1, 5, 5, 7, 7});
  Outcome outcome = run();
  // A score of -inf leaves its pair out; the last range is empty.
  expectNear(outcome.results[0].values, {std::log(2), std::log(6), std::log(6), -infinity});
  expectNear(outcome.results[1].values, {1, 4.0 / 3, 4.0 / 3, 0});
  expectNear(outcome.results[2].values, {1, 0, 1.0 / 3, 1, 1.0 / 3, 1, 0, 0});
}

TEST_F(LookbackTest, SoftmaxOfNothingButMaskedPairs) {
  declare(softmax);
  row("first", 0, {0, 0});
  row("s", 0, {-infinity, -infinity});
  row("v", 1, {infinity, 1});
  Outcome outcome = run();
  expectNear(outcome.results[0].values, {-infinity, -infinity});
  expectNear(outcome.results[1].values, {0, 0});
  expectNear(outcome.results[2].values, {0, 0});
}

TEST_F(LookbackTest, ANanReachesLaterTokensOnly) {
  declare(softmax);
  row("first", 0, {0, 0, 0});
  row("s", 0, {1, std::nan(""), 1});
  row("v", 1, {1, 1, 1});
  expectNear(run().results[1].values, {1, std::nan(""), std::nan("")});
}

TEST_F(LookbackTest, Divergence) {
  declare(R"((%first: !t, %teacher: !n, %student: !n) -> (!n, !n, !n) {
    %kl, %lt, %ls = stretto.lookback divergence from %first {
      %z = stretto.past %teacher : !n
      %y = stretto.past %student : !n
      stretto.yield %z, %y : !n, !n
    } : !n, !n, !n
    stretto.yield %kl, %lt, %ls : !n, !n, !n
  })");
  row("first", 0, {0, 0, 0, 4});
  row("teacher", 0, {std::log(1), std::log(3), -infinity, 0});
  row("student", 0, {std::log(5), std::log(5), -infinity, 0});
  Outcome outcome = run();
  // The teacher is (1/4, 3/4), the student (1/2, 1/2); a pair of scores of -inf changes neither, the last range is
  // empty.
  double kl = 0.25 * std::log(0.5) + 0.75 * std::log(1.5);
  expectNear(outcome.results[0].values, {0, kl, kl, 0});
  expectNear(outcome.results[1].values, {0, std::log(4), std::log(4), -infinity});
  expectNear(outcome.results[2].values, {std::log(5), std::log(10), std::log(10), -infinity});
}

TEST_F(LookbackTest, ContinuingIsRefused) {
  declare(softmax);
  row("first", 0, {0});
  row("s", 0, {0});
  row("v", 1, {0});
  call.finalState = true;
  EXPECT_NE(refusal().find("[R14] the final state is asked for"), std::string::npos) << messages;
  call.finalState = false;
  initial("S", {1}, {0});
  EXPECT_NE(refusal().find("[R14] an initial state is given"), std::string::npos) << messages;
}

} // namespace
} // namespace stretto
