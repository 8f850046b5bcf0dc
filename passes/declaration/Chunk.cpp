//===- Chunk.cpp - From one token to a chunk of tokens --------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Passes.h"
#include "passes/declaration/ChunkCotangent.h"
#include "passes/declaration/ChunkEarlierReads.h"
#include "passes/declaration/ChunkFeedback.h"
#include "passes/declaration/ChunkLaterWrites.h"
#include "passes/declaration/ChunkLookback.h"
#include "passes/declaration/ChunkRows.h"
#include "passes/declaration/ChunkSegments.h"
#include "passes/declaration/ChunkTransition.h"
#include "passes/declaration/GradientParts.h"
#include "passes/declaration/KeptRows.h"
#include "passes/declaration/KernelBuilder.h"
#include "passes/declaration/KernelNames.h"

namespace stretto {
#define GEN_PASS_DEF_CHUNK
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

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
StringRef suffixOf(Part part) {
  switch (part) {
  case Part::Whole:
  case Part::Gradient:
    return "";
  case Part::Tails:
    return suffix::tails;
  case Part::Totals:
    return suffix::totals;
  case Part::Transitions:
    return suffix::transitions;
  case Part::Writes:
    return suffix::writes;
  case Part::SegmentStarts:
    return suffix::segmentStarts;
  case Part::Checkpoints:
    return suffix::checkpoints;
  case Part::Rows:
    return suffix::rows;
  case Part::Cotangents:
    return suffix::cotangents;
  case Part::CotangentWrites:
    return suffix::cotangentWrites;
  case Part::CotangentTails:
    return suffix::cotangentTails;
  case Part::Sums:
    return suffix::sums;
  }
  llvm_unreachable("every part has its name");
}

/// The type of a row that is added up in products, which would round it. A number is kept as it is.
FloatType typeOfSummedRow(Value row, const ElementTypes &types) {
  bool isRounded = types.standard.isBF16() && cast<RankedTensorType>(row.getType()).getRank() > 0;
  return isRounded ? types.standard : types.compute;
}

/// Makes a kernel of one variant, or of a part of it.
class ChunkVariant {
public:
  ChunkVariant(VariantOp variant, int64_t tokens, const ElementTypes &types, Part part = Part::Whole,
               GradientParts parts = {}, chunk::SegmentsAttr segments = {}, ArrayRef<SegmentEffect> transitions = {})
      : variant(variant), tokens(tokens), types(types), part(part), parts(std::move(parts)), segments(segments),
        transitions(transitions), kernel(variant, "chunk", tokens, /*pastTokens=*/tokens, types) {}

  LogicalResult run();
  /// What the tokens of a segment do to each state, or to each total.
  ArrayRef<SegmentEffect> getEffects() const { return effects; }
  /// The states that are carried.
  SmallVector<BlockArgument> getCarried();

private:
  LogicalResult checkChains();
  SmallVector<chunk::OutputAttr> describeOutputs();
  bool walksForward() const { return part == Part::SegmentStarts || part == Part::Checkpoints; }
  std::string name();
  /// Heads that share a state have parts of its cotangent, which are added up in the end: all else is linear in them.
  int64_t groupOf(StateType state) { return state.getReverse() ? 1 : kernel.groupOf(state.getHeads()); }
  /// The type that a state has in a checkpoint.
  FloatType typeOfCheckpoint(StateType state) const;
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
  bool carriesTailsBack() const { return part == Part::Gradient || part == Part::CotangentTails; }
  /// Whether the kernel carries states of reverse time and leaves nothing else.
  bool carriesAlone() const { return part == Part::Cotangents || part == Part::CotangentWrites; }
  /// Whether the kernel has a forward state or tail, or a state of reverse time; and whether it keeps it for another.
  bool takes(ArrayRef<Operation *> operations);
  bool takesReverse(Operation *root);
  bool keeps(Operation *op);
  /// Whether the kernel leaves a result.
  bool leaves(unsigned result);
  /// The rows that the kernel leaves, and all that it is made for, beside the rows of its states.
  SmallVector<Value> leftRows();
  SmallVector<Value> wanted();
  void addStates();
  void addTotalDecays();
  BlockArgument addTotalDecay(const StateChain &chain, ChunkRecurrence::TotalDecay total);
  void addTransitions();
  void addTotals();
  Value nextShift(const StateEntry &entry, Value before);
  void addTails(ArrayRef<Operation *> order);
  LogicalResult buildTile(Operation *op);
  void buildReverseConv(Operation *op);
  FailureOr<SmallVector<Value>> results();
  FailureOr<Value> keptState(const StateChain &chain);
  FailureOr<SmallVector<Value>> next();

