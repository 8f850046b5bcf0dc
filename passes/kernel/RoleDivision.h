//===- RoleDivision.h - What each of two roles does of a loop ---*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_ROLEDIVISION_H
#define STRETTO_PASSES_KERNEL_ROLEDIVISION_H

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SetVector.h"
#include <optional>

namespace stretto::kernel {

/// The loop of a function in two parts, of which the second takes what the first passes: what the states that it
/// carries do not reach, and what follows from them; or what the next states depend on, and the outputs. Those who find
/// outputs have more time than those who walk: they make what these add to states, too, and pass it back.
struct RoleDivision {
  mlir::scf::ForOp loop;
  mlir::DenseSet<mlir::Value> reached;           // what the second part makes or carries
  llvm::SetVector<mlir::Operation *> second;     // operations of the loop
  mlir::DenseSet<mlir::Operation *> again;       // those of the first that the second makes again
  mlir::SmallVector<bool> isOfFirst, isOfSecond; // what the loop carries
  llvm::SetVector<mlir::Value> passed;           // tiles and conditions
  llvm::SetVector<mlir::Value> returned;         // tiles that the second part makes for the first
  bool walksFirst = false;                       // the second part finds outputs
  bool leavesStates = false;                     // nothing else is stored

  /// Where the function has a loop that carries states and stores what follows from them, something is left for those
  /// who run ahead, and all that the walk takes of it can be passed. With `ofStates` it may store nothing but its
  /// states.
  static std::optional<RoleDivision> ahead(FuncOp function, bool ofStates);
  /// Where the function has a loop that carries states, outputs that products beside those of the states find, and all
  /// that these take of the walk can be passed. With `prepares` those who find them also make what the walk adds. With
  /// `isPrepared` others are to run ahead of both, and find sums over rows of tiles, too.
  static std::optional<RoleDivision> behind(FuncOp function, bool prepares, bool isPrepared);

  /// Whether the second part carries nothing from chunk to chunk.
  bool takesTurns() const { return !llvm::is_contained(isOfSecond, true); }
  bool isInLoop(mlir::Value value) { return value.getParentBlock() == loop.getBody(); }
  /// Whether an operation makes a number of the loop, as that of the next chunk, which both parts may.
  static bool isNumber(mlir::Operation *op);
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_ROLEDIVISION_H
