//===- Chunk.cpp - From one token to a chunk of tokens --------------------===//

#include "dialect/stretto/StateEntries.h"
#include "dialect/stretto/Windows.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"
#include "passes/declaration/ChunkCotangent.h"
#include "passes/declaration/ChunkEarlierReads.h"
#include "passes/declaration/ChunkFeedback.h"
#include "passes/declaration/ChunkLookback.h"
#include "passes/declaration/ChunkRows.h"

namespace stretto {
#define GEN_PASS_DEF_CHUNK
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// The types of a kernel's inputs, parameters and outputs in memory, and the type of its arithmetic.
struct ElementTypes {
  FloatType standard;
  llvm::StringMap<FloatType> others;
  FloatType compute;

  FloatType of(StringRef argument) const {
    auto other = others.find(argument);
    return other == others.end() ? standard : other->second;
  }
};

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
      : variant(variant), tokens(tokens), types(types), part(part), moduleBuilder(variant) {}

  LogicalResult run();

private:
  LogicalResult checkTypes();
  LogicalResult checkChains();
  LogicalResult createKernel();
  SmallVector<chunk::OutputAttr> describeOutputs();
  LogicalResult readGroups();
  /// Whether a state is carried by the kernel, and not given to it as a checkpoint.
  bool isCarried(StateOp root) { return part != Part::Gradient || root.getType().getReverse(); }
  /// How many of the kernel's heads share one head of a set.
  int64_t groupOf(StringRef heads);

  BlockArgument addArgument(chunk::ArgumentKind kind, StringRef name, Type type, int64_t group, StringRef entry = {},
                            int64_t column = 0, int64_t columns = 0, bool lowest = false);
  void addArguments();
  LogicalResult addTables();
  void addTable(Operation *op, chunk::TableOp table);
  FailureOr<chunk::TableOp> createTable(TableOp op);
  chunk::TableOp createPositions(Location location);
  chunk::TableOp createTableOp(Location location);
  void addTails();
  void addTail(const StateEntry &entry);
  void addTotal(const StateEntry &entry);
  void addStates();
  void addWindows();
  LogicalResult buildBody();

  VariantOp variant;
  int64_t tokens;
  const ElementTypes &types;
  Part part;
  OpBuilder moduleBuilder;

  chunk::KernelOp kernel;
  std::unique_ptr<TileBuilder> b;
  SmallVector<Attribute> descriptions;
  SmallVector<StateChain> chains;
  SmallVector<Operation *> order;
  /// By the root of their chain, which is read now or at an earlier time.
  llvm::DenseMap<Operation *, std::unique_ptr<ChunkRecurrence>> recurrences;
  llvm::DenseMap<Operation *, std::unique_ptr<ChunkEarlierReads>> earlierReads;
  /// The raw tile of each row that a tail follows, the tail, and the operations that look back to it.
  struct Tail {
    Value row;
    BlockArgument argument;
  };
  /// The state of each chain at the start of a chunk, or of a reverse one at its end.
  llvm::DenseMap<Operation *, Value> starts;
  SmallVector<Tail> tails;
  /// A scan, one of those that share a total, and the total.
  struct Total {
    ScanOp scan;
    BlockArgument argument;
  };
  SmallVector<Total> totals;
  /// What operations look back to: a tail, or the total of a scan.
  llvm::DenseMap<Operation *, Value> tailOf;
  /// What comes from outside, in memory's types.
  llvm::MapVector<Value, Value> rawTiles;
  std::function<BlockArgument(Value)> rawTileOf = [this](Value row) {
    return cast_if_present<BlockArgument>(rawTiles.lookup(row));
  };
  FailureOr<Sizes> sizes = failure();
};

} // namespace

//===----------------------------------------------------------------------===//
// Heads and arguments
//===----------------------------------------------------------------------===//

int64_t ChunkVariant::groupOf(StringRef heads) {
  if (heads == allHeads)
    return chunk::allHeadsGroup;
  // Joined sets are as fine as the finest of them.
  int64_t group = chunk::allHeadsGroup;
  for (StringRef set : llvm::split(heads, '|'))
    group = std::min(group, cast<IntegerAttr>(variant.getGroupAttr().get(set)).getInt());
  return group;
}