  VariantOp variant;
  int64_t tokens;
  const ElementTypes &types;
  Part part;
  GradientParts parts;
  chunk::SegmentsAttr segments;
  /// What feedback does to states that feed back, in order.
  ArrayRef<SegmentEffect> transitions;
  KernelBuilder kernel;
  SmallVector<SegmentEffect> effects;
  SmallVector<StateChain> chains;
  /// By the root of their chain, which is read and written now or at an earlier time.
  llvm::DenseMap<Operation *, std::unique_ptr<ChunkRecurrence>> recurrences;
  llvm::DenseMap<Operation *, std::unique_ptr<ChunkEarlierReads>> earlierReads;
  /// The rows that are written to the former.
  llvm::DenseSet<Value> written;
  /// The state of each chain at the start of a chunk, or of a reverse one at its end.
  llvm::DenseMap<Operation *, Value> starts;
  /// Of a gradient, the tails and totals of the program, and those of what runs in reverse.
  SmallVector<StateEntry> forwardTails, reverseTails;
  SmallVector<StateEntry> scans;                // whose totals are wanted
  SmallVector<Value> tailStarts;                // of the forward ones
  llvm::DenseMap<Operation *, Value> carryOf;   // of each reverse convolution or delay
  llvm::DenseMap<Operation *, Value> nextCarry; // what it hands on
};

} // namespace

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

LogicalResult ChunkVariant::checkChains() {
  for (StateChain &chain : chains) {
    if (ChunkEarlierReads::hasSome(chain)) {
      if (failed(ChunkEarlierReads::check(chain)))
        return failure();
      continue;
    }
    if (ChunkLaterWrites::hasSome(chain)) {
      if (failed(ChunkLaterWrites::check(chain)))
        return failure();
      continue;
    }
    FailureOr<std::optional<Feedback>> feedback = findFeedback(chain);
    if (failed(feedback))
      return failure();
    chain.feedback = std::move(*feedback);
    bool isCotangent = walksBack() && chain.getRoot().getType().getReverse();
    if (failed(isCotangent ? ChunkCotangent::check(chain) : ChunkRecurrence::check(chain)))
      return failure();
  }
  auto chainOf = [&](Value state) -> const StateChain & {
    return *llvm::find_if(chains, [&](const StateChain &chain) { return chain.root == rootOf(state); });
  };
  for (auto pair : variant.getBlock()->getOps<PairOp>())
    if (part == Part::Gradient &&
        failed(ChunkCotangent::checkPair(pair, chainOf(pair.getState()), chainOf(pair.getCotangent()))))
      return failure();
  return success();
}

/// Products round a matrix of bf16 rows to bf16 whenever they read it, so that nothing is lost to them; numbers of fp16
/// have too few powers for a sum over many tokens.
FloatType ChunkVariant::typeOfCheckpoint(StateType state) const {
  bool isRead = types.standard.isBF16() && state.getSecondSize() > 1;
  return isRead && part != Part::SegmentStarts ? types.standard : types.compute;
}

/// Whether a state that is read or written at an earlier time goes on before it is read.
static bool goesOnFirst(const StateChain &chain, int64_t tokens) {
  if (ChunkEarlierReads::hasSome(chain))
    return ChunkEarlierReads::goesOnFirst(chain, tokens);
  return ChunkLaterWrites::hasSome(chain) && ChunkLaterWrites::goesOnFirst(chain, tokens);
}

/// A forward state that has gone on is no state that a walk can begin with.
std::string ChunkVariant::nameOfCheckpoint(const StateChain &chain) {
  StringRef name = chain.getRoot().getName();
  bool isOther = part != Part::SegmentStarts && !chain.getRoot().getType().getReverse() && goesOnFirst(chain, tokens);
  return isOther ? (name + ".read").str() : name.str();
}

