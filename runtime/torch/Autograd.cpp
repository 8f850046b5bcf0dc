//===- Autograd.cpp - Recording gradients of operators --------------------===//

#include "runtime/torch/Autograd.h"
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

using namespace stretto::torch_layer;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Stack = torch::jit::Stack;

namespace {

/// Calls `_backward` with what the forward call was given.
struct VariantBackward : torch::autograd::Node {
  variable_list apply(variable_list &&cotangents) override;
  std::string name() const override { return "stretto::" + operatorName + "_backward"; }
  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    inputs.clear();
    initialState.clear();
    saved.clear();
    taken.clear();
    states.reset_data();
    features.clear();
    isReleased = true;
  }

  std::string operatorName;
  /// Absent inputs are undefined.
  std::vector<SavedVariable> inputs, initialState;
  /// Rows that the call has saved, and results that the gradient takes beside these.
  std::vector<SavedVariable> saved, taken;
  /// The states that it has kept, of chunks of so many tokens, and features; and who takes these.
  SavedVariable states;
  int64_t chunkOfStates = 0;
  std::vector<SavedVariable> features;
  std::shared_ptr<const TorchOperator> op;
  /// The other arguments of the call.
  std::vector<c10::IValue> options;
  c10::IValue sequenceOffsets;
  /// Of each output that has a gradient, its number among the results and, after them, the entries of the final state.
  std::vector<size_t> outputs;
  size_t outputCount = 0;
  bool isReleased = false;
};

} // namespace

variable_list VariantBackward::apply(variable_list &&cotangents) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!isReleased, torch::autograd::ERR_BACKWARD_TWICE);
  Stack stack;
  for (SavedVariable &input : inputs) {
    at::Tensor tensor = input.unpack();
    tensor.defined() ? stack.emplace_back(tensor) : stack.emplace_back();
  }
  stack.insert(stack.end(), options.begin(), options.end());
  std::vector<at::Tensor> state;
  state.reserve(initialState.size());
  for (SavedVariable &entry : initialState)
    state.push_back(entry.unpack());
  state.empty() ? stack.emplace_back() : stack.emplace_back(state);
  stack.emplace_back(false);
  stack.push_back(sequenceOffsets);
  // One edge for each input, and for each entry of the initial state.
  c10::List<bool> wanted;
  for (size_t edge = 0; edge < inputs.size() + initialState.size(); ++edge)
    wanted.push_back(task_should_compute_output(edge));
  c10::List<std::optional<at::Tensor>> all;
  all.resize(outputCount);
  for (size_t i = 0; i < cotangents.size(); ++i)
    if (cotangents[i].defined())
      all.set(outputs[i], cotangents[i]);
  Kept kept = {.states = {states.unpack(), chunkOfStates}};
  for (SavedVariable &row : saved)
    kept.saved.push_back(row.unpack());
  for (SavedVariable &result : taken)
    kept.saved.push_back(result.unpack(getptr()));
  for (SavedVariable &feature : features)
    kept.features.push_back(feature.unpack());
  std::vector<at::Tensor> found;
  if (op && !at::GradMode::is_enabled() && !c10::impl::TorchDispatchModeTLS::any_modes_set()) {
    std::vector<bool> asked(wanted.begin(), wanted.end());
    std::vector<OptionalTensor> given;
    for (std::optional<at::Tensor> cotangent : all)
      given.push_back(cotangent);
    at::AutoDispatchBelowAutograd guard;
    found = op->gradient(op->read(at::ArrayRef<c10::IValue>(stack.data(), op->argumentCount())), asked, given, kept);
  } else {
    stack.emplace_back(wanted);
    stack.emplace_back(std::move(all));
    kept.saved.empty() ? stack.emplace_back() : stack.emplace_back(kept.saved);
    c10::Dispatcher::singleton().findSchemaOrThrow(name().c_str(), "").callBoxed(&stack);
    found = stack.back().toTensorVector();
  }
  variable_list gradients;
  auto next = found.begin();
  for (bool isWanted : wanted)
    gradients.push_back(isWanted ? *next++ : at::Tensor());
  return gradients;
}

static Arguments top(const TorchOperator &op, const Stack &stack, size_t beside = 0) {
  size_t count = op.argumentCount();
  return op.read(at::ArrayRef<c10::IValue>(stack.data() + stack.size() - count - beside, count));
}

