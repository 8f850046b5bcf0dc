//===- ChunksMet.cpp - Which other chunks a chunk meets -------------------===//

#include "passes/declaration/ChunksMet.h"
#include "dialect/stretto/StrettoDialect.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace stretto;

/// What a time is made of, in an order in which it can be; nothing where it is made of more than positions.
static std::optional<SetVector<Operation *>> makersOf(Value time) {
  SetVector<Operation *> makers;
  BackwardSliceOptions options;
  options.inclusive = true;
  Operation *maker = time.getDefiningOp();
  if (!maker || failed(getBackwardSlice(maker, &makers, options)))
    return std::nullopt;
  return topologicalSort(makers);
}

std::optional<double> stretto::timeAt(Value time, double position) {
  auto numberOf = [](Value value, double number) {
    return SplatElementsAttr::get(cast<ShapedType>(value.getType()), number);
  };
  std::optional<SetVector<Operation *>> makers = makersOf(time);
  if (!makers)
    return std::nullopt;
  llvm::DenseMap<Value, Attribute> numbers;
  for (Operation *op : *makers) {
    if (op->getNumResults() != 1 || !axisOf(op->getResult(0).getType()).empty())
      return std::nullopt;
    Value result = op->getResult(0);
    if (isa<PositionOp>(op)) {
      numbers[result] = numberOf(result, position);
      continue;
    }
    if (isa<BroadcastOp>(op)) {
      numbers[result] = numbers.lookup(op->getOperand(0));
      continue;
    }
    SmallVector<Attribute> operands =
        llvm::map_to_vector(op->getOperands(), [&](Value operand) { return numbers.lookup(operand); });
    SmallVector<OpFoldResult> folded;
    if (failed(op->fold(operands, folded)) || folded.size() != 1 || !isa<Attribute>(folded.front()))
      return std::nullopt;
    numbers[result] = cast<Attribute>(folded.front());
  }
  auto number = dyn_cast_or_null<SplatElementsAttr>(numbers.lookup(time));
  return number ? std::optional(number.getSplatValue<APFloat>().convertToDouble()) : std::nullopt;
}

namespace {
/// How a time moves on: by `pace` for each token, on average, and after `period` tokens just as before.
struct Progress {
  double pace = 0;
  int64_t period = 1;
  bool hasSteps = false;
};
} // namespace

static std::optional<double> constantOf(Value value) {
  Operation *maker = value.getDefiningOp();
  if (auto repeated = dyn_cast_if_present<BroadcastOp>(maker))
    return constantOf(repeated.getOperand());
  SmallVector<OpFoldResult> folded;
  if (!maker || maker->getNumOperands() || failed(maker->fold({}, folded)) || folded.size() != 1)
    return std::nullopt;
  auto number = dyn_cast_if_present<SplatElementsAttr>(dyn_cast<Attribute>(folded.front()));
  return number ? std::optional(number.getSplatValue<APFloat>().convertToDouble()) : std::nullopt;
}

/// Chunks are looked at from this one on, as many, so that what is found holds for all; a period of more tokens than
/// the longest chunks have is not seen by that.
static constexpr int64_t chunksLookedAt = 32, longestPeriod = chunksLookedAt * 1024;

/// Of sums, multiples and whole parts of positions.
static std::optional<Progress> progressOf(Value time) {
  std::optional<SetVector<Operation *>> makers = makersOf(time);
  if (!makers)
    return std::nullopt;
  llvm::DenseMap<Value, Progress> known;
  for (Operation *op : *makers) {
    if (op->getNumResults() != 1)
      return std::nullopt;
    Progress progress;
    auto of = [&](unsigned operand) { return known.lookup(op->getOperand(operand)); };
    if (isa<PositionOp>(op)) {
      progress.pace = 1;
    } else if (isa<BroadcastOp, arith::NegFOp>(op)) {
      progress = of(0);
      progress.pace = isa<arith::NegFOp>(op) ? -progress.pace : progress.pace;
    } else if (isa<arith::AddFOp, arith::SubFOp>(op)) {
      Progress left = of(0), right = of(1);
      progress = {isa<arith::AddFOp>(op) ? left.pace + right.pace : left.pace - right.pace,
                  std::lcm(left.period, right.period), left.hasSteps || right.hasSteps};
    } else if (isa<arith::MulFOp, arith::DivFOp>(op)) {
      std::optional<double> left = constantOf(op->getOperand(0)), right = constantOf(op->getOperand(1));
      if (right) {
        progress = of(0);
        progress.pace = isa<arith::MulFOp>(op) ? progress.pace * *right : progress.pace / *right;
      } else if (left && isa<arith::MulFOp>(op)) {
        progress = of(1);
        progress.pace *= *left;
      } else {
        return std::nullopt;
      }
    } else if (isa<math::FloorOp>(op)) {
      progress = of(0);
      double length = progress.pace == 0 ? 1 : std::abs(1 / progress.pace);
      if (progress.hasSteps || length != std::round(length) || length < 1 || length > longestPeriod)
        return std::nullopt;
      progress.period = std::lcm(progress.period, static_cast<int64_t>(length));
      progress.hasSteps = true;
    } else if (!constantOf(op->getResult(0))) {
      return std::nullopt;
    }
    if (progress.period > longestPeriod)
      return std::nullopt;
    known[op->getResult(0)] = progress;
  }
  return known.lookup(time);
}

