//===- ChunkInterpreter.cpp - Executes the chunk level --------------------===//

#include "dialect/chunk/ChunkInterpreter.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>

using namespace mlir;

namespace stretto::chunk {

namespace {

class KernelExecution {
public:
  KernelExecution(KernelOp kernel, const Call &call) : kernel(kernel), call(call) {}
  FailureOr<Outcome> run();

private:
  struct Sequence {
    int64_t index, first, length;
  };
  /// An entry of the state, and where the numbers of one head begin and rows follow each other.
  struct Entry {
    Array values;
    bool isTail;
    double *row(int64_t sequence, int64_t head, int64_t index) {
      ArrayRef<int64_t> shape = values.shape;
      int64_t heads = shape[isTail ? 2 : 1], rows = shape[isTail ? 1 : 2], width = shape[3];
      int64_t offset = isTail ? (sequence * rows + index) * heads + head : (sequence * heads + head) * rows + index;
      return values.values.data() + offset * width;
    }
  };

  LogicalResult bindArguments();
  LogicalResult bindStates();
  LogicalResult runHead(Sequence sequence, int64_t head);
  LogicalResult runChunk(Sequence sequence, int64_t head, int64_t start, SmallVectorImpl<Tile> &states);
  /// Executes what looks at the tiles of a chunk alone.
  LogicalResult runOnTiles(Operation &op, TileMap &tiles, int64_t valid);
  /// The same of a block within a chunk; fills what it yields.
  LogicalResult runBlock(Block &block, TileMap &tiles, int64_t valid, SmallVectorImpl<Tile> &yielded);
  /// Executes a loop within a chunk, over indices.
  LogicalResult runLoop(scf::ForOp loop, TileMap &tiles, int64_t valid);
  LogicalResult runChoice(scf::IfOp choice, TileMap &tiles, int64_t valid);
  int64_t firstPast(int64_t sequence);
  LogicalResult runLookback(LookbackOp op, TileMap &tiles, Sequence sequence, int64_t head, int64_t start,
                            int64_t valid);
  /// The tile of an argument at a token, with as many rows as its type says where it has tokens.
  FailureOr<Tile> load(BlockArgument argument, Type type, Sequence sequence, int64_t head, int64_t start,
                       int64_t valid);
  FailureOr<Tile> loadTable(BlockArgument argument, ArrayRef<int64_t> shape, Sequence sequence, int64_t head,
                            int64_t start, int64_t valid);
  Tile loadRows(BlockArgument argument, ArrayRef<int64_t> shape, Sequence sequence, int64_t head, int64_t start,
                int64_t valid);
  /// Fills the rows of a tile that lie before the first token.
  void loadWindow(BlockArgument argument, Tile &tile, int64_t sequence, int64_t head, int64_t start);
  Tile loadParameter(BlockArgument argument, int64_t head);
  Tile loadCheckpoint(BlockArgument argument, Sequence sequence, int64_t head, int64_t start);
  /// The number of a chunk among all of all sequences.
  int64_t checkpointAt(Sequence sequence, int64_t start) {
    return sequence.first / static_cast<int64_t>(kernel.getChunk()) + sequence.index + start / kernel.getChunk();
  }
  ArgumentAttr describe(BlockArgument argument) { return kernel.getArgument(argument.getArgNumber()); }

