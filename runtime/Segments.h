//===- Segments.h - Segments of sequences, side by side ---------*- C++ -*-===//
//
// Where sequences and heads are few, a block for each leaves most of a chip idle, and a call takes as long as one block
// needs for all chunks. Then sequences are divided into segments, which blocks of their own walk at the same time, one
// kernel after the other (passes/declaration/ChunkSegments.h):
//
//   tails    the last chunks before each segment, for the rows that its convolutions and delays look back to; left out
//            where there are none
//   totals   each segment but the last, for what it adds to the totals of scans, and what each begins with; left out
//            where there are none
//   writes   each segment but the last, for what it does to the states
//   starts   one segment after the other, for what each begins with
//   results  each segment, for all else
//
// What they leave for each other lies in a workspace that the caller lends, with a place for each segment of each
// sequence (runtime/Manifest.h). How many segments there are follows from the shapes alone, also of a packed batch,
// whose offsets are known on the device: a sequence that is shorter than others has fewer.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_SEGMENTS_H
#define STRETTO_RUNTIME_SEGMENTS_H

#include "runtime/SegmentStarts.h"
#include "llvm/Support/JSON.h"

namespace stretto {

class Operator::Signature::Segments {
public:
  /// The kernels of a form for calls whose longest sequence is divided into as many segments as `count` says;
  /// that of the results keeps states for a gradient, or nothing.
  static llvm::Expected<std::unique_ptr<Segments>> create(const Signature &signature, const Form &form, bool savesRows,
                                                          Keeps keeps);

  /// The chunks of the longest sequence that there may be, and those of a segment.
  struct Division {
    int64_t chunks, length;
    int64_t count() const { return llvm::divideCeil(chunks, length); }
  };
  Division divide(const OperatorCall &call, int64_t count) const;
  int64_t workspaceBytes(const OperatorCall &call, int64_t count) const;
  /// Runs a call that was checked, its sequences divided into so many segments at most.
  llvm::Error run(const OperatorCall &call, int64_t count, llvm::ArrayRef<TensorView> resultViews,
                  llvm::ArrayRef<TensorView> finalState, void *workspace, const Executor &executor);
  void explain(llvm::json::OStream &json, const OperatorCall &call, int64_t count) const;
  /// The kernel that computes the results.
  const Kernel &lastKernel() const { return *results; }

  /// For kernels of the gradient that walk segments of so many tokens: the chunks of a segment; the bytes of what it
  /// begins with, and of what is needed only to find that; and what it begins with, found and kept in `begun`.
  Division divideInto(const OperatorCall &call, int64_t tokens) const;
  /// The states that it begins with.
  const std::vector<SegmentStarts::Kept> &statesBegun() const { return passes.back().begun; }
  int64_t bytesBegun(const OperatorCall &call, Division division) const;
  int64_t bytesLeft(const OperatorCall &call, Division division) const;
  /// The inverses that the kernels take lie in `left`, too, and are placed there.
  llvm::Expected<SegmentStarts::Places> findStarts(const OperatorCall &call, Division division, char *begun, char *left,
                                                   LentRows &inverses, const Executor &executor);

private:
  explicit Segments(const Signature &signature) : signature(signature) {}

  /// Places for the segments of all sequences.
  int64_t placesOf(const OperatorCall &call, Division division) const;
  /// The tensors of a call, and what is known so far of what segments begin with.
  LaunchTensors tensorsOf(const OperatorCall &call, const SegmentStarts::Places &begun, const LentRows &inverses) const;
  LaunchSegment rangeOf(Division division) const;
  int64_t itemsOfResults(const OperatorCall &call, Division division) const;
  /// Chunks before a segment that the rows may lie in that it looks back to.
  int64_t chunksOfTails() const;

  const Signature &signature;
  std::unique_ptr<Kernel> results;
  /// How many of its blocks a multiprocessor has at a time, as far as calls have so many for each.
  int64_t blocksOfMultiprocessor = 1;
  /// Null where there are none.
  std::unique_ptr<Kernel> tails;
  std::vector<SegmentStarts::Kept> ofTails;
  Systems systems;
  /// In order: of totals, where there are some, and of states.
  std::vector<SegmentStarts> passes;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_SEGMENTS_H
