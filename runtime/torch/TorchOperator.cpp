//===- TorchOperator.cpp - A variant as an operator of PyTorch ------------===//

#include "runtime/torch/TorchOperator.h"
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <deque>
#include <mutex>
#include <set>
#include <sstream>
#include <torch/csrc/stable/c/shim.h>

using namespace stretto::torch_layer;

//===----------------------------------------------------------------------===//
// The declaration
//===----------------------------------------------------------------------===//

TorchOperator::TorchOperator(const std::string &module)
    : op(checked("", strettoOperatorCreate, module.data(), module.size()), strettoOperatorDestroy) {
  for (size_t i = 0; i < strettoOperatorInputCount(op.get()); ++i) {
    StrettoInput input = strettoOperatorInput(op.get(), i);
    inputs.push_back({input.name, input.isParameter, input.isOptional});
  }
  for (size_t i = 0; i < strettoOperatorOptionCount(op.get()); ++i) {
    StrettoOption option = strettoOperatorOption(op.get(), i);
    options.push_back({option.name, option.kind});
  }
}

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

std::string TorchOperator::schema(const std::string &name, bool isStep) const {
  if (isStep)
    return name + "(" + listOfInputs() + "*, Tensor(a!)[] state, " + listOfOptions() + "Tensor? slots=None) -> (" +
           listOfResults() + ")";
  return name + "(" + listOfInputs() + "*, " + listOfOptions() +
         "Tensor[]? initial_state=None, bool output_final_state=False, Tensor? cu_seqlens=None) -> (" +
         listOfResults() + ", Tensor[] final_state)";
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

Arguments TorchOperator::read(at::ArrayRef<c10::IValue> values, bool isStep) const {
  Arguments arguments;
  arguments.isStep = isStep;
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

void TorchOperator::visitTensors(const Arguments &arguments,
                                 const std::function<void(const std::string &, const at::Tensor &)> &visit) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (arguments.inputs[i])
      visit(inputs[i].name, *arguments.inputs[i]);
  for (const at::Tensor &entry : arguments.initialState)
    visit(arguments.isStep ? "state" : "initial_state", entry);
  if (arguments.sequenceOffsets)
    visit("cu_seqlens", *arguments.sequenceOffsets);
  if (arguments.slots)
    visit("slots", *arguments.slots);
}

bool TorchOperator::requiresGradient(const Arguments &arguments) const {
  bool isAsked = false;
  visitTensors(arguments, [&](const std::string &, const at::Tensor &tensor) { isAsked |= tensor.requires_grad(); });
  return isAsked && at::GradMode::is_enabled();
}

void TorchOperator::refuseForwardGradient(const Arguments &arguments) const {
  visitTensors(arguments, [&](const std::string &name, const at::Tensor &tensor) {
    TORCH_CHECK(!tensor._fw_grad(/*level=*/0).defined(), "stretto: ", variant(), ": [R14] '", name,
                "' carries a forward-mode gradient, which the operator does not propagate");
  });
}

//===----------------------------------------------------------------------===//
// One call of the C interface
//===----------------------------------------------------------------------===//

static StrettoElement elementOf(at::ScalarType type) {
  switch (type) {
  case at::kHalf:
    return STRETTO_F16;
  case at::kBFloat16:
    return STRETTO_BF16;
  case at::kFloat:
    return STRETTO_F32;
  case at::kDouble:
    return STRETTO_F64;
  case at::kLong:
    return STRETTO_I64;
  default:
    return STRETTO_OTHER;
  }
}

static at::ScalarType scalarTypeOf(StrettoElement element) {
  static constexpr at::ScalarType types[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kLong};
  return types[element];
}

/// The name that Python gives a type: "bfloat16".
static const char *spell(at::ScalarType type) {
  switch (type) {
  case at::kHalf:
    return "float16";
  case at::kBFloat16:
    return "bfloat16";
  case at::kFloat:
    return "float32";
  case at::kDouble:
    return "float64";
  case at::kInt:
    return "int32";
  case at::kLong:
    return "int64";
  default:
    return at::toString(type);
  }
}

static StrettoTensor describeTensor(const at::Tensor &tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                                    void *data) {
  StrettoTensor result = {};
  result.isPresent = true;
  result.data = data;
  result.element = elementOf(tensor.scalar_type());
  result.elementName = spell(tensor.scalar_type());
  result.device = tensor.is_cuda() ? tensor.get_device() : -1;
  result.rank = static_cast<int32_t>(sizes.size());
  result.sizes = sizes.data();
  result.strides = strides.data();
  return result;
}

static StrettoTensor describeTensor(const at::Tensor &tensor) {
  return describeTensor(tensor, tensor.sizes(), tensor.strides(), const_cast<void *>(tensor.const_data_ptr()));
}

static StrettoTensor describeTensor(const OptionalTensor &tensor) {
  return tensor ? describeTensor(*tensor) : StrettoTensor{};
}

namespace {
/// Words as C has them.
struct Flags {
  template <typename Flag> Flags(size_t count, Flag flag) : flags(std::make_unique<bool[]>(count)) {
    for (size_t i = 0; i < count; ++i)
      flags[i] = flag(i);
  }
  const bool *data() const { return flags.get(); }
  bool operator[](size_t index) const { return flags[index]; }

private:
  std::unique_ptr<bool[]> flags;
};
} // namespace

/// Describes the arguments of a call, which have to outlive it.
class TorchOperator::Call {
public:
  explicit Call(const TorchOperator &op, const Arguments &arguments) {
    for (const OptionalTensor &input : arguments.inputs)
      tensors.push_back(describeTensor(input));
    for (const std::optional<std::string> &option : arguments.options)
      options.push_back(option ? option->c_str() : nullptr);
    for (const at::Tensor &entry : arguments.initialState)
      state.push_back(describeTensor(entry));
    call = {arguments.isStep,
            tensors.data(),
            options.data(),
            state.data(),
            state.size(),
            describeTensor(arguments.sequenceOffsets),
            describeTensor(arguments.slots),
            arguments.form ? &*arguments.form : nullptr};
    signature = checked(op.variant(), strettoOperatorCheck, op.op.get(), &call);
    if (!arguments.hasWindows)
      for (size_t i = 0; i < state.size(); ++i)
        if (strettoSignatureState(signature, i).window >= 0)
          state[i].data = nullptr;
  }

  StrettoOperatorCall call;
  StrettoSignature *signature;

private:
  c10::SmallVector<StrettoTensor, 8> tensors;
  c10::SmallVector<const char *, 4> options;
  c10::SmallVector<StrettoTensor, 4> state;
};

//===----------------------------------------------------------------------===//
// What kernels need of tensors, and what they are lent
//===----------------------------------------------------------------------===//

/// Bytes to which a kernel on a GPU wants rows of this width aligned.
static int64_t alignmentOf(const at::Tensor &tensor, int64_t width) {
  int64_t bytes = width * tensor.element_size();
  return std::min<int64_t>(16, bytes & -bytes);
}

/// Whether the tensor begins, and each of its rows, at a multiple of so many bytes.
static bool isAligned(const at::Tensor &tensor, int64_t alignment) {
  if (reinterpret_cast<intptr_t>(tensor.const_data_ptr()) % alignment)
    return false;
  for (int64_t axis = 0; axis + 1 < tensor.dim(); ++axis)
    if (tensor.size(axis) > 1 && tensor.stride(axis) * tensor.element_size() % alignment)
      return false;
  return true;
}

void TorchOperator::arrange(Arguments &arguments) const {
  auto copy = [](at::Tensor &tensor) { tensor = tensor.clone(at::MemoryFormat::Contiguous); };
  for (size_t i = 0; i < inputs.size(); ++i) {
    OptionalTensor &tensor = arguments.inputs[i];
    if (!tensor || tensor->numel() == 0)
      continue;
    bool isRow = !inputs[i].isParameter, hasChannels = tensor->dim() > (isRow ? arguments.leadingAxes() + 1 : 1);
    int64_t width = hasChannels ? tensor->size(-1) : 1;
    bool isReadable = isRow ? width == 1 || tensor->stride(-1) == 1 : tensor->is_contiguous();
    if (!isReadable || (tensor->is_cuda() && !isAligned(*tensor, alignmentOf(*tensor, width))))
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

namespace {

/// The threads of the CPU, or the current stream of a device.
struct Lent {
  explicit Lent(at::Device device) : device(device) {
    executor.context = this;
    executor.threads = at::get_num_threads();
    // PyTorch's own function, so that its threads are used whichever OpenMP it was built with.
    executor.parallelFor = [](void *, int64_t count, StrettoBody body, void *context) {
      TORCH_CHECK(torch_parallel_for(0, count, /*grain_size=*/1, body, context) == 0, "stretto: cannot use threads");
    };
    executor.upload = [](void *context, const void *bytes, size_t count) {
      return static_cast<Lent *>(context)->upload(bytes, count);
    };
    executor.warn = [](void *, const char *message) { TorchOperator::warn(message); };
    executor.addUp = [](void *context, const StrettoTensor *parts, const StrettoTensor *sum,
                        const StrettoPackedSegment *packed) {
      const Lent &lent = *static_cast<Lent *>(context);
      at::Tensor total = lent.tensorOf(*parts).sum(/*dim=*/3);
      if (packed)
        putInPlace(total, lent.tensorOf(*sum), lent.tensorOf(packed->offsets), packed->first, packed->tokens);
      else
        lent.tensorOf(*sum).copy_(total);
    };
    if (device.is_cuda())
      executor.stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  }

  StrettoExecutor executor = {};

private:
  at::Tensor tensorOf(const StrettoTensor &described) const {
    auto shape = [&](const int64_t *numbers) { return at::IntArrayRef(numbers, described.rank); };
    return at::from_blob(described.data, shape(described.sizes), shape(described.strides),
                         at::TensorOptions(device).dtype(scalarTypeOf(described.element)));
  }

  /// Copies the rows of a segment of packed sequences, which lie beside each other, to the places of their tokens. Only
  /// the device knows which there are: a place without one gives what another has, which is written twice, or where
  /// there is none the row that is there.
  static void putInPlace(const at::Tensor &rows, const at::Tensor &whole, const at::Tensor &offsets, int64_t first,
                         int64_t tokens) {
    int64_t sequences = offsets.size(0) - 1, all = whole.size(1);
    at::Tensor bounds = offsets.clamp(0, all), begins = bounds.slice(0, 0, sequences), ends = bounds.slice(0, 1);
    at::Tensor begin = at::minimum(at::arange(sequences, bounds.options()) * tokens, begins);
    at::Tensor place = at::arange(rows.size(1), bounds.options());
    at::Tensor sequence = at::searchsorted(begin, place, /*out_int32=*/false, /*right=*/true) - 1;
    at::Tensor inSegment = place - begin.index_select(0, sequence);
    at::Tensor token = begins.index_select(0, sequence) + first + inSegment;
    at::Tensor exists = (inSegment < tokens).logical_and(token < ends.index_select(0, sequence));
    at::Tensor existing = exists.to(at::kLong).argmax().view({1});
    at::Tensor source = at::where(exists, place, existing);
    token = at::where(exists, token, token.index_select(0, existing)).clamp(0, all - 1);
    at::Tensor isAny = exists.index_select(0, existing).view({1, 1, 1, 1});
    at::Tensor moved = rows.index_select(1, source).to(whole.scalar_type());
    whole.index_copy_(1, token, at::where(isAny, moved, whole.index_select(1, token)));
  }

  /// Tables of kernels live as long as the process.
  void *upload(const void *bytes, size_t count) const {
    static std::mutex mutex;
    static auto &tables = *new std::vector<at::Tensor>();
    at::Tensor host = at::empty({static_cast<int64_t>(count)}, at::kByte);
    std::memcpy(host.mutable_data_ptr(), bytes, count);
    at::Tensor table = host.to(device);
    std::lock_guard<std::mutex> lock(mutex);
    tables.push_back(table);
    return table.mutable_data_ptr();
  }

  at::Device device;
};

} // namespace

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

static std::vector<int64_t> joined(at::IntArrayRef leading, const StrettoShape &shape) {
  std::vector<int64_t> sizes = leading.vec();
  sizes.insert(sizes.end(), shape.sizes, shape.sizes + shape.rank);
  return sizes;
}

/// How many tokens each sequence has seen at its end.
static at::Tensor countTokens(const OptionalTensor &before, const OptionalTensor &offsets, int64_t sequences,
                              int64_t time, at::TensorOptions options) {
  at::Tensor count = offsets ? offsets->diff() : at::full({sequences}, time, options);
  return before ? count + *before : count;
}

/// The argument whose shape says batch and time, and whose device is that of the call.
template <typename Inputs>
static const at::Tensor &rowOf(const std::vector<OptionalTensor> &tensors, const Inputs &inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (tensors[i] && !inputs[i].isParameter)
      return *tensors[i];
  TORCH_CHECK(false, "stretto: [R1] no row is given, expected at least one: its shape says B and T");
}

/// Counts the token of each sequence of a step on a GPU, behind the kernel that reads the positions.
static void advancePositions(at::Tensor positions, const OptionalTensor &slots) {
  int64_t rows = positions.size(0);
  if (!slots)
    positions.add_(1);
  else if (rows > 0) // a slot that is no row is left out
    positions.index_add_(0, slots->clamp(0, rows - 1), slots->ge(0).logical_and(slots->lt(rows)).to(at::kLong));
}

void TorchOperator::checkMemory(const Arguments &arguments) const {
  at::Device device = rowOf(arguments.inputs, inputs).device();
  visitTensors(arguments, [&](const std::string &name, const at::Tensor &tensor) {
    TORCH_CHECK(tensor.is_meta() == device.is_meta(), "stretto: ", variant(), ": [R5] '", name, "' is on ",
                tensor.device(), ", expected ", device);
  });
}

std::vector<at::Tensor> TorchOperator::allocateResults(const Call &call, const Arguments &arguments,
                                                       const at::Tensor &row) const {
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < strettoOperatorResultCount(op.get()); ++i) {
    StrettoShape shape = strettoSignatureResult(call.signature, i);
    std::vector<int64_t> sizes = joined(row.sizes().slice(0, arguments.leadingAxes()), shape);
    at::TensorOptions options = row.options().dtype(scalarTypeOf(shape.element));
    // What has no slot is left as it is.
    results.push_back(arguments.slots ? at::zeros(sizes, options) : at::empty(sizes, options));
  }
  return results;
}

std::vector<at::Tensor> TorchOperator::allocateState(const Call &call, const Arguments &arguments,
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
      state.push_back(at::empty(joined({sequences}, shape), options));
    }
  }
  return state;
}

