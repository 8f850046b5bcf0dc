//===- Operator.cpp - Calling variants through the C interface ------------===//

#include "frontends/c/operator.h"
#include "frontends/c/Handles.h"
#include "runtime/Gradient.h"
#include "runtime/Knobs.h"
#include "runtime/Tuner.h"
#include <functional>

using namespace stretto;

static Operator *unwrap(StrettoOperator *op) { return reinterpret_cast<Operator *>(op); }
static const Operator *unwrap(const StrettoOperator *op) { return reinterpret_cast<const Operator *>(op); }
static Operator::Signature *unwrap(StrettoSignature *op) { return reinterpret_cast<Operator::Signature *>(op); }
static const Operator::Signature *unwrap(const StrettoSignature *op) {
  return reinterpret_cast<const Operator::Signature *>(op);
}

/// The value, or nothing and the message for the caller to release.
template <typename Value> static std::optional<Value> take(llvm::Expected<Value> value, char **error) {
  if (value)
    return std::move(*value);
  std::string message = llvm::toString(value.takeError());
  if (error)
    *error = ownedString(message);
  return std::nullopt;
}

/// 0, or -1 and the message.
static int finish(llvm::Error failure, char **error) {
  if (!failure)
    return 0;
  take(llvm::Expected<int>(std::move(failure)), error);
  return -1;
}

//===----------------------------------------------------------------------===//
// Descriptions
//===----------------------------------------------------------------------===//

static std::optional<ElementType> typeOf(StrettoElement element) {
  switch (element) {
  case STRETTO_F16:
    return ElementType::F16;
  case STRETTO_BF16:
    return ElementType::BF16;
  case STRETTO_F32:
    return ElementType::F32;
  case STRETTO_F64:
    return ElementType::F64;
  case STRETTO_I64:
  case STRETTO_OTHER:
    return std::nullopt;
  }
  return std::nullopt;
}

static StrettoElement elementOf(ElementType type) {
  switch (type) {
  case ElementType::F16:
    return STRETTO_F16;
  case ElementType::BF16:
    return STRETTO_BF16;
  case ElementType::F32:
    return STRETTO_F32;
  case ElementType::F64:
    return STRETTO_F64;
  }
  llvm_unreachable("covered switch");
}

static TensorView viewOf(const StrettoTensor &tensor) {
  size_t rank = tensor.rank;
  return {tensor.data,   typeOf(tensor.element), tensor.elementName,
          tensor.device, {tensor.sizes, rank},   {tensor.strides, rank}};
}

static llvm::SmallVector<TensorView, 4> viewsOf(const StrettoTensor *tensors, size_t count) {
  llvm::SmallVector<TensorView, 4> views;
  for (const StrettoTensor &tensor : llvm::ArrayRef(tensors, tensors ? count : 0))
    views.push_back(viewOf(tensor));
  return views;
}

static void fillCall(OperatorCall &call, const Operator &op, const StrettoOperatorCall &source) {
  call.isStep = source.isStep;
  for (const StrettoTensor &tensor : llvm::ArrayRef(source.arguments, op.inputs().size()))
    call.arguments.push_back(tensor.isPresent ? std::optional(viewOf(tensor)) : std::nullopt);
  for (const char *option : llvm::ArrayRef(source.options, op.options().size()))
    call.options.push_back(option ? option : "");
  call.initialState = viewsOf(source.initialState, source.initialStateCount);
  if (source.sequenceOffsets.isPresent)
    call.sequenceOffsets = viewOf(source.sequenceOffsets);
  if (source.slots.isPresent)
    call.slots = viewOf(source.slots);
  if (source.form)
    call.form = formOf(*source.form);
  call.savesRows = source.savesRows;
  call.gradientBytes = source.gradientBytes;
}

static OperatorCall callOf(const Operator &op, const StrettoOperatorCall &source) {
  OperatorCall call;
  fillCall(call, op, source);
  return call;
}

