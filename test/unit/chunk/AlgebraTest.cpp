//===- AlgebraTest.cpp - Every place that a read can have in a token ------===//

#include "AgreementTest.h"
#include <cmath>

namespace stretto {
namespace {

using AlgebraTest = AgreementTest;

//===----------------------------------------------------------------------===//
// Decays, writes and reads in any order
//===----------------------------------------------------------------------===//

TEST_F(AlgebraTest, ReadsWithoutDecayBeforeAndAfterTheWrite) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G) -> (!V, !V) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.write %0, %k, %v : !S_G, !K_G, !V_G
    %before = stretto.read %0, %q along "K" : !S_G, !K -> !V
    %after = stretto.read %1, %q along "K" : !S_G, !K -> !V
    stretto.yield %before, %after : !V, !V
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, ReadsAtEveryPlaceOfDecayAndWrite) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %g: !K_G) -> (!V, !V, !V) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.decay %0 log %g along "K" : !S_G, !K_G
    %2 = stretto.write %1, %k, %v : !S_G, !K_G, !V_G
    %a = stretto.read %0, %q along "K" : !S_G, !K -> !V
    %b = stretto.read %1, %q along "K" : !S_G, !K -> !V
    %c = stretto.read %2, %q along "K" : !S_G, !K -> !V
    stretto.yield %a, %b, %c : !V, !V, !V
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, ReadsAtEveryPlaceOfWriteAndDecay) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %g: !K_G) -> (!V, !V, !V) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.write %0, %k, %v : !S_G, !K_G, !V_G
    %2 = stretto.decay %1 log %g along "K" : !S_G, !K_G
    %a = stretto.read %0, %q along "K" : !S_G, !K -> !V
    %b = stretto.read %1, %q along "K" : !S_G, !K -> !V
    %c = stretto.read %2, %q along "K" : !S_G, !K -> !V
    stretto.yield %a, %b, %c : !V, !V, !V
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, ReadsBetweenSeveralDecaysAndWrites) {
  // Log and factor, of the whole state and along its axis.
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %w: !n_G, %f: !K_G, %k2: !K_G, %v2: !V_G) -> (!V, !V, !V, !V, !V) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.write %0, %k, %v : !S_G, !K_G, !V_G
    %2 = stretto.decay %1 log %w : !S_G, !n_G
    %3 = stretto.write %2, %k2, %v2 : !S_G, !K_G, !V_G
    %4 = stretto.decay %3 factor %f along "K" : !S_G, !K_G
    %a = stretto.read %0, %q along "K" : !S_G, !K -> !V
    %b = stretto.read %1, %q along "K" : !S_G, !K -> !V
    %c = stretto.read %2, %q along "K" : !S_G, !K -> !V
    %d = stretto.read %3, %q along "K" : !S_G, !K -> !V
    %e = stretto.read %4, %q along "K" : !S_G, !K -> !V
    stretto.yield %a, %b, %c, %d, %e : !V, !V, !V, !V, !V
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, LogDecaysAddUp) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %w: !n_G, %g: !K_G) -> (!V, !V) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.decay %0 log %w : !S_G, !n_G
    %2 = stretto.decay %1 log %g along "K" : !S_G, !K_G
    %3 = stretto.write %2, %k, %v : !S_G, !K_G, !V_G
    %a = stretto.read %1, %q along "K" : !S_G, !K -> !V
    %b = stretto.read %3, %q along "K" : !S_G, !K -> !V
    stretto.yield %a, %b : !V, !V
  })");
  expectAgreement();
  EXPECT_EQ(kernelText().find(" factor "), std::string::npos);
}

//===----------------------------------------------------------------------===//
// Axes and states
//===----------------------------------------------------------------------===//

