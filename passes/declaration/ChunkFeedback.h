//===- ChunkFeedback.h - Rows that depend on their own state ----*- C++ -*-===//
//
// A delta rule writes what a state does not recall yet: r_t = c_t + m_t * (what token t reads of the state), with one
// number m_t for each token. Within a chunk a read is what it sees of the start, x_t, and of the rows before it, which
// depend on reads in turn:
//
//   r_t = c_t + m_t (x_t + sum over j < t of P_tj r_j)
//
// with the products P of `decay_dot`. So the rows are the solution of (1 + L) R = C + m X, where L_tj = -m_t P_tj for
// j < t: a `chunk.solve`. For this the row must be a sum of that form, which `findFeedback` checks.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKFEEDBACK_H
#define STRETTO_PASSES_DECLARATION_CHUNKFEEDBACK_H

#include "passes/declaration/ChunkOrder.h"
#include "passes/declaration/ChunkTiles.h"

namespace stretto {

/// The feedback of a chain, if it has one; refuses what is not of the form.
mlir::FailureOr<std::optional<Feedback>> findFeedback(const StateChain &chain);

/// Tiles of the row of a feedback: `offset + factor * read`, or `offset - factor * read` where that is subtracted.
/// Without an offset there is none, without a factor it is 1.
struct AffineRow {
  mlir::Value offset, factor;
  bool isSubtracted = false;
};

/// The tiles of all other rows are there; where only what is linear in the read is asked for, those of numbers.
AffineRow affineRow(const Feedback &feedback, TileBuilder &builder, bool isLinear);

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKFEEDBACK_H
