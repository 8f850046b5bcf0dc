//===- ShareChannels.cpp - Tiles that several roles read come once --------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "runtime/Manifest.h"

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

/// How many chunks before that of the turn stands the one whose tile a channel has, in each turn of the loop of a role,
/// from its first to its last; nothing where that is not so.
static std::optional<int64_t> lagOf(ChannelOp channel) {
  ChunkCopies copies = *ChunkCopies::of(channel);
  auto loop = cast<scf::ForOp>(copies.receive->getParentOp());
  auto behind = [](Value chunk, Value turn) -> std::optional<int64_t> {
    if (chunk == turn)
      return 0;
    auto difference = chunk.getDefiningOp<arith::SubIOp>();
    return difference && difference.getLhs() == turn ? getConstantIntValue(difference.getRhs()) : std::nullopt;
  };
  std::optional<int64_t> lag = behind(copies.receive.getChunk(), loop.getInductionVar());
  return lag && behind(copies.first.getChunk(), loop.getLowerBound()) == lag ? lag : std::nullopt;
}

/// Whether several roles may read the tiles of a channel. Of those that come late the first ones lie before the
/// sequence: roles tell each other of one chunk alone that its rows are cleared, the last.
static bool mayShare(ChannelOp channel) { return lagOf(channel).value_or(0) == 0; }

/// The chunk that stands so many before another.
static Value lagBehind(OpBuilder &builder, Location loc, Value chunk, int64_t lag) {
  if (lag == 0)
    return chunk;
  return arith::SubIOp::create(builder, loc, chunk, arith::ConstantIndexOp::create(builder, loc, lag));
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
  // Where a walk may end a chunk waits once: what is asked of one tile is loaded beside what is asked of another.
  auto readsTile = [](Operation &op) {
    return llvm::any_of(op.getOperands(), [](Value value) { return value.getDefiningOp<ReceiveOp>(); });
  };
  if (!body.getOps<chunk::ExpectOp>().empty())
    first = &*llvm::find_if(body, readsTile);
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
  auto loops = first.getOps<scf::ForOp>();
  std::optional<int64_t> lag = lagOf(other);
  if (!llvm::hasSingleElement(loops) || !lag)
    return {};
  scf::ForOp own = *loops.begin();
  Location loc = other.getLoc();
  OpBuilder builder = OpBuilder::atBlockBegin(first.getBlock());
  auto channel = cast<ChannelOp>(builder.clone(*other));
  Value view = first.getBlock()->getArgument(cast<BlockArgument>(copies.first.getView()).getArgNumber());
  builder.setInsertionPoint(own);
  SendOp::create(builder, loc, view, lagBehind(builder, loc, own.getLowerBound(), *lag), channel, Value());
  builder.setInsertionPointToStart(own.getBody());
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value next = arith::AddIOp::create(builder, loc, own.getInductionVar(), one);
  SendOp::create(builder, loc, view, lagBehind(builder, loc, next, *lag), channel, Value());
  // The walk waits for it, too, so that places are sent to in order.
  builder.setInsertionPoint(beforeWaiting(own));
  ReceiveOp::create(builder, loc, channel.getType().getTile(), channel,
                    lagBehind(builder, loc, own.getInductionVar(), *lag), Value());
  return channel;
}

