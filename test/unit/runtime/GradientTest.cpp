//===- GradientTest.cpp - What gradients ask for beside their call --------===//

#include "runtime/Gradient.h"
#include "gtest/gtest.h"

using namespace stretto;

namespace {

/// An operator, and calls of it on one sequence. No tensor has memory.
class Calls {
public:
  explicit Calls(const char *declaration) : op(llvm::cantFail(Operator::create(declaration))) {}

  Operator::Signature &of(int64_t time, int64_t heads, std::initializer_list<int64_t> widths,
                          ElementType type = ElementType::F32) {
    sizes.clear();
    strides.clear();
    for (int64_t width : widths) {
      sizes.push_back({1, time, heads, width});
      strides.push_back({time * heads * width, heads * width, width, 1});
    }
    call = OperatorCall();
    for (auto [size, stride] : llvm::zip_equal(sizes, strides)) {
      if (size.back() == 0) // a number
        stride = {time * heads, heads, 1, 0};
      size_t rank = size.back() ? 4 : 3;
      call.arguments.push_back(TensorView{nullptr, type, spellType(type), -1, llvm::ArrayRef(size).take_front(rank),
                                          llvm::ArrayRef(stride).take_front(rank)});
    }
    return *llvm::cantFail(op->check(call));
  }

  /// The bytes that the gradient lends.
  int64_t bytes(int64_t time, int64_t heads, std::initializer_list<int64_t> widths,
                ElementType type = ElementType::F32) {
    Operator::Signature &signature = of(time, heads, widths, type);
    auto all = GradientRequest::ofAll(op->inputs().size(), signature.state.size(), signature.results.size());
    return llvm::cantFail(signature.gradientFor(call, all, /*threads=*/1))->workspaceBytes(call);
  }

