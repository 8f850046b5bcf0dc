//===- Signature.h - What calls with the same kernels share -----*- C++ -*-===//
#ifndef STRETTO_RUNTIME_SIGNATURE_H
#define STRETTO_RUNTIME_SIGNATURE_H

#include "dialect/stretto/Signs.h"
#include "dialect/stretto/StateEntries.h"
#include "mlir/IR/OwningOpRef.h"
#include "passes/declaration/Features.h"
#include "runtime/HostTable.h"
#include "runtime/Operator.h"
#include "runtime/TunedForms.h"
#include <array>
#include <deque>
#include <mutex>

namespace stretto {

class Operator::Signature {
public:
  /// Checks a call whose arguments lie on `device` against the declaration and derives what follows from it.
  static llvm::Expected<std::unique_ptr<Signature>> create(Operator &op, const OperatorCall &call, int device);
  ~Signature();

  /// What is asked for of the gradient of a call, and of others that are as parallel, made when it is first asked for.
  /// `threads` are those of the CPU.
  struct Gradient;
  llvm::Expected<Gradient *> gradientFor(const OperatorCall &call, const GradientRequest &request, int64_t threads);
  /// Has the kernels of the first call on a GPU whose gradient will be asked for compiled beside those of the gradient.
  /// `keepsStates` says whether it may keep states for that. What cannot be compiled is said when it is asked for.
  void compileWithGradient(const OperatorCall &call, const GradientRequest &request, bool keepsStates, int64_t threads);
  /// Whether there was none yet.
  bool awaitsGradient() const { return device >= 0 && !isCompiledWithGradient.load(std::memory_order_relaxed); }
  /// Whether the gradient of a call is that of a longer one, on the tokens of the windows too, by the declaration that
  /// `resumed` gives (stretto-resume). `finalEntries` says which entries of the final state have a cotangent.
  bool resumes(const OperatorCall &call, const GradientRequest &request, llvm::ArrayRef<bool> finalEntries) const;
  llvm::Expected<std::string> resumed() const;
  /// Where calls run as those of the parts of the declaration, how many of these find features; and a part, the last of
  /// which is the rest.
  FeatureSplit features;
  llvm::Expected<std::string> partOfDeclaration(size_t index, bool ofGradient) const;

  /// The kernel for a call with so many work items, before slicing, and, on the CPU, threads to run them.
  struct Kernel;
  struct Choice;
  llvm::Expected<Kernel *> kernelFor(const OperatorCall &call, int64_t threads);
  llvm::Expected<Kernel *> kernelFor(const OperatorCall &call, int64_t threads, const Choice &choice);

  /// What a call that is recorded keeps of its states for the gradient (KeptStates.h): whether it may keep those, and
  /// what it keeps, or null where its gradient would not take them, or its kernel has other chunks.
  struct Checkpoint;
  bool mayKeep(Keeps keeps) const;
  std::shared_ptr<const KeptStates> statesKeptBy(const OperatorCall &call, const GradientRequest &request,
                                                 int64_t threads);
  /// Checkpoints of each state, of every `interval`-th of so many chunks, of so many tokens, of each sequence.
  int64_t checkpointCount(const OperatorCall &call, int64_t chunk, int64_t chunks, int64_t interval) const;

  /// How many segments of a sequence of a call run side by side, if its form does not say otherwise; and the kernels of
  /// a form that do so.
  class Segments;
  struct SegmentStarts;
  struct Systems;
  int64_t segmentsFor(const OperatorCall &call, bool isOfGradient) const;
  int64_t mostSegments() const;
  /// Whether a call takes less where blocks walk whole sequences, each in a slice of the values, than in so many
  /// segments.
  bool isSoonerInSlices(const OperatorCall &call, int64_t segments) const;
  int64_t tokensOfSequence(const OperatorCall &call) const;
  /// How many blocks a call that has so many segments leaves to each multiprocessor, 2 where there are more (Form.h).
  int64_t blocksOfMultiprocessor(const OperatorCall &call, int64_t segments) const;
  llvm::Expected<Segments *> segmentsOf(const Form &form, bool savesRows, Keeps keeps);
  bool savesRowsFor(const OperatorCall &call) const { return call.savesRows && !savedRows.empty(); }

