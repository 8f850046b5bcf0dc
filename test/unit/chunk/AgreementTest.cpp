//===- AgreementTest.cpp - One declaration at two levels ------------------===//

#include "AgreementTest.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Pipelines.h"
#include "passes/declaration/Specialize.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace mlir;

namespace stretto {

/// What of a program the declaration names.
static Settings settingsFor(VariantOp variant, const Program &program) {
  std::set<std::string> sizes, headSets = namedHeadSets(variant);
  auto collect = [&](TypeRange types) {
    for (Type type : types)
      forEachAxis(type, [&](StringRef axis, int64_t) {
        for (const std::string &name : extentOf(axis).names())
          sizes.insert(name);
      });
  };
  collect(variant.getBody().getArgumentTypes());
  variant.getBody().walk([&](Operation *op) { collect(op->getResultTypes()); });
  Settings settings;
  for (const auto &[name, size] : program.dims)
    if (sizes.count(name))
      settings.dims[name] = size;
  for (const auto &[name, count] : program.heads)
    if (headSets.count(name))
      settings.heads[name] = count;
  settings.options = program.options;
  settings.absent = program.absent;
  settings.numericDefaults = true;
  return settings;
}

LogicalResult AgreementTest::runPipeline(const Program &program, int64_t chunk) {
  lowered = module->clone();
  Settings settings = settingsFor(*lowered->getOps<VariantOp>().begin(), program);
  PipelineOptions options;
  for (const auto &[name, size] : settings.dims)
    options.dims.push_back(name + "=" + std::to_string(size));
  for (const auto &[name, count] : settings.heads)
    options.heads.push_back(name + "=" + std::to_string(count));
  for (const auto &[name, value] : program.options)
    options.optionValues.push_back(name + "=" + value);
  for (const std::string &name : program.absent)
    options.absent.push_back(name);
  options.step = chunk == 1;
  options.chunk = chunk;
  options.element = "f64";
  PassManager manager(&context);
  buildPipeline(manager, options, Level::Chunk);
  return manager.run(*lowered);
}

chunk::KernelOp AgreementTest::lower(const Program &program, int64_t chunk) {
  messages.clear();
  EXPECT_TRUE(succeeded(runPipeline(program, chunk))) << messages;
  auto kernels = lowered->getOps<chunk::KernelOp>();
  return kernels.empty() ? chunk::KernelOp() : *kernels.begin();
}

std::string AgreementTest::kernelText(const Program &program, int64_t chunk) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (chunk::KernelOp kernel = lower(program, chunk))
    kernel.print(stream);
  return text;
}

std::string AgreementTest::chunkRefusal(const Program &program) {
  messages.clear();
  EXPECT_TRUE(failed(runPipeline(program, 16))) << "the declaration was expected to have no chunk form";
  return messages;
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

std::vector<double> AgreementTest::randomNumbers(llvm::StringRef name, int64_t count, Gates gates) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<double> numbers(count);
  bool isLog = name == "g" || name == "w" || name.starts_with("log_");
  for (double &number : numbers) {
    double choice = gates == Gates::Strong ? uniform(random) : 1;
    if (isLog)
      number = choice < 0.2 ? -50 : choice < 0.3 ? -infinity : choice < 0.5 ? 0 : -0.2 * uniform(random);
    else if (name == "f")
      number = choice < 0.2 ? 0 : choice < 0.3 ? 1e-20 : choice < 0.5 ? 1 : 0.8 + 0.2 * uniform(random);
    else if (name == "z")
      number = choice < 0.2 ? -800 : choice < 0.3 ? -infinity : choice < 0.4 ? infinity : normal(random);
    else
      number = 0.5 * normal(random);
  }
  return numbers;
}

static int64_t headCount(const Program &program, StringRef set) {
  int64_t count = 1;
  for (StringRef name : llvm::split(set, '|'))
    if (name != allHeads)
      count = std::max(count, program.heads.at(name.str()));
  return count;
}

static int64_t product(ArrayRef<int64_t> shape) {
  int64_t size = 1;
  for (int64_t length : shape)
    size *= length;
  return size;
}