TEST_F(AlgebraTest, ReadsAlongBothAxesOfAStateThatDecaysAsAWhole) {
  declare(R"((%q: !K, %x: !V, %k: !K_G, %v: !V_G, %g: !n_G) -> (!V, !K, !K) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.decay %0 log %g : !S_G, !n_G
    %2 = stretto.write %1, %k, %v : !S_G, !K_G, !V_G
    %a = stretto.read %2, %q along "K" : !S_G, !K -> !V
    %b = stretto.read %2, %x along "V" : !S_G, !V -> !K
    %c = stretto.read %0, %x along "V" : !S_G, !V -> !K
    stretto.yield %a, %b, %c : !V, !K, !K
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, DecaysAlongTheSecondAxisAndReadsAlongIt) {
  declare(R"((%x: !V, %k: !K_G, %v: !V_G, %g: !V_G) -> (!K, !K) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.decay %0 log %g along "V" : !S_G, !V_G
    %2 = stretto.write %1, %k, %v : !S_G, !K_G, !V_G
    %a = stretto.read %1, %x along "V" : !S_G, !V -> !K
    %b = stretto.read %2, %x along "V" : !S_G, !V -> !K
    stretto.yield %a, %b : !K, !K
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, AStateIsWrittenWithWhatAnotherRecalls) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %g: !K_G) -> !V_G {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.decay %0 log %g along "K" : !S_G, !K_G
    %2 = stretto.write %1, %k, %v : !S_G, !K_G, !V_G
    %r = stretto.read %2, %k along "K" : !S_G, !K_G -> !V_G
    %shift = stretto.constant 0.3 : !V_G
    %s = arith.addf %r, %shift : !V_G
    %T0 = stretto.state "T" : !S
    %s_H = stretto.broadcast %s : !V_G to !V
    %T1 = stretto.write %T0, %q, %s_H : !S, !K, !V
    %unused = stretto.read %T1, %q along "K" : !S, !K -> !V
    stretto.yield %r : !V_G
  })");
  Program program;
  program.heads = {{"H", 4}, {"G", 4}};
  expectAgreement(program);
}

TEST_F(AlgebraTest, AStateThatNothingReadsIsLeft) {
  declare(R"((%q: !K, %k: !K, %v: !V, %g: !K) -> !K {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 log %g along "K" : !S, !K
    %2 = stretto.write %1, %k, %v : !S, !K, !V
    stretto.yield %q : !K
  })");
  Program program;
  program.heads = {{"H", 2}};
  expectAgreement(program);
}

TEST_F(AlgebraTest, OneColumnIsAVector) {
  declare(R"((%q: !K, %k: !K_G, %x: !n_G, %g: !K_G) -> !n {
    %0 = stretto.state "z" : !stretto.state<K, 1, G>
    %1 = stretto.decay %0 log %g along "K" : !stretto.state<K, 1, G>, !K_G
    %2 = stretto.write %1, %k, %x : !stretto.state<K, 1, G>, !K_G, !n_G
    %o = stretto.read %2, %q along "K" : !stretto.state<K, 1, G>, !K -> !n
    stretto.yield %o : !n
  })");
  Program program;
  program.dims = {{"K", 8}};
  expectAgreement(program);
  EXPECT_NE(kernelText(program).find("state %z: tensor<8xf64> group 2"), std::string::npos) << kernelText(program);
  EXPECT_EQ(kernelText(program).find("8x1x"), std::string::npos) << kernelText(program);
}

TEST_F(AlgebraTest, PartsOfAStateShareTheirScores) {
  // Two rows and a number side by side; the number has no 0 beyond the end of the sequence.
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %u: !N_G, %g: !K_G) -> (!V, !N, !n) {
    %0 = stretto.state "S" : !stretto.state<K, "N + V + 1", G>
    %1 = stretto.decay %0 log %g along "K" : !stretto.state<K, "N + V + 1", G>, !K_G
    %one = stretto.constant 1.0 : !n_G
    %row = stretto.concat %v, %one, %u : !V_G, !n_G, !N_G -> tensor<?xf64, #stretto.row<"N + V + 1", G>>
    %2 = stretto.write %1, %k, %row : !stretto.state<K, "N + V + 1", G>, !K_G, tensor<?xf64, #stretto.row<"N + V + 1", G>>
    %r = stretto.read %2, %q along "K" : !stretto.state<K, "N + V + 1", G>, !K -> tensor<?xf64, #stretto.row<"N + V + 1">>
    %a = stretto.slice %r from "0" : tensor<?xf64, #stretto.row<"N + V + 1">> -> !V
    %b = stretto.slice %r from "V" : tensor<?xf64, #stretto.row<"N + V + 1">> -> !n
    %c = stretto.slice %r from "V + 1" : tensor<?xf64, #stretto.row<"N + V + 1">> -> !N
    stretto.yield %a, %c, %b : !V, !N, !n
  })");
  expectAgreement();
  std::string text = kernelText();
  EXPECT_EQ(text.find("chunk.decay_dot"), text.rfind("chunk.decay_dot")) << text;
  EXPECT_NE(text.find(R"(state %S.4: tensor<8xf64> group 2 of "S" column 4 columns 8)"), std::string::npos) << text;
}

