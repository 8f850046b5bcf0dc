//===- StrettoOps.cpp - The token-level dialect: verifiers ----------------===//
//
// Every constraint has an id, `<operation>_c<n>`, shared by the operation's description, the message here and the
// name of its negative test.
//
//===----------------------------------------------------------------------===//

#include "dialect/stretto/StrettoDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace stretto;

/// A number that is printed even where it is the default.
static ParseResult parseNumber(OpAsmParser &parser, IntegerAttr &number) {
  return parser.parseAttribute(number, parser.getBuilder().getI64Type());
}

static void printNumber(OpAsmPrinter &printer, Operation *, IntegerAttr number) { printer << number.getInt(); }

#define GET_OP_CLASSES
#include "dialect/stretto/StrettoOps.cpp.inc"

static std::string quoted(StringRef axis) { return axis.empty() ? "none" : "'" + axis.str() + "'"; }

/// Whether a row of this axis can stand on `axis`: it is that axis, or the axis has size one and the row none.
static bool standsOn(StringRef rowAxis, StringRef axis) { return rowAxis == axis || (rowAxis.empty() && axis == "1"); }

static RankedTensorType numberOf(Value row) { return withoutAxis(cast<RankedTensorType>(row.getType())); }

//===----------------------------------------------------------------------===//
// YieldOp, options and sizes
//===----------------------------------------------------------------------===//

void YieldOp::build(OpBuilder &, OperationState &) {}

static LogicalResult verifyDeclared(Operation *op, StringRef id, StringRef name, Attribute &value) {
  auto variant = op->getParentOfType<VariantOp>();
  value = variant ? variant.getOptions().get(name) : Attribute();
  if (value)
    return success();
  return op->emitOpError("[") << id << "] the variant declares no option '" << name << "'";
}

LogicalResult OptionOp::verify() {
  Attribute value;
  if (failed(verifyDeclared(*this, "option_c1", getName(), value)))
    return failure();
  bool condition = isa<BoolAttr>(value), number = isa<FloatAttr, StringAttr>(value);
  if (getType().isInteger(1) ? !condition : !number)
    return emitOpError("[option_c2] the option '") << getName() << "' has the default " << value << ", expected "
                                                   << (getType().isInteger(1) ? "a condition" : "a number");
  return success();
}

LogicalResult OptionIsOp::verify() {
  Attribute value;
  if (failed(verifyDeclared(*this, "option_is_c1", getName(), value)))
    return failure();
  auto choice = dyn_cast<ChoiceAttr>(value);
  if (!choice)
    return emitOpError("[option_is_c1] the option '")
           << getName() << "' has the default " << value << ", expected a choice";
  if (!llvm::is_contained(choice.getChoices(), getWordAttr()))
    return emitOpError("[option_is_c2] '")
           << getWord() << "' is not one of the choices "
           << ArrayAttr::get(getContext(), llvm::to_vector_of<Attribute>(choice.getChoices())) << " of the option '"
           << getName() << "'";
  return success();
}

LogicalResult PresentOp::verify() {
  auto argument = dyn_cast<BlockArgument>(getArgument());
  auto variant = argument ? dyn_cast<VariantOp>(argument.getOwner()->getParentOp()) : VariantOp();
  if (!variant || !variant.isOptional(argument.getArgNumber()))
    return emitOpError("[present_c1] the operand is not an argument marked {stretto.optional}");
  return success();
}

LogicalResult SizeOp::verify() {
  llvm::Expected<Extent> extent = Extent::parse(getExtent());
  if (!extent)
    return emitOpError("[size_c1] ") << llvm::toString(extent.takeError());
  return success();
}

//===----------------------------------------------------------------------===//
// Row maps
//===----------------------------------------------------------------------===//

