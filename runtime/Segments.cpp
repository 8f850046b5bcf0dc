//===- Segments.cpp - Segments of sequences, side by side -----------------===//

#include "runtime/Segments.h"
#include "runtime/Knobs.h"
#include "runtime/Work.h"
#include <utility>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;
using Part = KernelRequest::Part;

//===----------------------------------------------------------------------===//
// How many
//===----------------------------------------------------------------------===//

/// Of a GPU as many as fill the chip once. What segments do to states is found by walking over most inputs once more:
/// two segments would gain nothing, and short ones would wait for launches.
int64_t Signature::segmentsFor(const OperatorCall &call) const {
  constexpr int64_t tokensOfSegment = 256, fewest = 3;
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

llvm::Expected<std::unique_ptr<Signature::Kernel>>
Signature::Segments::make(KernelRequest request, Part part, std::vector<Kept> &kept) const {
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
    if (argument.kind == (part == Part::Starts ? Kind::Kept : Kind::State))
      kept.push_back(keptOf(manifest, argument));
  }
  return signature.makeKernel(std::move(*code), {inputs, entries, checkpoints});
}

llvm::Expected<std::unique_ptr<Signature::Segments>> Signature::Segments::create(const Signature &signature,
                                                                                 const Form &form) {
  std::unique_ptr<Segments> made(new Segments(signature));
  KernelRequest request = signature.request;
  request.take(form);
  std::vector<Kept> states;
  if (llvm::Error error = made->make(request, Part::Apart, states).moveInto(made->results))
    return error;
  bool hasTails = llvm::any_of(signature.state, [](const EntryShape &entry) { return entry.isTail; });
  if (hasTails)
    if (llvm::Error error = made->make(request, Part::Tails, made->ofTails).moveInto(made->tails))
      return error;
  if (llvm::Error error = made->make(request, Part::Writes, made->ofWrites).moveInto(made->writes))
    return error;
  if (llvm::Error error = made->make(request, Part::Starts, made->ofStarts).moveInto(made->starts))
    return error;
  // Tails are known before.
  llvm::erase_if(made->ofWrites, [&](const Kept &kept) {
    return llvm::any_of(made->ofTails, [&](const Kept &tail) { return tail.name == kept.name; });
  });
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
  return std::min(sequences * division.count(),
                  tokens / (results->code->manifest.chunk * division.length) + sequences);
}

int64_t Signature::Segments::workspaceBytes(const OperatorCall &call, int64_t count) const {
  int64_t places = placesOf(call, divide(call, count)), bytes = 0;
  for (const std::vector<Kept> *kept : {&ofTails, &ofWrites, &ofStarts})
    for (const Kept &each : *kept)
      bytes += each.bytes(places);
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

llvm::Error Signature::Segments::run(const OperatorCall &call, int64_t wanted, ArrayRef<TensorView> resultViews,
                                     ArrayRef<TensorView> finalState, void *workspace, const Executor &executor) {
  Division division = divide(call, wanted);
  int64_t places = placesOf(call, division), count = division.count();
  char *next = static_cast<char *>(workspace);
  using Places = SmallVector<LaunchTensors::Checkpoint, 4>;
  auto lend = [&](ArrayRef<Kept> kept) {
    Places lent;
    for (const Kept &each : kept)
      lent.push_back({std::exchange(next, next + each.bytes(places)), each.heads * each.size, each.size});
    return lent;
  };
  Places lentTails = lend(ofTails), lentWrites = lend(ofWrites), lentStarts = lend(ofStarts);

  auto tensorsOf = [&](const Kernel &kernel) {
    LaunchTensors tensors;
    tensors.addInputs(call);
    for (auto [index, strides] : llvm::enumerate(signature.stateStrides))
      tensors.entries.push_back(
          {.initial = call.initialState.empty() ? nullptr : call.initialState[index].data, .strides = strides});
    tensors.entries.resize(tensors.entries.size() + kernel.code->manifest.arguments.size());
    return tensors;
  };
  auto begin = [&](LaunchTensors &tensors, ArrayRef<Kept> kept, ArrayRef<LaunchTensors::Checkpoint> lent) {
    for (auto [each, place] : llvm::zip_equal(kept, lent))
      tensors.segmentStarts.emplace_back(each.name, place);
  };
  auto leave = [&](LaunchTensors &tensors, ArrayRef<Kept> kept, ArrayRef<LaunchTensors::Checkpoint> lent) {
    for (auto [each, place] : llvm::zip_equal(kept, lent))
      tensors.segmentEnds.emplace_back(each.name, place);
  };

  if (tails) {
    int64_t before = chunksOfTails();
    LaunchTensors tensors = tensorsOf(*tails);
    leave(tensors, ofTails, lentTails);
    LaunchSegment segment = {
        .first = -before, .chunks = before, .intervalOfStarts = division.length, .apart = count};
    if (llvm::Error error = launch(signature, *tails, call, tensors, segment, executor))
      return error;
  }
  LaunchSegment segment = {.chunks = division.length, .intervalOfStarts = division.length, .apart = count - 1};
  if (segment.apart > 0) {
    LaunchTensors tensors = tensorsOf(*writes);
    begin(tensors, ofTails, lentTails);
    leave(tensors, ofWrites, lentWrites);
    if (llvm::Error error = launch(signature, *writes, call, tensors, segment, executor))
      return error;
    LaunchTensors ofTurns;
    ofTurns.entries.resize(signature.state.size() + starts->code->manifest.arguments.size());
    for (const Manifest::Argument &argument : starts->code->manifest.arguments) {
      // What a segment has left, or its decays.
      StringRef name = argument.name;
      if (argument.kind == Manifest::Kind::Kept)
        ofTurns.checkpoints.push_back(
            lentStarts[llvm::find_if(ofStarts, [&](const Kept &kept) { return kept.name == name; }) -
                       ofStarts.begin()]);
      if (argument.kind != Manifest::Kind::Checkpoint)
        continue;
      name.consume_back(".left");
      ofTurns.checkpoints.push_back(
          lentWrites[llvm::find_if(ofWrites, [&](const Kept &kept) { return kept.name == name; }) - ofWrites.begin()]);
    }
    if (llvm::Error error = launch(signature, *starts, call, ofTurns,
                                   {.chunks = division.chunks, .interval = division.length}, executor))
      return error;
  }
  segment.apart = count;
  LaunchTensors tensors = tensorsOf(*results);
  tensors.results = resultViews;
  for (auto [entry, final] : llvm::zip(tensors.entries, finalState))
    entry.final = final.data;
  begin(tensors, ofTails, lentTails);
  begin(tensors, ofStarts, lentStarts);
  return launch(signature, *results, call, tensors, segment, executor);
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
    for (const Kernel *kernel : {tails.get(), writes.get(), starts.get(), results.get()}) {
      if (!kernel)
        continue;
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
