//===- Passes.td - Every pass of the compiler --------------------------*- tablegen -*-===//
//
// One pass, one .cpp, one lit test, one name. The folder of a pass is the level it works on: declaration, chunk,
// kernel. Pipelines.cpp holds the order.
//
//===----------------------------------------------------------------------===//

#ifndef STRETTO_PASSES
#define STRETTO_PASSES

include "passes/declaration/DeclarationPasses.td"
include "passes/chunk/ChunkPasses.td"
include "passes/kernel/KernelPasses.td"
include "codegen/CodegenPasses.td"

#endif // STRETTO_PASSES
