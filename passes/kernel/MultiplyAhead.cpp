//===- MultiplyAhead.cpp - Products of the next tile of a look-back -------===//
//
// A look-back begins each turn with products of rows of its own chunk and of another's tile, and waits for them. They
// depend on nothing that the turns before have found: those of the next tile run while the scores of one become
// weights and are added up. Tiles that nothing else reads are sent a turn earlier for that. The last turn multiplies
// its own tile once more, so that there is no branch around products that are under way.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "passes/Passes.h"
#include "passes/kernel/RegisterEstimate.h"

namespace stretto {
#define GEN_PASS_DEF_MULTIPLYAHEAD
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

class LookbackLoop {
public:
  explicit LookbackLoop(scf::ForOp loop) : loop(loop) { findProducts(); }

  bool hasProducts() const { return !products.empty(); }

  /// The registers of a thread that products of another tile take.
  int64_t registers() const {
    int64_t count = 0;
    for (chunk::DotOp product : products)
      count += int64_t(1) << layoutOf(product.getType())->basis(Layout::Register).size();
    return count;
  }

  void multiplyAhead(IRRewriter &rewriter);

private:
  bool isInside(Operation *op) { return op && op->getBlock() == loop.getBody(); }

  /// The receives of which all readers are products with what stands outside of the loop, and these.
  void findProducts();
  /// The operations that send tiles of these, on a condition.
  SmallVector<Operation *> findSends();
  /// What an operation of the loop gives in another turn, from clones of all that depends on the turn.
  Operation *cloneAt(OpBuilder &builder, Operation *op, IRMapping &mapping);
  /// Sends what an operation would send at the turn of a mapping: of channels that are read ahead, and no others.
  void sendAt(OpBuilder &builder, Operation *sends, IRMapping &mapping);
  bool isAhead(SendOp send) const { return channels.contains(send.getChannel()); }

  scf::ForOp loop;
  llvm::SetVector<Operation *> receives;
  SmallVector<chunk::DotOp> products;
  llvm::DenseSet<Value> channels;
};

void LookbackLoop::findProducts() {
  for (ReceiveOp receive : loop.getBody()->getOps<ReceiveOp>())
    if (receive.getTurn() && receive.getChunk())
      receives.insert(receive);
  auto isKnown = [&](Value operand) {
    Operation *made = operand.getDefiningOp();
    return loop.isDefinedOutsideOfLoop(operand) || (made && receives.contains(made));
  };
  auto isAlone = [&](Operation *user) {
    auto product = dyn_cast<chunk::DotOp>(user);
    return product && isInside(product) && isOfWarpgroups(product) && !product.getAddend() &&
           isKnown(product.getLeft()) && isKnown(product.getRight());
  };
  // A tile that something else reads leaves its products to the turn it belongs to, and others with them.
  while (receives.remove_if([&](Operation *receive) { return !llvm::all_of(receive->getUsers(), isAlone); }))
    ;
  for (chunk::DotOp product : loop.getBody()->getOps<chunk::DotOp>())
    if (isAlone(product) && !loop.isDefinedOutsideOfLoop(product.getRight()))
      products.push_back(product);
  for (Operation *receive : receives)
    channels.insert(cast<ReceiveOp>(receive).getChannel());
}

SmallVector<Operation *> LookbackLoop::findSends() {
  SmallVector<Operation *> found;
  for (Operation &op : *loop.getBody()) {
    WalkResult result = op.walk([&](SendOp send) { return WalkResult(failure(isAhead(send))); });
    if (result.wasInterrupted())
      found.push_back(&op);
  }
  return found;
}

Operation *LookbackLoop::cloneAt(OpBuilder &builder, Operation *op, IRMapping &mapping) {
  llvm::SetVector<Value> values;
  getUsedValuesDefinedAbove(op->getRegions(), values);
  values.insert(op->operand_begin(), op->operand_end());
  for (Value value : values)
    if (Operation *made = value.getDefiningOp(); isInside(made) && !mapping.contains(value))
      cloneAt(builder, made, mapping);
  return builder.clone(*op, mapping);
}

void LookbackLoop::sendAt(OpBuilder &builder, Operation *sends, IRMapping &mapping) {
  Operation *sent = cloneAt(builder, sends, mapping);
  sent->walk([&](SendOp send) {
    if (!isAhead(send))
      send.erase();
  });
}

void LookbackLoop::multiplyAhead(IRRewriter &rewriter) {
  ImplicitLocOpBuilder b(loop.getLoc(), loop);
  Value begin = loop.getLowerBound(), end = loop.getUpperBound(), turn = loop.getInductionVar();
  SmallVector<Operation *> sends = findSends();
  auto multiply = [&](OpBuilder &builder, Value at) {
    IRMapping mapping;
    mapping.map(turn, at);
    return llvm::map_to_vector(products, [&](chunk::DotOp product) -> Value {
      return cast<chunk::DotOp>(cloneAt(builder, product, mapping)).getResult();
    });
  };

  // The first tile is there, or on its way; the next one may take the place of one that was read before the loop.
  AwaitOp::create(b);
  SmallVector<Type> types = llvm::map_to_vector(products, [](chunk::DotOp product) -> Type { return product.getType(); });
  Value isAny = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, begin, end);
  auto first = scf::IfOp::create(b, types, isAny, /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(first.thenBlock());
    scf::YieldOp::create(b, multiply(b, begin));
    b.setInsertionPointToStart(first.elseBlock());
    scf::YieldOp::create(b, llvm::map_to_vector(types, [&](Type type) -> Value {
      return arith::ConstantOp::create(b, cast<TypedAttr>(b.getZeroAttr(type)));
    }));
  }
  BarrierOp::create(b, /*fence=*/false);
  for (Operation *op : sends) {
    IRMapping mapping;
    mapping.map(turn, begin);
    sendAt(b, op, mapping);
  }

