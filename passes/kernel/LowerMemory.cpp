//===- LowerMemory.cpp - Global memory and channels -----------------------===//
//
// Rows of inputs are copied to shared memory by `cp.async`, in pieces of up to 16 bytes: pointers and strides of an
// argument are multiples of the largest power of two, up to 16, that divides the bytes of its row.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/kernel/ThreadLowering.h"
#include <limits>

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

//===----------------------------------------------------------------------===//
// Arguments of the launch
//===----------------------------------------------------------------------===//

ThreadLowering::View ThreadLowering::decodeView(const Manifest::Argument &argument, int64_t first) {
  using Kind = Manifest::Kind;
  View view;
  view.argument = &argument;
  // An output that heads share has room for the part of each.
  bool isShared = argument.group > 1 && argument.kind != Kind::Output;
  Value ownHead = isShared ? arith::DivUIOp::create(b, head, b.i32(argument.group)).getResult() : head;
  Value headIndex = b.extend(ownHead);
  int64_t bytes = stretto::bytesOf(argument.type);
  auto pointerAt = [&](int64_t index) -> Value { return LLVM::IntToPtrOp::create(b, b.pointerType(1), word(index)); };

  // The first element of the item, in elements from the pointer.
  Value offset;
  switch (argument.kind) {
  case Kind::Input:
  case Kind::Output: {
    view.rowStride = word(first + 2);
    Value ofSequence = b.select(packed, b.mul(firstToken, view.rowStride), b.mul(sequence, word(first + 1)));
    offset = b.add(ofSequence, b.mul(headIndex, word(first + 3)));
    break;
  }
  case Kind::Parameter:
    offset = b.mul(headIndex, word(first + 1));
    break;
  case Kind::Table:
    offset = b.mul(headIndex, word(first + 1));
    view.rowStride = word(first + 2);
    view.period = word(first + 3);
    break;
  case Kind::Checkpoint:
  case Kind::Kept: {
    // Chunks of earlier sequences leave at most one number unused each (runtime/Manifest.h).
    Value before = b.select(packed, firstToken, b.mul(sequence, tokens));
    Value number = b.add(arith::DivUIOp::create(b, before, b.i64(manifest.chunk)), sequence);
    view.chunkStride = word(first + 1);
    offset = b.add(b.mul(number, view.chunkStride), b.mul(headIndex, word(first + 2)));
    if (argument.shape.size() == 2)
      view.rowStride = b.i64(argument.shape[1] * (argument.sliced ? manifest.slices : 1));
    else
      view.rowStride = b.i64(1);
    break;
  }
  case Kind::Window:
    llvm_unreachable("stretto-fold-over-chunks refuses windows");
  case Kind::State:
    offset = b.add(b.mul(sequence, word(first + 2)), b.mul(headIndex, word(first + 3)));
    view.rowStride = word(first + 4);
    break;
  }
  if (argument.sliced)
    offset = b.add(offset, b.mul(b.extend(slice), argument.shape.back()));
  Value offsetBytes = b.mul(offset, bytes);
  view.base = b.advance(pointerAt(first), offsetBytes);
  if (argument.kind == Kind::State) {
    auto isGiven = [&](int64_t index) { return b.compare(arith::CmpIPredicate::ne, word(index), b.i64(0)); };
    view.given = isGiven(first);
    view.final = b.advance(pointerAt(first + 1), offsetBytes);
    view.wanted = isGiven(first + 1);
  }
  // What heads share is left by the first of them.
  if (isShared && (argument.kind == Kind::State || argument.kind == Kind::Kept)) {
    Value place = arith::RemUIOp::create(b, head, b.i32(argument.group));
    view.wanted = b.both(view.wanted, b.compare(arith::CmpIPredicate::eq, place, b.i32(0)));
  }
  return view;
}

/// How many tokens a chunk has that begins at `firstToken` of the sequence: none beyond its end or before its start.
Value ThreadLowering::validTokens(Value firstToken) {
  Value left = arith::MaxSIOp::create(b, b.sub(tokens, firstToken), b.i64(0));
  Value valid = b.truncate(arith::MinSIOp::create(b, left, b.i64(manifest.chunk)));
  if (!manifest.reverse)
    return valid;
  return b.select(b.compare(arith::CmpIPredicate::slt, firstToken, b.i64(0)), b.i32(0), valid);
}

//===----------------------------------------------------------------------===//
// Channels
//===----------------------------------------------------------------------===//

void ThreadLowering::lowerChannel(ChannelOp op) {
  channels[op.getResult()] = b.advance(shared, static_cast<int64_t>(*op.getOffset()));
}

static int64_t depthOf(Value channel) { return channel.getDefiningOp<ChannelOp>().getDepth(); }

/// The tile of a channel that belongs to a chunk.
static Value tileOf(ThreadBuilder &b, Value first, Value chunk, int64_t depth, RankedTensorType type) {
  if (depth == 1 || !chunk)
    return first;
  Value number = arith::RemUIOp::create(b, b.truncate(chunk), b.i32(depth));
  return b.advance(first, b.mul(number, sharedBytesOf(type)));
}

