//===- Sweeps.cpp - Walks over the states of a step -----------------------===//
//
// A state lies where its caller wants it to be at the end, or in scratch where nobody does; the first token reads it
// where the caller left it. A sweep walks over panels of columns: sums over rows stay in registers, and so do the rows
// that are written.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

//===----------------------------------------------------------------------===//
// Where states lie
//===----------------------------------------------------------------------===//

static Value choose(VectorBuilder &builder, Value condition, Value yes, Value no) {
  return builder.createOrFold<arith::SelectOp>(condition, yes, no);
}

/// Hands every vector of a matrix to `visit`.
static void forEachVector(VectorBuilder &builder, RankedTensorType type,
                          llvm::function_ref<void(Value row, Value column, int64_t lanes)> visit) {
  builder.loop(0, type.getDimSize(0), 1, [&](Value row) {
    builder.loopOverVectors(type.getDimSize(1), [&](Value column, int64_t lanes) { visit(row, column, lanes); });
  });
}

Value KernelLowering::placeIn(View matrix, Value row, Value column) {
  return builder.add(builder.multiply(row, matrix.stride), column);
}

void KernelLowering::locateState(const Argument &argument, const Item &item) {
  Type element = argument.type.getElementType();
  Value zero = builder.index(0);
  Value isWanted = builder.compare(arith::CmpIPredicate::ne, argument.words[1], zero);
  Value member = builder.createOrFold<arith::RemUIOp>(item.head, builder.index(argument.group));
  Value isFirst = builder.compare(arith::CmpIPredicate::eq, member, zero);
  Value isStored = builder.createOrFold<arith::AndIOp>(isWanted, isFirst);
  SweptState &state = sweptStates[argument.value];
  Value scratch = memref::ExtractAlignedPointerAsIndexOp::create(builder, state.scratch);
  state.home = {memoryAt(choose(builder, isStored, argument.finalAddress, scratch), element),
                choose(builder, isStored, argument.words[4], builder.index(padded(argument.type.getDimSize(1))))};
  state.isGiven = builder.compare(arith::CmpIPredicate::ne, argument.words[0], zero);
  Value isAbsent = builder.compare(arith::CmpIPredicate::eq, argument.words[0], zero);
  builder.ifTrue(isAbsent, [&] {
    forEachVector(builder, argument.type, [&](Value row, Value column, int64_t lanes) {
      builder.store(builder.splat(0.0), state.home.base, placeIn(state.home, row, column), lanes);
    });
  });
  // Without tokens nothing is computed from a state that is given.
  Value isEmpty = builder.compare(arith::CmpIPredicate::eq, item.tokens, zero);
  builder.ifTrue(builder.createOrFold<arith::AndIOp>(isEmpty, state.isGiven), [&] {
    View from = {memoryAt(argument.address, element), argument.words[4]};
    forEachVector(builder, argument.type, [&](Value row, Value column, int64_t lanes) {
      Value entries = builder.load(from.base, placeIn(from, row, column), lanes);
      builder.store(entries, state.home.base, placeIn(state.home, row, column), lanes);
    });
  });
}

void KernelLowering::findSources(Value firstToken) {
  Value isFirst = builder.compare(arith::CmpIPredicate::eq, firstToken, builder.index(0));
  for (const Argument &argument : arguments) {
    auto found = sweptStates.find(argument.value);
    if (found == sweptStates.end())
      continue;
    SweptState &state = found->second;
    Value fromCaller = builder.createOrFold<arith::AndIOp>(isFirst, state.isGiven);
    Value initial = memoryAt(argument.address, argument.type.getElementType());
    views[argument.value] = {choose(builder, fromCaller, initial, state.home.base),
                             choose(builder, fromCaller, argument.words[4], state.home.stride)};
  }
}

//===----------------------------------------------------------------------===//
// One sweep
//===----------------------------------------------------------------------===//

namespace stretto::cpu {

/// Emits one sweep.
class SweepEmitter {
public:
  SweepEmitter(KernelLowering &lowering, const Sweep &sweep);
  void emit();

private:
  /// Vectors of columns that a panel has, so that sums and rows stay in registers.
  int64_t vectorsOfPanel() const;
  void emitPanel(Value first, ArrayRef<int64_t> panelLanes);
  /// Loads the vectors that meet every row.
  void loadColumnVectors();
  /// What a row of a panel makes of the sums over rows.
  SmallVector<Value> walkRow(Value row, ValueRange sums);
  void reduceLanes();

