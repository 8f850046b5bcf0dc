//===- Pipelines.h - The order of passes ------------------------*- C++ -*-===//
//
// The only list of order: stretto-opt, Python's `.lower` and the runtime all run these pipelines. A back end holds the
// order of its own passes (codegen/cpu, codegen/nvptx).
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_PIPELINES_H
#define STRETTO_PASSES_PIPELINES_H

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

namespace stretto {

struct ChunkPipelineOptions : mlir::PassPipelineOptions<ChunkPipelineOptions> {
  Option<int64_t> chunk{*this, "chunk", llvm::cl::desc("tokens of a chunk"), llvm::cl::init(64)};
  Option<std::string> element{*this, "element", llvm::cl::desc("type of inputs, parameters and outputs in memory"),
                              llvm::cl::init("f32")};
  ListOption<std::string> elements{*this, "elements", llvm::cl::desc("types of arguments that differ, as in g=f32")};
};

/// Adds the passes from specialised declarations to chunk kernels.
void buildChunkPipeline(mlir::OpPassManager &passes, const ChunkPipelineOptions &options);

void registerPipelines();

} // namespace stretto

#endif // STRETTO_PASSES_PIPELINES_H