TEST_F(AlgebraTest, WideFeaturesHaveRowsOfTheirOwn) {
  // Beside a number and a row; read along both axes, and taken apart.
  declare(R"((%q: !K, %qq: tensor<?xf64, #stretto.row<"K*K">>, %k: !K_G, %kk: tensor<?xf64, #stretto.row<"K*K", G>>,
              %v: !V_G, %w: !n_G, %u: !V) -> (!V, !K, tensor<?xf64, #stretto.row<"K*K">>) {
    %0 = stretto.state "S" : !stretto.state<"K*K + K + 1", V, G>
    %1 = stretto.decay %0 log %w : !stretto.state<"K*K + K + 1", V, G>, !n_G
    %one = stretto.constant 1.0 : !n_G
    %row = stretto.concat %one, %k, %kk : !n_G, !K_G, tensor<?xf64, #stretto.row<"K*K", G>> -> tensor<?xf64, #stretto.row<"K*K + K + 1", G>>
    %2 = stretto.write %1, %row, %v : !stretto.state<"K*K + K + 1", V, G>, tensor<?xf64, #stretto.row<"K*K + K + 1", G>>, !V_G
    %two = stretto.constant 2.0 : !n
    %query = stretto.concat %two, %q, %qq : !n, !K, tensor<?xf64, #stretto.row<"K*K">> -> tensor<?xf64, #stretto.row<"K*K + K + 1">>
    %a = stretto.read %2, %query along "K*K + K + 1" : !stretto.state<"K*K + K + 1", V, G>, tensor<?xf64, #stretto.row<"K*K + K + 1">> -> !V
    %d = stretto.read %2, %u along "V" : !stretto.state<"K*K + K + 1", V, G>, !V -> tensor<?xf64, #stretto.row<"K*K + K + 1">>
    %b = stretto.slice %d from "1" : tensor<?xf64, #stretto.row<"K*K + K + 1">> -> !K
    %c = stretto.slice %d from "K + 1" : tensor<?xf64, #stretto.row<"K*K + K + 1">> -> tensor<?xf64, #stretto.row<"K*K">>
    stretto.yield %a, %b, %c : !V, !K, tensor<?xf64, #stretto.row<"K*K">>
  })");
  expectAgreement();
  std::string text = kernelText();
  EXPECT_NE(text.find(R"(state %S.9: tensor<64x4xf64> group 2 of "S" column 0 columns 4 row 9 rows 73)"),
            std::string::npos)
      << text;
}

