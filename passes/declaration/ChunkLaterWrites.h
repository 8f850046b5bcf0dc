//===- ChunkLaterWrites.h - Writes to a state of long ago -------*- C++ -*-===//
//
// The cotangent of a state that is read at an earlier time (ChunkEarlierReads.h): what token t hands on joins it when
// the walk back arrives at the time tau(t). A chunk is entered from its end with what has joined at the tokens behind
// it; a read of its token j adds what joins in the chunk, at j or later, which is a fold over later tokens:
//
//   x_j D_j = x_j D + sum_{t : j <= tau(t), in the chunk} (x_j . q_t) g_t      D(next) = D + sum q_t^T g_t
//
// As tau never falls, each token t joins the state once. Where all that joins in a chunk does so at its last token, as
// where blocks of tokens begin with chunks, the state takes that in before it is read, and reads add nothing.
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
  /// Whether the state had better go on before it is read: what joins in a chunk joins at its last token.
  static bool goesOnFirst(const StateChain &chain, int64_t tokens);

private:
  /// Of each later token the tokens of this chunk at which what it writes is there already.
  mlir::FailureOr<PastTiles::Range> unseen(PastTiles &past, WriteOp write) override;
  /// The last token, if it is one of those.
  mlir::FailureOr<PastTiles::Range> unseenByFirst(PastTiles &past, WriteOp write) override;
  ChunksMet metBy(WriteOp write) override;
  /// Of each later token, where what it writes joins the state and where that is before `end`, the tokens of this chunk
  /// from the one at `from` on; both are counted from the chunk's first token.
  mlir::FailureOr<PastTiles::Range> rangeOf(PastTiles &past, WriteOp write, std::optional<int64_t> from, int64_t end);
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKLATERWRITES_H
