//===- LowerItems.cpp - What a block is to walk ---------------------------===//

#include "passes/kernel/Meetings.h"
#include "passes/kernel/ThreadLowering.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

Value ThreadLowering::word(int64_t index) {
  return LLVM::LoadOp::create(b, b.getI64Type(), b.advance(block, index * 8), /*alignment=*/8);
}

Value ThreadLowering::placeOfLeft() {
  constexpr int64_t bytes = sizeof(int32_t);
  Value places = LLVM::IntToPtrOp::create(b, b.pointerType(1), word(Manifest::Left));
  return b.advance(places, b.mul(b.extend(NVVM::BlockIdXOp::create(b, b.getI32Type())), bytes));
}

static Value divideUp(ThreadBuilder &b, Value number, Value by) {
  return arith::DivUIOp::create(b, b.add(number, b.sub(by, b.i64(1))), by);
}

LogicalResult ThreadLowering::lowerItem(Value argument) {
  block = argument;
  thread = NVVM::ThreadIdXOp::create(b, b.getI32Type());
  b.lane = arith::AndIOp::create(b, thread, b.i32(lanesOfWarp - 1));
  b.warp = arith::ShRUIOp::create(b, thread, b.i32(bitsToCount(lanesOfWarp)));
  // Taken from the first lane, so that the assembler knows that all lanes have the same: descriptors of matrices are
  // then made once a warp.
  auto hasDescriptors = [](FuncOp function) {
    auto find = [](chunk::DotOp product) { return WalkResult(failure(isOfWarpgroups(product))); };
    return function && function.walk(find).wasInterrupted();
  };
  if (roles.size() > 1 || hasDescriptors(function))
    b.warp = b.shuffleFrom(b.warp, b.i32(0));
  shared = LLVM::AddressOfOp::create(b, b.pointerType(3), sharedMemory);
  // Of a ring of one tile all addresses would be constants, which the assembler makes anew where one thread sends the
  // next tile: then it takes those of products for different ones in different threads.
  if (llvm::any_of(function.getOps<ChannelOp>(), bringsOneAtATime)) {
    Value address = LLVM::PtrToIntOp::create(b, b.getI64Type(), shared), low = b.truncate(address);
    Value above = b.sub(address, b.extend(low));
    shared = LLVM::IntToPtrOp::create(b, b.pointerType(3), b.add(above, b.extend(b.shuffleFrom(low, b.i32(0)))));
  }

  // Blocks of the next kernel that came beside those of a long one would crowd on multiprocessors that it leaves idle;
  // turns are short, and everywhere.
  if (manifest.awaitsLaunches && manifest.segments == Manifest::Segments::Turns)
    NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::launch_dependents);
  if (manifest.takesLeft || manifest.inPlace)
    awaitLaunches();

  Value item = NVVM::BlockIdXOp::create(b, b.getI32Type());
  OpBuilder::InsertionGuard ofLeft(b);
  if (manifest.takesLeft) {
    Value isLeft = b.compare(arith::CmpIPredicate::ne, b.load(placeOfLeft(), b.getI32Type(), 1)[0], b.i32(0));
    b.setInsertionPointToStart(scf::IfOp::create(b, isLeft).thenBlock());
  }
  slice = b.i32(0);
  if (manifest.slices > 1) {
    Value slices = b.i32(manifest.slices);
    slice = arith::RemUIOp::create(b, item, slices);
    item = arith::DivUIOp::create(b, item, slices);
  }
  packed = manifest.inPlace ? b.i1(false) : b.compare(arith::CmpIPredicate::ne, word(Manifest::Offsets), b.i64(0));
  if (manifest.awaitsLaunches && !isAwaited) {
    OpBuilder::InsertionGuard ofOffsets(b);
    b.setInsertionPointToStart(scf::IfOp::create(b, packed).thenBlock());
    NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait);
  }
  if (manifest.independentChunks)
    return lowerChunk(b.extend(item));
  if (manifest.segments == Manifest::Segments::Apart)
    return lowerSegment(b.extend(item));
  int64_t group = manifest.inPlace ? manifest.headsTogether(std::numeric_limits<int32_t>::max()) : 1;
  Value heads = b.truncate(word(Manifest::Heads)), together = arith::MinSIOp::create(b, b.i32(group), heads);
  Value items = group == 1 ? heads : arith::DivUIOp::create(b, heads, together).getResult();
  sequence = b.extend(arith::DivUIOp::create(b, item, items));
  Value first = arith::RemUIOp::create(b, item, items);
  if (group > 1)
    first = b.mul(first, together);
  findTokens();
  stateRow = startRow = sequence;
  if (manifest.walksSegment())
    findSegment();
  if (!manifest.inPlace)
    return lowerHead(first);

  stateRow = startRow = numberAt(word(Manifest::Slots), sequence, sequence);
  OpBuilder::InsertionGuard guard(b);
  Value isRow = b.compare(arith::CmpIPredicate::ult, stateRow, word(Manifest::StateRows));
  auto step = scf::IfOp::create(b, isRow, /*withElseRegion=*/true);
  b.setInsertionPointToStart(step.elseBlock());
  clearOutputs(first, together);
  b.setInsertionPointToStart(step.thenBlock());
  if (group == 1)
    return lowerHead(first);
  // The first head stores what the others read: it comes last.
  loopOverHeads = scf::ForOp::create(b, b.i32(0), together, b.i32(1));
  b.setInsertionPointToStart(loopOverHeads.getBody());
  Value fromLast = b.sub(b.add(together, -1), loopOverHeads.getInductionVar());
  LogicalResult lowered = lowerHead(b.add(first, fromLast));
  b.barrier();
  return lowered;
}

