//===- LowerToThreads.cpp - From a block to one of its threads ------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/ThreadLowering.h"

namespace stretto {
#define GEN_PASS_DEF_LOWERTOTHREADS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

static constexpr StringLiteral sharedMemory = "stretto_shared";

//===----------------------------------------------------------------------===//
// The frame
//===----------------------------------------------------------------------===//

/// Layouts may come from a file: those that the lowering cannot follow are refused.
LogicalResult ThreadLowering::checkLayouts() {
  unsigned laneBits = bitsToCount(lanesOfWarp), warpBits = bitsToCount(function.getWarps());
  auto check = [&](Operation *op, Type type) -> LogicalResult {
    auto channel = dyn_cast<ChannelType>(type);
    auto tile = channel ? channel.getTile() : dyn_cast<RankedTensorType>(type);
    if (!tile || (isa<arith::ConstantOp>(op) && op->use_empty()))
      return success();
    std::optional<Layout> layout = layoutOf(tile);
    if (!layout)
      return op->emitOpError("has the tile ") << tile << " without a layout; run stretto-assign-layouts first";
    if (layout->inSharedMemory())
      return success();
    if (layout->bits(Layout::Lane) != laneBits || layout->bits(Layout::Warp) != warpBits)
      return op->emitOpError("has the tile ")
             << tile << ", expected the bits of " << lanesOfWarp << " lanes and " << function.getWarps() << " warps";
    uint64_t thread = layout->reach(Layout::Lane) | layout->reach(Layout::Warp);
    if (thread & layout->reach(Layout::Register))
      return op->emitOpError("has the tile ") << tile << ", in which registers and threads contribute the same bits";
    return success();
  };
  WalkResult result = function.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      if (failed(check(op, type)))
        return WalkResult::interrupt();
    auto channel = dyn_cast<ChannelOp>(op);
    bool placed = !channel || (channel.getOffset() && (!channel.getBulk() || channel.getBarriers()));
    if (auto convert = dyn_cast<ConvertOp>(op))
      placed = !inSharedMemory(convert.getType()) || convert.getOffset();
    if (!placed || (scratchBytesOf(op) && !op->hasAttr(scratchAttribute)) || !function.getShared()) {
      op->emitOpError("has no place in shared memory; run stretto-plan-shared-memory first");
      return WalkResult::interrupt();
    }
    if (StringRef problem = problemOfCopy(op); !problem.empty()) {
      op->emitOpError(problem);
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// What is wrong with how an operation copies a tile, which may come from a file; empty where nothing is.
StringRef ThreadLowering::problemOfCopy(Operation *op) {
  auto isBulk = [](Value channel) {
    auto made = channel.getDefiningOp<ChannelOp>();
    return made && made.getBulk();
  };
  if (auto send = dyn_cast<SendOp>(op); send && !send.getTurn() && isBulk(send.getChannel()))
    return "has no turn, expected one for a bulk channel";
  if (auto receive = dyn_cast<ReceiveOp>(op); receive && !receive.getTurn() && isBulk(receive.getChannel()))
    return "has no turn, expected one for a bulk channel";
  auto convert = dyn_cast<ConvertOp>(op);
  auto store = dyn_cast<StoreOp>(op);
  if (convert && convert.getMatrices()) {
    bool isStored = inSharedMemory(convert.getType());
    auto tile = cast<RankedTensorType>(isStored ? convert.getOperand().getType() : convert.getType());
    if (!hasMatrices(tile) || isStored == inSharedMemory(convert.getOperand().getType()))
      return "takes matrices of eight rows of a tile that has none, between registers and shared memory";
  }
  if (store && store.getMatrices() &&
      !(store.getStaged() && hasMatrices(cast<RankedTensorType>(store.getTile().getType()))))
    return "stores matrices of eight rows of a tile that has none, or without a stage";
  if (store && store.getStaged()) {
    auto tile = cast<RankedTensorType>(store.getTile().getType());
    int64_t perAccess = manifest.arguments[cast<BlockArgument>(store.getView()).getArgNumber()].perAccess();
    if (tile.getRank() != 2 || !alongRows(*layoutOf(tile), perAccess))
      return "stages a tile whose warps do not have rows of their own";
  }
  return "";
}

/// How many blocks a multiprocessor is to have. Of those that walk over states some wait for memory while others
/// compute, as far as registers reach.
int64_t ThreadLowering::blocksAtOnce() {
  constexpr int64_t registersOfProcessor = 65536, threadsThatWait = 512, ofMatrix = 12;
  if (manifest.independentChunks)
    return blocksOfInverses(function, *function.getShared());
  // The tiles of a window need all registers that there are.
  if (!manifest.inPlace || windowLength())
    return 1;
  int64_t entries = 0, others = 40;
  for (const Manifest::Argument &argument : manifest.arguments) {
    // What is made of a state takes its place, but for addresses; a parameter stays beside it.
    if (argument.kind == Manifest::Kind::State) {
      entries += llvm::product_of(argument.shape);
      others += argument.shape.size() == 2 ? ofMatrix : 0;
    }
    if (argument.kind == Manifest::Kind::Parameter)
      entries += 2 * llvm::product_of(argument.shape);
  }
  int64_t threads = registersOfProcessor / (entries / manifest.threads + others);
  return std::max<int64_t>(std::min(threads, threadsThatWait) / manifest.threads, 1);
}

LLVM::LLVMFuncOp ThreadLowering::createFunction() {
  MLIRContext *context = b.getContext();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {LLVM::LLVMPointerType::get(context)});
  auto result = LLVM::LLVMFuncOp::create(b, function.getSymName(), type);
  auto words = LLVM::LLVMArrayType::get(b.getI64Type(), manifest.blockWords());
  result.setArgAttr(0, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(words));
  constexpr int64_t alignmentOfBoxes = 64;
  result.setArgAttr(0, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(alignmentOfBoxes));
  result.setArgAttr(0, NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
  result->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  result->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                  b.getDenseI32ArrayAttr({static_cast<int32_t>(manifest.threads), 1, 1}));
  result->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(static_cast<int32_t>(blocksAtOnce())));
  // Denormals become zero: otherwise every exponential would first test for them.
  result->setAttr("denormal_fp_math_f32", b.getStringAttr("preserve-sign"));
  manifest.sharedBytes = *function.getShared();
  result->setAttr(Manifest::attributeName, manifest.toAttribute(context));
  return result;
}

LogicalResult ThreadLowering::run() {
  if (failed(checkLayouts()))
    return failure();
  noteBoxes();
  LLVM::LLVMFuncOp result = createFunction();
  Block *entry = result.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  if (failed(lowerItem(entry->getArgument(0))))
    return failure();
  LLVM::ReturnOp::create(b, ValueRange());
  return success();
}

Value ThreadLowering::word(int64_t index) {
  return LLVM::LoadOp::create(b, b.getI64Type(), b.advance(block, index * 8), /*alignment=*/8);
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
  WalkResult hasDescriptors =
      function.walk([](chunk::DotOp product) { return WalkResult(failure(isOfWarpgroups(product))); });
  if (hasDescriptors.wasInterrupted())
    b.warp = b.shuffleFrom(b.warp, b.i32(0));
  shared = LLVM::AddressOfOp::create(b, b.pointerType(3), sharedMemory);

  Value item = NVVM::BlockIdXOp::create(b, b.getI32Type());
  slice = b.i32(0);
  if (manifest.slices > 1) {
    Value slices = b.i32(manifest.slices);
    slice = arith::RemUIOp::create(b, item, slices);
    item = arith::DivUIOp::create(b, item, slices);
  }
  packed = manifest.inPlace ? b.i1(false) : b.compare(arith::CmpIPredicate::ne, word(Manifest::Offsets), b.i64(0));
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

  // A sequence without a row of the state is left out.
  stateRow = startRow = numberAt(word(Manifest::Slots), sequence, sequence);
  OpBuilder::InsertionGuard guard(b);
  Value isRow = b.compare(arith::CmpIPredicate::ult, stateRow, word(Manifest::StateRows));
  b.setInsertionPointToStart(scf::IfOp::create(b, isRow).thenBlock());
  if (group == 1)
    return lowerHead(first);
  // The first head stores what the others read: it comes last.
  auto loop = scf::ForOp::create(b, b.i32(0), together, b.i32(1));
  b.setInsertionPointToStart(loop.getBody());
  Value fromLast = b.sub(b.add(together, -1), loop.getInductionVar());
  LogicalResult lowered = lowerHead(b.add(first, fromLast));
  b.barrier();
  return lowered;
}

LogicalResult ThreadLowering::lowerChunk(Value item) {
  Value sequences = word(Manifest::Sequences), chunks = word(Manifest::Chunks), one = b.i64(1);
  Value together = b.add(arith::DivUIOp::create(b, word(Manifest::Tokens), b.i64(manifest.chunk)), sequences);
  Value ofLongest = b.mul(sequences, chunks);
  Value numbers = b.select(packed, arith::MinSIOp::create(b, ofLongest, together), ofLongest);
  Value number = arith::RemUIOp::create(b, item, numbers);
  Value owner = b.truncate(arith::DivUIOp::create(b, item, numbers));
  auto found = scf::IfOp::create(b, b.getI64Type(), packed, /*addElse=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(found.thenBlock());
  scf::YieldOp::create(b, sequenceOf(number, b.i64(manifest.chunk), chunks));
  b.setInsertionPointToStart(found.elseBlock());
  scf::YieldOp::create(b, Value(arith::DivUIOp::create(b, number, chunks)));
  b.setInsertionPointAfter(found);
  stateRow = sequence = found.getResult(0);
  findTokens();
  findSegment();
  Value place = b.sub(number, firstCheckpoint(chunks, one));
  Value exists = b.compare(arith::CmpIPredicate::ult, place, b.sub(end, begin));
  b.setInsertionPointToStart(scf::IfOp::create(b, exists).thenBlock());
  // The last comes first: of those that look back without a bound it takes longest.
  ownChunk = b.sub(b.add(end, -1), place);
  return lowerHead(owner);
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
  return lower(*function.getBlock());
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
  exists = isLess(begin, end);
  if (manifest.reverse) {
    Value firstOfRange = b.select(packed, none, arith::DivUIOp::create(b, first, every));
    Value passes = b.both(isEqual(firstKept, last), isEqual(segment, firstOfRange));
    // With nothing behind it in the range a segment takes what there is behind the range.
    isFirst = b.select(isOwn, passes, isEqual(begin, end));
    exists = b.select(isOwn, exists, isLess(inRange(own), inRange(next)));
    isLast = either(passes, b.both(exists, isEqual(begin, firstKept)));
  } else {
    isFirst = isEqual(begin, none);
    isLast = b.both(isEqual(end, chunks), either(exists, isEqual(segment, none)));
  }
  checkpoint = firstCheckpoint(word(Manifest::Chunks), word(Manifest::CheckpointInterval));
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
  // The row of the checkpoint that a segment begins with. A sequence that has ended begins with any.
  Value every = arith::MaxSIOp::create(b, word(Manifest::StartInterval), b.i64(1));
  Value areCheckpoints = b.compare(arith::CmpIPredicate::ne, word(Manifest::StartInterval), b.i64(0));
  Value row = firstCheckpoint(word(Manifest::ChunksPlaced), every);
  Value isEnded = b.compare(arith::CmpIPredicate::eq, begin, end);
  Value fromFirst = arith::DivUIOp::create(b, b.sub(begin, word(Manifest::FirstPlaced)), every);
  row = b.add(row, b.select(isEnded, b.i64(0), fromFirst));
  startRow = b.select(areCheckpoints, row, stateRow);
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

LogicalResult ThreadLowering::lower(Block &source) {
  for (Operation &op : source) {
    b.setLoc(op.getLoc());
    if (failed(lower(&op)))
      return failure();
  }
  return success();
}

LogicalResult ThreadLowering::lower(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](scf::ForOp op) { return lowerLoop(op); })
      .Case([&](scf::IfOp op) { return lowerCondition(op); })
      .Case([&](scf::YieldOp) { return success(); }) // by the loop or condition
      .Case([&](ReturnOp) { return success(); })     // by the frame
      .Case([&](TokensOp op) { return scalars.map(op.getResult(), tokens), success(); })
      .Case([&](SegmentOp op) { return scalars.map(op->getResults(), ValueRange{begin, end}), success(); })
      .Case([&](kernel::ChunkOp op) { return scalars.map(op.getResult(), ownChunk), success(); })
      .Case([&](SpanOp op) { return lowerSpan(op), success(); })
      .Case([&](InRangeOp op) { return lowerInRange(op), success(); })
      .Case([&](ChannelOp op) { return lowerChannel(op), success(); })
      .Case([&](SendOp op) { return lowerSend(op), success(); })
      .Case([&](ReceiveOp op) { return lowerReceive(op), success(); })
      .Case([&](LoadOp op) { return lowerLoad(op), success(); })
      .Case([&](EvaluateOp op) { return lowerEvaluate(op); })
      .Case([&](SaveOp op) { return lowerSave(op), success(); })
      .Case([&](StoreOp op) { return lowerStore(op), success(); })
      .Case([&](CarryOp op) { return lowerCarry(op), success(); })
      .Case([&](ConvertOp op) { return lowerConvert(op), success(); })
      .Case([&](SetAsideOp op) { return lowerSetAside(op), success(); })
      .Case([&](TakeBackOp op) { return lowerTakeBack(op), success(); })
      .Case([&](BarrierOp op) { return lowerBarrier(op.getFence()), success(); })
      .Case([&](AwaitOp op) {
        NVVM::CpAsyncCommitGroupOp::create(b);
        NVVM::CpAsyncWaitGroupOp::create(b, 0);
        return lowerBarrier(op.getFence()), success();
      })
      .Case([&](chunk::DotOp op) { return lowerProduct(op); })
      .Case([&](MatvecOp op) { return lowerMatvec(op); })
      .Case([&](FinishOp op) { return lowerFinish(op), success(); })
      .Case([&](chunk::BroadcastOp op) { return lowerBroadcast(op), success(); })
      .Case([&](chunk::CausalOp op) { return lowerCausal(op), success(); })
      .Case([&](chunk::MeetOp op) { return lowerMeet(op), success(); })
      .Case([&](chunk::MiddleOp op) { return lowerMiddle(op), success(); })
      .Case([&](chunk::JoinHalvesOp op) { return lowerJoinHalves(op), success(); })
      .Case([&](chunk::MaskOp op) { return lowerMask(op), success(); })
      .Case([&](chunk::ReduceOp op) { return lowerReduce(op), success(); })
      .Case([&](chunk::ColumnsOp op) { return lowerColumns(op), success(); })
      .Case([&](chunk::ConcatOp op) { return lowerConcat(op), success(); })
      .Case([&](chunk::ConvOp op) { return lowerConv(op), success(); })
      .Case([&](chunk::ConvBackOp op) { return lowerConvBack(op), success(); })
      .Case([&](chunk::DelayOp op) { return lowerDelay(op), success(); })
      .Case([&](chunk::TailOp op) { return lowerTail(op), success(); })
      .Case([&](chunk::AccumulateOp op) { return lowerAccumulate(op), success(); })
      .Case([&](chunk::RowOp op) { return lowerRow(op), success(); })
      .Case([&](chunk::WithinOp op) { return lowerWithin(op), success(); })
      .Case([&](chunk::DecayMatrixOp op) { return lowerDecayMatrix(op), success(); })
      .Case([&](chunk::DecayDotOp op) { return lowerDecayDot(op); })
      .Case([&](chunk::DecayMixOp op) { return lowerDecayMix(op); })
      .Case([&](chunk::DecayPairsOp op) { return lowerDecayPairs(op), success(); })
      .Case([&](chunk::SolveOp op) { return lowerSolve(op), success(); })
      .Case([&](chunk::InverseOp op) { return lowerInverse(op), success(); })
      .Case([&](chunk::ScanOp op) { return lowerScan(op), success(); })
      .Default([&](Operation *op) -> LogicalResult {
        bool isTile = op->getNumResults() == 1 && isa<RankedTensorType>(op->getResult(0).getType());
        if (!op->hasTrait<OpTrait::Elementwise>() && !isa<arith::ConstantOp>(op))
          return op->emitOpError("has no form on a GPU");
        return isTile ? lowerElementwise(op) : lowerScalar(op), success();
      });
}

void ThreadLowering::lowerBarrier(bool fence) {
  if (fence)
    NVVM::FenceProxyOp::create(b, NVVM::ProxyKind::async_shared,
                               NVVM::SharedSpaceAttr::get(b.getContext(), NVVM::SharedSpace::shared_cta));
  b.barrier();
}

/// The registers of a tile, or a number that is the same for all threads, in order.
void ThreadLowering::appendLive(Value source, SmallVectorImpl<Value> &values) {
  if (!isa<RankedTensorType>(source.getType()))
    return values.push_back(scalars.lookup(source));
  for (Value value : registersOf(source))
    if (value)
      values.push_back(value);
}

void ThreadLowering::takeLive(Value target, Value source, ValueRange &values) {
  auto next = [&] {
    Value first = values.front();
    values = values.drop_front();
    return first;
  };
  if (!isa<RankedTensorType>(source.getType()))
    return scalars.map(target, next());
  Registers tile = registersOf(source);
  for (Value &value : tile)
    if (value)
      value = next();
  registers[target] = std::move(tile);
}

LogicalResult ThreadLowering::lowerLoop(scf::ForOp loop) {
  SmallVector<Value> initial;
  for (Value value : loop.getInitArgs())
    appendLive(value, initial);
  auto lowered = scf::ForOp::create(b, scalars.lookup(loop.getLowerBound()), scalars.lookup(loop.getUpperBound()),
                                    scalars.lookup(loop.getStep()), initial);
  // The loop's registers stand in the order of the initial ones.
  auto distribute = [&](ValueRange targets, ValueRange values) {
    for (auto [target, source] : llvm::zip(targets, loop.getInitArgs()))
      takeLive(target, source, values);
  };
  scalars.map(loop.getInductionVar(), lowered.getInductionVar());
  distribute(loop.getRegionIterArgs(), lowered.getRegionIterArgs());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(lowered.getBody());
    if (failed(lower(*loop.getBody())))
      return failure();
    SmallVector<Value> next;
    for (Value value : loop.getBody()->getTerminator()->getOperands())
      appendLive(value, next);
    if (!next.empty())
      scf::YieldOp::create(b, next);
  }
  distribute(loop.getResults(), lowered.getResults());
  return success();
}

LogicalResult ThreadLowering::lowerCondition(scf::IfOp condition) {
  // Types are known once a branch is lowered: the branches are made first, the operation around them then.
  auto lowered = scf::IfOp::create(b, TypeRange(), scalars.lookup(condition.getCondition()), /*addElse=*/true);
  SmallVector<SmallVector<Value>, 2> yielded;
  for (auto [source, target] :
       {std::pair(condition.thenBlock(), lowered.thenBlock()), std::pair(condition.elseBlock(), lowered.elseBlock())}) {
    SmallVector<Value> &values = yielded.emplace_back();
    if (!source)
      continue;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(target->getTerminator());
    if (failed(lower(*source)))
      return failure();
    for (Value value : source->getTerminator()->getOperands())
      appendLive(value, values);
    target->getTerminator()->setOperands(values);
  }
  if (condition.getNumResults() == 0)
    return success();

  auto result = scf::IfOp::create(b, ValueRange(yielded[0]).getTypes(), lowered.getCondition(), /*addElse=*/true);
  result.getThenRegion().takeBody(lowered.getThenRegion());
  result.getElseRegion().takeBody(lowered.getElseRegion());
  lowered.erase();
  ValueRange values = result.getResults();
  for (auto [tile, source] : llvm::zip(condition.getResults(), condition.thenBlock()->getTerminator()->getOperands()))
    takeLive(tile, source, values);
  return success();
}

//===----------------------------------------------------------------------===//
// Elements in place
//===----------------------------------------------------------------------===//

void ThreadLowering::define(Value tile, function_ref<Value(uint64_t)> element) {
  auto type = cast<RankedTensorType>(tile.getType());
  Layout layout = *layoutOf(type);
  Registers result(layout.size(Layout::Register));
  for (auto [reg, value] : llvm::enumerate(result))
    if (ThreadBuilder::inside(layout, type.getShape(), reg) != ThreadBuilder::Inside::Never)
      value = element(reg);
  registers[tile] = std::move(result);
}

void ThreadLowering::lowerScalar(Operation *op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op); constant && constant.getType().isIndex()) {
    scalars.map(constant.getResult(), b.i64(cast<IntegerAttr>(constant.getValue()).getInt()));
    return;
  }
  // An index is a 64-bit number.
  Operation *scalar = b.clone(*op, scalars);
  for (Value result : scalar->getResults())
    if (result.getType().isIndex())
      result.setType(b.getI64Type());
}

