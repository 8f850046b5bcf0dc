//===- GradientParts.h - Which kernel of a gradient does what ---*- C++ -*-===//
//
// The gradient `f` is found by two walks. The kernel @f takes the chunks from the last to the first and carries the
// states of reverse time. What it asks for of the forward states the kernel @f_checkpoints keeps, which walks before
// it: the states at the start of each chunk, and rows (KeptRows.h). Where nothing runs in reverse, @f walks forward
// alone.
//
// A gradient of a row that needs nothing of reverse time, that of a query for one, is a result of the kernel which
// walks forward, where the other then asks for no state at all, but for rows of fewer numbers than checkpoints have:
// forward states are computed once and kept nowhere. Where the other asks for states anyway, as for the products of a
// decay's gradient, it computes all results.
//
// Where checkpoints are not all that a walk can begin with, @f_segment_starts keeps the whole of it at the start of
// segments.
//
// Where segments are walked side by side, what their tokens do to the states of reverse time is found before the walk
// back. If nothing decays, that is a sum, in whatever order: then the walk forward finds it beside the results that are
// its own, of rows that it has anyway.
//
// Divided further, a third walk carries the states of reverse time and nothing else: @f_cotangents keeps those that
// rows read at the end of each chunk. Then @f, which has both as checkpoints and computes all results, carries what is
// added up over all tokens, or nothing: its chunks are independent.
//
// Its kernels would each read the states of the walk forward for a few numbers of a token, as what its output was
// divided by: these are kept, and found by @f_rows, of each chunk from its checkpoints.
//
// Where all chunks are to be independent what is added up has a walk of its own, @f_sums, of rows that @f keeps for it.
// What convolutions and delays of reverse time hand on to earlier tokens it carries, too, and leaves the results that
// are made of it. All rows that the walk forward would keep @f_rows finds: so no walk does more than carry states.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_GRADIENTPARTS_H
#define STRETTO_PASSES_DECLARATION_GRADIENTPARTS_H

#include "dialect/stretto/StateChain.h"
#include "llvm/ADT/SetVector.h"

namespace stretto {

/// The operations that rows depend on, those that change the states they read among them.
class NeededOperations {
public:
  /// Begins from rows, and does not ask what the rows in `known` are made of.
  NeededOperations(VariantOp variant, llvm::ArrayRef<mlir::Value> rows, const llvm::SetVector<mlir::Value> &known = {});

  bool contains(mlir::Operation *op) const { return operations.contains(op); }

private:
  llvm::DenseSet<mlir::Operation *> operations;
};

struct GradientParts {
  /// Rows that the kernel which walks forward keeps for the other.
  llvm::SetVector<mlir::Value> kept;
  /// The positions of results that it leaves itself.
  llvm::SmallVector<unsigned> forwardResults;
  /// The roots of states, and operations with tails, that the kernel which walks back asks for, and those that the
  /// other one carries.
  llvm::DenseSet<mlir::Operation *> asked, carried;
  /// The roots of states in reverse that a walk of their own carries, those of them that rows read, which it keeps, and
  /// what of the former states in reverse that are carried ask for: those, or all.
  llvm::DenseSet<mlir::Operation *> apart, keptApart, askedApart;
  /// Those that are added up over all tokens, of which a segment leaves its part: where a walk carries the others, all
  /// else; otherwise the gradients of parameters that no row reads.
  llvm::DenseSet<mlir::Operation *> addedUp;
  /// Those, all or none, of which the walk forward of a segment finds what its tokens write.
  llvm::DenseSet<mlir::Operation *> writtenForward;
  /// Whether a kernel of its own finds the kept rows, and what of the former it asks for.
  bool findsRowsApart = false;
  llvm::DenseSet<mlir::Operation *> askedForRows;
  /// Where sums have a walk of their own: the roots of states in reverse that no row reads, which it adds up; the
  /// operations with tails in reverse, which it carries, and the positions of the results that are made of these; the
  /// forward operations with tails that it asks for; and the rows that are kept for all that.
  llvm::DenseSet<mlir::Operation *> sums, tailsOfSums, askedForSums;
  llvm::SmallVector<unsigned> resultsOfSums;
  llvm::SetVector<mlir::Value> keptForSums;
  /// Whether there are no states but such as add up the gradients of parameters over all tokens.
  bool onlyAddsUp = false;
  /// Whether something runs in reverse, or is left to the kernel which walks back: all but what one walk forward finds.
  bool walksBack = true;

  /// Whether the walk that carries the states of reverse time has one: that of the results, or one apart.
  bool isCarriedBack(mlir::Operation *root) const { return !addedUp.contains(root); }
  bool addsUpApart() const { return !sums.empty() || !tailsOfSums.empty(); }
  /// Whether there is a walk before the one back.
  bool walksForward() const { return !carried.empty() || !kept.empty() || !forwardResults.empty(); }

  /// The parts of a gradient that is computed in chunks of so many tokens; `divided`, further as far as it can be, and
  /// with `independentChunks` so that only states are carried.
  static mlir::FailureOr<GradientParts> find(VariantOp gradient, int64_t tokens, bool divided, bool independentChunks);
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_GRADIENTPARTS_H
