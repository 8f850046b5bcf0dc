//===- LowerToThreads.cpp - From a block to one of its threads ------------===//

#include "dialect/kernel/Chip.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Passes.h"
#include "passes/kernel/BulkCopies.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"
#include "passes/kernel/Stripes.h"
#include "passes/kernel/ThreadLowering.h"
#include "llvm/Support/SaveAndRestore.h"

namespace stretto {
#define GEN_PASS_DEF_LOWERTOTHREADS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

//===----------------------------------------------------------------------===//
// The frame
//===----------------------------------------------------------------------===//

/// Layouts may come from a file: those that the lowering cannot follow are refused.
LogicalResult ThreadLowering::checkLayouts(FuncOp function) {
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
    bool placed = !channel || (channel.getOffset() && (!channel.bytesOfBarriers() || channel.getBarriers()));
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

/// Whether tiles of its role are left over those of a channel.
static bool isUnder(ChannelOp channel) {
  auto function = cast<FuncOp>(channel->getParentOp());
  return llvm::any_of(function.getOps<ChannelOp>(), [&](ChannelOp other) {
    return other.getOver() && other.getOver() == channel.getPassed() &&
           llvm::any_of(other->getUsers(), llvm::IsaPred<PassOp>);
  });
}

/// Whether a channel and the one whose places it has belong together: tiles that one role receives alone, and others
/// that it leaves there.
bool ThreadLowering::fitsOver(ChannelOp channel) {
  int64_t receivers = 0, passers = 0;
  for (FuncOp role : roles)
    for (auto other : role.getOps<ChannelOp>()) {
      if (other.getPassed() == channel.getOver()) {
        bool isAlike = other.isShared() && other.getDepth() == channel.getDepth() &&
                       other.getOffset() == channel.getOffset() && other.getType() == channel.getType();
        if (!isAlike)
          return false;
        receivers += llvm::any_of(other->getUsers(), llvm::IsaPred<ReceiveOp>);
      }
      passers += other.getOver() == channel.getOver() && llvm::any_of(other->getUsers(), llvm::IsaPred<PassOp>);
    }
  return receivers == 1 && passers == 1;
}

/// What is wrong with the channels between roles, which may come from a file; empty where nothing is. Whoever waits at
/// one that nobody fills, or frees, waits for ever.
StringRef ThreadLowering::problemOfRoles() {
  SmallVector<ChannelOp> passed;
  int64_t threads = 0;
  for (FuncOp each : roles) {
    threads += each.getThreads();
    llvm::copy_if(each.getOps<ChannelOp>(), std::back_inserter(passed), [](ChannelOp op) { return op.getPassed(); });
  }
  if (roles.size() > 1 && manifest.inPlace)
    return "has several roles and takes single tokens, expected one role";
  if (roles.size() > 1 && manifest.threads != threads)
    return "has a manifest of other threads than those of its roles";
  for (ChannelOp channel : passed) {
    SmallVector<ChannelOp> ends;
    llvm::copy_if(passed, std::back_inserter(ends),
                  [&](ChannelOp other) { return other.getPassed() == channel.getPassed(); });
    auto uses = [](ChannelOp end, auto isOf) { return llvm::count_if(end->getUsers(), isOf); };
    DenseSet<Operation *> functions;
    int64_t sources = 0, readers = 0;
    for (ChannelOp end : ends) {
      bool isSame = end->getAttrDictionary() == channel->getAttrDictionary() && end.getType() == channel.getType();
      if (!isSame || !functions.insert(end->getParentOp()).second)
        return "has channels under one number that differ, or are of one role";
      int64_t all = llvm::range_size(end->getUsers()), sends = uses(end, llvm::IsaPred<SendOp>);
      int64_t receives = uses(end, llvm::IsaPred<ReceiveOp>);
      bool isProducer = cast<FuncOp>(end->getParentOp()).getRole().getKind() == RoleKind::Producer;
      bool isSent = end.isShared() && sends && receives == (isProducer ? 0 : 1) && all == sends + receives;
      bool isLeft = !end.isShared() && all == 1 && uses(end, llvm::IsaPred<PassOp>) == 1;
      sources += isSent || isLeft;
      readers += all == 2 && receives == 1 && uses(end, llvm::IsaPred<ReleaseOp>) == 1;
      // Those who receive what is left over its tiles release them.
      readers += isUnder(end) && all == 1 && receives == 1;
    }
    if (channel.getOver() && !fitsOver(channel))
      return "has tiles that are left over others which are not received alone, once a turn, or are not alike";
    if (!channel.getDepth() || sources != 1 || !readers || sources + readers != static_cast<int64_t>(ends.size()))
      return "has a channel that is not passed or sent by one role, once a turn, and received and released by the "
             "others";
  }
  return "";
}

/// What is wrong with what an operation fetches, which may come from a file; empty where nothing is.
StringRef ThreadLowering::problemOfFetch(FetchOp op) {
  if (!manifest.inPlace)
    return "fetches states of a kernel that does not update them in place";
  const Manifest::Argument *first = nullptr;
  for (Value view : op.getViews()) {
    const Manifest::Argument &argument = manifest.arguments[cast<BlockArgument>(view).getArgNumber()];
    first = first ? first : &argument;
    int64_t width = argument.shape.size() == 2 ? argument.shape[1] : 1;
    bool isWithin = argument.column >= 0 && argument.column + width <= static_cast<int64_t>(op.getColumns());
    if (argument.kind != Manifest::Kind::State || argument.sliced || argument.entry != first->entry ||
        argument.group != first->group || argument.columns != static_cast<int64_t>(op.getColumns()) || !isWithin)
      return "fetches what are no parts of one entry of as many columns, which is not sliced";
  }
  return "";
}

/// What is wrong with how an operation copies a tile, which may come from a file; empty where nothing is.
StringRef ThreadLowering::problemOfCopy(Operation *op) {
  auto isBulk = [](Value channel) {
    auto made = channel.getDefiningOp<ChannelOp>();
    return made && made.getBulk();
  };
  constexpr StringLiteral lacksTurn = "has no turn, expected one for a bulk channel",
                          lacksChunk = "has no chunk, expected one for a bulk channel";
  using Kind = Manifest::Kind;
  auto isOf = [&](Value view, std::initializer_list<Kind> kinds) {
    return llvm::is_contained(kinds, manifest.arguments[argumentOf(view).getArgNumber()].kind);
  };
  if (auto save = dyn_cast<SaveOp>(op); save && !isOf(save.getView(), {Kind::State}))
    return "saves to what is no state";
  if (auto fetch = dyn_cast<FetchOp>(op))
    return problemOfFetch(fetch);
  if (auto carry = dyn_cast<CarryOp>(op))
    if (!isOf(carry.getView(), {Kind::Input}) || !isOf(carry.getWindow(), {Kind::Window}))
      return "carries rows that are no input's, or to what is no window";
  if (auto send = dyn_cast<SendOp>(op); send && isBulk(send.getChannel())) {
    if (!isOf(send.getView(), {Kind::Input, Kind::Window, Kind::Checkpoint}))
      return "sends what is no input, window or checkpoint to a bulk channel";
    if (!send.getTurn() || !send.getChunk())
      return send.getTurn() ? lacksChunk : lacksTurn;
  }
  if (auto receive = dyn_cast<ReceiveOp>(op); receive && isBulk(receive.getChannel()))
    if (!receive.getTurn() || !receive.getChunk())
      return receive.getTurn() ? lacksChunk : lacksTurn;
  if (auto receive = dyn_cast<ReceiveOp>(op); receive && !receive.getTurn())
    if (auto channel = receive.getChannel().getDefiningOp<ChannelOp>(); channel && channel.getPassed())
      return "has no turn, expected one for what another role passes";
  if (auto condition = dyn_cast<ConditionOp>(op); condition && !inSharedMemory(condition.getTile().getType()))
    return "asks for a number that is not in shared memory";
  if (auto pass = dyn_cast<PassOp>(op)) {
    auto operand = cast<RankedTensorType>(pass.getOperand().getType());
    if (inSharedMemory(operand) || pass.getType() != pass.getChannel().getType().getTile())
      return "passes a tile that is not in registers, or leaves it elsewhere than in the channel";
    if (pass.getMatrices() && !hasMatrices(operand))
      return "passes matrices of eight rows of a tile that has none";
  }
  auto convert = dyn_cast<ConvertOp>(op);
  auto store = dyn_cast<StoreOp>(op);
  if (store && !isOf(store.getView(), {Kind::Output, Kind::Kept}))
    return "stores to what is no output";
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
  constexpr int64_t registersOfProcessor = 65536, threadsThatWait = 512, ofMatrix = 12, ofRow = 4;
  if (roles.size() > 1)
    return 1;
  if (manifest.independentChunks) {
    bool meetsOneAtATime = llvm::any_of(function.getOps<ChannelOp>(), bringsOneAtATime);
    return meetsOneAtATime ? blocksOfMeetings(function) : blocksOfInverses(function, *function.getShared());
  }
  // The tiles of a window need all registers that there are.
  if (!manifest.inPlace || windowLength())
    return 1;
  int64_t ofStates = 0, ofFetched = 0, ofParameters = 0, others = 40;
  for (auto [argument, view] : llvm::zip_equal(manifest.arguments, function.getBlock()->getArguments())) {
    // What is made of a state takes its place, but for addresses; a parameter stays beside it, but not beside what is
    // loaded only when it is wanted.
    if (argument.kind == Manifest::Kind::State) {
      bool isFetched = llvm::any_of(view.getUsers(), llvm::IsaPred<FetchOp>);
      int64_t count = llvm::product_of(argument.shape);
      (isFetched ? ofFetched : ofStates) += count;
      others += argument.shape.size() == 2 && !isFetched ? std::min(ofMatrix, ofRow + count / manifest.threads) : 0;
    }
    if (argument.kind == Manifest::Kind::Parameter)
      ofParameters += 2 * llvm::product_of(argument.shape);
  }
  int64_t entries = ofStates + std::max(ofFetched, ofParameters);
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
  manifest.work = estimateWork(function) / manifest.threads;
  result->setAttr(Manifest::attributeName, manifest.toAttribute(context));
  return result;
}

LogicalResult ThreadLowering::run() {
  for (FuncOp role : roles)
    if (failed(checkLayouts(role)))
      return failure();
  for (StringRef problem : {problemOfRoles(), problemOfEnds()})
    if (!problem.empty())
      return function.emitOpError(problem);
  noteBoxes();
  LLVM::LLVMFuncOp result = createFunction();
  Block *entry = result.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  if (failed(lowerItem(entry->getArgument(0))))
    return failure();
  LLVM::ReturnOp::create(b, ValueRange());
  return success();
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

LogicalResult ThreadLowering::lower(Block &source) {
  for (Block::iterator op = source.begin(); op != source.end();) {
    if (Block::iterator end = endOfStripes(op, source.end()); end != op) {
      if (failed(lowerInStripes(op, end)))
        return failure();
      op = end;
      continue;
    }
    b.setLoc(op->getLoc());
    if (failed(lower(&*op)))
      return failure();
    ++op;
  }
  return success();
}

LogicalResult ThreadLowering::lowerInStripes(Block::iterator begin, Block::iterator end) {
  uint64_t count = 0;
  SmallVector<PassOp> passes;
  SmallVector<Operation *> striped;
  for (Operation &op : llvm::make_range(begin, end)) {
    if (isa<ReceiveOp>(op)) {
      b.setLoc(op.getLoc());
      if (failed(lower(&op)))
        return failure();
      continue;
    }
    if (isa<ReleaseOp>(op))
      continue;
    striped.push_back(&op);
    if (auto pass = dyn_cast<PassOp>(op)) {
      passes.push_back(pass);
      count = layoutOf(pass.getOperand().getType())->size(Layout::Register);
    }
  }
  for (uint64_t from = 0; from < count; from += registersOfStripe) {
    llvm::SaveAndRestore part(stripe, Stripe{from, from + registersOfStripe});
    for (Operation *op : striped) {
      b.setLoc(op->getLoc());
      if (failed(lower(op)))
        return failure();
    }
  }
  for (PassOp pass : passes)
    finishPass(pass);
  for (Operation &op : llvm::make_range(begin, end))
    if (isa<ReleaseOp>(op) && failed(lower(&op)))
      return failure();
  return success();
}

LogicalResult ThreadLowering::lower(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](scf::ForOp op) { return lowerLoop(op); })
      .Case([&](scf::IfOp op) { return lowerCondition(op); })
      .Case([&](scf::YieldOp) { return success(); }) // by the loop or condition
      .Case([&](ReturnOp) { return lowerReturn(), success(); })
      .Case([&](TokensOp op) { return scalars.map(op.getResult(), tokens), success(); })
      .Case([&](GroupOp op) { return scalars.map(op.getResult(), b.i64(group)), success(); })
      .Case([&](SegmentOp op) { return scalars.map(op->getResults(), ValueRange{begin, end}), success(); })
      .Case([&](kernel::ChunkOp op) { return scalars.map(op.getResult(), ownChunk), success(); })
      .Case([&](SpanOp op) { return lowerSpan(op), success(); })
      .Case([&](InRangeOp op) { return lowerInRange(op), success(); })
      .Case([&](ChannelOp op) { return lowerChannel(op), success(); })
      .Case([&](SendOp op) { return lowerSend(op), success(); })
      .Case([&](ReceiveOp op) { return lowerReceive(op), success(); })
      .Case([&](PassOp op) { return lowerPass(op), success(); })
      .Case([&](ReleaseOp op) { return lowerRelease(op), success(); })
      .Case([&](ConditionOp op) { return lowerConditionOfTile(op), success(); })
      .Case([&](LoadOp op) { return lowerLoad(op), success(); })
      .Case([&](EvaluateOp op) { return lowerEvaluate(op); })
      .Case([&](SaveOp op) { return lowerSave(op), success(); })
      .Case([&](StoreOp op) { return lowerStore(op), success(); })
      .Case([&](CarryOp op) { return lowerCarry(op), success(); })
      .Case([&](FetchOp op) { return lowerFetch(op), success(); })
      .Case([&](LeaveOp op) { return lowerLeave(op), success(); })
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
      .Case([&](chunk::ExpectOp op) { return lowerExpect(op), success(); })
      .Case([&](chunk::DecayMatrixOp op) { return lowerDecayMatrix(op), success(); })
      .Case([&](chunk::DecayDotOp op) { return lowerDecayDot(op); })
      .Case([&](chunk::DecayMixOp op) { return lowerDecayMix(op); })
      .Case([&](chunk::DecayPairsOp op) { return lowerDecayPairs(op), success(); })
      .Case([&](chunk::SolveOp op) { return lowerSolve(op), success(); })
      .Case([&](chunk::InverseOp op) { return lowerInverse(op); })
      .Case([&](chunk::ScanOp op) { return lowerScan(op), success(); })
      .Default([&](Operation *op) -> LogicalResult {
        bool isTile = op->getNumResults() == 1 && isa<RankedTensorType>(op->getResult(0).getType());
        if (!op->hasTrait<OpTrait::Elementwise>() && !isa<arith::ConstantOp>(op))
          return op->emitOpError("has no form on a GPU");
        return isTile ? lowerElementwise(op) : lowerScalar(op), success();
      });
}

void ThreadLowering::fenceShared() {
  NVVM::FenceProxyOp::create(b, NVVM::ProxyKind::async_shared,
                             NVVM::SharedSpaceAttr::get(b.getContext(), NVVM::SharedSpace::shared_cta));
}

void ThreadLowering::lowerBarrier(bool fence) {
  if (fence)
    fenceShared();
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

/// Few counters tell a thread what is on its way. In walks back that carry matrices numbers of tokens which were loaded
/// before the loop would be waited for at their first use in each turn, and so would those that the turn loads for the
/// next, which are on their way by the same counter. So they are waited for before the loop; walks that have registers
/// to spare do so by themselves. To wait is to ask whether all numbers together are one that matters to nobody.
void ThreadLowering::awaitLoadsBefore(scf::ForOp loop) {
  SmallVector<Value> loaded;
  bool carriesMatrices = false;
  for (Value value : loop.getInitArgs()) {
    auto load = value.getDefiningOp<LoadOp>();
    if (load && load.getChunk())
      appendLive(value, loaded);
    else
      carriesMatrices |=
          isa<RankedTensorType>(value.getType()) && cast<RankedTensorType>(value.getType()).getRank() == 2;
  }
  bool loads = !loop.getBody()->getOps<LoadOp>().empty();
  if (!walksInReverse(function) || !carriesMatrices || !loads || loaded.empty())
    return;
  Value all;
  for (Value number : loaded) {
    unsigned bits = number.getType().getIntOrFloatBitWidth();
    Value word = arith::BitcastOp::create(b, b.getIntegerType(bits), number);
    if (bits < 32)
      word = arith::ExtUIOp::create(b, b.getI32Type(), word);
    else if (bits > 32)
      word = arith::TruncIOp::create(b, b.getI32Type(), word);
    all = all ? Value(arith::XOrIOp::create(b, all, word)) : word;
  }
  LLVM::InlineAsmOp::create(b, TypeRange(), all,
                            "{\n\t.reg .pred p;\n\tsetp.eq.u32 p, $0, 0x7fc0dead;\n\t@p nanosleep.u32 0;\n\t}", "r",
                            /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
}

LogicalResult ThreadLowering::lowerLoop(scf::ForOp loop) {
  SmallVector<Value> initial;
  for (Value value : loop.getInitArgs())
    appendLive(value, initial);
  awaitLoadsBefore(loop);
  Value lower = scalars.lookup(loop.getLowerBound()), step = scalars.lookup(loop.getStep());
  if (int64_t groups = function.getGroups(); groups > 1 && isa<FuncOp>(loop->getParentOp())) {
    lower = b.add(lower, b.mul(step, group));
    step = b.mul(step, groups);
  }
  if (ends && isa<FuncOp>(loop->getParentOp()))
    return lowerWalk(loop, initial);
  auto lowered = scf::ForOp::create(b, lower, scalars.lookup(loop.getUpperBound()), step, initial);
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
    if (failed(this->lower(*loop.getBody())))
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

LogicalResult ThreadLowering::lowerWalk(scf::ForOp loop, ValueRange initial) {
  auto distribute = [&](ValueRange targets, ValueRange values) {
    for (auto [target, source] : llvm::zip(targets, loop.getInitArgs()))
      takeLive(target, source, values);
  };
  Value lower = scalars.lookup(loop.getLowerBound()), upper = scalars.lookup(loop.getUpperBound());
  bool knows = ends->getParentOp() == loop.getOperation();
  SmallVector<Value> first = {lower, b.i1(true)};
  llvm::append_range(first, initial);
  auto walk = scf::WhileOp::create(b, ValueRange(first).getTypes(), first);
  SmallVector<Location> places(first.size(), b.getLoc());
  Block *before = b.createBlock(&walk.getBefore(), {}, ValueRange(first).getTypes(), places);
  {
    Value chunk = before->getArgument(0), last = b.truncate(chunk), goesOn = before->getArgument(1);
    // A producer has seen where walks end when it would wait for what is not read any longer: those who have read what
    // stood there a turn before knew.
    if (function.getRole().getKind() == RoleKind::Producer) {
      int64_t least = std::numeric_limits<int32_t>::max();
      for (auto channel : function.getOps<ChannelOp>())
        least = std::min(least, static_cast<int64_t>(channel.getDepth()));
      last = b.add(last, -least);
    }
    if (!knows)
      goesOn = b.less(last, endOfWalks());
    scf::ConditionOp::create(b, b.both(b.less(chunk, upper), goesOn), before->getArguments());
  }
  Block *after = b.createBlock(&walk.getAfter(), {}, ValueRange(first).getTypes(), places);
  scalars.map(loop.getInductionVar(), after->getArgument(0));
  constexpr unsigned ofWalk = 2; // the chunk, and whether the walk goes on
  distribute(loop.getRegionIterArgs(), ValueRange(after->getArguments()).drop_front(ofWalk));
  if (failed(this->lower(*loop.getBody())))
    return failure();
  SmallVector<Value> next = {b.add(after->getArgument(0), scalars.lookup(loop.getStep())),
                             knows ? scalars.lookup(ends.getCondition()) : after->getArgument(1)};
  for (Value value : loop.getBody()->getTerminator()->getOperands())
    appendLive(value, next);
  scf::YieldOp::create(b, next);
  b.setInsertionPointAfter(walk);
  distribute(loop.getResults(), walk.getResults().drop_front(ofWalk));
  if (function.getRole().getKind() == RoleKind::Producer)
    awaitUnread(b.sub(walk.getResult(0), lower));
  return success();
}

Value ThreadLowering::endOfWalks() {
  // What another role stores is asked for anew each time.
  return LLVM::LoadOp::create(b, b.getI32Type(), scratchOf(ends), /*alignment=*/4, /*isVolatile=*/true);
}

void ThreadLowering::awaitUnread(Value turns) {
  onFirstThread([&] {
    for (auto channel : function.getOps<ChannelOp>())
      for (int64_t back = 1; back <= static_cast<int64_t>(channel.getDepth()); ++back) {
        Value turn = b.sub(turns, b.i64(back));
        OpBuilder::InsertionGuard guard(b);
        Value isSent = b.compare(arith::CmpIPredicate::sge, turn, b.i64(0));
        b.setInsertionPointToStart(scf::IfOp::create(b, isSent).thenBlock());
        awaitPhase(channel, turn);
      }
  });
}

void ThreadLowering::lowerReturn() {
  if (!ends || ends->getParentOfType<FuncOp>() != function)
    return;
  onFirstThread([&] {
    Value isLeft = b.compare(arith::CmpIPredicate::ne, endOfWalks(), b.i32(noEnd));
    b.store(placeOfLeft(), arith::ExtUIOp::create(b, b.getI32Type(), isLeft).getResult());
  });
}

/// Whether a role waits, in each turn, for what another one passes.
static bool receivesFrom(FuncOp role, FuncOp other) {
  return llvm::any_of(role.getOps<ChannelOp>(), [&](ChannelOp own) {
    return own.getPassed() && !own.isShared() && llvm::any_of(other.getOps<ChannelOp>(), [&](ChannelOp end) {
             return end.getPassed() == own.getPassed() && llvm::any_of(end->getUsers(), llvm::IsaPred<PassOp>);
           });
  });
}

/// What is wrong with what ends walks, which may come from a file; empty where nothing is. All roles are to know of the
/// end before they ask for what comes behind it, and nothing is to come to memory that the block has left.
StringRef ThreadLowering::problemOfEnds() {
  int64_t count = 0;
  for (FuncOp role : roles)
    role.walk([&](chunk::ExpectOp op) {
      ends = op;
      ++count;
    });
  if (!count)
    return "";
  if (count > 1)
    return "expects two things of its chunks, or more, expected one";
  if (!manifest.expects)
    return "expects something of its chunks, which its manifest does not say";
  auto isProducer = [](FuncOp role) { return role.getRole().getKind() == RoleKind::Producer; };
  if (!isProducer(roles.back()) || llvm::any_of(roles, [](FuncOp role) { return role.getGroups() > 1; }))
    return "ends walks whose tiles no producer sends, or that groups of warps take in turns";
  auto function = ends->getParentOfType<FuncOp>();
  auto loop = dyn_cast<scf::ForOp>(ends->getParentOp());
  if (!loop || !isa<FuncOp>(loop->getParentOp()))
    return "ends a walk elsewhere than in its turns";
  // What is passed says that whoever passes it went on to that turn.
  for (auto pass : loop.getBody()->getOps<PassOp>())
    if (pass->isBeforeInBlock(ends))
      return "passes tiles of a turn before it is known whether the walk ends with it";
  for (FuncOp role : roles)
    if (role != function && !isProducer(role) && !receivesFrom(role, function))
      return "ends walks of roles that receive nothing of the one that ends them";
  return "";
}

/// Whether a loop of a walk forwards seldom takes the second branch, which forms pairs of tokens by halves of blocks,
/// at addresses that nothing else asks for.
bool ThreadLowering::takesMiddles(scf::IfOp condition) {
  if (walksInReverse(function) || !condition->getParentOfType<scf::ForOp>())
    return false;
  auto find = [](chunk::MiddleOp) { return WalkResult::interrupt(); };
  return condition.getElseRegion().walk(find).wasInterrupted();
}

Value ThreadLowering::hidden(Value number) {
  auto copy =
      LLVM::InlineAsmOp::create(b, number.getType(), number, "mov.b32 $0, $1;", "=r,r",
                                /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                                LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
  return copy->getResult(0);
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
    llvm::SaveAndRestore lane(b.lane);
    llvm::SaveAndRestore rare(isRare);
    if (source == condition.elseBlock() && !isRare && takesMiddles(condition)) {
      isRare = true;
      b.lane = hidden(b.lane);
    }
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
// The pass
//===----------------------------------------------------------------------===//

/// Kernels and manifests may come from a file: those that do not belong together are refused.
static LogicalResult checkShapes(FuncOp function, const Manifest &manifest) {
  for (auto [argument, view] : llvm::zip_equal(manifest.arguments, function.getBlock()->getArguments())) {
    using Kind = Manifest::Kind;
    RankedTensorType tile = cast<ViewType>(view.getType()).getTile();
    ArrayRef<int64_t> shape = argument.shape, ofTile = tile.getShape();
    bool hasTokens = llvm::is_contained({Kind::Input, Kind::Output, Kind::Table, Kind::Window}, argument.kind);
    if (argument.kind == Kind::Window) // which has the tokens that it keeps in its shape
      shape = shape.drop_front(std::min<size_t>(shape.size(), 1));
    bool isOfTokens = hasTokens && tile.getRank() && ofTile.drop_front() == shape;
    bool isWhole = (!hasTokens || argument.kind == Kind::Table) && ofTile == shape;
    if (!isOfTokens && !isWhole)
      return function.emitOpError("[func_c2] has tiles of ")
             << tile << " of the argument '" << argument.name << "', expected those of the manifest's shape";
    if (argument.sliced && argument.shape.empty())
      return function.emitOpError("[func_c2] slices the argument '") << argument.name << "', which is a number";
  }
  return success();
}

namespace {
struct LowerToThreads : stretto::impl::LowerToThreadsBase<LowerToThreads> {
  using LowerToThreadsBase::LowerToThreadsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Chip> known = Chip::named(chip, [&] { return module.emitError(); });
    if (failed(known))
      return signalPassFailure();
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    SmallVector<FuncOp> functions(module.getOps<FuncOp>());
    if (functions.empty())
      return;
    auto bytes = LLVM::LLVMArrayType::get(builder.getI8Type(), 0);
    LLVM::GlobalOp::create(builder, module.getLoc(), bytes, /*isConstant=*/false, LLVM::Linkage::External,
                           ThreadLowering::sharedMemory, Attribute(), /*alignment=*/1024, /*addrSpace=*/3);
    // What is beside another function is lowered with it.
    DenseSet<Operation *> others;
    for (FuncOp function : functions)
      for (FuncOp other : llvm::drop_begin(function.getRolesOfBlock()))
        others.insert(other);
    for (FuncOp function : functions) {
      if (others.contains(function))
        continue;
      builder.setInsertionPoint(function);
      FailureOr<Manifest> manifest = Manifest::leftOn(function);
      if (failed(manifest))
        return signalPassFailure();
      if (manifest->arguments.size() != function.getBlock()->getNumArguments()) {
        function.emitOpError("[func_c2] has ")
            << function.getBlock()->getNumArguments() << " arguments and a manifest of " << manifest->arguments.size();
        return signalPassFailure();
      }
      if (failed(checkShapes(function, *manifest)))
        return signalPassFailure();
      manifest->awaitsLaunches = known->hasDependentLaunches;
      if (failed(ThreadLowering(function.getRolesOfBlock(), std::move(*manifest), builder).run()))
        return signalPassFailure();
      function.erase();
    }
    for (Operation *other : others)
      other->erase();
  }
};
} // namespace
