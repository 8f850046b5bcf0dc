//===- Chunk.cpp - From one token to a chunk of tokens --------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Passes.h"
#include "passes/declaration/ChunkCotangent.h"
#include "passes/declaration/ChunkEarlierReads.h"
#include "passes/declaration/ChunkFeedback.h"
#include "passes/declaration/ChunkLookback.h"
#include "passes/declaration/KernelBuilder.h"

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
  /// Of a gradient, the forward states at the start of each chunk.
  Checkpoints,
  /// Of a gradient, all else: from the last chunk to the first, each with the forward states at its start.
  Gradient,
};

/// Makes a kernel of one variant, or of a part of it.
class ChunkVariant {
public:
  ChunkVariant(VariantOp variant, int64_t tokens, const ElementTypes &types, Part part)
      : variant(variant), types(types), part(part), kernel(variant, "chunk", tokens, types) {}

  LogicalResult run();

private:
  LogicalResult checkChains();
  SmallVector<chunk::OutputAttr> describeOutputs();
  /// Whether a state is carried by the kernel, and not given to it as a checkpoint.
  bool isCarried(StateOp root) { return part != Part::Gradient || root.getType().getReverse(); }
  /// The values that the kernel is made for, beside the rows of its states.
  SmallVector<Value> wanted();
  void addStates();
  LogicalResult buildTile(Operation *op);
  SmallVector<Value> results();
  FailureOr<SmallVector<Value>> next();

