//===- Gradient.cpp - The gradient of calls of one signature --------------===//

#include "runtime/Gradient.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"
#include "passes/declaration/Specialize.h"
#include "runtime/DiagnosticText.h"
#include "runtime/Knobs.h"
#include "runtime/OperatorImpl.h"

using namespace mlir;
using namespace stretto;

using Gradient = Operator::Signature::Gradient;

/// The type that a row or parameter has in memory.
static ElementType typeOf(const KernelRequest &request, const std::string &name) {
  auto other = request.others.find(name);
  return other == request.others.end() ? request.element : other->second;
}

/// The position of what has a name.
template <typename List> static std::optional<unsigned> positionOf(const List &list, StringRef name) {
  for (auto [index, item] : llvm::enumerate(list))
    if (item.name == name)
      return index;
  return std::nullopt;
}

/// How many heads of the kernel share one of a set.
static int64_t groupOf(VariantOp gradient, StringRef heads, int64_t all) {
  int64_t group = all;
  for (StringRef set : llvm::split(heads, '|'))
    if (set != allHeads)
      group = std::min(group, cast<IntegerAttr>(gradient.getGroupAttr().get(set)).getInt());
  return group;
}

GradientOf Gradient::names() const {
  GradientOf names;
  auto add = [&](const std::string &name, bool isWanted) {
    if (isWanted)
      names.wanted.push_back(name);
  };
  for (auto [input, isWanted] : llvm::zip_equal(signature.op.inputs(), request.inputs))
    add(input.name, isWanted);
  for (auto [entry, isWanted] : llvm::zip_equal(signature.state, request.entries))
    if (!entry.isPosition && !entry.window)
      add(entry.name, isWanted);
  for (auto [index, isGiven] : llvm::enumerate(request.results))
    if (!isGiven)
      names.zero.push_back(index);
  return names;
}

