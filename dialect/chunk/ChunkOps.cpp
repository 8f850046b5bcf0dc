//===- ChunkOps.cpp - The chunk dialect: verifiers ------------------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace stretto::chunk;

/// What is added has the type of the sum.
static ParseResult parseSumType(OpAsmParser &parser, Type &sum, std::optional<OpAsmParser::UnresolvedOperand> addend,
                                Type &addendType) {
  if (parser.parseType(sum))
    return failure();
  if (addend)
    addendType = sum;
  return success();
}

static void printSumType(OpAsmPrinter &printer, Operation *, Type sum, Value, Type) { printer << sum; }

#define GET_OP_CLASSES
#include "dialect/chunk/ChunkOps.cpp.inc"

static ArrayRef<int64_t> shapeOf(Value value) { return cast<ShapedType>(value.getType()).getShape(); }

LogicalResult BroadcastOp::verify() {
  ArrayRef<int64_t> source = shapeOf(getOperand()), target = shapeOf(getResult());
  if (getElementTypeOrSelf(getOperand()) != getElementTypeOrSelf(getResult()))
    return emitOpError("[broadcast_c1] changes the element type");
  if (source.empty())
    return success();
  size_t kept = getAlong() == Side::Rows ? 0 : 1;
  if (source.size() != 1 || target.size() != 2 || source[0] != target[kept])
    return emitOpError("[broadcast_c2] the operand has shape ")
           << getOperand().getType() << ", expected one number for each " << (kept ? "column" : "row") << " of "
           << getType();
  return success();
}

LogicalResult ColumnsOp::verify() {
  ArrayRef<int64_t> source = shapeOf(getOperand()), target = shapeOf(getResult());
  bool column = source.size() == 2 && target.size() == 1 && target[0] == source[0]; // one column of a tile
  bool same = source.size() == target.size() && source.drop_back() == target.drop_back();
  int64_t width = column ? 1 : target.empty() ? 0 : target.back();
  int64_t from = getFrom();
  if (source.empty() || !(column || same) || from < 0 || from + width > source.back())
    return emitOpError("[columns_c1] takes ")
           << getType() << " from column " << from << " of " << getOperand().getType();
  return success();
}

LogicalResult ConcatOp::verify() {
  int64_t width = 0;
  for (Value operand : getOperands()) {
    ArrayRef<int64_t> shape = shapeOf(operand);
    if (shape.empty() || shape[0] != shapeOf(getResult())[0] ||
        getElementTypeOrSelf(operand) != getElementTypeOrSelf(getResult()))
      return emitOpError("[concat_c1] an operand has type ") << operand.getType() << ", the result " << getType();
    width += shape.size() == 2 ? shape[1] : 1;
  }
  if (width != shapeOf(getResult())[1])
    return emitOpError("[concat_c2] the operands have ") << width << " columns, the result " << shapeOf(getResult())[1];
  return success();
}

LogicalResult DotOp::verify() {
  ArrayRef<int64_t> left = shapeOf(getLeft()), right = shapeOf(getRight()), result = shapeOf(getResult());
  int64_t rows = left[getTransposeLeft() ? 1 : 0], inner = left[getTransposeLeft() ? 0 : 1];
  int64_t columns = right[getTransposeRight() ? 0 : 1], otherInner = right[getTransposeRight() ? 1 : 0];
  if (inner != otherInner || result[0] != rows || result[1] != columns)
    return emitOpError("[dot_c1] multiplies ")
           << rows << "x" << inner << " by " << otherInner << "x" << columns << " to " << getType();
  if (getAddend() && getAddend().getType() != getType())
    return emitOpError("[dot_c2] adds ") << getAddend().getType() << " to " << getType();
  Type element = getElementTypeOrSelf(getLeft());
  if (element != getElementTypeOrSelf(getRight()) ||
      element.getIntOrFloatBitWidth() > getElementTypeOrSelf(getResult()).getIntOrFloatBitWidth())
    return emitOpError("[dot_c3] multiplies ")
           << element << " by " << getElementTypeOrSelf(getRight()) << " to " << getElementTypeOrSelf(getResult());
  return success();
}

