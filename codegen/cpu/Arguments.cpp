//===- Arguments.cpp - The tiles and states of a work item ----------------===//
//
// The argument block is an array of 64-bit words: a header, then the words of each argument (runtime/Manifest.h). A
// whole chunk is read and written where it lies. Of the chunk at the end of a sequence, which may be shorter, the
// tokens that exist are copied to a whole tile in scratch, followed by zeros, and its outputs are copied back, so that
// the stages always work on whole tiles.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "runtime/Manifest.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

/// Words of the block that describe an argument.
int64_t KernelLowering::wordsOf(const Argument &argument) {
  if (isCheckpoint(argument))
    return 3;
  if (isTile(argument) || argument.kind == chunk::ArgumentKind::Table)
    return 4; // pointer; sequence, token and head stride, or others in their place (runtime/Manifest.h)
  if (argument.kind == chunk::ArgumentKind::State && kernel.takesSegments(chunk::Segments::Apart))
    return Manifest::stateWords + Manifest::segmentWords;
  return argument.kind == chunk::ArgumentKind::Parameter ? 2 : Manifest::stateWords;
}

void KernelLowering::readBlock(Value block) {
  int64_t next = 0;
  auto read = [&] {
    Value word = memref::LoadOp::create(builder, block, ValueRange{builder.index(next++)});
    return arith::IndexCastOp::create(builder, builder.getIndexType(), word).getResult();
  };
  sequences = read();
  denseTokens = read();
  heads = read();
  offsets = read();
  positions = read();
  slots = read();
  read(); // the rows of the state, which slots on the CPU are checked against
  firstChunk = read();
  segmentChunks = read();
  interval = read();
  intervalOfStarts = read();
  chunksBefore = read();
  firstPlaced = read();
  chunksPlaced = read();
  read(); // no kernel leaves work items on a CPU
  for (Argument &argument : arguments)
    for (int64_t word = 0; word < wordsOf(argument); ++word)
      argument.words.push_back(read());
}

void KernelLowering::listArguments() {
  outputViews.resize(kernel.getOutputs().size());
  for (BlockArgument value : kernel.getBlock()->getArguments().drop_back()) {
    chunk::ArgumentAttr description = kernel.getArgument(value.getArgNumber());
    bool isParameter = description.getKind() == chunk::ArgumentKind::Parameter;
    arguments.push_back({.value = value,
                         .kind = description.getKind(),
                         .type = cast<RankedTensorType>(value.getType()),
                         .group = description.getGroup(),
                         .sliced = description.getSliced(),
                         .partial = description.getPartial(),
                         .lowest = description.getLowest(),
                         .name = description.getName(),
                         .entry = description.getEntry() ? description.getEntry().getValue() : StringRef(),
                         .columns = isParameter ? description.getColumns() : 0});
  }
  // An output that heads share has room for the part of each; a checkpoint that they share is the same for all.
  for (auto [index, output] : llvm::enumerate(kernel.getOutputs().getAsRange<chunk::OutputAttr>()))
    arguments.push_back({.kind = output.getCheckpoint() ? chunk::ArgumentKind::Checkpoint : chunk::ArgumentKind::Input,
                         .output = index,
                         .type = output.getType(),
                         .group = output.getCheckpoint() ? output.getGroup() : 1,
                         .sliced = output.getSliced(),
                         .partial = output.getPartial(),
                         .inParts = !output.getCheckpoint() && (output.getGroup() > 1 || output.getPartial())});
}

int64_t KernelLowering::blockWords() {
  int64_t count = Manifest::headerWords;
  for (const Argument &argument : arguments)
    count += wordsOf(argument);
  return count;
}

//===----------------------------------------------------------------------===//
// Where things lie
//===----------------------------------------------------------------------===//

static Value divide(VectorBuilder &builder, Value left, Value right) {
  return builder.createOrFold<arith::DivUIOp>(left, right);
}

