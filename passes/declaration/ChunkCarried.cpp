//===- ChunkCarried.cpp - States, totals and tails of a kernel ------------===//

#include "passes/declaration/ChunkCotangent.h"
#include "passes/declaration/ChunkFeedback.h"
#include "passes/declaration/ChunkLaterWrites.h"
#include "passes/declaration/ChunkRows.h"
#include "passes/declaration/ChunkTransition.h"
#include "passes/declaration/ChunkVariant.h"

using namespace mlir;
using namespace stretto;

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
    bool isCotangent = part != Part::Whole && chain.getRoot().getType().getReverse();
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

bool stretto::goesOnFirst(const StateChain &chain, int64_t tokens) {
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
  for (const StateChain &chain : chains)
    if (part == Part::Checkpoints && chain.getRoot().getType().getReverse())
      effects.push_back({cast<BlockArgument>(starts.at(chain.root))});
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
