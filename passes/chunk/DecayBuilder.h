//===- DecayBuilder.h - Products of decay factors ---------------*- C++ -*-===//
#ifndef STRETTO_PASSES_CHUNK_DECAYBUILDER_H
#define STRETTO_PASSES_CHUNK_DECAYBUILDER_H

#include "dialect/chunk/ChunkDialect.h"
#include "dialect/kernel/Layout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/chunk/InputType.h"
#include "llvm/Support/MathExtras.h"

namespace stretto {

/// What products of decay factors are made of, before an operation of a kernel.
class DecayBuilder {
public:
  /// Of a kernel whose warpgroups, if it has any, have so many warps.
  DecayBuilder(chunk::KernelOp kernel, mlir::Operation *op, int64_t warps)
      : builder(op->getLoc(), op), tokens(kernel.getChunk()), operandType(inputTypeOf(kernel)),
        isReverse(kernel.getReverse()), keepsStates(leavesCheckpoints(kernel)), warps(warps),
        multipliesRests(hasRests(kernel)), hasRoomForHalves(multipliesRests) {}

  /// Whether products of a kernel have what rounding takes of their operands.
  static bool hasRests(chunk::KernelOp kernel) {
    return inputTypeOf(kernel).isBF16() && kernel.getChunk() > 1 && isOfOneRecurrence(kernel);
  }

  static mlir::RankedTensorType tileTypeOf(mlir::Value value) {
    return mlir::cast<mlir::RankedTensorType>(value.getType());
  }

  /// Rows, and a positive number that they are times.
  struct ScaledRows {
    mlir::Value rows;
    double factor = 1;
  };
  static ScaledRows scaledRows(mlir::Value rows);

  /// Numbers of fewer bits, where they were widened.
  static mlir::Value asTheyCame(mlir::Value numbers);

protected:
  //===--------------------------------------------------------------------===//
  // Arithmetic
  //===--------------------------------------------------------------------===//