void ThreadLowering::lowerElementwise(Operation *op) {
  Value tile = op->getResult(0);
  Type element = getElementTypeOrSelf(tile.getType());
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    if (op->use_empty())
      return;
    Value number =
        arith::ConstantOp::create(b, cast<SplatElementsAttr>(constant.getValue()).getSplatValue<TypedAttr>());
    return define(tile, [&](uint64_t) { return number; });
  }
  auto single = [&](uint64_t reg) -> Value {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, isa<RankedTensorType>(operand.getType()) ? registersOf(operand)[reg]
                                                                    : scalars.lookupOrDefault(operand));
    Operation *scalar = b.clone(*op, mapping);
    scalar->getResult(0).setType(element);
    return scalar->getResult(0);
  };
  // One instruction rounds two numbers to 16 bits, or compares two pairs of these, and leaves them where products want
  // them.
  bool inPairs = isa<arith::TruncFOp, arith::MaximumFOp>(op) && element.getIntOrFloatBitWidth() == 16;
  if (!inPairs)
    return define(tile, single);
  Registers pair;
  define(tile, [&](uint64_t reg) -> Value {
    bool paired = llvm::all_of(op->getOperands(), [&](Value operand) {
      const Registers &source = registersOf(operand);
      return (reg | 1) < source.size() && source[reg & ~1] && source[reg | 1];
    });
    if (!paired)
      return single(reg);
    if (!(reg & 1)) {
      IRMapping mapping;
      for (Value operand : op->getOperands()) {
        const Registers &source = registersOf(operand);
        mapping.map(operand, b.pack({source[reg], source[reg + 1]}));
      }
      Operation *both = b.clone(*op, mapping);
      both->getResult(0).setType(VectorType::get(2, element));
      pair = b.unpack(both->getResult(0));
    }
    return pair[reg & 1];
  });
}

