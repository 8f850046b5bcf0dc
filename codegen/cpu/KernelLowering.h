//===- KernelLowering.h - From a chunk kernel to vector code ----*- C++ -*-===//
//
// Turns a `chunk.kernel` into a function over work items: a loop over items (sequence, head, slice, and chunk where
// chunks do not depend on each other), inside it one over the chunks of the item, inside that one stage for each value
// that the plan stores. The parts are
//
//   Arguments.cpp   the argument block: where tiles and states of an item lie, the chunk at the end of a sequence
//   Prefetch.cpp    requests for what the next chunk reads and writes
//   Pointwise.cpp   expressions, one vector at a time, and the stages that store them
//   Pairs.cpp       operands of products stored as pairs of bf16 numbers
//   Products.cpp    register-blocked matrix products with what is fused behind them
//   Tiles.cpp       the same where registers are tiles
//   Decay.cpp       products of decay factors, and `decay_dot`
//   Recurrences.cpp what walks from token to token: `decay_mix`, `solve`, `scan`
//   Lookback*.cpp   folds over the tiles of other chunks
//   Sweeps.cpp      walks over the states of a kernel over single tokens
//   Rearrange.cpp   reductions, concatenations, convolution
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_CODEGEN_CPU_KERNELLOWERING_H
#define STRETTO_CODEGEN_CPU_KERNELLOWERING_H

#include "codegen/cpu/Plan.h"
#include "codegen/cpu/SweepPlan.h"
#include "codegen/cpu/VectorBuilder.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <map>

namespace stretto::cpu {

/// What code is generated for.
struct Machine {
  /// Bits of a vector register, and how many of them there are.
  int64_t vectorBits = 512, registers = 32;
  /// Whether it multiplies pairs of bf16 numbers, and tiles of them.
  bool bf16Dot = false, bf16Tiles = false;
};

class KernelLowering {
public:
  KernelLowering(chunk::KernelOp kernel, mlir::FloatType element, Machine machine);

  /// Emits the function before the kernel, or reports what cannot be lowered.
  mlir::FailureOr<mlir::func::FuncOp> lower();
  /// Whether chunks do not depend on each other, so that each may be an item of its own. Checkpoints are counted from
  /// the first chunk that an item walks.
  bool hasIndependentChunks() {
    return !kernel.getSegments() && kernel.argumentsOf(chunk::ArgumentKind::State).empty() &&
           kernel.argumentsOf(chunk::ArgumentKind::Checkpoint).empty();
  }
  /// Bytes of scratch that the function needs.
  int64_t scratchBytes() const { return scratchSize; }

private:
  friend class SweepEmitter;

  //===- Storage ---------------------------------------------------------------------------------------------===//

  /// Where a value is stored, in the orders of the plan. A buffer's rows are padded to whole vectors; vectors and
  /// numbers are one row. Pairs are words of 32 bits, everything else is of the compute type.
  struct Storage {
    mlir::Value rows, transposed, columnPairs, rowPairs, transposedPairs, transposedRowPairs;
    std::array<mlir::Value, 6> buffers() const {
      return {rows, transposed, columnPairs, rowPairs, transposedPairs, transposedRowPairs};
    }
  };
  /// Memory of the caller, or its stand-in for the chunk at the end: entry (i, j) at base[i * stride + j].
  struct View {
    mlir::Value base, stride;
  };
  /// Entries (row, column .. column + lanes) of a tile; of a vector, `row` is null.
  struct Point {
    mlir::Value row, column;
    int64_t lanes;
  };
  using Consumer = llvm::function_ref<void(Point, mlir::Value)>;

  int64_t padded(int64_t columns) const { return llvm::alignTo(columns, builder.width); }
  /// Uninitialised scratch, which lives until it is released or the function returns.
  mlir::Value allocate(llvm::ArrayRef<int64_t> shape, mlir::Type element);
  mlir::Value allocateRows(int64_t rows, int64_t columns) { return allocate({rows, padded(columns)}, builder.element); }
  mlir::Value allocateVector(int64_t length) { return allocate({padded(length)}, builder.element); }
  /// A buffer for a value, by rows.
  mlir::Value allocateFor(mlir::Value value);
  /// Lets what is written later in a chunk take the place of a buffer: the fewer bytes a chunk touches, the more of
  /// them the nearest cache holds.
  void release(mlir::Value buffer);

