//===- VectorBuilder.cpp - Building vector code ---------------------------===//

#include "codegen/cpu/VectorBuilder.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"

using namespace mlir;
using namespace stretto::cpu;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value VectorBuilder::index(int64_t value) { return arith::ConstantIndexOp::create(*this, value); }
Value VectorBuilder::add(Value left, Value right) { return createOrFold<arith::AddIOp>(left, right); }
Value VectorBuilder::subtract(Value left, Value right) { return createOrFold<arith::SubIOp>(left, right); }
Value VectorBuilder::multiply(Value left, Value right) { return createOrFold<arith::MulIOp>(left, right); }
Value VectorBuilder::minimum(Value left, Value right) { return createOrFold<arith::MinSIOp>(left, right); }
Value VectorBuilder::divide(Value value, int64_t divisor) {
  return createOrFold<arith::DivUIOp>(value, index(divisor));
}
Value VectorBuilder::remainder(Value value, int64_t divisor) {
  return createOrFold<arith::RemUIOp>(value, index(divisor));
}

Value VectorBuilder::compare(arith::CmpIPredicate predicate, Value left, Value right) {
  return createOrFold<arith::CmpIOp>(predicate, left, right);
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

Value VectorBuilder::splat(double value) {
  return arith::ConstantOp::create(*this, DenseElementsAttr::get(vectorType(), getFloatAttr(element, value)));
}

Value VectorBuilder::splat(Value scalar) {
  return vector::BroadcastOp::create(*this, VectorType::get(width, scalar.getType()), scalar);
}

Value VectorBuilder::zero(Type type) { return arith::ConstantOp::create(*this, getZeroAttr(type)); }

Value VectorBuilder::mul(Value left, Value right) { return arith::MulFOp::create(*this, left, right); }

Value VectorBuilder::lanesBefore(Value count) { return vector::CreateMaskOp::create(*this, maskType(), count); }

Value VectorBuilder::firstLanes(int64_t count) {
  return vector::ConstantMaskOp::create(*this, maskType(), ArrayRef<int64_t>{count});
}

Value VectorBuilder::selectOrZero(Value mask, Value value) {
  return arith::SelectOp::create(*this, mask, value, splat(0.0));
}

void VectorBuilder::transpose(MutableArrayRef<Value> vectors) {
  // A stage exchanges, between rows h apart, the halves of every block of 2h lanes.
  SmallVector<int64_t> low(width), high(width);
  for (int64_t half = width / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) {
      bool second = lane & half;
      low[lane] = second ? width + lane - half : lane;
      high[lane] = second ? width + lane : lane + half;
    }
    for (int64_t row = 0; row < width; ++row) {
      if (row & half)
        continue;
      Value upper = vectors[row], lower = vectors[row + half];
      vectors[row] = vector::ShuffleOp::create(*this, upper, lower, low);
      vectors[row + half] = vector::ShuffleOp::create(*this, upper, lower, high);
    }
  }
}

Value VectorBuilder::reduceLanes(ArrayRef<Value> vectors, Combine combine) {
  // A stage combines the halves of every block of 2h lanes, and puts two vectors' results into one: that of the first
  // into the first half of each block.
  SmallVector<Value> results(vectors);
  SmallVector<int64_t> low(width), high(width);
  for (int64_t half = width / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) {
      int64_t start = lane & half ? width + lane - half : lane;
      low[lane] = start;
      high[lane] = start + half;
    }
    for (int64_t row = 0; row < half; ++row) {
      Value first = vector::ShuffleOp::create(*this, results[row], results[row + half], low);
      Value second = vector::ShuffleOp::create(*this, results[row], results[row + half], high);
      results[row] = combine(first, second);
    }
  }
  return results[0];
}

