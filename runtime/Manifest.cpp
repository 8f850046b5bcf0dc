//===- Manifest.cpp - What a launcher knows of a compiled kernel ----------===//

#include "runtime/Manifest.h"
#include "dialect/chunk/Flops.h"
#include "mlir/IR/Builders.h"
#include "llvm/Support/JSON.h"
#include <numeric>

using namespace mlir;
using namespace stretto;

static constexpr std::pair<StringLiteral, ElementType> elementTypes[] = {
    {"f16", ElementType::F16}, {"bf16", ElementType::BF16}, {"f32", ElementType::F32}, {"f64", ElementType::F64}};

static constexpr std::pair<StringLiteral, Manifest::Kind> kinds[] = {
    {"input", Manifest::Kind::Input},   {"parameter", Manifest::Kind::Parameter},   {"table", Manifest::Kind::Table},
    {"state", Manifest::Kind::State},   {"checkpoint", Manifest::Kind::Checkpoint}, {"kept", Manifest::Kind::Kept},
    {"window", Manifest::Kind::Window}, {"output", Manifest::Kind::Output}};

static constexpr std::pair<StringLiteral, Manifest::Segments> waysOfSegments[] = {
    {"", Manifest::Segments::None}, {"apart", Manifest::Segments::Apart}, {"turns", Manifest::Segments::Turns}};

/// The name of a value in a table of both.
template <typename Table, typename Value> static StringRef nameIn(const Table &table, Value value) {
  for (const auto &[name, other] : table)
    if (other == value)
      return name;
  llvm_unreachable("every value has a name");
}

/// The value of a name, the other way.
template <typename Table> static auto valueIn(const Table &table, StringRef wanted) {
  std::optional<std::remove_cvref_t<decltype(table[0].second)>> result;
  for (const auto &[name, value] : table)
    if (name == wanted)
      result = value;
  return result;
}

static constexpr std::pair<StringLiteral, ElementType> spellings[] = {{"float16", ElementType::F16},
                                                                      {"bfloat16", ElementType::BF16},
                                                                      {"float32", ElementType::F32},
                                                                      {"float64", ElementType::F64}};

StringRef stretto::spellType(ElementType type) { return nameIn(spellings, type); }
StringRef stretto::nameOf(ElementType type) { return nameIn(elementTypes, type); }
std::optional<ElementType> stretto::elementTypeNamed(StringRef name) { return valueIn(elementTypes, name); }

int64_t stretto::bytesOf(ElementType type) {
  switch (type) {
  case ElementType::F16:
  case ElementType::BF16:
    return 2;
  case ElementType::F32:
    return 4;
  case ElementType::F64:
    return 8;
  }
  llvm_unreachable("covered switch");
}

int64_t Manifest::words(Kind kind) const {
  switch (kind) {
  case Kind::Input:
  case Kind::Output:
  case Kind::Table:
    return 4;
  case Kind::Parameter:
    return 2;
  case Kind::Checkpoint:
  case Kind::Kept:
    return 3;
  case Kind::State:
    return stateWords + (segments == Segments::Apart ? segmentWords : 0);
  case Kind::Window:
    return stateWords;
  }
  llvm_unreachable("covered switch");
}

int64_t Manifest::firstBoxWord() const {
  constexpr int64_t wordsOfAlignment = 8;
  int64_t count = headerWords;
  for (const Argument &argument : arguments)
    count += words(argument.kind);
  return llvm::alignTo(count, wordsOfAlignment);
}

int64_t Manifest::blockWords() const {
  return firstBoxWord() + boxWords * llvm::count_if(arguments, [](const Argument &argument) { return argument.box; });
}

int64_t Manifest::Argument::perAccess() const {
  constexpr int64_t mostBytes = 16;
  // Numbers of a state of one axis are a column of its entry.
  if (shape.empty() || (kind == Kind::State && shape.size() == 1))
    return 1;
  int64_t places = shape.back() | column | columns;
  return std::min(mostBytes / bytesOf(type), places & -places);
}

int64_t Manifest::strideOfTable(int64_t width, ElementType type) {
  constexpr int64_t pieceBytes = 16;
  return width == 1 ? 1 : static_cast<int64_t>(llvm::alignTo(width, pieceBytes / bytesOf(type)));
}

int64_t Manifest::headsTogether(int64_t heads) const {
  int64_t together = 1;
  for (const Argument &argument : arguments)
    if (argument.kind == Kind::State || argument.kind == Kind::Window)
      together = std::lcm(together, argument.group);
  return std::min(together, heads);
}

//===----------------------------------------------------------------------===//
// From a kernel
//===----------------------------------------------------------------------===//

static FailureOr<ElementType> elementTypeOf(chunk::KernelOp kernel, StringRef name, Type type) {
  Type element = getElementTypeOrSelf(type);
  if (element.isBF16())
    return ElementType::BF16;
  if (element.isF16())
    return ElementType::F16;
  if (element.isF32())
    return ElementType::F32;
  if (element.isF64())
    return ElementType::F64;
  return kernel.emitOpError("the argument '") << name << "' has entries of type " << element
                                              << ", which have no form in memory; expected f16, bf16, f32 or f64";
}

