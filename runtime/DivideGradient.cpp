//===- DivideGradient.cpp - How a gradient is divided, and its memory -----===//

#include "runtime/Gradient.h"
#include "runtime/Knobs.h"
#include "runtime/SomeSequences.h"
#include "runtime/WholeWalks.h"
#include <cmath>
#include <thread>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;
using Gradient = Signature::Gradient;

Gradient::CheckpointCounts Gradient::checkpointCounts(const OperatorCall &call, Division division) const {
  bool beginsAtCheckpoints = division.count() > 1 && walksForwardAnew();
  return {.ofLong = division.isNested() ? checkpointCount(call, division.chunks, division.ofLong) : 0,
          .ofSegments = beginsAtCheckpoints ? checkpointCount(call, division.ofLong, division.length) : 0,
          .ofChunks = checkpointCount(call, division.length, interval())};
}

int64_t Gradient::placesOfCotangents(const OperatorCall &call, Division division) const {
  return SegmentStarts::placesOf(signature, call, *kernel, chunksOfCotangents(division), division.apart);
}

Signature::Segments::Division Gradient::forwardDivision(const OperatorCall &call, Division division) const {
  return forwardSegments->divideInto(call, division.apart * kernel->code->manifest.chunk);
}

int64_t Gradient::bytesOfForwardStarts(const OperatorCall &call, Division division) const {
  return findsStarts(division) ? forwardSegments->bytesBegun(call, forwardDivision(call, division)) : 0;
}

bool Gradient::isOfReverseTime(const Checkpoint &checkpoint) const {
  return cotangents && cotangents->code->manifest.has(Manifest::Kind::Kept, checkpoint.name);
}

Gradient::ChunkBytes Gradient::chunkBytes(Division division, int64_t count) const {
  ChunkBytes bytes;
  for (const Checkpoint &checkpoint : ofChunks)
    if (!division.hasStates || !statesOfCall->contains(checkpoint.name))
      (isOfReverseTime(checkpoint) ? bytes.ofReverse : bytes.ofForward) += checkpoint.bytes(count);
  return bytes;
}

int64_t Gradient::checkpointBytes(const OperatorCall &call, Division division) const {
  CheckpointCounts counts = checkpointCounts(call, division);
  int64_t bytes = 0;
  for (const Checkpoint &checkpoint : ofSegments)
    bytes += checkpoint.bytes(counts.ofLong) + checkpoint.bytes(counts.ofSegments);
  ChunkBytes ofChunk = chunkBytes(division, counts.ofChunks);
  bytes += readsStatesInTurns ? std::max(ofChunk.ofForward, ofChunk.ofReverse) : ofChunk.ofForward + ofChunk.ofReverse;
  if (!sideBySide)
    return bytes;
  int64_t places = placesOfCotangents(call, division);
  if (cotangentStarts)
    bytes += SegmentStarts::bytes(cotangentStarts->left, places) + SegmentStarts::bytes(cotangentStarts->begun, places);
  bytes += SegmentStarts::bytes(ofTails, places) + SegmentStarts::bytes(ofSums, places);
  // What finds where segments begin forwards is there before all else.
  if (findsStarts(division))
    bytes = std::max(bytes, forwardSegments->bytesLeft(call, forwardDivision(call, division)));
  return bytes + bytesOfForwardStarts(call, division);
}

Gradient::Division Gradient::divide(const OperatorCall &call, int64_t turns, int64_t sideBySideSegments) const {
  const Manifest &manifest = kernel->code->manifest;
  int64_t chunks = std::max<int64_t>(llvm::divideCeil(signature.rowOf(call).sizes[1], manifest.chunk), 1);
  // What is walked begins with a chunk that has checkpoints.
  auto length = static_cast<int64_t>(llvm::alignTo(llvm::divideCeil(chunks, turns), interval()));
  int64_t sequences = signature.sequences(call);
  if (!sideBySide)
    return {sequences, chunks, length};
  // Segments begin with chunks of the operator, too.
  int64_t ofOperator = interval();
  if (forwardSegments)
    ofOperator = std::max<int64_t>(forwardSegments->lastKernel().code->manifest.chunk / manifest.chunk, ofOperator);
  int64_t apart = llvm::alignTo(llvm::divideCeil(length, sideBySideSegments), ofOperator);
  return {sequences, chunks, static_cast<int64_t>(llvm::alignTo(length, apart)), apart};
}

bool Gradient::fitsSegments(const OperatorCall &call) const {
  Division division = divisionOf(call);
  return division.apart < division.length && workingBytes(call, division) <= enoughBytes(call);
}

bool Gradient::hasOneTurn(const OperatorCall &call) const {
  Division division = divisionOf(call);
  return division.count() == 1 && workingBytes(call, division) <= enoughBytes(call);
}