LogicalResult ChunkVariant::readGroups() {
  for (const std::string &set : namedHeadSets(variant))
    if (!variant.getGroupAttr() || !isa_and_present<IntegerAttr>(variant.getGroupAttr().get(set)))
      return refuseChunkForm(variant) << "the number of heads of '" << set
                                      << "' is not known; run stretto-specialize with heads";
  if (part != Part::Whole)
    return success();
  for (auto [index, result] : llvm::enumerate(variant.getBlock()->getTerminator()->getOperandTypes()))
    if (int64_t group = groupOf(headsOf(result)); group != 1)
      return refuseChunkForm(variant) << "result " << index << " is of the heads '" << headsOf(result) << "', of which "
                                      << group << " heads of the kernel share one";
  return success();
}

BlockArgument ChunkVariant::addArgument(chunk::ArgumentKind kind, StringRef name, Type type, int64_t group,
                                        StringRef entry, int64_t column, int64_t columns, bool lowest) {
  MLIRContext *context = variant.getContext();
  bool hasEntry = kind == chunk::ArgumentKind::State || kind == chunk::ArgumentKind::Window;
  StringAttr entryName = hasEntry ? StringAttr::get(context, entry) : StringAttr();
  descriptions.push_back(chunk::ArgumentAttr::get(context, kind, StringAttr::get(context, name), group,
                                                  /*sliced=*/false, entryName, column, columns, lowest));
  return kernel.getBlock()->addArgument(type, b->getLoc());
}

