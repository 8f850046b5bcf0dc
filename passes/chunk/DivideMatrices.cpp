//===- DivideMatrices.cpp - Takes wide matrices in panels -----------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "passes/Passes.h"
#include "passes/declaration/KernelNames.h"
#include "llvm/ADT/TypeSwitch.h"

namespace stretto {
#define GEN_PASS_DEF_DIVIDEMATRICES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;

namespace stretto::chunk {

namespace {

using Values = SmallVector<Value, 4>;

/// A kernel whose wide matrices are there in panels of columns. What is done to a matrix is done to its panels one by
/// one; rows of tokens that meet one become whole again.
class Panels {
public:
  Panels(KernelOp kernel, int64_t width)
      : kernel(kernel), width(width), builder(kernel.getContext()), states(kernel.argumentsOf(ArgumentKind::State)) {}

  void divide() {
    divideArguments();
    divide(*kernel.getBlock());
    divideResults();
    eraseWholes();
  }

private:
  struct Columns {
    int64_t from, size;
  };

  static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

  /// Whether a matrix has more columns than a panel, and is no tile of a few rows.
  bool isWide(RankedTensorType type) const {
    return type.getRank() == 2 && type.getDimSize(1) > width && type.getDimSize(0) >= width;
  }

  /// A product leaves matrices: where one column would remain it gets an eighth of those before it.
  SmallVector<Columns> panelsOf(RankedTensorType type) const {
    SmallVector<Columns> result;
    int64_t columns = type.getDimSize(1);
    for (int64_t from = 0; from < columns; from += result.back().size) {
      bool leavesOne = columns - from == width + 1 && width > 1;
      result.push_back({from, leavesOne ? width - std::max<int64_t>(width / 8, 1) : std::min(width, columns - from)});
    }
    return result;
  }

  static RankedTensorType panelType(RankedTensorType type, Columns columns) {
    return type.clone({type.getDimSize(0), columns.size});
  }

  /// The first panel keeps the name, others add their first column to it: to that of the state where segments have left
  /// it, as those panels of the state are called so.
  static StringAttr panelName(StringAttr name, Columns columns) {
    StringRef text = name, ofLeft = text.consume_back(leftSuffix) ? leftSuffix : "";
    return columns.from ? StringAttr::get(name.getContext(), text + "$" + Twine(columns.from) + ofLeft) : name;
  }

  void divideArguments();
  void divideResults();
  void eraseWholes();

  void divide(Block &block);
  void divide(Operation *op);
  /// Does an operation to panels, and says whether it can be done so.
  bool divideElementwise(Operation *op);
  bool divide(DotOp op);
  bool divide(ReduceOp op);
  bool divide(DecayStateOp op);
  void divide(LookbackOp op);

  /// The columns of a value, of a panel where it has that one.
  Value columnsOf(Value value, Columns columns);
  /// Whether columns of a value can be had.
  static bool hasColumns(Value value);
  Value whole(Value value);
  Value concat(Location location, ValueRange tiles, RankedTensorType type) {
    return ConcatOp::create(builder, location, type, tiles);
  }
  void replace(Operation *op, Value value) {
    op->getResult(0).replaceAllUsesWith(value);
    dead.push_back(op);
  }
  void keep(Operation *op, Values values) {
    panels[op->getResult(0)] = std::move(values);
    dead.push_back(op);
  }

