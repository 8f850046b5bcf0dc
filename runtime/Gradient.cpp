//===- Gradient.cpp - The gradient of calls of one signature --------------===//

#include "runtime/Gradient.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"
#include "passes/declaration/KernelNames.h"
#include "passes/declaration/Specialize.h"
#include "runtime/DiagnosticText.h"
#include "runtime/Knobs.h"
#include "runtime/OperatorImpl.h"
#include "runtime/SomeSequences.h"
#include <cmath>
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
  if (sideBySide)
    if (llvm::Error error = signature.segmentsOf(Form()).moveInto(gradient->forwardSegments))
      return error;
  if (llvm::Error error = gradient->makeKernels(std::move(inputs), form))
    return error;
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

Gradient::Checkpoint Gradient::checkpointOf(const Manifest &manifest, const Manifest::Argument &argument) const {
  int64_t size = static_cast<int64_t>(llvm::product_of(argument.shape)) * argument.parts(manifest.slices);
  return {argument.name, std::max<int64_t>(signature.heads / argument.group, 1), size, argument.type};
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
  for (const EntryShape &entry : signature.state)
    stateNames.push_back(entry.name);
  inputNames = std::move(inputs);
  std::vector<std::string> resultNames, entries = entryNames;
  for (const Row &row : rows)
    resultNames.push_back(row.name);
  llvm::append_range(entries, stateNames); // windows are those of the call

  std::shared_ptr<CompiledKernel> code, walkingBack, walking, keepingRows, addingUp, inverting;
  auto compileTo = [&](KernelRequest::Part part, std::shared_ptr<CompiledKernel> &made) -> llvm::Error {
    if (llvm::Error error = compile(part).moveInto(made))
      return error;
    divide(made->manifest);
    for (const Manifest::Argument &argument : made->manifest.arguments)
      if (argument.kind == Manifest::Kind::Checkpoint && !llvm::is_contained(namesOf(ofChunks), argument.name))
        ofChunks.push_back(checkpointOf(made->manifest, argument));
    return llvm::Error::success();
  };
  if (llvm::Error error = compileTo(KernelRequest::Part::Gradient, code))
    return error;
  // States of reverse time are checkpoints where another kernel carries them.
  if (llvm::any_of(namesOf(ofChunks), [&](const std::string &name) { return llvm::is_contained(entryNames, name); }))
    if (llvm::Error error = compileTo(KernelRequest::Part::Cotangents, walkingBack))
      return error;
  // Rows that are kept: those that kernels ask for beyond the inputs, and those that they leave beyond the results.
  size_t left = 0;
  bool keepsForSums = false;
  std::vector<std::string> asked;
  for (const CompiledKernel *walk : {code.get(), walkingBack.get()}) {
    if (!walk)
      continue;
    for (const Manifest::Argument &argument : walk->manifest.arguments) {
      bool isResult = llvm::is_contained(resultNames, argument.name);
      left += argument.kind == Manifest::Kind::Output && isResult;
      keepsForSums |= argument.kind == Manifest::Kind::Output && !isResult;
      if (argument.kind == Manifest::Kind::Input && !llvm::is_contained(inputNames, argument.name))
        asked.push_back(argument.name);
    }
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
  if (!asked.empty() || left < rows.size() || !ofChunks.empty()) {
    if (llvm::Error error = compileTo(KernelRequest::Part::Checkpoints, walking))
      return error;
    if (llvm::Error error = findInverses(*walking))
      return error;
    for (const Manifest::Argument &argument : walking->manifest.arguments)
      if (argument.kind == Manifest::Kind::State)
        ofSegments.push_back(checkpointOf(walking->manifest, argument));
    noteKeptRows(walking->manifest);
    if (!llvm::all_of(asked, [&](const std::string &name) { return llvm::is_contained(resultNames, name); })) {
      if (llvm::Error error = compileTo(KernelRequest::Part::Rows, keepingRows))
        return error;
      noteKeptRows(keepingRows->manifest);
    }
  }
  if (keepsForSums) {
    noteKeptRows(code->manifest);
    if (llvm::Error error = compileTo(KernelRequest::Part::Sums, addingUp))
      return error;
  }
  auto make = [&](std::shared_ptr<CompiledKernel> &made, const std::vector<std::string> &states,
                  std::unique_ptr<Kernel> &kernel) -> llvm::Error {
    if (!made)
      return llvm::Error::success();
    return signature.makeKernel(std::move(made), {inputNames, states, namesOf(ofChunks), resultNames}).moveInto(kernel);
  };
  if (llvm::Error error = make(inverting, stateNames, systems))
    return error;
  if (llvm::Error error = make(walking, stateNames, checkpoints))
    return error;
  if (llvm::Error error = make(keepingRows, stateNames, keeping))
    return error;
  if (llvm::Error error = make(walkingBack, entries, cotangents))
    return error;
  if (llvm::Error error = make(addingUp, entries, sums))
    return error;
  if (llvm::Error error = make(code, entries, kernel))
    return error;
  return sideBySide ? makeCotangentStarts(entries) : llvm::Error::success();
}

llvm::Error Gradient::makeCotangentStarts(const std::vector<std::string> &allEntries) {
  for (const Kernel *each : all())
    for (const Manifest::Argument &argument : each->code->manifest.arguments)
      if (each->isApart() && argument.kind == Manifest::Kind::State && argument.partial)
        return llvm::createStringError("slices of the values have parts of '" + argument.name + "'");
  const Kernel &walk = cotangents ? *cotangents : *kernel;
  if (!walk.isApart() || !walk.code->manifest.reverse)
    return llvm::Error::success(); // nothing is carried back
  auto requestOf = [&](KernelRequest::Part part) {
    KernelRequest request = kernelRequest;
    request.part = part;
    return request;
  };
  SegmentStarts::Names names = {inputNames, allEntries, namesOf(ofChunks)};
  llvm::Expected<SegmentStarts> starts =
      SegmentStarts::create(signature, requestOf(KernelRequest::Part::CotangentWrites),
                            requestOf(KernelRequest::Part::CotangentStarts), names, [](StringRef) { return false; });
  if (!starts)
    return starts.takeError();
  cotangentStarts = std::move(*starts);
  return cotangents ? makeSums(names) : llvm::Error::success();
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
    if (!last.isApart() || argument.kind != Manifest::Kind::State)
      continue;
    const Part &entry = entries[llvm::find(entryNames, argument.entry) - entryNames.begin()];
    bool isTail = entry.of == Part::Of::State && signature.state[entry.index].isTail;
    hasTails |= isTail;
    if (!isTail)
      ofSums.push_back(SegmentStarts::Kept::of(signature, last.code->manifest, argument));
  }
  std::vector<SegmentStarts::Kept> none;
  if (!ofSums.empty())
    if (llvm::Error error =
            SegmentStarts::make(signature, requestOf(KernelRequest::Part::SumTurns), {{}, names.entries, {}}, none)
                .moveInto(sumTurns))
      return error;
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
  if (cotangentStarts) {
    add(cotangentStarts->walk);
    add(cotangentStarts->turns);
  }
  add(cotangents);
  add(cotangentTails);
  add(kernel);
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
  if (llvm::Error error = signature.makeKernel(std::move(*code), {inputNames, stateNames, namesOf(ofSegments), {}})
                              .moveInto(segmentStarts))
    return error;
  return segmentStarts.get();
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

Gradient::CheckpointCounts Gradient::checkpointCounts(const OperatorCall &call, Division division) const {
  bool beginsAtCheckpoints = division.count() > 1 && !sideBySide && !walksForwardFirst();
  return {.ofLong = division.isNested() ? checkpointCount(call, division.chunks, division.ofLong) : 0,
          .ofSegments = beginsAtCheckpoints ? checkpointCount(call, division.ofLong, division.length) : 0,
          .ofChunks = checkpointCount(call, division.length, /*interval=*/1)};
}

int64_t Gradient::placesOfCotangents(const OperatorCall &call, Division division) const {
  return SegmentStarts::placesOf(signature, call, *kernel, division.length, division.apart);
}

Signature::Segments::Division Gradient::forwardDivision(const OperatorCall &call, Division division) const {
  return forwardSegments->divideInto(call, division.apart * kernel->code->manifest.chunk);
}

int64_t Gradient::bytesOfForwardStarts(const OperatorCall &call, Division division) const {
  return forwardWalk() ? forwardSegments->bytesBegun(call, forwardDivision(call, division)) : 0;
}

int64_t Gradient::checkpointBytes(const OperatorCall &call, Division division) const {
  CheckpointCounts counts = checkpointCounts(call, division);
  int64_t bytes = 0;
  for (const Checkpoint &checkpoint : ofSegments)
    bytes += checkpoint.bytes(counts.ofLong) + checkpoint.bytes(counts.ofSegments);
  for (const Checkpoint &checkpoint : ofChunks)
    bytes += checkpoint.bytes(counts.ofChunks);
  if (!sideBySide)
    return bytes;
  if (cotangentStarts) {
    int64_t places = placesOfCotangents(call, division);
    for (ArrayRef<SegmentStarts::Kept> kept :
         {ArrayRef(cotangentStarts->left), ArrayRef(cotangentStarts->begun), ArrayRef(ofTails), ArrayRef(ofSums)})
      bytes += SegmentStarts::bytes(kept, places);
  }
  // What finds where segments begin forwards is there before all else.
  if (forwardWalk())
    bytes = std::max(bytes, forwardSegments->bytesLeft(call, forwardDivision(call, division)));
  return bytes + bytesOfForwardStarts(call, division);
}

Gradient::Division Gradient::divide(const OperatorCall &call, int64_t turns, int64_t sideBySideSegments) const {
  const Manifest &manifest = kernel->code->manifest;
  int64_t chunks = std::max<int64_t>(llvm::divideCeil(signature.rowOf(call).sizes[1], manifest.chunk), 1);
  int64_t length = llvm::divideCeil(chunks, turns);
  int64_t sequences = signature.sequences(call);
  if (!sideBySide)
    return {sequences, chunks, length};
  // Segments begin with chunks of the operator, too.
  int64_t ofOperator = std::max<int64_t>(forwardSegments->lastKernel().code->manifest.chunk / manifest.chunk, 1);
  int64_t apart = llvm::alignTo(llvm::divideCeil(length, sideBySideSegments), ofOperator);
  return {sequences, chunks, static_cast<int64_t>(llvm::alignTo(length, apart)), apart};
}

bool Gradient::fitsSegments(const OperatorCall &call) const {
  Division division = divisionOf(call);
  return division.apart < division.length && workingBytes(call, division) <= enoughBytes(call);
}

bool Gradient::walksForwardFirst() const {
  if (!ofChunks.empty() || keeping || !kernel->code->manifest.reverse)
    return false;
  return !checkpoints || llvm::none_of(checkpoints->code->manifest.arguments, [&](const Manifest::Argument &argument) {
    return argument.kind == Manifest::Kind::Output &&
           llvm::any_of(rows, [&](const Row &row) { return row.name == argument.name && row.parts > 1; });
  });
}

int64_t Gradient::mostSideBySide(const OperatorCall &call) const {
  if (!sideBySide)
    return 1;
  if (int64_t forced = Knobs::instance().segments)
    return forced;
  const Manifest &manifest = kernel->code->manifest;
  int64_t idle = signature.multiprocessors / std::max<int64_t>(signature.items(call) * manifest.slices, 1);
  return std::max<int64_t>(std::min(idle, signature.rowOf(call).sizes[1] / (manifest.chunk * fewestChunks)), 1);
}

int64_t Gradient::enoughBytes(const OperatorCall &call) const {
  int64_t largest = 0;
  for (auto [input, view] : llvm::zip_equal(signature.op.inputs(), call.arguments))
    if (view && !input.isParameter)
      largest = std::max(largest, static_cast<int64_t>(llvm::product_of(view->sizes)) * bytesOf(*view->type));
  return 2 * largest;
}

const Signature::Kernel &Gradient::walkBack() const { return cotangents ? *cotangents : *kernel; }

int64_t Gradient::blocksAtOnce() const {
  if (signature.device < 0)
    return std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  std::call_once(countingBlocks, [&] {
    llvm::Expected<int64_t> blocks = walkBack().code->cuda->residentBlocks(signature.device);
    if (!blocks)
      llvm::consumeError(blocks.takeError()); // that it cannot be loaded is said when it is launched
    blocksOfMachine = signature.multiprocessors * std::max<int64_t>(blocks ? *blocks : 1, 1);
  });
  return blocksOfMachine;
}

int64_t Gradient::mostSequences(const OperatorCall &call, Division division) const {
  if (workingBytes(call, division) <= enoughBytes(call))
    return division.sequences;
  // Packed sequences lie in one.
  if (call.sequenceOffsets)
    return 0;
  int64_t all = std::exchange(division.sequences, 1);
  return std::min(enoughBytes(call) / workingBytes(call, division), all - 1);
}

int64_t Gradient::sequencesFillingTurns(const OperatorCall &call, int64_t most) const {
  int64_t all = signature.sequences(call), atOnce = blocksAtOnce();
  auto timeOf = [&](int64_t count) -> int64_t {
    int64_t blocks = count * signature.heads * walkBack().code->manifest.slices;
    return llvm::divideCeil(all, count) * llvm::divideCeil(blocks, atOnce);
  };
  while (most > 0 && timeOf(most) > timeOf(all))
    --most;
  return most;
}

Gradient::Division Gradient::divisionOf(const OperatorCall &call) const {
  Division division = divideSequences(call);
  if (int64_t forced = Knobs::instance().sequences; forced && !call.sequenceOffsets)
    division.sequences = std::min(forced, signature.sequences(call));
  return division;
}

/// As many segments side by side as there are multiprocessors for, in as few turns as memory allows.
Gradient::Division Gradient::divideSequences(const OperatorCall &call) const {
  int64_t most = mostSideBySide(call);
  bool isForced = sideBySide && Knobs::instance().segments;
  Division whole = divide(call, 1, most);
  int64_t mostTurns = ofChunks.empty() && !walksForwardFirst() ? 1 : whole.chunks;
  if (int64_t length = Knobs::instance().segment; length && mostTurns > 1) {
    int64_t turns = llvm::divideCeil(whole.chunks, length);
    Division division = divide(call, turns, llvm::divideCeil(most, isForced ? turns : 1));
    if (int64_t ofLong = Knobs::instance().longSegment; ofLong && !sideBySide && !ofChunks.empty())
      division.ofLong = std::min(ofLong * division.length, division.chunks);
    return division;
  }
  Division best = whole;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t beside = most; beside >= 1; beside = beside * 3 / 4) {
    // Each launch of few chunks takes its time: 1, 2, 3, 4, 6, 8, 12, ... are near enough to the fewest.
    for (int64_t turns = 1; turns <= mostTurns; turns += std::max<int64_t>(llvm::bit_floor<uint64_t>(turns) / 2, 1)) {
      Division division = divide(call, turns, isForced ? llvm::divideCeil(beside, turns) : beside);
      if (beside > 1 && !isForced && division.apart < fewestChunks)
        break;
      if (int64_t count = sequencesFillingTurns(call, mostSequences(call, division))) {
        division.sequences = count;
        return division;
      }
      if (int64_t bytes = workingBytes(call, division); bytes < least) {
        least = bytes;
        best = division;
      }
    }
  }
  // Starts of long segments, and of those that one of these consists of, want one more walk.
  if (!sideBySide && !ofChunks.empty())
    for (int64_t turns = 4; turns <= mostTurns; turns += llvm::bit_floor<uint64_t>(turns) / 4) {
      Division division = divide(call, turns, /*sideBySideSegments=*/1);
      division.ofLong = division.length * static_cast<int64_t>(std::ceil(std::sqrt(division.count())));
      if (int64_t count = sequencesFillingTurns(call, mostSequences(call, division))) {
        division.sequences = count;
        return division;
      }
      if (int64_t bytes = workingBytes(call, division); bytes < least) {
        least = bytes;
        best = division;
      }
    }
  // Memory is scarcer than time is.
  best.sequences = std::max<int64_t>(mostSequences(call, best), call.sequenceOffsets ? best.sequences : 1);
  return best;
}

