//===- Pipelines.cpp - The order of passes --------------------------------===//

#include "passes/Pipelines.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"

using namespace mlir;
using namespace stretto;

void stretto::buildChunkPipeline(OpPassManager &passes, const ChunkPipelineOptions &options) {
  passes.addNestedPass<VariantOp>(createSplitStates());
  ChunkOptions chunk;
  chunk.chunk = options.chunk;
  chunk.element = options.element;
  chunk.elements.assign(options.elements.begin(), options.elements.end());
  passes.addPass(createChunk(chunk));
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
}

void stretto::registerPipelines() {
  PassPipelineRegistration<ChunkPipelineOptions>("stretto-to-chunk", "specialised declarations to chunk kernels",
                                                 buildChunkPipeline);
}
