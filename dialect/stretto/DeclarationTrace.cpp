//===- DeclarationTrace.cpp - One run over a declaration's requests -------===//

#include "dialect/stretto/DeclarationTrace.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// DeclarationTrace
//===----------------------------------------------------------------------===//

DeclarationTrace::DeclarationTrace(StringRef name, StringRef summary, Location location,
                                   SmallVector<std::string> stateHeads)
    : module(ModuleOp::create(location)), builder(location.getContext()), assumed(std::move(stateHeads)),
      needed(assumed) {
  OpBuilder atModule = OpBuilder::atBlockEnd(module->getBody());
  OperationState state(location, VariantOp::getOperationName());
  state.addAttribute(SymbolTable::getSymbolAttrName(), builder.getStringAttr(name));
  if (!summary.empty())
    state.addAttribute("summary", builder.getStringAttr(summary));
  state.addRegion()->emplaceBlock();
  variant = cast<VariantOp>(atModule.create(state));
  builder.setInsertionPointToEnd(variant.getBlock());
  updateSignature();
}

void DeclarationTrace::updateSignature(TypeRange results) {
  variant.setFunctionType(builder.getFunctionType(variant.getBlock()->getArgumentTypes(), results));
  variant.setArgNamesAttr(builder.getArrayAttr(argumentNames));
  bool anyAttributes =
      llvm::any_of(argumentAttributes, [](Attribute dictionary) { return !cast<DictionaryAttr>(dictionary).empty(); });
  variant.setArgAttrsAttr(anyAttributes ? builder.getArrayAttr(argumentAttributes) : ArrayAttr());
  variant.setOptionsAttr(options.getDictionary(builder.getContext()));
  variant.setAxesAttr(axes.getDictionary(builder.getContext()));
}

Handle DeclarationTrace::add(TracedValue value) {
  values.push_back(std::move(value));
  return values.size() - 1;
}

Value DeclarationTrace::declareState(std::optional<StringRef> name, StringRef first, StringRef second,
                                     Location location) {
  unsigned index = llvm::count_if(variant.getBlock()->getOperations(), llvm::IsaPred<StateOp>);
  if (index == assumed.size()) {
    assumed.push_back(allHeads.str());
    needed.push_back(allHeads.str());
  }
  // What is no axis is refused below.
  auto sizeOf = [](StringRef axis) -> int64_t {
    llvm::Expected<Extent> extent = Extent::parse(axis);
    if (extent)
      return extent->constant().value_or(ShapedType::kDynamic);
    llvm::consumeError(extent.takeError());
    return ShapedType::kDynamic;
  };
  auto emit = [&] { return emitError(location); };
  if (failed(StateType::verify(emit, first, second, assumed[index], sizeOf(first), sizeOf(second), /*reverse=*/false)))
    return {};
  auto type = StateType::get(builder.getContext(), first, second, assumed[index], sizeOf(first), sizeOf(second),
                             /*reverse=*/false);
  std::string ordinal = index ? "S" + std::to_string(index) : "S";
  Value state = StateOp::create(builder, location, type, name.value_or(ordinal));
  stateOf[state] = index;
  return state;
}

LogicalResult DeclarationTrace::needHeads(Value state, ValueRange rows) {
  unsigned index = stateOf.lookup(state);
  for (Value row : rows)
    needed[index] = joinHeads(needed[index], headsOf(row.getType()));
  return success(headsAreFound());
}

LogicalResult DeclarationTrace::finish(ArrayRef<Handle> results, Location location) {
  DeclarationRequest request{"return", Handles(results), {}, location};
  DeclarationCall call(*this, request);
  if (!bodies.empty())
    return call.error() << "the body of a " << bodies.back()->getName().stripDialect() << " is still open";
  if (failed(call.checkOperands()))
    return failure();
  if (results.empty())
    return call.error() << "the declaration returns nothing, expected at least one row";
  SmallVector<Value> rows;
  for (Handle result : results) {
    FailureOr<Value> row = call.row(result);
    if (failed(row))
      return failure();
    rows.push_back(*row);
  }
  YieldOp::create(builder, location, rows);
  updateSignature(ValueRange(rows).getTypes());

  // What was made for a check or a type only.
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*variant.getBlock())))
    if (isOpTriviallyDead(&op))
      op.erase();
  return verify(*module);
}

