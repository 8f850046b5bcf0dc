//===- AdjointLookback.cpp - Cotangents of folds over pairs of tokens -----===//
//
// In the body of a look-back every row that comes from outside is a leaf: a row of the token `t` itself, or of the
// other token `j`. What the body makes of a pair has a cotangent that depends on the fold,
//
//   sum          dc = do
//   softmax      e = exp(s - m)    dc = e dacc    ds = e (dl + dacc . c) + [s = m] (dm - l dl - acc . dacc) / ties
//   divergence   p = exp(z - lse)  dz_teacher = p_t ((log p_t - log p_s - kl) dkl + dlse_t)
//                                  dz_student = (p_s - p_t) dkl + p_s dlse_s
//
// and walking the body backwards gives each leaf a contribution of the pair. A leaf of `t` receives their sum over the
// same range; a leaf of `j` the sum over the tokens `t` whose ranges hold `j`, which is a look-ahead: there `j` is the
// token and `t` the other one.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "passes/declaration/Adjoint.h"
#include <limits>

using namespace mlir;
using namespace stretto;

Adjoint::Adjoint(const Adjoint &outer, Block &body)
    : ImplicitLocOpBuilder(outer.getLoc(), outer.getContext()), variant(outer.variant), sizes(outer.sizes),
      isWanted(outer.isWanted) {
  setInsertionPointToEnd(&body);
}

//===----------------------------------------------------------------------===//
// Results that do not change when the maximum does
//===----------------------------------------------------------------------===//

namespace {

/// How a row changes when `m, l, acc` become `m + c, l e^-c, acc e^-c`: times `e^(scale c)`, then plus `shift c`.
struct Change {
  int scale = 0, shift = 0;
  bool operator==(const Change &) const = default;
};

/// Whether everything that a fold's results become is the same for any shift of the maximum. Then the gradient through
/// the maximum vanishes.
class ShiftInvariance {
public:
  static bool holds(LookbackOp op) {
    ShiftInvariance analysis;
    analysis.changes[op.getResult(0)] = {0, 1};
    analysis.changes[op.getResult(1)] = analysis.changes[op.getResult(2)] = {-1, 0};
    for (Operation *later = op->getNextNode(); later; later = later->getNextNode())
      if (!analysis.visit(later))
        return false;
    return true;
  }

private:
  Change of(Value row) const { return changes.lookup(row); }
  std::optional<Change> changeOf(Operation *op) const;

  bool visit(Operation *op) {
    bool depends = llvm::any_of(op->getOperands(), [&](Value row) { return of(row) != Change(); });
    op->walk([&](Operation *inner) {
      for (Value row : inner->getOperands())
        depends |= of(row) != Change();
    });
    if (!depends)
      return true;
    std::optional<Change> change = op->getNumResults() == 1 ? changeOf(op) : std::nullopt;
    if (change)
      changes[op->getResult(0)] = *change;
    return change.has_value();
  }

  llvm::DenseMap<Value, Change> changes;
};

} // namespace

