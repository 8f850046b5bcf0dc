//===- Nvptx.h - From chunks to PTX -----------------------------*- C++ -*-===//
#ifndef STRETTO_CODEGEN_NVPTX_NVPTX_H
#define STRETTO_CODEGEN_NVPTX_NVPTX_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include <string>

namespace stretto {

/// What is asked of kernels for a GPU.
struct KernelForm {
  llvm::StringRef chip; // for instance "sm_90a"
  /// They take one token of each sequence and update its states.
  bool inPlace = false;
  /// They compute tables that have other numbers at every position.
  bool computeTables = false;
  /// Warps of a block; 0: as many as the states ask for.
  int64_t warps = 0;
  /// Further warps that compute what no state reaches, ahead of these; 0: none.
  int64_t ahead = 0;
  /// Further warps that find outputs behind these, where none run ahead; 0: none.
  int64_t outputs = 0;
  /// Tiles at rest are set aside where registers do not suffice. Whoever chooses a form asks without.
  bool setTilesAside = true;
  /// All sequences begin with their first tokens.
  bool fromStart = false;
  /// Rows are taken to be in range, as far as kernels can say where they are not.
  bool within = false;
  /// They take work items that such kernels have left, and no others.
  bool takesLeft = false;
};

/// Adds the passes from `chunk.kernel`s to planned kernels of the kernel dialect.
void buildKernelPipeline(mlir::OpPassManager &passes, const KernelForm &form);
/// Adds the passes from there to the LLVM dialect.
void buildThreadPipeline(mlir::OpPassManager &passes, llvm::StringRef chip);
/// Adds both.
void buildNvptxPipeline(mlir::OpPassManager &passes, const KernelForm &form);

/// The PTX of the functions of a module that the pipeline has lowered. Each function's manifest stays on it, as the
/// attribute `stretto.manifest`.
mlir::FailureOr<std::string> translateToPtx(mlir::ModuleOp module, llvm::StringRef chip);

void registerNvptxPipeline();
void registerNvptxTranslation();

} // namespace stretto

#endif // STRETTO_CODEGEN_NVPTX_NVPTX_H
