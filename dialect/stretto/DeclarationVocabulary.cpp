//===- DeclarationVocabulary.cpp - The operations of a traced declaration -===//
//
// What each request of a front end becomes. The table at the end lists all of them with the number of their operands.
//
//===----------------------------------------------------------------------===//

#include "dialect/stretto/DeclarationTrace.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Numbers and sizes
//===----------------------------------------------------------------------===//

static FailureOr<Handles> makeNumber(DeclarationCall &call) {
  FailureOr<StringRef> spelling = call.text("value");
  double number;
  if (failed(spelling))
    return failure();
  if (spelling->getAsDouble(number))
    return call.error() << "'" << *spelling << "' is no number";
  return call.one(number);
}

static FailureOr<Handles> makeCondition(DeclarationCall &call) {
  FailureOr<StringRef> spelling = call.text("value");
  if (failed(spelling))
    return failure();
  if (*spelling != "true" && *spelling != "false")
    return call.error() << "'" << *spelling << "' is no condition, expected 'true' or 'false'";
  return call.make<arith::ConstantOp>(call.builder.getBoolAttr(*spelling == "true"));
}

/// The size of a row.
static FailureOr<Handles> width(DeclarationCall &call) {
  FailureOr<Value> row = call.row(call.operand(0));
  if (failed(row))
    return failure();
  StringRef axis = axisOf(row->getType());
  Extent size = axis.empty() ? Extent(1) : extentOf(axis);
  if (std::optional<int64_t> constant = size.constant())
    return call.one(static_cast<double>(*constant));
  return call.one(size);
}

//===----------------------------------------------------------------------===//
// Entry by entry
//===----------------------------------------------------------------------===//

/// Operands brought to where they meet, all real or all conditions as asked for.
static FailureOr<SmallVector<Value>> alikeOf(DeclarationCall &call, ArrayRef<Handle> operands, bool conditions) {
  for (Handle operand : operands) {
    Value value = call.value(operand);
    if ((value && getElementTypeOrSelf(value).isInteger(1)) != conditions)
      return call.error() << "expected " << (conditions ? "a condition" : "a number or a row") << ", found "
                          << call.describe(operand);
  }
  return call.alike(operands);
}

/// Arithmetic on sizes is a size where it can be: sums, differences, products, and quotients by a whole number.
static std::optional<Extent> extentArithmetic(DeclarationCall &call) {
  SmallVector<Extent> sizes;
  bool anySize = false;
  for (Handle operand : call.request.operands) {
    if (auto *size = call.get<Extent>(operand)) {
      anySize = true;
      sizes.push_back(*size);
    } else if (auto *number = call.get<double>(operand); number && *number == static_cast<int32_t>(*number)) {
      sizes.push_back(Extent(static_cast<int32_t>(*number)));
    } else {
      return std::nullopt;
    }
  }
  if (!anySize || sizes.size() != 2)
    return std::nullopt;
  auto result = llvm::StringSwitch<std::optional<Extent>>(call.request.operation)
                    .Case("add", sizes[0] + sizes[1])
                    .Case("subtract", sizes[0] - sizes[1])
                    .Case("multiply", sizes[0] * sizes[1])
                    .Cases({"divide", "floor_divide"}, sizes[0].dividedBy(sizes[1]))
                    .Default(std::nullopt);
  return result && result->isModerate() ? result : std::nullopt;
}

static Value emitNamed(DeclarationCall &call, StringRef name, ValueRange operands) {
  OperationState state(call.location, name, operands, operands.front().getType(), {});
  return call.builder.create(state)->getResult(0);
}

