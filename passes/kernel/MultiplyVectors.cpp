//===- MultiplyVectors.cpp - Products with vectors on tensor cores --------===//

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/Passes.h"
#include "passes/kernel/FreeTiles.h"
#include "llvm/ADT/SetVector.h"

namespace stretto {
#define GEN_PASS_DEF_MULTIPLYVECTORS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static bool isNarrow(Type element) { return element.isBF16() || element.isF16(); }

/// The vector that a matrix repeats along a side; null where it does not.
static Value repeated(Value matrix, chunk::Side along) {
  auto broadcast = matrix.getDefiningOp<chunk::BroadcastOp>();
  bool isVector = broadcast && broadcast.getAlong() == along && tileTypeOf(broadcast.getOperand()).getRank() == 1;
  return isVector ? broadcast.getOperand() : Value();
}

namespace {
/// A sum over a side of a matrix, of which each number may have a weight, times a constant.
struct WeightedSum {
  Value matrix, weights = {}; // null for ones
  std::optional<APFloat> factor = std::nullopt;

  explicit WeightedSum(chunk::ReduceOp op) : matrix(op.getOperand()) {
    auto product = matrix.getDefiningOp<arith::MulFOp>();
    for (unsigned side = 0; product && !weights && side < 2; ++side)
      if ((weights = repeated(product->getOperand(side), op.getOver())))
        matrix = product->getOperand(1 - side);
  }

  /// Takes a constant out of the matrix; whether there is one.
  bool takeFactor() {
    DenseElementsAttr constant;
    auto scaled = matrix.getDefiningOp<arith::MulFOp>();
    if (!scaled || !matchPattern(scaled.getRhs(), m_Constant(&constant)) || !constant.isSplat())
      return false;
    factor = constant.getSplatValue<APFloat>();
    matrix = scaled.getLhs();
    return true;
  }
};

struct MultiplyVectors : stretto::impl::MultiplyVectorsBase<MultiplyVectors> {
  using MultiplyVectorsBase::MultiplyVectorsBase;

  void runOnOperation() override {
    if (getOperation().getChunk() == 1)
      return;
    SmallVector<chunk::ReduceOp> sums;
    getOperation().walk([&](chunk::ReduceOp op) { sums.push_back(op); });
    for (chunk::ReduceOp op : sums)
      multiply(op);
  }

  void multiply(chunk::ReduceOp op) {
    bool transpose = op.getOver() == chunk::Side::Rows;
    if (op.getKind() != chunk::Reduction::Sum || !getElementTypeOrSelf(op.getType()).isF32() || !isOfFragments(op))
      return;
    WeightedSum sum(op);
    if (!sum.weights && !transpose)
      return; // a thread has most of a row
    OpBuilder builder(op);
    Value matrix = narrowed(op, sum.matrix, transpose);
    if (!matrix && sum.takeFactor())
      matrix = narrowed(op, sum.matrix, transpose);
    if (!matrix)
      return;
    Type element = tileTypeOf(matrix).getElementType();
    if (sum.weights && !element.isBF16())
      return;
    Value vector = vectorOf(builder, op.getLoc(), sum.weights,
                            RankedTensorType::get({tileTypeOf(matrix).getDimSize(transpose ? 0 : 1)}, element));
    auto product = MatvecOp::create(builder, op.getLoc(), op.getType(), matrix, vector, transpose);
    Value result = product.getResult();
    if (sum.factor) {
      Value factor =
          arith::ConstantOp::create(builder, op.getLoc(), DenseElementsAttr::get(tileTypeOf(result), *sum.factor));
      result = arith::MulFOp::create(builder, op.getLoc(), result, factor);
    }
    op.replaceAllUsesWith(result);
    eraseDead(op);
    if (sum.weights)
      delay(product);
  }

  /// Erases what nobody uses any longer.
  static void eraseDead(Operation *op) {
    SmallVector<Value> operands(op->getOperands());
    op->erase();
    for (Value operand : operands)
      if (Operation *made = operand.getDefiningOp(); made && isOpTriviallyDead(made))
        eraseDead(made);
  }