  KernelOp kernel;
  int64_t width;
  OpBuilder builder;
  SmallVector<BlockArgument> states, divided; // as they came
  llvm::DenseMap<Value, Values> panels;
  SmallVector<Operation *> dead;
};

} // namespace

static bool mayBeDivided(ArgumentAttr argument) {
  ArgumentKind kind = argument.getKind();
  return !argument.getSliced() &&
         (kind == ArgumentKind::State || kind == ArgumentKind::Parameter || kind == ArgumentKind::Checkpoint);
}

void Panels::divideArguments() {
  Block &block = *kernel.getBlock();
  SmallVector<Attribute> descriptions;
  SmallVector<BlockArgument> arguments(block.getArguments());
  for (auto [old, value] : llvm::zip_equal(kernel.getArguments().getAsRange<ArgumentAttr>(), arguments)) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || !isWide(type) || !mayBeDivided(old)) {
      descriptions.push_back(old);
      continue;
    }
    bool isInPanels = old.getKind() == ArgumentKind::Checkpoint; // each lies in memory by itself
    StringAttr entry = old.getEntry() ? old.getEntry() : old.getName();
    int64_t all = old.getColumns() ? old.getColumns() : type.getDimSize(1);
    for (Columns columns : panelsOf(type)) {
      unsigned position = value.getArgNumber() + panels[value].size() + 1;
      panels[value].push_back(block.insertArgument(position, panelType(type, columns), value.getLoc()));
      descriptions.push_back(ArgumentAttr::get(kernel.getContext(), old.getKind(), panelName(old.getName(), columns),
                                               old.getGroup(), /*sliced=*/false, isInPanels ? StringAttr() : entry,
                                               isInPanels ? 0 : old.getColumn() + columns.from, isInPanels ? 0 : all,
                                               old.getLowest(), old.getPartial(), old.getRow(), old.getRows()));
    }
    divided.push_back(value);
  }
  kernel.setArgumentsAttr(builder.getArrayAttr(descriptions));
}

bool Panels::hasColumns(Value value) {
  if (isa<FloatType>(getElementTypeOrSelf(value)))
    return true;
  auto broadcast = value.getDefiningOp<BroadcastOp>(); // conditions
  return broadcast && broadcast.getAlong() == Side::Rows;
}

Value Panels::columnsOf(Value value, Columns columns) {
  if (auto known = panels.find(value); known != panels.end()) {
    for (auto [panel, part] : llvm::zip_equal(panelsOf(typeOf(value)), known->second))
      if (panel.from == columns.from)
        return part;
    llvm_unreachable("columns of a panel");
  }
  auto type = panelType(typeOf(value), columns);
  DenseElementsAttr constant;
  if (matchPattern(value, m_Constant(&constant)) && constant.isSplat())
    return arith::ConstantOp::create(builder, value.getLoc(), constant.resizeSplat(type));
  if (auto broadcast = value.getDefiningOp<BroadcastOp>(); broadcast && broadcast.getAlong() == Side::Rows)
    return BroadcastOp::create(builder, value.getLoc(), type, broadcast.getOperand(), Side::Rows);
  return ColumnsOp::create(builder, value.getLoc(), type, value, columns.from);
}

Value Panels::whole(Value value) {
  auto known = panels.find(value);
  return known == panels.end() ? value : concat(value.getLoc(), known->second, typeOf(value));
}

void Panels::divide(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (isa<YieldOp>(op))
      continue;
    auto lookback = dyn_cast<LookbackOp>(op);
    bool isOuter = lookback && lookback.getFold() == Fold::Outer;
    if (isOuter && llvm::any_of(lookback.getResults(), [&](Value sum) { return isWide(typeOf(sum)); })) {
      divide(lookback);
      continue;
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        divide(inner);
    divide(&op);
  }
}

void Panels::divide(Operation *op) {
  builder.setInsertionPoint(op);
  if (llvm::none_of(op->getOperands(), [&](Value operand) { return panels.contains(operand); }))
    return;
  bool isDone = op->hasTrait<OpTrait::Elementwise>()
                    ? divideElementwise(op)
                    : llvm::TypeSwitch<Operation *, bool>(op)
                          .Case<DotOp, ReduceOp, DecayStateOp>([&](auto known) { return divide(known); })
                          .Default([](Operation *) { return false; });
  if (isDone)
    return;
  for (OpOperand &operand : op->getOpOperands())
    operand.set(whole(operand.get()));
}

