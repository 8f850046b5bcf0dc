//===- Operator.h - A variant that can be called ----------------*- C++ -*-===//
//
// Between tensors and kernels, without any tensor library: an operator checks the arguments of a call, says what its
// results look like, finds the kernel for it or has it compiled, and runs it. A framework's layer describes its
// tensors, allocates results, and lends its threads or its stream.
//
// Everything but batch, time, strides and contents is part of the signature of a call (widths, heads, element types,
// options, device). A signature that was seen before is found by one look-up; it holds its kernels.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_OPERATOR_H
#define STRETTO_RUNTIME_OPERATOR_H

#include "runtime/Compiler.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <memory>

namespace stretto {

struct KeptStates;

/// A tensor of someone else. Strides count elements.
struct TensorView {
  void *data = nullptr;
  /// Nothing for a type that kernels do not know.
  std::optional<ElementType> type;
  llvm::StringRef typeName = ""; // what the caller calls it, for messages
  int device = -1;               // -1: the CPU; otherwise the number of a CUDA device
  llvm::ArrayRef<int64_t> sizes, strides;
};

/// How many of its largest input a gradient may take as memory to work with. A GPU has blocks for more at a time: turns
/// of fewer leave it idle (docs/performance.md).
constexpr int64_t inputsOfGradient(int device) { return device < 0 ? 2 : 3; }

struct OperatorCall {
  /// One token for each sequence, whose rows have no axis for time, and a state that is updated where it lies.
  bool isStep = false;
  /// By position; an optional argument may be absent.
  llvm::SmallVector<std::optional<TensorView>, 8> arguments;
  /// Options by position, spelled as in `Settings`; empty for the default.
  llvm::SmallVector<std::string, 4> options;
  /// Entries of the state by position, or none at all. Those of a step are its state.
  llvm::SmallVector<TensorView, 4> initialState;
  /// Where each sequence of a packed batch starts, and the end of the last: int64.
  std::optional<TensorView> sequenceOffsets;
  /// Of a step: the row of the state that each sequence has, or -1 where it has none and is left out: int64.
  std::optional<TensorView> slots;

  /// Whether it leaves rows for its gradient behind the results (Signature::savedRows).
  bool savesRows = false;

  /// What its kernel keeps of its states for its gradient, or null, and where (KeptStates.h).
  std::shared_ptr<const KeptStates> kept;
  void *states = nullptr;

  /// Bytes that its gradient may take to work with, beyond rows that it keeps; 0: as many as those of its largest input
  /// so many times (inputsOfGradient).
  int64_t gradientBytes = 0;

  /// The form that its kernels are to have, where the caller chooses it.
  std::optional<Form> form;

  /// Axes of a row before its heads.
  size_t leadingAxes() const { return isStep ? 1 : 2; }
};

/// Which gradients of a call are wanted, and from what, by position.
struct GradientRequest {
  /// Arguments, and entries of the initial state.
  std::vector<bool> inputs, entries;
  /// Results that have a cotangent; that of the others is 0.
  std::vector<bool> results;
  /// Whether the gradient takes what the call has saved for it.
  bool takesSaved = false;

