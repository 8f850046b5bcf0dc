//===- VariantOp.cpp - The declaration: syntax and verification -----------===//

#include "dialect/stretto/Sizes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace stretto;

DictionaryAttr VariantOp::getArgAttrDict(unsigned index) {
  if (ArrayAttr all = getArgAttrsAttr())
    return cast<DictionaryAttr>(all[index]);
  return DictionaryAttr::get(getContext());
}

SmallVector<unsigned> VariantOp::getDifferentiableRows() {
  SmallVector<unsigned> rows;
  auto isWanted = [&](unsigned index) {
    return !getWantedAttr() || llvm::is_contained(getWantedAttr(), getArgNames()[index]);
  };
  for (auto [index, type] : llvm::enumerate(getType().getInputs()))
    if (isRow(type) && getElementTypeOrSelf(type).isF64() && isWanted(index))
      rows.push_back(index);
  return rows;
}

void VariantOp::getAsmBlockArgumentNames(Region &, OpAsmSetValueNameFn setName) {
  for (auto [argument, name] : llvm::zip(getBody().getArguments(), getArgNames()))
    setName(argument, cast<StringAttr>(name).getValue());
}

//===----------------------------------------------------------------------===//
// Syntax
//
//   stretto.variant @name(%q: !K, ...) -> !V options(scale = "K**-0.5") axes(N = "2*modes + 1") attributes {...} {...}
//===----------------------------------------------------------------------===//

/// `keyword(name = value, ...)`, or nothing.
static ParseResult parseSettings(OpAsmParser &parser, StringRef keyword, DictionaryAttr &settings) {
  NamedAttrList list;
  if (succeeded(parser.parseOptionalKeyword(keyword))) {
    auto parseSetting = [&]() -> ParseResult {
      std::string name;
      Attribute value;
      SMLoc location = parser.getCurrentLocation();
      if (parser.parseKeywordOrString(&name) || parser.parseEqual() || parser.parseAttribute(value))
        return failure();
      if (list.get(name))
        return parser.emitError(location) << "'" << name << "' is set twice";
      list.append(name, value);
      return success();
    };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseSetting))
      return failure();
  }
  settings = list.getDictionary(parser.getContext());
  return success();
}

static void printSettings(OpAsmPrinter &printer, StringRef keyword, DictionaryAttr settings) {
  if (settings.empty())
    return;
  printer << " " << keyword << "(";
  llvm::interleaveComma(settings, printer, [&](NamedAttribute setting) {
    printer.printKeywordOrString(setting.getName());
    printer << " = ";
    // The type of a number is f64 always; `1.0e-10` reads better without it. Infinity has no such spelling.
    auto number = dyn_cast<FloatAttr>(setting.getValue());
    if (number && number.getType().isF64() && number.getValue().isFinite())
      printer.printAttributeWithoutType(number);
    else
      printer << setting.getValue();
  });
  printer << ")";
}

ParseResult VariantOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(), result.attributes))
    return failure();

  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseArgumentList(arguments, AsmParser::Delimiter::Paren, /*allowType=*/true, /*allowAttrs=*/true))
    return failure();
  SmallVector<Type> inputs, outputs;
  SmallVector<Attribute> names, attributes;
  bool anyAttributes = false;
  for (OpAsmParser::Argument &argument : arguments) {
    inputs.push_back(argument.type);
    names.push_back(builder.getStringAttr(argument.ssaName.name.drop_front()));
    attributes.push_back(argument.attrs ? argument.attrs : builder.getDictionaryAttr({}));
    anyAttributes |= argument.attrs && !argument.attrs.empty();
  }
  if (parser.parseArrowTypeList(outputs))
    return failure();
  result.addAttribute(getFunctionTypeAttrName(result.name), TypeAttr::get(builder.getFunctionType(inputs, outputs)));
  result.addAttribute(getArgNamesAttrName(result.name), builder.getArrayAttr(names));
  if (anyAttributes)
    result.addAttribute(getArgAttrsAttrName(result.name), builder.getArrayAttr(attributes));

  DictionaryAttr options, axes;
  if (parseSettings(parser, "options", options) || parseSettings(parser, "axes", axes))
    return failure();
  result.addAttribute(getOptionsAttrName(result.name), options);
  result.addAttribute(getAxesAttrName(result.name), axes);
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  return parser.parseRegion(*result.addRegion(), arguments);
}

void VariantOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << "(";
  for (auto [index, argument] : llvm::enumerate(getBody().getArguments())) {
    printer << (index ? ", " : "");
    printer.printRegionArgument(argument, getArgAttrDict(index).getValue());
  }
  printer << ")";
  printer.printArrowTypeList(getType().getResults());
  printSettings(printer, "options", getOptions());
  printSettings(printer, "axes", getAxes());
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {getSymNameAttrName(), getFunctionTypeAttrName(), getArgNamesAttrName(),
                                            getArgAttrsAttrName(), getOptionsAttrName(), getAxesAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

/// A declaration is small. Beyond these limits a file is a mistake or an attack, and passes that recurse over it
/// could exhaust time or stack.
static constexpr unsigned maximalOperations = 4096, maximalNesting = 8, maximalSettings = 256;

static bool isIdentifier(StringRef name) {
  return !name.empty() && (llvm::isAlpha(name.front()) || name.front() == '_') &&
         llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; });
}

/// The names that an expression mentions. Their values are known later; here every name counts as 1.
static llvm::Expected<SmallVector<std::string>> namesIn(StringRef expression) {
  SmallVector<std::string> names;
  llvm::Expected<double> value = evaluateExpression(expression, [&](StringRef name) {
    names.push_back(name.str());
    return 1.0;
  });
  if (!value)
    return value.takeError();
  return names;
}

static LogicalResult verifyArguments(VariantOp variant) {
  FunctionType type = variant.getType();
  size_t names = variant.getArgNames().size();
  if (names != type.getNumInputs())
    return variant.emitOpError("[variant_c1] has ")
           << type.getNumInputs() << " arguments and " << names << " argument names";
  if (ArrayAttr attributes = variant.getArgAttrsAttr(); attributes && attributes.size() != type.getNumInputs())
    return variant.emitOpError("[variant_c1] has ")
           << type.getNumInputs() << " arguments and attributes of " << attributes.size();
  for (Type input : type.getInputs())
    if (!isRow(input) && !isParam(input))
      return variant.emitOpError("[variant_c1] an argument has type ") << input << ", expected a row or a parameter";
  for (Type output : type.getResults())
    if (!isRow(output))
      return variant.emitOpError("[variant_c1] a result has type ") << output << ", expected a row";
  llvm::StringSet<> seen;
  for (StringAttr name : variant.getArgNames().getAsRange<StringAttr>()) {
    if (!isIdentifier(name))
      return variant.emitOpError("[variant_c2] the argument name ") << name << " is not an identifier";
    if (!seen.insert(name.getValue()).second)
      return variant.emitOpError("[variant_c2] two arguments have the name ") << name;
  }
  TypeRange found = variant.getBody().getArgumentTypes();
  if (!llvm::equal(found, type.getInputs()))
    return variant.emitOpError("[variant_c4] the body's arguments have types (")
           << found << "), expected (" << type.getInputs() << ")";
  return success();
}

