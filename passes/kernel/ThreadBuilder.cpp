//===- ThreadBuilder.cpp - Code of one thread -----------------------------===//

#include "passes/kernel/ThreadBuilder.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace stretto::kernel;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value ThreadBuilder::add(Value a, int64_t b) {
  return b ? add(a, arith::ConstantIntOp::create(*this, b, a.getType().getIntOrFloatBitWidth())) : a;
}

Value ThreadBuilder::mul(Value a, int64_t b) {
  return b == 1 ? a : mul(a, arith::ConstantIntOp::create(*this, b, a.getType().getIntOrFloatBitWidth()));
}

Value ThreadBuilder::bitXor(Value a, int64_t b) { return b ? arith::XOrIOp::create(*this, a, i32(b)).getResult() : a; }

Value ThreadBuilder::both(Value a, Value b) {
  if (!a || !b)
    return a ? a : b;
  return arith::AndIOp::create(*this, a, b);
}

Value ThreadBuilder::real(Type type, double value) {
  return arith::ConstantOp::create(*this, FloatAttr::get(type, value));
}

Value ThreadBuilder::zero(Type type) { return arith::ConstantOp::create(*this, getZeroAttr(type)); }

Value ThreadBuilder::combine(Value a, Value b) {
  if (!a || !b)
    return a ? a : b;
  return arith::XOrIOp::create(*this, a, b);
}

Value ThreadBuilder::linear(Value number, ArrayRef<uint64_t> basis) {
  Value result;
  for (size_t bit = 0; bit < basis.size();) {
    if (!basis[bit]) {
      ++bit;
      continue;
    }
    // Bits whose vectors are shifts of one another are moved together, where no two of them meet.
    size_t next = bit + 1;
    bool single = llvm::isPowerOf2_64(basis[bit]);
    while (single && next < basis.size() && basis[next] == basis[next - 1] << 1)
      ++next;
    Value part = number;
    if (bit)
      part = arith::ShRUIOp::create(*this, part, i32(bit));
    part = arith::AndIOp::create(*this, part, i32(llvm::maskTrailingOnes<uint64_t>(next - bit)));
    part =
        single ? arith::ShLIOp::create(*this, part, i32(llvm::Log2_64(basis[bit]))).getResult() : mul(part, basis[bit]);
    result = combine(result, part);
    bit = next;
  }
  return result;
}

Value ThreadBuilder::linear(ArrayRef<uint64_t> laneBasis, ArrayRef<uint64_t> warpBasis) {
  return combine(linear(lane, laneBasis), linear(warp, warpBasis));
}

//===----------------------------------------------------------------------===//
// Elements that the thread holds
//===----------------------------------------------------------------------===//

/// What a space contributes to one side, shifted to the low bits.
static SmallVector<uint64_t> basisOf(const Layout &layout, Layout::Space space, unsigned side) {
  SmallVector<uint64_t> result;
  for (uint64_t vector : layout.basis(space))
    result.push_back(layout.coordinate(vector, side));
  return result;
}

Value ThreadBuilder::coordinate(const Layout &layout, unsigned side, uint64_t reg) {
  Value thread = linear(basisOf(layout, Layout::Lane, side), basisOf(layout, Layout::Warp, side));
  int64_t own = layout.coordinate(layout.at(Layout::Register, reg), side);
  if (!thread)
    return i32(own);
  // Where bits do not meet, an addition can become a part of an address or a comparison.
  uint64_t reach = layout.reach(Layout::Lane) | layout.reach(Layout::Warp);
  return layout.coordinate(reach, side) & own ? bitXor(thread, own) : add(thread, own);
}

static constexpr int64_t columnsOfFragment = 8;

ThreadBuilder::Inside ThreadBuilder::inside(const Layout &layout, ArrayRef<int64_t> shape, uint64_t reg) {
  uint64_t reach = layout.reach(Layout::Lane) | layout.reach(Layout::Warp), own = layout.at(Layout::Register, reg);
  // Products leave columns by the eight: a warpgroup's are in neighbouring registers, all of which are there from one
  // product to the next.
  int64_t together = layout.bits(Layout::Lane) ? columnsOfFragment : 1;
  Inside result = Inside::Always;
  for (auto [side, size] : llvm::enumerate(shape)) {
    if (layout.coordinate(own & ~reach, side) >= static_cast<int64_t>(llvm::alignTo(size, together)))
      return Inside::Never;
    if (layout.coordinate(own | reach, side) >= size)
      result = Inside::Sometimes;
  }
  return result;
}

