//===- KernelFolder.h - From a chunk's kernel to a block's ------*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_KERNELFOLDER_H
#define STRETTO_PASSES_KERNEL_KERNELFOLDER_H

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace stretto::kernel {

/// Makes of a `chunk.kernel` what a block does, in a `kernel.func` that has the views of its arguments.
class KernelFolder {
public:
  /// What stands between the chunks of the kernel, or null.
  KernelFolder(chunk::KernelOp kernel, chunk::KernelOp between, FuncOp function, bool computeTables, bool fromStart,
               mlir::SymbolTableCollection &symbols)
      : kernel(kernel), between(between), function(function), computeTables(computeTables), fromStart(fromStart),
        symbols(symbols), builder(kernel.getLoc(), mlir::OpBuilder::atBlockEnd(function.getBlock())) {}

  //===--------------------------------------------------------------------===//
  // Chunks (FoldOverChunks.cpp)
  //===--------------------------------------------------------------------===//

  /// All chunks of a sequence, or of its segment, one after the other.
  void foldOverChunks();
  /// One chunk, where each is a work item of its own.
  void takeChunk();
  /// One token, whose states lie where their next ones go: nobody stores before all have loaded.
  void stepInPlace();

private:
  /// What becomes of the argument of a kernel that is neither a state nor the number of valid tokens.
  struct Stream {
    mlir::Value channel;
    bool perChunk;
  };

  /// Opens the channels of all arguments that a chunk reads, `ahead` tiles deep.
  void openStreams(int64_t ahead, mlir::Value turn = {});
  void mapArguments(mlir::ValueRange states, mlir::Value turn = {});
  void mapValid();
  mlir::Value chunksOfSequence();
  /// The operations of the kernel for the chunk `index`, and what they leave in memory.
  void emitBody();
  void emit(mlir::Operation &op);
  /// Whether an operation reads checkpoints of the chunk.
  bool readsCheckpoints(mlir::Operation &op);
  /// Leaves in the place of the checkpoints of a second chunk the states that are its own.
  void findStatesBetween();
  /// Makes what an operation asks for of what was left behind, which kept no registers while states were found.
  void makeAgain(mlir::Operation &of);
  /// Leaves the rows of inputs in their windows.
  void carry();
  /// Stores those of some values that are outputs.
  void store(mlir::ValueRange values);
  mlir::Value load(mlir::BlockArgument argument);

  //===--------------------------------------------------------------------===//
  // Look-backs (FoldLookback.cpp)
  //===--------------------------------------------------------------------===//

  void foldLookback(chunk::LookbackOp op);
  /// Whether it says which chunks are met, and no sequence continues.
  bool isKnown(chunk::LookbackOp op);
  /// Whether it meets one chunk, as far from each, and the turn of this one is that of its tile, too.
  bool isLagging(chunk::LookbackOp op);
  /// How many chunks before each it stands, ahead less than 0.
  static int64_t lagOf(chunk::LookbackOp op);
  /// Opens channels for such tiles, for that of the first turn. And sends those of the next turn.
  void openLagging();
  void sendLagging();
  /// The chunk that is met then in the turn of another.
  mlir::Value lagBehind(mlir::Value chunk, int64_t lag);
  void foldLagging(chunk::LookbackOp op);
  /// Erases what nobody uses.
  static void eraseDead(mlir::Block &block);
  void eraseWhatLookbacksLeft(mlir::Block &block);
  /// Chunks from one to before another.
  struct Chunks {
    mlir::Value begin, end;
  };
  /// Those at two distances, the farther one first.
  Chunks chunksAt(chunk::LookbackOp op, llvm::ArrayRef<int64_t> distances);
  /// Those that a look-back meets.
  Chunks chunksOf(chunk::LookbackOp op);
  Chunks chunksAhead(chunk::LookbackOp op);
  /// Those that the ranges of this chunk's tokens reach, or hold all of each of them.
  Chunks spanOf(chunk::LookbackOp op, bool wholly);
  Chunks spanAhead(chunk::LookbackOp op, mlir::Value other, mlir::Value last, bool toEnd, bool wholly);
  /// The chunks all of whose tokens each token of this one looks back at, found before the loop.
  std::optional<Chunks> wholeChunksOf(chunk::LookbackOp op);
  /// Whether all tokens of this chunk and of `other` make pairs, in the loop: most chunks do where ranges are long.
  /// Null where that is not asked.
  mlir::Value isWhole(chunk::LookbackOp op, mlir::Value other, std::optional<Chunks> whole);
  mlir::Value bisect(Chunks chunks, llvm::function_ref<mlir::Value(mlir::Value other)> holds);
  /// Whether positions say where the ranges of a look-ahead begin and end.
  bool boundsArePositions(chunk::LookbackOp op);
  /// A bound of the ranges of the tokens of the chunk `other`.
  mlir::Value emitBound(chunk::LookbackOp op, mlir::Value bound, mlir::Value other);
  /// The tile of an argument that a look-back meets, for the chunk `other`.
  mlir::Value tileOfPast(chunk::LookbackOp op, mlir::BlockArgument argument, mlir::Type type, mlir::Value other,
                         Chunks chunks);
  /// Whether tiles are loaded when they are met, as those of many tokens are that a single one looks back at.
  bool loadsPast(chunk::LookbackOp op) { return op.getPastTokens() != static_cast<int64_t>(kernel.getChunk()); }
  /// Emits what is done with the view in which the chunk `other` of an argument lies: the window's before the first
  /// token, else its own.
  llvm::SmallVector<mlir::Value> whereItLies(chunk::LookbackOp op, mlir::BlockArgument argument, mlir::Value other,
                                             mlir::TypeRange results,
                                             llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value)> body);
  /// The channel through which tiles of an argument come that a look-back meets.
  mlir::Value channelOfPast(mlir::BlockArgument argument);
  /// The arguments whose tiles come through channels to a look-back.
  llvm::SmallVector<mlir::BlockArgument> sentPast(chunk::LookbackOp op);
  /// The first argument that is sent to the same look-backs, whose tiles are counted for both.
  mlir::BlockArgument countedWith(mlir::BlockArgument argument);
  /// The turn of the tile of the chunk `other` in the channel of an argument.
  mlir::Value turnOf(mlir::BlockArgument argument, mlir::Value other, Chunks chunks);
  /// Sends the tiles of the chunk `other`, unless it is the end.
  void sendPast(chunk::LookbackOp op, mlir::Value other, Chunks chunks);
  /// The values that stand for the results, or for what they are added to.
  void mapResults(chunk::LookbackOp op, mlir::ValueRange after);
  /// What a sum is added to, and only that, where it is known before: the fold begins with it, and needs no room of its
  /// own.
  static mlir::Value baseOf(mlir::OpResult result);

  //===--------------------------------------------------------------------===//
  // Folds of look-backs (LookbackFolds.cpp)
  //===--------------------------------------------------------------------===//

  /// What the fold has before the first tile.
  llvm::SmallVector<mlir::Value> beginFold(chunk::LookbackOp op);
  /// What it has after a tile of the chunk `other`, for which the body was emitted.
  llvm::SmallVector<mlir::Value> foldTile(chunk::LookbackOp op, mlir::Value other, mlir::Value isWhole,
                                          mlir::ValueRange before);
  /// Tiles of pairs, with other numbers, one for all or for each tile, in place of those out of range, or that do not
  /// exist where that is asked. Nothing is asked of pairs where all are in range.
  llvm::SmallVector<mlir::Value> inRangeOr(chunk::LookbackOp op, mlir::Value other, mlir::Value isWhole,
                                           mlir::ValueRange tiles, llvm::ArrayRef<double> otherwise,
                                           mlir::Value exists = {});
  llvm::SmallVector<mlir::Value> foldSoftmax(mlir::Value scores, mlir::Value rows, mlir::ValueRange before);
  mlir::Value countTies(mlir::Value scores, mlir::Value largest, mlir::Value largestBefore, mlir::Value ties);
  double unitsOfScores();
  llvm::SmallVector<mlir::Value> foldDivergence(chunk::LookbackOp op, mlir::Value other, mlir::Value isWhole,
                                                mlir::Value teacher, mlir::Value student, mlir::ValueRange before);
  /// The results, from what the fold has after the last tile.
  llvm::SmallVector<mlir::Value> endFold(chunk::LookbackOp op, mlir::ValueRange after);
  /// Conditions of pairs, or with `rank` 1 of the other chunk's tokens alone.
  mlir::Value inRangeOf(chunk::LookbackOp op, mlir::Value other, unsigned rank);

  mlir::Value splat(mlir::Type type, double number);
  mlir::Value selectOr(mlir::Value condition, mlir::Value numbers, double otherwise);
  mlir::Value scaledBy(mlir::Value tile, double factor);
  mlir::Value broadcastRows(mlir::Value numbers, mlir::Value tile);
  mlir::Value exponentialOf(mlir::Value numbers, mlir::Value shift);
  mlir::Value widen(mlir::Value tile, mlir::Type element);
  mlir::Value addWeighted(mlir::Value weights, mlir::Value rows, mlir::Value addend);
  mlir::Value addScaled(mlir::Value rows, mlir::Value column, mlir::Value addend);
  mlir::Value columnOf(mlir::Value matrix);
  mlir::Value multiply(mlir::Value left, mlir::Value right, mlir::Value addend, bool transposeLeft = false);

  //===--------------------------------------------------------------------===//

  chunk::ArgumentKind kindOf(mlir::BlockArgument argument) {
    return kernel.getArgument(argument.getArgNumber()).getKind();
  }
  bool isState(mlir::BlockArgument argument) { return kindOf(argument) == chunk::ArgumentKind::State; }
  bool isTable(mlir::BlockArgument argument) { return kindOf(argument) == chunk::ArgumentKind::Table; }
  bool isWindow(mlir::BlockArgument argument) { return kindOf(argument) == chunk::ArgumentKind::Window; }
  /// Positions are computed, as they take less time than a table of them.
  bool isComputed(mlir::BlockArgument argument);
  /// The rows of such a table for a chunk.
  mlir::Value evaluate(mlir::BlockArgument argument, mlir::Type type, mlir::Value chunk);
  bool keepsCheckpoints();
  bool walksSegment() {
    return kernel.getReverse() || kernel.getSegments() || keepsCheckpoints() ||
           !kernel.argumentsOf(chunk::ArgumentKind::Checkpoint).empty();
  }
  /// Whether each chunk has a tile of its own: of inputs, of checkpoints, and of tables that vary over time.
  bool isPerChunk(mlir::BlockArgument argument);
  /// The window of an input, where it has one.
  mlir::BlockArgument windowOf(mlir::BlockArgument input);
  /// Whether only look-backs read it: its tiles come when they are met.
  bool isOnlyPast(mlir::BlockArgument argument);
  /// Whether it is one number for each token of an input.
  bool isNumbers(mlir::BlockArgument argument);
  chunk::TableOp tableOf(mlir::BlockArgument argument);

  mlir::Value view(unsigned index) { return function.getBlock()->getArgument(index); }
  mlir::Value view(mlir::BlockArgument argument) { return view(argument.getArgNumber()); }
  mlir::Value constant(int64_t value) { return mlir::arith::ConstantIndexOp::create(builder, value); }

  chunk::KernelOp kernel, between;
  FuncOp function;
  bool computeTables, fromStart;
  mlir::SymbolTableCollection &symbols;
  mlir::ImplicitLocOpBuilder builder;
  mlir::IRMapping mapping;
  /// What was made before states between were found, and is to be made again behind that.
  llvm::SmallPtrSet<mlir::Operation *, 16> leftBehind;
  llvm::MapVector<mlir::BlockArgument, Stream> streams;
  llvm::MapVector<mlir::BlockArgument, mlir::Value> pastChannels;
  /// The channels of arguments of which look-backs meet one chunk, so many before each, or behind it.
  llvm::MapVector<std::pair<mlir::BlockArgument, int64_t>, mlir::Value> lagging;
  /// The turn of the next tile of those that are counted.
  llvm::MapVector<mlir::BlockArgument, mlir::Value> turns;
  bool hasTurns = false; // chunks are walked over
  mlir::Value tokens, perChunk;
  mlir::Value index, nextIndex; // the chunk that is worked on, and that of the next turn
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_KERNELFOLDER_H
