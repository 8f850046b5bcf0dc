//===- LowerBoxes.cpp - Tiles that the memory system copies ---------------===//
//
// One thread orders the boxes of a tile (`cp.async.bulk.tensor`), whose bytes arrive at the barrier of its turn
// (mbarrier); every thread that wants the tile waits there. The k-th use of a place in the ring completes the k-th
// phase of its barrier, of which a wait asks for the parity. A tensor's description and its axes are those of
// runtime/TensorBoxes.h: columns, heads, tokens and sequences. What lies beyond them arrives as 0.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/ThreadLowering.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

void ThreadLowering::noteBoxes() {
  auto note = [&](Value view, RankedTensorType tile, int64_t rows) {
    Manifest::Argument &argument = manifest.arguments[cast<BlockArgument>(view).getArgNumber()];
    if (argument.kind == Manifest::Kind::Window)
      return;
    argument.box = boxColumnsOf(tile);
    argument.boxRows = rows;
  };
  for (FuncOp role : roles)
    role.walk([&](Operation *op) {
      if (auto send = dyn_cast<SendOp>(op); send && isBulk(send.getChannel())) {
        RankedTensorType tile = send.getChannel().getType().getTile();
        note(send.getView(), tile, tile.getDimSize(0));
      } else if (auto store = dyn_cast<StoreOp>(op); store && store.getBulk()) {
        auto tile = cast<RankedTensorType>(store.getTile().getType());
        note(store.getView(), tile, inSharedMemory(tile) ? tile.getDimSize(0) : rowsOfOwnBoxes(tile));
      }
    });
}

bool ThreadLowering::isBulk(Value channel) { return channel.getDefiningOp<ChannelOp>().getBulk(); }

void ThreadLowering::onFirstThread(function_ref<void()> body) {
  Value isFirst = b.compare(arith::CmpIPredicate::eq, thread, b.i32(0));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(scf::IfOp::create(b, isFirst).thenBlock());
  body();
}

void ThreadLowering::openBoxes(ChannelOp op) {
  Value first = b.advance(shared, static_cast<int64_t>(*op.getBarriers()));
  onFirstThread([&] {
    for (uint64_t place = 0; place < op.getDepth(); ++place)
      NVVM::MBarrierInitOp::create(b, b.advance(first, static_cast<int64_t>(place) * bytesOfBarrier), b.i32(1),
                                   Value());
    NVVM::FenceMbarrierInitOp::create(b);
  });
}

Value ThreadLowering::barrierOf(ChannelOp channel, Value turn, bool ofReaders) {
  auto depth = static_cast<int64_t>(channel.getDepth());
  int64_t offset = static_cast<int64_t>(*channel.getBarriers()) + (ofReaders ? depth * bytesOfBarrier : 0);
  Value place = arith::RemUIOp::create(b, b.truncate(turn), b.i32(depth));
  return b.advance(b.advance(shared, offset), b.mul(place, bytesOfBarrier));
}

Value ThreadLowering::barrierOfCleared(ChannelOp channel) {
  int64_t ofTiles = 2 * static_cast<int64_t>(channel.getDepth()) * bytesOfBarrier;
  return b.advance(shared, static_cast<int64_t>(*channel.getBarriers()) + ofTiles);
}

void ThreadLowering::awaitPhase(ChannelOp channel, Value turn, bool ofReaders) {
  Value round = arith::DivUIOp::create(b, b.truncate(turn), b.i32(static_cast<int64_t>(channel.getDepth())));
  // Of what has been read the phase before: the first is complete from the beginning.
  if (ofReaders)
    round = b.add(round, 1);
  Value parity = arith::AndIOp::create(b, round, b.i32(1));
  awaitParity(barrierOf(channel, turn, ofReaders), parity);
}

void ThreadLowering::awaitParity(Value barrier, Value parity) {
  constexpr int64_t mostNanoseconds = 10'000'000;
  NVVM::MBarrierTryWaitParityOp::create(b, barrier, parity, b.i32(mostNanoseconds));
}

