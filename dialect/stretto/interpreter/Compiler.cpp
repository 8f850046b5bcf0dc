//===- Compiler.cpp - From operations to instructions ---------------------===//

#include "dialect/stretto/interpreter/Compiler.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

Compiler::Compiler(VariantOp variant, const Sizes &sizes, Schedule schedule, int64_t maximalLength)
    : variant(variant), sizes(sizes), schedule(std::move(schedule)), maximalLength(maximalLength) {}

//===----------------------------------------------------------------------===//
// Where values lie
//===----------------------------------------------------------------------===//

Row Compiler::shapeOf(Type type) const {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return {0, 1, lanes};
  int64_t width = 1;
  for (int64_t size : tensor.getShape())
    width *= size;
  return {0, *sizes.heads(headsOf(type)), width};
}

/// `size * count` numbers, or an error where no machine holds as many.
std::vector<double> *Compiler::buffer(Operation *op, int64_t size, int64_t count) {
  constexpr int64_t limit = int64_t(1) << 32;
  int64_t product;
  if (llvm::MulOverflow(size, count, product) || product > limit) {
    op->emitError() << "[R14] needs " << size << " x " << count << " numbers at once, expected at most " << limit;
    return nullptr;
  }
  return &program->buffers.emplace_back(product, 0.0);
}

Row Compiler::scratch(Row shape) {
  shape.slot = program->frame.slots.size();
  shape.past = false;
  program->frame.slots.push_back({program->buffers.emplace_back(shape.size(), 0.0).data(), 0});
  return shape;
}

/// Gives the result of an operation its place; one that is needed at other tokens has a place for each.
FailureOr<Row> Compiler::define(Value value) {
  Row row = shapeOf(value.getType());
  bool stored = schedule.isStored(value);
  std::vector<double> *values = buffer(value.getDefiningOp(), row.size(), stored ? maximalLength : 1);
  if (!values)
    return failure();
  row.slot = program->frame.slots.size();
  program->frame.slots.push_back({values->data(), stored ? row.size() : 0});
  rows[value] = row;
  return row;
}

void Compiler::defineConstant(arith::ConstantOp op) {
  Row row = rows[op.getResult()] = scratch(shapeOf(op.getType()));
  auto number = [](Attribute entry) {
    if (auto real = dyn_cast<FloatAttr>(entry))
      return real.getValueAsDouble();
    return cast<IntegerAttr>(entry).getValue().isZero() ? 0.0 : 1.0;
  };
  double *values = program->frame.at(row);
  auto entries = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!entries || entries.isSplat()) {
    std::fill_n(values, row.size(), number(entries ? entries.getSplatValue<Attribute>() : op.getValue()));
    return;
  }
  auto perChannel = llvm::map_to_vector(entries.getValues<Attribute>(), number);
  for (int64_t i = 0; i < row.size(); ++i)
    values[i] = perChannel[i % row.width];
}

SmallVector<Row> Compiler::rowsOf(ValueRange values) const {
  return llvm::map_to_vector(values, [&](Value value) { return rows.at(value); });
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

LogicalResult Compiler::compileRow(Operation *op) {
  bool isRowMap = op->getNumResults() == 1 && op->getNumRegions() == 0 &&
                  !isa<OptionOp, OptionIsOp, PresentOp, SizeOp, ConstantOp>(op);
  if (!isRowMap)
    return op->emitError("[R14] is not decided by the sizes and options that are given");
  FailureOr<Row> result = define(op->getResult(0));
  if (failed(result))
    return failure();
  SmallVector<Row> operands = rowsOf(op->getOperands());
  Instruction instruction = compileElementwise(op, *result, operands);
  if (!instruction)
    instruction = compileRowMap(op, *result, operands, sizes);
  if (!instruction)
    return op->emitError("[R14] is an operation that the interpreter does not know");
  emit(std::move(instruction));
  return success();
}

LogicalResult Compiler::compile(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](arith::ConstantOp op) { return defineConstant(op), success(); })
      .Case([&](PastOp op) {
        Row row = rows.at(op.getOperand());
        row.past = true;
        rows[op.getResult()] = row;
        return success();
      })
      .Case([&](ScanOp op) { return compileScan(op); })
      .Case([&](ConvOp op) { return compileConv(op); })
      .Case([&](DelayOp op) { return compileDelay(op); })
      .Case([&](TableOp op) { return compileTable(op); })
      .Case([&](LookbackOp op) { return compileLookback(op); })
      .Case([&](StateOp op) { return compileState(op); })
      .Case([&](DecayOp op) { return compileDecay(op), keepForUsers(op.getResult()), success(); })
      .Case([&](WriteOp op) { return compileWrite(op), keepForUsers(op.getResult()), success(); })
      .Case([&](ReadOp op) { return compileRead(op); })
      .Case([&](PairOp op) { return compilePair(op); })
      .Default([&](Operation *op) { return compileRow(op); });
}

LogicalResult Compiler::run() {
  for (BlockArgument argument : variant.getBody().getArguments()) {
    Row row = shapeOf(argument.getType());
    row.slot = program->frame.slots.size();
    program->frame.slots.push_back({nullptr, isRow(argument.getType()) ? row.size() : 0});
    rows[argument] = row;
    program->arguments.push_back(row);
  }

  program->entries = deriveState(variant);
  program->entryValues.resize(program->entries.size());
  for (auto [index, entry] : llvm::enumerate(program->entries)) {
    int64_t size = 1;
    for (int64_t each : entry.shape(/*sequences=*/1, *sizes.heads(entry.heads)))
      if (llvm::MulOverflow(size, each, size) || size > (int64_t(1) << 32))
        return entry.operations.front()->emitError("[R14] is a state of more than 2^32 numbers");
    program->entryValues[index] = {std::vector<double>(size), std::vector<double>(size)};
    for (Operation *op : entry.operations)
      entryIndex[op] = index;
  }

  program->passes.resize(schedule.passCount());
  for (pass = 0; pass < schedule.passCount(); ++pass) {
    target = &currentPass().token;
    for (Operation &op : variant.getBlock()->without_terminator())
      if (schedule.runs(&op, pass) && failed(compile(&op)))
        return failure();
  }
  finishEntries();
  program->results = rowsOf(variant.getBlock()->getTerminator()->getOperands());
  return success();
}

FailureOr<std::unique_ptr<Program>> interpreter::compile(VariantOp variant, const Sizes &sizes, int64_t maximalLength) {
  FailureOr<Schedule> schedule = Schedule::get(variant);
  if (failed(schedule))
    return failure();
  Compiler compiler(variant, sizes, std::move(*schedule), maximalLength);
  if (failed(compiler.run()))
    return failure();
  return std::move(compiler.program);
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

static LogicalResult runAll(ArrayRef<Instruction> instructions, Frame &frame) {
  for (const Instruction &instruction : instructions)
    instruction(frame);
  if (frame.fault)
    return frame.fault->emitError() << frame.error;
  return success();
}

LogicalResult interpreter::execute(Program &program) {
  Frame &frame = program.frame;
  for (auto [index, pass] : llvm::enumerate(program.passes)) {
    if (failed(runAll(pass.begin, frame)))
      return failure();
    for (int64_t i = 0; i < frame.length; ++i) {
      frame.token = Schedule::isReverse(index) ? frame.length - 1 - i : i;
      if (failed(runAll(pass.token, frame)))
        return failure();
    }
    if (failed(runAll(pass.end, frame)))
      return failure();
  }
  return success();
}
