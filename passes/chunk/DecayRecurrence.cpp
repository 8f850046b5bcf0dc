//===- DecayRecurrence.cpp - What decays with a state's channels ----------===//

#include "passes/chunk/DecayRecurrence.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace stretto;

template <typename Ops> bool DecayRecurrence::meetsState(const Ops &ops) {
  meetings = {};
  return !ops.empty() && llvm::all_of(ops, [&](auto op) { return meetsState(op.getOperand(), op.getResult()); });
}

bool DecayRecurrence::meetsState(Value rows, Value decayed) {
  Meetings found;
  if (!isOfState(rows, found)) {
    found = {};
    auto isMeeting = [&](OpOperand &use) {
      if (use.getOperandNumber() == 0 && isProduct(use.getOwner(), state.getAlong() != chunk::Side::Rows, found))
        return true;
      OpOperand *column = isa<arith::MulFOp>(use.getOwner()) ? findColumn(use.getOwner()) : nullptr;
      return column && (found.columns.push_back(column), true);
    };
    if (!llvm::all_of(decayed.getUses(), isMeeting))
      return false;
  }
  meetings.products.append(found.products);
  meetings.columns.append(found.columns);
  return true;
}

bool DecayRecurrence::isOfState(Value rows, Meetings &found) {
  if (!rows.hasOneUse())
    return false;
  if (isProduct(rows.getDefiningOp(), state.getAlong() == chunk::Side::Rows, found))
    return true;
  auto sum = rows.getDefiningOp<arith::AddFOp>();
  if (!sum)
    return false;
  if (OpOperand *column = findColumn(sum)) {
    found.columns.push_back(column);
    return isOfState(sum->getOperand(1 - column->getOperandNumber()), found);
  }
  for (unsigned side : {0, 1})
    if (auto scaled = sum->getOperand(side).getDefiningOp<arith::MulFOp>(); scaled && scaled->hasOneUse())
      if (OpOperand *column = findColumn(scaled)) {
        found.columns.push_back(column);
        return isOfState(sum->getOperand(1 - side), found);
      }
  return false;
}

bool DecayRecurrence::isProduct(Operation *op, bool transposed, Meetings &found) {
  auto dot = dyn_cast_if_present<chunk::DotOp>(op);
  bool isOfState = dot && dot.getRight() == state.getState() && !dot.getAddend() && !dot.getTransposeLeft() &&
                   dot.getTransposeRight() == transposed;
  return isOfState && (found.products.push_back(dot), true);
}

OpOperand *DecayRecurrence::findColumn(Operation *op) {
  for (OpOperand &operand : op->getOpOperands())
    if (auto row = operand.get().getDefiningOp<chunk::BroadcastOp>(); row && row.getAlong() == chunk::Side::Columns)
      if (llvm::any_of(columns, [&](chunk::DecayStateOp column) { return column.getState() == row.getOperand(); }))
        return &operand;
  return nullptr;
}

