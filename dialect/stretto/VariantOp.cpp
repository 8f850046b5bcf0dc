//===- VariantOp.cpp - The declaration: syntax and verification -----------===//

#include "dialect/stretto/StrettoDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace stretto;

DictionaryAttr VariantOp::getArgAttrDict(unsigned index) {
  if (ArrayAttr all = getArgAttrsAttr())
    return cast<DictionaryAttr>(all[index]);
  return DictionaryAttr::get(getContext());
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
    // The type of a number is f64 always; `1.0e-10` reads better without it.
    if (auto number = dyn_cast<FloatAttr>(setting.getValue()); number && number.getType().isF64())
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
  if (parser.parseArrow())
    return failure();
  if (succeeded(parser.parseOptionalLParen())) {
    if (parser.parseTypeList(outputs) || parser.parseRParen())
      return failure();
  } else if (parser.parseType(outputs.emplace_back())) {
    return failure();
  }
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
  printer << ") -> ";
  ArrayRef<Type> outputs = getType().getResults();
  if (outputs.size() == 1)
    printer << outputs.front();
  else
    printer << "(" << outputs << ")";
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
static constexpr unsigned maximalOperations = 4096, maximalNesting = 8;

LogicalResult VariantOp::verify() {
  FunctionType type = getType();
  if (getArgNames().size() != type.getNumInputs() || (getArgAttrsAttr() && getArgAttrsAttr().size() != type.getNumInputs()))
    return emitOpError("[variant_c1] has ") << type.getNumInputs() << " arguments and " << getArgNames().size() << " names";
  for (Type input : type.getInputs())
    if (!isRow(input) && !isParam(input))
      return emitOpError("[variant_c1] an argument has type ") << input << ", expected a row or a parameter";
  for (Type output : type.getResults())
    if (!isRow(output))
      return emitOpError("[variant_c1] a result has type ") << output << ", expected a row";
  llvm::StringSet<> names;
  for (Attribute name : getArgNames())
    if (!names.insert(cast<StringAttr>(name).getValue()).second)
      return emitOpError("[variant_c2] two arguments have the name ") << name;

  for (NamedAttribute option : getOptions()) {
    if (auto expression = dyn_cast<StringAttr>(option.getValue())) {
      // Names are looked up when sizes are known; here every name counts as 1.
      llvm::Expected<double> value = evaluateExpression(expression, [](StringRef) { return 1.0; });
      if (!value)
        return emitOpError("[variant_c3] the default of the option '")
               << option.getName().getValue() << "': " << llvm::toString(value.takeError());
    } else if (auto number = dyn_cast<FloatAttr>(option.getValue()); number && number.getType().isF64()) {
      continue;
    } else if (!isa<BoolAttr, ChoiceAttr>(option.getValue())) {
      return emitOpError("[variant_c3] the default of the option '")
             << option.getName().getValue() << "' is " << option.getValue()
             << ", expected a number of type f64, a condition, a choice or an expression";
    }
  }
  for (NamedAttribute axis : getAxes()) {
    auto expression = dyn_cast<StringAttr>(axis.getValue());
    llvm::Expected<double> value =
        expression ? evaluateExpression(expression, [](StringRef) { return 1.0; })
                   : llvm::createStringError(llvm::inconvertibleErrorCode(), "expected an expression in quotes");
    if (!value)
      return emitOpError("[variant_c5] the size of the axis '")
             << axis.getName().getValue() << "': " << llvm::toString(value.takeError());
  }
  return success();
}

/// The closed list: what both back ends can compile.
static bool isAccepted(Operation *op) {
  if (isa<StrettoDialect>(op->getDialect()))
    return !isa<VariantOp>(op);
  return isa<arith::ConstantOp, arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::RemFOp,
             arith::NegFOp, arith::MaximumFOp, arith::MinimumFOp, arith::CmpFOp, arith::SelectOp, arith::AndIOp,
             arith::OrIOp, arith::XOrIOp, math::ExpOp, math::Exp2Op, math::LogOp, math::Log1pOp, math::SqrtOp,
             math::RsqrtOp, math::AbsFOp, math::TanhOp, math::SinOp, math::CosOp, math::FloorOp, math::RoundEvenOp,
             math::PowFOp, scf::IfOp, scf::YieldOp>(op);
}

LogicalResult VariantOp::verifyRegions() {
  Block &block = *getBlock();
  if (!llvm::equal(block.getArgumentTypes(), getType().getInputs()))
    return emitOpError("[variant_c4] the body's arguments have types ")
           << block.getArgumentTypes() << ", expected " << TypeRange(getType().getInputs());
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield || !llvm::equal(yield.getOperandTypes(), getType().getResults()))
    return emitOpError("[variant_c4] the body does not end with a stretto.yield of types ")
           << TypeRange(getType().getResults());

  unsigned operations = 0;
  llvm::StringSet<> states;
  WalkResult result = getBody().walk([&](Operation *op) -> WalkResult {
    unsigned nesting = 0;
    for (Operation *parent = op->getParentOp(); parent != getOperation(); parent = parent->getParentOp())
      ++nesting;
    if (++operations > maximalOperations || nesting > maximalNesting)
      return emitOpError("[variant_c6] holds more than ")
             << maximalOperations << " operations or is nested deeper than " << maximalNesting;
    if (!isAccepted(op))
      return op->emitOpError("[variant_c6] is not on the closed list of operations that a declaration may use");
    if (auto state = dyn_cast<StateOp>(op); state && !states.insert(state.getName()).second)
      return state.emitOpError("[state_c1] another state has the name '") << state.getName() << "'";
    for (Value value : op->getResults()) {
      if (!isa<StateType>(value.getType()))
        continue;
      Operation *change = nullptr;
      for (Operation *user : value.getUsers()) {
        if (isa<ReadOp>(user))
          continue;
        if (change && !isa<scf::YieldOp>(user))
          return user->emitOpError("[state_c2] changes a state value that is changed elsewhere; a state is a chain");
        change = user;
      }
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}
