//===- KernelBuilder.cpp - Makes the kernel of a variant ------------------===//

#include "passes/declaration/KernelBuilder.h"
#include "dialect/stretto/Windows.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/declaration/ChunkRows.h"

using namespace mlir;
using namespace stretto;

KernelBuilder::KernelBuilder(VariantOp variant, StringRef form, int64_t tokens, int64_t pastTokens,
                             const ElementTypes &types)
    : variant(variant), form(form), tokens(tokens), pastTokens(pastTokens), types(types), moduleBuilder(variant) {}

//===----------------------------------------------------------------------===//
// Heads and arguments
//===----------------------------------------------------------------------===//

int64_t KernelBuilder::groupOf(StringRef heads) {
  if (heads == allHeads)
    return chunk::allHeadsGroup;
  // Joined sets are as fine as the finest of them.
  int64_t group = chunk::allHeadsGroup;
  for (StringRef set : llvm::split(heads, '|'))
    group = std::min(group, cast<IntegerAttr>(variant.getGroupAttr().get(set)).getInt());
  return group;
}

SmallVector<int64_t> KernelBuilder::tileShape(Type row) {
  SmallVector<int64_t> shape = {tokens};
  llvm::append_range(shape, cast<RankedTensorType>(row).getShape());
  return shape;
}

SmallVector<int64_t> KernelBuilder::shapeOf(StateType type) {
  SmallVector<int64_t> shape = {type.getFirstSize()};
  if (type.getSecondSize() != 1)
    shape.push_back(type.getSecondSize());
  return shape;
}

BlockArgument KernelBuilder::addArgument(chunk::ArgumentKind kind, StringRef name, Type type, int64_t group,
                                         StringRef entry, int64_t column, int64_t columns, bool lowest, int64_t row,
                                         int64_t rows) {
  MLIRContext *context = variant.getContext();
  bool hasEntry = kind == chunk::ArgumentKind::State || kind == chunk::ArgumentKind::Window;
  StringAttr entryName = hasEntry ? StringAttr::get(context, entry) : StringAttr();
  descriptions.push_back(chunk::ArgumentAttr::get(context, kind, StringAttr::get(context, name), group,
                                                  /*sliced=*/false, entryName, column, columns, lowest,
                                                  /*partial=*/false, row, rows));
  return kernel.getBlock()->addArgument(type, builder->getLoc());
}

