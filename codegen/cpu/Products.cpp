//===- Products.cpp - Register-blocked matrix products --------------------===//
//
// A block of the result, some rows by some vectors of columns, is summed in registers: for each k, an entry of the left
// operand in all lanes times a vector of the right operand, or a pair of entries times a vector of pairs. Every product
// of a sum and the addend go through the same registers, and so does the chain of pointwise operations behind it, whose
// last value is stored.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

namespace {
/// The shape of a block: rows by vectors.
struct BlockShape {
  int64_t rows, vectors;
};
} // namespace

/// The fastest block for a region. A step of k of r rows by v vectors issues r * v multiplications, of which each sum
/// waits for its own predecessor, and r + v loads.
static BlockShape chooseBlock(int64_t rows, int64_t vectors, int64_t registers) {
  constexpr int64_t mostVectors = 4, mostRows = 16, latency = 8;
  auto cost = [&](int64_t blockRows, int64_t blockVectors) {
    double step = std::max<double>(blockRows * blockVectors, latency);
    return step + 0.25 * (blockRows + blockVectors);
  };
  BlockShape best = {1, 1};
  double bestCost = std::numeric_limits<double>::max();
  for (int64_t v = 1; v <= std::min(vectors, mostVectors); ++v)
    for (int64_t r = 1; r <= std::min(rows, mostRows); ++r) {
      if (r * v + v + 1 > registers)
        break;
      auto times = [](int64_t count, double each) { return static_cast<double>(count) * each; };
      int64_t fullRows = rows / r, fullVectors = vectors / v, restRows = rows % r, restVectors = vectors % v;
      double total = times(fullRows * fullVectors, cost(r, v));
      total += restRows ? times(fullVectors, cost(restRows, v)) : 0;
      total += restVectors ? times(fullRows, cost(r, restVectors)) : 0;
      total += restRows && restVectors ? cost(restRows, restVectors) : 0;
      if (total < bestCost) {
        bestCost = total;
        best = {r, v};
      }
    }
  return best;
}

KernelLowering::Term KernelLowering::termOf(Operation *product, Value left, bool transposeLeft, Value right,
                                            bool transposeRight) {
  Storage leftStorage = storage.lookup(left), rightStorage = storage.lookup(right);
  Term term;
  term.depth = shapeOf(right)[transposeRight ? 1 : 0];
  if (plan.isOfTiles(product)) {
    term.inTiles = true;
    term.depth = llvm::divideCeil(term.depth, 2 * VectorBuilder::tileWords);
    term.left = transposeLeft ? leftStorage.transposedRowPairs : leftStorage.columnPairs;
    term.right = transposeRight ? rightStorage.transposedPairs : rightStorage.rowPairs;
  } else if (plan.isOfPairs(product)) {
    term.inPairs = true;
    term.depth = llvm::divideCeil(term.depth, 2);
    term.left = transposeLeft ? leftStorage.rowPairs : leftStorage.columnPairs;
    term.leftByColumns = transposeLeft;
    term.right = transposeRight ? rightStorage.transposedPairs : rightStorage.rowPairs;
  } else {
    term.left = leftStorage.rows ? leftStorage.rows : leftStorage.transposed;
    term.leftByColumns = transposeLeft != !leftStorage.rows;
    term.right = transposeRight ? rightStorage.transposed : rightStorage.rows;
  }
  term.from = builder.index(0);
  term.to = builder.index(term.depth);
  (transposeLeft ? term.isUpperTriangle : term.isLowerTriangle) = isCausal(left);
  assert(term.left && term.right && "the plan stores a product's operands");
  return term;
}

void KernelLowering::computeProduct(Operation *product, Value root, Consumer consume) {
  SmallVector<Term> terms;
  Value addend, result = product->getResult(0);
  auto decayed = dyn_cast<chunk::DecayDotOp>(product);
  if (decayed) {
    terms.push_back(termOf(product, decayed.getQuery(), false, decayed.getKey(), true));
  } else {
    auto dot = cast<chunk::DotOp>(product);
    while (true) {
      terms.push_back(termOf(dot, dot.getLeft(), dot.getTransposeLeft(), dot.getRight(), dot.getTransposeRight()));
      addend = dot.getAddend();
      auto inner = addend ? addend.getDefiningOp<chunk::DotOp>() : nullptr;
      if (!inner || !plan.isFused(inner))
        break;
      dot = inner;
    }
  }

  auto finish = [&](Point point, Value sums) {
    known.clear();
    if (decayed)
      sums = decayPairs(decayed, point, sums);
    if (addend)
      sums = addTo(sums, addend, point);
    known[{result, point.row, point.column}] = sums;
    return evaluate(root, point);
  };

  bool inTiles = terms.front().inTiles;
  llvm::SaveAndRestore asking(prefetches, product == besidePrefetches);
  auto computePart = [&](int64_t fromRow, int64_t toRow, int64_t columns) {
    inTiles ? computeRegionOfTiles(terms, fromRow, toRow, columns, finish, consume)
            : computeRegion(terms, fromRow, toRow, columns, finish, consume);
  };
  int64_t rows = shapeOf(root)[0], columns = shapeOf(root)[1], blockRows = (inTiles ? 2 : 1) * builder.width;
  if (!isCausal(root))
    return computePart(0, rows, columns);
  // Of a causal result, only the blocks up to the diagonal; zeros behind them.
  for (int64_t row = 0; row < rows; row += blockRows) {
    int64_t end = std::min(rows, row + blockRows), filled = std::min(columns, end);
    computePart(row, end, filled);
    fillWithZeros(row, end, padded(filled), columns, consume);
  }
}