Value ThreadBuilder::isInside(const Layout &layout, ArrayRef<int64_t> shape, uint64_t reg) {
  Value result;
  uint64_t reach = layout.reach(Layout::Lane) | layout.reach(Layout::Warp), own = layout.at(Layout::Register, reg);
  for (auto [side, size] : llvm::enumerate(shape))
    if (layout.coordinate(own | reach, side) >= size)
      result = both(result, less(coordinate(layout, side, reg), size));
  return result;
}

Value ThreadBuilder::isFirstCopy(const Layout &layout) {
  Value result;
  for (auto [space, number] : {std::pair(Layout::Lane, lane), std::pair(Layout::Warp, warp)}) {
    int64_t copies = 0;
    for (auto [bit, vector] : llvm::enumerate(layout.basis(space)))
      copies |= vector ? 0 : int64_t(1) << bit;
    if (copies)
      result =
          both(result, compare(arith::CmpIPredicate::eq, arith::AndIOp::create(*this, number, i32(copies)), i32(0)));
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value ThreadBuilder::advance(Value pointer, Value bytes) {
  return LLVM::GEPOp::create(*this, pointer.getType(), getI8Type(), pointer, ArrayRef<LLVM::GEPArg>{bytes});
}

Value ThreadBuilder::advance(Value pointer, int64_t bytes) {
  if (!bytes)
    return pointer;
  return LLVM::GEPOp::create(*this, pointer.getType(), getI8Type(), pointer,
                             ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
}

Value ThreadBuilder::pack(ValueRange values) {
  Type type = VectorType::get(values.size(), values.front().getType());
  Value result = LLVM::PoisonOp::create(*this, type);
  for (auto [index, value] : llvm::enumerate(values))
    result = LLVM::InsertElementOp::create(*this, result, value, i32(index));
  return result;
}

Registers ThreadBuilder::unpack(Value vector) {
  Registers result;
  for (int64_t index = 0; index < cast<VectorType>(vector.getType()).getNumElements(); ++index)
    result.push_back(LLVM::ExtractElementOp::create(*this, vector, i32(index)));
  return result;
}

Value ThreadBuilder::wordOf(Value low, Value high) {
  auto first = low.getDefiningOp<LLVM::ExtractElementOp>(), second = high.getDefiningOp<LLVM::ExtractElementOp>();
  if (!first || !second || first.getVector() != second.getVector())
    return {};
  std::optional<int64_t> place = getConstantIntValue(first.getPosition()),
                         next = getConstantIntValue(second.getPosition());
  int64_t elements = cast<VectorType>(first.getVector().getType()).getNumElements();
  if (!place || !next || *place % 2 || *next != *place + 1 || elements % 2)
    return {};
  Value words = LLVM::BitcastOp::create(*this, VectorType::get({elements / 2}, getI32Type()), first.getVector());
  return LLVM::ExtractElementOp::create(*this, words, i32(*place / 2));
}

static unsigned bytesOf(Type element, int64_t count) { return element.getIntOrFloatBitWidth() / 8 * count; }

Registers ThreadBuilder::load(Value pointer, Type element, int64_t count) {
  if (element.isInteger(1)) { // a condition takes a byte
    Registers bytes = load(pointer, getI8Type(), count);
    for (Value &byte : bytes)
      byte = arith::TruncIOp::create(*this, element, byte);
    return bytes;
  }
  Type type = count == 1 ? element : VectorType::get(count, element);
  Value value = LLVM::LoadOp::create(*this, type, pointer, bytesOf(element, count));
  return count == 1 ? Registers{value} : unpack(value);
}

void ThreadBuilder::store(Value pointer, ValueRange values) {
  Registers bytes;
  if (values.front().getType().isInteger(1)) {
    for (Value value : values)
      bytes.push_back(arith::ExtUIOp::create(*this, getI8Type(), value));
    values = bytes;
  }
  unsigned alignment = bytesOf(values.front().getType(), values.size());
  LLVM::StoreOp::create(*this, values.size() == 1 ? values.front() : pack(values), pointer, alignment);
}

void ThreadBuilder::barrier() {
  Value id = barrierId ? i32(barrierId) : Value(), count = barrierId ? i32(threadsOfBarrier) : Value();
  NVVM::BarrierOp::create(*this, TypeRange(), id, count, NVVM::BarrierReductionAttr(), Value());
}

Value ThreadBuilder::none(Value condition) {
  if (barrierId) {
    Value any =
        LLVM::CallIntrinsicOp::create(*this, getI1Type(), getStringAttr("llvm.nvvm.barrier.cta.red.or.aligned.count"),
                                      ValueRange{i32(barrierId), i32(threadsOfBarrier), condition})
            .getResult(0);
    return arith::XOrIOp::create(*this, any, i1(true));
  }
  Value asked = arith::ExtUIOp::create(*this, getI32Type(), condition);
  auto reduction = NVVM::BarrierReductionAttr::get(getContext(), NVVM::BarrierReduction::OR);
  Value any = NVVM::BarrierOp::create(*this, getI32Type(), Value(), Value(), reduction, asked).getRes();
  return compare(arith::CmpIPredicate::eq, any, i32(0));
}

/// Shuffles move 32 bits; narrower values travel in the low bits of a word.
template <typename Shuffle> Value ThreadBuilder::asInteger(Value value, Shuffle shuffle) {
  Type type = value.getType();
  unsigned width = type.getIntOrFloatBitWidth();
  if (type.isF32() || type.isInteger(32))
    return shuffle(value);
  Type bits = getIntegerType(width);
  Value word = isa<FloatType>(type) ? arith::BitcastOp::create(*this, bits, value).getResult() : value;
  word = shuffle(arith::ExtUIOp::create(*this, getI32Type(), word));
  word = arith::TruncIOp::create(*this, bits, word);
  return isa<FloatType>(type) ? arith::BitcastOp::create(*this, type, word).getResult() : word;
}

Value ThreadBuilder::shuffleXor(Value value, int64_t mask) {
  return asInteger(value, [&](Value word) -> Value {
    return NVVM::ShflOp::create(*this, word.getType(), i32(-1), word, i32(mask), i32(31), NVVM::ShflKind::bfly,
                                UnitAttr());
  });
}

Value ThreadBuilder::shuffleFrom(Value value, Value sourceLane) {
  return asInteger(value, [&](Value word) -> Value {
    return NVVM::ShflOp::create(*this, word.getType(), i32(-1), word, sourceLane, i32(31), NVVM::ShflKind::idx,
                                UnitAttr());
  });
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

SharedTile::SharedTile(RankedTensorType type, Value base) : type(type), base(base), layout(*layoutOf(type)) {
  offsets = *layout.offsetsOfCoordinates();
}

uint64_t SharedTile::byteOffset(uint64_t flat) const {
  uint64_t offset = 0;
  for (auto [bit, part] : llvm::enumerate(offsets))
    if (flat >> bit & 1)
      offset ^= part;
  return offset * elementBytes();
}

SmallVector<uint64_t> SharedTile::byteOffsetsOf(unsigned side) const {
  SmallVector<uint64_t> result;
  SmallVector<int64_t, 2> coordinates(layout.rank(), 0);
  for (unsigned bit = 0; bit < layout.bitsOf(side); ++bit) {
    coordinates[side] = int64_t(1) << bit;
    result.push_back(byteOffset(layout.flat(coordinates)));
  }
  return result;
}

Addresses::Addresses(ThreadBuilder &builder, const SharedTile &tile, ArrayRef<uint64_t> laneBasis,
                     ArrayRef<uint64_t> warpBasis)
    : builder(builder), tile(tile) {
  auto toBytes = [&](ArrayRef<uint64_t> basis) {
    SmallVector<uint64_t> result;
    for (uint64_t vector : basis) {
      result.push_back(tile.byteOffset(vector));
      reach |= result.back();
    }
    return result;
  };
  SmallVector<uint64_t> laneBytes = toBytes(laneBasis), warpBytes = toBytes(warpBasis);
  threadOffset = builder.linear(laneBytes, warpBytes);
}

Addresses Addresses::inRow(Value row, uint64_t bits) const {
  Addresses result = *this;
  SmallVector<uint64_t> ofRows = tile.byteOffsetsOf(0);
  for (auto [bit, offset] : llvm::enumerate(ofRows)) {
    offset = bits >> bit & 1 ? offset : 0;
    result.reach |= offset;
  }
  result.threadOffset = builder.combine(threadOffset, builder.linear(row, ofRows));
  result.pointers.clear();
  return result;
}

Value Addresses::at(uint64_t flat) {
  uint64_t offset = tile.byteOffset(flat), meets = offset & reach;
  Value &pointer = pointers[meets];
  if (!pointer)
    pointer = threadOffset ? builder.advance(tile.base, builder.bitXor(threadOffset, meets)) : tile.base;
  return builder.advance(pointer, static_cast<int64_t>(offset & ~reach));
}

Value Gather::address(ArrayRef<Value> coordinates) {
  Value offset;
  for (auto [side, coordinate] : llvm::enumerate(coordinates))
    offset = b.combine(offset, b.linear(coordinate, tile.byteOffsetsOf(side)));
  return offset ? b.advance(tile.base, offset) : tile.base;
}

unsigned stretto::kernel::neighbouringBits(const Layout &layout, const SharedTile &tile) {
  unsigned bits = 0;
  uint64_t bytes = tile.elementBytes();
  for (uint64_t vector : layout.basis(Layout::Register)) {
    if (tile.byteOffset(vector) != bytes || bytes * 2 > 16)
      break;
    bytes *= 2;
    ++bits;
  }
  return bits;
}
