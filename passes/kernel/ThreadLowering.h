//===- ThreadLowering.h - From a block to one of its threads ----*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_THREADLOWERING_H
#define STRETTO_PASSES_KERNEL_THREADLOWERING_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "passes/kernel/ThreadBuilder.h"
#include "runtime/Manifest.h"
#include <limits>

namespace stretto::kernel {

/// What one thread does of a `kernel.func`. The operations of the function are visited in order; each method below
/// emits what one of them means for a thread and records where its result is.
class ThreadLowering {
public:
  /// `roles`: what the warps of a block do, those of the first function first.
  ThreadLowering(llvm::ArrayRef<FuncOp> roles, Manifest manifest, mlir::OpBuilder &builder)
      : roles(roles), function(roles.front()), manifest(std::move(manifest)), b(function.getLoc(), builder) {
    for (FuncOp role : roles)
      role.walk([&](chunk::ExpectOp op) { expected.push_back(op); });
  }

  /// Emits the function in place of the block's.
  mlir::LogicalResult run();

  /// The symbol of the shared memory of a block.
  static constexpr llvm::StringLiteral sharedMemory = "stretto_shared";

private:
  //===--------------------------------------------------------------------===//
  // The frame and control flow (LowerToThreads.cpp)
  //===--------------------------------------------------------------------===//

  mlir::LLVM::LLVMFuncOp createFunction();
  int64_t blocksAtOnce();
  mlir::LogicalResult lower(mlir::Block &block);
  /// Lowers operations that stand behind each other, up to `end`, in stripes.
  mlir::LogicalResult lowerInStripes(mlir::Block::iterator begin, mlir::Block::iterator end);
  mlir::LogicalResult lower(mlir::Operation *op);
  bool takesMiddles(mlir::scf::IfOp condition);
  /// The same number, of which nothing is known where the code is written: what a branch makes of it is not made before
  /// a loop, where it would be the same in each turn, and kept in registers beside all else that the loop does.
  mlir::Value hidden(mlir::Value number);
  mlir::LogicalResult lowerCondition(mlir::scf::IfOp condition);
  /// What threads have stored is seen, and what they have loaded is there, for those who access shared memory by other
  /// ways.
  void fenceShared();
  /// With `fence` behind that.
  void lowerBarrier(bool fence);
  /// Appends what a value that loops and conditions hand on consists of in a thread.
  void appendLive(mlir::Value source, llvm::SmallVectorImpl<mlir::Value> &values);
  /// Makes of the next of `values` what `source` consists of the value `target`.
  void takeLive(mlir::Value target, mlir::Value source, mlir::ValueRange &values);

  //===--------------------------------------------------------------------===//
  // What a file may have that cannot be lowered (CheckBlocks.cpp)
  //===--------------------------------------------------------------------===//

  mlir::LogicalResult check();
  mlir::LogicalResult checkLayouts(FuncOp function);
  llvm::StringRef problemOfCopy(mlir::Operation *op);
  llvm::StringRef problemOfFetch(FetchOp op);
  llvm::StringRef problemOfRoles();
  bool fitsOver(ChannelOp channel);
  llvm::StringRef problemOfExpected();

  //===--------------------------------------------------------------------===//
  // Loops over chunks (LowerWalks.cpp)
  //===--------------------------------------------------------------------===//

  void awaitLoadsBefore(mlir::scf::ForOp loop);
  mlir::LogicalResult lowerLoop(mlir::scf::ForOp loop);
  /// The same of a walk that may end before its last chunk.
  mlir::LogicalResult lowerWalk(mlir::scf::ForOp loop, mlir::ValueRange initial);
  void lowerExpect(chunk::ExpectOp op);
  /// What ends the walks of all roles; null where nothing does.
  chunk::ExpectOp ends() { return expected.empty() ? chunk::ExpectOp() : expected.front(); }
  /// Where walks end: behind that chunk, or never before the last one.
  mlir::Value endOfWalks();
  /// Has a producer wait for the tiles that nobody has received, so that none comes when its block has gone.
  void awaitUnread(mlir::Value turns);
  /// Awaits what a role has left for the memory system, and says of the work item whether it is left to another kernel.
  void lowerReturn();