  /// A vector of what the state has become.
  Value entries(Value matrix, KernelLowering::Point point);
  /// A sum, or whatever a read reduces by, and one vector more.
  Value combine(chunk::ReduceOp read, Value reduced, KernelLowering::Point point);
  Value combine(chunk::Reduction kind, Value left, Value right);
  Value neutral(chunk::Reduction kind) {
    return builder.splat(kind == chunk::Reduction::Sum ? 0.0 : -std::numeric_limits<double>::infinity());
  }
  Value bufferOf(Value value) { return lowering.storage.lookup(value).rows; }

  KernelLowering &lowering;
  VectorBuilder &builder;
  const Sweep &sweep;
  const KernelLowering::SweptState &state;
  int64_t rows, columns;
  SmallVector<chunk::ReduceOp> rowReads, columnReads; // over rows, and over columns
  SmallVector<Value> partial; // of each column read a vector for each row, whose lanes are still to be reduced

  // Of the panel: where its vectors begin, their lanes, and what is loaded before the walk over rows.
  SmallVector<Value> starts;
  ArrayRef<int64_t> lanes;
  decltype(KernelLowering::known) loaded;
};

} // namespace stretto::cpu

SweepEmitter::SweepEmitter(KernelLowering &lowering, const Sweep &sweep)
    : lowering(lowering), builder(lowering.builder), sweep(sweep), state(lowering.sweptStates[sweep.state]),
      rows(shapeOf(sweep.state)[0]), columns(shapeOf(sweep.state)[1]) {
  for (chunk::ReduceOp read : sweep.reads)
    (read.getOver() == chunk::Side::Rows ? rowReads : columnReads).push_back(read);
}

Value SweepEmitter::combine(chunk::Reduction kind, Value left, Value right) {
  if (kind == chunk::Reduction::Sum)
    return arith::AddFOp::create(builder, left, right);
  return arith::MaximumFOp::create(builder, left, right);
}

Value SweepEmitter::combine(chunk::ReduceOp read, Value reduced, KernelLowering::Point point) {
  auto product = read.getOperand().getDefiningOp<arith::MulFOp>();
  if (!product || read.getKind() != chunk::Reduction::Sum)
    return combine(read.getKind(), reduced, entries(read.getOperand(), point));
  Value left = entries(product.getLhs(), point), right = entries(product.getRhs(), point);
  return vector::FMAOp::create(builder, left, right, reduced);
}

Value SweepEmitter::entries(Value matrix, KernelLowering::Point point) {
  auto sum = matrix.getDefiningOp<arith::AddFOp>();
  if (!sum)
    return lowering.evaluate(matrix, point);
  Value &result = lowering.known[{matrix, point.row, point.column}];
  if (result)
    return result;
  Value left = sum.getLhs(), right = sum.getRhs(), total;
  if (!right.getDefiningOp<chunk::DecayStateOp>())
    std::swap(left, right);
  if (auto decay = right.getDefiningOp<chunk::DecayStateOp>(); decay && !lowering.plan.orders(right).any())
    total = lowering.addDecayedTo(entries(left, point), decay, point);
  else
    total = lowering.evaluate(matrix, point);
  return lowering.known[{matrix, point.row, point.column}] = total;
}

SmallVector<Value> SweepEmitter::walkRow(Value row, ValueRange sums) {
  SmallVector<Value> nextSums = llvm::to_vector(sums), stored, acrossRow(columnReads.size());
  for (auto [vector, start] : llvm::enumerate(starts)) {
    KernelLowering::Point point = {row, start, lanes[vector]};
    lowering.known = loaded;
    for (auto [index, read] : llvm::enumerate(rowReads)) {
      Value &sum = nextSums[index * starts.size() + vector];
      sum = combine(read, sum, point);
    }
    for (auto [read, reduced] : llvm::zip_equal(columnReads, acrossRow)) {
      Value one = entries(read.getOperand(), point);
      if (point.lanes < builder.width)
        one = arith::SelectOp::create(builder, builder.firstLanes(point.lanes), one, neutral(read.getKind()));
      reduced = reduced ? combine(read.getKind(), reduced, one) : one;
    }
    if (sweep.next)
      stored.push_back(entries(sweep.next, point));
  }
  // Loads before stores, as the compiler cannot tell them apart.
  for (auto [vector, next] : llvm::enumerate(stored))
    builder.store(next, state.home.base, lowering.placeIn(state.home, row, starts[vector]), lanes[vector]);
  for (auto [read, buffer, reduced] : llvm::zip_equal(columnReads, partial, acrossRow)) {
    Value before = builder.load(buffer, {row, builder.index(0)});
    builder.store(combine(read.getKind(), before, reduced), buffer, {row, builder.index(0)});
  }
  return nextSums;
}