  /// The form of the kernels of a call, or of its gradient, and who chose it.
  struct Choice {
    Form form;
    /// How many segments of a sequence run side by side.
    int64_t segments = 1;
    enum class By { Model, Tuner, Table, Knob, Caller } by = By::Model;
    std::optional<TunedForm> tuned = std::nullopt;
    /// Says so for a person to read.
    void explain(llvm::json::OStream &json) const;
  };
  Form modelForm(const OperatorCall &call, int64_t threads, bool isOfGradient, int64_t segments = 1) const;
  Choice choose(const OperatorCall &call, int64_t threads, const GradientRequest *request = nullptr);
  /// Why a gradient walks its segments one after the other.
  std::string whySerial(const OperatorCall &call, const Choice &choice, const GradientRequest &request);
  /// What a tuner's result for a call is found by.
  std::string tuningKey(const OperatorCall &call, int64_t threads, const GradientRequest *request) const;
  /// Bytes of the cache of a GPU that all its multiprocessors share; 0 on a CPU.
  int64_t deviceCacheBytes() const { return cacheBytes; }
  /// The text of the declaration, and what is asked of kernels with a form: one, or the two of a gradient.
  std::string declaration() const;
  std::vector<KernelRequest> requestsFor(const Form &form, const Gradient *gradient) const;

  /// The position of the next token of each row of the state, or null where all are 0.
  int64_t *positions(const OperatorCall &call) const {
    bool continues = positionEntry && !call.initialState.empty();
    return continues ? static_cast<int64_t *>(call.initialState[*positionEntry].data) : nullptr;
  }

  /// The argument whose shape says batch and time.
  const TensorView &rowOf(const OperatorCall &call) const { return *call.arguments[row]; }
  int64_t sequences(const OperatorCall &call) const {
    return call.sequenceOffsets ? call.sequenceOffsets->sizes[0] - 1 : rowOf(call).sizes[0];
  }
  int64_t tokens(const OperatorCall &call) const { return call.isStep ? 1 : rowOf(call).sizes[1]; }
  /// Rows that the state of a call has.
  int64_t stateRows(const OperatorCall &call) const {
    bool isPool = call.slots && !call.initialState.empty() && !call.initialState[0].sizes.empty();
    return isPool ? call.initialState[0].sizes[0] : sequences(call);
  }
  /// Sequences times heads: what runs in parallel before values are divided.
  int64_t items(const OperatorCall &call) const { return sequences(call) * heads; }

  const Target &target() const { return request.target; }
  bool isStep() const { return request.part == KernelRequest::Part::Step; }
  /// Whether kernels may take inverses that another one finds: where a row that is written depends on a read.
  bool solvesSystems() const { return device >= 0 && !isStep() && feedsBack && bytesOf(request.element) == 2; }

  Operator &op;
  const int device;
  /// Heads of the finest set.
  int64_t heads = 1;
  std::vector<ResultShape> results;
  /// Rows that a call which saves them leaves behind its results, for its gradient (passes/declaration/SaveRows.h).
  std::vector<ResultShape> savedRows;
  /// The positions of results that a gradient takes beside these.
  std::vector<unsigned> takenResults;
  std::vector<EntryShape> state;
  /// Elements from sequence to sequence, head to head and row to row of each entry. Where kernels leave parts of it,
  /// a head of theirs has so many places, of which what is not in parts takes the first.
  struct EntryStrides {
    int64_t sequence = 0, head = 0, row = 0, parts = 1;
  };
  std::vector<EntryStrides> stateStrides;
  /// Which entry counts the tokens so far, where one does.
  std::optional<unsigned> positionEntry;
  DecayConditions decays;
  /// Whether no state of a bounded size continues a sequence.
  bool looksBackWithoutBound = false;
  /// Whether there are states, not only rows of earlier tokens.
  bool carriesStates = false;
  /// What kinds of entries the state has.
  std::vector<StateEntry::Kind> carried;
  /// Why segments of sequences are not walked side by side; empty where they can be.
  std::string serialBecause;
  /// Whether a row that is written depends on a read of the same state.
  bool feedsBack = false;
  /// What a chunk of a walk takes that leaves all but its states to others, on a GPU in 16 bits (runtime/WholeWalks.h).
  std::optional<int64_t> weightOfTurn;
  /// Whether kernels may leave work items to others, which are compiled beside them.
  bool mayLeave = false;
  /// Whether rows of windows are computed with parameters.
  bool windowsMeetParameters = false;

private:
  Signature(Operator &op, int device);

