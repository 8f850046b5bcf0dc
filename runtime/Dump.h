//===- Dump.h - What a compilation leaves to read ---------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_DUMP_H
#define STRETTO_RUNTIME_DUMP_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace stretto {

/// The stages of one compilation as files of the folder STRETTO_DUMP, `<variant>.<target>.<number>.<stage>`; nothing
/// without it.
class Dump {
public:
  Dump(llvm::StringRef variant, llvm::StringRef target);
  void write(llvm::StringRef stage, llvm::function_ref<std::string()> contents) const;

private:
  std::string prefix; // empty: nothing is written
};

} // namespace stretto

#endif // STRETTO_RUNTIME_DUMP_H
