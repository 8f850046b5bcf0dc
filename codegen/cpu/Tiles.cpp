//===- Tiles.cpp - Matrix products of tiles -------------------------------===//
//
// A block of the result is up to two by two tiles of sums, of which each step of 32 entries along the contracted axis
// has two tiles on the left and two on the right. These are whole: beyond the rows and columns of an operand lies what
// falls into sums that nobody reads, and beyond its pairs there are zeros (Pairs.cpp). So all tiles have one shape, and
// the processor is told so once in a function.
//
// No instruction takes numbers out of a tile but a store: the sums of a block go to memory that stays in the nearest
// cache, and are finished from there, a vector at a time.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

static constexpr int64_t tileRows = VectorBuilder::tileRows, tileWords = VectorBuilder::tileWords;
static constexpr int64_t blockRows = 2 * tileRows, blockColumns = 2 * tileWords;
/// Rows that are finished at a time.
static constexpr int64_t together = 4;

int64_t KernelLowering::countStepsOfTiles() {
  int64_t steps = 0;
  for (Operation &op : *kernel.getBlock()) {
    if (!plan.isOfTiles(&op) || plan.isInvariant(op.getResult(0)))
      continue;
    auto dot = dyn_cast<chunk::DotOp>(op);
    ArrayRef<int64_t> shape = shapeOf(op.getResult(0));
    int64_t blocks = llvm::divideCeil(shape[0], blockRows) * llvm::divideCeil(shape[1], blockColumns);
    int64_t ofBlock = llvm::divideCeil(shapeOf(op.getOperand(0))[dot && dot.getTransposeLeft() ? 0 : 1], 2 * tileWords);
    bool isAddend = plan.isFused(&op) && isa<chunk::DotOp>(*op.user_begin());
    if (!isAddend)
      ofBlock += blockRows / together;
    bool isHalf = isCausal(op.getResult(0)) || isCausal(op.getOperand(0));
    steps += blocks * ofBlock / (isHalf ? 2 : 1);
  }
  return steps;
}

void KernelLowering::computeRegionOfTiles(ArrayRef<Term> terms, int64_t fromRow, int64_t toRow, int64_t columns,
                                          Finish finish, Consumer consume) {
  int64_t rows = toRow - fromRow;
  int64_t wholeRows = fromRow + rows / blockRows * blockRows, wholeColumns = columns / blockColumns * blockColumns;
  // Rows inside of columns: the right operand is the larger one, and what of it the columns read stays near.
  auto computeColumns = [&](Value column, int64_t blockWidth) {
    auto computeRows = [&](Value row, int64_t count) {
      computeBlockOfTiles(terms, row, count, column, blockWidth, finish, consume);
    };
    builder.loop(fromRow, wholeRows, blockRows, [&](Value row) { computeRows(row, blockRows); });
    if (wholeRows < toRow)
      computeRows(builder.index(wholeRows), toRow - wholeRows);
  };
  builder.loop(0, wholeColumns, blockColumns, [&](Value column) { computeColumns(column, blockColumns); });
  if (wholeColumns < columns)
    computeColumns(builder.index(wholeColumns), columns - wholeColumns);
}

void KernelLowering::computeBlockOfTiles(ArrayRef<Term> terms, Value row, int64_t rows, Value column, int64_t columns,
                                         Finish finish, Consumer consume) {
  int64_t down = llvm::divideCeil(rows, tileRows), across = llvm::divideCeil(columns, tileWords);
  auto beside = [&] {
    if (stepsOfTiles)
      prefetchShare();
  };
  SmallVector<Value> sums;
  for (int64_t tile = 0; tile < down * across; ++tile)
    sums.push_back(builder.zeroTile());
  for (const Term &term : terms) {
    Value from = term.from, to = term.to;
    if (term.isLowerTriangle)
      to = builder.minimum(to, builder.divide(builder.add(row, rows + 2 * tileWords - 1), 2 * tileWords));
    if (term.isUpperTriangle)
      from = builder.divide(row, 2 * tileWords);
    sums = builder.sum(from, to, sums, [&](Value step, ValueRange carried) {
      beside();
      Value k = builder.multiply(step, tileWords);
      SmallVector<Value> right, next;
      for (int64_t j = 0; j < across; ++j)
        right.push_back(builder.loadTile(term.right, k, builder.add(column, j * tileWords)));
      for (int64_t i = 0; i < down; ++i) {
        Value left = builder.loadTile(term.left, builder.add(row, i * tileRows), k);
        for (int64_t j = 0; j < across; ++j)
          next.push_back(builder.dotTiles(left, right[j], carried[next.size()]));
      }
      return next;
    });
  }

  if (!sumsOfTiles)
    sumsOfTiles = allocate({blockRows, blockColumns}, builder.element);
  for (int64_t i = 0; i < down; ++i)
    for (int64_t j = 0; j < across; ++j)
      builder.storeTile(sums[i * across + j], sumsOfTiles, builder.index(i * tileRows), builder.index(j * tileWords));
  // Loads before stores, as the compiler cannot tell them apart.
  auto finishRows = [&](Value first, int64_t count) {
    beside();
    SmallVector<std::pair<Point, Value>> finished;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < columns; j += builder.width) {
        Value inBlock = builder.add(first, i);
        Point point = {builder.add(row, inBlock), builder.add(column, j), std::min(builder.width, columns - j)};
        finished.push_back({point, finish(point, builder.load(sumsOfTiles, {inBlock, builder.index(j)}))});
      }
    for (auto [point, entries] : finished)
      consume(point, entries);
  };
  int64_t whole = rows / together * together;
  builder.loop(0, whole, together, [&](Value first) { finishRows(first, together); });
  if (whole < rows)
    finishRows(builder.index(whole), rows - whole);
}
