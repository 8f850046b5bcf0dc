//===- InsertBarriers.cpp - Order accesses to shared memory ---------------===//

#include "passes/Passes.h"

namespace stretto {
#define GEN_PASS_DEF_INSERTBARRIERS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// Bytes of shared memory that were read or written since the last barrier.
struct Access {
  int64_t begin, end;
  bool write;

  bool conflictsWith(const Access &other) const {
    return (write || other.write) && begin < other.end && other.begin < end;
  }
};
using Accesses = SmallVector<Access>;

class BarrierInserter {
public:
  /// Goes through a block with what is pending at its start, and leaves what is pending at its end.
  void run(Block &block, Accesses &pending) {
    for (Operation &op : block) {
      if (auto loop = dyn_cast<scf::ForOp>(op)) {
        // Once from before the loop, once more from its own end.
        run(*loop.getBody(), pending);
        run(*loop.getBody(), pending);
        continue;
      }
      if (auto condition = dyn_cast<scf::IfOp>(op)) {
        Accesses after;
        for (mlir::Region &region : condition->getRegions()) {
          Accesses branch = pending;
          if (!region.empty())
            run(region.front(), branch);
          llvm::append_range(after, branch);
        }
        pending = std::move(after);
        continue;
      }
      if (isa<BarrierOp, AwaitOp>(op)) {
        pending.clear();
        continue;
      }
      visit(&op, pending);
    }
  }

private:
  void visit(Operation *op, Accesses &pending) {
    Accesses own = accessesOf(op);
    bool conflict = llvm::any_of(own, [&](const Access &access) {
      return llvm::any_of(pending, [&](const Access &earlier) { return access.conflictsWith(earlier); });
    });
    if (conflict) {
      OpBuilder builder(op);
      BarrierOp::create(builder, op->getLoc());
      pending.clear();
    }
    llvm::append_range(pending, own);
  }

  /// The bytes of a tile in shared memory, which a channel or a conversion has placed.
  Access regionOf(Value tile, bool write) {
    auto type = cast<RankedTensorType>(tile.getType());
    int64_t begin = 0, bytes = sharedBytesOf(type);
    if (auto convert = tile.getDefiningOp<ConvertOp>()) {
      begin = *convert.getOffset();
    } else {
      auto channel = tile.getDefiningOp<ReceiveOp>().getChannel().getDefiningOp<ChannelOp>();
      begin = *channel.getOffset();
      bytes *= channel.getDepth();
    }
    return {begin, begin + bytes, write};
  }

  Accesses accessesOf(Operation *op) {
    Accesses result;
    if (auto send = dyn_cast<SendOp>(op)) {
      // A deeper channel is written where nobody reads: its readers have met at the last `kernel.await`.
      auto channel = send.getChannel().getDefiningOp<ChannelOp>();
      int64_t begin = *channel.getOffset(), bytes = sharedBytesOf(channel.getType().getTile());
      if (channel.getDepth() == 1)
        result.push_back({begin, begin + bytes, true});
      return result;
    }
    if (isa<ReceiveOp>(op))
      return result;
    for (Value operand : op->getOperands())
      if (inSharedMemory(operand.getType()))
        result.push_back(regionOf(operand, /*write=*/false));
    for (Value tile : op->getResults())
      if (inSharedMemory(tile.getType()))
        result.push_back(regionOf(tile, /*write=*/true));
    if (auto scratch = op->getAttrOfType<IntegerAttr>(scratchAttribute))
      result.push_back({scratch.getInt(), scratch.getInt() + scratchBytesOf(op), true});
    return result;
  }
};

struct InsertBarriers : stretto::impl::InsertBarriersBase<InsertBarriers> {
  void runOnOperation() override {
    Accesses pending;
    BarrierInserter().run(*getOperation().getBlock(), pending);
  }
};
} // namespace
