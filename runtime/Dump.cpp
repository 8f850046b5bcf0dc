//===- Dump.cpp - What a compilation leaves to read -----------------------===//

#include "runtime/Dump.h"
#include "runtime/Cache.h"
#include "runtime/Knobs.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include <atomic>

using namespace stretto;

Dump::Dump(llvm::StringRef variant, llvm::StringRef target) {
  const std::optional<std::string> &folder = Knobs::instance().dumpDirectory;
  if (!folder)
    return;
  if (std::error_code error = llvm::sys::fs::create_directories(*folder)) {
    note("cannot make the folder '" + *folder + "' of STRETTO_DUMP: " + error.message());
    return;
  }
  static std::atomic<unsigned> number = 0;
  prefix = (*folder + "/" + variant + "." + target + "." + llvm::Twine(number++) + ".").str();
}

void Dump::write(llvm::StringRef stage, llvm::function_ref<std::string()> contents) const {
  if (prefix.empty())
    return;
  std::error_code error;
  llvm::raw_fd_ostream file(prefix + stage.str(), error);
  if (error)
    note("cannot write '" + llvm::Twine(prefix) + stage + "': " + error.message());
  else
    file << contents();
}
