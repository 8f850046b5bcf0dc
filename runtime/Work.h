//===- Work.h - What calls move and compute at least ------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_WORK_H
#define STRETTO_RUNTIME_WORK_H

#include "runtime/Gradient.h"

namespace stretto {

/// The bytes of all rows, parameters and results of a call, each once.
int64_t bytesOfCall(const Operator::Signature &signature, const OperatorCall &call);
/// Every input and gradient, and the cotangents of the results that have one, once.
int64_t bytesOfTensors(const Operator::Signature::Gradient &gradient, const OperatorCall &call);
/// What all sequences, heads and chunks of a call multiply and add in a kernel.
int64_t flopsOf(const Operator::Signature &signature, const OperatorCall &call, const Manifest &manifest);

} // namespace stretto

#endif // STRETTO_RUNTIME_WORK_H