void KernelBuilder::addInputs(ArrayRef<Operation *> order, ArrayRef<Value> wanted) {
  llvm::DenseSet<Value> used(wanted.begin(), wanted.end());
  for (Operation *op : order)
    op->walk([&](Operation *inner) { used.insert(inner->operand_begin(), inner->operand_end()); });
  for (BlockArgument argument : variant.getBody().getArguments()) {
    if (!used.contains(argument))
      continue;
    StringRef name = variant.getArgName(argument.getArgNumber());
    auto shape =
        isRow(argument.getType()) ? builder->tileType(argument.getType()) : cast<RankedTensorType>(argument.getType());
    auto kind = isRow(argument.getType()) ? chunk::ArgumentKind::Input : chunk::ArgumentKind::Parameter;
    auto type = RankedTensorType::get(shape.getShape(), types.of(name));
    BlockArgument raw = addArgument(kind, name, type, groupOf(headsOf(argument.getType())));
    if (kind == chunk::ArgumentKind::Input)
      builder->padding.setZero(raw);
    else
      builder->padding.setRows(raw, {Padding::Rows::Kind::Invariant});
    rawTiles[argument] = raw;
  }
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

chunk::TableOp KernelBuilder::createTableOp(Location location) {
  auto module = cast<ModuleOp>(variant->getParentOp());
  std::string name;
  int count = 0;
  do
    name = (variant.getSymName() + "_table" + (count ? "_" + Twine(count) : "")).str();
  while (++count, module.lookupSymbol(name));
  auto table = chunk::TableOp::create(moduleBuilder, location, moduleBuilder.getStringAttr(name),
                                      /*period=*/IntegerAttr(), /*varying=*/UnitAttr());
  Block &block = table.getBody().emplaceBlock();
  for (int i = 0; i < 3; ++i)
    block.addArgument(moduleBuilder.getF64Type(), location);
  return table;
}

/// The position of a token is a table of its own numbers.
chunk::TableOp KernelBuilder::createPositions(Location location) {
  chunk::TableOp table = createTableOp(location);
  table.setVarying(true);
  OpBuilder builder = OpBuilder::atBlockEnd(&table.getBody().front());
  chunk::ResultOp::create(builder, location, table.getBody().getArgument(0));
  return table;
}

FailureOr<chunk::TableOp> KernelBuilder::createTable(TableOp op) {
  std::optional<double> period;
  if (Value operand = op.getPeriod()) {
    FloatAttr number;
    if (!matchPattern(operand, m_Constant(&number)))
      return refuseForm(form, op) << "the period of the table is not known";
    period = number.getValueAsDouble();
  }
  chunk::TableOp table = createTableOp(op.getLoc());
  Block &source = op.getBody().front(), &target = table.getBody().front();
  OpBuilder builder = OpBuilder::atBlockEnd(&target);
  IRMapping mapping;
  mapping.map(source.getArguments(), target.getArguments());

  // Numbers from outside, and what they are made of, move into the table.
  SetVector<Value> outside;
  getUsedValuesDefinedAbove(op.getBody(), outside);
  SetVector<Operation *> makers;
  BackwardSliceOptions options;
  options.inclusive = true;
  for (Value value : outside)
    if (failed(getBackwardSlice(value, &makers, options)))
      return refuseForm(form, op) << "depends on what is not known before the data";
  for (Operation *maker : topologicalSort(makers)) {
    if (!isa<arith::ArithDialect, math::MathDialect>(maker->getDialect()))
      return refuseForm(form, maker) << "is not decided; run stretto-specialize first";
    builder.clone(*maker, mapping);
  }

  bool varies = op.variesOverTime();
  std::optional<int64_t> wholePeriod = op.getWholePeriod();
  if (varies && period && !wholePeriod) {
    Value modulus = arith::ConstantOp::create(builder, op.getLoc(), builder.getF64FloatAttr(*period));
    mapping.map(source.getArgument(0), arith::RemFOp::create(builder, op.getLoc(), target.getArgument(0), modulus));
  }
  for (Operation &inner : source.without_terminator())
    builder.clone(inner, mapping);
  chunk::ResultOp::create(builder, op.getLoc(), mapping.lookupOrDefault(source.getTerminator()->getOperand(0)));
  if (varies && wholePeriod)
    table.setPeriod(*wholePeriod);
  else if (varies)
    table.setVarying(true);
  return table;
}

void KernelBuilder::addTable(Operation *op, chunk::TableOp table) {
  auto row = cast<RankedTensorType>(op->getResult(0).getType());
  bool varies = table.getVarying() || table.getPeriod();
  RankedTensorType tile = builder->tileType(row);
  RankedTensorType type = varies ? tile : builder->tensorType(row.getShape());
  BlockArgument values = addArgument(chunk::ArgumentKind::Table, table.getSymName(), type, groupOf(headsOf(row)));
  if (varies)
    builder->padding.setZero(values);
  else
    builder->padding.setRows(values, {Padding::Rows::Kind::Invariant});
  rawTiles[op->getResult(0)] = values;
}

LogicalResult KernelBuilder::addTables(ArrayRef<Operation *> order) {
  for (Operation *op : order) {
    if (auto table = dyn_cast<TableOp>(op)) {
      FailureOr<chunk::TableOp> created = createTable(table);
      if (failed(created))
        return failure();
      addTable(op, *created);
    } else if (auto position = dyn_cast<PositionOp>(op)) {
      addTable(op, createPositions(op->getLoc()));
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

RankedTensorType KernelBuilder::typeOfTail(const StateEntry &entry) {
  int64_t width = entry.sizes.empty() ? 1 : entry.sizes.front();
  if (entry.kind == StateEntry::Kind::Scan)
    return RankedTensorType::get({1, width}, types.compute);
  // A tail keeps the raw rows in their own type, rows that were computed in the type of arithmetic.
  auto argument = dyn_cast<BlockArgument>(entry.operations.front()->getOperand(0));
  bool isRaw = argument && !entry.reverse;
  return RankedTensorType::get({entry.length, width},
                               isRaw ? types.of(variant.getArgName(argument.getArgNumber())) : types.compute);
}

BlockArgument KernelBuilder::addTail(const StateEntry &entry, chunk::ArgumentKind kind, int64_t group) {
  RankedTensorType type = typeOfTail(entry);
  BlockArgument argument = addArgument(kind, entry.name, type, group, entry.name, /*column=*/0, type.getDimSize(1),
                                       /*lowest=*/entry.initial != 0 && kind == chunk::ArgumentKind::State);
  if (entry.kind == StateEntry::Kind::Tail)
    builder->padding.setRows(argument, {Padding::Rows::Kind::Finite});
  for (Operation *op : entry.operations)
    tailOf[op] = argument;
  if (kind == chunk::ArgumentKind::Checkpoint || entry.reverse)
    return argument;
  if (entry.kind == StateEntry::Kind::Tail)
    tails.push_back({entry.operations.front()->getOperand(0), argument});
  else
    totals.push_back({cast<ScanOp>(entry.operations.front()), argument});
  return argument;
}

void KernelBuilder::addTails(ArrayRef<Operation *> order) {
  llvm::DenseSet<Operation *> needed(order.begin(), order.end());
  std::vector<StateEntry> entries = deriveState(variant);
  for (StateEntry::Kind kind : {StateEntry::Kind::Tail, StateEntry::Kind::Scan})
    for (const StateEntry &entry : entries)
      if (entry.kind == kind && !entry.reverse &&
          llvm::any_of(entry.operations, [&](Operation *op) { return needed.contains(op); }))
        addTail(entry, chunk::ArgumentKind::State, groupOf(entry.heads));
}

BlockArgument KernelBuilder::addState(StateOp root, chunk::ArgumentKind kind, int64_t group, FloatType element,
                                      StringRef name) {
  StringRef entry = root.getEntry().value_or(root.getName());
  int64_t columns = root.getEntry() ? root.getColumns() : root.getType().getSecondSize();
  auto type = RankedTensorType::get(shapeOf(root.getType()), element ? element : types.compute);
  bool isOfEntry = kind == chunk::ArgumentKind::State;
  return addArgument(kind, name.empty() ? root.getName() : name, type, group, entry, root.getColumn(), columns,
                     /*lowest=*/false, isOfEntry ? root.getRow() : 0, isOfEntry ? root.getRows() : 0);
}

BlockArgument KernelBuilder::addTotalDecay(StringRef name, ArrayRef<int64_t> shape, int64_t group, bool lowest) {
  RankedTensorType type = builder->tensorType(shape);
  return addArgument(chunk::ArgumentKind::State, name, type, group, name, /*column=*/0, chunk::columnsOfState(type),
                     lowest);
}

void KernelBuilder::addWindows() {
  std::optional<std::vector<Window>> windows = deriveWindows(variant);
  if (!windows)
    return; // no state continues it
  for (const Window &window : *windows) {
    BlockArgument row = variant.getBody().getArgument(window.argument);
    if (!rawTiles.contains(row))
      continue; // another kernel of the variant looks back to it
    Type element = getElementTypeOrSelf(rawTiles.lookup(row));
    int64_t width = axisOf(row.getType()).empty() ? 1 : cast<RankedTensorType>(row.getType()).getDimSize(0);
    addArgument(chunk::ArgumentKind::Window, window.name, RankedTensorType::get({window.length, width}, element),
                groupOf(headsOf(row.getType())), variant.getArgName(window.argument));
  }
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

LogicalResult KernelBuilder::check() {
  for (Type type : variant.getBody().getArgumentTypes())
    if (auto tensor = cast<RankedTensorType>(type); !tensor.hasStaticShape() || !tensor.getElementType().isF64())
      return refuseForm(form, variant) << "an argument has type " << type
                                       << ", expected real numbers of sizes that stretto-specialize fixed";
  WalkResult sized = variant.getBody().walk([&](Operation *op) -> WalkResult {
    for (Type type : op->getResultTypes()) {
      auto state = dyn_cast<StateType>(type);
      auto tensor = dyn_cast<RankedTensorType>(type);
      if ((state && (ShapedType::isDynamic(state.getFirstSize()) || ShapedType::isDynamic(state.getSecondSize()))) ||
          (tensor && !tensor.hasStaticShape()))
        return refuseForm(form, op) << "has type " << type << "; run stretto-specialize with sizes first";
    }
    return success();
  });
  if (sized.wasInterrupted())
    return failure();
  for (const std::string &set : namedHeadSets(variant))
    if (!variant.getGroupAttr() || !isa_and_present<IntegerAttr>(variant.getGroupAttr().get(set)))
      return refuseForm(form, variant) << "the number of heads of '" << set
                                       << "' is not known; run stretto-specialize with heads";
  for (auto [index, result] : llvm::enumerate(variant.getBlock()->getTerminator()->getOperandTypes()))
    if (!getElementTypeOrSelf(result).isF64())
      return refuseForm(form, variant) << "result " << index << " has type " << result << ", expected real numbers";
  return success();
}

LogicalResult KernelBuilder::checkResults() {
  for (auto [index, result] : llvm::enumerate(variant.getBlock()->getTerminator()->getOperandTypes()))
    if (int64_t group = groupOf(headsOf(result)); group != 1)
      return refuseForm(form, variant) << "result " << index << " is of the heads '" << headsOf(result)
                                       << "', of which " << group << " heads of the kernel share one";
  return success();
}

chunk::OutputAttr KernelBuilder::describeOutput(const llvm::Twine &name, ArrayRef<int64_t> shape, Type element,
                                                int64_t group, bool checkpoint) {
  return chunk::OutputAttr::get(variant.getContext(), moduleBuilder.getStringAttr(name),
                                RankedTensorType::get(shape, element), group, /*sliced=*/false, checkpoint,
                                /*partial=*/false);
}

SmallVector<chunk::OutputAttr> KernelBuilder::describeResults() {
  SmallVector<chunk::OutputAttr> outputs;
  size_t count = variant.getResultCount();
  for (auto [index, result] : llvm::enumerate(variant.getBlock()->getTerminator()->getOperandTypes())) {
    bool isSaved = index >= count;
    std::string number = std::to_string(isSaved ? index - count : index);
    std::string name = isSaved ? "saved." + number : count == 1 ? "o" : "o" + number;
    outputs.push_back(describeOutput(name, tileShape(result), isSaved ? types.compute : types.standard));
  }
  return outputs;
}

LogicalResult KernelBuilder::create(StringRef name, bool reverse, ArrayRef<chunk::OutputAttr> outputs,
                                    chunk::SegmentsAttr segments) {
  FailureOr<Sizes> found = Sizes::get(variant, {});
  if (failed(found))
    return failure();
  knownSizes = std::move(*found);
  SmallVector<Attribute> descriptions(outputs.begin(), outputs.end());
  kernel = chunk::KernelOp::create(moduleBuilder, variant.getLoc(), name, tokens, reverse,
                                   moduleBuilder.getArrayAttr({}), moduleBuilder.getArrayAttr(descriptions),
                                   /*slices=*/1, segments, /*between=*/FlatSymbolRefAttr(), /*recorded=*/false,
                                   /*earlier=*/false);
  builder = std::make_unique<TileBuilder>(variant.getLoc(), &kernel.getBody().emplaceBlock(), form, tokens, pastTokens,
                                          types.compute);
  return success();
}

LogicalResult KernelBuilder::addArguments(ArrayRef<Operation *> order, ArrayRef<Value> wanted) {
  addInputs(order, wanted);
  if (failed(addTables(order)))
    return failure();
  return success();
}

LogicalResult KernelBuilder::beginBody() {
  TileBuilder &b = *builder;
  b.valid = addArgument(chunk::ArgumentKind::Valid, "valid", b.getIndexType(), /*group=*/1);
  kernel.setArgumentsAttr(b.getArrayAttr(descriptions));
  for (auto [row, raw] : rawTiles)
    b.loadTile(row, raw);
  return success();
}

LogicalResult KernelBuilder::buildRow(Operation *op) {
  return buildRowMap(op, *builder, *knownSizes, [&](Operation *user) { return tailOf.lookup(user); });
}

LogicalResult KernelBuilder::finish(ArrayRef<Value> outputs,
                                    llvm::function_ref<FailureOr<SmallVector<Value>>()> makeNext) {
  TileBuilder &b = *builder;
  SmallVector<Value> stored, next;
  for (auto [tile, output] : llvm::zip_equal(outputs, kernel.getOutputs().getAsRange<chunk::OutputAttr>()))
    stored.push_back(b.cast(tile, output.getType().getElementType()));
  for (const Tail &tail : tails) {
    Value raw = rawTiles.lookup(tail.row);
    Value rows = b.matrixOf(raw ? raw : b.tileOf(tail.row));
    next.push_back(b.create<chunk::TailOp>(tail.argument.getType(), rows, b.valid, tail.argument));
  }
  for (const Total &total : totals) {
    // A total is the last of those after each token, and stays what it was without tokens.
    Value rows = buildTotals(total.scan, b, total.argument);
    next.push_back(b.create<chunk::TailOp>(total.argument.getType(), rows, b.valid, total.argument));
  }
  FailureOr<SmallVector<Value>> carried = makeNext();
  if (failed(carried))
    return failure();
  llvm::append_range(next, *carried);
  b.setLoc(variant.getLoc());
  b.create<chunk::YieldOp>(stored, next);
  return success();
}
