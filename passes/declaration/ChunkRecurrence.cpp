//===- ChunkRecurrence.cpp - A state over a chunk of tokens ---------------===//

#include "passes/declaration/ChunkRecurrence.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/declaration/ChunkFeedback.h"

using namespace mlir;
using namespace stretto;
using chunk::Side;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The side that a decay acts on; none where it multiplies the whole state.
static std::optional<Side> sideDecayedBy(DecayOp decay) {
  if (!decay.getAlong())
    return std::nullopt;
  return *decay.getAlong() == decay.getState().getType().getFirst() ? Side::Rows : Side::Columns;
}

//===----------------------------------------------------------------------===//
// Which chains have a chunk form
//===----------------------------------------------------------------------===//

LogicalResult ChunkRecurrence::check(const StateChain &chain) {
  StateOp root = chain.getRoot();
  StateType type = root.getType();
  if (type.getReverse())
    return refuseChunkForm(root) << "the state '" << root.getName() << "' runs in reverse time";
  DecayOp decayed;
  for (Operation *step : chain.steps) {
    if (auto decay = dyn_cast<DecayOp>(step)) {
      if (decayed && sideDecayedBy(decay) && sideDecayedBy(decay) != sideDecayedBy(decayed))
        return refuseChunkForm(decay) << "decays along '" << *decay.getAlong() << "' a state that also decays along '"
                                      << *decayed.getAlong() << "'";
      if (sideDecayedBy(decay))
        decayed = decay;
      continue;
    }
    auto write = cast<WriteOp>(step);
    for (Value row : {write.getFirst(), write.getSecond()})
      if (!headsDivide(headsOf(row.getType()), type.getHeads()))
        return refuseChunkForm(write) << "sums rows of the heads '" << headsOf(row.getType())
                                      << "' over the groups of '" << type.getHeads()
                                      << "', and the heads of a group run apart";
  }
  ReadOp fed = chain.feedback ? chain.feedback->read : ReadOp();
  if (fed && decayed && sideOf(type, fed.getAlong()) != *sideDecayedBy(decayed))
    return refuseChunkForm(fed) << "reads along '" << fed.getAlong() << "' a state that decays along '"
                                << *decayed.getAlong() << "', and a row that is written to it depends on this read";
  return success();
}

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

ChunkRecurrence::ChunkRecurrence(const StateChain &chain, Value start, TileBuilder &builder)
    : chain(chain), start(start), b(builder) {
  for (auto [index, step] : llvm::enumerate(chain.steps))
    if (auto decay = dyn_cast<DecayOp>(step); decay && sideDecayedBy(decay))
      decayed = *sideDecayedBy(decay);
}

ChunkRecurrence::Decay ChunkRecurrence::combine(ArrayRef<Operation *> steps) {
  SmallVector<DecayOp> decays;
  for (Operation *step : steps)
    if (auto decay = dyn_cast<DecayOp>(step))
      decays.push_back(decay);
  // Logarithms add up. Beside a factor, which may be 0 or negative, they become factors.
  bool logs = llvm::all_of(decays, [](DecayOp decay) { return decay.getForm() == DecayForm::Log; });
  Decay result;
  result.form = logs ? chunk::DecayForm::Log : chunk::DecayForm::Factor;
  for (DecayOp decay : decays) {
    b.setLoc(decay.getLoc());
    Value amount = b.tileOf(decay.getAmount());
    if (!logs && decay.getForm() == DecayForm::Log)
      amount = b.create<math::ExpOp>(amount);
    if (!result) {
      result.amount = amount;
      continue;
    }
    // One number for each token meets one for each channel.
    RankedTensorType type = std::max(typeOf(result.amount), typeOf(amount),
                                     [](RankedTensorType x, RankedTensorType y) { return x.getRank() < y.getRank(); });
    auto widened = [&](Value value) { return value.getType() == type ? value : b.repeat(value, type); };
    Value left = widened(result.amount), right = widened(amount);
    result.amount = logs ? Value(b.create<arith::AddFOp>(left, right)) : Value(b.create<arith::MulFOp>(left, right));
  }
  return result;
}

ChunkRecurrence::Decay ChunkRecurrence::between(size_t from, size_t to) {
  return combine(ArrayRef(chain.steps).slice(from, to - from));
}