Outputs TorchOperator::run(Arguments arguments) const {
  checkMemory(arguments);
  arrange(arguments);
  const at::Tensor &row = rowOf(arguments.inputs, inputs);
  c10::OptionalDeviceGuard guard;
  if (row.is_cuda())
    guard.reset_device(row.device());
  Call call(*this, arguments);
  Lent lent(row.device());

  if (!row.is_cuda()) {
    checked(variant(), strettoCheckContents, call.signature, &call.call, &lent.executor);
  } else if (strettoDebug()) {
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
    Call onHost(*this, copies);
    checked(variant(), strettoCheckContents, onHost.signature, &onHost.call, &threads.executor);
  }

  Outputs outputs = {allocateResults(call, arguments, row), allocateState(call, arguments, row)};
  std::vector<StrettoTensor> results, finalState;
  for (const at::Tensor &result : outputs.results)
    results.push_back(describeTensor(result));
  for (const at::Tensor &entry : outputs.finalState)
    finalState.push_back(describeTensor(entry));
  int64_t bytes = checked(variant(), strettoWorkspace, call.signature, &call.call, lent.executor.threads);
  at::Tensor workspace;
  if (bytes)
    workspace = at::empty({bytes}, row.options().dtype(at::kByte));
  checked(variant(), strettoRun, call.signature, &call.call, results.data(),
          finalState.empty() ? nullptr : finalState.data(), bytes ? workspace.mutable_data_ptr() : nullptr,
          &lent.executor);
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
  Flags ofInputs(inputs.size(), [&](size_t i) { return flags[i]; });
  Flags ofEntries(flags.size() - inputs.size(), [&](size_t i) { return flags[inputs.size() + i]; });
  Flags ofResults(resultCount(), [](size_t) { return true; });
  StrettoGradientRequest asked = {ofInputs.data(), ofEntries.data(), ofResults.data()};
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
  StrettoGradientRequest asked = {ofInputs.data(), ofEntries.data(), ofResults.data()};
  TORCH_CHECK(!wanted || !strettoSignatureResumes(call.signature, &call.call, &asked, ofFinal.data()),
              "stretto: ", variant(),
              ": [R14] the gradient of a call that continues from windows is that of a longer one, and is not tuned");
  char *text = checked(variant(), strettoTune, call.signature, &call.call, wanted ? &asked : nullptr,
                       int64_t(at::get_num_threads()), &tuning);
  std::string result = text;
  strettoStringDestroy(text);
  return result;
}