  //===--------------------------------------------------------------------===//
  // What a block is to walk (LowerItems.cpp)
  //===--------------------------------------------------------------------===//

  /// What the block's work item is, and what it does with its heads.
  mlir::LogicalResult lowerItem(mlir::Value block);
  /// Of so many heads of a sequence that has no row of the state, from one on, all that is stored: zeros.
  void clearOutputs(mlir::Value firstHead, mlir::Value count);
  /// Where each chunk is an item of its own.
  mlir::LogicalResult lowerChunk(mlir::Value item);
  /// Where each segment is one.
  mlir::LogicalResult lowerSegment(mlir::Value item);
  /// The sequence of a packed batch that a chunk or segment of so many tokens belongs to, by its number.
  mlir::Value sequenceOf(mlir::Value number, mlir::Value tokensOfNumber, mlir::Value numbersOfLongest = {});
  mlir::LogicalResult lowerHead(mlir::Value number);
  void findTokens();
  /// What the segment that the launch walks has of the sequence, and where its checkpoints begin (runtime/Manifest.h).
  void findSegment();
  /// The same of the block's own segment, where they are apart.
  void findSegmentApart();
  mlir::Value firstCheckpoint(mlir::Value chunks, mlir::Value interval);
  /// A number of an array of 64-bit ones, where there is one.
  mlir::Value numberAt(mlir::Value address, mlir::Value index, mlir::Value otherwise);

  //===--------------------------------------------------------------------===//
  // Elements in place (LowerElements.cpp)
  //===--------------------------------------------------------------------===//

  void lowerElementwise(mlir::Operation *op);
  void lowerScalar(mlir::Operation *op);
  void lowerBroadcast(chunk::BroadcastOp op);
  void lowerCausal(chunk::CausalOp op);
  /// Asks of a register whether its column is of an earlier token than its row, or, unless `strict`, of the same.
  std::function<mlir::Value(uint64_t reg)> isEarlier(const Layout &layout, bool strict);
  void lowerMeet(chunk::MeetOp op);
  void lowerMeetWhole(chunk::MeetOp op);
  void lowerMeetHalved(chunk::MeetOp op);
  void lowerMiddle(chunk::MiddleOp op);
  void lowerJoinHalves(chunk::JoinHalvesOp op);
  void lowerMask(chunk::MaskOp op);
  mlir::LogicalResult lowerEvaluate(EvaluateOp op);

  //===--------------------------------------------------------------------===//
  // Look-backs (LowerLookbacks.cpp)
  //===--------------------------------------------------------------------===//

  /// Tokens of the sequence, from those that windows hold before the first on.
  struct Range {
    mlir::Value begin, end;
  };
  /// The range of a token, from its bounds.
  Range rangeOf(mlir::Value token, mlir::Value first, mlir::Value last, bool toEnd);
  /// A bound as a token, rounded towards the range; what is not a number is the start.
  mlir::Value tokenAt(mlir::Value bound, bool isLast);
  /// The bound of the token in a row of a chunk, or nothing where there are no such bounds.
  using BoundAt = std::function<mlir::Value(mlir::Value bound, mlir::Value row)>;
  /// Lets any thread ask for the bounds of a chunk's tokens.
  BoundAt boundsOf(mlir::Operation *op, mlir::Value first, mlir::Value last);
  /// What the range of any token of a chunk holds: from the first bound to the last of a token that exists.
  Range rangeOfAny(mlir::Operation *op, mlir::Value first, mlir::Value last, mlir::Value chunk, bool toEnd);
  /// What the range of each holds; nothing where not all tokens of the chunk exist.
  Range rangeOfEach(mlir::Operation *op, mlir::Value first, mlir::Value last, mlir::Value chunk, bool toEnd);
  /// How many tokens of a chunk exist.
  mlir::Value validOf(mlir::Value chunk);
  /// The first token of a chunk of so many.
  mlir::Value startOf(mlir::Value chunk, int64_t tokens) { return b.truncate(b.mul(scalars.lookup(chunk), tokens)); }
  /// How many tokens before the first windows hold at most.
  int64_t windowLength() const;
  void lowerSpan(SpanOp op);
  void lowerInRange(InRangeOp op);

