//===- ChunkRecurrence.h - A state over a chunk of tokens -------*- C++ -*-===//
//
// One token takes a state through steps, each a decay or a write, and reads it between them. Let A be the product of
// all decays of a token, B_i that of those before position i, and R_w that of those after write w. A state at the end
// of token j holds the write w of that token as k R_w; every token after that multiplies it by A. So a read at position
// i of token t, of a state that was S when the chunk began, is
//
//   q B_i A_(t-1) .. A_0 S  +  sum over writes w and j < t of (q B_i A_(t-1) .. A_(j+1) . k_j R_w) v_j
//                           +  sum over writes w before i of (q (decays between w and i) . k_t) v_t
//
// Where all decays stand before the read, B_i = A and the two sums are one `decay_dot` of q with k R_w; where none
// does, q needs no factor and the `before` form of `decay_dot` is the first sum.
//
// That is so where the axis that is read along decays, or the state as a whole. Where the other axis does, the decay of
// the result's channels stands outside of the products of q with k, and the first sum is a `decay_mix`:
//
//   sum over writes w and j < t of (q . k_j) (v_j R_w) A_(j+1) .. A_(t-1) B_i
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKRECURRENCE_H
#define STRETTO_PASSES_DECLARATION_CHUNKRECURRENCE_H

#include "passes/declaration/ChunkOrder.h"
#include "passes/declaration/ChunkTiles.h"

namespace stretto {

class ChunkRecurrence {
public:
  ChunkRecurrence(const StateChain &chain, mlir::Value start, TileBuilder &builder);
  virtual ~ChunkRecurrence() = default;

  /// Whether the chain has a chunk form; what prevents it is said at the operation that does.
  static mlir::LogicalResult check(const StateChain &chain);

  /// The tile of a read. The rows of all steps have theirs.
  mlir::Value read(ReadOp op);
  /// The state at the end of the chunk.
  virtual mlir::Value next();

  /// What all decays of many tokens do to the state: a factor for each entry of a side, as a sum of logarithms, or as
  /// the product, which is -inf before the first.
  struct TotalDecay {
    chunk::DecayForm form;
    chunk::Side side;
    int64_t size;
  };
  /// Nothing where the state does not decay.
  static std::optional<TotalDecay> totalDecayOf(const StateChain &chain);
  /// The total at the end of the chunk, from that at its start.
  mlir::Value nextTotalDecay(mlir::Value before);

protected:
  friend class ChunkCotangent;
  friend class ChunkTransition;

  static chunk::Side sideOf(StateType state, llvm::StringRef axis) {
    return axis == state.getFirst() ? chunk::Side::Rows : chunk::Side::Columns;
  }
  /// A product of decays: an amount of one axis or two, or none.
  struct Decay {
    mlir::Value amount;
    chunk::DecayForm form = chunk::DecayForm::Log;
    explicit operator bool() const { return amount != nullptr; }
  };
  struct Write {
    size_t position; // steps before it, itself included
    mlir::Value first, second;
    mlir::Location location;
  };

  Decay combine(llvm::ArrayRef<mlir::Operation *> steps);
  /// The decays after position `from` and up to `to`.
  Decay between(size_t from, size_t to);
  /// Rows times a decay of their own token.
  mlir::Value multiply(mlir::Value rows, Decay decay);
  /// The side of a write that the product runs over, as the end of its token sees it, and the other.
  std::pair<mlir::Value, mlir::Value> sidesOf(const Write &write, chunk::Side contracted);
  /// Rows times a state, with the decays between the state and their tokens: of the contracted axis on the rows, all
  /// others on the product, which is then formed once of rows that meet the state several times.
  mlir::Value throughState(mlir::Value rows, mlir::Value state, chunk::Side contracted,
                           llvm::function_ref<mlir::Value(mlir::Value)> decays);
  /// A read of `row` where the read axis decays, or the state as a whole; and where the axis of the result does.
  virtual mlir::Value readDecayed(mlir::Value row, size_t position, chunk::Side contracted);
  virtual mlir::Value readDecaying(mlir::Value row, size_t position, chunk::Side contracted);
  /// Adds what the token itself wrote before a read that stands before some of its decays.
  mlir::Value addOwnWrites(mlir::Value result, mlir::Value row, size_t position, chunk::Side contracted);
  bool isAfterAllDecays(size_t position) const;
  /// A read's row with the decays that it stands after, where it does not stand after all.
  mlir::Value queryOf(mlir::Value row, size_t position);
  /// What a query sees of keys, each decayed; `seen` says whether it stands behind its own token's write.
  mlir::Value productsOf(mlir::Value query, mlir::Value key, bool afterAll, bool seen);
  void solveFeedback(mlir::Value row, size_t position, chunk::Side contracted);
  /// What a read that feeds back sees of the row that it decides, of tokens that come before its own in the direction
  /// of the state; the read's rows are those of the matrix, or its columns.
  virtual mlir::Value feedbackProducts(mlir::Value row, size_t position, mlir::Value key, size_t writePosition);
  virtual chunk::Side feedbackSide() const { return chunk::Side::Rows; }
  /// Whether only what is linear in the state is found of the rows that feed back.
  virtual bool isLinear() const { return false; }
  /// Takes these rows, which are written beside `key`, `end` steps into a token.
  virtual void takeFeedback(mlir::Value rows, mlir::Value key, size_t end);
  /// The rows with 0 beyond the end where they could be anything there.
  mlir::Value finite(mlir::Value rows);
  mlir::Value finiteMatrix(mlir::Value row) { return finite(b.matrixOf(b.tileOf(row))); }
  void prepare();
  virtual void addWrite(WriteOp write, size_t position);
  /// The row of a write on the side that decays, and the other.
  mlir::Value decayedRow(const Write &write) const { return decayed == chunk::Side::Rows ? write.first : write.second; }
  mlir::Value otherRow(const Write &write) const { return decayed == chunk::Side::Rows ? write.second : write.first; }
  /// The row that decays with the decays of its own token, or, if the decay of tokens between takes them `whole`,
  /// without.
  mlir::Value decayedSide(const Write &write, bool whole) {
    return whole ? decayedRow(write) : sidesOf(write, decayed).first;
  }

  const StateChain &chain;
  mlir::Value start;
  TileBuilder &b;
  bool prepared = false;
  chunk::Side decayed = chunk::Side::Rows;
  /// All decays of a token; beyond the end of the sequence they do nothing.
  Decay total;
  llvm::SmallVector<Write, 2> writes;
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKRECURRENCE_H
