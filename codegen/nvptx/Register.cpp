//===- Register.cpp - PTX in the command-line tools -----------------------===//

#include "codegen/nvptx/Nvptx.h"
#include "frontends/c/Registration.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "passes/Passes.h"
#include "runtime/Manifest.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>

using namespace mlir;
using namespace stretto;

namespace {
struct PipelineOptions : PassPipelineOptions<PipelineOptions> {
  Option<std::string> chip{*this, "chip", llvm::cl::desc("The chip, for instance sm_80"), llvm::cl::init("sm_90a")};
  Option<bool> inPlace{*this, "in-place", llvm::cl::desc("One token of each sequence, whose states are updated")};
  Option<bool> computeTables{*this, "compute-tables", llvm::cl::desc("Kernels compute tables without a period")};
};

/// The options of the translations, which live as long as the process, as LLVM wants it.
struct TranslationOptions {
  llvm::cl::opt<std::string> chip{"chip", llvm::cl::desc("The chip that kernels are compiled for"),
                                  llvm::cl::init("sm_90a")};
  llvm::cl::opt<bool> inPlace{"in-place", llvm::cl::desc("Kernels take one token and update states where they lie")};
  llvm::cl::opt<bool> computeTables{"compute-tables", llvm::cl::desc("Kernels compute tables without a period")};
  llvm::cl::opt<bool> time{"report-time", llvm::cl::desc("Print the milliseconds that compilation took")};
};
TranslationOptions &translationOptions() {
  static TranslationOptions options;
  return options;
}

LogicalResult lower(ModuleOp module) {
  PassManager passes(module.getContext());
  const TranslationOptions &options = translationOptions();
  buildNvptxPipeline(passes, {options.chip, options.inPlace, options.computeTables});
  return passes.run(module);
}

LogicalResult chunkToPtx(Operation *op, llvm::raw_ostream &out) {
  auto start = std::chrono::steady_clock::now();
  auto module = cast<ModuleOp>(op);
  if (failed(lower(module)))
    return failure();
  FailureOr<std::string> ptx = translateToPtx(module, translationOptions().chip);
  if (failed(ptx))
    return failure();
  if (translationOptions().time) {
    std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    llvm::errs() << llvm::formatv("PTX for {0} in {1:f1} ms\n", translationOptions().chip.getValue(), elapsed.count());
  }
  out << *ptx;
  return success();
}

LogicalResult chunkToManifests(Operation *op, llvm::raw_ostream &out) {
  if (failed(lower(cast<ModuleOp>(op))))
    return failure();
  op->walk([&](LLVM::LLVMFuncOp function) {
    out << function->getAttrOfType<StringAttr>(Manifest::attributeName).getValue() << "\n";
  });
  return success();
}

/// Draws the corner of every layout that stands in a module.
LogicalResult printLayouts(Operation *op, llvm::raw_ostream &out) {
  llvm::SetVector<RankedTensorType> tiles;
  auto add = [&](Type type) {
    auto channel = dyn_cast<kernel::ChannelType>(type);
    auto tile = channel ? channel.getTile() : dyn_cast<RankedTensorType>(type);
    if (tile && kernel::layoutOf(tile))
      tiles.insert(tile);
  };
  op->walk([&](Operation *inner) { llvm::for_each(inner->getResultTypes(), add); });
  for (RankedTensorType tile : tiles) {
    kernel::Layout layout = *kernel::layoutOf(tile);
    out << "tensor<";
    llvm::interleave(tile.getShape(), out, "x");
    out << (tile.getRank() ? "x" : "") << tile.getElementType() << "> " << layout.str() << "\n"
        << layout.picture() << "\n";
  }
  return success();
}
} // namespace

void stretto::registerNvptxPipeline() {
  PassPipelineRegistration<PipelineOptions>("stretto-to-nvptx", "From chunks to the LLVM dialect for a GPU",
                                            [](OpPassManager &passes, const PipelineOptions &options) {
                                              buildNvptxPipeline(
                                                  passes, {options.chip, options.inPlace, options.computeTables});
                                            });
}

void stretto::registerNvptxTranslation() {
  translationOptions();
  TranslateFromMLIRRegistration("chunk-to-ptx", "Compile chunk kernels to PTX", chunkToPtx, registerDialects);
  TranslateFromMLIRRegistration("chunk-to-manifests", "Print the manifest of each chunk kernel, for a GPU",
                                chunkToManifests, registerDialects);
  TranslateFromMLIRRegistration("print-layouts", "Draw every layout of a module as a table", printLayouts,
                                registerDialects);
}
