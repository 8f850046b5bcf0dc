//===- Registration.cpp - What the compiler brings into a context ---------===//

#include "frontends/c/Registration.h"
#include "codegen/cpu/NativeCode.h"
#include "codegen/nvptx/Nvptx.h"
#include "dialect/chunk/ChunkDialect.h"
#include "dialect/kernel/KernelDialect.h"
#include "dialect/stretto/StrettoDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"
#include "passes/Pipelines.h"

void stretto::registerDialects(mlir::DialectRegistry &registry) {
  registry
      .insert<StrettoDialect, chunk::ChunkDialect, kernel::KernelDialect, mlir::arith::ArithDialect,
              mlir::func::FuncDialect, mlir::LLVM::LLVMDialect, mlir::math::MathDialect, mlir::memref::MemRefDialect,
              mlir::NVVM::NVVMDialect, mlir::scf::SCFDialect, mlir::vector::VectorDialect>();
}

void stretto::registerPassesAndPipelines() {
  mlir::registerTransformsPasses();
  registerStrettoPasses();
  registerPipelines();
  cpu::registerPipeline();
  registerNvptxPipeline();
}

void stretto::registerTranslations() {
  cpu::registerTranslation();
  registerNvptxTranslation();
}
