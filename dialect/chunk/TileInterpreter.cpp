//===- TileInterpreter.cpp - Executes one operation on tiles --------------===//

#include "dialect/chunk/ChunkInterpreter.h"
#include "dialect/stretto/interpreter/Scalars.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;

namespace stretto::chunk {

Tile::Tile(ArrayRef<int64_t> shape, double value) : shape(shape) {
  int64_t size = 1;
  for (int64_t length : shape)
    size *= length;
  values.assign(size, value);
}

/// An index, which the run counts in, is one number.
static Tile tileFor(Value value) {
  auto type = dyn_cast<ShapedType>(value.getType());
  return Tile(type ? type.getShape() : ArrayRef<int64_t>());
}

static std::optional<Tile> elementwise(Operation *op, ArrayRef<const Tile *> operands) {
  Tile result = tileFor(op->getResult(0));
  size_t size = result.values.size();
  if (auto map = interpreter::unaryOf(op)) {
    for (size_t i = 0; i < size; ++i)
      result.values[i] = map(operands[0]->values[i]);
    return result;
  }
  if (auto map = interpreter::binaryOf(op)) {
    for (size_t i = 0; i < size; ++i)
      result.values[i] = map(operands[0]->values[i], operands[1]->values[i]);
    return result;
  }
  if (isa<math::FmaOp>(op)) {
    for (size_t i = 0; i < size; ++i)
      result.values[i] = std::fma(operands[0]->values[i], operands[1]->values[i], operands[2]->values[i]);
    return result;
  }
  if (isa<arith::SelectOp>(op)) {
    for (size_t i = 0; i < size; ++i)
      result.values[i] = operands[0]->values[operands[0]->shape.empty() ? 0 : i] != 0 ? operands[1]->values[i]
                                                                                      : operands[2]->values[i];
    return result;
  }
  return std::nullopt;
}

namespace {

/// The factor of each token and channel that a decay multiplies by.
class Factors {
public:
  Factors(const Tile &amount, DecayForm form) : amount(amount), form(form) {}
  int64_t tokens() const { return amount.rows(); }
  double at(int64_t token, int64_t channel) const {
    double value = amount.at(token, amount.shape.size() == 2 ? channel : 0);
    return form == DecayForm::Log ? std::exp(value) : value;
  }
  /// The product over the tokens from `begin` on, before `end`.
  double product(int64_t begin, int64_t end, int64_t channel) const {
    double result = 1;
    for (int64_t u = begin; u < end; ++u)
      result *= at(u, channel);
    return result;
  }

private:
  const Tile &amount;
  DecayForm form;
};

/// One overload for each operation, which computes `y` from the operands `x`.
struct TileOperation {
  ArrayRef<const Tile *> x;
  int64_t valid;
  Tile y;

  /// Sets every entry to what the function says of its row and column.
  template <typename Function> LogicalResult fill(Function function) {
    for (int64_t i = 0; i < y.rows(); ++i)
      for (int64_t j = 0; j < y.columns(); ++j)
        y.at(i, j) = function(i, j);
    return success();
  }

