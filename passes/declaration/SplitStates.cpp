//===- SplitStates.cpp - Divides states whose columns never meet ----------===//

#include "dialect/stretto/Sizes.h"
#include "dialect/stretto/StateChain.h"
#include "mlir/IR/PatternMatch.h"
#include "passes/Passes.h"
#include "llvm/ADT/StringSet.h"
#include <utility>

namespace stretto {
#define GEN_PASS_DEF_SPLITSTATES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// What of a state is divided: its rows, along its first axis, or its columns.
enum class Side { Rows, Columns };

/// Consecutive columns of a state, or rows.
struct Part {
  int64_t from, size;
  Type row;                     // along the axis that is divided: a number where there is one
  SmallVector<unsigned> pieces; // of what is written, by position
  bool operator==(const Part &) const = default;
};

/// The parts of a state.
struct Division {
  SmallVector<Part> parts;

  bool agreesWith(const Division &other) const {
    return llvm::equal(parts, other.parts, [](const Part &a, const Part &b) { return a.size == b.size; });
  }
  /// The part that has so much; the number of parts where none has all of it.
  size_t partWith(int64_t from, int64_t size) const {
    return llvm::find_if(parts,
                         [&](const Part &part) { return part.from <= from && from + size <= part.from + part.size; }) -
           parts.begin();
  }
};

struct SplitStatesPass : stretto::impl::SplitStatesBase<SplitStatesPass> {
  using SplitStatesBase::SplitStatesBase;

  void runOnOperation() override;

private:
  void sliceBeforeSums();
  LogicalResult split();
  void findDivisions(const Sizes &sizes);
  std::optional<SmallVector<Part>> partsOfRow(Value row, StateType type);
  std::optional<SmallVector<Part>> partsOfWrites(const StateChain &chain);
  std::optional<Division> findDivision(const StateChain &chain, const Sizes &sizes);
  Value pieceOf(Value row, const Part &part, OpBuilder &builder);
  void splitSteps(const StateChain &chain, const Division &division);
  void splitReads(const StateChain &chain, const Division &division, const Sizes &sizes);
  void splitPair(PairOp pair);
  std::string partName(StateOp root, const Part &part);

  /// The axis that is divided.
  StringRef axisDivided(StateType type) const { return side == Side::Rows ? type.getFirst() : type.getSecond(); }

  Side side = Side::Columns;
  SmallVector<StateChain> chains;
  llvm::DenseMap<Operation *, Division> divisions; // of roots
  /// The value of each part that stands for a value of the whole.
  llvm::DenseMap<Value, SmallVector<Value>> partsOf;
  llvm::StringSet<> names;
};

} // namespace

static int64_t sizeOf(Type row) {
  auto type = cast<RankedTensorType>(row);
  return type.getRank() ? type.getDimSize(0) : 1;
}

/// Rows are divided before a wide piece that would begin in the middle of a fragment, and nowhere else.
static bool staysTogether(const Part &before, int64_t from, int64_t size) {
  constexpr int64_t fragment = 16, wide = 64;
  return size < wide || (from - before.from) % fragment == 0;
}

/// The parts that a row is put together from.
std::optional<SmallVector<Part>> SplitStatesPass::partsOfRow(Value row, StateType type) {
  auto concat = row.getDefiningOp<ConcatOp>();
  if (!concat)
    return std::nullopt;
  SmallVector<Part> parts;
  int64_t from = 0;
  for (auto [index, piece] : llvm::enumerate(concat.getOperands())) {
    auto own = withHeads(cast<RankedTensorType>(piece.getType()), type.getHeads());
    if (!own.hasStaticShape())
      return std::nullopt;
    int64_t size = sizeOf(own);
    if (side == Side::Rows && !parts.empty() && staysTogether(parts.back(), from, size)) {
      Part &part = parts.back();
      part.size += size;
      part.pieces.push_back(index);
      std::string axis = (widthOf(part.row) + widthOf(own)).str();
      part.row =
          RankedTensorType::get({part.size}, own.getElementType(), RowAttr::get(&getContext(), axis, type.getHeads()));
    } else {
      parts.push_back({from, size, own, {static_cast<unsigned>(index)}});
    }
    from += size;
  }
  return parts;
}

