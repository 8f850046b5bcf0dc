//===- LookbackInterpreter.cpp - Executes look-backs, pair by pair --------===//

#include "dialect/chunk/ChunkInterpreter.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace stretto::chunk {

static constexpr double infinity = std::numeric_limits<double>::infinity();

LookbackFold::LookbackFold(LookbackOp op) : op(op) {
  for (Value result : op.getResults())
    results.emplace_back(cast<RankedTensorType>(result.getType()).getShape());
  int64_t tokens = results[0].rows();
  largest.assign(2 * tokens, -infinity);
  totals.assign(2 * tokens, 0);
}

double LookbackFold::weigh(int64_t sum, double score) {
  double scale = 1;
  if (score > largest[sum] || std::isnan(score))
    scale = std::exp(std::exchange(largest[sum], score) - score);
  totals[sum] = totals[sum] * scale + std::exp(score - largest[sum]);
  return scale;
}

void LookbackFold::addPair(ArrayRef<const Tile *> given, int64_t i, int64_t j) {
  switch (op.getFold()) {
  case Fold::Sum:
    for (auto [index, result] : llvm::enumerate(results))
      for (int64_t d = 0; d < result.columns(); ++d)
        result.at(i, d) += given[2 * index]->at(i, j) * given[2 * index + 1]->at(j, d);
    return;
  case Fold::Softmax: {
    double score = given[0]->at(i, j);
    if (score == -infinity)
      return;
    if (results.size() == 4)
      results[3].at(i, 0) = score > largest[i] ? 1 : results[3].at(i, 0) + (score == largest[i] ? 1 : 0);
    double scale = weigh(i, score), weight = std::exp(score - largest[i]);
    for (int64_t d = 0; d < results[2].columns(); ++d)
      results[2].at(i, d) = results[2].at(i, d) * scale + weight * given[1]->at(j, d);
    return;
  }
  case Fold::Divergence: {
    double teacher = given[0]->at(i, j), student = given[1]->at(i, j);
    if (teacher == -infinity || student == -infinity)
      return;
    int64_t tokens = results[0].rows();
    double scale = weigh(i, teacher);
    weigh(tokens + i, student);
    results[0].at(i, 0) = results[0].at(i, 0) * scale + std::exp(teacher - largest[i]) * (teacher - student);
    return;
  }
  case Fold::Outer:
    return; // not of pairs
  }
}

void LookbackFold::addRow(ArrayRef<const Tile *> given, int64_t j) {
  if (op.getFold() != Fold::Outer)
    return;
  for (auto [index, result] : llvm::enumerate(results))
    for (int64_t n = 0; n < result.rows(); ++n)
      for (int64_t d = 0; d < result.columns(); ++d)
        result.at(n, d) += given[2 * index]->at(j, n) * given[2 * index + 1]->at(j, d);
}

std::vector<Tile> LookbackFold::finish() {
  int64_t tokens = results[0].rows();
  auto logarithm = [&](int64_t sum) {
    return largest[sum] == -infinity ? -infinity : largest[sum] + std::log(totals[sum]);
  };
  for (int64_t i = 0; i < tokens; ++i) {
    if (op.getFold() == Fold::Softmax) {
      results[0].at(i, 0) = largest[i];
      results[1].at(i, 0) = totals[i];
    } else if (op.getFold() == Fold::Divergence) {
      double &divergence = results[0].at(i, 0);
      double teacher = results[1].at(i, 0) = logarithm(i), student = results[2].at(i, 0) = logarithm(tokens + i);
      divergence = teacher == -infinity ? 0 : divergence / totals[i] - teacher + student;
    }
  }
  return std::move(results);
}

} // namespace stretto::chunk
