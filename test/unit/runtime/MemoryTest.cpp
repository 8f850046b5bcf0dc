//===- MemoryTest.cpp - What gradients ask for on a GPU -------------------===//

#include "dialect/stretto/Sizes.h"
#include "frontends/c/Registration.h"
#include "mlir/Parser/Parser.h"
#include "runtime/Gradient.h"
#include "runtime/Knobs.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"
#include <cstdlib>
#include <dlfcn.h>
#include <tuple>

using namespace stretto;

namespace {

/// An operator of models/ at one width, and calls of it on a described H200 in bf16. No tensor has memory.
class Model {
public:
  Model(const std::string &name, int64_t width, ElementType element = ElementType::BF16)
      : Model(llvm::cantFail(
                  llvm::errorOrToExpected(llvm::MemoryBuffer::getFile(STRETTO_MODELS "/" + name + "/variant.mlir")))
                  ->getBuffer(),
              name, width, element) {}

  /// A part of a declaration with features, of those that calls consist of, or their gradient.
  Model part(size_t index, bool ofGradient) {
    Call described(*this, /*batch=*/1, /*time=*/64, /*heads=*/1, /*headsOfKeys=*/1);
    std::string text = llvm::cantFail(signatureOf(described).partOfDeclaration(index, ofGradient));
    return Model(text, /*name=*/"", width, element);
  }

  static Model ofText(llvm::StringRef text, int64_t width) {
    return Model(text, /*name=*/"", width, ElementType::BF16);
  }

private:
  Model(llvm::StringRef text, const std::string &name, int64_t width, ElementType element)
      : element(element), width(width) {
    op = llvm::cantFail(Operator::create(text));
    mlir::DialectRegistry registry;
    registerDialects(registry);
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    VariantOp variant = *module->getOps<VariantOp>().begin();
    auto sizeOf = [&](llvm::StringRef size) -> std::optional<double> {
      constexpr int64_t slots = 64, expanded = 16;
      if (size == "N")
        return slots;
      if (name == "based" && size == "K")
        return expanded;
      // Hedgehog has two features of each.
      return name == "lolcats" && size == "F" ? width / 2 : width;
    };
    for (auto [input, type] : llvm::zip_equal(op->inputs(), variant.getType().getInputs())) {
      Argument &argument = arguments.emplace_back(Argument{input.isOptional, input.isParameter, headsOf(type).str()});
      for (llvm::StringRef axis : axesOf(type))
        argument.widths.push_back(llvm::cantFail(extentOf(axis).evaluate(sizeOf)));
    }
  }

public:
  /// What there is to know of a call.
  std::string explainForward(int64_t batch, int64_t time, int64_t heads, bool isRecorded = false) {
    Call described(*this, batch, time, heads, heads);
    Operator::Signature &signature = signatureOf(described);
    if (isRecorded)
      described.call.kept = signature.statesKeptBy(described.call, allOf(signature), /*threads=*/1);
    return llvm::cantFail(Operator::explain(signature, described.call, /*threads=*/1));
  }

  /// What there is to know of all gradients of a call, and the bytes of its largest input.
  std::pair<llvm::json::Value, int64_t> explain(int64_t batch, int64_t time, int64_t heads, int64_t headsOfKeys) {
    Call described(*this, batch, time, heads, headsOfKeys);
    Operator::Signature &signature = signatureOf(described);
    return {llvm::cantFail(llvm::json::parse(
                llvm::cantFail(Operator::explainGradient(signature, described.call, allOf(signature), /*threads=*/1)))),
            described.largest};
  }

  /// Compiles what a call takes whose gradients will all be asked for.
  void compileWithGradient(int64_t batch, int64_t time, int64_t heads, bool keepsStates = true) {
    Call described(*this, batch, time, heads, heads);
    Operator::Signature &signature = signatureOf(described);
    signature.compileWithGradient(described.call, allOf(signature), keepsStates, /*threads=*/1);
  }

