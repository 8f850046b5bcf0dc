//===- Segments.cpp - Segments of sequences, side by side -----------------===//

#include "runtime/Segments.h"
#include "dialect/kernel/Chip.h"
#include "runtime/KeptStates.h"
#include "runtime/Knobs.h"
#include "runtime/WholeWalks.h"

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;
using SegmentStarts = Signature::SegmentStarts;
using Part = KernelRequest::Part;

//===----------------------------------------------------------------------===//
// How many
//===----------------------------------------------------------------------===//

/// Of a GPU as many as fill the chip once. What segments do to states is found by walking over most inputs once more:
/// two segments would gain nothing, and short ones would wait for launches (docs/performance.md).
/// Segments of fewer tokens are not worth what it takes to find their starts, one after the other, but for a few.
static constexpr int64_t tokensOfSegment = 512, tokensOfFew = 256, few = 8;
static constexpr int64_t fewest = 3;
/// Where nothing is carried but rows that convolutions look back to, only the chunk before a segment is read anew: at
/// most as many as fill the chip several times.
static constexpr int64_t blocksWithoutStates = 16, tokensWithoutStates = 256;
/// Where states feed back, there is one walk more, and a product of matrices for each start.
static constexpr int64_t fewestFedBack = 8, mostFedBack = 32;

int64_t Signature::mostSegments() const { return feedsBack ? mostFedBack : std::numeric_limits<int64_t>::max(); }

int64_t Signature::segmentsFor(const OperatorCall &call, bool isOfGradient) const {
  if (isStep() || !serialBecause.empty())
    return 1;
  if (int64_t count = Knobs::instance().segments)
    return count;
  int64_t parallel = std::max<int64_t>(items(call), 1);
  int64_t length = tokensOfSequence(call);
  // Chunks of what carries nothing are independent as they are.
  if (!carriesStates && !isOfGradient && !llvm::is_contained(carried, StateEntry::Kind::Tail))
    return 1;
  if (!carriesStates)
    return std::max<int64_t>(std::min(blocksWithoutStates * multiprocessors / parallel, length / tokensWithoutStates),
                             1);
  int64_t ofChip = multiprocessors / parallel, ofLength = length / tokensOfSegment;
  if (!feedsBack)
    ofLength = std::max(ofLength, std::min(few, length / tokensOfFew));
  int64_t count = std::min({ofChip, ofLength, mostSegments()});
  if (count < (feedsBack ? fewestFedBack : fewest) || (!isOfGradient && isSoonerInSlices(call, count)))
    return 1;
  return count;
}

bool Signature::isSoonerInSlices(const OperatorCall &call, int64_t segments) const {
  // What few heads take was not measured, nor what states do that no warpgroup holds, or whose slices are narrower than
  // fragments of matrices.
  constexpr int64_t fewestItems = 16, mostWidth = 128, fewestColumns = 16, tokensOfChunk = 64;
  if (!weightOfTurn || items(call) < fewestItems || state.empty())
    return false;
  const kernel::Chip *chip = kernel::Chip::find(request.target.name);
  // Beside the values a state may have the column of a normaliser.
  ArrayRef<int64_t> sizes = ArrayRef(state.front().sizes).take_back(2);
  if (!chip || !chip->hasWarpgroups || sizes.size() != 2 || sizes[0] > mostWidth || sizes[1] > mostWidth + 1)
    return false;
  int64_t columns = sizes[1] / slicesFor(call, /*threads=*/1, /*segments=*/1);
  int64_t chunks = llvm::divideCeil(tokensOfSequence(call), tokensOfChunk);
  return columns >= fewestColumns && walksWholeSooner(*weightOfTurn, sizes[0], columns, chunks, segments);
}

/// Tokens of a sequence; of a packed batch on average.
int64_t Signature::tokensOfSequence(const OperatorCall &call) const {
  return rowOf(call).sizes[0] * rowOf(call).sizes[1] / std::max<int64_t>(sequences(call), 1);
}

int64_t Signature::blocksOfMultiprocessor(const OperatorCall &call, int64_t segments) const {
  if (isStep() || Knobs::instance().segments)
    return 1;
  int64_t blocks = items(call);
  if (segments > 1)
    blocks *= std::min(2 * segments, tokensOfSequence(call) / tokensOfSegment);
  // Three quarters of two for each.
  return 2 * blocks >= 3 * multiprocessors ? 2 : 1;
}

