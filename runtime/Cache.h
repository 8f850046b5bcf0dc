//===- Cache.h - Compiled kernels on disk -----------------------*- C++ -*-===//
//
// A directory with one file for each compiled kernel, named by the digest of all that the code depends on: the build
// of the compiler, the canonical IR, the specialisation and the target. Another holds what a tuner found, in the same
// way.
//
// Entries are published atomically (a temporary file, synchronised, then renamed), so that a reader sees a whole entry
// or none, and two processes that compile the same kernel at once both end with a right one. An entry holds machine
// code, so it is trusted only if this user wrote it: each carries a code of authentication under a secret that lives
// outside the directory, and a directory that others may write to is not used. What fails these checks is reported,
// ignored and replaced.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_CACHE_H
#define STRETTO_RUNTIME_CACHE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <array>
#include <optional>
#include <string>

namespace stretto {

/// What identifies a compiled kernel: a digest of everything that its code depends on.
struct CacheKey {
  std::string digest; // 64 hexadecimal digits

  /// The digest of parts, each with its length, so that no two lists of parts have one text.
  static CacheKey of(llvm::ArrayRef<llvm::StringRef> parts);
};

class DiskCache {
public:
  /// The cache of this process: in STRETTO_CACHE_DIR, else under XDG_CACHE_HOME or ~/.cache. Without such a place, or
  /// with STRETTO_CACHE_DIR empty, nothing is kept.
  static DiskCache &instance();

  /// One for forms that were tuned, beside that, or where users' lasting state is: under XDG_STATE_HOME or
  /// ~/.local/state.
  static DiskCache ofTunedForms();

  /// What entries are called and what follows where one cannot be used, for notes; and the end of the names of files.
  struct Words {
    llvm::StringRef entries, entry, instead, extension;
  };
  static constexpr Words ofKernels = {"compiled kernels", "cached kernel", "compiling it again", "kernel"};

  /// A cache in `directory` whose entries are authenticated by the secret in the file `secretPath`. Both are made
  /// where they are missing.
  DiskCache(std::string directory, std::string secretPath, uint64_t limitBytes, Words words = ofKernels);

  /// The payload of an entry, or nothing. An entry that is damaged or foreign counts as none, and a note says so.
  std::optional<std::string> load(const CacheKey &key);

  /// Publishes an entry; a failure (a full disk) leaves a note and no entry, since the kernel at hand works anyway.
  void store(const CacheKey &key, llvm::StringRef payload);

  bool enabled() const { return secret.has_value(); }
  llvm::StringRef location() const { return directory; }

private:
  using Secret = std::array<uint8_t, 32>;

  std::string pathOf(const CacheKey &key) const;
  std::string authenticate(const CacheKey &key, llvm::StringRef payload) const;
  /// Removes the entries that were used least recently until the rest fits the limit.
  void evict() const;

  std::string directory;
  std::optional<Secret> secret;
  uint64_t limitBytes;
  Words words;
};

/// Tells the user, on standard error, of something that was handled but that they may want to know.
void note(const llvm::Twine &message);

} // namespace stretto

#endif // STRETTO_RUNTIME_CACHE_H