LogicalResult BroadcastOp::verify() {
  Type source = getOperand().getType(), target = getType();
  if (!isRow(target))
    return emitOpError("[broadcast_c4] the result has type ") << target << ", expected a row";
  Type element = cast<ShapedType>(target).getElementType();
  if (getElementTypeOrSelf(source) != element)
    return emitOpError("[broadcast_c4] the operand's entries have type ")
           << getElementTypeOrSelf(source) << ", the result's " << element;
  if (source == element)
    return success();
  StringRef axis;
  if (isParam(source)) {
    ArrayRef<StringAttr> axes = cast<ParamAttr>(cast<RankedTensorType>(source).getEncoding()).getAxes();
    if (axes.size() > 1)
      return emitOpError("[broadcast_c3] the parameter has ") << axes.size() << " axes, expected at most 1";
    axis = axes.empty() ? StringRef() : axes.front().getValue();
  } else if (isRow(source)) {
    axis = axisOf(source);
  } else {
    return emitOpError("[broadcast_c4] the operand has type ") << source << ", expected a row, a parameter or a number";
  }
  if (!headsDivide(headsOf(source), headsOf(target)))
    return emitOpError("[broadcast_c1] the head set '")
           << headsOf(source) << "' does not divide '" << headsOf(target) << "'";
  if (axis.empty() || axis == axisOf(target))
    return success();
  // A size that is not known yet may turn out to be one.
  bool mayBeOne = extentOf(axis).constant().value_or(1) == 1;
  int64_t size = cast<RankedTensorType>(source).getDimSize(0);
  if (axisOf(target).empty() || !mayBeOne || (!ShapedType::isDynamic(size) && size != 1))
    return emitOpError("[broadcast_c2] the operand's axis is '")
           << axis << "', expected none, size one or " << quoted(axisOf(target));
  return success();
}

LogicalResult GroupSumOp::verify() {
  StringRef fine = headsOf(getOperand().getType()), coarse = headsOf(getType());
  if (!headsDivide(coarse, fine))
    return emitOpError("[group_sum_c1] the head set of the result, '")
           << coarse << "', does not divide that of the operand, '" << fine << "'";
  if (withHeads(getOperand().getType(), coarse) != getType())
    return emitOpError("[group_sum_c2] the operand has type ")
           << getOperand().getType() << ", the result " << getType() << ", expected the same axis";
  return success();
}

LogicalResult ReduceOp::verify() {
  if (axisOf(getOperand().getType()).empty() || getType() != numberOf(getOperand()))
    return emitOpError("[reduce_c1] reduces ") << getOperand().getType() << " to " << getType()
                                               << ", expected a row with an axis and the number of its head set";
  return success();
}

LogicalResult SoftmaxOp::verify() {
  if (axisOf(getOperand().getType()).empty())
    return emitOpError("[softmax_c1] the operand is a number, expected a row with an axis");
  return success();
}

LogicalResult ConcatOp::verify() {
  Extent sum(0);
  for (Value operand : getOperands()) {
    if (headsOf(operand.getType()) != headsOf(getType()))
      return emitOpError("[concat_c1] the head set of an operand is '")
             << headsOf(operand.getType()) << "', that of the result '" << headsOf(getType()) << "'";
    sum = sum + widthOf(operand.getType());
  }
  if (!(sum == widthOf(getType())))
    return emitOpError("[concat_c2] the operands' sizes add up to '")
           << sum.str() << "', the result's is '" << widthOf(getType()).str() << "'";
  return success();
}

LogicalResult SliceOp::verify() {
  llvm::Expected<Extent> offset = Extent::parse(getOffset());
  if (!offset)
    return emitOpError("[slice_c1] ") << llvm::toString(offset.takeError());
  Extent width = widthOf(getOperand().getType()), end = *offset + widthOf(getType());
  if ((end - width).isPositive() || (Extent(0) - *offset).isPositive())
    return emitOpError("[slice_c2] takes entries '")
           << offset->str() << "' to '" << end.str() << "' of a row of size '" << width.str() << "'";
  if (headsOf(getOperand().getType()) != headsOf(getType()))
    return emitOpError("[slice_c3] the head set of the operand is '")
           << headsOf(getOperand().getType()) << "', that of the result '" << headsOf(getType()) << "'";
  return success();
}

LogicalResult DotOp::verify() {
  if (axisOf(getLeft().getType()).empty() || getType() != numberOf(getLeft()))
    return emitOpError("[dot_c1] multiplies rows of type ")
           << getLeft().getType() << " to " << getType()
           << ", expected rows with an axis and the number of their head set";
  return success();
}

/// Operands and result of a product of rows share one head set.
static LogicalResult verifyOneHeadSet(Operation *op, StringRef id) {
  StringRef heads = headsOf(op->getResult(0).getType());
  for (Value operand : op->getOperands())
    if (headsOf(operand.getType()) != heads)
      return op->emitOpError("[") << id << "] the head set of an operand is '" << headsOf(operand.getType())
                                  << "', that of the result '" << heads << "'";
  return success();
}

static LogicalResult verifyProduct(Operation *op, StringRef id, Type product, Type left, Type right) {
  Extent expected = widthOf(left) * widthOf(right);
  if (expected == widthOf(product))
    return success();
  return op->emitOpError("[") << id << "] the flattened size is '" << widthOf(product).str() << "', expected '"
                              << expected.str() << "'";
}

