//===- FragmentBuilder.h - Products of fragments ----------------*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_FRAGMENTBUILDER_H
#define STRETTO_PASSES_KERNEL_FRAGMENTBUILDER_H

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/kernel/ThreadBuilder.h"

namespace stretto::kernel {

/// An operand as the product sees it: element (outer, inner) of a tile that may be stored transposed.
struct Operand {
  SharedTile tile;
  bool innerIsRows; // the inner axis is the stored tile's first

  uint64_t flat(int64_t outer, int64_t inner) const {
    return tile.getLayout().flat(innerIsRows ? llvm::ArrayRef<int64_t>{inner, outer}
                                             : llvm::ArrayRef<int64_t>{outer, inner});
  }
};

/// Emits the instructions on fragments of one type of element.
class FragmentBuilder {
public:
  FragmentBuilder(ThreadBuilder &b, mlir::Type element) : b(b), element(element) {}

  /// Addresses for `ldmatrix`: lane l gives a row of the matrix l / 8. The matrices are 8 further on the side of
  /// `first` for odd ones, and by `second` for the upper pair. Rows of a matrix are those of the stored tile.
  Addresses matrices(const Operand &operand, llvm::ArrayRef<int64_t> warps, std::pair<int64_t, int64_t> first,
                     std::pair<int64_t, int64_t> second) {
    llvm::SmallVector<uint64_t> lanes, ofWarps;
    for (int64_t row = 1; row < 8; row *= 2)
      lanes.push_back(operand.innerIsRows ? operand.flat(0, row) : operand.flat(row, 0));
    lanes.push_back(operand.flat(first.first, first.second));
    lanes.push_back(operand.flat(second.first, second.second));
    for (int64_t outer : warps)
      ofWarps.push_back(operand.flat(outer, 0));
    return Addresses(b, operand.tile, lanes, ofWarps);
  }

  /// Loads `count` matrices, as fragments with pairs of inner elements.
  llvm::SmallVector<mlir::Value> load(mlir::Value address, bool transposed, unsigned count) {
    llvm::SmallVector<mlir::Type> words(count, b.getI32Type());
    mlir::Type type = mlir::LLVM::LLVMStructType::getLiteral(b.getContext(), words);
    auto shape = mlir::NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
    mlir::Value loaded = mlir::NVVM::LdMatrixOp::create(
        b, type, address, count, transposed ? mlir::NVVM::MMALayout::col : mlir::NVVM::MMALayout::row, shape,
        mlir::NVVM::LdStMatrixEltType::B16);
    llvm::SmallVector<mlir::Value> result;
    for (unsigned index = 0; index < count; ++index)
      result.push_back(operand(mlir::LLVM::ExtractValueOp::create(b, loaded, index)));
    return result;
  }

  void multiply(llvm::ArrayRef<mlir::Value> left, llvm::ArrayRef<mlir::Value> right,
                llvm::MutableArrayRef<mlir::Value> sums) {
    auto kind = element.isF16() ? mlir::NVVM::MMATypes::f16 : mlir::NVVM::MMATypes::bf16;
    mlir::Type f32 = b.getF32Type();
    mlir::Type type = mlir::LLVM::LLVMStructType::getLiteral(b.getContext(), {f32, f32, f32, f32});
    mlir::Value result = mlir::NVVM::MmaOp::create(
        b, type, left, right, mlir::ValueRange(sums), llvm::ArrayRef<int64_t>{16, 8, 16}, std::nullopt, std::nullopt,
        std::array{kind, kind}, std::array{mlir::NVVM::MMALayout::row, mlir::NVVM::MMALayout::col});
    for (auto [index, sum] : llvm::enumerate(sums))
      sum = mlir::LLVM::ExtractValueOp::create(b, result, index);
  }

  /// Words are operands of bf16, pairs of numbers of f16.
  mlir::Value operand(mlir::Value word) {
    if (!element.isF16())
      return word;
    return mlir::LLVM::BitcastOp::create(b, mlir::VectorType::get(2, element), word);
  }

private:
  ThreadBuilder &b;
  mlir::Type element;
};

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_FRAGMENTBUILDER_H