void SweepEmitter::loadColumnVectors() {
  lowering.known.clear();
  SmallVector<Value> pending;
  for (chunk::ReduceOp read : sweep.reads)
    pending.push_back(read.getOperand());
  if (sweep.next)
    pending.push_back(sweep.next);
  llvm::DenseSet<Value> seen;
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!op || !seen.insert(value).second || lowering.plan.orders(value).any())
      continue;
    auto broadcast = dyn_cast<chunk::BroadcastOp>(op);
    if (broadcast && broadcast.getAlong() == chunk::Side::Columns && rankOf(broadcast.getOperand()) == 1)
      for (auto [start, count] : llvm::zip_equal(starts, lanes))
        lowering.evaluate(broadcast.getOperand(), {Value(), start, count});
    else if (!broadcast)
      llvm::append_range(pending, op->getOperands());
  }
  loaded = lowering.known;
}

void SweepEmitter::emitPanel(Value first, ArrayRef<int64_t> panelLanes) {
  lanes = panelLanes;
  starts.clear();
  for (size_t vector = 0; vector < lanes.size(); ++vector)
    starts.push_back(builder.add(first, vector * builder.width));
  loadColumnVectors();
  SmallVector<Value> sums;
  for (chunk::ReduceOp read : rowReads)
    sums.append(lanes.size(), neutral(read.getKind()));
  auto loop = scf::ForOp::create(builder, builder.index(0), builder.index(rows), builder.index(1), sums);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> next = walkRow(loop.getInductionVar(), loop.getRegionIterArgs());
    if (!next.empty())
      scf::YieldOp::create(builder, next);
  }
  lowering.known.clear();
  for (auto [index, read] : llvm::enumerate(rowReads))
    for (auto [vector, start] : llvm::enumerate(starts))
      builder.store(loop.getResult(index * starts.size() + vector), bufferOf(read.getResult()), start);
}

int64_t SweepEmitter::vectorsOfPanel() const {
  // A sum of each read, the row that is written, and the entries.
  constexpr int64_t others = 6, most = 8;
  auto perVector = static_cast<int64_t>(sweep.reads.size()) + 2;
  return std::clamp<int64_t>((lowering.machine.registers - others) / perVector, 1, most);
}

void SweepEmitter::emit() {
  for (chunk::ReduceOp read : sweep.reads)
    lowering.storage[read.getResult()].rows = lowering.allocateFor(read.getResult());
  for (chunk::ReduceOp read : columnReads) {
    partial.push_back(lowering.allocateRows(lowering.padded(rows), builder.width));
    builder.loop(0, rows, 1,
                 [&](Value row) { builder.store(neutral(read.getKind()), partial.back(), {row, builder.index(0)}); });
  }
  int64_t width = builder.width, whole = columns / width, panel = vectorsOfPanel(), panels = whole / panel;
  SmallVector<int64_t> panelLanes(panel, width);
  builder.loop(0, panels * panel * width, panel * width, [&](Value first) { emitPanel(first, panelLanes); });
  panelLanes.assign(whole % panel, width);
  if (columns % width)
    panelLanes.push_back(columns % width);
  if (!panelLanes.empty())
    emitPanel(builder.index(panels * panel * width), panelLanes);
  reduceLanes();
}

void SweepEmitter::reduceLanes() {
  for (auto [read, buffer] : llvm::zip_equal(columnReads, partial)) {
    builder.loop(0, rows, builder.width, [&](Value block) {
      SmallVector<Value> vectors;
      for (int64_t row = 0; row < builder.width; ++row)
        vectors.push_back(builder.load(buffer, {builder.add(block, row), builder.index(0)}));
      auto reduced = builder.reduceLanes(
          vectors, [&, kind = read.getKind()](Value left, Value right) { return combine(kind, left, right); });
      builder.store(reduced, bufferOf(read.getResult()), block);
    });
    lowering.release(buffer);
  }
}

void KernelLowering::emitSweep(const Sweep &sweep) { SweepEmitter(*this, sweep).emit(); }