  LogicalResult run(arith::ConstantOp op) {
    if (auto index = dyn_cast<IntegerAttr>(op.getValue()); index && op.getType().isIndex()) {
      y.values.assign(1, static_cast<double>(index.getInt()));
      return success();
    }
    auto elements = dyn_cast<DenseElementsAttr>(op.getValue());
    if (!elements)
      return failure();
    bool conditions = elements.getElementType().isInteger(1);
    SmallVector<double> numbers;
    if (conditions)
      for (bool value : elements.getValues<bool>())
        numbers.push_back(value);
    else
      for (APFloat value : elements.getValues<APFloat>())
        numbers.push_back(value.convertToDouble());
    y.values.assign(numbers.begin(), numbers.end());
    return success();
  }
  LogicalResult run(BroadcastOp op) {
    if (x[0]->shape.empty())
      return fill([&](int64_t, int64_t) { return x[0]->values[0]; });
    return fill([&](int64_t i, int64_t j) { return x[0]->values[op.getAlong() == Side::Rows ? i : j]; });
  }
  LogicalResult run(ColumnsOp op) {
    int64_t from = op.getFrom();
    if (x[0]->shape.size() == 1) // entries of a vector
      return fill([&](int64_t i, int64_t) { return x[0]->values[from + i]; });
    return fill([&](int64_t i, int64_t j) { return x[0]->at(i, from + j); });
  }
  LogicalResult run(RowOp op) {
    return fill([&](int64_t i, int64_t) { return x[0]->at(op.getAt(), i); });
  }
  LogicalResult run(ConcatOp op) {
    int64_t start = 0;
    for (const Tile *part : x) {
      for (int64_t i = 0; i < part->rows(); ++i)
        for (int64_t j = 0; j < part->columns(); ++j)
          y.at(i, start + j) = part->at(i, j);
      start += part->columns();
    }
    return success();
  }
  LogicalResult run(DotOp op) {
    int64_t inner = op.getTransposeLeft() ? x[0]->rows() : x[0]->columns();
    return fill([&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t d = 0; d < inner; ++d)
        sum += (op.getTransposeLeft() ? x[0]->at(d, i) : x[0]->at(i, d)) *
               (op.getTransposeRight() ? x[1]->at(j, d) : x[1]->at(d, j));
      return op.getAddend() ? sum + x[2]->at(i, j) : sum;
    });
  }
  LogicalResult run(ReduceOp op) {
    bool overColumns = op.getOver() == Side::Columns, isMax = op.getKind() == Reduction::Max;
    int64_t count = overColumns ? x[0]->columns() : x[0]->rows();
    return fill([&](int64_t i, int64_t) {
      double result = isMax ? -HUGE_VAL : 0;
      for (int64_t j = 0; j < count; ++j) {
        double value = overColumns ? x[0]->at(i, j) : x[0]->at(j, i);
        if (!isMax)
          result += value;
        else if (std::isnan(value) || value > result)
          result = std::isnan(result) ? result : value;
      }
      return result;
    });
  }
  LogicalResult run(CausalOp op) {
    return fill([&](int64_t i, int64_t j) { return j < i || (j == i && !op.getStrict()) ? x[0]->at(i, j) : 0; });
  }
  /// The tokens of a block, of which `halved`, where it is given, follows what an operation takes otherwise; of more
  /// halves than there are, the smallest block.
  template <typename Op> int64_t blockOf(Op op) {
    constexpr int64_t least = std::is_same_v<Op, MeetOp> ? 1 : 2;
    int64_t block = op.getBlock();
    if (!op.getHalved())
      return block;
    auto halves = static_cast<int64_t>(std::clamp<double>(x.back()->values[0], 0, 62));
    return std::max(block >> halves, least);
  }
  LogicalResult run(MeetOp op) {
    int64_t own = blockOf(op);
    return fill([&](int64_t i, int64_t j) {
      // The smallest block that has both has twice the highest bit in which they differ.
      int64_t block = i == j ? 1 : int64_t(2) << llvm::Log2_64(i ^ j);
      bool isMet = op.getWhole() ? block <= own : block == own;
      return j <= i && isMet ? x[0]->at(i, j) : x[1]->at(i, j);
    });
  }
  LogicalResult run(MiddleOp op) {
    int64_t block = blockOf(op);
    return fill([&](int64_t i, int64_t j) { return x[0]->at(i / block * block + block / 2 - 1, j); });
  }
  LogicalResult run(JoinHalvesOp op) {
    int64_t block = blockOf(op);
    return fill([&](int64_t i, int64_t j) { return (i % block >= block / 2 ? x[0] : x[1])->at(i, j); });
  }
  LogicalResult run(WithinOp op) {
    bool isWithin = true;
    for (auto [tile, limit] : llvm::zip_equal(x, op.getLimits()))
      isWithin &= llvm::all_of(tile->values, [&](double number) { return std::abs(number) <= limit; });
    y.values[0] = isWithin;
    return success();
  }
  LogicalResult run(AccumulateOp op) {
    bool isSum = op.getKind() == Accumulation::Sum;
    return fill([&](int64_t i, int64_t j) {
      int64_t first = op.getReverse() ? i + op.getExclusive() : 0;
      int64_t end = op.getReverse() ? x[0]->rows() : i + !op.getExclusive();
      double result = isSum ? 0 : 1;
      for (int64_t u = first; u < end; ++u)
        result = isSum ? result + x[0]->at(u, j) : result * x[0]->at(u, j);
      return result;
    });
  }
  LogicalResult run(MaskOp op) {
    double otherwise = op.getOtherwise().convertToDouble();
    return fill([&](int64_t i, int64_t j) { return i < valid ? x[0]->at(i, j) : otherwise; });
  }
  LogicalResult run(AgainOp) {
    return fill([&](int64_t i, int64_t j) { return x[0]->at(i, j); });
  }

