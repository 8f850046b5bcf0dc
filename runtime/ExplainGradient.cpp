//===- ExplainGradient.cpp - What the gradient of a call takes ------------===//

#include "passes/declaration/KernelNames.h"
#include "runtime/Gradient.h"
#include "runtime/Launch.h"
#include "runtime/SomeSequences.h"
#include "runtime/Work.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;
using Gradient = Signature::Gradient;

/// Chunks that the look-backs of a sequence meet, all of its chunks together.
static int64_t meetingsOf(const Operator::Signature &signature, int64_t chunks, int64_t tokens) {
  int64_t most = chunks;
  for (const EntryShape &entry : signature.state)
    if (entry.window)
      most = std::min<int64_t>(chunks, llvm::divideCeil(entry.sizes[0] - 1, tokens) + 1);
  return most * (most + 1) / 2 + (chunks - most) * most;
}

int64_t stretto::flopsOf(const Operator::Signature &signature, const OperatorCall &call, const Manifest &manifest) {
  int64_t sequences = std::max<int64_t>(signature.sequences(call), 1);
  int64_t tokens = signature.rowOf(call).sizes[0] * signature.tokens(call);
  int64_t chunks = llvm::divideCeil(llvm::divideCeil(tokens, sequences), manifest.chunk);
  int64_t meetings = manifest.flopsOfMeeting ? meetingsOf(signature, chunks, manifest.chunk) : 0;
  return signature.items(call) * (chunks * manifest.flops + meetings * manifest.flopsOfMeeting);
}

static int64_t bytesOfTensor(const TensorView &view) {
  return llvm::product_of(view.sizes) * stretto::bytesOf(*view.type);
}

int64_t stretto::bytesOfTensors(const Gradient &gradient, const OperatorCall &call) {
  const Operator::Signature &signature = gradient.signature;
  int64_t bytes = 0;
  for (auto [view, isWanted] : llvm::zip_equal(call.arguments, gradient.request.inputs))
    if (view)
      bytes += bytesOfTensor(*view) * (isWanted ? 2 : 1);
  int64_t tokens = signature.rowOf(call).sizes[0] * signature.tokens(call);
  for (auto [result, isGiven] : llvm::zip_equal(signature.results, gradient.request.results))
    bytes += isGiven ? tokens * llvm::product_of(result.sizes) * stretto::bytesOf(result.type) : 0;
  for (auto [view, isWanted] : llvm::zip(call.initialState, gradient.request.entries))
    if (view.type)
      bytes += bytesOfTensor(view) * (isWanted ? 2 : 1);
  return bytes;
}

void Gradient::explain(llvm::json::OStream &json, const OperatorCall &call) const {
  Division division = divisionOf(call);
  if (division.sequences == signature.sequences(call))
    return explain(json, call, call, division);
  json.attribute("sequences_at_a_time", division.sequences);
  SomeSequences some(signature.op, call, /*first=*/0, division.sequences);
  explain(json, call, some.call(), division);
}

