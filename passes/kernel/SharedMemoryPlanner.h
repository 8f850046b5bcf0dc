//===- SharedMemoryPlanner.h - Offsets of a plan ----------------*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_SHAREDMEMORYPLANNER_H
#define STRETTO_PASSES_KERNEL_SHAREDMEMORYPLANNER_H

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace stretto::kernel {

/// A function, or those of several roles, which are executed at the same time.
using Roles = llvm::ArrayRef<FuncOp>;

/// Finds an offset in shared memory for all that operations make or need there.
class SharedMemoryPlanner {
public:
  /// With `apart` no two regions share memory, which saves the barriers between their uses. Otherwise those do not that
  /// every turn needs and that have no more than `mostApart` bytes, as far as `limit` allows.
  SharedMemoryPlanner(Roles roles, bool apart, int64_t limit = 0, int64_t mostApart = 0);

  /// Places every region; the bytes of all.
  int64_t plan();

  void write();

  /// On a channel of a chunk for itself: its places are free until the first tile is sent.
  static constexpr llvm::StringLiteral lateAttribute = "kernel.late";

  /// Numbers of tokens, which warps leave to each other, have no more.
  static constexpr int64_t fewBytes = 1024;

private:
  /// Operations from one to another, by their numbers.
  struct Span {
    int64_t begin, end;
  };

  /// Bytes that an operation makes or needs, and the operations during which nothing else may touch them.
  struct Region {
    FuncOp function;
    mlir::Operation *op;
    int64_t bytes;
    llvm::SmallVector<Span, 2> spans;
    std::optional<int64_t> offset;
    bool isOfBarriers = false;
    /// What is needed on a condition alone comes last, and right before it what it may share memory with.
    enum class Rank { Always, NotBesideRare, Rare } rank = Rank::Always;

    bool isRare() const { return op->getParentOfType<mlir::scf::IfOp>() != nullptr; }

    bool meets(const Region &other) const {
      // Of groups one may be where another was some operations ago.
      return function != other.function || FuncOp(function).getGroups() > 1 || llvm::any_of(spans, [&](Span own) {
               return llvm::any_of(other.spans, [&](Span its) { return own.begin <= its.end && its.begin <= own.end; });
             });
    }
  };

  static constexpr int64_t banks = 128;

  static bool hasFew(const Region &region) { return !region.offset && !region.isRare() && region.bytes <= fewBytes; }

  void rankRegions();

  void number(mlir::Block &block, int64_t &count);

  /// The last operation that needs what `op` makes: in a loop that `op` stands outside of, the end of the loop.
  int64_t lastUse(mlir::Operation *op);

  /// What `op` makes is there until it is needed last, in each of two branches by itself, of which one is executed.
  llvm::SmallVector<Span, 2> spansOf(mlir::Operation *op);

  void need(llvm::ArrayRef<mlir::Operation *> users, mlir::Block &block, int64_t begin,
            llvm::SmallVectorImpl<Span> &spans);

  /// A tile that is sent where it is read is there from each time that it is sent to the last read before the next.
  std::optional<llvm::SmallVector<Span, 2>> spansOfLate(ChannelOp channel);

  /// The end of what a block does with a channel: where each chunk is an item of its own, what follows the loops that
  /// meet other chunks may have the bytes of their tiles.
  int64_t lastUseOf(ChannelOp channel);

  /// Copies to a channel are under way between any two operations, unless a loop sends a tile when it has read the one
  /// before, or where it reads it.
  llvm::SmallVector<Span, 2> spansOf(ChannelOp channel);

  /// The channel of a role before that is passed under the same number.
  ChannelOp otherEnd(ChannelOp channel);

  void collect(FuncOp function);

  /// Each group of a role has what it needs for itself.
  static int64_t bytesOfGroups(FuncOp function, int64_t bytes);

  int64_t lowestFree(const Region &wanted);

  /// With `beside` no bytes of any other region.
  int64_t lowestFree(const Region &wanted, bool beside);

  Roles roles;
  bool apart;
  int64_t limit, mostApart, bytesOfFew = 0;
  llvm::DenseMap<mlir::Operation *, int64_t> first, last;
  int64_t end = 0;
  llvm::SmallVector<Region> regions;
  llvm::SmallVector<Region *> placed; // by their offsets
  llvm::SmallVector<std::pair<ChannelOp, ChannelOp>> passed;
  llvm::SmallVector<ChannelOp> over; // channels that have the places of others
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_SHAREDMEMORYPLANNER_H
