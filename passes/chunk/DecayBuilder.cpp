//===- DecayBuilder.cpp - Products of decay factors -----------------------===//

#include "passes/chunk/DecayBuilder.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "passes/declaration/KernelNames.h"
#include <cmath>

using namespace mlir;
using namespace stretto;

DecayBuilder::ScaledRows DecayBuilder::scaledRows(Value rows) {
  SplatElementsAttr constant;
  if (auto product = rows.getDefiningOp<arith::MulFOp>();
      product && matchPattern(product.getRhs(), m_Constant(&constant)))
    if (double factor = constant.getSplatValue<APFloat>().convertToDouble(); factor > 0 && std::isfinite(factor))
      return {product.getLhs(), factor};
  return {rows};
}

Value DecayBuilder::asTheyCame(Value numbers) {
  auto widened = numbers.getDefiningOp<arith::ExtFOp>();
  return widened ? widened.getIn() : numbers;
}

Value DecayBuilder::accumulate(chunk::DecayForm form, Value amount, bool reverse, bool exclusive) {
  auto kind = form == chunk::DecayForm::Log ? chunk::Accumulation::Sum : chunk::Accumulation::Product;
  if (tokens == 1 && !exclusive)
    return amount;
  if (form == chunk::DecayForm::Log && gainsFromProduct(amount))
    return sumsByProduct(amount.getDefiningOp<arith::MaximumFOp>() ? amount : floored(amount), reverse, exclusive);
  return chunk::AccumulateOp::create(builder, amount.getType(), kind, amount, reverse, exclusive);
}

bool DecayBuilder::isOfOperands(Value numbers) {
  if (auto larger = numbers.getDefiningOp<arith::MaximumFOp>())
    return exactBound(larger, operandType) && isOfOperands(larger.getLhs());
  auto widened = numbers.getDefiningOp<arith::ExtFOp>();
  return widened && getElementTypeOrSelf(widened.getIn()) == operandType;
}

bool DecayBuilder::gainsFromProduct(Value numbers) {
  int64_t fewestRows = isOfOperands(numbers) ? 16 : 32;
  if (tokensAreInLanes(tileTypeOf(numbers)))
    return false;
  return operandType.getIntOrFloatBitWidth() == 16 && tileTypeOf(numbers).getRank() == 2 && tokens >= fewestRows;
}

Value DecayBuilder::sumsByProduct(Value numbers, bool reverse, bool exclusive) {
  RankedTensorType type = tileTypeOf(numbers);
  auto ones = DenseElementsAttr::get(type.clone({tokens, tokens}), APFloat(1.0f));
  Value triangle = causal(arith::ConstantOp::create(builder, ones), /*strict=*/exclusive);
  auto sum = [&](Value terms, Value before) -> Value {
    return chunk::DotOp::create(builder, type, triangle, terms, before, /*transpose_left=*/reverse,
                                /*transpose_right=*/false);
  };
  if (isOfOperands(numbers))
    return sum(numbers, {});
  Value most = rounded(numbers);
  return sum(rounded(sub(numbers, most)), sum(most, {}));
}

Value DecayBuilder::decays(chunk::DecayForm form, Value amount, bool reverse, bool exclusive) {
  Value result = accumulate(form, amount, reverse, exclusive);
  return form == chunk::DecayForm::Log ? exp(result) : result;
}

Value DecayBuilder::ofLater(chunk::DecayForm form, Value amount) {
  auto kind = form == chunk::DecayForm::Log ? chunk::Accumulation::Sum : chunk::Accumulation::Product;
  return chunk::AccumulateOp::create(builder, amount.getType(), kind, amount, /*reverse=*/true, /*exclusive=*/true);
}

Value DecayBuilder::ofAllTokens(Value accumulated) {
  RankedTensorType type = tileTypeOf(accumulated);
  return chunk::TotalOp::create(builder, type.clone(type.getShape().drop_front()), accumulated);
}

