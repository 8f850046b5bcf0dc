//===- SegmentStarts.cpp - What segments side by side begin with ----------===//

#include "runtime/SegmentStarts.h"
#include "passes/declaration/KernelNames.h"
#include <utility>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;
using SegmentStarts = Operator::Signature::SegmentStarts;
using Kind = Manifest::Kind;

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

int64_t SegmentStarts::bytes(ArrayRef<Kept> kept, int64_t places) {
  int64_t bytes = 0;
  for (const Kept &each : kept)
    bytes += each.bytes(places);
  return bytes;
}

SegmentStarts::Places SegmentStarts::lend(ArrayRef<Kept> kept, int64_t places, char *&memory) {
  Places lent;
  for (const Kept &each : kept)
    lent.push_back(
        {each.name, {std::exchange(memory, memory + each.bytes(places)), each.heads * each.size, each.size, places}});
  return lent;
}

int64_t SegmentStarts::placesOf(const Signature &signature, const OperatorCall &call, const Kernel &kernel,
                                int64_t chunks, int64_t length) {
  // What firstCheckpoint (runtime/Manifest.h) would be of one more sequence.
  const TensorView &row = signature.rowOf(call);
  int64_t sequences = signature.sequences(call), tokens = row.sizes[0] * row.sizes[1];
  int64_t ifAllAreLong = sequences * static_cast<int64_t>(llvm::divideCeil(chunks, length));
  return std::min(ifAllAreLong, tokens / (kernel.code->manifest.chunk * length) + sequences);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

llvm::Expected<std::unique_ptr<Signature::Kernel>>
SegmentStarts::make(const Signature &signature, const KernelRequest &request, Names names, std::vector<Kept> &kept) {
  auto code = signature.compile(request);
  if (!code)
    return code.takeError();
  const Manifest &manifest = (*code)->manifest;
  bool areTurns = manifest.segments == Manifest::Segments::Turns;
  for (const Manifest::Argument &argument : manifest.arguments) {
    if (argument.kind == Kind::State && !llvm::is_contained(names.entries, argument.entry))
      names.entries.push_back(argument.entry);
    if (areTurns && (argument.kind == Kind::Checkpoint || argument.kind == Kind::Kept))
      names.checkpoints.push_back(argument.name);
    if (argument.kind == (areTurns ? Kind::Kept : Kind::State))
      kept.push_back(Kept::of(signature, manifest, argument));
  }
  return signature.makeKernel(std::move(*code), {names.inputs, names.entries, names.checkpoints, {}});
}

llvm::Expected<SegmentStarts> SegmentStarts::create(const Signature &signature, ArrayRef<KernelRequest> walks,
                                                    const KernelRequest &turns, const Names &names,
                                                    llvm::function_ref<bool(StringRef)> isKnown) {
  SegmentStarts starts;
  for (const KernelRequest &walk : walks)
    if (llvm::Error error = make(signature, walk, names, starts.left).moveInto(starts.walks.emplace_back()))
      return error;
  if (llvm::Error error = make(signature, turns, {{}, names.entries, {}}, starts.begun).moveInto(starts.turns))
    return error;
  llvm::erase_if(starts.left, [&](const Kept &kept) { return isKnown(kept.name); });
  if (!walks.empty())
    if (llvm::Error error = expectLeft(*starts.turns, starts.left))
      return error;
  return starts;
}

StringRef SegmentStarts::nameOfLeft(const Manifest::Argument &checkpoint) {
  StringRef name = checkpoint.name;
  name.consume_back(leftSuffix);
  return name;
}

llvm::Error SegmentStarts::expectLeft(const Kernel &turns, ArrayRef<Kept> left) {
  for (const Manifest::Argument &argument : turns.code->manifest.arguments)
    if (argument.kind == Kind::Checkpoint &&
        llvm::none_of(left, [&](const Kept &kept) { return kept.name == nameOfLeft(argument); }))
      return llvm::createStringError("internal: no segment leaves the '" + argument.name + "' that '" +
                                     turns.code->manifest.symbol + "' reads");
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

LaunchTensors::Checkpoint SegmentStarts::placeOf(StringRef name, const Places &places) {
  const auto *found = llvm::find_if(places, [&](const auto &named) { return named.first == name; });
  assert(found != places.end() && "one kernel keeps what the other asks for");
  return found->second;
}

/// Nothing begins with what the segment leaves that is walked last: back, the first one of the range. Checkpoints are
/// numbered from the start of the range, so that a kernel which reads some walks that, too.
static LaunchSegment withoutFirst(LaunchSegment range, const Manifest &manifest) {
  bool readsCheckpoints = llvm::any_of(
      manifest.arguments, [](const Manifest::Argument &argument) { return argument.kind == Kind::Checkpoint; });
  if (!manifest.reverse || readsCheckpoints)
    return range;
  range.first += range.intervalOfStarts;
  range.chunks -= range.intervalOfStarts;
  range.apart -= 1;
  return range;
}

llvm::Error SegmentStarts::find(const Signature &signature, const OperatorCall &call, LaunchTensors tensors,
                                const LaunchSegment &range, const Places &left, const Places &begun,
                                const Executor &executor) {
  // States that are no entry have no initial value, and no final one is wanted.
  for (LaunchTensors::Entry &entry : tensors.entries)
    entry.final = nullptr;
  size_t entries = tensors.entries.size();
  tensors.segmentEnds = left;
  for (const std::unique_ptr<Kernel> &walk : walks) {
    tensors.entries.resize(entries + walk->code->manifest.arguments.size());
    LaunchSegment walked = withoutFirst(range, walk->code->manifest);
    if (llvm::Error error = launch(signature, *walk, call, tensors, walked, executor))
      return error;
  }
  // Forwards the first segment has begun with the initial state, and what it leaves is all of a state.
  if (!turns->code->manifest.reverse)
    for (LaunchTensors::Entry &entry : tensors.entries)
      entry.initial = nullptr;
  tensors.entries.resize(entries + turns->code->manifest.arguments.size());
  tensors.checkpoints.clear();
  for (const Manifest::Argument &argument : turns->code->manifest.arguments) {
    if (argument.kind == Kind::Kept)
      tensors.checkpoints.push_back(placeOf(argument.name, begun));
    else if (argument.kind == Kind::Checkpoint)
      tensors.checkpoints.push_back(placeOf(nameOfLeft(argument), left));
  }
  LaunchSegment turn = {.first = range.first,
                        .chunks = range.chunks,
                        .interval = range.intervalOfStarts,
                        .firstPlaced = range.firstPlaced,
                        .chunksPlaced = range.chunksPlaced};
  return launch(signature, *turns, call, tensors, turn, executor);
}