LogicalResult OuterOp::verify() {
  if (failed(verifyOneHeadSet(*this, "outer_c1")))
    return failure();
  return verifyProduct(*this, "outer_c2", getType(), getLeft().getType(), getRight().getType());
}

LogicalResult InnerOp::verify() {
  if (failed(verifyOneHeadSet(*this, "inner_c1")))
    return failure();
  return verifyProduct(*this, "inner_c2", getMatrix().getType(), getRow().getType(), getType());
}

LogicalResult ContractOp::verify() {
  auto encoding = cast<ParamAttr>(cast<RankedTensorType>(getParameter().getType()).getEncoding());
  if (encoding.getAxes().size() != 2)
    return emitOpError("[contract_c1] the parameter has ") << encoding.getAxes().size() << " axes, expected 2";
  StringRef contracted = encoding.getAxes()[getTranspose() ? 1 : 0], other = encoding.getAxes()[getTranspose() ? 0 : 1];
  if (!standsOn(axisOf(getRow().getType()), contracted) || !standsOn(axisOf(getType()), other))
    return emitOpError("[contract_c2] takes ")
           << quoted(axisOf(getRow().getType())) << " to " << quoted(axisOf(getType())) << ", the parameter takes '"
           << contracted << "' to '" << other << "'";
  StringRef heads = headsOf(getType());
  if (headsOf(getRow().getType()) != heads || !headsDivide(encoding.getHeads(), heads))
    return emitOpError("[contract_c3] the head sets of row, parameter and result are '")
           << headsOf(getRow().getType()) << "', '" << encoding.getHeads() << "' and '" << heads
           << "'; expected row and result to share one that the parameter's divides";
  return success();
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

void TableOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  static constexpr StringLiteral names[] = {"t", "h", "d"};
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, name);
}

static bool isArithmetic(Operation *op) {
  return isa_and_present<arith::ArithDialect, math::MathDialect>(op->getDialect()) || isa<scf::IfOp, scf::YieldOp>(op);
}

/// Applies `verify` to all operations inside of `op`, but to the terminator of its body.
static LogicalResult verifyBody(Operation *op, function_ref<LogicalResult(Operation *)> verify) {
  WalkResult result = op->getRegion(0).walk(
      [&](Operation *inner) -> WalkResult { return isa<YieldOp>(inner) ? success() : verify(inner); });
  return failure(result.wasInterrupted());
}

std::optional<int64_t> TableOp::getWholePeriod() {
  FloatAttr number;
  if (!getPeriod() || !matchPattern(getPeriod(), m_Constant(&number)))
    return std::nullopt;
  double period = number.getValueAsDouble();
  bool isWhole = period == std::floor(period) && period >= 1 && period < 0x1p53;
  return isWhole ? std::optional(static_cast<int64_t>(period)) : std::nullopt;
}

LogicalResult TableOp::verifyRegions() {
  Block &block = getBody().front();
  TypeRange arguments = block.getArgumentTypes(), yielded = block.getTerminator()->getOperandTypes();
  auto isReal = [](Type type) { return type.isF64(); };
  if (arguments.size() != 3 || yielded.size() != 1 || !llvm::all_of(arguments, isReal) ||
      !llvm::all_of(yielded, isReal))
    return emitOpError("[table_c1] has a body of (")
           << arguments << ") that yields (" << yielded << "), expected three arguments of type f64 and one f64";
  return verifyBody(getOperation(), [&](Operation *op) -> LogicalResult {
    bool plain = isArithmetic(op) || isa<OptionOp, OptionIsOp, SizeOp>(op);
    if (plain && llvm::none_of(op->getResultTypes(), llvm::IsaPred<ShapedType>))
      return success();
    return op->emitOpError("[table_c2] stands in a table, whose body holds arithmetic on real numbers, conditions, "
                           "options and sizes only");
  });
}

LogicalResult ConvOp::verify() {
  auto encoding = cast<ParamAttr>(cast<RankedTensorType>(getTaps().getType()).getEncoding());
  if (encoding.getAxes().size() != 2 || !standsOn(axisOf(getType()), encoding.getAxes()[0]))
    return emitOpError("[conv_c1] the taps have type ")
           << getTaps().getType() << ", expected two axes, the first " << quoted(axisOf(getType()));
  if (!headsDivide(encoding.getHeads(), headsOf(getType())))
    return emitOpError("[conv_c2] the head set of the taps, '")
           << encoding.getHeads() << "', does not divide that of the row, '" << headsOf(getType()) << "'";
  std::optional<int64_t> taps = extentOf(encoding.getAxes()[1]).constant();
  if (!taps || *taps < 1 || *taps > 64)
    return emitOpError("[conv_c3] the number of taps is '")
           << encoding.getAxes()[1].getValue() << "', expected a number from 1 to 64";
  return success();
}

