//===- ExpandDecay.cpp - How products of decay factors are formed ---------===//

#include "mlir/Analysis/TopologicalSortUtils.h"
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
  DecayExpander(chunk::KernelOp kernel, Operation *op, bool within = false)
      : DecayBuilder(kernel, op), within(within) {}

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
    if (isByThreads(op.getAmount())) {
      bool isLog = op.getForm() == chunk::DecayForm::Log;
      Value all = ofAllTokens(ofLater(op.getForm(), op.getAmount()));
      // What a segment decays by is the sum of the same logarithms.
      for (Operation *user : llvm::make_early_inc_range(op.getAmount().getUsers()))
        if (auto sum = dyn_cast<chunk::ReduceOp>(user);
            sum && isLog && sum.getKind() == chunk::Reduction::Sum && sum.getOver() == chunk::Side::Rows &&
            llvm::all_of(sum->getUsers(), [&](Operation *user) { return op->isBeforeInBlock(user); }))
          sum.replaceAllUsesWith(all);
      return mul(op.getState(), repeat(isLog ? exp(all) : all, tileTypeOf(op.getState()), op.getAlong()));
    }
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
  /// Whether threads that walk down columns accumulate amounts of channels, and nothing else asks for these: what is
  /// left of rows at the end of a chunk has no range, nor infinite logarithms a difference.
  bool isByThreads(Value amount) {
    return within && tileTypeOf(amount).getRank() == 2 && gainsFromProduct(amount) && !isReverse &&
           llvm::none_of(amount.getUsers(), llvm::IsaPred<chunk::DecayDotOp, chunk::DecayMixOp, chunk::DecayTotalsOp,
                                                          chunk::DecayPairsOp, chunk::DecayFromStartOp>);
  }

  bool within;

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

struct ExpandDecay : stretto::impl::ExpandDecayBase<ExpandDecay> {
  using ExpandDecayBase::ExpandDecayBase;

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
  void expandRecurrences(chunk::KernelOp kernel) {
    if (!inputTypeOf(kernel).isBF16() || kernel.getChunk() == 1)
      return;
    bool isAny = false, isBack = false;
    for (chunk::DecayStateOp state : llvm::make_early_inc_range(kernel.getOps<chunk::DecayStateOp>())) {
      if (DecayBuilder::tileTypeOf(state.getAmount()).getRank() != 2)
        continue;
      if (auto ops = DecayRecurrence::of(state); ops && !ops->feedsItself()) {
        isAny = true;
        isBack |= ops->isMetAtEnd;
        RecurrenceExpander(kernel, ops->first).expand(*ops, within);
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

  void expandProducts(chunk::KernelOp kernel) {
    SmallVector<Operation *> decays;
    kernel.walk([&](Operation *op) {
      if (isa<chunk::DecayFromStartOp, chunk::DecayToEndOp, chunk::DecayStateOp, chunk::DecayDotOp, chunk::DecayMixOp,
              chunk::DecayTotalsOp>(op) &&
          !op->hasAttr(chunk::exactAttribute))
        decays.push_back(op);
    });
    for (Operation *op : decays) {
      DecayExpander expander(kernel, op, within);
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
