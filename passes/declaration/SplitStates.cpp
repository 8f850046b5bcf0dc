//===- SplitStates.cpp - Divides states whose columns never meet ----------===//

#include "dialect/stretto/Sizes.h"
#include "dialect/stretto/StateChain.h"
#include "mlir/IR/PatternMatch.h"
#include "passes/Passes.h"
#include "llvm/ADT/StringSet.h"

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
};

struct SplitStatesPass : stretto::impl::SplitStatesBase<SplitStatesPass> {
  void runOnOperation() override;

private:
  void split(const StateChain &chain, const Division &division);
  std::string partName(StateOp root, const Part &part);
  llvm::StringSet<> names;
};

} // namespace

static int64_t sizeOf(Type row) {
  auto type = cast<RankedTensorType>(row);
  return type.getRank() ? type.getDimSize(0) : 1;
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
    auto concat = write.getSecond().getDefiningOp<ConcatOp>();
    if (!concat || write.getAt())
      return std::nullopt;
    SmallVector<Part> written;
    int64_t from = 0;
    for (Value piece : concat.getOperands()) {
      auto row = cast<RankedTensorType>(piece.getType());
      if (!row.hasStaticShape())
        return std::nullopt;
      written.push_back({from, sizeOf(row), withHeads(row, type.getHeads())});
      from += sizeOf(row);
    }
    if (parts && *parts != written)
      return std::nullopt;
    parts = written;
  }
  return parts;
}

/// How the chain's columns can be divided: every read takes its row apart into parts of the writes.
static std::optional<Division> findDivision(const StateChain &chain, const Sizes &sizes) {
  StateType type = chain.getRoot().getType();
  std::optional<SmallVector<Part>> parts = partsOfWrites(chain);
  if (!parts || parts->size() == 1)
    return std::nullopt;
  Division division;
  division.parts = *parts;
  for (ReadOp read : chain.reads()) {
    // A read of an earlier token meets whole rows that were written since.
    if (read.getAlong() != type.getFirst() || read.getAt())
      return std::nullopt;
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

void SplitStatesPass::split(const StateChain &chain, const Division &division) {
  StateOp root = chain.getRoot();
  StateType type = root.getType();
  StringRef entry = root.getEntry().value_or(root.getName());
  int64_t columns = root.getEntry() ? root.getColumns() : type.getSecondSize();
  // The value of each part that stands for a value of the whole.
  llvm::DenseMap<Value, SmallVector<Value>> partsOf;
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
      after.push_back(WriteOp::create(builder, step->getLoc(), state.getType(), state, write.getFirst(), piece,
                                      /*at=*/Value()));
    }
    partsOf[step->getResult(0)] = after;
  }
  for (ReadOp read : chain.reads()) {
    SmallVector<Value> states = partsOf.lookup(read.getState());
    for (Operation *user : llvm::make_early_inc_range(read->getUsers())) {
      auto slice = cast<SliceOp>(user);
      builder.setInsertionPoint(read);
      auto part = ReadOp::create(builder, read.getLoc(), slice.getType(), states[division.partOf.lookup(slice)],
                                 read.getRow(), read.getAlongAttr(), read.getAt());
      slice.replaceAllUsesWith(part.getResult());
      slice.erase();
    }
    read.erase();
  }
  for (Operation *step : llvm::reverse(chain.steps))
    step->erase();
  root.erase();
  ++numSplit;
}

void SplitStatesPass::runOnOperation() {
  FailureOr<Sizes> sizes = Sizes::get(getOperation(), {});
  if (failed(sizes))
    return signalPassFailure();
  SmallVector<StateChain> chains = stateChains(getOperation());
  for (const StateChain &chain : chains)
    names.insert(chain.getRoot().getName());
  for (const StateChain &chain : chains)
    if (std::optional<Division> division = findDivision(chain, *sizes))
      split(chain, *division);
  names.clear();
}
