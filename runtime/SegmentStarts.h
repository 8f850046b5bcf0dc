//===- SegmentStarts.h - What segments side by side begin with --*- C++ -*-===//
//
// Where segments of sequences are walked side by side, one kernel walks them all for what their tokens do to states,
// and one finds from that what each begins with, one turn after the other (passes/declaration/ChunkSegments.h). What
// the two keep lies in memory that the caller lends, with a place for each segment of each sequence
// (runtime/Manifest.h).
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_SEGMENTSTARTS_H
#define STRETTO_RUNTIME_SEGMENTSTARTS_H

#include "runtime/KeptStates.h"

namespace stretto {

struct Operator::Signature::SegmentStarts {
  /// What is kept of each segment.
  using Kept = Checkpoint;
  static int64_t bytes(llvm::ArrayRef<Kept> kept, int64_t places);

  using Places = llvm::SmallVector<std::pair<llvm::StringRef, LaunchTensors::Checkpoint>, 4>;
  /// Takes places from memory, which begins behind them then.
  static Places lend(llvm::ArrayRef<Kept> kept, int64_t places, char *&memory);
  static LaunchTensors::Checkpoint placeOf(llvm::StringRef name, const Places &places);
  /// What a kernel that takes turns reads of what walks have left is called as they call it, or there is no place for
  /// it.
  static llvm::StringRef nameOfLeft(const Manifest::Argument &checkpoint);
  static llvm::Error expectLeft(const Kernel &turns, llvm::ArrayRef<Kept> left);
  /// So many places have the segments of a range, each of so many chunks of a kernel.
  static int64_t placesOf(const Signature &signature, const OperatorCall &call, const Kernel &kernel, int64_t chunks,
                          int64_t length);

  /// What the arguments of a kernel are called where the tensors for them are found.
  struct Names {
    std::vector<std::string> inputs, entries, checkpoints;
  };
  /// A kernel that takes segments, and what it keeps of each. States that are no entry have names of their own.
  static llvm::Expected<std::unique_ptr<Kernel>> make(const Signature &signature, const KernelRequest &request,
                                                      Names names, std::vector<Kept> &kept);

  /// The kernels that walk, none where others leave what is found, and what they leave; the other, and what segments
  /// begin with.
  llvm::SmallVector<std::unique_ptr<Kernel>, 2> walks;
  std::unique_ptr<Kernel> turns;
  std::vector<Kept> left, begun;

  /// The kernels of requests; `isKnown` says what a segment begins with that was found before.
  static llvm::Expected<SegmentStarts> create(const Signature &signature, llvm::ArrayRef<KernelRequest> walks,
                                              const KernelRequest &turns, const Names &names,
                                              llvm::function_ref<bool(llvm::StringRef)> isKnown);
  /// Finds what the segments of a range begin with, and keeps it in `begun`. The tensors are those of a walk, `range`
  /// its launch.
  llvm::Error find(const Signature &signature, const OperatorCall &call, LaunchTensors tensors,
                   const LaunchSegment &range, const Places &left, const Places &begun, const Executor &executor);
};

} // namespace stretto

#endif // STRETTO_RUNTIME_SEGMENTSTARTS_H
