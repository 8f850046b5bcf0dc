//===- SendAhead.cpp - Fill bulk channels as far as they are deep ---------===//

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/SharedBytes.h"

namespace stretto {
#define GEN_PASS_DEF_SENDAHEAD
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// The first operation of its block that reads a tile, or has regions that do; nothing where nobody does.
static Operation *firstReader(ReceiveOp receive) {
  Operation *first = nullptr;
  for (Operation *user : receive->getUsers())
    if (Operation *own = receive->getBlock()->findAncestorOpInBlock(*user); !first || own->isBeforeInBlock(first))
      first = own;
  return first;
}

/// A tile is waited for where it is first read.
static void awaitLate(ReceiveOp receive) {
  if (Operation *reader = firstReader(receive))
    receive->moveBefore(reader);
}

/// A chunk for itself waits for what it has just asked the memory system for. It asks in the order in which tiles are
/// first read: what has come is computed with while others are on their way.
static void sendInOrder(Block &block) {
  SmallVector<std::pair<ReceiveOp, SendOp>> tiles;
  for (auto receive : block.getOps<ReceiveOp>()) {
    auto channel = receive.getChannel().getDefiningOp<ChannelOp>();
    SmallVector<Operation *> others(channel->getUsers());
    llvm::erase(others, receive.getOperation());
    auto send = others.size() == 1 ? dyn_cast<SendOp>(others.front()) : SendOp();
    if (channel.getBulk() && send && send->getBlock() == &block && !receive->use_empty())
      tiles.emplace_back(receive, send);
  }
  if (tiles.empty())
    return;
  for (auto &[receive, send] : tiles)
    awaitLate(receive);
  llvm::sort(tiles, [](auto &a, auto &b) { return a.first->isBeforeInBlock(b.first); });
  Operation *last = tiles.front().second;
  for (auto &[receive, send] : tiles)
    last = last->isBeforeInBlock(send) ? send.getOperation() : last;
  if (tiles.front().first->isBeforeInBlock(last))
    return;
  Operation *behind = last->getNextNode();
  for (auto &[receive, send] : tiles)
    send->moveBefore(behind);
}

namespace {

/// The bulk channels of one loop, which are equally deep; or one that is one tile deep, whose next tile is sent when
/// the tile has been read.
class Schedule {
public:
  Schedule(scf::ForOp loop, ArrayRef<ChunkCopies> channels, bool isReverse)
      : loop(loop), channels(channels), isReverse(isReverse), b(loop.getLoc(), loop),
        ahead(std::max<int64_t>(channelOf(channels.front()).getDepth(), 2) - 1) {}

  void write() {
    Value turns = b.createOrFold<arith::SubIOp>(loop.getUpperBound(), loop.getLowerBound());
    for (int64_t number = 0; number < ahead; ++number) {
      Value turn = constant(number);
      sendWhere(turns, turn, [&](ChunkCopies copies) { return further(copies.first.getChunk(), turn); });
    }

    b.setInsertionPointToStart(loop.getBody());
    Value turn = b.createOrFold<arith::SubIOp>(loop.getInductionVar(), loop.getLowerBound());
    b.setInsertionPoint(lastOfNext());
    Value distance = constant(ahead), next = b.createOrFold<arith::AddIOp>(turn, distance);
    sendWhere(turns, next, [&](ChunkCopies copies) { return further(copies.receive.getChunk(), distance); });
    for (ChunkCopies copies : channels) {
      copies.receive.getTurnMutable().assign(turn);
      for (ReceiveOp other : copies.others)
        other.getTurnMutable().assign(copies.isOfNext(other) ? next : turn);
      for (ReplaceOp replace : copies.replaced)
        replace.getTurnMutable().assign(turn);
      copies.first.erase();
      copies.next.erase();
    }
    // What is sent within a turn is still on its way when the next one begins.
    if (ahead == 1 && channelOf(channels.front()).getDepth() == 1)
      awaitLate(channels.front().receive);
  }

private:
  static ChannelOp channelOf(ChunkCopies copies) { return copies.receive.getChannel().getDefiningOp<ChannelOp>(); }

