//===- Nvptx.h - From chunks to PTX -----------------------------*- C++ -*-===//
#ifndef STRETTO_CODEGEN_NVPTX_NVPTX_H
#define STRETTO_CODEGEN_NVPTX_NVPTX_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include <string>

namespace stretto {

/// Adds the passes from `chunk.kernel`s to planned kernels of the kernel dialect, for a chip such as "sm_90a". Kernels
/// `inPlace` take one token of each sequence and update its states.
void buildKernelPipeline(mlir::OpPassManager &passes, llvm::StringRef chip, bool inPlace);
/// Adds the passes from there to the LLVM dialect.
void buildThreadPipeline(mlir::OpPassManager &passes);
/// Adds both.
void buildNvptxPipeline(mlir::OpPassManager &passes, llvm::StringRef chip, bool inPlace);

/// The PTX of the functions of a module that the pipeline has lowered. Each function's manifest stays on it, as the
/// attribute `stretto.manifest`.
mlir::FailureOr<std::string> translateToPtx(mlir::ModuleOp module, llvm::StringRef chip);

void registerNvptxPipeline();
void registerNvptxTranslation();

} // namespace stretto

#endif // STRETTO_CODEGEN_NVPTX_NVPTX_H
