//===- Operator.cpp - A variant that can be called ------------------------===//

#include "runtime/Operator.h"
#include "dialect/stretto/Interpreter.h"
#include "frontends/c/Registration.h"
#include "runtime/Cache.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include <atomic>
#include <cmath>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

using namespace mlir;
using namespace stretto;

namespace {

llvm::Error error(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Everything that the code for a call depends on, as words.
struct CallKey {
  SmallVector<int64_t, 64> words;
  bool operator==(const CallKey &other) const { return words == other.words; }
};

struct HashCallKey {
  size_t operator()(const CallKey &key) const { return llvm::hash_combine_range(key.words); }
};

std::string spell(ArrayRef<int64_t> sizes) {
  return "[" + llvm::join(llvm::map_range(sizes, [](int64_t size) { return std::to_string(size); }), ", ") + "]";
}

} // namespace

/// A kernel of this operator: the code, and which value of a call each of its arguments is.
struct Operator::Kernel {
  std::shared_ptr<CompiledKernel> code;
  /// For each argument of the manifest the position among arguments, results, state entries or tables of a call.
  SmallVector<unsigned> positions;
  /// Shapes of results and state entries, with the batch's and the time's extents left at 0.
  SmallVector<TensorShape, 2> results;
  SmallVector<TensorShape, 4> state;
  SmallVector<std::string> resultHeads, stateHeads;
  /// Arguments that are used as a log decay as they are.
  SmallVector<unsigned> logDecays;
};

struct Operator::Implementation {
  // A context of its own: declarations of one operator are compiled one at a time, operators do not wait for each
  // other.
  MLIRContext context{MLIRContext::Threading::DISABLED};
  OwningOpRef<ModuleOp> module;
  VariantOp variant;
  std::mutex compiling;

  std::shared_mutex guard;
  std::unordered_map<CallKey, std::unique_ptr<Kernel>, HashCallKey> kernels;