void ThreadLowering::sendBoxes(SendOp op) {
  auto channel = op.getChannel().getDefiningOp<ChannelOp>();
  RankedTensorType type = channel.getType().getTile();
  const View &view = viewOf(op.getView());
  Value turn = scalars.lookup(op.getTurn());
  int64_t rows = type.getDimSize(0), columns = boxColumnsOf(type);
  int64_t bytes = type.getElementTypeBitWidth() / 8, boxBytes = rows * columns * bytes;
  onFirstThread([&] {
    auto depth = static_cast<int64_t>(channel.getDepth());
    Value place = arith::RemUIOp::create(b, b.truncate(turn), b.i32(depth));
    Value target = b.advance(channels.lookup(op.getChannel()), b.mul(place, sharedBytesOf(type)));
    if (channel.isShared())
      awaitPhase(channel, turn, /*ofReaders=*/true);
    Value barrier = barrierOf(channel, turn);
    int64_t boxes = llvm::divideCeil(type.getDimSize(1), columns);
    NVVM::MBarrierArriveExpectTxOp::create(b, TypeRange(), barrier, b.i32(boxes * boxBytes), NVVM::MemScopeKind::CTA,
                                           /*relaxed=*/false, /*predicate=*/Value());
    Value chunk = scalars.lookup(op.getChunk()), ownHead = b.truncate(view.head), row, owner;
    if (view.argument->kind == Manifest::Kind::Checkpoint) {
      // One that does not exist lies before the first: it arrives as 0.
      Place place = checkpointOf(chunk);
      row = b.i32(0);
      owner = b.select(place.exists, b.truncate(b.add(checkpoint, place.number)), b.i32(-1));
    } else {
      row = b.mul(chunk, rows);
      row = b.truncate(b.select(packed, b.add(firstToken, row), row));
      owner = b.select(packed, b.i32(0), b.truncate(sequence));
    }
    Value channelOfSlice = view.argument->sliced ? b.mul(slice, type.getDimSize(1)) : b.i32(0);
    for (int64_t box = 0; box < boxes; ++box) {
      Value place = LLVM::AddrSpaceCastOp::create(b, b.pointerType(7), b.advance(target, box * boxBytes));
      Value column = b.add(channelOfSlice, box * columns);
      NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
          b, place, view.boxes, ValueRange{column, ownHead, row, owner}, barrier, /*im2colOffsets=*/ValueRange(),
          /*multicastMask=*/Value(), /*l2CacheHint=*/Value(), NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false,
          /*group=*/NVVM::CTAGroupKindAttr(), /*predicate=*/Value());
    }
  });
}

void ThreadLowering::onFirstLane(function_ref<void()> body) {
  Value isFirst = b.compare(arith::CmpIPredicate::eq, b.lane, b.i32(0));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(scf::IfOp::create(b, isFirst).thenBlock());
  body();
}

void ThreadLowering::awaitStoredBoxes() {
  onFirstLane([&] { NVVM::CpAsyncBulkWaitGroupOp::create(b, b.getI32IntegerAttr(0), b.getUnitAttr()); });
}

void ThreadLowering::ifWhole(StoreOp op, function_ref<void()> whole, function_ref<void()> cut) {
  Value first = b.mul(scalars.lookup(op.getChunk()), manifest.chunk), valid = validTokens(first, manifest.chunk);
  Value isWhole = b.compare(arith::CmpIPredicate::sge, valid, b.i32(manifest.chunk));
  OpBuilder::InsertionGuard guard(b);
  auto either = scf::IfOp::create(b, isWhole, /*addElse=*/true);
  b.setInsertionPoint(either.elseBlock()->getTerminator());
  {
    llvm::SaveAndRestore lane(b.lane, hidden(b.lane));
    cut();
  }
  b.setInsertionPoint(either.thenBlock()->getTerminator());
  whole();
}