Signature::Segments::Division Signature::Segments::divide(const OperatorCall &call, int64_t count) const {
  if (signature.carriesStates)
    count = std::max(count, std::min({count * blocksOfMultiprocessor,
                                      signature.tokensOfSequence(call) / tokensOfSegment, signature.mostSegments()}));
  int64_t chunk = results->code->manifest.chunk, sequences = std::max<int64_t>(signature.sequences(call), 1);
  int64_t all = signature.rowOf(call).sizes[0] * signature.rowOf(call).sizes[1];
  auto chunksOf = [&](int64_t tokens) {
    return std::max<int64_t>(static_cast<int64_t>(llvm::divideCeil(tokens, chunk)), 1);
  };
  // Packed sequences are as long as others on average; the longest of them may have all tokens.
  int64_t ofEach = chunksOf(llvm::divideCeil(all, sequences));
  if (!signature.carriesStates && results->code->cuda && !Knobs::instance().segments)
    count = segmentsOfLeastTime(signature.items(call) * results->code->manifest.slices, ofEach,
                                signature.multiprocessors * blocksOfMultiprocessor, count);
  return {chunksOf(signature.tokens(call)), static_cast<int64_t>(llvm::divideCeil(ofEach, std::min(ofEach, count)))};
}

Signature::Segments::Division Signature::Segments::divideInto(const OperatorCall &call, int64_t tokens) const {
  int64_t chunk = results->code->manifest.chunk;
  assert(tokens % chunk == 0 && "segments begin with chunks");
  return {std::max<int64_t>(llvm::divideCeil(signature.tokens(call), chunk), 1), tokens / chunk};
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Whether one of what is kept has a name.
static bool hasName(ArrayRef<SegmentStarts::Kept> kept, StringRef name) {
  return llvm::any_of(kept, [&](const SegmentStarts::Kept &each) { return each.name == name; });
}

llvm::Expected<std::unique_ptr<Signature::Segments>>
Signature::Segments::create(const Signature &signature, const Form &form, bool savesRows, Keeps keeps) {
  std::unique_ptr<Segments> made(new Segments(signature));
  KernelRequest request = signature.request;
  request.take(form);
  SegmentStarts::Names names;
  for (const Input &input : signature.op.inputs())
    names.inputs.push_back(input.name);
  for (const EntryShape &entry : signature.state)
    names.entries.push_back(entry.name);
  auto requestOf = [&](Part part) {
    request.part = part;
    request.keeps = part == Part::Apart ? keeps : Keeps::Nothing;
    request.savesRows = part == Part::Apart && savesRows;
    return request;
  };
  auto has = [&](StateEntry::Kind kind) { return llvm::is_contained(signature.carried, kind); };
  SmallVector<Part> walks;
  if (signature.feedsBack)
    walks.push_back(Part::Transitions);
  if (signature.carriesStates)
    walks.push_back(Part::Writes);
  SmallVector<Part> parts = {Part::Apart};
  if (!walks.empty())
    parts.push_back(Part::Starts);
  llvm::append_range(parts, walks);
  if (signature.solvesSystems())
    parts.push_back(Part::SegmentSystems);
  if (has(StateEntry::Kind::Tail))
    parts.push_back(Part::Tails);
  if (has(StateEntry::Kind::Scan))
    parts.append({Part::Totals, Part::TotalStarts});
  request.keeps = keeps;
  request.savesRows = savesRows;
  signature.compileTogether(request, parts);
  llvm::Expected<std::shared_ptr<CompiledKernel>> code = signature.compile(requestOf(Part::Apart));
  if (!code)
    return code.takeError();
  if (llvm::Error error = signature
                              .makeSystems(requestOf(Part::SegmentSystems), (*code)->manifest,
                                           {names.inputs, names.entries, names.checkpoints, {}})
                              .moveInto(made->systems))
    return error;
  for (const KeptRow &row : made->systems.inverses)
    names.inputs.push_back(row.name);
  std::vector<SegmentStarts::Kept> states;
  KeptStates kept = KeptStates::of(signature, (*code)->manifest, keeps);
  SegmentStarts::Names ofResults = names;
  ofResults.checkpoints = kept.names();
  if (llvm::Error error =
          SegmentStarts::make(signature, requestOf(Part::Apart), ofResults, states).moveInto(made->results))
    return error;
  if (keeps != Keeps::Nothing)
    made->results->keeps = std::make_shared<const KeptStates>(std::move(kept));
  if (const Manifest &manifest = (*code)->manifest; manifest.expects) {
    std::vector<SegmentStarts::Kept> alike;
    if (llvm::Error error =
            SegmentStarts::make(signature, requestOf(Part::Apart).ofLeft(manifest.chunk, manifest.slices), ofResults,
                                alike)
                .moveInto(made->results->ofLeft))
      return error;
  }
  if (has(StateEntry::Kind::Tail))
    if (llvm::Error error =
            SegmentStarts::make(signature, requestOf(Part::Tails), names, made->ofTails).moveInto(made->tails))
      return error;
  // What a walk begins with may be known before.
  auto isKnown = [&](StringRef name) {
    return hasName(made->ofTails, name) ||
           llvm::any_of(made->passes, [&](const SegmentStarts &before) { return hasName(before.begun, name); });
  };
  auto add = [&](ArrayRef<Part> walks, Part turns) -> llvm::Error {
    llvm::Expected<SegmentStarts> starts =
        SegmentStarts::create(signature, llvm::map_to_vector<2>(walks, requestOf), requestOf(turns), names, isKnown);
    if (!starts)
      return starts.takeError();
    made->passes.push_back(std::move(*starts));
    return llvm::Error::success();
  };
  if (has(StateEntry::Kind::Scan))
    if (llvm::Error error = add(Part::Totals, Part::TotalStarts))
      return error;
  if (!walks.empty())
    if (llvm::Error error = add(walks, Part::Starts))
      return error;
  // Where little is computed, memory is what blocks wait for, and more of them would only have more states to move.
  constexpr int64_t worthTwoBlocks = 450;
  bool hasUse = form.blocks > 1 && made->results->code->manifest.work >= worthTwoBlocks;
  if (const auto &cuda = made->results->code->cuda; cuda && (hasUse || !signature.carriesStates)) {
    llvm::Expected<int64_t> blocks = cuda->residentBlocks(signature.device);
    if (!blocks)
      return blocks.takeError();
    made->blocksOfMultiprocessor =
        std::max<int64_t>(signature.carriesStates ? std::min(*blocks, form.blocks) : *blocks, 1);
  }
  return made;
}

llvm::Expected<Signature::Segments *> Signature::segmentsOf(const Form &form, bool savesRows, Keeps keeps) {
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Segments> &made = segmented[{form, savesRows, keeps}];
  if (!made)
    if (llvm::Error error = Segments::create(*this, form, savesRows, keeps).moveInto(made)) {
      keepsInVain = keepsInVain || keeps != Keeps::Nothing;
      return error;
    }
  return made.get();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

int64_t Signature::Segments::placesOf(const OperatorCall &call, Division division) const {
  return SegmentStarts::placesOf(signature, call, *results, division.chunks, division.length);
}

int64_t Signature::Segments::bytesBegun(const OperatorCall &call, Division division) const {
  int64_t places = placesOf(call, division), bytes = SegmentStarts::bytes(ofTails, places);
  for (const SegmentStarts &pass : passes)
    bytes += SegmentStarts::bytes(pass.begun, places);
  return bytes;
}

int64_t Signature::Segments::bytesLeft(const OperatorCall &call, Division division) const {
  int64_t places = placesOf(call, division), bytes = 0;
  for (const SegmentStarts &pass : passes)
    bytes += SegmentStarts::bytes(pass.left, places);
  return bytes + systems.bytes(signature, call);
}

int64_t Signature::Segments::itemsOfResults(const OperatorCall &call, Division division) const {
  return itemsOf(results->code->manifest, signature, call, rangeOf(division));
}

int64_t Signature::Segments::workspaceBytes(const OperatorCall &call, int64_t count) const {
  Division division = divide(call, count);
  return bytesBegun(call, division) + bytesLeft(call, division) + results->bytesOfLeft(itemsOfResults(call, division));
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

int64_t Signature::Segments::chunksOfTails() const {
  // Rows that are looked back to may look back in turn.
  const Manifest &manifest = tails->code->manifest;
  int64_t rows = 0;
  for (const Manifest::Argument &argument : manifest.arguments)
    if (argument.kind == Manifest::Kind::State)
      rows += argument.shape.front();
  return llvm::divideCeil(rows, manifest.chunk);
}

LaunchTensors Signature::Segments::tensorsOf(const OperatorCall &call, const SegmentStarts::Places &begun,
                                             const LentRows &inverses) const {
  LaunchTensors tensors;
  tensors.addInputs(call);
  for (const TensorView &inverse : inverses.views)
    tensors.inputs.push_back(&inverse);
  for (auto [index, strides] : llvm::enumerate(signature.stateStrides))
    tensors.entries.push_back(
        {.initial = call.initialState.empty() ? nullptr : call.initialState[index].data, .strides = strides});
  tensors.segmentStarts = begun;
  return tensors;
}

LaunchSegment Signature::Segments::rangeOf(Division division) const {
  return {.chunks = division.chunks,
          .intervalOfStarts = division.length,
          .chunksPlaced = division.chunks,
          .apart = division.count()};
}

llvm::Expected<SegmentStarts::Places> Signature::Segments::findStarts(const OperatorCall &call, Division division,
                                                                      char *begun, char *left, LentRows &inverses,
                                                                      const Executor &executor) {
  int64_t places = placesOf(call, division);
  SegmentStarts::Places known;
  LaunchSegment range = rangeOf(division);
  LaunchTensors ofCall = tensorsOf(call, known, inverses);
  if (llvm::Error error = findInverses(signature, systems, call, ofCall, left, inverses, executor))
    return error;
  left += systems.bytes(signature, call);
  if (tails && range.apart > 1) {
    LaunchTensors tensors = tensorsOf(call, known, inverses);
    tensors.entries.resize(tensors.entries.size() + tails->code->manifest.arguments.size());
    tensors.segmentEnds = SegmentStarts::lend(ofTails, places, begun);
    LaunchSegment before = range;
    before.before = chunksOfTails();
    if (llvm::Error error = launch(signature, *tails, call, tensors, before, executor))
      return error;
    llvm::append_range(known, tensors.segmentEnds);
  }
  // Nothing begins with what the last segment leaves.
  range.apart = division.count() - 1;
  if (range.apart == 0)
    return known;
  for (SegmentStarts &pass : passes) {
    SegmentStarts::Places ends = SegmentStarts::lend(pass.left, places, left);
    SegmentStarts::Places starts = SegmentStarts::lend(pass.begun, places, begun);
    if (llvm::Error error = pass.find(signature, call, tensorsOf(call, known, inverses), range, ends, starts, executor))
      return error;
    llvm::append_range(known, starts);
  }
  return known;
}

llvm::Error Signature::Segments::run(const OperatorCall &call, int64_t count, ArrayRef<TensorView> resultViews,
                                     ArrayRef<TensorView> finalState, void *workspace, const Executor &executor) {
  Division division = divide(call, count);
  char *begun = static_cast<char *>(workspace);
  LentRows inverses;
  llvm::Expected<SegmentStarts::Places> starts =
      findStarts(call, division, begun, begun + bytesBegun(call, division), inverses, executor);
  if (!starts)
    return starts.takeError();
  LaunchTensors tensors = tensorsOf(call, *starts, inverses);
  tensors.left = begun + bytesBegun(call, division) + bytesLeft(call, division);
  tensors.results = resultViews;
  LaunchSegment range = rangeOf(division);
  if (results->keeps) {
    tensors.checkpoints = call.kept->placesIn(call.states, call, signature);
    range.interval = call.kept->tokens / results->keeps->tokens;
  }
  for (auto [entry, final] : llvm::zip(tensors.entries, finalState))
    entry.final = final.data;
  return launch(signature, *results, call, tensors, range, executor);
}

//===----------------------------------------------------------------------===//
// Explaining
//===----------------------------------------------------------------------===//

void Signature::Segments::explain(llvm::json::OStream &json, const OperatorCall &call, int64_t wanted) const {
  Division division = divide(call, wanted);
  json.attribute("schedule", "segmented");
  json.attribute("segments", division.count());
  json.attribute("chunks_of_a_segment", division.length);
  json.attributeArray("kernels", [&] {
    SmallVector<const Kernel *> kernels;
    if (results->ofLeft)
      kernels.push_back(results->ofLeft.get());
    kernels.push_back(results.get());
    for (const SegmentStarts &pass : llvm::reverse(passes)) {
      kernels.push_back(pass.turns.get());
      for (const std::unique_ptr<Kernel> &walk : llvm::reverse(pass.walks))
        kernels.push_back(walk.get());
    }
    for (const Kernel *before : {tails.get(), systems.kernel.get()})
      if (before)
        kernels.push_back(before);
    for (const Kernel *kernel : llvm::reverse(kernels))
      explainKernel(json, *kernel);
  });
  json.attribute("workspace_bytes", workspaceBytes(call, wanted));
}