  //===- Arguments -------------------------------------------------------------------------------------------===//

  /// One argument of the manifest: a block argument, or an output.
  struct Argument {
    mlir::Value value = {};                                // null for outputs
    chunk::ArgumentKind kind = chunk::ArgumentKind::Input; // of an output, what would be read like it
    std::optional<unsigned> output = {};                   // its number among the outputs
    mlir::RankedTensorType type = {};
    int64_t group = 1;
    bool sliced = false, partial = false;
    bool inParts = false; // an output that the caller adds up
    /// A state that is -inf where none is given.
    bool lowest = false;
    llvm::StringRef name = {}, entry = {}; // of a window, the input
    int64_t columns = 0;                   // of the parameter whose columns it is, where it is not all of it
    /// The words of the block, as index.
    llvm::SmallVector<mlir::Value, 9> words = {};
    /// Address of the item's first entry (of the initial state), and of its final state; from row to row of them.
    mlir::Value address = {}, finalAddress = {}, stride = {}, finalStride = {};
    /// Of a state: whether an initial one is given, and a final one wanted.
    mlir::Value isGiven = {}, isWanted = {};
  };
  /// What is known of the item that is being run.
  struct Item {
    mlir::Value sequence, head, slice;
    /// The sequence's row of the state, and of what the item begins with, which may be a checkpoint.
    mlir::Value stateRow, startRow;
    /// The sequence's number and first token in the tensors of tiles; a packed batch is one sequence there.
    mlir::Value sequenceInMemory, firstToken;
    mlir::Value tokens;
    /// The tokens whose chunks the item walks: all, or those of a segment or of one chunk.
    mlir::Value begin, end;
    /// The position of the sequence's first token; null where no table varies in time.
    mlir::Value position;
    /// The number of the first checkpoint that there is for the item, and the token where its chunk begins.
    mlir::Value firstCheckpoint, firstKept;
    /// Where segments are apart: whether the item's begins with the initial state, walks any chunk, and leaves the
    /// final state.
    mlir::Value isFirst, exists, isLast;
  };

  void listArguments();
  int64_t blockWords();
  void readBlock(mlir::Value block);
  Item findItem(mlir::Value number);
  /// What the item has of the segment that the launch walks, and where its checkpoints begin (runtime/Manifest.h).
  void findSegment(Item &item);
  /// The same of the item's own segment, where they are apart.
  void findSegmentApart(Item &item, mlir::Value segment);
  mlir::Value firstCheckpoint(const Item &item, mlir::Value chunks, mlir::Value interval);
  void findAddresses(const Item &item);
  /// Where segments are apart: a state begins where its segment does, and may end there, too.
  void placeSegment(Argument &state, const Item &item, mlir::Value head);
  /// Memory at an address, as a memref of unknown extent.
  mlir::Value memoryAt(mlir::Value address, mlir::Type element);
  static int64_t bytesOfElement(mlir::Type element) { return element.getIntOrFloatBitWidth() / 8; }
  void loadStates(const Item &item);
  void storeStates(const Item &item);
  void viewParameters();
  bool isTableInTime(const Argument &argument) const;
  /// As many rows of a table that varies in time, from a position on, followed by zeros up to those of a tile.
  void loadTable(const Argument &table, mlir::Value firstPosition, mlir::Value count, int64_t tokens,
                 mlir::Value buffer);
  void loadTables(mlir::Value firstPosition);
  /// Where the rows of a tile lie. Those of a ring begin at a row of it; no tile is a view of one.
  struct Rows {
    const Argument *argument;
    mlir::Value address, stride;
    mlir::Value isRing = {}, ringStart = {};
    int64_t ringLength = 0;
  };
  Rows rowsOf(const Argument &argument, mlir::Value firstToken) {
    return {&argument, tileAddress(argument, firstToken), argument.words[2]};
  }
  /// Tiles of so many tokens, of which those in [from, to) exist; of a part of a tile a whole one is made, with zeros.
  llvm::SmallVector<View> viewRows(llvm::ArrayRef<Rows> tiles, mlir::Value from, mlir::Value to, int64_t tokens);
  /// Copies the entries of one token of a tile.
  void copyToken(mlir::RankedTensorType type, mlir::Value from, mlir::Value fromStart, mlir::Value to,
                 mlir::Value toStart);
  /// The tiles of the kernel's chunk at `firstToken`.
  void viewTiles(mlir::Value firstToken);
  /// The checkpoints of the chunk that begins at `firstToken`.
  void viewCheckpoints(const Item &item, mlir::Value firstToken);
  /// Where one of them lies. Each stands for `everyCheckpoint` chunks.
  mlir::Value checkpointAddress(const Argument &argument, const Item &item, mlir::Value firstToken);
  mlir::Value everyCheckpoint();
  void copyOutputsBack(mlir::Value firstToken);
  static bool isTile(const Argument &argument) { return argument.kind == chunk::ArgumentKind::Input; }
  static bool isWindow(const Argument &argument) { return argument.kind == chunk::ArgumentKind::Window; }
  static bool isCheckpoint(const Argument &argument) { return argument.kind == chunk::ArgumentKind::Checkpoint; }
  int64_t wordsOf(const Argument &argument);
  mlir::Value tileAddress(const Argument &argument, mlir::Value firstToken);