void ThreadLowering::orderBoxes(StoreOp op, const SharedTile &tile, int64_t boxRows, const Layout *ofWarps) {
  const View &view = viewOf(op.getView());
  RankedTensorType type = tile.type;
  int64_t boxColumns = boxColumnsOf(type), bytes = tile.elementBytes();
  auto placeOf = [&](int64_t row, int64_t column) { return (column * type.getDimSize(0) + row * boxColumns) * bytes; };
  auto ofWarp = [&](auto contributionOf) -> Value {
    SmallVector<uint64_t> basis;
    if (ofWarps)
      for (uint64_t vector : ofWarps->basis(Layout::Warp))
        basis.push_back(contributionOf(ofWarps->coordinate(vector, 0), ofWarps->coordinate(vector, 1)));
    Value sum = b.linear(b.warp, basis);
    return sum ? sum : b.i32(0);
  };
  Value row, owner;
  if (view.argument->kind == Manifest::Kind::Kept) {
    row = b.i32(0);
    owner = b.truncate(b.add(checkpoint, keptPlaceOf(op).number));
  } else {
    Value first = b.mul(scalars.lookup(op.getChunk()), manifest.chunk);
    row = b.truncate(b.select(packed, b.add(firstToken, first), first));
    owner = b.select(packed, b.i32(0), b.truncate(sequence));
  }
  row = b.add(row, ofWarp([](int64_t row, int64_t) { return row; }));
  Value column = ofWarp([](int64_t, int64_t column) { return column; });
  if (view.argument->sliced)
    column = b.add(column, b.mul(slice, type.getDimSize(1)));
  Value place = b.advance(tile.base, ofWarp(placeOf));
  for (int64_t at = 0; at < type.getDimSize(0); at += boxRows)
    for (int64_t from = 0; from < type.getDimSize(1); from += boxColumns)
      if (!ofWarps || !(ofWarps->flat({at, from}) & ofWarps->reach(Layout::Warp)))
        NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp::create(
            b, view.boxes, b.advance(place, placeOf(at, from)),
            ValueRange{b.add(column, from), b.truncate(view.head), b.add(row, at), owner}, /*l2CacheHint=*/Value(),
            NVVM::TMAStoreMode::TILE, /*predicate=*/Value());
  NVVM::CpAsyncBulkCommitGroupOp::create(b);
}

void ThreadLowering::storeBoxes(StoreOp op, RankedTensorType rows) {
  auto type = cast<RankedTensorType>(op.getTile().getType());
  SharedTile tile = scratchTile(scratchOf(op), type);
  auto meet = [&] { NVVM::SyncWarpOp::create(b, b.i32(-1)); };
  awaitStoredBoxes();
  meet();
  matricesToShared(registersOf(op.getTile()), type, tile);
  fenceShared();
  meet();
  Layout layout = *layoutOf(type);
  ifWhole(
      op, [&] { onFirstLane([&] { orderBoxes(op, tile, rowsOfOwnBoxes(type), &layout); }); },
      [&] {
        storeRows(op, fromShared(tile, rows), rows);
        meet();
      });
}

void ThreadLowering::storeLeft(StoreOp op) {
  const SharedTile &tile = sharedTiles.find(op.getTile())->second;
  RankedTensorType type = tile.type;
  // Warps take turns at it.
  int64_t before = 0;
  for (auto store : op->getBlock()->getOps<StoreOp>())
    before += store->isBeforeInBlock(op) && inSharedMemory(store.getTile().getType());
  Value own = b.compare(arith::CmpIPredicate::eq, thread, b.i32(before % function.getWarps() * lanesOfWarp));
  if (viewOf(op.getView()).argument->kind == Manifest::Kind::Kept) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(scf::IfOp::create(b, b.both(own, keptPlaceOf(op).exists)).thenBlock());
    orderBoxes(op, tile, type.getDimSize(0), /*ofWarps=*/nullptr);
    return;
  }
  ifWhole(
      op,
      [&] {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToStart(scf::IfOp::create(b, own).thenBlock());
        orderBoxes(op, tile, type.getDimSize(0), /*ofWarps=*/nullptr);
      },
      [&] {
        int64_t perAccess = viewOf(op.getView()).argument->perAccess();
        RankedTensorType rows = withLayout(type, copyLayout(type.getShape(), perAccess, function.getWarps()));
        storeRows(op, fromShared(tile, rows), rows);
      });
}