void ThreadLowering::lowerBroadcast(chunk::BroadcastOp op) {
  const Registers &source = registersOf(op.getOperand());
  Layout target = *layoutOf(op.getType()), own = *layoutOf(op.getOperand().getType());
  if (own.rank() == 0)
    return define(op.getResult(), [&](uint64_t) { return source[0]; });
  // The operand's registers by coordinate.
  llvm::SmallDenseMap<uint64_t, Value> byCoordinate;
  for (auto [reg, value] : llvm::enumerate(source))
    byCoordinate[own.at(Layout::Register, reg)] = value;
  unsigned side = op.getAlong() == chunk::Side::Rows ? 0 : 1;
  define(op.getResult(),
         [&](uint64_t reg) { return byCoordinate.lookup(target.coordinate(target.at(Layout::Register, reg), side)); });
}

void ThreadLowering::lowerCausal(chunk::CausalOp op) {
  const Registers &source = registersOf(op.getOperand());
  Layout layout = *layoutOf(op.getType());
  Value zero = b.zero(getElementTypeOrSelf(op.getType()));
  auto predicate = op.getStrict() ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sle;
  define(op.getResult(), [&](uint64_t reg) {
    Value kept = b.compare(predicate, b.coordinate(layout, 1, reg), b.coordinate(layout, 0, reg));
    return b.select(kept, source[reg], zero);
  });
}

