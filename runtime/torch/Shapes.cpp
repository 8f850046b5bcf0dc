//===- Shapes.cpp - What the results of a call look like ------------------===//

#include "runtime/torch/Tensors.h"
#include <deque>

using namespace stretto::torch_layer;

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

StrettoSignature *TorchOperator::signatureOfShapes(const Arguments &arguments) const {
  const at::Tensor &row = firstRow(arguments);
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
  return checked(variant(), strettoOperatorCheck, op.get(), &call);
}

std::vector<size_t> TorchOperator::takenResults(const StrettoSignature *signature) {
  std::vector<size_t> results(strettoSignatureTakenResultCount(signature));
  for (size_t i = 0; i < results.size(); ++i)
    results[i] = strettoSignatureTakenResult(signature, i);
  return results;
}

std::vector<size_t> TorchOperator::takenResults(const Arguments &arguments) const {
  return takenResults(signatureOfShapes(arguments));
}

Outputs TorchOperator::describe(const Arguments &arguments) const {
  const at::Tensor &row = firstRow(arguments);
  checkMemory(arguments);
  StrettoSignature *signature = signatureOfShapes(arguments);
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
  auto addRow = [&](std::vector<at::Tensor> &rows, const StrettoShape &shape) {
    c10::SymIntArrayRef sizes = row.sym_sizes();
    std::vector<c10::SymInt> leading(sizes.begin(), sizes.begin() + arguments.leadingAxes());
    rows.push_back(at::empty_symint(joinedSymbols(leading, shape), row.options().dtype(scalarTypeOf(shape.element))));
  };
  for (size_t i = 0; i < strettoOperatorResultCount(op.get()); ++i)
    addRow(outputs.results, strettoSignatureResult(signature, i));
  for (size_t i = 0; arguments.savesRows && i < strettoSignatureSavedCount(signature); ++i)
    addRow(outputs.saved, strettoSignatureSaved(signature, i));
  for (size_t i = 0; arguments.outputFinalState && i < strettoSignatureStateCount(signature); ++i) {
    StrettoShape shape = strettoSignatureState(signature, i);
    outputs.finalState.push_back(
        at::empty_symint(joinedSymbols({sequences}, shape), row.options().dtype(scalarTypeOf(shape.element))));
  }
  return outputs;
}
