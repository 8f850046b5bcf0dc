//===- ChunkSegments.cpp - Segments of a sequence, side by side -----------===//

#include "passes/declaration/ChunkSegments.h"
#include "dialect/stretto/StateChain.h"
#include "dialect/stretto/StateEntries.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/declaration/ChunkEarlierReads.h"
#include "passes/declaration/ChunkFeedback.h"
#include "passes/declaration/ChunkRecurrence.h"
#include "passes/declaration/KernelNames.h"

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Which variants
//===----------------------------------------------------------------------===//

/// The first operation that rows are made with and that a predicate holds for.
static Operation *findMaker(ArrayRef<Value> rows, function_ref<bool(Operation *)> isMeant) {
  SmallVector<Value> pending(rows);
  llvm::DenseSet<Operation *> seen;
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (isMeant(op))
      return op;
    llvm::append_range(pending, op->getOperands());
  }
  return nullptr;
}

std::optional<SegmentProblem> stretto::findSegmentProblem(VariantOp variant) {
  SmallVector<StateChain> chains = stateChains(variant);
  std::vector<StateEntry> entries = deriveState(variant);
  bool hasTails = llvm::any_of(entries, [](const StateEntry &entry) { return entry.kind == StateEntry::Kind::Tail; });
  // A matrix of parameters is read once for all chunks of a segment.
  bool hasMatrices = !variant.getBlock()->getOps<ContractOp>().empty();
  bool looksBack = variant.walk([](LookbackOp) { return WalkResult::interrupt(); }).wasInterrupted();
  if (chains.empty() && ((!hasTails && !hasMatrices) || looksBack))
    return SegmentProblem{variant, "it has no 'stretto.state'"};
  auto isRead = [](Operation *op) { return isa<ReadOp>(op); };
  auto isReadOrScan = [](Operation *op) { return isa<ReadOp, ScanOp>(op); };
  // What a state lacks a chunk form for is said where that is asked for.
  ScopedDiagnosticHandler silence(variant.getContext(), [](Diagnostic &) { return success(); });
  for (StateChain &chain : chains) {
    SmallVector<Value> rows = chain.rows();
    if (FailureOr<std::optional<Feedback>> feedback = findFeedback(chain); succeeded(feedback) && *feedback) {
      llvm::erase(rows, (*feedback)->row);
      llvm::append_range(rows, (*feedback)->terms);
      llvm::append_range(rows, (*feedback)->numbers);
      chain.feedback = std::move(*feedback);
    }
    if (Operation *read = findMaker(rows, isRead))
      return SegmentProblem{read,
                            ("what changes the state '" + chain.getRoot().getName() + "' depends on this read").str()};
  }
  for (const StateChain &chain : chains)
    if (failed(ChunkEarlierReads::hasSome(chain) ? ChunkEarlierReads::check(chain) : ChunkRecurrence::check(chain)))
      return SegmentProblem{chain.root, ("the state '" + chain.getRoot().getName() + "' has no chunk form").str()};
  // Rows before a segment are found before totals, and these before states.
  for (const StateEntry &entry : entries)
    for (Operation *op : entry.operations)
      if (entry.kind == StateEntry::Kind::Tail && findMaker(op->getOperand(0), isReadOrScan))
        return SegmentProblem{op, "earlier rows that depend on a read or a scan are looked back at"};
      else if (entry.kind == StateEntry::Kind::Scan && findMaker(llvm::to_vector(op->getOperands()), isReadOrScan))
        return SegmentProblem{op, "a total of rows that depend on a read or another scan is carried"};
  return std::nullopt;
}