void AgreementTest::fillArguments(VariantOp variant, const Program &program, int64_t time, Gates gates) {
  int64_t batch = 2;
  for (BlockArgument argument : variant.getBody().getArguments()) {
    auto type = cast<RankedTensorType>(argument.getType());
    std::string name = variant.getArgName(argument.getArgNumber()).str();
    int64_t heads = headCount(program, headsOf(type));
    llvm::SmallVector<int64_t, 4> shape =
        isRow(type) ? llvm::SmallVector<int64_t, 4>{batch, time, heads} : llvm::SmallVector<int64_t, 4>{heads};
    llvm::append_range(shape, type.getShape());
    set(name, shape, randomNumbers(name, product(shape), gates));
  }
}

void AgreementTest::fillState(VariantOp variant, const Program &program, int64_t sequences) {
  for (const StateEntry &entry : deriveState(variant)) {
    llvm::SmallVector<int64_t, 4> shape = entry.shape(sequences, headCount(program, entry.heads));
    std::vector<double> numbers = randomNumbers("state", product(shape), Gates::Gentle);
    if (entry.kind == StateEntry::Kind::Position)
      for (double &number : numbers)
        number = 5;
    initial(entry.name, shape, numbers);
  }
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

static void expectClose(ArrayRef<double> found, ArrayRef<double> expected) {
  double largest = 1;
  for (double number : expected)
    largest = std::max(largest, std::abs(number));
  expectNear(found, expected, 1e-12 * largest);
}

void AgreementTest::compare(chunk::KernelOp kernel) {
  Outcome byToken = run();
  FailureOr<Outcome> byChunk = chunk::interpret(kernel, call);
  ASSERT_TRUE(succeeded(byChunk)) << messages;
  ASSERT_EQ(byChunk->results.size(), byToken.results.size());
  for (auto [found, expected] : llvm::zip_equal(byChunk->results, byToken.results)) {
    EXPECT_EQ(found.shape, expected.shape);
    expectClose(found.values, expected.values);
  }
  for (const auto &[name, expected] : byToken.finalState) {
    if (name == "position")
      continue; // counted by the runtime
    auto found = llvm::find_if(byChunk->finalState, [&](const auto &entry) { return entry.first == name; });
    ASSERT_NE(found, byChunk->finalState.end()) << "the kernel carries no state '" << name << "'";
    SCOPED_TRACE("state " + name);
    expectClose(found->second.values, expected.values);
  }
}

void AgreementTest::expectAgreement(const Program &program) {
  // What looks back has no step form.
  if (looksBack(*module->getOps<VariantOp>().begin()))
    expectAgreement(program, {16, 64});
  else
    expectAgreement(program, {1, 16, 64});
}
void AgreementTest::expectStepAgreement(const Program &program) { expectAgreement(program, {1}); }

void AgreementTest::expectAgreement(const Program &program, ArrayRef<int64_t> chunks) {
  OwningOpRef<ModuleOp> copy = module->clone();
  VariantOp specialised = *copy->getOps<VariantOp>().begin();
  ASSERT_TRUE(succeeded(specialize(specialised, settingsFor(specialised, program)))) << messages;
  call.options = program.options;
  // What looks back is not continued by the interpreter of declarations.
  call.finalState = !looksBack(specialised);
  for (int64_t chunk : chunks) {
    chunk::KernelOp kernel = lower(program, chunk);
    ASSERT_TRUE(kernel);
    std::vector<int64_t> lengths = {63, 127};
    if (chunk == 16)
      lengths = {0, 1, 15, 16, 17, 64, 65};
    else if (chunk == 1)
      lengths = {0, 1, 2, 9};
    for (int64_t time : lengths)
      for (Gates gates : {Gates::Gentle, Gates::Strong})
        for (bool continues : {false, true}) {
          if (continues && !call.finalState)
            continue;
          SCOPED_TRACE("chunks of " + std::to_string(chunk) + ", T = " + std::to_string(time) +
                       (gates == Gates::Strong ? ", strong gates" : "") + (continues ? ", from a state" : ""));
          call.initialState.clear();
          fillArguments(specialised, program, time, gates);
          if (continues)
            fillState(specialised, program, /*sequences=*/2);
          compare(kernel);
          if (HasFailure())
            return;
        }
  }
}

} // namespace stretto
