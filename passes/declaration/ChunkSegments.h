//===- ChunkSegments.h - Segments of a sequence, side by side ---*- C++ -*-===//
//
// From a state S a segment leaves D S + U, where D is the product of its decays and U what it leaves from the state 0,
// whatever S is. So segments are walked side by side, first for U and D alone, then, each from its own start, for all
// else. Three kernels come beside the one that computes the results:
//
//   @f_tails   walks the last chunks before a segment, and leaves the rows that its convolutions and delays begin with
//   @f_writes  walks a segment, and leaves U, from the initial state in the first segment, and D
//   @f_starts  finds from those the state that each segment begins with, one segment after the other
//
// Where a row that is written depends on a read of the state, by the feedback of a delta rule (ChunkFeedback.h), a
// matrix X adds to that, and a segment leaves D S + X S + U (ChunkTransition.h):
//
//   @f_transitions   walks a segment, and leaves X and D
//
// What is written may depend on a scan, whose total is known at the start of a segment before the states are: @f_totals
// finds what the tokens of a segment add to it, and @f_total_starts what each segment begins with.
//
// Of what looks back at earlier tokens nothing is handed on: their rows are those of inputs, and of windows before the
// first. A state that is read at an earlier time is that of the time of the segment's first token; what joins it later
// is what the tokens between the two times write (ChunkEarlierReads.h).
//
// The states of reverse time of a gradient are found in the same way, from the last segment to the first:
//
//   @f_cotangent_writes   walks a segment back, and leaves what that does to them
//   @f_cotangent_starts   finds from that and the cotangents of the final state what each segment begins with at its
//                         end
//
// Where that is but a sum, the walk forward may find it, and there is no @f_cotangent_writes (GradientParts.h).
//
// Of what is added up over all tokens, as the gradients of parameters, a segment leaves its part, whatever comes behind
// it. Where a walk of its own carries the states, the one that leaves the results carries rows, too, that are added to
// those of earlier tokens:
//
//   @f_sum_turns          adds the parts of segments up
//   @f_cotangent_tails    walks the first chunks behind a segment, and leaves what they add to its rows
//
// Forward states are walked anew for a gradient, from where the kernels above find that segments begin.
//
// A sum of logarithms stands for D where all decays are logarithms, otherwise the product, which is -inf before the
// first.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKSEGMENTS_H
#define STRETTO_PASSES_DECLARATION_CHUNKSEGMENTS_H

#include "dialect/chunk/ChunkDialect.h"
#include "dialect/stretto/StrettoDialect.h"
#include "passes/declaration/GradientParts.h"

namespace stretto {

/// Why the segments of sequences are not walked side by side, and the operation that prevents it.
struct SegmentProblem {
  mlir::Operation *op;
  std::string reason;
};
/// Nothing where they can be.
std::optional<SegmentProblem> findSegmentProblem(VariantOp variant);
/// The same of what a gradient carries back.
std::optional<SegmentProblem> findSegmentProblem(VariantOp gradient, const GradientParts &parts);

/// What the tokens of a segment do to a state: the states of @f_writes that hold U, and D where the state decays, and
/// of @f_transitions that holds X, which multiplies it from the left where it is of rows. Or what they add to the total
/// of a scan, after which it is shifted by logarithms.
struct SegmentEffect {
  mlir::BlockArgument state, decay = {}, transition = {};
  chunk::DecayForm form = chunk::DecayForm::Log;
  chunk::Side decayed = chunk::Side::Rows, multiplied = chunk::Side::Rows;
  std::optional<chunk::ScanKind> scan = {};
};
/// Makes the kernel that finds what segments begin with, behind that of what they leave. States that were added up in
/// products of operands of 16 bits meet X in such products, too, with what rounding takes from both. `reverse`: the
/// last segment comes first.
void buildSegmentStarts(chunk::KernelOp writes, llvm::StringRef name, llvm::ArrayRef<SegmentEffect> effects,
                        bool isRounded, bool reverse);
/// Makes the kernel that adds up what segments leave in some states, behind that of these.
void buildSegmentSums(chunk::KernelOp parts, llvm::StringRef name, llvm::ArrayRef<mlir::BlockArgument> states);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKSEGMENTS_H