LogicalResult ThreadLowering::lowerEvaluate(EvaluateOp op) {
  const View &view = viewOf(op.getTable());
  auto table = function->getParentOfType<ModuleOp>().lookupSymbol<chunk::TableOp>(view.argument->name);
  if (!table)
    return op.emitOpError("computes the table '") << view.argument->name << "', which the module does not have";
  Block &body = table.getBody().front();
  Layout layout = *layoutOf(op.getType());
  Type element = getElementTypeOrSelf(op.getType()), real = b.getF64Type();
  int64_t count = op.getType().getDimSize(0);
  auto asReal = [&](Value number) { return arith::SIToFPOp::create(b, real, number); };
  Value head = asReal(view.head), first = b.mul(scalars.lookup(op.getChunk()), count),
        valid = validTokens(first, count);
  define(op.getResult(), [&](uint64_t reg) {
    Value token = b.coordinate(layout, 0, reg), place = b.add(b.add(position, first), b.extend(token));
    if (std::optional<int64_t> period = table.getPeriod())
      place = arith::RemUIOp::create(b, place, b.i64(*period));
    Value column = layout.rank() == 2 ? b.coordinate(layout, 1, reg) : b.i32(0);
    IRMapping numbers;
    numbers.map(body.getArguments(), ValueRange{asReal(place), head, asReal(column)});
    for (Operation &inner : body.without_terminator())
      b.clone(inner, numbers);
    Value number = numbers.lookup(body.getTerminator()->getOperand(0));
    return b.select(b.less(token, valid), arith::TruncFOp::create(b, element, number), b.zero(element));
  });
  return success();
}

