//===- Assembler.h - From PTX to the code of a chip -------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_ASSEMBLER_H
#define STRETTO_RUNTIME_ASSEMBLER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace stretto {

/// The assembler of nvJitLink, a library of CUDA that PyTorch brings. The driver has one, too, which takes one kernel
/// at a time, and is asked where the library is missing: kernels of a call are assembled side by side here, and what
/// the cache on disk keeps is code.
class Assembler {
public:
  /// Why the library cannot be used, or empty.
  static const std::string &problem();
  /// The code of a chip, such as "sm_90a". The error has what the assembler says. May be called from several threads.
  static llvm::Expected<std::string> assemble(llvm::StringRef ptx, llvm::StringRef chip);
  /// Whether the code of a kernel is what `assemble` makes of it, and no PTX.
  static bool isAssembled(llvm::StringRef code) {
    return code.starts_with("\x7f"
                            "ELF");
  }
};

} // namespace stretto

#endif // STRETTO_RUNTIME_ASSEMBLER_H