std::optional<Change> ShiftInvariance::changeOf(Operation *op) const {
  Change a = of(op->getOperand(0)), b = op->getNumOperands() > 1 ? of(op->getOperand(1)) : Change();
  if (isa<BroadcastOp, SliceOp, GroupSumOp>(op))
    return a;
  bool isReal = isa<arith::AddFOp, arith::SubFOp>(op);
  if (isReal && a.scale == 0 && b.scale == 0)
    return Change{0, isa<arith::AddFOp>(op) ? a.shift + b.shift : a.shift - b.shift};
  if (isReal && a.shift == 0 && a == b)
    return a;
  if (isa<arith::NegFOp>(op))
    return Change{a.scale, -a.shift};
  if (isa<arith::MulFOp>(op) && a.shift == 0 && b.shift == 0)
    return Change{a.scale + b.scale, 0};
  if (isa<arith::DivFOp>(op) && a.shift == 0 && b.shift == 0)
    return Change{a.scale - b.scale, 0};
  if (isa<math::LogOp>(op) && a.shift == 0)
    return Change{0, a.scale};
  if (isa<math::ExpOp>(op) && a.scale == 0)
    return Change{a.shift, 0};
  bool isSum = isa<ReduceOp>(op) && cast<ReduceOp>(op).getKind() != Reduction::Max;
  if ((isSum || isa<ConcatOp>(op)) && a.shift == 0 &&
      llvm::all_of(op->getOperands(), [&](Value x) { return of(x) == a; }))
    return a;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// The adjoint of a fold
//===----------------------------------------------------------------------===//

/// The body of a look-back once more, in one that sums over the same pairs. For a look-ahead the tokens of a pair have
/// changed places.
class Adjoint::PairBody {
public:
  PairBody(Adjoint &b, LookbackOp original, bool ahead) : b(b), ahead(ahead) {
    Region &region = original.getBody();
    for (Operation &inner : region.front().without_terminator()) {
      if (auto past = dyn_cast<PastOp>(inner)) {
        mapping.map(past.getResult(), ahead ? past.getOperand() : b.create<PastOp>(past.getOperand()).getResult());
        continue;
      }
      for (Value operand : inner.getOperands())
        if (!region.isAncestor(operand.getParentRegion()))
          mapping.map(operand, ofToken(operand));
      b.program.push_back(b.clone(inner, mapping));
    }
  }

  /// A row of the token at which the original look-back stands.
  Value ofToken(Value row) { return ahead && isRow(row.getType()) ? b.createOrFold<PastOp>(row) : row; }
  /// What stands for a value that the original body yields.
  Value yielded(Value row) { return mapping.contains(row) ? mapping.lookup(row) : ofToken(row); }

private:
  Adjoint &b;
  bool ahead;
  IRMapping mapping;
};

/// Whether a factor of scores is known beforehand, and finite.
static bool isKnown(Value factor) {
  FloatAttr constant;
  return factor.getDefiningOp<OptionOp>() ||
         (matchPattern(factor, m_Constant(&constant)) && constant.getValue().isFinite());
}

/// Whether a score leaves a pair out, as -inf does. Products of rows do not, which nothing else can be asked of.
static bool mayLeaveOut(Value score) {
  if (auto product = score.getDefiningOp<arith::MulFOp>())
    return llvm::any_of(product->getOperands(), [](Value factor) { return !isKnown(factor) && mayLeaveOut(factor); });
  return !score.getDefiningOp<DotOp>();
}

/// Adds the cotangents of what the body of `op` makes of a pair. `cotangents` are those of its results, some of which
/// may be missing.
void Adjoint::addPair(LookbackOp op, PairBody &body, ArrayRef<Value> cotangents, Value ofMaximum) {
  ValueRange yielded = op.getBody().front().getTerminator()->getOperands();
  auto ofToken = [&](Value row) { return row ? body.ofToken(row) : Value(); };
  auto sumOf = [&](Value a, Value b) { return a && b ? plus(a, b) : a ? a : b; };
  /// Whether none of some scores leaves a pair out; null where none can.
  auto countsIn = [&](std::initializer_list<Value> scores) {
    Value counts, none = constant(op.getResult(0).getType(), -std::numeric_limits<double>::infinity());
    for (Value score : scores)
      if (mayLeaveOut(score)) {
        Value own = create<arith::CmpFOp>(arith::CmpFPredicate::OGT, score, none);
        counts = counts ? create<arith::AndIOp>(counts, own).getResult() : own;
      }
    return counts;
  };
  auto where = [&](Value counts, Value number) { return counts ? zeroUnless(counts, number) : number; };
  /// Of a score that is -inf the difference is not formed.
  auto differenceWhere = [&](Value counts, Value score, Value from) {
    return where(counts, create<arith::SubFOp>(score, from));
  };

  switch (op.getFold()) {
  case Fold::Sum:
    for (auto [contribution, cotangent] : llvm::zip_equal(yielded, cotangents))
      if (cotangent)
        add(body.yielded(contribution), ofToken(cotangent));
    return;

  case Fold::Softmax: {
    Value score = body.yielded(yielded[0]), contribution = body.yielded(yielded[1]);
    Value m = ofToken(op.getResult(0)), dl = ofToken(cotangents[1]), dacc = ofToken(cotangents[2]);
    Value counts = countsIn({score});
    Value weight = where(counts, create<math::ExpOp>(differenceWhere(counts, score, m)));
    Value dscore = dl;
    if (dacc) {
      bool isNumber = axisOf(contribution.getType()).empty();
      dscore = sumOf(dl, isNumber ? times(dacc, contribution)
                                  : create<DotOp>(score.getType(), dacc, contribution).getResult());
      add(contribution, times(repeat(weight, contribution.getType()), dacc));
    }
    if (dscore)
      add(score, times(weight, dscore));
    if (ofMaximum) {
      Value hit = create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, score, m);
      add(score, zeroUnless(hit, ofToken(ofMaximum)));
    }
    return;
  }

  case Fold::Divergence: {
    Value teacher = body.yielded(yielded[0]), student = body.yielded(yielded[1]);
    Value dkl = ofToken(cotangents[0]);
    Value counts = countsIn({teacher, student});
    Value logTeacher = differenceWhere(counts, teacher, ofToken(op.getResult(1)));
    Value logStudent = differenceWhere(counts, student, ofToken(op.getResult(2)));
    auto probability = [&](Value log) { return where(counts, create<math::ExpOp>(log)); };
    Value pTeacher = probability(logTeacher), pStudent = probability(logStudent);
    if (isActive(teacher)) {
      Value dlse = ofToken(cotangents[1]), part;
      if (dkl) {
        Value excess = create<arith::SubFOp>(create<arith::SubFOp>(logTeacher, logStudent), ofToken(op.getResult(0)));
        part = times(excess, dkl);
      }
      if (Value all = sumOf(part, dlse))
        add(teacher, times(pTeacher, all));
    }
    if (dkl)
      add(student, times(create<arith::SubFOp>(pStudent, pTeacher), dkl));
    if (Value dlse = ofToken(cotangents[2]))
      add(student, times(pStudent, dlse));
    return;
  }
  }
}