  /// What a recorded call keeps for the gradient of all its inputs, by their names, with the chunk; "" where it keeps
  /// nothing. That of a part of a declaration is told how many bytes it may take.
  std::string statesKept(int64_t batch, int64_t time, int64_t heads, bool ofPart = false) {
    Call described(*this, batch, time, heads, heads);
    if (ofPart)
      described.call.gradientBytes = inputsOfGradient(/*device=*/0) * described.largest;
    Operator::Signature &signature = signatureOf(described);
    auto kept = signature.statesKeptBy(described.call, allOf(signature), /*threads=*/1);
    return kept ? llvm::join(kept->names(), " ") + " " + std::to_string(kept->tokens) : "";
  }

  /// How many segments of a sequence a call has side by side.
  int64_t segments(int64_t batch, int64_t time, int64_t heads) {
    Call described(*this, batch, time, heads, heads);
    return signatureOf(described).segmentsFor(described.call, /*isOfGradient=*/false);
  }

  /// What they take beside what is asked for and the rows that are kept of all tokens, in what they may take: three of
  /// the largest input, or what nobody minds.
  double share(int64_t batch, int64_t time, int64_t heads, int64_t headsOfKeys) {
    auto [explained, largest] = explain(batch, time, heads, headsOfKeys);
    const llvm::json::Object &found = *explained.getAsObject();
    int64_t bytes = *found.getInteger("checkpoint_bytes") + *found.getInteger("part_bytes");
    return static_cast<double>(bytes) / static_cast<double>(std::max(3 * largest, little));
  }
  static constexpr int64_t little = int64_t(32) << 20;

private:
  ElementType element;
  int64_t width;
  struct Argument {
    bool isOptional, isParameter;
    std::string heads;
    std::vector<int64_t> widths = {};
  };

  /// A call, what its tensors are like, and the bytes of the largest input.
  struct Call {
    Call(const Model &model, int64_t batch, int64_t time, int64_t heads, int64_t headsOfKeys) {
      call.options.resize(model.op->options().size());
      for (const Argument &argument : model.arguments) {
        std::vector<int64_t> &size = sizes.emplace_back();
        if (!argument.isParameter)
          size = {batch, time};
        size.push_back(argument.heads == queryHeads ? heads : argument.heads == allHeads ? 1 : headsOfKeys);
        llvm::append_range(size, argument.widths);
        std::vector<int64_t> &stride = strides.emplace_back(size.size(), 1);
        for (size_t axis = size.size() - 1; axis; --axis)
          stride[axis - 1] = stride[axis] * size[axis];
        if (!argument.isParameter)
          largest = std::max(largest, stride[0] * batch * bytesOf(model.element));
      }
      for (auto [argument, size, stride] : llvm::zip_equal(model.arguments, sizes, strides)) {
        std::optional<TensorView> &view = call.arguments.emplace_back();
        if (!argument.isOptional)
          view = TensorView{nullptr, model.element, spellType(model.element), /*device=*/0, size, stride};
      }
    }

    std::vector<std::vector<int64_t>> sizes, strides;
    OperatorCall call;
    int64_t largest = 0;
  };
  /// All gradients of calls, but for windows, of which the gradient is that of a longer call.
  GradientRequest allOf(const Operator::Signature &signature) const {
    auto all = GradientRequest::ofAll(arguments.size(), /*entries=*/0, op->resultCount());
    for (auto [argument, isWanted] : llvm::zip_equal(arguments, all.inputs))
      isWanted = !argument.isOptional;
    for (const EntryShape &entry : signature.state)
      all.entries.push_back(!entry.window);
    return all;
  }
  Operator::Signature &signatureOf(const Call &described) { return *llvm::cantFail(op->check(described.call)); }

