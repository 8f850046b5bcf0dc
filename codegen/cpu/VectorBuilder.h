//===- VectorBuilder.h - Building vector code -------------------*- C++ -*-===//
//
// A builder for code on vectors of one element type and width: the compute type of a kernel and the width of the
// host's registers. Memory may hold another floating-point type; loads and stores convert.
//
// A `lanes` argument says how many leading lanes of a vector exist. Memory beyond them is neither read nor written;
// the other lanes hold no particular number.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_CODEGEN_CPU_VECTORBUILDER_H
#define STRETTO_CODEGEN_CPU_VECTORBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace stretto::cpu {

class VectorBuilder : public mlir::ImplicitLocOpBuilder {
public:
  VectorBuilder(mlir::Location location, mlir::FloatType element, int64_t width)
      : ImplicitLocOpBuilder(location, location.getContext()), element(element), width(width) {}

  /// The compute type, and how many of it a register holds.
  const mlir::FloatType element;
  const int64_t width;

  mlir::VectorType vectorType() { return mlir::VectorType::get(width, element); }
  mlir::VectorType maskType() { return mlir::VectorType::get(width, getI1Type()); }
  /// A pair of bf16 numbers, as an integer; a register of them.
  mlir::Type wordType() { return getI32Type(); }
  mlir::VectorType wordsType() { return mlir::VectorType::get(width, wordType()); }

  // Numbers.
  mlir::Value index(int64_t value);
  mlir::Value add(mlir::Value left, mlir::Value right);
  mlir::Value add(mlir::Value left, int64_t right) { return add(left, index(right)); }
  mlir::Value subtract(mlir::Value left, mlir::Value right);
  mlir::Value multiply(mlir::Value left, mlir::Value right);
  mlir::Value multiply(mlir::Value left, int64_t right) { return multiply(left, index(right)); }
  mlir::Value minimum(mlir::Value left, mlir::Value right);
  /// The quotient, rounded down, of a number that is not negative, and what is left.
  mlir::Value divide(mlir::Value value, int64_t divisor);
  mlir::Value remainder(mlir::Value value, int64_t divisor);
  mlir::Value half(mlir::Value value) { return divide(value, 2); }
  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value left, mlir::Value right);

  // Vectors.
  mlir::Value splat(double value);
  mlir::Value splat(mlir::Value scalar);
  mlir::Value zero(mlir::Type type);
  mlir::Value mul(mlir::Value left, mlir::Value right);
  /// The lanes before `count`, which may be negative or exceed the width.
  mlir::Value lanesBefore(mlir::Value count);
  mlir::Value firstLanes(int64_t count);
  /// `value` in the lanes of `mask`, 0 elsewhere.
  mlir::Value selectOrZero(mlir::Value mask, mlir::Value value);
  /// Rows to columns: `width` vectors become `width` vectors.
  void transpose(llvm::MutableArrayRef<mlir::Value> vectors);
  /// `width` vectors, the lanes of vector i combined in lane i.
  using Combine = llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)>;
  mlir::Value reduceLanes(llvm::ArrayRef<mlir::Value> vectors, Combine combine);
  /// Any number as the compute type, scalar or vector, and back.
  mlir::Value toComputeType(mlir::Value value);
  mlir::Value fromComputeType(mlir::Value value, mlir::Type elementType);

  // Pairs of bf16 numbers.
  /// In each lane, the first number and the second.
  mlir::Value pairLanes(mlir::Value first, mlir::Value second);
  /// Neighbouring lanes of two vectors behind each other.
  mlir::Value pairNeighbours(mlir::Value low, mlir::Value high);
  /// Stores the neighbouring lanes of one vector, as half as many words.
  void storeNeighbours(mlir::Value vector, mlir::Value memory, mlir::ValueRange indices);
  /// Sums and, in each lane, the products of first with first and second with second number.
  mlir::Value dotPairs(mlir::Value leftWords, mlir::Value rightWords, mlir::Value sums);

  // Tiles: registers of 16 rows of 16 words, which are pairs of bf16 numbers or sums in fp32. Nothing but products,
  // loads and stores has them as operands.
  static constexpr int64_t tileRows = 16, tileWords = 16;
  mlir::Type tileType();
  mlir::Value zeroTile();
  /// The rows from `row` on, of each the words from `column` on, of a matrix of words or of fp32 numbers.
  mlir::Value loadTile(mlir::Value memory, mlir::Value row, mlir::Value column);
  void storeTile(mlir::Value tile, mlir::Value memory, mlir::Value row, mlir::Value column);
  /// Sums (i, j) and the products of both numbers of the words (i, p) on the left and (p, j) on the right, for all p.
  mlir::Value dotTiles(mlir::Value leftWords, mlir::Value rightWords, mlir::Value sums);

  // Memory.
  mlir::Value load(mlir::Value memory, mlir::ValueRange indices, int64_t lanes);
  mlir::Value load(mlir::Value memory, mlir::ValueRange indices) { return load(memory, indices, width); }
  void store(mlir::Value vector, mlir::Value memory, mlir::ValueRange indices, int64_t lanes);
  void store(mlir::Value vector, mlir::Value memory, mlir::ValueRange indices) {
    store(vector, memory, indices, width);
  }
  mlir::Value loadScalar(mlir::Value memory, mlir::ValueRange indices);
  void storeScalar(mlir::Value scalar, mlir::Value memory, mlir::ValueRange indices);
  /// One entry of memory in every lane.
  mlir::Value loadSplat(mlir::Value memory, mlir::ValueRange indices) { return splat(loadScalar(memory, indices)); }
  /// Asks for an entry to be brought near, but not nearest: there what is computed with has its place.
  void prefetch(mlir::Value memory, mlir::Value index);

  // Loops. A loop whose bounds are known and hold one step is that step.
  using Body = llvm::function_ref<void(mlir::Value)>;
  using CarryingBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)>;
  void loop(mlir::Value from, mlir::Value to, int64_t step, Body body);
  void loop(int64_t from, int64_t to, int64_t step, Body body);
  llvm::SmallVector<mlir::Value> loop(mlir::Value from, mlir::Value to, mlir::ValueRange carried, CarryingBody body);
  llvm::SmallVector<mlir::Value> loop(mlir::Value from, mlir::Value to, int64_t step, mlir::ValueRange carried,
                                      CarryingBody body);
  /// A loop over the terms of products, whose addresses lie at distances that are no constants: LLVM makes a running
  /// number of each, as suits few of them.
  llvm::SmallVector<mlir::Value> sum(mlir::Value from, mlir::Value to, mlir::ValueRange carried, CarryingBody body,
                                     int64_t step = 1);
  /// Walks [from, to) for as long as the body says that there is more.
  void loopWhile(mlir::Value from, mlir::Value to, int64_t step, llvm::function_ref<mlir::Value(mlir::Value)> body);
  /// Walks [0, count) by whole vectors, and then by the lanes that are left. A short walk is written out.
  void loopOverVectors(int64_t count, llvm::function_ref<void(mlir::Value column, int64_t lanes)> body);
  /// Walks [0, count), whole vectors, and carries numbers; a short walk is written out.
  void loopOverWhole(int64_t count, llvm::SmallVectorImpl<mlir::Value> &carried, CarryingBody body);
  void ifTrue(mlir::Value condition, llvm::function_ref<void()> then);
};

} // namespace stretto::cpu

#endif // STRETTO_CODEGEN_CPU_VECTORBUILDER_H
