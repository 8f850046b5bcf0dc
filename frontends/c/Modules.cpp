//===- Modules.cpp - Modules in the C interface ---------------------------===//

#include "dialect/stretto/Interpreter.h"
#include "dialect/stretto/Windows.h"
#include "frontends/c/Handles.h"
#include "frontends/c/Registration.h"
#include "frontends/c/SourceLimits.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "passes/declaration/Specialize.h"
#include "runtime/Knobs.h"
#include "runtime/Lowering.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include <mutex>

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Refuses text from outside that the parser cannot bear.
static LogicalResult checkText(StringRef text, Location location) {
  constexpr size_t maximalSize = size_t(1) << 20;
  if (isBytecode(llvm::MemoryBufferRef(text, "")))
    return emitError(location) << "found bytecode, expected text";
  if (text.size() > maximalSize)
    return emitError(location) << "the text has " << text.size() << " bytes, expected at most " << maximalSize;
  if (llvm::Error error = checkSource(text))
    return emitError(location) << llvm::toString(std::move(error));
  return success();
}

static FailureOr<OwningOpRef<ModuleOp>> parse(MLIRContext *context, StringRef text, StringRef name) {
  if (failed(checkText(text, FileLineColLoc::get(context, name, 1, 1))))
    return failure();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, ParserConfig(context), name);
  if (!module)
    return failure();
  return module;
}

StrettoModule *strettoModuleParse(StrettoContext *context, const char *text, size_t length, const char *name,
                                  char **error) {
  Messages messages(&context->context);
  return messages.handle<StrettoModule>(parse(&context->context, StringRef(text, length), name), error);
}

StrettoModule *strettoModuleLoad(StrettoContext *context, const char *path, char **error) {
  Messages messages(&context->context);
  auto read = [&]() -> FailureOr<OwningOpRef<ModuleOp>> {
    auto buffer = llvm::MemoryBuffer::getFile(path);
    if (!buffer)
      return emitError(FileLineColLoc::get(&context->context, path, 1, 1))
             << "cannot be read: " << buffer.getError().message();
    return parse(&context->context, (*buffer)->getBuffer(), path);
  };
  return messages.handle<StrettoModule>(read(), error);
}

void strettoModuleDestroy(StrettoModule *module) { delete module; }

char *strettoModulePrint(const StrettoModule *module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module->module.get().print(os);
  return ownedString(text);
}

//===----------------------------------------------------------------------===//
// Signatures
//===----------------------------------------------------------------------===//

static llvm::json::Object typeToJson(Type type) {
  llvm::json::Array axes;
  if (isRow(type)) {
    if (!axisOf(type).empty())
      axes.push_back(axisOf(type));
  } else {
    for (StringAttr axis : cast<ParamAttr>(cast<RankedTensorType>(type).getEncoding()).getAxes())
      axes.push_back(axis.getValue());
  }
  return llvm::json::Object{{"axes", std::move(axes)}, {"heads", headsOf(type)}};
}

static std::string asText(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream os(text);
  attribute.print(os);
  return text;
}

static llvm::json::Object optionToJson(Attribute value) {
  if (auto condition = dyn_cast<BoolAttr>(value))
    return llvm::json::Object{{"default", condition.getValue()}};
  if (auto number = dyn_cast<FloatAttr>(value))
    return llvm::json::Object{{"default", number.getValueAsDouble()}};
  if (auto expression = dyn_cast<StringAttr>(value))
    return llvm::json::Object{{"default", expression.getValue()}};
  auto choice = cast<ChoiceAttr>(value);
  llvm::json::Array choices;
  for (StringAttr word : choice.getChoices())
    choices.push_back(word.getValue());
  return llvm::json::Object{{"default", choice.getValue().getValue()}, {"choices", std::move(choices)}};
}

/// The named sizes that the arguments have and no option fixes.
static llvm::json::Array freeSizes(VariantOp variant) {
  std::set<std::string> names;
  for (Type type : variant.getType().getInputs())
    forEachAxis(type, [&](StringRef axis, int64_t) {
      for (const std::string &name : extentOf(axis).names())
        if (!variant.getAxes().contains(name))
          names.insert(name);
    });
  return llvm::json::Array(names);
}