  static std::vector<llvm::StringRef> axesOf(mlir::Type type) {
    std::vector<llvm::StringRef> axes;
    if (isParam(type)) {
      auto encoding = llvm::cast<ParamAttr>(llvm::cast<mlir::RankedTensorType>(type).getEncoding());
      for (mlir::StringAttr axis : encoding.getAxes())
        axes.push_back(axis.getValue());
    } else if (!axisOf(type).empty()) {
      axes.push_back(axisOf(type));
    }
    return axes;
  }

  std::unique_ptr<Operator> op;
  std::vector<Argument> arguments;
};

class DescribedTest : public testing::Test {
protected:
  // The runtime takes what has the driver's name already.
  static void SetUpTestSuite() { ASSERT_TRUE(dlopen(STRETTO_DESCRIBED_DRIVER, RTLD_NOW | RTLD_GLOBAL)) << dlerror(); }
};
class MemoryTest : public DescribedTest, public testing::WithParamInterface<const char *> {};

TEST_P(MemoryTest, GradientsTakeNoMoreThanThreeInputs) {
  constexpr int64_t width = 128;
  struct Shape {
    int64_t batch, time, heads, headsOfKeys;
  };
  Model model(GetParam(), width);
  for (auto [batch, time, heads, headsOfKeys] : std::initializer_list<Shape>{{1, 2048, 32, 32},
                                                                             {1, 8192, 1, 1},
                                                                             {1, 8192, 32, 32},
                                                                             {4, 2048, 32, 32},
                                                                             {8, 4096, 32, 32},
                                                                             {8, 4096, 32, 8},
                                                                             {1, 32768, 1, 1},
                                                                             {1, 32768, 32, 8},
                                                                             {1, 131072, 1, 1},
                                                                             {1, 131072, 4, 4},
                                                                             {64, 512, 32, 32},
                                                                             {512, 512, 4, 4}}) {
    EXPECT_LE(model.share(batch, time, heads, headsOfKeys), 1.0)
        << batch << ", " << time << ", " << heads << " of which " << headsOfKeys << " of keys";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryTest,
                         testing::Values("abc", "based", "bla", "delta_rule", "gated_delta_rule", "gla", "gsa", "hgrn2",
                                         "lawcat", "linear_attn", "lolcats", "retention", "rwkv6", "simple_gla", "ssd",
                                         "supra", "swa"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

using SegmentsTest = MemoryTest;

TEST_P(SegmentsTest, FewHeadsHaveSegmentsSideBySideInThreeInputs) {
  Model model(GetParam(), /*width=*/64);
  auto [explained, largest] = model.explain(1, 16384, 2, 2);
  const llvm::json::Object &found = *explained.getAsObject();
  EXPECT_GT(found.getInteger("side_by_side").value_or(0), 1) << found.getString("why_serial").value_or("").str();
  EXPECT_LE(*found.getInteger("checkpoint_bytes") + *found.getInteger("part_bytes"),
            std::max(3 * largest, Model::little));
}

INSTANTIATE_TEST_SUITE_P(Models, SegmentsTest,
                         testing::Values("gla", "gsa", "lawcat", "linear_attn", "lolcats", "simple_gla", "supra"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

/// States of wide features fill a block: one slice of the values suffices for it, as what finds the starts of segments
/// is divided by itself. One walk keeps nothing of chunks, where the states that two keep take six times the memory, or
/// turns at half the width.
TEST_F(DescribedTest, WideStatesHaveOneSliceInSegmentsSideBySide) {
  for (auto [width, heads, sideBySide] :
       std::initializer_list<std::tuple<int64_t, int64_t, int64_t>>{{128, 32, 4}, {128, 4, 16}, {64, 32, 4}}) {
    auto [explained, largest] = Model("based", width).explain(1, 8192, heads, heads);
    const llvm::json::Object &found = *explained.getAsObject();
    EXPECT_EQ(found.getInteger("segments"), 1) << width << ", " << heads;
    EXPECT_EQ(found.getInteger("side_by_side").value_or(1), sideBySide) << width << ", " << heads;
    for (const llvm::json::Value &kernel : *found.getArray("kernels")) {
      EXPECT_EQ(kernel.getAsObject()->getInteger("chunk"), 32) << width << ", " << heads;
      EXPECT_EQ(kernel.getAsObject()->getInteger("slices"), 1) << width << ", " << heads;
    }
  }
}

/// A state that is read as a whole is taken in panels where shared memory does not hold it: the kernel that finds where
/// segments begin asks for what they leave by the names of the panels.
TEST_F(DescribedTest, SegmentsLeavePanelsOfWideStates) {
  Model model = Model::ofText(R"(
    !K = tensor<?xf64, #stretto.row<K>>
    !V = tensor<?xf64, #stretto.row<V>>
    !V1 = tensor<?xf64, #stretto.row<"V + 1">>
    !S = !stretto.state<K, "V + 1">
    stretto.variant @wide(%q: !K, %k: !K, %v: !V) -> !V1 {
      %one = arith.constant dense<1.0> : tensor<f64, #stretto.row<()>>
      %S0 = stretto.state "S" : !S
      %v1 = stretto.concat %v, %one : !V, tensor<f64, #stretto.row<()>> -> !V1
      %S1 = stretto.write %S0, %k, %v1 : !S, !K, !V1
      %o = stretto.read %S1, %q along "K" : !S, !K -> !V1
      stretto.yield %o : !V1
    })",
                              /*width=*/256);
  std::string explained = model.explainForward(1, 8192, 1);
  EXPECT_NE(explained.find(R"("schedule":"segmented")"), std::string::npos) << explained;
}

using LengthsTest = MemoryTest;

TEST_P(LengthsTest, FewHeadsHaveAsManySegmentsAsTheirTokensAreWorth) {
  Model model(GetParam(), /*width=*/64);
  struct Case {
    int64_t batch, time, heads, segments;
    bool isShort = false; // for what walks whole sequences in slices
  };
  bool walksInSlices = GetParam() == llvm::StringRef("linear_attn");
  // Of 132 multiprocessors; eight segments of 256 tokens, and others of 512.
  for (auto [batch, time, heads, segments, isShort] : std::initializer_list<Case>{{1, 512, 1, 1},
                                                                                  {1, 768, 1, 3},
                                                                                  {1, 2048, 1, 8},
                                                                                  {1, 2048, 16, 8},
                                                                                  {1, 2048, 32, 4, /*isShort=*/true},
                                                                                  {1, 4096, 1, 8},
                                                                                  {1, 8192, 1, 16},
                                                                                  {1, 131072, 1, 132},
                                                                                  {8, 4096, 32, 1}})
    EXPECT_EQ(model.segments(batch, time, heads), walksInSlices && isShort ? 1 : segments)
        << batch << ", " << time << ", " << heads;
}

using ChunksTest = MemoryTest;

/// The chunks of GLA's gradient have 64 tokens at width 64, and 32 at width 128.
TEST_P(ChunksTest, GradientsOfFewChunksHaveSegmentsOfTwo) {
  struct Case {
    int64_t width, time, heads, segments;
  };
  for (auto [width, time, heads, segments] : std::initializer_list<Case>{{64, 512, 1, 1},
                                                                         {64, 2048, 1, 16},
                                                                         {64, 2048, 16, 8},
                                                                         {64, 8192, 1, 32},
                                                                         {128, 256, 1, 1},
                                                                         {128, 512, 1, 8},
                                                                         {128, 512, 32, 1},
                                                                         {128, 2048, 1, 16}}) {
    auto [explained, largest] = Model(GetParam(), width).explain(1, time, heads, heads);
    const llvm::json::Object &found = *explained.getAsObject();
    EXPECT_EQ(found.getInteger("side_by_side").value_or(1), segments) << width << ", " << time << ", " << heads;
    EXPECT_EQ(*found.getInteger("segments"), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChunksTest, testing::Values("gla"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

using FeaturesTest = MemoryTest;

/// Blocks that carry nothing but rows of convolutions, and sums, fill the chip in as few turns as can be, as each walks
/// a chunk more than it has: of 32 heads four segments, and of as many as there are multiprocessors none. At width 64
/// blocks of four warps have registers and memory for two on a multiprocessor.
TEST_P(FeaturesTest, GradientsOfFeaturesHaveFewSegments) {
  for (auto [width, heads, segments] : std::initializer_list<std::tuple<int64_t, int64_t, int64_t>>{
           {128, 32, 4}, {128, 8, 16}, {128, 132, 1}, {128, 256, 1}, {64, 32, 8}, {64, 256, 1}}) {
    Model keys = Model(GetParam(), width).part(0, /*ofGradient=*/true);
    auto [explained, largest] = keys.explain(1, 8192, heads, heads);
    EXPECT_EQ(explained.getAsObject()->getInteger("side_by_side").value_or(1), segments) << width << ", " << heads;
  }
}

/// Features of a call, too, where a segment reads the rows of a chunk before it anew.
TEST_P(FeaturesTest, FeaturesFillTheChipOnce) {
  for (auto [width, batch, time, heads, segments] :
       std::initializer_list<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>{{64, 1, 8192, 32, 8},
                                                                                      {64, 1, 8192, 8, 32},
                                                                                      {64, 1, 2048, 32, 8},
                                                                                      {64, 8, 4096, 32, 1},
                                                                                      {128, 1, 8192, 32, 8}}) {
    Model features = Model(GetParam(), width).part(0, /*ofGradient=*/false);
    llvm::json::Value found = llvm::cantFail(llvm::json::parse(features.explainForward(batch, time, heads)));
    EXPECT_EQ(found.getAsObject()->getInteger("segments").value_or(1), segments)
        << width << ", " << batch << ", " << time << ", " << heads;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FeaturesTest, testing::Values("lawcat"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

using TurnsTest = MemoryTest;

/// Queries' gradients ask for the states of the walk forward alone, those of keys and values for those of the walk
/// back: these take the same memory, so that the kernels of the former come first, and a gradient has half as many
/// turns.
TEST_P(TurnsTest, StatesThatAreReadOneAfterTheOtherTakeTheSameMemory) {
  for (int64_t width : {128, 64}) {
    auto [explained, largest] = Model(GetParam(), width).explain(1, 8192, 32, 32);
    const llvm::json::Object &found = *explained.getAsObject();
    EXPECT_EQ(*found.getInteger("segments"), 1) << width;
    EXPECT_LE(*found.getInteger("checkpoint_bytes"), 3 * largest) << width;
    std::vector<std::string> kernels;
    for (const llvm::json::Value &kernel : *found.getArray("kernels"))
      kernels.push_back(kernel.getAsObject()->getString("kernel")->str());
    auto placeOf = [&](llvm::StringRef suffix) {
      return llvm::find(kernels, GetParam() + suffix.str()) - kernels.begin();
    };
    EXPECT_LT(placeOf("_backward"), placeOf("_backward_cotangents")) << width;
    EXPECT_LT(placeOf("_backward_cotangents"), placeOf("_backward_later")) << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TurnsTest, testing::Values("lolcats"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

using FeedbackTest = MemoryTest;

TEST_P(FeedbackTest, GradientsWithoutSegmentsHaveNoFormForThem) {
  // Whatever segments the call itself has.
  auto formsOf = [&] {
    std::vector<std::pair<int64_t, int64_t>> forms;
    auto [explained, largest] = Model(GetParam(), /*width=*/128).explain(1, 8192, 16, 16);
    for (const llvm::json::Value &kernel : *explained.getAsObject()->getArray("kernels"))
      forms.emplace_back(*kernel.getAsObject()->getInteger("chunk"), *kernel.getAsObject()->getInteger("slices"));
    return forms;
  };
  std::vector<std::pair<int64_t, int64_t>> chosen = formsOf();
  Knobs::instance().segments = 1;
  std::vector<std::pair<int64_t, int64_t>> ofWhole = formsOf();
  Knobs::instance().segments = 0;
  EXPECT_EQ(chosen, ofWhole);
}

TEST_P(FeedbackTest, FewHeadsHaveSegmentsWhereThereAreEnough) {
  Model model(GetParam(), /*width=*/64);
  struct Case {
    int64_t batch, time, heads, segments;
  };
  // A walk for what feedback does to states, and products of matrices, are worth it from eight on; with 32 of them the
  // starts take as long as the walks.
  for (auto [batch, time, heads, segments] : std::initializer_list<Case>{
           {1, 2048, 1, 1}, {1, 4096, 1, 8}, {1, 8192, 1, 16}, {1, 8192, 32, 1}, {1, 32768, 4, 32}, {1, 131072, 1, 32}})
    EXPECT_EQ(model.segments(batch, time, heads), segments) << batch << ", " << time << ", " << heads;
}

TEST_P(FeedbackTest, MatricesThatDoNotFitSaySo) {
  for (auto [width, segments] : {std::pair(128, 16), std::pair(192, 1)}) {
    Model model(GetParam(), width, ElementType::F32);
    EXPECT_EQ(model.segments(1, 8192, 1), segments) << width;
  }
  EXPECT_NE(
      Model(GetParam(), /*width=*/192, ElementType::F32)
          .explainForward(1, 8192, 1)
          .find("no segments side by side: what feedback does to the state 'S' is a matrix of 192 by 192 numbers of 32 "
                "bits, expected 128 by 128 at most"),
      std::string::npos);
}

class KeptStatesTest : public MemoryTest {};

TEST_P(KeptStatesTest, RecordedCallsKeepThoseThatTheirGradientsAskFor) {
  // In segments, and as a whole.
  for (auto [batch, time] : {std::pair<int64_t, int64_t>(1, 8192), {8, 4096}})
    EXPECT_EQ(Model(GetParam(), /*width=*/128).statesKept(batch, time, /*heads=*/32), "S 64") << batch;
  // That of a short call takes longer to hand on than to find again.
  EXPECT_EQ(Model(GetParam(), /*width=*/128).statesKept(1, 256, 32), "");
}

/// Walks of few heads are divided among slices, and the walk back asks for states of each of its chunks, of which the
/// call has every second one.
TEST_F(DescribedTest, WhatIsKeptDoesNotDependOnCallsBefore) {
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(Model("gla", /*width=*/128).statesKept(1, 2100, /*heads=*/8), "") << turn;
    EXPECT_EQ(Model("gla", /*width=*/128).statesKept(1, 8192, 32), "S 64") << turn;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KeptStatesTest, testing::Values("gla", "hgrn2", "rwkv6", "simple_gla", "delta_rule"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

/// A state of 128 by 128 numbers for 64 tokens is two inputs; of more than that a call keeps what segments begin with.
TEST_F(DescribedTest, StatesOfMoreThanTwoInputsAreNotKept) {
  EXPECT_EQ(Model("simple_gla", /*width=*/128).statesKept(1, 8192, /*heads=*/32), "S 64");
  EXPECT_EQ(Model("simple_gla", /*width=*/144).statesKept(1, 8192, 32), "S 2048");
}

TEST_F(DescribedTest, RecordedCallsKeepWhatSegmentsBeginWith) {
  // Whose gradients walk forward for more than states, or whose states would take too much.
  for (auto [name, kept] : {std::pair("linear_attn", "S S.128 2048"),
                            {"retention", "S 2048"},
                            {"bla", "keys values 2048"},
                            {"lolcats", "S S.128 2048"},
                            {"supra", "S 384"},
                            {"gsa", "keys values 1024"}})
    EXPECT_EQ(Model(name, /*width=*/128).statesKept(1, 8192, /*heads=*/32), kept) << name;
  // Parts of declarations keep states of chunks alone.
  EXPECT_EQ(Model("retention", /*width=*/128).statesKept(1, 8192, 32, /*ofPart=*/true), "");
  EXPECT_EQ(Model("gla", /*width=*/64).statesKept(1, 8192, 32, /*ofPart=*/true), "S 64");
  // A gradient of two walks fits what it may work in beside those.
  constexpr size_t rest = 2;
  EXPECT_EQ(Model("supra", /*width=*/128).part(rest, /*ofGradient=*/true).statesKept(1, 8192, 32, /*ofPart=*/true),
            "S 64");
  // Of a walk over whole sequences they have none.
  EXPECT_EQ(Model("retention", /*width=*/128).statesKept(8, 4096, 32), "");
  // In fp32 as well.
  EXPECT_EQ(Model("retention", /*width=*/128, ElementType::F32).statesKept(1, 8192, 8), "S 512");
}

INSTANTIATE_TEST_SUITE_P(Models, FeedbackTest, testing::Values("delta_rule", "gated_delta_rule"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Models, LengthsTest, testing::Values("gla", "linear_attn"),
                         [](const testing::TestParamInfo<const char *> &info) { return info.param; });

/// What a process of its own does, whose settings nobody has read yet: it is to end with status 0.
template <typename Function>
[[noreturn]] void alone(llvm::ArrayRef<std::pair<const char *, std::string>> settings, Function body) {
  for (const auto &[name, value] : settings)
    setenv(name, value.c_str(), /*replace=*/1);
  bool isGood = dlopen(STRETTO_DESCRIBED_DRIVER, RTLD_NOW | RTLD_GLOBAL) && body();
  std::_Exit(isGood ? 0 : 1);
}

/// A folder that is there for one test.
llvm::SmallString<128> ownFolder() {
  llvm::SmallString<128> folder;
  if (llvm::sys::fs::createUniqueDirectory("stretto-test", folder))
    std::_Exit(2);
  return folder;
}

/// The kernels in a folder of STRETTO_DUMP whose files begin so.
int64_t countKernels(llvm::StringRef folder, llvm::StringRef prefix) {
  std::error_code error;
  int64_t count = 0;
  for (llvm::sys::fs::directory_iterator it(folder, error), end; it != end && !error; it.increment(error)) {
    llvm::StringRef name = llvm::sys::path::filename(it->path());
    count += name.starts_with(prefix) && name.ends_with(".ptx") ? 1 : 0;
  }
  return count;
}

TEST(KernelsTest, AGradientInSegmentsFindsThoseOfItsForwardCall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto compileBoth = [] {
    llvm::SmallString<128> folder = ownFolder();
    alone({{"STRETTO_DUMP", folder.str().str()}, {"STRETTO_CACHE_DIR", ""}}, [&] {
      Model model("gla", /*width=*/128);
      model.explainForward(1, 8192, 32, /*isRecorded=*/true);
      int64_t before = countKernels(folder, "gla.");
      model.explain(1, 8192, 32, 32);
      int64_t after = countKernels(folder, "gla.");
      std::ignore = llvm::sys::fs::remove_directories(folder);
      llvm::errs() << "kernels of the forward call: " << before << ", and then " << after << "\n";
      return before >= 3 && after == before;
    });
  };
  EXPECT_EXIT(compileBoth(), testing::ExitedWithCode(0), "kernels of the forward call");
}

/// Whether what a call and its gradient take is there once it was compiled at the same time, with so many kernels for
/// the call.
bool compilesAllAtOnce(const char *name, int64_t batch, int64_t ofCall, bool keepsStates) {
  constexpr int64_t time = 8192, heads = 32;
  llvm::SmallString<128> folder = ownFolder();
  alone({{"STRETTO_DUMP", folder.str().str()}, {"STRETTO_CACHE_DIR", ""}, {"STRETTO_PTXAS", ""}}, [&] {
    Model model(name, /*width=*/64);
    model.compileWithGradient(batch, time, heads, keepsStates);
    int64_t before = countKernels(folder, ""), ofGradient = countKernels(folder, std::string(name) + "_backward.");
    model.explainForward(batch, time, heads, /*isRecorded=*/keepsStates);
    model.explain(batch, time, heads, heads);
    int64_t after = countKernels(folder, "");
    std::ignore = llvm::sys::fs::remove_directories(folder);
    llvm::errs() << "kernels: " << before << ", of the gradient " << ofGradient << ", in the end " << after << "\n";
    return ofGradient > 0 && before - ofGradient == ofCall && after == before;
  });
}

TEST(KernelsTest, WhatACallAndItsGradientTakeIsCompiledAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // In segments, and as a whole; and where the call may keep no states, as parts of declarations and compiled graphs.
  for (bool keepsStates : {true, false}) {
    EXPECT_EXIT(compilesAllAtOnce("gla", 1, /*ofCall=*/3, keepsStates), testing::ExitedWithCode(0), "kernels: ");
    EXPECT_EXIT(compilesAllAtOnce("gsa", 1, /*ofCall=*/3, keepsStates), testing::ExitedWithCode(0), "kernels: ");
    EXPECT_EXIT(compilesAllAtOnce("delta_rule", 8, /*ofCall=*/2, keepsStates), testing::ExitedWithCode(0), "kernels: ");
  }
}

TEST(KernelsTest, AGradientWaitsForNoKernelOfItsForwardCall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto compile = [](const char *name, int64_t batch) {
    llvm::SmallString<128> folder = ownFolder();
    std::string program = (folder + "/assembler").str();
    // It assembles nothing of the one before something of the other is there to be assembled, and then pretends to.
    std::error_code error;
    llvm::raw_fd_ostream script(program, error);
    script << "#!/bin/sh\ncd " << folder << "\n"
           << "grep -q 'entry .*_backward' \"$2\" && own=gradient other=forward || own=forward other=gradient\n"
           << "touch $own\n"
           << "for turn in $(seq 200); do [ -e $other ] && exec cp /bin/true \"$4\"; sleep 0.1; done\nexit 1\n";
    script.close();
    if (error || llvm::sys::fs::setPermissions(program, llvm::sys::fs::owner_all))
      std::_Exit(2);
    alone({{"STRETTO_PTXAS", program}, {"STRETTO_CACHE_DIR", ""}}, [&] {
      Model model(name, /*width=*/64);
      model.compileWithGradient(batch, /*time=*/8192, /*heads=*/32);
      std::string text = model.explainForward(batch, 8192, 32, /*isRecorded=*/true);
      llvm::raw_string_ostream(text) << model.explain(batch, 8192, 32, 32).first;
      std::ignore = llvm::sys::fs::remove_directories(folder);
      llvm::errs() << text << "\n";
      return llvm::StringRef(text).contains(R"("assembler":"ptxas")") &&
             !llvm::StringRef(text).contains(R"("assembler":"driver")");
    });
  };
  EXPECT_EXIT(compile("gla", 1), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(compile("delta_rule", 8), testing::ExitedWithCode(0), "");
}

TEST(KernelsTest, WhatTheProgramDoesNotAssembleIsTheDriversToDo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto compile = [] {
    alone({{"STRETTO_PTXAS", "/bin/false"}, {"STRETTO_CACHE_DIR", ""}}, [] {
      Model model("linear_attn", /*width=*/64);
      return llvm::StringRef(model.explainForward(8, 4096, 32)).contains("\"assembler\":\"driver\"");
    });
  };
  EXPECT_EXIT(compile(), testing::ExitedWithCode(0),
              "the kernel 'linear_attn' is left to the driver's assembler: /bin/false returns 1");
}

} // namespace
