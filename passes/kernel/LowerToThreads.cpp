//===- LowerToThreads.cpp - From a block to one of its threads ------------===//

#include "dialect/kernel/Chip.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Passes.h"
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
  if (failed(check()))
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
  if (!passes.empty())
    fenceShared();
  for (PassOp pass : passes)
    arrivePassed(pass.getChannel(), pass.getTurn(), /*isRead=*/false);
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
      .Case([&](ReplaceOp op) { return lowerReplace(op), success(); })
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
      .Case([&](BarrierOp op) {
        if (op.getCopied())
          awaitStoredBoxes();
        return lowerBarrier(op.getFence()), success();
      })
      .Case([&](AwaitOp op) {
        NVVM::CpAsyncCommitGroupOp::create(b);
        NVVM::CpAsyncWaitGroupOp::create(b, op.getPending());
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
      .Case([&](chunk::ConvTapsOp op) { return lowerConvTaps(op), success(); })
      .Case([&](chunk::DelayOp op) { return lowerDelay(op), success(); })
      .Case([&](chunk::TailOp op) { return lowerTail(op), success(); })
      .Case([&](chunk::AccumulateOp op) { return lowerAccumulate(op), success(); })
      .Case([&](chunk::TotalOp op) { return lowerTotal(op), success(); })
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
        if (auto rounding = dyn_cast<arith::TruncFOp>(op); rounding && isTile && isRoundedLate(rounding))
          return success();
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
  WalkResult asked = function.walk([&](kernel::ChunkOp op) {
    return manifest.independentChunks
               ? WalkResult::advance()
               : WalkResult(op.emitOpError("[func_c2] asks for its chunk, where the manifest says "
                                           "that chunks are walked"));
  });
  return failure(asked.wasInterrupted());
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