static Manifest::Kind kindOf(chunk::ArgumentKind kind) {
  switch (kind) {
  case chunk::ArgumentKind::Input:
    return Manifest::Kind::Input;
  case chunk::ArgumentKind::Parameter:
    return Manifest::Kind::Parameter;
  case chunk::ArgumentKind::Table:
    return Manifest::Kind::Table;
  case chunk::ArgumentKind::State:
    return Manifest::Kind::State;
  case chunk::ArgumentKind::Checkpoint:
    return Manifest::Kind::Checkpoint;
  case chunk::ArgumentKind::Window:
    return Manifest::Kind::Window;
  case chunk::ArgumentKind::Valid:
    break;
  }
  llvm_unreachable("the number of valid tokens is no argument in memory");
}

/// Whether a table is a tile, with a row for each token.
static bool varies(chunk::KernelOp kernel, StringRef table) {
  auto op = SymbolTable::lookupNearestSymbolFrom<chunk::TableOp>(kernel, StringAttr::get(kernel.getContext(), table));
  return op.getVarying() || op.getPeriod();
}

FailureOr<Manifest> Manifest::of(chunk::KernelOp kernel) {
  Manifest manifest;
  manifest.symbol = kernel.getSymName();
  manifest.chunk = kernel.getChunk();
  manifest.slices = kernel.getSlices();
  manifest.interval = kernel.getBetween() ? 2 : 1;
  manifest.recorded = kernel.getRecorded();
  manifest.earlier = kernel.getEarlier();
  manifest.reverse = kernel.getReverse();
  if (std::optional<chunk::Segments> segments = kernel.getSegments())
    manifest.segments = *valueIn(waysOfSegments, stringifySegments(*segments));
  chunk::Flops flops = chunk::countFlops(kernel);
  manifest.flops = flops.ofChunk;
  manifest.flopsOfMeeting = flops.ofMeeting;

  auto add = [&](Kind kind, StringRef name, Type type) -> FailureOr<Argument *> {
    FailureOr<ElementType> element = elementTypeOf(kernel, name, type);
    if (failed(element))
      return failure();
    Argument &argument = manifest.arguments.emplace_back();
    argument.kind = kind;
    argument.name = name;
    argument.type = *element;
    bool hasTokens = kind == Kind::Input || kind == Kind::Output || (kind == Kind::Table && varies(kernel, name));
    ArrayRef<int64_t> shape = cast<RankedTensorType>(type).getShape().drop_front(hasTokens);
    argument.shape.assign(shape.begin(), shape.end());
    return &argument;
  };

  for (BlockArgument value : kernel.getBlock()->getArguments().drop_back()) {
    chunk::ArgumentAttr description = kernel.getArgument(value.getArgNumber());
    FailureOr<Argument *> added = add(kindOf(description.getKind()), description.getName().getValue(), value.getType());
    if (failed(added))
      return failure();
    Argument &argument = **added;
    argument.group = description.getGroup();
    argument.sliced = description.getSliced();
    argument.partial = description.getPartial();
    if (description.getEntry()) {
      argument.entry = description.getEntry().getValue();
      argument.column = description.getColumn();
      argument.columns = description.getColumns();
      argument.row = description.getRow();
    }
  }
  for (auto output : kernel.getOutputs().getAsRange<chunk::OutputAttr>()) {
    Kind kind = output.getCheckpoint() ? Kind::Kept : Kind::Output;
    FailureOr<Argument *> added = add(kind, output.getName().getValue(), output.getType());
    if (failed(added))
      return failure();
    (*added)->group = output.getGroup();
    (*added)->sliced = output.getSliced();
    (*added)->partial = output.getPartial();
  }
  if (llvm::any_of(manifest.arguments, [](const Argument &argument) { return argument.type == ElementType::F64; }))
    manifest.computeType = ElementType::F64;
  return manifest;
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

bool Manifest::has(Kind kind, StringRef name) const {
  return llvm::any_of(arguments,
                      [&](const Argument &argument) { return argument.kind == kind && argument.name == name; });
}

std::string Manifest::toJson() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream);
  json.object([&] {
    json.attribute("symbol", symbol);
    json.attribute("chunk", chunk);
    json.attribute("slices", slices);
    json.attribute("interval", interval);
    json.attribute("recorded", recorded);
    json.attribute("earlier", earlier);
    json.attribute("reverse", reverse);
    json.attribute("independentChunks", independentChunks);
    json.attribute("segments", nameIn(waysOfSegments, segments));
    json.attribute("inPlace", inPlace);
    json.attribute("expects", expects);
    json.attribute("takesLeft", takesLeft);
    json.attribute("awaitsLaunches", awaitsLaunches);
    json.attribute("noChunkForm", noChunkForm);
    json.attribute("flops", flops);
    json.attribute("flopsOfMeeting", flopsOfMeeting);
    json.attribute("threads", threads);
    json.attribute("threadsAhead", threadsAhead);
    json.attribute("threadsOfOutputs", threadsOfOutputs);
    json.attribute("threadsOfProducer", threadsOfProducer);
    json.attribute("sharedBytes", sharedBytes);
    json.attribute("scratchBytes", scratchBytes);
    json.attribute("work", work);
    json.attribute("computeType", nameOf(computeType));
    json.attributeArray("arguments", [&] {
      for (const Argument &argument : arguments)
        json.object([&] {
          json.attribute("kind", nameIn(kinds, argument.kind));
          json.attribute("name", argument.name);
          json.attribute("type", nameOf(argument.type));
          json.attribute("shape", llvm::json::Array(argument.shape));
          json.attribute("group", argument.group);
          json.attribute("sliced", argument.sliced);
          json.attribute("partial", argument.partial);
          json.attribute("entry", argument.entry);
          json.attribute("column", argument.column);
          json.attribute("columns", argument.columns);
          json.attribute("row", argument.row);
          json.attribute("box", argument.box);
          json.attribute("boxRows", argument.boxRows);
        });
    });
  });
  return text;
}

