//===- LookbackAlgebraTest.cpp - Look-backs over tiles of pairs -----------===//

#include "AgreementTest.h"

namespace stretto {
namespace {

using LookbackAlgebraTest = AgreementTest;

/// %first: where a window of 21 tokens starts, which is in the midst of chunks.
const std::string window = R"(
    %t = stretto.position
    %w = stretto.constant 20.0 : !t
    %first = arith.subf %t, %w : !t)";

TEST_F(LookbackAlgebraTest, SoftmaxOverAWindow) {
  declare("(%q: !K, %k: !K_G, %v: !V_G) -> (!V, !n) {" + window + R"(
    %m, %l, %acc = stretto.lookback softmax from %first {
      %kj = stretto.past %k : !K_G
      %ks = stretto.broadcast %kj : !K_G to !K
      %s = stretto.dot %ks, %q : !K -> !n
      %vj = stretto.past %v : !V_G
      %vs = stretto.broadcast %vj : !V_G to !V
      stretto.yield %s, %vs : !n, !V
    } : !n, !n, !V
    %ls = stretto.broadcast %l : !n to !V
    %o = arith.divf %acc, %ls : !V
    stretto.yield %o, %m : !V, !n
  })");
  expectAgreement();
}

TEST_F(LookbackAlgebraTest, PairsThatAreLeftOut) {
  // A pair of which either number is negative is left out; where none is left a row is empty.
  declare("(%q: !K, %k: !K, %v: !V, %x: !n) -> (!V, !n, !n) {" + window + R"(
    %m, %l, %acc = stretto.lookback softmax from %first {
      %kj = stretto.past %k : !K
      %qk = stretto.dot %q, %kj : !K -> !n
      %xj = stretto.past %x : !n
      %zero = stretto.constant 0.0 : !n
      %product = arith.mulf %x, %xj : !n
      %isIn = arith.cmpf ogt, %product, %zero : !n
      %out = stretto.constant 0xFFF0000000000000 : !n
      %s = arith.select %isIn, %qk, %out : tensor<i1, #stretto.row<()>>, !n
      %vj = stretto.past %v : !V
      stretto.yield %s, %vj : !n, !V
    } : !n, !n, !V
    stretto.yield %acc, %m, %l : !V, !n, !n
  })");
  expectAgreement();
}

TEST_F(LookbackAlgebraTest, PairsThatAttainTheLargestScore) {
  // Of scores that are whole numbers several do.
  declare("(%q: !K, %k: !K, %v: !V) -> (!V, !n, !n) {" + window + R"(
    %qs = math.floor %q : !K
    %ks = math.floor %k : !K
    %m, %l, %acc = stretto.lookback softmax from %first {
      %kj = stretto.past %ks : !K
      %s = stretto.dot %qs, %kj : !K -> !n
      %vj = stretto.past %v : !V
      stretto.yield %s, %vj : !n, !V
    } : !n, !n, !V
    %ties = stretto.lookback sum from %first {
      %kj = stretto.past %ks : !K
      %s = stretto.dot %qs, %kj : !K -> !n
      %isHit = arith.cmpf oeq, %s, %m : !n
      %one = stretto.constant 1.0 : !n
      %zero = stretto.constant 0.0 : !n
      %hit = arith.select %isHit, %one, %zero : tensor<i1, #stretto.row<()>>, !n
      stretto.yield %hit : !n
    } : !n
    stretto.yield %acc, %m, %ties : !V, !n, !n
  })");
  EXPECT_NE(kernelText().find(":4 = chunk.lookback softmax"), std::string::npos);
  expectAgreement();
}

TEST_F(LookbackAlgebraTest, RowsOfThePastAreComputedAnew) {
  // From inputs, tables and parameters.
  declare("(%q: !K, %k: !K_G, %v: !V_G, %W: tensor<?x?xf64, #stretto.param<[K, K], H>>) -> !V {" + window + R"(
    %angles = stretto.table {
    ^bb0(%time: f64, %h: f64, %d: f64):
      %x = arith.mulf %time, %d : f64
      %c = math.cos %x : f64
      stretto.yield %c : f64
    } : !K
    %ks = stretto.broadcast %k : !K_G to !K
    %kw = stretto.contract %ks, %W : !K, tensor<?x?xf64, #stretto.param<[K, K], H>> -> !K
    %turned = arith.mulf %kw, %angles : !K
    %m, %l, %acc = stretto.lookback softmax from %first {
      %kj = stretto.past %turned : !K
      %s = stretto.dot %q, %kj : !K -> !n
      %vj = stretto.past %v : !V_G
      %vs = stretto.broadcast %vj : !V_G to !V
      stretto.yield %s, %vs : !n, !V
    } : !n, !n, !V
    stretto.yield %acc : !V
  })");
  expectAgreement();
}

TEST_F(LookbackAlgebraTest, Divergence) {
  for (const char *toEnd : {"", "to_end "}) {
    declare("(%q: !K, %k: !K, %p: !V) -> (!n, !n, !n) {" + window + R"(
    %kl, %a, %b = stretto.lookback divergence from %first )" +
            toEnd + R"({
      %kj = stretto.past %k : !K
      %s = stretto.dot %q, %kj : !K -> !n
      %pj = stretto.past %p : !V
      %r = stretto.dot %p, %pj : !V -> !n
      stretto.yield %s, %r : !n, !n
    } : !n, !n, !n
    stretto.yield %kl, %a, %b : !n, !n, !n
  })");
    expectAgreement();
  }
}

TEST_F(LookbackAlgebraTest, Sums) {
  declare("(%q: !K, %k: !K, %v: !V, %x: !n) -> (!V, !n, !V, !n) {" + window + R"(
    %a, %b, %c, %d = stretto.lookback sum from %first {
      %kj = stretto.past %k : !K
      %s = stretto.dot %q, %kj : !K -> !n
      %weight = math.exp %s : !n
      %weights = stretto.broadcast %weight : !n to !V
      %vj = stretto.past %v : !V
      %row = arith.mulf %vj, %weights : !V
      %xj = stretto.past %x : !n
      stretto.yield %row, %weight, %vj, %xj : !V, !n, !V, !n
    } : !V, !n, !V, !n
    stretto.yield %a, %b, %c, %d : !V, !n, !V, !n
  })");
  expectAgreement();
}

TEST_F(LookbackAlgebraTest, AStateThatIsReadAtAnEarlierTime) {
  declare("(%q: !K, %k: !K_G, %v: !V_G) -> !V {" + window + R"(
    %0 = stretto.state "S" : !S_G
    %1 = stretto.write %0, %k, %v : !S_G, !K_G, !V_G
    %o = stretto.read %1, %q along "K" at %first : !S_G, !K -> !V
    stretto.yield %o : !V
  })");
  expectAgreement();
}

TEST_F(LookbackAlgebraTest, AStateThatIsReadAlongItsOtherAxisAtTheEdgesOfBlocks) {
  declare(R"((%q: !V, %k: !K_G, %v: !V_G) -> !K {
    %t = stretto.position
    %w = stretto.constant 6.0 : !t
    %blocks = arith.divf %t, %w : !t
    %block = math.floor %blocks : !t
    %start = arith.mulf %block, %w : !t
    %one = stretto.constant 1.0 : !t
    %before = arith.subf %start, %one : !t
    %0 = stretto.state "S" : !S_G
    %1 = stretto.write %0, %k, %v : !S_G, !K_G, !V_G
    %o = stretto.read %1, %q along "V" at %before : !S_G, !V -> !K
    stretto.yield %o : !K
  })");
  expectAgreement();
}

} // namespace
} // namespace stretto