//===----------------------------------------------------------------------===//
// DeclarationCall: settings
//===----------------------------------------------------------------------===//

DeclarationCall::DeclarationCall(DeclarationTrace &trace, const DeclarationRequest &request)
    : trace(trace), request(request), builder(trace.builder), location(request.location) {}

InFlightDiagnostic DeclarationCall::error() const { return emitError(location) << request.operation << ": "; }

LogicalResult DeclarationCall::checkOperands() const {
  for (Handle operand : request.operands) {
    if (operand >= trace.values.size())
      return error() << "there is no value " << operand;
    Value value = this->value(operand);
    if (value && !value.getParentRegion()->isAncestor(builder.getInsertionBlock()->getParent()))
      return error() << "found " << describe(operand) << " from the body of a table or a look-back that has ended";
  }
  return success();
}

std::optional<StringRef> DeclarationCall::setting(StringRef name) const {
  for (const auto &[key, text] : request.settings)
    if (key == name)
      return text;
  return std::nullopt;
}

FailureOr<StringRef> DeclarationCall::text(StringRef name) const {
  if (std::optional<StringRef> value = setting(name))
    return *value;
  return error() << "'" << name << "' is missing";
}

FailureOr<int64_t> DeclarationCall::integer(StringRef name) const {
  FailureOr<StringRef> spelling = text(name);
  int64_t value;
  if (failed(spelling))
    return failure();
  if (spelling->getAsInteger(10, value))
    return error() << "'" << name << "' is '" << *spelling << "', expected an integer";
  return value;
}

FailureOr<Extent> DeclarationCall::parseSize(StringRef text) const {
  llvm::Expected<Extent> parsed = Extent::parse(text);
  if (!parsed)
    return error() << llvm::toString(parsed.takeError());
  Extent size = *parsed;
  for (const auto &[name, replacement] : trace.synonyms)
    size = size.with(name, replacement);
  return size;
}

FailureOr<Extent> DeclarationCall::size(StringRef name) const {
  FailureOr<StringRef> spelling = text(name);
  return failed(spelling) ? FailureOr<Extent>() : parseSize(*spelling);
}

FailureOr<std::string> DeclarationCall::axis(StringRef name) const {
  FailureOr<StringRef> spelling = text(name);
  if (failed(spelling) || spelling->empty())
    return failed(spelling) ? FailureOr<std::string>() : std::string();
  FailureOr<Extent> extent = parseSize(*spelling);
  if (failed(extent))
    return failure();
  if (std::optional<int64_t> constant = extent->constant(); constant && *constant < 1)
    return error() << "the axis '" << *spelling << "' has size " << *constant << ", expected at least 1";
  return extent->str();
}

FailureOr<std::string> DeclarationCall::heads() const {
  StringRef set = setting("heads").value_or(queryHeads);
  auto emit = [&] { return error(); };
  return failed(RowAttr::verify(emit, "", set)) ? FailureOr<std::string>() : set.str();
}

//===----------------------------------------------------------------------===//
// DeclarationCall: operands
//===----------------------------------------------------------------------===//

std::string stretto::spellNumber(double number) {
  SmallString<32> text;
  APFloat(number).toString(text);
  return text.str().str();
}

static std::string inWords(Type type) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto state = dyn_cast<StateType>(type)) {
    os << "a state '" << state.getFirst() << "' by '" << state.getSecond() << "'";
  } else if (isParam(type)) {
    auto axes = cast<ParamAttr>(cast<RankedTensorType>(type).getEncoding()).getAxes();
    os << "a parameter [";
    llvm::interleaveComma(axes, os, [&](StringAttr axis) { os << axis.getValue(); });
    os << "] of the heads '" << headsOf(type) << "'";
  } else if (isRow(type)) {
    os << (getElementTypeOrSelf(type).isInteger(1) ? "a condition" : axisOf(type).empty() ? "a number" : "a row");
    if (!axisOf(type).empty())
      os << " on the axis '" << axisOf(type) << "'";
    os << " of the heads '" << headsOf(type) << "'";
  } else {
    os << (type.isInteger(1) ? "a condition on real numbers" : "a real number");
  }
  return text;
}