  //===- Stages ----------------------------------------------------------------------------------------------===//

  /// Stores what the plan says of the kernel's values that are, or are not, the same for all chunks.
  void emitStages(bool invariant);
  /// Stores a value if the plan says so, and lets go of what is not read any more.
  void emitValue(mlir::Value value);
  void emitStage(mlir::Value value);
  void emitYield(chunk::YieldOp yield, const Item &item);
  void emitOutput(mlir::Value output, View view);
  /// Computes every entry of `value`, fused product included, and hands it to `consume`.
  void compute(mlir::Value value, Consumer consume);
  void computePointwise(mlir::Value value, Consumer consume);
  mlir::Value storeRows(mlir::Value value);
  mlir::Value storeTransposed(mlir::Value value);
  mlir::Value transposeBuffer(mlir::Value buffer, llvm::ArrayRef<int64_t> shape);
  mlir::Value transpose(llvm::ArrayRef<int64_t> shape, llvm::function_ref<mlir::Value(Point)> read);
  /// Walks a matrix by blocks of as many rows as a vector has lanes, and fewer at the end.
  using BlockBody = llvm::function_ref<void(mlir::Value row, int64_t rows, mlir::Value column, int64_t columns)>;
  void forBlocks(int64_t rows, int64_t columns, int64_t blockColumns, BlockBody body);
  /// Stores lane i of all vectors side by side at (row + i, column), for i < count.
  void storeColumns(llvm::SmallVector<mlir::Value> vectors, int64_t count, mlir::Value buffer, mlir::Value row,
                    mlir::Value column);
  /// Stores a vector of entries; lanes beyond the row's end fall into its padding.
  void storeAt(mlir::Value entries, mlir::Value buffer, Point point);
  void copyBuffer(mlir::Value from, mlir::Value to);
  /// Hands zeros to `consume` for the columns from a multiple of the width on.
  void fillWithZeros(int64_t fromRow, int64_t toRow, int64_t fromColumn, int64_t columns, Consumer consume);

  // Pointwise.cpp
  /// The entries of `value` at a point; computed in place unless stored.
  mlir::Value evaluate(mlir::Value value, Point point);
  /// The same where nothing of what was computed before may be reused.
  mlir::Value evaluateAnew(mlir::Value value, Point point);
  mlir::Value evaluateElementwise(mlir::Operation *op, Point point);
  mlir::Value evaluateOperation(mlir::Operation *op, Point point);
  /// One entry of a vector or number, in all lanes.
  mlir::Value evaluateSplat(mlir::Value vector, mlir::Value index);
  mlir::Value unsupported(mlir::Operation *op, const llvm::Twine &reason);

