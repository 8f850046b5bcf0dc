//===- Register.cpp - Operators of PyTorch, declared at run time ----------===//
//
// One boxed kernel each for the CPU, CUDA, Meta and Autograd serves every variant: a functor that holds its operator.
//
//===----------------------------------------------------------------------===//

#include "runtime/torch/Autograd.h"
#include <map>
#include <mutex>
#include <torch/library.h>

using namespace stretto::torch_layer;

namespace {

using Operator = std::shared_ptr<const TorchOperator>;
using Stack = torch::jit::Stack;

Arguments top(const TorchOperator &op, const Stack &stack, CallKind kind = CallKind::Plain) {
  size_t count = op.argumentCount(kind);
  return op.read(at::ArrayRef<c10::IValue>(stack.data() + stack.size() - count, count), kind);
}

void replaceTop(const TorchOperator &op, Stack &stack, Outputs outputs, CallKind kind) {
  torch::jit::drop(stack, op.argumentCount(kind));
  for (at::Tensor &result : outputs.results)
    torch::jit::push(stack, std::move(result));
  if (kind != CallKind::Step)
    torch::jit::push(stack, std::move(outputs.finalState));
  if (kind == CallKind::Recorded)
    torch::jit::push(stack, std::move(outputs.saved));
}

/// On the CPU, and on CUDA devices.
template <CallKind Kind> struct Run : c10::OperatorKernel {
  Run(Operator op, const std::string &) : op(std::move(op)) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, Stack *stack) {
    replaceTop(*op, *stack, op->run(top(*op, *stack, Kind)), Kind);
  }
  Operator op;
};

/// On tensors without memory.
template <CallKind Kind> struct Describe : c10::OperatorKernel {
  Describe(Operator op, const std::string &) : op(std::move(op)) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, Stack *stack) {
    replaceTop(*op, *stack, op->describe(top(*op, *stack, Kind)), Kind);
  }
  Operator op;
};

/// Where gradients are recorded: a step leaves none, and a recorded call has the gradient of the operator.
template <CallKind Kind> struct RefuseGradient : c10::OperatorKernel {
  RefuseGradient(Operator op, const std::string &) : op(std::move(op)) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, Stack *stack) {
    size_t count = op->argumentCount(Kind);
    at::ArrayRef<c10::IValue> values(stack->data() + stack->size() - count, count);
    if (!TorchOperator::isWithoutGradients(values)) {
      Arguments arguments = top(*op, *stack, Kind);
      op->refuseForwardGradient(arguments);
      const char *problem = Kind == CallKind::Step ? "a step has no gradient; call it under torch.no_grad(), or the "
                                                     "operator itself on one token"
                                                   : "a recorded call has no gradient; call the operator itself";
      TORCH_CHECK(!op->requiresGradient(arguments), "stretto: ", op->variant(), ": [R14] ", problem);
    }
    at::AutoDispatchBelowAutograd guard;
    handle.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
  Operator op;
};

std::vector<bool> flagsIn(const c10::IValue &list) {
  std::vector<bool> flags;
  for (bool flag : list.toBoolList())
    flags.push_back(flag);
  return flags;
}

/// The gradient, on the CPU and on CUDA devices.
struct RunGradient : c10::OperatorKernel {
  RunGradient(Operator op, const std::string &) : op(std::move(op)) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, Stack *stack) {
    c10::IValue given = torch::jit::pop(*stack);
    Kept kept;
    if (!given.isNone())
      kept.saved = given.toTensorVector();
    std::vector<OptionalTensor> cotangents = torch::jit::pop(*stack).toOptionalTensorVector();
    std::vector<bool> wanted = flagsIn(torch::jit::pop(*stack));
    std::vector<at::Tensor> gradients = op->gradient(top(*op, *stack), wanted, cotangents, kept);
    torch::jit::drop(*stack, op->argumentCount());
    torch::jit::push(*stack, std::move(gradients));
  }
  Operator op;
};

struct DescribeGradient : c10::OperatorKernel {
  DescribeGradient(Operator op, const std::string &) : op(std::move(op)) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, Stack *stack) {
    torch::jit::drop(*stack, 2);
    std::vector<bool> wanted = flagsIn(torch::jit::pop(*stack));
    std::vector<at::Tensor> gradients = op->describeGradient(top(*op, *stack), wanted);
    torch::jit::drop(*stack, op->argumentCount());
    torch::jit::push(*stack, std::move(gradients));
  }
  Operator op;
};

