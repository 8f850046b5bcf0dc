//===- States.cpp - Operations on states ----------------------------------===//
//
// A chain has one buffer, which its changes overwrite. A value that is read after its change, or at a later token, is
// copied where it is defined.
//
//===----------------------------------------------------------------------===//

#include "dialect/stretto/interpreter/Compiler.h"
#include <cmath>

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

/// The matrices `[heads, rows, columns]` of one state.
struct Compiler::Chain {
  int64_t heads, rows, columns;
  std::vector<double> *values;
  EntryValues *entry;

  int64_t size() const { return heads * rows * columns; }
};

/// Copies of a state, of one token or of several in the order in which the tokens are executed.
struct Compiler::Snapshots {
  struct Copy {
    int64_t token;
    std::vector<double> values;
  };
  std::deque<Copy> copies;
  std::vector<std::vector<double>> unused;

  /// A new last copy, whose values are to be filled.
  std::vector<double> &add(int64_t token, size_t size) {
    std::vector<double> values;
    if (!unused.empty()) {
      values = std::move(unused.back());
      unused.pop_back();
    }
    values.resize(size);
    return copies.emplace_back(Copy{token, std::move(values)}).values;
  }
  void dropFirst() {
    unused.push_back(std::move(copies.front().values));
    copies.pop_front();
  }
  void clear() {
    while (!copies.empty())
      dropFirst();
  }
};

LogicalResult Compiler::compileState(StateOp op) {
  std::shared_ptr<Chain> chain = chains.lookup(op);
  if (!chain) {
    StateType type = op.getType();
    chain = chains[op] = std::make_shared<Chain>();
    chain->heads = *sizes.heads(type.getHeads());
    chain->rows = type.getFirstSize();
    chain->columns = type.getSecondSize();
    chain->entry = &entryOf(op);
    chain->values = buffer(op, chain->heads, chain->rows * chain->columns);
    if (!chain->values)
      return failure();
  }
  currentPass().begin.emplace_back([chain](Frame &) { *chain->values = chain->entry->before; });
  currentPass().end.emplace_back([chain](Frame &) { chain->entry->after = *chain->values; });
  keepForUsers(op.getResult());
  return success();
}

/// Copies a state value for the users of this pass that find it changed or want it of earlier tokens, and for pairs
/// with a state that a later pass carries backwards.
void Compiler::keepForUsers(Value state) {
  std::shared_ptr<Chain> chain = chains.at(rootOf(state));
  Operation *change = nullptr;
  for (Operation *user : state.getUsers())
    if (isa<DecayOp, WriteOp>(user))
      change = user;
  for (Operation *user : state.getUsers()) {
    auto read = dyn_cast<ReadOp>(user);
    auto pair = dyn_cast<PairOp>(user);
    bool waits = pair && pair.getState() == state;
    bool manyTokens = waits || (read && read.getAt());
    bool isUsed = waits ? !snapshots.contains({state, user}) : (read || pair) && schedule.runs(user, pass);
    if (!isUsed || !(manyTokens || (change && change->isBeforeInBlock(user))))
      continue;
    auto kept = snapshots[{state, user}] = std::make_shared<Snapshots>();
    currentPass().begin.emplace_back([=](Frame &) { kept->clear(); });
    emit([=](Frame &frame) {
      if (!manyTokens)
        kept->clear();
      kept->add(frame.token, chain->size()) = *chain->values;
    });
  }
}

void Compiler::compileDecay(DecayOp op) {
  std::shared_ptr<Chain> chain = chains.at(rootOf(op.getState()));
  Row amount = rows.at(op.getAmount());
  bool log = op.getForm() == DecayForm::Log;
  bool whole = !op.getAlong();
  bool alongFirst = !whole && *op.getAlong() == op.getState().getType().getFirst();
  Row factor = scratch(amount);
  emit([=](Frame &frame) {
    const double *a = frame.at(amount);
    double *factors = frame.at(factor), *state = chain->values->data();
    for (int64_t i = 0; i < amount.size(); ++i)
      factors[i] = log ? std::exp(a[i]) : a[i];
    for (int64_t h = 0; h < chain->heads; ++h) {
      const double *row = factors + meets(h, chain->heads, amount.heads) * amount.width;
      for (int64_t i = 0; i < chain->rows; ++i)
        for (int64_t j = 0; j < chain->columns; ++j)
          *state++ *= row[whole ? 0 : alongFirst ? i : j];
    }
  });
}

/// Adds the outer products of two rows to `state`: coarser heads are repeated, finer ones summed.
static void addProducts(double *state, int64_t stateHeads, const double *x, Row first, const double *y, Row second) {
  int64_t finest = std::max({stateHeads, first.heads, second.heads});
  for (int64_t h = 0; h < finest; ++h) {
    const double *px = x + meets(h, finest, first.heads) * first.width;
    const double *py = y + meets(h, finest, second.heads) * second.width;
    double *s = state + meets(h, finest, stateHeads) * first.width * second.width;
    for (int64_t i = 0; i < first.width; ++i)
      for (int64_t j = 0; j < second.width; ++j)
        *s++ += px[i] * py[j];
  }
}

/// `at`, a position, as an index into the sequence; every token before the sequence counts as -1.
static std::optional<int64_t> tokenAt(Frame &frame, Row at, Operation *op) {
  double token = std::floor(*frame.at(at)) - static_cast<double>(frame.start);
  if (!(token <= static_cast<double>(frame.token))) {
    frame.fail(op, "token " + Twine(frame.token) + " refers to token " + std::to_string(token) +
                       ", expected its own or one before it");
    return std::nullopt;
  }
  return token < 0 ? -1 : static_cast<int64_t>(token);
}

