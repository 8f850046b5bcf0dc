//===- ExpandDecay.cpp - How products of decay factors are formed ---------===//

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"
#include "passes/Passes.h"
#include "passes/chunk/InputType.h"
#include <cmath>

namespace stretto {
#define GEN_PASS_DEF_EXPANDDECAY
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

RankedTensorType tileTypeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

class DecayExpander {
public:
  DecayExpander(chunk::KernelOp kernel, Operation *op)
      : builder(op->getLoc(), op), tokens(kernel.getChunk()), operandType(inputTypeOf(kernel)) {}

  /// `y_id = x_id prod_{u<=i} a_ud`
  Value fromStart(chunk::DecayFromStartOp op) {
    if (Value sums = sumsOfTokens(op.getForm(), op.getAmount()))
      return scaleRows(op.getOperand(), exp2(op.getBefore() ? sub(sums, binaryLogs(op.getAmount())) : sums));
    return scaleRows(op.getOperand(), decays(op.getForm(), op.getAmount(), /*reverse=*/false, op.getBefore()));
  }

  Value toEnd(chunk::DecayToEndOp op) {
    if (Value sums = sumsOfTokens(op.getForm(), op.getAmount())) {
      Value last = repeat(rowOf(sums, tokens - 1), tileTypeOf(sums), chunk::Side::Rows);
      return scaleRows(op.getOperand(), exp2(sub(last, sums)));
    }
    return scaleRows(op.getOperand(), decays(op.getForm(), op.getAmount(), /*reverse=*/true, /*exclusive=*/true));
  }

  Value state(chunk::DecayStateOp op) {
    if (Value sums = sumsOfTokens(op.getForm(), op.getAmount()))
      return mul(op.getState(), repeat(exp2(rowOf(sums, tokens - 1)), tileTypeOf(op.getState()), op.getAlong()));
    Value total = rowOf(accumulate(op.getForm(), op.getAmount(), /*reverse=*/false, /*exclusive=*/false), tokens - 1);
    if (op.getForm() == chunk::DecayForm::Log)
      total = exp(total);
    return mul(op.getState(), repeat(total, tileTypeOf(op.getState()), op.getAlong()));
  }

  Value dot(chunk::DecayDotOp op) {
    if (tileTypeOf(op.getAmount()).getRank() == 1) {
      Value product = chunk::DotOp::create(builder, op.getType(), op.getQuery(), op.getKey(), Value(),
                                           /*transpose_left=*/false, /*transpose_right=*/true);
      Value matrix = chunk::DecayMatrixOp::create(builder, op.getType(), op.getForm(), op.getAmount(), op.getBefore());
      return causal(mul(product, matrix), op.getBefore());
    }
    return dotOfChannels(op);
  }

  /// `y_ij = 2^(b_i - b_j)`; nothing where differences of sums do not do.
  Value matrix(chunk::DecayMatrixOp op) {
    Value sums = sumsOfTokens(op.getForm(), op.getAmount());
    if (!sums)
      return {};
    RankedTensorType type = op.getType();
    Value upTo = op.getBefore() ? sub(sums, binaryLogs(op.getAmount())) : sums;
    return exp2(sub(repeat(upTo, type, chunk::Side::Rows), repeat(sums, type, chunk::Side::Columns)));
  }

  /// All that decays with the channels of a state, whose rows can be rescaled around one anchor: the end of the chunk
  /// where the state is met at its start, and the start where it is that of a cotangent, which is met at the end.
  struct Recurrence {
    chunk::DecayStateOp state;
    Operation *first; // of those that ask for the decay
    bool isMetAtEnd = false;
    bool before = false;
    SmallVector<chunk::DecayDotOp> scores;
    SmallVector<chunk::DecayMixOp> mixes;
    SmallVector<chunk::DecayTotalsOp> totals;
    SmallVector<chunk::DecayFromStartOp> fromStart;
    SmallVector<chunk::DecayToEndOp> toEnd;
    /// The products with the state: of rows that decay up to it, or whose result does.
    SmallVector<chunk::DotOp> products;
    /// What is made of any of these, as weights are where rows are read with the state and fed back.
    llvm::SetVector<Operation *> behind;

