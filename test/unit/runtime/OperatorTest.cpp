//===- OperatorTest.cpp - Calls without a tensor library ------------------===//

#include "runtime/Signature.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace stretto;
using testing::HasSubstr;

namespace {

constexpr const char *declaration = R"(
  !K = tensor<?xf64, #stretto.row<K>>
  !K_G = tensor<?xf64, #stretto.row<K, G>>
  !V_G = tensor<?xf64, #stretto.row<V, G>>
  !n_G = tensor<f64, #stretto.row<(), G>>
  !S = !stretto.state<K, V, G>
  stretto.variant @gated(%q: !K, %k: !K_G, %v: !V_G, %g: !n_G) -> tensor<?xf64, #stretto.row<V>>
      options(scale = "K**-0.5") {
    %S0 = stretto.state "S" : !S
    %S1 = stretto.decay %S0 log %g : !S, !n_G
    %S2 = stretto.write %S1, %k, %v : !S, !K_G, !V_G
    %scale = stretto.option "scale" : !K
    %qs = arith.mulf %q, %scale : !K
    %o = stretto.read %S2, %qs along "K" : !S, !K -> tensor<?xf64, #stretto.row<V>>
    stretto.yield %o : tensor<?xf64, #stretto.row<V>>
  })";

constexpr int64_t batch = 2, time = 40, heads = 4, groups = 2, keyWidth = 16, valueWidth = 32;

/// A contiguous tensor of f32.
struct Tensor {
  explicit Tensor(std::vector<int64_t> shape) : sizes(std::move(shape)), strides(sizes.size(), 1) {
    int64_t count = 1;
    for (size_t axis = sizes.size(); axis-- > 0; count *= sizes[axis])
      strides[axis] = count;
    numbers.resize(count);
    for (int64_t i = 0; i < count; ++i)
      numbers[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
  }
  TensorView view() { return {numbers.data(), ElementType::F32, "float32", -1, sizes, strides}; }

  std::vector<int64_t> sizes, strides;
  std::vector<float> numbers;
};

class OperatorTest : public testing::Test {
protected:
  OperatorTest() : op(llvm::cantFail(Operator::create(declaration))) {
    for (float &gate : g.numbers)
      gate = -std::abs(gate);
  }

  OperatorCall call() {
    OperatorCall call;
    call.arguments = {q.view(), k.view(), v.view(), g.view()};
    call.options = {""};
    return call;
  }
  std::string refusal(const OperatorCall &call) {
    llvm::Expected<Operator::Signature *> signature = op->check(call);
    return signature ? "accepted" : llvm::toString(signature.takeError());
  }
  std::string contentRefusal() {
    OperatorCall checked = call();
    Operator::Signature *signature = llvm::cantFail(op->check(checked));
    llvm::Error error = Operator::checkContents(*signature, checked, serial);
    return error ? llvm::toString(std::move(error)) : "accepted";
  }

  static void serial(int64_t count, llvm::function_ref<void(int64_t, int64_t)> body) { body(0, count); }

