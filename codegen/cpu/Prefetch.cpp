//===- Prefetch.cpp - What the next chunk reads and writes ----------------===//
//
// The rows of a head lie pages apart: no processor foresees the next ones, and each of the first requests for them
// waits for the translation of its address. So a chunk asks for the lines of the next one, of its checkpoints too,
// while it computes. Requests all at once would wait for each other, and what is computed then for them: they are
// spread over the steps of a product, that of the first state whose update has one. Products of tiles take too little
// time each to hide anything: where a chunk has some, over the steps of all of these.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

static constexpr int64_t cacheLine = 64;

void KernelLowering::prefetchChunk(const Item &item, Value firstToken) {
  struct Asked {
    Value start, stride; // in bytes
    int64_t rows;
  };
  SmallVector<Asked> asked;
  linesOfNextRows = 0;
  int64_t rows = 0, tokens = kernel.getChunk();
  for (const Argument &argument : arguments) {
    if (!isTile(argument) && !isCheckpoint(argument))
      continue;
    Type element = argument.type.getElementType();
    if (argument.type.getRank() < 2) {
      if (isTile(argument))
        builder.loop(0, tokens, 1, [&, memory = memoryAt(tileAddress(argument, firstToken), element)](Value row) {
          builder.prefetch(memory, builder.multiply(row, argument.words[2]));
        });
      continue;
    }
    int64_t bytes = argument.type.getDimSize(1) * bytesOfElement(element);
    linesOfNextRows = std::max<int64_t>(linesOfNextRows, llvm::divideCeil(bytes, cacheLine));
    if (isTile(argument)) {
      Value stride = builder.multiply(argument.words[2], bytesOfElement(element));
      asked.push_back({tileAddress(argument, firstToken), stride, tokens});
    } else {
      Value stride = builder.index(bytes * (argument.sliced ? kernel.getSlices() : 1));
      asked.push_back({checkpointAddress(argument, item, firstToken), stride, argument.type.getDimSize(0)});
    }
    rows += asked.back().rows;
  }
  if (asked.empty())
    return;
  nextRows = allocate({rows}, builder.getI64Type());
  for (Value next : cast<chunk::YieldOp>(kernel.getBlock()->getTerminator()).getStates())
    if (!besidePrefetches)
      besidePrefetches = plan.product(next);
  stepsOfTiles = countStepsOfTiles();
  if (stepsOfTiles) {
    nextRow = allocate({1}, builder.getI64Type());
    memref::StoreOp::create(builder, builder.zero(builder.getI64Type()), nextRow, ValueRange{builder.index(0)});
  }
  int64_t first = 0;
  for (const Asked &part : asked) {
    builder.loop(0, part.rows, 1, [&](Value row) {
      Value address = builder.add(part.start, builder.multiply(row, part.stride));
      Value word = arith::IndexCastOp::create(builder, builder.getI64Type(), address);
      memref::StoreOp::create(builder, word, nextRows, ValueRange{builder.add(row, first)});
    });
    first += part.rows;
  }
}

void KernelLowering::prefetchShare() {
  // A row after the other, whole: what waits for the translation of an address is spread as far as it may be.
  int64_t rows = cast<MemRefType>(nextRows.getType()).getDimSize(0), share = llvm::divideCeil(rows, stepsOfTiles);
  Type word = builder.getI64Type(), index = builder.getIndexType();
  Value none = builder.index(0);
  Value row = memref::LoadOp::create(builder, nextRow, ValueRange{none});
  row = arith::IndexCastOp::create(builder, index, row);
  Value following = builder.minimum(builder.add(row, share), builder.index(rows));
  memref::StoreOp::create(builder, arith::IndexCastOp::create(builder, word, following), nextRow, ValueRange{none});
  builder.loop(row, following, 1, [&](Value asked) {
    Value start = memref::LoadOp::create(builder, nextRows, ValueRange{asked});
    Value memory = memoryAt(arith::IndexCastOp::create(builder, index, start), builder.getI8Type());
    for (int64_t line = 0; line < linesOfNextRows; ++line)
      builder.prefetch(memory, builder.index(line * cacheLine));
  });
}

void KernelLowering::prefetchBeside(Value step, int64_t steps) {
  // A row in so many parts that each step asks for one, or several rows where there are more of them than steps.
  int64_t rows = cast<MemRefType>(nextRows.getType()).getDimSize(0);
  int64_t parts = std::max<int64_t>(linesOfNextRows / llvm::divideCeil(rows * linesOfNextRows, steps), 1);
  int64_t lines = llvm::divideCeil(linesOfNextRows, parts), rowsOfStep = llvm::divideCeil(rows * parts, steps);
  for (int64_t i = 0; i < rowsOfStep; ++i) {
    Value part = builder.add(builder.multiply(step, rowsOfStep), i);
    Value row = builder.minimum(builder.divide(part, parts), builder.index(rows - 1));
    Value word = memref::LoadOp::create(builder, nextRows, ValueRange{row});
    Value start = arith::IndexCastOp::create(builder, builder.getIndexType(), word);
    Value memory = memoryAt(builder.add(start, builder.multiply(builder.remainder(part, parts), lines * cacheLine)),
                            builder.getI8Type());
    for (int64_t line = 0; line < lines; ++line)
      builder.prefetch(memory, builder.index(line * cacheLine));
  }
}
