//===- Scaled.h - Tiles times constant numbers -------------------*- C++ -*-===//
#ifndef STRETTO_PASSES_CHUNK_SCALED_H
#define STRETTO_PASSES_CHUNK_SCALED_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace stretto {

/// A tile as a constant number times another one.
struct Scaled {
  mlir::Value tile;
  mlir::FloatAttr factor;

  static std::optional<Scaled> of(mlir::Value value) {
    auto product = value.getDefiningOp<mlir::arith::MulFOp>();
    if (!product || !isa<mlir::RankedTensorType>(value.getType()))
      return std::nullopt;
    for (auto [constant, tile] :
         {std::pair(product.getLhs(), product.getRhs()), {product.getRhs(), product.getLhs()}}) {
      mlir::SplatElementsAttr splat;
      if (matchPattern(constant, mlir::m_Constant(&splat)))
        return Scaled{tile, splat.getSplatValue<mlir::FloatAttr>()};
    }
    return std::nullopt;
  }

  static mlir::Value make(mlir::OpBuilder &builder, mlir::Location location, mlir::Value tile,
                          const llvm::APFloat &factor) {
    auto splat = mlir::DenseElementsAttr::get(cast<mlir::RankedTensorType>(tile.getType()), factor);
    mlir::Value constant = mlir::arith::ConstantOp::create(builder, location, splat);
    return mlir::arith::MulFOp::create(builder, location, tile, constant);
  }
};

} // namespace stretto

#endif // STRETTO_PASSES_CHUNK_SCALED_H
