//===- Pipelines.h - The named pipelines ------------------------*- C++ -*-===//
//
// A pipeline takes a declaration down to a level and stops there. `stretto-opt --stretto-pipeline-<level>` and the C
// interface run the same ones.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_PIPELINES_H
#define STRETTO_PASSES_PIPELINES_H

#include "mlir/Pass/PassOptions.h"

namespace mlir {
class OpPassManager;
}

namespace stretto {

/// Where a pipeline stops.
enum class Level {
  Declaration, // one program of those that a declaration describes
  Chunk,       // kernels over tiles of tokens
};

/// The word for a level: "declaration", "chunk".
llvm::StringRef spell(Level level);

/// Everything that a caller may fix, spelled as on the command line of stretto-opt.
struct PipelineOptions : mlir::PassPipelineOptions<PipelineOptions> {
  ListOption<std::string> dims{*this, "dims", llvm::cl::desc("Sizes, as in K=128,V=64")};
  ListOption<std::string> heads{*this, "heads", llvm::cl::desc("Head counts, as in H=8,G=2")};
  ListOption<std::string> optionValues{*this, "options", llvm::cl::desc("Options, as in scale=0.5,decay=abs")};
  ListOption<std::string> absent{*this, "absent", llvm::cl::desc("Optional arguments that are not given")};
  Option<bool> step{*this, "step", llvm::cl::desc("The step form, over single tokens, in place of the chunk form"),
                    llvm::cl::init(false)};
  Option<int64_t> chunk{*this, "chunk", llvm::cl::desc("Tokens of a chunk"), llvm::cl::init(64)};
  Option<std::string> element{*this, "element", llvm::cl::desc("Type of inputs, parameters and outputs in memory"),
                              llvm::cl::init("f32")};
  ListOption<std::string> elements{*this, "elements", llvm::cl::desc("Types of arguments that differ, as in g=f32")};
  Option<bool> divideGradients{*this, "divide-gradients",
                               llvm::cl::desc("States of reverse time have a kernel of their own"),
                               llvm::cl::init(false)};
  Option<bool> independentChunks{
      *this, "independent-chunks",
      llvm::cl::desc("Of divided gradients only states are carried, and sums by a kernel of their own"),
      llvm::cl::init(false)};
  Option<bool> segments{*this, "segments", llvm::cl::desc("Kernels whose segments are walked side by side"),
                        llvm::cl::init(false)};
  Option<bool> mergeTotals{*this, "merge-totals", llvm::cl::desc("What several states have of one decay is found once"),
                           llvm::cl::init(true)};
  Option<int64_t> slices{*this, "slices", llvm::cl::desc("Slices of the value axis"), llvm::cl::init(1)};
};

/// Appends the passes that take declarations to `stop`.
void buildPipeline(mlir::OpPassManager &manager, const PipelineOptions &options, Level stop);

/// Registers `stretto-pipeline-<level>` for each level.
void registerPipelines();

} // namespace stretto

#endif // STRETTO_PASSES_PIPELINES_H