  OperatorCall call;

private:
  std::unique_ptr<Operator> op;
  std::vector<std::array<int64_t, 4>> sizes, strides;
};

TEST(GradientTest, RelationsKeepTwoNumbersOfEachTokenAndHead) {
  Calls relation(R"(
    !D = tensor<?xf64, #stretto.row<D>>
    !n = tensor<f64, #stretto.row<()>>
    !n_per_1 = tensor<f64, #stretto.row<(), 1>>
    stretto.variant @relation(%teacher: !D, %student: !D) -> !n {
      %zero = stretto.constant 0.0 : !n_per_1
      %fixed = stretto.stop_gradient %teacher : !D
      %kl, %a, %b = stretto.lookback divergence from %zero to_end {
        %t = stretto.past %fixed : !D
        %z_t = stretto.dot %fixed, %t : !D -> !n
        %s = stretto.past %student : !D
        %z_s = stretto.dot %student, %s : !D -> !n
        stretto.yield %z_t, %z_s : !n, !n
      } : !n, !n, !n
      stretto.yield %kl : !n
    })");
  // Of the divergence itself the gradient needs nothing: the two log-sum-exps, and the cotangent is given.
  int64_t tokens = 32768, heads = 32;
  int64_t bytes = relation.bytes(tokens, heads, {16, 16});
  EXPECT_EQ(bytes, 8 * tokens * heads);
  EXPECT_LT(bytes, int64_t(1) << 30);
}

TEST(GradientTest, WindowsKeepThreeNumbersOfEachTokenAndHead) {
  Calls window(R"(
    !D = tensor<?xf64, #stretto.row<D>>
    !n = tensor<f64, #stretto.row<()>>
    !n_per_1 = tensor<f64, #stretto.row<(), 1>>
    stretto.variant @window(%q: !D, %k: !D, %v: !D) -> !D {
      %t = stretto.position
      %w = stretto.constant 63.0 : !n_per_1
      %first = arith.subf %t, %w : !n_per_1
      %m, %l, %acc = stretto.lookback softmax from %first {
        %k_j = stretto.past %k : !D
        %s = stretto.dot %q, %k_j : !D -> !n
        %v_j = stretto.past %v : !D
        stretto.yield %s, %v_j : !n, !D
      } : !n, !n, !D
      %ls = stretto.broadcast %l : !n to !D
      %o = arith.divf %acc, %ls : !D
      stretto.yield %o : !D
    })");
  for (int64_t tokens : {64, 4096})
    EXPECT_EQ(window.bytes(tokens, /*heads=*/2, {64, 64, 64}), 3 * 4 * tokens * 2);
}

TEST(GradientTest, CheckpointsTakeNoMoreThanTwoInputs) {
  Calls decayed(R"(
    !K = tensor<?xf64, #stretto.row<K>>
    !V = tensor<?xf64, #stretto.row<V>>
    !n = tensor<f64, #stretto.row<()>>
    !S = !stretto.state<K, V>
    stretto.variant @decayed(%q: !K, %k: !K, %v: !V, %g: !n) -> !V {
      %S0 = stretto.state "S" : !S
      %S1 = stretto.decay %S0 log %g : !S, !n
      %S2 = stretto.write %S1, %k, %v : !S, !K, !V
      %o = stretto.read %S2, %q along "K" : !S, !K -> !V
      stretto.yield %o : !V
    })");
  constexpr int64_t chunk = 32, heads = 3;
  for (int64_t width : {64, 128})
    for (int64_t tokens : {1, 2048, 8192, 32768}) {
      int64_t input = 2 * tokens * heads * width, checkpoint = 2 * heads * width * width;
      int64_t bytes = decayed.bytes(tokens, heads, {width, width, width, 0}, ElementType::BF16);
      EXPECT_LE(bytes, std::max(2 * input, checkpoint)) << tokens << " tokens of width " << width;
      // Checkpoints are of the type of the rows; no segments where they are not needed.
      int64_t ofAllChunks = (tokens + chunk - 1) / chunk * checkpoint;
      if (ofAllChunks <= 2 * input)
        EXPECT_EQ(bytes, ofAllChunks);
    }
}

TEST(GradientTest, WhatOneWalkFindsIsKeptNowhere) {
  Calls linear(R"(
    !K = tensor<?xf64, #stretto.row<K>>
    !V = tensor<?xf64, #stretto.row<V>>
    stretto.variant @linear(%q: !K, %k: !K, %v: !V) -> !V {
      %S0 = stretto.state "S" : !stretto.state<K, V>
      %S1 = stretto.write %S0, %k, %v : !stretto.state<K, V>, !K, !V
      %o = stretto.read %S1, %q along "K" : !stretto.state<K, V>, !K -> !V
      stretto.yield %o : !V
    })");
  EXPECT_EQ(linear.bytes(/*time=*/8192, /*heads=*/3, {64, 64, 64}), 0);
}

TEST(GradientTest, NothingIsBuiltForWhatNobodyWants) {
  Calls gated(R"(
    !K = tensor<?xf64, #stretto.row<K>>
    !V = tensor<?xf64, #stretto.row<V>>
    !S = !stretto.state<K, V>
    stretto.variant @gated(%q: !K, %k: !K, %v: !V, %g: !K) -> !V {
      %S0 = stretto.state "S" : !S
      %S1 = stretto.decay %S0 log %g along "K" : !S, !K
      %S2 = stretto.write %S1, %k, %v : !S, !K, !V
      %o = stretto.read %S2, %q along "K" : !S, !K -> !V
      stretto.yield %o : !V
    })");
  Operator::Signature &signature = gated.of(/*time=*/640, /*heads=*/2, {16, 16, 8, 16});
  auto gradientOf = [&](std::vector<bool> inputs, bool state = false, bool result = true) {
    return llvm::cantFail(signature.gradientFor(gated.call, {std::move(inputs), {state}, {result}}, /*threads=*/1));
  };
  // The cotangent of the state alone walks back for values: no checkpoint, no parts of other rows.
  auto *ofValues = gradientOf({false, false, true, false});
  EXPECT_EQ(ofValues->rows.size(), 1u);
  EXPECT_EQ(ofValues->workspaceBytes(gated.call), 0);
  // Queries meet the states of the forward walk, and no state runs in reverse: one walk, which keeps nothing.
  auto *ofQueries = gradientOf({true, false, false, false});
  EXPECT_EQ(ofQueries->rows.size(), 1u);
  EXPECT_EQ(ofQueries->entries.size(), 0u);
  EXPECT_EQ(ofQueries->workspaceBytes(gated.call), 0);
  EXPECT_FALSE(ofQueries->lastKernel().code->manifest.reverse);
  auto *ofState = gradientOf({false, false, false, false}, /*state=*/true);
  EXPECT_EQ(ofState->rows.size(), 0u);
  EXPECT_TRUE(ofState->entries.front().isWanted);
  EXPECT_EQ(ofState->workspaceBytes(gated.call), 0);
  // One for each choice.
  EXPECT_EQ(gradientOf({false, false, true, false}), ofValues);
  EXPECT_NE(gradientOf({false, false, true, false}, /*state=*/false, /*result=*/false), ofValues);
  EXPECT_NE(ofValues, ofQueries);
}

} // namespace