/// The parts that the rows of every write are put together from.
std::optional<SmallVector<Part>> SplitStatesPass::partsOfWrites(const StateChain &chain) {
  StateType type = chain.getRoot().getType();
  std::optional<SmallVector<Part>> parts;
  for (Operation *step : chain.steps) {
    if (auto decay = dyn_cast<DecayOp>(step)) {
      if (decay.getAlong() && *decay.getAlong() == axisDivided(type))
        return std::nullopt;
      continue;
    }
    auto write = cast<WriteOp>(step);
    Value row = side == Side::Rows ? write.getFirst() : write.getSecond();
    std::optional<SmallVector<Part>> written = partsOfRow(row, type);
    if (!written || (parts && *parts != *written))
      return std::nullopt;
    parts = written;
  }
  return parts;
}

/// Where a slice begins.
static std::optional<int64_t> offsetOf(SliceOp slice, const Sizes &sizes) {
  llvm::Expected<std::optional<int64_t>> offset = sizes.extent(extentOf(slice.getOffset()));
  if (offset)
    return *offset;
  llvm::consumeError(offset.takeError());
  return std::nullopt;
}

/// How the chain can be divided: every read along the other axis takes its row apart into parts of the writes, or into
/// less; others have a row that is put together from such parts, of whose reads they are the sum.
std::optional<Division> SplitStatesPass::findDivision(const StateChain &chain, const Sizes &sizes) {
  StateType type = chain.getRoot().getType();
  std::optional<SmallVector<Part>> parts = partsOfWrites(chain);
  if (!parts || parts->size() == 1)
    return std::nullopt;
  Division division{*parts};
  for (ReadOp read : chain.reads()) {
    if (read.getAlong() == axisDivided(type)) {
      if (partsOfRow(read.getRow(), type) != parts)
        return std::nullopt;
      continue;
    }
    for (Operation *user : read->getUsers()) {
      auto slice = dyn_cast<SliceOp>(user);
      std::optional<int64_t> offset = slice ? offsetOf(slice, sizes) : std::nullopt;
      auto width = slice ? cast<RankedTensorType>(slice.getType()) : RankedTensorType();
      if (!offset || !width.hasStaticShape() || division.partWith(*offset, sizeOf(width)) == parts->size())
        return std::nullopt;
    }
  }
  return division;
}

/// What of a row that is put together a part has.
Value SplitStatesPass::pieceOf(Value row, const Part &part, OpBuilder &builder) {
  auto concat = row.getDefiningOp<ConcatOp>();
  if (part.pieces.size() == 1)
    return concat.getOperands()[part.pieces.front()];
  SmallVector<Value> pieces =
      llvm::map_to_vector(part.pieces, [&](unsigned piece) { return concat.getOperands()[piece]; });
  return ConcatOp::create(builder, concat.getLoc(),
                          withHeads(cast<RankedTensorType>(part.row), headsOf(concat.getType())), pieces);
}

/// The first part keeps the state's name, others add their first column, or row, to it.
std::string SplitStatesPass::partName(StateOp root, const Part &part) {
  std::string name = root.getName().str();
  if (part.from == 0)
    return name;
  name += "." + std::to_string(part.from);
  while (!names.insert(name).second)
    name += "_";
  return name;
}

/// Whether a row is put together from a few reads, and nothing else, by sums. Of sums of sums that are the same the
/// slices would be as many as there are ways to the reads.
static bool isSumOfReads(Value row) {
  constexpr int64_t mostOperations = 64;
  SmallVector<Value> pending = {row};
  for (int64_t seen = 0; !pending.empty(); ++seen) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (seen == mostOperations || !isa_and_nonnull<ReadOp, GroupSumOp, arith::AddFOp>(op))
      return false;
    if (!isa<ReadOp>(op))
      llvm::append_range(pending, op->getOperands());
  }
  return true;
}

