//===- SomeSequences.h - A part of a call's sequences -----------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_SOMESEQUENCES_H
#define STRETTO_RUNTIME_SOMESEQUENCES_H

#include "runtime/Operator.h"
#include <deque>

namespace stretto {

/// Some of the sequences of a call that are not packed, and of its gradient, as a call of their own: the same tensors
/// from the first of these sequences on. No sequence knows of another, so that what is found is the same bit by bit.
class SomeSequences {
public:
  SomeSequences(const Operator &op, const OperatorCall &whole, int64_t first, int64_t count);
  /// With what the gradient of the whole takes and leaves. The workspace is used by one part after the other.
  SomeSequences(const Operator &op, const OperatorCall &whole, const GradientCall &gradient, int64_t first,
                int64_t count);
  SomeSequences(const SomeSequences &) = delete;

  const OperatorCall &call() const { return some; }
  const GradientCall &gradientCall() const { return someOfGradient; }

private:
  /// Makes a tensor whose first axis counts sequences one of these alone.
  void narrow(TensorView &view);
  void narrow(std::optional<TensorView> &view) {
    if (view)
      narrow(*view);
  }

  int64_t first, count;
  OperatorCall some;
  GradientCall someOfGradient;
  std::deque<llvm::SmallVector<int64_t, 4>> sizes;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_SOMESEQUENCES_H