std::optional<DecayRecurrence> DecayRecurrence::of(chunk::DecayStateOp state) {
  DecayRecurrence result;
  result.state = state;
  auto isColumn = [&](chunk::DecayStateOp op) {
    return DecayBuilder::tileTypeOf(op.getState()).getRank() == 1 && op.getForm() == state.getForm() &&
           op.getAlong() == state.getAlong();
  };
  result.first = state;
  std::optional<bool> before;
  auto isAlike = [&](bool own) { return before.value_or(own) == own && (before = own, true); };
  for (Operation *user : state.getAmount().getUsers()) {
    if (state->getBlock()->findAncestorOpInBlock(*user) != user)
      continue; // formed by itself where something is out of range
    bool isOwn =
        llvm::TypeSwitch<Operation *, bool>(user)
            .Case([&](chunk::DecayStateOp op) {
              return op == state || (isColumn(op) && (result.columns.push_back(op), true));
            })
            .Case([&](chunk::DecayDotOp op) { return result.scores.push_back(op), isAlike(op.getBefore()); })
            .Case([&](chunk::DecayMixOp op) { return result.mixes.push_back(op), isAlike(op.getBefore()); })
            .Case([&](chunk::DecayTotalsOp op) { return result.totals.push_back(op), isAlike(op.getBefore()); })
            .Case([&](chunk::DecayFromStartOp op) { return result.fromStart.push_back(op), isAlike(op.getBefore()); })
            .Case([&](chunk::DecayToEndOp op) { return result.toEnd.push_back(op), true; })
            .Case([](chunk::DecayPairsOp) { return false; })
            .Default(true);
    if (!isOwn)
      return std::nullopt;
    result.first = user->isBeforeInBlock(result.first) ? user : result.first;
  }
  result.before = before.value_or(false);
  if (result.scores.empty() && result.mixes.empty() && result.totals.empty())
    return std::nullopt;
  if (!result.meetsState(result.fromStart)) {
    result.isMetAtEnd = true;
    // No row meets it where segments leave what the next ones begin with.
    bool isOnlyWritten = result.toEnd.empty() && state->getParentOfType<chunk::KernelOp>().getReverse();
    if (!isOnlyWritten && !result.meetsState(result.toEnd))
      return std::nullopt;
  }
  result.findWhatIsBehind();
  return result;
}

void DecayRecurrence::findWhatIsBehind() {
  ForwardSliceOptions options;
  options.inclusive = true;
  auto add = [&](const auto &ops) {
    for (Operation *op : ops)
      getForwardSlice(op, &behind, options);
  };
  add(scores);
  add(mixes);
  add(totals);
  add(fromStart);
  add(toEnd);
  add(meetings.products);
  for (OpOperand *column : meetings.columns)
    add(ArrayRef{column->getOwner()});
  add(ArrayRef{state});
  add(columns);
}

bool DecayRecurrence::feedsItself() {
  RecurrenceExpander::RescaledRows rows = RecurrenceExpander::rowsOf(*this);
  auto isAnyBehind = [&](const RecurrenceExpander::RescaledRows::Side &side) {
    return llvm::any_of(side.rows, [&](Value row) { return isBehind(row); });
  };
  return isAnyBehind(rows.queries) || isAnyBehind(rows.keys);
}

void DecayRecurrence::erase() {
  auto eraseAll = [](auto &ops) {
    for (auto op : ops)
      op.erase();
  };
  // Sums before what they are added to.
  eraseAll(mixes);
  eraseAll(totals);
  eraseAll(scores);
  eraseAll(fromStart);
  eraseAll(toEnd);
  for (chunk::DotOp read : ofBranches)
    if (read->use_empty())
      read->erase();
  eraseAll(columns);
  state.erase();
}

//===----------------------------------------------------------------------===//
// Rescaled rows
//===----------------------------------------------------------------------===//

/// Products never rise in magnitude: queries of the first token have the largest factors, or keys of the last. A sum
/// over tokens of products of weights and rows that these multiply is finite, too.
static constexpr double mostGrownRow = 0x1p14, mostWeightOfGrown = 0x1p20;

RecurrenceExpander::RescaledRows RecurrenceExpander::rowsOf(DecayRecurrence &ops) {
  RescaledRows rows;
  auto addPair = [&](auto op) {
    rows.queries.rows.insert(op.getQuery());
    rows.keys.rows.insert(op.getKey());
  };
  llvm::for_each(ops.scores, addPair);
  llvm::for_each(ops.totals, addPair);
  for (chunk::DecayMixOp op : ops.mixes)
    (op.getTranspose() ? rows.queries : rows.keys).rows.insert(op.getRows());
  for (chunk::DecayMixOp op : ops.mixes)
    rows.weights[op.getWeights()] = {};
  for (chunk::DecayTotalsOp op : ops.totals)
    rows.weights[op.getWeights()] = {};
  for (RescaledRows::Side *side : {&rows.queries, &rows.keys}) {
    auto factorOf = [](Value row) { return scaledRows(row).factor; };
    if (!side->rows.empty() && llvm::all_equal(llvm::map_range(side->rows, factorOf)))
      side->factor = factorOf(side->rows.front());
  }
  return rows;
}

