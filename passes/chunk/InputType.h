//===- InputType.h - The type that operands may be rounded to ---*- C++ -*-===//
#ifndef STRETTO_PASSES_CHUNK_INPUTTYPE_H
#define STRETTO_PASSES_CHUNK_INPUTTYPE_H

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace stretto {

/// The type of a kernel's inputs, to which operands of products may be rounded: the narrowest one, since gates may be
/// wider than queries, keys and values.
inline mlir::Type inputTypeOf(chunk::KernelOp kernel) {
  mlir::Type result;
  for (mlir::BlockArgument input : kernel.argumentsOf(chunk::ArgumentKind::Input)) {
    mlir::Type type = mlir::getElementTypeOrSelf(input.getType());
    if (!result || type.getIntOrFloatBitWidth() < result.getIntOrFloatBitWidth())
      result = type;
  }
  return result ? result : mlir::Float32Type::get(kernel.getContext());
}

/// What the larger of a tile and of a constant compares with, if a narrower type has it exactly.
inline std::optional<llvm::APFloat> exactBound(mlir::arith::MaximumFOp larger, mlir::Type type) {
  mlir::SplatElementsAttr constant;
  if (!matchPattern(larger.getRhs(), mlir::m_Constant(&constant)))
    return std::nullopt;
  auto bound = constant.getSplatValue<llvm::APFloat>();
  bool isLost = false;
  bound.convert(cast<mlir::FloatType>(type).getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &isLost);
  return isLost ? std::nullopt : std::optional(bound);
}

} // namespace stretto

#endif // STRETTO_PASSES_CHUNK_INPUTTYPE_H