void ThreadLowering::lowerMask(chunk::MaskOp op) {
  const Registers &source = registersOf(op.getOperand());
  Layout layout = *layoutOf(op.getType());
  Value valid = b.truncate(scalars.lookup(op.getValid()));
  Value otherwise = b.real(getElementTypeOrSelf(op.getType()), op.getOtherwise().convertToDouble());
  define(op.getResult(),
         [&](uint64_t reg) { return b.select(b.less(b.coordinate(layout, 0, reg), valid), source[reg], otherwise); });
}

Value ThreadLowering::scratchOf(Operation *op) {
  return b.advance(shared, op->getAttrOfType<IntegerAttr>(scratchAttribute).getInt());
}

SharedTile ThreadLowering::scratchTile(Value base, RankedTensorType type) {
  Layout layout = sharedLayout(type.getShape(), llvm::divideCeil(type.getElementTypeBitWidth(), 8));
  return SharedTile(withLayout(type, layout), base);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct LowerToThreads : stretto::impl::LowerToThreadsBase<LowerToThreads> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    SmallVector<FuncOp> functions(module.getOps<FuncOp>());
    if (functions.empty())
      return;
    auto bytes = LLVM::LLVMArrayType::get(builder.getI8Type(), 0);
    LLVM::GlobalOp::create(builder, module.getLoc(), bytes, /*isConstant=*/false, LLVM::Linkage::External, sharedMemory,
                           Attribute(), /*alignment=*/1024, /*addrSpace=*/3);
    for (FuncOp function : functions) {
      builder.setInsertionPoint(function);
      auto text = function->getAttrOfType<StringAttr>(Manifest::attributeName);
      llvm::Expected<Manifest> manifest = Manifest::fromJson(text ? text.getValue() : "");
      if (!manifest) {
        function.emitOpError("has no manifest: ") << llvm::toString(manifest.takeError());
        return signalPassFailure();
      }
      if (manifest->arguments.size() != function.getBlock()->getNumArguments()) {
        function.emitOpError("[func_c2] has ")
            << function.getBlock()->getNumArguments() << " arguments and a manifest of " << manifest->arguments.size();
        return signalPassFailure();
      }
      if (failed(ThreadLowering(function, std::move(*manifest), builder).run()))
        return signalPassFailure();
      function.erase();
    }
  }
};
} // namespace