  //===--------------------------------------------------------------------===//
  // Global memory and channels (LowerMemory.cpp)
  //===--------------------------------------------------------------------===//

  /// An argument of the launch, for this block's work item.
  struct View {
    const Manifest::Argument *argument;
    mlir::Value base;        // the first element of the item; states: of the initial state
    mlir::Value head;        // the head of the argument that the item meets
    mlir::Value rowStride;   // from token to token, or row to row of a state, in elements
    mlir::Value chunkStride; // checkpoints: from chunk to chunk, in elements
    mlir::Value period;      // tables: after how many rows they begin again; the largest number where they do not
    mlir::Value phase;       // tables: the position of the item's first token within the period
    mlir::Value given;       // states: whether there is an initial state; null where there always is
    mlir::Value final;       // states: where the final state goes
    mlir::Value finalStride; // states: from row to row of it
    mlir::Value wanted;      // whether what is left is wanted from this block; null where it always is
    mlir::Value boxes;       // the description of the tensor that the memory system copies; null where it does not
    mlir::Value arrival;     // what was fetched: the barrier of which a phase is complete when it is there
    mlir::Value parity;      // and the parity of the phase
  };
  View decodeView(const Manifest::Argument &argument, int64_t word);
  /// Where segments are apart: a state begins where its segment does, and may end there, too. Its words of segments
  /// begin at `word`.
  void placeSegment(View &view, int64_t word);
  /// The rows of a tile in global memory.
  struct Rows {
    mlir::Value base;                  // the first row, or the first row of a table
    mlir::Value stride;                // in elements; null where the tile is one row
    mlir::Value first, period;         // rings: the position of the first row, and how many rows there are
    mlir::Value turn = {}, again = {}; // tables: from which row on they begin again, and how many rows that takes back
    mlir::Value from = {}, valid = {}; // from which one on, and how many, exist; null for all
    mlir::Value exist = {};            // whether any does; null where they do
  };
  Rows rowsOf(const View &view, mlir::Value chunk, mlir::RankedTensorType tile, bool mayBeBefore = false);
  /// Which of the checkpoints a chunk has, counted from the first of the range, and whether it exists.
  struct Place {
    mlir::Value number, exists;
  };
  Place checkpointOf(mlir::Value chunk);
  /// Which of the checkpoints that a kernel keeps a store leaves, and whether it is to be left.
  Place keptPlaceOf(StoreOp op);
  mlir::Value addressIn(const Rows &rows, const Layout &layout, uint64_t reg, int64_t elementBytes);
  /// Whether the element in a register is in memory; null where all are.
  mlir::Value existsIn(const Rows &rows, const Layout &layout, llvm::ArrayRef<int64_t> shape, uint64_t reg);
  mlir::Value word(int64_t index);
  /// Where a kernel says whether it has left its work item to another one.
  mlir::Value placeOfLeft();
  const View &viewOf(mlir::Value view) {
    auto found = fetched.find(view);
    return found == fetched.end() ? views[cast<mlir::BlockArgument>(view).getArgNumber()] : found->second;
  }
  mlir::Value validTokens(mlir::Value firstToken, int64_t count);
  /// None of them where the first lies before the sequence.
  mlir::Value noneBefore(mlir::Value firstToken, mlir::Value valid);
  /// Whether a walk forward may ask for a chunk before the sequence: it takes something from the number of its own.
  static bool mayBeNegative(mlir::Value chunk);

  void lowerChannel(ChannelOp op);
  void lowerSend(SendOp op);
  void lowerReceive(ReceiveOp op);
  /// The tile of a channel that belongs to a chunk or a turn; the first where there is none.
  mlir::Value placeInRing(mlir::Value channel, mlir::Value number, mlir::RankedTensorType tile);
  void lowerLoad(LoadOp op);
  /// Each thread copies pieces of a tile.
  void copyRows(SendOp op);
  void lowerSave(SaveOp op);
  void lowerStore(StoreOp op);
  void lowerReplace(ReplaceOp op);
  /// Each thread stores what it has of a tile.
  void storeRows(StoreOp op, llvm::ArrayRef<mlir::Value> tile, mlir::RankedTensorType type);
  /// The tile of a store in another layout, by way of shared memory, in which each warp has its own part.
  Registers stage(StoreOp op, mlir::RankedTensorType target);
  void lowerCarry(CarryOp op);

