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
  if (argument.partial)
    ownHead = b.add(b.mul(ownHead, b.i32(manifest.slices)), slice);
  Value headIndex = b.extend(ownHead);
  view.head = headIndex;
  int64_t bytes = stretto::bytesOf(argument.type);
  auto pointerAt = [&](int64_t index) -> Value { return LLVM::IntToPtrOp::create(b, b.pointerType(1), word(index)); };

  // The first element of the item, in elements from the pointer.
  Value offset;
  switch (argument.kind) {
  case Kind::Input:
  case Kind::Output: {
    view.rowStride = word(first + 2);
    Value ofTokens = b.mul(firstToken, view.rowStride), ofSequences = b.mul(sequence, word(first + 1));
    // Parts of a packed batch lie as near as sequences of a segment may.
    if (argument.isInParts())
      ofTokens = arith::MinSIOp::create(b, ofTokens, ofSequences);
    Value ofSequence = b.select(packed, ofTokens, ofSequences);
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
    view.period = b.select(b.compare(arith::CmpIPredicate::eq, view.period, b.i64(0)), b.i64(INT32_MAX), view.period);
    view.phase = b.truncate(arith::RemUIOp::create(b, position, view.period));
    view.period = b.truncate(view.period);
    break;
  case Kind::Checkpoint:
  case Kind::Kept: {
    view.chunkStride = word(first + 1);
    offset = b.add(b.mul(checkpoint, view.chunkStride), b.mul(headIndex, word(first + 2)));
    if (argument.shape.size() == 2)
      view.rowStride = b.i64(argument.shape[1] * argument.parts(manifest.slices));
    else
      view.rowStride = b.i64(1);
    break;
  }
  case Kind::Window:
  case Kind::State: {
    bool isApart = manifest.segments == Manifest::Segments::Apart;
    Value row = argument.kind == Kind::State && !isApart ? startRow : stateRow;
    offset = b.add(b.mul(row, word(first + 2)), b.mul(headIndex, word(first + 3)));
    view.rowStride = word(first + 4);
    break;
  }
  }
  if (argument.sliced) {
    Value channel = b.mul(b.extend(slice), argument.shape.back());
    // The entries of a vector are one column of the state object.
    bool isColumn = argument.kind == Kind::State && argument.shape.size() == 1;
    offset = b.add(offset, isColumn ? b.mul(channel, view.rowStride) : channel);
  }
  Value offsetBytes = b.mul(offset, bytes);
  view.base = b.advance(pointerAt(first), offsetBytes);
  if (argument.kind == Kind::State || argument.kind == Kind::Window) {
    auto isGiven = [&](int64_t index) { return b.compare(arith::CmpIPredicate::ne, word(index), b.i64(0)); };
    view.final = view.base;
    view.finalStride = view.rowStride;
    if (!manifest.inPlace) {
      view.given = isGiven(first);
      view.final = b.advance(pointerAt(first + 1), offsetBytes);
      view.wanted = isGiven(first + 1);
    }
  }
  if (argument.kind == Kind::State && manifest.segments == Manifest::Segments::Apart)
    placeSegment(view, first + Manifest::stateWords);
  // What heads share is left by the first of them.
  if (argument.kind == Kind::Window) {
    held = arith::MinSIOp::create(b, position, b.i64(windowLength()));
    if (view.given)
      held = b.select(view.given, held, b.i64(0));
  }
  if (isShared && (argument.kind == Kind::State || argument.kind == Kind::Window || argument.kind == Kind::Kept)) {
    Value place = arith::RemUIOp::create(b, head, b.i32(argument.group));
    view.wanted = b.both(view.wanted, b.compare(arith::CmpIPredicate::eq, place, b.i32(0)));
  }
  return view;
}

