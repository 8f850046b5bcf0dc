//===- Groups.h - Some sequences and heads of a call ------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_TORCH_GROUPS_H
#define STRETTO_RUNTIME_TORCH_GROUPS_H

#include "runtime/torch/TorchOperator.h"

namespace stretto::torch_layer {

/// A division of calls into ones of some of their sequences, or of some heads of each sequence, which know of no
/// others.
struct Groups {
  /// Sequences of each group, the last of which may have fewer; packed ones are never apart.
  int64_t sequences = 1;
  /// Of those sequences one group for each part of the heads.
  int64_t ofHeads = 1;
  /// Groups of all sequences and heads.
  int64_t count = 1;

  /// At least `wanted` groups of `batch` sequences, of heads only where sequences are too few; as many as there are
  /// where these are fewer. `heads` is a number of heads that divides all others but 1.
  static Groups of(int64_t wanted, int64_t batch, int64_t heads);
};

/// One of them, and what it has of tensors.
struct Group {
  Group(const Groups &groups, int64_t index, int64_t batch);

  /// What it has of a tensor whose first axis counts sequences, or not, and another one heads, if there is such an
  /// axis; and whether no other group has that.
  at::Tensor of(const at::Tensor &tensor, bool ofSequences, int64_t headAxis) const;
  bool isAlone(const at::Tensor &tensor, bool ofSequences, int64_t headAxis) const;
  bool isFirstOfHeads() const { return part == 0; }

private:
  int64_t firstSequence, sequences, batch, part, parts;
};

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_GROUPS_H
