//===- Lookback.cpp - Folds over the keys of a range ----------------------===//

#include "dialect/stretto/interpreter/Compiler.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {

/// How pairs are folded: `begin` before the first pair of a token, `add` after the body of each, `end` after the last.
struct FoldInstructions {
  Instruction begin, add, end;
};

/// A sum of e^(score - largest), rescaled whenever a larger score arrives.
struct ExponentialSum {
  double largest = -infinity, total = 0;

  /// Takes a score that is not -inf; returns by what the sums so far are to be multiplied.
  double rescale(double score) {
    if (!(score > largest) && !std::isnan(score))
      return 1;
    double factor = std::exp(std::exchange(largest, score) - score);
    total *= factor;
    return factor;
  }
  double weight(double score) const { return std::exp(score - largest); }
  double logarithm() const { return total == 0 && largest == -infinity ? -infinity : largest + std::log(total); }
};

} // namespace

static FoldInstructions sumFold(ArrayRef<Row> contributions, ArrayRef<Row> results) {
  SmallVector<std::pair<Row, Row>> sums;
  for (auto [contribution, result] : llvm::zip_equal(contributions, results))
    sums.emplace_back(contribution, result);
  auto begin = [=](Frame &frame) {
    for (auto [contribution, result] : sums)
      std::fill_n(frame.at(result), result.size(), 0.0);
  };
  auto add = [=](Frame &frame) {
    for (auto [contribution, result] : sums) {
      const double *c = frame.at(contribution);
      double *sum = frame.at(result);
      for (int64_t i = 0; i < result.size(); ++i)
        sum[i] += c[i];
    }
  };
  return {begin, add, [](Frame &) {}};
}

static FoldInstructions softmaxFold(Row score, Row contribution, ArrayRef<Row> results) {
  Row m = results[0], l = results[1], acc = results[2];
  auto sums = std::make_shared<std::vector<ExponentialSum>>(score.heads);
  auto begin = [=](Frame &frame) {
    std::fill(sums->begin(), sums->end(), ExponentialSum());
    std::fill_n(frame.at(acc), acc.size(), 0.0);
  };
  auto add = [=](Frame &frame) {
    const double *s = frame.at(score), *c = frame.at(contribution);
    double *a = frame.at(acc);
    for (int64_t h = 0; h < score.heads; ++h, a += acc.width, c += acc.width) {
      if (s[h] == -infinity)
        continue;
      ExponentialSum &sum = (*sums)[h];
      double factor = sum.rescale(s[h]), weight = sum.weight(s[h]);
      sum.total += weight;
      for (int64_t d = 0; d < acc.width; ++d)
        a[d] = a[d] * factor + weight * c[d];
    }
  };
  auto end = [=](Frame &frame) {
    for (int64_t h = 0; h < score.heads; ++h) {
      frame.at(m)[h] = (*sums)[h].largest;
      frame.at(l)[h] = (*sums)[h].total;
    }
  };
  return {begin, add, end};
}

static FoldInstructions divergenceFold(Row teacherScore, Row studentScore, ArrayRef<Row> results) {
  Row kl = results[0], teacherLog = results[1], studentLog = results[2];
  struct Sums {
    ExponentialSum teacher, student;
    double difference = 0; // sum of e^(teacher - largest) * (teacher - student)
  };
  auto sums = std::make_shared<std::vector<Sums>>(teacherScore.heads);
  auto begin = [=](Frame &) { std::fill(sums->begin(), sums->end(), Sums()); };
  auto add = [=](Frame &frame) {
    const double *teacher = frame.at(teacherScore), *student = frame.at(studentScore);
    for (int64_t h = 0; h < teacherScore.heads; ++h) {
      if (teacher[h] == -infinity || student[h] == -infinity)
        continue;
      Sums &sum = (*sums)[h];
      sum.difference *= sum.teacher.rescale(teacher[h]);
      double weight = sum.teacher.weight(teacher[h]);
      sum.teacher.total += weight;
      sum.difference += weight * (teacher[h] - student[h]);
      sum.student.rescale(student[h]);
      sum.student.total += sum.student.weight(student[h]);
    }
  };
  auto end = [=](Frame &frame) {
    for (int64_t h = 0; h < teacherScore.heads; ++h) {
      const Sums &sum = (*sums)[h];
      double logT = sum.teacher.logarithm(), logS = sum.student.logarithm();
      bool empty = sum.teacher.largest == -infinity;
      frame.at(kl)[h] = empty ? 0 : sum.difference / sum.teacher.total - logT + logS;
      frame.at(teacherLog)[h] = logT;
      frame.at(studentLog)[h] = logS;
    }
  };
  return {begin, add, end};
}

