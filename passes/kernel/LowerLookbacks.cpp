//===- LowerLookbacks.cpp - Ranges of tokens ------------------------------===//
//
// Bounds are positions, as numbers of fp32. Tokens are counted from the first of the sequence; those that windows hold
// are below 0.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

int64_t ThreadLowering::windowLength() const {
  auto window = llvm::find_if(
      manifest.arguments, [](const Manifest::Argument &argument) { return argument.kind == Manifest::Kind::Window; });
  return window == manifest.arguments.end() ? 0 : window->shape[0];
}

Value ThreadLowering::tokenAt(Value bound, bool isLast) {
  Type type = bound.getType();
  auto toNumber = [&](Value integer) -> Value { return arith::SIToFPOp::create(b, type, integer); };
  auto negative = [&](Value number) -> Value { return arith::NegFOp::create(b, number); };
  Value number =
      isLast ? math::FloorOp::create(b, bound).getResult() : negative(math::FloorOp::create(b, negative(bound)));
  number = arith::SubFOp::create(b, number, toNumber(position));
  if (isLast)
    number = arith::AddFOp::create(b, number, b.real(type, 1));
  number = arith::MaxNumFOp::create(b, number, negative(toNumber(held)));
  number = arith::MinNumFOp::create(b, number, toNumber(tokens));
  return arith::FPToSIOp::create(b, b.getI32Type(), number);
}

ThreadLowering::Range ThreadLowering::rangeOf(Value token, Value first, Value last, bool toEnd) {
  auto least = [&](Value left, Value right) -> Value { return arith::MinSIOp::create(b, left, right); };
  Range range{tokenAt(first, /*isLast=*/false), b.truncate(tokens)};
  if (!toEnd)
    range.end = least(range.end, b.add(token, 1));
  if (last)
    range.end = least(range.end, tokenAt(last, /*isLast=*/true));
  return range;
}

ThreadLowering::BoundAt ThreadLowering::boundsOf(Operation *op, Value first, Value last) {
  SmallVector<Value, 2> bounds;
  for (Value bound : {first, last})
    if (bound && !isOneNumber(bound))
      bounds.push_back(bound);
  SmallVector<SharedTile, 3> tiles = gatherable(op, bounds);
  return [=, this](Value bound, Value row) -> Value {
    if (!bound || isOneNumber(bound))
      return bound ? registersOf(bound).front() : Value();
    const SharedTile &tile = tiles[llvm::find(bounds, bound) - bounds.begin()];
    Value offset = b.linear(row, tile.byteOffsetsOf(0));
    return b.load(b.advance(tile.base, offset), tile.type.getElementType(), 1)[0];
  };
}

Value ThreadLowering::validOf(Value chunk) {
  return validTokens(b.mul(scalars.lookup(chunk), manifest.chunk), manifest.chunk);
}

ThreadLowering::Range ThreadLowering::rangeOfAny(Operation *op, Value first, Value last, Value chunk, bool toEnd) {
  BoundAt boundAt = boundsOf(op, first, last);
  Value lastRow = b.add(validOf(chunk), -1);
  return rangeOf(b.add(startOf(chunk, manifest.chunk), lastRow), boundAt(first, b.i32(0)), boundAt(last, lastRow),
                 toEnd);
}

ThreadLowering::Range ThreadLowering::rangeOfEach(Operation *op, Value first, Value last, Value chunk, bool toEnd) {
  BoundAt boundAt = boundsOf(op, first, last);
  Value lastRow = b.i32(manifest.chunk - 1), start = startOf(chunk, manifest.chunk);
  Range range = rangeOf(start, boundAt(first, lastRow), boundAt(last, b.i32(0)), toEnd);
  Value allExist = b.compare(arith::CmpIPredicate::eq, validOf(chunk), b.i32(manifest.chunk));
  range.end = b.select(allExist, range.end, range.begin);
  return range;
}

