//===- SelectCopies.cpp - Who copies tiles to shared memory ---------------===//

#include "dialect/kernel/Chip.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "runtime/Manifest.h"

namespace stretto {
#define GEN_PASS_DEF_SELECTCOPIES
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

std::optional<ChunkCopies> ChunkCopies::of(ChannelOp channel) {
  ChunkCopies copies;
  for (Operation *user : channel->getUsers()) {
    bool isFirst = false;
    auto send = dyn_cast<SendOp>(user);
    if (auto replace = dyn_cast<ReplaceOp>(user)) {
      copies.replaced.push_back(replace);
      continue;
    }
    if (auto receive = dyn_cast<ReceiveOp>(user)) {
      // What is received last in a turn, and by no branch, is what the turn is about.
      bool isOfTurn = !isa<scf::IfOp>(user->getParentOp());
      if (isOfTurn && copies.receive && receive->getBlock() != copies.receive->getBlock())
        return std::nullopt;
      if (isOfTurn && (!copies.receive || copies.receive->isBeforeInBlock(receive)))
        std::swap(copies.receive, receive);
      if (receive)
        copies.others.push_back(receive);
      continue;
    }
    if (send && send.getChunk())
      isFirst = !std::exchange(isa<FuncOp>(user->getParentOp()) ? copies.first : copies.next, send);
    if (!isFirst)
      return std::nullopt;
  }
  bool isComplete = copies.receive && copies.first && copies.next && copies.receive.getChunk() &&
                    copies.first.getView() == copies.next.getView();
  if (!isComplete || copies.receive->getBlock() != copies.next->getBlock())
    return std::nullopt;
  auto loop = dyn_cast<scf::ForOp>(copies.receive->getParentOp());
  Value own = copies.receive.getChunk(), ofNext = copies.next.getChunk();
  bool areOfTurns = llvm::all_of(copies.others, [&](ReceiveOp other) {
    bool isReplaced = other.getChunk() == own && !copies.replaced.empty();
    return isReplaced || (other.getChunk() == ofNext && isa<scf::IfOp>(other->getParentOp()));
  });
  auto isOfOwn = [&](ReplaceOp replace) { return replace.getChunk() == own; };
  if (!areOfTurns || !llvm::all_of(copies.replaced, isOfOwn))
    return std::nullopt;
  if (!loop || !isa<FuncOp>(loop->getParentOp()) || getConstantIntValue(loop.getStep()) != 1)
    return std::nullopt;
  return copies;
}

bool stretto::kernel::hasTurns(ChannelOp channel) {
  return !channel->use_empty() && llvm::all_of(channel->getUsers(), [](Operation *user) {
    auto send = dyn_cast<SendOp>(user);
    auto receive = dyn_cast<ReceiveOp>(user);
    return (send && send.getTurn()) || (receive && receive.getTurn());
  });
}

bool stretto::kernel::isSentInTurns(ChannelOp channel) {
  auto function = channel->getParentOfType<FuncOp>();
  if (channel.getBulk() || channel.getPassed() || channel.getDepth() < 2 ||
      !function->hasAttr(Manifest::attributeName) || !ChunkCopies::of(channel))
    return false;
  FailureOr<Manifest> manifest = Manifest::leftOn(function);
  return succeeded(manifest) && manifest->segments == Manifest::Segments::Turns;
}

/// The input or checkpoint of which all tiles of a channel are, but for those that its window holds, which threads
/// copy.
static const Manifest::Argument *sourceOf(ChannelOp channel, const Manifest &manifest) {
  const Manifest::Argument *source = nullptr;
  for (Operation *user : channel->getUsers()) {
    auto send = dyn_cast<SendOp>(user);
    if (!send)
      continue;
    const Manifest::Argument &argument = manifest.arguments[cast<BlockArgument>(send.getView()).getArgNumber()];
    if (argument.kind == Manifest::Kind::Window)
      continue;
    // What a turn takes of a state is little: threads that load it themselves have it sooner, as was measured.
    bool isState = argument.kind == Manifest::Kind::Checkpoint && manifest.segments != Manifest::Segments::Turns;
    if (!(argument.kind == Manifest::Kind::Input || isState) || (source && source != &argument))
      return nullptr;
    source = &argument;
  }
  return source;
}

/// Why the memory system cannot fill a channel; empty where it can.
static StringRef obstacleToBulkCopies(ChannelOp channel, int64_t tokens, const Manifest &manifest) {
  constexpr int64_t pieceBytes = 16, rowsOfExchange = 8, mostRows = 256;
  RankedTensorType tile = channel.getType().getTile();
  if (!hasTurns(channel) && !ChunkCopies::of(channel))
    return "no loop of the function receives its tiles, one chunk after another";
  const Manifest::Argument *source = sourceOf(channel, manifest);
  bool isOfTokens = source && source->kind == Manifest::Kind::Input;
  if (!source || tile.getRank() == 0 || (isOfTokens && tile.getDimSize(0) != tokens))
    return "its tiles are not those of an input's tokens, nor checkpoints";
  const Manifest::Argument &argument = *source;
  if (tile.getRank() != 2 || !llvm::isPowerOf2_64(tile.getDimSize(0)) || tile.getDimSize(0) < rowsOfExchange)
    return "its tiles do not have rows by the eight";
  if (tile.getDimSize(0) > mostRows)
    return "its tiles have more rows than a box";
  int64_t bytes = tile.getElementTypeBitWidth() / 8, rowBytes = tile.getDimSize(1) * bytes;
  if (rowBytes % pieceBytes)
    return "its rows are not a multiple of 16 bytes";
  if (*layoutOf(tile) != sharedLayout(tile.getShape(), bytes))
    return "its tiles do not lie in boxes";
  if (argument.sliced && tile.getDimSize(1) % boxColumnsOf(tile))
    return "a box would reach into the next slice";
  return "";
}

bool stretto::kernel::hasMatrices(RankedTensorType tile) {
  constexpr int64_t bitsOfNumber = 16, side = 8;
  std::optional<Layout> layout = layoutOf(tile);
  if (!layout || layout->rank() != 2 || layout->inSharedMemory() || tile.getElementTypeBitWidth() != bitsOfNumber ||
      layout->side(0) < side || layout->side(1) < side)
    return false;
  if (liesAcross(*layout))
    layout = layout->transposed();
  auto begins = [&](Layout::Space space, ArrayRef<std::pair<int64_t, int64_t>> vectors) {
    return layout->basis(space).size() >= vectors.size() && llvm::all_of(llvm::enumerate(vectors), [&](auto each) {
             return layout->basis(space)[each.index()] == layout->flat({each.value().first, each.value().second});
           });
  };
  return begins(Layout::Register, {{0, 1}}) && begins(Layout::Lane, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}});
}