  VariantOp variant;
  const ElementTypes &types;
  Part part;
  KernelBuilder kernel;
  SmallVector<StateChain> chains;
  /// By the root of their chain, which is read now or at an earlier time.
  llvm::DenseMap<Operation *, std::unique_ptr<ChunkRecurrence>> recurrences;
  llvm::DenseMap<Operation *, std::unique_ptr<ChunkEarlierReads>> earlierReads;
  /// The state of each chain at the start of a chunk, or of a reverse one at its end.
  llvm::DenseMap<Operation *, Value> starts;
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
    FailureOr<std::optional<Feedback>> feedback = findFeedback(chain);
    if (failed(feedback))
      return failure();
    chain.feedback = std::move(*feedback);
    bool isCotangent = part == Part::Gradient && chain.getRoot().getType().getReverse();
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

void ChunkVariant::addStates() {
  TileBuilder &b = kernel.tiles();
  for (const StateChain &chain : chains) {
    StateOp root = chain.getRoot();
    bool isReverse = root.getType().getReverse();
    auto kind = isCarried(root) ? chunk::ArgumentKind::State : chunk::ArgumentKind::Checkpoint;
    // Heads that share a state have parts of its cotangent, which are added up in the end: all else is linear in them.
    int64_t group = isReverse ? 1 : kernel.groupOf(root.getType().getHeads());
    Value start = kernel.addState(root, kind, group);
    starts[root] = start;
    if (ChunkEarlierReads::hasSome(chain))
      earlierReads[root] =
          std::make_unique<ChunkEarlierReads>(chain, b.matrixOf(start), b, kernel.sizes(), kernel.rawTileOf);
    else if (isReverse)
      recurrences[root] = std::make_unique<ChunkCotangent>(chain, b.matrixOf(start), b);
    else
      recurrences[root] = std::make_unique<ChunkRecurrence>(chain, b.matrixOf(start), b);
  }
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

SmallVector<chunk::OutputAttr> ChunkVariant::describeOutputs() {
  if (part == Part::Whole)
    return kernel.describeResults();
  SmallVector<chunk::OutputAttr> outputs;
  if (part == Part::Checkpoints) {
    for (StateChain &chain : chains)
      outputs.push_back(kernel.describeOutput(chain.getRoot().getName(),
                                              KernelBuilder::shapeOf(chain.getRoot().getType()), types.compute,
                                              kernel.groupOf(chain.getRoot().getType().getHeads()),
                                              /*checkpoint=*/true));
    return outputs;
  }
  SmallVector<unsigned> rows = variant.getDifferentiableRows();
  for (auto [index, result] : llvm::enumerate(variant.getBlock()->getTerminator()->getOperandTypes())) {
    // A gradient has the type of its row; parts that are still to be added up are not rounded.
    StringRef row = variant.getArgName(rows[index]);
    int64_t group = kernel.groupOf(headsOf(result));
    FloatType element = group == 1 ? types.of(row) : types.compute;
    outputs.push_back(kernel.describeOutput("d_" + row, kernel.tileShape(result), element, group));
  }
  return outputs;
}

SmallVector<Value> ChunkVariant::wanted() {
  if (part == Part::Checkpoints)
    return {};
  return llvm::to_vector(variant.getBlock()->getTerminator()->getOperands());
}

LogicalResult ChunkVariant::buildTile(Operation *op) {
  TileBuilder &b = kernel.tiles();
  auto recurrenceOf = [&](Value state) { return recurrences[rootOf(state)].get(); };
  if (auto read = dyn_cast<ReadOp>(op)) {
    FailureOr<Value> tile =
        read.getAt() ? earlierReads[rootOf(read.getState())]->read(read) : recurrenceOf(read.getState())->read(read);
    if (failed(tile))
      return failure();
    b.setTile(read.getResult(), *tile);
  } else if (auto fold = dyn_cast<LookbackOp>(op)) {
    if (failed(buildLookback(fold, b, kernel.sizes(), kernel.rawTileOf)))
      return failure();
  } else if (auto pair = dyn_cast<PairOp>(op)) {
    auto *cotangent = static_cast<ChunkCotangent *>(recurrenceOf(pair.getCotangent()));
    b.setTile(pair.getResult(), cotangent->pair(pair, *recurrenceOf(pair.getState())));
  } else if (auto sum = dyn_cast<GroupSumOp>(op); sum && part == Part::Gradient) {
    // The parts of heads stay apart until the end.
    b.setTile(sum.getResult(), b.tileOf(sum.getOperand()));
  } else if (failed(kernel.buildRow(op))) {
    return failure();
  }
  // Asking in order keeps the recursion of the answer flat.
  b.padding.rowsOf(b.tileOf(op->getResult(0)));
  return success();
}

SmallVector<Value> ChunkVariant::results() {
  SmallVector<Value> tiles;
  if (part == Part::Checkpoints)
    for (const StateChain &chain : chains)
      tiles.push_back(starts.at(chain.root));
  else
    for (Value result : variant.getBlock()->getTerminator()->getOperands())
      tiles.push_back(kernel.tiles().tileOf(result));
  return tiles;
}

FailureOr<SmallVector<Value>> ChunkVariant::next() {
  SmallVector<Value> states;
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
  return states;
}

LogicalResult ChunkVariant::run() {
  if (failed(kernel.check()) || (part == Part::Whole && failed(kernel.checkResults())))
    return failure();
  chains = stateChains(variant);
  if (part == Part::Checkpoints)
    llvm::erase_if(chains, [](const StateChain &chain) { return chain.getRoot().getType().getReverse(); });
  if (failed(checkChains()))
    return failure();
  FailureOr<SmallVector<Operation *>> order = orderOfTiles(chains, wanted());
  if (failed(order))
    return failure();
  SmallVector<Value> used = wanted();
  for (const StateChain &chain : chains)
    llvm::append_range(used, chain.rows());
  std::string name = variant.getSymName().str() + (part == Part::Checkpoints ? "_checkpoints" : "");
  if (failed(kernel.create(name, /*reverse=*/part == Part::Gradient, describeOutputs())) ||
      failed(kernel.addArguments(*order, used)))
    return failure();
  addStates();
  kernel.addWindows();
  if (failed(kernel.beginBody()))
    return failure();
  for (Operation *op : *order)
    if (!kernel.tiles().tileOf(op->getResult(0)) && failed(buildTile(op)))
      return failure();
  return kernel.finish(results(), [&] { return next(); });
}

/// Whether a gradient asks for states that are carried forwards.
static bool needsCheckpoints(VariantOp gradient) {
  return llvm::any_of(gradient.getBlock()->getOps<StateOp>(),
                      [](StateOp state) { return !state.getType().getReverse(); });
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
      auto chunkPart = [&](Part part) { return ChunkVariant(variant, chunk, *types, part).run(); };
      if (!variant.getGradient()) {
        if (failed(chunkPart(Part::Whole)))
          return signalPassFailure();
      } else if ((needsCheckpoints(variant) && failed(chunkPart(Part::Checkpoints))) ||
                 failed(chunkPart(Part::Gradient))) {
        return signalPassFailure();
      }
      variant.erase();
    }
  }
};

} // namespace