  static Value viewOf(ChunkCopies copies) { return copies.first.getView(); }

  Value constant(int64_t number) { return arith::ConstantIndexOp::create(b, number); }

  /// The chunk that is met so many turns later.
  Value further(Value chunk, Value turns) {
    return isReverse ? b.createOrFold<arith::SubIOp>(chunk, turns) : b.createOrFold<arith::AddIOp>(chunk, turns);
  }

  /// Sends the tiles of a turn, if there is such a turn.
  void sendWhere(Value turns, Value turn, function_ref<Value(ChunkCopies)> chunkOf) {
    SmallVector<Value> chunks;
    for (const ChunkCopies &copies : channels)
      chunks.push_back(chunkOf(copies));
    Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, turn, turns);
    auto condition = scf::IfOp::create(b, exists);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(condition.thenBlock());
    for (auto [copies, chunk] : llvm::zip(channels, chunks))
      SendOp::create(b, viewOf(copies), chunk, channelOf(copies), turn);
  }

  Operation *lastOfNext() {
    Operation *last = nullptr;
    for (ChunkCopies copies : channels) {
      // What the loop receives says which chunk it is.
      for (Operation *op : {copies.next.getOperation(), copies.receive.getChunk().getDefiningOp()})
        if (op && op->getBlock() == loop.getBody())
          last = last && op->isBeforeInBlock(last) ? last : op;
    }
    return last->getNextNode();
  }

