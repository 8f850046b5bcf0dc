//===- TunedForms.h - Forms that a tuner found ------------------*- C++ -*-===//
//
// What was measured once is kept for calls like it: in the process, on disk, and in a table that is shipped. An entry
// is found by a text that names the variant, what of it is computed, the types, the sizes and the device, and, for
// batch times heads and for time, the power of two above them; on disk also by the build of the compiler.
//
// Each entry on disk is a file of its own, published whole under its name, so that processes lose nothing to each
// other.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_TUNEDFORMS_H
#define STRETTO_RUNTIME_TUNEDFORMS_H

#include "runtime/Cache.h"
#include "runtime/Form.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <atomic>
#include <mutex>

namespace stretto {

/// What a tuner found for a class of calls.
struct TunedForm {
  /// With 0 tokens the model's choice was the best.
  Form form;
  double milliseconds = 0, modelMilliseconds = 0, floorMilliseconds = 0;
  /// Whether it was shipped, not found on this machine.
  bool isShipped = false;

  llvm::json::Object toJson(llvm::StringRef key) const;
  /// Nothing where the object is no entry, or one that no kernel can have.
  static std::optional<TunedForm> fromJson(const llvm::json::Object &object);
};

class TunedForms {
public:
  /// Those of this process: on disk under STRETTO_CACHE_DIR, else under XDG_STATE_HOME or ~/.local/state.
  static TunedForms &instance();

  TunedForms(DiskCache store) : store(std::move(store)) {}

  std::optional<TunedForm> find(llvm::StringRef key);
  void keep(llvm::StringRef key, const TunedForm &found);

  /// Names the file of the shipped table, which is read when it is first needed.
  void setTable(std::string path);
  /// The entries that this process has found or met on disk, as the text of such a table.
  std::string table();

  /// Changes whenever `find` may find something else.
  uint64_t generation() const { return changes; }

private:
  void readTable();

  std::mutex mutex;
  DiskCache store;
  llvm::StringMap<TunedForm> found, shipped;
  std::optional<std::string> tablePath;
  std::atomic<uint64_t> changes = 0;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_TUNEDFORMS_H