void ThreadLowering::placeSegment(View &view, int64_t first) {
  const Manifest::Argument &argument = *view.argument;
  int64_t columns = argument.shape.back() * argument.parts(manifest.slices), bytes = stretto::bytesOf(argument.type);
  Value stride = b.i64(argument.shape.size() == 2 ? columns : 1);
  Value offset = b.add(b.mul(startRow, word(first + 2)), b.mul(view.head, word(first + 3)));
  if (argument.sliced)
    offset = b.add(offset, b.mul(b.extend(slice), argument.shape.back()));
  auto isGiven = [&](int64_t index) { return b.compare(arith::CmpIPredicate::ne, word(index), b.i64(0)); };
  auto placeOf = [&](int64_t index) {
    return b.advance(LLVM::IntToPtrOp::create(b, b.pointerType(1), word(index)), b.mul(offset, bytes));
  };
  Value isLeft = isGiven(first + 1), initialStride = view.rowStride;
  view.base = b.select(isFirst, view.base, placeOf(first));
  view.rowStride = b.select(isFirst, initialStride, stride);
  view.given = b.select(isFirst, view.given, b.both(isGiven(first), exists));
  view.final = b.select(isLeft, placeOf(first + 1), view.final);
  view.finalStride = b.select(isLeft, stride, initialStride);
  view.wanted = b.select(isLeft, exists, b.both(view.wanted, isLast));
}

/// How many tokens a chunk of `count` has that begins at `firstToken` of the sequence: none beyond its end.
Value ThreadLowering::validTokens(Value firstToken, int64_t count) {
  Value left = arith::MaxSIOp::create(b, b.sub(tokens, firstToken), b.i64(0));
  return b.truncate(arith::MinSIOp::create(b, left, b.i64(count)));
}

ThreadLowering::Place ThreadLowering::checkpointOf(Value chunk) {
  // It exists where its chunk has tokens, in the range, or where there is the turn. Segments that are not of the range,
  // as a packed batch has some, have a chunk behind it.
  Place place = {b.sub(chunk, firstKept), Value()};
  if (manifest.segments == Manifest::Segments::Turns) {
    // Where turns keep what segments begin with, nobody begins with what the last one leaves.
    bool keeps = llvm::any_of(manifest.arguments,
                              [](const Manifest::Argument &argument) { return argument.kind == Manifest::Kind::Kept; });
    Value low = keeps && manifest.reverse ? b.add(begin, 1) : begin;
    Value high = keeps && !manifest.reverse ? b.add(end, -1) : end;
    place.exists =
        b.both(b.compare(arith::CmpIPredicate::slt, chunk, high), b.compare(arith::CmpIPredicate::sge, chunk, low));
    return place;
  }
  Value valid = validTokens(b.mul(chunk, manifest.chunk), manifest.chunk);
  place.exists = b.both(b.compare(arith::CmpIPredicate::sgt, valid, b.i32(0)),
                        b.compare(arith::CmpIPredicate::ult, place.number, word(Manifest::Chunks)));
  if (manifest.interval > 1)
    place.number = arith::DivUIOp::create(b, place.number, b.i64(manifest.interval));
  return place;
}

bool ThreadLowering::mayBeNegative(Value chunk) {
  if (chunk.getDefiningOp<arith::SubIOp>())
    return true;
  auto sum = chunk.getDefiningOp<arith::AddIOp>();
  return sum && llvm::any_of(sum->getOperands(), [](Value term) {
           return getConstantIntValue(term).value_or(0) < 0 || mayBeNegative(term);
         });
}

Value ThreadLowering::noneBefore(Value first, Value valid) {
  return b.select(b.compare(arith::CmpIPredicate::slt, first, b.i64(0)), b.i32(0), valid);
}