LogicalResult VariantOp::verify() {
  if (failed(verifyArguments(*this)))
    return failure();
  if (size_t settings = getOptions().size() + getAxes().size(); settings > maximalSettings)
    return emitOpError("[variant_c6] has ") << settings << " options and axes, expected at most " << maximalSettings;

  for (NamedAttribute option : getOptions()) {
    Attribute value = option.getValue();
    if (auto expression = dyn_cast<StringAttr>(value)) {
      if (auto names = namesIn(expression); !names)
        return emitOpError("[variant_c3] the default of the option ")
               << option.getName() << ": " << llvm::toString(names.takeError());
    } else if (auto number = dyn_cast<FloatAttr>(value);
               !isa<BoolAttr, ChoiceAttr>(value) && !(number && number.getType().isF64())) {
      return emitOpError("[variant_c3] the default of the option ")
             << option.getName() << " is " << value
             << ", expected a number of type f64, a condition, a choice or an expression";
    }
  }
  for (NamedAttribute axis : getAxes()) {
    if (!isIdentifier(axis.getName()))
      return emitOpError("[variant_c5] the axis name ") << axis.getName() << " is not an identifier";
    auto expression = dyn_cast<StringAttr>(axis.getValue());
    if (!expression)
      return emitOpError("[variant_c5] the size of the axis ")
             << axis.getName() << " is " << axis.getValue() << ", expected an expression in quotes";
    if (auto names = namesIn(expression); !names)
      return emitOpError("[variant_c5] the size of the axis ")
             << axis.getName() << ": " << llvm::toString(names.takeError());
  }
  for (NamedAttribute group : getGroupAttr() ? getGroupAttr() : DictionaryAttr::get(getContext()))
    if (auto ratio = dyn_cast<IntegerAttr>(group.getValue());
        !isIdentifier(group.getName()) || !ratio || !ratio.getType().isInteger(64) || ratio.getInt() < 1)
      return emitOpError("[variant_c10] the group of the head set ")
             << group.getName() << " is " << group.getValue() << ", expected a name and a positive i64";
  if (getGradient()) {
    SmallVector<Type> rows;
    for (unsigned row : getDifferentiableRows())
      rows.push_back(getType().getInput(row));
    ArrayRef<Type> results = getType().getResults();
    bool isOfWanted = getWantedAttr() != nullptr;
    bool fits = isOfWanted ? rows.size() == getWantedAttr().size() && ArrayRef(rows) == results
                           : rows.size() >= results.size() && ArrayRef(rows).take_front(results.size()) == results;
    if (!fits)
      return emitOpError("[variant_c11] a gradient has results of the types ")
             << TypeRange(results) << ", expected those of "
             << (isOfWanted ? "the rows that are wanted" : "its first rows") << ": " << TypeRange(rows);
  }
  if (std::optional<uint64_t> saved = getSaved()) {
    if (getGradient() && *saved > getType().getNumInputs())
      return emitOpError("[variant_c12] takes ")
             << *saved << " saved rows of " << getType().getNumInputs() << " arguments, expected no more than these";
    if (!getGradient() && *saved >= getType().getNumResults())
      return emitOpError("[variant_c12] saves ")
             << *saved << " of " << getType().getNumResults() << " results, expected fewer";
  }
  return success();
}

/// The closed list: what both back ends can compile.
static bool isAccepted(Operation *op) {
  if (isa_and_present<StrettoDialect>(op->getDialect()))
    return !isa<VariantOp>(op);
  return isa<arith::ConstantOp, arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::RemFOp,
             arith::NegFOp, arith::MaximumFOp, arith::MinimumFOp, arith::CmpFOp, arith::SelectOp, arith::AndIOp,
             arith::OrIOp, arith::XOrIOp, math::ExpOp, math::Exp2Op, math::LogOp, math::Log1pOp, math::SqrtOp,
             math::RsqrtOp, math::AbsFOp, math::TanhOp, math::SinOp, math::CosOp, math::FloorOp, math::RoundEvenOp,
             math::PowFOp, scf::IfOp, scf::YieldOp>(op);
}

static LogicalResult verifyOperation(VariantOp variant, Operation *op) {
  unsigned nesting = 0;
  for (Operation *parent = op->getParentOp(); parent != variant; parent = parent->getParentOp())
    ++nesting;
  if (nesting > maximalNesting)
    return op->emitOpError("[variant_c6] is nested ") << nesting << " deep, expected at most " << maximalNesting;
  if (!isAccepted(op))
    return op->emitOpError("[variant_c6] is not on the closed list of operations that a declaration may use");
  for (Type type : op->getResultTypes())
    if (!isRow(type) && !isParam(type) && !isa<StateType>(type) && !type.isF64() && !type.isInteger(1))
      return op->emitOpError("[variant_c7] a value has type ")
             << type << ", expected a row, a parameter, a state, f64 or i1";
  return success();
}

