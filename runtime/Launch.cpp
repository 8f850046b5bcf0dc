//===- Launch.cpp - Running a kernel on the tensors of a call -------------===//

#include "runtime/Launch.h"
#include "runtime/Gradient.h"
#include "runtime/KeptStates.h"
#include "runtime/OperatorImpl.h"
#include "runtime/Segments.h"
#include "runtime/TensorBoxes.h"
#include "runtime/Work.h"
#include "llvm/Support/JSON.h"
#include <atomic>
#include <cstring>
#include <utility>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;

//===----------------------------------------------------------------------===//
// The argument block
//===----------------------------------------------------------------------===//

using ArgumentBlock = SmallVector<int64_t, 192>;

static int64_t word(const void *pointer) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer)); }

/// A pointer that many bytes further.
static int64_t word(const void *pointer, int64_t offset) { return pointer ? word(pointer) + offset : 0; }

Signature::Kernel::TableWords Signature::Kernel::place(Table &table, int64_t end, const Executor &executor) {
  if (!table.placed)
    return {};
  std::lock_guard<std::mutex> lock(placing);
  int64_t period = table.op.getPeriod().value_or(0), stride = Manifest::strideOfTable(table.width, table.type);
  if (period)
    period *= llvm::divideCeil(code->manifest.chunk, period);
  int64_t needed = std::max<int64_t>(table.op.getVarying() ? end : period, 1);
  if (table.numbers.positions < needed)
    table.numbers =
        table.placed->upTo(table.op.getVarying() ? llvm::PowerOf2Ceil(needed) : needed, table.op, executor.upload);
  return {word(table.numbers.data), table.numbers.positions * stride, table.varies() ? stride : 0, period};
}

/// Appends what a state begins with and where it is left, where segments are apart.
static void appendSegments(ArgumentBlock &block, StringRef state, const LaunchTensors &tensors) {
  auto placeIn = [&](const auto &places) -> LaunchTensors::Checkpoint {
    const auto *found = llvm::find_if(places, [&](const auto &named) { return named.first == state; });
    return found == places.end() ? LaunchTensors::Checkpoint() : found->second;
  };
  LaunchTensors::Checkpoint start = placeIn(tensors.segmentStarts), end = placeIn(tensors.segmentEnds);
  const LaunchTensors::Checkpoint &place = start.data ? start : end;
  block.append({word(start.data), word(end.data), place.chunkStride, place.headStride});
}

/// Describes the inputs, checkpoints and outputs of which boxes are copied, behind the arguments.
static void appendBoxes(ArgumentBlock &block, const Signature &signature, const Signature::Kernel &kernel,
                        const OperatorCall &call, const LaunchTensors &tensors) {
  const Manifest &manifest = kernel.code->manifest;
  block.resize(manifest.firstBoxWord());
  bool isPacked = call.sequenceOffsets.has_value();
  for (auto [argument, position] : llvm::zip_equal(manifest.arguments, kernel.positions)) {
    if (!argument.box)
      continue;
    int64_t bytes = bytesOf(argument.type), columns = argument.shape.back() * argument.parts(manifest.slices);
    TensorBoxes boxes;
    boxes.type = argument.type;
    boxes.columns = argument.box;
    boxes.tokens = argument.boxRows;
    if (argument.kind == Manifest::Kind::Checkpoint || argument.kind == Manifest::Kind::Kept) {
      const LaunchTensors::Checkpoint &checkpoint = tensors.checkpoints[position];
      boxes.pointer = word(checkpoint.data);
      boxes.sizes = {columns, signature.heads / argument.group, argument.shape.front(), checkpoint.count};
      boxes.strides = {checkpoint.headStride * bytes, columns * bytes, checkpoint.chunkStride * bytes};
    } else {
      bool isOutput = argument.kind == Manifest::Kind::Output;
      const TensorView &view = isOutput ? tensors.results[position] : *tensors.inputs[position];
      boxes.pointer = word(view.data);
      boxes.sizes = {columns, signature.heads / argument.group, signature.tokens(call),
                     isPacked ? 1 : signature.sequences(call)};
      boxes.strides = {view.strides[call.leadingAxes()] * bytes, view.strides[1] * bytes, view.strides[0] * bytes};
    }
    llvm::append_range(block, boxes.words());
  }
}

