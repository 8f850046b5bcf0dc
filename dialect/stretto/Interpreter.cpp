//===- Interpreter.cpp - The meaning of a variant, token by token ---------===//
//
// A call is specialised to the shapes of its arguments, compiled (interpreter/Program.h) and executed sequence by
// sequence.
//
//===----------------------------------------------------------------------===//

#include "dialect/stretto/Interpreter.h"
#include "dialect/stretto/interpreter/Program.h"
#include "passes/declaration/Specialize.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

namespace {

/// A call of a variant that `program` executes.
class Execution {
public:
  Execution(VariantOp original, const Call &call) : original(original), call(call) {}
  FailureOr<Outcome> run();

private:
  LogicalResult specialise();
  LogicalResult findSequences();
  LogicalResult checkInitialState();
  FailureOr<std::vector<size_t>> wantedEntries();
  void allocate(ArrayRef<size_t> wanted);
  LogicalResult runSequence(size_t sequence, ArrayRef<size_t> wanted);

  llvm::SmallVector<int64_t, 4> shapeOf(const StateEntry &entry) const {
    return entry.shape(static_cast<int64_t>(sequences.size()), *sizes->heads(entry.heads));
  }

  /// The tokens of one sequence, `first` counted over all batch rows.
  struct Sequence {
    int64_t first, length;
  };

  VariantOp original, variant;
  const Call &call;
  OwningOpRef<ModuleOp> module;
  CallSizes callSizes;
  std::optional<Sizes> sizes;
  std::vector<Sequence> sequences;
  std::unique_ptr<Program> program;
  Outcome outcome;
};

} // namespace

/// The numbers of an array of this shape; at most the largest integer, which no array has.
static int64_t product(ArrayRef<int64_t> shape) {
  int64_t result = 1;
  bool tooLarge = false;
  for (int64_t size : shape)
    tooLarge |= llvm::MulOverflow(result, size, result);
  return tooLarge ? std::numeric_limits<int64_t>::max() : result;
}

static std::string spell(ArrayRef<int64_t> shape) {
  return "[" + llvm::join(llvm::map_range(shape, [](int64_t size) { return std::to_string(size); }), ", ") + "]";
}

LogicalResult Execution::specialise() {
  std::vector<ArgumentShape> shapes;
  for (const auto &[name, view] : call.arguments)
    shapes.push_back({name, view.shape});
  FailureOr<CallSizes> bound = bindShapes(original, shapes, call.options);
  if (failed(bound))
    return failure();
  callSizes = std::move(*bound);
  for (const auto &[name, view] : call.arguments)
    if (product(view.shape) != static_cast<int64_t>(view.values.size()))
      return original.emitError() << "[R1] the argument '" << name << "' holds " << view.values.size()
                                  << " numbers, expected " << product(view.shape) << " for its shape "
                                  << spell(view.shape);
  FailureOr<Sizes> known = Sizes::get(original, callSizes.settings);
  if (failed(known))
    return failure();
  sizes = std::move(*known);

  module = ModuleOp::create(original.getLoc());
  variant = cast<VariantOp>(original->clone());
  module->push_back(variant);
  if (failed(specialize(variant, callSizes.settings)))
    return failure();
  for (const std::string &set : namedHeadSets(variant))
    if (!sizes->heads(set))
      return original.emitError() << "[R1] the number of heads of '" << set << "' is fixed by no argument";
  auto checkStatic = [&](Operation *op, TypeRange types) -> LogicalResult {
    bool isStatic = true;
    for (Type type : types)
      forEachAxis(type, [&](StringRef axis, int64_t size) {
        if (ShapedType::isDynamic(size) && std::exchange(isStatic, false))
          op->emitError() << "[R3] the size '" << axis << "' is fixed by no argument";
      });
    return success(isStatic);
  };
  return success(!variant.getBody()
                      .walk([&](Operation *op) -> WalkResult { return checkStatic(op, op->getResultTypes()); })
                      .wasInterrupted());
}

LogicalResult Execution::findSequences() {
  if (!call.sequenceOffsets) {
    constexpr int64_t limit = int64_t(1) << 24;
    if (callSizes.batch > limit)
      return original.emitError() << "[R14] B = " << callSizes.batch << ", expected at most " << limit;
    for (int64_t b = 0; b < callSizes.batch; ++b)
      sequences.push_back({b * callSizes.time, callSizes.time});
    return success();
  }
  ArrayRef<int64_t> offsets = *call.sequenceOffsets;
  if (callSizes.batch != 1)
    return original.emitError() << "[R7] cu_seqlens is given with B = " << callSizes.batch << ", expected B = 1";
  if (offsets.empty() || offsets.front() != 0)
    return original.emitError() << "[R7] cu_seqlens starts with "
                                << (offsets.empty() ? "nothing" : std::to_string(offsets.front())) << ", expected 0";
  for (auto [from, to] : llvm::zip(offsets, offsets.drop_front())) {
    if (to < from)
      return original.emitError() << "[R7] cu_seqlens decreases from " << from << " to " << to;
    sequences.push_back({from, to - from});
  }
  if (offsets.back() != callSizes.time)
    return original.emitError() << "[R7] cu_seqlens ends with " << offsets.back()
                                << ", expected T = " << callSizes.time;
  return success();
}