static Value remainder(VectorBuilder &builder, Value left, Value right) {
  return builder.createOrFold<arith::RemUIOp>(left, right);
}

Value KernelLowering::memoryAt(Value address, Type element) {
  MLIRContext *context = builder.getContext();
  auto pointerType = LLVM::LLVMPointerType::get(context);
  Value integer = arith::IndexCastOp::create(builder, builder.getI64Type(), address);
  Value pointer = LLVM::IntToPtrOp::create(builder, pointerType, integer);
  // The descriptor of a memref of one axis: two pointers, offset, extent, stride. The extent is not known or used.
  Type word = builder.getI64Type(), words = LLVM::LLVMArrayType::get(word, 1);
  auto structure = LLVM::LLVMStructType::getLiteral(context, {pointerType, pointerType, word, words, words});
  Value zero = LLVM::ConstantOp::create(builder, word, 0), one = LLVM::ConstantOp::create(builder, word, 1);
  Value descriptor = LLVM::PoisonOp::create(builder, structure);
  auto set = [&](Value value, ArrayRef<int64_t> place) {
    descriptor = LLVM::InsertValueOp::create(builder, descriptor, value, place);
  };
  set(pointer, {0});
  set(pointer, {1});
  set(zero, {2});
  set(zero, {3, 0});
  set(one, {4, 0});
  auto type = MemRefType::get({ShapedType::kDynamic}, element);
  return UnrealizedConversionCastOp::create(builder, type, descriptor).getResult(0);
}

