//===- Compiler.h - From a variant to a kernel that runs --------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_COMPILER_H
#define STRETTO_RUNTIME_COMPILER_H

#include "dialect/stretto/Sizes.h"
#include "runtime/CudaDriver.h"
#include "runtime/Manifest.h"
#include <map>
#include <memory>
#include <string>

namespace stretto {

/// What code is generated for: this machine's CPU, or a CUDA chip.
struct Target {
  enum class Kind { Cpu, Cuda } kind = Kind::Cpu;
  /// The CPU's name and features as LLVM spells them, or the chip, such as "sm_90a".
  std::string name, features;

  static Target host();
  /// The target of a compute capability, such as 90: the chip's own instructions where it has any.
  static Target cuda(int capability);
};

/// All that the code of a kernel depends on besides the declaration.
struct KernelRequest {
  Settings settings;
  /// The element types of arguments in memory.
  std::map<std::string, ElementType> types;
  /// Into how many parts the value axis is divided.
  int64_t slices = 1;
  Target target;
};

/// A kernel that can be launched.
struct CompiledKernel {
  using CpuFunction = void (*)(const int64_t *block, int64_t begin, int64_t end, char *scratch);

  Manifest manifest;
  /// The `chunk.table`s that the kernel reads, as IR.
  std::string tables;
  /// One of the two, by target.
  CpuFunction function = nullptr;
  std::unique_ptr<CudaKernel> cuda;
  /// Keeps what `function` points into.
  std::shared_ptr<void> code;

  bool fromCache = false;
  double milliseconds = 0; // from request to kernel
};

/// Compiles a kernel, or finds it in the cache on disk. The error is the compiler's diagnostic, with its place.
/// May be called from several threads; compilation itself is serial.
llvm::Expected<std::shared_ptr<CompiledKernel>> compileKernel(VariantOp variant, const KernelRequest &request);

/// A digest of the build of this library, which changes whenever generated code might.
llvm::StringRef buildIdentity();

/// Collects the diagnostics of a context as text while it lives.
class DiagnosticText {
public:
  explicit DiagnosticText(mlir::MLIRContext *context);
  ~DiagnosticText();
  /// What was reported, as an error.
  llvm::Error takeError();

private:
  mlir::MLIRContext *context;
  uint64_t handler;
  std::string text;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_COMPILER_H
