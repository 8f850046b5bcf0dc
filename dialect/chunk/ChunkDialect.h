//===- ChunkDialect.h - The chunk dialect -----------------------*- C++ -*-===//
#ifndef STRETTO_DIALECT_CHUNK_CHUNKDIALECT_H
#define STRETTO_DIALECT_CHUNK_CHUNKDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include <limits>

#include "dialect/chunk/ChunkDialect.h.inc"
#include "dialect/chunk/ChunkEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/chunk/ChunkAttributes.h.inc"

#define GET_OP_CLASSES
#include "dialect/chunk/ChunkOps.h.inc"

namespace stretto::chunk {
/// Parses the word for a kind of argument.
mlir::ParseResult parseArgumentKind(mlir::AsmParser &parser, ArgumentKind &kind);

/// The group of an argument that all heads share, however many they are.
inline constexpr int64_t allHeadsGroup = std::numeric_limits<int32_t>::max();

/// Marks a `chunk.decay_dot` whose products are to be formed one by one.
inline constexpr llvm::StringLiteral exactAttribute = "exact";

/// A logarithm whose factor underflows in fp32, as those of what is smaller do.
inline constexpr double noFactor = -110;

/// How many columns of its entry a state of this type takes.
int64_t columnsOfState(mlir::Type state);
} // namespace stretto::chunk

#endif // STRETTO_DIALECT_CHUNK_CHUNKDIALECT_H
