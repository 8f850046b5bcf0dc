//===- Segments.cpp - Segments of sequences, side by side -----------------===//

#include "runtime/Segments.h"
#include "runtime/Knobs.h"
#include <utility>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;
using Part = KernelRequest::Part;

//===----------------------------------------------------------------------===//
// How many
//===----------------------------------------------------------------------===//

/// Of a GPU as many as fill the chip once. What segments do to states is found by walking over most inputs once more:
/// two segments would gain nothing, and short ones would wait for launches (docs/performance.md).
int64_t Signature::segmentsFor(const OperatorCall &call) const {
  constexpr int64_t tokensOfSegment = 512, fewest = 3;
  if (isStep() || !serialBecause.empty())
    return 1;
  if (int64_t count = Knobs::instance().segments)
    return count;
  int64_t parallel = std::max<int64_t>(items(call), 1);
  int64_t tokens = rowOf(call).sizes[0] * rowOf(call).sizes[1] / std::max<int64_t>(sequences(call), 1);
  int64_t count = std::min(multiprocessors / parallel, tokens / tokensOfSegment);
  return count >= fewest ? count : 1;
}

Signature::Segments::Division Signature::Segments::divide(const OperatorCall &call, int64_t count) const {
  int64_t chunk = results->code->manifest.chunk, sequences = std::max<int64_t>(signature.sequences(call), 1);
  int64_t all = signature.rowOf(call).sizes[0] * signature.rowOf(call).sizes[1];
  auto chunksOf = [&](int64_t tokens) {
    return std::max<int64_t>(static_cast<int64_t>(llvm::divideCeil(tokens, chunk)), 1);
  };
  // Packed sequences are as long as others on average; the longest of them may have all tokens.
  int64_t ofEach = chunksOf(llvm::divideCeil(all, sequences));
  return {chunksOf(signature.tokens(call)), static_cast<int64_t>(llvm::divideCeil(ofEach, std::min(ofEach, count)))};
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

Signature::Segments::Kept Signature::Segments::keptOf(const Manifest &manifest,
                                                      const Manifest::Argument &argument) const {
  return {argument.name, std::max<int64_t>(signature.heads / argument.group, 1),
          static_cast<int64_t>(llvm::product_of(argument.shape)) * argument.parts(manifest.slices), argument.type};
}

llvm::Expected<std::unique_ptr<Signature::Kernel>> Signature::Segments::make(KernelRequest request, Part part,
                                                                             std::vector<Kept> &kept) const {
  request.part = part;
  auto code = signature.compile(request);
  if (!code)
    return code.takeError();
  // What is kept of states that are no entry of the caller's has a name of its own.
  std::vector<std::string> inputs, entries, checkpoints;
  for (const Input &input : signature.op.inputs())
    inputs.push_back(input.name);
  for (const EntryShape &entry : signature.state)
    entries.push_back(entry.name);
  const Manifest &manifest = (*code)->manifest;
  for (const Manifest::Argument &argument : manifest.arguments) {
    using Kind = Manifest::Kind;
    if (argument.kind == Kind::State && !llvm::is_contained(entries, argument.entry))
      entries.push_back(argument.entry);
    if (argument.kind == Kind::Checkpoint || argument.kind == Kind::Kept)
      checkpoints.push_back(argument.name);
    if (argument.kind == (manifest.segments == Manifest::Segments::Turns ? Kind::Kept : Kind::State))
      kept.push_back(keptOf(manifest, argument));
  }
  return signature.makeKernel(std::move(*code), {inputs, entries, checkpoints});
}

/// Whether one of what is kept has a name.
template <typename Kept> static bool hasName(ArrayRef<Kept> kept, StringRef name) {
  return llvm::any_of(kept, [&](const Kept &each) { return each.name == name; });
}

llvm::Expected<Signature::Segments::Pass> Signature::Segments::makePass(const KernelRequest &request, Part walk,
                                                                        Part starts) const {
  Pass pass;
  if (llvm::Error error = make(request, walk, pass.left).moveInto(pass.walk))
    return error;
  if (llvm::Error error = make(request, starts, pass.begun).moveInto(pass.starts))
    return error;
  // What the walk begins with is known before.
  llvm::erase_if(pass.left, [&](const Kept &kept) {
    return hasName(ArrayRef(ofTails), kept.name) ||
           llvm::any_of(passes, [&](const Pass &before) { return hasName(ArrayRef(before.begun), kept.name); });
  });
  return pass;
}

llvm::Expected<std::unique_ptr<Signature::Segments>> Signature::Segments::create(const Signature &signature,
                                                                                 const Form &form) {
  std::unique_ptr<Segments> made(new Segments(signature));
  KernelRequest request = signature.request;
  request.take(form);
  std::vector<Kept> states;
  if (llvm::Error error = made->make(request, Part::Apart, states).moveInto(made->results))
    return error;
  auto has = [&](StateEntry::Kind kind) { return llvm::is_contained(signature.carried, kind); };
  if (has(StateEntry::Kind::Tail))
    if (llvm::Error error = made->make(request, Part::Tails, made->ofTails).moveInto(made->tails))
      return error;
  auto add = [&](Part walk, Part starts) -> llvm::Error {
    llvm::Expected<Pass> pass = made->makePass(request, walk, starts);
    if (!pass)
      return pass.takeError();
    made->passes.push_back(std::move(*pass));
    return llvm::Error::success();
  };
  if (has(StateEntry::Kind::Scan))
    if (llvm::Error error = add(Part::Totals, Part::TotalStarts))
      return error;
  if (llvm::Error error = add(Part::Writes, Part::Starts))
    return error;
  return made;
}

llvm::Expected<Signature::Segments *> Signature::segmentsOf(const Form &form) {
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Segments> &made = segmented[form];
  if (!made)
    if (llvm::Error error = Segments::create(*this, form).moveInto(made))
      return error;
  return made.get();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

int64_t Signature::Segments::placesOf(const OperatorCall &call, Division division) const {
  // What firstCheckpoint (runtime/Manifest.h) would be of one more sequence.
  const TensorView &row = signature.rowOf(call);
  int64_t sequences = signature.sequences(call), tokens = row.sizes[0] * row.sizes[1];
  return std::min(sequences * division.count(), tokens / (results->code->manifest.chunk * division.length) + sequences);
}

int64_t Signature::Segments::workspaceBytes(const OperatorCall &call, int64_t count) const {
  int64_t places = placesOf(call, divide(call, count)), bytes = 0;
  auto add = [&](ArrayRef<Kept> kept) {
    for (const Kept &each : kept)
      bytes += each.bytes(places);
  };
  add(ofTails);
  for (const Pass &pass : passes) {
    add(pass.left);
    add(pass.begun);
  }
  return bytes;
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

namespace stretto {

/// The launches of a call: the workspace divided, and the tensors of each kernel.
class SegmentLauncher {
public:
  using Segments = Signature::Segments;
  using Kernel = Signature::Kernel;

  SegmentLauncher(Segments &segments, const OperatorCall &call, int64_t wanted, void *workspace,
                  const Executor &executor)
      : segments(segments), signature(segments.signature), call(call), executor(executor),
        division(segments.divide(call, wanted)), places(segments.placesOf(call, division)),
        next(static_cast<char *>(workspace)) {}

  llvm::Error run(ArrayRef<TensorView> results, ArrayRef<TensorView> finalState) {
    if (segments.tails)
      if (llvm::Error error = findTails())
        return error;
    for (Segments::Pass &pass : segments.passes)
      if (division.count() > 1)
        if (llvm::Error error = findStarts(pass))
          return error;
    LaunchTensors tensors = tensorsOf(*segments.results);
    tensors.results = results;
    for (auto [entry, final] : llvm::zip(tensors.entries, finalState))
      entry.final = final.data;
    return walk(*segments.results, tensors, division.count());
  }

private:
  using Places = SmallVector<std::pair<StringRef, LaunchTensors::Checkpoint>, 4>;

  Places lend(ArrayRef<Segments::Kept> kept) {
    Places lent;
    for (const Segments::Kept &each : kept)
      lent.push_back({each.name, {std::exchange(next, next + each.bytes(places)), each.heads * each.size, each.size}});
    return lent;
  }

  /// What is known so far is what segments begin with.
  LaunchTensors tensorsOf(const Kernel &kernel) const {
    LaunchTensors tensors;
    tensors.addInputs(call);
    for (auto [index, strides] : llvm::enumerate(signature.stateStrides))
      tensors.entries.push_back(
          {.initial = call.initialState.empty() ? nullptr : call.initialState[index].data, .strides = strides});
    // And what is kept of states, which has no initial value.
    tensors.entries.resize(tensors.entries.size() + kernel.code->manifest.arguments.size());
    tensors.segmentStarts = begun;
    return tensors;
  }

  llvm::Error walk(Kernel &kernel, const LaunchTensors &tensors, int64_t count) {
    LaunchSegment segment = {.chunks = division.length, .intervalOfStarts = division.length, .apart = count};
    return launch(signature, kernel, call, tensors, segment, executor);
  }

  llvm::Error findTails() {
    LaunchTensors tensors = tensorsOf(*segments.tails);
    tensors.segmentEnds = lend(segments.ofTails);
    int64_t before = segments.chunksOfTails();
    LaunchSegment segment = {
        .first = -before, .chunks = before, .intervalOfStarts = division.length, .apart = division.count()};
    if (llvm::Error error = launch(signature, *segments.tails, call, tensors, segment, executor))
      return error;
    llvm::append_range(begun, tensors.segmentEnds);
    return llvm::Error::success();
  }

  /// Nothing begins with what the last segment leaves.
  llvm::Error findStarts(Segments::Pass &pass) {
    LaunchTensors tensors = tensorsOf(*pass.walk), turns = tensorsOf(*pass.starts);
    tensors.segmentEnds = lend(pass.left);
    if (llvm::Error error = walk(*pass.walk, tensors, division.count() - 1))
      return error;
    // The first segment has begun with the initial state, and what it leaves is all of a state.
    for (LaunchTensors::Entry &entry : turns.entries)
      entry.initial = nullptr;
    Places starts = lend(pass.begun);
    for (const Manifest::Argument &argument : pass.starts->code->manifest.arguments) {
      StringRef name = argument.name;
      if (argument.kind == Manifest::Kind::Kept)
        turns.checkpoints.push_back(placeOf(name, starts));
      else if (argument.kind == Manifest::Kind::Checkpoint)
        turns.checkpoints.push_back(placeOf(name.consume_back(".left") ? name : argument.name, tensors.segmentEnds));
    }
    LaunchSegment segment = {.chunks = division.chunks, .interval = division.length};
    if (llvm::Error error = launch(signature, *pass.starts, call, turns, segment, executor))
      return error;
    llvm::append_range(begun, starts);
    return llvm::Error::success();
  }

  static LaunchTensors::Checkpoint placeOf(StringRef name, const Places &lent) {
    const auto *found = llvm::find_if(lent, [&](const auto &named) { return named.first == name; });
    assert(found != lent.end() && "one kernel keeps what the other asks for");
    return found->second;
  }

  Segments &segments;
  const Signature &signature;
  const OperatorCall &call;
  const Executor &executor;
  Segments::Division division;
  int64_t places;
  char *next; // of the workspace
  Places begun;
};

} // namespace stretto

llvm::Error Signature::Segments::run(const OperatorCall &call, int64_t count, ArrayRef<TensorView> resultViews,
                                     ArrayRef<TensorView> finalState, void *workspace, const Executor &executor) {
  return SegmentLauncher(*this, call, count, workspace, executor).run(resultViews, finalState);
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
    SmallVector<const Kernel *> kernels = {results.get()};
    for (const Pass &pass : llvm::reverse(passes))
      llvm::append_values(kernels, pass.starts.get(), pass.walk.get());
    if (tails)
      kernels.push_back(tails.get());
    for (const Kernel *kernel : llvm::reverse(kernels)) {
      const Manifest &manifest = kernel->code->manifest;
      json.object([&] {
        json.attribute("kernel", manifest.symbol);
        json.attribute("from_cache", kernel->code->fromCache);
        json.attribute("compile_ms", kernel->code->milliseconds);
      });
    }
  });
  json.attribute("workspace_bytes", workspaceBytes(call, wanted));
}