bool Panels::divideElementwise(Operation *op) {
  if (op->getNumResults() != 1 || !llvm::all_of(op->getOperands(), hasColumns))
    return false;
  auto type = typeOf(op->getResult(0));
  Values results;
  for (Columns columns : panelsOf(type)) {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, columnsOf(operand, columns));
    Operation *piece = builder.clone(*op, mapping);
    piece->getResult(0).setType(panelType(type, columns));
    results.push_back(piece->getResult(0));
  }
  keep(op, results);
  return true;
}

bool Panels::divide(DotOp op) {
  bool left = panels.contains(op.getLeft()), right = panels.contains(op.getRight());
  bool isTurned = op.getTransposeLeft(), isTransposed = op.getTransposeRight();
  auto type = typeOf(op.getResult());
  Location location = op.getLoc();
  if (!isTransposed && (right || !left)) {
    // Columns of the result come from the same of the right operand.
    Value rows = whole(op.getLeft());
    Values results;
    for (Columns columns : panelsOf(type)) {
      Value addend = op.getAddend() ? columnsOf(op.getAddend(), columns) : Value();
      results.push_back(DotOp::create(builder, location, panelType(type, columns), rows,
                                      columnsOf(op.getRight(), columns), addend, isTurned, /*transpose_right=*/false));
    }
    // Sums over tokens are matrices themselves.
    if (isTurned)
      keep(op, results);
    else
      replace(op, concat(location, results, type));
    return true;
  }
  if (isTransposed && !isTurned && (left || right)) {
    // A sum over the columns of both.
    Value sum = op.getAddend() ? whole(op.getAddend()) : Value();
    for (Columns columns : panelsOf(typeOf(op.getRight())))
      sum = DotOp::create(builder, location, type, columnsOf(op.getLeft(), columns), columnsOf(op.getRight(), columns),
                          sum, /*transpose_left=*/false, /*transpose_right=*/true);
    replace(op, sum);
    return true;
  }
  return false;
}

bool Panels::divide(ReduceOp op) {
  auto type = typeOf(op.getOperand());
  if (op.getOver() == Side::Rows) {
    // Vectors are put together as rows.
    Values rows;
    for (auto [columns, panel] : llvm::zip_equal(panelsOf(type), panels.lookup(op.getOperand()))) {
      Value row = ReduceOp::create(builder, op.getLoc(), type.clone({columns.size}), op.getKind(), panel, Side::Rows);
      rows.push_back(BroadcastOp::create(builder, op.getLoc(), type.clone({1, columns.size}), row, Side::Columns));
    }
    Value row = concat(op.getLoc(), rows, type.clone({1, type.getDimSize(1)}));
    replace(op, RowOp::create(builder, op.getLoc(), op.getType(), row, /*at=*/0));
    return true;
  }
  Value result;
  for (Value panel : panels.lookup(op.getOperand())) {
    Value own = ReduceOp::create(builder, op.getLoc(), op.getType(), op.getKind(), panel, Side::Columns);
    if (!result)
      result = own;
    else if (op.getKind() == Reduction::Sum)
      result = arith::AddFOp::create(builder, op.getLoc(), result, own);
    else
      result = arith::MaximumFOp::create(builder, op.getLoc(), result, own);
  }
  replace(op, result);
  return true;
}

bool Panels::divide(DecayStateOp op) {
  if (!panels.contains(op.getState()))
    return false;
  auto type = typeOf(op.getState());
  bool perColumn = op.getAlong() == Side::Columns && typeOf(op.getAmount()).getRank() == 2;
  Values results;
  for (Columns columns : panelsOf(type)) {
    Value amount = perColumn ? columnsOf(op.getAmount(), columns) : op.getAmount();
    results.push_back(DecayStateOp::create(builder, op.getLoc(), panelType(type, columns),
                                           columnsOf(op.getState(), columns), op.getForm(), amount, op.getAlong()));
  }
  keep(op, results);
  return true;
}

