//===- LowerElements.cpp - Elements in place ------------------------------===//

#include "passes/kernel/ThreadLowering.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

Registers ThreadLowering::soFar(Value tile, const Layout &layout) {
  auto known = registers.find(tile);
  return stripe.isAll() || known == registers.end() ? Registers(layout.size(Layout::Register)) : known->second;
}

void ThreadLowering::define(Value tile, function_ref<Value(uint64_t)> element) {
  auto type = cast<RankedTensorType>(tile.getType());
  Layout layout = *layoutOf(type);
  Registers result = soFar(tile, layout);
  for (auto [reg, value] : llvm::enumerate(result))
    if (stripe.has(reg) && ThreadBuilder::inside(layout, type.getShape(), reg) != ThreadBuilder::Inside::Never)
      value = element(reg);
  registers[tile] = std::move(result);
}

void ThreadLowering::lowerScalar(Operation *op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op); constant && constant.getType().isIndex()) {
    scalars.map(constant.getResult(), b.i64(cast<IntegerAttr>(constant.getValue()).getInt()));
    return;
  }
  // An index is a 64-bit number.
  Operation *scalar = b.clone(*op, scalars);
  for (Value result : scalar->getResults())
    if (result.getType().isIndex())
      result.setType(b.getI64Type());
}

void ThreadLowering::lowerElementwise(Operation *op) {
  Value tile = op->getResult(0);
  Type element = getElementTypeOrSelf(tile.getType());
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    if (op->use_empty())
      return;
    Value number =
        arith::ConstantOp::create(b, cast<SplatElementsAttr>(constant.getValue()).getSplatValue<TypedAttr>());
    return define(tile, [&](uint64_t) { return number; });
  }
  auto single = [&](uint64_t reg) -> Value {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, isa<RankedTensorType>(operand.getType()) ? registersOf(operand)[reg]
                                                                    : scalars.lookupOrDefault(operand));
    Operation *scalar = b.clone(*op, mapping);
    scalar->getResult(0).setType(element);
    return scalar->getResult(0);
  };
  // One instruction rounds two numbers to 16 bits, or compares two pairs of these, and leaves them where products want
  // them.
  bool inPairs = isa<arith::TruncFOp, arith::MaximumFOp>(op) && element.getIntOrFloatBitWidth() == 16;
  if (!inPairs)
    return define(tile, single);
  Registers pair;
  define(tile, [&](uint64_t reg) -> Value {
    bool paired = llvm::all_of(op->getOperands(), [&](Value operand) {
      const Registers &source = registersOf(operand);
      return (reg | 1) < source.size() && source[reg & ~1] && source[reg | 1];
    });
    if (!paired)
      return single(reg);
    if (!(reg & 1)) {
      IRMapping mapping;
      for (Value operand : op->getOperands()) {
        const Registers &source = registersOf(operand);
        mapping.map(operand, b.pack({source[reg], source[reg + 1]}));
      }
      Operation *both = b.clone(*op, mapping);
      both->getResult(0).setType(VectorType::get(2, element));
      pair = b.unpack(both->getResult(0));
    }
    return pair[reg & 1];
  });
}

void ThreadLowering::lowerBroadcast(chunk::BroadcastOp op) {
  const Registers &source = registersOf(op.getOperand());
  Layout target = *layoutOf(op.getType()), own = *layoutOf(op.getOperand().getType());
  if (own.rank() == 0)
    return define(op.getResult(), [&](uint64_t) { return source[0]; });
  // The operand's registers by coordinate.
  llvm::SmallDenseMap<uint64_t, Value> byCoordinate;
  for (auto [reg, value] : llvm::enumerate(source))
    byCoordinate[own.at(Layout::Register, reg)] = value;
  unsigned side = op.getAlong() == chunk::Side::Rows ? 0 : 1;
  define(op.getResult(),
         [&](uint64_t reg) { return byCoordinate.lookup(target.coordinate(target.at(Layout::Register, reg), side)); });
}

std::function<Value(uint64_t)> ThreadLowering::isEarlier(const Layout &layout, bool strict) {
  uint64_t ofThreads = layout.reach(Layout::Lane) | layout.reach(Layout::Warp);
  bool isSum = (ofThreads & layout.reach(Layout::Register)) == 0;
  // How far a thread's first row is behind its first column: what is left to compare is a constant, the same for all
  // registers of a diagonal.
  Value behind = b.sub(b.coordinate(layout, 0, 0), b.coordinate(layout, 1, 0));
  return [this, layout, isSum, behind, strict](uint64_t reg) {
    uint64_t own = layout.at(Layout::Register, reg);
    Value further = isSum ? b.i32(layout.coordinate(own, 1) - layout.coordinate(own, 0))
                          : b.sub(b.coordinate(layout, 1, reg), b.sub(b.coordinate(layout, 0, reg), behind));
    return b.compare(strict ? arith::CmpIPredicate::sgt : arith::CmpIPredicate::sge, behind, further);
  };
}