/// Where the range of token `token` begins, as an index into the sequence: the first that is not before `first`. A NaN
/// begins at the end.
static int64_t beginOfRange(Frame &frame, Row first, int64_t token, Operation *op) {
  double begin = std::ceil(*frame.at(first, token)) - static_cast<double>(frame.start);
  if (std::isnan(begin))
    frame.fail(op, "the range of token " + Twine(token) + " begins at a NaN");
  return begin <= 0 ? 0 : begin < static_cast<double>(frame.length) ? static_cast<int64_t>(begin) : frame.length;
}

/// Ranges never begin earlier over time.
static void checkOrder(Frame &frame, int64_t earlier, int64_t later, Operation *op) {
  if (later < earlier)
    frame.fail(op, "a range begins at token " + Twine(later) + ", that of an earlier token at " + Twine(earlier) +
                       "; expected ranges that never begin earlier over time");
}

LogicalResult Compiler::compileLookback(LookbackOp op) {
  SmallVector<Row> results;
  for (Value value : op.getResults()) {
    FailureOr<Row> result = define(value);
    if (failed(result))
      return failure();
    results.push_back(*result);
  }

  // What does not depend on the other token is computed once for each token.
  std::vector<Instruction> ofToken, ofPair;
  llvm::DenseSet<Value> pastValues;
  std::vector<Instruction> *outside = target;
  Block &block = op.getBody().front();
  for (Operation &inner : block.without_terminator()) {
    bool usesPast = isa<PastOp>(inner) ||
                    llvm::any_of(inner.getOperands(), [&](Value operand) { return pastValues.contains(operand); });
    if (usesPast)
      pastValues.insert(inner.result_begin(), inner.result_end());
    target = usesPast ? &ofPair : &ofToken;
    if (failed(compile(&inner)))
      return failure();
  }
  target = outside;

  SmallVector<Row> yielded = rowsOf(block.getTerminator()->getOperands());
  FoldInstructions fold = op.getFold() == Fold::Sum       ? sumFold(yielded, results)
                          : op.getFold() == Fold::Softmax ? softmaxFold(yielded[0], yielded[1], results)
                                                          : divergenceFold(yielded[0], yielded[1], results);
  auto addPair = [=](Frame &frame, int64_t other) {
    frame.past = other;
    for (const Instruction &instruction : ofPair)
      instruction(frame);
    fold.add(frame);
  };
  Row first = rows.at(op.getFirst());
  bool reverse = op.getReverse(), toEnd = op.getToEnd();
  bool backwards = Schedule::isReverse(pass);
  // Where the range of the token that was executed before began.
  auto neighbour = std::make_shared<std::optional<int64_t>>();
  currentPass().begin.emplace_back([=](Frame &) { neighbour->reset(); });
  emit([=](Frame &frame) {
    fold.begin(frame);
    for (const Instruction &instruction : ofToken)
      instruction(frame);
    if (reverse) {
      // The tokens whose ranges hold this one are consecutive.
      int64_t earlier = 0;
      for (int64_t u = toEnd ? 0 : frame.token; u < frame.length; ++u) {
        int64_t begin = beginOfRange(frame, first, u, op);
        checkOrder(frame, std::exchange(earlier, begin), begin, op);
        if (begin > frame.token)
          break;
        addPair(frame, u);
      }
    } else {
      int64_t begin = beginOfRange(frame, first, frame.token, op);
      if (*neighbour)
        checkOrder(frame, backwards ? begin : **neighbour, backwards ? **neighbour : begin, op);
      *neighbour = begin;
      for (int64_t j = begin, last = toEnd ? frame.length - 1 : frame.token; j <= last; ++j)
        addPair(frame, j);
    }
    fold.end(frame);
  });
  return success();
}
