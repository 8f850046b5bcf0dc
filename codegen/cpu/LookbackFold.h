//===- LookbackFold.h - A look-back in the making ---------------*- C++ -*-===//
//
// What the parts of a look-back share (Lookback.cpp, LookbackRanges.cpp, LookbackSums.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_CODEGEN_CPU_LOOKBACKFOLD_H
#define STRETTO_CODEGEN_CPU_LOOKBACKFOLD_H

#include "codegen/cpu/KernelLowering.h"

namespace stretto::cpu {

/// Sums of exponentials of one stream of scores, one for each token. Differences are taken from `shift`, which is the
/// largest score so far or, where there is none, 0: no difference of two infinities is formed.
struct Exponentials {
  mlir::Value scores;         // of the present tile
  mlir::Value largest, shift; // of each token
  mlir::Value scale, change;  // of the present tile: what the sums are scaled by, and how much the shift has grown
  mlir::Value sums;           // partial sums, a vector for each token
  mlir::Value ties, hasSame;  // where they are asked for: partial sums, and 1 while no larger score has come, or 0
};

struct KernelLowering::LookbackFold {
  bool isAhead = false;
  int64_t pastTokens = 0; // of a tile that is met
  /// Tokens of the sequence where the range of each token begins and ends; ahead, of each token of the chunk that is
  /// met.
  mlir::Value begins, ends;
  /// The tile that is met: its first token, and how many tokens of it exist.
  mlir::Value first, count;
  llvm::SmallVector<Exponentials, 2> streams;
  /// Weights of the pairs, 0 where a pair is left out.
  mlir::Value weights;
  /// Partial maxima, and of a divergence partial sums of weighted differences: a vector for each token.
  mlir::Value maxima, differences;
};

/// A token in a buffer of tokens.
mlir::Value loadIndex(VectorBuilder &builder, mlir::Value buffer, mlir::Value place);

} // namespace stretto::cpu

#endif // STRETTO_CODEGEN_CPU_LOOKBACKFOLD_H
