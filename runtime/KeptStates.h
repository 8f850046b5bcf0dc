//===- KeptStates.h - States that a call keeps for its gradient -*- C++ -*-===//
//
// The walk back of a gradient asks for the states at the start of each chunk. A kernel of the gradient finds them by a
// walk forward, which the call itself has done: where a call is recorded, and its kernel takes chunks of as many
// tokens, that keeps them (stretto-keep-states) in memory that the caller lends until the gradient is asked for, and
// nothing walks forward twice. So it is where they take no more than what gradients may take to work with: the memory
// is the same, but taken from the call on.
//
// Where the walk forward finds other things, too, as the gradients of queries, it is not spared. But if it takes
// segments side by side, a call keeps what these begin with, and no kernels find that.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_KEPTSTATES_H
#define STRETTO_RUNTIME_KEPTSTATES_H

#include "runtime/Launch.h"

namespace stretto {

/// What is kept of a state at the start of a chunk, or of a segment: so many numbers for so many heads.
struct Operator::Signature::Checkpoint {
  std::string name;
  int64_t heads, size;
  ElementType type;

  static Checkpoint of(const Signature &signature, const Manifest &manifest, const Manifest::Argument &argument);
  /// Of so many, begun at a multiple of a cache line.
  int64_t bytes(int64_t count) const { return llvm::alignTo(count * heads * size * bytesOf(type), 64); }
  LaunchTensors::Checkpoint at(const void *memory, int64_t count) const { return {memory, heads * size, size, count}; }
  bool operator==(const Checkpoint &) const = default;
};

struct KeptStates {
  using Signature = Operator::Signature;

  Keeps keeps = Keeps::Nothing;
  /// Tokens of a chunk, or from the start of one segment to that of the next.
  int64_t tokens = 0;
  /// By their names.
  std::vector<Signature::Checkpoint> states;

  /// Those that a kernel keeps, at the start of each of its chunks unless its launch says otherwise.
  static KeptStates of(const Signature &signature, const Manifest &manifest, Keeps keeps);
  /// Whether a kernel that keeps these can keep those that are asked for.
  bool canBe(const KeptStates &asked) const;
  bool contains(llvm::StringRef name) const;
  std::vector<std::string> names() const;
  int64_t bytes(const OperatorCall &call, const Signature &signature) const;
  /// Where each lies in the memory of all.
  llvm::SmallVector<LaunchTensors::Checkpoint, 2> placesIn(const void *memory, const OperatorCall &call,
                                                           const Signature &signature) const;
  bool operator==(const KeptStates &) const = default;
};

/// What a call keeps.
inline Keeps keepsOf(const OperatorCall &call) { return call.kept ? call.kept->keeps : Keeps::Nothing; }

} // namespace stretto

#endif // STRETTO_RUNTIME_KEPTSTATES_H