  KernelOp kernel;
  const Call &call;
  int64_t heads = 1, tokens = 0;
  SmallVector<Sequence> sequences;
  std::map<std::string, Entry> entries;
  std::vector<double> positions; // of the first token of each sequence
  Outcome outcome;
};

} // namespace

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// A parameter may be columns of the call's.
static StringRef nameInCall(ArgumentAttr argument) {
  return argument.getEntry() ? argument.getEntry().getValue() : argument.getName().getValue();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

LogicalResult KernelExecution::bindArguments() {
  int64_t batch = 0;
  for (BlockArgument argument : kernel.getBlock()->getArguments()) {
    ArgumentAttr description = describe(argument);
    bool isInput = description.getKind() == ArgumentKind::Input;
    bool isCheckpoint = description.getKind() == ArgumentKind::Checkpoint;
    if (!isInput && !isCheckpoint && description.getKind() != ArgumentKind::Parameter)
      continue;
    StringRef name = nameInCall(description);
    auto found = call.arguments.find(name.str());
    if (found == call.arguments.end())
      return kernel.emitError() << "the argument '" << name << "' is missing";
    SmallVector<int64_t> whole(typeOf(argument).getShape());
    if (description.getEntry())
      whole.back() = description.getColumns();
    ArrayRef<int64_t> shape = found->second.shape, own = whole;
    size_t leading = isInput ? 3 : isCheckpoint ? 2 : 1;
    if (isInput)
      own = own.drop_front();
    if (shape.size() != leading + own.size() || shape.drop_front(leading) != own)
      return kernel.emitError() << "the argument '" << name << "' does not have the shape of " << argument.getType();
    if (isInput) {
      batch = shape[0];
      tokens = shape[1];
    }
    if (description.getGroup() != allHeadsGroup)
      heads = std::max(heads, shape[leading - 1] * description.getGroup());
  }
  if (!call.sequenceOffsets) {
    for (int64_t index = 0; index < batch; ++index)
      sequences.push_back({index, index * tokens, tokens});
  } else {
    ArrayRef<int64_t> offsets = *call.sequenceOffsets;
    for (size_t index = 0; index + 1 < offsets.size(); ++index)
      sequences.push_back({static_cast<int64_t>(index), offsets[index], offsets[index + 1] - offsets[index]});
  }
  for (auto output : kernel.getOutputs().getAsRange<OutputAttr>()) {
    Array &result = outcome.results.emplace_back();
    if (output.getCheckpoint()) {
      int64_t last = sequences.empty() ? 0 : sequences.back().first + sequences.back().length;
      result.shape = {last / static_cast<int64_t>(kernel.getChunk()) + static_cast<int64_t>(sequences.size()),
                      std::max<int64_t>(heads / output.getGroup(), 1)};
      llvm::append_range(result.shape, output.getType().getShape());
    } else {
      result.shape = {batch, tokens, heads};
      llvm::append_range(result.shape, output.getType().getShape().drop_front());
    }
    int64_t size = 1;
    for (int64_t length : result.shape)
      size *= length;
    result.values.resize(size);
  }
  return success();
}

LogicalResult KernelExecution::bindStates() {
  auto yield = cast<YieldOp>(kernel.getBlock()->getTerminator());
  int64_t count = sequences.size();
  for (auto [argument, next] : llvm::zip_equal(kernel.argumentsOf(ArgumentKind::State), yield.getStates())) {
    ArgumentAttr description = describe(argument);
    std::string name = description.getEntry().str();
    if (entries.count(name))
      continue;
    bool isTail = next.getDefiningOp<TailOp>() != nullptr;
    int64_t entryHeads = std::max<int64_t>(heads / description.getGroup(), 1);
    int64_t rows = description.getRows() ? description.getRows() : typeOf(argument).getDimSize(0);
    Entry &entry = entries[name];
    entry.isTail = isTail;
    entry.values.shape = isTail ? SmallVector<int64_t, 4>{count, rows, entryHeads, description.getColumns()}
                                : SmallVector<int64_t, 4>{count, entryHeads, rows, description.getColumns()};
    size_t size = count * entryHeads * rows * description.getColumns();
    entry.values.values.resize(size, description.getLowest() ? -HUGE_VAL : 0);
    auto initial = call.initialState.find(name);
    if (initial == call.initialState.end())
      continue;
    if (initial->second.values.size() != size)
      return kernel.emitError() << "the initial state '" << name << "' holds " << initial->second.values.size()
                                << " numbers, expected " << size;
    entry.values.values = initial->second.values.vec();
  }
  positions.assign(count, 0);
  if (auto position = call.initialState.find("position"); position != call.initialState.end())
    positions = position->second.values.vec();
  return success();
}

Tile KernelExecution::loadRows(BlockArgument argument, ArrayRef<int64_t> shape, Sequence sequence, int64_t head,
                               int64_t start, int64_t valid) {
  const ArrayView &view = call.arguments.at(describe(argument).getName().str());
  int64_t own = view.shape[2], ownHead = head / describe(argument).getGroup();
  Tile tile(shape);
  for (int64_t i = std::clamp<int64_t>(-start, 0, valid); i < valid; ++i)
    for (int64_t j = 0; j < tile.columns(); ++j)
      tile.at(i, j) = view.values[((sequence.first + start + i) * own + ownHead) * tile.columns() + j];
  return tile;
}

void KernelExecution::loadWindow(BlockArgument argument, Tile &tile, int64_t sequence, int64_t head, int64_t start) {
  for (BlockArgument window : kernel.argumentsOf(ArgumentKind::Window)) {
    auto given = call.initialState.find(describe(window).getName().str());
    if (describe(window).getEntry() != describe(argument).getName() || given == call.initialState.end())
      continue;
    int64_t rows = typeOf(window).getDimSize(0), own = given->second.shape[2];
    int64_t ownHead = head / describe(argument).getGroup(), position = static_cast<int64_t>(positions[sequence]);
    for (int64_t i = std::max<int64_t>(0, -start - std::min(rows, position)); i < std::min(tile.rows(), -start); ++i) {
      int64_t row = sequence * rows + (position + start + i) % rows;
      for (int64_t j = 0; j < tile.columns(); ++j)
        tile.at(i, j) = given->second.values[(row * own + ownHead) * tile.columns() + j];
    }
  }
}

Tile KernelExecution::loadParameter(BlockArgument argument, int64_t head) {
  ArgumentAttr description = describe(argument);
  const ArrayView &view = call.arguments.at(nameInCall(description).str());
  Tile tile(typeOf(argument).getShape());
  int64_t ownHead = head / description.getGroup();
  if (description.getEntry()) {
    for (int64_t i = 0; i < tile.rows(); ++i)
      for (int64_t j = 0; j < tile.columns(); ++j)
        tile.at(i, j) =
            view.values[(ownHead * tile.rows() + i) * description.getColumns() + description.getColumn() + j];
    return tile;
  }
  llvm::copy(view.values.slice(ownHead * tile.values.size(), tile.values.size()), tile.values.begin());
  return tile;
}

Tile KernelExecution::loadCheckpoint(BlockArgument argument, Sequence sequence, int64_t head, int64_t start) {
  const ArrayView &view = call.arguments.at(describe(argument).getName().str());
  Tile tile(typeOf(argument).getShape());
  int64_t ownHead = head / describe(argument).getGroup();
  int64_t number = checkpointAt(sequence, start) * view.shape[1] + ownHead;
  llvm::copy(view.values.slice(number * tile.values.size(), tile.values.size()), tile.values.begin());
  return tile;
}

FailureOr<Tile> KernelExecution::loadTable(BlockArgument argument, ArrayRef<int64_t> shape, Sequence sequence,
                                           int64_t head, int64_t start, int64_t valid) {
  auto table = SymbolTable::lookupNearestSymbolFrom<TableOp>(kernel, describe(argument).getName());
  int64_t group = describe(argument).getGroup(), own = head / group;
  auto ownHead = static_cast<double>(own);
  bool varies = table.getPeriod() || table.getVarying();
  Tile tile(shape);
  for (int64_t i = 0; i < (varies ? valid : tile.rows()); ++i)
    for (int64_t j = 0; j < tile.columns(); ++j) {
      double position = varies ? std::max(positions[sequence.index] + static_cast<double>(start + i), 0.0) : 0;
      FailureOr<double> number = evaluateTable(table, position, ownHead, static_cast<double>(varies ? j : i));
      if (failed(number))
        return failure();
      tile.at(i, j) = *number;
    }
  return tile;
}

FailureOr<Tile> KernelExecution::load(BlockArgument argument, Type type, Sequence sequence, int64_t head, int64_t start,
                                      int64_t valid) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape();
  switch (describe(argument).getKind()) {
  case ArgumentKind::Input: {
    Tile tile = loadRows(argument, shape, sequence, head, start, valid);
    loadWindow(argument, tile, sequence.index, head, start);
    return tile;
  }
  case ArgumentKind::Parameter:
    return loadParameter(argument, head);
  case ArgumentKind::Table:
    return loadTable(argument, shape, sequence, head, start, valid);
  case ArgumentKind::Checkpoint:
    return loadCheckpoint(argument, sequence, head, start);
  default:
    return Tile();
  }
}

//===----------------------------------------------------------------------===//
// The fold over chunks
//===----------------------------------------------------------------------===//

LogicalResult KernelExecution::runChunk(Sequence sequence, int64_t head, int64_t start, SmallVectorImpl<Tile> &states) {
  int64_t valid = std::min<int64_t>(kernel.getChunk(), sequence.length - start);
  TileMap tiles;
  auto *state = states.begin();
  for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back()) {
    if (describe(argument).getKind() == ArgumentKind::State) {
      tiles[argument] = std::move(*state++);
      continue;
    }
    FailureOr<Tile> tile = load(argument, argument.getType(), sequence, head, start, valid);
    if (failed(tile))
      return failure();
    tiles[argument] = std::move(*tile);
  }
  for (Operation &op : kernel.getBlock()->without_terminator()) {
    if (auto lookback = dyn_cast<LookbackOp>(op)) {
      if (failed(runLookback(lookback, tiles, sequence, head, start, valid)))
        return failure();
      continue;
    }
    if (failed(runOnTiles(op, tiles, valid)))
      return failure();
  }
  auto yield = cast<YieldOp>(kernel.getBlock()->getTerminator());
  for (auto [result, output, description] :
       llvm::zip_equal(outcome.results, yield.getOutputs(), kernel.getOutputs().getAsRange<OutputAttr>())) {
    const Tile &tile = tiles[output];
    if (description.getCheckpoint()) {
      int64_t number = checkpointAt(sequence, start) * result.shape[1] + head / description.getGroup();
      llvm::copy(tile.values, result.values.begin() + number * tile.values.size());
      continue;
    }
    for (int64_t i = 0; i < valid; ++i)
      for (int64_t j = 0; j < tile.columns(); ++j)
        result.values[((sequence.first + start + i) * heads + head) * tile.columns() + j] = tile.at(i, j);
  }
  for (auto [index, next] : llvm::enumerate(yield.getStates()))
    states[index] = tiles[next];
  return success();
}

