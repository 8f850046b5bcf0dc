//===- DecayRecurrence.h - What decays with a state's channels --*- C++ -*-===//
#ifndef STRETTO_PASSES_CHUNK_DECAYRECURRENCE_H
#define STRETTO_PASSES_CHUNK_DECAYRECURRENCE_H

#include "passes/chunk/DecayBuilder.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace stretto {

/// All that decays with the channels of a state, whose rows can be rescaled around one anchor: the end of the chunk
/// where the state is met at its start, and the start where it is that of a cotangent, which is met at the end.
struct DecayRecurrence {
  chunk::DecayStateOp state;
  /// Columns of the state that are tiles of their own, as a normaliser is.
  llvm::SmallVector<chunk::DecayStateOp, 1> columns;
  mlir::Operation *first; // of those that ask for the decay
  bool isMetAtEnd = false;
  bool before = false;
  llvm::SmallVector<chunk::DecayDotOp> scores;
  llvm::SmallVector<chunk::DecayMixOp> mixes;
  llvm::SmallVector<chunk::DecayTotalsOp> totals;
  llvm::SmallVector<chunk::DecayFromStartOp> fromStart;
  llvm::SmallVector<chunk::DecayToEndOp> toEnd;
  /// Where rows meet the state: as the right operand of a product, and columns as a row that all tokens have. The rows
  /// decay up to it, or the result does.
  struct Meetings {
    llvm::SmallVector<chunk::DotOp> products;
    llvm::SmallVector<mlir::OpOperand *> columns;
  };
  Meetings meetings;
  /// Those of what is read that each branch forms by itself.
  llvm::SmallVector<chunk::DotOp> ofBranches;
  /// What is made of any of these, as weights are where rows are read with the state and fed back.
  llvm::SetVector<mlir::Operation *> behind;

  /// Nothing where another operation has a part in it, or nothing has products of rows.
  static std::optional<DecayRecurrence> of(chunk::DecayStateOp state);

  /// Whether rows that it rescales are made of what it finds: their range could not be known before.
  bool feedsItself();
  bool isBehind(mlir::Value value) const { return behind.contains(value.getDefiningOp()); }
  void erase();

private:
  void findWhatIsBehind();
  template <typename Ops> bool meetsState(const Ops &ops);
  /// Whether decayed rows are made of products with the state, or all that is made of them is.
  bool meetsState(mlir::Value rows, mlir::Value decayed);
  /// Whether rows are a product with the state, or the sum of one and of what they have of columns.
  bool isOfState(mlir::Value rows, Meetings &found);
  bool isProduct(mlir::Operation *op, bool transposed, Meetings &found);
  /// The operand that is a column as a row of each token.
  mlir::OpOperand *findColumn(mlir::Operation *op);
};

/// Forms what decays with the channels of a state.
class RecurrenceExpander : public DecayBuilder {
public:
  using DecayBuilder::DecayBuilder;

  /// With the product `P_i` of the factors up to a token and an anchor `A` in each channel,
  ///
  ///   q'_i = q_i P_i / A,  k'_j = k_j P_end / P_j,  o = q' (A S) + mask(q' k'^T) v,  S = P_end S + k'^T v.
  ///
  /// The anchor is the end of the chunk where the range of factors allows it: the state then decays once for all, and
  /// rows serve for reads, writes and each other. Where it does not, queries have theirs at the start, where no factor
  /// is above 1, and the products of rows are formed exactly. In reverse time it is keys that meet the state, and the
  /// start that is their anchor: k'_j = k_j A / P_j, where A is 1, or P_end. Sums of keys are scaled as queries are.
  ///
  /// With `within` rows of logarithms alone are taken to be in range, where a kernel may expect that.
  void expand(DecayRecurrence ops, bool within = false);

private:
  friend struct DecayRecurrence;

  /// What rows and the state of a chunk are multiplied by, and whether the anchor is the chunk's end, which the former
  /// depends on, null where it is in any case; whether weights that are only known behind that are small enough, too;
  /// and what is known of logarithms out of range.
  struct Rescaling {
    mlir::Value inRange, ofQueries, ofKeys, ofState, total, sumsInRange;
    KnownLogs known;
  };

  /// Rows that are rescaled, and by what.
  struct RescaledRows {
    struct Side {
      llvm::SmallSetVector<mlir::Value, 2> rows;
      /// A constant that all of them are times.
      double factor = 1;
      mlir::Value factors;
      llvm::SmallDenseMap<mlir::Value, Operand, 2> rescaled;
    };
    Side queries, keys;
    /// Weights of sums, and those of them that sums have.
    llvm::SmallMapVector<mlir::Value, Operand, 2> weights;
    Rescaling rescaling;
  };

  static RescaledRows rowsOf(DecayRecurrence &ops);
  /// Tests what is multiplied in the chunk's range: logarithms or inverses of factors, rows and weights, but for
  /// weights that follow from what the answer decides.
  mlir::Value within(DecayRecurrence &ops, const RescaledRows &rows, mlir::ValueRange factors,
                     llvm::ArrayRef<double> limits, bool rising = false);
  /// Whether sums are of finite numbers where rows are in range.
  mlir::Value withinSums(DecayRecurrence &ops, const RescaledRows &rows);
  Rescaling rescaledByLogs(DecayRecurrence &ops, const RescaledRows &rows);
  /// Where all that is rescaled are rows of an input's type, for scores and states alone: as if they were in range,
  /// which is expected.
  Rescaling rescaledWithin(DecayRecurrence &ops, const RescaledRows &rows);
  bool canExpectRange(DecayRecurrence &ops, const RescaledRows &rows);
  /// Scores of earlier tokens, and what a token weighs its own row with where that is added to the product of the
  /// scores and these rows: then it is a part of the product.
  mlir::Value meetingItself(chunk::DecayDotOp op, mlir::Value scores);
  /// Factors of any sign and size: those above 1, among which products may rise, have no range.
  Rescaling rescaledByFactors(DecayRecurrence &ops, const RescaledRows &rows);
  /// Makes the rows and weights that branches share.
  void rescale(RescaledRows &rows, bool before);
  Operand rescaled(const RescaledRows::Side &side, mlir::Value rows);
  /// What branches, and sums over the other axis, ask for of the state as it was comes from what it has decayed to, by
  /// factors that are no smaller than what is in range: nothing keeps two states.
  void giveBack(chunk::DecayStateOp state, mlir::Value met, mlir::Value factors);
  /// Rows that a side's factors, which have its constant one, make rescaled rows of.
  mlir::Value unscaled(const RescaledRows::Side &side, mlir::Value rows);

  /// The rows of tokens times what they have of others and of the state at the start or at the end.
  struct Total {
    chunk::DecayTotalsOp op;
    mlir::arith::AddFOp sum;
  };
  /// The total of which a sum of a `decay_mix` is one factor, if there is one.
  static std::optional<Total> findTotal(chunk::DecayMixOp op, llvm::ArrayRef<chunk::DecayTotalsOp> totals);
  /// A sum and what is read of a state are of one product, which is scaled behind it; where the gradient of the decay
  /// asks for the rows times the same, they are times what has been scaled.
  void mixOfRescaled(chunk::DecayMixOp op, DecayRecurrence &ops, const RescaledRows &rows);
  void totalOfRescaled(chunk::DecayTotalsOp op, bool ofKeys, const RescaledRows &rows);
};

} // namespace stretto

#endif // STRETTO_PASSES_CHUNK_DECAYRECURRENCE_H