void Gradient::explain(llvm::json::OStream &json, const OperatorCall &call, const OperatorCall &atATime,
                       Division division) const {
  auto explainKernel = [&](const Kernel &part) {
    const Manifest &manifest = part.code->manifest;
    json.object([&] {
      json.attribute("kernel", manifest.symbol);
      json.attribute("walks", manifest.reverse ? "backwards" : "forwards");
      json.attribute("form", "chunk");
      bool isOfSegments = manifest.segments != Manifest::Segments::None;
      json.attribute("schedule", isOfSegments ? "segmented" : manifest.independentChunks ? "parallel" : "serial");
      json.attribute("chunk", manifest.chunk);
      json.attribute("slices", manifest.slices);
      int64_t chunks = &part == systems.get() ? division.chunks : division.length;
      json.attribute("items", itemsOf(manifest, signature, atATime, {.chunks = chunks}));
      json.attribute("flops", flopsOf(signature, call, manifest));
      json.attribute("from_cache", part.code->fromCache);
      json.attribute("compile_ms", part.code->milliseconds);
      if (part.code->cuda)
        json.attribute("assembler", part.code->cuda->assembler());
    });
  };
  GradientOf asked = names();
  json.attributeArray("gradients", [&] {
    for (const std::string &name : asked.wanted)
      json.value(name);
  });
  json.attributeArray("kernels", [&] {
    for (const Kernel *part : all())
      explainKernel(*part);
  });
  CheckpointCounts counts = checkpointCounts(atATime, division);
  json.attribute("segments", division.count());
  json.attribute("chunks_of_a_segment", division.length);
  if (division.isNested())
    json.attribute("chunks_of_a_long_segment", division.ofLong);
  if (sideBySide) {
    json.attribute("side_by_side", llvm::divideCeil(division.length, division.apart));
    json.attribute("chunks_of_each", division.apart);
  }
  const TensorView &row = signature.rowOf(atATime);
  auto explainCheckpoints = [&](ArrayRef<Checkpoint> checkpoints, StringRef of, int64_t count) {
    for (const Checkpoint &checkpoint : checkpoints)
      json.object([&] {
        json.attribute("what", "'" + checkpoint.name + "' at the start of each " + of.str());
        json.attribute("bytes", checkpoint.bytes(count));
      });
  };
  json.attributeArray("saved", [&] {
    explainCheckpoints(ofChunks, division.count() > 1 ? "chunk of a segment" : "chunk", counts.ofChunks);
    if (division.count() > 1)
      explainCheckpoints(ofSegments, division.isNested() ? "segment of a long one" : "segment", counts.ofSegments);
    if (division.isNested())
      explainCheckpoints(ofSegments, "long segment", counts.ofLong);
    int64_t tokens = row.sizes[0] * row.sizes[1];
    auto explainRow = [&](const std::string &name, bool isSaved, int64_t bytes) {
      json.object([&] {
        bool isInverse = StringRef(name).starts_with(inversePrefix);
        json.attribute("what", isInverse ? "the inverse of each chunk's system of equations"
                                         : "a row of each token that is made of others, '" + name + "'");
        json.attribute("by_the_call", isSaved);
        json.attribute("bytes", bytes);
      });
    };
    for (auto [index, shape] : llvm::enumerate(signature.savedRows))
      if (request.takesSaved)
        explainRow(inputNames[signature.op.inputs().size() + signature.results.size() + index], /*isSaved=*/true,
                   tokens * static_cast<int64_t>(llvm::product_of(shape.sizes)) * bytesOf(shape.type));
    for (const KeptRow &kept : keptRows)
      explainRow(kept.name, /*isSaved=*/false, kept.bytes(tokens));
  });
  json.attribute("recomputed", "all other rows, from the inputs of their chunk and what is saved");
  json.attribute("checkpoint_bytes", checkpointBytes(atATime, division));
  json.attribute("part_bytes", bytesOfParts(atATime, division));
  json.attribute("workspace_bytes", workingBytes(call, division) + keptBytes(call, division));
  json.attribute("bytes", bytesOfTensors(*this, call));
  // A segment is walked forwards twice, but where there is only one, or three times.
  int64_t forwards = division.isNested() ? 3 : division.count() > 1 ? 2 : 1;
  int64_t flops = 0;
  for (const Kernel *part : all())
    flops += (part == checkpoints.get() ? forwards : 1) * flopsOf(signature, call, part->code->manifest);
  json.attribute("flops", flops);
  StringRef why = kernel->code->manifest.reverse
                      ? "nothing that is asked for depends on what is carried forward: one walk back"
                      : "nothing that is asked for depends on later tokens: one walk forward";
  if (checkpoints && ofChunks.empty())
    why = "a walk forward leaves what depends on forward states, a walk back all else: no state is kept";
  else if (checkpoints)
    why = "the walk back needs what only a walk forward finds, which is kept once a chunk for states, once a token for "
          "rows";
  json.attribute("why", why);
}

std::string Signature::whySerial(const OperatorCall &call, const Choice &choice, const GradientRequest &request) {
  if (!serialBecause.empty())
    return "no segments side by side: " + serialBecause;
  if (choice.segments == 1)
    return "sequences and heads fill the machine, or sequences are short, or the form is fixed";
  std::string problem;
  if (Gradient *segmented = gradientSideBySide(request, choice.form, &problem))
    return "segments side by side do not fit memory: as many as there may be take " +
           std::to_string(segmented->workingBytes(call)) + " bytes of " + std::to_string(segmented->enoughBytes(call));
  // What a declaration lacks is said behind its place.
  StringRef reason = StringRef(problem).split("no segmented form: ").second;
  return "no segments side by side: " + (reason.empty() ? problem : reason.str());
}

llvm::Expected<std::string> Operator::explainGradient(Signature &signature, const OperatorCall &call,
                                                      const GradientRequest &request, int64_t threads) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::SmallVector<bool> none(signature.state.size(), false);
  if (signature.resumes(call, request, none)) {
    llvm::json::OStream json(stream);
    json.object([&] {
      json.attribute("why", "tokens of the windows have a part in what is asked for: one call on these and its own "
                            "(stretto-resume)");
    });
    return text;
  }
  llvm::Expected<Gradient *> gradient = signature.gradientFor(call, request, threads);
  if (!gradient)
    return gradient.takeError();
  Signature::Choice choice = signature.choose(call, threads, &request);
  // A stream wants something to be written.
  llvm::json::OStream json(stream);
  json.object([&] {
    if (signature.device < 0)
      signature.target().processor().explain(json);
    (*gradient)->explain(json, call);
    // A call in eager mode keeps them where its kernel has such chunks: then no kernel walks forward again.
    if (auto kept = (*gradient)->statesOf(call); kept && signature.mayKeep(kept->keeps))
      json.attribute("states_of_a_recorded_call_bytes", kept->bytes(call, signature));
    if (!(*gradient)->sideBySide)
      json.attribute("why_serial", signature.whySerial(call, choice, request));
    choice.explain(json);
  });
  return text;
}