TEST_F(AlgebraTest, DecaysAlongTheAxisOfTheResult) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %g: !V_G, %k2: !K_G, %v2: !V_G, %w: !n_G, %f: !V_G)
      -> (!V, !V, !V, !V, !V, !V) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.write %0, %k, %v : !S_G, !K_G, !V_G
    %2 = stretto.decay %1 log %g along "V" : !S_G, !V_G
    %3 = stretto.write %2, %k2, %v2 : !S_G, !K_G, !V_G
    %4 = stretto.decay %3 log %w : !S_G, !n_G
    %5 = stretto.decay %4 factor %f along "V" : !S_G, !V_G
    %a = stretto.read %0, %q along "K" : !S_G, !K -> !V
    %b = stretto.read %1, %q along "K" : !S_G, !K -> !V
    %c = stretto.read %2, %q along "K" : !S_G, !K -> !V
    %d = stretto.read %3, %q along "K" : !S_G, !K -> !V
    %e = stretto.read %4, %q along "K" : !S_G, !K -> !V
    %h = stretto.read %5, %q along "K" : !S_G, !K -> !V
    stretto.yield %a, %b, %c, %d, %e, %h : !V, !V, !V, !V, !V, !V
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, DecaysBeforeTheWriteAlongTheAxisOfTheResult) {
  declare(R"((%x: !V, %k: !K_G, %v: !V_G, %g: !K_G) -> (!K, !K) {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.decay %0 log %g along "K" : !S_G, !K_G
    %2 = stretto.write %1, %k, %v : !S_G, !K_G, !V_G
    %a = stretto.read %1, %x along "V" : !S_G, !V -> !K
    %b = stretto.read %2, %x along "V" : !S_G, !V -> !K
    stretto.yield %a, %b : !K, !K
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, TwoStatesWithASoftmaxBetween) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %s: !N_G, %g: !N_G) -> !V {
    %0 = stretto.state "keys" : !stretto.state<N, K, G>
    %1 = stretto.decay %0 log %g along "N" : !stretto.state<N, K, G>, !N_G
    %2 = stretto.write %1, %s, %k : !stretto.state<N, K, G>, !N_G, !K_G
    %3 = stretto.state "values" : !stretto.state<N, V, G>
    %4 = stretto.decay %3 log %g along "N" : !stretto.state<N, V, G>, !N_G
    %5 = stretto.write %4, %s, %v : !stretto.state<N, V, G>, !N_G, !V_G
    %z = stretto.read %2, %q along "K" : !stretto.state<N, K, G>, !K -> !N
    %p = stretto.softmax %z : !N
    %o = stretto.read %5, %p along "N" : !stretto.state<N, V, G>, !N -> !V
    stretto.yield %o : !V
  })");
  expectAgreement();
  EXPECT_NE(kernelText().find("chunk.decay_mix"), std::string::npos) << kernelText();
}

//===----------------------------------------------------------------------===//
// Rows that depend on what the state recalls
//===----------------------------------------------------------------------===//

TEST_F(AlgebraTest, DeltaRule) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G, %b: !n_G) -> (!V, !V, !V_G) {
    %0 = stretto.state "S" : !S_G
    %r = stretto.read %0, %k along "K" : !S_G, !K_G -> !V_G
    %d = arith.subf %v, %r : !V_G
    %quarter = stretto.constant 0.25 : !n_G
    %beta = arith.mulf %b, %quarter : !n_G
    %betas = stretto.broadcast %beta : !n_G to !V_G
    %u = arith.mulf %betas, %d : !V_G
    %1 = stretto.write %0, %k, %u : !S_G, !K_G, !V_G
    %a = stretto.read %0, %q along "K" : !S_G, !K -> !V
    %o = stretto.read %1, %q along "K" : !S_G, !K -> !V
    stretto.yield %a, %o, %u : !V, !V, !V_G
  })");
  Program program;
  program.heads = {{"H", 2}, {"G", 2}};
  expectAgreement(program);
  EXPECT_NE(kernelText(program).find("chunk.solve"), std::string::npos) << kernelText(program);
}

/// A delta rule whose state decays `before` or `after` it is read and written; what else stands in the declaration.
std::string deltaRule(const std::string &before, const std::string &after) {
  return R"((%q: !K, %k: !K_G, %k2: !K_G, %v: !V_G, %g: !K_G, %w: !n_G, %f: !K_G) -> (!V, !V) {
    %0 = stretto.state "S" : !S_G
    %1 = )" +
         before + R"(
    %r = stretto.read %1, %k2 along "K" : !S_G, !K_G -> !V_G
    %third = stretto.constant 0.3 : !V_G
    %part = arith.mulf %third, %r : !V_G
    %minus = arith.negf %part : !V_G
    %u = arith.addf %minus, %v : !V_G
    %2 = stretto.write %1, %k, %u : !S_G, !K_G, !V_G
    %3 = )" +
         after + R"(
    %4 = stretto.write %3, %k2, %v : !S_G, !K_G, !V_G
    %a = stretto.read %2, %q along "K" : !S_G, !K -> !V
    %b = stretto.read %4, %q along "K" : !S_G, !K -> !V
    stretto.yield %a, %b : !V, !V
  })";
}