/// A walk, and the role that finds outputs behind it.
static void share(FuncOp first, FuncOp second) {
  int64_t count = numberBehindPassed({first, second});
  for (auto own : first.getOps<ChannelOp>()) {
    BlockArgument input = inputOf(own);
    for (auto other : second.getOps<ChannelOp>()) {
      BlockArgument ofOther = inputOf(other);
      if (!input || !ofOther || input.getArgNumber() != ofOther.getArgNumber() || own.getType() != other.getType() ||
          !mayShare(own) || !mayShare(other))
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

/// Whether threads of groups would copy tiles of a turn, which others read. Parameters each group copies before its
/// first turn, to a place of its own.
static bool sendsInGroups(FuncOp function) {
  auto isOfTurn = [](SendOp send) { return WalkResult(failure(bool(send.getChunk()))); };
  return function.getGroups() > 1 && function.walk(isOfTurn).wasInterrupted();
}

/// Whether a walk with a role beside it leaves nothing but states.
static bool leavesStates(ArrayRef<FuncOp> roles) {
  return roles.size() > 1 && llvm::none_of(roles, [](FuncOp role) {
           return role.walk([](StoreOp) { return WalkResult::interrupt(); }).wasInterrupted();
         });
}

/// Whether all threads meet between two operations of a block, to know what each of them answers.
static bool haveMet(Operation *before, Operation *behind) {
  for (Operation *op = before; op != behind; op = op->getNextNode())
    if (auto asked = dyn_cast<chunk::WithinOp>(op); asked && !askedTogether(asked))
      return true;
  return false;
}

/// Has tiles that a role makes of others left where these came, if nobody else receives them and each thread has by
/// then read the numbers whose places it stores to, or has met all others since.
static void leaveOver(ArrayRef<FuncOp> roles, FuncOp role) {
  auto hasNoCopies = [](const Layout &layout) {
    return layout.bits(Layout::Register) + layout.bits(Layout::Lane) + layout.bits(Layout::Warp) == layout.totalBits();
  };
  auto ends = [&](uint64_t number) {
    SmallVector<ChannelOp> result;
    for (FuncOp each : roles)
      llvm::copy_if(each.getOps<ChannelOp>(), std::back_inserter(result),
                    [&](ChannelOp end) { return end.getPassed() && *end.getPassed() == number; });
    return result;
  };
  auto receivers = [&](uint64_t number) {
    return llvm::count_if(ends(number),
                          [](ChannelOp end) { return llvm::any_of(end->getUsers(), llvm::IsaPred<ReceiveOp>); });
  };
  for (auto loop : role.getOps<scf::ForOp>())
    for (auto pass : loop.getBody()->getOps<PassOp>()) {
      auto channel = pass.getChannel().getDefiningOp<ChannelOp>();
      std::optional<Layout> ofThreads = layoutOf(pass.getOperand().getType());
      if (!ofThreads || !hasNoCopies(*ofThreads) || pass.getMatrices())
        continue;
      auto fits = [&](ReceiveOp receive) {
        auto below = receive.getChannel().getDefiningOp<ChannelOp>();
        bool isFree = below && below.isShared() && below.getType() == channel.getType() &&
                      receivers(*below.getPassed()) == 1 &&
                      llvm::none_of(role.getOps<ChannelOp>(),
                                    [&](ChannelOp other) { return other.getOver() == below.getPassed(); });
        return isFree && receive->getBlock() == pass->getBlock() &&
               llvm::all_of(receive->getUsers(), [&](Operation *user) {
                 auto read = dyn_cast<ConvertOp>(user);
                 return read && read->isBeforeInBlock(pass) &&
                        (layoutOf(read.getType()) == ofThreads || haveMet(read, pass));
               });
      };
      auto received = loop.getBody()->getOps<ReceiveOp>();
      auto found = llvm::find_if(received, fits);
      if (found == received.end())
        continue;
      uint64_t number = *(*found).getChannel().getDefiningOp<ChannelOp>().getPassed();
      for (ChannelOp end : ends(*channel.getPassed()))
        end.setOver(number);
    }
}

namespace {

/// Makes of what the roles of a block send the work of a role of its own, which is as far ahead as there is room.
class Producer {
public:
  explicit Producer(ArrayRef<FuncOp> roles) : roles(roles), count(numberBehindPassed(roles)) {}

  /// Whether there is anything to send; else nothing has changed.
  FailureOr<bool> make() {
    FuncOp first = roles.front();
    auto loops = first.getOps<scf::ForOp>();
    if (!llvm::hasSingleElement(loops))
      return false;
    scf::ForOp walk = *loops.begin();
    if (!llvm::all_of(ValueRange{walk.getLowerBound(), walk.getUpperBound(), walk.getStep()}, isNumber))
      return false;
    llvm::MapVector<std::tuple<unsigned, Type, Operation *>, SmallVector<ChannelOp>> readers;
    for (FuncOp role : roles)
      for (auto channel : role.getOps<ChannelOp>())
        if (BlockArgument input = inputOf(channel))
          if (lagOf(channel)) {
            Operation *alone = mayShare(channel) ? nullptr : channel.getOperation();
            readers[{input.getArgNumber(), channel.getType(), alone}].push_back(channel);
          }
    if (readers.empty())
      return false;
    function = cast<FuncOp>(first->cloneWithoutRegions());
    function.setSymName((first.getSymName() + ".producer").str());
    setWarps();
    createLoop(walk);
    for (auto &[read, channels] : readers) {
      send(std::get<unsigned>(read), channels.front(), *lagOf(channels.front()));
      for (ChannelOp channel : channels) {
        channel.setPassed(count);
        receiveAlone(channel);
      }
      ++count;
    }
    FuncOp last = roles.back();
    last.setBeside(function.getSymName());
    function.removeBesideAttr();
    last->getBlock()->getOperations().insert(std::next(last->getIterator()), function);
    return countThreads();
  }

private:
  /// One would do, but warpgroups set the registers of their threads together.
  void setWarps() {
    constexpr int64_t warps = 4;
    MLIRContext *context = function.getContext();
    function.setRolesAttr(ArrayAttr::get(context, {RoleAttr::get(context, RoleKind::Producer, warps)}));
  }

  /// A loop over the chunks that the walk meets.
  void createLoop(scf::ForOp walk) {
    OpBuilder builder(function.getContext());
    Block *block = builder.createBlock(&function.getBody());
    for (BlockArgument argument : FuncOp(roles.front()).getBody().getArguments())
      block->addArgument(argument.getType(), argument.getLoc());
    IRMapping mapping;
    auto bound = [&](Value value) { return copy(value, mapping, builder); };
    Value begin = bound(walk.getLowerBound()), end = bound(walk.getUpperBound()), step = bound(walk.getStep());
    loop = scf::ForOp::create(builder, walk.getLoc(), begin, end, step);
    ReturnOp::create(builder, walk.getLoc());
    builder.setInsertionPointToStart(loop.getBody());
    turn = builder.createOrFold<arith::SubIOp>(loop.getLoc(), loop.getInductionVar(), begin);
  }

  /// Whether a value follows from numbers of the work item alone.
  static bool isNumber(Value value) {
    Operation *op = value.getDefiningOp();
    return op && isMemoryEffectFree(op) && op->getNumRegions() == 0 && llvm::all_of(op->getOperands(), isNumber);
  }

  static Value copy(Value number, IRMapping &mapping, OpBuilder &builder) {
    if (Value known = mapping.lookupOrNull(number))
      return known;
    Operation *op = number.getDefiningOp();
    for (Value operand : op->getOperands())
      copy(operand, mapping, builder);
    builder.clone(*op, mapping);
    return mapping.lookup(number);
  }

  void send(unsigned input, ChannelOp channel, int64_t lag) {
    OpBuilder builder = OpBuilder::atBlockBegin(function.getBlock());
    auto own = cast<ChannelOp>(builder.clone(*channel));
    own.setPassed(count);
    builder.setInsertionPoint(loop.getBody()->getTerminator());
    Value chunk = lagBehind(builder, channel.getLoc(), loop.getInductionVar(), lag);
    SendOp::create(builder, channel.getLoc(), function.getBlock()->getArgument(input), chunk, own, turn);
  }

  FailureOr<bool> countThreads() {
    FailureOr<Manifest> manifest = Manifest::leftOn(function);
    if (failed(manifest))
      return failure();
    manifest->threads += manifest->threadsOfProducer = function.getThreads();
    StringAttr attribute = manifest->toAttribute(function.getContext());
    for (FuncOp role : roles)
      role->setAttr(Manifest::attributeName, attribute);
    function->setAttr(Manifest::attributeName, attribute);
    return true;
  }

  ArrayRef<FuncOp> roles;
  int64_t count;
  FuncOp function;
  scf::ForOp loop;
  Value turn;
};

struct ShareChannels : stretto::impl::ShareChannelsBase<ShareChannels> {
  void runOnOperation() override {
    DenseSet<Operation *> others;
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<FuncOp>())) {
      SmallVector<FuncOp, 4> roles = function.getRolesOfBlock();
      others.insert(roles.begin() + 1, roles.end());
      if (!others.contains(function) && failed(run(roles)))
        return signalPassFailure();
    }
  }

private:
  static LogicalResult run(ArrayRef<FuncOp> roles) {
    bool hasOutputs = llvm::any_of(roles, [](FuncOp role) { return role.getRole().getKind() == RoleKind::Outputs; });
    if (!hasOutputs && !leavesStates(roles))
      return success();
    bool hasGroups = llvm::any_of(roles, [](FuncOp role) { return role.getGroups() > 1; });
    bool hasProducer = false;
    if (!hasOutputs || hasGroups || roles.size() > 2) {
      FailureOr<bool> made = Producer(roles).make();
      if (failed(made))
        return failure();
      hasProducer = *made;
    }
    if (hasProducer)
      for (FuncOp role : roles)
        if (role.getRole().getKind() == RoleKind::Ahead)
          leaveOver(roles, role);
    if (!hasProducer && hasOutputs && roles.size() == 2)
      share(roles[0], roles[1]);
    for (FuncOp role : roles)
      eraseAwaits(role);
    for (FuncOp role : roles)
      if (sendsInGroups(role))
        return role.emitOpError("has ") << role.getGroups()
                                        << " groups of warps and copies tiles itself, expected one group";
    return success();
  }
};
} // namespace
