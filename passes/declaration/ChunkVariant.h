//===- ChunkVariant.h - A kernel of one variant, or of a part ---*- C++ -*-===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKVARIANT_H
#define STRETTO_PASSES_DECLARATION_CHUNKVARIANT_H

#include "passes/declaration/ChunkEarlierReads.h"
#include "passes/declaration/ChunkRecurrence.h"
#include "passes/declaration/ChunkSegments.h"
#include "passes/declaration/GradientParts.h"
#include "passes/declaration/KernelBuilder.h"

namespace stretto {

/// What a kernel computes of a variant.
enum class Part {
  Whole,
  /// Of segments that are walked side by side (ChunkSegments.h), the rows that convolutions and delays look back to.
  Tails,
  /// What their tokens add to totals.
  Totals,
  /// And what they do to the states: by feedback, which depends on the states,
  Transitions,
  /// and all else.
  Writes,
  /// Of a gradient, the forward states at the start of each segment, from which they are found again: as they are.
  SegmentStarts,
  /// Of a gradient, the forward states at the start of each chunk, as products read them, and rows that are kept of
  /// each token.
  Checkpoints,
  /// Of a gradient, rows that are kept of each token, of each chunk with what the former keeps of it.
  Rows,
  /// Of a gradient, from the last chunk to the first, states of reverse time at the end of each chunk.
  Cotangents,
  /// Of segments that are walked side by side, what their tokens do to states of reverse time.
  CotangentWrites,
  /// And what the tokens behind them add to their rows.
  CotangentTails,
  /// Of a gradient, all else: from the last chunk to the first, each with what the others keep of it.
  Gradient,
  /// Of a gradient, what is added up over all tokens, of rows that the former keeps.
  Sums,
};

/// What follows the name of the variant in that of the kernel.
llvm::StringRef suffixOf(Part part);

/// The type of a row that is added up in products, which would round it. A number is kept as it is.
mlir::FloatType typeOfSummedRow(mlir::Value row, const ElementTypes &types);

/// Whether a state that is read or written at an earlier time goes on before it is read.
bool goesOnFirst(const StateChain &chain, int64_t tokens);

/// Makes a kernel of one variant, or of a part of it.
class ChunkVariant {
public:
  ChunkVariant(VariantOp variant, int64_t tokens, const ElementTypes &types, Part part = Part::Whole,
               GradientParts parts = {}, chunk::SegmentsAttr segments = {},
               llvm::ArrayRef<SegmentEffect> transitions = {})
      : variant(variant), tokens(tokens), types(types), part(part), parts(std::move(parts)), segments(segments),
        transitions(transitions), kernel(variant, "chunk", tokens, /*pastTokens=*/tokens, types) {}

  mlir::LogicalResult run();
  /// What the tokens of a segment do to each state, or to each total.
  llvm::ArrayRef<SegmentEffect> getEffects() const { return effects; }
  /// The states that are added up over all tokens.
  llvm::SmallVector<mlir::BlockArgument> getAddedUp();

private:
  mlir::LogicalResult checkChains();
  llvm::SmallVector<chunk::OutputAttr> describeOutputs();
  bool walksForward() const { return part == Part::SegmentStarts || part == Part::Checkpoints; }
  std::string name();
  /// Heads that share a state have parts of its cotangent, which are added up in the end: all else is linear in them.
  int64_t groupOf(StateType state) { return state.getReverse() ? 1 : kernel.groupOf(state.getHeads()); }
  /// The type that a state has in a checkpoint.
  mlir::FloatType typeOfCheckpoint(StateType state) const;
  /// Whether the kernel leaves the rows that are kept for those which walk back.
  bool keepsRows() const { return part == (parts.findsRowsApart ? Part::Rows : Part::Checkpoints); }
  std::string nameOfCheckpoint(const StateChain &chain);
  /// Whether a state is carried by the kernel, and not given to it as a checkpoint.
  bool isCarried(StateOp root);
  /// Whether the kernel walks in reverse time.
  bool walksBack() const {
    return part == Part::Gradient || part == Part::Cotangents || part == Part::CotangentWrites ||
           part == Part::CotangentTails || part == Part::Sums;
  }
  /// Whether the kernel hands on what is added to rows of earlier tokens.
  bool carriesTailsBack() const {
    return part == Part::CotangentTails || part == (parts.tailsOfSums.empty() ? Part::Gradient : Part::Sums);
  }
  /// Whether the kernel carries states of reverse time and leaves nothing else.
  bool carriesAlone() const { return part == Part::Cotangents || part == Part::CotangentWrites; }
  /// Whether the kernel has a forward state or tail, or a state of reverse time; and whether it keeps it for another.
  bool takes(llvm::ArrayRef<mlir::Operation *> operations);
  bool takesReverse(mlir::Operation *root);
  bool keeps(mlir::Operation *op);
  /// Whether the kernel leaves a result.
  bool leaves(unsigned result);
  /// The rows that the kernel leaves, and all that it is made for, beside the rows of its states.
  llvm::SmallVector<mlir::Value> leftRows();
  llvm::SmallVector<mlir::Value> wanted();
  void addStates();
  void addTotalDecays();
  mlir::BlockArgument addTotalDecay(const StateChain &chain, ChunkRecurrence::TotalDecay total);
  void addTransitions();
  void addTotals();
  mlir::Value nextShift(const StateEntry &entry, mlir::Value before);
  void addTails(llvm::ArrayRef<mlir::Operation *> order);
  mlir::LogicalResult buildTile(mlir::Operation *op);
  void buildReverseConv(mlir::Operation *op);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> results();
  mlir::FailureOr<mlir::Value> keptState(const StateChain &chain);
  mlir::FailureOr<llvm::SmallVector<mlir::Value>> next();

  VariantOp variant;
  int64_t tokens;
  const ElementTypes &types;
  Part part;
  GradientParts parts;
  chunk::SegmentsAttr segments;
  /// What feedback does to states that feed back, in order.
  llvm::ArrayRef<SegmentEffect> transitions;
  KernelBuilder kernel;
  llvm::SmallVector<SegmentEffect> effects;
  llvm::SmallVector<StateChain> chains;
  /// By the root of their chain, which is read and written now or at an earlier time.
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<ChunkRecurrence>> recurrences;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<ChunkEarlierReads>> earlierReads;
  /// The rows that are written to the former.
  llvm::DenseSet<mlir::Value> written;
  /// The state of each chain at the start of a chunk, or of a reverse one at its end.
  llvm::DenseMap<mlir::Operation *, mlir::Value> starts;
  /// Of a gradient, the tails and totals of the program, and those of what runs in reverse.
  llvm::SmallVector<StateEntry> forwardTails, reverseTails;
  llvm::SmallVector<StateEntry> scans;                      // whose totals are wanted
  llvm::SmallVector<mlir::Value> tailStarts;                // of the forward ones
  llvm::DenseMap<mlir::Operation *, mlir::Value> carryOf;   // of each reverse convolution or delay
  llvm::DenseMap<mlir::Operation *, mlir::Value> nextCarry; // what it hands on
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKVARIANT_H