static llvm::json::Object signatureToJson(VariantOp variant) {
  llvm::json::Array arguments, results;
  for (auto [index, type] : llvm::enumerate(variant.getType().getInputs())) {
    llvm::json::Object argument = typeToJson(type), attributes;
    for (NamedAttribute attribute : variant.getArgAttrDict(index))
      attributes[attribute.getName().getValue()] = asText(attribute.getValue());
    argument["name"] = variant.getArgName(index);
    argument["kind"] = isRow(type) ? "row" : "parameter";
    argument["optional"] = variant.isOptional(index);
    argument["attributes"] = std::move(attributes);
    arguments.push_back(std::move(argument));
  }
  for (Type type : variant.getType().getResults())
    results.push_back(typeToJson(type));
  llvm::json::Object options;
  for (NamedAttribute option : variant.getOptions())
    options[option.getName().getValue()] = optionToJson(option.getValue());
  return llvm::json::Object{{"name", variant.getSymName()},
                            {"summary", variant.getSummary().value_or("")},
                            {"arguments", std::move(arguments)},
                            {"results", std::move(results)},
                            {"options", std::move(options)},
                            {"sizes", freeSizes(variant)},
                            {"heads", llvm::json::Array(namedHeadSets(variant))}};
}

char *strettoModuleSignatures(const StrettoModule *module) {
  llvm::json::Array signatures;
  for (auto variant : module->module.get().getOps<VariantOp>())
    signatures.push_back(signatureToJson(variant));
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(signatures));
  return ownedString(text);
}

static llvm::json::Object entryToJson(const StateEntry &entry) {
  auto kind = [&] {
    switch (entry.kind) {
    case StateEntry::Kind::Matrix:
      return "matrix";
    case StateEntry::Kind::Scan:
      return "scan";
    case StateEntry::Kind::Tail:
      return "tail";
    case StateEntry::Kind::Position:
      return "position";
    }
    llvm_unreachable("a state entry is of one of these kinds");
  };
  return llvm::json::Object{{"name", entry.name},
                            {"kind", kind()},
                            {"heads", entry.heads},
                            {"axes", llvm::json::Array(entry.axes)},
                            {"length", entry.length}};
}

char *strettoModuleState(const StrettoModule *handle, char **error) {
  ModuleOp module = handle->module.get();
  Messages messages(module.getContext());
  SmallVector<VariantOp> variants(module.getOps<VariantOp>());
  llvm::json::Array entries;
  for (VariantOp variant : variants) {
    FailureOr<std::vector<StateEntry>> state = deriveState(variant);
    if (failed(state)) {
      messages.give(error);
      return nullptr;
    }
    for (const StateEntry &entry : *state)
      entries.push_back(entryToJson(entry));
    for (const Window &window : deriveWindows(variant).value_or(std::vector<Window>()))
      entries.push_back(llvm::json::Object{{"name", window.name}, {"kind", "window"}, {"length", window.length}});
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(entries));
  return ownedString(text);
}

//===----------------------------------------------------------------------===//
// Making modules of modules
//===----------------------------------------------------------------------===//

StrettoModule *strettoModuleVariant(const StrettoModule *handle, const char *name, char **error) {
  ModuleOp module = handle->module.get();
  Messages messages(module.getContext());
  auto select = [&]() -> FailureOr<OwningOpRef<ModuleOp>> {
    std::string names;
    VariantOp found;
    for (auto variant : module.getOps<VariantOp>()) {
      names += (names.empty() ? "" : ", ") + variant.getSymName().str();
      if (name && variant.getSymName() == name)
        found = variant;
    }
    SmallVector<VariantOp> all(module.getOps<VariantOp>());
    if (!name && all.size() == 1)
      found = all.front();
    if (!found && name)
      return module.emitError() << "holds no variant '" << name << "'; its variants are: " << names;
    if (!found)
      return module.emitError() << "holds " << all.size() << " variants, expected one or the name of one: " << names;
    OwningOpRef<ModuleOp> result = ModuleOp::create(module.getLoc());
    result->getBody()->push_back(found->clone());
    return result;
  };
  return messages.handle<StrettoModule>(select(), error);
}

