//===- Time.cpp - Operations that look at other tokens --------------------===//

#include "dialect/stretto/interpreter/Compiler.h"
#include "dialect/stretto/interpreter/Scalars.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

static double scanStep(ScanKind kind, double carry, double log, double x) {
  switch (kind) {
  case ScanKind::Add:
    return std::exp(log) * carry + x;
  case ScanKind::LogAddExp:
    return logAddExp(carry + log, x);
  case ScanKind::Max:
    return larger(carry + log, x);
  }
  llvm_unreachable("a scan is of one of three kinds");
}

LogicalResult Compiler::compileScan(ScanOp op) {
  FailureOr<Row> result = define(op.getResult());
  if (failed(result))
    return failure();
  Row x = rows.at(op.getOperand()), y = *result;
  std::optional<Row> log = op.getLog() ? std::optional(rows.at(op.getLog())) : std::nullopt;
  std::vector<double> *carry = buffer(op, y.size());
  if (!carry)
    return failure();
  EntryValues *entry = &entryOf(op);
  currentPass().begin.emplace_back([=](Frame &) { *carry = entry->before; });
  currentPass().end.emplace_back([=](Frame &) { entry->after = *carry; });
  emit([=, kind = op.getKind(), exclusive = op.getExclusive(), size = y.size()](Frame &frame) {
    const double *px = frame.at(x), *pg = log ? frame.at(*log) : nullptr;
    double *py = frame.at(y);
    for (int64_t i = 0; i < size; ++i) {
      double before = (*carry)[i], after = scanStep(kind, before, pg ? pg[i] : 0, px[i]);
      py[i] = exclusive ? before : after;
      (*carry)[i] = after;
    }
  });
  return success();
}

//===----------------------------------------------------------------------===//
// Convolutions and delays
//===----------------------------------------------------------------------===//
//
// Forwards, a tail holds rows: those of the operand at the tokens before the sequence. In reverse it holds sums: what
// the tokens beyond the end add to the results of the last tokens, and at the end what the sequence adds to the results
// of the tokens before it.

/// `y_t = sum over j of weight_j * x_(t - j)`, in reverse `x_(t + j)`.
struct interpreter::Window {
  Row x, y;
  int64_t length; // of the tail, which forwards a longer window may share
  bool reverse;
  /// Adds the row `x` with the weight at a distance to `y`.
  std::function<void(const Frame &, int64_t distance, const double *x, double *y)> add;
  /// The distances that have weights.
  llvm::SmallVector<int64_t> distances;

  /// The row of a token of the sequence or of the tail, or nothing where it is zero. A tail is in time order: of rows
  /// that went before, the last is the nearest.
  const double *at(const Frame &frame, const std::vector<double> *tail, int64_t token) const {
    if (token >= 0 && token < frame.length)
      return frame.at(x, token);
    return !reverse && token < 0 && tail && length + token >= 0 ? tail->data() + (length + token) * x.size() : nullptr;
  }

  /// The result at a token, which in reverse may be one before the sequence.
  void compute(const Frame &frame, const std::vector<double> *tail, int64_t token, double *result) const {
    std::fill_n(result, y.size(), 0.0);
    for (int64_t distance : distances)
      if (const double *row = at(frame, tail, reverse ? token + distance : token - distance))
        add(frame, distance, row, result);
    int64_t fromEnd = token - (frame.length - length);
    if (reverse && tail && fromEnd >= 0)
      for (int64_t i = 0; i < y.size(); ++i)
        result[i] += (*tail)[fromEnd * y.size() + i];
  }
};

void Compiler::emitWindow(Operation *op, Window window) {
  EntryValues *entry = window.length ? &entryOf(op) : nullptr;
  emit([=](Frame &frame) { window.compute(frame, entry ? &entry->before : nullptr, frame.token, frame.at(window.y)); });
  if (entry && window.reverse)
    currentPass().end.emplace_back([=](Frame &frame) {
      for (int64_t i = 0; i < window.length; ++i)
        window.compute(frame, &entry->before, i - window.length, entry->after.data() + i * window.y.size());
    });
}

LogicalResult Compiler::compileConv(ConvOp op) {
  FailureOr<Row> result = define(op.getResult());
  if (failed(result))
    return failure();
  Row taps = rows.at(op.getTaps()), y = *result;
  int64_t count = cast<RankedTensorType>(op.getTaps().getType()).getDimSize(1);
  Window window = {rows.at(op.getOperand()), y, count - 1, op.getReverse(), {}, {}};
  if (count > 1 && !window.reverse)
    window.length = program->entries[entryIndex.at(op)].length;
  window.distances = llvm::to_vector(llvm::seq<int64_t>(0, count));
  window.add = [=](const Frame &frame, int64_t distance, const double *x, double *sum) {
    for (int64_t h = 0; h < y.heads; ++h) {
      const double *w = frame.at(taps) + meets(h, y.heads, taps.heads) * taps.width + count - 1 - distance;
      for (int64_t d = 0; d < y.width; ++d)
        sum[h * y.width + d] += w[d * count] * x[h * y.width + d];
    }
  };
  emitWindow(op, std::move(window));
  return success();
}