/// The upstream operation on rows and real numbers.
static FailureOr<Handles> elementwise(DeclarationCall &call) {
  if (std::optional<Extent> size = extentArithmetic(call))
    return call.one(*size);
  FailureOr<SmallVector<Value>> operands = alikeOf(call, call.request.operands, /*conditions=*/false);
  if (failed(operands))
    return failure();
  StringRef name = llvm::StringSwitch<StringRef>(call.request.operation)
                       .Case("negate", "arith.negf")
                       .Case("add", "arith.addf")
                       .Case("subtract", "arith.subf")
                       .Case("multiply", "arith.mulf")
                       .Cases({"divide", "floor_divide"}, "arith.divf")
                       .Case("fmod", "arith.remf")
                       .Case("maximum", "arith.maximumf")
                       .Case("minimum", "arith.minimumf")
                       .Case("absolute", "math.absf")
                       .Case("exp", "math.exp")
                       .Case("log", "math.log")
                       .Case("log1p", "math.log1p")
                       .Case("sqrt", "math.sqrt")
                       .Case("tanh", "math.tanh")
                       .Case("sin", "math.sin")
                       .Case("cos", "math.cos")
                       .Case("floor", "math.floor")
                       .Case("round", "math.roundeven");
  Value result = emitNamed(call, name, *operands);
  if (call.request.operation == "floor_divide")
    result = emitNamed(call, "math.floor", result);
  return call.one(result);
}

/// x ** y, by a product, a root or a power of two where the numbers allow it.
static FailureOr<Handles> power(DeclarationCall &call) {
  Handle base = call.operand(0), exponent = call.operand(1);
  auto is = [&](Handle operand, double value) {
    auto *number = call.get<double>(operand);
    return number && *number == value;
  };
  SmallVector<Handle> used = {base, exponent};
  StringRef name = "math.powf";
  if (is(exponent, 2))
    used = {base, base}, name = "arith.mulf";
  else if (is(exponent, 0.5))
    used = {base}, name = "math.sqrt";
  else if (is(base, 2))
    used = {exponent}, name = "math.exp2";
  FailureOr<SmallVector<Value>> operands = alikeOf(call, used, /*conditions=*/false);
  return failed(operands) ? FailureOr<Handles>() : call.one(emitNamed(call, name, *operands));
}

static FailureOr<Handles> compare(DeclarationCall &call) {
  FailureOr<StringRef> spelling = call.text("predicate");
  if (failed(spelling))
    return failure();
  std::optional<arith::CmpFPredicate> predicate = arith::symbolizeCmpFPredicate(*spelling);
  if (!predicate)
    return call.error() << "'" << *spelling << "' is no comparison";
  FailureOr<SmallVector<Value>> operands = alikeOf(call, call.request.operands, /*conditions=*/false);
  if (failed(operands))
    return failure();
  return call.make<arith::CmpFOp>(*predicate, operands->front(), operands->back());
}

/// `and`, `or`, `not` of conditions.
static FailureOr<Handles> logic(DeclarationCall &call) {
  FailureOr<SmallVector<Value>> operands = alikeOf(call, call.request.operands, /*conditions=*/true);
  if (failed(operands))
    return failure();
  if (call.request.operation == "and")
    return call.make<arith::AndIOp>(operands->front(), operands->back());
  if (call.request.operation == "or")
    return call.make<arith::OrIOp>(operands->front(), operands->back());
  Value yes = arith::ConstantOp::create(call.builder, call.location, call.builder.getBoolAttr(true));
  if (auto row = dyn_cast<RankedTensorType>(operands->front().getType()))
    yes = BroadcastOp::create(call.builder, call.location, row, yes);
  return call.make<arith::XOrIOp>(operands->front(), yes);
}

static FailureOr<Handles> where(DeclarationCall &call) {
  Value condition = call.value(call.operand(0));
  if (!condition || !getElementTypeOrSelf(condition).isInteger(1))
    return call.error() << "expected a condition first, found " << call.describe(call.operand(0));
  FailureOr<SmallVector<Value>> operands = call.alike(call.request.operands);
  if (failed(operands))
    return failure();
  ArrayRef<Value> all = *operands;
  return call.make<arith::SelectOp>(all[0], all[1], all[2]);
}

//===----------------------------------------------------------------------===//
// Row maps
//===----------------------------------------------------------------------===//

template <typename Op> static FailureOr<Handles> rowMap(DeclarationCall &call) {
  FailureOr<Value> row = call.row(call.operand(0));
  return failed(row) ? FailureOr<Handles>() : call.make<Op>(row->getType(), *row);
}