  scf::ForOp loop;
  ArrayRef<ChunkCopies> channels;
  bool isReverse;
  ImplicitLocOpBuilder b;
  int64_t ahead;
};

/// Whether threads meet at the start of each turn, though nothing asks for it there. Between a barrier and the first
/// wait for a tile the assembler computes addresses once for a warp, where products want them; otherwise it may keep
/// them in registers of each lane, as the walk back of simple GLA had 150. Where registers are plenty the barrier costs
/// more, and where most tiles are waited for in the middle of a turn it was seen to change nothing.
bool meetsFirst(scf::ForOp loop) {
  auto function = loop->getParentOfType<FuncOp>();
  int64_t inBulk = 0, deep = 0;
  for (ChannelOp channel : function.getOps<ChannelOp>()) {
    inBulk += channel.getBulk();
    deep += channel.getBulk() && channel.getDepth() > 1;
  }
  return function.getRole().getKind() == RoleKind::All && walksInReverse(function) && 2 * deep > inBulk &&
         estimateRegisters(function) > mostOfWalkBack;
}

/// Threads wait for copies of their own in each turn where there are any, otherwise once.
void placeAwaits(scf::ForOp loop) {
  auto sendsItself = [](Operation *op) {
    return op
        ->walk([](SendOp send) {
          auto channel = send.getChannel().getDefiningOp<ChannelOp>();
          return channel.getBulk() ? WalkResult::advance() : WalkResult::interrupt();
        })
        .wasInterrupted();
  };
  if (sendsItself(loop))
    return;
  bool isBefore = false;
  for (Operation &op : *loop->getBlock())
    isBefore |= &op != loop.getOperation() && op.isBeforeInBlock(loop) && sendsItself(&op);
  bool meets = meetsFirst(loop);
  for (AwaitOp await : llvm::make_early_inc_range(loop.getBody()->getOps<AwaitOp>())) {
    OpBuilder builder(await);
    if (meets)
      BarrierOp::create(builder, await.getLoc(), /*fence=*/false);
    if (isBefore)
      await->moveBefore(loop);
    else
      await.erase();
    isBefore = false;
  }
}

/// What threads send several turns ahead is there when its own turn begins: a turn waits for all but the tiles of those
/// behind it. What they have sent before the loop they wait for before it.
void awaitInTurns(scf::ForOp loop, int64_t depth) {
  for (auto await : loop.getBody()->getOps<AwaitOp>())
    await.setPending(depth - 2);
  OpBuilder builder(loop);
  AwaitOp::create(builder, loop.getLoc());
}

/// What is one number, of a parameter that is there before a loop, is made of it before the loop.
void takeNumbersOut(scf::ForOp loop) {
  AwaitOp arrived;
  for (Operation *op = loop->getPrevNode(); op && !arrived; op = op->getPrevNode())
    arrived = dyn_cast<AwaitOp>(op);
  if (!arrived)
    return;
  auto isThere = [&](ReceiveOp receive) {
    return !receive.getTurn() && llvm::all_of(receive.getChannel().getUsers(), [&](Operation *user) {
      return !isa<SendOp>(user) || (user->getBlock() == arrived->getBlock() && user->isBeforeInBlock(arrived));
    });
  };
  auto isNumber = [](Type type) {
    auto tile = dyn_cast<RankedTensorType>(type);
    return tile && tile.getRank() == 0;
  };
  for (Operation &op : llvm::make_early_inc_range(loop.getBody()->without_terminator())) {
    auto receive = dyn_cast<ReceiveOp>(op);
    bool isSame = receive ? isThere(receive) : isMemoryEffectFree(&op) && op.getNumRegions() == 0;
    if (isSame && op.getNumResults() && llvm::all_of(op.getResultTypes(), isNumber) &&
        llvm::all_of(op.getOperands(), [&](Value value) { return loop.isDefinedOutsideOfLoop(value); }))
      op.moveBefore(loop);
  }
}

/// Whether an operation does nothing but send tiles to rings of the loop that it stands in, and does so on a condition.
bool sendsMetTiles(Operation &op) {
  auto condition = dyn_cast<scf::IfOp>(op);
  if (!condition || condition.getNumResults())
    return false;
  bool sends = false;
  WalkResult others = op.walk([&](Operation *inner) {
    auto send = dyn_cast<SendOp>(inner);
    auto channel = send ? send.getChannel().getDefiningOp<ChannelOp>() : ChannelOp();
    sends |= send != nullptr;
    bool isOfRing = channel && send.getTurn() && channel.getDepth() > 1;
    bool isKnown = send ? isOfRing : isa<scf::IfOp, scf::YieldOp>(inner) || isMemoryEffectFree(inner);
    return WalkResult(success(isKnown));
  });
  return sends && !others.wasInterrupted();
}

/// Who sends the next tile, and loads numbers of tokens that nobody copies, comes later to the products of a turn: it
/// is done while they run. Where few tiles are met they are to come early instead.
void sendBesideProducts(scf::ForOp loop) {
  if (!isItemOfChunk(loop->getParentOfType<FuncOp>()) || !meetsAllOfOneSide(loop))
    return;
  Operation *sender = nullptr, *last = nullptr;
  for (Operation &op : *loop.getBody()) {
    if (isa<FinishOp>(op))
      break;
    if (auto product = dyn_cast<chunk::DotOp>(op); product && runsBesideOthers(product))
      last = product;
    else if (!last && !sender && sendsMetTiles(op))
      sender = &op;
  }
  if (sender && last)
    sender->moveAfter(last);
}

/// The channels to which an operation sends, on a condition, and does nothing else.
SmallVector<ChannelOp> channelsSentTo(Operation &op) {
  auto condition = dyn_cast<scf::IfOp>(op);
  SmallVector<ChannelOp> channels;
  if (!condition || condition.getNumResults() || condition.elseBlock())
    return channels;
  for (Operation &inner : condition.thenBlock()->without_terminator()) {
    if (isMemoryEffectFree(&inner) && inner.getNumRegions() == 0)
      continue;
    auto send = dyn_cast<SendOp>(inner);
    auto channel = send ? send.getChannel().getDefiningOp<ChannelOp>() : ChannelOp();
    if (!channel || !channel.getOffset())
      return {};
    channels.push_back(channel);
  }
  return channels;
}

/// Whether nothing that comes before an operation of its block, and no other channel, has the bytes of some channels,
/// or sends to these or receives from them.
bool areFreeBefore(Operation &op, ArrayRef<ChannelOp> channels) {
  auto isBefore = [&](Operation *other) {
    Operation *own = op.getBlock()->findAncestorOpInBlock(*other);
    return own && own->isBeforeInBlock(&op);
  };
  for (ChannelOp channel : channels)
    if (llvm::any_of(channel->getUsers(), isBefore))
      return false;
  auto takesBytes = [&](Operation *other) {
    bool isOther = isa<ChannelOp>(other) ? !llvm::is_contained(channels, other) : isBefore(other);
    return WalkResult(failure(isOther && llvm::any_of(channels, [&](ChannelOp channel) {
                                return SharedBytes::of(channel).areTouchedBy(other);
                              })));
  };
  return !op.getParentOfType<FuncOp>().walk(takesBytes).wasInterrupted();
}

/// Moves an operation behind another one, with the numbers that it asks for, if these are of no memory.
void moveBehind(Operation &op, Operation *place) {
  SetVector<Operation *> needed;
  BackwardSliceOptions options;
  options.omitBlockArguments = true;
  options.omitUsesFromAbove = false;
  options.filter = [&](Operation *made) { return made->getBlock() == op.getBlock() && place->isBeforeInBlock(made); };
  if (failed(getBackwardSlice(&op, &needed, options)))
    return;
  if (!llvm::all_of(needed, [](Operation *made) { return isMemoryEffectFree(made) && made->getNumRegions() == 0; }))
    return;
  for (Operation *made : llvm::concat<Operation *>(needed.takeVector(), SmallVector<Operation *>{&op})) {
    made->moveAfter(place);
    place = made;
  }
}

/// The first tiles of other chunks that a chunk for itself meets are sent for behind its own, where their places are
/// free from the start: they come while it computes what comes first.
void sendMetEarly(Block &block) {
  SendOp last;
  for (auto send : block.getOps<SendOp>())
    if (send.getChannel().getDefiningOp<ChannelOp>().getBulk())
      last = send;
  if (!last)
    return;
  SmallVector<Operation *> senders;
  for (Operation *op = last->getNextNode(); op; op = op->getNextNode())
    senders.push_back(op);
  for (Operation *op : senders)
    if (SmallVector<ChannelOp> channels = channelsSentTo(*op);
        !channels.empty() && llvm::any_of(channels, bringsMetTiles) && areFreeBefore(*op, channels))
      moveBehind(*op, last);
}

/// The last operation before another one of its block that has to do with some channels, or with their bytes.
Operation *lastBefore(Operation &op, ArrayRef<ChannelOp> channels) {
  auto hasToDo = [&](Operation *other) {
    if (isa<ChannelOp>(other))
      return WalkResult::advance();
    bool isUser = llvm::any_of(other->getOperands(), [&](Value operand) {
      return llvm::is_contained(channels, operand.getDefiningOp<ChannelOp>());
    });
    bool takesBytes =
        llvm::any_of(channels, [&](ChannelOp channel) { return SharedBytes::of(channel).areTouchedBy(other); });
    return WalkResult(failure(isUser || takesBytes));
  };
  for (Operation *other = op.getPrevNode(); other; other = other->getPrevNode())
    if (other->walk(hasToDo).wasInterrupted())
      return other;
  return nullptr;
}

/// Those that another look-back meets are sent for as soon as the one before has read its last.
void sendMetAgain(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block)) {
    SmallVector<ChannelOp> channels = channelsSentTo(op);
    if (channels.empty() || !llvm::any_of(channels, bringsMetTiles))
      continue;
    Operation *last = lastBefore(op, channels);
    if (isa_and_nonnull<scf::ForOp>(last))
      moveBehind(op, last);
  }
}

