//===- CallsTest.cpp - Batches, packed sequences, continuation, refusals --===//

#include "InterpreterTest.h"
#include "dialect/stretto/StateEntries.h"
#include <cmath>

namespace stretto {
namespace {

/// A declaration with one of everything that is carried: a convolution, a scan, a position and a state.
class CallsTest : public InterpreterTest {
protected:
  CallsTest() {
    declare(R"((%q: !K, %k: !K_G, %v: !V_G, %taps: tensor<?x3xf64, #stretto.param<[K, 3], G>>) -> !V
        options(scale = "K**-0.5") {
      %c = stretto.conv %k, %taps : !K_G, tensor<?x3xf64, #stretto.param<[K, 3], G>>
      %total = stretto.scan logaddexp %v : !V_G
      %0 = stretto.state "S" : !S_G
      %1 = stretto.write %0, %c, %total : !S_G, !K_G, !V_G
      %scale = stretto.option "scale" : !K
      %qs = arith.mulf %q, %scale : !K
      %o = stretto.read %1, %qs along "K" : !S_G, !K -> !V
      %t = stretto.position
      %tV = stretto.broadcast %t : !t to !V
      %y = arith.addf %o, %tV : !V
      stretto.yield %y : !V
    })");
    set("taps", {G, K, 3}, wave(G * K * 3, 5));
  }

  static std::vector<double> wave(int64_t count, double phase) {
    std::vector<double> numbers(count);
    for (int64_t i = 0; i < count; ++i)
      numbers[i] = std::sin(1.3 * static_cast<double>(i) + phase);
    return numbers;
  }

  void giveRows(int64_t batch, int64_t time) {
    q = wave(batch * time * H * K, 1);
    k = wave(batch * time * G * K, 2);
    v = wave(batch * time * G * V, 3);
    giveTokens(batch, 0, time);
  }
  /// The tokens `[from, to)` of the rows, which hold as many for each batch row as `giveRows` said.
  void giveTokens(int64_t batch, int64_t from, int64_t to) {
    auto part = [&](const char *name, const std::vector<double> &x, int64_t heads, int64_t width) {
      int64_t size = heads * width, time = batch ? static_cast<int64_t>(x.size()) / (batch * size) : 0;
      std::vector<double> some;
      for (int64_t b = 0; b < batch; ++b)
        some.insert(some.end(), x.begin() + (b * time + from) * size, x.begin() + (b * time + to) * size);
      set(name, {batch, to - from, heads, width}, some);
    };
    part("q", q, H, K);
    part("k", k, G, K);
    part("v", v, G, V);
  }
  void continueFrom(const Outcome &outcome) {
    for (const auto &[name, array] : outcome.finalState)
      initial(name, array.shape, array.values);
  }