void ChunkVariant::addStates() {
  if (part == Part::Transitions)
    return addTransitions();
  TileBuilder &b = kernel.tiles();
  for (const StateChain &chain : chains) {
    StateOp root = chain.getRoot();
    bool isReverse = root.getType().getReverse();
    auto kind = isCarried(root) ? chunk::ArgumentKind::State : chunk::ArgumentKind::Checkpoint;
    int64_t group = groupOf(root.getType());
    bool isCheckpoint = kind == chunk::ArgumentKind::Checkpoint;
    FloatType type = isCheckpoint ? typeOfCheckpoint(root.getType()) : types.compute;
    Value start =
        b.cast(kernel.addState(root, kind, group, type, isCheckpoint ? nameOfCheckpoint(chain) : ""), types.compute);
    starts[root] = start;
    using Reads = ChunkEarlierReads::Reads;
    Reads reads = !goesOnFirst(chain, tokens) ? Reads::AsCarried : isCheckpoint ? Reads::AsKept : Reads::GoingOn;
    if (ChunkEarlierReads::hasSome(chain))
      earlierReads[root] =
          std::make_unique<ChunkEarlierReads>(chain, b.matrixOf(start), reads, b, kernel.sizes(), kernel.rawTileOf);
    else if (ChunkLaterWrites::hasSome(chain))
      earlierReads[root] =
          std::make_unique<ChunkLaterWrites>(chain, b.matrixOf(start), reads, b, kernel.sizes(), kernel.rawTileOf);
    else if (isReverse)
      recurrences[root] = std::make_unique<ChunkCotangent>(chain, b.matrixOf(start), b);
    else
      recurrences[root] = std::make_unique<ChunkRecurrence>(chain, b.matrixOf(start), b);
    if (recurrences.contains(root))
      for (Operation *step : chain.steps)
        if (auto write = dyn_cast<WriteOp>(step))
          written.insert_range(std::array{write.getFirst(), write.getSecond()});
  }
  if (part == Part::Writes || part == Part::CotangentWrites)
    addTotalDecays();
  for (const StateEntry &tail : reverseTails)
    carryOf[tail.operations.front()] = kernel.addTail(tail, chunk::ArgumentKind::State, /*group=*/1);
}

void ChunkVariant::addTotalDecays() {
  for (const StateChain &chain : chains) {
    StateOp root = chain.getRoot();
    if (!isCarried(root))
      continue;
    SegmentEffect &effect = effects.emplace_back(SegmentEffect{cast<BlockArgument>(starts.at(root))});
    if (chain.feedback && !transitions.empty()) {
      const SegmentEffect &found = transitions.consume_front();
      effect.transition = found.transition;
      effect.multiplied = found.multiplied;
      effect.decay = found.decay;
    }
    std::optional<ChunkRecurrence::TotalDecay> total = ChunkRecurrence::totalDecayOf(chain);
    if (!total)
      continue;
    effect.form = total->form;
    effect.decayed = total->side;
    if (!effect.transition)
      effect.decay = addTotalDecay(chain, *total);
  }
}

BlockArgument ChunkVariant::addTotalDecay(const StateChain &chain, ChunkRecurrence::TotalDecay total) {
  StateOp root = chain.root;
  return kernel.addTotalDecay((root.getName() + ".decay").str(), total.size, groupOf(root.getType()),
                              /*lowest=*/total.form == chunk::DecayForm::Factor);
}

void ChunkVariant::addTransitions() {
  TileBuilder &b = kernel.tiles();
  for (const StateChain &chain : chains) {
    StateOp root = chain.root;
    SegmentEffect &effect = effects.emplace_back();
    int64_t size = ChunkTransition::sizeOf(chain);
    SmallVector<int64_t> shape(size == 1 ? 1 : 2, size); // one column is a vector in memory
    effect.transition = kernel.addTotalDecay((root.getName() + ".transition").str(), shape, groupOf(root.getType()));
    effect.multiplied = ChunkTransition::sideOf(chain);
    if (std::optional<ChunkRecurrence::TotalDecay> total = ChunkRecurrence::totalDecayOf(chain))
      effect.decay = addTotalDecay(chain, *total);
    recurrences[root] = std::make_unique<ChunkTransition>(chain, b.matrixOf(effect.transition), effect.decay, b);
  }
}

/// Scans that share a total are one entry.
void ChunkVariant::addTotals() {
  for (const StateEntry &entry : scans) {
    auto scan = cast<ScanOp>(entry.operations.front());
    SegmentEffect &effect = effects.emplace_back(SegmentEffect{kernel.carriedFor(scan)});
    effect.scan = kindOf(scan);
    if (scan.getLog())
      effect.decay =
          kernel.addTotalDecay(entry.name + ".decay", kernel.typeOfTail(entry).getShape(), kernel.groupOf(entry.heads));
  }
}

/// The logarithms that shift a total add up like one.
Value ChunkVariant::nextShift(const StateEntry &entry, Value before) {
  TileBuilder &b = kernel.tiles();
  Value logs = b.matrixOf(b.tileOf(cast<ScanOp>(entry.operations.front()).getLog()));
  Value sums = b.create<chunk::ScanOp>(cast<RankedTensorType>(logs.getType()), chunk::ScanKind::Add, logs, before,
                                       /*log=*/Value());
  return b.create<chunk::TailOp>(before.getType(), sums, b.valid, before);
}