TEST_F(AlgebraTest, DeltaRulesWithDecayAnywhere) {
  Program program;
  program.dims = {{"K", 4}, {"V", 3}};
  for (const char *before : {"stretto.decay %0 log %w : !S_G, !n_G", "stretto.decay %0 log %g along \"K\" : !S_G, !K_G",
                             "stretto.decay %0 factor %f along \"K\" : !S_G, !K_G"})
    for (const char *after :
         {"stretto.decay %2 log %w : !S_G, !n_G", "stretto.decay %2 log %g along \"K\" : !S_G, !K_G"}) {
      SCOPED_TRACE(std::string(before) + ", " + after);
      declare(deltaRule(before, after));
      expectAgreement(program);
    }
}

TEST_F(AlgebraTest, TheFirstRowOfAWriteMayDependOnTheState) {
  declare(R"((%x: !V, %k: !K_G, %v: !V_G, %g: !V_G) -> !K {
    %0 = stretto.state "S" : !S_G
    %1 = stretto.decay %0 log %g along "V" : !S_G, !V_G
    %r = stretto.read %1, %v along "V" : !S_G, !V_G -> !K_G
    %third = stretto.constant 0.3 : !K_G
    %part = arith.mulf %r, %third : !K_G
    %u = arith.subf %k, %part : !K_G
    %2 = stretto.write %1, %u, %v : !S_G, !K_G, !V_G
    %o = stretto.read %2, %x along "V" : !S_G, !V -> !K
    stretto.yield %o : !K
  })");
  expectAgreement();
}

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

TEST_F(AlgebraTest, ScansShareATotal) {
  declare(R"((%x: !K, %y: !n_G, %g: !K) -> (!K, !K, !K, !K, !n_G, !K) {
    %a = stretto.scan logaddexp %x : !K
    %b = stretto.scan logaddexp %x exclusive : !K
    %c = stretto.scan add %x log %g : !K, !K
    %d = stretto.scan max %x log %g exclusive : !K, !K
    %e = stretto.scan add %y : !n_G
    %f = stretto.scan logaddexp %x log %g : !K, !K
    stretto.yield %a, %b, %c, %d, %e, %f : !K, !K, !K, !K, !n_G, !K
  })");
  Program program;
  program.heads = {{"H", 2}, {"G", 2}};
  program.dims = {{"K", 8}};
  expectAgreement(program);
  std::string text = kernelText(program);
  EXPECT_NE(text.find("state %x_logaddexp: tensor<1x8xf64> lowest"), std::string::npos) << text;
}

//===----------------------------------------------------------------------===//
// Beyond the end of a sequence
//===----------------------------------------------------------------------===//

TEST_F(AlgebraTest, RowsThatAreNotZeroBeyondTheEndAreMasked) {
  // 1 / k is infinite there, and log k is not a number to be multiplied by 0.
  declare(R"((%q: !K, %k: !K, %v: !V, %f: !K) -> !V {
    %one = stretto.constant 1.0 : !K
    %kk = arith.mulf %k, %k : !K
    %inverse = arith.divf %one, %kk : !K
    %decay = arith.divf %one, %inverse : !K
    %bounded = arith.minimumf %decay, %one : !K
    %two = stretto.constant 2.0 : !V
    %v2 = arith.addf %v, %two : !V
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 factor %bounded along "K" : !S, !K
    %2 = stretto.write %1, %inverse, %v2 : !S, !K, !V
    %o = stretto.read %2, %q along "K" : !S, !K -> !V
    stretto.yield %o : !V
  })");
  Program program;
  program.heads = {{"H", 2}};
  expectAgreement(program);
}