  mlir::Value mul(mlir::Value a, mlir::Value b) { return mlir::arith::MulFOp::create(builder, a, b); }
  mlir::Value add(mlir::Value a, mlir::Value b) { return mlir::arith::AddFOp::create(builder, a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return mlir::arith::SubFOp::create(builder, a, b); }
  mlir::Value exp(mlir::Value a) { return mlir::math::ExpOp::create(builder, a); }
  mlir::Value exp2(mlir::Value a) { return mlir::math::Exp2Op::create(builder, a); }
  mlir::Value rowOf(mlir::Value tile, int64_t at) {
    mlir::RankedTensorType type = tileTypeOf(tile);
    return chunk::RowOp::create(builder, type.clone(type.getShape().drop_front()), tile, at);
  }
  mlir::Value repeat(mlir::Value value, mlir::RankedTensorType type, chunk::Side along) {
    return value.getType() == type ? value : chunk::BroadcastOp::create(builder, type, value, along).getResult();
  }
  mlir::Value causal(mlir::Value tile, bool strict) {
    return chunk::CausalOp::create(builder, tile.getType(), tile, strict);
  }

  mlir::Value accumulate(chunk::DecayForm form, mlir::Value amount, bool reverse, bool exclusive);
  /// Whether numbers are among those of products' operands as they are: what an input of that type is widened to, and
  /// the larger of that and of such a constant.
  bool isOfOperands(mlir::Value numbers);
  /// Whether lanes of one warp have all tokens of a channel, and sum over these without meeting others: in walks of
  /// gradients, of which products leave tiles of few tokens so.
  bool tokensAreInLanes(mlir::RankedTensorType tile) {
    return (isReverse || keepsStates) && warps > 0 && operandType.getIntOrFloatBitWidth() == 16 &&
           tile.getRank() == 2 && kernel::liesAcross(kernel::warpgroupLayout(tile.getShape(), warps));
  }
  /// Whether matrix instructions take fewer turns for sums over tokens than threads that pass sums to each other.
  bool gainsFromProduct(mlir::Value numbers);
  /// Sums over earlier tokens, or in reverse over later ones: the product of ones in a triangle and of the numbers,
  /// which are finite, so that zeros leave them out. Numbers that operands do not hold are two of them, whose sum has
  /// twice the bits: of 16 a relative error of 2^-17.
  mlir::Value sumsByProduct(mlir::Value numbers, bool reverse, bool exclusive);
  /// The factor of each token since the start of the chunk, or until its end. Sums are of one sign: nothing cancels.
  mlir::Value decays(chunk::DecayForm form, mlir::Value amount, bool reverse, bool exclusive);
  /// The amounts of the tokens behind each one together, as threads accumulate them that walk down columns; and of all
  /// tokens, of which these know, too.
  mlir::Value ofLater(chunk::DecayForm form, mlir::Value amount);
  mlir::Value ofAllTokens(mlir::Value accumulated);
  /// What has been accumulated up to the last token.
  mlir::Value lastOf(mlir::Value accumulated);
  /// Logarithms of factors. Those that fp32 does not have count as one that underflows, so that there are differences.
  mlir::Value floored(mlir::Value amount);
  mlir::Value toBaseTwo(mlir::Value logs) { return mul(logs, splat(logs, llvm::numbers::log2e)); }
  mlir::Value binaryLogs(mlir::Value amount) { return toBaseTwo(floored(amount)); }
  mlir::Value sumsOfLogs(mlir::Value amount) {
    return accumulate(chunk::DecayForm::Log, floored(amount), /*reverse=*/false, /*exclusive=*/false);
  }
  mlir::Value binarySums(mlir::Value amount) { return toBaseTwo(sumsOfLogs(amount)); }
  mlir::Value times(mlir::Value tile, double factor) { return factor == 1 ? tile : mul(tile, splat(tile, factor)); }

  mlir::Value splat(mlir::Value like, double number);
  mlir::Value zeros(mlir::Type type);
  mlir::Value indexOf(int64_t number) { return mlir::arith::ConstantIndexOp::create(builder, number); }
  /// Sums of these over the tokens of the chunk, of which all factors are made, as differences. Their rounding is a
  /// relative error of a factor of 2^-24 of the largest sum: operands of 16 bits do not show it, those of fp32 would.
  mlir::Value sumsOfTokens(chunk::DecayForm form, mlir::Value amount);
  mlir::Value scaleRows(mlir::Value rows, mlir::Value factors) {
    return mul(rows, repeat(factors, tileTypeOf(rows), chunk::Side::Rows));
  }
  /// How large a factor, or its inverse, may become.
  double factorLimit();
  double operandLimit();

  /// The decay between a later token and an earlier one is a product of the later one's `up` and the earlier one's
  /// `down`: from the middle of the chunk to the later token, and from the earlier one to the middle.
  struct AroundMiddle {
    mlir::Value up, down;
  };
  AroundMiddle aroundMiddle(chunk::DecayForm form, mlir::Value amount, bool before);

  //===--------------------------------------------------------------------===//
  // Pairs by halves
  //
  // Two tokens meet in the smallest block of 1, 2, 4, ... tokens that has both. Their decay is that of either from the
  // middle of this block, which is no larger than 1: no range is asked for. All pairs that meet in blocks of one size
  // come from one product, and those of small blocks where they can from one for all sizes. The products are alike but
  // for the size: a loop forms them, so that there is code for one.
  //===--------------------------------------------------------------------===//

  /// Tokens of blocks in which rows are rescaled around the middle where the range of factors allows it.
  static constexpr int64_t rescaledTokens = 8;

  /// What decays, and binary logarithms of what has decayed up to each token; whether a token reads before its own
  /// decay, and whether tokens of a small block are near, if that is known.
  struct Decayed {
    mlir::Value amount, sums;
    bool before;
    mlir::Value areNear;
  };
  /// What is known of the logarithms of decays where products of rows are formed exactly: their sums, and whether
  /// tokens of a small block are near; null where it is not.
  struct KnownLogs {
    mlir::Value sums, areNear;
  };

  /// Whether products of whole tiles, one for each size of blocks, cost less than walking from token to token.
  bool gainsFromHalves(chunk::DecayForm form) {
    return hasRoomForHalves && form == chunk::DecayForm::Log && tokens >= 32 && llvm::isPowerOf2_64(tokens);
  }
  /// Logarithms of which nothing is known are summed up anew, so that neither they nor sums of them are kept for that.
  Decayed decayOf(mlir::Value amount, bool before, const KnownLogs &known = {});
  /// A tile that begins with zeros and goes on with each of so many sizes, from that of the chunk on.
  mlir::Value overSizes(mlir::Value sizes, mlir::Type type,
                        llvm::function_ref<mlir::Value(mlir::Value tile, mlir::Value halved)> next);
  /// Of blocks of a chunk that has been halved so many times.
  mlir::Value joinHalves(mlir::Value second, mlir::Value first, mlir::Value halved);
  /// The decay between each token and the middle of its block.
  mlir::Value toMiddle(const Decayed &decayed, mlir::Value halved);
  /// The rows of products by halves: without constant factors, and as they came, where both did alike.
  struct RowsOfHalves {
    ScaledRows queries, keys;
    mlir::Value second, first;
  };
  RowsOfHalves rowsOfHalves(mlir::Value query, mlir::Value key);
  /// Whether the tokens of each small block are so near that one product of rows around its middle has all pairs, and
  /// no logarithm is one that is cut (chunk::noFactor).
  mlir::Value areNear(mlir::Value amount, const RowsOfHalves &rows);
  /// `y_ij = sum_d q_id k_jd 2^(b_i - b_j)`
  mlir::Value dotByHalves(mlir::Value query, mlir::Value key, const Decayed &decayed);
  /// Of the pairs of different tokens `y_id = sum_j w_ij x_jd 2^(b_i - b_j)`, or of the weights transposed
  /// `y_jd = sum_i w_ij x_id 2^(b_i - b_j)`, of rows as operands are rounded.
  mlir::Value sumsByHalves(mlir::Value weights, mlir::Value rows, bool transpose, const Decayed &decayed);
  /// What a token weighs its own row with, times that row.
  mlir::Value ofItself(mlir::Value weights, mlir::Value rows);

  //===--------------------------------------------------------------------===//
  // Choices
  //===--------------------------------------------------------------------===//

  /// A plain form where `inRange`, and otherwise an exact one; without a condition the plain form alone.
  llvm::SmallVector<mlir::Value> choose(mlir::Value inRange, mlir::TypeRange types,
                                        llvm::function_ref<llvm::SmallVector<mlir::Value>()> plain,
                                        llvm::function_ref<llvm::SmallVector<mlir::Value>()> exact);
  mlir::Value choose(mlir::Value inRange, mlir::Type type, llvm::function_ref<mlir::Value()> plain,
                     llvm::function_ref<mlir::Value()> exact);
  /// A plain form where `inRange`, and otherwise the operation itself, exactly.
  mlir::Value choose(mlir::Value inRange, mlir::Operation *op, llvm::function_ref<mlir::Value()> plain);
  mlir::Value exactly(mlir::Operation *op);
  /// The products of rows where no range is asked for.
  mlir::Value exactly(chunk::DecayDotOp scores, const KnownLogs &known);
  mlir::Value exactTotal(chunk::DecayTotalsOp op, mlir::Value weights, bool ofKeys);

  /// Rows as operands of products are rounded, in the type of sums.
  mlir::Value rounded(mlir::Value rows);
  mlir::Value widened(mlir::Value rows, mlir::Type element);
  /// Numbers of memory, of which nothing is the same as what is made of them elsewhere.
  mlir::Value again(mlir::Value numbers);

  //===--------------------------------------------------------------------===//
  // Rests
  //
  // Rows that are rescaled have more bits than operands. Of the 8 of bf16 each operand of a product would be off by a
  // relative 2^-9, twice of what rounding a result to bf16 takes. What rounding takes of an operand is multiplied, too.
  //===--------------------------------------------------------------------===//

  /// Numbers that products multiply, and the two parts that these have of them: as operands are rounded, and what
  /// rounding takes; null where nothing is asked for.
  struct Operand {
    mlir::Value whole, rounded, rest;
  };
  Operand operandOf(mlir::Value whole);
  /// A product of all that operands have, but for that of both rests, which is as small as what fp32 leaves out.
  mlir::Value product(const Operand &left, const Operand &right, mlir::Type type, mlir::Value addend,
                      bool transposeLeft, bool transposeRight);
  /// Rows times a sum of others, which is scaled as the rows are: of the parts that products have of the rows, so that
  /// what is in both of two totals cancels.
  mlir::Value totalOf(mlir::Value unscaled, const Operand &rows, mlir::Value sum, mlir::Value scaledSum) {
    return multipliesRests ? mul(unscaled, scaledSum) : mul(rows.rounded, sum);
  }
  /// `q k^T`. In an output the rests of its weights and of the keys are most of what rounding takes; a gradient has
  /// those of the queries, too.
  mlir::Value scoresOf(Operand query, const Operand &key, mlir::Type type);
  /// Has products whose left operand is a tile multiply both of its parts.
  void multiplyBothParts(mlir::Value whole, std::optional<Operand> known = std::nullopt);

  mlir::ImplicitLocOpBuilder builder;
  int64_t tokens;
  mlir::Type operandType;
  bool isReverse, keepsStates;
  int64_t warps;
  /// Of fp16, which has 11 bits, no rests are multiplied.
  bool multipliesRests;
  /// Whether registers suffice for what products by halves are made of: not, as a rule, where no rests are multiplied,
  /// beside systems of equations or other recurrences, where chunks would have fewer tokens for it.
  bool hasRoomForHalves;

private:
  /// Whether a kernel has no more than one recurrence, and solves no systems of equations: what several have in common,
  /// as the softmax between those of slots, or what solves systems, is off by more than what rounding takes.
  static bool isOfOneRecurrence(chunk::KernelOp kernel);
  static bool leavesCheckpoints(chunk::KernelOp kernel) {
    return llvm::any_of(kernel.getOutputs().getAsRange<chunk::OutputAttr>(),
                        [](chunk::OutputAttr output) { return output.getCheckpoint(); });
  }
};

} // namespace stretto

#endif // STRETTO_PASSES_CHUNK_DECAYBUILDER_H