  //===--------------------------------------------------------------------===//
  // Boxes that the memory system copies (LowerBoxes.cpp)
  //===--------------------------------------------------------------------===//

  /// Notes in the manifest of which arguments the memory system copies boxes.
  void noteBoxes();
  /// Makes the barriers of a bulk channel.
  void openBoxes(ChannelOp op);
  static bool isBulk(mlir::Value channel);
  void sendBoxes(SendOp op);
  /// Completes the barrier of a turn when all threads have copied their rows.
  void arriveWithRows(SendOp op);
  /// The barrier (mbarrier) of a turn of a channel that is complete when its tile is there; of one that roles pass
  /// tiles through also that of its readers, complete when it has been read. The k-th use of a place completes the k-th
  /// phase.
  mlir::Value barrierOf(ChannelOp channel, mlir::Value turn, bool ofReaders = false);
  /// Of a channel that several roles read: complete when rows without a token have been cleared.
  mlir::Value barrierOfCleared(ChannelOp channel);
  /// Each warp leaves its rows in shared memory, from where the memory system copies them while the warp goes on. Rows
  /// of a chunk that is cut, behind which another sequence may lie, threads store themselves, as `rows` says.
  void storeBoxes(StoreOp op, mlir::RankedTensorType rows);
  /// One thread has the memory system copy a tile that all have left in shared memory, behind a fence and a barrier.
  /// Rows of a chunk that is cut threads store.
  void storeLeft(StoreOp op);
  /// Does either by whether all rows of a chunk are of its sequence.
  void ifWhole(StoreOp op, llvm::function_ref<void()> whole, llvm::function_ref<void()> cut);
  /// Orders copies of a tile's boxes, of so many rows: those of its own warp, as a layout says, or all of them.
  void orderBoxes(StoreOp op, const SharedTile &tile, int64_t boxRows, const Layout *ofWarps);
  /// Has what a warp has left for the memory system be read, before it leaves more or goes.
  void awaitStoredBoxes();
  void onFirstLane(llvm::function_ref<void()> body);
  /// One thread orders the copy of an entry's rows, and copies them back.
  void lowerFetch(FetchOp op);
  void lowerLeave(LeaveOp op);
  /// Waits until a phase of a barrier is complete.
  void awaitParity(mlir::Value barrier, mlir::Value parity);
  /// Waits for the tile of a turn, or for a place to leave one in.
  void awaitPhase(ChannelOp channel, mlir::Value turn, bool ofReaders = false);
  void onFirstThread(llvm::function_ref<void()> body);
  /// Whether rows of its tiles are those of tokens.
  bool hasTokens(ChannelOp channel);
  /// Waits for the tile of a turn, of which rows without a token become 0.
  void awaitBoxes(ReceiveOp op, const SharedTile &tile);
  /// Makes rows 0 that have no token, and says so to other roles.
  void clearRows(ChannelOp channel, const SharedTile &tile, mlir::Value valid);
  /// Of those that receive the tiles of a channel, the first clears rows for all. That a producer would do it costs
  /// more: ptxas then takes addresses that are the same for all lanes, in every role, for such that are not.
  FuncOp roleThatClears(ChannelOp channel);

  //===--------------------------------------------------------------------===//
  // Roles (LowerRoles.cpp)
  //===--------------------------------------------------------------------===//

  /// What the warps of each role do.
  mlir::LogicalResult lowerRoles();
  void openPassed();
  /// Each thread arrives when it has stored, or read, the tile of a turn.
  void arrivePassed(mlir::Value channel, mlir::Value turn, bool isRead);
  void lowerPass(PassOp op);
  /// Whether a tile is rounded for the pass that stands behind it alone, when there is a place for it: till then its
  /// numbers take no registers of their own, of which the role has too few.
  bool isRoundedLate(mlir::arith::TruncFOp op);
  void lowerRelease(ReleaseOp op);
  void lowerConditionOfTile(ConditionOp op);

  //===--------------------------------------------------------------------===//
  // Exchange between threads (LowerExchanges.cpp)
  //===--------------------------------------------------------------------===//

