//===- TorchOperator.h - A variant as an operator of PyTorch ----*- C++ -*-===//
//
// What an operator of PyTorch does with its tensors. The schema follows from the declaration:
//
//   gla(Tensor q, Tensor k, Tensor v, Tensor g, *, float? scale=None, Tensor[]? initial_state=None,
//       bool output_final_state=False, Tensor? cu_seqlens=None) -> (Tensor o, Tensor[] final_state)
//
// and a step, one token of each sequence, is an operator of its own that updates the state where it lies:
//
//   gla_step(Tensor q, Tensor k, Tensor v, Tensor g, *, Tensor(a!)[] state, float? scale=None, Tensor? slots=None)
//       -> Tensor o
//
// A call whose gradient will be asked for, where it may save rows for that, is another one, with the same arguments:
//
//   relation_kl_recorded(...) -> (Tensor o, Tensor[] final_state, Tensor[] saved)
//
// Errors are c10::Error; Python makes a stretto.Error of those that start with "stretto: ".
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_TORCH_TORCHOPERATOR_H
#define STRETTO_RUNTIME_TORCH_TORCHOPERATOR_H

#include "frontends/c/operator.h"
#include <ATen/ATen.h>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace stretto::torch_layer {

using OptionalTensor = std::optional<at::Tensor>;

/// What a call of an operator is: the operator itself, the same whose gradient will be asked for, or a step.
enum class CallKind { Plain, Recorded, Step };

/// The arguments of one call.
struct Arguments {
  bool isStep = false;
  /// Whether rows are saved for its gradient.
  bool savesRows = false;
  /// Whether something may be kept for it: where whoever calls hands that on.
  bool keeps = false;
  std::vector<OptionalTensor> inputs;
  /// As text; nothing for the default.
  std::vector<std::optional<std::string>> options = {};
  /// The state that a step updates, or that a sequence begins with.
  std::vector<at::Tensor> initialState;
  bool outputFinalState = false;
  OptionalTensor sequenceOffsets = {}, slots = {};
  /// Whether the windows of the initial state hold tokens.
  bool hasWindows = true;
  /// That of the kernels, where it is not left to be chosen.
  std::optional<StrettoForm> form = {};
  /// Of memory that its gradient may take to work with; 0: as its largest input so many times.
  int64_t gradientBytes = 0;

  /// Axes of a row before its heads.
  int64_t leadingAxes() const { return isStep ? 1 : 2; }
};

/// The states at the start of each chunk of so many tokens, which a call has kept for its gradient; undefined where it
/// has kept none.
struct ChunkStates {
  at::Tensor memory;
  int64_t chunk = 0;
};

/// What a call has kept for its gradient, which finds anew what is not there. Where a declaration is split (Features.h)
/// the states are those of the rest, and features are all that it has been given, or none.
struct Kept {
  ChunkStates states = {};
  /// The rows that it has saved, and behind them the results that its gradient takes, too; or nothing.
  std::vector<at::Tensor> saved = {};
  std::vector<at::Tensor> features = {};
};

struct Outputs {
  std::vector<at::Tensor> results, finalState, saved;
  /// The positions of the results that a gradient takes beside what was saved.
  std::vector<size_t> taken = {};
  Kept kept = {};
};

class TorchOperator {
public:
  /// Reads a module with one variant.
  explicit TorchOperator(const std::string &module);

  const std::string &variant() const { return name; }
  /// The variant's name and a part of the digest of its declaration.
  std::string uniqueName() const { return variant() + "_" + std::string(strettoOperatorDigest(op.get()), 16); }
  std::string schema(const std::string &name, CallKind kind = CallKind::Plain) const;

  /// How many values a boxed call has, and what they are.
  size_t argumentCount(CallKind kind = CallKind::Plain) const {
    return inputs.size() + options.size() + (kind == CallKind::Step ? 2 : 3);
  }
  Arguments read(at::ArrayRef<c10::IValue> values, CallKind kind = CallKind::Plain) const;

  /// Checks a call, allocates its results, and runs it: on the threads of the CPU, or on the current stream.
  Outputs run(Arguments arguments) const;