  /// Moves a product, and what is made of it, behind the next product with the same matrix on the left: the operands of
  /// both are then stored before one barrier.
  static void delay(MatvecOp product) {
    chunk::DotOp next;
    for (Operation *user : product.getMatrix().getUsers())
      if (auto dot = dyn_cast<chunk::DotOp>(user);
          dot && dot->getBlock() == product->getBlock() && product->isBeforeInBlock(dot) &&
          dot.getLeft() == product.getMatrix() && !dot.getTransposeLeft() && (!next || dot->isBeforeInBlock(next)))
        next = dot;
    if (!next)
      return;
    llvm::SetVector<Operation *> moved;
    moved.insert(product);
    for (Operation *op = product->getNextNode(); op != next; op = op->getNextNode())
      if (llvm::any_of(op->getOperands(), [&](Value operand) { return moved.contains(operand.getDefiningOp()); }))
        moved.insert(op);
    bool areFree = llvm::all_of(moved, [&](Operation *op) {
      return isPure(op) && !op->getNumRegions() && !llvm::is_contained(op->getUsers(), next.getOperation());
    });
    if (areFree)
      for (Operation *op : llvm::reverse(moved))
        op->moveAfter(next);
  }

  static bool isOfFragments(chunk::ReduceOp op) {
    constexpr int64_t side = 16;
    RankedTensorType tile = tileTypeOf(op.getOperand());
    return tile.getRank() == 2 && tile.getDimSize(0) % side == 0 && tile.getDimSize(1) % side == 0;
  }

  /// The matrix in 16 bits, as another product of the same sums has it on its left. Null where there is none: numbers
  /// that are rounded for others may be parts of a sum.
  static Value narrowed(chunk::ReduceOp op, Value matrix, bool transpose) {
    auto extension = matrix.getDefiningOp<arith::ExtFOp>();
    for (auto product : op->getBlock()->getOps<chunk::DotOp>()) {
      Value left = product.getLeft();
      auto rounding = left.getDefiningOp<arith::TruncFOp>();
      bool isSame = (extension && areSame(left, extension.getIn())) || (rounding && areSame(rounding.getIn(), matrix));
      if (!isSame || product.getTransposeLeft() != transpose || !isNarrow(tileTypeOf(left).getElementType()))
        continue;
      Operation *made = left.getDefiningOp();
      if (!made || made->getBlock() != op->getBlock() || made->isBeforeInBlock(op))
        return left;
      Value earlier = extension ? extension.getIn() : Value();
      if (!earlier) {
        OpBuilder builder(op);
        earlier = arith::TruncFOp::create(builder, made->getLoc(), left.getType(), matrix);
      }
      left.replaceAllUsesWith(earlier);
      eraseDead(made);
      return earlier;
    }
    return {};
  }

  /// Whether two values are made alike of the same ones: what is short-lived may have been made twice.
  static bool areSame(Value one, Value other, int64_t deepest = 6) {
    if (one == other)
      return true;
    auto first = dyn_cast<OpResult>(one), second = dyn_cast<OpResult>(other);
    if (!deepest || !first || !second || first.getResultNumber() != second.getResultNumber())
      return false;
    auto areOperandsSame = [&](Value a, Value b) { return success(areSame(a, b, deepest - 1)); };
    Operation *op = first.getOwner();
    return isPure(op) && !op->getNumRegions() &&
           OperationEquivalence::isEquivalentTo(op, second.getOwner(), areOperandsSame, /*markEquivalent=*/nullptr,
                                                OperationEquivalence::IgnoreLocations);
  }

  static Value vectorOf(OpBuilder &builder, Location location, Value weights, RankedTensorType type) {
    if (weights)
      return arith::TruncFOp::create(builder, location, type, weights);
    return arith::ConstantOp::create(builder, location,
                                     DenseElementsAttr::get(type, builder.getFloatAttr(type.getElementType(), 1.0)));
  }
};
} // namespace
