//===- LowerWalks.cpp - Loops over chunks, and how they end ---------------===//
//
// All roles of a block walk over its chunks. Where a chunk is not as it was expected (chunk.expect) the role that knows
// stores its number in shared memory, and the walks of all roles end: that of this role with the chunk, those of others
// before the one behind it, and a producer when it would wait for tiles that nobody reads any longer.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// Few counters tell a thread what is on its way. In walks back that carry matrices numbers of tokens which were loaded
/// before the loop would be waited for at their first use in each turn, and so would those that the turn loads for the
/// next, which are on their way by the same counter. So they are waited for before the loop; walks that have registers
/// to spare do so by themselves. To wait is to ask whether all numbers together are one that matters to nobody.
void ThreadLowering::awaitLoadsBefore(scf::ForOp loop) {
  SmallVector<Value> loaded;
  bool carriesMatrices = false;
  for (Value value : loop.getInitArgs()) {
    auto load = value.getDefiningOp<LoadOp>();
    if (load && load.getChunk())
      appendLive(value, loaded);
    else
      carriesMatrices |=
          isa<RankedTensorType>(value.getType()) && cast<RankedTensorType>(value.getType()).getRank() == 2;
  }
  bool loads = !loop.getBody()->getOps<LoadOp>().empty();
  if (!walksInReverse(function) || !carriesMatrices || !loads || loaded.empty())
    return;
  Value all;
  for (Value number : loaded) {
    unsigned bits = number.getType().getIntOrFloatBitWidth();
    Value word = arith::BitcastOp::create(b, b.getIntegerType(bits), number);
    if (bits < 32)
      word = arith::ExtUIOp::create(b, b.getI32Type(), word);
    else if (bits > 32)
      word = arith::TruncIOp::create(b, b.getI32Type(), word);
    all = all ? Value(arith::XOrIOp::create(b, all, word)) : word;
  }
  LLVM::InlineAsmOp::create(b, TypeRange(), all,
                            "{\n\t.reg .pred p;\n\tsetp.eq.u32 p, $0, 0x7fc0dead;\n\t@p nanosleep.u32 0;\n\t}", "r",
                            /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
}

LogicalResult ThreadLowering::lowerLoop(scf::ForOp loop) {
  SmallVector<Value> initial;
  for (Value value : loop.getInitArgs())
    appendLive(value, initial);
  awaitLoadsBefore(loop);
  Value lower = scalars.lookup(loop.getLowerBound()), step = scalars.lookup(loop.getStep());
  if (int64_t groups = function.getGroups(); groups > 1 && isa<FuncOp>(loop->getParentOp())) {
    lower = b.add(lower, b.mul(step, group));
    step = b.mul(step, groups);
  }
  if (ends() && isa<FuncOp>(loop->getParentOp()))
    return lowerWalk(loop, initial);
  auto lowered = scf::ForOp::create(b, lower, scalars.lookup(loop.getUpperBound()), step, initial);
  // The loop's registers stand in the order of the initial ones.
  auto distribute = [&](ValueRange targets, ValueRange values) {
    for (auto [target, source] : llvm::zip(targets, loop.getInitArgs()))
      takeLive(target, source, values);
  };
  scalars.map(loop.getInductionVar(), lowered.getInductionVar());
  distribute(loop.getRegionIterArgs(), lowered.getRegionIterArgs());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(lowered.getBody());
    if (failed(this->lower(*loop.getBody())))
      return failure();
    SmallVector<Value> next;
    for (Value value : loop.getBody()->getTerminator()->getOperands())
      appendLive(value, next);
    if (!next.empty())
      scf::YieldOp::create(b, next);
  }
  distribute(loop.getResults(), lowered.getResults());
  return success();
}