void ThreadLowering::lowerReceive(ReceiveOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  Value chunk = op.getChunk() ? scalars.lookup(op.getChunk()) : Value();
  Value base = tileOf(b, channels.lookup(op.getChannel()), chunk, depthOf(op.getChannel()), type);
  sharedTiles[op.getResult()] = SharedTile(type, base);
}

void ThreadLowering::lowerSend(SendOp op) {
  const View &view = viewOf(op.getView());
  RankedTensorType type = op.getChannel().getType().getTile();
  ArrayRef<int64_t> shape = type.getShape();
  Type element = type.getElementType();
  Value chunk = op.getChunk() ? scalars.lookup(op.getChunk()) : Value();
  SharedTile tile(type, tileOf(b, channels.lookup(op.getChannel()), chunk, depthOf(op.getChannel()), type));
  int64_t elementBytes = tile.elementBytes();
  bool isTable = view.argument->kind == Manifest::Kind::Table;
  bool hasTokens = chunk && view.argument->kind != Manifest::Kind::Checkpoint;

  // What lies side by side in memory: a row, and all of a vector that has no tokens.
  int64_t neighbours = shape.size() == 2 ? shape[1] : shape.size() == 1 && !hasTokens ? shape[0] : 1;
  int64_t rowBytes = neighbours * elementBytes, pieceBytes = std::min<int64_t>(16, rowBytes & -rowBytes);
  int64_t perPiece = pieceBytes / elementBytes;
  Layout layout = copyLayout(shape, perPiece, function.getWarps());

  // Rows of tokens: the first one of the chunk, how far apart they are, and how many exist. A checkpoint exists where
  // its chunk has tokens.
  Value base = view.base, first, valid, rowStride, isThere;
  if (chunk) {
    first = b.mul(chunk, manifest.chunk);
    valid = validTokens(first);
  }
  if (hasTokens) {
    rowStride = view.rowStride;
    if (!isTable)
      base = b.advance(base, b.mul(b.mul(first, rowStride), elementBytes));
  } else if (chunk) {
    rowStride = shape.size() == 2 ? view.rowStride : Value();
    isThere = b.compare(arith::CmpIPredicate::sgt, valid, b.i32(0));
    base = b.advance(base, b.mul(b.mul(chunk, view.chunkStride), elementBytes));
  } else if (shape.size() == 2) {
    rowStride = b.i64(shape[1]);
  }
  auto addressOf = [&](uint64_t reg) {
    Value index = b.i64(0);
    if (rowStride) {
      Value row = b.extend(b.coordinate(layout, 0, reg));
      if (hasTokens && isTable) {
        // A periodic table is entered again from its start.
        row = b.add(row, first);
        Value once = b.compare(arith::CmpIPredicate::eq, view.period, b.i64(0));
        row = arith::RemUIOp::create(b, row, b.select(once, b.i64(INT64_MAX), view.period));
      }
      index = b.mul(row, rowStride);
    }
    if (shape.size() == 2 || (shape.size() == 1 && !rowStride))
      index = b.add(index, b.extend(b.coordinate(layout, shape.size() - 1, reg)));
    return b.advance(base, b.mul(index, elementBytes));
  };

  Addresses addresses(b, tile, layout.basis(Layout::Lane), layout.basis(Layout::Warp));
  // Where the tile is smaller than the block, the others leave copies to the first: those are no ordinary stores, which
  // may write the same numbers twice.
  OpBuilder::InsertionGuard copyGuard(b);
  if (Value isFirst = pieceBytes >= 4 ? b.isFirstCopy(layout) : Value())
    b.setInsertionPointToStart(scf::IfOp::create(b, isFirst).thenBlock());
  for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += perPiece) {
    // The columns up to the side of a fragment become 0, because products read them.
    SmallVector<int64_t, 2> padded(shape);
    for (int64_t &size : padded)
      size = shape.size() == 2 ? llvm::alignTo(size, 16) : size;
    if (ThreadBuilder::inside(layout, padded, reg) == ThreadBuilder::Inside::Never)
      continue;
    Value exists = b.isInside(layout, shape, reg);
    if (ThreadBuilder::inside(layout, shape, reg) == ThreadBuilder::Inside::Never)
      exists = b.i1(false);
    else if (chunk)
      exists = b.both(exists, hasTokens ? b.less(b.coordinate(layout, 0, reg), valid) : isThere);
    Value source = addressOf(reg), target = addresses.at(layout.at(Layout::Register, reg));
    if (pieceBytes >= 4) {
      Value bytes = exists ? b.select(exists, b.i32(pieceBytes), b.i32(0)) : Value();
      auto cache = pieceBytes == 16 ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA;
      NVVM::CpAsyncOp::create(b, target, source, static_cast<uint32_t>(pieceBytes), cache, bytes);
      continue;
    }
    // Numbers of 16 bits that are alone cannot be copied asynchronously.
    auto guarded = scf::IfOp::create(b, element, exists ? exists : b.i1(true), /*addElse=*/true);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(guarded.thenBlock());
      scf::YieldOp::create(b, b.load(source, element, 1));
      b.setInsertionPointToStart(guarded.elseBlock());
      scf::YieldOp::create(b, b.zero(element));
    }
    b.store(target, guarded.getResult(0));
  }
}