Value RecurrenceExpander::within(DecayRecurrence &ops, const RescaledRows &rows, ValueRange factors,
                                 ArrayRef<double> limits, bool rising) {
  SmallVector<Value> tested(factors);
  SmallVector<double> most(limits);
  auto test = [&](Value value, double limit) {
    tested.push_back(value);
    most.push_back(limit);
  };
  double grown = rows.weights.empty() ? operandLimit() / factorLimit() : mostGrownRow;
  const RescaledRows::Side &growing = ops.isMetAtEnd ? rows.keys : rows.queries;
  for (const RescaledRows::Side *side : {&rows.queries, &rows.keys})
    for (Value row : side->rows) {
      ScaledRows scaled = side->factor == 1 ? ScaledRows{row} : scaledRows(row);
      bool grows = side == &growing;
      // What shrinks stays as finite as it came.
      if (grows || std::abs(scaled.factor) > 1)
        test(asTheyCame(scaled.rows), std::min((grows ? grown : operandLimit()) / scaled.factor, operandLimit()));
    }
  for (auto &[weights, known] : rows.weights)
    if (!ops.isBehind(weights))
      test(weights, mostWeightOfGrown);
  return chunk::WithinOp::create(builder, tested, most, rising);
}

Value RecurrenceExpander::withinSums(DecayRecurrence &ops, const RescaledRows &rows) {
  SmallVector<Value> tested;
  for (auto &[weights, known] : rows.weights)
    if (ops.isBehind(weights))
      tested.push_back(weights);
  Value inRange = rows.rescaling.inRange;
  if (tested.empty())
    return inRange;
  SmallVector<double> most(tested.size(), mostWeightOfGrown);
  return arith::AndIOp::create(builder, inRange, chunk::WithinOp::create(builder, tested, most));
}

RecurrenceExpander::Rescaling RecurrenceExpander::rescaledByLogs(DecayRecurrence &ops, const RescaledRows &rows) {
  Value amount = ops.state.getAmount(), sums, last, inRange, near;
  if (gainsFromProduct(amount) && isOfOperands(amount) && rows.weights.empty()) {
    // A product of the logarithms as they came is finite where they are, which its range tells. Rows would wait for
    // weights, where these are tested, too. No logarithm is more than 0: the sums of the last token, which have all of
    // them, are the largest, and infinite, or no numbers, where one of them is.
    Value asGiven = sumsByProduct(amount, /*reverse=*/false, /*exclusive=*/false);
    inRange = within(ops, rows, asGiven, std::log(factorLimit()), /*rising=*/true);
    auto exactSums = [&] { return sumsOfLogs(amount); };
    if (ops.scores.size() == 1 && !ops.before && gainsFromHalves(chunk::DecayForm::Log)) {
      // Where no logarithm is floored these sums are those of floored ones. Products by halves ask for that in any
      // case.
      chunk::DecayDotOp scores = ops.scores.front();
      auto plain = [&]() -> SmallVector<Value> {
        return {arith::ConstantIntOp::create(builder, 0, /*width=*/1), asGiven};
      };
      auto exact = [&]() -> SmallVector<Value> {
        Value isNear = areNear(amount, rowsOfHalves(scores.getQuery(), scores.getKey()));
        return {isNear, choose(isNear, asGiven.getType(), [&] { return asGiven; }, exactSums)};
      };
      SmallVector<Value> chosen = choose(inRange, {builder.getI1Type(), asGiven.getType()}, plain, exact);
      std::tie(near, sums) = std::pair(chosen[0], chosen[1]);
    } else {
      sums = choose(inRange, asGiven.getType(), [&] { return asGiven; }, exactSums);
    }
    last = toBaseTwo(lastOf(sums));
  } else {
    sums = sumsOfLogs(amount);
    last = toBaseTwo(lastOf(sums));
    inRange = within(ops, rows, last, std::log2(factorLimit()));
  }
  Value upTo = ops.before ? sub(sums, floored(amount)) : sums;
  // What the state decays by before it is met.
  Value ofState = arith::SelectOp::create(builder, inRange, last, splat(last, 0));
  // Constant factors of rows are exponents, too.
  auto factors = [&](double sign, Value logs, Value from, double factor) -> Value {
    Value offset = from ? from : splat(last, 0);
    if (factor != 1)
      offset = from ? sub(from, splat(from, -std::log2(factor))) : splat(last, std::log2(factor));
    Value offsets = repeat(offset, tileTypeOf(logs), chunk::Side::Columns);
    return exp2(math::FmaOp::create(builder, logs, splat(logs, sign * llvm::numbers::log2e), offsets));
  };
  Value ofQueries = factors(1, upTo, ops.isMetAtEnd ? Value() : arith::NegFOp::create(builder, ofState).getResult(),
                            rows.queries.factor);
  Value ofKeys = factors(-1, sums, ops.isMetAtEnd ? sub(last, ofState) : last, rows.keys.factor);
  return {inRange, ofQueries, ofKeys, exp2(ofState), exp2(last), /*sumsInRange=*/{}, {sums, near}};
}

