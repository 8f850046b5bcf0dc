//===- PartialSums.h - What slices have parts of ----------------*- C++ -*-===//
//
// Of a sum over an axis whose columns are divided among slices, each slice has a part, and so it has of all that
// follows from it linearly. At the end the parts are added up.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_CHUNK_PARTIALSUMS_H
#define STRETTO_PASSES_CHUNK_PARTIALSUMS_H

#include "dialect/chunk/ChunkDialect.h"
#include "llvm/ADT/DenseSet.h"

namespace stretto::chunk {

/// Why a kernel cannot be divided.
struct Refusal {
  mlir::Operation *op = nullptr;
  std::string reason;
};

class PartialSums {
public:
  /// `columns`: the values whose columns are divided among so many slices.
  PartialSums(KernelOp kernel, const llvm::DenseSet<mlir::Value> &columns, int64_t slices)
      : kernel(kernel), columns(columns), slices(slices) {}

  /// Finds them; says what is not linear in one.
  std::optional<Refusal> find();
  bool contains(mlir::Value value) const { return parts.contains(value); }
  /// What every slice has whole is divided by their number where it is added to a part.
  void divideWholes();

private:
  std::optional<Refusal> visit(mlir::Operation *op);
  std::optional<Refusal> visit(YieldOp yield);
  void add(mlir::Value value) { changed |= parts.insert(value).second; }
  /// Operands that are whole and added to parts.
  llvm::SmallVector<mlir::OpOperand *> wholesOf(mlir::Operation *op);

  KernelOp kernel;
  const llvm::DenseSet<mlir::Value> &columns;
  int64_t slices;
  llvm::DenseSet<mlir::Value> parts;
  bool changed = false;
};

} // namespace stretto::chunk

#endif // STRETTO_PASSES_CHUNK_PARTIALSUMS_H