void KernelLowering::fillWithZeros(int64_t fromRow, int64_t toRow, int64_t fromColumn, int64_t columns,
                                   Consumer consume) {
  if (fromColumn >= columns)
    return;
  builder.loop(fromRow, toRow, 1, [&](Value row) {
    for (int64_t column = fromColumn; column < columns; column += builder.width)
      consume({row, builder.index(column), std::min(builder.width, columns - column)}, builder.splat(0.0));
  });
}

void KernelLowering::computeRegion(ArrayRef<Term> terms, int64_t fromRow, int64_t toRow, int64_t columns, Finish finish,
                                   Consumer consume) {
  int64_t width = builder.width, rows = toRow - fromRow, wholeVectors = columns / width, rest = columns % width;
  BlockShape shape = chooseBlock(rows, wholeVectors + (rest ? 1 : 0), machine.registers);
  int64_t wholeRows = fromRow + rows / shape.rows * shape.rows;
  int64_t panels = wholeVectors / shape.vectors, panelWidth = shape.vectors * width;
  int64_t blocks = llvm::divideCeil(rows, shape.rows), depth = 0;
  for (const Term &term : terms)
    depth += term.depth;
  auto computePanel = [&](Value column, ArrayRef<int64_t> lanes) {
    auto computeRows = [&](Value row, int64_t count) {
      Value panel = builder.divide(column, panelWidth);
      Value block = builder.divide(builder.subtract(row, builder.index(fromRow)), shape.rows);
      Value firstStep = builder.multiply(builder.add(builder.multiply(panel, blocks), block), depth);
      auto beside = [&](Value step) {
        if (prefetches)
          prefetchBeside(builder.add(firstStep, step), llvm::divideCeil(columns, panelWidth) * blocks * depth);
      };
      computeBlock(terms, row, count, column, lanes, beside, finish, consume);
    };
    builder.loop(fromRow, wholeRows, shape.rows, [&](Value row) { computeRows(row, shape.rows); });
    if (wholeRows < toRow)
      computeRows(builder.index(wholeRows), toRow - wholeRows);
  };
  SmallVector<int64_t> lanes(shape.vectors, width);
  builder.loop(0, panels * panelWidth, panelWidth, [&](Value column) { computePanel(column, lanes); });
  lanes.assign(wholeVectors % shape.vectors, width);
  if (rest)
    lanes.push_back(rest);
  if (!lanes.empty())
    computePanel(builder.index(panels * panelWidth), lanes);
}

void KernelLowering::computeBlock(ArrayRef<Term> terms, Value row, int64_t rows, Value column, ArrayRef<int64_t> lanes,
                                  llvm::function_ref<void(Value)> beside, Finish finish, Consumer consume) {
  SmallVector<Point> points;
  for (int64_t r = 0; r < rows; ++r)
    for (auto [v, count] : llvm::enumerate(lanes))
      points.push_back({builder.add(row, r), builder.add(column, v * builder.width), count});
  SmallVector<Value> sums(points.size(), builder.splat(0.0));

  int64_t stepsBefore = 0;
  for (const Term &term : terms) {
    Value from = term.from, to = term.to;
    if (term.isLowerTriangle) {
      Value end = builder.add(row, rows);
      to = builder.minimum(to, term.inPairs ? builder.half(builder.add(end, 1)) : end);
    }
    if (term.isUpperTriangle)
      from = term.inPairs ? builder.half(row) : row;
    sums = builder.sum(from, to, sums, [&](Value k, ValueRange carried) {
      SmallVector<Value> right, next;
      beside(builder.add(k, stepsBefore));
      for (size_t v = 0; v < lanes.size(); ++v)
        right.push_back(builder.load(term.right, {k, points[v].column}));
      for (int64_t r = 0; r < rows; ++r) {
        Value i = points[r * lanes.size()].row;
        Value left = term.leftByColumns ? builder.loadSplat(term.left, {k, i}) : builder.loadSplat(term.left, {i, k});
        for (size_t v = 0; v < lanes.size(); ++v)
          next.push_back(term.inPairs ? builder.dotPairs(left, right[v], carried[next.size()])
                                      : vector::FMAOp::create(builder, left, right[v], carried[next.size()]));
      }
      return next;
    });
    stepsBefore += term.depth;
  }
  // Loads before stores, as the compiler cannot tell them apart; a few vectors at a time, as all would not fit into the
  // registers beside the sums.
  constexpr size_t together = 8;
  for (size_t from = 0; from < points.size(); from += together) {
    size_t to = std::min(points.size(), from + together);
    for (size_t i = from; i < to; ++i)
      sums[i] = finish(points[i], sums[i]);
    for (size_t i = from; i < to; ++i)
      consume(points[i], sums[i]);
  }
}

Value KernelLowering::addTo(Value sums, Value addend, Point point) {
  auto decayed = addend.getDefiningOp<chunk::DecayStateOp>();
  if (decayed && !plan.orders(addend).any())
    return addDecayedTo(sums, decayed, point);
  return arith::AddFOp::create(builder, evaluate(addend, point), sums);
}
