//===- Lowering.h - From a program to code for a target ---------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_LOWERING_H
#define STRETTO_RUNTIME_LOWERING_H

#include "runtime/Compiler.h"

namespace stretto {

/// What is kept of a compiled kernel: all that another process needs to run it.
struct KernelImage {
  Manifest manifest;
  std::string tables; // the text of a module of chunk.tables
  std::string code;   // object code, or PTX

  std::string pack() const;
  static llvm::Expected<KernelImage> unpack(llvm::StringRef packed);
};

/// Compiles a specialised variant. `family` names all requests that agree on a form, of which the first chooses it.
llvm::Expected<KernelImage> generate(VariantOp program, const KernelRequest &request, llvm::StringRef family);

/// The text of a specialised variant at a stage on the way to code: "chunk", "kernel" (CUDA), "llvm", and at last "asm"
/// (CPU) or "ptx" (CUDA).
llvm::Expected<std::string> lowerToText(VariantOp program, const KernelRequest &request, llvm::StringRef stage);

} // namespace stretto

#endif // STRETTO_RUNTIME_LOWERING_H