LogicalResult SolveOp::verify() {
  ArrayRef<int64_t> matrix = shapeOf(getMatrix()), rows = shapeOf(getRows());
  if (matrix[0] != rows[0] || matrix[1] != rows[0] ||
      getElementTypeOrSelf(getMatrix()) != getElementTypeOrSelf(getRows()))
    return emitOpError("[solve_c1] solves ") << getMatrix().getType() << " for " << getRows().getType();
  return success();
}

LogicalResult InverseOp::verify() {
  if (shapeOf(getMatrix())[0] != shapeOf(getMatrix())[1])
    return emitOpError("[inverse_c1] inverts ") << getMatrix().getType() << ", expected as many rows as columns";
  return success();
}

Value InverseOp::solve(OpBuilder &builder) {
  auto square = cast<RankedTensorType>(getType());
  Value ones = arith::ConstantOp::create(
      builder, getLoc(), DenseElementsAttr::get(square, builder.getFloatAttr(square.getElementType(), 1.0)));
  Value upToRow = CausalOp::create(builder, getLoc(), square, ones, /*strict=*/false);
  Value beforeRow = CausalOp::create(builder, getLoc(), square, ones, /*strict=*/true);
  Value identity = arith::SubFOp::create(builder, getLoc(), upToRow, beforeRow);
  return SolveOp::create(builder, getLoc(), square, getMatrix(), identity, /*transpose=*/false);
}

LogicalResult ReduceOp::verify() {
  size_t kept = getOver() == Side::Columns ? 0 : 1;
  if (shapeOf(getResult())[0] != shapeOf(getOperand())[kept] ||
      getElementTypeOrSelf(getResult()) != getElementTypeOrSelf(getOperand()))
    return emitOpError("[reduce_c1] reduces ")
           << getOperand().getType() << " over " << stringifySide(getOver()) << " to " << getType();
  return success();
}

LogicalResult CausalOp::verify() {
  if (shapeOf(getOperand())[0] != shapeOf(getOperand())[1])
    return emitOpError("[causal_c1] the operand has type ") << getType() << ", expected as many rows as columns";
  return success();
}

LogicalResult MaskOp::verify() {
  if (shapeOf(getOperand()).empty())
    return emitOpError("[mask_c1] the operand has type ") << getType() << ", which has no rows";
  return success();
}

void MaskOp::build(OpBuilder &builder, OperationState &state, Value operand, Value valid, double otherwise) {
  build(builder, state, operand.getType(), operand, valid, builder.getF64FloatAttr(otherwise));
}

/// Whether an operand has more bits than the result.
static bool hasWiderOperand(Operation *op) {
  auto bitsOf = [](Type type) { return getElementTypeOrSelf(type).getIntOrFloatBitWidth(); };
  return llvm::any_of(op->getOperandTypes(),
                      [&](Type type) { return bitsOf(type) > bitsOf(op->getResult(0).getType()); });
}

/// Rows before the chunk are taken from the tail as others are from the operand.
static LogicalResult verifyOneType(Operation *op, StringRef constraint, Value operand, Value tail) {
  Type expected = getElementTypeOrSelf(operand), found = getElementTypeOrSelf(tail);
  if (found == expected)
    return success();
  return op->emitOpError("[") << constraint << "] has a tail of " << found << ", expected " << expected
                              << " as of the operand";
}

LogicalResult DelayOp::verify() {
  ArrayRef<int64_t> tail = shapeOf(getTail());
  if (tail[1] != shapeOf(getOperand())[1])
    return emitOpError("[delay_c1] has an operand of type ")
           << getOperand().getType() << " and a tail of type " << getTail().getType();
  if (int64_t by = getBy(); by < 0 || by > tail[0])
    return emitOpError("[delay_c2] delays by ") << by << ", the tail has " << tail[0] << " rows";
  if (shapeOf(getResult()) != shapeOf(getOperand()) || hasWiderOperand(*this))
    return emitOpError("[delay_c3] has operands of types ")
           << getOperand().getType() << " and " << getTail().getType() << " and a result of type " << getType();
  return verifyOneType(*this, "delay_c4", getOperand(), getTail());
}

