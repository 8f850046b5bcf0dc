//===- LaunchGradient.cpp - Running the gradient of a call ----------------===//

#include "runtime/CudaDriver.h"
#include "runtime/Gradient.h"
#include "runtime/Launch.h"
#include "runtime/SomeSequences.h"
#include <utility>

using namespace mlir;
using namespace stretto;

using Gradient = Operator::Signature::Gradient;
using SegmentStarts = Operator::Signature::SegmentStarts;

namespace stretto {

/// The launches of a gradient, of all sequences or some: the workspace divided, and the tensors of both kernels.
class GradientLauncher {
public:
  GradientLauncher(Gradient &gradient, const OperatorCall &call, const GradientCall &gradientCall,
                   const Executor &executor, Gradient::Division division)
      : gradient(gradient), signature(gradient.signature), call(call), gradientCall(gradientCall), executor(executor),
        division(division), next(static_cast<char *>(gradientCall.workspace)) {
    auto counts = gradient.checkpointCounts(call, division);
    // What finds where segments begin forwards is there before checkpoints are.
    forwardBegun = lend(gradient.bytesOfForwardStarts(call, division));
    forwardLeft = next;
    char *behind = next + gradient.checkpointBytes(call, division) - gradient.bytesOfForwardStarts(call, division);
    ofLong = lendCheckpoints(gradient.ofSegments, counts.ofLong);
    ofSegments = lendCheckpoints(gradient.ofSegments, counts.ofSegments);
    lendChunks(counts.ofChunks);
    if (gradient.sideBySide) {
      int64_t places = gradient.placesOfCotangents(call, division);
      if (gradient.cotangentStarts) {
        cotangentsLeft = SegmentStarts::lend(gradient.cotangentStarts->left, places, next);
        cotangentsBegun = SegmentStarts::lend(gradient.cotangentStarts->begun, places, next);
      }
      tailsBegun = SegmentStarts::lend(gradient.ofTails, places, next);
      sumsLeft = SegmentStarts::lend(gradient.ofSums, places, next);
    }
    next = behind;
    lendParts();
    lendKeptRows();
    describeForward();
    describeBackward();
  }

  llvm::Error run() {
    if (llvm::Error error = clearUnknownPlaces())
      return error;
    if (gradient.systems)
      if (llvm::Error error = launch(signature, *gradient.systems, call, forward,
                                     LaunchSegment::whole(*gradient.systems, signature.tokens(call)), executor))
        return error;
    if (division.hasStates) {
      // The call has found all that there is to find forwards.
    } else if (gradient.forwardWalk()) {
      if (llvm::Error error = findStarts())
        return error;
    } else if (division.count() > 1 && gradient.walksForwardAnew()) {
      if (llvm::Error error = division.isNested() ? keepStartsOfLong() : keepStarts(/*first=*/0))
        return error;
    }
    bool isForwardDone = gradient.walksForwardFirst();
    if (isForwardDone && walksForward())
      if (llvm::Error error = walkForward())
        return error;
    for (int64_t segment = division.count() - 1; segment >= 0; --segment) {
      placeParts(segment);
      int64_t next = (segment + 1) * division.length;
      if (division.isNested() && (segment + 1 == division.count() || next % division.ofLong == 0))
        if (llvm::Error error = keepStarts(longSegmentOf(segment)))
          return error;
      if (walksForward() && !isForwardDone)
        if (llvm::Error error = keep(segment))
          return error;
      backward.checkpoints = ofChunks;
      if (gradient.resultsComeFirst())
        if (llvm::Error error = walkBack(*gradient.kernel, segment))
          return error;
      if (gradient.cotangentStarts)
        if (llvm::Error error = findCotangentStarts(segment))
          return error;
      Operator::Signature::Kernel *behind = gradient.resultsComeFirst() ? nullptr : gradient.kernel.get();
      for (Operator::Signature::Kernel *kernel :
           {gradient.cotangents.get(), behind, gradient.later.get(), gradient.sums.get()})
        if (kernel)
          if (llvm::Error error = walkBack(*kernel, segment))
            return error;
      if (gradient.sumTurns)
        if (llvm::Error error = addSumsUp(segment))
          return error;
      beginBehind();
      addUp(segment);
    }
    return llvm::Error::success();
  }

private:
  using Checkpoints = SmallVector<LaunchTensors::Checkpoint, 2>;

