//===- RegisterEstimate.h - How many registers a kernel takes ---*- C++ -*-===//
#ifndef STRETTO_PASSES_KERNEL_REGISTERESTIMATE_H
#define STRETTO_PASSES_KERNEL_REGISTERESTIMATE_H

#include "dialect/kernel/KernelDialect.h"

namespace stretto::kernel {

/// The registers of a thread that tiles occupy at once, at most, in a function whose layouts are assigned, those of
/// operands of products, and the addresses of its arguments, which live throughout. What the assembler keeps besides is
/// not counted.
int64_t estimateRegisters(FuncOp function);

/// Whether chunks are met in reverse. Functions of tests may have no manifest.
bool walksInReverse(FuncOp function);
/// Whether several blocks divide the values of a head.
bool hasSlices(FuncOp function);

} // namespace stretto::kernel

#endif // STRETTO_PASSES_KERNEL_REGISTERESTIMATE_H
