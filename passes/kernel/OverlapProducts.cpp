//===- OverlapProducts.cpp - What runs beside products --------------------===//

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"
#include "passes/kernel/RegisterEstimate.h"

namespace stretto {
#define GEN_PASS_DEF_OVERLAPPRODUCTS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static bool isProduct(Operation *op) { return isa<chunk::DotOp>(op) && isOfWarpgroups(op); }

/// Calls `visit` with what an operation of a block, or of its regions, takes from the block.
static void forEachOperand(Operation *op, function_ref<void(Operation *)> visit) {
  llvm::SetVector<Value> values;
  getUsedValuesDefinedAbove(op->getRegions(), values);
  values.insert(op->operand_begin(), op->operand_end());
  for (Value value : values)
    if (Operation *made = value.getDefiningOp(); made && made->getBlock() == op->getBlock())
      visit(made);
}

namespace {
/// The operations of a block, but for its terminator, in the order of how many products they wait for, one after the
/// other.
class Order {
public:
  explicit Order(Block &block) : block(block) {
    auto function = block.getParent()->getParentOfType<FuncOp>();
    isOfOutputs = function && function.getRole().getKind() == RoleKind::Outputs;
    int64_t ofEffects = 0;
    for (Operation &op : block) {
      int64_t count = 0;
      forEachOperand(&op, [&](Operation *made) {
        bool isAsked = isProduct(made) && !isOnlyAddend(cast<chunk::DotOp>(made));
        count = std::max(count, before.lookup(made) + (isAsked ? 1 : 0));
      });
      // What sends, stores and waits stays in its order.
      if (!isMemoryEffectFree(&op))
        count = std::max(count, ofEffects);
      if (isWaitedFor(&op))
        ofEffects = count;
      before[&op] = count;
    }
    for (chunk::DotOp product : block.getOps<chunk::DotOp>())
      if (isProduct(product))
        for (Value operand : product.getOperands())
          takeStored(operand.getDefiningOp(), before.lookup(product));
    Turn last = Turn::First;
    for (Operation &op : block) {
      Turn own = ownTurn(&op);
      forEachOperand(&op, [&](Operation *made) {
        if (before.lookup(made) == before.lookup(&op))
          own = std::max(own, turns.lookup(made));
      });
      if (!isMemoryEffectFree(&op))
        own = std::max(own, last);
      if (isWaitedFor(&op))
        last = own;
      turns[&op] = own;
    }
  }

  SmallVector<Operation *> find() {
    SmallVector<Operation *> order;
    for (Operation &op : block.without_terminator())
      order.push_back(&op);
    llvm::stable_sort(order, [&](Operation *a, Operation *b) {
      return std::pair(before.lookup(a), turns.lookup(a)) < std::pair(before.lookup(b), turns.lookup(b));
    });
    // The registers that a product adds to are left alone from the first product on.
    for (chunk::DotOp product : block.getOps<chunk::DotOp>())
      if (isProduct(product) && product.getAddend())
        takeEarly(product.getAddend(), /*andOperands=*/true);
    auto *first = llvm::find_if(order, isProduct);
    bool isPure =
        std::all_of(first, order.end(), [&](Operation *op) { return !early.contains(op) || isMemoryEffectFree(op); });
    if (isPure)
      std::stable_partition(first, order.end(), [&](Operation *op) { return early.contains(op); });
    if (isa<FuncOp>(block.getParentOp()))
      receiveLate(order);
    return order;
  }

private:
  /// Whether what has effects comes behind an operation, as it does but for numbers that go from registers to memory.
  static bool isWaitedFor(Operation *op) {
    auto store = dyn_cast<StoreOp>(op);
    return !isMemoryEffectFree(op) && !(store && cast<RankedTensorType>(store.getTile().getType()).getRank() < 2);
  }

  /// A chunk for itself waits for what has just been sent for. Before that comes what asks for none of it.
  static void receiveLate(MutableArrayRef<Operation *> order) {
    auto *first = llvm::find_if(order, llvm::IsaPred<ReceiveOp>);
    llvm::DenseSet<Operation *> late;
    for (Operation *op : llvm::make_range(first, order.end())) {
      bool isLate = isa<ReceiveOp>(op) || !isMemoryEffectFree(op);
      forEachOperand(op, [&](Operation *made) { isLate |= late.contains(made); });
      if (isLate)
        late.insert(op);
    }
    std::stable_partition(first, order.end(), [&](Operation *op) { return !late.contains(op); });
  }