LogicalResult DelayOp::verify() {
  if (getBy() > maximalDelay) // negative numbers are large ones here
    return emitOpError("[delay_c1] delays by ") << static_cast<int64_t>(getBy()) << ", expected 0 to " << maximalDelay;
  return success();
}

LogicalResult ScanOp::verify() {
  if (getLog() && getLog().getType() != getType())
    return emitOpError("[scan_c1] the log row has type ") << getLog().getType() << ", the operand " << getType();
  return success();
}

SmallVector<Type> LookbackOp::resultTypes(Fold fold, TypeRange yielded) {
  SmallVector<Type> types(yielded);
  if (types.empty())
    return types;
  if (fold == Fold::Softmax)
    types.insert(types.begin(), types.front()); // m and l
  if (fold == Fold::Divergence)
    types.push_back(types.back()); // kl beside the two log-sum-exps
  return types;
}

LogicalResult LookbackOp::verifyRegions() {
  Block &block = getBody().front();
  TypeRange arguments = block.getArgumentTypes(), yielded = block.getTerminator()->getOperandTypes();
  bool isSum = getFold() == Fold::Sum;
  bool isComplete = isSum ? !yielded.empty() : yielded.size() == 2;
  auto isRealRow = [](Type type) { return isRow(type) && getElementTypeOrSelf(type).isF64(); };
  if (!arguments.empty() || !isComplete || !llvm::all_of(yielded, isRealRow))
    return emitOpError("[lookback_c1] the body of a fold of kind ")
           << stringifyFold(getFold()) << " takes (" << arguments << ") and yields (" << yielded
           << "), expected no argument and " << (isSum ? "one row or more" : "two rows") << " of real numbers";
  for (auto [index, type] : llvm::enumerate(yielded)) {
    bool score = getFold() == Fold::Divergence || (getFold() == Fold::Softmax && index == 0);
    if (score && !axisOf(type).empty())
      return emitOpError("[lookback_c3] a score has the axis '") << axisOf(type) << "', expected a number";
    if (!isSum && headsOf(type) != headsOf(yielded.front()))
      return emitOpError("[lookback_c5] folds rows of the head sets '")
             << headsOf(yielded.front()) << "' and '" << headsOf(type) << "', expected one head set";
  }
  SmallVector<Type> expected = resultTypes(getFold(), yielded);
  if (!llvm::equal(expected, getResultTypes()))
    return emitOpError("[lookback_c2] the results have types (")
           << getResultTypes() << "), expected (" << expected << ")";
  return verifyBody(getOperation(), [&](Operation *op) -> LogicalResult {
    if (isArithmetic(op) ||
        isa<PastOp, OptionOp, OptionIsOp, PresentOp, SizeOp, ConstantOp, BroadcastOp, GroupSumOp, ReduceOp, SoftmaxOp,
            LogSigmoidOp, StopGradientOp, ConcatOp, SliceOp, DotOp, OuterOp, InnerOp, ContractOp>(op))
      return success();
    return op->emitOpError("[lookback_c4] stands in a look-back, whose body holds row operations only");
  });
}