TEST_F(AlgebraTest, NothingIsMaskedThatIsZero) {
  declare(R"((%q: !K, %k: !K, %v: !V, %g: !n, %p: tensor<?x?xf64, #stretto.param<[V, N]>>) -> !N {
    %half = stretto.constant 0.5 : !n
    %h = arith.mulf %g, %half : !n
    %vp = stretto.contract %v, %p : !V, tensor<?x?xf64, #stretto.param<[V, N]>> -> !N
    %one = stretto.constant 1.0 : !K
    %k1 = arith.subf %one, %k : !K
    %0 = stretto.state "S" : !stretto.state<K, N>
    %1 = stretto.decay %0 log %h : !stretto.state<K, N>, !n
    %2 = stretto.write %1, %k1, %vp : !stretto.state<K, N>, !K, !N
    %o = stretto.read %2, %q along "K" : !stretto.state<K, N>, !K -> !N
    stretto.yield %o : !N
  })");
  Program program;
  program.heads = {{"H", 2}};
  EXPECT_EQ(kernelText(program).find("chunk.mask"), std::string::npos) << kernelText(program);
  expectAgreement(program);
}

//===----------------------------------------------------------------------===//
// Row maps
//===----------------------------------------------------------------------===//

TEST_F(AlgebraTest, RowMaps) {
  declare(
      R"((%x: !K, %y: !K_G, %w_p: tensor<?x?xf64, #stretto.param<[K, V], G>>, %b: tensor<?xf64, #stretto.param<[V], G>>,
              %c: tensor<f64, #stretto.param<[], H>>, %m: !N) -> (!V, !n, !K, !n, tensor<?xf64, #stretto.row<"K*N">>, !K, !N) {
    %yH = stretto.broadcast %y : !K_G to !K
    %z = stretto.contract %x, %w_p : !K, tensor<?x?xf64, #stretto.param<[K, V], G>> -> !V
    %back = stretto.contract %z, %w_p transpose : !V, tensor<?x?xf64, #stretto.param<[K, V], G>> -> !K
    %bV = stretto.broadcast %b : tensor<?xf64, #stretto.param<[V], G>> to !V
    %cV = stretto.broadcast %c : tensor<f64, #stretto.param<[], H>> to !V
    %zb = arith.addf %z, %bV : !V
    %zc = arith.mulf %zb, %cV : !V
    %p = stretto.softmax %zc : !V
    %d = stretto.dot %x, %yH : !K -> !n
    %mean = stretto.reduce mean %x : !K -> !n
    %max = stretto.reduce max %x : !K -> !n
    %larger = arith.cmpf ogt, %d, %mean : !n
    %either = arith.select %larger, %max, %mean : tensor<i1, #stretto.row<()>>, !n
    %part = stretto.slice %x from "1" : !K -> !N
    %n = arith.mulf %part, %m : !N
    %outer = stretto.outer %x, %n : !K, !N -> tensor<?xf64, #stretto.row<"K*N">>
    %inner = stretto.inner %outer, %n : tensor<?xf64, #stretto.row<"K*N">>, !N -> !K
    %turned = stretto.inner %outer, %x transpose : tensor<?xf64, #stretto.row<"K*N">>, !K -> !N
    %s = stretto.logsigmoid %back : !K
    %sum = arith.addf %inner, %s : !K
    stretto.yield %p, %either, %s, %d, %outer, %sum, %turned : !V, !n, !K, !n, tensor<?xf64, #stretto.row<"K*N">>, !K, !N
  })");
  expectAgreement();
}

TEST_F(AlgebraTest, ConvolutionsAndDelaysShareATail) {
  declare(
      R"((%x: !K_G, %taps: tensor<?x4xf64, #stretto.param<[K, 4], G>>, %one: tensor<?x1xf64, #stretto.param<[K, 1], H>>,
              %n: !n) -> (!K, !K, !K, !n, !K) {
    %c = stretto.conv %x, %taps : !K_G, tensor<?x4xf64, #stretto.param<[K, 4], G>>
    %d = stretto.delay %x by 2 : !K_G
    %far = stretto.delay %c by 20 : !K_G
    %earlier = stretto.delay %n by 1 : !n
    %cH = stretto.broadcast %c : !K_G to !K
    %dH = stretto.broadcast %d : !K_G to !K
    %farH = stretto.broadcast %far : !K_G to !K
    %scaled = stretto.conv %cH, %one : !K, tensor<?x1xf64, #stretto.param<[K, 1], H>>
    stretto.yield %cH, %dH, %farH, %earlier, %scaled : !K, !K, !K, !n, !K
  })");
  Program program;
  program.dims = {{"K", 8}};
  expectAgreement(program);
}