/// Whether a box of a tile is as wide as the banks.
static bool isAsWideAsBanks(RankedTensorType tile) {
  return boxColumnsOf(tile) * tile.getElementTypeBitWidth() == 8 * bytesOfBanks;
}

bool stretto::kernel::isOfWideBoxes(RankedTensorType tile) {
  constexpr int64_t rowsOfExchange = 8, mostRows = 256;
  return tile.getRank() == 2 && isAsWideAsBanks(tile) && tile.getDimSize(1) % boxColumnsOf(tile) == 0 &&
         tile.getDimSize(0) % rowsOfExchange == 0 && tile.getDimSize(0) <= mostRows;
}

int64_t stretto::kernel::rowsOfOwnBoxes(RankedTensorType tile) {
  constexpr int64_t rowsOfExchange = 8;
  std::optional<Layout> layout = layoutOf(tile);
  if (!layout || layout->rank() != 2 || layout->inSharedMemory() || layout->side(0) != tile.getDimSize(0) ||
      layout->side(1) != tile.getDimSize(1))
    return 0;
  int64_t rows = tile.getDimSize(0), columns = boxColumnsOf(tile);
  for (uint64_t vector : layout->basis(Layout::Warp)) {
    int64_t row = layout->coordinate(vector, 0), column = layout->coordinate(vector, 1);
    bool dividesRows = llvm::isPowerOf2_64(row) && column == 0;
    bool dividesColumns = row == 0 && llvm::isPowerOf2_64(column) && column >= columns;
    if (!dividesRows && !dividesColumns)
      return 0;
    rows = dividesRows ? std::min(rows, row) : rows;
  }
  return rows >= rowsOfExchange ? rows : 0;
}