//===----------------------------------------------------------------------===//
// Shapes alone
//===----------------------------------------------------------------------===//

namespace {
/// A tensor without memory, as one whose leading sizes are 1 instead of symbols.
struct Stand {
  Stand(const at::Tensor &tensor, int64_t leading) {
    c10::SymIntArrayRef symbols = tensor.sym_sizes();
    for (int64_t i = 0; i < tensor.dim(); ++i)
      sizes.push_back(i < leading ? 1 : symbols[i].guard_int(__FILE__, __LINE__));
    strides.resize(sizes.size());
    described = describeTensor(tensor, sizes, strides, nullptr);
  }
  std::vector<int64_t> sizes, strides;
  StrettoTensor described;
};

std::vector<c10::SymInt> joinedSymbols(std::vector<c10::SymInt> leading, const StrettoShape &shape) {
  leading.insert(leading.end(), shape.sizes, shape.sizes + shape.rank);
  return leading;
}
} // namespace

Outputs TorchOperator::describe(const Arguments &arguments) const {
  const at::Tensor &row = rowOf(arguments.inputs, inputs);
  checkMemory(arguments);
  std::deque<Stand> stands;
  std::vector<StrettoTensor> tensors, state;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const OptionalTensor &tensor = arguments.inputs[i];
    if (!tensor) {
      tensors.push_back({});
      continue;
    }
    int64_t leading = arguments.leadingAxes();
    if (inputs[i].isParameter || tensor->dim() < leading || row.dim() < leading)
      leading = 0;
    for (int64_t axis = 0; axis < leading; ++axis)
      TORCH_SYM_CHECK(tensor->sym_size(axis).sym_eq(row.sym_size(axis)), "stretto: ", variant(),
                      ": [R1] the argument '", inputs[i].name, "' has ", axis ? "T" : "B", " = ",
                      tensor->sym_size(axis), ", expected ", row.sym_size(axis));
    tensors.push_back(stands.emplace_back(*tensor, leading).described);
  }
  for (const at::Tensor &entry : arguments.initialState)
    state.push_back(stands.emplace_back(entry, std::min<int64_t>(entry.dim(), 1)).described);
  std::vector<const char *> words;
  words.reserve(arguments.options.size());
  for (const std::optional<std::string> &option : arguments.options)
    words.push_back(option ? option->c_str() : nullptr);
  StrettoOperatorCall call = {};
  call.isStep = arguments.isStep;
  call.arguments = tensors.data();
  call.options = words.data();
  call.initialState = state.data();
  call.initialStateCount = state.size();
  StrettoSignature *signature = checked(variant(), strettoOperatorCheck, op.get(), &call);

  c10::SymInt sequences = row.sym_size(0);
  if (arguments.sequenceOffsets) {
    TORCH_CHECK(arguments.sequenceOffsets->dim() == 1, "stretto: ", variant(), ": [R7] 'cu_seqlens' has rank ",
                arguments.sequenceOffsets->dim(), ", expected [sequences + 1]");
    TORCH_SYM_CHECK(row.sym_size(0).sym_eq(1), "stretto: ", variant(),
                    ": [R7] 'cu_seqlens' is given with B = ", row.sym_size(0), ", expected B = 1");
    sequences = arguments.sequenceOffsets->sym_size(0) - 1;
  }
  if (arguments.slots) {
    TORCH_CHECK(arguments.slots->dim() == 1, "stretto: ", variant(), ": [R7] 'slots' has rank ", arguments.slots->dim(),
                ", expected [B]");
    TORCH_SYM_CHECK(arguments.slots->sym_size(0).sym_eq(sequences), "stretto: ", variant(), ": [R7] 'slots' has ",
                    arguments.slots->sym_size(0), " entries, expected ", sequences);
    if (!arguments.initialState.empty())
      sequences = arguments.initialState[0].sym_size(0);
  }
  for (const at::Tensor &entry : arguments.initialState)
    TORCH_SYM_CHECK(entry.sym_size(0).sym_eq(sequences), "stretto: ", variant(), ": [R6] a tensor of '",
                    arguments.isStep ? "state" : "initial_state", "' has ", entry.sym_size(0), " rows, expected ",
                    sequences);

  Outputs outputs;
  for (size_t i = 0; i < strettoOperatorResultCount(op.get()); ++i) {
    StrettoShape shape = strettoSignatureResult(signature, i);
    c10::SymIntArrayRef sizes = row.sym_sizes();
    std::vector<c10::SymInt> leading(sizes.begin(), sizes.begin() + arguments.leadingAxes());
    outputs.results.push_back(
        at::empty_symint(joinedSymbols(leading, shape), row.options().dtype(scalarTypeOf(shape.element))));
  }
  for (size_t i = 0; arguments.outputFinalState && i < strettoSignatureStateCount(signature); ++i) {
    StrettoShape shape = strettoSignatureState(signature, i);
    outputs.finalState.push_back(
        at::empty_symint(joinedSymbols({sequences}, shape), row.options().dtype(scalarTypeOf(shape.element))));
  }
  return outputs;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The inputs and entries of the initial state whose gradients are wanted.