TEST_F(AlgebraTest, TablesAndPositions) {
  declare(R"((%x: !K, %e: !n_G) -> (!K, !K, !K, !n, !n_G) {
    %five = arith.constant 5.0 : f64
    %odd = arith.constant 2.5 : f64
    %scale = arith.constant 0.25 : f64
    %periodic = stretto.table period %five {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %a = arith.mulf %t, %scale : f64
      %b = arith.addf %a, %h : f64
      %c = arith.addf %b, %d : f64
      stretto.yield %c : f64
    } : !K
    %broken = stretto.table period %odd {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %a = math.cos %t : f64
      stretto.yield %a : f64
    } : !K
    %still = stretto.table {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %a = arith.mulf %d, %h : f64
      stretto.yield %a : f64
    } : !K
    %perHead = stretto.table {
    ^bb0(%t: f64, %h: f64, %d: f64):
      stretto.yield %h : f64
    } : !n_G
    %t = stretto.position
    %tH = stretto.broadcast %t : !t to !n
    %y = arith.mulf %x, %periodic : !K
    %z = arith.addf %x, %broken : !K
    %u = arith.mulf %x, %still : !K
    %w = arith.addf %e, %perHead : !n_G
    stretto.yield %y, %z, %u, %tH, %w : !K, !K, !K, !n, !n_G
  })");
  Program program;
  program.dims = {{"K", 8}};
  program.heads = {{"H", 4}, {"G", 4}};
  expectAgreement(program);
}

TEST_F(AlgebraTest, ADecayThatIsConstantInTimeIsOneNumberForEachToken) {
  declare(R"((%q: !K, %k: !K_G, %v: !V_G) -> !V {
    %g = stretto.table {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %c = arith.constant -0.1 : f64
      %l = arith.mulf %c, %h : f64
      stretto.yield %l : f64
    } : !n_G
    %0 = stretto.state "S" : !S_G
    %1 = stretto.decay %0 log %g : !S_G, !n_G
    %2 = stretto.write %1, %k, %v : !S_G, !K_G, !V_G
    %o = stretto.read %2, %q along "K" : !S_G, !K -> !V
    stretto.yield %o : !V
  })");
  expectAgreement();
  std::string text = kernelText();
  EXPECT_NE(text.find("along rows : tensor<f64> to tensor<16xf64>"), std::string::npos) << text;
  EXPECT_NE(text.find("chunk.decay_dot %q, %k log %1 : tensor<16x8xf64>, tensor<16x8xf64>, tensor<16xf64>"),
            std::string::npos)
      << text;
}

//===----------------------------------------------------------------------===//
// Packed sequences
//===----------------------------------------------------------------------===//

TEST_F(AlgebraTest, NothingCrossesSequences) {
  declare(R"((%q: !K, %k: !K, %v: !V) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.write %0, %k, %v : !S, !K, !V
    %o = stretto.read %1, %q along "K" : !S, !K -> !V
    stretto.yield %o : !V
  })");
  Program program;
  program.heads = {{"H", 1}};
  std::vector<int64_t> offsets = {0, 0, 3, 20, 21};
  call.sequenceOffsets = offsets;
  call.finalState = true;
  for (auto [name, width] : {std::pair("q", 8), std::pair("k", 8), std::pair("v", 4)}) {
    std::vector<double> numbers(static_cast<size_t>(21) * width);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::sin(static_cast<double>(i) * (1 + width));
    row(name, width, numbers);
  }
  Outcome byToken = run();
  mlir::FailureOr<Outcome> byChunk = chunk::interpret(lower(program, 16), call);
  ASSERT_TRUE(succeeded(byChunk)) << messages;
  expectNear(byChunk->results[0].values, byToken.results[0].values);
  expectNear(byChunk->finalState[0].second.values, byToken.finalState[0].second.values);
}

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