llvm::Error Gradient::describe(VariantOp gradient) {
  ElementType accumulator = accumulatorOf(signature.request.element);
  int64_t heads = signature.heads;
  SmallVector<unsigned> differentiable = gradient.getDifferentiableRows();
  for (auto [index, type] : llvm::enumerate(gradient.getType().getResults())) {
    std::string name = gradient.getArgName(differentiable[index]).str();
    int64_t group = groupOf(gradient, headsOf(type), heads);
    ElementType element = typeOf(signature.request, name);
    Row row = {
        *positionOf(signature.op.inputs(), name), element, {heads / group}, group, group == 1 ? element : accumulator};
    llvm::append_range(row.sizes, cast<RankedTensorType>(type).getShape());
    rows.push_back(std::move(row));
  }
  for (const StateEntry &entry : deriveState(gradient)) {
    // What no token changes needs no kernel: its cotangent is its gradient.
    if (!entry.reverse || (entry.kind == StateEntry::Kind::Matrix && entry.operations.front()->use_empty()))
      continue;
    // The entries of a gradient are d_<entry or parameter>, with a number where a tail has several.
    StringRef subject = StringRef(entry.name).drop_front(2).split('.').first;
    std::optional<unsigned> state = positionOf(signature.state, subject);
    std::optional<unsigned> parameter = positionOf(signature.op.inputs(), subject.rtrim('_'));
    if (!state && !parameter)
      return llvm::createStringError("internal: the entry '" + entry.name + "' is the gradient of nothing");
    Part part = {state ? Part::Of::State : Part::Of::Parameter, state ? *state : *parameter,      accumulator, {},
                 groupOf(gradient, entry.heads, heads),         !state || request.entries[*state]};
    llvm::append_range(part.sizes, llvm::drop_begin(entry.shape(/*sequences=*/1, heads)));
    entries.push_back(std::move(part));
    entryNames.push_back(entry.name);
    entryStrides.push_back(stridesOf(entry, heads));
  }
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<Gradient>> Gradient::create(const Signature &signature, GradientRequest request,
                                                           const Form &form) {
  std::unique_ptr<Gradient> gradient(new Gradient(signature, std::move(request)));
  Implementation &impl = *signature.op.implementation;
  std::vector<std::string> inputs;
  {
    std::lock_guard<std::mutex> context(impl.contextMutex);
    DiagnosticText diagnostics(&impl.context);
    OwningOpRef<ModuleOp> specialised = impl.module->clone();
    VariantOp program = *specialised->getOps<VariantOp>().begin();
    if (failed(specialize(program, signature.request.settings)))
      return diagnostics.takeError();
    llvm::Expected<OwningOpRef<ModuleOp>> differentiated = stretto::differentiated(program, gradient->names());
    if (!differentiated)
      return differentiated.takeError();
    VariantOp declaration = *(*differentiated)->getOps<VariantOp>().begin();
    if (llvm::Error error = gradient->describe(declaration))
      return error;
    for (const Input &input : signature.op.inputs())
      inputs.push_back(input.name);
    unsigned next = declaration.getArgNames().size() - llvm::count(gradient->request.results, true);
    for (bool isGiven : gradient->request.results)
      inputs.push_back(isGiven ? declaration.getArgName(next++).str() : "");
  }
  if (llvm::Error error = gradient->makeKernels(std::move(inputs), form))
    return error;
  return gradient;
}

void Gradient::divide(const Manifest &manifest) {
  int64_t slices = manifest.slices;
  auto row = rows.begin();
  for (const Manifest::Argument &argument : manifest.arguments) {
    if (argument.kind == Manifest::Kind::Output) {
      row->parts *= argument.partial ? slices : 1;
      row->partType = argument.type;
      ++row;
      continue;
    }
    if (argument.kind != Manifest::Kind::State || !argument.partial)
      continue;
    unsigned index = llvm::find(entryNames, argument.entry) - entryNames.begin();
    EntryStrides &strides = entryStrides[index];
    if (std::exchange(strides.parts, slices) == slices)
      continue; // another state of the entry has parts, too
    Part &part = entries[index];
    bool isTail = part.of == Part::Of::State && signature.state[part.index].isTail;
    part.sizes[isTail ? 1 : 0] *= slices;
    part.group *= slices;
    strides.sequence *= slices;
    if (isTail)
      strides.row *= slices;
  }
}

llvm::Error Gradient::makeKernels(std::vector<std::string> inputs, const Form &form) {
  KernelRequest kernelRequest = signature.request;
  kernelRequest.take(form);
  std::vector<std::string> states;
  for (const EntryShape &entry : signature.state)
    states.push_back(entry.name);
  kernelRequest.part = KernelRequest::Part::Gradient;
  kernelRequest.gradient = names();
  auto code = signature.compile(kernelRequest);
  if (!code)
    return code.takeError();
  divide((*code)->manifest);
  auto numbersOf = [slices = (*code)->manifest.slices](const Manifest::Argument &argument) {
    return static_cast<int64_t>(llvm::product_of(argument.shape)) * argument.parts(slices);
  };
  // What one kernel asks for the other keeps.
  bool needsRows = false;
  for (const Manifest::Argument &argument : (*code)->manifest.arguments) {
    needsRows |= argument.kind == Manifest::Kind::Input && !llvm::is_contained(inputs, argument.name);
    if (argument.kind != Manifest::Kind::Checkpoint)
      continue;
    checkpointNames.push_back(argument.name);
    checkpointShapes.push_back(
        {std::max<int64_t>(signature.heads / argument.group, 1), numbersOf(argument), argument.type});
  }
  if (needsRows || !checkpointNames.empty()) {
    kernelRequest.part = KernelRequest::Part::Checkpoints;
    auto keeping = signature.compile(kernelRequest);
    if (!keeping)
      return keeping.takeError();
    for (const Manifest::Argument &argument : (*keeping)->manifest.arguments)
      if (argument.kind == Manifest::Kind::Output)
        keptRows.push_back({argument.name, signature.heads, numbersOf(argument), argument.type});
    if (llvm::Error error =
            signature.makeKernel(std::move(*keeping), {inputs, states, checkpointNames}).moveInto(checkpoints))
      return error;
  }
  for (const KeptRow &row : keptRows)
    inputs.push_back(row.name);
  // Windows are those of the call.
  std::vector<std::string> names = entryNames;
  llvm::append_range(names, states);
  return signature.makeKernel(std::move(*code), {inputs, names, checkpointNames}).moveInto(kernel);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

int64_t Gradient::checkpointCount(const OperatorCall &call, int64_t chunks, int64_t interval) const {
  const TensorView &row = signature.rowOf(call);
  int64_t tokens = row.sizes[0] * row.sizes[1], sequences = signature.sequences(call);
  // What firstCheckpoint (runtime/Manifest.h) would be of one more sequence.
  int64_t ifAllAreLong = sequences * llvm::divideCeil(chunks, interval);
  int64_t together = tokens / (kernel->code->manifest.chunk * interval) + sequences;
  return std::min(ifAllAreLong, together);
}

int64_t Gradient::checkpointBytes(int64_t count) const {
  int64_t bytes = 0;
  for (const Checkpoint &checkpoint : checkpointShapes)
    bytes += checkpoint.bytes(count);
  return bytes;
}

std::array<int64_t, 2> Gradient::checkpointCounts(const OperatorCall &call, Segments segments) const {
  int64_t ofSegments = segments.count() > 1 ? checkpointCount(call, segments.chunks, segments.length) : 0;
  return {ofSegments, checkpointCount(call, segments.length, /*interval=*/1)};
}

/// The bytes of the largest row of a call.
static int64_t bytesOfInput(const Operator &op, const OperatorCall &call) {
  int64_t bytes = 0;
  for (auto [input, view] : llvm::zip_equal(op.inputs(), call.arguments))
    if (view && !input.isParameter)
      bytes = std::max(bytes, static_cast<int64_t>(llvm::product_of(view->sizes)) * bytesOf(*view->type));
  return bytes;
}

Gradient::Segments Gradient::segmentsOf(const OperatorCall &call) const {
  int64_t chunks = std::max<int64_t>(llvm::divideCeil(signature.rowOf(call).sizes[1], kernel->code->manifest.chunk), 1);
  if (checkpointShapes.empty())
    return {chunks, chunks};
  if (int64_t length = Knobs::instance().segment)
    return {chunks, std::min(chunks, length)};
  int64_t enough = 2 * bytesOfInput(signature.op, call), least = std::numeric_limits<int64_t>::max();
  Segments best = {chunks, chunks};
  // Each launch of few chunks takes its time: powers of two are near enough to the fewest.
  for (int64_t count = 1; count <= chunks && least > enough; count *= 2) {
    Segments segments = {chunks, static_cast<int64_t>(llvm::divideCeil(chunks, count))};
    auto [ofSegments, ofChunks] = checkpointCounts(call, segments);
    int64_t bytes = checkpointBytes(ofSegments) + checkpointBytes(ofChunks) + bytesOfParts(call, segments);
    if (bytes < least) {
      least = bytes;
      best = segments;
    }
  }
  return best;
}

int64_t Gradient::tokensOfParts(const OperatorCall &call, Segments segments) const {
  // Of packed sequences the first is as long as there are tokens, or each has a segment.
  int64_t sequences = call.sequenceOffsets ? signature.sequences(call) : 1;
  return std::min(signature.rowOf(call).sizes[1], sequences * segments.length * kernel->code->manifest.chunk);
}

int64_t Gradient::bytesOfParts(const OperatorCall &call, Segments segments) const {
  int64_t tokens = signature.rowOf(call).sizes[0] * tokensOfParts(call, segments), bytes = 0;
  for (const Row &row : rows)
    bytes += row.bytesOfParts(tokens);
  return bytes;
}

int64_t Gradient::workspaceBytes(const OperatorCall &call) const {
  Segments segments = segmentsOf(call);
  auto [ofSegments, ofChunks] = checkpointCounts(call, segments);
  int64_t bytes = checkpointBytes(ofSegments) + checkpointBytes(ofChunks) + bytesOfParts(call, segments);
  const TensorView &row = signature.rowOf(call);
  for (const KeptRow &kept : keptRows)
    bytes += kept.bytes(row.sizes[0] * row.sizes[1]);
  return bytes;
}

llvm::Expected<Gradient *> Operator::Signature::gradientFor(const OperatorCall &call, const GradientRequest &request,
                                                            int64_t threads) {
  Choice choice = choose(call, threads, &request);
  llvm::Expected<Gradient *> gradient = gradientOf(request, choice.form);
  if (gradient || !choice.tuned)
    return gradient;
  forget(call, threads, &request, llvm::toString(gradient.takeError()));
  return gradientOf(request, modelForm(call, threads, /*isOfGradient=*/true));
}

llvm::Expected<Gradient *> Operator::Signature::gradientOf(const GradientRequest &request, const Form &form) {
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Gradient> &gradient = gradients[{request, form}];
  if (!gradient)
    if (llvm::Error error = Gradient::create(*this, request, form).moveInto(gradient))
      return error;
  return gradient.get();
}

bool Operator::Signature::resumes(const OperatorCall &call, const GradientRequest &request,
                                  ArrayRef<bool> finalEntries) const {
  bool isAsked = false, isDelayed = false;
  for (auto [entry, isWanted, isFinal] : llvm::zip(state, request.entries, finalEntries)) {
    isAsked |= (isWanted && entry.window) || (isFinal && entry.isDelayed);
    isDelayed |= entry.isDelayed;
  }
  return isAsked || (!call.initialState.empty() && (isDelayed || windowsMeetParameters));
}

llvm::Expected<std::string> Operator::Signature::resumed() const {
  Implementation &impl = *op.implementation;
  std::lock_guard<std::mutex> context(impl.contextMutex);
  DiagnosticText diagnostics(&impl.context);
  OwningOpRef<ModuleOp> module = impl.module->clone();
  Settings settings = request.settings;
  settings.dims.clear();
  settings.heads.clear();
  PassManager passes(&impl.context);
  passes.addNestedPass<VariantOp>(createResume());
  if (failed(specialize(*module->getOps<VariantOp>().begin(), settings)) || failed(passes.run(*module)))
    return diagnostics.takeError();
  std::string text;
  llvm::raw_string_ostream(text) << *module;
  return text;
}