int64_t Gradient::tokensOfParts(const OperatorCall &call, Division division) const {
  // Of packed sequences the first is as long as there are tokens, or each has a segment.
  int64_t sequences = call.sequenceOffsets ? signature.sequences(call) : 1;
  return std::min(signature.rowOf(call).sizes[1], sequences * division.length * kernel->code->manifest.chunk);
}

int64_t Gradient::bytesOfParts(const OperatorCall &call, Division division) const {
  int64_t tokens = signature.rowOf(call).sizes[0] * tokensOfParts(call, division), bytes = 0;
  for (const Row &row : rows)
    bytes += row.bytesOfParts(tokens);
  return bytes;
}

int64_t Gradient::workingBytes(const OperatorCall &call, Division division) const {
  if (division.sequences < signature.sequences(call)) {
    SomeSequences some(signature.op, call, /*first=*/0, division.sequences);
    return workingBytes(some.call(), division);
  }
  return checkpointBytes(call, division) + bytesOfParts(call, division);
}

int64_t Gradient::keptBytes(const OperatorCall &call, Division division) const {
  ArrayRef<int64_t> sizes = signature.rowOf(call).sizes;
  int64_t tokens = (call.sequenceOffsets ? sizes[0] : division.sequences) * sizes[1], bytes = 0;
  for (const KeptRow &kept : keptRows)
    bytes += kept.bytes(tokens);
  return bytes;
}