Value DecayBuilder::floored(Value amount) {
  return arith::MaximumFOp::create(builder, amount, splat(amount, chunk::noFactor));
}

Value DecayBuilder::splat(Value like, double number) {
  auto numbers = DenseElementsAttr::get(tileTypeOf(like), APFloat(static_cast<float>(number)));
  return arith::ConstantOp::create(builder, numbers);
}

Value DecayBuilder::zeros(Type type) {
  return arith::ConstantOp::create(builder, cast<TypedAttr>(builder.getZeroAttr(type)));
}

Value DecayBuilder::sumsOfTokens(chunk::DecayForm form, Value amount) {
  bool areEnough = form == chunk::DecayForm::Log && tileTypeOf(amount).getRank() == 1 && tokens > 1 &&
                   operandType.getIntOrFloatBitWidth() == 16;
  return areEnough ? binarySums(amount) : Value();
}

double DecayBuilder::factorLimit() {
  if (operandType.isF16())
    return std::exp(8.0);
  return std::exp(operandType.isBF16() ? 60.0 : 20.0);
}

double DecayBuilder::operandLimit() {
  return APFloat::getLargest(cast<FloatType>(operandType).getFloatSemantics()).convertToDouble();
}

Value DecayBuilder::lastOf(Value accumulated) {
  auto sums = accumulated.getDefiningOp<chunk::AccumulateOp>();
  if (sums && !sums.getExclusive() && tokensAreInLanes(tileTypeOf(accumulated)))
    return ofAllTokens(accumulated);
  return rowOf(accumulated, tokens - 1);
}

DecayBuilder::AroundMiddle DecayBuilder::aroundMiddle(chunk::DecayForm form, Value amount, bool before) {
  Value ofKeys = accumulate(form, amount, /*reverse=*/false, /*exclusive=*/false);
  Value ofQueries = before ? accumulate(form, amount, false, /*exclusive=*/true) : ofKeys;
  Value middle = repeat(rowOf(ofKeys, tokens / 2 - 1), tileTypeOf(amount), chunk::Side::Columns);
  auto ratio = [&](Value above, Value below) -> Value {
    if (form == chunk::DecayForm::Log)
      return exp(arith::SubFOp::create(builder, above, below));
    return arith::DivFOp::create(builder, above, below);
  };
  return {ratio(ofQueries, middle), ratio(middle, ofKeys)};
}

Value DecayBuilder::joinHalves(Value second, Value first, Value halved) {
  if (second == first)
    return second;
  return chunk::JoinHalvesOp::create(builder, second.getType(), second, first, halved, tokens);
}

Value DecayBuilder::toMiddle(const Decayed &decayed, Value halved) {
  // First, so that what else is taken of the sums comes from where other threads find them.
  Value middle = chunk::MiddleOp::create(builder, decayed.sums.getType(), decayed.sums, halved, tokens);
  Value own = decayed.sums;
  if (decayed.before)
    own = sub(own, joinHalves(binaryLogs(again(decayed.amount)), zeros(own.getType()), halved));
  return exp2(arith::NegFOp::create(builder, math::AbsFOp::create(builder, sub(own, middle))));
}

DecayBuilder::Decayed DecayBuilder::decayOf(Value amount, bool before, const KnownLogs &known) {
  if (known.sums)
    return {amount, toBaseTwo(known.sums), before, known.areNear};
  amount = again(amount);
  return {amount, binarySums(amount), before, known.areNear};
}

Value DecayBuilder::overSizes(Value sizes, Type type, function_ref<Value(Value tile, Value halved)> next) {
  auto loop = scf::ForOp::create(builder, indexOf(0), sizes, indexOf(1), zeros(type));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  scf::YieldOp::create(builder, next(loop.getRegionIterArg(0), loop.getInductionVar()));
  return loop.getResult(0);
}

