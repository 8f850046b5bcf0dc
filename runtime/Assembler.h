//===- Assembler.h - From PTX to the code of a chip -------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_ASSEMBLER_H
#define STRETTO_RUNTIME_ASSEMBLER_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace stretto {

/// The program `ptxas`. The driver has an assembler, too, but takes one kernel at a time: kernels of a call are
/// assembled side by side by this one, and what the cache on disk keeps is code. That of nvJitLink, which could be
/// called, makes objects to be linked, in which some registers are set aside (docs/performance.md).
class Assembler {
public:
  /// That of STRETTO_PTXAS, if there is one.
  static const Assembler *instance();

  explicit Assembler(std::string program) : program(std::move(program)) {}
  /// The code of a chip, such as "sm_90a". The error has what the program says. May be called from several threads.
  llvm::Expected<std::string> assemble(llvm::StringRef ptx, llvm::StringRef chip) const;
  /// Whether the code of a kernel is what `assemble` makes of it, and no PTX.
  static bool isAssembled(llvm::StringRef code) { return code.starts_with("\177ELF"); }

private:
  std::string program;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_ASSEMBLER_H