/// Two states of one program have two names; states of alternatives may share one.
static LogicalResult verifyName(StateOp state, llvm::StringMap<SmallVector<StateOp>> &states) {
  SmallVector<StateOp> &namesakes = states[state.getName()];
  for (StateOp other : namesakes) {
    if (insideMutuallyExclusiveRegions(state, other))
      continue;
    InFlightDiagnostic diagnostic = state.emitOpError("[state_c1] another state has the name '")
                                    << state.getName() << "'";
    diagnostic.attachNote(other.getLoc()) << "the other state";
    return diagnostic;
  }
  namesakes.push_back(state);
  return success();
}

namespace {

/// Follows the chain of changes of one state, through both branches of conditions.
class StateChainVerifier {
public:
  explicit StateChainVerifier(StateOp state) : state(state) {}

  LogicalResult verify() {
    FailureOr<OpOperand *> end = follow(state, state->getBlock());
    if (succeeded(end) && *end)
      return error((*end)->getOwner(), "state_c2", "leaves the branch in which it comes about");
    return failure(failed(end));
  }

private:
  InFlightDiagnostic error(Operation *op, StringRef id, const Twine &what) {
    return op->emitOpError("[") << id << "] the state '" << state.getName() << "' " << what;
  }

  /// The operation in `block` that is or holds `op`.
  static Operation *holder(Operation *op, Block *block) { return block->findAncestorOpInBlock(*op); }

  /// Follows the chain from `value` on inside of `block`. Returns where a yield hands it on, or null where it ends.
  FailureOr<OpOperand *> follow(Value value, Block *block) {
    while (true) {
      OpOperand *change = nullptr;
      for (OpOperand &use : value.getUses()) {
        Operation *user = use.getOwner(), *here = holder(user, block);
        if (!here || isa<ReadOp, PairOp>(user))
          continue;
        if (!isa<DecayOp, WriteOp, scf::YieldOp>(user))
          return error(user, "state_c3",
                       "is used by something other than a decay, a write, a read, a pair or an scf.if");
        Operation *other = change ? holder(change->getOwner(), block) : nullptr;
        if (other && (here != other || here == user)) {
          Operation *first = change->getOwner(), *second = user;
          if (here->isBeforeInBlock(other))
            std::swap(first, second);
          InFlightDiagnostic diagnostic = error(second, "state_c2", "is changed twice; expected a chain");
          diagnostic.attachNote(first->getLoc()) << "the other change";
          return diagnostic;
        }
        change = &use;
      }
      if (!change)
        return static_cast<OpOperand *>(nullptr);
      Operation *here = holder(change->getOwner(), block);
      if (isa<scf::YieldOp>(here))
        return change;
      if (isa<DecayOp, WriteOp>(here)) {
        value = here->getResult(0);
        continue;
      }
      FailureOr<Value> result = throughBranches(value, here);
      if (failed(result))
        return failure();
      value = *result;
    }
  }

  /// The result of the conditional `op` as which both branches yield what they make of `value`.
  FailureOr<Value> throughBranches(Value value, Operation *op) {
    std::optional<unsigned> result;
    for (Region &region : op->getRegions()) {
      FailureOr<OpOperand *> end = region.empty() ? static_cast<OpOperand *>(nullptr) : follow(value, &region.front());
      if (failed(end))
        return failure();
      if (!*end || (result && *result != (*end)->getOperandNumber()))
        return error(op, "state_c2",
                     "is changed under a condition; expected both branches to yield it as the same result");
      result = (*end)->getOperandNumber();
    }
    return Value(op->getResult(*result));
  }

  StateOp state;
};

/// The sizes that a variant knows: names in the types of its values and in `axes`.
class KnownSizes {
public:
  explicit KnownSizes(VariantOp variant) : variant(variant) {
    for (NamedAttribute axis : variant.getAxes())
      names.insert(axis.getName());
  }

  bool contains(StringRef name) const { return names.contains(name); }

