//===- Pipeline.cpp - From chunk kernels to the LLVM dialect --------------===//

#include "codegen/cpu/NativeCode.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"

using namespace mlir;
using namespace stretto;

void cpu::buildPipeline(OpPassManager &passes, Instructions instructions) {
  passes.addNestedPass<chunk::KernelOp>(createSeparatePairs());
  if (instructions.bf16Dot || instructions.bf16Tiles) {
    RoundOperandsOptions round;
    round.element = "bf16";
    round.sparing = true;
    passes.addNestedPass<chunk::KernelOp>(createRoundOperands(round));
  }
  LowerToVectorOptions lower;
  lower.vectorBits = instructions.vectorBits;
  lower.bf16Dot = instructions.bf16Dot;
  lower.bf16Tiles = instructions.bf16Tiles;
  passes.addPass(createLowerToVector(lower));
  ExpandMathOptions expand;
  expand.scalef = instructions.vectorBits == 512;
  expand.bf16 = instructions.bf16;
  passes.addNestedPass<func::FuncOp>(createExpandMath(expand));
  passes.addNestedPass<func::FuncOp>(createCanonicalizerPass());
  passes.addNestedPass<func::FuncOp>(createCSEPass());

  ConvertVectorToLLVMPassOptions vectors;
  vectors.x86Vector = true;
  passes.addPass(createConvertVectorToLLVMPass(vectors));
  passes.addPass(memref::createExpandStridedMetadataPass());
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(createConvertToLlvm());
  passes.addPass(createReconcileUnrealizedCastsPass());
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
}
