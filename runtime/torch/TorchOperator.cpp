//===- TorchOperator.cpp - A variant as an operator of PyTorch ------------===//

#include "runtime/torch/TorchOperator.h"
#include "runtime/torch/Call.h"
#include "runtime/torch/Features.h"
#include "runtime/torch/Lent.h"
#include <ATen/Parallel.h>
#include <sstream>

using namespace stretto::torch_layer;
using Parts = TorchOperator::Parts;

//===----------------------------------------------------------------------===//
// The declaration
//===----------------------------------------------------------------------===//

TorchOperator::TorchOperator(const std::string &module)
    : op(checked("", strettoOperatorCreate, module.data(), module.size()), strettoOperatorDestroy),
      name(strettoOperatorName(op.get())) {
  for (size_t i = 0; i < strettoOperatorInputCount(op.get()); ++i) {
    StrettoInput input = strettoOperatorInput(op.get(), i);
    inputs.push_back({input.name, input.isParameter, input.isOptional});
  }
  for (size_t i = 0; i < strettoOperatorOptionCount(op.get()); ++i) {
    StrettoOption option = strettoOperatorOption(op.get(), i);
    options.push_back({option.name, option.kind});
  }
}

TorchOperator::~TorchOperator() = default;

std::string TorchOperator::listOfInputs() const {
  std::string text;
  for (const Input &input : inputs)
    text += (input.isOptional ? "Tensor? " : "Tensor ") + input.name + (input.isOptional ? "=None, " : ", ");
  return text;
}

std::string TorchOperator::listOfOptions() const {
  static constexpr const char *types[] = {"float", "bool", "str"}; // by StrettoOptionKind
  std::string text;
  for (const Option &option : options)
    text += std::string(types[option.kind]) + "? " + option.name + "=None, ";
  return text;
}

std::string TorchOperator::listOfResults() const {
  std::string text;
  size_t count = strettoOperatorResultCount(op.get());
  for (size_t i = 0; i < count; ++i)
    text += (i ? ", Tensor o" : "Tensor o") + (count == 1 ? "" : std::to_string(i));
  return text;
}

std::string TorchOperator::schema(const std::string &name, CallKind kind) const {
  if (kind == CallKind::Step)
    return name + "(" + listOfInputs() + "*, Tensor(a!)[] state, " + listOfOptions() + "Tensor? slots=None) -> (" +
           listOfResults() + ")";
  return name + "(" + listOfInputs() + "*, " + listOfOptions() +
         "Tensor[]? initial_state=None, bool output_final_state=False, Tensor? cu_seqlens=None) -> (" +
         listOfResults() + ", Tensor[] final_state" + (kind == CallKind::Recorded ? ", Tensor[] saved)" : ")");
}

std::string TorchOperator::gradientSchema(const std::string &name) const {
  std::string text = schema(name + "_backward");
  text.resize(text.rfind(") -> ("));
  return text + ", bool[] wanted, Tensor?[] cotangents, Tensor[]? saved=None) -> Tensor[]";
}

/// The value of an option as the compiler reads it.
static std::optional<std::string> spell(const c10::IValue &value) {
  if (value.isNone())
    return std::nullopt;
  if (value.isBool())
    return value.toBool() ? "true" : "false";
  if (value.isString())
    return value.toStringRef();
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value.toDouble());
  return text;
}

static OptionalTensor tensorIn(const c10::IValue &value) {
  OptionalTensor tensor;
  if (value.isTensor() && value.toTensor().defined())
    tensor = value.toTensor();
  return tensor;
}

Arguments TorchOperator::read(at::ArrayRef<c10::IValue> values, CallKind kind) const {
  bool isStep = kind == CallKind::Step;
  Arguments arguments;
  arguments.isStep = isStep;
  arguments.savesRows = kind == CallKind::Recorded;
  arguments.inputs.reserve(inputs.size());
  arguments.options.reserve(options.size());
  auto next = values.begin();
  for (size_t i = 0; i < inputs.size(); ++i)
    arguments.inputs.push_back(tensorIn(*next++));
  if (isStep)
    arguments.initialState = (next++)->toTensorVector();
  for (size_t i = 0; i < options.size(); ++i)
    arguments.options.push_back(spell(*next++));
  if (isStep) {
    arguments.slots = tensorIn(*next);
    return arguments;
  }
  if (!next->isNone())
    arguments.initialState = next->toTensorVector();
  ++next;
  arguments.outputFinalState = (next++)->toBool();
  arguments.sequenceOffsets = tensorIn(*next);
  return arguments;
}