ThreadLowering::Rows ThreadLowering::rowsOf(const View &view, Value chunk, RankedTensorType tile, bool mayBeBefore) {
  Rows rows;
  rows.base = view.base;
  if (view.argument->kind == Manifest::Kind::State) {
    rows.stride = tile.getRank() ? view.rowStride : Value();
    return rows;
  }
  if (!chunk) {
    int64_t parts = view.argument->parts(manifest.slices), columns = view.argument->columns;
    if (tile.getRank() == 2)
      rows.stride = b.i64(columns ? columns : tile.getDimSize(1) * parts);
    return rows;
  }
  if (view.argument->kind == Manifest::Kind::Checkpoint) {
    Place place = checkpointOf(chunk);
    rows.stride = tile.getRank() == 2 ? view.rowStride : Value();
    rows.exist = place.exists;
    Value offset = b.mul(b.mul(place.number, view.chunkStride), stretto::bytesOf(view.argument->type));
    rows.base = b.advance(rows.base, offset);
    return rows;
  }
  int64_t count = tile.getDimSize(0);
  Value first = b.mul(chunk, count);
  rows.stride = view.rowStride;
  rows.valid = validTokens(first, count);
  // A walk back comes to its end before the start, where there are windows alone.
  bool isRing = view.argument->kind == Manifest::Kind::Window;
  if ((manifest.reverse || mayBeBefore) && !isRing)
    rows.valid = noneBefore(first, rows.valid);
  if (windowLength()) {
    Value missing = arith::MaxSIOp::create(b, b.sub(b.i64(0), b.add(held, first)), b.i64(0));
    rows.from = b.truncate(arith::MinSIOp::create(b, missing, b.i64(count)));
  }
  if (isRing) {
    rows.first = b.add(position, first);
    rows.period = b.i64(windowLength());
    return rows;
  }
  if (view.argument->kind == Manifest::Kind::Table) {
    // A period has as many rows as a chunk, at least, so that those of a chunk begin again once at most.
    Value row = arith::RemUIOp::create(b, b.add(view.phase, b.truncate(first)), view.period);
    rows.turn = b.sub(view.period, row);
    rows.again = view.period;
    first = b.extend(row);
  }
  rows.base = b.advance(rows.base, b.mul(b.mul(first, rows.stride), stretto::bytesOf(view.argument->type)));
  return rows;
}

Value ThreadLowering::addressIn(const Rows &rows, const Layout &layout, uint64_t reg, int64_t elementBytes) {
  Value index;
  if (rows.stride) {
    Value row = b.coordinate(layout, 0, reg);
    if (rows.turn) {
      Value again = b.sub(row, b.select(b.less(row, rows.turn), b.i32(0), rows.again));
      row = arith::ExtSIOp::create(b, b.getI64Type(), again);
    } else {
      row = b.extend(row);
    }
    if (rows.period)
      row = arith::RemUIOp::create(b, b.add(row, rows.first), rows.period);
    index = b.mul(row, rows.stride);
  }
  if (layout.rank() == (rows.stride ? 2 : 1)) {
    Value column = b.extend(b.coordinate(layout, layout.rank() - 1, reg));
    index = index ? b.add(index, column) : column;
  }
  return index ? b.advance(rows.base, b.mul(index, elementBytes)) : rows.base;
}

Value ThreadLowering::existsIn(const Rows &rows, const Layout &layout, ArrayRef<int64_t> shape, uint64_t reg) {
  Value exists = b.both(b.isInside(layout, shape, reg), rows.exist);
  if (rows.valid)
    exists = b.both(exists, b.less(b.coordinate(layout, 0, reg), rows.valid));
  if (rows.from)
    exists = b.both(exists, b.compare(arith::CmpIPredicate::sge, b.coordinate(layout, 0, reg), rows.from));
  return exists;
}

//===----------------------------------------------------------------------===//
// Channels
//===----------------------------------------------------------------------===//

void ThreadLowering::lowerChannel(ChannelOp op) {
  int64_t ofGroup = group && !op.getPassed() ? group * bytesOfGroup(op.bytesOfTiles()) : 0;
  channels[op.getResult()] = b.advance(shared, static_cast<int64_t>(*op.getOffset()) + ofGroup);
  if (op.getBulk() && !op.getPassed())
    openBoxes(op);
}

static int64_t depthOf(Value channel) { return channel.getDefiningOp<ChannelOp>().getDepth(); }

Value ThreadLowering::placeInRing(Value channel, Value number, RankedTensorType type) {
  Value first = channels.lookup(channel);
  int64_t depth = depthOf(channel);
  if (depth == 1 || !number)
    return first;
  Value place = arith::RemUIOp::create(b, b.truncate(scalars.lookup(number)), b.i32(depth));
  return b.advance(first, b.mul(place, sharedBytesOf(type)));
}