  // Prefetch.cpp
  /// Prepares to ask for the tiles and checkpoints of the chunk at `firstToken`.
  void prefetchChunk(const Item &item, mlir::Value firstToken);
  /// The share of a step of the product `besidePrefetches`, which takes so many.
  void prefetchBeside(mlir::Value step, int64_t steps);
  /// Where a chunk has products of tiles: the share of one of their steps, all of them together.
  void prefetchShare();

  // Pairs.cpp
  /// A buffer of words, of which tiles may read whole ones wherever there is a part of one.
  mlir::Value allocatePairs(int64_t rows, int64_t words);
  /// A number of pairs, up to a whole tile of them where there are tiles: those that no number fills are zeros.
  int64_t paddedPairs(int64_t pairs) const {
    return machine.bf16Tiles ? llvm::alignTo(pairs, VectorBuilder::tileWords) : pairs;
  }
  mlir::Value storeColumnPairs(mlir::Value value);
  mlir::Value storeRowPairs(mlir::Value value);
  mlir::Value storeTransposedPairs(mlir::Value value);
  mlir::Value storeTransposedRowPairs(mlir::Value value);

  // Products.cpp
  /// One matrix product of a sum: left(i, k) * right(k, j), summed over a range of k. `left` holds entry (i, k) there,
  /// or at (k, i) if `leftByColumns`; `right` holds rows of the result's columns. If `inPairs`, both hold words of the
  /// entries for k and k + 1, and the range is that of those; if `inTiles`, it is that of tiles of such words.
  struct Term {
    mlir::Value left = {};
    bool leftByColumns = false;
    mlir::Value right = {};
    bool inPairs = false, inTiles = false;
    /// The range of k, and how many there are at most, beside which tiles may be brought near.
    mlir::Value from = {}, to = {};
    int64_t depth = 0;
    /// Of left: entries behind the diagonal are 0.
    bool isLowerTriangle = false, isUpperTriangle = false;
  };
  /// What is stored of the sums at a point.
  using Finish = llvm::function_ref<mlir::Value(Point, mlir::Value)>;
  void computeProduct(mlir::Operation *product, mlir::Value root, Consumer consume);
  Term termOf(mlir::Operation *product, mlir::Value left, bool transposeLeft, mlir::Value right, bool transposeRight);
  /// Sums for the rows [fromRow, toRow) and the columns before `columns`, block by block.
  void computeRegion(llvm::ArrayRef<Term> terms, int64_t fromRow, int64_t toRow, int64_t columns, Finish finish,
                     Consumer consume);
  /// A block of it, `beside` each step of which something else is done.
  void computeBlock(llvm::ArrayRef<Term> terms, mlir::Value row, int64_t rows, mlir::Value column,
                    llvm::ArrayRef<int64_t> lanes, llvm::function_ref<void(mlir::Value step)> beside, Finish finish,
                    Consumer consume);
  mlir::Value addTo(mlir::Value sums, mlir::Value addend, Point point);

  // Tiles.cpp
  /// How many steps those products of a chunk have: along the contracted axis, and of rows that are finished.
  int64_t countStepsOfTiles();
  void computeRegionOfTiles(llvm::ArrayRef<Term> terms, int64_t fromRow, int64_t toRow, int64_t columns, Finish finish,
                            Consumer consume);
  void computeBlockOfTiles(llvm::ArrayRef<Term> terms, mlir::Value row, int64_t rows, mlir::Value column,
                           int64_t columns, Finish finish, Consumer consume);

