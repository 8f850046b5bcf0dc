//===- ExpandDecay.cpp - How products of decay factors are formed ---------===//

#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/IR/IRMapping.h"
#include "passes/Passes.h"
#include "passes/chunk/DecayRecurrence.h"
#include "llvm/ADT/TypeSwitch.h"

namespace stretto {
#define GEN_PASS_DEF_EXPANDDECAY
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

/// Forms one product of decay factors at a time.
class DecayExpander : public DecayBuilder {
public:
  DecayExpander(chunk::KernelOp kernel, Operation *op, int64_t warps, bool within = false)
      : DecayBuilder(kernel, op, warps), within(within) {}

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
    if (isByThreads(op.getAmount())) {
      Value factors = ofLater(op.getForm(), op.getAmount());
      return scaleRows(op.getOperand(), op.getForm() == chunk::DecayForm::Log ? exp(factors) : factors);
    }
    return scaleRows(op.getOperand(), decays(op.getForm(), op.getAmount(), /*reverse=*/true, /*exclusive=*/true));
  }

  Value state(chunk::DecayStateOp op) {
    if (Value sums = sumsOfTokens(op.getForm(), op.getAmount()))
      return mul(op.getState(), repeat(exp2(rowOf(sums, tokens - 1)), tileTypeOf(op.getState()), op.getAlong()));
    bool isLog = op.getForm() == chunk::DecayForm::Log;
    Value total = isByThreads(op.getAmount())
                      ? ofAllTokens(ofLater(op.getForm(), op.getAmount()))
                      : lastOf(accumulate(op.getForm(), op.getAmount(), /*reverse=*/false, /*exclusive=*/false));
    if (isLog && total.getDefiningOp<chunk::TotalOp>())
      takeForSums(op, total);
    return mul(op.getState(), repeat(isLog ? exp(total) : total, tileTypeOf(op.getState()), op.getAlong()));
  }

