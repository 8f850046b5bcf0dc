//===- PassLate.cpp - States are passed beside products -------------------===//

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Passes.h"
#include "passes/kernel/RegisterEstimate.h"

namespace stretto {
#define GEN_PASS_DEF_PASSLATE
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// Whether those who find outputs pass something to the walk: that may wait for what the walk passes to them.
static bool returnsTiles(ArrayRef<FuncOp> roles) {
  return llvm::any_of(roles, [](FuncOp role) {
    return role.getRole().getKind() == RoleKind::Outputs &&
           role.walk([](PassOp) { return WalkResult::interrupt(); }).wasInterrupted();
  });
}

/// Puts what is passed at the start of a turn behind the products that are started before the first one is waited for.
static void passBesideProducts(Block &body) {
  SmallVector<PassOp> passes;
  Operation *last = nullptr;
  for (Operation &op : body) {
    if (isa<FinishOp>(op) || op.getNumRegions())
      break;
    auto product = dyn_cast<chunk::DotOp>(op);
    if (product && isOfWarpgroups(product) && runsBesideOthers(product))
      last = product;
    else if (auto pass = dyn_cast<PassOp>(op); pass && !last && pass->use_empty())
      passes.push_back(pass);
  }
  if (last)
    for (PassOp pass : llvm::reverse(passes))
      pass->moveAfter(last);
}

namespace {
struct PassLate : stretto::impl::PassLateBase<PassLate> {
  void runOnOperation() override {
    for (auto walk : getOperation().getOps<FuncOp>()) {
      SmallVector<FuncOp, 4> roles = walk.getRolesOfBlock();
      auto loops = walk.getOps<scf::ForOp>();
      if (walk.getRole().getKind() != RoleKind::Walk || !llvm::hasSingleElement(loops) || returnsTiles(roles))
        continue;
      Block &body = *(*loops.begin()).getBody();
      SmallVector<Operation *> order;
      for (Operation &op : body.without_terminator())
        order.push_back(&op);
      passBesideProducts(body);
      if (!RegistersOfRoles(roles).suffice(walk))
        for (Operation *op : order)
          op->moveBefore(body.getTerminator());
    }
  }
};
} // namespace
