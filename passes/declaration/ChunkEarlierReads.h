//===- ChunkEarlierReads.h - Reads of a state of long ago -------*- C++ -*-===//
//
// Without decay a state at time tau(t) is a sum over the tokens up to tau(t). It is carried as of the last token of the
// chunk before, u, that is up to tau(u); a read adds what was written since, which is a look-back:
//
//   q_t S_tau(t) = q_t S_tau(u) + sum_{tau(u) < j <= tau(t)} (q_t . k_j) v_j        S_tau(next u) = S_tau(u) + sum
//   k_j^T v_j
//
// As tau never falls, each token j joins the state once. Where tau is the same for all tokens of a chunk, as of a
// single token or where blocks of tokens begin with chunks, the state goes on to the time of the first token before it
// is read, and what others see beyond that is nothing:
//
//   S_tau(first) = S_tau(u) + sum_{tau(u) < j <= tau(first)} k_j^T v_j        q_t S_tau(t) = q_t S_tau(first) + ...
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKEARLIERREADS_H
#define STRETTO_PASSES_DECLARATION_CHUNKEARLIERREADS_H

#include "passes/declaration/ChunkOrder.h"
#include "passes/declaration/ChunkPast.h"

namespace stretto {

/// A state that is read at an earlier time.
class ChunkEarlierReads {
public:
  /// What reads of the chunk begin with.
  enum class Reads {
    AsCarried, // the state that the chunk is entered with
    GoingOn,   // that state as of their time, to which it goes on first
    AsKept,    // the state that is given, which another kernel kept when it had gone on
  };
  ChunkEarlierReads(const StateChain &chain, mlir::Value start, Reads reads, TileBuilder &builder, const Sizes &sizes,
                    RawTiles rawTileOf)
      : chain(chain), start(start), reads(reads), b(builder), sizes(sizes), rawTileOf(rawTileOf),
        ofFirst(reads == Reads::AsKept ? start : mlir::Value()) {}
  virtual ~ChunkEarlierReads() = default;

  static bool hasSome(const StateChain &chain);
  /// Whether the state had better go on before it is read: the tokens of a chunk have one time.
  static bool goesOnFirst(const StateChain &chain, int64_t tokens);
  /// Whether the chain has a chunk form; what prevents it is said at the operation that does.
  static mlir::LogicalResult check(const StateChain &chain);

  /// The tile of a read. The row that is read with, and the time, have theirs.
  mlir::FailureOr<mlir::Value> read(ReadOp op);
  /// The state that reads begin with.
  mlir::FailureOr<mlir::Value> stateOfReads();
  /// The state as of the time of the chunk's last token.
  mlir::FailureOr<mlir::Value> next();

protected:
  const StateChain &chain;
  mlir::Value start;
  Reads reads;
  TileBuilder &b;
  const Sizes &sizes;
  RawTiles rawTileOf;
  /// The state as of the time of the chunk's tokens, where it has gone on.
  mlir::Value ofFirst;

private:
  /// Of each token those whose writes it sees and the state that is carried does not hold: here, those between the two
  /// times.
  virtual mlir::FailureOr<PastTiles::Range> unseen(PastTiles &past, WriteOp write);
  /// Those that the state takes in where it goes on first: here, those between the time of the token before the chunk
  /// and the time of its first token.
  virtual mlir::FailureOr<PastTiles::Range> unseenByFirst(PastTiles &past, WriteOp write);
  /// A state with what the tokens of a range write to it.
  mlir::FailureOr<mlir::Value> add(mlir::Value state,
                                   llvm::function_ref<mlir::FailureOr<PastTiles::Range>(PastTiles &, WriteOp)> rangeOf,
                                   bool continued);
  /// The chunk that joins the state with another one, where it is always one.
  virtual ChunksMet metBy(WriteOp write);
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKEARLIERREADS_H