  /// Row `i` of the operand, where negative ones are the last of the tail.
  static double rowOrTail(const Tile &rows, const Tile &tail, int64_t i, int64_t j) {
    return i >= 0 ? rows.at(i, j) : tail.at(tail.rows() + i, j);
  }
  LogicalResult run(ConvOp) {
    int64_t taps = x[1]->columns();
    return fill([&](int64_t i, int64_t d) {
      double sum = 0;
      for (int64_t j = 0; j < taps; ++j)
        sum += x[1]->at(d, taps - 1 - j) * rowOrTail(*x[0], *x[2], i - j, d);
      return sum;
    });
  }
  LogicalResult run(ConvTapsOp) {
    int64_t taps = y.columns();
    return fill([&](int64_t d, int64_t column) {
      double sum = 0;
      for (int64_t i = 0; i < x[0]->rows(); ++i)
        sum += x[0]->at(i, d) * rowOrTail(*x[1], *x[2], i - (taps - 1 - column), d);
      return sum;
    });
  }
  LogicalResult run(DelayOp op) {
    int64_t by = op.getBy();
    return fill([&](int64_t i, int64_t d) { return rowOrTail(*x[0], *x[1], i - by, d); });
  }
  LogicalResult run(TailOp) {
    return fill([&](int64_t i, int64_t d) { return rowOrTail(*x[0], *x[2], valid - y.rows() + i, d); });
  }

  static double scanStep(ScanKind kind, double carry, double log, double x) {
    switch (kind) {
    case ScanKind::Add:
      return std::exp(log) * carry + x;
    case ScanKind::LogAddExp:
      return interpreter::logAddExp(carry + log, x);
    case ScanKind::Max:
      return interpreter::larger(carry + log, x);
    }
    llvm_unreachable("a scan is of one of three kinds");
  }
  LogicalResult run(ScanOp op) {
    for (int64_t d = 0; d < y.columns(); ++d) {
      double running = x[1]->at(0, d);
      for (int64_t i = 0; i < y.rows(); ++i) {
        double log = op.getLog() ? x[2]->at(i, d) : 0;
        running = y.at(i, d) = scanStep(op.getKind(), running, log, x[0]->at(i, d));
      }
    }
    return success();
  }
  LogicalResult run(SolveOp op) {
    y.values = x[1]->values;
    int64_t rows = y.rows();
    for (int64_t step = 0; step < rows; ++step)
      for (int64_t before = 0; before < step; ++before) {
        int64_t i = op.getTranspose() ? rows - 1 - step : step, j = op.getTranspose() ? rows - 1 - before : before;
        for (int64_t d = 0; d < y.columns(); ++d)
          y.at(i, d) -= (op.getTranspose() ? x[0]->at(j, i) : x[0]->at(i, j)) * y.at(j, d);
      }
    return success();
  }

  LogicalResult run(InverseOp) {
    for (int64_t i = 0; i < y.rows(); ++i) {
      y.at(i, i) = 1;
      for (int64_t j = 0; j < i; ++j)
        for (int64_t d = 0; d <= j; ++d)
          y.at(i, d) -= x[0]->at(i, j) * y.at(j, d);
    }
    return success();
  }