KernelLowering::Item KernelLowering::findItem(Value number) {
  Item item;
  Value isPacked = builder.compare(arith::CmpIPredicate::ne, offsets, builder.index(0)), chunkNumber;
  if (hasIndependentChunks()) {
    Value chunks = arith::SelectOp::create(builder, isPacked, builder.index(1), segmentChunks);
    chunkNumber = remainder(builder, number, chunks);
    number = divide(builder, number, chunks);
  }
  Value slices = builder.index(kernel.getSlices()), segment;
  if (kernel.takesSegments(chunk::Segments::Apart)) {
    Value items = builder.multiply(builder.multiply(sequences, heads), slices);
    segment = builder.add(divide(builder, number, items), divide(builder, firstChunk, intervalOfStarts));
    number = remainder(builder, number, items);
  }
  item.slice = remainder(builder, number, slices);
  Value pair = divide(builder, number, slices);
  item.head = remainder(builder, pair, heads);
  item.sequence = divide(builder, pair, heads);
  Type index = builder.getIndexType();
  auto wordIn = [&](Value address, Value place) {
    Value word = memref::LoadOp::create(builder, memoryAt(address, builder.getI64Type()), place);
    return arith::IndexCastOp::create(builder, index, word).getResult();
  };
  // The word at a place, or what there is without an address.
  auto wordOr = [&](Value address, Value place, Value otherwise) {
    Value isGiven = builder.compare(arith::CmpIPredicate::ne, address, builder.index(0));
    auto found = scf::IfOp::create(builder, TypeRange{index}, isGiven, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(found.thenBlock());
    scf::YieldOp::create(builder, wordIn(address, place));
    builder.setInsertionPointToStart(found.elseBlock());
    scf::YieldOp::create(builder, otherwise);
    return found.getResult(0);
  };
  item.stateRow = item.startRow = wordOr(slots, item.sequence, item.sequence);
  if (llvm::any_of(arguments, [&](const Argument &argument) { return isTableInTime(argument); }))
    item.position = wordOr(positions, item.stateRow, builder.index(0));
  auto found = scf::IfOp::create(builder, TypeRange{index, index, index}, isPacked, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(found.thenBlock());
  Value first = wordIn(offsets, item.sequence), last = wordIn(offsets, builder.add(item.sequence, 1));
  scf::YieldOp::create(builder, ValueRange{builder.index(0), first, builder.subtract(last, first)});
  builder.setInsertionPointToStart(found.elseBlock());
  scf::YieldOp::create(builder, ValueRange{item.sequence, builder.index(0), denseTokens});
  item.sequenceInMemory = found.getResult(0);
  item.firstToken = found.getResult(1);
  item.tokens = found.getResult(2);
  builder.setInsertionPointAfter(found);
  item.begin = builder.index(0);
  item.end = item.tokens;
  if (segment)
    findSegmentApart(item, segment);
  else if (kernel.getSegments() || kernel.getReverse() || llvm::any_of(arguments, isCheckpoint))
    findSegment(item); // what walks back may follow kernels that leave checkpoints of a segment alone
  if (chunkNumber) {
    // An item of a packed batch has all chunks of the range.
    Value tokens = builder.index(kernel.getChunk()), number = builder.add(firstChunk, chunkNumber);
    Value count = arith::SelectOp::create(builder, isPacked, segmentChunks, builder.index(1));
    item.begin = builder.minimum(builder.multiply(number, tokens), item.tokens);
    item.end = builder.minimum(builder.multiply(builder.add(number, count), tokens), item.tokens);
  }
  return item;
}

Value KernelLowering::firstCheckpoint(const Item &item, Value chunks, Value interval) {
  Value before = builder.add(item.firstToken, builder.multiply(item.sequenceInMemory, denseTokens));
  Value tokens = builder.multiply(interval, kernel.getChunk());
  Value ifAllAreLong = builder.multiply(item.sequence, arith::CeilDivUIOp::create(builder, chunks, interval));
  return builder.minimum(ifAllAreLong, builder.add(divide(builder, before, tokens), item.sequence));
}

void KernelLowering::findSegmentApart(Item &item, Value segment) {
  Value none = builder.index(0), chunk = builder.index(kernel.getChunk());
  auto tokensOf = [&](Value chunks) { return builder.minimum(builder.multiply(chunks, chunk), item.tokens); };
  auto isLess = [&](Value left, Value right) { return builder.compare(arith::CmpIPredicate::ult, left, right); };
  auto isEqual = [&](Value left, Value right) { return builder.compare(arith::CmpIPredicate::eq, left, right); };
  auto both = [&](Value left, Value right) -> Value { return arith::AndIOp::create(builder, left, right); };
  auto either = [&](Value left, Value right) -> Value { return arith::OrIOp::create(builder, left, right); };
  Value last = tokensOf(builder.add(firstChunk, segmentChunks));
  item.firstKept = tokensOf(firstChunk);
  // Chunks before the first segment may be before the sequence.
  auto inRange = [&](Value number) -> Value {
    Value inSequence = tokensOf(arith::MaxSIOp::create(builder, number, none));
    return builder.minimum(arith::MaxSIOp::create(builder, inSequence, item.firstKept), last);
  };
  Value own = builder.multiply(segment, intervalOfStarts), next = builder.add(own, intervalOfStarts);
  Value isOwn = isEqual(chunksBefore, none);
  auto choose = [&](Value condition, Value value, Value otherwise) -> Value {
    return arith::SelectOp::create(builder, condition, value, otherwise);
  };
  if (kernel.getReverse()) {
    item.begin = inRange(choose(isOwn, own, next));
    item.end = inRange(builder.add(next, chunksBefore));
  } else {
    item.begin = inRange(builder.subtract(own, chunksBefore));
    item.end = inRange(choose(isOwn, next, own));
  }
  item.startRow = builder.add(firstCheckpoint(item, chunksPlaced, intervalOfStarts),
                              builder.subtract(segment, divide(builder, firstPlaced, intervalOfStarts)));
  // What is walked in the place of a segment that there is not would be left beyond the last place.
  Value isThere = isLess(inRange(own), inRange(next));
  item.exists = both(isLess(item.begin, item.end), isThere);
  if (kernel.getReverse()) {
    Value passes = both(isEqual(item.firstKept, last), isEqual(own, firstChunk));
    // What is walked behind a segment begins, at the end of the range, with what there is behind that.
    item.isFirst = choose(isOwn, passes, isEqual(item.end, last));
    item.exists = choose(isOwn, item.exists, isThere);
    item.isLast = either(passes, both(item.exists, isEqual(item.begin, item.firstKept)));
  } else {
    item.isFirst = isEqual(item.begin, none);
    item.isLast = both(isEqual(item.end, item.tokens), either(item.exists, isEqual(segment, none)));
  }
  item.firstCheckpoint = firstCheckpoint(item, segmentChunks, interval);
}

void KernelLowering::findSegment(Item &item) {
  Value tokens = builder.index(kernel.getChunk());
  item.begin = builder.minimum(builder.multiply(firstChunk, tokens), item.tokens);
  item.end = builder.minimum(builder.add(item.begin, builder.multiply(segmentChunks, tokens)), item.tokens);
  if (kernel.takesSegments(chunk::Segments::Turns)) {
    // A turn takes the place of a chunk.
    Value tokensOfTurn = builder.multiply(interval, tokens);
    auto turnsTo = [&](Value token) {
      return builder.multiply(arith::CeilDivUIOp::create(builder, token, tokensOfTurn), tokens);
    };
    item.begin = turnsTo(item.begin);
    item.end = turnsTo(item.end);
    item.firstKept = builder.multiply(divide(builder, firstPlaced, interval), tokens);
    item.firstCheckpoint = firstCheckpoint(item, chunksPlaced, interval);
    return;
  }
  item.firstKept = item.begin;
  item.firstCheckpoint = firstCheckpoint(item, segmentChunks, interval);
  // The row of the checkpoint that the item begins with. A sequence that has ended begins with any.
  Value every = arith::MaxUIOp::create(builder, intervalOfStarts, builder.index(1));
  Value areCheckpoints = builder.compare(arith::CmpIPredicate::ne, intervalOfStarts, builder.index(0));
  Value row = firstCheckpoint(item, chunksPlaced, every);
  Value fromFirst = divide(builder, builder.subtract(divide(builder, item.begin, tokens), firstPlaced), every);
  Value isEnded = builder.compare(arith::CmpIPredicate::eq, item.begin, item.end);
  row = builder.add(row, arith::SelectOp::create(builder, isEnded, builder.index(0), fromFirst));
  item.startRow = arith::SelectOp::create(builder, areCheckpoints, row, item.stateRow);
}

void KernelLowering::findAddresses(const Item &item) {
  for (Argument &argument : arguments) {
    ArrayRef<Value> words = argument.words;
    Value head = divide(builder, item.head, builder.index(argument.group));
    if (argument.partial)
      head = builder.add(builder.multiply(head, kernel.getSlices()), item.slice);
    int64_t width = argument.type.getRank() ? argument.type.getShape().back() : 1;
    Value channel = argument.sliced ? builder.multiply(item.slice, width) : builder.index(0);
    Value entries;
    if (isCheckpoint(argument)) {
      entries = builder.add(builder.multiply(head, words[2]), channel);
    } else if (isTile(argument)) {
      Value ofTokens = builder.multiply(item.firstToken, words[2]);
      if (argument.inParts) {
        // Those of a packed batch lie as near as sequences of a segment may.
        Value ofSequences = builder.multiply(item.sequence, words[1]);
        Value isPacked = builder.compare(arith::CmpIPredicate::ne, offsets, builder.index(0));
        entries = arith::SelectOp::create(builder, isPacked, builder.minimum(ofTokens, ofSequences), ofSequences);
      } else {
        entries = builder.add(builder.multiply(item.sequenceInMemory, words[1]), ofTokens);
      }
      entries = builder.add(entries, builder.add(builder.multiply(head, words[3]), channel));
    } else if (isWindow(argument)) {
      entries = builder.add(builder.multiply(item.stateRow, words[2]), builder.multiply(head, words[3]));
    } else if (argument.kind == chunk::ArgumentKind::State) {
      // The entries of a vector are one column of the state object.
      if (argument.type.getRank() < 2)
        channel = builder.multiply(channel, words[4]);
      bool isApart = kernel.takesSegments(chunk::Segments::Apart);
      entries = builder.add(builder.multiply(isApart ? item.stateRow : item.startRow, words[2]),
                            builder.add(builder.multiply(head, words[3]), channel));
    } else {
      entries = builder.add(builder.multiply(head, words[1]), channel);
    }
    Value bytes = builder.multiply(entries, bytesOfElement(argument.type.getElementType()));
    argument.address = builder.add(words[0], bytes);
    if (argument.kind != chunk::ArgumentKind::State && !isWindow(argument))
      continue;
    argument.finalAddress = builder.add(words[1], bytes);
    argument.stride = argument.finalStride = words[4];
    argument.isGiven = builder.compare(arith::CmpIPredicate::ne, words[0], builder.index(0));
    argument.isWanted = builder.compare(arith::CmpIPredicate::ne, words[1], builder.index(0));
    if (argument.kind == chunk::ArgumentKind::State && kernel.takesSegments(chunk::Segments::Apart))
      placeSegment(argument, item, head);
  }
}

void KernelLowering::placeSegment(Argument &state, const Item &item, Value head) {
  ArrayRef<Value> words = ArrayRef(state.words).drop_front(Manifest::stateWords);
  int64_t width = state.type.getShape().back(), parts = state.sliced ? kernel.getSlices() : 1;
  Value none = builder.index(0), stride = builder.index(state.type.getRank() == 2 ? width * parts : 1);
  Value entries = builder.add(builder.multiply(item.startRow, words[2]), builder.multiply(head, words[3]));
  if (state.sliced)
    entries = builder.add(entries, builder.multiply(item.slice, width));
  Value bytes = builder.multiply(entries, bytesOfElement(state.type.getElementType()));
  auto choose = [&](Value condition, Value value, Value otherwise) -> Value {
    return arith::SelectOp::create(builder, condition, value, otherwise);
  };
  auto both = [&](Value left, Value right) -> Value { return arith::AndIOp::create(builder, left, right); };
  auto isSome = [&](Value pointer) { return builder.compare(arith::CmpIPredicate::ne, pointer, none); };
  Value isLeft = isSome(words[1]);
  state.address = choose(item.isFirst, state.address, builder.add(words[0], bytes));
  state.stride = choose(item.isFirst, state.stride, stride);
  state.isGiven = choose(item.isFirst, state.isGiven, both(isSome(words[0]), item.exists));
  state.finalAddress = choose(isLeft, builder.add(words[1], bytes), state.finalAddress);
  state.finalStride = choose(isLeft, stride, state.finalStride);
  state.isWanted = choose(isLeft, item.exists, both(state.isWanted, item.isLast));
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

/// Moves a state between the caller's memory and its buffer.
template <typename MoveVector, typename MoveScalar>
static void moveState(VectorBuilder &builder, RankedTensorType type, Value rowStride, MoveVector moveVector,
                      MoveScalar moveScalar) {
  builder.loop(0, type.getRank() ? type.getDimSize(0) : 1, 1, [&](Value row) {
    Value start = builder.multiply(row, rowStride);
    if (type.getRank() < 2)
      return moveScalar(start, row);
    builder.loopOverVectors(type.getDimSize(1), [&](Value column, int64_t lanes) {
      moveVector(builder.add(start, column), row, column, lanes);
    });
  });
}

void KernelLowering::loadStates(const Item &item) {
  for (Argument &argument : arguments) {
    if (argument.kind != chunk::ArgumentKind::State)
      continue;
    if (isSwept(sweeps, argument)) {
      locateState(argument, item);
      continue;
    }
    RankedTensorType type = argument.type;
    Value buffer = storage[argument.value].rows;
    auto branch = scf::IfOp::create(builder, argument.isGiven, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    Value memory = memoryAt(argument.address, type.getElementType());
    moveState(
        builder, type, argument.stride,
        [&](Value place, Value row, Value column, int64_t lanes) {
          builder.store(builder.load(memory, place, lanes), buffer, {row, column});
        },
        [&](Value place, Value row) { builder.storeScalar(builder.loadScalar(memory, place), buffer, row); });
    builder.setInsertionPointToStart(branch.elseBlock());
    Value empty = builder.splat(argument.lowest ? -std::numeric_limits<double>::infinity() : 0.0);
    if (type.getRank() == 2)
      builder.loop(0, type.getDimSize(0), 1, [&](Value row) {
        builder.loopOverVectors(padded(type.getDimSize(1)),
                                [&](Value column, int64_t) { builder.store(empty, buffer, {row, column}); });
      });
    else
      builder.loopOverVectors(padded(type.getNumElements()),
                              [&](Value column, int64_t) { builder.store(empty, buffer, column); });
  }
}

void KernelLowering::storeStates(const Item &item) {
  for (Argument &argument : arguments) {
    if (argument.kind != chunk::ArgumentKind::State || isSwept(sweeps, argument))
      continue;
    Value memberOfGroup = remainder(builder, item.head, builder.index(argument.group));
    Value isFirst = builder.compare(arith::CmpIPredicate::eq, memberOfGroup, builder.index(0));
    builder.ifTrue(builder.createOrFold<arith::AndIOp>(argument.isWanted, isFirst), [&] {
      Value buffer = storage[argument.value].rows;
      Value memory = memoryAt(argument.finalAddress, argument.type.getElementType());
      moveState(
          builder, argument.type, argument.finalStride,
          [&](Value place, Value row, Value column, int64_t lanes) {
            builder.store(builder.load(buffer, {row, column}), memory, place, lanes);
          },
          [&](Value place, Value row) { builder.storeScalar(builder.loadScalar(buffer, row), memory, place); });
    });
  }
}

//===----------------------------------------------------------------------===//
// Parameters and tables
//===----------------------------------------------------------------------===//

void KernelLowering::viewParameters() {
  for (Argument &argument : arguments) {
    if (!argument.value || !plan.isInvariant(argument.value))
      continue;
    int64_t parts = argument.sliced ? kernel.getSlices() : 1;
    int64_t width = argument.type.getRank() ? argument.type.getShape().back() : 1;
    views[argument.value] = {memoryAt(argument.address, argument.type.getElementType()),
                             builder.index(argument.columns ? argument.columns : width * parts)};
  }
}

bool KernelLowering::isTableInTime(const Argument &argument) const {
  return argument.kind == chunk::ArgumentKind::Table && !plan.isInvariant(argument.value);
}

void KernelLowering::loadTables(Value firstPosition) {
  for (const Argument &argument : arguments)
    if (isTableInTime(argument))
      loadTable(argument, firstPosition, valid, kernel.getChunk(), storage[argument.value].rows);
}

void KernelLowering::loadTable(const Argument &table, Value firstPosition, Value count, int64_t tokens, Value buffer) {
  RankedTensorType type = table.type;
  Value memory = memoryAt(table.address, type.getElementType()), period = table.words[3];
  Value repeats = builder.compare(arith::CmpIPredicate::ne, period, builder.index(0));
  Value divisor = arith::MaxUIOp::create(builder, period, builder.index(1));
  auto storeRow = [&](Value row, llvm::function_ref<Value(Value column, int64_t lanes)> read) {
    if (type.getRank() < 2)
      return builder.storeScalar(vector::ExtractOp::create(builder, read(builder.index(0), 1), 0), buffer, row);
    builder.loopOverVectors(type.getDimSize(1), [&](Value column, int64_t lanes) {
      builder.store(read(column, lanes), buffer, {row, column});
    });
  };
  builder.loop(builder.index(0), count, 1, [&](Value row) {
    Value position = arith::MaxSIOp::create(builder, builder.add(firstPosition, row), builder.index(0));
    position = arith::SelectOp::create(builder, repeats, remainder(builder, position, divisor), position);
    Value start = builder.multiply(position, table.words[2]);
    storeRow(row, [&](Value column, int64_t lanes) { return builder.load(memory, builder.add(start, column), lanes); });
  });
  builder.loop(count, builder.index(tokens), 1,
               [&](Value row) { storeRow(row, [&](Value, int64_t) { return builder.splat(0.0); }); });
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

void KernelLowering::copyToken(RankedTensorType type, Value from, Value fromStart, Value to, Value toStart) {
  if (type.getRank() < 2)
    return builder.storeScalar(builder.loadScalar(from, fromStart), to, toStart);
  builder.loopOverVectors(type.getDimSize(1), [&](Value column, int64_t lanes) {
    builder.store(builder.load(from, builder.add(fromStart, column), lanes), to, builder.add(toStart, column), lanes);
  });
}

Value KernelLowering::tileAddress(const Argument &argument, Value firstToken) {
  Value entries = builder.multiply(firstToken, argument.words[2]);
  return builder.add(argument.address, builder.multiply(entries, bytesOfElement(argument.type.getElementType())));
}

SmallVector<KernelLowering::View> KernelLowering::viewRows(ArrayRef<Rows> tiles, Value from, Value to,
                                                           int64_t tokenCount) {
  if (tiles.empty())
    return {};
  SmallVector<Value> inMemory, standIns;
  SmallVector<int64_t> standInStrides;
  SmallVector<Type> types;
  for (const Rows &rows : tiles) {
    RankedTensorType type = rows.argument->type;
    Type element = type.getElementType();
    llvm::append_values(inMemory, memoryAt(rows.address, element), rows.stride);
    standInStrides.push_back(type.getRank() == 2 ? padded(type.getDimSize(1)) : 1);
    Value buffer = allocate({tokenCount * standInStrides.back()}, element);
    standIns.push_back(memref::CastOp::create(builder, inMemory.end()[-2].getType(), buffer));
    llvm::append_values(types, standIns.back().getType(), builder.getIndexType());
  }
  Value tokens = builder.index(tokenCount), none = builder.index(0);
  Value whole = builder.compare(arith::CmpIPredicate::eq, builder.subtract(to, from), tokens);
  for (const Rows &rows : tiles)
    if (rows.isRing)
      whole = arith::SelectOp::create(builder, rows.isRing,
                                      arith::ConstantOp::create(builder, builder.getBoolAttr(false)), whole);
  auto chosen = scf::IfOp::create(builder, types, whole, /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(chosen.thenBlock());
    scf::YieldOp::create(builder, inMemory);
    builder.setInsertionPointToStart(chosen.elseBlock());
    SmallVector<Value> results;
    for (auto [tile, rows] : llvm::enumerate(tiles)) {
      RankedTensorType type = rows.argument->type;
      Value memory = inMemory[2 * tile], memoryStride = inMemory[2 * tile + 1], standIn = standIns[tile];
      int64_t stride = standInStrides[tile];
      llvm::append_values(results, standIn, builder.index(stride));
      if (rows.argument->output)
        continue;
      builder.loop(from, to, 1, [&](Value row) {
        Value place = row;
        if (rows.isRing) {
          Value inRing =
              builder.createOrFold<arith::RemUIOp>(builder.add(rows.ringStart, row), builder.index(rows.ringLength));
          place = arith::SelectOp::create(builder, rows.isRing, inRing, row);
        }
        copyToken(type, memory, builder.multiply(place, memoryStride), standIn, builder.multiply(row, stride));
      });
      auto clear = [&](Value row) {
        Value start = builder.multiply(row, stride);
        if (type.getRank() < 2) {
          Value zero = arith::ConstantOp::create(builder, builder.getFloatAttr(builder.element, 0.0));
          return builder.storeScalar(zero, standIn, start);
        }
        builder.loopOverVectors(stride, [&](Value column, int64_t) {
          builder.store(builder.splat(0.0), standIn, builder.add(start, column));
        });
      };
      builder.loop(none, from, 1, clear);
      builder.loop(to, tokens, 1, clear);
    }
    scf::YieldOp::create(builder, results);
  }
  SmallVector<View> found;
  for (unsigned tile = 0; tile < tiles.size(); ++tile)
    found.push_back({chosen.getResult(2 * tile), chosen.getResult(2 * tile + 1)});
  return found;
}

void KernelLowering::viewTiles(Value firstToken) {
  isWhole = builder.compare(arith::CmpIPredicate::eq, valid, builder.index(kernel.getChunk()));
  SmallVector<Rows> tiles;
  for (const Argument &argument : arguments)
    if (isTile(argument))
      tiles.push_back(rowsOf(argument, firstToken));
  for (auto [rows, view] : llvm::zip_equal(tiles, viewRows(tiles, builder.index(0), valid, kernel.getChunk())))
    if (rows.argument->output)
      outputViews[*rows.argument->output] = view;
    else
      views[rows.argument->value] = view;
}

Value KernelLowering::everyCheckpoint() {
  return kernel.takesSegments(chunk::Segments::Turns) ? builder.index(1) : interval;
}

Value KernelLowering::checkpointAddress(const Argument &argument, const Item &item, Value firstToken) {
  Value number = divide(builder, builder.subtract(firstToken, item.firstKept), builder.index(kernel.getChunk()));
  number = builder.add(item.firstCheckpoint, divide(builder, number, everyCheckpoint()));
  Value bytes =
      builder.multiply(builder.multiply(number, argument.words[1]), bytesOfElement(argument.type.getElementType()));
  return builder.add(argument.address, bytes);
}

void KernelLowering::viewCheckpoints(const Item &item, Value firstToken) {
  if (llvm::none_of(arguments, isCheckpoint))
    return;
  Value number = divide(builder, builder.subtract(firstToken, item.firstKept), builder.index(kernel.getChunk()));
  Value isSkipped = remainder(builder, number, everyCheckpoint());
  isKept = builder.compare(arith::CmpIPredicate::eq, isSkipped, builder.index(0));
  for (Argument &argument : arguments) {
    if (!isCheckpoint(argument))
      continue;
    int64_t parts = argument.sliced ? kernel.getSlices() : 1;
    int64_t width = argument.type.getRank() == 2 ? argument.type.getDimSize(1) * parts : 1;
    Value address = checkpointAddress(argument, item, firstToken);
    View view = {memoryAt(address, argument.type.getElementType()), builder.index(width)};
    if (argument.output)
      outputViews[*argument.output] = view;
    else
      views[argument.value] = view;
  }
}

void KernelLowering::copyOutputsBack(Value firstToken) {
  if (llvm::none_of(arguments, [](const Argument &argument) { return argument.output && isTile(argument); }))
    return;
  Value isPart = arith::XOrIOp::create(builder, isWhole, arith::ConstantOp::create(builder, builder.getBoolAttr(true)));
  builder.ifTrue(isPart, [&] {
    for (Argument &argument : arguments) {
      if (!argument.output || !isTile(argument))
        continue;
      View view = outputViews[*argument.output];
      Value memory = memoryAt(tileAddress(argument, firstToken), argument.type.getElementType());
      builder.loop(builder.index(0), valid, 1, [&](Value row) {
        copyToken(argument.type, view.base, builder.multiply(row, view.stride), memory,
                  builder.multiply(row, argument.words[2]));
      });
    }
  });
}
