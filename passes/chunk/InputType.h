//===- InputType.h - The type that operands may be rounded to ---*- C++ -*-===//
#ifndef STRETTO_PASSES_CHUNK_INPUTTYPE_H
#define STRETTO_PASSES_CHUNK_INPUTTYPE_H

#include "dialect/chunk/ChunkDialect.h"

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

} // namespace stretto

#endif // STRETTO_PASSES_CHUNK_INPUTTYPE_H
