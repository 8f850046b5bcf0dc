//===- Step.cpp - What one token does, as a kernel ------------------------===//
//
// The operations of a variant in the order in which they stand. A state is a matrix, decays scale it, a write adds an
// outer product, a read is a product with a row. One column is carried as a vector and computed with as a row, so that
// its entries lie side by side like those of any other row.
//
// Look-backs meet the tokens that windows hold, many at a time.
//
//===----------------------------------------------------------------------===//

#include "dialect/stretto/Windows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/Passes.h"
#include "passes/declaration/ChunkEarlierReads.h"
#include "passes/declaration/ChunkLookback.h"
#include "passes/declaration/KernelBuilder.h"

namespace stretto {
#define GEN_PASS_DEF_STEP
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using chunk::Side;

namespace {

/// Turns one variant into a kernel over single tokens.
class StepForm {
public:
  StepForm(VariantOp variant, const ElementTypes &types)
      : variant(variant), kernel(variant, "step", /*tokens=*/1, /*pastTokens=*/64, types) {}

  LogicalResult run();

private:
  LogicalResult check();
  void addCarried();
  LogicalResult execute(Operation *op);
  void decay(DecayOp op);
  void write(WriteOp op);
  LogicalResult read(ReadOp op);

  /// The rows of a state's matrix as a row of its only column.
  static bool isColumn(Value state) { return cast<StateType>(state.getType()).getSecondSize() == 1; }
  Value asRow(Value vector) {
    int64_t width = cast<RankedTensorType>(vector.getType()).getDimSize(0);
    return b->repeat(vector, b->tensorType({1, width}), Side::Columns);
  }
  Value asVector(Value row) {
    int64_t width = cast<RankedTensorType>(row.getType()).getDimSize(1);
    return b->createOrFold<chunk::RowOp>(b->tensorType({width}), row, /*at=*/0);
  }
  Value matrixOf(Value row) { return b->matrixOf(b->tileOf(row)); }
  /// A number repeated along a row, or the row.
  Value widened(Value tile, RankedTensorType type) {
    return tile.getType() == type ? tile : b->repeat(b->shaped(tile, type.clone({1})), type);
  }