bool Gradient::carriesAlike() const {
  return llvm::any_of(all(), [](const Kernel *each) {
    const Manifest &manifest = each->code->manifest;
    return manifest.reverse && manifest.slices > 1 && !each->isApart() &&
           llvm::any_of(manifest.arguments, [](const Manifest::Argument &argument) {
             return argument.kind == Manifest::Kind::State && !argument.sliced && !argument.partial;
           });
  });
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
  int64_t blocks = std::max<int64_t>(signature.items(call) * manifest.slices, 1);
  int64_t chunks = signature.rowOf(call).sizes[1] / manifest.chunk;
  int64_t ofLength = chunks / fewestChunks(chunks);
  if (fewestChunks(chunks) < fewestOfMany)
    ofLength = std::min(ofLength, few);
  if (signature.carriesStates)
    return std::max<int64_t>(std::min(signature.multiprocessors / blocks, ofLength), 1);
  return segmentsOfLeastTime(blocks, chunks, blocksAtOnce(), ofLength);
}

bool Gradient::hasSmallChunks(const OperatorCall &call) const {
  int64_t chunks = signature.tokensOfSequence(call) / kernel->code->manifest.chunk;
  bool mayBeSideBySide = signature.device >= 0 && signature.serialBecause.empty() && signature.carriesStates &&
                         !signature.feedsBack && !Knobs::instance().segments;
  return mayBeSideBySide && chunks >= few && signature.items(call) * (chunks / 2) <= signature.multiprocessors;
}

int64_t Gradient::enoughBytes(const OperatorCall &call) const {
  return bytesOfInputs(call, inputsOfGradient(signature.device), call.gradientBytes);
}

/// A layer saves what a call keeps, for longer than a gradient works: of what the gradient may take two thirds.
int64_t Gradient::keepableBytes(const OperatorCall &call) const {
  constexpr int64_t inputs = 2;
  return bytesOfInputs(call, inputs, call.gradientBytes * inputs / inputsOfGradient(signature.device));
}

/// So many of the largest input, unless it is said how much, or of short sequences what the states themselves take; on
/// a GPU always so much that nobody minds, without which few heads of few tokens would come in turns of a chunk or two.
int64_t Gradient::bytesOfInputs(const OperatorCall &call, int64_t inputs, int64_t given) const {
  int64_t largest = 0, states = 0;
  for (auto [input, view] : llvm::zip_equal(signature.op.inputs(), call.arguments))
    if (view && !input.isParameter)
      largest = std::max(largest, static_cast<int64_t>(llvm::product_of(view->sizes)) * bytesOf(*view->type));
  for (const EntryShape &entry : signature.state)
    states += static_cast<int64_t>(llvm::product_of(entry.sizes)) * bytesOf(entry.type);
  constexpr int64_t little = int64_t(32) << 20;
  return std::max(
      {given ? given : inputs * largest, states * signature.sequences(call), signature.device >= 0 ? little : 0});
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
  int64_t all = signature.sequences(call);
  if (most == 0 || most >= all)
    return most;
  int64_t atOnce = blocksAtOnce();
  auto timeOf = [&](int64_t count) -> int64_t {
    int64_t blocks = count * signature.heads * walkBack().code->manifest.slices;
    return llvm::divideCeil(all, count) * llvm::divideCeil(blocks, atOnce);
  };
  while (most > 0 && timeOf(most) > timeOf(all))
    --most;
  return most;
}

Gradient::Division Gradient::divisionOf(const OperatorCall &call) const {
  constexpr size_t mostRemembered = 1024;
  const Knobs &knobs = Knobs::instance();
  ArrayRef<int64_t> sizes = signature.rowOf(call).sizes;
  CallShape shape = {signature.sequences(call), sizes[0],      sizes[1],          call.sequenceOffsets.has_value(),
                     knobs.sequences,           knobs.segment, knobs.longSegment, knobs.segments,
                     call.gradientBytes};
  {
    std::lock_guard<std::mutex> lock(dividing);
    if (auto found = divisions.find(shape); found != divisions.end())
      return found->second;
  }
  Division division = divideSequences(call);
  if (knobs.sequences && !call.sequenceOffsets)
    division.sequences = std::min<int64_t>(knobs.sequences, signature.sequences(call));
  std::lock_guard<std::mutex> lock(dividing);
  if (divisions.size() == mostRemembered)
    divisions.clear();
  return divisions.insert({shape, division}).first->second;
}