LogicalResult KernelExecution::runOnTiles(Operation &op, TileMap &tiles, int64_t valid) {
  if (auto conv = dyn_cast<ConvBackOp>(op)) {
    std::tie(tiles[conv.getResult()], tiles[conv.getNext()]) = executeConvBack(conv, tiles, valid);
    return success();
  }
  if (auto totals = dyn_cast<DecayTotalsOp>(op)) {
    std::tie(tiles[totals.getOfQueries()], tiles[totals.getOfKeys()]) = executeDecayTotals(totals, tiles);
    return success();
  }
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return runLoop(loop, tiles, valid);
  if (auto choice = dyn_cast<scf::IfOp>(op))
    return runChoice(choice, tiles, valid);
  if (op.getNumResults() != 1)
    return op.emitError() << "the interpreter of the chunk level does not know this operation";
  FailureOr<Tile> tile = executeTile(&op, tiles, valid);
  if (failed(tile))
    return failure();
  tiles[op.getResult(0)] = std::move(*tile);
  return success();
}

LogicalResult KernelExecution::runBlock(Block &block, TileMap &tiles, int64_t valid, SmallVectorImpl<Tile> &yielded) {
  for (Operation &op : block.without_terminator())
    if (failed(runOnTiles(op, tiles, valid)))
      return failure();
  yielded.clear();
  for (Value value : block.getTerminator()->getOperands())
    yielded.push_back(tiles[value]);
  return success();
}