  Value dot(chunk::DecayDotOp op) {
    if (tileTypeOf(op.getAmount()).getRank() == 1) {
      Value product = chunk::DotOp::create(builder, op.getType(), op.getQuery(), op.getKey(), Value(),
                                           /*transpose_left=*/false, /*transpose_right=*/true);
      Value matrix = chunk::DecayMatrixOp::create(builder, op.getType(), op.getForm(), op.getAmount(), op.getBefore());
      Value decayed = mul(product, matrix);
      return isInverted(op.getResult()) ? decayed : causal(decayed, op.getBefore());
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

  /// The gradient of a factor is that of its logarithm divided by the factor, a sum of what rows have of others:
  ///
  ///   y_t a_t = e prod_u a_u + sum_i x_i + sum_{j<t} (z_j + Y_j - x_j - X_j),
  ///
  /// where x is what queries see of the start, z what the end has of keys, both decayed, and X and Y the totals of
  /// queries and keys. Where a factor is small, or products rise, the sums are of much more than is left of them, and
  /// the parts are formed one by one. Null where decays are not those of channels by bf16, of which rows are rescaled.
  Value pairs(chunk::DecayPairsOp op) {
    RankedTensorType type = op.getType();
    bool isRescaled =
        operandType.isBF16() && tokens > 1 && type.getDimSize(1) > 1 && op.getForm() == chunk::DecayForm::Factor;
    if (!isRescaled)
      return {};
    Value amount = op.getAmount();
    auto totals = chunk::DecayTotalsOp::create(builder, TypeRange{type, type}, op.getQuery(), op.getKey(),
                                               op.getWeights(), op.getForm(), amount, /*before=*/false);
    Value ofQueries = totals.getOfQueries(), ofKeys = totals.getOfKeys(), whole;
    auto addToWhole = [&](Value vector) { whole = whole ? add(whole, vector) : vector; };
    if (op.getSeen()) {
      Value seen = mul(op.getQuery(), decayedSince<chunk::DecayFromStartOp>(op, op.getSeen()));
      RankedTensorType vector = type.clone({type.getDimSize(1)});
      addToWhole(chunk::ReduceOp::create(builder, vector, chunk::Reduction::Sum, seen, chunk::Side::Rows));
      ofQueries = add(seen, ofQueries);
    }
    if (op.getKept())
      ofKeys = add(mul(op.getKey(), decayedSince<chunk::DecayToEndOp>(op, op.getKept())), ofKeys);
    if (op.getEnds()) {
      Value products = accumulate(op.getForm(), amount, /*reverse=*/false, /*exclusive=*/false);
      addToWhole(mul(op.getEnds(), lastOf(products)));
    }
    Value sum = chunk::AccumulateOp::create(builder, type, chunk::Accumulation::Sum, sub(ofKeys, ofQueries),
                                            /*reverse=*/false, /*exclusive=*/true);
    if (whole)
      sum = add(sum, repeat(whole, type, chunk::Side::Columns));
    Value inverse = arith::DivFOp::create(builder, splat(amount, 1), amount, arith::FastMathFlags::afn);
    auto mask = amount.getDefiningOp<chunk::MaskOp>();
    Value given = asTheyCame(mask ? mask.getOperand() : amount);
    Value areLarge = chunk::WithinOp::create(builder, ValueRange{inverse, given}, ArrayRef{mostInverse, 1.0});
    return choose(areLarge, type, [&] { return mul(sum, inverse); }, [&] { return inParts(op); });
  }

  /// Both totals multiply the same parts of rows.
  SmallVector<Value, 2> totals(chunk::DecayTotalsOp op) {
    auto [up, down] = aroundMiddle(op.getForm(), op.getAmount(), op.getBefore());
    Operand queries = operandOf(mul(op.getQuery(), up)), keys = operandOf(mul(op.getKey(), down));
    Value weights = causal(op.getWeights(), /*strict=*/true);
    Value inRange = chunk::WithinOp::create(builder, ValueRange{up, down, weights, queries.rounded, keys.rounded},
                                            ArrayRef{factorLimit(), factorLimit(), mostWeight(), mostRow(), mostRow()});
    auto plain = [&]() -> SmallVector<Value> {
      auto sum = [&](const Operand &rows, bool transpose) -> Value {
        return product(operandOf(weights), rows, tileTypeOf(rows.whole), /*addend=*/Value(), transpose,
                       /*transposeRight=*/false);
      };
      Value ofKeys = sum(keys, false), ofQueries = sum(queries, true);
      return {totalOf(op.getQuery(), queries, ofKeys, mul(ofKeys, up)),
              totalOf(op.getKey(), keys, ofQueries, mul(ofQueries, down))};
    };
    auto exact = [&]() -> SmallVector<Value> {
      return {exactTotal(op, weights, /*ofKeys=*/false), exactTotal(op, weights, /*ofKeys=*/true)};
    };
    return SmallVector<Value, 2>(choose(inRange, op.getResultTypes(), plain, exact));
  }

private:
  /// What a segment decays by is the sum of the same logarithms as what its state decays by.
  static void takeForSums(chunk::DecayStateOp op, Value total) {
    for (Operation *user : llvm::make_early_inc_range(op.getAmount().getUsers()))
      if (auto sum = dyn_cast<chunk::ReduceOp>(user);
          sum && sum.getKind() == chunk::Reduction::Sum && sum.getOver() == chunk::Side::Rows &&
          llvm::all_of(sum->getUsers(), [&](Operation *user) { return op->isBeforeInBlock(user); }))
        sum.replaceAllUsesWith(total);
  }

  /// Whether threads that walk down columns, or lanes that have all tokens, accumulate amounts of channels, and nothing
  /// else asks for these: what is left of rows at the end of a chunk has no range, nor infinite logarithms a
  /// difference.
  bool isByThreads(Value amount) {
    bool isAlone = (within && tileTypeOf(amount).getRank() == 2 && gainsFromProduct(amount)) ||
                   tokensAreInLanes(tileTypeOf(amount));
    return isAlone && !isReverse &&
           llvm::none_of(amount.getUsers(), llvm::IsaPred<chunk::DecayDotOp, chunk::DecayMixOp, chunk::DecayTotalsOp,
                                                          chunk::DecayPairsOp, chunk::DecayFromStartOp>);
  }

  bool within;

  /// Of a factor that sums are divided by: they err by 2^-17 of what is summed, which is twice what rounding to bf16
  /// takes then.
  static constexpr double mostInverse = 0x1p8;

  /// Rows decayed up to a token, or from it on, by an operation that is there, or a new one.
  template <typename DecayOp> Value decayedSince(chunk::DecayPairsOp op, Value rows) {
    for (Operation *user : rows.getUsers())
      if (auto decay = dyn_cast<DecayOp>(user);
          decay && decay.getOperand() == rows && decay.getAmount() == op.getAmount() &&
          decay.getForm() == op.getForm() && !decay->hasAttr("before") && decay->getBlock() == op->getBlock())
        return decay;
    return DecayOp::create(builder, rows.getType(), rows, op.getForm(), op.getAmount());
  }

  /// What pairs are the sum of, each formed exactly. The tiles that it is made of are made anew, so that none is kept
  /// for it.
  Value inParts(chunk::DecayPairsOp op) {
    IRMapping mapping;
    mapping.map(op.getAmount(), op.getAmount());
    if (op.getEnds())
      mapping.map(op.getEnds(), op.getEnds());
    auto copy = [&](auto copy, Value value) -> void {
      Operation *made = value.getDefiningOp();
      if (!made || mapping.contains(value) || made->hasTrait<OpTrait::ConstantLike>())
        return;
      for (Value operand : made->getOperands())
        copy(copy, operand);
      Operation *anew = builder.clone(*made, mapping);
      auto mix = dyn_cast<chunk::DecayMixOp>(anew);
      Value addend = mix ? mix.getAddend() : Value();
      if (addend)
        mix.getAddendMutable().clear();
      // Decays of rows and states have no other form. The mark keeps what is made anew from being found to be the same.
      if (!isa<chunk::DecayFromStartOp, chunk::DecayToEndOp, chunk::DecayStateOp, chunk::DecayTotalsOp>(anew))
        exactly(anew);
      if (addend)
        mapping.map(made->getResult(0), add(mix, addend));
    };
    for (Value operand : op->getOperands())
      copy(copy, operand);
    auto parts = cast<chunk::DecayPairsOp>(builder.clone(*op, mapping));
    Value sum = parts.inParts(builder);
    parts.erase();
    for (chunk::DecayMixOp mix : builder.getInsertionBlock()->getOps<chunk::DecayMixOp>())
      exactly(mix);
    return sum;
  }

  /// Whether nothing but an inverse, which looks at no entry above the diagonal, takes a matrix, as it is or
  /// multiplied.
  static bool isInverted(Value matrix) {
    return llvm::all_of(matrix.getUsers(), [](Operation *user) {
      return isa<chunk::InverseOp>(user) || (isa<arith::MulFOp>(user) && isInverted(user->getResult(0)));
    });
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
    auto plain = [&] {
      Value mixed = product(operandOf(weights), operandOf(rows), op.getType(), /*addend=*/Value(),
                            /*transposeLeft=*/op.getTranspose(), /*transposeRight=*/false);
      return mul(mixed, sums);
    };
    return choose(inRange, op, plain);
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
    auto plain = [&] { return causal(scoresOf(operandOf(query), operandOf(key), op.getType()), op.getBefore()); };
    multiplyBothParts(op.getResult());
    return choose(inRange, op, plain);
  }
};

/// The gradient of logarithms that decay a state behind its read: with E the pairs of what the state is at the start
/// and its cotangent at the end, Q and K what queries and keys have of all they meet, and Y what keys have of this
/// chunk,
///
///   y_t = E + sum_{i<t} (K_i - Y_i) + sum_{j>t} (Q_j - Y_j) - Y_t.
///
/// With S the pairs at the start alone, where the cotangent has what all tokens read, that is one sum, whose parts
/// other gradients have in any case:
///
///   y_t = S + sum_{i<t} (K_i - Q_i) - Q_t.
///
/// It is of much more than is left of it where decays are strong, so that no product may lack its rests.
class SumsAround {
public:
  /// Those of which `later` is the last sum but one.
  static std::optional<SumsAround> endingWith(chunk::AccumulateOp later) {
    SumsAround sums;
    auto onlyUser = [](Operation *op) {
      return op && op->hasOneUse() ? dyn_cast<arith::AddFOp>(*op->user_begin()) : arith::AddFOp();
    };
    auto isSum = [](chunk::AccumulateOp op, bool reverse) {
      return op && op.getKind() == chunk::Accumulation::Sum && op.getExclusive() && op.getReverse() == reverse;
    };
    arith::AddFOp both = onlyUser(later);
    sums.whole = onlyUser(both);
    auto before = both ? both.getLhs().getDefiningOp<arith::AddFOp>() : arith::AddFOp();
    auto kept = before ? before.getRhs().getDefiningOp<chunk::AccumulateOp>() : chunk::AccumulateOp();
    auto ends = before ? before.getLhs().getDefiningOp<chunk::BroadcastOp>() : chunk::BroadcastOp();
    auto terms = later.getOperand().getDefiningOp<arith::AddFOp>();
    auto own = terms ? terms.getLhs().getDefiningOp<arith::NegFOp>() : arith::NegFOp();
    bool isAlike = isSum(later, true) && sums.whole && isSum(kept, false) && ends && own &&
                   sums.whole.getRhs() == own.getResult() && both.getRhs() == later.getResult();
    if (!isAlike)
      return std::nullopt;
    sums.pairs = ends.getOperand().getDefiningOp<chunk::ReduceOp>();
    auto product = sums.pairs ? sums.pairs.getOperand().getDefiningOp<arith::MulFOp>() : arith::MulFOp();
    auto state = product ? product.getRhs().getDefiningOp<chunk::DecayStateOp>() : chunk::DecayStateOp();
    auto totals = own.getOperand().getDefiningOp<chunk::DecayTotalsOp>();
    if (!state || !totals || !totals.getBefore() || own.getOperand() != totals.getOfKeys())
      return std::nullopt;
    for (Operation *user : state->getUsers())
      if (auto dot = dyn_cast<chunk::DotOp>(user); dot && dot.getAddend() == state.getResult())
        sums.next = dot;
    sums.start = product.getLhs();
    sums.kept = kept.getOperand();
    sums.ofKeys = totals.getOfKeys();
    sums.ofQueries = terms.getRhs();
    return sums.next ? std::optional(sums) : std::nullopt;
  }

  void replace() {
    OpBuilder b(whole);
    Location loc = whole.getLoc();
    auto add = [&](Value x, Value y) -> Value { return arith::AddFOp::create(b, loc, x, y); };
    Value both = arith::MulFOp::create(b, loc, start, next);
    Value all = chunk::ReduceOp::create(b, loc, pairs.getType(), chunk::Reduction::Sum, both, pairs.getOver());
    Value ofStart = chunk::BroadcastOp::create(b, loc, whole.getType(), all, chunk::Side::Columns);
    Value negative = arith::NegFOp::create(b, loc, ofQueries);
    Value sum = chunk::AccumulateOp::create(b, loc, whole.getType(), chunk::Accumulation::Sum,
                                            add(add(kept, ofKeys), negative), /*reverse=*/false, /*exclusive=*/true);
    whole.replaceAllUsesWith(add(add(ofStart, sum), negative));
    eraseUnused(whole);
  }

private:
  static void eraseUnused(Operation *first) {
    llvm::SetVector<Operation *> pending;
    pending.insert(first);
    while (!pending.empty()) {
      Operation *op = pending.pop_back_val();
      if (!isOpTriviallyDead(op))
        continue;
      for (Value operand : op->getOperands())
        if (Operation *made = operand.getDefiningOp())
          pending.insert(made);
      op->erase();
    }
  }

  arith::AddFOp whole;
  chunk::ReduceOp pairs;
  chunk::DotOp next; // the cotangent at the start
  Value start, kept, ofKeys, ofQueries;
};

struct ExpandDecay : stretto::impl::ExpandDecayBase<ExpandDecay> {
  using ExpandDecayBase::ExpandDecayBase;

  void runOnOperation() override {
    chunk::KernelOp kernel = getOperation();
    expandPairs(kernel);
    sumFromStart(kernel);
    expandRecurrences(kernel);
    expandProducts(kernel);
    for (chunk::DecayMatrixOp op : llvm::make_early_inc_range(kernel.getOps<chunk::DecayMatrixOp>()))
      if (Value matrix = DecayExpander(kernel, op, warps).matrix(op)) {
        op.replaceAllUsesWith(matrix);
        op.erase();
      }
  }

  /// Before what else decays, of which they have a part.
  void expandPairs(chunk::KernelOp kernel) {
    bool isAny = false;
    for (chunk::DecayPairsOp op : llvm::make_early_inc_range(kernel.getOps<chunk::DecayPairsOp>())) {
      Value pairs = DecayExpander(kernel, op, warps).pairs(op);
      isAny |= bool(pairs);
      if (!pairs && op.hasParts()) {
        OpBuilder builder(op);
        pairs = op.inParts(builder);
      }
      if (pairs) {
        op.replaceAllUsesWith(pairs);
        op.erase();
      }
    }
    // Rows may be decayed behind them.
    if (isAny)
      sortTopologically(&kernel.getBody().front());
  }

  /// Where products have their rests, gradients of decays behind reads are sums from the start of a chunk.
  void sumFromStart(chunk::KernelOp kernel) {
    if (!kernel.getReverse() || !DecayBuilder::hasRests(kernel))
      return;
    SmallVector<SumsAround> all;
    for (auto later : kernel.getOps<chunk::AccumulateOp>())
      if (auto sums = SumsAround::endingWith(later))
        all.push_back(*sums);
    for (SumsAround &sums : all)
      sums.replace();
    if (!all.empty())
      sortTopologically(&kernel.getBody().front());
  }

  /// Those of bf16, whose range leaves room for rows that are rescaled by half a chunk's decay.
  void expandRecurrences(chunk::KernelOp kernel) {
    if (!inputTypeOf(kernel).isBF16() || kernel.getChunk() == 1)
      return;
    bool isAny = false, isBack = false;
    auto isOfChannels = [](chunk::DecayStateOp op) {
      return DecayBuilder::tileTypeOf(op.getAmount()).getRank() == 2 &&
             DecayBuilder::tileTypeOf(op.getState()).getRank() == 2;
    };
    // Vectors that are columns of a state are erased with it.
    for (chunk::DecayStateOp state :
         llvm::to_vector(llvm::make_filter_range(kernel.getOps<chunk::DecayStateOp>(), isOfChannels))) {
      if (auto ops = DecayRecurrence::of(state); ops && !ops->feedsItself()) {
        isAny = true;
        isBack |= ops->isMetAtEnd;
        RecurrenceExpander(kernel, ops->first, warps).expand(*ops, within);
      }
    }
    // The gradient of the decay is a sum over tokens.
    if (isBack)
      for (chunk::AccumulateOp op : llvm::make_early_inc_range(kernel.getOps<chunk::AccumulateOp>()))
        if (Value sums = DecayExpander(kernel, op, warps).sums(op)) {
          op.replaceAllUsesWith(sums);
          op.erase();
        }
    if (isAny)
      sortTopologically(&kernel.getBody().front());
  }

  void expandProducts(chunk::KernelOp kernel) {
    SmallVector<Operation *> decays;
    kernel.walk([&](Operation *op) {
      if (isa<chunk::DecayFromStartOp, chunk::DecayToEndOp, chunk::DecayStateOp, chunk::DecayDotOp, chunk::DecayMixOp,
              chunk::DecayTotalsOp>(op) &&
          !op->hasAttr(chunk::exactAttribute))
        decays.push_back(op);
    });
    for (Operation *op : decays) {
      DecayExpander expander(kernel, op, warps, within);
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
