//===- Launch.cpp - Running a kernel on the tensors of a call -------------===//

#include "runtime/Signature.h"
#include "llvm/Support/JSON.h"
#include <atomic>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;

//===----------------------------------------------------------------------===//
// The argument block
//===----------------------------------------------------------------------===//

using ArgumentBlock = SmallVector<int64_t, 96>;

static int64_t word(const void *pointer) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer)); }

/// A pointer that many bytes further.
static int64_t word(const void *pointer, int64_t offset) { return pointer ? word(pointer) + offset : 0; }

Signature::Kernel::TableWords Signature::Kernel::place(Table &table, int64_t end, int device,
                                                       const Executor &executor) {
  std::lock_guard<std::mutex> lock(placing);
  int64_t period = table.op.getPeriod().value_or(0);
  int64_t needed = std::max<int64_t>(table.op.getVarying() ? end : period, 1);
  if (!table.data || table.positions < needed) {
    table.positions = table.op.getVarying() ? llvm::PowerOf2Ceil(needed) : needed;
    table.numbers.push_back(evaluateTable(table.op, table.heads, table.positions, table.width, table.type));
    const std::vector<char> &bytes = table.numbers.back();
    table.data = device < 0 ? bytes.data() : executor.upload(bytes);
    if (device >= 0)
      table.numbers.clear();
  }
  return {word(table.data), table.positions * table.width, table.varies() ? table.width : 0, period};
}

static ArgumentBlock fillBlock(const Signature &signature, Signature::Kernel &kernel, const OperatorCall &call,
                               ArrayRef<TensorView> results, ArrayRef<TensorView> finalState,
                               const Executor &executor) {
  const int64_t *positions = signature.positions(call);
  int64_t sequences = signature.sequences(call), tokens = signature.rowOf(call).sizes[1];
  ArgumentBlock block = {sequences, tokens, signature.heads,
                         call.sequenceOffsets ? word(call.sequenceOffsets->data) : 0, word(positions)};
  for (auto [argument, position] : llvm::zip_equal(kernel.code->manifest.arguments, kernel.positions)) {
    switch (argument.kind) {
    case Manifest::Kind::Input: {
      const TensorView &view = *call.arguments[position];
      block.append({word(view.data), view.strides[0], view.strides[1], view.strides[2]});
      break;
    }
    case Manifest::Kind::Parameter: {
      const TensorView &view = *call.arguments[position];
      block.append({word(view.data), view.strides[0]});
      break;
    }
    case Manifest::Kind::Output: {
      const TensorView &view = results[position];
      block.append({word(view.data), view.strides[0], view.strides[1], view.strides[2]});
      break;
    }
    case Manifest::Kind::Table: {
      int64_t last = positions ? *std::max_element(positions, positions + sequences) : 0;
      llvm::append_range(block, kernel.place(kernel.tables[position], last + tokens, signature.device, executor));
      break;
    }
    case Manifest::Kind::Checkpoint:
    case Manifest::Kind::Kept:
      llvm_unreachable("a kernel of a variant that is no gradient has no checkpoints");
    case Manifest::Kind::State: {
      const Signature::EntryStrides &strides = signature.stateStrides[position];
      int64_t offset = argument.column * bytesOf(argument.type);
      const void *initial = call.initialState.empty() ? nullptr : call.initialState[position].data;
      const void *final = finalState.empty() ? nullptr : finalState[position].data;
      block.append({word(initial, offset), word(final, offset), strides.sequence, strides.head, strides.row});
      break;
    }
    }
  }
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

llvm::Error Operator::run(Signature &signature, const OperatorCall &call, ArrayRef<TensorView> results,
                          ArrayRef<TensorView> finalState, const Executor &executor) {
  int64_t items = signature.items(call);
  if (items == 0)
    return llvm::Error::success();
  llvm::Expected<Signature::Kernel *> kernel = signature.kernelFor(call, executor.threads);
  if (!kernel)
    return kernel.takeError();
  if (signature.looksBack && (!call.initialState.empty() || !finalState.empty()))
    return llvm::createStringError("[R14] " + signature.op.name() +
                                   " looks back at earlier tokens; no kernel returns their rows or continues from them "
                                   "yet");
  if (signature.device >= 0 && signature.positions(call))
    return llvm::createStringError("[R14] " + signature.op.name() +
                                   " depends on the position of a token; no kernel for a GPU continues it from a state "
                                   "yet");
  const CompiledKernel &code = *(*kernel)->code;
  items = code.manifest.items(items, signature.rowOf(call).sizes[1], call.sequenceOffsets.has_value());
  ArgumentBlock block = fillBlock(signature, **kernel, call, results, finalState, executor);
  if (signature.device >= 0)
    return code.cuda->launch(signature.device, items, block, executor.stream);
  runOnCpu(code, block, items, executor);
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Explaining
//===----------------------------------------------------------------------===//

llvm::Expected<std::string> Operator::explain(Signature &signature, const OperatorCall &call, int64_t threads) {
  int64_t items = signature.items(call);
  llvm::Expected<Signature::Kernel *> kernel = signature.kernelFor(call, threads);
  if (!kernel)
    return kernel.takeError();
  const CompiledKernel &code = *(*kernel)->code;
  const Manifest &manifest = code.manifest;
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream);
  json.object([&] {
    json.attribute("kernel", manifest.symbol);
    json.attribute("target", signature.target().name);
    json.attribute("form", "chunk");
    json.attribute("schedule", manifest.independentChunks ? "parallel" : "serial");
    json.attribute("chunk", manifest.chunk);
    json.attribute("slices", manifest.slices);
    json.attribute("items", manifest.items(items, signature.rowOf(call).sizes[1], call.sequenceOffsets.has_value()));
    if (signature.device < 0) {
      json.attribute("scratch_bytes", manifest.scratchBytes);
    } else {
      json.attribute("threads", manifest.threads);
      json.attribute("shared_bytes", manifest.sharedBytes);
    }
    json.attribute("decay_proven", signature.decays.proven);
    json.attribute("from_cache", code.fromCache);
    json.attribute("compile_ms", code.milliseconds);
  });
  return text;
}