template <typename Visit> void TorchOperator::visitTensors(const Arguments &arguments, Visit visit) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (arguments.inputs[i])
      visit(inputs[i].name.c_str(), *arguments.inputs[i]);
  for (const at::Tensor &entry : arguments.initialState)
    visit(arguments.isStep ? "state" : "initial_state", entry);
  if (arguments.sequenceOffsets)
    visit("cu_seqlens", *arguments.sequenceOffsets);
  if (arguments.slots)
    visit("slots", *arguments.slots);
}

bool TorchOperator::isWithoutGradients(at::ArrayRef<c10::IValue> values) {
  bool isEnabled = at::GradMode::is_enabled();
  auto isPlain = [&](const at::Tensor &tensor) {
    return !tensor.defined() || (!(isEnabled && tensor.requires_grad()) && !tensor._fw_grad(/*level=*/0).defined());
  };
  return std::all_of(values.begin(), values.end(), [&](const c10::IValue &value) {
    if (value.isTensor())
      return isPlain(value.toTensor());
    if (!value.isList())
      return true;
    c10::ArrayRef<c10::IValue> items = value.toListRef();
    return std::all_of(items.begin(), items.end(),
                       [&](const c10::IValue &item) { return !item.isTensor() || isPlain(item.toTensor()); });
  });
}

bool TorchOperator::requiresGradient(const Arguments &arguments) const {
  if (!at::GradMode::is_enabled())
    return false;
  bool isAsked = false;
  visitTensors(arguments, [&](const char *, const at::Tensor &tensor) { isAsked |= tensor.requires_grad(); });
  return isAsked;
}

void TorchOperator::refuseForwardGradient(const Arguments &arguments) const {
  visitTensors(arguments, [&](const char *name, const at::Tensor &tensor) {
    TORCH_CHECK(!tensor._fw_grad(/*level=*/0).defined(), "stretto: ", variant(), ": [R14] '", name,
                "' carries a forward-mode gradient, which the operator does not propagate");
  });
}

//===----------------------------------------------------------------------===//
// What kernels need of tensors
//===----------------------------------------------------------------------===//

void TorchOperator::arrange(Arguments &arguments) const {
  auto copy = [](at::Tensor &tensor) { tensor = tensor.clone(at::MemoryFormat::Contiguous); };
  for (size_t i = 0; i < inputs.size(); ++i) {
    OptionalTensor &tensor = arguments.inputs[i];
    if (!tensor || tensor->numel() == 0)
      continue;
    bool isRow = !inputs[i].isParameter, hasChannels = tensor->dim() > (isRow ? arguments.leadingAxes() + 1 : 1);
    int64_t width = hasChannels ? tensor->size(-1) : 1;
    if (!isReadableRow(*tensor, width) || (!isRow && !tensor->is_contiguous()))
      copy(*tensor);
  }
  for (at::Tensor &entry : arguments.initialState) {
    // Rows lie side by side, whatever their width.
    if (entry.is_contiguous() && !(entry.is_cuda() && reinterpret_cast<intptr_t>(entry.const_data_ptr()) % 16))
      continue;
    TORCH_CHECK(!arguments.isStep, "stretto: ", variant(), ": [R6] a tensor of 'state' with shape ", entry.sizes(),
                " has the strides ", entry.strides(),
                ", expected those of a contiguous tensor, on a GPU aligned to 16 bytes: it is updated where it lies");
    copy(entry);
  }
  for (OptionalTensor *integers : {&arguments.sequenceOffsets, &arguments.slots}) {
    if (!*integers)
      continue;
    if ((*integers)->scalar_type() == at::kInt)
      *integers = (*integers)->to(at::kLong);
    *integers = (*integers)->contiguous();
  }
}

std::atomic<TorchOperator::WarningHandler> TorchOperator::warningHandler = nullptr;

void TorchOperator::warn(const char *message) {
  if (WarningHandler handler = warningHandler) {
    handler(message);
  } else {
    TORCH_WARN("stretto: ", message);
  }
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// How many tokens each sequence has seen at its end.
static at::Tensor countTokens(const OptionalTensor &before, const OptionalTensor &offsets, int64_t sequences,
                              int64_t time, at::TensorOptions options) {
  at::Tensor count = offsets ? offsets->diff() : at::full({sequences}, time, options);
  return before ? count + *before : count;
}

/// Counts the token of each sequence of a step on a GPU, behind the kernel that reads the positions.
static void advancePositions(at::Tensor positions, const OptionalTensor &slots) {
  int64_t rows = positions.size(0);
  if (!slots)
    positions.add_(1);
  else if (rows > 0) // a slot that is no row is left out
    positions.index_add_(0, slots->clamp(0, rows - 1), slots->ge(0).logical_and(slots->lt(rows)).to(at::kLong));
}

const at::Tensor &TorchOperator::firstRow(const Arguments &arguments) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (arguments.inputs[i] && !inputs[i].isParameter)
      return *arguments.inputs[i];
  TORCH_CHECK(false, "stretto: [R1] no row is given, expected at least one: its shape says B and T");
}

