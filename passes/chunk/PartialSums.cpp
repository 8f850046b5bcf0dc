//===- PartialSums.cpp - What slices have parts of ------------------------===//

#include "passes/chunk/PartialSums.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto::chunk;

namespace {

/// An operation as a sum of its terms and of one product, linear in each of its factors. In what is neither, it need
/// not be linear.
struct Form {
  SmallVector<OpOperand *> terms = {}, factors = {};
  /// The product is summed over the divided axis.
  bool isPart = false;
};

/// The form of an operation that is linear in something.
Form formOf(Operation *op, const llvm::DenseSet<Value> &columns) {
  auto all = llvm::map_to_vector(op->getOpOperands(), [](OpOperand &operand) { return &operand; });
  return llvm::TypeSwitch<Operation *, Form>(op)
      .Case<arith::AddFOp, arith::SubFOp, ConcatOp>([&](Operation *) { return Form{.terms = all}; })
      .Case<arith::MulFOp, arith::NegFOp, arith::ExtFOp, arith::TruncFOp, BroadcastOp, ColumnsOp, RowOp, CausalOp>(
          [&](Operation *) { return Form{.factors = all}; })
      .Case([](arith::DivFOp op) { return Form{.factors = {&op.getLhsMutable()}}; })
      .Case([](arith::SelectOp op) { return Form{.terms = {&op.getTrueValueMutable(), &op.getFalseValueMutable()}}; })
      .Case([](MaskOp op) { return op.getOtherwise().isZero() ? Form{.factors = {&op.getOperandMutable()}} : Form(); })
      .Case([&](ReduceOp op) {
        bool isPart = op.getOver() == Side::Columns && columns.contains(op.getOperand());
        return op.getKind() == Reduction::Sum ? Form{.factors = all, .isPart = isPart} : Form();
      })
      .Case([&](DotOp op) {
        bool isPart = op.getTransposeRight() && columns.contains(op.getRight());
        return Form{.terms = {all.begin() + 2, all.end()}, .factors = {all[0], all[1]}, .isPart = isPart};
      })
      .Case([](SolveOp op) { return Form{.factors = {&op.getRowsMutable()}}; })
      .Case([](DelayOp op) { return Form{.terms = {&op.getOperandMutable(), &op.getTailMutable()}}; })
      .Case([](TailOp op) { return Form{.terms = {&op.getOperandMutable(), &op.getTailMutable()}}; })
      .Case([](ConvOp op) { return Form{.terms = {&op.getOperandMutable(), &op.getTailMutable()}}; })
      .Case([](ConvBackOp op) { return Form{.terms = {&op.getOperandMutable(), &op.getCarryMutable()}}; })
      .Case([](ConvTapsOp op) { return Form{.factors = {&op.getWeightsMutable()}}; })
      .Case([](ScanOp op) {
        return op.getKind() == ScanKind::Add ? Form{.terms = {&op.getOperandMutable(), &op.getCarryMutable()}} : Form();
      })
      .Case([&](DecayDotOp op) {
        return Form{.factors = {&op.getQueryMutable(), &op.getKeyMutable()}, .isPart = columns.contains(op.getQuery())};
      })
      .Case([](DecayMixOp op) {
        Form form = {.factors = {&op.getWeightsMutable(), &op.getRowsMutable()}};
        for (OpOperand &addend : op.getAddendMutable())
          form.terms.push_back(&addend);
        return form;
      })
      .Case([&](AccumulateOp op) { return op.getKind() == Accumulation::Sum ? Form{.factors = all} : Form(); })
      .Case([](DecayTotalsOp op) {
        return Form{.factors = {&op.getQueryMutable(), &op.getKeyMutable(), &op.getWeightsMutable()}};
      })
      .Case([](DecayPairsOp op) {
        Form form = {.factors = {&op.getWeightsMutable()}};
        for (MutableOperandRange others : {op.getSeenMutable(), op.getKeptMutable(), op.getEndsMutable()})
          for (OpOperand &other : others)
            form.terms.push_back(&other);
        // Rows multiply all of these.
        if (form.terms.empty())
          form.factors.append({&op.getQueryMutable(), &op.getKeyMutable()});
        return form;
      })
      .Case<DecayFromStartOp, DecayToEndOp>([](auto op) { return Form{.factors = {&op.getOperandMutable()}}; })
      .Case([](DecayStateOp op) { return Form{.factors = {&op.getStateMutable()}}; })
      .Default([](Operation *) { return Form(); });
}

} // namespace