/// The operators of this process, by name.
class Registry {
public:
  static Registry &instance() {
    static auto &registry = *new Registry(); // PyTorch's dispatcher may outlive static objects
    return registry;
  }

  /// Registers the variant of a module and gives its name; one that is registered already is the same.
  std::string declare(const std::string &module, const std::optional<std::string> &name) {
    auto op = std::make_shared<const TorchOperator>(module);
    std::string chosen = name.value_or(op->uniqueName());
    std::lock_guard<std::mutex> lock(mutex);
    auto [known, isNew] = operators.try_emplace(chosen, op);
    if (!isNew) {
      TORCH_CHECK(known->second->uniqueName() == op->uniqueName(), "stretto: another operator has the name '", chosen,
                  "'");
      return chosen;
    }
    define<CallKind::Plain, RecordGradient>(chosen, op);
    if (op->maySaveRows())
      define<CallKind::Recorded, RefuseGradient<CallKind::Recorded>>(chosen + "_recorded", op);
    define<CallKind::Step, RefuseGradient<CallKind::Step>>(chosen + "_step", op);
    std::string gradient = chosen + "_backward";
    library.def(torch::schema(op->gradientSchema(chosen).c_str()), {at::Tag::pt2_compliant_tag});
    implement<RunGradient>(gradient, c10::DispatchKey::CPU, op);
    implement<RunGradient>(gradient, c10::DispatchKey::CUDA, op);
    implement<DescribeGradient>(gradient, c10::DispatchKey::Meta, op);
    implement<RefuseSecondOrder>(gradient, c10::DispatchKey::Autograd, op);
    return chosen;
  }

  Operator find(const std::string &name) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = operators.find(name);
    TORCH_CHECK(found != operators.end(), "stretto: there is no operator '", name, "'");
    return found->second;
  }

private:
  template <CallKind Kind, typename Autograd> void define(const std::string &name, const Operator &op) {
    library.def(torch::schema(op->schema(name, Kind).c_str()), {at::Tag::pt2_compliant_tag});
    implement<Run<Kind>>(name, c10::DispatchKey::CPU, op);
    implement<Run<Kind>>(name, c10::DispatchKey::CUDA, op);
    implement<Describe<Kind>>(name, c10::DispatchKey::Meta, op);
    implement<Autograd>(name, c10::DispatchKey::Autograd, op);
  }

  template <typename Kernel> void implement(const std::string &name, c10::DispatchKey key, const Operator &op) {
    library.impl(name.c_str(),
                 torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(op, name))));
  }

  std::mutex mutex;
  torch::Library library{torch::Library::FRAGMENT, "stretto", std::nullopt, __FILE__, __LINE__};
  std::map<std::string, Operator> operators;
};

std::string declare(const std::string &module, const std::optional<std::string> &name) {
  return Registry::instance().declare(module, name);
}

std::string explain(const std::string &name, const c10::List<std::optional<at::Tensor>> &inputs,
                    const c10::Dict<std::string, std::string> &options, const std::vector<at::Tensor> &initialState,
                    const std::optional<at::Tensor> &sequenceOffsets) {
  return Registry::instance().find(name)->explain(
      {.inputs = inputs.vec(), .initialState = initialState, .sequenceOffsets = sequenceOffsets}, options);
}

std::string explainGradient(const std::string &name, const c10::List<std::optional<at::Tensor>> &inputs,
                            const c10::Dict<std::string, std::string> &options,
                            const std::vector<at::Tensor> &initialState,
                            const std::optional<at::Tensor> &sequenceOffsets, const std::vector<std::string> &wanted) {
  return Registry::instance().find(name)->explainGradient(
      {.inputs = inputs.vec(), .initialState = initialState, .sequenceOffsets = sequenceOffsets}, options, wanted);
}

std::string tune(const std::string &name, const c10::List<std::optional<at::Tensor>> &inputs,
                 const c10::Dict<std::string, std::string> &options, const std::vector<at::Tensor> &initialState,
                 const std::optional<at::Tensor> &sequenceOffsets,
                 const std::optional<std::vector<std::string>> &wanted, double seconds) {
  return Registry::instance().find(name)->tune(
      {.inputs = inputs.vec(), .initialState = initialState, .sequenceOffsets = sequenceOffsets}, options, wanted,
      seconds);
}

