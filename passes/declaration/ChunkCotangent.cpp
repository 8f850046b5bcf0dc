//===- ChunkCotangent.cpp - A state in reverse time over a chunk ----------===//

#include "passes/declaration/ChunkCotangent.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "passes/chunk/InputType.h"

using namespace mlir;
using namespace stretto;
using chunk::Side;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static bool isDecay(Operation *step) { return isa<DecayOp>(step); }

LogicalResult ChunkCotangent::check(const StateChain &chain) {
  DecayOp along;
  SmallVector<Value> values = {chain.getRoot().getResult()};
  for (Operation *step : chain.steps) {
    values.push_back(step->getResult(0));
    auto write = dyn_cast<WriteOp>(step);
    if (write && write.getAt())
      return refuseChunkForm(write) << "writes to the state of an earlier token";
    auto decay = dyn_cast<DecayOp>(step);
    if (!decay || !decay.getAlong())
      continue;
    if (along && along.getAlong() != decay.getAlong())
      return refuseChunkForm(decay) << "decays along '" << *decay.getAlong() << "' a state that also decays along '"
                                    << *along.getAlong() << "'";
    along = decay;
  }
  for (Value value : values)
    for (Operation *user : value.getUsers())
      if (auto read = dyn_cast<ReadOp>(user); read && read.getAt())
        return refuseChunkForm(read) << "reads the state of an earlier token";
  return success();
}

bool ChunkCotangent::isBeforeDecays(size_t position) const {
  return llvm::none_of(ArrayRef(chain.steps).take_front(position), isDecay);
}

void ChunkCotangent::addWrite(WriteOp op, size_t position) {
  ChunkRecurrence::addWrite(op, position);
  // Tokens beyond the end come before all others here: they must have written nothing.
  Write &write = writes.back();
  if (b.padding.rowsOf(write.first).isUniform(0) || b.padding.rowsOf(write.second).isUniform(0))
    return;
  Value &row = decayed == Side::Rows ? write.first : write.second;
  row = b.create<chunk::MaskOp>(row, b.valid);
}

//===----------------------------------------------------------------------===//
// Reads and the start of the chunk
//===----------------------------------------------------------------------===//

Value ChunkCotangent::laterProducts(Value row, size_t position, Value key, size_t writePosition) {
  RankedTensorType square = b.tensorType({b.tokens, b.tokens});
  bool seen = writePosition <= position;
  if (!total)
    return b.create<chunk::CausalOp>(square, b.dot(key, row, {}, false, /*transposeRight=*/true), /*strict=*/!seen);
  bool isWhole = isBeforeDecays(position) && isBeforeDecays(writePosition);
  if (!isWhole) {
    row = multiply(row, between(0, position));
    key = finite(multiply(key, between(writePosition, chain.steps.size())));
  }
  Value products = b.create<chunk::DecayDotOp>(square, key, row, total.form, total.amount, /*before=*/!isWhole);
  return isWhole && !seen ? Value(b.create<chunk::CausalOp>(square, products, /*strict=*/true)) : products;
}

Value ChunkCotangent::feedbackProducts(Value row, size_t position, Value key, size_t writePosition) {
  return laterProducts(row, position, key, writePosition);
}

Value ChunkCotangent::readDecayed(Value row, size_t position, Side contracted) {
  Value atEnd = isBeforeDecays(position) ? row : multiply(row, between(0, position));
  Value result = throughState(atEnd, start, contracted, [&](Value rows) -> Value {
    return b.create<chunk::DecayToEndOp>(rows.getType(), rows, total.form, total.amount);
  });
  for (const Write &write : writes) {
    Value key = contracted == Side::Rows ? write.first : write.second;
    Value other = contracted == Side::Rows ? write.second : write.first;
    Value products = laterProducts(row, position, key, write.position);
    result = b.dot(products, other, result, /*transposeLeft=*/true);
  }
  return isBeforeDecays(position) ? result : addOwnWrites(result, row, position, contracted);
}