    /// Nothing where another operation has a part in it, or nothing has products of rows.
    static std::optional<Recurrence> of(chunk::DecayStateOp state) {
      Recurrence result;
      result.state = state;
      result.first = state;
      std::optional<bool> before;
      auto isAlike = [&](bool own) { return before.value_or(own) == own && (before = own, true); };
      for (Operation *user : state.getAmount().getUsers()) {
        bool isOwn =
            llvm::TypeSwitch<Operation *, bool>(user)
                .Case([&](chunk::DecayStateOp op) { return op == state; })
                .Case([&](chunk::DecayDotOp op) { return result.scores.push_back(op), isAlike(op.getBefore()); })
                .Case([&](chunk::DecayMixOp op) { return result.mixes.push_back(op), isAlike(op.getBefore()); })
                .Case([&](chunk::DecayTotalsOp op) { return result.totals.push_back(op), isAlike(op.getBefore()); })
                .Case(
                    [&](chunk::DecayFromStartOp op) { return result.fromStart.push_back(op), isAlike(op.getBefore()); })
                .Case([&](chunk::DecayToEndOp op) { return result.toEnd.push_back(op), true; })
                .Case([](chunk::DecayPairsOp) { return false; })
                .Default(true);
        if (!isOwn || user->getBlock() != state->getBlock())
          return std::nullopt;
        result.first = user->isBeforeInBlock(result.first) ? user : result.first;
      }
      result.before = before.value_or(false);
      if (result.scores.empty() && result.mixes.empty() && result.totals.empty())
        return std::nullopt;
      if (!result.meetsState(result.fromStart)) {
        result.isMetAtEnd = true;
        if (!result.meetsState(result.toEnd))
          return std::nullopt;
      }
      result.findWhatIsBehind();
      return result;
    }

    /// Whether rows that it rescales are made of what it finds: their range could not be known before.
    bool feedsItself() {
      RescaledRows rows = rowsOf(*this);
      auto isAnyBehind = [&](const RescaledRows::Side &side) {
        return llvm::any_of(side.rows, [&](Value row) { return isBehind(row); });
      };
      return isAnyBehind(rows.queries) || isAnyBehind(rows.keys);
    }
    bool isBehind(Value value) const { return behind.contains(value.getDefiningOp()); }

    void erase() {
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
      state.erase();
    }

  private:
    void findWhatIsBehind() {
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
      add(products);
      add(ArrayRef{state});
    }
    template <typename Ops> bool meetsState(const Ops &ops) {
      products.clear();
      return !ops.empty() && llvm::all_of(ops, [&](auto op) { return meetsState(op.getOperand(), op.getResult()); });
    }
    /// Whether decayed rows are a product with the state, or all that is made of them is.
    bool meetsState(Value rows, Value decayed) {
      bool isAlongRows = state.getAlong() == chunk::Side::Rows;
      auto isProduct = [&](chunk::DotOp dot, bool transposed) {
        return dot && dot.getRight() == state.getState() && !dot.getAddend() && !dot.getTransposeLeft() &&
               dot.getTransposeRight() == transposed && (products.push_back(dot), true);
      };
      if (rows.hasOneUse() && isProduct(rows.getDefiningOp<chunk::DotOp>(), isAlongRows))
        return true;
      return llvm::all_of(decayed.getUses(), [&](OpOperand &use) {
        return use.getOperandNumber() == 0 && isProduct(dyn_cast<chunk::DotOp>(use.getOwner()), !isAlongRows);
      });
    }
  };

  /// Rows, and a positive number that they are times.
  struct ScaledRows {
    Value rows;
    double factor = 1;
  };
  static ScaledRows scaledRows(Value rows) {
    SplatElementsAttr constant;
    if (auto product = rows.getDefiningOp<arith::MulFOp>();
        product && matchPattern(product.getRhs(), m_Constant(&constant)))
      if (double factor = constant.getSplatValue<APFloat>().convertToDouble(); factor > 0 && std::isfinite(factor))
        return {product.getLhs(), factor};
    return {rows};
  }

  /// Numbers of fewer bits, where they were widened.
  static Value asTheyCame(Value numbers) {
    auto widened = numbers.getDefiningOp<arith::ExtFOp>();
    return widened ? widened.getIn() : numbers;
  }