void ThreadLowering::lowerReceive(ReceiveOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  Value number = op.getTurn() ? op.getTurn() : op.getChunk();
  SharedTile tile(type, placeInRing(op.getChannel(), number, type));
  if (isBulk(op.getChannel()))
    awaitBoxes(op, tile);
  else if (op.getChannel().getDefiningOp<ChannelOp>().getPassed())
    awaitPhase(op.getChannel().getDefiningOp<ChannelOp>(), scalars.lookup(op.getTurn()));
  sharedTiles[op.getResult()] = tile;
}

void ThreadLowering::lowerReplace(ReplaceOp op) {
  RankedTensorType target = op.getChannel().getType().getTile();
  auto source = cast<RankedTensorType>(op.getTile().getType());
  SharedTile tile(target, placeInRing(op.getChannel(), op.getTurn() ? op.getTurn() : op.getChunk(), target));
  if (op.getMatrices())
    matricesToShared(registersOf(op.getTile()), source, tile);
  else
    toShared(registersOf(op.getTile()), source, tile);
}

void ThreadLowering::lowerSend(SendOp op) {
  const View &view = viewOf(op.getView());
  if (!isBulk(op.getChannel()))
    return copyRows(op);
  if (view.argument->kind != Manifest::Kind::Window)
    return sendBoxes(op);
  copyRows(op);
  arriveWithRows(op);
}