void ThreadLowering::lowerSpan(SpanOp op) {
  // Tokens before the first are counted from it, too.
  auto by = static_cast<int64_t>(op.getBy());
  int64_t before = llvm::divideCeil(windowLength(), by);
  auto chunksBefore = [&](Value token, bool roundUp) -> Value {
    Value chunk = arith::DivUIOp::create(b, b.add(token, before * by + (roundUp ? by - 1 : 0)), b.i32(by));
    return arith::ExtSIOp::create(b, b.getI64Type(), b.add(chunk, -before));
  };
  auto rangeOf = op.getWholly() ? &ThreadLowering::rangeOfEach : &ThreadLowering::rangeOfAny;
  Range range = (this->*rangeOf)(op, op.getFirst(), op.getLast(), op.getChunk(), op.getToEnd());
  scalars.map(op.getBegin(), chunksBefore(range.begin, /*roundUp=*/op.getWholly()));
  scalars.map(op.getEnd(), chunksBefore(range.end, /*roundUp=*/!op.getWholly()));
}

/// Ahead, the ranges are those of the other chunk's tokens, of which those beyond the end of the sequence have none.
void ThreadLowering::lowerInRange(InRangeOp op) {
  Layout layout = *layoutOf(op.getType());
  auto within = [&](const Range &range, Value place) {
    return b.both(b.compare(arith::CmpIPredicate::sge, place, range.begin), b.less(place, range.end));
  };
  auto boundIn = [&](Value bounds, int64_t place) {
    Layout own = *layoutOf(bounds.getType());
    for (auto [reg, value] : llvm::enumerate(registersOf(bounds)))
      if (own.coordinate(own.at(Layout::Register, reg), 0) == place)
        return value;
    llvm_unreachable("bounds are where the tokens are that have them");
  };
  auto rangeIn = [&](Value token, int64_t place) {
    Range range = rangeOf(token, boundIn(op.getFirst(), place), op.getLast() ? boundIn(op.getLast(), place) : Value(),
                          op.getToEnd());
    // What joins a matrix before the sequence joins it at the first token, where it is handed on.
    if (op.getAhead() && layout.rank() == 1)
      range.end = arith::MaxSIOp::create(b, range.end, b.i32(1));
    if (op.getAhead())
      range.end = b.select(b.less(token, b.truncate(tokens)), range.end, range.begin);
    return range;
  };
  int64_t others = cast<RankedTensorType>(op.getType()).getShape().back();
  Value start = startOf(op.getChunk(), manifest.chunk), otherStart = startOf(op.getOther(), others);
  if (layout.rank() == 1 && op.getAhead()) {
    Value end = b.add(start, validOf(op.getChunk()));
    return define(op.getResult(), [&](uint64_t reg) {
      Range range = rangeIn(b.add(otherStart, b.coordinate(layout, 0, reg)),
                            layout.coordinate(layout.at(Layout::Register, reg), 0));
      Value last = b.add(range.end, -1);
      // A range that begins before the end and ends behind the start meets the chunk, unless it is empty.
      Value isAny = b.compare(arith::CmpIPredicate::sge, last, range.begin);
      return b.both(isAny, b.both(b.less(range.begin, end), b.compare(arith::CmpIPredicate::sge, last, start)));
    });
  }
  if (layout.rank() == 1) {
    Range range = rangeOfAny(op, op.getFirst(), op.getLast(), op.getChunk(), op.getToEnd());
    return define(op.getResult(),
                  [&](uint64_t reg) { return within(range, b.add(otherStart, b.coordinate(layout, 0, reg))); });
  }
  // The range of each row, or ahead of each column, from the thread's first token of the other side on: then those of
  // registers are constants.
  unsigned side = op.getAhead() ? 1 : 0;
  Value ofRanges = side ? otherStart : start, ofPlaces = side ? start : otherStart;
  Value firstPlace = b.add(ofPlaces, b.coordinate(layout, 1 - side, 0));
  llvm::SmallDenseMap<int64_t, Range> ranges;
  define(op.getResult(), [&](uint64_t reg) {
    uint64_t own = layout.at(Layout::Register, reg);
    auto [known, isNew] = ranges.try_emplace(layout.coordinate(own, side));
    if (isNew) {
      Range range = rangeIn(b.add(ofRanges, b.coordinate(layout, side, reg)), layout.coordinate(own, side));
      known->second = {b.sub(range.begin, firstPlace), b.sub(range.end, firstPlace)};
    }
    return within(known->second, b.i32(layout.coordinate(own, 1 - side)));
  });
}