static std::vector<at::Tensor> differentiated(const std::string &variant, const Arguments &arguments,
                                              const std::vector<bool> &wanted) {
  std::vector<OptionalTensor> all = arguments.inputs;
  all.insert(all.end(), arguments.initialState.begin(), arguments.initialState.end());
  TORCH_CHECK(wanted.size() == all.size(), "stretto: ", variant, ": [R14] 'wanted' has ", wanted.size(),
              " words, expected ", all.size(), ": one for each input and each entry of 'initial_state'");
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!wanted[i])
      continue;
    TORCH_CHECK(all[i] && all[i]->is_floating_point(), "stretto: ", variant, ": [R14] the gradient of argument ", i,
                " is wanted, which is absent or no real numbers");
    tensors.push_back(*all[i]);
  }
  return tensors;
}

std::vector<at::Tensor> TorchOperator::describeGradient(const Arguments &arguments,
                                                        const std::vector<bool> &wanted) const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor &tensor : differentiated(variant(), arguments, wanted))
    gradients.push_back(at::empty_symint(tensor.sym_sizes(), tensor.options()));
  return gradients;
}

/// The sum over groups of neighbours on an axis.
static at::Tensor sumOfGroups(const at::Tensor &parts, int64_t axis, int64_t group) {
  return group == 1 ? parts : parts.unflatten(axis, {parts.size(axis) / group, group}).sum(axis + 1);
}