  /// With the product `P_i` of the factors up to a token and an anchor `A` in each channel,
  ///
  ///   q'_i = q_i P_i / A,  k'_j = k_j P_end / P_j,  o = q' (A S) + mask(q' k'^T) v,  S = P_end S + k'^T v.
  ///
  /// The anchor is the end of the chunk where the range of factors allows it: the state then decays once for all, and
  /// rows serve for reads, writes and each other. Where it does not, queries have theirs at the start, where no factor
  /// is above 1, and the products of rows are formed exactly. In reverse time it is keys that meet the state, and the
  /// start that is their anchor: k'_j = k_j A / P_j, where A is 1, or P_end. Sums of keys are scaled as queries are.
  void recurrence(Recurrence ops) {
    RescaledRows rows = rowsOf(ops);
    bool isLog = ops.state.getForm() == chunk::DecayForm::Log;
    rows.rescaling = isLog ? rescaledByLogs(ops, rows) : rescaledByFactors(ops, rows);
    rows.rescaling.sumsInRange = withinSums(ops, rows);
    rescale(rows, ops.before);
    const auto &[inRange, ofQueries, ofKeys, ofState, total, sumsInRange] = rows.rescaling;
    for (chunk::DecayDotOp op : ops.scores) {
      auto plain = [&] {
        Value products =
            chunk::DotOp::create(builder, op.getType(), rescaled(rows.queries, op.getQuery()),
                                 rescaled(rows.keys, op.getKey()), Value(), false, /*transpose_right=*/true);
        return causal(products, op.getBefore());
      };
      // Where sums are formed token by token, products by halves would gain little, and keep what they are made of.
      bool isAlone = ops.mixes.empty() && ops.totals.empty();
      auto exact = [&] { return isAlone ? exactly(op) : exactly(builder.clone(*op)); };
      op.replaceAllUsesWith(choose(inRange, op.getType(), plain, exact));
    }
    auto decayed = [&](Value state, Value factors) {
      return mul(state, repeat(factors, tileTypeOf(state), ops.state.getAlong()));
    };
    Value met = decayed(ops.state.getState(), ofState);
    for (chunk::DotOp product : ops.products)
      product.getRightMutable().assign(met);
    ops.state.replaceAllUsesWith(
        choose(inRange, met.getType(), [&] { return met; }, [&, factors = total] { return decayed(met, factors); }));
    for (chunk::DecayMixOp op : ops.mixes)
      mixOfRescaled(op, ops, rows);
    for (chunk::DecayTotalsOp op : ops.totals)
      for (bool isOfKeys : {false, true})
        totalOfRescaled(op, isOfKeys, rows);
    for (chunk::DecayFromStartOp op : ops.fromStart)
      op.replaceAllUsesWith(rescaled(rows.queries, op.getOperand()));
    for (chunk::DecayToEndOp op : ops.toEnd)
      op.replaceAllUsesWith(rescaled(rows.keys, op.getOperand()));
    ops.erase();
  }

  /// Sums over tokens that are no decay, of finite numbers, by a product as well, where it takes less; else nothing.
  Value sums(chunk::AccumulateOp op) {
    bool isSum = op.getKind() == chunk::Accumulation::Sum;
    return isSum && gainsFromProduct(op.getOperand())
               ? sumsByProduct(op.getOperand(), op.getReverse(), op.getExclusive())
               : Value();
  }

  Value mix(chunk::DecayMixOp op) {
    Value addend = op.getAddend();
    op.getAddendMutable().clear();
    Value sum = tileTypeOf(op.getAmount()).getRank() == 1 ? mixOfTokens(op) : mixOfChannels(op);
    return addend ? arith::AddFOp::create(builder, sum, addend).getResult() : sum;
  }

  /// Both totals multiply the same rounded rows.
  ValueRange totals(chunk::DecayTotalsOp op) {
    auto [up, down] = aroundMiddle(op.getForm(), op.getAmount(), op.getBefore());
    Value queries = rounded(mul(op.getQuery(), up)), keys = rounded(mul(op.getKey(), down));
    Value weights = causal(op.getWeights(), /*strict=*/true);
    Value inRange = chunk::WithinOp::create(builder, ValueRange{up, down, weights, queries, keys},
                                            ArrayRef{factorLimit(), factorLimit(), mostWeight(), mostRow(), mostRow()});
    auto plain = [&]() -> SmallVector<Value> {
      auto dot = [&](Value rows, bool transpose) -> Value {
        return chunk::DotOp::create(builder, tileTypeOf(queries), weights, rows, Value(), transpose,
                                    /*transpose_right=*/false);
      };
      return {mul(queries, dot(keys, false)), mul(keys, dot(queries, true))};
    };
    auto exact = [&]() -> SmallVector<Value> {
      return {exactTotal(op, weights, /*ofKeys=*/false), exactTotal(op, weights, /*ofKeys=*/true)};
    };
    return choose(inRange, op.getResultTypes(), plain, exact);
  }

private:
  //===--------------------------------------------------------------------===//
  // Arithmetic
  //===--------------------------------------------------------------------===//

  Value mul(Value a, Value b) { return arith::MulFOp::create(builder, a, b); }
  Value add(Value a, Value b) { return arith::AddFOp::create(builder, a, b); }
  Value sub(Value a, Value b) { return arith::SubFOp::create(builder, a, b); }
  Value exp(Value a) { return math::ExpOp::create(builder, a); }
  Value exp2(Value a) { return math::Exp2Op::create(builder, a); }
  Value rowOf(Value tile, int64_t at) {
    RankedTensorType type = tileTypeOf(tile);
    return chunk::RowOp::create(builder, type.clone(type.getShape().drop_front()), tile, at);
  }
  Value repeat(Value value, RankedTensorType type, chunk::Side along) {
    return value.getType() == type ? value : chunk::BroadcastOp::create(builder, type, value, along).getResult();
  }
  Value causal(Value tile, bool strict) { return chunk::CausalOp::create(builder, tile.getType(), tile, strict); }