bool RecurrenceExpander::canExpectRange(DecayRecurrence &ops, const RescaledRows &rows) {
  return !ops.isMetAtEnd && !isReverse && ops.scores.size() == 1 && ops.totals.empty() && rows.weights.empty() &&
         gainsFromProduct(ops.state.getAmount());
}

RecurrenceExpander::Rescaling RecurrenceExpander::rescaledWithin(DecayRecurrence &ops, const RescaledRows &rows) {
  chunk::DecayForm form = ops.state.getForm();
  bool isLog = form == chunk::DecayForm::Log;
  Value amount = ops.state.getAmount(), later = ofLater(form, amount), total = ofAllTokens(later);
  // Products in range have inverses, of which no division by large numbers has to take care.
  auto inverseOf = [&](Value products, double factor) -> Value {
    return arith::DivFOp::create(builder, splat(products, factor), products, arith::FastMathFlags::afn);
  };
  // Rows are asked first, while numbers that are to be accumulated are on their way. The total is infinite, or none,
  // where one of the amounts is. Among factors above 1, or below 0, products might rise.
  Value areRowsInRange, isTotalInRange;
  if (isLog) {
    areRowsInRange = within(ops, rows, {}, {});
    isTotalInRange = chunk::WithinOp::create(builder, total, std::log(factorLimit()));
  } else {
    auto mask = amount.getDefiningOp<chunk::MaskOp>();
    Value given = asTheyCame(mask ? mask.getOperand() : amount);
    areRowsInRange = within(ops, rows, given, 1.0);
    isTotalInRange = chunk::WithinOp::create(builder, inverseOf(total, 1), factorLimit());
  }
  chunk::ExpectOp::create(builder, arith::AndIOp::create(builder, areRowsInRange, isTotalInRange));
  Value upTo = !ops.before ? later : isLog ? add(later, amount) : mul(later, amount); // where queries read
  if (!isLog)
    return {/*inRange=*/{},
            inverseOf(upTo, rows.queries.factor),
            times(later, rows.keys.factor),
            total,
            total,
            /*sumsInRange=*/{},
            /*known=*/{}};
  auto factors = [&](Value logs, double sign, double factor) {
    return exp2(
        math::FmaOp::create(builder, logs, splat(logs, sign * llvm::numbers::log2e), splat(logs, std::log2(factor))));
  };
  Value ofState = exp2(toBaseTwo(total));
  return {/*inRange=*/{},
          factors(upTo, -1, rows.queries.factor),
          factors(later, 1, rows.keys.factor),
          ofState,
          ofState,
          /*sumsInRange=*/{},
          /*known=*/{}};
}