  /// What the results of a call look like, whose tensors have no memory and perhaps symbolic batch and time.
  Outputs describe(const Arguments &arguments) const;

  /// Which kernel runs a call with these options, as JSON.
  std::string explain(Arguments arguments, const c10::Dict<std::string, std::string> &given) const;
  /// What its gradient takes: that of the inputs and entries that are named, or of all.
  std::string explainGradient(Arguments arguments, const c10::Dict<std::string, std::string> &given,
                              const std::vector<std::string> &wanted) const;

  /// Measures a call in several forms, or the gradient of what is wanted of it, and keeps the fastest for calls like it
  /// (Tune.cpp). Nothing new is tried after so many seconds. Says as JSON what was found.
  std::string tune(Arguments arguments, const c10::Dict<std::string, std::string> &given,
                   const std::optional<std::vector<std::string>> &wanted, double seconds) const;

  /// The gradients of a call that are wanted: of inputs, then of entries of the initial state. `wanted` has a word for
  /// each of all of these; `cotangents` are those of the results, then of all entries of the final state, which may be
  /// absent for 0. Rows that no two parts of a gradient leave together are left where `places`, one for each input,
  /// says so.
  std::vector<at::Tensor> gradient(Arguments arguments, const std::vector<bool> &wanted,
                                   const std::vector<OptionalTensor> &cotangents, const Kept &kept = {},
                                   const std::vector<OptionalTensor> &places = {}) const;
  std::vector<at::Tensor> describeGradient(const Arguments &arguments, const std::vector<bool> &wanted) const;
  /// gla_backward(the arguments of gla, bool[] wanted, Tensor?[] cotangents, Tensor[]? saved=None) -> Tensor[]
  std::string gradientSchema(const std::string &name) const;
  /// Whether calls whose gradient will be asked for are recorded ones.
  bool maySaveRows() const { return strettoOperatorMaySaveRows(op.get()); }
  /// The positions of the results that the gradient of a call takes beside the rows that are saved.
  std::vector<size_t> takenResults(const Arguments &arguments) const;
  size_t resultCount() const { return strettoOperatorResultCount(op.get()); }

  /// Whether no tensor among the arguments of a call, or in their lists, asks for a gradient or carries one forwards:
  /// most calls of inference are found out so before their arguments are read.
  static bool isWithoutGradients(at::ArrayRef<c10::IValue> values);
  /// Whether a gradient of the call is to be recorded.
  bool requiresGradient(const Arguments &arguments) const;
  /// Refuses forward-mode gradients, and, of a gradient, gradients.
  void refuseForwardGradient(const Arguments &arguments) const;

  /// What tells the user of a slower form; where there is nobody, PyTorch does.
  using WarningHandler = void (*)(const char *message);
  static std::atomic<WarningHandler> warningHandler;
  static void warn(const char *message);

  /// What a declaration with feature maps consists of (Features.h).
  class Parts;

  static std::vector<size_t> takenResults(const StrettoSignature *signature);

  ~TorchOperator();

private:
  struct Input {
    std::string name;
    bool isParameter, isOptional;
  };
  struct Option {
    std::string name;
    StrettoOptionKind kind;
  };
  class Described;
  class Call;
  class RunningCall;

  /// Options of a call by their names.
  void setOptions(Arguments &arguments, const c10::Dict<std::string, std::string> &given) const;
  /// Whether each input, then each entry of the state, is wanted: those with the names, or all that have gradients.
  std::vector<bool> wantedOf(const Arguments &arguments, const std::vector<std::string> &names,
                             StrettoSignature *signature) const;

  /// Has the compiler tune a call. `prepare` makes what it needs; `wanted` it fills for a gradient.
  std::string runTuner(const Arguments &arguments, const std::vector<bool> *wanted,
                       const std::function<StrettoTuning(StrettoSignature *)> &prepare) const;