void ThreadLowering::copyRows(SendOp op) {
  const View &view = viewOf(op.getView());
  RankedTensorType type = op.getChannel().getType().getTile();
  ArrayRef<int64_t> shape = type.getShape();
  Type element = type.getElementType();
  Value chunk = op.getChunk() ? scalars.lookup(op.getChunk()) : Value();
  SharedTile tile(type, placeInRing(op.getChannel(), op.getTurn() ? op.getTurn() : op.getChunk(), type));
  int64_t elementBytes = tile.elementBytes();
  bool hasTokens = chunk && view.argument->kind != Manifest::Kind::Checkpoint;

  // What lies side by side in memory: a row, and all of a vector that has no tokens.
  int64_t neighbours = shape.size() == 2 ? shape[1] : shape.size() == 1 && !hasTokens ? shape[0] : 1;
  if (shape.size() == 2 && view.argument->kind == Manifest::Kind::Table)
    neighbours = Manifest::strideOfTable(neighbours, view.argument->type);
  int64_t rowBytes = neighbours * elementBytes, pieceBytes = std::min<int64_t>(16, rowBytes & -rowBytes);
  int64_t perPiece = pieceBytes / elementBytes;
  Layout layout = copyLayout(shape, perPiece, function.getWarps());

  Rows rows = rowsOf(view, chunk, type, op.getChunk() && mayBeNegative(op.getChunk()));
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
    bool isPadding = ThreadBuilder::inside(layout, shape, reg) == ThreadBuilder::Inside::Never;
    Value exists = isPadding ? b.i1(false) : existsIn(rows, layout, shape, reg);
    Value source = addressIn(rows, layout, reg, elementBytes), target = addresses.at(layout.at(Layout::Register, reg));
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
// Registers
//===----------------------------------------------------------------------===//

/// How many neighbouring elements a thread can load or store in one access.
static int64_t elementsPerAccess(const Layout &layout, const Manifest::Argument &argument) {
  return std::min(neighbouringColumns(layout), argument.perAccess());
}

/// Emits `body` where a condition holds, if there is one.
static void where(ThreadBuilder &b, Value condition, function_ref<void()> body) {
  OpBuilder::InsertionGuard guard(b);
  if (condition)
    b.setInsertionPointToStart(scf::IfOp::create(b, condition).thenBlock());
  body();
}

/// Whether a load of the same entry stands before this one, and has waited for it.
static bool hasArrived(LoadOp load) {
  return llvm::any_of(load.getView().getDefiningOp()->getUsers(), [&](Operation *user) {
    return isa<LoadOp>(user) && user->getBlock() == load->getBlock() && user->isBeforeInBlock(load);
  });
}

void ThreadLowering::lowerLoad(LoadOp op) {
  const View &view = viewOf(op.getView());
  if (view.arrival && !hasArrived(op))
    awaitParity(view.arrival, view.parity);
  auto type = cast<RankedTensorType>(op.getType());
  Layout layout = *layoutOf(type);
  Type element = type.getElementType();
  int64_t bytes = element.getIntOrFloatBitWidth() / 8, together = elementsPerAccess(layout, *view.argument);
  Rows rows = rowsOf(view, op.getChunk() ? scalars.lookup(op.getChunk()) : Value(), type);
  SmallVector<uint64_t> accesses;
  for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += together)
    if (ThreadBuilder::inside(layout, type.getShape(), reg) != ThreadBuilder::Inside::Never)
      accesses.push_back(reg);
  Value otherwise = op.getLowest() ? b.real(element, -std::numeric_limits<double>::infinity()) : b.zero(element);
  auto loadWhere = [&](Value condition, size_t count, function_ref<void(Registers &)> load) {
    Registers loaded;
    if (!condition) {
      load(loaded);
      return loaded;
    }
    auto guarded = scf::IfOp::create(b, SmallVector<Type>(count, element), condition, /*addElse=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(guarded.elseBlock());
    scf::YieldOp::create(b, Registers(count, otherwise));
    b.setInsertionPointToStart(guarded.thenBlock());
    load(loaded);
    scf::YieldOp::create(b, loaded);
    return Registers(guarded.getResults());
  };
  // All that exists is asked for at once: nothing between two loads waits for the first.
  Registers loaded = loadWhere(view.given, accesses.size() * together, [&](Registers &all) {
    for (uint64_t reg : accesses)
      llvm::append_range(all, loadWhere(existsIn(rows, layout, type.getShape(), reg), together, [&](Registers &some) {
                           some = b.load(addressIn(rows, layout, reg, bytes), element, together);
                         }));
  });
  Registers &result = registers[op.getResult()];
  result.resize(layout.size(Layout::Register));
  for (auto [index, reg] : llvm::enumerate(accesses))
    llvm::copy(ArrayRef(loaded).slice(index * together, together), result.begin() + reg);
}

void ThreadLowering::lowerSave(SaveOp op) {
  const View &view = viewOf(op.getView());
  auto type = cast<RankedTensorType>(op.getTile().getType());
  Layout layout = *layoutOf(type);
  int64_t bytes = type.getElementTypeBitWidth() / 8, together = elementsPerAccess(layout, *view.argument);
  Rows rows = rowsOf(view, Value(), type);
  rows.base = view.final;
  rows.stride = rows.stride ? view.finalStride : Value();
  const Registers &tile = registersOf(op.getTile());
  where(b, b.both(view.wanted, b.isFirstCopy(layout)), [&] {
    for (uint64_t reg = 0; reg < tile.size(); reg += together)
      if (tile[reg])
        where(b, existsIn(rows, layout, type.getShape(), reg),
              [&] { b.store(addressIn(rows, layout, reg, bytes), ArrayRef(tile).slice(reg, together)); });
  });
}

Registers ThreadLowering::stage(StoreOp op, RankedTensorType target) {
  auto type = cast<RankedTensorType>(op.getTile().getType());
  SharedTile tile = scratchTile(scratchOf(op), type);
  // Warps have parts of their own there; what a lane reads others have left, and will leave again.
  auto meet = [&] { NVVM::SyncWarpOp::create(b, b.i32(-1)); };
  if (op.getMatrices())
    matricesToShared(registersOf(op.getTile()), type, tile);
  else
    toShared(registersOf(op.getTile()), type, tile);
  meet();
  Registers result = fromShared(tile, target);
  meet();
  return result;
}

void ThreadLowering::lowerStore(StoreOp op) {
  auto type = cast<RankedTensorType>(op.getTile().getType());
  if (inSharedMemory(type))
    return storeLeft(op);
  if (op.getStaged())
    type = withLayout(type, *alongRows(*layoutOf(type), viewOf(op.getView()).argument->perAccess()));
  if (op.getBulk())
    storeBoxes(op, type);
  else
    storeRows(op, op.getStaged() ? stage(op, type) : registersOf(op.getTile()), type);
}

ThreadLowering::Place ThreadLowering::keptPlaceOf(StoreOp op) {
  Value number = b.truncate(b.sub(scalars.lookup(op.getChunk()), firstKept)), wanted = viewOf(op.getView()).wanted;
  if (manifest.recorded)
    return {b.extend(number), wanted};
  auto [place, isMultiple] = interval.divide(number, b);
  return {b.extend(place), b.both(wanted, isMultiple)};
}

void ThreadLowering::storeRows(StoreOp op, ArrayRef<Value> tile, RankedTensorType type) {
  const View &view = viewOf(op.getView());
  ArrayRef<int64_t> shape = type.getShape();
  Layout layout = *layoutOf(type);
  int64_t bytes = type.getElementTypeBitWidth() / 8;
  Value chunk = scalars.lookup(op.getChunk()), base, valid;
  bool isKept = view.argument->kind == Manifest::Kind::Kept;
  Value isWanted = view.wanted;
  if (isKept && manifest.segments == Manifest::Segments::Turns) {
    base = b.advance(view.base, b.mul(b.mul(b.sub(chunk, firstKept), view.chunkStride), bytes));
  } else if (isKept) {
    Place place = keptPlaceOf(op);
    isWanted = place.exists;
    base = b.advance(view.base, b.mul(b.mul(place.number, view.chunkStride), bytes));
  } else {
    Value first = b.mul(chunk, manifest.chunk);
    valid = validTokens(first, manifest.chunk);
    base = b.advance(view.base, b.mul(b.mul(first, view.rowStride), bytes));
  }

  int64_t together = shape.size() == 2 ? elementsPerAccess(layout, *view.argument) : 1;
  // Registers of one row share its address and condition.
  llvm::MapVector<int64_t, SmallVector<uint64_t>> rows;
  for (uint64_t reg = 0; reg < tile.size(); reg += together)
    if (tile[reg])
      rows[layout.coordinate(layout.at(Layout::Register, reg), 0)].push_back(reg);
  for (auto &[row, members] : rows) {
    Value number = b.coordinate(layout, 0, members.front());
    Value address = b.advance(base, b.mul(b.mul(b.extend(number), view.rowStride), bytes));
    Value isOwn = b.both(isWanted, b.isFirstCopy(layout));
    where(b, valid ? b.both(isOwn, b.less(number, valid)) : isOwn, [&] {
      for (uint64_t reg : members) {
        // Of a vector, the number of valid tokens says all.
        where(b, shape.size() == 2 || isKept ? b.isInside(layout, shape, reg) : Value(), [&] {
          Value target = shape.size() == 2 ? b.advance(address, b.mul(b.coordinate(layout, 1, reg), bytes)) : address;
          b.store(target, tile.slice(reg, together));
        });
      }
    });
  }
}

void ThreadLowering::lowerCarry(CarryOp op) {
  const View &source = viewOf(op.getView()), &window = viewOf(op.getWindow());
  RankedTensorType type = cast<ViewType>(op.getView().getType()).getTile();
  Type element = type.getElementType();
  int64_t bytes = element.getIntOrFloatBitWidth() / 8;
  int64_t together = type.getRank() == 2 ? std::min(source.argument->perAccess(), window.argument->perAccess()) : 1;
  Layout layout = copyLayout(type.getShape(), together, function.getWarps());
  Rows rows = rowsOf(source, scalars.lookup(op.getChunk()), type);
  Value first = b.mul(scalars.lookup(op.getChunk()), manifest.chunk);
  // The tokens that later ones of the sequence replace are left out.
  Value replaced = b.sub(b.sub(tokens, first), b.i64(windowLength()));
  rows.from = b.truncate(arith::MaxSIOp::create(b, replaced, b.i64(0)));
  Rows ring{.base = window.final,
            .stride = window.rowStride,
            .first = b.add(position, first),
            .period = b.i64(windowLength())};
  where(b, b.both(window.wanted, b.less(rows.from, rows.valid)), [&] {
    for (int64_t reg = 0; reg < layout.size(Layout::Register); reg += together) {
      if (ThreadBuilder::inside(layout, type.getShape(), reg) == ThreadBuilder::Inside::Never)
        continue;
      where(b, existsIn(rows, layout, type.getShape(), reg), [&] {
        b.store(addressIn(ring, layout, reg, bytes), b.load(addressIn(rows, layout, reg, bytes), element, together));
      });
    }
  });
}
