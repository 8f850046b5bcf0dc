//===- Operator.cpp - A variant that can be called ------------------------===//

#include "runtime/Operator.h"
#include "dialect/stretto/Interpreter.h"
#include "frontends/c/Registration.h"
#include "runtime/Cache.h"
#include "mlir/Parser/Parser.h"
#include "passes/declaration/Specialize.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

using namespace mlir;
using namespace stretto;
using llvm::SmallBitVector;

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
  /// For each argument of the manifest its position among the arguments, the results, the state's entries or the
  /// tables of a call, by its kind.
  SmallVector<unsigned> positions;
  /// Heads and shape after batch and time of each result.
  struct Result {
    ElementType type;
    SmallVector<int64_t, 2> sizes;
  };
  SmallVector<Result, 2> results;
  std::vector<StateEntry> state;
  SmallVector<int64_t> stateHeads;
  SmallVector<ElementType> stateTypes;
  /// Heads of the finest set of the kernel.
  int64_t heads = 0;
};

struct Operator::Implementation {
  // A context of its own, so that operators do not wait for each other's compilation.
  MLIRContext context{MLIRContext::Threading::DISABLED};
  OwningOpRef<ModuleOp> module;
  VariantOp variant;
  SmallBitVector gates;
  /// Arguments that are a log decay as they are.
  SmallVector<unsigned> logDecays;
  std::mutex compiling;

  std::shared_mutex guard;
  std::unordered_map<CallKey, std::unique_ptr<Kernel>, HashCallKey> kernels;