  static constexpr int64_t H = 4, G = 2, K = 3, V = 2;
  std::vector<double> q, k, v;
};

TEST_F(CallsTest, ASequenceContinuesFromItsState) {
  const int64_t batch = 2, time = 6;
  giveRows(batch, time);
  call.finalState = true;
  Outcome whole = run();
  ASSERT_EQ(whole.finalState.size(), 4u);
  for (auto [index, name] :
       {std::pair<size_t, std::string>(0, "k_tail"), {1, "v_logaddexp"}, {2, "S"}, {3, "position"}})
    EXPECT_EQ(whole.finalState[index].first, name);
  EXPECT_EQ(whole.results[0].shape, (llvm::SmallVector<int64_t, 4>{batch, time, H, V}));

  for (int64_t cut = 0; cut <= time; ++cut) {
    SCOPED_TRACE(cut);
    call.initialState.clear();
    giveTokens(batch, 0, cut);
    Outcome first = run();
    giveTokens(batch, cut, time);
    continueFrom(first);
    Outcome second = run();
    std::vector<double> joined;
    for (int64_t b = 0; b < batch; ++b)
      for (auto [part, length] : {std::pair(&first, cut), {&second, time - cut}}) {
        auto begin = part->results[0].values.begin() + b * length * H * V;
        joined.insert(joined.end(), begin, begin + length * H * V);
      }
    expectNear(joined, whole.results[0].values);
    for (size_t i = 0; i < whole.finalState.size(); ++i)
      expectNear(second.finalState[i].second.values, whole.finalState[i].second.values);
  }
}

TEST_F(CallsTest, PackedSequencesDoNotMeet) {
  giveRows(1, 7);
  const std::vector<int64_t> offsets = {0, 0, 3, 3, 7, 7};
  call.sequenceOffsets = offsets;
  call.finalState = true;
  // Every sequence has an initial state of its own.
  std::vector<StateEntry> entries;
  const int64_t count = 5;
  initial("S", {count, G, K, V}, wave(count * G * K * V, 7));
  initial("k_tail", {count, 2, G, K}, wave(count * 2 * G * K, 8));
  initial("position", {count}, {0, 10, 20, 30, 40});
  Outcome packed = run();
  EXPECT_EQ(packed.finalState[2].second.shape, (llvm::SmallVector<int64_t, 4>{count, G, K, V}));

  std::vector<double> joined;
  std::map<std::string, ArrayView> initialStates = call.initialState;
  call.sequenceOffsets.reset();
  for (int64_t i = 0; i < count; ++i) {
    giveTokens(1, offsets[i], offsets[i + 1]);
    for (const auto &[name, view] : initialStates) {
      llvm::SmallVector<int64_t, 4> shape = view.shape;
      shape[0] = 1;
      llvm::ArrayRef<double> all = view.values;
      call.initialState[name] = {shape, all.slice(i * all.size() / count, all.size() / count)};
    }
    Outcome alone = run();
    joined.insert(joined.end(), alone.results[0].values.begin(), alone.results[0].values.end());
    for (size_t entry = 0; entry < 4; ++entry) {
      llvm::ArrayRef<double> all = packed.finalState[entry].second.values;
      expectNear(alone.finalState[entry].second.values, all.slice(i * all.size() / count, all.size() / count));
    }
  }
  expectNear(packed.results[0].values, joined);
}

TEST_F(CallsTest, NoTokensAndNoBatch) {
  call.finalState = true;
  giveRows(2, 0);
  Outcome outcome = run();
  EXPECT_EQ(outcome.results[0].shape, (llvm::SmallVector<int64_t, 4>{2, 0, H, V}));
  expectNear(outcome.finalState[1].second.values, std::vector<double>(2 * G * V, -infinity));
  expectNear(outcome.finalState[3].second.values, {0, 0});
  giveRows(0, 5);
  EXPECT_EQ(run().results[0].shape, (llvm::SmallVector<int64_t, 4>{0, 5, H, V}));
}

TEST_F(CallsTest, ANanStaysInItsSequenceAndHead) {
  giveRows(2, 3);
  std::vector<double> clean = result();
  k[1 * G * K] = std::nan(""); // batch row 0, token 1, head 0
  giveTokens(2, 0, 3);
  std::vector<double> found = result();
  for (size_t i = 0; i < found.size(); ++i) {
    size_t head = i / V % H, token = i / (V * H) % 3, batch = i / (V * H * 3);
    if (batch == 0 && token >= 1 && head < 2)
      EXPECT_TRUE(std::isnan(found[i]));
    else
      EXPECT_EQ(found[i], clean[i]);
  }
}

TEST_F(CallsTest, OptionsChangeTheScale) {
  giveRows(1, 1);
  std::vector<double> byDefault = result();
  call.options["scale"] = "2*K**-0.5";
  std::vector<double> doubled = result();
  for (double &each : byDefault)
    each *= 2; // the position of the only token is 0
  expectNear(doubled, byDefault);
}

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

#define EXPECT_REFUSAL(text) EXPECT_NE(refusal().find(text), std::string::npos) << messages << "expected: " << (text)

TEST_F(CallsTest, RefusesShapes) {
  giveRows(2, 3);
  set("k", {2, 3, G, K + 1}, wave(2 * 3 * G * (K + 1), 0));
  EXPECT_REFUSAL("[R3] the argument 'k' has the axis K = 4, expected 3 as 'q' has");
  set("k", {2, 4, G, K}, wave(2 * 4 * G * K, 0));
  EXPECT_REFUSAL("[R1] the argument 'k' has T = 4, expected 3 as 'q' has");
  set("k", {2, 3, K}, wave(2 * 3 * K, 0));
  EXPECT_REFUSAL("[R1] the argument 'k' has shape [2, 3, 3], expected rank 4: [B, T, G, K]");
  set("k", {2, 3, 3, K}, wave(2 * 3 * 3 * K, 0));
  EXPECT_REFUSAL("[R1] the argument 'v' has G heads = 2, expected 3 as 'k' has");
  set("v", {2, 3, 3, V}, wave(2 * 3 * 3 * V, 0));
  set("taps", {3, K, 3}, wave(3 * K * 3, 0));
  EXPECT_REFUSAL("[R2] the argument 'q' (H) has 4 heads, expected a multiple of the 3 of the argument 'k' (G)");
  giveRows(2, 3);
  set("taps", {G, K, 4}, wave(G * K * 4, 0));
  EXPECT_REFUSAL("[R3] the argument 'taps' has size 4 on the axis '3', expected 3");
  call.arguments.erase("taps");
  EXPECT_REFUSAL("[R1] the argument 'taps' is missing");
  set("tips", {1}, {0});
  set("taps", {G, K, 3}, wave(G * K * 3, 0));
  EXPECT_REFUSAL("'tips' is no argument of the variant; its arguments are k, q, taps, v");
}

TEST_F(CallsTest, RefusesNumbersThatAreNotThere) {
  giveRows(1, 3);
  call.arguments["q"].values = call.arguments["q"].values.drop_back();
  EXPECT_REFUSAL("[R1] the argument 'q' holds 35 numbers, expected 36");
}

TEST_F(CallsTest, RefusesOptions) {
  giveRows(1, 1);
  call.options = {{"scales", "1"}};
  EXPECT_REFUSAL("'scales' is no option of the variant; its options are scale");
  call.options = {{"scale", "D**-0.5"}};
  EXPECT_REFUSAL("the option 'scale' refers to 'D', which is neither a size nor a numeric option");
  call.options = {{"scale", "1 +"}};
  EXPECT_REFUSAL("the option 'scale' is '1 +', expected a number or an expression");
  call.options = {{"scale", "scale"}};
  EXPECT_REFUSAL("depends on itself");
}

TEST_F(CallsTest, RefusesOffsets) {
  giveRows(1, 5);
  auto refuse = [&](std::vector<int64_t> offsets, const char *text) {
    call.sequenceOffsets = offsets;
    EXPECT_REFUSAL(text);
  };
  refuse({}, "[R7] cu_seqlens starts with nothing, expected 0");
  refuse({1, 5}, "[R7] cu_seqlens starts with 1, expected 0");
  refuse({0, 4, 3, 5}, "[R7] cu_seqlens decreases from 4 to 3");
  refuse({0, 4}, "[R7] cu_seqlens ends with 4, expected T = 5");
  refuse({0, 6}, "[R7] cu_seqlens ends with 6, expected T = 5");
  giveRows(2, 5);
  refuse({0, 5}, "[R7] cu_seqlens is given with B = 2, expected B = 1");
}

TEST_F(CallsTest, RefusesInitialStates) {
  giveRows(2, 1);
  initial("S", {2, H, K, V}, wave(2 * H * K * V, 0));
  EXPECT_REFUSAL("[R6] the initial state 'S' has shape [2, 4, 3, 2] and holds 48 numbers, expected shape [2, 2, 3, 2]");
  call.initialState.clear();
  initial("T", {1}, {0});
  EXPECT_REFUSAL("[R6] 'T' is no entry of the state of the variant");
  call.initialState.clear();
  initial("position", {2}, {0, 0.5});
  EXPECT_REFUSAL("[R6] the initial state 'position' holds 0.5");
}

} // namespace
} // namespace stretto