/// Rows of a window are a ring, and no box: threads copy them, and have met when the first one arrives for all.
void ThreadLowering::arriveWithRows(SendOp op) {
  NVVM::CpAsyncCommitGroupOp::create(b);
  NVVM::CpAsyncWaitGroupOp::create(b, 0);
  lowerBarrier(/*fence=*/true);
  onFirstThread([&] {
    Value barrier = barrierOf(op.getChannel().getDefiningOp<ChannelOp>(), scalars.lookup(op.getTurn()));
    NVVM::MBarrierArriveExpectTxOp::create(b, TypeRange(), barrier, b.i32(0), NVVM::MemScopeKind::CTA,
                                           /*relaxed=*/false, /*predicate=*/Value());
  });
}

bool ThreadLowering::hasTokens(ChannelOp channel) {
  auto sendsCheckpoints = [&](ChannelOp end) {
    return llvm::any_of(end->getUsers(), [&](Operation *user) {
      auto send = dyn_cast<SendOp>(user);
      return send && viewOf(send.getView()).argument->kind == Manifest::Kind::Checkpoint;
    });
  };
  // Another role may send them.
  return !sendsCheckpoints(channel) && llvm::none_of(roles, [&](FuncOp role) {
    return llvm::any_of(role.getOps<ChannelOp>(), [&](ChannelOp end) {
      return end.getPassed() && end.getPassed() == channel.getPassed() && sendsCheckpoints(end);
    });
  });
}

void ThreadLowering::awaitBoxes(ReceiveOp op, const SharedTile &tile) {
  awaitPhase(op.getChannel().getDefiningOp<ChannelOp>(), scalars.lookup(op.getTurn()));

  if (!hasTokens(op.getChannel().getDefiningOp<ChannelOp>()))
    return;
  // Behind a sequence of a packed batch, of which one chunk is cut, lies the next one, and before it another.
  auto channel = op.getChannel().getDefiningOp<ChannelOp>();
  int64_t rows = tile.type.getDimSize(0);
  Value first = b.mul(scalars.lookup(op.getChunk()), rows), valid = validTokens(first, rows);
  if (!manifest.reverse && mayBeNegative(op.getChunk()))
    valid = noneBefore(first, valid);
  Value isCut = b.both(packed, b.less(valid, rows));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(scf::IfOp::create(b, isCut).thenBlock());
  if (channel.isShared() && roleThatClears(channel) != function)
    awaitParity(barrierOfCleared(channel), b.i32(0));
  else
    clearRows(channel, tile, valid);
}

FuncOp ThreadLowering::roleThatClears(ChannelOp channel) {
  return *llvm::find_if(roles, [&](FuncOp role) {
    return llvm::any_of(role.getOps<ChannelOp>(), [&](ChannelOp end) {
      return end.getPassed() && end.getPassed() == channel.getPassed() &&
             llvm::any_of(end->getUsers(), llvm::IsaPred<ReceiveOp>);
    });
  });
}

void ThreadLowering::clearRows(ChannelOp channel, const SharedTile &tile, Value valid) {
  constexpr int64_t pieceBytes = 16;
  ArrayRef<int64_t> shape = tile.type.getShape();
  Type element = tile.type.getElementType();
  int64_t perPiece = pieceBytes / tile.elementBytes();
  Layout layout = copyLayout(shape, perPiece, function.getWarps());
  Addresses addresses(b, tile, layout.basis(Layout::Lane), layout.basis(Layout::Warp));
  Registers zeros(perPiece, b.zero(element));
  for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += perPiece) {
    if (ThreadBuilder::inside(layout, shape, reg) == ThreadBuilder::Inside::Never)
      continue;
    Value target = addresses.at(layout.at(Layout::Register, reg));
    Value isBeyond = b.compare(arith::CmpIPredicate::sge, b.coordinate(layout, 0, reg), valid);
    isBeyond = b.both(b.both(isBeyond, b.isInside(layout, shape, reg)), b.isFirstCopy(layout));
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(scf::IfOp::create(b, isBeyond).thenBlock());
    b.store(target, zeros);
  }
  lowerBarrier(/*fence=*/true);
  if (channel.isShared())
    NVVM::MBarrierArriveOp::create(b, b.getI64Type(), barrierOfCleared(channel), Value());
}