RecurrenceExpander::Rescaling RecurrenceExpander::rescaledByFactors(DecayRecurrence &ops, const RescaledRows &rows) {
  Value amount = ops.state.getAmount();
  Value products = accumulate(chunk::DecayForm::Factor, amount, /*reverse=*/false, /*exclusive=*/false);
  Value upTo = ops.before ? accumulate(chunk::DecayForm::Factor, amount, false, /*exclusive=*/true) : products;
  Value last = lastOf(products), one = splat(last, 1);
  Value inverse = arith::DivFOp::create(builder, one, last);
  auto mask = amount.getDefiningOp<chunk::MaskOp>();
  Value given = asTheyCame(mask ? mask.getOperand() : amount);
  Value inRange = within(ops, rows, {inverse, given}, {factorLimit(), 1.0});
  auto chosen = [&](Value factor) -> Value { return arith::SelectOp::create(builder, inRange, factor, one); };
  auto columns = [&](Value vector) { return repeat(vector, tileTypeOf(amount), chunk::Side::Columns); };
  Value anchor = ops.isMetAtEnd ? one : chosen(inverse);
  Value ofQueries = mul(upTo, columns(times(anchor, rows.queries.factor)));
  auto ratios = [&]() -> Value {
    return arith::DivFOp::create(builder, columns(ops.isMetAtEnd ? one : last), products);
  };
  auto later = [&]() -> Value {
    return accumulate(chunk::DecayForm::Factor, amount, /*reverse=*/true, /*exclusive=*/true);
  };
  Value ofKeys = times(choose(inRange, products.getType(), ratios, later), rows.keys.factor);
  return {inRange, ofQueries, ofKeys, chosen(last), last, /*sumsInRange=*/{}, /*known=*/{}};
}

void RecurrenceExpander::rescale(RescaledRows &rows, bool before) {
  for (auto &[weights, known] : rows.weights)
    known = operandOf(causal(weights, before));
  auto rescaleAll = [&](RescaledRows::Side &side, Value factors) {
    for (Value row : side.rows) {
      side.rescaled[row] = operandOf(mul(side.factor == 1 ? row : scaledRows(row).rows, factors));
    }
    side.factors = factors;
  };
  rescaleAll(rows.queries, rows.rescaling.ofQueries);
  rescaleAll(rows.keys, rows.rescaling.ofKeys);
}

DecayBuilder::Operand RecurrenceExpander::rescaled(const RescaledRows::Side &side, Value rows) {
  Operand known = side.rescaled.lookup(rows);
  return known.whole ? known : operandOf(mul(rows, times(side.factors, 1 / side.factor)));
}

Value RecurrenceExpander::unscaled(const RescaledRows::Side &side, Value rows) {
  if (side.factor == 1)
    return rows;
  return side.rows.contains(rows) ? scaledRows(rows).rows : times(rows, 1 / side.factor);
}

std::optional<RecurrenceExpander::Total> RecurrenceExpander::findTotal(chunk::DecayMixOp op,
                                                                       ArrayRef<chunk::DecayTotalsOp> totals) {
  bool ofKeys = op.getTranspose();
  for (chunk::DecayTotalsOp total : totals) {
    Value rows = ofKeys ? total.getQuery() : total.getKey(), own = ofKeys ? total.getKey() : total.getQuery();
    Value result = ofKeys ? total.getOfKeys() : total.getOfQueries();
    if (total.getWeights() != op.getWeights() || rows != op.getRows() || !result.hasOneUse())
      continue;
    auto sum = dyn_cast<arith::AddFOp>(*result.user_begin());
    auto product = sum ? sum.getLhs().getDefiningOp<arith::MulFOp>() : arith::MulFOp();
    if (product && product.getLhs() == own && product.getRhs() == op.getAddend())
      return Total{total, sum};
  }
  return std::nullopt;
}

