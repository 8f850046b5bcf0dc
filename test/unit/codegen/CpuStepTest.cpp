//===- CpuStepTest.cpp - Kernels over single tokens against the interpreter ===//
//
// Their states are walked over where they lie. What is written outside of a state, or read before it is there, is seen
// as in CpuKernelTest.h.
//
//===----------------------------------------------------------------------===//

#include "CpuKernelTest.h"

namespace stretto {
namespace {

/// A decayed state that is written and read along both axes, before and after, in two heads that share it.
std::string gated(int64_t K, int64_t V) {
  std::string k = std::to_string(K), v = std::to_string(V);
  return "!K = tensor<1x" + k + "xf32>\n!V = tensor<1x" + v + "xf32>\n!k = tensor<" + k + "xf32>\n!v = tensor<" + v +
         "xf32>\n!S = tensor<" + k + "x" + v + "xf32>\n" + R"(
  chunk.kernel @kernel chunk 1 (input %q: !K, input %k: !K group 2, input %v: !V group 2, input %g: !K group 2,
      state %S: !S group 2, valid %n: index) -> (o: !V, r: !K, m: !V) {
    %k1 = chunk.row %k at 0 : !K -> !k
    %v1 = chunk.row %v at 0 : !V -> !v
    %q1 = chunk.row %q at 0 : !K -> !k
    %ks = chunk.broadcast %k1 along rows : !k to !S
    %vs = chunk.broadcast %v1 along columns : !v to !S
    %qs = chunk.broadcast %q1 along rows : !k to !S
    %D = chunk.decay_state %S log %g along rows : !S, !K
    %kv = arith.mulf %ks, %vs : !S
    %next = arith.addf %kv, %D : !S
    %qS = arith.mulf %next, %qs : !S
    %o1 = chunk.reduce sum %qS over rows : !S -> !v
    %o = chunk.broadcast %o1 along columns : !v to !V
    %vS = arith.mulf %S, %vs : !S
    %r1 = chunk.reduce sum %vS over columns : !S -> !k
    %r = chunk.broadcast %r1 along columns : !k to !K
    %m1 = chunk.reduce max %D over rows : !S -> !v
    %m = chunk.broadcast %m1 along columns : !v to !V
    chunk.yield %o, %r, %m next %next : !V, !K, !V, !S
  })";
}

struct CpuStepTest : CpuKernelTest {
  CpuStepTest() { uniform("g", -0.5, 0); }
};

TEST_F(CpuStepTest, WidthsOfRowsAndColumns) {
  for (auto [K, V] : {std::pair(16, 16), {1, 1}, {5, 40}, {40, 5}, {17, 300}, {128, 128}}) {
    SCOPED_TRACE(testing::Message() << K << " by " << V);
    compile(gated(K, V));
    check();
  }
}

TEST_F(CpuStepTest, ShorterVectors) {
  compile(gated(24, 100), cpu::Instructions{256});
  check();
}

TEST_F(CpuStepTest, LengthsAndStates) {
  compile(gated(24, 20));
  for (bool initialState : {false, true}) {
    Problem problem;
    problem.initialState = initialState;
    checkLengths({0, 1, 2, 7}, problem);
    problem.offsets = {0, 0, 3, 4};
    problem.batch = 1;
    problem.tokens = 4;
    check(problem);
  }
}

TEST_F(CpuStepTest, WhatIsWrittenDependsOnARead) {
  compile(R"(
  chunk.kernel @kernel chunk 1 (input %q: tensor<1x24xf32>, input %k: tensor<1x24xf32>, input %v: tensor<1x20xf32>,
      state %S: tensor<24x20xf32>, valid %n: index) -> (o: tensor<1x20xf32>) {
    %k1 = chunk.row %k at 0 : tensor<1x24xf32> -> tensor<24xf32>
    %v1 = chunk.row %v at 0 : tensor<1x20xf32> -> tensor<20xf32>
    %q1 = chunk.row %q at 0 : tensor<1x24xf32> -> tensor<24xf32>
    %ks = chunk.broadcast %k1 along rows : tensor<24xf32> to tensor<24x20xf32>
    %qs = chunk.broadcast %q1 along rows : tensor<24xf32> to tensor<24x20xf32>
    %kS = arith.mulf %ks, %S : tensor<24x20xf32>
    %r = chunk.reduce sum %kS over rows : tensor<24x20xf32> -> tensor<20xf32>
    %e = arith.subf %v1, %r : tensor<20xf32>
    %es = chunk.broadcast %e along columns : tensor<20xf32> to tensor<24x20xf32>
    %ke = arith.mulf %ks, %es : tensor<24x20xf32>
    %next = arith.addf %S, %ke : tensor<24x20xf32>
    %qS = arith.mulf %qs, %next : tensor<24x20xf32>
    %o1 = chunk.reduce sum %qS over rows : tensor<24x20xf32> -> tensor<20xf32>
    %o = chunk.broadcast %o1 along columns : tensor<20xf32> to tensor<1x20xf32>
    chunk.yield %o next %next : tensor<1x20xf32>, tensor<24x20xf32>
  })");
  Problem problem;
  problem.tolerance = 1e-4; // errors of one token grow with the next
  uniform("k", -0.2, 0.2);
  checkLengths({1, 2, 9}, problem);
}

TEST_F(CpuStepTest, AStateThatIsNeverRead) {
  compile(R"(
  chunk.kernel @kernel chunk 1 (input %f: tensor<1x20xf32>, state %S: tensor<24x20xf32>, state %T: tensor<4x20xf32>,
      valid %n: index) -> (o: tensor<1x20xf32>) {
    %next = chunk.decay_state %S factor %f along columns : tensor<24x20xf32>, tensor<1x20xf32>
    chunk.yield %f next %next, %T : tensor<1x20xf32>, tensor<24x20xf32>, tensor<4x20xf32>
  })");
  checkLengths({0, 1, 3});
}

} // namespace
} // namespace stretto
