//===- DeclarationSignature.cpp - Arguments, options and axes of a traced declaration -===//

#include "dialect/stretto/DeclarationTrace.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;

/// The type of `row` (`axis` = "K", or empty) or `parameter` (`axes` = "D, F").
static FailureOr<Type> argumentType(DeclarationCall &call) {
  FailureOr<std::string> heads = call.heads();
  if (failed(heads))
    return failure();
  MLIRContext *context = call.builder.getContext();
  if (call.request.operation == "row") {
    FailureOr<std::string> axis = call.axis("axis");
    return failed(axis) ? FailureOr<Type>() : Type(rowType(context, *axis, *heads));
  }
  FailureOr<StringRef> list = call.text("axes");
  if (failed(list))
    return failure();
  SmallVector<StringRef> spellings;
  list->split(spellings, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  SmallVector<StringAttr> axes;
  SmallVector<int64_t> shape;
  for (StringRef spelling : spellings) {
    FailureOr<Extent> size = call.parseSize(spelling);
    if (failed(size))
      return failure();
    axes.push_back(call.builder.getStringAttr(size->str()));
    shape.push_back(size->constant().value_or(ShapedType::kDynamic));
  }
  auto emit = [&] { return call.error(); };
  if (failed(ParamAttr::verify(emit, axes, *heads)))
    return failure();
  return Type(RankedTensorType::get(shape, call.builder.getF64Type(), ParamAttr::get(context, axes, *heads)));
}

/// An argument. Settings that start with `stretto.` are kept as its attributes.
FailureOr<Handles> stretto::declareArgument(DeclarationCall &call) {
  FailureOr<StringRef> name = call.text("name");
  FailureOr<Type> type = argumentType(call);
  if (failed(name) || failed(type))
    return failure();
  // Arguments are printed by name.
  if (!llvm::all_of(*name, [](char c) { return llvm::isAlnum(c) || c == '_'; }))
    return call.error() << "'" << *name << "' as the name of an argument, expected letters of ASCII, digits and '_'";
  NamedAttrList attributes;
  for (const auto &[key, text] : call.request.settings) {
    if (!StringRef(key).starts_with("stretto."))
      continue;
    Attribute value = text.empty() ? call.builder.getUnitAttr() : parseAttribute(text, call.builder.getContext());
    if (!value)
      return call.error() << "'" << key << "' of the argument '" << *name << "' is '" << text << "'";
    attributes.set(key, value);
  }
  DeclarationTrace &trace = call.trace;
  trace.argumentNames.push_back(call.builder.getStringAttr(*name));
  trace.argumentAttributes.push_back(attributes.getDictionary(call.builder.getContext()));
  Value argument = trace.variant.getBlock()->addArgument(*type, call.location);
  trace.updateSignature();
  return call.one(argument);
}

/// An option that is a number, by its `default`: a number or an expression.
FailureOr<Handles> stretto::declareOption(DeclarationCall &call) {
  FailureOr<StringRef> name = call.text("name"), spelling = call.text("default");
  if (failed(name) || failed(spelling))
    return failure();
  double number;
  bool isNumber = !spelling->getAsDouble(number);
  call.trace.options.set(*name, isNumber ? Attribute(call.builder.getF64FloatAttr(number))
                                         : Attribute(call.builder.getStringAttr(*spelling)));
  call.trace.updateSignature();
  return call.one(OptionName{name->str()});
}

/// A real number that is computed from numbers, options and sizes alone, as an expression.
static FailureOr<std::string> expressionOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return failure();
  auto combine = [&](StringRef sign) -> FailureOr<std::string> {
    FailureOr<std::string> left = expressionOf(op->getOperand(0)), right = expressionOf(op->getOperand(1));
    if (failed(left) || failed(right))
      return failure();
    return ("(" + Twine(*left) + " " + sign + " " + *right + ")").str();
  };
  return llvm::TypeSwitch<Operation *, FailureOr<std::string>>(op)
      .Case([](arith::ConstantOp constant) -> FailureOr<std::string> {
        auto number = dyn_cast<FloatAttr>(constant.getValue());
        return number ? spellNumber(number.getValueAsDouble()) : FailureOr<std::string>();
      })
      .Case([](OptionOp option) { return option.getName().str(); })
      .Case([](SizeOp size) { return ("(" + size.getExtent() + ")").str(); })
      .Case([&](arith::AddFOp) { return combine("+"); })
      .Case([&](arith::SubFOp) { return combine("-"); })
      .Case([&](arith::MulFOp) { return combine("*"); })
      .Case([&](arith::DivFOp) { return combine("/"); })
      .Case([&](math::PowFOp) { return combine("**"); })
      .Default([](Operation *) { return failure(); });
}

/// Binds the named size `name` to an expression over options, which sizes it then; or to another size, for which it is
/// another name then. The result is the size.
FailureOr<Handles> stretto::declareAxis(DeclarationCall &call) {
  FailureOr<StringRef> name = call.text("name");
  if (failed(name))
    return failure();
  FailureOr<Extent> named = call.parseSize(*name);
  if (failed(named))
    return failure();
  if (named->name() != name->str())
    return call.error() << "'" << *name << "' cannot be bound, expected a name that is not bound yet";
  if (auto *size = call.get<Extent>(call.operand(0))) {
    call.trace.synonyms[name->str()] = *size;
    return call.one(*size);
  }
  FailureOr<std::string> expression = failure();
  if (call.isReal(call.operand(0)))
    expression = expressionOf(call.real(call.operand(0)));
  if (failed(expression))
    return call.error() << "the size of '" << *name << "' is " << call.describe(call.operand(0))
                        << ", expected arithmetic on numbers, options and sizes";
  // The normal form where there is one.
  llvm::Expected<Extent> normal = Extent::parse(*expression);
  if (normal)
    *expression = normal->str();
  else
    llvm::consumeError(normal.takeError());
  call.trace.axes.set(*name, call.builder.getStringAttr(*expression));
  call.trace.updateSignature();
  return call.one(*named);
}