  void lowerConvert(ConvertOp op);
  void lowerSetAside(SetAsideOp op);
  void lowerTakeBack(TakeBackOp op);
  /// The address of the first 16 bytes that the thread has set aside, and those from one to the next.
  mlir::Value placeAside(SetAsideOp op);
  Registers rename(const Registers &source, const Conversion &conversion, const Layout &target,
                   llvm::ArrayRef<int64_t> shape);
  Registers shuffle(const Registers &source, const Conversion &conversion, const Layout &target,
                    llvm::ArrayRef<int64_t> shape);
  /// Stores a tile, and zeros beyond it: as far as products read, or all of the padding.
  enum class Padding { Fragments, All };
  /// What a register of a tile has; zero where the thread has no number of the tile there.
  mlir::Value numberOrZero(const Registers &source, mlir::RankedTensorType type, uint64_t reg);
  void toShared(const Registers &source, mlir::RankedTensorType type, const SharedTile &tile,
                Padding padding = Padding::Fragments);
  /// The same of fragments of products, whole matrices at a time.
  void matricesToShared(const Registers &source, mlir::RankedTensorType type, const SharedTile &tile);
  Registers matricesFromShared(const SharedTile &tile, mlir::RankedTensorType type);
  Registers fromShared(const SharedTile &tile, mlir::RankedTensorType type);
  /// Operands in shared memory: where they are, or copied to the scratch region of their operation, from `offset` on.
  /// All threads may read them.
  llvm::SmallVector<SharedTile, 3> gatherable(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands,
                                              int64_t offset = 0);

  void lowerReduce(chunk::ReduceOp op);
  void lowerColumns(chunk::ColumnsOp op);
  void lowerConcat(chunk::ConcatOp op);
  void joinWithin(chunk::ConcatOp op, const Conversion &within);
  void joinConstants(chunk::ConcatOp op);
  void lowerConv(chunk::ConvOp op);
  void lowerConvBack(chunk::ConvBackOp op);
  void lowerConvTaps(chunk::ConvTapsOp op);
  void lowerDelay(chunk::DelayOp op);
  void lowerTail(chunk::TailOp op);

  //===--------------------------------------------------------------------===//
  // Decay (LowerDecay.cpp)
  //===--------------------------------------------------------------------===//

  void lowerAccumulate(chunk::AccumulateOp op);
  void lowerTotal(chunk::TotalOp op);
  void lowerRow(chunk::RowOp op);
  void lowerWithin(chunk::WithinOp op);
  void lowerDecayMatrix(chunk::DecayMatrixOp op);
  mlir::LogicalResult lowerDecayDot(chunk::DecayDotOp op);

  //===--------------------------------------------------------------------===//
  // What walks from token to token (LowerRecurrences.cpp)
  //===--------------------------------------------------------------------===//

  mlir::LogicalResult lowerDecayMix(chunk::DecayMixOp op);
  void lowerDecayPairs(chunk::DecayPairsOp op);
  void lowerSolve(chunk::SolveOp op);
  void lowerScan(chunk::ScanOp op);
  /// Stores a square matrix, as it is or transposed.
  void toSharedMatrix(mlir::Value matrix, const SharedTile &tile, bool transpose);
  /// Emits, for each column of a tile in shared memory, what the one thread that has the column does.
  void forOwnColumn(const SharedTile &tile, llvm::function_ref<void(mlir::Value column)> body);

  //===--------------------------------------------------------------------===//
  // Inverses (LowerInverse.cpp)
  //===--------------------------------------------------------------------===//

  mlir::LogicalResult lowerInverse(chunk::InverseOp op);

  //===--------------------------------------------------------------------===//
  // Products (LowerProducts.cpp)
  //===--------------------------------------------------------------------===//

  mlir::LogicalResult lowerProduct(chunk::DotOp op);
  mlir::LogicalResult multiplyTiles(chunk::DotOp op);
  void lowerFinish(FinishOp op);
  /// Waits for a product of warpgroups; its registers.
  Registers finished(chunk::DotOp op);
  /// The numbers of the tiles of a product as its registers.
  Registers spread(chunk::DotOp op, mlir::ValueRange numbers);
  void multiplyFragments(chunk::DotOp op, Registers &sums);
  void multiplyNumbers(chunk::DotOp op, Registers &sums);
  mlir::LogicalResult lowerMatvec(MatvecOp op);

