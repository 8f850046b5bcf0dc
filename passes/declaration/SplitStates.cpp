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

/// Consecutive columns of a state.
struct Part {
  int64_t from, size;
  Type row; // of these columns: a number where there is one
  bool operator==(const Part &) const = default;
};

/// The parts of a state, and the one that each slice of a read takes.
struct Division {
  SmallVector<Part> parts;
  llvm::DenseMap<Operation *, size_t> partOf;

  bool agreesWith(const Division &other) const {
    return llvm::equal(parts, other.parts, [](const Part &a, const Part &b) { return a.size == b.size; });
  }
};

struct SplitStatesPass : stretto::impl::SplitStatesBase<SplitStatesPass> {
  void runOnOperation() override;

private:
  void sliceBeforeSums();
  void findDivisions(const Sizes &sizes);
  void splitSteps(const StateChain &chain, const Division &division);
  void splitReads(const StateChain &chain, const Division &division);
  void splitPair(PairOp pair);
  std::string partName(StateOp root, const Part &part);

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

/// The parts that a row is put together from.
static std::optional<SmallVector<Part>> partsOfRow(Value row, StateType type) {
  auto concat = row.getDefiningOp<ConcatOp>();
  if (!concat)
    return std::nullopt;
  SmallVector<Part> parts;
  int64_t from = 0;
  for (Value piece : concat.getOperands()) {
    auto own = cast<RankedTensorType>(piece.getType());
    if (!own.hasStaticShape())
      return std::nullopt;
    parts.push_back({from, sizeOf(own), withHeads(own, type.getHeads())});
    from += sizeOf(own);
  }
  return parts;
}

/// The parts that the rows of every write are put together from.
static std::optional<SmallVector<Part>> partsOfWrites(const StateChain &chain) {
  StateType type = chain.getRoot().getType();
  std::optional<SmallVector<Part>> parts;
  for (Operation *step : chain.steps) {
    if (auto decay = dyn_cast<DecayOp>(step)) {
      if (decay.getAlong() && decay.getAlong() != type.getFirst())
        return std::nullopt;
      continue;
    }
    auto write = cast<WriteOp>(step);
    std::optional<SmallVector<Part>> written = partsOfRow(write.getSecond(), type);
    if (!written || (parts && *parts != *written))
      return std::nullopt;
    parts = written;
  }
  return parts;
}

/// How the chain's columns can be divided: every read takes its row apart into parts of the writes, or has a row that
/// is put together from such parts, of whose reads it is the sum.
static std::optional<Division> findDivision(const StateChain &chain, const Sizes &sizes) {
  StateType type = chain.getRoot().getType();
  std::optional<SmallVector<Part>> parts = partsOfWrites(chain);
  if (!parts || parts->size() == 1)
    return std::nullopt;
  Division division;
  division.parts = *parts;
  for (ReadOp read : chain.reads()) {
    if (read.getAlong() != type.getFirst()) {
      if (partsOfRow(read.getRow(), type) != parts)
        return std::nullopt;
      continue;
    }
    for (Operation *user : read->getUsers()) {
      auto slice = dyn_cast<SliceOp>(user);
      if (!slice)
        return std::nullopt;
      llvm::Expected<std::optional<int64_t>> offset = sizes.extent(extentOf(slice.getOffset()));
      if (!offset || !*offset) {
        llvm::consumeError(offset.takeError());
        return std::nullopt;
      }
      const Part *part = llvm::find_if(division.parts, [&](const Part &part) {
        return part.from == **offset && part.row == withHeads(slice.getType(), type.getHeads());
      });
      if (part == division.parts.end())
        return std::nullopt;
      division.partOf[slice] = part - division.parts.begin();
    }
  }
  return division;
}

/// The first part keeps the state's name, others add their first column to it.
std::string SplitStatesPass::partName(StateOp root, const Part &part) {
  std::string name = root.getName().str();
  if (part.from == 0)
    return name;
  name += "." + std::to_string(part.from);
  while (!names.insert(name).second)
    name += "_";
  return name;
}

/// Whether a row is a read, or put together from reads and nothing else by sums.
static bool isSumOfReads(Value row) {
  Operation *op = row.getDefiningOp();
  if (!op || isa<ReadOp>(op))
    return op;
  return isa<GroupSumOp, arith::AddFOp>(op) && llvm::all_of(op->getOperands(), isSumOfReads);
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
      bool isOfColumns = pair.getAlong() == cast<StateType>(pair.getState().getType()).getSecond();
      if (hasState && hasCotangent && !isOfColumns && state->second.agreesWith(cotangent->second))
        continue;
      for (Value value : {pair.getState(), pair.getCotangent()})
        changed |= divisions.erase(rootOf[value]);
    }
}

