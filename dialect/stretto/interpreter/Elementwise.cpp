//===- Elementwise.cpp - Operations that map entries to entries -----------===//

#include "dialect/stretto/interpreter/Compiler.h"
#include "dialect/stretto/interpreter/Scalars.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

Instruction interpreter::compileElementwise(Operation *op, Row result, ArrayRef<Row> operands) {
  int64_t size = result.size();
  auto step = [](const Row &row) { return row.size() == 1 ? 0 : 1; };
  if (Unary map = unaryOf(op)) {
    Row x = operands[0];
    return [=](Frame &frame) {
      double *y = frame.at(result);
      const double *px = frame.at(x);
      for (int64_t i = 0; i < size; ++i, px += step(x))
        y[i] = map(*px);
    };
  }
  if (Binary map = binaryOf(op)) {
    Row a = operands[0], b = operands[1];
    return [=](Frame &frame) {
      double *y = frame.at(result);
      const double *pa = frame.at(a), *pb = frame.at(b);
      for (int64_t i = 0; i < size; ++i, pa += step(a), pb += step(b))
        y[i] = map(*pa, *pb);
    };
  }
  if (isa<arith::SelectOp>(op)) {
    Row condition = operands[0], a = operands[1], b = operands[2];
    return [=](Frame &frame) {
      double *y = frame.at(result);
      const double *pc = frame.at(condition), *pa = frame.at(a), *pb = frame.at(b);
      for (int64_t i = 0; i < size; ++i, pc += step(condition), pa += step(a), pb += step(b))
        y[i] = *pc != 0 ? *pa : *pb;
    };
  }
  return {};
}
