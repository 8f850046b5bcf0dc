//===- Register.cpp - CPU code in the command-line tools ------------------===//

#include "codegen/cpu/NativeCode.h"
#include "frontends/c/Registration.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace stretto;

namespace {
struct CpuOptions : PassPipelineOptions<CpuOptions> {
  Option<int64_t> vectorBits{*this, "vector-bits", llvm::cl::desc("bits of a vector register: 256 or 512"),
                             llvm::cl::init(512)};
  Option<bool> bf16Dot{*this, "bf16-dot", llvm::cl::desc("form products of bf16 operands with AVX512_BF16"),
                       llvm::cl::init(false)};
  Option<bool> bf16Tiles{*this, "bf16-tiles", llvm::cl::desc("form those that tiles suit with AMX_BF16"),
                         llvm::cl::init(false)};
};

/// Lives as long as the process, as LLVM wants it.
llvm::cl::opt<std::string> &processorOption() {
  static llvm::cl::opt<std::string> name{"processor", llvm::cl::desc("The CPU that kernels are compiled for"),
                                         llvm::cl::init("skylake-avx512")};
  return name;
}

LogicalResult chunkToAssembly(Operation *op, llvm::raw_ostream &out) {
  auto module = cast<ModuleOp>(op);
  cpu::Processor processor = cpu::Processor::named(processorOption());
  PassManager passes(module.getContext());
  cpu::buildPipeline(passes, processor.instructions());
  if (failed(passes.run(module)))
    return failure();
  llvm::Expected<std::string> assembly = cpu::emitAssembly(module, processor);
  if (!assembly) {
    llvm::errs() << llvm::toString(assembly.takeError()) << "\n";
    return failure();
  }
  out << *assembly;
  return success();
}
} // namespace

void cpu::registerPipeline() {
  PassPipelineRegistration<CpuOptions>(
      "stretto-cpu-to-llvm", "chunk kernels to the LLVM dialect for a CPU",
      [](OpPassManager &passes, const CpuOptions &options) {
        buildPipeline(passes,
                      {options.vectorBits, options.bf16Dot || options.bf16Tiles, options.bf16Dot, options.bf16Tiles});
      });
}

void cpu::registerTranslation() {
  processorOption();
  TranslateFromMLIRRegistration("chunk-to-assembly", "Compile chunk kernels to the assembly of a CPU", chunkToAssembly,
                                registerDialects);
}