static ArgumentBlock fillBlock(const Signature &signature, Signature::Kernel &kernel, const OperatorCall &call,
                               const LaunchTensors &tensors, const LaunchSegment &segment, const Executor &executor) {
  const int64_t *positions = signature.positions(call);
  int64_t sequences = signature.sequences(call), tokens = signature.tokens(call), stateRows = signature.stateRows(call);
  ArgumentBlock block = {sequences,
                         tokens,
                         signature.heads,
                         call.sequenceOffsets ? word(call.sequenceOffsets->data) : 0,
                         word(positions),
                         call.slots ? word(call.slots->data) : 0,
                         stateRows,
                         segment.first,
                         segment.chunks,
                         segment.interval,
                         segment.intervalOfStarts,
                         segment.before,
                         segment.firstPlaced,
                         segment.chunksPlaced,
                         word(tensors.left)};
  auto appendRows = [&](const TensorView &view) {
    ArrayRef<int64_t> strides = view.strides;
    block.append({word(view.data), strides[0], call.isStep ? 0 : strides[1], strides[call.leadingAxes()]});
  };
  for (auto [argument, position] : llvm::zip_equal(kernel.code->manifest.arguments, kernel.positions)) {
    switch (argument.kind) {
    case Manifest::Kind::Input:
      appendRows(*tensors.inputs[position]);
      break;
    case Manifest::Kind::Parameter: {
      const TensorView &view = *tensors.inputs[position];
      block.append({word(view.data, argument.column * bytesOf(argument.type)), view.strides[0]});
      break;
    }
    case Manifest::Kind::Output:
      appendRows(tensors.results[position]);
      break;
    case Manifest::Kind::Table: {
      // On a GPU positions are known there alone; tables that have no period are computed there, too.
      bool areKnown = positions && signature.device < 0;
      int64_t last = areKnown ? *std::max_element(positions, positions + stateRows) : 0;
      llvm::append_range(block, kernel.place(kernel.tables[position], last + tokens, executor));
      break;
    }
    case Manifest::Kind::Checkpoint:
    case Manifest::Kind::Kept: {
      const LaunchTensors::Checkpoint &checkpoint = tensors.checkpoints[position];
      block.append({word(checkpoint.data), checkpoint.chunkStride, checkpoint.headStride});
      break;
    }
    case Manifest::Kind::Window:
    case Manifest::Kind::State: {
      const auto *start =
          llvm::find_if(tensors.starts, [&](const auto &named) { return named.first == argument.name; });
      if (start != tensors.starts.end()) {
        const LaunchTensors::Checkpoint &checkpoint = start->second;
        block.append(
            {word(checkpoint.data), /*final=*/0, checkpoint.chunkStride, checkpoint.headStride,
             argument.shape.size() == 2 ? argument.shape[1] * argument.parts(kernel.code->manifest.slices) : 1});
        break;
      }
      const LaunchTensors::Entry &entry = tensors.entries[position];
      int64_t offset = argument.offset() * bytesOf(argument.type);
      int64_t places = argument.partial ? 1 : entry.strides.parts;
      block.append({word(entry.initial, offset), word(entry.final, offset), entry.strides.sequence,
                    entry.strides.head * places, entry.strides.row});
      if (argument.kind == Manifest::Kind::State && kernel.code->manifest.segments == Manifest::Segments::Apart)
        appendSegments(block, argument.name, tensors);
      break;
    }
    }
  }
  appendBoxes(block, signature, kernel, call, tensors);
  return block;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// A buffer of the calling thread, which grows to the largest size that was asked for and stays.
static char *threadScratch(int64_t bytes) {
  constexpr std::align_val_t alignment{64};
  struct Buffer {
    char *data = nullptr;
    int64_t size = 0;
    ~Buffer() { ::operator delete(data, alignment); }
  };
  static thread_local Buffer buffer;
  if (buffer.size < bytes) {
    ::operator delete(buffer.data, alignment);
    buffer.data = static_cast<char *>(::operator new(bytes, alignment));
    buffer.size = bytes;
  }
  return buffer.data;
}

static void runOnCpu(const CompiledKernel &code, const ArgumentBlock &block, int64_t items, const Executor &executor) {
  // Sequences of a packed batch differ in length, so that threads take items one by one.
  std::atomic<int64_t> next = 0;
  executor.parallelFor(std::min(items, executor.threads), [&](int64_t, int64_t) {
    char *scratch = threadScratch(code.manifest.scratchBytes);
    for (int64_t item = next++; item < items; item = next++)
      code.function(block.data(), item, item + 1, scratch);
  });
}

/// The bytes of the states of one work item.
static int64_t bytesOfStates(const Manifest &manifest) {
  int64_t bytes = 0;
  for (const Manifest::Argument &argument : manifest.arguments)
    if (argument.kind == Manifest::Kind::State || argument.kind == Manifest::Kind::Window)
      bytes += llvm::product_of(argument.shape) * bytesOf(argument.type);
  return bytes;
}

/// Runs a kernel whose states are updated where they lie. The first head of a group replaces what the others read: it
/// comes last.
static void stepOnCpu(const CompiledKernel &code, const ArgumentBlock &block, int64_t sequences, int64_t heads,
                      const int64_t *slots, const Executor &executor) {
  int64_t together = code.manifest.headsTogether(heads), groups = heads / together;
  auto stepGroups = [&](int64_t begin, int64_t end) {
    char *scratch = threadScratch(code.manifest.scratchBytes);
    for (int64_t group = begin; group < end; ++group) {
      if (slots && slots[group / groups] < 0)
        continue;
      for (int64_t item = (group + 1) * together - 1; item >= group * together; --item)
        code.function(block.data(), item, item + 1, scratch);
    }
  };
  // Waking threads takes as long as walking over states of this size.
  constexpr int64_t bytesWorthThreads = 1 << 18;
  if (sequences * heads * bytesOfStates(code.manifest) < bytesWorthThreads)
    stepGroups(0, sequences * groups);
  else
    executor.parallelFor(sequences * groups, stepGroups);
}

/// Counts the token of each sequence of a step.
static void advancePositions(int64_t *positions, const int64_t *slots, int64_t sequences) {
  for (int64_t sequence = 0; sequence < sequences; ++sequence)
    if (int64_t row = slots ? slots[sequence] : sequence; row >= 0)
      ++positions[row];
}

int64_t stretto::itemsOf(const Manifest &manifest, const Signature &signature, const OperatorCall &call,
                         const LaunchSegment &segment) {
  int64_t sequences = signature.sequences(call), tokens = signature.tokens(call);
  bool isPacked = call.sequenceOffsets.has_value();
  if (manifest.segments == Manifest::Segments::Apart && isPacked && signature.device >= 0) {
    int64_t places = tokens / (manifest.chunk * segment.intervalOfStarts) + sequences;
    return segment.apart ? places * signature.heads * manifest.slices : 0;
  }
  return manifest.items(sequences, signature.heads, tokens, segment.chunks, isPacked) * segment.apart;
}

llvm::Error stretto::launch(const Signature &signature, Signature::Kernel &kernel, const OperatorCall &call,
                            const LaunchTensors &tensors, const LaunchSegment &segment, const Executor &executor) {
  const CompiledKernel &code = *kernel.code;
  int64_t items = itemsOf(code.manifest, signature, call, segment);
  if (items == 0)
    return llvm::Error::success();
  ArgumentBlock block = fillBlock(signature, kernel, call, tensors, segment, executor);
  if (signature.device >= 0) {
    llvm::Error error =
        code.cuda->launch(signature.device, items, block, code.manifest.firstBoxWord(), executor.stream);
    return error || !kernel.ofLeft ? std::move(error)
                                   : launch(signature, *kernel.ofLeft, call, tensors, segment, executor);
  }
  if (!call.isStep) {
    runOnCpu(code, block, items, executor);
    return llvm::Error::success();
  }
  const int64_t *slots = call.slots ? static_cast<const int64_t *>(call.slots->data) : nullptr;
  stepOnCpu(code, block, signature.sequences(call), signature.heads, slots, executor);
  if (int64_t *positions = signature.positions(call))
    advancePositions(positions, slots, signature.sequences(call));
  return llvm::Error::success();
}

int64_t Signature::Kernel::workspaceBytes(const Signature &signature, const OperatorCall &call) const {
  LaunchSegment whole = LaunchSegment::whole(*this, signature.tokens(call));
  return systems.bytes(signature, call) + bytesOfLeft(itemsOf(code->manifest, signature, call, whole));
}

llvm::Expected<Operator::Prepared> Operator::prepare(Signature &signature, const OperatorCall &call, int64_t threads) {
  Prepared prepared;
  if (signature.items(call) == 0)
    return prepared;
  Signature::Choice choice = signature.choose(call, threads);
  if (choice.segments > 1) {
    if (llvm::Error error =
            signature.segmentsOf(choice.form, signature.savesRowsFor(call), keepsOf(call)).moveInto(prepared.segments))
      return error;
    prepared.count = choice.segments;
    prepared.workspaceBytes = prepared.segments->workspaceBytes(call, choice.segments);
    return prepared;
  }
  if (llvm::Error error = signature.kernelFor(call, threads, choice).moveInto(prepared.kernel))
    return error;
  prepared.workspaceBytes = prepared.kernel->workspaceBytes(signature, call);
  return prepared;
}

void LentRows::place(ArrayRef<KeptRow> rows, const TensorView &like, void *memory) {
  char *next = static_cast<char *>(memory);
  int64_t sequences = like.sizes[0], tokens = like.sizes[1];
  for (const KeptRow &row : rows)
    strides.push_back(row.strides(tokens));
  for (auto [row, ofRow] : llvm::zip_equal(rows, strides)) {
    TensorView &view = views.emplace_back();
    view.data = std::exchange(next, next + row.bytes(sequences * tokens));
    view.strides = ofRow;
  }
}

llvm::Error stretto::findInverses(const Signature &signature, const Signature::Systems &systems,
                                  const OperatorCall &call, LaunchTensors &tensors, void *memory, LentRows &inverses,
                                  const Executor &executor) {
  if (!systems.kernel)
    return llvm::Error::success();
  inverses.place(systems.inverses, signature.rowOf(call), memory);
  LaunchTensors ofSystems = tensors;
  ofSystems.results = inverses.views;
  if (llvm::Error error = launch(signature, *systems.kernel, call, ofSystems,
                                 LaunchSegment::whole(*systems.kernel, signature.tokens(call)), executor))
    return error;
  for (const TensorView &inverse : inverses.views)
    tensors.inputs.push_back(&inverse);
  return llvm::Error::success();
}

/// Sets the results of sequences without a slot to 0, which kernels of a device do themselves.
static void clearResultsOnCpu(const TensorView &slots, ArrayRef<TensorView> results) {
  for (const TensorView &result : results) {
    int64_t ofSequence = llvm::product_of(result.sizes.drop_front()) * bytesOf(*result.type);
    for (int64_t sequence = 0; sequence < result.sizes[0]; ++sequence)
      if (static_cast<const int64_t *>(slots.data)[sequence] < 0)
        std::memset(static_cast<char *>(result.data) + sequence * ofSequence, 0, ofSequence);
  }
}

llvm::Error Operator::run(Signature &signature, const Prepared &prepared, const OperatorCall &call,
                          ArrayRef<TensorView> results, ArrayRef<TensorView> finalState, void *workspace,
                          const Executor &executor) {
  if (prepared.segments)
    return prepared.segments->run(call, prepared.count, results, finalState, workspace, executor);
  Signature::Kernel *kernel = prepared.kernel;
  if (!kernel)
    return llvm::Error::success();
  if (signature.looksBackWithoutBound && (!call.initialState.empty() || !finalState.empty()))
    return llvm::createStringError("[R14] " + signature.op.name() +
                                   " looks back at earlier tokens without a bound; no state continues it");
  if (const std::string &reason = kernel->code->manifest.noChunkForm; !reason.empty())
    if (!signature.op.implementation->hasWarned.exchange(true))
      executor.warn((signature.op.name() + ": no chunk form: " + reason + "; runs token by token").str());
  if (call.slots && signature.device < 0)
    clearResultsOnCpu(*call.slots, results);
  LaunchTensors tensors;
  tensors.addInputs(call);
  tensors.results = results;
  tensors.left = static_cast<char *>(workspace) + kernel->systems.bytes(signature, call);
  LaunchSegment whole = LaunchSegment::whole(*kernel, signature.tokens(call));
  if (kernel->keeps) {
    tensors.checkpoints = call.kept->placesIn(call.states, call, signature);
    whole.interval = call.kept->tokens / kernel->keeps->tokens;
  }
  for (auto [index, strides] : llvm::enumerate(signature.stateStrides)) {
    const void *initial = call.initialState.empty() ? nullptr : call.initialState[index].data;
    const void *final = call.isStep ? initial : finalState.empty() ? nullptr : finalState[index].data;
    tensors.entries.push_back({.initial = initial, .final = final, .strides = strides});
  }
  LentRows inverses;
  if (llvm::Error error = findInverses(signature, kernel->systems, call, tensors, workspace, inverses, executor))
    return error;
  return launch(signature, *kernel, call, tensors, whole, executor);
}

//===----------------------------------------------------------------------===//
// Explaining
//===----------------------------------------------------------------------===//

int64_t stretto::bytesOfCall(const Signature &signature, const OperatorCall &call) {
  int64_t bytes = 0;
  for (const std::optional<TensorView> &view : call.arguments)
    if (view)
      bytes += llvm::product_of(view->sizes) * bytesOf(*view->type);
  int64_t tokens = signature.rowOf(call).sizes[0] * signature.tokens(call);
  for (const ResultShape &result : signature.results)
    bytes += tokens * llvm::product_of(result.sizes) * bytesOf(result.type);
  return bytes;
}

void stretto::explainKernel(llvm::json::OStream &json, const Signature::Kernel &kernel) {
  json.object([&] {
    json.attribute("kernel", kernel.code->manifest.symbol);
    json.attribute("from_cache", kernel.code->fromCache);
    json.attribute("compile_ms", kernel.code->milliseconds);
  });
}

llvm::Expected<std::string> Operator::explain(Signature &signature, const OperatorCall &call, int64_t threads) {
  Signature::Choice choice = signature.choose(call, threads);
  Signature::Segments *segments = nullptr;
  if (choice.segments > 1)
    if (llvm::Error error =
            signature.segmentsOf(choice.form, signature.savesRowsFor(call), keepsOf(call)).moveInto(segments))
      return error;
  const Signature::Kernel *kernel = segments ? &segments->lastKernel() : nullptr;
  if (!segments)
    if (llvm::Error error = signature.kernelFor(call, threads).moveInto(kernel))
      return error;
  const CompiledKernel &code = *kernel->code;
  const Manifest &manifest = code.manifest;
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream);
  json.object([&] {
    json.attribute("kernel", manifest.symbol);
    json.attribute("target", signature.target().name);
    if (signature.device < 0)
      signature.target().processor().explain(json);
    json.attribute("form", manifest.chunk == 1 ? "step" : "chunk");
    if (!manifest.noChunkForm.empty())
      json.attribute("no_chunk_form", manifest.noChunkForm);
    if (segments) {
      segments->explain(json, call, choice.segments);
    } else {
      json.attribute("schedule", signature.isStep() ? "step" : manifest.independentChunks ? "parallel" : "serial");
      if (!signature.isStep() && !manifest.independentChunks)
        json.attribute("why", signature.serialBecause.empty()
                                  ? "sequences and heads fill the machine, or sequences are short"
                                  : "no segments side by side: " + signature.serialBecause);
      if (kernel->systems.kernel || kernel->ofLeft) {
        json.attributeArray("kernels", [&] {
          for (const Signature::Kernel *each : std::initializer_list<const Signature::Kernel *>{
                   kernel->systems.kernel.get(), kernel, kernel->ofLeft.get()})
            if (each)
              explainKernel(json, *each);
        });
        json.attribute("workspace_bytes", kernel->workspaceBytes(signature, call));
      }
    }
    json.attribute("chunk", manifest.chunk);
    json.attribute("slices", manifest.slices);
    choice.explain(json);
    json.attribute("bytes", bytesOfCall(signature, call));
    json.attribute("items", itemsOf(manifest, signature, call, LaunchSegment::whole(*kernel, signature.tokens(call))) *
                                (segments ? segments->divide(call, choice.segments).count() : 1));
    if (signature.device < 0) {
      json.attribute("scratch_bytes", manifest.scratchBytes);
    } else {
      json.attribute("threads", manifest.threads);
      if (manifest.threadsAhead)
        json.attribute("threads_ahead", manifest.threadsAhead);
      if (manifest.threadsOfOutputs)
        json.attribute("threads_of_outputs", manifest.threadsOfOutputs);
      if (manifest.threadsOfProducer)
        json.attribute("threads_of_producer", manifest.threadsOfProducer);
      json.attribute("shared_bytes", manifest.sharedBytes);
    }
    json.attribute("decay_proven", signature.decays.proven);
    json.attribute("from_cache", code.fromCache);
    json.attribute("compile_ms", code.milliseconds);
    if (code.cuda)
      json.attribute("assembler", code.cuda->assembler());
  });
  return text;
}
