//===- Knobs.cpp - Settings from the environment --------------------------===//

#include "runtime/Knobs.h"
#include "runtime/Cache.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Process.h"

using namespace stretto;

Knobs &Knobs::instance() {
  static Knobs knobs = [] {
    Knobs result;
    result.cacheDirectory = llvm::sys::Process::GetEnv("STRETTO_CACHE_DIR");
    result.dumpDirectory = llvm::sys::Process::GetEnv("STRETTO_DUMP");
    if (std::optional<std::string> text = llvm::sys::Process::GetEnv("STRETTO_CACHE_MEGABYTES")) {
      uint64_t megabytes;
      if (llvm::StringRef(*text).getAsInteger(10, megabytes) || megabytes > (uint64_t(1) << 40))
        note("STRETTO_CACHE_MEGABYTES is '" + *text + "', expected a number of megabytes; using the default");
      else
        result.cacheBytes = megabytes << 20;
    }
    return result;
  }();
  return knobs;
}