DecayBuilder::RowsOfHalves DecayBuilder::rowsOfHalves(Value query, Value key) {
  RowsOfHalves rows = {.queries = scaledRows(query), .keys = scaledRows(key), .second = {}, .first = {}};
  rows.second = asTheyCame(rows.queries.rows);
  rows.first = asTheyCame(rows.keys.rows);
  if (rows.second.getType() != rows.first.getType())
    std::tie(rows.second, rows.first) = std::pair(rows.queries.rows, rows.keys.rows);
  return rows;
}

Value DecayBuilder::dotByHalves(Value query, Value key, const Decayed &decayed) {
  RankedTensorType type = tileTypeOf(query).clone({tokens, tokens});
  Type element = type.getElementType();
  auto dot = [&](Value left, Value right) -> Value {
    return chunk::DotOp::create(builder, type, left, right, Value(), false, /*transpose_right=*/true);
  };
  // Constant factors are those of the products.
  RowsOfHalves rowsOf = rowsOfHalves(query, key);
  const auto &[queries, keys, second, first] = rowsOf;
  auto meetInHalves = [&](Value others, Value halved) -> Value {
    Value joined = widened(joinHalves(second, first, halved), element);
    Value rows = rounded(mul(joined, toMiddle(decayed, halved)));
    return chunk::MeetOp::create(builder, type, dot(rows, rows), others, halved, tokens, /*whole=*/false);
  };
  // Of the chunk itself as a block, and of so many sizes in all.
  auto inHalves = [&](Value sizes) { return overSizes(sizes, type, meetInHalves); };
  double factor = queries.factor * keys.factor;
  Value allSizes = indexOf(llvm::Log2_64(tokens));
  // What reads before its own token has logarithms of its own for that, beside which registers do not suffice for more.
  if (decayed.before)
    return times(inHalves(allSizes), factor);

  // Those of a small block are near enough, as a rule, that one product of rows around its middle has all pairs. Tested
  // first, as sums take the registers of what is tested.
  Value inRange = decayed.areNear ? decayed.areNear : areNear(decayed.amount, rowsOf);
  Value largeSizes = indexOf(llvm::Log2_64(tokens / rescaledTokens));
  Value others = inHalves(arith::SelectOp::create(builder, inRange, largeSizes, allSizes));
  auto meet = [&](Value products, int64_t block, bool whole) -> Value {
    return chunk::MeetOp::create(builder, type, products, others, /*halved=*/Value(), block, whole);
  };
  auto together = [&]() -> Value {
    Value middle =
        chunk::MiddleOp::create(builder, decayed.sums.getType(), decayed.sums, /*halved=*/Value(), rescaledTokens);
    Value logs = sub(decayed.sums, middle);
    Value query = rounded(mul(queries.rows, exp2(logs)));
    Value key = rounded(mul(keys.rows, exp2(arith::NegFOp::create(builder, logs))));
    return meet(dot(query, key), rescaledTokens, /*whole=*/true);
  };
  auto ofThemselves = [&] {
    return meet(dot(rounded(queries.rows), rounded(keys.rows)), /*block=*/1, /*whole=*/false);
  };
  return times(choose(inRange, type, together, ofThemselves), factor);
}

Value DecayBuilder::sumsByHalves(Value weights, Value rows, bool transpose, const Decayed &decayed) {
  Value given = asTheyCame(weights);
  bool areOperands = getElementTypeOrSelf(given) == operandType;
  Value met = areOperands ? given : weights;
  // The gradient of a decay is a difference of sums, which those of operands without their rests would not leave.
  auto bothParts = [&](Value whole) -> Operand {
    Value most = rounded(whole);
    return {whole, most, rounded(sub(whole, most))};
  };
  auto next = [&](Value others, Value halved) {
    Value factors = toMiddle(decayed, halved);
    Value pairs = widened(chunk::MeetOp::create(builder, met.getType(), met, zeros(met.getType()), halved, tokens,
                                                /*whole=*/false),
                          tileTypeOf(weights).getElementType());
    // Each turn takes rows from where they lie. Where nothing decays numbers of operands are multiplied, whose products
    // fp32 has: what both sums have of them cancels.
    Value sum = product(areOperands ? Operand{pairs, pairs, Value()} : bothParts(pairs),
                        bothParts(mul(rounded(again(rows)), factors)), rows.getType(), /*addend=*/Value(), transpose,
                        /*transposeRight=*/false);
    return add(others, mul(sum, factors));
  };
  return overSizes(indexOf(llvm::Log2_64(tokens)), rows.getType(), next);
}