void RecurrenceExpander::mixOfRescaled(chunk::DecayMixOp op, DecayRecurrence &ops, const RescaledRows &rows) {
  bool ofKeys = op.getTranspose();
  const RescaledRows::Side &owns = ofKeys ? rows.keys : rows.queries, &others = ofKeys ? rows.queries : rows.keys;
  Operand operand = rescaled(others, op.getRows());
  auto [factor, factors] = std::pair(owns.factor, owns.factors);
  Operation *decayed = op.getAddend() ? op.getAddend().getDefiningOp() : nullptr;
  bool isOwn = ofKeys ? llvm::is_contained(ops.toEnd, decayed) : llvm::is_contained(ops.fromStart, decayed);
  Value seen = isOwn ? decayed->getOperand(0) : Value();
  std::optional<Total> total = isOwn ? findTotal(op, ops.totals) : std::nullopt;
  Value ownRows = !total ? Value() : ofKeys ? total->op.getKey() : total->op.getQuery();
  auto totalWith = [&](Value sum, Value scaledSum) {
    return totalOf(unscaled(owns, ownRows), rescaled(owns, ownRows), sum, scaledSum);
  };
  Operand weights = rows.weights.lookup(op.getWeights());
  // What is read of the state is a product for itself, to which branches add: in each of them where it is one of what
  // memory has, and nothing else asks for it, so that nobody waits for it before.
  auto ofState = isOwn ? seen.getDefiningOp<chunk::DotOp>() : chunk::DotOp();
  auto isAsked = [&](Operation *user) { return user == op || (total && user == total->sum.getLhs().getDefiningOp()); };
  bool isOfBranches =
      ofState && ofState->hasOneUse() && llvm::all_of(decayed->getUsers(), isAsked) &&
      llvm::all_of(ofState->getOperands(), [](Value operand) { return !asTheyCame(operand).getDefiningOp(); });
  if (isOfBranches)
    ops.ofBranches.push_back(ofState);
  auto seenInBranch = [&]() -> Value { return isOfBranches ? builder.clone(*ofState)->getResult(0) : seen; };
  auto plain = [&, factors = factors]() -> SmallVector<Value> {
    Value sum =
        product(weights, operand, op.getType(), seenInBranch(), /*transposeLeft=*/ofKeys, /*transposeRight=*/false);
    SmallVector<Value> results = {mul(sum, factors)};
    if (total)
      results.push_back(totalWith(sum, results[0]));
    return results;
  };
  auto exact = [&, factor = factor, factors = factors]() -> SmallVector<Value> {
    Value ofOthers, sum;
    if (gainsFromHalves(op.getForm())) {
      ofOthers = sumsByHalves(weights.rounded, op.getRows(), ofKeys, decayOf(op.getAmount(), op.getBefore()));
      sum = op.getBefore() ? ofOthers : add(ofOthers, ofItself(weights.rounded, op.getRows()));
    } else {
      auto mix = cast<chunk::DecayMixOp>(builder.clone(*op));
      mix.getAddendMutable().clear();
      mix.getWeightsMutable().assign(weights.rounded);
      sum = exactly(mix);
    }
    SmallVector<Value> results = {times(sum, factor)};
    Value seen = seenInBranch();
    Value ofSeen = seen ? mul(seen, factors) : Value();
    if (seen)
      results[0] = add(ofSeen, results[0]);
    if (total)
      results.push_back(add(totalWith(seen, ofSeen), ofOthers ? mul(rounded(ownRows), ofOthers)
                                                              : exactTotal(total->op, weights.rounded, ofKeys)));
    return results;
  };
  SmallVector<Type, 2> types(total ? 2 : 1, op.getType());
  SmallVector<Value> results = choose(rows.rescaling.sumsInRange, types, plain, exact);
  Value result = results[0];
  if (op.getAddend() && !seen)
    result = add(result, times(op.getAddend(), factor));
  // The gradient of rows that are scaled is scaled, too.
  auto scaled = op->hasOneUse() ? dyn_cast<arith::MulFOp>(*op->user_begin()) : arith::MulFOp();
  auto replace = [](Operation *op, Value value) {
    op->replaceAllUsesWith(ValueRange(value));
    op->erase();
  };
  if (scaled && scaledRows(scaled).factor == factor && factor != 1)
    replace(scaled, result);
  else
    op.replaceAllUsesWith(times(result, 1 / factor));
  op.getAddendMutable().clear();
  if (total) {
    Operation *product = total->sum.getLhs().getDefiningOp();
    replace(total->sum, results[1]);
    if (product->use_empty())
      product->erase();
  }
}