void TorchOperator::checkMemory(const Arguments &arguments) const {
  at::Device device = firstRow(arguments).device();
  visitTensors(arguments, [&](const char *name, const at::Tensor &tensor) {
    TORCH_CHECK(tensor.is_meta() == device.is_meta(), "stretto: ", variant(), ": [R5] '", name, "' is on ",
                tensor.device(), ", expected ", device);
  });
}

/// Memory for a row of each token that has such a shape.
static at::Tensor emptyRow(const at::Tensor &row, const Arguments &arguments, const StrettoShape &shape) {
  at::DimVector sizes = joined(row.sizes().slice(0, arguments.leadingAxes()), shape);
  return allocate(sizes, row.options().dtype(scalarTypeOf(shape.element)));
}

std::vector<at::Tensor> TorchOperator::allocateResults(const RunningCall &call, const Arguments &arguments,
                                                       const at::Tensor &row) const {
  std::vector<at::Tensor> results;
  size_t count = resultCount();
  results.reserve(count);
  for (size_t i = 0; i < count; ++i)
    results.push_back(emptyRow(row, arguments, strettoSignatureResult(call.signature, i)));
  return results;
}

std::vector<at::Tensor> TorchOperator::allocateSaved(const RunningCall &call, const Arguments &arguments,
                                                     const at::Tensor &row) {
  std::vector<at::Tensor> saved;
  for (size_t i = 0; arguments.savesRows && i < strettoSignatureSavedCount(call.signature); ++i)
    saved.push_back(emptyRow(row, arguments, strettoSignatureSaved(call.signature, i)));
  return saved;
}

std::vector<at::Tensor> TorchOperator::allocateState(const RunningCall &call, const Arguments &arguments,
                                                     const at::Tensor &row) const {
  std::vector<at::Tensor> state;
  if (!arguments.outputFinalState)
    return state;
  const OptionalTensor &offsets = arguments.sequenceOffsets;
  int64_t sequences = offsets ? offsets->size(0) - 1 : row.size(0);
  for (size_t i = 0; i < strettoSignatureStateCount(call.signature); ++i) {
    StrettoShape shape = strettoSignatureState(call.signature, i);
    at::TensorOptions options = row.options().dtype(scalarTypeOf(shape.element));
    OptionalTensor before;
    if (!arguments.initialState.empty())
      before = arguments.initialState[i];
    if (shape.window >= 0) {
      // What it has from earlier calls stays until newer tokens take its place.
      state.push_back(before ? before->clone() : at::zeros(joined({sequences}, shape), options));
    } else if (shape.element == STRETTO_I64) {
      state.push_back(countTokens(before, offsets, sequences, row.size(1), options));
    } else {
      state.push_back(allocate(joined({sequences}, shape), options));
    }
  }
  return state;
}

TorchOperator::Recorded TorchOperator::recorded(const Arguments &arguments) const {
  Recorded flags;
  if (arguments.isStep || !requiresGradient(arguments))
    return flags;
  for (const OptionalTensor &input : arguments.inputs)
    flags.push_back(input && input->requires_grad());
  for (const at::Tensor &entry : arguments.initialState)
    flags.push_back(entry.requires_grad());
  return flags;
}

StrettoKeptStates TorchOperator::prepareForGradient(const RunningCall &call, const Recorded &wanted,
                                                    const Arguments &arguments, int64_t threads) const {
  bool keeps = arguments.keeps;
  bool isFirst = !wanted.empty() && strettoSignatureAwaitsGradient(call.signature);
  if (wanted.empty() || !(isFirst || keeps))
    return {0, 0};
  size_t entries = strettoSignatureStateCount(call.signature);
  auto isWanted = [&](size_t i) { return i < wanted.size() && wanted[i]; };
  Flags ofInputs(inputs.size(), isWanted);
  Flags ofEntries(entries, [&](size_t i) { return isWanted(inputs.size() + i); });
  Flags ofResults(resultCount(), [](size_t) { return true; });
  StrettoGradientRequest asked = {ofInputs.data(), ofEntries.data(), ofResults.data(), arguments.savesRows};
  if (isFirst)
    strettoCheckedCallCompileWithGradient(call.get(), &asked, keeps, threads);
  return keeps ? strettoCheckedCallKeepStates(call.get(), &asked, threads) : StrettoKeptStates{0, 0};
}