void ChunkVariant::addArguments() {
  llvm::DenseSet<Value> used;
  for (Operation *op : order)
    used.insert(op->operand_begin(), op->operand_end());
  for (StateChain &chain : chains)
    used.insert_range(chain.rows());
  if (part != Part::Checkpoints)
    used.insert_range(variant.getBlock()->getTerminator()->getOperands());
  for (BlockArgument argument : variant.getBody().getArguments()) {
    if (!used.contains(argument))
      continue;
    StringRef name = variant.getArgName(argument.getArgNumber());
    auto shape =
        isRow(argument.getType()) ? b->tileType(argument.getType()) : cast<RankedTensorType>(argument.getType());
    auto kind = isRow(argument.getType()) ? chunk::ArgumentKind::Input : chunk::ArgumentKind::Parameter;
    auto type = RankedTensorType::get(shape.getShape(), types.of(name));
    BlockArgument raw = addArgument(kind, name, type, groupOf(headsOf(argument.getType())));
    if (kind == chunk::ArgumentKind::Input)
      b->padding.setZero(raw);
    else
      b->padding.setRows(raw, {Padding::Rows::Kind::Invariant});
    rawTiles[argument] = raw;
  }
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

chunk::TableOp ChunkVariant::createTableOp(Location location) {
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
chunk::TableOp ChunkVariant::createPositions(Location location) {
  chunk::TableOp table = createTableOp(location);
  table.setVarying(true);
  OpBuilder builder = OpBuilder::atBlockEnd(&table.getBody().front());
  chunk::ResultOp::create(builder, location, table.getBody().getArgument(0));
  return table;
}

FailureOr<chunk::TableOp> ChunkVariant::createTable(TableOp op) {
  std::optional<double> period;
  if (Value operand = op.getPeriod()) {
    FloatAttr number;
    if (!matchPattern(operand, m_Constant(&number)))
      return refuseChunkForm(op) << "the period of the table is not known";
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
      return refuseChunkForm(op) << "depends on what is not known before the data";
  for (Operation *maker : topologicalSort(makers)) {
    if (!isa<arith::ArithDialect, math::MathDialect>(maker->getDialect()))
      return refuseChunkForm(maker) << "is not decided; run stretto-specialize first";
    builder.clone(*maker, mapping);
  }

  bool varies = !source.getArgument(0).use_empty();
  bool isWhole = period && *period == std::floor(*period) && *period >= 1 && *period < 0x1p53;
  if (varies && period && !isWhole) {
    Value modulus = arith::ConstantOp::create(builder, op.getLoc(), builder.getF64FloatAttr(*period));
    mapping.map(source.getArgument(0), arith::RemFOp::create(builder, op.getLoc(), target.getArgument(0), modulus));
  }
  for (Operation &inner : source.without_terminator())
    builder.clone(inner, mapping);
  chunk::ResultOp::create(builder, op.getLoc(), mapping.lookupOrDefault(source.getTerminator()->getOperand(0)));
  if (varies && isWhole)
    table.setPeriod(static_cast<int64_t>(*period));
  else if (varies)
    table.setVarying(true);
  return table;
}

void ChunkVariant::addTable(Operation *op, chunk::TableOp table) {
  auto row = cast<RankedTensorType>(op->getResult(0).getType());
  bool varies = table.getVarying() || table.getPeriod();
  RankedTensorType tile = b->tileType(row);
  RankedTensorType type = varies ? tile : b->tensorType(row.getShape());
  BlockArgument values = addArgument(chunk::ArgumentKind::Table, table.getSymName(), type, groupOf(headsOf(row)));
  if (varies)
    b->padding.setZero(values);
  else
    b->padding.setRows(values, {Padding::Rows::Kind::Invariant});
  rawTiles[op->getResult(0)] = values;
}

LogicalResult ChunkVariant::addTables() {
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

void ChunkVariant::addTail(const StateEntry &entry) {
  // A tail keeps the raw rows in their own type, rows that were computed in the type of arithmetic.
  Value row = entry.operations.front()->getOperand(0);
  Type element = types.compute;
  if (Value raw = rawTiles.lookup(row))
    element = getElementTypeOrSelf(raw);
  int64_t width = entry.sizes.empty() ? 1 : entry.sizes.front();
  BlockArgument argument =
      addArgument(chunk::ArgumentKind::State, entry.name, RankedTensorType::get({entry.length, width}, element),
                  groupOf(entry.heads), entry.name, 0, width);
  b->padding.setRows(argument, {Padding::Rows::Kind::Finite});
  tails.push_back({row, argument});
  for (Operation *op : entry.operations)
    tailOf[op] = argument;
}

void ChunkVariant::addTotal(const StateEntry &entry) {
  int64_t width = entry.sizes.empty() ? 1 : entry.sizes.front();
  BlockArgument argument = addArgument(chunk::ArgumentKind::State, entry.name, b->tensorType({1, width}),
                                       groupOf(entry.heads), entry.name, 0, width, /*lowest=*/entry.initial != 0);
  totals.push_back({cast<ScanOp>(entry.operations.front()), argument});
  for (Operation *op : entry.operations)
    tailOf[op] = argument;
}

void ChunkVariant::addTails() {
  llvm::DenseSet<Operation *> needed(order.begin(), order.end());
  std::vector<StateEntry> entries = deriveState(variant);
  auto addAll = [&](StateEntry::Kind kind, void (ChunkVariant::*add)(const StateEntry &)) {
    for (const StateEntry &entry : entries)
      if (entry.kind == kind && !entry.reverse &&
          llvm::any_of(entry.operations, [&](Operation *op) { return needed.contains(op); }))
        (this->*add)(entry);
  };
  addAll(StateEntry::Kind::Tail, &ChunkVariant::addTail);
  addAll(StateEntry::Kind::Scan, &ChunkVariant::addTotal);
}

/// The shape of a state in memory: one column is a vector.
static SmallVector<int64_t> shapeOf(StateType type) {
  SmallVector<int64_t> shape = {type.getFirstSize()};
  if (type.getSecondSize() != 1)
    shape.push_back(type.getSecondSize());
  return shape;
}

void ChunkVariant::addStates() {
  for (const StateChain &chain : chains) {
    StateOp root = chain.getRoot();
    StateType type = root.getType();
    SmallVector<int64_t> shape = shapeOf(type);
    StringRef entry = root.getEntry().value_or(root.getName());
    int64_t columns = root.getEntry() ? root.getColumns() : type.getSecondSize();
    auto kind = isCarried(root) ? chunk::ArgumentKind::State : chunk::ArgumentKind::Checkpoint;
    // Heads that share a state have parts of its cotangent, which are added up in the end: all else is linear in them.
    int64_t group = type.getReverse() ? 1 : groupOf(type.getHeads());
    Value start = addArgument(kind, root.getName(), b->tensorType(shape), group, entry, root.getColumn(), columns);
    starts[root] = start;
    if (ChunkEarlierReads::hasSome(chain))
      earlierReads[root] = std::make_unique<ChunkEarlierReads>(chain, b->matrixOf(start), *b, *sizes, rawTileOf);
    else if (type.getReverse())
      recurrences[root] = std::make_unique<ChunkCotangent>(chain, b->matrixOf(start), *b);
    else
      recurrences[root] = std::make_unique<ChunkRecurrence>(chain, b->matrixOf(start), *b);
  }
}

void ChunkVariant::addWindows() {
  std::optional<std::vector<Window>> windows = deriveWindows(variant);
  if (!windows)
    return; // no state continues it
  for (const Window &window : *windows) {
    BlockArgument row = variant.getBody().getArgument(window.argument);
    Type element = getElementTypeOrSelf(rawTiles.lookup(row));
    int64_t width = axisOf(row.getType()).empty() ? 1 : cast<RankedTensorType>(row.getType()).getDimSize(0);
    addArgument(chunk::ArgumentKind::Window, window.name, RankedTensorType::get({window.length, width}, element),
                groupOf(headsOf(row.getType())), variant.getArgName(window.argument));
  }
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

SmallVector<chunk::OutputAttr> ChunkVariant::describeOutputs() {
  SmallVector<chunk::OutputAttr> outputs;
  auto add = [&](const llvm::Twine &name, ArrayRef<int64_t> shape, Type element, int64_t group) {
    outputs.push_back(chunk::OutputAttr::get(variant.getContext(), moduleBuilder.getStringAttr(name),
                                             RankedTensorType::get(shape, element), group, /*sliced=*/false,
                                             /*checkpoint=*/part == Part::Checkpoints));
  };
  if (part == Part::Checkpoints) {
    for (StateChain &chain : chains)
      add(chain.getRoot().getName(), shapeOf(chain.getRoot().getType()), types.compute,
          groupOf(chain.getRoot().getType().getHeads()));
    return outputs;
  }
  SmallVector<unsigned> rows = variant.getDifferentiableRows();
  TypeRange results = variant.getBlock()->getTerminator()->getOperandTypes();
  for (auto [index, result] : llvm::enumerate(results)) {
    SmallVector<int64_t> shape = {tokens};
    llvm::append_range(shape, cast<RankedTensorType>(result).getShape());
    if (part == Part::Whole) {
      add(results.size() == 1 ? "o" : "o" + llvm::Twine(index), shape, types.standard, 1);
      continue;
    }
    // A gradient has the type of its row; parts that are still to be added up are not rounded.
    StringRef row = variant.getArgName(rows[index]);
    int64_t group = groupOf(headsOf(result));
    add("d_" + row, shape, group == 1 ? types.of(row) : types.compute, group);
  }
  return outputs;
}

LogicalResult ChunkVariant::createKernel() {
  for (auto [index, result] : llvm::enumerate(variant.getBlock()->getTerminator()->getOperandTypes()))
    if (!getElementTypeOrSelf(result).isF64())
      return refuseChunkForm(variant) << "result " << index << " has type " << result << ", expected real numbers";
  SmallVector<chunk::OutputAttr> descriptions = describeOutputs();
  SmallVector<Attribute> outputs(descriptions.begin(), descriptions.end());
  std::string name = variant.getSymName().str() + (part == Part::Checkpoints ? "_checkpoints" : "");
  kernel = chunk::KernelOp::create(moduleBuilder, variant.getLoc(), name, tokens, /*reverse=*/part == Part::Gradient,
                                   moduleBuilder.getArrayAttr({}), moduleBuilder.getArrayAttr(outputs), /*slices=*/1);
  b = std::make_unique<TileBuilder>(variant.getLoc(), &kernel.getBody().emplaceBlock(), tokens, types.compute);
  return success();
}

LogicalResult ChunkVariant::buildBody() {
  b->valid = addArgument(chunk::ArgumentKind::Valid, "valid", b->getIndexType(), /*group=*/1);
  kernel.setArgumentsAttr(b->getArrayAttr(descriptions));
  for (auto [row, raw] : rawTiles) {
    Value tile = b->cast(raw, types.compute);
    // A table that is constant in time is repeated over the tokens.
    if (row.getDefiningOp() && tile.getType() != b->tileType(row.getType()))
      tile = b->repeat(tile, b->tileType(row.getType()), chunk::Side::Columns);
    b->setTile(row, tile);
  }

  llvm::DenseMap<Value, Operation *> rootOf;
  for (const StateChain &chain : chains) {
    rootOf[chain.getRoot().getResult()] = chain.getRoot();
    for (Operation *step : chain.steps)
      rootOf[step->getResult(0)] = chain.getRoot();
  }
  for (Operation *op : order) {
    if (b->tileOf(op->getResult(0)))
      continue;
    auto recurrenceOf = [&](Value state) { return recurrences[rootOf.at(state)].get(); };
    if (auto read = dyn_cast<ReadOp>(op); read && read.getAt()) {
      FailureOr<Value> tile = earlierReads[rootOf.at(read.getState())]->read(read);
      if (failed(tile))
        return failure();
      b->setTile(read.getResult(), *tile);
    } else if (read) {
      b->setTile(read.getResult(), recurrenceOf(read.getState())->read(read));
    } else if (auto pair = dyn_cast<PairOp>(op)) {
      auto *cotangent = static_cast<ChunkCotangent *>(recurrenceOf(pair.getCotangent()));
      b->setTile(pair.getResult(), cotangent->pair(pair, *recurrenceOf(pair.getState())));
    } else if (auto sum = dyn_cast<GroupSumOp>(op); sum && part == Part::Gradient) {
      // The parts of heads stay apart until the end.
      b->setTile(sum.getResult(), b->tileOf(sum.getOperand()));
    } else if (auto fold = dyn_cast<LookbackOp>(op)) {
      if (failed(buildLookback(fold, *b, *sizes, rawTileOf)))
        return failure();
    } else if (failed(buildRowMap(op, *b, *sizes, [&](Operation *user) { return tailOf.lookup(user); }))) {
      return failure();
    }
    // Asking in order keeps the recursion of the answer flat.
    b->padding.rowsOf(b->tileOf(op->getResult(0)));
  }

  SmallVector<Value> outputs, next;
  if (part == Part::Checkpoints)
    for (const StateChain &chain : chains)
      outputs.push_back(starts.at(chain.root));
  else
    for (auto [result, output] : llvm::zip_equal(variant.getBlock()->getTerminator()->getOperands(),
                                                 kernel.getOutputs().getAsRange<chunk::OutputAttr>()))
      outputs.push_back(b->cast(b->tileOf(result), output.getType().getElementType()));
  for (const Tail &tail : tails) {
    Value raw = rawTiles.lookup(tail.row);
    Value rows = b->matrixOf(raw ? raw : b->tileOf(tail.row));
    next.push_back(b->create<chunk::TailOp>(tail.argument.getType(), rows, b->valid, tail.argument));
  }
  for (const Total &total : totals) {
    // A total is the last of those after each token, and stays what it was without tokens.
    Value rows = buildTotals(total.scan, *b, total.argument);
    next.push_back(b->create<chunk::TailOp>(total.argument.getType(), rows, b->valid, total.argument));
  }
  for (const StateChain &chain : chains) {
    StateOp root = chain.getRoot();
    if (!isCarried(root))
      continue;
    auto earlier = earlierReads.find(root);
    FailureOr<Value> end = earlier != earlierReads.end() ? earlier->second->next() : recurrences[root]->next();
    if (failed(end))
      return failure();
    next.push_back(root.getType().getSecondSize() == 1 ? b->column(*end, 0) : *end);
  }
  b->setLoc(variant.getLoc());
  b->create<chunk::YieldOp>(outputs, next);
  return success();
}

LogicalResult ChunkVariant::checkTypes() {
  for (Type type : variant.getBody().getArgumentTypes())
    if (auto tensor = cast<RankedTensorType>(type); !tensor.hasStaticShape() || !tensor.getElementType().isF64())
      return refuseChunkForm(variant) << "an argument has type " << type
                                      << ", expected real numbers of sizes that stretto-specialize fixed";
  WalkResult sized = variant.getBody().walk([&](Operation *op) -> WalkResult {
    for (Type type : op->getResultTypes()) {
      auto state = dyn_cast<StateType>(type);
      auto tensor = dyn_cast<RankedTensorType>(type);
      if ((state && (ShapedType::isDynamic(state.getFirstSize()) || ShapedType::isDynamic(state.getSecondSize()))) ||
          (tensor && !tensor.hasStaticShape()))
        return refuseChunkForm(op) << "has type " << type << "; run stretto-specialize with sizes first";
    }
    return success();
  });
  return failure(sized.wasInterrupted());
}

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

LogicalResult ChunkVariant::run() {
  if (failed(checkTypes()) || failed(readGroups()))
    return failure();
  chains = stateChains(variant);
  SmallVector<Value> wanted = llvm::to_vector(variant.getBlock()->getTerminator()->getOperands());
  if (part == Part::Checkpoints) {
    llvm::erase_if(chains, [](const StateChain &chain) { return chain.getRoot().getType().getReverse(); });
    wanted.clear();
  }
  if (failed(checkChains()))
    return failure();
  FailureOr<SmallVector<Operation *>> found = orderOfTiles(chains, wanted);
  if (failed(found) || failed(createKernel()))
    return failure();
  order = std::move(*found);
  sizes = Sizes::get(variant, {});
  if (failed(sizes))
    return failure();
  addArguments();
  if (failed(addTables()))
    return failure();
  addTails();
  addStates();
  addWindows();
  return buildBody();
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

  FailureOr<FloatType> readType(StringRef owner, StringRef word) {
    Builder builder(&getContext());
    FloatType type = llvm::StringSwitch<FloatType>(word)
                         .Case("bf16", builder.getBF16Type())
                         .Case("f16", builder.getF16Type())
                         .Case("f32", builder.getF32Type())
                         .Case("f64", builder.getF64Type())
                         .Default(FloatType());
    if (!type)
      return getOperation().emitError() << "[R4] the type of " << owner << " is '" << word
                                        << "', expected bf16, f16, f32 or f64";
    return type;
  }

  FailureOr<ElementTypes> readTypes() {
    ElementTypes types;
    FailureOr<FloatType> standard = readType("the inputs", element);
    if (failed(standard))
      return failure();
    types.standard = *standard;
    types.compute = standard->isF64() ? *standard : FloatType(Float32Type::get(&getContext()));
    for (StringRef pair : elements) {
      auto [name, word] = pair.split('=');
      FailureOr<FloatType> type = readType(("'" + name + "'").str(), word);
      if (failed(type))
        return failure();
      if (type->getWidth() > types.compute.getWidth())
        return getOperation().emitError() << "[R4] the type of '" << name << "' is " << *type
                                          << ", expected one that arithmetic in " << types.compute << " holds";
      types.others[name] = *type;
    }
    return types;
  }

  /// Every argument that a type is given for exists.
  LogicalResult checkNames() {
    llvm::StringSet<> names;
    for (VariantOp variant : getOperation().getOps<VariantOp>())
      for (Attribute name : variant.getArgNames())
        names.insert(cast<StringAttr>(name).getValue());
    for (StringRef pair : elements)
      if (!names.contains(pair.split('=').first))
        return getOperation().emitError()
               << "[R4] a type is given for '" << pair.split('=').first << "', which is no argument";
    return success();
  }

  void runOnOperation() override {
    FailureOr<ElementTypes> types = readTypes();
    if (failed(types))
      return signalPassFailure();
    if (chunk < 1 || chunk > 1024) {
      getOperation().emitError() << "chunks have " << chunk << " tokens, expected 1 to 1024";
      return signalPassFailure();
    }
    if (failed(checkNames()))
      return signalPassFailure();
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
