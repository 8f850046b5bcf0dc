//===- TunedForms.cpp - Forms that a tuner found --------------------------===//

#include "runtime/TunedForms.h"
#include "runtime/Compiler.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

json::Object TunedForm::toJson(StringRef key) const {
  return json::Object{{"key", key},
                      {"chunk", form.chunk},
                      {"slices", form.slices},
                      {"warps", form.warps},
                      {"ahead", form.ahead},
                      {"outputs", form.outputs},
                      {"walks", form.walks},
                      {"walk_slices", form.walkSlices},
                      {"milliseconds", milliseconds},
                      {"model_milliseconds", modelMilliseconds},
                      {"floor_milliseconds", floorMilliseconds}};
}

std::optional<TunedForm> TunedForm::fromJson(const json::Object &object) {
  TunedForm entry;
  auto read = [&](StringRef name, int64_t most, int64_t &number, int64_t least = 0) {
    std::optional<int64_t> value = object.getInteger(name);
    number = value.value_or(-1);
    return value && *value >= least && *value <= most;
  };
  if (!read("chunk", 1024, entry.form.chunk) || !read("slices", 1024, entry.form.slices) ||
      !read("warps", 32, entry.form.warps) || (object.get("ahead") && !read("ahead", 16, entry.form.ahead, -1)) ||
      (object.get("outputs") && !read("outputs", 16, entry.form.outputs, -1)) ||
      (object.get("walks") && !read("walks", 2, entry.form.walks)) ||
      (object.get("walk_slices") && !read("walk_slices", 1024, entry.form.walkSlices)) ||
      !isPowerOf2_64(entry.form.slices) || !isPowerOf2_64(entry.form.walkSlices))
    return std::nullopt;
  for (auto [name, number] :
       {std::pair("milliseconds", &entry.milliseconds), std::pair("model_milliseconds", &entry.modelMilliseconds),
        std::pair("floor_milliseconds", &entry.floorMilliseconds)})
    if (std::optional<double> value = object.getNumber(name))
      *number = *value;
  return entry;
}

//===----------------------------------------------------------------------===//
// Finding and keeping
//===----------------------------------------------------------------------===//

TunedForms &TunedForms::instance() {
  static TunedForms forms(DiskCache::ofTunedForms());
  return forms;
}

static CacheKey fileOf(StringRef key) { return CacheKey::of({buildIdentity(), key}); }

std::optional<TunedForm> TunedForms::find(StringRef key) {
  std::lock_guard<std::mutex> lock(mutex);
  if (auto known = found.find(key); known != found.end())
    return known->second;
  if (std::optional<std::string> text = store.load(fileOf(key))) {
    Expected<json::Value> value = json::parse(*text);
    std::optional<TunedForm> entry;
    if (value && value->getAsObject() && value->getAsObject()->getString("key") == key)
      entry = TunedForm::fromJson(*value->getAsObject());
    if (!value)
      consumeError(value.takeError());
    if (entry) {
      found[key] = *entry;
      return entry;
    }
    note("a tuned form of another kind is left out: " + Twine(*text));
  }
  readTable();
  if (auto known = shipped.find(key); known != shipped.end())
    return known->second;
  return std::nullopt;
}

void TunedForms::keep(StringRef key, const TunedForm &entry) {
  std::lock_guard<std::mutex> lock(mutex);
  found[key] = entry;
  std::string text;
  raw_string_ostream(text) << json::Value(entry.toJson(key));
  store.store(fileOf(key), text);
  ++changes;
}

//===----------------------------------------------------------------------===//
// The shipped table
//===----------------------------------------------------------------------===//

void TunedForms::setTable(std::string path) {
  std::lock_guard<std::mutex> lock(mutex);
  shipped.clear();
  tablePath = std::move(path);
  ++changes;
}

void TunedForms::readTable() {
  if (!tablePath)
    return;
  std::string path = *std::exchange(tablePath, std::nullopt);
  auto leaveOut = [&](const Twine &reason) { note("the table of tuned forms '" + path + "' is left out: " + reason); };
  ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFile(path);
  if (!file)
    return leaveOut(file.getError().message());
  Expected<json::Value> value = json::parse((*file)->getBuffer());
  if (!value)
    return leaveOut(toString(value.takeError()));
  const json::Array *entries = value->getAsObject() ? value->getAsObject()->getArray("entries") : nullptr;
  if (!entries)
    return leaveOut("it has no entries");
  for (const json::Value &value : *entries) {
    const json::Object *object = value.getAsObject();
    std::optional<StringRef> key = object ? object->getString("key") : std::nullopt;
    std::optional<TunedForm> entry = object ? TunedForm::fromJson(*object) : std::nullopt;
    if (!key || !entry) {
      std::string text;
      raw_string_ostream(text) << value;
      note(Twine("an entry of the table of tuned forms '") + path + "' is left out: " + text);
      continue;
    }
    entry->isShipped = true;
    shipped[*key] = *entry;
  }
}

std::string TunedForms::table() {
  std::lock_guard<std::mutex> lock(mutex);
  SmallVector<StringRef> keys(found.keys());
  sort(keys);
  json::Array entries;
  for (StringRef key : keys)
    entries.push_back(found[key].toJson(key));
  std::string text;
  raw_string_ostream(text) << formatv("{0:2}", json::Value(json::Object{{"entries", std::move(entries)}})) << "\n";
  return text;
}
