//===- ShortenLifetimes.cpp - An order that keeps few tiles at a time -----===//

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"
#include <algorithm>
#include <unordered_map>

namespace stretto {
#define GEN_PASS_DEF_SHORTENLIFETIMES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// Whether the tile is in memory all along: a state is carried.
bool isInMemory(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto kernel = argument ? dyn_cast<chunk::KernelOp>(argument.getOwner()->getParentOp()) : nullptr;
  return kernel && kernel.getArgument(argument.getArgNumber()).getKind() != chunk::ArgumentKind::State;
}

/// Whether a tile costs less than the registers that would keep it: numbers of memory that are widened, scaled by a
/// constant, or repeated.
bool isCheap(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return isInMemory(value);
  if (matchPattern(op, m_Constant()))
    return true;
  if (isa<chunk::MaskOp, chunk::AgainOp>(op))
    return isCheap(op->getOperand(0));
  if (auto inverse = dyn_cast<arith::DivFOp>(op); inverse && inverse.getFastmath() == arith::FastMathFlags::none)
    return false;
  return isa<arith::ExtFOp, arith::MulFOp, arith::SubFOp, arith::DivFOp, arith::NegFOp, chunk::BroadcastOp>(op) &&
         llvm::all_of(op->getOperands(), isCheap) &&
         llvm::count_if(op->getOperands(), [](Value operand) { return !matchPattern(operand, m_Constant()); }) <= 1;
}

/// Makes cheap tiles anew for each operation that asks for them.
class Copies {
public:
  void run(chunk::KernelOp kernel) {
    SmallVector<Operation *> users;
    kernel.walk([&](Operation *op) {
      if (op != kernel && !(op->getNumResults() == 1 && isCheap(op->getResult(0))))
        users.push_back(op);
    });
    for (Operation *user : users) {
      builder.setInsertionPoint(user);
      copies.clear();
      for (OpOperand &operand : user->getOpOperands())
        operand.set(copyOf(operand.get()));
    }
  }
  explicit Copies(MLIRContext *context) : builder(context) {}

private:
  Value copyOf(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || !isInTurnOf(op) || matchPattern(op, m_Constant()) || !isCheap(value))
      return value;
    Value &copy = copies[value];
    if (!copy) {
      IRMapping mapping;
      for (Value operand : op->getOperands())
        if (isa<RankedTensorType>(operand.getType()))
          mapping.map(operand, copyOf(operand));
      copy = builder.clone(*op, mapping)->getResult(0);
    }
    return copy;
  }

  /// Whether an operation is executed once where copies are made: what a look-back takes from outside of its body is
  /// the same in all tiles that it meets.
  bool isInTurnOf(Operation *op) {
    Block *block = builder.getInsertionBlock();
    while (block != op->getBlock() && isa<scf::IfOp>(block->getParentOp()))
      block = block->getParentOp()->getBlock();
    return block == op->getBlock();
  }

  OpBuilder builder;
  DenseMap<Value, Value> copies;
};

/// Puts the operations of a kernel's body into an order in which each result is computed as a whole, with all that it
/// is made of, before the next is begun, and so is each operand: first what needs the most room on the way. What is
/// carried to the next chunk comes last, so that it may take the place of what it replaces.
class Order {
public:
  enum class First { WhatNeedsRoom, WhatFreesTiles };

  Order(chunk::KernelOp kernel, First first)
      : body(*kernel.getBlock()), carriesBack(walksBackOverStates(kernel)),
        isAlone(kernel.argumentsOf(chunk::ArgumentKind::State).empty()), keepsRows(kernel.getEarlier()), first(first) {}

  static bool walksBackOverStates(chunk::KernelOp kernel) {
    return kernel.getReverse() && !kernel.argumentsOf(chunk::ArgumentKind::State).empty();
  }

  /// The most that is kept at a time. Neither states and what is in memory are counted, nor what the next operation
  /// takes number by number.
  static int64_t mostKept(Block &body) {
    DenseMap<Value, Operation *> lastUses;
    auto isTaken = [](Operation &op) {
      Operation *user = op.hasOneUse() ? *op.user_begin() : nullptr;
      return user && user == op.getNextNode() &&
             (user->hasTrait<OpTrait::Elementwise>() || isa<chunk::ReduceOp, chunk::CausalOp>(user));
    };
    for (Operation &op : body)
      for (Value result : isTaken(op) ? ValueRange() : ValueRange(op.getResults()))
        for (Operation *user : result.getUsers()) {
          Operation *own = body.findAncestorOpInBlock(*user);
          Operation *&last = lastUses[result];
          last = last && own->isBeforeInBlock(last) ? last : own;
        }
    DenseMap<Operation *, int64_t> freed;
    for (auto &[value, last] : lastUses)
      freed[last] += sizeOf(value);
    int64_t kept = 0, most = 0;
    for (Operation &op : body) {
      for (Value result : op.getResults())
        kept += lastUses.contains(result) ? sizeOf(result) : 0;
      most = std::max(most, kept);
      kept -= freed.lookup(&op);
    }
    return most;
  }