  /// The declaration with the options of these calls, whose sizes and heads are open, behind some passes.
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
  declared(llvm::function_ref<void(mlir::OpPassManager &)> addPasses) const;

  /// What the arguments of a kernel are called where the tensors for them are found.
  struct ArgumentNames {
    llvm::ArrayRef<std::string> inputs, entries, checkpoints;
    /// Of results that not all kernels leave; none: those of the kernel, in order.
    llvm::ArrayRef<std::string> results;
  };

  void describe(VariantOp program, const Sizes &sizes);
  static EntryStrides stridesOf(const StateEntry &entry, int64_t headCount);
  unsigned inputOf(llvm::StringRef name) const;
  ElementType typeOfArgument(VariantOp program, unsigned argument) const;
  ElementType typeOfTail(const StateEntry &entry, VariantOp program) const;
  bool computes(chunk::TableOp table) const;
  int64_t slicesFor(const OperatorCall &call, int64_t threads, int64_t segments) const;
  llvm::Expected<Kernel *> kernelOf(const Form &form, bool savesRows, Keeps keeps);
  llvm::Expected<Gradient *> gradientOf(const GradientRequest &request, const Form &form);
  /// The gradient of a form that the model chose, or, where that takes more memory than is enough, of the form that it
  /// has where heads fill the chip, if that takes less: slices leave parts of rows.
  Gradient *ofLessMemory(Gradient *gradient, const OperatorCall &call, const GradientRequest &request, Form form);
  /// With segments side by side; null where there is none, which `problem` says why.
  Gradient *gradientSideBySide(const GradientRequest &request, const Form &form, std::string *problem = nullptr);
  /// That of a form whose walks are left open: with one walk, which may keep nothing of chunks, where two keep so much
  /// that segments come in turns.
  Gradient *sideBySideFor(const OperatorCall &call, const GradientRequest &request, Form form);
  /// A tuned form that cannot be used here.
  void forget(const OperatorCall &call, int64_t threads, const GradientRequest *request, llvm::StringRef problem);
  llvm::Expected<std::shared_ptr<CompiledKernel>> compile(const KernelRequest &request) const;
  /// Compiles parts of a program on several threads, so that `compile` finds them. What a form does not have, or what
  /// cannot be compiled, is left out.
  void compileTogether(KernelRequest request, llvm::ArrayRef<KernelRequest::Part> parts) const;
  llvm::Expected<std::unique_ptr<Kernel>> makeKernel(std::shared_ptr<CompiledKernel> code,
                                                     const ArgumentNames &names) const;
  /// What finds the inverses that a kernel takes, if it takes any: the kernel of a request, and what it leaves.
  llvm::Expected<Systems> makeSystems(const KernelRequest &request, const Manifest &taker,
                                      const ArgumentNames &names) const;

  Keeps likelyKept(const OperatorCall &call, const GradientRequest &request, int64_t threads);
  std::shared_ptr<const KeptStates> findStatesKeptBy(OperatorCall call, const GradientRequest &request,
                                                     int64_t threads);
  /// What was found, by all that it depends on (KeptStates.cpp).
  using KeptCall = std::array<int64_t, 13>;
  std::mutex keeping;
  /// What the first call that was recorded is likely to keep: a gradient finds what segments begin with by the kernels
  /// of such calls, which are there then.
  std::atomic<std::optional<Keeps>> keptByFirst;
  /// Whether a kernel that keeps them could not be made: none is tried again.
  std::atomic<bool> keepsInVain = false;
  std::map<std::pair<GradientRequest, KeptCall>, std::shared_ptr<const KeptStates>> keptByCalls;

  unsigned row = 0;
  int64_t multiprocessors = 0, cacheBytes = 0; // of a CUDA device
  std::string deviceName;
  KernelRequest request;
  std::mutex mutex;
  // Also by whether they save rows, and keep states.
  std::map<std::tuple<Form, bool, Keeps>, std::unique_ptr<Kernel>> kernels;
  std::map<std::tuple<Form, bool, Keeps>, std::unique_ptr<Segments>> segmented;
  std::map<std::pair<GradientRequest, Form>, std::unique_ptr<Gradient>> gradients;
  std::mutex makingGradients;
  std::atomic<bool> isCompiledWithGradient = false;
  /// Gradients of segments side by side, or why there is none.
  struct SideBySide {
    std::unique_ptr<Gradient> gradient;
    std::string problem;
  };
  std::map<std::pair<GradientRequest, Form>, SideBySide> gradientsSideBySide;
  std::mutex makingSideBySide;

