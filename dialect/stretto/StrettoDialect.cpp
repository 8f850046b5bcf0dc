//===- StrettoDialect.cpp - The token-level dialect: types and attributes -===//

#include "dialect/stretto/StrettoDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FoldInterfaces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;

#include "dialect/stretto/StrettoDialect.cpp.inc"
#include "dialect/stretto/StrettoEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/stretto/StrettoAttributes.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/stretto/StrettoTypes.cpp.inc"

//===----------------------------------------------------------------------===//
// Axes and head sets
//===----------------------------------------------------------------------===//

bool stretto::isRow(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa_and_present<RowAttr>(tensor.getEncoding());
}

bool stretto::isParam(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa_and_present<ParamAttr>(tensor.getEncoding());
}

StringRef stretto::axisOf(Type row) { return cast<RowAttr>(cast<RankedTensorType>(row).getEncoding()).getAxis(); }

StringRef stretto::headsOf(Type type) {
  if (auto state = dyn_cast<StateType>(type))
    return state.getHeads();
  Attribute encoding = cast<RankedTensorType>(type).getEncoding();
  if (auto row = dyn_cast<RowAttr>(encoding))
    return row.getHeads();
  return cast<ParamAttr>(encoding).getHeads();
}

RankedTensorType stretto::rowType(MLIRContext *context, StringRef axis, StringRef heads, int64_t size, Type element) {
  if (!element)
    element = Float64Type::get(context);
  auto encoding = RowAttr::get(context, axis, heads);
  if (axis.empty())
    return RankedTensorType::get({}, element, encoding);
  if (std::optional<int64_t> constant = extentOf(axis).constant())
    size = *constant;
  return RankedTensorType::get({size}, element, encoding);
}

RankedTensorType stretto::timeType(MLIRContext *context) { return rowType(context, "", allHeads); }

RankedTensorType stretto::withHeads(RankedTensorType row, StringRef heads) {
  return RankedTensorType::get(row.getShape(), row.getElementType(),
                               RowAttr::get(row.getContext(), axisOf(row), heads));
}

RankedTensorType stretto::withoutAxis(RankedTensorType row) {
  return rowType(row.getContext(), "", headsOf(row), ShapedType::kDynamic, row.getElementType());
}

std::string stretto::joinHeads(StringRef a, StringRef b) {
  SmallVector<StringRef> sets;
  a.split(sets, '|');
  b.split(sets, '|');
  llvm::sort(sets);
  sets.erase(llvm::unique(sets), sets.end());
  auto drop = [&](StringRef set) {
    if (sets.size() > 1)
      llvm::erase(sets, set);
  };
  drop(allHeads);
  drop(keyValueHeads);
  return llvm::join(sets, "|");
}

Extent stretto::extentOf(StringRef axis) { return llvm::cantFail(Extent::parse(axis)); }

Extent stretto::widthOf(Type row) { return axisOf(row).empty() ? Extent(1) : extentOf(axisOf(row)); }

static bool isHeadSet(StringRef heads) {
  SmallVector<StringRef> sets;
  heads.split(sets, '|');
  for (StringRef set : sets) {
    if (set == allHeads)
      continue;
    if (set.empty() || !llvm::isAlpha(set.front()) ||
        !llvm::all_of(set, [](char c) { return llvm::isAlnum(c) || c == '_'; }))
      return false;
  }
  return joinHeads(heads, heads) == heads;
}

static LogicalResult verifyHeads(function_ref<InFlightDiagnostic()> emitError, StringRef heads) {
  if (isHeadSet(heads))
    return success();
  return emitError() << "[heads_c1] '" << heads
                     << "' is no head set; expected a name, \"1\", or names joined by '|' in "
                     << "alphabetical order, without \"1\" or \"G\" among them";
}

static LogicalResult verifyExtent(function_ref<InFlightDiagnostic()> emitError, StringRef axis) {
  llvm::Expected<Extent> extent = Extent::parse(axis);
  if (!extent)
    return emitError() << "[axis_c1] " << llvm::toString(extent.takeError());
  if (extent->str() != axis)
    return emitError() << "[axis_c2] the size '" << axis << "' is not in normal form; expected '" << extent->str()
                       << "'";
  if ((Extent(1) - *extent).isPositive())
    return emitError() << "[axis_c3] the size of an axis is '" << axis << "', expected at least 1";
  return success();
}

/// A literal size fixes the dimension; any other leaves it unknown until sizes are given.
static LogicalResult verifySize(function_ref<InFlightDiagnostic()> emitError, StringRef axis, int64_t size) {
  std::optional<int64_t> constant = extentOf(axis).constant();
  if (constant && *constant != size)
    return emitError() << "[axis_c4] the axis '" << axis << "' has "
                       << (ShapedType::isDynamic(size) ? "an unknown dimension" : "dimension " + Twine(size).str())
                       << ", expected " << *constant;
  if (!ShapedType::isDynamic(size) && size < 1)
    return emitError() << "[axis_c5] the axis '" << axis << "' has dimension " << size << ", expected at least 1";
  return success();
}

