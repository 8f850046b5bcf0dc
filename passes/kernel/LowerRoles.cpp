//===- LowerRoles.cpp - What the roles of a block pass to each other ------===//
//
// The warps of each role branch to its function, and meet at a barrier of their own from then on. A tile that one role
// passes to another has two barriers in shared memory (mbarrier): at the first each thread that has stored its part
// arrives, at the second each one that has read the tile. The k-th use of a place in the ring completes the k-th phase
// of both. One arrival of each warp, behind a barrier of its own, is as fast (docs/performance.md), but no checker of
// races follows it. Of a tile that the memory system copies for several roles the copy completes the first barrier, and
// the threads of those that do not send it arrive at the second.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

LogicalResult ThreadLowering::lowerRoles() {
  if (roles.size() == 1) {
    awaitLaunches();
    return lower(*function.getBlock());
  }
  int64_t most = 1, id = 1;
  for (FuncOp role : roles)
    most = std::max(most, role.getGroups());
  // A group that skips a use of a place would take the barrier's phase before for its own.
  for (FuncOp role : roles)
    for (auto channel : role.getOps<ChannelOp>())
      if (auto depth = static_cast<int64_t>(channel.getDepth()); channel.getPassed() && depth % most != 0)
        return channel.emitOpError("has ")
               << depth << " places for tiles that are passed to " << most << " groups of warps, expected a multiple";
  openPassed();
  awaitLaunches();
  RegistersOfRoles registersOf(roles);
  auto setRegisters = [&](int64_t count) {
    auto action =
        count < registersOf.atLaunch ? NVVM::SetMaxRegisterAction::decrease : NVVM::SetMaxRegisterAction::increase;
    if (count != registersOf.atLaunch)
      NVVM::SetMaxRegisterOp::create(b, static_cast<int32_t>(count), action);
  };
  OpBuilder::InsertionGuard guard(b);
  for (FuncOp role : roles) {
    function = role;
    roundsLate = registersOf.areScarce(role);
    for (group = 0; group < role.getGroups(); ++group, ++id) {
      int64_t warps = role.getWarps(), threads = warps * lanesOfWarp;
      bool isLast = role == roles.back() && group + 1 == role.getGroups();
      scf::IfOp others;
      if (!isLast) {
        others = scf::IfOp::create(b, b.less(b.warp, warps), /*addElse=*/true);
        others->setAttr(rolesAttribute, b.getI64IntegerAttr(threads));
        b.setInsertionPoint(others.thenBlock()->getTerminator());
      }
      setRegisters(registersOf.of(role));
      b.barrierId = id;
      b.threadsOfBarrier = threads;
      if (failed(lower(*role.getBlock())))
        return failure();
      if (isLast)
        break;
      // The next are counted from their own first warp on.
      b.setInsertionPoint(others.elseBlock()->getTerminator());
      b.warp = b.add(b.warp, -warps);
      thread = b.add(thread, -threads);
    }
  }
  function = roles.front();
  return success();
}

/// Makes the barriers of all that is passed, before any thread asks for one.
void ThreadLowering::openPassed() {
  // Those that read a tile: one group of a role.
  llvm::DenseMap<uint64_t, int64_t> readers;
  for (FuncOp role : roles)
    for (auto channel : role.getOps<ChannelOp>())
      if (channel.getPassed() && llvm::any_of(channel->getUsers(), llvm::IsaPred<ReleaseOp>))
        readers[channel.getOver().value_or(*channel.getPassed())] += lanesOfWarp * role.getWarps();
  onFirstThread([&] {
    for (FuncOp role : roles)
      for (auto channel : role.getOps<ChannelOp>()) {
        if (!channel.getPassed() || llvm::none_of(channel->getUsers(), llvm::IsaPred<PassOp, SendOp>))
          continue;
        auto depth = static_cast<int64_t>(channel.getDepth());
        int64_t threads = lanesOfWarp * role.getWarps();
        auto init = [&](Value barrier, int64_t arrivals) {
          NVVM::MBarrierInitOp::create(b, barrier, b.i32(arrivals), Value());
        };
        Value first = b.advance(shared, static_cast<int64_t>(*channel.getBarriers()));
        for (int64_t place = 0; place < depth; ++place)
          init(b.advance(first, place * bytesOfBarrier), channel.isShared() ? 1 : threads);
        for (int64_t place = depth; place < 2 * depth && !channel.getOver(); ++place)
          init(b.advance(first, place * bytesOfBarrier), readers.lookup(*channel.getPassed()));
        if (channel.isShared())
          init(barrierOfCleared(channel), lanesOfWarp * roleThatClears(channel).getWarps());
      }
    NVVM::FenceMbarrierInitOp::create(b);
    if (ends())
      b.store(scratchOf(ends()), b.i32(noEnd));
  });
  b.barrier();
}

void ThreadLowering::arrivePassed(Value passed, Value turn, bool isRead) {
  auto channel = passed.getDefiningOp<ChannelOp>();
  if (isRead && channel.getOver())
    channel = channelPassed(roles, *channel.getOver());
  Value barrier = barrierOf(channel, scalars.lookup(turn), isRead);
  NVVM::MBarrierArriveOp::create(b, b.getI64Type(), barrier, Value());
}

bool ThreadLowering::isRoundedLate(arith::TruncFOp op) {
  return roundsLate && op->hasOneUse() && isa_and_present<PassOp>(op->getNextNode()) &&
         op->getNextNode()->getOperand(0) == op.getResult();
}

void ThreadLowering::lowerPass(PassOp op) {
  auto target = cast<RankedTensorType>(op.getType()), source = cast<RankedTensorType>(op.getOperand().getType());
  SharedTile tile(target, placeInRing(op.getChannel(), op.getTurn(), target));
  // Of tiles that are left over others each thread replaces what it has read.
  if (auto channel = op.getChannel().getDefiningOp<ChannelOp>(); !channel.getOver() && !stripe.begin)
    awaitPhase(channel, scalars.lookup(op.getTurn()), /*ofReaders=*/true);
  if (auto rounding = op.getOperand().getDefiningOp<arith::TruncFOp>(); rounding && isRoundedLate(rounding))
    lowerElementwise(rounding);
  if (op.getMatrices())
    matricesToShared(registersOf(op.getOperand()), source, tile);
  else
    toShared(registersOf(op.getOperand()), source, tile);
  sharedTiles[op.getResult()] = tile;
  if (!stripe.isAll())
    return; // what is made in stripes is there when all of them are
  // Operands of products are read by a way of their own.
  if (cast<RankedTensorType>(op.getType()).getRank() == 2)
    fenceShared();
  arrivePassed(op.getChannel(), op.getTurn(), /*isRead=*/false);
}

void ThreadLowering::lowerRelease(ReleaseOp op) {
  // Who had the memory system store the tile waits until that has read it.
  bool isStored = llvm::any_of(op.getChannel().getUsers(), [](Operation *user) {
    return isa<ReceiveOp>(user) && llvm::any_of(user->getUsers(), llvm::IsaPred<StoreOp>);
  });
  if (isStored)
    NVVM::CpAsyncBulkWaitGroupOp::create(b, b.getI32IntegerAttr(0), b.getUnitAttr());
  if (op.getFence())
    fenceShared();
  arrivePassed(op.getChannel(), op.getTurn(), /*isRead=*/true);
}

void ThreadLowering::lowerConditionOfTile(ConditionOp op) {
  const SharedTile &tile = sharedTiles.find(op.getTile())->second;
  scalars.map(op.getResult(), b.load(tile.base, b.getI1Type(), 1)[0]);
}
