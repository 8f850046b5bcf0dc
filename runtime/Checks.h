//===- Checks.h - What is refused before anything runs ----------*- C++ -*-===//
//
// The refusals of the specification that concern tensors rather than the declaration: types (R4), devices (R5), states
// (R6), packing (R7) and contents (R13). Ranks, sizes and heads (R1 to R3) are checked where they are bound to names.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_CHECKS_H
#define STRETTO_RUNTIME_CHECKS_H

#include "runtime/Signature.h"
#include "llvm/ADT/SmallBitVector.h"

namespace stretto {

/// The arguments that may be f32 beside principal ones of 16 bits: parameters, numbers, and rows that reach a decay or
/// a scan through row maps.
llvm::SmallBitVector findGates(VariantOp variant);

/// The device that all tensors of a call lie on (R5).
llvm::Expected<int> checkDevices(const Operator &op, const OperatorCall &call);

/// The position of the first principal argument, whose type the others share (R4). Without a principal argument it is
/// the first.
llvm::Expected<unsigned> checkTypes(const Operator &op, const OperatorCall &call, const llvm::SmallBitVector &gates);

/// Packing (R7) and initial state (R6).
llvm::Error checkPacking(const OperatorCall &call, int64_t batch);
llvm::Error checkInitialState(const Operator::Signature &signature, const OperatorCall &call);
/// The shape and the type of the slots of a step (R7).
llvm::Error checkSlots(const Operator::Signature &signature, const OperatorCall &call);

} // namespace stretto

#endif // STRETTO_RUNTIME_CHECKS_H