std::optional<SegmentProblem> stretto::findSegmentProblem(VariantOp gradient, const GradientParts &parts) {
  auto isCarriedBack = [&](const StateChain &chain) {
    return chain.getRoot().getType().getReverse() && parts.isCarriedBack(chain.root);
  };
  SmallVector<StateChain> chains = stateChains(gradient);
  if (parts.onlyAddsUp)
    return std::nullopt;
  if (parts.carried.empty() && llvm::none_of(chains, isCarriedBack))
    return SegmentProblem{gradient, "it carries no state"};
  auto isReverse = [](Value value) {
    auto state = dyn_cast<StateType>(value.getType());
    return state && state.getReverse();
  };
  auto readsReverse = [&](Operation *op) {
    return isa<ReadOp, PairOp>(op) && llvm::any_of(op->getOperands(), isReverse);
  };
  for (const StateChain &chain : llvm::make_filter_range(chains, isCarriedBack))
    if (Operation *read = findMaker(chain.rows(), readsReverse))
      return SegmentProblem{read,
                            ("what changes the state '" + chain.getRoot().getName() + "' depends on this read").str()};
  for (const StateEntry &entry : deriveState(gradient))
    if (entry.reverse && entry.kind == StateEntry::Kind::Tail && parts.apart.empty())
      return SegmentProblem{entry.operations.front(), "what is added to earlier rows is carried with the states"};
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Starts
//===----------------------------------------------------------------------===//

/// What a state becomes by the decays of a segment.
static Value decayState(ImplicitLocOpBuilder &b, Value state, Value decay, const SegmentEffect &effect) {
  Value factor = effect.form == chunk::DecayForm::Log ? math::ExpOp::create(b, decay).getResult() : decay;
  if (factor.getType() != state.getType())
    factor = chunk::BroadcastOp::create(b, state.getType(), factor, effect.decayed);
  return arith::MulFOp::create(b, state, factor);
}

/// What a matrix that feedback leaves makes of a state, in products of bf16, with what rounding takes from both, where
/// the operands of a walk have 16 bits.
static Value multiplyState(ImplicitLocOpBuilder &b, Value state, const SegmentEffect &effect, Value transition,
                           Value addend, bool isRounded) {
  // One column is a vector in memory.
  auto matrixOf = [&](Value value) -> Value {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getRank() == 2)
      return value;
    return chunk::BroadcastOp::create(b, type.clone({type.getDimSize(0), 1}), value, chunk::Side::Rows);
  };
  Value left = matrixOf(transition), right = matrixOf(state);
  if (effect.multiplied == chunk::Side::Columns)
    std::swap(left, right);
  Value sum = matrixOf(addend);
  Type sumType = sum.getType();
  auto add = [&](Value factor, Value other) {
    sum = chunk::DotOp::create(b, sumType, factor, other, sum, /*transpose_left=*/false, /*transpose_right=*/false);
  };
  if (!isRounded) {
    add(left, right);
  } else {
    auto rounded = [&](Value value) -> Value {
      return arith::TruncFOp::create(b, cast<RankedTensorType>(value.getType()).clone(b.getBF16Type()), value);
    };
    auto restOf = [&](Value value, Value rounded) {
      return arith::SubFOp::create(b, value, arith::ExtFOp::create(b, value.getType(), rounded));
    };
    Value ofLeft = rounded(left), ofRight = rounded(right);
    add(rounded(restOf(left, ofLeft)), ofRight);
    add(ofLeft, rounded(restOf(right, ofRight)));
    add(ofLeft, ofRight);
  }
  if (cast<RankedTensorType>(state.getType()).getRank() == 2)
    return sum;
  return chunk::ColumnsOp::create(b, state.getType(), sum, /*from=*/0);
}

namespace {

/// A kernel whose turns are segments, behind the one that leaves something of each.
class TurnsBuilder {
public:
  TurnsBuilder(chunk::KernelOp walk, StringRef name, bool reverse) : walk(walk), b(walk.getLoc(), walk.getContext()) {
    b.setInsertionPointAfter(walk);
    kernel = chunk::KernelOp::create(b, name, walk.getChunk(), reverse, b.getArrayAttr({}), b.getArrayAttr({}),
                                     /*slices=*/1, chunk::SegmentsAttr::get(walk.getContext(), chunk::Segments::Turns),
                                     /*between=*/FlatSymbolRefAttr(), /*recorded=*/false, /*earlier=*/false);
    block = &kernel.getBody().emplaceBlock();
  }