void SplitStatesPass::splitSteps(const StateChain &chain, const Division &division) {
  StateOp root = chain.getRoot();
  StateType type = root.getType();
  StringRef entry = root.getEntry().value_or(root.getName());
  int64_t columns = root.getEntry() ? root.getColumns() : type.getSecondSize();
  OpBuilder builder(root);
  for (const Part &part : division.parts) {
    StringRef axis = axisOf(part.row);
    auto partType = StateType::get(&getContext(), type.getFirst(), axis.empty() ? "1" : axis, type.getHeads(),
                                   type.getFirstSize(), part.size, type.getReverse());
    partsOf[root.getResult()].push_back(
        StateOp::create(builder, root.getLoc(), partType, builder.getStringAttr(partName(root, part)),
                        builder.getStringAttr(entry), root.getColumn() + part.from, columns));
  }
  for (Operation *step : chain.steps) {
    builder.setInsertionPoint(step);
    SmallVector<Value> before = partsOf.lookup(step->getOperand(0)), after;
    for (auto [index, state] : llvm::enumerate(before)) {
      if (auto decay = dyn_cast<DecayOp>(step)) {
        after.push_back(DecayOp::create(builder, step->getLoc(), state.getType(), state, decay.getFormAttr(),
                                        decay.getAmount(), decay.getAlongAttr()));
        continue;
      }
      auto write = cast<WriteOp>(step);
      Value piece = write.getSecond().getDefiningOp<ConcatOp>().getOperands()[index];
      after.push_back(
          WriteOp::create(builder, step->getLoc(), state.getType(), state, write.getFirst(), piece, write.getAt()));
    }
    partsOf[step->getResult(0)] = after;
  }
}

void SplitStatesPass::splitReads(const StateChain &chain, const Division &division) {
  for (ReadOp read : chain.reads()) {
    SmallVector<Value> states = partsOf.lookup(read.getState());
    OpBuilder builder(read);
    auto readPart = [&](Type type, size_t part, Value row, StringRef along) {
      return ReadOp::create(builder, read.getLoc(), type, states[part], row, builder.getStringAttr(along),
                            read.getAt());
    };
    if (read.getAlong() == chain.getRoot().getType().getFirst()) {
      for (Operation *user : llvm::make_early_inc_range(read->getUsers())) {
        auto slice = cast<SliceOp>(user);
        slice.replaceAllUsesWith(
            readPart(slice.getType(), division.partOf.lookup(slice), read.getRow(), read.getAlong()).getResult());
        slice.erase();
      }
    } else {
      Value sum;
      for (auto [part, piece] : llvm::enumerate(read.getRow().getDefiningOp<ConcatOp>().getOperands())) {
        StringRef along = cast<StateType>(states[part].getType()).getSecond();
        Value product = readPart(read.getType(), part, piece, along);
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

void SplitStatesPass::runOnOperation() {
  FailureOr<Sizes> sizes = Sizes::get(getOperation(), {});
  if (failed(sizes))
    return signalPassFailure();
  sliceBeforeSums();
  chains = stateChains(getOperation());
  for (const StateChain &chain : chains)
    names.insert(chain.getRoot().getName());
  findDivisions(*sizes);
  llvm::erase_if(chains, [&](const StateChain &chain) { return !divisions.contains(chain.getRoot()); });
  for (const StateChain &chain : chains) {
    splitSteps(chain, divisions[chain.getRoot()]);
    splitReads(chain, divisions[chain.getRoot()]);
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
}
