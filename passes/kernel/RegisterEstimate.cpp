//===- RegisterEstimate.cpp - How many registers a kernel takes -----------===//

#include "passes/kernel/RegisterEstimate.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernel/Lifetimes.h"
#include "runtime/Manifest.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// What the launcher is to know of a function; nothing special where it does not say. Passes ask for it many times
/// while they look at one function, and its text takes longer to read than to compare.
static const Manifest &manifestOf(FuncOp function) {
  static thread_local std::string known;
  static thread_local Manifest manifest;
  auto text = function->getAttrOfType<StringAttr>(Manifest::attributeName);
  StringRef asked = text ? text.getValue() : StringRef();
  if (asked == known)
    return manifest;
  known = asked;
  manifest = {};
  if (!text)
    return manifest;
  if (llvm::Error error = Manifest::fromJson(asked).moveInto(manifest)) {
    llvm::consumeError(std::move(error));
    manifest = {};
  }
  return manifest;
}

bool stretto::kernel::walksInReverse(FuncOp function) { return manifestOf(function).reverse; }

bool stretto::kernel::isOfGradient(FuncOp function) {
  const Manifest &manifest = manifestOf(function);
  return manifest.reverse || llvm::any_of(manifest.arguments, [](const Manifest::Argument &argument) {
           return argument.kind == Manifest::Kind::Kept;
         });
}

bool stretto::kernel::hasSlices(FuncOp function) { return manifestOf(function).slices > 1; }

/// What is kept beside tiles while products are formed: the operands of those that warps load, and what loops within
/// loops and walks back need. A walk forwards whose products all read shared memory themselves has none of these.
static int64_t registersOfProducts(FuncOp function) {
  constexpr int64_t ofOperands = 36;
  bool isPlain = !walksInReverse(function);
  function.walk([&](Operation *op) {
    if (isa<chunk::DotOp>(op))
      isPlain &= isOfWarpgroups(op);
    else if (isa<scf::ForOp>(op)) // one in a rare branch counts what is in its registers as tiles
      isPlain &= isa<FuncOp>(op->getParentOp()) || isInRareBranch(op);
  });
  return isPlain ? 0 : ofOperands;
}

int64_t stretto::kernel::registersOfAddresses(FuncOp function) {
  constexpr int64_t registersOfAddress = 2;
  // Numbers that another role leaves have none here.
  ArrayRef<Manifest::Argument> described = manifestOf(function).arguments;
  auto isOfOthers = [&](BlockArgument argument) {
    auto view = dyn_cast<ViewType>(argument.getType());
    bool isOutput =
        argument.getArgNumber() < described.size() && described[argument.getArgNumber()].kind == Manifest::Kind::Output;
    return isOutput && view && argument.use_empty() && view.getTile().getRank() < 2;
  };
  auto arguments = function.getBlock()->getArguments();
  return registersOfAddress * static_cast<int64_t>(llvm::count_if(arguments, std::not_fn(isOfOthers)));
}

int64_t stretto::kernel::estimateRegisters(FuncOp function) {
  return Lifetimes(function).peak().registers + registersOfProducts(function) + registersOfAddresses(function);
}

bool stretto::kernel::leavesOver(ArrayRef<FuncOp> roles) {
  return llvm::any_of(roles, [](FuncOp role) {
    return llvm::any_of(role.getOps<ChannelOp>(), [](ChannelOp channel) { return channel.getOver().has_value(); });
  });
}

/// Of what the loop of a function carries.
static int64_t registersOfStates(FuncOp function) {
  int64_t bits = 0;
  for (auto loop : function.getOps<scf::ForOp>())
    for (Value carried : loop.getRegionIterArgs())
      bits += Lifetimes::bitsOf(carried);
  return llvm::divideCeil(bits, Lifetimes::bitsOfRegister);
}

/// Shares of what a producer leaves, as roles are estimated. Where tiles are made in stripes the walk makes what it
/// passes as it stores it, too: the assembler was seen to take a sixth less than each is estimated at.
void RegistersOfRoles::divide(ArrayRef<FuncOp> roles, int64_t left) {
  constexpr int64_t step = 8, fewest = 24, mostToSet = 240;
  const int64_t besideStates = leavesOver(roles) ? 40 : 60; // a walk that adds products of others itself
  // Those who make tiles in stripes keep the addresses of all of them; who has the memory system store what was passed,
  // where that goes.
  auto storesPassed = [](FuncOp role) {
    return role.walk([](StoreOp store) { return WalkResult(failure(inSharedMemory(store.getTile().getType()))); })
        .wasInterrupted();
  };
  auto wanted = [&](FuncOp role) {
    bool keepsAddresses = role.getRole().getKind() == RoleKind::Ahead || storesPassed(role);
    return estimateRegisters(role) + (keepsAddresses ? ofAddresses : 0);
  };
  SmallVector<FuncOp> others;
  llvm::copy_if(roles, std::back_inserter(others),
                [](FuncOp role) { return role.getRole().getKind() != RoleKind::Producer; });
  int64_t all = 0;
  for (FuncOp role : others)
    all += wanted(role) * role.getThreads();
  for (FuncOp role : others) {
    int64_t share = wanted(role) * left / all / step * step;
    if (role == roles.front()) // whose states leave no choice
      share = std::max<int64_t>(share, llvm::alignTo(registersOfStates(role) + besideStates, step));
    ofRoles[role] = std::clamp(share, fewest, mostToSet);
    left -= ofRoles[role] * role.getThreads();
    all -= wanted(role) * role.getThreads();
  }
}

