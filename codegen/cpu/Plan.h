//===- Plan.h - Where the values of a kernel live on a CPU ------*- C++ -*-===//
//
// Every tensor of a kernel's body is either
//
//   stored     in a buffer of the thread's scratch, by rows, transposed, or both: what a product reads many times, what
//              reaches across a row or a column (reductions, concatenations), every vector, and what is costly and
//              has several users;
//   in place   computed where it is used, one vector at a time: a chain of pointwise operations;
//   swept      computed entry by entry from a state, in a walk over it (SweepPlan.h);
//   or fused   a product whose sums stay in registers until the chain of pointwise operations behind it, its `root`,
//              is finished and stored.
//
// A plan says which, by these rules:
//   1. The right operand of a product is read by vectors along its result's columns: it is stored by rows, or
//      transposed under `transpose_right`. A left operand is read by scalars, so that either order serves. Where the
//      machine multiplies bf16 numbers and both operands are such, they are stored as pairs along the contracted axis.
//      Where it multiplies tiles of pairs, and that takes less time, a left operand lies by rows of the result as well.
//   2. A product is fused with its only user, and that one's only user, while these are pointwise; an expression holds
//      at most one product. A product that another one adds is summed in the same registers.
//   3. What the body of a look-back contributes is stored, by rows.
//   4. Values that depend on parameters and constants only are computed once for each head, before the chunks.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_CODEGEN_CPU_PLAN_H
#define STRETTO_CODEGEN_CPU_PLAN_H

#include "codegen/cpu/SweepPlan.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

namespace stretto::cpu {

/// The orders in which a value is stored.
struct Orders {
  bool rows = false, transposed = false;
  // As pairs of bf16 numbers (Pairs.cpp).
  bool columnPairs = false, rowPairs = false, transposedPairs = false, transposedRowPairs = false;
  bool any() const { return rows || columnPairs || isTurned(); }
  /// In an order other than that in which sums come out of a product.
  bool isTurned() const { return transposed || rowPairs || transposedPairs || transposedRowPairs; }
};

/// What the operations on one amount of decay ask for. All are products of the factors a_u of the tokens of a chunk.
struct DecayUses {
  /// Products from the start, for a query.
  bool prefix = false;
  /// The product of all, for a state.
  bool total = false;
  /// Products to the end, for a key.
  bool suffix = false;
  /// Products between each pair of tokens; one factor for each token only.
  bool pairs = false;
  /// The factors themselves, for `decay_mix`, and `decay_dot` with one for each channel.
  bool factors = false;
};

/// An amount of decay in one form.
using Decay = std::pair<mlir::Value, chunk::DecayForm>;

/// From what products of bf16 operands may be formed, other than from fp32 numbers: vectors of pairs, tiles of them.
struct PairProducts {
  bool vectors = false, tiles = false;
};

class Plan {
public:
  Plan(chunk::KernelOp kernel, const SweepPlan &sweeps, PairProducts pairs);

  Orders orders(mlir::Value value) const { return stored.lookup(value); }
  /// The product that is summed in registers while `root` is computed, or null.
  mlir::Operation *product(mlir::Value root) const { return products.lookup(root); }
  /// Whether a product's sums never reach memory on their own.
  bool isFused(mlir::Operation *product) const { return fused.contains(product); }
  /// Whether the product multiplies pairs of bf16 numbers.
  bool isOfPairs(mlir::Operation *product) const { return ofPairs.contains(product); }
  /// Whether it multiplies tiles of them.
  bool isOfTiles(mlir::Operation *product) const { return ofTiles.contains(product); }
  /// Whether the value is the same in all chunks of a sequence.
  bool isInvariant(mlir::Value value) const { return invariant.contains(value); }
  /// The decayed keys that `product` leaves behind as its last step, or null.
  chunk::DecayToEndOp decayedKeys(chunk::DecayDotOp product) const { return decayed.lookup(product); }
  const llvm::MapVector<Decay, DecayUses> &decays() const { return decayUses; }
  /// Stored values that no stage reads after that of `value`, and that do not outlive a chunk.
  llvm::ArrayRef<mlir::Value> readLastBy(mlir::Value value) const;
  /// Whether the next value of a state may overwrite the present one while it is computed.
  bool isUpdatedInPlace(unsigned state) const { return inPlace[state]; }

private:
  void findPairs(PairProducts pairs);
  void findInvariant(chunk::KernelOp kernel);
  void findDecays(chunk::KernelOp kernel);
  void storeOperands(chunk::KernelOp kernel);
  void storePast(chunk::KernelOp kernel, chunk::LookbackOp lookback);
  void storeCostly(chunk::KernelOp kernel);
  void fuseProducts(chunk::KernelOp kernel);
  void findUpdatesInPlace(chunk::KernelOp kernel);
  void findLastReads(chunk::KernelOp kernel);

  llvm::SmallVector<mlir::Operation *> operations;
  const SweepPlan &sweeps;
  llvm::DenseMap<mlir::Value, Orders> stored;
  llvm::DenseMap<mlir::Value, mlir::Operation *> products;
  llvm::DenseSet<mlir::Operation *> fused, ofPairs, ofTiles;
  llvm::DenseSet<mlir::Value> invariant;
  llvm::DenseMap<mlir::Operation *, chunk::DecayToEndOp> decayed;
  llvm::MapVector<Decay, DecayUses> decayUses;
  llvm::SmallVector<bool> inPlace;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> lastReads;
};

/// The operations of a kernel, those of a look-back's body before it.
llvm::SmallVector<mlir::Operation *> operationsOf(chunk::KernelOp kernel);
/// Whether an entry of the result is a function of the same entry of the operands (of a whole vector along one side,
/// where the operand is a vector).
bool isPointwise(mlir::Operation *op);
/// Whether what is computed for an entry of the using operation's result needs only the same entry of this operand.
bool keepsPlace(mlir::OpOperand &use);
/// Whether the operation is a product that can be summed in registers: `dot`, or `decay_dot` with one factor a token.
bool isProduct(mlir::Operation *op);
/// Whether all entries behind the diagonal are 0.
bool isCausal(mlir::Value value);

inline int64_t rankOf(mlir::Value value) { return llvm::cast<mlir::RankedTensorType>(value.getType()).getRank(); }
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType()).getShape();
}
inline bool isFloat(mlir::Value value) {
  auto type = llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
  return type && llvm::isa<mlir::FloatType>(type.getElementType());
}

} // namespace stretto::cpu

#endif // STRETTO_CODEGEN_CPU_PLAN_H