Value DeclarationCall::value(Handle operand) const {
  auto *value = get<Value>(operand);
  return value ? *value : Value();
}

std::string DeclarationCall::describe(Handle operand) const {
  if (auto *number = get<double>(operand))
    return "the number " + spellNumber(*number);
  if (auto *option = get<OptionName>(operand))
    return "the option '" + option->name + "'";
  if (auto *extent = get<Extent>(operand))
    return "the size '" + extent->str() + "'";
  Value value = this->value(operand);
  auto argument = dyn_cast<BlockArgument>(value);
  bool isInput = argument && argument.getOwner() == trace.variant.getBlock();
  return (isInput ? "'" + trace.variant.getArgName(argument.getArgNumber()).str() + "', " : "") +
         inWords(value.getType());
}

bool DeclarationCall::isReal(Handle operand) const {
  Value value = this->value(operand);
  return !value || value.getType().isIntOrFloat();
}

Value DeclarationCall::real(Handle operand) {
  if (auto *number = get<double>(operand))
    return arith::ConstantOp::create(builder, location, builder.getF64FloatAttr(*number));
  if (auto *option = get<OptionName>(operand))
    return OptionOp::create(builder, location, builder.getF64Type(), option->name);
  if (auto *extent = get<Extent>(operand))
    return SizeOp::create(builder, location, builder.getF64Type(), extent->str());
  return value(operand);
}

FailureOr<Value> DeclarationCall::row(Handle operand) {
  FailureOr<Shape> shape = shapeOf(operand);
  return failed(shape) ? FailureOr<Value>() : row(operand, *shape);
}

FailureOr<Value> DeclarationCall::row(Handle operand, const Shape &shape) {
  Value value = this->value(operand);
  Type element = value ? getElementTypeOrSelf(value) : builder.getF64Type();
  RankedTensorType type = rowType(builder.getContext(), shape.axis, shape.heads, ShapedType::kDynamic, element);
  if (value)
    return value.getType() == type ? value : BroadcastOp::create(builder, location, type, value).getResult();
  if (auto *number = get<double>(operand))
    return ConstantOp::create(builder, location, type, builder.getF64FloatAttr(*number)).getResult();
  if (auto *option = get<OptionName>(operand))
    return OptionOp::create(builder, location, type, option->name).getResult();
  return SizeOp::create(builder, location, type, get<Extent>(operand)->str()).getResult();
}

FailureOr<Value> DeclarationCall::rowOn(Handle operand, StringRef axis) {
  FailureOr<Shape> shape = shapeOf(operand);
  if (failed(shape))
    return failure();
  Value value = this->value(operand);
  bool stretches = shape->axis.empty() ? axis != "1" : value && isParam(value.getType());
  if (stretches)
    shape->axis = axis;
  return row(operand, *shape);
}

FailureOr<TypedValue<StateType>> DeclarationCall::state(Handle operand) {
  if (auto state = dyn_cast_if_present<TypedValue<StateType>>(value(operand)))
    return state;
  return error() << "expected a state, found " << describe(operand);
}

FailureOr<Value> DeclarationCall::parameter(Handle operand) {
  Value parameter = value(operand);
  if (parameter && isParam(parameter.getType()))
    return parameter;
  return error() << "expected a parameter, found " << describe(operand);
}

FailureOr<Value> DeclarationCall::time(Handle operand) {
  FailureOr<Value> number = row(operand);
  if (failed(number) || number->getType() == timeType(builder.getContext()))
    return number;
  return error() << "a time is a number that is the same for all heads, found " << describe(operand);
}

//===----------------------------------------------------------------------===//
// DeclarationCall: where operands meet
//===----------------------------------------------------------------------===//