void ThreadLowering::lowerCausal(chunk::CausalOp op) {
  const Registers &source = registersOf(op.getOperand());
  Layout layout = *layoutOf(op.getType());
  Value zero = b.zero(getElementTypeOrSelf(op.getType()));
  auto isKept = isEarlier(layout, op.getStrict());
  define(op.getResult(), [&](uint64_t reg) { return b.select(isKept(reg), source[reg], zero); });
}

LogicalResult ThreadLowering::lowerEvaluate(EvaluateOp op) {
  const View &view = viewOf(op.getTable());
  auto table = function->getParentOfType<ModuleOp>().lookupSymbol<chunk::TableOp>(view.argument->name);
  if (!table)
    return op.emitOpError("computes the table '") << view.argument->name << "', which the module does not have";
  Block &body = table.getBody().front();
  Layout layout = *layoutOf(op.getType());
  Type element = getElementTypeOrSelf(op.getType()), real = b.getF64Type();
  int64_t count = op.getType().getDimSize(0);
  auto asReal = [&](Value number) { return arith::SIToFPOp::create(b, real, number); };
  Value head = asReal(view.head), first = b.mul(scalars.lookup(op.getChunk()), count),
        valid = validTokens(first, count);
  define(op.getResult(), [&](uint64_t reg) {
    Value token = b.coordinate(layout, 0, reg), place = b.add(b.add(position, first), b.extend(token));
    if (std::optional<int64_t> period = table.getPeriod())
      place = arith::RemUIOp::create(b, place, b.i64(*period));
    Value column = layout.rank() == 2 ? b.coordinate(layout, 1, reg) : b.i32(0);
    IRMapping numbers;
    numbers.map(body.getArguments(), ValueRange{asReal(place), head, asReal(column)});
    for (Operation &inner : body.without_terminator())
      b.clone(inner, numbers);
    Value number = numbers.lookup(body.getTerminator()->getOperand(0));
    return b.select(b.less(token, valid), arith::TruncFOp::create(b, element, number), b.zero(element));
  });
  return success();
}

void ThreadLowering::lowerMask(chunk::MaskOp op) {
  constexpr size_t manyRows = 8;
  const Registers &source = registersOf(op.getOperand());
  Layout layout = *layoutOf(op.getType());
  Value valid = b.truncate(scalars.lookup(op.getValid()));
  Value otherwise = b.real(getElementTypeOrSelf(op.getType()), op.getOtherwise().convertToDouble());
  auto masked = [&](uint64_t reg) {
    return b.select(b.less(b.coordinate(layout, 0, reg), valid), source[reg], otherwise);
  };
  llvm::SmallMapVector<uint64_t, Value, 32> whole;
  llvm::SmallDenseSet<int64_t, manyRows> rows;
  for (auto [reg, number] : llvm::enumerate(source))
    if (number && stripe.has(reg)) {
      whole[reg] = number;
      rows.insert(layout.coordinate(layout.at(Layout::Register, reg), 0));
    }
  // A thread that walks down columns would compare each of its rows, where all chunks of a sequence but its last have
  // all rows. Those who run ahead have registers for a branch of the others.
  if (function.getRole().getKind() != RoleKind::Ahead || rows.size() < manyRows)
    return define(op.getResult(), masked);
  auto numbers = llvm::map_to_vector(whole, [](const auto &entry) { return entry.second; });
  auto choice = scf::IfOp::create(b, ValueRange(numbers).getTypes(), b.less(valid, op.getType().getDimSize(0)),
                                  /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(choice.elseBlock());
    scf::YieldOp::create(b, numbers);
    b.setInsertionPointToStart(choice.thenBlock());
    scf::YieldOp::create(b, llvm::map_to_vector(whole, [&](const auto &entry) { return masked(entry.first); }));
  }
  for (auto [entry, result] : llvm::zip_equal(whole, choice.getResults()))
    entry.second = result;
  define(op.getResult(), [&](uint64_t reg) { return whole.lookup(reg); });
}

Value ThreadLowering::scratchOf(Operation *op) {
  int64_t ofGroup = group ? group * bytesOfGroup(scratchBytesOf(op)) : 0;
  return b.advance(shared, op->getAttrOfType<IntegerAttr>(scratchAttribute).getInt() + ofGroup);
}

SharedTile ThreadLowering::scratchTile(Value base, RankedTensorType type) {
  Layout layout = sharedLayout(type.getShape(), llvm::divideCeil(type.getElementTypeBitWidth(), 8));
  return SharedTile(withLayout(type, layout), base);
}