void Compiler::compileWrite(WriteOp op) {
  std::shared_ptr<Chain> chain = chains.at(rootOf(op.getState()));
  Row x = rows.at(op.getFirst()), y = rows.at(op.getSecond());
  if (!op.getAt()) {
    emit([=](Frame &frame) { addProducts(chain->values->data(), chain->heads, frame.at(x), x, frame.at(y), y); });
    return;
  }

  // Tokens come in reverse, and so do the tokens that they write at: sums wait, each for its own.
  Row at = rows.at(op.getAt());
  auto waiting = std::make_shared<Snapshots>();
  auto addFirst = [=](Frame &) {
    const std::vector<double> &values = waiting->copies.front().values;
    for (size_t i = 0; i < values.size(); ++i)
      (*chain->values)[i] += values[i];
    waiting->dropFirst();
  };
  currentPass().begin.emplace_back([=](Frame &) { waiting->clear(); });
  emit([=](Frame &frame) {
    std::optional<int64_t> token = tokenAt(frame, at, op);
    if (!token)
      return;
    if (!waiting->copies.empty() && waiting->copies.back().token < *token)
      return frame.fail(op, "token " + Twine(frame.token) + " writes at token " + Twine(*token) +
                                ", a later one at token " + Twine(waiting->copies.back().token) +
                                "; expected times that never decrease");
    if (waiting->copies.empty() || waiting->copies.back().token != *token)
      llvm::fill(waiting->add(*token, chain->size()), 0);
    addProducts(waiting->copies.back().values.data(), chain->heads, frame.at(x), x, frame.at(y), y);
    if (waiting->copies.front().token == frame.token)
      addFirst(frame);
  });
  // What was read before the first token was read from the initial state.
  auto &end = currentPass().end;
  end.insert(end.begin(), [=](Frame &frame) {
    if (!waiting->copies.empty())
      addFirst(frame);
  });
}

LogicalResult Compiler::compileRead(ReadOp op) {
  FailureOr<Row> result = define(op.getResult());
  if (failed(result))
    return failure();
  std::shared_ptr<Chain> chain = chains.at(rootOf(op.getState()));
  Row x = rows.at(op.getRow()), y = *result;
  bool alongFirst = op.getAlong() == op.getState().getType().getFirst();
  auto multiply = [=](Frame &frame, const double *state) {
    const double *px = frame.at(x);
    double *py = frame.at(y);
    for (int64_t h = 0; h < y.heads; ++h, py += y.width) {
      const double *row = px + meets(h, y.heads, x.heads) * x.width;
      const double *s = state + meets(h, y.heads, chain->heads) * chain->rows * chain->columns;
      std::fill_n(py, y.width, 0.0);
      for (int64_t i = 0; i < chain->rows; ++i)
        for (int64_t j = 0; j < chain->columns; ++j, ++s)
          (alongFirst ? py[j] : py[i]) += row[alongFirst ? i : j] * *s;
    }
  };

  auto found = snapshots.find({op.getState(), op});
  if (found == snapshots.end()) {
    emit([=](Frame &frame) { multiply(frame, chain->values->data()); });
    return success();
  }
  std::shared_ptr<Snapshots> kept = found->second;
  if (!op.getAt()) {
    emit([=](Frame &frame) { multiply(frame, kept->copies.back().values.data()); });
    return success();
  }
  if (op.getState().getType().getReverse())
    return op.emitError("[R14] reads a state that is carried backwards at an earlier token; no form of it exists");
  Row at = rows.at(op.getAt());
  auto last = std::make_shared<int64_t>(-1);
  currentPass().begin.emplace_back([=](Frame &) { *last = -1; });
  emit([=](Frame &frame) {
    std::optional<int64_t> token = tokenAt(frame, at, op);
    if (!token)
      return;
    if (*token < *last)
      return frame.fail(op, "token " + Twine(frame.token) + " reads at token " + Twine(*token) +
                                ", the one before it at token " + Twine(*last) +
                                "; expected times that never decrease");
    *last = *token;
    while (kept->copies.front().token < *token)
      kept->dropFirst();
    multiply(frame, *token < 0 ? chain->entry->before.data() : kept->copies.front().values.data());
  });
  return success();
}

LogicalResult Compiler::compilePair(PairOp op) {
  FailureOr<Row> result = define(op.getResult());
  if (failed(result))
    return failure();
  Row y = *result;
  std::shared_ptr<Chain> chain = chains.at(rootOf(op.getCotangent()));
  std::shared_ptr<Snapshots> states = snapshots.at({op.getState(), op}), kept;
  if (auto found = snapshots.find({op.getCotangent(), op}); found != snapshots.end())
    kept = found->second;
  bool whole = !op.getAlong(), alongFirst = !whole && *op.getAlong() == op.getState().getType().getFirst();
  emit([=](Frame &frame) {
    // This pass meets the tokens in the other order.
    const double *s = states->copies[frame.token].values.data();
    const double *d = kept ? kept->copies.back().values.data() : chain->values->data();
    double *py = frame.at(y);
    std::fill_n(py, y.size(), 0.0);
    for (int64_t h = 0; h < y.heads; ++h, py += y.width)
      for (int64_t i = 0; i < chain->rows; ++i)
        for (int64_t j = 0; j < chain->columns; ++j)
          py[whole ? 0 : alongFirst ? i : j] += *s++ * *d++;
  });
  return success();
}