LogicalResult PastOp::verify() {
  auto lookback = (*this)->getParentOfType<LookbackOp>();
  if (!lookback)
    return emitOpError("[past_c1] stands outside a look-back");
  if (lookback.getBody().isAncestor(getOperand().getParentRegion()))
    return emitOpError("[past_c1] the operand is defined inside the look-back, expected a row of the token");
  return success();
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

void StateOp::build(OpBuilder &builder, OperationState &state, Type type, StringRef name) {
  build(builder, state, type, builder.getStringAttr(name), /*entry=*/StringAttr(), /*column=*/IntegerAttr(),
        /*columns=*/IntegerAttr(), /*row=*/IntegerAttr(), /*rows=*/IntegerAttr());
}

LogicalResult StateOp::verify() {
  auto isWithin = [](int64_t from, int64_t size, int64_t all) {
    return from >= 0 && all >= from && (ShapedType::isDynamic(size) || size <= all - from);
  };
  int64_t column = getColumn(), columns = getColumns(), width = getType().getSecondSize();
  if (getEntry() && !isWithin(column, width, columns))
    return emitOpError("[state_c4] takes ") << width << " columns from column " << column << " of the " << columns
                                            << " columns of '" << *getEntry() << "'";
  int64_t row = getRow(), rows = getRows(), height = getType().getFirstSize();
  if (!getEntry() && (row || rows))
    return emitOpError("[state_c4] takes rows of no entry");
  if (rows && !isWithin(row, height, rows))
    return emitOpError("[state_c4] takes ")
           << height << " rows from row " << row << " of the " << rows << " rows of '" << *getEntry() << "'";
  return success();
}

LogicalResult DecayOp::verify() {
  StateType state = getState().getType();
  StringRef along = getAlong().value_or("");
  if (!along.empty() && !state.hasAxis(along))
    return emitOpError("[decay_c1] decays along '")
           << along << "', the axes of the state are '" << state.getFirst() << "' and '" << state.getSecond() << "'";
  if (axisOf(getAmount().getType()) != along)
    return emitOpError("[decay_c2] the amount's axis is ")
           << quoted(axisOf(getAmount().getType())) << ", expected " << quoted(along);
  if (!headsDivide(headsOf(getAmount().getType()), state.getHeads()))
    return emitOpError("[decay_c3] the head set of the amount, '")
           << headsOf(getAmount().getType()) << "', does not divide that of the state, '" << state.getHeads() << "'";
  return success();
}

LogicalResult WriteOp::verify() {
  StateType state = getState().getType();
  if (!standsOn(axisOf(getFirst().getType()), state.getFirst()))
    return emitOpError("[write_c1] the first row's axis is ")
           << quoted(axisOf(getFirst().getType())) << ", expected '" << state.getFirst() << "'";
  if (!standsOn(axisOf(getSecond().getType()), state.getSecond()))
    return emitOpError("[write_c2] the second row's axis is ")
           << quoted(axisOf(getSecond().getType())) << ", expected '" << state.getSecond() << "'";
  for (Value row : {getFirst(), getSecond()}) {
    StringRef heads = headsOf(row.getType());
    if (!headsDivide(heads, state.getHeads()) && !headsDivide(state.getHeads(), heads))
      return emitOpError("[write_c3] the head sets of a row and the state, '")
             << heads << "' and '" << state.getHeads() << "', cannot be compared";
  }
  if (getAt() && !state.getReverse())
    return emitOpError("[write_c4] writes at another token into a state that is carried forwards");
  return success();
}

LogicalResult ReadOp::verify() {
  StateType state = getState().getType();
  if (!state.hasAxis(getAlong()))
    return emitOpError("[read_c1] reads along '") << getAlong() << "', the axes of the state are '" << state.getFirst()
                                                  << "' and '" << state.getSecond() << "'";
  if (!standsOn(axisOf(getRow().getType()), getAlong()))
    return emitOpError("[read_c2] the row's axis is ")
           << quoted(axisOf(getRow().getType())) << ", expected '" << getAlong() << "'";
  if (!standsOn(axisOf(getType()), state.otherAxis(getAlong())))
    return emitOpError("[read_c3] the result's axis is ")
           << quoted(axisOf(getType())) << ", expected '" << state.otherAxis(getAlong()) << "'";
  std::string heads = joinHeads(headsOf(getRow().getType()), state.getHeads());
  if (getAt() && state.getReverse())
    return emitOpError("[read_c5] reads at an earlier token from a state that is carried backwards");
  if (headsOf(getType()) != heads)
    return emitOpError("[read_c4] the result's head set is '") << headsOf(getType()) << "', expected '" << heads << "'";
  return success();
}

LogicalResult PairOp::verify() {
  StateType state = getState().getType(), cotangent = getCotangent().getType();
  auto reversed = StateType::get(getContext(), state.getFirst(), state.getSecond(), state.getHeads(),
                                 state.getFirstSize(), state.getSecondSize(), /*reverse=*/true);
  if (state.getReverse() || cotangent != reversed)
    return emitOpError("[pair_c1] pairs ")
           << state << " with " << cotangent << ", expected a state that is carried forwards and the same backwards";
  StringRef along = getAlong().value_or("");
  if (!along.empty() && !state.hasAxis(along))
    return emitOpError("[pair_c2] pairs along '")
           << along << "', the axes of the states are '" << state.getFirst() << "' and '" << state.getSecond() << "'";
  if (axisOf(getType()) != along || headsOf(getType()) != state.getHeads())
    return emitOpError("[pair_c3] the result has type ")
           << getType() << ", expected the axis " << quoted(along) << " and the heads '" << state.getHeads() << "'";
  return success();
}