/// A slice of a sum, be it over heads, is the sum of slices: so a read that is summed is taken apart where it is made.
void SplitStatesPass::sliceBeforeSums() {
  SmallVector<SliceOp> slices(getOperation().getBlock()->getOps<SliceOp>());
  while (!slices.empty()) {
    SliceOp slice = slices.pop_back_val();
    Operation *sum = slice.getOperand().getDefiningOp();
    if (!isa_and_nonnull<GroupSumOp>(sum) && (!isa_and_nonnull<arith::AddFOp>(sum) || !isSumOfReads(sum->getResult(0))))
      continue;
    OpBuilder builder(slice);
    SmallVector<Value> pieces;
    for (Value operand : sum->getOperands()) {
      Type type = withHeads(slice.getType(), headsOf(operand.getType()));
      slices.push_back(SliceOp::create(builder, slice.getLoc(), type, operand, slice.getOffset()));
      pieces.push_back(slices.back());
    }
    Value whole = isa<GroupSumOp>(sum)
                      ? GroupSumOp::create(builder, sum->getLoc(), slice.getType(), pieces.front()).getResult()
                      : arith::AddFOp::create(builder, sum->getLoc(), pieces[0], pieces[1]).getResult();
    slice.replaceAllUsesWith(whole);
    slice.erase();
    if (sum->use_empty())
      sum->erase();
  }
}

void SplitStatesPass::findDivisions(const Sizes &sizes) {
  for (const StateChain &chain : chains)
    if (std::optional<Division> division = findDivision(chain, sizes))
      divisions[chain.getRoot()] = std::move(*division);
  // The two states of a pair are divided alike, or neither is. What a state is refused for, others may be as well.
  llvm::DenseMap<Value, Operation *> rootOf;
  for (const StateChain &chain : chains) {
    rootOf[chain.getRoot()] = chain.getRoot();
    for (Operation *step : chain.steps)
      rootOf[step->getResult(0)] = chain.getRoot();
  }
  for (bool changed = true; std::exchange(changed, false);)
    for (auto pair : getOperation().getOps<PairOp>()) {
      auto state = divisions.find(rootOf[pair.getState()]), cotangent = divisions.find(rootOf[pair.getCotangent()]);
      bool hasState = state != divisions.end(), hasCotangent = cotangent != divisions.end();
      bool isOfDivided = pair.getAlong() == axisDivided(cast<StateType>(pair.getState().getType()));
      if (hasState && hasCotangent && !isOfDivided && state->second.agreesWith(cotangent->second))
        continue;
      for (Value value : {pair.getState(), pair.getCotangent()})
        changed |= divisions.erase(rootOf[value]);
    }
}

void SplitStatesPass::splitSteps(const StateChain &chain, const Division &division) {
  StateOp root = chain.getRoot();
  StateType type = root.getType();
  StringRef entry = root.getEntry().value_or(root.getName());
  int64_t columns = root.getEntry() ? root.getColumns() : type.getSecondSize(), column = root.getColumn();
  int64_t rows = root.getRows(), row = root.getRow();
  if (side == Side::Rows && rows == 0)
    rows = type.getFirstSize();
  OpBuilder builder(root);
  for (const Part &part : division.parts) {
    StringRef axis = axisOf(part.row).empty() ? "1" : axisOf(part.row);
    bool ofRows = side == Side::Rows;
    auto partType = StateType::get(&getContext(), ofRows ? axis : type.getFirst(), ofRows ? type.getSecond() : axis,
                                   type.getHeads(), ofRows ? part.size : type.getFirstSize(),
                                   ofRows ? type.getSecondSize() : part.size, type.getReverse());
    partsOf[root.getResult()].push_back(StateOp::create(
        builder, root.getLoc(), partType, builder.getStringAttr(partName(root, part)), builder.getStringAttr(entry),
        ofRows ? column : column + part.from, columns, ofRows ? row + part.from : row, rows));
  }
  for (Operation *step : chain.steps) {
    builder.setInsertionPoint(step);
    SmallVector<Value> after;
    for (auto [part, state] : llvm::zip_equal(division.parts, partsOf.lookup(step->getOperand(0)))) {
      if (auto decay = dyn_cast<DecayOp>(step)) {
        after.push_back(DecayOp::create(builder, step->getLoc(), state.getType(), state, decay.getFormAttr(),
                                        decay.getAmount(), decay.getAlongAttr()));
        continue;
      }
      auto write = cast<WriteOp>(step);
      Value first = write.getFirst(), second = write.getSecond();
      Value &divided = side == Side::Rows ? first : second;
      divided = pieceOf(divided, part, builder);
      after.push_back(WriteOp::create(builder, step->getLoc(), state.getType(), state, first, second, write.getAt()));
    }
    partsOf[step->getResult(0)] = after;
  }
}