LogicalResult KernelExecution::runChoice(scf::IfOp choice, TileMap &tiles, int64_t valid) {
  Block *chosen = tiles[choice.getCondition()].values[0] != 0 ? choice.thenBlock() : choice.elseBlock();
  SmallVector<Tile> yielded;
  if (chosen && failed(runBlock(*chosen, tiles, valid, yielded)))
    return failure();
  for (auto [result, tile] : llvm::zip_equal(choice.getResults(), yielded))
    tiles[result] = std::move(tile);
  return success();
}

LogicalResult KernelExecution::runLoop(scf::ForOp loop, TileMap &tiles, int64_t valid) {
  auto bound = [&](Value index) { return static_cast<int64_t>(tiles[index].values[0]); };
  int64_t end = bound(loop.getUpperBound()), step = bound(loop.getStep());
  if (step < 1)
    return loop.emitOpError("has a step of ") << step << ", expected 1 or more";
  SmallVector<Tile> carried = llvm::map_to_vector(loop.getInitArgs(), [&](Value value) { return tiles[value]; });
  for (int64_t index = bound(loop.getLowerBound()); index < end; index += step) {
    tiles[loop.getInductionVar()] = Tile({}, static_cast<double>(index));
    for (auto [argument, tile] : llvm::zip_equal(loop.getRegionIterArgs(), carried))
      tiles[argument] = std::move(tile);
    if (failed(runBlock(*loop.getBody(), tiles, valid, carried)))
      return failure();
  }
  for (auto [result, tile] : llvm::zip_equal(loop.getResults(), carried))
    tiles[result] = std::move(tile);
  return success();
}

/// The first token that windows hold.
int64_t KernelExecution::firstPast(int64_t sequence) {
  int64_t rows = 0;
  for (BlockArgument window : kernel.argumentsOf(ArgumentKind::Window))
    if (call.initialState.count(describe(window).getName().str()))
      rows = std::min(typeOf(window).getDimSize(0), static_cast<int64_t>(positions[sequence]));
  return -rows;
}

