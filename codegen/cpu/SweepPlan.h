//===- SweepPlan.h - How a step walks over its states -----------*- C++ -*-===//
//
// A kernel over single tokens computes little with every number of its states: it is as fast as memory. All that is
// done with a state before rows are needed that depend on a read of it is therefore done in one walk over its entries,
// a sweep, in which what the state becomes is computed from what it was as often as it is asked for:
//
//   for each row d, for each column e:  S' = a_d S_de + k_d v_e;  o_e += q_d S';  S_de = S'
//
// Products with one row are sums of pointwise products by then (chunk.dot's canonical form), so that a read is a
// reduction. A delta rule, whose written row depends on a read, has two sweeps. The last one of a state stores what it
// becomes.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_CODEGEN_CPU_SWEEPPLAN_H
#define STRETTO_CODEGEN_CPU_SWEEPPLAN_H

#include "dialect/chunk/ChunkDialect.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace stretto::cpu {

struct Sweep {
  mlir::BlockArgument state;
  /// Reductions of what the state has become.
  llvm::SmallVector<chunk::ReduceOp, 2> reads;
  /// What is stored, or null.
  mlir::Value next;
};

class SweepPlan {
public:
  /// Plans the sweeps of a kernel over single tokens, and sorts its operations: those that need no read come first,
  /// then the reads that one sweep takes. Other kernels have none.
  explicit SweepPlan(chunk::KernelOp kernel);

  /// Whether a value is a state that sweeps walk over, or what it has become.
  bool isMatrix(mlir::Value value) const { return rootOf.contains(value); }
  bool isRead(mlir::Operation *op) const { return sweepOf.contains(op); }
  /// The sweep that a read is the first of, or null.
  const Sweep *beginningAt(mlir::Operation *read) const;
  /// The sweeps that read nothing.
  llvm::ArrayRef<Sweep> updates() const { return updateList; }

private:
  /// Finds what becomes of a state within a kernel; leaves out one that anything but sweeps uses.
  void follow(mlir::BlockArgument state, mlir::Value next);
  void sort(chunk::KernelOp kernel);

  llvm::DenseMap<mlir::Value, mlir::BlockArgument> rootOf;
  llvm::SmallVector<Sweep> sweeps, updateList;
  llvm::DenseMap<mlir::Operation *, size_t> sweepOf;
};

} // namespace stretto::cpu

#endif // STRETTO_CODEGEN_CPU_SWEEPPLAN_H