Value ChunkRecurrence::multiply(Value rows, Decay decay) {
  if (!decay)
    return rows;
  Value factor = decay.form == chunk::DecayForm::Log ? Value(b.create<math::ExpOp>(decay.amount)) : decay.amount;
  if (factor.getType() != rows.getType())
    factor = b.repeat(factor, typeOf(rows));
  return b.create<arith::MulFOp>(rows, factor);
}

/// The tile of all decays, with what does nothing beyond the end of the sequence; then the rows that are written.
void ChunkRecurrence::prepare() {
  if (std::exchange(prepared, true))
    return;
  total = between(0, chain.steps.size());
  double identity = total.form == chunk::DecayForm::Log ? 0 : 1;
  if (total && !b.padding.rowsOf(total.amount).isUniform(identity))
    total.amount = b.create<chunk::MaskOp>(total.amount, b.valid, identity);
  for (auto [index, step] : llvm::enumerate(chain.steps))
    if (auto write = dyn_cast<WriteOp>(step); write && !(chain.feedback && chain.feedback->write == write))
      addWrite(write, index + 1);
}

void ChunkRecurrence::addWrite(WriteOp write, size_t position) {
  b.setLoc(write.getLoc());
  writes.push_back({position, finiteMatrix(write.getFirst()), finiteMatrix(write.getSecond()), write.getLoc()});
}

Value ChunkRecurrence::finite(Value rows) {
  return b.padding.rowsOf(rows).isFinite() ? rows : b.create<chunk::MaskOp>(rows, b.valid);
}

std::pair<Value, Value> ChunkRecurrence::sidesOf(const Write &write, Side contracted) {
  Value key = contracted == Side::Rows ? write.first : write.second;
  Value other = contracted == Side::Rows ? write.second : write.first;
  return {finite(multiply(key, between(write.position, chain.steps.size()))), other};
}

//===----------------------------------------------------------------------===//
// Reads and the end of the chunk
//===----------------------------------------------------------------------===//

bool ChunkRecurrence::isAfterAllDecays(size_t position) const {
  return llvm::none_of(ArrayRef(chain.steps).drop_front(position), [](Operation *step) { return isa<DecayOp>(step); });
}

Value ChunkRecurrence::read(ReadOp op) {
  prepare();
  b.setLoc(op.getLoc());
  Side contracted = sideOf(op.getState().getType(), op.getAlong());
  size_t position = chain.positionOf(op.getState());
  Value row = b.matrixOf(b.tileOf(op.getRow()));
  if (chain.feedback && chain.feedback->read == op)
    solveFeedback(row, position, contracted);
  bool resultDecays = total && typeOf(total.amount).getRank() == 2 && contracted != decayed;
  Value result = resultDecays ? readDecaying(row, position, contracted) : readDecayed(row, position, contracted);
  Value tile = b.shaped(result, b.tileType(op.getType()));
  // Finite rows meet a finite state.
  if (b.padding.rowsOf(row).isFinite())
    b.padding.setRows(tile, {Padding::Rows::Kind::Finite});
  return tile;
}

Value ChunkRecurrence::queryOf(Value row, size_t position) {
  return isAfterAllDecays(position) ? row : multiply(row, between(0, position));
}

Value ChunkRecurrence::throughState(Value rows, Value state, Side contracted, function_ref<Value(Value)> decays) {
  bool isOfRows = total && typeOf(total.amount).getRank() == 2 && contracted == decayed;
  Value result = b.dot(isOfRows ? decays(rows) : rows, state, {}, false, contracted == Side::Columns);
  return !total || isOfRows ? result : decays(result);
}

Value ChunkRecurrence::productsOf(Value query, Value key, bool afterAll, bool seen) {
  RankedTensorType square = b.tensorType({b.tokens, b.tokens});
  if (!total)
    return b.create<chunk::CausalOp>(square, b.dot(query, key, {}, false, /*transposeRight=*/true), !seen);
  Value products = b.create<chunk::DecayDotOp>(square, query, key, total.form, total.amount, !afterAll);
  if (afterAll && !seen)
    products = b.create<chunk::CausalOp>(square, products, /*strict=*/true);
  return products;
}