LogicalResult ThreadLowering::lowerWalk(scf::ForOp loop, ValueRange initial) {
  auto distribute = [&](ValueRange targets, ValueRange values) {
    for (auto [target, source] : llvm::zip(targets, loop.getInitArgs()))
      takeLive(target, source, values);
  };
  Value lower = scalars.lookup(loop.getLowerBound()), upper = scalars.lookup(loop.getUpperBound());
  bool knows = ends()->getParentOp() == loop.getOperation();
  SmallVector<Value> first = {lower, b.i1(true)};
  llvm::append_range(first, initial);
  auto walk = scf::WhileOp::create(b, ValueRange(first).getTypes(), first);
  SmallVector<Location> places(first.size(), b.getLoc());
  Block *before = b.createBlock(&walk.getBefore(), {}, ValueRange(first).getTypes(), places);
  {
    Value chunk = before->getArgument(0), last = b.truncate(chunk), goesOn = before->getArgument(1);
    // A producer has seen where walks end when it would wait for what is not read any longer: those who have read what
    // stood there a turn before knew.
    if (function.getRole().getKind() == RoleKind::Producer) {
      int64_t least = std::numeric_limits<int32_t>::max();
      for (auto channel : function.getOps<ChannelOp>())
        least = std::min(least, static_cast<int64_t>(channel.getDepth()));
      last = b.add(last, -least);
    }
    if (!knows)
      goesOn = b.less(last, endOfWalks());
    scf::ConditionOp::create(b, b.both(b.less(chunk, upper), goesOn), before->getArguments());
  }
  Block *after = b.createBlock(&walk.getAfter(), {}, ValueRange(first).getTypes(), places);
  scalars.map(loop.getInductionVar(), after->getArgument(0));
  constexpr unsigned ofWalk = 2; // the chunk, and whether the walk goes on
  distribute(loop.getRegionIterArgs(), ValueRange(after->getArguments()).drop_front(ofWalk));
  if (failed(this->lower(*loop.getBody())))
    return failure();
  SmallVector<Value> next = {b.add(after->getArgument(0), scalars.lookup(loop.getStep())),
                             knows ? scalars.lookup(ends().getCondition()) : after->getArgument(1)};
  for (Value value : loop.getBody()->getTerminator()->getOperands())
    appendLive(value, next);
  scf::YieldOp::create(b, next);
  b.setInsertionPointAfter(walk);
  distribute(loop.getResults(), walk.getResults().drop_front(ofWalk));
  if (function.getRole().getKind() == RoleKind::Producer)
    awaitUnread(b.sub(walk.getResult(0), lower));
  return success();
}

void ThreadLowering::lowerExpect(chunk::ExpectOp op) {
  // The threads of this role know it by themselves, others ask for it before their next turn.
  auto loop = op->getParentOfType<scf::ForOp>();
  Value holds = scalars.lookup(op.getCondition()), next = b.add(b.truncate(scalars.lookup(loop.getInductionVar())), 1);
  Value isBroken = b.compare(arith::CmpIPredicate::eq, holds, b.i1(false));
  onFirstThread([&] {
    b.setInsertionPointToStart(scf::IfOp::create(b, isBroken).thenBlock());
    LLVM::StoreOp::create(b, next, scratchOf(op), /*alignment=*/4, /*isVolatile=*/true);
  });
}

Value ThreadLowering::endOfWalks() {
  // What another role stores is asked for anew each time.
  return LLVM::LoadOp::create(b, b.getI32Type(), scratchOf(ends()), /*alignment=*/4, /*isVolatile=*/true);
}

void ThreadLowering::awaitUnread(Value turns) {
  onFirstThread([&] {
    for (auto channel : function.getOps<ChannelOp>())
      for (int64_t back = 1; back <= static_cast<int64_t>(channel.getDepth()); ++back) {
        Value turn = b.sub(turns, b.i64(back));
        OpBuilder::InsertionGuard guard(b);
        Value isSent = b.compare(arith::CmpIPredicate::sge, turn, b.i64(0));
        b.setInsertionPointToStart(scf::IfOp::create(b, isSent).thenBlock());
        awaitPhase(channel, turn);
      }
  });
}

void ThreadLowering::lowerReturn() {
  auto isBulk = [](StoreOp store) { return WalkResult(failure(store.getBulk())); };
  if (function.walk(isBulk).wasInterrupted())
    awaitStoredBoxes(); // shared memory is there until then
  if (!ends() || ends()->getParentOfType<FuncOp>() != function)
    return;
  onFirstThread([&] {
    Value isLeft = b.compare(arith::CmpIPredicate::ne, endOfWalks(), b.i32(noEnd));
    b.store(placeOfLeft(), arith::ExtUIOp::create(b, b.getI32Type(), isLeft).getResult());
  });
}