/// What the caller lends, as functions.
namespace {
struct ExecutorOf {
  explicit ExecutorOf(const StrettoExecutor &source)
      : parallelFor([&source](int64_t count, llvm::function_ref<void(int64_t, int64_t)> body) {
          auto call = [](int64_t begin, int64_t end, void *context) {
            (*static_cast<llvm::function_ref<void(int64_t, int64_t)> *>(context))(begin, end);
          };
          source.parallelFor(source.context, count, call, &body);
        }),
        upload([&source](llvm::ArrayRef<char> bytes) {
          return source.upload(source.context, bytes.data(), bytes.size());
        }),
        warn([&source](llvm::StringRef message) { source.warn(source.context, message.str().c_str()); }),
        addUp([&source](const TensorView &parts, const TensorView &sum, const PackedSegment *packed) {
          StrettoTensor described[] = {describe(parts), describe(sum)};
          StrettoPackedSegment segment = {};
          if (packed) {
            segment = {describe(*packed->offsets), packed->first, packed->tokens};
            segment.offsets.element = STRETTO_I64;
          }
          source.addUp(source.context, &described[0], &described[1], packed ? &segment : nullptr);
        }),
        executor{source.threads, parallelFor, source.stream, upload, warn, addUp} {}

private:
  static StrettoTensor describe(const TensorView &view) {
    StrettoTensor tensor = {};
    tensor.isPresent = true;
    tensor.data = view.data;
    tensor.element = view.type ? elementOf(*view.type) : STRETTO_OTHER;
    tensor.rank = static_cast<int32_t>(view.sizes.size());
    tensor.sizes = view.sizes.data();
    tensor.strides = view.strides.data();
    return tensor;
  }

  std::function<void(int64_t, llvm::function_ref<void(int64_t, int64_t)>)> parallelFor;
  std::function<void *(llvm::ArrayRef<char>)> upload;
  std::function<void(llvm::StringRef)> warn;
  std::function<void(const TensorView &, const TensorView &, const PackedSegment *)> addUp;

public:
  Executor executor;
};
} // namespace

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

StrettoOperator *strettoOperatorCreate(const char *module, size_t length, char **error) {
  auto op = take(Operator::create({module, length}), error);
  return op ? reinterpret_cast<StrettoOperator *>(op->release()) : nullptr;
}

void strettoOperatorDestroy(StrettoOperator *op) { delete unwrap(op); }
const char *strettoOperatorName(const StrettoOperator *op) { return unwrap(op)->name().data(); }
const char *strettoOperatorDigest(const StrettoOperator *op) { return unwrap(op)->digest().data(); }
size_t strettoOperatorInputCount(const StrettoOperator *op) { return unwrap(op)->inputs().size(); }
size_t strettoOperatorOptionCount(const StrettoOperator *op) { return unwrap(op)->options().size(); }
size_t strettoOperatorResultCount(const StrettoOperator *op) { return unwrap(op)->resultCount(); }
bool strettoOperatorMaySaveRows(const StrettoOperator *op) { return unwrap(op)->maySaveRows(); }

StrettoInput strettoOperatorInput(const StrettoOperator *op, size_t index) {
  const Operator::Input &input = unwrap(op)->inputs()[index];
  return {input.name.c_str(), input.isParameter, input.isOptional};
}