/// Parses an axis or a head set: a bare name or number, or a string.
static ParseResult parseName(AsmParser &parser, std::string &name, const Twine &what) {
  SMLoc location = parser.getCurrentLocation();
  uint64_t number;
  OptionalParseResult parsed = parser.parseOptionalInteger(number);
  if (parsed.has_value()) {
    name = std::to_string(number);
    return *parsed;
  }
  if (failed(parser.parseOptionalKeywordOrString(&name)))
    return parser.emitError(location) << "expected " << what;
  return success();
}

static ParseResult parseHeads(AsmParser &parser, std::string &heads) { return parseName(parser, heads, "a head set"); }

/// Parses an axis and brings it to normal form.
static ParseResult parseAxis(AsmParser &parser, std::string &axis) {
  SMLoc location = parser.getCurrentLocation();
  if (parseName(parser, axis, "an axis"))
    return failure();
  llvm::Expected<Extent> extent = Extent::parse(axis);
  if (!extent)
    return parser.emitError(location) << "[axis_c1] " << llvm::toString(extent.takeError());
  axis = extent->str();
  return success();
}

static void printName(AsmPrinter &printer, StringRef name) {
  bool bare = !name.empty() && llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; });
  if (bare && name != "reverse")
    printer << name;
  else
    printer.printString(name);
}

static StringAttr intern(AsmParser &parser, StringRef text) { return parser.getBuilder().getStringAttr(text); }

//===----------------------------------------------------------------------===//
// RowAttr
//===----------------------------------------------------------------------===//

Attribute RowAttr::parse(AsmParser &parser, Type) {
  std::string axis, heads = queryHeads.str();
  if (parser.parseLess())
    return {};
  if (succeeded(parser.parseOptionalLParen())) {
    if (parser.parseRParen())
      return {};
  } else if (parseAxis(parser, axis)) {
    return {};
  }
  if (succeeded(parser.parseOptionalComma()) && parseHeads(parser, heads))
    return {};
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(),
                    intern(parser, axis).getValue(), intern(parser, heads).getValue());
}

void RowAttr::print(AsmPrinter &printer) const {
  printer << "<";
  if (getAxis().empty())
    printer << "()";
  else
    printName(printer, getAxis());
  if (getHeads() != queryHeads) {
    printer << ", ";
    printName(printer, getHeads());
  }
  printer << ">";
}

LogicalResult RowAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef axis, StringRef heads) {
  if (!axis.empty() && failed(verifyExtent(emitError, axis)))
    return failure();
  return verifyHeads(emitError, heads);
}

LogicalResult RowAttr::verifyEncoding(ArrayRef<int64_t> shape, Type elementType,
                                      function_ref<InFlightDiagnostic()> emitError) const {
  if (!elementType) // it did not parse, of which the parser tells later
    return failure();
  size_t rank = getAxis().empty() ? 0 : 1;
  if (shape.size() != rank)
    return emitError() << "[row_c1] a row with " << (rank ? "an axis" : "no axis") << " has rank " << rank << ", found "
                       << shape.size();
  if (!elementType.isF64() && !elementType.isInteger(1))
    return emitError() << "[row_c2] the entries of a row have type f64 or i1, found " << elementType;
  return rank ? verifySize(emitError, getAxis(), shape[0]) : success();
}

//===----------------------------------------------------------------------===//
// ParamAttr
//===----------------------------------------------------------------------===//

Attribute ParamAttr::parse(AsmParser &parser, Type) {
  SmallVector<StringAttr> axes;
  std::string heads = queryHeads.str();
  auto parseOne = [&]() -> ParseResult {
    std::string axis;
    if (parseAxis(parser, axis))
      return failure();
    axes.push_back(intern(parser, axis));
    return success();
  };
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
    return {};
  if (succeeded(parser.parseOptionalComma()) && parseHeads(parser, heads))
    return {};
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(), axes,
                    intern(parser, heads).getValue());
}

void ParamAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getAxes(), printer, [&](StringAttr axis) { printName(printer, axis); });
  printer << "]";
  if (getHeads() != queryHeads) {
    printer << ", ";
    printName(printer, getHeads());
  }
  printer << ">";
}

LogicalResult ParamAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<StringAttr> axes,
                                StringRef heads) {
  for (StringAttr axis : axes)
    if (failed(verifyExtent(emitError, axis)))
      return failure();
  return verifyHeads(emitError, heads);
}

LogicalResult ParamAttr::verifyEncoding(ArrayRef<int64_t> shape, Type elementType,
                                        function_ref<InFlightDiagnostic()> emitError) const {
  if (!elementType)
    return failure();
  if (shape.size() != getAxes().size())
    return emitError() << "[param_c1] a parameter with axes "
                       << ArrayAttr::get(getContext(), llvm::to_vector_of<Attribute>(getAxes())) << " has rank "
                       << getAxes().size() << ", found " << shape.size();
  if (!elementType.isF64())
    return emitError() << "[param_c2] the entries of a parameter have type f64, found " << elementType;
  for (auto [axis, size] : llvm::zip_equal(getAxes(), shape))
    if (failed(verifySize(emitError, axis, size)))
      return failure();
  return success();
}

