//===- KernelLowering.cpp - From a chunk kernel to vector code ------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

/// Buffers start on cache lines.
static constexpr int64_t alignment = 64;

KernelLowering::KernelLowering(chunk::KernelOp kernel, FloatType element, Machine machine)
    : kernel(kernel), machine(machine),
      builder(kernel.getLoc(), element, machine.vectorBits / element.getIntOrFloatBitWidth()), sweeps(kernel),
      plan(kernel, sweeps, element.isF32() ? PairProducts{machine.bf16Dot, machine.bf16Tiles} : PairProducts()) {}

/// Bytes that a buffer takes: a vector that starts inside its last row may end beyond it.
static int64_t bytesOfBuffer(MemRefType type, int64_t width) {
  return llvm::alignTo((type.getNumElements() + width) * type.getElementTypeBitWidth() / 8, alignment);
}

Value KernelLowering::allocate(ArrayRef<int64_t> shape, Type element) {
  auto type = MemRefType::get(shape, element);
  int64_t bytes = bytesOfBuffer(type, builder.width), offset = scratchSize;
  if (SmallVector<int64_t> &released = releasedOffsets[bytes]; !released.empty())
    offset = released.pop_back_val();
  else
    scratchSize += bytes;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(entry);
  Value start = builder.index(offset);
  Value buffer = memref::ViewOp::create(builder, type, entry->getArguments().back(), start, ValueRange());
  scratchOffsets[buffer] = offset;
  return buffer;
}

void KernelLowering::release(Value buffer) {
  int64_t bytes = bytesOfBuffer(cast<MemRefType>(buffer.getType()), builder.width);
  releasedOffsets[bytes].push_back(scratchOffsets.lookup(buffer));
}

