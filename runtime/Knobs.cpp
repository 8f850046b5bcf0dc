//===- Knobs.cpp - Settings from the environment --------------------------===//

#include "runtime/Knobs.h"
#include "runtime/Cache.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Process.h"

using namespace stretto;

Knobs &Knobs::instance() {
  static Knobs knobs;
  return knobs;
}

Knobs::Knobs()
    : cacheDirectory(llvm::sys::Process::GetEnv("STRETTO_CACHE_DIR")),
      dumpDirectory(llvm::sys::Process::GetEnv("STRETTO_DUMP")),
      assembler(llvm::sys::Process::GetEnv("STRETTO_PTXAS").value_or("")) {
  const uint64_t isWord = UINT64_MAX;
  auto read = [isWord](const char *name, uint64_t limit, const char *expected,
                       const char *word = nullptr) -> std::optional<uint64_t> {
    std::optional<std::string> text = llvm::sys::Process::GetEnv(name);
    uint64_t number;
    if (text && word && *text == word)
      return isWord;
    if (text && !llvm::StringRef(*text).getAsInteger(10, number) && number <= limit)
      return number;
    if (text)
      note(llvm::Twine(name) + " is '" + *text + "', expected " + expected + "; using the default");
    return std::nullopt;
  };
  if (auto megabytes = read("STRETTO_CACHE_MEGABYTES", uint64_t(1) << 40, "a number of megabytes"))
    cacheBytes = *megabytes << 20;
  if (auto megabytes = read("STRETTO_IDLE_MEGABYTES", uint64_t(1) << 40, "a number of megabytes"))
    idleBytes = *megabytes << 20;
  if (auto flag = read("STRETTO_DEBUG", 1, "0 or 1"))
    debug = *flag;
  if (auto flag = read("STRETTO_TILES", 1, "0 or 1"))
    tiles = *flag;
  if (auto flag = read("STRETTO_TUNED", 1, "0 or 1"))
    tuned = *flag;
  if (auto flag = read("STRETTO_FEATURES", 1, "0 or 1"))
    features = *flag;
  if (auto flag = read("STRETTO_KEEP_STATES", 1, "0 or 1"))
    keepStates = *flag;
  if (auto count = read("STRETTO_GROUPS", uint64_t(1) << 20, "a number of groups"))
    groups = static_cast<int64_t>(*count);
  if (auto chunks = read("STRETTO_SEGMENT", uint64_t(1) << 40, "a number of chunks"))
    segment = static_cast<int64_t>(*chunks);
  if (auto count = read("STRETTO_LONG_SEGMENT", uint64_t(1) << 20, "a number of segments"))
    longSegment = static_cast<int64_t>(*count);
  if (auto count = read("STRETTO_SEQUENCES", uint64_t(1) << 40, "a number of sequences"))
    sequences = static_cast<int64_t>(*count);
  if (auto count = read("STRETTO_SEGMENTS", uint64_t(1) << 20, "a number of segments"))
    segments = static_cast<int64_t>(*count);
  auto powerOfTwo = [](uint64_t count) { return count ? static_cast<int64_t>(llvm::PowerOf2Ceil(count)) : 0; };
  if (auto count = read("STRETTO_SLICES", 64, "a number of slices"))
    slices = powerOfTwo(*count);
  if (auto count = read("STRETTO_WALK_SLICES", 64, "a number of slices"))
    walkSlices = powerOfTwo(*count);
  if (auto count = read("STRETTO_AHEAD", 16, "a number of warps, or auto", "auto"))
    ahead = *count == isWord ? -1 : powerOfTwo(*count);
  if (auto count = read("STRETTO_OUTPUTS", 16, "a number of warps, or auto", "auto"))
    outputs = *count == isWord ? -1 : powerOfTwo(*count);
  if (auto count = read("STRETTO_WALKS", 2, "0, 1 or 2"))
    walks = static_cast<int64_t>(*count);
}
