//===- Operator.h - A variant that can be called ----------------*- C++ -*-===//
//
// Between tensors and kernels, without any tensor library: an operator checks the arguments of a call, finds the
// kernel for them or has it compiled, says what the results look like, and runs it. A framework's layer describes its
// tensors, allocates results, and lends its threads and its stream.
//
// A call that was made before costs one look-up: what the code depends on (widths, head ratios, element types, options,
// target) is one key, and everything else (batch, time, strides) is an argument of the kernel.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_OPERATOR_H
#define STRETTO_RUNTIME_OPERATOR_H

#include "runtime/Compiler.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <memory>

namespace stretto {

/// A tensor of someone else. Strides count elements.
struct TensorView {
  void *data = nullptr;
  /// Nothing for a type that kernels do not know; `typeName` says which.
  std::optional<ElementType> type;
  llvm::StringRef typeName;
  int device = -1; // -1: the CPU; otherwise the number of a CUDA device
  llvm::ArrayRef<int64_t> sizes, strides;
};

/// What a result looks like.
struct TensorShape {
  ElementType type;
  llvm::SmallVector<int64_t, 4> sizes;
};

struct OperatorCall {
  /// By position; an optional argument may be absent.
  llvm::SmallVector<std::optional<TensorView>, 8> arguments;
  /// Options by position, spelled as in `Settings`; empty for the default.
  llvm::SmallVector<std::string, 4> options;
  /// Entries of the state by position, or none at all.
  llvm::SmallVector<TensorView, 4> initialState;
  /// Where each sequence of a packed batch starts, and the end of the last: int64 on the device of the call.
  std::optional<TensorView> sequenceOffsets;
  bool finalState = false;
  /// Check contents that are otherwise checked on the CPU only.
  bool debug = false;
  /// Threads that `ParallelFor` will use at best.
  int64_t threads = 1;
};

/// Runs `body(begin, end)` over parts of [0, count), on several threads where there are some.
using ParallelFor = llvm::function_ref<void(int64_t count, llvm::function_ref<void(int64_t, int64_t)> body)>;

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
  /// A digest of the declaration, the same for two that print the same.
  llvm::StringRef digest() const { return declarationDigest; }

  struct Kernel;

  /// What a call needs and gives.
  struct Prepared {
    const Kernel *kernel = nullptr;
    /// Sequences of the call, tokens of each in a dense batch, heads of the finest set.
    int64_t sequences = 0, time = 0, heads = 0;
    llvm::SmallVector<TensorShape, 2> results;
    llvm::SmallVector<TensorShape, 4> state;
  };

  /// Checks a call, without its contents, and finds its kernel or compiles it.
  llvm::Expected<Prepared> prepare(const OperatorCall &call);

  /// The names of the state's entries, in order, under the options of a call.
  llvm::Expected<std::vector<std::string>> stateNames(const OperatorCall &call);

  /// The tables that the kernel of a call reads: values in the kernel's compute type, one buffer for each.
  llvm::Expected<std::vector<std::string>> tables(const Prepared &prepared);

  /// Runs a prepared call. `results` and `finalState` have the shapes that were announced, `tables` the contents of
  /// `tables()`; all are on the device of the call. On the CPU `parallelFor` lends threads, on a CUDA device `stream`
  /// is the stream. The last strides of arguments are 1.
  llvm::Error run(const Prepared &prepared, const OperatorCall &call, llvm::ArrayRef<TensorView> results,
                  llvm::ArrayRef<TensorView> finalState, llvm::ArrayRef<const void *> tables, ParallelFor parallelFor,
                  void *stream);

private:
  Operator();

  struct Implementation;
  std::unique_ptr<Implementation> implementation;
  std::string variantName, declarationDigest;
  std::vector<Input> inputList;
  std::vector<Option> optionList;
  unsigned results = 0;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_OPERATOR_H