void RecurrenceExpander::totalOfRescaled(chunk::DecayTotalsOp op, bool ofKeys, const RescaledRows &rows) {
  Value result = ofKeys ? op.getOfKeys() : op.getOfQueries();
  if (result.use_empty())
    return;
  const RescaledRows::Side &owns = ofKeys ? rows.keys : rows.queries;
  Value own = ofKeys ? op.getKey() : op.getQuery();
  Operand others = ofKeys ? rescaled(rows.queries, op.getQuery()) : rescaled(rows.keys, op.getKey());
  Operand weights = rows.weights.lookup(op.getWeights());
  if (!op.getBefore())
    for (Value *part : {&weights.whole, &weights.rounded, &weights.rest})
      *part = *part ? causal(*part, /*strict=*/true) : Value();
  auto plain = [&] {
    Value sum = product(weights, others, result.getType(), /*addend=*/Value(), /*transposeLeft=*/ofKeys,
                        /*transposeRight=*/false);
    return totalOf(unscaled(owns, own), rescaled(owns, own), sum, mul(sum, owns.factors));
  };
  result.replaceAllUsesWith(choose(rows.rescaling.sumsInRange, result.getType(), plain,
                                   [&] { return exactTotal(op, weights.rounded, ofKeys); }));
}

Value RecurrenceExpander::meetingItself(chunk::DecayDotOp op, Value scores) {
  auto product = op->hasOneUse() ? dyn_cast<chunk::DotOp>(*op->user_begin()) : chunk::DotOp();
  if (!product || product.getLeft() != op.getResult() || product.getTransposeLeft() || !product->hasOneUse())
    return scores;
  auto sum = dyn_cast<arith::AddFOp>(*product->user_begin());
  auto own = sum ? sum.getRhs().getDefiningOp<arith::MulFOp>() : arith::MulFOp();
  auto weights = own ? own.getLhs().getDefiningOp<chunk::BroadcastOp>() : chunk::BroadcastOp();
  bool areOfTokens = weights && weights.getAlong() == chunk::Side::Rows &&
                     tileTypeOf(weights.getOperand()).getRank() == 1 && sum.getLhs() == product.getResult() &&
                     own.getRhs() == product.getRight() && !product.getTransposeRight() && own->hasOneUse();
  if (!areOfTokens)
    return scores;
  Value ofTokens = repeat(weights.getOperand(), op.getType(), chunk::Side::Rows);
  sum.replaceAllUsesWith(product.getResult());
  sum.erase();
  own.erase();
  // A token meets itself in a block of one.
  return chunk::MeetOp::create(builder, op.getType(), ofTokens, scores, /*halved=*/Value(), /*block=*/1,
                               /*whole=*/false);
}

void RecurrenceExpander::giveBack(chunk::DecayStateOp state, Value met, Value factors) {
  bool isAlongRows = state.getAlong() == chunk::Side::Rows;
  chunk::Side others = isAlongRows ? chunk::Side::Columns : chunk::Side::Rows;
  for (OpOperand &use : llvm::make_early_inc_range(state.getState().getUses())) {
    Operation *user = use.getOwner();
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(user);
    auto inverse = [&]() -> Value { return arith::DivFOp::create(builder, splat(factors, 1), factors); };
    // What sums over the other axis has the factors of its own results.
    bool isNested = user->getBlock() != state->getBlock();
    auto dot = dyn_cast<chunk::DotOp>(user);
    auto sum = user->hasOneUse() ? dyn_cast<chunk::ReduceOp>(*user->user_begin()) : chunk::ReduceOp();
    bool isProduct =
        isNested && dot && use.getOperandNumber() == 1 && !dot.getAddend() && dot.getTransposeRight() == isAlongRows;
    bool isSum = isa<arith::MulFOp>(user) && sum && sum.getKind() == chunk::Reduction::Sum && sum.getOver() == others;
    if (!isNested && !isSum)
      continue;
    if (!isProduct && !isSum) {
      use.set(mul(met, repeat(inverse(), tileTypeOf(met), state.getAlong())));
      continue;
    }
    use.set(met);
    Value result = isProduct ? dot.getResult() : sum.getResult();
    builder.setInsertionPointAfterValue(result);
    Value scaled = mul(result, repeat(inverse(), tileTypeOf(result), chunk::Side::Columns));
    result.replaceAllUsesExcept(scaled, scaled.getDefiningOp());
  }
}

