//===- Scalars.h - Elementwise operations on single numbers -----*- C++ -*-===//
#ifndef STRETTO_DIALECT_STRETTO_INTERPRETER_SCALARS_H
#define STRETTO_DIALECT_STRETTO_INTERPRETER_SCALARS_H

#include "mlir/IR/Operation.h"

namespace stretto::interpreter {

using Unary = double (*)(double);
using Binary = double (*)(double, double);

/// What an elementwise operation of one or two operands does to their entries; null for any other operation.
/// Conditions are 0 or 1.
Unary unaryOf(mlir::Operation *op);
Binary binaryOf(mlir::Operation *op);

/// log(e^a + e^b), also where one is infinite.
double logAddExp(double a, double b);
/// The larger number, or NaN if one is.
double larger(double a, double b);

} // namespace stretto::interpreter

#endif // STRETTO_DIALECT_STRETTO_INTERPRETER_SCALARS_H