StrettoOption strettoOperatorOption(const StrettoOperator *op, size_t index) {
  const Operator::Option &option = unwrap(op)->options()[index];
  static constexpr StrettoOptionKind kinds[] = {STRETTO_NUMBER, STRETTO_CONDITION, STRETTO_WORD};
  return {option.name.c_str(), kinds[static_cast<int>(option.kind)], option.fallback.c_str()};
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

StrettoSignature *strettoOperatorCheck(StrettoOperator *op, const StrettoOperatorCall *call, char **error) {
  auto signature = take(unwrap(op)->check(callOf(*unwrap(op), *call)), error);
  return signature ? reinterpret_cast<StrettoSignature *>(*signature) : nullptr;
}

size_t strettoSignatureStateCount(const StrettoSignature *signature) { return unwrap(signature)->state.size(); }

StrettoShape strettoSignatureState(const StrettoSignature *signature, size_t index) {
  const EntryShape &entry = unwrap(signature)->state[index];
  return {entry.name.c_str(), entry.isTail,       entry.isPosition ? STRETTO_I64 : elementOf(entry.type),
          entry.sizes.size(), entry.sizes.data(), entry.window ? static_cast<int32_t>(*entry.window) : -1};
}

static StrettoShape describe(const ResultShape &result) {
  return {nullptr, false, elementOf(result.type), result.sizes.size(), result.sizes.data(), -1};
}

StrettoShape strettoSignatureResult(const StrettoSignature *signature, size_t index) {
  return describe(unwrap(signature)->results[index]);
}

size_t strettoSignatureSavedCount(const StrettoSignature *signature) { return unwrap(signature)->savedRows.size(); }

StrettoShape strettoSignatureSaved(const StrettoSignature *signature, size_t index) {
  return describe(unwrap(signature)->savedRows[index]);
}

size_t strettoSignatureTakenResultCount(const StrettoSignature *signature) {
  return unwrap(signature)->takenResults.size();
}

size_t strettoSignatureTakenResult(const StrettoSignature *signature, size_t index) {
  return unwrap(signature)->takenResults[index];
}

/// Tensors are described once for all that is done with a call.
struct StrettoCheckedCall {
  OperatorCall call;
  Operator::Signature *signature = nullptr;
  Operator::Prepared prepared;
};

/// A call that was, whose memory the next one of its thread takes: it is more than allocators keep at hand.
static std::unique_ptr<StrettoCheckedCall> &spareCall() {
  static thread_local std::unique_ptr<StrettoCheckedCall> spare;
  return spare;
}

StrettoCheckedCall *strettoCheckedCallCreate(StrettoOperator *op, const StrettoOperatorCall *call, char **error) {
  std::unique_ptr<StrettoCheckedCall> checked = std::move(spareCall());
  if (checked)
    *checked = {};
  else
    checked = std::make_unique<StrettoCheckedCall>();
  fillCall(checked->call, *unwrap(op), *call);
  auto signature = take(unwrap(op)->check(checked->call), error);
  if (!signature)
    return nullptr;
  checked->signature = *signature;
  return checked.release();
}

void strettoCheckedCallDestroy(StrettoCheckedCall *call) { spareCall().reset(call); }

StrettoSignature *strettoCheckedCallSignature(const StrettoCheckedCall *call) {
  return reinterpret_cast<StrettoSignature *>(call->signature);
}

int strettoCheckedCallContents(const StrettoCheckedCall *call, const StrettoExecutor *executor, char **error) {
  ExecutorOf lent(*executor);
  return finish(Operator::checkContents(*call->signature, call->call, lent.executor.parallelFor), error);
}

int64_t strettoCheckedCallPrepare(StrettoCheckedCall *call, int64_t threads, char **error) {
  auto prepared = take(Operator::prepare(*call->signature, call->call, threads), error);
  if (!prepared)
    return -1;
  call->prepared = *prepared;
  return prepared->workspaceBytes;
}

int strettoCheckedCallRun(StrettoCheckedCall *call, const StrettoTensor *results, const StrettoTensor *finalState,
                          void *workspace, void *states, const StrettoExecutor *executor, char **error) {
  Operator::Signature &signature = *call->signature;
  call->call.states = states;
  ExecutorOf lent(*executor);
  size_t resultCount = signature.results.size() + (call->call.savesRows ? signature.savedRows.size() : 0);
  return finish(Operator::run(signature, call->prepared, call->call, viewsOf(results, resultCount),
                              viewsOf(finalState, signature.state.size()), workspace, lent.executor),
                error);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

using Gradient = Operator::Signature::Gradient;

static const Gradient *unwrap(const StrettoGradient *gradient) { return reinterpret_cast<const Gradient *>(gradient); }

static StrettoGradientPart describePart(const Gradient::Part &part) {
  static constexpr StrettoSubject subjects[] = {STRETTO_OF_STATE, STRETTO_OF_PARAMETER};
  return {subjects[static_cast<int>(part.of)],
          part.index,
          {nullptr, false, elementOf(part.type), part.sizes.size(), part.sizes.data(), /*window=*/-1},
          part.group,
          part.isWanted};
}

static GradientRequest requestOf(const Operator::Signature &signature, const StrettoGradientRequest &source) {
  auto flags = [](const bool *first, size_t count) { return std::vector<bool>(first, first + count); };
  return {flags(source.inputs, signature.op.inputs().size()), flags(source.entries, signature.state.size()),
          flags(source.results, signature.results.size()), source.takesSaved && !signature.savedRows.empty()};
}

bool strettoSignatureResumes(const StrettoSignature *signature, const StrettoOperatorCall *call,
                             const StrettoGradientRequest *request, const bool *finalEntries) {
  const Operator::Signature &checked = *unwrap(signature);
  return checked.resumes(callOf(checked.op, *call), requestOf(checked, *request),
                         llvm::ArrayRef(finalEntries, checked.state.size()));
}

char *strettoSignatureResumed(const StrettoSignature *signature, char **error) {
  auto text = take(unwrap(signature)->resumed(), error);
  return text ? ownedString(*text) : nullptr;
}

size_t strettoSignatureFeatureParts(const StrettoSignature *signature, bool ofGradient) {
  const FeatureSplit &features = unwrap(signature)->features;
  return ofGradient ? features.partsOfGradient : features.parts;
}

char *strettoSignaturePart(const StrettoSignature *signature, size_t index, bool ofGradient, char **error) {
  auto text = take(unwrap(signature)->partOfDeclaration(index, ofGradient), error);
  return text ? ownedString(*text) : nullptr;
}

StrettoGradient *strettoSignatureGradient(StrettoSignature *signature, const StrettoOperatorCall *call,
                                          const StrettoGradientRequest *request, int64_t threads, char **error) {
  Operator::Signature &checked = *unwrap(signature);
  auto gradient = take(checked.gradientFor(callOf(checked.op, *call), requestOf(checked, *request), threads), error);
  return gradient ? reinterpret_cast<StrettoGradient *>(*gradient) : nullptr;
}

bool strettoSignatureAwaitsGradient(const StrettoSignature *signature) { return unwrap(signature)->awaitsGradient(); }

void strettoCheckedCallCompileWithGradient(const StrettoCheckedCall *call, const StrettoGradientRequest *request,
                                           bool keepsStates, int64_t threads) {
  call->signature->compileWithGradient(call->call, requestOf(*call->signature, *request), keepsStates, threads);
}

/// What is kept of the states of a call, which may be nothing.
static StrettoKeptStates describeStates(const KeptStates *kept, const OperatorCall &call,
                                        const Operator::Signature &signature) {
  return kept ? StrettoKeptStates{kept->bytes(call, signature), kept->tokens} : StrettoKeptStates{0, 0};
}

StrettoKeptStates strettoCheckedCallKeepStates(StrettoCheckedCall *call, const StrettoGradientRequest *request,
                                               int64_t threads) {
  Operator::Signature &signature = *call->signature;
  call->call.kept = signature.statesKeptBy(call->call, requestOf(signature, *request), threads);
  return describeStates(call->call.kept.get(), call->call, signature);
}

size_t strettoGradientRowCount(const StrettoGradient *gradient) { return unwrap(gradient)->rows.size(); }
size_t strettoGradientEntryCount(const StrettoGradient *gradient) { return unwrap(gradient)->entries.size(); }

StrettoGradientPart strettoGradientRow(const StrettoGradient *gradient, size_t index) {
  const Gradient::Row &row = unwrap(gradient)->rows[index];
  return {STRETTO_OF_ROW,
          row.index,
          {nullptr, false, elementOf(row.type), row.sizes.size(), row.sizes.data(), /*window=*/-1},
          /*group=*/1,
          /*isWanted=*/true};
}

StrettoGradientPart strettoGradientEntry(const StrettoGradient *gradient, size_t index) {
  return describePart(unwrap(gradient)->entries[index]);
}

StrettoKeptStates strettoGradientStates(const StrettoGradient *gradient, const StrettoOperatorCall *source) {
  const Operator::Signature &signature = unwrap(gradient)->signature;
  OperatorCall call = callOf(signature.op, *source);
  return describeStates(unwrap(gradient)->statesOf(call).get(), call, signature);
}

int64_t strettoGradientWorkspace(const StrettoGradient *gradient, const StrettoOperatorCall *call, bool hasStates) {
  return unwrap(gradient)->workspaceBytes(callOf(unwrap(gradient)->signature.op, *call), hasStates);
}

int strettoGradientRun(StrettoGradient *gradient, const StrettoOperatorCall *call, const StrettoGradientCall *tensors,
                       const StrettoExecutor *executor, char **error) {
  auto &made = *reinterpret_cast<Gradient *>(gradient);
  GradientCall parts;
  auto addPresent = [](auto &views, const StrettoTensor *tensors, size_t count) {
    for (const StrettoTensor &tensor : llvm::ArrayRef(tensors, count))
      views.push_back(tensor.isPresent ? std::optional(viewOf(tensor)) : std::nullopt);
  };
  addPresent(parts.resultCotangents, tensors->resultCotangents, made.signature.results.size());
  addPresent(parts.entryCotangents, tensors->entryCotangents, made.entries.size());
  llvm::append_range(parts.rows, viewsOf(tensors->rows, made.rows.size()));
  llvm::append_range(parts.entries, viewsOf(tensors->entries, made.entries.size()));
  if (made.request.takesSaved)
    llvm::append_range(parts.saved,
                       viewsOf(tensors->saved, made.signature.savedRows.size() + made.signature.takenResults.size()));
  parts.states = tensors->states;
  parts.workspace = tensors->workspace;
  ExecutorOf lent(*executor);
  return finish(made.run(callOf(made.signature.op, *call), parts, lent.executor), error);
}

char *strettoExplain(StrettoSignature *signature, const StrettoOperatorCall *call, int64_t threads, char **error) {
  Operator::Signature &checked = *unwrap(signature);
  auto text = take(Operator::explain(checked, callOf(checked.op, *call), threads), error);
  return text ? ownedString(*text) : nullptr;
}

char *strettoExplainGradient(StrettoSignature *signature, const StrettoOperatorCall *call,
                             const StrettoGradientRequest *request, int64_t threads, char **error) {
  Operator::Signature &checked = *unwrap(signature);
  auto text =
      take(Operator::explainGradient(checked, callOf(checked.op, *call), requestOf(checked, *request), threads), error);
  return text ? ownedString(*text) : nullptr;
}

//===----------------------------------------------------------------------===//
// Tuning
//===----------------------------------------------------------------------===//

char *strettoTune(StrettoSignature *signature, const StrettoOperatorCall *call, const StrettoGradientRequest *request,
                  int64_t threads, const StrettoTuning *tuning, char **error) {
  Operator::Signature &checked = *unwrap(signature);
  std::optional<GradientRequest> gradient;
  if (request)
    gradient = requestOf(checked, *request);
  auto trial = [&](const Form &form) -> llvm::Expected<double> {
    StrettoForm asked = {form.chunk,      form.slices, form.warps,  form.walks,
                         form.walkSlices, form.ahead,  form.blocks, form.outputs};
    char *problem = nullptr;
    double seconds = tuning->trial(tuning->context, &asked, &problem);
    if (seconds >= 0)
      return seconds;
    std::string message = problem ? problem : "the call failed";
    strettoStringDestroy(problem);
    return llvm::createStringError(message);
  };
  auto text = take(tune(checked, callOf(checked.op, *call), gradient ? &*gradient : nullptr, threads,
                        {.trial = trial,
                         .bytesPerSecond = tuning->bytesPerSecond,
                         .flopsPerSecond = tuning->flopsPerSecond,
                         .seconds = tuning->seconds}),
                   error);
  return text ? ownedString(*text) : nullptr;
}

char *strettoStringCopy(const char *text) { return ownedString(text); }
int64_t strettoSignatureCacheBytes(const StrettoSignature *signature) { return unwrap(signature)->deviceCacheBytes(); }
void strettoSetTunedTable(const char *path) { TunedForms::instance().setTable(path); }
char *strettoTunedTable() { return ownedString(TunedForms::instance().table()); }

bool strettoDebug() { return Knobs::instance().debug; }
size_t strettoIdleBytes() { return Knobs::instance().idleBytes; }
void strettoSetDebug(bool debug) { Knobs::instance().debug = debug; }
int64_t strettoLongSegment() { return Knobs::instance().longSegment; }
void strettoSetLongSegment(int64_t segments) { Knobs::instance().longSegment = segments; }

int64_t strettoSequences() { return Knobs::instance().sequences; }
void strettoSetSequences(int64_t sequences) { Knobs::instance().sequences = sequences; }

int64_t strettoSegment() { return Knobs::instance().segment; }
void strettoSetSegment(int64_t chunks) { Knobs::instance().segment = chunks; }
int64_t strettoWalks() { return Knobs::instance().walks; }
void strettoSetWalks(int64_t walks) { Knobs::instance().walks = walks; }
int64_t strettoWalkSlices() { return Knobs::instance().walkSlices; }
void strettoSetWalkSlices(int64_t slices) { Knobs::instance().walkSlices = slices; }
int64_t strettoInputsOfGradient(bool onGpu) { return inputsOfGradient(onGpu ? 0 : -1); }
int64_t strettoGroups() { return Knobs::instance().groups; }
void strettoSetGroups(int64_t groups) { Knobs::instance().groups = groups; }
bool strettoKeepStates() { return Knobs::instance().keepStates; }
void strettoSetKeepStates(bool keepStates) { Knobs::instance().keepStates = keepStates; }
int64_t strettoSegments() { return Knobs::instance().segments; }
void strettoSetSegments(int64_t segments) { Knobs::instance().segments = segments; }
int64_t strettoSlices() { return Knobs::instance().slices; }
void strettoSetSlices(int64_t slices) { Knobs::instance().slices = slices; }
