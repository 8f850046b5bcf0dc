//===- CpuKernelTest.cpp - Runs kernels compiled for this CPU -------------===//

#include "CpuKernelTest.h"
#include "frontends/c/Registration.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/APFloat.h"
#include <cmath>
#include <cstring>
#include <random>

using namespace mlir;

namespace stretto {
namespace {

/// A tensor in memory whose entries of one head and token lie side by side, with gaps of NaN everywhere else.
class Memory {
public:
  Memory(Type element, ArrayRef<int64_t> shape, int64_t width)
      : element(cast<FloatType>(element)), shape(shape), width(width) {
    int64_t extent = width;
    strides.resize(shape.size());
    for (size_t axis = shape.size(); axis-- > 0;) {
      extent += gap;
      strides[axis] = extent;
      extent *= std::max<int64_t>(shape[axis], 1);
    }
    bytes.assign((extent + 2 * gap) * elementBytes(), char(0xff));
  }

  /// Rounds and stores the numbers; `numbers` become what was stored.
  void write(std::vector<double> &numbers) {
    visit([&](size_t index, char *place) {
      bool lost;
      APFloat rounded(numbers[index]);
      rounded.convert(element.getFloatSemantics(), APFloat::rmNearestTiesToEven, &lost);
      uint64_t bits = rounded.bitcastToAPInt().getZExtValue();
      memcpy(place, &bits, elementBytes());
      rounded.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
      numbers[index] = rounded.convertToDouble();
    });
  }
  /// Takes the numbers out, and leaves NaN where they were.
  std::vector<double> take() {
    std::vector<double> numbers(size());
    visit([&](size_t index, char *place) {
      uint64_t bits = 0;
      memcpy(&bits, place, elementBytes());
      APFloat number(element.getFloatSemantics(), APInt(element.getIntOrFloatBitWidth(), bits));
      bool lost;
      number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
      numbers[index] = number.convertToDouble();
      memset(place, 0xff, elementBytes());
    });
    return numbers;
  }
  bool isUntouched() const {
    return llvm::all_of(bytes, [](char byte) { return byte == char(0xff); });
  }
  int64_t address() { return reinterpret_cast<int64_t>(bytes.data()) + gap * elementBytes(); }
  size_t size() const {
    size_t count = width;
    for (int64_t length : shape)
      count *= length;
    return count;
  }

  const FloatType element;
  SmallVector<int64_t, 4> strides; // of the axes before the last

private:
  static constexpr int64_t gap = 3;
  int64_t elementBytes() const { return element.getIntOrFloatBitWidth() / 8; }

  void visit(llvm::function_ref<void(size_t, char *)> body) {
    SmallVector<int64_t, 4> place(shape.size());
    for (size_t index = 0; index < size(); ++index) {
      size_t rest = index / width;
      int64_t offset = gap + static_cast<int64_t>(index % width);
      for (size_t axis = shape.size(); axis-- > 0;) {
        offset += static_cast<int64_t>(rest % shape[axis]) * strides[axis];
        rest /= shape[axis];
      }
      body(index, bytes.data() + offset * elementBytes());
    }
  }

  SmallVector<int64_t, 4> shape;
  int64_t width;
  std::vector<char> bytes;
};

/// Whether two arrays agree: |found - expected| / |expected| in the Frobenius norm, and NaN and infinity exactly. What
/// exceeds every number of the stored type is infinite in it.
testing::AssertionResult agree(ArrayRef<double> found, ArrayRef<double> expected, FloatType stored, double tolerance) {
  double largest = APFloat::getLargest(stored.getFloatSemantics()).convertToDouble();
  if (found.size() != expected.size())
    return testing::AssertionFailure() << found.size() << " numbers, expected " << expected.size();
  double difference = 0, norm = 0;
  for (auto [index, pair] : llvm::enumerate(llvm::zip(found, expected))) {
    double have = std::get<0>(pair), want = std::get<1>(pair);
    if (std::abs(want) > largest)
      want = std::copysign(std::numeric_limits<double>::infinity(), want);
    bool isSame = have == want || (std::isnan(have) && std::isnan(want));
    if (!isSame && (!std::isfinite(have) || !std::isfinite(want)))
      return testing::AssertionFailure() << have << " at " << index << ", expected " << want;
    if (!std::isfinite(want))
      continue;
    difference += (have - want) * (have - want);
    norm += want * want;
  }
  double error = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
  if (error <= tolerance)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the error is " << error << ", at most " << tolerance << " expected";
}

} // namespace

CpuKernelTest::CpuKernelTest() : context(MLIRContext::Threading::DISABLED) {
  DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
    messages += diagnostic.str() + "\n";
    return success();
  });
}