LogicalResult Execution::checkInitialState() {
  if (!call.initialState.empty() && looksBack(variant))
    return original.emitError("[R14] an initial state is given, but the variant looks back at earlier tokens; "
                              "continuing it needs their rows, which the interpreter does not take");
  for (const auto &[name, view] : call.initialState) {
    auto entry = llvm::find_if(program->entries, [&](const StateEntry &each) { return each.name == name; });
    if (entry == program->entries.end())
      return original.emitError() << "[R6] '" << name << "' is no entry of the state of the variant";
    llvm::SmallVector<int64_t, 4> expected = shapeOf(*entry);
    if (ArrayRef<int64_t>(view.shape) != ArrayRef<int64_t>(expected) ||
        product(expected) != static_cast<int64_t>(view.values.size()))
      return original.emitError() << "[R6] the initial state '" << name << "' has shape " << spell(view.shape)
                                  << " and holds " << view.values.size() << " numbers, expected shape "
                                  << spell(expected);
    if (entry->kind != StateEntry::Kind::Position)
      continue;
    for (double position : view.values)
      if (!(position >= 0 && position < 1e15 && position == std::floor(position)))
        return original.emitError() << "[R6] the initial state '" << name << "' holds " << std::to_string(position)
                                    << ", expected integers of at least 0";
  }
  return success();
}

FailureOr<std::vector<size_t>> Execution::wantedEntries() {
  std::vector<size_t> wanted;
  if (call.finalState) {
    if (looksBack(variant))
      return original.emitError("[R14] the final state is asked for, but the variant looks back at earlier tokens; "
                                "continuing it needs their rows, which the interpreter does not return");
    for (size_t i = 0; i < program->entries.size(); ++i)
      wanted.push_back(i);
    return wanted;
  }
  for (const std::string &name : call.finalEntries) {
    auto entry = llvm::find_if(program->entries, [&](const StateEntry &each) { return each.name == name; });
    if (entry == program->entries.end())
      return original.emitError() << "[R6] '" << name << "' is no entry of the state of the variant";
    wanted.push_back(entry - program->entries.begin());
  }
  return wanted;
}

void Execution::allocate(ArrayRef<size_t> wanted) {
  for (Type type : variant.getType().getResults()) {
    Array &result = outcome.results.emplace_back();
    result.shape = {callSizes.batch, callSizes.time, *sizes->heads(headsOf(type))};
    forEachAxis(type, [&](StringRef, int64_t size) { result.shape.push_back(size); });
    result.values.resize(product(result.shape));
  }
  for (size_t index : wanted) {
    const StateEntry &entry = program->entries[index];
    Array array = {shapeOf(entry), {}};
    array.values.resize(product(array.shape));
    outcome.finalState.emplace_back(entry.name, std::move(array));
  }
}

LogicalResult Execution::runSequence(size_t sequence, ArrayRef<size_t> wanted) {
  auto [first, length] = sequences[sequence];
  Frame &frame = program->frame;
  frame.length = length;
  frame.start = 0;
  for (auto [index, row] : llvm::enumerate(program->arguments)) {
    // Slots are written by their own instruction only; no instruction writes an argument.
    auto *values = const_cast<double *>(call.arguments.at(variant.getArgName(index).str()).values.data());
    frame.slots[row.slot].base = values + first * frame.slots[row.slot].stride;
  }
  for (auto [entry, values] : llvm::zip_equal(program->entries, program->entryValues)) {
    auto given = call.initialState.find(entry.name);
    if (given == call.initialState.end())
      llvm::fill(values.before, entry.initial);
    else
      std::copy_n(given->second.values.data() + sequence * values.before.size(), values.before.size(),
                  values.before.data());
    if (entry.kind == StateEntry::Kind::Position)
      frame.start = static_cast<int64_t>(values.before.front());
  }
  if (failed(execute(*program)))
    return failure();
  for (auto [result, row] : llvm::zip_equal(outcome.results, program->results))
    for (int64_t t = 0; t < length; ++t)
      std::copy_n(frame.at(row, t), row.size(), result.values.data() + (first + t) * row.size());
  for (auto [array, index] : llvm::zip_equal(outcome.finalState, wanted)) {
    const std::vector<double> &after = program->entryValues[index].after;
    llvm::copy(after, array.second.values.begin() + sequence * after.size());
  }
  return success();
}

FailureOr<Outcome> Execution::run() {
  if (failed(specialise()) || failed(findSequences()))
    return failure();
  int64_t maximalLength = 0;
  for (const Sequence &sequence : sequences)
    maximalLength = std::max(maximalLength, sequence.length);
  FailureOr<std::unique_ptr<Program>> compiled = interpreter::compile(variant, *sizes, maximalLength);
  if (failed(compiled))
    return failure();
  program = std::move(*compiled);
  if (failed(checkInitialState()))
    return failure();
  FailureOr<std::vector<size_t>> wanted = wantedEntries();
  if (failed(wanted))
    return failure();
  allocate(*wanted);
  for (size_t i = 0; i < sequences.size(); ++i)
    if (failed(runSequence(i, *wanted)))
      return failure();
  return std::move(outcome);
}

FailureOr<Outcome> stretto::interpret(VariantOp variant, const Call &call) { return Execution(variant, call).run(); }
