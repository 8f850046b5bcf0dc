//===- CheckBlocks.cpp - Blocks that the lowering cannot follow -----------===//
//
// Kernels may come from a file: layouts, channels and copies that no pass would leave so are refused before a thread is
// made of them.
//
//===----------------------------------------------------------------------===//

#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

LogicalResult ThreadLowering::check() {
  for (FuncOp role : roles)
    if (failed(checkLayouts(role)))
      return failure();
  for (StringRef problem : {problemOfRoles(), problemOfExpected()})
    if (!problem.empty())
      return function.emitOpError(problem);
  return success();
}

LogicalResult ThreadLowering::checkLayouts(FuncOp function) {
  unsigned laneBits = bitsToCount(lanesOfWarp), warpBits = bitsToCount(function.getWarps());
  auto check = [&](Operation *op, Type type) -> LogicalResult {
    auto channel = dyn_cast<ChannelType>(type);
    auto tile = channel ? channel.getTile() : dyn_cast<RankedTensorType>(type);
    if (!tile || (isa<arith::ConstantOp>(op) && op->use_empty()))
      return success();
    std::optional<Layout> layout = layoutOf(tile);
    if (!layout)
      return op->emitOpError("has the tile ") << tile << " without a layout; run stretto-assign-layouts first";
    if (layout->inSharedMemory())
      return success();
    if (layout->bits(Layout::Lane) != laneBits || layout->bits(Layout::Warp) != warpBits)
      return op->emitOpError("has the tile ")
             << tile << ", expected the bits of " << lanesOfWarp << " lanes and " << function.getWarps() << " warps";
    uint64_t thread = layout->reach(Layout::Lane) | layout->reach(Layout::Warp);
    if (thread & layout->reach(Layout::Register))
      return op->emitOpError("has the tile ") << tile << ", in which registers and threads contribute the same bits";
    return success();
  };
  WalkResult result = function.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (failed(check(op, type)))
        return WalkResult::interrupt();
    auto channel = dyn_cast<ChannelOp>(op);
    bool placed = !channel || (channel.getOffset() && (!channel.bytesOfBarriers() || channel.getBarriers()));
    if (auto convert = dyn_cast<ConvertOp>(op))
      placed = !inSharedMemory(convert.getType()) || convert.getOffset();
    if (!placed || (scratchBytesOf(op) && !op->hasAttr(scratchAttribute)) || !function.getShared()) {
      op->emitOpError("has no place in shared memory; run stretto-plan-shared-memory first");
      return WalkResult::interrupt();
    }
    if (StringRef problem = problemOfCopy(op); !problem.empty()) {
      op->emitOpError(problem);
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// Whether tiles of its role are left over those of a channel.
static bool isUnder(ChannelOp channel) {
  auto function = cast<FuncOp>(channel->getParentOp());
  return llvm::any_of(function.getOps<ChannelOp>(), [&](ChannelOp other) {
    return other.getOver() && other.getOver() == channel.getPassed() &&
           llvm::any_of(other->getUsers(), llvm::IsaPred<PassOp>);
  });
}

/// Whether a channel and the one whose places it has belong together: tiles that one role receives alone, and others
/// that it leaves there.
bool ThreadLowering::fitsOver(ChannelOp channel) {
  int64_t receivers = 0, passers = 0;
  for (FuncOp role : roles)
    for (auto other : role.getOps<ChannelOp>()) {
      if (other.getPassed() == channel.getOver()) {
        bool isAlike = other.isShared() && other.getDepth() == channel.getDepth() &&
                       other.getOffset() == channel.getOffset() && other.getType() == channel.getType();
        if (!isAlike)
          return false;
        receivers += llvm::any_of(other->getUsers(), llvm::IsaPred<ReceiveOp>);
      }
      passers += other.getOver() == channel.getOver() && llvm::any_of(other->getUsers(), llvm::IsaPred<PassOp>);
    }
  return receivers == 1 && passers == 1;
}

/// What is wrong with the channels between roles; empty where nothing is. Whoever waits at
/// one that nobody fills, or frees, waits for ever.
StringRef ThreadLowering::problemOfRoles() {
  SmallVector<ChannelOp> passed;
  int64_t threads = 0;
  for (FuncOp each : roles) {
    threads += each.getThreads();
    llvm::copy_if(each.getOps<ChannelOp>(), std::back_inserter(passed), [](ChannelOp op) { return op.getPassed(); });
  }
  if (roles.size() > 1 && manifest.inPlace)
    return "has several roles and takes single tokens, expected one role";
  if (roles.size() > 1 && manifest.threads != threads)
    return "has a manifest of other threads than those of its roles";
  for (ChannelOp channel : passed) {
    SmallVector<ChannelOp> ends;
    llvm::copy_if(passed, std::back_inserter(ends),
                  [&](ChannelOp other) { return other.getPassed() == channel.getPassed(); });
    auto uses = [](ChannelOp end, auto isOf) { return llvm::count_if(end->getUsers(), isOf); };
    DenseSet<Operation *> functions;
    int64_t sources = 0, readers = 0;
    for (ChannelOp end : ends) {
      bool isSame = end->getAttrDictionary() == channel->getAttrDictionary() && end.getType() == channel.getType();
      if (!isSame || !functions.insert(end->getParentOp()).second)
        return "has channels under one number that differ, or are of one role";
      int64_t all = llvm::range_size(end->getUsers()), sends = uses(end, llvm::IsaPred<SendOp>);
      int64_t receives = uses(end, llvm::IsaPred<ReceiveOp>);
      bool isProducer = cast<FuncOp>(end->getParentOp()).getRole().getKind() == RoleKind::Producer;
      bool isSent = end.isShared() && sends && receives == (isProducer ? 0 : 1) && all == sends + receives;
      bool isLeft = !end.isShared() && all == 1 && uses(end, llvm::IsaPred<PassOp>) == 1;
      sources += isSent || isLeft;
      readers += all == 2 && receives == 1 && uses(end, llvm::IsaPred<ReleaseOp>) == 1;
      // Those who receive what is left over its tiles release them.
      readers += isUnder(end) && all == 1 && receives == 1;
    }
    if (channel.getOver() && !fitsOver(channel))
      return "has tiles that are left over others which are not received alone, once a turn, or are not alike";
    if (!channel.getDepth() || sources != 1 || !readers || sources + readers != static_cast<int64_t>(ends.size()))
      return "has a channel that is not passed or sent by one role, once a turn, and received and released by the "
             "others";
  }
  return "";
}

/// Whether a role waits, in each turn, for what another one passes.
static bool receivesFrom(FuncOp role, FuncOp other) {
  return llvm::any_of(role.getOps<ChannelOp>(), [&](ChannelOp own) {
    return own.getPassed() && !own.isShared() && llvm::any_of(other.getOps<ChannelOp>(), [&](ChannelOp end) {
             return end.getPassed() == own.getPassed() && llvm::any_of(end->getUsers(), llvm::IsaPred<PassOp>);
           });
  });
}

/// What is wrong with what ends walks; empty where nothing is. All roles are to know of the end before they ask for
/// what comes behind it, and nothing is to come to memory that the block has left.
StringRef ThreadLowering::problemOfExpected() {
  if (expected.empty())
    return "";
  if (expected.size() > 1)
    return "expects two things of its chunks, or more, expected one";
  if (!manifest.expects)
    return "expects something of its chunks, which its manifest does not say";
  auto isProducer = [](FuncOp role) { return role.getRole().getKind() == RoleKind::Producer; };
  if (!isProducer(roles.back()) || llvm::any_of(roles, [](FuncOp role) { return role.getGroups() > 1; }))
    return "ends walks whose tiles no producer sends, or that groups of warps take in turns";
  auto function = ends()->getParentOfType<FuncOp>();
  auto loop = dyn_cast<scf::ForOp>(ends()->getParentOp());
  if (!loop || !isa<FuncOp>(loop->getParentOp()))
    return "ends a walk elsewhere than in its turns";
  // What is passed says that whoever passes it went on to that turn.
  for (auto pass : loop.getBody()->getOps<PassOp>())
    if (pass->isBeforeInBlock(ends()))
      return "passes tiles of a turn before it is known whether the walk ends with it";
  for (FuncOp role : roles)
    if (role != function && !isProducer(role) && !receivesFrom(role, function))
      return "ends walks of roles that receive nothing of the one that ends them";
  return "";
}

/// What is wrong with what an operation fetches; empty where nothing is.
StringRef ThreadLowering::problemOfFetch(FetchOp op) {
  if (!manifest.inPlace)
    return "fetches states of a kernel that does not update them in place";
  const Manifest::Argument *first = nullptr;
  for (Value view : op.getViews()) {
    const Manifest::Argument &argument = manifest.arguments[cast<BlockArgument>(view).getArgNumber()];
    first = first ? first : &argument;
    int64_t width = argument.shape.size() == 2 ? argument.shape[1] : 1;
    bool isWithin = argument.column >= 0 && argument.column + width <= static_cast<int64_t>(op.getColumns());
    if (argument.kind != Manifest::Kind::State || argument.sliced || argument.entry != first->entry ||
        argument.group != first->group || argument.row != first->row ||
        argument.columns != static_cast<int64_t>(op.getColumns()) || !isWithin)
      return "fetches what are no parts of one entry of as many columns, which is not sliced";
  }
  return "";
}

/// What is wrong with how an operation copies a tile; empty where nothing is.
StringRef ThreadLowering::problemOfCopy(Operation *op) {
  auto isBulk = [](Value channel) {
    auto made = channel.getDefiningOp<ChannelOp>();
    return made && made.getBulk();
  };
  constexpr StringLiteral lacksTurn = "has no turn, expected one for a bulk channel",
                          lacksChunk = "has no chunk, expected one for a bulk channel";
  using Kind = Manifest::Kind;
  auto isOf = [&](Value view, std::initializer_list<Kind> kinds) {
    return llvm::is_contained(kinds, manifest.arguments[argumentOf(view).getArgNumber()].kind);
  };
  if (auto save = dyn_cast<SaveOp>(op); save && !isOf(save.getView(), {Kind::State}))
    return "saves to what is no state";
  if (auto fetch = dyn_cast<FetchOp>(op))
    return problemOfFetch(fetch);
  if (auto carry = dyn_cast<CarryOp>(op))
    if (!isOf(carry.getView(), {Kind::Input}) || !isOf(carry.getWindow(), {Kind::Window}))
      return "carries rows that are no input's, or to what is no window";
  if (auto send = dyn_cast<SendOp>(op); send && isBulk(send.getChannel())) {
    if (!isOf(send.getView(), {Kind::Input, Kind::Window, Kind::Checkpoint}))
      return "sends what is no input, window or checkpoint to a bulk channel";
    if (!send.getTurn() || !send.getChunk())
      return send.getTurn() ? lacksChunk : lacksTurn;
  }
  if (auto receive = dyn_cast<ReceiveOp>(op); receive && isBulk(receive.getChannel()))
    if (!receive.getTurn() || !receive.getChunk())
      return receive.getTurn() ? lacksChunk : lacksTurn;
  if (auto receive = dyn_cast<ReceiveOp>(op); receive && !receive.getTurn())
    if (auto channel = receive.getChannel().getDefiningOp<ChannelOp>(); channel && channel.getPassed())
      return "has no turn, expected one for what another role passes";
  if (auto condition = dyn_cast<ConditionOp>(op); condition && !inSharedMemory(condition.getTile().getType()))
    return "asks for a number that is not in shared memory";
  if (auto pass = dyn_cast<PassOp>(op)) {
    auto operand = cast<RankedTensorType>(pass.getOperand().getType());
    if (inSharedMemory(operand) || pass.getType() != pass.getChannel().getType().getTile())
      return "passes a tile that is not in registers, or leaves it elsewhere than in the channel";
    if (pass.getMatrices() && !hasMatrices(operand))
      return "passes matrices of eight rows of a tile that has none";
  }
  if (auto total = dyn_cast<chunk::TotalOp>(op)) {
    std::optional<Layout> accumulated = layoutOf(total.getAccumulated().getType());
    if (accumulated->inSharedMemory() || layoutOf(total.getType()) != accumulated->onto(1))
      return "is elsewhere than where its columns are accumulated";
  }
  auto convert = dyn_cast<ConvertOp>(op);
  auto store = dyn_cast<StoreOp>(op);
  if (store && !isOf(store.getView(), {Kind::Output, Kind::Kept}))
    return "stores to what is no output";
  if (convert && convert.getMatrices()) {
    bool isStored = inSharedMemory(convert.getType());
    auto tile = cast<RankedTensorType>(isStored ? convert.getOperand().getType() : convert.getType());
    if (!hasMatrices(tile) || isStored == inSharedMemory(convert.getOperand().getType()))
      return "takes matrices of eight rows of a tile that has none, between registers and shared memory";
  }
  if (store && store.getMatrices() &&
      !(store.getStaged() && hasMatrices(cast<RankedTensorType>(store.getTile().getType()))))
    return "stores matrices of eight rows of a tile that has none, or without a stage";
  if (store && inSharedMemory(store.getTile().getType())) {
    auto tile = cast<RankedTensorType>(store.getTile().getType());
    bool isInBoxes =
        isOfWideBoxes(tile) && *layoutOf(tile) == sharedLayout(tile.getShape(), tile.getElementTypeBitWidth() / 8);
    if (!store.getBulk() || store.getStaged() || !isInBoxes)
      return "stores a tile of shared memory otherwise than in bulk, in boxes as wide as the banks";
  } else if (store && store.getBulk() &&
             !(store.getMatrices() && isOf(store.getView(), {Kind::Output}) &&
               rowsOfOwnBoxes(cast<RankedTensorType>(store.getTile().getType()))))
    return "stores in bulk what is no output, or a tile of which warps do not have boxes of their own in a stage";
  if (store && store.getStaged()) {
    auto tile = cast<RankedTensorType>(store.getTile().getType());
    int64_t perAccess = manifest.arguments[cast<BlockArgument>(store.getView()).getArgNumber()].perAccess();
    if (tile.getRank() != 2 || !alongRows(*layoutOf(tile), perAccess))
      return "stages a tile whose warps do not have rows of their own";
  }
  return "";
}
