//===- KernelDialect.h - The kernel dialect ---------------------*- C++ -*-===//
#ifndef STRETTO_DIALECT_KERNEL_KERNELDIALECT_H
#define STRETTO_DIALECT_KERNEL_KERNELDIALECT_H

#include "dialect/chunk/ChunkDialect.h"
#include "dialect/kernel/Layout.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialect/kernel/KernelDialect.h.inc"
#include "dialect/kernel/KernelEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/kernel/KernelAttributes.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/kernel/KernelTypes.h.inc"

#define GET_OP_CLASSES
#include "dialect/kernel/KernelOps.h.inc"

namespace stretto::kernel {

/// The layout of a tile's type; nothing where it has not been assigned.
std::optional<Layout> layoutOf(mlir::Type tile);
bool inSharedMemory(mlir::Type tile);
mlir::RankedTensorType withLayout(mlir::RankedTensorType tile, const Layout &layout);

inline constexpr int64_t lanesOfWarp = 32;
/// The bytes of a barrier that copies complete, or threads that arrive at it (mbarrier).
inline constexpr int64_t bytesOfBarrier = 8;

/// The bytes that a tile in shared memory takes, padding included.
int64_t sharedBytesOf(mlir::RankedTensorType tile);
/// What the first of so many bytes of shared memory is a multiple of; and so many bytes, as each group of a role has
/// them for itself, one after the other.
int64_t alignmentOfShared(int64_t bytes);
int64_t bytesOfGroup(int64_t bytes);
/// The columns of the boxes that a tile with rows and columns is divided into in shared memory.
int64_t boxColumnsOf(mlir::RankedTensorType tile);

/// The argument whose part a view is, where that is or fetched.
mlir::BlockArgument argumentOf(mlir::Value view);

/// Whether warps leave what they have in shared memory, as several have numbers of one sum, or the result is wanted
/// elsewhere.
bool passesThroughShared(chunk::ReduceOp op);

/// Whether the operand has one row, which is in the registers of the result.
bool isOnlyRow(chunk::RowOp op);
/// Whether the operand is a vector that each warp has: one of its lanes has the number.
bool isInEachWarp(chunk::RowOp op);
/// The question behind another one of its block that is of use only together with it: threads meet once, where it is
/// asked. Null where there is none.
chunk::WithinOp askedTogether(chunk::WithinOp op);

/// The shared memory in which `chunk.inverse` finds the inverse of a matrix from those of the blocks of its diagonal.
struct InverseTiles {
  explicit InverseTiles(mlir::RankedTensorType matrix);

  static constexpr int64_t blockRows = 16;
  /// From column to column of a block of the diagonal, in numbers: columns that lanes store side by side lie in other
  /// banks, and begin at multiples of 16 bytes.
  static constexpr int64_t columnStride = 20;

  int64_t blocks;
  /// Blocks below the diagonal, rounded to 16 bits; what rounding takes from them is in the blocks that mirror them.
  mlir::RankedTensorType parts;
  /// The inverses of the blocks of the diagonal, transposed, side by side: rounded, and below that what rounding takes.
  mlir::RankedTensorType inverses;

  int64_t bytesOfBlock() const { return blockRows * columnStride * 4; }
  int64_t bytes() const { return sharedBytesOf(parts) + sharedBytesOf(inverses) + blocks * bytesOfBlock(); }
};

/// The shared memory in which threads that walk down columns leave what their runs of rows give to the taps of a
/// convolution: a number for each run, tap and column.
struct TapSums {
  explicit TapSums(chunk::ConvTapsOp op);

  /// The rows and columns of each thread.
  Layout rows;
  /// How many threads share a column; the taps, up to a power of two; and what is left for one of them.
  int64_t runs, taps;
  mlir::RankedTensorType numbers;

  int64_t bytesOfRun() const { return taps * sharedBytesOf(numbers); }
  int64_t bytes() const { return runs * bytesOfRun(); }
};

/// The attribute that says where an operation's scratch region in shared memory begins, in bytes.
inline constexpr llvm::StringLiteral scratchAttribute = "kernel.scratch";
/// On the selections of a thread: all threads of a warp take the same of the two.
inline constexpr llvm::StringLiteral choiceAttribute = "kernel.choice_of_warp";
/// On the condition that divides the roles of a block: how many threads the first role has.
inline constexpr llvm::StringLiteral rolesAttribute = "kernel.roles";
/// The attribute of a product that says which instruction forms it, an `InstructionAttr`.
inline constexpr llvm::StringLiteral instructionAttribute = "kernel.instruction";
/// Whether warpgroups form a product.
bool isOfWarpgroups(mlir::Operation *product);
/// The first number behind those under which the functions of a block pass tiles; some of those may be no more.
int64_t numberBehindPassed(llvm::ArrayRef<FuncOp> roles);
/// The first channel of the functions of a block that is passed under a number; null where none is.
ChannelOp channelPassed(llvm::ArrayRef<FuncOp> roles, uint64_t number);
/// Whether a product of warpgroups is nothing but what another one of its block adds to: that begins when it is done.
bool isOnlyAddend(chunk::DotOp product);
/// Whether a product is under way behind its place: until a `kernel.finish`, or with the one that adds to it.
bool runsBesideOthers(chunk::DotOp product);
/// The bytes of shared memory that an operation needs while it is executed, beside its operands and results.
int64_t scratchBytesOf(mlir::Operation *op);

/// Whether a tile is the same number everywhere, which is known before anything runs.
bool isOneNumber(mlir::Value tile);

/// Where each thread has, of every part of what is put together, the elements that it takes of it: which registers they
/// are in. Parts follow one another in its registers, or each warp takes one of them.
std::optional<Conversion> withinThreads(chunk::ConcatOp op);
/// Where each thread has all columns of the rows of which it takes some: which registers tiles as wide as the result,
/// side by side, are in.
std::optional<Conversion> withinThreads(chunk::ColumnsOp op);
/// The same by the types of both, of columns from one on.
std::optional<Conversion> columnsWithinThreads(mlir::RankedTensorType whole, mlir::RankedTensorType part, int64_t from);
/// Whether tiles that are joined are constants of one number each, which no thread asks another for.
bool isOfConstants(chunk::ConcatOp op);

} // namespace stretto::kernel

#endif // STRETTO_DIALECT_KERNEL_KERNELDIALECT_H