int64_t RegistersOfRoles::wantedBy(FuncOp role) {
  constexpr int64_t step = 8, most = 232;
  return static_cast<int64_t>(llvm::alignTo(std::min(estimateRegisters(role) + ofAssembler, most), step));
}

/// Whether, with what the walk wants, others have fewer registers than their tiles take together, as those do that
/// meet other chunks behind a walk.
bool RegistersOfRoles::leavesTooFew(ArrayRef<FuncOp> roles, int64_t left) {
  constexpr int64_t fewer = 16;
  FuncOp walk = roles.front();
  int64_t wanted = wantedBy(walk) * walk.getThreads();
  bool meetChunks = false;
  for (FuncOp role : roles.drop_front())
    if (role.getRole().getKind() != RoleKind::Producer) {
      wanted += (estimateRegisters(role) - fewer) * role.getThreads();
      meetChunks |= role.walk([](scf::ForOp loop) {
                          return isa<scf::ForOp>(loop->getParentOp()) ? WalkResult::interrupt() : WalkResult::advance();
                        })
                        .wasInterrupted();
    }
  return meetChunks && wanted > left;
}

RegistersOfRoles::RegistersOfRoles(ArrayRef<FuncOp> roles) {
  constexpr int64_t ofProcessor = 65536, step = 8, fewest = 24, ofProducer = 40, ofAll = 255, warpsOfGroup = 4;
  constexpr int64_t mostToSet = 240, besideFew = 16; // what the assembler keeps of a role without products
  int64_t threads = 0;
  bool areWarpgroups = true;
  for (FuncOp role : roles) {
    threads += role.getThreads();
    areWarpgroups &= role.getWarps() % warpsOfGroup == 0;
  }
  atLaunch = std::min(ofProcessor / threads / step * step, ofAll);
  for (FuncOp role : roles)
    ofRoles[role] = atLaunch;
  if (atLaunch == ofAll || !areWarpgroups)
    return;
  int64_t left = atLaunch * threads;
  auto give = [&](FuncOp role, int64_t registers) {
    ofRoles[role] = registers;
    left -= registers * role.getThreads();
    threads -= role.getThreads();
  };
  // Where others have all that they would use, a producer keeps the addresses of many tiles.
  auto isProducer = [](FuncOp role) { return role.getRole().getKind() == RoleKind::Producer; };
  int64_t unused = left;
  for (FuncOp role : roles) {
    bool isAhead = role.getRole().getKind() == RoleKind::Ahead;
    int64_t wanted = isAhead ? estimateRegisters(role) + ofAddresses : wantedBy(role);
    unused -= (isProducer(role) ? ofProducer : wanted) * role.getThreads();
  }
  for (FuncOp role : roles.drop_front())
    if (isProducer(role))
      give(role, unused >= 0 ? ofProducer : fewest);
  areShares = !leavesOver(roles) && leavesTooFew(roles, left);
  if (leavesOver(roles) || areShares) {
    divide(roles, left);
    return;
  }
  give(roles.front(), std::max<int64_t>(wantedBy(roles.front()), atLaunch));
  // Those that find outputs have what those that run ahead leave.
  SmallVector<FuncOp> others;
  for (RoleKind kind : {RoleKind::Ahead, RoleKind::Outputs})
    llvm::copy_if(roles.drop_front(), std::back_inserter(others),
                  [&](FuncOp role) { return role.getRole().getKind() == kind; });
  for (FuncOp role : others) {
    int64_t share = std::max(left / threads / step * step, fewest);
    if (role != others.back())
      share = std::min<int64_t>(share, llvm::alignTo(estimateRegisters(role) + besideFew, step));
    give(role, std::min(share, mostToSet));
  }
}

bool stretto::kernel::isInRareBranch(Operation *op) {
  for (Operation *inner = op; !isa<FuncOp>(inner->getParentOp()); inner = inner->getParentOp())
    if (auto condition = dyn_cast<scf::IfOp>(inner->getParentOp());
        condition && inner->getBlock() == condition.elseBlock())
      return true;
  return false;
}

int64_t stretto::kernel::estimateWork(Operation *of) {
  int64_t work = 0;
  of->walk([&](Operation *op) {
    if (isa<arith::ConstantOp, chunk::BroadcastOp, ReceiveOp, FinishOp>(op) || isInRareBranch(op))
      return;
    for (Type type : op->getResultTypes())
      if (auto tile = dyn_cast<RankedTensorType>(type))
        work += tile.getNumElements() / (isa<chunk::DotOp>(op) ? 2 : 1);
  });
  return work;
}

int64_t stretto::kernel::estimateWork(FuncOp function) {
  int64_t work = 0;
  for (auto loop : function.getOps<scf::ForOp>())
    work += estimateWork(loop.getOperation());
  return work;
}

/// Of a multiprocessor, of which each block has a little that is the system's.
static constexpr int64_t bytesOfProcessor = int64_t(228) * 1024, ofSystem = 1024;

int64_t stretto::kernel::bytesOfBlock(int64_t blocks) { return bytesOfProcessor / blocks - ofSystem; }

int64_t stretto::kernel::blocksOfInverses(FuncOp function, int64_t bytes) {
  constexpr int64_t registersOfProcessor = 65536, lanes = 32, ofInverse = 80;
  if (function.getOps<chunk::InverseOp>().empty())
    return 1;
  int64_t ofBlock = std::max(estimateRegisters(function), ofInverse) * function.getWarps() * lanes;
  // The assembler finds ways to do with a few less.
  int64_t byRegisters = (registersOfProcessor + ofBlock / 2) / ofBlock;
  return std::clamp<int64_t>(byRegisters, 1, std::max<int64_t>(bytesOfProcessor / (bytes + ofSystem), 1));
}
