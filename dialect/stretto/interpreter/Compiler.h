//===- Compiler.h - From operations to instructions -------------*- C++ -*-===//
#ifndef STRETTO_DIALECT_STRETTO_INTERPRETER_COMPILER_H
#define STRETTO_DIALECT_STRETTO_INTERPRETER_COMPILER_H

#include "dialect/stretto/interpreter/Program.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace stretto::interpreter {

/// The instruction of an operation that maps entries to entries, or none where `op` is no such operation. An operand
/// of size one meets every entry.
Instruction compileElementwise(mlir::Operation *op, Row result, llvm::ArrayRef<Row> operands);
/// The instruction of any other operation on rows of one token, or none.
Instruction compileRowMap(mlir::Operation *op, Row result, llvm::ArrayRef<Row> operands, const Sizes &sizes);

struct Window;

class Compiler {
public:
  Compiler(VariantOp variant, const Sizes &sizes, Schedule schedule, int64_t maximalLength);
  mlir::LogicalResult run();
  std::unique_ptr<Program> program = std::make_unique<Program>();

private:
  mlir::LogicalResult compile(mlir::Operation *op);
  mlir::LogicalResult compileRow(mlir::Operation *op);
  void emit(Instruction instruction) { target->push_back(std::move(instruction)); }
  Pass &currentPass() { return program->passes[pass]; }

  // Where values lie.
  Row shapeOf(mlir::Type type) const;
  mlir::FailureOr<Row> define(mlir::Value value);
  Row scratch(Row shape);
  void defineConstant(mlir::arith::ConstantOp op);
  std::vector<double> *buffer(mlir::Operation *op, int64_t size, int64_t count = 1);
  llvm::SmallVector<Row> rowsOf(mlir::ValueRange values) const;
  EntryValues &entryOf(mlir::Operation *op) { return program->entryValues[entryIndex.at(op)]; }

  // Time.cpp
  mlir::LogicalResult compileScan(ScanOp op);
  void emitWindow(mlir::Operation *op, Window window);
  mlir::LogicalResult compileConv(ConvOp op);
  mlir::LogicalResult compileDelay(DelayOp op);
  mlir::LogicalResult compileTable(TableOp op);
  void finishEntries();

  // Lookback.cpp
  mlir::LogicalResult compileLookback(LookbackOp op);

  // States.cpp
  struct Chain;
  struct Snapshots;
  mlir::LogicalResult compileState(StateOp op);
  void compileDecay(DecayOp op);
  void compileWrite(WriteOp op);
  mlir::LogicalResult compileRead(ReadOp op);
  mlir::LogicalResult compilePair(PairOp op);
  void keepForUsers(mlir::Value state);

  VariantOp variant;
  const Sizes &sizes;
  Schedule schedule;
  int64_t maximalLength;
  llvm::DenseMap<mlir::Value, Row> rows;
  llvm::DenseMap<mlir::Operation *, size_t> entryIndex;
  llvm::DenseMap<mlir::Operation *, std::shared_ptr<Chain>> chains;
  /// By the value that is kept and the operation that uses it.
  llvm::DenseMap<std::pair<mlir::Value, mlir::Operation *>, std::shared_ptr<Snapshots>> snapshots;
  int pass = 0;
  std::vector<Instruction> *target = nullptr;
  /// How many numbers a real number stands for: in the body of a table, one for each head and channel.
  int64_t lanes = 1;
};

} // namespace stretto::interpreter

#endif // STRETTO_DIALECT_STRETTO_INTERPRETER_COMPILER_H