// The readers that llvm::json::ObjectMapper looks up by argument.
namespace stretto {

static bool fromJSON(const llvm::json::Value &value, ElementType &type, llvm::json::Path path) {
  std::optional<StringRef> text = value.getAsString();
  std::optional<ElementType> parsed = text ? elementTypeNamed(*text) : std::nullopt;
  if (!parsed) {
    path.report("expected an element type");
    return false;
  }
  type = *parsed;
  return true;
}

static bool fromJSON(const llvm::json::Value &value, Manifest::Kind &kind, llvm::json::Path path) {
  std::optional<StringRef> text = value.getAsString();
  std::optional<Manifest::Kind> parsed = text ? valueIn(kinds, *text) : std::nullopt;
  if (!parsed) {
    path.report("expected a kind of argument");
    return false;
  }
  kind = *parsed;
  return true;
}

static bool fromJSON(const llvm::json::Value &value, Manifest::Segments &segments, llvm::json::Path path) {
  std::optional<StringRef> text = value.getAsString();
  std::optional<Manifest::Segments> parsed = text ? valueIn(waysOfSegments, *text) : std::nullopt;
  if (!parsed) {
    path.report("expected a way of taking segments");
    return false;
  }
  segments = *parsed;
  return true;
}

static bool fromJSON(const llvm::json::Value &value, Manifest::Argument &argument, llvm::json::Path path) {
  llvm::json::ObjectMapper map(value, path);
  return map && map.map("kind", argument.kind) && map.map("name", argument.name) && map.map("type", argument.type) &&
         map.map("shape", argument.shape) && map.map("group", argument.group) && map.map("sliced", argument.sliced) &&
         map.map("partial", argument.partial) && map.map("entry", argument.entry) &&
         map.map("column", argument.column) && map.map("columns", argument.columns) && map.map("row", argument.row) &&
         map.map("box", argument.box) && map.map("boxRows", argument.boxRows);
}

static bool fromJSON(const llvm::json::Value &value, Manifest &manifest, llvm::json::Path path) {
  llvm::json::ObjectMapper map(value, path);
  return map && map.map("symbol", manifest.symbol) && map.map("chunk", manifest.chunk) &&
         map.map("slices", manifest.slices) && map.map("interval", manifest.interval) &&
         map.map("recorded", manifest.recorded) && map.map("earlier", manifest.earlier) &&
         map.map("reverse", manifest.reverse) && map.map("independentChunks", manifest.independentChunks) &&
         map.map("segments", manifest.segments) && map.map("inPlace", manifest.inPlace) &&
         map.map("expects", manifest.expects) && map.map("takesLeft", manifest.takesLeft) &&
         map.map("awaitsLaunches", manifest.awaitsLaunches) && map.map("noChunkForm", manifest.noChunkForm) &&
         map.map("flops", manifest.flops) && map.map("flopsOfMeeting", manifest.flopsOfMeeting) &&
         map.map("threads", manifest.threads) && map.map("threadsAhead", manifest.threadsAhead) &&
         map.map("threadsOfOutputs", manifest.threadsOfOutputs) &&
         map.map("threadsOfProducer", manifest.threadsOfProducer) && map.map("sharedBytes", manifest.sharedBytes) &&
         map.map("scratchBytes", manifest.scratchBytes) && map.map("work", manifest.work) &&
         map.map("computeType", manifest.computeType) && map.map("arguments", manifest.arguments);
}

} // namespace stretto

FailureOr<Manifest> Manifest::leftOn(Operation *function) {
  auto text = function->getAttrOfType<StringAttr>(attributeName);
  llvm::Expected<Manifest> manifest = fromJson(text ? text.getValue() : "");
  if (!manifest)
    return function->emitOpError("has no manifest: ") << llvm::toString(manifest.takeError());
  return std::move(*manifest);
}

llvm::Expected<Manifest> Manifest::fromJson(StringRef text) { return llvm::json::parse<Manifest>(text, "manifest"); }

StringAttr Manifest::toAttribute(MLIRContext *context) const { return StringAttr::get(context, toJson()); }