  // Decay.cpp
  /// Products of the factors of one amount, as far as they are used.
  struct DecayStorage {
    mlir::Value factors; // [C, D] or [C]
    mlir::Value prefix;  // row u: the product of the factors before token u; row C: of all
    mlir::Value suffix;  // row u: the product of the factors after token u
    mlir::Value pairs;   // row i + 1, column j: the product of the factors after j up to i, 0 for j > i
    // [D] or [1]: the product of all factors is the sum of both.
    mlir::Value total, fromOne;
  };
  void prepareDecay(Decay decay, const DecayUses &uses);
  /// The factor of a state, or of a vector of its channels.
  void storeTotal(Decay decay, mlir::Value column, llvm::function_ref<mlir::Value(mlir::Value token)> amountOf);
  void prepareTokenDecay(Decay decay, const DecayUses &uses);
  void preparePairs(DecayStorage &stored, int64_t tokens);
  void prepareChannelDecay(Decay decay, const DecayUses &uses);
  mlir::Value factor(Decay decay, Point point);
  mlir::Value evaluateDecay(chunk::DecayFromStartOp op, Point point);
  mlir::Value evaluateDecay(chunk::DecayToEndOp op, Point point);
  /// `sums` and what is left of a state.
  mlir::Value addDecayedTo(mlir::Value sums, chunk::DecayStateOp op, Point point);
  /// Sums of products of queries and keys, each times the decay between the two tokens.
  mlir::Value decayPairs(chunk::DecayDotOp op, Point point, mlir::Value sums);
  mlir::Value decayBetween(Decay decay, Point point, bool before);
  void computeDecayDot(chunk::DecayDotOp op);
  /// Strips of channels of at most so many vectors.
  void forStrips(int64_t channels, int64_t vectors, llvm::function_ref<void(llvm::ArrayRef<Point>)> body);

  // Recurrences.cpp
  /// The weight between a row of a result and another token's: an entry of a matrix in either order, or its transpose.
  mlir::Value weightBetween(mlir::Value matrix, bool transpose, mlir::Value own, mlir::Value other);
  void computeDecayMix(chunk::DecayMixOp op);
  void computeSolve(chunk::SolveOp op);
  void computeScan(chunk::ScanOp op);
  void computeAccumulate(chunk::AccumulateOp op);
  void computeDecayPairs(chunk::DecayPairsOp op);
  void computeConvBack(chunk::ConvBackOp op);
  void computeConvTaps(chunk::ConvTapsOp op);

  // Lookback.cpp
  /// What a look-back keeps while it meets the tiles of other chunks.
  struct LookbackFold;
  void emitLookback(chunk::LookbackOp op);
  /// The window that holds the rows of an input before the first token, or null.
  const Argument *windowOf(const Argument &input) const;
  /// How many tokens before the first windows hold: at most, and of this sequence.
  int64_t windowLength() const;
  mlir::Value tokensInWindow();
  /// The tiles of inputs at the tokens that are met, which may lie before the first token.
  llvm::SmallVector<View> viewPast(llvm::ArrayRef<const Argument *> inputs, mlir::Value firstPast, mlir::Value count,
                                   int64_t tokens);
  /// Leaves the tokens of an item in the windows that the caller wants them in.
  void storeWindows(const Item &item);
  /// Of each token of the chunk at `firstToken` the range of tokens that it looks back to, in the buffers of the fold.
  void findRanges(chunk::LookbackOp op, mlir::Value first, mlir::Value last, mlir::Value firstToken,
                  LookbackFold &fold);
  /// The lanes of a tile's row whose pairs are in a range.
  mlir::Value isInRange(const LookbackFold &fold, mlir::Value row, mlir::Value column);
  /// Folds over the chunks that the tokens look back to, or over those whose tokens look back at them.
  void foldBack(chunk::LookbackOp op, LookbackFold &fold);
  void foldAhead(chunk::LookbackOp op, LookbackFold &fold);
  /// The tokens of the tile, as it was met, that are in the range of any token.
  std::pair<mlir::Value, mlir::Value> rowsInRange(const LookbackFold &fold);
  /// Loads the chunk that is met, and computes what the body makes of it.
  void loadPast(chunk::LookbackOp op, const LookbackFold &fold);
  void emitBody(llvm::iterator_range<mlir::Block::iterator> operations);
  void foldTile(chunk::LookbackOp op, LookbackFold &fold);
  void beginFold(chunk::LookbackOp op, LookbackFold &fold);
  void foldWeights(chunk::LookbackOp op, LookbackFold &fold);
  void foldSoftmax(chunk::LookbackOp op, LookbackFold &fold);
  void foldDivergence(chunk::LookbackOp op, LookbackFold &fold);
  void foldOuter(chunk::LookbackOp op, LookbackFold &fold);
  void endFold(chunk::LookbackOp op, LookbackFold &fold);