  void run() {
    auto yield = cast<chunk::YieldOp>(body.getTerminator());
    for (Value state : yield.getStates())
      if (Operation *made = state.getDefiningOp(); made && sizeOf(state) > 0)
        ofCarried[made] = true;
    // Operands that products of a walk back share lie in shared memory, and are stored there together. Independent
    // chunks, which meet others, have no room for all of them.
    SmallVector<Value> shared;
    for (auto operand : body.getOps<arith::TruncFOp>())
      if (carriesBack && isShared(operand) && !isOfCarried(operand))
        shared.push_back(operand);
    sortByRoom(shared);
    for (Value operand : shared)
      place(operand.getDefiningOp());
    // What is expected is told before anything that depends on it is of use, and asked in its own order.
    for (chunk::ExpectOp expected : llvm::to_vector(body.getOps<chunk::ExpectOp>())) {
      SetVector<Operation *> needed;
      (void)getBackwardSlice(expected.getOperation(), &needed);
      for (chunk::WithinOp asked : llvm::to_vector(body.getOps<chunk::WithinOp>()))
        if (needed.contains(asked))
          place(asked);
      place(expected);
    }
    SmallVector<Value> outputs(yield.getOutputs());
    sortByRoom(outputs);
    // Rows that are kept are asked for by all else.
    if (keepsRows)
      std::stable_partition(outputs.begin(), outputs.end(),
                            [](Value output) { return cast<RankedTensorType>(output.getType()).getRank() == 1; });
    for (ValueRange results : {ValueRange(outputs), ValueRange(yield.getStates())})
      for (Value result : results)
        place(result.getDefiningOp());
    // What nobody asks for any longer stands before all that was placed.
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
      if (!placed.contains(&op) && &op != yield)
        op.erase();
  }

private:
  static int64_t sizeOf(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    // States are there in any order.
    bool isFree = !type || isa<BlockArgument>(value) || matchPattern(value, m_Constant()) ||
                  value.getDefiningOp<chunk::BroadcastOp>();
    return isFree ? 0 : type.getNumElements() * type.getElementTypeBitWidth();
  }

  /// Whether several products have a tile as an operand.
  static bool isShared(Value value) { return llvm::count_if(value.getUsers(), llvm::IsaPred<chunk::DotOp>) > 1; }

  /// What an operation takes from its block, as operands or in regions.
  ArrayRef<Value> operandsOf(Operation *op) {
    auto [known, isNew] = taken.try_emplace(op);
    if (isNew) {
      llvm::SetVector<Value> operands(op->operand_begin(), op->operand_end());
      getUsedValuesDefinedAbove(op->getRegions(), operands);
      for (Value operand : operands)
        if (operand.getParentBlock() == &body)
          known->second.push_back(operand);
    }
    return known->second;
  }

  /// How much is kept at a time while a tile is computed by itself.
  int64_t roomFor(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return 0;
    if (auto known = room.find(op); known != room.end())
      return known->second;
    SmallVector<Value> operands(operandsOf(op));
    sortByRoom(operands);
    int64_t kept = 0, most = 0;
    for (Value operand : operands) {
      most = std::max(most, kept + roomFor(operand));
      kept += sizeOf(operand);
    }
    int64_t results = 0;
    for (Value result : op->getResults())
      results += sizeOf(result);
    return room[op] = std::max({most, kept, results});
  }

  /// Whether a tile is made of one that is carried to the next chunk.
  bool isOfCarried(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (auto known = ofCarried.find(op); known != ofCarried.end())
      return known->second;
    bool isAny = llvm::any_of(operandsOf(op), [&](Value operand) { return isOfCarried(operand); });
    return ofCarried[op] = isAny;
  }

  /// How much more is kept once a tile is computed than before: less, where it is the last to ask for others.
  int64_t growthFor(Value value) {
    llvm::SetVector<Operation *> made;
    if (Operation *op = value.getDefiningOp(); op && !placed.contains(op))
      made.insert(op);
    int64_t growth = 0;
    llvm::SetVector<Value> asked;
    for (size_t next = 0; next < made.size(); ++next)
      for (Value operand : operandsOf(made[next])) {
        asked.insert(operand);
        if (Operation *op = operand.getDefiningOp(); op && !placed.contains(op))
          made.insert(op);
      }
    auto isAskedLater = [&](Operation *user) {
      Operation *own = body.findAncestorOpInBlock(*user);
      return !placed.contains(own) && !made.contains(own);
    };
    for (Operation *op : made)
      for (Value result : op->getResults())
        growth += result == value || llvm::any_of(result.getUsers(), isAskedLater) ? sizeOf(result) : 0;
    for (Value operand : asked)
      if (Operation *op = operand.getDefiningOp(); op && placed.contains(op))
        growth -= llvm::any_of(operand.getUsers(), isAskedLater) ? 0 : sizeOf(operand);
    return growth;
  }

