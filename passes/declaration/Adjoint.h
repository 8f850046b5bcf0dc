//===- Adjoint.h - The gradient of a declaration ----------------*- C++ -*-===//
//
// Reverse-mode differentiation of one token's program. The adjoint begins with the program itself and walks it
// backwards: every operation hands the cotangent of its results on to its operands. A state has a cotangent of its own,
// a state that is carried from the last token to the first; what was read from the one is written to the other, and the
// other way round. Nothing here says how either is computed: the adjoint is a declaration like any other.
//
// Writing dx for the cotangent of x, S for a state and dS for the state that carries its cotangent,
//
//   o = read(S, x along A)           dx = read(S, do along B)         dS = write(dS, x, do)
//   S' = write(S, k, v)              dk = read(dS, v along B)         dv = read(dS, k along A)
//   S' = decay(S, factor a along A)  da = pair(S, dS along A)         dS = decay(dS, factor a along A)
//   S' = decay(S, log g along A)     dg = pair(S', dS along A)        dS = decay(dS, log g along A)
//
// Parameters gather their gradients in states without decay.
//
// Cotangents are built of what depends on something that a gradient is wanted of, and of nothing else.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_ADJOINT_H
#define STRETTO_PASSES_DECLARATION_ADJOINT_H

#include "dialect/stretto/Sizes.h"
#include "dialect/stretto/StateChain.h"
#include "dialect/stretto/StateEntries.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/MapVector.h"

namespace stretto {

/// Whether the gradient of an argument, or of the initial value of an entry of the state, is wanted.
using IsWanted = llvm::function_ref<bool(llvm::StringRef name)>;

/// Builds cotangents after the program whose adjoint they are.
class Adjoint : public mlir::ImplicitLocOpBuilder {
public:
  /// `variant` is the program, whose alternatives are decided; what is built follows its operations.
  Adjoint(VariantOp variant, const Sizes &sizes, IsWanted isWanted);

  /// Walks the program backwards from the cotangents of its results, null where one is 0.
  mlir::LogicalResult run(llvm::ArrayRef<mlir::Value> resultCotangents);
  /// The cotangent of a row, zeros where nothing depends on it.
  mlir::Value gradientOf(mlir::Value row);
  /// The operations that leave a gradient in the final state.
  llvm::ArrayRef<mlir::Operation *> getLeaving() const { return leaving; }

private:
  /// Differentiates within the body of a look-back.
  Adjoint(const Adjoint &outer, mlir::Block &body);

  //===- What is asked for ------------------------------------------------------------------------------------===//

  /// Whether a value depends on what has a gradient: rows, parameters and states.
  bool isActive(mlir::Value value) const { return active.contains(value); }
  /// Marks what depends on active values, or on entries of the state that a gradient is wanted of.
  void findActive();
  /// Whether an operation carries an entry that a gradient is wanted of.
  bool isEntryWanted(mlir::Operation *op) const {
    auto entry = carried.find(op);
    return entry != carried.end() && entry->second->isWanted;
  }
  /// What has been added for a row, or nothing. Complete once all operations that use it have been visited.
  mlir::Value cotangentOf(mlir::Value row);
  /// Adds to the cotangent of a row, or of a parameter of at most one axis; `cotangent` is summed over what `value` was
  /// repeated over.
  void add(mlir::Value value, mlir::Value cotangent);

  //===- Rows -------------------------------------------------------------------------------------------------===//

  mlir::Value constant(mlir::Type row, double value) { return create<ConstantOp>(row, getF64FloatAttr(value)); }
  mlir::Value plus(mlir::Value a, mlir::Value b);
  mlir::Value times(mlir::Value a, mlir::Value b);
  mlir::Value times(mlir::Value a, double factor) { return times(a, constant(a.getType(), factor)); }
  mlir::Value over(mlir::Value a, mlir::Value b);
  mlir::Value negative(mlir::Value a);
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);
  mlir::Value zeroUnless(mlir::Value condition, mlir::Value a) {
    return select(condition, a, constant(a.getType(), 0));
  }
  mlir::Value repeat(mlir::Value row, mlir::Type type) { return createOrFold<BroadcastOp>(type, row); }
  mlir::Value sum(mlir::Value row);
  /// The row for other heads: summed over groups, or repeated.
  mlir::Value forHeads(mlir::Value row, llvm::StringRef heads);
  mlir::RankedTensorType numberType(llvm::StringRef heads) const { return rowType(getContext(), "", heads); }
  mlir::RankedTensorType rowTypeOf(const Extent &extent, llvm::StringRef heads) const;