  std::unique_ptr<Operator> op;
  Tensor q{{batch, time, heads, keyWidth}}, k{{batch, time, groups, keyWidth}}, v{{batch, time, groups, valueWidth}},
      g{{batch, time, groups}};
};

TEST_F(OperatorTest, SaysWhatResultsAndStateLookLike) {
  Operator::Signature *signature = llvm::cantFail(op->check(call()));
  ASSERT_EQ(signature->results.size(), 1u);
  EXPECT_EQ(signature->results[0].sizes, (llvm::SmallVector<int64_t, 2>{heads, valueWidth}));
  ASSERT_EQ(signature->state.size(), 1u);
  EXPECT_EQ(signature->state[0].name, "S");
  EXPECT_EQ(signature->state[0].sizes, (llvm::SmallVector<int64_t, 3>{groups, keyWidth, valueWidth}));
}

TEST_F(OperatorTest, BatchAndTimeAreNoPartOfTheSignature) {
  Operator::Signature *signature = llvm::cantFail(op->check(call()));
  q = Tensor({1, 7, heads, keyWidth}), k = Tensor({1, 7, groups, keyWidth});
  v = Tensor({1, 7, groups, valueWidth}), g = Tensor({1, 7, groups});
  EXPECT_EQ(llvm::cantFail(op->check(call())), signature);
  OperatorCall scaled = call();
  scaled.options = {"1"};
  EXPECT_NE(llvm::cantFail(op->check(scaled)), signature);
}

TEST_F(OperatorTest, RefusesShapesThatDoNotFit) {
  k = Tensor({batch, time, groups});
  EXPECT_THAT(refusal(call()), HasSubstr("[R1] the argument 'k' has shape [2, 40, 2], expected rank 4"));
  k = Tensor({batch, time + 1, groups, keyWidth});
  EXPECT_THAT(refusal(call()), HasSubstr("[R1] the argument 'k' has T = 41, expected 40 as 'q' has"));
  k = Tensor({batch, time, groups, keyWidth + 1});
  EXPECT_THAT(refusal(call()), HasSubstr("[R3]"));
  k = Tensor({batch, time, 3, keyWidth});
  v = Tensor({batch, time, 3, valueWidth});
  g = Tensor({batch, time, 3});
  EXPECT_THAT(refusal(call()), HasSubstr("[R2]"));
}

TEST_F(OperatorTest, RefusesAnotherTimeAfterASignatureIsKnown) {
  EXPECT_EQ(refusal(call()), "accepted");
  v = Tensor({batch, time - 1, groups, valueWidth});
  EXPECT_THAT(refusal(call()), HasSubstr("[R1] the argument 'v' has T = 39, expected 40 as 'q' has"));
}

TEST_F(OperatorTest, RefusesTypes) {
  OperatorCall mixed = call();
  mixed.arguments[2]->type = ElementType::BF16;
  mixed.arguments[2]->typeName = "bfloat16";
  EXPECT_EQ(refusal(mixed), "[R4] 'v' has entries of type bfloat16, expected float32 as 'q' has");
  OperatorCall integers = call();
  integers.arguments[3]->type = std::nullopt;
  integers.arguments[3]->typeName = "int32";
  EXPECT_EQ(refusal(integers), "[R4] 'g' has entries of type int32, expected float16, bfloat16, float32 or float64");
}

TEST_F(OperatorTest, GatesMayBeWide) {
  OperatorCall wide = call();
  for (unsigned index : {0, 1, 2}) {
    wide.arguments[index]->type = ElementType::BF16;
    wide.arguments[index]->typeName = "bfloat16";
  }
  EXPECT_EQ(refusal(wide), "accepted");
  wide.arguments[3]->type = ElementType::F16;
  wide.arguments[3]->typeName = "float16";
  EXPECT_EQ(refusal(wide), "[R4] 'g' has entries of type float16, expected bfloat16 as 'q' has, or float32");
}

TEST_F(OperatorTest, RefusesMixedDevices) {
  OperatorCall mixed = call();
  mixed.arguments[1]->device = 3;
  EXPECT_EQ(refusal(mixed), "[R5] 'k' is on CUDA device 3, expected the CPU, where 'q' is");
}

TEST_F(OperatorTest, RefusesStates) {
  Tensor state({batch, groups, keyWidth, valueWidth + 1});
  OperatorCall continued = call();
  continued.initialState = {state.view()};
  EXPECT_EQ(refusal(continued), "[R6] 'S' of 'initial_state' is float32[2, 2, 16, 33], expected float32[2, 2, 16, 32]");
  continued.initialState.push_back(state.view());
  EXPECT_EQ(refusal(continued), "[R6] 'initial_state' has 2 tensors, expected 1");
}

TEST_F(OperatorTest, RefusesPacking) {
  std::vector<int64_t> offsets = {0, time}, size = {2}, stride = {1};
  OperatorCall packed = call();
  packed.sequenceOffsets = TensorView{offsets.data(), std::nullopt, "int64", -1, size, stride};
  EXPECT_EQ(refusal(packed), "[R7] 'cu_seqlens' is given with B = 2, expected B = 1");
  packed.sequenceOffsets->typeName = "float32";
  EXPECT_EQ(refusal(packed), "[R7] 'cu_seqlens' has entries of type float32, expected int32 or int64");
}

TEST_F(OperatorTest, FindsOneGateThatGrows) {
  EXPECT_EQ(contentRefusal(), "accepted");
  g.numbers[117] = 1e-30f;
  EXPECT_THAT(contentRefusal(), HasSubstr("[R13] 'g' has an entry above 0"));
  g.numbers[117] = -INFINITY;
  EXPECT_EQ(contentRefusal(), "accepted");
  g.numbers[117] = NAN; // shows in the result
  EXPECT_EQ(contentRefusal(), "accepted");
}

TEST_F(OperatorTest, LooksAtViewsOnly) {
  // Every second token of a longer tensor: what lies between is not looked at.
  Tensor whole({batch, 2 * time, groups});
  for (size_t i = 0; i < whole.numbers.size(); ++i)
    whole.numbers[i] = i / groups % 2 ? 1.0f : -1.0f;
  OperatorCall strided = call();
  std::vector<int64_t> strides = {2 * time * groups, 2 * groups, 1};
  strided.arguments[3]->data = whole.numbers.data();
  strided.arguments[3]->strides = strides;
  Operator::Signature *signature = llvm::cantFail(op->check(strided));
  EXPECT_FALSE(Operator::checkContents(*signature, strided, serial));
  whole.numbers[2 * groups * (time - 1)] = 1; // the last token of the first sequence
  EXPECT_TRUE(llvm::errorToBool(Operator::checkContents(*signature, strided, serial)));
}

TEST_F(OperatorTest, FindsHalfPrecisionSigns) {
  std::vector<uint16_t> halves(g.numbers.size(), 0x8000); // -0
  for (auto [type, name, infinity] :
       {std::tuple(ElementType::BF16, "bfloat16", 0x7f80), std::tuple(ElementType::F16, "float16", 0x7c00)}) {
    OperatorCall narrow = call();
    for (auto &argument : narrow.arguments) {
      argument->type = type;
      argument->typeName = name;
    }
    narrow.arguments[3]->data = halves.data();
    Operator::Signature *signature = llvm::cantFail(op->check(narrow));
    auto isRefused = [&](int bits) {
      halves[33] = static_cast<uint16_t>(bits);
      return llvm::errorToBool(Operator::checkContents(*signature, narrow, serial));
    };
    for (int bits : {0x0000, 0x8000, 0x8001, 0xbf80, infinity | 0x8000, infinity + 1, (infinity + 1) | 0x8000})
      EXPECT_FALSE(isRefused(bits)) << std::hex << bits;
    for (int bits : {0x0001, 0x3f80, infinity})
      EXPECT_TRUE(isRefused(bits)) << std::hex << bits;
    halves[33] = 0;
  }
}

TEST_F(OperatorTest, FindsBadOffsets) {
  q = Tensor({1, time, heads, keyWidth}), k = Tensor({1, time, groups, keyWidth});
  v = Tensor({1, time, groups, valueWidth}), g = Tensor({1, time, groups});
  for (float &gate : g.numbers)
    gate = 0;
  auto refusalOf = [&](std::vector<int64_t> offsets) {
    std::vector<int64_t> size = {static_cast<int64_t>(offsets.size())}, stride = {1};
    OperatorCall packed = call();
    packed.sequenceOffsets = TensorView{offsets.data(), std::nullopt, "int64", -1, size, stride};
    Operator::Signature *signature = llvm::cantFail(op->check(packed));
    llvm::Error error = Operator::checkContents(*signature, packed, serial);
    return error ? llvm::toString(std::move(error)) : "accepted";
  };
  EXPECT_EQ(refusalOf({0, 0, 17, 17, time}), "accepted");
  EXPECT_EQ(refusalOf({1, time}), "[R7] 'cu_seqlens' starts at 1, expected 0");
  EXPECT_THAT(refusalOf({0, 20, 10, time}), HasSubstr("[R7] 'cu_seqlens' falls from 20 to 10 at index 2"));
  EXPECT_EQ(refusalOf({0, time - 1}), "[R7] 'cu_seqlens' ends at 39, expected the number of tokens, 40");
}

TEST_F(OperatorTest, RunsOnTheCpu) {
  OperatorCall checked = call();
  Operator::Signature *signature = llvm::cantFail(op->check(checked));
  Tensor o({batch, time, heads, valueWidth}), state({batch, groups, keyWidth, valueWidth});
  Operator::Prepared prepared = llvm::cantFail(Operator::prepare(*signature, checked, /*threads=*/1));
  EXPECT_EQ(prepared.workspaceBytes, 0);
  llvm::cantFail(Operator::run(*signature, prepared, checked, {o.view()}, {state.view()}, /*workspace=*/nullptr,
                               {.threads = 1, .parallelFor = serial, .upload = nullptr}));

  double scale = 1 / std::sqrt(double(keyWidth)), worst = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      int64_t group = h / (heads / groups);
      std::vector<double> S(keyWidth * valueWidth);
      for (int64_t t = 0; t < time; ++t) {
        double a = std::exp(double(g.numbers[(b * time + t) * groups + group]));
        const float *key = &k.numbers[((b * time + t) * groups + group) * keyWidth];
        const float *value = &v.numbers[((b * time + t) * groups + group) * valueWidth];
        const float *query = &q.numbers[((b * time + t) * heads + h) * keyWidth];
        for (int64_t j = 0; j < valueWidth; ++j) {
          double sum = 0;
          for (int64_t i = 0; i < keyWidth; ++i) {
            S[i * valueWidth + j] = a * S[i * valueWidth + j] + double(key[i]) * double(value[j]);
            sum += scale * double(query[i]) * S[i * valueWidth + j];
          }
          worst = std::max(worst, std::abs(sum - double(o.numbers[((b * time + t) * heads + h) * valueWidth + j])));
        }
      }
      for (int64_t i = 0; i < keyWidth * valueWidth; ++i)
        worst =
            std::max(worst, std::abs(S[i] - double(state.numbers[(b * groups + group) * keyWidth * valueWidth + i])));
    }
  EXPECT_LT(worst, 2e-5);
}

} // namespace
