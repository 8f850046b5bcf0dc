//===- Gradient.cpp - The gradient of calls of one signature --------------===//

#include "runtime/Gradient.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"
#include "passes/declaration/GradientParts.h"
#include "passes/declaration/KernelNames.h"
#include "passes/declaration/SaveRows.h"
#include "passes/declaration/Specialize.h"
#include "runtime/DiagnosticText.h"
#include "runtime/Knobs.h"
#include "runtime/OperatorImpl.h"
#include "llvm/ADT/StringSet.h"
#include <thread>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;
using Gradient = Signature::Gradient;
using SegmentStarts = Signature::SegmentStarts;

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

GradientOf Gradient::names(const Signature &signature, const GradientRequest &request) {
  GradientOf names;
  names.takesSaved = request.takesSaved;
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
    Row row = {*positionOf(signature.op.inputs(), name), "d_" + name, element, {heads / group}, group,
               group == 1 ? element : accumulator};
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

llvm::Expected<std::unique_ptr<Gradient>> Gradient::create(Signature &signature, GradientRequest request,
                                                           const Form &form, bool sideBySide) {
  std::unique_ptr<Gradient> gradient(new Gradient(signature, std::move(request), sideBySide));
  Implementation &impl = *signature.op.implementation;
  std::vector<std::string> inputs;
  {
    std::lock_guard<std::mutex> context(impl.contextMutex);
    DiagnosticText diagnostics(&impl.context);
    OwningOpRef<ModuleOp> specialised = impl.module->clone();
    VariantOp program = *specialised->getOps<VariantOp>().begin();
    if (failed(specialize(program, signature.request.settings)))
      return diagnostics.takeError();
    GradientOf names = gradient->names();
    llvm::Expected<OwningOpRef<ModuleOp>> differentiated = stretto::differentiated(program, names);
    if (!differentiated)
      return differentiated.takeError();
    VariantOp declaration = *(*differentiated)->getOps<VariantOp>().begin();
    if (llvm::Error error = gradient->describe(declaration))
      return error;
    for (const Input &input : signature.op.inputs())
      inputs.push_back(input.name);
    unsigned next = program.getArgNames().size();
    for (bool isGiven : gradient->request.results)
      inputs.push_back(isGiven ? declaration.getArgName(next++).str() : "");
    // Rows that were saved come before results that are taken.
    unsigned firstSaved = declaration.getArgNames().size() - declaration.getSaved().value_or(0);
    for (unsigned row : llvm::seq<unsigned>(firstSaved, declaration.getArgNames().size()))
      inputs.push_back(declaration.getArgName(row).str());
    for (; next < firstSaved; ++next)
      inputs.push_back(declaration.getArgName(next).str());
  }
  if (llvm::Error error = gradient->makeKernels(std::move(inputs), form))
    return error;
  // Those of a forward call that is long enough for two blocks on a multiprocessor, whose kernels are there, or are
  // being compiled. Where nothing is carried but how many tokens there were segments begin with nothing.
  bool beginsWithSomething =
      llvm::any_of(signature.carried, [](StateEntry::Kind kind) { return kind != StateEntry::Kind::Position; });
  if (sideBySide && beginsWithSomething) {
    Form ofForward = {
        .ahead = Knobs::instance().ahead.load(), .outputs = Knobs::instance().outputs.load(), .blocks = 2};
    Keeps keeps = signature.keptByFirst.load().value_or(gradient->statesOfCall ? Keeps::Chunks : Keeps::Segments);
    llvm::Expected<Segments *> ofRecorded = signature.segmentsOf(ofForward, gradient->request.takesSaved,
                                                                 signature.mayKeep(keeps) ? keeps : Keeps::Nothing);
    if (!ofRecorded) {
      llvm::consumeError(ofRecorded.takeError());
      ofRecorded = signature.segmentsOf(ofForward, gradient->request.takesSaved, Keeps::Nothing);
    }
    if (llvm::Error error = std::move(ofRecorded).moveInto(gradient->forwardSegments))
      return error;
  }
  return gradient;
}

void Gradient::divide(const Manifest &manifest) {
  int64_t slices = manifest.slices;
  for (const Manifest::Argument &argument : manifest.arguments) {
    if (argument.kind == Manifest::Kind::Output) {
      auto row = llvm::find_if(rows, [&](const Row &each) { return each.name == argument.name; });
      if (row == rows.end())
        continue; // it is kept
      row->parts *= argument.partial ? slices : 1;
      row->partType = argument.type;
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

std::vector<std::string> Gradient::namesOf(ArrayRef<Checkpoint> checkpoints) {
  std::vector<std::string> names;
  for (const Checkpoint &checkpoint : checkpoints)
    names.push_back(checkpoint.name);
  return names;
}

llvm::Expected<std::shared_ptr<CompiledKernel>> Gradient::compile(KernelRequest::Part part) const {
  KernelRequest request = kernelRequest;
  request.part = part;
  return signature.compile(request);
}

llvm::Error Gradient::makeKernels(std::vector<std::string> inputs, const Form &form) {
  kernelRequest = signature.request;
  kernelRequest.take(form);
  kernelRequest.gradient = names();
  kernelRequest.sideBySide = sideBySide;
  allEntries = entryNames;
  allEntries.reserve(entryNames.size() + signature.state.size());
  for (const EntryShape &entry : signature.state)
    allEntries.push_back(entry.name); // windows are those of the call
  inputNames = std::move(inputs);
  std::vector<std::string> resultNames;
  resultNames.reserve(rows.size());
  for (const Row &row : rows)
    resultNames.push_back(row.name);

  // Which of them there are the form decides.
  using Of = KernelRequest::Part;
  SmallVector<Of> parts = {Of::Gradient, Of::Later, Of::Checkpoints, Of::Rows, Of::Cotangents, Of::Sums, Of::Systems};
  if (sideBySide)
    parts.append({Of::CotangentWrites, Of::CotangentStarts, Of::CotangentTails, Of::SumTurns});
  signature.compileTogether(kernelRequest, parts);
  std::shared_ptr<CompiledKernel> code, ofLater, walkingBack, walking, keepingRows, addingUp, inverting;
  auto compileTo = [&](KernelRequest::Part part, std::shared_ptr<CompiledKernel> &made) -> llvm::Error {
    if (llvm::Error error = compile(part).moveInto(made))
      return error;
    divide(made->manifest);
    for (const Manifest::Argument &argument : made->manifest.arguments)
      if (argument.kind == Manifest::Kind::Checkpoint && !llvm::is_contained(namesOf(ofChunks), argument.name))
        ofChunks.push_back(Checkpoint::of(signature, made->manifest, argument));
    return llvm::Error::success();
  };
  if (llvm::Error error = compileTo(KernelRequest::Part::Gradient, code))
    return error;
  if (code->manifest.earlier)
    if (llvm::Error error = compileTo(KernelRequest::Part::Later, ofLater))
      return error;
  // States of reverse time are checkpoints where another kernel carries them.
  auto isOfReverseTime = [&](StringRef name) { return llvm::is_contained(entryNames, name); };
  if (llvm::any_of(namesOf(ofChunks), isOfReverseTime))
    if (llvm::Error error = compileTo(KernelRequest::Part::Cotangents, walkingBack))
      return error;
  // Rows that are kept: those that kernels ask for beyond the inputs, and those that they leave beyond the results.
  // What neither carries back is added up by a walk of its own, of these or of rows that are kept in any case.
  size_t left = 0;
  std::vector<std::string> asked;
  llvm::StringSet<> carriedBack, keptBack;
  for (const CompiledKernel *walk : {code.get(), ofLater.get(), walkingBack.get()}) {
    if (!walk)
      continue;
    for (const Manifest::Argument &argument : walk->manifest.arguments) {
      bool isResult = llvm::is_contained(resultNames, argument.name);
      left += argument.kind == Manifest::Kind::Output && isResult;
      if (argument.kind == Manifest::Kind::Output && !isResult)
        keptBack.insert(argument.name);
      if (argument.kind == Manifest::Kind::Input && !llvm::is_contained(inputNames, argument.name))
        asked.push_back(argument.name);
      if (argument.kind == Manifest::Kind::State)
        carriedBack.insert(argument.entry);
    }
  }
  // What the results' kernel keeps for those behind it nobody finds before (stretto-keep-with-results); what is left of
  // that is for sums.
  llvm::StringSet<> keptByResults;
  llvm::erase_if(
      asked, [&](const std::string &name) { return keptBack.contains(name) && (keptByResults.insert(name), true); });
  resultsKeepRows = !keptByResults.empty();
  bool keepsForSums = keptBack.size() > keptByResults.size();
  bool addsUpApart =
      keepsForSums || llvm::any_of(entryNames, [&](StringRef entry) { return !carriedBack.contains(entry); });
  if (addsUpApart) {
    if (llvm::Error error = compileTo(KernelRequest::Part::Sums, addingUp))
      return error;
    for (const Manifest::Argument &argument : addingUp->manifest.arguments)
      if (argument.kind == Manifest::Kind::Input && !llvm::is_contained(inputNames, argument.name) &&
          !keptBack.contains(argument.name))
        asked.push_back(argument.name);
  }
  auto noteKeptRows = [&](const Manifest &manifest) {
    for (KeptRow &row : KeptRow::of(manifest, signature.heads, resultNames)) {
      resultNames.push_back(row.name);
      inputNames.push_back(row.name);
      keptRows.push_back(std::move(row));
    }
  };
  // What several kernels multiply by is found before all of them.
  auto findInverses = [&](const CompiledKernel &of) -> llvm::Error {
    bool takesInverses = llvm::any_of(of.manifest.arguments, [](const Manifest::Argument &argument) {
      return argument.kind == Manifest::Kind::Input && StringRef(argument.name).starts_with(inversePrefix);
    });
    if (!takesInverses || inverting)
      return llvm::Error::success();
    if (llvm::Error error = compileTo(KernelRequest::Part::Systems, inverting))
      return error;
    noteKeptRows(inverting->manifest);
    llvm::erase_if(asked, [](StringRef name) { return name.starts_with(inversePrefix); });
    return llvm::Error::success();
  };
  if (llvm::Error error = findInverses(*code))
    return error;
  if (!asked.empty() || left < rows.size() || !llvm::all_of(namesOf(ofChunks), isOfReverseTime)) {
    if (llvm::Error error = compileTo(KernelRequest::Part::Checkpoints, walking))
      return error;
    if (llvm::Error error = findInverses(*walking))
      return error;
    for (const Manifest::Argument &argument : walking->manifest.arguments)
      if (argument.kind == Manifest::Kind::State)
        (isOfReverseTime(argument.entry) ? ofWrites : ofSegments)
            .push_back(Checkpoint::of(signature, walking->manifest, argument));
    noteKeptRows(walking->manifest);
    if (!llvm::all_of(asked, [&](const std::string &name) { return llvm::is_contained(resultNames, name); })) {
      if (llvm::Error error = compileTo(KernelRequest::Part::Rows, keepingRows))
        return error;
      noteKeptRows(keepingRows->manifest);
    }
    bool keepsOnlyStates = llvm::none_of(walking->manifest.arguments, [](const Manifest::Argument &argument) {
      return argument.kind == Manifest::Kind::Output;
    });
    if (keepsOnlyStates && !keepingRows && !resultsKeepRows) {
      KeptStates states = KeptStates::of(signature, walking->manifest, Keeps::Chunks);
      states.tokens *= code->manifest.interval;
      statesOfCall = std::make_shared<const KeptStates>(std::move(states));
    }
  }
  if (resultsKeepRows || addsUpApart)
    noteKeptRows(code->manifest);
  if (addsUpApart && ofLater)
    noteKeptRows(ofLater->manifest);
  auto make = [&](std::shared_ptr<CompiledKernel> &made, std::unique_ptr<Kernel> &kernel) -> llvm::Error {
    if (!made)
      return llvm::Error::success();
    return signature.makeKernel(std::move(made), {inputNames, allEntries, namesOf(ofChunks), resultNames})
        .moveInto(kernel);
  };
  if (llvm::Error error = make(inverting, systems))
    return error;
  if (llvm::Error error = make(walking, checkpoints))
    return error;
  if (llvm::Error error = make(keepingRows, keeping))
    return error;
  if (llvm::Error error = make(walkingBack, cotangents))
    return error;
  if (llvm::Error error = make(ofLater, later))
    return error;
  if (llvm::Error error = make(addingUp, sums))
    return error;
  if (llvm::Error error = make(code, kernel))
    return error;
  auto isReadBy = [](const Checkpoint &state, ArrayRef<const Kernel *> kernels) {
    return llvm::any_of(kernels, [&](const Kernel *each) {
      return each && each->code->manifest.has(Manifest::Kind::Checkpoint, state.name);
    });
  };
  readsStatesInTurns = later && cotangents && llvm::none_of(ofChunks, [&](const Checkpoint &state) {
                         return this->isOfReverseTime(state)
                                    ? isReadBy(state, {kernel.get(), sums.get()})
                                    : isReadBy(state, {cotangents.get(), later.get(), sums.get()});
                       });
  return sideBySide ? makeCotangentStarts() : llvm::Error::success();
}

llvm::Error Gradient::makeCotangentStarts() {
  for (const Kernel *each : all())
    for (const Manifest::Argument &argument : each->code->manifest.arguments)
      if (each->isApart() && argument.kind == Manifest::Kind::State && argument.partial)
        return llvm::createStringError("slices of the values have parts of '" + argument.name + "'");
  const Kernel &walk = cotangents ? *cotangents : *kernel;
  if (!walk.isApart() || !walk.code->manifest.reverse)
    return llvm::Error::success(); // nothing is carried back
  // What only adds up begins with nothing.
  bool addsUp = llvm::none_of(walk.code->manifest.arguments, [&](const Manifest::Argument &argument) {
    if (argument.kind != Manifest::Kind::State)
      return false;
    const Part &entry = entries[llvm::find(entryNames, argument.entry) - entryNames.begin()];
    return entry.of == Part::Of::State && !signature.state[entry.index].isTail;
  });
  if (!signature.carriesStates && addsUp)
    return makeSums({inputNames, allEntries, namesOf(ofChunks)});
  auto requestOf = [&](KernelRequest::Part part) {
    KernelRequest request = kernelRequest;
    request.part = part;
    return request;
  };
  SegmentStarts::Names names = {inputNames, allEntries, namesOf(ofChunks)};
  SmallVector<KernelRequest, 1> walks;
  if (ofWrites.empty())
    walks.push_back(requestOf(KernelRequest::Part::CotangentWrites));
  llvm::Expected<SegmentStarts> starts = SegmentStarts::create(
      signature, walks, requestOf(KernelRequest::Part::CotangentStarts), names, [](StringRef) { return false; });
  if (!starts)
    return starts.takeError();
  cotangentStarts = std::move(*starts);
  llvm::append_range(cotangentStarts->left, ofWrites);
  if (llvm::Error error = SegmentStarts::expectLeft(*cotangentStarts->turns, cotangentStarts->left))
    return error;
  return makeSums(names);
}

llvm::Error Gradient::makeSums(const SegmentStarts::Names &names) {
  auto requestOf = [&](KernelRequest::Part part) {
    KernelRequest request = kernelRequest;
    request.part = part;
    return request;
  };
  const Kernel &last = sums ? *sums : *kernel;
  bool hasTails = false;
  for (const Manifest::Argument &argument : last.code->manifest.arguments) {
    if (!last.isApart() || argument.kind != Manifest::Kind::State || isBegunApart(last, argument.name))
      continue;
    const Part &entry = entries[llvm::find(entryNames, argument.entry) - entryNames.begin()];
    bool isTail = entry.of == Part::Of::State && signature.state[entry.index].isTail;
    hasTails |= isTail;
    if (!isTail)
      ofSums.push_back(SegmentStarts::Kept::of(signature, last.code->manifest, argument));
  }
  std::vector<SegmentStarts::Kept> none;
  if (!ofSums.empty()) {
    if (llvm::Error error =
            SegmentStarts::make(signature, requestOf(KernelRequest::Part::SumTurns), {{}, names.entries, {}}, none)
                .moveInto(sumTurns))
      return error;
    if (llvm::Error error = SegmentStarts::expectLeft(*sumTurns, ofSums))
      return error;
  }
  if (!hasTails)
    return llvm::Error::success();
  return SegmentStarts::make(signature, requestOf(KernelRequest::Part::CotangentTails), names, ofTails)
      .moveInto(cotangentTails);
}

int64_t Gradient::chunksOfTails() const {
  // What is added to earlier rows may be added to rows before these in turn.
  int64_t rows = 0;
  for (const Manifest::Argument &argument : cotangentTails->code->manifest.arguments)
    if (argument.kind == Manifest::Kind::State)
      rows += argument.shape.front();
  return llvm::divideCeil(rows, cotangentTails->code->manifest.chunk);
}

SmallVector<const Operator::Signature::Kernel *, 5> Gradient::all() const {
  SmallVector<const Kernel *, 5> kernels;
  auto add = [&](const std::unique_ptr<Kernel> &each) {
    if (each)
      kernels.push_back(each.get());
  };
  add(systems);
  add(checkpoints);
  add(keeping);
  if (resultsComeFirst())
    add(kernel);
  if (cotangentStarts) {
    for (const std::unique_ptr<Kernel> &walk : cotangentStarts->walks)
      add(walk);
    add(cotangentStarts->turns);
  }
  add(cotangents);
  add(cotangentTails);
  if (!resultsComeFirst())
    add(kernel);
  add(later);
  add(sums);
  add(sumTurns);
  return kernels;
}

std::vector<KernelRequest::Part> Gradient::parts() const {
  std::vector<KernelRequest::Part> parts = {KernelRequest::Part::Gradient};
  if (cotangents)
    parts.push_back(KernelRequest::Part::Cotangents);
  if (systems)
    parts.push_back(KernelRequest::Part::Systems);
  if (checkpoints)
    parts.push_back(KernelRequest::Part::Checkpoints);
  if (keeping)
    parts.push_back(KernelRequest::Part::Rows);
  if (later)
    parts.push_back(KernelRequest::Part::Later);
  if (sums)
    parts.push_back(KernelRequest::Part::Sums);
  return parts;
}

llvm::Expected<Operator::Signature::Kernel *> Gradient::kernelOfSegments() {
  // The kernel that keeps checkpoints may keep all that it carries, as it is.
  bool isKept = llvm::all_of(ofSegments, [&](const Checkpoint &start) { return llvm::is_contained(ofChunks, start); });
  if (isKept)
    return checkpoints.get();
  std::lock_guard<std::mutex> lock(makingSegments);
  if (segmentStarts)
    return segmentStarts.get();
  auto code = compile(KernelRequest::Part::SegmentStarts);
  if (!code)
    return code.takeError();
  if (llvm::Error error = signature.makeKernel(std::move(*code), {inputNames, allEntries, namesOf(ofSegments), {}})
                              .moveInto(segmentStarts))
    return error;
  return segmentStarts.get();
}

//===----------------------------------------------------------------------===//
// The gradient of a call
//===----------------------------------------------------------------------===//

llvm::Expected<Gradient *> Operator::Signature::gradientFor(const OperatorCall &call, const GradientRequest &request,
                                                            int64_t threads) {
  Choice choice = choose(call, threads, &request);
  bool isForced = choice.by == Choice::By::Knob || choice.by == Choice::By::Caller;
  Gradient *segmented = choice.segments == 1 ? nullptr
                        : isForced           ? gradientSideBySide(request, choice.form)
                                             : sideBySideFor(call, request, choice.form);
  if (segmented && (isForced || segmented->fitsSegments(call)))
    return segmented;
  // The model's form is one for segments, where there are to be some.
  bool isForSegments = choice.segments > 1 && (segmented ? !choice.tuned : choice.by == Choice::By::Model);
  Form form = isForSegments ? modelForm(call, threads, /*isOfGradient=*/true) : choice.form;
  llvm::Expected<Gradient *> gradient = gradientOf(request, form);
  if (gradient && choice.segments == 1 && choice.by == Choice::By::Model && (*gradient)->hasSmallChunks(call)) {
    segmented = gradientSideBySide(request, modelForm(call, threads, /*isOfGradient=*/true, Gradient::few));
    if (segmented && segmented->fitsSegments(call))
      return segmented;
  }
  if (segmented && gradient && (*gradient)->workingBytes(call) > segmented->enoughBytes(call) &&
      segmented->workingBytes(call) < (*gradient)->workingBytes(call))
    return segmented;
  if (gradient && !choice.tuned && !isForced)
    return ofLessMemory(*gradient, call, request, form);
  if (gradient || !choice.tuned)
    return gradient;
  forget(call, threads, &request, llvm::toString(gradient.takeError()));
  return gradientOf(request, modelForm(call, threads, /*isOfGradient=*/true));
}

/// Without a gradient's kernels, by its parts where one walk goes back.
Keeps Operator::Signature::likelyKept(const OperatorCall &call, const GradientRequest &request, int64_t threads) {
  if (!mayKeep(Keeps::Chunks) && !mayKeep(Keeps::Segments))
    return Keeps::Nothing;
  Implementation &impl = *op.implementation;
  std::lock_guard<std::mutex> context(impl.contextMutex);
  DiagnosticText diagnostics(&impl.context);
  OwningOpRef<ModuleOp> specialised = impl.module->clone();
  VariantOp program = *specialised->getOps<VariantOp>().begin();
  if (failed(specialize(program, this->request.settings)))
    return Keeps::Nothing; // that is said when it is compiled
  llvm::Expected<OwningOpRef<ModuleOp>> differentiated =
      stretto::differentiated(program, Gradient::names(*this, request));
  if (!differentiated)
    return llvm::consumeError(differentiated.takeError()), Keeps::Nothing;
  constexpr int64_t tokensOfChunk = 64;
  FailureOr<GradientParts> parts = GradientParts::find(*(*differentiated)->getOps<VariantOp>().begin(), tokensOfChunk,
                                                       /*divided=*/false, /*independentChunks=*/false);
  if (failed(parts) || parts->carried.empty())
    return Keeps::Nothing;
  // The gradient of a part of a declaration has two walks where its states are wider.
  constexpr int64_t mostWidthOfPart = 64;
  auto isWide = [](Operation *each) {
    auto root = dyn_cast<StateOp>(each);
    return root && root.getType().getFirstSize() > mostWidthOfPart;
  };
  if (call.gradientBytes && llvm::any_of(parts->carried, isWide))
    return Keeps::Nothing;
  // Those of several states take more than is kept, or are of chunks of fewer tokens than the call's.
  auto isState = [](Operation *each) { return isa<StateOp>(each); };
  if (parts->kept.empty() && parts->forwardResults.empty() && llvm::count_if(parts->carried, isState) == 1)
    return Keeps::Chunks;
  return !call.gradientBytes && choose(call, threads, &request).segments > 1 ? Keeps::Segments : Keeps::Nothing;
}

void Operator::Signature::compileWithGradient(const OperatorCall &call, const GradientRequest &request,
                                              bool keepsStates, int64_t threads) {
  llvm::SmallVector<bool> none(state.size(), false);
  if (device < 0 || items(call) == 0 || isCompiledWithGradient.exchange(true) || resumes(call, request, none))
    return;
  Keeps keeps = keepsStates ? likelyKept(call, request, threads) : Keeps::Nothing;
  keptByFirst = keeps;
  std::thread ofGradient([&] { llvm::consumeError(gradientFor(call, request, threads).takeError()); });
  // Where its gradient turns out not to take what the call keeps, another kernel is compiled when it is first run.
  OperatorCall recorded = call;
  if (mayKeep(keeps))
    recorded.kept = std::make_shared<const KeptStates>(KeptStates{.keeps = keeps});
  llvm::Expected<Operator::Prepared> prepared = Operator::prepare(*this, recorded, threads);
  if (!prepared && recorded.kept) {
    llvm::consumeError(prepared.takeError());
    prepared = Operator::prepare(*this, call, threads);
  }
  llvm::consumeError(prepared.takeError());
  ofGradient.join();
}

Gradient *Operator::Signature::ofLessMemory(Gradient *gradient, const OperatorCall &call,
                                            const GradientRequest &request, Form form) {
  auto isEnough = [&](Gradient *each) { return each->workingBytes(call) <= each->enoughBytes(call); };
  if (device < 0 || form.walks != 0 || isEnough(gradient))
    return gradient;
  Gradient *least = gradient;
  auto takeIfLess = [&]() -> const Manifest * {
    llvm::Expected<Gradient *> other = gradientOf(request, form);
    if (!other)
      return llvm::consumeError(other.takeError()), nullptr;
    least = (*other)->workingBytes(call) < least->workingBytes(call) ? *other : least;
    return &(*other)->lastKernel().code->manifest;
  };
  form.walks = 1;
  const Manifest *found = takeIfLess();
  // Parts that slices leave take memory, too.
  if (!found || isEnough(least) || found->slices == 1)
    return least;
  form.chunk = found->chunk;
  form.slices = 1;
  takeIfLess();
  return least;
}

llvm::Expected<Gradient *> Operator::Signature::gradientOf(const GradientRequest &request, const Form &form) {
  std::lock_guard<std::mutex> lock(makingGradients);
  std::unique_ptr<Gradient> &gradient = gradients[{request, form}];
  if (!gradient)
    if (llvm::Error error = Gradient::create(*this, request, form, /*sideBySide=*/false).moveInto(gradient))
      return error;
  return gradient.get();
}

Gradient *Operator::Signature::gradientSideBySide(const GradientRequest &request, const Form &form,
                                                  std::string *problem) {
  std::lock_guard<std::mutex> lock(makingSideBySide);
  auto [found, isNew] = gradientsSideBySide.try_emplace({request, form});
  SideBySide &known = found->second;
  if (isNew)
    if (llvm::Error error = Gradient::create(*this, request, form, /*sideBySide=*/true).moveInto(known.gradient))
      known.problem = llvm::toString(std::move(error));
  if (problem)
    *problem = known.problem;
  return known.gradient.get();
}

Gradient *Operator::Signature::sideBySideFor(const OperatorCall &call, const GradientRequest &request, Form form) {
  Gradient *found = gradientSideBySide(request, form);
  if (!found || form.walks != 0 || found->walks() == 1 || found->hasOneTurn(call))
    return found;
  form.walks = 1;
  Gradient *withOneWalk = gradientSideBySide(request, form);
  return withOneWalk && withOneWalk->fitsSegments(call) && withOneWalk->hasOneTurn(call) ? withOneWalk : found;
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

llvm::Expected<OwningOpRef<ModuleOp>>
Operator::Signature::declared(llvm::function_ref<void(OpPassManager &)> addPasses) const {
  Implementation &impl = *op.implementation;
  DiagnosticText diagnostics(&impl.context);
  OwningOpRef<ModuleOp> module = impl.module->clone();
  Settings settings = request.settings;
  settings.dims.clear();
  settings.heads.clear();
  PassManager passes(&impl.context);
  addPasses(passes);
  if (failed(specialize(*module->getOps<VariantOp>().begin(), settings)) || failed(passes.run(*module)))
    return diagnostics.takeError();
  return module;
}

llvm::Expected<std::string> Operator::Signature::resumed() const {
  std::lock_guard<std::mutex> context(op.implementation->contextMutex);
  llvm::Expected<OwningOpRef<ModuleOp>> module =
      declared([](OpPassManager &passes) { passes.addNestedPass<VariantOp>(createResume()); });
  if (!module)
    return module.takeError();
  std::string text;
  llvm::raw_string_ostream(text) << **module;
  return text;
}

llvm::Expected<std::string> Operator::Signature::partOfDeclaration(size_t index, bool ofGradient) const {
  std::lock_guard<std::mutex> context(op.implementation->contextMutex);
  llvm::Expected<OwningOpRef<ModuleOp>> module =
      declared([&](OpPassManager &passes) { passes.addPass(createSplitFeatures({features.together && !ofGradient})); });
  if (!module)
    return module.takeError();
  for (auto [number, part] : llvm::enumerate(llvm::to_vector((*module)->getOps<VariantOp>())))
    if (number != index)
      part.erase();
  std::string text;
  llvm::raw_string_ostream(text) << **module;
  return text;
}