//===----------------------------------------------------------------------===//
// Tails
//===----------------------------------------------------------------------===//

void ChunkVariant::addTails(ArrayRef<Operation *> order) {
  if (part == Part::Whole || part == Part::Totals || part == Part::Transitions || part == Part::Writes) {
    kernel.addTails(order);
    if (part == Part::Totals)
      addTotals();
    return;
  }
  bool isCarried = walksForward() || part == Part::Tails;
  auto kind = isCarried ? chunk::ArgumentKind::State : chunk::ArgumentKind::Checkpoint;
  for (const StateEntry &tail : forwardTails)
    tailStarts.push_back(kernel.addTail(tail, kind, kernel.groupOf(tail.heads)));
}

/// What adds to the rows of earlier tokens hands on what it has for those of the chunk before.
void ChunkVariant::buildReverseConv(Operation *op) {
  TileBuilder &b = kernel.tiles();
  b.setLoc(op->getLoc());
  Value rows = b.matrixOf(b.tileOf(op->getOperand(0))), carry = carryOf.lookup(op), taps;
  int64_t channels = cast<RankedTensorType>(rows.getType()).getDimSize(1);
  if (auto conv = dyn_cast<ConvOp>(op)) {
    taps = b.tileOf(conv.getTaps());
  } else {
    // One tap, that of the earliest token.
    int64_t before = static_cast<int64_t>(cast<DelayOp>(op).getBy());
    Value one = b.splat(b.tensorType({channels, 1}), 1), none = b.splat(b.tensorType({channels, before}), 0);
    taps = b.create<chunk::ConcatOp>(b.tensorType({channels, before + 1}), ValueRange{one, none});
  }
  auto built = b.create<chunk::ConvBackOp>(TypeRange{rows.getType(), carry.getType()}, rows, taps, b.valid, carry);
  b.setTile(op->getResult(0), b.shaped(built.getResult(), b.tileType(op->getResult(0).getType())));
  nextCarry[op] = built.getNext();
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

SmallVector<chunk::OutputAttr> ChunkVariant::describeOutputs() {
  if (part == Part::Whole)
    return kernel.describeResults();
  SmallVector<chunk::OutputAttr> outputs;
  if (llvm::is_contained({Part::Tails, Part::Totals, Part::Transitions, Part::Writes, Part::CotangentTails}, part))
    return outputs;
  for (const StateEntry &tail : forwardTails) {
    RankedTensorType type = kernel.typeOfTail(tail);
    if (keeps(tail.operations.front()))
      outputs.push_back(kernel.describeOutput(tail.name, type.getShape(), type.getElementType(),
                                              kernel.groupOf(tail.heads), /*checkpoint=*/true));
  }
  for (StateChain &chain : chains) {
    StateType state = chain.getRoot().getType();
    if (keeps(chain.root))
      outputs.push_back(kernel.describeOutput(nameOfCheckpoint(chain), KernelBuilder::shapeOf(state),
                                              typeOfCheckpoint(state), groupOf(state), /*checkpoint=*/true));
  }
  SmallVector<unsigned> rows = variant.getDifferentiableRows();
  for (auto [index, result] : llvm::enumerate(variant.getType().getResults())) {
    if (!leaves(index))
      continue;
    // A gradient has the type of its row; parts that are still to be added up are not rounded.
    StringRef row = variant.getArgName(rows[index]);
    int64_t group = kernel.groupOf(headsOf(result));
    FloatType element = group == 1 ? types.of(row) : types.compute;
    outputs.push_back(kernel.describeOutput("d_" + row, kernel.tileShape(result), element, group));
  }
  if (keepsRows())
    for (auto [index, row] : llvm::enumerate(parts.kept))
      outputs.push_back(kernel.describeOutput(nameOfKeptRow(index), kernel.tileShape(row.getType()), types.compute));
  if (part == Part::Gradient)
    for (auto [index, row] : llvm::enumerate(parts.keptForSums))
      outputs.push_back(kernel.describeOutput(nameOfKeptRow(parts.kept.size() + index), kernel.tileShape(row.getType()),
                                              typeOfSummedRow(row, types)));
  return outputs;
}

bool ChunkVariant::isCarried(StateOp root) {
  if (!walksBack())
    return part != Part::Rows;
  return root.getType().getReverse() && !(carriesTailsBack() && parts.apart.contains(root));
}

bool ChunkVariant::takesReverse(Operation *root) {
  switch (part) {
  case Part::Sums:
    return parts.sums.contains(root);
  case Part::Cotangents:
  case Part::CotangentTails:
    return parts.apart.contains(root);
  case Part::CotangentWrites:
    return parts.isCarriedBack(root);
  default:
    return part == Part::Gradient && !parts.sums.contains(root);
  }
}

bool ChunkVariant::keeps(Operation *op) {
  switch (part) {
  case Part::SegmentStarts:
    return true;
  case Part::Checkpoints:
    return parts.asked.contains(op);
  case Part::Cotangents:
    return parts.apart.contains(op);
  default:
    return false;
  }
}

bool ChunkVariant::takes(ArrayRef<Operation *> operations) {
  if (part == Part::Sums)
    return false;
  if (!walksForward() && !walksBack() && part != Part::Rows)
    return true;
  const llvm::DenseSet<Operation *> &those = walksForward()       ? parts.carried
                                             : part == Part::Rows ? parts.askedForRows
                                             : carriesAlone()     ? parts.askedApart
                                                                  : parts.asked;
  return llvm::any_of(operations, [&](Operation *op) { return those.contains(op); });
}

bool ChunkVariant::leaves(unsigned result) {
  bool isForward = llvm::is_contained(parts.forwardResults, result);
  return part == Part::Whole || (part == Part::Gradient && !isForward) || (part == Part::Checkpoints && isForward);
}

SmallVector<Value> ChunkVariant::leftRows() {
  SmallVector<Value> rows;
  for (auto [index, result] : llvm::enumerate(variant.getBlock()->getTerminator()->getOperands()))
    if (leaves(index))
      rows.push_back(result);
  if (keepsRows())
    llvm::append_range(rows, parts.kept);
  if (part == Part::Gradient)
    llvm::append_range(rows, parts.keptForSums);
  return rows;
}

SmallVector<Value> ChunkVariant::wanted() {
  if (part == Part::Totals)
    return llvm::map_to_vector(scans,
                               [](const StateEntry &entry) -> Value { return entry.operations.front()->getResult(0); });
  SmallVector<Value> rows = leftRows();
  if (part == Part::Transitions)
    for (const StateChain &chain : chains)
      llvm::append_range(rows, ChunkTransition::rowsOf(chain));
  if (part == Part::CotangentTails)
    for (const StateEntry &tail : reverseTails)
      llvm::append_range(rows, tail.operations.front()->getOperands());
  if (!walksForward() && part != Part::Tails)
    return rows;
  for (const StateEntry &tail : forwardTails)
    for (Operation *op : tail.operations)
      llvm::append_range(rows, part == Part::Tails ? op->getOperands().take_front() : op->getOperands());
  return rows;
}

LogicalResult ChunkVariant::buildTile(Operation *op) {
  TileBuilder &b = kernel.tiles();
  auto recurrenceOf = [&](Value state) { return recurrences[rootOf(state)].get(); };
  if (auto read = dyn_cast<ReadOp>(op)) {
    auto earlier = earlierReads.find(rootOf(read.getState()));
    FailureOr<Value> tile =
        earlier != earlierReads.end() ? earlier->second->read(read) : recurrenceOf(read.getState())->read(read);
    if (failed(tile))
      return failure();
    b.setTile(read.getResult(), *tile);
  } else if (auto fold = dyn_cast<LookbackOp>(op)) {
    if (fold.getReverse() && !walksBack())
      return refuseChunkForm(fold) << "runs in reverse time";
    if (failed(buildLookback(fold, b, kernel.sizes(), kernel.rawTileOf)))
      return failure();
  } else if (auto pair = dyn_cast<PairOp>(op)) {
    auto *cotangent = static_cast<ChunkCotangent *>(recurrenceOf(pair.getCotangent()));
    b.setTile(pair.getResult(), cotangent->pair(pair, *recurrenceOf(pair.getState())));
  } else if (carryOf.contains(op)) {
    buildReverseConv(op);
  } else if (failed(kernel.buildRow(op))) {
    return failure();
  }
  // Asking in order keeps the recursion of the answer flat.
  Value row = op->getResult(0), tile = b.tileOf(row);
  bool isFinite = b.padding.rowsOf(tile).isFinite();
  // What is written must be finite beyond the end of the sequence. All else that meets the row has it so, too: of a
  // token that there is not nothing is stored, and products with the row are formed once.
  if (!isFinite && written.contains(row))
    b.setTile(row, b.create<chunk::MaskOp>(tile, b.valid));
  return success();
}

/// What a chunk's checkpoint of a state is.
FailureOr<Value> ChunkVariant::keptState(const StateChain &chain) {
  auto earlier = earlierReads.find(chain.root);
  if (earlier == earlierReads.end() || part == Part::SegmentStarts)
    return starts.at(chain.root);
  FailureOr<Value> state = earlier->second->stateOfReads();
  if (failed(state))
    return failure();
  return chain.getRoot().getType().getSecondSize() == 1 ? kernel.tiles().column(*state, 0) : *state;
}

FailureOr<SmallVector<Value>> ChunkVariant::results() {
  SmallVector<Value> tiles;
  for (auto [tail, start] : llvm::zip(forwardTails, tailStarts))
    if (keeps(tail.operations.front()))
      tiles.push_back(start);
  for (const StateChain &chain : chains) {
    if (!keeps(chain.root))
      continue;
    FailureOr<Value> state = keptState(chain);
    if (failed(state))
      return failure();
    tiles.push_back(*state);
  }
  for (Value row : leftRows())
    tiles.push_back(kernel.tiles().tileOf(row));
  return tiles;
}

SmallVector<BlockArgument> ChunkVariant::getCarried() {
  SmallVector<BlockArgument> carried;
  for (const StateChain &chain : chains)
    if (isCarried(chain.getRoot()))
      carried.push_back(cast<BlockArgument>(starts.at(chain.root)));
  return carried;
}

FailureOr<SmallVector<Value>> ChunkVariant::next() {
  SmallVector<Value> states;
  if (part == Part::Transitions) {
    for (auto [chain, effect] : llvm::zip_equal(chains, effects)) {
      Value transition = recurrences[chain.root]->next();
      bool isVector = cast<RankedTensorType>(effect.transition.getType()).getRank() == 1;
      states.push_back(isVector ? kernel.tiles().column(transition, 0) : transition);
      if (effect.decay)
        states.push_back(recurrences[chain.root]->nextTotalDecay(effect.decay));
    }
    return states;
  }
  for (const StateChain &chain : chains) {
    if (!isCarried(chain.root))
      continue;
    StateOp root = chain.getRoot();
    auto earlier = earlierReads.find(root);
    FailureOr<Value> end = earlier != earlierReads.end() ? earlier->second->next() : recurrences[root]->next();
    if (failed(end))
      return failure();
    states.push_back(root.getType().getSecondSize() == 1 ? kernel.tiles().column(*end, 0) : *end);
  }
  if (scans.empty()) {
    auto carried = llvm::make_filter_range(chains, [&](const StateChain &chain) { return isCarried(chain.getRoot()); });
    for (auto [chain, effect] : llvm::zip(carried, effects))
      if (effect.decay && !effect.transition)
        states.push_back(recurrences[chain.root]->nextTotalDecay(effect.decay));
  }
  for (auto [entry, effect] : llvm::zip(scans, effects))
    if (effect.decay)
      states.push_back(nextShift(entry, effect.decay));
  if (carriesTailsBack())
    for (const StateEntry &tail : reverseTails)
      states.push_back(nextCarry.lookup(tail.operations.front()));
  return states;
}

std::string ChunkVariant::name() {
  bool isAll = part == Part::Checkpoints && !parts.walksBack;
  return (variant.getSymName() + suffixOf(isAll ? Part::Whole : part)).str();
}

LogicalResult ChunkVariant::run() {
  if (failed(kernel.check()) || (part == Part::Whole && failed(kernel.checkResults())))
    return failure();
  chains = stateChains(variant);
  if (part != Part::Whole)
    for (StateEntry &entry : deriveState(variant))
      if ((entry.kind == StateEntry::Kind::Tail || entry.kind == StateEntry::Kind::Scan) &&
          (entry.reverse ? carriesTailsBack() : takes(entry.operations)))
        (entry.reverse ? reverseTails : forwardTails).push_back(std::move(entry));
  if (part == Part::Tails || part == Part::Totals)
    chains.clear();
  else if (part != Part::Whole)
    llvm::erase_if(chains, [&](const StateChain &chain) {
      return chain.getRoot().getType().getReverse() ? !takesReverse(chain.root)
                                                    : !takes(chain.getRoot().getOperation());
    });
  if (part == Part::Tails)
    llvm::erase_if(forwardTails, [](const StateEntry &entry) { return entry.kind != StateEntry::Kind::Tail; });
  if (part == Part::Totals)
    llvm::copy_if(forwardTails, std::back_inserter(scans),
                  [](const StateEntry &entry) { return entry.kind == StateEntry::Kind::Scan; });
  if (failed(checkChains()))
    return failure();
  if (part == Part::Transitions)
    llvm::erase_if(chains, [](const StateChain &chain) { return !chain.feedback; });
  // What is handed on to earlier tokens may be all that is wanted.
  SmallVector<Value> needed = wanted();
  if (carriesTailsBack())
    for (const StateEntry &tail : reverseTails)
      needed.push_back(tail.operations.front()->getResult(0));
  // What a state takes in later depends on the time of its reads.
  for (const StateChain &chain : chains)
    for (ReadOp read : chain.reads())
      if (read.getAt())
        needed.push_back(read.getAt());
  // Of what feeds back the rows that are wanted are all.
  ArrayRef<StateChain> complete = part == Part::Transitions ? ArrayRef<StateChain>() : chains;
  FailureOr<SmallVector<Operation *>> order = orderOfTiles(complete, needed);
  if (failed(order))
    return failure();
  SmallVector<Value> used = wanted();
  for (const StateChain &chain : complete)
    llvm::append_range(used, chain.rows());
  if (failed(kernel.create(name(), /*reverse=*/walksBack(), describeOutputs(), segments)) ||
      failed(kernel.addArguments(*order, used)))
    return failure();
  addTails(*order);
  addStates();
  kernel.addWindows();
  if (failed(kernel.beginBody()))
    return failure();
  for (Operation *op : *order)
    if (!kernel.tiles().tileOf(op->getResult(0)) && failed(buildTile(op)))
      return failure();
  FailureOr<SmallVector<Value>> left = results();
  return failed(left) ? failure() : kernel.finish(*left, [&] { return next(); });
}

/// Heads that share a row each have a part of its gradient, and the parts stay apart until the end.
static void separateHeads(VariantOp gradient) {
  gradient.walk([](GroupSumOp sum) {
    sum.replaceAllUsesWith(sum.getOperand());
    sum.erase();
  });
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {

struct ChunkPass : stretto::impl::ChunkBase<ChunkPass> {
  using ChunkBase::ChunkBase;

  void runOnOperation() override {
    FailureOr<ElementTypes> types = ElementTypes::read(getOperation(), element, elements);
    if (failed(types))
      return signalPassFailure();
    if (chunk < 1 || chunk > 1024) {
      getOperation().emitError() << "chunks have " << chunk << " tokens, expected 1 to 1024";
      return signalPassFailure();
    }
    for (VariantOp variant : llvm::make_early_inc_range(getOperation().getOps<VariantOp>())) {
      if (failed(variant.getGradient() ? chunkGradient(variant, *types)
                 : segments            ? chunkSegments(variant, *types)
                                       : ChunkVariant(variant, chunk, *types).run()))
        return signalPassFailure();
      variant.erase();
    }
  }

private:
  LogicalResult chunkSegments(VariantOp variant, const ElementTypes &types) {
    if (std::optional<SegmentProblem> problem = findSegmentProblem(variant))
      return refuseForm("segmented", problem->op) << problem->reason;
    std::vector<StateEntry> entries = deriveState(variant);
    auto has = [&](StateEntry::Kind kind) {
      return llvm::any_of(entries, [&](const StateEntry &entry) { return entry.kind == kind; });
    };
    auto build = [&](Part part, StringRef starts = {}) {
      return chunkApart(variant, types, part, /*parts=*/{}, starts);
    };
    if (failed(build(Part::Whole)) || (has(StateEntry::Kind::Tail) && failed(build(Part::Tails))) ||
        (has(StateEntry::Kind::Scan) && failed(build(Part::Totals, suffix::totalStarts))))
      return failure();
    if (!feedsBack(variant))
      return build(Part::Writes, suffix::starts);
    ChunkVariant transitions(variant, chunk, types, Part::Transitions, /*parts=*/{},
                             chunk::SegmentsAttr::get(&getContext(), chunk::Segments::Apart));
    return failed(transitions.run())
               ? failure()
               : chunkApart(variant, types, Part::Writes, /*parts=*/{}, suffix::starts, transitions.getEffects());
  }

  /// A kernel whose segments are walked side by side, and one that finds from what it leaves what segments begin with,
  /// if that is to have a name.
  LogicalResult chunkApart(VariantOp variant, const ElementTypes &types, Part part, const GradientParts &parts,
                           StringRef starts = {}, ArrayRef<SegmentEffect> transitions = {}) {
    ChunkVariant kernel(variant, chunk, types, part, parts,
                        chunk::SegmentsAttr::get(&getContext(), chunk::Segments::Apart), transitions);
    if (failed(kernel.run()))
      return failure();
    StringRef name = variant.getSymName();
    if (!starts.empty())
      buildSegmentStarts(getOperation().lookupSymbol<chunk::KernelOp>((name + suffixOf(part)).str()),
                         (name + starts).str(), kernel.getEffects(),
                         /*isRounded=*/types.standard.getIntOrFloatBitWidth() == 16);
    return success();
  }

  LogicalResult chunkGradient(VariantOp variant, ElementTypes types) {
    separateHeads(variant);
    FailureOr<GradientParts> parts = GradientParts::find(variant, chunk, divideGradients, independentChunks);
    if (failed(parts))
      return failure();
    if (segments)
      if (std::optional<SegmentProblem> problem = findSegmentProblem(variant, *parts))
        return refuseForm("segmented", problem->op) << problem->reason;
    auto build = [&](Part part, bool isApart = false) {
      return isApart ? chunkApart(variant, types, part, *parts)
                     : ChunkVariant(variant, chunk, types, part, *parts).run();
    };
    bool isRounded = types.standard.isBF16(), isAllAsked = parts->asked == parts->carried;
    bool isOfReads = llvm::any_of(stateChains(variant), [&](const StateChain &chain) {
      return parts->asked.contains(chain.root) && goesOnFirst(chain, chunk);
    });
    bool beginsElsewhere = !parts->asked.empty() && (isRounded || !isAllAsked || isOfReads);
    if (!segments && beginsElsewhere && failed(build(Part::SegmentStarts)))
      return failure();
    if (parts->walksForward() && failed(build(Part::Checkpoints, segments && !parts->carried.empty())))
      return failure();
    if (!parts->walksBack)
      return success();
    if (parts->findsRowsApart && failed(build(Part::Rows)))
      return failure();
    replaceByArguments(variant, parts->kept.getArrayRef());
    for (size_t index = 0; index < parts->kept.size(); ++index)
      types.others[nameOfKeptRow(index)] = types.compute;
    bool carriesBack = segments && llvm::any_of(stateChains(variant), [&](const StateChain &chain) {
                         return chain.getRoot().getType().getReverse() && parts->isCarriedBack(chain.root);
                       });
    if (!parts->apart.empty() && failed(build(Part::Cotangents, carriesBack)))
      return failure();
    if (failed(chunkResults(variant, types, *parts, carriesBack)))
      return failure();
    if (carriesBack && failed(chunkApart(variant, types, Part::CotangentWrites, *parts, suffix::cotangentStarts)))
      return failure();
    if (parts->sums.empty())
      return success();
    for (auto [index, row] : llvm::enumerate(parts->keptForSums))
      types.others[nameOfKeptRow(parts->kept.size() + index)] = typeOfSummedRow(row, types);
    replaceByArguments(variant, parts->keptForSums.getArrayRef(), parts->kept.size());
    return carriesBack ? chunkSums(variant, types, Part::Sums, *parts) : build(Part::Sums);
  }

  /// The kernel of all else. Where states of reverse time have a walk of their own, and their segments are side by
  /// side, it takes segments, too, if it carries anything: sums over all tokens, and what is added to rows of earlier
  /// ones.
  LogicalResult chunkResults(VariantOp variant, const ElementTypes &types, const GradientParts &parts,
                             bool carriesBack) {
    if (!carriesBack)
      return ChunkVariant(variant, chunk, types, Part::Gradient, parts).run();
    if (parts.apart.empty())
      return chunkApart(variant, types, Part::Gradient, parts);
    bool hasSums = llvm::any_of(stateChains(variant), [&](const StateChain &chain) {
      return chain.getRoot().getType().getReverse() && !parts.apart.contains(chain.root) &&
             !parts.sums.contains(chain.root);
    });
    bool handsRowsOn = llvm::any_of(deriveState(variant), [](const StateEntry &entry) {
      return entry.reverse && entry.kind == StateEntry::Kind::Tail;
    });
    if (!hasSums && !handsRowsOn)
      return ChunkVariant(variant, chunk, types, Part::Gradient, parts).run();
    if (failed(hasSums ? chunkSums(variant, types, Part::Gradient, parts)
                       : chunkApart(variant, types, Part::Gradient, parts)))
      return failure();
    return handsRowsOn ? chunkApart(variant, types, Part::CotangentTails, parts) : success();
  }

  /// A kernel whose segments each leave a part of sums over all tokens, and one that adds these up.
  LogicalResult chunkSums(VariantOp variant, const ElementTypes &types, Part part, const GradientParts &parts) {
    ChunkVariant kernel(variant, chunk, types, part, parts,
                        chunk::SegmentsAttr::get(&getContext(), chunk::Segments::Apart));
    if (failed(kernel.run()))
      return failure();
    StringRef name = variant.getSymName();
    buildSegmentSums(getOperation().lookupSymbol<chunk::KernelOp>((name + suffixOf(part)).str()),
                     (name + suffix::sumTurns).str(), kernel.getCarried());
    return success();
  }
};

} // namespace
