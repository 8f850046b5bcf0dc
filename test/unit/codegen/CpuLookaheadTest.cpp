//===- CpuLookaheadTest.cpp - Folds ahead against the interpreter ---------===//

#include "CpuKernelTest.h"
#include <cmath>

namespace stretto {
namespace {

/// A kernel of chunks of 16 tokens whose look-back stands in `body`, %y being its result; `isBack`: in reverse time.
std::string kernel(const std::string &body, bool isBack) {
  return R"(
    chunk.table @position varying {
    ^bb0(%t: f64, %h: f64, %d: f64):
      chunk.result %t : f64
    }
    chunk.kernel @kernel chunk 16)" +
         std::string(isBack ? " reverse" : "") +
         R"((input %x: tensor<16x8xf32>, input %z: tensor<16x24xf32> group 2, table %position: tensor<16xf32>,
        state %S: tensor<8x24xf32>, valid %n: index) -> (o: tensor<16x24xf32>) {)" +
         body + R"(
    })";
}

/// Where the range of a token of the other chunk begins and ends: `distance` tokens before it, and `lag`.
std::string bounds(double distance, double lag) {
  return R"(
        %distance = arith.constant dense<)" +
         std::to_string(distance) + R"(> : tensor<16xf32>
        %first = arith.subf %position_j, %distance : tensor<16xf32>
        %lag = arith.constant dense<)" +
         std::to_string(lag) + R"(> : tensor<16xf32>
        %last = arith.subf %position_j, %lag : tensor<16xf32>)";
}

std::string sum(const std::string &words, const std::string &bounds, const std::string &range, bool isBack = true) {
  return kernel(R"(
      %y = chunk.lookback sum ahead )" +
                    words +
                    R"( past(%position_j = %position : tensor<16xf32>, %x_j = %x : tensor<16x8xf32>,
                             %z_j = %z : tensor<16x24xf32>) {)" +
                    bounds + R"(
        %s = chunk.dot %x, %x_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
        %e = math.exp %s : tensor<16x16xf32>
        chunk.contribute %e, %z_j : tensor<16x16xf32>, tensor<16x24xf32> )" +
                    range + R"(
      } : tensor<16x24xf32>
      chunk.yield %y next %S : tensor<16x24xf32>, tensor<8x24xf32>)",
                isBack);
}

using CpuLookaheadTest = CpuKernelTest;
constexpr int64_t lengths[] = {0, 1, 15, 16, 17, 33, 70};
const std::string from = "from %first : tensor<16xf32>", fromTo = from + " to %last : tensor<16xf32>";

TEST_F(CpuLookaheadTest, SumsOverTheTokensThatLookBack) {
  for (auto [distance, isBack] : {std::pair{0, true}, {16, true}, {40, true}, {40, false}}) {
    SCOPED_TRACE("a range of " + std::to_string(distance) + " tokens before");
    compile(sum("", bounds(distance, 0), from, isBack));
    checkLengths(lengths);
  }
}

TEST_F(CpuLookaheadTest, RangesMayEndEarly) {
  for (auto [distance, lag] : {std::pair{20, 3}, {40, 39}, {5, 6}}) {
    SCOPED_TRACE("ranges that end " + std::to_string(lag) + " tokens before");
    compile(sum("", bounds(distance, lag), fromTo));
    checkLengths(lengths);
  }
}

TEST_F(CpuLookaheadTest, RangesToTheEndAreSeenFromBefore) {
  compile(sum("to_end", bounds(10, 0), from));
  checkLengths(lengths);
}

TEST_F(CpuLookaheadTest, PackedSequencesAndPositions) {
  compile(sum("", bounds(20, 3), fromTo));
  Problem packed;
  packed.tokens = 90;
  packed.offsets = {0, 0, 17, 50, 50, 90};
  check(packed);
  Problem later;
  later.tokens = 50;
  later.positions = {5, 100};
  check(later);
}

TEST_F(CpuLookaheadTest, OuterProductsOfTheTokensThatLookBack) {
  compile(kernel(R"(
      %y = chunk.lookback outer ahead past(%position_j = %position : tensor<16xf32>, %x_j = %x : tensor<16x8xf32>,
                                           %z_j = %z : tensor<16x24xf32>) {)" +
                     bounds(25, 18) + R"(
        chunk.contribute %x_j, %z_j : tensor<16x8xf32>, tensor<16x24xf32> )" +
                     fromTo + R"(
      } : tensor<8x24xf32>
      %next = arith.addf %S, %y : tensor<8x24xf32>
      chunk.yield %z next %next : tensor<16x24xf32>, tensor<8x24xf32>)",
                 /*isBack=*/true));
  checkLengths(lengths);
}

} // namespace
} // namespace stretto