  VariantOp variant;
  KernelBuilder kernel;
  TileBuilder *b = nullptr;
  SmallVector<StateChain> chains;
  /// By the root, those that are read at an earlier time.
  llvm::DenseMap<Operation *, std::unique_ptr<ChunkEarlierReads>> earlierReads;
  /// The matrix of each value of a state, or the row of its only column.
  llvm::DenseMap<Value, Value> states;
  /// The matrix that a state has after the operations so far.
  llvm::MapVector<Operation *, Value> ends;
};

} // namespace

//===----------------------------------------------------------------------===//
// What has no step form
//===----------------------------------------------------------------------===//

LogicalResult StepForm::check() {
  if (failed(kernel.check()) || failed(kernel.checkResults()))
    return failure();
  for (const StateChain &chain : chains)
    if (ChunkEarlierReads::hasSome(chain) && failed(ChunkEarlierReads::check(chain)))
      return failure();
  for (Operation &op : *variant.getBlock()) {
    auto state = dyn_cast<StateOp>(op);
    if (state && state.getType().getReverse())
      return refuseForm("step", state) << "the state '" << state.getName() << "' runs in reverse time";
    bool looksBack = isa<LookbackOp>(op) || (isa<ReadOp>(op) && cast<ReadOp>(op).getAt());
    if (looksBack && !deriveWindows(variant))
      return refuseForm("step", &op) << "looks back at earlier tokens without a bound";
    auto write = dyn_cast<WriteOp>(op);
    if (!write)
      continue;
    for (Value row : {write.getFirst(), write.getSecond()})
      if (StringRef heads = write.getState().getType().getHeads(); !headsDivide(headsOf(row.getType()), heads))
        return refuseForm("step", write) << "sums rows of the heads '" << headsOf(row.getType())
                                         << "' over the groups of '" << heads
                                         << "', and the heads of a group run apart";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

void StepForm::addCarried() {
  for (const StateChain &chain : chains) {
    StateOp root = chain.getRoot();
    int64_t group = kernel.groupOf(root.getType().getHeads());
    Value start = kernel.addState(root, chunk::ArgumentKind::State, group);
    if (ChunkEarlierReads::hasSome(chain)) {
      using Reads = ChunkEarlierReads::Reads;
      Reads reads = ChunkEarlierReads::goesOnFirst(chain, /*tokens=*/1) ? Reads::GoingOn : Reads::AsCarried;
      earlierReads[root] =
          std::make_unique<ChunkEarlierReads>(chain, b->matrixOf(start), reads, *b, kernel.sizes(), kernel.rawTileOf);
    } else {
      states[root.getResult()] = isColumn(root.getResult()) ? asRow(start) : start;
    }
    ends[root] = states.lookup(root.getResult());
  }
}

void StepForm::decay(DecayOp op) {
  Value state = states.lookup(op.getState()), amount = b->tileOf(op.getAmount()), result;
  StateType type = op.getState().getType();
  bool alongSecond = op.getAlong() && *op.getAlong() == type.getSecond() && type.getFirst() != type.getSecond();
  chunk::DecayForm form = op.getForm() == DecayForm::Log ? chunk::DecayForm::Log : chunk::DecayForm::Factor;
  if (isColumn(op.getState())) {
    // The axis of one entry is decayed by a number.
    if (alongSecond)
      amount = b->shaped(amount, b->tensorType({1}));
    Value vector = asVector(state);
    result = asRow(b->create<chunk::DecayStateOp>(vector.getType(), vector, form, amount, Side::Rows));
  } else {
    Side side = alongSecond ? Side::Columns : Side::Rows;
    result = b->create<chunk::DecayStateOp>(state.getType(), state, form, amount, side);
  }
  states[op.getResult()] = ends[rootOf(op.getState())] = result;
}

void StepForm::write(WriteOp op) {
  Value state = states.lookup(op.getState()), result;
  if (isColumn(op.getState())) {
    auto type = cast<RankedTensorType>(state.getType());
    Value product = b->create<arith::MulFOp>(matrixOf(op.getFirst()), widened(matrixOf(op.getSecond()), type));
    result = b->create<arith::AddFOp>(state, product);
  } else {
    result = b->dot(matrixOf(op.getFirst()), matrixOf(op.getSecond()), state, /*transposeLeft=*/true);
  }
  states[op.getResult()] = ends[rootOf(op.getState())] = result;
}

LogicalResult StepForm::read(ReadOp op) {
  if (auto earlier = earlierReads.find(rootOf(op.getState())); earlier != earlierReads.end()) {
    FailureOr<Value> tile = earlier->second->read(op);
    if (succeeded(tile))
      b->setTile(op.getResult(), *tile);
    return tile;
  }
  Value state = states.lookup(op.getState()), row = matrixOf(op.getRow()), result;
  bool alongFirst = op.getAlong() == op.getState().getType().getFirst();
  if (!isColumn(op.getState())) {
    result = b->dot(row, state, /*addend=*/{}, /*transposeLeft=*/false, /*transposeRight=*/!alongFirst);
  } else {
    Value product = b->create<arith::MulFOp>(widened(row, cast<RankedTensorType>(state.getType())), state);
    result = alongFirst ? b->reduce(chunk::Reduction::Sum, product) : product;
  }
  b->setTile(op.getResult(), b->shaped(result, b->tileType(op.getType())));
  return success();
}

//===----------------------------------------------------------------------===//
// The variant
//===----------------------------------------------------------------------===//

LogicalResult StepForm::execute(Operation *op) {
  b->setLoc(op->getLoc());
  if (isa<StateOp>(op) || b->tileOf(op->getResult(0)))
    return success();
  if (isa<DecayOp, WriteOp>(op) && earlierReads.contains(rootOf(op->getResult(0))))
    return success(); // joins the state when it is as old as the reads
  if (auto decayed = dyn_cast<DecayOp>(op))
    decay(decayed);
  else if (auto written = dyn_cast<WriteOp>(op))
    write(written);
  else if (auto reading = dyn_cast<ReadOp>(op))
    return read(reading);
  else if (auto fold = dyn_cast<LookbackOp>(op))
    return buildLookback(fold, *b, kernel.sizes(), kernel.rawTileOf);
  else
    return kernel.buildRow(op);
  return success();
}

LogicalResult StepForm::run() {
  // Numbers that are no rows are those that tables are made of.
  SmallVector<Operation *> order;
  for (Operation &op : variant.getBlock()->without_terminator())
    if (llvm::all_of(op.getResultTypes(), [](Type type) { return isRow(type) || isa<StateType>(type); }))
      order.push_back(&op);
  chains = stateChains(variant);
  if (failed(check()))
    return failure();
  SmallVector<Value> results = llvm::to_vector(variant.getBlock()->getTerminator()->getOperands());
  if (failed(kernel.create(variant.getSymName(), /*reverse=*/false, kernel.describeResults())) ||
      failed(kernel.addArguments(order, results)))
    return failure();
  b = &kernel.tiles();
  kernel.addTails(order);
  addCarried();
  kernel.addWindows();
  if (failed(kernel.beginBody()))
    return failure();
  for (Operation *op : order)
    if (failed(execute(op)))
      return failure();
  SmallVector<Value> outputs;
  for (Value result : results)
    outputs.push_back(b->tileOf(result));
  return kernel.finish(outputs, [&] {
    SmallVector<Value> next;
    for (auto &[root, end] : ends) {
      auto earlier = earlierReads.find(root);
      FailureOr<Value> state = earlier == earlierReads.end() ? end : earlier->second->next();
      if (failed(state))
        return FailureOr<SmallVector<Value>>();
      bool column = isColumn(cast<StateOp>(root).getResult());
      next.push_back(!column ? *state : earlier == earlierReads.end() ? asVector(*state) : b->column(*state, 0));
    }
    return FailureOr<SmallVector<Value>>(std::move(next));
  });
}

namespace {

struct StepPass : stretto::impl::StepBase<StepPass> {
  using StepBase::StepBase;

  void runOnOperation() override {
    FailureOr<ElementTypes> types = ElementTypes::read(getOperation(), element, elements);
    if (failed(types))
      return signalPassFailure();
    for (VariantOp variant : llvm::make_early_inc_range(getOperation().getOps<VariantOp>())) {
      if (failed(StepForm(variant, *types).run()))
        return signalPassFailure();
      variant.erase();
    }
  }
};

} // namespace
