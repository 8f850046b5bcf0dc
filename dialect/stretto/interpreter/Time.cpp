//===- Time.cpp - Operations that look at other tokens --------------------===//

#include "dialect/stretto/interpreter/Compiler.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

static double logAddExp(double a, double b) {
  double larger = std::fmax(a, b);
  if (std::isinf(larger) && !std::isunordered(a, b))
    return larger;
  return larger + std::log1p(std::exp(-std::abs(a - b)));
}

static double scanStep(ScanKind kind, double carry, double log, double x) {
  switch (kind) {
  case ScanKind::Add:
    return std::exp(log) * carry + x;
  case ScanKind::LogAddExp:
    return logAddExp(carry + log, x);
  case ScanKind::Max:
    return std::isunordered(carry + log, x) ? carry + log + x : std::fmax(carry + log, x);
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
  currentPass().begin.push_back([=](Frame &) { *carry = entry->before; });
  currentPass().end.push_back([=](Frame &) { entry->after = *carry; });
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

namespace {

/// The rows of other tokens: within the sequence those of `row`, beyond its start (in reverse: its end) those of the
/// tail that came before, beyond that zeros.
struct Reached {
  Row row;
  const EntryValues *tail = nullptr;
  bool reverse;

  /// The row `distance` tokens away, or nothing where it is zero.
  const double *at(const Frame &frame, int64_t distance) const {
    int64_t token = reverse ? frame.token + distance : frame.token - distance;
    if (token >= 0 && token < frame.length)
      return frame.at(row, token);
    int64_t size = row.size(), length = tail ? static_cast<int64_t>(tail->before.size()) / size : 0;
    // A tail is in time order: of rows that went before, the last is the nearest.
    int64_t index = reverse ? token - frame.length : length + token;
    return index >= 0 && index < length ? tail->before.data() + index * size : nullptr;
  }
};

} // namespace

LogicalResult Compiler::compileConv(ConvOp op) {
  FailureOr<Row> result = define(op.getResult());
  if (failed(result))
    return failure();
  Row taps = rows.at(op.getTaps()), y = *result;
  int64_t count = cast<RankedTensorType>(op.getTaps().getType()).getDimSize(1);
  Reached x = {rows.at(op.getOperand()), count > 1 ? &entryOf(op) : nullptr, op.getReverse()};
  emit([=](Frame &frame) {
    double *py = frame.at(y);
    std::fill_n(py, y.size(), 0.0);
    for (int64_t j = 0; j < count; ++j) {
      const double *px = x.at(frame, j);
      if (!px)
        continue;
      for (int64_t h = 0; h < y.heads; ++h) {
        const double *w = frame.at(taps) + meets(h, y.heads, taps.heads) * taps.width + count - 1 - j;
        for (int64_t d = 0; d < y.width; ++d)
          py[h * y.width + d] += w[d * count] * px[h * y.width + d];
      }
    }
  });
  return success();
}

LogicalResult Compiler::compileDelay(DelayOp op) {
  FailureOr<Row> result = define(op.getResult());
  if (failed(result))
    return failure();
  Row y = *result;
  int64_t by = op.getBy();
  Reached x = {rows.at(op.getOperand()), by ? &entryOf(op) : nullptr, op.getReverse()};
  emit([=](Frame &frame) {
    if (const double *px = x.at(frame, by))
      std::copy_n(px, y.size(), frame.at(y));
    else
      std::fill_n(frame.at(y), y.size(), 0.0);
  });
  return success();
}

/// The last `entry.length` rows of what went before and the sequence, in the entry's direction of time.
static void finishTail(const Frame &frame, const StateEntry &entry, EntryValues &values, Row row) {
  int64_t size = row.size();
  for (int64_t i = 0; i < entry.length; ++i) {
    // Row i of the tail is token `length - entry.length + i`, in reverse token `i`.
    int64_t token = entry.reverse ? i : frame.length - entry.length + i;
    bool inside = token >= 0 && token < frame.length;
    int64_t before = entry.reverse ? token - frame.length : token + entry.length;
    const double *source = inside ? frame.at(row, token) : values.before.data() + before * size;
    std::copy_n(source, size, values.after.data() + i * size);
  }
}

void Compiler::finishEntries() {
  std::vector<Instruction> &end = program->passes.back().end;
  for (size_t i = 0; i < program->entries.size(); ++i) {
    const StateEntry &entry = program->entries[i];
    EntryValues *values = &program->entryValues[i];
    if (entry.kind == StateEntry::Kind::Tail)
      end.push_back([=, row = rows.at(entry.operations.front()->getOperand(0))](Frame &frame) {
        finishTail(frame, entry, *values, row);
      });
    else if (entry.kind == StateEntry::Kind::Position)
      end.push_back([=](Frame &frame) { values->after[0] = static_cast<double>(frame.start + frame.length); });
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
    program->frame.at(indices[1])[i] = static_cast<double>(i / y.width);
    program->frame.at(indices[2])[i] = static_cast<double>(i % y.width);
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