/// Those of a channel that has one place, and are first read behind what is reduced of a product, are waited for there.
/// Right in front of who reads them the assembler was seen to want a register more than there are.
void awaitMetLate(scf::ForOp loop) {
  Block &body = *loop.getBody();
  auto product = llvm::find_if(body, [](Operation &op) { return isa<FinishOp>(op); });
  auto reduced = std::find_if(product, body.end(), [](Operation &op) { return isa<chunk::ReduceOp>(op); });
  if (reduced == body.end())
    return;
  for (auto receive : llvm::make_early_inc_range(body.getOps<ReceiveOp>())) {
    auto channel = receive.getChannel().getDefiningOp<ChannelOp>();
    Operation *reader = firstReader(receive);
    bool comesLater = reader && reduced->isBeforeInBlock(reader) && receive->isBeforeInBlock(&*reduced);
    if (comesLater && receive.getTurn() && channel.getBulk() && channel.getDepth() == 1 && bringsMetTiles(channel))
      receive->moveAfter(&*reduced);
  }
}

/// Numbers of tokens are asked for before the memory system is: behind that, the assembler was seen to load them when
/// threads had waited for copies of their own.
void loadFirst(Block &block) {
  auto isOfBulk = [](SendOp send) { return send.getChannel().getDefiningOp<ChannelOp>().getBulk(); };
  auto sends = block.getOps<SendOp>();
  auto first = llvm::find_if(sends, isOfBulk);
  if (first == sends.end())
    return;
  for (auto load : llvm::make_early_inc_range(block.getOps<LoadOp>())) {
    bool isThere = llvm::all_of(load->getOperands(), [&](Value operand) {
      return !operand.getDefiningOp() || operand.getDefiningOp()->isBeforeInBlock(*first);
    });
    if (isThere && SendOp(*first)->isBeforeInBlock(load))
      load->moveBefore(*first);
  }
}