/// As many segments side by side as there are multiprocessors for, in as few turns as memory allows.
Gradient::Division Gradient::divideSequences(const OperatorCall &call) const {
  int64_t most = mostSideBySide(call);
  bool isForced = sideBySide && Knobs::instance().segments;
  Division whole = divide(call, 1, most);
  int64_t mostTurns = carriesAlike() || (ofChunks.empty() && !walksForwardFirst()) ? 1 : whole.chunks;
  if (int64_t length = Knobs::instance().segment; length && mostTurns > 1) {
    int64_t turns = llvm::divideCeil(whole.chunks, length);
    Division division = divide(call, turns, llvm::divideCeil(most, isForced ? turns : 1));
    if (int64_t ofLong = Knobs::instance().longSegment; ofLong && walksForwardAnew() && !ofChunks.empty())
      division.ofLong = std::min(ofLong * division.length, division.chunks);
    return division;
  }
  Division best = whole;
  int64_t least = std::numeric_limits<int64_t>::max();
  // Whether a division fits memory, of all sequences or of as many as fill the machine. The best so far is kept.
  auto fits = [&](Division division) {
    if (int64_t count = sequencesFillingTurns(call, mostSequences(call, division))) {
      best = division;
      best.sequences = count;
      return true;
    }
    if (int64_t bytes = workingBytes(call, division); bytes < least) {
      least = bytes;
      best = division;
    }
    return false;
  };
  for (int64_t beside = most; beside >= 1; beside = beside * 3 / 4) {
    // Each launch of few chunks takes its time: 1, 2, 3, 4, 6, 8, 12, ... are near enough to the fewest.
    for (int64_t turns = 1; turns <= mostTurns; turns += std::max<int64_t>(llvm::bit_floor<uint64_t>(turns) / 2, 1)) {
      Division division = divide(call, turns, isForced ? llvm::divideCeil(beside, turns) : beside);
      if (beside > 1 && !isForced && division.apart < fewestChunks(whole.chunks))
        break;
      if (fits(division))
        return best;
    }
  }
  // Starts of long segments, and of those that one of these consists of, want one more walk.
  if (walksForwardAnew() && !ofChunks.empty())
    for (int64_t turns = 4; turns <= mostTurns; turns += llvm::bit_floor<uint64_t>(turns) / 4) {
      Division division = divide(call, turns, /*sideBySideSegments=*/1);
      division.ofLong = division.length * static_cast<int64_t>(std::ceil(std::sqrt(division.count())));
      if (fits(division))
        return best;
    }
  // Memory is scarcer than time is.
  if (!call.sequenceOffsets)
    best.sequences = std::max<int64_t>(mostSequences(call, best), 1);
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

/// All sequences, each in as many segments side by side as there are multiprocessors for.
std::optional<Gradient::Division> Gradient::divisionWithStates(const OperatorCall &call) const {
  const Knobs &knobs = Knobs::instance();
  if (!statesOfCall || knobs.sequences || knobs.segment)
    return std::nullopt;
  Division division = divide(call, /*turns=*/1, mostSideBySide(call));
  division.hasStates = true;
  return workingBytes(call, division) <= enoughBytes(call) ? std::optional(division) : std::nullopt;
}

std::shared_ptr<const KeptStates> Gradient::startsOf(const OperatorCall &call) const {
  Division division = divisionOf(call);
  bool areAllAtOnce = division.sequences == signature.sequences(call);
  if (!forwardWalk() || !areAllAtOnce || !signature.mayKeep(Keeps::Segments))
    return nullptr;
  auto starts = std::make_shared<KeptStates>();
  starts->keeps = Keeps::Segments;
  starts->tokens = division.apart * kernel->code->manifest.chunk;
  starts->states = forwardSegments->statesBegun();
  llvm::sort(starts->states, [](const Checkpoint &a, const Checkpoint &b) { return a.name < b.name; });
  return starts;
}

std::shared_ptr<const KeptStates> Gradient::statesOf(const OperatorCall &call) const {
  auto areFew = [&](const std::shared_ptr<const KeptStates> &states) {
    return states && states->bytes(call, signature) <= keepableBytes(call);
  };
  if (areFew(statesOfCall) && divisionWithStates(call))
    return statesOfCall;
  // Where several declarations are compiled for a call, none waits for what its gradient turns out to take.
  std::shared_ptr<const KeptStates> starts = call.gradientBytes ? nullptr : startsOf(call);
  return areFew(starts) ? starts : nullptr;
}

Gradient::Division Gradient::divisionOf(const OperatorCall &call, bool hasKept) const {
  if (hasKept && statesOf(call)->keeps == Keeps::Chunks)
    return *divisionWithStates(call);
  Division division = divisionOf(call);
  division.hasStarts = hasKept;
  return division;
}

int64_t Gradient::workspaceBytes(const OperatorCall &call, bool hasStates) const {
  Division division = divisionOf(call, hasStates);
  return workingBytes(call, division) + keptBytes(call, division);
}