void TorchOperator::checkContents(const RunningCall &call, const Arguments &arguments,
                                  const StrettoExecutor &executor) const {
  if (!firstRow(arguments).is_cuda()) {
    checked(variant(), strettoCheckedCallContents, call.get(), &executor);
    return;
  }
  Arguments copies = arguments;
  for (OptionalTensor &tensor : copies.inputs)
    if (tensor)
      tensor = tensor->cpu();
  for (at::Tensor &entry : copies.initialState)
    entry = entry.cpu();
  for (OptionalTensor *integers : {&copies.sequenceOffsets, &copies.slots})
    if (*integers)
      *integers = (*integers)->cpu();
  Lent threads{at::Device(at::kCPU)};
  RunningCall onHost(*this, copies);
  checked(variant(), strettoCheckedCallContents, onHost.get(), &threads.executor);
}

void TorchOperator::prepare(Arguments arguments) const {
  Recorded wanted = recorded(arguments);
  arrange(arguments);
  const at::Tensor &row = firstRow(arguments);
  Lent lent(row.device());
  RunningCall call(*this, arguments);
  prepareForGradient(call, wanted, arguments, lent.executor.threads);
  checked(variant(), strettoCheckedCallPrepare, call.get(), lent.executor.threads);
}

const Parts *TorchOperator::partsOf(const Arguments &arguments, const StrettoSignature *signature,
                                    bool ofGradient) const {
  size_t count = strettoSignatureFeatureParts(signature, /*ofGradient=*/false);
  if (arguments.form || count == 0)
    return nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  bool isApart = ofGradient && strettoSignatureFeatureParts(signature, /*ofGradient=*/true) != count;
  std::unique_ptr<const Parts> &parts = partsOfSignatures[{signature, isApart}];
  if (!parts)
    parts = std::make_unique<const Parts>(*this, signature, isApart);
  return parts.get();
}

Outputs TorchOperator::run(Arguments arguments) const {
  checkMemory(arguments);
  Recorded wanted = recorded(arguments); // copies that follow ask for no gradient
  arrange(arguments);
  const at::Tensor &row = firstRow(arguments);
  Lent lent(row.device());
  RunningCall call(*this, arguments);
  if (!row.is_cuda() || strettoDebug())
    checkContents(call, arguments, lent.executor);
  if (const Parts *parts = partsOf(arguments, call.signature, /*ofGradient=*/false))
    return parts->run(arguments, wanted);
  StrettoKeptStates kept = prepareForGradient(call, wanted, arguments, lent.executor.threads);

  int64_t bytes = checked(variant(), strettoCheckedCallPrepare, call.get(), lent.executor.threads);
  Outputs outputs = {allocateResults(call, arguments, row), allocateState(call, arguments, row),
                     allocateSaved(call, arguments, row)};
  if (!outputs.saved.empty())
    outputs.taken = takenResults(call.signature);
  if (kept.bytes)
    outputs.kept.states = {allocate({kept.bytes}, row.options().dtype(at::kByte)), kept.chunk};
  c10::SmallVector<StrettoTensor, 4> results, finalState;
  for (const at::Tensor &result : outputs.results)
    results.push_back(describeTensor(result));
  for (const at::Tensor &saved : outputs.saved)
    results.push_back(describeTensor(saved));
  for (const at::Tensor &entry : outputs.finalState)
    finalState.push_back(describeTensor(entry));
  at::Tensor workspace;
  if (bytes)
    workspace = allocate({bytes}, row.options().dtype(at::kByte));
  checked(variant(), strettoCheckedCallRun, call.get(), results.data(),
          finalState.empty() ? nullptr : finalState.data(), bytes ? workspace.mutable_data_ptr() : nullptr,
          kept.bytes ? outputs.kept.states.memory.mutable_data_ptr() : nullptr, &lent.executor);
  if (arguments.isStep && row.is_cuda())
    for (const at::Tensor &entry : arguments.initialState)
      if (entry.scalar_type() == at::kLong)
        advancePositions(entry, arguments.slots);
  if (arguments.isStep)
    for (const at::Tensor &entry : arguments.initialState)
      if (!entry.is_inference())
        entry.unsafeGetTensorImpl()->bump_version();
  return outputs;
}