Value DecayBuilder::ofItself(Value weights, Value rows) {
  RankedTensorType type = tileTypeOf(weights);
  Value own =
      chunk::MeetOp::create(builder, type, weights, zeros(type), /*halved=*/Value(), /*block=*/1, /*whole=*/false);
  Value numbers =
      chunk::ReduceOp::create(builder, type.clone({tokens}), chunk::Reduction::Sum, own, chunk::Side::Columns);
  return scaleRows(rows, repeat(numbers, tileTypeOf(rows), chunk::Side::Rows));
}

Value DecayBuilder::areNear(Value amount, const RowsOfHalves &rows) {
  constexpr int64_t half = rescaledTokens / 2;
  double mostOfToken = std::min(std::log(factorLimit()) / static_cast<double>(half), -chunk::noFactor);
  double mostOfRow = operandLimit() / factorLimit();
  return chunk::WithinOp::create(builder, ValueRange{asTheyCame(amount), rows.second, rows.first},
                                 ArrayRef{mostOfToken, mostOfRow, mostOfRow});
}

SmallVector<Value> DecayBuilder::choose(Value inRange, TypeRange types, function_ref<SmallVector<Value>()> plain,
                                        function_ref<SmallVector<Value>()> exact) {
  if (!inRange)
    return plain();
  auto choice = scf::IfOp::create(builder, types, inRange, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(builder, plain());
  builder.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(builder, exact());
  return choice.getResults();
}

Value DecayBuilder::choose(Value inRange, Type type, function_ref<Value()> plain, function_ref<Value()> exact) {
  auto only = [](function_ref<Value()> form) { return [=]() -> SmallVector<Value> { return {form()}; }; };
  return choose(inRange, TypeRange(type), only(plain), only(exact)).front();
}

Value DecayBuilder::choose(Value inRange, Operation *op, function_ref<Value()> plain) {
  return choose(inRange, op->getResult(0).getType(), plain, [&] { return exactly(builder.clone(*op)); });
}

Value DecayBuilder::exactly(Operation *op) {
  op->setAttr(chunk::exactAttribute, builder.getUnitAttr());
  return op->getResult(0);
}

Value DecayBuilder::exactly(chunk::DecayDotOp scores, const KnownLogs &known) {
  if (!gainsFromHalves(scores.getForm()))
    return exactly(builder.clone(*scores));
  return dotByHalves(scores.getQuery(), scores.getKey(), decayOf(scores.getAmount(), scores.getBefore(), known));
}

Value DecayBuilder::exactTotal(chunk::DecayTotalsOp op, Value weights, bool ofKeys) {
  if (gainsFromHalves(op.getForm()))
    return mul(
        rounded(ofKeys ? op.getKey() : op.getQuery()),
        sumsByHalves(weights, ofKeys ? op.getQuery() : op.getKey(), ofKeys, decayOf(op.getAmount(), op.getBefore())));
  Value query = rounded(op.getQuery()), key = rounded(op.getKey());
  Value strict = causal(weights, /*strict=*/true);
  auto mix = chunk::DecayMixOp::create(builder, query.getType(), strict, ofKeys ? query : key, op.getForm(),
                                       op.getAmount(), Value(), op.getBefore(), /*transpose=*/ofKeys);
  return mul(ofKeys ? key : query, exactly(mix));
}

Value DecayBuilder::rounded(Value rows) {
  RankedTensorType type = tileTypeOf(rows);
  if (operandType.getIntOrFloatBitWidth() >= type.getElementTypeBitWidth())
    return rows;
  Value operand = arith::TruncFOp::create(builder, type.clone(operandType), rows);
  return arith::ExtFOp::create(builder, type, operand);
}

bool DecayBuilder::isOfOneRecurrence(chunk::KernelOp kernel) {
  // A walk back has the state of reverse time beside that of the walk forward.
  constexpr int64_t mostStates = 2;
  auto isInverse = [](chunk::ArgumentAttr argument) {
    return argument.getName().getValue().starts_with(inversePrefix);
  };
  bool solves = !kernel.getOps<chunk::InverseOp>().empty() || !kernel.getOps<chunk::SolveOp>().empty() ||
                llvm::any_of(kernel.getArguments().getAsRange<chunk::ArgumentAttr>(), isInverse);
  // Sums that are gradients of parameters are vectors.
  auto matricesOf = [&](chunk::ArgumentKind kind) {
    return llvm::count_if(kernel.argumentsOf(kind),
                          [](BlockArgument argument) { return tileTypeOf(argument).getRank() == 2; });
  };
  int64_t states = matricesOf(chunk::ArgumentKind::State) + matricesOf(chunk::ArgumentKind::Checkpoint);
  return !solves && states <= (kernel.getReverse() ? mostStates : 1);
}

DecayBuilder::Operand DecayBuilder::operandOf(Value whole) {
  Value part = rounded(whole);
  if (!multipliesRests)
    return {whole, part, Value()};
  // In a walk back several products have a rest, which is stored for all of them.
  Value rest = sub(whole, part);
  return {whole, part, isReverse ? rounded(rest) : rest};
}

Value DecayBuilder::product(const Operand &left, const Operand &right, Type type, Value addend, bool transposeLeft,
                            bool transposeRight) {
  auto dot = [&](Value left, Value right, Value addend) -> Value {
    return chunk::DotOp::create(builder, type, left, right, addend, transposeLeft, transposeRight);
  };
  Value sum = addend;
  if (left.rest)
    sum = dot(left.rest, right.rounded, sum);
  if (right.rest)
    sum = dot(left.rounded, right.rest, sum);
  return dot(left.rounded, right.rounded, sum);
}

Value DecayBuilder::scoresOf(Operand query, const Operand &key, Type type) {
  if (!isReverse)
    query.rest = {};
  return product(query, key, type, /*addend=*/Value(), /*transposeLeft=*/false, /*transposeRight=*/true);
}

void DecayBuilder::multiplyBothParts(Value whole, std::optional<Operand> known) {
  if (!multipliesRests)
    return;
  for (OpOperand &use : llvm::make_early_inc_range(whole.getUses())) {
    auto product = dyn_cast<chunk::DotOp>(use.getOwner());
    if (!product || use.getOperandNumber() != 0)
      continue;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(product);
    Operand parts = known ? *known : operandOf(whole);
    auto ofRest = cast<chunk::DotOp>(builder.clone(*product));
    ofRest.getLeftMutable().assign(parts.rest);
    product.getLeftMutable().assign(parts.rounded);
    product.getAddendMutable().assign(ofRest);
  }
}

Value DecayBuilder::again(Value numbers) {
  Operation *made = numbers.getDefiningOp();
  bool isScaled = isa_and_nonnull<arith::MulFOp>(made) && matchPattern(made->getOperand(1), m_Constant());
  if (!isScaled && !isa_and_nonnull<arith::ExtFOp, chunk::MaskOp>(made))
    return chunk::AgainOp::create(builder, numbers);
  IRMapping mapping;
  mapping.map(made->getOperand(0), again(made->getOperand(0)));
  return builder.clone(*made, mapping)->getResult(0);
}

Value DecayBuilder::widened(Value rows, Type element) {
  RankedTensorType type = tileTypeOf(rows);
  return type.getElementType() == element ? rows
                                          : arith::ExtFOp::create(builder, type.clone(element), rows).getResult();
}