  static chunk::ArgumentAttr describe(BlockArgument left) {
    return cast<chunk::KernelOp>(left.getOwner()->getParentOp()).getArgument(left.getArgNumber());
  }
  /// What a walk has left in a state.
  BlockArgument addCheckpoint(const Twine &name, BlockArgument left) {
    arguments.push_back(chunk::ArgumentAttr::get(b.getContext(), chunk::ArgumentKind::Checkpoint, b.getStringAttr(name),
                                                 describe(left).getGroup()));
    return block->addArgument(left.getType(), b.getLoc());
  }
  BlockArgument addLeft(BlockArgument state) {
    return addCheckpoint(describe(state).getName().getValue() + leftSuffix, state);
  }
  BlockArgument addState(BlockArgument state) {
    arguments.push_back(describe(state));
    return block->addArgument(state.getType(), b.getLoc());
  }
  void keepState(BlockArgument state) {
    outputs.push_back(chunk::OutputAttr::get(b.getContext(), describe(state).getName(),
                                             cast<RankedTensorType>(state.getType()), describe(state).getGroup(),
                                             /*sliced=*/false, /*checkpoint=*/true, /*partial=*/false));
  }
  /// Ends the arguments; the body follows.
  ImplicitLocOpBuilder &begin() {
    arguments.push_back(chunk::ArgumentAttr::get(b.getContext(), chunk::ArgumentKind::Valid, b.getStringAttr("valid"),
                                                 /*group=*/1));
    block->addArgument(b.getIndexType(), b.getLoc());
    kernel.setArgumentsAttr(b.getArrayAttr(arguments));
    kernel.setOutputsAttr(b.getArrayAttr(outputs));
    b.setInsertionPointToEnd(block);
    return b;
  }

private:
  chunk::KernelOp walk, kernel;
  ImplicitLocOpBuilder b;
  Block *block;
  SmallVector<Attribute> arguments, outputs;
};

} // namespace

void stretto::buildSegmentStarts(chunk::KernelOp writes, StringRef name, ArrayRef<SegmentEffect> effects,
                                 bool isRounded, bool reverse) {
  TurnsBuilder turnsOf(writes, name, reverse);
  struct Turn {
    Value left, decay, transition, state;
  };
  SmallVector<Turn> turns;
  for (const SegmentEffect &effect : effects) {
    Turn &turn = turns.emplace_back();
    turn.left = turnsOf.addLeft(effect.state);
    if (effect.decay)
      turn.decay = turnsOf.addCheckpoint(turnsOf.describe(effect.decay).getName().getValue(), effect.decay);
    if (effect.transition)
      turn.transition =
          turnsOf.addCheckpoint(turnsOf.describe(effect.transition).getName().getValue(), effect.transition);
    turnsOf.keepState(effect.state);
  }
  for (auto [effect, turn] : llvm::zip_equal(effects, turns))
    turn.state = turnsOf.addState(effect.state);

  ImplicitLocOpBuilder &b = turnsOf.begin();
  SmallVector<Value> starts, next;
  for (auto [effect, turn] : llvm::zip_equal(effects, turns)) {
    starts.push_back(turn.state);
    if (effect.scan) {
      // The total of a segment takes the place of a token.
      next.push_back(chunk::ScanOp::create(b, turn.left.getType(), *effect.scan, turn.left, turn.state, turn.decay));
      continue;
    }
    Value kept = effect.decay ? decayState(b, turn.state, turn.decay, effect) : turn.state;
    Value sum = arith::AddFOp::create(b, kept, turn.left);
    if (turn.transition)
      sum = multiplyState(b, turn.state, effect, turn.transition, sum, isRounded);
    next.push_back(sum);
  }
  chunk::YieldOp::create(b, starts, next);
}

void stretto::buildSegmentSums(chunk::KernelOp parts, StringRef name, ArrayRef<BlockArgument> states) {
  TurnsBuilder turnsOf(parts, name, parts.getReverse());
  SmallVector<Value> left, next;
  for (BlockArgument state : states)
    left.push_back(turnsOf.addLeft(state));
  for (BlockArgument state : states)
    next.push_back(turnsOf.addState(state));
  ImplicitLocOpBuilder &b = turnsOf.begin();
  for (auto [sum, part] : llvm::zip_equal(next, left))
    sum = arith::AddFOp::create(b, sum, part);
  chunk::YieldOp::create(b, ValueRange(), next);
}