void TorchOperator::setOptions(Arguments &arguments, const c10::Dict<std::string, std::string> &given) const {
  for (const Option &option : options)
    arguments.options.push_back(given.contains(option.name) ? std::optional(given.at(option.name)) : std::nullopt);
}

std::vector<bool> TorchOperator::wantedOf(const Arguments &arguments, const std::vector<std::string> &names,
                                          StrettoSignature *signature) const {
  std::set<std::string> rest(names.begin(), names.end());
  std::vector<bool> wanted;
  auto add = [&](const std::string &name, bool exists) {
    wanted.push_back(names.empty() ? exists : rest.erase(name) != 0);
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    add(inputs[i].name, arguments.inputs[i] && arguments.inputs[i]->is_floating_point());
  for (size_t i = 0; i < strettoSignatureStateCount(signature); ++i)
    add(strettoSignatureState(signature, i).name,
        i < arguments.initialState.size() && arguments.initialState[i].is_floating_point());
  TORCH_CHECK(rest.empty(), "stretto: ", variant(), ": [R14] the gradient of '", *rest.begin(),
              "' is asked for, which is neither an input nor an entry of the state");
  return wanted;
}

std::string TorchOperator::explain(Arguments arguments, const c10::Dict<std::string, std::string> &given) const {
  setOptions(arguments, given);
  arrange(arguments);
  Call call(*this, arguments);
  if (const Parts *parts = partsOf(arguments, call.signature, /*ofGradient=*/false))
    return parts->forEach(arguments, /*division=*/nullptr, /*wanted=*/{}, /*findsFeatures=*/false,
                          [&](const TorchOperator &part, Arguments own, const auto &) {
                            own.options.clear();
                            return part.explain(std::move(own), given);
                          });
  char *text = checked(variant(), strettoExplain, call.signature, &call.call, int64_t(at::get_num_threads()));
  std::string result = text;
  strettoStringDestroy(text);
  return result;
}

std::string TorchOperator::explainGradient(Arguments arguments, const c10::Dict<std::string, std::string> &given,
                                           const std::vector<std::string> &wanted) const {
  setOptions(arguments, given);
  arrange(arguments);
  Call call(*this, arguments);
  std::vector<bool> flags = wantedOf(arguments, wanted, call.signature);
  if (const Parts *parts = partsOf(arguments, call.signature, /*ofGradient=*/true))
    if (auto division = parts->divide(arguments, flags))
      return parts->forEach(arguments, &*division, wanted, /*findsFeatures=*/false,
                            [&](const TorchOperator &part, Arguments own, const std::vector<std::string> &ofPart) {
                              own.options.clear();
                              return part.explainGradient(std::move(own), given, ofPart);
                            });
  Flags ofInputs(inputs.size(), [&](size_t i) { return flags[i]; });
  Flags ofEntries(flags.size() - inputs.size(), [&](size_t i) { return flags[inputs.size() + i]; });
  Flags ofResults(resultCount(), [](size_t) { return true; });
  StrettoGradientRequest asked = {ofInputs.data(), ofEntries.data(), ofResults.data(), maySaveRows()};
  char *text =
      checked(variant(), strettoExplainGradient, call.signature, &call.call, &asked, int64_t(at::get_num_threads()));
  std::string result = text;
  strettoStringDestroy(text);
  return result;
}

std::string TorchOperator::runTuner(const Arguments &arguments, const std::vector<bool> *wanted,
                                    const std::function<StrettoTuning(StrettoSignature *)> &prepare) const {
  Call call(*this, arguments);
  StrettoTuning tuning = prepare(call.signature);
  size_t entries = strettoSignatureStateCount(call.signature);
  auto isWanted = [&](size_t i) { return wanted && i < wanted->size() && (*wanted)[i]; };
  Flags ofInputs(inputs.size(), isWanted);
  Flags ofEntries(entries, [&](size_t i) { return isWanted(inputs.size() + i); });
  Flags ofResults(resultCount(), [](size_t) { return true; });
  Flags ofFinal(entries, [](size_t) { return false; });
  StrettoGradientRequest asked = {ofInputs.data(), ofEntries.data(), ofResults.data(), maySaveRows()};
  TORCH_CHECK(!wanted || !strettoSignatureResumes(call.signature, &call.call, &asked, ofFinal.data()),
              "stretto: ", variant(),
              ": [R14] the gradient of a call that continues from windows is that of a longer one, and is not tuned");
  char *text = checked(variant(), strettoTune, call.signature, &call.call, wanted ? &asked : nullptr,
                       int64_t(at::get_num_threads()), &tuning);
  std::string result = text;
  strettoStringDestroy(text);
  return result;
}