Value KernelLowering::allocateFor(Value value) {
  ArrayRef<int64_t> shape = shapeOf(value);
  return shape.size() == 2 ? allocateRows(shape[0], shape[1]) : allocateVector(shape.empty() ? 1 : shape[0]);
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

FailureOr<func::FuncOp> KernelLowering::lower() {
  listArguments();
  builder.setInsertionPoint(kernel);
  auto blockType = MemRefType::get({blockWords()}, builder.getI64Type());
  auto scratchType = [&](int64_t bytes) { return MemRefType::get({bytes}, builder.getI8Type()); };
  Type index = builder.getIndexType();
  function = func::FuncOp::create(builder, (kernel.getSymName() + "_function").str(),
                                  builder.getFunctionType({blockType, index, index, scratchType(0)}, {}));
  entry = function.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  func::ReturnOp::create(builder);
  builder.setInsertionPoint(entry->getTerminator());

  readBlock(entry->getArgument(0));
  for (BlockArgument state : kernel.argumentsOf(chunk::ArgumentKind::State))
    (sweeps.isMatrix(state) ? sweptStates[state].scratch : storage[state].rows) = allocateFor(state);
  for (const Argument &argument : arguments)
    if (isTableInTime(argument))
      storage[argument.value].rows = allocateFor(argument.value);

  builder.loop(entry->getArgument(1), entry->getArgument(2), 1, [&](Value number) {
    Item item = findItem(number);
    itemTokens = item.tokens;
    itemPosition = item.position ? item.position : builder.index(0);
    findAddresses(item);
    viewParameters();
    emitStages(/*invariant=*/true);
    loadStates(item);
    auto runChunk = [&](Value firstToken, Value nextToken) {
      chunkStart = firstToken;
      valid = builder.index(1);
      if (kernel.getChunk() > 1)
        valid = builder.minimum(builder.subtract(item.tokens, firstToken), builder.index(kernel.getChunk()));
      viewTiles(firstToken);
      viewCheckpoints(item, firstToken);
      findSources(firstToken);
      if (item.position)
        loadTables(builder.add(item.position, firstToken));
      if (kernel.getChunk() > 1)
        prefetchChunk(item, nextToken);
      emitStages(/*invariant=*/false);
      emitYield(cast<chunk::YieldOp>(kernel.getBlock()->getTerminator()), item);
      copyOutputsBack(firstToken);
    };
    int64_t chunk = kernel.getChunk();
    builder.loop(item.begin, item.end, chunk, [&](Value met) {
      if (!kernel.getReverse())
        return runChunk(met, builder.add(met, chunk));
      // The last chunk begins at the last multiple of C before the end.
      Value last = builder.multiply(
          builder.createOrFold<arith::DivUIOp>(builder.subtract(item.end, builder.index(1)), builder.index(chunk)),
          chunk);
      Value firstToken = builder.subtract(last, builder.subtract(met, item.begin));
      runChunk(firstToken, builder.subtract(firstToken, builder.minimum(firstToken, builder.index(chunk))));
    });
    builder.setLoc(kernel.getLoc());
    storeStates(item);
    storeWindows(item);
  });

  entry->getArguments().back().setType(scratchType(scratchSize));
  function.setFunctionType(builder.getFunctionType(entry->getArgumentTypes(), {}));
  if (failed) {
    function.erase();
    return failure();
  }
  return function;
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

void KernelLowering::emitStages(bool invariant) {
  for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back())
    if (plan.isInvariant(argument) == invariant)
      emitValue(argument);
  // The body of a look-back is emitted with it, except for what is the same in all chunks.
  for (Operation *op : operationsOf(kernel))
    if (invariant || op->getParentOp() == kernel)
      for (Value result : op->getResults())
        if (plan.isInvariant(result) == invariant)
          emitValue(result);
}

void KernelLowering::emitValue(Value value) {
  builder.setLoc(value.getLoc());
  emitStage(value);
  for (auto &[decay, uses] : plan.decays())
    if (decay.first == value)
      prepareDecay(decay, uses);
  if (plan.isInvariant(value))
    return; // read by every chunk
  for (Value last : plan.readLastBy(value))
    for (Value buffer : storage.lookup(last).buffers())
      if (buffer)
        release(buffer);
}

void KernelLowering::emitStage(Value value) {
  Operation *op = value.getDefiningOp();
  bool isMatrixColumn = isa_and_nonnull<chunk::ColumnsOp>(op) && !isPointwise(op);
  const Sweep *sweep = op ? sweeps.beginningAt(op) : nullptr;
  if (sweep)
    emitSweep(*sweep);
  else if (op && sweeps.isRead(op))
    return; // by the sweep that it is a part of
  else if (auto reduce = dyn_cast_or_null<chunk::ReduceOp>(op))
    emitReduce(reduce);
  else if (auto concat = dyn_cast_or_null<chunk::ConcatOp>(op))
    emitConcat(concat);
  else if (isMatrixColumn)
    emitColumn(cast<chunk::ColumnsOp>(op));
  else if (auto row = dyn_cast_or_null<chunk::RowOp>(op))
    emitRow(row);
  else if (auto tail = dyn_cast_or_null<chunk::TailOp>(op))
    emitTail(tail);
  else if (auto dot = dyn_cast_or_null<chunk::DecayDotOp>(op); dot && !isProduct(dot))
    computeDecayDot(dot);
  else if (auto mix = dyn_cast_or_null<chunk::DecayMixOp>(op))
    computeDecayMix(mix);
  else if (auto solve = dyn_cast_or_null<chunk::SolveOp>(op))
    computeSolve(solve);
  else if (auto scan = dyn_cast_or_null<chunk::ScanOp>(op))
    computeScan(scan);
  else if (auto pairs = dyn_cast_or_null<chunk::DecayPairsOp>(op))
    computeDecayPairs(pairs);
  else if (auto conv = dyn_cast_or_null<chunk::ConvBackOp>(op); conv && value == conv.getResult())
    computeConvBack(conv);
  else if (auto taps = dyn_cast_or_null<chunk::ConvTapsOp>(op))
    computeConvTaps(taps);
  else if (auto sums = dyn_cast_or_null<chunk::AccumulateOp>(op))
    computeAccumulate(sums);
  else if (auto lookback = dyn_cast_or_null<chunk::LookbackOp>(op); lookback && value == op->getResult(0))
    emitLookback(lookback);
  else if (auto conv = dyn_cast_or_null<chunk::ConvOp>(op))
    history(conv.getOperand(), conv.getTail());
  else if (auto delay = dyn_cast_or_null<chunk::DelayOp>(op))
    history(delay.getOperand(), delay.getTail());

  if (!plan.orders(value).any())
    return;
  Storage stored = storage.lookup(value);
  if (plan.orders(value).rows && !stored.rows) {
    Value rows = stored.transposed ? transposeBuffer(stored.transposed, shapeOf(value)) : storeRows(value);
    storage[value].rows = rows;
  }
  if (plan.orders(value).transposed && !storage[value].transposed) {
    Value transposed = storeTransposed(value);
    storage[value].transposed = transposed;
  }
  if (plan.orders(value).columnPairs) {
    Value pairs = storeColumnPairs(value);
    storage[value].columnPairs = pairs;
  }
  if (plan.orders(value).rowPairs) {
    Value pairs = storeRowPairs(value);
    storage[value].rowPairs = pairs;
  }
  if (plan.orders(value).transposedPairs) {
    Value pairs = storeTransposedPairs(value);
    storage[value].transposedPairs = pairs;
  }
  if (plan.orders(value).transposedRowPairs) {
    Value pairs = storeTransposedRowPairs(value);
    storage[value].transposedRowPairs = pairs;
  }
}

Value KernelLowering::storeRows(Value value) {
  Value buffer = allocateFor(value);
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && rankOf(value) == 1 && !plan.isInvariant(value)) {
    // One number of each token, a token's stride apart.
    View view = views[value];
    builder.loop(0, shapeOf(value)[0], 1, [&](Value row) {
      builder.storeScalar(builder.loadScalar(view.base, builder.multiply(row, view.stride)), buffer, row);
    });
    return buffer;
  }
  compute(value, [&](Point point, Value entries) { storeAt(entries, buffer, point); });
  return buffer;
}