LogicalResult ConvOp::verify() {
  ArrayRef<int64_t> operand = shapeOf(getOperand()), taps = shapeOf(getTaps()), tail = shapeOf(getTail());
  if (taps[0] != operand[1] || tail[1] != operand[1] || tail[0] < taps[1] - 1)
    return emitOpError("[conv_c1] has an operand of type ")
           << getOperand().getType() << ", taps of type " << getTaps().getType() << " and a tail of type "
           << getTail().getType();
  if (shapeOf(getResult()) != operand || hasWiderOperand(*this))
    return emitOpError("[conv_c2] has a result of type ")
           << getType() << ", expected the shape of the operand of type " << getOperand().getType()
           << " and elements as wide as those of any operand";
  return verifyOneType(*this, "conv_c3", getOperand(), getTail());
}

LogicalResult ConvBackOp::verify() {
  ArrayRef<int64_t> operand = shapeOf(getOperand()), taps = shapeOf(getTaps()), carry = shapeOf(getCarry());
  if (taps[0] != operand[1] || carry[1] != operand[1] || carry[0] != taps[1] - 1)
    return emitOpError("[conv_back_c1] has an operand of type ")
           << getOperand().getType() << ", taps of type " << getTaps().getType() << " and a carry of type "
           << getCarry().getType();
  if (shapeOf(getResult()) != operand || getElementTypeOrSelf(getResult()) != getElementTypeOrSelf(getOperand()))
    return emitOpError("[conv_back_c2] has a result of type ")
           << getResult().getType() << ", expected the shape and elements of the operand of type "
           << getOperand().getType();
  return success();
}

LogicalResult ConvTapsOp::verify() {
  ArrayRef<int64_t> weights = shapeOf(getWeights()), operand = shapeOf(getOperand()), tail = shapeOf(getTail()),
                    result = shapeOf(getResult());
  bool sharesChannels = weights[1] == operand[1] && tail[1] == operand[1] && result[0] == operand[1];
  if (!sharesChannels || tail[0] < result[1] - 1)
    return emitOpError("[conv_taps_c1] has weights of type ")
           << getWeights().getType() << ", an operand of type " << getOperand().getType() << ", a tail of type "
           << getTail().getType() << " and a result of type " << getType();
  if (weights[0] != operand[0] || hasWiderOperand(*this))
    return emitOpError("[conv_taps_c2] has weights of type ")
           << getWeights().getType() << ", an operand of type " << getOperand().getType() << " and a result of type "
           << getType() << ", expected as many rows and elements of the result as wide as those of any operand";
  return verifyOneType(*this, "conv_taps_c3", getOperand(), getTail());
}

LogicalResult TailOp::verify() {
  if (shapeOf(getTail())[1] != shapeOf(getOperand())[1] ||
      getElementTypeOrSelf(getTail()) != getElementTypeOrSelf(getOperand()))
    return emitOpError("[tail_c1] has an operand of type ")
           << getOperand().getType() << " and a tail of type " << getTail().getType();
  return success();
}