  std::string listOfInputs() const;
  std::string listOfOptions() const;
  std::string listOfResults() const;
  /// Calls `visit` with the name of each tensor, as C has it, and the tensor.
  template <typename Visit> void visitTensors(const Arguments &arguments, Visit visit) const;
  /// All tensors have memory or none has: PyTorch chooses between `run` and `describe` by some of them.
  void checkMemory(const Arguments &arguments) const;
  /// Gives tensors the strides that kernels read, by copies where they have others; a state that is to be updated is
  /// refused then.
  void arrange(Arguments &arguments) const;
  /// What tensors without memory, whose batch and time may be symbols, would be called with.
  StrettoSignature *signatureOfShapes(const Arguments &arguments) const;
  /// The axis of heads in a part of a gradient that has one for sequences.
  static int64_t headAxis(StrettoSignature *signature, const StrettoGradientPart &part);
  /// Which inputs, then which entries of the initial state, a gradient is recorded of; none where it is of none.
  using Recorded = c10::SmallVector<bool, 16>;
  Recorded recorded(const Arguments &arguments) const;
  /// Has the kernels of a call on a GPU and of its gradient compiled at the same time, if the latter will be asked for;
  /// what of the states the call then keeps for it, if it may.
  StrettoKeptStates prepareForGradient(const RunningCall &call, const Recorded &wanted, const Arguments &arguments,
                                       int64_t threads) const;
  /// Checks the contents of the tensors of a call, of those on devices copies.
  void checkContents(const RunningCall &call, const Arguments &arguments, const StrettoExecutor &executor) const;
  /// Memory for the results of a call on `row`.
  std::vector<at::Tensor> allocateResults(const RunningCall &call, const Arguments &arguments,
                                          const at::Tensor &row) const;
  /// Refuses saved rows that are not those of a call.
  void checkSaved(const at::Tensor &row, const StrettoSignature *signature, const std::vector<at::Tensor> &saved) const;
  /// Memory for the rows that a call saves, if it does.
  static std::vector<at::Tensor> allocateSaved(const RunningCall &call, const Arguments &arguments,
                                               const at::Tensor &row);
  /// Memory for the final state, and the positions counted.
  std::vector<at::Tensor> allocateState(const RunningCall &call, const Arguments &arguments,
                                        const at::Tensor &row) const;

  /// The argument whose shape says batch and time, and whose device is that of the call.
  const at::Tensor &firstRow(const Arguments &arguments) const;
  /// The names of the entries of the state of a call.
  std::vector<std::string> entryNames(const Arguments &arguments) const;
  /// The gradient of a call whose windows have a part in it (Resumption.cpp).
  std::vector<at::Tensor> resumedGradient(const Arguments &arguments, StrettoSignature *signature,
                                          const std::vector<bool> &wanted,
                                          const std::vector<OptionalTensor> &cotangents) const;
  const TorchOperator &resumed(StrettoSignature *signature) const;
  /// The parts of a call whose kernels are left to be chosen, or of its gradient, or null where it has none.
  const Parts *partsOf(const Arguments &arguments, const StrettoSignature *signature, bool ofGradient) const;
  /// Compiles what a call runs, and what its gradient does where that will be asked for.
  void prepare(Arguments arguments) const;
  /// What a row of arguments receives from the window that holds its last tokens in the end.
  at::Tensor fromFinalWindow(const Arguments &arguments, const std::vector<std::string> &entries,
                             const at::Tensor &cotangent) const;

  std::unique_ptr<StrettoOperator, decltype(&strettoOperatorDestroy)> op;
  std::string name;
  std::vector<Input> inputs;
  std::vector<Option> options;
  mutable std::mutex mutex;
  mutable std::map<StrettoSignature *, std::unique_ptr<TorchOperator>> resumedOperators;
  mutable std::map<std::pair<const StrettoSignature *, bool>, std::unique_ptr<const Parts>> partsOfSignatures;
};

/// A call of the C interface, or its message as an exception.
template <typename Function, typename... Values>
auto checked(const std::string &variant, Function function, Values... values) {
  char *error = nullptr;
  auto result = function(values..., &error);
  bool failed = false;
  if constexpr (std::is_pointer_v<decltype(result)>)
    failed = result == nullptr;
  else
    failed = result < 0;
  if (failed) {
    std::string message = error ? error : "unknown error";
    strettoStringDestroy(error);
    TORCH_CHECK(false, "stretto: ", variant, variant.empty() ? "" : ": ", message);
  }
  return result;
}

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_TORCHOPERATOR_H