void KernelLowering::storeAt(Value entries, Value buffer, Point point) {
  if (point.row)
    builder.store(entries, buffer, {point.row, point.column});
  else
    builder.store(entries, buffer, point.column);
}

Value KernelLowering::storeTransposed(Value value) {
  return transpose(shapeOf(value), [&](Point point) { return evaluateAnew(value, point); });
}

Value KernelLowering::transposeBuffer(Value buffer, ArrayRef<int64_t> shape) {
  return transpose({shape[1], shape[0]}, [&](Point point) { return builder.load(buffer, {point.row, point.column}); });
}

Value KernelLowering::transpose(ArrayRef<int64_t> shape, llvm::function_ref<Value(Point)> read) {
  int64_t rows = shape[0], columns = shape[1];
  Value buffer = allocateRows(columns, rows);
  forBlocks(rows, columns, builder.width, [&](Value firstRow, int64_t blockRows, Value column, int64_t lanes) {
    SmallVector<Value> vectors;
    for (int64_t row = 0; row < blockRows; ++row)
      vectors.push_back(read({builder.add(firstRow, row), column, lanes}));
    storeColumns(vectors, lanes, buffer, column, firstRow);
  });
  return buffer;
}

void KernelLowering::forBlocks(int64_t rows, int64_t columns, int64_t blockColumns, BlockBody body) {
  auto walkRows = [&](Value row, int64_t blockRows) {
    int64_t whole = columns / blockColumns * blockColumns;
    builder.loop(0, whole, blockColumns, [&](Value column) { body(row, blockRows, column, blockColumns); });
    if (whole < columns)
      body(row, blockRows, builder.index(whole), columns - whole);
  };
  int64_t whole = rows / builder.width * builder.width;
  builder.loop(0, whole, builder.width, [&](Value row) { walkRows(row, builder.width); });
  if (whole < rows)
    walkRows(builder.index(whole), rows - whole);
}

void KernelLowering::storeColumns(SmallVector<Value> vectors, int64_t count, Value buffer, Value row, Value column) {
  vectors.resize(builder.width, builder.zero(vectors.front().getType()));
  builder.transpose(vectors);
  for (int64_t lane = 0; lane < count; ++lane)
    builder.store(vectors[lane], buffer, {builder.add(row, lane), column});
}

void KernelLowering::emitOutput(Value output, View view) {
  if (rankOf(output) == 2)
    return compute(output, [&](Point point, Value entries) {
      Value start = builder.multiply(point.row, view.stride);
      builder.store(entries, view.base, builder.add(start, point.column), point.lanes);
    });
  builder.loop(0, shapeOf(output)[0], 1, [&](Value row) {
    known.clear();
    Value entry = vector::ExtractOp::create(builder, evaluateSplat(output, row), 0);
    builder.storeScalar(entry, view.base, builder.multiply(row, view.stride));
  });
}

void KernelLowering::emitYield(chunk::YieldOp yield, const Item &item) {
  for (auto [index, output] : llvm::enumerate(yield.getOutputs())) {
    builder.setLoc(output.getLoc());
    chunk::OutputAttr description = kernel.getOutput(index);
    Value value = output;
    View view = outputViews[index];
    if (!description.getCheckpoint()) {
      emitOutput(value, view);
      continue;
    }
    // What heads share is the same for all; one of them keeps it.
    Value member = builder.createOrFold<arith::RemUIOp>(item.head, builder.index(description.getGroup()));
    Value isFirst = builder.compare(arith::CmpIPredicate::eq, member, builder.index(0));
    builder.ifTrue(builder.createOrFold<arith::AndIOp>(isKept, isFirst), [&] { emitOutput(value, view); });
  }
  for (const Sweep &update : sweeps.updates())
    emitSweep(update);
  // Next values that do not overwrite the present ones wait until every one is computed.
  SmallVector<std::pair<Value, Value>> waiting;
  for (auto [index, pair] :
       llvm::enumerate(llvm::zip(kernel.argumentsOf(chunk::ArgumentKind::State), yield.getStates()))) {
    auto [state, next] = pair;
    if (next == state || sweeps.isMatrix(state))
      continue;
    builder.setLoc(next.getLoc());
    Value buffer = storage[state].rows;
    if (!plan.isUpdatedInPlace(index)) {
      Value copy = allocateFor(state);
      waiting.push_back({copy, buffer});
      buffer = copy;
    }
    compute(next, [&](Point point, Value entries) { storeAt(entries, buffer, point); });
  }
  for (auto [from, to] : waiting)
    copyBuffer(from, to);
}

void KernelLowering::copyBuffer(Value from, Value to) {
  ArrayRef<int64_t> shape = cast<MemRefType>(from.getType()).getShape();
  if (shape.size() == 1)
    return builder.loopOverVectors(
        shape[0], [&](Value column, int64_t) { builder.store(builder.load(from, column), to, column); });
  builder.loop(0, shape[0], 1, [&](Value row) {
    builder.loopOverVectors(
        shape[1], [&](Value column, int64_t) { builder.store(builder.load(from, {row, column}), to, {row, column}); });
  });
}