  bool walksForward() const { return gradient.checkpoints && !division.hasStates; }

  LaunchSegment rangeOf(int64_t segment) const {
    int64_t first = segment * division.length;
    return {
        .first = first, .chunks = std::min(division.length, division.chunks - first), .interval = gradient.interval()};
  }

  /// The same for a kernel, whose segments may be apart.
  LaunchSegment rangeFor(const Operator::Signature::Kernel &kernel, int64_t segment) const {
    return rangeFor(kernel, rangeOf(segment));
  }

  /// What is carried back has places in this range alone, but where the walk forward has left something there.
  LaunchSegment rangeFor(const Operator::Signature::Kernel &kernel, LaunchSegment range) const {
    if (!kernel.isApart())
      return range;
    range.intervalOfStarts = division.apart;
    range.apart = llvm::divideCeil(range.chunks, division.apart);
    bool isPlacedApart = kernel.code->manifest.reverse && !gradient.writesForward();
    range.firstPlaced = isPlacedApart ? range.first : 0;
    range.chunksPlaced = isPlacedApart ? range.chunks : division.chunks;
    return range;
  }

  llvm::Error findStarts() {
    if (division.hasStarts) {
      keptStarts = gradient.statesOf(call);
      for (auto [start, place] :
           llvm::zip_equal(keptStarts->states, keptStarts->placesIn(gradientCall.states, call, signature)))
        forward.segmentStarts.emplace_back(start.name, place);
      backward.segmentStarts = forward.segmentStarts;
      return llvm::Error::success();
    }
    LentRows inverses;
    llvm::Expected<SegmentStarts::Places> starts = gradient.forwardSegments->findStarts(
        call, gradient.forwardDivision(call, division), forwardBegun, forwardLeft, inverses, executor);
    if (!starts)
      return starts.takeError();
    forward.segmentStarts = backward.segmentStarts = std::move(*starts);
    return llvm::Error::success();
  }

  llvm::Error findCotangentStarts(int64_t segment) {
    SegmentStarts &starts = *gradient.cotangentStarts;
    LaunchTensors tensors = backward;
    tensors.segmentStarts.clear();
    const Operator::Signature::Kernel &walk = gradient.cotangents ? *gradient.cotangents : *gradient.kernel;
    if (llvm::Error error = starts.find(signature, call, std::move(tensors), rangeFor(walk, segment), cotangentsLeft,
                                        cotangentsBegun, executor))
      return error;
    backward.segmentStarts = cotangentsBegun;
    return llvm::Error::success();
  }

  /// Segments leave their parts of sums. Behind the walk of the states of reverse time others begin with what is added
  /// to their rows.
  llvm::Error walkBack(Operator::Signature::Kernel &kernel, int64_t segment) {
    LaunchSegment range = rangeFor(kernel, segment);
    if (!kernel.isApart() || !kernel.code->manifest.reverse)
      return launch(signature, kernel, call, backward, range, executor);
    LaunchTensors tensors = backward;
    if (!gradient.carriesBack(kernel))
      tensors.segmentStarts.clear();
    if (gradient.cotangentTails && !gradient.carriesBack(kernel)) {
      tensors.segmentEnds = tailsBegun;
      LaunchSegment behind = range;
      behind.before = gradient.chunksOfTails();
      if (llvm::Error error = launch(signature, *gradient.cotangentTails, call, tensors, behind, executor))
        return error;
      tensors.segmentStarts = tailsBegun;
    }
    tensors.segmentEnds = sumsLeft;
    return launch(signature, kernel, call, tensors, range, executor);
  }

  llvm::Error addSumsUp(int64_t segment) {
    LaunchTensors tensors = backward;
    tensors.checkpoints.clear();
    for (const Manifest::Argument &argument : gradient.sumTurns->code->manifest.arguments)
      if (argument.kind == Manifest::Kind::Checkpoint)
        tensors.checkpoints.push_back(SegmentStarts::placeOf(SegmentStarts::nameOfLeft(argument), sumsLeft));
    LaunchSegment range = rangeOf(segment);
    range.interval = division.apart;
    range.firstPlaced = range.first;
    range.chunksPlaced = range.chunks;
    return launch(signature, *gradient.sumTurns, call, tensors, range, executor);
  }

