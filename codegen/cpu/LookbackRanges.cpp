//===- LookbackRanges.cpp - Which tokens a look-back meets ----------------===//
//
// The range of a token is a range of lanes of a tile's row. Beyond it scores are -inf and weights 0; tokens of a tile
// that do not exist are beyond it too, and no product runs over them. A fold ahead has a range for each lane instead.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/LookbackFold.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

const KernelLowering::Argument *KernelLowering::windowOf(const Argument &input) const {
  const Argument *window =
      llvm::find_if(arguments, [&](const Argument &other) { return isWindow(other) && other.entry == input.name; });
  return window == arguments.end() ? nullptr : window;
}

int64_t KernelLowering::windowLength() const {
  const Argument *window = llvm::find_if(arguments, isWindow);
  return window == arguments.end() ? 0 : window->type.getDimSize(0);
}

Value KernelLowering::tokensInWindow() {
  const Argument *window = llvm::find_if(arguments, isWindow);
  if (window == arguments.end())
    return builder.index(0);
  Value isGiven = builder.compare(arith::CmpIPredicate::ne, window->words[0], builder.index(0));
  Value held = builder.minimum(itemPosition, builder.index(windowLength()));
  return arith::SelectOp::create(builder, isGiven, held, builder.index(0));
}

SmallVector<KernelLowering::View> KernelLowering::viewPast(ArrayRef<const Argument *> inputs, Value firstPast,
                                                           Value count, int64_t tokens) {
  Value none = builder.index(0), from = none;
  Value isBefore = builder.compare(arith::CmpIPredicate::slt, firstPast, none);
  if (windowLength()) {
    Value missing = builder.subtract(none, builder.add(firstPast, tokensInWindow()));
    from = arith::SelectOp::create(builder, isBefore, arith::MaxSIOp::create(builder, missing, none), none);
  }
  SmallVector<Rows> tiles;
  for (const Argument *input : inputs) {
    Rows &rows = tiles.emplace_back(rowsOf(*input, firstPast));
    const Argument *window = windowOf(*input);
    if (!window)
      continue;
    rows.address = arith::SelectOp::create(builder, isBefore, window->address, rows.address);
    rows.stride = arith::SelectOp::create(builder, isBefore, window->words[4], rows.stride);
    rows.isRing = isBefore;
    rows.ringStart = builder.add(itemPosition, firstPast);
    rows.ringLength = windowLength();
  }
  return viewRows(tiles, from, count, tokens);
}

void KernelLowering::storeWindows(const Item &item) {
  for (const Argument &window : arguments) {
    if (!isWindow(window))
      continue;
    const Argument &input =
        *llvm::find_if(arguments, [&](const Argument &other) { return isTile(other) && other.name == window.entry; });
    Value isWanted = builder.compare(arith::CmpIPredicate::ne, window.words[1], builder.index(0));
    Value member = builder.createOrFold<arith::RemUIOp>(item.head, builder.index(window.group));
    Value isFirst = builder.compare(arith::CmpIPredicate::eq, member, builder.index(0));
    builder.ifTrue(builder.createOrFold<arith::AndIOp>(isWanted, isFirst), [&] {
      Type element = input.type.getElementType();
      Value from = memoryAt(input.address, element), to = memoryAt(window.finalAddress, element);
      Value length = builder.index(windowLength());
      Value first = arith::MaxSIOp::create(builder, builder.subtract(item.tokens, length), item.begin);
      builder.loop(first, item.end, 1, [&](Value token) {
        Value row = builder.createOrFold<arith::RemUIOp>(builder.add(itemPosition, token), length);
        copyToken(input.type, from, builder.multiply(token, input.words[2]), to,
                  builder.multiply(row, window.words[4]));
      });
    });
  }
}

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

static void storeIndex(VectorBuilder &builder, Value index, Value buffer, Value place) {
  Value integer = arith::IndexCastOp::create(builder, builder.getI64Type(), index);
  memref::StoreOp::create(builder, integer, buffer, place);
}

Value cpu::loadIndex(VectorBuilder &builder, Value buffer, Value place) {
  return arith::IndexCastOp::create(builder, builder.getIndexType(), memref::LoadOp::create(builder, buffer, place));
}

