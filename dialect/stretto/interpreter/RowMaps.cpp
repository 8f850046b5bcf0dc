//===- RowMaps.cpp - Operations on the rows of one token ------------------===//

#include "dialect/stretto/interpreter/Compiler.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace stretto;
using namespace stretto::interpreter;

static Instruction broadcast(Row x, Row y) {
  return [=](Frame &frame) {
    const double *px = frame.at(x);
    double *py = frame.at(y);
    for (int64_t h = 0; h < y.heads; ++h) {
      const double *source = px + meets(h, y.heads, x.heads) * x.width;
      for (int64_t d = 0; d < y.width; ++d)
        *py++ = source[x.width == 1 ? 0 : d];
    }
  };
}

static Instruction sumOverGroups(Row x, Row y) {
  return [=](Frame &frame) {
    const double *px = frame.at(x);
    double *py = frame.at(y);
    std::fill_n(py, y.size(), 0.0);
    for (int64_t h = 0; h < x.heads; ++h)
      for (int64_t d = 0; d < x.width; ++d)
        py[meets(h, x.heads, y.heads) * y.width + d] += *px++;
  };
}

/// The largest entry, or a NaN where there is one.
static double maximum(const double *x, int64_t width) {
  double result = -std::numeric_limits<double>::infinity();
  for (int64_t d = 0; d < width; ++d)
    if (x[d] > result || std::isnan(x[d]))
      result = x[d];
  return result;
}

static double sum(const double *x, int64_t width) {
  double result = 0;
  for (int64_t d = 0; d < width; ++d)
    result += x[d];
  return result;
}

static Instruction reduce(Reduction kind, Row x, Row y) {
  return [=](Frame &frame) {
    const double *px = frame.at(x);
    double *py = frame.at(y);
    for (int64_t h = 0; h < x.heads; ++h, px += x.width)
      py[h] = kind == Reduction::Max   ? maximum(px, x.width)
              : kind == Reduction::Sum ? sum(px, x.width)
                                       : sum(px, x.width) / static_cast<double>(x.width);
  };
}

static Instruction softmax(Row x, Row y) {
  return [=](Frame &frame) {
    const double *px = frame.at(x);
    double *py = frame.at(y);
    for (int64_t h = 0; h < x.heads; ++h, px += x.width, py += x.width) {
      double largest = maximum(px, x.width);
      if (largest == -std::numeric_limits<double>::infinity()) {
        std::fill_n(py, x.width, 0.0);
        continue;
      }
      for (int64_t d = 0; d < x.width; ++d)
        py[d] = std::exp(px[d] - largest);
      double total = sum(py, x.width);
      for (int64_t d = 0; d < x.width; ++d)
        py[d] /= total;
    }
  };
}

static Instruction concat(ArrayRef<Row> pieces, Row y) {
  return [pieces = SmallVector<Row>(pieces), y](Frame &frame) {
    double *py = frame.at(y);
    for (int64_t h = 0; h < y.heads; ++h)
      for (const Row &piece : pieces)
        py = std::copy_n(frame.at(piece) + h * piece.width, piece.width, py);
  };
}

static Instruction slice(int64_t offset, Row x, Row y) {
  return [=](Frame &frame) {
    const double *px = frame.at(x) + offset;
    double *py = frame.at(y);
    for (int64_t h = 0; h < y.heads; ++h)
      std::copy_n(px + h * x.width, y.width, py + h * y.width);
  };
}

/// `y_n = sum_m x_m W_mn` for each head, or with `transpose` `y_m = sum_n x_n W_mn`; the matrix has `inner` columns.
static Instruction multiply(Row x, Row matrix, Row y, int64_t inner, bool transpose) {
  return [=](Frame &frame) {
    const double *px = frame.at(x);
    double *py = frame.at(y);
    for (int64_t h = 0; h < y.heads; ++h, px += x.width, py += y.width) {
      const double *w = frame.at(matrix) + meets(h, y.heads, matrix.heads) * matrix.width;
      std::fill_n(py, y.width, 0.0);
      for (int64_t m = 0, rows = matrix.width / inner; m < rows; ++m)
        for (int64_t n = 0; n < inner; ++n)
          (transpose ? py[m] : py[n]) += px[transpose ? n : m] * w[m * inner + n];
    }
  };
}

static Instruction outer(Row a, Row b, Row y) {
  return [=](Frame &frame) {
    const double *pa = frame.at(a), *pb = frame.at(b);
    double *py = frame.at(y);
    for (int64_t h = 0; h < y.heads; ++h)
      for (int64_t i = 0; i < a.width; ++i)
        for (int64_t j = 0; j < b.width; ++j)
          *py++ = pa[h * a.width + i] * pb[h * b.width + j];
  };
}

static Instruction position(Row y) {
  return [=](Frame &frame) { *frame.at(y) = static_cast<double>(frame.start + frame.token); };
}

Instruction interpreter::compileRowMap(Operation *op, Row result, ArrayRef<Row> operands, const Sizes &sizes) {
  return TypeSwitch<Operation *, Instruction>(op)
      .Case([&](BroadcastOp) { return broadcast(operands[0], result); })
      .Case([&](GroupSumOp) { return sumOverGroups(operands[0], result); })
      .Case([&](ReduceOp reduction) { return reduce(reduction.getKind(), operands[0], result); })
      .Case([&](SoftmaxOp) { return softmax(operands[0], result); })
      .Case([&](ConcatOp) { return concat(operands, result); })
      .Case([&](SliceOp op) {
        int64_t offset = llvm::cantFail(sizes.extent(extentOf(op.getOffset()))).value();
        return slice(offset, operands[0], result);
      })
      // An inner product is a row times a matrix of one column.
      .Case([&](DotOp) { return multiply(operands[0], operands[1], result, 1, /*transpose=*/false); })
      .Case([&](OuterOp) { return outer(operands[0], operands[1], result); })
      // The flattened matrix is [result, row], so that y_a = sum_b z_ab x_b contracts its columns.
      .Case([&](InnerOp op) {
        int64_t inner = op.getTranspose() ? result.width : operands[1].width;
        return multiply(operands[1], operands[0], result, inner, !op.getTranspose());
      })
      .Case([&](ContractOp op) {
        int64_t inner = op.getTranspose() ? operands[0].width : result.width;
        return multiply(operands[0], operands[1], result, inner, op.getTranspose());
      })
      .Case([&](PositionOp) { return position(result); })
      .Default(Instruction());
}
