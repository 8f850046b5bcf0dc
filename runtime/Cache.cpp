//===- Cache.cpp - Compiled kernels on disk -------------------------------===//

#include "runtime/Cache.h"
#include "runtime/Knobs.h"
#include "llvm-c/blake3.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using namespace stretto;

// An entry: this line, the authentication code in hexadecimal digits, a line end, then the payload.
static constexpr StringLiteral magic = "stretto kernel 1\n";
static constexpr size_t codeDigits = 64;

void stretto::note(const Twine &message) { errs() << "stretto: " << message << "\n"; }

CacheKey CacheKey::of(ArrayRef<StringRef> parts) {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init(&hasher);
  for (StringRef part : parts) {
    uint64_t size = part.size();
    llvm_blake3_hasher_update(&hasher, &size, sizeof(size));
    llvm_blake3_hasher_update(&hasher, part.data(), part.size());
  }
  std::array<uint8_t, 32> digest;
  llvm_blake3_hasher_finalize(&hasher, digest.data(), digest.size());
  return {toHex(digest, /*LowerCase=*/true)};
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Writes a file that is whole or absent, readable by its owner only. `replace` says what happens to one that exists:
/// it is replaced, or left as it is and counted as success.
static Error publish(StringRef path, StringRef contents, bool replace) {
  SmallString<128> temporary(path);
  temporary += ".%%%%%%%%.tmp";
  int file;
  if (std::error_code error = sys::fs::createUniqueFile(temporary, file, temporary, sys::fs::OF_None, 0600))
    return errorCodeToError(error);
  Error result = Error::success();
  for (StringRef rest = contents; !rest.empty();) {
    ssize_t written = ::write(file, rest.data(), rest.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0) {
      result = joinErrors(std::move(result), errorCodeToError(std::error_code(errno, std::generic_category())));
      break;
    }
    rest = rest.drop_front(written);
  }
  if (!result && ::fsync(file) != 0)
    result = errorCodeToError(std::error_code(errno, std::generic_category()));
  ::close(file);
  if (!result) {
    int failed =
        replace ? ::rename(temporary.c_str(), path.str().c_str()) : ::link(temporary.c_str(), path.str().c_str());
    if (failed && (replace || errno != EEXIST))
      result = errorCodeToError(std::error_code(errno, std::generic_category()));
  }
  if (result || !replace)
    ::unlink(temporary.c_str());
  return result;
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

/// Whether only this user can write to the directory.
static bool isPrivate(const std::string &directory) {
  struct stat status;
  return ::stat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Our part of a folder of the user's, with a file or folder in it; empty where there is no such place.
static std::string placeOfUser(const char *variable, StringRef fallback, StringRef within = "") {
  SmallString<128> path(sys::Process::GetEnv(variable).value_or(""));
  if (std::optional<std::string> home = sys::Process::GetEnv("HOME"); path.empty() && home && !home->empty())
    sys::path::append(path, *home, fallback);
  if (!path.empty())
    sys::path::append(path, "stretto", within);
  return path.str().str();
}

static std::string secretOfUser() { return placeOfUser("XDG_STATE_HOME", ".local/state", "cache-secret"); }

DiskCache &DiskCache::instance() {
  static DiskCache cache = [] {
    Knobs &knobs = Knobs::instance();
    return DiskCache(knobs.cacheDirectory.value_or(placeOfUser("XDG_CACHE_HOME", ".cache")), secretOfUser(),
                     knobs.cacheBytes);
  }();
  return cache;
}

DiskCache DiskCache::ofTunedForms() {
  static constexpr Words words = {"tuned forms", "tuned form", "leaving it out", "tuned"};
  static constexpr uint64_t limitBytes = uint64_t(64) << 20; // more than a hundred thousand entries
  std::optional<std::string> folder = Knobs::instance().cacheDirectory;
  if (!folder)
    return {placeOfUser("XDG_STATE_HOME", ".local/state", "tuned"), secretOfUser(), limitBytes, words};
  SmallString<128> path(*folder);
  if (!path.empty())
    sys::path::append(path, "tuned");
  return {path.str().str(), secretOfUser(), limitBytes, words};
}

DiskCache::DiskCache(std::string where, std::string secretPath, uint64_t limitBytes, Words words)
    : directory(std::move(where)), limitBytes(limitBytes), words(words) {
  if (directory.empty() || secretPath.empty())
    return;
  StringRef secretDirectory = sys::path::parent_path(secretPath);
  for (StringRef made : {StringRef(directory), secretDirectory})
    if (std::error_code error = sys::fs::create_directories(made, /*IgnoreExisting=*/true, sys::fs::owner_all)) {
      note(words.entries + " are not kept: cannot make '" + made + "': " + error.message());
      return;
    }
  if (!isPrivate(directory)) {
    note(words.entries + " are not kept: '" + directory + "' belongs to another user or can be written by others");
    return;
  }
  enum class Found { Nothing, Damaged, Secret };
  auto read = [&]() {
    ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFile(secretPath, /*IsText=*/false, false);
    if (!file)
      return file.getError() == std::errc::no_such_file_or_directory ? Found::Nothing : Found::Damaged;
    if ((*file)->getBufferSize() != sizeof(Secret))
      return Found::Damaged;
    std::copy_n((*file)->getBufferStart(), sizeof(Secret), reinterpret_cast<char *>(secret.emplace().data()));
    return Found::Secret;
  };
  Found found = read();
  if (found == Found::Secret)
    return;
  // Several processes may come here at once: the first to link its file wins, and all read that one.
  Secret fresh;
  if (::getrandom(fresh.data(), fresh.size(), 0) != static_cast<ssize_t>(fresh.size()))
    return;
  StringRef bytes(reinterpret_cast<const char *>(fresh.data()), fresh.size());
  if (Error error = publish(secretPath, bytes, /*replace=*/found == Found::Damaged))
    note(words.entries + " are not kept: cannot write '" + secretPath + "': " + toString(std::move(error)));
  else
    read();
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

std::string DiskCache::pathOf(const CacheKey &key) const {
  SmallString<128> path(directory);
  sys::path::append(path, key.digest + "." + words.extension);
  return path.str().str();
}

std::string DiskCache::authenticate(const CacheKey &key, StringRef payload) const {
  llvm_blake3_hasher hasher;
  llvm_blake3_hasher_init_keyed(&hasher, secret->data());
  llvm_blake3_hasher_update(&hasher, key.digest.data(), key.digest.size());
  llvm_blake3_hasher_update(&hasher, payload.data(), payload.size());
  std::array<uint8_t, 32> code;
  llvm_blake3_hasher_finalize(&hasher, code.data(), code.size());
  return toHex(code, /*LowerCase=*/true);
}

std::optional<std::string> DiskCache::load(const CacheKey &key) {
  if (!enabled())
    return std::nullopt;
  std::string path = pathOf(key);
  ErrorOr<std::unique_ptr<MemoryBuffer>> file =
      MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false, /*IsVolatile=*/true);
  if (!file) {
    if (file.getError() != std::errc::no_such_file_or_directory)
      note("cannot read the " + words.entry + " '" + path + "' (" + file.getError().message() + "); " + words.instead);
    return std::nullopt;
  }
  StringRef contents = (*file)->getBuffer();
  if (!contents.consume_front(magic) || contents.size() <= codeDigits || contents[codeDigits] != '\n' ||
      contents.take_front(codeDigits) != authenticate(key, contents.drop_front(codeDigits + 1))) {
    note("the " + words.entry + " '" + path + "' is damaged or not ours; " + words.instead);
    return std::nullopt;
  }
  // The time of access tells eviction what is in use; some file systems do not keep it.
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return contents.drop_front(codeDigits + 1).str();
}

void DiskCache::store(const CacheKey &key, StringRef payload) {
  if (!enabled())
    return;
  std::string contents = (magic + authenticate(key, payload) + "\n" + payload).str();
  if (Error error = publish(pathOf(key), contents, /*replace=*/true))
    note("cannot keep a " + words.entry + " in '" + directory + "': " + toString(std::move(error)));
  else
    evict();
}

void DiskCache::evict() const {
  struct Entry {
    std::string path;
    sys::TimePoint<> used;
    uint64_t size;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code error;
  for (sys::fs::directory_iterator file(directory, error), end; !error && file != end; file.increment(error)) {
    ErrorOr<sys::fs::basic_file_status> status = file->status();
    StringRef extension = sys::path::extension(file->path());
    if (!status || !extension.consume_front(".") || extension != words.extension)
      continue;
    entries.push_back({file->path(), status->getLastModificationTime(), status->getSize()});
    total += status->getSize();
  }
  llvm::sort(entries, [](const Entry &a, const Entry &b) { return a.used < b.used; });
  for (const Entry &entry : entries) {
    if (total <= limitBytes)
      return;
    // One that another process removed is gone all the same; one that cannot be removed stays and counts.
    if (!sys::fs::remove(entry.path))
      total -= entry.size;
  }
}