  // In each turn the tile behind the next one takes the place of its own, whose products are finished.
  for (Operation *op : sends) {
    b.setInsertionPoint(op);
    IRMapping mapping;
    mapping.map(turn, arith::AddIOp::create(b, turn, arith::ConstantIndexOp::create(b, 1)));
    sendAt(b, op, mapping);
    op->walk([&](SendOp send) {
      if (isAhead(send))
        send.erase();
    });
    if (op->walk([](SendOp) { return WalkResult::interrupt(); }).wasInterrupted())
      continue;
    op->erase();
  }

  // Products that are under way cross no control flow: they begin behind what there is of it.
  Operation *last = products.front();
  for (Operation &op : loop.getBody()->without_terminator())
    if (op.getNumRegions() || &op == products.back().getOperation())
      last = &op;
  b.setInsertionPointAfter(last);
  Value one = arith::ConstantIndexOp::create(b, 1);
  Value next = arith::MinSIOp::create(b, arith::AddIOp::create(b, turn, one), arith::SubIOp::create(b, end, one));
  SmallVector<Value> ahead = multiply(b, next);

  rewriter.setInsertionPoint(loop);
  auto replaced = loop.replaceWithAdditionalYields(
      rewriter, first.getResults(), /*replaceInitOperandUsesInLoop=*/false,
      [&](OpBuilder &, Location, ArrayRef<BlockArgument> carried) {
        for (auto [product, scores] : llvm::zip_equal(products, carried))
          product.getResult().replaceAllUsesWith(scores);
        return ahead;
      });
  assert(succeeded(replaced) && "a loop takes more values to carry");
  for (chunk::DotOp product : products)
    product.erase();
  for (Operation *receive : receives)
    receive->erase();
}

struct MultiplyAhead : stretto::impl::MultiplyAheadBase<MultiplyAhead> {
  using MultiplyAheadBase::MultiplyAheadBase;

  void runOnOperation() override {
    FuncOp function = getOperation();
    SmallVector<scf::ForOp> loops;
    function.walk([&](scf::ForOp loop) { loops.push_back(loop); });
    IRRewriter rewriter(&getContext());
    for (scf::ForOp loop : loops) {
      LookbackLoop lookback(loop);
      if (lookback.hasProducts() && estimateRegisters(function) + lookback.registers() <= registers)
        lookback.multiplyAhead(rewriter);
    }
  }
};
} // namespace
