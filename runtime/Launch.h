//===- Launch.h - Running a kernel on the tensors of a call -----*- C++ -*-===//
#ifndef STRETTO_RUNTIME_LAUNCH_H
#define STRETTO_RUNTIME_LAUNCH_H

#include "runtime/Signature.h"
#include "llvm/Support/JSON.h"

namespace stretto {

/// The tensors that kernels of a call find by their positions.
struct LaunchTensors {
  struct Entry {
    const void *initial = nullptr, *final = nullptr;
    Operator::Signature::EntryStrides strides = {};
  };
  struct Checkpoint {
    const void *data = nullptr;
    int64_t chunkStride = 0, headStride = 0;
    int64_t count = 0; // where boxes are copied of them, how many there are
  };

  llvm::SmallVector<const TensorView *, 8> inputs;
  llvm::ArrayRef<TensorView> results;
  /// Where a kernel that expects something says of each work item whether it has left it; not read where none does.
  void *left = nullptr;
  llvm::SmallVector<Entry, 4> entries;
  llvm::SmallVector<Checkpoint, 2> checkpoints;
  /// Checkpoints that stand in for the initial state, by the names of states, where a segment begins with them.
  llvm::SmallVector<std::pair<llvm::StringRef, Checkpoint>, 2> starts;
  /// Of segments that are walked side by side: what states begin with, but for the first, and where they are left.
  llvm::SmallVector<std::pair<llvm::StringRef, Checkpoint>, 4> segmentStarts, segmentEnds;

  void addInputs(const OperatorCall &call) {
    for (const std::optional<TensorView> &view : call.arguments)
      inputs.push_back(view ? &*view : nullptr);
  }
};

/// The chunks of each sequence that a launch walks, those from one checkpoint to the next, and from one initial state
/// to the next where these are checkpoints. Where segments are apart, the chunks before each that are walked in its
/// place, those that have places for what segments begin with and leave, and how many segments there are
/// (runtime/Manifest.h).
struct LaunchSegment {
  int64_t first = 0, chunks, interval = 1, intervalOfStarts = 0, before = 0, firstPlaced = 0, chunksPlaced = 0,
          apart = 1;

  static LaunchSegment whole(const Operator::Signature::Kernel &kernel, int64_t tokens) {
    return {.chunks = static_cast<int64_t>(llvm::divideCeil(tokens, kernel.code->manifest.chunk))};
  }
};

/// The work items of a launch.
int64_t itemsOf(const Manifest &manifest, const Operator::Signature &signature, const OperatorCall &call,
                const LaunchSegment &segment);

llvm::Error launch(const Operator::Signature &signature, Operator::Signature::Kernel &kernel, const OperatorCall &call,
                   const LaunchTensors &tensors, const LaunchSegment &segment, const Executor &executor);

/// Rows that one kernel leaves for others, in memory that is lent: one after the other, of as many sequences and tokens
/// as `like` has.
struct LentRows {
  llvm::SmallVector<TensorView, 2> views;
  llvm::SmallVector<std::array<int64_t, 4>, 2> strides;

  void place(llvm::ArrayRef<KeptRow> rows, const TensorView &like, void *memory);
};

/// Has inverses found for kernels that take them, if these do, as further inputs.
llvm::Error findInverses(const Operator::Signature &signature, const Operator::Signature::Systems &systems,
                         const OperatorCall &call, LaunchTensors &tensors, void *memory, LentRows &inverses,
                         const Executor &executor);

/// One of the kernels that run one after the other.
void explainKernel(llvm::json::OStream &json, const Operator::Signature::Kernel &kernel);

} // namespace stretto

#endif // STRETTO_RUNTIME_LAUNCH_H