  // Sweeps.cpp
  /// A state that sweeps walk over: where it is kept, which is in scratch where nobody wants it. Its view is where the
  /// present token finds it.
  struct SweptState {
    mlir::Value scratch;
    View home;
    mlir::Value isGiven;
  };
  static bool isSwept(const SweepPlan &sweeps, const Argument &argument) {
    return argument.value && sweeps.isMatrix(argument.value);
  }
  mlir::Value placeIn(View matrix, mlir::Value row, mlir::Value column);
  void locateState(const Argument &argument, const Item &item);
  void findSources(mlir::Value firstToken);
  void emitSweep(const Sweep &sweep);

  // Rearrange.cpp
  void emitReduce(chunk::ReduceOp op);
  void emitConcat(chunk::ConcatOp op);
  void emitColumn(chunk::ColumnsOp op);
  void emitRow(chunk::RowOp op);
  void emitTail(chunk::TailOp op);
  /// The rows of a tail followed by those of a tile.
  mlir::Value history(mlir::Value operand, mlir::Value tail);
  mlir::Value evaluateConvolution(chunk::ConvOp op, Point point);
  mlir::Value evaluateDelay(chunk::DelayOp op, Point point);

  chunk::KernelOp kernel;
  Machine machine;
  VectorBuilder builder;
  SweepPlan sweeps;
  Plan plan;
  mlir::func::FuncOp function;
  mlir::Block *entry = nullptr;
  int64_t scratchSize = 0;
  llvm::DenseMap<mlir::Value, int64_t> scratchOffsets;           // of buffers
  std::map<int64_t, llvm::SmallVector<int64_t>> releasedOffsets; // by size in bytes
  bool failed = false;

  llvm::SmallVector<Argument> arguments;
  mlir::Value sequences, denseTokens, heads, offsets, positions, slots; // the block's header
  mlir::Value firstChunk, segmentChunks, interval, intervalOfStarts,    // and of it, the segment
      chunksBefore, firstPlaced, chunksPlaced;
  mlir::Value chunkStart;               // the first token of this chunk
  mlir::Value valid, isWhole;           // tokens of this chunk, and whether that is C
  mlir::Value isKept;                   // whether checkpoints of this chunk are kept
  mlir::Value itemTokens, itemPosition; // of this item's sequence, as in `Item`
  llvm::DenseMap<mlir::Value, Storage> storage;
  llvm::DenseMap<mlir::Value, View> views;
  llvm::SmallVector<View> outputViews; // in the order of the outputs
  llvm::DenseMap<mlir::Value, SweptState> sweptStates;
  mlir::Value nextRows; // addresses of the rows of the next chunk's tiles and checkpoints
  int64_t linesOfNextRows = 0;
  int64_t stepsOfTiles = 0;                    // of a chunk, about
  mlir::Value nextRow;                         // the number of the row that the next of them asks for
  mlir::Operation *besidePrefetches = nullptr; // a product
  bool prefetches = false;                     // beside the product that is being computed
  mlir::Value sumsOfTiles;                     // where those of a block lie before they are finished
  llvm::DenseMap<Decay, DecayStorage> decays;
  llvm::DenseMap<std::pair<mlir::Value, mlir::Value>, mlir::Value> histories; // by operand and tail
  /// What has been computed at the present point.
  llvm::DenseMap<std::tuple<mlir::Value, mlir::Value, mlir::Value>, mlir::Value> known;
};

} // namespace stretto::cpu

#endif // STRETTO_CODEGEN_CPU_KERNELLOWERING_H
