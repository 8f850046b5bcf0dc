//===- ThreadBuilder.h - Code of one thread ---------------------*- C++ -*-===//
//
// Builds what one thread computes from its lane and warp: coordinates of the elements that it holds, and addresses in
// shared memory. Both are linear in the bits of these numbers (dialect/kernel/Layout.h), so that the part of a
// register is a constant and the part of the thread is formed once.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_KERNEL_THREADBUILDER_H
#define STRETTO_PASSES_KERNEL_THREADBUILDER_H

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace stretto::kernel {

/// The registers of a thread that hold its part of a tile, by number; null where no thread has an element of the tile.
using Registers = llvm::SmallVector<mlir::Value>;

/// A tile in shared memory.
struct SharedTile {
  mlir::RankedTensorType type;
  mlir::Value base;

  SharedTile() = default;
  SharedTile(mlir::RankedTensorType type, mlir::Value base);

  const Layout &getLayout() const { return layout; }
  int64_t elementBytes() const { return llvm::divideCeil(type.getElementTypeBitWidth(), 8); }
  /// The offset of an element in bytes, which is linear in its flat coordinate.
  uint64_t byteOffset(uint64_t flat) const;
  /// For each bit of the coordinate of one side, its part of the byte offset.
  llvm::SmallVector<uint64_t> byteOffsetsOf(unsigned side) const;

private:
  Layout layout;
  llvm::SmallVector<uint64_t> offsets;
};

class ThreadBuilder : public mlir::ImplicitLocOpBuilder {
public:
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  mlir::Value lane, warp; // i32, set once at the start of the function

  //===--------------------------------------------------------------------===//
  // Numbers
  //===--------------------------------------------------------------------===//

  mlir::Value i1(bool value) { return mlir::arith::ConstantIntOp::create(*this, value, 1); }
  mlir::Value i32(int64_t value) { return mlir::arith::ConstantIntOp::create(*this, value, 32); }
  mlir::Value i64(int64_t value) { return mlir::arith::ConstantIntOp::create(*this, value, 64); }
  mlir::Value add(mlir::Value a, mlir::Value b) { return mlir::arith::AddIOp::create(*this, a, b); }
  mlir::Value add(mlir::Value a, int64_t b);
  mlir::Value sub(mlir::Value a, mlir::Value b) { return mlir::arith::SubIOp::create(*this, a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return mlir::arith::MulIOp::create(*this, a, b); }
  mlir::Value mul(mlir::Value a, int64_t b);
  mlir::Value bitXor(mlir::Value a, int64_t b);
  mlir::Value both(mlir::Value a, mlir::Value b); // null counts as true
  mlir::Value select(mlir::Value condition, mlir::Value yes, mlir::Value no) {
    return mlir::arith::SelectOp::create(*this, condition, yes, no);
  }
  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value a, mlir::Value b) {
    return mlir::arith::CmpIOp::create(*this, predicate, a, b);
  }
  mlir::Value less(mlir::Value a, mlir::Value b) { return compare(mlir::arith::CmpIPredicate::slt, a, b); }
  mlir::Value less(mlir::Value a, int64_t b) { return less(a, i32(b)); }
  mlir::Value extend(mlir::Value i32Value) { return mlir::arith::ExtUIOp::create(*this, getI64Type(), i32Value); }
  mlir::Value truncate(mlir::Value i64Value) { return mlir::arith::TruncIOp::create(*this, getI32Type(), i64Value); }
  /// The same number in a type that may be wider.
  mlir::Value widen(mlir::Value value, mlir::Type type) {
    return value.getType() == type ? value : mlir::arith::ExtFOp::create(*this, type, value).getResult();
  }
  mlir::Value real(mlir::Type type, double value);
  mlir::Value zero(mlir::Type type);

  /// The exclusive or of the basis vectors whose bits are set in `number`; null for zero.
  mlir::Value linear(mlir::Value number, llvm::ArrayRef<uint64_t> basis);
  /// The same of the lane's and the warp's numbers.
  mlir::Value linear(llvm::ArrayRef<uint64_t> laneBasis, llvm::ArrayRef<uint64_t> warpBasis);
  mlir::Value combine(mlir::Value a, mlir::Value b); // exclusive or; null counts as zero

  //===--------------------------------------------------------------------===//
  // Elements that the thread holds
  //===--------------------------------------------------------------------===//

  /// The coordinate on one side of the element in a register.
  mlir::Value coordinate(const Layout &layout, unsigned side, uint64_t reg);

  /// Whether the element in a register belongs to the tile, whose sides may be smaller than the layout's.
  enum class Inside { Always, Sometimes, Never };
  static Inside inside(const Layout &layout, llvm::ArrayRef<int64_t> shape, uint64_t reg);
  /// The condition; null where it always holds.
  mlir::Value isInside(const Layout &layout, llvm::ArrayRef<int64_t> shape, uint64_t reg);

  /// Whether this thread is the first of those that hold the same elements; null where none do.
  mlir::Value isFirstCopy(const Layout &layout);

  //===--------------------------------------------------------------------===//
  // Memory
  //===--------------------------------------------------------------------===//

  mlir::LLVM::LLVMPointerType pointerType(unsigned space) {
    return mlir::LLVM::LLVMPointerType::get(getContext(), space);
  }
  mlir::Value advance(mlir::Value pointer, mlir::Value bytes);
  mlir::Value advance(mlir::Value pointer, int64_t bytes);
  /// `count` neighbouring elements, in one access.
  Registers load(mlir::Value pointer, mlir::Type element, int64_t count);
  void store(mlir::Value pointer, mlir::ValueRange values);
  mlir::Value pack(mlir::ValueRange values);
  Registers unpack(mlir::Value vector);
  /// The word of a vector that two numbers of 16 bits were taken from, the first of them from its lower half; null
  /// where they come from elsewhere.
  mlir::Value wordOf(mlir::Value low, mlir::Value high);

  /// Waits for all threads of the block, or of the role.
  void barrier();
  /// The same; whether a condition holds for none of them.
  mlir::Value none(mlir::Value condition);
  /// Which barrier a role has; where there are no roles it is that of the block.
  int64_t barrierId = 0, threadsOfBarrier = 0;
  /// The value of another lane.
  mlir::Value shuffleXor(mlir::Value value, int64_t mask);
  mlir::Value shuffleFrom(mlir::Value value, mlir::Value sourceLane);

private:
  template <typename Shuffle> mlir::Value asInteger(mlir::Value value, Shuffle shuffle);
};

/// Addresses of elements of a tile in shared memory: a part of the thread, formed once, and a part that is constant.
class Addresses {
public:
  /// The thread's part is what its lane's and its warp's number contribute to flat coordinates of the tile.
  Addresses(ThreadBuilder &builder, const SharedTile &tile, llvm::ArrayRef<uint64_t> laneBasis,
            llvm::ArrayRef<uint64_t> warpBasis);

  /// The same in a row whose number differs in bits that only the run knows, some of `bits`.
  Addresses inRow(mlir::Value row, uint64_t bits = ~uint64_t(0)) const;

  /// The address of the element whose coordinate is the thread's part combined with `flat`.
  mlir::Value at(uint64_t flat);

private:
  ThreadBuilder &builder;
  const SharedTile &tile;
  mlir::Value threadOffset; // null for zero
  uint64_t reach = 0;       // the bits that it may have
  llvm::SmallDenseMap<uint64_t, mlir::Value> pointers;
};

/// Elements of a tile in shared memory by coordinates that are computed.
class Gather {
public:
  Gather(ThreadBuilder &b, const SharedTile &tile) : b(b), tile(tile) {}

  mlir::Value at(llvm::ArrayRef<mlir::Value> coordinates) {
    return b.load(address(coordinates), tile.type.getElementType(), 1)[0];
  }
  mlir::Value address(llvm::ArrayRef<mlir::Value> coordinates);

private:
  ThreadBuilder &b;
  const SharedTile &tile;
};

/// How many of a layout's low register bits are neighbouring elements of a tile in shared memory, at most 16 bytes.
unsigned neighbouringBits(const Layout &layout, const SharedTile &tile);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_THREADBUILDER_H