  LogicalResult run(DecayDotOp op) {
    Factors factors(*x[2], op.getForm());
    bool before = op.getBefore();
    // For each key the product grows with the query's token.
    for (int64_t j = 0; j < y.rows(); ++j)
      for (int64_t d = 0; d < x[0]->columns(); ++d) {
        double product = 1;
        for (int64_t i = j + before; i < y.rows(); ++i) {
          // Tokens j+1 .. i, or j+1 .. i-1.
          if (i > j + before)
            product *= factors.at(before ? i - 1 : i, d);
          y.at(i, j) += x[0]->at(i, d) * x[1]->at(j, d) * product;
        }
      }
    return success();
  }
  LogicalResult run(DecayMixOp op) {
    Factors factors(*x[2], op.getForm());
    int64_t before = op.getBefore();
    for (int64_t j = 0; j < y.rows(); ++j)
      for (int64_t d = 0; d < y.columns(); ++d) {
        double product = 1;
        for (int64_t i = j + before; i < y.rows(); ++i) {
          // Tokens j+1 .. i, or j+1 .. i-1.
          if (i > j + before)
            product *= factors.at(i - before, d);
          y.at(op.getTranspose() ? j : i, d) += x[0]->at(i, j) * x[1]->at(op.getTranspose() ? i : j, d) * product;
        }
      }
    if (!op.getAddend())
      return success();
    return fill([&](int64_t i, int64_t d) { return y.at(i, d) + x[3]->at(i, d); });
  }
  LogicalResult run(DecayPairsOp op) {
    Factors factors(*x[3], op.getForm());
    int64_t place = 4;
    auto next = [&](Value operand) { return operand ? x[place++] : nullptr; };
    const Tile *seen = next(op.getSeen()), *kept = next(op.getKept()), *ends = next(op.getEnds());
    return fill([&](int64_t t, int64_t d) {
      double sum = 0, before = factors.product(0, t, d), behind = factors.product(t + 1, factors.tokens(), d);
      if (ends)
        sum += ends->at(0, d) * before * behind;
      for (int64_t i = t; seen && i < y.rows(); ++i)
        sum += x[0]->at(i, d) * seen->at(i, d) * before * factors.product(t + 1, i + 1, d);
      for (int64_t j = 0; kept && j < t; ++j)
        sum += x[1]->at(j, d) * kept->at(j, d) * factors.product(j + 1, t, d) * behind;
      for (int64_t i = t; i < y.rows(); ++i)
        for (int64_t j = 0; j < t; ++j)
          sum += x[0]->at(i, d) * x[1]->at(j, d) * x[2]->at(i, j) * factors.product(j + 1, t, d) *
                 factors.product(t + 1, i + 1, d);
      return sum;
    });
  }
  LogicalResult run(DecayMatrixOp op) {
    Factors factors(*x[0], op.getForm());
    int64_t before = op.getBefore();
    return fill([&](int64_t i, int64_t j) { return j + before <= i ? factors.product(j + 1, i + 1 - before, 0) : 0; });
  }
  LogicalResult run(DecayFromStartOp op) {
    Factors factors(*x[1], op.getForm());
    return fill([&](int64_t i, int64_t d) { return x[0]->at(i, d) * factors.product(0, i + !op.getBefore(), d); });
  }
  LogicalResult run(DecayToEndOp op) {
    Factors factors(*x[1], op.getForm());
    return fill([&](int64_t j, int64_t d) { return x[0]->at(j, d) * factors.product(j + 1, factors.tokens(), d); });
  }
  LogicalResult run(DecayStateOp op) {
    Factors factors(*x[1], op.getForm());
    bool rows = op.getAlong() == Side::Rows;
    return fill(
        [&](int64_t i, int64_t j) { return x[0]->at(i, j) * factors.product(0, factors.tokens(), rows ? i : j); });
  }
};

} // namespace