static FailureOr<Handles> reduce(DeclarationCall &call) {
  FailureOr<Reduction> kind = call.word("kind", symbolizeReduction);
  FailureOr<Value> row = call.row(call.operand(0));
  if (failed(kind) || failed(row))
    return failure();
  return call.make<ReduceOp>(withoutAxis(cast<RankedTensorType>(row->getType())), *kind, *row);
}

static Extent sizeOf(Value row) {
  StringRef axis = axisOf(row.getType());
  return axis.empty() ? Extent(1) : extentOf(axis);
}

static FailureOr<Handles> concat(DeclarationCall &call) {
  FailureOr<SmallVector<Value>> rows = call.sameHeads(call.request.operands);
  if (failed(rows))
    return failure();
  Extent size;
  for (Value row : *rows)
    size = size + sizeOf(row);
  return call.make<ConcatOp>(call.rowOfSize(size, headsOf(rows->front().getType())), *rows);
}

/// A row as its entries before and from `at`; a piece of one entry is a number.
static FailureOr<Handles> split(DeclarationCall &call) {
  FailureOr<Extent> at = call.size("at");
  FailureOr<Value> row = call.row(call.operand(0));
  if (failed(at) || failed(row))
    return failure();
  Extent rest = sizeOf(*row) - *at;
  for (const Extent &piece : {*at, rest})
    if (std::optional<int64_t> constant = piece.constant(); constant && *constant < 1)
      return call.error() << "splits " << call.describe(call.operand(0)) << " at '" << at->str()
                          << "', expected both pieces to have entries";
  Handles pieces;
  for (const auto &[offset, size] : {std::pair(Extent(), *at), {*at, rest}}) {
    FailureOr<Handles> piece = call.make<SliceOp>(call.rowOfSize(size, headsOf(row->getType())), *row, offset.str());
    if (failed(piece))
      return failure();
    llvm::append_range(pieces, *piece);
  }
  return pieces;
}

static FailureOr<Handles> dot(DeclarationCall &call) {
  FailureOr<SmallVector<Value>> rows = call.rows(call.request.operands);
  if (failed(rows))
    return failure();
  auto type = cast<RankedTensorType>(rows->front().getType());
  if (axisOf(type).empty())
    return call.error() << "expected two rows with an axis, found " << call.describe(call.operand(0)) << " and "
                        << call.describe(call.operand(1));
  return call.make<DotOp>(withoutAxis(type), rows->front(), rows->back());
}

static FailureOr<Handles> outer(DeclarationCall &call) {
  FailureOr<SmallVector<Value>> rows = call.sameHeads(call.request.operands);
  if (failed(rows))
    return failure();
  Value left = rows->front(), right = rows->back();
  return call.make<OuterOp>(call.rowOfSize(sizeOf(left) * sizeOf(right), headsOf(left.getType())), left, right);
}

/// `axis` is that of the result.
static FailureOr<Handles> inner(DeclarationCall &call) {
  FailureOr<Extent> size = call.size("axis");
  FailureOr<SmallVector<Value>> rows = call.sameHeads(call.request.operands);
  if (failed(size) || failed(rows))
    return failure();
  RankedTensorType type = call.rowOfSize(*size, headsOf(rows->front().getType()));
  return call.make<InnerOp>(type, rows->front(), rows->back(), call.flag("transpose"));
}

/// The first operand as a row of a head set that the parameter's divides.
static FailureOr<Value> rowForParameter(DeclarationCall &call, Value parameter) {
  FailureOr<Shape> shape = call.shapeOf(call.operand(0));
  if (failed(shape))
    return failure();
  return call.row(call.operand(0), Shape{shape->axis, joinHeads(shape->heads, headsOf(parameter.getType()))});
}

