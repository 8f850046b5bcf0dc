//===- CpuKernel.cpp - One chunk kernel on this machine's CPU -------------===//

#include "codegen/cpu/NativeCode.h"
#include "frontends/c/Registration.h"
#include "frontends/c/stretto.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "runtime/Compiler.h"
#include <chrono>
#include <cstring>

using namespace mlir;
using namespace stretto;

struct StrettoCpuKernel {
  std::unique_ptr<cpu::LoadedCode> code;
};

/// Compiles and loads; diagnostics reach the context's handlers.
static llvm::Expected<std::unique_ptr<StrettoCpuKernel>> compile(MLIRContext &context, llvm::StringRef text,
                                                                 int64_t vectorBits, StrettoCpuKernelInfo &info) {
  auto start = std::chrono::steady_clock::now();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return llvm::createStringError("the text is no module");
  PassManager passes(&context);
  cpu::Processor host = Target::host().processor();
  cpu::buildPipeline(passes, vectorBits ? cpu::Instructions{vectorBits} : host.instructions());
  if (failed(passes.run(*module)))
    return llvm::createStringError("the kernel cannot be lowered");
  auto functions = llvm::make_filter_range(module->getOps<LLVM::LLVMFuncOp>(),
                                           [](LLVM::LLVMFuncOp function) { return !function.isExternal(); });
  if (!llvm::hasSingleElement(functions))
    return llvm::createStringError("the module holds no chunk.kernel, or several");
  LLVM::LLVMFuncOp function = *functions.begin();
  llvm::Expected<std::string> object = cpu::emitObject(*module, host);
  if (!object)
    return object.takeError();
  llvm::Expected<std::unique_ptr<cpu::LoadedCode>> code = cpu::LoadedCode::load(*object);
  if (!code)
    return code.takeError();
  llvm::Expected<void *> address = (*code)->find(function.getSymName());
  if (!address)
    return address.takeError();
  info.function = reinterpret_cast<StrettoCpuFunction>(*address);
  info.scratchBytes = function->getAttrOfType<IntegerAttr>("stretto.scratch_bytes").getInt();
  info.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return std::make_unique<StrettoCpuKernel>(StrettoCpuKernel{std::move(*code)});
}

StrettoCpuKernel *strettoCpuKernelCompile(const char *text, int64_t vectorBits, StrettoCpuKernelInfo *info,
                                          char **error) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  std::string diagnostics;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    diagnostics += diagnostic.str() + "\n";
    return success();
  });
  llvm::Expected<std::unique_ptr<StrettoCpuKernel>> kernel = compile(context, text, vectorBits, *info);
  if (kernel)
    return kernel->release();
  *error = strdup((diagnostics + llvm::toString(kernel.takeError())).c_str());
  return nullptr;
}

void strettoCpuKernelDestroy(StrettoCpuKernel *kernel) { delete kernel; }

void strettoFree(char *text) { free(text); }