/// All with the first of each group of neighbours on an axis, and 0 with the others.
static at::Tensor withFirstOfGroups(const at::Tensor &tensor, int64_t axis, int64_t group) {
  if (group == 1)
    return tensor.contiguous();
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.insert(sizes.begin() + axis + 1, group);
  at::Tensor parts = at::zeros(sizes, tensor.options());
  parts.select(axis + 1, 0).copy_(tensor);
  return parts.flatten(axis, axis + 1);
}

std::vector<at::Tensor> TorchOperator::gradient(Arguments arguments, const std::vector<bool> &wanted,
                                                const std::vector<OptionalTensor> &cotangents) const {
  checkMemory(arguments);
  std::vector<at::Tensor> of = differentiated(variant(), arguments, wanted);
  if (of.empty())
    return {};
  arrange(arguments);
  const at::Tensor &row = rowOf(arguments.inputs, inputs);
  c10::OptionalDeviceGuard guard;
  if (row.is_cuda())
    guard.reset_device(row.device());
  Call call(*this, arguments);
  Lent lent(row.device());
  int64_t batch = row.size(0), time = row.size(1);
  int64_t sequences = arguments.sequenceOffsets ? arguments.sequenceOffsets->size(0) - 1 : batch;
  size_t resultCount = this->resultCount(), entryCount = strettoSignatureStateCount(call.signature);
  TORCH_CHECK(cotangents.size() >= resultCount, "stretto: ", variant(), ": [R1] there are ", cotangents.size(),
              " cotangents, expected at least ", resultCount);

  // What is asked for, as the C interface has it. Without an initial state none of its entries is.
  auto isWanted = [&](size_t i) { return i < wanted.size() && wanted[i]; };
  Flags ofInputs(inputs.size(), isWanted);
  Flags ofEntries(entryCount, [&](size_t i) { return isWanted(inputs.size() + i); });
  Flags ofResults(resultCount, [&](size_t i) { return cotangents[i].has_value(); });
  Flags ofFinal(entryCount, [&](size_t i) {
    return resultCount + i < cotangents.size() && cotangents[resultCount + i].has_value();
  });
  StrettoGradientRequest asked = {ofInputs.data(), ofEntries.data(), ofResults.data()};
  if (arguments.hasWindows && strettoSignatureResumes(call.signature, &call.call, &asked, ofFinal.data()))
    return resumedGradient(arguments, call.signature, wanted, cotangents);
  StrettoGradient *gradient =
      checked(variant(), strettoSignatureGradient, call.signature, &call.call, &asked, lent.executor.threads);

  std::deque<at::Tensor> kept; // described tensors, which have to outlive the call
  auto describe = [&](at::Tensor tensor) { return describeTensor(kept.emplace_back(std::move(tensor))); };
  std::vector<StrettoTensor> resultCotangents, entryCotangents, rows, entries;
  for (size_t i = 0; i < resultCount; ++i) {
    if (!cotangents[i]) {
      resultCotangents.emplace_back();
      continue;
    }
    StrettoShape shape = strettoSignatureResult(call.signature, i);
    std::vector<int64_t> sizes = joined({batch, time}, shape);
    TORCH_CHECK(cotangents[i]->sizes() == sizes, "stretto: ", variant(), ": [R1] the cotangent of result ", i,
                " has shape ", cotangents[i]->sizes(), ", expected ", sizes);
    at::Tensor cotangent = cotangents[i]->to(row.options().dtype(scalarTypeOf(shape.element))).contiguous();
    if (cotangent.is_cuda() && !isAligned(cotangent, alignmentOf(cotangent, shape.rank > 1 ? sizes.back() : 1)))
      cotangent = cotangent.clone();
    resultCotangents.push_back(describe(std::move(cotangent)));
  }
  std::vector<at::Tensor> ofRows, entryParts;
  for (size_t i = 0; i < strettoGradientRowCount(gradient); ++i) {
    StrettoGradientPart part = strettoGradientRow(gradient, i);
    ofRows.push_back(
        at::empty(joined({batch, time}, part.shape), row.options().dtype(scalarTypeOf(part.shape.element))));
    rows.push_back(describe(ofRows.back()));
  }
  std::set<size_t> hasCotangent;
  for (size_t i = 0; i < strettoGradientEntryCount(gradient); ++i) {
    StrettoGradientPart part = strettoGradientEntry(gradient, i);
    at::TensorOptions options = row.options().dtype(scalarTypeOf(part.shape.element));
    // What nobody wants is carried from segment to segment all the same.
    entryParts.push_back(at::zeros(joined({sequences}, part.shape), options));
    entries.push_back(describe(entryParts.back()));
    OptionalTensor cotangent;
    bool isGiven = part.of == STRETTO_OF_STATE && resultCount + part.index < cotangents.size();
    if (isGiven && hasCotangent.insert(part.index).second)
      cotangent = cotangents[resultCount + part.index];
    int64_t axis = headAxis(call.signature, part);
    entryCotangents.push_back(cotangent ? describe(withFirstOfGroups(cotangent->to(options), axis, part.group))
                                        : StrettoTensor{});
  }
  at::Tensor workspace = at::empty({strettoGradientWorkspace(gradient, &call.call)}, row.options().dtype(at::kByte));
  StrettoGradientCall tensors = {resultCotangents.data(), entryCotangents.data(), rows.data(), entries.data(),
                                 workspace.mutable_data_ptr()};
  checked(variant(), strettoGradientRun, gradient, &call.call, &tensors, &lent.executor);

  // What belongs together is added up.
  std::vector<at::Tensor> sums(inputs.size() + entryCount);
  auto addTo = [](at::Tensor &sum, const at::Tensor &part) { sum = sum.defined() ? sum + part : part; };
  for (size_t i = 0; i < ofRows.size(); ++i)
    addTo(sums[strettoGradientRow(gradient, i).index], ofRows[i]);
  for (size_t i = 0; i < entryParts.size(); ++i) {
    StrettoGradientPart part = strettoGradientEntry(gradient, i);
    if (!part.isWanted)
      continue;
    at::Tensor sum = sumOfGroups(entryParts[i], headAxis(call.signature, part), part.group);
    if (part.of == STRETTO_OF_PARAMETER)
      addTo(sums[part.index], sum.sum(0));
    else
      addTo(sums[inputs.size() + part.index], sum);
  }
  for (size_t i = 0; i < entryCount; ++i) {
    int64_t window = strettoSignatureState(call.signature, i).window;
    if (window >= 0 && wanted[window] && ofFinal[i])
      addTo(sums[window], fromFinalWindow(arguments, entryNames(arguments), *cotangents[resultCount + i]));
  }
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i])
      continue;
    const at::Tensor &like = of[gradients.size()];
    at::Tensor found = sums[i];
    // What tokens leave alone hands its cotangent on.
    if (i >= inputs.size() && !found.defined() && ofFinal[i - inputs.size()])
      found = *cotangents[resultCount + i - inputs.size()];
    gradients.push_back(found.defined() ? found.reshape(like.sizes()).to(like.options())
                                        : at::zeros(like.sizes(), like.options()));
  }
  return gradients;
}

const at::Tensor &TorchOperator::firstRow(const Arguments &arguments) const { return rowOf(arguments.inputs, inputs); }

std::vector<std::string> TorchOperator::entryNames(const Arguments &arguments) const {
  Call call(*this, arguments);
  size_t count = strettoSignatureStateCount(call.signature);
  std::vector<std::string> names;
  names.reserve(count);
  for (size_t i = 0; i < count; ++i)
    names.emplace_back(strettoSignatureState(call.signature, i).name);
  return names;
}

int64_t TorchOperator::headAxis(StrettoSignature *signature, const StrettoGradientPart &part) {
  // A tail has its rows before the heads.
  if (part.of != STRETTO_OF_STATE)
    return 1;
  StrettoShape entry = strettoSignatureState(signature, part.index);
  return entry.isTail ? 2 : 1;
}

std::string TorchOperator::gradientSchema(const std::string &name) const {
  std::string text = schema(name + "_backward");
  text.resize(text.rfind(") -> ("));
  return text + ", bool[] wanted, Tensor?[] cotangents) -> Tensor[]";
}