  /// What tuned forms are looked up by, cheaply: the powers of two above batch times heads and above time, the threads
  /// of a CPU, and the gradient that is asked for.
  struct CallClass {
    unsigned items, tokens;
    int64_t threads;
    std::optional<GradientRequest> gradient;
    auto operator<=>(const CallClass &) const = default;
  };
  CallClass classOf(const OperatorCall &call, int64_t threads, const GradientRequest *request) const;
  std::mutex tunedMutex;
  std::map<CallClass, std::optional<TunedForm>> tunedForms; // as of so many changes of what there is
  uint64_t changesSeen = 0;
};

/// Rows that a kernel keeps of each token for others, in memory that a caller lends: so many numbers for each head.
struct KeptRow {
  std::string name;
  int64_t heads, size;
  ElementType type;

  /// What the outputs of a kernel are, but for those that have one of the names.
  static std::vector<KeptRow> of(const Manifest &manifest, int64_t heads, llvm::ArrayRef<std::string> names = {});
  int64_t bytes(int64_t tokens) const { return llvm::alignTo(tokens * heads * size * bytesOf(type), 64); }
  /// From sequence to sequence of so many tokens, token to token, head to head and number to number.
  std::array<int64_t, 4> strides(int64_t tokens) const { return {tokens * heads * size, heads * size, size, 1}; }
};

/// Of systems of equations.
struct Operator::Signature::Systems {
  /// Null where there is nothing to find.
  std::unique_ptr<Kernel> kernel;
  std::vector<KeptRow> inverses;
  /// Of the inverses of a call.
  int64_t bytes(const Signature &signature, const OperatorCall &call) const;
};

/// A kernel of a signature: the code, and which tensor each of its arguments is.
struct Operator::Signature::Kernel {
  std::shared_ptr<CompiledKernel> code;
  /// Of what this one takes beside the rows of a call (stretto-invert-systems).
  Systems systems;
  /// Takes the work items that this one leaves, where it expects something; else null.
  std::unique_ptr<Kernel> ofLeft;
  /// What it keeps for a gradient; null where that is nothing.
  std::shared_ptr<const KeptStates> keeps;
  /// The bytes in which it says which these are, of so many.
  int64_t bytesOfLeft(int64_t items) const { return ofLeft ? llvm::alignTo(items * sizeof(int32_t), 64) : 0; }
  /// What a call of whole sequences needs beside its results: of systems first, then of what is left.
  int64_t workspaceBytes(const Signature &signature, const OperatorCall &call) const;
  bool isApart() const { return code->manifest.segments == Manifest::Segments::Apart; }
  /// For each argument of the manifest its position among the inputs, results, entries, checkpoints or tables, by its
  /// kind.
  llvm::SmallVector<unsigned> positions;

  /// A table, and its numbers where the kernel reads them.
  struct Table {
    chunk::TableOp op;
    ElementType type;
    int64_t width = 1;
    /// Null where the kernel computes them.
    std::shared_ptr<PlacedTable> placed;
    PlacedTable::Numbers numbers = {};

    bool varies() { return op.getVarying() || op.getPeriod(); }
  };
  mlir::OwningOpRef<mlir::ModuleOp> tableModule;
  std::deque<Table> tables;

  /// The words of a table in the argument block of a call on tokens at the positions before `end`.
  using TableWords = std::array<int64_t, 4>;
  TableWords place(Table &table, int64_t end, const Executor &executor);

private:
  std::mutex placing;
};

struct Operator::Prepared {
  /// One of the two, and of segments how many; neither where there is nothing to do.
  Signature::Kernel *kernel = nullptr;
  Signature::Segments *segments = nullptr;
  int64_t count = 1;
  int64_t workspaceBytes = 0;
};

/// The position of a name.
std::optional<unsigned> positionIn(llvm::ArrayRef<std::string> names, llvm::StringRef name);

} // namespace stretto

#endif // STRETTO_RUNTIME_SIGNATURE_H