CpuKernelTest::Kernel CpuKernelTest::parse(const std::string &text) {
  return parseSourceString<ModuleOp>(text, &context);
}

void CpuKernelTest::compile(const std::string &text, std::optional<cpu::Instructions> instructions) {
  module = parse(text);
  ASSERT_TRUE(module) << messages << text;
  OwningOpRef<ModuleOp> lowered = module->clone();
  const cpu::Processor &host = cpu::Processor::host();
  PassManager passes(&context);
  cpu::buildPipeline(passes, instructions.value_or(host.instructions()));
  ASSERT_TRUE(succeeded(passes.run(*lowered))) << messages << text;
  std::string symbol = (*module->getOps<chunk::KernelOp>().begin()).getSymName().str();
  scratchBytes =
      lowered->lookupSymbol<LLVM::LLVMFuncOp>(symbol)->getAttrOfType<IntegerAttr>("stretto.scratch_bytes").getInt();
  llvm::Expected<std::string> object = cpu::emitObject(*lowered, host);
  ASSERT_TRUE(bool(object)) << llvm::toString(object.takeError());
  llvm::Expected<std::unique_ptr<cpu::LoadedCode>> loaded = cpu::LoadedCode::load(*object);
  ASSERT_TRUE(bool(loaded)) << llvm::toString(loaded.takeError());
  code = std::move(*loaded);
  llvm::Expected<void *> address = code->find(symbol);
  ASSERT_TRUE(bool(address)) << llvm::toString(address.takeError());
  function = reinterpret_cast<decltype(function)>(*address);
}

std::string CpuKernelTest::refusal(const std::string &text) {
  module = parse(text);
  PassManager passes(&context);
  cpu::buildPipeline(passes, {});
  if (module && succeeded(passes.run(*module)))
    return "";
  return messages;
}

void CpuKernelTest::uniform(const std::string &name, double low, double high) {
  auto generator = std::make_shared<std::mt19937_64>(std::hash<std::string>()(name));
  fill(name, [=](size_t) { return std::uniform_real_distribution<double>(low, high)(*generator); });
}

void CpuKernelTest::checkLengths(llvm::ArrayRef<int64_t> lengths, Problem problem) {
  for (int64_t length : lengths) {
    SCOPED_TRACE(testing::Message() << length << " tokens");
    problem.tokens = length;
    check(problem);
  }
}