LogicalResult ChoiceAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringAttr value,
                                 ArrayRef<StringAttr> choices) {
  if (!llvm::is_contained(choices, value))
    return emitError() << "[choice_c1] " << value << " is not one of the choices "
                       << ArrayAttr::get(value.getContext(), llvm::to_vector_of<Attribute>(choices));
  return success();
}

//===----------------------------------------------------------------------===//
// StateType
//===----------------------------------------------------------------------===//

Type StateType::parse(AsmParser &parser) {
  std::string axes[2], heads = queryHeads.str();
  int64_t sizes[2] = {ShapedType::kDynamic, ShapedType::kDynamic};
  bool reverse = false;
  if (parser.parseLess())
    return {};
  for (int i = 0; i < 2; ++i) {
    if ((i && parser.parseComma()) || parseAxis(parser, axes[i]))
      return {};
    if (succeeded(parser.parseOptionalColon()) && parser.parseInteger(sizes[i]))
      return {};
    if (ShapedType::isDynamic(sizes[i]))
      if (std::optional<int64_t> constant = extentOf(axes[i]).constant())
        sizes[i] = *constant;
  }
  while (succeeded(parser.parseOptionalComma())) {
    if (succeeded(parser.parseOptionalKeyword("reverse")))
      reverse = true;
    else if (parseHeads(parser, heads))
      return {};
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(),
                    intern(parser, axes[0]).getValue(), intern(parser, axes[1]).getValue(),
                    intern(parser, heads).getValue(), sizes[0], sizes[1], reverse);
}

void StateType::print(AsmPrinter &printer) const {
  auto axis = [&](StringRef name, int64_t size) {
    printName(printer, name);
    if (!ShapedType::isDynamic(size) && !extentOf(name).constant())
      printer << " : " << size;
  };
  printer << "<";
  axis(getFirst(), getFirstSize());
  printer << ", ";
  axis(getSecond(), getSecondSize());
  if (getHeads() != queryHeads) {
    printer << ", ";
    printName(printer, getHeads());
  }
  printer << (getReverse() ? ", reverse>" : ">");
}

LogicalResult StateType::verify(function_ref<InFlightDiagnostic()> emitError, StringRef first, StringRef second,
                                StringRef heads, int64_t firstSize, int64_t secondSize, bool) {
  for (auto [axis, size] : {std::pair(first, firstSize), std::pair(second, secondSize)})
    if (failed(verifyExtent(emitError, axis)) || failed(verifySize(emitError, axis, size)))
      return failure();
  if (first == second && first != "1")
    return emitError() << "[state_type_c1] both axes of a state are '" << first
                       << "'; operations could not tell them apart, give them two names";
  return verifyHeads(emitError, heads);
}

//===----------------------------------------------------------------------===//
// The dialect
//===----------------------------------------------------------------------===//

namespace {

/// Prints types by the names a paper would use: `!K_per_G` for a row on the axis K for each head of G.
struct TypeNames : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;

  static std::string spell(StringRef extent) {
    std::string text = extent.starts_with("-") ? "minus_" + extent.drop_front().str() : extent.str();
    for (auto [from, to] : {std::pair(" + ", "_plus_"), {" - ", "_minus_"}, {"*", "_times_"}, {"/", "_over_"}})
      for (size_t at; (at = text.find(from)) != std::string::npos;)
        text.replace(at, StringRef(from).size(), to);
    return text;
  }

  AliasResult getAlias(Type type, raw_ostream &os) const override {
    auto heads = [&](StringRef set) {
      if (set != queryHeads)
        os << "_per_" << join(llvm::split(set, '|'), "_and_");
      return AliasResult::OverridableAlias;
    };
    if (auto state = dyn_cast<StateType>(type)) {
      os << (state.getReverse() ? "reverse_state_" : "state_") << spell(state.getFirst()) << "_by_"
         << spell(state.getSecond());
      return heads(state.getHeads());
    }
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor)
      return AliasResult::NoAlias;
    if (auto row = dyn_cast_if_present<RowAttr>(tensor.getEncoding())) {
      StringRef kind = tensor.getElementType().isInteger(1) ? "condition_" : "";
      StringRef axis = row.getAxis();
      if (axis.empty())
        os << kind << "number";
      else
        os << kind << (llvm::isDigit(axis.front()) ? "row_" : "") << spell(axis);
      return heads(row.getHeads());
    }
    if (auto param = dyn_cast_if_present<ParamAttr>(tensor.getEncoding())) {
      os << "parameter";
      for (StringAttr axis : param.getAxes())
        os << "_" << spell(axis);
      return heads(param.getHeads());
    }
    return AliasResult::NoAlias;
  }
};

/// The body of a table is a function that the host evaluates; its constants stay inside.
struct TableConstants : DialectFoldInterface {
  using DialectFoldInterface::DialectFoldInterface;

  bool shouldMaterializeInto(Region *region) const override { return isa<TableOp>(region->getParentOp()); }
};

} // namespace

void StrettoDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/stretto/StrettoAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/stretto/StrettoTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/stretto/StrettoOps.cpp.inc"
      >();
  addInterfaces<TypeNames, TableConstants>();
}