int64_t Gradient::workingBytes(const OperatorCall &call) const { return workingBytes(call, divisionOf(call)); }

int64_t Gradient::workspaceBytes(const OperatorCall &call) const {
  Division division = divisionOf(call);
  return workingBytes(call, division) + keptBytes(call, division);
}

//===----------------------------------------------------------------------===//
// The gradient of a call
//===----------------------------------------------------------------------===//

llvm::Expected<Gradient *> Operator::Signature::gradientFor(const OperatorCall &call, const GradientRequest &request,
                                                            int64_t threads) {
  Choice choice = choose(call, threads, &request);
  Gradient *segmented = choice.segments > 1 ? gradientSideBySide(request, choice.form) : nullptr;
  bool isForced = choice.by == Choice::By::Knob || choice.by == Choice::By::Caller;
  if (segmented && (isForced || segmented->fitsSegments(call)))
    return segmented;
  Form form = segmented && !choice.tuned ? modelForm(call, threads, /*isOfGradient=*/true) : choice.form;
  llvm::Expected<Gradient *> gradient = gradientOf(request, form);
  if (segmented && gradient && (*gradient)->workingBytes(call) > segmented->enoughBytes(call) &&
      segmented->workingBytes(call) < (*gradient)->workingBytes(call))
    return segmented;
  if (gradient || !choice.tuned)
    return gradient;
  forget(call, threads, &request, llvm::toString(gradient.takeError()));
  return gradientOf(request, modelForm(call, threads, /*isOfGradient=*/true));
}

llvm::Expected<Gradient *> Operator::Signature::gradientOf(const GradientRequest &request, const Form &form) {
  std::lock_guard<std::mutex> lock(mutex);
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