LogicalResult KernelExecution::runLookback(LookbackOp op, TileMap &tiles, Sequence sequence, int64_t head,
                                           int64_t start, int64_t valid) {
  LookbackFold fold(op);
  ContributeOp contribution = op.getContribution();
  // The range of a token of a chunk, as tokens of the sequence.
  auto holds = [&](Value first, Value last, int64_t index, int64_t token) {
    auto tokenAt = [&](Value bound) { return tiles[bound].at(index, 0) - positions[sequence.index]; };
    bool exists = static_cast<double>(token) + positions[sequence.index] >= 0;
    bool isHandedOn = op.getAhead() && op.getFold() == Fold::Outer && token == 0;
    return exists && static_cast<double>(token) >= tokenAt(first) &&
           (!last || static_cast<double>(token) <= tokenAt(last) || (isHandedOn && tokenAt(last) < 0));
  };
  auto isInRange = [&](int64_t i, int64_t past, int64_t j) {
    int64_t token = start + i, other = past + j;
    if (op.getAhead())
      return (op.getToEnd() || token <= other) && holds(contribution.getFirst(), contribution.getLast(), j, token);
    return (op.getToEnd() || other <= token) && holds(op.getFirst(), op.getLast(), i, other);
  };
  int64_t begin = op.getToEnd() || !op.getAhead() ? firstPast(sequence.index) : start;
  int64_t end = op.getToEnd() || op.getAhead() ? sequence.length : start + valid;
  for (int64_t past = begin; past < end; past += op.getPastTokens()) {
    int64_t existing = std::min<int64_t>(op.getPastTokens(), sequence.length - past);
    for (auto [argument, source] : llvm::zip_equal(op.getBlock()->getArguments(), op.getPast())) {
      FailureOr<Tile> tile = load(cast<BlockArgument>(source), argument.getType(), sequence, head, past, existing);
      if (failed(tile))
        return failure();
      tiles[argument] = std::move(*tile);
    }
    for (Operation &inner : op.getBlock()->without_terminator()) {
      FailureOr<Tile> tile = executeTile(&inner, tiles, valid);
      if (failed(tile))
        return failure();
      tiles[inner.getResult(0)] = std::move(*tile);
    }
    SmallVector<const Tile *> given;
    for (Value operand : contribution.getGiven())
      given.push_back(&tiles[operand]);
    for (int64_t j = 0; j < existing; ++j) {
      bool isInAny = false;
      for (int64_t i = 0; i < valid; ++i)
        if (isInRange(i, past, j)) {
          isInAny = true;
          fold.addPair(given, i, j);
        }
      if (isInAny)
        fold.addRow(given, j);
    }
  }
  for (auto [result, tile] : llvm::zip_equal(op.getResults(), fold.finish()))
    tiles[result] = std::move(tile);
  return success();
}

LogicalResult KernelExecution::runHead(Sequence sequence, int64_t head) {
  SmallVector<BlockArgument> arguments = kernel.argumentsOf(ArgumentKind::State);
  SmallVector<Tile> states;
  auto forEachNumber = [&](auto visit) {
    for (auto [argument, state] : llvm::zip_equal(arguments, states)) {
      ArgumentAttr description = describe(argument);
      Entry &entry = entries.at(description.getEntry().str());
      for (int64_t i = 0; i < state.rows(); ++i)
        for (int64_t j = 0; j < state.columns(); ++j)
          visit(description, state.at(i, j),
                entry.row(sequence.index, head / description.getGroup(),
                          description.getRow() + i)[description.getColumn() + j]);
    }
  };
  for (BlockArgument argument : arguments)
    states.emplace_back(typeOf(argument).getShape());
  // Every head of a group begins with the same state, which the last of them replaces.
  forEachNumber([&](ArgumentAttr, double &tile, double &entry) { tile = entry; });
  int64_t chunk = kernel.getChunk(), last = (sequence.length - 1) / chunk * chunk;
  for (int64_t met = 0; met < sequence.length; met += chunk)
    if (failed(runChunk(sequence, head, kernel.getReverse() ? last - met : met, states)))
      return failure();
  forEachNumber([&](ArgumentAttr description, double &tile, double &entry) {
    if ((head + 1) % description.getGroup() == 0 || head + 1 == heads)
      entry = tile;
  });
  return success();
}

FailureOr<Outcome> KernelExecution::run() {
  if (kernel.getSlices() != 1)
    return kernel.emitError() << "the interpreter of the chunk level executes whole kernels, not one of "
                              << kernel.getSlices() << " slices";
  if (failed(bindArguments()) || failed(bindStates()))
    return failure();
  for (Sequence sequence : sequences)
    for (int64_t head = 0; head < heads; ++head)
      if (failed(runHead(sequence, head)))
        return failure();
  for (auto &[name, entry] : entries)
    outcome.finalState.emplace_back(name, std::move(entry.values));
  return std::move(outcome);
}

FailureOr<Outcome> interpret(KernelOp kernel, const Call &call) { return KernelExecution(kernel, call).run(); }

} // namespace stretto::chunk
