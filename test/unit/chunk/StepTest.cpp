//===- StepTest.cpp - One token as a kernel -------------------------------===//
//
// What only the step form does is held against the interpreter of declarations: scans, decay along either axis, states
// of one column, rows that depend on reads.
//
//===----------------------------------------------------------------------===//

#include "AgreementTest.h"

namespace stretto {
namespace {

using StepTest = AgreementTest;

TEST_F(StepTest, ScansOfNumbersAndRows) {
  declare(R"((%x: !K, %g: !K, %z: !n, %w: !n) -> (!K, !K, !K, !K, !n, !n, !n) {
    %sum = stretto.scan add %x : !K
    %decayed = stretto.scan add %x log %g : !K, !K
    %total = stretto.scan logaddexp %x : !K
    %before = stretto.scan logaddexp %x exclusive : !K
    %largest = stretto.scan max %z log %w : !n, !n
    %earlier = stretto.scan max %z log %w exclusive : !n, !n
    %number = stretto.scan logaddexp %z log %w : !n, !n
    stretto.yield %sum, %decayed, %total, %before, %largest, %earlier, %number : !K, !K, !K, !K, !n, !n, !n
  })");
  expectStepAgreement();
  EXPECT_NE(stepText().find("lowest"), std::string::npos) << stepText();
}

TEST_F(StepTest, AStateOfOneColumn) {
  declare(R"((%q: !K, %k: !K, %x: !n, %g: !K, %w: !n) -> (!n, !K) {
    %0 = stretto.state "z" : !stretto.state<K, 1>
    %1 = stretto.decay %0 log %g along "K" : !stretto.state<K, 1>, !K
    %2 = stretto.decay %1 log %w : !stretto.state<K, 1>, !n
    %3 = stretto.write %2, %k, %x : !stretto.state<K, 1>, !K, !n
    %y = stretto.read %3, %q along "K" : !stretto.state<K, 1>, !K -> !n
    %r = stretto.read %1, %x along "1" : !stretto.state<K, 1>, !n -> !K
    stretto.yield %y, %r : !n, !K
  })");
  expectStepAgreement();
}

TEST_F(StepTest, SlotsReadAlongBothAxes) {
  declare(R"((%q: !K, %k: !K, %v: !V, %g: !K, %w: !V) -> (!V, !V) {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 log %g along "K" : !S, !K
    %2 = stretto.decay %1 log %w along "V" : !S, !V
    %3 = stretto.write %2, %k, %v : !S, !K, !V
    %r = stretto.read %3, %v along "V" : !S, !V -> !K
    %p = stretto.softmax %r : !K
    %o = stretto.read %3, %p along "K" : !S, !K -> !V
    %before = stretto.read %1, %q along "K" : !S, !K -> !V
    stretto.yield %o, %before : !V, !V
  })");
  expectStepAgreement();
}

TEST_F(StepTest, TwoCorrectionsOfOneState) {
  declare(R"((%q: !K, %k: !K, %v: !V, %f: !n) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 factor %f : !S, !n
    %r = stretto.read %1, %k along "K" : !S, !K -> !V
    %d = arith.subf %v, %r : !V
    %2 = stretto.write %1, %k, %d : !S, !K, !V
    %s = stretto.read %2, %q along "K" : !S, !K -> !V
    %e = arith.subf %d, %s : !V
    %3 = stretto.write %2, %q, %e : !S, !K, !V
    %o = stretto.read %3, %q along "K" : !S, !K -> !V
    stretto.yield %o : !V
  })");
  expectStepAgreement();
}

} // namespace
} // namespace stretto