//===----------------------------------------------------------------------===//
// States and outputs
//===----------------------------------------------------------------------===//

/// The address of a state's element, `row * stride + column` elements from its first.
static Value stateAddress(ThreadBuilder &b, Value base, Value rowStride, const Layout &layout, uint64_t reg,
                          int64_t elementBytes) {
  Value index = b.mul(b.extend(b.coordinate(layout, 0, reg)), rowStride);
  if (layout.rank() == 2)
    index = b.add(index, b.extend(b.coordinate(layout, 1, reg)));
  return b.advance(base, b.mul(index, elementBytes));
}

void ThreadLowering::lowerLoad(LoadOp op) {
  const View &view = viewOf(op.getView());
  auto type = cast<RankedTensorType>(op.getType());
  Layout layout = *layoutOf(type);
  Type element = type.getElementType();
  define(op.getResult(), [&](uint64_t reg) -> Value {
    Value exists = b.both(view.given, b.isInside(layout, type.getShape(), reg));
    auto guarded = scf::IfOp::create(b, element, exists, /*addElse=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.thenBlock());
    Value address = stateAddress(b, view.base, view.rowStride, layout, reg, element.getIntOrFloatBitWidth() / 8);
    scf::YieldOp::create(b, b.load(address, element, 1));
    b.setInsertionPointToStart(guarded.elseBlock());
    bool lowest = op.getLowest();
    scf::YieldOp::create(b, lowest ? b.real(element, -std::numeric_limits<double>::infinity()) : b.zero(element));
    return guarded.getResult(0);
  });
}

void ThreadLowering::lowerSave(SaveOp op) {
  const View &view = viewOf(op.getView());
  auto type = cast<RankedTensorType>(op.getTile().getType());
  Layout layout = *layoutOf(type);
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  auto wanted = scf::IfOp::create(b, view.wanted);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(wanted.thenBlock());
  for (auto [reg, value] : llvm::enumerate(registersOf(op.getTile()))) {
    if (!value)
      continue;
    OpBuilder::InsertionGuard inner(b);
    if (Value exists = b.isInside(layout, type.getShape(), reg))
      b.setInsertionPointToStart(scf::IfOp::create(b, exists).thenBlock());
    b.store(stateAddress(b, view.final, view.rowStride, layout, reg, bytes), value);
  }
}

void ThreadLowering::lowerStore(StoreOp op) {
  const View &view = viewOf(op.getView());
  auto type = cast<RankedTensorType>(op.getTile().getType());
  ArrayRef<int64_t> shape = type.getShape();
  Layout layout = *layoutOf(type);
  const Registers &tile = registersOf(op.getTile());
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  Value chunk = scalars.lookup(op.getChunk()), base, valid;
  bool isKept = view.argument->kind == Manifest::Kind::Kept;
  if (isKept) {
    base = b.advance(view.base, b.mul(b.mul(chunk, view.chunkStride), bytes));
  } else {
    Value first = b.mul(chunk, manifest.chunk);
    valid = validTokens(first);
    base = b.advance(view.base, b.mul(b.mul(first, view.rowStride), bytes));
  }

  OpBuilder::InsertionGuard wantedGuard(b);
  if (view.wanted)
    b.setInsertionPointToStart(scf::IfOp::create(b, view.wanted).thenBlock());
  // Pairs of columns go together where rows begin at an even number of elements.
  bool inPairs = shape.size() == 2 && shape[1] % 2 == 0 && layout.bits(Layout::Register) > 0 &&
                 layout.basis(Layout::Register)[0] == 1;
  // Registers of one row share its address and condition.
  llvm::MapVector<int64_t, SmallVector<uint64_t>> rows;
  for (uint64_t reg = 0; reg < tile.size(); reg += inPairs ? 2 : 1)
    if (tile[reg])
      rows[layout.coordinate(layout.at(Layout::Register, reg), 0)].push_back(reg);
  for (auto &[row, members] : rows) {
    Value number = b.coordinate(layout, 0, members.front());
    Value address = b.advance(base, b.mul(b.mul(b.extend(number), view.rowStride), bytes));
    OpBuilder::InsertionGuard guard(b);
    if (valid)
      b.setInsertionPointToStart(scf::IfOp::create(b, b.less(number, valid)).thenBlock());
    for (uint64_t reg : members) {
      OpBuilder::InsertionGuard inner(b);
      // Of a vector, the number of valid tokens says all.
      if (Value exists = shape.size() == 2 || isKept ? b.isInside(layout, shape, reg) : Value())
        b.setInsertionPointToStart(scf::IfOp::create(b, exists).thenBlock());
      Value target = shape.size() == 2 ? b.advance(address, b.mul(b.coordinate(layout, 1, reg), bytes)) : address;
      b.store(target, ArrayRef(tile).slice(reg, inPairs ? 2 : 1));
    }
  }
}
