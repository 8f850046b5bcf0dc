//===- KernelNames.h - What the kernels of one variant are called -*- C++ -*-===//
//
// A variant `f` that becomes several kernels has its results from @f. The others add what they leave to its name
// (GradientParts.h, ChunkSegments.h, stretto-invert-systems).
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_KERNELNAMES_H
#define STRETTO_PASSES_DECLARATION_KERNELNAMES_H

#include "llvm/ADT/StringRef.h"

namespace stretto::suffix {

/// Of gradients.
inline constexpr llvm::StringLiteral segmentStarts = "_segment_starts", checkpoints = "_checkpoints", rows = "_rows",
                                     cotangents = "_cotangents", sums = "_sums", later = "_later";
/// Of segments that are walked side by side; of a gradient, of its states of reverse time.
inline constexpr llvm::StringLiteral tails = "_tails", totals = "_totals", totalStarts = "_total_starts",
                                     transitions = "_transitions", writes = "_writes", starts = "_starts",
                                     cotangentWrites = "_cotangent_writes", cotangentStarts = "_cotangent_starts",
                                     cotangentTails = "_cotangent_tails", sumTurns = "_sum_turns";
/// Of what solves systems of equations, on a GPU (stretto-invert-systems).
inline constexpr llvm::StringLiteral systems = "_systems";

} // namespace stretto::suffix

namespace stretto {

/// What the names of rows that such a kernel leaves begin with, and end with where they are what rounding took.
inline constexpr llvm::StringLiteral inversePrefix = "inverse.", inverseRestSuffix = ".rest";

/// What is added to the name of a state by the kernel that reads what a segment has left in it.
inline constexpr llvm::StringLiteral leftSuffix = ".left";

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_KERNELNAMES_H
