//===- ShareChannels.cpp - Tiles that two roles read come once ------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"

namespace stretto {
#define GEN_PASS_DEF_SHARECHANNELS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

/// The input of which a channel has the tiles of chunk after chunk, as the memory system copies them.
static BlockArgument inputOf(ChannelOp channel) {
  std::optional<ChunkCopies> copies = channel.getBulk() ? ChunkCopies::of(channel) : std::nullopt;
  return copies && !channel.getPassed() ? dyn_cast<BlockArgument>(copies->first.getView()) : BlockArgument();
}

/// Leaves the sends to the other role.
static void receiveAlone(ChannelOp channel) {
  ChunkCopies copies = *ChunkCopies::of(channel);
  auto loop = cast<scf::ForOp>(copies.receive->getParentOp());
  OpBuilder builder = OpBuilder::atBlockBegin(loop.getBody());
  Value turn = builder.createOrFold<arith::SubIOp>(loop.getLoc(), loop.getInductionVar(), loop.getLowerBound());
  copies.receive.getTurnMutable().assign(turn);
  copies.first.erase();
  copies.next.erase();
  // Nothing is waited for before it is wanted.
  Block &body = *loop.getBody();
  Operation *first = body.getTerminator();
  for (Operation *user : copies.receive->getUsers())
    if (Operation *own = body.findAncestorOpInBlock(*user); own->isBeforeInBlock(first))
      first = own;
  copies.receive->moveBefore(first);
}

/// Where a walk first waits for the second role, which is given rows of zeros by then; else where it has done all else.
static Operation *beforeWaiting(scf::ForOp loop) {
  auto waits = [](Operation &op) {
    auto receive = dyn_cast<ReceiveOp>(op);
    auto channel = receive ? receive.getChannel().getDefiningOp<ChannelOp>() : ChannelOp();
    return channel && channel.getPassed() && !channel.getBulk();
  };
  return &*llvm::find_if(*loop.getBody(),
                         [&](Operation &op) { return waits(op) || &op == loop.getBody()->getTerminator(); });
}

/// Has the first role send a tile that the second alone reads, where that is one of each chunk that the loops walk
/// over; the channel of the first.
static ChannelOp sendFor(ChannelOp other, FuncOp first) {
  ChunkCopies copies = *ChunkCopies::of(other);
  auto loop = cast<scf::ForOp>(copies.receive->getParentOp());
  auto loops = first.getOps<scf::ForOp>();
  if (!llvm::hasSingleElement(loops) || copies.receive.getChunk() != loop.getInductionVar() ||
      copies.first.getChunk() != loop.getLowerBound())
    return {};
  scf::ForOp own = *loops.begin();
  Location loc = other.getLoc();
  OpBuilder builder = OpBuilder::atBlockBegin(first.getBlock());
  auto channel = cast<ChannelOp>(builder.clone(*other));
  Value view = first.getBlock()->getArgument(cast<BlockArgument>(copies.first.getView()).getArgNumber());
  builder.setInsertionPoint(own);
  SendOp::create(builder, loc, view, own.getLowerBound(), channel, Value());
  builder.setInsertionPointToStart(own.getBody());
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value next = arith::AddIOp::create(builder, loc, own.getInductionVar(), one);
  SendOp::create(builder, loc, view, next, channel, Value());
  // The walk waits for it, too, so that places are sent to in order.
  builder.setInsertionPoint(beforeWaiting(own));
  ReceiveOp::create(builder, loc, channel.getType().getTile(), channel, own.getInductionVar(), Value());
  return channel;
}

/// A walk, and the role that finds outputs behind it.
static void share(FuncOp first, FuncOp second) {
  int64_t count = llvm::count_if(first.getOps<ChannelOp>(), [](ChannelOp channel) { return channel.getPassed(); });
  for (auto own : first.getOps<ChannelOp>()) {
    BlockArgument input = inputOf(own);
    for (auto other : second.getOps<ChannelOp>()) {
      BlockArgument ofOther = inputOf(other);
      if (!input || !ofOther || input.getArgNumber() != ofOther.getArgNumber() || own.getType() != other.getType())
        continue;
      own.setPassed(count);
      other.setPassed(count++);
      receiveAlone(other);
      break;
    }
  }
  for (auto other : second.getOps<ChannelOp>()) {
    ChannelOp own = inputOf(other) ? sendFor(other, first) : ChannelOp();
    if (!own)
      continue;
    own.setPassed(count);
    other.setPassed(count++);
    receiveAlone(other);
  }
}

/// Threads that send nothing wait for nothing that they sent.
static void eraseAwaits(FuncOp function) {
  if (function.walk([](SendOp) { return WalkResult::interrupt(); }).wasInterrupted())
    return;
  function.walk([](AwaitOp await) { await.erase(); });
}

/// Whether threads of groups would copy tiles that others read.
static bool sendsInGroups(FuncOp function) {
  return function.getGroups() > 1 && function.walk([](SendOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

namespace {
struct ShareChannels : stretto::impl::ShareChannelsBase<ShareChannels> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<FuncOp>()) {
      auto beside = function.getBeside() ? getOperation().lookupSymbol<FuncOp>(*function.getBeside()) : FuncOp();
      if (!beside || beside.getRole().getKind() != RoleKind::Outputs)
        continue;
      share(function, beside);
      eraseAwaits(beside);
      if (sendsInGroups(beside)) {
        beside.emitOpError("has ") << beside.getGroups()
                                   << " groups of warps and copies tiles itself, expected one group";
        return signalPassFailure();
      }
    }
  }
};
} // namespace