/// The look-back of one of the results alone.
static LookbackOp only(OpBuilder &builder, LookbackOp op, unsigned number, Type type) {
  auto single =
      LookbackOp::create(builder, op.getLoc(), type, op.getFold(), op.getFirst(), op.getLast(), op.getPast(),
                         op.getAhead(), op.getToEnd(), op.getContinued(), op.getMetAttr(), op.getWhollyAttr());
  IRMapping mapping;
  op.getBody().cloneInto(&single.getBody(), mapping);
  MutableOperandRange given = single.getContribution().getGivenMutable();
  SmallVector<Value, 2> own = {given[2 * number].get(), given[2 * number + 1].get()};
  given.assign(own);
  return single;
}

/// A sum of outer products is a matrix, whose panels are sums of their own.
void Panels::divide(LookbackOp op) {
  for (OpResult result : op.getResults()) {
    RankedTensorType type = typeOf(result);
    builder.setInsertionPoint(op);
    if (!isWide(type)) {
      LookbackOp single = only(builder, op, result.getResultNumber(), type);
      divide(*single.getBlock());
      result.replaceAllUsesWith(single.getResult(0));
      continue;
    }
    Values pieces;
    for (Columns columns : panelsOf(type)) {
      builder.setInsertionPoint(op);
      LookbackOp piece = only(builder, op, result.getResultNumber(), panelType(type, columns));
      divide(*piece.getBlock());
      ContributeOp contribution = piece.getContribution();
      builder.setInsertionPoint(contribution);
      OpOperand &rows = contribution.getGivenMutable()[1];
      rows.set(columnsOf(rows.get(), columns));
      pieces.push_back(piece.getResult(0));
    }
    panels[result] = std::move(pieces);
  }
  dead.push_back(op);
}

/// States and checkpoints are left as they came.
void Panels::divideResults() {
  auto yield = cast<YieldOp>(kernel.getBlock()->getTerminator());
  builder.setInsertionPoint(yield);
  SmallVector<Value> results, next;
  SmallVector<Attribute> outputs;
  for (auto [old, value] : llvm::zip_equal(kernel.getOutputs().getAsRange<OutputAttr>(), yield.getOutputs())) {
    auto type = typeOf(value);
    if (!old.getCheckpoint() || old.getSliced() || !isWide(type)) {
      outputs.push_back(old);
      results.push_back(whole(value));
      continue;
    }
    for (Columns columns : panelsOf(type)) {
      outputs.push_back(OutputAttr::get(kernel.getContext(), panelName(old.getName(), columns),
                                        panelType(type, columns), old.getGroup(), /*sliced=*/false,
                                        /*checkpoint=*/true, old.getPartial()));
      results.push_back(columnsOf(value, columns));
    }
  }
  for (auto [argument, value] : llvm::zip_equal(states, yield.getStates())) {
    if (!llvm::is_contained(divided, argument)) {
      next.push_back(whole(value));
      continue;
    }
    for (Columns columns : panelsOf(typeOf(value)))
      next.push_back(columnsOf(value, columns));
  }
  kernel.setOutputsAttr(builder.getArrayAttr(outputs));
  YieldOp::create(builder, yield.getLoc(), results, next);
  yield.erase();
}

void Panels::eraseWholes() {
  for (Operation *op : llvm::reverse(dead))
    op->erase();
  for (BlockArgument argument : llvm::reverse(divided))
    kernel.getBlock()->eraseArgument(argument.getArgNumber());
}

namespace {
struct DivideMatrices : stretto::impl::DivideMatricesBase<DivideMatrices> {
  using DivideMatricesBase::DivideMatricesBase;

  void runOnOperation() override {
    if (columns < 1) {
      getOperation().emitError() << "the kernel '" << getOperation().getSymName() << "' is to have panels of "
                                 << int64_t(columns) << " columns, expected at least 1";
      return signalPassFailure();
    }
    Panels(getOperation(), columns).divide();
  }
};
} // namespace

} // namespace stretto::chunk