/// What each pair that attains the maximum receives on its behalf, for softmax.
Value Adjoint::gradientOfMaximum(LookbackOp op, ArrayRef<Value> cotangents) {
  Value m = op.getResult(0), l = op.getResult(1), acc = op.getResult(2), total = cotangents[0];
  auto subtract = [&](Value part) { total = total ? create<arith::SubFOp>(total, part).getResult() : negative(part); };
  if (Value dl = cotangents[1])
    subtract(times(l, dl));
  if (Value dacc = cotangents[2])
    subtract(axisOf(acc.getType()).empty() ? times(acc, dacc) : create<DotOp>(l.getType(), acc, dacc).getResult());

  auto ties = create<LookbackOp>(TypeRange(l.getType()), Fold::Sum, op.getFirst(), op.getToEnd(), /*reverse=*/false);
  Adjoint inner(*this, ties.getBody().emplaceBlock());
  PairBody body(inner, op, /*ahead=*/false);
  Value score = body.yielded(op.getBody().front().getTerminator()->getOperand(0));
  Value hit = inner.create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, score, m);
  inner.create<YieldOp>(inner.select(hit, inner.constant(l.getType(), 1), inner.constant(l.getType(), 0)));
  // A range without pairs has no maximum.
  Value counts = create<arith::CmpFOp>(arith::CmpFPredicate::OGT, ties.getResult(0), constant(l.getType(), 0));
  return zeroUnless(counts, over(total, ties.getResult(0)));
}

LogicalResult Adjoint::visitLookback(LookbackOp op) {
  SmallVector<Value> cotangents = llvm::map_to_vector(op.getResults(), [&](Value row) { return cotangentOf(row); });
  if (llvm::none_of(cotangents, [](Value row) { return row != nullptr; }))
    return success();
  if (op.getReverse())
    return op.emitError("[R14] runs in reverse; second derivatives are not supported");

  // Rows of the token, and rows of the other token.
  llvm::SetVector<Value> leaves[2];
  bool hasParameter = false;
  Region &region = op.getBody();
  region.walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      if (region.isAncestor(operand.getParentRegion()) || !isActive(operand))
        continue;
      hasParameter |= isParam(operand.getType());
      leaves[isa<PastOp>(inner)].insert(operand);
    }
  });
  if (hasParameter)
    return op.emitError("[R14] uses a parameter in its body, whose gradient would be a sum over all pairs; expected it "
                        "to be applied to rows outside");

  bool needsMaximum = op.getFold() == Fold::Softmax && !ShiftInvariance::holds(op);
  Value ofMaximum = needsMaximum ? gradientOfMaximum(op, cotangents) : Value();
  for (bool ahead : {false, true}) {
    ArrayRef<Value> wanted = leaves[ahead].getArrayRef();
    if (wanted.empty())
      continue;
    auto sum = create<LookbackOp>(TypeRange(ValueRange(wanted)), Fold::Sum, op.getFirst(), op.getToEnd(), ahead);
    Adjoint inner(*this, sum.getBody().emplaceBlock());
    PairBody body(inner, op, ahead);
    inner.active.insert(wanted.begin(), wanted.end());
    inner.findActive();
    inner.addPair(op, body, cotangents, ofMaximum);
    for (Operation *each : llvm::reverse(inner.program))
      if (failed(inner.visit(each)))
        return failure();
    inner.create<YieldOp>(llvm::map_to_vector(wanted, [&](Value leaf) { return inner.gradientOf(leaf); }));
    for (auto [leaf, gradient] : llvm::zip_equal(wanted, sum.getResults()))
      add(leaf, gradient);
  }
  return success();
}