//===----------------------------------------------------------------------===//
// States that are fetched
//===----------------------------------------------------------------------===//

/// Where the rows of an entry begin in global memory: `base` is that of a part.
static Value firstRow(ThreadBuilder &b, Value base, const Manifest::Argument &part) {
  return b.advance(base, -part.column * stretto::bytesOf(part.type));
}

// One barrier for all heads that a block has one after the other: each completes a phase.
void ThreadLowering::lowerFetch(FetchOp op) {
  Value rows, barrier;
  {
    OpBuilder::InsertionGuard guard(b);
    if (loopOverHeads)
      b.setInsertionPoint(loopOverHeads);
    rows = scratchOf(op);
    barrier = b.advance(rows, llvm::alignTo(op.bytesOfRows(), bytesOfBarrier));
    onFirstThread([&] {
      NVVM::MBarrierInitOp::create(b, barrier, b.i32(1), Value());
      NVVM::FenceMbarrierInitOp::create(b);
    });
    // Nobody waits at a barrier before it is made.
    b.barrier();
  }
  Value parity = b.i32(0);
  if (loopOverHeads)
    parity = arith::AndIOp::create(b, loopOverHeads.getInductionVar(), b.i32(1));
  const View &first = viewOf(op.getViews()[0]);
  auto bytes = static_cast<int32_t>(op.bytesOfRows());
  onFirstThread([&] {
    NVVM::MBarrierArriveExpectTxOp::create(b, TypeRange(), barrier, b.i32(bytes), NVVM::MemScopeKind::CTA,
                                           /*relaxed=*/false, /*predicate=*/Value());
    Value target = LLVM::AddrSpaceCastOp::create(b, b.pointerType(7), rows);
    NVVM::CpAsyncBulkGlobalToSharedClusterOp::create(b, target, firstRow(b, first.base, *first.argument), barrier,
                                                     b.i32(bytes), /*multicastMask=*/Value(), /*l2CacheHint=*/Value());
  });
  for (auto [source, result] : llvm::zip_equal(op.getViews(), op.getFetched())) {
    View view = viewOf(source);
    view.base = view.final = b.advance(rows, view.argument->column * stretto::bytesOf(view.argument->type));
    view.rowStride = view.finalStride = b.i64(static_cast<int64_t>(op.getColumns()));
    view.arrival = barrier;
    view.parity = parity;
    fetched[result] = view;
  }
}

void ThreadLowering::lowerLeave(LeaveOp op) {
  auto fetch = op.getFetched().getDefiningOp<FetchOp>();
  const View &first = viewOf(fetch.getViews()[0]);
  Value rows = scratchOf(fetch);
  // The memory system reads by a way of its own. Of nothing that was fetched is anything asked from here on.
  lowerBarrier(/*fence=*/true);
  onFirstThread([&] {
    OpBuilder::InsertionGuard guard(b);
    if (first.wanted)
      b.setInsertionPointToStart(scf::IfOp::create(b, first.wanted).thenBlock());
    NVVM::CpAsyncBulkSharedCTAToGlobalOp::create(b, firstRow(b, first.final, *first.argument), rows,
                                                 b.i32(static_cast<int32_t>(fetch.bytesOfRows())),
                                                 /*l2CacheHint=*/Value(), /*byteMask=*/Value());
    // Shared memory is there until it has been read.
    NVVM::CpAsyncBulkCommitGroupOp::create(b);
    NVVM::CpAsyncBulkWaitGroupOp::create(b, b.getI32IntegerAttr(0), b.getUnitAttr());
  });
}