/// Whether a time goes on with each token, and chunks of so many tokens have been seen when as many as are looked at
/// have been.
static bool followsTokens(Value time, int64_t tokens) {
  std::optional<Progress> progress = progressOf(time);
  return progress && progress->pace == 1 && std::lcm(progress->period, tokens) <= chunksLookedAt * tokens;
}

/// The token of a time at a position, where it is a number that tokens have: a range may begin at minus infinity.
static std::optional<int64_t> tokenAt(Value time, int64_t position, bool roundsUp = false) {
  constexpr double most = 1e12;
  std::optional<double> number = timeAt(time, static_cast<double>(position));
  if (!number || !(std::abs(*number) < most))
    return std::nullopt;
  return static_cast<int64_t>(roundsUp ? std::ceil(*number) : std::floor(*number));
}

/// Calls a function with the number of a chunk that is looked at; whether it holds for all of them.
static bool allOf(llvm::function_ref<bool(int64_t)> holds) {
  return llvm::all_of(llvm::seq(chunksLookedAt, 2 * chunksLookedAt), holds);
}

ChunksMet ChunksMet::seen(Value first, int64_t tokens) {
  if (!followsTokens(first, tokens))
    return {};
  Distances met{0, 0}, whole{chunksLookedAt, 1};
  bool isKnown = allOf([&](int64_t chunk) {
    std::optional<int64_t> ofFirst = tokenAt(first, chunk * tokens, /*roundsUp=*/true),
                           ofLast = tokenAt(first, (chunk + 1) * tokens - 1, /*roundsUp=*/true);
    if (!ofFirst || !ofLast)
      return false;
    met.farthest = std::max(met.farthest, chunk - llvm::divideFloorSigned(*ofFirst, tokens));
    whole.farthest = std::min(whole.farthest, chunk - llvm::divideCeilSigned(*ofLast, tokens));
    return met.farthest < chunksLookedAt;
  });
  if (!isKnown)
    return {};
  return {met, whole.farthest < whole.nearest ? std::nullopt : std::optional(whole)};
}

/// One chunk, as far from each.
static ChunksMet atDistance(std::optional<int64_t> distance) {
  if (!distance || *distance < 1)
    return {};
  ChunksMet::Distances one{*distance, *distance};
  return {one, one};
}

ChunksMet ChunksMet::joining(Value time, int64_t tokens) {
  std::optional<int64_t> distance;
  bool isKnown = followsTokens(time, tokens) && allOf([&](int64_t chunk) {
                   std::optional<int64_t> before = tokenAt(time, chunk * tokens - 1),
                                          first = tokenAt(time, chunk * tokens),
                                          last = tokenAt(time, (chunk + 1) * tokens - 1);
                   // Of a chunk with fewer tokens all joins, too, if its tokens have one time.
                   if (!before || !first || !last || *first != *last)
                     return false;
                   if (!distance)
                     distance = chunk - llvm::divideFloorSigned(*before + 1, tokens);
                   return *before + 1 == (chunk - *distance) * tokens && *last == *before + tokens;
                 });
  return isKnown ? atDistance(distance) : ChunksMet();
}

ChunksMet ChunksMet::joinedAhead(Value time, int64_t tokens) {
  std::optional<int64_t> distance;
  bool isKnown = followsTokens(time, tokens) && allOf([&](int64_t chunk) {
                   std::optional<int64_t> first = tokenAt(time, chunk * tokens),
                                          last = tokenAt(time, (chunk + 1) * tokens - 1);
                   if (!first || !last || *first != *last)
                     return false;
                   if (!distance)
                     distance = chunk - llvm::divideFloorSigned(*first, tokens);
                   return *first + 1 == (chunk - *distance + 1) * tokens;
                 });
  return isKnown ? atDistance(distance) : ChunksMet();
}

void ChunksMet::setOn(chunk::LookbackOp op) const {
  auto set = [](const std::optional<Distances> &distances, auto setAttribute) {
    if (distances)
      setAttribute(ArrayRef<int64_t>{distances->farthest, distances->nearest});
  };
  set(met, [&](ArrayRef<int64_t> distances) { op.setMet(distances); });
  set(wholly, [&](ArrayRef<int64_t> distances) { op.setWholly(distances); });
}
