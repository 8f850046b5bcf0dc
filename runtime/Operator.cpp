//===- Operator.cpp - A variant that can be called ------------------------===//

#include "frontends/c/Registration.h"
#include "mlir/Parser/Parser.h"
#include "passes/declaration/SaveRows.h"
#include "runtime/Cache.h"
#include "runtime/DiagnosticText.h"
#include "runtime/OperatorImpl.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace stretto;

Operator::Operator() : implementation(std::make_unique<Implementation>()) {}
Operator::~Operator() = default;

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

static Operator::Option describeOption(StringRef name, Attribute value) {
  Operator::Option option = {Operator::Option::Kind::Number, name.str(), "", {}};
  if (auto condition = dyn_cast<BoolAttr>(value)) {
    option.kind = Operator::Option::Kind::Condition;
    option.fallback = condition.getValue() ? "true" : "false";
  } else if (auto choice = dyn_cast<ChoiceAttr>(value)) {
    option.kind = Operator::Option::Kind::Word;
    option.fallback = choice.getValue().getValue();
    for (StringAttr word : choice.getChoices())
      option.words.push_back(word.str());
  } else if (auto number = dyn_cast<FloatAttr>(value)) {
    option.fallback = llvm::formatv("{0}", number.getValueAsDouble()).str();
  } else {
    option.fallback = cast<StringAttr>(value).getValue();
  }
  return option;
}

/// A part of an entry lies where the compiler has divided one, and nowhere else: memory that a call lends is that of
/// whole states.
static llvm::Error expectWholeStates(VariantOp declaration) {
  StateOp part;
  declaration.walk([&](StateOp state) {
    part = state.getEntry() ? state : part;
    return part ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (!part)
    return llvm::Error::success();
  return llvm::createStringError("the state '" + part.getName().str() + "' is declared as a part of the entry '" +
                                 part.getEntry()->str() + "', expected a state of its own: the compiler divides them");
}

llvm::Expected<std::unique_ptr<Operator>> Operator::create(StringRef text) {
  std::unique_ptr<Operator> op(new Operator());
  Implementation &impl = *op->implementation;
  DialectRegistry registry;
  registerDialects(registry);
  impl.context.appendDialectRegistry(registry);
  impl.context.printOpOnDiagnostic(false);
  DiagnosticText diagnostics(&impl.context);
  impl.module = parseSourceString<ModuleOp>(text, &impl.context);
  if (!impl.module)
    return diagnostics.takeError();
  // The text is the compiler's own: its lines say nothing to the user.
  impl.module->walk([&](Operation *op) { op->setLoc(UnknownLoc::get(&impl.context)); });
  auto variants = impl.module->getOps<VariantOp>();
  if (!llvm::hasSingleElement(variants))
    return llvm::createStringError("a module holds %zu variants, expected one",
                                   size_t(std::distance(variants.begin(), variants.end())));
  VariantOp variant = impl.variant = *variants.begin();
  if (llvm::Error error = expectWholeStates(variant))
    return error;
  impl.gates = findGates(variant);

  op->variantName = variant.getSymName();
  op->results = variant.getType().getNumResults();
  op->savesRows = stretto::maySaveRows(variant);
  std::string canonical;
  llvm::raw_string_ostream(canonical) << *impl.module;
  op->declarationDigest = CacheKey::of({canonical}).digest;
  for (auto [index, type] : llvm::enumerate(variant.getType().getInputs()))
    op->inputList.push_back({variant.getArgName(index).str(), isParam(type), variant.isOptional(index)});
  for (NamedAttribute option : variant.getOptions())
    op->optionList.push_back(describeOption(option.getName(), option.getValue()));
  return op;
}

//===----------------------------------------------------------------------===//
// Finding the signature of a call
//===----------------------------------------------------------------------===//

/// The words that identify the signature of a call. Batch and time of a row are not part of it.
static SignatureKey keyOf(const Operator &op, const OperatorCall &call, int device) {
  SignatureKey key;
  llvm::append_values(key.numbers, static_cast<int64_t>(device), static_cast<int64_t>(call.isStep));
  // Kernels for a GPU that continue may compute what others read.
  key.numbers.push_back(device >= 0 && !call.initialState.empty());
  for (auto [input, view] : llvm::zip_equal(op.inputs(), call.arguments)) {
    if (!view) {
      key.numbers.push_back(-1);
      continue;
    }
    key.numbers.push_back(view->type ? static_cast<int64_t>(*view->type) : -1);
    key.numbers.push_back(view->sizes.size());
    size_t leading = input.isParameter ? 0 : call.leadingAxes();
    llvm::append_range(key.numbers, view->sizes.drop_front(std::min(leading, view->sizes.size())));
  }
  key.options = call.options;
  return key;
}

/// Whether all rows have one batch and one time. Where they differ, binding shapes to names says so.
static bool extentsAgree(const Operator &op, const OperatorCall &call) {
  ArrayRef<int64_t> extents;
  for (auto [input, view] : llvm::zip_equal(op.inputs(), call.arguments)) {
    if (!view || input.isParameter)
      continue;
    if (extents.empty())
      extents = view->sizes.take_front(call.leadingAxes());
    if (view->sizes.take_front(call.leadingAxes()) != extents)
      return false;
  }
  return true;
}

llvm::Expected<Operator::Signature *> Operator::check(const OperatorCall &call) {
  llvm::Expected<int> device = checkDevices(*this, call);
  if (!device)
    return device.takeError();
  SignatureKey key = keyOf(*this, call, *device);
  Signature *signature = nullptr;
  {
    std::shared_lock lock(implementation->guard);
    if (auto found = implementation->signatures.find(key); found != implementation->signatures.end())
      signature = found->second.get();
  }
  if (!signature || !extentsAgree(*this, call)) {
    std::lock_guard<std::mutex> context(implementation->contextMutex);
    llvm::Expected<std::unique_ptr<Signature>> made = Signature::create(*this, call, *device);
    if (!made)
      return made.takeError();
    std::unique_lock lock(implementation->guard);
    signature = implementation->signatures.try_emplace(std::move(key), std::move(*made)).first->second.get();
  }
  if (llvm::Error error = checkPacking(call, signature->rowOf(call).sizes[0]))
    return error;
  if (llvm::Error error = checkSlots(*signature, call))
    return error;
  if (llvm::Error error = checkInitialState(*signature, call))
    return error;
  return signature;
}
