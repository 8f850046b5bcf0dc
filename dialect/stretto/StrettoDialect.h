//===- StrettoDialect.h - The token-level dialect ---------------*- C++ -*-===//
#ifndef STRETTO_DIALECT_STRETTO_STRETTODIALECT_H
#define STRETTO_DIALECT_STRETTO_STRETTODIALECT_H

#include "dialect/stretto/Expression.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialect/stretto/StrettoDialect.h.inc"
#include "dialect/stretto/StrettoEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/stretto/StrettoAttributes.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/stretto/StrettoTypes.h.inc"

namespace stretto {

/// The head set of the query heads, of keys and values, and the one for all heads.
inline constexpr llvm::StringLiteral queryHeads = "H", keyValueHeads = "G", allHeads = "1";

/// The resource of the effects of state operations: what a token leaves to the next.
struct CarriedState : mlir::SideEffects::Resource::Base<CarriedState> {
  llvm::StringRef getName() final { return "stretto.carried_state"; }
};

bool isRow(mlir::Type type);
bool isParam(mlir::Type type);

/// The axis of a row; empty for a number.
llvm::StringRef axisOf(mlir::Type row);
/// The head set of a row, a parameter or a state.
llvm::StringRef headsOf(mlir::Type type);

/// The type of a row. An axis that is a plain number is static; others are dynamic unless `size` is given.
mlir::RankedTensorType rowType(mlir::MLIRContext *context, llvm::StringRef axis, llvm::StringRef heads,
                               int64_t size = mlir::ShapedType::kDynamic, mlir::Type element = {});
/// The type of a position: a number that is the same for all heads.
mlir::RankedTensorType timeType(mlir::MLIRContext *context);
/// `row` with another head set, or without its axis.
mlir::RankedTensorType withHeads(mlir::RankedTensorType row, llvm::StringRef heads);
mlir::RankedTensorType withoutAxis(mlir::RankedTensorType row);

/// The coarsest head set that both divide: `1` divides `G`, `G` divides every other, and two others give `X|Y`.
std::string joinHeads(llvm::StringRef a, llvm::StringRef b);
inline bool headsDivide(llvm::StringRef coarse, llvm::StringRef fine) { return joinHeads(coarse, fine) == fine; }

/// The extent that `axis` spells; axes of verified types always parse.
Extent extentOf(llvm::StringRef axis);
/// The number of entries of a row; a number is a row of size one.
Extent widthOf(mlir::Type row);

} // namespace stretto

#define GET_OP_CLASSES
#include "dialect/stretto/StrettoOps.h.inc"

#endif // STRETTO_DIALECT_STRETTO_STRETTODIALECT_H