  /// What makes a tile that is added to, and what else asks for it or for what it is made of, as far as it waits for no
  /// product.
  void takeEarly(Value tile, bool andOperands) {
    for (Operation *user : tile.getUsers()) {
      Operation *own = block.findAncestorOpInBlock(*user);
      takeEarly(own);
      // What is stored in shared memory needs no registers.
      if (own && own->hasOneUse() && early.contains(own) && isa<ConvertOp>(*own->user_begin()))
        takeEarly(*own->user_begin());
    }
    Operation *made = tile.getDefiningOp();
    if (andOperands && made && made->getBlock() == &block && !isProduct(made))
      for (Value operand : made->getOperands())
        if (isa<BlockArgument>(operand))
          takeEarly(operand, /*andOperands=*/false);
  }

  void takeEarly(Operation *op) {
    if (!op || op->hasTrait<OpTrait::IsTerminator>() || isProduct(op) || before.lookup(op) || !early.insert(op).second)
      return;
    forEachOperand(op, [&](Operation *made) { takeEarly(made); });
  }

  /// Of those that wait for as many products: first the products of what lies in shared memory already, beside which
  /// other operands are chosen, in branches that have products of their own, and stored there, all before one barrier;
  /// then the products of these, beside which the rest is computed.
  enum class Turn { First, Chosen, Stored, OfStored, Rest };

  Turn ownTurn(Operation *op) {
    if (isProduct(op)) {
      bool isOfStored = llvm::any_of(op->getOperands().take_front(2), [](Value operand) {
        return isa_and_nonnull<ConvertOp>(operand.getDefiningOp()) && inSharedMemory(operand.getType());
      });
      return isOfStored ? Turn::OfStored : Turn::First;
    }
    if (stored.contains(op))
      return op->getNumRegions() ? Turn::Chosen : Turn::Stored;
    // Those who find outputs have no registers for what is summed up beside what has been rounded of it.
    bool sumsUp = isa<chunk::ReduceOp>(op) && isOfOutputs;
    bool isOfTiles = !sumsUp && llvm::any_of(op->getResultTypes(), llvm::IsaPred<RankedTensorType>);
    return isOfTiles && isMemoryEffectFree(op) ? Turn::Rest : Turn::First;
  }

  /// What an operand, or what a product adds to, is made of, behind as many products as the one that takes it.
  void takeStored(Operation *op, int64_t count) {
    if (!op || op->getBlock() != &block || isProduct(op) || before.lookup(op) != count || !stored.insert(op).second)
      return;
    forEachOperand(op, [&](Operation *made) { takeStored(made, count); });
  }

  Block &block;
  bool isOfOutputs = false;
  DenseMap<Operation *, int64_t> before;
  DenseMap<Operation *, Turn> turns;
  llvm::DenseSet<Operation *> stored;
  llvm::DenseSet<Operation *> early;
};
} // namespace

static void arrange(Block &block, ArrayRef<Operation *> order) {
  for (Operation *op : order)
    op->moveBefore(block.getTerminator());
}

/// Where the result of a product is first asked for, or other control flow begins; nothing where another product adds
/// to it before.
static Operation *endOf(chunk::DotOp product) {
  llvm::SmallPtrSet<Operation *, 4> users;
  for (Operation *user : product->getUsers())
    users.insert(product->getBlock()->findAncestorOpInBlock(*user));
  for (Operation *op = product->getNextNode(); op && !users.empty(); op = op->getNextNode())
    if (op->getNumRegions() || users.contains(op))
      return isOnlyAddend(product) && users.contains(op) ? nullptr : op;
  return nullptr;
}

/// Puts a `kernel.finish` where a product ends, or one that was started later: they are done in their order.
static void finishProducts(Block &block) {
  Operation *end = nullptr;
  SmallVector<chunk::DotOp> products(block.getOps<chunk::DotOp>());
  for (chunk::DotOp product : llvm::reverse(products)) {
    Operation *own = isProduct(product) ? endOf(product) : nullptr;
    if (!own)
      continue;
    end = end && end->isBeforeInBlock(own) ? end : own;
    OpBuilder builder(end);
    auto finish = FinishOp::create(builder, product.getLoc(), product.getResult());
    product.getResult().replaceAllUsesExcept(finish.getResult(), finish);
  }
}

/// Whether all that a product takes is there before an earlier operation of its block.
static bool isReadyBefore(chunk::DotOp product, Operation *earlier) {
  return llvm::all_of(product->getOperands(), [&](Value operand) {
    Operation *made = operand.getDefiningOp();
    return !made || made->getBlock() != product->getBlock() || made->isBeforeInBlock(earlier);
  });
}

/// Starts a product before the one before it is waited for, where its operands are there by then and no other control
/// flow is between.
static void startBesideOthers(Block &block) {
  FinishOp last;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (op.getNumRegions())
      last = {};
    if (auto finish = dyn_cast<FinishOp>(op))
      last = finish;
    auto product = dyn_cast<chunk::DotOp>(op);
    if (!last || !product || !isProduct(product) || product.getAddend())
      continue;
    if (isReadyBefore(product, last))
      product->moveBefore(last);
  }
}