/// Before anything in memory is read or written that others may have left or want to read. What a block is to do, and
/// where, follows from the arguments alone, and is found while others are still at work.
void ThreadLowering::awaitLaunches() {
  if (manifest.awaitsLaunches && !std::exchange(isAwaited, true))
    NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait);
}

void ThreadLowering::clearOutputs(Value firstHead, Value count) {
  auto heads = scf::ForOp::create(b, firstHead, b.add(firstHead, count), b.i32(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(heads.getBody());
  head = heads.getInductionVar();
  int64_t place = Manifest::headerWords;
  for (const Manifest::Argument &each : manifest.arguments) {
    int64_t first = std::exchange(place, place + manifest.words(each.kind));
    if (each.kind != Manifest::Kind::Output)
      continue;
    View view = decodeView(each, first);
    int64_t columns = llvm::product_of(each.shape), bytes = stretto::bytesOf(each.type);
    auto loop = scf::ForOp::create(b, b.i32(0), b.i32(columns), b.i32(manifest.threads));
    OpBuilder::InsertionGuard ofColumn(b);
    b.setInsertionPointToStart(loop.getBody());
    Value column = b.add(loop.getInductionVar(), thread);
    b.setInsertionPointToStart(scf::IfOp::create(b, b.less(column, columns)).thenBlock());
    Value zero = arith::ConstantOp::create(b, b.getIntegerAttr(b.getIntegerType(8 * bytes), 0));
    b.store(b.advance(view.base, b.mul(b.extend(column), bytes)), zero);
  }
}

LogicalResult ThreadLowering::lowerChunk(Value item) {
  Value sequences = word(Manifest::Sequences), chunks = word(Manifest::Chunks), one = b.i64(1);
  Value together = b.add(arith::DivUIOp::create(b, word(Manifest::Tokens), b.i64(manifest.chunk)), sequences);
  Value ofLongest = b.mul(sequences, chunks);
  Value numbers = b.select(packed, arith::MinSIOp::create(b, ofLongest, together), ofLongest);
  auto divide = [&](Value number, Value by) -> Value { return arith::DivUIOp::create(b, number, by); };
  auto rest = [&](Value number, Value by) -> Value { return arith::RemUIOp::create(b, number, by); };
  Value number, owner;
  if (growsWithPlace(function)) {
    // Some heads are interleaved: the longest blocks of them begin first, and the last ones are short, while those of a
    // head still find in the second-level cache what its others have read.
    constexpr int64_t mostInterleaved = 16;
    Value most = b.i64(mostInterleaved), itemsOfGroup = b.mul(numbers, most), inGroup = rest(item, itemsOfGroup);
    Value firstHead = b.mul(divide(item, itemsOfGroup), most);
    Value width = arith::MinSIOp::create(b, most, b.sub(word(Manifest::Heads), firstHead));
    number = divide(inGroup, width);
    owner = b.add(firstHead, rest(inGroup, width));
  } else {
    // Neighbours share tiles.
    number = rest(item, numbers);
    owner = divide(item, numbers);
  }
  auto found = scf::IfOp::create(b, b.getI64Type(), packed, /*addElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(found.thenBlock());
  scf::YieldOp::create(b, sequenceOf(number, b.i64(manifest.chunk), chunks));
  b.setInsertionPointToStart(found.elseBlock());
  scf::YieldOp::create(b, divide(number, chunks));
  b.setInsertionPointAfter(found);
  stateRow = sequence = found.getResult(0);
  findTokens();
  findSegment();
  Value place = b.sub(number, firstCheckpoint(chunks, one));
  Value exists = b.compare(arith::CmpIPredicate::ult, place, b.sub(end, begin));
  b.setInsertionPointToStart(scf::IfOp::create(b, exists).thenBlock());
  // The last comes first: of those that look back without a bound it takes longest.
  ownChunk = b.sub(b.add(end, -1), place);
  return lowerHead(b.truncate(owner));
}

LogicalResult ThreadLowering::lowerSegment(Value item) {
  Value tokensOfSegment = b.mul(word(Manifest::StartInterval), manifest.chunk), sequences = word(Manifest::Sequences),
        heads = word(Manifest::Heads);
  auto found = scf::IfOp::create(b, SmallVector<Type>(3, b.getI64Type()), packed, /*addElse=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(found.thenBlock());
    Value numbers = b.add(arith::DivUIOp::create(b, word(Manifest::Tokens), tokensOfSegment), sequences);
    Value number = arith::RemUIOp::create(b, item, numbers), owner = arith::DivUIOp::create(b, item, numbers);
    scf::YieldOp::create(b, ValueRange{sequenceOf(number, tokensOfSegment), owner, number});
    b.setInsertionPointToStart(found.elseBlock());
    Value items = b.mul(sequences, heads), pair = arith::RemUIOp::create(b, item, items);
    Value inRange = b.add(arith::DivUIOp::create(b, item, items),
                          arith::DivUIOp::create(b, word(Manifest::FirstChunk), word(Manifest::StartInterval)));
    scf::YieldOp::create(
        b, ValueRange{arith::DivUIOp::create(b, pair, heads), arith::RemUIOp::create(b, pair, heads), inRange});
  }
  stateRow = sequence = found.getResult(0);
  findTokens();
  Value before = b.add(arith::DivUIOp::create(b, firstToken, tokensOfSegment), sequence);
  segment = b.select(packed, b.sub(found.getResult(2), before), found.getResult(2));
  findSegmentApart();
  return lowerHead(b.truncate(found.getResult(1)));
}

Value ThreadLowering::sequenceOf(Value number, Value tokensOfNumber, Value numbersOfLongest) {
  // Bisection: the last sequence whose first number is at most this. As few halvings as there are sequences suffice;
  // their number is known to nobody before, so that they stay a loop.
  constexpr int64_t mostHalvings = 32;
  Value halvings = b.truncate(arith::MinSIOp::create(b, word(Manifest::Sequences), b.i64(mostHalvings)));
  Value offsets = LLVM::IntToPtrOp::create(b, b.pointerType(1), word(Manifest::Offsets));
  auto loop = scf::ForOp::create(b, b.i32(0), halvings, b.i32(1), ValueRange{b.i64(0), word(Manifest::Sequences)});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value low = loop.getRegionIterArg(0), count = loop.getRegionIterArg(1);
  Value half = arith::ShRUIOp::create(b, count, b.i64(1)), middle = b.add(low, half);
  Value isOpen = b.compare(arith::CmpIPredicate::sgt, count, b.i64(1));
  auto halved = scf::IfOp::create(b, TypeRange{b.getI64Type(), b.getI64Type()}, isOpen, /*addElse=*/true);
  scf::YieldOp::create(b, halved.getResults());
  b.setInsertionPointToStart(halved.thenBlock());
  Value first = b.load(b.advance(offsets, b.mul(middle, 8)), b.getI64Type(), 1)[0];
  Value begins = b.add(arith::DivUIOp::create(b, first, tokensOfNumber), middle);
  if (numbersOfLongest)
    begins = arith::MinSIOp::create(b, b.mul(middle, numbersOfLongest), begins);
  Value isBefore = b.compare(arith::CmpIPredicate::sle, begins, number);
  scf::YieldOp::create(b, ValueRange{b.select(isBefore, middle, low), b.select(isBefore, b.sub(count, half), half)});
  b.setInsertionPointToStart(halved.elseBlock());
  scf::YieldOp::create(b, ValueRange{low, count});
  return loop.getResult(0);
}

Value ThreadLowering::numberAt(Value address, Value index, Value otherwise) {
  Value exists = b.compare(arith::CmpIPredicate::ne, address, b.i64(0));
  auto number = scf::IfOp::create(b, b.getI64Type(), exists, /*addElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(number.thenBlock());
  Value numbers = LLVM::IntToPtrOp::create(b, b.pointerType(1), address);
  scf::YieldOp::create(b, b.load(b.advance(numbers, b.mul(index, 8)), b.getI64Type(), 1));
  b.setInsertionPointToStart(number.elseBlock());
  scf::YieldOp::create(b, otherwise);
  return number.getResult(0);
}

LogicalResult ThreadLowering::lowerHead(Value number) {
  head = number;
  auto isPlaced = [](const Manifest::Argument &argument) {
    return argument.kind == Manifest::Kind::Table || argument.kind == Manifest::Kind::Window;
  };
  bool hasPosition = llvm::any_of(manifest.arguments, isPlaced);
  if (hasPosition)
    awaitLaunches();
  position = hasPosition ? numberAt(word(Manifest::Positions), stateRow, b.i64(0)) : b.i64(0);
  held = b.i64(0);
  int64_t place = Manifest::headerWords, boxes = manifest.firstBoxWord();
  for (const Manifest::Argument &each : manifest.arguments) {
    views.push_back(decodeView(each, place));
    place += manifest.words(each.kind);
    if (each.box) {
      views.back().boxes = b.advance(block, boxes * 8);
      boxes += Manifest::boxWords;
    }
  }
  return lowerRoles();
}

void ThreadLowering::findTokens() {
  if (manifest.inPlace) {
    firstToken = b.i64(0);
    tokens = b.i64(1);
    return;
  }
  Value offsets = word(Manifest::Offsets);
  auto range = scf::IfOp::create(b, TypeRange{b.getI64Type(), b.getI64Type()}, packed, /*addElse=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(range.thenBlock());
    Value pointer = LLVM::IntToPtrOp::create(b, b.pointerType(1), offsets);
    pointer = b.advance(pointer, b.mul(sequence, 8));
    Value first = b.load(pointer, b.getI64Type(), 1)[0], last = b.load(b.advance(pointer, 8), b.getI64Type(), 1)[0];
    // Offsets are not checked on a device; whatever they are, nothing outside of the tensors is touched.
    auto between = [&](Value low, Value number, Value high) -> Value {
      return arith::MinSIOp::create(b, arith::MaxSIOp::create(b, number, low), high);
    };
    first = between(b.i64(0), first, word(Manifest::Tokens));
    last = between(first, last, word(Manifest::Tokens));
    scf::YieldOp::create(b, ValueRange{first, b.sub(last, first)});
    b.setInsertionPointToStart(range.elseBlock());
    scf::YieldOp::create(b, ValueRange{b.i64(0), word(Manifest::Tokens)});
  }
  firstToken = range.getResult(0);
  tokens = range.getResult(1);
}

Value ThreadLowering::firstCheckpoint(Value chunks, Value interval) {
  Value before = b.select(packed, firstToken, b.mul(sequence, tokens));
  Value ofSequence = divideUp(b, chunks, interval);
  Value together = arith::DivUIOp::create(b, before, b.mul(interval, manifest.chunk));
  return arith::MinSIOp::create(b, b.mul(sequence, ofSequence), b.add(together, sequence));
}

void ThreadLowering::findSegmentApart() {
  Value none = b.i64(0), chunk = b.i64(manifest.chunk), chunks = divideUp(b, tokens, chunk),
        every = word(Manifest::StartInterval), before = word(Manifest::ChunksBefore);
  auto least = [&](Value left, Value right) -> Value { return arith::MinSIOp::create(b, left, right); };
  auto isLess = [&](Value left, Value right) { return b.compare(arith::CmpIPredicate::slt, left, right); };
  auto isEqual = [&](Value left, Value right) { return b.compare(arith::CmpIPredicate::eq, left, right); };
  auto either = [&](Value left, Value right) -> Value { return arith::OrIOp::create(b, left, right); };
  Value first = word(Manifest::FirstChunk), last = least(b.add(first, word(Manifest::Chunks)), chunks);
  firstKept = least(first, chunks);
  auto inRange = [&](Value number) { return least(arith::MaxSIOp::create(b, number, firstKept), last); };
  Value own = b.mul(segment, every), next = b.add(own, every), isOwn = isEqual(before, none);
  if (manifest.reverse) {
    begin = inRange(b.select(isOwn, own, next));
    end = inRange(b.add(next, before));
  } else {
    begin = inRange(b.sub(own, before));
    end = inRange(b.select(isOwn, next, own));
  }
  startRow = b.add(firstCheckpoint(word(Manifest::ChunksPlaced), every),
                   b.sub(segment, arith::DivUIOp::create(b, word(Manifest::FirstPlaced), every)));
  // What is walked in the place of a segment that there is not would be left beyond the last place.
  Value isThere = isLess(inRange(own), inRange(next));
  exists = b.both(isLess(begin, end), isThere);
  if (manifest.reverse) {
    Value firstOfRange = b.select(packed, none, arith::DivUIOp::create(b, first, every));
    Value passes = b.both(isEqual(firstKept, last), isEqual(segment, firstOfRange));
    // What is walked behind a segment begins, at the end of the range, with what there is behind that.
    isFirst = b.select(isOwn, passes, isEqual(end, last));
    exists = b.select(isOwn, exists, isThere);
    isLast = either(passes, b.both(exists, isEqual(begin, firstKept)));
  } else {
    isFirst = isEqual(begin, none);
    isLast = b.both(isEqual(end, chunks), either(exists, isEqual(segment, none)));
  }
  checkpoint = firstCheckpoint(word(Manifest::Chunks), word(Manifest::CheckpointInterval));
  findInterval();
}

/// With the reciprocal r = (2^32 + e) / i, rounded up by e < i, and n = q i + m, n r = 2^32 q + (q e + m r). Where
/// (n + i) i < 2^32 the sum in brackets has 32 bits, and is less than r only if m is 0, as q e < n < r. One has no
/// reciprocal of 32 bits.
ThreadLowering::Interval ThreadLowering::Interval::of(Value number, Value chunks, ThreadBuilder &b) {
  Interval interval;
  Value one = b.i32(1);
  interval.number = b.truncate(number);
  interval.isOne = b.compare(arith::CmpIPredicate::eq, interval.number, one);
  Value divisor = arith::MaxUIOp::create(b, interval.number, one);
  interval.reciprocal = b.add(arith::DivUIOp::create(b, b.i32(-1), divisor), one);
  constexpr int64_t bits = int64_t(1) << 32;
  interval.isExact = b.compare(arith::CmpIPredicate::ult, b.mul(b.add(chunks, number), number), b.i64(bits));
  return interval;
}

std::pair<Value, Value> ThreadLowering::Interval::divide(Value dividend, ThreadBuilder &b) const {
  auto divided = scf::IfOp::create(b, TypeRange{b.getI32Type(), b.getI1Type()}, isExact, /*addElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(divided.thenBlock());
  auto wide = [&](Value number) -> Value { return arith::ExtUIOp::create(b, b.getI64Type(), number); };
  Value product = b.mul(wide(dividend), wide(reciprocal));
  Value high = b.truncate(arith::ShRUIOp::create(b, product, b.i64(32)));
  Value isLess = b.compare(arith::CmpIPredicate::ult, b.truncate(product), reciprocal);
  scf::YieldOp::create(b, ValueRange{b.select(isOne, dividend, high), arith::OrIOp::create(b, isOne, isLess)});
  b.setInsertionPointToStart(divided.elseBlock());
  Value quotient = arith::DivUIOp::create(b, dividend, number);
  scf::YieldOp::create(b, ValueRange{quotient, b.compare(arith::CmpIPredicate::eq, b.mul(quotient, number), dividend)});
  return {divided.getResult(0), divided.getResult(1)};
}

/// Nothing is divided where all chunks have checkpoints, or none.
void ThreadLowering::findInterval() {
  bool keeps = llvm::any_of(manifest.arguments,
                            [](const Manifest::Argument &argument) { return argument.kind == Manifest::Kind::Kept; });
  if (keeps && !manifest.recorded)
    interval = Interval::of(word(Manifest::CheckpointInterval), word(Manifest::Chunks), b);
}

void ThreadLowering::findSegment() {
  Value chunk = b.i64(manifest.chunk), chunks = divideUp(b, tokens, chunk);
  begin = arith::MinSIOp::create(b, word(Manifest::FirstChunk), chunks);
  end = arith::MinSIOp::create(b, b.add(begin, word(Manifest::Chunks)), chunks);
  if (manifest.segments == Manifest::Segments::Turns) {
    Value every = word(Manifest::CheckpointInterval);
    begin = divideUp(b, begin, every);
    end = divideUp(b, end, every);
    firstKept = arith::DivUIOp::create(b, word(Manifest::FirstPlaced), every);
    checkpoint = firstCheckpoint(word(Manifest::ChunksPlaced), every);
    return;
  }
  firstKept = begin;
  checkpoint = firstCheckpoint(word(Manifest::Chunks), word(Manifest::CheckpointInterval));
  findInterval();
  // The row of the checkpoint that a segment begins with. A sequence that has ended begins with any.
  Value every = arith::MaxSIOp::create(b, word(Manifest::StartInterval), b.i64(1));
  Value areCheckpoints = b.compare(arith::CmpIPredicate::ne, word(Manifest::StartInterval), b.i64(0));
  Value row = firstCheckpoint(word(Manifest::ChunksPlaced), every);
  Value isEnded = b.compare(arith::CmpIPredicate::eq, begin, end);
  Value fromFirst = arith::DivUIOp::create(b, b.sub(begin, word(Manifest::FirstPlaced)), every);
  row = b.add(row, b.select(isEnded, b.i64(0), fromFirst));
  startRow = b.select(areCheckpoints, row, stateRow);
}