  /// The first chunk of the long segment that a segment is of; the first of all where there is none.
  int64_t longSegmentOf(int64_t segment) const {
    int64_t first = segment * division.length;
    return first - first % division.ofLong;
  }

  /// The range of a kernel that begins with such starts, of which each has a place from one chunk on.
  LaunchSegment from(const Checkpoints &starts, int64_t interval, int64_t firstPlaced, int64_t chunksPlaced,
                     LaunchSegment range) {
    for (auto [start, checkpoint] : llvm::zip_equal(gradient.ofSegments, starts))
      forward.starts.emplace_back(start.name, checkpoint);
    range.intervalOfStarts = interval;
    range.firstPlaced = firstPlaced;
    range.chunksPlaced = chunksPlaced;
    return range;
  }

  llvm::Error walkForward() {
    return launchForward(rangeFor(*gradient.checkpoints, LaunchSegment{.chunks = division.chunks}));
  }

  llvm::Error launchForward(const LaunchSegment &range) {
    if (gradient.writesForward())
      forward.segmentEnds = cotangentsLeft;
    return launch(signature, *gradient.checkpoints, call, forward, range, executor);
  }

  llvm::Error keepStartsOfLong() {
    forward.checkpoints = ofLong;
    // Behind the start of the last segment nothing is kept.
    int64_t last = (division.chunks - 1) / division.ofLong;
    return walkStates({.chunks = last * division.ofLong + 1, .interval = division.ofLong});
  }

  /// Keeps the states at the start of each segment of a long one, or of all.
  llvm::Error keepStarts(int64_t first) {
    forward.starts.clear();
    forward.checkpoints = ofSegments;
    int64_t chunks = std::min(division.ofLong, division.chunks - first), last = (chunks - 1) / division.length;
    LaunchSegment range = {.first = first, .chunks = last * division.length + 1, .interval = division.length};
    return walkStates(division.isNested() ? from(ofLong, division.ofLong, 0, division.chunks, range) : range);
  }

  llvm::Error walkStates(const LaunchSegment &range) {
    llvm::Expected<Operator::Signature::Kernel *> kernel = gradient.kernelOfSegments();
    if (!kernel)
      return kernel.takeError();
    return launch(signature, **kernel, call, forward, range, executor);
  }

  /// Walks a segment, of several from the states at its start. Rows that were kept are kept again, as the same numbers.
  llvm::Error keep(int64_t segment) {
    LaunchSegment range = rangeFor(*gradient.checkpoints, segment);
    forward.starts.clear();
    if (division.count() > 1 && !gradient.sideBySide) {
      int64_t first = longSegmentOf(segment);
      range = from(ofSegments, division.length, first, std::min(division.ofLong, division.chunks - first), range);
    }
    forward.checkpoints = ofChunks;
    if (llvm::Error error = launchForward(range))
      return error;
    return gradient.keeping ? launch(signature, *gradient.keeping, call, forward, rangeOf(segment), executor)
                            : llvm::Error::success();
  }

  /// What is carried back to the next segment begins with what this one has left.
  void beginBehind() {
    for (auto [entry, part] : llvm::zip(backward.entries, gradientCall.entries))
      entry.initial = part.data;
  }

  /// Tokens of each sequence before a segment, and of a segment.
  int64_t firstOf(int64_t segment) const { return rangeOf(segment).first * gradient.kernel->code->manifest.chunk; }
  int64_t tokensOfSegment() const { return division.length * gradient.kernel->code->manifest.chunk; }

  /// Parts of a segment's rows take the places of the first segment's.
  void placeParts(int64_t segment) {
    for (auto [row, parts, result] : llvm::zip_first(gradient.rows, ofParts, results))
      if (parts)
        result.data = parts - firstOf(segment) * row.placesOfToken() * bytesOf(row.partType);
  }

  /// What is left of packed sequences, once segments behind have been walked, is told to nobody but the device.
  bool addsUpAllPlaces() const { return call.sequenceOffsets && division.count() > 1; }

