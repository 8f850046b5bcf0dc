//===- ChunkRecurrence.cpp - A state over a chunk of tokens ---------------===//

#include "passes/declaration/ChunkRecurrence.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

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
  SmallVector<Value> values = {root.getResult()};
  for (Operation *step : chain.steps)
    values.push_back(step->getResult(0));
  for (Value value : values)
    for (Operation *user : value.getUsers()) {
      auto read = dyn_cast<ReadOp>(user);
      if (read && decayed && sideOf(type, read.getAlong()) != *sideDecayedBy(decayed))
        return refuseChunkForm(read) << "reads along '" << read.getAlong() << "' a state that decays along '"
                                     << *decayed.getAlong() << "'";
    }
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
    if (auto write = dyn_cast<WriteOp>(step)) {
      b.setLoc(write.getLoc());
      writes.push_back({index + 1, finiteMatrix(write.getFirst()), finiteMatrix(write.getSecond()), write.getLoc()});
    }
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

Value ChunkRecurrence::read(ReadOp op) {
  prepare();
  b.setLoc(op.getLoc());
  Side contracted = sideOf(op.getState().getType(), op.getAlong());
  size_t position = chain.positionOf(op.getState());
  Value row = b.matrixOf(b.tileOf(op.getRow()));

  auto isDecay = [](Operation *step) { return isa<DecayOp>(step); };
  bool afterAll = llvm::none_of(ArrayRef(chain.steps).drop_front(position), isDecay);
  Value query = afterAll ? row : multiply(row, between(0, position));

  Value atStart = query;
  if (total)
    atStart = b.create<chunk::DecayFromStartOp>(query.getType(), query, total.form, total.amount, !afterAll);
  Value result = b.dot(atStart, start, /*addend=*/{}, /*transposeLeft=*/false, contracted == Side::Columns);

  RankedTensorType square = b.tensorType({b.tokens, b.tokens});
  for (const Write &write : writes) {
    auto [key, other] = sidesOf(write, contracted);
    bool seen = write.position <= position;
    Value products;
    if (total) {
      products = b.create<chunk::DecayDotOp>(square, query, key, total.form, total.amount, !afterAll);
      if (afterAll && !seen)
        products = b.create<chunk::CausalOp>(square, products, /*strict=*/true);
    } else {
      products = b.create<chunk::CausalOp>(square, b.dot(query, key, {}, false, /*transposeRight=*/true), !seen);
    }
    result = b.dot(products, other, result);
    if (afterAll || !seen)
      continue;
    // What the token itself wrote before this read, which the `before` form leaves out.
    Value own = multiply(contracted == Side::Rows ? write.first : write.second, between(write.position, position));
    Value weight = b.reduce(chunk::Reduction::Sum, b.create<arith::MulFOp>(row, own));
    Value added = b.create<arith::MulFOp>(b.repeat(weight, typeOf(other)), other);
    result = b.create<arith::AddFOp>(result, added);
  }
  Value tile = b.shaped(result, b.tileType(op.getType()));
  // Finite rows meet a finite state.
  if (b.padding.rowsOf(row).isFinite())
    b.padding.setRows(tile, {Padding::Rows::Kind::Finite});
  return tile;
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