void CpuKernelTest::check(const Problem &problem, const std::string &wholeText) {
  ASSERT_TRUE(function);
  Kernel wholeModule = wholeText.empty() ? Kernel() : parse(wholeText);
  ASSERT_TRUE(wholeText.empty() || wholeModule) << messages;
  // The block is built from the whole kernel's shapes: slices divide what lies in memory.
  chunk::KernelOp kernel = *(wholeModule ? *wholeModule : *module).getOps<chunk::KernelOp>().begin();
  bool isPacked = !problem.offsets.empty();
  int64_t rows = isPacked ? 1 : problem.batch, tokens = isPacked ? problem.offsets.back() : problem.tokens;
  int64_t sequences = isPacked ? static_cast<int64_t>(problem.offsets.size()) - 1 : problem.batch;

  Call call;
  call.finalState = true;
  if (isPacked)
    call.sequenceOffsets = problem.offsets;
  std::map<std::string, std::vector<double>> numbers; // of arguments, and of entries of the state
  std::vector<std::unique_ptr<Memory>> memories, outputs, finals;
  std::vector<std::string> entries;
  std::map<std::string, Memory *> initialOf; // by entry
  auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
  unsigned states = 0;
  std::vector<int64_t> block = {sequences,
                                tokens,
                                problem.heads,
                                isPacked ? reinterpret_cast<int64_t>(problem.offsets.data()) : 0,
                                problem.positions.empty() ? 0 : reinterpret_cast<int64_t>(problem.positions.data()),
                                /*slots=*/0,
                                /*rows of the state=*/sequences,
                                /*first chunk of the segment=*/0,
                                /*chunks=*/static_cast<int64_t>(llvm::divideCeil(tokens, kernel.getChunk())),
                                /*chunks between checkpoints=*/1,
                                /*chunks between initial states=*/0,
                                /*chunks before a segment=*/0,
                                /*first chunk with a place=*/0,
                                /*chunks with places=*/0,
                                /*what is left=*/0};
  int64_t lastPosition = 0;
  std::vector<double> positions(problem.positions.begin(), problem.positions.end());
  for (int64_t position : problem.positions)
    lastPosition = std::max(lastPosition, position);
  if (!positions.empty())
    call.initialState["position"] = {{sequences}, positions};
  auto makeNumbers = [&](const std::string &name, size_t count) {
    if (!fillers.count(name))
      uniform(name, -1, 1);
    std::vector<double> made(count);
    for (size_t index = 0; index < count; ++index)
      made[index] = fillers[name](index);
    return made;
  };
  auto append = [&](std::initializer_list<int64_t> words) { block.insert(block.end(), words); };

  for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back()) {
    chunk::ArgumentAttr description = kernel.getArgument(argument.getArgNumber());
    std::string name = description.getName().str();
    auto type = cast<RankedTensorType>(argument.getType());
    int64_t own = std::max<int64_t>(problem.heads / description.getGroup(), 1);
    ArrayRef<int64_t> shape = type.getShape();
    switch (description.getKind()) {
    case chunk::ArgumentKind::Input: {
      int64_t width = shape.size() == 2 ? shape[1] : 1;
      Memory &memory = *memories.emplace_back(
          std::make_unique<Memory>(type.getElementType(), ArrayRef<int64_t>{rows, tokens, own}, width));
      numbers[name] = makeNumbers(name, memory.size());
      memory.write(numbers[name]);
      ArrayView view = {{rows, tokens, own}, numbers[name]};
      view.shape.append(shape.begin() + 1, shape.end());
      call.arguments[name] = view;
      append({memory.address(), memory.strides[0], memory.strides[1], memory.strides[2]});
      break;
    }
    case chunk::ArgumentKind::Parameter: {
      SmallVector<int64_t> whole(shape);
      if (description.getEntry()) {
        name = description.getEntry().str();
        whole.back() = description.getColumns();
      }
      Memory &memory =
          *memories.emplace_back(std::make_unique<Memory>(type.getElementType(), own, llvm::product_of(whole)));
      if (!numbers.count(name))
        numbers[name] = makeNumbers(name, memory.size());
      memory.write(numbers[name]);
      ArrayView view = {{own}, numbers[name]};
      view.shape.append(whole);
      call.arguments[name] = view;
      int64_t offset = description.getColumn() * type.getElementTypeBitWidth() / 8;
      append({memory.address() + offset, memory.strides[0]});
      break;
    }
    case chunk::ArgumentKind::Table: {
      auto table = SymbolTable::lookupNearestSymbolFrom<chunk::TableOp>(kernel, description.getName());
      bool varies = table.getPeriod() || table.getVarying();
      int64_t period = table.getPeriod().value_or(0),
              positions = varies ? (period ? period : std::max<int64_t>(lastPosition + tokens, 1)) : 1;
      int64_t width = varies ? (shape.size() == 2 ? shape[1] : 1) : type.getNumElements();
      Memory &memory = *memories.emplace_back(
          std::make_unique<Memory>(type.getElementType(), ArrayRef<int64_t>{own, positions}, width));
      std::vector<double> values;
      for (int64_t head = 0; head < own; ++head)
        for (int64_t position = 0; position < positions; ++position)
          for (int64_t channel = 0; channel < width; ++channel)
            values.push_back(*chunk::evaluateTable(table, position, head, channel));
      memory.write(values);
      append({memory.address(), memory.strides[0], varies ? memory.strides[1] : 0, period});
      break;
    }
    case chunk::ArgumentKind::State: {
      // One entry may hold several states, side by side. A tail lies with its rows before its heads.
      std::string entry = description.getEntry().str();
      int64_t stateRows = shape[0], columns = description.getColumns();
      bool isTail = yield.getStates()[states++].getDefiningOp<chunk::TailOp>() != nullptr;
      SmallVector<int64_t, 4> axes = {sequences, own, stateRows};
      if (isTail)
        std::swap(axes[1], axes[2]);
      auto found = llvm::find(entries, entry);
      size_t index = found - entries.begin();
      if (found == entries.end()) {
        entries.push_back(entry);
        Memory &initial = *memories.emplace_back(std::make_unique<Memory>(type.getElementType(), axes, columns));
        finals.push_back(std::make_unique<Memory>(type.getElementType(), axes, columns));
        if (problem.initialState) {
          numbers[entry] = makeNumbers(entry, initial.size());
          initial.write(numbers[entry]);
          ArrayView view = {axes, numbers[entry]};
          view.shape.push_back(columns);
          call.initialState[entry] = view;
        }
        initialOf[entry] = &initial;
      }
      Memory &initial = *initialOf[entry];
      int64_t offset = description.getColumn() * type.getElementTypeBitWidth() / 8;
      append({problem.initialState ? initial.address() + offset : 0, finals[index]->address() + offset,
              initial.strides[0], initial.strides[isTail ? 2 : 1], initial.strides[isTail ? 1 : 2]});
      break;
    }
    case chunk::ArgumentKind::Window:
      append({0, 0, 0, 0});
      break;
    case chunk::ArgumentKind::Valid:
      break;
    }
  }
  for (auto output : kernel.getOutputs().getAsRange<chunk::OutputAttr>()) {
    RankedTensorType tile = output.getType();
    int64_t width = tile.getRank() == 2 ? tile.getDimSize(1) : 1;
    Memory &memory = *outputs.emplace_back(
        std::make_unique<Memory>(tile.getElementType(), ArrayRef<int64_t>{rows, tokens, problem.heads}, width));
    append({memory.address(), memory.strides[0], memory.strides[1], memory.strides[2]});
  }

  std::vector<char> scratch(scratchBytes + 64, char(0xff));
  char *aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  bool eachChunk = kernel.argumentsOf(chunk::ArgumentKind::State).empty() && problem.offsets.empty();
  int64_t chunks = eachChunk ? llvm::divideCeil(tokens, kernel.getChunk()) : 1;
  function(block.data(), 0, sequences * problem.heads * problem.slices * chunks, aligned);

  FailureOr<Outcome> expected = chunk::interpret(kernel, call);
  ASSERT_TRUE(succeeded(expected)) << messages;
  for (auto [index, memory] : llvm::enumerate(outputs)) {
    EXPECT_TRUE(agree(memory->take(), expected->results[index].values, memory->element, problem.tolerance))
        << "output " << index;
    EXPECT_TRUE(memory->isUntouched()) << "output " << index << " was written outside";
  }
  for (auto [name, memory] : llvm::zip(entries, finals)) {
    auto wanted = llvm::find_if(expected->finalState, [&](auto &entry) { return entry.first == name; });
    EXPECT_TRUE(agree(memory->take(), wanted->second.values, memory->element, problem.tolerance)) << "state " << name;
    EXPECT_TRUE(memory->isUntouched()) << "state " << name << " was written outside";
  }
}

} // namespace stretto