static LogicalResult readCounts(ModuleOp module, StringRef kind, StrettoSettings settings,
                                std::map<std::string, int64_t> &counts) {
  for (const auto &[name, value] : llvm::ArrayRef(settings.items, settings.count))
    if (StringRef(value).getAsInteger(10, counts[name]))
      return module.emitError() << "the " << kind << " of '" << name << "' is '" << value << "', expected an integer";
  return success();
}

StrettoModule *strettoModuleSpecialize(const StrettoModule *handle, const StrettoSpecialization *specialization,
                                       char **error) {
  OwningOpRef<ModuleOp> module = handle->module.get().clone();
  Messages messages(module->getContext());
  auto run = [&]() -> FailureOr<OwningOpRef<ModuleOp>> {
    Settings settings;
    if (failed(readCounts(*module, "size", specialization->dims, settings.dims)) ||
        failed(readCounts(*module, "head count", specialization->heads, settings.heads)))
      return failure();
    for (const auto &[name, value] : llvm::ArrayRef(specialization->options.items, specialization->options.count))
      settings.options[name] = value;
    settings.absent.insert(specialization->absent, specialization->absent + specialization->absentCount);
    settings.numericDefaults = !settings.dims.empty();
    for (auto variant : llvm::make_early_inc_range(module->getOps<VariantOp>()))
      if (failed(specialize(variant, settings)))
        return failure();
    return std::move(module);
  };
  return messages.handle<StrettoModule>(run(), error);
}

StrettoModule *strettoModuleRun(const StrettoModule *handle, const char *pipeline, char **error) {
  static std::once_flag registered;
  std::call_once(registered, registerPassesAndPipelines);
  OwningOpRef<ModuleOp> module = handle->module.get().clone();
  Messages messages(module->getContext());
  auto run = [&]() -> FailureOr<OwningOpRef<ModuleOp>> {
    PassManager passes(module->getContext(), ModuleOp::getOperationName(), PassManager::Nesting::Implicit);
    std::string problems;
    llvm::raw_string_ostream os(problems);
    if (failed(checkText(pipeline, module->getLoc())))
      return failure();
    if (failed(parsePassPipeline(pipeline, passes, os)))
      return module->emitError() << "'" << pipeline << "' is no pipeline: " << problems;
    if (failed(passes.run(*module)))
      return failure();
    return std::move(module);
  };
  return messages.handle<StrettoModule>(run(), error);
}

char *strettoModuleLower(const StrettoModule *handle, const char *stage, const char *target, const char *element,
                         StrettoPart part, StrettoKeeps keeps, const StrettoForm *form, char **error) {
  ModuleOp module = handle->module.get();
  auto lower = [&]() -> llvm::Expected<std::string> {
    auto variants = module.getOps<VariantOp>();
    if (!llvm::hasSingleElement(variants))
      return llvm::createStringError("expected a module of one variant");
    KernelRequest request;
    std::optional<ElementType> type = elementTypeNamed(element);
    if (!type)
      return llvm::createStringError("the element type is '" + StringRef(element) +
                                     "', expected f16, bf16, f32 or f64");
    request.element = *type;
    static constexpr KernelRequest::Part parts[] = {KernelRequest::Part::Results, KernelRequest::Part::Step,
                                                    KernelRequest::Part::Segments};
    request.part = parts[part];
    request.target = StringRef(target) == "cpu" ? Target::host() : Target{Target::Kind::Cuda, target, ""};
    static constexpr Keeps kept[] = {Keeps::Nothing, Keeps::Chunks, Keeps::Segments};
    request.keeps = kept[keeps];
    bool isGradient = (*variants.begin()).getGradient();
    request.sideBySide = isGradient && request.part == KernelRequest::Part::Segments;
    if (isGradient)
      request.take({.slices = std::max<int64_t>(Knobs::instance().slices, 1),
                    .ahead = Knobs::instance().ahead,
                    .walks = Knobs::instance().walks,
                    .walkSlices = std::max<int64_t>(Knobs::instance().walkSlices, 1)});
    if (form)
      request.take(formOf(*form));
    return lowerToText(*variants.begin(), request, stage);
  };
  llvm::Expected<std::string> text = lower();
  if (text)
    return ownedString(*text);
  std::string message = llvm::toString(text.takeError());
  if (error)
    *error = ownedString(message);
  return nullptr;
}