/// Whether a call goes from here to the kernels of a GPU and is seen by nobody else, as one that is traced is: states
/// are no results, so that a graph of operators would not hold them.
static bool isPlain(c10::DispatchKeySet keys) {
  return (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId() == c10::DispatchKey::CUDA;
}

void RecordGradient::operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, Stack *stack) {
  auto run = [&] {
    at::AutoDispatchBelowAutograd guard;
    handle.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  };
  size_t count = op->argumentCount();
  if (TorchOperator::isWithoutGradients(at::ArrayRef<c10::IValue>(stack->data() + stack->size() - count, count)))
    return run();
  Arguments arguments = top(*op, *stack);
  op->refuseForwardGradient(arguments);
  if (!op->requiresGradient(arguments))
    return run();

  std::shared_ptr<VariantBackward> node(new VariantBackward(), torch::autograd::deleteNode);
  node->operatorName = name;
  variable_list differentiated;
  differentiated.reserve(arguments.inputs.size() + arguments.initialState.size());
  node->inputs.reserve(arguments.inputs.size());
  node->initialState.reserve(arguments.initialState.size());
  for (const OptionalTensor &input : arguments.inputs) {
    differentiated.push_back(input ? *input : at::Tensor());
    node->inputs.emplace_back(differentiated.back(), /*is_output=*/false);
  }
  for (const at::Tensor &entry : arguments.initialState) {
    differentiated.push_back(entry);
    node->initialState.emplace_back(entry, /*is_output=*/false);
  }
  node->set_next_edges(torch::autograd::collect_next_edges(differentiated));
  const c10::IValue *first = stack->data() + stack->size() - op->argumentCount() + arguments.inputs.size();
  node->options.assign(first, first + arguments.options.size());
  node->sequenceOffsets = stack->back();
  std::vector<at::Tensor> saved;
  std::vector<size_t> taken;
  if (isPlain(keys)) {
    at::AutoDispatchBelowAutograd guard;
    arguments.keeps = true;
    arguments.savesRows = op->maySaveRows();
    Outputs outputs = op->run(std::move(arguments));
    saved = std::move(outputs.saved);
    taken = std::move(outputs.taken);
    const auto &[memory, chunk] = outputs.kept.states;
    node->states = SavedVariable(memory, /*is_output=*/false);
    node->chunkOfStates = chunk;
    for (const at::Tensor &feature : outputs.kept.features)
      node->features.emplace_back(feature, /*is_output=*/false);
    node->op = op;
    torch::jit::drop(*stack, op->argumentCount());
    for (at::Tensor &result : outputs.results)
      torch::jit::push(*stack, std::move(result));
    torch::jit::push(*stack, std::move(outputs.finalState));
  } else if (op->maySaveRows()) {
    at::AutoDispatchBelowAutograd guard;
    c10::Dispatcher::singleton().findSchemaOrThrow(("stretto::" + name + "_recorded").c_str(), "").callBoxed(stack);
    saved = torch::jit::pop(*stack).toTensorVector();
    if (!saved.empty())
      taken = op->takenResults(arguments);
  } else {
    run();
  }
  for (const at::Tensor &row : saved)
    node->saved.emplace_back(row, /*is_output=*/false);

  auto record = [&](at::Tensor &output) {
    if (output.is_floating_point()) {
      torch::autograd::set_history(output, node);
      node->outputs.push_back(node->outputCount);
    }
    ++node->outputCount;
  };
  std::vector<at::Tensor> finalState = torch::jit::pop(*stack).toTensorVector();
  size_t results = op->resultCount();
  for (size_t i = 0; i < results; ++i) {
    at::Tensor result = (*stack)[stack->size() - results + i].toTensor();
    record(result);
  }
  for (size_t index : taken)
    node->taken.emplace_back((*stack)[stack->size() - results + index].toTensor(), /*is_output=*/true);
  for (at::Tensor &entry : finalState)
    record(entry);
  torch::jit::push(*stack, std::move(finalState));
}

void RefuseSecondOrder::operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, Stack *stack) {
  Arguments arguments = top(*op, *stack, /*beside=*/3);
  op->refuseForwardGradient(arguments);
  bool isAsked = op->requiresGradient(arguments);
  for (const auto &cotangent : (*stack)[stack->size() - 2].toOptionalTensorVector())
    isAsked |= at::GradMode::is_enabled() && cotangent && cotangent->requires_grad();
  TORCH_CHECK(!isAsked, "stretto: ", op->variant(),
              ": [R14] a second derivative is asked for (create_graph=True), and gradients have none");
  at::AutoDispatchBelowAutograd guard;
  handle.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}
