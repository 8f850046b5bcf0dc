//===- LowerRoles.cpp - What the roles of a block pass to each other ------===//
//
// The warps of each role branch to its function, and meet at a barrier of their own from then on. A tile that one role
// passes to another has two barriers in shared memory (mbarrier): at the first each thread that has stored its part
// arrives, at the second each one that has read the tile. The k-th use of a place in the ring completes the k-th phase
// of both. One arrival of each warp, behind a barrier of its own, is as fast (docs/performance.md), but no checker of
// races follows it. Of a tile that the memory system copies for both roles the copy completes the first barrier, and
// the threads of the role that does not send it arrive at the second.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

LogicalResult ThreadLowering::lowerRoles() {
  if (!beside)
    return lower(*function.getBlock());
  // A group that skips a use of a place would take the barrier's phase before for its own.
  int64_t groups = beside.getGroups();
  for (auto channel : function.getOps<ChannelOp>())
    if (auto depth = static_cast<int64_t>(channel.getDepth());
        channel.getPassed() && !channel.getBulk() && depth % groups != 0)
      return channel.emitOpError("has ") << depth << " places for tiles that are passed to " << groups
                                         << " groups of warps, expected a multiple";
  openPassed();
  int64_t own = function.getWarps();
  RegistersOfRoles registersOf(function, beside);
  auto setRegisters = [&](int64_t count) {
    auto action =
        count < registersOf.atLaunch ? NVVM::SetMaxRegisterAction::decrease : NVVM::SetMaxRegisterAction::increase;
    if (count != registersOf.atLaunch)
      NVVM::SetMaxRegisterOp::create(b, static_cast<int32_t>(count), action);
  };
  auto divide = [&](int64_t warps) {
    auto roles = scf::IfOp::create(b, b.less(b.warp, warps), /*addElse=*/true);
    roles->setAttr(rolesAttribute, b.getI64IntegerAttr(warps * lanesOfWarp));
    return roles;
  };
  scf::IfOp roles = divide(own);
  auto lowerRole = [&](mlir::Block *target, int64_t id, int64_t warps, int64_t registers) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(target->getTerminator());
    setRegisters(registers);
    b.barrierId = id;
    b.threadsOfBarrier = warps * lanesOfWarp;
    return lower(*function.getBlock());
  };
  if (failed(lowerRole(roles.thenBlock(), 1, own, registersOf.walk)))
    return failure();
  // The same of the other function, whose warps are counted from the first of its own on.
  std::swap(function, beside);
  OpBuilder::InsertionGuard guard(b);
  int64_t before = own;
  for (own = function.getWarps(); group < function.getGroups(); ++group) {
    b.setInsertionPoint(roles.elseBlock()->getTerminator());
    b.warp = b.add(b.warp, -before);
    thread = b.add(thread, -before * lanesOfWarp);
    bool isLast = group + 1 == function.getGroups();
    mlir::Block *target = roles.elseBlock();
    if (!isLast) {
      roles = divide(own);
      target = roles.thenBlock();
    }
    if (failed(lowerRole(target, 2 + group, own, registersOf.ahead)))
      return failure();
    before = own;
  }
  return success();
}

/// Makes the barriers of all that is passed, before any thread asks for one.
void ThreadLowering::openPassed() {
  onFirstThread([&] {
    for (auto channel : function.getOps<ChannelOp>()) {
      if (!channel.getPassed())
        continue;
      auto depth = static_cast<int64_t>(channel.getDepth());
      bool isFirst = llvm::any_of(channel->getUsers(), llvm::IsaPred<PassOp, SendOp>);
      int64_t threadsOfFirst = lanesOfWarp * (isFirst ? function : beside).getWarps();
      int64_t threadsOfSecond = lanesOfWarp * (isFirst ? beside : function).getWarps();
      auto init = [&](Value barrier, int64_t arrivals) {
        NVVM::MBarrierInitOp::create(b, barrier, b.i32(arrivals), Value());
      };
      Value first = b.advance(shared, static_cast<int64_t>(*channel.getBarriers()));
      for (int64_t place = 0; place < depth; ++place)
        init(b.advance(first, place * bytesOfBarrier), channel.isShared() ? 1 : threadsOfFirst);
      for (int64_t place = depth; place < 2 * depth; ++place)
        init(b.advance(first, place * bytesOfBarrier), threadsOfSecond);
      if (channel.isShared())
        init(barrierOfCleared(channel), threadsOfFirst);
    }
    NVVM::FenceMbarrierInitOp::create(b);
  });
  b.barrier();
}

void ThreadLowering::arrivePassed(Value channel, Value turn, bool isRead) {
  Value barrier = barrierOf(channel.getDefiningOp<ChannelOp>(), scalars.lookup(turn), isRead);
  NVVM::MBarrierArriveOp::create(b, b.getI64Type(), barrier, Value());
}

void ThreadLowering::lowerPass(PassOp op) {
  auto target = cast<RankedTensorType>(op.getType()), source = cast<RankedTensorType>(op.getOperand().getType());
  SharedTile tile(target, placeInRing(op.getChannel(), op.getTurn(), target));
  awaitPhase(op.getChannel().getDefiningOp<ChannelOp>(), scalars.lookup(op.getTurn()), /*ofReaders=*/true);
  if (op.getMatrices())
    matricesToShared(registersOf(op.getOperand()), source, tile);
  else
    toShared(registersOf(op.getOperand()), source, tile);
  sharedTiles[op.getResult()] = tile;
  // Operands of products are read by a way of their own.
  if (target.getRank() == 2)
    fenceShared();
  arrivePassed(op.getChannel(), op.getTurn(), /*isRead=*/false);
}

void ThreadLowering::lowerRelease(ReleaseOp op) {
  if (op.getFence())
    fenceShared();
  arrivePassed(op.getChannel(), op.getTurn(), /*isRead=*/true);
}

void ThreadLowering::lowerConditionOfTile(ConditionOp op) {
  const SharedTile &tile = sharedTiles.find(op.getTile())->second;
  scalars.map(op.getResult(), b.load(tile.base, b.getI1Type(), 1)[0]);
}