/// Finds the rows that depend on what this read sees of those before them.
void ChunkRecurrence::solveFeedback(Value row, size_t position, Side contracted) {
  WriteOp write = chain.feedback->write;
  Value known = readDecayed(row, position, contracted); // of the start, and of other writes
  AffineRow affine = affineRow(*chain.feedback, b, isLinear());
  b.setLoc(write.getLoc());
  size_t end = llvm::find(chain.steps, write.getOperation()) - chain.steps.begin() + 1;
  Value key = finiteMatrix(contracted == Side::Rows ? write.getFirst() : write.getSecond());
  Value products = feedbackProducts(row, position, key, end);
  auto times = [&](Value factor, Value tile, Side side) -> Value {
    return b.create<arith::MulFOp>(b.repeat(factor, typeOf(tile), side), tile);
  };
  auto negated = [&](Value tile) -> Value { return b.create<arith::NegFOp>(tile); };
  // In reverse time the system is solved for the reads, where what is written is a number times them and nothing else:
  // (1 - P diag m) Y = X, the transpose of the system of what is written forwards.
  bool isReverse = feedbackSide() == Side::Columns, findsReads = isReverse && !affine.offset;
  auto written = [&](Value reads) -> Value {
    Value rows = affine.factor ? times(affine.factor, reads, Side::Rows) : reads;
    if (!affine.offset)
      return affine.isSubtracted ? negated(rows) : rows;
    return affine.isSubtracted ? Value(b.create<arith::SubFOp>(affine.offset, rows))
                               : Value(b.create<arith::AddFOp>(affine.offset, rows));
  };
  if (!findsReads)
    known = written(known);
  if (affine.factor)
    products = times(affine.factor, products, isReverse && !findsReads ? Side::Columns : Side::Rows);
  Value matrix = affine.isSubtracted ? products : negated(products);
  Value rows = b.create<chunk::SolveOp>(known.getType(), matrix, known, isReverse);
  if (findsReads)
    rows = written(rows);
  // Finite rows and numbers beyond the end of the sequence leave finite ones.
  auto isFinite = [&](Value tile) { return !tile || b.padding.rowsOf(tile).isFinite(); };
  if (isFinite(row) && isFinite(affine.offset) && isFinite(affine.factor))
    b.padding.setRows(rows, {Padding::Rows::Kind::Finite});
  takeFeedback(rows, key, end);
}

void ChunkRecurrence::takeFeedback(Value rows, Value, size_t end) {
  b.setTile(chain.feedback->row, b.shaped(rows, b.tileType(chain.feedback->row.getType())));
  addWrite(chain.feedback->write, end);
}

Value ChunkRecurrence::feedbackProducts(Value row, size_t position, Value key, size_t writePosition) {
  key = finite(multiply(key, between(writePosition, chain.steps.size())));
  return productsOf(queryOf(row, position), key, isAfterAllDecays(position), /*seen=*/false);
}

Value ChunkRecurrence::readDecayed(Value row, size_t position, Side contracted) {
  bool afterAll = isAfterAllDecays(position);
  Value query = queryOf(row, position);
  Value result = throughState(query, start, contracted, [&](Value rows) -> Value {
    return b.create<chunk::DecayFromStartOp>(rows.getType(), rows, total.form, total.amount, !afterAll);
  });
  for (const Write &write : writes) {
    auto [key, other] = sidesOf(write, contracted);
    result = b.dot(productsOf(query, key, afterAll, /*seen=*/write.position <= position), other, result);
  }
  return afterAll ? result : addOwnWrites(result, row, position, contracted);
}

Value ChunkRecurrence::readDecaying(Value row, size_t position, Side contracted) {
  bool afterAll = isAfterAllDecays(position);
  Value result = throughState(row, start, contracted, [&](Value rows) -> Value {
    return b.create<chunk::DecayFromStartOp>(rows.getType(), rows, total.form, total.amount, !afterAll);
  });
  RankedTensorType square = b.tensorType({b.tokens, b.tokens});
  for (const Write &write : writes) {
    auto [rows, key] = sidesOf(write, decayed);
    Value weights = b.dot(row, key, {}, false, /*transposeRight=*/true);
    bool seen = write.position <= position;
    if (afterAll && !seen)
      weights = b.create<chunk::CausalOp>(square, weights, /*strict=*/true);
    result = b.create<chunk::DecayMixOp>(result.getType(), weights, rows, total.form, total.amount, result,
                                         /*before=*/!afterAll, /*transpose=*/false);
  }
  return afterAll ? result : addOwnWrites(multiply(result, between(0, position)), row, position, contracted);
}