#define EXPECT_REFUSED(message)                                                                                        \
  EXPECT_NE(chunkRefusal().find("[R14] variant 'f': no chunk form: " message), std::string::npos) << messages

TEST_F(AlgebraTest, RowsThatDependOnMoreThanOneRead) {
  declare(R"((%k: !K, %q: !K, %v: !V) -> !V {
    %0 = stretto.state "S" : !S
    %r = stretto.read %0, %k along "K" : !S, !K -> !V
    %p = stretto.read %0, %q along "K" : !S, !K -> !V
    %s = arith.addf %r, %p : !V
    %1 = stretto.write %0, %k, %s : !S, !K, !V
    stretto.yield %v : !V
  })");
  EXPECT_REFUSED("reads the state 'S', which is changed by more than one row and read that depend on it");
  expectStepAgreement();
}

TEST_F(AlgebraTest, RowsThatDependOnAReadOtherThanBySums) {
  declare(R"((%k: !K, %v: !V) -> !V {
    %0 = stretto.state "S" : !S
    %r = stretto.read %0, %k along "K" : !S, !K -> !V
    %s = math.tanh %r : !V
    %1 = stretto.write %0, %k, %s : !S, !K, !V
    stretto.yield %v : !V
  })");
  EXPECT_REFUSED(
      "what is written to the state 'S' depends on what is read from it, expected by sums and products with");
  expectStepAgreement();
}

TEST_F(AlgebraTest, RowsThatDependOnAReadTimesARow) {
  declare(R"((%k: !K, %v: !V) -> !V {
    %0 = stretto.state "S" : !S
    %r = stretto.read %0, %k along "K" : !S, !K -> !V
    %s = arith.mulf %r, %v : !V
    %1 = stretto.write %0, %k, %s : !S, !K, !V
    stretto.yield %v : !V
  })");
  EXPECT_REFUSED(
      "what is written to the state 'S' depends on what is read from it, expected by sums and products with");
  expectStepAgreement();
}

TEST_F(AlgebraTest, DecaysThatDependOnARead) {
  declare(R"((%k: !K, %v: !V) -> !V {
    %0 = stretto.state "S" : !S
    %r = stretto.read %0, %k along "K" : !S, !K -> !V
    %s = stretto.logsigmoid %r : !V
    %1 = stretto.decay %0 log %s along "V" : !S, !V
    %2 = stretto.write %1, %k, %v : !S, !K, !V
    stretto.yield %v : !V
  })");
  EXPECT_REFUSED("decays the state 'S' by what is read from it");
  expectStepAgreement();
}

TEST_F(AlgebraTest, RowsThatFeedBackAlongAnAxisThatDecays) {
  declare(R"((%k: !K, %v: !V, %g: !V) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 log %g along "V" : !S, !V
    %r = stretto.read %1, %k along "K" : !S, !K -> !V
    %s = arith.subf %v, %r : !V
    %2 = stretto.write %1, %k, %s : !S, !K, !V
    stretto.yield %v : !V
  })");
  EXPECT_REFUSED("reads along 'K' a state that decays along 'V', and a row that is written to it depends on this read");
  expectStepAgreement();
}

TEST_F(AlgebraTest, DecayAlongBothAxes) {
  declare(R"((%k: !K, %v: !V, %g: !V, %w: !K) -> !V {
    %0 = stretto.state "S" : !S
    %1 = stretto.decay %0 log %g along "V" : !S, !V
    %2 = stretto.decay %1 log %w along "K" : !S, !K
    %3 = stretto.write %2, %k, %v : !S, !K, !V
    stretto.yield %v : !V
  })");
  EXPECT_REFUSED("decays along 'K' a state that also decays along 'V'");
  expectStepAgreement();
}

} // namespace
} // namespace stretto