/// A floating-point number, scalar or vector, as one of another element type.
static Value convert(VectorBuilder &builder, Value value, Type elementType) {
  Type from = getElementTypeOrSelf(value.getType());
  if (from == elementType || !isa<FloatType>(from))
    return value; // a pair stays one
  if (auto widened = value.getDefiningOp<arith::ExtFOp>();
      widened && getElementTypeOrSelf(widened.getIn()) == elementType)
    return widened.getIn();
  Type type = elementType;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    type = vector.clone(elementType);
  if (from.getIntOrFloatBitWidth() < elementType.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(builder, type, value);
  return arith::TruncFOp::create(builder, type, value);
}

Value VectorBuilder::toComputeType(Value value) { return convert(*this, value, element); }
Value VectorBuilder::fromComputeType(Value value, Type elementType) { return convert(*this, value, elementType); }

//===----------------------------------------------------------------------===//
// Pairs
//===----------------------------------------------------------------------===//

Value VectorBuilder::pairLanes(Value first, Value second) {
  Type bf16 = getBF16Type();
  Value numbers = vector::InterleaveOp::create(*this, fromComputeType(first, bf16), fromComputeType(second, bf16));
  return vector::BitCastOp::create(*this, wordsType(), numbers);
}

Value VectorBuilder::pairNeighbours(Value low, Value high) {
  Type bf16 = getBF16Type();
  Value numbers = vector::ShuffleOp::create(*this, fromComputeType(low, bf16), fromComputeType(high, bf16),
                                            llvm::to_vector(llvm::seq<int64_t>(2 * width)));
  return vector::BitCastOp::create(*this, wordsType(), numbers);
}

void VectorBuilder::storeNeighbours(Value vector, Value memory, ValueRange indices) {
  auto words = VectorType::get(width / 2, wordType());
  Value numbers = fromComputeType(vector, getBF16Type());
  vector::StoreOp::create(*this, vector::BitCastOp::create(*this, words, numbers), memory, indices);
}

Value VectorBuilder::dotPairs(Value leftWords, Value rightWords, Value sums) {
  auto numbers = VectorType::get(2 * width, getBF16Type());
  return x86vector::DotBF16Op::create(*this, sums.getType(), sums, vector::BitCastOp::create(*this, numbers, leftWords),
                                      vector::BitCastOp::create(*this, numbers, rightWords));
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

// Intrinsics in place of MLIR's dialect `amx`, whose type no loop may carry on the way to LLVM. LLVM finds registers
// for them, and sets them up once in a function where all have one shape, as these do.

static Value shortInteger(VectorBuilder &builder, int64_t value) {
  return LLVM::ConstantOp::create(builder, builder.getI16Type(), value);
}

static Value tileShape(VectorBuilder &builder, bool ofBytes) {
  return shortInteger(builder, ofBytes ? VectorBuilder::tileWords * 4 : VectorBuilder::tileRows);
}

/// Where a tile begins, and the bytes from row to row of its matrix.
static std::pair<Value, Value> placeOfTile(VectorBuilder &builder, Value memory, Value row, Value column) {
  auto type = cast<MemRefType>(memory.getType());
  int64_t rowBytes = type.getDimSize(1) * 4, bytes = 4;
  assert(type.getElementTypeBitWidth() == 32 && type.getLayout().isIdentity() && "a tile's words lie side by side");
  Value start = memref::ExtractAlignedPointerAsIndexOp::create(builder, memory);
  start = builder.add(start, builder.add(builder.multiply(row, rowBytes), builder.multiply(column, bytes)));
  Type word = builder.getI64Type();
  Value integer = arith::IndexCastOp::create(builder, word, start);
  Value pointer = LLVM::IntToPtrOp::create(builder, LLVM::LLVMPointerType::get(builder.getContext()), integer);
  return {pointer, LLVM::ConstantOp::create(builder, word, rowBytes)};
}

Type VectorBuilder::tileType() { return LLVM::LLVMX86AMXType::get(getContext()); }

Value VectorBuilder::zeroTile() {
  return LLVM::CallIntrinsicOp::create(*this, tileType(), getStringAttr("llvm.x86.tilezero.internal"),
                                       ValueRange{tileShape(*this, false), tileShape(*this, true)})
      .getResult(0);
}

Value VectorBuilder::loadTile(Value memory, Value row, Value column) {
  auto [pointer, stride] = placeOfTile(*this, memory, row, column);
  return LLVM::CallIntrinsicOp::create(*this, tileType(), getStringAttr("llvm.x86.tileloadd64.internal"),
                                       ValueRange{tileShape(*this, false), tileShape(*this, true), pointer, stride})
      .getResult(0);
}

void VectorBuilder::storeTile(Value tile, Value memory, Value row, Value column) {
  auto [pointer, stride] = placeOfTile(*this, memory, row, column);
  LLVM::CallIntrinsicOp::create(*this, getStringAttr("llvm.x86.tilestored64.internal"),
                                ValueRange{tileShape(*this, false), tileShape(*this, true), pointer, stride, tile});
}

Value VectorBuilder::dotTiles(Value leftWords, Value rightWords, Value sums) {
  Value bytes = tileShape(*this, true);
  return LLVM::CallIntrinsicOp::create(*this, tileType(), getStringAttr("llvm.x86.tdpbf16ps.internal"),
                                       ValueRange{tileShape(*this, false), bytes, bytes, sums, leftWords, rightWords})
      .getResult(0);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value VectorBuilder::load(Value memory, ValueRange indices, int64_t lanes) {
  Type memoryElement = cast<MemRefType>(memory.getType()).getElementType();
  auto type = VectorType::get(width, memoryElement);
  if (lanes == width)
    return toComputeType(vector::LoadOp::create(*this, type, memory, indices));
  return toComputeType(vector::MaskedLoadOp::create(*this, type, memory, indices, firstLanes(lanes), zero(type)));
}

void VectorBuilder::store(Value vector, Value memory, ValueRange indices, int64_t lanes) {
  vector = fromComputeType(vector, cast<MemRefType>(memory.getType()).getElementType());
  if (lanes == width) {
    vector::StoreOp::create(*this, vector, memory, indices);
    return;
  }
  vector::MaskedStoreOp::create(*this, memory, indices, firstLanes(lanes), vector);
}

Value VectorBuilder::loadScalar(Value memory, ValueRange indices) {
  return toComputeType(memref::LoadOp::create(*this, memory, indices));
}

void VectorBuilder::storeScalar(Value scalar, Value memory, ValueRange indices) {
  memref::StoreOp::create(*this, fromComputeType(scalar, cast<MemRefType>(memory.getType()).getElementType()), memory,
                          indices);
}

void VectorBuilder::prefetch(Value memory, Value index) {
  memref::PrefetchOp::create(*this, memory, index, /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// The same number, of which LLVM does not know that it runs through a loop. Loop strength reduction would make a
/// number of its own of each address, more than there are registers, where constants beside this one do: of the loop
/// over pairs of tokens two thirds of the instructions moved these.
static Value hidden(VectorBuilder &builder, Value number) {
  Type word = builder.getI64Type();
  Value integer = arith::IndexCastOp::create(builder, word, number);
  auto same = LLVM::InlineAsmOp::create(
      builder, word, integer, builder.getStringAttr(""), builder.getStringAttr("=r,0"), UnitAttr(), UnitAttr(),
      LLVM::TailCallKindAttr::get(builder.getContext(), LLVM::TailCallKind::None), LLVM::AsmDialectAttr(), ArrayAttr());
  return arith::IndexCastOp::create(builder, builder.getIndexType(), same.getRes());
}

void VectorBuilder::loop(Value from, Value to, int64_t step, Body body) {
  std::optional<int64_t> first = getConstantIntValue(from), last = getConstantIntValue(to);
  if (first && last && *last <= *first)
    return;
  if (first && last && *last - *first <= step)
    return body(from);
  auto loop = scf::ForOp::create(*this, from, to, index(step));
  InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  body(hidden(*this, loop.getInductionVar()));
}

void VectorBuilder::loop(int64_t from, int64_t to, int64_t step, Body body) {
  loop(index(from), index(to), step, body);
}

SmallVector<Value> VectorBuilder::loop(Value from, Value to, ValueRange carried, CarryingBody body) {
  return loop(from, to, 1, carried, body);
}

SmallVector<Value> VectorBuilder::loop(Value from, Value to, int64_t step, ValueRange carried, CarryingBody body) {
  auto ofHidden = [&](Value number, ValueRange numbers) { return body(hidden(*this, number), numbers); };
  return sum(from, to, carried, ofHidden, step);
}

SmallVector<Value> VectorBuilder::sum(Value from, Value to, ValueRange carried, CarryingBody body, int64_t step) {
  auto loop = scf::ForOp::create(*this, from, to, index(step), carried);
  InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  scf::YieldOp::create(*this, body(loop.getInductionVar(), loop.getRegionIterArgs()));
  return llvm::to_vector_of<Value>(loop.getResults());
}

void VectorBuilder::loopWhile(Value from, Value to, int64_t step, llvm::function_ref<Value(Value)> body) {
  Value isMore = arith::ConstantOp::create(*this, getBoolAttr(true));
  SmallVector<Type> types = {from.getType(), isMore.getType()};
  SmallVector<Location> locations(2, getLoc());
  auto loop = scf::WhileOp::create(*this, types, ValueRange{from, isMore});
  InsertionGuard guard(*this);
  Block *before = createBlock(&loop.getBefore(), {}, types, locations);
  Value isInside = compare(arith::CmpIPredicate::slt, before->getArgument(0), to);
  scf::ConditionOp::create(*this, arith::AndIOp::create(*this, isInside, before->getArgument(1)),
                           before->getArguments());
  Block *after = createBlock(&loop.getAfter(), {}, types, locations);
  Value goesOn = body(after->getArgument(0));
  scf::YieldOp::create(*this, ValueRange{add(after->getArgument(0), step), goesOn});
}

/// The longest walk, in vectors, that is written out.
static constexpr int64_t mostWrittenOut = 8;

void VectorBuilder::loopOverVectors(int64_t count, llvm::function_ref<void(Value, int64_t)> body) {
  int64_t whole = count / width * width;
  if (whole <= mostWrittenOut * width)
    for (int64_t column = 0; column < whole; column += width)
      body(index(column), width);
  else
    loop(0, whole, width, [&](Value column) { body(column, width); });
  if (whole < count)
    body(index(whole), count - whole);
}

void VectorBuilder::loopOverWhole(int64_t count, SmallVectorImpl<Value> &carried, CarryingBody body) {
  if (count > mostWrittenOut * width) {
    carried = loop(index(0), index(count), width, carried, body);
    return;
  }
  for (int64_t column = 0; column < count; column += width)
    carried = body(index(column), carried);
}

void VectorBuilder::ifTrue(Value condition, llvm::function_ref<void()> then) {
  auto branch = scf::IfOp::create(*this, condition, /*withElseRegion=*/false);
  InsertionGuard guard(*this);
  setInsertionPointToStart(branch.thenBlock());
  then();
}