  /// First those that need much more room than they leave behind; or, before these, what leaves less than there was, of
  /// which first what needs the least room.
  void sortByRoom(SmallVectorImpl<Value> &values) {
    SmallVector<std::tuple<bool, bool, int64_t, size_t>> ranks;
    for (auto [index, value] : llvm::enumerate(values)) {
      bool byGrowth = first == First::WhatFreesTiles;
      int64_t left = byGrowth ? growthFor(value) : sizeOf(value), needed = roomFor(value);
      bool frees = byGrowth && left <= 0;
      ranks.push_back({isOfCarried(value), !frees, frees ? needed : left - needed, index});
    }
    llvm::sort(ranks);
    SmallVector<Value> given(values.begin(), values.end());
    for (auto [value, rank] : llvm::zip_equal(values, ranks))
      value = given[std::get<size_t>(rank)];
  }

  static bool meetsOthers(Operation *op) {
    auto lookback = dyn_cast<chunk::LookbackOp>(op);
    return lookback && !lookback.getContinued();
  }

  void place(Operation *op) {
    if (!op || !placed.insert(op).second)
      return;
    SmallVector<Value> operands(operandsOf(op));
    sortByRoom(operands);
    for (Value operand : operands)
      place(operand.getDefiningOp());
    if (auto lookback = dyn_cast<chunk::LookbackOp>(op); lookback && isAlone)
      placeWhatItIsAddedTo(lookback);
    op->moveBefore(body.getTerminator());
  }

  /// What the sums of a look-back are added to they begin with, if it is there before (FoldLookback.cpp): then it takes
  /// no room of its own. Which of two look-backs begins with the other is of no consequence.
  void placeWhatItIsAddedTo(chunk::LookbackOp lookback) {
    if (lookback.getFold() != chunk::Fold::Sum)
      return;
    for (Value sum : lookback.getResults()) {
      auto total = sum.hasOneUse() ? dyn_cast<arith::AddFOp>(*sum.user_begin()) : arith::AddFOp();
      Operation *other = total ? (total.getLhs() == sum ? total.getRhs() : total.getLhs()).getDefiningOp() : nullptr;
      SetVector<Operation *> made;
      BackwardSliceOptions options;
      options.inclusive = true;
      options.omitUsesFromAbove = false;
      if (other && other->getBlock() == &body && succeeded(getBackwardSlice(other, &made, options)) &&
          !made.contains(lookback) && llvm::none_of(made, meetsOthers))
        place(other);
    }
  }

  Block &body;
  bool carriesBack, isAlone, keepsRows;
  First first;
  std::unordered_map<Operation *, SmallVector<Value, 4>> taken; // what it holds stays where it is
  DenseMap<Operation *, int64_t> room;
  DenseMap<Operation *, bool> ofCarried;
  DenseSet<Operation *> placed;
};

/// Whether operands of products are rounded to 16 bits.
bool formsNarrowProducts(chunk::KernelOp kernel) {
  WalkResult found = kernel.walk([](chunk::DotOp product) {
    bool isNarrow = getElementTypeOrSelf(product.getLeft()).getIntOrFloatBitWidth() == 16;
    return isNarrow ? WalkResult::interrupt() : WalkResult::advance();
  });
  return kernel.getChunk() > 1 && found.wasInterrupted();
}

struct ShortenLifetimes : stretto::impl::ShortenLifetimesBase<ShortenLifetimes> {
  using ShortenLifetimesBase::ShortenLifetimesBase;

  void runOnOperation() override {
    chunk::KernelOp kernel = getOperation();
    if (!kernel.getReverse() && !(forwards && formsNarrowProducts(kernel)))
      return;
    Copies(&getContext()).run(kernel);
    Order(kernel, Order::First::WhatNeedsRoom).run();
    if (!kernel.getReverse() || !kernel.getOps<chunk::LookbackOp>().empty())
      return;
    // Neither rule is the better one for all gradients.
    int64_t most = Order::mostKept(*kernel.getBlock());
    Order(kernel, Order::First::WhatFreesTiles).run();
    if (Order::mostKept(*kernel.getBlock()) >= most)
      Order(kernel, Order::First::WhatNeedsRoom).run();
  }
};
} // namespace
