//===- GradientTest.cpp - What gradients ask for beside their call --------===//

#include "runtime/Gradient.h"
#include "gtest/gtest.h"

using namespace stretto;

namespace {

/// The bytes that the gradient of a call on one sequence lends, by its tokens. No tensor has memory.
class Workspace {
public:
  explicit Workspace(const char *declaration) : op(llvm::cantFail(Operator::create(declaration))) {}

  int64_t bytes(int64_t time, int64_t heads, std::initializer_list<int64_t> widths,
                ElementType type = ElementType::F32) {
    std::vector<std::array<int64_t, 4>> sizes, strides;
    for (int64_t width : widths) {
      sizes.push_back({1, time, heads, width});
      strides.push_back({time * heads * width, heads * width, width, 1});
    }
    OperatorCall call;
    for (size_t i = 0; i < sizes.size(); ++i)
      call.arguments.push_back(TensorView{nullptr, type, spellType(type), -1, sizes[i], strides[i]});
    Operator::Signature *signature = llvm::cantFail(op->check(call));
    return llvm::cantFail(signature->gradient())->workspaceBytes(call);
  }

private:
  std::unique_ptr<Operator> op;
};

TEST(GradientTest, RelationsKeepTwoNumbersOfEachTokenAndHead) {
  Workspace relation(R"(
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
  EXPECT_EQ(bytes, 2 * 4 * tokens * heads);
  EXPECT_LT(bytes, int64_t(1) << 30);
}

TEST(GradientTest, WindowsKeepThreeNumbersOfEachTokenAndHead) {
  Workspace window(R"(
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
  Workspace linear(R"(
    !K = tensor<?xf64, #stretto.row<K>>
    !V = tensor<?xf64, #stretto.row<V>>
    stretto.variant @linear(%q: !K, %k: !K, %v: !V) -> !V {
      %S0 = stretto.state "S" : !stretto.state<K, V>
      %S1 = stretto.write %S0, %k, %v : !stretto.state<K, V>, !K, !V
      %o = stretto.read %S1, %q along "K" : !stretto.state<K, V>, !K -> !V
      stretto.yield %o : !V
    })");
  constexpr int64_t chunk = 64, heads = 3;
  for (int64_t width : {64, 128})
    for (int64_t tokens : {1, 2048, 8192, 32768}) {
      int64_t input = 2 * tokens * heads * width, checkpoint = 4 * heads * width * width;
      int64_t bytes = linear.bytes(tokens, heads, {width, width, width}, ElementType::BF16);
      EXPECT_LE(bytes, std::max(2 * input, checkpoint)) << tokens << " tokens of width " << width;
      // No segments where they are not needed.
      int64_t ofAllChunks = (tokens + chunk - 1) / chunk * checkpoint;
      if (ofAllChunks <= 2 * input)
        EXPECT_EQ(bytes, ofAllChunks);
    }
}

} // namespace
