//===- ChunkLaterWrites.h - Writes to a state of long ago -------*- C++ -*-===//
//
// The cotangent of a state that is read at an earlier time (ChunkEarlierReads.h): what token t hands on joins it when
// the walk back arrives at the time tau(t). A chunk is entered from its end with what has joined at the tokens behind
// it; a read of its token j adds what joins in the chunk, at j or later, which is a fold over later tokens:
//
//   x_j D_j = x_j D + sum_{t : j <= tau(t), in the chunk} (x_j . q_t) g_t      D(next) = D + sum q_t^T g_t
//
// As tau never falls, each token t joins the state once.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKLATERWRITES_H
#define STRETTO_PASSES_DECLARATION_CHUNKLATERWRITES_H

#include "passes/declaration/ChunkEarlierReads.h"

namespace stretto {

class ChunkLaterWrites : public ChunkEarlierReads {
public:
  using ChunkEarlierReads::ChunkEarlierReads;

  static bool hasSome(const StateChain &chain);
  static mlir::LogicalResult check(const StateChain &chain);

private:
  /// Of each later token the tokens of this chunk at which what it writes is there already.
  mlir::FailureOr<PastTiles::Range> unseen(PastTiles &past, WriteOp write) override;
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKLATERWRITES_H