void SplitStatesPass::splitReads(const StateChain &chain, const Division &division, const Sizes &sizes) {
  for (ReadOp read : chain.reads()) {
    SmallVector<Value> states = partsOf.lookup(read.getState());
    OpBuilder builder(read);
    auto readPart = [&](Type type, size_t part, Value row, StringRef along) {
      return ReadOp::create(builder, read.getLoc(), type, states[part], row, builder.getStringAttr(along),
                            read.getAt());
    };
    if (read.getAlong() != axisDivided(chain.getRoot().getType())) {
      for (Operation *user : llvm::make_early_inc_range(read->getUsers())) {
        auto slice = cast<SliceOp>(user);
        size_t number = division.partWith(*offsetOf(slice, sizes), sizeOf(slice.getType()));
        RankedTensorType type = withHeads(cast<RankedTensorType>(division.parts[number].row), headsOf(read.getType()));
        Value whole = readPart(type, number, read.getRow(), read.getAlong());
        if (type != slice.getType()) {
          Extent before = extentOf(slice.getOffset());
          for (const Part &part : ArrayRef(division.parts).take_front(number))
            before = before - widthOf(part.row);
          whole = SliceOp::create(builder, slice.getLoc(), slice.getType(), whole, before.str());
        }
        slice.replaceAllUsesWith(whole);
        slice.erase();
      }
    } else {
      Value sum;
      for (auto [number, part] : llvm::enumerate(division.parts)) {
        StringRef along = axisDivided(cast<StateType>(states[number].getType()));
        Value product = readPart(read.getType(), number, pieceOf(read.getRow(), part, builder), along);
        sum = sum ? arith::AddFOp::create(builder, read.getLoc(), sum, product).getResult() : product;
      }
      read.replaceAllUsesWith(sum);
    }
    read.erase();
  }
}

void SplitStatesPass::splitPair(PairOp pair) {
  OpBuilder builder(pair);
  Value sum;
  for (auto [state, cotangent] : llvm::zip_equal(partsOf[pair.getState()], partsOf[pair.getCotangent()])) {
    Value part = PairOp::create(builder, pair.getLoc(), pair.getType(), state, cotangent, pair.getAlongAttr());
    sum = sum ? arith::AddFOp::create(builder, pair.getLoc(), sum, part).getResult() : part;
  }
  pair.replaceAllUsesWith(sum);
  pair.erase();
}

LogicalResult SplitStatesPass::split() {
  FailureOr<Sizes> sizes = Sizes::get(getOperation(), {});
  if (failed(sizes))
    return failure();
  sliceBeforeSums();
  chains = stateChains(getOperation());
  for (const StateChain &chain : chains)
    names.insert(chain.getRoot().getName());
  findDivisions(*sizes);
  llvm::erase_if(chains, [&](const StateChain &chain) { return !divisions.contains(chain.getRoot()); });
  for (const StateChain &chain : chains) {
    splitSteps(chain, divisions[chain.getRoot()]);
    splitReads(chain, divisions[chain.getRoot()], *sizes);
  }
  for (auto pair : llvm::make_early_inc_range(getOperation().getOps<PairOp>()))
    if (partsOf.contains(pair.getState()))
      splitPair(pair);
  for (StateChain &chain : chains) {
    for (Operation *step : llvm::reverse(chain.steps))
      step->erase();
    chain.getRoot().erase();
  }
  chains.clear();
  divisions.clear();
  partsOf.clear();
  names.clear();
  return success();
}

void SplitStatesPass::runOnOperation() {
  for (Side each : {Side::Columns, Side::Rows}) {
    side = each;
    if (each == Side::Rows && !rows)
      continue;
    if (failed(split()))
      return signalPassFailure();
  }
}