std::optional<Refusal> PartialSums::visit(Operation *op) {
  Form form = formOf(op, columns);
  auto isPart = [&](OpOperand *operand) { return parts.contains(operand->get()); };
  int64_t inFactors = llvm::count_if(form.factors, isPart);
  bool productIsPart = form.isPart || inFactors > 0;
  for (OpOperand &operand : op->getOpOperands())
    if (isPart(&operand) && !llvm::is_contained(form.terms, &operand) && !llvm::is_contained(form.factors, &operand))
      return Refusal{op, "it is not linear in a sum over the divided axis"};
  if (!productIsPart && llvm::none_of(form.terms, isPart))
    return std::nullopt;
  bool isProductOfParts = inFactors + form.isPart > 1;
  if (isProductOfParts || llvm::any_of(op->getResults(), [&](Value result) { return columns.contains(result); }))
    return Refusal{op, "it multiplies a sum over the divided axis with what is divided"};
  for (Value result : op->getResults())
    add(result);
  return std::nullopt;
}

/// A state is carried as it was left.
std::optional<Refusal> PartialSums::visit(YieldOp yield) {
  for (auto [state, next] : llvm::zip_equal(kernel.argumentsOf(ArgumentKind::State), yield.getStates()))
    if (parts.contains(next) && !parts.contains(state)) {
      if (columns.contains(state) || kernel.getArgument(state.getArgNumber()).getGroup() != 1)
        return Refusal{yield, "a state that heads share would be a sum over the divided axis"};
      add(state);
    }
  for (auto [output, value] : llvm::zip_equal(kernel.getOutputs().getAsRange<OutputAttr>(), yield.getOutputs()))
    if (parts.contains(value) && (!kernel.getReverse() || output.getCheckpoint()))
      return Refusal{yield, ("its output '" + output.getName().getValue() + "' is a sum over the divided axis").str()};
  return std::nullopt;
}

std::optional<Refusal> PartialSums::find() {
  do {
    changed = false;
    for (Operation &op : *kernel.getBlock()) {
      auto yield = dyn_cast<YieldOp>(op);
      if (std::optional<Refusal> refusal = yield ? visit(yield) : visit(&op))
        return refusal;
    }
  } while (changed);
  return std::nullopt;
}

SmallVector<OpOperand *> PartialSums::wholesOf(Operation *op) {
  auto isWhole = [&](OpOperand *operand) { return !parts.contains(operand->get()); };
  SmallVector<OpOperand *> wholes;
  if (auto yield = dyn_cast<YieldOp>(op)) {
    for (auto [state, next] : llvm::zip_equal(kernel.argumentsOf(ArgumentKind::State), yield.getStatesMutable()))
      if (parts.contains(state) && isWhole(&next))
        wholes.push_back(&next);
    return wholes;
  }
  if (op->getNumResults() == 0 || !parts.contains(op->getResult(0)))
    return wholes;
  Form form = formOf(op, columns);
  llvm::copy_if(form.terms, std::back_inserter(wholes), isWhole);
  // A product that is whole is divided by one of its factors.
  if (!form.factors.empty() && !form.isPart && llvm::all_of(form.factors, isWhole))
    wholes.push_back(form.factors.front());
  return wholes;
}

void PartialSums::divideWholes() {
  for (Operation &op : llvm::make_early_inc_range(*kernel.getBlock()))
    for (OpOperand *whole : wholesOf(&op)) {
      OpBuilder builder(&op);
      auto type = cast<RankedTensorType>(whole->get().getType());
      auto share = DenseElementsAttr::get(type, builder.getFloatAttr(type.getElementType(), 1.0 / slices));
      Value factor = arith::ConstantOp::create(builder, op.getLoc(), share);
      whole->set(arith::MulFOp::create(builder, op.getLoc(), whole->get(), factor));
    }
}
