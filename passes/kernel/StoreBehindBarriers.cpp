//===- StoreBehindBarriers.cpp - Outputs that the memory system stores ----===//

#include "dialect/kernel/Chip.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/SharedBytes.h"
#include "runtime/Manifest.h"

namespace stretto {
#define GEN_PASS_DEF_STOREBEHINDBARRIERS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Whether from a store on to the first barrier of the next turn nothing else lies where it has its tile: the memory
/// system may take its time until then.
bool hasStageAlone(StoreOp store, BarrierOp first) {
  SharedBytes stage = SharedBytes::ofScratch(store);
  auto isShared = [&](Operation *op) {
    Operation *own = store->getBlock()->findAncestorOpInBlock(*op);
    bool isBefore = own && first->isBeforeInBlock(own) && own->isBeforeInBlock(store);
    return WalkResult(failure(op != store && !isBefore && stage.areTouchedBy(op)));
  };
  return !store->getParentOfType<FuncOp>().walk(isShared).wasInterrupted();
}

/// Whether the memory system can store what threads leave in a stage: an output, in boxes as wide as the banks.
bool isOfBoxes(StoreOp store, const Manifest &manifest) {
  bool isStaged = store.getStaged() && store.getMatrices() && store->hasAttrOfType<IntegerAttr>(scratchAttribute);
  if (!isStaged || store.getBulk())
    return false;
  const Manifest::Argument &argument = manifest.arguments[cast<BlockArgument>(store.getView()).getArgNumber()];
  return argument.kind == Manifest::Kind::Output && !argument.isInParts() &&
         isOfWideBoxes(cast<RankedTensorType>(store.getTile().getType()));
}

BarrierOp nextBarrier(Operation *op) {
  do
    op = op->getNextNode();
  while (op && !isa<BarrierOp>(op));
  return cast_if_present<BarrierOp>(op);
}

/// What is done first behind a barrier: products are started, which other work runs beside.
Operation *placeBehind(BarrierOp barrier) {
  Operation *place = barrier;
  for (Operation *op = barrier->getNextNode(); op && !isa<FinishOp, BarrierOp, AwaitOp>(op); op = op->getNextNode())
    if (isa<chunk::DotOp>(op) && isOfWarpgroups(op))
      place = op;
  return place;
}

/// Leaves a tile where its stage is, and stores it behind the barrier.
void storeBehind(StoreOp store, BarrierOp barrier) {
  OpBuilder builder(store);
  auto type = cast<RankedTensorType>(store.getTile().getType());
  RankedTensorType shared = withLayout(type, sharedLayout(type.getShape(), type.getElementTypeBitWidth() / 8));
  auto left = ConvertOp::create(builder, store.getLoc(), shared, store.getTile(),
                                builder.getI64IntegerAttr(SharedBytes::ofScratch(store).begin));
  left.setMatrices(true);
  store.getTileMutable().assign(left);
  store.setStaged(false);
  store.setMatrices(false);
  store.setBulk(true);
  store->removeAttr(scratchAttribute);
  barrier.setFence(true);
  store->moveAfter(placeBehind(barrier));
}

struct StoreBehindBarriers : stretto::impl::StoreBehindBarriersBase<StoreBehindBarriers> {
  using StoreBehindBarriersBase::StoreBehindBarriersBase;

  void runOnOperation() override {
    FuncOp function = getOperation();
    FailureOr<Chip> target = Chip::named(chip, [&] { return function.emitOpError(); });
    if (failed(target))
      return signalPassFailure();
    bool walksBack = walksInReverse(function) && function.getRole().getKind() == RoleKind::All;
    if (!walksBack || !target->hasBulkCopies || !function->hasAttr(Manifest::attributeName))
      return;
    FailureOr<Manifest> manifest = Manifest::leftOn(function);
    if (failed(manifest))
      return signalPassFailure();
    for (auto loop : function.getOps<scf::ForOp>()) {
      auto barriers = loop.getBody()->getOps<BarrierOp>();
      if (barriers.empty())
        continue;
      // Behind the first barrier of a turn stages are free again.
      BarrierOp first = *barriers.begin();
      SmallVector<StoreOp> stores(loop.getBody()->getOps<StoreOp>());
      for (StoreOp store : llvm::reverse(stores)) {
        BarrierOp next = nextBarrier(store);
        if (!next || store->isBeforeInBlock(first) || !isOfBoxes(store, *manifest) || !hasStageAlone(store, first))
          continue;
        first.setCopied(true);
        storeBehind(store, next);
      }
    }
  }
};
} // namespace