LogicalResult ScanOp::verify() {
  // On a GPU the layouts of the two differ.
  ArrayRef<int64_t> operand = shapeOf(getOperand()), carry = shapeOf(getCarry());
  if (carry[0] != 1 || carry[1] != operand[1] || getElementTypeOrSelf(getCarry()) != getElementTypeOrSelf(getOperand()))
    return emitOpError("[scan_c1] has an operand of type ")
           << getOperand().getType() << " and a carry of type " << getCarry().getType();
  if (getLog() && getLog().getType() != getOperand().getType())
    return emitOpError("[scan_c2] has an operand of type ")
           << getOperand().getType() << " and logarithms of type " << getLog().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

/// An amount is one number for each token, or one for each token and channel.
static LogicalResult verifyAmount(Operation *op, StringRef id, Value amount, std::optional<int64_t> tokens,
                                  int64_t channels) {
  ArrayRef<int64_t> shape = shapeOf(amount);
  bool fits = shape.size() == 1 || (shape.size() == 2 && shape[1] == channels);
  if (fits && (!tokens || shape[0] == *tokens))
    return success();
  return op->emitOpError("[") << id << "] the amount has type " << amount.getType()
                              << ", expected one number for each of " << (tokens ? Twine(*tokens) + " " : Twine("the "))
                              << "tokens, or for each token and " << channels << " channels";
}

LogicalResult DecayDotOp::verify() {
  ArrayRef<int64_t> query = shapeOf(getQuery()), result = shapeOf(getResult());
  // They may be in different places.
  bool areAlike = query == shapeOf(getKey()) && getElementTypeOrSelf(getQuery()) == getElementTypeOrSelf(getKey());
  if (!areAlike || result[0] != query[0] || result[1] != query[0])
    return emitOpError("[decay_dot_c1] multiplies ")
           << getQuery().getType() << " by " << getKey().getType() << " to " << getType();
  return verifyAmount(*this, "decay_dot_c2", getAmount(), query[0], query[1]);
}

LogicalResult DecayMixOp::verify() {
  ArrayRef<int64_t> weights = shapeOf(getWeights()), rows = shapeOf(getRows());
  if (weights[0] != rows[0] || weights[1] != rows[0] ||
      getElementTypeOrSelf(getWeights()) != getElementTypeOrSelf(getRows()) || rows != shapeOf(getResult()) ||
      getElementTypeOrSelf(getRows()).getIntOrFloatBitWidth() > getElementTypeOrSelf(getType()).getIntOrFloatBitWidth())
    return emitOpError("[decay_mix_c1] mixes ")
           << getRows().getType() << " by " << getWeights().getType() << " to " << getType();
  if (getAddend() && getAddend().getType() != getType())
    return emitOpError("[decay_mix_c3] adds ") << getAddend().getType() << " to " << getType();
  return verifyAmount(*this, "decay_mix_c2", getAmount(), rows[0], rows[1]);
}

/// Of what sums over pairs of tokens, `weights` what the two have in common.
template <typename PairsOp> static LogicalResult verifyPairs(PairsOp op, StringRef weightsId, StringRef amountId) {
  ArrayRef<int64_t> weights = shapeOf(op.getWeights()), rows = shapeOf(op.getQuery()), amount = shapeOf(op.getAmount());
  if (weights[0] != rows[0] || weights[1] != rows[0] ||
      getElementTypeOrSelf(op.getWeights()) != getElementTypeOrSelf(op.getQuery()))
    return op.emitOpError("[") << weightsId << "] weighs rows of " << op.getQuery().getType() << " by "
                               << op.getWeights().getType();
  if (amount != rows)
    return op.emitOpError("[") << amountId << "] has an amount of type " << op.getAmount().getType()
                               << ", expected a number for each of " << rows[0] << " tokens and " << rows[1]
                               << " channels";
  return success();
}

LogicalResult DecayPairsOp::verify() {
  if (failed(verifyPairs(*this, "decay_pairs_c1", "decay_pairs_c2")))
    return failure();
  ArrayRef<int64_t> rows = shapeOf(getQuery());
  for (Value other : {getSeen(), getKept(), getEnds()})
    if (other && (shapeOf(other) != (other == getEnds() ? rows.drop_front() : rows) ||
                  getElementTypeOrSelf(other) != getElementTypeOrSelf(getQuery())))
      return emitOpError("[decay_pairs_c3] has rows of ")
             << getQuery().getType() << " and of the states " << other.getType();
  return success();
}

Value DecayPairsOp::inParts(OpBuilder &builder) {
  Location location = getLoc();
  RankedTensorType type = getType(), square = getWeights().getType();
  Value amount = getAmount(), sum;
  auto ones = [&](RankedTensorType of) -> Value {
    return arith::ConstantOp::create(builder, location,
                                     DenseElementsAttr::get(of, builder.getFloatAttr(of.getElementType(), 1)));
  };
  auto times = [&](Value x, Value y) -> Value { return arith::MulFOp::create(builder, location, x, y); };
  auto fromStart = [&](Value rows) -> Value {
    return DecayFromStartOp::create(builder, location, type, rows, getForm(), amount, /*before=*/true);
  };
  auto toEnd = [&](Value rows) -> Value {
    return DecayToEndOp::create(builder, location, type, rows, getForm(), amount);
  };
  auto mixed = [&](Value rows, bool before, bool transpose) -> Value {
    return DecayMixOp::create(builder, location, type, ones(square), rows, getForm(), amount, Value(), before,
                              transpose);
  };
  auto add = [&](Value part) { sum = sum ? arith::AddFOp::create(builder, location, sum, part).getResult() : part; };
  if (getEnds())
    add(times(BroadcastOp::create(builder, location, type, getEnds(), Side::Columns), fromStart(toEnd(ones(type)))));
  if (getSeen())
    add(fromStart(mixed(times(getQuery(), getSeen()), /*before=*/false, /*transpose=*/true)));
  if (getKept())
    add(toEnd(mixed(times(getKey(), getKept()), /*before=*/true, /*transpose=*/false)));
  add(DecayPairsOp::create(builder, location, type, getQuery(), getKey(), getWeights(), getForm(), amount, Value(),
                           Value(), Value()));
  return sum;
}

LogicalResult DecayTotalsOp::verify() { return verifyPairs(*this, "decay_totals_c1", "decay_totals_c2"); }

std::pair<DecayMixOp, DecayMixOp> DecayTotalsOp::mix(OpBuilder &builder, Value query, Value key) {
  auto strict = CausalOp::create(builder, getLoc(), getWeights().getType(), getWeights(), /*strict=*/true);
  auto mixOf = [&](Value rows, bool transpose) {
    return DecayMixOp::create(builder, getLoc(), getQuery().getType(), strict, rows, getForm(), getAmount(), Value(),
                              getBefore(), transpose);
  };
  DecayMixOp ofQueries = mixOf(key, /*transpose=*/false);
  return {ofQueries, mixOf(query, /*transpose=*/true)};
}

LogicalResult DecayFromStartOp::verify() {
  return verifyAmount(*this, "decay_from_start_c1", getAmount(), shapeOf(getOperand())[0], shapeOf(getOperand())[1]);
}

LogicalResult DecayToEndOp::verify() {
  return verifyAmount(*this, "decay_to_end_c1", getAmount(), shapeOf(getOperand())[0], shapeOf(getOperand())[1]);
}

LogicalResult DecayStateOp::verify() {
  ArrayRef<int64_t> state = shapeOf(getState());
  if (state.empty() || (state.size() == 1 && getAlong() == Side::Columns))
    return emitOpError("[decay_state_c1] decays ") << getState().getType() << " along " << stringifySide(getAlong());
  return verifyAmount(*this, "decay_state_c2", getAmount(), std::nullopt, state[getAlong() == Side::Rows ? 0 : 1]);
}

//===----------------------------------------------------------------------===//
// What decay is made of
//===----------------------------------------------------------------------===//

LogicalResult AccumulateOp::verify() {
  if (shapeOf(getOperand()).empty())
    return emitOpError("[accumulate_c1] the operand has type ") << getType() << ", which has no tokens";
  return success();
}

LogicalResult TotalOp::verify() {
  auto made = getAccumulated().getDefiningOp<AccumulateOp>();
  if (!made || shapeOf(getAccumulated()).drop_front() != shapeOf(getResult()) ||
      getElementTypeOrSelf(getAccumulated()) != getElementTypeOrSelf(getResult()))
    return emitOpError("[total_c1] takes ")
           << getType() << " of " << getAccumulated().getType() << (made ? "" : ", which no chunk.accumulate makes");
  return success();
}

LogicalResult RowOp::verify() {
  ArrayRef<int64_t> source = shapeOf(getOperand());
  int64_t at = getAt();
  if (source.empty() || source.drop_front() != shapeOf(getResult()) || at < 0 || at >= source[0] ||
      getElementTypeOrSelf(getOperand()) != getElementTypeOrSelf(getResult()))
    return emitOpError("[row_c1] takes ") << getType() << " at row " << at << " of " << getOperand().getType();
  return success();
}

/// Whether blocks of a power of two of tokens divide a tile: of two or more, where they are to have halves.
static LogicalResult verifyBlock(Operation *op, StringRef constraint, int64_t block, Value tile, bool hasHalves) {
  if (block >= (hasHalves ? 2 : 1) && llvm::isPowerOf2_64(block) && shapeOf(tile)[0] % block == 0)
    return success();
  return op->emitOpError("[") << constraint << "] has blocks of " << block << " tokens, expected a power of two"
                              << (hasHalves ? ", 2 or more," : "") << " that divides " << shapeOf(tile)[0];
}

LogicalResult MeetOp::verify() {
  if (shapeOf(getOperand())[0] != shapeOf(getOperand())[1])
    return emitOpError("[meet_c1] the operand has type ") << getType() << ", expected as many rows as columns";
  return verifyBlock(*this, "meet_c2", getBlock(), getOperand(), /*hasHalves=*/false);
}

/// Whether an operation makes a tile of the shape and element type of one that it takes, wherever both are.
static LogicalResult verifyLikeOperand(Operation *op, StringRef constraint, Value tile) {
  Value result = op->getResult(0);
  if (shapeOf(result) == shapeOf(tile) && getElementTypeOrSelf(result) == getElementTypeOrSelf(tile))
    return success();
  return op->emitOpError("[") << constraint << "] makes " << result.getType() << " of " << tile.getType();
}

LogicalResult MiddleOp::verify() {
  if (failed(verifyLikeOperand(*this, "middle_c2", getOperand())))
    return failure();
  return verifyBlock(*this, "middle_c1", getBlock(), getOperand(), /*hasHalves=*/true);
}

LogicalResult JoinHalvesOp::verify() {
  if (failed(verifyLikeOperand(*this, "join_halves_c2", getSecond())))
    return failure();
  return verifyBlock(*this, "join_halves_c1", getBlock(), getSecond(), /*hasHalves=*/true);
}

LogicalResult DecayMatrixOp::verify() {
  int64_t tokens = shapeOf(getAmount())[0];
  if (shapeOf(getResult()) != ArrayRef<int64_t>{tokens, tokens} ||
      getElementTypeOrSelf(getAmount()) != getElementTypeOrSelf(getResult()))
    return emitOpError("[decay_matrix_c1] makes ") << getType() << " of " << getAmount().getType();
  return success();
}

void WithinOp::build(OpBuilder &builder, OperationState &state, ValueRange operands, ArrayRef<double> limits,
                     bool rising) {
  state.addOperands(operands);
  state.addTypes(builder.getI1Type());
  auto &properties = state.getOrAddProperties<Properties>();
  properties.limits = builder.getDenseF64ArrayAttr(limits);
  if (rising)
    properties.rising = builder.getUnitAttr();
}

LogicalResult WithinOp::verify() {
  if (getLimits().size() != getOperands().size())
    return emitOpError("[within_c1] has ")
           << getOperands().size() << " operands and " << getLimits().size() << " limits";
  if (getRising() && (getOperands().empty() || shapeOf(getOperands().front()).size() != 2))
    return emitOpError("[within_c2] has no matrix for its first operand, expected one whose magnitudes rise");
  return success();
}