Value ChunkCotangent::readDecaying(Value row, size_t position, Side contracted) {
  Value result = throughState(row, start, contracted, [&](Value rows) -> Value {
    return b.create<chunk::DecayToEndOp>(rows.getType(), rows, total.form, total.amount);
  });
  RankedTensorType square = b.tensorType({b.tokens, b.tokens});
  for (const Write &write : writes) {
    bool isWhole = isBeforeDecays(position) && isBeforeDecays(write.position);
    Value products = b.dot(otherRow(write), row, {}, false, /*transposeRight=*/true);
    if (isWhole && write.position > position)
      products = b.create<chunk::CausalOp>(square, products, /*strict=*/true);
    result = mix(products, decayedSide(write, isWhole), result, /*before=*/!isWhole, /*transpose=*/true);
  }
  if (isBeforeDecays(position))
    return result;
  return addOwnWrites(multiply(result, between(0, position)), row, position, contracted);
}

Value ChunkCotangent::next() {
  prepare();
  b.setLoc(chain.getRoot().getLoc());
  Value result = start;
  if (total)
    result = b.create<chunk::DecayStateOp>(start.getType(), start, total.form, total.amount, decayed);
  for (const Write &write : writes) {
    b.setLoc(write.location);
    bool isWhole = isBeforeDecays(write.position);
    Value key = decayedSide(write, isWhole), other = otherRow(write);
    if (total)
      key = b.create<chunk::DecayFromStartOp>(key.getType(), key, total.form, total.amount, !isWhole);
    result = decayed == Side::Rows ? b.dot(key, other, result, /*transposeLeft=*/true)
                                   : b.dot(other, key, result, /*transposeLeft=*/true);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Pairs
//
// A pair at token t is the sum over all that was written before it (the state at the start of the chunk, and the writes
// of tokens j) and all that is read behind it (the state at the end, and the cotangent's writes of tokens i), each
// product decayed from the one to the other. For i and j of the chunk these are the sums over i >= t > j; with
//
//   X_i = q_i * sum_{j<i} M_ij (k_j decayed to i)      Y_j = k_j * sum_{i>j} M_ij (q_i decayed to j)      M_ij = g_i .
//   v_j
//
// they are sum_{i>=t} X_i - sum_{j>=t} Y_j, as the pairs with j >= t are in both. A token with itself would be, too,
// and is left out: what cancels is never formed where the decay is strong. With one decay for all channels the pairs
// are numbers, M_ij (q_i . k_j decayed), of which X_i are the sums of rows and Y_j those of columns where rows have 16
// bits. What cancels of these is some 1e-7 of the largest pairs, which a parameter that multiplies strong decays, as
// SSD's, adds up: in fp32 the pairs themselves are summed, over i >= t, and of that over j < t.
//
// Where what is read of the state at the start has decayed at its own token, it is of the pairs of that token, and no
// smaller part of a larger whole. Then all of it is found with the state's cotangent at the start, which has what all
// tokens read, and what tokens before t read is subtracted, X_i with it: one sum over the tokens before t is left,
// since sum_{i>=t} X_i - sum_{j>=t} Y_j = sum_{j<t} Y_j - sum_{i<t} X_i.
//===----------------------------------------------------------------------===//

LogicalResult ChunkCotangent::checkPair(PairOp op, const StateChain &forward, const StateChain &cotangent) {
  size_t before = llvm::count_if(ArrayRef(forward.steps).take_front(forward.positionOf(op.getState())), isDecay);
  size_t after = llvm::count_if(ArrayRef(cotangent.steps).take_front(cotangent.positionOf(op.getCotangent())), isDecay);
  size_t decays = llvm::count_if(forward.steps, isDecay);
  if (before + after != decays) {
    // The one decay, all writes behind it and all reads before.
    auto isWrite = llvm::IsaPred<WriteOp>;
    size_t state = forward.positionOf(op.getState()), position = cotangent.positionOf(op.getCotangent());
    bool isAlone = decays == 1 && isDecay(forward.steps[state]) && isDecay(cotangent.steps[position]) &&
                   llvm::none_of(ArrayRef(forward.steps).take_front(state), isWrite) &&
                   llvm::none_of(ArrayRef(cotangent.steps).drop_front(position), isWrite);
    if (!isAlone)
      return refuseChunkForm(op) << "the gradient of a factor beside other decays, or behind a write";
  }
  bool isOfChannels = llvm::any_of(forward.steps, [&](Operation *step) {
    auto decay = dyn_cast<DecayOp>(step);
    return decay && decay.getAlong();
  });
  if (op.getAlong() && !isOfChannels)
    return refuseChunkForm(op) << "the products along '" << *op.getAlong() << "' of a state that decays as a whole";
  for (Operation *step : forward.steps)
    if (auto decay = dyn_cast<DecayOp>(step); decay && decay.getAlong() && op.getAlong() != decay.getAlong())
      return refuseChunkForm(op) << "the products along '" << op.getAlong().value_or("both axes")
                                 << "' of a state that decays along '" << *decay.getAlong() << "'";
  return success();
}

namespace {

/// Sums over the tokens before a token, or behind it, with it or without.
class TokenSums {
public:
  explicit TokenSums(TileBuilder &b) : b(b) {}

  void add(Value tile, bool behind, bool inclusive, bool negative = false) {
    if (negative)
      tile = b.create<arith::NegFOp>(tile);
    addTo(sums[behind], tile);
    if (inclusive)
      addTo(own, tile);
  }
  /// Adds to each token's own numbers.
  Value of(Value result) {
    for (bool behind : {false, true})
      if (Value tile = sums[behind])
        addTo(result, b.create<chunk::AccumulateOp>(tile.getType(), chunk::Accumulation::Sum, tile, /*reverse=*/behind,
                                                    /*exclusive=*/true));
    if (own)
      addTo(result, own);
    return result;
  }

private:
  void addTo(Value &sum, Value tile) { sum = sum ? b.create<arith::AddFOp>(sum, tile) : tile; }

  TileBuilder &b;
  Value sums[2] = {}, own;
};

} // namespace

Value ChunkCotangent::pairOfFactor(PairOp op, ChunkRecurrence &forward) {
  bool isOfChannels = typeOf(total.amount).getRank() == 2;
  auto times = [&](Value x, Value y) -> Value { return b.create<arith::MulFOp>(x, y); };
  auto sumOfRow = [&](Value x) { return b.reduce(chunk::Reduction::Sum, x); };
  auto through = [&](Value row, Value state) { return b.dot(row, state, {}, false, decayed == Side::Rows); };
  Value amount = b.matrixOf(total.amount), both = times(forward.start, start);
  RankedTensorType tile = typeOf(amount);
  // One factor for all channels is that of a single one, which holds the sums of all: of what rows of 1 have.
  Value ones = isOfChannels ? Value() : b.splat(tile, 1);
  auto channelsOf = [&](Value row, Value seen) { return isOfChannels ? seen : b.matrixOf(sumOfRow(times(row, seen))); };

  Side reduced = decayed == Side::Rows ? Side::Columns : Side::Rows;
  int64_t channels = typeOf(both).getDimSize(decayed == Side::Rows ? 0 : 1);
  Value ends = b.create<chunk::ReduceOp>(b.tensorType({channels}), chunk::Reduction::Sum, both, reduced);
  if (!isOfChannels)
    ends = b.repeat(b.total(ends), b.tensorType({1}), Side::Columns);
  // Each is seen, kept, or met by ends, once. Where nothing is read, or written, rows of 0 are.
  Value none = b.splat(tile, 0), result;
  RankedTensorType square = b.tensorType({b.tokens, b.tokens});
  for (size_t ofRead = 0; ofRead < std::max<size_t>(writes.size(), 1); ++ofRead)
    for (size_t ofWrite = 0; ofWrite < std::max<size_t>(forward.writes.size(), 1); ++ofWrite) {
      const Write *read = writes.empty() ? nullptr : &writes[ofRead];
      const Write *write = forward.writes.empty() ? nullptr : &forward.writes[ofWrite];
      Value query = read ? decayedRow(*read) : none, key = write ? decayedRow(*write) : none, seen, kept;
      if (read && ofWrite == 0)
        seen = channelsOf(query, through(otherRow(*read), forward.start));
      if (write && ofRead == 0)
        kept = channelsOf(key, through(otherRow(*write), start));
      Value products = b.splat(square, 0);
      if (read && write) {
        products = b.dot(otherRow(*read), otherRow(*write), {}, false, /*transposeRight=*/true);
        if (!isOfChannels)
          products = times(products, b.dot(query, key, {}, false, /*transposeRight=*/true));
      }
      if (!isOfChannels)
        query = key = ones;
      Value part = b.create<chunk::DecayPairsOp>(tile, query, key, products, total.form, amount, seen, kept,
                                                 ofRead + ofWrite == 0 ? ends : Value());
      result = result ? b.create<arith::AddFOp>(result, part).getResult() : part;
    }
  return b.shaped(result, b.tileType(op.getType()));
}

Value ChunkCotangent::pair(PairOp op, ChunkRecurrence &forward) {
  prepare();
  forward.prepare();
  b.setLoc(op.getLoc());
  size_t decays =
      llvm::count_if(ArrayRef(forward.chain.steps).take_front(forward.chain.positionOf(op.getState())), isDecay) +
      llvm::count_if(ArrayRef(chain.steps).take_front(chain.positionOf(op.getCotangent())), isDecay);
  if (decays == 0)
    return pairOfFactor(op, forward);
  size_t statePosition = forward.chain.positionOf(op.getState()), position = chain.positionOf(op.getCotangent());
  bool isOfChannels = typeOf(total.amount).getRank() == 2;
  chunk::DecayForm form = total.form;
  Value amount = total.amount;
  auto times = [&](Value x, Value y) -> Value { return b.create<arith::MulFOp>(x, y); };
  auto sumOfRow = [&](Value x) { return b.reduce(chunk::Reduction::Sum, x); };
  auto isLast = [&](const Write &write) {
    return llvm::none_of(ArrayRef(forward.chain.steps).drop_front(write.position), isDecay);
  };
  auto channelsOf = [&](Value product) { return isOfChannels ? product : sumOfRow(product); };
  // States are read along the axis that does not decay.
  Side others = decayed == Side::Rows ? Side::Columns : Side::Rows;

  // The state at the start with its cotangent, which may have what all tokens read.
  bool isNarrow = inputTypeOf(cast<chunk::KernelOp>(b.getBlock()->getParentOp())).getIntOrFloatBitWidth() == 16;
  bool hasReads = isOfChannels && llvm::all_of(writes, [&](const Write &read) { return read.position <= position; });
  Value cotangent =
      hasReads ? next() : b.create<chunk::DecayStateOp>(start.getType(), start, form, amount, decayed).getResult();
  b.setLoc(op.getLoc());
  Value both = times(forward.start, cotangent);
  int64_t channels = typeOf(both).getDimSize(decayed == Side::Rows ? 0 : 1);
  Value ends = b.create<chunk::ReduceOp>(b.tensorType({channels}), chunk::Reduction::Sum, both, others);
  Value result = isOfChannels ? b.repeat(ends, b.tensorType({b.tokens, channels}), Side::Columns)
                              : b.repeat(b.total(ends), b.tensorType({b.tokens}));

  TokenSums sums(b);
  // Pairs around a token by what is read from it on, or, where all of that is known, without what is read before.
  auto addRead = [&](Value tile, bool isSeen) {
    sums.add(tile, /*behind=*/!hasReads, /*inclusive=*/isSeen != hasReads, /*negative=*/hasReads);
  };
  auto plus = [&](Value x, Value y) -> Value { return b.create<arith::AddFOp>(x, y); };
  RankedTensorType square = b.tensorType({b.tokens, b.tokens});
  SmallVector<Value> ofReads;
  for (const Write &read : writes) {
    bool isWhole = isBeforeDecays(read.position);
    Value seen = throughState(otherRow(read), forward.start, others, [&](Value rows) -> Value {
      return b.create<chunk::DecayFromStartOp>(rows.getType(), rows, form, amount, !isWhole);
    });
    ofReads.push_back(channelsOf(times(decayedSide(read, isWhole), seen)));
  }
  for (const Write &write : forward.writes) {
    bool isSeen = write.position <= statePosition;
    Value seen = throughState(otherRow(write), start, others, [&](Value rows) -> Value {
      return b.create<chunk::DecayToEndOp>(rows.getType(), rows, form, amount);
    });
    Value ofWrite = channelsOf(times(forward.decayedSide(write, isLast(write)), seen));

    for (auto [read, ofRead] : llvm::zip_equal(writes, ofReads)) {
      bool isReadSeen = read.position <= position, isWhole = isLast(write) && isBeforeDecays(read.position);
      Value query = decayedSide(read, isWhole), decayedKey = forward.decayedSide(write, isWhole);
      Value products = b.dot(otherRow(read), otherRow(write), {}, false, /*transposeRight=*/true);
      if (isOfChannels) {
        auto totals = b.create<chunk::DecayTotalsOp>(TypeRange{typeOf(query), typeOf(query)}, query, decayedKey,
                                                     products, form, amount, /*before=*/!isWhole);
        ofRead = plus(ofRead, totals.getOfQueries());
        if (hasReads)
          ofWrite = plus(ofWrite, totals.getOfKeys());
        else
          sums.add(totals.getOfKeys(), /*behind=*/true, /*inclusive=*/!isSeen, /*negative=*/true);
      } else {
        Value weights = b.create<chunk::DecayDotOp>(square, query, decayedKey, form, amount, !isWhole);
        weights = times(b.create<chunk::CausalOp>(square, products, /*strict=*/true), weights);
        if (isNarrow) {
          addRead(sumOfRow(weights), isReadSeen);
          Value ofKeys =
              b.create<chunk::ReduceOp>(b.tensorType({b.tokens}), chunk::Reduction::Sum, weights, Side::Rows);
          sums.add(ofKeys, /*behind=*/true, /*inclusive=*/!isSeen, /*negative=*/true);
        } else {
          Value ofLater = b.create<chunk::AccumulateOp>(square, chunk::Accumulation::Sum, weights, /*reverse=*/true,
                                                        /*exclusive=*/!isReadSeen);
          result = plus(result, sumOfRow(b.create<chunk::CausalOp>(square, ofLater, /*strict=*/!isSeen)));
        }
      }
      if (!isSeen || !isReadSeen)
        continue;
      Value own = times(multiply(decayedRow(read), between(read.position, position)),
                        multiply(decayedRow(write), forward.between(write.position, statePosition)));
      Value weight = sumOfRow(times(otherRow(read), otherRow(write)));
      own = isOfChannels ? times(own, b.repeat(weight, typeOf(own))) : times(sumOfRow(own), weight);
      result = plus(result, own);
    }
    sums.add(ofWrite, /*behind=*/false, isSeen);
  }
  for (auto [read, ofRead] : llvm::zip_equal(writes, ofReads))
    addRead(ofRead, /*isSeen=*/read.position <= position);
  result = sums.of(result);
  return b.shaped(result, b.tileType(op.getType()));
}
