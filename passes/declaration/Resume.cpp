//===- Resume.cpp - A call that continues from windows, as a longer one ---===//

#include "dialect/stretto/StateChain.h"
#include "dialect/stretto/StateEntries.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/Passes.h"
#include <limits>
#include <map>

namespace stretto {
#define GEN_PASS_DEF_RESUME
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {

class Resumption : public ImplicitLocOpBuilder {
public:
  explicit Resumption(VariantOp variant)
      : ImplicitLocOpBuilder(variant.getLoc(), variant.getContext()), variant(variant) {}

  LogicalResult run();

private:
  Value addArgument(StringRef name, Type type);
  Value number(double value) { return create<ConstantOp>(first.getType(), getF64FloatAttr(value)); }
  /// The time once more, for a token at another position.
  FailureOr<Value> timeAt(Value time, Value position);
  /// The row for tokens that the condition holds for, another or a number for others.
  Value select(Value condition, Value row, Value otherwise);
  Value select(Value condition, Value row, double otherwise) {
    return select(condition, row, create<ConstantOp>(row.getType(), getF64FloatAttr(otherwise)));
  }
  void silence(OpOperand &row, Value condition, double otherwise) { row.set(select(condition, row.get(), otherwise)); }
  void resume(const StateChain &chain);
  LogicalResult resumeEarlierReads(const StateChain &chain, ReadOp read);
  void resume(ScanOp scan);
  void resume(const StateEntry &tail);

  VariantOp variant;
  Value position, first, last;                           // of the token, the call's first and its last
  Value asks;                                            // whether the token is one of the call
  std::map<std::pair<void *, double>, Value> silentRows; // of scans
};

struct ResumePass : stretto::impl::ResumeBase<ResumePass> {
  void runOnOperation() override {
    if (failed(Resumption(getOperation()).run()))
      signalPassFailure();
  }
};

} // namespace

Value Resumption::addArgument(StringRef name, Type type) {
  SmallVector<Attribute> names(variant.getArgNames().begin(), variant.getArgNames().end());
  std::string unique = name.str();
  while (llvm::is_contained(names, getStringAttr(unique)))
    unique += "_";
  names.push_back(getStringAttr(unique));
  variant.setArgNamesAttr(getArrayAttr(names));
  if (ArrayAttr attributes = variant.getArgAttrsAttr()) {
    SmallVector<Attribute> all(attributes.begin(), attributes.end());
    all.push_back(getDictionaryAttr({}));
    variant.setArgAttrsAttr(getArrayAttr(all));
  }
  Value argument = variant.getBlock()->addArgument(type, variant.getLoc());
  variant.setFunctionType(getFunctionType(variant.getBlock()->getArgumentTypes(), variant.getType().getResults()));
  return argument;
}

FailureOr<Value> Resumption::timeAt(Value time, Value position) {
  SetVector<Operation *> makers;
  BackwardSliceOptions options;
  options.inclusive = true;
  if (!time.getDefiningOp() || failed(getBackwardSlice(time.getDefiningOp(), &makers, options)))
    return failure();
  IRMapping mapping;
  for (Operation *maker : topologicalSort(makers)) {
    if (isa<PositionOp>(maker))
      mapping.map(maker->getResult(0), position);
    else
      clone(*maker, mapping);
  }
  return mapping.lookup(time);
}

Value Resumption::select(Value condition, Value row, Value otherwise) {
  Type conditions = cast<RankedTensorType>(row.getType()).clone(getI1Type());
  return create<arith::SelectOp>(createOrFold<BroadcastOp>(conditions, condition), row, otherwise);
}

void Resumption::resume(const StateChain &chain) {
  for (Operation *step : chain.steps) {
    setInsertionPoint(step);
    if (auto write = dyn_cast<WriteOp>(step))
      silence(write.getFirstMutable(), asks, 0);
    else
      silence(cast<DecayOp>(step).getAmountMutable(), asks, cast<DecayOp>(step).getForm() == DecayForm::Log ? 0 : 1);
  }
}

/// The state is given as of the time of the token before the first, and left as of that of the last. What tokens of the
/// windows behind that time write, it lacks; and what it is in the end is a state of its own, which nothing reads.
LogicalResult Resumption::resumeEarlierReads(const StateChain &chain, ReadOp read) {
  StateOp root = chain.getRoot();
  setInsertionPointAfter(asks.getDefiningOp());
  FailureOr<Value> given = timeAt(read.getAt(), create<arith::SubFOp>(first, number(1)));
  FailureOr<Value> left = timeAt(read.getAt(), last);
  if (failed(given) || failed(left))
    return read.emitError("[R14] reads at a time that is not computed from the position; no gradient goes through it");
  Value isLacking = create<arith::CmpFOp>(arith::CmpFPredicate::OGT, position, *given);
  Value isLeft = create<arith::CmpFOp>(arith::CmpFPredicate::OLE, position, *left);
  Value isBoth = create<arith::AndIOp>(isLacking, isLeft);
  setInsertionPoint(root);
  Value end = create<StateOp>(root.getType(), (root.getName() + ".last").str());
  for (Operation *step : chain.steps) {
    auto write = dyn_cast<WriteOp>(step);
    if (!write)
      return step->emitError("[R14] decays a state that is read at an earlier time; no gradient goes through it");
    setInsertionPointAfter(write);
    Value row = write.getFirst();
    end = create<WriteOp>(end.getType(), end, select(isBoth, row, 0), write.getSecond(), /*at=*/Value());
    setInsertionPoint(write);
    silence(write.getFirstMutable(), isLacking, 0);
  }
  return success();
}

void Resumption::resume(ScanOp scan) {
  setInsertionPoint(scan);
  // Scans of one row share a carry, before as after.
  auto silenceOnce = [&](OpOperand &row, double otherwise) {
    Value &silent = silentRows[{row.get().getAsOpaquePointer(), otherwise}];
    if (!silent)
      silent = select(asks, row.get(), otherwise);
    row.set(silent);
  };
  silenceOnce(scan.getOperandMutable(), scan.getKind() == ScanKind::Add ? 0 : -std::numeric_limits<double>::infinity());
  if (scan.getLog())
    silenceOnce(*scan.getLogMutable().begin(), 0);
}

/// The rows of a tail belong to tokens right before the call's first. Those that windows hold as well have them from a
/// row of the longer call, which may differ from what windows say of these tokens.
void Resumption::resume(const StateEntry &tail) {
  Value row = tail.operations.front()->getOperand(0), before = addArgument(tail.name + "_rows", row.getType());
  setInsertionPoint(tail.operations.front());
  Value rows = select(asks, row, before);
  for (Operation *op : tail.operations) {
    op->setOperand(0, rows);
    op->setAttr("entry", getStringAttr(tail.name));
  }
}

LogicalResult Resumption::run() {
  std::vector<StateEntry> entries = deriveState(variant);
  SmallVector<StateChain> chains = stateChains(variant);
  SmallVector<ScanOp> scans(variant.getBlock()->getOps<ScanOp>());
  first = addArgument("first", timeType(getContext()));
  last = addArgument("last", timeType(getContext()));
  setInsertionPointToStart(variant.getBlock());
  position = create<PositionOp>(first.getType());
  asks = create<arith::CmpFOp>(arith::CmpFPredicate::OGE, position, first);
  for (const StateChain &chain : chains) {
    SmallVector<ReadOp> reads = chain.reads();
    auto *earlier = llvm::find_if(reads, [](ReadOp read) { return read.getAt() != nullptr; });
    if (earlier == reads.end())
      resume(chain);
    else if (failed(resumeEarlierReads(chain, *earlier)))
      return failure();
  }
  for (ScanOp scan : scans)
    resume(scan);
  for (const StateEntry &entry : entries)
    if (entry.kind == StateEntry::Kind::Tail)
      resume(entry);
  return success();
}