  Value accumulate(chunk::DecayForm form, Value amount, bool reverse, bool exclusive) {
    auto kind = form == chunk::DecayForm::Log ? chunk::Accumulation::Sum : chunk::Accumulation::Product;
    if (tokens == 1 && !exclusive)
      return amount;
    if (form == chunk::DecayForm::Log && gainsFromProduct(amount))
      return sumsByProduct(amount.getDefiningOp<arith::MaximumFOp>() ? amount : floored(amount), reverse, exclusive);
    return chunk::AccumulateOp::create(builder, amount.getType(), kind, amount, reverse, exclusive);
  }

  /// Whether numbers are among those of products' operands as they are: what an input of that type is widened to, and
  /// the larger of that and of such a constant.
  bool isOfOperands(Value numbers) {
    if (auto larger = numbers.getDefiningOp<arith::MaximumFOp>())
      return exactBound(larger, operandType) && isOfOperands(larger.getLhs());
    auto widened = numbers.getDefiningOp<arith::ExtFOp>();
    return widened && getElementTypeOrSelf(widened.getIn()) == operandType;
  }

  /// Whether matrix instructions take fewer turns for sums over tokens than threads that pass sums to each other.
  bool gainsFromProduct(Value numbers) {
    int64_t fewestRows = isOfOperands(numbers) ? 16 : 32;
    return operandType.getIntOrFloatBitWidth() == 16 && tileTypeOf(numbers).getRank() == 2 && tokens >= fewestRows;
  }

