//===- Form.h - What of a kernel's form is chosen ---------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_FORM_H
#define STRETTO_RUNTIME_FORM_H

#include <compare>
#include <cstdint>

namespace stretto {

/// What a program leaves open: how many tokens, blocks and warps work on it. A further choice is a further member,
/// which CompiledKernel's key, the class Tuner and the text of TunedForms have to know.
struct Form {
  /// Tokens of a chunk. 0: the model chooses them (Lowering.cpp), and divides values further where registers ask for
  /// it.
  int64_t chunk = 0;
  /// Into how many parts the value axis is divided: a power of two.
  int64_t slices = 1;
  /// Warps of a block on a GPU; 0: as many as the states ask for.
  int64_t warps = 0;
  /// Further warps on a GPU, which compute what no state reaches ahead of those that walk; 0: none. Fewer than 0: as
  /// many as the model finds worth their while, where the other warps are its choice, too.
  int64_t ahead = 0;
  /// Further warps on a GPU, which find outputs behind those that walk; 0: none. Fewer than 0: as
  /// many as the model finds worth their while.
  int64_t outputs = 0;
  /// How many blocks a call has for each multiprocessor of a GPU, 2 where there are more: where two of four warps fit,
  /// they are as fast as one of eight, which forms much of what a warpgroup needs twice.
  int64_t blocks = 1;
  /// How many walks back a gradient has: with 2, one of them carries the states of reverse time and nothing else
  /// (passes/declaration/GradientParts.h), as far as they can be told apart. 0: the model chooses.
  int64_t walks = 0;
  /// Into how many parts at most those walks of a gradient divide the values that carry states and nothing else, where
  /// the other kernels divide none: a power of two.
  int64_t walkSlices = 1;

  /// Of a chunk: more fit no block.
  static constexpr int64_t mostTokensOnGpu = 64;

  bool isFixed() const { return chunk != 0; }
  auto operator<=>(const Form &) const = default;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_FORM_H