  /// Places of parts that no token has are summed as well, and dropped; starts of segments that a sequence does not
  /// reach are read, and nothing is made of them.
  llvm::Error clearUnknownPlaces() {
    if (!addsUpAllPlaces() || signature.device < 0)
      return llvm::Error::success();
    auto clear = [&](const void *memory, int64_t bytes) {
      return memory && bytes ? CudaDevice::clear(signature.device, const_cast<void *>(memory), bytes, executor.stream)
                             : llvm::Error::success();
    };
    int64_t tokens = signature.rowOf(call).sizes[0] * tokensOfParts;
    for (auto [row, parts] : llvm::zip_equal(gradient.rows, ofParts))
      if (llvm::Error error = clear(parts, row.bytesOfParts(tokens)))
        return error;
    auto counts = gradient.checkpointCounts(call, division);
    for (auto [places, count] : {std::pair(&ofLong, counts.ofLong), std::pair(&ofSegments, counts.ofSegments)})
      for (auto [start, place] : llvm::zip_equal(gradient.ofSegments, *places))
        if (llvm::Error error = clear(place.data, start.bytes(count)))
          return error;
    return llvm::Error::success();
  }

  void addUp(int64_t segment) {
    const TensorView &of = signature.rowOf(call);
    bool isPacked = addsUpAllPlaces();
    int64_t first = isPacked ? 0 : firstOf(segment);
    int64_t tokens = isPacked ? tokensOfParts : std::min(tokensOfParts, of.sizes[1] - first), all = of.sizes[1] - first;
    if (tokens == 0)
      return;
    PackedSegment packed = {isPacked ? &*call.sequenceOffsets : nullptr, firstOf(segment), tokensOfSegment()};
    for (auto [row, parts, whole] : llvm::zip_equal(gradient.rows, ofParts, gradientCall.rows)) {
      if (!parts)
        continue;
      int64_t heads = row.sizes.front(), width = row.width(), ofToken = row.placesOfToken();
      std::array sizes = {of.sizes[0], tokens, heads, row.parts, width};
      std::array strides = {tokensOfParts * ofToken, ofToken, row.parts * width, width, int64_t(1)};
      std::array sumSizes = {of.sizes[0], isPacked ? all : tokens, heads, width};
      std::array sumStrides = {whole.strides[0], whole.strides[1], whole.strides[2], int64_t(1)};
      TensorView sum = {.data = static_cast<char *>(whole.data) + first * whole.strides[1] * bytesOf(row.type),
                        .type = row.type,
                        .sizes = sumSizes,
                        .strides = sumStrides};
      executor.addUp({.data = parts, .type = row.partType, .sizes = sizes, .strides = strides}, sum,
                     isPacked ? &packed : nullptr);
    }
  }

  char *lend(int64_t bytes) { return std::exchange(next, next + bytes); }

  Checkpoints lendCheckpoints(ArrayRef<Operator::Signature::Checkpoint> checkpoints, int64_t count) {
    Checkpoints lent;
    for (const Operator::Signature::Checkpoint &checkpoint : checkpoints)
      lent.push_back(checkpoint.at(lend(checkpoint.bytes(count)), count));
    return lent;
  }

  /// Where a call has kept states, those are where it has.
  void lendChunks(int64_t count) {
    SmallVector<LaunchTensors::Checkpoint, 2> kept;
    std::vector<std::string> names;
    if (division.hasStates) {
      kept = gradient.statesOfCall->placesIn(gradientCall.states, call, signature);
      names = gradient.statesOfCall->names();
    }
    Gradient::ChunkBytes bytes = gradient.chunkBytes(division, count);
    char *ofForward = next, *ofReverse = gradient.readsStatesInTurns ? next : next + bytes.ofForward;
    for (const Operator::Signature::Checkpoint &checkpoint : gradient.ofChunks)
      if (std::optional<unsigned> position = positionIn(names, checkpoint.name)) {
        ofChunks.push_back(kept[*position]);
      } else {
        char *&place = gradient.isOfReverseTime(checkpoint) ? ofReverse : ofForward;
        ofChunks.push_back(checkpoint.at(std::exchange(place, place + checkpoint.bytes(count)), count));
      }
    next = std::max(ofForward, ofReverse);
  }

