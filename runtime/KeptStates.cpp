//===- KeptStates.cpp - States that a call keeps for its gradient ---------===//

#include "runtime/KeptStates.h"
#include "runtime/Gradient.h"
#include "runtime/Knobs.h"
#include "runtime/Segments.h"
#include <utility>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;

Signature::Checkpoint Signature::Checkpoint::of(const Signature &signature, const Manifest &manifest,
                                                const Manifest::Argument &argument) {
  int64_t size = static_cast<int64_t>(llvm::product_of(argument.shape)) * argument.parts(manifest.slices);
  return {argument.name, std::max<int64_t>(signature.heads / argument.group, 1), size, argument.type};
}

int64_t Signature::checkpointCount(const OperatorCall &call, int64_t chunk, int64_t chunks, int64_t interval) const {
  int64_t tokens = rowOf(call).sizes[0] * rowOf(call).sizes[1];
  // What firstCheckpoint (runtime/Manifest.h) would be of one more sequence.
  int64_t ifAllAreLong = sequences(call) * llvm::divideCeil(chunks, interval);
  int64_t together = tokens / (chunk * interval) + sequences(call);
  return std::min(ifAllAreLong, together);
}

KeptStates KeptStates::of(const Signature &signature, const Manifest &manifest, Keeps keeps) {
  KeptStates kept;
  kept.keeps = keeps;
  kept.tokens = manifest.chunk;
  for (const Manifest::Argument &argument : manifest.arguments)
    if (argument.kind == Manifest::Kind::Kept)
      kept.states.push_back(Signature::Checkpoint::of(signature, manifest, argument));
  llvm::sort(kept.states, [](const auto &a, const auto &b) { return a.name < b.name; });
  return kept;
}

bool KeptStates::canBe(const KeptStates &asked) const {
  bool areThere = keeps == Keeps::Segments ? asked.tokens % tokens == 0 : asked.tokens == tokens;
  return asked.keeps == keeps && areThere && asked.states == states;
}

bool KeptStates::contains(StringRef name) const {
  return llvm::any_of(states, [&](const Signature::Checkpoint &state) { return state.name == name; });
}

std::vector<std::string> KeptStates::names() const {
  std::vector<std::string> names;
  names.reserve(states.size());
  for (const Signature::Checkpoint &state : states)
    names.push_back(state.name);
  return names;
}

static int64_t countOf(const KeptStates &kept, const OperatorCall &call, const Signature &signature) {
  int64_t chunks = std::max<int64_t>(llvm::divideCeil(signature.tokens(call), kept.tokens), 1);
  return signature.checkpointCount(call, kept.tokens, chunks, /*interval=*/1);
}

int64_t KeptStates::bytes(const OperatorCall &call, const Signature &signature) const {
  int64_t count = countOf(*this, call, signature), bytes = 0;
  for (const Signature::Checkpoint &state : states)
    bytes += state.bytes(count);
  return bytes;
}

SmallVector<LaunchTensors::Checkpoint, 2> KeptStates::placesIn(const void *memory, const OperatorCall &call,
                                                               const Signature &signature) const {
  int64_t count = countOf(*this, call, signature);
  auto *next = static_cast<const char *>(memory);
  SmallVector<LaunchTensors::Checkpoint, 2> places;
  for (const Signature::Checkpoint &state : states)
    places.push_back(state.at(std::exchange(next, next + state.bytes(count)), count));
  return places;
}

//===----------------------------------------------------------------------===//
// Whether a call keeps them
//===----------------------------------------------------------------------===//

bool Signature::mayKeep(Keeps keeps) const {
  if (!Knobs::instance().keepStates || keepsInVain || device < 0 || isStep() || !carriesStates)
    return false;
  // What is kept is all that a walk begins with.
  bool hasOnlyStates = llvm::all_of(carried, [](StateEntry::Kind kind) {
    return kind == StateEntry::Kind::Matrix || kind == StateEntry::Kind::Position;
  });
  if (keeps != Keeps::Chunks)
    return keeps == Keeps::Segments && hasOnlyStates;
  bool hasWindows = llvm::any_of(state, [](const EntryShape &entry) { return entry.window || entry.isDelayed; });
  return hasOnlyStates && !hasWindows && bytesOf(request.element) == 2;
}

std::shared_ptr<const KeptStates> Signature::findStatesKeptBy(OperatorCall call, const GradientRequest &request,
                                                              int64_t threads) {
  SmallVector<bool> none(state.size(), false);
  if (items(call) == 0 || resumes(call, request, none))
    return nullptr;
  llvm::Expected<Gradient *> gradient = gradientFor(call, request, threads);
  if (!gradient)
    return llvm::consumeError(gradient.takeError()), nullptr; // that is said when it is asked for
  call.kept = (*gradient)->statesOf(call);
  if (!call.kept || !mayKeep(call.kept->keeps))
    return nullptr;
  llvm::Expected<Operator::Prepared> prepared = Operator::prepare(*this, call, threads);
  if (!prepared)
    return llvm::consumeError(prepared.takeError()), nullptr;
  const Kernel *kernel = prepared->segments ? &prepared->segments->lastKernel() : prepared->kernel;
  return kernel && kernel->keeps && kernel->keeps->canBe(*call.kept) ? call.kept : nullptr;
}

std::shared_ptr<const KeptStates> Signature::statesKeptBy(const OperatorCall &call, const GradientRequest &request,
                                                          int64_t threads) {
  // A walk over fewer rows takes less than it takes the host to ask, and to lend memory.
  constexpr int64_t fewestRows = 16384;
  bool mayKeepSome = mayKeep(Keeps::Chunks) || mayKeep(Keeps::Segments);
  if (!mayKeepSome || items(call) * tokensOfSequence(call) < fewestRows)
    return nullptr;
  if (call.form)
    return findStatesKeptBy(call, request, threads);
  // To find out takes some microseconds.
  constexpr size_t mostRemembered = 1024;
  const Knobs &knobs = Knobs::instance();
  ArrayRef<int64_t> sizes = rowOf(call).sizes;
  std::pair key(request, KeptCall{sequences(call), sizes[0], sizes[1], call.sequenceOffsets.has_value(),
                                  !call.initialState.empty(), call.gradientBytes, knobs.sequences, knobs.segment,
                                  knobs.segments, knobs.slices, knobs.walks, knobs.walkSlices,
                                  static_cast<int64_t>(TunedForms::instance().generation())});
  {
    std::lock_guard<std::mutex> lock(keeping);
    if (auto found = keptByCalls.find(key); found != keptByCalls.end())
      return found->second;
  }
  std::shared_ptr<const KeptStates> kept = findStatesKeptBy(call, request, threads);
  std::lock_guard<std::mutex> lock(keeping);
  if (keptByCalls.size() == mostRemembered)
    keptByCalls.clear();
  return keptByCalls[key] = kept;
}
