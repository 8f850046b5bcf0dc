//===- Pipelines.cpp - The named pipelines --------------------------------===//

#include "passes/Pipelines.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"

using namespace mlir;
using namespace stretto;

static constexpr Level levels[] = {Level::Declaration, Level::Chunk};

StringRef stretto::spell(Level level) {
  switch (level) {
  case Level::Declaration:
    return "declaration";
  case Level::Chunk:
    return "chunk";
  }
  llvm_unreachable("every level has its word");
}

static void addDeclarationPasses(OpPassManager &manager, const PipelineOptions &options) {
  SpecializeOptions specialize;
  llvm::append_range(specialize.dims, options.dims);
  llvm::append_range(specialize.heads, options.heads);
  llvm::append_range(specialize.optionValues, options.optionValues);
  llvm::append_range(specialize.absent, options.absent);
  manager.addNestedPass<VariantOp>(createSpecialize(specialize));
}

static void addChunkPasses(OpPassManager &manager, const PipelineOptions &options) {
  // Steps load an entry as it lies, whose rows need not meet any side of a fragment.
  manager.addNestedPass<VariantOp>(createSplitStates({/*rows=*/!options.step}));
  if (options.step) {
    StepOptions step;
    step.element = options.element;
    llvm::append_range(step.elements, options.elements);
    manager.addPass(createStep(step));
  } else {
    ChunkOptions chunk;
    chunk.chunk = options.chunk;
    chunk.element = options.element;
    llvm::append_range(chunk.elements, options.elements);
    chunk.divideGradients = options.divideGradients;
    chunk.independentChunks = options.independentChunks;
    chunk.segments = options.segments;
    manager.addPass(createChunk(chunk));
  }
  // Reads of the parts of a state share their scores, once both are written alike.
  manager.addPass(createCSEPass());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addNestedPass<chunk::KernelOp>(createSumTaps());
  manager.addNestedPass<chunk::KernelOp>(createMergeLookbacks());
  if (options.mergeTotals)
    manager.addNestedPass<chunk::KernelOp>(createMergeTotals());
  manager.addPass(createCSEPass());
  if (options.slices != 1) {
    manager.addPass(createSliceValues({options.slices}));
    manager.addPass(createCSEPass());
  }
}

void stretto::buildPipeline(OpPassManager &manager, const PipelineOptions &options, Level stop) {
  addDeclarationPasses(manager, options);
  if (stop == Level::Declaration)
    return;
  addChunkPasses(manager, options);
}

void stretto::registerPipelines() {
  for (Level level : levels)
    PassPipelineRegistration<PipelineOptions>(
        ("stretto-pipeline-" + spell(level)).str(), "Takes declarations to the level '" + spell(level).str() + "'",
        [level](OpPassManager &manager, const PipelineOptions &options) { buildPipeline(manager, options, level); });
}