  LogicalResult add(Type type) {
    bool valid = true;
    if (seen.insert(type).second)
      forEachAxis(type, [&](StringRef axis, int64_t size) { valid = valid && succeeded(add(axis, size)); });
    return success(valid);
  }

private:
  LogicalResult add(StringRef axis, int64_t size) {
    for (const std::string &name : extentOf(axis).names())
      names.insert(name);
    if (ShapedType::isDynamic(size))
      return success();
    auto [known, isNew] = dimensions.try_emplace(axis, size);
    if (isNew || known->second == size)
      return success();
    return variant.emitOpError("[variant_c8] the axis '")
           << axis << "' has dimension " << known->second << " in one place and " << size << " in another";
  }

  VariantOp variant;
  llvm::StringSet<> names;
  llvm::StringMap<int64_t> dimensions;
  llvm::SmallPtrSet<Type, 16> seen;
};

} // namespace

/// The sizes in the text of a `stretto.size` or a `stretto.slice` are those of the variant.
static LogicalResult verifySizesKnown(Operation *op, const KnownSizes &sizes) {
  auto size = dyn_cast<SizeOp>(op);
  auto slice = dyn_cast<SliceOp>(op);
  if (!size && !slice)
    return success();
  for (const std::string &name : llvm::cantFail(Extent::parse(size ? size.getExtent() : slice.getOffset())).names())
    if (!sizes.contains(name))
      return op->emitOpError(size ? "[size_c2] '" : "[slice_c4] '") << name << "' is not a size of the variant";
  return success();
}

/// The expressions of options and axes use what is known and do not go round in circles.
static LogicalResult verifySettings(VariantOp variant, const KnownSizes &sizes) {
  for (NamedAttribute option : variant.getOptions())
    if (sizes.contains(option.getName()))
      return variant.emitOpError("[variant_c3] the option ") << option.getName() << " has the name of a size";

  // Names that are expressions over other names, until those have been found to have a value.
  llvm::MapVector<StringAttr, SmallVector<std::string>> open;
  for (DictionaryAttr settings : {variant.getOptions(), variant.getAxes()})
    for (NamedAttribute setting : settings)
      if (auto expression = dyn_cast<StringAttr>(setting.getValue()))
        open[setting.getName()] = llvm::cantFail(namesIn(expression));
  for (const auto &[setting, names] : open)
    for (const std::string &name : names)
      if (!sizes.contains(name) && !isa_and_present<FloatAttr, StringAttr>(variant.getOptions().get(name)))
        return variant.emitOpError("[variant_c9] the expression of ")
               << setting << " uses '" << name << "', which is neither a size nor a numeric option";
  auto isOpen = [&](StringRef name) { return open.contains(StringAttr::get(variant.getContext(), name)); };
  for (size_t before = 0; before != open.size();) {
    before = open.size();
    open.remove_if([&](const auto &setting) { return llvm::none_of(setting.second, isOpen); });
  }
  if (!open.empty())
    return variant.emitOpError("[variant_c9] the expression of ") << open.front().first << " depends on itself";
  return success();
}

LogicalResult VariantOp::verifyRegions() {
  Block &block = *getBlock();
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield || !llvm::equal(yield.getOperandTypes(), getType().getResults()))
    return emitOpError("[variant_c4] the body does not end with a stretto.yield of types (")
           << getType().getResults() << ")";

  unsigned operations = 0;
  KnownSizes sizes(*this);
  llvm::StringMap<SmallVector<StateOp>> states;
  for (Type type : getType().getInputs())
    if (failed(sizes.add(type)))
      return failure();
  WalkResult result = getBody().walk([&](Operation *op) -> WalkResult {
    if (++operations > maximalOperations)
      return emitOpError("[variant_c6] holds more than ") << maximalOperations << " operations";
    if (failed(verifyOperation(*this, op)))
      return failure();
    for (Type type : op->getResultTypes())
      if (failed(sizes.add(type)))
        return failure();
    auto state = dyn_cast<StateOp>(op);
    return state ? verifyName(state, states) : success();
  });
  if (result.wasInterrupted())
    return failure();
  result = getBody().walk([&](Operation *op) -> WalkResult {
    auto state = dyn_cast<StateOp>(op);
    return state ? StateChainVerifier(state).verify() : verifySizesKnown(op, sizes);
  });
  return failure(result.wasInterrupted() || failed(verifySettings(*this, sizes)));
}