  llvm::Expected<std::unique_ptr<Kernel>> makeKernel(const Operator &op, const OperatorCall &call);
};

Operator::Operator() : implementation(std::make_unique<Implementation>()) {}
Operator::~Operator() = default;

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

llvm::Expected<std::unique_ptr<Operator>> Operator::create(StringRef text) {
  std::unique_ptr<Operator> op(new Operator());
  Implementation &impl = *op->implementation;
  DialectRegistry registry;
  registerDialects(registry);
  impl.context.appendDialectRegistry(registry);
  DiagnosticText diagnostics(&impl.context);
  impl.module = parseSourceString<ModuleOp>(text, &impl.context);
  if (!impl.module)
    return diagnostics.takeError();
  auto variants = impl.module->getOps<VariantOp>();
  if (!llvm::hasSingleElement(variants))
    return error("a module holds " + llvm::Twine(std::distance(variants.begin(), variants.end())) +
                 " variants, expected one");
  VariantOp variant = impl.variant = *variants.begin();

  op->variantName = variant.getSymName();
  op->results = variant.getType().getNumResults();
  std::string canonical;
  llvm::raw_string_ostream(canonical) << *impl.module;
  op->declarationDigest = CacheKey::of({canonical}).digest;
  for (auto [index, type] : llvm::enumerate(variant.getType().getInputs()))
    op->inputList.push_back({variant.getArgName(index).str(), isParam(type), variant.isOptional(index)});
  for (NamedAttribute option : variant.getOptions()) {
    Option &added = op->optionList.emplace_back();
    added.name = option.getName().str();
    if (auto condition = dyn_cast<BoolAttr>(option.getValue())) {
      added.kind = Option::Kind::Condition;
      added.fallback = condition.getValue() ? "true" : "false";
    } else if (auto choice = dyn_cast<ChoiceAttr>(option.getValue())) {
      added.kind = Option::Kind::Word;
      added.fallback = choice.getValue().getValue();
      for (StringAttr word : choice.getChoices())
        added.words.push_back(word.str());
    } else {
      added.kind = Option::Kind::Number;
      if (auto number = dyn_cast<FloatAttr>(option.getValue()))
        added.fallback = llvm::formatv("{0}", number.getValueAsDouble());
      else
        added.fallback = cast<StringAttr>(option.getValue()).getValue();
    }
  }
  return op;
}

//===----------------------------------------------------------------------===//
// Finding the kernel of a call
//===----------------------------------------------------------------------===//

/// The shapes of the arguments that are present.
static std::vector<ArgumentShape> shapesOf(const Operator &op, const OperatorCall &call) {
  std::vector<ArgumentShape> shapes;
  for (auto [input, view] : llvm::zip_equal(op.inputs(), call.arguments))
    if (view)
      shapes.push_back({input.name, SmallVector<int64_t, 4>(view->sizes)});
  return shapes;
}

static std::map<std::string, std::string> optionsOf(const Operator &op, const OperatorCall &call) {
  std::map<std::string, std::string> options;
  for (auto [option, text] : llvm::zip_equal(op.options(), call.options))
    if (!text.empty())
      options[option.name] = text;
  return options;
}

/// Tensors of one call lie on one device.
static llvm::Error checkDevices(const Operator &op, const OperatorCall &call, int &device) {
  std::optional<StringRef> first;
  auto name = [](int number) { return number < 0 ? std::string("the CPU") : "CUDA device " + std::to_string(number); };
  auto check = [&](StringRef argument, const TensorView &view) -> llvm::Error {
    if (!first) {
      first = argument;
      device = view.device;
    }
    if (view.device == device)
      return llvm::Error::success();
    return error("[R5] '" + argument + "' is on " + name(view.device) + ", '" + *first + "' on " + name(device));
  };
  for (auto [input, view] : llvm::zip_equal(op.inputs(), call.arguments))
    if (view)
      if (llvm::Error found = check(input.name, *view))
        return found;
  for (const TensorView &view : call.initialState)
    if (llvm::Error found = check("initial_state", view))
      return found;
  if (call.sequenceOffsets)
    return check("cu_seqlens", *call.sequenceOffsets);
  return llvm::Error::success();
}

/// The words that identify the code for a call.
static CallKey keyOf(const Operator &op, const OperatorCall &call, int device, int64_t slices, int capability) {
  CallKey key;
  key.words.push_back(device < 0 ? -1 : capability);
  key.words.push_back(slices);
  key.words.push_back(call.sequenceOffsets.has_value());
  for (auto [input, view] : llvm::zip_equal(op.inputs(), call.arguments)) {
    if (!view) {
      key.words.push_back(-1);
      continue;
    }
    key.words.push_back(view->type ? static_cast<int64_t>(*view->type) : -2);
    key.words.push_back(view->sizes.size());
    // Batch and time of a row are not part of the code; heads are, by their ratios.
    llvm::append_range(key.words, view->sizes.drop_front(input.isParameter || view->sizes.size() < 2 ? 0 : 2));
  }
  for (const std::string &option : call.options)
    key.words.push_back(option.empty() ? 0 : static_cast<int64_t>(llvm::hash_value(option)));
  return key;
}

/// Element types: arguments share one type, the main one, but parameters and rows that only feed gates may be f32.
static llvm::Error checkTypes(const Operator &op, const OperatorCall &call, const SmallBitVector &gates) {
  const TensorView *main = nullptr;
  StringRef mainName;
  for (auto [index, input, view] : llvm::enumerate(op.inputs(), call.arguments)) {
    if (!view)
      continue;
    if (!view->type)
      return error("[R4] '" + input.name + "' has entries of type " + view->typeName +
                   ", expected float16, bfloat16, float32 or float64");
    if (*view->type == ElementType::F64 && view->device >= 0)
      return error("[R4] '" + input.name + "' has entries of type float64, which kernels on CUDA devices do not know");
    if (!main && !input.isParameter && !gates[index]) {
      main = &*view;
      mainName = input.name;
    }
  }
  for (auto [index, input, view] : llvm::enumerate(op.inputs(), call.arguments)) {
    if (!view || !main || view->type == main->type)
      continue;
    bool wide = view->type == ElementType::F32 && *main->type != ElementType::F64 && (input.isParameter || gates[index]);
    if (!wide)
      return error("[R4] '" + input.name + "' has entries of type " + view->typeName + ", expected " + main->typeName +
                   " as '" + mainName + "' has" + (gates[index] || input.isParameter ? ", or float32" : ""));
  }
  return llvm::Error::success();
}

/// Rows that may be f32 beside 16-bit ones: numbers, and rows that reach a decay or a write weight (an axis that is
/// decayed) through row maps only.
static SmallBitVector gateInputs(VariantOp variant) {
  SmallBitVector gates(variant.getType().getNumInputs());
  llvm::SmallDenseSet<Value> seen;
  SmallVector<Value> pending;
  variant.walk([&](DecayOp decay) { pending.push_back(decay.getAmount()); });
  for (auto [index, argument] : llvm::enumerate(variant.getBody().getArguments()))
    if (isRow(argument.getType()) && axisOf(argument.getType()).empty())
      gates.set(index);
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (isa<VariantOp>(argument.getOwner()->getParentOp()))
        gates.set(argument.getArgNumber());
      continue;
    }
    if (!isa<ReadOp, LookbackOp>(value.getDefiningOp()))
      llvm::append_range(pending, value.getDefiningOp()->getOperands());
  }
  return gates;
}
