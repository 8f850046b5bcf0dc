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
  /// The entry that carries `row`, unless an operation visited before has it: the same row in the same direction with
  /// the same `log`.
  StateEntry &entryFor(StateEntry::Kind kind, StringRef word, Value row, Value log, bool reverse) {
    for (size_t i = 0; i < entries.size(); ++i)
      if (keys[i] == Key{word, row, log, reverse})
        return entries[i];
    StateEntry &entry = add(kind, nameOf(word, row, reverse));
    entry.heads = headsOf(row.getType()).str();
    if (StringRef axis = axisOf(row.getType()); !axis.empty()) {
      entry.axes = {axis.str()};
      entry.sizes = {cast<RankedTensorType>(row.getType()).getDimSize(0)};
    }
    entry.reverse = reverse;
    keys.back() = {word, row, log, reverse};
    return entry;
  }

  StateEntry &add(StateEntry::Kind kind, const std::string &name) {
    keys.emplace_back();
    StateEntry &entry = entries.emplace_back();
    entry.name = name;
    entry.kind = kind;
    return entry;
  }

  void addTail(Operation *op, Value row, int64_t length, bool reverse) {
    if (length == 0)
      return;
    StateEntry &tail = entryFor(StateEntry::Kind::Tail, "tail", row, Value(), reverse);
    tail.length = std::max(tail.length, length);
    tail.operations.push_back(op);
  }

  std::string nameOf(StringRef word, Value row, bool reverse) {
    std::string name = word.str();
    if (auto argument = dyn_cast<BlockArgument>(row))
      name = variant.getArgName(argument.getArgNumber()).str() + "_" + name;
    return unique(reverse ? name + "_reverse" : name);
  }

  std::string unique(const std::string &name) {
    std::string result = name;
    for (int count = 2; !names.insert(result).second; ++count)
      result = name + "_" + std::to_string(count);
    return result;
  }

  struct Key {
    StringRef word;
    Value row, log;
    bool reverse = false;
    bool operator==(const Key &) const = default;
  };

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
    StateEntry &entry =
        entryFor(StateEntry::Kind::Scan, spell(scan.getKind()), scan.getOperand(), scan.getLog(), scan.getReverse());
    entry.initial = scan.getKind() == ScanKind::Add ? 0 : -std::numeric_limits<double>::infinity();
    entry.operations.push_back(op);
  } else if (auto conv = dyn_cast<ConvOp>(op)) {
    int64_t taps = cast<RankedTensorType>(conv.getTaps().getType()).getDimSize(1);
    addTail(op, conv.getOperand(), taps - 1, conv.getReverse());
  } else if (auto delay = dyn_cast<DelayOp>(op)) {
    addTail(op, delay.getOperand(), delay.getBy(), delay.getReverse());
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