/// Whether the memory system is to copy what those who find outputs behind a walk store: they are what a chunk waits
/// for, and their places in shared memory are theirs alone. Of rows of less than the banks it copies too few bytes at a
/// time (docs/performance.md).
static bool isLeftInBoxes(StoreOp store, const Manifest &manifest) {
  auto tile = cast<RankedTensorType>(store.getTile().getType());
  const Manifest::Argument &argument = manifest.arguments[cast<BlockArgument>(store.getView()).getArgNumber()];
  return argument.kind == Manifest::Kind::Output && !argument.isInParts() && store.getMatrices() &&
         isAsWideAsBanks(tile) && rowsOfOwnBoxes(tile) &&
         store->getParentOfType<FuncOp>().getRole().getKind() == RoleKind::Outputs;
}

/// Whether threads would store pieces of less than 16 bytes of the rows of an output or a checkpoint, and could store
/// as much. Four lanes that share a row of a fragment fill whole sectors of memory with wider numbers as it is.
static bool gainsFromStage(StoreOp store, const Manifest &manifest) {
  constexpr int64_t pieceBytes = 16, bitsOfNumber = 16;
  auto tile = cast<RankedTensorType>(store.getTile().getType());
  const Manifest::Argument &argument = manifest.arguments[cast<BlockArgument>(store.getView()).getArgNumber()];
  bool isLeft = argument.kind == Manifest::Kind::Output || argument.kind == Manifest::Kind::Kept;
  if (!isLeft || tile.getRank() != 2 || tile.getElementTypeBitWidth() != bitsOfNumber)
    return false;
  int64_t perPiece = pieceBytes * 8 / tile.getElementTypeBitWidth();
  Layout layout = *layoutOf(tile);
  return argument.perAccess() == perPiece && tile.getDimSize(1) % perPiece == 0 &&
         neighbouringColumns(layout) < perPiece && alongRows(layout, perPiece);
}

/// What those who find outputs behind a walk store just as another role has passed it, in boxes as wide as the banks,
/// the memory system takes from where it lies. Null where that is not so.
static ReceiveOp whereItWasPassed(StoreOp store, const Manifest &manifest) {
  auto convert = store.getTile().getDefiningOp<ConvertOp>();
  auto receive = convert && convert->hasOneUse() ? convert.getOperand().getDefiningOp<ReceiveOp>() : ReceiveOp();
  if (!receive || receive->getBlock() != store->getBlock() ||
      store->getParentOfType<FuncOp>().getRole().getKind() != RoleKind::Outputs)
    return {};
  auto channel = receive.getChannel().getDefiningOp<ChannelOp>();
  RankedTensorType tile = channel.getType().getTile();
  const Manifest::Argument &argument = manifest.arguments[cast<BlockArgument>(store.getView()).getArgNumber()];
  bool isInBoxes =
      isOfWideBoxes(tile) && *layoutOf(tile) == sharedLayout(tile.getShape(), tile.getElementTypeBitWidth() / 8);
  bool isTaken =
      argument.kind == Manifest::Kind::Kept && channel.getPassed() && !channel.getOver() && !channel.getBulk();
  return isInBoxes && isTaken ? receive : ReceiveOp();
}

