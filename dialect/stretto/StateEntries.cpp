//===- StateEntries.cpp - What a variant carries from call to call --------===//

#include "dialect/stretto/StateEntries.h"
#include <limits>

using namespace mlir;
using namespace stretto;

llvm::SmallVector<int64_t, 4> StateEntry::shape(int64_t sequences, int64_t headCount) const {
  llvm::SmallVector<int64_t, 4> result = {sequences};
  if (kind == Kind::Position)
    return result;
  if (kind == Kind::Tail)
    result.push_back(length);
  result.push_back(headCount);
  result.append(sizes.begin(), sizes.end());
  return result;
}

StateOp stretto::rootOf(Value state) {
  while (true) {
    Operation *op = state.getDefiningOp();
    if (auto root = dyn_cast<StateOp>(op))
      return root;
    state = isa<DecayOp>(op) ? cast<DecayOp>(op).getState() : cast<WriteOp>(op).getState();
  }
}

bool stretto::looksBack(VariantOp variant) {
  WalkResult result = variant.getBody().walk([](Operation *op) {
    bool earlierRead = isa<ReadOp>(op) && cast<ReadOp>(op).getAt();
    return isa<LookbackOp>(op) || earlierRead ? WalkResult::interrupt() : WalkResult::advance();
  });
  return result.wasInterrupted();
}

static StringRef spell(ScanKind kind) {
  switch (kind) {
  case ScanKind::Add:
    return "sum";
  case ScanKind::LogAddExp:
    return "logaddexp";
  case ScanKind::Max:
    return "max";
  }
  llvm_unreachable("a scan is of one of three kinds");
}

namespace {

class EntryCollector {
public:
  explicit EntryCollector(VariantOp variant) : variant(variant) {
    variant.getBody().walk([&](StateOp state) { names.insert(state.getName().str()); });
  }

  void visit(Operation *op);
  std::vector<StateEntry> finish();

private:
  /// What operations that share an entry have in common.
  struct Key {
    StringRef word;
    Value row, log;
    bool reverse = false;
    Operation *owner = nullptr;
    bool operator==(const Key &) const = default;
  };

  /// The entry that carries what `key` says, unless an operation visited before has it.
  StateEntry &entryFor(StateEntry::Kind kind, const Key &key, std::optional<StringRef> name = std::nullopt) {
    for (size_t i = 0; i < entries.size(); ++i)
      if (keys[i] == key)
        return entries[i];
    StateEntry &entry = add(kind, name ? unique(name->str()) : nameOf(key));
    entry.heads = headsOf(key.row.getType()).str();
    if (StringRef axis = axisOf(key.row.getType()); !axis.empty()) {
      entry.axes = {axis.str()};
      entry.sizes = {cast<RankedTensorType>(key.row.getType()).getDimSize(0)};
    }
    entry.reverse = key.reverse;
    keys.back() = key;
    return entry;
  }

  StateEntry &add(StateEntry::Kind kind, const std::string &name) {
    keys.emplace_back();
    StateEntry &entry = entries.emplace_back();
    entry.name = name;
    entry.kind = kind;
    return entry;
  }

  void addTail(Operation *op, int64_t length, bool reverse, std::optional<StringRef> name) {
    if (length == 0)
      return;
    // Operations on one row share what went before; the sums that one leaves in reverse are its own.
    Operation *owner = reverse ? op : nullptr;
    StateEntry &tail = entryFor(StateEntry::Kind::Tail, {"tail", op->getOperand(0), Value(), reverse, owner}, name);
    tail.length = std::max(tail.length, length);
    tail.operations.push_back(op);
  }

  std::string nameOf(const Key &key) {
    std::string name = key.word.str();
    if (auto argument = dyn_cast<BlockArgument>(key.row))
      name = variant.getArgName(argument.getArgNumber()).str() + "_" + name;
    return unique(key.reverse ? name + "_reverse" : name);
  }

  std::string unique(const std::string &name) {
    std::string result = name;
    for (int count = 2; !names.insert(result).second; ++count)
      result = name + "_" + std::to_string(count);
    return result;
  }

  VariantOp variant;
  std::set<std::string> names;
  std::vector<StateEntry> entries;
  std::vector<Key> keys;
  SmallVector<Operation *, 2> positions;
};

} // namespace

void EntryCollector::visit(Operation *op) {
  if (auto state = dyn_cast<StateOp>(op)) {
    StateType type = state.getType();
    StateEntry &entry = add(StateEntry::Kind::Matrix, state.getName().str());
    entry.heads = type.getHeads().str();
    entry.axes = {type.getFirst().str(), type.getSecond().str()};
    entry.sizes = {type.getFirstSize(), type.getSecondSize()};
    entry.reverse = type.getReverse();
    entry.operations.push_back(op);
  } else if (auto scan = dyn_cast<ScanOp>(op)) {
    Key key = {spell(scan.getKind()), scan.getOperand(), scan.getLog(), scan.getReverse()};
    StateEntry &entry = entryFor(StateEntry::Kind::Scan, key);
    entry.initial = scan.getKind() == ScanKind::Add ? 0 : -std::numeric_limits<double>::infinity();
    entry.operations.push_back(op);
  } else if (auto conv = dyn_cast<ConvOp>(op)) {
    int64_t taps = cast<RankedTensorType>(conv.getTaps().getType()).getDimSize(1);
    addTail(op, taps - 1, conv.getReverse(), conv.getEntry());
  } else if (auto delay = dyn_cast<DelayOp>(op)) {
    addTail(op, delay.getBy(), delay.getReverse(), delay.getEntry());
  } else if (isa<PositionOp>(op) || (isa<TableOp>(op) && !op->getRegion(0).getArgument(0).use_empty())) {
    positions.push_back(op);
  }
}

std::vector<StateEntry> EntryCollector::finish() {
  if (!positions.empty())
    add(StateEntry::Kind::Position, unique("position")).operations = positions;
  return std::move(entries);
}

std::vector<StateEntry> stretto::deriveState(VariantOp variant) {
  EntryCollector collector(variant);
  variant.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) { collector.visit(op); });
  return collector.finish();
}