  //===--------------------------------------------------------------------===//

  int64_t threadsOfRole() { return function.getWarps() * lanesOfWarp; }
  Registers &registersOf(mlir::Value tile) { return registers.find(tile)->second; }
  /// The registers of a new tile: made by `element` for each one that may belong to the tile.
  void define(mlir::Value tile, llvm::function_ref<mlir::Value(uint64_t reg)> element);
  mlir::Value scratchOf(mlir::Operation *op);
  SharedTile scratchTile(mlir::Value base, mlir::RankedTensorType type);

  llvm::SmallVector<FuncOp, 4> roles;
  FuncOp function; // the role that is lowered
  /// What is expected of chunks, in the roles in order: one thing at most, as is checked first.
  llvm::SmallVector<chunk::ExpectOp, 1> expected;
  static constexpr int64_t noEnd = std::numeric_limits<int32_t>::max();
  /// Of what is lowered in stripes, the registers of tiles that are next; else all.
  struct Stripe {
    uint64_t begin = 0, end = std::numeric_limits<uint64_t>::max();
    bool has(uint64_t reg) const { return begin <= reg && reg < end; }
    bool isAll() const { return end == std::numeric_limits<uint64_t>::max(); }
  } stripe;
  /// The registers that a tile has so far, of as many as its layout says.
  Registers soFar(mlir::Value tile, const Layout &layout);
  /// Whether a branch is lowered that is seldom taken.
  bool isRare = false;
  /// Whether the role that is lowered has a share of registers, and fewer than its tiles want.
  bool roundsLate = false;
  /// Which group of a role is lowered.
  int64_t group = 0;
  Manifest manifest;
  ThreadBuilder b;

  mlir::Value block, shared;
  mlir::Value firstToken, tokens, sequence, stateRow, position, head, slice, packed;
  /// The row of the initial state, which may be a checkpoint; the chunks of the segment; the first checkpoint, and the
  /// chunk that it is of.
  mlir::Value startRow, begin, end, checkpoint, firstKept;
  /// The chunks from one checkpoint to the next, by which the numbers of chunks are divided, in each turn of a walk: by
  /// what they are multiplied with, while the products of both have 32 bits.
  struct Interval {
    mlir::Value number, reciprocal, isOne, isExact;
    /// Of a launch that walks so many chunks.
    static Interval of(mlir::Value number, mlir::Value chunks, ThreadBuilder &b);
    /// The quotient, and whether nothing is left.
    std::pair<mlir::Value, mlir::Value> divide(mlir::Value number, ThreadBuilder &b) const;
  } interval;
  void findInterval();
  void awaitLaunches();
  bool isAwaited = false;
  /// Where segments are apart: which it is; whether it begins with the initial state, walks any chunk, and leaves the
  /// final state.
  mlir::Value segment, isFirst, exists, isLast;
  mlir::Value ownChunk;           // where chunks are independent
  mlir::scf::ForOp loopOverHeads; // where a block has several, one after the other
  mlir::Value held;               // the tokens before the first that windows hold
  llvm::SmallVector<View> views;
  llvm::DenseMap<mlir::Value, View> fetched;
  mlir::Value thread; // its number in the block, or in the role

  mlir::IRMapping scalars;
  llvm::DenseMap<mlir::Value, Registers> registers;
  llvm::DenseMap<mlir::Value, SharedTile> sharedTiles;
  /// What has been accumulated of all rows, where that is asked for.
  llvm::DenseMap<mlir::Value, Registers> totals;
  /// Whether numbers of a thread exceed limits that a question has, of which another one, behind it, asks all threads.
  llvm::DenseMap<mlir::Operation *, mlir::Value> exceeded;
  /// Products of warpgroups in the order in which they were started, from the first on that nothing has waited for.
  llvm::SmallVector<mlir::Value> started;
  /// Channels: the address of the first tile.
  llvm::DenseMap<mlir::Value, mlir::Value> channels;
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_THREADLOWERING_H