  llvm::Expected<std::unique_ptr<Kernel>> make(const Operator &op, const OperatorCall &call, int device);
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
        added.fallback = llvm::formatv("{0}", number.getValueAsDouble()).str();
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
static CallKey keyOf(const Operator &op, const OperatorCall &call, int device) {
  CallKey key;
  key.words.push_back(device);
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

/// The heads of a call up to a common factor, on which the code depends.
static std::map<std::string, int64_t> ratios(std::map<std::string, int64_t> heads) {
  int64_t divisor = 0;
  for (const auto &[set, count] : heads)
    divisor = std::gcd(divisor, count);
  for (auto &[set, count] : heads)
    count /= std::max<int64_t>(divisor, 1);
  return heads;
}

llvm::Expected<std::unique_ptr<Operator::Kernel>>
Operator::Implementation::make(const Operator &op, const OperatorCall &call, int device) {
  std::lock_guard<std::mutex> lock(compiling);
  if (llvm::Error found = checkTypes(op, call, gates))
    return found;
  DiagnosticText diagnostics(&context);
  FailureOr<CallSizes> bound = bindShapes(variant, shapesOf(op, call), optionsOf(op, call));
  if (failed(bound))
    return diagnostics.takeError();
  FailureOr<Sizes> sizes = Sizes::get(variant, bound->settings);
  if (failed(sizes))
    return diagnostics.takeError();

  KernelRequest request;
  request.settings = bound->settings;
  request.settings.heads = ratios(bound->settings.heads);
  ElementType main = ElementType::F32;
  bool mainFound = false;
  for (auto [index, input, view] : llvm::enumerate(op.inputs(), call.arguments)) {
    if (!view)
      continue;
    request.types[input.name] = *view->type;
    if (!mainFound && !input.isParameter && !gates[index]) {
      main = *view->type;
      mainFound = true;
    }
  }
  ElementType compute = main == ElementType::F64 ? ElementType::F64 : ElementType::F32;

  // What the results and the state look like follows from the specialised declaration.
  OwningOpRef<ModuleOp> specialised = module->clone();
  VariantOp program = *specialised->getOps<VariantOp>().begin();
  if (failed(specialize(program, bound->settings)))
    return diagnostics.takeError();
  FailureOr<std::vector<StateEntry>> entries = deriveState(program);
  if (failed(entries))
    return diagnostics.takeError();

  auto kernel = std::make_unique<Kernel>();
  auto headsIn = [&](StringRef set) { return sizes->heads(set).value_or(1); };
  for (Type type : program.getType().getResults()) {
    Kernel::Result &result = kernel->results.emplace_back();
    result.type = main;
    result.sizes.push_back(headsIn(headsOf(type)));
    llvm::append_range(result.sizes, cast<RankedTensorType>(type).getShape());
  }
  kernel->state = std::move(*entries);
  for (const StateEntry &entry : kernel->state) {
    kernel->stateHeads.push_back(headsIn(entry.heads));
    // Convolution tails are rows of inputs; everything else is a sum in the type that is computed in.
    kernel->stateTypes.push_back(entry.kind == StateEntry::Kind::Tail ? main : compute);
  }

  if (device < 0) {
    request.target = Target::host();
  } else {
    llvm::Expected<int> capability = cudaComputeCapability(device);
    if (!capability)
      return capability.takeError();
    request.target = Target::cuda(*capability);
  }
  request.slices = 0; // as many as the target needs
  llvm::Expected<std::shared_ptr<CompiledKernel>> code = compileKernel(variant, request);
  if (!code)
    return code.takeError();
  kernel->code = std::move(*code);

  const Manifest &manifest = kernel->code->manifest;
  unsigned outputs = 0, tables = 0;
  for (const Manifest::Argument &argument : manifest.arguments) {
    std::optional<unsigned> position;
    switch (argument.kind) {
    case Manifest::Kind::Input:
    case Manifest::Kind::Parameter:
      for (auto [index, input] : llvm::enumerate(op.inputs()))
        if (input.name == argument.name)
          position = index;
      break;
    case Manifest::Kind::Table:
      position = tables++;
      break;
    case Manifest::Kind::State:
      for (auto [index, entry] : llvm::enumerate(kernel->state))
        if (entry.name == argument.entry)
          position = index;
      break;
    case Manifest::Kind::Output:
      position = outputs++;
      break;
    }
    if (!position)
      return error("internal: the kernel's argument '" + argument.name + "' is nothing that a call has");
    kernel->positions.push_back(*position);
    if (argument.kind == Manifest::Kind::Input || argument.kind == Manifest::Kind::Parameter) {
      int64_t heads = call.arguments[*position]->sizes[op.inputs()[*position].isParameter ? 0 : 2];
      kernel->heads = std::max(kernel->heads, heads * argument.group);
    }
  }
  return kernel;
}

/// Checks of what is no part of the code: extents of batch and time, packing, states.
static llvm::Error checkExtents(const Operator &op, const OperatorCall &call, const Operator::Prepared &prepared) {
  if (call.sequenceOffsets) {
    const TensorView &offsets = *call.sequenceOffsets;
    if (offsets.sizes.size() != 1 || offsets.sizes[0] < 1)
      return error("[R7] 'cu_seqlens' has shape " + spell(offsets.sizes) + ", expected [sequences + 1]");
  }
  if (call.initialState.empty())
    return llvm::Error::success();
  if (call.initialState.size() != prepared.state.size())
    return error("[R6] 'initial_state' has " + llvm::Twine(call.initialState.size()) + " tensors, expected " +
                 llvm::Twine(prepared.state.size()));
  for (auto [index, view, expected] : llvm::enumerate(call.initialState, prepared.state)) {
    if (view.type != expected.type || view.sizes != ArrayRef(expected.sizes))
      return error("[R6] tensor " + llvm::Twine(index) + " of 'initial_state' is " + view.typeName + " " +
                   spell(view.sizes) + ", expected " + nameOf(expected.type) + " " + spell(expected.sizes));
  }
  return llvm::Error::success();
}

llvm::Expected<Operator::Prepared> Operator::prepare(const OperatorCall &call) {
  int device = -1;
  if (llvm::Error found = checkDevices(*this, call, device))
    return found;
  CallKey key = keyOf(*this, call, device);
  const Kernel *kernel = nullptr;
  {
    std::shared_lock lock(implementation->guard);
    if (auto found = implementation->kernels.find(key); found != implementation->kernels.end())
      kernel = found->second.get();
  }
  // Extents of batch and time are not in the key. A mismatch is worded where shapes are bound.
  ArrayRef<int64_t> extents;
  bool consistent = true;
  for (auto [input, view] : llvm::zip_equal(inputs(), call.arguments)) {
    if (!view || input.isParameter)
      continue;
    if (extents.empty())
      extents = view->sizes.take_front(2);
    consistent &= view->sizes.take_front(2) == extents;
  }
  if (!kernel || !consistent) {
    llvm::Expected<std::unique_ptr<Kernel>> made = implementation->make(*this, call, device);
    if (!made)
      return made.takeError();
    std::unique_lock lock(implementation->guard);
    kernel = implementation->kernels.try_emplace(std::move(key), std::move(*made)).first->second.get();
  }

  Prepared prepared;
  prepared.kernel = kernel;
  prepared.time = extents[1];
  prepared.heads = kernel->heads;
  prepared.sequences = extents[0];
  if (call.sequenceOffsets) {
    if (extents[0] != 1)
      return error("[R7] a packed batch has B = " + llvm::Twine(extents[0]) + ", expected 1");
    if (call.sequenceOffsets->sizes.size() == 1)
      prepared.sequences = call.sequenceOffsets->sizes[0] - 1;
  }
  for (const Kernel::Result &result : kernel->results) {
    TensorShape &shape = prepared.results.emplace_back();
    shape.type = result.type;
    shape.sizes = {extents[0], extents[1]};
    llvm::append_range(shape.sizes, result.sizes);
  }
  for (auto [entry, heads, type] : llvm::zip_equal(kernel->state, kernel->stateHeads, kernel->stateTypes))
    prepared.state.push_back({type, entry.shape(prepared.sequences, heads)});
  if (llvm::Error found = checkExtents(*this, call, prepared))
    return found;
  return prepared;
}