Value ChunkRecurrence::addOwnWrites(Value result, Value row, size_t position, Side contracted) {
  for (const Write &write : writes) {
    if (write.position > position)
      continue;
    Value key = contracted == Side::Rows ? write.first : write.second;
    Value other = contracted == Side::Rows ? write.second : write.first;
    Value &decaying = contracted == decayed ? key : other;
    decaying = multiply(decaying, between(write.position, position));
    Value weight = b.reduce(chunk::Reduction::Sum, b.create<arith::MulFOp>(row, key));
    Value added = b.create<arith::MulFOp>(b.repeat(weight, typeOf(other)), other);
    result = b.create<arith::AddFOp>(result, added);
  }
  return result;
}

Value ChunkRecurrence::next() {
  prepare();
  b.setLoc(chain.getRoot().getLoc());
  Value result = start;
  if (total)
    result = b.create<chunk::DecayStateOp>(start.getType(), start, total.form, total.amount, decayed);
  for (const Write &write : writes) {
    b.setLoc(write.location);
    auto [key, other] = sidesOf(write, decayed);
    bool nothingBeyond = b.padding.rowsOf(key).isUniform(0) || b.padding.rowsOf(other).isUniform(0);
    if (total)
      key = b.create<chunk::DecayToEndOp>(key.getType(), key, total.form, total.amount);
    if (!nothingBeyond)
      key = b.create<chunk::MaskOp>(key, b.valid);
    result = decayed == Side::Rows ? b.dot(key, other, result, /*transposeLeft=*/true)
                                   : b.dot(other, key, result, /*transposeLeft=*/true);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// All decays of many tokens
//===----------------------------------------------------------------------===//

std::optional<ChunkRecurrence::TotalDecay> ChunkRecurrence::totalDecayOf(const StateChain &chain) {
  StateType type = chain.getRoot().getType();
  // One factor for the whole state is of the axis that feedback reads along.
  ReadOp fed = chain.feedback ? chain.feedback->read : ReadOp();
  bool readsColumns = fed && sideOf(type, fed.getAlong()) == Side::Columns;
  std::optional<TotalDecay> total;
  for (Operation *step : chain.steps) {
    auto decay = dyn_cast<DecayOp>(step);
    if (!decay)
      continue;
    if (!total)
      total = readsColumns ? TotalDecay{chunk::DecayForm::Log, Side::Columns, type.getSecondSize()}
                           : TotalDecay{chunk::DecayForm::Log, Side::Rows, type.getFirstSize()};
    if (decay.getForm() != DecayForm::Log)
      total->form = chunk::DecayForm::Factor;
    // A state of one column is a vector in memory, all of which such a decay multiplies.
    if (sideDecayedBy(decay) == Side::Columns && type.getSecondSize() != 1) {
      total->side = Side::Columns;
      total->size = type.getSecondSize();
    }
  }
  return total;
}

Value ChunkRecurrence::nextTotalDecay(Value before) {
  prepare();
  b.setLoc(chain.getRoot().getLoc());
  bool isLog = total.form == chunk::DecayForm::Log;
  Value amount = total.amount;
  if (typeOf(amount).getRank() == 2 && typeOf(amount).getDimSize(1) != typeOf(before).getDimSize(0))
    amount = b.column(amount, 0);
  if (!isLog) {
    Value none = b.splat(typeOf(before), -std::numeric_limits<double>::infinity());
    Value isNone = b.create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, before, none);
    Value product = b.create<arith::SelectOp>(isNone, b.splat(typeOf(before), 1), before);
    // As a state is decayed, so that factors near 1 lose as little over many chunks.
    return b.create<chunk::DecayStateOp>(before.getType(), product, total.form, amount, Side::Rows);
  }
  RankedTensorType row = b.tensorType(typeOf(amount).getShape().drop_front());
  Value ofChunk = row.getRank() == 1
                      ? b.create<chunk::ReduceOp>(row, chunk::Reduction::Sum, amount, Side::Rows).getResult()
                      : b.total(b.floored(amount));
  if (ofChunk.getType() != before.getType())
    ofChunk = b.create<chunk::BroadcastOp>(before.getType(), ofChunk, Side::Rows);
  return b.create<arith::AddFOp>(before, ofChunk);
}
