//===- Lifetimes.h - From when to when tiles are in registers ---*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_LIFETIMES_H
#define STRETTO_PASSES_KERNEL_LIFETIMES_H

#include "dialect/kernel/KernelDialect.h"
#include "llvm/ADT/DenseMap.h"

namespace stretto::kernel {

/// Operations in the order in which they are executed. A tile lives from the one that makes it to the last that uses
/// it, whose result may take its place.
class Lifetimes {
public:
  explicit Lifetimes(FuncOp function);

  /// The most registers that tiles take at once, and the number of the first operation that they are there at.
  struct Peak {
    int64_t registers = 0, at = 0;
  };
  Peak peak() const;

  /// The numbers of an operation: that of its start and, with regions, that of its end.
  int64_t firstOf(mlir::Operation *op) const { return first.lookup(op); }
  int64_t lastOf(mlir::Operation *op) const { return last.lookup(op); }

  /// The bits of a tile that each thread has in registers.
  static int64_t bitsOf(mlir::Value value);

  static constexpr int64_t bitsOfRegister = 32;

private:
  void number(mlir::Block &block);
  int64_t lastUse(mlir::Value value, int64_t made);
  void add(mlir::Value value, int64_t made);
  void walk(mlir::Block &block);

  llvm::DenseMap<mlir::Operation *, int64_t> first, last;
  llvm::DenseSet<mlir::Operation *> isOfStripes;
  bool isAhead; // of a walk
  int64_t count = 0;
  llvm::SmallVector<int64_t> bits; // how many more are live from an operation on
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_LIFETIMES_H