/// Stores a tile from there, as soon as a turn has it: it has been read when products have been formed.
static void storeWhereItWasPassed(StoreOp store, ReceiveOp receive) {
  Operation *convert = store.getTile().getDefiningOp();
  store.getTileMutable().assign(receive);
  store.setBulk(true);
  convert->erase();
  Operation *turn = receive.getTurn() ? receive.getTurn().getDefiningOp() : nullptr;
  // What a product reads, too, comes behind products that need not wait for it.
  bool isOfStoreAlone = receive->hasOneUse();
  if (isOfStoreAlone && turn && turn->getBlock() == receive->getBlock())
    receive->moveAfter(turn);
  else if (isOfStoreAlone)
    receive->moveBefore(receive->getBlock(), receive->getBlock()->begin());
  store->moveAfter(receive);
}

namespace {
struct SelectCopies : stretto::impl::SelectCopiesBase<SelectCopies> {
  using SelectCopiesBase::SelectCopiesBase;

  void runOnOperation() override {
    FuncOp function = getOperation();
    FailureOr<Chip> target = Chip::named(chip, [&] { return function.emitOpError(); });
    if (failed(target))
      return signalPassFailure();
    if (!function->hasAttr(Manifest::attributeName))
      return;
    FailureOr<Manifest> manifest = Manifest::leftOn(function);
    if (failed(manifest))
      return signalPassFailure();
    for (ChannelOp channel : function.getOps<ChannelOp>()) {
      StringRef obstacle = target->hasBulkCopies ? obstacleToBulkCopies(channel, function.getChunk(), *manifest)
                                                 : "the chip does not copy boxes";
      if (channel.getBulk() && !obstacle.empty()) {
        channel.emitOpError("cannot be filled in bulk: ") << obstacle;
        return signalPassFailure();
      }
      // What threads copy is there when its turn begins, no earlier.
      std::optional<ChunkCopies> copies = ChunkCopies::of(channel);
      if (copies && copies->receivesNext() && !obstacle.empty()) {
        channel.emitOpError("passes tiles that are received before their turn, and cannot be filled in bulk: ")
            << obstacle;
        return signalPassFailure();
      }
      channel.setBulk(obstacle.empty());
    }
    if (target->hasBulkCopies) {
      SmallVector<StoreOp> stores;
      function.walk([&](StoreOp store) { stores.push_back(store); });
      for (StoreOp store : stores)
        if (ReceiveOp receive = whereItWasPassed(store, *manifest))
          storeWhereItWasPassed(store, receive);
    }
    // Steps are as long as their loads take: what is stored once is stored as it is.
    bool isStep = function.getChunk() == 1;
    function.walk([&](Operation *op) {
      if (auto convert = dyn_cast<ConvertOp>(op); convert && inSharedMemory(convert.getType()))
        convert.setMatrices(target->hasBulkCopies &&
                            hasMatrices(cast<RankedTensorType>(convert.getOperand().getType())));
      else if (convert && inSharedMemory(convert.getOperand().getType()))
        convert.setMatrices(hasMatrices(cast<RankedTensorType>(convert.getType())));
      if (auto replace = dyn_cast<ReplaceOp>(op))
        replace.setMatrices(target->hasBulkCopies && hasMatrices(cast<RankedTensorType>(replace.getTile().getType())));
      if (auto pass = dyn_cast<PassOp>(op))
        pass.setMatrices(target->hasBulkCopies && hasMatrices(cast<RankedTensorType>(pass.getOperand().getType())));
      if (auto store = dyn_cast<StoreOp>(op); store && !inSharedMemory(store.getTile().getType())) {
        store.setStaged(!isStep && gainsFromStage(store, *manifest));
        store.setMatrices(store.getStaged() && target->hasBulkCopies &&
                          hasMatrices(cast<RankedTensorType>(store.getTile().getType())));
        store.setBulk(isLeftInBoxes(store, *manifest));
      }
    });
  }
};
} // namespace
