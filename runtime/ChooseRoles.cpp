//===- ChooseRoles.cpp - Warps before or behind those that walk -----------===//

#include "dialect/kernel/Chip.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassManager.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"
#include "runtime/LoweringSteps.h"

using namespace mlir;
using namespace stretto;

/// Whether kernels of a call are of a kind for which roles were measured.
bool Lowering::mayHaveRoles() const {
  const kernel::Chip *chip = isCpu() ? nullptr : kernel::Chip::find(request.target.name);
  return chip && chip->hasWarpgroups && !isStep() && bytesOf(request.element) == 2;
}

static bool sumsUpRows(kernel::FuncOp role) {
  return role.walk([](chunk::ReduceOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// The most that `wanted` says of a walk and of the role beside it; 0 where it says so of any, or where a role has
/// fewer registers than it wants.
int64_t Lowering::warpsOfRoles(ModuleOp form, const KernelForm &roles,
                               llvm::function_ref<int64_t(kernel::FuncOp walk, kernel::FuncOp beside)> wanted) {
  OwningOpRef<ModuleOp> planned = form.clone();
  if (llvm::Error error = run(*planned, [&](OpPassManager &passes) { buildKernelPipeline(passes, roles); })) {
    llvm::consumeError(std::move(error));
    return 0;
  }
  // Where results have one role, a walk that leaves what they begin with is to have one, too: all have as many warps.
  auto results = planned->lookupSymbol<kernel::FuncOp>(name);
  if (!isOfGradient && (!results || results.getRole().getKind() != kernel::RoleKind::Walk))
    return 0;
  int64_t most = 0;
  for (auto walk : planned->getOps<kernel::FuncOp>()) {
    if (walk.getRole().getKind() != kernel::RoleKind::Walk)
      continue;
    SmallVector<kernel::FuncOp, 4> block = walk.getRolesOfBlock();
    kernel::RegistersOfRoles registers(block);
    // Gradients, and outputs that others prepare, were seen to need a few less.
    // What meets other chunks passes its tiles as it makes them.
    bool meetsChunks = llvm::any_of(block, [](kernel::FuncOp role) {
      return llvm::any_of(role.getOps<kernel::ChannelOp>(), kernel::bringsMetTiles);
    });
    int64_t further = isOfGradient                   ? (roles.ahead ? 24 : 12)
                      : roles.within || meetsChunks  ? 40
                      : roles.ahead && roles.outputs ? 16
                                                     : 0;
    // With fewer than these outputs were seen to spill, whatever the estimate.
    constexpr int64_t fewestOfOutputs = 88, fewestOfAddresses = 10;
    bool fits = llvm::all_of(block, [&](kernel::FuncOp role) {
      bool isOfOutputs = role.getRole().getKind() == kernel::RoleKind::Outputs;
      bool isOfMany = roles.within && role.getWarps() > walk.getWarps();
      // What a row is summed up of is counted as if it were there at once, and leaves room for addresses.
      int64_t margin = !isOfMany ? further : sumsUpRows(role) ? 0 : -fewestOfAddresses;
      return kernel::estimateRegisters(role) <= registers.of(role) + margin &&
             (!isOfOutputs || registers.of(role) >= fewestOfOutputs);
    });
    int64_t warps = fits ? wanted(walk, block[1]) : 0;
    if (!warps)
      return 0;
    most = std::max(most, warps);
  }
  return most;
}

/// Whether a tile is sent when the one before has been read.
static bool isLate(kernel::ChannelOp channel) {
  return channel.getDepth() == 1 && llvm::any_of(channel->getUsers(), [](Operation *user) {
           return isa<kernel::SendOp>(user) && user->getParentOfType<scf::ForOp>();
         });
}

/// Where eight warps would do everything, four walk and others run ahead of them, if no tile of the walk comes later
/// for it: as many as walk where that is a quarter of the work and more, twice as many where it is most of it. Where it
/// is less, or nearly all, eight warps that do everything are faster (docs/performance.md).
int64_t Lowering::warpsAhead(ModuleOp form, int64_t warpsOfWalk) {
  constexpr double least = 0.25, asMuch = 0.6, nearlyAll = 0.82;
  // Walks that solve systems of equations, or take inverses from another kernel, were not measured so.
  WalkResult systems =
      form.walk([](Operation *op) { return WalkResult(failure(isa<chunk::SolveOp, chunk::InverseOp>(op))); });
  if (!mayHaveRoles() || isOfGradient || systems.wasInterrupted())
    return 0;
  auto find = [&](int64_t further) {
    KernelForm kernel = kernelForm();
    kernel.warps = warpsOfWalk;
    kernel.ahead = further;
    return warpsOfRoles(form, kernel, [&](kernel::FuncOp walk, kernel::FuncOp beside) -> int64_t {
      if (llvm::any_of(walk.getOps<kernel::ChannelOp>(), isLate))
        return 0;
      auto before = static_cast<double>(kernel::estimateWork(beside));
      double share = before / (before + static_cast<double>(kernel::estimateWork(walk)));
      if (share < least || share > nearlyAll)
        return 0;
      return share > asMuch ? 2 * warpsOfWalk : warpsOfWalk;
    });
  };
  int64_t wanted = find(warpsOfWalk);
  return wanted > warpsOfWalk ? find(wanted) : wanted;
}

/// Whether a walk makes no matrices in its turns but its states, which it multiplies, adds products to, and passes on
/// as products read them.
static bool makesOnlyStates(kernel::FuncOp walk) {
  auto isMatrix = [](Type type) {
    auto tile = dyn_cast<RankedTensorType>(type);
    return tile && tile.getRank() > 1;
  };
  auto isPartOfThat = [&](Operation *op) {
    auto product = dyn_cast<chunk::DotOp>(op);
    return llvm::none_of(op->getResultTypes(), isMatrix) || (product && kernel::isOfWarpgroups(product)) ||
           isa<arith::ConstantOp, arith::TruncFOp, arith::MulFOp, chunk::BroadcastOp, kernel::PassOp, kernel::ReceiveOp,
               kernel::FinishOp>(op);
  };
  return llvm::all_of(walk.getOps<scf::ForOp>(), [&](scf::ForOp loop) {
    WalkResult result = loop.getBody()->walk([&](Operation *op) { return WalkResult(success(isPartOfThat(op))); });
    return !result.wasInterrupted();
  });
}

/// Of a gradient of what looks back walks carry states and nothing else, and add products to them of what is made of
/// tiles alone: others make that.
int64_t Lowering::warpsAheadOfWalks(ModuleOp form) {
  constexpr int64_t twoGroups = 8;
  constexpr double least = 0.5;
  WalkResult lookbacks = form.walk([](chunk::LookbackOp) { return WalkResult::interrupt(); });
  if (!mayHaveRoles() || !lookbacks.wasInterrupted() || request.warps || request.ahead == 0)
    return 0;
  KernelForm kernel = kernelForm();
  kernel.ahead = request.ahead > 0 ? request.ahead : twoGroups;
  kernel.outputs = 0;
  return warpsOfRoles(form, kernel, [&](kernel::FuncOp walk, kernel::FuncOp beside) -> int64_t {
    auto before = static_cast<double>(kernel::estimateWork(beside));
    double all = before + static_cast<double>(kernel::estimateWork(walk));
    return makesOnlyStates(walk) && before >= least * all ? kernel.ahead : 0;
  });
}

/// Whether it multiplies any of them.
static bool multipliesStates(kernel::FuncOp walk) {
  return llvm::any_of(walk.getOps<scf::ForOp>(), [](scf::ForOp loop) {
    return llvm::any_of(loop.getBody()->getOps<arith::MulFOp>(),
                        [](arith::MulFOp product) { return cast<RankedTensorType>(product.getType()).getRank() > 1; });
  });
}

/// The bytes of the rows that a turn of a walk moves.
static int64_t bytesOfTurn(kernel::FuncOp walk) {
  FailureOr<Manifest> manifest = Manifest::leftOn(walk);
  if (failed(manifest))
    return 0;
  int64_t bytes = 0;
  for (const Manifest::Argument &argument : manifest->arguments)
    if (argument.kind == Manifest::Kind::Input || argument.kind == Manifest::Kind::Output)
      bytes += manifest->chunk * static_cast<int64_t>(llvm::product_of(argument.shape)) * bytesOf(argument.type);
  return bytes;
}

/// Whether a walk of a gradient gains from others that find results behind it: where it has few states, or where so
/// many numbers are computed for each byte that one role does not keep up with memory.
static bool gainsBehindWalkBack(kernel::FuncOp walk, kernel::FuncOp outputs) {
  constexpr int64_t fewRegisters = 128, numbersOfByte = 2;
  return kernel::estimateRegisters(walk) <= fewRegisters ||
         kernel::estimateWork(walk) + kernel::estimateWork(outputs) >= numbersOfByte * bytesOfTurn(walk);
}

/// Whether channels have decays of their own, in the given form if one is, so that rows are rescaled as far as their
/// range allows it.
static bool hasDecaysOfChannels(ModuleOp form, std::optional<chunk::DecayForm> of = std::nullopt) {
  auto isOfChannels = [&](chunk::DecayDotOp scores) {
    bool isMatrix = cast<RankedTensorType>(scores.getAmount().getType()).getRank() > 1;
    return WalkResult(failure(isMatrix && (!of || scores.getForm() == *of)));
  };
  return form.walk(isOfChannels).wasInterrupted();
}

bool Lowering::divideWithin(ModuleOp form, KernelForm roles) {
  if (!mayHaveRoles() || isOfGradient || request.takesLeft || !roles.ahead || !roles.outputs ||
      !hasDecaysOfChannels(form))
    return false;
  // The model has looked at that (rolesOfProducer).
  if (request.ahead < 0 && request.outputs < 0)
    return true;
  roles.within = true;
  roles.setTilesAside = false;
  OwningOpRef<ModuleOp> planned = form.clone();
  if (llvm::Error error = run(*planned, [&](OpPassManager &passes) { buildKernelPipeline(passes, roles); })) {
    llvm::consumeError(std::move(error));
    return false;
  }
  int64_t expecting = 0;
  for (auto function : planned->getOps<kernel::FuncOp>()) {
    auto findsExpected = [](chunk::ExpectOp) { return WalkResult::interrupt(); };
    if (!function.walk(findsExpected).wasInterrupted())
      continue;
    ++expecting;
    // Who is beside it, before or behind it in the row of roles.
    bool hasProducer = llvm::any_of(planned->getOps<kernel::FuncOp>(), [&](kernel::FuncOp walk) {
      SmallVector<kernel::FuncOp, 4> block = walk.getRolesOfBlock();
      return llvm::is_contained(block, function) && block.back().getRole().getKind() == kernel::RoleKind::Producer &&
             llvm::all_of(block, [](kernel::FuncOp role) { return role.getGroups() == 1; });
    });
    if (!hasProducer)
      return false;
  }
  return expecting > 0;
}

/// Where a walk does nothing but multiply and add states, others make for it what it adds, and others again find
/// outputs; in slices, where each chunk is little work and much waiting, two groups of either, which take chunks in
/// turns. Blocks of four warps of which a multiprocessor has two are faster than the first; gradients, and what solves
/// systems of equations, were not measured so (docs/performance.md).
Lowering::Roles Lowering::rolesOfProducer(ModuleOp form, int64_t warpsOfWalk) {
  constexpr int64_t warpsOfGroup = 4;
  constexpr double leastAhead = 0.1;
  WalkResult systems =
      form.walk([](Operation *op) { return WalkResult(failure(isa<chunk::SolveOp, chunk::InverseOp>(op))); });
  bool isSliced = llvm::any_of(form.getOps<chunk::KernelOp>(), [](chunk::KernelOp kernel) {
    return kernel.getSlices() > 1 && !kernel.argumentsOf(chunk::ArgumentKind::State).empty();
  });
  // One role multiplies factors by exchanges between lanes, where a product adds logarithms up: of factors, three roles
  // are faster than two blocks.
  bool mayHaveTwo = !isSliced && mayHaveTwoBlocks(form, warpsOfWalk);
  bool multipliesFactors = hasDecaysOfChannels(form, chunk::DecayForm::Factor);
  if (!mayHaveRoles() || isOfGradient || systems.wasInterrupted() || (mayHaveTwo && !multipliesFactors))
    return {};
  KernelForm kernel = kernelForm();
  kernel.warps = warpsOfWalk;
  auto gains = [&](kernel::FuncOp walk) {
    double ahead = 0, all = 0;
    bool hasProducer = false, isOfGroups = true, expects = false, leavesStates = true;
    for (kernel::FuncOp role : walk.getRolesOfBlock()) {
      auto work = static_cast<double>(kernel::estimateWork(role));
      all += work;
      hasProducer |= role.getRole().getKind() == kernel::RoleKind::Producer;
      leavesStates &= !role.walk([](kernel::StoreOp) { return WalkResult::interrupt(); }).wasInterrupted();
      expects |= role.walk([](chunk::ExpectOp) { return WalkResult::interrupt(); }).wasInterrupted();
      if (role.getRole().getKind() != kernel::RoleKind::Ahead)
        continue;
      ahead += work;
      isOfGroups &= role.getWarps() == warpsOfGroup || kernel.within;
    }
    return hasProducer && isOfGroups && makesOnlyStates(walk) && (!kernel.ahead || ahead >= leastAhead * all) &&
           (expects == kernel.within || leavesStates);
  };
  constexpr int64_t one = warpsOfGroup, two = 2 * warpsOfGroup;
  SmallVector<Roles, 4> tried = {{one, one}};
  bool expectsRange = hasDecaysOfChannels(form);
  if (isSliced && !expectsRange)
    tried = {{two, two}, {one, two}, {one, one}, {0, two}};
  // Rows that are rescaled are most of the work: twice the warps for them, each with half as many, where these have
  // registers enough; the frame of segments takes some.
  if (expectsRange && !mayHaveTwo)
    tried = {{two, one}, {one, one}};
  kernel.within = expectsRange;
  for (Roles roles : tried) {
    kernel.ahead = roles.ahead;
    kernel.outputs = roles.outputs;
    if (warpsOfRoles(form, kernel, [&](kernel::FuncOp walk, kernel::FuncOp) { return int64_t(gains(walk)); }))
      return roles;
  }
  return {};
}

/// Where a walk only adds to its states, others find the outputs behind it. Where it multiplies them, too, they do if
/// that is not much more work than the walk; else they are what is waited for, and one role, or two blocks, is as fast
/// (docs/performance.md).
int64_t Lowering::warpsOfOutputs(ModuleOp form, int64_t warpsOfWalk) {
  constexpr int64_t warpsOfGroup = 4;
  constexpr double mostBesideProducts = 1.3;
  if (!mayHaveRoles())
    return 0;
  KernelForm kernel = kernelForm();
  kernel.warps = warpsOfWalk;
  kernel.ahead = 0;
  kernel.outputs = warpsOfGroup;
  return warpsOfRoles(form, kernel, [&](kernel::FuncOp walk, kernel::FuncOp outputs) -> int64_t {
    if (isOfGradient)
      return !multipliesStates(walk) && gainsBehindWalkBack(walk, outputs) ? warpsOfGroup : 0;
    auto ofWalk = static_cast<double>(kernel::estimateWork(walk));
    bool isBalanced = static_cast<double>(kernel::estimateWork(outputs)) <= mostBesideProducts * ofWalk;
    return makesOnlyStates(walk) && (isBalanced || !multipliesStates(walk)) ? warpsOfGroup : 0;
  });
}