  //===- Operations -------------------------------------------------------------------------------------------===//

  mlir::LogicalResult visit(mlir::Operation *op);
  /// Elementwise operations; false where `op` is none.
  bool visitElementwise(mlir::Operation *op, mlir::Value result, mlir::Value cotangent);
  /// Other operations on the rows of one token; false where `op` is none.
  bool visitRowMap(mlir::Operation *op, mlir::Value cotangent);
  struct CotangentOfSlice {
    Extent offset;
    mlir::Value cotangent;
  };
  /// The row that has the slices of `whole` and zeros between them.
  mlir::Value join(mlir::Value whole, llvm::SmallVector<CotangentOfSlice> slices);
  void visitConcat(ConcatOp op, mlir::Value cotangent);
  void visitContract(ContractOp op, mlir::Value cotangent);
  mlir::LogicalResult visitBroadcast(BroadcastOp op, mlir::Value cotangent);

  //===- Time -------------------------------------------------------------------------------------------------===//

  void visitConv(ConvOp op, mlir::Value cotangent);
  /// Adds to the cotangent of the rows that a convolution or delay sees, those of its tail included.
  void addThroughTail(mlir::Operation *op, mlir::Value cotangent);
  /// Of a convolution or delay whose result has no cotangent: that of the tail which it leaves enters with it.
  void visitUnusedTail(mlir::Operation *op);
  void visitScans(llvm::ArrayRef<mlir::Operation *> scans);
  mlir::LogicalResult visitLookback(LookbackOp op);
  class PairBody;
  void addPair(LookbackOp op, PairBody &body, llvm::ArrayRef<mlir::Value> cotangents, mlir::Value ofMaximum);
  mlir::Value gradientOfMaximum(LookbackOp op, llvm::ArrayRef<mlir::Value> cotangents);
  /// The entry of the gradient of a tail, for one of the operations that share it.
  mlir::StringAttr tailName(mlir::Operation *op);

  //===- States -----------------------------------------------------------------------------------------------===//

  /// A state of the program, with the state that carries its cotangent.
  struct Pair {
    mlir::Value cotangent;
    /// Reads that were met, by the value that they read; their rows are written when the walk comes to it.
    llvm::DenseMap<mlir::Value, llvm::SmallVector<ReadOp, 2>> waiting;
  };
  /// Of an active state.
  Pair &pairOf(mlir::Value state) { return pairs[rootOf(state)]; }
  void writeReadsOf(mlir::Value state);
  void visitRead(ReadOp op, mlir::Value cotangent);
  void visitWrite(WriteOp op);
  void visitDecay(DecayOp op);
  StateType reversed(StateType type) const;

  //===- Parameters -------------------------------------------------------------------------------------------===//

  /// Adds the products of two rows to the gradient of a parameter: its first axis, and its second or 1.
  void addToParameter(mlir::Value parameter, mlir::Value first, mlir::Value second);
  void writeParameters();

  VariantOp variant;
  const Sizes &sizes;
  IsWanted isWanted;
  llvm::SmallVector<mlir::Operation *> program;
  llvm::SmallVector<mlir::Operation *> leaving;
  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, mlir::Value> cotangents;
  /// Cotangents of the slices of a row, put together when its own is wanted.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<CotangentOfSlice>> slicesOf;
  llvm::MapVector<mlir::Operation *, Pair> pairs; // by the forward StateOp
  /// The operations that carry an entry of the state together, by each of them, and the entry's name.
  struct Carried {
    std::string name;
    llvm::SmallVector<mlir::Operation *, 2> operations;
    bool isWanted;
  };
  llvm::DenseMap<mlir::Operation *, std::shared_ptr<Carried>> carried;
  llvm::MapVector<mlir::Value, llvm::SmallVector<std::pair<mlir::Value, mlir::Value>>> parameterProducts;
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_ADJOINT_H