  void lendKeptRows() {
    const TensorView &row = signature.rowOf(call);
    keptStrides.resize(gradient.keptRows.size());
    for (auto [keptRow, strides] : llvm::zip_equal(gradient.keptRows, keptStrides)) {
      strides = keptRow.strides(row.sizes[1]);
      TensorView &view = results.emplace_back();
      view.data = lend(keptRow.bytes(row.sizes[0] * row.sizes[1]));
      view.strides = strides;
    }
  }

  void lendParts() {
    const TensorView &of = signature.rowOf(call);
    results = gradientCall.rows;
    tokensOfParts = gradient.tokensOfParts(call, division);
    partStrides.resize(results.size());
    for (auto [row, result, strides] : llvm::zip_equal(gradient.rows, results, partStrides)) {
      int64_t bytes = row.bytesOfParts(of.sizes[0] * tokensOfParts), ofToken = row.placesOfToken();
      ofParts.push_back(row.parts == 1 ? nullptr : lend(bytes));
      if (row.parts == 1)
        continue;
      strides = {(call.sequenceOffsets ? tokensOfSegment() : tokensOfParts) * ofToken, ofToken, row.width(), 1};
      result.strides = strides;
    }
  }

  void describeForward() {
    forward.addInputs(call);
    for (const std::optional<TensorView> &cotangent : gradientCall.resultCotangents)
      forward.inputs.push_back(cotangent ? &*cotangent : nullptr);
    for (const TensorView &saved : gradientCall.saved)
      forward.inputs.push_back(&saved);
    for (const TensorView &view : ArrayRef(results).drop_front(gradient.rows.size()))
      forward.inputs.push_back(&view);
    forward.results = results;
    // States of reverse time begin with nothing here.
    for (const Operator::Signature::EntryStrides &strides : gradient.entryStrides)
      forward.entries.push_back({.strides = strides});
    for (auto [index, strides] : llvm::enumerate(signature.stateStrides))
      forward.entries.push_back(
          {.initial = call.initialState.empty() ? nullptr : call.initialState[index].data, .strides = strides});
  }

  void describeBackward() {
    backward.inputs = forward.inputs;
    backward.results = results;
    for (auto [index, strides] : llvm::enumerate(gradient.entryStrides)) {
      const std::optional<TensorView> &cotangent = gradientCall.entryCotangents[index];
      backward.entries.push_back({.initial = cotangent ? cotangent->data : nullptr,
                                  .final = gradientCall.entries[index].data,
                                  .strides = strides});
    }
    llvm::append_range(backward.entries, ArrayRef(forward.entries).drop_front(gradient.entryStrides.size()));
  }

  Gradient &gradient;
  const Operator::Signature &signature;
  const OperatorCall &call;
  const GradientCall &gradientCall;
  const Executor &executor;
  Gradient::Division division;
  char *next; // of the workspace
  Checkpoints ofLong, ofSegments, ofChunks;
  /// Where segments are side by side: memory for what they begin with forwards, and to find it; and places back.
  char *forwardBegun = nullptr, *forwardLeft = nullptr;
  std::shared_ptr<const KeptStates> keptStarts;
  SegmentStarts::Places cotangentsLeft, cotangentsBegun, tailsBegun, sumsLeft;
  std::vector<std::array<int64_t, 4>> keptStrides;
  /// Of each row: where its parts are, or null where the kernel leaves the whole.
  SmallVector<char *, 8> ofParts;
  /// What kernels leave: of each row its parts or the whole, and behind them the rows that are kept.
  SmallVector<TensorView, 8> results;
  std::vector<std::array<int64_t, 4>> partStrides;
  int64_t tokensOfParts = 0;
  LaunchTensors forward, backward;
};

} // namespace stretto

llvm::Error Gradient::run(const OperatorCall &call, const GradientCall &tensors, const Executor &executor) {
  if (signature.items(call) == 0)
    return llvm::Error::success();
  Division division = divisionOf(call, /*hasKept=*/tensors.states);
  int64_t all = signature.sequences(call);
  if (division.sequences == all)
    return GradientLauncher(*this, call, tensors, executor, division).run();
  for (int64_t first = 0; first < all; first += division.sequences) {
    SomeSequences some(signature.op, call, tensors, first, std::min(division.sequences, all - first));
    if (llvm::Error error = GradientLauncher(*this, some.call(), some.gradientCall(), executor, division).run())
      return error;
  }
  return llvm::Error::success();
}