void KernelLowering::findRanges(chunk::LookbackOp op, Value first, Value last, Value firstToken, LookbackFold &fold) {
  auto toNumber = [&](Value index) -> Value {
    Value integer = arith::IndexCastOp::create(builder, builder.getI64Type(), index);
    return arith::SIToFPOp::create(builder, builder.element, integer);
  };
  auto constant = [&](double value) -> Value {
    return arith::ConstantOp::create(builder, builder.getFloatAttr(builder.element, value));
  };
  Value end = toNumber(itemTokens), position = toNumber(itemPosition);
  Value start = toNumber(builder.subtract(builder.index(0), tokensInWindow()));
  // A bound as a token of the sequence or a window, or the end; what is not a number is the start.
  auto tokenAt = [&](Value bound, Value row, double offset, auto round) {
    known.clear();
    Value number = vector::ExtractOp::create(builder, evaluateSplat(bound, row), 0);
    number = arith::AddFOp::create(builder, arith::SubFOp::create(builder, round(number), position), constant(offset));
    number = arith::MinNumFOp::create(builder, arith::MaxNumFOp::create(builder, number, start), end);
    Value integer = arith::FPToSIOp::create(builder, builder.getI64Type(), number);
    return arith::IndexCastOp::create(builder, builder.getIndexType(), integer).getResult();
  };
  builder.loop(0, fold.isAhead ? fold.pastTokens : kernel.getChunk(), 1, [&](Value row) {
    Value begin = tokenAt(first, row, 0, [&](Value x) -> Value { return math::CeilOp::create(builder, x); });
    Value end = op.getToEnd() ? itemTokens : builder.minimum(itemTokens, builder.add(builder.add(firstToken, row), 1));
    if (last)
      end = builder.minimum(end,
                            tokenAt(last, row, 1, [&](Value x) -> Value { return math::FloorOp::create(builder, x); }));
    // What joins a matrix before the sequence joins it at the first token, where it is handed on.
    if (fold.isAhead && op.getFold() == chunk::Fold::Outer)
      end = arith::MaxSIOp::create(builder, end, builder.index(1));
    storeIndex(builder, begin, fold.begins, row);
    storeIndex(builder, end, fold.ends, row);
  });
}

Value KernelLowering::isInRange(const LookbackFold &fold, Value row, Value column) {
  if (fold.isAhead) {
    auto words = VectorType::get(builder.width, builder.getI64Type());
    auto wordsAt = [&](Value buffer) -> Value { return vector::LoadOp::create(builder, words, buffer, column); };
    Value token = arith::IndexCastOp::create(builder, builder.getI64Type(), builder.add(chunkStart, row));
    token = vector::BroadcastOp::create(builder, words, token);
    Value begun = arith::CmpIOp::create(builder, arith::CmpIPredicate::sle, wordsAt(fold.begins), token);
    Value within = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, token, wordsAt(fold.ends));
    Value exists = builder.lanesBefore(builder.subtract(fold.count, column));
    return arith::AndIOp::create(builder, exists, arith::AndIOp::create(builder, begun, within));
  }
  Value begin = builder.subtract(loadIndex(builder, fold.begins, row), fold.first);
  Value end = builder.minimum(builder.subtract(loadIndex(builder, fold.ends, row), fold.first), fold.count);
  Value before = builder.lanesBefore(builder.subtract(begin, column));
  Value within = builder.lanesBefore(builder.subtract(end, column));
  // In front of the range there is nothing that is not also before its end.
  Value all = arith::ConstantOp::create(builder, DenseElementsAttr::get(builder.maskType(), true));
  return arith::AndIOp::create(builder, within, arith::XOrIOp::create(builder, before, all));
}

std::pair<Value, Value> KernelLowering::rowsInRange(const LookbackFold &fold) {
  Value none = builder.index(0);
  if (!fold.isAhead) {
    Value begin = loadIndex(builder, fold.begins, none);
    Value end = loadIndex(builder, fold.ends, builder.subtract(valid, builder.index(1)));
    Value from = arith::MaxSIOp::create(builder, builder.subtract(begin, fold.first), none);
    Value to = builder.minimum(builder.subtract(end, fold.first), fold.count);
    return {from, arith::MaxSIOp::create(builder, to, from)};
  }
  // Ranges never fall: those that end before the chunk, or before they begin in it, come first, those that begin behind
  // it last.
  Value chunkEnd = builder.add(chunkStart, valid);
  SmallVector<Value> counts =
      builder.loop(none, fold.count, ValueRange{none, none}, [&](Value row, ValueRange carried) -> SmallVector<Value> {
        auto addIf = [&](Value count, Value condition) {
          return builder.add(count, arith::IndexCastUIOp::create(builder, builder.getIndexType(), condition));
        };
        Value begin = loadIndex(builder, fold.begins, row), end = loadIndex(builder, fold.ends, row);
        Value isBegun = builder.compare(arith::CmpIPredicate::slt, begin, chunkEnd);
        Value first =
            arith::MaxSIOp::create(builder, chunkStart, arith::SelectOp::create(builder, isBegun, begin, chunkStart));
        return {addIf(carried[0], builder.compare(arith::CmpIPredicate::sle, end, first)), addIf(carried[1], isBegun)};
      });
  return {counts[0], arith::MaxSIOp::create(builder, counts[1], counts[0])};
}