  static GradientRequest ofAll(size_t inputs, size_t entries, size_t results) {
    auto all = [](size_t count) { return std::vector<bool>(count, true); };
    return {all(inputs), all(entries), all(results), /*takesSaved=*/false};
  }
  auto operator<=>(const GradientRequest &) const = default;
};

/// What a gradient takes and leaves beside the call that it is of (runtime/Gradient.h says what each part is).
struct GradientCall {
  /// Of the results, by position; absent where the gradient was asked for with 0.
  llvm::SmallVector<std::optional<TensorView>, 2> resultCotangents;
  /// Of the final state, by the parts of entries; absent for 0. All of a group lies with its first head.
  llvm::SmallVector<std::optional<TensorView>, 4> entryCotangents;
  /// The rows and the parts of entries that the gradient leaves.
  llvm::SmallVector<TensorView, 8> rows, entries;
  /// Where it takes them, the rows that the call has saved and, behind them, results (Signature::takenResults).
  llvm::SmallVector<TensorView, 3> saved;
  /// The states that the call has kept; null: they are found anew.
  const void *states = nullptr;
  void *workspace = nullptr;
};

/// What a result looks like: the sizes are those after batch and time, or after the batch of a step.
struct ResultShape {
  ElementType type;
  llvm::SmallVector<int64_t, 2> sizes;
};

/// What an entry of the state looks like: the sizes are those after the sequences.
struct EntryShape {
  std::string name;
  bool isPosition; // an int64 number, which counts the tokens so far
  bool isTail;     // rows of earlier tokens, the axis before the heads
  bool isDelayed;  // a state as it was at an earlier time
  /// The argument whose last rows it holds, which whoever calls keeps.
  std::optional<unsigned> window;
  ElementType type;
  llvm::SmallVector<int64_t, 3> sizes;
};

/// The tokens [first, first + tokens) of each of packed sequences, as far as they exist. Those of sequence n lie from
/// the place min(n * tokens, offsets[n]) on.
struct PackedSegment {
  const TensorView *offsets;
  int64_t first, tokens;
};

/// Runs `body(begin, end)` over parts of [0, count), on several threads where there are some.
using ParallelFor = llvm::function_ref<void(int64_t count, llvm::function_ref<void(int64_t, int64_t)> body)>;

/// What a framework lends to a call. On the CPU `threads` and `parallelFor`; on a CUDA device, whose context is
/// current, `stream` and `upload`, which copies to memory of the device that is never freed. `warn` tells the user.
/// `addUp` leaves in `sum` the sums over the axis 3 of `parts`, [batch, tokens, heads, parts of a head, ...], behind
/// what runs on the stream; of a segment of packed sequences in the places of its tokens.
struct Executor {
  int64_t threads = 1;
  ParallelFor parallelFor;
  void *stream = nullptr;
  llvm::function_ref<void *(llvm::ArrayRef<char>)> upload;
  llvm::function_ref<void(llvm::StringRef)> warn;
  llvm::function_ref<void(const TensorView &parts, const TensorView &sum, const PackedSegment *packed)> addUp;
};

class Operator {
public:
  struct Input {
    std::string name;
    bool isParameter = false, isOptional = false;
  };
  struct Option {
    enum class Kind { Number, Condition, Word } kind;
    std::string name;
    std::string fallback; // the default, as text
    std::vector<std::string> words;
  };

  /// An operator of the only variant of a module.
  static llvm::Expected<std::unique_ptr<Operator>> create(llvm::StringRef module);
  ~Operator();

  llvm::StringRef name() const { return variantName; }
  llvm::ArrayRef<Input> inputs() const { return inputList; }
  llvm::ArrayRef<Option> options() const { return optionList; }
  unsigned resultCount() const { return results; }
  /// Whether calls may save rows for their gradients.
  bool maySaveRows() const { return savesRows; }
  /// A digest of the declaration, the same for two that print the same.
  llvm::StringRef digest() const { return declarationDigest; }

  class Signature;

  /// Checks a call but for its contents. The signature lives as long as the operator.
  llvm::Expected<Signature *> check(const OperatorCall &call);

  /// Checks what lies in the tensors of a call on the CPU: signs of decays, sequence offsets, slots and positions.
  static llvm::Error checkContents(const Signature &signature, const OperatorCall &call, ParallelFor parallelFor);

  /// What a call that was checked runs, chosen once: its kernels, and the bytes of the workspace that they take.
  struct Prepared;
  static llvm::Expected<Prepared> prepare(Signature &signature, const OperatorCall &call, int64_t threads);

  /// Runs a call that was checked and prepared. `results` and `finalState` (all entries but the position, or none, as
  /// of a step) are contiguous and have the shapes that the signature announces; so has the initial state. Last strides
  /// of rows are 1, and parameters contiguous. The results of a step are 0 for sequences without a slot. `workspace`
  /// has as many bytes as were announced.
  static llvm::Error run(Signature &signature, const Prepared &prepared, const OperatorCall &call,
                         llvm::ArrayRef<TensorView> results, llvm::ArrayRef<TensorView> finalState, void *workspace,
                         const Executor &executor);

  /// Says, as JSON, which kernel runs a call that was checked, and where it came from.
  static llvm::Expected<std::string> explain(Signature &signature, const OperatorCall &call, int64_t threads);
  /// The same of its gradient: the kernels, the segments, what is saved between them and what is computed anew.
  static llvm::Expected<std::string> explainGradient(Signature &signature, const OperatorCall &call,
                                                     const GradientRequest &request, int64_t threads);

private:
  Operator();

  struct Implementation;
  std::unique_ptr<Implementation> implementation;
  std::string variantName, declarationDigest;
  std::vector<Input> inputList;
  std::vector<Option> optionList;
  unsigned results = 0;
  bool savesRows = false;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_OPERATOR_H
