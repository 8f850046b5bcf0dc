//===- Passes.h - Every pass of the compiler --------------------*- C++ -*-===//
#ifndef STRETTO_PASSES_PASSES_H
#define STRETTO_PASSES_PASSES_H

#include "dialect/chunk/ChunkDialect.h"
#include "dialect/kernel/KernelDialect.h"
#include "dialect/stretto/StrettoDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/Pass/Pass.h"

namespace stretto {
#define GEN_PASS_DECL
#include "passes/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"
} // namespace stretto

#endif // STRETTO_PASSES_PASSES_H