LogicalResult Compiler::compileDelay(DelayOp op) {
  FailureOr<Row> result = define(op.getResult());
  if (failed(result))
    return failure();
  Row y = *result;
  int64_t by = op.getBy();
  Window window = {rows.at(op.getOperand()), y, by, op.getReverse(), {}, {by}};
  if (by && !window.reverse)
    window.length = program->entries[entryIndex.at(op)].length;
  window.add = [=](const Frame &, int64_t, const double *x, double *sum) {
    for (int64_t i = 0; i < y.size(); ++i)
      sum[i] += x[i];
  };
  emitWindow(op, std::move(window));
  return success();
}

/// The last `entry.length` rows of what went before and the sequence.
static void finishTail(const Frame &frame, const StateEntry &entry, EntryValues &values, Row row) {
  int64_t size = row.size();
  for (int64_t i = 0; i < entry.length; ++i) {
    int64_t token = frame.length - entry.length + i;
    const double *source = token >= 0 ? frame.at(row, token) : values.before.data() + (token + entry.length) * size;
    std::copy_n(source, size, values.after.data() + i * size);
  }
}

void Compiler::finishEntries() {
  std::vector<Instruction> &end = program->passes.back().end;
  for (size_t i = 0; i < program->entries.size(); ++i) {
    const StateEntry &entry = program->entries[i];
    EntryValues *values = &program->entryValues[i];
    if (entry.kind == StateEntry::Kind::Tail && !entry.reverse)
      end.emplace_back([=, row = rows.at(entry.operations.front()->getOperand(0))](Frame &frame) {
        finishTail(frame, entry, *values, row);
      });
    else if (entry.kind == StateEntry::Kind::Position)
      end.emplace_back([=](Frame &frame) { values->after[0] = static_cast<double>(frame.start + frame.length); });
  }
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

/// The body is executed for all heads and channels at once: `t`, `h` and `d` and all that follows from them are rows
/// as large as the result.
LogicalResult Compiler::compileTable(TableOp op) {
  FailureOr<Row> result = define(op.getResult());
  if (failed(result))
    return failure();
  Row y = *result;
  int64_t size = y.size();
  Row indices[3];
  for (auto [index, argument] : llvm::zip(indices, op.getBody().getArguments()))
    rows[argument] = index = scratch({0, 1, size});
  Row t = indices[0];
  for (int64_t i = 0; i < size; ++i) {
    int64_t head = i / y.width, channel = i % y.width;
    program->frame.at(indices[1])[i] = static_cast<double>(head);
    program->frame.at(indices[2])[i] = static_cast<double>(channel);
  }

  std::vector<Instruction> body;
  std::vector<Instruction> *outside = std::exchange(target, &body);
  int64_t outsideLanes = std::exchange(lanes, size);
  for (Operation &inner : op.getBody().front().without_terminator())
    if (failed(compile(&inner)))
      return failure();
  target = outside;
  lanes = outsideLanes;

  Row value = rows.at(op.getBody().front().getTerminator()->getOperand(0));
  std::optional<Row> period = op.getPeriod() ? std::optional(rows.at(op.getPeriod())) : std::nullopt;
  bool constant = op.getBody().getArgument(0).use_empty();
  // Rows that return, with an integer period or at every token, are kept by their time, which is below `maximalLength`.
  std::vector<double> *kept = buffer(op, 0);
  auto isKept = std::make_shared<std::vector<bool>>();
  emit([=, limit = maximalLength](Frame &frame) {
    double p = period ? *frame.at(*period) : 0;
    if (period && !(p > 0 && std::isfinite(p)))
      return frame.fail(op, "[R8] the period is " + std::to_string(p) + ", expected a finite number above 0");
    double time = static_cast<double>(frame.start + frame.token);
    if (constant)
      time = 0;
    else if (period)
      time = std::fmod(time, p);
    bool returns = constant || (period && p == std::floor(p));
    bool keep = returns && time < static_cast<double>(limit);
    auto index = static_cast<int64_t>(keep ? time : 0);
    double *py = frame.at(y);
    if (keep && index >= static_cast<int64_t>(isKept->size())) {
      isKept->resize(index + 1);
      kept->resize((index + 1) * size);
    }
    if (keep && (*isKept)[index]) {
      std::copy_n(kept->data() + index * size, size, py);
      return;
    }
    std::fill_n(frame.at(t), size, time);
    for (const Instruction &instruction : body)
      instruction(frame);
    const double *source = frame.at(value);
    for (int64_t i = 0; i < size; ++i)
      py[i] = source[value.size() == 1 ? 0 : i];
    if (keep) {
      std::copy_n(py, size, kept->data() + index * size);
      (*isKept)[index] = true;
    }
  });
  return success();
}