FailureOr<Tile> executeTile(Operation *op, const TileMap &tiles, int64_t valid) {
  SmallVector<const Tile *> operands;
  for (Value operand : op->getOperands()) {
    auto tile = tiles.find(operand);
    operands.push_back(tile == tiles.end() ? nullptr : &tile->second); // null for the number of valid tokens
  }
  if (std::optional<Tile> tile = op->hasTrait<OpTrait::Elementwise>() ? elementwise(op, operands) : std::nullopt)
    return std::move(*tile);
  TileOperation operation{operands, valid, tileFor(op->getResult(0))};
  LogicalResult executed =
      llvm::TypeSwitch<Operation *, LogicalResult>(op)
          .Case<arith::ConstantOp, BroadcastOp, ColumnsOp, RowOp, ConcatOp, DotOp, SolveOp, InverseOp, ReduceOp,
                CausalOp, WithinOp, AccumulateOp, MaskOp, AgainOp, MeetOp, MiddleOp, JoinHalvesOp, ConvOp, ConvTapsOp,
                DelayOp, TailOp, ScanOp, DecayDotOp, DecayMixOp, DecayPairsOp, DecayMatrixOp, DecayFromStartOp,
                DecayToEndOp, DecayStateOp>([&](auto known) { return operation.run(known); })
          .Default([](Operation *) { return failure(); });
  if (failed(executed))
    return op->emitError() << "the interpreter of the chunk level does not know this operation";
  return std::move(operation.y);
}

std::pair<Tile, Tile> executeDecayTotals(DecayTotalsOp op, const TileMap &tiles) {
  const Tile &q = tiles.at(op.getQuery()), &k = tiles.at(op.getKey()), &weights = tiles.at(op.getWeights());
  Factors factors(tiles.at(op.getAmount()), op.getForm());
  Tile x(q.shape), y(k.shape);
  for (int64_t i = 0; i < q.rows(); ++i)
    for (int64_t j = 0; j < i; ++j)
      for (int64_t d = 0; d < q.columns(); ++d) {
        double product = factors.product(j + 1, i + 1 - int64_t(op.getBefore()), d);
        double both = q.at(i, d) * weights.at(i, j) * k.at(j, d) * product;
        x.at(i, d) += both;
        y.at(j, d) += both;
      }
  return {std::move(x), std::move(y)};
}

std::pair<Tile, Tile> executeConvBack(ConvBackOp op, const TileMap &tiles, int64_t valid) {
  const Tile &x = tiles.at(op.getOperand()), &taps = tiles.at(op.getTaps()), &carry = tiles.at(op.getCarry());
  Tile y(x.shape), next(carry.shape);
  int64_t count = taps.columns();
  auto add = [&](int64_t token, int64_t d, double number) {
    (token < 0 ? next.at(count - 1 + token, d) : y.at(token, d)) += number;
  };
  for (int64_t d = 0; d < x.columns(); ++d) {
    for (int64_t i = 0; i < valid; ++i)
      for (int64_t j = 0; j < count; ++j)
        add(i - j, d, taps.at(d, count - 1 - j) * x.at(i, d));
    for (int64_t row = 0; row < count - 1; ++row)
      add(valid - (count - 1) + row, d, carry.at(row, d));
  }
  return {std::move(y), std::move(next)};
}

FailureOr<double> evaluateTable(TableOp table, double position, double head, double channel) {
  llvm::DenseMap<Value, double> numbers;
  Block &body = table.getBody().front();
  if (std::optional<int64_t> period = table.getPeriod())
    position = std::fmod(position, static_cast<double>(*period));
  numbers[body.getArgument(0)] = position;
  numbers[body.getArgument(1)] = head;
  numbers[body.getArgument(2)] = channel;
  for (Operation &op : body.without_terminator()) {
    auto operand = [&](unsigned index) { return numbers.lookup(op.getOperand(index)); };
    double result;
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      auto real = dyn_cast<FloatAttr>(constant.getValue());
      result = real ? real.getValueAsDouble() : cast<IntegerAttr>(constant.getValue()).getValue().getBoolValue();
    } else if (auto map = interpreter::unaryOf(&op)) {
      result = map(operand(0));
    } else if (auto map = interpreter::binaryOf(&op)) {
      result = map(operand(0), operand(1));
    } else if (isa<arith::SelectOp>(op)) {
      result = operand(0) != 0 ? operand(1) : operand(2);
    } else {
      return op.emitError() << "the interpreter of the chunk level does not know this operation";
    }
    numbers[op.getResult(0)] = result;
  }
  return numbers.lookup(body.getTerminator()->getOperand(0));
}

} // namespace stretto::chunk