  /// Sums over earlier tokens, or in reverse over later ones: the product of ones in a triangle and of the numbers,
  /// which are finite, so that zeros leave them out. Numbers that operands do not hold are two of them, whose sum has
  /// twice the bits: of 16 a relative error of 2^-17.
  Value sumsByProduct(Value numbers, bool reverse, bool exclusive) {
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

  /// The factor of each token since the start of the chunk, or until its end. Sums are of one sign: nothing cancels.
  Value decays(chunk::DecayForm form, Value amount, bool reverse, bool exclusive) {
    Value result = accumulate(form, amount, reverse, exclusive);
    return form == chunk::DecayForm::Log ? exp(result) : result;
  }

  /// Logarithms of factors. Those that fp32 does not have count as one that underflows, so that there are differences.
  Value floored(Value amount) {
    constexpr double noFactor = -110;
    return arith::MaximumFOp::create(builder, amount, splat(amount, noFactor));
  }
  Value toBaseTwo(Value logs) { return mul(logs, splat(logs, llvm::numbers::log2e)); }
  Value binaryLogs(Value amount) { return toBaseTwo(floored(amount)); }
  Value sumsOfLogs(Value amount) {
    return accumulate(chunk::DecayForm::Log, floored(amount), /*reverse=*/false, /*exclusive=*/false);
  }
  Value binarySums(Value amount) { return toBaseTwo(sumsOfLogs(amount)); }

  Value times(Value tile, double factor) { return factor == 1 ? tile : mul(tile, splat(tile, factor)); }

  Value splat(Value like, double number) {
    auto numbers = DenseElementsAttr::get(tileTypeOf(like), APFloat(static_cast<float>(number)));
    return arith::ConstantOp::create(builder, numbers);
  }

  /// Sums of these over the tokens of the chunk, of which all factors are made, as differences. Their rounding is a
  /// relative error of a factor of 2^-24 of the largest sum: operands of 16 bits do not show it, those of fp32 would.
  Value sumsOfTokens(chunk::DecayForm form, Value amount) {
    bool areEnough = form == chunk::DecayForm::Log && tileTypeOf(amount).getRank() == 1 && tokens > 1 &&
                     operandType.getIntOrFloatBitWidth() == 16;
    return areEnough ? binarySums(amount) : Value();
  }

  Value scaleRows(Value rows, Value factors) { return mul(rows, repeat(factors, tileTypeOf(rows), chunk::Side::Rows)); }

  //===--------------------------------------------------------------------===//
  // A decay of its own for each channel
  //===--------------------------------------------------------------------===//

  /// How large a factor, or its inverse, may become.
  double factorLimit() {
    if (operandType.isF16())
      return std::exp(8.0);
    return std::exp(operandType.isBF16() ? 60.0 : 20.0);
  }

  double operandLimit() {
    return APFloat::getLargest(cast<FloatType>(operandType).getFloatSemantics()).convertToDouble();
  }

  /// The decay between a later token and an earlier one is a product of the later one's `up` and the earlier one's
  /// `down`: from the middle of the chunk to the later token, and from the earlier one to the middle.
  struct AroundMiddle {
    Value up, down;
  };
  AroundMiddle aroundMiddle(chunk::DecayForm form, Value amount, bool before) {
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

  //===--------------------------------------------------------------------===//
  // Rows of a walk over states
  //===--------------------------------------------------------------------===//

  /// What rows and the state of a chunk are multiplied by, and whether the anchor is the chunk's end, which the former
  /// depends on; and whether weights that are only known behind that are small enough, too.
  struct Rescaling {
    Value inRange, ofQueries, ofKeys, ofState, total, sumsInRange = {};
  };

  /// Products never rise in magnitude: queries of the first token have the largest factors, or keys of the last. A sum
  /// over tokens of products of weights and rows that these multiply is finite, too.
  static constexpr double mostGrownRow = 0x1p14, mostWeightOfGrown = 0x1p20;

  /// Rows that are rescaled, and by what.
  struct RescaledRows {
    struct Side {
      llvm::SmallSetVector<Value, 2> rows;
      /// A constant that all of them are times.
      double factor = 1;
      Value factors;
      llvm::SmallDenseMap<Value, Value, 2> rescaled;
    };
    Side queries, keys;
    /// Weights of sums, and those of them that sums have, as operands are rounded.
    llvm::SmallMapVector<Value, Value, 2> weights;
    Rescaling rescaling;
  };

  static RescaledRows rowsOf(Recurrence &ops) {
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
      rows.weights[op.getWeights()];
    for (chunk::DecayTotalsOp op : ops.totals)
      rows.weights[op.getWeights()];
    for (RescaledRows::Side *side : {&rows.queries, &rows.keys}) {
      auto factorOf = [](Value row) { return scaledRows(row).factor; };
      if (!side->rows.empty() && llvm::all_equal(llvm::map_range(side->rows, factorOf)))
        side->factor = factorOf(side->rows.front());
    }
    return rows;
  }

  /// Tests what is multiplied in the chunk's range: logarithms or inverses of factors, rows and weights, but for
  /// weights that follow from what the answer decides.
  Value within(Recurrence &ops, const RescaledRows &rows, ValueRange factors, ArrayRef<double> limits) {
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
        test(asTheyCame(scaled.rows),
             std::min((side == &growing ? grown : operandLimit()) / scaled.factor, operandLimit()));
      }
    for (auto &[weights, known] : rows.weights)
      if (!ops.isBehind(weights))
        test(weights, mostWeightOfGrown);
    return chunk::WithinOp::create(builder, tested, most);
  }

  /// Whether sums are of finite numbers where rows are in range.
  Value withinSums(Recurrence &ops, const RescaledRows &rows) {
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

  Rescaling rescaledByLogs(Recurrence &ops, const RescaledRows &rows) {
    Value amount = ops.state.getAmount(), sums = sumsOfLogs(amount);
    Value upTo = ops.before ? sub(sums, floored(amount)) : sums;
    Value last = toBaseTwo(rowOf(sums, tokens - 1));
    Value inRange = within(ops, rows, last, std::log2(factorLimit()));
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
    return {inRange, ofQueries, ofKeys, exp2(ofState), exp2(last)};
  }

  /// Factors of any sign and size: those above 1, among which products may rise, have no range.
  Rescaling rescaledByFactors(Recurrence &ops, const RescaledRows &rows) {
    Value amount = ops.state.getAmount();
    Value products = accumulate(chunk::DecayForm::Factor, amount, /*reverse=*/false, /*exclusive=*/false);
    Value upTo = ops.before ? accumulate(chunk::DecayForm::Factor, amount, false, /*exclusive=*/true) : products;
    Value last = rowOf(products, tokens - 1), one = splat(last, 1);
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
    return {inRange, ofQueries, ofKeys, chosen(last), last};
  }

  /// Makes the rows and weights that branches share.
  void rescale(RescaledRows &rows, bool before) {
    for (auto &[weights, known] : rows.weights)
      known = rounded(causal(weights, before));
    auto rescaleAll = [&](RescaledRows::Side &side, Value factors) {
      for (Value row : side.rows) {
        Value unscaled = side.factor == 1 ? row : scaledRows(row).rows;
        side.rescaled[row] = rounded(mul(unscaled, factors));
      }
      side.factors = factors;
    };
    rescaleAll(rows.queries, rows.rescaling.ofQueries);
    rescaleAll(rows.keys, rows.rescaling.ofKeys);
  }
  Value rescaled(const RescaledRows::Side &side, Value rows) {
    Value known = side.rescaled.lookup(rows);
    return known ? known : mul(rows, times(side.factors, 1 / side.factor));
  }

  Value exactTotal(chunk::DecayTotalsOp op, Value weights, bool ofKeys) {
    Value query = rounded(op.getQuery()), key = rounded(op.getKey());
    Value strict = causal(weights, /*strict=*/true);
    auto mix = chunk::DecayMixOp::create(builder, query.getType(), strict, ofKeys ? query : key, op.getForm(),
                                         op.getAmount(), Value(), op.getBefore(), /*transpose=*/ofKeys);
    return mul(ofKeys ? key : query, exactly(mix));
  }

  /// The rows of tokens times what they have of others and of the state at the start or at the end.
  struct Total {
    chunk::DecayTotalsOp op;
    arith::AddFOp sum;
  };
  /// The total of which a sum of a `decay_mix` is one factor, if there is one.
  static std::optional<Total> totalWith(chunk::DecayMixOp op, ArrayRef<chunk::DecayTotalsOp> totals) {
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

  /// A sum and what is read of a state are of one product, which is scaled behind it; where the gradient of the decay
  /// asks for the rows times the same, they are times the product.
  void mixOfRescaled(chunk::DecayMixOp op, Recurrence &ops, const RescaledRows &rows) {
    bool ofKeys = op.getTranspose();
    const RescaledRows::Side &owns = ofKeys ? rows.keys : rows.queries, &others = ofKeys ? rows.queries : rows.keys;
    Value operand = rescaled(others, op.getRows());
    auto [factor, factors] = std::pair(owns.factor, owns.factors);
    Operation *decayed = op.getAddend() ? op.getAddend().getDefiningOp() : nullptr;
    bool isOwn = ofKeys ? llvm::is_contained(ops.toEnd, decayed) : llvm::is_contained(ops.fromStart, decayed);
    Value seen = isOwn ? decayed->getOperand(0) : Value();
    std::optional<Total> total = isOwn ? totalWith(op, ops.totals) : std::nullopt;
    Value own = total ? rescaled(owns, ofKeys ? total->op.getKey() : total->op.getQuery()) : Value();
    Value weights = rows.weights.lookup(op.getWeights());
    auto plain = [&, factors = factors]() -> SmallVector<Value> {
      Value sum = chunk::DotOp::create(builder, op.getType(), weights, operand, seen, /*transpose_left=*/ofKeys,
                                       /*transpose_right=*/false);
      SmallVector<Value> results = {mul(sum, factors)};
      if (total)
        results.push_back(mul(own, sum));
      return results;
    };
    auto exact = [&, factor = factor, factors = factors]() -> SmallVector<Value> {
      auto mix = cast<chunk::DecayMixOp>(builder.clone(*op));
      mix.getAddendMutable().clear();
      mix.getWeightsMutable().assign(weights);
      SmallVector<Value> results = {times(exactly(mix), factor)};
      if (seen)
        results[0] = add(mul(seen, factors), results[0]);
      if (total)
        results.push_back(add(mul(own, seen), exactTotal(total->op, weights, ofKeys)));
      return results;
    };
    SmallVector<Type, 2> types(total ? 2 : 1, op.getType());
    ValueRange results = choose(rows.rescaling.sumsInRange, types, plain, exact);
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
    if (total)
      replace(total->sum, results[1]);
  }

  void totalOfRescaled(chunk::DecayTotalsOp op, bool ofKeys, const RescaledRows &rows) {
    Value result = ofKeys ? op.getOfKeys() : op.getOfQueries();
    if (result.use_empty())
      return;
    Value query = rescaled(rows.queries, op.getQuery()), key = rescaled(rows.keys, op.getKey());
    Value known = rows.weights.lookup(op.getWeights());
    Value weights = op.getBefore() ? known : causal(known, /*strict=*/true);
    auto plain = [&] {
      Value sum = chunk::DotOp::create(builder, result.getType(), weights, ofKeys ? query : key, Value(),
                                       /*transpose_left=*/ofKeys, /*transpose_right=*/false);
      return mul(ofKeys ? key : query, sum);
    };
    result.replaceAllUsesWith(
        choose(rows.rescaling.sumsInRange, result.getType(), plain, [&] { return exactTotal(op, weights, ofKeys); }));
  }

  /// The products of rows where no range is asked for.
  Value exactly(chunk::DecayDotOp scores) {
    if (scores.getForm() != chunk::DecayForm::Log || !gainsFromHalves())
      return exactly(builder.clone(*scores));
    Value sums = binarySums(scores.getAmount());
    Value upTo = scores.getBefore() ? sub(sums, binaryLogs(scores.getAmount())) : sums;
    return dotByHalves(scores.getQuery(), scores.getKey(), {sums, upTo, scores.getBefore()});
  }

  //===--------------------------------------------------------------------===//
  // Pairs by halves
  //
  // Two tokens meet in the smallest block of 1, 2, 4, ... tokens that has both. Their decay is that of either from the
  // middle of this block, which is no larger than 1: no range is asked for. All pairs that meet in blocks of one size
  // come from one product.
  //===--------------------------------------------------------------------===//

  /// Binary logarithms of what has decayed up to each token, and up to where it reads.
  struct Decayed {
    Value sums, upTo;
    bool before;
  };

  /// Whether products of whole tiles, one for each size of blocks, cost less than walking from token to token.
  bool gainsFromHalves() { return tokens >= 32 && llvm::isPowerOf2_64(tokens); }

  Value joinHalves(Value second, Value first, int64_t block) {
    return second == first ? second
                           : chunk::JoinHalvesOp::create(builder, second.getType(), second, first, block).getResult();
  }

  /// The decay between each token and the middle of its block.
  Value toMiddle(const Decayed &decayed, int64_t block) {
    Value own = joinHalves(decayed.upTo, decayed.sums, block);
    Value middle = chunk::MiddleOp::create(builder, own.getType(), decayed.sums, block);
    return exp2(arith::NegFOp::create(builder, math::AbsFOp::create(builder, sub(own, middle))));
  }

  /// `y_ij = sum_d q_id k_jd 2^(b_i - b_j)`
  Value dotByHalves(Value query, Value key, const Decayed &decayed) {
    RankedTensorType type = tileTypeOf(query).clone({tokens, tokens});
    Type element = type.getElementType();
    auto dot = [&](Value left, Value right) -> Value {
      return chunk::DotOp::create(builder, type, left, right, Value(), false, /*transpose_right=*/true);
    };
    // Constant factors are those of the products. Rows are put together as they came, where both did alike.
    ScaledRows queries = scaledRows(query), keys = scaledRows(key);
    Value second = asTheyCame(queries.rows), first = asTheyCame(keys.rows);
    if (second.getType() != first.getType())
      std::tie(second, first) = std::pair(queries.rows, keys.rows);
    Value result = arith::ConstantOp::create(builder, cast<TypedAttr>(builder.getZeroAttr(type)));
    for (int64_t block = tokens; block > 1; block /= 2) {
      Value joined = widened(joinHalves(second, first, block), element);
      Value rows = rounded(mul(joined, toMiddle(decayed, block)));
      result = chunk::MeetOp::create(builder, type, dot(rows, rows), result, block);
    }
    if (!decayed.before)
      result = chunk::MeetOp::create(builder, type, dot(rounded(queries.rows), rounded(keys.rows)), result,
                                     /*block=*/1);
    return times(result, queries.factor * keys.factor);
  }

  //===--------------------------------------------------------------------===//
  // Choices
  //===--------------------------------------------------------------------===//

  /// A plain form where `inRange`, and otherwise an exact one.
  ValueRange choose(Value inRange, TypeRange types, function_ref<SmallVector<Value>()> plain,
                    function_ref<SmallVector<Value>()> exact) {
    auto choice = scf::IfOp::create(builder, types, inRange, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(choice.thenBlock());
    scf::YieldOp::create(builder, plain());
    builder.setInsertionPointToStart(choice.elseBlock());
    scf::YieldOp::create(builder, exact());
    return choice.getResults();
  }
  Value choose(Value inRange, Type type, function_ref<Value()> plain, function_ref<Value()> exact) {
    auto only = [](function_ref<Value()> form) { return [=]() -> SmallVector<Value> { return {form()}; }; };
    return choose(inRange, TypeRange(type), only(plain), only(exact)).front();
  }
  /// A plain form where `inRange`, and otherwise the operation itself, exactly.
  Value choose(Value inRange, Operation *op, function_ref<Value()> plain) {
    return choose(inRange, op->getResult(0).getType(), plain, [&] { return exactly(builder.clone(*op)); });
  }
  Value exactly(Operation *op) {
    op->setAttr(chunk::exactAttribute, builder.getUnitAttr());
    return op->getResult(0);
  }

  /// Rows as operands of products are rounded, in the type of sums.
  Value rounded(Value rows) {
    RankedTensorType type = tileTypeOf(rows);
    if (operandType.getIntOrFloatBitWidth() >= type.getElementTypeBitWidth())
      return rows;
    Value operand = arith::TruncFOp::create(builder, type.clone(operandType), rows);
    return arith::ExtFOp::create(builder, type, operand);
  }

  Value widened(Value rows, Type element) {
    RankedTensorType type = tileTypeOf(rows);
    return type.getElementType() == element ? rows
                                            : arith::ExtFOp::create(builder, type.clone(element), rows).getResult();
  }

  Value mixOfTokens(chunk::DecayMixOp op) {
    Value matrix =
        chunk::DecayMatrixOp::create(builder, op.getWeights().getType(), op.getForm(), op.getAmount(), op.getBefore());
    return mixPlainly(op, causal(mul(op.getWeights(), matrix), op.getBefore()), op.getRows());
  }

  Value mixPlainly(chunk::DecayMixOp op, Value weights, Value rows) {
    return chunk::DotOp::create(builder, op.getType(), weights, rows, Value(),
                                /*transpose_left=*/op.getTranspose(), /*transpose_right=*/false);
  }

  Value mixOfChannels(chunk::DecayMixOp op) {
    auto [up, down] = aroundMiddle(op.getForm(), op.getAmount(), op.getBefore());
    // Rows are scaled on their side of the products, and sums on the other.
    Value rows = mul(op.getRows(), op.getTranspose() ? up : down), sums = op.getTranspose() ? down : up;
    Value weights = causal(op.getWeights(), op.getBefore());
    Value inRange = chunk::WithinOp::create(builder, ValueRange{up, down, weights, rows},
                                            ArrayRef{factorLimit(), factorLimit(), mostWeight(), mostRow()});
    return choose(inRange, op, [&] { return mul(mixPlainly(op, weights, rows), sums); });
  }

  // A sum over the tokens of products of weights and scaled rows is finite too.
  double mostWeight() { return operandType.isF16() ? operandLimit() : 0x1p32; }
  double mostRow() { return operandType.isF16() ? operandLimit() : 0x1p88; }

  Value dotOfChannels(chunk::DecayDotOp op) {
    auto [up, down] = aroundMiddle(op.getForm(), op.getAmount(), op.getBefore());
    Value query = mul(op.getQuery(), up), key = mul(op.getKey(), down);
    // A factor that is too small has an inverse that is too large: `down` stands for it, and where queries read
    // before their token, `up` is no inverse of `down`.
    Value inRange = chunk::WithinOp::create(builder, ValueRange{up, down, query, key},
                                            ArrayRef{factorLimit(), factorLimit(), operandLimit(), operandLimit()});
    auto plain = [&] {
      Value products =
          chunk::DotOp::create(builder, op.getType(), query, key, Value(), false, /*transpose_right=*/true);
      return causal(products, op.getBefore());
    };
    return choose(inRange, op, plain);
  }

  ImplicitLocOpBuilder builder;
  int64_t tokens;
  Type operandType;
};

struct ExpandDecay : stretto::impl::ExpandDecayBase<ExpandDecay> {
  void runOnOperation() override {
    chunk::KernelOp kernel = getOperation();
    expandRecurrences(kernel);
    expandProducts(kernel);
    for (chunk::DecayMatrixOp op : llvm::make_early_inc_range(kernel.getOps<chunk::DecayMatrixOp>()))
      if (Value matrix = DecayExpander(kernel, op).matrix(op)) {
        op.replaceAllUsesWith(matrix);
        op.erase();
      }
  }

  /// Those of bf16, whose range leaves room for rows that are rescaled by half a chunk's decay.
  static void expandRecurrences(chunk::KernelOp kernel) {
    if (!inputTypeOf(kernel).isBF16() || kernel.getChunk() == 1)
      return;
    bool isAny = false, isBack = false;
    for (chunk::DecayStateOp state : llvm::make_early_inc_range(kernel.getOps<chunk::DecayStateOp>())) {
      if (tileTypeOf(state.getAmount()).getRank() != 2)
        continue;
      if (auto ops = DecayExpander::Recurrence::of(state); ops && !ops->feedsItself()) {
        isAny = true;
        isBack |= ops->isMetAtEnd;
        DecayExpander(kernel, ops->first).recurrence(*ops);
      }
    }
    // The gradient of the decay is a sum over tokens.
    if (isBack)
      for (chunk::AccumulateOp op : llvm::make_early_inc_range(kernel.getOps<chunk::AccumulateOp>()))
        if (Value sums = DecayExpander(kernel, op).sums(op)) {
          op.replaceAllUsesWith(sums);
          op.erase();
        }
    if (isAny)
      sortTopologically(&kernel.getBody().front());
  }

  static void expandProducts(chunk::KernelOp kernel) {
    SmallVector<Operation *> decays;
    kernel.walk([&](Operation *op) {
      if (isa<chunk::DecayFromStartOp, chunk::DecayToEndOp, chunk::DecayStateOp, chunk::DecayDotOp, chunk::DecayMixOp,
              chunk::DecayTotalsOp>(op) &&
          !op->hasAttr(chunk::exactAttribute))
        decays.push_back(op);
    });
    for (Operation *op : decays) {
      DecayExpander expander(kernel, op);
      using Values = SmallVector<Value, 2>;
      Values values = llvm::TypeSwitch<Operation *, Values>(op)
                          .Case([&](chunk::DecayFromStartOp op) -> Values { return {expander.fromStart(op)}; })
                          .Case([&](chunk::DecayToEndOp op) -> Values { return {expander.toEnd(op)}; })
                          .Case([&](chunk::DecayStateOp op) -> Values { return {expander.state(op)}; })
                          .Case([&](chunk::DecayDotOp op) -> Values { return {expander.dot(op)}; })
                          .Case([&](chunk::DecayMixOp op) -> Values { return {expander.mix(op)}; })
                          .Case([&](chunk::DecayTotalsOp op) -> Values { return expander.totals(op); });
      op->replaceAllUsesWith(values);
      op->erase();
    }
  }
};
} // namespace