void RecurrenceExpander::expand(DecayRecurrence ops, bool within) {
  RescaledRows rows = rowsOf(ops);
  bool isAlone = ops.mixes.empty() && ops.totals.empty();
  // Where a normaliser goes back beside its state, ordinary decays would pay for it with spills.
  hasRoomForHalves = isAlone || (hasRoomForHalves && ops.columns.empty());
  bool isLog = ops.state.getForm() == chunk::DecayForm::Log;
  rows.rescaling = within && canExpectRange(ops, rows) ? rescaledWithin(ops, rows)
                   : isLog                             ? rescaledByLogs(ops, rows)
                                                       : rescaledByFactors(ops, rows);
  rows.rescaling.sumsInRange = withinSums(ops, rows);
  rescale(rows, ops.before);
  const auto &[inRange, ofQueries, ofKeys, ofState, total, sumsInRange, known] = rows.rescaling;
  for (chunk::DecayDotOp op : ops.scores) {
    auto plain = [&] {
      Operand query = rescaled(rows.queries, op.getQuery()), key = rescaled(rows.keys, op.getKey());
      return causal(scoresOf(query, key, op.getType()), op.getBefore());
    };
    auto exact = [&, known = known] { return exactly(op, isAlone ? known : KnownLogs()); };
    Value scores = choose(inRange, op.getType(), plain, exact);
    if (ops.before && !isReverse)
      scores = meetingItself(op, scores);
    op.replaceAllUsesWith(scores);
    multiplyBothParts(scores);
  }
  auto decayed = [&](Value state, Value factors) {
    bool isColumn = tileTypeOf(state).getRank() == 1;
    return mul(state, isColumn ? factors : repeat(factors, tileTypeOf(state), ops.state.getAlong()));
  };
  auto replaceState = [&, total = total](chunk::DecayStateOp op, Value met) {
    auto asMet = [&] { return met; };
    op.replaceAllUsesWith(choose(inRange, met.getType(), asMet, [&] { return decayed(met, total); }));
  };
  Value met = decayed(ops.state.getState(), ofState);
  for (chunk::DotOp product : ops.meetings.products)
    product.getRightMutable().assign(met);
  giveBack(ops.state, met, ofState);
  replaceState(ops.state, met);
  for (chunk::DecayStateOp column : ops.columns) {
    Value met = decayed(column.getState(), ofState);
    for (OpOperand *row : ops.meetings.columns)
      if (row->get().getDefiningOp<chunk::BroadcastOp>().getOperand() == column.getState())
        row->set(repeat(met, tileTypeOf(row->get()), chunk::Side::Columns));
    replaceState(column, met);
  }
  for (chunk::DecayMixOp op : ops.mixes)
    mixOfRescaled(op, ops, rows);
  for (chunk::DecayTotalsOp op : ops.totals)
    for (bool isOfKeys : {false, true})
      totalOfRescaled(op, isOfKeys, rows);
  // Products multiply what is rounded.
  auto replace = [&](auto op, const RescaledRows::Side &side) {
    if (op->use_empty())
      return;
    Operand operand = rescaled(side, op.getOperand());
    // Of the pairs at the start of a chunk what queries read is taken away again.
    if (isReverse && ops.before && isa<chunk::DecayFromStartOp>(op))
      multiplyBothParts(op.getResult(), operand);
    op.getResult().replaceUsesWithIf(operand.rounded, [](OpOperand &use) { return isa<chunk::DotOp>(use.getOwner()); });
    op.replaceAllUsesWith(operand.whole);
  };
  for (chunk::DecayFromStartOp op : ops.fromStart)
    replace(op, rows.queries);
  for (chunk::DecayToEndOp op : ops.toEnd)
    replace(op, rows.keys);
  ops.erase();
}
