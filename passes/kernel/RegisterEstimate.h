//===- RegisterEstimate.h - How many registers a kernel takes ---*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_REGISTERESTIMATE_H
#define STRETTO_PASSES_KERNEL_REGISTERESTIMATE_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// The registers of a thread that tiles occupy at once, at most, in a function whose layouts are assigned, those of
/// operands of products, and the addresses of its arguments, which live throughout. What the assembler keeps besides is
/// not counted.
int64_t estimateRegisters(FuncOp function);
/// Those of them that addresses of arguments take, which a walk keeps from chunk to chunk.
int64_t registersOfAddresses(FuncOp function);
/// What a walk back may have by that estimate: what ptxas needs beside tiles, it was seen to need there.
inline constexpr int64_t mostOfWalkBack = 190;

/// How many registers the threads of each role of a block have. Those that walk take what they want first, as their
/// products may wait for none; a producer needs few, and the others have what is left. Warpgroups set the number in
/// steps.
class RegistersOfRoles {
public:
  /// `roles`: the walk first.
  explicit RegistersOfRoles(llvm::ArrayRef<FuncOp> roles);

  int64_t atLaunch;
  int64_t of(FuncOp role) const { return ofRoles.lookup(role); }
  /// Whether a role has as many as its tiles and what the assembler keeps besides were seen to want.
  bool suffice(FuncOp role) const { return estimateRegisters(role) + ofAssembler <= of(role); }
  /// Whether it has fewer, as all have shares.
  bool areScarce(FuncOp role) const { return areShares && !suffice(role); }

private:
  void divide(llvm::ArrayRef<FuncOp> roles, int64_t left);
  static int64_t wantedBy(FuncOp role);
  static bool leavesTooFew(llvm::ArrayRef<FuncOp> roles, int64_t left);

  bool areShares = false; // of what a walk wants, and outputs that meet other chunks
  static constexpr int64_t ofAssembler = 60, ofAddresses = 32;
  llvm::DenseMap<mlir::Operation *, int64_t> ofRoles;
};

/// Whether roles leave tiles over others, where these came.
bool leavesOver(llvm::ArrayRef<FuncOp> roles);

/// Whether an operation is in the branch of a choice that is seldom taken: of two, the one that stands last.
bool isInRareBranch(mlir::Operation *op);

/// What a function computes in each turn of its loop but for rare branches: the numbers of all tiles that are made,
/// of products half as many.
int64_t estimateWork(FuncOp function);
/// The same of an operation and what it holds.
int64_t estimateWork(mlir::Operation *of);

/// How many blocks that find inverses, each of a chunk for itself, a multiprocessor has registers and shared memory
/// for, with so many bytes of the latter: they wait for one row after the other, so that many are to wait side by side.
/// 1 where a function finds none.
int64_t blocksOfInverses(FuncOp function, int64_t bytes);
/// The shared memory of each of so many blocks of a multiprocessor.
int64_t bytesOfBlock(int64_t blocks);

/// Whether chunks are met in reverse. Functions of tests may have no manifest.
bool walksInReverse(FuncOp function);
/// Whether a walk is one of a gradient: back, or to keep states for that.
bool isOfGradient(FuncOp function);
/// Whether several blocks divide the values of a head.
bool hasSlices(FuncOp function);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_REGISTERESTIMATE_H
