//===- Meetings.cpp - Chunks that meet tiles of others --------------------===//

#include "passes/kernel/Meetings.h"
#include "mlir/IR/Matchers.h"
#include "passes/kernel/RegisterEstimate.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

bool stretto::kernel::isItemOfChunk(FuncOp function) { return !function.getBlock()->getOps<kernel::ChunkOp>().empty(); }

bool stretto::kernel::bringsMetTiles(ChannelOp channel) {
  return channel.getBulk() && llvm::any_of(channel->getUsers(), [](Operation *user) {
           auto receive = dyn_cast<ReceiveOp>(user);
           return receive && receive.getTurn() && isa<scf::ForOp>(receive->getParentOp());
         });
}

bool stretto::kernel::bringsOneAtATime(ChannelOp channel) { return bringsMetTiles(channel) && channel.getDepth() == 1; }

int64_t stretto::kernel::blocksOfMeetings(FuncOp function) {
  // What the assembler keeps besides is little where a loop does nothing but meet tiles.
  constexpr int64_t registersOfProcessor = 65536, lanes = 32, beside = 12, many = 3;
  if (!isItemOfChunk(function) || llvm::none_of(function.getOps<ChannelOp>(), bringsMetTiles))
    return 1;
  int64_t ofBlock = (estimateRegisters(function) + beside) * function.getWarps() * lanes;
  return ofBlock * many <= registersOfProcessor ? many : 1;
}

/// Of the pairs that a loop meets: those of ranges that begin with their sequences, on either side.
static bool meets(Operation *loop, bool ahead) {
  return loop
      ->walk([&](InRangeOp pairs) {
        SplatElementsAttr first;
        bool isFromStart =
            matchPattern(pairs.getFirst(), m_Constant(&first)) && first.getSplatValue<APFloat>().convertToDouble() <= 0;
        return WalkResult(failure(isFromStart && pairs.getAhead() == ahead));
      })
      .wasInterrupted();
}

bool stretto::kernel::meetsAllOfOneSide(scf::ForOp loop) { return meets(loop, false) || meets(loop, true); }

bool stretto::kernel::growsWithPlace(FuncOp function) { return meets(function, false) && !meets(function, true); }