/// Has threads send as many turns of segments ahead as there are places for, where these are more than two.
void sendInTurns(MutableArrayRef<ChannelOp> channels) {
  if (channels.empty() || channels.front().getDepth() == 2)
    return;
  SmallVector<ChunkCopies> copies =
      llvm::map_to_vector(channels, [](ChannelOp channel) { return *ChunkCopies::of(channel); });
  auto loop = cast<scf::ForOp>(copies.front().receive->getParentOp());
  auto depth = static_cast<int64_t>(channels.front().getDepth());
  Schedule(loop, copies, walksInReverse(loop->getParentOfType<FuncOp>())).write();
  awaitInTurns(loop, depth);
}

struct SendAhead : stretto::impl::SendAheadBase<SendAhead> {
  void runOnOperation() override {
    FuncOp function = getOperation();
    llvm::MapVector<Operation *, SmallVector<ChunkCopies>> loops;
    llvm::SetVector<Operation *> scheduled;
    SmallVector<ChannelOp> ofTurns;
    llvm::copy_if(function.getOps<ChannelOp>(), std::back_inserter(ofTurns), isSentInTurns);
    sendInTurns(ofTurns);
    for (ChannelOp channel : function.getOps<ChannelOp>()) {
      if (!channel.getBulk())
        continue;
      std::optional<ChunkCopies> copies = ChunkCopies::of(channel);
      if (!copies || copies->receive.getTurn())
        continue;
      auto loop = cast<scf::ForOp>(copies->receive->getParentOp());
      scheduled.insert(loop);
      if (channel.getDepth() > 1)
        loops[loop].push_back(*copies);
      else
        Schedule(loop, *copies, walksInReverse(function)).write();
    }
    // A role whose tiles another one sends may copy a parameter, once.
    if (function.getRole().getKind() != RoleKind::All)
      for (auto loop : function.getOps<scf::ForOp>())
        scheduled.insert(loop);
    for (auto &[loop, channels] : loops)
      Schedule(cast<scf::ForOp>(loop), channels, walksInReverse(function)).write();
    for (Operation *loop : scheduled) {
      placeAwaits(cast<scf::ForOp>(loop));
      takeNumbersOut(cast<scf::ForOp>(loop));
    }
    function.walk(sendBesideProducts);
    if (!isItemOfChunk(function))
      return;
    sendInOrder(*function.getBlock());
    if (llvm::none_of(function.getOps<ChannelOp>(), bringsMetTiles))
      return;
    sendMetEarly(*function.getBlock());
    sendMetAgain(*function.getBlock());
    for (auto loop : function.getOps<scf::ForOp>())
      awaitMetLate(loop);
    loadFirst(*function.getBlock());
  }
};
} // namespace
