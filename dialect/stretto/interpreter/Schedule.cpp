//===- Schedule.cpp - Passes over the tokens ------------------------------===//

#include "dialect/stretto/interpreter/Schedule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

namespace {

/// Where the tokens lie whose rows an operand contributes.
enum class Reach { Here, Before, After, Everywhere };

struct Use {
  Value row;
  Reach reach;
};

/// What an operation needs of time: the rows that it uses, and a direction if it carries something itself.
struct Needs {
  SmallVector<Use> uses;
  std::optional<bool> reverse;
};

} // namespace

static Reach toward(bool reverse) { return reverse ? Reach::After : Reach::Before; }

static Needs needsOf(Operation *op) {
  Needs needs;
  Reach reach = Reach::Here;
  if (auto conv = dyn_cast<ConvOp>(op))
    reach = toward(conv.getReverse());
  else if (auto delay = dyn_cast<DelayOp>(op))
    reach = toward(delay.getReverse());
  else if (auto scan = dyn_cast<ScanOp>(op))
    needs.reverse = scan.getReverse();
  else if (auto read = dyn_cast<ReadOp>(op))
    needs.reverse = read.getState().getType().getReverse();
  else if (isa<PairOp>(op))
    needs.reverse = true;
  for (Value operand : op->getOperands())
    if (!isa<StateType>(operand.getType()))
      needs.uses.push_back({operand, reach});

  if (auto lookback = dyn_cast<LookbackOp>(op)) {
    Reach pairs = lookback.getToEnd() ? Reach::Everywhere : toward(lookback.getReverse());
    // A look-ahead asks of every later token where its range begins.
    if (lookback.getReverse())
      needs.uses.push_back({lookback.getFirst(), pairs});
    lookback.getBody().walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!lookback.getBody().isAncestor(operand.getParentRegion()))
          needs.uses.push_back({operand, isa<PastOp>(inner) ? pairs : Reach::Here});
    });
  } else if (auto table = dyn_cast<TableOp>(op)) {
    table.getBody().walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (!table.getBody().isAncestor(operand.getParentRegion()))
          needs.uses.push_back({operand, Reach::Here});
    });
  }
  return needs;
}

static bool changesState(Operation *op) { return isa<DecayOp, WriteOp>(op); }

/// The operation whose pass stands for that of `op`: of a chain it is the state.
static Operation *leaderOf(Operation *op) { return changesState(op) ? rootOf(op->getResult(0)).getOperation() : op; }

/// Arguments and constants are known before the first pass.
int Schedule::passOf(Value row) const {
  Operation *op = row.getDefiningOp();
  if (!op || isa<arith::ConstantOp>(op))
    return -1;
  return first.lookup(leaderOf(op));
}

int Schedule::earliestPass(Operation *op) const {
  Needs needs = needsOf(op);
  int pass = first.lookup(leaderOf(op));
  if (auto read = dyn_cast<ReadOp>(op))
    pass = std::max(pass, first.lookup(rootOf(read.getState())));
  else if (auto pair = dyn_cast<PairOp>(op))
    pass = std::max({pass, first.lookup(rootOf(pair.getState())) + 1, first.lookup(rootOf(pair.getCotangent()))});
  else if (auto state = dyn_cast<StateOp>(leaderOf(op)))
    needs.reverse = state.getType().getReverse();
  auto isKnown = [&](const Use &use) {
    int known = passOf(use.row);
    if (known != pass)
      return known < pass;
    switch (use.reach) {
    case Reach::Here:
      return true;
    case Reach::Before:
      return !isReverse(pass);
    case Reach::After:
      return isReverse(pass);
    case Reach::Everywhere:
      return false;
    }
    llvm_unreachable("rows come from one of four places");
  };
  while ((needs.reverse && *needs.reverse != isReverse(pass)) || !llvm::all_of(needs.uses, isKnown))
    ++pass;
  return pass;
}

bool Schedule::raise(Operation *op, int pass) {
  int &current = first[leaderOf(op)];
  if (pass <= current)
    return false;
  current = pass;
  return true;
}

bool Schedule::runs(Operation *op, int pass) const {
  Operation *leader = leaderOf(op);
  auto chain = chainPasses.find(leader);
  return chain != chainPasses.end() ? chain->second.count(pass) : first.lookup(leader) == pass;
}

void Schedule::findStored(VariantOp variant) {
  for (Operation &op : variant.getBlock()->without_terminator()) {
    Operation *leader = leaderOf(&op);
    auto chain = chainPasses.find(leader);
    int lastPass = chain != chainPasses.end() ? *chain->second.rbegin() : first.lookup(leader);
    for (const Use &use : needsOf(&op).uses)
      if (passOf(use.row) >= 0 && (use.reach != Reach::Here || passOf(use.row) < lastPass))
        stored.insert(use.row);
  }
  for (Value result : variant.getBlock()->getTerminator()->getOperands())
    if (passOf(result) >= 0)
      stored.insert(result);
}

FailureOr<Schedule> Schedule::get(VariantOp variant) {
  Schedule schedule;
  auto operations = variant.getBlock()->without_terminator();
  // Two passes for each operation are enough unless one waits for itself.
  int limit = 2 * static_cast<int>(std::distance(operations.begin(), operations.end())) + 2;
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation &op : operations) {
      int pass = schedule.earliestPass(&op);
      if (pass > limit)
        return op.emitError() << "[R14] needs rows of tokens that depend on its own result in turn; no order of tokens "
                              << "computes it";
      changed |= schedule.raise(&op, pass);
    }
  }
  for (Operation &op : operations) {
    if (isa<StateOp>(op))
      schedule.chainPasses[&op].insert(schedule.first.lookup(&op));
    if (auto read = dyn_cast<ReadOp>(op))
      schedule.chainPasses[rootOf(read.getState())].insert(schedule.first.lookup(&op));
    if (auto pair = dyn_cast<PairOp>(op))
      schedule.chainPasses[rootOf(pair.getCotangent())].insert(schedule.first.lookup(&op));
    schedule.count = std::max(schedule.count, schedule.first.lookup(leaderOf(&op)) + 1);
  }
  schedule.findStored(variant);
  return schedule;
}