FailureOr<std::optional<Shape>> DeclarationCall::meet(ArrayRef<Handle> operands) {
  std::optional<Shape> shape;
  std::optional<Handle> owner; // whose axis it is
  // A parameter's axis may turn out to have size one; then it gives way to the axis of a row.
  auto isParameter = [&](Handle operand) { return isParam(value(operand).getType()); };
  // A parameter's axis may turn out to have size one; then it gives way to the axis of a row.
  auto yields = [&](Handle operand, StringRef axis) { return isParameter(operand) && !extentOf(axis).constant(); };
  for (Handle operand : operands) {
    if (isReal(operand))
      continue;
    Type type = value(operand).getType();
    StringRef axis;
    if (isa<StateType>(type)) {
      return error() << "expected a row, found " << describe(operand) << "; sl.read gives a row of it";
    } else if (isParam(type)) {
      auto axes = cast<ParamAttr>(cast<RankedTensorType>(type).getEncoding()).getAxes();
      if (axes.size() > 1)
        return error() << "expected a row or a parameter of at most one axis, found " << describe(operand);
      axis = axes.empty() ? StringRef() : axes.front().getValue();
    } else {
      axis = axisOf(type);
    }
    if (!shape)
      shape = Shape{"", headsOf(type).str()};
    shape->heads = joinHeads(shape->heads, headsOf(type));
    if (axis.empty() || axis == shape->axis || (axis == "1" && owner))
      continue;
    if (!owner || shape->axis == "1" || (yields(*owner, shape->axis) && !isParameter(operand))) {
      owner = operand;
      shape->axis = axis;
    } else if (isParameter(*owner) || !yields(operand, axis)) {
      return error() << "the axes differ: " << describe(*owner) << ", and " << describe(operand);
    }
  }
  return shape;
}

FailureOr<Shape> DeclarationCall::shapeOf(Handle operand) {
  FailureOr<std::optional<Shape>> shape = meet(operand);
  return failed(shape) ? FailureOr<Shape>() : shape->value_or(Shape{"", allHeads.str()});
}

FailureOr<SmallVector<Value>> DeclarationCall::rows(ArrayRef<Handle> operands) {
  FailureOr<std::optional<Shape>> shape = meet(operands);
  if (failed(shape))
    return failure();
  SmallVector<Value> rows;
  for (Handle operand : operands) {
    FailureOr<Value> value = row(operand, shape->value_or(Shape{"", allHeads.str()}));
    if (failed(value))
      return failure();
    rows.push_back(*value);
  }
  return rows;
}

FailureOr<SmallVector<Value>> DeclarationCall::alike(ArrayRef<Handle> operands) {
  if (!llvm::all_of(operands, [&](Handle operand) { return isReal(operand); }))
    return rows(operands);
  return llvm::map_to_vector(operands, [&](Handle operand) { return real(operand); });
}

FailureOr<SmallVector<Value>> DeclarationCall::sameHeads(ArrayRef<Handle> operands) {
  SmallVector<Shape> shapes;
  std::string heads = allHeads.str();
  for (Handle operand : operands) {
    FailureOr<Shape> shape = shapeOf(operand);
    if (failed(shape))
      return failure();
    heads = joinHeads(heads, shape->heads);
    shapes.push_back(*shape);
  }
  SmallVector<Value> rows;
  for (auto [operand, shape] : llvm::zip_equal(operands, shapes)) {
    FailureOr<Value> value = row(operand, Shape{shape.axis, heads});
    if (failed(value))
      return failure();
    rows.push_back(*value);
  }
  return rows;
}

RankedTensorType DeclarationCall::rowOfSize(const Extent &size, StringRef heads) {
  return rowType(builder.getContext(), size == Extent(1) ? "" : size.str(), heads);
}

FailureOr<Handles> DeclarationCall::results(Operation *op) {
  if (failed(verify(op)))
    return failure();
  Handles handles;
  for (Value result : op->getResults())
    handles.push_back(trace.add(result));
  return handles;
}