void setTunedTable(const std::string &path) { strettoSetTunedTable(path.c_str()); }

std::string tunedTable() {
  char *text = strettoTunedTable();
  std::string result = text;
  strettoStringDestroy(text);
  return result;
}

bool setDebug(bool debug) {
  bool before = strettoDebug();
  strettoSetDebug(debug);
  return before;
}

bool setKeepStates(bool keepStates) {
  bool before = strettoKeepStates();
  strettoSetKeepStates(keepStates);
  return before;
}

/// An operator that changes a number of things that may be 0, and returns what it was.
template <int64_t (*Get)(), void (*Set)(int64_t)> auto exchangeCount(const char *things) {
  return [things](int64_t count) {
    TORCH_CHECK(count >= 0, "stretto: the number of ", things, " is ", count, ", expected 0 or more");
    int64_t before = Get();
    Set(count);
    return before;
  };
}

void checkSlices(int64_t slices) {
  TORCH_CHECK(slices >= 0 && (slices & (slices - 1)) == 0, "stretto: values are divided into ", slices,
              " slices, expected a power of two or 0");
}

int64_t setSlices(int64_t slices) {
  checkSlices(slices);
  int64_t before = strettoSlices();
  strettoSetSlices(slices);
  return before;
}

int64_t setWalkSlices(int64_t slices) {
  checkSlices(slices);
  int64_t before = strettoWalkSlices();
  strettoSetWalkSlices(slices);
  return before;
}

int64_t setWalks(int64_t walks) {
  TORCH_CHECK(walks >= 0 && walks <= 2, "stretto: a gradient has ", walks, " walks back, expected 1, 2 or 0");
  int64_t before = strettoWalks();
  strettoSetWalks(walks);
  return before;
}

void setWarningHandler(int64_t function) {
  // A frontend gives its own function as a number. NOLINTNEXTLINE(performance-no-int-to-ptr)
  TorchOperator::warningHandler = reinterpret_cast<TorchOperator::WarningHandler>(function);
}

} // namespace

TORCH_LIBRARY_FRAGMENT(stretto, library) {
  library.def("_declare(str module, str? name) -> str", declare);
  library.def(
      "_explain(str name, Tensor?[] inputs, Dict(str, str) options, Tensor[] initial_state, Tensor? cu_seqlens) -> str",
      explain);
  library.def("_explain_backward(str name, Tensor?[] inputs, Dict(str, str) options, Tensor[] initial_state, "
              "Tensor? cu_seqlens, str[] wanted) -> str",
              explainGradient);
  library.def("_tune(str name, Tensor?[] inputs, Dict(str, str) options, Tensor[] initial_state, Tensor? cu_seqlens, "
              "str[]? wanted, float seconds) -> str",
              tune);
  library.def("_set_tuned_table(str path) -> ()", setTunedTable);
  library.def("_tuned_table() -> str", tunedTable);
  library.def("_set_debug(bool debug) -> bool", setDebug);
  library.def("_set_groups(int groups) -> int", exchangeCount<strettoGroups, strettoSetGroups>("groups"));
  library.def("_set_long_segment(int segments) -> int",
              exchangeCount<strettoLongSegment, strettoSetLongSegment>("segments of a long one"));
  library.def("_set_sequences(int sequences) -> int",
              exchangeCount<strettoSequences, strettoSetSequences>("sequences at a time"));
  library.def("_set_segment(int chunks) -> int",
              exchangeCount<strettoSegment, strettoSetSegment>("chunks of a segment"));
  library.def("_set_keep_states(bool keep_states) -> bool", setKeepStates);
  library.def("_set_segments(int segments) -> int", exchangeCount<strettoSegments, strettoSetSegments>("segments"));
  library.def("_set_slices(int slices) -> int", setSlices);
  library.def("_set_walk_slices(int slices) -> int", setWalkSlices);
  library.def("_set_walks(int walks) -> int", setWalks);
  library.def("_set_warning_handler(int function) -> ()", setWarningHandler);
}