static FailureOr<Handles> contract(DeclarationCall &call) {
  FailureOr<Value> parameter = call.parameter(call.operand(1));
  FailureOr<Value> row = succeeded(parameter) ? rowForParameter(call, *parameter) : FailureOr<Value>();
  if (failed(row))
    return failure();
  auto axes = cast<ParamAttr>(cast<RankedTensorType>(parameter->getType()).getEncoding()).getAxes();
  if (axes.size() != 2)
    return call.error() << "expected a parameter of two axes, found " << call.describe(call.operand(1));
  bool transpose = call.flag("transpose");
  Extent size = extentOf(axes[transpose ? 0 : 1].getValue());
  return call.make<ContractOp>(call.rowOfSize(size, headsOf(row->getType())), *row, *parameter, transpose);
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

static FailureOr<Handles> conv(DeclarationCall &call) {
  FailureOr<Value> taps = call.parameter(call.operand(1));
  FailureOr<Value> row = succeeded(taps) ? rowForParameter(call, *taps) : FailureOr<Value>();
  return failed(row) ? FailureOr<Handles>() : call.make<ConvOp>(*row, *taps, /*reverse=*/false, /*entry=*/StringAttr());
}

static FailureOr<Handles> delay(DeclarationCall &call) {
  FailureOr<int64_t> by = call.integer("by");
  FailureOr<Value> row = call.row(call.operand(0));
  if (failed(by) || failed(row))
    return failure();
  return call.make<DelayOp>(row->getType(), *row, static_cast<uint64_t>(*by), /*reverse=*/false,
                            /*entry=*/StringAttr());
}

/// A scan of the first operand; the second, if any, is the logarithm of what the carry is multiplied by.
static FailureOr<Handles> scan(DeclarationCall &call) {
  FailureOr<ScanKind> kind = call.word("kind", symbolizeScanKind);
  FailureOr<SmallVector<Value>> rows = call.rows(call.request.operands);
  if (failed(kind) || failed(rows))
    return failure();
  Value log = call.count() == 2 ? rows->back() : Value();
  return call.make<ScanOp>(*kind, rows->front(), log, call.flag("exclusive"), /*reverse=*/false);
}

static FailureOr<Handles> position(DeclarationCall &call) { return call.make<PositionOp>(); }

static Block *openBody(DeclarationCall &call, Operation *op) {
  call.trace.bodies.push_back(op);
  Block *body = &op->getRegion(0).emplaceBlock();
  call.builder.setInsertionPointToEnd(body);
  return body;
}

/// Opens a table; the results are its position, head and channel. The operand, if any, is the period.
static FailureOr<Handles> openTable(DeclarationCall &call) {
  FailureOr<std::string> axis = call.axis("axis"), heads = call.heads();
  if (failed(axis) || failed(heads))
    return failure();
  Value period = call.count() ? call.real(call.operand(0)) : Value();
  if (period && !period.getType().isF64())
    return call.error() << "the period is " << call.describe(call.operand(0)) << ", expected a real number";
  auto table = TableOp::create(call.builder, call.location, rowType(call.builder.getContext(), *axis, *heads), period);
  Block *body = openBody(call, table);
  Handles arguments;
  for (int i = 0; i < 3; ++i)
    arguments.push_back(call.trace.add(body->addArgument(call.builder.getF64Type(), call.location)));
  return arguments;
}

/// Opens a look-back over the tokens from the operand on. It has its results when its body is closed.
static FailureOr<Handles> openLookback(DeclarationCall &call) {
  FailureOr<Fold> fold = call.word("fold", symbolizeFold);
  FailureOr<Value> first = call.time(call.operand(0));
  if (failed(fold) || failed(first))
    return failure();
  openBody(call, LookbackOp::create(call.builder, call.location, TypeRange(), *fold, *first, call.flag("to_end"),
                                    /*reverse=*/false));
  return Handles();
}

static FailureOr<Handles> past(DeclarationCall &call) {
  FailureOr<Value> row = call.row(call.operand(0));
  return failed(row) ? FailureOr<Handles>() : call.make<PastOp>(row->getType(), *row);
}

static FailureOr<Handles> closeTable(DeclarationCall &call, TableOp table) {
  if (call.count() != 1 || !call.isReal(call.operand(0)))
    return call.error() << "the body of a table gives " << call.count() << " values, the first "
                        << call.describe(call.operand(0)) << "; expected one real number";
  YieldOp::create(call.builder, call.location, call.real(call.operand(0)));
  call.builder.setInsertionPointAfter(table);
  return call.results(table);
}

/// Scores and contributions of a pair belong to the same heads.
static FailureOr<Handles> closeLookback(DeclarationCall &call, LookbackOp open) {
  FailureOr<SmallVector<Value>> rows = call.sameHeads(call.request.operands);
  if (failed(rows))
    return failure();
  YieldOp::create(call.builder, call.location, *rows);
  SmallVector<Type> types = LookbackOp::resultTypes(open.getFold(), ValueRange(*rows).getTypes());
  call.builder.setInsertionPoint(open);
  auto closed = LookbackOp::create(call.builder, open.getLoc(), types, open.getFold(), open.getFirst(), open.getToEnd(),
                                   open.getReverse());
  closed.getBody().takeBody(open.getBody());
  open.erase();
  call.builder.setInsertionPointAfter(closed);
  return call.results(closed);
}

static FailureOr<Handles> closeBody(DeclarationCall &call) {
  if (call.trace.bodies.empty())
    return call.error() << "no table or look-back is open";
  Operation *open = call.trace.bodies.pop_back_val();
  if (auto table = dyn_cast<TableOp>(open))
    return closeTable(call, table);
  return closeLookback(call, cast<LookbackOp>(open));
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

static FailureOr<Handles> declareState(DeclarationCall &call) {
  FailureOr<std::string> first = call.axis("first"), second = call.axis("second");
  if (failed(first) || failed(second))
    return failure();
  Value state = call.trace.declareState(call.setting("name"), *first, *second, call.location);
  return state ? call.one(state) : FailureOr<Handles>();
}

/// Makes an operation that changes the state by rows.
template <typename Op, typename... Arguments>
static FailureOr<Handles> change(DeclarationCall &call, Value state, ValueRange rows, Arguments &&...arguments) {
  if (failed(call.trace.needHeads(state, rows)))
    return failure();
  FailureOr<Handles> results = call.make<Op>(state, std::forward<Arguments>(arguments)...);
  if (succeeded(results))
    call.trace.continueState(state, call.value(results->front()));
  return results;
}

static FailureOr<Handles> decay(DeclarationCall &call) {
  FailureOr<TypedValue<StateType>> state = call.state(call.operand(0));
  FailureOr<DecayForm> form = call.word("form", symbolizeDecayForm);
  if (failed(state) || failed(form))
    return failure();
  StringAttr along;
  FailureOr<Value> amount = failure();
  if (call.flag("along")) {
    FailureOr<std::string> axis = call.axis("along");
    if (failed(axis))
      return failure();
    along = call.builder.getStringAttr(*axis);
    amount = call.rowOn(call.operand(1), *axis);
  } else {
    amount = call.row(call.operand(1));
  }
  if (failed(amount))
    return failure();
  return change<DecayOp>(call, *state, *amount, *form, *amount, along);
}

static FailureOr<Handles> write(DeclarationCall &call) {
  FailureOr<TypedValue<StateType>> state = call.state(call.operand(0));
  if (failed(state))
    return failure();
  FailureOr<Value> first = call.rowOn(call.operand(1), state->getType().getFirst());
  FailureOr<Value> second = call.rowOn(call.operand(2), state->getType().getSecond());
  if (failed(first) || failed(second))
    return failure();
  return change<WriteOp>(call, *state, {*first, *second}, *first, *second, /*at=*/Value());
}

/// A read along `along`; the third operand, if any, is the time at which the state is observed.
static FailureOr<Handles> read(DeclarationCall &call) {
  FailureOr<TypedValue<StateType>> state = call.state(call.operand(0));
  FailureOr<std::string> along = call.axis("along");
  FailureOr<Value> row = succeeded(along) ? call.rowOn(call.operand(1), *along) : FailureOr<Value>();
  FailureOr<Value> at = call.count() == 3 ? call.time(call.operand(2)) : Value();
  if (failed(state) || failed(row) || failed(at))
    return failure();
  StateType type = state->getType();
  RankedTensorType result =
      call.rowOfSize(extentOf(type.otherAxis(*along)), joinHeads(headsOf(row->getType()), type.getHeads()));
  return call.make<ReadOp>(result, *state, *row, *along, *at);
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

namespace {
struct Rule {
  FailureOr<Handles> (*carryOut)(DeclarationCall &);
  size_t minimum, maximum; // number of operands
};
constexpr size_t anyNumber = std::numeric_limits<size_t>::max();
} // namespace

static const llvm::StringMap<Rule> &vocabulary() {
  static const llvm::StringMap<Rule> rules = {
      // The signature
      {"row", {declareArgument, 0, 0}},
      {"parameter", {declareArgument, 0, 0}},
      {"option", {declareOption, 0, 0}},
      {"axis", {declareAxis, 1, 1}},
      {"number", {makeNumber, 0, 0}},
      {"condition", {makeCondition, 0, 0}},
      {"width", {width, 1, 1}},
      // Entry by entry
      {"negate", {elementwise, 1, 1}},
      {"add", {elementwise, 2, 2}},
      {"subtract", {elementwise, 2, 2}},
      {"multiply", {elementwise, 2, 2}},
      {"divide", {elementwise, 2, 2}},
      {"floor_divide", {elementwise, 2, 2}},
      {"fmod", {elementwise, 2, 2}},
      {"maximum", {elementwise, 2, 2}},
      {"minimum", {elementwise, 2, 2}},
      {"absolute", {elementwise, 1, 1}},
      {"exp", {elementwise, 1, 1}},
      {"log", {elementwise, 1, 1}},
      {"log1p", {elementwise, 1, 1}},
      {"sqrt", {elementwise, 1, 1}},
      {"tanh", {elementwise, 1, 1}},
      {"sin", {elementwise, 1, 1}},
      {"cos", {elementwise, 1, 1}},
      {"floor", {elementwise, 1, 1}},
      {"round", {elementwise, 1, 1}},
      {"power", {power, 2, 2}},
      {"compare", {compare, 2, 2}},
      {"and", {logic, 2, 2}},
      {"or", {logic, 2, 2}},
      {"not", {logic, 1, 1}},
      {"where", {where, 3, 3}},
      // Row maps
      {"softmax", {rowMap<SoftmaxOp>, 1, 1}},
      {"logsigmoid", {rowMap<LogSigmoidOp>, 1, 1}},
      {"stop_gradient", {rowMap<StopGradientOp>, 1, 1}},
      {"reduce", {reduce, 1, 1}},
      {"concat", {concat, 1, anyNumber}},
      {"split", {split, 1, 1}},
      {"dot", {dot, 2, 2}},
      {"outer", {outer, 2, 2}},
      {"inner", {inner, 2, 2}},
      {"contract", {contract, 2, 2}},
      // Time
      {"position", {position, 0, 0}},
      {"conv", {conv, 2, 2}},
      {"delay", {delay, 1, 1}},
      {"scan", {scan, 1, 2}},
      {"table", {openTable, 0, 1}},
      {"lookback", {openLookback, 1, 1}},
      {"past", {past, 1, 1}},
      {"yield", {closeBody, 1, anyNumber}},
      // States
      {"state", {declareState, 0, 0}},
      {"decay", {decay, 2, 2}},
      {"write", {write, 3, 3}},
      {"read", {read, 2, 3}},
  };
  return rules;
}

FailureOr<Handles> stretto::carryOutByName(DeclarationCall &call) {
  auto rule = vocabulary().find(call.request.operation);
  if (rule == vocabulary().end())
    return call.error() << "a declaration knows no such operation";
  const auto &[carryOut, minimum, maximum] = rule->second;
  if (call.count() < minimum || call.count() > maximum)
    return call.error() << "found " << call.count() << " operands, expected at least " << minimum << " and at most "
                        << maximum;
  return carryOut(call);
}