/// The first product behind a choice, as far as the next control flow, that takes nothing of it and adds to nothing.
static chunk::DotOp productBeside(scf::IfOp choice) {
  for (Operation *op = choice->getNextNode(); op && !op->getNumRegions(); op = op->getNextNode()) {
    auto product = dyn_cast<chunk::DotOp>(op);
    if (product && isProduct(product) && !product.getAddend() && isReadyBefore(product, choice))
      return product;
  }
  return {};
}

/// Moves a product into both branches of the choice before it, the first thing there.
static void moveInto(scf::IfOp choice, chunk::DotOp product) {
  OpBuilder builder(choice);
  SmallVector<Type> types(choice.getResultTypes());
  types.push_back(product.getType());
  auto with = scf::IfOp::create(builder, choice.getLoc(), types, choice.getCondition(), /*addThenBlock=*/false,
                                /*addElseBlock=*/false);
  for (auto [old, region] : llvm::zip_equal(choice->getRegions(), with->getRegions())) {
    region.takeBody(old);
    Operation *yield = region.front().getTerminator();
    builder.setInsertionPointToStart(&region.front());
    yield->insertOperands(yield->getNumOperands(), builder.clone(*product)->getResults());
  }
  choice->replaceAllUsesWith(with.getResults().drop_back());
  product->replaceAllUsesWith(with.getResults().take_back());
  product->erase();
  choice->erase();
}

/// Lets the first product behind a choice run beside those of single warps in its first branch: more of them would take
/// more registers than there are.
static void startInBranches(Block &block) {
  for (scf::IfOp choice : llvm::to_vector(block.getOps<scf::IfOp>())) {
    bool hasProducts =
        !choice.getElseRegion().empty() && llvm::any_of(choice.thenBlock()->getOps<chunk::DotOp>(),
                                                        [](chunk::DotOp product) { return !isProduct(product); });
    if (!hasProducts)
      continue;
    if (chunk::DotOp product = productBeside(choice))
      moveInto(choice, product);
  }
}

/// Whether what a chunk leaves is made of more than what is there on the way to one tile.
static bool leavesSeveral(scf::ForOp loop) {
  SmallVector<Operation *> stored;
  for (StoreOp store : loop.getBody()->getOps<StoreOp>())
    if (Operation *made = store.getTile().getDefiningOp())
      stored.push_back(made);
  return stored.size() > 1 && llvm::none_of(stored, [&](Operation *last) {
           SetVector<Operation *> slice;
           BackwardSliceOptions options;
           options.omitUsesFromAbove = false;
           return succeeded(getBackwardSlice(last, &slice, options)) &&
                  llvm::all_of(stored, [&](Operation *made) { return made == last || slice.contains(made); });
         });
}

namespace {
struct OverlapProducts : stretto::impl::OverlapProductsBase<OverlapProducts> {
  using OverlapProductsBase::OverlapProductsBase;

  void runOnOperation() override {
    // What it is worth in registers: forwards have some to spare, but where one leaves several rows, as for a gradient.
    FuncOp function = getOperation();
    bool leavesRows = llvm::any_of(function.getOps<scf::ForOp>(), leavesSeveral);
    int64_t more = walksInReverse(function) || leavesRows ? 16 : 96;
    if (walksInReverse(function) && estimateRegisters(function) <= registers)
      for (auto loop : function.getOps<scf::ForOp>())
        startInBranches(*loop.getBody());
    llvm::SetVector<Block *> blocks;
    function.walk([&](chunk::DotOp product) {
      if (isOfWarpgroups(product))
        blocks.insert(product->getBlock());
    });
    for (Block *block : blocks) {
      SmallVector<Operation *> original;
      for (Operation &op : block->without_terminator())
        original.push_back(&op);
      int64_t few = std::min<int64_t>(estimateRegisters(function) + more, registers);
      // Operands of products that are under way together lie side by side, and so do their results: there is no memory
      // and there are no registers to spare for what is seldom wanted, or, of roles, not always.
      bool isOnCondition = block->front().getParentOfType<scf::IfOp>() != nullptr;
      bool isRare = isOnCondition && (function.getRole().getKind() != RoleKind::All || isInRareBranch(&block->front()));
      if (!isRare)
        arrange(*block, Order(*block).find());
      if (estimateRegisters(function) > few)
        arrange(*block, original);
      finishProducts(*block);
      if (walksInReverse(function) && !isRare && estimateRegisters(function) <= registers) {
        SmallVector<Operation *> order;
        for (Operation &op : block->without_terminator())
          order.push_back(&op);
        int64_t enough = estimateRegisters(function);
        startBesideOthers(*block);
        if (estimateRegisters(function) > enough)
          arrange(*block, order);
      }
    }
  }
};
} // namespace
